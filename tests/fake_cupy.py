"""A pretend CuPy, backed by NumPy, whose arrays lie on the device of :mod:`fake_backend`: ``pytest -p fake_cupy``.

As with the real one, functions take CuPy's arrays alone and return before their work is done, arrays don't turn into
NumPy's by themselves, tensors of the CPU can't be imported, and what CuPy lacks isn't there. :data:`queue` counts.

- ``queue.delay_s`` is what each operation adds to the queue, which only ``cuda.Device.synchronize`` waits for.
- ``queue.launched`` and ``queue.synchronized`` count operations and waits, ``queue.freed`` calls to empty the pool.
- Its clock is that of the pretend accelerator.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from fake_backend import backend

from gpubench.devices.cupy_arrays import CuPy

FUNCTIONS = {
    "": ("add", "multiply", "exp", "sum", "matmul"),
    "linalg": ("solve", "cholesky", "qr", "svd", "eigh", "lstsq"),
    "fft": ("fft", "rfft2"),
}
"""What the benchmarks use; all of it is in CuPy 13."""
WRITING = ("add", "multiply", "exp", "sum", "matmul")


class Queue:
    """What the pretend GPU still has to do, and what was asked of it."""

    delay_s, done_at = 0.0, 0.0
    launched = synchronized = freed = 0

    def launch(self) -> None:
        self.launched += 1
        self.done_at = max(backend.clock.now(), self.done_at) + self.delay_s

    def wait(self) -> None:
        self.synchronized += 1
        while (left := self.done_at - backend.clock.now()) > 0:
            backend.clock.sleep(left)


queue = Queue()


class Array:
    """``cupy.ndarray``, as far as it is used."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    shape, dtype, nbytes = (property(lambda self, name=name: getattr(self._values, name)) for name in
                            ("shape", "dtype", "nbytes"))  # fmt: skip

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __dlpack__(self, **_: Any) -> Any:
        return self._values.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()

    def __getitem__(self, key: Any) -> Array:
        return Array(self._values[key])

    def __abs__(self) -> Array:
        queue.launch()
        return Array(abs(self._values))

    def diagonal(self, *axes: int) -> Array:
        return Array(self._values.diagonal(*axes))


def _wrapped(result: Any) -> Any:
    if isinstance(result, tuple):  # named in NumPy, plain in CuPy
        return tuple(map(_wrapped, result))
    return Array(np.asarray(result))


def _function(name: str, of_numpy: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(arg, np.ndarray) for arg in args) or not any(isinstance(arg, Array) for arg in args):
            raise TypeError(f"Unsupported type {type(args[0])}")
        if "out" in kwargs:
            if name not in WRITING or not isinstance(kwargs["out"], Array):
                raise TypeError("Output arguments type mismatch")
            kwargs["out"] = kwargs["out"]._values
        queue.launch()
        return _wrapped(of_numpy(*(arg._values if isinstance(arg, Array) else arg for arg in args), **kwargs))

    call.__name__ = f"cupy_{name}"  # as its ufuncs are called
    return call


def _from_dlpack(tensor: Any) -> Array:
    if tensor.device.type == "cpu":
        raise RuntimeError("CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))`")
    return Array(tensor.cpu().numpy())


class _Device:
    current = 0

    def __init__(self, index: int | None = None) -> None:
        self.id = _Device.current if index is None else index

    def use(self) -> None:
        _Device.current = self.id

    def synchronize(self) -> None:
        queue.wait()


class _Pool:
    def free_all_blocks(self) -> None:
        queue.freed += 1


def module() -> types.ModuleType:
    made = types.ModuleType("cupy")
    for part, names in FUNCTIONS.items():
        space, of_numpy = (made, np) if not part else (types.ModuleType(f"cupy.{part}"), getattr(np, part))
        vars(space).update({name: _function(name, getattr(of_numpy, name)) for name in names})
        if part:
            setattr(made, part, space)
    made.ndarray, made.from_dlpack, made.get_default_memory_pool = Array, _from_dlpack, _Pool
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2)
    stream = types.SimpleNamespace(ptr=0)
    made.cuda = types.SimpleNamespace(Device=_Device, runtime=runtime, get_current_stream=lambda: stream)
    return made


def install() -> None:
    """Make ``import cupy`` give the pretend one, for the pretend GPU."""
    sys.modules["cupy"] = module()
    CuPy.kinds = ("cuda", "fake")


def pytest_configure() -> None:
    install()
