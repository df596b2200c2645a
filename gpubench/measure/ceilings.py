"""Measured peaks of each device, the ceilings of its results: bandwidth by access pattern and footprint, and products
by dtype; on a CPU the fastest of several libraries, as a slow one would seem to reach its own peak."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..devices import CPU, Device, SimulatedDevice
from ..devices.cpu import cache_sizes, flops_allowed, highest_clock, instructions
from ..devices.implementations import LIBRARIES, TORCH, Implementation
from ..devices.lazy import torch
from ..errors import Unmeasurable
from ..runfile.schema import Bandwidth, Ceilings
from .clock import DeviceClock, repeat
from .data import pinned_copy
from .precision import matmul_precision, torch_dtype
from .probes import device_time


@dataclass(frozen=True, slots=True)
class Effort:
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
GLIMPSE = Effort(0.005, 0.02, 0)
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
be another footprint, whose peaks seem to contradict this one's."""
UNKNOWN_CACHE = 1 << 28
"""Bytes that the last cache of an accelerator is taken to have where torch doesn't say: as much as any has."""
LAUNCHED_S = 5e-5
"""A pass on an accelerator that is shorter than this, in seconds, may take as long as its launch: the device's own time
counts."""
Maker = Callable[["torch.Tensor"], Callable[[], Any]]
"""A function that makes the call which multiplies a matrix by itself."""


def measure_ceilings(wanted: Mapping[Device, Iterable[str]], effort: str) -> dict[str, Ceilings]:
    """Return the ceilings by device name, for the dtypes wanted of each. A device that fails has none, and a warning
    says why."""
    measured = {}
    for device, dtypes in wanted.items():
        names = sorted(dtypes)
        try:
            declared = isinstance(device, SimulatedDevice)
            measured[str(device)] = _declared(device, names) if declared else _ceilings(device, names, EFFORTS[effort])
        except RuntimeError as error:
            warnings.warn(f"gpubench: no ceilings of {device}: {' '.join(str(error).split())}", stacklevel=2)
    return measured


def measure_products(dtypes: Iterable[str]) -> Ceilings:
    """Measure only the CPU's products, within half a second: enough to compare libraries."""
    return _products(CPU, list(dtypes), GLIMPSE)


def _products(device: Device, dtypes: list[str], effort: Effort) -> Ceilings:
    ways = {dtype: _ways(device, dtype, effort) for dtype in dtypes}
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
            links[f"{name}_byte_per_s"] = host.nbytes / _shortest(copy, clock, effort.seconds)
    device.release_pinned_memory()
    launch_floor_s = _shortest(_random(1, device).neg_, clock, effort.seconds, most=1000)
    return replace(products, bandwidth=bandwidth, launch_floor_s=launch_floor_s, **links)


def _bandwidth(device: Device, effort: Effort) -> Iterator[Bandwidth]:
    footprints, clock = _footprints(device, effort), DeviceClock([device])
    pool = _random(max(nbytes for _, nbytes in footprints) // 4, device)
    for pattern, (arrays, traffic, operation) in PATTERNS.items():
        for level, footprint in footprints:
            count = footprint // _OF_EVERY_PATTERN * _OF_EVERY_PATTERN // 4 // arrays
            call = partial(operation, *(pool[i * count : (i + 1) * count] for i in range(arrays)))
            seconds = _shortest(call, clock, effort.seconds)
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
    """Footprints in bytes, each with its level: half of each cache, two, four and eight times the last cache, and steps
    of a factor of 16 between them, as far as effort and free memory allow.

    Beyond four times the last cache, whose replacement isn't strictly that of the oldest, next to nothing survives in
    it until the next pass; where that is too much, twice has to do. A smaller footprint beyond the cache's size is
    named after the cache, with a plus: without it, data of three times the cache would be compared with the cache.
    """
    memory, size = device.memory(), device.cache_bytes()
    most = min(effort.footprint, memory.free // 4 if memory else effort.footprint)
    caches = (device == CPU and cache_sizes()) or ({"l2": size} if size else {"cache": min(UNKNOWN_CACHE, most // 4)})
    last = max(caches.values())
    beyond = 4 * last if 4 * last <= most else 2 * last
    sizes = {*(nbytes // 2 for nbytes in caches.values()), 2 * last, beyond, 8 * last}
    for nbytes in sorted(sizes):
        while any(other < nbytes // 16 for other in sizes) and not any(nbytes // 16 <= o < nbytes for o in sizes):
            nbytes //= 16
            sizes.add(nbytes)
    sizes = {nbytes for nbytes in sizes if nbytes <= most} | ({most} if most < beyond else set())
    levels = [*caches.items(), (f"{list(caches)[-1]}+", beyond - 1), ("memory", math.inf)]
    return [(next(level for level, cache in levels if nbytes <= cache), nbytes) for nbytes in sorted(sizes)]


def _ways(device: Device, dtype: str, effort: Effort) -> dict[str, float]:
    """FLOP/s of square products by library, the best over sizes that double while a call stays short. At each size the
    libraries are timed in turn, so that whatever else the machine does slows all of them. oneDNN's own product, which
    PyTorch uses in the layers of networks, differs from that of ``torch.mm``, for which PyTorch calls a BLAS."""
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
                    seconds = _shortest(maker(a), clock, effort.seconds)
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


def _shortest(call: Callable[[], Any], clock: DeviceClock, seconds: float, most: int = 100) -> float:
    """Least seconds per call over stretches of up to ``most`` calls that share one wait, for about ``seconds``."""
    call()
    call()
    (single_s,) = repeat(call, clock, least=1, most=1)
    calls = max(1, min(most, int(seconds / 8 / max(single_s, 1e-9))))
    return max(min(repeat(call, clock, least=2, most=50, seconds=seconds, calls=calls)) / calls, 1e-12)
