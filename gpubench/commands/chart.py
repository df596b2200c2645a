"""``gpubench chart``: one picture from results files, as wanted."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, clean
from ..runfile.quantities import listed
from .report import add_runs, read_study

if TYPE_CHECKING:
    from ..report.charts.page import Figure
    from ..report.study import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add = parser.add_argument
    add_runs(parser)
    kinds = "headline, speedup, rate, time, scaling or estimate (default: of one benchmark its speedup or time by"
    kinds += " size, of several the first of a report)"
    add("--kind", metavar="KIND", help=kinds)
    add("-o", "--output", required=True, metavar="FILE", help="file to write, .svg or .png")
    add("--title", metavar="TEXT", help="title of the picture (default: what it shows)")
    add("--theme", choices=("light", "dark"), default="light", help="colours (default: light)")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for files that can't be read, drawn or written."""
    from ..runfile.writer import picture_format, replace, require_new

    require_new(args.output)
    suffix = picture_format(args.output)
    from ..report.charts.pictures import figures_of, render

    study = read_study(args)
    if args.kind == "estimate":
        figure, others = _estimate(study), []
    else:
        figure, *others = figures_of(study, args.kind)
    if others:
        titles = listed((other.title for other in others), 6, "; ")
        drawn = f"drew {figure.title} only; -k BENCHMARK draws another one: {titles}"
        print(f"gpubench chart: {drawn}", file=sys.stderr)
    if args.title:
        figure = dataclasses.replace(figure, title=args.title, subtitle=f"{figure.title}. {figure.subtitle}")
    replace(Path(args.output), render(figure, suffix, args.theme))
    print(clean(args.output))
    return 0


def _estimate(study: Study) -> Figure:
    from ..estimate.picture import estimate_figure
    from .estimate import GPUS, cards_named, estimates_of

    figure = estimate_figure(study, estimates_of(study, cards_named(GPUS)))
    if figure is None:
        raise UsageError("no estimate picture: nothing is known of what a GPU could bring to these results")
    return figure
