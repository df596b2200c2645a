"""What a project's own files configure: ``[tool.gpubench]`` in its pyproject.toml, and its folder of benchmarks."""

from __future__ import annotations

import argparse
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..runfile.quantities import listed
from .process import suite

BENCHMARK_FOLDERS = ("benchmarks", "tests/benchmarks")
"""Folders where projects usually keep their benchmarks."""
_ROOT = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""Files and folders that mark the top folder of a project."""
_NAMES_A_ROOT = ("--rootdir", "--config-file", "-c")
"""Options of pytest that name a project's root."""
_NEEDED = ("no:benchmark", "no:gpubench", "no:gpubench.plugin")
"""Switches, by ``-p``, that would leave nothing that measures."""
_PARSER = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
_PARSER.add_argument("-p", action="append", default=[])
_PARSER.add_argument("-c", "--config-file")
_PARSER.add_argument("--import-mode")


@dataclass(frozen=True, slots=True)
class Project:
    """``paths`` are benchmark files and folders, absolute; ``source`` says which setting or search names them.
    ``options`` are keys of ``[tool.gpubench]`` other than ``paths``, unchecked, and ``file`` is the file that holds
    them."""

    paths: tuple[str, ...] = ()
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""


def read_project(folder: Path, upward: bool = False) -> Project:
    """Return the project in ``folder``, or in the nearest folder above it that has one: the benchmarks that its
    ``[tool.gpubench]`` names, otherwise the first of :data:`BENCHMARK_FOLDERS` that is there. Raises UsageError for a
    file that can't be read and for a wrong value."""
    folder = folder.resolve()
    places = (folder, *folder.parents) if upward else (folder,)
    project = next(filter(None, map(_declared, places)), Project())
    top = next((place for place in places if any((place / name).exists() for name in _ROOT)), folder)
    within = [place / name for place in places if place.is_relative_to(top) for name in BENCHMARK_FOLDERS]
    usual = next((path for path in within if path.is_dir()), suite())
    if project.paths or usual == suite():
        return project
    return replace(project, paths=(str(usual),), source="found in this project")


def _declared(place: Path) -> Project | None:
    """Return the project of a folder, if its pyproject.toml has a table of gpubench."""
    file = place / "pyproject.toml"
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}  # a FIFO would block
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise UsageError(f"{file}: can't be read: {why}") from None
    tools = content.get("tool")
    if not isinstance(tools, dict) or (table := tools.get("gpubench")) is None:
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.gpubench] must be a table")
    paths = table.pop("paths", [])
    paths = [paths] if isinstance(paths, str) else paths
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError(f'{file}: [tool.gpubench]: paths must be a list of files and folders, as ["benchmarks"]')
    for path in paths:
        if not (place / path.split("::")[0]).exists():
            raise UsageError(f"{file}: [tool.gpubench]: {path}: no such file or folder")
    source = "[tool.gpubench] in pyproject.toml" if paths else ""
    return Project(tuple(str(place / path) for path in paths), source, table, str(file))


def described(paths: Sequence[str], source: str) -> str:
    """Describe the measured files and their source, for the first line of a run."""
    if list(paths) == [str(suite())]:
        return "the suite that comes with gpubench"
    shown = listed((min(path, os.path.relpath(path), key=len) for path in paths), 3)
    return f"{shown} ({source})" if source else shown


def project_options(paths: Sequence[str], folder: Path, given: Sequence[str] = ()) -> list[str]:
    """Return pytest's options for files that are measured by a process started in ``folder``: their root, found by
    pytest's own search, which isn't public, and the parts of a project's ``addopts`` and of PYTEST_ADDOPTS that are
    taken over. The options ``given`` count more."""
    import pytest
    from _pytest.config.findpaths import load_config_dict_from_file, locate_config

    of_user = _taken_over(os.environ.get("PYTEST_ADDOPTS", ""))
    files = [Path(path.split("::")[0]) for path in paths]
    if all(path.is_relative_to(suite()) for path in files):
        return of_user
    above = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in files]))
    words = [*given, *of_user]
    file = _PARSER.parse_known_args(words)[0].config_file
    try:
        root, _, settings = locate_config(above, [above])[:3]
        if file and (folder / file).is_file():
            settings = load_config_dict_from_file(folder / file) or {}
    except (pytest.UsageError, pytest.fail.Exception, OSError, ValueError, RecursionError) as error:
        raise UsageError(f"pytest can't read its settings: {error}") from None
    addopts: Any = settings.get("addopts", [])
    addopts = getattr(addopts, "value", addopts)  # of pytest 9
    taken = _taken_over(addopts, file=False) + of_user
    named = any(word.startswith(_NAMES_A_ROOT) for word in words)
    if named or root or any((place / "setup.py").is_file() for place in (above, *above.parents)):
        return taken
    # pytest would take the common folder of the files and of where it is started, which a run that is resumed elsewhere
    # doesn't find again. That one is taken only if it is ``folder`` or the one of this process: others would show their
    # names in results files.
    started = (place for place in (folder, Path.cwd()) if place != place.parent)
    return [f"--rootdir={next((place for place in started if above.is_relative_to(place)), above)}", *taken]


def _taken_over(addopts: str | Sequence[Any], file: bool = True) -> list[str]:
    """Return the options that decide which modules pytest imports, and how, except a plugin's without which nothing is
    measured. ``file``: whether a configuration file can be named."""
    try:
        given = shlex.split(addopts) if isinstance(addopts, str) else map(str, addopts)
        options, _ = _PARSER.parse_known_args([*given])
    except argparse.ArgumentError:  # pytest would refuse them too
        return []
    except ValueError as error:
        raise UsageError(f"pytest can't read its settings: addopts or PYTEST_ADDOPTS: {error}") from None
    words = [word for name in options.p if name not in _NEEDED for word in ("-p", name)]
    words += ["-c", options.config_file] if file and options.config_file else []
    return words + ([f"--import-mode={options.import_mode}"] if options.import_mode else [])
