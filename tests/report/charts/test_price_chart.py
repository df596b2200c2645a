"""The picture of prices: work for money against one device, by workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import records

from gpubench.report import speedup, table
from gpubench.report.charts.material import ChartData
from gpubench.report.charts.price_chart import price_figures
from gpubench.runfile import reader


@pytest.fixture
def data(tmp_path: Path) -> ChartData:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.gpu_run()))
    results = table.results_table([reader.read(path)])
    return ChartData(results, speedup.pair(results).table)


def priced(data: ChartData, **prices: float) -> ChartData:
    costs = prices.device_prices(data.results, {name.replace("_", ":"): price for name, price in prices.items()})
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
