"""Random inputs from a seed: the same on every device, and never larger than the free memory."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..devices import CPU, Device
from ..devices.lazy import np, pytree, torch
from ..errors import TooLarge, Unmeasurable
from ..runfile.quantities import text

MEMORY_SHARE = 0.8
"""Share of the free memory that a case may allocate; the rest is for outputs and workspaces."""


def require_memory(nbytes: float, device: Device) -> None:
    """Raise :class:`TooLarge` unless ``nbytes`` more fit into the device's free memory, once what earlier cases left
    for the garbage collector is freed."""
    memory = device.memory()
    if memory is not None and nbytes > MEMORY_SHARE * memory.free:
        gc.collect()
        memory = device.memory() or memory
    if memory is not None and nbytes > MEMORY_SHARE * memory.free:
        raise TooLarge(f"needs {text(nbytes, 'B')} more on {device}, {text(memory.free, 'B')} are free")


class Data:
    """Makes a case's tensors. The n-th tensor of a case has the same values on every device and in every run.

    Different ``stream``s of one seed are different data. With ``meta`` set, tensors have shapes but no data, so that a
    call's work can be counted without any memory.
    """

    def __init__(self, device: Device, dtype: torch.dtype, seed: int, *, stream: int = 0, meta: bool = False) -> None:
        self.home, self.dtype, self.meta = device, dtype, meta
        self.seed, self._stream, self._drawn = seed, stream, 0

    @functools.cached_property
    def device(self) -> torch.device:
        """The torch device on which tensors are made."""
        return torch.device("meta" if self.meta else self.home.torch_name)

    def randn(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return standard normal values, drawn in float32 on the CPU whatever the device and dtype."""
        dtype = dtype or self.dtype
        self._reserve(shape, dtype, drawn_bytes=4)
        if self.meta:
            return torch.empty(shape, dtype=dtype, device="meta")
        drawn = torch.randn(shape, generator=self._generator(), device="cpu", dtype=torch.float32)
        return drawn.to(device=self.device, dtype=dtype)

    def randint(self, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Return random integers from 0 to below ``high``, such as token ids or labels."""
        self._reserve(shape, torch.int64, drawn_bytes=8)
        if self.meta:
            return torch.empty(shape, dtype=torch.int64, device="meta")
        return torch.randint(high, shape, generator=self._generator(), device="cpu").to(self.device)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return memory for an output, filled with NaN (integers: -1), so that an element which is never written fails
        the check."""
        dtype = dtype or self.dtype
        self._reserve(shape, dtype)
        return torch.full(shape, math.nan if dtype.is_floating_point else -1, dtype=dtype, device=self.device)

    def module(self, build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        """Return the network that ``build`` makes: parameters from the seed, in eval mode, on the device, in the
        dtype."""
        if self.meta:
            with torch.device("meta"):
                return build().eval().to(self.dtype)
        with torch.random.fork_rng(devices=[]), factory_defaults("cpu", torch.float32):
            torch.manual_seed(self.seed)
            network = build().eval()
        size = sum(t.numel() for t in (*network.parameters(), *network.buffers())) * self.dtype.itemsize
        if self.home != CPU:
            require_memory(size, self.home)
        return network.to(device=self.device, dtype=self.dtype)

    def _generator(self) -> torch.Generator:
        self._drawn += 1
        return torch.Generator("cpu").manual_seed(self.seed * 1_000_003 + self._stream * 100_003 + self._drawn)

    def _reserve(self, shape: tuple[int, ...], dtype: torch.dtype, drawn_bytes: int = 0) -> None:
        count = math.prod(shape)
        if not self.meta:
            require_memory(count * dtype.itemsize, self.home)
            if drawn_bytes and self.home != CPU:
                require_memory(count * drawn_bytes, CPU)


@contextlib.contextmanager
def factory_defaults(device: torch.device | str, dtype: torch.dtype) -> Iterator[None]:
    """A context in which torch's own factories make tensors on this device and in this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def tensor_leaves(*values: Any) -> list[torch.Tensor]:
    """All tensors in nested containers as they are, except those of modules."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def bare_tensors(*values: Any) -> list[torch.Tensor]:
    """The dense tensors that hold the data of all tensors in nested containers, except those of modules."""
    return [part for leaf in tensor_leaves(values) for part in _parts(leaf)]


_COMPRESSED = {"torch.sparse_csr": "crow col", "torch.sparse_bsr": "crow col"}
_COMPRESSED |= {"torch.sparse_csc": "ccol row", "torch.sparse_bsc": "ccol row"}


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensor itself, or the indices and values of a sparse one, whose ``nbytes`` and storage torch refuses."""
    layout = str(tensor.layout)
    if layout == "torch.sparse_coo":
        return [tensor._indices(), tensor._values()]
    if layout in _COMPRESSED:
        return [tensor.values(), *(getattr(tensor, f"{name}_indices")() for name in _COMPRESSED[layout].split())]
    return [tensor.values()] if layout == "torch.jagged" else [tensor]


def tensors(*values: Any) -> list[torch.Tensor]:
    """The dense tensors of :func:`bare_tensors`, and the parameters and buffers of modules."""
    modules = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.nn.Module)]
    return bare_tensors(values, [[*module.parameters(), *module.buffers()] for module in modules])


def as_tensor(value: Any) -> torch.Tensor:
    """Return a number or an array of any library as a tensor on the same device."""
    if isinstance(value, np.ndarray):
        return torch.as_tensor(value.copy())  # torch has no reversed views
    return torch.from_dlpack(value) if is_array(value) else torch.as_tensor(value)


def all_as_tensors(*values: Any) -> list[torch.Tensor]:
    """All tensors and arrays in nested containers, as dense tensors on the same device; those of modules are left
    out."""
    return bare_tensors([as_tensor(leaf) if is_array(leaf) else leaf for leaf in pytree.tree_leaves(values)])


def total_bytes(*values: Any) -> int:
    """Bytes of all distinct tensors and arrays in nested containers, counted without copying."""
    leaves = {id(leaf): leaf for leaf in pytree.tree_leaves(values)}
    held = [leaf if is_array(leaf) else bare_tensors(leaf) for leaf in leaves.values()]
    return sum(int(part.nbytes) for parts in held for part in (parts if isinstance(parts, list) else [parts]))


def dtypes_of(values: Any) -> set[str]:
    """Names of the dtypes of all tensors, networks and arrays in nested containers."""
    if "torch" not in sys.modules:  # so there is no tensor
        return set()
    leaves = pytree.tree_leaves(values)
    leaves += [tensor for leaf in leaves if isinstance(leaf, torch.nn.Module) for tensor in leaf.parameters()]
    held = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor | torch.nn.Parameter) or is_array(leaf)]
    return {str(leaf.dtype).rpartition(".")[2] for leaf in held}


def is_array(value: Any) -> bool:
    """Whether the value is an array of a library other than torch."""
    return hasattr(type(value), "__dlpack__") and not isinstance(value, torch.Tensor)


@functools.cache
def dispatch_mode() -> Any:
    """Return the base class of modes that see each of torch's operations. torch's own class makes torch import its
    compiler, which takes two seconds, only to exclude the mode from compilation; nothing is compiled here."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Uncompiled(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    return Uncompiled


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """A context in which compiled functions and modules run as they were written. torch's compiler doesn't compile
    under a dispatch mode, and skips the code that it met there for good: the call would be timed uncompiled."""
    if "torch._dynamo" in sys.modules:
        with torch.compiler.set_stance("force_eager"):
            yield
        return
    try:
        yield
    finally:
        if dynamo := sys.modules.get("torch._dynamo"):  # the call itself compiles, for the first time in this process
            dynamo.reset()


def poison(written: Any, args: Any, kwargs: Mapping[str, Any], *used: Any) -> None:
    """Fill with NaN the tensors that a call writes, unless it reads them too: its arguments, and what else it uses."""
    read = {name: value for name, value in kwargs.items() if name != "out"}
    held = {tensor.untyped_storage()._cdata for tensor in tensors(args, read, used)}
    for tensor in tensors(written):
        apart = tensor.untyped_storage()._cdata not in held
        if apart and (tensor.is_floating_point() or tensor.is_complex()):
            tensor.detach().fill_(math.nan)


def pinned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in page-locked host memory. Raises :class:`~gpubench.errors.Unmeasurable` where there is none, also
    where torch silently returns ordinary memory."""
    try:
        pinned = tensor.pin_memory()
        locked = pinned.is_pinned() and pinned.device.type == "cpu"  # not so on a Mac (pytorch#181374)
    except (RuntimeError, NotImplementedError) as error:
        raise Unmeasurable(f"no pinned memory: {' '.join(str(error).split())}") from error
    if not locked:
        raise Unmeasurable("no pinned memory: torch returned ordinary memory")
    return pinned


def memory_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that is equal for tensors of the same memory and shape."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape


def reference_data(seed: int, *, meta: bool = False) -> Data:
    """Return a source of the same values in float64 on the CPU, to compare results with."""
    return Data(CPU, torch.float64, seed, meta=meta)
