"""Pictures of several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import records
from drawing import faults, plan

from gpubench.report.charts.layouts import NamedRows
from gpubench.runfile.schema import Case


def mark(median: float, method: str, devices: int, workload: str = "distributed.lenet", **how: Any) -> dict[str, Any]:
    params = {"method": method, "devices": devices, **how.pop("params", {})}
    case = Case(workload, "cuda:0", "float32", params, devices=("cuda:0",))
    work = how.pop("work", {"items": 128, "unit": "sample"})
    parallel = {"method": method, "devices": devices, "mode": "strong", "ideal_speedup": devices, **how}
    return records.benchmark(case, median, work=work, parallel=parallel)


def several_gpus() -> dict[str, Any]:
    marks = [mark(1.0, "single", 1)]
    for k in (2, 4, 8):
        phases = {"scatter": 0.05, "replicate": 0.1 * k, "forward": 0.4 / k, "gather": 0.03}
        marks.append(mark(1 / k + 0.02, "ddp", k))
        marks.append(mark(1 / k, "unsynchronised", k))
        marks.append(mark(1 / k + 0.1 * k, "data_parallel", k, "data_parallel.lenet", phases=phases))
        marks += [
            mark(1e-5 + n / 1e11, "all_reduce", k, "distributed.all_reduce", work={"bytes": n}, params={"nbytes": n},
                 bus_share=2 * (k - 1) / k, interconnect="NVLink")
            for n in (10**3, 10**5, 10**7, 10**9)
        ]  # fmt: skip
    gpus = tuple({**records.GPU, "name": f"cuda:{i}"} for i in range(8))
    return records.run_file(marks, devices=(records.CPU, *gpus))


def test_there_is_a_picture_of_each_kind_with_its_ideal(tmp_path: Path) -> None:
    figures = plan(tmp_path, several_gpus(), kinds=("scaling",))
    assert [*figures] == ["scaling-efficiency"]
    bars = figures["scaling-efficiency"].chart
    assert isinstance(bars, NamedRows)
    ddp = [entry for entry in bars.entries if entry.name == "ddp"]
    assert [entry.detail for entry in ddp] == ["2 devices", "4 devices", "8 devices"]
    marks = [entry.marks[0] for entry in bars.entries]
    assert {mark.second for mark in marks} == {100.0}
    assert ddp[0].marks[0].value == pytest.approx(100 / 0.52 / 2)
    assert all(mark.low <= mark.value <= mark.high for mark in marks if mark.low and mark.value and mark.high)
    assert figures["scaling-efficiency"].subtitle.startswith("Most: ddp on 2 devices, 96%")  # not the control
    assert {name: found for name, each in figures.items() if (found := faults(each))} == {}


def test_what_has_a_scaling_picture_has_no_second_one_of_its_times(tmp_path: Path) -> None:
    assert not [name for name in plan(tmp_path, several_gpus()) if name.startswith(("time", "samples"))]
