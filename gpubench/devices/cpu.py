"""The CPU, which has done its work when the call returns."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import platform
import re
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .base import Device, Memory, register
from .lazy import psutil, torch

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_SYSTEM = Path("/sys/devices/system")
OTHER_ALLOCATORS = re.compile(r"/lib(tcmalloc|jemalloc|mimalloc)[^/\n]*$", re.MULTILINE)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES, _RESERVED_BYTES = 32 << 20, 1 << 30
"""The largest threshold that glibc takes, and the addresses that the heap takes ahead for larger blocks: memory is used
only where written to."""


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _groups(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups (versions 2 and 1), innermost first; the limits of all
    apply."""
    paths = {"": "", controller: ""}
    for line in (_text(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update((name, path.strip("/")) for name in controllers.split(",") if name in paths)
    for base, path in ((root, paths[""]), (root / controller, paths[controller])):
        group = base / path
        yield from (group, *group.parents[: len(group.parts) - len(base.parts)])


def cgroup_cores(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> float | None:
    """Return how many CPUs' worth of time the control groups allow, or ``None`` if there is no limit."""
    limits, versions = [], (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    for group, files in itertools.product(_groups("cpu", root, membership), versions):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # "max" means no limit
            quota, period = map(int, " ".join((group / file).read_text() for file in files).split())
            limits += [quota / period] if quota >= 0 else []  # as does -1
    return min(limits, default=None)


def cgroup_memory(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> tuple[int, int] | None:
    """Return the bytes used and allowed in the tightest control group, or ``None`` if there is no limit. Inactive pages
    of cached files are left out, since the kernel gives them up on demand."""
    limits = []
    new = "memory.current", "memory.max", "inactive_file"
    old = "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"
    for group, (used, limit, cache) in itertools.product(_groups("memory", root, membership), (new, old)):
        with contextlib.suppress(OSError, ValueError):
            allowed, taken = int((group / limit).read_text()), int((group / used).read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            if allowed < 1 << 62:  # version 1 writes "no limit" as the largest whole number of pages
                limits.append((max(0, taken - int(stat.get(cache, 0))), allowed))
    return min(limits, key=lambda pair: pair[1] - pair[0], default=None)


def affinity() -> list[int]:
    """Return the logical CPUs on which this process may run."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def family() -> list[Any]:
    """Return the processes that this one has started, and for a rank of torchrun also the other ranks of this
    machine."""
    own = psutil.Process()
    first = own.parent() if "TORCHELASTIC_RUN_ID" in os.environ else None
    return [process for process in (first or own).children(recursive=True) if process.pid != own.pid]


def cores(topology: Path = _SYSTEM / "cpu") -> int:
    """Return the number of physical cores that affinity and control group allow: the default thread count of a CPU. Two
    hardware threads of one core share its arithmetic units, so they count as one."""
    allowed = affinity()
    siblings = {_text(topology / f"cpu{index}/topology/thread_siblings_list") for index in allowed}
    by_psutil = None in siblings and min(len(allowed), psutil.cpu_count(logical=False) or len(allowed))
    # Rounded down: with one thread more than the quota allows, all are stopped part of the time.
    return max(1, min(by_psutil or len(siblings), int(cgroup_cores() or len(allowed))))


_facts: dict[str, Any] = {}


def learn(facts: Any) -> None:
    """Take py-cpuinfo's facts from a program that has asked for them: the answer takes a quarter of a second."""
    if isinstance(facts, dict) and facts.get("brand_raw"):
        _facts.update(facts)


def _cpuid() -> dict[str, Any]:
    if not _facts:
        import cpuinfo

        _facts.update(cpuinfo.get_cpu_info())
    return _facts


@functools.cache
def model() -> str:
    """Return the CPU's name, for example ``AMD EPYC 9654 96-Core Processor``."""
    return " ".join(str(_cpuid().get("brand_raw") or platform.processor() or platform.machine()).split())


FOR_PRODUCTS = (
    "avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16",
    "asimd", "asimdhp", "bf16", "sve", "sve2", "sme", "sme2",
)  # fmt: skip
"""Instruction sets of x86 and ARM that decide how fast products are, by Linux's names."""
VIRTUAL = "hypervisor"
UNITS, AMX = 2, 1024
"""Fused multiply-add units of a core (no x86 core has more, some have one of 512 bits), and FLOP per cycle of AMX tiles
(Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter "Intel AMX": TDPBF16PS takes 16 cycles)."""


def instructions() -> tuple[str, ...]:
    """Return the CPU's instruction sets among :data:`FOR_PRODUCTS`, and :data:`VIRTUAL` in a virtual machine."""
    flags = _cpuid().get("flags") or ()
    return tuple(name for name in (*FOR_PRODUCTS, VIRTUAL) if name in flags)


def flops_allowed(sets: Collection[str], count: int, clock_hz: float | None) -> dict[str, float]:
    """Return the most FLOP/s of ``count`` cores by dtype, from their instruction ``sets`` and clock; empty if these
    aren't enough. A core does cycles × units × lanes × 2, as a fused multiply-add is two operations; bfloat16 and
    float16 count as float32 on a CPU without instructions for them."""
    width = 512 if "avx512f" in sets else 256 if {"avx2", "fma"} <= {*sets} else None
    if width is None or clock_hz is None:
        return {}
    cycle = {"float64": UNITS * width // 64 * 2, "float32": UNITS * width // 32 * 2}
    for dtype, short in (("bfloat16", "bf16"), ("float16", "fp16")):
        own = 2 * cycle["float32"] if f"avx512_{short}" in sets else cycle["float32"]
        cycle[dtype] = AMX if f"amx_{short}" in sets else own
    return {dtype: count * clock_hz * flops for dtype, flops in cycle.items()}


def _clocks() -> list[float]:
    """Return the clock of each core at this moment, in Hz; empty if unknown."""
    with contextlib.suppress(OSError, NotImplementedError, AttributeError, TypeError):
        return [core.current * 1e6 for core in psutil.cpu_freq(percpu=True) if core.current]
    return []


def highest_clock() -> float | None:
    """Return the clock of the fastest core at this moment, in Hz; ``None`` in a virtual machine, which sees a nominal
    clock."""
    return None if VIRTUAL in instructions() else max(_clocks(), default=None)


def layout(root: Path = _SYSTEM) -> dict[str, Any]:
    """Return how many sockets and NUMA nodes hold this process's CPUs, and the governor of their clocks; ``None``
    unless Linux shows it."""
    folders = [root / f"cpu/cpu{index}" for index in affinity()]
    sockets, governors = (
        {_text(folder / name) for folder in folders} - {None}
        for name in ("topology/physical_package_id", "cpufreq/scaling_governor")
    )
    nodes = {node.name for folder in folders for node in folder.glob("node[0-9]*")}
    together = " and ".join(sorted(map(str, governors)))
    return {"sockets": len(sockets) or None, "numa_nodes": len(nodes) or None, "governor": together or None}


def resolve_vector_math() -> None:
    """Call each function that torch passes to Intel's vector math library once, on one element, before threads do.

    The library selects a kernel at a function's first call in a process. When several threads make that call together,
    one of them may run a kernel of lower accuracy over its whole share: relative errors of 6e-5 in float32, once in
    some thousand processes (``docs/experiments/first_call.py``; https://github.com/pytorch/pytorch/issues/188792).
    Later calls are right, so times are unaffected, but the result of the first call is the one that is checked.
    """
    names = "acos asin atan cos erf erfc erfinv exp log log10 log2 sin sqrt tan tanh trunc"
    for dtype, name in itertools.product((torch.float32, torch.float64), names.split()):
        getattr(torch, name)(torch.full((1,), 0.5, dtype=dtype))


@functools.cache
def _glibc() -> Any:
    """Return glibc if its allocator is the process's and has its own thresholds, else ``None``."""
    chosen = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    other = chosen or platform.libc_ver()[0] != "glibc" or OTHER_ALLOCATORS.search(_text(Path("/proc/self/maps")) or "")
    return None if other else ctypes.CDLL(None)


_keeps = False


def keep_memory(keep: bool = True) -> bool:
    """Let glibc keep freed memory for the next call, as torch does on a GPU; return whether it does.

    By itself it gives large blocks back until one was freed, and then raises its thresholds for good (mallopt(3)), so
    that a call takes one of two times. Other allocators, and thresholds that the environment sets, are left alone.
    Without ``keep`` glibc gives memory back as after it has freed a block of 32 MiB.
    """
    global _keeps
    trim, pad = (2**31 - 1, _RESERVED_BYTES) if keep else (2 * _KEPT_BYTES, 128 << 10)
    settings = {_MMAP_THRESHOLD: _KEPT_BYTES, _TRIM_THRESHOLD: trim, _TOP_PAD: pad}
    libc = _glibc()
    _keeps = libc is not None and all(libc.mallopt(*setting) for setting in settings.items()) and keep
    if _keeps:
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        libc.free(libc.malloc(_KEPT_BYTES - (1 << 16)))
    return _keeps


def can_keep_memory() -> bool:
    """Return whether :func:`keep_memory` has an effect."""
    return _glibc() is not None


def keeps_memory() -> bool:
    """Return whether this process has been made to keep freed memory."""
    return _keeps


def cache_sizes(root: Path = _SYSTEM / "cpu") -> dict[str, int] | None:
    """Return the bytes of each level of cache: ``l1d`` and ``l2`` of one core, shared ones in full; the last level of
    all dies that hold this process's CPUs, because the threads of one call use them together."""
    levels: dict[str, dict[str, int]] = {}
    for cpu in affinity():
        for folder in sorted((root / f"cpu{cpu}").glob("cache/index*")):
            with contextlib.suppress(OSError, ValueError, LookupError):
                level, holds, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
                amount = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[-1]]
                if holds != "Instruction":
                    caches = levels.setdefault(f"l{level}d" if holds == "Data" else f"l{level}", {})
                    caches[_text(folder / "shared_cpu_list") or str(cpu)] = amount
    sizes = {name: next(iter(levels[name].values())) for name in sorted(levels, key=lambda name: name[1:])}
    if sizes:
        last = [*sizes][-1]
        sizes[last] = sum(levels[last].values())
    return sizes or None


class EnergyCounter:
    """The energy counters of all CPU sockets (RAPL), as Linux exposes them, often to root alone. Each counter restarts
    at 0 after some 260 kJ, which is minutes at full power."""

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        # AMD's too; a second colon names a part of a socket
        folders = [folder for folder in root.glob("intel-rapl:*") if folder.name.count(":") == 1]
        self._sockets = [folder for folder in folders if (_text(folder / "name") or "").startswith("package")]
        self._last: dict[Path, int] = {}
        self._total = 0

    def joules(self) -> float | None:
        """Return the joules since an unspecified moment; ``None`` without a readable counter."""
        try:
            readings = {socket: int((socket / "energy_uj").read_text()) for socket in self._sockets}
        except (OSError, ValueError):
            return None
        for socket, reading in readings.items():
            last = self._last.get(socket, reading)
            self._total += reading - last + (int(_text(socket / "max_energy_range_uj") or 0) if reading < last else 0)
        self._last = readings
        return self._total / 1e6 if readings else None


_energy_counter = functools.cache(EnergyCounter)


@register
class Cpu(Device):
    """The CPU with all cores that this process may use."""

    kind = "cpu"
    accelerator = False
    indexed = False

    @classmethod
    def count(cls) -> int:
        return 1

    @property
    def label(self) -> str:
        return model()

    def synchronize(self) -> None:
        """Do nothing: a CPU call is done when it returns."""

    def memory(self) -> Memory:
        system = psutil.virtual_memory()
        used, total = cgroup_memory() or (0, system.total)
        free = min(system.available, total - used) if total < system.total else system.available
        return Memory(max(0, free), min(total, system.total))

    @classmethod
    def interconnect(cls, indices: Sequence[int]) -> str:
        return "memory"  # through which ranks on one CPU exchange data

    def clocks(self) -> Mapping[str, float] | None:
        clocks = _clocks()
        return {"core": statistics.fmean(clocks)} if clocks else None

    def energy_j(self) -> float | None:
        """Return the energy of all sockets in joules, whatever runs on them."""
        return _energy_counter().joules()

    def cache_bytes(self) -> int | None:
        return max((cache_sizes() or {}).values(), default=None)

    def details(self) -> dict[str, Any]:
        return {"cores": cores(), "logical_cpus": len(affinity()), "cgroup_cores": cgroup_cores()}
