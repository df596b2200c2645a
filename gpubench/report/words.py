"""Names of benchmarks, settings, devices and ways: one name for one thing, on every screen, page and picture."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from statistics import mode

from msgspec import structs

from ..runfile.facts import threads_available
from ..runfile.matching import shown_name
from ..runfile.quality import FORM, LAYOUT, Basis, library_label
from ..runfile.quantities import counted, listed, shared_place, shorten, shorten_apart
from ..runfile.schema import Case, DeviceFacts, Run, Scalar
from .number import power_of_ten, raised
from .pairs import Pair
from .rows import Measured, Row, Source, grouped

MODELLED = "Times of the {} come from a model, not from hardware"
OWN = "Own benchmarks"
"""The heading of the user's benchmarks."""
_VARIANTS = {"compile": "compiled"}
_NOISE = re.compile(
    r"\([^)]*\)|\b(NVIDIA|AMD|Intel|GeForce|Tesla|Processor|CPU|GPU|Graphics)\b"
    r"|@.*$|\b\d+-Core\b|[- ](SXM\d?|PCIe|HBM\d\w*|\d+ ?GB)\b",
    re.IGNORECASE,
)
"""The parts of a maker's name of a device that people leave out."""
_LONGEST_VALUE, _LONGEST_DEVICE, _LONGEST_RUN = 24, 28, 24
_TOGETHER = re.compile(r"(?<=\S) (?=[^\w\s] )|(?<=[^\w\s,;:)·]) (?=\d)|(?<=\d) (?=[^\W\d])")
"""Spaces beside a lone sign, and between a number and its unit."""


def together(text: str) -> str:
    """The text with no-break spaces where no line may end."""
    return _TOGETHER.sub("\u00a0", text)


def name(case: Case) -> str:
    """``ResNet-50``, ``a @ b``: a workload, whatever its setting."""
    return shorten(case.title or shown_name(case.workload))


def name_apart(rows: Iterable[Row]) -> list[Row]:
    """The rows, with titles that differ: by the names that -k takes where workloads have one title, where names are too
    long to show by the shortened name, and by a number for benchmarks of a workload that would still have one label."""
    every = list(rows)
    titles = {row.result.workload: row.result.title or shown_name(row.result.workload) for row in every}
    counts = Counter(titles.values())
    place = shared_place({row.result.workload for row in every if not row.result.implementation})
    full = {
        workload: (title if counts[title] < 2 else shown_name(workload)).removeprefix(place)
        for workload, title in titles.items()
    }
    short = shorten_apart(full.values())
    labels = grouped(range(len(every)), lambda at: (every[at].result.workload, setting(every[at].result)))
    for (workload, _), alike in labels.items():
        ids = {name: i for i, name in enumerate(dict.fromkeys(every[at].result.id for at in alike), 1)}
        for row, at in ((every[at], at) for at in alike):
            title = short[full[workload]]
            if len(ids) > 1:
                title = f"{shorten(title, 36)} #{ids[row.result.id]}"
            if title != name(row.result):
                every[at] = replace(row, result=structs.replace(row.result, title=title))
    return every


def setting(case: Case, without: Collection[str | None] = ()) -> str:
    """``float32, out, n=4096``: all that tells it from others of its workload; each word can be typed after ``-k``.
    ``without`` names the parts that stand elsewhere: parameters, ``dtype``, ``variant``."""
    return ", ".join(settings(case, without))


def settings(case: Case, without: Collection[str | None] = ()) -> list[str]:
    """Return the words of :func:`setting` as a list."""
    variant = case.variant * (case.variant != "eager" and "variant" not in without)
    words = case.dtype * ("dtype" not in without), variant, f"cache {case.cache}" * (case.cache not in ("", "hot"))
    return [*filter(None, words), *(parameter(key, v) for key, v in case.params.items() if key not in without)]


def benchmark(case: Case) -> str:
    """``ResNet-50 float32, batch=1``: a benchmark, without its device."""
    return f"{name(case)} {setting(case)}".strip()


def parameter(name: str, value: Scalar) -> str:
    """A parameter's value, with its name where the value alone isn't clear: ``out``, ``n=10⁷``, ``limit=None``."""
    if isinstance(value, str) and value == value.strip() and any(map(str.isalnum, value)):
        return shorten(value, _LONGEST_VALUE)
    if isinstance(value, int) and not isinstance(value, bool) and (power := power_of_ten(value)):
        words = raised(power)
    else:
        words = str(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
    words = shorten(words, _LONGEST_VALUE - 6)
    return f"{shorten(name, _LONGEST_VALUE - 1 - len(words))}={words}"


def size(row: Row) -> str:
    """``n=4096``; empty where it has no size."""
    return "" if row.size_name is None or row.size is None else parameter(row.size_name, row.size)


def unchecked(row: Row) -> str:
    """``(not checked)`` for a user's benchmark if its result wasn't compared with a reference."""
    check = row.result.check
    return "(not checked)" if row.own and check and check.status != "passed" else ""


class Names:
    """The names of the report's devices: the shortest that are unambiguous."""

    def __init__(self, rows: Iterable[Row]) -> None:
        by_source = grouped(rows, lambda row: row.source)
        plain = {source: _name_of(members) for source, members in by_source.items()}
        gpus = [source for source, members in by_source.items() if members[0].on_accelerator]
        self.sources = sorted(plain, key=lambda source: (source not in gpus, source.library != ""))
        self.accelerators = [source for source in self.sources if source in gpus]
        self._names: dict[Source, str] = {}
        self._short: dict[str, str] = {}
        runs = shorten_apart((source.run for source in plain), _LONGEST_RUN)
        for source, (short, threads) in plain.items():
            rivals = {other.run for other in plain if plain[other] == (short, threads) and other != source}
            apart = f" #{source.device.partition(':')[2] or source.device}" * (source.run in rivals)
            apart += f" · {runs[source.run]}" * bool(rivals - {source.run})
            self._names[source] = f"{short}{threads}{apart}"
            self._short[self._names[source]] = f"{short}{apart}"

    def of(self, row: Row) -> str:
        """``H200``; ``Xeon, 2 threads``; ``NumPy``."""
        return self._names.get(row.source, row.result.device)

    def short(self, name: str) -> str:
        """The same name without its number of threads, unless the CPU took fewer than it has."""
        return self._short.get(name, name)

    def order(self, row: Row) -> int:
        """Return its position among the report's devices: GPUs, CPUs, other libraries."""
        return self.sources.index(row.source)

    def subject(self, pair: Pair) -> str:
        """``H200``; ``PyTorch`` if libraries are compared on one device."""
        library = library_label(pair.other.result.implementation)
        return library if pair.within_device else self.short(self.of(pair.other))

    def baseline(self, pairs: Sequence[Pair]) -> str:
        """Return the name of the baseline of these pairs."""
        names = dict.fromkeys(self.of(pair.base) for pair in pairs)
        if len(names) == 1:
            return next(iter(names))
        if all(pair.within_run for pair in pairs):
            cpus = all(pair.base.result.device == "cpu" for pair in pairs)
            return "the CPU of the same machine" if cpus else "the baseline"
        runs = {pair.base.run_name for pair in pairs}
        return shorten(runs.pop()) if len(runs) == 1 else "the baseline"


def _name_of(rows: Sequence[Row]) -> tuple[str, str]:
    """Return a device's name, and the number of threads to put behind it if all that the CPU has were used."""
    row, device = rows[0], rows[0].run.machine.device(rows[0].source.device)
    if not device.name:
        return "unknown device", ""
    label = " ".join(_NOISE.sub(" ", device.label).split()).strip(" -,")
    label = label if any(map(str.isalpha, label)) else device.label
    name = shorten(label or ("CPU" if device.name == "cpu" else device.name), _LONGEST_DEVICE)
    name += " (simulated)" * device.simulated
    if row.library:
        library = library_label(row.library)
        return (f"{name} · {library}" if row.on_accelerator else library), ""
    used = [each.result.threads for each in rows if isinstance(each, Measured) and each.result.threads]
    threads = mode(used) if used else row.run.machine.threads
    if not threads or row.on_accelerator:
        return name, ""
    if available := threads_available(row.run):
        return f"{name}, {threads} of {available} threads", ""
    return name, f", {counted(threads, 'thread')}"


def device_label(run: Run, name: str) -> str:
    """The maker's name of the device: ``NVIDIA H200``, of two equal ones ``NVIDIA H200 #0``; its name where the file
    knows no other. One that isn't recorded is the machine if it has no accelerator, else ``unknown device``."""
    if not name and any(each.accelerator for each in run.machine.devices):
        return "unknown device"
    label = run.machine.device(name).label or (run.machine.label if name in ("cpu", "") else "")
    twins = [each for each in run.machine.devices if each.label == label]
    label = re.sub(r"\((R|TM|C)\)", "", label, flags=re.IGNORECASE)
    label = shorten(" ".join(label.split()).removesuffix(" Processor"), 60) or name
    return f"{label} #{name.partition(':')[2] or name}" if len(twins) > 1 and label != name else label


def machine(run: Run) -> str:
    """The machine of a run: devices, threads, the version of PyTorch."""
    threads = f", {counted(run.machine.threads, 'thread')}" if run.machine.threads else ""
    if available := threads_available(run):
        threads = f", {run.machine.threads} of {available} threads (no fair CPU)"
    parts = [device_label(run, device.name) + threads * (device.name == "cpu") for device in run.machine.devices]
    return " · ".join([*parts, *([f"PyTorch {run.machine.torch.partition('+')[0]}"] if run.machine.torch else [])])


def simulated(devices: Iterable[DeviceFacts]) -> str:
    """A warning of times from a model; empty if all devices are hardware."""
    names = sorted({device.label or device.name for device in devices if device.simulated})
    return MODELLED.format(listed(names)) * bool(names)


def uncertainty(ranges: Iterable[Basis | None]) -> str:
    """The kinds of the ranges of several speedups: ``95% interval, 2 or 3 processes``."""
    counts: dict[str, set[int]] = {}
    for basis in filter(None, ranges):
        counts.setdefault(basis.kind, set()).update(basis.processes)
    return listed(f"{kind}, {' or '.join(map(str, sorted(several)))} processes" if several else kind
                  for kind, several in sorted(counts.items()))  # fmt: skip


def way(pair: Pair) -> str:
    """``NumPy``: the fastest way of the CPU, if it isn't the way of the other side; by its library and the
    differences of the two."""
    if pair.fastest_way is None:
        return ""

    def facts(row: Measured) -> dict[str, str]:
        case = row.result
        terms = {"library": library_label(case.implementation)}
        terms |= {"variant": _VARIANTS.get(case.variant, case.variant), "dtype": case.dtype}
        terms |= {FORM: str(case.params[FORM])} if case.params.get(FORM) is not None else {}
        return terms | ({"layout": "channels last"} if case.kind and case.workload.endswith(LAYOUT) else {})

    best, other = facts(pair.fastest_way), facts(pair.other if pair.base.on_accelerator else pair.base)
    names = [name for name in best | other if name == "library" or best.get(name) != other.get(name)]
    return ", ".join(filter(None, (best.get(name, "") for name in names)))


def ways(pairs: Iterable[Pair]) -> list[str]:
    """Return the ways of several pairs, each once."""
    return sorted({way(pair) for pair in pairs} - {""})
