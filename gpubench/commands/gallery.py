"""``gpubench gallery``: a static site of the machines whose results lie in a folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import UsageError
from ..runfile.quantities import counted
from ..runfile.reader import clean
from ..version import __version__


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
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written, and where no run may be shown."""
    from ..gallery.machines import admitted, machines
    from ..gallery.site import site
    from ..report.output import prepare_folder, write_folder
    from .report import read_all

    folder, output = Path(args.folder), Path(args.output)
    prepare_folder(output)
    runs, left_out = admitted(read_all([folder]))
    if not runs:
        raise UsageError("; ".join(left_out))
    files = dict(site(machines(runs, folder), __version__, home=args.home))
    for line in left_out:
        print(clean(f"gpubench gallery: left out: {line}"), file=sys.stderr)
    write_folder(output, files)
    print(clean(f"{counted(len(runs), 'run')}: {output / 'index.html'}"))
    return 0
