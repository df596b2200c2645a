"""Probes of a case besides its wall time: latency, energy, device time, launch cost and transfers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..devices import CPU, Device, SimulatedDevice
from ..devices.lazy import torch
from ..errors import TooLarge, Unmeasurable
from ..runfile.schema import Transfer
from .clock import DeviceClock, repeat
from .data import all_as_tensors, memory_key, pinned_copy, require_memory, total_bytes

LATENCY_CALLS, LATENCY_S = 100, 0.02
LOOK_S, MOST_STEPS = 0.004, 50
"""Seconds of calls between two readings of a counter: short compared with a GPU's steps of 20 to 100 ms, long compared
with a wait; and the steps after which the energy is known, as a CPU's counter moves every millisecond."""
LONG_S, REPEATS, QUEUED_S = 1.0, 5, 0.02
"""A call of more than this many seconds is made once for its device time; repetitions of others, and the seconds for
which each may roughly keep the device busy."""
MOST_CALLS, MOST_LAUNCHES = 50, 500
"""Most calls that are queued at once, and most launches, as far as these are known. A device's queue is finite: beyond
about a thousand launches the host has to wait."""
LONGEST_HOLD, TRIES, LAGS = 0.5, 4, 0.5
"""Longest wait, most tries with fewer calls behind a longer one, and the largest share of a device's time that
launching may take where the device can't be held."""
HELD, MARKED = "held", "marked"
"""How a device time was measured: calls queued behind a wait, or marks around calls that were not held back."""
FEWEST_COPIES, MOST_COPIES, COPIES_S = 3, 20, 0.05
_Call = Callable[[], Any]


def flush(device: Device) -> _Call:
    """Return the function that empties the device's last-level cache before a round: it writes twice as many bytes as
    that holds, since its replacement isn't strictly that of the oldest, and reads as many others, so that the call
    doesn't pay for writing back. Raises :class:`Unmeasurable` where the size of the cache is unknown."""
    size = device.cache_bytes()
    if not size:
        raise Unmeasurable(f"{device} reports no cache size, so its cache can't be flushed")
    written, read, total = (torch.zeros(n, device=str(device)) for n in (size // 2, size // 2, 1))
    read_all = partial(torch.sum, read, 0, keepdim=True, out=total)
    return lambda: (written.zero_(), read_all())


def latency(call: _Call, clock: DeviceClock) -> float:
    """Median seconds of one call that waits for its own end: over at least 3 and at most 100 calls, for about 20 ms."""
    return statistics.median(repeat(call, clock, least=3, most=LATENCY_CALLS, seconds=LATENCY_S))


def energy(call: _Call, device: Device, clock: DeviceClock, call_s: float, seconds: float) -> float | None:
    """Joules per call, idle power included, from a step of the device's counter to another; ``None`` without a counter
    that moves. Calls count from the first step that is seen to the first one after so many ``seconds``, at least two
    calls."""
    last = device.energy_j()
    if last is None:
        return None
    calls = max(1, int(LOOK_S / max(call_s, 1e-7)))
    first: float | None = None
    counted = steps = 0
    begin = moved = clock()
    while True:
        for _ in range(calls):
            call()
        now, reading = clock(), device.energy_j() or 0.0
        counted += calls
        if reading > last:
            if first is None:
                first, begin, counted = reading, now, 0
            else:
                steps += 1
            last, moved = reading, now
            if counted and (now - begin >= seconds or steps >= MOST_STEPS):
                return (last - first) / counted
        elif now - moved > seconds:
            return None


class DeviceTime(NamedTuple):
    """Seconds per call on the device and on the host; ``device_reason`` says why the former is unknown."""

    device_s: float | None
    launch_s: float | None
    device_reason: str | None = None
    device_method: str | None = None


def device_time(call: _Call, device: Device, call_s: float, flush: _Call | None, launches: int = 1) -> DeviceTime:
    """Queue calls behind a wait on the device and read the device's own clock around them.

    All launches are queued before the first one starts, so there is only work between two marks on the device; without
    the wait, marks around a few launches measure the host. ``call_s`` is the expected wall time of one call,
    ``launches`` about how many it makes. ``flush`` runs on the device before each call and outside its marks; the time
    of an empty pair of marks is subtracted. A repetition counts only if the device still waited when the last call was
    queued; otherwise fewer calls are queued behind a longer wait. Where that doesn't help it is measured without, and
    is unknown where launching takes as long as the work: a profiler would slow every launch-bound call after it in this
    process (pytorch#119458), and may lose kernels (pytorch#192021). A call of more than a second is made once.
    """
    if call_s > LONG_S:
        return _unheld(call, device, 1, flush)
    calls = max(1, min(MOST_CALLS, MOST_LAUNCHES // max(1, launches), int(QUEUED_S / max(call_s, 1e-9))))
    into_empty_queue = repeat(call, device.now, least=3, most=3, calls=calls, before=device.synchronize)
    device.synchronize()
    launch_s = min(into_empty_queue) / calls
    hold_s, times, failures = 2 * calls * launch_s + 2e-4, list[float](), 0
    while len(times) < REPEATS:
        if failures == TRIES or hold_s > LONGEST_HOLD:
            marked = _unheld(call, device, calls, flush)  # right where the device lags all the same
            why = "the call waits for the device itself, or has more launches than fit its queue"
            return marked if marked.device_s else DeviceTime(None, launch_s, why)
        seconds = _held(call, device, calls, hold_s, flush)
        if seconds is None:
            return _unheld(call, device, calls, flush)
        if seconds >= 0:
            times.append(seconds)
        else:  # too many launches for the queue, or too short a wait
            calls, failures = max(1, calls // 4), failures + 1
            hold_s = max(hold_s, 2 * calls * launch_s * 4**failures + 2e-4)
    if not (device_s := statistics.median(times)):
        return DeviceTime(None, launch_s, "the call took no time that the device's clock shows")
    return DeviceTime(device_s, launch_s, device_method=HELD)


def _held(call: _Call, device: Device, calls: int, hold_s: float, flush: _Call | None) -> float | None:
    """Seconds per call; negative if the device began before all were queued, ``None`` if it can't be made to wait."""
    device.synchronize()
    if not device.queue_wait(hold_s):
        return None
    held, marks, several = device.record_event(), [], 1 if flush else calls
    for _ in range(calls // several):
        if flush:
            flush()
        empty, start = device.record_event(), device.record_event()
        for _ in range(several):
            call()
        marks.append((empty, start, device.record_event()))
    early = held.query()
    device.synchronize()
    if early:
        return -1.0
    alone = statistics.median(empty.elapsed_time(start) for empty, start, _ in marks) if flush else 0.0
    return max(0.0, statistics.median(start.elapsed_time(end) for _, start, end in marks) - alone) / 1e3 / several


def _unheld(call: _Call, device: Device, calls: int, flush: _Call | None) -> DeviceTime:
    """Measure with marks around calls that begin at once: right only where the device lags far behind the host."""
    if flush is not None:
        calls = 1
        flush()
    device.synchronize()
    try:
        start, begin = device.record_event(), device.now()
        for _ in range(calls):
            call()
        launch_s = (device.now() - begin) / calls
        end = device.record_event()
        device.synchronize()
        device_s = start.elapsed_time(end) / 1e3 / calls
    except NotImplementedError:  # XPU's events, with SYCL before 2025, tell no time
        return DeviceTime(None, None, f"{device.kind} can neither be made to wait nor time itself")
    if launch_s > LAGS * device_s:
        return DeviceTime(None, launch_s, "launching takes as long as the work itself; device time unknown")
    return DeviceTime(device_s, launch_s, device_method=MARKED)


def transfer(given: Any, result: Any, device: Device) -> Transfer | None:
    """Time all copies of each direction, with one wait at the end: median seconds, pageable and pinned. Inputs are
    overwritten with themselves. For a CPU, or a GPU in the CPU's memory, only the number of bytes that another GPU
    would have to copy is recorded. ``None`` if there is no tensor on the device, or no room on the host for the
    copies."""
    if not device.accelerator or device.shares_memory:
        held = total_bytes(given), total_bytes(result)
        return Transfer(*held) if any(held) else None
    inputs, outputs = _on_device(given, device), _on_device(result, device)
    sizes = sum(t.nbytes for t in inputs), sum(t.nbytes for t in outputs)
    try:
        require_memory(2 * max(sizes), CPU)
    except TooLarge:
        return None
    times: dict[str, float | None] = {}
    for way, tensors, size in (("in", inputs, sizes[0]), ("out", outputs, sizes[1])):
        for suffix, pinned in (("_s", False), ("_pinned_s", True)) if tensors else ():
            modelled_s = device.copy_s(size, pinned) if isinstance(device, SimulatedDevice) else None
            times[way + suffix] = modelled_s or _copies_s(tensors, device, way == "in", pinned)
    device.release_pinned_memory()
    return Transfer(sizes[0], sizes[1], **times) if any(sizes) else None


def _on_device(values: Any, device: Device) -> list[torch.Tensor]:
    """Return the tensors on the device, each memory once; a view with gaps is copied as its elements alone."""
    distinct: dict[Any, torch.Tensor] = {}
    for tensor in all_as_tensors(values):
        resident = str(tensor.device) == device.torch_name or (tensor.device.type == device.kind and not device.index)
        if resident and tensor.numel():
            distinct.setdefault(memory_key(tensor), tensor.detach())
    return [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in distinct.values()]


def _copies_s(tensors: list[torch.Tensor], device: Device, arriving: bool, pinned: bool) -> float | None:
    hosts = [torch.empty_like(tensor, device="cpu").copy_(tensor) for tensor in tensors]
    try:
        hosts = [pinned_copy(host) for host in hosts] if pinned else hosts
    except Unmeasurable:
        return None

    copies = [*(zip(tensors, hosts, strict=True) if arriving else zip(hosts, tensors, strict=True))]

    def once() -> None:
        for target, source in copies:
            target.copy_(source, non_blocking=True)

    once()
    clock = DeviceClock([device])
    return statistics.median(repeat(once, clock, least=FEWEST_COPIES, most=MOST_COPIES, seconds=COPIES_S))
