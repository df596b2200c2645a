"""The preparation of a planned call: its devices and dtype, its first call and check, its work, and the warm-up."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from msgspec import structs

from ..devices import CPU, Device, find_device
from ..devices.lazy import torch
from ..errors import Unmeasurable, UsageError, WrongAnswer
from ..runfile.options import DTYPES
from ..runfile.schema import Check
from . import budget, calls, disturbance, environment
from .blocks import Uncopyable
from .clock import until_clocks_stand, warm_up
from .copies import CallCopy, copy_call, restored_random_streams
from .data import dtypes_of, is_lazy, poison, tensors, uncompiled
from .placements import Bound
from .plan import Plan, Prepared
from .precision import apply, computed_dtype, computing, pass_on_broad_switch
from .verify import FIRST, Reference, coarsest, prepare_reference, too_long, unchecked
from .work import Call, Counted, agree, count, count_real, observe

_FALLBACK = re.compile("fall(ing)? ?back (to run on|from XPU to|to) (the )?CPU", re.IGNORECASE)
"""How torch says that it computes an operator of an accelerator on the CPU."""
_INDICES = {"int64", "int32", "bool"}
"""Dtypes of places and masks beside the data."""
_NARROW = "float8", "float4"
"""How the names of dtypes begin whose numbers have scales beside them."""


def next_call(plan: Plan, call: Call) -> Callable[[], Bound]:
    """Return the function that prepares a round, untimed: the test's setup, and the flush of a cold cache."""
    request, flush = plan.request, plan.flush

    def prepared() -> Bound:
        args, kwargs = call.args, call.kwargs
        if request.setup is not None:
            args, kwargs = request.arguments()
        if flush is not None:
            flush()
        return call.function, args, kwargs

    return prepared


class Preparation:
    """The preparation of one call. ``case`` is named by what is known so far, and final after :meth:`run`."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.case, self._data_dtype = plan, plan.case, plan.data_dtype
        self._counted: Counted | None = None
        self._modelled: list[Counted] = []
        self._work, self._uncounted = plan.request.work, ""
        self._peak_bytes: int | None = None

    def run(self) -> Prepared:
        """Return the call, checked and warm. Raises :class:`UsageError`, :class:`WrongAnswer`,
        :class:`~gpubench.errors.WorkMismatch`, and :class:`Unmeasurable` if it would take too long."""
        plan, clock = self.plan, self.plan.clock
        args, kwargs, further = self._arguments()
        terms = plan.preset, plan.session.rates, plan.is_busy()
        estimated_s = budget.estimate(self.case, self._work, plan.home, *terms)
        call = self._call(args, kwargs)
        reference = self._reference(call)
        if isinstance(reference, Reference):
            poison(call.kwargs.get("out"), call.args, call.kwargs)
        given = calls.Given(plan.request.function, call.args, call.kwargs) if plan.request.setup is None else None
        result, first_s = self._first_call(call, given, estimated_s)
        if isinstance(reference, Reference):
            reference = self._affordable(call, first_s, reference)
        check = self._checked(reference, result)
        expected = reference if isinstance(reference, Reference) and check.status == "passed" else None
        self._use(self._devices_of(result, further=further))
        del result, reference  # the warm-up can have their memory
        if plan.session.settings.brief and not plan.spreads:
            plan.session.measure_ceilings()  # not before: a first call that fails needs none
        before = disturbance.look(clock.devices)  # few short rounds may be too short to judge the machine by
        call_s, round_s = self._warm_up(call, first_s)
        if plan.counts and self._counted is None:
            self._take_count(self._count(call) or self._count_real())
        found = self._work, self._counted, self._uncounted, check, expected, given, before
        return Prepared(plan, call, self.case, self._data_dtype, *found, first_s, call_s, round_s, self._peak_bytes)

    # The call, its devices and its dtype --------------------------------------------------------------------------

    def _arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any], tuple[Device, ...]]:
        """Return the arguments of the call, and further devices that it names; the clock waits for all devices that are
        named or hold its tensors."""
        plan, request = self.plan, self.plan.request
        _require_finished(request.function)
        args, kwargs = request.arguments()
        if is_lazy(request.function, args, kwargs):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(plan.session.settings.seed)
                request.function(*args, **kwargs)  # it makes the parameters
        self._name_dtype(dtypes_of((request.function, getattr(request.function, "__self__", None), args, kwargs)))
        further = tuple(map(_present, request.devices))
        self._use([*further, *self._devices_of(request.function, args, kwargs, further=further)])
        return args, kwargs, further

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Return the call in its variant. A simulated device counts its work when it is first made."""
        plan, request = self.plan, self.plan.request
        function = plan.library.prepared(apply(self.case.variant, request.function, plan.home), args, kwargs)
        watch = partial(observe, request, plan.home, computed_dtype(self.case, plan.home), self._modelled.append)
        return Call(request, args, kwargs, request.work, plan.home.stand_in(function, watch))

    def _name_dtype(self, found: set[str]) -> None:
        """Name the case by the dtype of its data. Raises UsageError where the test or the user has chosen another."""
        own, declared = "float32" if self.case.dtype == "tf32" else self.case.dtype, self.plan.declared.dtype
        narrow = {each for each in found if each.startswith(_NARROW)}  # their scales have more digits
        numbers = narrow or {coarsest(found, own)} - {""} or found - _INDICES or found
        if own in (found if declared else numbers) or len(numbers) > 1:
            return
        if declared and not numbers.intersection(DTYPES):
            return
        name, brief = next(iter(numbers), ""), self.plan.session.settings.brief
        if declared:
            place = "" if brief else "gpubench."
            raise UsageError(f"the data is {name}, not {own}: make it with {place}randn() or dtype={place}dtype")
        if name or brief:
            self._data_dtype = name  # if nothing here computes in it, it is taken for the dtype of its rounding
            self.case = structs.replace(self.case, dtype=computing(name))

    def _devices_of(self, *values: Any, further: Iterable[Device]) -> list[Device]:
        """Return the devices of the tensors in these values. Raises UsageError for others than the case uses or names:
        by mistake, or a transfer timed by accident. Single numbers may be on the CPU, as torch allows."""
        home = self.plan.home
        allowed = {str(home), *map(str, further)}
        used = {str(_present(str(t.device))) for t in tensors(values) if t.dim() and not t.is_meta}
        used.discard(home.torch_name)
        if others := sorted(used - allowed):
            how = f"move it, or say gpubench.declare(devices={others!r}) if that is what you measure"
            if self.plan.session.settings.brief:
                how = "make all tensors in the setup, or with device=device"
            raise UsageError(f"a tensor of this case is on {', '.join(others)}, not on {home}: {how}")
        return [_present(name) for name in sorted(used)]

    def _use(self, devices: Iterable[Device]) -> None:
        clock = self.plan.clock
        clock.use((self.plan.home, *clock.devices, *devices))
        self.case = structs.replace(self.case, devices=tuple(sorted({str(device) for device in clock.devices})))

    # The first call and its check ---------------------------------------------------------------------------------

    def _reference(self, call: Call) -> Reference | Check:
        plan = self.plan
        if not plan.session.settings.first:
            return unchecked("checked by the run's first process")
        precision, estimate = computed_dtype(self.case, plan.home), plan.session.rates.estimate
        found = dtypes_of((call.request.function, call.args, dict(call.kwargs)))
        precision = coarsest({precision, coarsest(found) or precision}, precision)
        exact = not plan.home.accelerator and self.case.variant != "autocast"
        return prepare_reference(call, precision, self._reference_limit_s, estimate, plan.library, exact=exact)

    @property
    def _reference_limit_s(self) -> float:
        return self.plan.preset.check * (1 if self.plan.family in self.plan.session.checked else FIRST)

    def _first_call(self, call: Call, given: calls.Given | None, estimated_s: float | None) -> tuple[Any, float]:
        """Make the first call, and return its result and its seconds; count the work of a copy."""
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
            how, busy = "seen in its first call", plan.is_busy()
            budget.require(first_s, how, plan.preset, slack=budget.SLACK, busy=busy)
        if self.case.variant == "graph":  # its memory is allocated while it is captured, and replays allocate none
            self._peak_bytes = home.peak_memory()
        if self._modelled:
            self._take_count(self._modelled[0])
        elif budget.FEWEST_ROUNDS * first_s <= budget.SLACK * plan.preset.budget:
            self._take_count(self._count(call, copied))
        return result, first_s

    def _affordable(self, call: Call, first_s: float, expected: Reference) -> Reference | Check:
        """Return the reference unless it may take too long by the call's work, or where that is unknown by its first
        call. One that took long may have compiled or loaded kernels, so that a copy is timed: a second call would
        change what the test's own reference looks at."""
        expected.flops, limit_s = self._work.flops, self._reference_limit_s
        least, _ = self.plan.session.rates.estimate(self._work, CPU, "float64")
        if least is not None:
            return expected if 2 * least <= limit_s else too_long(first_s)
        factor, seconds = 50 if self.plan.home.accelerator else 2, first_s  # a CPU is slower than most accelerators
        if factor * seconds > limit_s:
            clock, limit = self.plan.clock, self.plan.copied_bytes()
            with suppress(Exception), uncompiled(), restored_random_streams(clock.devices):
                copied = copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)
                start = clock()
                copied()
                seconds = clock() - start
        return expected if factor * seconds <= limit_s else too_long(seconds)

    def _checked(self, expected: Reference | Check, result: Any) -> Check:
        """Return the check of the first result. Raises :class:`WrongAnswer` with the remedy."""
        if isinstance(expected, Check):
            return expected
        try:
            check = expected.check(result)
        except WrongAnswer as error:
            if self.plan.request.check is not True:
                raise
            how = "gpubench.declare(check=…) takes a reference or False"
            if self.plan.session.settings.brief:
                how = "gpubench.time(…, check=False) in Python times it"
            raise WrongAnswer(f"{error}; if it is right, {how}") from None
        if check.status == "passed":
            self.plan.session.checked.add(self.plan.family)
        return check

    # Its work -----------------------------------------------------------------------------------------------------

    def _copy(self, call: Call) -> CallCopy | None:
        """Return a copy of a call to count its work by; None, with the reason, where there is none."""
        if not self.plan.counts or self.plan.home.simulated:
            return None
        try:
            limit = self.plan.copied_bytes()
            return copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)
        except Uncopyable as error:
            self._uncounted = str(error)
            return None

    def _count(self, call: Call, copied: CallCopy | None = None) -> Counted | None:
        """Return the work of a copy of the call; None, with the reason, where it can't be made."""
        copied = copied or (self._copy(call) if call.request.setup is None else None)
        try:
            return count(copied, self.plan.clock.devices) if copied else None
        except Exception as error:  # the copied call fails: it isn't a copy
            self._uncounted = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            return None

    def _count_real(self) -> Counted | None:
        try:  # not in the first call, which may prepare what the others need
            return count_real(self.plan.request, self.plan.clock.devices)
        except Unmeasurable as error:
            self._uncounted = str(error)
            return None

    def _take_count(self, counted: Counted | None) -> None:
        if counted is None:
            return
        self._counted, self._work, self._uncounted = counted, agree(self.plan.request.work, counted), ""
        if self.plan.declared.own_switches:
            self._follow_switches(counted)

    def _follow_switches(self, counted: Counted) -> None:
        """Compute as in TF32, but name the case float32, where the program's switches shorten the call's products on
        its device. PyTorch's own default shortens convolutions and recurrent layers only."""
        home = self.plan.home
        if self.case.dtype != "float32" or not home.accelerator or home.lacks("tf32"):
            return
        pass_on_broad_switch()
        switches = environment.switches()
        if switches["tf32_matmul"] or (switches["tf32_cudnn"] and not counted.products_alone):
            self._data_dtype = self._data_dtype or "float32"
            self.case = structs.replace(self.case, dtype="tf32")

    # The warm-up --------------------------------------------------------------------------------------------------

    def _warm_up(self, call: Call, first_s: float) -> tuple[float, float]:
        """Call until warm; return the seconds of a call, and of a round of one call with its setup."""
        plan = self.plan
        plan.home.reset_peak_memory()  # forget what was only needed to prepare the calls
        call_s, round_s = self._warm_seconds(call, first_s) if plan.times else (0.0, 0.0)
        # Not the peak of the rounds: some keep a call's result during the next one.
        self._peak_bytes = max(filter(None, (self._peak_bytes, plan.home.peak_memory())), default=None)
        setup_s = 0.0 if plan.request.setup is None else round_s - call_s
        budget.require(call_s, "seen in warm-up", plan.preset, setup_s=setup_s, busy=plan.is_busy())
        return call_s, round_s

    def _warm_seconds(self, call: Call, first_s: float) -> tuple[float, float]:
        plan = self.plan
        warm = partial(warm_up, clock=plan.clock, seconds=plan.preset.warmup, first_s=first_s)
        rising = [plan.home] if plan.home.accelerator and plan.preset.warmup else []
        if call.again and plan.flush is None:
            return until_clocks_stand(partial(warm, call.again), plan.clock, rising)
        following = next_call(plan, call)
        function, args, kwargs = call.function, call.args, call.kwargs

        def before() -> None:
            nonlocal function, args, kwargs
            function, args, kwargs = following()

        return until_clocks_stand(partial(warm, lambda: function(*args, **kwargs), before=before), plan.clock, rising)


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


def _present(name: str) -> Device:
    choice = find_device(name)
    if choice.device is None:
        raise Unmeasurable(str(choice.reason))
    return choice.device
