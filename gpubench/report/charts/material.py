"""What charts are made from: a report's tables, its comparisons, and the few cases that stand for all others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from ...format import shorten
from ...runfile.matching import shown_name
from ...runfile.schema import Parallel
from ..judgement import ABOVE_PEAK, too_noisy, withheld
from ..labels import Names, Row, grouped, listed
from ..speedup import Baseline, library_baseline, pair
from ..sweep import Line, Point, setting_of, size_of, size_parameter
from ..table import records
from ..trend import Trend
from .layouts import Curve, NamedRow, RowLabel, RowMark
from .page import Key
from .wording import OTHERS, WORK_GROUPS, Naming, group_of, hollow_marks, settings, workload_name

_SECONDARY = (
    "part", "large_part", "width", "input", "pinned_input", "optimizer", "compile_mode", "resnet50_tuned", "cold_start",
)  # fmt: skip
"""Shipped workloads that explain others and answer no question of their own."""
_PREALLOCATED = ("out", "preallocated")
_DTYPES_TOO = {"matmul.square": ("float32", "bfloat16", "float64")}
_FIRST = (
    "resnet50", "gpt2", "lenet", "bert", "cifar", "mlp", "vit", "square", "batched", "tall_skinny", "step", "add",
    "exp", "sum", "decode", "prefill", "conv2d", "softmax", "solve", "svd", "complex", "csr", "sort", "embedding",
    "stencil", "kmeans",
)  # fmt: skip
"""Shipped workloads in the order in which they keep their row where there are too many."""
_MOST = {"training": 4, "models": 6, "matmul": 5, "elementwise": 3, "classic": 1}
_MOST |= {"llm": 2, "serving": 2, "attention": 1, "quantised": 1}
_MOST |= dict.fromkeys(("reductions", "convolution", "linear_algebra", "fft", "sparse", "irregular", "science"), 1)
_MOST_NAMED = 16
LEAST_VALUES = 3
"""A picture of fewer isn't drawn."""


@dataclass(frozen=True, slots=True)
class Notable(RowLabel):
    """One setting of a workload at its largest size: a row for each device that has it."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, eq=False)
class ChartData:
    """The tables of a report and the trends of its runs. Pairs hold what :func:`gpubench.report.speedup.pair` makes.

    ``costs`` are what an hour of a run's device costs, ``labels`` what devices are called, by name and maker's name.
    """

    results: pd.DataFrame
    speedups: pd.DataFrame
    baseline: Baseline | None = None
    scaled: pd.DataFrame | None = None
    trends: Sequence[Trend] = ()
    costs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def names(self) -> Names:
        """What tells the lines of a sweep apart."""
        return Names(self.results)

    @cached_property
    def naming(self) -> Naming:
        """What the pictures call the devices."""
        return Naming(self.results, self.labels)

    @cached_property
    def rows(self) -> list[Row]:
        """Measured cases of workloads that use one device; the others have charts of their own."""
        rows = [row for row in records(self.results) if row["_result"].times]
        several = {row["workload"] for row in rows if (row["_result"].parallel or Parallel()).devices > 1}
        return [row for row in rows if row["workload"] not in several]

    @cached_property
    def comparisons(self) -> list[list[Row]]:
        """Pairs by what they are measured against, the most telling first: the CPU of the same machine, else another
        machine; NumPy, or another library, where there is nothing inside a run."""
        pairs = records(self.speedups)
        if self.baseline is not None:
            return [pairs] if pairs else []
        inside = [row for row in pairs if row["run"] == row["baseline_run"]]
        across = [row for row in pairs if row["run"] != row["baseline_run"]]
        libraries = [] if inside else records(pair(self.results, library_baseline(self.results)).table)
        return [rows for rows in (inside, across, libraries) if rows]

    def on_accelerators(self, rows: Iterable[Row]) -> list[Row]:
        """Those of GPUs and the like."""
        return [row for row in rows if row["_run"].machine.device(row["device"]).accelerator]

    def devices(self, rows: Iterable[Row]) -> list[str]:
        """Names of the rows' devices, in the order of the report."""
        return [key.label for key in self.keys(rows)]

    def keys(self, rows: Iterable[Row], look: str = "line") -> tuple[Key, ...]:
        """Legend entries of the rows' devices."""
        roles = {self.naming.device(row): self.naming.role(row) for row in sorted(rows, key=self.naming.order)}
        return tuple(Key(name, role, look) for name, role in roles.items())

    def one_size(self) -> str:
        """``ResNet-50 has one size (batch = 1)``, where no workload has several that stand on one axis."""
        found = grouped(self.rows, lambda row: row["workload"])
        if any(size_parameter(rows) for rows in found.values()):
            return ""
        names = []
        for workload, rows in found.items():
            case = rows[0]["_result"].case
            size = f" ({case.size} = {case.params[case.size]})" if case.size in case.params else ""
            alone = len({repr(row["_result"].case.params) for row in rows}) == 1
            says = f"has one size{size}" if alone or size else "has no number that alone is its size"
            names.append(f"{workload_name(workload)} {says}")
        return listed(list(dict.fromkeys(names)), 3)

    def curve(
        self, line: Line, value: Callable[[float], str], used: Sequence[Row], words: str = "", **how: Any
    ) -> Curve:
        """The line in its device's looks, without what is withheld; its last value and then ``words`` at its end."""
        points, rows = sound(line)
        cut = not points or points[-1] != line.points[-1]
        end = "above peak" if withheld(line.row) == ABOVE_PEAK else "too noisy" if cut else value(points[-1].y)
        looks = {"role": self.naming.role(line.row), "doubts": hollow_marks(rows, used), **how}
        return Curve(points, label=f"{end} {words}".strip(), left_out=len(line.points) - len(points), cut=cut, **looks)

    def notable(self, rows: Iterable[Row]) -> list[Notable]:
        """Of each workload that answers a question its plainest setting, one's own benchmarks before those shipped.

        As many as a picture of 700 pixels holds with a mark for each device in a row: 10 to 16. None where there are
        fewer values than make a picture.
        """
        rows = list(rows)
        marks = len({self.naming.order(row) for row in rows})
        most = max(10, min(_MOST_NAMED, int(450 / max(25, 15 * marks + 6))))
        picked: list[Notable] = []
        every: dict[str, list[Notable]] = {}
        kept: set[int] = set()
        by_workload = grouped(rows, lambda row: row["workload"])
        for workload, members in sorted(by_workload.items(), key=lambda item: _precedence(item[0])):
            family, _, name = workload.partition(".")
            if family == "transfer" or (family in WORK_GROUPS and name in _SECONDARY):
                continue
            for each in self._settings(workload, members):
                every.setdefault(family, []).append(each)
        for family, candidates in every.items():
            shown = candidates[: _MOST.get(family, most)]
            slowest = min(candidates, key=_least_speedup)
            if _least_speedup(slowest) < min(map(_least_speedup, shown)):  # what argues against the GPU isn't left out
                shown[-1] = slowest
                kept.add(id(slowest))
            picked += shown
        order = [*dict.fromkeys(WORK_GROUPS.values()), OTHERS]
        own = [each for each in picked if each.group == OTHERS][:most]
        shipped = [each for each in picked if each.group != OTHERS]
        while len(shipped) + len(own) > most:
            largest = max(order, key=lambda group: sum(each.group == group for each in shipped))
            crowd = [each for each in shipped if each.group == largest]
            shipped.remove(([each for each in crowd if id(each) not in kept] or crowd)[-1])
        found = sorted([*shipped, *own], key=lambda each: order.index(each.group))
        return found if sum(len(each.rows) for each in found) >= LEAST_VALUES else []

    def _settings(self, workload: str, rows: list[Row]) -> Iterable[Notable]:
        size = size_parameter(rows)
        by_setting = grouped(rows, lambda row: _setting(row, size))
        ranked = sorted(by_setting.values(), key=lambda members: plainness(members[0]))
        chosen: list[list[Row]] = []
        for dtype in _DTYPES_TOO.get(workload, ()):
            chosen += [members for members in ranked if members[0]["dtype"] == dtype][:1]
        for members in chosen or ranked[:1]:
            at = grouped(members, lambda row: (size_of(row, size) if size else None) or 0.0)
            counts = {value: len({row["run"] + row["device"] for row in each}) for value, each in at.items()}
            value = max(value for value, count in counts.items() if count == max(counts.values()))
            first = at[value][0]
            shown = {self.naming.order(row): row for row in reversed(at[value])}
            chosen_rows = tuple(shown[order] for order in sorted(shown))
            yield Notable(group_of(workload), workload_name(workload), settings(first), chosen_rows)


def _least_speedup(notable: Notable) -> float:
    """Of those that are known; infinite where nothing is compared."""
    return min((row["speedup"] for row in notable.rows if "speedup" in row and not withheld(row)), default=math.inf)


def _precedence(workload: str) -> int:
    family, _, name = workload.partition(".")
    return _FIRST.index(name) if family in WORK_GROUPS and name in _FIRST else len(_FIRST)


def _setting(row: Row, size: str | None) -> Hashable:
    case = row["_result"].case
    params = tuple((name, repr(value)) for name, value in case.params.items() if name != size)
    return case.dtype, case.variant, case.cache, params


def plainness(row: Row) -> tuple[bool, ...]:
    """What sorts a workload's plainest setting first; of equals the first measured stays first."""
    case = row["_result"].case
    forms = [value for value in case.params.values() if isinstance(value, str)]
    return case.dtype != "float32", case.variant != "eager", case.cache == "cold", not set(forms) & set(_PREALLOCATED)


def by_file(shown: Iterable[list[Row]], every: Iterable[list[Row]]) -> list[Notable]:
    """One's own benchmarks, a row of a picture each; those of a file that has several among ``every`` one stand under
    its name, after all others."""
    counts = Counter(_file_of(rows) for rows in every)
    files = grouped(shown, lambda rows: _file_of(rows) if counts[_file_of(rows)] > 1 else "")
    found = []
    for file, members in ({"": files.pop("", [])} | files).items():
        for rows in members:
            name = shown_name(rows[0]["_result"].workload).removeprefix(f"{file}." if file else "")
            found.append(Notable(shorten(file, 60), name, setting_of(rows[0]), tuple(rows)))
    return found


def _file_of(rows: Sequence[Row]) -> str:
    """``imports`` of ``imports.import_field``; empty where there is none."""
    workload = rows[0]["_result"].workload
    return workload.partition(".")[0] if "." in workload and shown_name(workload) == workload else ""


def marked(found: Iterable[Notable], mark: Callable[[Row], RowMark]) -> tuple[NamedRow, ...]:
    """The rows of a picture, with a mark for each device."""
    return tuple(NamedRow(each.group, each.name, each.detail, tuple(map(mark, each.rows))) for each in found)


def plainest(found: Sequence[Notable]) -> list[Notable]:
    """Of each workload its first setting: titles aren't made from dtypes that stand beside it."""
    first = {(each.group, each.name): each for each in reversed(found)}
    return [each for each in found if first[each.group, each.name] is each]


def sound(line: Line) -> tuple[tuple[Point, ...], tuple[Row, ...]]:
    """A line's points and their rows, without what is withheld: too noisy, or above the measured peak."""
    pairs = zip(line.points, line.rows, strict=True)
    kept = [(point, row) for point, row in pairs if not withheld(row) and not too_noisy(point.low, point.high)]
    return tuple(point for point, _ in kept), tuple(row for _, row in kept)


def line_setting(line: Line, *without: str) -> tuple[tuple[str, object], ...]:
    """What tells a line apart from others beside its device and the terms ``without``."""
    return tuple((name, value) for name, value in line.terms.items() if name not in ("source", *without))


def slowest_words(found: Sequence[Notable], total: int) -> str:
    """How a picture of times is ordered: ``the 15 slowest of 60, by file``, ``the slowest first in each file``."""
    grouped_by_file = any(each.group for each in found)
    if len(found) < total:
        return f"the {len(found)} slowest of {total}{', by file' * grouped_by_file}"
    return f"the slowest first{' in each file' * grouped_by_file}"
