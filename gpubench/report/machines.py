"""Machines side by side: like devices against each other, each GPU against its own CPU, what differs, what work costs.

A ratio between a GPU of one machine and a CPU of another says nothing about either, so the baseline is chosen by
device. Every kind of work is one benchmark that most of the devices have measured, at the same size in the same
setting. Money is the unit that the prices were given in, and a price is for an hour of the device, used or not.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ..errors import UsageError
from ..format import counted, seconds_text, text
from ..runfile.schema import Run
from .judgement import ABOVE_PEAK, TOO_NOISY, UNSURE, speedup_words, too_noisy, withheld
from .labels import Row, device_label, factor, flagged, grouped, listed, short_device, shorten
from .render import Table
from .speedup import on_accelerator, pair
from .sweep import kind_of, representative, representatives, setting_of
from .table import records

DeviceOfRun = tuple[str, str]
"""A run and its device."""
MOST_COLUMNS = 6
"""Devices or machines of a table; the others are in speedup.csv."""
_MOST_ROWS, _MOST_PRICES, _MOST_NAMES = 40, 60, 12
_MACHINE, _BUSY, _RATIO = "machine", "machine busy", "price ratio"
_SWITCH = {True: "on", False: "off"}


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
    shared, names = shared_benchmarks(results), device_names(results)
    pairs = _shared_pairs(results, shared, allow)
    across = [row for row in pairs if row["run"] != row["baseline_run"]]
    groups = {
        "GPU against GPU": [row for row in across if on_accelerator(row)],
        "CPU against CPU": [row for row in across if not on_accelerator(row)],
        "Each GPU against the CPU of its own machine": [row for row in pairs if row["run"] == row["baseline_run"]],
    }
    tables = [_ratio_table(title, members, shared, names) for title, members in groups.items()]
    tables.append(differences(results))
    return tuple(table for table in tables if table.rows)


def shared_benchmarks(results: pd.DataFrame) -> list[SharedBenchmark]:
    """One benchmark for each kind of work: of those that most devices have, the one in the middle by how far the
    devices are apart. Each stands at the largest size that these devices have in common."""
    measured = [row for row in records(results) if row["_result"].times and row["implementation"] != "numpy"]
    by_first: dict[int, dict[DeviceOfRun, Row]] = {}
    firsts = []
    for rows in grouped((row for row in measured if kind_of(row["workload"])), lambda row: row["workload"]).values():
        by_setting = {id(same[0]): _by_device(same) for same in grouped(rows, _setting).values()}
        most = max(map(len, by_setting.values()))
        firsts.append(representative([next(iter(case.values())) for case in by_setting.values() if len(case) == most]))
        by_first |= by_setting
    shared = []
    for kind, members in representatives(firsts).items():
        cases = sorted((by_first[id(row)] for row in members), key=_apart)
        sound = [sum(not doubtful(row) for row in case.values()) for case in cases]
        best = [case for case, count in zip(cases, sound, strict=True) if count == max(sound)]
        shared.append(SharedBenchmark(kind, best[(len(best) - 1) // 2]))
    return shared


def _by_device(rows: Iterable[Row]) -> dict[DeviceOfRun, Row]:
    """The first row of each device."""
    return {device: members[0] for device, members in grouped(rows, _device_of_run).items()}


def _device_of_run(row: Row) -> DeviceOfRun:
    return row["run"], row["device"]


def _baseline(row: Row) -> DeviceOfRun:
    return row["baseline_run"], row["baseline_device"]


def _setting(row: Row) -> str:
    case = row["_result"].case
    return json.dumps([case.dtype, case.variant, case.regime, case.cache, case.params], sort_keys=True)


def doubtful(row: Row) -> bool:
    """Whether a result is above its measured peak by more than noise, which can't be."""
    return withheld(row) == ABOVE_PEAK


def _apart(case: dict[DeviceOfRun, Row]) -> float:
    times: list[float] = [row["time_s"] for row in case.values()]
    return max(times) / min(times)


def _shared_pairs(results: pd.DataFrame, shared: Iterable[SharedBenchmark], allow: Collection[str]) -> list[Row]:
    """Pairs of the shared benchmarks alone: each accelerator with its own CPU, each device with its like in the first
    run. Results above their measured peak are left out."""
    kept = {id(row["_result"]) for each in shared for row in each.rows.values() if not doubtful(row)}
    chosen = results[[id(result) in kept for result in results["_result"]]]
    return records(pair(chosen, None, {"threads", *allow}).table)


def device_names(results: pd.DataFrame) -> dict[DeviceOfRun, str]:
    """``H200``; ``Xeon, 2 threads``; with the run's name where two are called the same."""
    firsts = _by_device(row for row in records(results) if row["_result"].times)
    names = {}
    for device, row in firsts.items():
        threads = 0 if on_accelerator(row) else row["_run"].machine.threads
        name = short_device(device_label(row["_run"], row["device"]))
        names[device] = f"{name}, {counted(threads, 'thread')}" if threads else name
    counts = Counter(names.values())
    inside = Counter((run, names[run, device]) for run, device in names)
    return {
        (run, device): name
        + f" {device}" * (inside[run, name] > 1)
        + f" · {shorten(run, 24)}" * (counts[name] > inside[run, name])
        for (run, device), name in names.items()
    }


def _ratio_table(
    title: str, pairs: list[Row], shared: Sequence[SharedBenchmark], names: dict[DeviceOfRun, str]
) -> Table:
    """A row a kind of work, and how much faster each device is: than the CPU of its own machine, else than the device
    that most are held against, whose time is given."""
    if not pairs:
        return Table(title, (), ())
    base = Counter(map(_baseline, pairs)).most_common(1)[0][0]
    across = pairs[0]["run"] != pairs[0]["baseline_run"]
    pairs = [row for row in pairs if _baseline(row) == base] if across else pairs
    against = {_device_of_run(row): _baseline(row) for row in pairs}
    devices = list(against)[:MOST_COLUMNS]
    by_result = {id(row["_result"]): row for row in pairs}
    body, used = [], []
    for each in shared:
        ratios = {device: by_result.get(id(row["_result"])) for device, row in each.rows.items() if device in devices}
        if ratios:
            used += [row for row in ratios.values() if row]
            cells = [_ratio(ratios.get(device)) for device in devices]
            body.append((each.kind, each.name, *([_time(each.rows.get(base))] if across else []), *cells))
    words = (f"{names[device]} against {names[against[device]]}" for device in devices)
    note = f"Speedup over {names[base]}, whose time is given" if across else "; ".join(words)
    note += f". In brackets: {', '.join(sorted({row['uncertainty'] for row in used}))}."
    if differing := sorted({row["differs"] for row in used if row["differs"]}):
        note += f" Compared although they differ: {listed(differing, 3)}."
    if any("—" in row for row in body):
        note += " — not measured on both, or above the measured peak."
    if any(flagged(row) for row in used):
        note += " * noisy, see the flags below."
    if len(against) > MOST_COLUMNS:
        note += f" {len(against) - MOST_COLUMNS} more devices are in speedup.csv."
    time = [f"time, {names[base]}"] * across
    return Table(title, ("work", "benchmark", *time, *map(names.__getitem__, devices)), tuple(body[:_MOST_ROWS]), note)


def _time(row: Row | None) -> str:
    return "—" if row is None or doubtful(row) else seconds_text(row["time_s"]) + "*" * bool(row["_result"].flags)


def _ratio(row: Row | None) -> str:
    words = speedup_words(row) if row else "—"
    return words + "*" * (row is not None and flagged(row) and words != TOO_NOISY)


def differences(results: pd.DataFrame) -> Table:
    """What the runs don't agree in, a row a fact and a column a run; the note says in what they agree."""
    runs: dict[str, Run] = dict(zip(results["run"], results["_run"], strict=True))
    shown = list(runs)[:MOST_COLUMNS]
    facts = {name: _facts(run) for name, run in runs.items()}
    body, agreed = [], []
    for fact in dict.fromkeys(fact for known in facts.values() for fact in known):
        values = [known.get(fact, "unknown") for known in facts.values()]
        if len(set(values)) > 1:
            body.append((fact, *values[:MOST_COLUMNS]))
        elif fact not in (_MACHINE, _BUSY):
            agreed.append(fact)
    note = f"The same everywhere: {', '.join(agreed)}." if agreed else ""
    if len(runs) > len(shown):
        note += f" {len(runs) - len(shown)} more runs are in the table of machines."
    several = len({run.machine.label for run in runs.values()}) > 1
    title = f"What differs between the {'machines' if several else 'runs'}"
    return Table(title, ("what", *map(shorten, shown)), tuple(body), note.strip())


def _facts(run: Run) -> dict[str, str]:
    """What may explain a difference and isn't the device itself; what the file doesn't know is left out."""
    machine = run.machine
    drivers = dict.fromkeys(device.driver for device in machine.devices if device.accelerator and device.driver)
    known = {
        _MACHINE: machine.label,
        "PyTorch": machine.torch,
        "CPU threads": machine.threads,
        "GPU driver": ", ".join(drivers),
        "TF32": machine.tf32,
        **{name.replace("_", " "): value for name, value in machine.precision.items() if name != "tf32"},
        "preset": run.preset,
        "processes": run.processes,
        "seed": None if run.seed is None else str(run.seed),
        "gpubench": run.version,
        _BUSY: "yes" if any(flag.name == "contended" for flag in run.flags) else "no",
    }
    facts = {name: _SWITCH[value] if isinstance(value, bool) else str(value or "") for name, value in known.items()}
    return {name: shorten(words) for name, words in facts.items() if words}


def parse_price(words: str) -> tuple[str, float]:
    """``H200=2.99`` as a name and a price per hour. Raises UsageError for anything else."""
    name, _, number = words.rpartition("=")
    try:
        price = float(number)
    except ValueError:
        price = math.nan
    if not name.strip() or not 0 < price < math.inf:
        raise UsageError(f"invalid price {words!r}: write NAME=2.99, a machine or device and its price per hour")
    return name.strip(), price


def device_prices(results: pd.DataFrame, prices: Mapping[str, float]) -> dict[DeviceOfRun, float]:
    """The price per hour of each device of each run.

    A name is that of a machine or run, which stands for all its devices, or of a device (``cuda:0``, ``NVIDIA H200``,
    ``H200``), which goes before; a part that no other name has will do. Raises UsageError for a name of neither.
    """
    firsts = _by_device(row for row in records(results) if row["_result"].times)
    machines = {device: _folded(row["machine"], row["run"]) for device, row in firsts.items()}
    devices = {device: _device_names(row) for device, row in firsts.items()}
    of_machines: dict[DeviceOfRun, float] = {}
    of_devices: dict[DeviceOfRun, float] = {}
    for name, price in prices.items():
        whole = _whole_name(name.casefold(), (devices, machines))
        alike = [[device for device, names in level.items() if whole in names] for level in (machines, devices)]
        if not any(alike):
            shorts = (short_device(device_label(row["_run"], row["device"])) for row in firsts.values())
            known = listed(list(dict.fromkeys([*shorts, *(run for run, _ in firsts)])), _MOST_NAMES)
            raise UsageError(f"no machine or device is called {name!r}: a price can be given for {known}")
        of_machines |= dict.fromkeys(alike[0], price)
        of_devices |= dict.fromkeys(alike[1], price)
    return of_machines | of_devices


def _device_names(row: Row) -> tuple[str, ...]:
    label = device_label(row["_run"], row["device"])
    plain = label.partition(" #")[0]  # without the number of equal devices
    maker = row["_run"].machine.device(row["device"]).label
    return _folded(short_device(plain), plain, short_device(label), label, maker, row["device"])


def _folded(*names: str) -> tuple[str, ...]:
    return tuple(name.casefold() for name in names if name)


def _whole_name(name: str, levels: Sequence[Mapping[DeviceOfRun, tuple[str, ...]]]) -> str:
    """The device, else the machine, of which ``name`` is a part that no other has; ``name`` where there is none."""
    if any(name in names for level in levels for names in level.values()):
        return name
    for level in levels:
        holders = {names[0] for names in level.values() if any(name in each for each in names)}
        if len(holders) == 1:
            return holders.pop()
    return name


def price_tables(
    results: pd.DataFrame, costs: Mapping[DeviceOfRun, float], allow: Collection[str] = ()
) -> tuple[Table, ...]:
    """What money buys, and which device is the cheaper one; empty without prices (:func:`device_prices`). ``allow`` are
    the terms in which compared results may differ."""
    if not costs:
        return ()
    names, shared = device_names(results), shared_benchmarks(results)
    pairs = _shared_pairs(results, shared, allow)
    tables = _work_table(shared, costs, names), _cheaper_table(shared, pairs, costs, names)
    return tuple(table for table in tables if table.rows)


def priced_on_both_sides(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Which device is cheaper, as far as both have a price: what stands on a screen."""
    priced = [table for table in tables if _RATIO in table.columns]
    chosen = [
        replace(table, rows=tuple(row for row in table.rows if row[table.columns.index(_RATIO)] != "—"))
        for table in priced
    ]
    return tuple(table for table in chosen if table.rows)


def _work_table(
    shared: Sequence[SharedBenchmark], costs: Mapping[DeviceOfRun, float], names: Mapping[DeviceOfRun, str]
) -> Table:
    """A row for each kind of work and each device that has a price."""
    body: list[tuple[str, ...]] = []
    for each in shared:
        for device, row in each.rows.items():
            if device in costs:
                money = f"{costs[device]:,.2f}" if costs[device] >= 0.1 else f"{costs[device]:.2g}"
                body.append((each.kind, each.name, names[device], money, _bought(row, costs[device]), _energy(row)))
    columns: tuple[str, ...] = ("work", "benchmark", "device", "price per hour", "work for 1.00", "energy per item")
    note = "Work for 1.00 = throughput × 3600 s / price per hour, in the currency of the prices."
    if all(row[-1] == "—" for row in body):
        columns, body = columns[:-1], [row[:-1] for row in body]
    else:
        note += " Energy: from the device's own counter, idle power included; a CPU has none here."
    return Table("Work for money", columns, tuple(body[:_MOST_PRICES]), note)


def work_per_money(row: Row, price: float) -> tuple[float, str]:
    """Amount and unit of the work that one unit of money buys: samples, FLOP, bytes, or calls of what has no amount."""
    if row["rate"] is not None:
        return row["rate"] * 3600 / price, row["rate_unit"].removesuffix("/s")
    return 3600 / row["time_s"] / price, "calls"


def _bought(row: Row, price: float) -> str:
    if doubtful(row):
        return "—"
    if too_noisy(row["low_s"], row["high_s"]):
        return TOO_NOISY
    return text(*work_per_money(row, price)) + "*" * bool(row["_result"].flags)


def _energy(row: Row) -> str:
    """``1.20 mJ/sample``; of a call where the work has no items."""
    energy, work = row["energy_j"], row["_result"].work
    if energy is None:
        return "—"
    return f"{text(energy / work.items, 'J')}/{shorten(work.unit, 24)}" if work.items else f"{text(energy, 'J')}/call"


def _cheaper_table(
    shared: Sequence[SharedBenchmark],
    pairs: Iterable[Row],
    costs: Mapping[DeviceOfRun, float],
    names: Mapping[DeviceOfRun, str],
) -> Table:
    """Where the price ratio is the speedup both devices do the same work for the same money; a row a pair."""
    by_result = grouped(pairs, lambda row: id(row["_result"]))
    body: list[tuple[str, ...]] = []
    for each in shared:
        for row in (row for result in each.rows.values() for row in by_result.get(id(result["_result"]), [])):
            device, base = _device_of_run(row), _baseline(row)
            both = device in costs and base in costs
            if both or (row["run"] == row["baseline_run"] and (device in costs or base in costs)):
                ratio = costs[device] / costs[base] if both else None
                breaking = _breaking(row, ""), _breaking(row, "one_shot_")
                cells = (each.kind, each.name, names[device], names[base], factor(ratio) if ratio else "—", *breaking)
                body.append((*cells, _cheaper(row, ratio, names[device], names[base])))
    columns = ("work", "benchmark", "device", "against", _RATIO, "break-even ratio", "with copies", "cheaper")
    note = (
        "Break-even ratio: the speedup. A device that costs more than so many times the other one per hour is the "
        "dearer one for this work; with copies: where inputs and results are copied for every call. Cheaper: with data "
        "on the device, by the 95% interval of the speedup."
    )
    return Table("Which device is cheaper", columns, tuple(body[:_MOST_PRICES]), note)


def _breaking(row: Row, prefix: str) -> str:
    speedup = row[f"{prefix}speedup"]
    noisy = too_noisy(row[f"{prefix}low"], row[f"{prefix}high"])
    return "—" if speedup is None else TOO_NOISY if noisy else factor(speedup)


def _cheaper(row: Row, ratio: float | None, name: str, base: str) -> str:
    """Which of a pair does the work for less money, as far as the interval of its speedup tells.

    ``ratio`` is the device's price over the baseline's; None where one of them is unknown.
    """
    if ratio is None:
        return "—"
    if too_noisy(row["low"], row["high"]) or row["low"] <= ratio <= row["high"]:
        return UNSURE
    return name if ratio < row["low"] else base
