"""The options of ``gpubench env``; standard library only, so that ``--help`` loads nothing else."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`gpubench.measure.environment.main` reads."""
    parser.add_argument("--json", action="store_true", help="one JSON document, for machines")
