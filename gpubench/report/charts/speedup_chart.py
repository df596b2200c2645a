"""How much faster it is by size: a picture for each benchmark, with data that stays and with copies; a panel for each
dtype."""

from __future__ import annotations

from collections.abc import Sequence

from .. import words
from ..study import Crossing, Pair, Study, crossings, grouped, plainness
from .page import MOST_CURVES, MOST_PANELS, Figure, Key
from .selection import brief, captioned, curve, keys, line_panels, panel, uncertainty

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
    """Panels by dtype in the plainest form, or of a single dtype by form; with copies the line of a device is
    dashed."""
    plain = _plainest(members).line
    dtypes = grouped((found for found in members if found.line.form == plain.form), lambda found: found.line.last.dtype)
    by_dtype = len(dtypes) > 1
    forms = list((dtypes if by_dtype else grouped(members, lambda found: found.line.form)).values())
    forms.sort(key=lambda form: plainness(form[0].line.items[-1]))
    several = len(forms) > 1 or len({found.line.last.source for form in forms for found in form}) > 1
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
        title = (kept[0].line.last.dtype if by_dtype else _form(kept[0])) if len(forms) > 1 else ""
        panels.append(panel(title, plain, curves))
        used += [pair for found in kept for pair in found.line.items]
    copies = any(curve.dashed for panel in panels for curve in panel.curves)
    legend = (*keys(study, (pair.other for pair in used)), *([Key("with copies", "muted", "dashed")] * copies))
    chart = line_panels(panels, "", legend if len(legend) > 1 and several else (), _below(study, used))
    if chart is None:
        return []
    findings = [_finding(study, found, forms[0]) for found in forms[0] if found.resident]
    first = plain.last.dtype if by_dtype else _form(forms[0][0])
    subtitle = "; ".join(findings) + f" ({first})" * (len(forms) > 1)
    left = len(forms[MOST_PANELS:])
    note = (
        f"Bar at a point: {uncertainty(used)}. " + _COPIES * copies + f"{left} more settings not shown. " * bool(left)
    )
    title = f"{words.name(plain.last.result)}: speedup {_over(study, used)}"
    figure = Figure(f"speedup-{plain.last.result.workload}", "speedup", title, subtitle, "", chart, rank, default)
    return [captioned(figure, study, used, note, "Hollow", chart.left_out)]


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
