"""What decides a CPU's times beside the CPU, held against that of another run."""

from __future__ import annotations

from collections.abc import Iterator

from .schema import CpuFacts

_WORDS = {
    "sockets": "sockets in use",
    "numa_nodes": "NUMA nodes in use",
    "numa_policy": "NUMA policy",
    "governor": "governor of the CPU's clocks",
    "huge_pages": "transparent huge pages",
    "allocator": "memory allocator",
    "instructions": "CPU instructions",
    "preloaded": "preloaded libraries",
}
"""Facts in words; of another CPU the instructions differ too, which its name says."""


def cpu_differences(before: CpuFacts, after: CpuFacts) -> list[str]:
    """What differs in words, as ``OPENBLAS_CORETYPE not set → Haswell``. What one of the two doesn't know is no
    difference."""
    return [f"{what} {old} → {new}" for what, old, new in _differences(before, after)]


def _differences(before: CpuFacts, after: CpuFacts) -> Iterator[tuple[str, str, str]]:
    if before.variables is not None and after.variables is not None:
        for name in sorted({**before.variables, **after.variables}):
            old, new = (
                facts.variables.get(name, "not set") for facts in (before, after) if facts.variables is not None
            )
            if old != new:
                yield name, old, new
    for library, kernel in (before.kernels or {}).items():
        other = (after.kernels or {}).get(library, kernel)
        if kernel != other:
            yield f"products of {library} by", kernel, other
    for name, words in _WORDS.items():
        old, new = getattr(before, name), getattr(after, name)
        if None not in (old, new) and old != new and (name != "instructions" or before.model == after.model):
            yield words, _text(old), _text(new)
    share, other_share = share_of_cpus(before), share_of_cpus(after)
    if share and other_share and share != other_share:
        yield "CPUs in use", share, other_share


def share_of_cpus(cpu: CpuFacts) -> str | None:
    """``2 of 64`` logical CPUs of the machine, as far as affinity and the control group allow them."""
    if not cpu.logical_cpus or not cpu.machine_cpus:
        return None
    used = min(cpu.logical_cpus, cpu.cgroup_cores or cpu.logical_cpus)
    return f"{used:g} of {cpu.machine_cpus}"


def _text(value: object) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
