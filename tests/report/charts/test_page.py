"""What every picture keeps to: room, type sizes, ticks, words that don't lie on each other, equal bytes."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import tempfile
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import records
from drawing import drawn, faults, plan, study_of, words
from matplotlib.figure import Figure as Canvas

from gpubench.errors import UsageError
from gpubench.report.charts import pictures as charting
from gpubench.report.charts.layouts import LinePanels, NamedRows
from gpubench.report.charts.page import (
    MOST_CURVES,
    MOST_PANELS,
    Figure,
    Page,
    linear_axis,
    log_axis,
    size_axis,
    spread,
    text_width,
    tick_text,
    wrapped,
)
from gpubench.report.charts.pictures import drawable, embedded, figures_of, render
from gpubench.report.charts.theme import DARK, LIGHT, colour
from gpubench.runfile.schema import Case

ROOT = Path(__file__).resolve().parents[3]


def reference(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((ROOT / "results" / name / "run.json").read_text())
    return data


RUNS = {
    "CPU": lambda: [records.cpu_run()],
    "GPU": lambda: [records.gpu_run(3)],
    "two machines": lambda: [records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)")],
    "reference": lambda: [reference("xeon-2-cores")],
    "scaling": lambda: [reference("xeon-2-cores-scaling")],
}


@cache
def figures_of_all(runs: str) -> dict[str, Figure]:
    """Every figure of these, planned once."""
    with tempfile.TemporaryDirectory() as folder:
        return plan(Path(folder), *RUNS[runs]())


@pytest.fixture(scope="module", params=[pytest.param(runs, marks=pytest.mark.xdist_group(runs)) for runs in RUNS])
def pictures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Figure, Page]]:
    """Figures and their pages, by name; drawn once for the tests that look at them."""
    figures = plan(tmp_path_factory.mktemp("pictures"), *RUNS[request.param](), every=request.param == "GPU")
    return {name: (figure, drawn(figure)) for name, figure in figures.items()}


def test_every_picture_can_be_read(pictures: dict[str, tuple[Figure, Page]]) -> None:
    """At 800 pixels: nothing below 11, nothing cut, nothing on anything else, at most 700 high."""
    assert pictures
    assert {name: found for name, (_, page) in pictures.items() if (found := faults(page))} == {}


@pytest.mark.parametrize("runs", RUNS)
def test_titles_are_whole_and_no_two_are_equal(runs: str) -> None:
    figures = figures_of_all(runs)
    titles = [figure.title for figure in figures.values()]
    assert len(set(titles)) == len(titles)
    for figure in figures.values():
        page = Page(figure, LIGHT, 100)
        assert figure.title in " ".join(text.get_text() for text in page.canvas.texts), figure.name
        assert "…" not in figure.title


@pytest.mark.parametrize("runs", RUNS)
def test_no_picture_points_to_a_file_or_a_command(runs: str) -> None:
    """It is published without them."""
    for name, figure in figures_of_all(runs).items():
        for text in (figure.title, figure.subtitle, figure.caption, figure.notice):
            assert not re.search(r"\.(csv|md|html|json)\b|\bgpubench\b|\bthere\b|\bthe other\b", text), (name, text)


@pytest.mark.parametrize("runs", RUNS)
def test_no_chart_is_crowded_or_of_fewer_than_three_values(runs: str) -> None:
    for figure in figures_of_all(runs).values():
        if isinstance(figure.chart, LinePanels):
            panels = figure.chart.panels
            assert 1 <= len(panels) <= MOST_PANELS
            assert all(1 <= len(panel.curves) <= MOST_CURVES for panel in panels)
            assert sum(len(curve.points) for panel in panels for curve in panel.curves) >= 3
        if isinstance(figure.chart, NamedRows):
            assert sum(len(entry.marks) for entry in figure.chart.entries) >= 3
            assert len(figure.chart.entries) <= 16


@pytest.mark.parametrize(("runs", "most"), [("CPU", 9), ("GPU", 12), ("two machines", 14)])
def test_a_report_shows_about_ten_pictures(tmp_path: Path, runs: str, most: int) -> None:
    few, every = plan(tmp_path, *RUNS[runs](), every=False), figures_of_all(runs)
    assert 5 <= len(few) <= most
    assert len(every) > len(few)
    assert next(iter(few)) == "headline"
    assert few.keys() <= every.keys()


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


def test_captions_name_the_terms(tmp_path: Path) -> None:
    for figure in plan(tmp_path, records.gpu_run(3)).values():
        threads = "CPU threads: torch 2, numpy 1" if "NumPy" in figure.caption else "2 CPU threads"
        facts = ["float32", threads, "TF32 off", "PyTorch 2.13.0", "2026-01-31", "3 processes"]
        facts.append("Synthetic CPU" if figure.name == "roofline-cpu" else "Synthetic H-GPU")
        for fact in facts:
            assert fact in figure.caption, figure.name


def test_names_from_a_file_stay_names(tmp_path: Path) -> None:
    figures = plan(tmp_path, crossing("../../evil$x^{2.<script>&</script>$\\frac"))
    for name in figures:
        assert all(c.isalnum() or c in "._-" for c in name)
        assert not name.startswith(".")
    files = render(figures.values(), ("svg",))
    for content in files.values():
        assert b"<script" not in content
        ET.fromstring(content)
    assert any(b"&lt;script&gt;" in content for content in files.values())


def test_a_name_of_300_letters_is_cut_and_leaves_the_page_whole(tmp_path: Path) -> None:
    for figure in plan(tmp_path, crossing(f"a.{'long_' * 60}")).values():
        assert faults(drawn(figure)) == []


def test_no_two_files_alike(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case(f"{family}.x", "cpu", "float32", {"n": n}), n * 1e-6)
        for family in ("a/b", "a b", "A-b", "…")
        for n in (1, 2, 4)
    ]
    names = [name.lower() for name in plan(tmp_path, records.run_file(marks))]
    assert len(names) == len(set(names)) == 5  # a file each, and the headline


def test_the_same_bytes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [
        figure for name, figure in plan(tmp_path, records.gpu_run()).items() if name in ("headline", "roofline-cpu")
    ]
    figures.append(next(iter(plan(tmp_path, crossing(), kinds=("speedup",)).values())))
    files = render(figures)
    charting._light_svg.cache_clear()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setitem(mpl.rcParams, "lines.antialiased", False)
    assert render(figures) == files
    assert mpl.rcParams["lines.antialiased"] is False
    assert {name.rpartition("-")[2] for name in files} == {"light.svg", "light.png", "dark.svg", "dark.png"}
    assert len(files) == 4 * len(figures) == 12


def test_text_is_text_in_fonts_that_most_have(tmp_path: Path) -> None:
    (figure,) = plan(tmp_path, crossing(), kinds=("speedup",)).values()
    svg = render([figure], ("svg",), (LIGHT,))[f"{figure.name}-light.svg"].decode()
    assert "a.b" in "".join(ET.fromstring(svg).itertext())
    assert "10⁴ to 10⁵" in "".join(ET.fromstring(svg).itertext())  # a stroke around letters would make them paths
    assert "'DejaVu Sans', 'Verdana'" in svg
    assert re.search(r'<svg[^>]* width="600pt"', svg)  # 800 pixels


def test_light_and_dark_differ(tmp_path: Path) -> None:
    files = render(list(plan(tmp_path, crossing()).values())[:1], ("svg",))
    light, dark = (next(text for name, text in files.items() if theme in name) for theme in (LIGHT, DARK))
    assert colour(LIGHT, "page").encode() in light
    assert colour(DARK, "page").encode() in dark
    assert colour(LIGHT, "page").encode() not in dark


def labels(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def test_ticks() -> None:
    axes = Canvas().add_subplot()
    axes.set_xscale("log")
    for low, high, unit, expected in (
        (0.9e-6, 2e-3, "s", ["1 µs", "10 µs", "100 µs", "1 ms"]),
        (0.4, 2.5, "", ["0.5×", "0.7×", "1×", "1.5×", "2×"]),
        (2.0, 150.0, "calls", ["2 calls", "5 calls", "10 calls", "20 calls", "50 calls", "100 calls"]),
    ):
        axes.set_xlim(low, high)
        log_axis(axes.xaxis, low, high, unit)
        assert labels(axes.xaxis) == expected
    log_axis(axes.xaxis, 1e-15, 1e30, "s", 6)
    assert len(labels(axes.xaxis)) <= 7
    assert [tick_text(value, "") for value in (2e-6, 1e-4, 0.001, 1000, 1e7)] == [
        "2·10⁻⁶×", "10⁻⁴×", "0.001×", "1,000×", "10⁷×",
    ]  # fmt: skip
    other = Canvas().add_subplot()
    other.set_xlim(0, 41e9)
    linear_axis(other.xaxis, "B/s", 5)
    other.figure.draw_without_rendering()
    assert labels(other.xaxis)[:3] == ["0", "10 GB/s", "20 GB/s"]


def test_the_largest_size_always_has_its_tick() -> None:
    axes = Canvas().add_subplot()
    axes.set_xscale("log")
    for sizes, name, room, expected in (
        ([64, 256, 1024], "n", 500, ["1024", "256", "64"]),
        ([10**3, 10**9], "nbytes", 500, ["1 GB", "1 kB"]),
        ([10**5, 65536], "n", 500, ["10⁵", "65.5k"]),
        ([1000, 1001, 1002, 2000], "n", 60, ["2000", "1002"]),
    ):
        size_axis(axes.xaxis, sizes, name, room)
        assert labels(axes.xaxis) == expected


def test_lines_of_text_fit_their_room() -> None:
    lines = wrapped("a bb ccc dddd " * 20, 200, 12, 4)
    assert len(lines) == 4
    assert all(text_width(line, 12) <= 200 for line in lines)
    assert lines[-1].endswith("…")
    assert wrapped("", 200, 12) == []
    assert wrapped("the device wins from n ≈ 21k", 160, 12) == ["the device wins from", "n ≈ 21k"]
    assert wrapped("up to 5 TFLOP/s (n × n bfloat16)", 120, 12) == ["up to 5 TFLOP/s", "(n × n bfloat16)"]


def test_a_leader_shows_only_where_a_label_was_moved(tmp_path: Path) -> None:
    (figure,) = plan(tmp_path, crossing(), kinds=("speedup",)).values()
    labels = [text for text in drawn(figure).canvas.axes[0].texts if getattr(text, "arrow_patch", None)]
    assert [label.arrow_patch.get_visible() for label in labels] == [False]


def test_places_move_apart_as_little_as_it_takes() -> None:
    assert spread([1.0, 2.0], 0.2, 0.0, 3.0) == [1.0, 2.0]
    assert spread([1.0, 1.0], 0.2, 0.0, 3.0) == pytest.approx([0.9, 1.1])
    assert spread([1.1, 1.0, 1.05], 0.2, 0.0, 3.0) == pytest.approx([1.25, 0.85, 1.05])
    assert spread([0.0, 0.0], 0.2, 0.0, 3.0) == pytest.approx([0.0, 0.2])
    assert spread([5.0], 0.2, 0.0, 3.0) == [3.0]
    assert spread([0.1] * 5, 1.0, 0.0, 3.0) == pytest.approx([0.0, 0.75, 1.5, 2.25, 3.0])
    assert spread([], 0.2, 0.0, 3.0) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_places_end_up_apart_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    places = [chance.uniform(0, 3) for _ in range(10)]
    moved = spread(places, 0.2, 0.0, 3.0)
    assert sorted(range(10), key=places.__getitem__) == sorted(range(10), key=moved.__getitem__)
    assert all(b - a >= 0.2 - 1e-9 for a, b in itertools.pairwise(sorted(moved)))
    assert -1e-9 <= min(moved) <= max(moved) <= 3 + 1e-9


def test_unmeasured_is_never_drawn(tmp_path: Path) -> None:
    data = crossing()
    data["gpubench"]["unmeasured"] = [
        records.unmeasured(Case("a.b", "cuda:0", "float32", {"n": 10**9}, size="n", devices=("cuda:0",)), "oom", "no"),
        records.unmeasured(Case("a.b", "accelerator", "float32", {"n": 10}, size="n"), "skipped", "needs a GPU"),
    ]
    figures = plan(tmp_path, data)
    for figure in figures.values():
        if isinstance(figure.chart, LinePanels):
            points = [p for panel in figure.chart.panels for curve in panel.curves for p in curve.points]
            assert all(point.x < 10**9 and math.isfinite(point.y) for point in points)
    assert not any("accelerator" in word for figure in figures.values() for word in words(drawn(figure)))


def test_a_chart_that_raises_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpubench.report.charts import rate_chart

    study = study_of(tmp_path, records.cpu_run())
    whole, none = charting.plan(study, every=True)
    monkeypatch.setattr(rate_chart, "rate_figures", lambda study: [][0])
    figures, failed = charting.plan(study, every=True)
    assert none == []
    assert [warning.split()[0] for warning in failed] == ["rate"]
    assert {each.kind for each in whole} - {each.kind for each in figures} == {"rate", "time"}


def test_a_picture_that_cannot_be_drawn_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures, _ = charting.plan(study_of(tmp_path, records.cpu_run()))
    lines = [figure for figure in figures if isinstance(figure.chart, LinePanels)]
    charting._light_svg.cache_clear()
    monkeypatch.setattr(LinePanels, "draw", lambda *_: 1 / 0)
    drawn_ones, failed = drawable(figures)
    assert len(failed) == len(lines) > 0
    assert all(figure.name in warning for figure, warning in zip(lines, failed, strict=True))
    assert drawn_ones == [figure for figure in figures if figure not in lines]


def test_plain_tests_beside_ours_over_sizes_make_pictures(tmp_path: Path) -> None:
    """Two lists of them were once paired by their positions."""
    marks = [
        records.benchmark(Case(name, device, "", {"n": n}, devices=()), n * 1e-6)
        for name, device in (("mix.alpha", ""), ("mix.beta", "cpu"), ("mix.gamma", ""))
        for n in (100, 1000, 10000)
    ]
    assert plan(tmp_path, records.run_file(marks)).keys() >= {"headline", "time-mix"}


def test_a_page_gets_both_themes_of_what_was_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = list(plan(tmp_path, crossing()).values())
    charting._light_svg.cache_clear()
    drawings = []
    picture = charting._picture
    monkeypatch.setattr(charting, "_picture", lambda *how: drawings.append(how) or picture(*how))
    files = render(figures, ("svg",), (LIGHT,))
    for figure, (title, light, dark) in zip(figures, embedded(figures), strict=True):
        assert (title, light) == (figure.title, files[f"{figure.name}-light.svg"])
        assert colour(DARK, "page").encode() in dark
    assert len(drawings) == len(figures)


def test_a_kind_of_picture_is_found_by_being_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file NAME_chart.py with NAME_figures(study) is all that a new one takes."""
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "pie_chart.py").write_text(
        "from gpubench.report.charts.page import Figure\n"
        "def pie_figures(study):\n    return [Figure('pie', 'pie', 'Pie', '', '', None, 50.0)]\n"
    )
    monkeypatch.setattr(charting.import_module("gpubench.report.charts"), "__path__", [str(folder)])
    assert [figure.kind for figure in figures_of(study_of(tmp_path, records.cpu_run()), "pie")] == ["pie"]
    with pytest.raises(UsageError, match="unknown kind 'cake': choose headline"):
        figures_of(study_of(tmp_path, records.cpu_run()), "cake")


def test_a_simulated_device_is_called_so_in_each_title(tmp_path: Path) -> None:
    data = crossing()
    data["machine_info"]["gpubench"]["devices"][1] = {**records.GPU, "simulated": True}
    figures = plan(tmp_path, data)
    assert figures
    assert all("simulated" in figure.title for figure in figures.values())
