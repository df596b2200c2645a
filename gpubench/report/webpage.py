"""report.html: one file with the answer, the pictures and all numbers, for a browser without a network.

The page fetches nothing: its content policy allows its own style and script, by their hashes. ``assets/page.html`` is
its template, and ``assets/page.js`` searches, sorts and dims.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment
from markupsafe import Markup, escape

from ..runfile.quantities import counted, listed, shorten
from . import words
from .answer import Answer
from .charts.theme import css_colours
from .number import MISSING
from .render import Column, Table, table
from .study import Pair, Row, Study
from .tables import answer_tables, detail_tables

if TYPE_CHECKING:
    from .charts.pictures import Drawing

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PART = re.compile(r"(?<=\w)([._])(?=[^\W\d])")
"""Where a long name may be broken."""
_FILES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md")
"""The files beside the page."""
_MOST_RUNS, _MOST_NAMES = 6, 4


def webpage(
    answer: Answer, pictures: Sequence[Drawing] = (), by_size: Sequence[Drawing] = (), version: str = ""
) -> str:
    """Return the page made by this ``version``; equal input gives identical output. Pictures ``by_size`` are folded,
    each at the address that is its name."""
    study, style, script = answer.study, _asset("page.css") + css_colours(), _asset("page.js")
    names = {row.result.workload: words.name(row.result) for row in study.measured}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["kept"] = _kept
    small = [str(warning) for warning in answer.warnings if warning.minor]
    rows = sorted(study.measured, key=study.names.order) or study.rows
    devices = [*dict.fromkeys(study.names.short(study.names.of(row)) for row in rows if not row.library)]
    runs = []  # server · Intel Xeon, 2 threads · NVIDIA H200 · PyTorch 2.13.0 · 2026-01-31 · 3 processes
    for name, run in [*study.named_runs.items()][:_MOST_RUNS]:
        maker = f"gpubench {run.version}" * bool(run.version)
        parts = (shorten(name), words.machine(run), maker, run.date, counted(run.processes, "process"))
        runs.append(" · ".join(filter(None, parts)))
    rest = [*study.named_runs][_MOST_RUNS:]
    runs += [f"and {listed(rest)}"] * bool(rest)
    return environment.from_string(_asset("page.html")).render(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'",
        version=version,
        style=style,
        script=script,
        title=f"Benchmark report: {listed(devices, _MOST_NAMES)}",
        runs=runs,
        answer=answer,
        warnings=[warning for warning in answer.warnings if not warning.minor],
        answers=answer_tables(answer),
        notes=[note for note in (answer.hint, answer.left_out, *small) if note],
        pictures=pictures,
        by_size=[(names[drawing.figure.workload], drawing) for drawing in by_size],
        more=len(names) > len(by_size),
        numbers=numbers_table(study),
        details=detail_tables(study),
        files=_FILES,
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _kept(text: str) -> Markup:
    """The text with its signs beside their numbers and with whole dates; a long name may be broken at its points."""
    parts = _PART.sub(r"\1<wbr>", str(escape(words.together(text))))
    return Markup(_DATE.sub(r'<span class="whole">\g<0></span>', parts))


def numbers_table(study: Study) -> Table:
    """Every benchmark, measured or not."""
    pairs: dict[Row, Pair] = {pair.other: pair for pair in study.pairs}
    base = study.names.baseline([*pairs.values()]) if pairs else ""
    columns: list[Column[Row]] = [
        Column("benchmark", lambda row: words.benchmark(row.result)),
        Column("device", study.names.of),
        Column("time", lambda row: getattr(row, "time", row.result.status)),
        Column(f"speedup over {base}", lambda row: getattr(pairs.get(row), "full_ratio", MISSING)),
        Column("with copies", lambda row: getattr(pairs.get(row), "copied_ratio", MISSING)),
        Column("throughput", lambda row: getattr(row, "speed", None)),
        Column("% of peak", lambda row: getattr(row, "peak_share", None)),
        Column("notes", lambda row: row.result.reason or ", ".join(getattr(row, "flags", ()))),
    ]
    return table("", columns, study.rows)
