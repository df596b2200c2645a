"""``gpubench run`` with real child processes, on small benchmark files of our own."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from inprocess import gpubench
from sources import negating, sleeping
from waiting import survivors, wait_for

from gpubench.commands.run import FIRST_WORDS

pytestmark = pytest.mark.usefixtures("no_ceilings")

CASES = negating(8, 16)


FIRST = f"gpubench run: {FIRST_WORDS}"
SMOKE = ("--preset=smoke", "--charts=none")


@pytest.fixture
def folder(tmp_path):
    """A folder with a space and a letter beyond ASCII in its name, and a benchmark file in it."""
    folder = tmp_path / "mes essais é"
    folder.mkdir()
    (folder / "test_mine.py").write_text(CASES)
    return folder


def test_measures_ones_own_files_and_reports(folder):
    done = gpubench("run", "test_mine.py", "--preset=smoke", "--seed=3", "-o", "o ut", cwd=folder)
    assert done.returncode == 0, done.stderr
    out = folder / "o ut"
    run = json.loads((out / "run.json").read_text())
    assert run["gpubench"]["seed"] == 3
    assert [b["extra_info"]["gpubench"]["id"] for b in run["benchmarks"]] == [
        "mine.neg[float32-n=8]",
        "mine.neg[float32-n=16]",
    ]
    assert {"results.csv", "speedup.csv", "summary.md", "report.html", "run.log"} <= {p.name for p in out.iterdir()}
    first, devices, *lines = done.stderr.splitlines()
    assert first == FIRST
    assert devices.startswith("Devices: CPU (")
    assert "2 benchmarks, about" in devices
    assert f"gpubench run --resume {'o ut'} continues" in devices
    assert sorted(line.split("  ")[1] for line in lines) == ["mine.neg[float32-n=16]", "mine.neg[float32-n=8]"]
    assert [line.split()[0] for line in lines] == ["[1/2]", "[2/2]"]


def test_the_list_runs_no_test(folder):
    source = CASES + "\n@pytest.mark.parametrize('x', ['x' * 2000])\ndef test_long(benchmark, x): benchmark(len, x)\n"
    source += "\ndef test_ruinous(gpubench):\n    open('ran', 'w')\n    gpubench(torch.mm)\n"
    source += "\n@pytest.mark.skip('not today')\ndef test_never(gpubench): pass\n"
    (folder / "test_mine.py").write_text(source)
    done = gpubench("run", "test_mine.py", "--list", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "mine.neg[float32-n=8]" in done.stdout
    assert "not today" in done.stdout
    assert "5 benchmarks in 3 processes, about" in done.stdout
    assert 20 < done.stdout.count("xxx") < 40
    assert "1 of them will be skipped" in done.stdout
    assert not (folder / "out").exists()
    assert not (folder / "ran").exists()
    done = gpubench("run", "test_mine.py", "--list", "--preset=glance", cwd=folder)
    assert re.search("\n5 benchmarks, about .* with preset glance; ", done.stdout)


@pytest.mark.parametrize("name", ["summary.md", "run.log", "link to mine.txt"])
def test_files_of_somebody_else_stay(folder, name):
    mine = folder / name.rpartition(" ")[2]
    mine.write_text("mine")
    if name.startswith("link"):
        (folder / "run.log").symlink_to(mine)
    before = {path.name for path in folder.iterdir()}
    done = gpubench("run", "test_mine.py", "-o", ".", cwd=folder)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert re.search(r"(summary.md|run.log): was not written by gpubench", line)
    assert (mine.read_text(), {path.name for path in folder.iterdir()}) == ("mine", before)


def test_a_folder_of_our_name_is_not_taken_for_us(folder):
    """Neither by the measuring process nor by those that it starts; modules of one's own are found all the same."""
    (folder / "gpubench").mkdir()
    (folder / "gpubench/__init__.py").write_text("raise ImportError('the wrong one')\n")
    (folder / "beside.py").write_text("")
    (folder / "inner").mkdir()
    source = (
        CASES
        + """
import beside, multiprocessing, sys

def other():
    from gpubench import __version__

def test_other(gpubench):
    child = multiprocessing.get_context("spawn").Process(target=other)
    child.start()
    child.join()
    assert child.exitcode == 0
    gpubench(torch.neg, gpubench.randn(4))
"""
    )
    (folder / "inner/test_inner.py").write_text(source)
    command = [sys.executable, "-P", "-m", "gpubench", "run", "inner", *SMOKE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (folder / "out/results.csv").read_text().count(",ok,") == 3


def test_full_names_hold_no_folders_wherever_it_is_started(folder, tmp_path):
    target = tmp_path / "elsewhere"
    target.mkdir()
    file = str(folder / "test_mine.py")
    done = gpubench("run", file, *SMOKE, "-o", str(folder / "out"), cwd=target)
    assert done.returncode == 0, done.stderr
    text = (folder / "out/run.json").read_text()
    assert '"fullname": "test_mine.py::' in text
    assert str(tmp_path) not in text
    again = gpubench("run", "--resume", str(folder / "out"), "--charts=none", cwd="/")
    assert again.returncode == 0, again.stderr
    assert "nothing is missing" in again.stderr


ONE_THREAD = """
import torch
torch.set_num_threads(1)
def test_it(benchmark):
    assert benchmark(torch.get_num_threads) == 1
"""


def test_a_plain_suite_keeps_its_threads_and_has_ten_minutes_a_benchmark(folder):
    """As in pytest alone, where none is stopped."""
    (folder / "test_mine.py").write_text(ONE_THREAD)
    done = gpubench("run", "test_mine.py", *SMOKE, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "out/run.json").read_text())["machine_info"]["gpubench"]["threads"] == 1
    began = json.loads((folder / "out/run.ledger.jsonl").read_text().splitlines()[0])
    assert (began["event"], began["deadline_s"]) == ("run", 600)


def test_a_run_in_which_nothing_was_measured_fails(folder):
    skipping = CASES.replace("    gpubench(", "    pytest.skip('not today')\n    gpubench(")
    (folder / "test_mine.py").write_text(skipping)
    done = gpubench("run", "test_mine.py", *SMOKE, cwd=folder)
    assert done.returncode == 1, done.stderr
    assert (folder / "out/results.csv").read_text().count(",skipped,,not today") == 2


def test_a_file_that_gave_no_number_is_still_the_code_that_was_measured(folder):
    """The second process is given the cases that are left, and none of that file."""
    (folder / "test_none.py").write_text("import pytest\ndef test_none(gpubench):\n    pytest.skip('not here')\n")
    done = gpubench("run", "test_mine.py", "test_none.py", *SMOKE, "--processes=2", cwd=folder)
    assert done.returncode == 0, done.stderr
    run = json.loads((folder / "out/run.json").read_text())
    assert [len(b["extra_info"]["gpubench"]["processes"]) for b in run["benchmarks"]] == [2, 2]


@pytest.mark.parametrize(
    ("name", "text", "code", "why"),
    [
        ("test_mine.py", "import no_such_module\n", 2,
         "test_mine.py can't be collected: ModuleNotFoundError: No module named 'no_such_module':"),
        ("test_mine.py", "import os\nos.path.join(\n", 2,
         "test_mine.py can't be collected: SyntaxError: '(' was never closed, line 2:"),
        ("test_mine.py", "def test_x():\n    yield\n", 2,
         "test_mine.py can't be collected: Failed: 'yield' keyword is allowed in fixtures"),
        ("test_mine.py", "def test_it(): pass\n", 2, "test_mine.py has no test functions with the fixture"),
        ("pytest.ini", "[pytest]\naddopts = -p nosuch\n", 2, "pytest can't run: ImportError"),
        ("conftest.py", "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", 1,
         "nothing was measured (pytest killed by SIGTERM)"),
    ],
)  # fmt: skip
def test_why_there_is_nothing_to_measure(folder, name, text, code, why):
    (folder / name).write_text(text)
    done = gpubench("run", "test_mine.py", cwd=folder)
    assert done.returncode == code
    *first, last = done.stderr.splitlines()
    assert first[:1] == [FIRST]
    assert last.startswith(f"gpubench run: {why}")
    assert last.endswith(f": see {Path('out/run.log')}") == ("fixture" not in why or "yield" in why)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured(folder, number):
    (folder / "test_mine.py").write_text(sleeping(40))
    child = subprocess.Popen(
        [sys.executable, "-m", "gpubench", "run", "test_mine.py", *SMOKE],
        cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(folder / "out/run.ledger.jsonl", "end", 3)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1, err
    *_, last = err.splitlines()
    assert re.search(r"interrupted: \d+ of 40 measured\.", last)
    assert "Resume with: gpubench run --resume out." in last
    assert "failed" not in err
    run = json.loads((folder / "out/run.json").read_text())
    assert 0 < len(run["benchmarks"]) < 40
    rows = run["gpubench"]["unmeasured"]
    assert len(rows) == 40 - len(run["benchmarks"])
    assert all("the run was ended" in row["reason"] for row in rows)
    assert {row["status"] for row in rows} == {"skipped"}
    assert not survivors(folder)


def test_the_suite_is_found_in_a_checkout_and_in_an_installed_package(monkeypatch, tmp_path):
    from gpubench.supervise import process

    assert (process.suite() / "test_matmul.py").exists()
    installed = tmp_path / "site-packages/gpubench"
    (installed / "benchmarks").mkdir(parents=True)
    monkeypatch.setattr(process, "PACKAGE", installed)
    assert process.suite() == installed / "benchmarks"
    command = process.pytest_command([str(installed / "benchmarks")], [])
    assert f"--rootdir={installed}" in command
    assert os.devnull in command


PROJECT = """
[tool.gpubench]
preset = "smoke"
devices = ["cpu"]
"""


@pytest.fixture
def project(folder):
    """A project with a benchmark, a plain one and an ordinary test."""
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "benchmarks").mkdir()
    (folder / "test_mine.py").rename(folder / "benchmarks/test_mine.py")
    (folder / "benchmarks/test_plain.py").write_text("def test_sum(benchmark): benchmark(sum, [1])\n")
    (folder / "benchmarks/test_other.py").write_text("def test_other(): raise RuntimeError\n")
    return folder


def test_measures_the_project_s_own_benchmarks_with_its_options(project):
    (project / "below").mkdir()
    done = gpubench("run", "--charts=none", "-o=results", cwd=project / "below")
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("gpubench run: measuring ../benchmarks (found in this project); --builtin measures")
    run = json.loads((project / "below/results/run.json").read_text())
    assert sorted(benchmark["name"] for benchmark in run["benchmarks"]) == [
        "test_neg[cpu-float32-16]",
        "test_neg[cpu-float32-8]",
        "test_sum",
    ]
    assert run["gpubench"]["preset"] == "smoke"


def test_the_built_in_suite_is_measured_on_request_in_a_project_too(project):
    done = gpubench("run", "--list", "--builtin", "-k", "elementwise.add", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "measuring the suite that comes with gpubench; starting" in done.stderr.splitlines()[0]
    assert "elementwise.add" in done.stdout
    done = gpubench("run", "benchmarks", "--builtin", cwd=project)
    assert (done.returncode, "leave out benchmarks" in done.stderr) == (2, True)


WITH_SETTINGS = """
[tool.pytest]
addopts = [
    "--benchmark-skip", "--benchmark-disable", "--benchmark-json=there.json", "-n", "auto", "--cov=src", "-x",
    "-p", "no:benchmark", "--strict-markers",
]
markers = ["slow"]
"""


def test_a_project_s_settings_are_those_of_its_own_pytest(tmp_path):
    """Its conftest files, its names, its options but for those with which nothing would be measured."""
    for folder in ("bench/inner", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(WITH_SETTINGS)
    (tmp_path / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef size():\n    return 8\n")
    (tmp_path / "bench/test_plain.py").write_text("def test_sum(benchmark, size):\n    benchmark(sum, [1] * size)\n")
    failing = "def test_fails(gpubench):\n    raise ValueError\n"
    (tmp_path / "bench/inner/test_mine.py").write_text(CASES.replace("gpubench, n", "gpubench, size, n") + failing)
    names = []
    for start, paths in ((".", ["bench"]), ("elsewhere", ["../bench/inner/test_mine.py", "../bench/test_plain.py"])):
        done = gpubench("run", *paths, *SMOKE, "-o", str(tmp_path / "out"), cwd=tmp_path / start)
        assert done.returncode == 1, done.stderr  # of the benchmark that fails, after which -x would end all
        run = json.loads((tmp_path / "out/run.json").read_text())
        names.append(sorted(mark["fullname"] for mark in run["benchmarks"]))
        ignored = [line for line in done.stderr.splitlines() if "ignoring options" in line]
        assert ignored == [
            "gpubench run: ignoring options of pytest that don't go with measuring: -p no:benchmark, --benchmark-skip,"
            " --benchmark-disable, --benchmark-json, -n, -x or --maxfail, --cov=src"
        ]
    mine = [f"bench/inner/test_mine.py::test_neg[cpu-float32-torch-eager-hot-{n}]" for n in (16, 8)]
    assert names[0] == names[1]
    assert len(names[0]) == 3
    assert {name.split("::")[0] for name in names[0]} == {name.split("::")[0] for name in mine} | {
        "bench/test_plain.py"
    }
    assert not list(tmp_path.rglob("there.json"))


def test_a_rerun_that_passes_counts(tmp_path):
    (tmp_path / "conftest.py").write_text(
        """
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):  # as pytest-rerunfailures does
    for _ in range(3):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if all(report.passed for report in reports):
            break
        item._initrequest()
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""
    )
    (tmp_path / "test_flaky.py").write_text(
        """
import torch
tries, tries_plain = [], []

def test_flaky(gpubench):
    gpubench(lambda x: x.is_meta or -x, gpubench.randn(8))
    tries.append(1)
    assert len(tries) == 3

def test_flaky_plain(benchmark):
    benchmark(sum, [1])
    tries_plain.append(1)
    assert len(tries_plain) == 2

def test_never(gpubench):
    gpubench(lambda x: x.is_meta or -x, gpubench.randn(8))
    assert False
"""
    )
    done = gpubench("run", "test_flaky.py", *SMOKE, "--processes=1", cwd=tmp_path)
    run = json.loads((tmp_path / "out/run.json").read_text())
    assert done.returncode == 1, done.stderr
    assert "gpubench run: 1 benchmark failed" in done.stderr
    assert [mark["name"].split("[")[0] for mark in run["benchmarks"]] == ["test_flaky", "test_flaky_plain"]
    assert [row["name"].split("[")[0] for row in run["gpubench"]["unmeasured"]] == ["test_never"]
    options = ("--gpubench-no-ceilings", "--gpubench-preset=smoke", "--benchmark-json=alone.json")
    forked.pytest("-q", "-p", "gpubench.plugin", *options, "--gpubench-device=cpu", "test_flaky.py", cwd=tmp_path)
    alone = json.loads((tmp_path / "alone.json").read_text())
    assert [mark["name"].split("[")[0] for mark in alone["benchmarks"]] == ["test_flaky", "test_flaky_plain"]
