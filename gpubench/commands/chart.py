"""``gpubench chart``: one picture from results files, as wanted."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ..errors import GpubenchError, UsageError
from ..options import add_expression
from ..runfile.matching import matcher

if TYPE_CHECKING:
    import pandas as pd

    from ..report.charts.page import Figure
    from ..runfile.schema import DeviceFacts, Run

PICTURE_KINDS = {
    # name: (module of report.charts, kind of its figures)
    "speedup": ("speedup", "speedup"),
    "rate": ("rate", "rate"),
    "time": ("rate", "time"),
    "roofline": ("roofline", "roofline"),
    "break-even": ("break_even", "break_even"),
}
_THEMES = ("light", "dark")
_FORMATS = ("svg", "png")
_WIDTHS, _HEIGHTS = (400, 4000), (240, 4000)
"""Least and most pixels; below them the words no longer fit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    parser.add_argument("--kind", required=True, metavar="KIND", help=f"what to draw: {', '.join(PICTURE_KINDS)}")
    add_expression(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, .svg or .png")
    parser.add_argument("--title", metavar="TEXT", help="title of the picture (default: what the numbers show)")
    parser.add_argument("--width", type=int, metavar="PIXELS", help="default: 800")
    parser.add_argument("--height", type=int, metavar="PIXELS", help="default: what its panels need")
    parser.add_argument(
        "--label",
        dest="labels",
        action="append",
        default=[],
        metavar="DEVICE=TEXT",
        help="what the picture calls a device, for example cuda:0=H100; may be repeated",
    )
    parser.add_argument("--theme", choices=_THEMES, default=_THEMES[0], help="colours (default: light)")


def main(args: argparse.Namespace) -> int:
    """Returns 0, or 2 with one line on stderr for what can't be read, drawn or written."""
    from ..runfile.writer import replace

    try:
        replace(Path(args.output), _picture(args))
    except GpubenchError as error:
        print(f"gpubench chart: {error}", file=sys.stderr)
        return 2
    print(args.output)
    return 0


def _picture(args: argparse.Namespace) -> bytes:
    """Everything that can be refused is refused before a file is read."""
    if args.kind not in PICTURE_KINDS:
        raise UsageError(f"unknown kind of picture {args.kind!r}: choose from {', '.join(PICTURE_KINDS)}")
    suffix = Path(args.output).suffix.lower().removeprefix(".")
    if suffix not in _FORMATS:
        raise UsageError(f"{args.output}: a picture's name ends in {' or '.join(f'.{name}' for name in _FORMATS)}")
    for name, value, (least, most) in (("--width", args.width, _WIDTHS), ("--height", args.height, _HEIGHTS)):
        if value is not None and not least <= value <= most:
            raise UsageError(f"{name} {value}: expected {least} to {most} pixels")
    matches = matcher(args.expression) if args.expression is not None else None
    from ..report.table import records, results_table
    from .report import read_all
    from .show import searchable_names

    results = results_table(labelled(read_all(args.runs), args.labels))
    if matches:
        chosen = [bool(row["_result"].times) and matches(searchable_names(row)) for row in records(results)]
        if not any(chosen):
            raise UsageError(_nothing_matches(args.expression, results))
        results = results[chosen]
    from ..report.charts.pictures import render

    wanted: dict[str, Any] = {"title": args.title, "width": args.width, "height": args.height}
    given = {name: value for name, value in wanted.items() if value is not None}
    figure = dataclasses.replace(one_figure(results, args.kind), **given)
    (content,) = render([figure], [suffix], [args.theme]).values()
    return content


def one_figure(results: pd.DataFrame, kind: str) -> Figure:
    """The figure of that kind that a report shows first. Raises UsageError where these results don't make one."""
    from ..report.charts.material import ChartData
    from ..report.charts.pictures import plan
    from ..report.speedup import pair

    module, wanted = PICTURE_KINDS[kind]
    data = ChartData(results, pair(results).table)
    figures = plan(data, every=True, kinds=[module])
    for figure in figures:
        if figure.kind == wanted:
            return figure
    possible = [
        name
        for name, (other, made) in PICTURE_KINDS.items()
        if any(figure.kind == made for figure in plan(data, every=True, kinds=[other]))
    ]
    advice = f"these results make {', '.join(possible)}" if possible else "a picture needs three values"
    raise UsageError(f"no {kind} picture can be made of these results: {advice}")


def labelled(runs: Sequence[Run], labels: Iterable[str]) -> list[Run]:
    """The runs with their devices called as wanted. Raises UsageError for a device that isn't there."""
    runs = list(runs)
    for words in labels:
        name, separator, label = words.partition("=")
        if not name.strip() or not separator or not label.strip():
            raise UsageError(f"invalid label {words!r}: write DEVICE=TEXT, for example cuda:0=H100")
        known = [device for run in runs for device in run.machine.devices]
        if not any(_called(device, name) for device in known):
            names = dict.fromkeys(
                f"{device.name} ({device.label})" if device.label else device.name for device in known
            )
            raise UsageError(f"--label {words!r}: no device is called {name!r}: choose from {', '.join(names)}")
        runs = [_relabelled(run, name, label.strip()) for run in runs]
    return runs


def _called(device: DeviceFacts, name: str) -> bool:
    return name.strip().casefold() in (device.name.casefold(), device.label.casefold())


def _relabelled(run: Run, name: str, label: str) -> Run:
    devices = [
        structs.replace(device, label=label) if _called(device, name) else device for device in run.machine.devices
    ]
    return structs.replace(run, machine=structs.replace(run.machine, devices=tuple(devices)))


def _nothing_matches(expression: str, results: pd.DataFrame) -> str:
    names = sorted({result.workload for result in results["_result"] if result.times})
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"no benchmark matches {expression!r}: choose from {shown}"
