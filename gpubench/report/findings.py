"""What a person reads: the ending of a run, at most 25 lines of 80 columns; and summary.md, the answer on one screen,
everything else folded below it."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from .. import statistics
from ..format import aligned, counted, seconds_text, shorten, text
from ..runfile.matching import shown_name
from ..runfile.reader import clean
from ..runfile.schema import OK, Run
from ..statistics import INTERVAL
from . import provenance, scaling
from .answer import (
    ANSWER_COLUMNS,
    TIMING_COLUMNS,
    Answer,
    Timing,
    crossings_by_pair,
    pair_key,
    time_text,
    timing,
    unverified,
)
from .judgement import IF_IT_STAYS, copies_text, crossover_table, crossover_text, peak_text, speedup_words, withheld
from .labels import (
    Names,
    Row,
    arithmetic,
    case_name,
    device_label,
    family,
    grouped,
    library_label,
    listed,
    size_label,
    size_text,
)
from .machines import DeviceOfRun, device_names
from .metrics import METRICS
from .render import Summary, Table, warning_lines
from .speedup import LeftOut, Pairs, pair
from .sweep import rate_of, representative, sweeps
from .table import BASE, CROSSING, LINE, records

MOST_LINES = 25
WIDTH = 80
_SHORTER = (("every size measured", "every size"), ("◐ if the data stays", "◐ if it stays"), ("± depends: ", "± "))
_REASONS = (
    (r"needs? (an accelerator|a GPU|two)", "need a GPU", "needs a GPU"),
    (r"not in preset|preset full only", "run with --preset full only", "runs with --preset full only"),
    (r"too slow|over budget", "too slow", "too slow"),
    (r"memory|[kMGT]?B more", "too large for the memory", "too large for the memory"),
    (r"needs (\S+) ?(devices|CPU cores)", "need more devices", "needs more devices"),
    (r"is not (here|available)|does not exist on", "need a device that isn't here", "needs a device that isn't here"),
    (r"not for this workload", "have no such variant", "has no such variant"),
)
_PLACES = ("report.html", "summary.md", "results.csv")
_MOST_ROWS = 40
_MAYBE_EMPTY = ("with copies", "calls", "faster from")
"""Columns that a report of CPUs, or of one size, has nothing for."""
_OF_SEVERAL = (
    " Range: its 95% interval; with (8), the lowest and highest of so many benchmarks, of which the median is given, of"
    " two the lower."
)
_NOTE = "Each benchmark at its largest size."
_WITH_COPIES = " With copies: inputs and results copied for every call."
_WORTH_IT = " Worth it: at least 1.5× at the low end of the 95% interval"
_OF_COPIES = ", ✓ with copies, ◐ if the data stays on the device"


def ending(answer: Answer, run: Run, files: Sequence[Path], elapsed_s: float | None = None) -> list[str]:
    """The lines: what was measured where, the answer, warnings, what has no time, and where the files are."""
    head = [*_wrapped(_headline(run, elapsed_s)), *_hint(answer.hint), "", *_wrapped(answer.sentence), ""]
    head += [*warning_lines(answer.warnings, WIDTH), ""] if answer.warnings else []
    foot = [*_wrapped(_unmeasured(run)), *_places(files)]
    room = MOST_LINES - len(head) - len(foot)
    own = _own(run) if answer.cards else []
    own = own if len(own) <= max(1, room // 2) else [*own[: max(1, room // 2) - 1], "  …"]
    return [*head, *_table(answer, room - len(own)), *own, *foot]


def machine_line(run: Run) -> str:
    """What a run was measured on: devices, threads, the version of PyTorch."""
    threads = f", {counted(run.machine.threads, 'thread')}" if run.machine.threads else ""
    parts = [device_label(run, each.name) + (threads if each.name == "cpu" else "") for each in run.machine.devices]
    return " · ".join([*parts, *([f"PyTorch {run.machine.torch.partition('+')[0]}"] if run.machine.torch else [])])


def _headline(run: Run, elapsed_s: float | None) -> str:
    measured = counted(sum(result.times is not None for result in run.results), "benchmark")
    seconds = max(1.0, elapsed_s or 0.0)
    took = f" in {seconds_text(seconds) if seconds >= 60 else text(seconds, 's', 2)}" if elapsed_s else ""
    return f"{measured}{took} · {machine_line(run)}"


def _hint(hint: str) -> list[str]:
    first, mark, rest = hint.partition("Have a GPU?")
    return [*_wrapped(first), *_wrapped(f"  {mark}{rest}", "  ")] if hint else []


def _table(answer: Answer, room: int) -> list[str]:
    """Aligned columns, and no more lines than there is room for."""
    lines: list[str] = []
    for card in answer.cards:
        title = [f"{card.device} against {card.baseline}"] if len(answer.cards) > 1 else []
        cells = [ANSWER_COLUMNS, *(row.cells for row in card.rows)]
        if sum(max(len(row[i]) for row in cells) + 2 for i in range(len(ANSWER_COLUMNS))) > WIDTH:
            cells = [tuple(map(_shorter, (*row[:2], *row[3:]))) for row in cells]  # no range
        lines += [*title, *aligned(cells, WIDTH)]
    printed = _printed(answer, room - bool(_signs(answer, answer.times)))
    if printed:
        lines += _times(answer, printed)
    if any(row.verdict == IF_IT_STAYS for card in answer.cards for row in card.rows) and len(lines) < room:
        lines.append("  ◐ worth it only while the data stays on the device between calls")
    if (signs := _signs(answer, printed)) and len(lines) < room:
        lines.append(f"  {signs}")
    if len(lines) > room:
        left = len(lines) - room + 1
        lines = [*lines[: room - 1], f"  … {counted(left, 'more line')} in summary.md"]
    return lines


def _printed(answer: Answer, room: int) -> tuple[Timing, ...]:
    """The times that there is room for below their heading, and above a line on the others."""
    cut = answer.more or len(answer.times) + 1 > room
    return answer.times[: max(1, room - 2)] if cut else answer.times


def _times(answer: Answer, printed: Sequence[Timing]) -> list[str]:
    """A row for each of these, and how many more there are."""
    times = _with_content(Table("Times", TIMING_COLUMNS, tuple(printed)))
    left = answer.more + len(answer.times) - len(printed)
    more = f"  and {left} more in results.csv" if answer.more else f"  … {counted(left, 'more line')} in summary.md"
    return [*aligned([times.columns, *times.rows], WIDTH), *([more] * bool(left))]


def _signs(answer: Answer, printed: Sequence[Timing]) -> str:
    """What a star and a dash mean, where there are some."""
    cells = [cell for card in answer.cards for row in card.rows for cell in row.cells]
    dashes = "not known" if answer.cards else "above the measured peak, which can't be"
    parts = ["* noisy: may be far off"] * any("*" in timed.time for timed in printed)
    parts += [f"— {dashes}"] * ("—" in [*cells, *(cell for timed in printed for cell in timed)])
    return " · ".join(parts)


def _shorter(cell: str) -> str:
    return next((cell.replace(long, short) for long, short in _SHORTER if long in cell), cell)


def _own(run: Run) -> list[str]:
    """Times on all devices of benchmarks that aren't the suite's, a line each."""
    lines: dict[str, dict[str, str]] = {}
    for result in run.results:
        if result.times and not result.kind:
            device = "CPU" if result.device == "cpu" else result.device
            seconds = time_text(result.times.median_s, bool(result.flags))
            lines.setdefault(shown_name(result.case.id), {})[f"{device} {seconds}"] = unverified(result)
    ends = {name: "  ".join(filter(None, (*times, *dict.fromkeys(times.values())))) for name, times in lines.items()}
    return [f"  {shorten(name, max(8, WIDTH - 4 - len(end)))}  {end}" for name, end in ends.items()]


def skip_kind(reason: str) -> tuple[str, str]:
    """Why a benchmark was skipped, for several and for one; the reason itself where it is of no known kind."""
    for pattern, many, single in _REASONS:
        if re.search(pattern, reason):
            return many, single
    return (shorten(reason, 60),) * 2


def _unmeasured(run: Run) -> str:
    skipped = Counter(skip_kind(str(result.reason or "")) for result in run.results if result.status == "skipped")
    failed = [shown_name(result.case.workload) for result in run.results if result.status not in (OK, "skipped")]
    parts = [f"{count} {words[count == 1]}" for words, count in skipped.most_common(3)]
    more = skipped.total() - sum(count for _, count in skipped.most_common(3))
    parts += [f"{more} for other reasons"] if more else []
    names = f" ({', '.join(failed[:2])}{' …' * (len(failed) > 2)})" if failed else ""
    return f"Skipped: {', '.join(parts) or 0}. Failed: {len(failed)}{names}."


def _places(files: Sequence[Path]) -> list[str]:
    """In a line where it is wide enough: the name of a file isn't folded."""
    page, summary, data = ([path for path in files if path.name == name] for name in _PLACES)
    parts = [f"Report  {path}   (all results, charts)" for path in page] or [f"Report  {path}" for path in summary]
    parts = [clean(part) for part in (*parts, *(f"Data  {path}" for path in data))]
    line = "   ".join(parts)
    return parts if len(line) > WIDTH else [line] if line else []


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def summarise(
    answered: Answer,
    runs: Sequence[Run],
    results: pd.DataFrame,
    speedups: Pairs,
    crossovers: pd.DataFrame,
    scaled: pd.DataFrame,
    machines: Sequence[Table] = (),
) -> Summary:
    """The answer's sentence, warnings and tables; in ``details`` all others that have a row, several devices last.

    ``machines`` are tables that compare machines and what they cost; they come first.
    """
    names = Names(results)
    rows = records(results)
    details = [
        *machines,
        workload_table(speedups.table, crossovers, names, device_names(results)),
        _left_out_table(speedups.left_out),
    ]
    details += [_launch_table(rows, names), rate_table(rows, names)]
    details += provenance.provenance_tables(results, runs, names)
    details.append(scaling.several_devices(scaled))
    return Summary(
        tables=answer_tables(answered),
        left_out=left_out_line(speedups.left_out),
        lead=(answered.sentence, *([answered.hint] if answered.hint else [])),
        warnings=answered.warnings,
        details=tuple(table for table in details if table.rows),
    )


def answer_tables(answered: Answer) -> tuple[Table, ...]:
    """A table a card; the times where there is none."""
    tables = []
    for card in answered.cards:
        title, rows = f"{card.device} against {card.baseline}", tuple(row.cells for row in card.rows)
        table = _with_content(Table(title, ANSWER_COLUMNS, rows))
        copied, several = "with copies" in table.columns, any(row.count > 1 for row in card.rows)
        note = f"{_NOTE}{_WITH_COPIES * copied}{_WORTH_IT}{_OF_COPIES * copied}.{_OF_SEVERAL * several}"
        tables.append(replace(table, note=note))
    if answered.times:
        starred, dashed = (any(sign in cell for timed in answered.times for cell in timed[1:]) for sign in "*—")
        note = "* noisy: see the column flags of results.csv." * starred
        note += f"{' ' * starred}— above the measured peak, which can't be." * dashed
        note += f" And {answered.more} more: results.csv." * bool(answered.more)
        tables.append(_with_content(Table("Times", TIMING_COLUMNS, answered.times, note.strip())))
    return tuple(tables)


def workload_table(
    speedups: pd.DataFrame,
    crossovers: pd.DataFrame,
    names: Names,
    devices: Mapping[DeviceOfRun, str],
    most: int = _MOST_ROWS,
) -> Table:
    """A row for each workload, dtype and device, at the largest size of one setting that is named; ``devices`` is what
    people call them."""
    crossings = crossings_by_pair(crossovers)
    pairs = records(speedups)

    def key(row: Row) -> tuple[str, ...]:
        return row["workload"], arithmetic(row), names.source(row), names.baseline(row), row["differs"] or ""

    chosen = [representative(members) for members in grouped(pairs, key).values()]
    body = []
    for row in chosen:
        crossed = crossings.get(pair_key(row))
        since = crossover_text(crossed[CROSSING], crossed[LINE], crossed["size_parameter"]) if crossed else "—"
        against = names.baseline(row) + (f" ({row['differs']})" if row["differs"] else "")
        times = f"{seconds_text(row['baseline_s'])} → {seconds_text(row['time_s'])}"
        times += "*" * bool(row["_result"].flags or row[BASE].flags)
        calls = "—" if row["break_even_calls"] is None or withheld(row) else f"{row['break_even_calls']:,}"
        device = " · ".join(filter(None, [devices[row["run"], row["device"]], library_label(row)]))
        cells = (case_name(row), device, against, times, speedup_words(row))
        body.append((*cells, copies_text(row), calls, since))
    columns = ("benchmark", "device", "against", "time", "speedup", *_MAYBE_EMPTY)
    kinds = sorted({row["uncertainty"] for row in chosen})
    note = f"In brackets: {', '.join(kinds)}"
    if not all(kind.startswith(INTERVAL) for kind in kinds):
        note += " (the range of one process is no confidence interval; use --processes 3)"
    table = _with_content(Table("Speedup", columns, tuple(body[:most])))
    note += "."
    if "calls" in table.columns:
        note += " Calls: on the same data on the device, until its copies are amortized (— = never)."
    if "faster from" in table.columns:
        note += " Faster from: the smallest size above which it always is; unsure where the interval allows otherwise."
    note += " Speedup —: above the measured peak." * any(cells[4] == "—" for cells in body)
    if len(body) > most:
        note += f" {len(body) - most} more are in speedup.csv."
    return replace(table, note=note)


def _with_content(table: Table) -> Table:
    """Without the columns in which no row has anything: a CPU needs no copies, a test that declares no work no rate."""
    if not table.rows:
        return table
    filled = {
        name
        for name, *cells in zip(table.columns, *table.rows, strict=True)
        if any(cell and (cell != "—" or name not in _MAYBE_EMPTY) for cell in cells)
    }
    kept = [i for i, name in enumerate(table.columns) if name in filled]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows)


def overview(results: pd.DataFrame) -> Table:
    """One row for each workload, to paste into a page: speedups where a GPU was measured, else times."""
    names = Names(results)
    pairs = pair(results).table
    if pairs.empty:
        return _time_table([row for row in records(results) if row["_result"].times])
    devices = device_names(results)
    return workload_table(pairs, crossover_table(pairs, names), names, devices, most=len(pairs))


def _left_out_table(pairs: Sequence[LeftOut]) -> Table:
    """What was not compared, by what differs."""
    body = []
    groups = grouped(pairs, lambda entry: tuple(entry.terms.items()))
    for key, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        workloads = list(dict.fromkeys(shown_name(entry.row["workload"]) for entry in members))
        options = " ".join(f"--allow {term}" for term, _ in key)
        body.append((", ".join(words for _, words in key), str(len(members)), listed(workloads, 4), options))
    note = "Benchmarks without a comparable baseline. With --allow the difference is named beside the speedup."
    columns = ("what differs", "benchmarks", "which", "to compare them")
    return Table("Not compared", columns, tuple(body[:_MOST_ROWS]), note)


def left_out_line(pairs: Sequence[LeftOut]) -> str:
    """One line for stderr, empty where everything was compared."""
    if not pairs:
        return ""
    terms = {term: sum(term in entry.terms for entry in pairs) for entry in pairs for term in entry.terms}
    words = ", ".join(f"{term} ({count})" for term, count in sorted(terms.items(), key=lambda each: -each[1]))
    options = " ".join(f"--allow {term}" for term in terms)
    subject = f"{counted(len(pairs), 'benchmark')} {'has' if len(pairs) == 1 else 'have'}"
    nearest = f"no comparable baseline, the nearest differs in {words}"
    return f"not compared: {subject} {nearest}. Use {options} to compare anyway"


def _launch_table(rows: list[Row], names: Names) -> Table:
    """Where launching takes longer than the work, and from which size on it no longer does."""
    known = [row for row in rows if row["device_s"] is not None and row["launch_s"] is not None]
    swept, single = sweeps(known, _busy, names)
    body = []
    for sweep, line in [(each, line) for each in swept for line in each.lines]:
        if bound := [point.x for point in line.points if point.y < 1]:
            ends = statistics.crossover([point.x for point in line.points], [point.y for point in line.points])
            until = f"{size_label(sweep.size)} = {size_text(max(bound), sweep.size)}"
            since = f"≈ {size_text(ends.size, sweep.size)}" if ends.size else "not reached"
            label = case_name(line.row, without=(sweep.size,))
            body.append((label, names.source(line.row), until, since, _share(line.rows[0]), _share(line.row)))
    for row in single:
        if _busy(row)[0] < 1:
            body.append((case_name(row), names.source(row), "its only size", "not reached", _share(row), _share(row)))
    note = "Launch-bound: launching the work takes the host longer than running it takes the device."
    if len(body) > _MOST_ROWS:
        note += f" {len(body) - _MOST_ROWS} more: device_s and time_s in results.csv."
    columns = ("benchmark", "device", "launch-bound up to", "no longer from", "busy at smallest", "busy at largest")
    return Table("Launch overhead", columns, tuple(body[:_MOST_ROWS]), note)


def _busy(row: Row) -> tuple[float, float, float]:
    """1 where a benchmark stops being launch-bound."""
    share = row["device_s"] / row["launch_s"]
    return share, share, share


def _share(row: Row) -> str:
    return f"{row['device_s'] / row['time_s']:.0%}"


def rate_table(rows: list[Row], names: Names) -> Table:
    """The highest rate of each family, dtype and source."""
    groups: dict[tuple[str, ...], list[tuple[float, Row]]] = {}
    for row in rows:
        rate = rate_of(row) if row["_result"].times else None
        if rate and (values := rate.measure(row)):
            name = row["workload"] if rate.kind == "items" else family(row["workload"])
            groups.setdefault((name, names.source(row), arithmetic(row), rate.unit), []).append((values[0], row))
    best = [(key, *max(groups[key], key=lambda entry: (not withheld(entry[1]), entry[0]))) for key in sorted(groups)]
    more = [m for m in METRICS.values() if m.in_summary and any(row[m.name] is not None for _, _, row in best)]
    body = [
        (
            *key[:3],
            "—" if withheld(row) else text(value, key[3]),
            *(_cell(metric.name, row) for metric in more),
            case_name(row),
        )
        for key, value, row in best
    ]
    note = "Throughput = work per call / wall time; bytes: inputs read once, outputs written once."
    if METRICS["utilisation"] in more:
        note += " % of peak = share of the roofline limit measured at the start of the run; — above 100%."
    if len(body) > _MOST_ROWS:
        note += f" {len(body) - _MOST_ROWS} more are in results.csv."
    heads = (metric.label[:1].lower() + metric.label[1:] for metric in more)
    columns = ("benchmarks", "device", "dtype", "throughput", *heads, "reached by")
    return Table("Highest throughput", columns, tuple(body[:_MOST_ROWS]), note)


def _cell(name: str, row: Row) -> str:
    return peak_text(row["utilisation"]) if name == "utilisation" else METRICS[name].words(row[name])


def _time_table(rows: Sequence[Row]) -> Table:
    """A row for each workload and dtype measured, at its largest size."""
    groups = grouped(rows, lambda row: (row["workload"], arithmetic(row), row["device"], row["implementation"]))
    rows_shown = tuple(timing(representative(members)) for members in groups.values())
    return _with_content(Table("Times", TIMING_COLUMNS, rows_shown))
