"""The work of a call, counted by torch's formulas while a copy of the call runs, with the memory that its tensors take
at most."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..devices import EIGHT_BITS, Device, Load
from ..devices.lazy import torch
from ..errors import Unmeasurable, UsageError, WorkMismatch
from ..runfile.schema import MOST_OPERATORS, Operators, Work
from .copies import CallCopy, restored_random_streams
from .data import bare_tensors, dispatch_mode, memory_key, tensor_leaves, tensors, uncompiled

CHOOSING = frozenset({"index", "index_select", "gather", "take", "embedding", "masked_select"})
"""torch's operations that read only those elements of their first argument that another argument selects."""
WHOLE = 0.9  # Smallest share of a tensor that its views must read to count as the whole: a stencil leaves out the edges
_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}
NORMALISATIONS = ("softmax", "layer_norm", "batch_norm", "group_norm", "rms_norm")
MOVES = re.compile(r"(?<![a-z])(?<!index_)(copy|clone|cat|stack|fill|zero|pad_nd|foreach|fused|dropout|bernoulli)")
"""Words in the names of operators that read and write each element once and in order (``cat``, not ``scatter``),
besides the operators that torch tags as pointwise."""


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs by torch's formulas (``None`` if there are none), ``convolution_flops`` of them in convolutions; the bytes
    of the results, and of the tensors that are read, parameters included.

    ``memory_bytes`` is the most that the call held at once: its inputs, memory for outputs included, and the tensors
    made within it. ``moved_bytes`` is the traffic of its ``operations``, without views. ``whole``: whether the inputs
    are known to be read as a whole, and not only ``x[0]``, and nothing else to be written than the results.
    ``products_alone``: whether it has neither convolutions nor recurrent layers, which have a switch of cuDNN's.
    """

    flops: float | None
    convolution_flops: float
    input_bytes: int
    output_bytes: int
    memory_bytes: int
    operations: int
    moved_bytes: int
    whole: bool
    products_alone: bool
    operators: tuple[Operators, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A test's declarations of its next call, see :meth:`.Gpubench.declare`, with plain numbers in ``work``, and the
    call's arguments."""

    function: Any = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    work: Work = field(default_factory=Work)
    check: Callable[..., Any] | bool | str = True
    setup: Callable[[], Any] | None = None
    devices: Iterable[str] = ()
    threads: int | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request with the arguments of one call; ``function`` is the request's in its variant."""

    request: Request
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    function: Any = None


def _flops_of(operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> float:
    """Return the FLOPs of an operator's call; 0 for one without a formula."""
    from torch.utils.flop_counter import flop_registry

    name = operator._schema.name.removeprefix("aten::")
    forward = name.removesuffix("_backward")
    if own := next((formula for pattern, formula in _OWN.items() if re.fullmatch(pattern, forward)), None):
        return float(own(_named(operator, args, kwargs)) * (1 if forward == name else 2))
    known = flop_registry.get(operator.overloadpacket)
    return float(known(*args, **kwargs, out_val=result)) if known else 0.0


def _named(operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip((each.name for each in operator._schema.arguments), args, strict=False)), **kwargs}


def _product(call: Mapping[str, Any]) -> int:
    """Count the elements that are stored: torch counts a sparse matrix as if it were full."""
    left, right = call["self"], call["mat2"]
    return int(2 * (left.numel() if str(left.layout) == "torch.strided" else left._nnz()) * right.shape[1])


def _attention(call: Mapping[str, Any]) -> int:
    """Count two products, for causal attention with the scores up to the diagonal, while torch adds the masked half."""
    query, key, value = (call[name].shape for name in ("query", "key", "value"))
    scores = query[-2] * key[-2]
    if call.get("is_causal") and query[-2] == key[-2]:
        scores = query[-2] * (query[-2] + 1) // 2
    return int(2 * query[:-2].numel() * scores * (query[-1] + value[-1]))


def _recurrent_weights(call: Mapping[str, Any]) -> list[Any]:
    weights = call.get("weight") or [call[name] for name in ("weight0", "weight1", "weight2") if name in call][:2]
    return [weight for weight in weights if weight.dim() > 1]


_RECURRENT = "(mkldnn|_cudnn|miopen)_rnn(_layer)?"
_OWN: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "mm": _product,
    r"_scaled_dot_product_\w+": _attention,
    "_weight_int8pack_mm": lambda call: 2 * call["self"].numel() * call["mat2"].shape[0],
    _RECURRENT: lambda call: 2 * call["input"][..., 0].numel() * sum(each.numel() for each in _recurrent_weights(call)),
}
"""Formulas of operators by torch's names, with the arguments by name, that torch lacks or that count other work. A
backward pass has twice the work: of attention four products, without torch's fifth, which makes the scores again; of
recurrent layers the gradients of inputs and weights."""


def _kind_of(operator: Any, args: tuple[Any, ...], flops: float) -> str:
    """Return the kind of an operator, as in :class:`~gpubench.runfile.schema.Operators`. A convolution with a kernel of
    a single point is a product: no algorithm saves multiplications."""
    name = operator._schema.name.partition("::")[2]
    if "convolution" in name:
        weights = args[2] if "backward" in name else args[1]
        return "convolution" if max(weights.shape[2:], default=1) > 1 else "product"
    if flops:
        return "product"
    if any(part in name for part in NORMALISATIONS):
        return "normalisation"
    if torch.Tag.pointwise in operator.tags or MOVES.search(name):
        return "elementwise"
    return "sort" if name == "sort" else "other"


def count(copied: CallCopy, devices: Iterable[Device] = ()) -> Counted:
    """Return the work of a copied call, which is made and may draw random numbers on the ``devices``. Raises
    :class:`Unmeasurable` if it wasn't seen as a whole."""
    with restored_random_streams(devices), watched() as seen:
        result = copied()
    return seen.counted(copied.function, copied.args, copied.kwargs, result)


def count_real(function: Any, args: Any, kwargs: Mapping[str, Any], devices: Iterable[Device] = ()) -> Counted:
    """Return the work of a call that can't be copied, in one more call. Raises :class:`Unmeasurable`."""
    try:
        return count(CallCopy(function, args, dict(kwargs)), devices)
    except Exception as error:
        raise Unmeasurable(" ".join(str(error).split())[:150] or type(error).__name__) from error


class Seen:
    """The operators of a call: ``peak`` is the most bytes that tensors made by it held at once, ``operations`` the
    number of launches, ``groups`` their counts, FLOPs and bytes by kind and size, ``moved`` the bytes that these read
    and wrote, ``flops`` their FLOPs. ``failure`` is the reason why some are missing."""

    def __init__(self) -> None:
        self.flops = self._convolution_flops = 0.0
        self.peak = self.operations = self.moved = self._now = 0
        self._has_own_switch, self.failure, self._opaque = False, "", False  # opaque: a tensor's layout hides its bytes
        self.groups: dict[tuple[str, int, int], list[float]] = {}
        self._made: set[int] = set()
        self._given: dict[int, Any] = {}  # storages that were made elsewhere, kept alive
        self._written: set[int] = set()
        self._views: dict[int, dict[Any, int]] = {}  # bytes of each view that was read, by its memory

    def note(self, operator: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note an operator that was called."""
        name = operator.overloadpacket.__name__
        for storage in (tensor.untyped_storage() for tensor in self._full(args, kwargs)):
            if storage._cdata not in self._made:
                self._given.setdefault(storage._cdata, storage)
        # A view launches nothing, and neither does what only allocates.
        if not (operator.is_view or name == "_unsafe_view" or "empty" in name):
            self._note_launch(name, operator, args, kwargs, result)
        for storage in (tensor.untyped_storage() for tensor in self._full(result)):
            if storage._cdata not in self._made and storage._cdata not in self._given:
                self._made.add(storage._cdata)
                self._now += storage.nbytes()
                self.peak = max(self.peak, self._now)
                weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())

    def _note_launch(self, name: str, operator: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        arguments = operator._schema.arguments
        written = {argument.name for argument in arguments if argument.is_out}
        read = {name: value for name, value in kwargs.items() if name not in written}
        for argument, value in zip(arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._written |= {tensor.untyped_storage()._cdata for tensor in self._full(value)}
        if torch._C._current_graph_task_id() >= 0:
            self._written.add(0)  # gradients are written beside the result
        for tensor in self._full(args[1:] if name in CHOOSING else args, read):
            self._views.setdefault(tensor.untyped_storage()._cdata, {})[memory_key(tensor)] = tensor.nbytes
        flops = _flops_of(operator, args, kwargs, result)
        self.flops += flops
        self._convolution_flops += flops if "convolution" in name else 0.0
        is_recurrent = re.fullmatch(f"{_RECURRENT}(_backward)?", name) is not None
        self._has_own_switch |= "convolution" in name or is_recurrent
        if is_recurrent:
            return self._note_recurrent(_named(operator, args, kwargs), flops, result)
        nbytes = sum(tensor.nbytes for tensor in tensors(args, read, result))
        if name == "sort":
            nbytes *= args[0].element_size()  # a radix sort passes over everything once per byte of a key
        self._add(_kind_of(operator, args, flops), 1, flops, nbytes)

    def _note_recurrent(self, named: Mapping[str, Any], flops: float, result: Any) -> None:
        """Note a layer that runs as one operator by the launches that it has on a GPU: a product of all inputs, and for
        each step a product and the gates."""
        inputs, weights = named["input"], _recurrent_weights(named)
        steps = max(1, len(named.get("batch_sizes") or ()) or inputs.shape[1 if named.get("batch_first") else 0])
        layers, inner = max(1, len(weights) // 2), sum(weight.nbytes for weight in weights[1::2])
        share = sum(weight.numel() for weight in weights[1::2]) / max(1, sum(weight.numel() for weight in weights))
        gates = sum(tensor.nbytes for tensor in tensors(result))
        outer = inputs.nbytes + sum(weight.nbytes for weight in weights[::2]) + gates
        self._add("product", layers, flops * (1 - share), outer)
        self._add("product", layers * steps, flops * share, steps * inner + gates)
        self._add("elementwise", layers * steps, 0.0, 2 * gates)

    def _add(self, kind: str, count: int, flops: float, nbytes: int) -> None:
        self.operations += count
        self.moved += nbytes
        if nbytes:
            size = kind, int(flops / count).bit_length(), (nbytes // count).bit_length()
            group = self.groups.setdefault(size, [0, 0.0, 0.0])
            group[:] = group[0] + count, group[1] + flops, group[2] + nbytes

    def _full(self, *values: Any) -> list[Any]:
        found = tensor_leaves(values)
        full = [tensor for tensor in found if str(tensor.layout) == "torch.strided"]
        self._opaque |= len(full) < len(found)
        return full

    def _forget(self, key: int, nbytes: int) -> None:
        self._made.discard(key)
        self._now -= nbytes

    def operators(self) -> tuple[Operators, ...]:
        """Return the operators by kind and size; none if they are unreliable or too many for a results file."""
        if self._opaque or len(self.groups) > MOST_OPERATORS:
            return ()
        return tuple(Operators(kind, int(count), *sums) for (kind, *_), (count, *sums) in self.groups.items())

    def counted(self, function: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> Counted:
        """Return the work of the call, with its arguments and result. Raises :class:`Unmeasurable` if it wasn't seen as
        a whole."""
        if self.failure:
            raise Unmeasurable(self.failure)
        inputs = [*args, *(value for name, value in kwargs.items() if name != "out")]
        dense = [each for each in tensors(args, kwargs, function) if str(each.layout) == "torch.strided"]
        own = {storage._cdata: storage for storage in (each.untyped_storage() for each in dense)}
        others = {key: storage.nbytes() for key, storage in self._given.items() if key not in own}
        given = tensor_leaves(inputs)
        whole = all(str(each.layout) == "torch.strided" for each in given)  # sparse ones aren't seen
        parts = [*((each.untyped_storage()._cdata, each.nbytes) for each in given if whole), *others.items()]
        whole &= all(sum(self._views.get(key, {}).values()) >= WHOLE * nbytes for key, nbytes in parts)
        read = {memory_key(each): each.nbytes for each in tensors(inputs, function)}
        output_bytes = sum(tensor.nbytes for tensor in tensors(result))
        whole &= bool(read or others) or self.peak <= 2 * output_bytes  # random numbers of which a mean is left
        return Counted(
            flops=self.flops or None,
            convolution_flops=self._convolution_flops,
            input_bytes=sum((*read.values(), *others.values())),
            output_bytes=output_bytes,
            memory_bytes=sum(storage.nbytes() for storage in (own | self._given).values()) + self.peak,
            operations=self.operations,
            moved_bytes=self.moved,
            whole=whole and not self._written & {0, *others},
            products_alone=not self._has_own_switch,
            operators=self.operators(),
        )


@contextmanager
def watched() -> Iterator[Seen]:
    """A context that yields the operators of the calls within it. Attention and encoder layers take the path of
    training, since torch has formulas for its operators."""
    seen, fused = Seen(), torch.backends.mha.get_fastpath_enabled()

    def watch(mode: Any, operator: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented  # its own operators follow
        if not isinstance(operator, torch._ops.OpOverload):
            seen.failure = seen.failure or f"it uses {operator}"
            return operator(*args, **kwargs)
        with mode:  # in inference mode some operators come in one piece
            whole = operator.decompose(*args, **kwargs)
        if whole is not NotImplemented:
            return whole
        result = operator(*args, **kwargs)
        try:
            seen.note(operator, args, kwargs, result)
        except Exception as error:
            seen.failure = seen.failure or f"{operator}: {type(error).__name__}"
        return result

    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with uncompiled(), dispatch_mode()(watch):
            yield seen
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def observe(
    request: Request, device: Device, dtype: str, keep: Any, function: Any, /, *args: Any, **kwargs: Any
) -> tuple[Load, Any]:
    """Make a call for a simulated device that computes in this dtype; return the load, which is the work as declared or
    else counted, and the result, and give its work to ``keep``. Raises :class:`Unmeasurable` if none is known."""
    with dispatch_mode()(_widen_product), watched() as seen:
        result = function(*args, **kwargs)
    work, known = request.work, seen.counted(function, args, kwargs, result)
    keep(known)
    operations = (work.items or 0.0) if work.unit == "operation" else 0.0  # of 8-bit integers, for example
    least = sum(tensor.nbytes for tensor in bare_tensors(args, kwargs))
    if not (known.operations or work.flops or work.bytes or operations):
        needs = "its model needs work that PyTorch can count, or gpubench.declare(flops=…)"
        raise Unmeasurable(f"{device.label}: {needs}")
    if operations:
        return Load(operations, work.bytes or least, 1, EIGHT_BITS), result
    total, least = agree(work, known), least if known.operators else known.moved_bytes
    return Load(total.flops or 0.0, total.bytes or least, max(1, known.operations), dtype, known.operators), result


def _widen_product(_: Any, operator: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Compute matrix products of 16-bit numbers in float32: many CPUs emulate them, a hundred times slower."""
    if operator._schema.name not in _PRODUCTS or (dtype := args[0].dtype).itemsize != 2:
        return operator(*args, **kwargs)
    wide, out = (each.float() if each.dtype == dtype else each for each in args), kwargs.pop("out", None)
    result = operator.overloadpacket(*wide, **kwargs)
    return result.to(dtype) if out is None else out.copy_(result)


def plain_number(name: str, value: Any, *, whole: bool = False) -> Any:
    """Return a declared amount, also one of NumPy or torch, as a plain Python number; ``None`` stays ``None``. Raises
    :class:`UsageError` unless it is above 0 and within the schema's bounds, and whole if it must be."""
    if value is None:
        return None
    try:
        amount = value.item() if hasattr(value, "item") else value
    except (RuntimeError, ValueError) as error:  # it has several elements, or none
        raise UsageError(f"{name} must be a single number: {' '.join(str(error).split())}") from error
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise UsageError(f"{name} must be a number, not {type(amount).__name__}")
    most = 2**63 - 1 if whole else 1e30  # the schema's bounds
    if not 1e-15 <= amount <= most:  # rejects NaN too
        shown = f", not {amount:g}" if abs(amount) < 1e300 else ""
        raise UsageError(f"{name} must be above 0 and at most {most:g}{shown}")
    if whole and amount != int(amount):
        raise UsageError(f"{name} must be a whole number, not {amount:g}")
    return int(amount) if whole else amount


def declared(work: Work) -> Work:
    """Return the work with plain numbers; raises :class:`UsageError` for a value that is none."""
    if not isinstance(work.unit, str):
        raise UsageError(f"unit must be a text, not {type(work.unit).__name__}")
    amounts = plain_number("flops", work.flops), plain_number("nbytes", work.bytes)
    return Work(*amounts, plain_number("items", work.items, whole=True), work.unit)


def agree(work: Work, counted: Counted | None) -> Work:
    """Return the declared work, completed by the counted one. Bytes too, if the inputs are known to be read as a whole:
    each input is then read once and each output written once. Raises :class:`WorkMismatch` when declared FLOPs differ
    from counted ones by more than a thousandth."""
    if counted is None:
        return work
    flops, known = work.flops, None if work.unit == "operation" else counted.flops  # of 8 bits, for which no peak is
    if flops is not None and known is not None and abs(flops - known) > 1e-3 * known:
        raise WorkMismatch(f"{flops:.6g} FLOP declared, {known:.6g} counted: a multiply-add counts as two")
    nbytes = work.bytes
    if nbytes is None and counted.whole:
        nbytes = float(counted.input_bytes + counted.output_bytes) or None
    return Work(flops if known is None else known, nbytes, work.items, work.unit, counted.operators)
