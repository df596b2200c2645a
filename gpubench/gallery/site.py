"""A static site of machines: an index with a line for each, a page for each, and any two of them side by side.

It works from a disk as from a server, and fetches nothing foreign. What :file:`compare.html` needs of a machine is a
script that calls a function with it, as a page on a disk can load scripts and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ..report import words
from ..report.answer import Answer, Concern
from ..report.study import (
    NOISY_FACTOR,
    Measured,
    comparable,
    grouped,
    in_turn,
    measured as measured_rows,
    plainest_first,
    representatives,
    rows_of,
    shared,
)
from ..report.webpage import HERE, Listed, asset, policy, webpage
from ..runfile.quantities import counted
from .machines import Machine, labels as labels_of, on_cpu, on_gpu

_MOST, _MOST_HAVE = 10, 0.8
"""Benchmarks in the index; each in a setting that nearly as many machines have as any of its settings."""
_LEGEND = (
    "Times are of one call on the first GPU, on a machine without one on the CPU; shorter is better. ± is half the 95%"
    " interval, ~ half the interquartile range of a single process; * noisy: may be far off; — not measured."
)
_COMPARED = (
    "Each benchmark as both measured it, and in brackets the range between the ends of both 95% intervals, or of the"
    " quartiles where it was one process. Of a kind of work, the benchmark in the middle of those that both have, each"
    " at its largest size; and the range of all. GPUs are compared with GPUs, CPUs with CPUs."
)


def site(
    shown: Sequence[Machine], version: str, pictures: bool = True, home: str = ""
) -> Iterator[tuple[str, str | bytes]]:
    """Every file by its name in the site, made by this ``version``; ``pictures`` are drawn with matplotlib. ``home`` is
    the address of the site that the gallery belongs to."""
    labels = labels_of(shown)
    columns, answers = _columns(shown), []
    for machine in shown:
        answer = Answer(machine.study)
        answers.append(_said(answer))
        yield from _report(machine, answer, labels[machine.ident], version, pictures)
        data = json.dumps(_data(machine, answer, labels[machine.ident]), ensure_ascii=False, separators=(",", ":"))
        yield f"machines/{machine.ident}.js", f"machine({json.dumps(machine.ident)}, {data});\n"
    back = f'<p><a href="{escape(home)}">What gpubench is, and how to measure your machine</a></p>' if home else ""
    yield "index.html", _page("Machines", back + _index(shown, labels, columns, answers), "index.js", version)
    body = _side("a", shown, labels) + _side("b", shown, labels)
    body = f'<p><a href="index.html">All machines</a></p><div class="tools">{body}</div>'
    body += f'<div id="comparison" data-noisy="{NOISY_FACTOR}"></div><p class="muted">{_COMPARED}</p>'
    yield "compare.html", _page("Two machines side by side", body, "compare.js", version, scripts=HERE)


def _page(title: str, body: str, script: str, version: str, scripts: str = "") -> str:
    style, code = asset("page.css") + _asset("gallery.css"), asset("shared.js") + _asset(script)
    allowed = policy(style, code, scripts=scripts)
    known = {"policy": allowed, "version": escape(version), "title": title, "style": style, "script": code}
    return Template(_asset("gallery.html")).substitute(known, body=body)


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


# A machine's page and data --------------------------------------------------------------------------------------------


def _report(
    machine: Machine, answer: Answer, label: str, version: str, pictures: bool
) -> Iterator[tuple[str, str | bytes]]:
    """Yield the report of a machine, and its first picture in files beside the page, of which a reader loads only
    one."""
    drawn: list[tuple[str, str, str]] = []
    if pictures:
        from ..report.charts.headline_chart import headline_figures
        from ..report.charts.pictures import drawable, embedded

        for title, light, dark in embedded(drawable(headline_figures(answer.study)[:1])[0]):
            drawn.append((title, f"{machine.ident}-light.svg", f"{machine.ident}-dark.svg"))
            yield from zip((f"machines/{name}" for name in drawn[0][1:]), (light, dark), strict=True)
    facts = f"measured {machine.date}" + (f" by the {machine.measured_by}" if machine.measured_by else "")
    links = f'<a href="../index.html">All machines</a><a href="../compare.html#a={machine.ident}">Compare</a>'
    above = f'<nav aria-label="Gallery">{links}<span class="muted">{escape(facts)}</span></nav>'
    yield f"machines/{machine.ident}.html", webpage(answer, drawn, version, Listed(label, above))


def _said(answer: Answer) -> tuple[str, str]:
    """Return the answer's sentence, and a warning if times may be far off."""
    return answer.sentence, next((str(w) for w in answer.warnings if w.what in (Concern.BUSY, Concern.NOISY)), "")


def _data(machine: Machine, answer: Answer, label: str) -> dict[str, Any]:
    """Return what a comparison needs: facts, and rows of the GPU and of the CPU, each with the key that makes them
    comparable."""
    gpu, cpu = machine.called
    known = {fact: value for fact, value in words.facts(machine.run).items() if fact != "machine"}
    facts = {"measured": machine.date, "measured by": machine.measured_by} | known
    sides = {"GPU": (gpu, on_gpu(answer.study.measured)), "CPU": (cpu, on_cpu(answer.study.measured))}
    return {
        "label": label,
        "facts": {"GPU": gpu or "none", "CPU": cpu, **facts},
        "said": _said(answer),
        "devices": {kind: {"name": name, "rows": _rows(rows)} for kind, (name, rows) in sides.items() if rows},
    }


def _rows(rows: Sequence[Measured]) -> list[list[Any]]:
    """Return all rows, workload by workload. The plainest one at the largest size comes first: it represents the
    workload if the other machine has it too."""
    kinds = list(representatives(rows))
    workloads = grouped(rows, lambda row: row.result.workload).values()
    by_kind = sorted(workloads, key=lambda of: kinds.index(of[0].heading) if of[0].heading in kinds else len(kinds))
    return [_row(row, _kind(row) if row.heading in kinds else "") for of in by_kind for row in plainest_first(of)]


def _kind(row: Measured) -> str:
    """Return what one ratio may represent: a kind of work, or a single network."""
    return words.name(row.result) if row.kind and row.kind.unlike else row.heading


def _row(row: Measured, kind: str) -> list[Any]:
    """Return a row as a list, in the order in which ``compare.js`` unpacks it; seconds have four digits."""
    low, high = (row.interval.low, row.interval.high) if row.interval else (row.times.q1_s, row.times.q3_s)
    numbers = [float(f"{value:.4g}") for value in (row.time_s, low, high)]
    case, unknown = row.result, int(row.waited or row.busy_alone)
    terms = comparable(row), kind, words.name(case), words.setting(case)
    return [*terms, *numbers, words.time_and_spread(row), unknown]


# The index ------------------------------------------------------------------------------------------------------------


def _columns(shown: Sequence[Machine]) -> list[tuple[str, dict[Path, Measured]]]:
    """The benchmarks of the index, of each kind of work in turn, those of the most machines first: what each is called,
    and its result on each machine that has it, by the path of its file."""
    by_run = grouped(measured_rows(rows_of([machine.run for machine in shown])), lambda row: row.run_name)
    rows = [row for own in by_run.values() for row in on_gpu(own) or on_cpu(own)]
    found = []
    for first in in_turn(representatives(rows), _MOST):
        same = shared([row for row in rows if row.result.workload == first.result.workload], _MOST_HAVE)
        found.append((words.benchmark(same[0].result), {row.run.path: row for row in same}))
    return found


def _index(
    shown: Sequence[Machine],
    labels: dict[str, str],
    columns: Sequence[tuple[str, dict[Path, Measured]]],
    said: Sequence[tuple[str, str]],
) -> str:
    by = any(machine.measured_by for machine in shown)
    heads = ["machine", *(name for name, _ in columns), "measured", *["by"] * by]
    sortable = "".join(f'<th scope="col"><button type="button">{escape(head)}</button></th>' for head in heads)
    bodies = [
        _line(machine, labels[machine.ident], [rows.get(machine.run.path) for _, rows in columns], said[i], len(heads))
        for i, machine in enumerate(shown)
    ]
    choice = (
        '<label>measured by <select id="by"><option value="">anybody</option>'
        '<option value="maintainers">the maintainers</option><option value="community">the community</option></select>'
        "</label>"
    )
    return f"""<p class="sentence">{_counts(shown)}</p>
<div class="tools"><input id="search" type="search" placeholder="search: H200" aria-label="Search the machines">
{choice * by}<span id="count" class="muted" aria-live="polite"></span>
<a id="compare" href="compare.html"{" hidden" * (len(shown) < 2)}>tick two to compare them</a></div>
<div class="scroll" tabindex="0" role="region" aria-label="Machines"><table id="machines" class="machines">
<thead><tr><td></td>{sortable}</tr></thead>
{"".join(bodies)}</table></div>
<p class="muted">{_LEGEND}</p>"""


def _counts(shown: Sequence[Machine]) -> str:
    """Return how many runs, GPU models and CPU models there are; two runs of one machine count as one model."""
    gpus, cpus = (
        {next((d.label for d in m.run.machine.devices if d.accelerator == gpu), "") for m in shown if m.called[not gpu]}
        for gpu in (True, False)
    )
    parts = [f"{counted(len(gpus), 'model')} of GPU" if gpus else "no GPU", f"{counted(len(cpus), 'model')} of CPU"]
    return f"{counted(len(shown), 'run')}: {', '.join(parts)}."


def _line(machine: Machine, label: str, results: Sequence[Measured | None], said: tuple[str, str], columns: int) -> str:
    """Return two rows: the numbers, and below them the sentence."""
    name, devices = escape(label), " · ".join(filter(None, machine.called))
    cells = [*map(_cell, results), f'<td class="number">{escape(machine.date)}</td>']
    cells += [f"<td>{machine.measured_by}</td>"] * bool(machine.measured_by)
    warning = f' <span class="warning">⚠ {escape(said[1])}</span>' if said[1] else ""
    small = "" if devices in label else f"<br><small>{escape(devices)}</small>"
    return f"""<tbody id="{machine.ident}" data-by="{machine.measured_by}"><tr>
<td><input type="checkbox" aria-label="compare {name}"></td>
<th scope="row"><a href="machines/{machine.ident}.html">{name}</a>{small}</th>{"".join(cells)}</tr>
<tr><td colspan="{columns + 1}"><div class="said">{escape(said[0])}{warning}</div></td></tr></tbody>
"""


def _cell(row: Measured | None) -> str:
    if row is None:
        return f"<td>{words.NO_VALUE}</td>"
    time, spread = words.time(row), words.precision(row)
    return f'<td class="number" data-value="{row.time_s:.4g}">{escape(time)}<br><small>{escape(spread)}</small></td>'


def _side(name: str, shown: Sequence[Machine], labels: dict[str, str]) -> str:
    options = "".join(
        f'<option value="{machine.ident}">{escape(labels[machine.ident])}, {escape(machine.date)}</option>'
        for machine in shown
    )
    return f'<label>{"machine" if name == "a" else "against"} <select id="{name}">{options}</select></label>'
