"""The work of a call, counted without running it: on ``meta`` tensors, since on real CPU tensors torch's FLOP counter
misses attention and recurrent layers. The same pass shows how much memory the call's tensors take at most."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..devices import Device
from ..errors import UsageError, WorkMismatch
from ..runfile.flags import Flag
from ..runfile.schema import MOST_OPERATORS, Operators, Work
from .data import dispatch_mode, memory_key, tensor_leaves, tensors, uncompiled

if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode

FUSED = {"flash": 1, "efficient": 3, "cudnn": 3}
"""Kinds of fused attention in torch's names, with the position of ``is_causal`` after queries, keys and values."""

CHOOSING = frozenset({"index", "index_select", "gather", "take", "embedding", "masked_select"})
"""torch's operations that read only those elements of their first argument that another argument selects."""
WHOLE = 0.9
"""Smallest share of a tensor that its views must read to count as the whole: a stencil leaves out the edges."""


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs that torch counts (``None`` if it counts none), ``convolution_flops`` of them in convolutions.

    ``input_bytes`` are those of the tensors that are read, parameters included, ``output_bytes`` those of the results.
    ``held_bytes`` is what the call is given, memory for outputs included; ``peak_bytes`` is the most that the tensors
    made within it held at once; ``moved_bytes`` is the traffic of its ``operations``, without views. ``whole``: whether
    these are known to read all of the arguments, and not only ``x[0]``. ``products_alone``: whether it has neither
    convolutions nor recurrent layers, which cuDNN computes with a switch of their own.
    """

    flops: float | None
    output_bytes: int
    input_bytes: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0
    convolution_flops: float = 0.0
    operations: int = 0
    moved_bytes: int = 0
    whole: bool = True
    products_alone: bool = True
    operators: tuple[Operators, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What the test passed to the fixture's call. ``work`` is the declared work."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    work: Work
    check: Callable[..., Any] | bool | str
    setup: Callable[[], Any] | None
    devices: Iterable[str]


@dataclass(slots=True)
class Call:
    """A call and what the fixture's steps find out about it, in their order.

    ``args`` and ``kwargs`` are those of one call, ``work`` is declared and counted, ``further`` are the devices that it
    names. ``function`` is that of the request in its variant. ``first_s``: seconds of the first call (compiling
    included), before which ``given`` looked at what it was given; ``expected``: the reference that it passed.
    ``call_s``, ``round_s``: seconds of a warm call, and of a round of one call with its setup; ``before``: the
    machine's state before them. ``latency_s`` and ``memory_bytes`` are measured besides the rounds, of which ``result``
    is the last one's.
    """

    request: Request
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    work: Work
    counted: Counted | None
    further: tuple[Device, ...] = ()
    function: Any = None
    check: Any = None
    first_s: float = 0.0
    given: Any = None
    expected: Any = None
    call_s: float = 0.0
    round_s: float = 0.0
    before: Any = None
    result: Any = None
    latency_s: float | None = None
    memory_bytes: int | None = None
    flags: tuple[Flag, ...] = ()

    @property
    def again(self) -> Callable[[], Any] | None:
        """Repeats the call with the same arguments; None where each call needs a setup."""
        return None if self.request.setup is not None else partial(self.function, *self.args, **self.kwargs)


def flop_counter() -> FlopCounterMode:
    """Return torch's own counter, a context, with corrections.

    Fused attention counts as its products alone: torch adds the masked half of a causal one, and in the backward pass a
    fifth product, which recomputes the scores instead of keeping them. Products with 8-bit weights count too, like the
    layer that they stand for.
    """
    import torch
    from torch.utils import flop_counter as flop_counter_module
    from torch.utils.flop_counter import FlopCounterMode

    _spare_the_compiler(getattr(flop_counter_module, "_FlopCounterMode", None))
    aten = torch.ops.aten
    formulas: dict[Any, Callable[..., int]] = {aten.mm: _product}
    for kind, place in FUSED.items():
        formulas[getattr(aten, f"_scaled_dot_product_{kind}_attention", None)] = partial(_attention, place)
        formulas[getattr(aten, f"_scaled_dot_product_{kind}_attention_backward", None)] = _attention_backward
    formulas[getattr(aten, "_weight_int8pack_mm", None)] = _product_of_bytes
    formulas.pop(None, None)
    return FlopCounterMode(display=False, custom_mapping=formulas)  # type: ignore[no-untyped-call]


def _spare_the_compiler(mode: Any) -> None:
    """Keep torch from importing its compiler, which takes two seconds, only to mark this dispatch mode as not compiled.

    torch keeps the compiler's mark as an attribute of the mode, and asks for it at the first dispatch. A compiler that
    is loaded already is asked; if torch keeps the mark elsewhere, only the time is lost.
    """
    dispatch = getattr(getattr(mode, "__torch_dispatch__", None), "__wrapped__", None)
    if dispatch is not None and "torch._dynamo" not in sys.modules:
        dispatch.__dict__.setdefault("__dynamo_disable", dispatch)


def _product(left: Any, right: Any, **_: Any) -> int:
    """FLOPs of the elements that are stored: torch counts a sparse matrix as if it were full."""
    full = str(left.layout) == "torch.strided"
    return int(2 * (left.shape[0] * left.shape[1] if full else left._nnz()) * right.shape[1])


_product._get_raw = True  # type: ignore[attr-defined]  # it gets tensors, not their shapes


def _attention(place: int, query: Any, key: Any, value: Any, *rest: Any, is_causal: bool = False, **_: Any) -> int:
    """FLOPs by shapes: two products, or for causal attention only the scores up to the diagonal."""
    batch, heads, queries, size = query
    scores = queries * key[-2]
    if (is_causal or (len(rest) > place and rest[place])) and queries == key[-2]:
        scores = queries * (queries + 1) // 2
    return int(2 * batch * heads * scores * (size + value[-1]))


def _product_of_bytes(inputs: Any, weights: Any, *_: Any, **__: Any) -> int:
    """FLOPs by shapes: (rows, inputs) times (outputs, inputs)."""
    return int(2 * inputs[0] * inputs[1] * weights[0])


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """FLOPs by shapes: two products as long as the values, two as long as the keys."""
    batch, heads, queries, size = query
    return int(4 * batch * heads * queries * key[-2] * (size + value[-1]))


def count(call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Counted | None:
    """Count the work of one call; ``None`` if it has no tensor arguments or can't run on ``meta`` tensors."""
    import torch
    from torch.utils import _pytree

    given = tensors(args, kwargs, call)
    if not given:
        return None
    read = tensors(args, {name: value for name, value in kwargs.items() if name != "out"}, call)

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return substituted(value, lambda tensor: tensor.detach().to("meta"))
        return value.detach().to("meta") if isinstance(value, torch.Tensor) else value

    try:
        args, kwargs = _pytree.tree_map(to_meta, args), _pytree.tree_map(to_meta, dict(kwargs))
        target = to_meta(call)
        seen: set[type] = set()
        layers = torch.nn.modules.module.register_module_forward_pre_hook(lambda layer, _: seen.add(type(layer)))
        with layers, watched() as (memory, counter), torch.random.fork_rng(devices=[]):
            result = target(*args, **kwargs)
    except Exception:  # the call does something that meta tensors can't: the work stays unknown
        return None
    by_operator = counter.get_flop_counts().get("Global", {})
    convolved = float(sum(flops for operator, flops in by_operator.items() if "convolution" in str(operator)))
    recurrent = any(issubclass(kind, torch.nn.RNNBase) for kind in seen)
    return Counted(
        float(counter.get_total_flops()) or None,
        sum(t.nbytes for t in tensors(result)),
        _bytes(read),
        _bytes(given),
        memory.peak,
        convolved,
        memory.operations,
        memory.moved,
        memory.reads.cover(tensor_leaves(args, {name: value for name, value in kwargs.items() if name != "out"})),
        not (convolved or recurrent),
        memory.tally.operators(),
    )


def _bytes(counted: list[Any]) -> int:
    """Bytes of the distinct tensors; memory that occurs twice counts once."""
    return sum({memory_key(tensor): tensor.nbytes for tensor in counted}.values())


NORMALISATIONS = ("softmax", "layer_norm", "batch_norm", "group_norm", "rms_norm")
MOVES = re.compile(r"(?<![a-z])(?<!index_)(copy|clone|cat|stack|fill|zero|pad_nd|foreach|fused|dropout|bernoulli)")
"""What is in the names of operators that read and write each element once and in order (``cat``, not ``scatter``),
besides those that torch tags as pointwise."""


def kind_of_operator(operator: Any, args: tuple[Any, ...], flops: float) -> str:
    """Return the kind of an operator, as in :class:`~gpubench.runfile.schema.Operators`: operators whose GPU times
    follow the same rule.

    A convolution whose kernel is a single point is a product: no algorithm saves multiplications.
    """
    import torch

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
    return "other"


class Tally:
    """Operators by kind and size. ``opaque`` becomes true with the first tensor whose layout hides how many bytes it
    has."""

    def __init__(self) -> None:
        self.opaque = False
        self._groups: dict[tuple[str, int, int], list[float]] = {}

    def add(self, operator: Any, args: tuple[Any, ...], flops: float, nbytes: int) -> None:
        """Count an operator with its FLOPs and the bytes that it reads and writes."""
        if nbytes:
            size = kind_of_operator(operator, args, flops), int(flops).bit_length(), nbytes.bit_length()
            group = self._groups.setdefault(size, [0, 0.0, 0.0])
            group[:] = group[0] + 1, group[1] + flops, group[2] + nbytes

    def operators(self) -> tuple[Operators, ...]:
        """Return all groups of operators; empty if they are unreliable or too many for a results file."""
        groups = tuple(Operators(size[0], int(group[0]), *group[1:]) for size, group in self._groups.items())
        return groups if len(groups) <= MOST_OPERATORS and not self.opaque else ()


class _Reads:
    """Bytes of each view that was read, by the memory that it belongs to."""

    def __init__(self) -> None:
        self._views: dict[int, dict[Any, int]] = {}

    def add(self, read: list[Any]) -> None:
        for tensor in read:
            self._views.setdefault(tensor.untyped_storage()._cdata, {})[memory_key(tensor)] = tensor.nbytes

    def cover(self, given: list[Any]) -> bool:
        """Whether the views of each tensor cover nearly all of it; false for sparse tensors, which aren't seen."""
        return all(str(tensor.layout) == "torch.strided" and self._share(tensor) >= WHOLE for tensor in given)

    def _share(self, tensor: Any) -> float:
        views = self._views.get(tensor.untyped_storage()._cdata, {})
        return sum(views.values()) / tensor.nbytes if tensor.nbytes else 1.0


def watch(counter: FlopCounterMode) -> Any:
    """Return a dispatch mode: ``peak`` is the most bytes that tensors made under it held at once, ``operations`` the
    number of launches, ``moved`` the bytes that these read and wrote, ``tally`` their kinds.

    ``counter`` knows the FLOPs of an operator by the shapes of its tensors.
    """
    import torch

    class Live(dispatch_mode()):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.now = self.peak = self.operations = self.moved = 0
            self._known: set[int] = set()
            self.reads = _Reads()
            self.tally = Tally()

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = operator(*args, **kwargs)
            view = operator.is_view or operator is torch.ops.aten._unsafe_view.default  # a view to the device
            if not view and "empty" not in operator._schema.name:  # one that only allocates launches nothing
                self._note(operator, args, kwargs, result)
            self._known |= {tensor.untyped_storage()._cdata for tensor in self._full(args, kwargs)}  # made elsewhere
            for storage in (tensor.untyped_storage() for tensor in self._full(result)):
                if storage._cdata not in self._known:
                    self._known.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
            return result

        def _full(self, *values: Any) -> list[Any]:
            found = tensor_leaves(values)
            full = [tensor for tensor in found if tensor.layout is torch.strided]
            self.tally.opaque |= len(full) < len(found)
            return full

        def _note(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
            written = {argument.name for argument in operator._schema.arguments if argument.is_out}
            read = {name: value for name, value in kwargs.items() if name not in written}
            nbytes = sum(tensor.nbytes for tensor in tensors(args, read, result))
            if operator.overloadpacket is torch.ops.aten.sort:
                nbytes *= args[0].element_size()  # a radix sort passes over everything once per byte of a key
            self.operations += 1
            self.moved += nbytes
            chosen = operator.overloadpacket.__name__ in CHOOSING
            self.reads.add(self._full(args[1:] if chosen else args, read))
            count_flops = counter.flop_registry.get(operator._overloadpacket)
            flops = float(count_flops(*args, **kwargs, out_val=result)) if count_flops else 0.0
            self.tally.add(operator, args, flops, nbytes)

        def _gone(self, key: int, nbytes: int) -> None:
            self._known.discard(key)
            self.now -= nbytes

    return Live()


@contextmanager
def watched() -> Iterator[tuple[Any, FlopCounterMode]]:
    """A context that yields the mode of :func:`watch` and torch's counter, of the calls made within it."""
    counter = flop_counter()
    with uncompiled(), (seen := watch(counter)), counter:
        yield seen, counter


def substituted(module: Any, convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that calls a module with other parameters and buffers, converted from its own; the module isn't
    copied."""
    import torch

    state, converted = {}, {}
    for prefix, part in module.named_modules():  # each part once: torch restores one that it swaps twice wrongly
        own = {"recurse": False, "remove_duplicate": False}
        for name, tensor in (*part.named_parameters(**own), *part.named_buffers(**own)):
            if id(tensor) not in converted:  # tied weights stay tied
                converted[id(tensor)] = convert(tensor)
            state[f"{prefix}.{name}" if prefix else name] = converted[id(tensor)]
    return lambda *args, **kwargs: torch.func.functional_call(module, state, args, kwargs, tie_weights=False)


def plain_number(name: str, value: Any, *, whole: bool = False) -> Any:
    """Return a declared amount as a plain Python number, also if it is one of NumPy or torch; ``None`` stays ``None``.

    Raises :class:`UsageError` unless it is above 0 and within what a results file allows, and whole if it must be.
    """
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
    """Return the declared work, completed by what was counted. Bytes too, if the inputs are known to be read as a
    whole: each input is then read once and each output written once.

    Raises :class:`WorkMismatch` when declared FLOPs differ from counted ones by more than a thousandth.
    """
    if counted is None:
        return work
    flops, known = work.flops, counted.flops
    if flops is not None and known is not None and abs(flops - known) > 1e-3 * known:
        raise WorkMismatch(f"{flops:.6g} FLOP declared, {known:.6g} counted: a multiply-add counts as two")
    nbytes = work.bytes
    if nbytes is None and counted.whole:
        nbytes = float(counted.input_bytes + counted.output_bytes) or None
    return Work(flops if known is None else known, nbytes, work.items, work.unit, counted.operators)


def require_least(flops: float, ran: float) -> None:
    """Raise :class:`WorkMismatch` when fewer FLOPs are declared than a real call counted. That count is a lower bound,
    since on CPU tensors the counter misses attention and recurrent layers."""
    if flops < ran * (1 - 1e-3):
        raise WorkMismatch(f"{flops:.6g} FLOP declared, {ran:.6g} or more counted: a multiply-add counts as two")
