"""Checks of results against float64: the same call on a copy of it that was made before the first call.

Where a result differs by more than the rounding errors of one sum, torch's own rule decides (``torch._dynamo.utils.
same``): the error may be a few times the error of another run in the same precision. This run computes in float64 and
rounds the result of each operator (Higham and Pranesh, *Simulating low precision floating-point arithmetic*, 2019),
since a run in the dtype itself would repeat a fault of the dtype.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..devices import CPU, Device
from ..devices.implementations import TORCH, Implementation
from ..devices.lazy import np, pytree, torch
from ..errors import TooLarge, UsageError, WrongAnswer
from ..runfile.quantities import seconds_text
from ..runfile.schema import Check, Work
from .calls import as_before
from .copies import CallCopy, copy_call, random_streams, restored_random_streams, set_random_streams
from .data import as_tensor, is_array, require_memory, tensor_leaves, tensors, uncompiled
from .outputs import Incomparable, Output, Seen, agree, elements, error_of, move, others, outputs, pairs, poisoned
from .reducers import Uncopyable
from .work import Call

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of each dtype's products: 2**-(significand bits + 1); of complex dtypes, of the parts."""
LOOSEST = {"float64": 1e-10, "float32": 1e-3, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 5e-2}
"""However long the reduction, a larger relative error than this is a wrong result, not rounding."""
for _table in (ROUNDOFF, LOOSEST):
    _table |= {f"complex{2 * bits}": _table[f"float{bits}"] for bits in (16, 32, 64)}
FIRST = 10.0  # The first reference of a workload on a device may take this many times its allowance
_STEPS = 30
"""A result's error may be this many times the error of a run with inputs moved by one unit of roundoff: the run rounds
once an operator, a sum of many terms rounds at each term."""
_MOST_UNITS, _MOST_MOVED = 32.0, 6e-5
"""Whole numbers change only where a value lies at an edge, so that one unit moves too few: inputs are moved by so many
units, but by no larger relative amount, and by 4 units in any case."""
_AT_EDGES = 1e-2  # Where rounding moves no larger share of the whole numbers, a comparison of the others is a check
_REPEATS = 5  # Calls of a copy that show whether the call changes: schedules begin with a step of zero
_COPIED_PER_S = 2e9  # bytes that a core copies
_UNWRITTEN = "an output is not finite or was never written"
_UNBOUNDED = "rounding makes NaN or an infinity of what is finite in float64, or changes what the call does"

Estimate = Callable[[Work, Device, str], tuple[float | None, Any]]
"""A function of work, device and dtype that returns the seconds of a call, and why, as :meth:`.Rates.estimate`."""


def unchecked(reason: str) -> Check:
    """Return the outcome of a case that has no reference, with the reason."""
    return Check("unchecked", reason=reason)


def too_long(seconds: float) -> Check:
    """Return the outcome of a case with a reference that may take too long, with the seconds of one call."""
    return unchecked(f"the check would take too long (one call took {seconds_text(seconds)})")


def coarsest(dtypes: Collection[str], preferred: str = "") -> str:
    """Return the floating dtype with the fewest digits, of several the ``preferred`` one; empty without any."""
    known = [each for each in sorted(dtypes) if each in ROUNDOFF]
    return max(known, key=lambda each: (ROUNDOFF[each], each == preferred), default="")


def tolerance(dtype: str, flops: float | None, inputs: int, outputs: int) -> float:
    """Return the largest relative error that rounding explains: 8 u + 4 u sqrt(k).

    u is the dtype's unit roundoff and k the length of the longest sum behind one output. Rounding errors of a sum of k
    terms grow as sqrt(k) u if they are independent (Higham and Mary, *A New Approach to Probabilistic Rounding Error
    Analysis*, 2019); the factors leave room for an unlucky draw. k is at most the number of multiply-adds, or of
    elements of all inputs, per element of the output.
    """
    length = max(1.0, (flops or 0) / (2 * max(1, outputs)), inputs / max(1, outputs))
    return min(ROUNDOFF[dtype] * (8 + 4 * math.sqrt(length)), LOOSEST[dtype])


@dataclass(slots=True)
class Expected:
    """An output of the reference, with the differences that further runs explain: a relative ``error``, and of whole
    numbers the elements that ``moved``, at most ``most_moved`` in one run. ``unwritten``: NaN since nothing wrote it.
    """

    output: Output
    allowed: float
    unwritten: bool
    error: float = 0.0
    moved: Any = False
    most_moved: int = 0

    def miss(self, got: torch.Tensor) -> str:
        """Return how a result differs by more than is explained; empty if it doesn't."""
        wanted, whole = self.output.values, self.output.is_whole
        error = math.inf if self.unwritten else error_of(got, wanted)
        if error <= self.allowed or (error <= self.error and not whole):
            return ""
        if not whole or (error > self.error and wanted.is_floating_point()):
            kind = f"relative error {error:.3g}" if math.isfinite(error) else _UNWRITTEN
            return f"{kind} (tolerance {max(self.error, self.allowed):.3g})"
        other = others(got, wanted)
        count = int(other.sum())
        moved = min(int((other & self.moved).sum()), self.most_moved)
        explained = error <= self.error and 2 * moved >= count
        return "" if explained else f"{count} of {other.numel()} whole numbers are others, rounding moves {moved}"

    def widen(self, values: torch.Tensor | None, dtype: torch.dtype, factor: float) -> float:
        """Explain what another run changed in results of this dtype, and return its error; without its values, explain
        everything."""
        wanted, whole = self.output.values, self.output.is_whole
        values = values.to(dtype) if values is not None and wanted.is_floating_point() else values
        error = math.inf if values is None else error_of(values, wanted)
        self.error = max(self.error, (2 if whole else factor) * error)
        if whole:
            moved = torch.ones_like(wanted, dtype=torch.bool) if values is None else others(values, wanted)
            self.moved = self.moved | moved
            self.most_moved = max(self.most_moved, int(moved.sum()))
        return error

    def is_checked(self, loosest: float) -> bool:
        """Whether so little is explained that the comparison was a check."""
        few = 2 * self.most_moved <= _AT_EDGES * self.output.values.numel()
        return (few and self.output.is_whole) or self.error <= loosest


@dataclass(slots=True)
class Reference:
    """A copy of a call, which is copied again for each run. ``precision``: the dtype of the rounding errors.
    ``allowance``: seconds for all runs of the copy. ``exact``: whether results must have the dtype that the call gives
    on a CPU. ``given``: the test's own reference, a function, which may look at the first call's traces. ``home``: the
    accelerator that computes in float64 instead of a CPU."""

    call: CallCopy
    flops: float | None
    inputs: int
    precision: str
    allowance: float = math.inf
    exact: bool = False
    given: Callable[..., Any] | None = None
    home: Device | None = None
    seen: Seen = field(default_factory=Seen)
    _expected: list[Expected] = field(default_factory=list)
    _allowed: float = 0.0
    _spread: float = 0.0
    _spent_s: float = 0.0
    _computes: bool = False
    _alive: Any = None
    _runs: list[float] = field(default_factory=list)
    _streams: Any = field(default_factory=random_streams)

    def check(self, result: Any) -> Check:
        """Compare a result with the reference's. Raises :class:`~gpubench.errors.WrongAnswer`. It is unchecked if the
        call can't be repeated in float64, if float64 can't judge it, and if rounding or a free choice moves the result
        by more than :data:`LOOSEST`."""
        try:
            got = outputs(result)
            self._expect(elements(result))
            self._require_use(got)
            reason = self._explain(got)
            if reason and not agree(self._run(), self._wanted, LOOSEST["float64"]):
                reason = self._freedom
        except WrongAnswer:  # a reference may also check what the call doesn't return
            raise
        except (Incomparable, Uncopyable) as error:
            return unchecked(str(error))
        except Exception as error:
            message = re.split(r"[.:;] ", " ".join(str(error).split()))[0][:100]
            if self.given and isinstance(error, TypeError):  # a wrong signature, such as a missing argument
                raise UsageError(f"the reference of declare(check=…) raises TypeError: {message}") from error
            return unchecked(f"the call can't be repeated in float64 ({type(error).__name__}: {message})")
        loosest = max(self._allowed, LOOSEST[self._precision])
        if reason and not all(each.is_checked(loosest) for each in self._expected):
            return unchecked(reason)
        if not any(each.is_whole for each in self._wanted):
            self._runs, self._alive = [], None  # the last result needs no further run
        errors = [error_of(*pair) for pair in pairs(got, self._wanted)]
        note = f"float64 on {self.home}" if self.home else None
        return Check("passed", max(errors), max(each.error for each in self._expected), note)

    def check_last(self, result: Any) -> None:
        """Compare the result after the rounds too. Raises :class:`~gpubench.errors.WrongAnswer`."""
        with suppress(Incomparable, Uncopyable):
            self._explain(outputs(result), " after the rounds, while the first result was right")

    def why_another(self, copy: Callable[[], CallCopy]) -> str:
        """Return why a later call may give another result: the call changes its inputs, or can't be repeated to see
        that; empty if repeated calls agree. The copy from before the first call is repeated in float64, so that small
        steps are seen. With a reference of the test's ``copy`` makes copies of the call as it is now: the first results
        of these agree too unless the call is a race."""
        own = self.given is None
        copy, allowed = (partial(self._copy, torch.float64), LOOSEST["float64"]) if own else (copy, self._allowed)
        try:
            with restored_random_streams(), uncompiled():
                call = copy()
                again = partial(copy_context().run, call.function, *call.args, **call.kwargs)
                with as_before(call.shared):
                    first = [Output(each.values.clone(), each.dtype) for each in outputs(again())]
                    stands = all(agree(first, outputs(again()), allowed) for _ in range(_REPEATS - 1))
                races = not (stands or own) and not agree(first, outputs(copy()()), allowed)
        except Uncopyable as error:
            return str(error)
        except Exception as error:
            return f"a copy of the call fails ({type(error).__name__})"
        return "" if stands or races else "the call changes what it uses"

    @property
    def _wanted(self) -> list[Output]:
        return [each.output for each in self._expected]

    def _expect(self, count: int) -> None:
        """Run the reference. NaN in its outputs is right if it is there without poison too."""
        try:
            found = self._run(seen=self.seen)
        except Exception:
            if self.home is None:
                raise
            self.home, self.seen = None, Seen()  # which lacks the memory, or a function in float64
            found = self._run(seen=self.seen)
        unwritten = [False] * len(found)
        if any(bool(each.values.isnan().any()) for each in found):
            unwritten = [math.isinf(error_of(*pair)) for pair in pairs(self._run(poison=False), found)]
        self._allowed = tolerance(self._precision, self.flops, self.inputs, count)
        allowed = [self._allowed * each.values.is_floating_point() for each in found]
        self._expected = [*map(Expected, found, allowed, unwritten, allowed)]
        units = max(4.0, min(_MOST_UNITS, _MOST_MOVED / ROUNDOFF[self._precision]))
        self._runs = [1.0, -1.0, *[units, -units] * any(each.is_whole for each in found), 0.0]

    def _require_use(self, got: list[Output]) -> None:
        """Raise Incomparable without anything to compare or to compute with, WrongAnswer for other dtypes than the same
        call on a copy has."""
        if not (got or self._expected):
            raise Incomparable("the call returns no tensor and no number to compare")
        if not (self.inputs or self.given or self._computes or self.seen.dtypes["float64"]):
            raise Incomparable("no tensor or array to repeat the call with")
        usual = {"float64": "float32" if self.precision == "tf32" else self.precision, "complex128": "complex64"}
        pairs = list(zip(got, self._wanted, strict=False))
        same = all(left.dtype in (usual.get(right.dtype, right.dtype), "") for left, right in pairs)
        if same or not self.exact or len(got) != len(self._expected):
            return
        own = got
        with suppress(Exception):
            own = self._run(own=True)
        for left, right in zip(got, own, strict=True):
            if left.dtype and right.dtype and left.dtype != right.dtype:
                raise WrongAnswer(f"wrong result: dtype {left.dtype}, a copy of the call gives {right.dtype}")

    def _miss(self, got: list[Output]) -> tuple[str, bool]:
        """Return the unexplained difference, if any, and whether it is a number or shape of outputs."""
        if len(got) != len(self._expected):
            return f"{len(got)} outputs, the reference has {len(self._expected)}", True
        for left, right in pairs(got, self._wanted):
            if left.shape != right.shape:
                return f"shape {tuple(left.shape)}, the reference has {tuple(right.shape)}", True
        misses = (each.miss(output.values) for each, output in zip(self._expected, got, strict=True))
        return next(filter(None, misses), ""), False

    def _explain(self, got: list[Output], when: str = "") -> str:
        """Repeat the reference until a run explains how a result differs, and return the reason. Raises WrongAnswer if
        none does, Incomparable if float64 can't judge."""
        reason, unwritten = "", any(each.unwritten for each in self._expected)
        while (miss := self._miss(got))[0]:
            if not (when or unwritten or reason):
                self._require_values(got, resized=miss[1])
            if not (when or unwritten or miss[1] or self._runs):
                self._require_accuracy(got)
            if unwritten or not self._runs:
                raise WrongAnswer(f"wrong result: {miss[0]}{when}")
            if self._spent_s > self.allowance:
                raise Incomparable(f"the check would take too long (so far it took {seconds_text(self._spent_s)})")
            run = self._runs.pop(0)
            self._widen(got, run, resized=miss[1])
            moved = f"rounding moves the result by {self._spread:.2g} (tolerance {self._allowed:.2g})"
            reason = (moved if math.isfinite(self._spread) else _UNBOUNDED) if run else self._freedom
        return reason

    def _widen(self, got: list[Output], run: float, resized: bool) -> None:
        """Explain the changes of one more run: with inputs moved by so many units of roundoff, or other free choices.
        A run with another number of elements says nothing, unless one unit of roundoff changes the number."""
        steps, found, wanted = abs(run or 1.0), None, self._wanted
        with suppress(Exception):  # a decomposition that no longer exists, a loop without an end
            found = self._run(vary=not run, steps=run)
        same = found is not None and [each.values.shape for each in found] == [each.values.shape for each in wanted]
        if resized and not same:
            raise Incomparable("rounding or a free choice decides how many elements the result has")
        if resized or (steps > 1 and not same):
            return
        others = [each.values for each in found] if found and same else [None] * len(wanted)
        for each, output, values in zip(self._expected, got, others, strict=True):
            if each.miss(output.values):
                self._spread = max(self._spread, each.widen(values, output.values.dtype, _STEPS / steps))

    @property
    def _freedom(self) -> str:
        """The reason why another run with the same values gives another result."""
        if self.seen.random:
            return "the call draws random numbers, and others in float64"
        if self.seen.decomposed:
            return "the signs of a decomposition's vectors, and their order, are free"
        return "the same call gives another result each time"

    def _require_values(self, got: list[Output], resized: bool) -> None:
        """Raise Incomparable for sizes of a dtype, addresses, and random numbers of the system. Without an operator of
        torch, a number can only be one of these: ``len(pickle.dumps(x))``, ``id(x)``, ``secrets.randbelow(9)``."""
        plain = all(not each.dtype or (each.is_whole and each.values.numel() == 1) for each in got)
        number = plain and not self.seen.dtypes.total()
        ranks = self.seen.ranks and any(
            each.output.is_whole and each.miss(output.values) for each, output in zip(self._expected, got, strict=False)
        )
        if not (self.seen.format or number or ranks or resized):
            return
        own = self._run(own=True)
        if agree(got, own, self._allowed):
            raise Incomparable("the result depends on the dtype, so float64 has another one")
        if number and not agree(own, self._wanted, self._allowed):
            call = self._copy(None)
            same = agree(outputs(call()), outputs(call()), 0.0)
            raise Incomparable("the result depends on where the data lie in memory" if same else self._freedom)

    def _require_accuracy(self, got: list[Output]) -> None:
        """Raise Incomparable if the call's own dtype on a CPU is as far from float64 as the result, however far if no
        run can show the rounding, since none of its operators is torch's."""
        own, errors = self._run(own=True), list[float]()
        unseen = not self.seen.dtypes.total() and agree(got, own, self._allowed)
        for each, left, right in zip(self._expected, got, own, strict=True):
            if each.miss(left.values):
                errors.append(error_of(left.values, each.output.values))
                explained = 3 * error_of(right.values, each.output.values) + each.error
                near = not each.output.is_whole and errors[-1] <= min(LOOSEST[self._precision], explained)
                if not (near or unseen):
                    return
        differs = f"{self.precision} differs by {max(errors):.2g} from float64, on a CPU too"
        raise Incomparable(differs if math.isfinite(max(errors)) else _UNBOUNDED)

    @property
    def _precision(self) -> str:
        """The coarsest dtype that is computed in: a reference computes in float64 unless the function chooses."""
        chosen = {each for each in self.seen.dtypes if "64" not in each and each != "float32"}
        return coarsest({self.precision, *chosen}, self.precision)

    def _copy(self, dtype: torch.dtype | None) -> CallCopy:
        device = torch.device(self.home.torch_name) if self.home and dtype else None
        call = copy_call(self.call.function, self.call.args, self.call.kwargs, dtype=dtype, device=device)
        return dataclasses.replace(call, function=self.given or call.function, shared=self.call.shared)

    def _run(
        self, seen: Seen | None = None, own: bool = False, vary: bool = False, steps: float = 0.0, poison: bool = True
    ) -> list[Output]:
        """Return the outputs of a copy of the call: in float64 or its ``own`` dtype, with other free choices
        (``vary``), or with inputs moved by so many ``steps`` of roundoff and rounded results."""
        start, home = time.perf_counter(), self.home
        call, stream = self._copy(None if own else torch.float64), home.random_state() if home else None
        most = 10 * self.seen.dtypes.total() + 100 if steps else math.inf
        rounded = {"float64": None, "tf32": torch.float32}.get(self._precision, getattr(torch, self._precision, None))
        with restored_random_streams([home] if home else ()):
            if steps:
                torch.manual_seed(1)
                move(call, steps * ROUNDOFF[self._precision])
            set_random_streams(self._streams)
            if home:
                home.set_random_state(stream)
            if vary:
                torch.manual_seed(2), random.seed(2), np.random.seed(2)
            with poisoned(seen, rounded if steps else None, vary, most) if poison and not own else uncompiled():
                result = call()
            if seen:
                self._computes |= call.computes
                seen.random |= str(random_streams()) != str(self._streams)
                seen.random |= home is not None and str(home.random_state()) != str(stream)
            found = outputs(result)
        if seen is self.seen and not home and any(not each.dtype for each in found):
            self._alive = call  # so that no later copy lies at the same address
        self._spent_s += time.perf_counter() - start
        return found


def prepare_reference(
    call: Call, precision: str, allowance: float, estimate: Estimate, library: Implementation, *, exact: bool = False
) -> Reference | Check:
    """Return the :class:`Reference` in this ``precision``, ``allowance`` and exactness of a call with a library, or an
    unchecked :class:`Check` that says why there is none."""
    check, function, args, kwargs = call.request.check, call.request.function, call.args, dict(call.kwargs)
    if check is False or isinstance(check, str):
        return unchecked(check or "check=False")
    seconds, _ = estimate(call.request.work, CPU, "float64")
    if seconds is not None and 2 * seconds > allowance:
        return too_long(seconds)
    # In float64 8 bytes an element, complex ones 16, and room for intermediate results of the outputs' size.
    given = tensors(args, kwargs, function)
    widths = (8 << t.is_complex() if t.dtype.is_floating_point or t.is_complex() else t.itemsize for t in given)
    size = sum(t.numel() * width for t, width in zip(given, widths, strict=True))
    try:
        require_memory(size, CPU)
        limit = min(allowance * _COPIED_PER_S, CPU.memory().free) / 4
        if library.name not in (TORCH, "numpy"):
            twin = lambda leaf: as_tensor(leaf).cpu().numpy() if is_array(leaf) else library.twin(leaf)  # noqa: E731
            function, args, kwargs = pytree.tree_map(twin, (function, args, kwargs))
        own, function = (None, function) if check is True else (check, torch.neg)
        copied = copy_call(function, args, kwargs, device=torch.device("cpu"), limit_bytes=int(limit))
    except (TooLarge, Uncopyable) as error:
        return unchecked(str(error))
    inputs = max(elements(args, kwargs), len(tensor_leaves(args, kwargs)))
    return Reference(copied, call.request.work.flops, inputs, precision, allowance, exact and own is None, own)


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function or network that computes in float64 on the CPU."""
    return copy_call(function, (), {}, dtype=torch.float64, device=torch.device("cpu")).function
