"""What things are called in charts and summaries."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pandas as pd

from ..quantity import text
from ..schema import Scalar
from .table import BASE, records

Row = dict[str, Any]
T = TypeVar("T")
LONGEST = 40
_IMPLEMENTATIONS = {"numpy": "NumPy"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTES = ("nbytes", "bytes")


class Names:
    """Names of sources (a run's device and implementation): as short as tells them apart in this report."""

    def __init__(self, table: pd.DataFrame) -> None:
        rows = records(table[["run", "device", "implementation"]].drop_duplicates())
        self.several = len({row["run"] for row in rows}) > 1
        self.mixed = {row["device"] for row in rows if row["implementation"] == "numpy"}
        order = sorted(rows, key=lambda row: row["implementation"] == "numpy")  # stable: otherwise as met
        self.sources = list(dict.fromkeys(self.source(row) for row in order))
        self.dtypes = [dtype for dtype in table["dtype"].drop_duplicates() if dtype]

    def source(self, row: Row, prefix: str = "") -> str:
        """``cpu``, ``cuda:0``, ``cpu · NumPy``, with the run's name behind it where there are several."""
        name = str(row[f"{prefix}device"])
        implementation = row[f"{prefix}implementation"]
        if name in self.mixed and implementation:
            name += f" · {_IMPLEMENTATIONS.get(implementation, implementation)}"
        return shorten(f"{name} · {row[f'{prefix}run']}" if self.several else name)

    def baseline(self, row: Row) -> str:
        """What a speedup is measured against."""
        if row["run"] == row["baseline_run"]:
            if row["implementation"] != row["baseline_implementation"]:
                return _IMPLEMENTATIONS.get(row["baseline_implementation"], str(row["baseline_implementation"]))
            return "the CPU" if row["baseline_device"] == "cpu" else str(row["baseline_device"])
        return shorten(str(row["baseline_run"]))


def terms(row: Row) -> str:
    """``float32``, ``float32 autocast``: rows that differ in it are never summed up in one number."""
    variant = row["variant"] if row["variant"] not in (None, "eager") else ""
    cache = f"cache {row['cache']}" if row["cache"] not in (None, "hot") else ""
    return " ".join(word for word in (row["dtype"], variant, cache) if word)


def flagged(row: Row) -> bool:
    """Whether something was wrong while it, or its baseline, was measured."""
    return any(result.flags for result in (row["_result"], row.get(BASE)) if result)


def heading(name: str) -> str:
    return (name[:1].upper() + name[1:]).replace("_", " ")


def shorten(name: str, longest: int = LONGEST) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def family(workload: str) -> str:
    """``elementwise`` of ``elementwise.add``."""
    return workload.partition(".")[0]


def setting(name: str, value: Scalar) -> str:
    """A parameter's value, with its name where the value alone says nothing: ``out``, ``width=4``."""
    if isinstance(value, str):
        return shorten(value, 24)
    return shorten(f"{name}={json.dumps(value)}", 24)


def case_name(row: Row, without: Iterable[str] = ()) -> str:
    """``matmul.square bfloat16, n=1024``: a case in words, without its device."""
    case = row["_result"].case
    words = [case.dtype] * bool(case.dtype) + [case.variant] * (case.variant not in ("", "eager"))
    words += [case.regime] * (case.regime not in ("", "resident"))
    words += [f"cache {case.cache}"] * (case.cache not in ("", "hot"))
    words += [setting(name, value) for name, value in case.params.items() if name not in without]
    return " ".join([shorten(case.workload), ", ".join(words)]).strip()


def factor(value: float) -> str:
    """``12.3×``; three digits, as many as a ratio of noisy times deserves."""
    if value < 1 or value >= 1e6:
        return f"{value:.3g}×"
    return f"{float(f'{value:.3g}'):,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}×"


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
    return "bytes" if name in _BYTES else shorten(name)


def listed(values: Sequence[str], most: int = 6) -> str:
    """``a, b, c``; a long list breaks off with how many more there are."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(values[:most]) + more


def grouped(members: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """By the key, in the order met."""
    groups: dict[Any, list[T]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
