"""The lead of a report: which device for which work, in at most three lines of a terminal.

The longest version that fits is taken: sizes and copies are left out first, then single ratios, and never a kind of
work of the suite.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..format import counted
from ..runfile.matching import ELEMENTWISE, MATRIX, NETWORKS, OTHER_MATRIX, TRAINING, WORK_KINDS
from . import judgement, labels
from .judgement import IF_IT_STAYS, TOO_NOISY, UNSURE, WORTH_IT, WORTHWHILE
from .labels import Row, brief_name, grouped, listed, times_text
from .machines import DeviceOfRun, Ratio, SideBySide
from .prices import Purchase, cheapest, money_text, purchases
from .speedup import on_accelerator

if TYPE_CHECKING:
    from .answer import AnswerRow, Card

LEAD_LINES, LEAD_WIDTH, MOST_WORDS = 3, 80, 40
"""Of what somebody in a hurry reads."""
IN_WORDS = {
    MATRIX: "matrix products",
    OTHER_MATRIX: "other matrix products",
    NETWORKS: "networks",
    TRAINING: "training",
    ELEMENTWISE: "elementwise work",
}
_MAIN = (MATRIX, NETWORKS, TRAINING)
"""Kinds that are never among those that are only counted."""
_LEVELS = range(6)
"""How much is left out."""
_LEADS = {WORTH_IT: "", IF_IT_STAYS: "only if the data stays on the device: "}
_LEADS |= {judgement.NOT_WORTH_IT: "not worth it: ", UNSURE: "unsure: "}


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
            every = [IN_WORDS.get(row.name, row.name) if short else _words(row, level) for row in rows]
            span = f"{labels.times_range(min(known), max(known))} on " if short else ""
            parts.append(words + span + listed(every, max(most, main)))
    return f"{brief_name(card.device)}: {'; '.join(parts)}."


_LEADS_WITH_RATIO = (WORTH_IT, IF_IT_STAYS)


def _place(row: AnswerRow) -> int:
    """Place in the sentence; the user's own work comes before small and thin matrices."""
    order = (MATRIX, NETWORKS, TRAINING, "", OTHER_MATRIX, ELEMENTWISE)
    return order.index(row.name if row.name in order else "")


def _words(row: AnswerRow, level: int) -> str:
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
