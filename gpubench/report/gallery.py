"""A static site of machines: an index with a line for each, a page for each, and any two of them side by side.

It works from a disk as from a server, and fetches nothing foreign. What :file:`compare.html` needs of a machine is a
script that calls a function with it, as a page on a disk can load scripts and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import count
from pathlib import Path
from string import Template
from typing import Any

from ..runfile.quantities import bytes_text, counted, shorten
from ..runfile.schema import DeviceFacts, Run
from . import words
from .answer import Answer, Concern
from .study import (
    NOISY_FACTOR,
    Measured,
    Study,
    comparable,
    grouped,
    in_turn,
    measured as measured_rows,
    plainest_first,
    representatives,
    rows_of,
    shared,
)
from .webpage import HERE, Listed, asset, policy, webpage

MAINTAINERS = "maintainers"
"""Files in a folder of this name were measured by a gallery's maintainers, all others by its community."""
_MOST, _MOST_HAVE = 10, 0.8
"""Benchmarks in the index; each in a setting that nearly as many machines have as any of its settings."""
_MODELLED = re.compile(r"\b(modelled|simulated)\b", re.IGNORECASE)
_LEGEND = (
    "Times are of one call on the first GPU, on a machine without one on the CPU; shorter is better. ± is half the 95%"
    " interval, ~ half the interquartile range of a single process; * noisy: may be far off; — not measured."
)
_COMPARED = (
    "Each benchmark as both measured it, and in brackets the range between the ends of both 95% intervals, or of the"
    " quartiles where it was one process. Of a kind of work, the benchmark in the middle of those that both have, each"
    " at its largest size; and the range of all. GPUs are compared with GPUs, CPUs with CPUs."
)


@dataclass(frozen=True, eq=False)
class Machine:
    """A run in a gallery. ``ident`` names its files; ``measured_by`` is empty where a gallery has one kind alone."""

    ident: str
    run: Run
    measured_by: str

    @property
    def study(self) -> Study:
        """Made anew each time: those of all machines don't fit in memory."""
        return Study([self.run])

    @cached_property
    def called(self) -> tuple[str, str]:
        """``("H200", "Xeon, 64 threads")``: its GPU and its CPU, each empty where it wasn't measured."""
        study = self.study
        gpu, cpu = (next(iter(rows), None) for rows in (_on_gpu(study.measured), _on_cpu(study.measured)))
        return study.names.of(gpu) if gpu else "", study.names.of(cpu) if cpu else ""

    @cached_property
    def name(self) -> str:
        """``H200 · Xeon, 64 threads``, or what the person who measured calls it."""
        label, labels = self.run.machine.label, [device.label for device in self.run.machine.devices]
        own = "" if any(part and part in label for part in labels) else label
        return shorten(own or " · ".join(filter(None, self.called)) or label, 60)


def refusal(run: Run) -> str:
    """Why a run can't enter a gallery, which shows what was measured on known hardware; empty where it can."""
    machine = run.machine
    names = [machine.label, machine.cpu.model or "", *(device.label for device in machine.devices)]
    modelled = words.simulated([run]) or list(filter(_MODELLED.search, names))
    if modelled:
        return f"times of {modelled[0]} come from a model, not from hardware"
    if run.plain:
        return "holds no facts of its machine: measure with gpubench run"
    if run.preset == "smoke":
        return "a smoke run: its times mean nothing"
    return "" if any(result.times for result in run.results) else "nothing was measured"


def machines(runs: Sequence[Run], folder: Path) -> list[Machine]:
    """Those of the runs, in the order of their names; ``folder`` is that which they lie in."""
    paths = [run.path for run in runs]
    places = [path.relative_to(folder) if folder in path.parents else Path(path.name) for path in paths]
    maintained = [MAINTAINERS in place.parts[:-1] for place in places]
    found: dict[str, Machine] = {}
    for run, place, own in zip(runs, places, maintained, strict=True):
        path = place.with_suffix("").as_posix().removesuffix("/run")
        stem = re.sub(r"[^a-z0-9._]+", "-", path.lower()).strip("-.")[:80] or "machine"
        ident = next(each for i in count(1) if (each := f"{stem}-{i}" if i > 1 else stem) not in found)
        by = (MAINTAINERS if own else "community") if any(maintained) else ""
        found[ident] = Machine(ident, run, by)
    return sorted(found.values(), key=lambda machine: (machine.name.casefold(), machine.ident))


def site(
    shown: Sequence[Machine], version: str, pictures: bool = True, home: str = ""
) -> Iterator[tuple[str, str | bytes]]:
    """Every file by its name in the site, made by this ``version``; ``pictures`` are drawn with matplotlib. ``home`` is
    the address of the site that the gallery belongs to."""
    labels = _labels(shown)
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


def _labels(shown: Sequence[Machine]) -> dict[str, str]:
    """What each is called, together with its date: by no other name. Under one name, what differs first is added."""
    called: dict[str, str] = {}
    for alike in grouped(shown, lambda machine: machine.name).values():
        marks = zip(*map(_marks, alike), strict=True)
        differing = next((each for each in marks if len(set(each)) > 1), ("",) * len(alike))
        called |= {m.ident: ", ".join(filter(None, (m.name, mark))) for m, mark in zip(alike, differing, strict=True)}
    same = grouped(shown, lambda machine: (called[machine.ident], machine.run.date)).values()
    for each in (each for of in same if len(of) > 1 for each in of):
        called[each.ident] += f" ({each.ident})"
    return called


def _marks(machine: Machine) -> tuple[str, ...]:
    """What tells CPUs of one name apart, what people know of them first."""
    cpu = machine.run.machine.cpu
    clock = re.search(r"[\d.]+ ?[GM]Hz", cpu.model or "")
    cache = (cpu.cache_bytes or {}).get("l3")
    matrix = any(name.startswith("amx") for name in cpu.instructions or ())
    last = f"L3 {bytes_text(cache)}" if cache else ""
    return clock[0] if clock else "", "AMX" * matrix, counted(cpu.cores, "core") if cpu.cores else "", last


def _page(title: str, body: str, script: str, version: str, scripts: str = "") -> str:
    style, code = asset("page.css", "gallery.css"), asset("shared.js", script)
    allowed = policy(style, code, scripts=scripts)
    known = {"policy": allowed, "version": escape(version), "title": title, "style": style, "script": code}
    return Template(asset("gallery.html")).substitute(known, body=body)


# A machine's page and data --------------------------------------------------------------------------------------------


def _report(
    machine: Machine, answer: Answer, label: str, version: str, pictures: bool
) -> Iterator[tuple[str, str | bytes]]:
    """Its report with the first picture; in files beside the page, of which a reader loads one."""
    drawn: list[tuple[str, str, str]] = []
    if pictures:
        from .charts.headline_chart import headline_figures
        from .charts.pictures import drawable, embedded

        for title, light, dark in embedded(drawable(headline_figures(answer.study)[:1])[0]):
            drawn.append((title, f"{machine.ident}-light.svg", f"{machine.ident}-dark.svg"))
            yield from zip((f"machines/{name}" for name in drawn[0][1:]), (light, dark), strict=True)
    facts = f"measured {_date(machine)}" + (f" by the {machine.measured_by}" if machine.measured_by else "")
    links = f'<a href="../index.html">All machines</a><a href="../compare.html#a={machine.ident}">Compare</a>'
    above = f'<nav aria-label="Gallery">{links}<span class="muted">{escape(facts)}</span></nav>'
    yield f"machines/{machine.ident}.html", webpage(answer, drawn, version, Listed(label, above))


def _date(machine: Machine) -> str:
    return machine.run.date or "on an unknown date"


def _said(answer: Answer) -> tuple[str, str]:
    """The sentence, and a warning if times may be far off."""
    return answer.sentence, next((str(w) for w in answer.warnings if w.what in (Concern.BUSY, Concern.NOISY)), "")


def _data(machine: Machine, answer: Answer, label: str) -> dict[str, Any]:
    """What comparing needs: facts, and rows of the GPU and of the CPU by what makes them comparable."""
    gpu, cpu = machine.called
    known = {fact: value for fact, value in words.facts(machine.run).items() if fact != "machine"}
    facts = {"measured": _date(machine), "measured by": machine.measured_by} | known
    sides = {"GPU": (gpu, _on_gpu(answer.study.measured)), "CPU": (cpu, _on_cpu(answer.study.measured))}
    return {
        "label": label,
        "facts": {"GPU": gpu or "none", "CPU": cpu, **facts},
        "said": _said(answer),
        "devices": {kind: {"name": name, "rows": _rows(rows)} for kind, (name, rows) in sides.items() if rows},
    }


def _rows(rows: Sequence[Measured]) -> list[list[Any]]:
    """Of a workload the plainest at the largest size first, which stands for it where another machine has it too."""
    kinds = list(representatives(rows))
    workloads = grouped(rows, lambda row: row.result.workload).values()
    by_kind = sorted(workloads, key=lambda of: kinds.index(of[0].heading) if of[0].heading in kinds else len(kinds))
    return [_row(row, _kind(row) if row.heading in kinds else "") for of in by_kind for row in plainest_first(of)]


def _kind(row: Measured) -> str:
    """What one ratio may stand for: a kind of work, or a network alone."""
    return words.name(row.result) if row.kind and row.kind.unlike else row.heading


def _row(row: Measured, kind: str) -> list[Any]:
    """In the order in which ``compare.js`` takes it apart; seconds with four digits."""
    low, high = (row.interval.low, row.interval.high) if row.interval else (row.times.q1_s, row.times.q3_s)
    numbers = [float(f"{value:.4g}") for value in (row.time_s, low, high)]
    case = row.result
    return [comparable(row), kind, words.name(case), words.setting(case), *numbers, _time(row), int(row.waited)]


def _on_gpu(rows: Sequence[Measured]) -> list[Measured]:
    """Results of PyTorch on the first accelerator."""
    every = [row for row in rows if row.on_accelerator and not row.library]
    return [row for row in every if row.source == every[0].source]


def _on_cpu(rows: Sequence[Measured]) -> list[Measured]:
    return [row for row in rows if not row.on_accelerator and not row.library]


# The index ------------------------------------------------------------------------------------------------------------


def _columns(shown: Sequence[Machine]) -> list[tuple[str, dict[Path, Measured]]]:
    """The benchmarks of the index, of each kind of work in turn, those of the most machines first: what each is called,
    and its result on each machine that has it, by the path of its file."""
    by_run = grouped(measured_rows(rows_of([machine.run for machine in shown])), lambda row: row.run_name)
    rows = [row for own in by_run.values() for row in _on_gpu(own) or _on_cpu(own)]
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
    """What is there, and no more: two runs of one machine are one CPU."""
    labels: dict[bool, set[str]] = {True: set(), False: set()}
    for machine in shown:
        gpu, cpu = machine.called
        for known, accelerator in ((gpu, True), (cpu, False)):
            if known:
                labels[accelerator].add(_model(machine.run.machine.devices, accelerator))
    parts = [counted(len(labels[True]), "model") + " of GPU" if labels[True] else "no GPU"]
    parts.append(counted(len(labels[False]), "model") + " of CPU")
    return f"{counted(len(shown), 'run')}: {', '.join(parts)}."


def _model(devices: Sequence[DeviceFacts], accelerator: bool) -> str:
    return next((device.label for device in devices if device.accelerator == accelerator), "")


def _line(machine: Machine, label: str, results: Sequence[Measured | None], said: tuple[str, str], columns: int) -> str:
    """Two rows: the numbers, and below them the sentence."""
    name, devices = escape(label), " · ".join(filter(None, machine.called))
    cells = [*map(_cell, results), f'<td class="number">{escape(_date(machine))}</td>']
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


def _time(row: Measured) -> str:
    return f"{words.time(row)} {words.precision(row)}"


def _side(name: str, shown: Sequence[Machine], labels: dict[str, str]) -> str:
    options = "".join(
        f'<option value="{machine.ident}">{escape(labels[machine.ident])}, {escape(_date(machine))}</option>'
        for machine in shown
    )
    return f'<label>{"machine" if name == "a" else "against"} <select id="{name}">{options}</select></label>'
