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

from ..runfile.quantities import counted, shorten
from . import words
from .answer import Answer
from .charts.theme import css_colours
from .number import MISSING
from .render import Column, Table, table
from .study import Measured, Row, Study
from .tables import answer_tables, detail_tables

if TYPE_CHECKING:
    from .charts.pictures import Drawing

_SIGN = re.compile(r"(?<=[≥≤≈=]) (?=\S)|(?<=\w) (?=[≈=] )|(?<=\d) (?=[^\W\d])")
"""Between a number and its name, its sign or its unit, which stay in one line."""
_PART = re.compile(r"(?<=\w)([._])(?=[^\W\d])")
"""Where a long name may be broken."""
_FILES = ("results.csv", "speedup.csv", "crossover.csv", "summary.md")
"""What lies beside the page."""
_MOST_WARNINGS, _MOST_RUNS, _MOST_NAMES = 3, 6, 4


def webpage(
    answer: Answer, pictures: Sequence[Drawing] = (), by_size: Sequence[Drawing] = (), version: str = ""
) -> str:
    """Return the page made by this ``version``; equal input gives identical output. Pictures ``by_size`` are folded,
    each at the address that is its name."""
    study, style, script = answer.study, _asset("page.css") + css_colours(), _asset("page.js")
    names = {row.result.workload: words.name(row.result) for row in study.measured}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["kept"] = _kept
    red = [each for each in answer.warnings if not each.minor]
    small = [str(each) for each in answer.warnings if each.minor]
    return environment.from_string(_asset("page.html")).render(
        policy=_policy(style, script),
        version=version,
        style=style,
        script=script,
        title=f"Benchmark report: {' · '.join(_devices(study))}",
        runs=[_run_words(name, study) for name in [*study.named_runs][:_MOST_RUNS]],
        answer=answer,
        warnings=red[:_MOST_WARNINGS],
        answers=answer_tables(answer),
        notes=[each for each in (answer.hint, answer.left_out, *small) if each],
        pictures=pictures,
        by_size=[(names[drawing.figure.workload], drawing) for drawing in by_size],
        more=len(names) > len(by_size),
        numbers=numbers_table(study),
        details=detail_tables(study),
        files=_FILES,
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    allowed = {"default": "'none'", "style": _hash(style), "script": _hash(script)}
    return "; ".join([*(f"{what}-src {source}" for what, source in allowed.items()), "base-uri 'none'"])


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _kept(text: str) -> Markup:
    """The text with its signs beside their numbers; a long name may be broken at its points."""
    return Markup(_PART.sub(r"\1<wbr>", str(escape(_SIGN.sub("\u00a0", text)))))


def _devices(study: Study) -> list[str]:
    """The names of the devices, without other libraries, and how many more there are."""
    rows = sorted(study.measured, key=study.names.order) or study.rows
    names = [*dict.fromkeys(words.without_threads(study.names.of(row)) for row in rows if not row.library)]
    return names[:_MOST_NAMES] + [f"{len(names) - _MOST_NAMES} more"] * (len(names) > _MOST_NAMES)


def _run_words(name: str, study: Study) -> str:
    """``server · Intel Xeon, 2 threads · NVIDIA H200 · PyTorch 2.13.0 · 2026-01-31 · 3 processes``."""
    run = study.named_runs[name]
    version = f"gpubench {run.version}" if run.version else ""
    parts = (shorten(name), words.machine(run), version, run.date or "", counted(run.processes, "process"))
    return " · ".join(filter(None, parts))


def numbers_table(study: Study) -> Table:
    """Every benchmark, measured or not."""
    pairs = {pair.other: pair for pair in study.pairs}
    base = study.names.baseline([*pairs.values()]) if pairs else ""

    def measured(name: str, row: Row) -> object:
        return getattr(row, name) if isinstance(row, Measured) else None

    def compared(name: str, row: Row) -> object:
        return getattr(pairs[row], name) if row in pairs else MISSING  # type: ignore[index]

    columns: list[Column[Row]] = [
        Column("benchmark", lambda row: words.benchmark(row.result)),
        Column("device", study.names.of),
        Column("time", lambda row: measured("time", row) or row.result.status),
        Column(f"speedup over {base}", lambda row: compared("full_ratio", row)),
        Column("with copies", lambda row: compared("copied_ratio", row)),
        Column("throughput", lambda row: measured("speed", row)),
        Column("% of peak", lambda row: measured("peak_share", row)),
        Column("notes", lambda row: row.result.reason or ", ".join(dict.fromkeys(f.name for f in row.result.flags))),
    ]
    return table("", columns, study.rows)
