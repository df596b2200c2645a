"""scaling.csv and its table: speedups of several devices against the right baseline, from hand-made records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
import records

from gpubench.errors import RunFileError
from gpubench.report import tables
from gpubench.report.study import Study
from gpubench.runfile.schema import Case, Run

GPUS = tuple({**records.GPU, "name": f"cuda:{i}"} for i in range(8))


def mark(median: float, method: str, devices: int, mode: str = "strong", workload: str = "distributed.lenet",
         device: str = "cpu", items: float = 128, **how: Any) -> dict[str, Any]:  # fmt: skip
    parallel = {"method": method, "devices": devices, "mode": mode, "threads": how.pop("threads", 1)}
    parallel |= how.pop("parallel", {})
    params = {"method": method, "devices": devices, "mode": mode, **how.pop("params", {})}
    case = Case(workload, device, "float32", params, devices=(device,))
    work = {"items": items, "unit": "sample"}
    return records.benchmark(case, median, **({"work": work, "parallel": parallel} | how))


def read(folder: Path, marks: list[dict[str, Any]]) -> Run:
    return reading.run_of(folder, records.run_file(marks, devices=(records.CPU, *GPUS)))


def scaled(folder: Path, marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return reading.scaled(Study([read(folder, marks)]))


ALONE, TWO = (
    mark(seconds, "data_parallel", count, workload="data_parallel.lenet", device="cuda:0")
    for count, seconds in ((1, 1.1), (2, 0.8))
)
CPU = [mark(0.060, "single", 1, threads=2), mark(0.100, "one thread", 1), mark(0.0625, "ddp", 2)]


def test_on_a_cpu_a_rank_is_held_against_all_threads_and_against_one(tmp_path: Path) -> None:
    rows = {row["method"]: row for row in scaled(tmp_path, CPU)}
    ddp = rows["ddp"]
    assert ddp["speedup"] == pytest.approx(0.060 / 0.0625)
    assert (ddp["baseline_s"], ddp["baseline_threads"]) == (0.060, 2)
    assert ddp["scaling"] == pytest.approx(0.100 / 0.0625)
    assert ddp["efficiency"] == pytest.approx(0.8)
    assert ddp["efficiency_low"] < 0.8 < ddp["efficiency_high"]
    # a baseline held against itself is exactly 1, without an interval
    single, one = rows["single"], rows["one thread"]
    assert (single["speedup"], single["low"], single["high"]) == (1, None, None)
    assert single["efficiency"] is None  # both threads are not one device
    assert single["scaling_low"] < single["scaling"] < single["scaling_high"]
    assert (one["scaling"], one["scaling_low"], one["scaling_high"]) == (1, None, None)
    assert (one["efficiency"], one["efficiency_low"], one["efficiency_high"]) == (1, None, None)
    (first, _) = tables.scaling_table(Study([read(tmp_path, [ALONE, TWO])])).rows
    assert first[-3:] == ("1.0×", "1.0×", "100%")


def test_the_baseline_is_the_same_workload_s_before_a_faster_copy_s(tmp_path: Path) -> None:
    copy = mark(0.050, "single", 1, workload="training.lenet", threads=2)
    rows = scaled(tmp_path, [copy, *CPU, mark(0.1, "gpipe", 2, workload="model_parallel.lenet")])
    assert [row["baseline_s"] for row in rows] == [0.050, 0.060, 0.060, 0.060, 0.050]


def test_weak_scaling_counts_the_work_that_grew(tmp_path: Path) -> None:
    marks = [mark(1.0, "single", 1, "weak", device="cuda:0"), mark(1.25, "ddp", 4, "weak", device="cuda:0", items=512)]
    ddp = scaled(tmp_path, marks)[1]
    assert ddp["speedup"] == ddp["scaling"] == pytest.approx(4 / 1.25)
    assert ddp["efficiency"] == pytest.approx(0.8)


def test_data_parallel_has_the_best_single_gpu_as_its_baseline(tmp_path: Path) -> None:
    (_, row) = scaled(tmp_path, [ALONE, TWO])
    assert row["speedup"] == pytest.approx(1.1 / 0.8)
    (_, row, _) = scaled(tmp_path, [ALONE, TWO, mark(1.0, "single", 1, device="cuda:0")])
    assert row["speedup"] == pytest.approx(1.0 / 0.8)


@pytest.mark.parametrize("other", [{"mode": "weak"}, {"workload": "distributed.linear"}, {"device": "cuda:0"}])
def test_what_differs_is_not_compared(tmp_path: Path, other: dict[str, str]) -> None:
    assert scaled(tmp_path, [mark(1.0, "single", 1, **other), mark(0.5, "ddp", 2)])[1]["speedup"] is None


def test_bus_bandwidth_and_what_else_is_shown(tmp_path: Path) -> None:
    reduce = mark(0.5, "all_reduce", 8, workload="distributed.all_reduce", device="cuda:0", work={"bytes": 1e9},
                  params={"nbytes": 10**9}, parallel={"bus_share": 1.75, "interconnect": "NVLink"})  # fmt: skip
    split = mark(0.5, "data_parallel", 8, parallel={
        "rows": [[4, 4, 4, 4, 4, 4, 4, 2], [2, 2, 2, 2, 2]], "phases": {"scatter": 0.001, "gather": 0.002},
        "ideal_speedup": 100 / 14,
    })  # fmt: skip
    bus, data_parallel = scaled(tmp_path, [reduce, split])
    assert (bus["algorithm_byte_per_s"], bus["bus_byte_per_s"]) == (2e9, 3.5e9)
    assert bus["interconnect"] == "NVLink"
    assert data_parallel["rows"] == "4+4+4+4+4+4+4+2; 2+2+2+2+2"
    assert data_parallel["phases"] == "scatter 0.001; gather 0.002"
    assert data_parallel["ideal_speedup"] == pytest.approx(100 / 14)


@pytest.mark.parametrize(
    ("parallel", "says"),
    [
        ({"devices": 0}, "parallel.devices: expected a whole number >= 1"),
        ({"devices": 10**30}, "parallel.devices: expected a whole number"),
        ({"ideal_speedup": -1}, "parallel.ideal_speedup: expected a number >= 1e-15"),
        ({"phases": {"gather": "long"}}, "parallel.phases.*: expected a number"),
        ({"rows": [[1, "2"]]}, r"parallel.rows\[0\]\[1\]: expected a whole number"),
        ({"method": 3}, "parallel.method: expected a text"),
        ([], "parallel: expected an object"),
    ],
)
def test_a_file_that_can_t_be_trusted_is_refused(tmp_path: Path, parallel: Any, says: str) -> None:
    made = mark(1.0, "ddp", 2)
    made["extra_info"]["gpubench"]["parallel"] = parallel
    with pytest.raises(RunFileError, match=says):
        read(tmp_path, [made])


def test_the_summary_states_both_comparisons(tmp_path: Path) -> None:
    piped = [mark(0.1, "naive", 2, parallel={"microbatches": n}, params={"microbatches": n}) for n in (1, 2)]
    table = tables.scaling_table(Study([read(tmp_path, [*CPU, *piped])]))
    assert {"distributed.lenet", "ddp", "2 × 1 thread", "80%"} <= {*table.rows[0]}
    assert [cell.partition("×")[0] for cell in table.rows[0] if "× (" in cell] == ["1.6", "1.0"]  # one device, threads
    assert [cells[1] for cells in table.rows[1:]] == ["naive, 1 microbatch", "naive, 2 microbatches"]
    assert "2 threads" in table.note
