"""How long a case may take, and whether it will: sizes made for a GPU can take hours on a CPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..devices import CPU, Device
from ..errors import OverBudget, TooLarge
from ..format import seconds_text, text
from ..runfile.schema import Case, Work
from .clock import DeviceClock, repeat
from .data import require_memory
from .precision import matmul_precision, torch_dtype


@dataclass(frozen=True, slots=True)
class Preset:
    """How much care a run takes. Times in seconds, per case.

    ``max_time``: rounds are timed until this is spent. ``min_rounds``: but at least so many.
    ``warmup``: untimed calls first, for so long (twice that on an accelerator, whose clocks rise slowly).
    ``budget``: a case whose fewest rounds would take longer is skipped. ``check``: likewise its reference.
    ``case_s``: what a case has been seen to take in all, to say beforehand how long a run may last.
    """

    name: str
    max_time: float
    min_rounds: int
    warmup: float
    budget: float
    check: float
    case_s: float

    def split(self, processes: int) -> Preset:
        """The share of one of several processes."""
        rounds = math.ceil(self.min_rounds / processes)
        return dataclasses.replace(self, max_time=self.max_time / processes, min_rounds=max(2, rounds))

    def adjusted(self, marker: Mapping[str, Any]) -> Preset:
        """With what a test's ``benchmark`` marker sets."""
        own = {name: marker[name] for name in ("max_time", "min_rounds") if name in marker}
        return dataclasses.replace(self, **own)


PRESETS = {
    "smoke": Preset("smoke", max_time=0.005, min_rounds=3, warmup=0.0, budget=2.0, check=1.0, case_s=0.15),
    "quick": Preset("quick", max_time=0.2, min_rounds=5, warmup=0.05, budget=3.0, check=0.5, case_s=0.7),
    "full": Preset("full", max_time=1.0, min_rounds=10, warmup=0.2, budget=30.0, check=10.0, case_s=3.5),
}

MIN_ROUND = 1e-3
"""A round lasts at least so many seconds, and so many waits:"""
MIN_WAITS = 100
FEWEST_ROUNDS = 3
SLACK = 2.0


class Rates:
    """What a device does at best, roughly: a guard against calls that would take minutes, measured in milliseconds.

    Not a ceiling to compare results with: two small products and a copy say too little for that.
    """

    def __init__(self) -> None:
        self._flops: dict[tuple[str, str], float] = {}
        self._bytes: dict[str, float] = {}

    def flops(self, device: Device, dtype: str) -> float:
        """FLOP/s of matrix products of this dtype: what the step from n = 256 to n = 512 costs.

        The difference leaves out the fixed cost of a call, which on a CPU with a busy neighbour is milliseconds.
        """
        key = str(device), dtype
        if key not in self._flops:
            small, large = 256, 512
            t_small = self._product(device, dtype, small)
            rate = 2 * small**3 / t_small
            if t_small < 0.02:
                t_large = self._product(device, dtype, large)
                step = t_large - t_small
                rate = 2 * (large**3 - small**3) / step if step > 0 else 2 * large**3 / t_large
            self._flops[key] = rate
        return self._flops[key]

    def _product(self, device: Device, dtype: str, n: int) -> float:
        import torch

        with matmul_precision(dtype):
            a = torch.ones(n, n, dtype=torch_dtype(dtype), device=str(device))
            return self._shortest(device, lambda: a @ a)

    def bytes(self, device: Device) -> float:
        """Bytes read and written per second by a copy of 8 MB."""
        import torch

        key = str(device)
        if key not in self._bytes:
            source = torch.ones(2_000_000, device=key)
            target = torch.empty_like(source)
            self._bytes[key] = 2 * source.nbytes / self._shortest(device, lambda: target.copy_(source))
        return self._bytes[key]

    def predict(self, work: Work, device: Device, dtype: str) -> tuple[float | None, str]:
        """Seconds for one call at best, and why; ``None`` if neither FLOPs nor bytes are known."""
        seconds, why = None, ""
        if work.bytes:
            rate = self.bytes(device)
            seconds, why = work.bytes / rate, f"{text(work.bytes, 'B')} at {text(rate, 'B/s')}"
        if work.flops:
            rate = self.flops(device, dtype)
            if seconds is None or work.flops / rate > seconds:
                seconds, why = work.flops / rate, f"{text(work.flops, 'FLOP')} at {text(rate, 'FLOP/s')}"
        return seconds, why

    @staticmethod
    def _shortest(device: Device, call: Callable[[], Any]) -> float:
        """Best of up to 20 calls or about 50 ms: a busy neighbour slows most calls, rarely all of them."""
        call()
        return max(min(repeat(call, DeviceClock([device]), least=3, most=20, seconds=0.05)), 1e-9)


def require(seconds: float | None, why: str, preset: Preset, *, slack: float = 1.0) -> None:
    """Raise :class:`OverBudget` if the fewest useful rounds of calls that long don't fit ``slack`` budgets.

    A prediction gets :data:`SLACK`: a call that would just miss the budget is tried, one that takes minutes is not.
    """
    if seconds is not None and FEWEST_ROUNDS * seconds > slack * preset.budget:
        raise OverBudget(
            f"over budget: one call takes {seconds_text(seconds)} ({why}),"
            f" and {FEWEST_ROUNDS} are needed within the {seconds_text(preset.budget)} that {preset.name} allows a case"
        )


def rounds(seconds: float, preset: Preset) -> int | None:
    """Rounds of one call each that fit, when calls are so long that there is nothing to calibrate; else ``None``."""
    if seconds * preset.min_rounds <= preset.max_time:
        return None
    return max(1, min(preset.min_rounds, int(preset.budget / seconds)))


# What a case would take, told without running it: for ``gpubench run --list``.


COMPILE_S = 15.0
"""What torch.compile has been seen to take for a small network on two cores."""


def foresee(
    case: Case, work: Work, home: Device, preset: Preset, rates: Rates, *, nbytes: int, host_bytes: int
) -> dict[str, Any]:
    """Seconds of one call and of the whole case, or why it will be skipped.

    ``nbytes`` and ``host_bytes`` are those it takes on its device and on the host.
    """
    seconds, why = rates.predict(work, home, case.dtype)
    foreseen: dict[str, Any] = {"call_s": seconds, "case_s": preset.case_s, "skip": None}
    try:
        require_memory(nbytes, home)
        require_memory(host_bytes, CPU)
        require(seconds, f"predicted: {why}", preset, slack=SLACK)
    except (TooLarge, OverBudget) as error:
        return foreseen | {"skip": str(error), "case_s": 0.0}
    if seconds is not None:
        foreseen["case_s"] = max(preset.case_s, (preset.min_rounds + 2) * seconds + preset.warmup)
    if case.variant == "compile":
        foreseen["case_s"] += COMPILE_S
    return foreseen


RANKS_S = 2.0
"""Estimate of a case of several processes, in seconds."""
CEILINGS_S = {"smoke": 1.0, "quick": 5.0, "full": 15.0}
"""Estimate of measuring a device's ceilings, in seconds, by preset."""
