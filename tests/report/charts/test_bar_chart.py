"""Charts of one number a workload: what stands where, and that its figures can be told apart from its dots."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import records
from matplotlib.backends.backend_agg import FigureCanvasAgg

from gpubench.report import speedup, table
from gpubench.report.charts import selection
from gpubench.report.charts.bar_chart import BarChart, draw_bars
from gpubench.report.charts.page import LIGHT, Figure, Page, colour
from gpubench.runfile import reader
from gpubench.runfile.schema import Case


def plan(folder: Path, data: dict[str, Any]) -> list[Figure]:
    path = folder / "run.json"
    path.write_text(json.dumps(data))
    results = table.results_table([reader.read(path)])
    return selection.plan(results, speedup.pair(results).table)


def drawn_bars(figure: Figure) -> Page:
    assert isinstance(figure.chart, BarChart)
    page = draw_bars(figure, figure.chart)
    page.ink.apply(LIGHT)
    return page


def test_the_value_of_a_bar_stands_in_its_own_column_and_dots_are_solid(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case("a.b", device, "float32", {"form": form}, devices=(device,)), time)
        for device, times in (("cpu", (1.0, 1.0)), ("cuda:0", (1.0, 0.25)))
        for form, time in zip("xy", times, strict=True)
    ]
    data = records.run_file(marks, devices=(records.CPU, records.GPU))
    (figure,) = [each for each in plan(tmp_path, data) if each.name == "speedup-over-cpu"]
    page = drawn_bars(figure)
    (axes,) = page.figure.axes
    (value,) = [text for text in page.figure.texts if text.get_text() == "2.00×"]
    assert value.get_position()[0] > axes.get_position().x1
    assert not axes.texts
    (dots,) = [line for line in axes.lines if list(line.get_xdata()) == [1.0, 4.0]]
    assert dots.get_markerfacecolor() == colour(LIGHT, "text")
    assert dots.get_markeredgewidth() == 0


@pytest.mark.parametrize(("count", "columns"), [(2, 2), (4, 4), (9, 0)])
def test_figures_of_all_sources_stand_beside_the_dots_or_none(tmp_path: Path, count: int, columns: int) -> None:
    devices = [{**records.GPU, "name": f"an accelerator with a long name:{i}"} for i in range(count)]
    marks = [
        records.benchmark(Case(f"a.{n}", device["name"], "float32", devices=(device["name"],)), 1.0, work={"flops": n})
        for device in devices
        for n in (1e9, 1e12)
    ]
    data = records.run_file(marks, devices=(records.CPU, *devices))
    (figure,) = [each for each in plan(tmp_path, data) if each.name == "highest-rates"]
    page = drawn_bars(figure)
    texts = [text.get_text() for text in page.figure.texts]
    assert texts.count("1.00 TFLOP/s") == columns
    assert not any("…" in text for text in texts)


def test_ticks_of_a_narrow_axis_have_room_for_their_words(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case(f"a.{i}", "cpu", "float32"), 1.0, work={"items": items, "unit": "token"})
        for i, items in enumerate((79, 860, 19_000))
    ]
    (figure,) = [each for each in plan(tmp_path, records.run_file(marks)) if each.name == "highest-rates"]
    assert isinstance(figure.chart, BarChart)
    drawn = draw_bars(figure, figure.chart).figure
    FigureCanvasAgg(drawn).draw()
    for axes in drawn.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert len(boxes) >= 2
        assert all(left.x1 + 5 < right.x0 for left, right in itertools.pairwise(boxes))
