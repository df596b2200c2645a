"""Results for scripts and notebooks: tables, speedups and charts of runs, and one screen of text."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..runfile.quantities import listed
from ..runfile.runs import read_runs
from ..runfile.schema import Run
from . import words
from .columns import crossover_columns, frame, results_columns, speedup_columns
from .number import Sign
from .screen import beside
from .study import Pair, Study, grouped

if TYPE_CHECKING:
    import pandas as pd

    from .charts.page import Figure

_WIDTH = 160


class Ratio(float):
    """How many times as fast, with the ends of its interval; the limit if only a limit is known, NaN if nothing is.
    ``star`` is ``*`` if a time is noisy, and ``simulated`` is true if a model made one. As a text it is the cell of a
    table, ``≥ 3.5×* (simulated)``."""

    low: float
    high: float
    star: str
    simulated: bool
    _text: str

    def __new__(cls, pair: Pair) -> Ratio:
        """Make the ratio that is shown of a pair."""
        value, low, high = pair.drawn or (math.nan,) * 3
        ratio = super().__new__(cls, value)
        ratio.low, ratio.high, ratio.star = low, high, str(Sign.NOISY) * pair.quality.noisy
        ratio.simulated = any(side.facts.simulated for side in pair.sides)
        ratio._text = pair.ratio.mark + " (simulated)" * ratio.simulated
        return ratio

    def __str__(self) -> str:
        return self._text


class Picture:
    """A chart with the words around it: a notebook shows it, :meth:`save` writes it."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def save(self, path: str | os.PathLike[str], theme: str = "light") -> None:
        """Write a file, by its name .svg or .png, for a light or a dark page. An earlier one is replaced. Raises
        UsageError for another theme or name."""
        from ..runfile.writer import picture_format, replace
        from .charts.pictures import render
        from .charts.theme import THEMES

        if theme not in THEMES:
            raise UsageError(f"unknown theme {theme!r}: choose {' or '.join(THEMES)}")
        replace(Path(path), render(self._figure, picture_format(path), theme))

    def _repr_svg_(self) -> str:
        """The picture in a notebook: without the head of a file."""
        from .charts.pictures import render

        return render(self._figure, "svg", "light").decode().partition("<svg")[2].join(("<svg", ""))

    def __repr__(self) -> str:
        return f"<Picture: {self._figure.title}>"


class Results:
    """Results of one or more runs. Printing it shows them on a screen.

    Frames have SI base units, and ``None`` or NaN for unknown values. ``k`` chooses benchmarks as ``-k`` does.
    """

    def __init__(self, runs: Sequence[Run], k: str | None = None) -> None:
        self.runs = tuple(runs)
        self._k = k

    @classmethod
    def load(cls, *paths: str | os.PathLike[str], k: str | None = None) -> Results:
        """Read results files, journals of interrupted runs, or folders of them at any depth. Raises RunFileError for
        one that can't be trusted and UsageError for a path without any."""
        return cls([*read_runs(map(Path, paths))], k)

    @cached_property
    def study(self) -> Study:
        """The typed rows, pairs and crossovers that everything here is made of."""
        return Study(self.runs, expression=self._k)

    @property
    def df(self) -> pd.DataFrame:
        """One row per benchmark: the columns of results.csv."""
        return frame(results_columns(self.study.rows), self.study.rows)

    @property
    def speedups(self) -> pd.DataFrame:
        """One row per benchmark and other device: the columns of speedup.csv. PyTorch against NumPy without a GPU."""
        return frame(speedup_columns(self.study), self.study.pairs)

    @property
    def crossovers(self) -> pd.DataFrame:
        """One row per line of speedups, with the size from which the device is faster: the columns of crossover.csv."""
        return frame(crossover_columns(self.study), self.study.crossings)

    @property
    def speedup(self) -> Ratio | None:
        """How many times as fast as its baseline the benchmark is at its largest size, with ``.low`` and ``.high``.

        The baseline is the CPU; of several expressions on a CPU alone, the first one. ``None`` without any. Raises
        UsageError where several benchmarks are compared, naming them: choose one with ``k``.
        """
        groups = grouped(self.study.pairs, lambda p: (words.name(p.other.result), p.other.setting, p.other.source))
        if len(groups) > 1:
            names = dict.fromkeys(words.benchmark(pairs[-1].other.result) for pairs in groups.values())
            choose = f"choose one with load(…, k={next(iter(names))!r})"
            raise UsageError(f"several benchmarks are compared: {choose}: {listed(names)}")
        if self.study.pairs:
            return Ratio(max(self.study.pairs, key=lambda pair: pair.other.numbers))
        rivals = self.study.rivals
        return next((Ratio(pair) for pair in rivals if pair.base is rivals[-1].base), None)

    def chart(self, kind: str | None = None) -> Picture:
        """The picture that ``gpubench chart`` draws, which a notebook shows and :meth:`.Picture.save` keeps.

        ``kind`` is one of its ``--kind``, except estimate. By default it is of one benchmark the speedup, or else the
        time, by size; of several expressions their times side by side; else the first of a report. Raises UsageError
        where none can be made, with the reason.
        """
        from .charts.pictures import figures_of

        return Picture(figures_of(self.study, kind)[0])

    def __str__(self) -> str:
        return "\n".join(beside(self.study, _WIDTH))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The results in a notebook."""
        return f"<pre>{escape(str(self))}</pre>"
