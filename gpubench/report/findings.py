"""What the numbers say, as tables: how much faster, from which size on, what was left out and what limits it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from .. import statistics
from ..format import text
from ..runfile.schema import Run
from ..statistics import ABSENT, ALWAYS, CROSSES, INTERVAL, NEVER
from . import provenance, scaling
from .crossover import MEASURES, Crossing, crossing_of
from .labels import Names, Row, arithmetic, beyond, case_name, factor, family, listed, size_label, size_text
from .metrics import METRICS
from .render import Summary, Table
from .speedup import ONE_SHOT, RESIDENT, Baseline, LeftOut, Pairs, pair
from .sweep import Line, rate_of, speedup_of, sweeps
from .table import records

if TYPE_CHECKING:
    from .charts.page import Figure

_MOST_ROWS = 40


def summarise(
    runs: Sequence[Run],
    results: pd.DataFrame,
    speedups: Pairs,
    scaled: pd.DataFrame,
    figures: Sequence[Figure] = (),
    formats: Sequence[str] = (),
) -> Summary:
    """All tables that have a row; ``scaled`` is :func:`.scaling.scaling_table`'s."""
    names = Names(results)
    rows = records(results)
    made = _speedups(records(speedups.table), names, "intervals are in crossover.csv")
    if not made.rows:
        numpy = records(pair(results, Baseline("implementation", "numpy")).table)
        made = _speedups(numpy, names, "pairs and intervals are in the tables that --baseline numpy writes")
    tables = (
        provenance.machine_table(results, runs),
        scaling.several_devices(scaled),
        made,
        _left_out(speedups.left_out),
        _launch_bound(rows, names),
        _rates(rows, names),
        provenance.ceiling_table(results),
        provenance.flag_table(results),
        provenance.run_flag_table(results),
        provenance.job_table(rows, names),
        provenance.unmeasured_table(rows),
        provenance.method_table(runs, rows),
    )
    charts = tuple((figure.title, figure.name) for figure in figures)
    picture = formats[0] if formats else "svg"
    return Summary(tuple(table for table in tables if table.rows), charts, picture, _warning(speedups.left_out))


def _speedups(rows: list[Row], names: Names, where: str) -> Table:
    """Per family and device: what it brings at the largest sizes, at best, and from which size on.

    ``where`` says which files have the rest.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        against = names.baseline(row) + (f" ({row['differs']})" if row["differs"] else "")
        groups.setdefault((against, names.source(row), family(row["workload"]), arithmetic(row)), []).append(row)
    shot = any(row["one_shot_speedup"] for row in rows)
    body, said = [], []
    for (baseline, source, kind, precision), members in sorted(groups.items()):
        swept, single = sweeps(members, speedup_of, names)
        largest = [line.row for sweep in swept for line in sweep.lines] + single
        best = max(members, key=_surely)
        spread = f"{factor(best['speedup'])} ({factor(best['low'])}–{factor(best['high'])})"
        cells = [kind, precision, source, baseline, _mean(row["speedup"] for row in largest)]
        crossed = [_crossovers(members, names, RESIDENT)]
        if shot:
            cells += [_mean(row["one_shot_speedup"] for row in largest), _calls(largest)]
            crossed.append(_crossovers(members, names, ONE_SHOT))
        body.append((*cells, f"{spread} {case_name(best)}", *crossed))
        said += crossed
    kinds = sorted({row["uncertainty"] for row in rows})
    note = "Largest sizes: geometric mean over each setting's largest size. In brackets: " + ", ".join(kinds)
    if not all(kind.startswith(INTERVAL) for kind in kinds):
        note += " (a spread is no confidence interval)"
    note += f". Best: by the low end of the interval. Faster from: the size from which it stays ahead; {where}."
    note += "".join(f" {words}" for word, words in _EXPLAINED.items() if word in " ".join(said))
    if shot:
        note += " One-shot: inputs copied from pageable memory, one call, outputs copied back."
        note += " Break-even: calls on data that stays which make up for the copies; — where it is never faster."
    columns = ["family", "dtype", "device", "against", "speedup at largest sizes"]
    columns += ["one-shot", "break-even"] if shot else []
    columns += ["best", "faster from"] + (["one-shot faster from"] if shot else [])
    return Table("Speedup", tuple(columns), tuple(body), note)


def _surely(row: Row) -> float:
    """At least so many times faster; the largest of many noisy values would be the noisiest."""
    value: float = row["low"] if row["uncertainty"].startswith(INTERVAL) else row["speedup"]
    return value


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return factor(statistics.geometric_mean(known)) if known else "—"


def _calls(rows: list[Row]) -> str:
    """``3 … 120 calls``."""
    calls = sorted(row["break_even_calls"] for row in rows if row["break_even_calls"] is not None)
    ends = [f"{count:,}" if count < 1e6 else f"{count:.1e}" for count in dict.fromkeys((*calls[:1], *calls[-1:]))]
    return " … ".join(ends) + (" call" if ends == ["1"] else " calls") if ends else "—"


def _crossovers(rows: list[Row], names: Names, regime: str) -> str:
    """``n ≈ 1200 … 40k (4 of 6); never (1 of 6)``; of a single line with its interval.

    Nothing is said to be so that the interval leaves open.
    """
    lines = [(line, sweep.size) for sweep in sweeps(rows, MEASURES[regime], names)[0] for line in sweep.lines]
    found = [(crossing_of(line, regime), line, size) for line, size in lines]
    known = [each for each in found if not each[0].anywhere(each[1].points[0].x, each[1].points[-1].x)]
    anywhere, found = len(found) - len(known), known
    if len(lines) == 1 and found and found[0][0].crossover.kind == CROSSES:
        return _interval(*found[0])
    sizes: dict[str, list[float]] = {}
    for crossing, _, size in found:
        if crossing.crossover.size:
            sizes.setdefault(size, []).append(crossing.crossover.size)
    words = []
    for size, values in sorted(sizes.items()):
        ends = list(dict.fromkeys(size_text(value, size) for value in (min(values), max(values))))
        words.append(f"{size_label(size)} ≈ {' … '.join(ends)} ({len(values)} of {len(lines)})")
    kinds = Counter(_PERHAPS * crossing.disputed + crossing.crossover.kind for crossing, _, _ in found)
    kinds[_ANYWHERE] = anywhere
    for kind in (*(each + kind for kind in (ALWAYS, NEVER, ABSENT) for each in ("", _PERHAPS)), _ANYWHERE):
        if kinds[kind]:
            words.append(f"{kind} ({kinds[kind]} of {len(lines)})")
    return "; ".join(words) or "—"


_PERHAPS, _ANYWHERE = "perhaps ", "may be anywhere"
_EXPLAINED = {
    NEVER: "Never: behind at all sizes, and not gaining with size.",
    ABSENT: "Not in this range: behind at the largest size; a larger one may tell.",
    _PERHAPS: "Perhaps: the interval of the crossover allows for another answer.",
    _ANYWHERE: "May be anywhere: that interval holds all sizes measured.",
}
"""Words for crossovers that don't speak for themselves."""


def _interval(crossing: Crossing, line: Line, size: str) -> str:
    known = crossing.crossover
    words = f"{size_label(size)} ≈ {size_text(known.size or math.nan, size)}"
    if known.low is None or known.high is None:
        return words
    points = [point.x for point in line.points]
    low = size_text(known.low, size) if known.low else f"below {size_text(points[0], size)}"
    high = size_text(known.high, size) if known.high < math.inf else f"beyond {size_text(points[-1], size)}"
    return f"{words} ({low}–{high})"


def _left_out(pairs: Sequence[LeftOut]) -> Table:
    groups: dict[tuple[tuple[str, str], ...], list[LeftOut]] = {}
    for entry in pairs:
        groups.setdefault(tuple(entry.terms.items()), []).append(entry)
    body = []
    for key, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        workloads = list(dict.fromkeys(entry.row["workload"] for entry in members))
        options = " ".join(f"--allow {term}" for term, _ in key)
        body.append((", ".join(words for _, words in key), str(len(members)), listed(workloads, 4), options))
    note = "Cases with no baseline of their like. Pairs made with --allow say what they differ in."
    return Table("Not paired", ("what differs", "cases", "workloads", "to pair them"), tuple(body[:_MOST_ROWS]), note)


def _warning(pairs: Sequence[LeftOut]) -> str:
    """One line for stderr."""
    terms_of = Counter(term for entry in pairs for term in entry.terms)
    if not pairs:
        return ""
    words = ", ".join(f"{term} ({count})" for term, count in terms_of.most_common())
    options = " ".join(f"--allow {term}" for term in terms_of)
    cases = f"{len(pairs)} case{'s' * (len(pairs) > 1)}"
    return f"{cases} not paired with a baseline that differs in {words}; {options} pairs them and says so"


def _launch_bound(rows: list[Row], names: Names) -> Table:
    """Where launching takes longer than the work, and from which size on it no longer does."""
    known = [row for row in rows if row["device_s"] is not None and row["launch_s"] is not None]
    swept, single = sweeps(known, _busy, names)
    body = []
    for sweep in swept:
        for line in sweep.lines:
            bound = [point.x for point in line.points if point.y < 1]
            if not bound:
                continue
            ends = statistics.crossover([point.x for point in line.points], [point.y for point in line.points])
            until = f"{size_label(sweep.size)} = {size_text(max(bound), sweep.size)}"
            since = f"≈ {size_text(ends.size, sweep.size)}" if ends.size else ABSENT
            label = case_name(line.row, without=(sweep.size,))
            body.append((label, names.source(line.row), until, since, _share(line.rows[0]), _share(line.row)))
    for row in single:
        if _busy(row)[0] < 1:
            body.append((case_name(row), names.source(row), "its one size", ABSENT, _share(row), _share(row)))
    note = "Launch-bound: the host takes longer to launch the work than the device to do it."
    if len(body) > _MOST_ROWS:
        note += f" {len(body) - _MOST_ROWS} more: device_s and median_s in results.csv."
    columns = ("case", "device", "launch-bound up to", "no longer from", "busy at smallest", "busy at largest")
    return Table("Launch-bound", columns, tuple(body[:_MOST_ROWS]), note)


def _busy(row: Row) -> tuple[float, float, float]:
    """1 where a case stops being launch-bound."""
    share = row["device_s"] / row["launch_s"]
    return share, share, share


def _share(row: Row) -> str:
    return f"{row['device_s'] / row['median_s']:.0%}"


def _rates(rows: list[Row], names: Names) -> Table:
    """The highest rate of each family, dtype and source: what the machine was seen to do."""
    best: dict[tuple[str, ...], tuple[float, Row]] = {}
    for row in rows:
        rate = rate_of(row) if row["_result"].times else None
        values = rate.measure(row) if rate else None
        if rate and values:
            name = row["workload"] if rate.kind == "items" else family(row["workload"])
            key = (name, names.source(row), arithmetic(row), rate.unit)
            if key not in best or values[0] > best[key][0]:
                best[key] = values[0], row
    rated = [row for _, row in best.values()]
    more = [m for m in METRICS.values() if m.in_summary and any(row[m.name] is not None for row in rated)]
    body = [
        (*key[:3], text(value, key[3]), *(metric.words(row[metric.name]) for metric in more), case_name(row))
        for key, (value, row) in sorted(best.items(), key=lambda entry: entry[0])
    ]
    note = "Work of a call / its wall time; bytes are compulsory traffic (inputs read once, outputs written once)."
    if METRICS["utilisation"] in more:
        note += " Utilisation: the least time that the measured ceilings allow / the time taken."
        note += beyond(rated)
    if len(body) > _MOST_ROWS:
        note += f" {len(body) - _MOST_ROWS} more are in results.csv."
    columns = ("workload", "device", "dtype", "rate", *(metric.label.lower() for metric in more), "reached by")
    return Table("Highest rates", columns, tuple(body[:_MOST_ROWS]), note)
