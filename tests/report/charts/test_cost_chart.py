"""The pictures of costs: work for money against one device, by workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.report import machines, speedup, table
from gpubench.report.charts.cost_chart import price_figures
from gpubench.report.charts.material import ChartData
from gpubench.runfile import reader
from gpubench.runfile.schema import Case


@pytest.fixture
def data(tmp_path: Path) -> ChartData:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.gpu_run()))
    results = table.results_table([reader.read(path)])
    return ChartData(results, speedup.pair(results).table)


def priced(data: ChartData, **prices: float) -> ChartData:
    costs = machines.device_prices(data.results, {name.replace("_", ":"): price for name, price in prices.items()})
    return ChartData(data.results, data.speedups, costs=costs)


def test_each_mark_is_the_speedup_over_the_ratio_of_prices(data: ChartData) -> None:
    (figure,) = price_figures(priced(data, cpu=0.5, cuda_0=4.0))
    (equal,) = price_figures(priced(data, cpu=4.0, cuda_0=4.0))
    for entry, plain in zip(figure.chart.entries, equal.chart.entries, strict=True):
        assert [mark.value for mark in entry.marks] == [pytest.approx(mark.value / 8) for mark in plain.marks]
    ratios = [pair["baseline_s"] / pair["time_s"] for pair in table.records(data.speedups)]
    assert all(pytest.approx(mark.value) in ratios for entry in equal.chart.entries for mark in entry.marks)
    assert "0.5" in figure.subtitle
    assert "4" in figure.subtitle


def test_a_price_of_one_device_alone_is_no_picture(data: ChartData) -> None:
    assert price_figures(priced(data, cuda_0=4.0)) == []
    assert price_figures(data) == []


def test_its_title_is_made_from_the_marks_and_its_rows_stand_in_order(data: ChartData) -> None:
    (figure,) = price_figures(priced(data, cpu=0.5, cuda_0=4.0))
    words = [mark.words for entry in figure.chart.entries for mark in entry.marks]
    assert figure.title.startswith("Work for the same money, against Synthetic, 2 threads, in float32: Synthetic H ")
    for number in figure.title.rpartition("Synthetic H ")[2].split(" to "):
        assert any(word.startswith(number) for word in words), number
    groups = list(dict.fromkeys(entry.group for entry in figure.chart.entries))
    assert groups == ["Run a network", "Matrix products", "Elementwise"]


def test_what_is_above_the_peak_keeps_its_row_and_its_largest_size(tmp_path: Path) -> None:
    def product(device: str, n: int, seconds: float, **how: tuple[str, ...]) -> dict[str, Any]:
        return records.benchmark(Case("a.b", device, "float32", {"n": n}, size="n", devices=(device,)), seconds, **how)

    marks = [product("cpu", 10, 1e-3), product("cuda:0", 10, 1e-4), product("cuda:0", 99, 1e-4)]
    marks += [product("cpu", 99, 1e-3, flags=("implausible",))]
    for name in ("a.c", "a.d"):
        marks += [{**mark, "extra_info": {"gpubench": {**mark["extra_info"]["gpubench"], "workload": name}}}
                  for mark in marks[:2]]  # fmt: skip
    path = tmp_path / "above.json"
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU))))
    results = table.results_table([reader.read(path)])
    (figure,) = price_figures(priced(ChartData(results, speedup.pair(results).table), cpu=1.0, cuda_0=1.0))
    (entry,) = [entry for entry in figure.chart.entries if entry.name == "a.b"]
    assert "n = 99" in entry.detail
    assert [(mark.value, mark.words) for mark in entry.marks] == [(None, "— above the measured peak")]
