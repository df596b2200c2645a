"""Roofline charts as plain data: what each device can do at best, and where its cases lie under that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..quantity import bytes_text, text
from ..roofline import Ceilings, compute_dtype
from .labels import Names, Row, family, flagged, shorten

FLOPS, BYTES, INTENSITY = "FLOP", "B", "FLOP/B"
FASTER = 1.1
"""A level whose best is less than this above a larger one's has no ceiling of its own: the difference is noise."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A case; ``label`` is empty for all but the best of its workload."""

    x: float
    y: float
    dtype: str
    family: str
    label: str = ""
    flagged: bool = False


@dataclass(frozen=True, slots=True)
class Roof:
    """A ceiling: straight lines between ``points`` in log-log, and beyond them on with that ``slope``.

    ``dtype`` is empty for a ceiling of bandwidth or launching.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    slope: int
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class RoofPanel:
    title: str
    x_unit: str
    y_unit: str
    x_label: str
    marks: tuple[Mark, ...]
    roofs: tuple[Roof, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """``dtypes`` and ``families`` are those of its marks and roofs, with the number of their colour and marker."""

    panels: tuple[RoofPanel, ...]
    dtypes: tuple[tuple[str, int], ...]
    families: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...] = ()


def roofline(rows: list[Row], ceilings: Ceilings, names: Names) -> Roofline | None:
    """Of one device's cases; None where none declares its work or nothing was measured to hold them against."""
    both = [row for row in rows if row["_result"].work.flops and row["_result"].work.bytes]
    moving = [row for row in rows if (work := row["_result"].work).bytes and (work.flops or 0.0) < work.bytes]
    computing = [row for row in rows if (work := row["_result"].work).flops and work.flops >= (work.bytes or 0.0)]
    flat = [
        Roof(f"{shorten(dtype, 16)} matmul {text(rate, 'FLOP/s')}", ((1.0, rate),), 0, dtype)
        for dtype, rate in ceilings.throughput.items()
    ]
    launch = []
    if ceilings.launch_floor_s:
        words = f"launch floor {text(ceilings.launch_floor_s, 's')}"
        launch = [Roof(words, ((1.0, 1 / ceilings.launch_floor_s),), 1)]
    panels = (
        RoofPanel(
            "Throughput against arithmetic intensity",
            INTENSITY,
            "FLOP/s",
            "FLOP per byte",
            _marks(both, INTENSITY, FLOPS),
            (*_slopes(ceilings), *flat),
        ),
        RoofPanel(
            "Bandwidth against bytes: work of less than one FLOP per byte",
            BYTES,
            "B/s",
            "bytes per call",
            _marks(moving, BYTES, BYTES),
            (*_patterns(ceilings), *launch),
        ),
        RoofPanel(
            "Throughput against FLOP: all other work",
            FLOPS,
            "FLOP/s",
            "FLOP per call",
            _marks(computing, FLOPS, FLOPS),
            (*flat, *launch),
        ),
    )
    shown = tuple(panel for panel in panels if panel.marks and panel.roofs)
    if not shown:
        return None
    dtypes = {mark.dtype for panel in shown for mark in panel.marks} | set(ceilings.throughput)
    order = [*names.dtypes, *sorted(dtypes - set(names.dtypes))]
    known = sorted({family(row["workload"]) for row in rows})
    used = {mark.family for panel in shown for mark in panel.marks}
    return Roofline(
        shown,
        tuple((dtype, i) for i, dtype in enumerate(order) if dtype in dtypes),
        tuple((name, i) for i, name in enumerate(known) if name in used),
        tuple(rows),
    )


def _slopes(ceilings: Ceilings) -> list[Roof]:
    """The best access pattern of each level that is faster than all larger ones, memory first.

    A small cache that reads slower than a large one shows what a call costs and not what the cache can do.
    """
    found = []
    highest = 0.0
    for level in dict.fromkeys(entry.level for entry in sorted(ceilings.bandwidth, key=lambda e: -e.footprint_bytes)):
        best = max((e for e in ceilings.bandwidth if e.level == level), key=lambda e: e.byte_per_s)
        if best.byte_per_s > FASTER * highest and not level.endswith("+"):  # l3+ is partly cache, partly memory
            words = f"{shorten(level or 'memory', 16)}, {shorten(best.pattern, 16)} {text(best.byte_per_s, 'B/s')}"
            found.append(Roof(words, ((1.0, best.byte_per_s),), 1))
        highest = max(highest, best.byte_per_s)
    return found


def _patterns(ceilings: Ceilings) -> list[Roof]:
    """Each access pattern over the footprints it was measured at: what a large one reached, a small one can."""
    found = []
    for pattern in dict.fromkeys(entry.pattern for entry in ceilings.bandwidth):
        points: list[tuple[float, float]] = []
        highest = 0.0
        own = [entry for entry in ceilings.bandwidth if entry.pattern == pattern]
        for entry in sorted(own, key=lambda entry: -entry.footprint_bytes):
            highest = max(highest, entry.byte_per_s)
            points.insert(0, (entry.footprint_bytes, highest))
        words = f"{shorten(pattern, 16)} {text(points[-1][1], 'B/s')} at {bytes_text(points[-1][0])}"
        found.append(Roof(words, tuple(points), 0))
    return found


def _marks(rows: Iterable[Row], x: str, y: str) -> tuple[Mark, ...]:
    best: dict[str, float] = {}
    placed = []
    for row in rows:
        work = row["_result"].work
        amount = work.flops if y == FLOPS else work.bytes
        along = work.flops / work.bytes if x == INTENSITY else amount
        height = amount / row["median_s"]
        best[row["workload"]] = max(best.get(row["workload"], 0.0), height)
        placed.append((row, along, height))
    marks = []
    for row, along, height in placed:
        workload = row["workload"]
        notable = best[workload] == height
        if notable:
            best[workload] = -1.0  # of equals the first
        dtype = compute_dtype(row["dtype"] or "", row["variant"] or "")
        label = shorten(workload.partition(".")[2] or workload, 24) if notable else ""
        marks.append(Mark(along, height, dtype, family(workload), label, flagged(row)))
    return tuple(marks)
