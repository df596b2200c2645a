"""Two environments measured in turn, A B B A …, on one machine, until it is enough.

So a drift of the machine, or a habit of the second turn, doesn't pass for a change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..runfile.ledger import Event, assemble
from ..runfile.writer import write
from . import process
from .progress import ignored_options
from .project import Project, read_project, root_option
from .supervisor import Supervisor, Unable

_PYTHONS = [f"{env}/{part}" for env in (".tox/measure", ".venv") for part in ("bin/python", "Scripts/python.exe")]
_PROBE = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"


@dataclass(frozen=True, slots=True)
class Environment:
    """One side: where it runs, and the benchmark files it runs there."""

    name: str
    interpreter: process.Interpreter
    paths: tuple[str, ...]
    source: str = ""
    """Which file names the paths, if nobody else did."""


def find_environment(name: str, text: str, paths: Sequence[str], builtin: bool = False) -> Environment:
    """``text`` is a Python to measure with, or the folder of a checkout: its code comes first on the import path, its
    benchmark files are used where it has them, and the Python of its ``.tox/measure`` or ``.venv`` where that can
    measure. A Python measures the benchmarks of the project here. ``builtin`` measures the suite. Raises UsageError.
    """
    target, suite = Path(text), (str(process.suite()),)
    if target.is_dir():
        folder = target.resolve()
        python = next((path for part in _PYTHONS if _can_measure(path := str(folder / part))), sys.executable)
        imports = tuple(str(path) for path in (folder, folder / "src") if path.is_dir())
        interpreter = process.Interpreter(python, folder, imports)
        if paths:
            return Environment(name, interpreter, tuple(_file(path, folder) for path in paths))
        project = Project() if builtin else read_project(folder)
        if not builtin and not project.paths and (folder / "benchmarks").is_dir():  # fixtures may be anybody's
            project = Project((str(folder / "benchmarks"),))
        if not project.paths and not builtin and _holds_results(folder):
            raise UsageError(f"{name}: {text}: holds results files and no code: leave out --interleave")
        return Environment(name, interpreter, project.paths or suite, project.source)
    found = shutil.which(text)
    if found is None:
        raise UsageError(f"{name}: {text}: neither a Python that can be started nor the folder of a checkout")
    # not resolved: a virtual environment's Python is a link, and is known by where the link lies
    project = Project() if builtin or paths else read_project(Path.cwd(), upward=True)
    files = tuple(_file(path, Path.cwd()) for path in paths) or project.paths or suite
    return Environment(name, process.Interpreter(os.path.abspath(found)), files, project.source)


def _holds_results(folder: Path) -> bool:
    """Whether it is no checkout: there are JSON files in it, and no Python."""
    code = ("*.py", "*/*.py", "*/*/*.py", "pyproject.toml", ".git")
    return not any(next(folder.glob(sign), None) for sign in code) and next(folder.glob("**/*.json"), None) is not None


def _can_measure(python: str) -> bool:
    """Whether it finds what a measuring process imports: a checkout's environment may hold only tox. Nothing is
    imported, which for torch takes seconds."""
    command = [python, "-c", _PROBE, "pytest", "pytest_benchmark", "torch"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60.0, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _file(text: str, folder: Path) -> str:
    name, separator, test = text.partition("::")
    for path in (folder / name, Path(name).absolute()):
        if path.exists():
            return f"{path}{separator}{test}"
    raise UsageError(f"{text}: no such file or folder, neither here nor in {folder}")


class _Collected(Exception):
    """Ends a process that has said what it would measure."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names


@dataclass
class Interleave:
    """The turns of two environments; ``base`` and ``new`` in ``folder`` get a run file each turn."""

    folder: Path
    base: Environment
    new: Environment
    options: Sequence[str]
    deadline_s: float
    say: Callable[[str], None]
    interrupted: bool = False

    def collect(self) -> dict[str, list[str]]:
        """By side, the tests that it would measure; nothing is measured. Raises UsageError where a side can't
        measure."""
        return {side.name: self._collected(side) for side in (self.base, self.new)}

    def _collected(self, side: Environment) -> list[str]:
        def note(event: Event) -> None:
            if event["event"] == "session":
                if ignored := ignored_options(event):
                    self.say(f"{side.name}: {ignored}")
                raise _Collected(event["cases"])

        with tempfile.TemporaryDirectory() as folder:
            try:
                self.interrupted |= self._start(side, Path(folder), note).interrupted
            except _Collected as collected:
                return collected.names
        return []

    def measure(self, most: int, budget_s: float, enough: Callable[[Path, Path], bool]) -> int:
        """Pairs measured: at most ``most``, no further one begun that wouldn't end within the budget, and none after
        ``enough`` said so of the latest pair's run files. Raises UsageError where an environment can't measure."""
        began = time.monotonic()
        for number in range(most):
            started = time.monotonic()
            try:
                files = self._pair(number)
            except UsageError as error:
                if not number:
                    raise
                self.say(f"{error}; judged by the {number} complete pairs")
                return number
            if files is None:
                return number
            if enough(*files):
                return number + 1
            took = time.monotonic() - started
            if time.monotonic() - began + took > budget_s:
                self.say(f"the budget of {budget_s:g} s is spent")
                return number + 1
        return most

    def _pair(self, number: int) -> tuple[Path, Path] | None:
        """The run files of one pair, or None if it was interrupted."""
        sides = (self.base, self.new)
        files = {}
        for side in sides if number % 2 == 0 else reversed(sides):
            files[side.name] = self._turn(side, number)
            if self.interrupted:
                return None
        return files[self.base.name], files[self.new.name]

    def _turn(self, side: Environment, number: int) -> Path:
        folder = self.folder / "turns" / f"{number:03d}-{side.name}"
        target = self.folder / side.name / f"{number:03d}.json"
        try:
            folder.mkdir(parents=True)
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: can't write there: {error.strerror or error}") from None
        supervisor = self._start(side, folder, lambda event: None)
        self.interrupted = supervisor.interrupted
        if any(event["event"] == "session" for event in supervisor.events):
            write(target, assemble(supervisor.events))
        return target

    def _start(self, side: Environment, folder: Path, on_event: Callable[[Event], None]) -> Supervisor:
        """A run of one process of that side, once it has ended."""
        root = root_option(side.paths, side.interpreter.folder or Path.cwd(), self.options)
        options = [*root, *self.options]
        arguments = folder, side.paths, options, 1, self.deadline_s, on_event
        supervisor = Supervisor(*arguments, interpreter=side.interpreter)
        try:
            supervisor.measure()
        except Unable as error:
            if not any(event["event"] == "end" for event in supervisor.events):
                log = folder / "run.log"
                where = f": see {log}" if folder.is_relative_to(self.folder) else ""  # it collects in a temporary one
                raise UsageError(f"{side.name}: {side.interpreter.python} can't measure: {error}{where}") from None
        return supervisor
