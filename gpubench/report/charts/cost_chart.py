"""What an item of work costs on each device: energy where there is a counter, money where a price was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...format import text
from ..judgement import ABOVE_PEAK, withheld
from ..labels import Row, grouped, library, times_range, times_text
from ..machines import work_per_money
from ..speedup import on_accelerator
from .headline_chart import leading_dtype
from .layouts import NamedRow, NamedRows, RowMark
from .material import ChartData, Notable, marked, plainest
from .page import Figure
from .wording import caption, hollow_marks, warning

_HEIGHT = 400
"""Pixels for all marks: a picture is 700 high."""
_GPU_NOTE = "Idle power included; the CPU's energy isn't. "


def cost_figures(data: ChartData) -> list[Figure]:
    """The pictures of money and of energy."""
    return [*price_figures(data), *energy_figures(data)]


def price_figures(data: ChartData) -> list[Figure]:
    """One picture: work for 1.00, over that of the device that most workloads have, a CPU where there is one."""
    priced = [row for row in data.rows if (row["run"], row["device"]) in data.costs]
    found = data.notable(row for row in priced if not library(row))
    places = Counter(data.naming.order(row) for each in found for row in each.rows)
    base = max(places, key=lambda place: (places[place], place), default=0)  # CPUs come last
    marks = len(places) - 1
    pairs: list[tuple[Notable, Row]] = []
    for each in found if marks == 1 else plainest(found):
        against = [row for row in each.rows if data.naming.order(row) == base]
        others = tuple(row for row in each.rows if data.naming.order(row) != base)
        if against and others and len(pairs) < _HEIGHT / (15 * marks + 10):
            pairs.append((replace(each, rows=others), against[0]))
    sound = [(each, against) for each, against in pairs if _values(data, each, against)]
    if not sound:
        return []
    entries = [
        NamedRow(each.group, each.name, each.detail, tuple(_mark(data, row, against) for row in each.rows))
        for each, against in pairs
    ]
    shown = [row for each, against in pairs for row in (*each.rows, against)]
    keys = data.keys((row for each, _ in pairs for row in each.rows), "mark")
    prices = {data.naming.device(row): data.costs[row["run"], row["device"]] for row in shown}
    base_name, brief = data.naming.device(pairs[0][1]), data.naming.short(pairs[0][1])
    chart = NamedRows(tuple(entries), "", keys, (f"{brief} cheaper", f"cheaper than {brief}"))
    title = f"Work for the same money, against {base_name}{leading_dtype([each for each, _ in pairs])}: "
    title += "; ".join(f"{key.label.partition(',')[0]} {_span(data, sound, key.label)}" for key in keys)
    costs = ", ".join(f"{device} {price:,g}" for device, price in prices.items())
    subtitle = f"Work for 1.00 over that of {brief}, and its amount; prices per hour: {costs}"
    words = caption(shown, data.naming, "Largest size of each workload, data on the device. ", "*")
    return [Figure("price", "price", title, subtitle, words, chart, 2.5, True, warning(shown), "Work for money")]


def _span(data: ChartData, pairs: Sequence[tuple[Notable, Row]], device: str) -> str:
    """``1.9× less to 35×``, of the plainest setting of each workload; a dash where nothing can be stated."""
    leading = {id(each) for each in plainest([each for each, _ in pairs])}
    values = [_values(data, each, against) for each, against in pairs if id(each) in leading]
    mine = [known[device] for known in values if device in known]
    return _more(times_range(min(mine), max(mine))) if mine else "—"


def _values(data: ChartData, each: Notable, against: Row) -> dict[str, float]:
    """Work for money over that of ``against``, by the names of the devices whose times are sound."""
    rows = [row for row in each.rows if not withheld(row) and not withheld(against)]
    return {data.naming.device(row): _gain(data, row, against) for row in rows}


def _gain(data: ChartData, row: Row, against: Row) -> float:
    price, least = (data.costs[each["run"], each["device"]] for each in (row, against))
    return float(against["time_s"] * least / (row["time_s"] * price))


def _more(words: str) -> str:
    """Money buys less work; it isn't slower."""
    return words.replace(" slower", " less")


def _mark(data: ChartData, row: Row, against: Row) -> RowMark:
    role = data.naming.role(row)
    if withheld(row) or withheld(against):
        return RowMark(None, role, f"— {ABOVE_PEAK}")
    star = "*" * bool(hollow_marks([row], [row, against]))
    value = _gain(data, row, against)
    amount = text(*work_per_money(row, data.costs[row["run"], row["device"]]), 2)
    return RowMark(value, role, f"{_more(times_text(value))}{star}  {amount}")


def energy_figures(data: ChartData) -> list[Figure]:
    """One picture of all devices: joules an item, or a call where no items were declared."""
    found = data.notable(row for row in data.rows if row["_result"].energy_j and not withheld(row))
    if not found:
        return []
    shown = [row for each in found for row in each.rows]
    entries = marked(found, lambda row: RowMark(_joules(row), data.naming.role(row), _energy_words(row, shown)))
    chart = NamedRows(entries, "J", data.keys(shown, "mark"))
    drawn = []
    for name, rows in grouped(shown, data.naming.device).items():
        powers = text(_watts(min(rows, key=_watts)), "W", 2), text(_watts(max(rows, key=_watts)), "W", 2)
        drawn.append(f"the {name} draws {' to '.join(dict.fromkeys(powers))}")
    title = f"Energy: {', '.join(drawn)} while it works"
    subtitle = "Energy per item and power, from the device's own counter, log scale; lower is better"
    counted = {on_accelerator(row) for row in shown}
    note = "Idle power included. A CPU's is that of all its sockets. " if False in counted else _GPU_NOTE
    words = caption(shown, data.naming, note, "*")
    return [Figure("energy", "energy", title, subtitle, words, chart, 6.0, True, warning(shown))]


def _watts(row: Row) -> float:
    return float(row["_result"].energy_j / row["_result"].times.median_s)


def _joules(row: Row) -> float:
    return float(row["_result"].energy_j / (row["_result"].work.items or 1.0))


def _energy_words(row: Row, shown: Sequence[Row]) -> str:
    work = row["_result"].work
    energy = f"{text(_joules(row), 'J', 2)}/{work.unit if work.items else 'call'}"
    return f"{energy}  {text(_watts(row), 'W', 2)}{'*' * bool(hollow_marks([row], shown))}"
