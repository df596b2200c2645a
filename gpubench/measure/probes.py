"""Probes: the measured peaks of each device, which are the ceilings of its results, and the facts of a case besides its
wall time: latency, energy, device time, launch cost and transfers."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..devices import CPU, Device, SimulatedDevice
from ..devices.cpu import cache_sizes, flops_allowed, highest_clock, instructions
from ..devices.implementations import LIBRARIES, TORCH, Implementation
from ..devices.lazy import torch
from ..errors import TooLarge, Unmeasurable
from ..runfile.schema import Bandwidth, Ceilings, Transfer
from .clock import DeviceClock, repeat
from .data import all_as_tensors, memory_key, pinned_copy, require_memory, total_bytes
from .precision import matmul_precision, torch_dtype

_Call = Callable[[], Any]


class Effort(NamedTuple):
    """Seconds spent on each figure, seconds of the longest call tried, and the most bytes that an access pattern may
    touch."""

    seconds: float
    call: float
    footprint: int


EFFORTS = {
    "smoke": Effort(0.002, 0.002, 1 << 22),
    "brief": Effort(0.015, 0.08, 1 << 28),
    "glance": Effort(0.06, 0.12, 1 << 30),
    "quick": Effort(0.06, 0.12, 1 << 30),
    "full": Effort(0.2, 0.5, 1 << 32),
}
GLIMPSE, ROUGH = Effort(0.005, 0.02, 0), Effort(0.01, 0.004, 0)
"""Enough to compare libraries, and to see that a call would take minutes: on a CPU products of n = 512 at most."""
SIZES, TRANSFER_BYTES = [256 << step for step in range(7)], 1 << 26
PATTERNS: dict[str, tuple[int, int, Callable[..., Any]]] = {
    "read": (1, 1, lambda x: x.sum()),
    "in-place": (1, 2, lambda x: x.neg_()),
    "copy": (2, 2, lambda x, y: y.copy_(x)),
    "triad": (3, 3, lambda x, y, z: torch.add(x, y, alpha=3.0, out=z)),
    "write": (1, 1, lambda x: x.fill_(1.0)),
}
"""Number of arrays, passes over one array's bytes, and operation of each pattern (triad is that of J. McCalpin's
STREAM). The pattern that leaves constants behind comes last."""
_OF_EVERY_PATTERN = 24
"""Footprints are multiples of so many bytes, which one, two or three arrays of floats can fill: a few bytes fewer would
be another footprint with peaks that seem to contradict this one's."""
UNKNOWN_CACHE = 1 << 28
"""Bytes that the last cache of an accelerator is taken to have where torch doesn't say: as much as any has."""
LAUNCHED_S = 5e-5
"""A pass on an accelerator that is shorter than this, in seconds, may take as long as its launch: the device's own time
counts."""
Maker = Callable[["torch.Tensor"], Callable[[], Any]]
"""A function that makes the call which multiplies a matrix by itself."""


def measure_ceilings(
    wanted: Mapping[Device, Iterable[str]], effort: str, notify: Callable[[str], object]
) -> dict[str, Ceilings]:
    """Return the ceilings by device name, for the dtypes wanted of each. A device that fails has none; ``notify`` gets
    the reason."""
    measured = {}
    for device, dtypes in wanted.items():
        names = sorted(dtypes)
        try:
            simulated = _declared(device, names) if isinstance(device, SimulatedDevice) else None
            measured[str(device)] = simulated or _ceilings(device, names, EFFORTS[effort])
        except RuntimeError as error:
            notify(f"no % of peak of {device}, as measuring its peaks failed: {' '.join(str(error).split())[:200]}")
    return measured


def measure_products(dtypes: Iterable[str]) -> Ceilings:
    """Measure only the CPU's products, within half a second: enough to compare libraries."""
    return _products(CPU, list(dtypes), GLIMPSE)


def _products(device: Device, dtypes: list[str], effort: Effort) -> Ceilings:
    ways = {dtype: product_rates(device, dtype, effort) for dtype in dtypes}
    measured = Ceilings(throughput={dtype: max(rates.values()) for dtype, rates in ways.items() if rates})
    if device.accelerator:
        return measured
    a, clocks = _random(1 << 20, CPU).view(1 << 10, 1 << 10), [0.0]
    for _ in range(5):
        torch.mm(a, a)
        clocks.append(highest_clock() or 0.0)  # of the fastest core, right after a product
    allowed = flops_allowed(instructions(), torch.get_num_threads(), max(clocks) or None)
    return replace(measured, ways=ways, allowed={dtype: allowed[dtype] for dtype in dtypes if dtype in allowed})


def _declared(device: SimulatedDevice, dtypes: list[str]) -> Ceilings:
    peaks = device.declared_peaks("float32")
    bandwidth = tuple(Bandwidth(pattern, 1 << 30, peaks.byte_per_s or 0.0, "memory") for pattern in PATTERNS)
    throughput = {dtype: rate for dtype in dtypes if (rate := device.declared_peaks(dtype).flop_per_s)}
    return Ceilings(bandwidth, throughput, peaks.launch_s, peaks.link_byte_per_s, peaks.link_byte_per_s)


def _ceilings(device: Device, dtypes: list[str], effort: Effort) -> Ceilings:
    clock, links = DeviceClock([device]), dict[str, float]()
    bandwidth, products = tuple(_bandwidth(device, effort)), _products(device, dtypes, effort)
    if device.accelerator and not device.shares_memory:
        count = min(TRANSFER_BYTES, effort.footprint) // 4
        host, target = torch.ones(count), torch.ones(count, device=str(device))
        with contextlib.suppress(Unmeasurable):  # from pinned memory where the kind of device supports it
            host = pinned_copy(host)
        for name, to, source in (("host_to_device", target, host), ("device_to_host", host, target)):
            copy = partial(to.copy_, source, non_blocking=True)
            links[f"{name}_byte_per_s"] = host.nbytes / shortest(copy, clock, effort.seconds)
    device.release_pinned_memory()
    launch_floor_s = shortest(_random(1, device).neg_, clock, effort.seconds, most=1000)
    return replace(products, bandwidth=bandwidth, launch_floor_s=launch_floor_s, **links)


def _bandwidth(device: Device, effort: Effort) -> Iterator[Bandwidth]:
    footprints, clock = _footprints(device, effort), DeviceClock([device])
    pool = _random(max(nbytes for _, nbytes in footprints) // 4, device)
    for pattern, (arrays, traffic, operation) in PATTERNS.items():
        for level, footprint in footprints:
            count = footprint // _OF_EVERY_PATTERN * _OF_EVERY_PATTERN // 4 // arrays
            call = partial(operation, *(pool[i * count : (i + 1) * count] for i in range(arrays)))
            seconds = shortest(call, clock, effort.seconds)
            if device.accelerator and seconds < LAUNCHED_S:
                seconds = device_time(call, device, seconds, None).device_s or seconds
            yield Bandwidth(pattern, 4 * arrays * count, 4 * traffic * count / seconds, level)


def _random(count: int, device: Device) -> torch.Tensor:
    """Return values uniform in [-1, 1) with all bits random, since a device's clocks depend on the bits that flip. The
    repeated block has a prime length: with a power of two, the rows of a matrix would be equal."""
    generator = torch.Generator().manual_seed(1)
    seed = torch.rand(min(count, 65521), generator=generator).mul_(2).sub_(1).to(str(device))
    return seed.repeat(math.ceil(count / seed.numel()))[:count]


def _footprints(device: Device, effort: Effort) -> list[tuple[str, int]]:
    """Return footprints in bytes, each with its level: half of each cache, two, four and eight times the last cache,
    and steps of a factor of 16 between them, as far as effort and free memory allow.

    Beyond four times the last cache next to nothing survives in it until the next pass; where that is too much, twice
    has to do. A smaller footprint beyond the cache's size is named after the cache, with a plus.
    """
    memory, size = device.memory(), device.cache_bytes()
    most = min(effort.footprint, memory.free // 4 if memory else effort.footprint)
    caches = (device == CPU and cache_sizes()) or ({"l2": size} if size else {"cache": min(UNKNOWN_CACHE, most // 4)})
    last = max(caches.values())
    beyond = 4 * last if 4 * last <= most else 2 * last
    sizes = {*(nbytes // 2 for nbytes in caches.values()), 2 * last, beyond, 8 * last}
    for smaller, larger in itertools.pairwise(sorted(sizes)):
        sizes |= {larger // 16**step for step in range(1, 9) if larger // 16**step > smaller}
    sizes = {nbytes for nbytes in sizes if nbytes <= most} | ({most} if most < beyond else set())
    levels = [*caches.items(), (f"{list(caches)[-1]}+", beyond - 1), ("memory", math.inf)]
    return [(next(level for level, cache in levels if nbytes <= cache), nbytes) for nbytes in sorted(sizes)]


def product_rates(device: Device, dtype: str, effort: Effort) -> dict[str, float]:
    """Return the FLOP/s of square products by library, the best over sizes that double while a call stays short, with
    the libraries in turn. PyTorch uses oneDNN's product in the layers of networks, and a BLAS for ``torch.mm``."""
    best: dict[str, float] = {}
    if device.lacks(dtype):
        return best
    clock = DeviceClock([device])
    with contextlib.ExitStack() as opened, matmul_precision(dtype):
        makers = {TORCH: _of_torch} if device.accelerator else _makers(device, dtype, effort, opened)
        for n in SIZES:
            memory = device.memory()
            if not makers or (memory and 12 * n * n > memory.free // 4):
                break
            a = None
            for name, maker in list(makers.items()):
                try:
                    a = _random(n * n, device).view(n, n).to(torch_dtype(dtype)) if a is None else a
                    seconds = shortest(maker(a), clock, effort.seconds)
                except (RuntimeError, TypeError, NotImplementedError, Unmeasurable):  # no such product there
                    del makers[name]
                    continue
                best[name] = max(best.get(name, 0.0), 2 * n**3 / seconds)
                if 8 * seconds > effort.call:
                    del makers[name]
    return best


def _makers(device: Device, dtype: str, effort: Effort, opened: contextlib.ExitStack) -> dict[str, Maker]:
    makers: dict[str, Maker] = {TORCH: _of_torch}
    if dtype != "float64" and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        makers["onednn"] = _of_onednn
    for name, library in LIBRARIES.items():
        wanted = name == "numpy" or library.module in sys.modules or effort is EFFORTS["full"]
        if wanted and name != TORCH and dtype in library.dtypes and not library.why_absent():
            with contextlib.suppress(Unmeasurable):  # where the library is broken
                makers[name] = _by_library(library(device, dtype), opened)
    return makers


def _of_torch(a: torch.Tensor) -> Callable[[], Any]:
    return partial(torch.mm, a, a, out=torch.empty_like(a))


def _of_onednn(a: torch.Tensor) -> Callable[[], Any]:
    inner = a.to_mkldnn()
    return partial(torch.nn.functional.linear, inner, inner)


def _by_library(instance: Implementation, opened: contextlib.ExitStack) -> Maker:
    opened.callback(instance.close)
    instance.open(torch.get_num_threads())

    def maker(a: torch.Tensor) -> Callable[[], Any]:
        array = instance.array(a)
        out = {"out": instance.array(torch.empty_like(a))} if instance.writes else {}
        product = instance.prepared(instance.xp.matmul, (array, array), out)

        def call() -> None:
            product(array, array, **out)
            instance.wait()

        return call

    return maker


def shortest(call: Callable[[], Any], clock: DeviceClock, seconds: float, most: int = 100) -> float:
    """Least seconds per call over stretches of up to ``most`` calls that share one wait, for about ``seconds``."""
    call()
    call()
    (single_s,) = repeat(call, clock, least=1, most=1)
    calls = max(1, min(most, int(seconds / 8 / max(single_s, 1e-9))))
    return max(min(repeat(call, clock, least=2, most=50, seconds=seconds, calls=calls)) / calls, 1e-12)


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


def flush(device: Device) -> _Call:
    """Return the function that empties the device's last-level cache before a round: it writes twice as many bytes as
    that holds, since its replacement isn't strictly of the oldest, and reads as many others, so that the call
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
