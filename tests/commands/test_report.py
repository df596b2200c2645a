"""``gpubench report`` from its options to its files: what it writes, refuses and never touches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.commands import cli
from gpubench.report import output, render
from gpubench.runfile.schema import Case

WRITTEN = {*render.TABLES, output.MANIFEST}


def report(*words: str | Path) -> int:
    return cli.main(["report", *map(str, words)])


def small(sizes: tuple[int, ...] = (1, 10), **how: Any) -> dict[str, Any]:
    marks = [
        records.benchmark(Case("a.b", device, "float32", {"n": n}, size="n", devices=(device,)), time * n)
        for device, time in (("cpu", 1e-6), ("cuda:0", 1e-7))
        for n in sizes
    ]
    return records.run_file(marks, devices=(records.CPU, records.GPU), **how)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(small()))
    return path


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_everything(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    assert report(run, "-o", out, "--charts", "all", "--theme", "both", "--format", "svg,png") == 0
    assert {
        "results.csv",
        "speedup.csv",
        "crossover.csv",
        "summary.md",
        "charts/time-a-light.svg",
        "charts/time-a-dark.png",
    } <= names(out)
    shown = capsys.readouterr().out
    assert "10×" in shown
    assert str(out) in shown
    assert "charts/time-a-light.svg" in (out / "summary.md").read_text()
    before = {name: (out / name).read_bytes() for name in names(out)}
    assert report(run, "-o", out, "--charts", "all", "--theme", "both", "--format", "svg,png") == 0
    assert {name: (out / name).read_bytes() for name in names(out)} == before


def test_no_charts(run: Path, tmp_path: Path) -> None:
    assert report(run, "-o", tmp_path / "out", "--no-charts") == 0
    assert names(tmp_path / "out") == WRITTEN


def test_formats(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run, "-o", tmp_path / "out", "--format", "png") == 0
    assert {Path(name).suffix for name in names(tmp_path / "out") if name.startswith("charts/")} == {".png"}
    assert "-light.png" in (tmp_path / "out" / "summary.md").read_text()
    with pytest.raises(SystemExit, match="2"):
        report(run, "-o", tmp_path / "out", "--format", "gif")
    assert "choose from svg, png" in capsys.readouterr().err


def test_stale_charts_go_and_others_stay(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert report(run, "-o", out) == 0
    mine = out / "charts" / "mine.svg"
    mine.write_text("mine")
    (tmp_path / "precious.svg").write_text("precious")
    (out / "notes.md").write_text("mine")
    manifest = out / output.MANIFEST
    (out / "charts" / "old-light.svg").write_text("old")
    more = ["charts/../../precious.svg", "charts/old-light.svg", "../precious.svg", str(out / "notes.md"), None, []]
    listed = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(listed | {"files": [*listed["files"], *more]}))
    assert report(run, "-o", out, "--no-charts") == 0
    assert names(out) == WRITTEN | {"charts/mine.svg", "notes.md"}
    assert (tmp_path / "precious.svg").read_text() == "precious"
    manifest.write_text("[" * 100_000)
    assert report(run, "-o", out) == 2
    assert names(out) == WRITTEN | {"charts/mine.svg", "notes.md"}


@pytest.mark.parametrize("name", ["summary.md", "results.csv", "charts/time-a-light.svg", output.MANIFEST])
def test_a_file_of_anothers_is_never_replaced(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert report(run, "-o", tmp_path / "mine") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gpubench report: {mine}: was not written by gpubench")
    assert names(tmp_path / "mine") == {name}
    assert mine.read_text() == "mine"


def test_one_added_to_a_report_is_not_replaced_either(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert report(run, "-o", out, "--no-charts") == 0
    (out / "charts").mkdir()
    (out / "charts" / "time-a-light.svg").write_text("mine")
    assert report(run, "-o", out) == 2
    assert names(out) == WRITTEN | {"charts/time-a-light.svg"}


def test_tables_without_a_manifest_stay(run: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert report(run, "-o", out) == 0
    (out / output.MANIFEST).unlink()
    before = {name: (out / name).read_bytes() for name in names(out)}
    capsys.readouterr()
    assert report(run, "-o", out, "--no-charts") == 2
    assert "was not written by gpubench" in capsys.readouterr().err
    assert {name: (out / name).read_bytes() for name in names(out)} == before


def test_a_report_that_was_killed_is_no_obstacle(run: Path, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out"
    assert report(run, "-o", out) == 0
    replace, written = output.replace, []

    def stop(path: Path, content: bytes) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        replace(path, content)

    with monkeypatch.context() as killed:
        killed.setattr(output, "replace", stop)
        assert report(run, "-o", out, "--price", "cpu=1") == cli.INTERRUPTED
    assert report(run, "-o", out, "--price", "cpu=2") == 0


def test_earlier_runs_are_left_out_of_their_folder(tmp_path: Path) -> None:
    """A new run in the same folder keeps the earlier one beside it."""
    for name in ("run", "run.1"):
        (tmp_path / f"{name}.json").write_text(json.dumps(small(label=name)))
    assert report(tmp_path, "-o", tmp_path / "both", "--no-charts") == 0
    (tmp_path / "run.ledger.jsonl").touch()
    assert report(tmp_path, "-o", tmp_path / "latest", "--no-charts") == 0
    counts = [(tmp_path / folder / "results.csv").read_text().count("\nrun.1,") for folder in ("both", "latest")]
    assert counts == [4, 0]


def test_a_folder_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a.json").write_text(json.dumps(small(label="A (synthetic)")))
    (runs / "b.json").write_text(json.dumps(small(label="B (synthetic)")))
    (runs / "other.json").write_text('{"something": "else"}')
    assert report(runs, runs / "a.json", "-o", tmp_path / "out", "--no-charts") == 0
    lines = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["run", *["a"] * 4, *["b"] * 4]
    capsys.readouterr()
    (runs / "c.json").write_text('{"benchmarks": [')
    assert report(runs, "-o", tmp_path / "out", "--no-charts") == 2
    assert "c.json: file: expected JSON (Expecting value: line 1 column 17" in capsys.readouterr().err


def test_runs_in_folders_of_their_own_are_found_once_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nightly, out = tmp_path / "nightly", tmp_path / "out"
    for name in ("r1", "r2"):
        assert report(saved(nightly / name / "run.json", small(label=f"{name} (synthetic)")), "-o", nightly / name) == 0
    assert (nightly / "r1" / output.MANIFEST).exists()
    saved(nightly / "latest.json", small(label="r2 (synthetic)"))  # a copy
    saved(nightly / ".tox/lib/run.json", small(label="not ours"))
    assert report(nightly, nightly / "r1/run.json", "-o", out, "--no-charts") == 0
    rows = (out / "results.csv").read_text().splitlines()[1:]
    assert [row.partition(" (synthetic)")[0].rpartition(",")[2] for row in rows] == ["r2"] * 4 + ["r1"] * 4
    capsys.readouterr()
    (nightly / "r1/run.json").write_text('{"benchmarks": [')
    assert report(nightly, "-o", out, "--no-charts") == 2
    assert "r1/run.json: file: expected JSON (Expecting value: line 1 column 17" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_cannot_be_read_in_a_folder_is_named_and_passed_over(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    run.rename(folder / "run.json")
    os.mkfifo(folder / "pipe.json")  # it would be waited for
    (folder / "gone.json").symlink_to(tmp_path / "nowhere")
    (folder / "a.json").mkdir()
    assert report(folder, "-o", tmp_path / "out", "--no-charts") == 0
    error = capsys.readouterr().err
    for name in ("pipe.json", "gone.json", "a.json"):
        assert f"gpubench: {folder / name} is passed over: not a readable file\n" in error


def test_a_folder_of_other_json_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path / "deep/other.json", {"something": "else"})
    assert report(tmp_path, "-o", tmp_path / "out") == 2
    shown = capsys.readouterr().err
    assert "no run file in this folder or those in it" in shown
    assert "only other JSON such as deep/other.json" in shown
    assert shown.count("\n") == 1


def saved(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


BAD = {
    "missing": None,
    "empty": "",
    "truncated": '{"benchmarks": [{"name": ',
    "foreign": '{"hello": 1}',
    "text": "machine,device",
    "no cases": json.dumps(records.run_file([])),
    "version": json.dumps(small() | {"gpubench": {"schema_version": 99}}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = tmp_path / "run.json"
    content = BAD[name]
    if content is not None:
        path.write_text(content)
    assert report(path, "-o", tmp_path / "out") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert str(path) in shown.err
    assert not (tmp_path / "out").exists()


def test_bad_input_leaves_the_old_report(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert report(run, "-o", out, "--no-charts") == 0
    before = {name: (out / name).read_bytes() for name in names(out)}
    run.write_text("{")
    assert report(run, "-o", out) == 2
    assert {name: (out / name).read_bytes() for name in names(out)} == before


def test_unlike_cases_are_left_out_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = small((1, 10, 100))
    for mark in data["benchmarks"][:3]:
        mark["extra_info"]["gpubench"]["threads"] = 1
    for mark in data["benchmarks"][3:]:
        mark["extra_info"]["gpubench"]["threads"] = 2
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data))
    assert report(path, "-o", tmp_path / "out", "--no-charts") == 0
    assert capsys.readouterr().err == (
        "gpubench report: not compared: 3 benchmarks have no comparable baseline, the nearest differs in threads (3). "
        "Use --allow threads to compare anyway\n"
    )
    assert len((tmp_path / "out" / "speedup.csv").read_text().splitlines()) == 1
    assert "threads 2 against 1" in (tmp_path / "out" / "summary.md").read_text()
    assert report(path, "-o", tmp_path / "out", "--allow", "seed", "--allow", "threads", "--format", "svg") == 0
    assert capsys.readouterr().err == ""
    lines = (tmp_path / "out" / "speedup.csv").read_text().splitlines()
    assert [line.count("threads 2 against 1") for line in lines] == [0, 1, 1, 1]
    chart = (tmp_path / "out" / "charts" / "speedup-a.b-light.svg").read_text()
    assert "threads 2 against 1" in chart


def test_a_term_that_is_none(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        report(run, "-o", tmp_path / "out", "--allow", "everything")
    assert "invalid choice: 'everything'" in capsys.readouterr().err


def test_unknown_baseline(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run, "-o", tmp_path / "out", "--baseline", "tpu") == 2
    assert "unknown baseline 'tpu': choose from cpu, cuda:0, torch, " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path, "-o", tmp_path / "out") == 2
    assert "no run file in this folder" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["taken", "taken/below", "/proc/nowhere"])
def test_output_that_cant_be_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str) -> None:
    (tmp_path / "taken").write_text("a file")
    assert report(run, "-o", tmp_path / where) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "can't write there" in shown


def test_charts_folder_that_leads_elsewhere(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "charts").symlink_to(tmp_path / "elsewhere")
    assert report(run, "-o", tmp_path / "out") == 2
    assert names(tmp_path / "elsewhere") == set()
    assert names(tmp_path / "out") == set()


def test_plain_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = small((1, 10, 100))
    del data["gpubench"]
    del data["machine_info"]["gpubench"]
    for mark in data["benchmarks"]:
        mark |= {"extra_info": {}, "options": {"timer": "perf_counter"}}
    data["benchmarks"] = data["benchmarks"][:3]
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(data))
    assert report(path, "-o", tmp_path / "out", "--charts", "all") == 0
    assert "charts/time-a-light.svg" in names(tmp_path / "out")
    assert "wait for the device" not in (tmp_path / "out" / "summary.md").read_text()


def test_without_torch_and_help_without_pandas(run: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gpubench.commands import cli\n"
        "cli.parser('report').parse_args(sys.argv[2:])\n"
        "assert not {'pandas', 'numpy', 'matplotlib', 'scipy', 'rich'} & set(sys.modules)\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-W", "error::UserWarning", "-c", code, "report", str(run), "-o", str(tmp_path / "out")]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_prices(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert report(run, "-o", out, "--no-charts", "--price", "cpu=0.5", "--price", "Synthetic H-GPU=3") == 0
    for name in ("summary.md", "report.html"):
        text = (out / name).read_text()
        assert text.count("Work for money") >= 1
        assert "6.0×" in text
        assert "Which device is cheaper" in text
    capsys.readouterr()
    for price, words in (("A100=2", "can be given for Synthetic, Synthetic H, run"), ("cpu", "write NAME=2.99")):
        assert report(run, "-o", tmp_path / "none", "--price", price) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_several_machines_stand_side_by_side(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps(small(label="Other (synthetic)", torch="2.12.0")))
    out = tmp_path / "out"
    assert report(run, other, "-o", out, "--no-charts") == 0
    for name in ("summary.md", "report.html"):
        text = (out / name).read_text()
        assert "GPU against GPU" in text
        assert "What differs between the machines" in text
    assert (out / "report.html").read_text().count("GPU against GPU") == 1
