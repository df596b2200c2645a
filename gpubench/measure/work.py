"""The work of a call, counted without running it: on ``meta`` tensors, since on real CPU tensors torch's FLOP counter
misses attention and recurrent layers. The same pass shows how much memory the call's tensors take at most."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ..devices import EIGHT_BITS, Device, Load
from ..devices.lazy import pytree, torch
from ..errors import Unmeasurable, UsageError, WorkMismatch
from ..runfile.flags import Flag
from ..runfile.schema import MOST_OPERATORS, Operators, Work
from .calls import kept
from .data import bare_tensors, dispatch_mode, memory_key, tensor_leaves, tensors, uncompiled

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
    ``memory_bytes`` is the most that the call held at once: what it is given, memory for outputs included, and the
    tensors made within it. ``batch_bytes`` of them grow with the batch: all but what networks save, if any.
    ``moved_bytes`` is the traffic of its ``operations``, without views. ``whole``: whether
    these are known to read all of the arguments, and not only ``x[0]``. ``products_alone``: whether it has neither
    convolutions nor recurrent layers, which cuDNN computes with a switch of their own.
    """

    flops: float | None
    output_bytes: int
    input_bytes: int = 0
    memory_bytes: int = 0
    batch_bytes: int | None = None
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

    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of the next call: what its ``setup`` returns, or else its own. Raises UsageError for
        both."""
        made = self.setup() if self.setup is not None else None
        if made is None:
            return self.args, self.kwargs
        match made:
            case (tuple() | list() as args, Mapping() as kwargs):
                if self.args or self.kwargs:
                    raise UsageError("setup returns arguments, so the call can't be given others")
                return tuple(args), dict(kwargs)
        shown = type(made).__name__
        raise UsageError(f"setup returned a {shown}: it returns None, or (args, kwargs) for the call, as ((x,), {{}})")


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a test declares of its next call, see :meth:`.Gpubench.declare`; ``work`` has plain numbers."""

    work: Work = field(default_factory=Work)
    check: Callable[..., Any] | bool | str = True
    setup: Callable[[], Any] | None = None
    devices: Iterable[str] = ()
    threads: int | None = None
    steps: int | None = None


@dataclass(slots=True)
class Call:
    """A call and what the fixture's steps find out about it, in their order.

    ``args`` and ``kwargs`` are those of one call, ``work`` is declared and counted, ``further`` are the devices that it
    names. ``function`` is that of the request in its variant. ``first_s``: seconds of the first call (compiling
    included), before which ``given`` looked at what it was given, and that it ``moves``, so that a later result is
    another; ``expected``: the reference that it passed. ``unplaced``: why no copies of it took rounds.
    ``call_s``, ``round_s``: seconds of a warm call, and of a round of one call with its setup; ``before``: the
    machine's state before them. ``latency_s`` is measured besides the rounds, of which ``result`` is the last one's.
    ``traced`` are what the memory of a call was seen to be that couldn't be counted: its most bytes, and those of them
    that grow with the batch, if known.
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
    moves: bool = False
    expected: Any = None
    call_s: float = 0.0
    round_s: float = 0.0
    before: Any = None
    unplaced: str = ""
    result: Any = None
    latency_s: float | None = None
    traced: tuple[int, int | None] | None = None
    flags: tuple[Flag, ...] = ()

    @property
    def again(self) -> Callable[[], Any] | None:
        """Repeats the call with the same arguments; None where each call needs a setup."""
        return None if self.request.setup is not None else partial(self.function, *self.args, **self.kwargs)


def flop_counter() -> FlopCounterMode:
    """Return torch's own counter, a context, with corrections. Fused attention counts as its products alone: torch adds
    the masked half of a causal one, and in the backward pass a fifth product, which recomputes the scores instead of
    keeping them. Products with 8-bit weights count too, like the layer that they stand for."""
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
    If torch keeps that mark elsewhere than as an attribute of the mode, only the time is lost."""
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
    given, given_to = tensors(args, kwargs, call), (args, dict(kwargs))
    if not given:
        return None
    read = tensors(args, {name: value for name, value in kwargs.items() if name != "out"}, call)

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return substituted(value, lambda tensor: tensor.detach().to("meta"))
        return value.detach().to("meta") if isinstance(value, torch.Tensor) else value

    try:
        args, kwargs = pytree.tree_map(to_meta, args), pytree.tree_map(to_meta, dict(kwargs))
        target = to_meta(call)
        layers: set[type] = set()
        follow = torch.nn.modules.module.register_module_forward_pre_hook(lambda layer, _: layers.add(type(layer)))
        with kept(call, args, kwargs), follow, watched() as seen, torch.random.fork_rng(devices=[]):
            result = target(*args, **kwargs)
    except Exception:  # the call does something that meta tensors can't: the work stays unknown
        return None
    by_operator = seen.counter.get_flop_counts().get("Global", {})
    convolved = float(sum(flops for operator, flops in by_operator.items() if "convolution" in str(operator)))
    recurrent = any(issubclass(kind, torch.nn.RNNBase) for kind in layers)
    networks = [leaf for leaf in pytree.tree_leaves((given_to, call)) if isinstance(leaf, torch.nn.Module)]
    held = _bytes(given) + seen.peak
    saved = _bytes(bare_tensors([list(_saved(part)) for each in networks for part in each.modules()]))
    return Counted(
        float(seen.counter.get_total_flops()) or None,
        sum(t.nbytes for t in tensors(result)),
        _bytes(read),
        held,
        held - saved if networks else None,
        convolved,
        seen.operations,
        seen.moved,
        seen.whole(tensor_leaves(args, {name: value for name, value in kwargs.items() if name != "out"})),
        not (convolved or recurrent),
        seen.operators(),
    )


def _saved(part: Any) -> Iterator[Any]:
    """A module's own tensors that ``state_dict`` saves, which hooks can change, and any other objects be in."""
    yield from part.parameters(recurse=False)
    buffers = part.named_buffers(recurse=False)
    yield from (tensor for name, tensor in buffers if name not in part._non_persistent_buffers_set)


def _bytes(counted: list[Any]) -> int:
    """Bytes of the distinct tensors; memory that occurs twice counts once."""
    return sum({memory_key(tensor): tensor.nbytes for tensor in counted}.values())


NORMALISATIONS = ("softmax", "layer_norm", "batch_norm", "group_norm", "rms_norm")
MOVES = re.compile(r"(?<![a-z])(?<!index_)(copy|clone|cat|stack|fill|zero|pad_nd|foreach|fused|dropout|bernoulli)")
"""What is in the names of operators that read and write each element once and in order (``cat``, not ``scatter``),
besides those that torch tags as pointwise."""


def kind_of_operator(operator: Any, args: tuple[Any, ...], flops: float) -> str:
    """Return the kind of an operator, as in :class:`~gpubench.runfile.schema.Operators`: operators whose GPU times
    follow the same rule. A convolution whose kernel is a single point is a product: no algorithm saves
    multiplications."""
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


class Seen:
    """What was seen of the operators of a call: ``peak`` is the most bytes that tensors made by it held at once,
    ``saved`` the most of them that there were when a backward pass began, ``given`` the bytes of what it used besides,
    ``operations`` the number of launches, ``moved`` the bytes that these read and wrote. ``counter`` is torch's, of
    FLOPs."""

    def __init__(self) -> None:
        self.counter = flop_counter()
        self.peak = self.saved = self.given = self.operations = self.moved = self._now = 0
        self._opaque = False  # whether the layout of a tensor hides how many bytes it has
        self._groups: dict[tuple[str, int, int], list[float]] = {}
        self._known: set[int] = set()
        self._backward = False
        self._views: dict[int, dict[Any, int]] = {}  # bytes of each view that was read, by its memory

    def note(self, operator: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note an operator that was called."""
        name, before = operator.overloadpacket.__name__, self._backward
        # Not by hooks on what is saved: they keep it for good, and torch.func.grad refuses them.
        self._backward = torch._C._current_graph_task_id() >= 0
        if self._backward and not before:
            self.saved = max(self.saved, self._now)
        # A view launches nothing, and neither does what only allocates.
        if not (operator.is_view or name == "_unsafe_view" or "empty" in name):
            self._note_launch(name, operator, args, kwargs, result)
        for storage in (tensor.untyped_storage() for tensor in self._full(args, kwargs)):
            if storage._cdata not in self._known:  # made elsewhere
                self._known.add(storage._cdata)
                self.given += storage.nbytes()
        for storage in (tensor.untyped_storage() for tensor in self._full(result)):
            if storage._cdata not in self._known:
                self._known.add(storage._cdata)
                self._now += storage.nbytes()
                self.peak = max(self.peak, self._now)
                weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())

    def _note_launch(self, name: str, operator: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        written = {argument.name for argument in operator._schema.arguments if argument.is_out}
        read = {name: value for name, value in kwargs.items() if name not in written}
        nbytes = sum(tensor.nbytes for tensor in tensors(args, read, result))
        if name == "sort":
            nbytes *= args[0].element_size()  # a radix sort passes over everything once per byte of a key
        self.operations += 1
        self.moved += nbytes
        for tensor in self._full(args[1:] if name in CHOOSING else args, read):
            self._views.setdefault(tensor.untyped_storage()._cdata, {})[memory_key(tensor)] = tensor.nbytes
        count_flops = self.counter.flop_registry.get(operator.overloadpacket)
        flops = float(count_flops(*args, **kwargs, out_val=result)) if count_flops else 0.0
        if nbytes:
            size = kind_of_operator(operator, args, flops), int(flops).bit_length(), nbytes.bit_length()
            group = self._groups.setdefault(size, [0, 0.0, 0.0])
            group[:] = group[0] + 1, group[1] + flops, group[2] + nbytes

    def _full(self, *values: Any) -> list[Any]:
        found = tensor_leaves(values)
        full = [tensor for tensor in found if str(tensor.layout) == "torch.strided"]
        self._opaque |= len(full) < len(found)
        return full

    def _forget(self, key: int, nbytes: int) -> None:
        self._known.discard(key)
        self._now -= nbytes

    def whole(self, given: list[Any]) -> bool:
        """Return whether nearly all of each tensor was read; false for sparse tensors, which aren't seen."""
        if any(str(each.layout) != "torch.strided" for each in given):
            return False
        views = (self._views.get(each.untyped_storage()._cdata, {}) for each in given)
        return all(sum(read.values()) >= WHOLE * each.nbytes for read, each in zip(views, given, strict=True))

    def operators(self) -> tuple[Operators, ...]:
        """Return the operators by kind and size; none if they are unreliable or too many for a results file."""
        groups = tuple(Operators(size[0], int(group[0]), *group[1:]) for size, group in self._groups.items())
        return groups if len(groups) <= MOST_OPERATORS and not self._opaque else ()


@contextmanager
def watched() -> Iterator[Seen]:
    """A context that yields what is seen of the calls made within it."""
    seen = Seen()

    class Watch(dispatch_mode()):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operator(*args, **(kwargs or {}))
            seen.note(operator, args, kwargs or {}, result)
            return result

    with uncompiled(), Watch(), seen.counter:
        yield seen


def observe(
    call: Call, device: Device, dtype: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> tuple[Load, Any]:
    """Make a call for a simulated device that computes in this dtype; return the load that it takes its time for, and
    the result. The load is the work as counted or declared, and the operators that were seen on tensors without data or
    else in this call. Raises :class:`Unmeasurable` if none is known."""
    counted, work = call.counted, call.work
    operations = (work.items or 0.0) if work.unit == "operation" else 0.0  # of 8-bit integers, for example
    if counted is None and not (work.flops or work.bytes or operations):
        needs = "its model needs work that PyTorch can count on meta tensors, or gpubench.declare(flops=…)"
        raise Unmeasurable(f"{device.label}: {needs}")
    with watched() as seen:
        result = function(*args, **kwargs)
    least = work.bytes or sum(tensor.nbytes for tensor in bare_tensors(call.args, call.kwargs))
    if counted is None and operations:
        return Load(operations, least, 1, EIGHT_BITS), result
    launches, operators = seen.operations, seen.operators()
    if counted is not None:
        launches, operators = counted.operations, counted.operators
        least = least if operators else counted.moved_bytes
    return Load(work.flops or 0.0, least, max(1, launches), dtype, operators), result


def substituted(module: Any, convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that calls a module with other parameters and buffers, converted from its own; the module isn't
    copied."""
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
    Raises :class:`UsageError` unless it is above 0 and within what a results file allows, and whole if it must be."""
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
    whole: each input is then read once and each output written once. Raises :class:`WorkMismatch` when declared FLOPs
    differ from counted ones by more than a thousandth."""
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
