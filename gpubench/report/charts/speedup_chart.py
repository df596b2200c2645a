"""How much faster it is by size: a picture a benchmark, with data that stays and with copies, and by dtype; and after
how many calls on the same data the copies are amortized."""

from __future__ import annotations

from collections.abc import Sequence

from .. import words
from ..study import Crossing, Pair, Study, Values, crossings, grouped, plainness, sweeps
from .page import CALL_UNIT, MOST_CURVES, MOST_PANELS, Figure, Key
from .selection import brief, captioned, curve, keys, line_panels, panel, plainest_panels, uncertainty, value_text

_COPIES = "With copies: inputs copied from pageable memory, one call, results copied back. "
_MOST_DEFAULT = 2
"""Benchmarks, each of another kind, that a report shows unless it is asked for all."""


def speedup_figures(study: Study) -> list[Figure]:
    """Return the pictures of each baseline; by default a report shows those of the first baseline whose crossovers tell
    most.

    With a GPU in several machines, the first baseline is the slowest GPU, for all devices.
    """
    figures: list[Figure] = []
    firsts = grouped(
        study.crossings, lambda found: (not found.line.items[0].within_run, found.line.items[0].base.source)
    )
    ordered = [firsts[key] for key in sorted(firsts, key=lambda key: key[0])]
    if study.gpu_pairs:
        others = [members for members in ordered if not members[0].line.items[0].base.on_accelerator]
        ordered = [crossings(study.gpu_pairs), *others]
    for rank, members in enumerate(ordered):
        benchmarks = list(grouped(members, lambda found: found.line.last.result.workload).values())
        benchmarks = [each for each in benchmarks if max(len(found.line.points) for found in each) > 1]
        leaders = {each[0].line.last.kind: each for each in sorted(benchmarks, key=_telling)} if rank == 0 else {}
        defaults = sorted(leaders.values(), key=_telling, reverse=True)[:_MOST_DEFAULT]
        defaults = [each for each in defaults if _telling(each)[1]] or defaults[:1]
        for found in benchmarks:
            order = 1.0 + 0.1 * defaults.index(found) if found in defaults else 9.0 + 20 * rank
            figures += _by_regime(study, found, order, found in defaults)
            on_cpu = not (study.gpu_pairs or found[0].line.items[0].within_device)
            figures += _by_dtype(study, found, order + 0.05, found in defaults and on_cpu)
        lines = [found.line for each in benchmarks for found in each if found.resident]
        figures += _break_even(study, [pair for line in lines for pair in line.items], rank)
    return figures


def _plainest(members: Sequence[Crossing]) -> Crossing:
    return min(members, key=lambda found: (plainness(found.line.items[-1]), not found.resident))


def _telling(members: Sequence[Crossing]) -> tuple[bool, int, int]:
    """Return a sort key that puts the most informative benchmark last: by whether the answer counts its kind, in how
    many regimes it crosses 1×, and how many of its sizes aren't noisy."""
    plain = _plainest(members).line
    same = [found for found in members if found.line.setting == plain.setting]
    known = {found.regime for found in same if _crosses(found)}
    return (
        plain.last.kind is None or plain.last.kind.summarised,
        len(known),
        sum(not point.flagged for point in plain.points),
    )


def _crosses(found: Crossing) -> bool:
    values = [point.y for point in found.line.points]
    return min(values) < 1 < max(values) and words.crossing(found) != words.UNSURE


def _by_regime(study: Study, members: Sequence[Crossing], rank: float, default: bool) -> list[Figure]:
    """A panel for each form in the plainest dtype, with a solid line for each device and a dashed line with copies."""
    plain = _plainest(members).line
    alike = [found for found in members if found.line.last.dtype == plain.last.dtype]
    forms = list(grouped(alike, lambda found: found.line.form).values())
    forms.sort(key=lambda form: plainness(form[0].line.items[-1]))
    several = len(forms) > 1 or len({found.line.last.source for found in alike}) > 1
    panels, used = [], []
    for form in forms[:MOST_PANELS]:
        resident = [found for found in form if found.resident]
        kept = form if len(form) <= MOST_CURVES else resident[:MOST_CURVES]
        curves = [
            curve(
                study,
                found.line,
                "",
                "" if several else _regime(found),
                found,
                dashed=not found.resident,
            )
            for found in kept
        ]
        title = _form(kept[0]) if len(forms) > 1 else ""
        panels.append(panel(title, plain, curves, f"{words.size_label(plain.size_name)}, {plain.last.dtype}"))
        used += [pair for found in kept for pair in found.line.items]
    copies = any(curve.dashed for panel in panels for curve in panel.curves)
    legend = (*keys(study, (pair.other for pair in used)), *([Key("with copies", "muted", "dashed")] * copies))
    chart = line_panels(panels, "", legend if len(legend) > 1 and several else (), _below(study, used))
    if chart is None:
        return []
    findings = [_finding(study, found, forms[0]) for found in forms[0] if found.resident]
    subtitle = "; ".join(findings) + f" ({_form(forms[0][0])})" * (len(forms) > 1)
    left = len(forms[MOST_PANELS:])
    note = (
        f"Bar at a point: {uncertainty(used)}. " + _COPIES * copies + f"{left} more settings not shown. " * bool(left)
    )
    title = f"{words.name(plain.last.result)}: speedup {_over(study, used)}"
    figure = Figure(f"speedup-{plain.last.result.workload}", "speedup", title, subtitle, "", chart, rank, default)
    return [captioned(figure, study, used, note, "Hollow", chart.left_out)]


def _by_dtype(study: Study, members: Sequence[Crossing], rank: float, default: bool) -> list[Figure]:
    """A panel for each device and a line for each dtype, with data that stays on it; none for a single dtype."""
    plain = _plainest(members).line
    alike = [found for found in members if found.resident and found.line.form == plain.form]
    if len({found.line.last.dtype for found in alike}) < 2:
        return []
    panels, used, findings = [], [], []
    devices = list(grouped(alike, lambda found: found.line.last.source).values())[:MOST_PANELS]
    several = len(devices) > 1
    for own in devices:
        kept = sorted(own, key=lambda found: found.line.last.dtype == "tf32")[:MOST_CURVES]
        dtypes = [found.line.last.dtype for found in kept]
        curves = [curve(study, found.line, "", dtype, found, dtype) for found, dtype in zip(kept, dtypes, strict=True)]
        device = study.names.subject(kept[0].line.items[0])
        panels.append(panel(device * several, plain, curves))
        used += [pair for found in kept for pair in found.line.items]
        by_cell = grouped(zip(kept, dtypes, strict=True), lambda pair: words.crossing(pair[0]))
        told = [f"{cell} in {words.listed([dtype for _, dtype in some])}" for cell, some in by_cell.items()]
        findings.append(f"{device} faster from: {'; '.join(told)}")
    chart = line_panels(panels, "", (), _below(study, used))
    if chart is None:
        return []
    title = f"{words.name(plain.last.result)}: speedup {_over(study, used)}, by dtype"
    subtitle = findings[0] if len(findings) == 1 else "Both in the same dtype, with data that stays on the device"
    figure = Figure(
        f"speedup-by-dtype-{plain.last.result.workload}", "by-dtype", title, subtitle, "", chart, rank, default
    )
    note = f"Both in the same dtype, with data that stays. Bar at a point: {uncertainty(used)}. "
    return [captioned(figure, study, used, note, "Hollow", chart.left_out)]


def _break_even(study: Study, pairs: Sequence[Pair], rank: int) -> list[Figure]:
    """Return pictures of the number of calls that amortize the copies, with a panel for each benchmark in its plainest
    setting and a line for each device."""
    counted = [pair for pair in pairs if pair.other.kind is None or pair.other.kind.summarised]
    every = [line for sweep in sweeps(counted, _calls)[0] for line in sweep.lines]
    lines = [line for line in every if max(point.y for point in line.points) > 1] or every
    turns = plainest_panels(lines, by_dtype=False)
    used = [pair for lines in turns for line in lines for pair in line.items]
    panels = [
        panel(words.name(lines[0].last.result), lines[0], [curve(study, line, CALL_UNIT) for line in lines])
        for lines in turns
    ]
    legend = keys(study, (pair.other for pair in used))
    chart = line_panels(panels, CALL_UNIT, legend if len(legend) > 1 else ())
    if chart is None:
        return []
    ends = sorted(line.points[-1].y for lines in turns for line in lines)
    most = " to ".join(dict.fromkeys(value_text(end, CALL_UNIT) for end in (ends[0], ends[-1])))
    title = (
        f"Calls until the copies are amortized: {_over(study, used).removeprefix('of ').replace(' over ', ' against ')}"
    )
    subtitle = f"At the largest size {most}. With data that stays on the GPU in between; fewer is better"
    note = "Copies in and out of pageable memory; sizes at which the CPU is faster have no point. "
    slow = {line.last.result.workload for line in lines}
    at_once = dict.fromkeys(words.name(line.last.result) for line in every if line.last.result.workload not in slow)
    note += f"One call is enough at every size: {words.listed(list(at_once))}. " * bool(at_once)
    figure = Figure("break-even", "break-even", title, subtitle, "", chart, 4.0, rank == 0)
    return [captioned(figure, study, used, note, "Hollow", chart.left_out)]


def _calls(pair: Pair) -> Values | None:
    known = None if pair.doubt or not pair.copies else pair.copies.calls
    return None if known is None else Values(known, known, known)


def _regime(found: Crossing) -> str:
    if not found.resident:
        return "with copies"
    return "data stays" if found.line.last.on_accelerator else ""


def _over(study: Study, pairs: Sequence[Pair]) -> str:
    """``of H200 over Xeon, 2 threads``; without the device where there are several."""
    devices = list(dict.fromkeys(study.names.subject(pair) for pair in pairs))
    return f"of {devices[0]} " * (len(devices) == 1) + f"over {study.names.baseline(pairs)}"


def _below(study: Study, pairs: Sequence[Pair]) -> str:
    """What is faster below 1×."""
    return brief(study.names.baseline(pairs))


def _form(found: Crossing) -> str:
    """``out``, ``autocast, width=4``: its setting except dtype and size."""
    return words.setting(found.line.last.result, ("dtype", found.line.size_name)) or "eager"


def _finding(study: Study, found: Crossing, others: Sequence[Crossing]) -> str:
    """``H200 faster from: n ≈ 72; with copies: n ≈ 280``, in the words of a table."""
    same = [each for each in others if not each.resident and each.line.last.source == found.line.last.source]
    told = f"{study.names.subject(found.line.items[-1])} faster from: {words.crossing(found)}"
    return told + "".join(f"; with copies: {words.crossing(each)}" for each in same)
