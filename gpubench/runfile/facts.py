"""Facts of a run that may explain its times, in words, and their differences between runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from .flags import CONTENDED
from .matching import shown_name
from .quantities import SWITCH, counted, seconds_text
from .schema import CpuFacts, Result, Run, Scalar

PLAIN_FACTOR = 1.2  # factor between a call's time and that in a plain process from which both are shown
_SWITCHES = {
    "tf32": "TF32",
    "tf32_matmul": "TF32 in matrix products",
    "tf32_cudnn": "TF32 in cuDNN",
    "float32_matmul": "float32 matmul precision",
    "fp16_reduced_precision_reduction": "fp16 reduced-precision reduction",
    "bf16_reduced_precision_reduction": "bf16 reduced-precision reduction",
    "cudnn_benchmark": "cuDNN benchmark",
    "cudnn_deterministic": "cuDNN deterministic",
    "deterministic": "deterministic algorithms",
}
_OF_CPUS = ("float32_matmul",)  # switches that change a CPU's times
_OF_THE_CPU = {
    "sockets": "sockets in use",
    "numa_nodes": "NUMA nodes in use",
    "numa_policy": "NUMA policy",
    "governor": "governor of the CPU's clocks",
    "huge_pages": "transparent huge pages",
    "allocator": "memory allocator",
    "instructions": "CPU instructions",
    "preloaded": "preloaded libraries",
}
_ARCHITECTURES = re.compile(
    "unknown machine|x86_64|amd64|i[3-6]86|aarch64|arm64|arm(v[5-9].*)?|ppc64(le)?|s390x|riscv64", re.IGNORECASE
)
_Texts = dict[str, str]


class Facts(NamedTuple):
    """The facts in a run's file, by names for people: hardware, threads and precision; torch and drivers, which are
    often the change itself; how the CPU was used; the settings."""

    machine: _Texts
    software: _Texts
    cpu: _Texts
    settings: _Texts


def differences(before: Sequence[Run], after: Sequence[Run], devices: Iterable[str]) -> list[_Texts]:
    """How two sets of runs differ in machine, software and use of the CPU (:class:`Facts`): ``{"threads": "2 → 1"}``.

    Facts that matter to benchmarks on ``devices`` count; the CPU always does, since it launches a GPU's kernels. A fact
    that one side doesn't know is no difference. Facts that differ within a side are reported too.
    """
    runs = [*before, *after]
    machine, software, cpu, _ = zip(*facts(runs, devices), strict=True)
    versions = tuple(
        torch | {name: str(version) for name, version in (run.machine.libraries or {}).items()}
        for torch, run in zip(software, runs, strict=True)
    )
    return [_differing(part[: len(before)], part[len(before) :]) for part in (machine, versions, cpu)]


def _differing(before: Sequence[_Texts], after: Sequence[_Texts]) -> _Texts:
    changes = {}
    for fact in dict.fromkeys(name for texts in (*before, *after) for name in texts):
        old, new = (sorted({texts[fact] for texts in side if fact in texts}) for side in (before, after))
        if len({*old, *new}) > 1:
            changes[fact] = f"{' and '.join(old)} → {' and '.join(new)}"
            if old == new or not (old and new):
                changes[fact] = f"{' and '.join(old or new)} on {'either' if old == new else 'one'} side"
    return changes


def facts(runs: Sequence[Run], devices: Iterable[str]) -> list[Facts]:
    """The known facts of each run that concern these devices and the CPU. A variable that one run has set is ``not
    set`` in the others. Where the CPUs differ their instructions are left out, as a CPU's name implies them."""
    names = sorted({"cpu", *devices})
    variables = sorted({name for run in runs for name in run.machine.cpu.variables or {}})
    alike = len({run.machine.cpu.model for run in runs}) < 2
    every = []
    for run in runs:
        places = [run.machine.device(name) for name in names]
        machine = {"CPU" if at.name == "cpu" else at.name: at.label for at in places if not is_unknown(at.label)}
        machine |= {"threads": str(run.machine.threads)} if run.machine.threads else {}
        machine |= switches(run.machine.precision or {}, () if any(at.accelerator for at in places) else _OF_CPUS)
        software = {"torch": run.machine.torch} | {f"{at.name} driver": at.driver for at in places}
        settings = {"preset": run.preset, "processes": str(run.processes), "gpubench": run.version}
        settings["seed"] = None if run.seed is None else str(run.seed)
        texts = [{name: value for name, value in part.items() if value} for part in (software, settings)]
        every.append(Facts(machine, texts[0], _of_cpu(run.machine.cpu, variables, alike), texts[1]))
    return every


def _of_cpu(cpu: CpuFacts, variables: Collection[str], alike: bool) -> _Texts:
    """The facts that decide a CPU's times beside its model."""
    texts = {} if cpu.variables is None else {name: cpu.variables.get(name, "not set") for name in variables}
    texts |= {f"products of {library} by": kernel for library, kernel in (cpu.kernels or {}).items()}
    for name, words in _OF_THE_CPU.items():
        value = getattr(cpu, name)
        if value is not None and (alike or name != "instructions"):
            texts[words] = " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
    if cpu.logical_cpus and cpu.machine_cpus:  # of those of the machine, what affinity and the control group allow
        used = min(cpu.logical_cpus, cpu.cgroup_cores or cpu.logical_cpus)
        texts["CPUs in use"] = f"{used:g} of {cpu.machine_cpus}"
    return texts


def threads_available(run: Run) -> int | None:
    """Return how many threads the CPU has, if the run took fewer; None if it took all, or where that is unknown."""
    cpu, used = run.machine.cpu, run.machine.threads
    cores = [count for count in (cpu.cores or cpu.logical_cpus, cpu.cgroup_cores) if count]
    available = max(1, int(min(cores, default=1)))
    return available if used and used < available else None


def switches(values: Mapping[str, Scalar], only: Collection[str] = ()) -> _Texts:
    """The known switches of torch and its libraries, or ``only`` some: ``on``, ``off``, ``highest``, ``none``."""
    chosen = {name: value for name, value in values.items() if value is not None and name in (only or values)}
    if chosen.keys() >= {"tf32_matmul", "tf32_cudnn"}:
        chosen.pop("tf32", None)  # on if either is
    texts = {name: SWITCH[value] if isinstance(value, bool) else str(value) or "none" for name, value in chosen.items()}
    return {_SWITCHES.get(name, name.replace("_", " ")): words for name, words in texts.items()}


def is_unknown(label: str) -> bool:
    """Whether a device's label is an architecture, all that a file says which doesn't name the CPU's model."""
    return not label or _ARCHITECTURES.fullmatch(label) is not None


def plain_memory_note(results: Iterable[Result]) -> str:
    """Return the cost of calls in a process that returns freed memory, if they take longer there than in any stretch of
    their time here; else empty."""
    slower = sorted(
        (result.plain_s / times.median_s, result.id, result)
        for result in results
        if result.plain_s and (times := result.times) and all(flag.name != CONTENDED for flag in result.flags)
        and result.plain_s > PLAIN_FACTOR * max([times.median_s, *(s for each in times.processes for s in each.blocks)])
    )  # fmt: skip
    if not slower:
        return ""
    factor, _, most = slower[-1]
    more = f", and {counted(len(slower) - 1, 'other benchmark')} another time too" * (len(slower) > 1)
    plain_s, time_s = seconds_text(most.plain_s), seconds_text(most.plain_s and most.plain_s / factor)
    return (
        f"a plain program takes {plain_s} for {shown_name(most.workload)}, not {time_s}{more}: it returns freed memory"
        " to the system and gets it back page by page, gpubench keeps it. MALLOC_MMAP_THRESHOLD_=1073741824 and"
        " MALLOC_TRIM_THRESHOLD_=1073741824 in the environment, or writing into existing memory (out=), saves that"
    )
