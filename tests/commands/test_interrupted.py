"""Of an interrupted run everything that reads results reads the journal, and how far it got is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import records

from gpubench import load
from gpubench.commands.cli import main
from gpubench.runfile.schema import Case
from gpubench.runfile.writer import Lock

CASES = {
    f"test_a.py::test_w[{n}]": Case("a.w", "cpu", "float32", {"n": n}, size="n", devices=("cpu",)) for n in (1, 2, 4, 8)
}
RUN = {"event": "run", "schema_version": 3, "processes": 1, "options": [], "paths": ["/test_a.py"]}
NOTE = "interrupted: 3 of 4 measured; gpubench run --resume"


def journal(path: Path, *, run: dict[str, object] | None = RUN, whole: bool = False) -> Path:
    """A run of four benchmarks that was killed within the last."""
    events = [*([run] if run else []), records.session(0, CASES)]
    for place, (name, case) in enumerate(CASES.items()):
        work = {"flops": 1e9, "bytes": 1e6}
        start, end = records.begun_and_ended(0, name, case, 1e-3 * (place + 1))
        end["benchmark"]["extra_info"]["gpubench"]["work"] = work
        events += [start, end] if place < 3 or whole else [start]
    events += [{"event": "finish", "process": 0}, {"event": "complete"}] if whole else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


COMMANDS: dict[str, Callable[[str, str], list[str]]] = {
    "show": lambda run, to: ["show", run],
    "report": lambda run, to: ["report", run, "--charts=none", "-o", f"{to}/report"],
    "chart": lambda run, to: ["chart", run, "--kind=time", "-o", f"{to}/chart.svg"],
    "csv": lambda run, to: ["show", run, "--format=csv"],
    "estimate": lambda run, to: ["estimate", run, "--gpu=L4"],
    "compare": lambda run, to: ["compare", run, run],
}


@pytest.mark.parametrize("named", ["a folder", "its journal"])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_reads_what_was_measured(tmp_path: Path, capsys, command: str, named: str) -> None:
    path = journal(tmp_path / "out/run.ledger.jsonl")
    run = str(path.parent if named == "a folder" else path)
    assert main(COMMANDS[command](run, str(tmp_path))) == 0
    captured = capsys.readouterr()
    assert f"{path}: {NOTE} {path.parent}" in captured.err
    written = "".join(each.read_text() for each in tmp_path.rglob("*") if each.suffix in (".md", ".csv", ".svg"))
    assert "a.w" in captured.out + written


def test_the_journal_is_read_in_place_of_an_older_results_file_until_the_run_is_complete(
    tmp_path: Path, capsys
) -> None:
    path = journal(tmp_path / "out/run.ledger.jsonl")
    path.with_name("run.json").write_text(
        json.dumps(records.run_file([records.benchmark(CASES["test_a.py::test_w[1]"], 1)]))
    )
    assert len(load(path.parent).runs[0].results) == 4
    journal(path, whole=True)
    capsys.readouterr()
    assert len(load(path.parent).runs[0].results) == 1
    assert load(path).runs[0].results[3].times  # named, it is read all the same
    path.with_name("run.json").unlink()
    assert load(path.parent).runs[0].results[3].times
    assert capsys.readouterr().err == ""


def test_several_processes_and_journals_of_pytest(tmp_path: Path, capsys) -> None:
    load(journal(tmp_path / "out/run.ledger.jsonl", run=RUN | {"processes": 2}))
    assert "interrupted in process 1 of 2: 3 of 4 measured; gpubench run --resume" in capsys.readouterr().err
    mine = journal(tmp_path / "mine.ledger.jsonl", run=None)
    load(mine)
    assert capsys.readouterr().err == f"gpubench: {mine}: interrupted: 3 of 4 measured\n"


def test_a_run_under_way_is_not_called_interrupted(tmp_path: Path, capsys) -> None:
    path, lock = journal(tmp_path / "run.ledger.jsonl"), Lock(tmp_path)
    load(tmp_path)
    assert capsys.readouterr().err == f"gpubench: {path}: under way: 3 of 4 measured\n"
    lock.release()
    load(tmp_path)
    assert NOTE in capsys.readouterr().err


def test_turns_of_a_comparison_are_no_runs(tmp_path: Path, capsys) -> None:
    """They have no event ``run``; their measurements lie in the files of both sides."""
    journal(tmp_path / "turns/000-base/run.ledger.jsonl", run=None)
    assert main(["show", str(tmp_path)]) == 2
    assert "no run file in this folder" in capsys.readouterr().err


def test_a_run_killed_at_its_start_hides_no_other(tmp_path: Path, capsys) -> None:
    """Its folder keeps the earlier one as run.1.json, and the folder above has more of them."""
    killed = tmp_path / "killed/run.ledger.jsonl"
    journal(tmp_path / "good/run.ledger.jsonl", whole=True)
    killed.parent.mkdir()
    killed.write_text(json.dumps(RUN) + "\n")
    killed.with_name("run.1.json").write_text("{}")
    assert main(["show", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "a.w" in captured.out
    (line,) = captured.err.splitlines()
    assert line.startswith(f"gpubench: passed over: {killed}: ")
    assert line.endswith("results of earlier runs beside it: run.1.json")
    assert main(["show", str(killed.parent)]) == 2
    assert "run.1.json" in capsys.readouterr().err


@pytest.mark.parametrize("lines", ["", "{}\n", json.dumps(RUN) + "\n"], ids=["empty", "no event", "nothing had begun"])
def test_a_journal_without_results_is_an_error_that_names_it(tmp_path: Path, capsys, lines: str) -> None:
    path = tmp_path / "run.ledger.jsonl"
    path.write_text(lines)
    assert main(["show", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line


@pytest.mark.parametrize(
    ("place", "key", "value", "status", "said"),
    [
        (3, "benchmark", {}, "skipped", "line 4 is passed over: test_a.py::test_w[1]: end.benchmark: expected a value"),
        (3, "status", 7, "skipped", "line 4 is passed over: test_a.py::test_w[1]: end.status: expected a text"),
        (3, "process", "x", "skipped", "line 4 is passed over: test_a.py::test_w[1]: end.process: expected a whole"),
        (3, "fullname", None, "skipped", "line 4 is passed over: end.fullname: expected a text"),
        (3, "status", "odd", "error", ""),
        (2, "case", [], "ok", "line 3 is passed over: test_a.py::test_w[1]: start.case: expected an object"),
        (3, ..., "{", "skipped", "line 4 is passed over: expected an event, found no whole JSON"),
    ],
)
def test_a_bad_entry_costs_its_benchmark_alone_and_is_named(
    tmp_path: Path, capsys, place: int, key: object, value: object, status: str, said: str
) -> None:
    path = journal(tmp_path / "run.ledger.jsonl", whole=True)
    lines = path.read_text().splitlines()
    lines[place] = str(value) if key is ... else json.dumps(json.loads(lines[place]) | {key: value})
    path.write_text("\n".join(lines) + "\n")
    (run,) = load(path).runs
    by_size = {result.params["n"]: result.status for result in run.results}
    assert by_size == {1: status, 2: "ok", 4: "ok", 8: "ok"}
    assert said in capsys.readouterr().err
    assert (said == "") == ("no number: gpubench.unmeasured[0].status" in str(run.results[-1].reason))


def test_entries_of_several_processes_that_cant_be_merged_cost_their_benchmark_alone(tmp_path: Path) -> None:
    lines = journal(tmp_path / "run.ledger.jsonl", whole=True).read_text().splitlines()
    again = json.loads(lines[3]) | {"process": 1}
    del again["benchmark"]["stats"]["total"]
    (tmp_path / "run.ledger.jsonl").write_text("\n".join([*lines[:-2], json.dumps(again)]) + "\n")
    (run,) = load(tmp_path / "run.ledger.jsonl").runs
    assert [result.status for result in run.results] == ["ok"] * 3 + ["error"]
    assert run.results[-1].reason == "no number: its entries in the journal don't belong together"
