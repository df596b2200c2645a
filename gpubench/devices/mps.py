"""Apple GPUs through Metal."""

from __future__ import annotations

from .base import Device, Memory, register
from .cpu import model


@register
class Mps(Device):
    """The one GPU of an Apple computer; ``torch.mps`` takes no index."""

    kind = "mps"
    indexed = False

    @classmethod
    def count(cls) -> int:
        import torch

        return int(torch.backends.mps.is_available())

    @classmethod
    def why_absent(cls) -> str:
        import torch

        if not torch.backends.mps.is_built():
            return f"this torch ({torch.__version__}) was built without Metal (mps)"
        return "no Metal device, or macOS older than 12.3"

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        import torch

        return (0,) if cls.count() and torch.mps.driver_allocated_memory() else ()

    @classmethod
    def release_memory(cls) -> None:
        import torch

        torch.mps.empty_cache()

    @property
    def label(self) -> str:
        return f"{model()} GPU"

    def synchronize(self) -> None:
        import torch

        torch.mps.synchronize()

    def lacks(self, dtype: str) -> str | None:
        return f"{dtype} does not exist on mps" if dtype in ("tf32", "float64") else None

    def memory(self) -> Memory:
        import torch

        total = torch.mps.recommended_max_memory()
        return Memory(max(0, total - torch.mps.current_allocated_memory()), total)
