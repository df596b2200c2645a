"""How much energy an item takes on each device that has a counter."""

from __future__ import annotations

from collections.abc import Sequence

from ...format import text
from ..judgement import withheld
from ..labels import Row, grouped
from ..speedup import on_accelerator
from .layouts import NamedRows, RowMark
from .material import ChartData, marked
from .page import Figure
from .wording import caption, hollow_marks, warning

_GPU_NOTE = "Idle power included; the CPU's energy isn't. "


def energy_figures(data: ChartData) -> list[Figure]:
    """One picture of all devices: joules an item, or a call where no items were declared."""
    found = data.notable(row for row in data.rows if row["_result"].energy_j and not withheld(row))
    if not found:
        return []
    shown = [row for each in found for row in each.rows]
    entries = marked(found, lambda row: RowMark(_joules(row), data.naming.role(row), _words(row, shown)))
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


def _words(row: Row, shown: Sequence[Row]) -> str:
    work = row["_result"].work
    energy = f"{text(_joules(row), 'J', 2)}/{work.unit if work.items else 'call'}"
    return f"{energy}  {text(_watts(row), 'W', 2)}{'*' * bool(hollow_marks([row], shown))}"
