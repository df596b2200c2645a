"""``gpubench run --list``: what would be measured, how long it takes, and what would be skipped and why."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import GpubenchError
from ..format import counted, seconds_text
from . import process
from .progress import whole_s

PLAN_DEADLINE_S = 120.0


class NoPlan(GpubenchError):
    """pytest collected nothing, or ended otherwise; ``log`` is what it said."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__("no plan")
        self.code, self.log = code, log


def show(paths: Sequence[str], options: Sequence[str], preset: str, processes: int) -> int:
    """Print the cases; returns the exit code. Raises :class:`NoPlan` when there are none."""
    with tempfile.TemporaryDirectory(prefix="gpubench-", ignore_cleanup_errors=True) as scratch:
        plan, log = Path(scratch) / "plan.json", Path(scratch) / "log"
        log.touch()
        arguments = process.pytest_command(paths, [*options, f"--gpubench-plan={plan}"])
        ended = process.run_process(arguments, log, Path(scratch) / "none", lambda event: None, PLAN_DEADLINE_S)
        planned = json.loads(plan.read_text(encoding="utf-8")) if plan.exists() else {}
        if not planned.get("cases"):
            raise NoPlan(ended.code, log.read_text(encoding="utf-8", errors="replace"))
    _print(planned["cases"], planned["ceilings_s"], preset, processes)
    return 0


def _print(cases: list[dict[str, Any]], ceilings_s: float, preset: str, processes: int) -> None:
    """``ceilings_s``: seconds that the measured peaks of a device take in the run's first process."""
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
    first_s = sum(case["case_s"] for case in measured)
    first_s += ceilings_s * len({case["device"] for case in measured})
    many = f" in {processes} processes" if processes > 1 else ""
    console.print(
        f"{counted(len(cases), 'benchmark')}{many}, about {seconds_text(whole_s(first_s, processes))}"
        f" with preset {preset}; {len(cases) - len(measured)} of them will be skipped",
        markup=False,
        highlight=False,
    )
