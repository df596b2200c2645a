"""``gpubench report`` from its options to its files: what it writes, refuses and never touches."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
import records
from reading import BOTH, sweep

from gpubench.commands import cli
from gpubench.report import output

WRITTEN = {"results.csv", "speedup.csv", "crossover.csv", "summary.md", "report.html", output.MANIFEST}


def report(*words: str | Path) -> int:
    return cli.main(["report", *map(str, words)])


def tables(*words: str | Path) -> int:
    """Without charts, which take the time."""
    return report(*words, "--charts", "none")


def small(**how: Any) -> dict[str, Any]:
    """Three sizes on a CPU, and ten times as fast on a GPU."""
    return records.run_file(sweep("a.b"), devices=BOTH, **how)


def saved(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return saved(tmp_path / "run.json", small())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


def rows(folder: Path, name: str = "results.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((folder / name).read_text().splitlines()))


def test_everything(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    words = (run, "-o", out, "--charts", "all")
    assert report(*words) == 0
    assert names(out) > WRITTEN
    charts = {name.removeprefix("charts/") for name in names(out) if name.startswith("charts/")}
    assert "time-own-light.svg" in charts
    shown = capsys.readouterr().out
    assert "10×" in shown
    assert str(out) in shown
    summary = (out / "summary.md").read_text()
    assert {f"{name}-light.svg" in summary for name in {name.rpartition("-")[0] for name in charts}} == {True}
    before = contents(out)
    assert report(*words) == 0
    assert contents(out) == before


def test_earlier_runs_are_left_out_of_their_folder(tmp_path: Path) -> None:
    """A new run in the same folder keeps the earlier one beside it."""
    for name in ("run", "run.1"):
        saved(tmp_path / f"{name}.json", small(label=name))
    assert tables(tmp_path, "-o", tmp_path / "both") == 0
    (tmp_path / "run.ledger.jsonl").touch()
    assert tables(tmp_path, "-o", tmp_path / "latest") == 0
    assert [{row["run"] for row in rows(tmp_path / name)} for name in ("both", "latest")] == [{"run", "run.1"}, {"run"}]


def test_a_folder_of_runs_has_each_once(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nightly = tmp_path / "nightly"
    for name in ("r1", "r2"):
        path = saved(nightly / name / "run.json", small(label=f"{name} (synthetic)"))
        assert tables(path, "-o", nightly / name) == 0  # a report beside its run
    saved(nightly / "latest.json", small(label="r2 (synthetic)"))  # a copy
    saved(nightly / ".tox/lib/run.json", small(label="not ours"))
    saved(nightly / "other.json", {"something": "else"})
    assert tables(nightly, nightly / "r1/run.json", "-o", out) == 0
    assert [row["machine"] for row in rows(out)] == ["r2 (synthetic)"] * 6 + ["r1 (synthetic)"] * 6
    capsys.readouterr()
    (nightly / "r1/run.json").write_text('{"benchmarks": [')
    assert tables(nightly, "-o", out) == 2
    assert "r1/run.json: file: expected JSON (Expecting value: line 1 column 17" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_cannot_be_read_in_a_folder_is_named_and_passed_over(
    run: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    run.rename(folder / "run.json")
    os.mkfifo(folder / "pipe.json")  # it would be waited for
    (folder / "gone.json").symlink_to(tmp_path / "nowhere")
    (folder / "a.json").mkdir()
    assert tables(folder, "-o", out) == 0
    error = capsys.readouterr().err
    for name in ("pipe.json", "gone.json", "a.json"):
        assert f"{folder / name} is passed over: " in error


def test_a_folder_without_runs_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path, "-o", tmp_path / "out") == 2
    assert "no run file in this folder" in capsys.readouterr().err
    saved(tmp_path / "deep/other.json", {"something": "else"})
    assert report(tmp_path, "-o", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "deep/other.json" in line


@pytest.mark.parametrize("content", ["{", json.dumps(records.run_file([]))], ids=["truncated", "no cases"])
def test_bad_input_is_one_line_and_leaves_the_old_report(run: Path, out: Path, capsys, content: str) -> None:
    assert tables(run, "-o", out) == 0
    before = contents(out)
    capsys.readouterr()
    run.write_text(content)
    assert report(run, "-o", out) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n"), str(run) in shown.err) == ("", 1, True)
    assert contents(out) == before


def test_unlike_cases_are_left_out_aloud(run: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = small()
    for mark in data["benchmarks"]:
        own = mark["extra_info"]["gpubench"]
        own["threads"] = 1 if own["device"] == "cpu" else 2
    saved(run, data)
    assert tables(run, "-o", out) == 0
    shown = capsys.readouterr().out
    told = "3 benchmarks have no comparable baseline, the nearest differs in threads (3). Use --allow threads"
    assert told in " ".join(shown.split())
    assert rows(out, "speedup.csv") == []
    assert all(told in (out / name).read_text() for name in ("summary.md", "report.html"))
    assert report(run, "-o", out, "--allow", "seed", "--allow", "threads") == 0
    assert "--allow" not in capsys.readouterr().out
    assert [row["differs"] for row in rows(out, "speedup.csv")] == ["threads 2 against 1"] * 3
    assert "threads 2 against 1" in (out / "charts" / "speedup-a.b-light.svg").read_text()


def test_a_file_of_pytest_benchmark_alone(tmp_path: Path, out: Path) -> None:
    marks = [mark | {"extra_info": {}, "options": {"timer": "perf_counter"}} for mark in small()["benchmarks"][:3]]
    path = saved(tmp_path / "plain.json", {"benchmarks": marks, "machine_info": {}})
    assert report(path, "-o", out, "--charts", "all") == 0
    assert "charts/time-own-light.svg" in names(out)
    assert [float(row["time_s"]) for row in rows(out)] == pytest.approx([1e-6, 1e-5, 1e-4])
