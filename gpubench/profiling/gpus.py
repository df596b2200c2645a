"""The time of a step on GPUs that aren't here: the host's time from this run, the GPU's from its datasheet.

Launches overlap the GPU's work, so the larger of both counts. The factors of the host are a guess from four networks on
one CPU, and one published time (ResNet-50, one image, forward, 4 to 7 ms on fast GPUs).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..estimate.datasheets import Gpu, find_card, read_cards
from ..estimate.model import likely, work_on
from ..runfile.runs import read
from ..runfile.schema import OK, Operators
from .causes import causes_of
from .notes import DATA, HOST, PYTHON, least_s
from .profile import OnGpu, Profile, Span

CARDS = ("L4", "RTX 4090", "A100", "H100")
HOST_FACTORS, LAUNCH_S = (0.6, 1.6), (3e-6, 7e-6)
"""How many times its time here a host beside a GPU may need, and seconds of a launch by the driver."""
QUEUED_S = 2e-6
"""Seconds between two kernels that are queued, at most."""
UNPINNED = 4.0
"""How many times longer a copy from memory that isn't page-locked may take."""
MEASURED = 0.75, 1.25
"""The range around a middle that benchmarks on this card have corrected: 33 of 34 published networks lay in it."""


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
    floor_s = _least_s(profile)
    profile.bound = profile.mean_s / floor_s if floor_s > 0 else None
    for card, factor in cards:
        modelled = on_gpu(profile, card, factor)
        if isinstance(modelled, str):
            profile.unmodelled = modelled
        else:
            profile.gpus.append(modelled)
    profile.causes = causes_of(profile)


def _least_s(profile: Profile) -> float:
    return least_s(profile.parts | {PYTHON: profile.own_s}, profile.alone_s, profile.workers)


def on_gpu(profile: Profile, card: Gpu, factor: float | None = None) -> OnGpu | str:
    """Return a profile's step on a card, or the reason why that is unknown."""
    if profile.step is None or profile.launches is None:
        return "its operators weren't counted"
    rest = _gpu_s(profile, profile.operators, profile.launches, card, factor)
    own_launches = profile.optimizer_launches or 0
    optimizer = _gpu_s(profile, profile.optimizer, own_launches, card, factor) if profile.optimizer else (0.0, 0.0)
    if isinstance(rest, str) or isinstance(optimizer, str):
        return str(rest if isinstance(rest, str) else optimizer)
    low, high = (HOST_FACTORS[i] * profile.parts[HOST] + LAUNCH_S[i] * profile.all_launches for i in (0, 1))
    copy_s = profile.copied_bytes / (card.value("link") or float("inf"))
    copies = copy_s, copy_s * (1.0 if any(loader.pinned for loader in profile.loaders) else UNPINNED)
    gpu = rest[0] + optimizer[0] + copies[0], rest[1] + optimizer[1] + copies[1]
    mean_s, rest_s = profile.mean_s, profile.mean_s - profile.parts[DATA]
    joined, bare, least = (
        _joined(profile, (low, high), gpu, 1.0),
        _joined(profile, (low, high), gpu, 0.0),
        _least_s(profile),
    )
    step = max(joined[0], least), max(joined[1], least)
    speedups = (mean_s / step[1], mean_s / step[0]), (rest_s / bare[1], rest_s / bare[0])
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


def _gpu_s(
    profile: Profile, operators: Sequence[Operators], launches: int, card: Gpu, factor: float | None
) -> Span | str:
    spans = work_on(operators, profile.dtype, card)
    if isinstance(spans, str):
        return spans
    if factor is not None:
        middle_s = factor * sum(span.middle_s for span in spans)
        return MEASURED[0] * middle_s, MEASURED[1] * middle_s + QUEUED_S * launches
    return sum(span.low_s for span in spans), sum(span.high_s for span in spans) + QUEUED_S * launches
