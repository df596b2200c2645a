"""scaling.csv and its table: speedups of several devices against the right baseline, from hand-made records."""

import pytest
import reading
import records

from gpubench.errors import RunFileError
from gpubench.report import tables


def mark(seconds, method, devices, mode="strong", workload="distributed.lenet", side="cpu", threads=1, **how):
    """The words of a benchmark of several devices."""
    values = {"method": method, "devices": devices, "mode": mode}
    parallel = values | {"threads": threads} | how.pop("parallel", {})
    params = values | how.pop("params", {})
    usual = {"workload": workload, side: seconds, "items": 128, "unit": "sample", "size": None}
    return usual | {"params": params, "parallel": parallel} | how


def study(*marks):
    one = records.run(processes=1, cuda=8)
    for mark in marks:
        one.bench(**mark)
    return reading.study_of(one)


def scaled(*marks):
    return reading.scaled(study(*marks))


ALONE, TWO = (
    mark(seconds, "data_parallel", count, workload="data_parallel.lenet", side="gpu")
    for count, seconds in ((1, 1.1), (2, 0.8))
)
CPU = [mark(0.060, "single", 1, threads=2), mark(0.100, "one thread", 1), mark(0.0625, "ddp", 2)]


def test_on_a_cpu_a_rank_is_held_against_all_threads_and_against_one():
    rows = {row["method"]: row for row in scaled(*CPU)}
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
    (first, _) = tables.scaling_table(study(ALONE, TWO)).rows
    assert first[-3:] == ("1.0×", "1.0×", "100%")


def test_the_baseline_is_the_same_workload_s_before_a_faster_copy_s():
    copy = mark(0.050, "single", 1, workload="training.lenet", threads=2)
    rows = scaled(copy, *CPU, mark(0.1, "stages", 2, workload="model_parallel.lenet"))
    assert [row["baseline_s"] for row in rows] == [0.050, 0.060, 0.060, 0.060, 0.050]


def test_weak_scaling_counts_the_work_that_grew():
    _, ddp = scaled(mark(1.0, "single", 1, "weak", side="gpu"), mark(1.25, "ddp", 4, "weak", side="gpu", items=512))
    assert ddp["speedup"] == ddp["scaling"] == pytest.approx(4 / 1.25)
    assert ddp["efficiency"] == pytest.approx(0.8)


def test_data_parallel_has_the_best_single_gpu_as_its_baseline():
    (_, row) = scaled(ALONE, TWO)
    assert row["speedup"] == pytest.approx(1.1 / 0.8)
    (_, row, _) = scaled(ALONE, TWO, mark(1.0, "single", 1, side="gpu"))
    assert row["speedup"] == pytest.approx(1.0 / 0.8)


@pytest.mark.parametrize("other", [{"mode": "weak"}, {"workload": "distributed.linear"}, {"side": "gpu"}])
def test_what_differs_is_not_compared(other):
    assert scaled(mark(1.0, "single", 1, **other), mark(0.5, "ddp", 2))[1]["speedup"] is None


def test_bus_bandwidth_and_what_else_is_shown():
    reduce = mark(0.5, "all_reduce", 8, workload="distributed.all_reduce", side="gpu", items=None, bytes=1e9,
                  params={"nbytes": 10**9}, parallel={"bus_share": 1.75, "interconnect": "NVLink"})  # fmt: skip
    split = mark(0.5, "data_parallel", 8, parallel={
        "rows": [[4, 4, 4, 4, 4, 4, 4, 2], [2, 2, 2, 2, 2]], "ideal_speedup": 100 / 14,
    })  # fmt: skip
    bus, data_parallel = scaled(reduce, split)
    assert (bus["algorithm_byte_per_s"], bus["bus_byte_per_s"]) == (2e9, 3.5e9)
    assert bus["interconnect"] == "NVLink"
    assert data_parallel["rows"] == "4+4+4+4+4+4+4+2; 2+2+2+2+2"
    assert data_parallel["ideal_speedup"] == pytest.approx(100 / 14)


@pytest.mark.parametrize(
    ("parallel", "says"),
    [
        ({"devices": 0}, "parallel.devices: expected a whole number >= 1"),
        ({"devices": 10**30}, "parallel.devices: expected a whole number"),
        ({"ideal_speedup": -1}, "parallel.ideal_speedup: expected a number >= 1e-15"),
        ({"rows": [[1, "2"]]}, r"parallel.rows\[0\]\[1\]: expected a whole number"),
        ({"method": 3}, "parallel.method: expected a text"),
        ([], "parallel: expected an object"),
    ],
)
def test_a_file_that_can_t_be_trusted_is_refused(parallel, says):
    made = mark(1.0, "ddp", 2) | {"parallel": parallel}
    with pytest.raises(RunFileError, match=says):
        study(made)


def test_the_summary_states_both_comparisons():
    table = tables.scaling_table(study(*CPU, mark(0.1, "stages", 2)))
    assert {"distributed.lenet", "ddp", "2 × 1 thread", "80%"} <= {*table.rows[0]}
    assert [cell.partition("×")[0] for cell in table.rows[0] if "× (" in cell] == ["1.6", "1.0"]  # one device, threads
    assert [cells[1] for cells in table.rows[1:]] == ["stages"]
    assert "2 threads" in table.note
