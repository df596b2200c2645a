"""Apple GPUs through Metal."""

from __future__ import annotations

from .cpu import model
from .kind import Kind, Memory


class Mps(Kind):
    name = "mps"
    indexed = False

    def count(self) -> int:
        import torch

        return int(torch.backends.mps.is_available())

    def why_absent(self) -> str:
        import torch

        if not torch.backends.mps.is_built():
            return f"this torch ({torch.__version__}) was built without Metal (mps)"
        return "no Metal device, or macOS older than 12.3"

    def label(self, index: int) -> str:
        return f"{model()} GPU"

    def synchronize(self, index: int) -> None:
        import torch

        torch.mps.synchronize()

    def in_use(self) -> tuple[int, ...]:
        import torch

        return (0,) if self.count() and torch.mps.driver_allocated_memory() else ()

    def lacks(self, dtype: str, index: int) -> str | None:
        return f"{dtype} does not exist on mps" if dtype in ("tf32", "float64") else None

    def memory(self, index: int) -> Memory:
        import torch

        total = torch.mps.recommended_max_memory()
        return Memory(max(0, total - torch.mps.current_allocated_memory()), total)

    def release_memory(self) -> None:
        import torch

        torch.mps.empty_cache()
