"""What was measured, for scripts and notebooks: tables, speedups and plots of results files, and one screen of text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..devices.implementations import implementation_label
from ..errors import UsageError
from ..format import aligned, counted, seconds_text, shorten, text
from ..runfile import folder, reader
from ..runfile.matching import shown_name
from ..runfile.schema import OK, Result, Run
from . import judgement, labels, sweep
from .answer import SINGLE_PROCESS, answer, crossings_by_pair, warnings
from .findings import machine_line
from .judgement import crossover_table, crossover_text, peak_text
from .labels import Names, Row, arithmetic, brief_name, device_label, grouped, listed, times_range, times_text
from .speedup import on_accelerator, pair, pair_or_libraries, speedup_of, times_and_ratio
from .table import BASE, CROSSING, HIDDEN, LINE, records, results_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .charts.page import Figure

PLOT_KINDS = ("speedup", "time", "rate")
_CHARTS = ("expressions", "speedup", "time")
_FIRST_CALL, _FIRST_CALL_S = 10.0, 1e-3
"""A first call is worth a line where it takes so many times a later one, and so many seconds."""
_WIDTH, _MOST_ROWS, _MOST_LINES = 200, 40, 4
_ONE_PROCESS = "± is half the interquartile range of one process; --processes 3 gives a 95% confidence interval."
_INTERVAL = "± is half the 95% confidence interval."
_NO_GPU = "No GPU was measured; gpubench env says why."
_HIDDEN = {*HIDDEN, BASE, LINE, CROSSING}


class Picture:
    """A chart with the words around it: a notebook shows it, :meth:`save` writes it."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, whose name ends in .svg or .png. An earlier one is replaced."""
        from ..runfile.writer import replace

        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise UsageError(f"{path}: a picture's name ends in .svg or .png")
        replace(path, self._content(path.suffix[1:]))

    def _content(self, suffix: str) -> bytes:
        from .charts.pictures import render

        (content,) = render([self._figure], [suffix], ["light"]).values()
        return content

    def _repr_svg_(self) -> str:
        """What a notebook shows: without the head of a file."""
        return self._content("svg").decode().partition("<svg")[2].join(("<svg", ""))

    def __repr__(self) -> str:
        return f"<Picture: {self._figure.title}>"


class Results:
    """Results of one or more runs. Printing it shows them on a screen; a notebook shows a table.

    Frames have SI base units, and ``None`` or NaN for what is unknown.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = tuple(runs)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> Results:
        """Read results files, or folders of them at any depth. Raises RunFileError for one that can't be trusted and
        UsageError for a folder without any."""
        runs: dict[bytes, Run] = {}
        for path in map(Path, paths):
            for run in folder.runs(path, reader.read) if path.is_dir() else [reader.read(path)]:
                runs.setdefault(folder.identity(run.path), run)
        return cls(list(runs.values()))

    @cached_property
    def table(self) -> pd.DataFrame:
        """:attr:`df`, and the objects that its rows were made from."""
        return results_table(self.runs)

    @cached_property
    def _pairs(self) -> pd.DataFrame:
        return pair_or_libraries(self.table, pair(self.table)).table

    @property
    def df(self) -> pd.DataFrame:
        """One row per benchmark: the columns of results.csv."""
        return _shown(self.table)

    @property
    def speedups(self) -> pd.DataFrame:
        """One row per benchmark and other device: the columns of speedup.csv. PyTorch against NumPy without a GPU."""
        return _shown(self._pairs)

    @property
    def speedup(self) -> float | None:
        """How many times as fast as its baseline the first compared benchmark is at its largest size.

        The baseline is the CPU; of several expressions on a CPU alone, the first one. ``None`` without any.
        """
        rows = records(self._pairs)
        if rows:
            first = [
                row for row in rows if (row["workload"], row["device"]) == (rows[0]["workload"], rows[0]["device"])
            ]
            return float(max(first, key=_size_key)["speedup"])
        groups = _groups(self._measured)
        ratios = [ratio for rows in groups[-1:] for row in rows[1:2] if (ratio := _ratio(rows[0], row))]
        return ratios[0][0] if ratios else None

    @property
    def machines(self) -> pd.DataFrame:
        """One row per device of each run."""
        runs = dict(zip(self.table["run"], self.table["_run"], strict=True))
        rows = [
            {"run": name, "machine": run.machine.label, "device": device.name}
            | {"device_name": device_label(run, device.name), "torch": run.machine.torch}
            | {"threads": run.machine.threads, "date": run.date, "preset": run.preset}
            for name, run in runs.items()
            for device in run.machine.devices
        ]
        return pd.DataFrame(rows)

    @cached_property
    def _measured(self) -> list[Row]:
        return [row for row in records(self.table) if row["_result"].times]

    def plot(self, kind: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw ``speedup``, ``time`` or ``rate`` over the size, a line per benchmark and device, and return the axes.

        ``kind`` is by default the speedup, or the time where nothing is compared. Without ``ax`` pyplot makes one.
        """
        if kind not in (None, *PLOT_KINDS):
            raise UsageError(f"unknown kind of plot {kind!r}: choose from {', '.join(PLOT_KINDS)}")
        kind = kind or ("time" if self._pairs.empty else "speedup")
        rows = records(self._pairs) if kind == "speedup" else self._measured
        lines = [
            (swept, line) for swept in sweep.sweeps(rows, _MEASURES[kind], Names(self.table))[0] for line in swept.lines
        ]
        if not lines:
            raise UsageError(f"no {kind} over a size: that needs several sizes of a benchmark")
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots()[1]
        _draw(ax, kind, lines)
        if simulated := {name for run in self.runs for device in run.machine.devices if device.simulated
                         for name in [device.label or device.name]}:  # fmt: skip
            ax.set_title(f"{', '.join(sorted(simulated))}: times of a model, not of hardware", fontsize="medium")
        if kind == "speedup":
            ax.axhline(1.0, color="grey", linewidth=0.8)
        return ax

    def chart(self, kind: str | None = None) -> Picture:
        """The picture that ``--chart`` draws, which a notebook shows and :meth:`Picture.save` keeps.

        ``kind`` is one of ``gpubench chart --kind``; by default the first of expressions side by side, speedup and
        time that can be made. Raises UsageError where none can: a picture takes three sizes.
        """
        from .charts.pictures import figures_of

        for each in (kind,) if kind else _CHARTS:
            try:
                return Picture(figures_of(self.table, each, {})[0])
            except UsageError as error:
                reason = error
        raise reason if kind else UsageError("no picture: it takes three values over a size")

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        head, cells, foot = self._parts()
        if not cells:
            return f"<pre>{escape(str(self))}</pre>"
        header, *body = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in _tagged(cells))
        rows = "".join(f"<tr>{row}</tr>" for row in body)
        before, after = ("".join(f"<div>{escape(line)}</div>" for line in lines) for lines in (head, foot))
        return f"{before}<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>{after}"

    def _lines(self) -> list[str]:
        head, cells, foot = self._parts()
        return [*head, "", *(aligned(cells, _WIDTH) if cells else []), *([""] if cells and foot else []), *foot]

    def _parts(self) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
        """Lines before the table, its cells with their heading first, and lines after it."""
        head = [machine_line(run) for run in self.runs[:_MOST_LINES]]
        head += [f"and {len(self.runs) - _MOST_LINES} more runs"] * (len(self.runs) > _MOST_LINES)
        notes = [f"WARNING: {line}" for line in warnings(self._measured, self.runs) if line != SINGLE_PROCESS]
        failed = _failures(result for run in self.runs for result in run.results)
        if len(self.runs) > 1 or len(self._measured) > _MOST_ROWS:
            tables = self.table, self._pairs, crossover_table(self._pairs, Names(self.table))
            what = f"{counted(len(self._measured), 'benchmark')}: see .df, .speedups, .machines and .plot()"
            return head, [], [answer(*tables, self.runs).sentence, *notes, *failed, what]
        if not self._measured:
            return head, [], [*failed, *(["Nothing was measured."] if not failed else [])]
        return [*head, *notes], _cells(self._measured, records(self._pairs)), [*self._foot(), *failed]

    def _foot(self) -> list[str]:
        """The answer in a sentence, then what the numbers mean."""
        rows = self._measured
        pairs, crossings = records(self._pairs), crossings_by_pair(crossover_table(self._pairs, Names(self.table)))
        swept = {id(row["_result"]) for crossing in crossings.values() for row in crossing[LINE].rows}
        lines = [_crossing_sentence(crossing) for crossing in crossings.values()]
        lines += [_single_sentence(row) for row in pairs if id(row["_result"]) not in swept]
        lines += _against_first(rows)
        lines += _launch_bound(rows)
        lines += _first_calls(rows)
        if not any(map(on_accelerator, rows)):
            lines.append(_NO_GPU)
        unchecked = {c.reason for row in rows if (c := row["_result"].check) and c.status != "passed" and c.reason}
        lines += [f"Not verified: {reason}." for reason in sorted(unchecked)]
        flags = {flag.name: flag.seen for row in rows for flag in row["_result"].flags}
        lines += [f"* {name}: {seen}" for name, seen in sorted(flags.items())]
        several = any(len(row["_result"].times.processes) > 1 for row in rows)
        return [*lines, _INTERVAL if several else _ONE_PROCESS]


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    return table[[column for column in table.columns if column not in _HIDDEN]].infer_objects()


def _rate(row: Row) -> tuple[float, float, float] | None:
    rate = sweep.rate_of(row)
    return rate.measure(row) if rate else None


_MEASURES: Mapping[str, sweep.Measure] = {"speedup": speedup_of, "time": sweep.time_of, "rate": _rate}


def _draw(ax: Axes, kind: str, lines: Sequence[tuple[sweep.Sweep, sweep.Line]]) -> None:
    several = len({swept.workload for swept, _ in lines}) > 1
    for swept, line in lines:
        words = [swept.workload if several else "", *(str(value) for value in line.terms.values() if value)]
        x, y = [point.x for point in line.points], [point.y for point in line.points]
        ends = [[max(0.0, p.y - p.low) for p in line.points], [max(0.0, p.high - p.y) for p in line.points]]
        ax.errorbar(x, y, yerr=ends, marker="o", capsize=2, label=", ".join(filter(None, words)))
    rate = sweep.rate_of(lines[0][1].row)
    titles = {"speedup": "speedup", "time": "time per call (s)", "rate": rate.unit if rate else "rate"}
    ax.set(xscale="log", yscale="log", xlabel=lines[0][0].size, ylabel=titles[kind])
    ax.legend()


# The table ------------------------------------------------------------------------------------------------------------


def _source(row: Row) -> tuple[str, str]:
    return row["device"], labels.library(row)


def _size_key(row: Row) -> tuple[float, ...]:
    return tuple(value for value in row["_result"].params.values() if isinstance(value, int | float))


def _setting(row: Row) -> tuple[Any, ...]:
    case = row["_result"].case
    return case.dtype, case.variant, case.cache, tuple(case.params.items())


def _groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Different workloads in one setting on one device, by size."""
    groups = grouped(sorted(rows, key=_size_key), lambda row: (_setting(row), _source(row)))
    return [members for members in groups.values() if len(members) > 1]


def _cells(rows: list[Row], pairs: list[Row]) -> list[tuple[str, ...]]:
    """A row for each benchmark and size: its time on the CPU, in NumPy and on each accelerator, and what they say."""
    sources = sorted({_source(row) for row in rows}, key=lambda source: (source[0] != "cpu", source))
    several = sum(source[0] != "cpu" for source in sources) > 1
    names = {source: _source_name(next(row for row in rows if _source(row) == source)) for source in sources}
    by_pair = {(id(row["_result"])): row for row in pairs}
    order = list(dict.fromkeys(row["workload"] for row in rows))
    body = grouped(
        sorted(rows, key=lambda row: (_size_key(row), order.index(row["workload"]))),
        lambda row: (row["workload"], _setting(row)),
    )
    columns: dict[str, list[str]] = {"": [_name(members[0], rows) for members in body.values()]}
    for source in sources:
        at = [next((row for row in members if _source(row) == source), None) for members in body.values()]
        columns[names[source]] = [_time(row) if row else "" for row in at]
        compared = [by_pair.get(id(row["_result"])) if row else None for row in at]
        suffix = f" {names[source]}" if several else ""
        if any(compared):
            columns[f"speedup{suffix}"] = [judgement.speedup_words(row) if row else "" for row in compared]
        if any(row and row["one_shot_speedup"] is not None for row in compared):
            columns[f"with copies{suffix}"] = [judgement.copies_text(row) if row else "" for row in compared]
        if source[0] != "cpu" or source == sources[-1] == ("cpu", ""):
            columns[f"throughput{suffix}"] = [_throughput(row) for row in at]
            columns[f"% of peak{suffix}"] = [peak_text(row["utilisation"]) if row else "" for row in at]
    kept = {name: cells for name, cells in columns.items() if any(cell not in ("", "—") for cell in cells)}
    return [tuple(kept), *zip(*kept.values(), strict=True)]


def _source_name(row: Row) -> str:
    name = "CPU" if row["device"] == "cpu" else brief_name(device_label(row["_run"], row["device"]))
    return labels.library_on(row, name)


def _name(row: Row, rows: Sequence[Row]) -> str:
    """What tells the row from the others: ``a @ b  bfloat16  n=256``; the workload where nothing else does."""
    case = row["_result"].case
    words = [shown_name(row["workload"])] if len({each["workload"] for each in rows}) > 1 else []
    words += [case.dtype] if len({each["_result"].dtype for each in rows}) > 1 else []
    words += [case.variant] if len({each["_result"].variant for each in rows}) > 1 else []
    words += [case.cache] if len({each["_result"].cache for each in rows}) > 1 else []
    words += [f"{name}={value}" for name, value in case.params.items()]
    return "  ".join(words) or shown_name(row["workload"])


def _time(row: Row) -> str:
    return f"{seconds_text(row['_result'].times.median_s)}{'*' * bool(row['_result'].flags)}{_precision(row)}"


def _precision(row: Row) -> str:
    """`` ±2%``: half the interval of several processes, else half the interquartile range."""
    times, width = row["_result"].times, row["iqr_s"]
    if row["low_s"] is not None and row["high_s"] is not None:
        width = row["high_s"] - row["low_s"]
    if width is None:
        return ""
    share = width / 2 / times.median_s
    return " ±<1%" if share < 0.01 else f" ±{share:.0%}" if share <= 1 else " too noisy"


def _throughput(row: Row | None) -> str:
    rate = sweep.rate_of(row) if row else None
    values = rate.measure(row) if row and rate else None
    return text(values[0], rate.unit) if values and rate else ""


def _tagged(cells: Sequence[Sequence[str]]) -> Iterable[tuple[str, Sequence[str]]]:
    return [("td" if place else "th", row) for place, row in enumerate(cells)]


# The sentences --------------------------------------------------------------------------------------------------------


def _who(row: Row) -> str:
    """``H200``, ``PyTorch``; with what else tells comparisons apart."""
    inside = row["device"] == row["baseline_device"] and row["run"] == row["baseline_run"]
    return implementation_label(row["implementation"]) if inside else _source_name(row)


def _crossing_sentence(row: Row) -> str:
    """``H200 is faster than the CPU from n ≈ 72.``"""
    line: sweep.Line = row[LINE]
    last = line.row
    words = crossover_text(row[CROSSING], line, row["size_parameter"])
    base = labels.library_label(last, "baseline_") or "the CPU"
    who = f"{shown_name(last['workload'])}, {arithmetic(last)}: {_who(last)}"
    if len(line.points) == 1:
        return _single_sentence(last)
    if words == judgement.EVERY_SIZE:
        return f"{who} is faster than {base} at {words}."
    if words == judgement.UNSURE:
        return f"{who} or {base}: too noisy to say from which size on either is faster."
    if words.startswith("not "):
        return f"{who} is not faster than {base} {words.removeprefix('not ')}."
    return f"{who} is faster than {base} {words if words.startswith('only ') else f'from {words}'}."


def _single_sentence(row: Row) -> str:
    """``H200 is 12× (11× to 13×) as fast as the CPU.``"""
    base = labels.library_label(row, "baseline_") or "the CPU"
    who = f"{shown_name(row['workload'])}, {arithmetic(row)}: {_who(row)}"
    if reason := judgement.withheld(row):
        return f"{who} against {base}: {reason}."
    return f"{who} is {_words(row['speedup'], row['low'], row['high'])} {base}."


def _words(ratio: float, low: float, high: float) -> str:
    """``3.1× (2.9× to 3.3×) as fast as``, ``1.4× slower (…) than``."""
    if low <= 1 <= high:
        return f"as fast, within the spread ({times_range(low, high)}), as"
    spread = times_range(low, high).replace(" slower", "")
    return f"{times_text(ratio)} ({spread}) {'than' if ratio < 1 else 'as fast as'}"


def _ratio(base: Row, other: Row) -> tuple[float, float, float] | None:
    """How many times as fast the other is, with the ends of its range; None where that is too noisy."""
    top, bottom, ratio, _ = times_and_ratio(base["_result"].times, other["_result"].times)
    return None if judgement.too_noisy(ratio.low, ratio.high) else (top / bottom, ratio.low, ratio.high)


def _against_first(rows: list[Row]) -> list[str]:
    """Of several expressions, each against the first on each device, at the largest size."""
    lines = []
    for members in grouped(_groups(rows), lambda group: _source(group[0])).values():
        base, *others = members[-1]
        sizes = ", ".join(f"{name}={value}" for name, value in base["_result"].params.items())
        where = f"On the {_source_name(base)}" if base["device"] == "cpu" else f"On {_source_name(base)}"
        for other in others:
            ratio = _ratio(base, other)
            words = f"is {_words(*ratio)}" if ratio else "is too noisy to compare with"
            at = f", {sizes}" if sizes else ""
            lines.append(f"{where}{at}: {shown_name(other['workload'])} {words} {shown_name(base['workload'])}.")
    return lines


def _first_calls(rows: list[Row]) -> list[str]:
    """A line for each device whose first call took much longer than the later ones: that which took longest."""
    lines = []
    for members in grouped(rows, _source).values():
        slowest = max(members, key=lambda row: row["first_call_s"] or 0.0)
        first_s, later_s = slowest["first_call_s"] or 0.0, slowest["time_s"]
        if first_s >= max(_FIRST_CALL * later_s, _FIRST_CALL_S):
            name = f"{_name(slowest, rows)}: " if len(rows) > 1 else ""
            took = f"the first call took {seconds_text(first_s)}, {times_text(first_s / later_s)} a later one"
            lines.append(f"{name}{took} ({_source_name(slowest)}).")
    return lines


def _launch_bound(rows: list[Row]) -> list[str]:
    """``a + b, float32: launch-bound on H200 up to n=1024 (the GPU works 1.9 µs of a call's 6.3 µs).``

    Launching takes longer than the work of these sizes: a larger one costs nothing, a faster GPU gains nothing.
    """
    timed = [row for row in sorted(rows, key=_size_key) if row["device_s"] is not None and row["launch_s"] is not None]
    alike = grouped(timed, lambda row: (row["workload"], row["_result"].dtype, row["_result"].variant, _source(row)))
    lines = []
    for members in alike.values():
        bound = [row for row in members if row["launch_s"] > row["device_s"]]
        if bound:
            last = bound[-1]
            sizes = ", ".join(f"{name}={value}" for name, value in last["_result"].params.items())
            end = " at every size" if bound == members else f" up to {sizes}"
            busy, whole = seconds_text(last["device_s"]), seconds_text(last["_result"].times.median_s)
            who = f"{shown_name(last['workload'])}, {arithmetic(last)}: launch-bound on {_source_name(last)}"
            lines.append(f"{who}{end if len(members) > 1 else ''} (the GPU works {busy} of a call's {whole}).")
    return lines


def _failures(results: Iterable[Result]) -> list[str]:
    """A line for each reason why benchmarks have no time."""
    reasons = grouped(
        (each for each in results if each.status != OK),
        lambda each: (shown_name(each.workload), each.status, each.reason),
    )
    lines = []
    for (workload, status, reason), members in list(reasons.items())[:_MOST_ROWS]:
        names = [", ".join(f"{key}={value}" for key, value in each.params.items()) for each in members]
        devices = listed(list(dict.fromkeys(filter(None, (each.device for each in members)))))
        where = f" on {devices}" if devices else ""
        sizes = f", {'; '.join(dict.fromkeys(filter(None, names)))}" if any(names) else ""
        lines.append(f"{shorten(workload)}{shorten(sizes, 60)}{where}: {status}: {reason}")
    return lines
