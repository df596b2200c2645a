"""What work costs: which device is cheaper for which work, and how much work money buys.

Money is the unit that the prices were given in, and a price is for an hour of the device, used or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ..errors import UsageError
from ..format import ratio_text, text
from .judgement import TOO_NOISY, UNSURE, copies_text, too_noisy
from .labels import Row, brief_name, device_label, listed, shorten
from .machines import GPUS_TITLE, DeviceOfRun, Ratio, SideBySide, WorkLine, doubtful, first_rows, machine_tables
from .render import Table

_MOST_ROWS, _MOST_NAMES = 60, 12
_UNKNOWN = "—"


@dataclass(frozen=True, slots=True)
class Purchase:
    """Which of two devices does a line's work for less money, as far as the intervals of the speedups tell.

    ``price_ratio`` is the device's price over the base's, None where one of them is unknown. ``winner`` is None where
    that is unknown or unsure; of ``exceptions``, benchmarks of the same line, the opposite holds.
    """

    ratio: Ratio
    price_ratio: float | None
    winner: DeviceOfRun | None
    exceptions: tuple[str, ...]

    def words(self, names: Mapping[DeviceOfRun, str]) -> str:
        """``H200``, ``H200, but not for lenet``, unsure."""
        if self.winner is None:
            return _UNKNOWN if self.price_ratio is None else UNSURE
        return names[self.winner] + (f", but not for {listed(self.exceptions, 2)}" if self.exceptions else "")


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
    firsts = first_rows(results)
    machines = {device: _folded(row["machine"], row["run"]) for device, row in firsts.items()}
    devices = {device: _device_names(row) for device, row in firsts.items()}
    of_machines: dict[DeviceOfRun, float] = {}
    of_devices: dict[DeviceOfRun, float] = {}
    for name, price in prices.items():
        whole = _whole_name(name.casefold(), (devices, machines))
        alike = [[device for device, names in level.items() if whole in names] for level in (machines, devices)]
        if not any(alike):
            shorts = (brief_name(device_label(row["_run"], row["device"])) for row in firsts.values())
            known = listed(list(dict.fromkeys([*shorts, *(run for run, _ in firsts)])), _MOST_NAMES)
            raise UsageError(f"no machine or device is called {name!r}: a price can be given for {known}")
        of_machines |= dict.fromkeys(alike[0], price)
        of_devices |= dict.fromkeys(alike[1], price)
    return of_machines | of_devices


def _device_names(row: Row) -> tuple[str, ...]:
    label = device_label(row["_run"], row["device"])
    plain = label.partition(" #")[0]  # without the number of equal devices
    maker = row["_run"].machine.device(row["device"]).label
    return _folded(brief_name(plain), plain, brief_name(label), label, maker, row["device"])


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


def purchases(compared: SideBySide, costs: Mapping[DeviceOfRun, float]) -> list[Purchase]:
    """Of all pairs of devices of which one has a price at least, of several machines both."""
    made = []
    for each in compared.ratios:
        both = each.device in costs and each.base in costs
        if both or (each.device[0] == each.base[0] and (each.device in costs or each.base in costs)):
            made.append(_purchase(each, costs[each.device] / costs[each.base] if both else None))
    return made


def _purchase(ratio: Ratio, price_ratio: float | None) -> Purchase:
    """Where the price ratio is the speedup both devices do the same work for the same money."""
    row = ratio.typical
    if price_ratio is None or row is None:
        return Purchase(ratio, price_ratio, None, ())
    winner = _winner(ratio, row, price_ratio)
    others = {each["workload"]: _winner(ratio, each, price_ratio) for each in ratio.known}
    names = [shorten(name.rpartition(".")[2], 24) for name, best in others.items() if best not in (None, winner)]
    return Purchase(ratio, price_ratio, winner, tuple(names) if winner else ())


def _winner(ratio: Ratio, row: Row, price_ratio: float) -> DeviceOfRun | None:
    if row["low"] <= price_ratio <= row["high"]:
        return None
    return ratio.device if price_ratio < row["low"] else ratio.base


def cheapest(bought: Iterable[Purchase]) -> DeviceOfRun | None:
    """The device that wins against all others that it is held against, None where no single one does."""
    known = [each for each in bought if each.price_ratio is not None]
    winners = {each.winner for each in known}
    losers = {side for each in known for side in (each.ratio.device, each.ratio.base) if side != each.winner}
    best = winners - losers - {None}
    return best.pop() if len(best) == 1 else None


def price_tables(compared: SideBySide, costs: Mapping[DeviceOfRun, float]) -> tuple[Table, ...]:
    """What money buys, and which device is the cheaper one; empty without prices (:func:`device_prices`)."""
    if not costs:
        return ()
    bought = purchases(compared, costs)
    tables = _work_table(compared.lines, costs, compared.names), cheaper_table(bought, compared.names)
    return tuple(table for table in tables if table.rows)


def leading_tables(
    compared: SideBySide, results: pd.DataFrame, costs: Mapping[DeviceOfRun, float]
) -> tuple[list[Table], list[Table]]:
    """Which GPU, and which device is cheaper as far as both have a price, for the answer; and all other tables of
    several machines and prices."""
    beside, priced = machine_tables(compared, results), price_tables(compared, costs)
    bought = purchases(compared, costs)
    both = [each for each in bought if each.price_ratio is not None]
    first = [each for each in beside if each.title == GPUS_TITLE]
    others = [each for each in (*beside, *(priced if len(both) < len(bought) else priced[:1])) if each not in first]
    return [*first, *([cheaper_table(both, compared.names)] if both else [])], others


def _work_table(
    lines: Sequence[WorkLine], costs: Mapping[DeviceOfRun, float], names: Mapping[DeviceOfRun, str]
) -> Table:
    """A row for each line of work and each device that has a price."""
    body: list[tuple[str, ...]] = []
    for line in lines:
        for device, row in line.middle.rows.items():
            if device in costs:
                cells = (line.name, line.middle.name, names[device], money_text(costs[device]))
                body.append((*cells, _bought(row, costs[device]), _energy(row)))
    columns: tuple[str, ...] = ("work", "benchmark", "device", "price per hour", "work for 1.00", "energy per item")
    note = "Work for 1.00 = throughput × 3600 s / price per hour, in the currency of the prices."
    if all(row[-1] == "—" for row in body):
        columns, body = columns[:-1], [row[:-1] for row in body]
    else:
        note += " Energy: from the device's own counter, idle power included; a CPU has none here."
    return Table("Work for money", columns, tuple(body[:_MOST_ROWS]), note)


def money_text(amount: float) -> str:
    """``2.99``; two digits of what is less than a tenth."""
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"


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


def cheaper_table(bought: Sequence[Purchase], names: Mapping[DeviceOfRun, str]) -> Table:
    """A row for each line of work and pair of devices; what is the same in all rows is said once, in the title."""
    sides = dict.fromkeys((each.ratio.device, each.ratio.base) for each in bought)
    body = []
    for each in bought:
        row, line = each.ratio.typical, each.ratio.line
        price_ratio = _UNKNOWN if each.price_ratio is None else ratio_text(each.price_ratio)
        breaking = (TOO_NOISY, _UNKNOWN) if row is None else (ratio_text(row["speedup"]), _with_copies(row))
        cells = (names[each.ratio.device], names[each.ratio.base], price_ratio, *breaking, each.words(names))
        body.append((line.name, line.contents, *cells))
    heads = ("work", "benchmarks", "device", "against", "price ratio", "break-even ratio", "with copies", "cheaper")
    note = (
        "Break-even ratio: the speedup. Where the price ratio is higher, the device costs more for this work than what "
        "it is held against. Cheaper: with data on the device, by the 95% interval of the speedup."
    )
    left_out = {2, 3} if len(sides) == 1 else set()
    if all(cells[6] == _UNKNOWN for cells in body):
        left_out.add(6)
    else:
        note += " With copies: where inputs and results are copied for every call."
    rows = [tuple(cell for i, cell in enumerate(cells) if i not in left_out) for cells in body]
    if any(_UNKNOWN in cells for cells in rows):
        note += " — no price of both, or nothing to copy."
    columns = tuple(head for i, head in enumerate(heads) if i not in left_out)
    which = f": {' or '.join(names[side] for side in next(iter(sides)))}" if len(sides) == 1 else ""
    return Table(f"Which device is cheaper{which}", columns, tuple(rows[:_MOST_ROWS]), note)


def _with_copies(row: Row) -> str:
    """The one-shot speedup as a ratio of prices, below one too."""
    words = copies_text(row)
    return words if words in (_UNKNOWN, TOO_NOISY) else ratio_text(row["one_shot_speedup"])
