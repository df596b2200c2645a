"""``gpubench share``: write the card of a run, check it, and print the address of a form for it. Nothing is sent."""

from __future__ import annotations

import argparse
from importlib import metadata
from pathlib import Path
from urllib.parse import urlencode

FORM = "share-machine.yml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("run", metavar="RUN", help="results file, or the folder of one")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="card to write (default: named by machine and day, here)"
    )
    where = "repository on GitHub that collects cards, or its address (default: the one that gpubench names as its own)"
    parser.add_argument("--repository", metavar="OWNER/NAME", help=where)


def main(args: argparse.Namespace) -> int:
    """Returns 0, or 1 for a run that may not be published. Raises UsageError or RunFileError."""
    from ..report import words
    from ..runfile import writer
    from ..runfile.card import card_name, card_text
    from .check import read_card, refusals, remarks
    from .estimate import sole_run

    path = sole_run(args.run).path
    card = read_card(path)
    reasons = [card] if isinstance(card, str) else refusals(card)
    if isinstance(card, str) or reasons:
        print("\n  ".join([f"{path} can't be published:", *reasons]))
        return 1
    content = card_text(card.sound)
    target = Path(args.output or card_name(card.run, content))
    writer.require_new(target)
    writer.replace(target, content.encode())
    machine = words.machine(card.run)
    print("\n  ".join([f"{target}: {machine}", *(f"unusual: {note}" for note in remarks(card))]))
    if repository := args.repository or _source():
        print(f"\nTo publish it, open this address, attach {target.name} to the form, and send the form:\n")
        print(_form_address(repository, machine))
    else:
        print("\nNo repository that collects cards is known: name one by --repository OWNER/NAME, for its form.")
    print(
        "\nNothing was sent. The card holds what `gpubench show` prints of it, and no name, path or address of yours."
    )
    return 0


def _source() -> str:
    """The repository that the package names, empty if none."""
    try:
        entries = metadata.metadata("pytest-gpubench").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    return next((entry.partition(", ")[2] for entry in entries if entry.startswith("Source, ")), "")


def _form_address(repository: str, machine: str) -> str:
    filled = urlencode({"template": FORM, "title": f"Machine: {machine}", "machine": machine})
    place = repository if "://" in repository else f"https://github.com/{repository}"
    return f"{place.rstrip('/')}/issues/new?{filled}"
