"""Where the modules of a measuring process came from, and whether base and new measured the same code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_NAME = re.compile(r"""(?:^|\()\s*name\s*=\s*["']?([\w.-]+)""", re.MULTILINE)
"""A distribution's name in pyproject.toml, setup.cfg or setup.py."""

Modules = Mapping[str, str]
"""The file of each module by its dotted name."""


def loaded_modules() -> dict[str, str]:
    """Return the files of this process's modules, without the standard library and without modules that lie within
    their installed package."""
    files: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] not in {*sys.stdlib_module_names, "__main__"}:
            file = object.__getattribute__(module, "__dict__").get("__file__")  # a lazy module must not be loaded
            parent = Path(files.get(name.rpartition(".")[0], ""))
            if isinstance(file, str) and not (is_installed(file) and parent.parent in Path(file).parents):
                files[name] = os.path.abspath(file)
    return files


def is_installed(file: str | Path) -> bool:
    """Whether a file lies in an environment's folder of installed packages."""
    return any(part in _INSTALLED for part in Path(file).parts)


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
    parents = (next((place for place in Path(file).parents if place.name in _INSTALLED), None) for file in files)
    yield from metadata.distributions(path=sorted({str(parent) for parent in parents if parent}))


def _normal(name: str) -> str:
    """Return a distribution's name as package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _project_files(folders: Sequence[Path], loaded: Iterable[str]) -> dict[str, Path | None]:
    """Return the installed files of the project's own distributions, each with the checkout that it was installed from,
    or None if that is unknown."""
    names: set[str] = set()
    for file in (folder / name for folder in folders for name in ("pyproject.toml", "setup.cfg", "setup.py")):
        with suppress(OSError):
            names |= {*map(_normal, _NAME.findall(file.read_text("utf-8", "replace") if file.is_file() else ""))}
    files: dict[str, Path | None] = {}
    for distribution in _distributions(loaded):
        own = None
        with suppress(ValueError, LookupError, TypeError, AttributeError, OSError):  # of a local folder
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


def digests(checkout: Checkout) -> dict[str, str]:
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
