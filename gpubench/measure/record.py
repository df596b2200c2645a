"""The end of a measured call: its rounds, the check of a later result, facts that need probes, once in a run, and the
:class:`~gpubench.runfile.schema.Measurement` that is written."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

from msgspec import structs

from ..devices import Device, SimulatedDevice, find_device
from ..devices.implementations import TORCH
from ..errors import UsageError, WrongAnswer
from ..runfile.flags import Flag
from ..runfile.schema import KEY, SAMPLES_KEPT, Case, Check, Measurement, Process, Work
from . import budget, calls, ceilings, disturbance, environment, probes
from .clock import repeat
from .plan import Declared, Plan, Prepared, Rounds
from .precision import apply, autocast_dtype, computed_dtype
from .rounds import Share, levelled, medians, place_of
from .session import Session

MOST_REMEASURED = 3
"""Most repetitions of the ceilings' measurement in a run."""
MMAP_THRESHOLD, PAGE, FAULT_S = 1 << 17, 4096, 1e-6
"""Bytes of a block above which a plain glibc returns it to the kernel, of a page, and most seconds of a page fault."""
PLAIN_WARM_S, PLAIN_CALLS_S, PLAIN_SHARE, PLAIN_GLANCE_S = 0.2, 0.1, 0.1, 0.02
"""Seconds of the first calls in a plain process, which aren't timed: its new threads may share a core at first, and
calls then take a hundred times as long. Seconds of the timed calls, the least share of a call that page faults could
take there, and the longest call of a glance: longer ones are networks, which the process would build anew."""
_UNKNOWN = Work()


def end_rounds(prepared: Prepared, share: Share, result: Any) -> Rounds:
    """Return the rounds that were taken, with ``result`` of a call after them, which is checked too."""
    plan, given = prepared.plan, prepared.given
    for device in plan.clock.devices:
        device.synchronize()
    after = disturbance.read_counters(plan.clock.devices)  # before the check, during which an accelerator's clocks fall
    changed = given.changed() if given else []
    check = _check_last(prepared, result)
    before = dataclasses.replace(prepared.before, clocks=share.clocks)
    flags = () if plan.home.simulated else tuple(disturbance.disturbed(before, after))
    flags = (*share.note(flags), *calls.altered([] if plan.declared.writing else changed))
    blocks = tuple(share.blocks)
    placed, spread = blocks if share.places else (), blocks if share.seconds else ()
    return Rounds(flags, check, result, share.latency_s, share.cpu_s, placed, spread, share.unplaced)


def _check_last(prepared: Prepared, result: Any) -> Check:
    """Check a later result too, for a race or a stale cache. Another one may be right if the call draws random numbers,
    or if its copy gives other results when it is repeated."""
    plan, expected = prepared.plan, prepared.expected
    if expected is None or prepared.call.again is None or not plan.times:
        return prepared.check
    reason = "the call draws random numbers" if expected.seen.random else ""
    try:
        if not reason:
            expected.check_last(result)
    except WrongAnswer:
        reason = expected.why_another(partial(plan.copy, prepared.call))
        if not reason:
            raise
    return structs.replace(prepared.check, reason=f"the first result alone: {reason}") if reason else prepared.check


def fields_of(prepared: Prepared, rounds: Rounds) -> dict[str, Any]:
    """Return the fields of a call's measurement that aren't of its rounds; probes are made now, once in a run."""
    plan, counted = prepared.plan, prepared.counted
    fields: dict[str, Any] = {} if prepared.data_dtype is None else {"dtype": prepared.data_dtype}
    if counted and counted.flops:
        fields["convolution_share"] = counted.convolution_flops / counted.flops
    fields |= {"first_call_s": prepared.first_s, "steps": plan.request.steps, "uncounted": prepared.uncounted or None}
    fields |= {"memory_bytes": _memory(prepared), "precision": precision_of(plan.home, prepared.case, plan.declared)}
    return fields | _probe(prepared, rounds) if plan.times and plan.session.settings.first else fields


def precision_of(home: Device, case: Case, declared: Declared) -> dict[str, Any]:
    """Return the precision in force."""
    autocast = {"autocast": autocast_dtype(home)} if case.variant == "autocast" else {}
    own = {"own_switches": True} if declared.own_switches and case.dtype == "tf32" else {}
    return environment.switches() | {"tf32": case.dtype == "tf32"} | autocast | own


def _probe(prepared: Prepared, rounds: Rounds) -> dict[str, Any]:
    plan, again = prepared.plan, prepared.call.again
    record: dict[str, Any] = {"plain_s": _plain_seconds(prepared)}
    if len(plan.clock.devices) == 1:  # with several devices copying is the work itself
        named = {name: value for name, value in prepared.call.kwargs.items() if name != "out"}
        function, inputs = plan.request.function, (prepared.call.args, named)
        if inputs_of := calls.attribute(calls.attribute(function, "__self__"), "inputs_of"):  # of a step, its batch
            inputs = inputs_of(function.__name__)
        record["transfer"] = None if inputs is None else probes.transfer(inputs, rounds.result, plan.home)
    single = sum(used.accelerator for used in plan.clock.devices) < 2
    if plan.home.accelerator:  # afterwards: calls of a compiled function write over its last result
        record |= _device_time(prepared, single)
    # Energy is counted over many calls in a row, whose cache is hot: a second for each call.
    if plan.session.settings.preset == "full" and again and single and plan.flush is None:
        record["energy_j"] = probes.energy(again, plan.home, plan.clock, prepared.call_s, budget.ENERGY_S)
    return record


def time_plainly(plan: Plan) -> Any:
    """Time a few calls, and nothing else: no probe has raised the thresholds of glibc before. Return a result."""
    args, kwargs = plan.request.arguments()
    function = plan.library.prepared(apply(plan.case.variant, plan.request.function, plan.home), args, kwargs)
    time_for = partial(repeat, lambda: function(*args, **kwargs), perf_counter, most=100_000)
    time_for(least=1, seconds=PLAIN_WARM_S)
    plan.session.plain_s = statistics.median(time_for(least=5, seconds=PLAIN_CALLS_S))
    return function(*args, **kwargs)


def _plain_seconds(prepared: Prepared) -> float | None:
    """Return the seconds of a call in a process that returns freed memory, if its page faults can matter."""
    plan, counted, process = prepared.plan, prepared.counted, prepared.plan.session.plain_process
    if process is None or counted is None or not plan.repeats or plan.home.accelerator:
        return None
    if plan.preset.name == "glance" and prepared.call_s > PLAIN_GLANCE_S:
        return None
    made, faults_s = counted.memory_bytes - counted.input_bytes, counted.moved_bytes / PAGE * FAULT_S
    if made < MMAP_THRESHOLD or faults_s < PLAIN_SHARE * prepared.call_s or prepared.case.variant != "eager":
        return None
    return process.seconds(plan.name, plan.session.use_threads())  # type: ignore[no-any-return]


def _device_time(prepared: Prepared, single: bool) -> dict[str, Any]:
    plan, again = prepared.plan, prepared.call.again
    if isinstance(plan.home, SimulatedDevice):
        return dict(zip(("device_s", "launch_s"), plan.home.modelled_s(prepared.call.function), strict=True))
    if again is None:
        return {"device_reason": "the case sets up before every call"}
    if prepared.case.implementation != TORCH:
        return {"device_reason": f"{plan.library.label} queues its work on a stream of its own"}
    if not single:
        return {"device_reason": "the call uses several devices"}
    launches = prepared.counted.operations if prepared.counted else 1
    return probes.device_time(again, plan.home, prepared.call_s, plan.flush, launches)._asdict()


def _memory(prepared: Prepared) -> int | None:
    """Return the most bytes that the case held at once, inputs included: from its device's allocator or, on a CPU,
    which has no allocator that counts, from the call's tensors."""
    plan, counted = prepared.plan, prepared.counted
    if not plan.home.accelerator:
        return counted.memory_bytes if counted else None
    if prepared.peak_bytes is None or plan.held_bytes is None or prepared.case.implementation != TORCH:
        return None  # another library has its own allocator
    used, workspace = prepared.peak_bytes - plan.held_bytes, plan.home.workspace_bytes()
    has_products = counted and (counted.flops or 0.0) > counted.convolution_flops
    if counted and has_products:  # whose workspace is released after each, and no memory of the call's tensors
        used = max(min(used, counted.memory_bytes), used - workspace)
    return max(0, used)


def record(
    session: Session, benchmark: Any, case: Case, devices: Sequence[Device], rounds: Rounds, work: Work = _UNKNOWN,
    *, launches: bool = False, **fields: Any,
) -> None:  # fmt: skip
    """Judge the rounds that pytest-benchmark keeps, and write the case's measurement beside them. ``devices`` were
    waited for; ``launches``: whether a call is known to launch anything; ``fields`` were measured besides the
    rounds."""
    raised, stats, settings = [*rounds.flags], benchmark.stats, session.settings
    wait_s, latency_s = sum(session.rates.wait_s(device) for device in devices), rounds.latency_s
    if stats is not None:
        times, calls = stats.stats, stats.iterations
        if not times.min <= times.median <= times.max:
            raise UsageError("its median is none of its times: a test has replaced what computes it")
        if latency_s is None and calls == 1:
            latency_s = times.median
        if settings.flags_rounds:
            blocks = rounds.placed or rounds.spread
            level = levelled(times.data, blocks, int if rounds.spread else place_of) if blocks else times.data
            raised += disturbance.noise_flags(level, without_torch=session.decide_torch())
            raised += disturbance.too_short_flags(times.median * calls, times.median, wait_s)
        if launches or work.flops or work.bytes:
            share = fields.get("convolution_share") or 0.0
            raised += implausible_flags(session, case, work, times.median, launches, share)
        on_core = 0 < rounds.cpu_s < math.inf and not any(device.accelerator for device in devices)
        process = Process(
            settings.process, times.rounds, times.median, min(times.rounds, SAMPLES_KEPT), calls, times.iqr, latency_s,
            tuple(raised), rounds.cpu_s if on_core else None, tuple(medians(times.data, rounds.placed)),
            rounds.unplaced or None, tuple(medians(times.data, rounds.spread, int)),
        )  # fmt: skip
        fields["processes"] = (process,)
    session.raised.extend((case, flag) for flag in raised)
    fields |= {"work": work, "latency_s": latency_s, "check": rounds.check}
    benchmark.extra_info[KEY] = Measurement(**structs.asdict(case) | fields).as_dict()


def implausible_flags(
    session: Session, case: Case, work: Work, seconds: float, launches: bool = False, convolutions: float = 0.0
) -> list[Flag]:
    """Return ``implausible`` if the case exceeds its device's ceilings, even after they were measured once more.
    ``launches``: whether a call launches anything; ``convolutions``: their share of the FLOPs. A CPU isn't judged
    where the thread canary was slow, because its ceilings are then too low themselves."""
    chosen = find_device(case.device).device
    used = [each.accelerator for name in case.devices if (each := find_device(name).device)]
    if not (session.settings.flags_rounds and session.times) or sum(used) > 1:
        return []  # ceilings are those of one device
    if not any(used) and any(disturbance.slow_threads(session.check_machine().canary)):
        return []
    dtype = computed_dtype(case, chosen) if chosen else case.dtype
    terms = launches and case.implementation == TORCH, convolutions, len({*used}) > 1
    session.measure_ceilings()
    if (known := session.ceilings.get(case.device)) is None:
        return []
    flags = list(disturbance.impossible(work, seconds, dtype, known, *terms))
    if flags and chosen and session.remeasured < MOST_REMEASURED:
        session.remeasured += 1
        # Products of this dtype alone: others take half a dozen seconds each where a CPU emulates them.
        again = ceilings.measure_ceilings({chosen: known.throughput.keys() & {dtype}}, session.settings.effort)
        session.ceilings[case.device] = known = known.raised(again.get(case.device, known))
        flags = list(disturbance.impossible(work, seconds, dtype, known, *terms))
    return flags
