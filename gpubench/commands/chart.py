"""``gpubench chart``: one picture from results files, as wanted."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from ..errors import UsageError
from ..options import add_expression, chosen

if TYPE_CHECKING:
    import pandas as pd

    from ..report.charts.page import Figure
    from ..runfile.schema import DeviceFacts, Run

PICTURE_KINDS = ("speedup", "rate", "time", "roofline", "break-even")
_FORMATS = ("svg", "png")
_LEAST, _MOST = {"width": 400, "height": 240}, 4000
"""Pixels; below the least the words no longer fit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    add("--kind", required=True, metavar="KIND", help=f"what to draw: {', '.join(PICTURE_KINDS)}")
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
    from ..runfile.writer import replace

    replace(Path(args.output), _picture(args))
    print(args.output)
    return 0


def _picture(args: argparse.Namespace) -> bytes:
    """Everything that can be refused is refused before a file is read."""
    if args.kind not in PICTURE_KINDS:
        raise UsageError(f"unknown kind of picture {args.kind!r}: choose from {', '.join(PICTURE_KINDS)}")
    suffix = Path(args.output).suffix.lower().removeprefix(".")
    if suffix not in _FORMATS:
        raise UsageError(f"{args.output}: a picture's name ends in {' or '.join(f'.{name}' for name in _FORMATS)}")
    given = {name: value for name in (*_LEAST, "title") if (value := getattr(args, name)) is not None}
    for name, least in _LEAST.items():
        if not least <= given.get(name, least) <= _MOST:
            raise UsageError(f"--{name} {given[name]}: expected {least} to {_MOST} pixels")
    chosen(args)
    from ..report.table import results_table
    from .report import read_all
    from .show import selected

    results = selected(results_table(labelled(read_all(args.runs), args.labels)), args.expression, timed=True)
    from ..report.charts.pictures import render

    figure = dataclasses.replace(one_figure(results, args.kind), **given)
    (content,) = render([figure], [suffix], [args.theme]).values()
    return content


def one_figure(results: pd.DataFrame, kind: str) -> Figure:
    """The figure of that kind that a report shows first. Raises UsageError where these results don't make one."""
    from ..report.charts.material import ChartData
    from ..report.charts.pictures import plan
    from ..report.speedup import pair

    data = ChartData(results, pair(results).table)

    def first(kind: str) -> Figure | None:
        wanted = kind.replace("-", "_")
        figures = plan(data, every=True, kinds=["rate" if wanted == "time" else wanted])
        return next((figure for figure in figures if figure.kind == wanted), None)

    if figure := first(kind):
        return figure
    possible = [name for name in PICTURE_KINDS if first(name)]
    advice = f"these results make {', '.join(possible)}" if possible else "a picture needs three values"
    raise UsageError(f"no {kind} picture can be made of these results: {advice}")


def labelled(runs: Sequence[Run], labels: Iterable[str]) -> list[Run]:
    """The runs with their devices called as wanted. Raises UsageError for a device that isn't there."""
    runs = list(runs)
    for words in labels:
        name, _, label = map(str.strip, words.partition("="))
        if not name or not label:
            raise UsageError(f"invalid label {words!r}: write DEVICE=TEXT, for example cuda:0=H100")
        known = [device for run in runs for device in run.machine.devices]
        if not any(_called(device, name) for device in known):
            names = ", ".join(
                dict.fromkeys(f"{each.name} ({each.label})" if each.label else each.name for each in known)
            )
            raise UsageError(f"--label {words!r}: no device is called {name!r}: choose from {names}")
        runs = [_relabelled(run, name, label) for run in runs]
    return runs


def _called(device: DeviceFacts, name: str) -> bool:
    return name.casefold() in (device.name.casefold(), device.label.casefold())


def _relabelled(run: Run, name: str, label: str) -> Run:
    devices = run.machine.devices
    named = tuple(structs.replace(each, label=label) if _called(each, name) else each for each in devices)
    return structs.replace(run, machine=structs.replace(run.machine, devices=named))
