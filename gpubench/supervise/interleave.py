"""Two environments measured in turn, A B B A …, on one machine.

Alternating keeps a drift of the machine, or an effect of being second, from looking like a change.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RunFileError, UsageError
from ..runfile.ledger import Event, assemble
from ..runfile.writer import write
from . import process
from .project import Project, project_options, read_project
from .sources import Checkout, differing_libraries, digests, shared_code
from .supervisor import Supervisor, Unable

_PYTHONS = [f"{env}/{part}" for env in (".tox/measure", ".venv") for part in ("bin/python", "Scripts/python.exe")]
_PROBE = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
_PATIENCE_S = 20.0
"""Seconds that a checkout's Python may take to say whether it can measure."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One side: its Python and folder, and the benchmark files that it runs there."""

    name: str
    interpreter: process.Interpreter
    paths: tuple[str, ...]
    source: str = ""
    """The file that names the paths; empty if they were given on the command line."""


def find_environment(name: str, text: str, paths: Sequence[str]) -> Environment:
    """Return the environment that ``text`` describes: a Python, or the folder of a checkout.

    A checkout's code comes first on the import path. Its benchmark files are used if it has any, and the Python of its
    ``.tox/measure`` or ``.venv`` if that can measure. A Python measures the benchmarks of the project in the working
    folder. Raises UsageError if ``text`` is neither.
    """
    target, suite = Path(text), (str(process.suite()),)
    if target.is_dir():
        folder = target.resolve()
        python = next((path for part in _PYTHONS if _can_measure(path := str(folder / part))), sys.executable)
        imports = tuple(str(path) for path in (folder, folder / "src") if path.is_dir())
        interpreter = process.Interpreter(python, folder, imports, records_modules=True)
        if paths:
            return Environment(name, interpreter, tuple(_file(path, folder) for path in paths))
        project = read_project(folder)
        if not project.paths and _holds_results(folder):
            raise UsageError(f"{name}: {text}: holds results files and no code: leave out --interleave")
        return Environment(name, interpreter, project.paths or suite, project.source)
    found = shutil.which(text)
    if found is None:
        how = f"for a commit, git worktree add ../{name} {text} makes the folder ../{name}"
        raise UsageError(f"{name}: {text}: neither a Python that can be started nor the folder of a checkout; {how}")
    # not resolved: a virtual environment's Python is a link, whose location identifies the environment
    project = Project() if paths else read_project(Path.cwd(), upward=True)
    files = tuple(_file(path, Path.cwd()) for path in paths) or project.paths or suite
    return Environment(name, process.Interpreter(os.path.abspath(found), records_modules=True), files, project.source)


def _holds_results(folder: Path) -> bool:
    """Whether a folder is no checkout: it contains JSON files, but no Python."""
    code = ("*.py", "*/*.py", "*/*/*.py", "pyproject.toml", ".git")
    return not any(next(folder.glob(sign), None) for sign in code) and next(folder.glob("**/*.json"), None) is not None


def _can_measure(python: str) -> bool:
    """Whether a Python finds what a measuring process imports: a checkout's environment may hold only tox. Nothing is
    imported, which would take seconds for torch. Raises UsageError if the Python hangs."""
    command = [python, "-c", _PROBE, "pytest", "pytest_benchmark", "torch"]
    try:
        quiet = subprocess.DEVNULL  # what isn't a Python may print without end
        done = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_PATIENCE_S, check=False)
    except OSError:
        return False
    except subprocess.TimeoutExpired:
        raise UsageError(f"{python}: doesn't answer within {_PATIENCE_S:g} s: repair or remove it") from None
    return done.returncode == 0


def _file(text: str, folder: Path) -> str:
    name, separator, test = text.partition("::")
    for path in (folder / name, Path(name).absolute()):
        if path.exists():
            return f"{path}{separator}{test}"
    raise UsageError(f"{text}: no such file or folder, neither here nor in {folder}")


class SameCode(UsageError):
    """Raised if base and new are the same code although they were to be two versions."""


@contextlib.contextmanager
def _of_another_version(side: Environment) -> Iterator[None]:
    """Raise UsageError for events that only another version of gpubench can have written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RunFileError) as error:
        why = f"events that this one can't read ({type(error).__name__}: {error})"
        raise UsageError(f"{side.name}: its gpubench writes {why}: install one version on both sides") from None


class OutOfTime(Exception):
    """Raised when measuring has to end before a pair is complete."""


class _Collected(Exception):
    """Raised to end a process that has reported what it would measure."""


@dataclass
class _Clock:
    """The seconds that each benchmark takes in a measuring process, by full name, and those of the rest of the
    process."""

    now: Callable[[], float]
    cases: dict[str, float] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    estimated_s: float = 0.0
    rest_s: float = 0.0

    def __post_init__(self) -> None:
        self._began = self._case_began = self.now()

    def note(self, event: Event) -> None:
        """Take an event of the process into account."""
        if event["event"] == "session":
            self.names, self.estimated_s = list(event["cases"]), event.get("estimated_s") or 0.0
        elif event["event"] == "start":
            self._case_began = self.now()
        elif event["event"] == "end":
            self.cases[event["fullname"]] = self.now() - self._case_began
        self.rest_s = self.now() - self._began - sum(self.cases.values())


@dataclass
class Interleave:
    """The turns of two environments; each turn writes a run file into ``base`` or ``new`` in ``folder``."""

    folder: Path
    base: Environment
    new: Environment
    options: Sequence[str]
    deadline_s: float
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    interrupted: bool = False
    collected: dict[str, list[str]] = field(default_factory=dict)
    """Full names of the tests that each side would measure."""
    stop_at: float = math.inf
    """When measuring ends, by the clock ``now``: no benchmark begins later."""

    def __post_init__(self) -> None:
        self._clocks: dict[str, _Clock] = {}
        self._modules: dict[str, dict[str, str]] = {self.base.name: {}, self.new.name: {}}
        self._digests: dict[str, str] = {}

    def collect(self) -> None:
        """Determine what each side would measure, without measuring, and on how many threads: all turns use the fewest
        that a side chose, since a machine may become busy or idle between them. Raises UsageError if a side can't
        measure, or if both are the same code."""
        threads: list[int] = []
        notices: dict[str, None] = {}
        for side in (self.base, self.new):
            clock = self._clocks[side.name] = _Clock(self.now)

            def note(event: Event, clock: _Clock = clock) -> None:
                clock.note(event)
                if event["event"] == "session":
                    cases = (event.get("identities") or {}).values()  # an older gpubench may lack any of these
                    if any(case.get("implementation") for case in cases) and event["fingerprint"].get("threads"):
                        threads.append(event["fingerprint"]["threads"])  # a plain suite keeps its own number
                    notices.update(dict.fromkeys(event.get("notices") or ()))
                    raise _Collected

            with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_Collected):
                self.interrupted |= self._start(side, Path(folder), (), note).interrupted
            self.collected[side.name] = clock.names
            self._require_unchanged(side)
        if threads:
            self.options = [*self.options, f"--gpubench-threads={min(threads)}"]
        for notice in notices:
            self.say(notice)
        self._require_own_code()

    @property
    def libraries(self) -> list[str]:
        """How the versions of installed libraries differ between the sides."""
        return differing_libraries(self._modules[self.base.name], self._modules[self.new.name])

    def _require_own_code(self) -> None:
        """Raise SameCode if a side imports the other's code."""
        base, new = map(self._checkout, (self.base, self.new))
        folders = [side.interpreter.folder for side in (self.base, self.new)]
        pythons = [side.interpreter.python for side in (self.base, self.new)]
        alike = base.modules and base.modules == new.modules and len(set(map(os.path.realpath, pythons))) == 1
        if folders == [None, None] and pythons[0] != pythons[1] and alike:
            both = f"{pythons[0]} and {pythons[1]} are one environment"
            raise SameCode(f"{both}: give one of them twice to see what this machine can detect in unchanged code")
        if None not in folders and base.folder != new.folder and (words := shared_code(base, new)):
            ours = os.path.relpath(base.folder)
            how = f"python3 -m venv {ours}/.venv && {ours}/.venv/bin/pip install pytest-gpubench {base.folder}"
            raise SameCode(f"{words}: install each in an environment of its own: {how}; and the same for new")

    def _require_unchanged(self, side: Environment) -> None:
        """Raise UsageError if a side's code isn't what it was when it was first loaded."""
        for file, digest in digests(self._checkout(side)).items():
            if self._digests.setdefault(file, digest) != digest:
                raise UsageError(f"{side.name}: {file} has changed while it was measured")

    def _checkout(self, side: Environment) -> Checkout:
        return Checkout(side.interpreter.folder or Path.cwd(), side.paths, self._modules[side.name])

    def pair_s(self, chosen: Mapping[str, Collection[str]] | None = None) -> float:
        """Return the seconds that a pair of turns takes for the ``chosen`` tests (by default all): by the latest turns,
        or else by the estimate."""
        total_s = 0.0
        for side, clock in self._clocks.items():
            names = self.collected[side] if chosen is None else chosen[side]
            total_s += clock.rest_s + (sum(clock.cases.get(name, 0.0) for name in names) or clock.estimated_s)
        return total_s

    def pair(
        self, number: int, stage: str, chosen: Mapping[str, Collection[str]] | None = None
    ) -> tuple[Path, Path] | None:
        """Measure the ``chosen`` tests (by default all) on both sides; return the run files, or None if it was
        interrupted. Odd pairs begin with new. Raises UsageError if an environment can't measure, OutOfTime at
        ``stop_at``."""
        sides = (self.base, self.new)
        if number and not (self.folder / "turns").is_dir():
            raise UsageError(f"{self.folder}: the folder of results has gone")
        found: dict[str, Any] = {}
        for side in sides if number % 2 == 0 else reversed(sides):
            wanted = self.collected[side.name] if chosen is None else chosen[side.name]
            left_out = [name for name in self.collected[side.name] if name not in wanted]
            found[side.name] = self._turn(side, number, left_out)
            if self.interrupted:
                return None
        self._require_own_code()
        base, new = (self.folder / side.name / f"{number:03d}.json" for side in sides)
        try:
            for side, target in zip(sides, (base, new), strict=True):
                target.parent.mkdir(parents=True, exist_ok=True)
                found[side.name]["gpubench"]["stage"] = stage
                write(target, found[side.name])
        except BaseException as error:
            for target in (base, new):  # an incomplete pair isn't kept
                with contextlib.suppress(OSError):
                    target.unlink()
            if isinstance(error, OSError):
                raise UsageError(f"{self.folder}: can't write there: {error.strerror or error}") from None
            raise
        return base, new

    def _turn(self, side: Environment, number: int, left_out: Sequence[str]) -> Any:
        folder = self.folder / "turns" / f"{number:03d}-{side.name}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"{folder}: can't write there: {error.strerror or error}") from None
        clock = _Clock(self.now)

        def note(event: Event) -> None:
            clock.note(event)
            if event["event"] == "start" and self.now() > self.stop_at:
                raise OutOfTime

        if self.now() > self.stop_at:
            raise OutOfTime
        supervisor = self._start(side, folder, [f"--deselect={name}" for name in left_out], note)
        self.interrupted = supervisor.interrupted
        clock.cases = self._clocks[side.name].cases | clock.cases
        self._clocks[side.name] = clock
        if self.interrupted:
            return None
        self._require_unchanged(side)
        with _of_another_version(side):
            return assemble(supervisor.events)

    def _start(
        self, side: Environment, folder: Path, more: Sequence[str], on_event: Callable[[Event], None]
    ) -> Supervisor:
        """Return a run of one process on that side, once it has ended. Raises UsageError if it measured nothing."""
        root = project_options(side.paths, side.interpreter.folder or Path.cwd(), self.options)

        def note(event: Event) -> None:
            with _of_another_version(side):
                self._modules[side.name] |= {
                    str(name): str(file) for name, file in (event.get("modules") or {}).items()
                }
                on_event(event)

        terms = [*root, *self.options, *more], 1, self.deadline_s, note
        supervisor = Supervisor(folder, side.paths, *terms, interpreter=side.interpreter)
        try:
            supervisor.measure()
        except Unable as error:
            if not any(event["event"] == "end" for event in supervisor.events):
                log = folder / "run.log"
                where = f": see {log}" if folder.is_relative_to(self.folder) else ""  # collecting has a temporary one
                raise UsageError(f"{side.name}: {side.interpreter.python} can't measure: {error}{where}") from None
        except OSError as error:  # its folder or its Python has gone
            raise UsageError(f"{side.name}: {error.filename or ''}: {error.strerror or error}") from None
        return supervisor
