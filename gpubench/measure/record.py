"""The record of a call: what is measured besides its rounds, once in a run."""

from __future__ import annotations

import statistics
from functools import partial
from time import perf_counter
from typing import Any

from ..devices import Device
from ..devices.implementations import TORCH
from ..runfile.schema import Case, Transfer
from . import budget, environment
from .clock import repeat
from .plan import Declared, Plan, Prepared, Rounds
from .precision import apply, autocast_dtype
from .probes import device_time, energy, transfer

MMAP_THRESHOLD, PAGE, FAULT_S = 1 << 17, 4096, 1e-6
"""Bytes of a block above which a plain glibc returns it to the kernel, of a page, and most seconds of a page fault."""
PLAIN_WARM_S, PLAIN_CALLS_S, PLAIN_SHARE = 0.2, 0.1, 0.1
"""Seconds of the first calls in a plain process, which aren't timed: its new threads may share a core at first, and
calls then take a hundred times as long. Seconds of the timed calls, and the least share of a call that page faults
could take there."""


def fields_of(prepared: Prepared, rounds: Rounds) -> dict[str, Any]:
    """Return the fields of a call's :class:`~gpubench.runfile.schema.Measurement`, and those of its process. Those that
    need a probe are measured now."""
    counted, named = prepared.counted, dict[str, Any]()
    if prepared.data_dtype is not None:
        named["dtype"] = prepared.data_dtype
    if counted and counted.flops:
        named["convolution_share"] = counted.convolution_flops / counted.flops
    measured: dict[str, Any] = {"check": rounds.check, "first_call_s": prepared.first_s, "latency_s": rounds.latency_s}
    measured |= {"cpu_s": rounds.cpu_s, "unplaced": rounds.unplaced, "steps": prepared.plan.request.steps}
    measured |= {"placed_blocks": rounds.placed, "spread_blocks": rounds.spread}
    measured |= {"uncounted": prepared.uncounted or None}
    return named | measured | _memory(prepared) | _probe(prepared, rounds)


def precision_of(home: Device, case: Case, declared: Declared) -> dict[str, Any]:
    """Return the precision in force."""
    autocast = {"autocast": autocast_dtype(home)} if case.variant == "autocast" else {}
    own = {"own_switches": True} if declared.own_switches and case.dtype == "tf32" else {}
    return environment.switches() | {"tf32": case.dtype == "tf32"} | autocast | own


def _probe(prepared: Prepared, rounds: Rounds) -> dict[str, Any]:
    """Measure the precision in force and, once in a run, what needs a probe."""
    plan, call = prepared.plan, prepared.call
    record: dict[str, Any] = {"precision": precision_of(plan.home, prepared.case, plan.declared)}
    if not (plan.times and plan.session.settings.first):
        return record
    single = sum(used.accelerator for used in plan.clock.devices) < 2
    record["plain_s"] = _plain_seconds(prepared)
    if len(plan.clock.devices) == 1:  # with several devices copying is the work itself
        record["transfer"] = _transfer(prepared, rounds)
    if plan.home.accelerator:  # afterwards: calls of a compiled function write over its last result
        record |= _device_time(prepared, single)
    # Energy is counted over many calls in a row, whose cache is hot.
    longest = plan.session.settings.preset == "full"  # a second for each call
    if longest and call.again and single and plan.flush is None:
        record["energy_j"] = energy(call.again, plan.home, plan.clock, prepared.call_s, budget.ENERGY_S)
    return record


def time_plainly(plan: Plan) -> Any:
    """Time a few calls, and nothing else: no probe has raised the thresholds of glibc before. Return a result."""
    args, kwargs = plan.request.arguments()
    function = plan.library.prepared(apply(plan.case.variant, plan.request.function, plan.home), args, kwargs)
    time_for = partial(repeat, lambda: function(*args, **kwargs), perf_counter, most=100_000)
    time_for(least=1, seconds=PLAIN_WARM_S)
    plan.session.plain_s = statistics.median(time_for(least=5, seconds=PLAIN_CALLS_S))
    return function(*args, **kwargs)


def _plain_seconds(prepared: Prepared) -> float | None:
    """Return the seconds of a call in a process that returns freed memory, if its page faults can matter."""
    plan, counted = prepared.plan, prepared.counted
    process, repeats = plan.session.plain_process, prepared.call.again is not None and plan.flush is None
    if process is None or counted is None or not repeats or plan.home.accelerator:
        return None
    made = counted.memory_bytes - counted.input_bytes
    faults_s = counted.moved_bytes / PAGE * FAULT_S
    if made < MMAP_THRESHOLD or faults_s < PLAIN_SHARE * prepared.call_s or prepared.case.variant != "eager":
        return None
    return process.seconds(plan.name, plan.session.use_threads())  # type: ignore[no-any-return]


def _device_time(prepared: Prepared, single: bool) -> dict[str, Any]:
    plan, call = prepared.plan, prepared.call
    if modelled := plan.home.modelled_s(call.function):
        return dict(zip(("device_s", "launch_s"), modelled, strict=True))
    if call.again is None:
        return {"device_reason": "the case sets up before every call"}
    if prepared.case.implementation != TORCH:
        return {"device_reason": f"{plan.library.label} queues its work on a stream of its own"}
    if not single:
        return {"device_reason": "the call uses several devices"}
    launches = prepared.counted.operations if prepared.counted else 1
    return device_time(call.again, plan.home, prepared.call_s, plan.flush, launches)._asdict()


def _transfer(prepared: Prepared, rounds: Rounds) -> Transfer | None:
    """Time the copies of the arguments, or of what the call's object says that it reads, as a step its batch."""
    call = prepared.call
    function = call.request.function
    inputs_of = getattr(getattr(function, "__self__", None), "inputs_of", None)
    named = {name: value for name, value in call.kwargs.items() if name != "out"}
    inputs = (call.args, named) if inputs_of is None else inputs_of(function.__name__)
    return None if inputs is None else transfer(inputs, rounds.result, prepared.plan.home)


def _memory(prepared: Prepared) -> dict[str, int]:
    """Return the most bytes that the case held at once, inputs included: from its device's allocator or, on a CPU,
    which has no allocator that counts, from the call's tensors."""
    plan, counted = prepared.plan, prepared.counted
    if not plan.home.accelerator:
        return {"memory_bytes": counted.memory_bytes} if counted else {}
    if prepared.peak_bytes is None or plan.held_bytes is None or prepared.case.implementation != TORCH:
        return {}  # another library has its own allocator
    used, workspace = prepared.peak_bytes - plan.held_bytes, plan.home.workspace_bytes()
    has_products = counted and (counted.flops or 0.0) > counted.convolution_flops
    if counted and has_products and used >= counted.memory_bytes + workspace:
        used -= workspace  # released after each product, and no memory of the call's tensors
    return {"memory_bytes": max(0, used)}
