"""Speedup pictures: the crossover on its line, what is too noisy to mark, and several benchmarks in one."""

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

from gpubench.report.charts.layouts import Curve
from gpubench.report.charts.page import Figure
from gpubench.report.charts.theme import LIGHT, colour
from gpubench.runfile.schema import Case


def speedup(folder: Path, data: dict[str, Any], name: str = "speedup-a.b") -> Figure:
    return plan(folder, data, kinds=("speedup",))[name]


def panels(figure: Figure) -> dict[str, list[Curve]]:
    return {panel.title: list(panel.curves) for panel in figure.chart.panels}


def curves(figure: Figure) -> list[Curve]:
    return [curve for members in panels(figure).values() for curve in members]


def axes_of(figure: Figure) -> Axes:
    axes = drawn(figure).canvas.axes[0]
    return axes


def with_processes(*noisy: int) -> dict[str, Any]:
    """Three processes each; of the results at these places they differ by a factor of 10,000."""
    data = crossing()
    for place, mark in enumerate(data["benchmarks"]):
        ours, median = mark["extra_info"]["gpubench"], mark["stats"]["median"]
        spread = 100.0 if place in noisy else 1.02 if ours["device"] == "cpu" else 1.0
        ours["processes"] = [
            {**ours["processes"][0], "process": i, "median_s": median * factor, "kept": 0}
            for i, factor in enumerate((1.0, spread, 1 / spread))
        ]
        mark["stats"]["data"] = []
    return data


def diamonds(axes: Axes) -> list[float]:
    return [
        float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "D" and len(line.get_xdata()) == 1
    ]


def test_the_crossover_stands_on_its_line_and_in_the_subtitle(tmp_path: Path) -> None:
    figure = speedup(tmp_path, with_processes())
    assert figure.subtitle == "Synthetic H faster from n ≈ 11k"
    (size,) = diamonds(axes := axes_of(figure))
    (diamond,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert diamond.get_markerfacecolor() == colour(LIGHT, "accelerator0")  # hollow are noisy measurements alone
    assert size == pytest.approx(11_400, rel=0.05)
    assert {"n ≈ 11k", "Synthetic faster"} <= {text.get_text() for text in axes.texts}


def test_without_an_interval_the_sizes_on_either_side_are_all_that_is_said(tmp_path: Path) -> None:
    figure = speedup(tmp_path, crossing())
    assert figure.subtitle == "Synthetic H faster from n between 10⁴ and 10⁵"
    axes = axes_of(figure)
    assert diamonds(axes) == []
    assert any(list(line.get_xdata()) == [1e4, 1e5] and set(line.get_ydata()) == {1.0} for line in axes.lines)
    assert "10⁴ to 10⁵" in [text.get_text() for text in axes.texts]


def test_no_crossover_no_mark(tmp_path: Path) -> None:
    data = settings_of(1e7)
    figure = speedup(tmp_path, data)
    assert diamonds(axes_of(figure)) == []
    assert figure.subtitle == "Synthetic H not faster up to n = 10⁵"


@pytest.mark.parametrize("noisy", [None, (), (1,), (2,)])
def test_the_mark_says_what_the_subtitle_says(tmp_path: Path, noisy: tuple[int, ...] | None) -> None:
    figure = speedup(tmp_path, crossing() if noisy is None else with_processes(*noisy))
    known = "unsure" not in figure.subtitle
    assert known == (curves(figure)[0].mark is not None)
    assert known == any("≈" in word or " to " in word for word in words(drawn(figure)) if word != figure.subtitle)


def test_what_is_too_noisy_is_not_drawn_and_the_label_says_so(tmp_path: Path) -> None:
    (sound,) = curves(speedup(tmp_path, with_processes()))
    figure = speedup(tmp_path, with_processes(3))
    (curve,) = curves(figure)
    assert curve.points == sound.points[:3]
    assert (curve.label, curve.cut) == ("data stays, then unknown (too noisy)", True)
    (label,) = [text for text in axes_of(figure).texts if isinstance(text, Annotation) and text.arrow_patch]
    assert not label.arrow_patch.get_visible()  # nobody takes it for the line
    assert figure.chart.left_out == 1
    assert "1 result not drawn" in figure.caption
    assert plan(tmp_path, with_processes(0, 1, 2, 3), kinds=("speedup",)) == {}


def test_a_busy_machine_leaves_a_limit(tmp_path: Path) -> None:
    """The number of the table, a triangle on the line, the bar as far as is known."""
    figure = speedup(tmp_path, crossing(flags=("contended",), rounds=50))
    (curve,) = curves(figure)
    assert len(curve.limits) == 4
    assert curve.label == "≥ 8.7×* data stays"
    assert curve.mark is None
    assert [point.y for point in curve.points] == [point.low if point.y > 1 else point.high for point in curve.points]
    assert "Triangle: only a limit is known" in figure.caption
    assert [line.get_marker() for line in axes_of(figure).lines if line.get_marker() in "^v"] == ["v", "v", "^", "^"]


def test_the_uncertainty_is_drawn_at_the_points_and_not_between(tmp_path: Path) -> None:
    figure = speedup(tmp_path, with_processes())
    (curve,) = curves(figure)
    assert all(point.low < point.y < point.high for point in curve.points)
    axes = axes_of(figure)
    assert len(axes.containers) == 1
    assert not [each for each in axes.collections if "Poly" in type(each).__name__ or "Fill" in type(each).__name__]
    assert "Bar at a point: 95% interval, 3 processes" in figure.caption


def test_a_wide_interval_does_not_flatten_the_lines(tmp_path: Path) -> None:
    figure = speedup(tmp_path, with_processes(3))
    values = [point.y for curve in curves(figure) for point in curve.points]
    low, high = axes_of(figure).get_ylim()
    assert math.log10(high / low) < math.log10(max(values) / min(values)) + 3


@pytest.mark.parametrize("flagged", [1, 4])
def test_flagged_results_are_hollow_unless_most_are(tmp_path: Path, flagged: int) -> None:
    data = crossing()
    for mark in data["benchmarks"][-flagged:]:
        mark["extra_info"]["gpubench"]["processes"][0]["flags"] = [{"flag": "noisy", "seen": "IQR 40 % of the median"}]
    figure = speedup(tmp_path, data)
    hollow = [
        float(line.get_xdata()[0])
        for line in axes_of(figure).lines
        if line.get_markerfacecolor() == colour(LIGHT, "page") and line.get_linestyle() == "None"
    ]
    few = flagged == 1
    assert hollow == [10**6] * few
    assert ("Hollow: noisy measurement" in figure.caption) == few
    assert figure.notice == ("" if few else "4 of 4 results are noisy and may be off")
    assert few or any(figure.notice in word for word in words(drawn(figure)))


def test_copies_are_dashed_and_a_dtype_has_its_panel_float32_first(tmp_path: Path) -> None:
    figure = speedup(tmp_path, records.gpu_run(3), "speedup-matmul.square")
    solid, dashed = curves(figure)[:2]
    assert (solid.dashed, dashed.dashed) == (False, True)
    assert solid.label.endswith("×")
    assert solid.role == dashed.role == "accelerator0"
    assert all(a.y >= b.y for a, b in zip(solid.points, dashed.points, strict=True))
    first, *others = panels(figure)
    assert first == "float32"
    assert set(others) <= {"bfloat16", "float16", "float64", "tf32"} != set()
    assert any(curve.mark for curve in curves(figure))
    assert ", with copies from n ≈ " in figure.subtitle
    assert figure.subtitle.endswith("(float32)")


def test_each_setting_has_its_panel_the_plainest_first(tmp_path: Path) -> None:
    figure = speedup(tmp_path, records.gpu_run(3), "speedup-elementwise.add")
    assert [*panels(figure)] == ["out", "allocating", "inplace"]
    assert figure.subtitle == "Synthetic H faster from n ≈ 32k, with copies not up to n = 10⁷ (out)"


def settings_of(*crossings: float, workload: str = "a.b") -> dict[str, Any]:
    """A run of one workload in several settings, which cross 1× at these sizes."""
    marks = [
        records.benchmark(
            Case(workload, device, "float32", {"n": n, "form": f"f{i}"}, size="n", devices=(device,)), median,
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
    figure = speedup(tmp_path, settings_of(*crossings))
    assert words(drawn(figure)).count("Synthetic faster") == len(crossings)
    assert faults(figure) == []


def test_two_libraries_of_one_device_are_both_named(tmp_path: Path) -> None:
    figures = plan(tmp_path, records.cpu_run(), kinds=("speedup",))
    assert figures
    assert all("PyTorch" in figure.title and "NumPy" in figure.title for figure in figures.values())


# Several benchmarks ---------------------------------------------------------------------------------------------------


def test_several_functions_are_one_picture_over_one_baseline(tmp_path: Path) -> None:
    """Each over its own size; those of several files together."""
    data = crossing("mine.distance", "other.norm")
    data["benchmarks"] += crossing("mine.attention", size="batch")["benchmarks"]
    shown = [figure for figure in plan(tmp_path, data, every=False).values() if figure.kind == "speedup"]
    (figure,) = shown
    assert figure.title == "Speedup by size of Synthetic H over Synthetic, 2 threads"
    assert figure.subtitle == "At the largest size: Synthetic H faster in 3 of 3"
    assert [*panels(figure)] == ["mine.attention", "mine.distance", "other.norm"]
    assert [panel.size for panel in figure.chart.panels] == ["batch", "n", "n"]
    times = plan(tmp_path, data)["time-own"]
    assert times.title == "mine, other: time per call by size"
    assert [*panels(times)] == [*panels(figure)]


def test_of_many_the_users_own_and_then_each_kind_of_work_are_drawn(tmp_path: Path) -> None:
    data = records.gpu_run()
    data["benchmarks"] += crossing("mine.one")["benchmarks"]
    figure = plan(tmp_path, data, every=False)["speedup"]
    kinds = {name.partition(".")[0] for name in panels(figure)}
    assert len(panels(figure)) == 6
    assert {"mine", "matmul", "models", "elementwise"} <= kinds
    assert "more benchmarks not shown" in figure.caption


def test_one_benchmark_alone_is_drawn_in_all_its_forms(tmp_path: Path) -> None:
    assert [*plan(tmp_path, crossing(), every=False, kinds=("speedup",))] == ["speedup-a.b"]


def test_the_gpus_of_two_machines_have_one_baseline(tmp_path: Path) -> None:
    """Against its own CPU each would look better, the slower its CPU is."""
    figures = plan(tmp_path, records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)"), every=False)
    for figure in figures.values():
        if figure.kind in ("headline", "speedup"):
            assert "over Synthetic H · run0" in figure.title
    roles = {curve.role for figure in figures.values() if figure.kind == "speedup" for curve in curves(figure)}
    assert roles == {"accelerator1", "cpu0"}
