"""JAX, which XLA compiles for the CPU, and for GPUs where its plugin for them is installed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import Unmeasurable
from .base import Device
from .implementations import Implementation, register_implementation

if TYPE_CHECKING:
    import torch

_THREADS = ("NPROC", "PJRT_NPROC")
"""Environment variables from which XLA takes the size of its CPU thread pools when it creates them."""
_KEEP = "XLA_PYTHON_CLIENT_PREALLOCATE"
"""Variable that decides whether XLA takes three quarters of a GPU's memory as soon as it sees the GPU, which leaves too
little for torch."""
_PRECISIONS = {"float32": "highest", "float64": "highest", "tf32": "tensorfloat32"}
"""JAX's precision of products by dtype; by default it shortens float32 to TF32 on GPUs."""


@register_implementation
class Jax(Implementation):
    """JAX. A call is compiled with its first arguments. It returns before its work is done, also on a CPU."""

    name, label, module = "jax", "JAX", "jax"
    install = "pip install 'pytest-gpubench[jax]'"
    distributions = ("jax", "jaxlib")
    dtypes = ("float32", "tf32", "bfloat16", "float16", "float64")
    writes = False
    asynchronous = True
    keeps_memory = True

    _started: ClassVar[bool] = False

    def __init__(self, device: Device, dtype: str) -> None:
        super().__init__(device, dtype)
        self._before: dict[str, Any] = {}
        self._result: Any = None

    @classmethod
    def why_not_on(cls, device: Device) -> str | None:
        """Return why JAX can't compute on a GPU: its plugin for them isn't installed."""
        if not device.accelerator:
            return None
        plugins = [entry.name for entry in importlib.metadata.entry_points(group="jax_plugins")]
        if device.kind == "cuda" and any("cuda" in name or "rocm" in name for name in plugins):
            return None
        return f"this JAX has no support for {device.kind}"

    def open(self, threads: int) -> None:
        """Set the precision and, before XLA creates its pools, threads and memory. Raises :class:`Unmeasurable` if JAX
        doesn't see the device."""
        jax = self._start(threads)
        platform = "gpu" if self.device.accelerator else "cpu"
        try:
            count = len(jax.local_devices(backend=platform))
        except RuntimeError as error:
            raise Unmeasurable(f"JAX finds no {platform.upper()}: {' '.join(str(error).split())}") from error
        if self.device.index >= count:
            raise Unmeasurable(f"JAX sees {count} GPU{'s' * (count != 1)}, not {self.device}")
        known = jax.config
        self._before = {
            "jax_enable_x64": known.jax_enable_x64,
            "jax_default_matmul_precision": known.jax_default_matmul_precision,
        }
        known.update("jax_enable_x64", known.jax_enable_x64 or self.dtype == "float64")
        known.update("jax_default_matmul_precision", _PRECISIONS.get(self.dtype))

    @classmethod
    def _start(cls, threads: int) -> Any:
        """Import JAX, and create its devices with the environment that it reads at that moment."""
        wanted = dict.fromkeys(_THREADS, str(threads)) | ({} if _KEEP in os.environ else {_KEEP: "false"})
        with _environment(wanted if not cls._started else {}):
            jax = cls._import()
            if not cls._started:
                with contextlib.suppress(RuntimeError):  # a missing platform is reported by open()
                    jax.devices()
                import threadpoolctl

                threadpoolctl.threadpool_limits(threads)  # for the LAPACK that JAX has loaded
                cls._started = True
        return jax

    def close(self) -> None:
        """Restore the precision."""
        self._result = None
        for name, value in self._before.items():
            self._import().config.update(name, value)

    @property
    def xp(self) -> Any:
        """The module ``jax.numpy``."""
        return self._import().numpy

    def array(self, tensor: torch.Tensor) -> Any:
        """Return the tensor's values in the same memory where XLA can use it, else as a copy."""
        self.device.synchronize()
        return self._import().dlpack.from_dlpack(tensor.detach().resolve_conj().contiguous())

    def prepared(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """Return the function compiled by ``jax.jit``; arguments that aren't arrays are constants of the compiled
        call."""
        call = function
        if not getattr(function, "applies_variant", False):
            fixed = [place for place, value in enumerate(args) if _is_constant(value)]
            named = [name for name, value in kwargs.items() if _is_constant(value)]
            call = self._import().jit(function, static_argnums=fixed, static_argnames=named)

        def remembering(*args: Any, **kwargs: Any) -> Any:
            self._result = result = call(*args, **kwargs)
            return result

        return remembering

    def wait(self) -> None:
        """Wait for the latest result: XLA runs the calls of one thread one after the other."""
        if self._result is not None:
            self._import().block_until_ready(self._result)

    @contextlib.contextmanager
    def in_double(self) -> Iterator[None]:
        """A context in which JAX computes on the CPU and keeps 64-bit numbers, which it otherwise shortens to 32."""
        jax = self._import()
        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)
        try:
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                yield
        finally:
            jax.config.update("jax_enable_x64", before)


def _is_constant(value: Any) -> bool:
    """Whether a value neither is nor contains an array, and is hashable, as ``jax.jit`` requires of constants."""
    from torch.utils import _pytree

    if any(hasattr(leaf, "__dlpack__") for leaf in _pytree.tree_leaves(value)):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """A context in which these environment variables are set."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
