"""Checks of results, before anything is timed, against float64 copies of the inputs, made before the first call: the
time of a wrong result means nothing."""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from ..devices import CPU, Device
from ..devices.implementations import TORCH, Implementation
from ..devices.lazy import np, pytree, torch
from ..errors import TooLarge, WrongAnswer
from ..runfile.schema import Check, Work
from .data import as_tensor, bare_tensors, dispatch_mode, is_array, require_memory, tensor_leaves, tensors, uncompiled
from .work import Call, substituted

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of each dtype's products: 2**-(significand bits + 1)."""
LOOSEST = {"float64": 1e-10, "float32": 1e-3, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 5e-2}
"""However long the reduction, a larger relative error than this is a wrong result, not rounding."""

_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
"""Dtypes of the parts of complex ones."""
_STEPS = 30
"""A result may be off by this many times of what one unit of roundoff in each step moves it: errors of a long chain add
up, and the perturbations are random."""
_FEWEST, _MOST = 4.0, 32.0
"""Units of roundoff that show which whole numbers rounding can move, such as those of values at the edge of a bin, in
the first draw and at most: one unit moves too few."""
_MOVING = 6e-5
"""Relative change that more than the fewest units don't exceed."""
_MOVED = 1e-2
"""Where rounding moves no larger share of the whole numbers, a check of the others is one."""
_AGAIN = itertools.cycle(range(1, 8))
"""How often a draw repeats a random operator: the function may set the same seed each time."""
_DRAWS, _DRAWS_OF_WHOLE = 3, 10
"""Most draws, and those for whole numbers: each moves a value at an edge with a probability of a half."""


def unchecked(reason: str) -> Check:
    """Return the outcome of a case that has no reference, with the reason."""
    return Check("unchecked", reason=reason)


def roundoff(dtype: str) -> float:
    """Unit roundoff of a dtype, for complex ones of its parts."""
    return ROUNDOFF[_real(dtype)]


def _real(dtype: str) -> str:
    return _PARTS.get(dtype, dtype)


def tolerance(dtype: str, flops: float | None, inputs: int, outputs: int) -> float:
    """Return the largest relative error that rounding explains: 8 u + 4 u sqrt(k).

    u is the dtype's unit roundoff and k the length of the longest sum behind one output. Rounding errors of a sum of k
    terms grow as sqrt(k) u if they are independent (Higham and Mary, *A New Approach to Probabilistic Rounding Error
    Analysis*, 2019); the factors leave room for an unlucky draw. k is at most the number of multiply-adds, or of
    elements of all inputs, per element of the output.
    """
    length = max(1.0, (flops or 0) / (2 * max(1, outputs)), inputs / max(1, outputs))
    return min(roundoff(dtype) * (8 + 4 * math.sqrt(length)), LOOSEST[_real(dtype)])


def elements(*values: Any) -> int:
    """Number of elements of all tensors and arrays in these values, without the parameters of modules."""
    arrays = [leaf for leaf in pytree.tree_leaves(values) if is_array(leaf) or isinstance(leaf, np.generic)]
    return sum(t.numel() for t in bare_tensors(values)) + sum(int(math.prod(array.shape)) for array in arrays)


def in_float64(value: Any, library: Implementation | None = None) -> Any:
    """Return a copy on the CPU with floating-point parts in float64: modules, tensors and arrays, in any container.
    Arrays become NumPy's, and functions of the ``library`` become those of NumPy that do the same."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.nn.Module):
            return substituted(leaf, convert)
        if isinstance(leaf, torch.Tensor):
            real = torch.float64 if leaf.is_floating_point() else leaf.dtype
            copied = leaf.detach().to("cpu", copy=True).to(torch.complex128 if leaf.is_complex() else real)
            return copied.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, np.ndarray):
            return leaf.astype({"f": np.float64, "c": np.complex128}.get(leaf.dtype.kind, leaf.dtype))
        if is_array(leaf):
            return convert(as_tensor(leaf)).numpy()
        return library.twin(leaf) if library else leaf

    return pytree.tree_map(convert, value)


@contextmanager
def poisoned(dtypes: Counter[str] | None = None, roundoff: float = 0.0, most: float = math.inf) -> Iterator[None]:
    """A context in which memory that the program asks torch for and doesn't fill holds NaN, not an earlier call's
    answer.

    ``dtypes`` counts the results of each; more than ``most`` raise NotImplementedError, since a loop that ends when a
    result stands never ends where each is changed at random. With ``roundoff`` the result of each step is changed by so
    much, up or down at random: Monte Carlo arithmetic (Parker, *Monte Carlo Arithmetic: exploiting randomness in
    floating-point arithmetic*, 1997), whose spread is the part of a result that rounding explains.
    """
    from torch.overrides import TorchFunctionMode

    aten = torch.ops.aten
    unfilled = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided}
    seen = Counter() if dtypes is None else dtypes

    class Poisoned(dispatch_mode()):  # type: ignore[misc]
        def __torch_dispatch__(self, step: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _require_repeatable(step, args, seen.total() <= most)
            result = step(*args, **(kwargs or {}))
            if step.overloadpacket in unfilled:
                if result.is_floating_point():
                    result.fill_(math.nan)
                return result
            if roundoff:
                result = _choose_otherwise(step, args, kwargs or {}, result, roundoff)
            for tensor in tensor_leaves(result):
                seen[str(tensor.dtype).removeprefix("torch.")] += 1
                if roundoff and not step.is_view:
                    _perturb(tensor, roundoff)
            return result

    class Autocast(TorchFunctionMode):
        """Autocast leaves float64 as it is, so its dtype shows in no result of the reference."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for kind in {tensor.device.type for tensor in tensor_leaves(args)}:
                if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                    seen[str(torch.get_autocast_dtype(kind)).removeprefix("torch.")] += 1
            return function(*args, **(kwargs or {}))

    with uncompiled(), Autocast(), Poisoned():
        yield


def _require_repeatable(step: Any, args: Sequence[Any], ends: bool) -> None:
    if not ends:
        raise NotImplementedError("its number of steps depends on rounding")
    if str(step) == "aten.view.dtype" and (args[0].is_floating_point() or args[0].is_complex()):
        raise NotImplementedError("it reads the bits of its input, and float64 has other ones")


def _choose_otherwise(step: Any, args: Any, kwargs: Any, result: Any, roundoff: float) -> Any:
    """Change what an operator leaves to its algorithm, which differs between float32 and float64: random numbers of a
    seed, the signs of vectors of a decomposition, the order of eigenvalues, and the last digits of distances, if they
    are differences of large numbers."""
    name = step.overloadpacket.__name__
    if torch.Tag.nondeterministic_seeded in step.tags:
        for _ in range(next(_AGAIN)):
            result = step(*args, **kwargs)
    if name == "_linalg_svd":
        result[0].neg_(), result[2].neg_()
    elif name == "linalg_eig":
        result[0].copy_(result[0].flip(-1)), result[1].copy_(-result[1].flip(-1))
    elif name == "_linalg_eigh":
        result[1].neg_()
    elif name == "linalg_qr":
        result[0].neg_(), result[1].neg_()
    elif name == "_euclidean_dist" and result.numel():
        result.add_(math.sqrt(roundoff) * result.max())
    return result


def _perturb(tensor: torch.Tensor, roundoff: float) -> None:
    """Change each element by this relative amount, up or down at random; whole numbers aren't made smaller, since what
    cuts digits off would take them for the one before."""
    for part in bare_tensors(tensor.detach()):
        if (part.is_floating_point() or part.is_complex()) and not part.is_quantized:
            signs = 2 * torch.randint(0, 2, part.shape, device=part.device, dtype=torch.float64) - 1
            if part.is_floating_point():
                signs = torch.where(part == part.round(), signs.clamp(min=0), signs)
            part.mul_(1 + roundoff * signs)  # in float32 one and a unit are one


def _wrong(error: float, allowed: float) -> str:
    kind = "an output is not finite or was never written" if math.isinf(error) else f"relative error {error:.3g}"
    return f"wrong result: {kind} (tolerance {allowed:.3g})"


def _outputs(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a result, dense and on the CPU; a number counts as one."""
    leaves = pytree.tree_leaves(result)
    leaves = [as_tensor(x) if is_array(x) or isinstance(x, np.generic | int | float) else x for x in leaves]
    dense = [t.to(torch.complex64) if t.dtype == torch.complex32 else t for t in _dense(leaves)]
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in dense]


def _dense(values: Any) -> Iterator[torch.Tensor]:
    for tensor in tensor_leaves(values):
        tensor = tensor.detach().to("cpu")
        if tensor.is_nested:
            yield from tensor.unbind()
        elif tensor.is_quantized:
            yield tensor.dequantize()
        else:
            yield tensor if str(tensor.layout) == "torch.strided" else tensor.to_dense()


def _errors(got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> list[float]:
    """Return the relative error of each output. Raises :class:`WrongAnswer` if their number or shapes differ."""
    if len(got) != len(wanted):
        raise WrongAnswer(f"wrong result: {len(got)} outputs, the reference has {len(wanted)}")
    for left, right in zip(got, wanted, strict=True):
        if left.shape != right.shape:
            raise WrongAnswer(f"wrong result: shape {tuple(left.shape)}, the reference has {tuple(right.shape)}")
    return list(map(_error, got, wanted))


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where both hold the same number or NaN; integers are compared as such, since float64 has not every int64."""
    if left.dtype != right.dtype:
        left, right = left.double(), right.double()
    return (left == right) | ((left != left) & (right != right))


def _others(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where one whole number isn't the other."""
    if not left.is_floating_point():
        return ~_same(left, right)
    return ~_same(left, right) & ~((left.double() - right.double()).abs_() <= 0.5)


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool((tensor == tensor.round()).all())


def _error(left: torch.Tensor, right: torch.Tensor) -> float:
    """Largest difference / largest finite value expected; infinite where only one of them is NaN or infinite. Numbers
    that are subnormal in the result's dtype have fewer digits: for these it is difference / least normal number."""
    if not right.numel():
        return 0.0
    least = 0.0
    if left.is_floating_point() and right.is_floating_point():
        least = torch.finfo(left.dtype).smallest_normal
        right = right.to(left.dtype)  # what overflows or vanishes in the result's dtype does so in the expected value
    same, step = _same(left, right), float(not left.is_floating_point() and not right.is_floating_point())
    left, right = left.double(), right.double()
    difference = (left - right).abs_().clamp_(min=step)  # integers of which float64 makes one
    difference[same] = 0  # equal infinities too
    worst = difference.max().item()
    scale = right.abs().nan_to_num_(0.0, 0.0).max().item()  # of the finite values
    if math.isnan(worst):
        return math.inf
    return worst / max(scale, least) if scale else worst


FIRST = 10.0
"""The first reference of a workload on a device may take this many times its allowance, so that each is checked
once."""


@dataclass(slots=True)
class Reference:
    """A function and float64 copies of its arguments, made before the first call, which may change them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    flops: float | None
    inputs: int
    precision: str
    _expected: list[torch.Tensor] | None = None
    _whole: list[bool] = field(default_factory=list)
    _least: list[float] = field(default_factory=list)
    _explained: list[float] = field(default_factory=list)
    _moved: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    _spread: float = 0.0
    _draws: list[tuple[int, float]] = field(default_factory=list)
    _dtypes: Counter[str] = field(default_factory=Counter)

    def check(self, result: Any) -> Check:
        """Compare a result with the reference's. Raises :class:`~gpubench.errors.WrongAnswer`. The outcome is unchecked
        where the call can't be repeated in float64, for example a closure over float32 tensors, and where rounding
        alone moves the result further than the tolerance."""
        if self._expected is None:
            try:
                self._expected = self._repeat(self._dtypes)
            except WrongAnswer:  # a reference may also check what the call doesn't return
                raise
            except Exception as error:
                return _unrepeatable(error)
        got, expected, mismatch = _outputs(result), self._expected, None
        if not got and not expected:
            return unchecked("the call returns no tensor and no number to compare")
        allowed = tolerance(self._precision, self.flops, self.inputs, elements(result))
        self._least, self._whole = [allowed * x.is_floating_point() for x in expected], [*map(_is_whole, expected)]
        self._draws = _planned(any(self._whole), roundoff(self._precision))
        self._explained, self._moved = list(self._least), {}
        try:
            errors = self._unwritten(_errors(got, expected))
        except WrongAnswer as error:  # right where rounding decides how many elements there are
            if not expected:
                raise
            errors, mismatch = [math.inf] * len(expected), error
        self._require(got, errors, mismatch)
        loosest = max(allowed, LOOSEST[_real(self._precision)])
        loose = [place for place, most in enumerate(self._explained) if most > loosest]
        few = [2 * self._most_moved(place) <= _MOVED * expected[place].numel() for place in loose if self._whole[place]]
        if mismatch or len(few) < len(loose) or not all(few):
            moved = f"moves the result by {self._spread:.2g} (tolerance {allowed:.2g})"
            return unchecked(f"rounding, randomness, or a free choice of signs or order {moved}")
        if not any(self._whole):
            self.args, self.kwargs, self._draws = (), {}, []  # what is expected is kept for the last result
        return Check("passed", max(errors), max(self._explained))

    def check_last(self, result: Any) -> None:
        """Compare a result of after the rounds with what the first had to be. Raises
        :class:`~gpubench.errors.WrongAnswer`."""
        assert self._expected is not None
        got = _outputs(result)
        self._require(got, _errors(got, self._expected), when=" after the rounds, while the first result was right")

    def _require(
        self, got: Sequence[torch.Tensor], errors: list[float], mismatch: WrongAnswer | None = None, when: str = ""
    ) -> None:
        """Repeat the reference with rounding until that explains the errors, or a ``mismatch`` of shapes. Raises
        :class:`~gpubench.errors.WrongAnswer` where it doesn't."""
        assert self._expected is not None
        most = zip(self._whole, errors, self._least, strict=True)
        places = [k for k, (whole, error, least) in enumerate(most) if whole and least < error and not mismatch]
        others = {k: _others(got[k], self._expected[k]) for k in places}
        while wrong := self._unexplained(errors, others):
            if not self._draws:
                raise mismatch or WrongAnswer(wrong + when)
            self._draw(*self._draws.pop(0), resized=mismatch is not None)

    def _unexplained(self, errors: list[float], others: Mapping[int, torch.Tensor]) -> str:
        """Say what rounding doesn't explain: an error, or that a draw moves fewer than half as many elements as are
        ``others``, or all draws fewer than half of these."""
        if wrong := [(error, most) for error, most in zip(errors, self._explained, strict=True) if not error <= most]:
            return _wrong(*max(wrong))
        for place, other in others.items():
            count, moved = int(other.sum()), reduce(operator.or_, self._moved[place])
            explained = min(self._most_moved(place), int((other & moved).sum()))
            if 2 * explained < count:
                return f"wrong result: {count} of {other.numel()} whole numbers are others, rounding moves {explained}"
        return ""

    def _most_moved(self, place: int) -> int:
        """The most elements of an output that a draw moves."""
        return max(int(each.sum()) for each in self._moved[place])

    def _draw(self, draw: int, steps: float, resized: bool) -> None:
        """Widen what is explained by what moves if each input and step is off by so many units of roundoff. Where that
        changes the number of elements, which a result that isn't ``resized`` has kept, by one unit."""
        assert self._expected is not None
        try:
            outputs = self._repeat(draw=draw, steps=steps)
            errors = _errors(outputs, self._expected)
        except Exception as error:  # another number of elements, or a decomposition that no longer exists
            if isinstance(error, WrongAnswer) and steps > 1 and not resized:
                return self._draw(draw, 1.0, resized)
            outputs, errors = self._expected, [math.inf] * len(self._expected)
        self._spread = max(self._spread, *errors)
        factors = [2 if whole else _STEPS / steps for whole in self._whole]
        self._explained = list(map(max, self._explained, map(operator.mul, factors, errors)))
        for place in (place for place, whole in enumerate(self._whole) if whole):
            moved = _others(outputs[place], self._expected[place]) | math.isinf(errors[place])
            self._moved.setdefault(place, []).append(moved)

    @property
    def _precision(self) -> str:
        """The coarsest dtype that is computed in: the reference's own are float64 unless the function chooses them."""
        coarse = [each for each in self._dtypes if _real(each) in ROUNDOFF and roundoff(each) > roundoff("float32")]
        return max(self.precision, *coarse, key=roundoff) if coarse else self.precision

    def _repeat(
        self, dtypes: Counter[str] | None = None, draw: int = 0, steps: float = 1.0, poison: bool = True
    ) -> list[torch.Tensor]:
        """Return the outputs of the function in float64; of a ``draw`` with inputs and results of operations that are
        changed by so many ``steps`` of roundoff."""
        args, kwargs = in_float64(self.args), in_float64(dict(self.kwargs))
        unit = steps * roundoff(self._precision) if draw else 0.0
        with torch.random.fork_rng(devices=[]):
            if draw:
                torch.manual_seed(draw)
                args, kwargs = _perturbed((args, kwargs), unit)
            most = 10 * self._dtypes.total() + 100 if draw else math.inf
            with poisoned(dtypes, unit, most) if poison else nullcontext():
                return _outputs(self.function(*args, **kwargs))

    def _unwritten(self, errors: list[float]) -> list[float]:
        """The errors, infinite for memory that nothing wrote: only NaN of the reference's own arithmetic is right."""
        assert self._expected is not None
        if not any(bool(output.isnan().any()) for output in self._expected):
            return errors
        clean = _errors(self._repeat(poison=False), self._expected)
        return [math.inf if math.isinf(each) else error for error, each in zip(errors, clean, strict=True)]


def _planned(whole: bool, unit: float) -> list[tuple[int, float]]:
    """Return the seeds of the draws and their units of roundoff: for whole numbers ever more."""
    if not whole:
        return [(draw, 1.0) for draw in range(1, _DRAWS + 1)]
    most = max(_FEWEST, min(_MOST, _MOVING / unit))
    return [(draw, min(most, _FEWEST * 8 ** (draw - 1))) for draw in range(1, _DRAWS_OF_WHOLE + 1)]


def _unrepeatable(error: Exception) -> Check:
    message = " ".join(str(error).split())[:150]
    why = f"the call can't be repeated in float64 ({type(error).__name__}: {message})"
    return unchecked(f"{why}: pass modules and tensors as arguments, or a reference as check=")


def _perturbed(values: Any, unit: float) -> Any:
    def change(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc":
            return leaf * (1 + unit * (2 * torch.randint(0, 2, leaf.shape).numpy() - 1))
        for tensor in tensor_leaves([leaf]):
            _perturb(tensor, unit)
        return leaf

    return pytree.tree_map(change, values)


Estimate = Callable[[Work, Device, str], tuple[float | None, str]]
"""A function of work, device and dtype that returns the seconds of a call, and why, as :meth:`.Rates.estimate`."""


def prepare_reference(
    call: Call, precision: str, allowance: float, estimate: Estimate, library: Implementation
) -> Reference | Check:
    """Return the reference, or an unchecked :class:`Check` that says why there is none. ``allowance``: seconds that it
    may take. ``precision``: the dtype whose rounding to expect. ``library``: what the call computes with. A call of
    torch works on tensors, so without any it can't be repeated in float64."""
    check, function, args, kwargs = call.request.check, call.request.function, call.args, call.kwargs
    if check is False or isinstance(check, str):
        return unchecked(check or "check=False")
    if check is True and not tensors(args, kwargs, function) and library.name == TORCH:
        return unchecked("no tensor among the arguments to repeat the call with")
    seconds, basis = estimate(call.work, CPU, "float64")
    if seconds is not None and 2 * seconds > allowance:
        return unchecked(f"a float64 reference would take too long: {basis}")
    # In float64 8 bytes an element, complex ones 16, and room for intermediate results of the outputs' size.
    given = tensors(args, kwargs, function)
    size = sum(
        (8 + 8 * t.is_complex()) * t.numel() if t.dtype.is_floating_point or t.is_complex() else t.nbytes for t in given
    ) + 8 * (call.counted.output_bytes if call.counted else 0)
    try:
        require_memory(size, CPU)
    except TooLarge as error:
        return unchecked(f"a float64 reference would not fit: {error}")
    try:
        function = in_float64(function, library) if check is True else check
        args, kwargs, inputs = in_float64(args, library), in_float64(dict(kwargs), library), elements(args, kwargs)
    except (RuntimeError, NotImplementedError) as error:  # no data, or a layout that torch can't copy
        return _unrepeatable(error)
    return Reference(function, args, kwargs, call.work.flops, inputs, precision)
