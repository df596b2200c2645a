"""What a picture calls things: devices by their names, workloads and sizes in a reader's words, flagged results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from ...runfile.schema import Scalar
from ..labels import Row, flagged, heading, setting, shorten, size_text
from ..table import records
from .theme import ACCELERATORS, CPUS

_NOISE = re.compile(
    r"\((R|TM|C|modelled|synthetic)\)|\([^)]*\)|\b(NVIDIA|AMD|Intel|GeForce|Tesla|Processor|CPU|GPU|Graphics)\b"
    r"|@.*$|\b\d+-Core\b|[- ](SXM\d?|PCIe|HBM\d\w*|\d+ ?GB)\b",
    re.IGNORECASE,
)
"""What a maker's name of a device has beyond the name that people use."""
WORK_GROUPS = {
    "training": "Train a network, one step",
    "models": "Run a network",
    "matmul": "Matrix products",
    "elementwise": "Elementwise",
    "classic": "Elementwise",
    "transfer": "Copies",
}
"""Families of the benchmarks that are shipped, in the order of a picture."""
OTHERS = "Your benchmarks"
_TITLES = {
    "training": "Training: {}",
    "models": "Running: {}",
    "elementwise": "Elementwise {}",
    "matmul": "Matrix products, {}",
    "classic": "Elementwise {}",
    "transfer": "Copies: {}",
}
_WORKLOADS = {
    "lenet": "LeNet", "cifar": "CIFAR CNN", "resnet50": "ResNet-50", "mlp": "MLP", "encoder": "Encoder layer",
    "vit": "ViT", "bert": "BERT", "gpt2": "GPT-2", "square": "n × n", "tall_skinny": "tall × skinny",
    "multiply_add": "multiply-add", "step": "r + a·b", "tabular": "tabular MLP", "width": "CNN of a width",
    "part": "part of a step",
}  # fmt: skip
_SHARE_FLAGGED = 1 / 3
"""Beyond it one line above the chart warns, and no mark is drawn hollow."""


class Naming:
    """Names, colours and shapes of a report's devices; each run's CPU and each implementation count as one."""

    def __init__(self, results: pd.DataFrame) -> None:
        rows = [row for row in records(results) if row["_result"].times]
        sources = {_source(row): row for row in sorted(rows, key=lambda row: row["implementation"] == "numpy")}
        self.several = len({run for run, _, _ in sources}) > 1
        machines = {run: row["_run"].machine for (run, _, _), row in sources.items()}
        plain = {source: _device_name(row) for source, row in sources.items()}
        numbers = Counter(plain.values())
        self._names: dict[tuple[str, str, str], str] = {}
        self._roles: dict[tuple[str, str, str], str] = {}
        for source, name in plain.items():
            run, device, _ = source
            rivals = [other for other in plain if plain[other] == name and other != source]
            if any(other[0] == run for other in rivals):
                name = f"{name} {device.partition(':')[2] or device}"
            if any(other[0] != run for other in rivals) and numbers[plain[source]] > 1:
                name = f"{name} · {shorten(run, 24)}"
            self._names[source] = name
            roles = ACCELERATORS if machines[run].device(device).accelerator else CPUS
            used = sum(role in roles for role in self._roles.values())
            self._roles[source] = roles[used % len(roles)]
        self.sources = sorted(sources, key=lambda source: (self._roles[source] in CPUS, list(sources).index(source)))

    def device(self, row: Row, side: str = "") -> str:
        """``H200``; ``Xeon, 2 threads``; ``NumPy``."""
        source = _source(row, side)
        return self._names.get(source, source[1])

    def short(self, row: Row, side: str = "") -> str:
        """Without the number of threads."""
        return self.device(row, side).partition(",")[0]

    def role(self, row: Row, side: str = "") -> str:
        """Of its colour and shape."""
        return self._roles.get(_source(row, side), "muted")

    def order(self, row: Row) -> int:
        return self.sources.index(_source(row))

    def subject(self, row: Row) -> str:
        """``the H200``; ``PyTorch`` where a pair holds it against another implementation."""
        if row["implementation"] != row["baseline_implementation"]:
            return {"torch": "PyTorch", "numpy": "NumPy"}.get(row["implementation"], str(row["implementation"]))
        return f"the {self.short(row)}"

    def baseline(self, rows: Iterable[Row]) -> str:
        """What these pairs are measured against."""
        rows = list(rows)
        names = list(dict.fromkeys(self.device(row, "baseline_") for row in rows))
        if len(names) == 1:
            return names[0]
        runs = {row["baseline_run"] for row in rows if row["run"] != row["baseline_run"]}
        if len(runs) == 1:
            return shorten(str(runs.pop()))
        return "the CPU of the same machine" if all(row["baseline_device"] == "cpu" for row in rows) else "the baseline"


def _source(row: Row, side: str = "") -> tuple[str, str, str]:
    implementation = row.get(f"{side}implementation")  # the rows of scaling.csv have none
    return str(row[f"{side}run"]), str(row[f"{side}device"]), "numpy" if implementation == "numpy" else ""


def _device_name(row: Row) -> str:
    if row["implementation"] == "numpy":
        return "NumPy"
    machine = row["_run"].machine
    device = machine.device(row["device"])
    name = " ".join(_NOISE.sub(" ", device.label).split()).strip(" -,") or device.label or device.name
    threads = machine.threads or row["threads"]
    if not device.accelerator and threads:
        return f"{shorten(name if device.label else 'CPU', 28)}, {threads} thread{'s' * (threads != 1)}"
    return shorten(name, 28)


def group_of(workload: str) -> str:
    """The heading that its family stands under."""
    return WORK_GROUPS.get(workload.partition(".")[0], OTHERS)


def workload_name(workload: str) -> str:
    """``LeNet`` of ``models.lenet``; a name that isn't known stays as it is."""
    kind, _, name = workload.partition(".")
    return shorten(_WORKLOADS.get(name, name or kind).replace("_", " ") if kind in WORK_GROUPS else workload, 32)


def model_name(name: str) -> str:
    """``LeNet`` of ``lenet``."""
    return shorten(_WORKLOADS.get(name, name), 32)


def title_name(workload: str) -> str:
    """``Training LeNet``, ``Elementwise add``, ``Matrix products``: no two workloads have one."""
    if workload == "matmul.square":
        return "Matrix products"
    pattern = _TITLES.get(workload.partition(".")[0])
    return pattern.format(workload_name(workload)) if pattern else shorten(workload, 60)


def family_name(kind: str) -> str:
    return WORK_GROUPS.get(kind, heading(kind))


def settings(row: Row, without: Iterable[str] = ()) -> str:
    """``bfloat16, autocast, n = 8192``: how a case differs from others of its workload."""
    case = row["_result"].case
    words = [case.dtype] * bool(case.dtype) + [case.variant] * (case.variant not in ("", "eager"))
    words += [f"cache {case.cache}"] * (case.cache not in ("", "hot"))
    for name, value in case.params.items():
        if name not in without and value is not None:
            words.append(size_words(name, value) if name == case.size else setting(name, value))
    return ", ".join(words)


def size_words(name: str, value: Scalar) -> str:
    """``n = 8192``, ``batch = 256``."""
    return f"{shorten(name, 16)} = {size_text(float(value), name) if isinstance(value, int | float) else value}"


def warning(rows: Sequence[Row]) -> str:
    """One line where more than a third of the results are flagged; empty otherwise."""
    count = sum(flagged(row) for row in rows)
    if count <= _SHARE_FLAGGED * len(rows):
        return ""
    return f"{count} of {len(rows)} results are noisy and may be off; summary.md says why"


def drawn_hollow(row: Row, rows: Sequence[Row]) -> bool:
    """Whether its mark is to show that it is flagged: not where most are."""
    return flagged(row) and not warning(rows)
