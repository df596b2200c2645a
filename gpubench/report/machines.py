"""Several machines side by side: like devices against each other, each GPU against its own CPU, and what differs.

A ratio between a GPU of one machine and a CPU of another says nothing about either, so the baseline is chosen by
device. Every kind of work is one benchmark that most of the devices have measured, at the same size in the same
setting.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from ..format import seconds_text
from ..runfile.schema import Run
from ..runfile.utilisation import PLAUSIBLE
from .judgement import TOO_NOISY, speedup_words
from .labels import Row, device_label, flagged, grouped, listed, short_device, shorten
from .render import Table
from .speedup import on_accelerator, pair
from .sweep import kind_of, representative, representatives, setting_of
from .table import records

DeviceOfRun = tuple[str, str]
"""A run and its device."""
MOST_COLUMNS = 6
"""Devices or machines of a table; the others are in speedup.csv."""
_MOST_ROWS = 40
_MACHINE, _BUSY = "machine", "machine busy"
_SWITCH = {True: "on", False: "off"}
_BASELINE = ("baseline_run", "baseline_device")


@dataclass(frozen=True, slots=True)
class SharedBenchmark:
    """The benchmark that stands for a kind of work, measured by each device of ``rows`` in the same setting."""

    kind: str
    rows: dict[DeviceOfRun, Row]

    @property
    def name(self) -> str:
        """``matmul.square float32, out, n=4096``."""
        first = next(iter(self.rows.values()))
        return f"{shorten(first['workload'])} {setting_of(first)}".strip()


def machine_tables(results: pd.DataFrame, allow: Collection[str] = ()) -> tuple[Table, ...]:
    """Like devices of several machines, each GPU against its own CPU, and what differs; empty for one run.

    ``results`` is made by :func:`.table.results_table`, ``allow`` are the terms in which compared results may differ.
    Machines rarely have the same number of threads: CPUs are compared all the same, and the difference is named.
    """
    if results["run"].nunique() < 2:
        return ()
    shared = shared_benchmarks(results)
    names = device_names(results)
    pairs = shared_pairs(results, shared, allow)
    across = [row for row in pairs if row["run"] != row["baseline_run"]]
    tables = (
        _like_devices("GPU against GPU", [row for row in across if on_accelerator(row)], shared, names),
        _like_devices("CPU against CPU", [row for row in across if not on_accelerator(row)], shared, names),
        _own_cpus([row for row in pairs if row["run"] == row["baseline_run"]], shared, names),
        differences(results),
    )
    return tuple(table for table in tables if table.rows)


def shared_benchmarks(results: pd.DataFrame) -> list[SharedBenchmark]:
    """One benchmark for each kind of work: of those that most devices have, the one in the middle by how far the
    devices are apart. Each stands at the largest size that these devices have in common."""
    measured = [row for row in records(results) if row["_result"].times and row["implementation"] != "numpy"]
    by_first: dict[int, dict[DeviceOfRun, Row]] = {}
    firsts = []
    for rows in grouped((row for row in measured if kind_of(row["workload"])), lambda row: row["workload"]).values():
        cases = [_by_source(same) for same in grouped(rows, _setting).values()]
        most = max(map(len, cases))
        candidates = {id(first := next(iter(case.values()))): (first, case) for case in cases if len(case) == most}
        first = representative([first for first, _ in candidates.values()])
        firsts.append(first)
        by_first[id(first)] = candidates[id(first)][1]
    shared = []
    for kind, members in representatives(firsts).items():
        cases = sorted((by_first[id(row)] for row in members), key=_apart)
        most = max(map(_sound, cases))
        best = [case for case in cases if _sound(case) == most]
        shared.append(SharedBenchmark(kind, best[(len(best) - 1) // 2]))
    return shared


def _by_source(rows: Iterable[Row]) -> dict[DeviceOfRun, Row]:
    """The first row of each device."""
    return {source: members[0] for source, members in grouped(rows, device_of_run).items()}


def device_of_run(row: Row) -> DeviceOfRun:
    """What makes a column."""
    return row["run"], row["device"]


def _setting(row: Row) -> str:
    case = row["_result"].case
    return json.dumps([case.dtype, case.variant, case.regime, case.cache, case.params], sort_keys=True)


def doubtful(row: Row) -> bool:
    """Whether a result is above its measured peak by more than noise, which can't be."""
    return (row["utilisation"] or 0) > PLAUSIBLE


def _sound(case: dict[DeviceOfRun, Row]) -> int:
    return sum(not doubtful(row) for row in case.values())


def _apart(case: dict[DeviceOfRun, Row]) -> float:
    times = [row["time_s"] for row in case.values()]
    ratio: float = max(times) / min(times)
    return ratio


def shared_pairs(results: pd.DataFrame, shared: Iterable[SharedBenchmark], allow: Collection[str] = ()) -> list[Row]:
    """Pairs of the shared benchmarks alone: each accelerator with its own CPU, each device with its like in the first
    run. Results above their measured peak are left out."""
    kept = {id(row["_result"]) for each in shared for row in each.rows.values() if not doubtful(row)}
    chosen = results[[id(result) in kept for result in results["_result"]]]
    return records(pair(chosen, None, {"threads", *allow}).table)


def device_names(results: pd.DataFrame) -> dict[DeviceOfRun, str]:
    """``H200``; ``Xeon, 2 threads``; with the run's name where two are called the same."""
    firsts = _by_source(row for row in records(results) if row["_result"].times)
    names = {source: _device_name(row) for source, row in firsts.items()}
    counts = Counter(names.values())
    inside = Counter((source[0], name) for source, name in names.items())
    return {
        source: name
        + f" {source[1]}" * (inside[source[0], name] > 1)
        + f" · {shorten(source[0], 24)}" * (counts[name] > inside[source[0], name])
        for source, name in names.items()
    }


def _device_name(row: Row) -> str:
    name = short_device(device_label(row["_run"], row["device"]))
    threads = row["_run"].machine.threads
    if on_accelerator(row) or not threads:
        return name
    return f"{name}, {threads} thread{'s' if threads != 1 else ''}"


def _like_devices(
    title: str, pairs: list[Row], shared: Sequence[SharedBenchmark], names: dict[DeviceOfRun, str]
) -> Table:
    """A row a kind of work; the baseline's time, and how much faster the others are."""
    counts = Counter(tuple(row[name] for name in _BASELINE) for row in pairs)
    if not counts:
        return Table(title, (), ())
    base: DeviceOfRun = counts.most_common(1)[0][0]  # type: ignore[assignment]
    pairs = [row for row in pairs if tuple(row[name] for name in _BASELINE) == base]

    def time_of(each: SharedBenchmark) -> str:
        row = each.rows.get(base)
        if row is None or doubtful(row):
            return "—"
        return seconds_text(row["time_s"]) + "*" * bool(row["_result"].flags)

    note = f"Speedup over {names[base]}, whose time is given. "
    return _ratio_table(title, pairs, shared, names, (f"time, {names[base]}", time_of), note)


def _own_cpus(pairs: list[Row], shared: Sequence[SharedBenchmark], names: dict[DeviceOfRun, str]) -> Table:
    against = {device_of_run(row): names[row["baseline_run"], row["baseline_device"]] for row in pairs}
    words = [f"{names[source]} against {base}" for source, base in against.items()]
    title = "Each GPU against the CPU of its own machine"
    return _ratio_table(title, pairs, shared, names, None, f"{'; '.join(words[:MOST_COLUMNS])}. ")


def _ratio_table(
    title: str,
    pairs: list[Row],
    shared: Sequence[SharedBenchmark],
    names: dict[DeviceOfRun, str],
    leading: tuple[str, Callable[[SharedBenchmark], str]] | None,
    note: str,
) -> Table:
    """``leading`` is a column in front of those of the devices: its heading, and what makes a cell."""
    every = list(dict.fromkeys(device_of_run(row) for row in pairs))
    sources = every[:MOST_COLUMNS]
    cells = {(id(row["_result"]), device_of_run(row)): row for row in pairs}
    body, used = [], []
    for each in shared:
        found = {source: cells.get((id(row["_result"]), source)) for source, row in each.rows.items()}
        ratios = [found.get(source) for source in sources]
        if found.keys() & set(sources):
            used += [row for row in ratios if row]
            words = [_ratio(row) if row else "—" for row in ratios]
            body.append((each.kind, each.name, *([leading[1](each)] if leading else []), *words))
    note += f"In brackets: {', '.join(sorted({row['uncertainty'] for row in used}))}."
    if differing := sorted({row["differs"] for row in used if row["differs"]}):
        note += f" Compared although they differ: {listed(differing, 3)}."
    if any("—" in row for row in body):
        note += " — not measured on both, or above the measured peak."
    if any(flagged(row) for row in used):
        note += " * noisy, see the flags below."
    if len(every) > MOST_COLUMNS:
        note += f" {len(every) - MOST_COLUMNS} more devices are in speedup.csv."
    columns = ("work", "benchmark", *([leading[0]] if leading else []), *(names[source] for source in sources))
    return Table(title, columns, tuple(body[:_MOST_ROWS]), note)


def _ratio(row: Row) -> str:
    words = speedup_words(row)
    return words + "*" * (flagged(row) and words != TOO_NOISY)


def differences(results: pd.DataFrame) -> Table:
    """What the runs don't agree in, a row a fact and a column a run; the note says in what they agree."""
    runs: dict[str, Run] = {row["run"]: row["_run"] for row in records(results)}
    shown = list(runs)[:MOST_COLUMNS]
    facts = {name: _facts(run) for name, run in runs.items()}
    body, agreed = [], []
    for fact in dict.fromkeys(fact for known in facts.values() for fact in known):
        values = [known.get(fact, "unknown") for known in facts.values()]
        if len(set(values)) > 1:
            body.append((fact, *(facts[name].get(fact, "unknown") for name in shown)))
        elif fact not in (_MACHINE, _BUSY):
            agreed.append(fact)
    several = len({run.machine.label for run in runs.values()}) > 1
    note = f"The same everywhere: {', '.join(agreed)}." if agreed else ""
    if len(runs) > len(shown):
        note += f" {len(runs) - len(shown)} more runs are in the table of machines."
    title = f"What differs between the {'machines' if several else 'runs'}"
    return Table(title, ("what", *(shorten(name) for name in shown)), tuple(body), note.strip())


def _facts(run: Run) -> dict[str, str]:
    """What may explain a difference and isn't the device itself; what the file doesn't know is left out."""
    machine = run.machine
    drivers = dict.fromkeys(device.driver for device in machine.devices if device.accelerator and device.driver)
    switches = {name.replace("_", " "): value for name, value in machine.precision.items() if name != "tf32"}
    known = {
        _MACHINE: machine.label,
        "PyTorch": machine.torch,
        "CPU threads": machine.threads,
        "GPU driver": ", ".join(drivers),
        "TF32": machine.tf32,
        **switches,
        "preset": run.preset,
        "processes": run.processes,
        "seed": None if run.seed is None else str(run.seed),
        "gpubench": run.version,
        _BUSY: "yes" if any(flag.name == "contended" for flag in run.flags) else "no",
    }
    facts = {name: _SWITCH[value] if isinstance(value, bool) else str(value or "") for name, value in known.items()}
    return {name: shorten(words) for name, words in facts.items() if words}
