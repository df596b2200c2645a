"""The options of ``gpubench export``; standard library only, so that ``--help`` loads nothing else."""

from __future__ import annotations

import argparse

FORMATS = ("github-action-benchmark", "bmf", "csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`gpubench.compare.export.main` reads."""
    parser.add_argument("run", metavar="RUN", help="run file")
    parser.add_argument(
        "--to",
        choices=FORMATS,
        required=True,
        help="github-action-benchmark (its customSmallerIsBetter), bmf (Bencher's metric format) or csv",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
