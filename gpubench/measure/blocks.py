"""The memory of a call that is copied: blocks, which tensors, arrays and buffers of Python may share. A block is copied
once and may be converted; its views are then made again by their places, so that they share memory as before."""

from __future__ import annotations

import bisect
import ctypes
from array import array as Buffer
from collections import defaultdict
from typing import Any

from ..devices.lazy import np, torch


class Uncopyable(Exception):
    """A call that can't be copied; the text is the reason."""


class Block:
    """Memory that tensors, arrays and buffers view: ``convert`` names the dtype of its numbers if these are converted,
    and ``width`` is their size in bytes. ``buffer`` is the ``bytearray`` or ``array.array`` that owns the memory."""

    def __init__(self, nbytes: int, source: Any, address: int, device: Any) -> None:
        self.nbytes, self.device, self.convert, self.width = nbytes, device, "", 1
        self.views, self.uses = set[str](), 0
        self.buffer: Any = None
        self._made: Any = None
        self._source, self._address = source, address

    def copy(self, dtype: Any) -> Any:
        """Return the storage of the copy, made once."""
        if self._made is None:
            self._made = self._copied(dtype, self.nbytes // self.width)
        return self._made

    def _copied(self, dtype: Any, count: int) -> Any:
        if self.buffer is not None:
            self.buffer = self.buffer[:]
            viewed = count and self.uses > 1  # a buffer with views can't be resized
            return torch.frombuffer(self.buffer, dtype=torch.uint8).untyped_storage() if viewed else ()
        if isinstance(self._source, torch.UntypedStorage):
            flat = torch.empty(0, dtype=getattr(torch, self.convert or "uint8"), device=self._source.device)
            flat.set_(self._source, 0, (count,), (1,))
        else:  # an array's
            held: Any = (ctypes.c_char * self.nbytes).from_address(self._address) if count else b""
            array = np.frombuffer(held, np.dtype(self.convert or "uint8"), count)
            flat = torch.from_numpy(array.astype(np.float64 if self.convert else np.uint8))
        target = dtype if self.convert else torch.uint8
        return flat.to(device=self.device, dtype=target, copy=True).untyped_storage()


class OwnedBuffer:
    """The ``bytearray`` or ``array.array`` that owns a block."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def copy(self, dtype: Any) -> Any:
        """Return the copy, which owns the copied block."""
        self._block.copy(dtype)
        return self._block.buffer


class Memory:
    """The blocks of memory of a call, found by address."""

    def __init__(self, dtype: torch.dtype | None, device: torch.device | None) -> None:
        self.dtype, self.device = dtype, device
        self.alive: list[Any] = []  # copies of objects that the call refers to weakly
        self._blocks: dict[Any, Block] = {}
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        self._buffers: dict[int, OwnedBuffer] = {}

    def of_storage(self, storage: Any) -> Block:
        """Return the block of a tensor's storage."""
        source = storage.nbytes(), storage, storage.data_ptr(), self.device or storage.device
        return self._block(str(storage.device), storage._cdata, *source)

    def of_array(self, array: Any) -> tuple[Block, int]:
        """Return the block of an array, and the array's place in it, in bytes."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        place = array.__array_interface__["data"][0]
        if isinstance(root.base, torch.Tensor):
            storage = root.base.untyped_storage()
            return self.of_storage(storage), place - storage.data_ptr()
        owner = root.base.obj if isinstance(root.base, memoryview) else root.base
        root = np.frombuffer(owner, np.uint8) if isinstance(owner, bytearray | Buffer) else root
        low, high = getattr(np.lib, "array_utils", np).byte_bounds(root)
        nbytes = high - low if root.size else 0
        return self._block("cpu", id(root), nbytes, root, low, torch.device("cpu")), place - low

    def of_buffer(self, buffer: Any) -> OwnedBuffer:
        """Return a buffer of Python as the owner of its block."""
        if id(buffer) not in self._buffers:
            block, _ = self.of_array(np.frombuffer(buffer, np.uint8))
            block.buffer = buffer
            self.view(block, "uint8", 1, converts=False)
            self._buffers[id(buffer)] = OwnedBuffer(block)
        return self._buffers[id(buffer)]

    def _block(self, key: str, own: int, nbytes: int, source: Any, start: int, device: Any) -> Block:
        name: Any = (key, start) if nbytes else (key, own, 0)
        known = self._blocks.get(name)
        if nbytes and (known is None or known.nbytes != nbytes):
            starts = self._starts[key]
            place = bisect.bisect_left(starts, start)
            before = place and starts[place - 1] + self._blocks[key, starts[place - 1]].nbytes > start
            if before or (place < len(starts) and starts[place] < start + nbytes):
                raise Uncopyable("the call uses an array and a tensor that share a part of their memory")
            starts.insert(place, start)
        block = self._blocks.setdefault(name, Block(nbytes, source, start, device))
        block.uses += 1
        return block

    def view(self, block: Block, real: str, width: int, converts: bool) -> None:
        """Note that a tensor or array views the block as numbers of this dtype. Raises :class:`Uncopyable` if the block
        is converted and viewed in another dtype too."""
        if self.dtype is None:
            return
        block.views.add(real)
        if converts:
            block.convert, block.width = real, width
        if block.convert and len(block.views) > 1:
            raise Uncopyable("the call views the same memory in two dtypes")

    def total_bytes(self) -> int:
        """Return the bytes of all copies."""
        width = self.dtype.itemsize if self.dtype else 1
        blocks = self._blocks.values()
        return sum(each.nbytes // each.width * width if each.convert else each.nbytes for each in blocks)
