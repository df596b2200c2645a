"""``gpubench report``: everything is read and drawn first and written after."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import RunFileError, UsageError
from ..version import __version__

if TYPE_CHECKING:
    from ..report.answer import Answer
    from ..report.render import Summary
    from ..runfile.schema import Run

_FORMATS = ("svg", "png")
ALLOWED = ("dtype", "precision", "regime", "cache", "threads", "seed")
"""What two benchmarks must share to be compared, unless a difference is allowed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    files = "folder for results.csv, speedup.csv, crossover.csv, summary.md, report.html, charts/"
    add("-o", "--output", required=True, metavar="DIR", help=files)
    against = (
        "what speedups are measured against: a device (cpu, cuda:0), an implementation (numpy), a machine or a run by"
        " name; default: each machine's CPU, and the first machine where there are several"
    )
    add("--baseline", metavar="NAME", help=against)
    different = "compare benchmarks although they differ in this, and name the difference; repeatable: "
    add("--allow", action="append", choices=ALLOWED, default=[], metavar="WHAT", help=different + ", ".join(ALLOWED))
    hourly = (
        "what an hour of a device costs: adds how much work money buys, and which device is the cheaper one; NAME is a"
        " machine, a device (cuda:0) or its name (H200); may be repeated"
    )
    add("--price", dest="prices", action="append", default=[], metavar="NAME=2.99", help=hourly)
    add_chart_arguments(parser)


def add_chart_arguments(parser: argparse._ActionsContainer) -> None:
    """What every command that draws has: which charts, in which themes and kinds of file."""
    add, which, background = parser.add_argument, ("default", "all", "none"), "background of the charts"
    add("--charts", choices=which, default="default", help="about ten charts (default), all, or none")
    add("--no-charts", dest="charts", action="store_const", const="none", help="as --charts none")
    add("--theme", choices=("light", "dark", "both"), default="light", help=f"{background} (default: light)")
    kinds = "kinds of chart files (default: svg)"
    add("--format", dest="formats", type=formats, default=("svg",), metavar="svg,png", help=kinds)


def formats(text: str) -> tuple[str, ...]:
    """``svg,png`` as a tuple; anything else names what exists."""
    names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not names or not set(names) <= set(_FORMATS):
        raise argparse.ArgumentTypeError(f"unknown chart format {text!r}: choose from {', '.join(_FORMATS)}")
    return names


@dataclass(frozen=True, slots=True)
class Charts:
    """Which charts a report draws, and into which files."""

    which: str = "default"
    formats: Sequence[str] = ("svg",)
    themes: Sequence[str] = ("light",)


def charts_of(args: argparse.Namespace) -> Charts:
    """What :func:`add_chart_arguments` declared."""
    return Charts(args.charts, args.formats, ("light", "dark") if args.theme == "both" else (args.theme,))


class Report(NamedTuple):
    """What was written where, and the summary to show."""

    files: tuple[Path, ...]
    summary: Summary
    answer: Answer
    runs: tuple[Run, ...]


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written."""
    folder = Path(args.output)
    report = write_report(args.runs, folder, args.baseline, charts_of(args), args.allow, args.prices)
    if report.summary.left_out:
        print(f"gpubench report: {report.summary.left_out}", file=sys.stderr)
    from ..report import render
    from ..runfile.reader import clean

    render.show_summary(report.summary)
    names = dict.fromkeys(path.name if path.parent == folder else "charts/" for path in report.files)
    print(clean(f"{folder}: {', '.join(names)}"))
    return 0


def write_report(
    paths: Iterable[str | Path],
    folder: str | Path,
    baseline: str | None = None,
    charts: Charts = Charts(),
    allow: Collection[str] = (),
    asked: Iterable[str] = (),
) -> Report:
    """``asked`` are prices, ``H200=2.99``. Raises UsageError or RunFileError before anything is written."""
    from ..report import answer, findings, judgement, machines, output, render, scaling, speedup, table, trend
    from ..report.labels import Names
    from ..report.webpage import page_data, webpage

    folder = Path(folder)
    runs = read_all(paths)
    results = table.results_table(runs)
    # what a machine's many runs show is a trend; side by side they would be a hundred lines in every chart
    shown = runs if baseline else trend.latest(runs)
    compared = results if len(shown) == len(runs) else table.results_table(shown)
    chosen = speedup.resolve(compared, baseline)
    speedups = speedup.pair(compared, chosen, allow)
    scaled = scaling.scaling_table(compared)
    costs = machines.device_prices(compared, dict(machines.parse_price(words) for words in asked))
    beside = machines.side_by_side(compared, allow)
    first, others = machines.leading_tables(beside, compared, costs)
    output.prepare_folder(folder)
    trends, drawn, pictures = [], [], {}
    if charts.which != "none":
        from ..report.charts import material, pictures as charting

        trends = trend.trends(runs, results)
        charted = material.ChartData(compared, speedups.table, chosen, scaled, trends, costs=costs)
        drawn = charting.plan(charted, every=charts.which == "all")
        pictures = charting.render(drawn, charts.formats, charts.themes)
    written = speedup.pair_or_libraries(compared, speedups)
    crossovers = judgement.crossover_table(written.table, Names(results))
    answered = answer.answer(compared, speedups.table, crossovers, shown, beside, costs)
    words = findings.summarise(answered, shown, compared, written, crossovers, scaled, others)
    folded = [details for details in words.details if details not in others]
    words = replace(
        words,
        charts=tuple((figure.title, figure.name) for figure in drawn),
        picture=charts.formats[0],
        themes=charts.themes,
        tables=(*first, *words.tables),
    )
    data = page_data(compared, written.table, crossovers, scaled, trends)
    tables = {
        "results.csv": table.csv_text(results),
        "speedup.csv": table.csv_text(written.table),
        "crossover.csv": table.csv_text(crossovers),
        "summary.md": render.summary_markdown(words),
        "report.html": webpage(answered, data, first, others, folded, __version__),
    }
    if not scaled.empty:
        tables["scaling.csv"] = table.csv_text(scaled)
    written_files = render.save_report(folder, tables, pictures, [run.path for run in runs])
    return Report(tuple(written_files), words, answered, tuple(shown))


def read_all(paths: Iterable[str | Path]) -> list[Run]:
    """Run files in the order given, each once, and so are copies of one; of a folder those at any depth."""
    from ..runfile import folder

    found: dict[bytes, Run] = {}
    for path in map(Path, paths):
        if not os.path.exists(path):
            raise folder.not_there(path)
        for run in _runs_in(path) if path.is_dir() else [_lean(path)]:
            found.setdefault(folder.identity(run.path), run)
    runs = list(found.values())
    if not any(run.results for run in runs):
        raise RunFileError(f"{', '.join(str(run.path) for run in runs)}: benchmarks: expected a benchmark, found none")
    return runs


def _runs_in(path: Path) -> list[Run]:
    """The runs of a folder; of one that a report of other folders' runs was written into, those."""
    from ..runfile import folder

    try:
        return list(folder.runs(path, _lean))
    except UsageError:
        from ..report.output import sources

        if not (reported := sources(path)):
            raise
    gone = [str(source) for source in reported if not source.is_file()]
    if gone:
        raise UsageError(f"{path}: holds a report; its results file was {gone[0]}, which is not there any more")
    return [_lean(source) for source in reported]


def _lean(path: Path) -> Run:
    """A run without its samples: no table or chart shows them."""
    from ..runfile.reader import read

    return read(path, samples=False)
