"""Estimates as text: the columns of files and of tables, and the text around them."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..devices.datasheets import Figures, Gpu
from ..devices.roofline import held_shares
from ..report import words
from ..report.render import Column, Table, escape, markdown, table, terminal
from ..report.rows import grouped
from ..runfile.quantities import counted
from .model import LEAST_CALL_S
from .outlook import (
    MODELLED,
    NO,
    PERHAPS,
    STAYS,
    UNKNOWN,
    Outlook,
    SizesLost,
    crossing,
    largest_of_each,
    line_of,
)

VALUES: Sequence[Column[Outlook]] = (
    Column("id", lambda each: each.job.id),
    Column("gpu", lambda each: each.gpu),
    Column("cpu_s", lambda each: each.job.cpu_s),
    Column("bound", lambda each: each.bound),
    Column("shortest_s", lambda each: each.shortest_s),
    Column("at_most", lambda each: each.at_most),
    Column("probably_low", lambda each: each.probably and each.probably[0]),
    Column("probably_high", lambda each: each.probably and each.probably[1]),
    Column("with_copies_at_most", lambda each: each.with_copies_at_most),
    Column("verdict", lambda each: each.verdict),
    Column("status", lambda each: MODELLED),
    Column("note", lambda each: each.note),
)
"""Columns of files: SI base units, and empty where a value is unknown."""
MOST_SHOWN = 200.0
"""The largest bound shown in tables: a larger one often rests only on the launch of an operation. Files hold it."""
NOTICE = "Modelled, not measured: from the GPU's datasheet and each benchmark's work. How wrong: docs/estimate.md"
_VERDICTS = {
    NO: "the GPU can't be faster in {}",
    STAYS: "faster only if the data stays on the GPU in {}",
    PERHAPS: "perhaps faster in {}",
    UNKNOWN: "unknown in {}",
}


def meanings() -> str:
    """What the columns mean, with the measured hit rate."""
    rates = " and ".join(f"{low:.0%} to {high:.0%} of {kind}" for kind, (low, high) in held_shares().items())
    return (
        "at most: no program can be faster on that GPU; probably: held for "
        f"{rates} of GPUs that weren't learned from, in float32"
    )


def bound_text(value: float | None) -> str:
    """``44×``; a dash for a bound too large to exclude any expected speedup."""
    return "" if value is None else words.times(value) if value <= MOST_SHOWN else words.NO_VALUE


def probably_text(each: Outlook) -> str:
    """``44× to 62×``."""
    return words.times_range(*each.probably) if each.probably else ""


def shown_columns(group: Iterable[Outlook]) -> Sequence[Column[Outlook]]:
    """Columns of the table of one card."""
    lost = sizes_lost(group)
    return [
        Column("benchmark", lambda each: words.benchmark(each.job.case)),
        Column("CPU", lambda each: words.starred_time(each.job.cpu_s, each.job.star)),
        Column("fastest with", lambda each: each.job.way),
        Column("limited by", lambda each: each.bound),
        Column("at most", lambda each: bound_text(each.at_most), f"— a bound above {MOST_SHOWN:g}×: it says nothing."),
        Column("probably", probably_text),
        Column("with copies at most", lambda each: bound_text(each.with_copies_at_most)),
        Column("can't win at", lambda each: _lost_text(lost.get(line_of(each.job)))),
        Column("worth it?", lambda each: each.verdict),
    ]


def sizes_lost(estimates: Iterable[Outlook]) -> dict[tuple[object, ...], SizesLost]:
    """The sizes at which a card can't win, by line; the estimates are of one card."""
    lines = grouped(estimates, lambda each: line_of(each.job))
    return {line: found for line, members in lines.items() if (found := crossing(members))}


def _lost_text(found: SizesLost | None) -> str:
    if found is None:
        return ""
    size = words.size_text(found.size, found.name)
    return "any size measured" if found.every else f"{words.size_label(found.name)} ≤ {size}"


def by_gpu(estimates: Iterable[Outlook]) -> dict[str, list[Outlook]]:
    """Group the estimates by GPU, in the order of the cards."""
    return grouped(estimates, lambda each: each.gpu)


def summary(gpu: str, estimates: Sequence[Outlook]) -> str:
    """How many benchmarks get which verdict, as one line."""
    counts = Counter(each.verdict for each in estimates)
    parts = [told.format(counts[verdict]) for verdict, told in _VERDICTS.items() if counts[verdict]]
    return f"{gpu} ({MODELLED}), {counted(len(estimates), 'benchmark')}: {'; '.join(parts)}."


def unknown_lines(estimates: Iterable[Outlook]) -> list[str]:
    """A line for each reason why benchmarks have no estimate, or no likely time."""
    lacking = [each for each in estimates if each.note]
    lines = []
    for (unknown, reason), members in grouped(lacking, lambda each: (each.verdict == UNKNOWN, each.note)).items():
        names = list(dict.fromkeys(words.name(each.job.case) for each in members))
        what = "Unknown" if unknown else "What is probable is unknown"
        lines.append(f"{what} in {counted(len(members), 'benchmark')}: {reason} ({words.listed(names, 4)})")
    return lines


# Ways to write --------------------------------------------------------------------------------------------------------


def as_json(estimates: Iterable[Outlook], run: str) -> str:
    """The estimates as JSON, with the sizes at which a card can't win."""
    groups = by_gpu(estimates)
    rows = [{column.head: column.cell(each) for column in VALUES} for group in groups.values() for each in group]
    lost = [
        {"benchmark": f"{line[0]} {line[1]}".strip(), "gpu": gpu, "name": found.name, "size": found.size}
        for gpu, group in groups.items()
        for line, found in sizes_lost(group).items()
    ]
    content = {"status": MODELLED, "notice": NOTICE, "run": run, "estimates": rows, "cannot_win_at": lost}
    return json.dumps(content, indent=1) + "\n"


def _table(gpu: str, group: Sequence[Outlook], every: bool) -> Table:
    return table(summary(gpu, group), shown_columns(group), shown(group, every))


def as_markdown(estimates: Iterable[Outlook], every: bool) -> str:
    """The estimates as Markdown, a table for each card."""
    lines = [NOTICE, ""]
    for gpu, group in by_gpu(estimates).items():
        drawn = _table(gpu, group, every)
        lines += [escape(drawn.title), "", *(markdown(drawn) if drawn.rows else []), ""]
        lines += [f"- {escape(line)}" for line in unknown_lines(group)]
    return "\n".join([*lines, "", escape(meanings())]) + "\n"


def shown(group: Sequence[Outlook], every: bool) -> list[Outlook]:
    """The estimates that are shown: the largest size of each workload, or all sizes if ``every``, without unknown
    ones."""
    return [each for each in (group if every else largest_of_each(group)) if each.verdict != UNKNOWN]


def screen(estimates: Sequence[Outlook], every: bool, width: int) -> list[str]:
    """The lines for the terminal: the largest size of each workload, or all sizes if ``every``."""
    lines, groups = [NOTICE], by_gpu(estimates)
    for gpu, group in groups.items():
        drawn = _table(gpu, group, every)
        lines += ["", *(terminal(drawn, width) if drawn.rows else [drawn.title]), *unknown_lines(group)]
    lines += ["", f"{meanings()}."]
    if any(each.bound == "launch" and each.verdict != NO for each in estimates):
        lines.append(f"limited by launch: no more is certain than that a call takes {LEAST_CALL_S * 1e6:g} µs.")
    if any(each.at_most is not None and each.with_copies_at_most is None for each in estimates):
        lines.append("with copies: unknown where the file doesn't say what is copied, or the GPU's link isn't known.")
    if not every and any(len(shown(group, True)) > len(shown(group, False)) for group in groups.values()):
        lines.append(
            "Of each workload its largest size is shown: -k NAME shows all sizes, --format csv prints everything."
        )
    return [part for line in lines for part in (textwrap.wrap(line, width) if len(line) > width else [line])]


FIGURE_WORDS = {
    "float32": ("float32", 1e12, "TFLOP/s"),
    "tf32": ("TF32", 1e12, "TFLOP/s"),
    "half": ("half", 1e12, "TFLOP/s"),
    "float64": ("float64", 1e12, "TFLOP/s"),
    "memory": ("memory", 1e9, "GB/s"),
    "cache": ("cache", 1e6, "MB"),
    "watt": ("power", 1, "W"),
    "link": ("link", 1e9, "GB/s"),
}


def list_text(cards: Mapping[str, Gpu], sources: Mapping[str, str]) -> str:
    """All cards: each figure with its source."""
    lines = []
    for card in cards.values():
        said = [f"also: {', '.join(card.aliases)}"] * bool(card.aliases)
        said += [f"emulates {', '.join(card.emulates)}"] * bool(card.emulates)
        lines.append(card.name + (f" ({'; '.join(said)})" if said else ""))
        for name in Figures.__struct_fields__:
            word, scale, unit = FIGURE_WORDS[name]
            figure = getattr(card.figures, name)
            if figure is None:
                lines.append(f"  {word:8} {'—':>14}")
                continue
            note = f" ({figure.note})" if figure.note else ""
            lines.append(f"  {word:8} {f'{figure.value / scale:,.4g} {unit}':>14}  {figure.source}{note}")
    used = {f.source for card in cards.values() for n in Figures.__struct_fields__ if (f := getattr(card.figures, n))}
    lines += ["", "Sources", *(f"  {name:20} {sources[name]}" for name in sorted(used) if name in sources)]
    return "\n".join(lines)
