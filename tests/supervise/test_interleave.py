"""Turns of two environments: their order, their end, their runs, and refusals."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import records
from inprocess import gpubench
from sources import lay

from gpubench.commands.cli import main
from gpubench.errors import UsageError
from gpubench.runfile.runs import read
from gpubench.runfile.schema import Case
from gpubench.supervise import interleave, process
from gpubench.supervise.interleave import Environment, Interleave, OutOfTime, SameCode, find_environment
from gpubench.supervise.process import Interpreter, suite
from gpubench.supervise.supervisor import Unable

pytestmark = pytest.mark.usefixtures("no_ceilings")

CASES = {name: Case(f"a.{name}", "cpu", "float32", {"n": 1}, devices=("cpu",)) for name in "ab"}


class Fake:
    """Stands in for a supervisor with a process: gives its messages at once."""

    def __init__(self, folder: Path, *args: Any, interpreter: Interpreter, **_more: Any) -> None:
        self.folder, self.interpreter, self.interrupted = folder, interpreter, False
        self.events: list[dict[str, Any]] = []
        self.paths, self.options, self.note = args[0], args[1], args[-1]
        Fake.made.append(self)

    def measure(self) -> None:
        if self.interpreter.python == "broken":
            raise Unable(4, "No module named gpubench")
        if self.interpreter.python == "older":
            raise Unable(1, "exited with 1: older: No module named gpubench.supervise.child")
        if self.interpreter.python == "other":  # its session can't be read, its benchmark can
            self.events = records.begun_and_ended(0, "x.py::test_a", CASES["a"], 1e-3)
            raise Unable(-9, "its journal can't be read")
        tests = {f"{path}::test_{name}": case for path in self.paths for name, case in CASES.items()}
        tests = {name: case for name, case in tests.items() if f"--deselect={name}" not in self.options}
        session = records.session(0, tests, estimated_s=60.0, notices=Fake.notices)
        session["fingerprint"]["threads"] = 2 if self is Fake.made[0] else 1
        self.events = [session, *records.begun_and_ended(0, *next(iter(tests.items())), 1e-3)]
        for event in [{"event": "run"}, *self.events]:
            self.note(event)  # when it is only to collect, what follows the session is not reached
        Fake.ended.append(self.folder.name)
        self.interrupted = len(Fake.ended) == Fake.interrupt_at

    made: ClassVar[list[Fake]]
    ended: ClassVar[list[str]]
    interrupt_at: ClassVar[int | None]
    notices: ClassVar[list[str]] = []


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interleave:
    monkeypatch.setattr(interleave, "Supervisor", Fake)
    Fake.made, Fake.ended, Fake.interrupt_at = [], [], None
    sides = [Environment(name, Interpreter(), ("x.py",)) for name in ("base", "new")]
    return Interleave(tmp_path, *sides, [], 1.0, lambda text: None)


def test_collecting_measures_nothing_and_the_order_turns_round_with_each_pair(turns: Interleave) -> None:
    turns.new = Environment("new", Interpreter(), ("y.py",))
    turns.collect()
    assert turns.collected == {"base": ["x.py::test_a", "x.py::test_b"], "new": ["y.py::test_a", "y.py::test_b"]}
    assert (Fake.ended, (turns.folder / "turns").exists()) == ([], False)
    pairs = [turns.pair(number, "screen") for number in range(3)]
    assert [name.partition("-")[2] for name in Fake.ended] == ["base", "new", "new", "base", "base", "new"]
    for number, (base, new) in enumerate(filter(None, pairs)):
        assert (base.parent.name, new.parent.name) == ("base", "new")
        assert base.name == new.name == f"{number:03d}.json"
    run = read(turns.folder / "new/002.json")
    assert ([result.status for result in run.results], run.stage) == (["ok", "skipped"], "screen")


def test_a_pair_of_some_tests_leaves_the_others_out_and_has_an_estimate(turns: Interleave) -> None:
    clock = iter(range(0, 10_000, 1))  # moves by 1 s whenever it is read
    turns.now = lambda: float(next(clock))
    turns.collect()
    Fake.made.clear()
    everything = turns.pair_s()
    left_out = {"base": ["x.py::test_b"], "new": ["x.py::test_a"]}
    for number in (0, 2):  # the second one after a turn of some tests
        turns.pair(number, "confirm", left_out)
    assert [[word for word in each.options if "deselect" in word] for each in Fake.made] == 2 * [
        ["--deselect=x.py::test_a"], ["--deselect=x.py::test_b"]
    ]  # fmt: skip
    assert 0 < turns.pair_s(left_out) < everything


def test_all_turns_use_the_fewest_threads_that_a_side_chose(turns: Interleave, monkeypatch) -> None:
    """The machine was idle when base was collected, and busy for new: their times would not be comparable."""
    said: list[str] = []
    turns.say = said.append
    monkeypatch.setattr(Fake, "notices", ["Measuring with 1 thread"])
    turns.collect()
    turns.pair(0, "screen")
    asked = [[word for word in each.options if "threads" in word] for each in Fake.made]
    assert asked == [[], [], ["--gpubench-threads=1"], ["--gpubench-threads=1"]]
    assert said == ["Measuring with 1 thread"]


def test_a_pair_that_is_out_of_time_or_interrupted_does_not_count(turns: Interleave) -> None:
    turns.collect()
    turns.now = iter(range(100)).__next__
    turns.stop_at = 2  # the clock was read twice when the first benchmark begins
    with pytest.raises(OutOfTime):
        turns.pair(0, "screen")
    assert Fake.ended == []
    turns.stop_at, started = -1, len(Fake.made)
    with pytest.raises(OutOfTime):
        turns.pair(3, "screen")
    assert len(Fake.made) == started  # no process begins
    turns.stop_at, Fake.interrupt_at = 100, 2
    assert (turns.pair(1, "screen"), turns.interrupted) == (None, True)
    assert turns.pair(2, "screen") is None  # as after a signal between two processes
    assert Fake.ended == ["001-new", "001-base"]
    assert not (turns.folder / "base").exists()


def test_an_environment_that_cant_measure_is_named(turns: Interleave) -> None:
    turns.collect()
    turns.new = Environment("new", Interpreter("broken"), ("x.py",))
    with pytest.raises(UsageError, match=r"new: broken can't measure: No module named gpubench: see .*000-new/run.log"):
        turns.pair(0, "screen")
    for python, words in (
        ("broken", "No module named gpubench"), ("other", "its journal can't be read"),
        ("older", r".* gpubench\.supervise\.child: too old, install one version on both sides"),
    ):  # fmt: skip
        turns.new = Environment("new", Interpreter(python), ("x.py",))
        with pytest.raises(UsageError, match=f"new: {python} can't measure: {words}$"):
            turns.collect()


def python(folder: Path, *options: str) -> str:
    """A Python there that starts ours; with ``-I -S`` one that has nothing installed."""
    path = folder / "bin/python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(options)} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_checkouts_environment_is_used_only_if_it_can_measure(tmp_path: Path, monkeypatch) -> None:
    def used() -> str:
        return find_environment("base", str(tmp_path), []).interpreter.python

    python(tmp_path / ".venv", "-I", "-S")  # as one that holds only tox
    assert used() == sys.executable
    measure = python(tmp_path / ".tox/measure")
    assert used() == measure
    shutil.rmtree(tmp_path / ".venv")
    python(tmp_path / ".venv")
    assert used() == measure
    Path(measure).write_text("no program")
    assert used() == str(tmp_path / ".venv/bin/python")
    Path(measure).write_text("#!/bin/sh\nexec yes\n")
    monkeypatch.setattr(interleave, "_PATIENCE_S", 0.3)
    with pytest.raises(UsageError, match=r"\.tox/measure/bin/python: doesn't answer within 0.3 s"):
        used()


def test_a_checkout_uses_its_own_code_files_and_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    files = ("checkout/src/a.py", "checkout/benchmarks/test_speed.py", "checkout/mine.py", "other/theirs.py")
    lay(tmp_path, dict.fromkeys(files, ""))
    python(checkout / ".venv")
    monkeypatch.chdir(other)
    mine = find_environment("base", str(checkout), ["mine.py::test_a", "theirs.py"])
    assert mine.interpreter.python == str(checkout / ".venv/bin/python")
    assert mine.interpreter.folder == checkout
    assert mine.interpreter.imports == (str(checkout), str(checkout / "src"))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    first, second, *others = process._environment(mine.interpreter.imports)["PYTHONPATH"].split(os.pathsep)
    assert ((first, second), "/elsewhere" in others) == (mine.interpreter.imports, True)
    assert mine.paths == (f"{checkout}/mine.py::test_a", f"{other}/theirs.py")
    assert find_environment("base", str(checkout), []).paths == (str(checkout / "benchmarks"),)
    assert find_environment("new", sys.executable, []).paths == (str(suite()),)
    with pytest.raises(UsageError, match=r"gone\.py: no such file or folder, neither here nor in"):
        find_environment("base", str(checkout), ["gone.py"])
    with pytest.raises(UsageError, match="neither a Python that can be started nor the folder of a checkout"):
        find_environment("new", "no-such-python", [])
    with pytest.raises(UsageError, match=r"for a commit, git worktree add \.\./base HEAD~1 makes the folder \.\./base"):
        find_environment("base", "HEAD~1", [])
    lay(tmp_path, {"results/run.json": "{}"})
    with pytest.raises(UsageError, match="holds results files and no code: leave out --interleave"):
        find_environment("base", str(tmp_path / "results"), [])
    (tmp_path / "results/mine.py").touch()
    assert find_environment("base", str(tmp_path / "results"), []).paths == (str(suite()),)


SOURCE = """
import time

def test_sleep(gpubench):
    gpubench.declare(check=False)(lambda x: x.is_meta or time.sleep(DELAY), gpubench.randn(8))
"""
WORDS = ("before", "after", "--paths", "test_mine.py", "--device=cpu", "--threads=1")


def compare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return gpubench("compare", "--interleave", *words, cwd=folder)


def test_smoke_in_turn_tries_each_side_once_and_proves_nothing(tmp_path: Path) -> None:
    for side, delay in (("before", "0.0001"), ("after", "0.05")):
        lay(tmp_path / side, {"test_mine.py": SOURCE.replace("DELAY", delay)})
    (tmp_path / "out-compare-1").mkdir()
    done = compare(tmp_path, *WORDS, "--preset=smoke", "--format=json")
    assert done.returncode == 0, done.stderr
    before, after = (read(tmp_path / "out-compare-2" / side / "000.json").results[0] for side in ("base", "new"))
    assert after.times.median_s > 2 * before.times.median_s
    assert f"base measured with {sys.executable}, new with {sys.executable}" in done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["pairs"], document["cases"][0]["cause"]) == ("inconclusive", 1, "smoke")
    assert "smoke runs prove nothing" in document["notes"][0]
    one_pair = "one pair shows that both sides can be measured"
    assert (one_pair in done.stderr, "--budget" in done.stderr) == (True, False)


def test_each_side_measures_its_own_project_and_says_so(tmp_path: Path) -> None:
    for side, name in (("before", "add"), ("after", "multiply")):
        files = {"speed/test_it.py": f"def test_{name}(benchmark): benchmark(sum, [1])\n"}
        lay(tmp_path / side, files | {"pyproject.toml": '[tool.gpubench]\npaths = ["speed"]\n'})
    done = compare(tmp_path, "before", "after")
    assert done.returncode == 3, done.stderr
    first, *_, last = done.stderr.splitlines()
    assert "base measures before/speed ([tool.gpubench] in pyproject.toml), new after/speed ([tool" in first
    assert ("it.add" in last, "it.multiply" in last) == (True, True)


def test_each_side_has_its_own_root_and_the_options_of_its_user(turns: Interleave, monkeypatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p mine -n 2")
    folders = {name: turns.folder / name / "bench" for name in ("base", "new")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    sides = [Environment(name, Interpreter(folder=each.parent), (str(each),)) for name, each in folders.items()]
    Interleave(turns.folder, *sides, ["-q"], 1.0, lambda text: None).collect()
    roots = [f"--rootdir={turns.folder / name}" for name in folders]
    assert [each.options for each in Fake.made] == [
        [root, "-p", "mine", "-q", "--gpubench-no-ceilings"] for root in roots
    ]


def installed(site: Path, name: str, file: str, origin: Path | None = None) -> str:
    """A distribution of one file in an environment, as pip lays it; the file's path."""
    url = {} if origin is None else {f"{name}-1.dist-info/direct_url.json": json.dumps({"url": origin.as_uri()})}
    record = f"{name}-1.dist-info/METADATA,,\n{file},,\n"
    lay(site, {f"{name}-1.dist-info/METADATA": f"Name: {name}\nVersion: 1\n", f"{name}-1.dist-info/RECORD": record})
    lay(site, {**url, file: ""})
    return str(site / file)


FILES = {"quick": "quick/__init__.py", "_quick": "_quick.so", "other": "other/__init__.py", "ns.core": "ns/core.py",
         "helpers": "helpers.py", "test_x": "test_x.py"}  # fmt: skip
PLACES = {"base": "base/python", "new": "new/python", "third": "third", "bench": "new/benchmarks"}
BOTH = "both sides import quick from "
LOADED = {
    "each its own": ("quick base", "quick new", ""),
    "an editable install of base": ("quick base", "quick base", BOTH),
    "an editable install of new": ("quick new", "quick new", BOTH),
    "an install of new": ("quick env<new", "quick env<new", BOTH),
    "an install of base, and new's own": ("quick env<base", "quick new", ""),
    "an install of new, and new's own": ("quick env<new", "quick new", "a side imports quick from "),
    "a release in the environment": ("quick env", "quick env", BOTH),
    "an extension in the environment": ("quick base, _quick env", "quick new, _quick env", "both sides import _quick"),
    "environments of their own": ("quick venv", "quick venv", ""),
    "a third checkout": ("quick third", "quick third", BOTH),
    "a link in each checkout": ("quick link", "quick link", BOTH),
    "a namespace package": ("ns.core third", "ns.core third", "both sides import ns from "),
    "another library": ("quick base, other env, helpers third", "quick new, other env, helpers third", ""),
    "benchmarks of new for both": ("quick base, test_x bench", "quick new, test_x bench", ""),
}
"""The modules that base and new have loaded, with their places, and the words of the complaint."""


def loaded(tmp_path: Path, side: str, modules: str) -> dict[str, str]:
    """The files of modules such as ``quick env<base``: installed in a shared environment, from base."""
    files = {}
    for name, place in (each.split(" ") for each in modules.split(", ")):
        kind, _, origin = place.partition("<")
        if kind == "link":
            (tmp_path / side / "quick").symlink_to(tmp_path / "third/quick")
        if kind in ("env", "venv"):
            site = tmp_path / ("env" if kind == "env" else f"{side}/.venv") / "lib/site-packages"
            origin = side if kind == "venv" else origin
            files[name] = installed(site, name.strip("_"), FILES[name], tmp_path / origin if origin else None)
        else:
            files[name] = str(tmp_path / PLACES.get(kind, side) / FILES[name])
    return files


@pytest.mark.parametrize("case", LOADED)
def test_sides_that_import_the_same_code_are_told_from_sides_with_code_of_their_own(tmp_path: Path, case: str) -> None:
    named = {"a release in the environment": {"setup.py": "setup(name='Quick')\n"},
             "an extension in the environment": {"setup.cfg": "[metadata]\nname = quick\n"}}  # fmt: skip
    project = {"python/quick/__init__.py": "", "lib/ns/core.py": ""}
    project |= named.get(case, {"pyproject.toml": '[project]\nname = "Quick"\n'})
    for folder in ("base", "new"):
        lay(tmp_path / folder, project)
    lay(tmp_path, dict.fromkeys(("third/quick/__init__.py", "third/ns/core.py", "third/helpers.py"), ""))
    *modules, words = LOADED[case]
    paths = [str(tmp_path / "new/benchmarks/test_x.py")]
    sides = [
        interleave.Checkout(tmp_path / side, paths, loaded(tmp_path, side, each))
        for side, each in zip(("base", "new"), modules, strict=True)
    ]
    said = interleave.shared_code(*sides)
    assert (said.startswith(words), bool(said)) == (True, bool(words)), said


def test_both_sides_with_one_code_end_with_two_and_how_to_separate_them(tmp_path: Path) -> None:
    """A conftest puts one checkout first for both; the code is imported when a test runs."""
    for side in ("before", "after"):
        first = f"import sys\nsys.path.insert(0, {str(tmp_path / 'after/lib')!r})\n"
        test = "def test_work(benchmark):\n    import quick\n    benchmark.pedantic(quick.work, rounds=5)\n"
        files = {"lib/quick.py": "def work(): pass\n", "benchmarks/conftest.py": first, "benchmarks/test_it.py": test}
        lay(tmp_path / side, files)
    done = compare(tmp_path, "before", "after", "--preset=smoke")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"both sides import quick from {tmp_path}/after/lib/quick.py: install each in an env" in done.stderr
    assert "python3 -m venv before/.venv && before/.venv/bin/pip install" in done.stderr


def test_a_library_that_was_loaded_in_two_versions_is_named(tmp_path: Path) -> None:
    sites = [tmp_path / side / "lib/site-packages" for side in ("base", "new")]
    files = [{"fast": installed(site, "Fast.Frames", "fast/__init__.py")} for site in sites]
    for site, version in zip(sites, ("1.0", "1.1"), strict=True):
        installed(site, "unused", "unused/__init__.py")
        for name in ("Fast.Frames", "unused"):
            (site / f"{name}-1.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    assert interleave.differing_libraries(*files) == ["fast-frames 1.0 → 1.1"]


@pytest.fixture
def coded(turns: Interleave, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """The modules that each side says it has loaded, of two checkouts."""
    modules: dict[str, dict[str, str]] = {}
    for side in (turns.base, turns.new):
        folder = turns.folder / f"code-{side.name}"
        lay(folder, {"quick.py": side.name, "x.py": ""})
        setattr(turns, side.name, replace(side, interpreter=Interpreter(folder=folder), paths=(str(folder / "x.py"),)))
        modules[side.name] = {"quick": str(folder / "quick.py")}
    usual = records.session

    def session(*args: Any, **more: Any) -> dict[str, Any]:
        name = Fake.made[-1].interpreter.folder.name.partition("-")[2]
        return usual(*args, **more) | {"modules": modules[name]}

    monkeypatch.setattr(records, "session", session)
    return modules


def test_code_that_changes_or_is_loaded_late_ends_the_comparison(turns: Interleave, coded) -> None:
    turns.collect()
    assert turns.pair(0, "screen")
    (code := Path(coded["new"]["quick"])).write_text("another checkout")
    with pytest.raises(UsageError, match=r"new: .*code-new/quick\.py has changed while it was measured"):
        turns.pair(1, "screen")
    assert not (turns.folder / "base/001.json").exists()
    code.write_text("new")
    coded["base"]["late"] = coded["new"]["quick"]
    with pytest.raises(SameCode, match="a side imports late from"):
        turns.pair(2, "screen")


def test_a_pair_whose_second_file_cant_be_written_leaves_none(turns: Interleave, monkeypatch) -> None:
    turns.collect()
    turns.pair(0, "screen")
    shutil.rmtree(turns.folder / "new")
    (turns.folder / "new").write_text("in the way")
    with pytest.raises(UsageError):
        turns.pair(1, "screen")
    assert [path.name for path in (turns.folder / "base").iterdir()] == ["000.json"]
    (mine := turns.folder / "turns/002-base/mine").parent.mkdir()
    mine.touch()
    with pytest.raises(UsageError, match="turns/002-base: can't write there: File exists"):
        turns.pair(2, "screen")
    assert mine.exists()
    shutil.rmtree(turns.folder / "turns")
    with pytest.raises(UsageError, match="the folder of results has gone"):
        turns.pair(2, "screen")


class Faulty(Fake):
    """Stands in for the process of a turn, in which ``fault`` happens to new from turn ``at`` on; turn 0 collects."""

    fault: ClassVar[Any]
    at: ClassVar[int]
    turns: ClassVar[dict[str, int]]

    def measure(self) -> None:
        side = self.interpreter.folder.name
        turn = Faulty.turns[side] = Faulty.turns.get(side, -1) + 1
        tests = {f"bench/test_x.py::test_{name}": case for name, case in CASES.items()}
        self.events = [records.session(0, tests, estimated_s=60.0, notices=[])]
        self.events[0]["fingerprint"]["threads"] = 1
        self.events[0]["gpubench"]["started"] = f"2026-01-31T12:{len(Fake.made):02d}:00+00:00"
        for i, (name, case) in enumerate(tests.items()):
            self.events += records.begun_and_ended(0, name, case, 1e-3 * (1 + turn / 500 + i))
        if side == "new" and turn >= Faulty.at:
            Faulty.fault(self)
        for event in self.events:
            self.note(event)


def raising(error: Exception) -> Any:
    def fault(turn: Faulty) -> None:
        turn.events.clear()
        raise error

    return fault


def saying(*path: Any, **facts: Any) -> Any:
    """Change facts at a place of the events; a fact of ``...`` is removed."""

    def fault(turn: Faulty) -> None:
        place = functools.reduce(lambda part, key: part[key], path, turn.events)
        place.update(facts)
        for name in [name for name, value in facts.items() if value is ...]:
            del place[name]

    return fault


def failing(turn: Faulty) -> None:
    del turn.events[2]["benchmark"]
    turn.events[2] |= {"status": "error", "reason": "mine" * 10_000}


FAULTS = {
    "refuses to start": (raising(Unable(4, "no such option")), {2}), "hangs": (raising(Unable(1, "no end")), {2}),
    "folder gone": (raising(FileNotFoundError(2, "No such file or directory", "/new")), {2}),
    "python not allowed": (raising(PermissionError(13, "Permission denied", "/new/python")), {2}),
    "full disk": (raising(OSError(28, "No space left on device")), {2}),
    "unusable options": (raising(UsageError("mine")), {2}), "no events": (lambda turn: turn.events.clear(), {2, 3}),
    "no notices": (saying(0, notices=...), {0}), "no identities": (saying(0, identities=...), {0}),
    "identities of another kind": (saying(0, identities=["a"]), {0, 2}),
    "notices of another kind": (saying(0, notices=3), {0, 2}), "no fingerprint": (saying(0, fingerprint=...), {0, 2}),
    "no threads": (saying(0, "fingerprint", threads=...), {0}), "no cases": (saying(0, cases=...), {2}),
    "cases of another kind": (saying(0, cases=5), {2}), "no run": (saying(0, gpubench=...), {2}),
    "modules of another kind": (saying(0, modules=["quick"]), {0, 2}),
    "modules that are no texts": (saying(0, modules={"quick": 3}), {0, 2}),
    "no status": (saying(2, status=...), {0}), "no benchmark": (saying(2, benchmark=...), {0, 2}),
    "no statistics": (saying(2, "benchmark", stats=...), {0, 2}),
    **{f"a time of {value}": (saying(2, "benchmark", "stats", median=value), {0, 2})
       for value in (0.0, "fast", float("inf"))},
    "a newer format": (saying(0, "gpubench", schema_version=99), {2}),
    "a smoke run": (saying(0, "gpubench", preset="smoke"), {0}),
    "an older start": (saying(0, "gpubench", started="2020-01-01T00:00:00+00:00"), {0}),
    "no start": (saying(0, "gpubench", started=None), {0, 2}),
    "a test that fails": (failing, {0}), "a test that never ends": (lambda turn: turn.events.pop(2), {0}),
    "a test twice": (lambda turn: turn.events.extend(turn.events[1:3]), {0}),
    "another test": (lambda turn: [one.update(fullname="bench/test_x.py::test_c") for one in turn.events[1:3]], {0}),
}  # fmt: skip


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_turn_loses_no_pair_and_proves_nothing(fault, at, tmp_path, monkeypatch, capsys) -> None:
    for side in ("base", "new"):
        lay(tmp_path / side, {"bench/test_x.py": ""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(interleave, "Supervisor", Faulty)
    Fake.made, Faulty.turns, Faulty.at = [], {}, at
    Faulty.fault, codes = staticmethod(FAULTS[fault][0]), FAULTS[fault][1]
    code = main(["compare", "--interleave", "base", "new", "--paths", "bench", "-o", "out", "--format", "json"])
    printed = capsys.readouterr()
    assert (code in {*codes, 2 if at == 0 else 0}, "Traceback" in printed.err) == (True, False), printed.err
    assert "File exists" not in printed.err  # a failed pair isn't tried again
    folder = tmp_path / "out"
    kept = [sorted(path.name for path in folder.glob(f"{side}/*.json")) for side in ("base", "new")]
    assert kept[0] == kept[1]
    if printed.out:
        document = json.loads(printed.out)
        assert {case["verdict"] for case in document["cases"]} <= {"same", "inconclusive", "no sign of a change"}
        assert all(max(case["processes"].values()) <= len(kept[0]) for case in document["cases"])


def test_two_names_of_one_python_are_no_two_sides(turns: Interleave, monkeypatch, tmp_path: Path) -> None:
    usual = records.session
    monkeypatch.setattr(
        records, "session", lambda *args, **more: usual(*args, **more) | {"modules": {"torch": "/t.py"}}
    )
    for side in ("base", "new"):
        (tmp_path / side).symlink_to(sys.executable)
        setattr(turns, side, replace(getattr(turns, side), interpreter=Interpreter(str(tmp_path / side))))
    with pytest.raises(SameCode, match=r"/base and .*/new are one environment: give one of them twice"):
        turns.collect()
    turns.new = replace(turns.new, interpreter=turns.base.interpreter)
    turns.collect()
