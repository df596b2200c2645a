"""Steps that are watched more closely than they may be timed: traced by the profiler of torch, and counted operator by
operator."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from threading import get_ident
from typing import Any

from ..devices import current
from ..devices.lazy import torch
from ..measure.data import tensor_leaves
from ..measure.work import watched
from ..runfile.schema import Operators
from .notes import BACKWARD, DATA, FORWARD, HOST, OPTIMIZER, PARTS, PYTHON, StepNotes, segments, uncovered
from .places import user_line
from .profile import Place, Profile
from .watcher import Watcher

DISPATCH_S = 1e-6
"""Seconds of the host within an operator, before the operator computes."""
MOST_COST_S = 2e-6
"""Seconds that the profiler takes for an event, at most."""
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
    plain: Mapping[str, float], steps: Sequence[StepNotes], traced_spans: tuple[Spans, int], train: frozenset[Hashable]
) -> dict[str, float]:
    """Return the parts of a mean step with the host's time apart: in torch's regions the time between outermost
    operators, less the profiler's cost, and in own Python the operators moved to FORWARD. The sum stays. Of several
    steps the least counts, since other programs only add."""
    (spans, events), every = traced_spans, []
    for begin, end, notes in steps:
        traced, gaps, counts = (dict.fromkeys(PARTS, 0.0) for _ in range(3))
        for region, seconds, gap_s, count in uncovered(spans, list(segments(notes, begin, end, train))):
            traced[region] += seconds
            gaps[region] += gap_s
            counts[region] += count
        every.append((traced, gaps, counts))
    traced, gaps, counts = ({name: min(each[i][name] for each in every) for name in PARTS} for i in range(3))
    excess_s = max(0.0, sum(traced.values()) - sum(plain.values()))
    cost_s, parts = min(MOST_COST_S, excess_s * len(steps) / max(1, events)), dict(plain)
    for region in (FORWARD, BACKWARD, OPTIMIZER):
        host_s = max(0.0, gaps[region] - cost_s * counts[region]) + DISPATCH_S * counts[region]
        host_s = min(plain[region], host_s)
        parts[region] -= host_s
        parts[HOST] += host_s
    moved_s = min(plain[PYTHON], max(0.0, traced[PYTHON] - gaps[PYTHON]))
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
        self._optimizer: dict[int, Operators] = {}
        self._launches, self._before = 0, ((), 0)  # type: tuple[int, tuple[Sequence[Operators], int]]

    def start(self) -> None:
        """Begin to count in this thread."""
        self._seen = self._stack.enter_context(watched())
        for name in (*WAITING, "to", "cuda"):
            self._stack.enter_context(self._noting(name))
        self._watcher.counting = self

    def stop(self) -> None:
        """End the counting; the modes of torch are left in the opposite order."""
        self._watcher.counting = None
        self._stack.close()

    @contextlib.contextmanager
    def _noting(self, name: str) -> Any:
        original, own = getattr(torch.Tensor, name), name in vars(torch.Tensor)

        def noted(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                self._note(name, tensor, (*args[:1], kwargs.get("device")))
            return original(tensor, *args, **kwargs)

        setattr(torch.Tensor, name, noted)
        try:
            yield
        finally:
            setattr(torch.Tensor, name, original) if own else delattr(torch.Tensor, name)

    def _note(self, name: str, tensor: Any, target: Any) -> None:
        by_torch = "torch/optim" in sys._getframe(2).f_code.co_filename  # waits on a CPU alone
        if get_ident() != self._thread or DATA in self._watcher.stacks[self._thread] or by_torch:
            return
        if name != "to" or any(isinstance(each, str | torch.device) for each in target):
            line = user_line()
            place = self._places.setdefault((name, line), Place(name.strip("_"), line, 0))
            place.n, place.bytes = place.n + 1, place.bytes + tensor.nbytes

    def batch(self, original: Any, iterator: Any) -> Any:
        """Return the next batch of a loader, whose operators aren't counted."""
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            batch = original(iterator)
        with contextlib.suppress(Exception):
            tensors = tensor_leaves(dict(batch) if hasattr(batch, "keys") else batch)
            self._batch_bytes += sum(tensor.nbytes for tensor in tensors)
            self._shape = self._shape or tuple(tensors[0].shape)
        return batch

    def note_dtype(self, module: Any) -> None:
        """Note the device of a module, and the dtype in which the module computes."""
        parameter = next(module.parameters())
        self._device = parameter.device.type
        automatic = torch.is_autocast_enabled(self._device)
        self._dtype = str(torch.get_autocast_dtype(self._device) if automatic else parameter.dtype)[len("torch.") :]

    def before_optimizer(self) -> None:
        """Remember the operators before an optimizer's step."""
        self._before = self._seen.operators(), self._seen.operations

    def after_optimizer(self) -> None:
        """Take the operators of an optimizer's step apart."""
        before, count = self._before
        self._launches += self._seen.operations - count
        for i, now in enumerate(self._seen.operators()):
            added = _less(now, before[i]) if i < len(before) else now
            self._optimizer[i] = _less(added, self._optimizer[i], -1) if i in self._optimizer else added

    def fill(self, profile: Profile) -> None:
        """Fill in the counted step."""
        seen, every = self._seen, self._seen.operators()
        rest = [_less(each, self._optimizer[i]) if i in self._optimizer else each for i, each in enumerate(every)]
        profile.operators = [each for each in rest if each.count]
        profile.optimizer = [each for each in self._optimizer.values() if each.count]
        profile.launches, profile.optimizer_launches = seen.operations - self._launches, self._launches
        profile.memory_bytes = seen.given_bytes([]) + seen.peak
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


def _less(now: Operators, then: Operators, sign: int = 1) -> Operators:
    amounts = now.count - sign * then.count, now.flops - sign * then.flops, now.bytes - sign * then.bytes
    return Operators(now.kind, *amounts)
