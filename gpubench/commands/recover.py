"""``gpubench recover``: a run file from what an interrupted run left."""

from __future__ import annotations

import argparse
from pathlib import Path

SUFFIX = ".ledger.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parser.add_argument("ledger", metavar="JOURNAL", help="the journal, a file ending in .ledger.jsonl, or its folder")
    parser.add_argument("-o", "--output", metavar="FILE", help="results file to write (default: beside the journal)")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written."""
    from ..runfile.ledger import assemble, read_ledger
    from ..runfile.quantities import counted
    from ..runfile.reader import check_run, clean
    from ..runfile.writer import require_new, write

    ledger = Path(args.ledger)
    if ledger.is_dir():
        ledger = ledger / f"run{SUFFIX}"
    target = Path(args.output or ledger.with_name(ledger.name.removesuffix(SUFFIX) + ".json"))
    require_new(target)
    data = assemble(read_ledger(ledger))
    check_run(target, data)
    write(target, data)
    measured, rest = len(data["benchmarks"]), len(data["gpubench"]["unmeasured"])
    print(clean(f"{target}: {counted(measured, 'benchmark')} measured, {rest} not"))
    return 0
