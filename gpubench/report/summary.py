"""summary.md: the answer on one screen, the pictures, and every table folded below them."""

from __future__ import annotations

import html
from collections.abc import Sequence

from .answer import Answer
from .machines import Priced
from .render import escape, markdown
from .tables import detail_tables, leading_tables


def summary(
    answer: Answer,
    prices: Sequence[Priced] = (),
    pictures: Sequence[tuple[str, str]] = (),
    picture: str = "svg",
    themes: Sequence[str] = ("light",),
) -> str:
    """The Markdown. ``pictures`` are titles and stems of the files in ``charts/``, drawn in ``picture`` format."""
    lines = ["# Benchmark report", ""]
    lines += [line for words in filter(None, (answer.sentence, answer.hint)) for line in (escape(words), "")]
    lines += [line for warning in answer.warnings for line in (f"> **Warning:** {escape(str(warning))}", "")]
    for table in leading_tables(answer, prices):
        lines += [f"## {escape(table.title)}", "", *markdown(table), ""]
    lines += ["## Charts", ""] * bool(pictures)
    for title, stem in pictures:
        first, *dark = (f"charts/{stem}-{theme}.{picture}" for theme in themes)
        source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark[0]}">' if dark else ""
        lines += [f'<picture>{source}<img alt="{html.escape(title)}" src="{first}"></picture>', ""]
    for table in detail_tables(answer.study):
        head = f"<details><summary>{html.escape(table.title)}</summary>"
        lines += [head, "", *markdown(table), "", "</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"
