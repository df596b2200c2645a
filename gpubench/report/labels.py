"""What things are called in charts and summaries."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pandas as pd

from ..devices.implementations import TORCH, implementation_label as implementation_label
from ..format import ratio_text, shorten, text
from ..runfile.matching import shown_name
from ..runfile.schema import Run, Scalar
from .table import IMPLAUSIBLE, records

Row = dict[str, Any]
_T = TypeVar("_T")
_NOISE = re.compile(
    r"\((R|TM|C|modelled|synthetic)\)|\([^)]*\)|\b(NVIDIA|AMD|Intel|GeForce|Tesla|Processor|CPU|GPU|Graphics)\b"
    r"|@.*$|\b\d+-Core\b|[- ](SXM\d?|PCIe|HBM\d\w*|\d+ ?GB)\b",
    re.IGNORECASE,
)
"""What a maker's name of a device has beyond the name that people use."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTES = ("nbytes", "bytes")
_SETTING = 24
"""Characters of a parameter in a table."""


class Names:
    """Names of sources (a run's device and implementation): as short as tells them apart in this report."""

    def __init__(self, table: pd.DataFrame) -> None:
        rows = records(table[["run", "device", "implementation"]].drop_duplicates())
        self.several = len({row["run"] for row in rows}) > 1
        self.mixed = {row["device"] for row in rows if library(row)}

    def source(self, row: Row, prefix: str = "") -> str:
        """``cpu``, ``cuda:0``, ``cpu · NumPy``, with the run's name behind it where there are several."""
        name = str(row[f"{prefix}device"])
        implementation = row[f"{prefix}implementation"]
        if name in self.mixed and implementation:
            name += f" · {implementation_label(implementation)}"
        return shorten(f"{name} · {row[f'{prefix}run']}" if self.several else name)

    def baseline(self, row: Row) -> str:
        """What a speedup is measured against."""
        if row["run"] == row["baseline_run"]:
            if row["implementation"] != row["baseline_implementation"]:
                return implementation_label(str(row["baseline_implementation"]))
            return "the CPU" if row["baseline_device"] == "cpu" else str(row["baseline_device"])
        return shorten(str(row["baseline_run"]))


def arithmetic(row: Row) -> str:
    """``float32``, ``float32 autocast``: rows that differ in it are never summed up in one number."""
    words = row["dtype"], row["variant"], row["cache"] and f"cache {row['cache']}"
    return " ".join(word for word in words if word not in (None, "", "eager", "cache hot"))


def flagged(row: Row) -> bool:
    """Whether something was wrong while it, or its baseline, was measured."""
    return bool(row["flags"] if "flags" in row else row["_result"].flags)  # several devices have no column of them


def noisy(row: Row) -> bool:
    """Whether its time may be far off; one that is only above its peak isn't."""
    return bool({flag.name for flag in row["_result"].flags} - {IMPLAUSIBLE})


def heading(name: str) -> str:
    """A name as the head of a column: capitalised, without underscores."""
    return (name[:1].upper() + name[1:]).replace("_", " ")


def family(workload: str) -> str:
    """``elementwise`` of ``elementwise.add``."""
    return workload.partition(".")[0]


def setting(name: str, value: Scalar) -> str:
    """A parameter's value, with its name where the value alone says nothing: ``out``, ``width=4``, ``limit=None``."""
    words = str(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value == value.strip() and any(map(str.isalnum, value)):
        return shorten(value, _SETTING)
    words = shorten(words, _SETTING - 6)
    return f"{shorten(name, _SETTING - 1 - len(words))}={words}"


def case_name(row: Row, without: Iterable[str] = ()) -> str:
    """``matmul.square bfloat16, n=1024``: a case in words, without its device."""
    case = row["_result"]
    words = [case.dtype] * bool(case.dtype) + [case.variant] * (case.variant not in ("", "eager"))
    words += [case.regime] * (case.regime not in ("", "resident"))
    words += [f"cache {case.cache}"] * (case.cache not in ("", "hot"))
    words += [setting(name, value) for name, value in case.params.items() if name not in without]
    return " ".join([shorten(shown_name(case.workload)), ", ".join(words)]).strip()


def where_measured(row: Row) -> str:
    """`` on cuda:0``; nothing where nobody knows on which."""
    return f" on {row['device']}" if row["device"] else ""


def times_text(value: float) -> str:
    """``132×``, ``8.6×``; below one ``4.2× slower``. Rounded as :func:`.format.ratio_text` does."""
    if value >= 1:
        return ratio_text(value)
    inverse = ratio_text(1 / value)
    return inverse if inverse == "1.0×" else f"{inverse} slower"


def times_range(low: float, high: float) -> str:
    """``48× to 113×``, ``2.2× to 3.3× slower``."""
    ends = times_text(low), times_text(high)
    if ends[0] != ends[1] and all(end.endswith(" slower") for end in ends):
        ends = ends[1].removesuffix(" slower"), ends[0]
    return " to ".join(dict.fromkeys(ends))


def library(row: Row, side: str = "") -> str:
    """``numpy``: what does the work where it isn't PyTorch; empty for PyTorch, and where nobody knows."""
    name = row.get(f"{side}implementation")  # the rows of scaling.csv have none
    return "" if name in (None, TORCH) else str(name)


def other_libraries(rows: Iterable[Row]) -> list[str]:
    """The libraries beside PyTorch that have done the rows' work, NumPy first."""
    return sorted({library(row) for row in rows} - {""}, key=lambda name: (name != "numpy", name))


def library_label(row: Row, side: str = "") -> str:
    """``NumPy`` where that does the work, or another library than PyTorch; else empty."""
    return implementation_label(name) if (name := library(row, side)) else ""


def library_on(row: Row, device: str) -> str:
    """``NumPy``; ``H200 · CuPy`` on an accelerator of that name; of PyTorch the ``device``."""
    if not library(row):
        return device
    accelerator = row["_run"].machine.device(row["device"]).accelerator
    return f"{device} · {library_label(row)}" if accelerator else library_label(row)


def device_label(run: Run, name: str) -> str:
    """What a person calls the device: ``NVIDIA H200``, of two equal ones ``NVIDIA H200 #0``; its name where the file
    knows no other. An unknown one is the machine, or ``unknown device`` where that has accelerators."""
    if not name and any(each.accelerator for each in run.machine.devices):
        return "unknown device"
    label = run.machine.device(name).label or (run.machine.label if name in ("cpu", "") else "")
    twins = [each for each in run.machine.devices if each.label == label]
    label = re.sub(r"\((R|TM|C)\)", "", label, flags=re.IGNORECASE)
    label = shorten(" ".join(label.split()).removesuffix(" Processor"), 60) or name
    return f"{label} #{name.partition(':')[2] or name}" if len(twins) > 1 and label != name else label


def brief_name(label: str) -> str:
    """``H200`` of ``NVIDIA H200``: the name that people use, for sentences, heads of columns and marks."""
    return " ".join(_NOISE.sub(" ", label).split()).strip(" -,") or label


def rounded_size(size: float, name: str = "") -> str:
    """A size that was estimated, to two digits: ``72``, ``34k``; below ten a whole number."""
    return size_text(max(1, round(size)) if size < 10 else float(f"{size:.2g}"), name)


def size_text(size: float, name: str = "") -> str:
    """``1024``, ``10⁷``, ``65.5k``; sizes in bytes ``1 MB``."""
    if name in _BYTES:
        return text(size, "B", 3).replace(".00", "").replace(".0 ", " ")
    power = round(math.log10(size))
    if power >= 3 and math.isclose(size, 10.0**power, rel_tol=1e-9):
        return raised(power)
    if size < 10_000:
        return f"{size:.4g}" if size == int(size) else f"{float(f'{size:.3g}'):g}"
    return text(size, "", 3).replace(".0 ", " ").replace(" ", "")


def raised(power: int) -> str:
    """``10⁻⁴``."""
    return "10" + str(power).translate(_SUPERSCRIPTS)


def size_label(name: str) -> str:
    """The size parameter's name for an axis."""
    return "bytes" if name in _BYTES else shorten(name)


def listed(values: Sequence[str], most: int = 6) -> str:
    """``a, b, c``; a long list breaks off with how many more there are."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(values[:most]) + more


def grouped(members: Iterable[_T], key: Callable[[_T], Any]) -> dict[Any, list[_T]]:
    """By the key, in the order met."""
    groups: dict[Any, list[_T]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
