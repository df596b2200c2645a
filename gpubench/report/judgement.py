"""What may be said of a speedup: whether it is worth it, too noisy to state or can't be, and from which size on it is
one: crossover.csv, and the marks on charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..statistics import Crossover
from .labels import Names, Row, grouped, rounded_size, size_label, size_text, times_range, times_text
from .speedup import ONE_SHOT, RESIDENT, observations, on_accelerator, one_shot_of, speedup_of
from .sweep import Line, Measure, sweeps
from .table import BASE, CROSSING, IMPLAUSIBLE, LINE, columns_of, records

WORTH_IT, IF_IT_STAYS, NOT_WORTH_IT, UNSURE = "worth it", "if the data stays", "no", "unsure"
MARKS = {WORTH_IT: "✓", IF_IT_STAYS: "◐", NOT_WORTH_IT: "✗", UNSURE: "?"}
TOO_NOISY, ABOVE_PEAK = "unknown (too noisy)", "above the measured peak"
EVERY_SIZE = "every size measured"
WORTHWHILE = 1.5
"""A speedup below that isn't worth moving work to another device."""
NOISY_FACTOR = 4.0
"""An interval whose ends are further apart than that says nothing."""
MEASURES: dict[str, Measure] = {RESIDENT: speedup_of, ONE_SHOT: one_shot_of}
"""What is compared in each regime."""
_BASELINE = ("baseline_run", "baseline_machine", "baseline_device", "baseline_implementation")


def too_noisy(low: float | None, high: float | None) -> bool:
    """Whether an interval is wider than a factor of four."""
    return low is not None and high is not None and (low <= 0 or high > NOISY_FACTOR * low)


def withheld(row: Row) -> str:
    """Why no number of a result, or no speedup of a pair, is shown to people; empty for one that is trustworthy."""
    if IMPLAUSIBLE in (row.get("flags") or "").split():
        return ABOVE_PEAK
    return TOO_NOISY if "speedup" in row and too_noisy(row["low"], row["high"]) else ""


def known_speedups(rows: Iterable[Row]) -> list[Row]:
    """Pairs of which a speedup is stated, the least first."""
    return sorted((row for row in rows if not withheld(row)), key=lambda row: row["speedup"])


def middle(known: Sequence[Row]) -> Row:
    """The pair that stands for several, a measured one: the median, of an even number the lower one."""
    return known[(len(known) - 1) // 2]


def speedup_words(row: Row) -> str:
    """``132× (111× to 141×)``; a dash or that it is unknown where it is withheld."""
    reason = withheld(row)
    return reason.replace(ABOVE_PEAK, "—") or f"{times_text(row['speedup'])} ({times_range(row['low'], row['high'])})"


def copies_text(row: Row) -> str:
    """The speedup with inputs and results copied for every call."""
    if row["one_shot_speedup"] is None or withheld(row) == ABOVE_PEAK:
        return "—"
    return TOO_NOISY if too_noisy(row["one_shot_low"], row["one_shot_high"]) else times_text(row["one_shot_speedup"])


def verdict(row: Row) -> str:
    """Whether moving the work is worth it, judged at the low end of the intervals.

    Where nothing has to be copied, between two CPUs or two GPUs, resident data is all there is to judge.
    """
    if withheld(row):
        return UNSURE
    copied = on_accelerator(row) and row["baseline_device"] == "cpu"
    shot_low = row["one_shot_speedup"] if row["one_shot_low"] is None else row["one_shot_low"]
    if row["low"] >= WORTHWHILE and not copied:
        return WORTH_IT
    if shot_low is not None and shot_low >= WORTHWHILE and not too_noisy(row["one_shot_low"], row["one_shot_high"]):
        return WORTH_IT
    if row["low"] >= WORTHWHILE:
        return IF_IT_STAYS
    return NOT_WORTH_IT if row["high"] < WORTHWHILE else UNSURE


def peak_text(share: float | None) -> str:
    """``73%`` of a measured peak; a dash where it is unknown, or above 100%, which can't be."""
    return "—" if share is None or share > 1 else "<1%" if share < 0.01 else f"{share:.0%}"


@dataclass(frozen=True, slots=True)
class Crossing:
    """A line's crossover; ``processes`` are those that its interval rests on."""

    crossover: Crossover
    processes: int
    note: str = ""

    @property
    def disputed(self) -> bool:
        """Whether some resamples of the processes cross where the mean doesn't."""
        return self.crossover.size is None and self.crossover.low != self.crossover.high

    def anywhere(self, smallest: float, largest: float) -> bool:
        """Whether the interval leaves open all the sizes that were measured."""
        low, high = self.crossover.low, self.crossover.high
        return low is not None and high is not None and low <= smallest and high >= largest


def crossing_of(line: Line, regime: str = RESIDENT) -> Crossing:
    """Processes are resampled as a whole: with all sizes, and with both sides where these are of one run."""
    paired = all(row["run"] == row["baseline_run"] for row in line.rows)
    sides = [[observations(row[side], regime) for row in line.rows] for side in (BASE, "_result")]
    common = [set.intersection(*map(set, side)) for side in sides]
    if paired:
        common = [common[0] & common[1]] * 2
    count = min(map(len, common))
    x = [point.x for point in line.points]
    if count < 2:
        known = statistics.crossover(x, [point.y for point in line.points])
        single = any(len(times) < 2 for side in sides for times in side)
        note = "one process" if single else "no two processes measured every size"
        return Crossing(known, 1, f"{note}: no interval")
    tops, bottoms = (
        [[times[i] for i in sorted(processes)] for times in side] for side, processes in zip(sides, common, strict=True)
    )
    known = statistics.crossover_interval(x, tops, bottoms, paired=paired)
    return Crossing(known, count, _note(known, one_size=min(x) == max(x)))


def _note(known: Crossover, one_size: bool) -> str:
    """What the interval leaves open, and that a single size says little."""
    words = ["one size"] * one_size
    if Crossing(known, 0).disputed:
        words.append("processes disagree: in some resamples it crosses")
    elif known.size and not known.low:
        words.append("interval begins below the smallest size")
    if known.size and known.high == math.inf:
        words.append("interval ends beyond the largest size")
    return "; ".join(words)


def crossover_table(speedups: pd.DataFrame, names: Names) -> pd.DataFrame:
    """A row for each line and regime: the columns of crossover.csv, then the Crossing and the Line."""
    rows = records(speedups)
    parameters = columns_of({name for row in rows for name in row["_result"].params})
    shown = ["run", "machine", "device", "workload", "implementation", "variant", "cache"]
    lines = [
        (regime, sweep.size, line)
        for members in grouped(rows, names.baseline).values()
        for regime, measure in MEASURES.items()
        for sweep in sweeps(members, measure, names)[0]
        for line in sweep.lines
    ]
    body = []
    for regime, size, line in lines:
        crossing = crossing_of(line, regime)
        row, known = line.row, crossing.crossover
        ends = [end if known.size is not None and end not in (0, math.inf) else None for end in (known.low, known.high)]
        cells = [row[name] for name in shown]
        cells += [row["_result"].params.get(name) if name != size else None for name in parameters]
        cells += [row["dtype"], *(row[name] for name in _BASELINE), row["differs"]]
        cells += [regime if row["regime"] in (None, RESIDENT) else row["regime"], size, known.size, *ends, known.kind]
        body.append([*cells, crossing.processes, crossing.note or None, crossing, line])
    header = [*shown, *parameters.values(), "dtype", *_BASELINE, "differs"]
    header += ["regime", "size_parameter", "crossover", "low", "high", "kind", "processes", "note", CROSSING, LINE]
    return pd.DataFrame(body, columns=header, dtype=object)


def crossover_text(crossing: Crossing, line: Line, name: str) -> str:
    """From which size on the device is faster: only what the interval, or the sizes on either side, hold for sure."""
    known, sizes, label = crossing.crossover, [point.x for point in line.points], size_label(name)
    doubtful = any(withheld(row) == ABOVE_PEAK for row in line.rows)
    if doubtful or len(sizes) == 1 or crossing.disputed or crossing.anywhere(sizes[0], sizes[-1]):
        return UNSURE
    if known.always:
        return UNSURE if any(map(withheld, line.rows)) else EVERY_SIZE
    if known.size is None:
        ahead = [point.x for point in line.points if point.y >= 1]
        upper = size_text(max(ahead) if ahead else sizes[-1], name)
        return f"{'only' if ahead else 'not'} up to {label} = {upper}"
    if known.low is None or known.high is None:
        below = max((point.x for point in line.points if point.y < 1), default=sizes[0])
        above = min((x for x in sizes if x > below), default=sizes[-1])
        return f"{label} between {size_text(below, name)} and {size_text(above, name)}"
    if not known.low or known.high == math.inf:
        return UNSURE
    return f"{label} ≈ {rounded_size(known.size, name)}"
