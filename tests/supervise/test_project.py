"""What a project's files ask for: its benchmarks, and options."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from gpubench.errors import UsageError
from gpubench.runfile import options
from gpubench.supervise.process import suite
from gpubench.supervise.project import Project, described, read_project, root_option

BENCHMARK = "def test_speed(benchmark): benchmark(sum, [1])\n"
PLAIN = "def test_sum(): assert sum([1]) == 1  # no benchmark\n"


BROKEN = "def test_speed(benchmark: "
AMONG_TESTS = {
    "tests/test_sum.py": PLAIN, "tests/unit/test_speed.py": BENCHMARK, "tests/unit/speed.py": BENCHMARK,
    "tests/build/test_speed.py": BENCHMARK, "tests/.hidden/test_speed.py": BENCHMARK, "tests/test_broken.py": BROKEN,
    "bench/README": "",
}  # fmt: skip
APART = {"benchmarks/nn/speed_test.py": BENCHMARK, "bench/README": ""}
"""Where most projects keep them, which pytest's settings don't name."""
HERE, IN_PROJECT = "found in this folder", "found in this project"
UNIT, BOTH = ["tests/unit/test_speed.py"], {**APART, "tests/test_speed.py": BENCHMARK}
FIXTURE = "import pytest\n@pytest.fixture\ndef timed(benchmark): return benchmark\n"
USES_IT = {"benchmarks/nn/speed_test.py": "def test_speed(timed): timed(sum, [1])\n"}
PATHS, TESTS = '[tool.gpubench]\npaths = ["{}"]\n', "[pytest]\ntestpaths = tests\n"
OPTIONS = '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n'


def in_bench(argument: str) -> dict[str, str]:
    return {
        "pytest.ini": "[pytest]\ntestpaths = bench\n",
        "bench/test_it.py": f"class TestIt:\n def test_it({argument}): 1\n",
    }


@pytest.mark.parametrize(
    ("files", "start", "paths", "source"),
    [
        (AMONG_TESTS | {"pyproject.toml": OPTIONS}, "", UNIT, "testpaths in pyproject.toml"),
        (AMONG_TESTS | {"pytest.ini": "[pytest]\ntestpaths = tests bench\n"}, "", UNIT, "testpaths in pytest.ini"),
        (AMONG_TESTS | {"setup.cfg": "[tool:pytest]\ntestpaths = t*s tests/unit/test_speed.py\n"}, "", UNIT,
         "testpaths in setup.cfg"),
        # the suite that comes with gpubench was measured for ten minutes instead
        (AMONG_TESTS | {"pyproject.toml": ""}, "", UNIT, IN_PROJECT),
        (AMONG_TESTS | {"pyproject.toml": ""}, "tests/unit", UNIT, IN_PROJECT),
        ({"test/unit/test_speed.py": BENCHMARK, "pyproject.toml": ""}, "", ["test/unit/test_speed.py"], IN_PROJECT),
        # files are those that the project collects
        (AMONG_TESTS | {"pytest.ini": f"{TESTS}python_files = spe*.py\n"}, "", ["tests/unit/speed.py"],
         "testpaths in pytest.ini"),
        # a fixture in the signature makes a benchmark
        *((in_bench(each), "", ["bench/test_it.py"], "testpaths in pytest.ini")
          for each in ("gpubench", "self, benchmark", "*, benchmark_weave", "benchmark, /")),
        (in_bench("self, other"), "", [], ""),
        # what is declared comes before tests
        (AMONG_TESTS | {"pyproject.toml": PATHS.format("bench") + OPTIONS}, "", ["bench"],
         "[tool.gpubench] in pyproject.toml"),
        (AMONG_TESTS | {"pyproject.toml": '[tool.gpubench]\npreset = "full"\n' + OPTIONS}, "", UNIT,
         "testpaths in pyproject.toml"),
        # a folder of benchmarks
        (APART, "", ["benchmarks"], IN_PROJECT),
        ({"test_speed.py": BENCHMARK, "test_sum.py": PLAIN, "speed.py": BENCHMARK}, "", ["test_speed.py"], HERE),
        *(({"benchmarks/nn/speed_test.py": each}, "", [], "")
          for each in ("", PLAIN, "import time\nprint(time.time())\n")),
        (USES_IT, "", [], ""),
        *((USES_IT | {each: FIXTURE}, "", ["benchmarks"], IN_PROJECT)
          for each in ("benchmarks/conftest.py", "conftest.py")),
        # nor what pytest would not collect
        *(({f"benchmarks/{each}": BENCHMARK, "benchmarks/env/pyvenv.cfg": ""}, "", [], "")
          for each in ("run.py", "bench_sum.py", "env/lib/test_theirs.py", ".hidden/test_speed.py")),
        ({"benchmarks/bench_sum.py": BENCHMARK, "pytest.ini": "[pytest]\npython_files = bench_*.py\n"}, "",
         ["benchmarks"], IN_PROJECT),
        ({"benchmarks": BENCHMARK}, "", [], ""),
        # it comes before benchmarks among the tests
        (BOTH | {"pytest.ini": TESTS}, "", ["benchmarks"], IN_PROJECT),
        ({"tests/benchmarks/test_speed.py": BENCHMARK, "tests/test_speed.py": BENCHMARK, "pytest.ini": TESTS}, "",
         ["tests/benchmarks"], IN_PROJECT),
        (BOTH | {"pyproject.toml": PATHS.format("tests")}, "", ["tests"], "[tool.gpubench] in pyproject.toml"),
        # and is looked for in the project alone
        (APART, "benchmarks/nn", ["benchmarks/nn/speed_test.py"], HERE),  # nothing says that it is one project
        (APART | {"pyproject.toml": ""}, "benchmarks/nn", ["benchmarks"], IN_PROJECT),
        (APART | {"pyproject.toml": "", "benchmarks/nn/.git/HEAD": ""}, "benchmarks/nn",
         ["benchmarks/nn/speed_test.py"], HERE),
        (AMONG_TESTS | {"pyproject.toml": '[tool.gpubench]\npaths = "bench"\n'}, "tests/unit", ["bench"],
         "[tool.gpubench] in pyproject.toml"),
    ],
)  # fmt: skip
def test_benchmarks_are_found(tmp_path, files, start, paths, source):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    project = read_project(tmp_path / start, upward=bool(start))
    assert [str(Path(path).relative_to(tmp_path)) for path in project.paths] == paths
    assert project.source == source


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("tests/unit/test_speed.py", "bench/test_it.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(BENCHMARK)
    return tmp_path


def test_options_are_read_without_opening_a_test_and_above_on_request_only(place, monkeypatch):
    (place / "pyproject.toml").write_text('[tool.gpubench]\npreset = "full"\n[tool.pytest]\ntestpaths = ["tests"]\n')
    opened = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path.name) or b"")
    assert read_project(place, search=False).options == {"preset": "full"}
    assert opened == []
    read_project(place)
    assert "test_speed.py" in opened
    assert read_project(place / "tests/unit").options == {}


def test_the_suite_is_no_folder_of_its_project():
    assert read_project(suite().parent) == Project()


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
