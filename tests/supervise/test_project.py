"""Requests of a project's files: its benchmarks, and options."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
from sources import lay

from gpubench.errors import UsageError
from gpubench.runfile import options
from gpubench.supervise.process import suite
from gpubench.supervise.project import Project, described, project_options, read_project

DECLARED = '[tool.gpubench]\npaths = ["bench"]\n'
HERE, NAMED = "found in this project", "[tool.gpubench] in pyproject.toml"


@pytest.mark.parametrize(
    ("files", "start", "paths", "source"),
    [
        (["benchmarks/test_a.py"], "", ["benchmarks"], HERE),
        (["tests/benchmarks/test_a.py", "tests/test_a.py"], "", ["tests/benchmarks"], HERE),
        (["benchmarks/test_a.py", "tests/benchmarks/test_a.py", "pyproject.toml"], "", ["benchmarks"], HERE),
        # above too, but within the project alone
        (["benchmarks/nn/test_a.py", "pyproject.toml"], "benchmarks/nn", ["benchmarks"], HERE),
        (["benchmarks/nn/test_a.py"], "benchmarks/nn", [], ""),
        (["benchmarks/nn/test_a.py", "benchmarks/nn/.git/HEAD", "pyproject.toml"], "benchmarks/nn", [], ""),
        # what is declared comes first
        (["benchmarks/test_a.py", "bench/test_b.py", "tests/test_c.py", DECLARED], "", ["bench"], NAMED),
        (["bench/test_b.py", "tests/test_c.py", DECLARED], "tests", ["bench"], NAMED),
        (["benchmarks/test_a.py", '[tool.gpubench]\npreset = "full"\n'], "", ["benchmarks"], HERE),
        # one's own tests aren't searched for benchmarks
        (["tests/test_a.py", "test_b.py", "benchmarks", "pyproject.toml"], "", [], ""),
    ],
)  # fmt: skip
def test_benchmarks_are_found(tmp_path, files, start, paths, source):
    lay(tmp_path, {"pyproject.toml" if "\n" in name else name: name if "\n" in name else "" for name in files})
    project = read_project(tmp_path / start, upward=bool(start))
    assert [str(Path(path).relative_to(tmp_path)) for path in project.paths] == paths
    assert project.source == source


def test_options_are_read_above_on_request_only(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.gpubench]\npreset = "full"\n')
    (tmp_path / "below").mkdir()
    assert read_project(tmp_path / "below", upward=True).options == {"preset": "full"}
    assert read_project(tmp_path / "below").options == {}


def test_the_suite_is_no_folder_of_its_project():
    assert read_project(suite().parent) == Project()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[tool.gpubench]\npaths = 3\n", "paths must be a list of files and folders"),
        ("[tool.gpubench]\npaths = ['gone']\n", "gone: no such file or folder"),
        ("[tool]\ngpubench = 3\n", "must be a table"),
        ("[tool.gpubench", "can't be read"),
        (f"x = {'[' * 5000}{']' * 5000}", "can't be read: nested too deep"),
        ("x = '\ud800'", "can't be read: 'utf-8' codec"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, content, complaint):
    (tmp_path / "pyproject.toml").write_text(content, errors="surrogatepass")
    with pytest.raises(UsageError, match=complaint) as caught:
        read_project(tmp_path)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_settings_without_a_table_of_tools_or_in_a_pipe_are_none(tmp_path):
    (tmp_path / "pyproject.toml").write_text("tool = 3\n")
    assert read_project(tmp_path) == Project()
    (tmp_path / "below").mkdir()
    os.mkfifo(tmp_path / "below/pyproject.toml")
    assert read_project(tmp_path / "below", upward=True) == Project()


def test_what_is_measured_is_described(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert described([str(suite())], "") == "the suite that comes with gpubench"
    files = [str(tmp_path / f"tests/{name}.py") for name in "abcde"]
    shown = described(files, HERE)
    assert shown == f"tests/a.py, tests/b.py, tests/c.py and 2 more ({HERE})"
    assert described(["a.py"], "") == "a.py"


def filled(values: dict[str, object], only: str = "", **given: object) -> dict[str, object]:
    wanted = ("device", "preset", "threads", "processes", "threshold", "deadline")
    args = argparse.Namespace(**dict.fromkeys(wanted) | given)
    options.fill(args, values, "pyproject.toml", only)
    return {name: value for name, value in vars(args).items() if value is not None}


def test_options_that_no_command_line_sets_are_the_project_s():
    values = {"devices": ["cpu", "demo"], "preset": "full", "threads": 2, "processes": 5, "deadline": 9, "budget": 30}
    expected = {"device": ["cpu", "demo"], "preset": "smoke", "threads": 2, "processes": 5, "deadline": 9.0}
    assert filled(values, preset="smoke") == expected
    assert filled({"devices": "cpu", "threshold": 0.1}) == {"device": ["cpu"], "threshold": 0.1}
    assert filled({"threshold": "3%", "preset": "full"}, only="threshold") == {"threshold": 0.03}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"device": "cpu"}, "unknown key 'device': did you mean devices"),
        ({"nonsense": 1}, "unknown key 'nonsense': choose from paths, devices, "),
        ({"preset": "huge"}, "unknown preset 'huge': choose from smoke, glance, quick, full"),
        ({"threads": 2.5}, "threads must be a whole number"),
        ({"processes": True}, "processes can't be True"),
        ({"processes": 0}, "processes must be 1 or more"),
        *(({"threshold": words}, "write 5% or 0.05") for words in ("5", "nan", "-5%")),
        ({"preset": ["full"]}, "preset can't be"),
        ({"seed": 1}, "unknown key 'seed'"),
        ({"deadline": -1}, "deadline must be seconds above 0"),
    ],
)
def test_a_key_or_value_that_does_not_exist_is_named(values, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        filled(values)
    assert str(caught.value).startswith("pyproject.toml: [tool.gpubench]: ")


# What pytest itself would do ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def without_addopts(monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


@pytest.mark.parametrize("named", [["bench"], ["bench/test_a.py"], ["bench/test_a.py::test_a", "tests"]])
@pytest.mark.parametrize(
    "written",
    [
        {}, {"pytest.ini": ""}, {"pytest.toml": ""}, {".pytest.ini": "[other]\n"}, {"pyproject.toml": "[project]\n"},
        {"pyproject.toml": '[tool.pytest]\naddopts = ["-q"]\n'}, {"pyproject.toml": "[tool.pytest.ini_options]\n"},
        {"setup.py": "", "tox.ini": "[tox]\n"}, {"tox.ini": "[pytest]\n"}, {"setup.cfg": "[tool:pytest]\n"},
        {"bench/pyproject.toml": "", "tox.ini": "[pytest]\n"}, {"pyproject.toml": "[tool.pytest]\n", "setup.py": ""},
    ],
)  # fmt: skip
@pytest.mark.parametrize("start", [".", "bench"])
def test_the_root_folder_is_that_of_pytest(tmp_path, start, written, named):
    from _pytest.config.findpaths import determine_setup

    place = tmp_path / "project"
    lay(place, {"bench/test_a.py": "", "tests/test_b.py": ""} | written)
    paths, folder = [str(place / name) for name in named], place / start
    given = project_options(paths, folder)
    nothing = {"inifile": None, "override_ini": None, "args": paths, "invocation_dir": folder}
    expected, *_ = determine_setup(rootdir_cmd_arg=None, **nothing)
    assert given == ([] if written else [f"--rootdir={expected}"])


def test_files_elsewhere_are_named_from_their_own_folder_on(tmp_path, monkeypatch):
    """pytest would name them from the common folder on: home/me/secret/test_a.py."""
    for name in ("me", "you/secret"):
        (tmp_path / name).mkdir(parents=True)
    path = tmp_path / "you/secret/test_a.py"
    path.write_text("")
    assert project_options([str(path)], tmp_path / "me") == [f"--rootdir={path.parent}"]
    monkeypatch.chdir(tmp_path / "you")  # of a side elsewhere that measures files from here
    assert project_options([str(path)], tmp_path / "me") == [f"--rootdir={tmp_path / 'you'}"]


def test_the_suite_and_a_root_or_file_of_ones_own_are_left_alone(tmp_path, monkeypatch):
    path = str(tmp_path / "test_a.py")
    assert project_options([str(suite()), str(suite() / "test_matmul.py")], Path.cwd()) == []
    assert project_options([path], tmp_path) != []
    for given in (["-c", "other.ini"], ["-cother.ini"], ["--config-file=other.ini"], ["--rootdir=/"]):
        assert project_options([path], tmp_path, given) == []


def test_what_is_taken_over_of_a_project_s_options_is_what_its_modules_need(tmp_path, monkeypatch):
    """Where a plugin or a configuration file is, and how modules are imported."""
    path = str(tmp_path / "test_a.py")
    words = "-ra -xvs -n 2 --cov=src -p no:benchmark -p mine --import-mode importlib -m 'not slow' --lf -c ignored.ini"
    (tmp_path / "tox.ini").write_text(f"[pytest]\naddopts = {words}\n")
    taken = ["-p", "mine", "--import-mode=importlib"]
    assert project_options([path], tmp_path) == taken
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q --rootdir=/ -p yours -k 'a -p b'")
    assert project_options([path], tmp_path) == [*taken, "-p", "yours"]
    (tmp_path / "other.ini").write_text("[pytest]\naddopts = -v -p theirs\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-c other.ini")
    assert project_options([path], tmp_path) == ["-p", "theirs", "-c", "other.ini"]
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q -p")
    assert project_options([path], tmp_path) == taken


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("[pytest\n", r"tox\.ini"), ("[pytest]\naddopts = -k 'x\n", "addopts or PYTEST_ADDOPTS: No closing quotation"),
    ],
)  # fmt: skip
def test_settings_that_pytest_cannot_read_are_named(tmp_path, monkeypatch, written, complaint):
    (tmp_path / "tox.ini").write_text(written)
    with pytest.raises(UsageError, match=complaint):
        project_options([str(tmp_path / "test_a.py")], tmp_path)
    (tmp_path / "tox.ini").unlink()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = [1, '-pmine']\n")
    assert project_options([str(tmp_path / "test_a.py")], tmp_path) == ["-p", "mine"]
    monkeypatch.setenv("PYTEST_ADDOPTS", '-k "x')
    with pytest.raises(UsageError, match="No closing quotation"):
        project_options([str(tmp_path / "test_a.py")], tmp_path)
