"""A run where something about the machine is not as usual. Real processes, on a benchmark file of two cases."""

import csv
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import records
from inprocess import gpubench as gpubench_run, measure, resume
from sources import negating

from gpubench.errors import UsageError
from gpubench.report import output
from gpubench.runfile import runs, writer
from gpubench.runfile.ledger import Ledger, read_ledger
from gpubench.runfile.writer import Lock
from gpubench.supervise import process

pytestmark = pytest.mark.usefixtures("no_ceilings")

CASES = negating(8, 16)
RUN = {"run.json", "run.ledger.jsonl", "run.log"}
WHOLE = RUN | {"results.csv", "speedup.csv", "crossover.csv", "summary.md", "report.html", output.MANIFEST}
HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")


def gpubench(folder, *arguments, without=(), limit=None, **changes):
    """``gpubench run`` on the folder's cases; ``changes`` and ``without`` are of the environment."""
    environment = {name: value for name, value in os.environ.items() if name not in without} | changes
    environment.pop("PYTEST_CURRENT_TEST", None)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # with no room, Python would leave half a .pyc for everybody after
    return subprocess.run(
        [sys.executable, "-m", "gpubench", "run", "test_mine.py", "--preset=smoke", "--processes=1", "--charts=none",
         *arguments],
        capture_output=True, cwd=folder, timeout=120, env=environment, stdin=subprocess.DEVNULL,
        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None,
    )  # fmt: skip


def assert_whole(folder, done, out="out"):
    """Both cases were measured, and all that a run writes is there."""
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert {entry.name for entry in (folder / out).iterdir()} == WHOLE
    run = runs.read(folder / out / "run.json")
    assert [result.status for result in run.results] == ["ok", "ok"]
    with (folder / out / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["time_s"]) for row in rows] == [result.times.median_s for result in run.results]
    return run


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_mine.py").write_text(CASES)
    return tmp_path


@pytest.fixture
def old(folder):
    """An output folder with an earlier run file in it."""
    (folder / "out").mkdir()
    (folder / "out/run.json").write_text('{"earlier": 1}\n')
    return folder / "out/run.json"


def assert_kept(old):
    """The earlier run file is there, under another name if the new run began to measure."""
    assert any(path.read_text() == '{"earlier": 1}\n' for path in old.parent.glob("run*.json"))


# Disk full ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "codes"), [(100, {2}), (4096, {1, 2}), (10_240, {2})], ids=["ledger", "while measuring", "second case"]
)
def test_no_room_for_a_file(folder, old, limit, codes):
    """No file may grow beyond the limit, as on a disk that is full: too little for the ledger's first line, for a case,
    or for the second case."""
    done = gpubench(folder, limit=limit)
    said = done.stderr.decode()
    assert done.returncode in codes, said
    assert "can't be written" in said
    assert all(line.startswith(("gpubench run: ", "Devices: ", "[")) for line in said.splitlines()), said
    if limit != 4096:
        kept = "what was measured is kept: gpubench run --resume out continues" in said.splitlines()[-1]
        assert kept == ("Devices: " in said)
        assert not list(old.parent.glob(".*"))
    assert_kept(old)


def test_what_a_killed_writer_left_goes_with_the_next_write_and_what_a_living_one_writes_stays(tmp_path):
    killed, living = tmp_path / ".run.json.a.part", tmp_path / ".run.json.b.part"
    for part in (killed, living):
        part.touch()
    lock = Lock(living)
    writer.write(tmp_path / "run.json", {"a": 1})
    lock.release()
    assert {entry.name for entry in tmp_path.iterdir()} == {"run.json", living.name}
    writer.write(tmp_path / "run.json", {"a": 2})
    assert {entry.name for entry in tmp_path.iterdir()} == {"run.json"}


# Folders --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.fsync", "os.replace"])
def test_every_refusal_of_the_system_is_one_line_and_leaves_the_old_file(folder, old, monkeypatch, step, code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(step, refuse)
    with pytest.raises(UsageError, match=rf"^{old}: can't be written: {os.strerror(code)}$"):
        writer.write(old, {})
    assert old.read_text() == '{"earlier": 1}\n'
    assert [entry.name for entry in old.parent.iterdir()] == ["run.json"]
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UsageError, match=rf"ledger: can't be written: {os.strerror(code)}$"):
        Ledger(folder / "ledger")


def test_output_on_another_file_system_under_names_beyond_ascii_and_a_home_that_is_not_there(folder):
    """The temporary file must lie where the run file will: renaming doesn't reach from one file system to another. The
    terminal knows ASCII only."""
    inner, other = folder / "mes essais é 測試", Path("/dev/shm")
    inner.mkdir()
    (folder / "test_mine.py").rename(inner / "test_mine.py")
    reached = os.access(other, os.W_OK) and other.stat().st_dev != folder.stat().st_dev
    out = (other if reached else inner) / f"o ü t {os.getpid()}"
    changes = {"TERM": "dumb", "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "TMPDIR": str(folder)}
    changes["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    changes |= dict.fromkeys(HOMES, "/nonexistent")
    try:
        done = gpubench(inner, "-o", str(out), "--machine=Größe 測", **changes)
        assert done.stdout.isascii()
        run = assert_whole(inner, done, out)
        assert run.machine.label == "Größe 測"
        assert "Größe 測" in (out / "summary.md").read_text(encoding="utf-8")
    finally:
        shutil.rmtree(out, ignore_errors=True)


# Surroundings ---------------------------------------------------------------------------------------------------------


def test_no_standard_streams(folder):
    """The command started by something that gave it no standard input, output or errors at all."""
    words = f"{sys.executable} -m gpubench run test_mine.py --preset=smoke --processes=1 --charts none"
    command = ["sh", "-c", f"exec {words} <&- >&- 2>&-"]
    assert_whole(folder, subprocess.run(command, cwd=folder, capture_output=True, timeout=120))


# What only some processes have ----------------------------------------------------------------------------------------

MIXED = """
import random, pytest

def test_ours(gpubench): pytest.skip("needs a GPU")

@pytest.mark.parametrize("n", [1, random.random()])
def test_sum(benchmark, n): benchmark(sum, [n])

@pytest.mark.benchmark
def test_marked(): pass
"""


LEN = "def test_it(benchmark): benchmark(len, [])\n"


def test_what_differs_in_each_process_costs_that_process_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ran = measure(tmp_path, MIXED, "--processes=3", start=True)
    assert ran.err.count("another id in each process") == 1
    assert "no fixture that times: test_marked" in ran.err
    assert sorted(len(each.times.processes) for each in ran.run.results if each.times) == [1, 3]
    resume(tmp_path)


def test_a_file_that_changes_the_working_folder_as_it_is_imported_is_measured(tmp_path):
    """The journal was looked for there."""
    assert measure(tmp_path, f"import os\nos.chdir('/')\n{LEN}").statuses == {"it": "ok"}


def test_a_file_that_is_skipped_as_a_whole_is_named_with_its_reason(tmp_path):
    ran = measure(tmp_path, "import pytest\npytest.importorskip('no_such_module')\n", code=2)
    assert "skipped as a whole: test_mine.py (could not import 'no_such_module'" in ran.err
    assert "has no test functions" not in ran.err
    listed = gpubench_run("run", "test_mine.py", "--list", cwd=tmp_path)
    assert (listed.returncode, "skipped as a whole: test_mine.py" in listed.stderr) == (2, True)
    (tmp_path / "test_other.py").write_text("import pytest\npytest.skip('later', allow_module_level=True)")
    assert "skipped as a whole: test_other.py (later)" in measure(tmp_path, LEN, also=["test_other.py"]).err
    for name in ("run.log", "run.ledger.jsonl"):
        assert b"publish" in (tmp_path / "out" / name).read_bytes().splitlines()[0]


def test_an_option_of_pytest_that_measures_nothing_is_named(tmp_path):
    assert "no benchmark is measured with -h\n" in measure(tmp_path, LEN, "--", "-h", code=2).err


def test_a_conftest_that_empties_the_machines_facts_costs_those_alone(tmp_path):
    empties = "def pytest_benchmark_update_machine_info(machine_info): machine_info.clear()\n"
    (tmp_path / "conftest.py").write_text(empties)
    measure(tmp_path, LEN)


@pytest.mark.parametrize("pipe", ["", "    os.mkfifo('out/run.log')\n"])
def test_a_log_that_a_test_removes_or_replaces_by_a_pipe_costs_the_log(tmp_path, pipe):
    removes = "import os\ndef test_it(benchmark):\n    benchmark(len, [])\n    os.unlink('out/run.log')\n"
    ran = measure(tmp_path, f"{removes}{pipe}def test_dies(benchmark): os._exit(3)\n", code=1)
    assert "No such file" not in ran.err
    assert ran.statuses == {"it": "ok", "dies": "crashed"}


@pytest.mark.parametrize("does", ["shutil.rmtree('out')", "os.rename('out', 'gone')"])
def test_a_results_folder_that_a_test_removes_costs_nothing_measured(tmp_path, does):
    source = f"import os, shutil\ndef test_it(benchmark):\n    benchmark(len, [])\n    {does}\n"
    ran = measure(tmp_path, source + "".join(LEN.replace("it", str(i)) for i in range(4)), "--processes=1")
    assert "run.ledger.jsonl was changed or removed while it was measured: written again" in ran.err
    assert ran.statuses == dict.fromkeys(["it", "0", "1", "2", "3"], "ok")
    ends = [each["fullname"] for each in read_ledger(tmp_path / "out/run.ledger.jsonl") if each["event"] == "end"]
    assert len(ends) == len(set(ends)) == 5  # none was measured twice


@pytest.mark.parametrize(
    ("does", "status"),
    [
        ("os.unlink(path); os.mkdir(path)", "ok"),
        ("os.unlink(path); os.symlink(os.path.abspath('mine.txt'), path)", "ok"),
        ("time.sleep(0.3); os.truncate(path, 10)", "error"),  # its own result was cut off, what went before was read
        ("open(path, 'a').write('{\"event\": ')", "error"),
    ],
)
def test_a_journal_that_a_test_replaces_is_written_again(tmp_path, does, status):
    source = "import os, time\ndef test_it(benchmark):\n    benchmark(len, [])\n    path = 'out/run.ledger.jsonl'\n"
    source += f"    {does}\n" + LEN.replace("it", "other")
    (tmp_path / "mine.txt").write_text("mine")
    ran = measure(tmp_path, source, "--processes=1", code=int(status == "error"))
    assert "run.ledger.jsonl was changed or removed while it was measured: written again" in ran.err
    assert ran.statuses == {"it": status, "other": "ok"}
    assert [each["event"] for each in read_ledger(tmp_path / "out/run.ledger.jsonl")].count("end") == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_results_folder_that_a_test_replaces_by_a_file_leaves_the_results_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = "import os\ndef test_it(benchmark):\n    benchmark(len, [])\n    os.rename('out', 'gone')\n"
    (tmp_path / "test_mine.py").write_text(source + "    open('out', 'w')\n" + LEN.replace("it", "other"))
    done = gpubench_run("run", "test_mine.py", "--preset=smoke", "--processes=1", cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    path = Path(last.partition("what was measured is in ")[2])
    assert {each.status for each in runs.read(path).results} == {"ok"}
    assert len(runs.read(path).results) == 2


def test_a_log_without_end_keeps_its_head_and_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LOG_LIMIT", 100_000)
    monkeypatch.setattr(process, "LOG_TAIL", 1_000)
    source = "import os, time\ndef test_it(benchmark):\n    benchmark(len, [])\n"
    source += (
        "    for i in range(40):\n        print('x' * 10_000)\n        time.sleep(0.02)\n    print('last words')\n"
    )
    measure(tmp_path, source)
    first, *_ = lines = (tmp_path / "out/run.log").read_text().splitlines()
    assert first.startswith("gpubench run: ")
    assert lines[1].startswith("[cut off here")
    assert "last words" in lines
    assert sum(map(len, lines)) < 300_000


# Sizes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "commands"),
    [
        (lambda: [records.benchmark(records.case("a.b"), 0.1, medians=(0.1,) * 8_000)], ["show", "report", "compare"]),
        (lambda: [records.benchmark(records.case("a.b", variant=f"v{i}"), 0.1) for i in range(2_000)], ["estimate"]),
        (lambda: [records.benchmark(records.case(f"a.{i:03d}{'x' * 1900}"), 0.1) for i in range(600)], ["report"]),
    ],
    ids=["processes", "variants", "long names"],
)
def test_a_file_may_have_a_size_that_no_command_takes_a_power_of(tmp_path, marks, commands):
    """The system ends a command after 20 s of computing, or at 3 GB, where it took minutes; now 1 to 3 s."""
    data = records.run_file(marks(), processes=8_000 if commands[0] == "show" else 1)
    (tmp_path / "run.json").write_text(json.dumps(data))

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))

    for command in commands:
        words = ["run.json", *["run.json"] * (command == "compare"), *["-o", "out"] * (command == "report")]
        line = [sys.executable, "-m", "gpubench", command, *words]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, preexec_fn=limit)
        assert done.returncode == 0, (command, done.stderr[-500:])
