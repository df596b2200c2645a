"""The record of a benchmark: its rounds are judged, and written as a :class:`~gpubench.runfile.schema.Measurement`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from ..devices import Device, find_device
from ..devices.implementations import TORCH
from ..errors import UsageError
from ..runfile.flags import Flag
from ..runfile.schema import KEY, SAMPLES_KEPT, Case, Measurement, Process, Work
from . import ceilings, disturbance
from .precision import computed_dtype
from .rounds import levelled, medians, place_of
from .session import Session

MOST_REMEASURED = 3
"""Most repetitions of the ceilings' measurement in a run."""
_UNKNOWN = Work()


def record(  # noqa: PLR0913 - the facts of a result
    session: Session, benchmark: Any, case: Case, devices: Sequence[Device], flags: Iterable[Flag],
    work: Work = _UNKNOWN, *, launches: bool = False, cpu_s: float = math.inf, placed: Sequence[int] = (),
    spread: Sequence[int] = (), unplaced: str = "", **fields: Any,
) -> None:  # fmt: skip
    """Judge the rounds that pytest-benchmark keeps, and write the case's measurement beside them. ``devices`` were
    waited for; ``flags`` are what was noticed during the rounds, and ``fields`` what was measured besides them.
    ``launches``: whether a call is known to launch anything; the others are those of :class:`~.plan.Rounds`."""
    raised, stats = list(flags), benchmark.stats
    wait_s = sum(session.rates.wait_s(device) for device in devices)
    if stats is not None:
        times, calls = stats.stats, stats.iterations
        if not times.min <= times.median <= times.max:
            raise UsageError("its median is none of its times: a test has replaced what computes it")
        if fields.get("latency_s") is None and calls == 1:
            fields["latency_s"] = times.median
        if session.settings.judges:
            blocks = placed or spread
            level = levelled(times.data, blocks, int if spread else place_of) if blocks else times.data
            raised += disturbance.noise_flags(level, light=session.light)
            raised += disturbance.too_short_flags(times.median * calls, times.median, wait_s)
        if launches or work.flops or work.bytes:
            share = fields.get("convolution_share") or 0.0
            raised += implausible_flags(session, case, work, times.median, launches, share)
        on_core = 0 < cpu_s < math.inf and not any(device.accelerator for device in devices)
        process = Process(
            session.settings.process, times.rounds, times.median, min(times.rounds, SAMPLES_KEPT), calls, times.iqr,
            fields.get("latency_s"), tuple(raised), cpu_s if on_core else None, tuple(medians(times.data, placed)),
            unplaced or None, tuple(medians(times.data, spread, int)),
        )  # fmt: skip
        fields["processes"] = (process,)
    session.raised.extend((case, flag) for flag in raised)
    measured = Measurement(**structs.asdict(case) | {"work": work, "wait_s": wait_s} | fields)
    benchmark.extra_info[KEY] = measured.as_dict()


def implausible_flags(
    session: Session, case: Case, work: Work, seconds: float, launches: bool = False, convolutions: float = 0.0
) -> list[Flag]:
    """Return ``implausible`` if the case exceeds its device's ceilings, even after they were measured once more.
    ``launches``: whether a call launches anything; ``convolutions``: their share of the FLOPs. A CPU isn't judged
    where the thread canary was slow, because its ceilings are then too low themselves."""
    chosen = find_device(case.device).device
    used = [each.accelerator for name in case.devices if (each := find_device(name).device)]
    if not (session.settings.judges and session.times) or sum(used) > 1:
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
