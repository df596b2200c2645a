"""The summary in words: what it says, and that no name from a file breaks out of its cell."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import records
from rich.console import Console

from gpubench import runfile
from gpubench.report import findings, labels, pairs, summary, table
from gpubench.schema import Case


def summarise(folder: Path, data: dict[str, Any]) -> summary.Summary:
    path = folder / "run.json"
    path.write_text(json.dumps(data))
    runs = [runfile.read(path)]
    results = table.frame(runs)
    return findings.summarise(runs, results, pairs.pair(results), [], ())


def rows(words: summary.Summary, title: str) -> list[dict[str, str]]:
    (found,) = [each for each in words.tables if each.title == title]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_speedups(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case("a.b", device, "float32", {"n": n}, size="n", devices=(device,)), start + n * slope)
        for device, start, slope in (("cpu", 0.0, 1e-9), ("cuda:0", 1e-5, 1e-10))
        for n in (10**3, 10**6)
    ]
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    (row,) = rows(words, "Speedup")
    assert (row["family"], row["dtype"], row["device"], row["against"]) == ("a", "float32", "cuda:0", "the CPU")
    assert row["speedup at largest sizes"] == "9.09×"
    assert row["best"] == "9.09× (8.73×–9.46×) a.b float32, n=1000000"
    assert row["faster from"] == "n ≈ 34.3k"


def test_cpu_alone_has_rates_and_numpy(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.cpu_run())
    assert {row["against"] for row in rows(words, "Speedup")} == {"NumPy", "NumPy (threads 2 against 1)"}
    assert any(row["rate"].endswith("GFLOP/s") for row in rows(words, "Highest rates"))


def test_dtypes_are_never_summed_up_together(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.gpu_run())
    found = [row["dtype"] for row in rows(words, "Speedup") if row["family"] == "matmul"]
    assert sorted(found) == ["bfloat16", "float16", "float32", "float64"]


def test_unmeasured_cases_are_grouped_by_reason(tmp_path: Path) -> None:
    left = [
        records.unmeasured(Case("a.b", "cpu", "float16", {"n": n}), "skipped", f"predicted {n / 7} s, budget 10 s")
        for n in (1, 2, 3)
    ]
    left.append(records.unmeasured(Case("a.c", "cpu", "float16", {}), "oom", "no memory"))
    words = summarise(tmp_path, records.run_file([], left))
    assert rows(words, "Not measured") == [
        {"status": "oom", "cases": "1", "reason": "no memory", "which": "a.c on cpu"},
        {
            "status": "skipped",
            "cases": "3",
            "reason": "e.g. predicted 0.14285714285714285 s, budget 10 s",
            "which": "a.b on cpu",
        },
    ]


EVIL = "x|<img src=x onerror=alert(1)>`*_[a](javascript:b)\n# $y$ [red]z[/red]\x1b[31m"


def test_names_stay_in_their_cells(tmp_path: Path) -> None:
    data = records.run_file([], [records.unmeasured(Case(EVIL, "cpu", "float32", {}), "error", EVIL)], label=EVIL)
    words = summarise(tmp_path, data)
    text = summary.markdown(words)
    assert "<img" not in text
    assert "\x1b" not in text
    for line in text.splitlines():
        if "onerror" in line:
            cells = line.replace("\\|", "").strip("|").split("|")
            assert len(cells) == (7 if line.startswith("| run") else 4)
            assert "\\[a\\](" in line
            assert "\\$y\\$" in line
    stream = io.StringIO()
    summary.show(words, Console(file=stream, width=300))
    assert "\x1b" not in stream.getvalue()
    assert "[red]z[/red]" in stream.getvalue()


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0123, "0.0123×"), (1.0, "1.00×"), (9.996, "10.0×"), (99.97, "100×"), (1234.5, "1,230×"), (3.2e7, "3.2e+07×")],
)
def test_factor(value: float, words: str) -> None:
    assert labels.factor(value) == words


def test_the_total_of_many_steps_is_derived_and_called_derived(tmp_path: Path) -> None:
    mark = records.benchmark(Case("classic.step", "cpu", "float32", devices=("cpu",)), 0.25)
    mark["extra_info"]["gpubench"]["steps"] = 1000
    words = summarise(tmp_path, records.run_file([mark], devices=(records.CPU,)))
    (row,) = rows(words, "Whole jobs")
    assert (row["steps"], row["one step"], row["all steps"]) == ("1,000", "250 ms", "4 min 10 s")
    assert "Derived, not measured" in summary.markdown(words)
