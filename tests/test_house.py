"""Promises of the layout: module names that occur once, functions of a screen, public names, and heavy packages where
they are needed. The direction of imports is in pyproject.toml (``tool.importlinter``), for lint."""

from __future__ import annotations

import ast
import builtins
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import gpubench

PACKAGE = Path(__file__).resolve().parents[1] / "gpubench"
PUBLISHED = PACKAGE.parent / "results/xeon-2-cores"
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = [path for path in FILES if not path.name.startswith("__")]
LONGEST_FUNCTION = 60
LIGHT = ("commands", "runfile", "supervise")
DRAWING = ("torch", "pandas", "matplotlib")
HEAVY = (*DRAWING, "numpy", "scipy", "rich")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_no_two_modules_have_one_name():
    places = defaultdict(list)
    for path in MODULES:
        if path.parent.name != "commands":  # a command may be called like a room
            places[path.stem].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_function_fits_on_a_screen():
    lengths = {
        f"{name_of(path)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def loaded_by(code: str, watched: tuple[str, ...]) -> set[str]:
    """Which of the ``watched`` packages another Python has loaded once it has run the code."""
    names = f"print('loaded', *{{name.partition('.')[0] for name in sys.modules}} & set({watched}))"
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", f"import importlib, sys\n{code}\n{names}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    word, *names_loaded = done.stdout.splitlines()[-1].split()
    assert word == "loaded"
    return set(names_loaded)


def importing(rooms: tuple[str, ...]) -> str:
    """Code that imports every module of the rooms."""
    modules = [f"gpubench.{name_of(path)[:-3].replace('/', '.')}" for path in MODULES]
    return f"for module in {[each for each in modules if each.split('.')[1] in rooms]}: importlib.import_module(module)"


def running(*words: str) -> str:
    """Code that runs a command on the published results."""
    return f"from gpubench.commands.cli import main\nassert main({[words[0], str(PUBLISHED), *words[1:]]}) == 0"


EXPRESSION = """from pathlib import Path
from gpubench.measure.session import Mode, Session, Settings
from gpubench.measure.expression import expressions
from gpubench.plugin.expressions import Expressions
settings = Settings(devices=("cpu",), preset="smoke", ceilings=False, brief=True)
Expressions(expressions(["1 + 1"]), Session(settings, Mode.RUN)).run(Path("journal"))"""
HELP = """from gpubench.commands import cli
[cli.parser(name).format_help() for names in cli.COMMANDS.values() for name in names]"""


@pytest.mark.parametrize(
    ("code", "unneeded"),
    [
        ("import gpubench; gpubench.__version__", HEAVY),
        # freezegun reads all names, in the middle of a test; pandas, imported meanwhile, ended the interpreter
        ("import gpubench; [getattr(gpubench, name) for name in dir(gpubench)]", HEAVY),
        ("from gpubench import read, Run", DRAWING),
        (f"import gpubench; r = gpubench.load({str(PUBLISHED)!r}); r.df, str(r)", ("torch", "matplotlib")),
        (importing(LIGHT), HEAVY),
        ("from gpubench.commands.cli import main; main([])", (*HEAVY, "pytest")),
        (HELP, (*HEAVY, "pytest")),
        (EXPRESSION, ("pytest", "_pytest", "pandas", "matplotlib")),
        (running("show"), (*DRAWING, "scipy", "numpy")),
        (running("compare", str(PUBLISHED)), DRAWING),
        (running("show", "--format", "csv"), DRAWING),
        (running("estimate", "--gpu", "L4", "--format", "csv"), DRAWING),
        (running("report", "--charts", "none", "-o", "out"), DRAWING),
    ],
    ids=["package", "its names", "reading", "a notebook", "commands and supervisor", "no command", "help", "expression",
         "show", "compare", "csv", "estimate", "report"],
)  # fmt: skip
def test_heavy_packages_are_loaded_where_they_are_needed(code, unneeded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loaded_by(code, unneeded) == set()


def test_every_public_name_leads_to_its_home():
    for name in set(gpubench.__all__) - {"__version__"}:
        assert getattr(gpubench, name).__name__ == name
    assert sorted(gpubench._HOMES) == sorted(set(gpubench.__all__) - {"__version__"})
    with pytest.raises(AttributeError, match="no attribute 'tiemr'"):
        gpubench.tiemr  # noqa: B018


WORDS = {"what": 1.0, "those|whose|of which|that of": 1.0}
"""Words that stand for a noun, and how many of 1,000 words of a room's docstrings they may be."""
ROOMS = [*sorted(path.parent for path in PACKAGE.glob("*/__init__.py")), Path(__file__).parent]


def texts_of(path: Path) -> list[str]:
    """The docstrings of a module and its constants."""
    values = [node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)]
    return [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
@pytest.mark.parametrize("words", WORDS)
def test_docstrings_say_the_noun(room, words):
    text = " ".join(text for path in room.rglob("*.py") for text in texts_of(path))
    count = len(re.findall(rf"\b({words})\b", text, re.IGNORECASE))
    assert 1000 * count <= WORDS[words] * len(text.split())


SIGNS = {*"‡≥≤†§—≈×±…", "*", "~", "%", "can't tell", "every size"}
"""Texts that the package itself writes beside and in place of numbers."""
SEARCHING = ("startswith", "endswith", "removeprefix", "removesuffix", "replace", "partition", "split", "find", "count")
WORDS_OF_OURS = ("simulated", "modelled", "threads")
"""Words that the package itself puts into names and messages; the last is a key of facts too."""
READING = ("report", "compare", "estimate", "commands")


def decides_by_a_sign(node: ast.AST) -> bool:
    """Whether a comparison or a search looks for a sign or a word of ours in a text, a pattern matches one, or a name
    is compared with itself in other words."""
    if isinstance(node, ast.Compare):
        sides = (node.left, *node.comparators)
        calls = [side for side in sides if isinstance(side, ast.Call) and side.args]
        renamed = [ast.dump(call.args[0]) for call in calls if not hasattr(builtins, ast.unparse(call.func))]
        within = isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(node.left, ast.Constant)
        return (
            any(isinstance(side, ast.Constant) and side.value in SIGNS for side in sides)
            or any(ast.dump(side) in renamed for side in sides)
            or (within and node.left.value in WORDS_OF_OURS[:2])
        )
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return False
    texts = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)]
    of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
    if of_re:
        patterns = [text for text in texts if isinstance(text, str)]
        return any({*"‡≥≤†§≈×±"} & {*text} or any(word in text for word in WORDS_OF_OURS) for text in patterns)
    signs = (text for text in texts if isinstance(text, str) and (text.strip() in SIGNS or text == ": "))
    return node.func.attr in SEARCHING and any(signs)


def test_no_code_that_reads_decides_by_a_sign_in_a_text():
    """A number keeps its state until it is printed: who needs the state asks the number."""
    found = {
        f"{name_of(path)}:{node.lineno}"
        for path in FILES
        if name_of(path).split("/")[0] in READING
        for node in ast.walk(tree(path))
        if decides_by_a_sign(node) and not (isinstance(node, ast.Compare) and "unit" in ast.unparse(node))
    }
    assert found == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('"≥" in cell', True), ('cell == "—"', True), ('told.startswith("≥ ")', True), ('cell.endswith("%")', True),
        ('re.compile(r"\\\\d×")', True), ('re.sub(r", \\\\d+ threads?", "", name)', True),
        ('reason.partition(": ")', True), ('"simulated" in name.lower()', True), ('n == int(n)', False),
        ("shown_name(case.name) != case.name", True),
        ('cell.state is State.AT_LEAST', False), ('name.split("::")', False),
    ],
)  # fmt: skip
def test_a_search_for_a_sign_is_found(code, found):
    assert any(map(decides_by_a_sign, ast.walk(ast.parse(code)))) is found
