"""A profile as text: the answer, the parts of a step here and on GPUs, and the causes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator

from ..runfile.quantities import ratio_text, seconds_text
from .causes import LARGE
from .notes import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PYTHON
from .profile import OnGpu, Profile, article

WIDTH, MOST_LINES = 80, 25
LABEL, CPU, CELL = 19, 17, 11
"""Columns of the names, of the CPU and of each GPU."""
HELD = "33 of 34 published networks lay inside"


def answer(profile: Profile) -> str:
    """Return the first sentence: the limit of the script, or the speedups on GPUs."""
    name, star, gpus, causes = os.path.basename(profile.script), profile.star, profile.gpus, profile.causes
    limited = not gpus or causes[0].name in (DATA, PYTHON)
    if profile.bound is not None and limited:
        shares = {DATA: "waits for data", PYTHON: "is own Python", HOST: "is Python and launches"}
        known = profile.parts | {PYTHON: profile.own_s}
        part = max(shares, key=lambda part: known[part])
        share = known[part] / (profile.step.mean_s if profile.step else 1.0)
        limit = f"no GPU makes it more than about {ratio_text(profile.bound)}{star} faster on a host like this one"
        return f"{name}: {limit}: {share:.0%} of a step {shares[part]}"
    if not gpus:
        return f"{name}: no limit was found, and its time on GPUs is unknown: {profile.unmodelled}"
    if all(gpu.host_s[0] > gpu.gpu_s[1] + gpu.optimizer_s[1] for gpu in gpus):
        return (
            f"{name}: {spread(gpus[0].speedup)}×{star} faster on any of these GPUs: the host is the limit, not the GPU"
        )
    each = [f"{spread(gpu.speedup)}×{star} faster on {article(gpu.gpu)}" for gpu in (gpus[0], *gpus[1:][-1:])]
    return f"{name}: {', '.join(each)}: {causes[0].says.partition(':')[0]}"


def _faster(gpu: OnGpu, star: str) -> str:
    return f"{spread(gpu.speedup)}×{star} {'faster' if gpu.speedup[0] >= 1 else 'as fast'}"


def spread(span: tuple[float, float]) -> str:
    """``18–89``, ``2.2–2.9``, ``2.0`` where both ends are alike."""
    return "–".join(dict.fromkeys(ratio_text(value).removesuffix("×") for value in span))


def span_text(*span: float) -> str:
    """``7–36 ms``, ``643 ms``, ``≤ 0.1 ms``, ``12–34 s``."""
    if max(span) < 1e-4:
        return "≤ 0.1 ms"
    scale, unit, digits = (1.0, "s", 2) if max(span) >= 1 else (1e3, "ms", 1)
    texts = list(dict.fromkeys(f"{value * scale:,.{digits if value * scale < 9.95 else 0}f}" for value in span))
    return f"{'–'.join(texts)} {unit}" if float(texts[0].replace(",", "")) else f"≤ {texts[-1]} {unit}"


def screen(profile: Profile) -> list[str]:
    """Return the lines of the answer: at most 25, of at most 80 columns."""
    lines, first = _wrapped(answer(profile)), profile.causes[0]
    lines += _wrapped(f"First: {first.says}.") if first.name != "computes" else []
    return [*lines, "", *_table(profile), "", *_wrapped(" ".join(filter(None, _words(profile))))][:MOST_LINES]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _table(profile: Profile) -> Iterator[str]:
    step, parts, gpus, star = profile.step, profile.parts, profile.gpus[:4], profile.star
    assert step is not None
    unit = {"batch": "a batch", "call": "a call", "line": "a turn"}.get(step.rank, "a step")
    head = f"{unit}, {step.shape}" + " rows" * ("×" not in step.shape) if step.shape else unit
    yield _row(
        head,
        f"CPU {profile.threads} thread{'s' * (profile.threads != 1)}",
        [gpu.gpu.removesuffix(" SXM")[: CELL - 1] for gpu in gpus],
    )
    rows: list[tuple[str, float, Callable[[OnGpu], tuple[float, ...]]]] = [
        ("waiting for data", parts[DATA], lambda gpu: (parts[DATA],) if not profile.workers else _left(gpu, profile)),
        ("own Python" if profile.traced else "rest of the loop", parts[PYTHON], lambda gpu: (profile.own_s,)),
        ("Python, launches", parts[HOST], lambda gpu: gpu.host_s),
        ("forward, backward", parts[FORWARD] + parts[BACKWARD], lambda gpu: gpu.gpu_s),
        ("optimizer", parts[OPTIMIZER], lambda gpu: gpu.optimizer_s),
    ]
    for name, seconds, cells in rows:
        if seconds >= 0.0005 * step.mean_s:
            share = f"{span_text(seconds)} {100 * seconds / step.mean_s:3.0f} %"
            yield _row(name, share, [span_text(*cells(gpu)) for gpu in gpus])
    if profile.copied_bytes and gpus:
        yield _row("copies in", "–", [span_text(*gpu.copies_s) for gpu in gpus])
    half = f" ±{(step.high_s - step.mean_s) / step.mean_s:.0%}" if step.high_s is not None else ""
    yield _row(unit, f"{span_text(step.mean_s)}{half}{star}", [span_text(*gpu.step_s) for gpu in gpus])
    if gpus:
        yield _row("faster", "", [f"{spread(gpu.speedup)}×{star}" for gpu in gpus])
    if gpus and parts[DATA] >= LARGE * step.mean_s:
        bare = [f"{spread(gpu.without_waiting)}×{star}" for gpu in gpus]
        yield _row("if data never waits", span_text(step.mean_s - parts[DATA]), bare)


def _left(gpu: OnGpu, profile: Profile) -> tuple[float, float]:
    """Return the seconds that a GPU's step waits for workers, which load beside it."""
    rest = [profile.own_s + max(gpu.host_s[i], gpu.gpu_s[i] + gpu.optimizer_s[i]) for i in (1, 0)]
    return max(0.0, gpu.step_s[1] - rest[0]), max(0.0, gpu.step_s[0] - rest[1])


def _row(name: str, cpu: str, cells: list[str]) -> str:
    name = name[: LABEL + CPU - len(cpu) - 1]
    return f"{name:<{LABEL}}{cpu:>{LABEL + CPU - max(LABEL, len(name))}}{''.join(f'{cell:>{CELL}}' for cell in cells)}"


def _words(profile: Profile) -> Iterator[str]:
    step, launches = profile.step, (profile.launches or 0) + (profile.optimizer_launches or 0)
    assert step is not None
    for i, cause in enumerate(profile.causes):
        says = "" if i == 0 and cause.name != "computes" else f"{cause.says[0].upper()}{cause.says[1:]}. "
        yield says + cause.next
    if profile.evaluation_s > 0.01 * step.mean_s:
        yield f"Evaluation adds {seconds_text(profile.evaluation_s)} to each step on average; it isn't in the table."
    if profile.memory_bytes and profile.gpus and profile.gpus[0].capacity:
        yield f"Memory: {profile.memory_bytes / 1e9:.1f} GB of {profile.gpus[0].capacity / 1e9:.0f}."
    several = f"{step.batches:.0f} batches, " if step.batches >= 1.5 else ""
    kinds = {"optimizer": f"one of {step.mark}'s", "backward": "one backward pass", "batch": "one batch"}
    yield f"A step: {several}{kinds.get(step.rank, step.mark or 'a call of the outermost module')}."
    ended = ", then ended: finally, atexit and later checkpoints didn't run" * (profile.ended == "stopped")
    within = f"in {profile.runs} runs" if profile.runs > 1 else "within this run"
    yield f"CPU: measured {within}, {step.n} steps after {step.warm}{ended}."
    if star := profile.star:
        why = f"the machine was busy ({profile.busy})" if profile.busy else "neighbouring steps depend on each other"
        yield f"{star} {why}, so the times are too long by an unknown amount."
    yield "The network is compiled; its operators were counted uncompiled." * profile.compiled
    if profile.gpus:
        yield f"GPUs: modelled from {launches:,} launches ({HELD}); the host's part is a guess."
    elif profile.unmodelled:
        yield f"No times on GPUs: {profile.unmodelled}."
    for name, (low, mean, high) in profile.measured.items():
        guess = next((gpu.step_s for gpu in profile.gpus if gpu.gpu == name), None)
        held = (
            f", estimated {span_text(*guess)}: {'in' if guess[0] <= mean <= guess[1] else 'out'}side" if guess else ""
        )
        yield f"Measured on {name}: {span_text(mean)} a step ({span_text(low, high)}){held}."
    yield from (f"Unknown: {part} ({why})." for part, why in profile.lost.items())
