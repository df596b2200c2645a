"""The ending of a run: at most 25 lines of 80 columns that hold the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import records

from gpubench.commands.report import Charts, write_report
from gpubench.report.ending import MOST_LINES, WIDTH, ending, skip_kind
from gpubench.runfile.schema import Case

ROOT = Path(__file__).parent.parent.parent


def lines_of(data: dict | Path, folder: Path) -> list[str]:
    if isinstance(data, dict):
        (folder / "run.json").write_text(json.dumps(data))
        data = folder / "run.json"
    report = write_report([data], folder / "out", charts=Charts("none"))
    lines = ending(report.answer, report.runs[0], report.files, 684.0)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH + len(str(folder))  # names of files may be longer
    return lines


def case(device: str, name: str = "mine.step", n: int = 8) -> Case:
    return Case(name, device, "float32", {"n": n}, size="n", devices=(device,))


def test_on_a_cpu_alone_it_is_the_times_and_why_there_is_no_gpu(tmp_path: Path) -> None:
    lines = lines_of(ROOT / "results/xeon-2-cores/run.json", tmp_path)
    assert lines[0] == "209 benchmarks in 11 min 24 s · Intel Xeon, 2 threads · PyTorch 2.13.0"
    assert lines[1].startswith("No GPU used: ")
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["benchmark", "time"])
    assert [i for i, line in enumerate(lines) if line.startswith("WARNING: ")] < [head]
    assert len([line for line in lines[head + 1 :] if line.startswith("  ")]) >= 8
    assert "Skipped: 9 need a GPU, 6 run with --preset full only. Failed: 0." in lines
    assert "report.html" in " ".join(lines[-3:])


def test_with_an_accelerator_it_is_the_speedups_and_the_times_of_own_benchmarks(tmp_path: Path) -> None:
    marks = [
        records.benchmark(case(device, n=n), seconds, medians=(seconds * 0.99, seconds, seconds * 1.01))
        for n in (8, 80)
        for device, seconds in (("cpu", 4e-3), ("cuda:0", 1e-4))
    ]
    lines = lines_of(records.run_file(marks, devices=(records.CPU, records.GPU), processes=3), tmp_path)
    assert any(line.split()[:2] == ["work", "typically"] for line in lines)
    assert any("mine.step" in line and "40×" in line for line in lines)
    assert "  mine.step[float32-n=80]  CPU 4.00 ms  cuda:0 100 µs" in lines


def test_one_benchmark_of_ones_own_has_its_time(tmp_path: Path) -> None:
    lines = lines_of(records.run_file([records.benchmark(case("cpu"), 2e-3)]), tmp_path)
    assert any("mine.step" in line and "2.00 ms" in line for line in lines)


def test_failed_and_skipped_ones_are_counted_by_their_reasons(tmp_path: Path) -> None:
    reasons = ["needs an accelerator, chosen: cpu", "not in preset quick", "sixteen tons"]
    left = [records.unmeasured(case("cpu", f"a.b{i}"), reason=reason) for i, reason in enumerate(reasons)]
    left.append(records.unmeasured(case("cpu", "a.bad"), status="error", reason="ValueError: x"))
    text = " ".join(lines_of(records.run_file([records.benchmark(case("cpu"), 2e-3)], left), tmp_path))
    assert "1 needs a GPU, 1 runs with --preset full only, 1 sixteen tons. Failed: 1 (a.bad)." in text


def test_many_rows_are_cut_and_counted(tmp_path: Path) -> None:
    marks = [records.benchmark(case("cpu", f"mine.w{i}"), 1e-3 * (i + 1)) for i in range(30)]
    flags = ("contended",)
    lines = lines_of(records.run_file(marks, flags=flags), tmp_path)
    assert sum("mine.w" in line for line in lines) >= 5


@pytest.mark.parametrize("reason", ["", "x" * 300])
def test_an_unknown_reason_is_shown_short(reason: str) -> None:
    assert skip_kind(reason) == (reason[:60], reason[:60])
