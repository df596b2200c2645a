"""The recorder of a script: attributes of torch note regions and events, and events become steps.

Nothing inside a loader counts, a compiled network has no hook, and a hook that fails costs its part of the answer.
"""

from __future__ import annotations

import functools
import os
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import pairwise
from threading import get_ident
from traceback import walk_stack
from typing import Any

from .notes import BACKWARD, DATA, FORWARD, OPTIMIZER, Note, is_steady, mark_of, seconds_of
from .places import user_line

RANKS = ("line", "optimizer", "backward", "batch", "call")
LINE, STEPPED, WENT_BACK, BATCH, CALLED = range(len(RANKS))
"""Events that can end a step, the best first: a turn of a named loop, the step of an optimizer, a backward pass, a
batch of a loader, a call of an outermost module with parameters."""
SALVAGED = 6
"""Steps that an answer needs, the first included."""
MOST_LOADERS = 4
"""Loaders that are kept alive, the newest ones."""


@dataclass(frozen=True)
class Plan:
    """Steps and seconds of the warm-up and of the timed part, at least and at most. ``patient_s``: seconds for which an
    optimizer that exists may leave its first step to come; ``traced``: steps under the profiler."""

    steps: int = 24
    steps_s: float = 2.0
    warm: int = 5
    warm_s: float = 0.5
    most_warm: int = 50
    most_s: float = 60.0
    fewest: int = 5
    patient_s: float = 60.0
    sampled_s: float = 2.0
    traced: int = 3


class Watcher:
    """Follows a script from its first event to the end of the last phase.

    ``phases`` is called at the end of each step after the timed ones, and returns whether another step is needed.
    ``timed`` has the ends of the timed steps in seconds, ``later`` begin and end of the latest other step.
    """

    def __init__(self, plan: Plan, phases: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> None:
        self.plan, self._phases, self._clock = plan, phases, clock
        self.phase, self.rank, self.thread, self.optimizers = "warm", len(RANKS), get_ident(), 0
        self.mark: Hashable = None
        self.warm: list[float] = []
        self.timed: list[float] = []
        self.later: list[float] = []
        self.lost: dict[str, str] = {}
        self.compiled = False
        self.optimizer: Any = None
        self.loaders: dict[Hashable, tuple[Any, str]] = {}  # by dataset, each with the line that made it
        self.children: list[str] = []
        self.counting: Any = None  # looks at batches and optimizers in the counted step
        self.stacks: defaultdict[int, list[str]] = defaultdict(list)
        self._notes: defaultdict[int, list[Note]] = defaultdict(list)
        self._events: defaultdict[int, list[tuple[float, Hashable]]] = defaultdict(list)
        self._began_s = 0.0
        self._made: dict[int, tuple[str, Hashable]] = {}  # by loader: its line, and the lines of the whole stack
        self._keys: dict[int, Hashable] = {}  # by iterator
        self._undo: list[tuple[Any, str, Any]] = []
        self._handles: list[Any] = []

    def lose(self, part: str, error: BaseException | str) -> bool:
        """Note why a part of the answer is missing; return False."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.lost.setdefault(part, " ".join(text.split())[:200])
        return False

    def enter(self, region: str, key: Hashable = None) -> bool:
        """Open a region of this thread; return whether it is noted: nothing within a loader is."""
        try:
            stack = self.stacks[ident := get_ident()]
            if self.phase == "over" or (stack and stack[-1] == DATA):
                return False
            self._notes[ident].append((self._clock(), "+", region, key))
            stack.append(region)
        except Exception as error:
            return self.lose(region, error)
        return True

    def leave(self, region: str, rank: int | None = None, key: Hashable = None) -> None:
        """Close a region, and note an event of this rank."""
        try:
            stack = self.stacks[ident := get_ident()]
            if self.phase == "over" or region not in stack:
                return
            while stack.pop() != region:
                pass
            now_s = self._clock()
            self._notes[ident].append((now_s, "-", region, key))
            if rank is not None and rank <= self.rank:
                self.event(rank, key, now_s)
        except Exception as error:
            self.lose(region, error)

    def turn(self) -> None:
        """Take the begin of a turn of the loop that the user named."""
        self._guarded(self.event, LINE, None, self._clock())

    # Steps ------------------------------------------------------------------------------------------------------------

    def event(self, rank: int, key: Hashable, now_s: float) -> None:
        """Take an event: the end of a step if it is of the best rank, and of the key that marks steps."""
        ident = get_ident()
        if self.phase == "over" or rank > self.rank or (self.phase != "warm" and ident != self.thread):
            return
        if rank < self.rank and self.phase in ("warm", "timed"):  # later phases hold modes of torch
            self.rank, self.phase, self.timed = rank, "warm", []
            self._events.clear()
        if self.phase == "warm":
            self._events[ident].append((now_s, key))
            if self._is_warm(ident, now_s):
                self.phase, self.thread, self.timed = "timed", ident, [self._clock()]
        elif key == self.mark:
            self._end_step(now_s)

    def _is_warm(self, ident: int, now_s: float) -> bool:
        plan, events = self.plan, self._events[ident]
        self._began_s = self._began_s if len(events) > 1 else now_s
        passed_s = now_s - self._began_s
        waits = self.rank > STEPPED and self.optimizers and passed_s < plan.patient_s
        if waits or passed_s < plan.warm_s or not self._choose(ident):
            return False
        steps_s = seconds_of(self.warm)
        enough = len(steps_s) >= plan.warm and (is_steady(steps_s) or len(steps_s) >= plan.most_warm)
        return events[-1][1] == self.mark and (enough or (passed_s >= plan.most_s and len(steps_s) > 0))

    def _choose(self, ident: int) -> bool:
        """Choose the mark from the events of the warm-up, unless another thread has more of them."""
        events = self._events[ident]
        if len(events) < max(map(len, self._events.values())):
            return False
        self.mark = mark_of([key for _, key in events], rarest=self.rank != BATCH)
        self.warm = [seconds for seconds, key in events if key == self.mark]
        return True

    def _end_step(self, now_s: float) -> None:
        if self.phase == "timed":
            self.timed.append(now_s)
            plan, passed_s, count = self.plan, now_s - self.timed[0], len(self.timed) - 1
            if (count < plan.steps or passed_s < plan.steps_s) and (passed_s < plan.most_s or count < plan.fewest):
                return
        self.later.append(now_s)
        self.phase = "later"
        if self._phases():
            self.later = [self._clock()]
        else:
            self.phase = "over"

    def salvage(self) -> int:
        """End the watching of a script that has ended in the warm-up or soon after it: use the steps of the warm-up,
        but the first. Return how many steps were seen."""
        if self.phase == "warm" and self._events:
            self.thread = max(self._events, key=lambda ident: len(self._events[ident]))
            self._choose(self.thread)
        self.phase, seen = "over", len(self.warm) + len(self.timed[1:])
        if len(self.timed) <= self.plan.fewest and seen >= SALVAGED:
            self.timed = [*self.warm[1:], *self.timed[1:]]
        return seen

    def steps(self) -> list[tuple[float, float, list[Note]]]:
        """Return the timed steps: begin, end, and the notes between them."""
        return [(begin, end, self.between(begin, end)) for begin, end in pairwise(self.timed)]

    def between(self, begin_s: float, end_s: float) -> list[Note]:
        """Return the notes of the training thread after one moment, up to another one."""
        notes = self._notes[self.thread]
        first, last = (bisect_right(notes, moment, key=lambda note: note[0]) for moment in (begin_s, end_s))
        return notes[first:last]

    # Hooks ------------------------------------------------------------------------------------------------------------

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any], part: str) -> None:
        """Replace an attribute by ``make(original)``; a missing one costs its part of the answer."""
        try:
            original, own = getattr(owner, name), name in vars(owner)
            setattr(owner, name, functools.wraps(original)(make(original)))
            self._undo.append((owner, name, original if own else None))
        except Exception as error:
            self.lose(part, error)

    def restore(self, *names: str) -> None:
        """Put original attributes back; without names all, and end the watching."""
        for owner, name, original in [each for each in self._undo if not names or each[1] in names]:
            setattr(owner, name, original) if original is not None else delattr(owner, name)
        self._undo = [each for each in self._undo if names and each[1] not in names]
        if not names:
            self.phase = "over"
            self.loaders.clear()
            for handle in self._handles:
                handle.remove()

    def install(self) -> None:
        """Set all hooks; torch has been imported."""
        from multiprocessing.process import BaseProcess

        import torch
        import torch.utils.data.dataloader as loading
        from torch.optim import optimizer

        self.replace(torch.nn.Module, "__call__", self._module_call, FORWARD)
        self.replace(torch.autograd, "backward", self._backward, BACKWARD)
        self.replace(torch.autograd, "grad", self._backward, BACKWARD)
        self.replace(loading._BaseDataLoaderIter, "__next__", self._next_batch, DATA)
        self.replace(loading._BaseDataLoaderIter, "__init__", self._iterator, DATA)
        self.replace(loading.DataLoader, "__init__", lambda init: self._before(init, self._note_loader), DATA)
        self.replace(optimizer.Optimizer, "__init__", lambda init: self._before(init, self._note_optimizer), OPTIMIZER)
        self.replace(torch, "compile", lambda compile: self._before(compile, self._note_compile), FORWARD)
        self.replace(torch.nn.Module, "compile", lambda compile: self._before(compile, self._note_compile), FORWARD)
        self.replace(BaseProcess, "start", lambda start: self._before(start, self._note_child), "children")
        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: setattr(self, "phase", "over"))

    def _guarded(self, note: Callable[..., Any], *args: Any) -> Any:
        try:
            return note(*args)
        except Exception as error:
            return self.lose(note.__name__.strip("_"), error)

    def _before(self, original: Any, note: Callable[[Any], None]) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self._guarded(note, args[0] if args else None)
            return original(*args, **kwargs)

        return noted

    def _note_loader(self, loader: Any) -> None:
        self._made[id(loader)] = user_line(), tuple((frame.f_code, number) for frame, number in walk_stack(None))

    def _note_optimizer(self, _: Any) -> None:
        self.optimizers += 1

    def _note_compile(self, _: Any) -> None:
        self.compiled = True
        self.restore("__call__", "grad")

    def _note_child(self, process: Any) -> None:
        if not (getattr(getattr(process, "_target", None), "__module__", "") or "").startswith("torch.utils.data"):
            self.children.append(user_line())

    def _module_call(self, original: Any) -> Any:
        def call(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            stack = self.stacks[get_ident()]
            if (stack and stack[-1] in (FORWARD, DATA)) or not self.enter(FORWARD):
                return original(module, *args, **kwargs)
            try:
                return original(module, *args, **kwargs)
            finally:
                self._leave_module(module)

        return call

    def _leave_module(self, module: Any) -> None:
        if self.rank < CALLED and self.counting is None:  # the event wouldn't count
            return self.leave(FORWARD)
        has_parameters = self._guarded(lambda: next(module.parameters(), None) is not None)
        if self.counting is not None and has_parameters:
            self._guarded(self.counting.note_dtype, module)
        self.leave(FORWARD, CALLED if has_parameters else None, id(module))

    def _backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            noted = self.enter(BACKWARD)
            try:
                return original(*args, **kwargs)
            finally:
                if noted:
                    self.leave(BACKWARD, WENT_BACK)

        return backward

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.enter(OPTIMIZER, id(optimizer)) and self.counting is not None:
            self._guarded(self.counting.before_optimizer)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.counting is not None:
            self._guarded(self.counting.after_optimizer)
        if self.optimizer is None or self.mark == id(optimizer):
            self.optimizer = optimizer
        self.leave(OPTIMIZER, STEPPED, id(optimizer))

    def _iterator(self, original: Any) -> Any:
        def init(iterator: Any, loader: Any) -> None:
            original(iterator, loader)
            self._guarded(self._note_iterator, iterator, loader)

        return init

    def _note_iterator(self, iterator: Any, loader: Any) -> None:
        """Note the loader of an iterator. Its key is where it was made and how long it is: a script may make loader and
        dataset again for each epoch, and both of training and of evaluation in one function."""
        line, stack = self._made.get(id(loader)) or (user_line(), id(loader.dataset))
        try:
            key = stack, len(loader.dataset)
        except TypeError:  # a stream
            key = stack, 0
        self._keys[id(iterator)] = key
        self.loaders[key] = loader, line
        for old in list(self.loaders)[:-MOST_LOADERS]:
            del self.loaders[old]

    def _next_batch(self, original: Any) -> Any:
        def __next__(iterator: Any) -> Any:
            if not self.enter(DATA, key := self._keys.get(id(iterator))):
                return original(iterator)
            rank = None
            try:
                batch = original(iterator) if self.counting is None else self.counting.batch(original, iterator)
                rank = BATCH
            finally:
                self.leave(DATA, rank, key)
            return batch

        return __next__
