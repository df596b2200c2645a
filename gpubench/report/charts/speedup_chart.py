"""How much faster it is by size, with data that stays and with copies: a picture of several benchmarks, and one of
each, with a panel for each dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from ...runfile.quantities import listed
from .. import words
from ..study import Crossing, Line, Pair, Study, grouped, in_order, plainness
from .layouts import LinePanels, Panel
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .selection import by_size, curve, keys, panel_title, plainest_line

_LIMIT = "▲ at least, ▼ at most this; the speedup lies within its bar. "
_DIAMOND = "Diamond: faster from this size on{}. "
_BETWEEN = "Bar at 1×: faster from a size within it on{}. "
_SMALL = " (small: with copies)"
_COPIES = "With copies: inputs copied from pageable memory, one call, results copied back. "


def speedup_figures(study: Study) -> list[Figure]:
    """Return the pictures of each baseline: one of several benchmarks, and one of each. By default a report shows the
    first.

    Baselines that are accelerators come first, as in the answer.
    """
    figures: list[Figure] = []
    by_base = grouped(study.crossings, lambda found: found.pair.base.source)
    ordered = sorted(by_base, key=lambda source: (source not in study.names.accelerators, bool(source.library)))
    for rank, members in enumerate(by_base[source] for source in ordered):
        benchmarks = list(grouped(members, lambda found: found.line.last.result.workload).values())
        benchmarks = [each for each in benchmarks if max(len(found.line.points) for found in each) > 1]
        of_each = [figure for found in benchmarks for figure in _of_one(study, found)]
        for at, figure in enumerate([*_of_several(study, benchmarks), *of_each]):
            first = rank == at == 0
            figures.append(replace(figure, rank=1.0 if first else 9.0 + 20 * rank, default=first))
    return figures


def _plainest(members: Sequence[Crossing]) -> Line[Pair]:
    return plainest_line([found.line for found in members if found.resident] or [found.line for found in members])


def _of_several(study: Study, benchmarks: Sequence[Sequence[Crossing]]) -> list[Figure]:
    """A panel for each benchmark in its plainest form: the user's own, then the first of each kind of work, and the
    next of each, until the picture is full."""
    plain = [[found for found in each if found.line.setting == _plainest(each).setting] for each in benchmarks]
    found = {id(each[0].pair): each for each in plain}
    kinds = in_order([each[0].pair for each in plain])
    own = kinds.pop(0) if kinds and kinds[0][0].other.own else []
    turns = [pair for turn in zip_longest(*kinds) for pair in turn if pair]
    panels = [found[id(pair)] for members in in_order([*own, *turns][:MOST_PANELS]) for pair in members]
    if len(panels) < 2:
        return []
    several_dtypes = len({each[0].line.last.dtype for each in panels}) > 1
    titles = [panel_title(each[0].line, True, several_dtypes) for each in panels]
    left = len(benchmarks) - len(panels)
    rest = f"{left} more benchmarks not shown" if left else ""
    ends = [found.pair for each in panels for found in each if found.resident]
    counts = [
        f"{study.names.subject(pairs[0])} faster in {sum(pair.faster for pair in pairs)} of {len(pairs)}"
        for pairs in grouped(ends, lambda pair: pair.other.source).values()
    ]
    told = f"At the largest size: {'; '.join(counts)}"
    return _figure(study, "speedup", "Speedup by size", dict(zip(titles, panels, strict=True)), told, rest)


def _of_one(study: Study, members: Sequence[Crossing]) -> list[Figure]:
    """Panels by dtype in the plainest form, which the title names, or of a single dtype by form."""
    plain = _plainest(members)
    dtypes = grouped((found for found in members if found.line.form == plain.form), lambda found: found.line.last.dtype)
    forms = list(dtypes.values())
    if len(forms) == 1:
        forms = list(grouped(members, lambda found: found.line.form).values())
    forms.sort(key=lambda form: plainness(form[0].pair))
    lines = [form[0].line for form in forms]
    titles = [  # ``bfloat16``, or the setting except dtype and size: ``autocast, width=4``
        line.last.dtype if len(dtypes) > 1 else words.setting(line.last.result, ("dtype", line.size_name)) or "eager"
        for line in lines
    ]
    shown = dict(list(zip(titles, forms, strict=True))[:MOST_PANELS])
    left = len(forms) - len(shown)
    rest = f"{left} more settings not shown" if left else ""
    findings = "; ".join(_finding(study, found, forms[0]) for found in forms[0] if found.resident)
    findings += f" ({titles[0]})" * (len(shown) > 1)
    name = panel_title(plain, True, False) if len(dtypes) > 1 else words.name(plain.last.result)
    workload = plain.last.result.workload
    made = _figure(study, f"speedup-{workload}", f"{name}: speedup", shown, findings, rest)
    return [replace(figure, workload=workload) for figure in made]


def _figure(
    study: Study, name: str, title: str, shown: Mapping[str, Sequence[Crossing]], subtitle: str, rest: str
) -> list[Figure]:
    """A panel for each group of lines, by its title; with copies the line of a device is dashed, or left out where
    there are too many. None of fewer values than make a picture."""
    kept = [
        list(form) if len(form) <= MOST_CURVES else [found for found in form if found.resident][:MOST_CURVES]
        for form in shown.values()
    ]
    used = [pair for form in kept for found in form if found.resident for pair in found.line.items]
    several = len(kept) > 1 or len({found.line.last.source for form in kept for found in form}) > 1
    panels = [
        Panel(
            title * (len(kept) > 1),
            form[0].line.size_name,
            tuple(curve(study, found.line, "", "" if several else _regime(found), found) for found in form),
        )
        for title, form in zip(shown, kept, strict=True)
    ]
    drawn = [curve for panel in panels for curve in panel.curves]
    copies = any(curve.dashed for curve in drawn)
    legend = (*keys(study, (pair.other for pair in used)), *([Key("with copies", "muted", "dashed")] * copies))
    base = study.names.baseline(used)
    slower = words.without_threads(base)
    chart = LinePanels(tuple(panels), "", legend if len(legend) > 1 and several else (), slower)
    note = f"Bar at a point: {words.uncertainty(pair.uncertainty for pair in used)}. " + _LIMIT * any(
        curve.limits for curve in drawn
    )
    marks = [curve.mark for curve in drawn if curve.mark]
    small = _SMALL * any(curve.mark and curve.dashed for curve in drawn)
    note += _DIAMOND.format(small) * any(mark.low == mark.high for mark in marks)
    note += _BETWEEN.format(small) * any(mark.low < mark.high for mark in marks)
    note += _COPIES * copies + f"{rest}. " * bool(rest) + _missing(study, used)
    devices = list(dict.fromkeys(study.names.subject(pair) for pair in used))
    title = f"{title} {f'of {devices[0]} ' * (len(devices) == 1)}over {base}"
    return by_size(study, Figure(name, "speedup", title, subtitle, "", chart), used, note)


def _missing(study: Study, used: Sequence[Pair]) -> str:
    """Which devices that measured the same a picture of several machines doesn't have."""
    workloads = {pair.other.result.workload for pair in used}
    there = {row.source for pair in used for row in (pair.base, pair.other)}
    same = [row for row in study.measured if row.result.workload in workloads and not row.library]
    names = dict.fromkeys(study.names.of(row) for row in same if row.source not in there)
    return f"Not shown: {listed(names)}. " * bool(names and not all(pair.within_run for pair in used))


def _regime(found: Crossing) -> str:
    if not found.resident:
        return "with copies"
    return "data stays" if found.line.last.on_accelerator else ""


def _finding(study: Study, found: Crossing, others: Sequence[Crossing]) -> str:
    """``H200 faster from n ≈ 72, with copies from n ≈ 280``."""
    same = [each for each in others if not each.resident and each.line.last.source == found.line.last.source]
    told = f"{study.names.subject(found.pair)} {found.start.sentence()}"
    return told + "".join(f", with copies {each.start.sentence('')}" for each in same)
