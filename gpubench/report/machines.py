"""Machines side by side: like devices against each other, each GPU against its own CPU, what differs, what work costs.

A ratio between a GPU of one machine and a CPU of another says nothing about either, so the baseline is chosen by
device. A kind of work is told by the same rule as on a card of :mod:`.answer`: of all benchmarks that most devices have
measured, each at the largest size that they have in common, the one in the middle, and the range. Money is the unit
that the prices were given in, and a price is for an hour of the device, used or not.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from ..errors import UsageError
from ..format import counted, ratio_text, shorten, text
from ..runfile.kinds import WORK_KINDS, kind_of
from ..runfile.matching import shown_name
from ..runfile.schema import Run
from .judgement import (
    ABOVE_PEAK,
    TOO_NOISY,
    UNSURE,
    copies_text,
    known_speedups,
    middle,
    speedup_words,
    too_noisy,
    withheld,
)
from .labels import (
    Row,
    arithmetic,
    brief_name,
    device_label,
    flagged,
    grouped,
    library,
    listed,
    times_range,
    times_text,
)
from .render import Table
from .speedup import Baseline, on_accelerator, pair
from .sweep import arithmetic_order, representative, setting_of
from .table import records

DeviceOfRun = tuple[str, str]
"""A run and its device."""
MOST_COLUMNS = 6
"""Devices or machines of a table; the others are in speedup.csv."""
GPUS_TITLE = "GPU against GPU"
_MOST_ROWS, _MOST_NAMED = 40, 3
_MACHINE, _BUSY = "machine", "machine busy"
_SWITCH = {True: "on", False: "off"}


@dataclass(frozen=True, slots=True)
class SharedBenchmark:
    """A workload that each device of ``rows`` has measured in the same setting."""

    workload: str
    rows: dict[DeviceOfRun, Row]

    @property
    def name(self) -> str:
        """``matmul.square float32, out, n=4096``."""
        first = next(iter(self.rows.values()))
        return f"{shorten(shown_name(first['workload']))} {setting_of(first)}".strip()


@dataclass(frozen=True, slots=True)
class WorkLine:
    """A kind of work in one arithmetic, with all its shared benchmarks; ``leading`` is the one that stands for it."""

    kind: str
    arithmetic: str
    leading: bool
    benchmarks: tuple[SharedBenchmark, ...]

    @property
    def name(self) -> str:
        """``Running networks``; ``Running networks, autocast``."""
        plain = self.arithmetic in ("", "float32") or self.kind not in WORK_KINDS
        return self.kind if self.leading and plain else f"{self.kind}, {self.short}"

    @property
    def short(self) -> str:
        """``bfloat16``, ``autocast``: what the line differs in from others of its kind."""
        return self.arithmetic.removeprefix("float32 ") or "no dtype"

    @property
    def middle(self) -> SharedBenchmark:
        """The one that stands for the line where only one can: of those that most devices have without a result above
        its measured peak, the one in the middle by how far the devices are apart."""
        counts = [sum(not doubtful(row) for row in each.rows.values()) for each in self.benchmarks]
        best = [each for each, count in zip(self.benchmarks, counts, strict=True) if count == max(counts)]
        return sorted(best, key=lambda each: _apart(each.rows))[(len(best) - 1) // 2]

    @property
    def contents(self) -> str:
        """The benchmark, or how many there are."""
        if len(self.benchmarks) == 1:
            return self.benchmarks[0].name
        names = [each.workload.rpartition(".")[2] for each in self.benchmarks]
        return f"median of {len(names)}: {listed([shorten(name, 24) for name in sorted(names)], _MOST_NAMED)}"


@dataclass(frozen=True)
class Ratio:
    """How much faster a device does a line's work than another: ``pairs`` are its benchmarks on both."""

    line: WorkLine
    device: DeviceOfRun
    base: DeviceOfRun
    pairs: tuple[Row, ...]

    @cached_property
    def known(self) -> list[Row]:
        """Pairs that aren't too noisy, by their speedup."""
        return known_speedups(self.pairs)

    @property
    def typical(self) -> Row | None:
        """The pair in the middle, which is a measured one."""
        return middle(self.known) if self.known else None

    @property
    def across(self) -> bool:
        """Whether two devices of one kind are compared, and not a GPU with its CPU."""
        return on_accelerator(self.pairs[0]) == bool(self.pairs[0]["baseline_device"] != "cpu")

    @property
    def words(self) -> str:
        """``8.0× (7.9× to 8.1×)``, the interval of one benchmark, or the range over several."""
        row = self.typical
        if row is None:
            return TOO_NOISY
        count, every = len(self.known), len(self.line.benchmarks)
        share = f"; {count} of {every}" if count < every else ""
        ends = times_range(self.known[0]["speedup"], self.known[-1]["speedup"])
        several = f"{times_text(row['speedup'])} ({ends}{share})"
        return (several if every > 1 else speedup_words(row)) + "*" * flagged(row)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Several devices: what work they share, what they are called, and how much faster each is than another."""

    lines: tuple[WorkLine, ...]
    names: dict[DeviceOfRun, str]
    ratios: tuple[Ratio, ...]

    @property
    def of_gpus(self) -> list[Ratio]:
        """Those of GPUs against the GPU that most are held against."""
        ratios = [each for each in self.ratios if each.across and on_accelerator(each.pairs[0])]
        return _against_one(ratios)


def side_by_side(results: pd.DataFrame, allow: Collection[str] = ()) -> SideBySide:
    """``results`` is made by :func:`.table.results_table`; ``allow`` are terms in which compared results may differ.

    Machines rarely have the same number of threads: CPUs are compared all the same, and the difference is named.
    """
    lines = work_lines(results)
    found = _shared_pairs(results, lines, allow)
    by_result = grouped(found, lambda row: id(row["_result"]))
    ratios = []
    for line in lines:
        results_of = [row["_result"] for each in line.benchmarks for row in each.rows.values()]
        members = [row for result in results_of for row in by_result.get(id(result), [])]
        sides = grouped(members, lambda row: (_device_of_run(row), _baseline(row)))
        ratios += [Ratio(line, device, base, tuple(rows)) for (device, base), rows in sides.items()]
    return SideBySide(tuple(lines), device_names(results), tuple(ratios))


def machine_tables(compared: SideBySide, results: pd.DataFrame) -> tuple[Table, ...]:
    """Like devices of several machines, each GPU against its own CPU, and what differs; of one run only its GPUs."""
    cpus = [each for each in compared.ratios if each.across and not on_accelerator(each.pairs[0])]
    own = [each for each in compared.ratios if not each.across and each.device[0] == each.base[0]]
    tables = [_ratio_table(GPUS_TITLE, compared.of_gpus, compared)]
    if results["run"].nunique() > 1:
        tables.append(_ratio_table("CPU against CPU", _against_one(cpus), compared))
        tables.append(_ratio_table("Each GPU against the CPU of its own machine", own, compared))
        tables.append(differences(results))
    return tuple(table for table in tables if table.rows)


def _against_one(ratios: list[Ratio]) -> list[Ratio]:
    """Those against the device that most are held against."""
    bases = Counter(each.base for each in ratios)
    return [each for each in ratios if each.base == bases.most_common(1)[0][0]]


def work_lines(results: pd.DataFrame) -> list[WorkLine]:
    """By kind of work and arithmetic the benchmarks that most devices have, each at the largest size that these devices
    have in common; the plainest arithmetic of a kind leads."""
    measured = [row for row in records(results) if row["_result"].times and not library(row)]
    work = [row for row in measured if kind_of(row["_result"])]
    shared: dict[tuple[str, str], list[SharedBenchmark]] = {}
    for (workload, done), rows in grouped(work, lambda row: (row["workload"], arithmetic(row))).items():
        cases = [_by_device(same) for same in grouped(rows, _setting).values()]
        most = max(map(len, cases))
        by_first = {id(next(iter(case.values()))): case for case in cases if len(case) == most}
        first = representative([next(iter(case.values())) for case in by_first.values()])
        kind = str(kind_of(first["_result"]))
        shared.setdefault((kind, done), []).append(SharedBenchmark(workload, by_first[id(first)]))
    kinds = grouped(shared, lambda key: key[0])
    lines = []
    for kind in (*WORK_KINDS, *(kind for kind in kinds if kind not in WORK_KINDS)):
        keys = sorted(kinds.get(kind, ()), key=lambda key: arithmetic_order(next(iter(shared[key][0].rows.values()))))
        for key in keys:
            most = max(len(each.rows) for each in shared[key])
            members = tuple(each for each in shared[key] if len(each.rows) == most)
            lines.append(WorkLine(*key, key == keys[0], members))
    return lines


def _by_device(rows: Iterable[Row]) -> dict[DeviceOfRun, Row]:
    """The first row of each device."""
    return {device: members[0] for device, members in grouped(rows, _device_of_run).items()}


def first_rows(results: pd.DataFrame) -> dict[DeviceOfRun, Row]:
    """The first measured row of each device."""
    return _by_device(row for row in records(results) if row["_result"].times)


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


def _shared_pairs(results: pd.DataFrame, lines: Iterable[WorkLine], allow: Collection[str]) -> list[Row]:
    """Pairs of the shared benchmarks alone: each accelerator with its own CPU, each device with its like in the first
    run, and GPUs of one run with its first. Results above their measured peak are left out."""
    shared = [row for line in lines for each in line.benchmarks for row in each.rows.values()]
    if not shared:
        return []
    kept = {id(row["_result"]) for row in shared if not doubtful(row)}
    chosen = results[[id(result) in kept for result in results["_result"]]]
    pairs = records(pair(chosen, None, {"threads", *allow}).table)
    for run, rows in grouped(shared, lambda row: row["run"]).items():
        gpus = {row["device"]: row["_run"].machine.device(row["device"]).label for row in rows if on_accelerator(row)}
        if len(set(gpus.values())) > 1:  # those of one model are equal but for noise
            against = pair(chosen[chosen["run"] == run], Baseline("device", next(iter(gpus))), allow)
            pairs += [row for row in records(against.table) if on_accelerator(row)]
    return pairs


def device_names(results: pd.DataFrame) -> dict[DeviceOfRun, str]:
    """``H200``; ``Xeon, 2 threads``; with the run's name where two are called the same."""
    names = {}
    for device, row in first_rows(results).items():
        threads = 0 if on_accelerator(row) else row["_run"].machine.threads
        name = brief_name(device_label(row["_run"], row["device"]))
        names[device] = f"{name}, {counted(threads, 'thread')}" if threads else name
    counts = Counter(names.values())
    inside = Counter((run, names[run, device]) for run, device in names)
    return {
        (run, device): name
        + f" {device}" * (inside[run, name] > 1)
        + f" · {shorten(run, 24)}" * (counts[name] > inside[run, name])
        for (run, device), name in names.items()
    }


def _ratio_table(title: str, ratios: list[Ratio], compared: SideBySide) -> Table:
    """A row a line of work, and how much faster each device is: than the CPU of its own machine, else than the device
    that all are held against, whose column has ones."""
    if not ratios:
        return Table(title, (), ())
    names, across = compared.names, ratios[0].across
    against = {each.device: each.base for each in ratios}
    devices, base = list(against)[:MOST_COLUMNS], ratios[0].base
    body = []
    for line, members in grouped(ratios, lambda each: each.line.name).items():
        cells = {each.device: each.words for each in members}
        body.append((line, members[0].line.contents, *["1×"] * across, *(cells.get(each, "—") for each in devices)))
    used = [row for each in ratios for row in each.known]
    words = (f"{names[device]} against {names[against[device]]}" for device in devices)
    note = f"Speedup over {names[base]}" if across else f"Speedup: {'; '.join(words)}"
    note += (
        f". In brackets: {listed(sorted({row['uncertainty'] for row in used}), 2)}; of several benchmarks, of which "
    )
    note += "the median is given, their range."
    if differing := sorted({row["differs"] for row in used if row["differs"]}):
        note += f" Compared although they differ: {listed(differing, 3)}."
    if any("—" in row for row in body):
        note += " — not measured on both, or above the measured peak."
    if any("*" in cell for row in body for cell in row[2:]):
        note += " * noisy, see the flags below."
    if len(against) > MOST_COLUMNS:
        note += f" {len(against) - MOST_COLUMNS} more devices are in speedup.csv."
    heads = ("work", "benchmarks", *[names[base]] * across, *map(names.__getitem__, devices))
    return Table(title, heads, tuple(body[:_MOST_ROWS]), note)


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


_MOST_PRICES, _MOST_NAMES = 60, 12
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
    return Table("Work for money", columns, tuple(body[:_MOST_PRICES]), note)


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
    return Table(f"Which device is cheaper{which}", columns, tuple(rows[:_MOST_PRICES]), note)


def _with_copies(row: Row) -> str:
    """The one-shot speedup as a ratio of prices, below one too."""
    words = copies_text(row)
    return words if words in (_UNKNOWN, TOO_NOISY) else ratio_text(row["one_shot_speedup"])
