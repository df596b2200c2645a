"""An output folder's files when a run begins: nothing is deleted that can't be read, and one run is there at a
time."""

import json
import os

import measuring_stub
import pytest
from inprocess import gpubench

from gpubench.supervise import process
from gpubench.supervise.supervisor import Supervisor

SESSION = {"event": "session", "process": 0, "cases": ["a"], "fingerprint": {}, "machine_info": {}, "gpubench": {}}
RUN = {"event": "run", "schema_version": 3, "processes": 1, "options": [], "paths": []}


@pytest.fixture(autouse=True)
def stub(monkeypatch):
    monkeypatch.setattr(process, "pytest_command", measuring_stub.command)


def run(folder, *options):
    (folder / "test_good.py").touch()
    return gpubench("run", "--charts=none", "--processes=1", "test_good.py", *options, cwd=folder)


@pytest.mark.parametrize(
    "lines",
    [
        [RUN | {"schema_version": 2}, SESSION],
        [RUN, SESSION | {"process": "first"}],
        [RUN, SESSION | {"more": [[]] * 900_000}],
        [{"event": "tomorrow"}],
    ],
    ids=["another version", "a bad line", "too large", "another's"],
)
def test_a_ledger_that_cant_be_read_is_never_deleted(tmp_path, lines):
    ledger = tmp_path / "out/run.ledger.jsonl"
    ledger.parent.mkdir()
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    content = ledger.read_bytes()
    refused = run(tmp_path, "-k", "nothing")
    assert (refused.returncode, ledger.read_bytes()) == (2, content)
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "an earlier run was here: it is now " in done.stderr
    assert (tmp_path / "out/run.1.ledger.jsonl").read_bytes() == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere")], ids=["a FIFO", "a link"])
def test_what_is_no_file_is_kept_and_not_waited_for(tmp_path, make):
    (tmp_path / "out").mkdir()
    for name in ("run.json", "run.ledger.jsonl"):
        make(tmp_path / "out" / name)
    assert run(tmp_path).returncode == 0
    assert not any((tmp_path / f"out/run.1.{kind}").is_file() for kind in ("json", "ledger.jsonl"))
    assert all(os.path.lexists(tmp_path / f"out/run.1.{kind}") for kind in ("json", "ledger.jsonl"))
    (tmp_path / "out/run.ledger.jsonl").unlink()
    make(tmp_path / "out/run.ledger.jsonl")
    refused = gpubench("run", "--resume", "out", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("earlier", [False, True])
def test_of_two_starts_the_second_touches_nothing(tmp_path, monkeypatch, earlier):
    """It comes when the first has looked into the folder, and written nothing yet."""
    if earlier:
        assert run(tmp_path).returncode == 0
    begin, second = Supervisor.begin, []

    def late(supervisor):
        second.append(run(tmp_path))
        begin(supervisor)
        second.append(gpubench("run", "--resume", "out", cwd=tmp_path))

    monkeypatch.setattr(Supervisor, "begin", late)
    first = run(tmp_path)
    assert (first.returncode, [each.returncode for each in second]) == (0, [2, 2]), first.stderr
    assert all("a run is under way there" in each.stderr for each in second)
    assert ("an earlier run was here" in first.stderr) is earlier
    ledgers = sorted(path.name for path in (tmp_path / "out").glob("*.jsonl"))
    assert ledgers == ["run.1.ledger.jsonl"] * earlier + ["run.ledger.jsonl"]
    assert len(json.loads((tmp_path / "out/run.json").read_text())["benchmarks"]) == 3
