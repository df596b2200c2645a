"""``gpubench report``: all files are read and all charts drawn before anything is written. And the options that choose
results, for other commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError, clean
from ..runfile.matching import matcher
from ..runfile.quantities import listed, shorten
from ..runfile.version import __version__

if TYPE_CHECKING:
    from ..report.charts.pictures import Drawing
    from ..report.study import Study
    from ..runfile.schema import Run

ALLOWED = ("dtype", "precision", "cache", "threads", "seed")
"""What two benchmarks must share to be compared, unless a difference is allowed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add = parser.add_argument
    add_runs(parser)
    files = "folder for results.csv, speedup.csv, crossover.csv, summary.md, report.html, charts/"
    add("-o", "--output", default="out", metavar="DIR", help=f"{files} (default: out)")
    against = (
        "what speedups are measured against: a device (cpu, cuda:0), an implementation (numpy), a machine or a run"
    )
    against += " by name; default: the machine's CPU; of several machines the first file's, for all others"
    add("--baseline", metavar="NAME", help=against)
    different = "compare benchmarks although they differ in this, and name the difference; repeatable: "
    add("--allow", action="append", choices=ALLOWED, default=[], metavar="WHAT", help=different + ", ".join(ALLOWED))
    add_charts(parser)


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the files and the expression of :func:`read_study`."""
    files = "results file, or a folder (default: out)"
    parser.add_argument("runs", nargs="*", default=["out"], metavar="RUN", help=files)
    add_expression(parser)


def add_charts(parser: argparse._ActionsContainer) -> None:
    """Add the option that ``run`` has too."""
    which = ("default", "all", "none")
    parser.add_argument("--charts", choices=which, default="default", help="the first charts (default), all, or none")


def add_expression(group: argparse._ActionsContainer) -> None:
    """Add ``-k``, which chooses benchmarks."""
    text = "only benchmarks whose name matches: ResNet-50, networks, n=64, 'sort and not numpy'; repeated: any of them"
    group.add_argument("-k", dest="expression", action=_AnyOf, metavar="EXPR", help=text)


class _AnyOf(argparse.Action):
    """Joins the expressions of several ``-k`` by ``or``; a wrong one is refused before a file is read."""

    def __call__(self, parser: argparse.ArgumentParser, args: Any, value: Any, option: str | None = None) -> None:
        try:
            matcher(value)
        except UsageError as error:
            parser.error(str(error))
        earlier = getattr(args, self.dest)
        setattr(args, self.dest, value if earlier is None else f"({earlier}) or ({value})")


def chosen(args: argparse.Namespace) -> list[str]:
    """Return the expression of ``-k`` as an argument of pytest."""
    return [] if args.expression is None else [f"--gpubench-match={args.expression}"]


class Report(NamedTuple):
    """The files that were written, the results they show, and the charts that could not be drawn."""

    files: tuple[Path, ...]
    study: Study
    failed: list[str]


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for files that can't be read or written."""
    terms = {"baseline": args.baseline, "allow": args.allow, "expression": args.expression}
    print_ending(write_report(args.runs, Path(args.output), args.charts, **terms))
    return 0


def print_ending(report: Report, elapsed_s: float | None = None) -> None:
    """Print the answer on one screen, and on stderr the charts that could not be drawn."""
    from ..report.render import screen_width
    from ..report.screen import answer_screen

    for line in report.failed:
        print(f"gpubench: {line}", file=sys.stderr)
    print("\n".join(answer_screen(report.study, screen_width(), files=report.files, elapsed_s=elapsed_s)))


def write_report(
    paths: Iterable[str | Path],
    folder: str | Path,
    charts: str = "default",
    *,
    baseline: str | None = None,
    allow: Collection[str] = (),
    expression: str | None = None,
) -> Report:
    """Write all files of a report. Raises UsageError or RunFileError before anything is written."""
    from ..report.answer import Answer
    from ..report.columns import csv_files
    from ..report.output import prepare_folder, write_folder
    from ..report.study import Study
    from ..report.tables import summary
    from ..report.webpage import webpage

    folder, study = Path(folder), Study(read_all(paths), baseline, allow, expression=expression)
    prepare_folder(folder)
    answer, failed = Answer(study), list[str]()
    pictures: list[Drawing] = []
    by_size: list[Drawing] = []
    if charts != "none":
        try:  # the library itself may be broken here
            from ..report.charts.pictures import of_report
        except Exception as error:
            why = shorten(" ".join(str(error).split()), 120)
            failed = [f"pictures left out: {type(error).__name__}: {why}"]
        else:
            pictures, by_size, failed = of_report(answer, charts == "all")
    files: dict[str, str | bytes] = {f"charts/{each.figure.name}-light.svg": each.svg for each in pictures}
    files |= csv_files(study)
    files["summary.md"] = summary(answer, [(each.figure.title, each.figure.name) for each in pictures])
    files["report.html"] = webpage(answer, pictures, by_size, __version__)
    replaced = [name for name in files if (folder / name).exists() and not name.startswith("charts/")]
    written = write_folder(folder, files)
    if replaced:
        print(clean(f"gpubench: {folder}: replaced an earlier report's {listed(replaced)}"), file=sys.stderr)
    return Report(tuple(written), study, failed)


def read_study(args: argparse.Namespace) -> Study:
    """Read the benchmarks that the command line chooses. Raises UsageError or RunFileError."""
    from ..report.study import Study

    return Study(read_all(args.runs), expression=args.expression)


def read_all(paths: Iterable[str | Path]) -> list[Run]:
    """Read runs without their samples, which no table or chart shows. Raises UsageError or RunFileError."""
    from ..runfile.runs import read_runs

    return list(read_runs(paths, samples=False))
