"""Every table of a report, each a list of columns."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec import structs

from ..runfile.facts import facts
from ..runfile.flags import ADVICE, IMPLAUSIBLE, Reason
from ..runfile.matching import is_expression
from ..runfile.quantities import counted, listed, shorten, text
from ..runfile.schema import TIMERS
from . import words
from .answer import Answer, AnswerRow, Speedups, at_largest, choose_rows, find_speedups
from .number import MISSING, Number, Sign, Start, State, seconds, share
from .render import Cell, Column, Table, escape, listing, markdown, table
from .study import ONE_THREAD, SINGLE, Measured, Pair, Row, Scaled, Source, Study, grouped
from .why import why

_MOST_COLUMNS = 6
_QUANTITY = re.compile(r"\d+([.,]\d+)*(e[+-]?\d+)?( [kMGTPmµn]?(FLOP|B|s|FLOP/s|B/s)\b)?")


def answer_tables(answer: Answer, most: int | None = None) -> list[Table]:
    """Return a table for each baseline, with a column of speedups for each device, and the causes of small speedups;
    the table of times if nothing is compared. ``most`` rows, no small print and no causes for a screen."""
    study = answer.study
    if answer.times:
        return [_times_table(answer, most)]
    tables = [speedup_table(study, speedups, most) for speedups in answer.speedups]
    several = sum(len(speedups.devices) for speedups in answer.speedups) > 1
    causes = [
        (
            study.names.subject(pair) * several,
            row.named,
            f"{copied} with copies" if copied else str(pair.ratio.brief),
            cause.text,
        )
        for speedups in answer.speedups * (not most)
        for row in speedups.rows
        for pair in row.items
        if (cause := why(pair))
        for copied in [pair.copied_ratio if cause.kind == "copies" else None]
    ]
    reasons = listing("Why a GPU gains little", ("device", "benchmark", "speedup", "largest cause"), causes)
    return [*tables, *[reasons] * bool(causes)]


def speedup_table(study: Study, speedups: Speedups, most: int | None = None) -> Table:
    """The devices against their baseline, a row for each of the answer's."""
    columns = _columns(study, speedups, bool(most))
    differ = listed(sorted({pair.differs for pair in speedups.pairs if pair.differs}), 3)
    ranges = [pair.uncertainty for pair in speedups.pairs if pair.ratio.range]
    small = f" In brackets: {words.uncertainty(ranges)}." * bool(ranges)
    small += f" Compared although they differ: {differ}." * bool(differ)
    result = _answer_table(f"Speedup over {speedups.baseline}", columns, speedups.rows, most, small)
    if Sign.OTHER_WAY not in result.signs:
        return result
    return replace(result, note=f"{result.note} {_ways(speedups.pairs)}", explained=frozenset({Sign.OTHER_WAY}))


def _times_table(answer: Answer, most: int | None) -> Table:
    rows = [row for of_answer in answer.times for row in of_answer.items]
    devices = {row.source: answer.study.names.of(row) for row in rows}
    cells: dict[str, Callable[[Any], Cell]] = {
        "time": attrgetter("time" if most else "accurate_time"),
        "throughput": attrgetter("speed"),
        "% of peak": attrgetter("peak_share"),
    }
    columns = [
        Column(f"{name * (len(devices) > 1)} {head}".strip(), partial(_of_device, source, cell))
        for source, name in devices.items()
        for head, cell in cells.items()
    ]
    return _answer_table("Times", columns, answer.times, most, f" {_spread(rows)}")


def _answer_table(
    title: str, columns: Sequence[Column[AnswerRow[Any]]], rows: Sequence[AnswerRow[Any]], most: int | None, small: str
) -> Table:
    """Rows of the answer with common facts: the sizes, the dtype if none is named, and how many there are."""

    def benchmark(row: AnswerRow[Any]) -> str:
        unchecked = next(filter(None, (words.unchecked(item.subject) for item in row.items)), "")
        return f"{row.indented} {unchecked}".rstrip()

    chosen = choose_rows(rows, most) if most else rows
    dtypes = {item.subject.dtype for row in rows if row.leads for item in row.items}
    note = at_largest(rows) + "; float32 where no dtype is named" * ("float32" in dtypes)
    note += f"; {len(rows) - len(chosen)} more in the report" * (len(chosen) < len(rows))
    note += "; gpubench show has every size" * bool(most)
    return table(title, [Column("benchmark", benchmark), *columns], chosen, f"{note}.{'' if most else small}")


def _spread(rows: Sequence[Measured]) -> str:
    interval = any(row.interval for row in rows)
    busy = any(row.vague is Reason.BUSY for row in rows)
    one = "~ is how much the timings of one process differ" + "; --processes 3 gives a 95% interval" * (not busy)
    note = "± is half the 95% confidence interval" if interval else one
    if interval and not all(row.interval for row in rows):
        note += f", {one}"
    remedy = " Busy: other programs used the cores, so these times are too long, by an unknown amount."
    return f"{note}.{remedy * busy}"


def _of_device(source: Source, cell: Callable[[Any], Any], row: AnswerRow[Any]) -> Cell:
    item = row.of(source)
    number: Number | Start | None = MISSING if item is None else cell(item)
    return number if item is None or number is None else number.noted(row.differing(item))


def _columns(study: Study, speedups: Speedups, brief: bool) -> list[Column[AnswerRow[Pair]]]:
    """The baseline's time and the speedup of each device; of one device its time too, the speedup with copies, and the
    size from which it is faster; unless ``brief`` their ranges."""

    def time(pair: Pair, place: int) -> Number:
        side = pair.sides[place]
        number = seconds((pair.compared.base_s, pair.compared.time_s)[place], bool(side.quality.star))
        other_way = side is pair.fastest_way
        return number.signed(Sign.OTHER_WAY, other_way) if brief else number.noted(f" by {words.way(pair)}" * other_way)

    def speedup(pair: Pair) -> Number:
        number = pair.full_ratio.without(Sign.OTHER_WAY)
        return number.brief if brief else number

    if len(speedups.devices) > 1:
        base = Column[AnswerRow[Pair]](speedups.baseline, lambda row: time(row.items[0], 0))
        devices = (Column(device, partial(_of_device, source, speedup)) for source, device in speedups.devices.items())
        return [base, *devices]
    ((source, device),) = speedups.devices.items()
    cells: dict[str, Callable[[Pair], Number | Start]] = {
        study.names.short(speedups.baseline): partial(time, place=0),
        study.names.short(device): partial(time, place=1),
        "speedup": speedup,
        "with copies": attrgetter("copied_ratio"),
        "wins" if speedups.alike else "GPU wins": lambda pair: study.starts.get(pair, MISSING),
    }
    return [Column(head, partial(_of_device, source, cell)) for head, cell in cells.items()]


def results_table(study: Study) -> Table:
    """Every measured benchmark, by dtype and size: the table of ``gpubench show``."""

    columns: list[Column[Measured]] = [
        Column("run", lambda row: row.run_name if study.several_runs else ""),
        Column("benchmark", lambda row: words.benchmark(row.result)),
        Column("device", study.names.of),
        Column("time", attrgetter("time")),
        Column("spread", attrgetter("accuracy")),
        Column("throughput", attrgetter("speed")),
        Column("% of peak", attrgetter("peak_share")),
    ]
    above = any(row.quality.doubt is Reason.ABOVE_PEAK for row in study.measured)
    note = _spread(study.measured) + f" {Sign.UNKNOWN} above the measured peak (the peak was measured too low)." * above
    rows = sorted(study.measured, key=lambda row: (row.numbers, words.setting(row.result), study.names.order(row)))
    rows.sort(key=lambda row: (row.result.workload, row.dtype, row.result.variant))
    return table("", columns, rows, note, [Sign.UNKNOWN] * above)


def beside_each_other(study: Study, head: str = "") -> Table:
    """Return a row for each benchmark and size: its time on the CPU, in NumPy and on each GPU, and the speedups. A
    common name or dtype is the title; ``head`` is the head of the names."""
    by_row = {pair.other: pair for pair in study.pairs}
    common = [of for of in ("workload", "dtype") if len({getattr(row.result, of) for row in study.measured}) == 1]

    def name(at: Mapping[Source, Measured]) -> str:
        case = next(iter(at.values())).result
        settings = words.settings(structs.replace(case, dtype="") if "dtype" in common else case)
        return "  ".join(filter(None, [words.name(case) * ("workload" not in common), *settings])) or words.name(case)

    def of(source: Source, cell: Callable[[Measured], Cell], at: Mapping[Source, Measured]) -> Cell:
        return cell(at[source]) if source in at else None

    def compared(cell: Callable[[Pair], Cell], row: Measured) -> Cell:
        return cell(by_row[row]) if row in by_row else None

    order = {workload: i for i, workload in enumerate(dict.fromkeys(row.result.workload for row in study.measured))}

    def place(rows: list[Measured]) -> tuple[object, ...]:
        workload = rows[0].result.workload  # expressions are compared at each size
        return (0 if is_expression(workload) else order[workload]), rows[0].numbers, order[workload]

    cells = grouped(study.measured, lambda row: (row.result.workload, row.setting, repr(row.size)))
    things = [{row.source: row for row in reversed(rows)} for rows in sorted(cells.values(), key=place)]
    cpu_first = sorted(study.measured, key=lambda row: (row.source.device != "cpu", row.source))
    sources = {row.source: row for row in cpu_first}
    gpus = [source for source in sources if source.device != "cpu"]
    columns: list[Column[Mapping[Source, Measured]]] = [Column(head, name)]
    over = f" over {study.names.baseline(study.pairs)}" * bool(study.pairs and not gpus)
    for source, row in sources.items():
        on_cpu = source.device == "cpu" and not source.library
        suffix = f" {study.names.of(row)}" * (len(gpus) > 1 and source in gpus)
        of_source: dict[str, Callable[[Measured], Cell]] = {
            "CPU" if on_cpu and not study.several_runs else study.names.of(row): attrgetter("accurate_time"),
            f"speedup{over}{suffix}": partial(compared, lambda pair: pair.full_ratio.without(Sign.UNFILLED)),
            f"with copies{suffix}": partial(compared, attrgetter("copied_ratio")),
        }
        if source in gpus or (not gpus and on_cpu):
            of_source |= {f"throughput{suffix}": attrgetter("speed"), f"% of peak{suffix}": attrgetter("peak_share")}
        columns += [Column(head, partial(of, source, cell)) for head, cell in of_source.items()]
    titles = [words.name(row.result) if of == "workload" else row.dtype for of in common for row in study.measured[:1]]
    note = f"{_spread(study.measured)} {_ways(study.pairs)}".strip()
    return table(" ".join(titles), columns, things, note, [Sign.OTHER_WAY])


def _ways(pairs: Sequence[Pair]) -> str:
    """The meaning of the sign of another way, with the ways; empty if there is none."""
    ways = words.ways(pairs)
    return f"{Sign.OTHER_WAY} the CPU's fastest way: {'; '.join(ways)}." * bool(ways)


def machine_table(study: Study) -> Table:
    """The facts of the runs, a column each; facts that differ come first."""
    runs = study.named_runs
    devices = {device.name for run in runs.values() for device in run.machine.devices if device.accelerator}
    columns: dict[str, dict[str, str]] = {}
    for (name, run), parts in zip(runs.items(), facts([*runs.values()], devices), strict=True):
        busy = "unknown" if run.plain else "yes" if run.contended else "no"
        of_run = {fact: value for part in parts for fact, value in part.items()}
        columns[name] = {"machine": run.machine.label} | of_run | {"machine busy": busy}
        columns[name] |= {"date": run.date} if run.date else {}
    values = {
        fact: [of_run.get(fact, "unknown") for of_run in columns.values()]
        for fact in dict.fromkeys(fact for of_run in columns.values() for fact in of_run)
    }
    rows = [(fact, *map(shorten, values[fact])) for fact in sorted(values, key=lambda fact: len({*values[fact]}) == 1)]
    heads, more = ["what", *map(shorten, columns)][: _MOST_COLUMNS + 1], [*columns][_MOST_COLUMNS:]
    note = "What differs comes first." * study.several_runs + f" Without a column: {listed(more)}." * bool(more)
    return listing("Machines", heads, rows, note)


def jobs_table(study: Study) -> Table:
    """Jobs of many equal steps, with one measured."""
    columns: list[Column[Measured]] = [
        Column("job", lambda row: words.benchmark(row.result)),
        Column("device", study.names.of),
        Column("steps", lambda row: f"{row.result.steps:,}"),
        Column("one step", lambda row: seconds(row.time_s)),
        Column("all steps", lambda row: seconds((row.result.steps or 0) * row.time_s)),
    ]
    note = "Derived, not measured: the time of one step times the number of steps."
    return table("Whole jobs", columns, [row for row in study.measured if row.result.steps], note)


def unmeasured_by_reason(study: Study) -> list[list[Row]]:
    """Skipped and failed benchmarks; reasons that differ only in their numbers, or in the middle that a screen cuts
    out, count as one."""

    def shape(row: Row) -> tuple[str, str]:
        return row.result.status, shorten(_QUANTITY.sub("#", row.result.reason or ""), 60)

    groups = grouped((row for row in study.rows if not isinstance(row, Measured)), shape)
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0], -len(groups[key]), key[1]))]


def unmeasured_table(study: Study) -> Table:
    """Skipped and failed benchmarks by reason."""

    def reason(rows: list[Row]) -> str:
        reasons = list(dict.fromkeys(row.result.reason or "no reason given" for row in rows))
        return ("e.g. " if len(reasons) > 1 else "") + shorten(reasons[0], 200)

    columns: list[Column[list[Row]]] = [
        Column("status", lambda rows: rows[0].result.status),
        Column("benchmarks", len),
        Column("reason", reason),
        Column("which", lambda rows: listed(dict.fromkeys(words.name(row.result) for row in rows), 4)),
    ]
    return table("Skipped and failed", columns, unmeasured_by_reason(study))


def flag_table(study: Study) -> Table:
    """Every flag of a benchmark, and of whole processes, which may raise the same one more than once; with
    advice."""
    flagged = grouped(((name, row) for row in study.measured for name in row.flags), lambda pair: pair[0])
    rows = []
    for name in (name for name in ADVICE if name in flagged):
        row = flagged[name][0][1]
        spread = f"half of the rounds are spread over {row.times.iqr_s / row.time_s:.0%} of the median"
        usual = f"{row.utilisation:.3g} times the measured peak" if name == IMPLAUSIBLE else spread
        evidence = next((flag.seen for flag in row.result.flags if flag.name == name), usual)
        where = f" on {row.result.device}" if row.result.device else ""
        example = f"e.g. {words.benchmark(row.result)}{where}: {shorten(evidence, 160)}"
        rows.append((name, counted(len(flagged[name]), "benchmark"), example))
    for run_name, run in study.named_runs.items():
        for flag in run.flags:
            where = f"{len(set(flag.processes))} of {counted(run.processes, 'process')}"
            rows.append((flag.name, where + f" of {run_name}" * study.several_runs, shorten(flag.seen, 160)))
    advised = [(*cells, ADVICE[cells[0]].why, ADVICE[cells[0]].remedy) for cells in rows]
    return listing("Flags", ("flag", "where", "evidence", "possible cause", "what to try"), advised)


def peak_table(study: Study) -> Table:
    """The peaks of each device, measured in the same run: bandwidths by footprint, the smallest first, where a few
    bytes more or less don't matter; then the single figures."""

    def rates(of: Iterable[tuple[str, float]], unit: str) -> str:
        return listed([f"{shorten(name, 16)} {text(rate, unit)}" for name, rate in of], 8)

    rows = []
    for name, run in study.named_runs.items():
        for device, ceilings in run.ceilings.items():
            bands = sorted(ceilings.bandwidth, key=lambda band: band.footprint_bytes)
            places = grouped(bands, lambda band: (text(band.footprint_bytes, "B"), band.level or "memory"))
            peaks = {
                f"bandwidth at {size}, {shorten(level, 16)}": rates(((b.pattern, b.byte_per_s) for b in alike), "B/s")
                for (size, level), alike in places.items()
            }
            peaks["matrix products"] = rates(ceilings.throughput.items(), "FLOP/s")
            figures = {
                "launch overhead": (ceilings.launch_floor_s, "s"),
                "host to device": (ceilings.host_to_device_byte_per_s, "B/s"),
                "device to host": (ceilings.device_to_host_byte_per_s, "B/s"),
            }
            peaks |= {figure: text(value, unit) for figure, (value, unit) in figures.items() if value is not None}
            where = f"{device} · {name}" if study.several_runs else device
            rows += [(where, *peak) for peak in peaks.items() if peak[1]]
    note = "Measured at the start of the run; % of peak rests on them."
    note += " Those of small footprints are too low: a call costs more than its bytes."
    return listing("Measured peaks", ("device", "what", "peak"), rows, note)


def method_table(study: Study) -> Table:
    """Return how the numbers were measured, as far as a file has it."""
    rows = study.measured
    waited = ", synchronization included" if all(row.times.timer in TIMERS for row in rows) else ""
    checks = Counter(check.reason or check.status for row in rows if (check := row.result.check))
    method = {
        "clock": ", ".join(sorted({row.times.timer for row in rows})),
        "time": "wall time of a call: median of the rounds, then of the processes" + waited,
        "results checked": f"{checks.pop('passed', 0)} of {len(rows)} benchmarks" if checks else "",
        "not checked": listed([f"{count}: {shorten(cause, 120)}" for cause, count in checks.most_common()], 9, "; "),
    }
    return listing("How it was measured", ("what", "how"), [row for row in method.items() if row[1]])


def scaling_table(study: Study) -> Table:
    """A row for each benchmark of several devices that has a baseline."""

    def ratio(value: float | None) -> Number:
        return MISSING if value is None else Number(value, state=State.KNOWN)

    def over(pair: Pair | None) -> Number:
        return pair.ratio if pair and pair.ends else ratio(pair.speedup if pair else None)

    def devices(scaled: Scaled) -> str:
        threads = scaled.parallel.threads
        return f"{scaled.parallel.devices}" + (f" × {counted(threads, 'thread')}" if threads else "")

    rows = [scaled for scaled in study.scaled if scaled.speedup and scaled.parallel.method not in (SINGLE, ONE_THREAD)]
    threads = " or ".join(map(str, sorted({scaled.base_threads for scaled in rows if scaled.base_threads})))
    note = f"On a CPU, one device is one process with one thread, and the single process has all {threads} threads. "
    note += f"In brackets: {words.uncertainty(scaled.uncertainty for scaled in rows)}."
    columns: list[Column[Scaled]] = [
        Column("benchmark", lambda scaled: words.name(scaled.row.result)),
        Column("method", lambda scaled: scaled.parallel.method or MISSING),
        Column("devices", devices),
        Column("scaling", lambda scaled: scaled.parallel.mode or MISSING),
        Column("time", attrgetter("row.time")),
        Column("vs. one device", lambda scaled: over(scaled.scaling)),
        Column("vs. single process", lambda scaled: over(scaled.speedup)),
        Column("efficiency", lambda scaled: share(scaled.efficiency.value) if scaled.efficiency else MISSING),
        Column("ideal", lambda scaled: ratio(scaled.parallel.ideal_speedup)),
    ]
    return table("Multi-GPU and distributed", columns, rows, note)


def detail_tables(study: Study) -> list[Table]:
    """Return all other tables that have a row, the most wanted first."""
    makers = machine_table, jobs_table, unmeasured_table, flag_table, peak_table, method_table, scaling_table
    libraries = (speedup_table(study, speedups) for speedups in find_speedups(study, study.library_pairs))
    return [made for made in (*libraries, *(maker(study) for maker in makers)) if made.rows]


def summary(answer: Answer, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The answer on one screen, the pictures, and every table folded below them, as Markdown.

    ``pictures`` are titles and stems of the files in ``charts/``."""
    lines = ["# Benchmark report"]
    lines += map(escape, filter(None, (answer.sentence, answer.hint, answer.left_out)))
    lines += [f"> **Warning:** {escape(str(warning))}" for warning in answer.warnings]
    for grid in answer_tables(answer):
        lines += [f"## {escape(grid.title)}", "\n".join(markdown(grid))]
    lines += ["## Charts"] * bool(pictures)
    for title, stem in pictures:
        lines.append(f'<picture><img alt="{html.escape(title)}" src="charts/{stem}-light.svg"></picture>')
    for grid in detail_tables(answer.study):
        head = f"<details><summary>{html.escape(grid.title)}</summary>"
        lines += [head, "\n".join(markdown(grid)), "</details>"]
    return "\n\n".join(lines).rstrip("\n") + "\n"
