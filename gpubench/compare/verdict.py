"""Faster, slower, same or inconclusive: a verdict for each benchmark, with false alarms controlled over all of them.

``evidence`` says how clear a change is. ``slower`` takes two things: p, adjusted by the method of Benjamini and
Hochberg over all benchmarks, reaches 2.5 %, and the estimate reaches the threshold.

A set of runs may hold a screening and fresh runs of its suspects. If a benchmark has fresh runs on both sides,
these alone count; a benchmark without them is never called slower, so none is judged by the data that made it suspect.
docs/ci.md has how often verdicts are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..runfile.quantities import counted
from ..statistics import inference, intervals
from ..statistics.intervals import Interval
from .evidence import FALSE_DISCOVERIES, HELD_UP, POWER, Cause, Evidence, Reason, Terms, evidence_of, tail, tested
from .samples import SCREEN, CaseKey, Cases

FASTER, SLOWER, SAME, INCONCLUSIVE, NO_SIGN = "faster", "slower", "same", "inconclusive", "no sign of a change"
USUAL_SPREAD = 0.03  # spread of most benchmarks' processes on an idle machine, for advice where none was measured
HIDES = 0.2
"""A benchmark in which a change of this share stays hidden is inconclusive: no sign of a change would sound cleared."""
MOST_NEEDED = 100
_USUAL = Terms()


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ratio`` is new time / base time; ``p`` one-sided, for slower, adjusted over all cases, None without evidence.

    The interval of ``same`` and of ``no sign of a change`` is of the benchmark alone, at 95 %; any other accounts
    for all benchmarks of the comparison and for drift, and so it excludes 1 where the change is proven. ``base_s`` and
    ``new_s`` come from the same evidence as the ratio, ``processes`` are of base and new. ``why`` a benchmark is
    inconclusive or shows no sign of a change; ``advice`` says how to decide it, ``need`` the same in few words;
    ``more`` is the number of further runs a side, if not too many. ``spread`` is the standard deviation between
    processes, NaN if unknown. A ``suspect`` has no fresh runs yet; a change by the share ``seen`` would make a
    benchmark suspect four times out of five, with as many runs.
    """

    key: CaseKey
    verdict: str
    ratio: Interval
    base_s: float
    new_s: float
    p: float | None
    processes: tuple[int, int]
    why: Reason | None = None
    advice: str = ""
    more: int | None = None
    spread: float = math.nan
    suspect: bool = False
    seen: float | None = None
    need: str = ""

    @property
    def reason(self) -> str:
        """``why`` in words."""
        return str(self.why or "")

    def sees(self, threshold: float) -> float:
        """The smallest change that counts and is detected four times out of five."""
        return max(self.seen or 0.0, threshold)

    @property
    def bounded(self) -> bool:
        """Whether the ratio has an interval."""
        return self.ratio.low > 0 and math.isfinite(self.ratio.high)

    @property
    def cause(self) -> Cause | None:
        """The cause in ``why``."""
        return self.why.cause if self.why else None

    @property
    def held_up(self) -> bool:
        """Whether too few processes of the benchmark could be used."""
        return self.cause in HELD_UP


def judge(base: Cases, new: Cases, terms: Terms = _USUAL) -> list[Verdict]:
    """Verdicts on the benchmarks of both sides, in the order of the new."""
    first, fresh = (evidence_of((base, new), stage, terms) for stage in (False, True))
    fresh = {key: item for key, item in fresh.items() if min(map(len, item.sides)) > 1}
    # What has no fresh runs stays as screening saw it: else fresh runs of others might make it suspect, too late.
    evidence = tested(first) | {key: item for key, item in tested(first | fresh).items() if key in fresh}
    screened = any(one.stage for side in (base, new) for seen in side.values() for one in seen)
    family = [key for key in evidence if key in fresh or not screened]
    ps = [
        inference.benjamini_hochberg([evidence[key].larger_p(slower, terms.least) for key in family])
        for slower in (True, False)
    ]
    tails = [tail(adjusted, FALSE_DISCOVERIES) for adjusted in ps]
    both = dict(zip(family, zip(*ps, strict=True), strict=True))
    verdicts = []
    for key in (key for key in new if key in evidence):
        item, plain = evidence[key], _plain(key, evidence[key])
        decided = key in both
        verdicts.append(_decided(plain, item, terms, both[key], tails) if decided else _screened(plain, item, terms))
        if decided and verdicts[-1].verdict == INCONCLUSIVE:
            verdicts[-1] = _explained(verdicts[-1], item, terms, FALSE_DISCOVERIES / len(family))
    return verdicts


def _plain(key: CaseKey, evidence: Evidence) -> Verdict:
    """A verdict with the 95 % interval of the benchmark alone; it stays inconclusive until it is decided."""
    base_s, new_s = evidence.times
    count = len(evidence.sides[0]), len(evidence.sides[1])
    if not evidence.changes:
        ratio = Interval(new_s / base_s, 0.0, math.inf, intervals.SPREAD)
        return Verdict(key, INCONCLUSIVE, ratio, base_s, new_s, None, count)
    screened = evidence.sides[0][0].stage == SCREEN
    error = min(change.error for change in (evidence.changes[::3] if screened else evidence.changes[:1]))
    spread = math.sqrt(max(0.0, error**2 - evidence.hidden_variance) / (1 / count[0] + 1 / count[1]))
    seen = math.expm1(min(inference.detectable(change, level, POWER) for change, level in evidence.suspicions))
    ratio = evidence.changes[2].interval()
    return Verdict(key, INCONCLUSIVE, ratio, base_s, new_s, None, count, spread=spread, seen=seen)


def _decided(plain: Verdict, evidence: Evidence, terms: Terms, ps: Sequence[float], tails: Sequence[float]) -> Verdict:
    """A benchmark that may be called slower, from its p values adjusted over all of them."""
    log, word = math.log(plain.ratio.value), INCONCLUSIVE
    if ps[0] <= FALSE_DISCOVERIES and log >= terms.least:
        word = SLOWER
    elif ps[1] <= FALSE_DISCOVERIES and -log >= terms.least:
        word = FASTER
    elif _is_same(plain, terms):
        return replace(plain, verdict=SAME, p=ps[0])
    ratio = plain.ratio
    if evidence.changes:
        inside = [change.interval(tails[0], tails[1]) for change in evidence.changes[: 2 + (word == INCONCLUSIVE)]]
        low, high = min(span.low for span in inside), max(span.high for span in inside)
        ratio = replace(ratio, low=min(low, ratio.value), high=max(high, ratio.value))
    p = None if not evidence.changes and word == INCONCLUSIVE else ps[0]
    return replace(plain, verdict=word, ratio=ratio, p=p)


def _screened(verdict: Verdict, evidence: Evidence, terms: Terms) -> Verdict:
    """The verdict on a benchmark without fresh runs."""
    least = math.log(1 + terms.threshold)
    suspect = bool(evidence.unfit) or abs(math.log(verdict.ratio.value)) >= least
    if evidence.changes:
        suspect = any(
            min(change.larger_p(), change.inverse().larger_p()) <= level and abs(change.log) >= least / 2 - 1e-9
            for change, level in evidence.suspicions
        )
        if _is_same(verdict, terms):
            return replace(verdict, verdict=SAME)
    if suspect:
        return _because(replace(verdict, suspect=True), evidence.unfit or Reason(Cause.UNCONFIRMED))
    if not evidence.changes:  # one process shows no noise, so it can't be said what would have been noticed
        return _because(verdict, Reason(Cause.ONE_PROCESS))
    own, seen = math.expm1(abs(math.log(verdict.ratio.value))), max(verdict.seen or 0.0, math.expm1(least / 2))
    # The fastest rounds would show such a change, but the medians, which the ratio is of, don't.
    if own > seen:
        seen = math.expm1(max(inference.detectable(change, level, POWER) for change, level in evidence.suspicions))
        verdict = replace(verdict, seen=(seen := max(own, seen)))
    if seen >= HIDES:
        words = f"a change of {percent(seen)}" if seen < 1 else f"{1 + seen:.2g} times slower"
        return _because(verdict, Reason(Cause.HIDDEN, (words,)))
    return replace(verdict, verdict=NO_SIGN, why=Reason(Cause.UNSEEN, (percent(seen),)))


def _explained(verdict: Verdict, evidence: Evidence, terms: Terms, level: float) -> Verdict:
    """The verdict with the reason why it is inconclusive, and how many more runs a side would prove a change by the
    threshold."""
    in_turn = terms.in_turn[0] or bool(evidence.sides[0][0].stage)
    if evidence.unfit:
        return _because(verdict, evidence.unfit, in_turn)
    if evidence.changes and abs(math.log(verdict.ratio.value)) >= terms.least > abs(evidence.changes[0].log):
        return _because(verdict, Reason(Cause.SHARED))
    runs = min(len({one.process[0] for one in side}) for side in evidence.sides)
    spread, hidden, why = verdict.spread, evidence.drift.hidden, Reason(Cause.NOISY, (percent(verdict.spread),))
    if not evidence.changes:
        spread, hidden, why = USUAL_SPREAD, 0.0, Reason(Cause.ONE_PROCESS)
    elif not verdict.ratio.low <= 1 <= verdict.ratio.high:
        why = Reason(Cause.NEAR)
    elif hidden > spread:
        why = Reason(Cause.DRIFT, (percent(hidden),))
    spread = math.hypot(spread / math.sqrt(min(verdict.processes) / runs), hidden)
    needed = inference.needed_values(spread, 1 + terms.threshold, level, most=MOST_NEEDED)
    noun = "more pair" if in_turn else "more run"
    if needed is None:
        advice = f"only more than {MOST_NEEDED} {noun[5:]}s would be conclusive: use a quieter machine"
        advice += " or --interleave" * (not in_turn)
        return replace(verdict, why=why, advice=advice, need=Cause.HELD_UP.need)
    more = max(1, needed - runs)
    head = f"about {counted(more, noun)}" if in_turn else f"use --interleave, or about {counted(more, noun)} per side"
    advice = f"{head} would detect a change of {percent(terms.threshold)}"
    assumed = "" if evidence.changes else f" (assuming {percent(spread)} variation between processes)"
    need = "more pairs" if in_turn else "--interleave"
    return replace(verdict, why=why, advice=advice + assumed, more=more, need=need)


def _is_same(verdict: Verdict, terms: Terms) -> bool:
    """Whether the whole interval lies within the threshold."""
    most = 1 + terms.threshold
    return 1 / most < verdict.ratio.low and verdict.ratio.high < most


def _because(verdict: Verdict, why: Reason, in_turn: bool = True) -> Verdict:
    advice = why.cause.remedy(in_turn, bool(verdict.key.implementation))  # unknown of a test without the fixture
    return replace(verdict, why=why, advice=advice, need=why.cause.need)


def percent(share: float) -> str:
    """``5 %`` for 0.05, also ``4.2 %`` and ``130 %``."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
