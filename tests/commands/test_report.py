"""``gpubench report`` from its options to its files: its files, its refusals, and the files that it never touches."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import records
from records import SIZES, sweep
from suites import plain

from gpubench.commands import cli
from gpubench.report import output

WRITTEN = {"results.csv", "speedup.csv", "crossover.csv", "summary.md", "report.html", output.MANIFEST}


def report(*words: str | Path) -> int:
    return cli.main(["report", *map(str, words)])


def tables(*words: str | Path) -> int:
    """Without charts, which take the time."""
    return report(*words, "--charts", "none")


def small(machine=""):
    """Three sizes on a CPU, and ten times as fast on a GPU."""
    return sweep("a.b", one=records.run(machine))


@pytest.fixture
def run(tmp_path):
    return small().save(tmp_path / "run.json")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


def rows(folder: Path, name: str = "results.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((folder / name).read_text().splitlines()))


def test_everything(run, tmp_path, capsys):
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


@pytest.mark.parametrize("name", ["notebook", "encoding"])
def test_the_user_s_settings_of_pictures_have_no_say(run, tmp_path, name):
    """Jupyter names its backend to all that a cell starts."""
    (tmp_path / "matplotlibrc").write_bytes(b"\xff\xfe" if name == "encoding" else b"")
    changes = {"MPLBACKEND": "module://no_such.backend"} if name == "notebook" else {}
    command = [sys.executable, "-m", "gpubench", "report", str(run), "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | changes, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report(run, "-o", tmp_path / "plain")
    assert contents(tmp_path / "out") == contents(tmp_path / "plain")
    assert any(name.startswith("charts/") for name in names(tmp_path / "out"))


def test_pictures_that_cannot_be_made_cost_no_table(run, out, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gpubench.report.charts.pictures", None)
    monkeypatch.delattr("gpubench.report.charts.pictures", raising=False)
    assert report(run, "-o", out) == 0
    assert "pictures left out: " in capsys.readouterr().err
    assert names(out) >= WRITTEN


def test_earlier_runs_are_left_out_of_their_folder(tmp_path):
    """A new run in the same folder keeps the earlier one beside it."""
    for name in ("run", "run.1"):
        small(name).save(tmp_path / f"{name}.json")
    assert tables(tmp_path, "-o", tmp_path / "both") == 0
    (tmp_path / "run.ledger.jsonl").touch()
    assert tables(tmp_path, "-o", tmp_path / "latest") == 0
    assert [{row["run"] for row in rows(tmp_path / name)} for name in ("both", "latest")] == [{"run", "run.1"}, {"run"}]


def test_a_report_in_a_folder_of_gpubench_says_what_it_replaces(run, out, tmp_path, capsys):
    assert tables(run, "-o", out) == 0
    (out / "summary.md").write_text("my notes")
    capsys.readouterr()
    assert tables(run, "-o", out) == 0
    assert "replaced an earlier report's results.csv, speedup.csv, " in capsys.readouterr().err
    assert "my notes" not in (out / "summary.md").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/summary.md").write_text("my notes")
    assert tables(run, "-o", tmp_path / "mine") == 2
    assert "mine: holds other files and no results of gpubench" in capsys.readouterr().err
    assert names(tmp_path / "mine") == {"summary.md"}


@pytest.mark.parametrize("command", ["show", "report", "estimate"])
def test_without_a_path_it_is_the_folder_out(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    small().save(tmp_path / "out/run.json")
    assert cli.main([command, *(["--charts=none"] if command == "report" else [])]) == 0
    assert (tmp_path / "out/results.csv").exists() == (command == "report")


def test_a_folder_of_runs_has_each_once(tmp_path, out, capsys):
    nightly = tmp_path / "nightly"
    for name in ("r1", "r2"):
        path = small(name).save(nightly / name / "run.json")
        assert tables(path, "-o", nightly / name) == 0  # a report beside its run
    small("r2").save(nightly / "latest.json")  # a copy
    small("not ours").save(nightly / ".tox/lib/run.json")
    (nightly / "other.json").write_text('{"something": "else"}')
    assert tables(nightly, nightly / "r1/run.json", "-o", out) == 0
    assert [row["machine"] for row in rows(out)] == ["r2"] * 6 + ["r1"] * 6
    capsys.readouterr()
    (nightly / "r1/run.json").write_text('{"benchmarks": [')
    assert tables(nightly, "-o", out) == 2
    assert "r1/run.json: file: expected JSON (Expecting value: line 1 column 17" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_cannot_be_read_in_a_folder_is_named_and_passed_over(run, out, tmp_path, capsys):
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


def test_a_folder_without_runs_says_what_it_found(tmp_path, capsys):
    assert report(tmp_path, "-o", tmp_path / "out") == 2
    assert "no run file in this folder" in capsys.readouterr().err
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/other.json").write_text('{"something": "else"}')
    assert report(tmp_path, "-o", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "deep/other.json" in line


@pytest.mark.parametrize("content", ["{", json.dumps(records.run().data)], ids=["truncated", "no cases"])
def test_bad_input_is_one_line_and_leaves_the_old_report(run, out, capsys, content):
    assert tables(run, "-o", out) == 0
    before = contents(out)
    capsys.readouterr()
    run.write_text(content)
    assert report(run, "-o", out) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n"), str(run) in shown.err) == ("", 1, True)
    assert contents(out) == before


def test_unlike_cases_are_left_out_aloud(run, out, capsys):
    one = records.run().bench("a.b", cpu=lambda n: 1e-6 * n, n=SIZES, threads=1)
    one.bench("a.b", gpu=lambda n: 1e-7 * n, n=SIZES, threads=2).save(run)
    assert tables(run, "-o", out) == 0
    shown = capsys.readouterr().out
    told = "3 benchmarks have no comparable baseline, the nearest differs in threads (3). Use --allow threads"
    assert told in " ".join(shown.split())
    assert rows(out, "speedup.csv") == []
    for name in ("summary.md", "report.html"):
        assert told in (out / name).read_text().replace("\u00a0", " ")
    assert report(run, "-o", out, "--allow", "seed", "--allow", "threads") == 0
    assert "--allow" not in capsys.readouterr().out
    assert [row["differs"] for row in rows(out, "speedup.csv")] == ["threads 2 against 1"] * 3
    assert "threads 2 against 1" in (out / "charts" / "speedup-a.b-light.svg").read_text()


def test_a_file_of_pytest_benchmark_alone(tmp_path, out):
    path = tmp_path / "plain.json"
    one = records.run().bench("a.b", cpu=lambda n: 1e-6 * n, n=SIZES)
    path.write_text(json.dumps(plain(one.data)))
    assert report(path, "-o", out, "--charts", "all") == 0
    assert "charts/time-own-light.svg" in names(out)
    assert re.search(r"machine busy *\| unknown", (out / "summary.md").read_text())  # it doesn't tell
    assert [float(row["time_s"]) for row in rows(out)] == pytest.approx([1e-6, 1e-5, 1e-4])
