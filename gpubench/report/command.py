"""``gpubench report``: everything is read and drawn first and written after."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import folders
from ..errors import GpubenchError, RunFileError
from ..records import Run
from ..runfile import read
from . import crossings, findings, output, pairs, scaling, scaling_summary, summary, table, trend
from .labels import Names
from .options import FORMATS


@dataclass(frozen=True, slots=True)
class Report:
    """What was written where, and the summary to show."""

    folder: Path
    files: tuple[Path, ...]
    summary: summary.Summary


def main(args: argparse.Namespace) -> int:
    """Returns the exit code: 2, with one line on stderr, for what can't be read or written."""
    try:
        report = write_report(args.runs, args.output, args.baseline, args.charts, args.formats, args.allow)
    except GpubenchError as error:
        print(f"gpubench report: {error}", file=sys.stderr)
        return 2
    if report.summary.left_out:
        print(f"gpubench report: {report.summary.left_out}", file=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × is no reason to fail
    summary.show(report.summary)
    charts = any(path.parent != report.folder for path in report.files)
    own = [path.name for path in report.files if path.parent == report.folder]
    print(f"{report.folder}: {', '.join(own)}" + (", charts/" if charts else ""))
    return 0


def write_report(
    paths: Iterable[str | Path],
    folder: str | Path,
    baseline: str | None = None,
    charts: bool = True,
    formats: Sequence[str] = FORMATS,
    allow: Collection[str] = (),
) -> Report:
    """Raises UsageError or RunFileError before anything is written."""
    folder = Path(folder)
    runs = read_all(paths)
    results = table.frame(runs)
    # what a machine's many runs show is a trend; side by side they would be a hundred lines in every chart
    shown = runs if baseline else trend.latest(runs)
    compared = results if len(shown) == len(runs) else table.frame(shown)
    chosen = pairs.resolve(compared, baseline)
    speedups = pairs.pair(compared, chosen, allow)
    scaled = scaling.frame(compared)
    output.prepare(folder)
    pictures: dict[str, bytes] = {}
    drawn = []
    if charts:
        from . import draw, figures
        from .scaling_figures import plan as draw_scaling

        drawn = [*figures.plan(compared, speedups.table, chosen), *draw_scaling(compared, scaled)]
        drawn += figures.plan_trends(trend.trends(runs, results))
        pictures = draw.render(drawn, formats)
    words = scaling_summary.added(findings.summarise(shown, compared, speedups, drawn, formats), scaled)
    tables = {
        "results.csv": table.to_csv(results),
        "speedup.csv": table.to_csv(speedups.table),
        "crossover.csv": table.to_csv(crossings.frame(speedups.table, Names(results))),
        "summary.md": summary.markdown(words),
    }
    if not scaled.empty:
        tables["scaling.csv"] = table.to_csv(scaled)
    return Report(folder, tuple(output.save(folder, tables, pictures)), words)


def read_all(paths: Iterable[str | Path]) -> list[Run]:
    """Run files in the order given, each once, and so are copies of one; of a folder those at any depth."""
    found: dict[bytes, Run] = {}
    for path in map(Path, paths):
        for run in folders.runs(path, _lean) if path.is_dir() else [_lean(path)]:
            found.setdefault(folders.identity(run.path), run)
    runs = list(found.values())
    if not any(run.results for run in runs):
        raise RunFileError(f"{', '.join(str(run.path) for run in runs)}: benchmarks: expected a case, found none")
    return runs


def _lean(path: Path) -> Run:
    """A run without its samples: no table or chart shows them, and those of a thousand runs don't fit in memory."""
    run = read(path)
    results = []
    for result in run.results:
        if result.times:
            processes = tuple(replace(process, samples=()) for process in result.times.processes)
            result = replace(result, times=replace(result.times, processes=processes))
        results.append(result)
    return replace(run, results=tuple(results))
