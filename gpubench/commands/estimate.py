"""``gpubench estimate``: the likely gain of benchmarks measured on a CPU on GPUs that aren't installed here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import RunFileError, UsageError
from ..runfile.quantities import listed
from .report import add_expression, read_all

if TYPE_CHECKING:
    from ..estimate.datasheets import Gpu
    from ..estimate.outlook import Outlook
    from ..report.study import Study
    from ..runfile.schema import Run

GPUS = ("L4", "A100", "H100", "RTX 4090")
"""GPUs that people rent or own, estimated if none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add = parser.add_argument
    add("run", nargs="?", default="out", metavar="RUN", help="results file of a CPU, or its folder (default: out)")
    named = f"another GPU, such as 'H100 PCIe'; repeatable (default: {', '.join(GPUS)})"
    add("--gpu", dest="gpus", action="append", default=[], metavar="GPU", help=named)
    add_expression(parser)
    formats = ("table", "csv", "json")
    add("--format", choices=formats, default="table", help="what to print (default: table)")
    add("--list", dest="listed", action="store_true", help="list all GPUs with their figures and sources")
    limits = "An estimate can prove that a GPU is no faster, and never that it is."
    parser.epilog = f"{limits} docs/estimate.md says how wrong it was."


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for a file or a name that can't be used."""
    from ..estimate import printing
    from ..estimate.datasheets import read_cards
    from ..report.render import csv_text
    from ..report.study import Study

    if args.listed:
        print(printing.list_text(*read_cards()))
        return 0
    study = Study(read_all([args.run]), expression=args.expression)
    estimates = estimates_of(study, cards_named(args.gpus or GPUS))
    if args.format == "csv":
        print(csv_text(printing.VALUES, estimates), end="")
    elif args.format == "json":
        print(printing.as_json(estimates, study.runs[0].machine.label), end="")
    else:
        _show(study, estimates, args.expression is not None)
    return 0


def _show(study: Study, estimates: Sequence[Outlook], every: bool) -> None:
    from ..estimate.printing import lines_of, screen
    from ..report.render import screen_width

    print("\n".join(screen(lines_of(study, estimates, every), estimates, every, screen_width())))


def cards_named(names: Sequence[str]) -> list[Gpu]:
    """Return the cards of these names. Raises UsageError."""
    from ..estimate.datasheets import find_card, read_cards

    cards = read_cards()[0] if names else {}
    return list({card.name: card for card in (find_card(name, cards) for name in names)}.values())


def show_estimates(run: Run, cards: Sequence[Gpu]) -> None:
    """Print the estimate of every benchmark that a run timed on its CPU, on these GPUs."""
    from ..report.study import Study

    print()
    _show(study := Study([run]), estimates_of(study, cards), every=True)


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
