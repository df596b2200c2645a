"""A profile as text: the answer, the parts of a step here and on GPUs, and the causes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from itertools import chain

from ..runfile.quantities import ratio_text, seconds_text
from .causes import LARGE, article
from .notes import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PYTHON
from .profile import OnGpu, Profile, Span

WIDTH, MOST_LINES = 80, 25
LABEL, CPU, CELL = 19, 17, 11
"""Columns of the names, of the CPU and of each GPU."""
HELD = "33 of 34 published networks lay inside"
SHARES = {DATA: "waits for data", PYTHON: "is own Python", HOST: "is Python and launches"}
UNITS = {"batch": "a batch", "call": "a call", "line": "a turn"}
ENDS = {"optimizer": "one of {}'s", "backward": "one backward pass", "batch": "one batch"}
"""The parts that no GPU speeds up, and the name and the end of a step by its rank."""


def answer(profile: Profile) -> str:
    """Return the first sentence: the limit of the script, or the speedups on GPUs."""
    star, gpus, causes = profile.star, profile.gpus, profile.causes
    if profile.bound is not None and (not gpus or causes[0].name in (DATA, PYTHON)):
        seconds = profile.parts | {PYTHON: profile.own_s}
        part = max(SHARES, key=lambda part: seconds[part])
        says = f"no GPU makes it more than about {ratio_text(profile.bound)}{star} faster on a host like this one: "
        says += f"{seconds[part] / (profile.mean_s or 1.0):.0%} of a step {SHARES[part]}"
    elif not gpus:
        says = f"no limit was found, and its time on GPUs is unknown: {profile.unmodelled}"
    elif all(gpu.host_s[0] > gpu.busy_s[1] for gpu in gpus):
        faster = f"{spread(gpus[0].speedup)}×{star} faster"
        says = f"{faster} on any of these GPUs: the host is the limit, not the GPU"
    else:
        each = [f"{spread(gpu.speedup)}×{star} faster on {article(gpu.gpu)}" for gpu in (gpus[0], *gpus[1:][-1:])]
        says = f"{', '.join(each)}: {causes[0].says.partition(':')[0]}"
    return f"{os.path.basename(profile.script)}: {says}"


def spread(span: Span) -> str:
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
    first = profile.causes[0]
    lead = [answer(profile), *([f"First: {first.says}. {first.next}"] if first.name != "computes" else [])]
    words = " ".join(filter(None, chain(_advice(profile), _origin(profile))))
    return [*_wrapped(*lead), "", *_table(profile), "", *_wrapped(words)][:MOST_LINES]


def _wrapped(*texts: str) -> Iterator[str]:
    for text in texts:
        yield from textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _table(profile: Profile) -> Iterator[str]:
    step, parts, gpus, star, mean_s = profile.step, profile.parts, profile.gpus[:4], profile.star, profile.mean_s
    assert step is not None

    def row(name: str, cpu: str, cell: Callable[[OnGpu], str | Span]) -> str:
        name, texts = name[: LABEL + CPU - len(cpu) - 1], map(cell, gpus)
        cells = "".join(f"{text if isinstance(text, str) else span_text(*text):>{CELL}}" for text in texts)
        return f"{name:<{LABEL}}{cpu:>{LABEL + CPU - max(LABEL, len(name))}}{cells}"

    def waiting(gpu: OnGpu) -> Span:
        """Seconds that a step waits: workers load beside it."""
        rest = [profile.own_s + max(gpu.host_s[i], gpu.busy_s[i]) for i in (1, 0)]
        left = max(0.0, gpu.step_s[1] - rest[0]), max(0.0, gpu.step_s[0] - rest[1])
        return left if profile.workers else (parts[DATA], parts[DATA])

    unit, threads = UNITS.get(step.rank, "a step"), f"CPU {profile.threads} thread{'s' * (profile.threads != 1)}"
    head = f"{unit}, {step.shape}" + " rows" * ("×" not in step.shape) if step.shape else unit
    yield row(head, threads, lambda gpu: gpu.gpu.removesuffix(" SXM")[: CELL - 1])
    rows: list[tuple[str, float, Callable[[OnGpu], Span]]] = [
        ("waiting for data", parts[DATA], waiting),
        ("own Python" if profile.traced else "rest of the loop", parts[PYTHON], lambda _: (profile.own_s,) * 2),
        ("Python, launches", parts[HOST], lambda gpu: gpu.host_s),
        ("forward, backward", parts[FORWARD] + parts[BACKWARD], lambda gpu: gpu.gpu_s),
        ("optimizer", parts[OPTIMIZER], lambda gpu: gpu.optimizer_s),
    ]
    for name, seconds, cells in rows:
        if seconds >= 0.0005 * mean_s:
            share = f"{span_text(seconds)} {100 * seconds / mean_s:3.0f} %"
            yield row(name, share, cells)
    if profile.copied_bytes and gpus:
        yield row("copies in", "–", lambda gpu: gpu.copies_s)
    half = f" ±{(step.high_s - mean_s) / mean_s:.0%}" if step.high_s is not None else ""
    yield row(unit, f"{span_text(mean_s)}{half}{star}", lambda gpu: gpu.step_s)
    if gpus:
        yield row("faster", "", lambda gpu: f"{spread(gpu.speedup)}×{star}")
    if gpus and parts[DATA] >= LARGE * mean_s:
        rest = span_text(mean_s - parts[DATA])
        yield row("if data never waits", rest, lambda gpu: f"{spread(gpu.without_waiting)}×{star}")


def _advice(profile: Profile) -> Iterator[str]:
    for cause in profile.causes[profile.causes[0].name != "computes" :]:
        yield f"{cause.says[0].upper()}{cause.says[1:]}. {cause.next}"
    if profile.evaluation_s > 0.01 * profile.mean_s:
        yield f"Evaluation adds {seconds_text(profile.evaluation_s)} to each step on average; it isn't in the table."
    if profile.memory_bytes and profile.gpus and profile.gpus[0].capacity:
        yield f"Memory: {profile.memory_bytes / 1e9:.1f} GB of {profile.gpus[0].capacity / 1e9:.0f}."


def _origin(profile: Profile) -> Iterator[str]:
    step = profile.step
    assert step is not None
    several = f"{step.batches:.0f} batches, " if step.batches >= 1.5 else ""
    end = ENDS.get(step.rank, step.mark or "a call of the outermost module").format(step.mark)
    yield f"A step: {several}{end}."
    ended = ", then ended: finally, atexit and later checkpoints didn't run" * (profile.ended == "stopped")
    within = f"in {profile.runs} runs" if profile.runs > 1 else "within this run"
    yield f"CPU: measured {within}, {step.n} steps after {step.warm}{ended}."
    if profile.busy:
        yield f"* the machine was busy ({profile.busy}), so the times are too long by an unknown amount."
    elif profile.star:
        yield "* neighbouring steps depend on each other, so the interval may be too narrow."
    yield "The network is compiled; its operators were counted uncompiled." * profile.compiled
    if profile.gpus:
        yield f"GPUs: modelled from {profile.all_launches:,} launches ({HELD}); the host's part is a guess."
    elif profile.unmodelled:
        yield f"No times on GPUs: {profile.unmodelled}."
    for name, (low, mean, high) in profile.measured.items():
        guess = next((gpu.step_s for gpu in profile.gpus if gpu.gpu == name), None)
        where = "in" if guess and guess[0] <= mean <= guess[1] else "out"
        held = f", estimated {span_text(*guess)}: {where}side" if guess else ""
        yield f"Measured on {name}: {span_text(mean)} a step ({span_text(low, high)}){held}."
    yield from (f"Unknown: {part} ({why})." for part, why in profile.lost.items())


def bars_of(profile: Profile) -> tuple[str, list[tuple[str, tuple[float, ...], float, str]], str]:
    """Return the answer of a completed profile, the seconds of a step on each device, and a note, for a picture."""
    parts = profile.parts
    own = parts[DATA], parts[PYTHON], parts[HOST], parts[FORWARD] + parts[BACKWARD] + parts[OPTIMIZER]
    rows = [(f"CPU, {profile.threads} threads", own, profile.mean_s, span_text(profile.mean_s))]
    for gpu in profile.gpus:  # at the low end, without work that is done beside other work
        left_s, each = gpu.step_s[0], []
        for seconds in (parts[DATA], parts[PYTHON], gpu.host_s[0], left_s):
            each.append(min(seconds, left_s))
            left_s -= each[-1]
        rows.append((gpu.gpu, tuple(each), gpu.step_s[1], span_text(*gpu.step_s)))
    note = "CPU: measured." + " GPUs: modelled; the pale end is the range." * bool(profile.gpus)
    return answer(profile), rows, note
