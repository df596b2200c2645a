"""The small print of a picture: on what terms its numbers hold; and the warning above one whose numbers may be off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...runfile.quantities import counted, shorten
from ..study import Measured, Pair, Study, grouped
from ..words import OTHER_WAY, SWITCH, device_label, listed, ways

_SHARE_FLAGGED = 1 / 3
"""Beyond it one line above the picture warns, and no mark is drawn hollow."""


def notice(items: Sequence[Measured | Pair]) -> str:
    """One line where more than a third of the results are flagged; empty otherwise."""
    count = sum(item.quality.noisy for item in items)
    return f"{count} of {len(items)} results are noisy and may be off" if count > _SHARE_FLAGGED * len(items) else ""


def caption(
    study: Study, items: Sequence[Measured | Pair], note: str = "", flagged: str = "*", left_out: int = 0
) -> str:
    """Devices, dtypes, threads, TF32, torch, date and processes of the results, baselines included, and the note.

    ``flagged`` is how noisy results are marked, empty where they aren't, ``left_out`` how many aren't drawn.
    """
    pairs = [item for item in items if isinstance(item, Pair)]
    rows = [*(item.subject for item in items), *(side for pair in pairs for side in pair.sides)]
    runs = list({row.run_name: row.run for row in rows}.values())
    dtypes = sorted({row.dtype for row in rows})
    variants = sorted({row.result.variant for row in rows if row.result.variant}, reverse=True)
    torch = dict.fromkeys(run.machine.torch for run in runs if run.machine.torch)
    facts = (
        _devices(study, rows),
        _threads(rows),
        listed(dtypes) if all(dtypes) else "",
        " and ".join(variants) if variants not in ([], ["eager"]) else "",
        _tf32(rows) if all(dtypes) else "",
        f"PyTorch {listed(list(torch))}" if torch else "",
        listed(sorted({run.date for run in runs if run.date})),
        _processes(sorted({len(item.subject.times.processes) for item in items})),
    )
    if flagged and any(item.quality.noisy for item in items) and (flagged == "*" or not notice(items)):
        note += f"{flagged}: noisy measurement. "
    if found := ways(pairs):
        sign = f"{OTHER_WAY}: o" if flagged == "*" else "At some sizes o"
        note += f"{sign}ver the CPU's fastest way, where that is another: {'; '.join(found)}. "
    if left_out:
        # a ratio of two times needs no peak
        why = "too noisy" if pairs else "too noisy, or above the measured peak (impossible)"
        note += f"{counted(left_out, 'result')} not drawn: {why}. "
    if differing := sorted({pair.differs for pair in pairs if pair.differs}):
        note += f"Compared although they differ: {listed(differing)}. "
    return f"{' · '.join(filter(None, facts))}. {note}".strip()


def _devices(study: Study, rows: Sequence[Measured]) -> str:
    words = []
    for name, members in grouped(rows, lambda row: row.run_name).items():
        run = members[0].run
        used = {device for row in members for device in (row.result.device, *row.result.devices)}
        known = [device.name for device in run.machine.devices if device.name in used]
        labels = [run.machine.device(device).label or device for device in known] or [device_label(run, "")]
        counts = Counter(shorten(label, 60) for label in labels)
        devices = ", ".join(f"{count} × {label}" if count > 1 else label for label, count in counts.items())
        words.append(f"{shorten(name)}: {devices}" if study.several_runs else devices)
    return "; ".join(words[:4]) + (f" and {len(words) - 4} more runs" if len(words) > 4 else "")


def _threads(rows: Sequence[Measured]) -> str:
    """``2 CPU threads``; by implementation where they differ."""
    known = [(row.result.implementation, row.result.threads) for row in rows if row.result.threads is not None]
    by = {name: sorted({count for _, count in each}) for name, each in grouped(known, lambda pair: pair[0]).items()}
    words = {name: " and ".join(map(str, counts)) for name, counts in by.items()}
    if len(set(words.values())) > 1:
        return "CPU threads: " + ", ".join(f"{name} {counts}" for name, counts in words.items())
    counts = next(iter(words.values()), "")
    return f"{counts} CPU thread{'s' * (counts != '1')}" if counts else ""


def _tf32(rows: Sequence[Measured]) -> str:
    state = " and ".join(dict.fromkeys(SWITCH[row.run.machine.tf32] for row in rows))
    return f"TF32 {state}" + ", except for dtype tf32" * (state != "on" and any(row.dtype == "tf32" for row in rows))


def _processes(counts: Sequence[int]) -> str:
    """``3 processes``, ``2 and 3 processes``, ``1 to 3 processes``."""
    words = f"{counts[0]} to {counts[-1]}" if len(counts) > 2 else " and ".join(map(str, counts))
    return f"{words} process{'es' * (list(counts) != [1])}" if counts else ""
