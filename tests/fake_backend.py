"""A pretend accelerator for torch in pure Python: devices ``fake:0`` and ``fake:1``, no compiler, no hardware.

``pytest -p fake_backend`` (with tests/ on PYTHONPATH) or :func:`register` adds the kind to this process, for good;
``torch.get_device_module("fake")`` is then :data:`backend`. A tensor there wraps a CPU tensor and runs every operation
on it at once, while a queue per device pretends that the work is still under way:

- ``backend.delay_s`` is each operation's time in its device's queue (default 0). Only a wait for the device
  pays for it: ``synchronize()``, ``item()`` and its like, and copies from and to the CPU unless ``non_blocking``.
  ``backend.launch_s`` is its cost on the host, ``backend.copy_byte_per_s`` the speed of copies from and to the CPU
  (``None``: as any other operation), at half of that unless the memory is pinned.
- ``backend.memory_bytes`` is the memory of each device; only a question for free memory is held to it.
- ``backend.clock`` is real time, or the :class:`VirtualClock` given to :func:`register`.

Operations that mix devices raise as on real ones; scalars and indices may come from the CPU. Autograd works on each
device and across them, autocast for products, convolutions, attention, softmax, norms, sums and losses.

Not supported: ``torch.accelerator.synchronize()``, events, streams, generators (the CPU's is used), ``data_ptr()``,
numpy, pickling, ``deepcopy``, recurrent networks, DataParallel; pinned memory, process-wide. ``.to("fake")`` is
``fake:0`` despite ``set_device()``.
"""

from __future__ import annotations

import re
import time
import types
import weakref
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import pytest
import torch

from gpubench.devices.virtual import VirtualMachine

NAME, DEVICES = "fake", 2
aten = torch.ops.aten
_NO_KERNEL = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "_unsafe_view", "resize_"}
_COPIES = {"copy_", "_copy_from", "_to_copy", "_foreach_copy_"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
_ANSWERS_HOST = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_PRIVATE = """utils.backend_registration._setup_privateuseone_for_python_backend
    _C._dispatch_has_kernel_for_dispatch_key _C._set_multithreading_enabled amp.autocast_mode._cast"""
# What autocast runs in its own dtype, and in float32: of CUDA's lists, what models use.
_AUTOCAST_LOW = "linear matmul mm mv bmm addmm baddbmm conv1d conv2d conv3d convolution scaled_dot_product_attention"
_AUTOCAST_FLOAT32 = "softmax.int log_softmax.int layer_norm group_norm nll_loss_nd mse_loss exp log sum sum.dim_IntList"


class VirtualClock(VirtualMachine):
    """Stands still but for a tick at every reading, and for sleeps, however busy the machine is."""

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


class Backend(types.ModuleType):
    """The result of ``torch.get_device_module("fake")``: torch's contract for device modules, and our controls."""

    delay_s = 0.0
    launch_s = 0.0
    copy_byte_per_s: float | None = None
    memory_bytes = 16 << 30
    clock: Any = types.SimpleNamespace(now=time.perf_counter, sleep=time.sleep)

    def __init__(self) -> None:
        super().__init__(f"torch.{NAME}", __doc__)
        zero = {"done_at": 0.0, "allocated": 0, "peak": 0}
        self._devices = [types.SimpleNamespace(**zero) for _ in range(DEVICES)]
        self._current, self._initialized = 0, False

    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: DEVICES)
    get_device_name = staticmethod(lambda device=None: "Fake Accelerator")
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])
    manual_seed_all = staticmethod(lambda seed: None)  # torch.manual_seed() seeds the CPU's generator, which we use
    _is_in_bad_fork = staticmethod(lambda: False)

    def memory_allocated(self, device: Any = None) -> int:
        return self._devices[self.index(device)].allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        return self._devices[self.index(device)].peak

    def index(self, device: Any = None) -> int:
        """Of a device given as torch's modules take it: an index, a name, a ``torch.device``, None for the current."""
        index = device if isinstance(device, int) or device is None else torch.device(device).index
        index = self._current if index is None else index
        if not 0 <= index < DEVICES:
            raise RuntimeError(f"{NAME}: invalid device ordinal {index}, there are {DEVICES} devices")
        return index

    def current_device(self) -> int:
        return self._current

    def set_device(self, device: Any) -> None:
        self._current = self.index(device)

    def is_initialized(self) -> bool:
        return self._initialized

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.memory_bytes - self.memory_allocated(device), self.memory_bytes

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        at = self._devices[self.index(device)]
        at.peak = at.allocated

    def synchronize(self, device: Any = None) -> None:
        at = self._devices[self.index(device)]
        while (left := at.done_at - self.clock.now()) > 0:
            self.clock.sleep(left)

    def _launch(self, indices: set[int], seconds: float) -> None:
        """Queue one operation. One on two devices, a copy between them, starts when both are free."""
        if self.launch_s:
            self.clock.sleep(self.launch_s)
        devices = [self._devices[i] for i in indices]
        done_at = max(self.clock.now(), *(at.done_at for at in devices)) + seconds
        for at in devices:
            at.done_at = done_at


backend = Backend()


class _Block:
    """One allocation: counted on its device for as long as a tensor uses it."""

    live: ClassVar[weakref.WeakValueDictionary[int, _Block]] = weakref.WeakValueDictionary()

    def __init__(self, storage: torch.UntypedStorage, index: int) -> None:
        self.storage, self.device, self.nbytes = storage, backend._devices[index], 0

    @classmethod
    def of(cls, raw: torch.Tensor, index: int) -> _Block:
        storage = raw.untyped_storage()
        self = cls.live.get(storage._cdata) or cls.live.setdefault(storage._cdata, cls(storage, index))
        more, device = storage.nbytes() - self.nbytes, self.device  # more than none when new, or resized
        self.nbytes += more
        device.allocated += more
        device.peak = max(device.peak, device.allocated)
        return self

    def __del__(self) -> None:
        self.device.allocated -= self.nbytes


class DeviceTensor(torch.Tensor):
    """A tensor on ``fake:index``, which holds its values in ``_raw``, a tensor on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: torch.Tensor, index: int) -> DeviceTensor:
        like = {"strides": raw.stride(), "storage_offset": raw.storage_offset(), "dtype": raw.dtype}
        with torch.inference_mode(raw.is_inference()):  # a view isn't an inference tensor unless its base is
            self = torch.Tensor._make_wrapper_subclass(cls, raw.shape, device=torch.device(NAME, index), **like)
        self._raw, self._block = raw, _Block.of(raw, index)
        # The autograd engine knows one device of a Python backend; in the caller's thread it takes any.
        torch._C._set_multithreading_enabled(False)
        return self

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return _run(op, *args, **(kwargs or {}))

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_raw"], self.device

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Any], device: torch.device, *_: Any) -> Any:
        return parts["_raw"] if device.type == "cpu" else DeviceTensor(parts["_raw"], device.index)

    def _set_data(self, new: DeviceTensor) -> None:
        torch.Tensor.data.__set__(self, new)
        self._raw, self._block = new._raw, new._block

    data = property(torch.Tensor.data.__get__, _set_data)

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")


def _map(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_map(change, item) for item in value)
    return change(value)


def _check_devices(op: Any, args: tuple[Any, ...], inputs: list[DeviceTensor], on_cpu: list[torch.Tensor]) -> None:
    """Raise where a real device does. Scalars may be on the CPU, and indices; a target may not."""
    written = args[0] if args and op._schema.arguments[0].is_write else None
    indexing = op._opname in _INDEXING and isinstance(args[0], DeviceTensor)
    strays = [] if indexing else [x for x in on_cpu if x.dim() or x is written]
    devices = " and ".join(dict.fromkeys(str(x.device) for x in [*inputs, *strays]))
    if inputs and " and " in devices and op._opname not in _COPIES:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {devices}!")


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run one operation on the CPU tensors inside its arguments, and put its results on their device."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return op.decompose(*args, **kwargs)  # autograd does this, but inference mode is without it
    inputs: list[DeviceTensor] = []
    on_cpu: list[torch.Tensor] = []

    def unwrap(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            (inputs if isinstance(value, DeviceTensor) else on_cpu).append(value)
        return value._raw if isinstance(value, DeviceTensor) else value

    raw_args, raw_kwargs = _map(unwrap, args), {key: _map(unwrap, value) for key, value in kwargs.items()}
    used = {x.device.index for x in inputs}
    index, target = min(used, default=backend.current_device()), kwargs.get("device")
    stays = target is None or target.type == NAME
    if target is not None and stays:
        raw_kwargs["device"] = torch.device("cpu")
        used.add(index := backend.index(target))
    _check_devices(op, args, inputs, on_cpu)
    backend._initialized = True
    result = op(*raw_args, **raw_kwargs)

    if re.fullmatch("_(foreach|fused)_.*_", op._opname):  # torch doesn't count these writes
        torch.autograd.graph.increment_version(inputs)
    for x in inputs:  # in place or as out=, it may have a new shape
        if x.shape != x._raw.shape or x.stride() != x._raw.stride():
            x.data = DeviceTensor(x._raw, x.device.index)
    if used and op._opname not in _NO_KERNEL and not op.is_view:
        crosses = op._opname in _COPIES and (on_cpu or not stays)
        rate, slow = backend.copy_byte_per_s, not any(x.is_pinned() for x in on_cpu)
        backend._launch(used, inputs[0].nbytes * (1 + slow) / rate if crosses and rate and inputs else backend.delay_s)
        blocks = crosses and True not in (kwargs.get("non_blocking"), *args[2:])
        if blocks or (_ANSWERS_HOST.intersection(op.tags) and op._opname not in _INDEXING):
            for i in used:
                backend.synchronize(i)
    if not stays:
        return result
    known = {id(x): x for x in on_cpu} | {id(x._raw): x for x in inputs}  # in place: the very same tensor comes out

    def wrap(value: Any) -> Any:
        new = isinstance(value, torch.Tensor) and id(value) not in known
        return DeviceTensor(value, index) if new else known.get(id(value), value)

    return _map(wrap, result)


def _autocast(op: Any, dtype: torch.dtype | None) -> Callable[..., Any]:
    """The operation with its inputs converted to a dtype first; None: the autocast region's."""

    def run(*args: Any, **kwargs: Any) -> Any:
        cast = torch.amp.autocast_mode._cast
        to, off = dtype or torch.get_autocast_dtype(NAME), torch._C.DispatchKey.AutocastPrivateUse1
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(off)):
            return op(*cast(args, NAME, to), **cast(kwargs, NAME, to))

    return run


_libraries: list[torch.library.Library] = []  # a registration lives as long as its library


def available() -> str | None:
    """Why the backend can't be registered in this process; None if it can, or already is."""
    for path in _PRIVATE.split():
        try:
            attrgetter(path)(torch)
        except AttributeError:
            return f"torch {torch.__version__} has no torch.{path}"
    taken = torch._C._get_privateuse1_backend_name()
    return None if _libraries or taken == "privateuseone" else f"this process has the backend {taken!r} already"


def register(clock: VirtualClock | None = None) -> Backend:
    """Add the kind ``fake`` to torch, once a process; RuntimeError, with the reason, where that can't be."""
    backend.clock = clock or backend.clock
    if reason := available():
        raise RuntimeError(reason)
    if _libraries:
        return backend
    torch.utils.backend_registration._setup_privateuseone_for_python_backend(NAME, backend)
    _libraries[:] = every, ops = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(_run, "PrivateUse1")  # factories: they have no tensor to dispatch on
    ops.impl(aten.copy_.default, partial(_run, aten.copy_.default), "PrivateUse1")  # torch.tensor(): subclasses are off
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, dtype in ((_AUTOCAST_LOW, None), (_AUTOCAST_FLOAT32, torch.float32)):
        for packet, _, overload in (name.partition(".") for name in names.split()):
            op = getattr(getattr(aten, packet), overload or "default")
            ops.impl(op, _autocast(op, dtype), "AutocastPrivateUse1")
    return backend


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """``-p fake_backend``: register before anything looks for devices."""
    if reason := available():
        raise pytest.UsageError(f"fake_backend: {reason}")
    register()
