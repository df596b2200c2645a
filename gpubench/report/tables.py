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
from ..runfile.matching import shown_name
from ..runfile.quantities import counted, listed, shorten, text
from ..runfile.schema import TIMERS
from . import words
from .answer import Answer, AnswerRow, Speedups, at_largest, choose_rows, find_speedups
from .number import MISSING, Number, Sign, Start, known_ratio, seconds, share
from .render import Cell, Column, Table, escape, listing, markdown, table
from .study import ONE_THREAD, SINGLE, Measured, Pair, Row, Scaled, Source, Study, ends, grouped

_MOST_ROWS, _MOST_COLUMNS = 40, 6
_BUSY = "machine busy"


# The answer -----------------------------------------------------------------------------------------------------------


def answer_tables(answer: Answer, most: int | None = None) -> list[Table]:
    """Return a table for each baseline, with a column of speedups for each device; the table of times if nothing is
    compared. ``most`` rows and no small print for a screen."""
    found = [speedup_table(answer.study, each, most) for each in answer.speedups]
    return [*found, _times_table(answer, most)] if answer.times else found


def speedup_table(study: Study, found: Speedups, most: int | None = None) -> Table:
    """The devices against their baseline, a row for each of the answer's."""
    columns = _columns(study, found, bool(most))
    differ = listed(sorted({pair.differs for pair in found.pairs if pair.differs}), 3)
    ranges = [pair.uncertainty for pair in found.pairs if pair.ratio.range]
    small = f" In brackets: {words.uncertainty(ranges)}." * bool(ranges)
    small += f" Compared although they differ: {differ}." * bool(differ)
    made = _answer_table(f"Speedup over {found.baseline}", columns, found.rows, most, small)
    if Sign.OTHER_WAY not in made.signs:
        return made
    return replace(made, note=f"{made.note} {_ways(found.pairs)}", explained=frozenset({Sign.OTHER_WAY}))


def _times_table(answer: Answer, most: int | None) -> Table:
    cells = {
        "time": attrgetter("time") if most else _time_and_accuracy,
        "throughput": attrgetter("speed"),
        "% of peak": attrgetter("peak_share"),
    }
    devices = {row.source: row for each in answer.times for row in each.items}
    columns: list[Column[AnswerRow[Measured]]] = [_BENCHMARK]
    for source, row in devices.items():
        name = answer.study.names.of(row) if len(devices) > 1 else ""
        columns += [Column(f"{name} {of}".strip(), partial(_of_device, source, cell)) for of, cell in cells.items()]
    spread = _spread([row for each in answer.times for row in each.items])
    return _answer_table("Times", columns, answer.times, most, f" {spread}")


def _time_and_accuracy(row: Measured) -> Number:
    return row.time.noted(f" {row.accuracy}")


def _answer_table(
    title: str, columns: Sequence[Column[AnswerRow[Any]]], rows: Sequence[AnswerRow[Any]], most: int | None, small: str
) -> Table:
    """Rows of the answer with common facts: the sizes, the dtype if none is named, and how many there are."""
    shown = choose_rows(rows, most) if most else rows
    dtypes = {item.subject.dtype for row in rows if row.leads for item in row.items}
    note = at_largest(rows) + "; float32 where no dtype is named" * ("float32" in dtypes)
    note += f"; {len(rows) - len(shown)} more in the report" * (len(shown) < len(rows))
    note += "; gpubench show has every size" * bool(most)
    return table(title, columns, shown, f"{note}.{'' if most else small}")


def _spread(rows: Sequence[Measured]) -> str:
    interval = any(row.interval for row in rows)
    busy = any(row.vague is Reason.BUSY for row in rows)
    one = "~ is how much the timings of one process differ" + "; --processes 3 gives a 95% interval" * (not busy)
    note = "± is half the 95% confidence interval" if interval else one
    if interval and not all(row.interval for row in rows):
        note += f", {one}"
    remedy = " Busy: other programs used the cores, so these times are too long, by an unknown amount."
    return f"{note}.{remedy * busy}"


def _benchmark(row: AnswerRow[Any]) -> str:
    unchecked = next(filter(None, (words.unchecked(item.subject) for item in row.items)), "")
    return f"{row.indented} {unchecked}".rstrip()


_BENCHMARK: Column[AnswerRow[Any]] = Column("benchmark", _benchmark)


def _of_device(source: Source, cell: Callable[[Any], Number | Start | None], row: AnswerRow[Any]) -> Cell:
    item = row.of(source)
    made = MISSING if item is None else cell(item)
    return made if item is None or made is None else made.noted(row.differing(item))


def _columns(study: Study, found: Speedups, brief: bool) -> list[Column[AnswerRow[Pair]]]:
    """The baseline's time and the speedup of each device; of one device its time too, the speedup with copies, and the
    size from which it is faster; unless ``brief`` their ranges."""

    def time(pair: Pair, place: int) -> Number:
        made, other_way = pair.side_time(place), pair.sides[place] is pair.fastest_way
        return made.signed(Sign.OTHER_WAY, other_way) if brief else made.noted(f" by {words.way(pair)}" * other_way)

    def speedup(pair: Pair) -> Number:
        made = pair.full_ratio.without(Sign.OTHER_WAY)
        return made.brief if brief else made

    if len(found.devices) > 1:
        base = Column[AnswerRow[Pair]](found.baseline, lambda row: time(row.items[0], 0))
        devices = (Column(device, partial(_of_device, source, speedup)) for source, device in found.devices.items())
        return [_BENCHMARK, base, *devices]
    ((source, device),) = found.devices.items()
    cells: dict[str, Callable[[Pair], Number | Start]] = {
        words.without_threads(found.baseline): partial(time, place=0),
        words.without_threads(device): partial(time, place=1),
        "speedup": speedup,
        "with copies": attrgetter("copied_ratio"),
        "wins" if found.alike else "GPU wins": lambda pair: study.starts.get(pair, MISSING),
    }
    return [_BENCHMARK, *(Column(head, partial(_of_device, source, cell)) for head, cell in cells.items())]


# Results --------------------------------------------------------------------------------------------------------------


def results_table(study: Study) -> Table:
    """Every measured benchmark, by dtype and size: the table of ``gpubench show``."""

    def order(row: Measured) -> tuple[object, ...]:
        case = row.result
        return case.workload, row.dtype, case.variant, row.numbers, words.setting(case), study.names.order(row)

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
    return table("", columns, sorted(study.measured, key=order), note, [Sign.UNKNOWN] * above)


def beside_each_other(study: Study, head: str = "") -> Table:
    """Return a row for each benchmark and size: its time on the CPU, in NumPy and on each GPU, and the speedups. A
    common name or dtype is the title; ``head`` is the head of the names."""
    by_row = {pair.other: pair for pair in study.pairs}
    same = [of for of in ("workload", "dtype") if len({getattr(row.result, of) for row in study.measured}) == 1]

    def name(at: Mapping[Source, Measured]) -> str:
        case = next(iter(at.values())).result
        told = [words.name(case) * ("workload" not in same)]
        told += words.settings(structs.replace(case, dtype="") if "dtype" in same else case)
        return "  ".join(filter(None, told)) or words.name(case)

    def of(source: Source, cell: Callable[[Measured], Cell], at: Mapping[Source, Measured]) -> Cell:
        return cell(at[source]) if source in at else None

    def compared(cell: Callable[[Pair], Cell], row: Measured) -> Cell:
        return cell(by_row[row]) if row in by_row else None

    cells = grouped(study.measured, lambda row: (row.result.workload, row.setting, repr(row.size)))
    order = {workload: i for i, workload in enumerate(dict.fromkeys(row.result.workload for row in study.measured))}

    def place(rows: list[Measured]) -> tuple[object, ...]:
        workload = rows[0].result.workload
        rival = shown_name(workload) != workload  # expressions are compared at each size
        return (0 if rival else order[workload]), rows[0].numbers, order[workload]

    in_order = sorted(cells.values(), key=place)
    cpu_first = sorted(study.measured, key=lambda row: (row.source.device != "cpu", row.source))
    sources = {row.source: row for row in cpu_first}
    gpus = [source for source in sources if source.device != "cpu"]
    columns: list[Column[Mapping[Source, Measured]]] = [Column(head, name)]
    for source, row in sources.items():
        on_cpu = source.device == "cpu" and not source.library
        suffix = f" {study.names.of(row)}" * (len(gpus) > 1 and source in gpus)
        shown: dict[str, Callable[[Measured], Cell]] = {
            "CPU" if on_cpu and not study.several_runs else study.names.of(row): _time_and_accuracy,
            f"speedup{suffix}": partial(compared, _over_other_way),
            f"with copies{suffix}": partial(compared, attrgetter("copied_ratio")),
        }
        if source in gpus or (not gpus and on_cpu):
            shown |= {f"throughput{suffix}": attrgetter("speed"), f"% of peak{suffix}": attrgetter("peak_share")}
        columns += [Column(head, partial(of, source, cell)) for head, cell in shown.items()]
    shared = [words.name(row.result) if of == "workload" else row.dtype for of in same for row in study.measured[:1]]
    things = [{row.source: row for row in reversed(rows)} for rows in in_order]
    note = f"{_spread(study.measured)} {_ways(study.pairs)}".strip()
    return table(" ".join(shared), columns, things, note, [Sign.OTHER_WAY])


def _over_other_way(pair: Pair) -> Number:
    return pair.full_ratio.without(Sign.UNFILLED)


def _ways(pairs: Sequence[Pair]) -> str:
    """The meaning of the sign of another way, with the ways; empty if there is none."""
    found = words.ways(pairs)
    return f"{Sign.OTHER_WAY} the CPU's fastest way: {'; '.join(found)}." * bool(found)


# Machines side by side ------------------------------------------------------------------------------------------------


def machine_table(study: Study) -> Table:
    """The facts of the runs, a column each; facts that differ come first."""
    runs = study.named_runs
    devices = {device.name for run in runs.values() for device in run.machine.devices if device.accelerator}
    known: dict[str, dict[str, str]] = {}
    for (name, run), parts in zip(runs.items(), facts([*runs.values()], devices), strict=True):
        known[name] = {"machine": run.machine.label} | {fact: told for part in parts for fact, told in part.items()}
        known[name] |= {_BUSY: "unknown" if run.plain else "yes" if run.contended else "no"}
        known[name] |= {"date": run.date} if run.date else {}
    every = dict.fromkeys(fact for each in known.values() for fact in each)
    in_order = sorted(every, key=lambda fact: len({each.get(fact) for each in known.values()}) == 1)
    columns: list[Column[str]] = [Column("what", str)]
    columns += [
        Column(shorten(run), lambda fact, each=each: shorten(each.get(fact, "unknown")))  # type: ignore[misc]
        for run, each in list(known.items())[:_MOST_COLUMNS]
    ]
    return table("Machines", columns, in_order, "What differs comes first." * study.several_runs)


# Details --------------------------------------------------------------------------------------------------------------


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


def main_clause(reason: str | None) -> str:
    """Return a reason without its details: the text before a colon, if there are words on either side."""
    clause, _, details = (reason or "").partition(": ")
    return clause if " " in clause and " " in details else reason or "no reason given"


def unmeasured_by_reason(study: Study) -> list[list[Row]]:
    """Skipped and failed benchmarks; reasons that differ only in their numbers, or in the details after a colon, count
    as one."""

    def shape(row: Row) -> tuple[str, str]:
        return row.result.status, re.sub(r"\d+([.,]\d+)*(e[+-]?\d+)?", "#", main_clause(row.result.reason))

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
    flagged = grouped(((name, row) for row in study.measured for name in row.flags), lambda each: each[0])
    found = []
    for name in (name for name in ADVICE if name in flagged):
        row = flagged[name][0][1]
        seen = [flag.seen for flag in row.result.flags if flag.name == name]
        spread = f"half of the rounds are spread over {row.times.iqr_s / row.time_s:.0%} of the median"
        seen = seen or [f"{row.utilisation:.3g} times the measured peak" if name == IMPLAUSIBLE else spread]
        where = f" on {row.result.device}" if row.result.device else ""
        evidence = f"e.g. {words.benchmark(row.result)}{where}: {shorten(seen[0], 160)}"
        found.append((name, counted(len(flagged[name]), "benchmark"), evidence))
    for run_name, run in study.named_runs.items():
        for flag in run.flags:
            where = f"{len(set(flag.processes))} of {counted(run.processes, 'process')}"
            where += f" of {run_name}" * study.several_runs
            found.append((flag.name, where, shorten(flag.seen, 160)))
    advised = [(*each, ADVICE[each[0]].why, ADVICE[each[0]].remedy) for each in found]
    return listing("Flags", ("flag", "where", "evidence", "possible cause", "what to try"), advised)


def peak_table(study: Study) -> Table:
    """The peaks of each device, measured in the same run: bandwidths by footprint, the smallest first, where a few
    bytes more or less don't matter; then the single figures."""
    rows = []
    for name, run in study.named_runs.items():
        for device, known in run.ceilings.items():
            bands = sorted(known.bandwidth, key=lambda band: band.footprint_bytes)
            places = grouped(bands, lambda band: (text(band.footprint_bytes, "B"), band.level or "memory"))
            peaks = {
                f"bandwidth at {size}, {shorten(level, 16)}": _rates(((b.pattern, b.byte_per_s) for b in alike), "B/s")
                for (size, level), alike in places.items()
            }
            peaks["matrix products"] = _rates(known.throughput.items(), "FLOP/s")
            figures = {
                "launch overhead": (known.launch_floor_s, "s"),
                "host to device": (known.host_to_device_byte_per_s, "B/s"),
                "device to host": (known.device_to_host_byte_per_s, "B/s"),
            }
            peaks |= {what: text(value, unit) for what, (value, unit) in figures.items() if value is not None}
            where = f"{device} · {name}" if study.several_runs else device
            rows += [(where, what, rates) for what, rates in peaks.items() if rates]
    note = "Measured at the start of the run; % of peak rests on them."
    note += " Those of small footprints are too low: a call costs more than its bytes."
    return listing("Measured peaks", ("device", "what", "peak"), rows, note)


def _rates(rates: Iterable[tuple[str, float]], unit: str) -> str:
    return listed([f"{shorten(name, 16)} {text(rate, unit)}" for name, rate in rates], 8)


def method_table(study: Study) -> Table:
    """Return how the numbers were measured, as far as a file has it."""
    rows = study.measured
    waited = ", synchronization included" if all(row.times.timer in TIMERS for row in rows) else ""
    checks = Counter(check.reason or check.status for row in rows if (check := row.result.check))
    passed = f"{checks.pop('passed', 0)} of {len(rows)} benchmarks" if checks else ""
    unchecked = listed([f"{count}: {shorten(why, 120)}" for why, count in checks.most_common()], 9, "; ")
    body = [
        ("clock", ", ".join(sorted({row.times.timer for row in rows}))),
        ("time", "wall time of a call: median of the rounds, then of the processes" + waited),
        ("results checked", passed),
        ("not checked", unchecked),
    ]
    return listing("How it was measured", ("what", "how"), [each for each in body if each[1]])


def scaling_table(study: Study) -> Table:
    """A row for each benchmark of several devices that has a baseline."""
    rows = [each for each in study.scaled if each.speedup and each.parallel.method not in (SINGLE, ONE_THREAD)]
    threads = " or ".join(map(str, sorted({each.base_threads for each in rows if each.base_threads})))
    kinds = words.uncertainty(each.uncertainty for each in rows)
    note = f"On a CPU, one device is one process with one thread, and the single process has all {threads} threads. "
    columns: list[Column[Scaled]] = [
        Column("benchmark", lambda each: words.name(each.row.result)),
        Column("method", lambda each: f"{each.parallel.method}" + (
            f", {counted(each.parallel.microbatches, 'microbatch')}" if each.parallel.microbatches else "")),
        Column("devices", lambda each: f"{each.parallel.devices}" + (
            f" × {counted(each.parallel.threads, 'thread')}" if each.parallel.threads else "")),
        Column("scaling", lambda each: each.parallel.mode or MISSING),
        Column("time", attrgetter("row.time")),
        Column("vs. one device", lambda each: _over(each.scaling)),
        Column("vs. single process", lambda each: _over(each.speedup)),
        Column("efficiency", lambda each: share(each.efficiency.value) if each.efficiency else MISSING),
        Column("ideal", lambda each: known_ratio(each.parallel.ideal_speedup)),
    ]  # fmt: skip
    return table("Multi-GPU and distributed", columns, rows, f"{note}In brackets: {kinds}.")


def _over(pair: Pair | None) -> Number:
    """The speedup with its range; the baseline itself has none."""
    if pair is None:
        return MISSING
    return known_ratio(pair.speedup) if ends(pair) is None else pair.ratio


def detail_tables(study: Study) -> list[Table]:
    """Return all other tables that have a row, the most wanted first."""
    tables = [
        *(speedup_table(study, each) for each in find_speedups(study, study.library_pairs)),
        machine_table(study),
        jobs_table(study),
        unmeasured_table(study),
        flag_table(study),
        peak_table(study),
        method_table(study),
        scaling_table(study),
    ]
    return [each for each in tables if each.rows]


# summary.md -----------------------------------------------------------------------------------------------------------


def summary(answer: Answer, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The answer on one screen, the pictures, and every table folded below them, as Markdown.

    ``pictures`` are titles and stems of the files in ``charts/``."""
    lines = ["# Benchmark report", ""]
    told = filter(None, (answer.sentence, answer.hint, answer.left_out))
    lines += [line for said in told for line in (escape(said), "")]
    lines += [line for warning in answer.warnings for line in (f"> **Warning:** {escape(str(warning))}", "")]
    for each in answer_tables(answer):
        lines += [f"## {escape(each.title)}", "", *markdown(each), ""]
    lines += ["## Charts", ""] * bool(pictures)
    for title, stem in pictures:
        lines += [f'<picture><img alt="{html.escape(title)}" src="charts/{stem}-light.svg"></picture>', ""]
    for each in detail_tables(answer.study):
        head = f"<details><summary>{html.escape(each.title)}</summary>"
        lines += [head, "", *markdown(each), "", "</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"
