"""From which size on a device is faster, for each line of a sweep: crossover.csv, and the marks on charts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..statistics import Crossover
from . import speedup
from .labels import Names, Row, grouped
from .speedup import ONE_SHOT, RESIDENT
from .sweep import Line, Measure, speedup_of, sweeps
from .table import BASE, CROSSING, LINE, columns_of, records

MEASURES: dict[str, Measure] = {RESIDENT: speedup_of, ONE_SHOT: speedup.one_shot_of}
"""What is compared in each regime."""
_BASELINE = ("baseline_run", "baseline_machine", "baseline_device", "baseline_implementation")


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
    sides = [[speedup.observations(row[side], regime) for row in line.rows] for side in (BASE, "_result")]
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
    return Crossing(known, count, _note(known, min(x), max(x)))


def _note(known: Crossover, smallest: float, largest: float) -> str:
    """What the interval leaves open, and that a single size says little."""
    words = ["one size"] if smallest == largest else []
    if Crossing(known, 0).disputed:
        words.append("processes disagree: in some resamples it crosses")
    elif known.size and not known.low:
        words.append("interval begins below the smallest size")
    if known.size and known.high == math.inf:
        words.append("interval ends beyond the largest size")
    return "; ".join(words)


def _lines(rows: list[Row], names: Names) -> list[tuple[str, str, Line]]:
    """(regime, size parameter, line) of every sweep among pairs with equal baselines."""
    return [
        (regime, sweep.size, line)
        for members in grouped(rows, names.baseline).values()
        for regime, measure in MEASURES.items()
        for sweep in sweeps(members, measure, names)[0]
        for line in sweep.lines
    ]


def crossover_table(speedups: pd.DataFrame, names: Names) -> pd.DataFrame:
    """A row for each line and regime: the columns of crossover.csv, then the Crossing and the Line."""
    rows = records(speedups)
    parameters = columns_of({name for row in rows for name in row["_result"].params})
    shown = ["run", "machine", "device", "workload", "implementation", "variant", "cache"]
    body = []
    for regime, size, line in _lines(rows, names):
        crossing = crossing_of(line, regime)
        row, known = line.row, crossing.crossover
        cells = [row[name] for name in shown]
        cells += [row["_result"].params.get(name) if name != size else None for name in parameters]
        cells += [row["dtype"], *(row[name] for name in _BASELINE), row["differs"]]
        cells += [_regime(row, regime), size, known.size, *_ends(known), known.kind]
        body.append([*cells, crossing.processes, crossing.note or None, crossing, line])
    header = [*shown, *parameters.values(), "dtype", *_BASELINE, "differs"]
    header += ["regime", "size_parameter", "crossover", "low", "high", "kind", "processes", "note", CROSSING, LINE]
    return pd.DataFrame(body, columns=header, dtype=object)


def _regime(row: Row, regime: str) -> str:
    return regime if row["regime"] in (None, RESIDENT) else str(row["regime"])


def _ends(known: Crossover) -> tuple[float | None, float | None]:
    """Ends of the interval where they are sizes."""
    if known.size is None:
        return None, None
    return known.low or None, None if known.high == math.inf else known.high
