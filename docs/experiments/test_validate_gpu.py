"""validate_gpu.py rehearsed on the CPU with tiny sizes, killed and continued: ``tox run -e rehearse``."""

import json
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import psutil
import pytest
import validate_gpu

from gpubench import devices

SCRIPT = Path(validate_gpu.__file__)


@pytest.mark.skipif(devices.kinds()["cuda"].count() > 0, reason="there is a GPU, and it takes minutes")
def test_without_a_gpu_it_refuses_in_one_line(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("validate_gpu: no CUDA GPU")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


SLOW_TESTS = """
import os, time, pytest

@pytest.mark.parametrize("n", range(5))
def test_slow(n):
    time.sleep(0.7)
    assert n != 1, "one of them fails"

@pytest.mark.parametrize("n", range(2))
def test_skipped(n):
    pytest.skip("not here")
"""
TINY_SUITE = """
import pytest, torch

@pytest.mark.parametrize("n", [4, 8, 16])
def test_neg(gpubench, n):
    gpubench(torch.neg, gpubench.randn(n), items=n)

@pytest.mark.parametrize("n", [4, 8])
def test_square(gpubench, n):
    gpubench(torch.square, gpubench.randn(n), items=n)
"""


def text(archive, name="validation.md"):
    with tarfile.open(archive) as file:
        return file.extractfile(name).read().decode()


def content(archive, name):
    """Lines of a file of an archive, each one's JSON; none where either isn't there yet."""
    try:
        return [json.loads(line) for line in text(archive, name).splitlines()]
    except (OSError, KeyError, ValueError, tarfile.TarError):
        return []


class Rehearsal:
    """validate_gpu.py on the CPU, with tiny sizes and a few tests and benchmarks of its own."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "test_slow.py").write_text(SLOW_TESTS)
        (folder / "test_tiny.py").write_text(TINY_SUITE)

    def start(self, out, *options):
        rehearsed = ["--device=cpu", "--small", f"--tests={self.folder / 'test_slow.py'}", "--saved-every=0.2"]
        command = [sys.executable, SCRIPT, out, *rehearsed]
        command += [f"--suite={self.folder / 'test_tiny.py'}", *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def kill_once(self, out, name, enough, *options):
        """Kill it without a warning, with all that it started, once its archive has enough of a file's lines."""
        process, archive = self.start(out, *options), out / "validation.tar.gz"
        deadline = time.monotonic() + 300
        while not enough(content(archive, name)):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            each.send_signal(signal.SIGKILL)
        process.communicate()
        return content(archive, name)

    def finish(self, out, *options):
        process = self.start(out, *options)
        said, _ = process.communicate(timeout=400)
        assert process.returncode == 0, said
        assert [path.name for path in out.iterdir()] == ["validation.tar.gz"]
        return said


@pytest.fixture
def rehearsal(tmp_path):
    return Rehearsal(tmp_path)


def test_validation_that_is_killed_among_its_tests_repeats_none_of_them(rehearsal, tmp_path):
    ended = lambda events: [event for event in events if "outcome" in event]  # noqa: E731
    log, step = "tests.jsonl", "--step=tests"
    before = rehearsal.kill_once(tmp_path / "first", log, lambda events: len(ended(events)) >= 2, step)
    said = rehearsal.finish(tmp_path / "second", step, f"--from={tmp_path / 'first/validation.tar.gz'}")
    assert "tests: done" in said
    after = content(tmp_path / "second/validation.tar.gz", log)
    assert after[: len(before)] == before
    names = [event["test"].rpartition("::")[2] for event in ended(after)]
    assert sorted(names) == sorted([f"test_slow[{n}]" for n in range(5)] + [f"test_skipped[{n}]" for n in range(2)])
    page = text(tmp_path / "second/validation.tar.gz")
    assert "4 passed, 1 failed, 2 skipped" in page
    assert "one of them fails" in page


def test_validation_that_is_killed_in_its_run_goes_on_elsewhere(rehearsal, tmp_path):
    log, step = "run-quick-networks/run.ledger.jsonl", "--step=quick networks"
    ends = lambda events: [event for event in events if event["event"] == "end"]  # noqa: E731
    before = ends(rehearsal.kill_once(tmp_path / "first", log, lambda events: len(ends(events)) >= 6, step))
    rehearsal.finish(tmp_path / "second", step, f"--from={tmp_path / 'first/validation.tar.gz'}")
    after = ends(content(tmp_path / "second/validation.tar.gz", log))
    assert after[: len(before)] == before  # none was measured again
    assert len(after) == len({(event["process"], event["fullname"]) for event in after}) == 15
    run = json.loads(text(tmp_path / "second/validation.tar.gz", "run-quick-networks/run.json"))
    assert len(run["benchmarks"]) == 5
    assert all(len(bench["extra_info"]["gpubench"]["processes"]) == 3 for bench in run["benchmarks"])


def test_validation_measures_the_first_process_of_a_run_by_itself(rehearsal, tmp_path):
    log, out = "run-quick-networks/run.ledger.jsonl", tmp_path / "out"
    for step, processes in (("quick networks, first process", {0}), ("quick networks", {0, 1, 2})):
        said = rehearsal.finish(out, f"--step={step}")
        assert f"{step}: done" in said
        ends = [event for event in content(out / "validation.tar.gz", log) if event["event"] == "end"]
        assert {event["process"] for event in ends} == processes
        assert len(ends) == 5 * len(processes)


def test_validation_shows_what_failed_and_what_could_not_be_collected(rehearsal, tmp_path):
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "test_absent.py").write_text("import no_such_library\n\ndef test_it(): pass\n")
    (folder / "test_wrong.py").write_text("def test_it():\n    print('matmul.square: wrong result')\n    assert 0\n")
    rehearsal.finish(tmp_path / "out", "--step=tests", f"--tests={folder}")
    page = text(tmp_path / "out/validation.tar.gz")
    assert "1 failed, 1 not collected" in page
    assert "matmul.square: wrong result" in page.replace("print('matmul.square: wrong result')", "")
    assert "No module named 'no_such_library'" in page


def test_validation_measures_its_figures_once_and_leaves_one_file(rehearsal, tmp_path):
    steps = ["--step=sanity", "--step=figures", "--step=timers"]
    said = rehearsal.finish(tmp_path / "out", *steps)
    assert all(f"{step.partition('=')[2]}: done" in said for step in steps)
    again = rehearsal.finish(tmp_path / "out", *steps)
    assert "done after" not in again
    page = text(tmp_path / "out/validation.tar.gz")
    for heading in (
        "## Sanity",
        "our figures beside published ones",
        "## Our time beside other timers'",
    ):
        assert heading in page


def test_validation_measures_every_file_of_benchmarks_and_says_what_half_an_hour_holds():
    steps = validate_gpu.all_steps()
    files = {path.stem.removeprefix("test_") for path in (SCRIPT.parents[2] / "benchmarks").glob("test_*.py")}
    first = [step for step in steps if step.name.endswith(validate_gpu.FIRST)]
    measured = [(step.preset, name) for step in steps if step not in first for name in step.families]
    assert len(measured) == len(set(measured))
    assert {name for preset, name in measured if preset == "quick"} == files
    assert {name for preset, name in measured if preset == "full"} == files - set(validate_gpu.PARALLEL)
    assert [name for preset, name in measured if preset == "quick"][:4] == ["models", "matmul", "llm", "serving"]
    lines = list(validate_gpu.listing({}))
    (end,) = (place for place, line in enumerate(lines) if line.startswith("---"))
    held = steps[:end]
    assert sum(step.seconds for step in held) <= 1800 < sum(step.seconds for step in steps[: end + 1])
    assert {step.preset for step in held if step.families} == {"quick"}
    assert [step.name for step in held[:4]] == ["sanity", "gpu tests", "figures", "timers"]
    rest = [step.name for step in held if step.families and step not in first]
    assert [step.name for step in held if step.families] == [*(f"{name}{validate_gpu.FIRST}" for name in rest), *rest]
    assert all(step.seconds <= validate_gpu.LIMIT_S for step in held)
    assert {name for step in held for name in step.families} == files - set(validate_gpu.PARALLEL)
    goes_on = ["over several calls" in line for line in lines[end + 1 :]]
    assert goes_on == [step.seconds > 540 for step in steps[end:]]


def test_validation_resumes_no_journal_that_it_did_not_begin(tmp_path):
    ledger = tmp_path / "run.ledger.jsonl"
    assert not validate_gpu.adopt(ledger, ["/here/benchmarks/test_matmul.py"])
    run = {"event": "run", "paths": ["/there/benchmarks/test_matmul.py"], "inode": 1}
    for options in (["-p", "evil"], ["--rootdir=/"]):
        ledger.write_text(json.dumps(run | {"options": options}) + "\n")
        with pytest.raises(validate_gpu.Refused):
            validate_gpu.adopt(ledger, ["/here/benchmarks/test_matmul.py"])
    options = ["--gpubench-preset=quick", "--gpubench-device=cuda"]
    ledger.write_text(json.dumps(run | {"options": options}) + "\n" + json.dumps({"event": "start"}) + "\n")
    assert validate_gpu.adopt(ledger, ["/here/benchmarks/test_matmul.py"])
    first, second, _ = ledger.read_text().split("\n")
    assert json.loads(first)["paths"] == ["/here/benchmarks/test_matmul.py"]
    assert (json.loads(first)["inode"], json.loads(first)["device"]) == (ledger.stat().st_ino, ledger.stat().st_dev)
    assert json.loads(second) == {"event": "start"}


def test_it_names_each_library_that_is_missing_or_too_old(monkeypatch):
    """Without nvidia-ml-py clocks, watts and other programs are unknown; without transformers networks are skipped."""
    here = validate_gpu.metadata.version
    assert validate_gpu.missing() == []

    def version(name):
        if name in ("nvidia-ml-py", "transformers"):
            raise validate_gpu.metadata.PackageNotFoundError(name)
        return "2.5" if name == "torch" else here(name)

    monkeypatch.setattr(validate_gpu.metadata, "version", version)
    lacking = validate_gpu.missing()
    assert [text.split(">")[0] for text in lacking] == ["nvidia-ml-py", "torch", "transformers"]
    assert lacking[1].endswith("(2.5 is here)")


def test_it_counts_how_device_times_were_measured(tmp_path):
    methods = [{"device_method": "held"}, {"device_method": "held"}, {"device_reason": "the call waits"}, {}]
    marks = [{"extra_info": {"gpubench": each}} for each in methods]
    (tmp_path / "run.json").write_text(json.dumps({"benchmarks": marks}))
    counted = {"with a device time, held": 2, "without a device time: the call waits": 1}
    assert validate_gpu._device_times(tmp_path / "run.json") == counted
    assert not validate_gpu._device_times(tmp_path / "none.json")
