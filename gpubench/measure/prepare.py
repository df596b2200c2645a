"""The preparation of a call: its devices and dtype, its first call and check, its work, the warm-up and the plan of its
rounds. A call passes as frozen values: :class:`Plan`, :class:`Prepared`, :class:`Rounds`, and the results file's
:class:`~gpubench.runfile.schema.Measurement`."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import structs

from ..devices import CPU, Device, SimulatedDevice, find_device
from ..devices.cpu import cache_sizes
from ..devices.implementations import TORCH, Implementation
from ..devices.lazy import torch
from ..errors import Unmeasurable, UsageError, WrongAnswer
from ..runfile.flags import Flag
from ..runfile.options import DTYPES
from ..runfile.schema import Case, Check, Work
from . import budget, calls, disturbance, environment
from .clock import PLACEMENTS, ROUNDS_EACH, Bound, DeviceClock, Share, settle_clocks, warm_up
from .copies import CallCopy, copy_call, restored_random_streams
from .data import dtypes_of, is_lazy, poison, tensors, uncompiled
from .precision import apply, computed_dtype, computing, pass_on_broad_switch
from .probes import latency
from .reducers import Uncopyable
from .session import Session
from .verify import FIRST, Reference, coarsest, prepare_reference, too_long, unchecked
from .work import Call, Counted, Request, agree, count, count_real, observe

_FALLBACK = re.compile("fall(ing)? ?back (to run on|from XPU to|to) (the )?CPU", re.IGNORECASE)
"""How torch says that it computes an operator of an accelerator on the CPU."""
_LONG_REFERENCE = 0.5
"""Seconds of a CPU beyond which a faster accelerator computes the reference."""
_INDICES = {"int64", "int32", "bool"}
"""Dtypes of places and masks beside the data."""
_NARROW = "float8", "float4"
"""How the names of dtypes with scales beside their numbers begin."""
LONG_CALL = 0.01
"""A call that takes longer than this, in seconds, is a whole round: the median of the rounds is its latency."""
_USUAL_CACHE, _COPYING_SHARE = 32 << 20, 0.25
"""Bytes of the last cache where the system doesn't tell them, as in some containers; and most time of making copies, as
a share of the time of the rounds and the warm-up."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The test's declarations: whether it names its dtypes, whether its call writes into its arguments, whether it is
    measured with the program's own switches of float32 products, and whether garbage is collected within a round."""

    dtype: bool = False
    writing: bool = False
    own_switches: bool = False
    collects: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A call before anything is done: ``request`` in the conditions of ``case`` on ``home``, for as long as ``preset``
    allows. ``begun`` and ``held_bytes`` are the machine's counters and the device's allocated bytes before the data
    were made. ``flush`` empties the caches before a round. ``times``: whether anything is timed. ``data_dtype``: the
    dtype of the data if the call computes in another one. ``name`` is the benchmark's full name."""

    request: Request
    case: Case
    home: Device
    preset: budget.Preset
    session: Session
    library: Implementation
    clock: DeviceClock
    begun: disturbance.Counters
    name: str
    declared: Declared
    flush: Callable[[], Any] | None
    held_bytes: int | None
    data_dtype: str | None
    times: bool

    @property
    def family(self) -> tuple[str, ...]:
        """Equal for cases that differ only in size: checking one of them is nearly as good as checking all."""
        case = self.case
        return case.workload, case.device, case.dtype, case.implementation, case.variant

    @property
    def check_s(self) -> float:
        """The seconds that a reference may take."""
        return self.preset.check * (1 if self.family in self.session.checked else FIRST)

    @property
    def counts(self) -> bool:
        """Whether the work of a call is counted: once, by the first process of a run."""
        return (self.session.settings.first or self.home.simulated) and self.case.implementation == TORCH

    @property
    def repeats(self) -> bool:
        """Whether calls follow one another with nothing between them: no setup, and no flush of a cold cache."""
        return self.request.setup is None and self.flush is None

    @property
    def spreads(self) -> bool:
        """Whether the rounds are spread over a longer time: of a single expression, and on a CPU."""
        settings, on_cpu = self.session.settings, sum(case.device == "cpu" for case in self.session.collected)
        single = settings.brief and settings.processes == on_cpu == 1 and self.home == CPU
        return single and settings.max_time is None and settings.flags_rounds

    def is_busy(self) -> bool:
        """Return whether other programs used the cores when this process started, or have since the case began."""
        return self.session.is_busy(self.begun)

    def copy(self, call: Call) -> CallCopy:
        """Return a copy of the call, of at most a quarter of the free memory. Raises :class:`.Uncopyable`."""
        free = [memory.free for device in {self.home, CPU} if (memory := device.memory())]
        limit = min(free) // 4 if free else None
        return copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)

    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of the next call: its ``setup``'s, or else its own. Raises UsageError for both."""
        request = self.request
        made = request.setup() if request.setup is not None else None
        if made is None:
            return request.args, request.kwargs
        match made:
            case (tuple() | list() as args, Mapping() as kwargs):
                if request.args or request.kwargs:
                    raise UsageError("setup returns arguments, so the call can't be given others")
                return tuple(args), dict(kwargs)
        how = "it returns None, or (args, kwargs) for the call, as ((x,), {})"
        raise UsageError(f"setup returned a {type(made).__name__}: {how}")

    def next_call(self, call: Call) -> Bound:
        """Prepare a round, untimed, by the test's setup and the flush; return its call."""
        args, kwargs = self.arguments()
        if self.flush is not None:
            self.flush()
        return call.function, args, kwargs


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that is checked and warm: its ``case`` is final.

    ``again`` repeats the call with its arguments, unless each call needs a setup. ``work`` is declared and counted;
    ``uncounted`` is the reason why it couldn't be counted. ``given`` holds the inputs as they were before the first
    call, which took ``first_s`` (compiling included); ``expected`` is the reference that its result passed. ``call_s``
    and ``round_s``: seconds of a warm call, and of a round of one call with its setup; ``before``: the machine's
    counters before them.
    """

    plan: Plan
    call: Call
    again: Callable[[], Any] | None
    case: Case
    data_dtype: str | None
    work: Work
    counted: Counted | None
    uncounted: str
    check: Check
    expected: Reference | None
    given: calls.Given | None
    before: disturbance.Counters
    first_s: float
    call_s: float
    round_s: float
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a call: ``result`` is of a call after them; ``check`` is of the first result and a later
    one. ``placed`` and ``spread`` are the numbers of rounds of each block, at placements and over time; ``unplaced`` is
    the reason for a single placement. ``latency_s`` and ``cpu_s`` are seconds of one call."""

    flags: tuple[Flag, ...] = ()
    check: Check | None = None
    result: Any = None
    latency_s: float | None = None
    cpu_s: float = math.inf
    placed: tuple[int, ...] = ()
    spread: tuple[int, ...] = ()
    unplaced: str = ""


class Preparation:
    """The preparation of one call. ``case`` is named by the facts so far, and final after :meth:`run`."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.case, self._data_dtype = plan, plan.case, plan.data_dtype
        self._counted: Counted | None = None
        self._modelled: list[Counted] = []
        self._work, self._uncounted = plan.request.work, ""
        self._peak_bytes: int | None = None

    def run(self) -> Prepared:
        """Return the call, checked and warm. Raises :class:`UsageError`, :class:`WrongAnswer`,
        :class:`~gpubench.errors.WorkMismatch`, and :class:`Unmeasurable` if it would take too long."""
        plan = self.plan
        call, further = self._call()
        estimated_s = budget.estimate(self.case, self._work, plan.home, plan.preset, plan.session.rates, plan.is_busy())
        reference = self._reference(call)
        if isinstance(reference, Reference):
            poison(call.kwargs.get("out"), call.args, call.kwargs)
        given = calls.Given(plan.request.function, call.args, call.kwargs) if plan.request.setup is None else None
        result, first_s = self._first_call(call, given, estimated_s)
        check = self._checked(call, first_s, reference, result)
        expected = reference if isinstance(reference, Reference) and check.status == "passed" else None
        self._use(self._devices_of(result, further=further))
        del result, reference  # the warm-up can have their memory
        if plan.session.settings.brief and not plan.spreads:
            plan.session.measure_ceilings()  # not before: a first call that fails needs none
        before = disturbance.read_counters(plan.clock.devices)  # few short rounds may be too short to judge by
        call_s, round_s = self._warm_up(call, first_s)
        if self._counted is None:
            self._count(call, real=True)  # not the first call, which may prepare what the others need
        again = partial(call.function, *call.args, **call.kwargs) if plan.request.setup is None else None
        seen = self._data_dtype, self._work, self._counted, self._uncounted, check, expected, given, before
        return Prepared(plan, call, again, self.case, *seen, first_s, call_s, round_s, self._peak_bytes)

    def _call(self) -> tuple[Call, tuple[Device, ...]]:
        """Return the call in its variant, and further devices that it names; the clock waits for all devices."""
        plan, request, function = self.plan, self.plan.request, self.plan.request.function
        _require_finished(function)
        args, kwargs = plan.arguments()
        if is_lazy(function, args, kwargs):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(plan.session.settings.seed)
                function(*args, **kwargs)  # it makes the parameters
        self._name_dtype(dtypes_of((function, calls.attribute(function, "__self__"), args, kwargs)))
        further = tuple(map(require_device, request.devices))
        self._use([*further, *self._devices_of(function, args, kwargs, further=further)])
        timed = plan.library.prepared(apply(self.case.variant, function, plan.home), args, kwargs)
        if isinstance(plan.home, SimulatedDevice):
            watch = partial(observe, request, plan.home, computed_dtype(self.case, plan.home), self._modelled.append)
            timed = plan.home.stand_in(timed, watch)
        return Call(request, args, kwargs, timed), further

    def _name_dtype(self, found: set[str]) -> None:
        """Name the case by the dtype of its data. Raises UsageError where the test or the user has chosen another."""
        own, declared = "float32" if self.case.dtype == "tf32" else self.case.dtype, self.plan.declared.dtype
        narrow = {each for each in found if each.startswith(_NARROW)}  # their scales have more digits
        numbers = narrow or {coarsest(found, own)} - {""} or found - _INDICES or found
        is_own = own in (found if declared else numbers) or len(numbers) > 1
        if is_own or (declared and not numbers.intersection(DTYPES)):
            return
        name, brief = next(iter(numbers), ""), self.plan.session.settings.brief
        if declared:
            place = "" if brief else "gpubench."
            raise UsageError(f"the data is {name}, not {own}: make it with {place}randn() or dtype={place}dtype")
        if name or brief:
            self._data_dtype = name  # if nothing here computes in it, it is taken for the dtype of its rounding
            self.case = structs.replace(self.case, dtype=computing(name))

    def _devices_of(self, *values: Any, further: Iterable[Device]) -> list[Device]:
        """Return the devices of tensors, except single numbers. Raises UsageError for others than the case names."""
        home = self.plan.home
        used = {str(require_device(str(t.device))) for t in tensors(values) if t.dim() and not t.is_meta} - {
            home.torch_name
        }
        if others := sorted(used - {str(home), *map(str, further)}):
            how = f"move it, or say gpubench.declare(devices={others!r}) if that is what you measure"
            if self.plan.session.settings.brief:
                how = "make all tensors in the setup, or with device=device"
            raise UsageError(f"a tensor of this case is on {', '.join(others)}, not on {home}: {how}")
        return [require_device(name) for name in sorted(used)]

    def _use(self, devices: Iterable[Device]) -> None:
        clock = self.plan.clock
        clock.use((self.plan.home, *clock.devices, *devices))
        self.case = structs.replace(self.case, devices=tuple(sorted({str(device) for device in clock.devices})))

    def _reference(self, call: Call) -> Reference | Check:
        plan, precision = self.plan, computed_dtype(self.case, self.plan.home)
        if not plan.session.settings.first:
            return unchecked("checked by the run's first process")
        found = dtypes_of((call.request.function, call.args, dict(call.kwargs)))
        precision = coarsest({precision, coarsest(found) or precision}, precision)
        exact = not plan.home.accelerator and self.case.variant != "autocast"
        return prepare_reference(call, precision, plan.check_s, self._reference_s, plan.library, exact=exact)

    def _reference_s(self, work: Work, *_: Any) -> tuple[float | None, Device | None]:
        """Estimate the seconds of a call in float64, and return the accelerator that makes it, if a CPU takes long and
        the accelerator is faster and has three times the memory that the call has needed so far."""
        plan, home, rates = self.plan, self.plan.home, self.plan.session.rates
        seconds = rates.estimate(work, CPU, "float64")[0]
        if seconds is None or seconds <= _LONG_REFERENCE or not home.accelerator or isinstance(home, SimulatedDevice):
            return seconds, None
        if home.lacks("float64") or plan.case.implementation != TORCH or plan.request.check is not True:
            return seconds, None
        memory, peak, held = home.memory(), home.peak_memory(), plan.held_bytes
        roomy = memory and peak is not None and held is not None and 3 * (peak - held) <= memory.free
        if not roomy or rates.rate(home, "float64") <= rates.rate(CPU, "float64"):
            return seconds, None
        return rates.estimate(work, home, "float64")[0], home

    def _first_call(self, call: Call, given: calls.Given | None, estimated_s: float | None) -> tuple[Any, float]:
        plan, home, clock = self.plan, self.plan.home, self.plan.clock
        copied = self._copy(call) if given is None else None  # the call may change what its setup gave it
        home.reset_peak_memory()
        start = clock()
        with _refused_fallbacks() if home.accelerator else nullcontext():
            result = call.function(*call.args, **call.kwargs)
        first_s = clock() - start
        if given:
            given.changed()  # a cache may be filled once
        _require_finished(plan.request.function, result)
        if self.case.variant == "eager" and budget.FEWEST_ROUNDS * (estimated_s or 0.0) > plan.preset.budget:
            # It was tried since the estimate may be wrong; this call confirms the estimate.
            budget.require(first_s, "seen in its first call", plan.preset, slack=budget.SLACK, busy=plan.is_busy())
        if self.case.variant == "graph":  # its memory is allocated while it is captured, and replays allocate none
            self._peak_bytes = home.peak_memory()
        if self._modelled:
            self._take(self._modelled[0])
        elif budget.FEWEST_ROUNDS * first_s <= budget.SLACK * plan.preset.budget:
            self._count(call, copied)
        return result, first_s

    def _affordable(self, call: Call, first_s: float, expected: Reference) -> Reference | Check:
        """Return the reference unless it may take too long by the call's work or, if that is unknown, by its first
        call. A copy is timed if that took long, as it may have compiled, and a second call may change what it uses."""
        expected.flops, limit_s = self._work.flops, self.plan.check_s
        least, expected.home = self._reference_s(self._work)
        if least is not None:
            return expected if 2 * least <= limit_s else too_long(first_s)
        factor, seconds = 50 if self.plan.home.accelerator else 2, first_s  # a CPU is slower than most accelerators
        if factor * seconds > limit_s:
            clock = self.plan.clock
            with suppress(Exception), uncompiled(), restored_random_streams(clock.devices):
                copied = self.plan.copy(call)
                start = clock()
                copied()
                seconds = clock() - start
        return expected if factor * seconds <= limit_s else too_long(seconds)

    def _checked(self, call: Call, first_s: float, reference: Reference | Check, result: Any) -> Check:
        expected = reference if isinstance(reference, Check) else self._affordable(call, first_s, reference)
        if isinstance(expected, Check):
            return expected
        try:
            check = expected.check(result)
        except WrongAnswer as error:
            if self.plan.request.check is not True:
                raise
            brief, of_tests = self.plan.session.settings.brief, "gpubench.declare(check=…) takes a reference or False"
            how = "gpubench.time(…, check=False) in Python times it" if brief else of_tests
            raise WrongAnswer(f"{error}; if it is right, {how}") from None
        if check.status == "passed":
            self.plan.session.checked.add(self.plan.family)
        return check

    def _copy(self, call: Call) -> CallCopy | None:
        """Return a copy of a call to count its work by; None, with the reason, where there is none."""
        try:
            return self.plan.copy(call) if self.plan.counts and not self.plan.home.simulated else None
        except Uncopyable as error:
            self._uncounted = str(error)
            return None

    def _count(self, call: Call, copied: CallCopy | None = None, *, real: bool = False) -> None:
        """Count the work of a copy of the call or, if that fails, of a ``real`` one."""
        copied = copied or (self._copy(call) if call.request.setup is None else None)
        ways: list[Callable[..., Counted]] = [partial(count, copied)] if copied else []
        if real and self.plan.counts:
            ways.append(lambda devices: count_real(call.request.function, *self.plan.arguments(), devices))
        for way in ways:
            try:
                counted = way(self.plan.clock.devices)
            except Exception as error:  # the copied call fails: it isn't a copy
                text = " ".join(str(error).split())[:150]
                self._uncounted = text if isinstance(error, Unmeasurable) else f"{type(error).__name__}: {text}"
            else:
                self._take(counted)
                break

    def _take(self, counted: Counted) -> None:
        """Take the counted work. The program's switches may shorten products to TF32, in a case named float32; by
        default PyTorch shortens convolutions and recurrent layers only."""
        home = self.plan.home
        self._counted, self._work, self._uncounted = counted, agree(self.plan.request.work, counted), ""
        if not self.plan.declared.own_switches or self.case.dtype != "float32":
            return
        if home.accelerator and not home.lacks("tf32"):
            pass_on_broad_switch()
            switches = environment.switches()
            if switches["tf32_matmul"] or (switches["tf32_cudnn"] and not counted.products_alone):
                self._data_dtype = self._data_dtype or "float32"
                self.case = structs.replace(self.case, dtype="tf32")

    def _warm_up(self, call: Call, first_s: float) -> tuple[float, float]:
        """Call until warm; return the seconds of a call, and of a round of one call with its setup."""
        plan, call_s, round_s = self.plan, 0.0, 0.0
        plan.home.reset_peak_memory()  # forget what was only needed to prepare the calls
        if plan.times:
            prepare, seconds = partial(plan.next_call, call), plan.preset.warmup
            warm = partial(warm_up, prepare, plan.clock, seconds=seconds, first_s=first_s, single=not plan.repeats)
            rising = [plan.home] if plan.home.accelerator and plan.preset.warmup else []
            call_s, round_s = settle_clocks(warm, plan.clock, rising)
        # Not the peak of the rounds: some keep a call's result during the next one.
        self._peak_bytes = max(filter(None, (self._peak_bytes, plan.home.peak_memory())), default=None)
        setup_s = 0.0 if plan.request.setup is None else round_s - call_s
        budget.require(call_s, "seen in warm-up", plan.preset, setup_s=setup_s, busy=plan.is_busy())
        return call_s, round_s


def plan_rounds(prepared: Prepared) -> Share:
    """Return the rounds of a call, to be taken, perhaps in turn with others'."""
    plan, call, call_s = prepared.plan, prepared.call, prepared.call_s
    share = Share(partial(plan.next_call, call), plan.clock, 1, collects=plan.declared.collects)
    if not plan.times:
        return share
    if prepared.again and plan.repeats and call_s < LONG_CALL:
        share.latency_s = latency(prepared.again, plan.clock)
        call_s = min(call_s, share.latency_s)  # the last calls of a short warm-up may have been interrupted
    preset = dataclasses.replace(plan.preset, max_time=budget.SPREAD_S) if plan.spreads else plan.preset
    before_s = None if plan.repeats else prepared.round_s - prepared.call_s
    share.rounds, share.calls = budget.plan(call_s, preset, before_s)
    share.least, share.most_s = preset.min_rounds, budget.MOST_TIMES * preset.max_time
    if plan.spreads:
        share.halfway = plan.session.measure_ceilings
        share.seconds = budget.SPREAD_S if share.rounds >= ROUNDS_EACH * PLACEMENTS else None
    on_cpu = not (plan.home.accelerator or plan.home.simulated or len(plan.clock.devices) > 1)
    if plan.session.settings.flags_rounds and plan.session.settings.processes == 1 and on_cpu:
        try:
            share.places = [*_placements(prepared, share)]
        except Uncopyable as reason:
            share.unplaced = str(reason)
            share.release()
    # The device's clocks have risen by now; from here on they must not fall.
    share.clocks = disturbance.read_counters(plan.clock.devices).clocks
    return share


def _placements(prepared: Prepared, share: Share) -> Iterator[Bound]:
    """Yield the call and its copies at other addresses. Raises :class:`.Uncopyable`, with the reason against them."""
    plan, call, memory = prepared.plan, prepared.call, prepared.plan.home.memory()
    if prepared.case.variant not in ("eager", "autocast"):
        raise Uncopyable(f"it is run as {prepared.case.variant}")
    if not plan.repeats or plan.declared.writing:
        raise Uncopyable("its data are prepared for each round, or overwritten")
    if prepared.given and prepared.given.changed():
        raise Uncopyable("the call changes what it uses")
    if share.rounds < ROUNDS_EACH * PLACEMENTS:
        raise Uncopyable("it has few rounds")
    limit = 2 * ([*(cache_sizes() or {}).values()] or [_USUAL_CACHE])[-1]
    limit = min(limit, memory.free // 16) if memory else limit
    end_s = plan.clock.now() + _COPYING_SHARE * (plan.preset.max_time + plan.preset.warmup)
    yield call.function, call.args, call.kwargs
    for _ in range(1, PLACEMENTS):
        if plan.clock.now() > end_s:
            raise Uncopyable("copying it takes too long")
        share.add_spacer()
        copied = copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)
        function = apply(prepared.case.variant, copied.function, plan.home)
        yield plan.library.prepared(function, copied.args, copied.kwargs), copied.args, copied.kwargs


@contextmanager
def _refused_fallbacks() -> Iterator[None]:
    """A context that raises :class:`Unmeasurable` where torch warns that it computes an operator on the CPU instead."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise once in a process
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
    finally:
        torch.set_warn_always(always)
    for each in seen:
        if _FALLBACK.search(text := " ".join(str(each.message).split())):
            raise Unmeasurable(f"computed on the CPU: {text[:200]}")
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _require_finished(function: Callable[..., Any], result: Any = None) -> None:
    if why := calls.unfinished(function, result):
        if inspect.iscoroutine(result):
            result.close()  # otherwise Python warns that it was never awaited
        raise UsageError(f"the call returns {why}")


def require_device(name: str) -> Device:
    """Return the device of this name. Raises :class:`Unmeasurable`, with the reason, if it is absent."""
    choice = find_device(name)
    if choice.device is None:
        raise Unmeasurable(str(choice.reason))
    return choice.device
