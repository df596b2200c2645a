"""``gpubench export``: a results file in the formats of other tools; the time of each benchmark, smaller is better.

Benchmarks without a time are left out of the JSON formats, which can't express them, and named on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunFileError, UsageError
from ..runfile.quantities import listed
from .choice import add_expression

if TYPE_CHECKING:
    from ..report.rows import Measured, Row
    from ..report.study import Study
    from ..runfile.schema import Run

_OF_JSON = ("github-action-benchmark", "bmf", "oss")
EXPORT_FORMATS = (*_OF_JSON, "csv", "markdown", "badge")
CARD = "card"
_ACTION_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="results file, or a folder of them")
    add_expression(parser)
    formats = (
        "github-action-benchmark (its customSmallerIsBetter), bmf (Bencher's metric format), oss (the PyTorch OSS"
        " benchmark database, version 3), csv, markdown: a table with one row for each workload, badge: one figure for"
        " shields.io, that of -k or the first of the answer, or card: a results file fit to be published, without"
        " single rounds"
    )
    add("--to", choices=(*EXPORT_FORMATS, CARD), required=True, help=formats)
    add("-o", "--output", metavar="FILE", help="file to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError or RunFileError for what can't be read or written."""
    from ..report.rows import Measured
    from ..report.study import Study
    from ..runfile import writer
    from .report import read_all

    if args.output:
        writer.require_new(args.output)
    runs = read_all(args.runs)
    study = Study(runs, expression=args.expression)
    content = _card(runs, args.expression) if args.to == CARD else exported(study, args.to, every=bool(args.expression))
    if args.output:
        writer.replace(Path(args.output), content.encode(errors="replace"))
    else:
        sys.stdout.write(content)
    left = [_name(row, study) for row in study.all_rows if not isinstance(row, Measured)]
    if left and args.to in _OF_JSON:
        print(f"gpubench export: not measured and left out: {listed(left, 5)}", file=sys.stderr)
    return 0


def exported(study: Study, to: str, every: bool = False) -> str:
    """The results in one of :data:`EXPORT_FORMATS`; csv is what ``gpubench report`` writes as results.csv."""
    from ..report import columns, render, tables, words

    if to == "github-action-benchmark":
        return _json([_action_entry(name, row) for name, row in _measured(study)])
    if to == "bmf":
        return _json({name: {"latency": _latency(row)} for name, row in _measured(study)})
    if to == "badge":
        return _json(_badge(study))
    if to == "oss":
        return _json([entry for _, row in _measured(study) for entry in _oss_entries(row)])
    if to == "csv":
        return render.csv_text(columns.results_columns(study.all_rows), study.all_rows)
    shown = tables.overview(study, every=every)
    notes = [*dict.fromkeys(f"{words.machine(run)}." for run in study.runs), *filter(None, [shown.note])]
    return "\n".join([*render.markdown(replace(shown, note=" ".join(notes))), ""])


def _card(runs: Sequence[Run], expression: str | None) -> str:
    from ..runfile.card import card_of, card_text
    from ..runfile.reader import content_of

    if len(runs) > 1 or expression:
        raise UsageError("a card is of one whole run: name one results file, without -k")
    return card_text(card_of(content_of(runs[0].path), runs[0].path))


def _json(entries: Any) -> str:
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _action_entry(name: str, row: Measured) -> dict[str, Any]:
    """An entry for ``customSmallerIsBetter`` of github-action-benchmark. ``range`` is half the 95% interval, or with
    one process half the distance of the quartiles; ``extra`` states which. The action converts between these units when
    it compares a value with the previous one."""
    times, interval = row.times, row.interval
    counted = f"{times.rounds} rounds of {times.iterations} calls in {len(times.processes)} processes"
    spread_s, kind = (
        ((interval.high - interval.low) / 2, "95% interval") if interval else (times.iqr_s / 2, "interquartile range")
    )
    extra = f"{counted}; range: {kind}" + (f"; flagged: {', '.join(row.flags)}" if row.result.flags else "")
    unit_s, unit = next((scale for scale in _ACTION_UNITS if row.time_s >= scale[0]), _ACTION_UNITS[-1])
    value, spread = row.time_s / unit_s, spread_s / unit_s
    return {"name": name, "unit": unit, "value": float(f"{value:.6g}"), "range": f"± {spread:#.3g}", "extra": extra}


def _latency(row: Measured) -> dict[str, float]:
    """The latency in nanoseconds, one of Bencher's built-in measures. Its limits are the ends of the 95% interval, or
    with one process the quartiles."""
    ends = (row.interval.low, row.interval.high) if row.interval else (row.times.q1_s, row.times.q3_s)
    values = {"value": row.time_s, "lower_value": ends[0], "upper_value": ends[1]}
    return {name: seconds * 1e9 for name, seconds in values.items()}


def _badge(study: Study) -> dict[str, Any]:
    """The content of an endpoint badge of shields.io: a speedup where a GPU was measured, else the time of one
    benchmark. Raises UsageError for times that mean nothing, and for those of a model."""
    from ..gallery.machines import refusal
    from ..report import words
    from ..report.answer import Answer

    for run in study.runs:
        if (reason := refusal(run)) and not run.plain:
            raise UsageError(f"no badge can be made of these results: {reason}")
    answer = Answer(study)
    shown = next((row.typical for card in answer.cards for row in card.rows if row.typical), None)
    if shown:
        label = f"{words.benchmark(shown.other.result)}: {study.names.of(shown.other)} vs {study.names.of(shown.base)}"
        value, doubtful = words.speedup(shown), shown.noisy
    elif answer.times:
        row = answer.times[0]
        label, doubtful = f"{words.benchmark(row.result)}: {study.names.of(row)}", bool(row.flags)
        value = ", ".join(filter(None, [words.time(row), words.throughput(row)]))
    else:
        raise UsageError("no badge can be made of these results: nothing was measured, or all of it is too noisy")
    colour = "lightgrey" if doubtful else "blue"
    return {"schemaVersion": 1, "label": label, "message": value, "color": colour}


def _oss_entries(row: Measured) -> Iterator[dict[str, Any]]:
    """One entry for each metric; ``benchmark_values`` are the medians of the processes, ``target_value`` is the limit.

    Source of the format: the page "How to integrate with PyTorch OSS benchmark database" of PyTorch's wiki.
    """
    result = row.result
    about = {"device": row.facts.label or result.device, "id": str(result.id)}
    about |= {name: str(value) for name, value in result.params.items()} | {"variant": result.variant}
    about |= {"flags": ", ".join(row.flags)} if row.flags else {}
    mode = {"mode": "training" if result.kind == "training" else "inference"} if result.kind else {}
    terms: dict[str, Any] = {
        "benchmark": {"name": "gpubench", **mode, "dtype": result.dtype, "extra_info": about},
        "model": {"name": result.workload, "type": result.kind or "benchmark", "backend": result.implementation},
    }
    terms["model"]["origins"] = [result.fullname.partition("::")[0]]
    medians = [process.median_s for process in row.times.processes]
    metrics: dict[str, tuple[str, list[float], float | None]] = {"latency": ("s", medians, result.limit_s)}
    metrics |= {"device time": ("s", [result.device_s], None)} if result.device_s else {}
    metrics |= {"peak memory": ("B", [result.memory_bytes], None)} if result.memory_bytes else {}
    for name, (unit, values, target) in metrics.items():
        wanted = {} if target is None else {"target_value": target}
        yield {**terms, "metric": {"name": name, "unit": unit, "benchmark_values": values, **wanted}}


def _measured(study: Study) -> Iterator[tuple[str, Measured]]:
    """Each benchmark with a unique name. Raises RunFileError where there is none."""
    names: Counter[str] = Counter()
    for row in study.measured:
        name = _name(row, study)
        names[name] += 1
        yield name if names[name] == 1 else f"{name} #{names[name]}", row
    if not names:
        paths = ", ".join(str(run.path) for run in study.all_runs)
        raise RunFileError(f"{paths}: benchmarks: expected a measured benchmark, found none")


def _name(row: Row, study: Study) -> str:
    """The name of a benchmark, with the name of its run where there are several runs."""
    from ..compare.samples import key_of

    return f"{row.run_name}: " * study.several_runs + str(key_of(row.result))
