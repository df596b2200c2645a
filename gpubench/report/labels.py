"""What things are called in charts and summaries."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pandas as pd

from ..format import text
from ..runfile.schema import Run, Scalar
from ..runfile.utilisation import PLAUSIBLE
from .table import BASE, records

Row = dict[str, Any]
_T = TypeVar("_T")
_LONGEST = 40
_IMPLEMENTATIONS = {"numpy": "NumPy", "torch": "PyTorch"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTES = ("nbytes", "bytes")


class Names:
    """Names of sources (a run's device and implementation): as short as tells them apart in this report."""

    def __init__(self, table: pd.DataFrame) -> None:
        rows = records(table[["run", "device", "implementation"]].drop_duplicates())
        self.several = len({row["run"] for row in rows}) > 1
        self.mixed = {row["device"] for row in rows if row["implementation"] == "numpy"}
        order = sorted(rows, key=lambda row: row["implementation"] == "numpy")  # stable: otherwise as in the table
        self.sources = list(dict.fromkeys(self.source(row) for row in order))
        self.dtypes = [dtype for dtype in table["dtype"].drop_duplicates() if dtype]

    def source(self, row: Row, prefix: str = "") -> str:
        """``cpu``, ``cuda:0``, ``cpu · NumPy``, with the run's name behind it where there are several."""
        name = str(row[f"{prefix}device"])
        implementation = row[f"{prefix}implementation"]
        if name in self.mixed and implementation:
            name += f" · {implementation_name(implementation)}"
        return shorten(f"{name} · {row[f'{prefix}run']}" if self.several else name)

    def baseline(self, row: Row) -> str:
        """What a speedup is measured against."""
        if row["run"] == row["baseline_run"]:
            if row["implementation"] != row["baseline_implementation"]:
                return implementation_name(str(row["baseline_implementation"]))
            return "the CPU" if row["baseline_device"] == "cpu" else str(row["baseline_device"])
        return shorten(str(row["baseline_run"]))


def arithmetic(row: Row) -> str:
    """``float32``, ``float32 autocast``: rows that differ in it are never summed up in one number."""
    variant = row["variant"] if row["variant"] not in (None, "eager") else ""
    cache = f"cache {row['cache']}" if row["cache"] not in (None, "hot") else ""
    return " ".join(word for word in (row["dtype"], variant, cache) if word)


def flagged(row: Row) -> bool:
    """Whether something was wrong while it, or its baseline, was measured."""
    return any(result.flags for result in (row["_result"], row.get(BASE)) if result)


def heading(name: str) -> str:
    """A name as the head of a column: capitalised, without underscores."""
    return (name[:1].upper() + name[1:]).replace("_", " ")


def shorten(name: str, longest: int = _LONGEST) -> str:
    """A name of at most ``longest`` characters."""
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
    case = row["_result"]
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


def times_text(value: float) -> str:
    """``132×``, ``8.6×``; below one ``4.2× slower``. Two digits, three from a hundred on."""
    if value < 1:
        inverse = times_text(1 / value)
        return inverse if inverse == "1.0×" else f"{inverse} slower"
    if value >= 1e6:
        return f"{value:.1e}×"
    if value >= 99.5:
        return f"{float(f'{value:.3g}'):,.0f}×"
    return f"{value:.{0 if value >= 9.95 else 1}f}×"


def times_range(low: float, high: float) -> str:
    """``48× to 113×``, ``2.2× to 3.3× slower``."""
    ends = times_text(low), times_text(high)
    if ends[0] == ends[1]:
        return ends[0]
    if all(end.endswith(" slower") for end in ends):
        return f"{ends[1].removesuffix(' slower')} to {ends[0]}"
    return " to ".join(ends)


def implementation_name(name: str) -> str:
    """``NumPy`` of ``numpy``."""
    return _IMPLEMENTATIONS.get(name, name)


def device_label(run: Run, name: str) -> str:
    """What a person calls the device: ``NVIDIA H200``; its name where the file knows no other."""
    label = run.machine.device(name).label or (run.machine.label if name == "cpu" else "")
    label = re.sub(r"\((R|TM|C)\)", "", label, flags=re.IGNORECASE)
    return shorten(" ".join(label.split()).removesuffix(" Processor"), 60) or name


def short_device(label: str) -> str:
    """``H200`` of ``NVIDIA H200``, for sentences and marks."""
    return re.sub(r"^(NVIDIA|AMD|Intel) (GeForce |Radeon |Instinct |Tesla )?", "", label) or label


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


<<<<<<< HEAD
def caption(rows: Iterable[Row], names: Names, note: str = "") -> str:
    """Devices, dtypes, threads, TF32, regime, torch and date of the rows, baselines included."""
    rows = list(rows)
    runs: dict[str, Run] = {row["run"]: row["_run"] for row in rows}
    cases = [result for row in rows for result in (row["_result"], row.get(BASE)) if result]
    devices = list(dict.fromkeys(name for case in cases for name in (case.device, *case.devices)))
    facts = [_devices(devices, runs, names)]
    if dtypes := sorted({case.dtype for case in cases if case.dtype}):
        facts.append(listed(dtypes))
    variants = sorted({case.variant for case in cases if case.variant}, reverse=True)
    if variants not in ([], ["eager"]):
        facts.append(" and ".join(variants))
    facts.append(_threads(cases))
    facts.append(_tf32([run.machine.tf32 for run in runs.values()], "tf32" in dtypes))
    if regimes := sorted({case.regime for case in cases if case.regime}):
        facts.append(" and ".join("data on the device" if regime == "resident" else regime for regime in regimes))
    torch = list(dict.fromkeys(run.machine.torch for run in runs.values() if run.machine.torch))
    facts.append(f"torch {listed(torch)}" if torch else "")
    facts.append(listed(sorted({run.date for run in runs.values() if run.date})))
    counts = sorted({len(row["_result"].times.processes) for row in rows if row["_result"].times})
    facts.append(f"{' and '.join(map(str, counts))} process{'es' if counts != [1] else ''}" if counts else "")
    if any(flagged(row) for row in rows):
        note += "Hollow: flagged while it was measured, see the summary. "
    if differing := sorted({row["differs"] for row in rows if row.get("differs")}):
        note += f"Compared although they differ: {listed(differing)}. "
    return f"{' · '.join(fact for fact in facts if fact)}. {note}".strip()


def uncertainty(rows: Iterable[Row], drawn: str) -> str:
    """A sentence: what the drawn intervals of these rows are."""
    return f"Uncertainty ({drawn}): {listed(sorted({row['uncertainty'] for row in rows}))}. "


def waited(rows: Iterable[Row]) -> str:
    """A clause where every time was read after a wait for the device."""
    return ", the wait for the device included" if all(row["_result"].times.timer in TIMERS for row in rows) else ""


=======
>>>>>>> charts
def beyond(rows: Iterable[Row]) -> str:
    """A sentence where cases exceed their ceilings, measured on a busy machine, by more than noise.

    On a machine that wasn't busy such cases are flagged themselves, or need fewer FLOPs than are counted.
    """
    above = [
        row["utilisation"]
        for row in rows
        if (row["utilisation"] or 0) > PLAUSIBLE
        and any(flag.name == "contended" for flag in row["_run"].flags)
        and not any(flag.name == "implausible" for flag in row["_result"].flags)
    ]
    if not above:
        return ""
<<<<<<< HEAD
    return f" Up to {max(above):.0%} of a peak: the peaks were measured while the machine was busy and are too low."


def _devices(devices: list[str], runs: dict[str, Run], names: Names) -> str:
    words = []
    for name, run in runs.items():
        order = [device.name for device in run.machine.devices]
        used = sorted(devices, key=lambda device: order.index(device) if device in order else len(order))
        known = [(device, run.machine.device(device).label) for device in used]
        labels = [f"{device}: {shorten(label, 60)}" for device, label in known if label] or devices
        words.append(f"{shorten(name)} — {', '.join(labels)}" if names.several else ", ".join(labels))
    return "; ".join(words[:4]) + (f" and {len(words) - 4} more runs" if len(words) > 4 else "")


def _threads(cases: list[Result]) -> str:
    """``2 CPU threads``; by implementation where they differ."""
    counts: dict[str, set[int]] = {}
    for case in cases:
        if case.threads is not None:
            counts.setdefault(case.implementation, set()).add(case.threads)
    words = {name: " and ".join(map(str, sorted(threads))) for name, threads in counts.items()}
    if len(set(words.values())) > 1:
        return "CPU threads: " + ", ".join(f"{name} {threads}" for name, threads in words.items())
    threads = next(iter(words.values()), "")
    return f"{threads} CPU thread{'s' if threads != '1' else ''}" if threads else "threads unknown"


def _tf32(states: list[bool | None], named: bool) -> str:
    words = {True: "on", False: "off", None: "unknown"}
    state = " and ".join(dict.fromkeys(words[state] for state in states))
    return f"TF32 {state}" + (" but for dtype tf32" if named and state != "on" else "")
=======
    return f" Up to {max(above):.0%} of a ceiling: the ceilings of this run are too low, see the flags."
>>>>>>> charts
