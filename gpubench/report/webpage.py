"""report.html: one file with the answer, the explorer and all numbers, for a browser without a network.

Which rows, names, verdicts and sentences there are is decided here; ``assets/page.js`` only draws. The page fetches
nothing: its content policy allows its own style and script, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import pandas as pd

from ..runfile.kinds import WORK_KINDS
from ..runfile.matching import shown_name
from ..runfile.schema import Ceilings
from ..runfile.utilisation import compute_dtype
from .answer import MOST_TIMES, Answer, time_text
from .charts.material import LEAST_VALUES, by_file, slowest_words
from .charts.wording import Naming, group_of, title_name, workload_name
from .findings import answer_tables
from .judgement import TOO_NOISY, crossover_text, too_noisy, withheld
from .labels import (
    Names,
    Row,
    device_label,
    flagged,
    grouped,
    library,
    library_label,
    other_libraries,
    setting,
    size_label,
    size_text,
    times_text,
)
from .machines import GPUS_TITLE
from .render import Table, html_table, markdown_table
from .speedup import RESIDENT, leading, on_accelerator
from .sweep import representatives, setting_of, slowest_first
from .table import CROSSING, LINE, records, size_of, size_parameter
from .trend import Trend

COLUMNS = (
    "workload", "dtype", "variant", "setting", "size_name", "size", "device", "time_s", "low_s", "high_s", "speedup",
    "speedup_low", "speedup_high", "copies", "break_even_calls", "baseline", "baseline_s", "rate", "rate_unit",
    "utilisation", "status", "flags", "reason", "doubt",
)  # fmt: skip
"""Of a row of the data; ``device`` is a place in the list of devices, ``doubt`` says why there is no speedup."""
INTERNED = (
    "workload", "dtype", "variant", "setting", "size_name", "rate_unit", "baseline", "status", "flags", "reason",
    "doubt",
)  # fmt: skip
"""Columns of texts that repeat: places in the list of strings."""
_OF_PAIRS = {
    "speedup": "speedup", "speedup_low": "low", "speedup_high": "high", "copies": "one_shot_speedup",
    "break_even_calls": "break_even_calls", "baseline_s": "baseline_s",
}  # fmt: skip
_COLOURS, _SHAPES = ("d0", "d1", "d2", "d3", "d4", "d5"), 4
"""Classes of the style sheet, for accelerators; CPUs are grey, other libraries on them have a colour of their own."""
_LIBRARIES = (("numpy", 2), ("d5", 3), ("d4", 1))
"""Colours and shapes of other libraries than PyTorch on a CPU."""
_MOST_NAMED = 9
"""Points of a roofline that are named."""
_MOST_TRENDS, _MOST_TIMES = 12, 40
_CPU = "the CPU"
_RATIO = re.compile(r"\d[\d,.]*×")
_VERDICT = re.compile(r"<td>([✓◐✗?])(?= )")
_CLASSES = {"✓": "yes", "◐": "stays", "✗": "no", "?": "unsure"}
_FILES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md")
_FOLDED = (
    ("Roofline: how close to the measured peak", "roofline", "rooflines"),
    ("Multi-GPU and distributed", "bars", "bars"),
    ("Runs in time", "trend", "trends"),
)
"""Title, kind of picture to the script, and its key in the data."""

_Source = tuple[str, str, str]
"""Run, device and implementation: a line of the explorer, a mark of the headline."""
_Devices = dict[_Source, dict[str, Any]]
"""By source what the page calls it: ``colour`` is a class of the style sheet, ``shape`` the form of its marks."""


def webpage(
    answer: Answer,
    data: Mapping[str, Any],
    first: Sequence[Table] = (),
    machines: Sequence[Table] = (),
    method: Sequence[Table] = (),
    version: str = "",
) -> str:
    """The whole page, equal for equal input, made by this ``version``.

    ``data`` is what :func:`page_data` makes; ``first`` are tables that belong to the answer, ``machines`` others that
    compare machines, ``method`` those that say how it was measured.
    """
    style, script = _asset("page.css"), _asset("page.js")
    sections = _sections(answer, data, first, machines, method)
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'",
        version=escape(version),
        title=_title(answer, first, bool(data["headline"]["groups"])),
        sentence=_RATIO.sub(lambda ratio: f"<strong>{ratio[0]}</strong>", escape(answer.sentence)),
        warnings="".join(f'<p class="warning">⚠ {escape(text)}</p>' for text in _shown(answer.warnings)),
        contents="".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections),
        sections="\n".join(f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in sections),
        # A text that ends the element early would be markup.
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        style=style,
        script=script,
    )


def _title(answer: Answer, first: Sequence[Table], pictured: bool) -> str:
    if any(table.title == GPUS_TITLE for table in first):
        return "Which GPU is faster?"
    if any(card.accelerator for card in answer.cards):
        return "How much faster is the GPU?"
    if answer.cards:
        return "Which machine is faster?"
    return "How long does each benchmark take?" if pictured else "How fast is this machine?"


def _shown(warnings: Sequence[str]) -> Sequence[str]:
    """Three at most."""
    return warnings if len(warnings) <= 3 else [*warnings[:2], f"{len(warnings) - 2} more: see summary.md"]


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _sections(
    answer: Answer,
    data: Mapping[str, Any],
    first: Sequence[Table],
    machines: Sequence[Table],
    method: Sequence[Table],
) -> list[tuple[str, str, str]]:
    """(id, title, body) of each section, empty ones left out."""
    hint = f"<p>{escape(answer.hint)}</p>" if answer.hint else ""
    folded = ""
    for title, kind, name in _FOLDED:
        figures = "".join(f'<figure data-{kind}="{i}"></figure>' for i in range(len(data[name])))
        folded += f"<details><summary>{title}</summary>{figures}</details>" if figures else ""
    links = " ".join(f'<a href="{name}">{name}</a>' for name in _FILES)
    timed = [row for row in data["rows"] if row[COLUMNS.index("time_s")] is not None]
    ratio, sized = data["headline"]["ratio"], any(row[COLUMNS.index("size")] is not None for row in timed)
    explorable = timed and (ratio or sized or not data["headline"]["groups"])
    explore = "Explore: from which size?" if ratio else "Explore by size" if sized else "Explore"
    left = answer.times[MOST_TIMES:]  # the picture has them
    brief = replace(answer, times=answer.times[:MOST_TIMES], more=answer.more + len(left))
    parts = (
        ("answer", "Answer", _tables(first, " leading") + _tables(answer_tables(brief), " kinds") + hint),
        ("picture", "Picture", _HEADLINE if data["headline"]["groups"] else ""),
        ("machines", "Several machines", _tables(machines)),
        ("explore", explore, _EXPLORER if explorable else ""),
        ("numbers", "All numbers", _NUMBERS),
        ("more", "More pictures", folded),
        ("method", "How it was measured", f"{_tables(method)}<p>{links}</p>"),
    )
    return [part for part in parts if part[2]]


_HEADLINE = """<figure id="headline-figure"></figure>
<div class="tools"><button id="markdown" type="button">Markdown</button></div>"""
_EXPLORER = """
<div class="tools">
<label>workload <select id="workload"></select></label> <label>dtype <select id="dtype"></select></label>
<label>variant <select id="variant"></select></label> <label>configuration <select id="setting"></select></label>
<span id="devices" class="tools"></span>
<button id="quantity-speedup" type="button">speedup</button><button id="quantity-time_s" type="button">time</button>
<button id="quantity-rate" type="button">throughput</button>
</div>
<figure id="explorer-figure" tabindex="0" aria-label="Explorer, moved in with the arrow keys"></figure>
<p id="detail" class="detail muted" aria-live="polite"></p>
<p id="finding"></p>"""
_NUMBERS = """
<div class="tools">
<input id="search" type="search" placeholder="search: matmul float32 n=4096" aria-label="Search all numbers" size="34">
<button id="download" type="button">download what is shown (CSV)</button> <span class="muted" id="count"></span></div>
<div class="scroll"><table id="table"></table></div>"""


def _tables(tables: Iterable[Table], looks: str = "") -> str:
    cards = "".join(f'<div class="card{looks}">{"".join(html_table(table))}</div>' for table in tables)
    return _VERDICT.sub(lambda words: f'<td class="{_CLASSES[words[1]]}">{words[1]}', cards)


def page_data(
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    crossovers: pd.DataFrame,
    scaled: pd.DataFrame,
    trends: Sequence[Trend],
) -> dict[str, Any]:
    """The tables of a report, as the page's script reads them: fit for JSON, numbers with six digits.

    A row is a list in the order of :data:`COLUMNS`. Speedups are those within a machine.
    """
    naming, named = Naming(results), Names(results)
    measured, compared, crossings = map(_named, (records(results), records(speedups), records(crossovers)))
    compared = [row for row in compared if row["run"] == row["baseline_run"]]
    crossings = [row for row in crossings if row["run"] == row["baseline_run"]]
    devices = _page_devices(measured, naming)
    places = {source: place for place, source in enumerate(devices)}
    workloads = grouped(measured, lambda row: row["workload"])
    sizes = {name: size_parameter(rows) for name, rows in workloads.items()}
    pairs = {id(row["_result"]): row for row in compared}
    first = grouped(compared, lambda row: row["workload"]) or workloads

    def telling(workload: str) -> tuple[bool, int]:
        return sizes[workload] is not None, len(first[workload])

    baseline = " or ".join(dict.fromkeys(map(named.baseline, compared)))
    on_gpu = leading([row for row in compared if on_accelerator(row) and named.baseline(row) == _CPU])
    findings, marks = _explained(crossings, devices)
    texts: dict[Any, int] = {}
    every = []
    for row in measured:
        pair = pairs.get(id(row["_result"]), {})
        cells = _cells(row, pair, sizes[row["workload"]])
        cells |= {"device": places[_source(row)], "baseline": named.baseline(pair) if pair else ""}
        every.append(cells)
    if on_gpu:
        every.sort(key=_trust)
    rows = []
    for cells in every:
        values = ((name, cells[name]) for name in COLUMNS)
        rows.append([texts.setdefault(v or "", len(texts)) if name in INTERNED else _short(v) for name, v in values])
    return {
        "columns": COLUMNS,
        "interned": INTERNED,
        "strings": list(texts),
        "rows": rows,
        "titles": {workload: title_name(workload) for workload in workloads},
        "devices": list(devices.values()),
        "baseline": f"{_CPU} of the same machine" if baseline == _CPU else baseline,
        "speedup": "speedup" if on_gpu or not baseline else f"speedup over {baseline}",
        "slower": f"{baseline.removeprefix('the ')} faster",
        "quantity": "speedup" if on_gpu else "rate",
        "first": "matmul.square" if "matmul.square" in first else max(first, key=telling, default=""),
        "findings": findings,
        "crossings": marks,
        "headline": _headline(on_gpu, places) if on_gpu else _times(measured, places, naming),
        "rooflines": _rooflines(measured, devices),
        "bars": _bars(records(scaled), devices),
        "trends": [picture for trend in trends for picture in _trend_pictures(trend)][:_MOST_TRENDS],
    }


def _named(rows: list[Row]) -> list[Row]:
    """With the names of workloads that a person reads."""
    return [row | {"workload": shown_name(row["workload"])} for row in rows]


def _source(row: Row) -> _Source:
    return row["run"], row["device"], row["implementation"] or ""


def _page_devices(rows: Sequence[Row], naming: Naming) -> dict[_Source, dict[str, Any]]:
    """Devices that measured something come first; only those have a colour."""
    firsts = {_source(row): row for row in reversed(rows)}
    measured = {_source(row) for row in rows if row["_result"].times}
    sources = sorted(dict.fromkeys(map(_source, rows)), key=lambda source: source not in measured)  # stable
    devices: dict[_Source, dict[str, Any]] = {}
    accelerators, libraries = 0, other_libraries(rows)
    for source in sources:
        row = firsts[source]
        device = row["_run"].machine.device(row["device"])
        known = (device.label or device.name) if row["device"] else device_label(row["_run"], "")
        name = " ".join(filter(None, [known, library_label(row)]))
        coloured = device.accelerator and source in measured
        colour, shape = "cpu", sum(each["colour"] == "cpu" for each in devices.values()) % _SHAPES
        if coloured:
            colour, shape = _COLOURS[accelerators % len(_COLOURS)], accelerators % _SHAPES
        elif library(row):
            colour, shape = _LIBRARIES[libraries.index(library(row)) % len(_LIBRARIES)]
        words = {"name": name, "short": naming.device(row), "machine": row["machine"]}
        devices[source] = words | {"colour": colour, "shape": shape}
        accelerators += coloured
    return devices


def _cells(row: Row, pair: Row, size_name: str | None) -> dict[str, Any]:
    cells = {name: row.get(name) for name in COLUMNS} | {name: pair.get(of) for name, of in _OF_PAIRS.items()}
    params = dict(row["_result"].case.params)
    size = params.pop(size_name, None) if size_name else None
    cells |= {"setting": _setting(row, params), "size_name": None if size is None else size_name, "size": size}
    cells["doubt"] = withheld(pair or row) if row["_result"].times else ""
    if cells["doubt"]:
        cells |= dict.fromkeys(("speedup", "speedup_low", "speedup_high", "copies", "break_even_calls"))
    elif pair and too_noisy(pair["one_shot_low"], pair["one_shot_high"]):
        cells["copies"] = None
    return cells | {"flags": "; ".join(f"{flag.name}: {flag.seen}" for flag in row["_result"].flags)}


def _trust(cells: Mapping[str, Any]) -> tuple[Any, ...]:
    """Speedups first, the greatest leading; then those that are flagged, or over a dtype that many CPUs only emulate;
    then what has none, what is withheld, and what wasn't measured."""
    doubts = bool(cells["doubt"]), cells["dtype"] == "float16", bool(cells["flags"])
    return cells["time_s"] is None, cells["speedup"] is None, *doubts, -(cells["speedup"] or 0)


def _setting(row: Row, params: Mapping[str, Any]) -> str:
    """What tells a line of the explorer from the others of its workload, dtype and variant."""
    words = [setting(name, value) for name, value in params.items()]
    words += [row[name] for name, usual in (("regime", "resident"), ("cache", "hot")) if row[name] not in (None, usual)]
    return ", ".join(words)


def _short(value: Any) -> Any:
    """A number with six digits, and none that JSON doesn't have."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None if value == "" else value
    number = float(f"{value:.6g}")
    return None if not math.isfinite(number) else int(number) if number.is_integer() else number


def _key(row: Row, size_name: str) -> str:
    """Of a line of the explorer, as the script makes it from its choices."""
    params = {name: value for name, value in row["_result"].case.params.items() if name != size_name}
    return "|".join((row["workload"], row["dtype"] or "", row["variant"] or "", _setting(row, params)))


def _explained(crossings: Sequence[Row], devices: _Devices) -> tuple[dict[str, str], dict[str, list[dict[str, Any]]]]:
    """By line of the explorer a finding, ``H200: 130× at n = 8192, faster from: n ≈ 72; with copies …``, and as marks
    the crossovers that the interval states as a fact."""
    places = {source: place for place, source in enumerate(devices)}
    shorts = [device["short"] for device in devices.values()]
    findings: dict[str, dict[int, list[str]]] = {}
    marks: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(crossings, key=lambda each: each["regime"] != RESIDENT):
        last, name, place = row[LINE].points[-1], row["size_parameter"], places[_source(row)]
        key = _key(row[LINE].row, name)
        start = crossover_text(row[CROSSING], row[LINE], name)
        copies = "" if row["regime"] == RESIDENT else "with copies "
        noisy = TOO_NOISY if too_noisy(last.low, last.high) else ""
        value = withheld(row[LINE].row) or noisy or times_text(last.y)
        words = f"{copies}{value} at {size_label(name)} = {size_text(last.x, name)}, faster from: {start}"
        findings.setdefault(key, {}).setdefault(place, []).append(words)
        if "≈" in start and row["crossover"]:
            marks.setdefault(key, []).append({"device": place, "size": _short(row["crossover"]), "text": start})
    sentences = {
        key: " ".join(f"{shorts[place]}: {'; '.join(words)}." for place, words in lines.items())
        for key, lines in findings.items()
    }
    return sentences, marks


def _headline(on_gpu: Sequence[Row], places: Mapping[_Source, int]) -> dict[str, Any]:
    """Named rows in groups, a mark a device: each workload at its largest size in one named setting."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    kinds = [group for rows in grouped(on_gpu, _source).values() for group in representatives(rows).items()]
    for kind, row in ((kind, row) for kind, chosen in kinds for row in chosen):
        entry: dict[str, Any] = {"name": workload_name(row["workload"]), "setting": _headline_setting(row), "marks": []}
        heading = kind if kind in WORK_KINDS else group_of(row["workload"])
        entry = groups.setdefault(heading, {}).setdefault(row["workload"], entry)
        if not withheld(row):
            text = times_text(row["speedup"]) + "*" * flagged(row)
            mark = {"device": places[_source(row)], "value": _short(row["speedup"])}
            entry["marks"].append(mark | {"copies": _short(row["one_shot_speedup"]), "text": text})
    shown = [
        {"name": kind, "rows": entries}
        for kind, named in groups.items()
        if (entries := [entry for entry in named.values() if entry["marks"]])
    ]
    return {
        "ratio": True,
        "title": "How much faster is the GPU than the CPU of the same machine?",
        "subtitle": "Each workload at the largest size measured, log scale. * noisy",
        "groups": shown,
        "markdown": _headline_markdown(shown, list(places)),
    }


def _headline_setting(row: Row) -> str:
    """``float32, out, n = 10⁷``: as in the answer, with sizes for people."""
    params = row["_result"].params.items()
    sizes = {
        setting(name, v): f"{name} = {size_text(size, name)}" for name, v in params if (size := size_of(row, name))
    }
    return ", ".join(sizes.get(word, word) for word in setting_of(row).split(", "))


def _headline_markdown(groups: Sequence[Mapping[str, Any]], sources: Sequence[_Source]) -> str:
    """The headline as a table: a row a workload and device."""
    rows = []
    for kind, entry in ((group["name"], entry) for group in groups for entry in group["rows"]):
        for mark in entry["marks"]:
            run, device, _ = sources[mark["device"]]
            copies = times_text(mark["copies"]) if mark["copies"] else "–"
            rows.append((f"{kind}: {entry['name']}", entry["setting"], f"{device} of {run}", mark["text"], copies))
    table = Table("", ("work", "setting", "device", "speedup", "with copies"), tuple(rows))
    return "\n".join(markdown_table(table)) + "\n"


def _times(measured: Sequence[Row], places: Mapping[_Source, int], naming: Naming) -> dict[str, Any]:
    """As :func:`_headline`, of one's own benchmarks that no peak is known of: how long each takes, by file."""
    own = [row for row in measured if row["_result"].times and not row["_result"].kind]
    every = [] if sum(bool(row["utilisation"]) for row in own) >= LEAST_VALUES else slowest_first(own)
    shown = by_file(every[:_MOST_TIMES], every) if len(every) >= LEAST_VALUES else []
    groups: dict[str, list[dict[str, Any]]] = {}
    table = []
    for each in shown:
        texts = [time_text(row["time_s"], flagged(row)) for row in each.rows]
        marks = [
            {"device": places[_source(row)], "value": _short(row["time_s"]), "copies": None, "text": text}
            for row, text in zip(each.rows, texts, strict=True)
        ]
        setting_shown = _headline_setting(each.rows[0])
        groups.setdefault(each.group, []).append({"name": each.name, "setting": setting_shown, "marks": marks})
        words = each.rows[0]["workload"], each.detail
        names = (naming.device(row) for row in each.rows)
        table += [(*words, name, text) for name, text in zip(names, texts, strict=True)]
    columns = Table("", ("benchmark", "setting", "device", "time"), tuple(table))
    return {
        "ratio": False,
        "title": f"{len(every)} benchmarks, from the slowest",
        "subtitle": f"Time per call, {slowest_words(shown, len(every))}, log scale. * noisy",
        "groups": [{"name": name, "rows": entries} for name, entries in groups.items()],
        "markdown": "\n".join(markdown_table(columns)) + "\n",
    }


def _rooflines(rows: Sequence[Row], devices: _Devices) -> list[dict[str, Any]]:
    """A picture a device with measured peaks; of each workload the best point, the best of all named."""
    charts = []
    for source, members in grouped([row for row in rows if row["_result"].times], _source).items():
        ceilings = members[0]["_run"].ceilings.get(source[1])
        points = [point for row in members if (point := _intensity(row))]
        if not ceilings or not ceilings.throughput or len(points) < 3:
            continue
        by_workload = grouped(points, lambda point: point["workload"]).values()
        best = [max(same, key=lambda point: point["rate"]) for same in by_workload]
        for point in sorted(best, key=lambda point: -(point["share"] or 0))[:_MOST_NAMED]:
            share = f" {point['share']:.0%}" if (point["share"] or 2) <= 1 else ""
            point["name"] = f"{point['workload']}{share}"
        charts.append(_roof(ceilings, devices[source]) | {"points": points})
    return charts


def _intensity(row: Row) -> dict[str, Any] | None:
    work, case = row["_result"].work, row["_result"].case
    if not work.flops or not work.bytes:
        return None
    dtype = compute_dtype(case.dtype, case.variant, row["_result"].precision)
    return {
        "workload": row["workload"],
        "title": f"{row['workload']} {dtype}, {_setting(row, case.params)}",
        "intensity": _short(work.flops / work.bytes),
        "rate": _short(work.flops / row["time_s"]),
        "share": _short(row["utilisation"]),
        "name": "",
    }


def _roof(ceilings: Ceilings, device: Mapping[str, Any]) -> dict[str, Any]:
    memory = [entry.byte_per_s for entry in ceilings.bandwidth if entry.level == "memory"]
    bandwidth = max(memory or [entry.byte_per_s for entry in ceilings.bandwidth], default=None)
    peaks = [{"name": dtype, "rate": _short(rate)} for dtype, rate in ceilings.throughput.items()]
    return {
        "title": f"Roofline of {device['short']}",
        "colour": device["colour"],
        "peaks": peaks,
        "bandwidth": _short(bandwidth),
        "ridge": _short(max(peak["rate"] for peak in peaks) / bandwidth) if bandwidth else None,
    }


def _bars(rows: Sequence[Row], devices: _Devices) -> list[dict[str, Any]]:
    """Speedup over one device for each job on several, the ideal as a tick."""
    colours = {source[:2]: device["colour"] for source, device in reversed(devices.items())}
    wanted = [row for row in rows if row["scaling"] is not None and row["devices"] > 1]
    charts = []
    for workload, members in grouped(wanted, lambda row: row["workload"]).items():
        bars = [
            {
                "name": f"{row['method']}, {row['devices']} devices" + (f", {row['mode']}" if row["mode"] else ""),
                "value": _short(row["scaling"]),
                "high": _short(row["scaling_high"]),
                "ideal": _short(row["ideal_speedup"] or row["devices"]),
                "text": times_text(row["scaling"]),
                "colour": colours.get((row["run"], row["device"]), "cpu"),
            }
            for row in members
        ]
        charts.append({"title": workload, "subtitle": "Speedup over one device; the tick is the ideal", "bars": bars})
    return charts


def _trend_pictures(trend: Trend) -> Iterator[dict[str, Any]]:
    for series in trend.series:
        starts, ends = (0, *series.changes), (*series.changes, len(series.times))
        yield {
            "title": f"{trend.workload}: {series.name}",
            "subtitle": f"{trend.machine}; lower is better",
            "times": [_short(time) for time in series.times],
            "labels": list(series.dates),
            "levels": [[a, b - 1, _short(level)] for a, b, level in zip(starts, ends, series.levels, strict=True)],
        }
