"""The answer: how much faster each device is, from which size, and whether it is worth it.

Pure functions from a report's tables to words and numbers; the terminal, summary.md, the pictures' titles and the page
show the same ones.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import pandas as pd

from ..devices.implementations import implementation_label
from ..format import counted, seconds_text, shorten, text
from ..runfile.kinds import KINDS, WORK_KINDS, kind_of
from ..runfile.matching import shown_name
from ..runfile.schema import Result, Run
from . import judgement, labels, sweep
from .judgement import IF_IT_STAYS, TOO_NOISY, UNSURE, WORTH_IT, WORTHWHILE, copies_text, crossover_text, peak_text
from .labels import (
    Row,
    arithmetic,
    brief_name,
    device_label,
    grouped,
    library,
    library_label,
    listed,
    times_range,
    times_text,
)
from .machines import DeviceOfRun, Purchase, Ratio, SideBySide, cheapest, money_text, purchases
from .speedup import RESIDENT, leading, on_accelerator
from .sweep import rate_of, representatives
from .table import BASE, CROSSING, LINE, records

MOST_TIMES, MOST_OWN = 10, 40
"""Benchmarks with a row; of the user's own there may be more."""
_BUSY_SHARE = 1 / 3
LEAD_LINES, LEAD_WIDTH, MOST_WORDS = 3, 80, 40
"""Of what somebody in a hurry reads."""
IN_WORDS = {kind.heading: kind.words for kind in KINDS.values()}
MATRIX, NETWORKS, TRAINING, ELEMENTWISE = (
    KINDS[name].heading for name in ("matmul", "networks", "training", "elementwise")
)
_MAIN = (MATRIX, NETWORKS, TRAINING)
"""Kinds that are never among those that are only counted."""
_LEVELS = range(6)
"""How much is left out."""
_LEADS = {WORTH_IT: "", IF_IT_STAYS: "only if the data stays on the device: "}
_LEADS |= {judgement.NOT_WORTH_IT: "not worth it: ", UNSURE: "unsure: "}


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One kind of work on a card; the numbers are those of ``row``, one measured pair, and never a mean.

    ``typically``, ``range`` (over ``count`` workloads, each at its largest size), ``copies`` and ``since`` are ready to
    print. ``row`` is None where all of them are too noisy or can't be. ``exceptions`` are workloads, dtypes and
    variants of which the opposite of the verdict holds.
    """

    name: str
    typically: str
    range: str
    copies: str
    since: str
    verdict: str
    row: Row | None
    exceptions: str = ""
    count: int = 1

    @property
    def worth(self) -> str:
        """``✓ worth it``, ``± depends: not lenet``."""
        return f"± depends: {self.exceptions}" if self.exceptions else f"{judgement.MARKS[self.verdict]} {self.verdict}"

    @property
    def cells(self) -> tuple[str, ...]:
        """As :data:`ANSWER_COLUMNS`."""
        ends = f"{self.range} ({self.count})" if self.count > 1 else self.range
        return self.name, self.typically, ends, self.copies, self.since, self.worth


_NO_ANSWER = "No answer: a smoke run is too short for one; measure with --preset quick."
ANSWER_COLUMNS = ("work", "typically", "range", "with copies", "faster from", "worth it?")


@dataclass(frozen=True, slots=True)
class Card:
    """One device against a named baseline: ``NVIDIA H200`` against ``Intel Xeon, 2 threads``."""

    run: str
    device: str
    baseline: str
    rows: tuple[AnswerRow, ...]
    accelerator: bool = True


class Timing(NamedTuple):
    """A workload's time on a CPU at its largest size, as TIMING_COLUMNS; ``time`` has a ``*`` where it was flagged."""

    name: str
    time: str
    rate: str
    peak: str


SINGLE_PROCESS = "One process: ranges are no confidence intervals (use --processes 3)."
TIMING_COLUMNS = ("benchmark", "time", "throughput", "% of peak")


@dataclass(frozen=True, slots=True)
class Answer:
    """``cards`` where there is a device to hold against another, ``times`` where there is only a CPU.

    ``more`` of the user's own benchmarks are measured than ``times`` holds. ``hint`` is one line on how to see a GPU,
    empty where there is one.
    """

    sentence: str
    warnings: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    times: tuple[Timing, ...] = ()
    more: int = 0
    hint: str = ""


def answer(
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    crossovers: pd.DataFrame,
    runs: Sequence[Run],
    compared: SideBySide | None = None,
    costs: Mapping[DeviceOfRun, float] | None = None,
) -> Answer:
    """``results``, ``speedups``, ``crossovers``, ``compared``, ``costs`` as :func:`.table.results_table`,
    :func:`.speedup.pair`, :func:`.judgement.crossover_table`, :func:`.machines.side_by_side` and
    :func:`.prices.device_prices` make them."""
    rows = [row for row in records(results) if row["_result"].times]
    named = {row["run"]: row["_run"] for row in rows}
    pairs = records(speedups)
    inside = leading([row for row in pairs if row["run"] == row["baseline_run"]])
    sides = ("run", "device", "implementation", "baseline_run", "baseline_device", "baseline_implementation")
    # across machines only where nothing is paired inside one
    groups = grouped(inside or pairs, lambda row: tuple(row[name] for name in sides))
    crossings = crossings_by_pair(crossovers)
    counts = Counter(_device(members[0]) for members in groups.values())
    cards = tuple(
        Card(*_sides(members, counts, named), body, on_accelerator(members[0]))
        for members in groups.values()
        if (body := _card_rows(members, crossings))
    )
    noted, sentence = warnings(rows, runs), lead(cards, compared, costs or {})
    if runs and all(run.preset == "smoke" for run in runs):
        sentence, cards = _NO_ANSWER, tuple(map(_undecided, cards))
    if cards:
        return Answer(sentence, noted, cards)
    alone = [row for row in rows if not library(row)] or rows
    on_devices = any(row["device"] for row in rows)  # of others' benchmarks they may be unknown
    hint = _gpu_hint(runs) if on_devices and not any(map(on_accelerator, rows)) else ""
    alone_sentence = "" if sentence == _NO_ANSWER else _cpu_sentence(alone)
    shown = _shown(alone)
    left = [row for row in alone if all(row is not each for each in shown)]
    more = sum(not row["_result"].kind for row in left)
    return Answer(" ".join(filter(None, [sentence, alone_sentence])), noted, (), tuple(map(timing, shown)), more, hint)


def _undecided(card: Card) -> Card:
    """A smoke run's: its times mean nothing, so nothing is worth it or not."""
    return replace(card, rows=tuple(replace(row, verdict=UNSURE, exceptions="", since="—") for row in card.rows))


def pair_key(row: Row) -> tuple[int, int]:
    """Tells pairs apart."""
    return id(row["_result"]), id(row[BASE])


def crossings_by_pair(crossovers: pd.DataFrame) -> dict[tuple[int, int], Row]:
    """Rows of a crossover table with resident data, by the :func:`pair_key` of the largest size."""
    return {pair_key(row[LINE].row): row for row in records(crossovers) if row["regime"] == RESIDENT}


def _card_rows(members: list[Row], crossings: dict[tuple[int, int], Row]) -> tuple[AnswerRow, ...]:
    rows = []
    for kind, chosen in representatives(members).items():
        sound = [row for row in chosen if judgement.withheld(row) != judgement.ABOVE_PEAK]
        crossed = [crossings[pair_key(row)] for row in sound if pair_key(row) in crossings]
        unknown = AnswerRow(kind, "—", "—", "—", "—", UNSURE, None)
        rows.append(_row(kind, sound, crossed, _in_other_arithmetic(kind, members)) if sound else unknown)
    return tuple(rows)


def _in_other_arithmetic(kind: str, members: list[Row]) -> dict[str, Row]:
    """The typical pair in each dtype and variant, of those that the kind of work was measured in: ``bfloat16``."""
    work = [row for row in members if kind_of(row["_result"]) == kind]
    found = {}
    for name, rows in grouped(work, arithmetic).items():
        if known := judgement.known_speedups(representatives(rows)[kind]):
            found[name.removeprefix("float32 ")] = judgement.middle(known)
    return found


def _device(row: Row) -> str:
    label = device_label(row["_run"], row["device"])
    same = row["device"] == row["baseline_device"] and row["run"] == row["baseline_run"]
    named = same or (library(row) and on_accelerator(row))
    return f"{implementation_label(row['implementation'])} on {label}" if named else label


def _sides(members: list[Row], counts: Counter[str], runs: dict[str, Run]) -> tuple[str, str, str]:
    """The run, its device, and what that is measured against: two alike are told apart by their runs' names."""
    device, baseline = _told_apart(members[0], counts), _baseline(members, runs)
    alike = baseline.startswith(f"{device} (") and members[0]["run"] != members[0]["baseline_run"]
    return members[0]["run"], f"{device} ({members[0]['run']})" if alike else device, baseline


def _told_apart(row: Row, counts: Counter[str]) -> str:
    """The device, with its run's name where several have a device that is called the same."""
    name = _device(row)
    return f"{name} · {shorten(row['run'], 24)}" if counts[name] > 1 else name


def _baseline(members: list[Row], runs: dict[str, Run]) -> str:
    first = members[0]
    threads = {row["baseline_threads"] for row in members if row["baseline_threads"]}
    label = _with_threads(runs[first["baseline_run"]], first["baseline_device"], threads)
    if first["implementation"] != first["baseline_implementation"] or (library(first) and on_accelerator(first)):
        label = f"{implementation_label(first['baseline_implementation'])} on {label}"
    return label if first["run"] == first["baseline_run"] else f"{label} ({first['baseline_run']})"


def _with_threads(run: Run, device: str, threads: set[int]) -> str:
    """``Intel Xeon, 2 threads``; a GPU has none."""
    words = f", {' or '.join(map(str, sorted(threads)))} thread{'s' if threads != {1} else ''}"
    return device_label(run, device) + (words if device == "cpu" and threads else "")


def _row(kind: str, members: list[Row], crossings: list[Row], others: dict[str, Row]) -> AnswerRow:
    known = judgement.known_speedups(members)
    if not known:
        return AnswerRow(kind, TOO_NOISY, "—", "—", "—", UNSURE, None)
    typical = judgement.middle(known)
    low, high = known[0]["speedup"], known[-1]["speedup"]
    if len(known) == 1:
        low, high = typical["low"], typical["high"]
    name = kind if kind not in WORK_KINDS or typical["dtype"] in ("float32", None) else f"{kind}, {typical['dtype']}"
    judged, since = judgement.verdict(typical), _since(crossings, typical)
    exceptions = _exceptions(known, others, judged)
    since = "depends" if exceptions and since == judgement.EVERY_SIZE else since
    cells = times_text(typical["speedup"]), times_range(low, high), copies_text(typical), since
    return AnswerRow(name, *cells, judged, typical, exceptions, len(known))


def _exceptions(members: list[Row], others: dict[str, Row], judged: str) -> str:
    """``not lenet`` where the others are worth it, ``only lenet`` where the others aren't; ``not float64`` likewise."""
    wins, loses = (WORTH_IT, IF_IT_STAYS), (judgement.NOT_WORTH_IT,)
    opposite, word = (loses, "not") if judged in wins else (wins, "only") if judged in loses else ((), "")
    names = [row["workload"].split(".", 1)[-1] for row in members if judgement.verdict(row) in opposite]
    names += [
        name
        for name, row in others.items()
        if judgement.verdict(row) in opposite and all(row is not each for each in members)
    ]
    return f"{word} {listed([shorten(name, 24) for name in names], 2)}" if names else ""


def _since(crossings: Sequence[Row], typical: Row) -> str:
    """``n ≈ 72``; ``n ≈ 11k to 68k`` where several workloads cross, ``depends`` where only some of them do, else what
    holds for the typical one."""
    words = {id(row): crossover_text(row[CROSSING], row[LINE], row["size_parameter"]) for row in crossings}
    names = {row["size_parameter"] for row in crossings}
    if len(crossings) > 1 and len(names) == 1 and all("≈" in word for word in words.values()):
        (name,) = names
        sizes = [row["crossover"] for row in crossings]
        ends = dict.fromkeys((labels.rounded_size(min(sizes), name), labels.rounded_size(max(sizes), name)))
        return f"{labels.size_label(name)} ≈ {' to '.join(ends)}"
    if len({word.startswith(("not ", "only ")) for word in words.values()}) > 1:
        return "depends"
    return next((words[id(row)] for row in crossings if row[LINE].row["_result"] is typical["_result"]), "—")


def lead(cards: Sequence[Card], compared: SideBySide | None, costs: Mapping[DeviceOfRun, float]) -> str:
    """Which GPU where there are several, else what a GPU brings; and the cheaper device where there are prices."""
    shown = ""
    for level in _LEVELS:
        sentences = list(filter(None, _sentences(cards, compared, costs, level)))
        shown = " ".join(sentences)
        brief = all(len(sentence.split()) <= MOST_WORDS for sentence in sentences)
        if brief and len(textwrap.wrap(shown, LEAD_WIDTH)) <= LEAD_LINES:
            break
    return shown


def _sentences(
    cards: Sequence[Card], compared: SideBySide | None, costs: Mapping[DeviceOfRun, float], level: int
) -> Iterator[str]:
    if compared and (ratios := [each for each in compared.of_gpus if each.typical]):
        yield _gpus_sentence(compared, ratios, level)
    else:
        yield from (_card_sentence(card, level + 2 * (len(cards) > 1)) for card in cards[:2])
    if compared and costs:
        yield _price_sentence(compared, costs, level)


def _card_sentence(card: Card, level: int) -> str:
    """``H200: 125× on matrix products (n=4096); only if the data stays on the device: 35× on elementwise work.``"""
    kinds = grouped(sorted(card.rows, key=_place), lambda row: row.verdict)
    sure = kinds.keys() & {WORTH_IT, IF_IT_STAYS}
    parts = [] if sure else [f"nothing is surely {WORTHWHILE:g}× as fast as on {card.baseline}"]
    most = (9, 9, 4, 2, 1, 1)[min(level, 5)]
    for verdict, words in _LEADS.items():
        if verdict in kinds:
            rows, main = kinds[verdict], sum(row.name in _MAIN for row in kinds[verdict])
            known = [row.row["speedup"] for row in rows if row.row] if verdict in _LEADS_WITH_RATIO else []
            short = level >= _LEVELS[-1] and len(known) > 1
            every = [IN_WORDS.get(row.name, row.name) if short else _lead_words(row, level) for row in rows]
            span = f"{labels.times_range(min(known), max(known))} on " if short else ""
            parts.append(words + span + listed(every, max(most, main)))
    return f"{brief_name(card.device)}: {'; '.join(parts)}."


_LEADS_WITH_RATIO = (WORTH_IT, IF_IT_STAYS)


def _place(row: AnswerRow) -> int:
    """Place in the sentence; the user's own work comes before small and thin matrices."""
    last = ("linear_algebra", "science", "operators", "irregular", "other_matmul", "elementwise")
    order = (*_MAIN, "", *(KINDS[name].heading for name in last))
    return order.index(row.name if row.name in order else "")


def _lead_words(row: AnswerRow, level: int) -> str:
    """``125× on matrix products (n=4096, with copies 9.7×)``; without the ratio where it decides nothing."""
    copied = level < 1 and row.verdict == WORTH_IT and row.copies not in ("—", TOO_NOISY, row.typically)
    details = [size_words(row.row) if row.row and row.name == MATRIX else "", f"with copies {row.copies}" * copied]
    details = list(filter(None, [*details, row.exceptions]))
    ratio = f"{row.typically} on " if row.verdict in _LEADS_WITH_RATIO else ""
    return ratio + IN_WORDS.get(row.name, row.name) + (f" ({', '.join(details)})" if details else "")


def size_words(row: Row) -> str:
    """``n=4096``."""
    case = row["_result"]
    return labels.setting(case.size, case.params[case.size]) if case.size in case.params else ""


def _gpus_sentence(compared: SideBySide, ratios: Sequence[Ratio], level: int) -> str:
    """``H200 against L4: 5.0× on matrix products (64× in float64), 2.3× slower on networks.``; of more than two which
    is the fastest for which work."""
    leading = [each for each in ratios if each.line.leading]
    devices = dict.fromkeys(each.device for each in leading)
    if len(devices) != 1:
        return _fastest_sentence(compared, leading, level)
    (device,) = devices
    base, wins = leading[0].base, sum(_speedup(each) > 1 for each in leading)
    turned = wins * 2 < len(leading)
    every = [_compared_words(each, ratios, turned, level) for each in _in_order(leading)]
    sides = (base, device) if turned else (device, base)
    names = " against ".join(compared.names[side] for side in sides)
    return f"{names}: {listed(every, 9 if level < 3 else 5 - level % 3)}."


def _speedup(ratio: Ratio, turned: bool = False) -> float:
    row = ratio.typical
    value = float(row["speedup"]) if row else 1.0
    return 1 / value if turned else value


def _in_order(ratios: Sequence[Ratio]) -> list[Ratio]:
    """The kinds that are never left out come first."""
    return sorted(ratios, key=lambda each: (*_MAIN, each.line.kind).index(each.line.kind))


def _compared_words(ratio: Ratio, ratios: Sequence[Ratio], turned: bool, level: int) -> str:
    """``5.0× on matrix products (n=4096; 64× in float64)``, ``2.3× on networks (median of 8)``."""
    kind, value = ratio.line.kind, _speedup(ratio, turned)
    details = []
    if level < 1 and ratio.typical:
        count = len(ratio.known)
        details.append(f"median of {count}" if count > 1 else size_words(ratio.typical) if kind == MATRIX else "")
    others = {each.line.short: _speedup(each, turned) for each in ratios if each.line.kind == kind and each != ratio}
    apart = {name: other for name, other in others.items() if _differs(value, other, level if kind != MATRIX else 0)}
    ends = {min(apart, key=apart.__getitem__), max(apart, key=apart.__getitem__)} if apart else set()
    if level >= 2 and ends:
        ends = {max(ends, key=lambda name: abs(math.log(apart[name] / value)))}
    details += [f"{times_text(apart[name])} in {name}" for name in apart if name in ends]
    shown = ", ".join(filter(None, details))
    return f"{times_text(value)} on {IN_WORDS.get(kind, kind)}" + (f" ({shown})" if shown else "")


def _differs(value: float, other: float, level: int) -> bool:
    """Whether another arithmetic says something else: by so much, where there is room, or the other way round."""
    apart = max(value, other) / min(value, other) >= WORTHWHILE
    return apart and (level < 2 or (value > 1) != (other > 1))


def _fastest_sentence(compared: SideBySide, leading: Sequence[Ratio], level: int) -> str:
    """``Fastest of 3 GPUs: H200 on matrix products (2.1× the L4), networks (3.0× the L4); L4 on training (…).``"""
    winners: dict[DeviceOfRun, list[str]] = {}
    for kind, ratios in grouped(_in_order(leading), lambda each: each.line.kind).items():
        speeds = {ratios[0].base: 1.0} | {each.device: _speedup(each) for each in ratios}
        best, second = sorted(speeds, key=lambda side: -speeds[side])[:2]
        lead_words = f" ({times_text(speeds[best] / speeds[second])} the {compared.names[second]})" * (level < 2)
        winners.setdefault(best, []).append(f"{IN_WORDS.get(kind, kind)}{lead_words}")
    count = len({each.device for each in leading}) + 1
    parts = [f"{compared.names[side]} on {listed(kinds, 9 - level)}" for side, kinds in winners.items()]
    return f"Fastest of {count} GPUs: {'; '.join(parts)}."


def _price_sentence(compared: SideBySide, costs: Mapping[DeviceOfRun, float], level: int) -> str:
    """``Cheaper at 2.99 (H200) and 0.40 (L4) per hour: L4 on networks; H200 on matrix products (not in float64).``"""
    bought = purchases(compared, costs)
    if all(each.price_ratio is None for each in bought):
        return _one_price_sentence(compared, [each for each in bought if each.ratio.line.leading], costs)
    lines = grouped(bought, lambda each: (each.ratio.line.kind, each.ratio.line.short))
    winners: dict[str, list[str]] = {}
    others = [kind for kind in dict.fromkeys(kind for kind, _ in lines) if kind not in _MAIN]
    for kind in (*_MAIN, *(others if level < 4 else ())):
        members = {short: cheapest(each) for (name, short), each in lines.items() if name == kind}
        if members:
            first = next(iter(members.values()))
            opposite = [short for short, best in members.items() if best not in (first, None) and first]
            details = [_opposite_words(opposite, list(members), level)] * bool(opposite)
            names = {name: None for each in next(iter(_of_kind(lines, kind))) for name in each.exceptions}
            details += [f"not {listed(list(names), 1)}"] * bool(names and first and level < 2)
            words = IN_WORDS.get(kind, kind) + (f" ({', '.join(details)})" if details else "")
            winners.setdefault(compared.names[first] if first else UNSURE, []).append(words)
    sides = _priced_sides(bought)
    paid = " and ".join(f"{money_text(costs[side])} ({compared.names[side]})" for side in sides)
    where = f"at {paid} per hour" if level < 1 and len(sides) < 3 else "at these prices"
    most = 9 if level < 3 else len(_MAIN)
    parts = [f"{name} on {listed(kinds, most)}" for name, kinds in winners.items() if name != UNSURE]
    parts += [f"unsure on {listed(winners[UNSURE], most)}"] if UNSURE in winners else []
    parts += [f"{len(others)} more in the table"] if others and level >= 4 and winners else []
    return f"Cheaper {where}: {'; '.join(parts)}."


def _opposite_words(opposite: Sequence[str], arithmetics: Sequence[str], level: int) -> str:
    """``not in bfloat16``; ``float32 only`` where all others say the opposite."""
    if 1 < len(opposite) == len(arithmetics) - 1:
        return f"{arithmetics[0]} only"
    return f"not in {' or '.join(opposite)}" if level < 2 else f"not in {counted(len(opposite), 'other dtype')}"


def _of_kind(lines: Mapping[tuple[str, str], list[Purchase]], kind: str) -> Iterator[list[Purchase]]:
    return (members for (name, _), members in lines.items() if name == kind)


def _priced_sides(bought: Iterable[Purchase]) -> list[DeviceOfRun]:
    known = [each.ratio for each in bought if each.price_ratio is not None]
    known = [ratio for ratio in known if ratio.across and on_accelerator(ratio.pairs[0])] or known
    return list(dict.fromkeys(side for each in known for side in (each.base, each.device)))


def _one_price_sentence(compared: SideBySide, bought: Sequence[Purchase], costs: Mapping[DeviceOfRun, float]) -> str:
    """Where only one of two devices has a price, at which price of the other one both cost the same."""
    known = [each for each in bought if each.ratio.typical]
    if not known:
        return ""
    ratio = known[0].ratio
    known = [each for each in known if (each.ratio.device, each.ratio.base) == (ratio.device, ratio.base)]
    kinds = [each for kind in WORK_KINDS for each in known if each.ratio.line.kind == kind and kind in _MAIN] or known
    paid, names = ratio.device in costs, compared.names
    ends = []
    for each in kinds[: len(_MAIN)]:
        speedup = _speedup(each.ratio)
        price = costs[ratio.device] / speedup if paid else costs[ratio.base] * speedup
        ends.append(f"{money_text(price)} on {IN_WORDS.get(each.ratio.line.kind, each.ratio.line.kind)}")
    if paid:
        device, base = (
            f"{names[ratio.device]} at {money_text(costs[ratio.device])}",
            names[ratio.base].partition(",")[0],
        )
        return f"{device} per hour is cheaper than {base} at more than {', '.join(ends)}."
    base = f"{names[ratio.base].partition(',')[0]} at {money_text(costs[ratio.base])}"
    return f"{names[ratio.device]} is cheaper than {base} per hour up to {', '.join(ends)}."


def _shown(rows: list[Row]) -> list[Row]:
    """Where the user has more than ten benchmarks, each at its largest size, the slowest forty. Else up to ten
    workloads: first the user's own, then one of each kind in turn, in the order of WORK_KINDS; where that leaves room,
    further settings of the user's own."""
    own = sweep.slowest_first(row for row in rows if not row["_result"].kind)
    if len(own) > MOST_TIMES:
        return [max(on_devices, key=lambda row: float(row["time_s"])) for on_devices in own[:MOST_OWN]]
    kinds = representatives(rows)
    mine = [row for kind, members in kinds.items() if kind not in WORK_KINDS for row in members]
    known = [members for kind, members in kinds.items() if kind in WORK_KINDS]
    in_turn = [members[i] for i in range(MOST_TIMES) for members in known if i < len(members)]
    settings = (row for own in mine for row in rows if row["workload"] == own["workload"] and row is not own)
    further = list(islice(settings, MOST_TIMES))
    chosen = {id(row) for row in [*mine, *in_turn, *further][:MOST_TIMES]}
    shown = [row for members in kinds.values() for first in members for row in _with_settings(first, further)]
    return [row for row in shown if id(row) in chosen]


def _with_settings(first: Row, further: Sequence[Row]) -> list[Row]:
    return [first, *(row for row in further if row["workload"] == first["workload"])]


def timing(row: Row) -> Timing:
    """The cells of one measured case; a share above the measured peak can't be, and is a dash."""
    times, rate = row["_result"].times, rate_of(row)
    values = rate.measure(row) if rate else None
    doubt = judgement.withheld(row)
    words = shown_name(row["workload"]), library_label(row), unverified(row["_result"]), sweep.setting_of(row)
    return Timing(
        " ".join(filter(None, words)),
        time_text(times.median_s, labels.flagged(row)),
        "" if not (rate and values) else "—" if doubt else text(values[0], rate.unit),
        "" if row["utilisation"] is None else peak_text(row["utilisation"]),
    )


def time_text(seconds: float, doubtful: bool) -> str:
    """``10.0 ms``; ``10 ms*``, to two digits, where the result is flagged."""
    return f"{text(seconds, 's', 2)}*" if doubtful else seconds_text(seconds)


def unverified(result: Result) -> str:
    """``(not verified)`` for the user's own benchmark whose result was not compared with a reference."""
    own = not result.kind
    return "(not verified)" if own and result.check and result.check.status != "passed" else ""


def _cpu_sentence(rows: list[Row]) -> str:
    """What the machine reaches of its measured peaks, and where threads pay."""
    kinds = representatives(rows)
    if not kinds:
        what = f"{counted(len(rows), 'benchmark')} measured, of copies or multi-GPU work: gpubench show lists them."
        return what if rows else "Nothing was measured."
    parts = []
    for kind in (kind for kind in (MATRIX, ELEMENTWISE) if kind in kinds and not judgement.withheld(kinds[kind][0])):
        cells = timing(kinds[kind][0])
        details = [
            size_words(kinds[kind][0]) * (kind == MATRIX),
            f"{cells.peak} of peak" * (cells.peak not in ("", "—")),
        ]
        shown = ", ".join(filter(None, details))
        parts.append(f"{cells.rate} in {IN_WORDS[kind]}" + (f" ({shown})" if shown else ""))
    if not parts:
        parts = [_range_words([row for row in rows if kind_of(row["_result"])])]
    run, device = rows[0]["_run"], rows[0]["device"]
    machine = _with_threads(run, device, {run.machine.threads} - {None})
    found = f"{', '.join(parts)}.{_threads_pay(rows)}"
    return f"{machine}: {found}" if machine else f"{found[:1].upper()}{found[1:]}"


def _range_words(rows: Sequence[Row]) -> str:
    """The times of benchmarks that are of no kind, from the shortest to the longest."""
    in_order = sorted(rows, key=lambda row: row["_result"].times.median_s)
    ends = in_order[0], in_order[-1]
    (least, name), (most, other) = ((timing(row).time, shown_name(row["workload"])) for row in ends)
    if len(rows) == 1:
        return f"{name} takes {least}"
    return f"{len(rows)} benchmarks take {least}{f' ({name})' * (name != other)} to {most} ({other})"


def _threads_pay(rows: list[Row]) -> str:
    """Where a case ran with one thread and with all of them: what the others bring."""
    jobs: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        parallel = row["_result"].parallel
        if parallel and parallel.devices == 1 and parallel.method in ("single", "one thread"):
            jobs.setdefault((row["run"], row["workload"]), {})[parallel.method] = row
    gains = [
        (sides["one thread"]["time_s"] / sides["single"]["time_s"], sides["single"])
        for sides in jobs.values()
        if len(sides) == 2
    ]
    if not gains:
        return ""
    gain, row = max(gains, key=lambda entry: entry[0])
    return f" {row['threads']} threads against one: {times_text(gain)} on {shown_name(row['workload'])}."


def _gpu_hint(runs: Sequence[Run]) -> str:
    """One line on how to see a GPU, for runs that had none."""
    builds = [run.machine.torch or "" for run in runs]
    if any(build.endswith("+cpu") for build in builds):
        return (
            "No GPU used: this PyTorch build (+cpu) has no CUDA or ROCm support. Have a GPU? "
            "Install a GPU build (pytorch.org/get-started), then run again."
        )
    return "No GPU used. Have a GPU? gpubench env says why PyTorch can't see it."


def warnings(rows: Sequence[Row], runs: Sequence[Run]) -> tuple[str, ...]:
    """What a reader has to know before the numbers, one line each."""
    smoke = [run.preset == "smoke" for run in runs]
    lines = ["Smoke run: it checks that the benchmarks work; its times mean nothing."] * any(smoke)
    devices = {device.label or device.name for run in runs for device in run.machine.devices if device.simulated}
    if devices:
        lines.append(f"Times of the {listed(sorted(devices))} come from a model, not from hardware: don't quote them.")
    if smoke and all(smoke):
        return tuple(lines)
    judged = [row for row in rows if kind_of(row["_result"])] or rows
    noisy = sum(labels.noisy(row) for row in judged)
    busy = any(flag.name == "contended" for run in runs for flag in run.flags)
    many = noisy > _BUSY_SHARE * len(judged) and len(judged) > 1  # of a single one its star says it
    if judged and (busy or many):
        count = f"{noisy} of {len(judged)}"
        effect = f"{count} results are noisy (*) and may be far off"
        effect = effect if noisy else "all times may be too long, although no single result is noisy"
        words = f"The machine was busy: {effect}" if busy else f"Many results are noisy: {count} (*) may be far off"
        lines.append(f"{words}. Close other programs and run again.")
    if rows and all(len(row["_result"].times.processes) < 2 for row in rows):
        lines.append(SINGLE_PROCESS)
    above = [row for row in judged if (row["utilisation"] or 0) > 1]
    if above:
        names = listed(list(dict.fromkeys(shown_name(row["workload"]) for row in above)), 2)
        hidden = "% of peak" + " and speedup" * any(map(judgement.withheld, above))
        lines.append(
            f"{counted(len(above), 'result')} above 100% of the measured peak, which can't be ({names}): the peak was "
            f"measured too low or the work overstated; no {hidden} is shown."
        )
    return tuple(lines)
