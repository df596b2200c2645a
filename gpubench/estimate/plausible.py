"""What no hardware does: times below a GPU's bound, peaks far from its datasheet's, more power than its limit.

These checks find slips, wrong units and wrong names, but not a results file that was edited consistently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..devices.cpu import flops_allowed
from ..devices.datasheets import Gpu, find_card
from ..errors import UsageError
from ..runfile.quantities import seconds_text, text
from ..runfile.schema import Ceilings, DeviceFacts, Result, Run, Work
from ..runfile.utilisation import PLAUSIBLE, WINOGRAD, utilisation
from .model import shortest

LEAST_SHARE, MOST_SHARE = 0.4, 1.2
"""Shares of a datasheet's figure between which a measured peak must lie: GeForce cards clock up to 1.16 times above
theirs."""
MOST_POWER = 1.5
"""The most power that a result may report, in times the power limit: counters average over some 100 ms."""
CORE_FLOPS = 1e13
"""FLOP/s that no core reaches: AMX does 7e12 in bfloat16."""
FASTEST_HZ = 7e9
"""A clock in Hz that no core reaches."""
FAR_ABOVE = 2.0
"""Times the peaks of its device that no benchmark reaches, however badly those were measured; good runs reach 1.1."""
MANY = 0.1
"""Share of benchmarks that may exceed the peaks of their device."""


def known_gpus(run: Run, cards: Mapping[str, Gpu]) -> dict[str, Gpu | None]:
    """Map each accelerator to the GPU that its label names, or to ``None`` where no datasheet of it is known."""
    found: dict[str, Gpu | None] = {}
    for device in run.machine.devices:
        if device.accelerator:
            try:
                found[device.name] = find_card(device.label, cards)
            except UsageError:
                found[device.name] = None
    return found


def impossible(run: Run, cards: Mapping[str, Gpu]) -> Iterator[str]:
    """One sentence for each value that can't be true of the machine that the run names."""
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
    uses = [(use.fraction, each.id) for each in results if (use := utilisation(*_job(each), peaks, _link(each)))]
    above = [(fraction, name) for fraction, name in uses if fraction > PLAUSIBLE]
    most, name = max(above, default=(0.0, ""))
    if most > FAR_ABOVE:
        yield f"{name} is {most:.1f} times as fast as the measured peaks of {device.name} allow"
    if len(above) > max(1, MANY * len(uses)):
        found = f"{len(above)} of {len(uses)} benchmarks on {device.name} are faster than its peaks"
        yield f"{found}: those were measured too low, or in another unit"


def _job(result: Result) -> tuple[Work, float, str]:
    assert result.times
    return result.work, result.times.median_s, result.compute_dtype


def _link(result: Result) -> bool:
    return len({name.partition(":")[0] for name in (result.device, *result.devices)}) > 1


def _of_cpu(run: Run, results: list[Result], peaks: Ceilings) -> Iterator[str]:
    cpu = run.machine.cpu
    cores = cpu.cores or run.machine.threads or 1
    most = flops_allowed(cpu.instructions or (), cores, FASTEST_HZ)[0]
    rates = [(f"the CPU's peak in {dtype}", dtype, rate) for dtype, rate in peaks.throughput.items()]
    jobs = [(each.id, *_job(each)) for each in results if each.work.flops]
    rates += [(name, dtype, (work.flops or 0) / seconds / WINOGRAD) for name, work, seconds, dtype in jobs]
    for name, dtype, rate in rates:
        allowed = min(peaks.allowed.get(dtype, math.inf), most.get(dtype, CORE_FLOPS * cores))
        if rate > MOST_SHARE * allowed:
            yield f"{name}, {text(rate, 'FLOP/s')}, is more than its instructions allow"
            return


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
    memory = max((each.byte_per_s for each in peaks.bandwidth if each.level in ("memory", "")), default=None)
    rates["memory bandwidth"] = (memory, gpu.value("memory"), "B/s")
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
