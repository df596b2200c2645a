"""Machines side by side: what differs between them, and what the same work costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..runfile.quantities import ratio_text, shorten
from . import words
from .render import UNFILLED, Column, Table, table
from .study import Doubt, Measured, Priced, Row, Study, grouped, representatives, shared

_MOST_COLUMNS = 6


def differences(study: Study) -> Table:
    """What the runs don't agree in, one row per fact; the note says in what they agree."""
    runs = {row.run_name: row.run for row in study.rows}
    facts = {name: words.facts(run) for name, run in runs.items()}
    every = list(dict.fromkeys(fact for known in facts.values() for fact in known))
    differ = [fact for fact in every if len({known.get(fact) for known in facts.values()}) > 1]
    agreed = [fact for fact in every if fact not in (*differ, words.MACHINE, words.BUSY)]
    shown = list(runs)[:_MOST_COLUMNS]
    columns: list[Column[str]] = [Column("what", str)]
    columns += [Column(shorten(name), _fact(facts[name])) for name in shown]
    several = len({run.machine.label for run in runs.values()}) > 1
    note = f"The same everywhere: {', '.join(agreed)}." if agreed else ""
    return table(f"What differs between the {'machines' if several else 'runs'}", columns, differ, note)


def _fact(known: dict[str, str]) -> Callable[[str], str]:
    return lambda fact: known.get(fact, "unknown")


# What work costs ------------------------------------------------------------------------------------------------------


def cost_table(study: Study) -> Table:
    """The same work on each machine that has a price: what it costs, relative to the cheapest."""
    prices = study.priced
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
