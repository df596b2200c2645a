"""report.html: one file with the answer, the pictures, the explorer and all numbers, for a browser without a network.

Which rows, names, verdicts and sentences there are is decided here; ``assets/page.js`` draws the explorer and the
table. The page fetches nothing: its content policy allows its own style and script, by their hashes, and pictures that
are part of it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from ..runfile.matching import shown_name
from . import words
from .answer import Answer
from .charts.theme import CPUS, MARK_SHAPES, css_colours, role_of
from .number import Sign, StartKind, signs_of, size_label, size_text
from .render import Table, webpage as html_table
from .study import Crossing, Measured, Pair, Row, Study, grouped, plainest_first, size_parameter
from .tables import answer_tables, detail_tables

if TYPE_CHECKING:
    from .charts.pictures import Drawing

COLUMNS = (
    "workload", "dtype", "variant", "setting", "size_name", "size", "device", "time_s", "low_s", "high_s", "speedup",
    "speedup_low", "speedup_high", "copies", "baseline", "baseline_s", "rate", "rate_unit",
    "utilisation", "status", "flags", "reason", "doubt", "told", "told_copies",
    "told_time", "names", "kind", "notes",
)  # fmt: skip
"""The columns of a row of the data; ``device`` is an index into the list of devices, ``speedup`` is a limit where no
more is known, ``doubt`` the reason why there is none, ``told`` what a table shows, ``names`` what ``-k`` knows it by,
one a line, besides the names of its device and its ``kind`` of work, ``notes`` the names of its flags."""
INTERNED = (
    "workload", "dtype", "variant", "setting", "size_name", "rate_unit", "baseline", "status", "flags", "reason",
    "doubt", "told", "told_copies", "told_time", "names", "kind", "notes",
)  # fmt: skip
"""Columns of texts that repeat: their values are indices into the list of strings."""
_SIGN, _TOGETHER = re.compile(r"(?<=[≥≤≈]) (?=\d)|(?<=\d) (?=[nµm]?s\b)"), "&nbsp;"
"""Between a number and its sign or its unit, which stay in one line."""
_FIRST, _PARTS = re.compile("<tr><td>[^<]*"), re.compile(r"(?<=\w)([._])(?=[^\W\d])")
"""A benchmark's name, and where it may be broken."""
_FILES = " ".join(
    f'<a href="{name}">{name}</a>' for name in ("results.csv", "speedup.csv", "crossover.csv", "summary.md")
)
"""The source of a content policy that allows files beside a page, both on a server and on a disk, where some browsers
don't support ``'self'``."""
_EXPLORER = """
<div class="tools">
<label>benchmark <select id="workload"></select></label> <label>dtype <select id="dtype"></select></label>
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
<input id="search" type="search" maxlength="1000" aria-label="Search all numbers"
 size="34">
<button id="download" type="button">download what is shown (CSV)</button> <span class="muted" id="count"></span></div>
<div class="scroll"><table id="table"></table></div>"""


def webpage(answer: Answer, pictures: Sequence[Drawing] = (), version: str = "") -> str:
    """Return the page made by this ``version``; equal input gives identical output. The first picture stands above all
    others."""
    style, script = _asset("page.css") + css_colours(), _asset("page.js")
    data = page_data(answer.study)
    sections = _sections(answer, data, pictures)
    return Template(_asset("page.html")).substitute(
        policy=_policy(style, script),
        version=escape(version),
        sentence=_kept(answer.sentence),
        warnings="".join(f'<p class="warning">⚠ {_kept(str(each))}</p>' for each in answer.warnings[:3]),
        contents="".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections),
        sections="\n".join(f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in sections),
        # A text that ends the element early would be markup.
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        style=style,
        script=script,
    )


def _kept(text: str) -> str:
    return _SIGN.sub(_TOGETHER, escape(text))


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    allowed = {"default": "'none'", "img": "data:", "style": _hash(style), "script": _hash(script)}
    return "; ".join([*(f"{what}-src {source}" for what, source in allowed.items()), "base-uri 'none'"])


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _sections(answer: Answer, data: Mapping[str, Any], pictures: Sequence[Drawing]) -> list[tuple[str, str, str]]:
    """(id, title, body) of each section, empty ones left out."""
    hints = "".join(f"<p>{_kept(told)}</p>" for told in (answer.hint, answer.left_out) if told)
    timed = any(row[COLUMNS.index("time_s")] is not None for row in data["rows"])
    sized = any(row[COLUMNS.index("size")] is not None for row in data["rows"])
    figures = [_figure(each) for each in pictures]
    signs = f'<p class="muted">{escape(". ".join(data["signs"].values()))}.</p>' if data["signs"] else ""
    parts = (
        ("answer", "Answer", "".join(map(_card, answer_tables(answer))) + hints),
        ("picture", "Picture", "".join(figures[:1])),
        ("explore", "Explore by size", _EXPLORER if timed and sized else ""),
        ("pictures", "More pictures", "".join(figures[1:])),
        ("numbers", "All numbers", _NUMBERS + signs),
        ("details", "Details", "".join(map(_folded, detail_tables(answer.study))) + f"<p>{_FILES}</p>"),
    )
    return [part for part in parts if part[2]]


def _figure(picture: Drawing) -> str:
    _, title, *drawn = picture
    images = ""
    for theme, svg in zip(("light", "dark"), drawn, strict=True):
        source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
        images += f'<img class="{theme}" alt="{escape(title)}" src="{source}">'
    return f"<figure class=wide>{images}</figure>"


def _card(table: Table) -> str:
    heads = ("speedup",) if "speedup" in table.columns else table.columns[2:] * table.title.startswith("Speedup")
    rows = _FIRST.sub(lambda name: _PARTS.sub(r"\1<wbr>", name[0]), html_table(table, heads))
    return f'<div class="card rows">{_SIGN.sub(_TOGETHER, rows)}</div>'


def _folded(table: Table) -> str:
    return f"<details><summary>{escape(table.title)}</summary><div class='card'>{html_table(table)}</div></details>"


# The data -------------------------------------------------------------------------------------------------------------


def page_data(study: Study) -> dict[str, Any]:
    """Return the data for the page's script: fit for JSON, measured numbers with six digits. A row is a list in the
    order of COLUMNS."""
    devices = _devices(study)
    places = {source: place for place, source in enumerate(devices)}
    pairs = {id(pair.other): pair for pair in study.pairs}
    names = {row.result.workload: words.name(row.result) for row in study.rows}
    sizes = {
        workload: size_parameter(row.result for row in rows)
        for workload, rows in grouped(study.rows, lambda row: row.result.workload).items()
    }
    cells = [_cells(study, row, pairs.get(id(row)), sizes[row.result.workload], places) for row in study.rows]
    on_gpu = any(pair.other.on_accelerator for pair in pairs.values())
    texts: dict[Any, int] = {}
    rows = []
    for each in cells:
        values = ((name, each[name]) for name in COLUMNS)
        rows.append(
            [texts.setdefault(str(v or ""), len(texts)) if name in INTERNED else _short(v) for name, v in values]
        )
    findings, marks = _explained(study, places)
    base = study.names.baseline(list(pairs.values())) if pairs else ""
    counts = Counter(row.result.workload for row in ([pair.other for pair in pairs.values()] or study.rows))
    first = max(counts, key=lambda workload: (sizes[workload] is not None, counts[workload]), default="")
    return {
        "columns": COLUMNS,
        "interned": INTERNED,
        "strings": list(texts),
        "rows": rows,
        "devices": list(devices.values()),
        "baseline": base,
        "speedup": f"speedup over {base}" if base else "speedup",
        "slower": f"{base.removeprefix('the ')} faster",
        "quantity": "speedup" if on_gpu else "rate",
        "uncertainty": words.uncertainty(pair.uncertainty for pair in pairs.values()),
        "signs": _signs(cells),
        "modelled": words.MODELLED,
        "first": names.get(first, ""),
        "plainest": {
            names[workload]: _plainest(rows)
            for workload, rows in grouped(study.measured, lambda row: row.result.workload).items()
        },
        "findings": findings,
        "crossings": marks,
    }


def _devices(study: Study) -> dict[Any, dict[str, Any]]:
    """Return the page's entry for each device, by source: ``colour`` is a class of the style sheet and its role in the
    pictures, ``shape`` the shape of its marks there."""
    devices: dict[Any, dict[str, Any]] = {}
    for row in sorted(study.rows, key=lambda row: not isinstance(row, Measured)):  # stable
        if row.source in devices:
            continue
        role = role_of(study.names, row) if row.source in study.names.sources else CPUS[0]
        devices[row.source] = {
            "name": study.names.of(row), "machine": row.run.machine.label, "colour": role,
            "shape": MARK_SHAPES[role], "names": f"{row.result.device}\n{row.facts.label}",
            "model": words.modelled(row.facts),
        }  # fmt: skip
    return devices


def _cells(
    study: Study, row: Row, pair: Pair | None, size_name: str | None, places: Mapping[Any, int]
) -> dict[str, Any]:
    case = row.result
    size = case.params.get(size_name) if size_name else None
    cells: dict[str, Any] = dict.fromkeys(COLUMNS)
    cells |= {"workload": words.name(case), "dtype": case.dtype, "variant": case.variant}
    cells |= {"setting": words.setting(case, ("dtype", "variant", size_name)), "size": size}
    cells["size_name"] = None if size is None else size_name
    cells |= {"device": places[row.source], "status": case.status, "reason": case.reason}
    file = case.fullname.partition("[")[0]
    names = shown_name(case.id), case.implementation, file
    cells |= {"names": "\n".join(names), "kind": row.kind.heading if row.kind else ""}
    cells["flags"] = "; ".join(f"{flag.name}: {flag.seen}" for flag in case.flags)
    cells["notes"] = ", ".join(dict.fromkeys(flag.name for flag in case.flags))
    if isinstance(row, Measured):
        rate = None if row.quality.doubt else row.throughput
        cells |= {"time_s": row.time_s, "told_time": row.time, "utilisation": row.utilisation}
        cells |= {"low_s": row.interval.low, "high_s": row.interval.high} if row.interval else {}
        cells |= {"rate": rate.value, "rate_unit": row.rate.unit} if rate and row.rate else {}
    if pair:
        base = ": ".join(filter(None, [study.names.of(pair.base), words.way(pair)]))
        cells |= {"baseline": base, "baseline_s": pair.base_s, "doubt": pair.quality.doubt}
        cells |= {"told": pair.full_ratio.brief, "told_copies": pair.copied_ratio}
        if values := pair.drawn:
            cells |= {"speedup": values.value, "speedup_low": values.low, "speedup_high": values.high, "doubt": None}
        if copied := pair.copies and pair.copies.drawn:
            cells["copies"] = copied.value
    return cells


def _plainest(rows: Sequence[Measured]) -> dict[str, str]:
    """The setting of a workload that the answer shows, by which the explorer begins."""
    case, size = plainest_first(rows)[0].result, size_parameter(row.result for row in rows)
    setting = words.setting(case, ("dtype", "variant", size))
    return {"dtype": case.dtype, "variant": case.variant, "setting": setting}


def _signs(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The signs beside the numbers of these rows, and their meanings; a dash stands where a column has no number."""
    found = signs_of(each[name] for each in cells for name in ("told", "told_copies", "told_time"))
    for name in ("speedup", "rate", "utilisation"):
        missing = {each[name] is None and not each["doubt"] for each in cells}
        found |= {Sign.UNKNOWN} if len(missing) > 1 else set()
    return {str(sign): sign.footnote for sign in Sign if sign in found}


def _short(value: Any) -> Any:
    """Return a number with six digits, a whole one with all; None if it isn't finite, which JSON can't hold."""
    if not isinstance(value, float):
        return None if value == "" else value
    number = float(f"{value:.6g}")
    return None if not math.isfinite(number) else int(number) if number.is_integer() else number


def _explained(study: Study, places: Mapping[Any, int]) -> tuple[dict[str, str], dict[str, list[dict[str, Any]]]]:
    """Return a finding for each line of the explorer, ``H200 over Xeon: 130× at n = 8192, faster from n ≈ 72; …``,
    and, as marks, the crossovers that the intervals make certain."""
    found: dict[str, dict[str, list[str]]] = {}
    marks: dict[str, list[dict[str, Any]]] = {}
    for crossing in sorted(study.crossings, key=lambda each: not each.resident):
        line, last = crossing.line, crossing.line.last
        setting = words.setting(last.result, ("dtype", "variant", line.size_name))
        key = "|".join((words.name(last.result), last.dtype, last.result.variant, setting))
        sides = f"{study.names.of(last)} over {study.names.of(crossing.pair.base)}"
        found.setdefault(key, {}).setdefault(sides, []).append(_finding(crossing))
        if crossing.start.kind is StartKind.ABOUT:
            mark = {"device": places[last.source], "size": _short(crossing.start.low), "text": crossing.start.size}
            marks.setdefault(key, []).append(mark)
    sentences = {
        key: " ".join(f"{name}: {'; '.join(told)}." for name, told in lines.items()) for key, lines in found.items()
    }
    return sentences, marks


def _finding(crossing: Crossing) -> str:
    line = crossing.line
    point, pair = line.points[-1], crossing.pair
    copies = "" if crossing.resident else "with copies "
    at = f"{size_label(line.size_name)} = {size_text(point.x, line.size_name)}"
    return f"{copies}{pair.ratio.mark} at {at}, {crossing.start.sentence()}"
