"""report.html: one file with the answer, the explorer and all numbers, for a browser without a network.

Which rows, names, verdicts and sentences there are is decided here and tested here; ``assets/page.js`` only draws.
The page fetches nothing: a content policy allows its own style and script, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import pandas as pd

from ..runfile.schema import Run
from ..version import __version__
from .answer import Answer, Card
from .labels import Row, setting
from .render import Table
from .sweep import rate_of, size_parameter
from .table import records

COLUMNS = (
    "workload", "dtype", "variant", "setting", "size_name", "size", "device", "time_s", "low_s", "high_s", "rate",
    "rate_unit", "utilisation", "speedup", "speedup_low", "speedup_high", "copies", "break_even_calls", "baseline",
    "baseline_s", "status", "flags", "reason",
)  # fmt: skip
"""Of a row in the page's data; ``device`` is an index into its devices."""
INTERNED = ("workload", "dtype", "variant", "setting", "size_name", "rate_unit", "baseline", "status", "flags", "reason")
"""Columns that repeat: the data holds their place in a list of texts."""
DIGITS = 6
"""Significant digits of a number in the page."""
COLOURS = ("d0", "d1", "d2", "d3", "d4", "d5")
SHAPES = 4
"""Marks that tell devices apart beside their colours."""
_MAKER = re.compile(r"^(NVIDIA|AMD|Intel(\(R\))?|Apple)\s+")
_RATIO = re.compile(r"\d[\d,.]*×")


@dataclass(frozen=True, slots=True)
class Shown:
    """A device as the page names it: ``colour`` is a class of the style sheet, ``shape`` the form of its marks."""

    name: str
    short: str
    machine: str
    colour: str
    shape: int


@dataclass(frozen=True, slots=True)
class Material:
    """What a page is made from; all of it is made for the tables as well."""

    runs: Sequence[Run]
    results: pd.DataFrame
    speedups: pd.DataFrame
    answer: Answer
    findings: Mapping[tuple[str, str, str, str], str]
    tables: Sequence[Table]
    pictures: Mapping[str, Any]


def webpage(material: Material) -> str:
    """The whole page. Equal material gives equal text."""
    data = page_data(material)
    style, script = asset("page.css"), asset("page.js")
    sections = _sections(material, data)
    contents = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    return Template(asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'",
        version=escape(__version__),
        title=escape(_title(material.answer)),
        sentence=_emphasised(material.answer.sentence),
        warnings="".join(f'<p class="warning">⚠ {escape(text)}</p>' for text in material.answer.warnings),
        contents=contents,
        sections="\n".join(f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in sections),
        # A text that ends the element early would be markup.
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        style=style,
        script=script,
    )


def page_data(material: Material) -> dict[str, Any]:
    """What the script draws: rows in :data:`COLUMNS`, devices, headline, findings and the folded pictures."""
    measured = records(material.results)
    devices = shown_devices(measured)
    rows = list(_rows(measured, records(material.speedups), list(devices)))
    texts: dict[Any, int] = {}
    for row in rows:
        for column in INTERNED:
            place = COLUMNS.index(column)
            row[place] = texts.setdefault(row[place] or "", len(texts))
    compared = [row for row in records(material.speedups) if row["speedup"]]
    return {
        "columns": COLUMNS,
        "interned": INTERNED,
        "strings": list(texts),
        "rows": rows,
        "devices": [asdict(device) for device in devices.values()],
        "baseline": "the CPU of the same machine" if compared else "",
        "first": _first(compared or measured),
        "findings": {"|".join(key): text for key, text in material.findings.items()},
        **material.pictures,
    }


Source = tuple[str, str, str]
"""Run, device and implementation."""


def source_of(row: Row) -> Source:
    """What makes a line of the explorer and a mark of the headline."""
    return row["run"], row["device"], row["implementation"] or ""


def shown_devices(rows: Sequence[Row]) -> dict[Source, Shown]:
    """CPUs are grey; each accelerator that measured something has a colour and a shape of its own."""
    firsts = {source_of(row): row for row in reversed(rows)}
    measured = {source_of(row) for row in rows if row["_result"].times}
    sources = sorted(dict.fromkeys(map(source_of, rows)), key=lambda source: source not in measured)  # stable
    several = len({source[0] for source in sources}) > 1
    devices: dict[Source, Shown] = {}
    accelerators = 0
    for source in sources:
        row = firsts[source]
        device = row["_run"].machine.device(row["device"])
        implementation = "NumPy" if row["implementation"] == "numpy" else ""
        name = " ".join(filter(None, (device.label or device.name, implementation)))
        short = _MAKER.sub("", name) if device.accelerator else " ".join(filter(None, ("CPU", implementation)))
        if several and not device.accelerator:
            short = f"{short}, {row['run']}"
        coloured = device.accelerator and source in measured
        colour = COLOURS[accelerators % len(COLOURS)] if coloured else "numpy" if implementation else "cpu"
        shape = accelerators % SHAPES if coloured else 2 * bool(implementation)
        devices[source] = Shown(name, short, row["machine"], colour, shape)
        accelerators += coloured
    return devices


def _rows(measured: list[Row], compared: list[Row], devices: list[Source]) -> Iterable[list[Any]]:
    pairs = {id(row["_result"]): row for row in compared if row["run"] == row["baseline_run"]}
    workloads: dict[str, list[Row]] = {}
    for row in measured:
        workloads.setdefault(row["workload"], []).append(row)
    sizes = {workload: size_parameter(members) for workload, members in workloads.items()}
    for row in measured:
        result = row["_result"]
        name = sizes[row["workload"]]
        params = dict(result.case.params)
        size = params.pop(name, None) if name else None
        pair = pairs.get(id(result), {})
        rate, unit = _rate(row)
        cells = {
            "workload": row["workload"],
            "dtype": row["dtype"],
            "variant": row["variant"],
            "setting": _setting(row, params),
            "size_name": name if size is not None else None,
            "size": size,
            "device": devices.index(source_of(row)),
            "time_s": result.times.median_s if result.times else None,
            "low_s": row["low_s"],
            "high_s": row["high_s"],
            "rate": rate,
            "rate_unit": unit,
            "utilisation": row["utilisation"],
            "speedup": pair.get("speedup"),
            "speedup_low": pair.get("low"),
            "speedup_high": pair.get("high"),
            "copies": pair.get("one_shot_speedup"),
            "break_even_calls": pair.get("break_even_calls"),
            "baseline": _baseline(pair),
            "baseline_s": pair.get("baseline_s"),
            "status": row["status"],
            "flags": "; ".join(f"{flag.name}: {flag.seen}" for flag in result.flags),
            "reason": row["reason"],
        }
        yield [_short(cells[column]) for column in COLUMNS]


def _setting(row: Row, params: Mapping[str, Any]) -> str:
    """What tells a line of the explorer from the others of its workload, dtype and variant."""
    words = [setting(name, value) for name, value in params.items()]
    words += [row[name] for name, usual in (("regime", "resident"), ("cache", "hot")) if row[name] not in (None, usual)]
    return ", ".join(words)


def _rate(row: Row) -> tuple[float | None, str | None]:
    rate = rate_of(row) if row["_result"].times else None
    values = rate.measure(row) if rate else None
    return (values[0], rate.unit) if rate and values else (None, None)


def _baseline(pair: Mapping[str, Any]) -> str:
    if not pair:
        return ""
    return "NumPy" if pair["baseline_implementation"] != pair["implementation"] else "the CPU"


def _short(value: Any) -> Any:
    """A number as the page needs it: six digits, and none that JSON doesn't have."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None if value == "" else value
    number = float(f"{value:.{DIGITS}g}")
    return None if number != number or abs(number) == float("inf") else int(number) if number.is_integer() else number


def _first(rows: list[Row]) -> str:
    """The workload that the explorer opens with: the one of most sizes, a matrix product if there is one."""
    count: dict[str, int] = {}
    for row in rows:
        count[row["workload"]] = count.get(row["workload"], 0) + 1 + 1000 * (row["workload"] == "matmul.square")
    return max(count, key=lambda name: count[name], default="")


def _title(answer: Answer) -> str:
    return "How much faster is the GPU?" if answer.cards else "How fast is this machine?"


def _sections(material: Material, data: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(id, title, body) of each section, empty ones left out."""
    answer, pictures = material.answer, material.pictures
    parts = [("answer", "Answer", "".join(map(_card, answer.cards)) or _times(answer))]
    if pictures["headline"]["groups"]:
        save = '<div class="tools"><button id="markdown" type="button">Markdown</button></div>'
        parts.append(("picture", "Picture", f'<figure id="headline-figure"></figure>{save}'))
    if any(row[COLUMNS.index("time_s")] is not None for row in data["rows"]):
        parts.append(("explore", "Explore: from which size?", _EXPLORER))
    parts.append(("numbers", "All numbers", _NUMBERS))
    if compared := [table for table in material.tables if table.title == "Machines compared"]:
        parts.append(("machines", "Several machines", "".join(map(_table, compared))))
    folded = "".join(_folded(title, kind, len(pictures[name])) for title, kind, name in _FOLDED if pictures[name])
    if folded:
        parts.append(("more", "More pictures", folded))
    rest = [table for table in material.tables if table.title != "Machines compared"]
    links = " ".join(f'<a href="{name}">{name}</a>' for name in ("results.csv", "speedup.csv", "crossover.csv", "summary.md"))
    return [*parts, ("method", "How it was measured", "".join(map(_table, rest)) + f"<p>{links}</p>")]


_FOLDED = (
    ("Roofline: how close to the measured peak", "roofline", "rooflines"),
    ("Scaling over several devices", "bars", "bars"),
    ("Runs in time", "trend", "trends"),
)
"""Title, kind of picture to the script, and its key in the data."""


def _folded(title: str, kind: str, count: int) -> str:
    figures = "".join(f'<figure data-{kind}="{i}"></figure>' for i in range(count))
    return f"<details><summary>{title}</summary>{figures}</details>"


_EXPLORER = """
<div class="tools">
<label>workload <select id="workload"></select></label> <label>dtype <select id="dtype"></select></label>
<label>variant <select id="variant"></select></label> <label>configuration <select id="setting"></select></label>
<span id="devices" class="tools"></span>
<button id="quantity-speedup" type="button">speedup</button><button id="quantity-time_s" type="button">time</button>
<button id="quantity-rate" type="button">throughput</button>
</div>
<figure id="explorer-figure" tabindex="0" aria-label="Explorer: arrow keys move along a line and between devices"></figure>
<p id="detail" class="detail muted" aria-live="polite"></p>
<p id="finding"></p>"""
_NUMBERS = """
<div class="tools"><input id="search" type="search" placeholder="search: matmul float32 n=4096" aria-label="Search all numbers" size="34">
<button id="download" type="button">download what is shown (CSV)</button> <span class="muted" id="count"></span></div>
<div class="scroll"><table id="table"></table></div>"""


def _card(card: Card) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("work", "typically", "range", "with copies", "faster from", "worth it?"))
    body = "".join(
        f'<tr><td>{escape(row.work)}</td><td class="big">{escape(row.typical)}</td><td>{escape(row.range)}</td>'
        f"<td>{escape(row.copies)}</td><td>{escape(row.faster_from)}</td>"
        f'<td class="{escape(row.verdict)}">{escape(row.worth_it)}</td></tr>'
        for row in card.rows
    )
    return (
        f'<div class="card"><h3>{escape(card.device)} <span>against {escape(card.baseline)}</span></h3>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _times(answer: Answer) -> str:
    """Without an accelerator: what the machine reaches."""
    rows = [[time.name, time.time, time.rate, time.percent] for time in answer.times]
    return _table(Table("", ["benchmark", "time", "throughput", "% of peak"], rows)) if rows else ""


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(str(column))}</th>" for column in table.columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in table.rows)
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    note = f'<p class="muted">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="card">{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}</div>'


def _emphasised(sentence: str) -> str:
    return _RATIO.sub(lambda found: f"<strong>{found[0]}</strong>", escape(sentence))


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def asset(name: str) -> str:
    """A file of the page; the hash of its text stands in the page's policy."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
