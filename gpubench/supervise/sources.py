"""Where the modules of a measuring process came from, and whether base and new measured the same code."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser, Error
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from ..runfile.quantities import listed

_INSTALLED = ("site-packages", "dist-packages")
"""Names of the folders that hold installed packages."""
_NO_SOURCES = {*_INSTALLED, "__pycache__", "node_modules", "build", "dist"}
_DEPTH = 5
"""Folders below a checkout in which a package's source is searched."""
_NAMED = 3

Modules = Mapping[str, str]
"""The file of each module by its dotted name."""


def loaded_modules() -> dict[str, str]:
    """Return the files of this process's modules, without the standard library and without modules that lie within
    their installed package."""
    files: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or name.partition(".")[0] in {*sys.stdlib_module_names, "__main__"}:
            continue
        file = object.__getattribute__(module, "__dict__").get("__file__")  # a lazy module must not be loaded
        parent = files.get(name.rpartition(".")[0], "")
        if isinstance(file, str) and not (is_installed(file) and Path(parent).parent in Path(file).parents):
            files[name] = os.path.abspath(file)
    return files


def is_installed(file: str) -> bool:
    """Whether a file lies in an environment's folder of installed packages."""
    return any(part in _INSTALLED for part in Path(file).parts)


class Checkout(NamedTuple):
    """A side's folder, the benchmark files that it runs, and the modules that its processes loaded."""

    folder: Path
    paths: Sequence[str]
    modules: Modules


def shared_code(base: Checkout, new: Checkout) -> str:
    """Return in words which modules a side imports from elsewhere than its own checkout; empty if each side measured
    its own code.

    Wrong are modules that lie in the other side's checkout or were installed from it, and modules of the project that
    both sides import from one place outside of their checkouts. Benchmark files, and modules beside them, may be the
    same on both sides.
    """
    folders = base.folder.resolve(), new.folder.resolve()
    real = [{name: Path(os.path.realpath(file)) for name, file in side.modules.items()} for side in (base, new)]
    foreign, shared = dict[str, str](), True
    for number, side in enumerate((base, new)):
        own, other = folders[number], folders[1 - number]
        harness, installed = _harness_folders(side.paths, own), _project_files(folders, side.modules.values())
        for name, file in real[number].items():
            owner = max((folder for folder in folders if file.is_relative_to(folder)), key=_depth, default=None)
            common = file == real[1 - number].get(name)
            if is_installed(str(file)) or (owner is None and is_installed(side.modules[name])):
                origin = installed.get(side.modules[name], own)  # what isn't the project's may come from anywhere
                wrong = origin == other or (origin is None and common)
            elif file.name == "conftest.py" or any(file.is_relative_to(folder) for folder in harness):
                wrong = False
            else:
                sources = common and owner is None and all(_has_source(each, name, real[number]) for each in folders)
                wrong = owner == other or sources
            if wrong and (name.partition(".")[0] != "gpubench" or all(map(_is_gpubench, folders))):
                foreign.setdefault(name.partition(".")[0], side.modules[name])
                shared &= common
    names = listed((f"{name} from {file}" for name, file in sorted(foreign.items())), _NAMED)
    return f"{'both sides import' if shared else 'a side imports'} {names}" if foreign else ""


def _depth(folder: Path) -> int:
    return len(folder.parts)


def _is_gpubench(folder: Path) -> bool:
    return any((folder / part).is_dir() for part in ("gpubench", "src/gpubench"))


def _harness_folders(paths: Sequence[str], own: Path) -> list[Path]:
    """The folders of benchmark files that a side takes from outside its checkout."""
    files = (Path(path.split("::")[0]).resolve() for path in paths)
    places = (file if file.is_dir() else file.parent for file in files)
    return [place for place in places if not place.is_relative_to(own) and not own.is_relative_to(place)]


def _project_files(folders: Sequence[Path], loaded: Iterable[str]) -> dict[str, Path | None]:
    """The installed files of the project's own distributions, each with the checkout that it was installed from, or
    None if that is unknown."""
    names = {name for folder in folders for name in _project_names(folder)}
    files: dict[str, Path | None] = {}
    for distribution in metadata.distributions(path=_sites(loaded)):
        origin = _installed_from(distribution)
        own = max((folder for folder in folders if origin and origin.is_relative_to(folder)), key=_depth, default=None)
        if own or _normal(distribution.metadata["Name"] or "") in names:
            files |= {os.path.abspath(str(distribution.locate_file(file))): own for file in distribution.files or ()}
    return files


def _sites(files: Iterable[str]) -> list[str]:
    """The folders of installed packages in which these files lie."""
    parents = (next((each for each in Path(file).parents if each.name in _INSTALLED), None) for file in files)
    return sorted({str(parent) for parent in parents if parent})


def _installed_from(distribution: metadata.Distribution) -> Path | None:
    """The local folder that pip installed a distribution from."""
    with suppress(ValueError, TypeError, AttributeError, OSError):
        url = urlparse(json.loads(distribution.read_text("direct_url.json") or "{}").get("url", ""))
        return Path(unquote(url.path)).resolve() if url.scheme == "file" else None
    return None


def _normal(name: str) -> str:
    """A distribution's name as package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _project_names(folder: Path) -> set[str]:
    """The names that a checkout's own files give its distribution."""
    names: list[object] = []
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        names += [table.get("project", {}).get("name"), table.get("tool", {}).get("poetry", {}).get("name")]
    with suppress(OSError, ValueError, Error):
        settings = ConfigParser()
        settings.read(folder / "setup.cfg", encoding="utf-8")
        names.append(settings.get("metadata", "name", fallback=None))
    with suppress(OSError, ValueError, SyntaxError, RecursionError):
        calls = ast.walk(ast.parse((folder / "setup.py").read_text(encoding="utf-8")))
        words = (word for call in calls if isinstance(call, ast.Call) for word in call.keywords)
        names += [word.value.value for word in words if word.arg == "name" and isinstance(word.value, ast.Constant)]
    return {_normal(name) for name in names if isinstance(name, str) and name}


def _has_source(folder: Path, name: str, modules: Mapping[str, Path]) -> bool:
    """Whether a checkout has the source of a module's package, in any layout."""
    parts = name.split(".")
    package = next(
        ("/".join(parts[:n]) for n in range(1, len(parts)) if ".".join(parts[:n]) in modules), "/".join(parts)
    )
    for place, folders, _ in os.walk(folder):
        deep = len(Path(place).relative_to(folder).parts) >= _DEPTH
        folders[:] = [] if deep else [each for each in folders if each not in _NO_SOURCES and not each.startswith(".")]
        if any(os.path.exists(f"{place}/{package}{end}") for end in ("/__init__.py", ".py")):
            return True
    return False


def digests(checkout: Checkout) -> dict[str, str]:
    """Return a digest of each loaded module's file that lies in a checkout; installed packages are left out."""
    contents = {}
    for file in checkout.modules.values():
        if Path(os.path.realpath(file)).is_relative_to(checkout.folder.resolve()) and not is_installed(file):
            contents[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest() if Path(file).is_file() else "gone"
    return contents


def differing_libraries(base: Modules, new: Modules) -> list[str]:
    """Return how the versions of installed libraries differ between the sides, of those that were loaded."""
    sides = [{_normal(each.metadata["Name"] or ""): each for each in metadata.distributions(path=_sites(side.values()))}
             for side in (base, new)]  # fmt: skip
    loaded = {os.path.abspath(file) for file in (*base.values(), *new.values())}
    return [
        f"{name} {sides[0][name].version} → {sides[1][name].version}"
        for name in sorted(sides[0].keys() & sides[1].keys())
        if sides[0][name].version != sides[1][name].version
        and any(os.path.abspath(str(sides[0][name].locate_file(file))) in loaded for file in sides[0][name].files or ())
    ]
