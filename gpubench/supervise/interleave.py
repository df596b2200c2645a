"""Two environments measured in turn, A B B A …, on one machine.

Alternating keeps a drift of the machine, or an effect of being second, from looking like a change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from ..errors import RunFileError, UsageError
from ..runfile.ledger import Event, assemble
from ..runfile.quantities import listed
from ..runfile.writer import write
from . import process
from .child import INSTALLED, is_installed
from .project import Project, project_options, read_project
from .supervisor import Supervisor, Unable

_PYTHONS = ".tox/measure/bin/python", ".venv/bin/python"
_PROBE = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
_NO_PEAKS = "--gpubench-no-ceilings"
"""The option of all turns: peaks take seconds for each device, and no verdict needs them."""
_PATIENCE_S = 20.0
"""Seconds that a checkout's Python may take to say whether it can measure."""
_NO_SOURCES = {*INSTALLED, "__pycache__", "node_modules", "build", "dist"}
_DEPTH = 5
"""Folders below a checkout in which a package's source is searched."""
_NAME = re.compile(r"""(?:^|\()\s*name\s*=\s*["']?([\w.-]+)""", re.MULTILINE)
"""A distribution's name in pyproject.toml, setup.cfg or setup.py."""

Modules = Mapping[str, str]
"""The file of each module by its dotted name."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One side: its Python and folder, and the benchmark files that it runs there."""

    name: str
    interpreter: process.Interpreter
    paths: tuple[str, ...]
    source: str = ""
    """The file that names the paths; empty if they were given on the command line."""

    @property
    def folder(self) -> Path:
        """The folder in which the side is measured."""
        return self.interpreter.folder or Path.cwd()


def find_environment(name: str, text: str, paths: Sequence[str]) -> Environment:
    """Return the environment that ``text`` describes: a Python, which measures the benchmarks of the project in the
    working folder, or the folder of a checkout. A checkout's code comes first on the import path; its benchmark files
    are used if it has any, and the Python of its ``.tox/measure`` or ``.venv`` if that can measure. Raises UsageError
    if ``text`` is neither."""
    folder = Path(text).resolve() if Path(text).is_dir() else None
    if folder:
        python = next((path for part in _PYTHONS if _can_measure(path := str(folder / part))), sys.executable)
        imports = tuple(str(path) for path in (folder, folder / "src") if path.is_dir())
        interpreter = process.Interpreter(python, folder, imports, records_modules=True)
    elif found := shutil.which(text):
        # not resolved: a virtual environment's Python is a link, whose location identifies the environment
        interpreter = process.Interpreter(os.path.abspath(found), records_modules=True)
    else:
        how = f"for a commit, git worktree add ../{name} {text} makes the folder ../{name}"
        raise UsageError(f"{name}: {text}: neither a Python that can be started nor the folder of a checkout; {how}")
    files = tuple(_file(path, folder or Path.cwd()) for path in paths)
    project = Project(files) if files else read_project(folder or Path.cwd(), upward=not folder)
    if folder and not project.paths:
        code = ("*.py", "*/*.py", "*/*/*.py", "pyproject.toml", ".git")
        if next(folder.glob("**/*.json"), None) and not any(next(folder.glob(sign), None) for sign in code):
            raise UsageError(f"{name}: {text}: holds results files and no code: leave out --interleave")
    return Environment(name, interpreter, project.paths or (str(process.suite()),), project.source)


def _can_measure(python: str) -> bool:
    """Whether a Python finds the packages of a measuring process: a checkout's environment may hold only tox. Nothing
    is imported, which would take seconds for torch. Raises UsageError if the Python hangs."""
    command = process.bound([python, "-c", _PROBE, "pytest", "pytest_benchmark", "torch"])
    quiet = subprocess.DEVNULL  # another program may print without end
    try:
        return subprocess.call(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_PATIENCE_S) == 0
    except OSError:
        return False
    except subprocess.TimeoutExpired:
        raise UsageError(f"{python}: doesn't answer within {_PATIENCE_S:g} s: repair or remove it") from None


def _file(text: str, folder: Path) -> str:
    name, separator, test = text.partition("::")
    for path in (folder / name, Path(name).absolute()):
        if path.exists():
            return f"{path}{separator}{test}"
    raise UsageError(f"{text}: no such file or folder, neither here nor in {folder}")


class SameCode(UsageError):
    """Raised if base and new are the same code although they were to be two versions."""


class OutOfTime(Exception):
    """Raised when measuring has to end before a pair is complete."""


class _Collected(Exception):
    """Raised to end a process that has reported its benchmarks."""


@contextlib.contextmanager
def _refusing(side: Environment, folder: Path) -> Iterator[None]:
    """Raise UsageError for events of another version of gpubench, and for files that can't be written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RunFileError) as error:
        why = f"events that this one can't read ({type(error).__name__}: {error})"
        raise UsageError(f"{side.name}: its gpubench writes {why}: install one version on both sides") from None
    except OSError as error:
        raise UsageError(f"{folder}: can't write there: {error.strerror or error}") from None


class _Side:
    """The progress of one side: ``modules`` and ``digests`` of the files that its processes have loaded, the seconds
    that each benchmark took in its latest turn, by full name, and the seconds of the rest of that turn."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        self.digests: dict[str, str] = {}
        self.cases: dict[str, float] = {}
        self.names: list[str] = []
        self.estimated_s = self.rest_s = 0.0

    def begin(self, now: float) -> None:
        """Begin a turn."""
        self._began = self._case_began = now
        self._timed_s = 0.0

    def note(self, event: Event, now: float) -> None:
        """Take an event of the turn into account."""
        self.modules |= {str(name): str(file) for name, file in (event.get("modules") or {}).items()}
        if event["event"] == "session":
            self.names = [*dict.fromkeys((*self.names, *event["cases"]))]  # a turn of some tests has these alone
            self.estimated_s = event.get("estimated_s") or 0.0
        elif event["event"] == "start":
            self._case_began = now
        elif event["event"] == "end":
            self.cases[event["fullname"]] = now - self._case_began
            self._timed_s += now - self._case_began
        self.rest_s = now - self._began - self._timed_s


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
    stop_at: float = math.inf
    """When measuring ends, by the clock ``now``: no benchmark begins later."""
    _sides: dict[str, _Side] = field(default_factory=lambda: {"base": _Side(), "new": _Side()})

    def interrupt(self, *_: Any) -> None:
        """Handle a signal: begin no further process. Raises KeyboardInterrupt at the second one."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    @property
    def collected(self) -> dict[str, list[str]]:
        """Full names of the tests that each side would measure."""
        return {name: side.names for name, side in self._sides.items()}

    @property
    def libraries(self) -> list[str]:
        """How the versions of installed libraries differ between the sides."""
        return differing_libraries(*(side.modules for side in self._sides.values()))

    def collect(self) -> None:
        """Determine the tests of each side, without measuring, and the number of threads: all turns use the fewest that
        a side chose, since a machine may become busy or idle between them. Raises UsageError if a side can't measure,
        or if both are the same code."""
        threads: list[int] = []
        notices: dict[str, None] = {}

        def note(event: Event) -> None:
            if event["event"] == "session":
                cases = (event.get("identities") or {}).values()  # an older gpubench may lack any of these
                if any(case.get("implementation") for case in cases) and event["fingerprint"].get("threads"):
                    threads.append(event["fingerprint"]["threads"])  # a plain suite keeps its own number
                notices.update(dict.fromkeys(event.get("notices") or ()))
                raise _Collected

        for side in (self.base, self.new):
            with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_Collected):
                self.interrupted |= self._run(side, Path(folder), (), note).interrupted
            self._require_unchanged(side)
        if threads:
            self.options = [*self.options, f"--gpubench-threads={min(threads)}"]
        for notice in notices:
            self.say(notice)
        self._require_own_code()

    def _checkout(self, side: Environment) -> Checkout:
        return Checkout(side.folder, side.paths, self._sides[side.name].modules)

    def _require_own_code(self) -> None:
        """Raise SameCode if a side imports the other's code."""
        sides, (base, new) = (self.base, self.new), map(self._checkout, (self.base, self.new))
        pythons = [side.interpreter.python for side in sides]
        alike = base.modules and base.modules == new.modules and len(set(map(os.path.realpath, pythons))) == 1
        in_folders = [side.interpreter.folder is not None for side in sides]
        if not any(in_folders) and pythons[0] != pythons[1] and alike:
            both = f"{pythons[0]} and {pythons[1]} are one environment"
            raise SameCode(f"{both}: give one of them twice to see what this machine can detect in unchanged code")
        if all(in_folders) and base.folder != new.folder and (words := shared_code(base, new)):
            ours = os.path.relpath(base.folder)
            how = f"python3 -m venv {ours}/.venv && {ours}/.venv/bin/pip install pytest-gpubench {base.folder}"
            raise SameCode(f"{words}: install each in an environment of its own: {how}; and the same for new")

    def _require_unchanged(self, side: Environment) -> None:
        """Raise UsageError if a side's code isn't the code that it loaded first."""
        for file, digest in _digests(self._checkout(side)).items():
            if self._sides[side.name].digests.setdefault(file, digest) != digest:
                raise UsageError(f"{side.name}: {file} has changed while it was measured")

    def pair_s(self, chosen: Mapping[str, Collection[str]] | None = None) -> float:
        """Return the seconds that a pair of turns takes for the ``chosen`` tests (by default all): by the latest turns,
        or else by the estimate."""
        total_s = 0.0
        for name, side in self._sides.items():
            names = side.names if chosen is None else chosen[name]
            total_s += side.rest_s + (sum(side.cases.get(name, 0.0) for name in names) or side.estimated_s)
        return total_s

    def pair(
        self, number: int, stage: str, chosen: Mapping[str, Collection[str]] | None = None
    ) -> tuple[Path, Path] | None:
        """Measure the ``chosen`` tests (by default all) on both sides, in odd pairs new first; return the run files, or
        None if it was interrupted. Raises UsageError if an environment can't measure, OutOfTime at ``stop_at``."""
        if number and not (self.folder / "turns").is_dir():
            raise UsageError(f"{self.folder}: the folder of results has gone")
        sides, runs = (self.base, self.new), dict[str, Any]()
        for side in sides if number % 2 == 0 else reversed(sides):
            names = self._sides[side.name].names
            left_out = [name for name in names if chosen is not None and name not in chosen[side.name]]
            runs[side.name] = self._turn(side, number, left_out)
            if self.interrupted:
                return None
        self._require_own_code()
        base, new = (self.folder / side.name / f"{number:03d}.json" for side in sides)
        try:
            for side, target in zip(sides, (base, new), strict=True):
                with _refusing(side, self.folder):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    runs[side.name]["gpubench"]["stage"] = stage
                    write(target, runs[side.name])
        except BaseException:
            for target in (base, new):  # an incomplete pair isn't kept
                with contextlib.suppress(OSError):
                    target.unlink()
            raise
        return base, new

    def _turn(self, side: Environment, number: int, left_out: Sequence[str]) -> Any:
        if self.interrupted:
            return None
        folder = self.folder / "turns" / f"{number:03d}-{side.name}"
        with _refusing(side, folder):
            folder.mkdir(parents=True)
        if self.now() > self.stop_at:
            raise OutOfTime

        def note(event: Event) -> None:
            if event["event"] == "start" and self.now() > self.stop_at:
                raise OutOfTime

        supervisor = self._run(side, folder, [f"--deselect={name}" for name in left_out], note)
        self.interrupted |= supervisor.interrupted
        if self.interrupted:
            return None
        self._require_unchanged(side)
        with _refusing(side, folder):
            return assemble(supervisor.events)

    def _run(
        self, side: Environment, folder: Path, more: Sequence[str], on_event: Callable[[Event], None]
    ) -> Supervisor:
        """Return a run of one process on that side, once it has ended. Raises UsageError if it measured nothing."""
        state = self._sides[side.name]

        def note(event: Event) -> None:
            with _refusing(side, folder):
                state.note(event, self.now())
                on_event(event)

        words = [*project_options(side.paths, side.folder, self.options), *self.options, _NO_PEAKS, *more]
        terms = side.paths, words, 1, self.deadline_s, note
        supervisor = Supervisor(folder, *terms, interpreter=side.interpreter)
        state.begin(self.now())
        try:
            supervisor.measure()
        except Unable as error:
            if not {"session", "end"} <= {event["event"] for event in supervisor.events}:  # one may be unreadable
                log = folder / "run.log"
                where = f": see {log}" if folder.is_relative_to(self.folder) else ""  # collecting has a temporary one
                old = ": too old, install one version on both sides" * ("gpubench.supervise" in str(error))
                raise UsageError(f"{side.name}: {side.interpreter.python} can't measure: {error}{old}{where}") from None
        except OSError as error:  # its folder or its Python has gone
            raise UsageError(f"{side.name}: {error.filename or ''}: {error.strerror or error}") from None
        return supervisor


class Checkout(NamedTuple):
    """A side's folder, the benchmark files that it runs, and the modules that its processes loaded."""

    folder: Path
    paths: Sequence[str]
    modules: Modules

    @property
    def files(self) -> dict[str, Path]:
        """The file of each module, with links resolved."""
        return {name: Path(os.path.realpath(file)) for name, file in self.modules.items()}

    @property
    def harness(self) -> list[Path]:
        """The folders of benchmark files outside the checkout."""
        own, files = self.folder.resolve(), [Path(path.split("::")[0]).resolve() for path in self.paths]
        places = {file if file.is_dir() else file.parent for file in files}
        return [place for place in places if not place.is_relative_to(own) and not own.is_relative_to(place)]


def shared_code(base: Checkout, new: Checkout) -> str:
    """Return in words which modules a side imports from elsewhere than its own checkout; empty if each side measured
    its own code. Wrong are modules that lie in the other side's checkout or were installed from it, and modules of the
    project that both sides import from one place outside of their checkouts, except benchmark files and modules beside
    them."""
    folders = base.folder.resolve(), new.folder.resolve()
    is_gpubench = all((folder / "gpubench").is_dir() or (folder / "src/gpubench").is_dir() for folder in folders)
    foreign, shared = dict[str, str](), True
    for side, twin in ((base, new), (new, base)):
        own, other, files, others = side.folder.resolve(), twin.folder.resolve(), side.files, twin.files
        installed, harness = _project_files(folders, side.modules.values()), side.harness
        for name, file in files.items():
            owner, common = _owner(file, folders), file == others.get(name)
            if is_installed(file) or (owner is None and is_installed(side.modules[name])):
                origin = installed.get(side.modules[name], own)  # any other library may come from anywhere
                wrong = origin == other or (origin is None and common)
            elif file.name == "conftest.py" or any(file.is_relative_to(folder) for folder in harness):
                wrong = False
            else:
                sources = common and owner is None and all(_has_source(folder, name, files) for folder in folders)
                wrong = owner == other or sources
            package = name.partition(".")[0]
            if wrong and (package != "gpubench" or is_gpubench):
                foreign.setdefault(package, side.modules[name])
                shared &= common
    names = listed((f"{name} from {file}" for name, file in sorted(foreign.items())), 3)
    return f"{'both sides import' if shared else 'a side imports'} {names}" if foreign else ""


def _owner(path: Path, folders: Iterable[Path]) -> Path | None:
    """Return the innermost folder that holds a path: a checkout may lie within another."""
    holders = (folder for folder in folders if path.is_relative_to(folder))
    return max(holders, key=lambda folder: len(folder.parts), default=None)


def _distributions(files: Iterable[str]) -> Iterator[metadata.Distribution]:
    """Return the distributions in the folders of installed packages that hold these files."""
    parents = (next((place for place in Path(file).parents if place.name in INSTALLED), None) for file in files)
    yield from metadata.distributions(path=sorted({str(parent) for parent in parents if parent}))


def _normal(name: str) -> str:
    """Return a distribution's name as package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _project_files(folders: Sequence[Path], loaded: Iterable[str]) -> dict[str, Path | None]:
    """Return the installed files of the project's own distributions, each with the checkout that it was installed from,
    or None if that is unknown."""
    names: set[str] = set()
    for file in (folder / name for folder in folders for name in ("pyproject.toml", "setup.cfg", "setup.py")):
        with contextlib.suppress(OSError):
            names |= {*map(_normal, _NAME.findall(file.read_text("utf-8", "replace") if file.is_file() else ""))}
    files: dict[str, Path | None] = {}
    for distribution in _distributions(loaded):
        own = None
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, OSError):  # of a local folder
            url = urlparse(json.loads(distribution.read_text("direct_url.json") or "{}")["url"])
            own = _owner(Path(unquote(url.path)).resolve(), folders) if url.scheme == "file" else None
        if own or _normal(distribution.metadata["Name"] or "") in names:
            files |= {os.path.abspath(str(distribution.locate_file(file))): own for file in distribution.files or ()}
    return files


def _has_source(folder: Path, name: str, modules: Mapping[str, Path]) -> bool:
    """Whether a checkout has the source of a module's package, in any layout."""
    parts = name.split(".")
    packages = (parts[:n] for n in range(1, len(parts)) if ".".join(parts[:n]) in modules)
    package = "/".join(next(packages, parts))
    for place, folders, _ in os.walk(folder):
        deep = len(Path(place).relative_to(folder).parts) >= _DEPTH
        folders[:] = [] if deep else [name for name in folders if name not in _NO_SOURCES and name[0] != "."]
        if any(os.path.exists(f"{place}/{package}{end}") for end in ("/__init__.py", ".py")):
            return True
    return False


def _digests(checkout: Checkout) -> dict[str, str]:
    """Return a digest of each loaded module's file that lies in a checkout; installed packages are left out."""
    folder = checkout.folder.resolve()
    own = [file for file in checkout.modules.values() if Path(os.path.realpath(file)).is_relative_to(folder)]
    files = [Path(file) for file in own if not is_installed(file)]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "gone" for file in files}


def differing_libraries(base: Modules, new: Modules) -> list[str]:
    """Return how the versions of installed libraries that were loaded differ between the sides."""
    ours, theirs = (
        {_normal(library.metadata["Name"] or ""): library for library in _distributions(side.values())}
        for side in (base, new)
    )
    loaded = {os.path.abspath(file) for file in (*base.values(), *new.values())}
    return [
        f"{name} {ours[name].version} → {theirs[name].version}"
        for name in sorted(ours.keys() & theirs.keys())
        if ours[name].version != theirs[name].version
        and any(os.path.abspath(str(ours[name].locate_file(file))) in loaded for file in ours[name].files or ())
    ]
