"""What a project's own files ask for: ``[tool.gpubench]`` in its pyproject.toml, and the benchmarks among its tests."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from .process import suite

FIXTURES = frozenset({"gpubench", "benchmark", "benchmark_weave"})
"""A test that asks for one of them is a benchmark."""
_TEST_FILES = ("test_*.py", "*_test.py")
_PASSED_OVER = (".*", "*.egg", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}")
"""Both are pytest's own choice."""
BENCHMARK_FOLDERS = ("benchmarks", "tests/benchmarks")
"""Where projects usually keep theirs, often outside of what pytest's settings name."""
_ROOT = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""A folder with one of them is the uppermost of its project."""
_MOST_NAMED = 3
_NAMES_A_ROOT = ("--rootdir", "--config-file", "-c")
"""Options of pytest."""


@dataclass(frozen=True, slots=True)
class Project:
    """``paths`` are benchmark files and folders, absolute; ``source`` says which file names them. ``options`` are keys
    of ``[tool.gpubench]`` other than ``paths``, unchecked, and ``file`` is where they stand. ``limits`` are times as
    texts, by the expressions that choose benchmarks."""

    paths: tuple[str, ...] = ()
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)


def read_project(folder: Path, upward: bool = False, search: bool = True) -> Project:
    """The project in ``folder``, or in the nearest folder above it that has one. Raises UsageError for a file that
    can't be read and for a wrong value of ``paths``. Without ``search`` no test is opened, which in a large project
    takes seconds: for those who need its options alone.

    ``[tool.gpubench]`` comes first. Where it names no paths, pytest's ``testpaths`` and :data:`BENCHMARK_FOLDERS` are
    searched for tests that use a fixture of :data:`FIXTURES`, and at last the folder itself; a project whose tests
    reach it in another way has to name its paths.
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
    """Benchmarks that nobody names, and how they were found."""
    root, file, settings = _pytest_settings(places[0])
    if root is None or root not in places:
        root, settings = places[0], {}
    patterns = _words(settings.get("python_files")) or _TEST_FILES
    paths = list(_benchmark_files(root, settings, patterns))
    sources = [f"testpaths in {file.name}"] if paths and file else []
    modules = [*paths]
    for folder in _benchmark_folders(places, patterns):
        tests = _tests(folder, patterns)
        if any(path.is_relative_to(folder) for path in paths):
            continue
        if _of_one_name(modules, tests):  # which pytest refuses to import side by side
            sources.append(f"not {folder.name}, where files have the same names")
        else:
            paths.append(folder)
            modules += tests
            sources.append("found in this project")
    if not sources:
        named = (path for path in sorted(places[0].glob("*.py")) if any(fnmatch(path.name, each) for each in patterns))
        paths = [path for path in named if _measures(path)]
        sources = ["found in this folder"] if paths else []
    return tuple(map(str, paths)), "; ".join(dict.fromkeys(sources))


def _of_one_name(paths: Iterable[Path], others: Iterable[Path]) -> bool:
    """Whether a module on one side is called like one on the other, and neither is in a package."""
    alone = [{path.name for path in side if not (path.parent / "__init__.py").exists()} for side in (paths, others)]
    return bool(alone[0] & alone[1])


def _benchmark_folders(places: Sequence[Path], patterns: Sequence[str]) -> list[Path]:
    """Those of the nearest folder that has any, up to the uppermost of the project."""
    above = next((number for number, place in enumerate(places) if any((place / name).exists() for name in _ROOT)), 0)
    for place in places[: above + 1]:
        folders = [place / name for name in BENCHMARK_FOLDERS if place / name != suite()]
        if found := [folder for folder in folders if _has_benchmarks(folder, patterns, places[above])]:
            return found
    return []


def _has_benchmarks(folder: Path, patterns: Sequence[str], uppermost: Path) -> bool:
    """Whether a test there asks for the fixture, or a conftest.py does for the tests there."""
    if not folder.is_dir():
        return False
    tests, conftests = _tests(folder, patterns), _tests(folder, ["conftest.py"])
    conftests += [above / "conftest.py" for above in folder.parents if above.is_relative_to(uppermost)]
    return bool(tests) and (any(map(_measures, tests)) or any(map(_measures, conftests)))


def _tests(start: Path, patterns: Sequence[str]) -> list[Path]:
    """Files of that name in a folder, or the file itself."""
    return [path for path in _files(start) if any(fnmatch(path.name, pattern) for pattern in patterns)]


def described(paths: Sequence[str], source: str) -> str:
    """What is measured, and why, for the first line of a run."""
    if list(paths) == [str(suite())]:
        return "the suite that comes with gpubench"
    shown = [min(path, os.path.relpath(path), key=len) for path in paths[:_MOST_NAMED]]
    more = f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else ""
    why = f" ({source}; --builtin measures the suite that comes with gpubench)" if source else ""
    return f"{', '.join(shown)}{more}{why}"


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
    """The root of a project, its configuration file, and what that says."""

    root: Path | None
    file: Path | None
    values: Mapping[str, Any]


def _pytest_settings(above: Path) -> _PytestSettings:
    """What pytest finds from this folder upwards, by its own search, which it keeps to itself."""
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


def _benchmark_files(place: Path, settings: Mapping[str, Any], patterns: Sequence[str]) -> Iterator[Path]:
    """Files of tests that use pytest-benchmark's fixture or ours."""
    seen: set[Path] = set()
    for word in _words(settings.get("testpaths")):
        for start in sorted(place.glob(word)) if any(sign in word for sign in "*?[") else [place / word]:
            for path in _tests(start, patterns):
                if path not in seen and _measures(path):
                    seen.add(path)
                    yield path


def _files(start: Path) -> Iterator[Path]:
    if start.is_file():
        yield start
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(name for name in folders if not _passed_over(Path(folder, name)))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _passed_over(folder: Path) -> bool:
    return any(fnmatch(folder.name, pattern) for pattern in _PASSED_OVER) or (folder / "pyvenv.cfg").exists()


def _words(value: Any) -> tuple[str, ...]:
    return tuple(value.split()) if isinstance(value, str) else tuple(map(str, value or ()))


def _measures(path: Path) -> bool:
    try:
        content = path.read_bytes()
        if not any(name.encode() in content for name in FIXTURES):
            return False
        nodes = list(ast.walk(ast.parse(content)))
    except (OSError, SyntaxError, ValueError):  # pytest will say so
        return False
    asked = [node.args for node in nodes if isinstance(node, ast.FunctionDef)]
    return any(name.arg in FIXTURES for names in asked for name in (*names.posonlyargs, *names.args, *names.kwonlyargs))
