"""How much faster it is by size, with data that stays and with copies: a picture of several benchmarks, and one of
each, with a panel for each dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...runfile.quantities import listed
from .. import words
from ..answer import answer_rows, choose_rows
from ..study import Crossing, Study, grouped, plainness
from .layouts import LinePanels, Panel
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .selection import by_size, curve, keys, panel_title, plainest_line

_LIMIT = "▲ at least, ▼ at most this; the speedup lies within its bar. "
_START = "Diamond or bar at 1×: faster from that size on. "
_COPIES = "With copies: inputs copied from pageable memory, one call, results copied back. "
_NONE = LinePanels((), "")
Lines = list[Crossing]
"""The lines of a panel: of each device with data that stays, and with copies."""


def speedup_figures(study: Study) -> list[Figure]:
    """Return the pictures of each baseline: one of several benchmarks, and one of each. By default a report shows the
    first. Baselines that are accelerators come first, as in the answer."""
    figures: list[Figure] = []
    by_base = grouped(study.crossings, lambda each: each.pair.base.source)
    ordered = sorted(by_base, key=lambda source: (source not in study.names.accelerators, bool(source.library)))
    for rank, members in enumerate(by_base[source] for source in ordered):
        benchmarks = list(grouped(members, lambda each: each.line.last.result.workload).values())
        benchmarks = [
            lines for lines in benchmarks if any([p for p in each.line.items if p.drawn][1:] for each in lines)
        ]
        of_each = [figure for lines in benchmarks for figure in _of_one(study, lines)]
        for at, figure in enumerate([*_of_several(study, benchmarks), *of_each]):
            first = rank == at == 0
            figures.append(replace(figure, rank=1.0 if first else 9.0 + 20 * rank, default=first))
    return figures


def _plainest(lines: Lines) -> Lines:
    """The lines of the setting that the answer shows."""
    setting = plainest_line([each.line for each in lines if each.resident] or [each.line for each in lines]).setting
    return [each for each in lines if each.line.setting == setting]


def _of_several(study: Study, benchmarks: Sequence[Lines]) -> list[Figure]:
    """A panel for each benchmark of the answer's first rows, in its plainest form, until the picture is full."""
    plain = {lines[0].pair: lines for lines in map(_plainest, benchmarks)}
    panels = [plain[row.items[0]] for row in choose_rows(answer_rows(study, list(plain)), MOST_PANELS)]
    if len(panels) < 2:
        return []
    several_dtypes = len({lines[0].line.last.dtype for lines in panels}) > 1
    titles = [panel_title(lines[0].line, True, several_dtypes) for lines in panels]
    left = len(benchmarks) - len(panels)
    ends = grouped((each.pair for lines in panels for each in lines if each.resident), lambda pair: pair.other.source)
    counts = [
        f"{study.names.subject(pairs[0])} faster in {sum(pair.faster for pair in pairs)} of {len(pairs)}"
        for pairs in ends.values()
    ]
    figure = Figure("speedup", "speedup", "Speedup by size", f"At the largest size: {'; '.join(counts)}", "", _NONE)
    return _drawn(study, replace(figure, caption=f"{left} more benchmarks not shown. " * bool(left)), titles, panels)


def _of_one(study: Study, lines: Lines) -> list[Figure]:
    """Panels by dtype in the plainest form, which the title names, or of a single dtype by form."""
    plain = _plainest(lines)[0].line
    dtypes = grouped((each for each in lines if each.line.form == plain.form), lambda each: each.line.last.dtype)
    several = len(dtypes) > 1
    forms = list((dtypes if several else grouped(lines, lambda each: each.line.form)).values())
    forms.sort(key=lambda form: plainness(form[0].pair))
    firsts = [(form[0].line.last, form[0].line.size_name) for form in forms]
    titles = [  # ``bfloat16``, or the setting except dtype and size: ``autocast, width=4``
        row.dtype if several else words.setting(row.result, ("dtype", size)) or "eager" for row, size in firsts
    ]
    findings = []
    for each in (each for each in forms[0] if each.resident):  # ``H200 faster from n ≈ 72, with copies from n ≈ 280``
        beside = [other for other in forms[0] if not other.resident and _device(other) == _device(each)]
        starts = [f"{study.names.subject(each.pair)} {each.start.sentence()}", *(x.start.sentence("") for x in beside)]
        findings.append(", with copies ".join(starts))
    finding = "; ".join(findings) + f" ({titles[0]})" * (len(forms) > 1)
    workload, left = plain.last.result.workload, len(forms[MOST_PANELS:])
    name = panel_title(plain, True, False) if several else words.name(plain.last.result)
    rest = f"{left} more settings not shown. " * bool(left)
    figure = Figure(f"speedup-{workload}", "speedup", f"{name}: speedup", finding, rest, _NONE, workload=workload)
    return _drawn(study, figure, titles, forms[:MOST_PANELS])


def _device(each: Crossing) -> object:
    return each.line.last.source


def _drawn(study: Study, figure: Figure, titles: Sequence[str], panels: Sequence[Lines]) -> list[Figure]:
    """A panel for each group of lines; with copies the line of a device is dashed, or left out where there are too
    many. None of fewer values than make a picture."""
    kept = [lines if len(lines) <= MOST_CURVES else [each for each in lines if each.resident] for lines in panels]
    kept = [lines[:MOST_CURVES] for lines in kept]
    used = [pair for lines in kept for each in lines if each.resident for pair in each.line.items]
    several = len(kept) > 1 or len({_device(each) for lines in kept for each in lines}) > 1

    def label(each: Crossing) -> str:
        stays = "data stays" * each.line.last.on_accelerator if each.resident else "with copies"
        return stays * (not several)

    drawn = []
    for title, lines in zip(titles, kept, strict=False):
        curves = tuple(curve(study, each.line, "", label(each), each) for each in lines)
        drawn.append(Panel(title * (len(kept) > 1), lines[0].line.size_name, curves))
    every = [curve for panel in drawn for curve in panel.curves]
    copies = any(curve.dashed for curve in every)
    legend = (*keys(study, (pair.other for pair in used)), *([Key("with copies", "muted", "dashed")] * copies))
    base = study.names.baseline(used)
    note = f"Bar at a point: {words.uncertainty(pair.uncertainty for pair in used)}. "
    note += _LIMIT * any(dot.limit for curve in every for dot in curve.dots)
    note += _START * any(curve.mark for curve in every) + _COPIES * copies + figure.caption
    if not all(pair.within_run for pair in used):  # devices that measured the same, but have no line
        workloads = {pair.other.result.workload for pair in used}
        there = {row.source for pair in used for row in (pair.base, pair.other)}
        same = [row for row in study.measured if row.result.workload in workloads and not row.library]
        names = dict.fromkeys(study.names.of(row) for row in same if row.source not in there)
        note += f"Not shown: {listed(names)}. " * bool(names)
    devices = list(dict.fromkeys(study.names.subject(pair) for pair in used))
    title = f"{figure.title} {f'of {devices[0]} ' * (len(devices) == 1)}over {base}"
    chart = LinePanels(tuple(drawn), "", legend * (len(legend) > 1 and several), study.names.short(base))
    return by_size(study, replace(figure, title=title, caption=note, chart=chart), used)
