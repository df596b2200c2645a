"""The small print under a chart: which devices, and on which terms its numbers were taken."""

from __future__ import annotations

from collections.abc import Iterable

from ...runfile.schema import TIMERS, Run
from ...runfile.utilisation import PLAUSIBLE
from ..labels import Row, listed, shorten
from ..table import BASE
from .naming import Naming, drawn_hollow

HOLLOW = "Hollow: noisy measurement (details in summary.md). "
STAR = "*: noisy measurement (details in summary.md). "


def caption(rows: Iterable[Row], naming: Naming, note: str = "", doubt: str = HOLLOW) -> str:
    """Devices, dtypes, threads, TF32, torch, date and processes of the rows, baselines included, and the note.

    ``doubt`` explains how flagged results are drawn, where some are.
    """
    rows = list(rows)
    runs: dict[str, Run] = {row["run"]: row["_run"] for row in rows}
    cases = [result.case for row in rows for result in (row["_result"], row.get(BASE)) if result]
    facts = [
        _devices(list(dict.fromkeys(name for case in cases for name in (case.device, *case.devices))), runs, naming)
    ]
    facts.append(_threads([(case.implementation, case.threads) for case in cases]))
    dtypes = sorted({case.dtype for case in cases if case.dtype})
    facts.append(listed(dtypes))
    variants = sorted({case.variant for case in cases if case.variant}, reverse=True)
    facts.append(" and ".join(variants) if variants not in ([], ["eager"]) else "")
    facts.append(_tf32([run.machine.tf32 for run in runs.values()], "tf32" in dtypes))
    torch = list(dict.fromkeys(run.machine.torch for run in runs.values() if run.machine.torch))
    facts.append(f"PyTorch {listed(torch)}" if torch else "")
    facts.append(listed(sorted({run.date for run in runs.values() if run.date})))
    counts = sorted({len(row["_result"].times.processes) for row in rows if row["_result"].times})
    facts.append(f"{' and '.join(map(str, counts))} process{'es' if counts != [1] else ''}" if counts else "")
    if any(drawn_hollow(row, rows) for row in rows):
        note += doubt
    if differing := sorted({row["differs"] for row in rows if row.get("differs")}):
        note += f"Compared although they differ: {listed(differing)}. "
    return f"{' · '.join(fact for fact in facts if fact)}. {note}".strip()


def uncertainty(rows: Iterable[Row]) -> str:
    """``Bar at a point: 95 % interval, 3 processes.``"""
    return f"Bar at a point: {listed(sorted({row['uncertainty'] for row in rows}))}. "


def waited(rows: Iterable[Row]) -> str:
    return ", synchronization included" if all(row["_result"].times.timer in TIMERS for row in rows) else ""


def too_low(rows: Iterable[Row]) -> str:
    """A sentence for where results beat a peak by more than noise because it was measured on a busy machine.

    Without that flag of the run they would be flagged themselves, or do with fewer FLOPs than are counted.
    """
    above = [
        row
        for row in rows
        if (row["utilisation"] or 0) > PLAUSIBLE
        and any(flag.name == "contended" for flag in row["_run"].flags)
        and not any(flag.name == "implausible" for flag in row["_result"].flags)
    ]
    return "Peaks were measured while the machine was busy and are too low. " if above else ""


def _devices(devices: list[str], runs: dict[str, Run], naming: Naming) -> str:
    words = []
    for name, run in runs.items():
        order = [device.name for device in run.machine.devices]
        used = sorted(devices, key=lambda device: order.index(device) if device in order else len(order))
        known = [shorten(run.machine.device(device).label, 60) for device in used if run.machine.device(device).label]
        labels = list(dict.fromkeys(known)) or devices
        words.append(f"{shorten(name)}: {', '.join(labels)}" if naming.several else ", ".join(labels))
    return "; ".join(words[:4]) + (f" and {len(words) - 4} more runs" if len(words) > 4 else "")


def _threads(known: list[tuple[str, int | None]]) -> str:
    """``2 CPU threads``; by implementation where they differ."""
    by: dict[str, set[int]] = {}
    for implementation, threads in known:
        if threads is not None:
            by.setdefault(implementation, set()).add(threads)
    words = {name: " and ".join(map(str, sorted(counts))) for name, counts in by.items()}
    if len(set(words.values())) > 1:
        return "CPU threads: " + ", ".join(f"{name} {counts}" for name, counts in words.items())
    counts = next(iter(words.values()), "")
    return f"{counts} CPU thread{'s' if counts != '1' else ''}" if counts else "threads unknown"


def _tf32(states: list[bool | None], named: bool) -> str:
    words = {True: "on", False: "off", None: "unknown"}
    state = " and ".join(dict.fromkeys(words[state] for state in states))
    return f"TF32 {state}" + (" but for dtype tf32" if named and state != "on" else "")
