"""Estimates as tables: lists of columns, each a heading and what it says of an estimate, and thin ways to write."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..devices.datasheets import Figures, Gpu
from ..format import counted, ratio_text, seconds_text
from ..runfile.matching import shown_name
from .outlook import (
    MODELLED,
    NO,
    PERHAPS,
    PROBABLY,
    PROBABLY_NOT,
    STAYS,
    UNKNOWN,
    Outlook,
    SizesLost,
    crossing,
    largest_of_each,
    line_of,
)

Columns = Sequence[tuple[str, Callable[[Any], Any]]]
Prices = Mapping[str, float]
"""Of an hour on a card, by its name; ``cpu`` is the machine of the run."""
CPU_PRICE = "cpu"

VALUES: Columns = (
    ("id", lambda row: row.job.id),
    ("gpu", lambda row: row.gpu),
    ("cpu_s", lambda row: row.job.cpu_s),
    ("bound", lambda row: row.bound),
    ("shortest_s", lambda row: row.shortest_s),
    ("at_most", lambda row: row.at_most),
    ("probably_low", lambda row: row.probably and row.probably[0]),
    ("probably_high", lambda row: row.probably and row.probably[1]),
    ("with_copies_at_most", lambda row: row.with_copies_at_most),
    ("verdict", lambda row: row.verdict),
    ("status", lambda row: row.status),
    ("note", lambda row: row.note),
)
"""What files hold: SI base units, nothing for what is unknown."""
NOTICE = "Estimated, not measured, from the GPU's datasheet and each benchmark's work. How wrong: docs/estimate.md"
_VERDICTS = {
    NO: "the GPU can't be faster in {}",
    STAYS: "faster only if the data stays on the GPU in {}",
    PERHAPS: "perhaps faster in {}",
    PROBABLY: "probably faster in {}",
    PROBABLY_NOT: "probably not faster in {}",
    UNKNOWN: "unknown in {}",
}


def _ratio(value: float | None) -> str:
    return "" if value is None else ratio_text(value)


def _interval(values: tuple[float, float] | None) -> str:
    if values is None:
        return ""
    low, high = map(ratio_text, values)
    return low if low == high else f"{low[:-1]}–{high}"


def cost_of_million(seconds: float | None, price: float | None) -> float | None:
    """What a million calls cost, at a price of an hour."""
    return None if seconds is None or price is None else seconds / 3600 * price * 1e6


def value_columns(prices: Prices) -> Columns:
    """Those of files, with the least cost where there are prices."""
    if not prices:
        return VALUES
    gpu = ("gpu_cost_of_million_calls_at_least", lambda row: cost_of_million(row.shortest_s, prices.get(row.gpu)))
    cpu = ("cpu_cost_of_million_calls", lambda row: cost_of_million(row.job.cpu_s, prices.get(CPU_PRICE)))
    return (*VALUES, gpu, cpu)


def shown_columns(crossings: Mapping[tuple[object, ...], SizesLost | None], prices: Prices) -> Columns:
    """Those for people, of one card."""
    columns = [
        ("benchmark", lambda row: shown_name(row.job.id) + (f" ({row.job.way})" if row.job.way else "")),
        ("CPU", lambda row: seconds_text(row.job.cpu_s) + "*" * row.job.noisy),
        ("limited by", lambda row: row.bound),
        ("at most", lambda row: _ratio(row.at_most)),
        ("probably", lambda row: _interval(row.probably)),
        ("with copies at most", lambda row: _ratio(row.with_copies_at_most)),
        ("can't win at", lambda row: _crossing(crossings.get(line_of(row.job)))),
        ("worth it?", lambda row: row.verdict),
    ]
    if prices:
        columns += [
            ("1M calls cost at least", lambda row: _cost(cost_of_million(row.shortest_s, prices.get(row.gpu)))),
            ("on the CPU", lambda row: _cost(cost_of_million(row.job.cpu_s, prices.get(CPU_PRICE)))),
        ]
    return columns


def _cost(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}" if value >= 0.01 else f"{value:.1g}"


def _crossing(found: SizesLost | None) -> str:
    if found is None:
        return ""
    size = f"{found.size:,}" if isinstance(found.size, int | float) else str(found.size)
    return "any size measured" if found.every else f"{found.name} ≤ {size}"


def crossings_of(estimates: Iterable[Outlook]) -> dict[tuple[object, ...], SizesLost | None]:
    """By line, of estimates on one card."""
    lines: dict[tuple[object, ...], list[Outlook]] = defaultdict(list)
    for each in estimates:
        lines[line_of(each.job)].append(each)
    return {line: crossing(members) for line, members in lines.items()}


def by_gpu(estimates: Iterable[Outlook]) -> dict[str, list[Outlook]]:
    """In the order of the cards."""
    groups: dict[str, list[Outlook]] = defaultdict(list)
    for each in estimates:
        groups[each.gpu].append(each)
    return dict(groups)


def summary(gpu: str, estimates: Sequence[Outlook]) -> str:
    """The claim first: how many benchmarks get which verdict."""
    counts = Counter(each.verdict for each in estimates)
    parts = [words.format(counts[verdict]) for verdict, words in _VERDICTS.items() if counts[verdict]]
    return f"{gpu}, {counted(len(estimates), 'benchmark')}: {'; '.join(parts)}."


def unknown_lines(estimates: Iterable[Outlook]) -> list[str]:
    """Why benchmarks have no estimate, a line for each reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for each in estimates:
        if each.verdict == UNKNOWN:
            reasons[each.note].append(shown_name(each.job.case.workload))
    lines = []
    for reason, names in reasons.items():
        distinct = list(dict.fromkeys(names))
        more = f" and {len(distinct) - 4} more" if len(distinct) > 4 else ""
        lines.append(f"Unknown in {counted(len(names), 'benchmark')}: {reason} ({', '.join(distinct[:4])}{more})")
    return lines


# Ways to write --------------------------------------------------------------------------------------------------------


def as_csv(estimates: Iterable[Outlook], prices: Prices) -> str:
    """A row for each benchmark and card."""
    columns, out = value_columns(prices), io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([head for head, _ in columns])
    writer.writerows(["" if (value := cell(row)) is None else value for _, cell in columns] for row in estimates)
    return out.getvalue()


def as_json(estimates: Iterable[Outlook], prices: Prices, run: str) -> str:
    """The same, with the sizes at which a card can't win."""
    columns, groups = value_columns(prices), by_gpu(estimates)
    rows = [{head: cell(row) for head, cell in columns} for group in groups.values() for row in group]
    lost = []
    for gpu, group in groups.items():
        for line, found in crossings_of(group).items():
            if found:
                benchmark = f"{line[0]} {line[1]}".strip()
                lost.append({"benchmark": benchmark, "gpu": gpu, "name": found.name, "size": found.size})
    content = {"status": MODELLED, "notice": NOTICE, "run": run, "estimates": rows, "cannot_win_at": lost}
    return json.dumps(content, indent=1) + "\n"


def _filled(columns: Columns, rows: Iterable[Any]) -> list[list[str]]:
    """Heads and cells, without the columns that hold nothing."""
    cells = [[str(cell(row)) for _, cell in columns] for row in rows]
    kept = [place for place in range(len(columns)) if any(row[place] for row in cells)]
    return [[columns[place][0] for place in kept], *([row[place] for place in kept] for row in cells)]


def as_markdown(estimates: Iterable[Outlook], prices: Prices, every: bool) -> str:
    """A table for each card."""
    lines = [NOTICE, ""]
    for gpu, group in by_gpu(estimates).items():
        heads, *rows = _filled(shown_columns(crossings_of(group), prices), _shown(group, every))
        lines += [summary(gpu, group), "", *_pipes([heads, ["---"] * len(heads), *rows]), ""]
        lines += [f"- {line}" for line in unknown_lines(group)]
    return "\n".join(lines).rstrip() + "\n"


def _pipes(rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def _shown(group: Sequence[Outlook], every: bool) -> list[Outlook]:
    return [each for each in (group if every else largest_of_each(group)) if each.verdict != UNKNOWN]


def show(estimates: Sequence[Outlook], prices: Prices, every: bool) -> None:
    """Print what a hurried person needs; of each workload its largest size, unless ``every``."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=shutil.get_terminal_size((160, 24)).columns, highlight=False, markup=False)
    groups = by_gpu(estimates)
    console.print(NOTICE)
    for gpu, group in groups.items():
        console.print(f"\n{summary(gpu, group)}")
        heads, *rows = _filled(shown_columns(crossings_of(group), prices), _shown(group, every))
        table = Table(box=None, pad_edge=False)
        for place, head in enumerate(heads):
            table.add_column(head, overflow="fold", justify="left" if place == 0 or head == "worth it?" else "right")
        for row in rows:
            table.add_row(*map(Text, row))  # names hold square brackets: no markup
        if rows:
            console.print(table)
        for line in unknown_lines(group):
            console.print(line)
    console.print("\nat most: no program can be faster on that card; probably: what other cards' timings suggest")
    if not every and any(len(_shown(group, True)) > len(_shown(group, False)) for group in groups.values()):
        console.print("Of each workload its largest size is shown: -k NAME shows all sizes, --format csv everything.")
    if any(each.job.noisy for each in estimates):
        console.print("* noisy: the CPU's time may be far off")


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
        lines.append(card.name + (f" (also: {', '.join(card.aliases)})" if card.aliases else ""))
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
