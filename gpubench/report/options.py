"""The options of ``gpubench report``; standard library only, so that ``--help`` loads nothing else."""

from __future__ import annotations

import argparse

FORMATS = ("svg", "png")
ALLOWED = ("dtype", "precision", "regime", "cache", "threads", "seed")
"""The terms of parity: cases that differ in one are paired only where it is allowed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`gpubench.report.command.main` reads."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run file, or a folder of them")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="DIR",
        help="folder for results.csv, speedup.csv, crossover.csv, summary.md, charts/",
    )
    parser.add_argument(
        "--baseline",
        metavar="NAME",
        help="what speedups are measured against: a device (cpu, cuda:0), an implementation (numpy), a machine or a "
        "run by name; default: each machine's CPU, and the first machine where there are several",
    )
    parser.add_argument(
        "--allow",
        action="append",
        choices=ALLOWED,
        default=[],
        metavar="TERM",
        help="pair cases although they differ in it, and name the difference beside the ratio; may be repeated: "
        + ", ".join(ALLOWED),
    )
    parser.add_argument("--no-charts", dest="charts", action="store_false", help="write the tables only")
    parser.add_argument(
        "--format",
        dest="formats",
        type=formats,
        default=FORMATS,
        metavar="svg,png",
        help="kinds of chart files (default: both)",
    )


def formats(text: str) -> tuple[str, ...]:
    """``svg,png`` as a tuple; anything else names what exists."""
    names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not names or not set(names) <= set(FORMATS):
        raise argparse.ArgumentTypeError(f"unknown chart format {text!r}: choose from {', '.join(FORMATS)}")
    return names
