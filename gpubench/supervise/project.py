"""What a project's own files configure: ``[tool.gpubench]`` in its pyproject.toml, and the benchmarks among its
tests."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from ..runfile.quantities import listed
from .process import suite

_FIXTURES = frozenset({"gpubench", "benchmark", "benchmark_weave"})
"""Fixtures that make a test a benchmark."""
_TEST_FILES = ("test_*.py", "*_test.py")
_PASSED_OVER = (".*", "*.egg", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}")
"""Names of test files and of folders that are skipped; both are pytest's own defaults."""
BENCHMARK_FOLDERS = ("benchmarks", "tests/benchmarks")
"""Folders where projects usually keep their benchmarks."""
TEST_FOLDERS = ("tests", "test")
"""Folders where projects usually keep their tests, some of which may be benchmarks."""
_ROOT = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""Files and folders that mark the top folder of a project."""
_MOST_NAMED = 3
_NAMES_A_ROOT = ("--rootdir", "--config-file", "-c")
"""Options of pytest that name a project's root."""


@dataclass(frozen=True, slots=True)
class Project:
    """``paths`` are benchmark files and folders, absolute; ``source`` describes where they were found. ``options`` are
    keys of ``[tool.gpubench]`` other than ``paths``, unchecked, and ``file`` is the file that holds them. ``limits``
    are times as texts, by the expressions that choose benchmarks."""

    paths: tuple[str, ...] = ()
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)


def read_project(folder: Path, upward: bool = False, search: bool = True) -> Project:
    """The project in ``folder``, or in the nearest folder above it that has one. Raises UsageError for a file that
    can't be read and for a wrong value of ``paths``. Without ``search`` no test is opened, which takes seconds in a
    large project: for commands that need only the options.

    ``[tool.gpubench]`` comes first. Where it names no paths, benchmarks are looked for in :data:`BENCHMARK_FOLDERS`,
    then among pytest's ``testpaths``, in :data:`TEST_FOLDERS`, and at last in the folder itself; the first place that
    has any counts.
    """
    folder = folder.resolve()
    places = (folder, *folder.parents) if upward else (folder,)
    project = Project()
    for number, place in enumerate(places):
        table = _toml(place / "pyproject.toml").get("tool", {}).get("gpubench")
        if table is not None:
            project, places = _declared(place, table), places[: number + 1]
            break
    if project.paths or not search:
        return project
    paths, source = _found(places)
    return replace(project, paths=paths, source=source)


def _found(places: Sequence[Path]) -> tuple[tuple[str, ...], str]:
    """Benchmarks that no configuration names, and how they were found."""
    root, file, settings = _pytest_settings(places[0])
    if root is None or file is None or root not in places:
        root, file, settings = places[0], None, {}
    patterns = _words(settings.get("python_files")) or _TEST_FILES
    top = next((place for place in places if any((place / name).exists() for name in _ROOT)), places[0])
    within = [place for place in places if place.is_relative_to(top)]
    for folder in (place / name for place in within for name in BENCHMARK_FOLDERS):
        if folder != suite() and _has_benchmarks(folder, patterns, top):
            return (str(folder),), "found in this project"
    starts = [start for word in _words(settings.get("testpaths")) for start in sorted(root.glob(word))]
    tries = [(starts, f"testpaths in {file.name if file else ''}")]
    tries += [([place / name], "found in this project") for place in within for name in TEST_FOLDERS]
    for beginnings, source in (*tries, (sorted(places[0].glob("*.py")), "found in this folder")):
        found = dict.fromkeys(path for start in beginnings for path in _tests(start, patterns) if _measures(path))
        if found:
            return tuple(map(str, found)), source
    return (), ""


def _has_benchmarks(folder: Path, patterns: Sequence[str], top: Path) -> bool:
    """Whether a test in the folder asks for such a fixture, or a conftest.py does for the tests there."""
    tests, above = _tests(folder, patterns), [place for place in folder.parents if place.is_relative_to(top)]
    conftests = [*_tests(folder, ["conftest.py"]), *(place / "conftest.py" for place in above)]
    return folder.is_dir() and bool(tests) and any(map(_measures, [*tests, *conftests]))


def _tests(start: Path, patterns: Sequence[str]) -> list[Path]:
    """Files in a folder whose names match the patterns, or the file itself."""
    return [path for path in _files(start) if _is_called(path, patterns)]


def _is_called(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path.name, pattern) for pattern in patterns)


def described(paths: Sequence[str], source: str) -> str:
    """What is measured, and why, for the first line of a run."""
    if list(paths) == [str(suite())]:
        return "the suite that comes with gpubench"
    shown = listed((min(path, os.path.relpath(path), key=len) for path in paths), _MOST_NAMED)
    why = f" ({source}; --builtin measures the suite that comes with gpubench)" if source else ""
    return f"{shown}{why}"


def root_option(paths: Sequence[str], folder: Path, given: Sequence[str] = ()) -> list[str]:
    """pytest's ``--rootdir`` for files of no project, started in ``folder``; empty where pytest finds a project's root
    by itself, or the options ``given`` name one.

    pytest would take the common folder of the files and of where it is started, which a run that is resumed elsewhere
    doesn't find again. That one is taken only if it is ``folder`` or the one of this process: others would show their
    names in results files.
    """
    files = [Path(path.split("::")[0]) for path in paths]
    named = any(word.startswith(_NAMES_A_ROOT) for word in (*given, *os.environ.get("PYTEST_ADDOPTS", "").split()))
    if named or all(path.is_relative_to(suite()) for path in files):
        return []
    above = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in files]))
    if _pytest_settings(above).root or any((place / "setup.py").is_file() for place in (above, *above.parents)):
        return []
    started = (place for place in (folder, Path.cwd()) if place != place.parent)
    return [f"--rootdir={next((place for place in started if above.is_relative_to(place)), above)}"]


class _PytestSettings(NamedTuple):
    """The root of a project, its configuration file, and the settings in it."""

    root: Path | None
    file: Path | None
    values: Mapping[str, Any]


def _pytest_settings(above: Path) -> _PytestSettings:
    """The project that pytest finds from this folder upwards, by pytest's own search, which isn't public."""
    import pytest
    from _pytest.config.findpaths import locate_config

    try:
        root, file, found = locate_config(above, [above])[:3]
    except (pytest.UsageError, pytest.fail.Exception, OSError, ValueError) as error:
        raise UsageError(f"pytest can't read its settings: {error}") from None
    return _PytestSettings(root, file, {name: getattr(value, "value", value) for name, value in found.items()})


def _declared(place: Path, table: Any) -> Project:
    file = str(place / "pyproject.toml")
    if not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.gpubench] must be a table")
    options = {key: value for key, value in table.items() if key not in ("paths", "limits")}
    if not isinstance(limits := table.get("limits", {}), dict):
        raise UsageError(f'{file}: [tool.gpubench]: limits must be a table, as {{ "matmul.square" = "2 ms" }}')
    paths = table.get("paths", [])
    paths = [paths] if isinstance(paths, str) else paths
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError(f'{file}: [tool.gpubench]: paths must be a list of files and folders, as ["benchmarks"]')
    for path in paths:
        if not (place / path.split("::")[0]).exists():
            raise UsageError(f"{file}: [tool.gpubench]: {path}: no such file or folder")
    source = "[tool.gpubench] in pyproject.toml" if paths else ""
    return Project(tuple(str(place / path) for path in paths), source, options, file, limits)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: can't be read: {error}") from None


def _files(start: Path) -> Iterator[Path]:
    if start.is_file():
        yield start
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(name for name in folders if not _passed_over(Path(folder, name)))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _passed_over(folder: Path) -> bool:
    return _is_called(folder, _PASSED_OVER) or (folder / "pyvenv.cfg").exists()


def _words(value: Any) -> tuple[str, ...]:
    return tuple(value.split()) if isinstance(value, str) else tuple(map(str, value or ()))


def _measures(path: Path) -> bool:
    """Whether a function in the file has such a fixture among its parameters."""
    try:
        content = path.read_bytes()
        nodes = ast.walk(ast.parse(content)) if any(name.encode() in content for name in _FIXTURES) else ()
        functions = [node.args for node in nodes if isinstance(node, ast.FunctionDef)]
    except (OSError, SyntaxError, ValueError):  # pytest will report it
        return False
    return any(arg.arg in _FIXTURES for each in functions for arg in (*each.posonlyargs, *each.args, *each.kwonlyargs))
