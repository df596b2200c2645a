"""How much work a unit of money buys on each device that was given a price."""

from __future__ import annotations

from collections import Counter

from ...format import ratio_text, text
from ..judgement import withheld
from ..labels import Row
from ..prices import work_per_money
from .layouts import NamedRow, NamedRows, RowMark
from .material import ChartData
from .page import Figure
from .wording import caption, hollow_marks, warning

_HEIGHT = 400
"""Pixels for all marks: a picture is 700 high."""


def price_figures(data: ChartData) -> list[Figure]:
    """One picture: work for 1.00, over that of the device that most workloads have, a CPU where there is one."""
    priced = [row for row in data.rows if (row["run"], row["device"]) in data.costs and not withheld(row)]
    found = data.notable(row for row in priced if row["implementation"] != "numpy")
    places = Counter(data.naming.order(row) for each in found for row in each.rows)
    base = max(places, key=lambda place: (places[place], place), default=0)  # CPUs come last
    shown: list[Row] = []
    entries: dict[tuple[str, str], NamedRow] = {}
    for each in found:
        against = [row for row in each.rows if data.naming.order(row) == base]
        others = [row for row in each.rows if data.naming.order(row) != base]
        label = each.group, each.name
        if against and others and label not in entries and len(entries) < _HEIGHT / (15 * len(places)):
            shown += [*others, *against]
            entries[label] = NamedRow(*label, each.detail, tuple(_mark(data, row, against[0]) for row in others))
    if not entries:
        return []
    keys = data.keys((row for row in shown if data.naming.order(row) != base), "mark")
    prices = {data.naming.device(row): data.costs[row["run"], row["device"]] for row in shown}
    name = data.naming.short(shown[-1])
    chart = NamedRows(tuple(entries.values()), "", keys, (f"{name} cheaper", f"{name} dearer"))
    title = f"Work for money: {' or '.join(key.label for key in keys)} against {data.naming.device(shown[-1])}"
    costs = ", ".join(f"{device} {price:,g}" for device, price in prices.items())
    subtitle = f"Work for 1.00 over that of {name}, and its amount; prices per hour: {costs}"
    words = caption(shown, data.naming, "Largest size of each workload, data on the device. ", "*")
    return [Figure("price", "price", title, subtitle, words, chart, 2.5, True, warning(shown))]


def _mark(data: ChartData, row: Row, against: Row) -> RowMark:
    price, least = (data.costs[each["run"], each["device"]] for each in (row, against))
    value = against["time_s"] * least / (row["time_s"] * price)
    star = "*" * bool(hollow_marks([row], [row, against]))
    words = f"{ratio_text(value)}{star}  {text(*work_per_money(row, price), 2)}"
    return RowMark(value, data.naming.role(row), words)
