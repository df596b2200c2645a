"""report.html: one file with the answer, the explorer and all numbers, for a browser without a network.

Which rows, names, verdicts and sentences there are is decided in Python; ``assets/page.js`` only draws. The page
fetches nothing: its content policy allows its own style and script, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ..version import __version__
from .answer import ANSWER_COLUMNS, TIMING_COLUMNS, Answer, Card
from .page_data import COLUMNS
from .render import Table

FILES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md")
"""Files beside the page that it links."""
_RATIO = re.compile(r"\d[\d,.]*×")
_CLASSES = {"worth it": "yes", "if the data stays": "stays", "no": "no", "unsure": "unsure"}


def webpage(answer: Answer, data: Mapping[str, Any], machines: Sequence[Table], method: Sequence[Table]) -> str:
    """The whole page, equal for equal input.

    ``data`` is what :func:`.page_data.page_data` makes; ``machines`` are tables that compare machines, ``method`` those
    that say how it was measured.
    """
    style, script = asset("page.css"), asset("page.js")
    sections = _sections(answer, data, machines, method)
    return Template(asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'",
        version=escape(__version__),
        title=_title(answer),
        sentence=_emphasised(answer.sentence),
        warnings="".join(f'<p class="warning">⚠ {escape(text)}</p>' for text in answer.warnings),
        contents="".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections),
        sections="\n".join(f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in sections),
        # A text that ends the element early would be markup.
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        style=style,
        script=script,
    )


def _title(answer: Answer) -> str:
    return "How much faster is the GPU?" if answer.cards else "How fast is this machine?"


def _sections(
    answer: Answer, data: Mapping[str, Any], machines: Sequence[Table], method: Sequence[Table]
) -> list[tuple[str, str, str]]:
    """(id, title, body) of each section, empty ones left out."""
    hint = f"<p>{escape(answer.hint)}</p>" if answer.hint else ""
    parts = [("answer", "Answer", ("".join(map(_card, answer.cards)) or _times(answer)) + hint)]
    if machines:
        parts.append(("machines", "Several machines", "".join(map(_table, machines))))
    if data["headline"]["groups"]:
        save = '<div class="tools"><button id="markdown" type="button">Markdown</button></div>'
        parts.append(("picture", "Picture", f'<figure id="headline-figure"></figure>{save}'))
    if any(row[COLUMNS.index("time_s")] is not None for row in data["rows"]):
        parts.append(("explore", "Explore: from which size?", _EXPLORER))
    parts.append(("numbers", "All numbers", _NUMBERS))
    folded = "".join(_folded(title, kind, len(data[name])) for title, kind, name in _FOLDED if data[name])
    if folded:
        parts.append(("more", "More pictures", folded))
    links = " ".join(
        f'<a href="{name}">{name}</a>' for name in ("results.csv", "speedup.csv", "crossover.csv", "summary.md")
    )
    return [*parts, ("method", "How it was measured", "".join(map(_table, method)) + f"<p>{links}</p>")]


_FOLDED = (
    ("Roofline: how close to the measured peak", "roofline", "rooflines"),
    ("Multi-GPU and distributed", "bars", "bars"),
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
<figure id="explorer-figure" tabindex="0" aria-label="Explorer, moved in with the arrow keys"></figure>
<p id="detail" class="detail muted" aria-live="polite"></p>
<p id="finding"></p>"""
_NUMBERS = """
<div class="tools">
<input id="search" type="search" placeholder="search: matmul float32 n=4096" aria-label="Search all numbers" size="34">
<button id="download" type="button">download what is shown (CSV)</button> <span class="muted" id="count"></span></div>
<div class="scroll"><table id="table"></table></div>"""


def _card(card: Card) -> str:
    body = ""
    for row in card.rows:
        name, typically, *middle, worth = map(escape, row.cells)
        cells = f'<td>{name}</td><td class="big">{typically}</td>' + "".join(f"<td>{cell}</td>" for cell in middle)
        body += f'<tr>{cells}<td class="{_CLASSES[row.verdict]}">{worth}</td></tr>'
    head = "".join(f"<th>{name}</th>" for name in ANSWER_COLUMNS)
    return (
        f'<div class="card"><h3>{escape(card.device)} <span>against {escape(card.baseline)}</span></h3>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _times(answer: Answer) -> str:
    """Without an accelerator: what the machine reaches."""
    return _table(Table("", TIMING_COLUMNS, answer.times)) if answer.times else ""


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
