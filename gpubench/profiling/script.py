"""The process that runs a script as ``__main__`` and watches its steps: ``python -P -m gpubench.profiling.script``.

The result is written after each phase. A script that is measured ends as if switched off, after its streams are
flushed: an exception would be caught by its ``except``, and would run its ``finally``.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.abc
import importlib.util
import os
import runpy
import sys
import time
import traceback
import types
from collections.abc import Callable, Generator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from threading import get_ident, main_thread
from typing import Any, NoReturn

import msgspec

from .notes import (
    DATA,
    EVALUATION,
    PARTS,
    PYTHON,
    StepNotes,
    correlation,
    mean_interval,
    parts_of,
    seconds_of,
    train_keys,
)
from .places import BRIEF_S, MARK, Sampler, busiest_loop, frames, line_of, marked
from .profile import LoaderFacts, Profile, Step
from .watcher import BATCH, LINE, RANKS, SALVAGED, STEPPED, Plan, Watcher

ALONE_BATCHES, ALONE_S = 25, 3.0
"""Batches and seconds for which a loader runs alone."""
SAMPLES, SAMPLED_STEPS = 60, 5
"""Samples of lines that are enough, and steps to take them in."""
NO_STEP_S, SAID_S = 600.0, 30.0
"""Seconds without a step after which a script is given up, and between two lines that say where it is."""
NEEDS_CUDA = ("not compiled with CUDA", "No CUDA GPUs", "no NVIDIA driver", "CUDA is not available")
Tasks = Generator[bool, None, None]


class Session(msgspec.Struct):
    """The request of the command: the file of the result, the script and its words, and how to run it."""

    result: str
    words: list[str]
    module: bool = False
    to_the_end: bool = False
    line: int | None = None
    plan: Plan = Plan()


class Script:
    """A script that runs, its watcher, and the result so far."""

    def __init__(self, session: Session) -> None:
        self.session, self.path, self.profile = session, os.path.abspath(session.words[0]), Profile(session.words[0])
        self._tasks, self._samples, self._before = self._later(), False, None
        self.watcher = Watcher(session.plan, self._next_step)
        self._tracer = self._counting = self.main = None  # type: Any
        self._began_s, self._said_s = time.monotonic(), 0.0
        self.sampler = Sampler(get_ident(), self.path, self._look)
        self.sampler.region = lambda: next(iter(self.watcher.stacks[self.sampler.thread]), PYTHON)

    def hook(self) -> None:
        """Set the hooks; torch has been imported."""
        try:
            importlib.import_module("..measure.disturbance", __package__)
            self.watcher.install()
        except Exception as error:
            self.watcher.lose("hooks", error)

    # The phases after the timed steps ---------------------------------------------------------------------------------

    def _next_step(self) -> bool:
        try:
            return next(self._tasks, False)
        except Exception as error:
            self.watcher.lose("phases", error)
            self._finish()
            return False

    def _later(self) -> Tasks:
        self._fill_steps()
        self._write()
        for task in (self._sampled, self._traced, self._counted):
            try:
                yield from task()
            except Exception as error:
                self.watcher.lose(task.__name__.strip("_"), error)
        self._finish()

    def _sampled(self) -> Tasks:
        sampler, began_s, count = self.sampler, time.perf_counter(), 0
        sampler.lines, sampler.thread, sampler.interval_s, self._samples = {}, self.watcher.thread, BRIEF_S, True
        yield True
        while (count := count + 1) < SAMPLED_STEPS and time.perf_counter() - began_s < self.session.plan.sampled_s:
            if sum(lines.total() for lines in sampler.lines.values()) >= SAMPLES:
                break
            yield True
        sampler.stop()
        self.profile.lines = {region: lines.most_common(5) for region, lines in sampler.lines.items()}

    def _traced(self) -> Tasks:
        from .tracing import Tracer, split_host

        in_main = get_ident() == main_thread().ident
        if self.watcher.compiled or sys.modules["torch"]._C._autograd._profiler_enabled() or not in_main:
            why = "the network is compiled" if self.watcher.compiled else "the script uses torch.profiler itself"
            self.watcher.lose("launches", why if in_main else "the script trains in another thread")
            return
        self._tracer, steps = Tracer(), list[StepNotes]()
        while len(steps) < self.session.plan.traced and (not steps or steps[0][1] - steps[0][0] < 2.0):
            yield True
            begin, end = self.watcher.later
            steps.append((begin, end, self.watcher.between(begin, end)))
        tracer, self._tracer = self._tracer, None
        self.profile.traced = True
        self.profile.parts = split_host(self.profile.regions, steps, tracer.stop(), self._train)

    def _counted(self) -> Tasks:
        from .tracing import Counting

        self._counting = Counting(self.watcher)
        try:
            self._counting.start()
            yield True
        finally:
            self._counting.stop()
        self._counting.fill(self.profile)

    # The answer -------------------------------------------------------------------------------------------------------

    def _fill_steps(self) -> None:
        watcher, profile, steps = self.watcher, self.profile, self.watcher.steps()
        self._train = train = train_keys([notes for _, _, notes in steps])
        split = [parts_of(notes, begin, end, train, watcher.compiled) for begin, end, notes in steps]
        means = {name: sum(parts[name] for parts in split) / len(split) for name in PARTS}
        profile.evaluation_s = means.pop(EVALUATION)
        profile.parts = profile.regions = means
        profile.steps = [[parts[name] for name in means] for parts in split]
        profile.loaders = [
            LoaderFacts(line, loader.num_workers, bool(loader.pin_memory))
            for key, (loader, line) in watcher.loaders.items()
            if key in train
        ]
        seconds = [sum(each) for each in profile.steps]
        mean = mean_interval(seconds, profile.workers or 1)
        batches = sum(n[1:3] == ("-", DATA) and n[3] in train for _, _, notes in steps for n in notes) / len(steps)
        mark = {
            LINE: f"one turn of line {self.session.line}" if self.session.line else "one call",
            STEPPED: type(watcher.optimizer).__name__,
            BATCH: "a batch",
        }
        profile.step = Step(
            mark.get(watcher.rank, ""), RANKS[watcher.rank], len(steps), sum(means.values()), mean.low, mean.high,
            batches, None, "", len(watcher.warm) - 1, next(iter(seconds_of(watcher.warm)), None), correlation(seconds),
        )  # fmt: skip
        profile.compiled = watcher.compiled
        try:
            self._describe()
        except Exception as error:
            watcher.lose("machine", error)

    def _describe(self) -> None:
        from ..devices import CPU
        from ..measure.disturbance import disturbed, look

        torch, profile = sys.modules["torch"], self.profile
        profile.machine, profile.torch, profile.threads = CPU.label, str(torch.__version__), torch.get_num_threads()
        if self._before is not None:
            profile.busy = "; ".join(flag.seen for flag in disturbed(self._before, look((), family=True)))

    def _finish(self) -> None:
        """Write the result; end the process, unless the script is to run to its end."""
        self.sampler.stop()
        self.profile.ended = "ended" if self.session.to_the_end else "stopped"
        self._write()
        if self.session.to_the_end:
            return self.watcher.restore()
        self.watcher.phase = "over"
        for task in (self._alone, self._foreach):
            try:
                task()
            except Exception as error:
                self.watcher.lose(task.__name__.strip("_"), error)
        self._write()
        switch_off(0)

    def _alone(self) -> None:
        """Time the loaders of the steps, with nobody computing, without the batches that they made in advance."""
        loaders = [loader for key, (loader, _) in self.watcher.loaders.items() if key in self._train]
        for loader, facts in zip(loaders, self.profile.loaders, strict=True):
            first, ends = loader.num_workers * (loader.prefetch_factor or 0) + 1, [time.perf_counter()]
            for _ in loader:
                ends.append(time.perf_counter())
                if len(ends) > first + 1 and (len(ends) > first + ALONE_BATCHES or ends[-1] - ends[first] > ALONE_S):
                    break
            ends = ends[min(first, len(ends) // 2) :]
            facts.alone_s = (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None

    def _foreach(self) -> None:
        """Count the launches of the optimizer as a GPU has it by default: one for many tensors."""
        from ..measure.work import watched

        groups = getattr(self.watcher.optimizer, "param_groups", ())
        groups = [each for each in groups if not each.get("foreach", True) and not each.get("fused")]
        if groups and self.profile.optimizer_launches:
            for group in groups:
                group["foreach"] = True
            with watched() as seen:
                self.watcher.optimizer.step()
            self.profile.optimizer_launches = min(seen.operations, self.profile.optimizer_launches)

    def _write(self) -> None:
        self.profile.lost = {**self.watcher.lost}
        Path(self.session.result).write_bytes(msgspec.json.encode(self.profile))

    # The look from outside --------------------------------------------------------------------------------------------

    def _look(self, seconds: float, frame: Any) -> bool:
        """Say where a script is that has no step yet; return whether to sample its lines."""
        phase = self.watcher.phase
        if phase == "timed" and self._before is None:
            self._before = sys.modules["gpubench.measure.disturbance"].look((), family=True)
        if phase != "warm" or self.watcher.rank < len(RANKS):
            return phase == "warm" or self._samples
        found = next(frames(frame), None)
        place = f"{found.f_code.co_name}(), {line_of(frame)}" if found else "an import"
        if seconds >= NO_STEP_S:
            self.refuse(f"no step within 10 minutes; it last was in {place}")
            switch_off(2)
        if seconds >= self._said_s + SAID_S:
            self._said_s = seconds
            print(f"gpubench profile: no step yet after {seconds:.0f} s: in {place}", file=sys.stderr, flush=True)
        return True

    def refuse(self, why: str, ended: str = "ended") -> None:
        """Write the reason why there is no answer."""
        self.profile.refusal, self.profile.ended = why, ended
        self._write()

    def close(self, failure: BaseException | None) -> None:
        """Take the answer from a script that has ended by itself, or refuse one."""
        self.sampler.stop()
        if self._tracer is not None:
            self._tracer.stop()
        if self.watcher.counting is not None:
            self._counting.stop()
        if self.watcher.phase == "over" and self.profile.step:
            return
        seen, children = self.watcher.salvage(), self.watcher.children
        if failure is not None and not (isinstance(failure, SystemExit) and not failure.code):
            *_, (frame, _) = traceback.walk_tb(failure.__traceback__)
            why = f"needs CUDA at {line_of(frame)}, and there is none here: .to(device) instead of .cuda()"
            cuda = any(words in str(failure) for words in NEEDS_CUDA)
            self.refuse(why if cuda else "the script failed before it was measured", "ended" if cuda else "failed")
        elif "torch" not in sys.modules:
            self.refuse("never imports torch")
        elif children and self.watcher.rank > RANKS.index("backward"):
            one = len(children) == 1
            who = f"{len(children)} process{'' if one else 'es'} that it starts do{'es' if one else ''} the training"
            self.refuse(f"{who} (at {children[0]}). Give one of them alone, for example --nproc 1")
        elif len(self.watcher.timed) > 2 and seen >= SALVAGED:
            self._fill_steps()
            self.watcher.lose("operators", "the script ended before they were counted")
            self.profile.ended = "ended"
            self._write()
        elif seen:
            self.refuse(f"ended after {seen} step{'s' * (seen > 1)}; at least {SALVAGED} are needed")
        else:
            self._refuse_without_step()

    def _refuse_without_step(self) -> None:
        seconds, loop, name = time.monotonic() - self._began_s, None, os.path.basename(self.path)
        why = (
            f"no step was found, so nothing was measured. It ran to its end in {seconds:.0f} s, without an optimizer, "
        )
        why += "backward, a DataLoader or a module."
        with contextlib.suppress(Exception):
            loop = busiest_loop(Path(self.path).read_text(encoding="utf-8"), self.sampler.turns)
        if loop:
            why += f" {loop[1]:.0%} of its time is in the loop at {name}:{loop[0]}: --step {loop[0]}"
        self.refuse(why)


def switch_off(code: int) -> NoReturn:
    """End this process without cleaning up, after its streams are flushed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Calls a function right after the script has imported torch, before the script takes names from it."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the spec of torch with its loader followed by the function."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), self._then())  # type: ignore[assignment,method-assign]
        return spec


def _code_of(script: Script) -> tuple[Any, dict[str, Any]]:
    """Return the code to run, and the names that Python gives to its module."""
    session, names = script.session, dict[str, Any](__spec__=None, __package__=None)
    sys.argv = list(session.words)
    if session.module:
        sys.path.insert(0, os.getcwd())
        _, spec, code = runpy._get_module_details(session.words[0])  # type: ignore[attr-defined]
        script.path = script.sampler.script = sys.argv[0] = spec.origin
        names = {"__spec__": spec, "__package__": spec.parent, "__loader__": spec.loader}
    else:
        sys.path.insert(0, os.path.dirname(os.path.realpath(script.path)))
        names["__loader__"] = loader = SourceFileLoader("__main__", script.path)
        code = compile(loader.get_data(script.path), script.path, "exec", dont_inherit=True)
    if session.line is not None:
        tree = marked(Path(script.path).read_text(encoding="utf-8"), session.line)
        if tree is None:
            script.refuse(f"--step {session.line}: no loop is there")
            raise SystemExit(2)
        setattr(builtins, MARK, script.watcher.turn)
        code = compile(tree, script.path, "exec", dont_inherit=True)
    return code, names | {"__file__": script.path, "__cached__": None, "__builtins__": builtins}


def run(session: Session) -> int:
    """Run the script, and return its exit code. Raises its SystemExit."""
    script, failure = Script(session), None
    if "torch" in sys.modules:
        script.hook()
    else:
        sys.meta_path.insert(0, _AfterTorch(script.hook))
    code, names = _code_of(script)
    main = types.ModuleType("__main__")
    vars(main).update(names)
    script.main, sys.modules["__main__"] = sys.modules["__main__"], main  # the old one stays alive
    try:
        exec(code, vars(main))
    except BaseException as error:
        failure = error
    script.close(failure)
    if isinstance(failure, SystemExit):
        raise failure
    if failure is not None:
        failure.__traceback__ = failure.__traceback__ and failure.__traceback__.tb_next  # without this frame
        sys.excepthook(type(failure), failure, failure.__traceback__)
    return int(failure is not None)


def main(words: Sequence[str]) -> int:
    """Run the session of a JSON text."""
    return run(msgspec.json.decode(words[0], type=Session))


if __name__ == "__main__":
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")
    sys.exit(main(sys.argv[1:]))
