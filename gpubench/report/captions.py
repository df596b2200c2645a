"""The small print under a chart: on which terms its numbers were taken."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import Run
from ..roofline import PLAUSIBLE
from .labels import Names, Row, flagged, listed, shorten


def caption(rows: Iterable[Row], names: Names, note: str = "") -> str:
    """Devices, dtypes, threads, TF32, regime, torch and date of the rows, baselines included."""
    rows = list(rows)
    runs: dict[str, Run] = {row["run"]: row["_run"] for row in rows}
    cases = [result.case for row in rows for result in (row["_result"], row.get("_baseline")) if result]
    devices = list(dict.fromkeys(name for case in cases for name in (case.device, *case.devices)))
    facts = [_devices(devices, runs, names)]
    if dtypes := sorted({case.dtype for case in cases if case.dtype}):
        facts.append(listed(dtypes))
    variants = sorted({case.variant for case in cases if case.variant}, reverse=True)
    if variants not in ([], ["eager"]):
        facts.append(" and ".join(variants))
    facts.append(_threads([(case.implementation, case.threads) for case in cases]))
    facts.append(_tf32([run.machine.tf32 for run in runs.values()], "tf32" in dtypes))
    if regimes := sorted({case.regime for case in cases if case.regime}):
        facts.append(" and ".join("data resident" if regime == "resident" else regime for regime in regimes))
    torch = list(dict.fromkeys(run.machine.torch for run in runs.values() if run.machine.torch))
    facts.append(f"torch {listed(torch)}" if torch else "")
    facts.append(listed(sorted({run.date for run in runs.values() if run.date})))
    counts = sorted({len(row["_result"].times.processes) for row in rows if row["_result"].times})
    facts.append(f"{' and '.join(map(str, counts))} process{'es' if counts != [1] else ''}" if counts else "")
    if any(flagged(row) for row in rows):
        note += "Hollow: flagged while it was measured, see the summary. "
    if differing := sorted({row["differs"] for row in rows if row.get("differs")}):
        note += f"Paired although they differ: {listed(differing)}. "
    return f"{' · '.join(fact for fact in facts if fact)}. {note}".strip()


def beyond(rows: Iterable[Row]) -> str:
    """A sentence for where cases beat their ceilings by more than noise because these were measured on a busy machine.

    Without that flag of the run they would be flagged themselves, or do with fewer FLOPs than are counted.
    """
    above = [
        row["utilisation"]
        for row in rows
        if (row["utilisation"] or 0) > PLAUSIBLE
        and any(flag.name == "contended" for flag in row["_run"].flags)
        and not any(flag.name == "implausible" for flag in row["_result"].flags)
    ]
    if not above:
        return ""
    return f" Up to {max(above):.0%} of a ceiling: the ceilings of this run are too low, see the flags."


def _devices(devices: list[str], runs: dict[str, Run], names: Names) -> str:
    words = []
    for name, run in runs.items():
        order = [device.name for device in run.machine.devices]
        used = sorted(devices, key=lambda device: order.index(device) if device in order else len(order))
        known = [(device, run.machine.device(device).label) for device in used]
        own = [f"{device}: {shorten(label, 60)}" for device, label in known if label] or devices
        words.append(f"{shorten(name)} — {', '.join(own)}" if names.several else ", ".join(own))
    return "; ".join(words[:4]) + (f" and {len(words) - 4} more runs" if len(words) > 4 else "")


def _threads(found: list[tuple[str, int | None]]) -> str:
    """``2 threads (numpy 1 and 2)``: threads are said for each implementation where they differ."""
    by: dict[str, set[int]] = {}
    for implementation, threads in found:
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
