"""Steps that are watched more closely than they may be timed: traced by the profiler of torch, and counted operator by
operator."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Any

from ..devices import current
from ..devices.lazy import torch
from ..measure.data import tensor_leaves
from ..measure.work import watched
from .profile import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PARTS, PYTHON, Place, Profile, StepNotes, segments
from .watcher import Watcher, line_of, replacing

DISPATCH_S, MOST_COST_S = 1e-6, 2e-6
"""Seconds of the host within an operator, before the operator computes, and those that the profiler takes for an event,
at most."""
WAITING = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "nonzero")
"""Methods of a tensor that wait for the device."""
Spans = list[tuple[float, float]]


class Tracer:
    """The profiler of torch over a few steps: raw events, as parsed ones take 32 µs each."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.perf_counter_ns()
        self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self._profiler.start()

    def stop(self) -> tuple[Spans, int]:
        """Return begin and end of the outermost operators by the clock of the notes, and the number of all events."""
        self._profiler.stop()
        events = self._profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
        named = [each for each in events if "::" in each.name() and "autograd::" not in each.name()]
        thread = Counter(each.start_thread_id() for each in named).most_common(1)[0][0]
        spans: Spans = []
        for each in sorted(named, key=lambda each: each.start_ns()):
            begin = (each.start_ns() - self._offset_ns) / 1e9
            if each.start_thread_id() == thread and (not spans or begin >= spans[-1][1]):
                spans.append((begin, begin + each.duration_ns() / 1e9))
        return spans, len(events)


def split_host(
    plain: Mapping[str, float], length: float, steps: Sequence[StepNotes], traced_spans: tuple[Spans, int],
    train: frozenset[Hashable],
) -> dict[str, float]:  # fmt: skip
    """Return the parts of a mean step with the host's time apart: in torch's regions the time between outermost
    operators, less the profiler's cost, and in own Python the operators moved to FORWARD. The sum stays. Of several
    steps the least counts, since other programs only add; ``length`` is the number of notes of a mean step, since
    episodes and sentences aren't equally long."""
    (spans, events), every = traced_spans, []
    for begin, end, notes in steps:
        totals = {name: [0.0, 0.0, 0.0] for name in PARTS}  # seconds, seconds between operators, operators
        for first, last, region in segments(notes, begin, end, train):
            within, total = [span for span in spans if span[0] < last and span[1] > first], totals[region]
            total[0] += last - first
            total[1] += last - first - sum(min(last, b) - max(first, a) for a, b in within)
            total[2] += sum(a >= first for a, _ in within)
        every.append({name: [length / max(1, len(notes)) * each for each in of] for name, of in totals.items()})
    least = {name: [*map(min, zip(*(totals[name] for totals in every), strict=True))] for name in PARTS}
    excess_s = max(0.0, sum(seconds for seconds, *_ in least.values()) - sum(plain.values()))
    cost_s, parts = min(MOST_COST_S, excess_s * len(steps) / max(1, events)), dict(plain)
    for region in (FORWARD, BACKWARD, OPTIMIZER):
        _, gap_s, count = least[region]
        host_s = min(plain[region], max(0.0, gap_s - cost_s * count) + DISPATCH_S * count)
        parts[region] -= host_s
        parts[HOST] += host_s
    moved_s = min(plain[PYTHON], max(0.0, least[PYTHON][0] - least[PYTHON][1]))
    parts[PYTHON] -= moved_s
    parts[FORWARD] += moved_s
    return parts


class Counting:
    """The operators of one step by torch's formulas, with its waits and copies."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._stack, self._thread = watcher, contextlib.ExitStack(), get_ident()
        self._places: dict[tuple[str, str], Place] = {}
        self._batch_bytes, self._shape = 0, tuple[int, ...]()
        self._dtype = self._device = ""
        self._is_apart, self._other = False, (dict[Any, Any](), 0)

    def __enter__(self) -> Counting:
        """Begin to count in this thread."""
        self._seen = self._stack.enter_context(watched())
        for name in (*WAITING, "to", "cuda"):
            self._stack.enter_context(replacing(torch.Tensor, name, partial(self._noting, name)))
        self._watcher.counting = self
        return self

    def __exit__(self, *_: object) -> None:
        """End the counting; the modes of torch are left in the opposite order."""
        self._watcher.counting = None
        self._stack.close()

    def _noting(self, name: str, original: Any) -> Any:
        def noted(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                target = *args[:1], kwargs.get("device")
                moved = name != "to" or any(isinstance(each, str | torch.device) for each in target)
                here = get_ident() == self._thread and DATA not in self._watcher.stacks[self._thread]
                caller = sys._getframe(1)
                if moved and here and "torch/optim" not in caller.f_code.co_filename:  # it waits on a CPU alone
                    line = line_of(caller)
                    place = self._places.setdefault((name, line), Place(name.strip("_"), line, 0))
                    place.n, place.bytes = place.n + 1, place.bytes + tensor.nbytes
            return original(tensor, *args, **kwargs)

        return noted

    def pause(self) -> None:
        """Leave the modes of torch: the operators of a loader aren't counted."""
        from torch.utils._python_dispatch import _disable_current_modes

        self._paused = _disable_current_modes()
        self._paused.__enter__()

    def resume(self, batch: Any) -> None:
        """Count again, after the loader has made this batch."""
        self._paused.__exit__(None, None, None)
        with contextlib.suppress(Exception):
            tensors = tensor_leaves(dict(batch) if hasattr(batch, "keys") else batch)
            self._batch_bytes += sum(tensor.nbytes for tensor in tensors)
            self._shape = self._shape or tuple(tensors[0].shape)

    def note_dtype(self, module: Any) -> None:
        """Note the device of a module, and the dtype in which the module computes."""
        parameter = next(module.parameters())
        self._device = parameter.device.type
        automatic = torch.is_autocast_enabled(self._device)
        self._dtype = str(torch.get_autocast_dtype(self._device) if automatic else parameter.dtype)[len("torch.") :]

    def switch(self, apart: bool) -> None:
        """Count operators ``apart`` from here on, as an optimizer's, or with the rest again."""
        if apart != self._is_apart:
            seen, other = self._seen, self._other
            self._is_apart, self._other = apart, (seen.groups, seen.operations)
            seen.groups, seen.operations = other

    def fill(self, profile: Profile) -> None:
        """Fill in the counted step."""
        seen = self._seen
        profile.memory_bytes = None if seen.failure else seen.counted(None, (), {}, None).memory_bytes
        self.switch(False)
        profile.operators, profile.launches = [*seen.operators()], seen.operations
        self.switch(True)
        profile.optimizer, profile.optimizer_launches = [*seen.operators()], seen.operations
        profile.waits = [place for (name, _), place in self._places.items() if name in WAITING]
        profile.copies = [place for (name, _), place in self._places.items() if name not in WAITING]
        profile.copied_bytes = self._batch_bytes or sum(each.bytes for each in profile.copies)
        profile.dtype, profile.device = self._dtype or profile.dtype, self._device or profile.device
        if used := current(profile.device):
            profile.gpu = used.label.removeprefix("NVIDIA ")
        if profile.step and self._shape:
            profile.step.items = max(1, round(profile.step.batches)) * self._shape[0]
            profile.step.shape = "×".join(map(str, self._shape if len(self._shape) == 2 else self._shape[:1]))
        if seen.failure:
            self._watcher.lose("operators", seen.failure)
