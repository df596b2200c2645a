"""Kinds that torch describes itself: Intel's ``xpu``, and whatever an out-of-tree backend has registered."""

from __future__ import annotations

from typing import Any

from .kind import Kind, Memory


class TorchModule(Kind):
    """A kind known by its ``torch.<name>`` module alone, as torch's contract for device modules has it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def _module(self) -> Any:
        import torch

        return torch.get_device_module(self.name)

    def _ask(self, function: str, *args: Any) -> Any:
        """The module's answer, or ``None`` when it doesn't have that function or can't say."""
        ask = getattr(self._module, function, None)
        try:
            return None if ask is None else ask(*args)
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):
            return None

    def count(self) -> int:
        try:
            module = self._module
        except (RuntimeError, AttributeError):
            return 0
        # Without a wait no time would be true: such a backend counts as absent.
        if not hasattr(module, "synchronize") or self._ask("is_available") is False:
            return 0
        return int(self._ask("device_count") or 0)

    def why_absent(self) -> str:
        import torch

        try:
            module = self._module
        except (RuntimeError, AttributeError):
            module = None
        if module is None or self._ask("_is_compiled") is False:
            return f"this torch ({torch.__version__}) was built without {self.name}"
        if not hasattr(module, "synchronize"):
            return f"torch.{self.name} has no synchronize(): its work can't be timed"
        return f"torch.{self.name} reports no device"

    def in_use(self) -> tuple[int, ...]:
        return () if self._ask("is_initialized") is False else super().in_use()

    def label(self, index: int) -> str:
        return str(self._ask("get_device_name", index) or f"{self.name} device")

    def synchronize(self, index: int) -> None:
        self._module.synchronize(index)

    def memory(self, index: int) -> Memory | None:
        answer = self._ask("mem_get_info", index)
        if answer is None:
            return None
        cached = (self._ask("memory_reserved", index) or 0) - (self._ask("memory_allocated", index) or 0)
        return Memory(int(answer[0]) + max(0, int(cached)), int(answer[1]))

    def peak_memory(self, index: int) -> int | None:
        answer = self._ask("max_memory_allocated", index)
        return None if answer is None else int(answer)

    def reset_peak_memory(self, index: int) -> None:
        self._ask("reset_peak_memory_stats", index)

    def allocated_memory(self, index: int) -> int | None:
        answer = self._ask("memory_allocated", index)
        return None if answer is None else int(answer)

    def release_memory(self) -> None:
        self._ask("empty_cache")


def registered() -> TorchModule | None:
    """The kind that an out-of-tree backend has registered under its own name (PrivateUse1), if any."""
    import torch

    name = torch._C._get_privateuse1_backend_name()
    return None if name == "privateuseone" else TorchModule(name)
