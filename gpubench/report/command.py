"""``gpubench report``: everything is read and drawn first and written after."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import GpubenchError, RunFileError, UsageError
from ..runfile import Foreign, Run, read
from . import output, pairs, summary, table, trend
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
        report = write_report(args.runs, args.output, args.baseline, args.charts, args.formats)
    except GpubenchError as error:
        print(f"gpubench report: {error}", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × is no reason to fail
    summary.show(report.summary)
    charts = sum(path.parent != report.folder for path in report.files)
    print(f"{report.folder}: results.csv, speedup.csv, summary.md" + (", charts/" if charts else ""))
    return 0


def write_report(
    paths: Iterable[str | Path],
    folder: str | Path,
    baseline: str | None = None,
    charts: bool = True,
    formats: Sequence[str] = FORMATS,
) -> Report:
    """Raises UsageError or RunFileError before anything is written."""
    folder = Path(folder)
    runs = read_all(paths)
    results = table.frame(runs)
    # what a machine's many runs show is a trend; side by side they would be a hundred lines in every chart
    shown = runs if baseline else trend.latest(runs)
    compared = results if len(shown) == len(runs) else table.frame(shown)
    chosen = pairs.resolve(compared, baseline)
    speedups = pairs.pair(compared, chosen)
    output.prepare(folder)
    pictures: dict[str, bytes] = {}
    drawn = []
    if charts:
        from . import draw, figures

        drawn = [*figures.plan(compared, speedups, chosen), *figures.plan_trends(trend.trends(runs, results))]
        pictures = draw.render(drawn, formats)
    words = summary.summarise(shown, compared, speedups, drawn, formats)
    tables = {
        "results.csv": table.to_csv(results),
        "speedup.csv": table.to_csv(speedups),
        "summary.md": summary.markdown(words),
    }
    return Report(folder, tuple(output.save(folder, tables, pictures)), words)


def read_all(paths: Iterable[str | Path]) -> list[Run]:
    """Run files in the order given, each once; of a folder its run files by name, other JSON files left out."""
    found: dict[Path, Run] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            found.setdefault(path.resolve(), _lean(path))
            continue
        inside: dict[Path, Run] = {}
        for file in sorted(path.glob("*.json")):
            with suppress(Foreign):
                inside[file.resolve()] = _lean(file)
        if not inside:
            raise UsageError(f"{path}: no run file in this folder (*.json written by pytest --benchmark-json)")
        found |= {file: run for file, run in inside.items() if file not in found}
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
