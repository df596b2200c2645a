"""``gpubench estimate``: what GPUs that aren't installed here could gain for benchmarks measured on a CPU."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RunFileError, UsageError
from .choice import add_expression

if TYPE_CHECKING:
    from ..devices.datasheets import Gpu
    from ..estimate.outlook import Job, MeasuredRun, Outlook
    from ..runfile.schema import Run

_FORMATS = ("table", "csv", "json", "markdown")
_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".svg": "svg", ".png": "png"}
_PICTURES = ("svg", "png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="results file of a CPU, or the folder of a run")
    named = "a GPU by name (L4, 'H100 SXM'), or a results file of a machine that has one; repeatable"
    add("--gpu", dest="gpus", action="append", default=[], metavar="CARD", help=named)
    add_expression(parser)
    add("--format", choices=_FORMATS, help="what to print (default: table)")
    written = "write to FILE: .csv, .json and .md choose the format, .svg and .png draw a picture"
    add("-o", "--output", metavar="FILE", help=written)
    add("--theme", choices=("light", "dark"), default="light", help="background of the picture (default: light)")
    add("--list", dest="listed", action="store_true", help="list all GPUs with their figures and sources")
    own = "a file with further GPUs, like gpubench/devices/cards.json; repeatable"
    add("--cards", action="append", default=[], metavar="FILE", help=own)
    parser.epilog = (
        "An estimate can prove that a GPU is no faster, and never that it is. docs/estimate.md says how wrong it was."
    )


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read, named or estimated."""
    from ..devices.datasheets import read_cards
    from ..estimate import printing
    from ..runfile import writer

    cards, sources = read_cards(args.cards)
    if args.listed:
        print(printing.list_text(cards, sources))
        return 0
    if args.run is None:
        raise UsageError("name a results file: gpubench estimate out/run.json --gpu L4; --list shows the GPUs")
    if not args.gpus:
        raise UsageError("name a GPU, for example --gpu L4; gpubench estimate --list shows all")
    if args.output:
        writer.require_new(args.output)
    form = args.format or _form_of(args.output)
    targets = [target_of(text, cards) for text in dict.fromkeys(args.gpus)]
    run = sole_run(args.run)
    estimates = estimates_of(_chosen_jobs(run, args.expression), targets)
    content = _content(form, estimates, run, args)
    if args.output:
        writer.replace(Path(args.output), content)
        print(args.output)
    else:
        print(content.decode(), end="")
    return 0


def _content(form: str, estimates: list[Outlook], run: Run, args: argparse.Namespace) -> bytes:
    from ..estimate import printing
    from ..report.render import csv_text

    every = args.expression is not None
    if form in _PICTURES:
        from ..estimate.picture import figure_of
        from ..report.charts.pictures import render
        from ..report.study import Study

        figure = figure_of(Study([run], expression=args.expression), estimates)
        return next(iter(render([figure], [form], [args.theme]).values()))
    text = {
        "table": lambda: "\n".join([*printing.screen(estimates, every, _width()), ""]),
        "csv": lambda: csv_text(printing.VALUES, estimates),
        "json": lambda: printing.as_json(estimates, run.machine.label),
        "markdown": lambda: printing.as_markdown(estimates, every),
    }[form]()
    return text.encode(errors="replace")


def _width() -> int:
    return shutil.get_terminal_size((160, 24)).columns


def _form_of(output: str | None) -> str:
    if output is None:
        return "table"
    if (form := _SUFFIXES.get(Path(output).suffix)) is None:
        raise UsageError(f"{output}: choose a --format, or a name that ends in {', '.join(_SUFFIXES)}")
    return form


def cards_named(names: Sequence[str]) -> list[Gpu | MeasuredRun]:
    """The cards that ``--gpu`` names. Raises UsageError or RunFileError."""
    from ..devices.datasheets import read_cards

    cards = read_cards()[0] if names else {}
    return [target_of(name, cards) for name in dict.fromkeys(names)]


def show_estimates(run: Run, targets: Sequence[Gpu | MeasuredRun]) -> None:
    """Print what these GPUs could gain for every benchmark that a run timed on its CPU."""
    from ..estimate import printing

    lines = printing.screen(estimates_of(_chosen_jobs(run, None), targets), every=True, width=_width())
    print("\n".join(["", *lines]))


def sole_run(path: str) -> Run:
    """The run of a file or a folder. Raises UsageError where a folder holds several."""
    from .report import read_all

    runs = read_all([path])
    if len(runs) > 1:
        raise UsageError(f"{path}: holds {len(runs)} runs: name one, for example {runs[0].path}")
    return runs[0]


def target_of(text: str, cards: Mapping[str, Gpu]) -> Gpu | MeasuredRun:
    """A card by name, or the run of a results file that was measured on one. Raises UsageError or RunFileError."""
    from ..devices.datasheets import find_card
    from ..estimate.outlook import MeasuredRun
    from ..runfile.folder import not_there

    if not os.path.exists(text):
        if text.endswith(".json") or os.sep in text:
            raise not_there(Path(text))
        return find_card(text, cards)
    try:
        return MeasuredRun(sole_run(text))
    except ValueError as error:
        raise RunFileError(f"{text}: {error}") from None


def _chosen_jobs(run: Run, expression: str | None) -> list[Job]:
    from ..estimate.outlook import jobs_of, key_of
    from ..report.rows import rows_of

    jobs = jobs_of(run)
    if not jobs:
        raise RunFileError(f"{run.path}: holds no results of a CPU, from which a GPU could be estimated")
    chosen = {key_of(row.result) for row in rows_of([run], expression)}
    return [job for job in jobs if key_of(job.case) in chosen]


def estimates_of(jobs: Sequence[Job], targets: Sequence[Gpu | MeasuredRun]) -> list[Outlook]:
    """The estimates of every job on every card, card by card."""
    from ..devices.datasheets import Gpu
    from ..estimate.outlook import outlook_of

    return [
        outlook_of(job, target) if isinstance(target, Gpu) else target.estimate(job)
        for target in targets
        for job in jobs
    ]
