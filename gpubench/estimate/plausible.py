"""What no hardware does: times below a GPU's bound, peaks far from its datasheet's, more power than its limit.

Whoever edits a results file consistently isn't found out; slips, wrong units and wrong names are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..devices.cpu import flops_allowed
from ..devices.datasheets import Gpu, find_card
from ..errors import UsageError
from ..runfile.quantities import seconds_text, text
from ..runfile.schema import Ceilings, DeviceFacts, Result, Run, Work
from ..runfile.utilisation import PLAUSIBLE, WINOGRAD, compute_dtype, utilisation
from .model import shortest

LEAST_SHARE, MOST_SHARE = 0.4, 1.2
"""Of a datasheet's figure that a measured peak reaches: GeForce cards clock up to 1.16 times above theirs."""
MOST_POWER = 1.5
"""Times the power limit: counters average over some 100 ms."""
CORE_FLOPS, SOCKET_BANDWIDTH = 1e13, 2e12
"""FLOP/s of a core, and byte/s of the memory of a CPU, that none reaches: AMX does 7e12 in bfloat16, HBM 1.6e12."""
FASTEST_HZ = 7e9
"""No core runs at that clock."""
OVERHEAD_S = (1e-8, 1e-3)
"""Seconds between which the launch of an operation lies."""
FAR_ABOVE = 2.0
"""Times the peaks of its device, which no benchmark reaches however badly those were measured; good runs reach 1.1."""
ENOUGH = 10
"""Benchmarks of which one at least comes near the peaks of its device."""
IDLE, MANY = 0.05, 0.1
"""Share of the peak that the best of them exceeds, and share of benchmarks that may exceed the peak."""


def known_gpus(run: Run, cards: Mapping[str, Gpu]) -> dict[str, Gpu | None]:
    """By device the GPU that its label names, ``None`` where no datasheet of it is known."""
    found: dict[str, Gpu | None] = {}
    for device in run.machine.devices:
        if device.accelerator:
            try:
                found[device.name] = find_card(device.label, cards)
            except UsageError:
                found[device.name] = None
    return found


def impossible(run: Run, cards: Mapping[str, Gpu]) -> Iterator[str]:
    """What can't be true of the machine that the run names, a sentence each."""
    gpus = known_gpus(run, cards)
    for device in run.machine.devices:
        results = [each for each in run.results if each.device == device.name and each.times and not each.parallel]
        peaks, gpu = run.every_ceiling.get(device.name), gpus.get(device.name)
        if peaks:
            yield from _beside_peaks(device, results, peaks)
            yield from _of_cpu(run, results, peaks) if not device.accelerator else ()
        elif any(each.work.flops or each.work.bytes for each in results):
            yield f"the measured peaks of {device.name} are missing: nothing says whether its times can be true"
        if gpu:
            yield from _too_fast(results, gpu)
            yield from _peaks_off(peaks or Ceilings(), gpu)
            yield from _too_much_power(results, gpu)


def _beside_peaks(device: DeviceFacts, results: list[Result], peaks: Ceilings) -> Iterator[str]:
    low, high = OVERHEAD_S
    if peaks.launch_floor_s and not low <= peaks.launch_floor_s <= high:
        found = seconds_text(peaks.launch_floor_s)
        yield f"the launch overhead of {device.name} is {found}; it lies between 10 ns and 1 ms"
    known = [(use.fraction, each) for each in results if (use := utilisation(*_job(each), peaks, _link(each)))]
    uses = [fraction for fraction, _ in known]
    above = sum(fraction > PLAUSIBLE for fraction in uses)
    for fraction, each in known:
        if fraction > FAR_ABOVE:
            yield f"{each.id} is {fraction:.1f} times as fast as the measured peaks of {device.name} allow"
            break
    if above > max(1, MANY * len(uses)):
        found = f"{above} of {len(uses)} benchmarks on {device.name} are faster than its peaks"
        yield f"{found}: those were measured too low, or in another unit"
    if len(uses) >= ENOUGH and max(uses) < IDLE:
        yield f"no benchmark on {device.name} reaches {IDLE:.0%} of its measured peaks: another unit?"


def _job(result: Result) -> tuple[Work, float, str]:
    assert result.times
    return result.work, result.times.median_s, compute_dtype(result.dtype, result.variant, result.precision)


def _link(result: Result) -> bool:
    return len({name.partition(":")[0] for name in (result.device, *result.devices)}) > 1


def _of_cpu(run: Run, results: list[Result], peaks: Ceilings) -> Iterator[str]:
    cpu = run.machine.cpu
    cores, sockets = cpu.cores or run.machine.threads or 1, cpu.sockets or 2
    most = flops_allowed(cpu.instructions or (), cores, FASTEST_HZ)[0]
    rates = [(f"the CPU's peak in {dtype}", dtype, rate) for dtype, rate in peaks.throughput.items()]
    jobs = [(each.id, *_job(each)) for each in results if each.work.flops]
    rates += [(name, dtype, (work.flops or 0) / seconds / WINOGRAD) for name, work, seconds, dtype in jobs]
    for name, dtype, rate in rates:
        allowed = min(peaks.allowed.get(dtype, math.inf), most.get(dtype, CORE_FLOPS * cores))
        if rate > MOST_SHARE * allowed:
            yield f"{name}, {text(rate, 'FLOP/s')}, is more than its instructions allow"
            break
    memory = _memory_rate(peaks)
    if memory > SOCKET_BANDWIDTH * sockets:
        yield f"the CPU's memory bandwidth, {text(memory, 'B/s')}, is more than any CPU's"


def _memory_rate(peaks: Ceilings) -> float:
    return max((each.byte_per_s for each in peaks.bandwidth if each.level in ("memory", "")), default=0.0)


def _too_fast(results: list[Result], gpu: Gpu) -> Iterator[str]:
    found = []
    for each in results:
        work, seconds, dtype = _job(each)
        if dtype == "float32" and each.precision.get("tf32") is not False:
            dtype = "tf32"
        bound = shortest(work, dtype, gpu, safety=MOST_SHARE)
        if seconds < bound.seconds:
            found.append((seconds / bound.seconds, each.id, seconds, bound))
    if found:
        _, name, seconds, bound = min(found, key=lambda each: each[0])
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        least = f"at least {seconds_text(bound.seconds)} ({bound.binds})"
        yield f"faster than an {gpu.name} can be: {name} in {seconds_text(seconds)}, {least}{more}"


def _peaks_off(peaks: Ceilings, gpu: Gpu) -> Iterator[str]:
    rates: dict[str, tuple[float | None, float | None, str]]
    rates = {dtype: (rate, gpu.flop_per_s(dtype), "FLOP/s") for dtype, rate in peaks.throughput.items()}
    rates["memory bandwidth"] = (_memory_rate(peaks), gpu.value("memory"), "B/s")
    rates["copies to it"] = (peaks.host_to_device_byte_per_s, gpu.value("link"), "B/s")
    rates["copies from it"] = (peaks.device_to_host_byte_per_s, gpu.value("link"), "B/s")
    emulated = "bfloat16" if gpu.value("tf32") is None else ""  # tensor cores before Ampere have no bfloat16
    for name, (rate, promised, unit) in rates.items():
        if not rate or not promised:
            continue
        may_be_low = name == emulated or name.startswith("copies") or gpu.measured
        if rate > MOST_SHARE * promised or (rate < LEAST_SHARE * promised and not may_be_low):
            share = f"{rate / promised:.0%} of the datasheet of the {gpu.name}; 40 to 120 % is usual"
            yield f"measured peak of {name}: {text(rate, unit)}, {share}"


def _too_much_power(results: list[Result], gpu: Gpu) -> Iterator[str]:
    limit = gpu.value("watt")
    for each in results:
        watt = ((each.energy_j or 0.0) - (each.energy_error_j or 0.0)) / each.times.median_s if each.times else 0.0
        if limit and watt > MOST_POWER * limit:
            yield f"{each.id} takes {text(watt, 'W')}; the limit of the {gpu.name} is {limit:.0f} W"
            return
