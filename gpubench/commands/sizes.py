"""``--size n=1e3..1e7`` of ``gpubench time``: the sizes at which the GPU's advantage begins are looked for and kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..runfile.thresholds import keep_threshold
from ..runfile.version import __version__

if TYPE_CHECKING:
    from ..report.results import Results
    from ..report.study import Pair
    from ..statistics.crossing import Crossing, Point


@dataclass(frozen=True, slots=True)
class Span:
    """A size and the range in which the crossing is looked for."""

    name: str
    first: int
    last: int

    @property
    def text(self) -> str:
        """The sizes to begin with, as ``--size`` takes them."""
        from ..statistics.crossing import grid  # here and below, as it needs NumPy and SciPy

        return f"{self.name}={','.join(map(str, grid(self.first, self.last)))}"


def span_of(sizes: Sequence[str], processes: int) -> Span | None:
    """Return the range among the sizes. Raises UsageError for one that is no range of whole numbers, or not alone."""
    ranged = [text for text in sizes if ".." in text]
    if not ranged:
        return None
    name, _, ends = ranged[0].partition("=")
    try:
        first, last = (int(float(end)) for end in ends.split(".."))
    except (ValueError, OverflowError):
        first, last = 0, 0
    if not 0 < first < last:
        raise UsageError(f"size {ranged[0]!r}: write {name or 'n'}=1e3..1e7 for a range of whole numbers")
    if len(sizes) > 1 or processes > 1:
        raise UsageError("a range of sizes stands alone, and is measured by one process")
    return Span(name.strip(), first, last)


def further_size(results: Results) -> int | None:
    """Return the size to measure next; None once it is known from which size on the GPU is faster, or there is none."""
    from ..statistics.crossing import next_size

    points = [*map(_point, _pairs(results))]
    return next_size(points) if points else None


def said(results: Results, span: Span) -> str:
    """Return from which size the GPU is faster, in a sentence; empty without a GPU."""
    pairs = _pairs(results)
    if not pairs:
        return ""
    crossing, name, gpu = _crossing(pairs), span.name, results.study.names.subject(pairs[-1])
    if crossing.answer == "from":
        low, size, high = (f"{_rounded(each):,}" for each in (crossing.low, crossing.size, crossing.high))
        return f"{gpu} is faster from {name} = {size} ({low} to {high}), by {len(pairs)} sizes."
    if crossing.answer == "unsure":
        return f"It is unsure from which {name} {gpu} is faster, after {len(pairs)} sizes."
    return f"{gpu} is {crossing.answer} faster, from {name} = {crossing.low:,.0f} to {crossing.high:,.0f}."


def keep(results: Results, path: str) -> str:
    """Write the size into a file for :func:`gpubench.threshold`, and return a sentence about it. Raises UsageError
    where the file or the hardware doesn't allow it."""
    pairs = _pairs(results)
    if not pairs:
        raise UsageError(f"{path} isn't written: no GPU was measured")
    crossing, first = _crossing(pairs), pairs[0].other
    name, is_known = first.result.workload.partition(".")[2], crossing.answer == "from"
    size = _rounded(crossing.size) if is_known else crossing.answer
    more = {"low": _rounded(crossing.low), "high": _rounded(crossing.high)} if is_known else {}
    try:
        where = keep_threshold(path, name, size, **more, torch=first.run.machine.torch, gpubench=__version__)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} isn't written: {error}") from None
    return f'{path}: "{name}": {size} for {where}; elsewhere the default'


def _pairs(results: Results) -> list[Pair]:
    """Return the pairs of the first expression on the first GPU, by size."""
    pairs = sorted(results.study.device_pairs, key=lambda pair: pair.other.numbers)
    sides = [(pair.other.result.device, pair.other.result.workload) for pair in pairs]
    return [pair for pair, side in zip(pairs, sides, strict=True) if side == min(sides)]


def _crossing(pairs: Sequence[Pair]) -> Crossing:
    from ..statistics.crossing import crossing

    return crossing([*map(_point, pairs)])


def _point(pair: Pair) -> Point:
    from ..statistics.crossing import Point

    value, low, high = pair.values
    error = (math.log(high) - math.log(low)) / 2 if 0 < low < high < math.inf else 1.0
    return Point(float(pair.other.numbers[0]), math.log(value), max(error, 0.005))


def _rounded(size: float) -> int:
    """Return a size with two digits."""
    return int(float(f"{size:.2g}"))
