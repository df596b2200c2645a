"""Speedup pictures: the crossover on its line, what is too noisy to mark, and the finding in the title."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import records
from drawing import drawn, faults, plan, words
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from test_page import crossing

from gpubench.report.charts.layouts import Curve, LinePanels
from gpubench.report.charts.page import Figure
from gpubench.report.charts.theme import LIGHT, colour
from gpubench.runfile.schema import Case


def speedup(folder: Path, data: dict[str, Any], name: str = "speedup-a.b") -> Figure:
    return plan(folder, data, kinds=("speedup",))[name]


def curves(figure: Figure) -> list[Curve]:
    assert isinstance(figure.chart, LinePanels)
    return [curve for panel in figure.chart.panels for curve in panel.curves]


def axes_of(figure: Figure) -> Axes:
    axes = drawn(figure).canvas.axes[0]
    assert isinstance(axes, Axes)
    return axes


def with_processes(factors: tuple[float, ...] = (1.0, 1.02, 1 / 1.02)) -> dict[str, Any]:
    data = crossing()
    for mark in data["benchmarks"]:
        ours, median = mark["extra_info"]["gpubench"], mark["stats"]["median"]
        ours["processes"] = [
            {**ours["processes"][0], "process": i, "median_s": median * (each if ours["device"] == "cpu" else 1.0)}
            | {"kept": 0}
            for i, each in enumerate(factors)
        ]
        mark["stats"]["data"] = []
    return data


def diamonds(axes: Axes) -> list[float]:
    return [
        float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "D" and len(line.get_xdata()) == 1
    ]


def test_the_crossover_stands_on_its_line_and_in_the_subtitle(tmp_path: Path) -> None:
    figure = speedup(tmp_path, with_processes())
    assert "a.b" in figure.title
    assert "n ≈ 11k" in figure.subtitle
    (size,) = diamonds(axes := axes_of(figure))
    (diamond,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert diamond.get_markerfacecolor() == colour(LIGHT, "accelerator0")  # hollow are noisy measurements alone
    assert size == pytest.approx(11_400, rel=0.05)
    assert "n ≈ 11k" in [text.get_text() for text in axes.texts]
    assert "Synthetic faster" in [text.get_text() for text in axes.texts]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_without_an_interval_the_sizes_on_either_side_are_all_that_is_said(tmp_path: Path) -> None:
    figure = speedup(tmp_path, crossing())
    assert "n between 10⁴ and 10⁵" in figure.subtitle
    axes = axes_of(figure)
    assert diamonds(axes) == []
    assert any(list(line.get_xdata()) == [1e4, 1e5] and set(line.get_ydata()) == {1.0} for line in axes.lines)
    assert "10⁴ to 10⁵" in [text.get_text() for text in axes.texts]


def test_no_crossover_no_mark(tmp_path: Path) -> None:
    data = with_processes()
    data["benchmarks"] = [mark for mark in data["benchmarks"] if mark["params"]["n"] < 10**5]
    extra = [
        records.benchmark(
            Case("a.b", device, "float32", {"n": 100}, size="n", devices=(device,)), median, work={"items": 100}
        )
        for device, median in (("cpu", 1e-7), ("cuda:0", 1e-5))
    ]
    data["benchmarks"] += extra
    figure = speedup(tmp_path, data)
    assert diamonds(axes_of(figure)) == []
    assert "not up to n = 10⁴" in figure.subtitle


def noisy_at(data: dict[str, Any], *indices: int) -> dict[str, Any]:
    for i in indices:
        for entry, factor in zip(
            data["benchmarks"][i]["extra_info"]["gpubench"]["processes"], (0.01, 1, 100), strict=True
        ):
            entry["median_s"] *= factor
    return data


def test_the_mark_says_what_the_subtitle_says(tmp_path: Path) -> None:
    for data in (with_processes(), crossing(), noisy_at(with_processes(), 1), noisy_at(with_processes(), 2)):
        figure = speedup(tmp_path, data)
        (curve,) = curves(figure)
        known = figure.subtitle.removesuffix("unsure") == figure.subtitle
        assert known == (curve.mark is not None)
        assert known == any("≈" in word or " to " in word for word in words(drawn(figure)) if word != figure.subtitle)


def test_what_is_too_noisy_is_not_drawn_and_the_label_says_so(tmp_path: Path) -> None:
    (sound,) = curves(speedup(tmp_path, with_processes()))
    figure = speedup(tmp_path, noisy_at(with_processes(), 3))
    (curve,) = curves(figure)
    assert curve.points == sound.points[:3]
    assert (curve.label, curve.cut) == ("data stays, then too noisy", True)
    (label,) = [text for text in axes_of(figure).texts if isinstance(text, Annotation) and text.arrow_patch]
    assert not label.arrow_patch.get_visible()  # nobody takes it for the line
    assert figure.chart.left_out == 1
    assert "not drawn" in figure.caption
    assert "not drawn" not in speedup(tmp_path, with_processes()).caption
    assert plan(tmp_path, noisy_at(with_processes(), 0, 1, 2, 3), kinds=("speedup",)) == {}


def test_the_uncertainty_is_drawn_at_the_points_and_not_between(tmp_path: Path) -> None:
    figure = speedup(tmp_path, with_processes())
    (curve,) = [curve for curve in curves(figure) if not curve.dashed]
    assert all(point.low < point.y < point.high for point in curve.points)
    axes = axes_of(figure)
    assert len(axes.containers) == 1
    assert not [
        each for each in axes.collections if type(each).__name__ in ("PolyCollection", "FillBetweenPolyCollection")
    ]
    assert "Bar at a point: 95 % interval, 3 processes" in figure.caption.replace("95%", "95 %")


def test_a_wide_interval_does_not_flatten_the_lines(tmp_path: Path) -> None:
    data = with_processes()
    for entry in data["benchmarks"][3]["extra_info"]["gpubench"]["processes"]:
        entry["median_s"] *= (1e-3, 1.0, 1e3)[entry["process"]]
    figure = speedup(tmp_path, data)
    values = [point.y for curve in curves(figure) for point in curve.points]
    low, high = axes_of(figure).get_ylim()
    assert math.log10(high / low) < math.log10(max(values) / min(values)) + 3


def test_flagged_results_are_hollow_unless_most_are(tmp_path: Path) -> None:
    data = crossing()
    flags = [{"flag": "noisy", "seen": "IQR 40 % of the median"}]
    data["benchmarks"][-1]["extra_info"]["gpubench"]["processes"][0]["flags"] = flags
    figure = speedup(tmp_path, data)
    assert [point.flagged for point in curves(figure)[0].points] == [False, False, False, True]
    assert "Hollow: noisy measurement" in figure.caption
    assert figure.notice == ""
    hollow = [line for line in axes_of(figure).lines if line.get_markerfacecolor() == colour(LIGHT, "page")]
    assert any(list(line.get_xdata()) == [10**6] for line in hollow)
    for mark in data["benchmarks"][:6]:
        mark["extra_info"]["gpubench"]["processes"][0]["flags"] = flags
    figure = speedup(tmp_path, data)
    assert not [line for line in axes_of(figure).lines if line.get_markerfacecolor() == colour(LIGHT, "page")]
    assert "Hollow" not in figure.caption
    assert figure.notice == "4 of 4 results are noisy and may be off"
    assert any(figure.notice in word for word in words(drawn(figure)))


def test_copies_are_dashed_and_each_line_ends_in_its_value(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.gpu_run(3), kinds=("speedup",))["speedup-matmul.square"]
    solid, dashed = curves(figure)[:2]
    assert (solid.dashed, dashed.dashed) == (False, True)
    assert solid.label.endswith("×")
    assert solid.role == dashed.role == "accelerator0"
    assert all(a.y >= b.y for a, b in zip(solid.points, dashed.points, strict=True))
    assert "with copies" in figure.subtitle


def test_a_dtype_has_its_panel_float32_first(tmp_path: Path) -> None:
    figure = speedup(tmp_path, records.gpu_run(3), "speedup-matmul.square")
    assert isinstance(figure.chart, LinePanels)
    titles = [panel.title for panel in figure.chart.panels]
    assert titles[0] == "float32"
    assert len(titles) > 1
    assert set(titles) <= {"float32", "bfloat16", "float16", "float64", "tf32"}
    assert any(curve.mark for curve in curves(figure))
    assert "(float32)" in figure.subtitle


def test_each_setting_has_its_panel_the_plainest_first(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.gpu_run(3), kinds=("speedup",))["speedup-elementwise.add"]
    assert isinstance(figure.chart, LinePanels)
    assert [panel.title for panel in figure.chart.panels] == ["out", "allocating", "inplace"]
    assert "faster from: n ≈ 32k" in figure.subtitle
    assert figure.subtitle.endswith("(out)")


def settings_of(*crossings: float, word: str = "form") -> dict[str, Any]:
    """A run of one workload in several settings, which cross 1× at these sizes."""
    marks = [
        records.benchmark(
            Case("a.b", device, "float32", {"n": n, word: f"f{i}"}, size="n", devices=(device,)), median,
            medians=(median, median * 1.01, median * 0.99),
        )
        for i, equal in enumerate(crossings)
        for n in (10**3, 10**4, 10**5)
        for device, median in (("cpu", 1e-9 * n), ("cuda:0", 1e-9 * equal * (n / equal) ** 0.5))
    ]  # fmt: skip
    return records.run_file(marks, devices=(records.CPU, records.GPU))


@pytest.mark.parametrize(
    "crossings", [(1.0, 10.0), (800.0, 900.0), (5e3,), (1e7, 1e8), (5e3, 5e3, 10.0, 1e7, 1.0, 9.0)]
)
def test_below_the_line_there_is_room_for_the_words(tmp_path: Path, crossings: tuple[float, ...]) -> None:
    """Also where hardly anything is slower, and in small panels."""
    page = drawn(speedup(tmp_path, settings_of(*crossings)))
    assert words(page).count("Synthetic faster") == len(crossings)
    assert faults(page) == []


def test_two_libraries_of_one_device_are_both_named(tmp_path: Path) -> None:
    figures = plan(tmp_path, records.cpu_run(), kinds=("speedup",))
    assert figures
    assert all("PyTorch" in figure.title and "NumPy" in figure.title for figure in figures.values())


def test_by_default_the_benchmark_that_crosses_is_drawn_and_not_the_first(tmp_path: Path) -> None:
    always, crossing_ones = settings_of(10.0), settings_of(5e3)
    for mark in crossing_ones["benchmarks"]:
        mark["extra_info"]["gpubench"]["workload"] = "a.c"
    always["benchmarks"] += crossing_ones["benchmarks"]
    shown = [each for each in plan(tmp_path, always, every=False).values() if each.kind == "speedup"]
    assert [figure.name for figure in shown] == ["speedup-a.c"]


def test_the_gpus_of_two_machines_have_one_baseline(tmp_path: Path) -> None:
    """Against its own CPU each would look better, the slower its CPU is."""
    figures = plan(tmp_path, records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)"), every=False)
    for figure in figures.values():
        if figure.kind in ("headline", "speedup"):
            assert "over Synthetic H · run0" in figure.title
    roles = {curve.role for figure in figures.values() if figure.kind == "speedup" for curve in curves(figure)}
    assert roles == {"accelerator1", "cpu0"}
