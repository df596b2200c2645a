"""The process that runs a script as ``__main__`` and watches its steps: ``python -P -m gpubench.profiling.script``.

The result is written after each phase. A script that is measured ends as if switched off, after its streams are
flushed: an exception would be caught by its ``except``, and would run its ``finally``.
"""

from __future__ import annotations

import _thread
import ast
import builtins
import contextlib
import importlib.util
import json
import os
import re
import runpy
import sys
import time
import traceback
import types
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from statistics import fmean
from threading import get_ident, main_thread
from typing import Any, NoReturn

import msgspec

from ..devices import CPU
from ..errors import UsageError
from ..measure.disturbance import Counters, disturbed, read_counters
from ..runfile.quantities import counted
from .profile import DATA, PYTHON, LoaderFacts, Profile, Step, StepNotes, correlation, mean_interval
from .watcher import LINE, RANKS, SALVAGED, STEPPED, WENT_BACK, Plan, Watcher, frames, line_of

ALONE_BATCHES, ALONE_S = 25, 3.0
"""Batches and seconds for which a loader runs alone."""
SAMPLES, SAMPLED_STEPS, BRIEF_S, LONG_S = 60, 5, 0.005, 0.05
"""Samples of lines that are enough, and steps to take them in; seconds between two samples of a step, and of a script
that has no step yet."""
NO_STEP_S, SAID_S = 600.0, 30.0
"""Seconds without a step after which a script is given up, and between two lines that say where it is."""

ENDED_EARLY = "the script ended before its operators were counted; --steps 10 leaves steps for that"
FAILURES = {
    "not compiled with CUDA|No CUDA GPUs|no NVIDIA driver|CUDA is not available":
        "needs CUDA at {}, and there is none here: .to(device) instead of .cuda()",
    "EOF when reading a line": "asks for input at {}, and there is none: give it by a pipe",
}  # fmt: skip
"""Patterns of the errors that a user's change of the script or of its call removes, and the change."""
MARK = "__gpubench_step__"
"""The function that a marked loop calls at the begin of each turn."""


class Script:
    """A script that runs, with its ``words``, its watcher, and the ``result`` so far, which is a file.

    A thread samples the lines of the script: it names a line, and gives no shares, since it prefers calls that release
    the interpreter's lock.
    """

    def __init__(
        self, result: str, words: list[str], *, module: bool = False, to_the_end: bool = False, line: int | None = None,
        **plan: Any,
    ) -> None:  # fmt: skip
        self._result, self._words, self._module, self._to_the_end, self._line = result, words, module, to_the_end, line
        self._path, self.profile, self._plan = os.path.abspath(words[0]), Profile(words[0]), Plan(**plan)
        self._tasks, self._process = self._later(), os.getpid()
        self._before: Counters | None = None
        self.watcher = Watcher(self._plan, lambda: next(self._tasks, False))
        self.main: Any = None
        self._began_s, self._said_s = time.monotonic(), 0.0
        self._thread, self._samples, self._is_sampled = get_ident(), list[tuple[str, str]](), True
        self._turns: Counter[int] = Counter()
        _thread.start_new_thread(self._sample, ())

    # The phases after the timed steps ---------------------------------------------------------------------------------

    def _later(self) -> Generator[bool, None, None]:
        """Go through the phases, each over some steps; yield true for each step that is needed."""
        with self.watcher.losing("phases"):
            self._fill_steps()
            self._write()
            for task in (self._sampled, self._traced, self._counted):
                with self.watcher.losing(task.__name__.strip("_")):
                    yield from task()
        self._finish()

    def _sampled(self) -> Iterator[bool]:
        until_s, self._samples, self._thread = time.perf_counter() + self._plan.sampled_s, [], self.watcher.thread
        for _ in range(SAMPLED_STEPS):
            if time.perf_counter() < until_s and len(self._samples) < SAMPLES:
                yield True
        self._is_sampled, counts = False, Counter(sample for sample in self._samples if sample[1])
        self.profile.lines = {region: line for (region, line), _ in reversed(counts.most_common())}

    def _traced(self) -> Iterator[bool]:
        from .tracing import Tracer, split_host

        obstacles = {
            "the script trains in another thread": get_ident() != main_thread().ident,
            "the network is compiled": self.watcher.compiled,
            "the script uses torch.profiler itself": sys.modules["torch"]._C._autograd._profiler_enabled(),
        }
        for why in (why for why, holds in obstacles.items() if holds):
            self.watcher.lose("launches", why)
            return
        tracer, steps = Tracer(), list[StepNotes]()
        try:
            while len(steps) < self._plan.traced and (not steps or steps[0][1] - steps[0][0] < 2.0):
                yield True
                steps.append(self.watcher.between(*self.watcher.later))
        finally:
            spans = tracer.stop()
        self.profile.traced = True
        length = fmean(len(notes) for _, _, notes in self.watcher.steps())
        self.profile.parts = split_host(self.profile.regions, length, steps, spans, self._train)

    def _counted(self) -> Iterator[bool]:
        from .tracing import Counting

        with Counting(self.watcher) as counting:
            yield True
        counting.fill(self.profile)

    # The answer -------------------------------------------------------------------------------------------------------

    def _fill_steps(self) -> None:
        watcher, profile, steps, torch = self.watcher, self.profile, self.watcher.steps(), sys.modules["torch"]
        self._train = train = profile.split(steps, watcher.compiled)
        loaders = [(loader, line) for key, (loader, line) in watcher.loaders.items() if key in train]
        profile.loaders = [LoaderFacts(line, each.num_workers, bool(each.pin_memory)) for each, line in loaders]
        seconds = [sum(each) for each in profile.steps]
        mean = mean_interval(seconds, profile.workers or 1)
        batches = sum(n[1:3] == ("-", DATA) and n[3] in train for _, _, notes in steps for n in notes) / len(steps)
        turn = f"one turn of line {self._line}" if self._line else "one call"
        mark = {LINE: turn, STEPPED: type(watcher.optimizer).__name__}.get(watcher.rank, "")
        profile.step = Step(
            mark, RANKS[watcher.rank], len(steps), sum(profile.parts.values()), mean.low, mean.high, batches
        )
        profile.step.warm, profile.step.rho = len(watcher.warm) - 1, correlation(seconds)
        profile.compiled = watcher.compiled
        with watcher.losing("machine"):
            profile.machine, profile.torch, profile.threads = CPU.label, str(torch.__version__), torch.get_num_threads()
            if self._before is not None:
                flags = disturbed(self._before, read_counters((), family=True))
                profile.busy = "; ".join(flag.seen for flag in flags)

    def _finish(self) -> None:
        """Write the result; end the process, unless the script is to run to its end."""
        self._is_sampled = False
        self.profile.ended = "ended" if self._to_the_end else "stopped"
        if self.profile.step is None:
            self.profile.refusal = f"its steps can't be told apart ({self.watcher.lost.get('phases')})"
        self._write()
        if self._to_the_end:
            return self.watcher.restore()
        self.watcher.phase = "over"
        for task in (self._alone, self._foreach):
            with self.watcher.losing(task.__name__.strip("_")):
                task()
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
        groups = [each for each in groups if each.get("foreach", True) is None and not each.get("fused")]
        if groups and self.profile.optimizer_launches:
            for group in groups:
                group["foreach"] = True
            with watched() as seen:
                self.watcher.optimizer.step()
            self.profile.optimizer_launches = min(seen.operations, self.profile.optimizer_launches)

    def _write(self) -> None:
        self.profile.lost = {**self.watcher.lost}
        Path(self._result).write_bytes(msgspec.json.encode(self.profile))

    # The look from outside --------------------------------------------------------------------------------------------

    def _sample(self) -> None:
        with self.watcher.losing("lines"):
            while self._is_sampled:
                phase = self.watcher.phase
                time.sleep(BRIEF_S if phase == "later" else LONG_S)
                if phase == "timed" and self._before is None:
                    self._before = read_counters((), family=True)
                frame = sys._current_frames().get(self._thread) if self._is_sampled else None
                if phase == "warm" and self.watcher.rank == len(RANKS):
                    self._say_place(time.monotonic() - self._began_s, frame)
                if phase != "timed" and self._is_sampled:
                    own = [each for each in frames(frame) if each.f_code.co_filename == self._path]
                    self._turns.update(each.f_lineno for each in own[-1:])
                    region = next(iter(self.watcher.stacks[self._thread]), PYTHON)
                    self._samples.append((region, line_of(frame)))

    def _say_place(self, seconds: float, frame: Any) -> None:
        """Say where a script is that has no step yet, or give it up unless it is to run to its end."""
        own = next(frames(frame), None)
        place = f"{own.f_code.co_name}(), {line_of(frame)}" if own else "an import"
        if seconds >= NO_STEP_S and not self._to_the_end:
            self._refuse(f"no step within 10 minutes; it last was in {place}")
            switch_off(2)
        if seconds >= self._said_s + SAID_S:
            self._said_s = seconds
            print(f"gpubench profile: no step yet after {seconds:.0f} s: in {place}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """End the sampling, and a phase that has begun."""
        self._is_sampled = False
        self._tasks.close()

    def close(self, failure: BaseException | None) -> None:
        """Take the answer from a script that has ended by itself, or refuse one."""
        self.stop()
        if os.getpid() != self._process or self.profile.refusal or (self.profile.step and self.watcher.phase == "over"):
            return  # a forked child, or a script that has its answer
        seen, children = self.watcher.salvage(), self.watcher.children
        if failure is not None and not (isinstance(failure, SystemExit) and not failure.code):
            self._refuse_failure(failure)
        elif "torch" not in sys.modules:
            self._refuse("never imports torch")
        elif children and self.watcher.rank > WENT_BACK:
            who = f"{counted(len(children), 'process')} that it starts {'does' if len(children) == 1 else 'do'}"
            self._refuse(f"{who} the training (at {children[0]}). Give one of them alone, for example --nproc 1")
        elif len(self.watcher.timed) > 2 and seen >= SALVAGED:
            self._fill_steps()
            self.watcher.lose("operators", ENDED_EARLY)
            self.profile.ended = "ended"
            self._write()
        elif seen:
            self._refuse(f"ended after {counted(seen, 'step')}; at least {SALVAGED} are needed")
        else:
            why = f"It ran to its end in {time.monotonic() - self._began_s:.0f} s, without an optimizer, backward, a"
            why = f"no step was found, so nothing was measured. {why} DataLoader or a module."
            with contextlib.suppress(Exception):
                if loop := busiest_loop(Path(self._path).read_bytes(), self._turns):
                    place = f"{os.path.basename(self._path)}:{loop[0]}"
                    why += f" {loop[1]:.0%} of its time is in the loop at {place}: --step {loop[0]}"
            self._refuse(why)

    def _refuse_failure(self, failure: BaseException) -> None:
        """Refuse a script that has raised an exception, or has ended itself with an exit code."""
        *_, (frame, _) = traceback.walk_tb(failure.__traceback__)
        for pattern, advice in FAILURES.items():
            if re.search(pattern, str(failure)):
                return self._refuse(advice.format(line_of(frame)))
        hint = f": words for it stand behind its name, as in gpubench profile {self._words[0]} --data DIR"
        how, code = ("ended itself", failure.code) if isinstance(failure, SystemExit) else ("failed", None)
        self._refuse(f"the script {how} before it was measured{hint * (code == 2)}", "failed")

    def _refuse(self, why: str, ended: str = "ended") -> None:
        self.profile.refusal, self.profile.ended = why, ended
        self._write()

    def run(self) -> None:
        """Run the script as ``__main__``, or its loop with a mark at the line that the user named. Raises its
        exceptions, and SystemExit if no loop is at that line."""
        names = dict[str, Any](__spec__=None, __package__=None, __cached__=None, __builtins__=builtins)
        sys.argv = list(self._words)
        if self._module:
            sys.path.insert(0, os.getcwd())
            _, spec, code = runpy._get_module_details(self._words[0])  # type: ignore[attr-defined]
            self._path = sys.argv[0] = spec.origin
            names |= {"__spec__": spec, "__package__": spec.parent, "__loader__": spec.loader}
        else:
            sys.path.insert(0, os.path.dirname(os.path.realpath(self._path)))
            names["__loader__"] = loader = SourceFileLoader("__main__", self._path)
            code = loader.source_to_code(loader.get_data(self._path), self._path)
        if self._line is not None:
            tree = marked(Path(self._path).read_bytes(), self._line)
            if tree is None:
                self._refuse(f"--step {self._line}: no loop is there")
                raise SystemExit(2)
            setattr(builtins, MARK, self.watcher.turn)
            code = compile(tree, self._path, "exec", dont_inherit=True)
        module = types.ModuleType("__main__")
        vars(module).update(names, __file__=self._path)
        self.main, sys.modules["__main__"] = sys.modules["__main__"], module  # the old one stays alive
        exec(code, vars(module))


def _loops(tree: ast.Module) -> dict[ast.For | ast.While | ast.AsyncFor, range]:
    """Return the loops with their lines, outer loops first."""
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While | ast.AsyncFor))
    return {node: range(node.lineno, (node.end_lineno or 0) + 1) for node in loops}


def busiest_loop(source: str | bytes, turns: Counter[int]) -> tuple[int, float] | None:
    """Return the line of the innermost loop of a script that holds nearly all samples, and its share of them."""
    total, lines_of = sum(turns.values()) or 1, _loops(ast.parse(source)).values()
    shares = [(lines[0], sum(n for line, n in turns.items() if line in lines) / total) for lines in lines_of]
    return next((loop for loop in reversed(shares) if loop[1] > 0.8), None)


def marked(source: str | bytes, line: int) -> ast.Module | None:
    """Return the script with a mark in the innermost loop at a line; None if no loop is there."""
    tree = ast.parse(source)
    bodies = [node.body for node, lines in _loops(tree).items() if line in lines]
    if not bodies:
        return None
    bodies[-1].insert(0, ast.copy_location(ast.parse(f"{MARK}()").body[0], bodies[-1][0]))
    return ast.fix_missing_locations(tree)


def switch_off(code: int) -> NoReturn:
    """End this process without cleaning up, after its streams are flushed, also those that a script has wrapped."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    os._exit(code)


def _after_torch(then: Callable[[], None]) -> None:
    """Call a function right after the script has imported torch, before the script takes names from it."""

    def find_spec(name: str, *_: Any) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(finder)
        spec: Any = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: Any) -> None:
                execute(module)
                then()

            spec.loader.exec_module = executed
        return spec

    finder: Any = types.SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)


def main(words: Sequence[str]) -> int:
    """Run the script of a JSON text, the arguments of :class:`Script`; return the exit code. Raises its SystemExit."""
    script, failure = Script(**json.loads(words[0])), None
    script.watcher.install() if "torch" in sys.modules else _after_torch(script.watcher.install)
    try:
        script.run()
    except BaseException as error:
        failure = error
    script.close(failure)
    if isinstance(failure, SystemExit):
        raise failure
    if failure is not None:
        while failure.__traceback__ and failure.__traceback__.tb_frame.f_code.co_filename == __file__:
            failure.__traceback__ = failure.__traceback__.tb_next  # without our frames
        sys.excepthook(type(failure), failure, failure.__traceback__)
    return int(failure is not None)


def profile(step: Callable[[], Any], /, *, steps: int = 30, gpus: Sequence[str] = ()) -> Profile:
    """Print and return the profile of a function that makes one step: its parts on this CPU, and its time on GPUs.

    ``step`` is called without arguments: some times to warm up, ``steps`` times to be timed, then a few times to be
    traced and counted. ``gpus`` are names of GPUs, or results files of them. Raises UsageError for fewer than 5 steps
    or an unknown GPU; an exception of the function ends the profile.
    """
    from .profile_answer import cards_of, complete, screen

    if steps < 5:
        raise UsageError(f"steps must be 5 or more, not {steps}")
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")
    cards, name = cards_of(gpus), getattr(step, "__name__", "step")
    script = Script(os.devnull, [f"{name}()"], to_the_end=True, steps=steps, steps_s=0.0)
    script.watcher.install()
    try:
        while script.watcher.phase != "over":
            script.watcher.turn()
            step()
    finally:
        script.stop()
        script.watcher.restore()
    complete(script.profile, cards)
    print("\n".join(screen(script.profile)))
    return script.profile


if __name__ == "__main__":
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")
    sys.exit(main(sys.argv[1:]))
