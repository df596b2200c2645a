"""The causes of a script's time, in words: at most three, by the seconds of a step that are at stake."""

from __future__ import annotations

from collections.abc import Iterator

from ..runfile.quantities import counted, seconds_text
from .notes import DATA, PYTHON
from .profile import Cause, OnGpu, Profile

LARGE, FULL, MOST = 0.2, 0.9, 3
"""Share of a step from which on a part is a cause, share of a GPU's memory that a program can use, most causes."""


def article(gpu: str) -> str:
    """``an L4``, ``a V100``."""
    return f"{'an' if gpu[0] in 'AHLR' else 'a'} {gpu}"


def causes_of(profile: Profile) -> list[Cause]:
    """Return the causes of a profile's time, the largest first."""
    gpu = next(iter(profile.gpus), None)
    causes = [*_of_host(profile, gpu), *(_of_gpu(profile, gpu) if gpu else ())]
    if not causes:
        causes.append(_work(profile))
    for wait in profile.waits[:1]:
        says = f".{wait.call}() at {wait.line} waits for the GPU in each step"
        causes.append(Cause("waits", 0.0, says, "Read it each 50 steps."))
    return sorted(causes, key=lambda cause: -cause.seconds)[:MOST]


def _of_host(profile: Profile, gpu: OnGpu | None) -> Iterator[Cause]:
    """Yield the causes that stay on the host: waiting for data, and own Python."""
    step_s, waiting_s, alone_s, own_s = profile.mean_s, profile.parts[DATA], profile.alone_s or 0.0, profile.own_s
    half_s = 0.5 * gpu.step_s[1] if gpu else float("inf")
    short = waiting_s > half_s or (gpu is not None and alone_s > step_s / gpu.without_waiting[0])
    lines = {region: next((f"mostly at {line}" for line, _ in of if line), "") for region, of in profile.lines.items()}
    if profile.loaders and (waiting_s >= LARGE * step_s or short):
        place = f"num_workers={profile.workers} at {profile.loaders[0].line}"
        advice = [_loading(profile, gpu, alone_s)]
        advice += [f"It loads {lines[DATA]}."] if lines.get(DATA) else []
        says = f"{waiting_s / step_s:.0%} of a step waits for data: {place}"
        yield Cause("data", max(waiting_s, alone_s), says, " ".join(advice))
    if own_s >= LARGE * step_s or own_s > half_s:
        place = f", {lines[PYTHON]}" if lines.get(PYTHON) else ""
        says = f"{own_s / step_s:.0%} of a step is own Python, without torch{place}"
        yield Cause("python", own_s, says, "Move it out of the loop, batch it, or do it in another process.")


def _loading(profile: Profile, gpu: OnGpu | None, alone_s: float) -> str:
    """Return the rate of the loader, and the rate that a GPU could take."""
    items, workers = profile.step and profile.step.items, max(1, profile.workers)
    if not (alone_s and items):
        return "Smaller inputs, more workers, or decoding on the GPU."
    rate = items / alone_s
    text = f"The loader alone makes {rate:,.0f} rows/s in {counted(workers, 'process')}"
    if gpu:
        could = items / (profile.mean_s - profile.parts[DATA]) * gpu.without_waiting[0]
        many = could / rate * workers
        text += f"; {article(gpu.gpu)} could take {could:,.0f} or more"
        text += f": {many:,.0f} processes, smaller inputs, or decoding on the GPU" * (many > 1.5)
    return f"{text}."


def _of_gpu(profile: Profile, gpu: OnGpu) -> Iterator[Cause]:
    """Yield the causes that come with a GPU: launches, copies, and its memory."""
    host_s, busy_s, copies_s, needed = gpu.host_s, gpu.busy_s[1], gpu.copies_s[1], profile.memory_bytes or 0
    if host_s[0] > busy_s:
        count = profile.all_launches
        each = f"{count:,} launches of about {sum(host_s) / 2e-6 / max(1, count):.0f} µs"
        says = f"{each} keep {article(gpu.gpu)} busy for {seconds_text(busy_s)} or less"
        more = f"A batch up to {min(100.0, host_s[0] / (busy_s or 1e-9)):.0f} times larger costs hardly more"
        yield Cause("launches", host_s[0], says, f"{more}; torch.compile or a CUDA graph shortens each.")
    if copies_s > LARGE * gpu.step_s[0]:
        says = f"copies of {profile.copied_bytes / 1e6:,.1f} MB take up to {seconds_text(copies_s)} of a GPU's step"
        says += f" at {profile.copies[0].line}" if profile.copies else ""
        yield Cause("copies", copies_s, says, "pin_memory=True, non_blocking=True, or make it there.")
    if gpu.capacity and needed > FULL * gpu.capacity:
        says = f"it needs {needed / 1e9:.0f} GB; {article(gpu.gpu)} has {gpu.capacity / 1e9:.0f}"
        yield Cause("memory", gpu.step_s[1], says, "Take a smaller batch.")


def _work(profile: Profile) -> Cause:
    """Return the cause of a step that has no other one: its operators."""
    flops, products = (
        sum(each.flops for each in profile.operators if not kinds or each.kind in kinds)
        for kinds in ((), ("product", "convolution"))
    )
    says, faster = "it computes", ""
    if flops:
        says = f"it computes: products are {products / flops:.0%} of {flops / 1e9:,.3g} GFLOP"
        faster = "TF32 or autocast is likely faster still." * bool(profile.dtype == "float32" and profile.gpus)
    elif profile.operators:
        moved = sum(each.bytes for each in profile.operators)
        says = f"it waits for memory: its operators move {moved / 1e9:,.3g} GB"
    return Cause("computes", profile.mean_s, says, faster)
