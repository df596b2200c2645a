"""Which charts there are and what is on each: plain frozen data, so that drawing decides nothing.

A family of workloads (``elementwise``) makes one figure a quantity, a panel a workload. Workloads with one size
become bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd

from ...runfile.schema import TIMERS
from .. import crossover
from ..labels import Names, Row, beyond, caption, family, grouped, heading, listed
from ..metrics import METRICS
from ..output import file_names
from ..speedup import ONE_SHOT, Baseline, pair
from ..sweep import rate_of, sweeps, time_of
from ..table import records
from ..trend import LEAST_CHANGE, Trend
from .bar_chart import best_rates, single_sizes, speedup_bars
from .line_chart import LineChart, line_charts
from .page import Figure
from .roofline_chart import roofline
from .trend_chart import TrendChart


def plan(results: pd.DataFrame, speedups: pd.DataFrame, baseline: Baseline | None = None) -> list[Figure]:
    """All figures of a report, those that matter most first."""
    names = Names(results)
    rows = [row for row in records(results) if row["_result"].times]
    pairs = records(speedups)
    if baseline is None and not any(row["run"] == row["baseline_run"] for row in pairs):
        pairs += records(pair(results, Baseline("implementation", "numpy")).table)
    together = {row["workload"] for row in rows if _devices(row) > 1}  # have charts of their own
    alone = [row for row in rows if row["workload"] not in together]
    figures = [*_speedups(pairs, names), *_rooflines(rows, names), *_rates(rows, alone, names), *_times(alone, names)]
    stems = file_names(figure.name for figure in figures)
    return [replace(figure, name=stem) for figure, stem in zip(figures, stems, strict=True)]


def _speedups(rows: list[Row], names: Names) -> list[Figure]:
    found = []
    for base, members in grouped(rows, names.baseline).items():
        bars = speedup_bars(members, names, base)
        title = f"Speedup over {base}, by workload"
        facts = f"Speedup = time of {base} / time of the other; each workload at its largest size"
        words = caption(members, names, _uncertainty(members, "thin line") + bars.note + bars.cut)
        stem = f"speedup-over-{base.removeprefix('the ').lower()}"
        found.append(Figure(stem, title, facts, words, bars))
        for regime, measure in crossover.MEASURES.items():
            shot = regime == ONE_SHOT
            for kind, family_rows in grouped(members, lambda row: family(row["workload"])).items():
                swept, _ = sweeps(family_rows, measure, names)
                found += _pages(
                    line_charts(swept, names, slower=base, regime=regime),
                    names,
                    name=f"{'one-shot-' * shot}{stem}-{kind}",
                    title=f"{heading(kind)}: {'one-shot ' * shot}speedup over {base}",
                    subtitle=f"Time of {base} / time of the device{', copies included' * shot}; "
                    "◆ crossover: from this size on it stays at 1× or above",
                    note=_uncertainty(family_rows, "band; of a crossover: bar at 1×") + _SHOT * shot,
                )
    return found


_SHOT = "One-shot: inputs copied from pageable memory, one call, outputs copied back. "


def _uncertainty(rows: Iterable[Row], drawn: str) -> str:
    return f"Uncertainty ({drawn}): {listed(sorted({row['uncertainty'] for row in rows}))}. "


def _rooflines(rows: list[Row], names: Names) -> list[Figure]:
    """One for each device of each run whose ceilings were measured."""
    found = []
    for (run, device), members in grouped(rows, lambda row: (row["run"], row["device"])).items():
        own = [row for row in members if row["implementation"] != "numpy"]
        ceilings = members[0]["_run"].ceilings.get(device)
        chart = roofline(own, ceilings, names) if own and ceilings else None
        if chart:
            source = names.source(own[0])
            note = "Best of each workload named. Ceilings: the best seen on this device in this run; bandwidths and "
            note += (
                "launches in grey (what a large footprint reached, a small one can), products in their dtype's colour. "
            )
            note = f"{note.rstrip()}{beyond(own)} "
            title = f"Roofline of {source}"
            facts = "What was reached of what the device can do; a case on a ceiling leaves nothing to gain"
            name = f"roofline-{device}" + f"-{run}" * names.several
            found.append(Figure(name, title, facts, caption(own, names, note), chart))
    return found


def _devices(row: Row) -> int:
    parallel = row["_result"].parallel
    return parallel.devices if parallel else 1


def _rates(rows: list[Row], alone: list[Row], names: Names) -> list[Figure]:
    found = []
    if bars := best_rates(rows, names):
        words = caption(rows, names, bars.note)
        facts = "The best that was measured over all sizes and parameters; higher is better"
        found.append(Figure("highest-rates", "Highest rates", facts, words, bars))
    for kind, members in grouped(alone, lambda row: family(row["workload"])).items():
        for rate, own in grouped(members, rate_of).items():
            if rate is None:
                continue
            swept, _ = sweeps(own, rate.measure, names)
            found += _pages(
                line_charts(swept, names, unit=rate.unit, lead="dtype"),
                names,
                name=f"{rate.label.lower()}-{kind}",
                title=f"{heading(kind)}: {rate.label.lower()}",
                subtitle=f"{rate.unit} against size; higher is better",
                note="Line: work of a call / its wall time; band: interquartile range of the rounds. ",
            )
    return found


def _times(rows: list[Row], names: Names) -> list[Figure]:
    found = []
    single: list[Row] = []
    for kind, members in grouped(rows, lambda row: family(row["workload"])).items():
        swept, rest = sweeps(members, time_of, names)
        single += rest
        found += _pages(
            line_charts(swept, names, unit=METRICS["median_s"].unit),
            names,
            name=f"time-{kind}",
            title=f"{heading(kind)}: time per call",
            subtitle=f"Wall time against size{_waited(members)}; lower is better",
            note="Line: median over rounds, geometric mean of processes; band: interquartile range of the rounds. ",
        )
    for bars in single_sizes(single, names):
        own = caption(bars.rows, names, bars.note)
        facts = f"Wall time of a call{_waited(bars.rows)}; lower is better"
        found.append(Figure("time-one-size", "Time per call: workloads of one size", facts, own, bars))
    return found


def _waited(rows: Iterable[Row]) -> str:
    return ", the wait for the device included" if all(row["_result"].times.timer in TIMERS for row in rows) else ""


def _pages(
    charts: Sequence[LineChart], names: Names, *, name: str, title: str, subtitle: str, note: str
) -> list[Figure]:
    """A figure for each, numbered where there are several."""
    return [
        Figure(
            name if number == 1 else f"{name}-{number}",
            f"{title} ({number} of {len(charts)})" if len(charts) > 1 else title,
            subtitle,
            caption(chart.rows, names, note + chart.cut),
            chart,
        )
        for number, chart in enumerate(charts, 1)
    ]


def plan_trends(found: Sequence[Trend]) -> list[Figure]:
    """A figure for each workload in time."""
    stems = file_names(f"trend-{each.workload}" for each in found)
    figures = []
    for each, stem in zip(found, stems, strict=True):
        changes = sum(len(series.changes) for series in each.series)
        subtitle = f"{each.machine}: {changes} {'change' if changes == 1 else 'changes'} of level; lower is better"
        note = (
            "Point: geometric mean of the processes' medians of a run; line: median of a level. A change is one that "
            f"Pettitt's rank test finds at 1 % over all cases, of {LEAST_CHANGE:.0%} or more. "
        )
        note += "Cases without a change are left out. " if changes else ""
        note += f"{each.left_out} more cases are left out. " if each.left_out else ""
        figures.append(Figure(stem, f"{each.workload} in time", subtitle, note.strip(), TrendChart(each)))
    return figures
