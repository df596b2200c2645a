"""Hand-made run files, labelled synthetic: no number in them was ever measured.

:func:`run` begins a run of a few benchmarks, ``run_file`` gives the dictionary that ``pytest --benchmark-json`` would
write of entries made one by one, ``cpu_run`` and ``gpu_run`` whole runs of the quick kind whose times follow a simple
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

from msgspec.structs import replace

from gpubench.runfile import reader
from gpubench.runfile.schema import Case, Run

# Read-only, since every test shares them: a test that changed one in place would rename the GPU of those after it.
CPU = MappingProxyType({"name": "cpu", "kind": "cpu", "label": "Synthetic CPU", "memory_bytes": 16_000_000_000})
GPU = MappingProxyType({"name": "cuda:0", "kind": "cuda", "label": "Synthetic H-GPU", "memory_bytes": 140_000_000_000})


_KINDS = {"models": "networks", "llm": "networks", "serving": "networks", "training": "training"}
_KINDS |= {"matmul": "other_matmul", "matmul.square": "matmul", "quantised": "other_matmul"}
_KINDS |= {"reductions": "operators", "convolution": "operators", "attention": "operators", "fft": "linear_algebra"}
_KINDS |= {"elementwise": "elementwise", "classic": "elementwise", "transfer": "copies", "training.part": "details"}
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
    case: Case,
    median: float,
    *,
    work: dict[str, Any] | None = None,
    medians: tuple[float, ...] = (),
    spread: float = 0.04,
    latency: float | None = None,
    alone: float = 1.1,
    rounds: int = 50,
    iterations: int = 1,
    flags: tuple[str, ...] = (),
    **measured: Any,
) -> dict[str, Any]:
    """One entry of ``benchmarks``; ``medians`` are those of its processes, ``spread`` is IQR over median.

    A call alone takes ``alone`` times as long. ``flags`` were raised in its first process; ``measured`` are more of our
    keys (``device_s``, ``transfer``, …).
    """
    medians = medians or (median,)
    low, high = median * (1 - spread / 2), median * (1 + spread / 2)
    name = f"test_{case.workload.partition('.')[2]}[{case.id}]"
    return {
        "group": None,
        "name": name,
        "fullname": f"benchmarks/test_{case.workload.partition('.')[0]}.py::{name}",
        "params": {**case.params, "device": case.device},
        "extra_info": {
            "gpubench": {
                **of_the_suite(case).as_dict(),
                "work": {"flops": None, "bytes": None, "items": None, "unit": "element"} | (work or {}),
                "latency_s": latency or median * alone,
                "wait_s": None,
                "check": {"status": "passed", "error": 0.0, "tolerance": 1e-5, "reason": None},
                "processes": [
                    {
                        "process": i,
                        "rounds": rounds,
                        "kept": 1,
                        "iterations": iterations,
                        "median_s": value,
                        "iqr_s": value * spread,
                        "latency_s": latency or value * alone,
                        "flags": [{"flag": flag, "seen": f"synthetic {flag}"} for flag in flags if i == 0],
                    }
                    for i, value in enumerate(medians)
                ],
                "steps": None,
                **measured,
            }
        },
        "options": {"timer": "device_clock"},
        "stats": {"min": low, "q1": low, "median": median, "mean": median, "q3": high, "max": high, "iqr": high - low}
        | {"stddev": median * spread, "rounds": rounds * len(medians), "iterations": iterations, "ops": 1 / median}
        | {"data": list(medians)},
    }


def unmeasured(case: Case, status: str = "skipped", reason: str = "predicted 40 s, budget 10 s") -> dict[str, Any]:
    return {**of_the_suite(case).as_dict(), "name": case.id, "fullname": case.id, "status": status, "reason": reason}


def run_file(
    benchmarks: list[dict[str, Any]],
    unmeasured: list[dict[str, Any]] | None = None,
    *,
    devices: tuple[Mapping[str, Any], ...] = (CPU,),
    label: str = "Synthetic CPU (synthetic)",
    processes: int = 1,
    torch: str = "2.13.0+cpu",
    started: str = "2026-01-31T12:00:00+00:00",
    tf32: bool | None = False,
    seed: int | None = 0,
    ceilings: dict[str, Any] | None = None,
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    return {
        "machine_info": {
            "node": "not-to-be-shown",
            "machine": "x86_64",
            "cpu": {"brand_raw": "Synthetic CPU"},
            "gpubench": {
                "label": label,
                "cpu": {"model": "Synthetic CPU", "cores": 2},
                "devices": [dict(device) for device in devices],
                "torch": {"version": torch, "cuda": None},
                "precision": {"tf32": tf32},
                "threads": 2,
            },
        },
        "commit_info": {"id": "unversioned"},
        "benchmarks": benchmarks,
        "datetime": started,
        "version": "5.3.1",
        "gpubench": {
            "schema_version": 2,
            "version": "0.1.0",
            "preset": "quick",
            "seed": seed,
            "asked": {},
            "started": started,
            "finished": started,
            "ceilings": ceilings or {},
            "processes": [
                {"process": i, "flags": [{"flag": flag, "seen": f"synthetic {flag} in {i}"} for flag in flags]}
                for i in range(processes)
            ],
            "unmeasured": unmeasured or [],
        },
    }


SIDES = {"cpu": ("cpu", "torch"), "numpy": ("cpu", "numpy"), "gpu": ("cuda:0", "torch"), "gpu1": ("cuda:1", "torch")}
Time = str | float | tuple[float, ...] | Callable[[Any], Any]
_WORK = ("flops", "bytes", "items", "unit", "operators")
_MEASURED = ("latency", "rounds", "iterations", "flags", "check", "precision", "transfer", "device_s", "launch_s",
             "parallel", "first_call_s", "memory_bytes", "energy_j", "steps")  # fmt: skip
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
        ``copies`` the time of copies each way. Other words are fields of a Case, what is measured or counted, and
        parameters (``n=64`` if there are none), of which the first number is the size; several make several benchmarks.
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
        """Those of the processes, and IQR over median within each."""
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
        return reader.check_run(
            Path(f"{name or self.name or 'run'}.json"), reader.cleaned(json.loads(json.dumps(self.data)))
        )


SIZES = (1, 10, 100)


def sweep(
    workload: str = "aa.mm", *, one: Made | None = None, cpu: float = 1e-6, gpu: float = 1e-7, **how: Any
) -> Made:
    """The same on a CPU and on a GPU, at three sizes; the times are those of a unit of size."""
    return (one or run()).bench(workload, cpu=lambda n: cpu * n, gpu=lambda n: gpu * n, n=SIZES, **how)


def run(
    machine: str = "", *, cuda: int = 1, processes: int = 3, cpu: Mapping[str, Any] = CPU, gpu: Mapping[str, Any] = GPU,
    threads: int = 2, preset: str = "quick", label: str = "", **how: Any,
) -> Made:  # fmt: skip
    """A run of a CPU and so many GPUs, of which ``cpu`` and ``gpu`` tell more; ``machine`` names its file too."""
    gpus = ({**GPU, **gpu, "name": f"cuda:{i}"} for i in range(cuda))
    label = label or machine or "Synthetic CPU (synthetic)"
    data = run_file([], devices=({**CPU, **cpu}, *gpus), label=label, processes=processes, **how)
    data["gpubench"]["preset"] = preset
    data["machine_info"]["gpubench"]["threads"] = threads
    return Made(data, machine, processes)


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
    """What a device that doesn't exist can do at best, by cache level and access pattern."""
    kind = device.partition(":")[0]
    flops, width, launch = _SPEEDS[kind]
    levels = {
        "cpu": (("l1d", 2.4e4, 14.0), ("l2", 1e6, 7.0), ("l3", 2e7, 2.5), ("memory", 4e8, 1.2)),
        "cuda": (("l2", 2.5e7, 2.2), ("memory", 1e9, 1.1)),
    }[kind]
    patterns = {"read": 1.15, "copy": 0.9, "triad": 1.0, "in-place": 1.1}
    return {
        "bandwidth": [
            {"pattern": name, "level": level, "footprint_bytes": size, "byte_per_s": width * factor * share}
            for level, size, factor in levels
            for name, share in patterns.items()
        ],
        "throughput": {dtype: rate * 1.02 for dtype, rate in flops.items()},
        "launch_floor_s": launch * 0.8,
        "host_to_device_byte_per_s": 5.2e10 if kind == "cuda" else None,
        "device_to_host_byte_per_s": 4.9e10 if kind == "cuda" else None,
    }


def cpu_run() -> dict[str, Any]:
    """A quick run on a CPU alone."""
    return run_file(*_suite([CPU], 1, 1.0), ceilings={"cpu": ceilings("cpu")})


def gpu_run(processes: int = 1, speed: float = 1.0, label: str = "Synthetic CPU · H-GPU (synthetic)") -> dict[str, Any]:
    """A quick run on a CPU and an accelerator, with crossovers."""
    how = {"devices": (CPU, GPU), "label": label, "processes": processes, "torch": "2.13.0+cu130"}
    how["ceilings"] = {name: ceilings(name) for name in ("cpu", "cuda:0")}
    return run_file(*_suite([CPU, GPU], processes, speed), flags=("contended",) * (processes > 1), **how)


# FLOP/s by dtype and B/s, launch cost in seconds, of machines that don't exist
_SPEEDS = {
    "cpu": ({"float32": 2e11, "bfloat16": 4.3e11, "float16": 1e9, "float64": 1e11}, 1.6e10, 3e-6),
    "numpy": ({"float32": 1.8e11, "float64": 0.9e11}, 0.9e10, 1e-6),
    "cuda": ({"float32": 5e13, "tf32": 3.9e14, "bfloat16": 7.7e14, "float16": 7.6e14, "float64": 4.5e13}, 4.2e12, 6e-6),
}
_LIMIT = 10.0


def _suite(devices: list[Mapping[str, Any]], processes: int, speed: float) -> tuple[list[Any], list[Any]]:
    done: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    for kind in [*(device["kind"] for device in devices), "numpy"]:
        device, (flops, width, launch) = "cuda:0" if kind == "cuda" else "cpu", _SPEEDS[kind]
        for workload, dtype, params, work, terms in _workloads(kind):
            terms |= {"implementation": "numpy" if kind == "numpy" else "torch", "devices": (device,)}
            terms["threads"] = 1 if kind == "numpy" and workload.startswith("elementwise") else 2
            case = Case(workload, device, dtype, params, **terms)
            rate = flops["bfloat16" if case.variant == "autocast" else dtype] * speed
            amount, moved = work.get("flops", 0.0), work.get("bytes", 0.0)
            fill = 1 / (1 + (2e9 if kind == "cuda" else 1e6) / max(amount, 1.0))  # small work leaves a device idle
            median = launch + amount / (rate * fill) + moved / (width * speed)
            median *= 1 + 0.03 * math.sin(len(done) * 7.3)
            if median > _LIMIT:
                reason = f"predicted {median:.3g} s a call, over the budget of {_LIMIT:.0f} s"
                left.append(unmeasured(case, reason=reason))
                continue
            medians = tuple(median * (1 + 0.02 * math.sin(13 * i + len(done))) for i in range(processes))
            measured: dict[str, Any] = {}
            if kind == "cuda":
                moved = int(moved or 8)
                ways = {"in_s": 1.2e10, "out_s": 0.9e10, "in_pinned_s": 5.2e10, "out_pinned_s": 4.9e10}
                transfer = {"in_bytes": moved * 2 // 3, "out_bytes": moved // 3}
                measured["transfer"] = transfer | {name: 1e-5 + moved / 2 / rate for name, rate in ways.items()}
                device_s = max(median - launch * 0.9, 1e-6)
                measured |= {"device_s": device_s, "launch_s": launch, "energy_j": median * 450.0}
            flags = tuple(name for name, each in {"noisy": 17, "contended": 29}.items() if len(done) % each == 5)
            terms = {"flags": flags, "memory_bytes": 10**6} | measured
            done.append(benchmark(case, median, work=work, medians=medians, **terms))
    gone = Case("models.gpt2", "cpu", "float32", {"batch": 1}, size="batch", threads=2)
    left.append(unmeasured(gone, reason="transformers isn't installed (extra: models)"))
    return done, left


_NETWORKS = {"mlp": 2e6, "lenet": 8e5, "cifar": 1.3e6, "encoder": 5e8, "resnet50": 8e9, "vit": 3.5e10}


def _workloads(kind: str) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Name, dtype, parameters, work and further terms of each case that a kind of device has."""
    for name, inputs in {"add": 3, "mul": 3, "multiply_add": 4, "exp": 2, "sum": 1}.items():
        forms = ("allocating", "out", "inplace") if name in ("add", "mul") else ("allocating", "out")
        for form, n in itertools.product(forms[:1] if name == "sum" else forms, (10**3, 10**5, 10**7)):
            if kind == "numpy" and name == "mul":
                continue
            moved = inputs * 4.0 * n * (3 if form == "allocating" and kind != "cuda" else 1)
            work = {"flops": n * (2.0 if "_" in name else 1.0), "bytes": moved, "items": n, "unit": "element"}
            yield f"elementwise.{name}", "float32", {"form": form, "n": n}, work, {"size": "n"}
    for dtype, n in itertools.product(_SPEEDS[kind][0], (64, 256, 1024, 4096)):
        yield "matmul.square", dtype, {"n": n}, {"flops": 2.0 * n**3, "bytes": 12.0 * n * n}, {"size": "n"}
    if kind == "numpy":
        return
    ways = {"device_to_device": 2, "create": 2} | (
        {"host_to_device": 240, "device_to_host": 270} if kind == "cuda" else {}
    )
    for (name, slow), size in itertools.product(ways.items(), (10**3, 10**6, 10**9)):
        params = {"memory": "pageable", "non_blocking": False, "nbytes": size}
        work = {"bytes": float(size * slow), "items": None}
        yield f"transfer.{name}", "float32", params, work, {"size": "nbytes"}
    for variant, (name, flops) in itertools.product(("eager", "autocast"), _NETWORKS.items()):
        for width, batch in itertools.product((1, 4, 16) if name == "cifar" else (None,), (1, 32, 256)):
            params = {"batch": batch} | ({"width": width} if width else {})
            work = {"flops": flops * batch * (width or 1) ** 2, "items": batch, "bytes": 1e5 * batch, "unit": "sample"}
            if name == "encoder":
                work |= {"items": batch * 128, "unit": "token"}
            yield f"models.{name}", "float32", params, work, {"size": "batch", "variant": variant}
