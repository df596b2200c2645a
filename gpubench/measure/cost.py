"""What a case would take, told without running it: for ``gpubench run --list``."""

from __future__ import annotations

from typing import Any

from ..devices import CPU, Device
from ..errors import OverBudget, TooLarge
from ..schema import Case, Work
from . import budget
from .budget import Preset, Rates
from .data import require_memory

COMPILE_S = 15.0
"""What torch.compile has been seen to take for a small network on two cores."""


def foresee(
    case: Case, work: Work, home: Device, preset: Preset, rates: Rates, *, nbytes: int, host_bytes: int
) -> dict[str, Any]:
    """Seconds of one call and of the whole case, or why it will be skipped.

    ``nbytes`` and ``host_bytes`` are those it takes on its device and on the host.
    """
    seconds, why = rates.predict(work, home, case.dtype)
    foreseen: dict[str, Any] = {"call_s": seconds, "case_s": preset.typical, "skip": None}
    try:
        require_memory(nbytes, home)
        require_memory(host_bytes, CPU)
        budget.require(seconds, f"predicted: {why}", preset, slack=budget.SLACK)
    except (TooLarge, OverBudget) as error:
        return foreseen | {"skip": str(error), "case_s": 0.0}
    if seconds is not None:
        foreseen["case_s"] = max(preset.typical, (preset.min_rounds + 2) * seconds + preset.warmup)
    if case.variant == "compile":
        foreseen["case_s"] += COMPILE_S
    return foreseen
