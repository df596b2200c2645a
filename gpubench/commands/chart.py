"""``gpubench chart``: one picture from results files, as wanted."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..options import PICTURE_KINDS
from ..runfile.reader import clean
from .show import add_expression, chosen, selected

if TYPE_CHECKING:
    from ..runfile.schema import Run

_FORMATS = ("svg", "png")
_LEAST, _MOST = {"width": 560, "height": 240}, 4000
"""Pixels; below the least the words no longer fit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    kinds = ", ".join(PICTURE_KINDS)
    first = f"what to draw: {kinds} (default: {PICTURE_KINDS[0]}, or else the first that the results make)"
    add("--kind", metavar="KIND", help=first)
    add_expression(parser)
    add("-o", "--output", required=True, metavar="FILE", help="file to write, .svg or .png")
    add("--title", metavar="TEXT", help="title of the picture (default: what the numbers show)")
    add("--width", type=int, metavar="PIXELS", help="default: 800")
    add("--height", type=int, metavar="PIXELS", help="default: what its panels need")
    name = "what the picture calls a device, for example cuda:0=H100; may be repeated"
    add("--label", dest="labels", action="append", default=[], metavar="DEVICE=TEXT", help=name)
    add("--theme", choices=("light", "dark"), default="light", help="colours (default: light)")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read, drawn or written."""
    from ..runfile.writer import replace, require_new

    require_new(args.output)
    replace(Path(args.output), _picture(args))
    print(clean(args.output))
    return 0


def _picture(args: argparse.Namespace) -> bytes:
    """Everything that can be refused is refused before a file is read."""
    if args.kind not in (None, *PICTURE_KINDS):
        raise UsageError(f"unknown kind of picture {args.kind!r}: choose from {', '.join(PICTURE_KINDS)}")
    suffix = Path(args.output).suffix.lower().removeprefix(".")
    if suffix not in _FORMATS:
        raise UsageError(f"{args.output}: a picture's name ends in {' or '.join(f'.{name}' for name in _FORMATS)}")
    given = {name: value for name in (*_LEAST, "title") if (value := getattr(args, name)) is not None}
    for name, least in _LEAST.items():
        if not least <= given.get(name, least) <= _MOST:
            raise UsageError(f"--{name} {given[name]}: expected {least} to {_MOST} pixels")
    chosen(args)
    from ..report.charts.pictures import figures_of, render
    from ..report.labels import listed
    from ..report.table import results_table
    from .report import read_all

    runs = read_all(args.runs)
    labels = device_labels(runs, args.labels)
    results = selected(results_table(runs), args.expression, timed=True)
    figure, *others = figures_of(results, args.kind, labels)
    kind = figure.kind.replace("_", "-")
    names = [other.name.removeprefix("speedup-").removeprefix(f"{kind}-") for other in (figure, *others)]
    names = [re.sub(r"-\d+$", "", name.rpartition("-")[2] if kind == "rate" else name) for name in names]
    if names := [name for name in dict.fromkeys(names) if name != names[0]]:
        words = f"drew {figure.subject or figure.title}; to draw another, add -k: {listed(names)}"
        print(f"gpubench chart: {words}", file=sys.stderr)
    if args.title and figure.subject:  # the title that it replaces begins with it
        given["subtitle"] = f"{figure.subject}: {figure.subtitle}"
    try:
        (content,) = render([dataclasses.replace(figure, **given)], [suffix], [args.theme]).values()
    except ValueError as error:
        raise UsageError(str(error)) from None
    return content


def device_labels(runs: Sequence[Run], labels: Iterable[str]) -> dict[tuple[str, str], str]:
    """What devices are called, by name and maker's name. Raises UsageError for a device that isn't there."""
    called: dict[tuple[str, str], str] = {}
    known = {(device.name, device.label): None for run in runs for device in run.machine.devices}
    for words in labels:
        name, _, label = map(str.strip, words.partition("="))
        if not name or not label:
            raise UsageError(f"invalid label {words!r}: write DEVICE=TEXT, for example cuda:0=H100")
        matching = [device for device in known if name.casefold() in map(str.casefold, device)]
        if not matching:
            names = ", ".join(f"{device} ({maker})" if maker else device for device, maker in known)
            raise UsageError(f"--label {words!r}: no device is called {name!r}: choose from {names}")
        called |= dict.fromkeys(matching, label)
    return called
