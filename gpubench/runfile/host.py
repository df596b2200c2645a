"""Facts beside the CPU's model that decide its times, compared with those of another run."""

from __future__ import annotations

from collections.abc import Iterable

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
"""Names of facts for people; for another CPU the instructions are left out, as its name implies them."""


def cpu_differences(before: CpuFacts, after: CpuFacts) -> list[str]:
    """The differences in words, as ``OPENBLAS_CORETYPE not set → Haswell``. A fact that either run doesn't hold is no
    difference."""
    variables = {**(before.variables or {}), **(after.variables or {})}
    old, new = (_known(cpu, variables) for cpu in (before, after))
    if before.model != after.model:
        old.pop(_WORDS["instructions"], None)
    return [f"{what} {old[what]} → {new[what]}" for what in old if old[what] != new.get(what, old[what])]


def _known(cpu: CpuFacts, variables: Iterable[str]) -> dict[str, str]:
    """The known facts of a CPU, in words."""
    facts = {} if cpu.variables is None else {name: cpu.variables.get(name, "not set") for name in sorted(variables)}
    facts |= {f"products of {library} by": kernel for library, kernel in (cpu.kernels or {}).items()}
    facts |= {words: _text(value) for name, words in _WORDS.items() if (value := getattr(cpu, name)) is not None}
    return facts | ({"CPUs in use": share} if (share := share_of_cpus(cpu)) else {})


def share_of_cpus(cpu: CpuFacts) -> str | None:
    """``2 of 64``: the logical CPUs that affinity and the control group allow, of those of the machine."""
    if not cpu.logical_cpus or not cpu.machine_cpus:
        return None
    used = min(cpu.logical_cpus, cpu.cgroup_cores or cpu.logical_cpus)
    return f"{used:g} of {cpu.machine_cpus}"


def _text(value: object) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
