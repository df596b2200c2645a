"""The commands that read results: ``gpubench report``, ``show``, ``chart`` and ``estimate``; the options for choosing
results, for other commands. All files are read and all charts drawn before anything is written."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import RunFileError, UsageError, clean
from ..runfile.matching import matcher
from ..runfile.quantities import listed, shorten
from ..runfile.version import __version__

if TYPE_CHECKING:
    from ..cards.datasheets import Gpu
    from ..estimate.outlook import Outlook
    from ..report.charts.pictures import Drawing
    from ..report.study import Study
    from ..runfile.schema import Run

ALLOWED = ("dtype", "precision", "cache", "threads", "seed")
"""Facts that two benchmarks must share to be compared, unless a difference is allowed."""
GPUS = ("L4", "A100", "H100", "RTX 4090")
"""GPUs that people rent or own, estimated if none is named."""


# Choosing results -----------------------------------------------------------------------------------------------------


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the files and the expression that choose a study."""
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


def _study(
    paths: Iterable[str | Path], expression: str | None, baseline: str | None = None, allow: Collection[str] = ()
) -> Study:
    """Read the benchmarks that the command line chooses. Raises UsageError or RunFileError."""
    from ..report.study import Study

    return Study(read_all(paths), baseline, allow, expression=expression)


def read_all(paths: Iterable[str | Path]) -> list[Run]:
    """Read runs without their samples, which no table or chart shows. Raises UsageError or RunFileError."""
    from ..runfile.runs import read_runs

    return list(read_runs(paths, samples=False))


# gpubench report ------------------------------------------------------------------------------------------------------


def report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add = parser.add_argument
    add_runs(parser)
    files = "folder for results.csv, speedup.csv, crossover.csv, summary.md, report.html, charts/"
    add("-o", "--output", default="out", metavar="DIR", help=f"{files} (default: out)")
    against = "what speedups are measured against: a device (cpu, cuda:0), an implementation (numpy), a machine or a"
    against += " run by name; default: the machine's CPU; of several machines the first file's, for all others"
    add("--baseline", metavar="NAME", help=against)
    different = "compare benchmarks although they differ in this, and name the difference; repeatable: "
    add("--allow", action="append", choices=ALLOWED, default=[], metavar="WHAT", help=different + ", ".join(ALLOWED))
    add_charts(parser)


class Report(NamedTuple):
    """The files that were written, the results they show, and the charts that could not be drawn."""

    files: tuple[Path, ...]
    study: Study
    failed: list[str]


def report(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for files that can't be read or written."""
    terms = {"baseline": args.baseline, "allow": args.allow, "expression": args.expression}
    print_ending(write_report(args.runs, Path(args.output), args.charts, **terms))
    return 0


def print_ending(report: Report, elapsed_s: float | None = None) -> None:
    """Print the answer on one screen, and on stderr the charts that could not be drawn."""
    from ..report.render import screen_width
    from ..report.results import answer_screen

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
    from ..report.tables import summary
    from ..report.webpage import webpage

    folder, study = Path(folder), _study(paths, expression, baseline, allow)
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


# gpubench show, gpubench chart ----------------------------------------------------------------------------------------


def show_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add_runs(parser)
    formats = "table (default), markdown: a table for a page, with -k every size, or csv: what report writes as"
    formats += " results.csv"
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table", help=formats)


def show(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for files that can't be read, or where nothing matches."""
    from ..report.columns import results_columns
    from ..report.render import csv_text, screen_width
    from ..report.results import everything, page_table

    study = _study(args.runs, args.expression)
    if args.format == "csv":
        print(csv_text(results_columns(study.rows), study.rows), end="")
    elif args.format == "markdown":
        print("\n".join(page_table(study, every=bool(args.expression))))
    else:
        print("\n".join(everything(study, screen_width())))
    return 0


def chart_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add = parser.add_argument
    add_runs(parser)
    kinds = "headline, speedup, rate, time, scaling or estimate (default: of one benchmark its speedup or time by"
    kinds += " size, of several the first of a report)"
    add("--kind", metavar="KIND", help=kinds)
    add("-o", "--output", required=True, metavar="FILE", help="file to write, .svg or .png")
    add("--title", metavar="TEXT", help="title of the picture (default: what it shows)")
    add("--theme", choices=("light", "dark"), default="light", help="colours (default: light)")


def chart(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for files that can't be read, drawn or written."""
    from ..runfile.writer import picture_format, replace, require_new

    require_new(args.output)
    suffix = picture_format(args.output)
    from ..report.charts.pictures import figures_of, render

    study = _study(args.runs, args.expression)
    if args.kind == "estimate":
        from ..estimate.picture import estimate_figure

        figures = [*filter(None, [estimate_figure(study, estimates_of(study, cards_named(GPUS)))])]
        if not figures:
            raise UsageError("no estimate picture: nothing is known of what a GPU could bring to these results")
    else:
        figures = [*figures_of(study, args.kind)]
    figure, *others = figures
    if others:
        titles = listed((other.title for other in others), 6, "; ")
        drawn = f"drew {figure.title} only; -k BENCHMARK draws another one: {titles}"
        print(f"gpubench chart: {drawn}", file=sys.stderr)
    if args.title:
        figure = dataclasses.replace(figure, title=args.title, subtitle=f"{figure.title}. {figure.subtitle}")
    replace(Path(args.output), render(figure, suffix, args.theme))
    print(clean(args.output))
    return 0


# gpubench estimate ----------------------------------------------------------------------------------------------------


def estimate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add = parser.add_argument
    add("run", nargs="?", default="out", metavar="RUN", help="results file of a CPU, or its folder (default: out)")
    named = f"a GPU, such as 'H100 PCIe'; repeatable (default: {', '.join(GPUS)})"
    add("--gpu", dest="gpus", action="append", default=[], metavar="GPU", help=named)
    add_expression(parser)
    formats = ("table", "csv", "json")
    add("--format", choices=formats, default="table", help="what to print (default: table)")
    add("--list", dest="listed", action="store_true", help="list all GPUs with their figures and sources")
    limits = "An estimate can prove that a GPU is no faster, and never that it is."
    parser.epilog = f"{limits} docs/estimate.md says how wrong it was."


def estimate(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for a file or a name that can't be used."""
    from ..cards.datasheets import read_cards
    from ..estimate import printing
    from ..report.render import csv_text

    if args.listed:
        print(printing.list_text(*read_cards()))
        return 0
    study = _study([args.run], args.expression)
    estimates = estimates_of(study, cards_named(args.gpus or GPUS))
    if args.format == "csv":
        print(csv_text(printing.VALUES, estimates), end="")
    elif args.format == "json":
        print(printing.as_json(estimates, study.runs[0].machine.label), end="")
    else:
        show_estimates(study, estimates, args.expression is not None)
    return 0


def show_estimates(study: Study, estimates: Sequence[Outlook], every: bool = True) -> None:
    """Print estimates of a study, of ``every`` benchmark or the ones that count most."""
    from ..estimate.printing import lines_of, screen
    from ..report.render import screen_width

    print("\n".join(screen(lines_of(study, estimates, every), estimates, every, screen_width())))


def cards_named(names: Sequence[str]) -> list[Gpu]:
    """Return the cards of these names. Raises UsageError."""
    from ..cards.datasheets import find_card, read_cards

    cards = read_cards()[0] if names else {}
    return list({card.name: card for card in (find_card(name, cards) for name in names)}.values())


def estimates_of(study: Study, cards: Sequence[Gpu]) -> list[Outlook]:
    """Return the estimates of every job of one run on every card, card by card. Raises UsageError for several runs, and
    RunFileError where no CPU was measured."""
    from ..estimate.outlook import jobs_of, key_of, outlook_of

    run, *others = study.runs
    if others:
        raise UsageError(f"an estimate takes one run, not {len(study.runs)}: name one, as {run.path}")
    if not (jobs := jobs_of(run)):
        raise RunFileError(f"{run.path}: holds no times of a CPU, from which a GPU could be estimated")
    rows = {key_of(row.result) for row in study.rows}
    if not (jobs := [job for job in jobs if key_of(job.case) in rows]):
        lost = dict.fromkeys(f"{row.result.status}, {row.result.reason}" for row in study.rows if row.result.reason)
        raise UsageError(f"no time on a CPU to estimate from: {listed(lost, 3) or 'not measured there'}")
    return [outlook_of(job, card) for card in cards for job in jobs]
