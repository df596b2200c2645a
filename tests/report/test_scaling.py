"""scaling.csv and its charts: speedups of several devices against the right baseline, from hand-made records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.errors import RunFileError
from gpubench.report import scaling, speedup, table
from gpubench.report.charts import scaling_chart
from gpubench.report.charts.gpu_time_chart import StackedBars
from gpubench.report.charts.layouts import LinePanels
from gpubench.report.charts.material import ChartData
from gpubench.report.charts.pictures import plan
from gpubench.report.charts.scaling_chart import EfficiencyBars
from gpubench.runfile import reader
from gpubench.runfile.schema import Case

GPUS = tuple({**records.GPU, "name": f"cuda:{i}"} for i in range(8))


def mark(median: float, method: str, devices: int, mode: str = "strong", workload: str = "distributed.lenet",
         device: str = "cpu", items: float = 128, **how: Any) -> dict[str, Any]:  # fmt: skip
    parallel = {"method": method, "devices": devices, "mode": mode, "threads": how.pop("threads", 1)}
    parallel |= how.pop("parallel", {})
    work = how.pop("work", {"items": items, "unit": "sample"})
    params = {"method": method, "devices": devices, "mode": mode, **how.pop("params", {})}
    case = Case(workload, device, "float32", params, devices=(device,))
    made = records.benchmark(case, median, work=work, **how)
    made["extra_info"]["gpubench"]["parallel"] = parallel
    made["options"]["timer"] = "replay"
    return made


def read(folder: Path, marks: list[dict[str, Any]]) -> reader.Run:
    path = folder / "run.json"
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, *GPUS))))
    return reader.read(path)


def scaled(folder: Path, marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return table.records(scaling.scaling_table(table.results_table([read(folder, marks)])))


CPU = [mark(0.060, "single", 1, threads=2), mark(0.100, "one thread", 1), mark(0.0625, "ddp", 2)]


def test_on_a_cpu_a_rank_is_held_against_all_threads_and_against_one(tmp_path: Path) -> None:
    rows = {row["method"]: row for row in scaled(tmp_path, CPU)}
    ddp = rows["ddp"]
    assert ddp["speedup"] == pytest.approx(0.060 / 0.0625)
    assert (ddp["baseline_s"], ddp["baseline_threads"]) == (0.060, 2)
    assert ddp["scaling"] == pytest.approx(0.100 / 0.0625)
    assert ddp["efficiency"] == pytest.approx(0.8)
    assert ddp["efficiency_low"] < 0.8 < ddp["efficiency_high"]
    assert rows["single"]["speedup"] == 1
    assert rows["single"]["efficiency"] is None  # both threads are not one device
    assert rows["one thread"]["efficiency"] == 1


def test_a_baseline_held_against_itself_is_exactly_1_without_an_interval(tmp_path: Path) -> None:
    rows = {row["method"]: row for row in scaled(tmp_path, CPU)}
    single, one = rows["single"], rows["one thread"]
    assert (single["speedup"], single["low"], single["high"]) == (1, None, None)
    assert single["scaling_low"] < single["scaling"] < single["scaling_high"]
    assert (one["scaling"], one["scaling_low"], one["scaling_high"]) == (1, None, None)
    assert (one["efficiency_low"], one["efficiency_high"]) == (None, None)
    assert all(rows[method]["uncertainty"] for method in rows)
    alone = mark(1.1, "data_parallel", 1, workload="data_parallel.lenet", device="cuda:0")
    two = mark(0.8, "data_parallel", 2, workload="data_parallel.lenet", device="cuda:0")
    results = table.results_table([read(tmp_path, [alone, two])])
    (first, _) = scaling.several_devices(scaling.scaling_table(results)).rows
    assert first[5:8] == ("1.0×", "1.0×", "100%")
    more = [
        mark(t, "data_parallel", k, workload="data_parallel.lenet", device="cuda:0") for k, t in ((3, 0.6), (4, 0.5))
    ]
    results = table.results_table([read(tmp_path, [alone, two, *more])])
    data = ChartData(results, speedup.pair(results).table, scaled=scaling.scaling_table(results))
    assert scaling_chart.scaling_figures(data)


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
    alone = mark(1.1, "data_parallel", 1, workload="data_parallel.lenet", device="cuda:0")
    two = mark(0.8, "data_parallel", 2, workload="data_parallel.lenet", device="cuda:0")
    (_, row) = scaled(tmp_path, [alone, two])
    assert row["speedup"] == pytest.approx(1.1 / 0.8)
    (_, row, _) = scaled(tmp_path, [alone, two, mark(1.0, "single", 1, device="cuda:0")])
    assert row["speedup"] == pytest.approx(1.0 / 0.8)


def test_what_differs_is_not_compared(tmp_path: Path) -> None:
    others = [
        mark(1.0, "single", 1, "weak"),
        mark(1.0, "single", 1, workload="distributed.linear"),
        mark(1.0, "single", 1, device="cuda:0"),
    ]
    for other in others:
        assert scaled(tmp_path, [other, mark(0.5, "ddp", 2)])[1]["speedup"] is None


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


def test_cases_of_one_device_make_no_table(tmp_path: Path) -> None:
    case = records.benchmark(Case("matmul.square", "cpu", "float32", {"n": 64}), 1.0)
    assert scaling.scaling_table(table.results_table([read(tmp_path, [case])])).empty


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


def many() -> list[dict[str, Any]]:
    """Eight synthetic GPUs."""
    gpu = {"device": "cuda:0"}
    marks = [mark(1.0, "single", 1, mode, **gpu) for mode in ("strong", "weak")]
    for k in (2, 4, 8):
        phases = {"scatter": 0.05, "replicate": 0.1 * k, "forward": 0.4 / k, "gather": 0.03}
        marks += [
            mark(1 / k + 0.02, "ddp", k, parallel={"ideal_speedup": k}, **gpu),
            mark(1.05, "ddp", k, "weak", items=128 * k, parallel={"ideal_speedup": k}, **gpu),
            mark(1 / k + 0.1 * k, "data_parallel", k, workload="data_parallel.lenet",
                 parallel={"ideal_speedup": k, "phases": phases}, **gpu),
        ]  # fmt: skip
        marks += [
            mark(1e-5 + n / 1e11, "all_reduce", k, workload="distributed.all_reduce", work={"bytes": n},
                 params={"nbytes": n}, parallel={"bus_share": 2 * (k - 1) / k, "interconnect": "NVLink"}, **gpu)
            for n in (10**3, 10**5, 10**7, 10**9)
        ]  # fmt: skip
    return marks


def test_there_is_a_chart_of_each_kind_with_its_ideal(tmp_path: Path) -> None:
    results = table.results_table([read(tmp_path, many())])
    data = ChartData(results, speedup.pair(results).table, scaled=scaling.scaling_table(results))
    charts = {figure.name: figure for figure in scaling_chart.scaling_figures(data)}
    assert list(charts) == ["scaling-efficiency", "scaling-bus-bandwidth", "scaling-phases"]
    bars = charts["scaling-efficiency"].chart
    assert isinstance(bars, EfficiencyBars)
    strong = [bar for bar in bars.bars if bar.name == "DistributedDataParallel" and "strong" in bar.group]
    assert [bar.detail for bar in strong] == ["2 devices", "4 devices", "8 devices"]
    assert [bar.ideal for bar in strong] == [1, 1, 1]
    assert strong[0].value == pytest.approx(1 / 0.52 / 2)
    assert all(bar.low <= bar.value <= bar.high for bar in bars.bars)
    collective = charts["scaling-bus-bandwidth"].chart
    assert isinstance(collective, LinePanels)
    assert collective.unit == "B/s"
    phases = charts["scaling-phases"].chart
    assert isinstance(phases, StackedBars)
    assert [key.label for key in phases.keys] == ["Scatter", "Replicate", "Forward", "Gather"]


def test_what_has_a_scaling_chart_has_no_second_chart_of_its_times(tmp_path: Path) -> None:
    alone = [mark(0.060 * n, "single", 1, workload="training.lenet", params={"n": n}) for n in (1, 2, 4)]
    results = table.results_table([read(tmp_path, [*CPU, *alone])])
    names = {figure.name for figure in plan(ChartData(results, speedup.pair(results).table), every=True)}
    assert "time-training" in names
    assert "samples-per-second-training" in names
    assert not [name for name in names if "distributed" in name or "one-size" in name]


def test_the_summary_states_both_comparisons(tmp_path: Path) -> None:
    results = table.results_table([read(tmp_path, CPU)])
    words = scaling.several_devices(scaling.scaling_table(results))
    (row,) = words.rows
    assert row[:4] == ("distributed.lenet", "ddp", "2 × 1 thread", "strong")
    assert row[5].startswith("1.6×")
    assert row[6].startswith("0.96×")
    assert row[7] == "80%"
    assert "the single process has all 2 threads" in words.note


@pytest.mark.parametrize(("count", "words"), [(1, "naive, 1 microbatch"), (2, "naive, 2 microbatches")])
def test_microbatches_are_counted_in_words(tmp_path: Path, count: int, words: str) -> None:
    piped = mark(0.1, "naive", 2, parallel={"microbatches": count}, params={"microbatches": count})
    summed = scaling.several_devices(scaling.scaling_table(table.results_table([read(tmp_path, [*CPU, piped])])))
    assert words in [row[1] for row in summed.rows]


def test_a_range_beyond_a_factor_of_four_is_no_number() -> None:
    assert scaling._ranged(3.0, 1.0, 4.0) == "3.0× (1.0×–4.0×)"
    assert scaling._ranged(3.0, 1.0, 4.1) == "unknown (too noisy)"
