"""Every table of a report, each a list of columns."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from msgspec import structs

from ..runfile.facts import facts
from ..runfile.flags import ADVICE, CONTENDED, Reason
from ..runfile.quantities import UNFILLED, bytes_text, counted, listed, ratio_text, seconds_text, shorten, text
from ..runfile.schema import TIMERS, Bandwidth, Run
from ..statistics.intervals import INTERVAL
from . import words
from .answer import Answer, AnswerRow, Speedups, answer_rows, choose_rows
from .render import Column, Table, escape, markdown, table
from .study import ONE_THREAD, SINGLE, LeftOut, Measured, Pair, Row, Scaled, Source, Study, ends, grouped, too_noisy

_MOST_ROWS, _MOST_COLUMNS = 40, 6
_BUSY = "machine busy"
_SMOKE = "smoke: checks that the benchmarks work, its times mean nothing"
_LIKE = "Like with like: in the same way on both sides. The speedup beside it is over the CPU's fastest way."


# The answer -----------------------------------------------------------------------------------------------------------

TIMES: list[Column[Measured]] = [
    Column("time", words.time),
    Column("throughput", words.throughput),
    Column("% of peak", words.share_of_peak),
]


def answer_tables(answer: Answer, most: int | None = None) -> list[Table]:
    """Return a table for each baseline, with a column of speedups for each device; the table of times if nothing is
    compared. ``most`` rows and no small print for a screen."""
    study, tables = answer.study, []
    for found in answer.speedups:
        shown = choose_rows(found.rows, most) if most else found.rows
        ratio = words.ratio if most else words.speedup
        columns = (_one_device if len(found.devices) == 1 else _several_devices)(study, found, ratio)
        differ = listed(sorted({pair.differs for pair in found.pairs if pair.differs}), 3)
        note = _note(found.rows, shown) + f" Compared although they differ: {differ}." * bool(differ and not most)
        tables.append(table(f"Speedup over {found.baseline}", columns, shown, note.strip()))
    if answer.times:
        shown_times = choose_rows(answer.times, most) if most else answer.times
        devices = {row.source: row for each in answer.times for row in each.items}
        names = {source: study.names.of(row) if len(devices) > 1 else "" for source, row in devices.items()}
        columns_of_times: list[Column[AnswerRow[Measured]]] = [_BENCHMARK]
        for source, name in names.items():
            columns_of_times += [
                Column(f"{name} {each.head}".strip(), partial(_of_device, source, each.cell)) for each in TIMES
            ]
        tables.append(table("Times", columns_of_times, shown_times, _note(answer.times, shown_times)))
    return tables


def _benchmark(row: AnswerRow[Any]) -> str:
    unverified = next(filter(None, (words.unverified(item.subject) for item in row.items)), "")
    return f"{row.indented} {unverified}".rstrip()


_BENCHMARK: Column[AnswerRow[Any]] = Column("benchmark", _benchmark)


def _of_device(source: Source, cell: Callable[[Any], object], row: AnswerRow[Any]) -> object:
    item = row.of(source)
    return words.NO_VALUE if item is None else f"{cell(item)}{row.differing(item)}"


def _one_device(study: Study, found: Speedups, ratio: Callable[[Pair], str]) -> list[Column[AnswerRow[Pair]]]:
    """Both times, the speedup, that with copies, and the size from which the device is faster."""
    ((source, device),) = found.devices.items()
    cells: dict[str, Callable[[Pair], str]] = {
        words.without_threads(found.baseline): partial(words.side_time, place=0),
        words.without_threads(device): partial(words.side_time, place=1),
        "speedup": lambda pair: ratio(pair) + UNFILLED * (not pair.fills),
        "like with like": words.like_with_like,
        "with copies": words.with_copies,
        "wins from" if found.alike else "GPU wins from": lambda pair: study.starts.get(id(pair), words.NO_VALUE),
    }
    return [_BENCHMARK, *(Column(head, partial(_of_device, source, cell)) for head, cell in cells.items())]


def _several_devices(study: Study, found: Speedups, ratio: Callable[[Pair], str]) -> list[Column[AnswerRow[Pair]]]:
    """The baseline's time, and the speedup of each device."""

    def speedup(pair: Pair) -> str:
        return ratio(pair) + UNFILLED * (not pair.fills)

    base = Column[AnswerRow[Pair]](found.baseline, lambda row: words.side_time(row.items[0], 0))
    devices = (Column(device, partial(_of_device, source, speedup)) for source, device in found.devices.items())
    return [_BENCHMARK, base, *devices]


def _note(rows: Sequence[AnswerRow[Any]], shown: Sequence[AnswerRow[Any]]) -> str:
    """What holds for all rows: the sizes, the dtype where none is named, and how many there are."""
    dtypes = {item.subject.dtype for row in rows if row.leads for item in row.items}
    note = "Each at its largest size" + "; float32 where no dtype is named" * ("float32" in dtypes)
    return f"{note}; {len(rows) - len(shown)} more in the report." if len(shown) < len(rows) else f"{note}."


# Results --------------------------------------------------------------------------------------------------------------


def results_table(study: Study) -> Table:
    """Every measured benchmark: what ``gpubench show`` prints."""
    columns: list[Column[Measured]] = [
        Column("run", lambda row: row.run_name if study.several_runs else ""),
        Column("benchmark", lambda row: words.benchmark(row.result)),
        Column("device", study.names.of),
        Column("time", words.time),
        Column(
            "spread",
            words.precision,
            "Spread: half the 95% interval; ~ of one process, half "
            "the interquartile range; busy: other programs took part of the time, and no interval says how much.",
        ),
        Column("throughput", words.throughput),
        Column("% of peak", words.share_of_peak),
    ]
    above = "— above the measured peak (the peak was measured too low)." * any(
        row.quality.doubt is Reason.ABOVE_PEAK for row in study.measured
    )
    noisy = "* noisy: may be far off; why: the column flags of results.csv." * any(
        row.quality.star for row in study.measured
    )
    return table("", columns, study.measured, " ".join(filter(None, [noisy, above])))


def beside_each_other(study: Study) -> Table:
    """Return a row for each benchmark and size: its time on the CPU, in NumPy and on each GPU, and the speedups."""
    by_row = {id(pair.other): pair for pair in study.pairs}
    same = [of for of in ("workload", "dtype") if len({getattr(row.result, of) for row in study.measured}) == 1]

    def name(at: Mapping[Source, Measured]) -> str:
        case = next(iter(at.values())).result
        told = [words.name(case) * ("workload" not in same)]
        told += words.settings(structs.replace(case, dtype="") if "dtype" in same else case)
        return "  ".join(filter(None, told)) or words.name(case)

    def of(source: Source, cell: Callable[[Measured], str], at: Mapping[Source, Measured]) -> str:
        return cell(at[source]) if source in at else ""

    def compared(cell: Callable[[Pair], str], row: Measured) -> str:
        return cell(by_row[id(row)]) if id(row) in by_row else ""

    cells = grouped(study.measured, lambda row: (row.result.workload, row.setting, repr(row.size)))
    order = {workload: i for i, workload in enumerate(dict.fromkeys(row.result.workload for row in study.measured))}
    in_order = sorted(cells.values(), key=lambda rows: (rows[0].numbers, order[rows[0].result.workload]))
    cpu_first = sorted(study.measured, key=lambda row: (row.source.device != "cpu", row.source))
    sources = {row.source: row for row in cpu_first}
    gpus = [source for source in sources if source.device != "cpu"]
    columns: list[Column[Mapping[Source, Measured]]] = [Column("", name)]
    for source, row in sources.items():
        on_cpu = source.device == "cpu" and not source.library
        suffix = f" {study.names.of(row)}" * (len(gpus) > 1 and source in gpus)
        shown: dict[str, Callable[[Measured], str]] = {
            "CPU" if on_cpu and not study.several_runs else study.names.of(row): words.time_and_spread,
            f"speedup{suffix}": partial(compared, words.speedup),
            f"with copies{suffix}": partial(compared, words.with_copies),
        }
        if source in gpus or (not gpus and on_cpu):
            shown |= {f"throughput{suffix}": words.throughput, f"% of peak{suffix}": words.share_of_peak}
        columns += [Column(head, partial(of, source, cell)) for head, cell in shown.items()]
    note = "± is half the 95% confidence interval."
    if all(len(row.times.processes) < 2 for row in study.measured):
        note = "~ is half the interquartile range of one process; --processes 3 gives a 95% interval."
    return table("", columns, [{row.source: row for row in reversed(rows)} for rows in in_order], note)


# Speedups -------------------------------------------------------------------------------------------------------------


def speedup_table(study: Study, chosen: Sequence[Pair]) -> Table:
    """A row for each of these pairs."""
    kinds = sorted({pair.uncertainty for pair in chosen})
    exact = all(kind.startswith(INTERVAL) for kind in kinds)
    note = f"In brackets: {f'{INTERVAL}s of several processes' if exact and len(kinds) > 1 else ', '.join(kinds)}"
    note += "." if exact else " (range of one process, not a confidence interval; use --processes 3)."
    columns: list[Column[Pair]] = [
        Column("benchmark", lambda pair: words.benchmark(pair.other.result)),
        Column("device", lambda pair: study.names.of(pair.other)),
        Column("against", lambda pair: study.names.of(pair.base) + (f" ({pair.differs})" if pair.differs else "")),
        Column("time", lambda pair: f"{seconds_text(pair.base_s)} → {seconds_text(pair.time_s)}"
               + "*" * pair.quality.noisy),
        Column("speedup", words.speedup),
        Column("against the CPU's", words.way),
        Column("like with like", words.like_with_like, _LIKE),
        Column("with copies", words.with_copies),
        Column("faster from", lambda pair: study.starts.get(id(pair), words.NO_VALUE),
               "Faster from: the smallest size above which it always is; unsure where the interval allows otherwise."),
    ]  # fmt: skip
    return table("Speedup", columns, chosen, note)


def overview(study: Study, every: bool = False) -> Table:
    """The rows of the answer, to paste into a page: speedups where a GPU was measured, else times with their intervals;
    with ``every`` a row for each size."""
    answer = Answer(study)
    if study.device_pairs:
        compared = [pair for found in answer.speedups for pair in found.pairs]
        return speedup_table(study, study.device_pairs if every or not compared else compared)
    columns: list[Column[Measured]] = [
        Column("benchmark", lambda row: " ".join(filter(None, [words.benchmark(row.result), words.unverified(row)]))),
        Column("device", study.names.of),
        Column("time", words.time),
        Column(INTERVAL, words.interval),
        *TIMES[1:],
    ]
    rows = study.measured if every else [row for each in answer.times for row in each.items]
    return table("Times", columns, rows)


def left_out_table(left_out: Sequence[LeftOut]) -> Table:
    """What was not compared, by what differs."""
    groups = grouped(left_out, lambda each: tuple(each.differences.items()))
    in_order = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    columns: list[Column[tuple[tuple[tuple[str, str], ...], list[LeftOut]]]] = [
        Column("what differs", lambda group: ", ".join(words for _, words in group[0])),
        Column("benchmarks", lambda group: len(group[1])),
        Column("which", lambda group: _names(each.row for each in group[1])),
        Column("to compare them", lambda group: " ".join(f"--allow {term}" for term, _ in group[0])),
    ]
    note = "Benchmarks without a comparable baseline. With --allow the difference is named beside the speedup."
    return table("Not compared", columns, in_order, note, _MOST_ROWS)


def _names(rows: Iterable[Row]) -> str:
    return listed(dict.fromkeys(words.name(row.result) for row in rows), 4)


# Machines side by side ------------------------------------------------------------------------------------------------


def differences(study: Study) -> Table:
    """Return the facts that differ between the runs, one row per fact; the note lists those that are equal."""
    runs = study.named_runs
    devices = {device.name for run in runs.values() for device in run.machine.devices if device.accelerator}
    found = zip(runs, facts([*runs.values()], devices), strict=True)
    known = {run: {name: words for part in parts for name, words in part.items()} for run, parts in found}
    for name, run in runs.items():
        known[name][_BUSY] = "yes" if any(flag.name == CONTENDED for flag in run.flags) else "no"
    every = list(dict.fromkeys(fact for each in known.values() for fact in each))
    differ = [fact for fact in every if len({each.get(fact) for each in known.values()}) > 1]
    agreed = [fact for fact in every if fact not in (*differ, _BUSY)]
    columns: list[Column[str]] = [Column("what", str)]
    columns += [
        Column(shorten(run), lambda fact, each=each: shorten(each.get(fact, "unknown")))  # type: ignore[misc]
        for run, each in list(known.items())[:_MOST_COLUMNS]
    ]
    several = len({run.machine.label for run in runs.values()}) > 1
    note = f"The same everywhere: {', '.join(agreed)}." if agreed else ""
    return table(f"What differs between the {'machines' if several else 'runs'}", columns, differ, note)


# Details --------------------------------------------------------------------------------------------------------------


def rate_table(study: Study) -> Table:
    """The highest rate of each family, dtype and device."""

    def rating(row: Measured) -> tuple[bool, float]:
        return not row.quality.doubt, row.throughput.value if row.throughput else 0.0

    rated = [row for row in study.measured if row.rate and row.throughput]
    groups = grouped(rated, lambda row: (_rated_name(row), study.names.of(row), words.arithmetic(row), row.rate))
    best = [max(groups[key], key=rating) for key in sorted(groups, key=lambda key: (*key[:3], str(key[3])))]
    columns: list[Column[Measured]] = [
        Column("benchmarks", _rated_name),
        Column("device", study.names.of),
        Column("dtype", words.arithmetic),
        Column("throughput", words.throughput, "Throughput = work per call / wall time."),
        Column("% of peak", words.share_of_peak,
               "% of peak = share of the roofline limit measured at the start of the run."),
        Column("peak memory", lambda row: bytes_text(row.result.memory_bytes)),
        Column("energy per call", lambda row: text(row.result.energy_j, "J")),
        Column("items/J", lambda row: text(row.item_per_j, "/J")),
        Column("reached by", lambda row: words.benchmark(row.result)),
    ]  # fmt: skip
    return table("Highest throughput", columns, best, "", _MOST_ROWS)


def _rated_name(row: Measured) -> str:
    if (row.rate and row.rate.amount == "items") or row.own:
        return words.name(row.result)
    return row.kind.heading if row.kind else row.family


def jobs_table(study: Study) -> Table:
    """Jobs of many equal steps, of which one was measured."""
    columns: list[Column[Measured]] = [
        Column("job", lambda row: words.benchmark(row.result)),
        Column("device", study.names.of),
        Column("steps", lambda row: f"{row.result.steps:,}"),
        Column("one step", lambda row: text(row.time_s, "s")),
        Column("all steps", lambda row: seconds_text((row.result.steps or 0) * row.time_s)),
    ]
    note = "Derived, not measured: the time of one step times the number of steps."
    return table("Whole jobs", columns, [row for row in study.measured if row.result.steps], note)


def main_clause(reason: str | None) -> str:
    """Return a reason without its details: what stands before a colon, if there are words on either side."""
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
        Column("which", _names),
    ]
    return table("Skipped and failed", columns, unmeasured_by_reason(study))


def flag_table(study: Study) -> Table:
    """Every flag of a benchmark, and of whole processes, which may raise the same one more than once; with what to
    try."""
    flagged = grouped(((name, row) for row in study.measured for name in row.flags), lambda each: each[0])
    found = []
    for name in (name for name in ADVICE if name in flagged):
        row = flagged[name][0][1]
        seen = [flag.seen for flag in row.result.flags if flag.name == name]
        seen = seen or [f"{row.utilisation:.3g} times the measured peak"]
        where = f" on {row.result.device}" if row.result.device else ""
        evidence = f"e.g. {words.benchmark(row.result)}{where}: {shorten(seen[0], 160)}"
        found.append((name, counted(len(flagged[name]), "benchmark"), evidence))
    for run_name, run in study.named_runs.items():
        for flag in run.flags:
            where = f"{len(set(flag.processes))} of {counted(run.processes, 'process')}"
            where += f" of {run_name}" * study.several_runs
            found.append((flag.name, where, shorten(flag.seen, 160)))
    columns: list[Column[tuple[str, str, str]]] = [
        *(Column[tuple[str, str, str]](head, itemgetter(i)) for i, head in enumerate(("flag", "where", "evidence"))),
        Column("possible cause", lambda each: ADVICE[each[0]].why),
        Column("what to try", lambda each: ADVICE[each[0]].remedy),
    ]
    return table("Flags", columns, found)


def peak_table(study: Study) -> Table:
    """The peaks of each device, measured in the same run."""
    body = [
        (f"{device} · {name}" if study.several_runs else device, what, peak)
        for name, run in study.named_runs.items()
        for device in run.ceilings
        for what, peak in _peaks(run, device)
        if peak
    ]
    heads = ("device", "what", "peak")
    columns = [Column[tuple[str, str, str]](head, itemgetter(i)) for i, head in enumerate(heads)]
    note = "Measured at the start of the run; % of peak and the roofline rest on them."
    return table("Measured peaks", columns, body, note)


def _peaks(run: Run, device: str) -> Iterable[tuple[str, str]]:
    """Bandwidths by footprint, the smallest first: a few bytes more or less don't matter; then the single figures."""
    known = run.ceilings[device]
    entries: list[Bandwidth] = sorted(known.bandwidth, key=lambda entry: entry.footprint_bytes)
    footprints = grouped(entries, lambda entry: (bytes_text(entry.footprint_bytes), entry.level))
    for (size, level), patterns in footprints.items():
        rates = [f"{shorten(entry.pattern, 16)} {text(entry.byte_per_s, 'B/s')}" for entry in patterns]
        yield f"bandwidth at {size}, {shorten(level or 'memory', 16)}", listed(rates, 8)
    rates = [f"{shorten(dtype, 16)} {text(rate, 'FLOP/s')}" for dtype, rate in known.throughput.items()]
    yield "matrix products", listed(rates, 8)
    yield "launch overhead", text(known.launch_floor_s, "s") if known.launch_floor_s else ""
    for way in ("host_to_device", "device_to_host"):
        rate = getattr(known, f"{way}_byte_per_s")
        yield way.replace("_", " "), text(rate, "B/s") if rate else ""


def method_table(study: Study) -> Table:
    """Return how the numbers were measured; what isn't in any file is left out."""

    def join(values: Iterable[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))

    rows, runs = study.measured, study.runs
    waited = ", synchronization included" if all(row.times.timer in TIMERS for row in rows) else ""
    named = " except for dtype tf32" if any(row.dtype == "tf32" for row in rows) else ""
    checks = Counter(check.reason or check.status for row in rows if (check := row.result.check))
    passed = f"{checks.pop('passed', 0)} of {len(rows)} benchmarks" if checks else ""
    unchecked = [f"{count}: {shorten(why, 120)}" for why, count in checks.most_common(3)]
    more = checks.total() - sum(count for _, count in checks.most_common(3))
    unchecked += [f"{more} for other reasons, see results.csv"] * bool(more)
    body = [
        ("clock", join(sorted({row.times.timer for row in rows}))),
        ("time", "wall time of a call: median of the rounds, then of the processes" + waited),
        ("processes", join(run.processes for run in runs)),
        ("TF32", join(words.SWITCH[run.machine.tf32] for run in runs if run.machine.tf32 is not None) + named),
        ("results verified", passed),
        ("not verified", "; ".join(unchecked)),
        ("preset", join(run.preset and (_SMOKE if run.preset == "smoke" else run.preset) for run in runs)),
        ("gpubench", join(run.version for run in runs)),
    ]
    columns = [Column[tuple[str, str]](head, itemgetter(i)) for i, head in enumerate(("what", "how"))]
    return table("How it was measured", columns, [each for each in body if each[1]])


def machine_table(study: Study) -> Table:
    """Return the machines, one row per run."""
    columns: list[Column[tuple[str, Run]]] = [
        Column("run", lambda each: each[0]),
        Column("machine", lambda each: each[1].machine.label),
        Column("devices", lambda each: "; ".join(f"{d.name}: {d.label}" if d.label else d.name
                                                 for d in each[1].machine.devices)),
        Column("torch", lambda each: each[1].machine.torch or words.NO_VALUE),
        Column("threads", lambda each: each[1].machine.threads or words.NO_VALUE),
        Column("date", lambda each: each[1].date or words.NO_VALUE),
        Column("measured", lambda each: sum(result.times is not None for result in each[1].results)),
    ]  # fmt: skip
    return table("Machines", columns, study.named_runs.items())


def scaling_table(study: Study) -> Table:
    """A row for each benchmark of several devices that has a baseline."""
    rows = [each for each in study.scaled if each.speedup and each.parallel.method not in (SINGLE, ONE_THREAD)]
    threads = " or ".join(map(str, sorted({each.base_threads for each in rows if each.base_threads})))
    kinds = ", ".join(sorted({each.uncertainty for each in rows if each.uncertainty}))
    note = f"On a CPU, one device is one process with one thread, and the single process has all {threads} threads. "
    columns: list[Column[Scaled]] = [
        Column("benchmark", lambda each: words.name(each.row.result)),
        Column("method", lambda each: f"{each.parallel.method}" + (
            f", {counted(each.parallel.microbatches, 'microbatch')}" if each.parallel.microbatches else "")),
        Column("devices", lambda each: f"{each.parallel.devices}" + (
            f" × {counted(each.parallel.threads, 'thread')}" if each.parallel.threads else "")),
        Column("scaling", lambda each: each.parallel.mode or words.NO_VALUE),
        Column("time", lambda each: words.time(each.row)),
        Column("vs. one device", lambda each: _over(each.scaling)),
        Column("vs. single process", lambda each: _over(each.speedup)),
        Column("efficiency", lambda each: f"{each.efficiency.value:.0%}" if each.efficiency else words.NO_VALUE),
        Column("ideal", lambda each: ratio_text(each.parallel.ideal_speedup) if each.parallel.ideal_speedup else "—"),
    ]  # fmt: skip
    return table("Multi-GPU and distributed", columns, rows, f"{note}In brackets: {kinds}.")


def _over(pair: Pair | None) -> str:
    """The speedup with its range; the baseline itself has none."""
    if pair is None:
        return words.NO_VALUE
    shown = ratio_text(pair.ratio.value)
    if (known := ends(pair)) is None:
        return shown
    return Reason.TOO_NOISY if too_noisy(*known) else f"{shown} ({'–'.join(map(ratio_text, known))})"


def detail_tables(study: Study) -> list[Table]:
    """Return all other tables that have a row, the most wanted first."""
    libraries = [pair for row in answer_rows(study, study.pairs) for pair in row.items]
    tables = [
        *([differences(study)] if study.several_runs else []),
        *([] if study.device_pairs else [speedup_table(study, libraries)]),
        left_out_table(study.left_out),
        rate_table(study),
        jobs_table(study),
        unmeasured_table(study),
        flag_table(study),
        peak_table(study),
        method_table(study),
        machine_table(study),
        scaling_table(study),
    ]
    return [each for each in tables if each.rows]


# summary.md -----------------------------------------------------------------------------------------------------------


def summary(answer: Answer, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The answer on one screen, the pictures, and every table folded below them, as Markdown.

    ``pictures`` are titles and stems of the files in ``charts/``."""
    lines = ["# Benchmark report", ""]
    lines += [line for said in filter(None, (answer.sentence, answer.hint)) for line in (escape(said), "")]
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
