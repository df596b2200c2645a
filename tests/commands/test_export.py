"""What other tools are given: exact, and nothing left out in silence."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import records

from gpubench.commands.cli import main
from gpubench.runfile.schema import Case

CPU, GPU = (Case("a.b", device, "float32", {"n": 8}, devices=(device,)) for device in ("cpu", "cuda:0"))


@pytest.fixture
def run(tmp_path: Path) -> str:
    path = tmp_path / "run.json"
    marks = [records.benchmark(CPU, 2e-3, spread=0.1), records.benchmark(GPU, 1e-3)]
    gone = records.unmeasured(Case("a.gone", "cpu", "float32"))
    path.write_text(json.dumps(records.run_file(marks, [gone], devices=(records.CPU, records.GPU))))
    return str(path)


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("markdown", "| a.b float32, n=8 | Synthetic H | the CPU | 2.00 ms → 1.00 ms | 2.0×"),
        ("rst", "   * - a.b float32, n=8"),
        ("html", "<td>a.b float32, n=8</td><td>Synthetic H</td><td>the CPU</td>"),
    ],
)
def test_a_table_has_a_row_for_each_workload(run: str, to: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", run, "--to", to]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("a.b float32") == 1
    assert words in shown.out
    assert "Synthetic CPU, 2 threads · Synthetic H-GPU · PyTorch 2.13.0." in shown.out
    assert shown.err == ""


def test_md_is_markdown_and_what_was_flagged_has_a_star_and_a_footnote(run: str, tmp_path: Path, capsys) -> None:
    assert main(["export", run, "--to", "md"]) == 0
    plain = capsys.readouterr().out
    assert "*" not in plain.replace("\\*", "*")
    flagged = tmp_path / "flagged.json"
    marks = [records.benchmark(CPU, 2e-3), records.benchmark(GPU, 1e-3, flags=("noisy",))]
    flagged.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU))))
    assert main(["export", str(flagged), "--to", "md"]) == 0
    shown = capsys.readouterr().out.replace("\\*", "*")
    assert "2.00 ms → 1.00 ms* |" in shown
    assert "* flagged while it was measured" in shown
    assert main(["export", run, "--to", "markdown"]) == 0
    assert capsys.readouterr().out == plain


def test_folders_and_k_choose_what_is_exported(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", run, "--to", "bmf", "-k", "cuda"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["a.b[float32-n=8] on cuda:0"]
    assert main(["export", run, "--to", "bmf", "-k", "resnet"]) == 2
    assert "no benchmark matches 'resnet': choose from a.b, a.gone" in capsys.readouterr().err
    (tmp_path / "other.json").write_text(json.dumps(records.run_file([records.benchmark(CPU, 3e-3)])))
    assert main(["export", str(tmp_path), "--to", "bmf", "-k", "cpu and a.b"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {name: each["latency"]["value"] for name, each in shown.items()} == pytest.approx(
        {"other: a.b[float32-n=8]": 3e6, "run: a.b[float32-n=8]": 2e6}
    )


def test_no_command_replaces_what_it_reads_or_what_isnt_ours(run: str, tmp_path: Path, capsys) -> None:
    """Whatever the way it is named: as a file, by its folder, or the journal beside it."""
    folder, notes = tmp_path / "side", tmp_path / "notes.svg"
    folder.mkdir()
    for name in ("run.json", "run.ledger.jsonl"):
        (folder / name).write_bytes(Path(run).read_bytes())
    notes.write_text("mine")
    journal, data = str(folder / "run.ledger.jsonl"), str(folder / "run.json")
    taken = (run, data, journal, str(notes))
    for command in (["export", run, "--to", "csv"], ["export", str(folder), "--to", "markdown"], ["recover", journal],
                    ["merge", run, str(folder)], ["time", "1+1"]):  # fmt: skip
        assert [main([*command, "-o", target]) for target in taken] == [2, 2, 2, 2]
    assert main(["recover", str(folder)]) == 2  # its run.json is there
    assert main(["chart", run, "-o", str(notes)]) == 2
    assert main(["time", "1+1", "--chart", str(notes)]) == 2
    assert main(["compare", run, str(folder), "--svg", str(notes)]) == 2
    for target in (run, data, journal):
        assert main(["compare", "--base", run, "--new", str(folder), "--github-summary", target]) == 2
    assert capsys.readouterr().err.count("\n") == 27
    assert len({Path(path).read_bytes() for path in taken[:3]}) == 1
    assert notes.read_text() == "mine"


def test_github_action_benchmark(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", run, "--to", "github-action-benchmark"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)[0] == {
        "name": "a.b[float32-n=8]",
        "unit": "ms",
        "value": 2.0,
        "range": "± 0.100",
        "extra": "50 rounds of 1 calls in 1 processes",
    }
    assert json.loads(shown.out)[1]["name"] == "a.b[float32-n=8] on cuda:0"
    assert "not measured and left out: a.gone[float32]" in shown.err


def test_a_doubtful_time_is_marked_where_a_program_looks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    marks = [records.benchmark(CPU, 2e-3, flags=("noisy", "drifting"))]
    path.write_text(json.dumps(records.run_file(marks)))
    assert main(["export", str(path), "--to", "github-action-benchmark"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["extra"] == "50 rounds of 1 calls in 1 processes; flagged: noisy, drifting"


def test_bmf(run: str, tmp_path: Path) -> None:
    assert main(["export", run, "--to", "bmf", "-o", str(tmp_path / "bmf.json")]) == 0
    entries = json.loads((tmp_path / "bmf.json").read_text())
    latency = entries["a.b[float32-n=8]"]["latency"]
    assert latency == pytest.approx({"value": 2e6, "lower_value": 1.9e6, "upper_value": 2.1e6})
    assert len(entries) == 2


def test_csv_has_a_row_for_what_was_not_measured_too(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", run, "--to", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["status"] for row in rows] == ["ok", "ok", "skipped"]


def test_plain_files_go_by_their_full_names_each_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = records.benchmark(CPU, 2e-3) | {"extra_info": {}, "options": {"timer": "perf_counter"}}
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({"benchmarks": [mark, mark], "machine_info": {}}))
    assert main(["export", str(path), "--to", "bmf"]) == 0
    name = mark["fullname"]
    assert list(json.loads(capsys.readouterr().out)) == [name, f"{name} #2"]


def test_bad_input(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path / "gone.json"), "--to", "bmf"]) == 2
    assert main(["export", run, "--to", "bmf", "-o", str(tmp_path / "no" / "where.json")]) == 2
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps(records.run_file([])))
    assert main(["export", str(empty), "--to", "bmf"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    with pytest.raises(SystemExit, match="2"):
        main(["export", run, "--to", "excel"])


def test_run_files_go_unchanged_into_pytest_benchmarks_own_compare(tmp_path: Path) -> None:
    measured = Path(__file__).parent.parent.parent / "results/xeon-2-cores/run.json"
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(measured.read_bytes())
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "a.json", "b.json", "--columns=median"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test_square[cpu-float32-1024]") >= 2


@pytest.mark.parametrize(
    ("seconds", "value", "unit", "spread"),
    [
        (12.5, 12.5, "s", "± 2.50"), (2e-3, 2.0, "ms", "± 0.400"), (4.25e-5, 42.5, "us", "± 8.50"),
        (9.999999e-7, 1000.0, "ns", "± 200."), (1e-10, 0.1, "ns", "± 0.0200"),
    ],
)  # fmt: skip
def test_times_have_a_unit_that_people_read(save, capsys, seconds, value, unit, spread) -> None:
    """And one that the action converts, with a range that it understands: two signs or more."""
    path = save("run.json", records.run_file([records.benchmark(CPU, seconds, spread=0.4)]))
    assert main(["export", path, "--to", "github-action-benchmark"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["value"], entry["unit"], entry["range"]) == (value, unit, spread)
