"""What a project's files ask for: its benchmarks, and options."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.runfile import options
from gpubench.supervise.process import suite
from gpubench.supervise.project import Project, described, read_project, root_option

BENCHMARK = "def test_speed(benchmark): benchmark(sum, [1])\n"
PLAIN = "def test_sum(): assert sum([1]) == 1  # no benchmark\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("tests/unit", "tests/.hidden", "tests/build", "bench"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tests/test_sum.py").write_text(PLAIN)
    (tmp_path / "tests/unit/test_speed.py").write_text(BENCHMARK)
    (tmp_path / "tests/unit/speed.py").write_text(BENCHMARK)
    (tmp_path / "tests/build/test_speed.py").write_text(BENCHMARK)
    (tmp_path / "tests/.hidden/test_speed.py").write_text(BENCHMARK)
    (tmp_path / "tests/test_broken.py").write_text("def test_speed(benchmark: ")
    return tmp_path


def names(place: Path, project: Project) -> list[str]:
    return [str(Path(path).relative_to(place)) for path in project.paths]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'),
        ("pytest.ini", "[pytest]\ntestpaths = tests bench\n"),
        ("setup.cfg", "[tool:pytest]\ntestpaths = t*s tests/unit/test_speed.py\n"),
    ],
)
def test_benchmarks_among_the_tests_are_found(place, file, content):
    (place / file).write_text(content)
    project = read_project(place)
    assert names(place, project) == ["tests/unit/test_speed.py"]
    assert project.source == f"testpaths in {file}"


@pytest.mark.parametrize("folder", ["tests", "test"])
def test_benchmarks_among_tests_that_no_setting_names_are_found(place, folder):
    """The suite that comes with gpubench was measured for ten minutes instead."""
    (place / "tests").rename(place / folder)
    (place / "pyproject.toml").touch()
    for start in (place, place / folder / "unit"):
        project = read_project(start, upward=True)
        assert names(place, project) == [f"{folder}/unit/test_speed.py"]
        assert project.source == "found in this project"


def test_files_are_those_that_the_project_collects(place):
    (place / "pytest.ini").write_text("[pytest]\ntestpaths = tests\npython_files = spe*.py\n")
    assert names(place, read_project(place)) == ["tests/unit/speed.py"]


@pytest.mark.parametrize("argument", ["gpubench", "self, benchmark", "*, benchmark_weave", "benchmark, /"])
def test_a_fixture_in_the_signature_makes_a_benchmark(place, argument):
    (place / "tests/unit/test_speed.py").unlink()
    (place / "pytest.ini").write_text("[pytest]\ntestpaths = bench\n")
    assert read_project(place).paths == ()
    (place / "bench/test_it.py").write_text(f"class TestIt:\n    def test_it({argument}): pass\n")
    assert names(place, read_project(place)) == ["bench/test_it.py"]


def test_declared_paths_come_before_tests(place):
    table = '[tool.gpubench]\npaths = ["bench"]\npreset = "full"\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'
    (place / "pyproject.toml").write_text(table)
    project = read_project(place)
    assert names(place, project) == ["bench"]
    assert project.source == "[tool.gpubench] in pyproject.toml"
    assert project.options == {"preset": "full"}
    (place / "pyproject.toml").write_text(table.replace('paths = ["bench"]', ""))
    assert names(place, read_project(place)) == ["tests/unit/test_speed.py"]


def test_options_are_read_without_opening_a_test(place, monkeypatch):
    (place / "pyproject.toml").write_text('[tool.gpubench]\npreset = "full"\n[tool.pytest]\ntestpaths = ["tests"]\n')
    opened = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path.name) or b"")
    assert read_project(place, search=False).options == {"preset": "full"}
    assert opened == []
    read_project(place)
    assert "test_speed.py" in opened


@pytest.fixture
def kept_apart(place):
    """Benchmarks in the folder where most projects keep them, which pytest's settings don't name."""
    shutil.rmtree(place / "tests")
    (place / "benchmarks/nn").mkdir(parents=True)
    (place / "benchmarks/nn/speed_test.py").write_text(BENCHMARK)
    return place


def test_a_folder_of_benchmarks_is_found(kept_apart):
    project = read_project(kept_apart)
    assert names(kept_apart, project) == ["benchmarks"]
    assert project.source == "found in this project"


def test_benchmarks_in_a_folder_of_nothing_else_are_found(tmp_path):
    (tmp_path / "test_speed.py").write_text(BENCHMARK)
    (tmp_path / "test_sum.py").write_text(PLAIN)
    (tmp_path / "speed.py").write_text(BENCHMARK)
    project = read_project(tmp_path)
    assert (names(tmp_path, project), project.source) == (["test_speed.py"], "found in this folder")


@pytest.mark.parametrize("content", ["", PLAIN, "import time\nprint(time.time())\n"])
def test_a_folder_of_other_programs_is_none_of_benchmarks(kept_apart, content):
    (kept_apart / "benchmarks/nn/speed_test.py").write_text(content)
    assert read_project(kept_apart) == Project()


@pytest.mark.parametrize("conftest", ["benchmarks/conftest.py", "conftest.py"])
def test_benchmarks_whose_conftest_asks_for_the_fixture_are_found(kept_apart, conftest):
    (kept_apart / "benchmarks/nn/speed_test.py").write_text("def test_speed(timed): timed(sum, [1])\n")
    assert read_project(kept_apart).paths == ()
    (kept_apart / conftest).write_text("import pytest\n@pytest.fixture\ndef timed(benchmark): return benchmark\n")
    assert names(kept_apart, read_project(kept_apart)) == ["benchmarks"]


@pytest.mark.parametrize("file", ["run.py", "bench_sum.py", "env/lib/test_theirs.py", ".hidden/test_speed.py"])
def test_what_pytest_would_not_collect_makes_no_folder_of_benchmarks(kept_apart, file):
    (kept_apart / "benchmarks/nn/speed_test.py").unlink()
    (kept_apart / "benchmarks" / file).parent.mkdir(parents=True, exist_ok=True)
    (kept_apart / "benchmarks" / file).write_text(BENCHMARK)
    if file.startswith("env"):
        (kept_apart / "benchmarks/env/pyvenv.cfg").touch()
    assert read_project(kept_apart) == Project()
    if file.startswith("bench"):
        (kept_apart / "pytest.ini").write_text("[pytest]\npython_files = bench_*.py\n")
        assert names(kept_apart, read_project(kept_apart)) == ["benchmarks"]


def test_a_file_called_benchmarks_is_no_folder(place):
    (place / "benchmarks").write_text(BENCHMARK)
    (place / "tests/unit/test_speed.py").unlink()
    assert read_project(place) == Project()


def test_a_folder_of_benchmarks_comes_before_those_among_the_tests(kept_apart):
    (kept_apart / "tests").mkdir()
    (kept_apart / "tests/test_speed.py").write_text(BENCHMARK)
    (kept_apart / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    assert names(kept_apart, read_project(kept_apart)) == ["benchmarks"]
    (kept_apart / "benchmarks").rename(kept_apart / "tests/benchmarks")
    assert names(kept_apart, read_project(kept_apart)) == ["tests/benchmarks"]
    (kept_apart / "pyproject.toml").write_text('[tool.gpubench]\npaths = ["tests"]\n')
    assert names(kept_apart, read_project(kept_apart)) == ["tests"]


def test_a_folder_of_benchmarks_is_looked_for_in_the_project_alone(kept_apart):
    below = kept_apart / "benchmarks/nn"
    assert read_project(below, upward=True).source == "found in this folder"  # nothing says that it is one project
    (kept_apart / "pyproject.toml").touch()
    assert names(kept_apart, read_project(below, upward=True)) == ["benchmarks"]
    (below / ".git").mkdir()
    assert read_project(below, upward=True).source == "found in this folder"


def test_the_suite_is_no_folder_of_its_project():
    assert read_project(suite().parent) == Project()


def test_folders_above_are_read_on_request_only(place):
    (place / "pyproject.toml").write_text('[tool.gpubench]\npaths = "bench"\n')
    assert read_project(place / "tests/unit").source == "found in this folder"
    assert names(place, read_project(place / "tests/unit", upward=True)) == ["bench"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[tool.gpubench]\npaths = 3\n", "paths must be a list of files and folders"),
        ("[tool.gpubench]\npaths = ['gone']\n", "gone: no such file or folder"),
        ("[tool]\ngpubench = 3\n", "must be a table"),
        ("[tool.gpubench", "can't be read"),
    ],
)
def test_a_wrong_file_is_named(place, content, complaint):
    (place / "pyproject.toml").write_text(content)
    with pytest.raises(UsageError, match=complaint) as caught:
        read_project(place)
    assert str(place / "pyproject.toml") in str(caught.value)


def test_what_is_measured_is_described(place, monkeypatch):
    monkeypatch.chdir(place)
    assert described([str(suite())], "") == "the suite that comes with gpubench"
    files = [str(place / f"tests/{name}.py") for name in "abcde"]
    shown = described(files, "testpaths in tox.ini")
    assert shown.startswith("tests/a.py, tests/b.py, tests/c.py and 2 more (testpaths in tox.ini; --builtin")
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
        ({"threshold": "5"}, "write 5% or 0.05"),
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
    for name in ("bench/test_a.py", "tests/test_b.py"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("")
    for name, content in written.items():
        (place / name).write_text(content)
    paths, folder = [str(place / name) for name in named], place / start
    given = root_option(paths, folder)
    nothing = {"inifile": None, "override_ini": None, "args": paths, "invocation_dir": folder}
    expected, *_ = determine_setup(rootdir_cmd_arg=None, **nothing)
    assert given == ([] if written else [f"--rootdir={expected}"])


def test_files_elsewhere_are_named_from_their_own_folder_on(tmp_path, monkeypatch):
    """pytest would name them from the common folder on: home/me/secret/test_a.py."""
    for name in ("me", "you/secret"):
        (tmp_path / name).mkdir(parents=True)
    path = tmp_path / "you/secret/test_a.py"
    path.write_text("")
    assert root_option([str(path)], tmp_path / "me") == [f"--rootdir={path.parent}"]
    monkeypatch.chdir(tmp_path / "you")  # of a side elsewhere that measures files from here
    assert root_option([str(path)], tmp_path / "me") == [f"--rootdir={tmp_path / 'you'}"]


def test_the_suite_and_a_root_or_file_of_ones_own_are_left_alone(tmp_path, monkeypatch):
    path = str(tmp_path / "test_a.py")
    assert root_option([str(suite()), str(suite() / "test_matmul.py")], Path.cwd()) == []
    assert root_option([path], tmp_path) != []
    for given in (["-c", "other.ini"], ["-cother.ini"], ["--config-file=other.ini"], ["--rootdir=/"]):
        assert root_option([path], tmp_path, given) == []
    monkeypatch.setenv("PYTEST_ADDOPTS", "-q --rootdir=/")
    assert root_option([path], tmp_path) == []


def test_settings_that_pytest_cannot_read_are_named(place):
    (place / "tox.ini").write_text("[pytest\n")
    with pytest.raises(UsageError, match=r"tox\.ini"):
        read_project(place)
