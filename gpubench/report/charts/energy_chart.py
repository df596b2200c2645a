"""How much energy an item takes on each device that has a counter."""

from __future__ import annotations

from ...format import text
from ..labels import Row
from .layouts import NamedRow, NamedRows, RowMark
from .material import ChartData
from .page import Figure
from .wording import STAR, caption, doubts, warning


def energy_figures(data: ChartData) -> list[Figure]:
    """One picture of all devices: joules an item, or a call where no items were declared."""
    found = data.notable(row for row in data.rows if row["_result"].energy_j)
    shown = tuple(row for each in found for row in each.rows)
    if len(shown) < 3:
        return []
    entries = []
    for each in found:
        marks = tuple(RowMark(_joules(row), data.naming.role(row), _words(row, shown)) for row in each.rows)
        entries.append(NamedRow(each.group, each.name, each.detail, marks))
    chart = NamedRows(tuple(entries), "J", data.keys(shown, "mark"))
    powers = [row["_result"].energy_j / row["_result"].times.median_s for row in shown]
    names = ", ".join(data.devices(shown))
    title = f"{names}: energy per item, at {text(min(powers), 'W', 2)} to {text(max(powers), 'W', 2)} while it works"
    subtitle = "Energy per item, from the device's own counter, log scale; lower is better"
    words = caption(shown, data.naming, "Idle power included; the CPU's energy isn't. ", STAR)
    return [Figure("energy", "energy", title, subtitle, words, chart, 6.0, True, warning(shown))]


def _joules(row: Row) -> float:
    return float(row["_result"].energy_j / (row["_result"].work.items or 1.0))


def _words(row: Row, shown: tuple[Row, ...]) -> str:
    work = row["_result"].work
    return f"{text(_joules(row), 'J', 2)}/{work.unit if work.items else 'call'}{'*' * bool(doubts([row], shown))}"
