"""Hand-made run files, labelled synthetic: no number in them was ever measured.

:func:`run` begins a run of a few benchmarks, ``run_file`` gives the dictionary that ``pytest --benchmark-json`` would
write of entries made one by one, ``cpu_run`` and ``gpu_run`` whole runs of the quick kind, in times by a simple
model (a launch cost plus work over speed).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from gpubench.runfile import quality, reader
from gpubench.runfile.schema import Case, Run

# Read-only, since every test shares them: a test that changed one in place would rename the GPU of those after it.
CPU = MappingProxyType({"name": "cpu", "kind": "cpu", "label": "Synthetic CPU", "memory_bytes": 16_000_000_000})
GPU = MappingProxyType({"name": "cuda:0", "kind": "cuda", "label": "Synthetic H-GPU", "memory_bytes": 140_000_000_000})

_KINDS = {"models": "networks", "llm": "networks", "serving": "networks", "training": "training"}
_KINDS |= {"matmul": "other_matmul", "matmul.square": "matmul", "quantised": "other_matmul"}
_KINDS |= {"reductions": "operators", "convolution": "operators", "attention": "operators", "fft": "linear_algebra"}
_KINDS |= {"elementwise": "elementwise", "classic": "elementwise", "transfer": "copies"}
_KINDS |= dict.fromkeys(("distributed", "data_parallel", "model_parallel"), "distributed")
_KINDS |= {name: name for name in ("linear_algebra", "irregular", "science")}


def of_the_suite(case: Case) -> Case:
    """The case with the kind that the suite's benchmark of this name has; as it is where the suite has none."""
    family = case.workload.partition(".")[0]
    return replace(case, kind=case.kind or _KINDS.get(case.workload, _KINDS.get(family, "")))


def case(workload: str, device: str = "cpu", **terms: Any) -> Case:
    """A benchmark in float32 of one size."""
    return Case(workload, device, "float32", {"n": 8}, size="n", devices=(device,), **terms)


def benchmark(
    case: Case, median: float, *, work: dict[str, Any] | None = None, medians: tuple[float, ...] = (),
    spread: float = 0.04, latency: float | None = None, alone: float = 1.1, rounds: int = 50, iterations: int = 1,
    flags: tuple[str, ...] = (), cpu_s: float | None = None, **measured: Any,
) -> dict[str, Any]:  # fmt: skip
    """One entry of ``benchmarks``; ``medians`` are its processes', ``spread`` is IQR over median.

    A call alone takes ``alone`` times as long, ``cpu_s`` on a core. ``flags`` were raised in its first process;
    ``measured`` are more of our keys (``device_s``, ``transfer``, …).
    """
    medians = medians or (median,)
    low, high = median * (1 - spread / 2), median * (1 + spread / 2)
    name = f"test_{case.workload.partition('.')[2]}[{case.id}]"
    alike = {"cpu_s": cpu_s, "flags": [], "rounds": rounds, "kept": 1, "iterations": iterations}
    processes = [
        {"process": i, "median_s": each, "iqr_s": each * spread, "latency_s": latency or each * alone, **alike}
        for i, each in enumerate(medians)
    ]
    processes[0]["flags"] = [{"flag": flag, "seen": f"synthetic {flag}"} for flag in flags]
    check = {"status": "passed", "error": 0.0, "tolerance": 1e-5, "reason": None}
    ours = of_the_suite(case).as_dict() | {"check": check, "processes": processes, "steps": None}
    ours["work"] = {"flops": None, "bytes": None, "items": None, "unit": "element"} | (work or {})
    ours["latency_s"] = latency or median * alone
    stats = {"min": low, "q1": low, "median": median, "mean": median, "q3": high, "max": high, "iqr": high - low}
    stats |= {"stddev": median * spread, "rounds": rounds * len(medians), "iterations": iterations, "ops": 1 / median}
    mark = {"group": None, "name": name, "params": {**case.params, "device": case.device}}
    mark |= {"fullname": f"benchmarks/test_{case.workload.partition('.')[0]}.py::{name}"}
    mark |= {"extra_info": {"gpubench": ours | measured}, "options": {"timer": "device_clock"}}
    return mark | {"stats": stats | {"data": list(medians)}}


def unmeasured(case: Case, status: str = "skipped", reason: str = "predicted 40 s, budget 10 s") -> dict[str, Any]:
    return {**of_the_suite(case).as_dict(), "name": case.id, "fullname": case.id, "status": status, "reason": reason}


def run_file(
    benchmarks: list[dict[str, Any]], unmeasured: list[dict[str, Any]] | None = None, *,
    devices: tuple[Mapping[str, Any], ...] = (CPU,), label: str = "Synthetic CPU (synthetic)", processes: int = 1,
    torch: str = "2.13.0+cpu", started: str = "2026-01-31T12:00:00+00:00", tf32: bool | None = False,
    seed: int | None = 0, ceilings: dict[str, Any] | None = None, flags: tuple[str, ...] = (), threads: int = 2,
    preset: str = "quick",
) -> dict[str, Any]:  # fmt: skip
    raised = [[{"flag": flag, "seen": f"synthetic {flag} in {i}"} for flag in flags] for i in range(processes)]
    machine = {"label": label, "cpu": {"model": "Synthetic CPU", "cores": 2}, "devices": [*map(dict, devices)]}
    machine |= {"torch": {"version": torch, "cuda": None}, "precision": {"tf32": tf32}, "threads": threads}
    ours = {"schema_version": 3, "version": "0.1.0", "preset": preset, "seed": seed, "started": started}
    ours |= {"ceilings": ceilings or {}, "unmeasured": unmeasured or []}
    info = {"node": "not-to-be-shown", "machine": "x86_64", "cpu": {"brand_raw": "Synthetic CPU"}, "gpubench": machine}
    ours |= {"processes": [{"process": i, "flags": each} for i, each in enumerate(raised)]}
    file = {"machine_info": info, "commit_info": {"id": "unversioned"}, "datetime": started, "version": "5.3.1"}
    return file | {"benchmarks": benchmarks, "gpubench": ours}


SIDES = {"cpu": ("cpu", "torch"), "numpy": ("cpu", "numpy"), "gpu": ("cuda:0", "torch"), "gpu1": ("cuda:1", "torch")}
Time = str | float | tuple[float, ...] | Callable[[Any], Any]
_WORK = ("flops", "bytes", "items", "unit", "operators")
_MEASURED = ("latency", "cpu_s", "rounds", "iterations", "flags", "check", "precision", "transfer", "device_s",
             "launch_s", "device_reason", "parallel", "first_call_s", "memory_bytes", "energy_j", "steps",
             "plain_s", "uncounted")  # fmt: skip
_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


class Made:
    """A run in the making: ``data`` is the dictionary of its file, ``marks`` are its benchmarks."""

    def __init__(self, data: dict[str, Any], name: str, processes: int) -> None:
        self.data, self.name, self.processes = data, name, processes
        self.marks: list[dict[str, Any]] = data["benchmarks"]
        self.gone: list[dict[str, Any]] = data["gpubench"]["unmeasured"]

    def bench(
        self, workload: str, *, by: str = "", spread: float | None = None, copies: float | None = None, **how: Any
    ) -> Made:
        """Add a benchmark with a time for each of :data:`SIDES` that is named.

        A time is a number of seconds, a text such as ``2 ms``, a function of the size, or the times of the processes,
        which else lie ``spread`` apart (1%), as the quartiles of one process do (4%). ``by`` is another library,
        ``copies`` the time of copies each way. Other words are fields of a Case, measurements or counts, and
        parameters (``n=64`` if there are none); their first number is the size; several make several benchmarks.
        """
        sides = {name: how.pop(name) for name in SIDES if name in how}
        terms = {name: how.pop(name) for name in Case.__struct_fields__ if name in how}
        work = {name: how.pop(name) for name in _WORK if name in how}
        measured = {name: how.pop(name) for name in _MEASURED if name in how}
        if copies is not None:
            measured["transfer"] = {"in_bytes": 64, "out_bytes": 64, "in_s": copies, "out_s": copies}
        given = terms.pop("params", {}) | how or {"n": 64}
        params = {name: value for name, value in given.items() if value is not None}
        size = terms.pop("size", next((name for name, value in params.items() if not isinstance(value, str)), None))
        sizes = params.get(size)
        for (side, time), value in itertools.product(sides.items(), sizes if isinstance(sizes, tuple) else (sizes,)):
            device, library = SIDES[side]
            usual = {"device": device, "dtype": "float32", "devices": (device,), "implementation": by or library}
            case = Case(workload, params=params | ({size: value} if size else {}), size=size, **usual | terms)
            medians, iqr = self._medians(time(value) if callable(time) else time, spread)
            counted = {name: amount(value) if callable(amount) else amount for name, amount in work.items()}
            known = {"medians": medians, "spread": iqr, "alone": 1.0, "work": counted} | measured
            self.marks.append(benchmark(case, sorted(medians)[len(medians) // 2], **known))
        return self

    def _medians(self, time: Time, spread: float | None) -> tuple[tuple[float, ...], float]:
        """Medians of the processes, and IQR over median within each."""
        if isinstance(time, str):
            number, unit = time.split()
            time = float(number) * _UNITS[unit]
        if isinstance(time, tuple) or self.processes == 1:
            return (time if isinstance(time, tuple) else (time,)), 0.04 if spread is None else spread
        apart = 0.01 if spread is None else spread
        places = (2 * i / (self.processes - 1) - 1 for i in range(self.processes))
        return tuple(time * (1 + apart * place) for place in places), 0.04

    def skip(
        self, workload: str, status: str = "skipped", reason: str = "no", device: str = "cpu", dtype: str = "float32",
        **params: Any,
    ) -> Made:  # fmt: skip
        """Add a benchmark that gave no number."""
        case = Case(workload, device, dtype, params, size=next(iter(params), None))
        self.gone.append(unmeasured(case, status, reason))
        return self

    def save(self, path: Path) -> Path:
        """Write the file, and folders where there are none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.data))
        return path

    def read(self, name: str = "") -> Run:
        """As from a file of this name."""
        path, data = Path(f"{name or self.name or 'run'}.json"), json.loads(json.dumps(self.data))
        return quality.judged(reader.check_run(path, reader.cleaned(data)))


SIZES = (1, 10, 100)


def sweep(
    workload: str = "aa.mm", *, one: Made | None = None, cpu: float = 1e-6, gpu: float = 1e-7, **how: Any
) -> Made:
    """The same on a CPU and on a GPU, at three sizes; the times are for a unit of size."""
    return (one or run()).bench(workload, cpu=lambda n: cpu * n, gpu=lambda n: gpu * n, n=SIZES, **how)


def run(
    machine: str = "", *, cuda: int = 1, processes: int = 3, cpu: Mapping[str, Any] = CPU, gpu: Mapping[str, Any] = GPU,
    label: str = "Synthetic CPU (synthetic)", **how: Any,
) -> Made:  # fmt: skip
    """A run of a CPU and so many GPUs, as ``cpu`` and ``gpu`` describe them; ``machine`` names its file too."""
    devices = ({**CPU, **cpu}, *({**GPU, **gpu, "name": f"cuda:{i}"} for i in range(cuda)))
    return Made(run_file([], devices=devices, label=machine or label, processes=processes, **how), machine, processes)


def session(process: int, cases: Mapping[str, Case], **facts: Any) -> dict[str, Any]:
    """The line of a journal with which a measuring process begins."""
    run = run_file([])
    known = {key: run[key] for key in ("machine_info", "commit_info", "datetime", "version", "gpubench")}
    identities = {name: case.as_dict() for name, case in cases.items()}
    known |= {"cases": list(cases), "identities": identities, "estimated_s": 1.0, "fingerprint": {"code": "stub"}}
    return {"event": "session", "process": process, **known, **facts}


def begun_and_ended(process: int, name: str, case: Case, seconds: float, **more: Any) -> list[dict[str, Any]]:
    """The lines of a case that was measured."""
    mark = benchmark(case, seconds) | {"fullname": name}
    mark["stats"]["total"] = 50 * seconds
    about = {"process": process, "fullname": name}
    start = {"event": "start", **about, "name": name, "case": case.as_dict(), **more}
    return [start, {"event": "end", **about, "status": "ok", "benchmark": mark}]


def ceilings(device: str) -> dict[str, Any]:
    """The peaks of a device that doesn't exist, by cache level and access pattern."""
    kind = "cpu" if device == "cpu" else "gpu"
    flops, width, launch = _SPEEDS[kind]
    levels = {
        "cpu": (("l1d", 2.4e4, 14.0), ("l2", 1e6, 7.0), ("l3", 2e7, 2.5), ("memory", 4e8, 1.2)),
        "gpu": (("l2", 2.5e7, 2.2), ("memory", 1e9, 1.1)),
    }[kind]
    patterns = {"read": 1.15, "copy": 0.9, "triad": 1.0, "in-place": 1.1}
    bandwidth = [
        {"pattern": name, "level": level, "footprint_bytes": size, "byte_per_s": width * factor * share}
        for (level, size, factor), (name, share) in itertools.product(levels, patterns.items())
    ]
    throughput = {dtype: rate * 1.02 for dtype, rate in flops.items()}
    copies = {"host_to_device_byte_per_s": 5.2e10, "device_to_host_byte_per_s": 4.9e10} if kind == "gpu" else {}
    return {"bandwidth": bandwidth, "throughput": throughput, "launch_floor_s": launch * 0.8} | copies


def cpu_run() -> dict[str, Any]:
    """A quick run on a CPU alone."""
    return _suite(run(cuda=0, processes=1, ceilings={"cpu": ceilings("cpu")}), ("cpu", "numpy"), 1.0)


def gpu_run(processes: int = 1, speed: float = 1.0, label: str = "Synthetic CPU · H-GPU (synthetic)") -> dict[str, Any]:
    """A quick run on a CPU and an accelerator, with crossovers."""
    peaks = {name: ceilings(name) for name in ("cpu", "cuda:0")}
    how = {"ceilings": peaks, "torch": "2.13.0+cu130", "flags": ("contended",) * (processes > 1)}
    return _suite(run(label=label, processes=processes, **how), ("cpu", "gpu", "numpy"), speed)


# FLOP/s by dtype and B/s, launch cost in seconds, of machines that don't exist
_SPEEDS = {
    "cpu": ({"float32": 2e11, "bfloat16": 4.3e11, "float16": 1e9, "float64": 1e11}, 1.6e10, 3e-6),
    "numpy": ({"float32": 1.8e11, "float64": 0.9e11}, 0.9e10, 1e-6),
    "gpu": ({"float32": 5e13, "tf32": 3.9e14, "bfloat16": 7.7e14, "float16": 7.6e14, "float64": 4.5e13}, 4.2e12, 6e-6),
}
_LIMIT = 10.0


def _suite(one: Made, sides: tuple[str, ...], speed: float) -> dict[str, Any]:
    for side in sides:
        flops, width, launch = _SPEEDS[side]
        for workload, how in _workloads(side):
            count, rate = len(one.marks), speed * flops["bfloat16" if "variant" in how else how.get("dtype", "float32")]
            amount, moved = how.get("flops", 0.0), how["bytes"]
            fill = 1 / (1 + (2e9 if side == "gpu" else 1e6) / max(amount, 1.0))  # small work leaves a device idle
            median = launch + amount / (rate * fill) + moved / (width * speed)
            median *= 1 + 0.03 * math.sin(count * 7.3)
            how["threads"] = 1 if side == "numpy" and workload.startswith("elementwise") else 2
            how["cpu_s"] = None if side == "gpu" else 0.98 * median
            if side == "gpu":
                ways = {"in_s": 1.2e10, "out_s": 0.9e10, "in_pinned_s": 5.2e10, "out_pinned_s": 4.9e10}
                sizes = {"in_bytes": int(moved) * 2 // 3, "out_bytes": int(moved) // 3}
                how["transfer"] = sizes | {name: 1e-5 + moved / 2 / link for name, link in ways.items()}
                device_s = max(median - launch * 0.9, 1e-6)
                how |= {"device_s": device_s, "launch_s": launch, "energy_j": median * 450.0}
            flags = tuple(name for name, each in {"noisy": 17, "contended": 29}.items() if count % each == 5)
            medians = tuple(median * (1 + 0.02 * math.sin(13 * i + count)) for i in range(one.processes))
            one.bench(workload, **{side: medians}, flags=flags, memory_bytes=10**6, **how)
            if median > _LIMIT:
                case = convert(one.marks.pop()["extra_info"]["gpubench"], Case)
                one.gone.append(unmeasured(case, reason=f"predicted {median:.3g} s a call"))
    return one.skip("models.gpt2", reason="transformers isn't installed (extra: models)", batch=1).data


_NETWORKS = {"mlp": 2e6, "lenet": 8e5, "cifar": 1.3e6, "encoder": 5e8, "resnet50": 8e9, "vit": 3.5e10}


def _workloads(side: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name, parameters, work and further terms of each benchmark that a side has."""
    for name, inputs in {"add": 3, "mul": 3, "multiply_add": 4, "exp": 2, "sum": 1}.items():
        forms = ("allocating", "out", "inplace") if name in ("add", "mul") else ("allocating", "out")
        for form, n in itertools.product(forms[:1] if name == "sum" else forms, (10**3, 10**5, 10**7)):
            moved = inputs * 4.0 * n * (3 if form == "allocating" and side != "gpu" else 1)
            if side != "numpy" or name != "mul":
                flops = n * (2.0 if "_" in name else 1.0)
                yield f"elementwise.{name}", {"form": form, "n": n, "flops": flops, "bytes": moved, "items": n}
    for dtype, n in itertools.product(_SPEEDS[side][0], (64, 256, 1024, 4096)):
        yield "matmul.square", {"n": n, "dtype": dtype, "flops": 2.0 * n**3, "bytes": 12.0 * n * n}
    if side == "numpy":
        return
    ways = {"device_to_device": 2, "create": 2} | (
        {"host_to_device": 240, "device_to_host": 270} if side == "gpu" else {}
    )
    for (name, slow), nbytes in itertools.product(ways.items(), (10**3, 10**6, 10**9)):
        params = {"memory": "pageable", "non_blocking": False, "nbytes": nbytes}
        yield f"transfer.{name}", params | {"size": "nbytes", "bytes": float(nbytes * slow)}
    for autocast, (name, flops) in itertools.product(({}, {"variant": "autocast"}), _NETWORKS.items()):
        for width, batch in itertools.product((1, 4, 16) if name == "cifar" else (None,), (1, 32, 256)):
            unit = {"items": batch * 128, "unit": "token"} if name == "encoder" else {"items": batch, "unit": "sample"}
            work = unit | {"flops": flops * batch * (width or 1) ** 2, "bytes": 1e5 * batch}
            yield f"models.{name}", work | autocast | {"batch": batch, "width": width}
