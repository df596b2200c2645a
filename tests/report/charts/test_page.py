"""Which charts there are, what is on them, and that they come out the same each time."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import records
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from gpubench.report import speedup, table
from gpubench.report.charts import draw, selection
from gpubench.report.charts.bar_chart import BarChart
from gpubench.report.charts.line_chart import LineChart, draw_lines
from gpubench.report.charts.page import DARK, LIGHT, Figure, colour, linear_ticks, log_ticks, size_ticks, tick_text
from gpubench.runfile import reader
from gpubench.runfile.schema import Case


def plan(folder: Path, *runs: dict[str, Any]) -> list[Figure]:
    loaded = []
    for i, data in enumerate(runs):
        path = folder / f"run{i}.json"
        path.write_text(json.dumps(data))
        loaded.append(reader.read(path))
    results = table.results_table(loaded)
    return selection.plan(results, speedup.pair(results).table)


def lines(figure: Figure) -> LineChart:
    assert isinstance(figure.chart, LineChart)
    return figure.chart


def points(figure: Figure) -> list[tuple[float, float]]:
    return [(p.x, p.y) for panel in lines(figure).panels for curve in panel.curves for p in curve.line.points]


def crossing(name: str = "a.b") -> dict[str, Any]:
    """A CPU at 1 ns an element against a device at 10 µs and 0.1 ns: equal at 11,111 elements."""
    marks = [
        records.benchmark(
            Case(name, device, "float32", {"n": n}, size="n", devices=(device,)), start + n * slope, work={"items": n}
        )
        for device, start, slope in (("cpu", 0.0, 1e-9), ("cuda:0", 1e-5, 1e-10))
        for n in (10**3, 10**4, 10**5, 10**6)
    ]
    return records.run_file(marks, devices=(records.CPU, records.GPU))


def test_cpu_alone(tmp_path: Path) -> None:
    found = plan(tmp_path, records.cpu_run())
    names = {figure.name for figure in found}
    assert {"time-elementwise", "bandwidth-elementwise", "throughput-matmul", "samples-per-second-models"} <= names
    assert {"speedup-over-numpy", "speedup-over-numpy-matmul", "highest-rates", "time-one-size"} <= names
    assert 8 <= len(found) <= 16


def test_cpu_and_gpu(tmp_path: Path) -> None:
    found = plan(tmp_path, records.gpu_run(3))
    names = {figure.name for figure in found}
    assert {"speedup-over-cpu", "speedup-over-cpu-elementwise", "speedup-over-cpu-models", "time-matmul"} <= names
    assert {"one-shot-speedup-over-cpu-matmul", "roofline-cpu", "roofline-cuda-0"} <= names
    assert 8 <= len(found) <= 24


def test_two_machines(tmp_path: Path) -> None:
    names = {figure.name for figure in plan(tmp_path, records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)"))}
    assert {"speedup-over-cpu", "speedup-over-run0"} <= names


@pytest.mark.parametrize("data", [records.cpu_run(), records.gpu_run(), records.run_file([], [])])
def test_no_empty_or_crowded_panel(tmp_path: Path, data: dict[str, Any]) -> None:
    for figure in plan(tmp_path, data):
        assert figure.chart.panels
        if isinstance(figure.chart, BarChart):
            assert all(group.bars for panel in figure.chart.panels for group in panel.groups)
        if isinstance(figure.chart, LineChart):
            assert all(1 <= len(panel.curves) <= 6 for panel in figure.chart.panels)
            assert all(curve.line.points for panel in figure.chart.panels for curve in panel.curves)


def sweep(**values: tuple[Any, ...]) -> dict[str, Any]:
    """Every combination of the parameters, at two sizes."""
    names, combinations = list(values), list(itertools.product(*values.values()))
    marks = [
        records.benchmark(
            Case("a.b", "cpu", "float32", dict(zip(names, chosen, strict=True)) | {"n": n}, size="n"), 1e-6 * n
        )
        for chosen in combinations
        for n in (1, 10)
    ]
    return records.run_file(marks)


def test_a_crowded_panel_is_split_by_a_parameter(tmp_path: Path) -> None:
    data = sweep(form=("x", "y"), width=(1, 2, 3, 4))
    (figure,) = [each for each in plan(tmp_path, data) if each.name == "time-a"]
    assert [panel.title for panel in lines(figure).panels] == ["b · x", "b · y"]
    assert [word for word, _ in lines(figure).styles] == ["width=1", "width=2", "width=3", "width=4"]
    assert sum(len(panel.curves) for panel in lines(figure).panels) == 8


def test_a_crowd_that_nothing_tells_apart_is_still_drawn(tmp_path: Path) -> None:
    data = sweep(width=tuple(range(40)))
    found = [each for each in plan(tmp_path, data) if each.name.startswith("time-a")]
    assert [figure.title for figure in found] == [f"A: time per call ({page} of 3)" for page in (1, 2, 3)]
    assert sum(len(panel.curves) for figure in found for panel in lines(figure).panels) == 40
    data["benchmarks"] = data["benchmarks"][:2] * 10
    (figure,) = [each for each in plan(tmp_path, data) if each.name.startswith("time-a")]
    assert sum(len(curve.line.points) for panel in lines(figure).panels for curve in panel.curves) == 20


def test_captions_name_the_terms(tmp_path: Path) -> None:
    for figure in plan(tmp_path, records.gpu_run(3)):
        for fact in ("Synthetic H-GPU", "float32", "2 CPU threads", "TF32 off", "resident", "2.13.0", "2026-01-31"):
            if fact == "2 CPU threads" and "numpy" in figure.caption:
                fact = "CPU threads: torch 2, numpy 1"
            if figure.name == "roofline-cpu" and fact == "Synthetic H-GPU":
                fact = "Synthetic CPU"
            assert fact in figure.caption, figure.name
        assert "3 processes" in figure.caption


def test_crossover_is_marked_with_its_size(tmp_path: Path) -> None:
    (figure,) = [each for each in plan(tmp_path, crossing()) if each.name == "speedup-over-cpu-a"]
    (panel,) = lines(figure).panels
    (curve,) = panel.curves
    assert curve.crossing
    assert curve.crossing.crossover.size == pytest.approx(11_111, rel=0.03)
    axes = draw_lines(figure, lines(figure)).figure.axes[0]
    assert isinstance(axes, Axes)
    words = [text.get_text() for text in axes.texts]
    assert "the CPU is faster" in words
    assert any(word.startswith("◆ 11") for word in words)
    assert any(
        line.get_xdata()[0] == curve.crossing.crossover.size for line in axes.lines if len(line.get_xdata()) == 1
    )
    assert any(list(line.get_ydata()) == [1.0, 1.0] for line in axes.lines)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_no_crossover_no_mark(tmp_path: Path) -> None:
    data = crossing()
    data["benchmarks"] = [mark for mark in data["benchmarks"] if mark["params"]["n"] > 10**4]
    (figure,) = [each for each in plan(tmp_path, data) if each.name == "speedup-over-cpu-a"]
    assert not any("◆" in text.get_text() for text in draw_lines(figure, lines(figure)).figure.axes[0].texts)


def test_the_uncertainty_is_drawn(tmp_path: Path) -> None:
    (figure,) = [each for each in plan(tmp_path, crossing()) if each.name == "speedup-over-cpu-a"]
    (curve,) = lines(figure).panels[0].curves
    assert all(point.low < point.y < point.high for point in curve.line.points)
    assert draw_lines(figure, lines(figure)).figure.axes[0].collections
    assert "spread within one process" in figure.caption
    assert "interval" not in figure.caption


def marked(processes: bool) -> dict[str, Any]:
    data = crossing()
    for mark in data["benchmarks"] if processes else ():
        ours, median = mark["extra_info"]["gpubench"], mark["stats"]["median"]
        factors = (1.0, 1.02, 1 / 1.02) if ours["device"] == "cpu" else (1.0, 1.0, 1.0)
        ours["processes"] = [
            {**ours["processes"][0], "process": i, "median_s": median * each, "kept": 0}
            for i, each in enumerate(factors)
        ]
        mark["stats"]["data"] = []
    return data


def test_no_band_is_cut_that_fits(tmp_path: Path) -> None:
    """The panels of a chart share an axis: the strips for words are as wide as its whole range asks for."""
    marks = [
        records.benchmark(
            Case(name, device, "float32", {"n": n}, size="n", devices=(device,)),
            median,
            medians=(median, 1.1 * median, 1.2 * median),
        )
        for name, factor in (("a.low", 0.001), ("a.high", 100.0))
        for device, median in (("cpu", 1e-3), ("cuda:0", 1e-3 / factor))
        for n in (10, 1000)
    ]
    data = records.run_file(marks, devices=(records.CPU, records.GPU), processes=3)
    (figure,) = [each for each in plan(tmp_path, data) if each.name == "speedup-over-cpu-a"]
    for axes, panel in zip(draw_lines(figure, lines(figure)).figure.axes, lines(figure).panels, strict=True):
        (band,) = [each for each in axes.collections if isinstance(each, PolyCollection)]
        free = axes.transAxes.inverted().transform(axes.transData.transform(band.get_paths()[0].vertices))[:, 1]
        clipped = band.get_clip_box().transformed(axes.transAxes.inverted())
        assert clipped.y0 <= free.min() <= free.max() <= clipped.y1, panel.title


def test_the_interval_of_a_crossover_is_marked(tmp_path: Path) -> None:
    (figure,) = [each for each in plan(tmp_path, marked(True)) if each.name == "speedup-over-cpu-a"]
    known = lines(figure).panels[0].curves[0].crossing
    assert known
    low, high = known.crossover.low or 0.0, known.crossover.high or 0.0
    assert 10_000 < low < 11_111 < high < 12_500
    axes = draw_lines(figure, lines(figure)).figure.axes[0]
    assert any(list(line.get_xdata()) == [low, high] and set(line.get_ydata()) == {1.0} for line in axes.lines)
    assert f"◆ 11.4k ({low / 1e3:.1f}k–{high / 1e3:.1f}k)" in [text.get_text() for text in axes.texts]


def test_a_wide_interval_is_cut_and_does_not_flatten_the_lines(tmp_path: Path) -> None:
    data = marked(True)
    for entry in data["benchmarks"][-1]["extra_info"]["gpubench"]["processes"]:
        entry["median_s"] *= (1e-3, 1.0, 1e3)[entry["process"]]
    found = {each.name: each for each in plan(tmp_path, data)}
    figure = found["speedup-over-cpu-a"]
    values = [y for _, y in points(figure)]
    low, high = draw_lines(figure, lines(figure)).figure.axes[0].get_ylim()
    strips = 2.5  # room for words at either end, in decades
    assert math.log10(high / low) < math.log10(max(values) / min(values)) + 2 + strips
    assert "wider bands are cut there" in figure.caption
    assert "wider intervals are cut there" in found["speedup-over-cpu"].caption
    assert not any("cut there" in figure.caption for figure in plan(tmp_path, marked(True)))


def test_a_range_over_lines_is_called_one(tmp_path: Path) -> None:
    data = crossing()
    for mark in crossing()["benchmarks"]:
        ours = mark["extra_info"]["gpubench"]
        case = Case("a.b", ours["device"], "float64", {"n": mark["params"]["n"]}, size="n", devices=(ours["device"],))
        factor = 2 if case.device == "cpu" else 1
        data["benchmarks"].append(records.benchmark(case, mark["stats"]["median"] * factor))
    (figure,) = [each for each in plan(tmp_path, data) if each.name == "speedup-over-cpu-a"]
    texts = [text.get_text() for text in draw_lines(figure, lines(figure)).figure.axes[0].texts]
    (label,) = [text for text in texts if "◆" in text]
    assert label.endswith("k, by line")


def test_one_process_marks_no_interval(tmp_path: Path) -> None:
    (figure,) = [each for each in plan(tmp_path, marked(False)) if each.name == "speedup-over-cpu-a"]
    known = lines(figure).panels[0].curves[0].crossing
    assert known
    assert (known.crossover.low, known.crossover.high, known.note) == (None, None, "one process: no interval")
    texts = [text.get_text() for text in draw_lines(figure, lines(figure)).figure.axes[0].texts]
    assert [text for text in texts if "◆" in text and "(" in text] == []


def test_flagged_cases_are_hollow(tmp_path: Path) -> None:
    data = crossing()
    flags = [{"flag": "noisy", "seen": "IQR 40 % of the median"}]
    data["benchmarks"][-1]["extra_info"]["gpubench"]["processes"][0]["flags"] = flags
    found = plan(tmp_path, data)
    for figure in found:
        assert ("Hollow: flagged" in figure.caption) == ("lines" not in figure.name), figure.name
    (figure,) = [each for each in found if each.name == "time-a"]
    hollow = [point for curve in lines(figure).panels[0].curves for point in curve.line.points if point.flagged]
    assert [point.x for point in hollow] == [10**6]
    page = draw_lines(figure, lines(figure))
    page.ink.apply(DARK)
    faces = [line.get_markerfacecolor() for line in page.figure.axes[0].lines if list(line.get_xdata()) == [10**6]]
    assert faces == [colour(DARK, "page")]
    (rates,) = [each.chart for each in found if each.name == "highest-rates"]
    assert isinstance(rates, BarChart)
    assert [bar.flagged for panel in rates.panels for group in panel.groups for bar in group.bars] == [False, True]
    assert not any("Hollow" in figure.caption for figure in plan(tmp_path, crossing()))


def test_cases_whose_names_differ_late_have_a_row_each(tmp_path: Path) -> None:
    long = "a parameter value of many words, "
    marks = [
        records.benchmark(Case("training.part", "cpu", "float32", {"form": form, "part": part}), 1e-4)
        for form, part in itertools.product((f"{long}one", f"{long}two"), ("update sgd", "update adam"))
    ]
    (figure,) = [each for each in plan(tmp_path, records.run_file(marks)) if each.name == "time-one-size"]
    assert isinstance(figure.chart, BarChart)
    (panel,) = figure.chart.panels
    assert [len(group.bars) for group in panel.groups] == [1, 1, 1, 1]


def test_unmeasured_is_never_drawn(tmp_path: Path) -> None:
    data = crossing()
    data["gpubench"]["unmeasured"] = [
        records.unmeasured(Case("a.b", "cuda:0", "float32", {"n": 10**9}, size="n", devices=("cuda:0",)), "oom", "no")
    ]
    for figure in plan(tmp_path, data):
        if isinstance(figure.chart, LineChart):
            assert all(x < 10**9 and math.isfinite(y) for x, y in points(figure))


def test_the_axis_is_the_only_number_that_varies_where_none_is_named(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case("a.b", "cpu", "float32", {"rows": rows, "k": 3, "form": form}), rows * 1e-6)
        for rows in (1, 2, 4)
        for form in "xy"
    ]
    (figure,) = [each for each in plan(tmp_path, records.run_file(marks)) if each.name == "time-a"]
    assert lines(figure).panels[0].size == "rows"
    assert [word for word, _ in lines(figure).styles] == ["x", "y"]


def test_names_from_a_file_stay_names(tmp_path: Path) -> None:
    name = "../../evil$x^{2.<script>&</script>$\\frac"
    found = plan(tmp_path, crossing(name))
    for figure in found:
        assert all(c.isalnum() or c in "._-" for c in figure.name)
        assert not figure.name.startswith(".")
    files = draw.render(found, ("svg",))
    for content in files.values():
        assert b"<script" not in content
        ET.fromstring(content)
    assert any(b"&lt;script&gt;" in content for content in files.values())


def test_no_two_files_alike(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case(f"{family}.x", "cpu", "float32", {"n": n}), n * 1e-6)
        for family in ("a/b", "a b", "A-b", "…")
        for n in (1, 2)
    ]
    names = [figure.name.lower() for figure in plan(tmp_path, records.run_file(marks))]
    assert len(names) == len(set(names)) == 4


def test_the_same_bytes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [each for each in plan(tmp_path, records.gpu_run()) if "one-size" in each.name or "transfer" in each.name]
    files = draw.render(found)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "lines.antialiased", False)
    assert draw.render(found) == files
    assert mpl.rcParams["lines.antialiased"] is False
    assert {name.rpartition("-")[2] for name in files} == {"light.svg", "light.png", "dark.svg", "dark.png"}
    assert len(files) == 4 * len(found)


def test_light_and_dark_differ(tmp_path: Path) -> None:
    files = draw.render(plan(tmp_path, crossing())[:1], ("svg",))
    light, dark = (next(text for name, text in files.items() if each in name) for each in ("light", "dark"))
    assert b"#ffffff" in light
    assert b"#0d1117" in dark
    assert b"#ffffff" not in dark


def contrast(one: str, two: str) -> float:
    """WCAG 2.1, relative luminance and contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(two)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", [LIGHT, DARK])
def test_colours_stand_out(name: str) -> None:
    paper = colour(name, "page")
    assert all(contrast(colour(name, i), paper) >= 3 for i in range(8))
    assert all(contrast(colour(name, i), colour(name, "shade")) >= 3 for i in range(8))
    assert all(contrast(colour(name, role), paper) >= 4.5 for role in ("text", "muted"))
    assert contrast(colour(name, "muted"), colour(name, "shade")) >= 4.5


def test_ticks() -> None:
    assert [label for _, label in log_ticks(0.9e-6, 2e-3, "s")] == ["1 µs", "10 µs", "100 µs", "1 ms"]
    assert [label for _, label in log_ticks(0.4, 2.5, "")] == ["0.5×", "0.7×", "1×", "1.5×", "2×"]
    assert len(log_ticks(1e-15, 1e30, "s", 6)) <= 6
    assert [label for _, label in linear_ticks(0, 41e9, "B/s")] == [
        "0",
        "10 GB/s",
        "20 GB/s",
        "30 GB/s",
        "40 GB/s",
    ]
    assert [tick_text(value, "") for value in (2e-6, 1e-4, 0.001, 1000, 1e7)] == [
        "2·10⁻⁶×", "10⁻⁴×", "0.001×", "1,000×", "10⁷×",
    ]  # fmt: skip
    assert [label for _, label in size_ticks([64, 256, 1024], "n", 9)] == ["64", "256", "1024"]
    assert [label for _, label in size_ticks([10**3, 10**9], "nbytes", 9)] == ["1 kB", "1 GB"]
    assert [label for _, label in size_ticks([10**5, 65536], "n", 9)] == ["65.5k", "10⁵"]
