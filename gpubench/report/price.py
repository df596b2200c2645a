"""What work costs: how much of it a unit of money buys on each device, and from which price the CPU is the cheaper one.

Money is the unit that the prices were given in, and a price is for an hour of the device, whether it is used or not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from ..errors import UsageError
from ..format import text
from .judgement import TOO_NOISY, UNSURE, too_noisy
from .labels import Row, device_label, factor, listed, short_device, shorten
from .machines import (
    DeviceOfRun,
    SharedBenchmark,
    device_names,
    device_of_run,
    doubtful,
    shared_benchmarks,
    shared_pairs,
)
from .render import Table
from .sweep import rate_of
from .table import records

HOUR_S = 3600.0
_RATIO = "price ratio"
_MOST_NAMES = 12
_MOST_ROWS = 60


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
    ``H200``), which goes before. Raises UsageError for a name of neither, naming those there are.
    """
    firsts = {device_of_run(row): row for row in reversed(records(results)) if row["_result"].times}
    machines = {source: (row["machine"], row["run"]) for source, row in firsts.items()}
    devices = {source: _names_of(row) for source, row in firsts.items()}
    known = [names[0] for names in reversed(devices.values())] + [run for run, _ in reversed(firsts)]
    prices = {_whole_name(name, (devices.values(), machines.values())): price for name, price in prices.items()}
    found: dict[DeviceOfRun, float] = {}
    for level in (machines, devices):
        for name, price in prices.items():
            found |= {source: price for source, names in level.items() if _same(name, names)}
    for name in prices:
        if not any(_same(name, (*machines[source], *devices[source])) for source in firsts):
            names = listed(list(dict.fromkeys(known)), _MOST_NAMES)
            raise UsageError(f"no machine or device is called {name!r}: a price can be given for {names}")
    return found


def _whole_name(name: str, levels: Iterable[Iterable[tuple[str, ...]]]) -> str:
    """The device, else the machine, of which ``name`` is a part that no other has; ``name`` where there is none."""
    levels = [list(level) for level in levels]
    if any(_same(name, names) for level in levels for names in level):
        return name
    for level in levels:
        holders = {names[0] for names in level if any(name.casefold() in each.casefold() for each in names if each)}
        if len(holders) == 1:
            return holders.pop()
    return name


def _names_of(row: Row) -> tuple[str, ...]:
    label = device_label(row["_run"], row["device"])
    return short_device(label), label, row["_run"].machine.device(row["device"]).label, row["device"]


def _same(name: str, names: Iterable[str]) -> bool:
    return name.casefold() in (each.casefold() for each in names if each)


def price_tables(results: pd.DataFrame, prices: Mapping[str, float], allow: Collection[str] = ()) -> tuple[Table, ...]:
    """What money buys, and which device is the cheaper one; empty without prices. Raises UsageError for a price of
    what isn't there. ``allow`` are the terms in which compared results may differ."""
    if not prices:
        return ()
    costs = device_prices(results, prices)
    names = device_names(results)
    shared = shared_benchmarks(results)
    tables = work_table(shared, costs, names), cheaper_table(shared, shared_pairs(results, shared, allow), costs, names)
    return tuple(table for table in tables if table.rows)


def priced_on_both_sides(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Which device is cheaper, as far as both have a price: what stands on a screen."""
    chosen = [replace(each, rows=_with_a_ratio(each)) for each in tables if _RATIO in each.columns]
    return tuple(each for each in chosen if each.rows)


def _with_a_ratio(table: Table) -> tuple[tuple[str, ...], ...]:
    place = table.columns.index(_RATIO)
    return tuple(row for row in table.rows if row[place] != "—")


def work_table(
    shared: Sequence[SharedBenchmark], costs: Mapping[DeviceOfRun, float], names: Mapping[DeviceOfRun, str]
) -> Table:
    """A row for each kind of work and each device that has a price."""
    body: list[tuple[str, ...]] = []
    for each in shared:
        for source, row in each.rows.items():
            if source in costs:
                cells = (each.kind, each.name, names[source], _money(costs[source]), _bought(row, costs[source]))
                body.append((*cells, _energy(row)))
    columns: tuple[str, ...] = ("work", "benchmark", "device", "price per hour", "work for 1.00", "energy per item")
    note = "Work for 1.00 = throughput × 3600 s / price per hour, in the currency of the prices."
    if all(row[-1] == "—" for row in body):
        columns, body = columns[:-1], [row[:-1] for row in body]
    else:
        note += " Energy: from the device's own counter, idle power included; a CPU has none here."
    return Table("Work for money", columns, tuple(body[:_MOST_ROWS]), note)


def work_per_money(row: Row, price: float) -> tuple[float, str]:
    """Amount and unit of the work that one unit of money buys: samples, FLOP, bytes, or calls of what has no amount."""
    rate = rate_of(row)
    values = rate.measure(row) if rate else None
    if rate and values:
        return values[0] * HOUR_S / price, rate.unit.removesuffix("/s")
    return HOUR_S / row["time_s"] / price, "calls"


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


def cheaper_table(
    shared: Sequence[SharedBenchmark],
    pairs: Iterable[Row],
    costs: Mapping[DeviceOfRun, float],
    names: Mapping[DeviceOfRun, str],
) -> Table:
    """Where the price ratio is the speedup both devices do the same work for the same money; a row a pair."""
    by_result: dict[int, list[Row]] = {}
    for row in pairs:
        by_result.setdefault(id(row["_result"]), []).append(row)
    body: list[tuple[str, ...]] = []
    for each in shared:
        for row in (row for result in each.rows.values() for row in by_result.get(id(result["_result"]), [])):
            source, base = device_of_run(row), (row["baseline_run"], row["baseline_device"])
            both = source in costs and base in costs
            if both or (row["run"] == row["baseline_run"] and (source in costs or base in costs)):
                ratio = costs[source] / costs[base] if both else None
                cells = (each.kind, each.name, names[source], names[base], factor(ratio) if ratio else "—")
                body.append((*cells, *_break_even(row), cheaper(row, ratio, names[source], names[base])))
    columns = ("work", "benchmark", "device", "against", _RATIO, "break-even ratio", "with copies", "cheaper")
    note = (
        "Break-even ratio: the speedup. A device that costs more than so many times the other one per hour is the "
        "dearer one for this work; with copies: where inputs and results are copied for every call. Cheaper: with data "
        "on the device, by the 95% interval of the speedup."
    )
    return Table("Which device is cheaper", columns, tuple(body[:_MOST_ROWS]), note)


def _break_even(row: Row) -> tuple[str, str]:
    copied = row["one_shot_speedup"]
    noisy = too_noisy(row["one_shot_low"], row["one_shot_high"])
    return (
        TOO_NOISY if too_noisy(row["low"], row["high"]) else factor(row["speedup"]),
        "—" if copied is None else TOO_NOISY if noisy else factor(copied),
    )


def cheaper(row: Row, ratio: float | None, name: str, base: str) -> str:
    """Which of a pair does the work for less money, as far as the interval of its speedup tells.

    ``ratio`` is the device's price over the baseline's; None where one of them is unknown.
    """
    if ratio is None:
        return "—"
    if too_noisy(row["low"], row["high"]) or row["low"] <= ratio <= row["high"]:
        return UNSURE
    return name if ratio < row["low"] else base


def _money(price: float) -> str:
    return f"{price:,.2f}" if price >= 0.1 else f"{price:.2g}"
