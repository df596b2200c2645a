"""summary.md: the answer on one screen, everything else folded below it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from .. import statistics
from ..format import counted, seconds_text, text
from ..runfile.schema import Run
from ..statistics import INTERVAL
from . import provenance, scaling
from .answer import ANSWER_COLUMNS, TIMING_COLUMNS, Answer, crossings_by_pair, pair_key, timing
from .crossover import crossover_table
from .headline import representative
from .judgement import copies_text, crossover_text, peak_text, speedup_words
from .labels import Names, Row, arithmetic, case_name, family, grouped, listed, size_label, size_text
from .metrics import METRICS
from .render import Summary, Table
from .speedup import LeftOut, Pairs, pair
from .sweep import rate_of, sweeps
from .table import CROSSING, LINE, records

_MOST_ROWS = 40


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
    details = (
        *machines,
        workload_table(speedups.table, crossovers, names),
        left_out_table(speedups.left_out),
        launch_table(rows, names),
        rate_table(rows, names),
        provenance.job_table(rows, names),
        provenance.unmeasured_table(rows),
        provenance.flag_table(results),
        provenance.run_flag_table(results),
        provenance.peak_table(results),
        provenance.method_table(runs, rows),
        provenance.machine_table(results, runs),
        scaling.several_devices(scaled),
    )
    return Summary(
        tables=answer_tables(answered),
        left_out=left_out_line(speedups.left_out),
        lead=(answered.sentence, *([answered.hint] if answered.hint else [])),
        warnings=answered.warnings,
        details=tuple(table for table in details if table.rows),
    )


def answer_tables(answered: Answer) -> tuple[Table, ...]:
    """A table a card; the times where there is none."""
    cards = [
        Table(f"{card.device} against {card.baseline}", ANSWER_COLUMNS, tuple(row.cells for row in card.rows), _NOTE)
        for card in answered.cards
    ]
    if answered.times:
        flagged = any(cells.time.endswith("*") for cells in answered.times)
        rows = tuple(cells.cells for cells in answered.times)
        cards.append(Table("Times", TIMING_COLUMNS, rows, "* flagged: see the column flags of results.csv." * flagged))
    return tuple(cards)


_NOTE = (
    "Each benchmark at its largest size. With copies: inputs and results copied for every call. Worth it: at least "
    "1.5× at the low end of the 95% interval, ✓ with copies, ◐ if the data stays on the device."
)


def workload_table(speedups: pd.DataFrame, crossovers: pd.DataFrame, names: Names, most: int = _MOST_ROWS) -> Table:
    """A row for each workload, dtype and device, at the largest size of one setting that is named."""
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
        calls = f"{row['break_even_calls']:,}" if row["break_even_calls"] is not None else "—"
        cells = (case_name(row), names.source(row), against, times, speedup_words(row))
        body.append((*cells, copies_text(row), calls, since))
    kinds = sorted({row["uncertainty"] for row in chosen})
    note = f"In brackets: {', '.join(kinds)}"
    if not all(kind.startswith(INTERVAL) for kind in kinds):
        note += " (the range of one process is no confidence interval; use --processes 3)"
    note += ". Calls: on the same data on the device, until its copies are amortized (— = never). "
    note += "Faster from: the smallest size above which it always is; unsure where the interval allows another answer."
    if len(body) > most:
        note += f" {len(body) - most} more are in speedup.csv."
    columns = ("benchmark", "device", "against", "time", "speedup", "with copies", "calls", "faster from")
    return Table("Speedup", columns, tuple(body[:most]), note)


def overview(results: pd.DataFrame) -> Table:
    """One row for each workload, to paste into a page: speedups where a GPU was measured, else times."""
    names = Names(results)
    pairs = pair(results).table
    if pairs.empty:
        return time_table([row for row in records(results) if row["_result"].times])
    return workload_table(pairs, crossover_table(pairs, names), names, most=len(pairs))


def left_out_table(pairs: Sequence[LeftOut]) -> Table:
    """What was not compared, by what differs."""
    body = []
    groups = grouped(pairs, lambda entry: tuple(entry.terms.items()))
    for key, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        workloads = list(dict.fromkeys(entry.row["workload"] for entry in members))
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
    verb = "has" if len(pairs) == 1 else "have"
    return (
        f"not compared: {counted(len(pairs), 'benchmark')} {verb} no comparable baseline, the nearest differs in "
        f"{words}. Use {options} to compare anyway"
    )


def launch_table(rows: list[Row], names: Names) -> Table:
    """Where launching takes longer than the work, and from which size on it no longer does."""
    known = [row for row in rows if row["device_s"] is not None and row["launch_s"] is not None]
    swept, single = sweeps(known, _busy, names)
    body = []
    for sweep in swept:
        for line in sweep.lines:
            bound = [point.x for point in line.points if point.y < 1]
            if not bound:
                continue
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
    best: dict[tuple[str, ...], tuple[float, Row]] = {}
    for row in rows:
        rate = rate_of(row) if row["_result"].times else None
        values = rate.measure(row) if rate else None
        if rate and values:
            name = row["workload"] if rate.kind == "items" else family(row["workload"])
            key = (name, names.source(row), arithmetic(row), rate.unit)
            if key not in best or values[0] > best[key][0]:
                best[key] = values[0], row
    rated = [row for _, row in best.values()]
    more = [m for m in METRICS.values() if m.in_summary and any(row[m.name] is not None for row in rated)]
    body = [
        (*key[:3], text(value, key[3]), *(_cell(metric.name, row) for metric in more), case_name(row))
        for key, (value, row) in sorted(best.items(), key=lambda entry: entry[0])
    ]
    note = "Throughput = work per call / wall time; bytes: inputs read once, outputs written once."
    if METRICS["utilisation"] in more:
        note += " % of peak = share of the roofline limit measured at the start of the run; — above 100%."
    if len(body) > _MOST_ROWS:
        note += f" {len(body) - _MOST_ROWS} more are in results.csv."
    heads = (metric.label[:1].lower() + metric.label[1:] for metric in more)
    return Table(
        "Highest throughput", ("benchmarks", "device", "dtype", "throughput", *heads, "reached by"),
        tuple(body[:_MOST_ROWS]), note,
    )  # fmt: skip


def _cell(name: str, row: Row) -> str:
    return peak_text(row["utilisation"]) if name == "utilisation" else METRICS[name].words(row[name])


def time_table(rows: Sequence[Row]) -> Table:
    """A row for each workload and dtype measured, at its largest size."""
    groups = grouped(rows, lambda row: (row["workload"], arithmetic(row), row["device"], row["implementation"]))
    return Table("Times", TIMING_COLUMNS, tuple(timing(representative(members)).cells for members in groups.values()))
