"""``gpubench run``: measure in a child process, tell how far it is, then report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..errors import GpubenchError, UsageError
from ..quantity import seconds_text
from . import process
from .options import PASSED_ON
from .progress import Progress

MEASURED, INCOMPLETE, UNUSABLE = 0, 1, 2
_USAGE, _NOTHING_COLLECTED = 4, 5  # pytest's exit codes


def main(args: argparse.Namespace) -> int:
    """Returns 0 when all that was asked for was measured or skipped for a reason, 1 when a case failed or the run was
    stopped, 2 when the input can't be used."""
    try:
        return _list(args) if args.list else _measure(args)
    except GpubenchError as error:
        print(f"gpubench run: {error}", file=sys.stderr)
        return UNUSABLE


def _measure(args: argparse.Namespace) -> int:
    paths = _paths(args)
    folder = Path(args.output)
    _require_writable(folder)
    run_file = folder / "run.json"
    log_path = folder / "run.log"
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="gpubench-", ignore_cleanup_errors=True) as scratch:
        fresh, ledger = Path(scratch) / "run.json", Path(scratch) / "ledger.jsonl"
        options = [*_options(args), f"--benchmark-json={fresh}", f"--gpubench-ledger={ledger}"]
        with log_path.open("wb") as log, Progress() as progress:
            try:
                code = process.run(process.command(paths, options), log, ledger, progress.tell)
            except process.Interrupted as stop:
                code, interrupted = stop.code, True
        if not fresh.exists():
            return _explain(code, progress, log_path, interrupted)
        from ..runfile import replace

        replace(run_file, fresh.read_bytes())
    if interrupted:
        print("gpubench run: stopped; reporting what was measured", file=sys.stderr)
    return max(_report(args, run_file), INCOMPLETE if interrupted or code else MEASURED)


def _list(args: argparse.Namespace) -> int:
    paths = _paths(args)
    with tempfile.TemporaryDirectory(prefix="gpubench-", ignore_cleanup_errors=True) as scratch:
        plan, log_path = Path(scratch) / "plan.json", Path(scratch) / "log"
        options = [*_options(args), f"--gpubench-plan={plan}"]
        with log_path.open("wb") as log:
            try:
                code = process.run(process.command(paths, options), log, Path(scratch) / "none", lambda event: None)
            except process.Interrupted:
                return INCOMPLETE
        cases = json.loads(plan.read_text(encoding="utf-8")) if plan.exists() else []
        if not cases:
            return _explain(code, Progress(), log_path, False)
    _show_plan(cases, args.preset)
    return MEASURED


def _paths(args: argparse.Namespace) -> list[Path]:
    """Benchmark files and folders, absolute; what follows ``--`` is pytest's and never among them."""
    if not args.paths:
        return [process.suite()]
    paths = []
    for text in args.paths:
        path = Path(text.split("::")[0])
        if not path.exists():
            raise UsageError(f"{text}: no such file or folder")
        paths.append(Path(str(path.resolve()) + text[len(str(text.split("::")[0])) :]))
    return paths


def _options(args: argparse.Namespace) -> list[str]:
    options = ["-q"]
    for name in PASSED_ON:
        value = getattr(args, name)
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                options.append(f"--gpubench-{name.replace('_', '-')}={item}")
    if args.expression:
        options += ["-k", args.expression]
    return [*options, *args.pytest]


def _require_writable(folder: Path) -> None:
    """Before any measuring: an hour's run must not fail at its last line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: can't write there: {error.strerror}") from None


def _explain(code: int, progress: Progress, log_path: Path, interrupted: bool) -> int:
    """No run file: say why in a line, from what pytest said."""
    lines = [line for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if interrupted:
        print("gpubench run: stopped before anything was measured", file=sys.stderr)
        return INCOMPLETE
    if code == _USAGE:
        print(f"gpubench run: {_complaint(lines)}", file=sys.stderr)
        return UNUSABLE
    if code == _NOTHING_COLLECTED:
        print("gpubench run: no case matches", file=sys.stderr)
        return UNUSABLE
    for reason, count in progress.reasons.most_common(5):
        print(f"gpubench run: {count} × {reason}", file=sys.stderr)
    if not progress.reasons:
        print("\n".join(lines[-15:]), file=sys.stderr)
    print(f"gpubench run: nothing was measured (pytest ended with {code})", file=sys.stderr)
    return INCOMPLETE


def _complaint(lines: list[str]) -> str:
    """The line in which pytest says what it can't use."""
    said = [line for line in lines if ": error: " in line]
    said += [line for line in lines if line.startswith("ERROR: ") and not line.startswith("ERROR: usage:")]
    text = (said or lines[-1:] or ["pytest refused its options"])[0]
    return text.split(": error: ")[-1].removeprefix("ERROR: ").removeprefix("gpubench: ")


def _report(args: argparse.Namespace, run_file: Path) -> int:
    from ..report import command

    return command.main(
        argparse.Namespace(
            runs=[str(run_file)], output=args.output, baseline=args.baseline, charts=args.charts, formats=args.formats
        )
    )


def _show_plan(cases: list[dict[str, Any]], preset: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("case", overflow="fold")
    table.add_column("device")
    table.add_column("one call", justify="right")
    table.add_column("in all", justify="right")
    table.add_column("skipped because", overflow="fold")
    for case in cases:
        name = case["id"] + (" (numpy)" if case["implementation"] == "numpy" else "")
        whole = seconds_text(case["case_s"]) if not case["skip"] else ""
        cells = (name, case["device"], seconds_text(case["call_s"]), whole, case["skip"] or "")
        table.add_row(*map(Text, cells))  # names hold square brackets: no markup
    console = Console(width=None if sys.stdout.isatty() else max(120, int(os.environ.get("COLUMNS", "160"))))
    console.print(table)
    measured = [case for case in cases if not case["skip"]]
    total = sum(case["case_s"] for case in measured)
    skipped = len(cases) - len(measured)
    console.print(
        f"{len(measured)} cases, about {seconds_text(total)} with preset {preset}; {skipped} will be skipped",
        markup=False,
        highlight=False,
    )
