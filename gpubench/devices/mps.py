"""Apple GPUs through Metal."""

from __future__ import annotations

from .base import Memory, register
from .cpu import model
from .torch_device import TorchDevice


@register
class Mps(TorchDevice):
    """The one GPU of an Apple computer; ``torch.mps`` takes no index."""

    kind = "mps"
    indexed = False

    @classmethod
    def why_absent(cls) -> str:
        if not cls.torch.backends.mps.is_built():
            return f"this PyTorch build ({cls.torch.__version__}) has no Metal (mps) support"
        return "no Metal device, or macOS older than 12.3"

    @classmethod
    def indices_in_use(cls) -> tuple[int, ...]:
        return (0,) if cls.count() and cls.torch.mps.driver_allocated_memory() else ()

    @property
    def label(self) -> str:
        return f"{model()} GPU"

    def synchronize(self) -> None:
        self.torch.mps.synchronize()

    def lacks(self, dtype: str) -> str | None:
        return f"{dtype} does not exist on mps" if dtype in ("tf32", "float64") else None

    def memory(self) -> Memory:
        total = self.torch.mps.recommended_max_memory()
        return Memory(max(0, total - self.torch.mps.current_allocated_memory()), total)
