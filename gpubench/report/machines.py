"""Machines side by side: what differs between them, and what the same work costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..runfile.quantities import ratio_text, shorten
from ..runfile.schema import Run
from . import words
from .render import UNFILLED, Column, Table, table
from .rows import Doubt, Measured, Row, grouped
from .study import Study
from .sweeps import representatives, shared

_MOST_COLUMNS, _MOST_NAMES = 6, 12
_MACHINE, _BUSY = "machine", "machine busy"
_SWITCH = {True: "on", False: "off"}


def differences(study: Study) -> Table:
    """What the runs don't agree in, one row per fact; the note says in what they agree."""
    runs = {row.run_name: row.run for row in study.rows}
    facts = {name: facts_of(run) for name, run in runs.items()}
    every = list(dict.fromkeys(fact for known in facts.values() for fact in known))
    differ = [fact for fact in every if len({known.get(fact) for known in facts.values()}) > 1]
    agreed = [fact for fact in every if fact not in (*differ, _MACHINE, _BUSY)]
    shown = list(runs)[:_MOST_COLUMNS]
    columns: list[Column[str]] = [Column("what", str)]
    columns += [Column(shorten(name), _fact(facts[name])) for name in shown]
    several = len({run.machine.label for run in runs.values()}) > 1
    note = f"The same everywhere: {', '.join(agreed)}." if agreed else ""
    return table(f"What differs between the {'machines' if several else 'runs'}", columns, differ, note)


def _fact(known: dict[str, str]) -> Callable[[str], str]:
    return lambda fact: known.get(fact, "unknown")


def facts_of(run: Run) -> dict[str, str]:
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
    return {name: shorten(value) for name, value in facts.items() if value}


# What work costs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Priced:
    """A machine or a device, its price per hour, and its results."""

    name: str
    price: float
    rows: tuple[Measured, ...]


def parse_price(text: str) -> tuple[str, float]:
    """``H200=2.99`` as a name and a price per hour. Raises UsageError for anything else."""
    name, _, number = text.rpartition("=")
    try:
        price = float(number)
    except ValueError:
        price = math.nan
    if not name.strip() or not 0 < price < math.inf:
        raise UsageError(f"invalid price {text!r}: write NAME=2.99, a machine or device and its price per hour")
    return name.strip(), price


def priced(study: Study, prices: Iterable[str]) -> list[Priced]:
    """What has a price. A name is that of a machine or a run, which stands for all its devices, or of a device; a part
    that no other name has will do. Raises UsageError for a name of neither, and for a single price."""
    known = [_priced(study, *parse_price(text)) for text in prices]
    if len(known) == 1:
        raise UsageError(f"--price {known[0].name}: one price compares nothing; give the price of another machine too")
    return known


def _priced(study: Study, name: str, price: float) -> Priced:
    named: dict[str, list[Measured]] = {}
    for row in study.measured:
        called = study.names.of(row), study.names.short(row), row.facts.label, row.result.device
        for each in dict.fromkeys((row.run.machine.label, row.run_name, *called)):
            named.setdefault(each.casefold(), []).append(row)
    exact = named.get(name.casefold())
    parts = [rows for each, rows in named.items() if name.casefold() in each]
    if exact is None and (not parts or len({frozenset(row.source[:2] for row in rows) for rows in parts}) > 1):
        choices = list(dict.fromkeys(study.names.short(row) for row in study.measured if not row.library))
        raise UsageError(f"unknown machine or device {name!r}: choose from {words.listed(choices, _MOST_NAMES)}")
    return Priced(name, price, tuple(exact or parts[0]))


def cost_table(study: Study, prices: Sequence[Priced]) -> Table:
    """The same work on each machine that has a price: what it costs, relative to the cheapest."""
    every = [row for each in prices for row in each.rows if not row.library]
    lines = [
        (heading, shared([row for row in every if row.result.workload == first.result.workload]))
        for heading, chosen in representatives(every).items()
        for first in chosen
    ]
    costs = [(heading, rows[0], _costs(rows, prices)) for heading, rows in lines]
    comparable = [line for line in costs if None not in line[2]]
    comparable.sort(key=lambda line: not all(cost[1].fills for cost in line[2] if cost))  # what fills its GPU first
    by_kind = grouped(comparable, lambda line: line[0])
    shown = [line for members in by_kind.values() for line in members[:2]]
    columns: list[Column[tuple[str, Row, list[tuple[float, Measured] | None]]]] = [
        Column("work", lambda line: line[0]),
        Column("benchmark", lambda line: words.benchmark(line[1].result)),
        *(Column(f"{each.name}, {each.price:g} per hour", _cost_cell(study, i)) for i, each in enumerate(prices)),
    ]
    note = (
        "Cost = price per hour × time, over that of the cheapest; of a machine its fastest device counts, data on it."
    )
    return table("What the same work costs", columns, shown, note)


def _costs(rows: Sequence[Measured], prices: Sequence[Priced]) -> list[tuple[float, Measured] | None]:
    """Of each that has a price the cost of a call, and what makes it; None where it wasn't measured, or is doubtful."""
    found: list[tuple[float, Measured] | None] = []
    for each in prices:
        own = [row for row in rows if row in each.rows and row.doubt != Doubt.ABOVE_PEAK]
        fastest = min(own, key=lambda row: row.time_s, default=None)
        found.append((each.price * fastest.time_s, fastest) if fastest else None)
    return found


def _cost_cell(study: Study, place: int) -> Callable[[tuple[str, Row, list[tuple[float, Measured] | None]]], str]:
    def cell(line: tuple[str, Row, list[tuple[float, Measured] | None]]) -> str:
        known = [cost for cost in line[2] if cost]
        cost, row = line[2][place] or (math.nan, known[0][1])
        signs = "*" * bool(row.flags) + UNFILLED * (not row.fills)
        return f"{ratio_text(cost / min(each for each, _ in known))}{signs} ({study.names.short(row)})"

    return cell
