"""What the layout promises: names that occur once, functions of a screen, files of a few screens, torch where it
measures. The direction of imports is in pyproject.toml (``tool.importlinter``), for lint."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "gpubench"
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = [path for path in FILES if not path.name.startswith("__")]
LONGEST_FUNCTION = 60
MOST_FILES = 105
OF_EVERY_COMMAND = {"main", "add_arguments"}
WITHOUT_TORCH = ("commands", "compare", "estimate", "report", "runfile", "supervise")
LIGHT = ("commands", "runfile", "supervise")
HEAVY = ("torch", "numpy", "pandas", "matplotlib", "scipy", "rich")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def public_names(module: ast.Module) -> Iterator[str]:
    """Functions, classes and constants of a module; type variables aside."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            called = node.value.func if isinstance(node.value, ast.Call) else None
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            names = [] if isinstance(called, ast.Name) and called.id == "TypeVar" else names
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def test_no_two_modules_have_one_name():
    places = defaultdict(list)
    for path in MODULES:
        if path.parent.name != "commands":  # a command may be called like a room
            places[path.stem].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_public_name_is_defined_once():
    places = defaultdict(list)
    for path in MODULES:
        exempt = OF_EVERY_COMMAND if path.parent.name == "commands" or path.name == "cli.py" else set()
        for name in set(public_names(tree(path))) - exempt:
            places[name].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_function_fits_on_a_screen():
    lengths = {
        f"{name_of(path)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_there_are_few_files():
    assert len([path for path in FILES if path.name != "__init__.py"]) <= MOST_FILES


def loaded_by(rooms: tuple[str, ...], watched: tuple[str, ...]) -> set[str]:
    """Which of the ``watched`` packages are loaded once every module of the ``rooms`` is."""
    modules = [f"gpubench.{name_of(path)[:-3].replace('/', '.')}" for path in MODULES]
    code = (
        "import importlib, sys\n"
        f"for module in {[each for each in modules if each.split('.')[1] in rooms]}: importlib.import_module(module)\n"
        f"print(*set({watched}) & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return set(done.stdout.split())


def test_what_reads_run_files_never_loads_torch():
    assert loaded_by(WITHOUT_TORCH, ("torch",)) == set()


def test_commands_and_the_supervisor_load_what_they_draw_with_when_they_draw():
    assert loaded_by(LIGHT, HEAVY) == set()
