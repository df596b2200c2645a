"""Time budgets and estimates of cases: sizes made for a GPU can take hours on a CPU. The constants were measured on two
cores with the preset ``quick`` unless they name presets."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..devices import Device, SimulatedDevice
from ..devices.lazy import torch
from ..errors import OverBudget
from ..runfile.quantities import seconds_text, text
from ..runfile.schema import Case, Work
from .clock import MIN_ROUND, DeviceClock
from .precision import computing
from .probes import ROUGH, product_rates, shortest

FEWEST_ROUNDS, SLACK, MOST_DOUBTS = 3, 2.0, 2
"""Rounds that must fit in a budget; the factor by which an estimated case may exceed it, since one that may only just
miss it is tried; and most repetitions of a rate measurement that would cause a benchmark to be skipped."""
SPREAD_S = 2.0
"""Seconds of the rounds of a single expression: the speed of a shared machine changes in phases of 0.3 to 5 s."""
MOST_ROUNDS, LEAST_CALL_S, MOST_TIMES = 1000, 1e-8, 4.0
"""Most rounds of a case, unless its preset has more at least; seconds that no call of Python falls below; and how many
times a preset's ``max_time`` the rounds may take, since later calls may be slower than the first ones."""
COMPILE_S, RANKS_S, RANKS_START_S, ENERGY_S = 15.0, 2.0, 4.0, 1.0
"""Estimated seconds to compile a small network, to measure a case of several processes, and to start these; seconds
over which energy is counted."""
CEILINGS_S = {"smoke": 1.0, "brief": 1.0, "glance": 7.0, "quick": 7.0, "full": 20.0}
"""Estimated seconds to measure a device's ceilings, by preset."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How carefully a run measures, in seconds per case: ``max_time`` and ``min_rounds`` of the rounds, ``warmup`` of
    the untimed calls before them (on an accelerator until its clocks stand); a case is skipped if its fewest rounds
    exceed ``budget``, and isn't checked if its reference exceeds ``check``. ``case_s``: estimate of a whole case with
    short calls. ``min_time``: least time of a round."""

    name: str
    max_time: float
    min_rounds: int
    warmup: float
    budget: float
    check: float
    case_s: float
    min_time: float = MIN_ROUND

    def split(self, processes: int) -> Preset:
        """Return the preset of one of several processes: its share of the time, and of the rounds at least two."""
        rounds = max(2, math.ceil(self.min_rounds / processes))
        return dataclasses.replace(self, max_time=self.max_time / processes, min_rounds=rounds)

    def adjusted(self, marker: Mapping[str, Any]) -> Preset:
        """Return the preset with the values that a test's ``benchmark`` marker overrides; rounds get no shorter."""
        kinds: dict[str, Any] = {"max_time": float, "min_rounds": int}
        given = {key: kind(marker[key]) for key, kind in kinds.items() if key in marker}
        min_time = max(self.min_time, float(marker.get("min_time", 0.0)))
        return dataclasses.replace(self, **given, min_time=min_time)


PRESET_SETTINGS = {
    "smoke": Preset("smoke", max_time=0.005, min_rounds=3, warmup=0.0, budget=2.0, check=1.0, case_s=0.15),
    "glance": Preset("glance", max_time=0.2, min_rounds=5, warmup=0.05, budget=3.0, check=0.5, case_s=0.7),
    "quick": Preset("quick", max_time=0.2, min_rounds=5, warmup=0.05, budget=3.0, check=0.5, case_s=0.7),
    "full": Preset("full", max_time=1.0, min_rounds=10, warmup=0.2, budget=30.0, check=10.0, case_s=3.5),
}
"""``glance`` times like ``quick``, but fewer benchmarks and in a single process."""


class Rates:
    """Rough peak rates of each device, measured in milliseconds: enough to see that a call would take minutes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}
        self._tries: Counter[tuple[str, str]] = Counter()
        self._waits: dict[Device, float] = {}

    def rate(self, device: Device, dtype: str = "") -> float:
        """FLOP/s of matrix products of a dtype or, without one, bytes read and written per second by a copy of 8 MB."""
        if isinstance(device, SimulatedDevice):
            peaks = device.declared_peaks(dtype or "float32")
            return (peaks.flop_per_s if dtype else peaks.byte_per_s) or math.inf
        if (key := (str(device), dtype)) not in self._known:
            self._known[key] = self._measured(device, dtype)
        return self._known[key]

    def wait_s(self, device: Device) -> float:
        """Seconds that one wait for the device takes."""
        if device.accelerator and device not in self._waits:
            self._waits[device] = DeviceClock([device]).wait_s()
        return self._waits.get(device, 0.0)

    def remeasure(self, device: Device, dtype: str) -> bool:
        """Measure the rates of a device again, on a CPU with one thread, and keep the higher ones, because other
        programs can make a probe 80 times slower. Return False if that was done :data:`MOST_DOUBTS` times already."""
        self._tries[str(device), dtype] += 1
        if device.simulated or self._tries[str(device), dtype] > MOST_DOUBTS:
            return False
        threads = torch.get_num_threads()
        try:
            if not device.accelerator:
                torch.set_num_threads(1)
            for each in (dtype, ""):
                self._known[str(device), each] = max(self.rate(device, each), self._measured(device, each))
        finally:
            torch.set_num_threads(threads)
        return True

    @staticmethod
    def _measured(device: Device, dtype: str) -> float:
        if dtype:
            return max(product_rates(device, computing(dtype), ROUGH).values(), default=math.inf)
        source = torch.ones(2_000_000, device=str(device))
        copy = partial(torch.empty_like(source).copy_, source)
        return 2 * source.nbytes / shortest(copy, DeviceClock([device]), ROUGH.seconds)

    def estimate(self, work: Work, device: Device, dtype: str) -> tuple[float | None, str]:
        """Return the least seconds of one call, and the rate that they follow from in words; ``None`` and an empty text
        if neither FLOPs nor bytes are known."""
        needs = []
        for amount, unit, of_dtype in ((work.bytes, "B", ""), (work.flops, "FLOP", dtype)):
            if amount:
                rate = self.rate(device, of_dtype)
                needs.append((amount / rate, f"{text(amount, unit)} at {text(rate, f'{unit}/s')}"))
        return max(needs, default=(None, ""))


def require(
    seconds: float | None, why: str, preset: Preset, *, slack: float = 1.0, setup_s: float = 0.0, busy: bool = False
) -> None:
    """Raise :class:`OverBudget` if the fewest useful rounds, of one call of ``seconds`` each and a test's own setup of
    ``setup_s``, exceed ``slack`` times the budget. On a ``busy`` machine the call may be fast enough: it isn't
    blamed."""
    if seconds is None or FEWEST_ROUNDS * (round_s := seconds + setup_s) <= slack * preset.budget:
        return
    setup = f", its setup {seconds_text(setup_s)}" if setup_s > seconds else ""
    needed = f"{seconds_text(seconds)}{setup}"
    allowed = f"{FEWEST_ROUNDS} must fit in {seconds_text(preset.budget)}"
    full = FEWEST_ROUNDS * round_s <= PRESET_SETTINGS["full"].budget and preset.name != "full"
    longer = " or use the preset full" * full  # pytest, the commands and Python spell the option each in its way
    if busy:
        remedy = f"close other programs{longer}, then run again"
        raise OverBudget(f"too slow on a busy machine: a call takes {needed} ({why}); {allowed}: {remedy}")
    remedy = f"make the {'setup' if setup else 'call'} smaller{longer}"
    raise OverBudget(f"too slow for the preset {preset.name}: one call takes {needed} ({why}); {allowed}: {remedy}")


def plan(call_s: float, preset: Preset, before_s: float | None = None) -> tuple[int, int]:
    """Return the number of rounds, and of calls in each, for calls of ``call_s``: rounds fill the preset's time, each
    with as many calls as its least time takes, or one if ``before_s``, untimed seconds before each, isn't None. Long
    calls have the preset's fewest rounds, or as many as its budget allows."""
    round_s = max(call_s, LEAST_CALL_S) + (before_s or 0.0)
    if round_s * preset.min_rounds > preset.max_time:
        return max(1, min(preset.min_rounds, int(preset.budget / round_s))), 1
    calls = 1
    if before_s is None:
        least_s = max(preset.min_time, preset.max_time / MOST_ROUNDS)
        calls = math.ceil(least_s / round_s - 1e-3)  # a thousandth of a call is noise
    rounds = round(preset.max_time / (calls * round_s))
    return max(preset.min_rounds, min(MOST_ROUNDS, rounds)), calls


def estimate(case: Case, work: Work, home: Device, preset: Preset, rates: Rates, busy: bool = False) -> float | None:
    """Return the estimated seconds of one call, ``None`` where its work is unknown. Raises :class:`OverBudget`."""
    call_s, basis = rates.estimate(work, home, case.dtype)
    while call_s and FEWEST_ROUNDS * call_s > SLACK * preset.budget and rates.remeasure(home, case.dtype):
        call_s, basis = rates.estimate(work, home, case.dtype)
    require(call_s, f"estimated: {basis}", preset, slack=SLACK, busy=busy)
    return call_s
