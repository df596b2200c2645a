"""A run survives its cases and its own end. Real processes, real signals."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measuring_stub
import psutil
import pytest
import records
from inprocess import measure, resume
from sources import negating, sleeping
from waiting import survivors, wait_for

from gpubench.commands import cli
from gpubench.runfile.ledger import merge, pooled, read_ledger, recorded
from gpubench.runfile.runs import read_runs
from gpubench.runfile.schema import Case
from gpubench.supervise import process as measuring, supervisor
from gpubench.supervise.child import Failures

pytestmark = pytest.mark.usefixtures("no_ceilings")

GOOD = negating(8, 16, 32)

HELPERS = """
import ctypes, os, resource, signal, sys, threading, time

def measure(gpubench, act):
    gpubench.declare(check=False)(lambda x: x.is_meta or act(), gpubench.randn(4))

def fill(gpubench):
    keep = []
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    def grow():
        while True:
            keep.append(torch.empty(2**24))
    try:
        measure(gpubench, grow)
    finally:
        keep.clear()
        resource.setrlimit(resource.RLIMIT_AS, before)

def test_fork(gpubench):
    os.fork()
    gpubench(torch.neg, gpubench.randn(4))

def test_thread(gpubench):
    threading.Thread(target=time.sleep, args=[1000]).start()
    gpubench(torch.neg, gpubench.randn(4))
"""
BAD = {
    "abort": ("measure(gpubench, os.abort)", "crashed", "killed by SIGABRT: Fatal Python error: Aborted"),
    "null": ("measure(gpubench, lambda: ctypes.string_at(0))", "crashed",
             "killed by SIGSEGV: Fatal Python error: Segmentation fault"),
    "sleep": ("measure(gpubench, lambda: time.sleep(1000))", "timeout", "stopped: not finished after 6 s"),
    "raise": ("measure(gpubench, lambda: 1 / 0)", "error", "ZeroDivisionError: division by zero"),
    "exit": ("print(\"No such file: '/home/jane/x.py'\"); measure(gpubench, lambda: os._exit(7))", "crashed",
             "exited with 7: No such file: 'x.py'"),
    "interrupt": ("signal.raise_signal(signal.SIGINT)", "error", "ended the measuring process: KeyboardInterrupt"),
    "leave": ("pytest.exit('enough')", "error", "ended the measuring process: Exit: enough"),
    "close": ("sys.stdout.close()", "error", ".*"),
    "terminate": ("signal.raise_signal(signal.SIGTERM)", "crashed", "killed by SIGTERM.*"),
    "memory": ("fill(gpubench)", "oom", "out of memory: one tensor would need .*B"),
}  # fmt: skip
"""The act of a case, its status, and the reason."""

SLOW = sleeping(10)

POISON = (
    GOOD
    + """
from gpubench import devices
from gpubench.devices.virtual import VirtualDevice

class Board(VirtualDevice):
    kind, broken = "board", False
    count = classmethod(lambda kind: 0)
    indices_in_use = classmethod(lambda kind: (0,))

    def synchronize(self):
        if Board.broken:
            raise RuntimeError("an illegal memory access was encountered")

devices.register(Board)

def test_poison(gpubench):
    import pathlib
    pathlib.Path("processes").open("a").write("poisoned\\\\n")
    Board.broken = True  # what went wrong is known at the next wait only
    raise ValueError("no such thing")
"""
)


@pytest.fixture
def stub(monkeypatch):
    """Measuring processes that write their journal at once: the supervisor alone is tested."""
    monkeypatch.setattr(measuring, "pytest_command", measuring_stub.command)


def ended_by(number, folder, event, count=1):
    """A run of ten cases, ended by a signal once its ledger holds so many of these events; its ledger."""
    (folder / "test_mine.py").write_text(SLOW)
    words = ["run", "--charts=none", "test_mine.py", "--processes=1", "--preset=smoke"]
    child = subprocess.Popen([sys.executable, "-m", "gpubench", *words], cwd=folder, stderr=subprocess.DEVNULL)
    wait_for(ledger := folder / "out/run.ledger.jsonl", event, count)
    time.sleep(random.random() / 5)
    child.send_signal(number)
    child.wait()
    return ledger


def test_bad_cases_get_their_status_and_every_other_case_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "FAREWELL_S", 0.5)
    tests = "".join(f"def test_{name}(gpubench): {act}\n" for name, (act, _, _) in BAD.items())
    ran = measure(tmp_path, GOOD + HELPERS + tests, "--processes=2", "--deadline=6", code=1)
    assert ran.names == ["test_neg", "test_neg", "test_neg", "test_fork", "test_thread"]
    assert [len(record["processes"]) for record in ran.records] == [2] * 5
    rows = {row["name"].split("[")[0].removeprefix("test_"): row for row in ran.rows}
    assert {name: row["status"] for name, row in rows.items()} == {name: status for name, (_, status, _) in BAD.items()}
    assert [name for name, (_, _, reason) in BAD.items() if not re.fullmatch(reason, rows[name]["reason"], re.S)] == []
    table = (tmp_path / "out/results.csv").read_text()
    assert all(status in table for status in ("crashed", "timeout", "oom", "error", "ZeroDivisionError: division"))
    (line,) = (line for line in ran.err.splitlines() if f"gpubench run: {len(BAD)} benchmarks failed (" in line)
    assert line.endswith(f"): see {Path('out/run.log')}")
    assert any(f"{rows[name]['status']}: {rows[name]['reason']}" in line for name in BAD)
    assert re.search(r"in <lambda>.*in measure.*in test_sleep", (tmp_path / "out/run.log").read_text(), re.S)
    assert not survivors(tmp_path)


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Runs code as a measuring process, with the journal in ``ledger``; returns how it ended."""
    monkeypatch.chdir(tmp_path)

    def run(code, deadline_s=0.5, on_event=lambda event: None):
        begin = "import os, signal, time; from gpubench.runfile.ledger import Ledger"
        command = [sys.executable, "-c", f"{begin}; ledger = Ledger('ledger'); {code}"]
        return measuring.run_process(command, tmp_path / "log", tmp_path / "ledger", on_event, deadline_s)

    return run


START = "ledger.add_event('start', process=0, fullname='a', name='a', case={})"
NEXT = "ledger.add_event('start', process=0, fullname='b', name='b', case={})"
SESSION = "ledger.add_event('session', process=0, cases=['a'], fingerprint={}, machine_info={}, gpubench={})"
END = "ledger.add_event('end', process=0, fullname='a', status='error')"
FINISH = "ledger.add_event('finish', process=0, code=4)"
RANK = "ledger.add_event('rank', status='timeout', reason='rank 1: no progress for 2 s')"
HANG = "time.sleep(1000)"
ENDS = {
    "finished": (f"{FINISH}; {HANG}", {"finished": True, "case": None, "interrupted": False, "code": 4}),
    "hangs after its last": (f"{SESSION}; {START}; {END}; {HANG}",
                             {"lingering": True, "case": None, "status": "crashed"}),
    "ended by its case": (f"{START}; ledger.add_event('failure', reason='Exit: enough'); {FINISH}",
                          {"finished": True, "case": "a", "status": "error",
                           "reason": "ended the measuring process: Exit: enough"}),
    "rank": (f"{START}; {RANK}; {HANG}",
             {"case": "a", "status": "timeout", "reason": "rank 1: no progress for 2 s"}),
    "marks": ("print('...F'); os._exit(3)", {"reason": "exited with 3"}),
    "last line": ("print('..\\nlast words\\n.', flush=True); os._exit(3)", {"reason": "exited with 3: last words"}),
    "fatal error": ("print('Fatal Python error: A\\nThread 1:\\n  File x', flush=True); os._exit(3)",
                    {"reason": "exited with 3: Fatal Python error: A"}),
    "unreadable": (f"{START}; open('ledger', 'a').write('{{'); {END}; {NEXT}; {HANG}",
                   {"case": "a", "status": "error", "unreadable": True}),
    "a log that was cut": (f"print('x\\n' * 10_000, flush=True); {START[:-1]}, said=20_001); time.sleep(0.5);"
                           " print('last words', flush=True); os._exit(3)", {"reason": "exited with 3: last words"}),
}  # fmt: skip


@pytest.mark.parametrize("how", ENDS)
def test_a_process_that_ends_or_should_is_not_waited_for_and_tells_its_case_and_why(child, monkeypatch, how):
    for name, value in {"FAREWELL_S": 0.1, "LOG_LIMIT": 10_000, "LOG_TAIL": 1_000}.items():
        monkeypatch.setattr(measuring, name, value)
    code, expected = ENDS[how]
    ended = child(code, 1000.0)
    assert {name: getattr(ended, name) for name in expected} == expected


def test_an_interrupt_that_a_child_ignores_kills_it_and_outlives_an_event_that_ends_it(child, monkeypatch):
    """Both sides of a comparison are collected so: a Ctrl-C then was lost, and all was measured."""

    def interrupt(event, error=None):
        os.kill(os.getpid(), signal.SIGINT)
        if error:
            raise error

    monkeypatch.setattr(measuring, "PATIENCE_S", 0.1)
    code = f"signal.signal(signal.SIGINT, signal.SIG_IGN); {START}; {HANG}"
    ended = child(code, 100.0, interrupt)
    assert (ended.interrupted, ended.finished, ended.case) == (True, False, "a")
    with pytest.raises(KeyboardInterrupt):
        child(code, 100.0, lambda event: interrupt(event, ValueError()))


def test_a_hangup_that_nohup_ignores_is_no_interrupt(child):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ended = child(f"os.kill(os.getppid(), signal.SIGHUP); {FINISH}", 1000.0)
    signal.signal(signal.SIGHUP, before)
    assert (ended.finished, ended.interrupted) == (True, False)


def test_a_hook_that_keeps_a_test_from_being_torn_down_costs_no_other_test(tmp_path):
    hook = "def pytest_runtest_teardown(item):\n    if 'torn' in item.name: raise ValueError('hook')\n"
    (tmp_path / "conftest.py").write_text(hook)
    tests = "".join(f"def test_{name}(benchmark): benchmark(len, [])\n" for name in ("torn_1", "torn_2", "a", "b", "c"))
    ran = measure(tmp_path, tests, code=1)
    assert ran.statuses == {"torn_1": "error", "torn_2": "error", "a": "ok", "b": "ok", "c": "ok"}
    assert {row["reason"] for row in ran.rows} == {"ValueError: hook"}


def test_a_session_whose_end_hangs_costs_seconds_and_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "FAREWELL_S", 1.0)
    (tmp_path / "conftest.py").write_text("import time\ndef pytest_sessionfinish(): time.sleep(1000)\n")
    ran = measure(tmp_path, "def test_it(benchmark): benchmark(len, [])\n", "--processes=2")
    assert ran.statuses == {"it": "ok"}
    said = "gpubench: the measuring process was killed: no end within 1 s of its last benchmark"
    assert ran.err.splitlines().count(said) == 2


def test_a_process_collects_no_garbage_as_it_ends(tmp_path):
    """It would take seconds on a busy machine, and be killed."""
    count = "import atexit, gc\natexit.register(lambda: open('frozen', 'w').write(str(gc.get_freeze_count())))\n"
    (tmp_path / "conftest.py").write_text(count)
    measure(tmp_path, "def test_it(benchmark): benchmark(len, [])\n", "--processes=1", start=True)
    assert int((tmp_path / "frozen").read_text()) > 10_000


def test_a_process_whose_journal_cannot_be_read_is_ended_at_once(tmp_path):
    source = "import json, pytest\n@pytest.fixture\ndef mocked():\n    yield\n"
    source += "    json.JSONEncoder.encode = lambda self, value: 'x'\n"  # after the body, whose changes are taken back
    source += "def test_it(benchmark, mocked): benchmark(len, [])\n"
    ran = measure(tmp_path, source + "def test_other(benchmark): benchmark(len, [])\n", "--processes=1", code=1)
    assert ran.statuses == {"it": "error", "other": "ok"}
    assert ran.rows[0]["reason"].startswith(
        "its journal can't be read, perhaps because json was changed: expected an event"
    )


STARTS = """from pathlib import Path
from gpubench.supervise.process import run_process
run_process(["{0}/.venv/bin/python"], Path("{0}/log"), Path("{0}/ledger"), print, 1000.0)"""
PROBES = "from gpubench.supervise.interleave import find_environment; find_environment('base', '{0}', [])"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a program with its parent")
@pytest.mark.parametrize("code", [STARTS, PROBES], ids=["measuring", "asked whether it can"])
def test_another_program_in_place_of_a_python_ends_with_its_supervisor(tmp_path, code):
    (path := tmp_path / ".venv/bin/python").parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\nwhile true; do sleep 0.1; done\n")
    path.chmod(0o755)
    supervisor = subprocess.Popen([sys.executable, "-c", code.format(tmp_path)])
    found = []
    while not found:
        with contextlib.suppress(psutil.NoSuchProcess):
            found = [each for each in psutil.Process(supervisor.pid).children() if "/bin/sh" in each.cmdline()]
    supervisor.kill()
    supervisor.wait()
    _, alive = psutil.wait_procs(found, timeout=30)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


def test_a_hang_before_the_first_case_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "SILENCE_S", 1.0)
    ran = measure(tmp_path, "import time\ntime.sleep(1000)\n", "--deadline=2", code=1)
    assert "idle, no output for 2 s: killed" in ran.err


def test_a_poisoned_device_means_a_fresh_process(tmp_path):
    ran = measure(tmp_path, POISON, code=1)
    assert (len(ran.marks), [row["reason"] for row in ran.rows]) == (3, ["ValueError: no such thing"])
    unusable = "board:0 is unusable (an illegal memory access was encountered) in this process"
    assert unusable in (tmp_path / "out/run.log").read_text()
    assert (tmp_path / "processes").read_text().count("poisoned") == 1
    events = read_ledger(tmp_path / "out/run.ledger.jsonl")
    starts = [event["fullname"] for event in events if event["event"] == "start"]
    sessions = [event for event in events if event["event"] == "session"]
    assert len(sessions) == (1 if "::test_poison" in starts[-1] else 2)


def test_samples_know_their_process_and_rounds_are_split(tmp_path):
    ran = measure(tmp_path, GOOD, "--preset=quick", "--processes=3", "--", "--benchmark-max-time=0.03")
    assert ran.run.processes == 3
    for result in ran.run.results:
        assert [process.index for process in result.times.processes] == [0, 1, 2]
        assert sum(process.rounds for process in result.times.processes) == result.times.rounds
        assert result.check.status == "passed"
    assert ran.marks[0]["options"]["max_time"] == pytest.approx(0.03 / 3)
    orders = [e["fullname"] for e in read_ledger(tmp_path / "out/run.ledger.jsonl") if e["event"] == "start"]
    assert len(orders) == 9
    assert len({tuple(orders[i : i + 3]) for i in (0, 3, 6)}) > 1


@pytest.mark.parametrize(("event", "count"), [("run", 1), ("end", 4)])
def test_killed_at_any_moment_nothing_finished_is_lost_and_resume_completes(tmp_path, event, count):
    ledger = ended_by(signal.SIGKILL, tmp_path, event, count)
    assert not survivors(tmp_path)
    begun = "session" in ledger.read_text()
    finished = {e["fullname"] for e in read_ledger(ledger) if e["event"] == "end"} if begun else set()
    assert len(resume(tmp_path).marks) == 10
    started = [e["fullname"] for e in read_ledger(ledger) if e["event"] == "start"]
    assert all(started.count(name) == 1 for name in finished)


def test_resume_refuses_what_no_longer_belongs_together(tmp_path):
    ended_by(signal.SIGINT, tmp_path, "end")
    (tmp_path / "test_mine.py").write_text(SLOW.replace("0.05", "0.06"))
    assert re.search("can't be resumed.* code was", resume(tmp_path, code=2).err)
    assert resume(tmp_path, "--preset=full", code=2).err.count("leave out --preset") == 1
    assert "no run to resume" in resume(tmp_path, name="nowhere", code=2).err


def test_a_new_run_does_not_throw_a_finished_one_away(tmp_path, stub):
    out = tmp_path / "out"
    measure(tmp_path, GOOD, "--seed=1")
    first = {name: (out / name).read_bytes() for name in ("run.json", "run.ledger.jsonl")}
    refused = measure(tmp_path, GOOD, "-k", "nothing", code=2)
    assert refused.err.splitlines()[-1] == "gpubench run: no benchmark matches"
    assert {name: (out / name).read_bytes() for name in first} == first
    second = measure(tmp_path, GOOD, "-k", "n=16")
    assert second.err.count("an earlier run was here: it is now out/run.1.json and out/run.1.ledger.jsonl") == 1
    assert [(out / name.replace("run", "run.1")).read_bytes() for name in first] == list(first.values())
    assert len(second.marks) == 1
    measure(tmp_path, GOOD)
    assert (out / "run.1.json").read_bytes() == first["run.json"]
    assert (out / "run.2.json").exists()
    again = resume(tmp_path)
    assert ("nothing is missing" in again.err, len(again.marks)) == (True, 3)
    assert "expected the folder of a run" in resume(tmp_path, name="out/run.1.ledger.jsonl", code=2).err


@pytest.fixture
def whole(tmp_path, stub):
    """A run of three cases that lacks the last one's result; returns the journal's events and how to write them."""
    measure(tmp_path, GOOD)
    ledger = tmp_path / "out/run.ledger.jsonl"
    events = [event for event in read_ledger(ledger) if event["event"] not in ("finish", "complete")][:-1]
    return events, lambda: ledger.write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.parametrize(
    ("event", "key", "value", "expected"),
    [
        *(("run", "deadline_s", value, "run.deadline_s: expected a number") for value in ("soon", [])),
        ("run", "processes", 0, "run.processes: expected"),
        *(("run", "paths", paths, "expected absolute paths") for paths in ([], ["here"], ["/a\0b"])),
        ("run", "paths", ["/" + "a" * 5000], "no such file or folder"),
        ("run", "options", [1], "run.options[0]: expected"),
        ("session", "estimated_s", "long", "session.estimated_s: expected a number"),
        ("session", "machine_info", {"gpubench": []}, "machine_info.gpubench: expected"),
    ],
)
def test_a_damaged_journal_is_refused_in_a_line_before_anything_runs(tmp_path, whole, event, key, value, expected):
    events, write = whole
    next(each for each in events if each["event"] == event)[key] = value
    write()
    (line,) = resume(tmp_path, code=2).err.splitlines()
    assert (line.startswith("gpubench run: "), expected in line) == (True, True)


def test_what_is_missing_or_in_a_bad_entry_is_measured_without_a_log_parts_of_a_session_or_temporary_files(
    tmp_path, whole, monkeypatch
):
    events, write = whole
    next(each for each in events if each["event"] == "end")["benchmark"] = {"stats": 1, "extra_info": []}
    for key in ("identities", "estimated_s", "commit_info"):
        del events[1][key]
    write()
    with (tmp_path / "out/run.ledger.jsonl").open("a") as journal:
        journal.write('{"event": "start", "proc')  # as a kill leaves it: the next writer starts a new line
    (tmp_path / "out/run.log").unlink()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_, **__: pytest.fail("a temporary folder"))
    ran = resume(tmp_path)
    assert "run.ledger.jsonl: line 4 is passed over: " in ran.err
    assert [mark["stats"]["rounds"] > 0 for mark in ran.marks] == [True] * 3
    assert [event["event"] for event in read_ledger(tmp_path / "out/run.ledger.jsonl")].count("session") == 2


def test_a_working_folder_that_is_gone_is_one_line(tmp_path, whole, monkeypatch, capsys):
    _, write = whole
    write()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["run", "--resume", str(tmp_path / "out")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("the working folder has been removed: start in another one")


def test_a_run_begun_elsewhere_runs_nothing_unless_somebody_agrees(tmp_path, whole, monkeypatch):
    events, write = whole
    assert "publish" in events[0]["note"]
    with monkeypatch.context() as changed:
        changed.setattr(supervisor, "is_own", lambda path: False)  # in a folder of somebody else
        resume(tmp_path, code=2)
    for key in ("inode", "device"):  # the same file: its place is what was written
        events[0][key] += 1
        write()
        resume(tmp_path, code=2)
        events[0][key] -= 1
    write()
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    (line,) = resume(tmp_path, name="copy", code=2).err.splitlines()
    command = f"pytest --rootdir={tmp_path} -p peakless --gpubench-preset=smoke"
    assert f"this run was started elsewhere; resuming executes: {command}" in line
    assert line.endswith("refused: confirmation needs a terminal")
    answers = io.StringIO("no\nyes\n")
    answers.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", answers)
    for name, code in (("copy", 2), ("copy", 0), ("out", 0)):
        resume(tmp_path, name=name, code=code)


def test_plain_pytest_leaves_a_journal_that_is_read(tmp_path):
    (tmp_path / "test_slow.py").write_text(SLOW)
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest", "test_slow.py", "--benchmark-json=mine.json", "-q", "--gpubench-preset=smoke"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ledger = tmp_path / "mine.ledger.jsonl"
    wait_for(ledger, "end", 2)
    child.kill()
    child.wait()
    assert not (tmp_path / "mine.json").exists()
    (run,) = read_runs([ledger])
    statuses = [each.status for each in run.results]
    assert (statuses.count("ok") >= 2, len(statuses)) == (True, 10)
    done = [sys.executable, "-m", "pytest", "test_slow.py", "-k0", "--benchmark-json=mine.json", "-q"]
    text = subprocess.run(done, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "mine.ledger.jsonl, of a session that was killed, is now mine.1.ledger.jsonl" in text
    assert not ledger.exists()
    assert read_runs([tmp_path / "mine.json"])


def end_of(process, data):
    mark = records.benchmark(Case("a.b", "cpu"), 1.0)
    known = {"process": process, "rounds": len(data), "kept": len(data), "latency_s": float(process)}
    mark["extra_info"]["gpubench"]["processes"][0] |= known
    mark["stats"] = pooled(data) | {"data": data, "iterations": 1}
    return {"process": process, "fullname": "a", "status": "ok", "benchmark": mark}


def test_merging_pools_samples_and_keeps_what_all_rounds_had_beside_those_kept():
    ends = [end_of(1, [4.0, 5.0]), end_of(0, [1.0, 2.0, 3.0])]
    ends[0]["benchmark"]["stats"] |= {"min": 0.5, "max": 9.0, "rounds": 300, "total": 1206.0}
    merged = merge(ends)
    stats = merged["stats"]
    assert stats["data"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert (stats["median"], stats["min"], stats["max"], stats["mean"], stats["rounds"]) == (3.0, 0.5, 9.0, 4.0, 303)
    assert stats["ops"] == pytest.approx(1 / 4)
    ours = merged["extra_info"]["gpubench"]
    assert [entry["process"] for entry in ours["processes"]] == [0, 1]
    assert ours["latency_s"] == 0.5


def test_a_child_whose_supervisor_is_gone_ends(tmp_path):
    code = "import os,time; from gpubench.supervise.child import die_with_supervisor as d; d(); time.sleep(60)"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"""
import os, subprocess, sys, time
env = {{**os.environ, "GPUBENCH_SUPERVISOR": str(os.getpid())}}
child = subprocess.Popen([sys.executable, "-c", {code!r}], env=env)
print(child.pid, flush=True)
time.sleep(60)
"""],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with parent.stdout:
        child = psutil.Process(int(parent.stdout.readline()))
    time.sleep(1.5)
    assert child.is_running()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs([child], timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("conftest", "test", "words", "code", "reason"),
    [
        ("", "import no_such\n", [], 2, "test_a.py can't be collected: ModuleNotFoundError: No module named 'no_such'"),
        ("", "f(\n", [], 2, "test_a.py can't be collected: SyntaxError: '(' was never closed, line 1"),
        ("", "import pytest\ndef test_a(): pytest.exit('enough')\n", [], 2, "Exit: enough"),
        ("", "def test_a(): raise KeyboardInterrupt\n", [], 2, "KeyboardInterrupt"),
        *(("", "def test_a(): pass\n", [word], 4, reason) for word, reason in (
            ("--nope", "unrecognized arguments: --nope"), ("nothing.py", "file or directory not found: nothing.py"),
            ("--gpubench-device=nope", "unknown device 'nope': choose from"))),
        ("1 / 0", "", [], 4, "ZeroDivisionError: division by zero"),
        ("def pytest_runtest_protocol(): raise ExceptionGroup('two', [KeyError('a'), KeyError('b')])",
         "def test_a(): pass\n", [], 3, "KeyError: 'a'"),
    ],
)  # fmt: skip
def test_why_pytest_can_not_begin_or_go_on_is_in_the_journal(pytester, request, conftest, test, words, code, reason):
    pytester.makepyfile(test_a=test)
    pytester.makeconftest(conftest)
    failures = Failures("journal")
    request.addfinalizer(failures._ledger.close)
    assert pytester.inline_run("-p", "no:cacheprovider", *words, plugins=[failures], no_reraise_ctrlc=True).ret == code
    (event,) = recorded("journal")
    assert event["reason"].startswith(reason)
