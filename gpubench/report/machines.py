"""Several machines side by side, like against like and each GPU against its own CPU; and what work costs on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from ..errors import UsageError
from ..format import text
from ..runfile.schema import Run
from ..runfile.utilisation import PLAUSIBLE
from .crossover import TOO_NOISY, too_noisy
from .labels import Row, device_label, grouped, times_text
from .render import Table
from .speedup import on_accelerator, times_and_ratio
from .sweep import representatives, setting_of
from .table import records

_Source = tuple[str, str]
"""A run and one of its devices."""


def machine_tables(results: pd.DataFrame) -> tuple[Table, ...]:
    """Up to three tables with a row for each workload and a column for each device; none of a single run.

    A ratio compares the same benchmark on both sides, at the size and in the setting that stand for its workload.
    """
    rows = [row for row in records(results) if row["_result"].times and row["implementation"] != "numpy"]
    runs: dict[str, Run] = {row["run"]: row["_run"] for row in rows}
    if len(runs) < 2:
        return ()
    sources: dict[_Source, list[Row]] = grouped(rows, lambda row: (row["run"], row["device"]))
    gpus = [source for source, members in sources.items() if on_accelerator(members[0])]
    cpus = [source for source, members in sources.items() if not on_accelerator(members[0])]
    names = {source: _name(source, runs) for source in sources}
    own = [(gpu, (gpu[0], "cpu")) for gpu in gpus if (gpu[0], "cpu") in sources]
    tables = [_table("GPU against its own CPU", own, sources, names)]
    for kind, members in (("GPU", gpus), ("CPU", cpus)):
        against = [(other, members[0]) for other in members[1:]]
        title = f"{kind} against {kind}: how much faster than {names[members[0]]}" if against else ""
        tables.append(_table(title, against, sources, names))
    shown = [table for table in tables if table.rows]
    note = f"The machines differ in {'; '.join(differing)}." if (differing := differences_of(runs)) else ""
    return tuple(Table(table.title, table.columns, table.rows, note) for table in shown)


def _name(source: _Source, runs: Mapping[str, Run]) -> str:
    """The device's label; with its run where another run has the same."""
    run, device = source
    label = device_label(runs[run], device)
    threads = runs[run].machine.threads
    label += f", {threads} threads" if device == "cpu" and threads else ""
    known = [other.machine.device(device).label for other in runs.values()]
    return f"{label} ({run})" if known.count(runs[run].machine.device(device).label) > 1 else label


def _table(
    title: str,
    pairs: Sequence[tuple[_Source, _Source]],
    sources: Mapping[_Source, list[Row]],
    names: Mapping[_Source, str],
) -> Table:
    """How many times as fast the first of each pair is as the second."""
    body: dict[str, list[str]] = {}
    for i, (source, base) in enumerate(pairs):
        same = {row["_result"].id: row for row in sources[source]}
        for members in representatives(sources[base]).values():
            for row in members:
                cells = body.setdefault(f"{row['workload']} {setting_of(row)}", ["—"] * len(pairs))
                cells[i] = _ratio_text(row, same.get(row["_result"].id))
    rows = tuple((name, *cells) for name, cells in body.items() if set(cells) != {"—"})
    return Table(title, ("benchmark", *(names[source] for source, _ in pairs)), rows)


def _ratio_text(base: Row, other: Row | None) -> str:
    """How many times as fast the other is; a dash where it wasn't measured, or where one of them can't be."""
    if other is None or max(base["utilisation"] or 0, other["utilisation"] or 0) > PLAUSIBLE:
        return "—"
    _, _, ratio, _ = times_and_ratio(base["_result"].times, other["_result"].times)
    return TOO_NOISY if too_noisy(ratio.low, ratio.high) else times_text(ratio.value)


def differences_of(runs: Mapping[str, Run]) -> list[str]:
    """What else differs between the machines than their devices: ``threads: 2 (a), 8 (b)``."""
    facts: dict[str, Callable[[Run], object]] = {
        "PyTorch": lambda run: run.machine.torch,
        "threads": lambda run: run.machine.threads,
        "TF32": lambda run: {True: "on", False: "off"}.get(run.machine.tf32) if run.machine.tf32 is not None else None,
        "preset": lambda run: run.preset,
        "processes": lambda run: run.processes,
        "seed": lambda run: run.seed,
        "gpubench": lambda run: run.version,
    }
    differing = []
    for name, of in facts.items():
        values = {run: of(facts_of) for run, facts_of in runs.items()}
        if len(set(map(str, values.values()))) > 1:
            words = [f"{'unknown' if value is None else value} ({run})" for run, value in values.items()]
            differing.append(f"{name}: {', '.join(words)}")
    return differing


HOUR_S = 3600.0


def parse_prices(texts: Iterable[str]) -> dict[str, float]:
    """``NAME=2.99``, money per hour by the name of a machine or a device. Raises UsageError."""
    prices = {}
    for given in texts:
        name, equals, amount = given.rpartition("=")
        try:
            price = float(amount)
        except ValueError:
            price = math.nan
        if not equals or not name.strip() or not (0 < price < math.inf):
            raise UsageError(f"invalid price {given!r}: write NAME=2.99, the price of an hour")
        prices[name.strip()] = price
    return prices


def work_per_price(per_second: float, price: float) -> float:
    """Work for one unit of money at a price per hour."""
    return per_second * HOUR_S / price


def cheaper_price_ratio(row: Row, copies: bool = False) -> float | None:
    """The device is the cheaper one as long as its price is less than that many times its baseline's.

    That is the speedup itself: the cost of a call is its time times the price. None where it is too noisy.
    """
    low, high = ("one_shot_low", "one_shot_high") if copies else ("low", "high")
    value: float | None = row["one_shot_speedup" if copies else "speedup"]
    return None if value is None or too_noisy(row[low], row[high]) else value


def price_table(results: pd.DataFrame, speedups: pd.DataFrame, prices: Mapping[str, float]) -> Table:
    """A row for each workload on each device that has a price. Raises UsageError for a name that isn't there."""
    rows = [row for row in records(results) if row["_result"].times and row["implementation"] != "numpy"]
    priced = _priced(rows, prices)
    pairs = {id(row["_result"]): row for row in records(speedups) if row["run"] == row["baseline_run"]}
    body = []
    for source, members in grouped(rows, lambda row: (row["run"], row["device"])).items():
        if source not in priced:
            continue
        label = device_label(members[0]["_run"], members[0]["device"])
        for chosen in representatives(members).values():
            body += [_cells(row, label, priced[source], pairs.get(id(row["_result"]))) for row in chosen]
    columns = ("benchmark", "device", "price per hour", "work for 1", "energy per item", "CPU is cheaper")
    note = "Work for 1: items, or calls, for one unit of money while the device is used without a pause. "
    note += "CPU is cheaper: once the device costs more than that many times as much per hour, if the data stays on it."
    return Table("Price", columns, tuple(body), note)


def _priced(rows: Sequence[Row], prices: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """The price of each run's device, by its label or name, else by its machine's or run's; case doesn't matter."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        run = row["_run"]
        label = run.machine.device(row["device"]).label
        named = [label, device_label(run, row["device"]), row["device"], run.machine.label, row["run"]]
        names[row["run"], row["device"]] = [name for name in named if name]
    known = list(dict.fromkeys(name for named in names.values() for name in named))
    for name in prices:
        if name.lower() not in (each.lower() for each in known):
            raise UsageError(f"a price for {name!r}, which isn't there: choose from {', '.join(known)}")
    folded = {name.lower(): price for name, price in prices.items()}
    priced = {}
    for source, named in names.items():
        amounts = [folded[name.lower()] for name in named if name.lower() in folded]
        if amounts:
            priced[source] = amounts[0]
    return priced


def _cells(row: Row, label: str, price: float, pair: Row | None) -> tuple[str, ...]:
    work, seconds = row["_result"].work, row["_result"].times.median_s
    amount, unit = (work.items, f"{work.unit}s") if work.items else (1.0, "calls")
    energy = row["energy_j"] / amount if row["energy_j"] is not None else None
    ratio = cheaper_price_ratio(pair) if pair and on_accelerator(row) else None
    cheaper = "—"
    if ratio is not None:
        cheaper = f"above {times_text(ratio)} its price" if ratio >= 1 else "at the same price"
    return (
        f"{row['workload']} {setting_of(row)}",
        label,
        f"{price:g}",
        text(work_per_price(amount / seconds, price), unit),
        text(energy, "J"),
        cheaper,
    )
