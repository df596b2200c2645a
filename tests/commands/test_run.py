"""``gpubench run`` with real child processes, on small benchmark files of our own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from inprocess import Ran, gpubench, measure
from sources import lay, negating, sleeping
from waiting import survivors, wait_for

from gpubench.commands import run
from gpubench.commands.run import FIRST_WORDS
from gpubench.runfile.ledger import COMPLETE
from gpubench.runfile.runs import read

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
    ran = Ran(0, done.stdout, done.stderr, folder / "o ut/run.json")
    assert ran.data["gpubench"]["seed"] == 3
    assert [record["id"] for record in ran.records] == ["mine.neg[float32-n=8]", "mine.neg[float32-n=16]"]
    written = {path.name for path in ran.path.parent.iterdir()}
    assert {"results.csv", "speedup.csv", "summary.md", "report.html", "run.log"} <= written
    assert ran.path.with_name("run.ledger.jsonl").read_bytes().endswith(COMPLETE)
    first, devices, *lines = done.stderr.splitlines()
    assert first == FIRST
    assert re.match(r"Devices: CPU \(.* 2 benchmarks, about .*gpubench run --resume o ut continues", devices)
    assert sorted(line.split("  ")[1] for line in lines) == ["mine.neg[float32-n=16]", "mine.neg[float32-n=8]"]
    assert [line.split()[0] for line in lines] == ["[1/2]", "[2/2]"]


def test_the_list_runs_no_test(folder):
    source = CASES + "\n@pytest.mark.parametrize('x', ['x' * 2000])\ndef test_long(benchmark, x): benchmark(len, x)\n"
    source += "\ndef test_ruinous(gpubench):\n    open('ran', 'w')\n    gpubench(torch.mm)\n"
    source += "\n@pytest.mark.skip('not today')\ndef test_never(gpubench): pass\n"
    (folder / "test_mine.py").write_text(source)
    done = gpubench("run", "test_mine.py", "--list", cwd=folder)
    assert done.returncode == 0, done.stderr
    wanted = "mine.neg[float32-n=8]", "not today", "5 benchmarks in 3 processes, about", "1 of them will be skipped"
    assert [words for words in wanted if words not in done.stdout] == []
    assert 20 < done.stdout.count("xxx") < 40
    assert not {"out", "ran"}.intersection(path.name for path in folder.iterdir())
    done = gpubench("run", "test_mine.py", "--list", "--preset=glance", cwd=folder)
    assert re.search("\n5 benchmarks, about .* s on idle cores with preset glance; ", done.stdout)
    assert "leave out --list" in gpubench("run", "--list", "--resume=out", cwd=folder).stderr


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
    assert re.search(r"holds other files and no results of gpubench|run.log: was not written by gpubench", line)
    assert (mine.read_text(), {path.name for path in folder.iterdir()}) == ("mine", before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_as_log_is_not_waited_for_and_a_huge_one_is_not_read(folder, monkeypatch):
    (folder / "out").mkdir()
    os.mkfifo(folder / "out/run.log")
    done = gpubench("run", "test_mine.py", cwd=folder)
    assert (done.returncode, "run.log: was not written by gpubench" in done.stderr) == (2, True)
    (folder / "out/run.log").unlink()
    (folder / "out/run.log").write_bytes(run._LOG_HEAD)
    os.truncate(folder / "out/run.log", 2**40)  # sparse: no memory could hold it
    assert gpubench("run", "test_mine.py", *SMOKE, cwd=folder).returncode == 0


WITH_A_CHILD = """
import beside, multiprocessing, sys
def other(): from gpubench import __version__
def test_other(gpubench):
    child = multiprocessing.get_context("spawn").Process(target=other)
    child.start()
    child.join()
    assert child.exitcode == 0
    gpubench(torch.neg, gpubench.randn(4))
"""


def test_a_folder_of_our_name_is_not_taken_for_us(folder):
    """Neither by the measuring process nor by its children; modules of one's own are found all the same."""
    lay(folder, {"gpubench/__init__.py": "raise ImportError('the wrong one')\n", "beside.py": ""})
    lay(folder, {"inner/test_inner.py": CASES + WITH_A_CHILD})
    command = [sys.executable, "-P", "-m", "gpubench", "run", "inner", *SMOKE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (folder / "out/results.csv").read_text().count(",ok,") == 3


def test_full_names_hold_no_folders_wherever_it_is_started(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    words = (str(folder / "test_mine.py"), *SMOKE, "-o", str(folder / "out"))
    done = gpubench("run", *words, cwd=tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    text = (folder / "out/run.json").read_text()
    assert '"fullname": "test_mine.py::' in text
    assert str(tmp_path) not in text
    again = gpubench("run", "--resume", str(folder / "out"), "--charts=none", cwd="/")
    assert (again.returncode, "nothing is missing" in again.stderr) == (0, True), again.stderr


ONE_THREAD = """
import torch
torch.set_num_threads(1)
def test_it(benchmark): assert benchmark(torch.get_num_threads) == 1
"""


def test_a_plain_suite_keeps_its_threads_and_has_ten_minutes_a_benchmark(folder):
    """As in pytest alone, where none is stopped."""
    assert measure(folder, ONE_THREAD).run.machine.threads == 1
    assert '"deadline_s": 600' in (folder / "out/run.ledger.jsonl").read_text().splitlines()[0]


def test_a_run_in_which_nothing_was_measured_fails(folder):
    measure(folder, CASES.replace("    gpubench(", "    pytest.skip('not today')\n    gpubench("), code=1)
    assert (folder / "out/results.csv").read_text().count(",skipped,,not today") == 2


def test_a_file_that_gave_no_number_is_still_the_code_that_was_measured(folder):
    """The second process is given the cases that are left, and none of that file."""
    (folder / "test_none.py").write_text("import pytest\ndef test_none(gpubench):\n    pytest.skip('not here')\n")
    ran = measure(folder, CASES, "--processes=2", also=["test_none.py"])
    assert [len(record["processes"]) for record in ran.records] == [2, 2]


@pytest.mark.parametrize(
    ("name", "text", "code", "why"),
    [
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
    *first, last = measure(folder, "", code=code).err.splitlines()
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
    ran = Ran(1, *child.communicate(timeout=60), folder / "out/run.json")
    assert child.returncode == 1, ran.err
    assert re.search(
        r"interrupted: \d+ of 40 measured\. Resume with: gpubench run --resume out\.", ran.err.splitlines()[-1]
    )
    assert "failed" not in ran.err
    assert 0 < len(ran.marks) < 40
    assert len(ran.rows) == 40 - len(ran.marks)
    assert {(row["status"], "the run was ended" in row["reason"]) for row in ran.rows} == {("skipped", True)}
    assert not survivors(folder)


def test_the_suite_is_found_in_a_checkout_and_in_an_installed_package(monkeypatch, tmp_path):
    from gpubench.supervise import process

    assert (process.suite() / "test_matmul.py").exists()
    installed = tmp_path / "site-packages/gpubench"
    (installed / "benchmarks").mkdir(parents=True)
    monkeypatch.setattr(process, "PACKAGE", installed)
    assert process.suite() == installed / "benchmarks"
    command = process.pytest_command([str(installed / "benchmarks")], [])
    assert {f"--rootdir={installed}", os.devnull} <= {*command}


@pytest.fixture
def project(folder):
    """A project with a benchmark, a plain one and an ordinary test."""
    files = {
        "pyproject.toml": '[tool.gpubench]\npreset = "smoke"\ndevices = ["cpu"]\n',
        "benchmarks/test_mine.py": CASES,
        "benchmarks/test_plain.py": "def test_sum(benchmark): benchmark(sum, [1])\n",
        "benchmarks/test_other.py": "def test_other(): raise RuntimeError\n",
    }
    lay(folder, files)
    return folder


def test_measures_the_project_s_own_benchmarks_with_its_options(project):
    (project / "below").mkdir()
    done = gpubench("run", "--charts=none", "-o=results", cwd=project / "below")
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("gpubench run: measuring ../benchmarks (found in this project); --builtin measures")
    run = read(project / "below/results/run.json")
    assert sorted(each.fullname.partition("::")[2] for each in run.results) == [
        "test_neg[cpu-float32-16]", "test_neg[cpu-float32-8]", "test_sum",
    ]  # fmt: skip
    assert run.preset == "smoke"


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
    """Its conftest files and its names; its options for testing aren't for measuring."""
    failing = "def test_fails(gpubench):\n    raise ValueError\n"
    files = {
        "pyproject.toml": WITH_SETTINGS,
        "conftest.py": "import pytest\n\n@pytest.fixture\ndef size():\n    return 8\n",
        "bench/test_plain.py": "def test_sum(benchmark, size):\n    benchmark(sum, [1] * size)\n",
        "bench/inner/test_mine.py": CASES.replace("gpubench, n", "gpubench, size, n") + failing,
        "elsewhere/nothing.py": "",
    }
    lay(tmp_path, files)
    names = []
    for start, paths in ((".", ["bench"]), ("elsewhere", ["../bench/inner/test_mine.py", "../bench/test_plain.py"])):
        done = gpubench("run", *paths, *SMOKE, "-o", str(tmp_path / "out"), cwd=tmp_path / start)
        assert done.returncode == 1, done.stderr  # of the benchmark that fails, after which -x would end all
        run = read(tmp_path / "out/run.json")
        names.append(sorted(each.fullname.partition("::")[0] for each in run.results if each.times))
    assert names == [["bench/inner/test_mine.py"] * 2 + ["bench/test_plain.py"]] * 2
    assert not list(tmp_path.rglob("there.json"))


def test_a_test_that_switches_pytest_benchmark_off_costs_no_other_test(folder):
    source = CASES + "\ndef test_a(benchmark, request):\n    benchmark(len, [])\n"
    source += "    request.config._benchmarksession.disabled = True\n\ndef test_b(benchmark): benchmark(len, [])\n"
    ran = measure(folder, source, "--processes=1", "--seed=1")
    assert (len(ran.marks), ran.rows) == (4, [])


def test_a_test_that_a_conftest_doubles_is_measured_once(folder):
    (folder / "conftest.py").write_text("def pytest_collection_modifyitems(items): items *= 2\n")
    ran = measure(folder, CASES, "--processes=1")
    assert [mark["extra_info"]["gpubench"]["params"] for mark in ran.marks] == [{"n": 8}, {"n": 16}]
    assert ran.rows == []
    assert "collected several times, measured once: test_neg" in ran.err


EMPTY = "; vars(m).update({name: None for name, f in vars(m).items() if callable(f)})"


@pytest.mark.parametrize(
    ("leaves", "named"),
    [
        ("import builtins; builtins.open = None", "builtins.open"),
        ("import builtins; builtins.sorted = lambda *_, **__: []", "builtins.sorted"),
        ("import os; os.fsync = None", "os.fsync"),
        ("import time; time.perf_counter = lambda: 0.0", "time.perf_counter"),
        ("import torch.utils._pytree as p; p.tree_map = None", "torch.utils._pytree.tree_map"),
        ("import json; json.encoder.JSONEncoder.encode = lambda *_: 'x'", "json.encoder.JSONEncoder.encode"),
        ("import psutil; psutil.Process.__init__ = psutil.cpu_percent = None", "psutil.cpu_percent"),
        ("import gpubench.measure.clock as m" + EMPTY, "gpubench.measure.clock"),
        ("import gpubench.measure.state as m" + EMPTY, "gpubench.measure.state"),
        ("import statistics; statistics.median = lambda _: 'x'", "statistics.median"),
    ],
)
def test_a_function_that_a_test_replaces_costs_no_other_test(folder, leaves, named):
    """A replaced open made sixty later tests of 138 errors."""
    source = f"def test_a(benchmark):\n    benchmark(len, [])\n    {leaves}\n"
    (folder / "test_mine.py").write_text(source + LATER)
    done = gpubench("run", "test_mine.py", *SMOKE, "--processes=1", "--seed=0", cwd=folder)  # with which a is first
    ran = Ran(done.returncode, done.stdout, done.stderr, folder / "out/run.json")
    assert {name: status for name, status in ran.statuses.items() if name != "a"} == dict.fromkeys("bcd", "ok")
    assert named in (folder / "out/run.json").read_text()


def test_a_function_that_a_fixture_replaces_and_puts_back_is_no_fault(folder):
    """It stayed replaced for all later tests, and the test was flagged."""
    fixture = "import time\nimport pytest\nSLEEP = time.sleep\n\n@pytest.fixture\ndef quick(monkeypatch):\n"
    fixture += "    monkeypatch.setattr(time, 'sleep', len)\n\ndef test_a(benchmark, quick): benchmark(len, [])\n"
    later = "\ndef test_b(benchmark):\n    assert time.sleep is SLEEP\n    benchmark(len, [])\n"
    ran = measure(folder, fixture + later, "--processes=1", "--seed=0")
    assert set(ran.statuses.values()) == {"ok"}
    assert "left changed" not in (folder / "out/run.json").read_text()


LATER = "".join(
    f"\ndef test_{name}({fixture}): {fixture}(len, [])\n"
    for name, fixture in {"b": "benchmark", "c": "gpubench", "d": "benchmark"}.items()
)
RERUNS = """
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
FLAKY = """
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


def test_a_rerun_that_passes_counts(tmp_path):
    (tmp_path / "conftest.py").write_text(RERUNS)
    ran = measure(tmp_path, FLAKY, "--processes=1", code=1)
    assert "gpubench run: 1 benchmark failed" in ran.err
    assert ran.names == ["test_flaky", "test_flaky_plain"]
    assert [row["name"].split("[")[0] for row in ran.rows] == ["test_never"]
    options = ("--gpubench-no-ceilings", "--gpubench-preset=smoke", "--benchmark-json=alone.json")
    forked.pytest("-q", "-p", "gpubench.plugin", *options, "--gpubench-device=cpu", "test_mine.py", cwd=tmp_path)
    assert Ran(0, "", "", tmp_path / "alone.json").names == ran.names
