"""The causes of a script's time, in words: at most three, by the seconds of a step that are at stake."""

from __future__ import annotations

from collections.abc import Iterator

from ..runfile.quantities import counted, seconds_text
from .notes import DATA, PYTHON
from .profile import Cause, OnGpu, Profile, article

LARGE, FULL, MOST = 0.2, 0.9, 3
"""Share of a step from which on a part is a cause, share of a GPU's memory that a program can use, most causes."""


def causes_of(profile: Profile) -> list[Cause]:
    """Return the causes of a profile's time, the largest first."""
    gpu, step_s = next(iter(profile.gpus), None), profile.step.mean_s if profile.step else 0.0
    found = [*_data(profile, step_s, gpu), *_python(profile, step_s, gpu)]
    if gpu is not None:
        found += [*_launches(profile, gpu), *_copies(profile, gpu), *_memory(profile, gpu)]
    if profile.waits:
        says = f".{profile.waits[0].call}() at {profile.waits[0].line} waits for the GPU in each step"
        found.append(Cause("waits", 0.0, says, "Read it each 50 steps."))
    found.sort(key=lambda cause: -cause.seconds)
    if all(cause.name == "waits" for cause in found):
        found.insert(0, _computes(profile, step_s))
    return found[:MOST]


def _mostly(profile: Profile, region: str) -> str:
    line = next((line for line, _ in profile.lines.get(region, ()) if line), "")
    return f", mostly at {line}" if line else ""


def _data(profile: Profile, step_s: float, gpu: OnGpu | None) -> Iterator[Cause]:
    waiting_s, alone_s, workers = profile.parts[DATA], profile.alone_s, profile.workers
    short = gpu is not None and (alone_s or 0.0) > step_s / gpu.without_waiting[0]
    short |= gpu is not None and waiting_s > 0.5 * gpu.step_s[1]
    if not profile.loaders or (waiting_s < LARGE * step_s and not short):
        return
    says = f"{waiting_s / step_s:.0%} of a step waits for data: num_workers={workers} at {profile.loaders[0].line}"
    following = "Smaller inputs, more workers, or decoding on the GPU."
    if alone_s and profile.step and profile.step.items:
        rate = profile.step.items / alone_s
        following = f"The loader alone makes {rate:,.0f} rows/s in {counted(max(1, workers), 'process')}"
        if gpu is not None:
            could = profile.step.items / (step_s - waiting_s) * gpu.without_waiting[0]
            many = could / rate * max(1, workers)
            following += f"; {article(gpu.gpu)} could take {could:,.0f} or more"
            following += f": {many:,.0f} processes, smaller inputs, or decoding on the GPU" * (many > 1.5)
        following += "."
    if mostly := _mostly(profile, DATA):
        following += f" It loads{mostly[1:]}."
    yield Cause("data", max(waiting_s, alone_s or 0.0), says, following)


def _python(profile: Profile, step_s: float, gpu: OnGpu | None) -> Iterator[Cause]:
    own_s = profile.own_s
    if own_s >= LARGE * step_s or (gpu is not None and own_s > 0.5 * gpu.step_s[1]):
        says = f"{own_s / step_s:.0%} of a step is own Python, without torch{_mostly(profile, PYTHON)}"
        yield Cause("python", own_s, says, "Move it out of the loop, batch it, or do it in another process.")


def _launches(profile: Profile, gpu: OnGpu) -> Iterator[Cause]:
    busy_s = gpu.gpu_s[1] + gpu.optimizer_s[1]
    if gpu.host_s[0] > busy_s:
        count = (profile.launches or 0) + (profile.optimizer_launches or 0)
        says = (
            f"{count:,} launches of about {sum(gpu.host_s) / 2e-6 / max(1, count):.0f} µs keep {article(gpu.gpu)} busy "
        )
        times = min(100.0, gpu.host_s[0] / (busy_s or 1e-9))
        following = (
            f"A batch up to {times:.0f} times larger costs hardly more; torch.compile or a CUDA graph shortens each."
        )
        yield Cause("launches", gpu.host_s[0], f"{says}for {seconds_text(busy_s)} or less", following)


def _copies(profile: Profile, gpu: OnGpu) -> Iterator[Cause]:
    if gpu.copies_s[1] > LARGE * gpu.step_s[0]:
        says = (
            f"copies of {profile.copied_bytes / 1e6:,.1f} MB take up to {seconds_text(gpu.copies_s[1])} of a GPU's step"
        )
        where = f" at {profile.copies[0].line}" if profile.copies else ""
        yield Cause("copies", gpu.copies_s[1], says + where, "pin_memory=True, non_blocking=True, or make it there.")


def _memory(profile: Profile, gpu: OnGpu) -> Iterator[Cause]:
    needed = profile.memory_bytes or 0
    if gpu.capacity and needed > FULL * gpu.capacity:
        says = f"it needs {needed / 1e9:.0f} GB; {article(gpu.gpu)} has {gpu.capacity / 1e9:.0f}"
        yield Cause("memory", gpu.step_s[1], says, "Take a smaller batch.")


def _computes(profile: Profile, step_s: float) -> Cause:
    flops = sum(each.flops for each in profile.operators)
    share = sum(each.flops for each in profile.operators if each.kind in ("product", "convolution")) / (flops or 1.0)
    if not profile.operators:
        return Cause("computes", step_s, "it computes")
    if not flops:
        moved = sum(each.bytes for each in profile.operators)
        return Cause("computes", step_s, f"it waits for memory: its operators move {moved / 1e9:,.3g} GB")
    says = f"it computes: products are {share:.0%} of {flops / 1e9:,.3g} GFLOP"
    faster = profile.dtype == "float32" and profile.gpus
    return Cause("computes", step_s, says, "TF32 or autocast is likely faster still." * bool(faster))
