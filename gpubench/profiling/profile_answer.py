"""The answer of a profile: a step's time on GPUs that aren't here, the causes of its time, the text and the picture.

The host's time is from this run, the GPU's from its datasheet. Launches overlap the GPU's work, so the larger of both
counts. The factors of the host are a guess from four networks on one CPU, and one published time (ResNet-50, one image,
forward, 4 to 7 ms on fast GPUs).
"""

from __future__ import annotations

import math
import os
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..cards.datasheets import Gpu, find_card, read_cards
from ..cards.model import likely, work_on
from ..errors import UsageError
from ..runfile.quantities import counted, ratio_text, seconds_text, text, times_range
from ..runfile.runs import read
from ..runfile.schema import OK
from .profile import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PYTHON, Cause, OnGpu, Profile, Span, least_s

CARDS = ("L4", "RTX 4090", "A100", "H100")
HOST_FACTORS, LAUNCH_S = (0.6, 1.6), (3e-6, 7e-6)
"""How many times its time here a host beside a GPU may need, and seconds of a launch by the driver."""
QUEUED_S, UNPINNED = 2e-6, 4.0
"""Seconds between two kernels that are queued, and how many times longer a copy from memory that isn't page-locked
takes, at most."""
MEASURED = 0.75, 1.25
"""The range around a middle that benchmarks on this card have corrected: 33 of 34 published networks lay in it."""
LARGE, FULL, MOST, SAME = 0.2, 0.9, 3, 0.95
"""Share of a step from which on a part is a cause, share of a GPU's memory that a program can use, most causes, and the
ratio from which on two times are called the same."""
WIDTH, MOST_LINES, LABEL, CPU, CELL = 80, 25, 19, 17, 11
"""Columns and lines of the text; columns of the names, of the CPU and of each GPU."""
SHARES = {DATA: "waits for data", PYTHON: "is own Python", HOST: "is Python and launches"}
UNITS = {"batch": "a batch", "call": "a call", "line": "a turn"}
ENDS = {"optimizer": "one of {}'s", "backward": "one backward pass", "batch": "one batch"}
"""The parts that no GPU speeds up, and the name and the end of a step by its rank."""


# GPUs -----------------------------------------------------------------------------------------------------------------


def cards_of(names: Sequence[str]) -> list[tuple[Gpu, float | None]]:
    """Return the cards of these names, each with the factor of a results file that was named instead of a card. Raises
    UsageError or RunFileError."""
    cards = read_cards()[0]
    return [_measured(name) if Path(name).exists() else (find_card(name, cards), None) for name in names or CARDS]


def _measured(path: str) -> tuple[Gpu, float]:
    run, cards, ratios = read(path), read_cards()[0], []
    for result in run.results:
        device = run.machine.device(result.device)
        if result.status == OK and result.times and device.kind not in ("cpu", ""):
            guess = likely(result.work, result.dtype, card := find_card(device.label, cards))
            ratios += [] if isinstance(guess, str) else [result.times.median_s / guess.middle_s]
    if not ratios:
        raise UsageError(f"{path}: no benchmark of a GPU is there that could correct an estimate")
    return card, statistics.median(ratios)


def complete(profile: Profile, cards: Sequence[tuple[Gpu, float | None]]) -> None:
    """Fill in the bound of a measured profile, its step on each card, and the causes."""
    floor_s = least_s(profile.parts | {PYTHON: profile.own_s}, profile.alone_s, profile.workers)
    profile.bound = profile.mean_s / floor_s if floor_s > 0 else None
    for card, factor in cards:
        modelled = _on_gpu(profile, card, factor, floor_s)
        if isinstance(modelled, str):
            profile.unmodelled = modelled
        else:
            profile.gpus.append(modelled)
    gpu = next(iter(profile.gpus), None)
    causes = [*_of_host(profile, gpu), *(_of_gpu(profile, gpu) if gpu else ())] or [*_work(profile)]
    for wait in profile.waits[:1]:
        says = f".{wait.call}() at {wait.line} waits for the GPU, in the step that was counted"
        causes.append(Cause("waits", 0.0, says, "Read it each 50 steps."))
    profile.causes = sorted(causes, key=lambda cause: -cause.seconds)[:MOST]


def _on_gpu(profile: Profile, card: Gpu, factor: float | None, floor_s: float) -> OnGpu | str:
    """Return a profile's step on a card, or the reason why that is unknown."""
    if profile.step is None or profile.launches is None:
        return profile.lost.get("operators", "its operators weren't counted")
    parts = list[Span]()
    for operators, launches in ((profile.operators, profile.launches), (profile.optimizer, profile.optimizer_launches)):
        spans = work_on(operators, profile.dtype, card) if operators or not parts else []
        if isinstance(spans, str):
            return spans
        low, middle, high = (sum(getattr(span, f"{end}_s") for span in spans) for end in ("low", "middle", "high"))
        if factor is not None:
            low, high = (end * (factor * middle) for end in MEASURED)
        parts.append((float(low), high + QUEUED_S * (launches or 0) * bool(operators)))
    copy_s = profile.copied_bytes / (card.value("link") or float("inf"))
    copies = copy_s, copy_s * (1.0 if any(loader.pinned for loader in profile.loaders) else UNPINNED)
    low, high = (HOST_FACTORS[i] * profile.parts[HOST] + LAUNCH_S[i] * profile.all_launches for i in (0, 1))
    gpu = parts[0][0] + parts[1][0] + copies[0], parts[0][1] + parts[1][1] + copies[1]
    joined, bare = (_joined(profile, (low, high), gpu, loading) for loading in (1.0, 0.0))
    step, rest_s = (max(joined[0], floor_s), max(joined[1], floor_s)), profile.mean_s - profile.parts[DATA]
    speedups = (profile.mean_s / step[1], profile.mean_s / step[0]), (rest_s / bare[1], rest_s / bare[0])
    rest, optimizer = parts
    return OnGpu(card.name, step, (low, high), rest, optimizer, copies, *speedups, card.value("capacity"))


def _joined(profile: Profile, host: Span, gpu: Span, loading: float) -> Span:
    """Return the seconds of a step: the larger of the host's and the GPU's time. Loading in the same process comes
    before, and beside the GPU's work if no call waits for that; workers load beside the step."""
    own_s, data_s = profile.own_s, profile.parts[DATA] * loading
    if profile.workers:
        alone_s = (profile.alone_s or profile.parts[DATA]) * loading
        return max(alone_s, own_s + host[0], gpu[0]), max(alone_s, own_s + max(host[1], gpu[1]))
    beside_s = max(own_s + host[0], gpu[0] - data_s * (not profile.waits))
    return data_s + beside_s, data_s + own_s + max(host[1], gpu[1])


# Causes, by the seconds of a step that are at stake -------------------------------------------------------------------


def _of_host(profile: Profile, gpu: OnGpu | None) -> Iterator[Cause]:
    """Yield the causes that stay on the host: waiting for data, and own Python."""
    step_s, waiting_s, alone_s, own_s = profile.mean_s, profile.parts[DATA], profile.alone_s or 0.0, profile.own_s
    half_s, bare_s = (
        (0.5 * gpu.step_s[1], (step_s - waiting_s) / gpu.without_waiting[0]) if gpu else (math.inf, math.inf)
    )
    short = alone_s > bare_s or (waiting_s > half_s and not profile.workers)
    if profile.loaders and (waiting_s >= LARGE * step_s or short):
        items, workers = profile.step and profile.step.items, max(1, profile.workers)
        advice = "Smaller inputs, more workers, or decoding on the GPU."
        if alone_s and items:
            rate, advice = items / alone_s, ""
            if gpu:
                could = items / (step_s - waiting_s) * gpu.without_waiting[0]
                many = could / rate * workers
                advice = f"; {_article(gpu.gpu)} could take {could:,.0f} or more"
                more = ": num_workers=1 loads beside the step" * (not profile.workers)
                advice += f": {many:,.0f} processes, smaller inputs, or decoding on the GPU" if many > 1.5 else more
            advice = f"The loader alone makes {rate:,.0f} rows/s in {counted(workers, 'process')}{advice}."
        advice += f" It loads mostly at {profile.lines[DATA]}." if DATA in profile.lines else ""
        says = f"{_share(profile, DATA)}: num_workers={profile.workers} at {profile.loaders[0].line}"
        yield Cause(DATA, max(waiting_s, alone_s), says, advice)
    if own_s >= LARGE * step_s or own_s > half_s:
        says = f"{_share(profile, PYTHON)}, without torch"
        says += f", mostly at {profile.lines[PYTHON]}" if PYTHON in profile.lines else ""
        yield Cause(PYTHON, own_s, says, "Move it out of the loop, batch it, or do it in another process.")


def _of_gpu(profile: Profile, gpu: OnGpu) -> Iterator[Cause]:
    """Yield the causes that come with a GPU: launches, copies, and its memory."""
    host_s, busy_s, copies_s, needed = gpu.host_s, gpu.busy_s[1], gpu.copies_s[1], profile.memory_bytes or 0
    if host_s[0] > busy_s:
        count = profile.all_launches
        each = f"{count:,} launches of about {sum(host_s) / 2e-6 / max(1, count):.0f} µs"
        says = f"{each} keep {_article(gpu.gpu)} busy for {seconds_text(busy_s)} or less"
        larger = min(100.0, host_s[0] / (busy_s or 1e-9))
        more = f"A batch up to {larger:.0f} times larger costs hardly more. " * (larger >= 2)
        yield Cause("launches", host_s[0], says, f"{more}torch.compile or a CUDA graph shortens each.")
    if copies_s > LARGE * gpu.step_s[0]:
        says = f"copies of {profile.copied_bytes / 1e6:,.1f} MB take up to {seconds_text(copies_s)} of a GPU's step"
        says += f" at {profile.copies[0].line}" if profile.copies else ""
        yield Cause("copies", copies_s, says, "pin_memory=True, non_blocking=True, or make it there.")
    if gpu.capacity and needed > FULL * gpu.capacity:
        says = f"it needs {needed / 1e9:.0f} GB; {_article(gpu.gpu)} has {gpu.capacity / 1e9:.0f}"
        yield Cause("memory", gpu.step_s[1], says, "Take a smaller batch.")


def _work(profile: Profile) -> Iterator[Cause]:
    """Yield the cause of a step that has no other one: its operators, if they are known."""
    flops, products = (
        sum(each.flops for each in profile.operators if not kinds or each.kind in kinds)
        for kinds in ((), ("product", "convolution"))
    )
    if flops:
        says = f"it computes: products are {products / flops:.0%} of {flops / 1e9:,.3g} GFLOP"
        advice = "TF32 or autocast is likely faster still." * bool(profile.dtype == "float32" and profile.gpus)
        yield Cause("computes", profile.mean_s, says, advice)
    elif moved := sum(each.bytes for each in profile.operators):
        says = f"it waits for memory: its operators move {moved / 1e9:,.3g} GB"
        yield Cause("computes", profile.mean_s, says)


def _share(profile: Profile, part: str) -> str:
    """``49% of a step waits for data``."""
    seconds = {DATA: profile.loading_s, PYTHON: profile.own_s, HOST: profile.parts[HOST]}[part]
    loads = part == DATA and profile.workers and profile.alone_s
    return f"{seconds / (profile.mean_s or 1.0):.0%} of a step {'is loading, beside it' if loads else SHARES[part]}"


def _article(gpu: str) -> str:
    return f"{'an' if gpu[0] in 'AHLMR' else 'a'} {gpu}"


# Text and picture -----------------------------------------------------------------------------------------------------


def answer(profile: Profile) -> str:
    """Return the first sentence: the limit of the script, or the speedups on GPUs."""
    star, gpus, first = profile.star, profile.gpus, next(iter(profile.causes), Cause("", 0.0, ""))
    if profile.bound is not None and (not gpus or first.name in (DATA, PYTHON)):
        seconds = profile.parts | {PYTHON: profile.own_s, DATA: profile.loading_s}
        part = max(SHARES, key=lambda part: seconds[part])
        says = f"no GPU makes it more than about {ratio_text(profile.bound)}{star} faster on a host like this one"
        if gpus:
            low, high = min(gpu.speedup[0] for gpu in gpus), max(gpu.speedup[1] for gpu in gpus)
            likely = times_range(low, high, "–")
            says += f" (the GPUs below likely {likely}{star})" * (likely != ratio_text(profile.bound))
        says += f": {first.says if first.name == part else _share(profile, part)}"
    elif not gpus:
        says = f"no limit was found, and its time on GPUs is unknown: {profile.unmodelled}"
    elif all(gpu.host_s[0] > gpu.busy_s[1] for gpu in gpus):
        says = f"{faster(gpus[0].speedup, star)} on any of these GPUs: the host is the limit, not the GPU"
    else:
        each = [f"{faster(gpu.speedup, star)} on {_article(gpu.gpu)}" for gpu in (gpus[0], *gpus[1:][-1:])]
        says = f"{', '.join(each)}: {first.says.partition(':')[0]}"
    return f"{os.path.basename(profile.script)}: {says}"


def faster(speedup: Span, star: str = "") -> str:
    """``18–89× faster``, ``37–110× slower``, ``2.0× slower to 1.5× faster``."""
    says = times_range(*speedup, "–")
    return f"{says}{star}" if says.endswith("slower") else f"{says}{star} faster"


def gain(speedup: Span, star: str = "") -> str:
    """Return a cell of the row ``faster``: ``18–89×``; ``≤ 1.5×`` if the GPU may be slower, ``–`` if it is."""
    low, high = speedup
    ends = [ratio_text(max(1.0, end), "") for end in speedup]
    shown = "–".join(dict.fromkeys(ends)) if low >= SAME else f"≤ {ends[1]}"
    return f"{shown}×{star}" if high >= SAME else "–"


def span_text(*span: float) -> str:
    """``7–36 ms``, ``643 ms``, ``≤ 0.1 ms``, ``12–34 s``."""
    if max(span) < 1e-4:
        return "≤ 0.1 ms"
    scale, unit, digits = (1.0, "s", 2) if max(span) >= 1 else (1e3, "ms", 1)
    texts = list(dict.fromkeys(f"{value * scale:,.{digits if value * scale < 9.95 else 0}f}" for value in span))
    return f"{'–'.join(texts)} {unit}" if float(texts[0].replace(",", "")) else f"≤ {texts[-1]} {unit}"


def screen(profile: Profile) -> list[str]:
    """Return the lines of the answer: at most 25, of at most 80 columns."""
    lead, advice = [answer(profile)], profile.causes
    for first in (cause for cause in advice[:1] if cause.name != "computes"):
        says = f"{first.says}. " * (first.says not in lead[0])
        lead, advice = [*lead, f"First: {says}{first.next}"], advice[1:]
    words = [f"{cause.says[0].upper()}{cause.says[1:]}. {cause.next}".rstrip() for cause in advice]

    def wrapped(*texts: str) -> Iterator[str]:
        for each in texts:
            yield from textwrap.wrap(each, WIDTH, break_long_words=False, break_on_hyphens=False)

    notes = " ".join(filter(None, [*words, *_notes(profile)]))
    return [*wrapped(*lead), "", *_table(profile), "", *wrapped(notes)][:MOST_LINES]


def _table(profile: Profile) -> Iterator[str]:
    step, parts, gpus, star, mean_s = profile.step, profile.parts, profile.gpus[:4], profile.star, profile.mean_s
    assert step is not None

    def row(name: str, cpu: str, cell: Callable[[OnGpu], str | Span]) -> str:
        name, values = name[: LABEL + CPU - len(cpu) - 1], map(cell, gpus)
        cells = "".join(f"{each if isinstance(each, str) else span_text(*each):>{CELL}}" for each in values)
        return f"{name:<{LABEL}}{cpu:>{LABEL + CPU - max(LABEL, len(name))}}{cells}"

    def waiting(gpu: OnGpu) -> Span:
        """Seconds that a step waits: workers load beside it."""
        low, high = (profile.own_s + max(gpu.host_s[i], gpu.busy_s[i]) for i in (0, 1))
        left = max(0.0, gpu.step_s[1] - high), max(0.0, gpu.step_s[0] - low)
        return left if profile.workers else (parts[DATA], parts[DATA])

    unit, threads = UNITS.get(step.rank, "a step"), f"CPU {counted(profile.threads, 'thread')}"
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
            yield row(name, f"{span_text(seconds)} {100 * seconds / mean_s:3.0f} %", cells)
    if profile.copied_bytes and gpus:
        yield row("copies in", "–", lambda gpu: gpu.copies_s)
    half = f" ±{(step.high_s - mean_s) / mean_s:.0%}" if step.high_s is not None else ""
    yield row(unit, f"{span_text(mean_s)}{half}{star}", lambda gpu: gpu.step_s)
    if any(gpu.speedup[1] >= SAME for gpu in gpus):
        yield row("faster", "", lambda gpu: gain(gpu.speedup, star))
    if any(gpu.speedup[0] < SAME for gpu in gpus):
        yield row("slower", "", lambda gpu: gain((1 / gpu.speedup[1], 1 / gpu.speedup[0]), star))
    if gpus and parts[DATA] >= LARGE * mean_s:
        rest = span_text(mean_s - parts[DATA])
        yield row("if data never waits", rest, lambda gpu: gain(gpu.without_waiting, star))


def _notes(profile: Profile) -> Iterator[str]:
    """Yield the sentences behind the causes: of the step, of its mean, and of the GPUs."""
    step = profile.step
    assert step is not None
    if profile.evaluation_s > 0.01 * profile.mean_s:
        yield f"Evaluation adds {seconds_text(profile.evaluation_s)} to each step on average; it isn't in the table."
    if profile.memory_bytes and profile.gpus and (whole := profile.gpus[0].capacity):
        owner = f"{_article(profile.gpus[0].gpu)}'s"
        yield f"Memory: {text(profile.memory_bytes, 'B', 2)} of {owner} {text(whole, 'B', 2)}."
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
        held = "33 of 34 published networks lay inside"
        yield f"GPUs: modelled from {profile.all_launches:,} launches ({held}); the host's part is a guess."
    elif profile.bound is not None:
        yield f"No times on GPUs: {profile.unmodelled}."
    for name, (low, mean, high) in profile.measured.items():
        guess = next((gpu.step_s for gpu in profile.gpus if gpu.gpu == name), None)
        where = "in" if guess and guess[0] <= mean <= guess[1] else "out"
        held = f", estimated {span_text(*guess)}: {where}side" if guess else ""
        yield f"Measured on {name}: {span_text(mean)} a step ({span_text(low, high)}){held}."
    yield from (f"Unknown: {part} ({why})." for part, why in profile.lost.items() if why != profile.unmodelled)


def bars_of(profile: Profile) -> tuple[str, list[tuple[str, tuple[float, ...], float, str]], str]:
    """Return the answer of a completed profile, the seconds of a step on each device, and a note, for a picture."""
    rest_s, parts = sum(profile.parts[part] for part in (FORWARD, BACKWARD, OPTIMIZER)), profile.parts
    own: tuple[float, ...] = parts[DATA], parts[PYTHON], parts[HOST], rest_s
    rows = [(f"CPU, {counted(profile.threads, 'thread')}", own, profile.mean_s, span_text(profile.mean_s))]
    for gpu in profile.gpus:  # at the low end, without work that is done beside other work
        left_s, each = gpu.step_s[0], []
        for seconds in (parts[DATA], parts[PYTHON], gpu.host_s[0], left_s):
            each.append(min(seconds, left_s))
            left_s -= each[-1]
        rows.append((gpu.gpu, tuple(each), gpu.step_s[1], span_text(*gpu.step_s)))
    note = "CPU: measured." + " GPUs: modelled; the pale end is the range." * bool(profile.gpus)
    return answer(profile), rows, note
