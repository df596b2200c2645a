"""``gpubench estimate``: what GPUs that aren't installed here could gain for benchmarks measured on a CPU."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import RunFileError, UsageError
from .choice import add_expression

if TYPE_CHECKING:
    from ..devices.datasheets import Gpu
    from ..estimate.outlook import Outlook
    from ..runfile.schema import Run

_FORMATS = ("table", "csv", "json", "markdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="results file of a CPU, or the folder of a run")
    add("--gpu", dest="gpus", action="append", default=[], metavar="GPU", help="L4, 'H100 SXM', …; repeatable")
    add_expression(parser)
    add("--format", choices=_FORMATS, default="table", help="what to print (default: table)")
    add("--list", dest="listed", action="store_true", help="list all GPUs with their figures and sources")
    parser.epilog = (
        "An estimate can prove that a GPU is no faster, and never that it is. docs/estimate.md says how wrong it was."
    )


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read, named or estimated."""
    from ..devices.datasheets import read_cards
    from ..estimate import printing
    from ..report.render import csv_text

    if args.listed:
        print(printing.list_text(*read_cards()))
        return 0
    if args.run is None:
        raise UsageError("name a results file: gpubench estimate out/run.json --gpu L4; --list shows the GPUs")
    if not args.gpus:
        raise UsageError("name a GPU, for example --gpu L4; gpubench estimate --list shows all")
    cards, run, every = cards_named(args.gpus), _sole_run(args.run), args.expression is not None
    estimates = _estimates(run, cards, args.expression)
    text = {
        "table": lambda: "\n".join([*printing.screen(estimates, every, _width()), ""]),
        "csv": lambda: csv_text(printing.VALUES, estimates),
        "json": lambda: printing.as_json(estimates, run.machine.label),
        "markdown": lambda: printing.as_markdown(estimates, every),
    }[args.format]()
    print(text, end="")
    return 0


def _width() -> int:
    return shutil.get_terminal_size((160, 24)).columns


def cards_named(names: Sequence[str]) -> list[Gpu]:
    """The cards that ``--gpu`` names. Raises UsageError."""
    from ..devices.datasheets import find_card, read_cards

    cards = read_cards()[0] if names else {}
    return [find_card(name, cards) for name in dict.fromkeys(names)]


def show_estimates(run: Run, cards: Sequence[Gpu]) -> None:
    """Print what these GPUs could gain for every benchmark that a run timed on its CPU."""
    from ..estimate import printing

    print("\n".join(["", *printing.screen(_estimates(run, cards), every=True, width=_width())]))


def _sole_run(path: str) -> Run:
    """The run of a file or a folder. Raises UsageError where a folder holds several."""
    from .report import read_all

    runs = read_all([path])
    if len(runs) > 1:
        raise UsageError(f"{path}: holds {len(runs)} runs: name one, for example {runs[0].path}")
    return runs[0]


def _estimates(run: Run, cards: Sequence[Gpu], expression: str | None = None) -> list[Outlook]:
    """The estimates of every job on every card, card by card."""
    from ..estimate.outlook import jobs_of, key_of, outlook_of
    from ..report.rows import rows_of

    jobs = jobs_of(run)
    if not jobs:
        raise RunFileError(f"{run.path}: holds no results of a CPU, from which a GPU could be estimated")
    chosen = {key_of(row.result) for row in rows_of([run], expression)}
    return [outlook_of(job, card) for card in cards for job in jobs if key_of(job.case) in chosen]
