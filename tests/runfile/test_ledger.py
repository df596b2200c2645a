"""A journal takes whatever a benchmark says, and is read whatever its size."""

import contextlib
import json
import math
import os

import pytest
import records

from gpubench.errors import UsageError
from gpubench.runfile import ledger, reader, runs, writer
from gpubench.runfile.ledger import recorded
from gpubench.runfile.schema import Case


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


LOOP: list = []
LOOP.append(LOOP)


@pytest.fixture
def journal(tmp_path):
    with contextlib.closing(ledger.Ledger(tmp_path / "ledger")) as journal:
        yield journal


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, None),
        (-math.inf, None),
        pytest.param(10**5000, "int that has no text", id="long"),
        (2**70, str(2**70)),
        ({(1, 2): {None: 1}, 3: {4}}, {"(1, 2)": {"None": 1}, "3": "{4}"}),
        ([Silent(), b"x", 1 + 2j], ["Silent that has no text", "b'x'", "(1+2j)"]),
        ((True, None, "text", 1, 1.5), [True, None, "text", 1, 1.5]),
    ],
)
def test_any_value_is_written(tmp_path, journal, value, written):
    journal.add_event("finish", process=0, after=value)
    assert json.loads((tmp_path / "ledger").read_text())["after"] == written
    journal.add_event("finish", process=0, after=LOOP)
    *_, event = recorded(journal.path)
    assert "[[...]]" in json.dumps(event["after"])


def test_a_follower_waits_for_whole_lines(tmp_path, request):
    path = tmp_path / "ledger"
    follower = ledger.Follower(path)
    request.addfinalizer(follower.close)
    assert list(follower.events()) == []
    with contextlib.closing(ledger.Ledger(path)) as journal:
        journal.add_event("finish", process=0)
    with path.open("a") as file:
        file.write('{"event": "fin')
        file.flush()
        assert [event["process"] for event in follower.events()] == [0]
        file.write('ish", "process": 1}\n{"event": "finish"}\n')
    assert [event["process"] for event in follower.events()] == [1]


def test_the_largest_run_is_read_again(tmp_path):
    """3,000 cases in three processes of 200 samples."""
    cases = [Case("a.b", "cpu", "float32", {"n": n}, size="n", devices=("cpu",)) for n in range(3000)]
    known = {f"test_a.py::test_b[{n}]": case for n, case in enumerate(cases)}
    times = [1.2345678901234567e-05 * (1 + i / 1e9) for i in range(200)]
    samples = json.dumps(times)
    with (tmp_path / "ledger").open("w") as file:
        begun = {"event": "run", "schema_version": 3, "processes": 3, "options": [], "paths": [], "inode": 1}
        file.write(json.dumps(begun) + "\n")
        for process in range(3):
            events = [records.session(process, known)]
            for name, case in known.items():
                start, end = records.begun_and_ended(process, name, case, times[0])
                end["benchmark"]["extra_info"]["gpubench"]["processes"][0] |= {"kept": 200, "rounds": 200}
                end["benchmark"]["stats"] |= {"data": "samples", "total": sum(times), "rounds": 200}
                events += [start, end]
            events.append({"event": "finish", "process": process})
            file.writelines(json.dumps(event).replace('"samples"', samples) + "\n" for event in events)
    events = ledger.read_ledger(tmp_path / "ledger")
    assert sum(event["event"] == "end" for event in events) == 9000
    run = ledger.assemble(events)
    writer.write(tmp_path / "run.json", run)
    assert reader.check_run(tmp_path, run).results
    results = runs.read(tmp_path / "run.json").results
    assert len(results) == 3000
    assert {len(samples) for result in results for samples in result.times.samples} == {200}


def test_a_process_has_still_to_end_what_it_has_not_and_what_the_first_could_measure():
    ends = [(0, "a", "ok"), (0, "b", "error"), (0, "c", "ok"), (1, "a", "ok")]
    events = [{"event": "session", "process": 0, "cases": ["a", "b", "c", "d"]}]
    assert ledger.missing([], 0) is None
    events += [{"event": "end", "process": n, "fullname": name, "status": status} for n, name, status in ends]
    assert [ledger.missing(events, process) for process in (0, 1)] == [["d"], ["c"]]


def test_a_line_is_on_disk_before_the_next_thing_is_done(journal, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size))
    journal.add_event("finish", process=0)
    assert synced == [journal.path.stat().st_size]


def test_a_line_that_could_not_be_read_again_is_not_written(tmp_path, journal, monkeypatch):
    monkeypatch.setattr(ledger, "LONGEST_LINE", 1000)
    with pytest.raises(UsageError, match="at most 1000"):
        journal.add_event("finish", process=0, after="x" * 1000)
    assert (tmp_path / "ledger").read_bytes() == b""


@pytest.mark.parametrize("processes", [1, 3])
def test_percentiles_are_fields_of_the_results_file(processes):
    ends = []
    for process in range(processes):
        mark = records.benchmark(Case("a.b", "cpu", "float32"), 1.0)
        mark["stats"] |= {"data": [1.0 + i / 1000 for i in range(100)], "total": 100.0}
        mark["extra_info"]["gpubench"]["processes"][0] |= {"process": 0, "kept": 100, "iterations": 1}
        ends.append({"process": process, "benchmark": mark})
    ours = ledger.merge(ends)["extra_info"]["gpubench"]
    assert (ours["p95_s"], ours["p99_s"]) == (1.094, 1.098)


def test_an_interrupted_run_is_judged_as_a_whole_one_is(tmp_path, capsys):
    """It was ended after its last benchmark, so that nothing is missing."""
    case = Case("a.b", "cpu", "float32", {"n": 8})
    start, end = records.begun_and_ended(0, "test_a.py::test_b", case, 1e-3)
    ours = end["benchmark"]["extra_info"]["gpubench"]
    ours["processes"][0]["flags"] = [{"flag": "contended", "seen": "load 3"}]
    path = tmp_path / "run.ledger.jsonl"
    events = records.session(0, {"test_a.py::test_b": case}), start, end
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    (run,) = runs.read_runs([path])
    assert (run.contended, [result.status for result in run.results]) == (True, ["ok"])
    assert capsys.readouterr().err == ""
    writer.write(tmp_path / "run.json", ledger.assemble(events))
    assert len([*runs.read_runs([tmp_path / "run.json", path])]) == 1
    assert "run.ledger.jsonl holds the run of " in capsys.readouterr().err


def test_peaks_that_are_measured_again_at_the_end_replace_the_first_ones():
    begun = records.session(0, {})
    begun["gpubench"] |= {"ceilings": {"cpu": {"launch_floor_s": 2e-6}, "cuda:0": {}}}
    again = {"event": "finish", "process": 0, "ceilings": {"cpu": {"launch_floor_s": 1e-6}}}
    peaks = ledger.assemble([begun, again])["gpubench"]["ceilings"]
    assert peaks == {"cpu": {"launch_floor_s": 1e-6}, "cuda:0": {}}
