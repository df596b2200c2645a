"""The circumstances of the numbers, as tables: machines, ceilings, flags, what is missing and how it was measured."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from ..format import bytes_text, seconds_text, text
from ..runfile.flags import ADVICE
from ..runfile.schema import TIMERS, Bandwidth, Ceilings, Run
from .labels import Names, Row, case_name, grouped, listed, shorten
from .render import Table
from .table import records

_PRESETS = {"smoke": "smoke: checks that the benchmarks work, its times mean nothing"}


def machine_table(results: pd.DataFrame, runs: Sequence[Run]) -> Table:
    """What was measured on, a row a run."""
    rows = []
    for name, run in zip(dict.fromkeys(results["run"]), (run for run in runs if run.results), strict=True):
        devices = [f"{device.name}: {device.label}" if device.label else device.name for device in run.machine.devices]
        cells = (run.machine.torch, str(run.machine.threads or ""), run.date)
        measured = sum(result.times is not None for result in run.results)
        rows.append((name, run.machine.label, "; ".join(devices), *(cell or "—" for cell in cells), str(measured)))
    return Table("Machines", ("run", "machine", "devices", "torch", "threads", "date", "measured"), tuple(rows))


def peak_table(results: pd.DataFrame) -> Table:
    """The peaks of each device, measured in the same run."""
    body = []
    for name, run in _runs(results).items():
        for device, known in run.ceilings.items():
            label = f"{device} · {name}" if results["run"].nunique() > 1 else device
            for (size, level), entries in _footprints(known).items():
                what = f"bandwidth at {size}, {shorten(level or 'memory', 16)}"
                body.append((label, what, listed([_pattern(entry) for entry in entries], 8)))
            rates = [f"{shorten(dtype, 16)} {text(rate, 'FLOP/s')}" for dtype, rate in known.throughput.items()]
            single = (
                ("matrix products", listed(rates, 8)),
                ("launch overhead", known.launch_floor_s and text(known.launch_floor_s, "s")),
                ("host to device", known.host_to_device_byte_per_s and text(known.host_to_device_byte_per_s, "B/s")),
                ("device to host", known.device_to_host_byte_per_s and text(known.device_to_host_byte_per_s, "B/s")),
            )
            body += [(label, what, cell) for what, cell in single if cell]
    note = "Measured at the start of the run; % of peak and the roofline rest on them."
    return Table("Measured peaks", ("device", "what", "peak"), tuple(body), note)


def _footprints(known: Ceilings) -> dict[tuple[str, str], list[Bandwidth]]:
    """All access patterns of each footprint, the smallest first; a few bytes more or less don't matter."""
    footprints: dict[tuple[str, str], list[Bandwidth]] = {}
    for entry in sorted(known.bandwidth, key=lambda entry: entry.footprint_bytes):
        footprints.setdefault((bytes_text(entry.footprint_bytes), entry.level), []).append(entry)
    return footprints


def _pattern(entry: Bandwidth) -> str:
    return f"{shorten(entry.pattern, 16)} {text(entry.byte_per_s, 'B/s')}"


def flag_table(results: pd.DataFrame) -> Table:
    """Every flag that a case got, with what to try."""
    flagged = grouped(
        ((row, flag) for row in records(results) for flag in row["_result"].flags), lambda entry: entry[1].name
    )
    body = []
    for name in (name for name in ADVICE if name in flagged):
        row, flag = flagged[name][0]
        cells = (f"e.g. {case_name(row)} on {row['device']}: {shorten(flag.seen, 160)}", *_advice(name))
        body.append((name, str(len(flagged[name])), *cells))
    note = "Hollow markers in charts: noisy measurement. The column flags of results.csv names them all."
    return Table("Flags", ("flag", "benchmarks", "evidence", "possible cause", "what to try"), tuple(body), note)


def run_flag_table(results: pd.DataFrame) -> Table:
    """What was seen of whole processes."""
    body = []
    for name, run in _runs(results).items():
        for flag in run.flags:  # a process may raise the same one more than once
            processes = f"{len(set(flag.processes))} of {run.processes}"
            body.append((flag.name, name, processes, shorten(flag.seen, 160), *_advice(flag.name)))
    columns = ("flag", "run", "processes", "evidence", "possible cause", "what to try")
    return Table("Flags of whole processes", columns, tuple(body))


def _advice(name: str) -> tuple[str, str]:
    return ADVICE[name].why, ADVICE[name].remedy


def _runs(results: pd.DataFrame) -> dict[str, Run]:
    return {row["run"]: row["_run"] for row in records(results)}


def job_table(rows: list[Row], names: Names) -> Table:
    """Jobs of many equal steps, of which one was measured."""
    body = []
    for row in rows:
        steps, times = row["_result"].steps, row["_result"].times
        if steps and times:
            total = seconds_text(steps * times.median_s)
            body.append((case_name(row), names.source(row), f"{steps:,}", text(times.median_s, "s"), total))
    note = "Derived, not measured: the time of one step times the number of steps."
    return Table("Whole jobs", ("job", "device", "steps", "one step", "all steps"), tuple(body), note)


def unmeasured_table(rows: list[Row]) -> Table:
    """Skipped and failed cases by reason; reasons that differ only in their numbers count as one."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["status"] != "ok":
            shape = re.sub(r"\d+([.,]\d+)*(e[+-]?\d+)?", "#", row["reason"] or "")
            groups.setdefault((row["status"], shape), []).append(row)
    body = []
    for (status, _), members in sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1]), group[0][1])):
        reasons = {row["reason"] or "no reason given" for row in members}
        reason = ("e.g. " if len(reasons) > 1 else "") + shorten(members[0]["reason"] or "no reason given", 200)
        workloads = sorted({f"{row['workload']} on {row['device']}" for row in members})
        body.append((status, str(len(members)), reason, listed(workloads, 4)))
    return Table("Skipped and failed", ("status", "benchmarks", "reason", "which"), tuple(body))


def method_table(runs: Sequence[Run], rows: list[Row]) -> Table:
    """How the numbers were taken; what no file says is left out."""

    def join(values: Sequence[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, ""))) or "unknown"

    times = [row["_result"].times for row in rows if row["_result"].times]
    waited = ", synchronization included" if all(time.timer in TIMERS for time in times) else ""
    tf32 = {True: "on", False: "off", None: "unknown"}
    named = " except for dtype tf32" if any(row["dtype"] == "tf32" for row in rows) else ""
    checks = Counter(row["check"] for row in rows if row["check"])
    body = [
        ("clock", join(sorted({time.timer for time in times}))),
        ("time", "wall time of a call: median of the rounds, geometric mean of the processes" + waited),
        ("processes", join([run.processes for run in runs])),
        ("TF32", join([tf32[run.machine.tf32] for run in runs]) + named),
        ("results verified", f"{checks.pop('passed', 0)} of {len(times)} benchmarks" if checks else "unknown"),
        ("not verified", _reasons(checks) or "unknown"),
        ("preset", join([run.preset and _PRESETS.get(run.preset, run.preset) for run in runs])),
        ("gpubench", join([run.version for run in runs])),
    ]
    return Table("How it was measured", ("what", "how"), tuple(row for row in body if row[1] != "unknown"))


def _reasons(unchecked: Counter[str]) -> str:
    """``4: the case asks for no check``; the most frequent, and how many more there are."""
    shown = unchecked.most_common(3)
    words = [f"{count}: {shorten(why.removeprefix('unchecked: '), 120)}" for why, count in shown]
    more = unchecked.total() - sum(count for _, count in shown)
    return "; ".join([*words, *([f"{more} for other reasons, see results.csv"] if more else [])])
