"""The one table of numbers, which columns and tables are made from."""

from __future__ import annotations

from pathlib import Path

import pytest
import reading
import records

from gpubench.report import tables
from gpubench.report.columns import METRICS, Metric
from gpubench.report.rows import Measured
from gpubench.report.study import Study
from gpubench.runfile.schema import Case, Machine, Process, Result, Run, Times


def read(folder: Path, **more: float) -> Run:
    case = Case("a.b", "cpu", "float32", {}, devices=("cpu",))
    mark = records.benchmark(case, 2.0, medians=(1.0, 4.0), work={"flops": 8.0, "items": 4.0}, energy_j=0.5, **more)
    return reading.run_of(folder, records.run_file([mark], processes=2))


def test_each_metric_is_a_column_with_its_value(tmp_path: Path) -> None:
    (row,) = reading.results(Study([read(tmp_path)]))
    assert set(METRICS) <= set(row)
    assert (row["time_s"], row["flop_per_s"], row["item_per_s"], row["item_per_j"]) == (2.0, 4.0, 2.0, 8.0)
    assert row["low_s"] < 2.0 < row["high_s"]
    assert (row["byte_per_s"], row["utilisation"], row["copy_in_s"], row["memory_bytes"]) == (None,) * 4


def test_a_new_metric_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Metric("call_per_s", "1/s", "1 / time_s", lambda row: 1 / row.time_s)
    monkeypatch.setitem(METRICS, calls.name, calls)
    assert reading.results(Study([read(tmp_path)]))[0]["call_per_s"] == 0.5


def test_memory_and_energy_stand_beside_the_highest_rate(tmp_path: Path) -> None:
    (cells,) = tables.rate_table(Study([read(tmp_path, memory_bytes=2_000_000_000)])).rows
    assert {"2.00 GB", "500 mJ", "8.00 /J"} <= {*cells}


def percentiles(*processes: list[float], iterations: int = 1) -> tuple[float | None, float | None]:
    """p95 and p99 of samples by process."""
    facts = tuple(Process(i, len(each), 1.0, len(each), iterations) for i, each in enumerate(processes))
    times = Times(1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1, iterations, None, "device_clock", facts, processes)
    run = Run(Path(), Machine("a machine", ()), ())
    p95, p99 = (
        METRICS[name].of(Measured(run, "run", Result("a.b", "cpu", times=times), None)) for name in ("p95_s", "p99_s")
    )
    return p95, p99


def test_percentiles_are_of_single_calls_and_need_enough_of_them() -> None:
    calls = [float(i) for i in range(200, 0, -1)]
    assert percentiles(calls) == (190, 198)
    assert percentiles(calls[:150], calls[150:]) == (190, 198)  # of all processes together
    assert percentiles(calls, iterations=2) == (None, None)
    assert percentiles(calls[-20:]) == (19, None)
    assert percentiles(calls[-19:]) == (None, None)
    assert percentiles(calls[-100:]) == (95, 99)
    assert percentiles(calls[-99:]) == (95, None)


def test_a_share_of_peak_is_that_of_the_dtype_which_computed_it(tmp_path: Path) -> None:
    """Autocast computes float32's products in bfloat16."""
    cases = [Case("a.b", "cpu", "float32", variant=each, devices=("cpu",)) for each in ("eager", "autocast")]
    marks = [records.benchmark(case, 1.0, work={"flops": 8e8}) for case in cases]
    peaks = {"cpu": {"throughput": {"float32": 1e9, "bfloat16": 4e9}}}
    run = reading.run_of(tmp_path, records.run_file(marks, ceilings=peaks))
    assert [row["utilisation"] for row in reading.results(Study([run]))] == pytest.approx([0.8, 0.2])


def test_the_low_end_of_a_rate_is_that_of_the_slow_rounds(tmp_path: Path) -> None:
    mark = records.benchmark(Case("a.b", "cpu", "float32", devices=("cpu",)), 2.0, spread=0.5, work={"items": 6.0})
    (row,) = Study([reading.run_of(tmp_path, records.run_file([mark]))]).measured
    assert (row.times.q1_s, row.times.q3_s) == (1.5, 2.5)
    assert row.throughput == pytest.approx((3.0, 2.4, 4.0))
