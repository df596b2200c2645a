"""The rounds of a prepared call: how many, at which placements of its data, and their end."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from msgspec import structs

from ..devices.cpu import cache_sizes
from ..errors import WrongAnswer
from ..runfile.schema import Check
from . import budget, calls, disturbance
from .blocks import Uncopyable
from .clock import Share
from .copies import copy_call
from .placements import COPYING_SHARE, PLACEMENTS, ROUNDS_EACH, USUAL_CACHE, Placements
from .plan import Prepared, Rounds
from .precision import apply
from .prepare import next_call
from .probes import latency

LONG_CALL = 0.01
"""A call that takes longer than this, in seconds, is a whole round: the median of the rounds is its latency."""


def plan_rounds(prepared: Prepared) -> Share:
    """Return the rounds of a call, to be taken, perhaps in turn with those of others."""
    plan, call = prepared.plan, prepared.call
    share = Share(next_call(plan, call), plan.clock, 1, collects=plan.declared.collects)
    if not plan.times:
        return share
    repeats, call_s = call.again is not None and plan.flush is None, prepared.call_s
    if call.again and repeats and call_s < LONG_CALL:
        share.latency_s = latency(call.again, plan.clock)
        call_s = min(call_s, share.latency_s)  # the last calls of a short warm-up may have been interrupted
    longer = dataclasses.replace(plan.preset, max_time=budget.SPREAD_S)
    before_s = None if repeats else prepared.round_s - prepared.call_s
    preset = longer if plan.spreads else plan.preset
    share.rounds, share.calls = budget.plan(call_s, preset, before_s)
    if plan.spreads:
        share.halfway = plan.session.measure_ceilings
        share.seconds = budget.SPREAD_S if share.rounds >= ROUNDS_EACH * PLACEMENTS else None
    if plan.session.settings.judges and plan.session.settings.processes == 1:
        share.placements = _placements(prepared, share)
    # The device's clocks have risen by now; from here on they must not fall.
    share.clocks = disturbance.look(plan.clock.devices).clocks
    return share


def _placements(prepared: Prepared, share: Share) -> Placements | None:
    """Return the call with copies at other addresses; None, with the reason in the share, if there can't be any."""
    plan, call = prepared.plan, prepared.call
    if plan.home.accelerator or plan.home.simulated or len(plan.clock.devices) > 1:
        return None
    share.unplaced = _why_unplaced(prepared, share.rounds)
    memory, limit = plan.home.memory(), 2 * ([*(cache_sizes() or {}).values()] or [USUAL_CACHE])[-1]
    limit = min(limit, memory.free // 16) if memory else limit
    start, allowed_s = plan.clock.now(), COPYING_SHARE * (plan.preset.max_time + plan.preset.warmup)
    placed = Placements([(call.function, call.args, call.kwargs)])
    while not share.unplaced and len(placed.calls) < PLACEMENTS:
        if plan.clock.now() - start > allowed_s:
            share.unplaced = "copying it takes too long"
            break
        placed.add_spacer()
        try:
            copied = copy_call(call.request.function, call.args, call.kwargs, limit_bytes=limit)
        except Uncopyable as error:
            share.unplaced = str(error)
            break
        function = apply(prepared.case.variant, copied.function, plan.home)
        function = plan.library.prepared(function, copied.args, copied.kwargs)
        placed.calls.append((function, copied.args, copied.kwargs))
    return None if share.unplaced else placed


def _why_unplaced(prepared: Prepared, rounds: int) -> str:
    """Return why no copies of the call take rounds; empty if they may."""
    plan, call = prepared.plan, prepared.call
    if prepared.case.variant not in ("eager", "autocast"):
        return f"it is run as {prepared.case.variant}"
    if call.again is None or plan.flush is not None or plan.declared.writing:
        return "its data are prepared for each round, or overwritten"
    if prepared.given and prepared.given.changed():
        return "the call changes what it uses"
    return "" if rounds >= ROUNDS_EACH * PLACEMENTS else "it has few rounds"


def end_rounds(prepared: Prepared, share: Share, result: Any) -> Rounds:
    """Return the rounds that were taken, with ``result`` of a call after them, which is checked too."""
    plan, given = prepared.plan, prepared.given
    for device in plan.clock.devices:
        device.synchronize()
    after = disturbance.look(plan.clock.devices)  # before the check, during which an accelerator's clocks fall
    changed = given.changed() if given else []
    check = _check_last(prepared, result)
    before = dataclasses.replace(prepared.before, clocks=share.clocks)
    flags = () if plan.home.simulated else tuple(disturbance.disturbed(before, after))
    flags = (*share.note(flags), *calls.altered([] if plan.declared.writing else changed))
    blocks = tuple(share.blocks)
    placed, spread = blocks if share.placements else (), blocks if share.seconds else ()
    return Rounds(result, check, share.cpu_s, share.latency_s, placed, spread, share.unplaced, flags)


def _check_last(prepared: Prepared, result: Any) -> Check:
    """Check a later result too, for a race or a stale cache. Another one may be right if the call draws random numbers,
    or if its copy gives other results when it is repeated."""
    plan, call, expected = prepared.plan, prepared.call, prepared.expected
    if expected is None or call.again is None or not plan.times:
        return prepared.check
    reason = "the call draws random numbers" if expected.seen.random else ""
    try:
        if not reason:
            expected.check_last(result)
    except WrongAnswer:
        copy = partial(copy_call, call.request.function, call.args, call.kwargs, limit_bytes=plan.copied_bytes())
        reason = expected.why_another(copy)
        if not reason:
            raise
    return structs.replace(prepared.check, reason=f"the first result alone: {reason}") if reason else prepared.check
