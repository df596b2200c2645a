"""A short part of docs/experiments/attack.py, by fixed seeds; and that it notices what breaks."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench.runfile.ledger import assemble, read_ledger

SCRIPT = Path(__file__).parent.parent / "docs/experiments/attack.py"
SHORT = {"files": 60, "journals": 40, "names": 2}


@pytest.fixture(scope="module")
def attack():
    spec = importlib.util.spec_from_file_location("attack", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "count"), SHORT.items(), ids=SHORT)
def test_a_short_attack_breaks_nothing(attack, name, count):
    assert attack.attack(name, count, seed=0, parallel=1) == []


@pytest.mark.rehearsal
def test_a_run_that_is_killed_and_one_begun_twice_break_nothing(tmp_path):
    """By a stub that loads no torch: the numbers that end with 0 measure."""
    command = [sys.executable, SCRIPT, "kills=2", "starts=1", "--seed=1", "--parallel=1"]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2]), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in done.stdout.splitlines()[2:]]
    assert rows == [["kills", "2", "0"], ["starts", "1", "0"]]
    assert list(tmp_path.iterdir()) == []


def test_what_was_tried_counts_when_it_is_stopped(attack, monkeypatch, capsys):
    def third_is_stopped(number):
        if number == 2:
            raise KeyboardInterrupt
        return ["a line"] * number

    monkeypatch.setitem(attack.ATTACKS, "kills", (third_is_stopped, 200))
    monkeypatch.setattr(sys, "argv", ["attack.py", "kills", "starts", "--parallel=1"])
    monkeypatch.setattr(attack.signal, "signal", lambda *_: None)
    assert attack.main() == 1
    printed = capsys.readouterr()
    assert printed.err == "kills 1: a line\n"
    assert printed.out.splitlines()[2:] == ["| kills | 2 | 1 | 0 |"]


def test_every_attack_has_a_full_count_and_can_be_chosen(attack):
    assert dict(attack.chosen([])) == {name: count for name, (_, count) in attack.ATTACKS.items()}
    assert list(attack.chosen(["kills=3", "files"])) == [("kills", 3), ("files", 20_000)]
    with pytest.raises(SystemExit, match="unknown attack 'none'"):
        list(attack.chosen(["none"]))


def test_a_damaged_file_depends_on_its_number_alone(attack):
    first = [attack.drawn("file", number) for number in range(20)]
    attack._chunk.cache_clear()
    assert [attack.drawn("file", number) for number in range(20)] == first
    assert len(set(first)) > 10


def defect(words):
    raise RuntimeError("a defect")


def prints(text, code):
    def behave(words):
        print(text)
        return code

    return behave


@pytest.mark.parametrize(
    ("number", "behave", "broken"),
    [
        (3, defect, "show: traceback: RuntimeError: a defect"),
        (15, prints("all is well", 1), "compare: 1 without a slowdown"),
        (3, prints("\x1b[31m", 0), "show printed {'\\x1b'}"),
    ],
)
def test_an_attack_notices(attack, monkeypatch, number, behave, broken):
    monkeypatch.setattr(attack.cli, "_run", behave)
    assert f"files {number}: {broken}" in attack.attack("files", 1, seed=number, parallel=1)


def test_a_lost_a_doubled_and_a_changed_result_are_noticed(attack, tmp_path, monkeypatch):
    """Of a run that was killed, when what resumes it breaks each in turn."""
    journal, file = tmp_path / "out/run.ledger.jsonl", tmp_path / "out/run.json"
    journal.parent.mkdir()
    whole = "".join(attack.mutations.dumped(event) + "\n" for event in attack.mutations.LEDGER)
    journal.write_text(whole)

    def resumed(change):
        def resume(command, folder):
            data = assemble(read_ledger(journal))
            change(data)
            file.write_text(attack.json.dumps(data))
            return attack.subprocess.CompletedProcess(command, 1, "", "")

        monkeypatch.setattr(attack, "call", resume)
        monkeypatch.setattr(attack, "CASES", 7)
        return attack._resumed(tmp_path, attack.GPUBENCH, [])

    name = "test_matmul.py::test_square[0]"
    assert resumed(lambda data: None) == []
    assert f"lost: {name}" in resumed(lambda data: data["benchmarks"].pop(0))
    assert f"twice in the file: {name}" in resumed(lambda data: data["benchmarks"].append(data["benchmarks"][0]))
    assert f"changed: {name}" in resumed(lambda data: data["benchmarks"][0]["stats"].update(data=[1.0]))
    assert "the journal was changed" in resumed(lambda data: journal.write_text(whole.replace("test", "best", 1)))
