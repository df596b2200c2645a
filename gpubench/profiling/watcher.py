"""The recorder of a script: attributes of torch note regions and events, and events become steps.

Nothing inside a loader counts, a compiled network has no hook, and a hook that fails costs its part of the answer.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import sysconfig
import time
import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import get_ident
from traceback import walk_stack
from types import FrameType
from typing import Any

from .profile import BACKWARD, DATA, FORWARD, OPTIMIZER, Note, StepNotes, mark_of

RANKS = ("line", "optimizer", "backward", "batch", "call")
LINE, STEPPED, WENT_BACK, BATCH, CALLED = range(len(RANKS))
"""Events that can end a step, the best first: a turn of a named loop, the step of an optimizer, a backward pass, a
batch of a loader, a call of an outermost module with parameters."""
SALVAGED, MOST_LOADERS = 6, 4
"""Steps that an answer needs, the first included, and loaders that are kept alive, the newest ones."""
FAILED = object()
"""The result of a call that raised an exception."""
_OTHERS = ("<", *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib")), str(Path(__file__).parents[1]))


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


@contextlib.contextmanager
def replacing(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute by ``make(original)`` for a while."""
    original, own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, functools.wraps(original)(make(original)))
    try:
        yield
    finally:
        setattr(owner, name, original) if own else delattr(owner, name)


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the user's code, the innermost first: none of Python, installed packages and gpubench."""
    others = *_OTHERS, str(Path(getattr(sys.modules.get("torch"), "__file__", None) or __file__).parents[1])
    for each, _ in walk_stack(frame) if frame else ():
        if not (each.f_code.co_filename.startswith(others) or "site-packages" in each.f_code.co_filename):
            yield each


def line_of(frame: FrameType | None) -> str:
    """Return ``train.py:31`` for the innermost frame of the user's code; empty without one."""
    own = next(frames(frame), None)
    return f"{os.path.basename(own.f_code.co_filename)}:{own.f_lineno}" if own else ""


class Watcher:
    """Follows a script from its first event to the end of the last phase.

    ``phases`` is called at the end of each step after the timed ones, and returns whether another step is needed.
    ``timed`` has the ends of the timed steps in seconds, ``later`` begin and end of the latest other step.
    """

    def __init__(self, plan: Plan, phases: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> None:
        self.plan, self._phases, self._clock = plan, phases, clock
        self.phase, self.rank, self.thread, self.optimizers = "warm", len(RANKS), get_ident(), 0
        self.mark: Hashable = None
        self.warm, self.timed, self.later = list[float](), list[float](), list[float]()
        self.lost: dict[str, str] = {}
        self.compiled = False
        self.optimizer: Any = None
        self.loaders: dict[Hashable, tuple[Any, str]] = {}  # by key, each with the line that made it
        self.children: list[str] = []
        self.counting: Any = None  # the counted step
        self.stacks: defaultdict[int, list[str]] = defaultdict(list)
        self._notes: defaultdict[int, list[Note]] = defaultdict(list)
        self._events: defaultdict[int, list[tuple[float, Hashable]]] = defaultdict(list)
        self._began_s = 0.0
        self._made: dict[int, tuple[str, Hashable]] = {}  # by loader: its line, and the lines of the whole stack
        self._keys: dict[int, Hashable] = {}  # by iterator
        self._hooks, self._module_hooks = contextlib.ExitStack(), contextlib.ExitStack()

    def lose(self, part: str, error: BaseException | str) -> bool:
        """Note why a part of the answer is missing; return False."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.lost.setdefault(part, " ".join(text.split())[:200])
        return False

    @contextlib.contextmanager
    def losing(self, part: str) -> Iterator[None]:
        """Let an exception cost its part of the answer alone."""
        try:
            yield
        except Exception as error:
            self.lose(part, error)

    def enter(self, region: str, key: Hashable = None) -> bool:
        """Open a region of this thread; return whether it is noted: nothing within a loader is."""
        stack = self.stacks[ident := get_ident()]
        if self.phase == "over" or (stack and stack[-1] == DATA):
            return False
        self._notes[ident].append((self._clock(), "+", region, key))
        stack.append(region)
        return True

    def leave(self, region: str, rank: int | None = None, key: Hashable = None) -> None:
        """Close a region, and note an event of this rank."""
        stack = self.stacks[ident := get_ident()]
        if self.phase == "over" or region not in stack:
            return
        while stack.pop() != region:
            pass
        now_s = self._clock()
        self._notes[ident].append((now_s, "-", region, key))
        if rank is not None and rank <= self.rank:
            self.event(rank, key, now_s)

    def turn(self) -> None:
        """Take the begin of a turn of the loop that the user named."""
        with self.losing(RANKS[LINE]):
            self.event(LINE, None, self._clock())

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
        steps_s = [end - begin for begin, end in pairwise(self.warm)]
        last_s, before_s = sum(steps_s[-5:]), sum(steps_s[-10:-5])
        is_steady = len(steps_s) >= 10 and abs(last_s - before_s) <= 0.25 * before_s
        enough = len(steps_s) >= plan.warm and (is_steady or len(steps_s) >= plan.most_warm)
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

    def steps(self) -> list[StepNotes]:
        """Return the timed steps: begin, end, and the notes between them."""
        return [self.between(begin, end) for begin, end in pairwise(self.timed)]

    def between(self, begin_s: float, end_s: float) -> StepNotes:
        """Return two moments, with the notes of the training thread after the first, up to the second."""
        notes = self._notes[self.thread]
        first, last = (bisect_right(notes, moment, key=lambda note: note[0]) for moment in (begin_s, end_s))
        return begin_s, end_s, notes[first:last]

    # Hooks ------------------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Set all hooks; torch has been imported."""
        with self.losing("hooks"):
            from multiprocessing.process import BaseProcess

            import torch
            import torch.utils.data.dataloader as loading
            from torch.optim import optimizer

            _WATCHERS.add(self)
            iterators, module = loading._BaseDataLoaderIter, torch.nn.Module
            hook, enter = self._hook, self._enter_loader
            backward = lambda *_: self.enter(BACKWARD), lambda *_: self.leave(BACKWARD, WENT_BACK)
            hook(module, "__call__", FORWARD, lambda *_: self.enter(FORWARD), self._leave_module, self._module_hooks)
            hook(torch.autograd, "grad", BACKWARD, *backward, self._module_hooks)
            hook(torch.autograd, "backward", BACKWARD, *backward)
            hook(
                iterators,
                "__next__",
                DATA,
                lambda each: enter(self._keys.get(id(each))),
                self._leave_batch,
            )
            hook(loading.DataLoader, "__iter__", DATA, lambda each: enter(self._use(each)), self._leave_iter)
            hook(loading.DataLoader, "__init__", DATA, self._note_loader)
            hook(optimizer.Optimizer, "__init__", OPTIMIZER, self._note_optimizer)
            hook(torch, "compile", FORWARD, self._note_compile)
            hook(module, "compile", FORWARD, self._note_compile)
            hook(BaseProcess, "start", "children", self._note_child)
            self._hooks.callback(optimizer.register_optimizer_step_pre_hook(self._before_step).remove)
            self._hooks.callback(optimizer.register_optimizer_step_post_hook(self._after_step).remove)

    def _hook(self, owner: Any, name: str, part: str, before: Any, after: Any = None, hooks: Any = None) -> None:
        """Call ``before(*args)`` before a function, and if that was true ``after(result, *args)`` after it, with FAILED
        for an exception. A missing function, and an exception of ``before`` or ``after``, cost their part of the
        answer."""
        inner = (FORWARD, DATA) if name == "__call__" else ()  # nearly all calls of modules are within another one's

        def make(original: Any) -> Any:
            def hooked(*args: Any, **kwargs: Any) -> Any:
                try:
                    stack = self.stacks[get_ident()]
                    noted = not (stack and stack[-1] in inner) and before(*args)
                except Exception as error:
                    noted = self.lose(part, error)
                if not noted:
                    return original(*args, **kwargs)
                result = FAILED
                try:
                    result = original(*args, **kwargs)
                    return result
                finally:
                    try:  # a context manager takes a microsecond
                        after(result, *args)
                    except Exception as error:
                        self.lose(part, error)

            return hooked

        with self.losing(part):
            (hooks or self._hooks).enter_context(replacing(owner, name, make))

    def restore(self) -> None:
        """Put all attributes back, and end the watching."""
        self.phase = "over"
        self.loaders.clear()
        self._module_hooks.close()
        self._hooks.close()

    def _note_loader(self, loader: Any, *_: Any) -> None:
        lines = tuple((frame.f_code, number) for frame, number in walk_stack(sys._getframe()))
        self._made[id(loader)] = line_of(sys._getframe()), lines

    def _note_optimizer(self, *_: Any) -> None:
        self.optimizers += 1

    def _note_compile(self, *_: Any) -> None:
        self.compiled = True
        self._module_hooks.close()

    def _note_child(self, process: Any) -> None:
        if not (getattr(getattr(process, "_target", None), "__module__", "") or "").startswith("torch.utils.data"):
            self.children.append(line_of(sys._getframe()))

    def _use(self, loader: Any) -> Hashable:
        """Note a loader that begins; return its key, where it was made and how long it is: a script may make loader and
        dataset again for each epoch, and both of training and of evaluation in one function."""
        line, stack = self._made.get(id(loader)) or (line_of(sys._getframe()), id(loader.dataset))
        try:
            key = stack, len(loader.dataset)
        except TypeError:  # a stream
            key = stack, 0
        self.loaders.pop(key, None)
        self.loaders[key] = loader, line
        for old in list(self.loaders)[:-MOST_LOADERS]:
            del self.loaders[old]
        return key

    def _enter_loader(self, key: Hashable) -> bool:
        noted = self.enter(DATA, key)
        if noted and self.counting is not None:
            self.counting.pause()
        return noted

    def _leave_loader(self, batch: Any, rank: int | None = None, key: Hashable = None) -> None:
        if self.counting is not None:
            self.counting.resume(batch)
        self.leave(DATA, rank, key)

    def _leave_batch(self, batch: Any, iterator: Any) -> None:
        self._leave_loader(batch, None if batch is FAILED else BATCH, self._keys.get(id(iterator)))

    def _leave_iter(self, iterator: Any, loader: Any) -> None:
        """Note the key of an iterator; with workers, it has started them."""
        if iterator is not FAILED:
            self._keys[id(iterator)] = next(reversed(self.loaders))
        self._leave_loader(None)

    def _leave_module(self, _: Any, module: Any, *__: Any) -> None:
        rank = None
        try:
            if self.rank >= CALLED or self.counting is not None:  # else the event wouldn't count
                rank = CALLED if next(module.parameters(), None) is not None else None
                if self.counting is not None and rank is not None:
                    self.counting.note_dtype(module)
        finally:
            self.leave(FORWARD, rank, id(module))

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        with self.losing(OPTIMIZER):
            if self.enter(OPTIMIZER, id(optimizer)) and self.counting is not None:
                self.counting.switch(True)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        with self.losing(OPTIMIZER):
            if self.counting is not None:
                self.counting.switch(False)
            if self.optimizer is None or self.mark == id(optimizer):
                self.optimizer = optimizer
            self.leave(OPTIMIZER, STEPPED, id(optimizer))


def _silence() -> None:
    for watcher in _WATCHERS:
        watcher.phase = "over"


_WATCHERS = weakref.WeakSet[Watcher]()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_silence)  # once: nothing takes it back
