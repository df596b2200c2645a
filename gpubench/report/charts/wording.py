"""What a picture says: names of devices, workloads and sizes in a reader's words, and the small print below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from ...format import shorten
from ...runfile.matching import shown_name
from ...runfile.schema import Run
from ..labels import (
    Row,
    brief_name,
    device_label,
    flagged,
    grouped,
    heading,
    implementation_label,
    library,
    library_on,
    listed,
    other_libraries,
    setting,
    size_text,
)
from ..table import BASE, records
from .theme import ACCELERATORS, CPUS

WORK_GROUPS = {
    "training": "Train a network, one step", "models": "Run a network", "llm": "Run a language model",
    "serving": "Answer a request", "attention": "Operators of networks", "reductions": "Operators of networks",
    "convolution": "Operators of networks", "matmul": "Matrix products", "quantised": "Products of 8 bits",
    "linear_algebra": "Linear algebra", "fft": "Linear algebra", "sparse": "Linear algebra",
    "irregular": "Sorting, irregular access", "science": "Science and images",
    "elementwise": "Elementwise", "classic": "Elementwise", "transfer": "Copies",
}  # fmt: skip
"""Families of the benchmarks that are shipped, in the order of a picture."""
OTHERS = "Your benchmarks"
_TITLES = {"training": "Training: {}", "models": "Running: {}", "matmul": "Matrix products, {}",
           "transfer": "Copies: {}", "llm": "{}", "serving": "Serving: {}", "attention": "Attention, {}",
           "quantised": "Products of 8 bits, {}", "reductions": "Operator: {}", "convolution": "Operator: {}",
           "linear_algebra": "Linear algebra: {}", "fft": "Fourier transforms: {}", "sparse": "Sparse matrices: {}",
           "irregular": "Irregular access: {}", "science": "Science: {}"}  # fmt: skip
_WORKLOADS = {
    "lenet": "LeNet", "cifar": "CIFAR CNN", "resnet50": "ResNet-50", "mlp": "MLP", "encoder": "Encoder layer",
    "vit": "ViT", "bert": "BERT", "gpt2": "GPT-2", "square": "n × n", "tall_skinny": "tall × skinny",
    "multiply_add": "multiply-add", "step": "r + a·b", "tabular": "tabular MLP", "width": "CNN of a width",
    "part": "part of a step", "prefill": "Llama prefill", "decode": "Llama decode",
    "decode_int8": "Llama decode, int8", "decoder": "Llama", "full": "not causal", "grouped": "causal, grouped",
    "llama": "Llama", "gpt2_512": "GPT-2, 512 tokens",
    "rms_norm": "RMS norm", "cross_entropy": "cross-entropy", "scatter_add": "scatter-add", "topk": "top-k",
    "cumsum": "running sum", "conv2d": "convolution", "cholesky": "Cholesky", "qr": "QR", "svd": "SVD",
    "eigh": "eigenvectors", "lstsq": "least squares", "complex": "FFT", "rfft2": "FFT of images",
    "csr": "sparse × dense", "kmeans": "k-means step", "resize": "image resize", "blur": "image blur",
}  # fmt: skip
_SHARE_FLAGGED = 1 / 3
"""Beyond it one line above the chart warns, and no mark is drawn hollow."""


class Naming:
    """Names, colours and shapes of a report's devices; each run's CPU and each implementation count as one."""

    def __init__(self, results: pd.DataFrame, labels: Mapping[tuple[str, str], str] | None = None) -> None:
        rows = [row for row in records(results) if row["_result"].times]
        libraries = ["", *other_libraries(rows)]
        sources = {_source(row): row for row in sorted(rows, key=lambda row: libraries.index(library(row)))}
        self.several = len({run for run, _, _ in sources}) > 1
        plain = {source: _device_name(row, labels or {}) for source, row in sources.items()}
        self._names: dict[tuple[str, str, str], str] = {}
        self._roles: dict[tuple[str, str, str], str] = {}
        for source, name in plain.items():
            run, device, _ = source
            rivals = [other[0] for other in plain if plain[other] == name and other != source]
            if run in rivals:
                name = f"{name} #{device.partition(':')[2] or device}"
            if set(rivals) - {run}:
                name = f"{name} · {shorten(run, 24)}"
            self._names[source] = name
            self._roles[source] = self._role(sources[source], libraries)
        self.sources = sorted(sources, key=lambda source: not _accelerated(sources[source]))

    def _role(self, row: Row, libraries: Sequence[str]) -> str:
        """CPUs are grey, and so is the first of the other libraries on them; more have the last colours of GPUs."""
        place = libraries.index(library(row)) - 1
        if place > 0 and not _accelerated(row):
            return ACCELERATORS[-place % len(ACCELERATORS)]
        roles = ACCELERATORS if _accelerated(row) else CPUS
        return roles[sum(role in roles for role in self._roles.values()) % len(roles)]

    def device(self, row: Row, side: str = "") -> str:
        """``H200``; ``Xeon, 2 threads``; ``NumPy``."""
        source = _source(row, side)
        return self._names.get(source, source[1])

    def short(self, row: Row) -> str:
        """Without the number of threads."""
        return self.device(row).partition(",")[0]

    def role(self, row: Row) -> str:
        """Of its colour and shape."""
        return self._roles.get(_source(row), "muted")

    def order(self, row: Row) -> int:
        """Its place among the report's devices, GPUs first."""
        return self.sources.index(_source(row))

    def subject(self, row: Row) -> str:
        """``the H200``; ``PyTorch`` where a pair holds it against another implementation."""
        if row["implementation"] != row["baseline_implementation"]:
            return implementation_label(str(row["implementation"]))
        return f"the {self.short(row)}"

    def baseline(self, rows: Sequence[Row]) -> str:
        """What these pairs are measured against."""
        names = {self.device(row, "baseline_") for row in rows}
        if len(names) == 1:
            return names.pop()
        runs = {row["baseline_run"] for row in rows if row["run"] != row["baseline_run"]}
        if len(runs) == 1:
            return shorten(str(runs.pop()))
        return "the CPU of the same machine" if all(row["baseline_device"] == "cpu" for row in rows) else "the baseline"


def _source(row: Row, side: str = "") -> tuple[str, str, str]:
    return str(row[f"{side}run"]), str(row[f"{side}device"]), library(row, side)


def _accelerated(row: Row) -> bool:
    return bool(row["_run"].machine.device(row["device"]).accelerator)


def _device_name(row: Row, labels: Mapping[tuple[str, str], str]) -> str:
    machine = row["_run"].machine
    device = machine.device(row["device"])
    if not row["device"]:
        return shorten(brief_name(device_label(row["_run"], "")) or "unknown device", 28)
    name = brief_name(device.label)
    name = labels.get((device.name, device.label)) or name or ("CPU" if device.name == "cpu" else device.name)
    if library(row):
        return library_on(row, shorten(name, 28))
    threads = machine.threads or row["threads"]
    counted = f", {threads} thread{'s' * (threads != 1)}" if threads and not device.accelerator else ""
    return f"{shorten(name, 28)}{counted}"


def group_of(workload: str) -> str:
    """The heading that its family stands under."""
    return WORK_GROUPS.get(workload.partition(".")[0], OTHERS)


def workload_name(workload: str) -> str:
    """``LeNet`` of ``models.lenet``; a name that isn't known stays as it is."""
    kind, _, name = workload.partition(".")
    return shorten(
        _WORKLOADS.get(name, name or kind).replace("_", " ") if kind in WORK_GROUPS else shown_name(workload), 32
    )


def model_name(workload: str) -> str:
    """``LeNet`` of ``data_parallel.lenet``, as a heading."""
    name = workload.partition(".")[2] or workload
    return heading(shorten(_WORKLOADS.get(name, name), 32))


def title_name(workload: str) -> str:
    """``Training LeNet``, ``Elementwise add``, ``Matrix products``: no two workloads have one."""
    if workload == "matmul.square":
        return "Matrix products"
    kind = workload.partition(".")[0]
    if kind not in WORK_GROUPS:
        return shorten(shown_name(workload), 60)
    return _TITLES.get(kind, "Elementwise {}").format(workload_name(workload))


def family_name(kind: str) -> str:
    """A family as a heading; one's own keeps its name."""
    return WORK_GROUPS.get(kind, heading(kind))


def settings(row: Row, brief: bool = False) -> str:
    """``bfloat16, autocast, n = 8192``: how a case differs from others; ``brief`` leaves dtype and size out."""
    case = row["_result"].case
    words = [] if brief or not case.dtype else [case.dtype]
    words += [case.variant] * (case.variant not in ("", "eager")) + [f"cache {case.cache}"] * (case.cache == "cold")
    for name, value in case.params.items():
        if name == case.size and not brief:
            words.append(f"{shorten(name, 16)} = {size_text(value, name) if isinstance(value, int | float) else value}")
        elif isinstance(value, str) and name != case.size:
            words.append(setting(name, value))
        elif value is not None and name != case.size:
            words.append(setting(name, value).replace("=", " = "))
    return ", ".join(words)


def warning(rows: Sequence[Row]) -> str:
    """One line where more than a third of the results are flagged; empty otherwise."""
    count = sum(flagged(row) for row in rows)
    if count <= _SHARE_FLAGGED * len(rows):
        return ""
    return f"{count} of {len(rows)} results are noisy and may be off"


def hollow_marks(rows: Sequence[Row], among: Sequence[Row]) -> frozenset[int]:
    """Indices of the rows whose marks show that they are flagged: none where most ``among`` them are."""
    return frozenset(() if warning(among) else (i for i, row in enumerate(rows) if flagged(row)))


def caption(rows: Sequence[Row], naming: Naming, note: str = "", doubt: str = "Hollow", left_out: int = 0) -> str:
    """Devices, dtypes, threads, TF32, torch, date and processes of the rows, baselines included, and the note.

    ``doubt`` says how flagged results are drawn, where some are; ``left_out`` counts those that aren't drawn.
    """
    runs: dict[str, Run] = {row["run"]: row["_run"] for row in rows}
    cases = [result.case for row in rows for result in (row["_result"], row.get(BASE)) if result]
    dtypes = sorted({case.dtype for case in cases}) if all(case.dtype for case in cases) else []
    variants = sorted({case.variant for case in cases if case.variant}, reverse=True)
    torch = list(dict.fromkeys(run.machine.torch for run in runs.values() if run.machine.torch))
    counts = sorted({len(row["_result"].times.processes) for row in rows if row["_result"].times})
    facts = (
        _devices(list(dict.fromkeys(name for case in cases for name in (case.device, *case.devices))), runs, naming),
        _threads([(case.implementation, case.threads) for case in cases]),
        listed(dtypes),
        " and ".join(variants) if variants not in ([], ["eager"]) else "",
        _tf32([run.machine.tf32 for run in runs.values()], "tf32" in dtypes) if dtypes else "",
        f"PyTorch {listed(torch)}" if torch else "",
        listed(sorted({run.date for run in runs.values() if run.date})),
        _processes(counts),
    )
    if doubt and hollow_marks(rows, rows):
        note += f"{doubt}: noisy measurement. "
    if left_out:
        drawn = f"{left_out} result{'s' * (left_out > 1)} {'are' if left_out > 1 else 'is'}n't drawn"
        note += f"{drawn}: too noisy, or above the measured peak, which can't be. "
    if differing := sorted({row["differs"] for row in rows if row.get("differs")}):
        note += f"Compared although they differ: {listed(differing)}. "
    return f"{' · '.join(fact for fact in facts if fact)}. {note}".strip()


def _processes(counts: Sequence[int]) -> str:
    """``3 processes``, ``2 and 3 processes``, ``1 to 3 processes``."""
    words = f"{counts[0]} to {counts[-1]}" if len(counts) > 2 else " and ".join(map(str, counts))
    return f"{words} process{'es' * (list(counts) != [1])}" if counts else ""


def _devices(devices: list[str], runs: dict[str, Run], naming: Naming) -> str:
    words = []
    for name, run in runs.items():
        order = [device.name for device in run.machine.devices]
        used = sorted(devices, key=lambda device: order.index(device) if device in order else len(order))
        named = [run.machine.device(device).label if device else device_label(run, device) for device in used]
        known = [shorten(label, 60) for label in named if label]
        counts = Counter(known or used)
        labels = ", ".join(f"{count} × {label}" if count > 1 else label for label, count in counts.items())
        words.append(f"{shorten(name)}: {labels}" if naming.several else labels)
    return "; ".join(words[:4]) + (f" and {len(words) - 4} more runs" if len(words) > 4 else "")


def _threads(known: list[tuple[str, int | None]]) -> str:
    """``2 CPU threads``; by implementation where they differ."""
    by = grouped([(name, count) for name, count in known if count is not None], lambda pair: pair[0])
    words = {name: " and ".join(map(str, sorted({count for _, count in pairs}))) for name, pairs in by.items()}
    if len(set(words.values())) > 1:
        return "CPU threads: " + ", ".join(f"{name} {counts}" for name, counts in words.items())
    counts = next(iter(words.values()), "")
    return f"{counts} CPU thread{'s' if counts != '1' else ''}" if counts else ""


def _tf32(states: list[bool | None], named: bool) -> str:
    words = {True: "on", False: "off", None: "unknown"}
    state = " and ".join(dict.fromkeys(words[state] for state in states))
    return f"TF32 {state}" + (" but for dtype tf32" if named and state != "on" else "")
