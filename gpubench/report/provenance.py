"""The circumstances of the numbers, as tables: machines, ceilings, flags, what is missing and how it was measured."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from ..format import bytes_text, seconds_text, shorten, text
from ..runfile.flags import ADVICE
from ..runfile.matching import shown_name
from ..runfile.schema import TIMERS, Ceilings, Run
from .labels import Names, Row, case_name, grouped, listed, where_measured
from .render import Table
from .table import records

_PRESETS = {"smoke": "smoke: checks that the benchmarks work, its times mean nothing"}


def provenance_tables(results: pd.DataFrame, runs: Sequence[Run], names: Names) -> list[Table]:
    """All of them, the most asked for first."""
    rows = records(results)
    named: dict[str, Run] = {row["run"]: row["_run"] for row in rows}
    tables = [_job_table(rows, names), _unmeasured_table(rows), _flag_table(rows), _run_flag_table(named)]
    return [*tables, _peak_table(named), _method_table(runs, rows), _machine_table(named)]


def _machine_table(runs: dict[str, Run]) -> Table:
    """What was measured on, a row a run."""
    rows = []
    for name, run in runs.items():
        devices = [f"{device.name}: {device.label}" if device.label else device.name for device in run.machine.devices]
        cells = (run.machine.torch, str(run.machine.threads or ""), run.date)
        measured = sum(result.times is not None for result in run.results)
        rows.append((name, run.machine.label, "; ".join(devices), *(cell or "—" for cell in cells), str(measured)))
    return Table("Machines", ("run", "machine", "devices", "torch", "threads", "date", "measured"), tuple(rows))


def _peak_table(runs: dict[str, Run]) -> Table:
    """The peaks of each device, measured in the same run."""
    body = []
    for name, run in runs.items():
        for device, known in run.ceilings.items():
            label = f"{device} · {name}" if len(runs) > 1 else device
            body += [(label, what, peak) for what, peak in _peaks(known) if peak]
    note = "Measured at the start of the run; % of peak and the roofline rest on them."
    return Table("Measured peaks", ("device", "what", "peak"), tuple(body), note)


def _peaks(known: Ceilings) -> Iterable[tuple[str, str]]:
    """Bandwidths by footprint, the smallest first: a few bytes more or less don't matter; then the single figures."""
    entries = sorted(known.bandwidth, key=lambda entry: entry.footprint_bytes)
    footprints = grouped(entries, lambda entry: (bytes_text(entry.footprint_bytes), entry.level))
    for (size, level), patterns in footprints.items():
        rates = [f"{shorten(entry.pattern, 16)} {text(entry.byte_per_s, 'B/s')}" for entry in patterns]
        yield f"bandwidth at {size}, {shorten(level or 'memory', 16)}", listed(rates, 8)
    rates = [f"{shorten(dtype, 16)} {text(rate, 'FLOP/s')}" for dtype, rate in known.throughput.items()]
    yield "matrix products", listed(rates, 8)
    yield "launch overhead", text(known.launch_floor_s, "s") if known.launch_floor_s else ""
    for way in ("host_to_device", "device_to_host"):
        rate = getattr(known, f"{way}_byte_per_s")
        yield way.replace("_", " "), text(rate, "B/s") if rate else ""


def _flag_table(rows: list[Row]) -> Table:
    """Every flag that a case got, with what to try."""
    flagged = grouped(((row, name) for row in rows for name in (row["flags"] or "").split()), lambda entry: entry[1])
    body = []
    for name in (name for name in ADVICE if name in flagged):
        row = flagged[name][0][0]
        seen = [flag.seen for flag in row["_result"].flags if flag.name == name]
        seen = seen or [f"{row['utilisation']:.3g} times the measured peak"]
        evidence = f"e.g. {case_name(row)}{where_measured(row)}: {shorten(seen[0], 160)}"
        body.append((name, str(len(flagged[name])), evidence, ADVICE[name].why, ADVICE[name].remedy))
    note = "In pictures: a hollow mark or a star, or a line where most are. The column flags of results.csv names all."
    return Table("Flags", ("flag", "benchmarks", "evidence", "possible cause", "what to try"), tuple(body), note)


def _run_flag_table(runs: dict[str, Run]) -> Table:
    """What was seen of whole processes, which may raise the same flag more than once."""
    body = tuple(
        (flag.name, name, f"{len(set(flag.processes))} of {run.processes}", shorten(flag.seen, 160),
         ADVICE[flag.name].why, ADVICE[flag.name].remedy)
        for name, run in runs.items()
        for flag in run.flags
    )  # fmt: skip
    columns = ("flag", "run", "processes", "evidence", "possible cause", "what to try")
    return Table("Flags of whole processes", columns, body)


def _job_table(rows: list[Row], names: Names) -> Table:
    """Jobs of many equal steps, of which one was measured."""
    body = []
    for row in rows:
        steps, times = row["_result"].steps, row["_result"].times
        if steps and times:
            total = seconds_text(steps * times.median_s)
            body.append((case_name(row), names.source(row), f"{steps:,}", text(times.median_s, "s"), total))
    note = "Derived, not measured: the time of one step times the number of steps."
    return Table("Whole jobs", ("job", "device", "steps", "one step", "all steps"), tuple(body), note)


def _unmeasured_table(rows: list[Row]) -> Table:
    """Skipped and failed cases by reason; reasons that differ only in their numbers count as one."""

    def shape(row: Row) -> tuple[str, str]:
        return row["status"], re.sub(r"\d+([.,]\d+)*(e[+-]?\d+)?", "#", row["reason"] or "")

    groups = grouped((row for row in rows if row["status"] != "ok"), shape)
    body = []
    for (status, _), members in sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1]), group[0][1])):
        reasons = list(dict.fromkeys(row["reason"] or "no reason given" for row in members))
        reason = ("e.g. " if len(reasons) > 1 else "") + shorten(reasons[0], 200)
        workloads = sorted({f"{shown_name(row['workload'])}{where_measured(row)}" for row in members})
        body.append((status, str(len(members)), reason, listed(workloads, 4)))
    return Table("Skipped and failed", ("status", "benchmarks", "reason", "which"), tuple(body))


def _method_table(runs: Sequence[Run], rows: list[Row]) -> Table:
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
