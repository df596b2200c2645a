"""Read run files: checked where they enter. They are written by :mod:`gpubench.wholefile`.

What :func:`read` returns is frozen and in range, so that later code may divide by a time and take its logarithm.
A file that can't be trusted raises :class:`~gpubench.errors.RunFileError` with one line,
``path: place: what was expected``. Keys that this version doesn't know are ignored, and a plain pytest-benchmark
file is read as what it says: times on a CPU, of one process, of nothing declared.

Standard library only.
"""

from __future__ import annotations

import json
import os
import statistics
from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from .errors import RunFileError
from .flags import ADVICE, apart
from .jsonfile import LONGEST_TEXT, At, clean, load
from .records import Device, Machine, Parallel, Process, Raised, Result, Run, Times
from .roofline import Bandwidth, Ceilings
from .schema import CACHES, KEY, SCHEMA_VERSION, TIMERS, UNMEASURED, Case, Scalar, Transfer, Work
from .wholefile import write as write

MOST_CASES, MOST_PARAMS, MOST_DEVICES, MOST_FLAGS = 20_000, 64, 256, 32
"""Of a run, of a case, of a machine, of a process: far more than anyone measures, and still read in a second or two."""


def read(path: str | os.PathLike[str]) -> Run:
    """Raises RunFileError for a file that is missing, truncated, foreign or inconsistent."""
    path = Path(path)
    root = load(path)
    if not isinstance(root.value, dict) or "benchmarks" not in root.value:
        raise Foreign(f"{clean(str(path))}: file: expected a pytest-benchmark file, an object with a key 'benchmarks'")
    if root["benchmarks"].missing:
        root["benchmarks"].refuse("a list")
    benchmarks = list(root["benchmarks"])
    if len(benchmarks) > MOST_CASES:
        root["benchmarks"].refuse(f"at most {MOST_CASES} cases", f"{len(benchmarks)}")
    ours = root[KEY]
    plain = ours.missing and not any(KEY in mark["extra_info"].mapping() for mark in benchmarks)
    if plain:
        machine = _plain_machine(root["machine_info"])
        started = root["datetime"].text(None)
        return Run(path, machine, tuple(_plain(mark) for mark in benchmarks), started, plain=True)
    if ours["schema_version"].value != SCHEMA_VERSION or isinstance(ours["schema_version"].value, bool):
        ours["schema_version"].refuse(str(SCHEMA_VERSION))
    machine = _machine(root["machine_info"])
    kinds = {device.name: device.kind for device in reversed(machine.devices)}
    results = [_measured(mark, kinds) if KEY in mark["extra_info"].mapping() else _plain(mark) for mark in benchmarks]
    unmeasured = list(ours["unmeasured"])
    if len(unmeasured) > MOST_CASES:
        ours["unmeasured"].refuse(f"at most {MOST_CASES} cases", f"{len(unmeasured)}")
    results += [_unmeasured(entry) for entry in unmeasured]
    return Run(
        path,
        machine,
        tuple(results),
        started=_moment(ours["started"]),
        preset=ours["preset"].text(None),
        version=ours["version"].text(None),
        processes=max(1, len(list(ours["processes"]))),
        seed=ours["seed"].optional("whole"),
        ceilings=_ceilings(ours["ceilings"]),
        flags=_flags(ours["processes"]),
        slow_threads=_slow_threads(ours["processes"]),
    )


class Foreign(RunFileError):
    """JSON that isn't a pytest-benchmark file at all: in a folder of run files it may lie about."""


def _moment(at: At) -> str | None:
    text = at.text(None)
    if text is not None:
        try:
            datetime.fromisoformat(text)
        except ValueError:
            at.refuse("an ISO 8601 date and time")
    return text  # type: ignore[no-any-return]


def _machine(info: At) -> Machine:
    ours = info[KEY]
    devices = tuple(
        Device(entry["name"].text(), entry["kind"].text(), entry["label"].text(""), entry["driver"].text(None))
        for entry in ours["devices"]
    )
    if len(devices) > MOST_DEVICES:
        ours["devices"].refuse(f"at most {MOST_DEVICES} devices", str(len(devices)))
    return Machine(
        label=ours["label"].text(None) or _plain_machine(info).label,
        devices=devices or _plain_machine(info).devices,
        torch=ours["torch"]["version"].text(None),
        tf32=ours["precision"]["tf32"].flag(),
        threads=ours["threads"].optional("count"),
        precision=_scalars(ours["precision"]),
    )


def _plain_machine(info: At) -> Machine:
    """The CPU's model names a machine that says no more; its host name is nobody's business."""
    label = info["cpu"]["brand_raw"].text(None) or info["machine"].text(None) or "unknown machine"
    return Machine(label, (Device("cpu", "cpu", label),))


def _case(at: At) -> Case:
    devices = tuple(entry.text() for entry in at["devices"])
    params = _params(at)
    return Case(
        workload=at["workload"].text(),
        device=at["device"].text(),
        dtype=at["dtype"].text(""),
        params={clean(name): params[name].scalar() for name in params.mapping()},
        implementation=at["implementation"].text("torch"),
        variant=at["variant"].text("eager"),
        regime=at["regime"].text("resident"),
        cache=_cache(at["cache"]),
        threads=at["threads"].optional("count"),
        size=at["size"].text(None),
        devices=devices,
    )


def _cache(at: At) -> str:
    text: str = at.text(CACHES[0])
    if text not in CACHES:
        at.refuse(f"one of {', '.join(CACHES)}")
    return text


def _scalars(at: At) -> dict[str, Scalar]:
    if len(at.mapping()) > MOST_PARAMS:
        at.refuse(f"at most {MOST_PARAMS} entries", f"{len(at.mapping())}")
    return {clean(name): at[name].scalar() for name in at.mapping()}


def _params(at: At) -> At:
    params = at["params"]
    if len(params.mapping()) > MOST_PARAMS:
        params.refuse(f"at most {MOST_PARAMS} parameters", f"{len(params.mapping())}")
    return params


def _measured(mark: At, kinds: Mapping[str, str]) -> Result:
    ours = mark["extra_info"][KEY]
    case = _case(ours)
    timer = mark["options"]["timer"]
    used = dict.fromkeys((case.device, *case.devices))
    accelerators = [name for name in used if kinds.get(name, name.partition(":")[0]) != "cpu"]
    if accelerators and timer.value not in TIMERS:
        timer.refuse(f"a timer that waits for {accelerators[0]} ({', '.join(TIMERS)})")
    work = ours["work"]
    declared = {name: work[name].optional("positive") for name in ("flops", "bytes", "items")}
    times, flags = _times(mark, ours), _flags(ours["processes"])
    return Result(
        case,
        Work(**declared, unit=work["unit"].text("element")),
        times=times,
        check=ours["check"]["status"].text(None),
        check_reason=ours["check"]["reason"].text(None),
        check_error=ours["check"]["error"].optional("number"),
        steps=ours["steps"].optional("count"),
        device_s=ours["device_s"].optional("positive"),
        launch_s=ours["launch_s"].optional("positive"),
        transfer=_transfer(ours["transfer"]),
        memory_bytes=ours["memory_bytes"].optional("number"),
        energy_j=ours["energy_j"].optional("positive"),
        precision=_scalars(ours["precision"]),
        flags=flags + _apart(times, flags),
        parallel=_parallel(ours["parallel"]),
        fullname=mark["fullname"].text(""),
    )


def _parallel(at: At) -> Parallel | None:
    if at.missing:
        return None
    phases = at["phases"]
    rows = list(at["rows"])
    if len(phases.mapping()) > MOST_PARAMS or len(rows) > MOST_CASES:
        at.refuse(f"at most {MOST_PARAMS} phases and {MOST_CASES} batches")
    return Parallel(
        method=at["method"].text(None),
        devices=at["devices"].optional("count") or 1,
        threads=at["threads"].optional("count"),
        mode=at["mode"].text(None),
        ideal_speedup=at["ideal_speedup"].optional("positive"),
        interconnect=at["interconnect"].text(None),
        bus_share=at["bus_share"].optional("positive"),
        microbatches=at["microbatches"].optional("count"),
        phases={clean(name): phases[name].number() for name in phases.mapping()},
        rows=tuple(tuple(part.count(0) for part in batch) for batch in rows),
    )


def _transfer(at: At) -> Transfer | None:
    if at.missing:
        return None
    seconds = {name: at[name].optional("positive") for name in ("in_s", "out_s", "in_pinned_s", "out_pinned_s")}
    return Transfer(at["in_bytes"].count(0), at["out_bytes"].count(0), **seconds)


def _flags(processes: At) -> tuple[Raised, ...]:
    """Flags of all processes, each name once; one that this version doesn't know is not passed on."""
    found: dict[str, tuple[str, list[int]]] = {}
    for entry in processes:
        flags = list(entry["flags"])
        if len(flags) > MOST_FLAGS:
            entry["flags"].refuse(f"at most {MOST_FLAGS} flags", f"{len(flags)}")
        for flag in flags:
            name, seen = flag["flag"].text(), flag["seen"].text("")
            if name in ADVICE:
                found.setdefault(name, (seen, []))[1].append(entry["process"].count(0))
    return tuple(Raised(name, seen, tuple(where)) for name, (seen, where) in found.items())


def _apart(times: Times, flags: tuple[Raised, ...]) -> tuple[Raised, ...]:
    """``noisy`` because processes disagree, which none of them can see."""
    rounds = [(process.median_s, process.rounds) for process in times.processes]
    seen = apart(rounds, times.iqr_s / times.median_s)
    if not seen or any(flag.name == "noisy" for flag in flags):
        return ()
    return (Raised("noisy", seen, tuple(process.index for process in times.processes)),)


def _slow_threads(processes: At) -> tuple[int, ...]:
    found = []
    for entry in processes:
        one, every = (entry["canary"][name].optional("positive") for name in ("one_s", "all_s"))
        if one and every and every > one:
            found.append(entry["process"].count(0))
    return tuple(found)


_BANDWIDTH = ("footprint_bytes", "byte_per_s")


def _ceilings(at: At) -> dict[str, Ceilings]:
    if len(at.mapping()) > MOST_DEVICES:
        at.refuse(f"at most {MOST_DEVICES} devices", str(len(at.mapping())))
    found = {}
    for name in at.mapping():
        own = at[name]
        entries = list(own["bandwidth"])
        if len(entries) > MOST_DEVICES:
            own["bandwidth"].refuse(f"at most {MOST_DEVICES} entries", str(len(entries)))
        bandwidth = tuple(
            Bandwidth(at["pattern"].text(), at["level"].text(""), *(at[key].positive() for key in _BANDWIDTH))
            for at in entries
        )
        rates = own["throughput"]
        if len(rates.mapping()) > MOST_PARAMS:
            rates.refuse(f"at most {MOST_PARAMS} entries", str(len(rates.mapping())))
        throughput = {clean(dtype): rates[dtype].positive() for dtype in rates.mapping()}
        single = ("launch_floor_s", "host_to_device_byte_per_s", "device_to_host_byte_per_s")
        found[clean(name)] = Ceilings(bandwidth, throughput, **{key: own[key].optional("positive") for key in single})
    return found


def _unmeasured(entry: At) -> Result:
    status = entry["status"]
    if status.value not in UNMEASURED:
        status.refuse(f"one of {', '.join(UNMEASURED)}")
    work = entry["work"]["unit"].text("element")
    return Result(_case(entry), Work(unit=work), status.value, entry["reason"].text(""))


def _plain(mark: At) -> Result:
    """A case of another's test: named by its file, class and function, as ours are by file and function."""
    file, *rest = mark["fullname"].text().split("::")
    names = [Path(file.replace("\\", "/")).stem, *(part.partition("[")[0] for part in rest)]
    workload = ".".join(name.removeprefix("test_") or name for name in names)
    params = {}
    for name in _params(mark).mapping():
        at = mark["params"][name]
        structured = isinstance(at.value, dict | list) or at.value != at.value  # NaN differs from itself
        params[clean(name)] = clean(json.dumps(at.value)[:LONGEST_TEXT]) if structured else at.scalar()
    case = Case(workload, "cpu", "", params, implementation="", variant="", regime="", cache="")
    times = _times(mark, At(None, mark.path, mark.place))
    return Result(case, Work(), times=times, fullname=mark["fullname"].text())


def _times(mark: At, ours: At) -> Times:
    stats = mark["stats"]
    pooled, iqr = stats["median"].positive(), stats["iqr"].number()
    rounds, iterations = stats["rounds"].count(), stats["iterations"].count()
    samples = array("d", stats["data"].numbers())
    latency = ours["latency_s"].optional("positive")
    q1, q3 = (stats[name].optional("positive") for name in ("q1", "q3"))
    processes = _processes(ours["processes"], stats, samples)
    medians = [process.median_s for process in processes]
    median = statistics.geometric_mean(medians) if len(medians) > 1 else pooled
    return Times(
        median_s=median,
        mean_s=stats["mean"].positive(),
        min_s=stats["min"].number(),
        iqr_s=iqr,
        q1_s=min(q1 or max(pooled - iqr / 2, pooled / 2), median),
        q3_s=max(q3 or pooled + iqr / 2, median),
        rounds=rounds,
        iterations=iterations,
        latency_s=latency,
        timer=mark["options"]["timer"].text(""),
        processes=processes or (Process(0, pooled, rounds, iterations, latency, samples),),
    )


def _processes(entries: At, stats: At, samples: Sequence[float]) -> tuple[Process, ...]:
    """Each process with its own samples; they must add up, or a sample would count for the wrong process."""
    processes: list[Process] = []
    start = 0
    for entry in entries:
        kept = entry["kept"].count(0)
        processes.append(
            Process(
                index=entry["process"].count(0),
                median_s=entry["median_s"].positive(),
                rounds=entry["rounds"].count(),
                iterations=entry["iterations"].count(),
                latency_s=entry["latency_s"].optional("positive"),
                samples=samples[start : start + kept],
            )
        )
        start += kept
    if processes and samples and start != len(samples):
        stats["data"].refuse(f"{start} samples, as many as its processes kept,", f"{len(samples)}")
    if len({process.index for process in processes}) < len(processes):
        entries.refuse("each process once")
    return tuple(processes)
