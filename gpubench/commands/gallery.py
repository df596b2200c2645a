"""``gpubench gallery``: a static site of the machines whose results lie in a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..runfile.quantities import counted
from ..runfile.reader import clean
from ..version import __version__

if TYPE_CHECKING:
    from ..runfile.schema import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    folder = "folder of results files, at any depth; those in a folder maintainers are marked as such"
    parser.add_argument("folder", metavar="FOLDER", help=folder)
    site = "folder for the site: index.html, compare.html, machines/"
    parser.add_argument("-o", "--output", required=True, metavar="SITE", help=site)
    parser.add_argument(
        "--home", default="", metavar="URL", help="address that the index links to: of your documentation"
    )


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written."""
    from ..report.output import prepare_folder, write_folder

    folder, output = Path(args.folder), Path(args.output)
    prepare_folder(output)
    files, left_out, count = gallery(folder, args.home)
    for line in left_out:
        print(clean(f"gpubench gallery: left out: {line}"), file=sys.stderr)
    write_folder(output, files)
    print(clean(f"{counted(count, 'run')}: {output / 'index.html'}"))
    return 0


def gallery(folder: Path, home: str = "") -> tuple[dict[str, str | bytes], list[str], int]:
    """Files of the site, which results files were left out and why, and how many were not. Raises UsageError where
    none may be shown."""
    from ..report.gallery import machines, refusal, site
    from .report import read_all

    runs: list[Run] = []
    left_out = []
    for run in read_all([folder]):
        if reason := refusal(run) or _repeated(run, runs):
            left_out.append(f"{run.path}: {reason}")
        else:
            runs.append(run)
    if not runs:
        raise UsageError("; ".join(left_out))
    shown = machines(runs, folder)
    return dict(site(shown, __version__, home=home)), left_out, len(shown)


def _repeated(run: Run, runs: Sequence[Run]) -> str:
    """Whether it is one of the others, as the card of a run is."""

    def known(run: Run) -> tuple[object, ...]:
        return run.started, *(device.label for device in run.machine.devices)

    same = (each for each in runs if run.started and known(each) == known(run))
    return next((f"the same run as {each.path}" for each in same), "")
