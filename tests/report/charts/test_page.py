"""What every picture keeps to: room, type sizes, ticks, words that don't lie on each other, equal bytes."""

from __future__ import annotations

import copy
import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import records
from drawing import drawn, faults, plan, study_of, words
from matplotlib.figure import Figure as Canvas

from gpubench.report.charts import pictures as charting, rate_chart
from gpubench.report.charts.layouts import LinePanels
from gpubench.report.charts.page import Figure, log_axis, size_axis, spread, text_width, tick_text, wrap_text
from gpubench.report.charts.pictures import render
from gpubench.report.charts.theme import THEMES, colour
from gpubench.runfile.schema import Case

ROOT = Path(__file__).resolve().parents[3]
Data = dict[str, Any]


def reference(name: str) -> Data:
    data: Data = json.loads((ROOT / "results" / name / "run.json").read_text())
    return data


def crossing(
    *names: str, size: str = "n", factor: float = 1.0, noisy: tuple[int, ...] | None = None, gpu: Any = records.GPU,
    unmeasured: list[Any] | None = None, **how: Any,
) -> Data:  # fmt: skip
    """A CPU at 1 ns an element against a device at 10 µs and 0.1 ns: equal at 11,111 elements, or ``factor`` as slow.
    With ``noisy`` of three processes, which differ by a factor of 10,000 in the results at these places."""
    marks = []
    for name in names or ("a.b",):
        for device, start, slope in (("cpu", 0.0, 1e-9 * factor), ("cuda:0", 1e-5, 1e-10)):
            for n in (10**3, 10**4, 10**5, 10**6):
                spread = 100.0 if len(marks) in (noisy or ()) else 1.02 if device == "cpu" else 1.0
                case = Case(name, device, "float32", {size: n}, size=size, devices=(device,))
                time, terms = start + n * slope, how if device == "cpu" else {}
                medians = () if noisy is None else (time, time * spread, time / spread)
                marks.append(records.benchmark(case, time, work={"items": n}, medians=medians, **terms))
    return records.run_file(marks, unmeasured, devices=(records.CPU, gpu))


UNMEASURED = [
    records.unmeasured(Case("a.b", device, "float32", {"n": n}, size="n"), "oom", "no")
    for device, n in (("cuda:0", 10**9), ("accelerator", 10))
]


def plain_tests() -> Data:
    """Two lists of them were once paired by their positions."""
    marks = [
        records.benchmark(Case(name, device, "", {"n": n}, devices=()), n * 1e-6)
        for name, device in (("mix.alpha", ""), ("mix.beta", "cpu"), ("mix.gamma", ""))
        for n in (100, 1000, 10000)
    ]
    return records.run_file(marks)


def settings_of(*crossings: float, workload: str = "a.b") -> Data:
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


CROSSINGS = ((1.0, 10.0), (800.0, 900.0), (5e3,), (1e7, 1e8), (5e3, 5e3, 10.0, 1e7, 1.0, 9.0))
"""Also where hardly anything is slower than 1×, in small panels."""
RUNS: dict[str, Callable[[], list[Data]]] = {
    "CPU": lambda: [records.cpu_run()],
    "GPU": lambda: [records.gpu_run(3)],
    "two machines": lambda: [records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)")],
    "reference": lambda: [reference("xeon-2-cores")],
    "scaling": lambda: [reference("xeon-2-cores-scaling")],
    "one function": lambda: [crossing("mine.one")],
    "two functions": lambda: [crossing("mine.one", "mine.two", size="rows")],
    "nine functions": lambda: [crossing(*(f"mine.function_{i}" for i in range(9)))],
    "busy": lambda: [crossing("mine.one", "mine.two", "mine.three", flags=("contended",))],
    "hostile names": lambda: [crossing("../../evil$x^{2.<script>&</script>$\\frac")],
    "long names": lambda: [crossing(*(f"a.{'long_' * 60}{i}" for i in range(3)))],
    "unmeasured": lambda: [crossing(unmeasured=UNMEASURED)],
    "plain tests": lambda: [plain_tests()],
    "simulated": lambda: [crossing(gpu={**records.GPU, "simulated": True})],
    "far ahead": lambda: [crossing("mine.one", "mine.two", factor=1e7)],
    "far behind": lambda: [crossing("mine.one", "mine.two", factor=1e-7)],
    **{f"crossing at {sizes}": lambda sizes=sizes: [settings_of(*sizes)] for sizes in CROSSINGS},
}


@pytest.mark.parametrize("runs", RUNS)
def test_every_picture_can_be_read(tmp_path: Path, runs: str) -> None:
    """Nothing below 11 pixels, nothing cut, nothing on anything else, all labelled, at most 700 high."""
    figures = plan(tmp_path, *RUNS[runs](), every=runs in ("GPU", "two functions"))
    assert figures
    assert {name: found for name, figure in figures.items() if (found := faults(figure))} == {}
    titles = [figure.title for figure in figures.values()]
    assert len(set(titles)) == len(titles)
    assert all(("simulated" in title) == (runs == "simulated") for title in titles)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) for name in figures)
    assert b"<script" not in b"".join(map(render, figures.values())).replace(b"<script>&amp;", b"")


@pytest.mark.parametrize(("runs", "most"), [("CPU", 9), ("GPU", 12), ("two machines", 14)])
def test_a_report_shows_about_ten_pictures(tmp_path: Path, runs: str, most: int) -> None:
    few, every = (plan(tmp_path, *RUNS[runs](), every=every) for every in (False, True))
    assert 5 <= len(few) <= most
    assert len(every) > len(few)
    assert next(iter(few)) == "headline"
    assert few.keys() <= every.keys()


def test_captions_name_the_terms(tmp_path: Path) -> None:
    for figure in plan(tmp_path, records.gpu_run(3)).values():
        threads = "1 and 2 CPU threads" if "NumPy" in figure.caption else "2 CPU threads"
        facts = ["float32", threads, "TF32 off", "PyTorch 2.13.0", "2026-01-31", "3 processes"]
        facts.append("Synthetic CPU" if figure.name == "roofline-cpu" else "Synthetic H-GPU")
        assert [fact for fact in facts if fact not in figure.caption] == [], figure.name


def test_unmeasured_is_never_drawn(tmp_path: Path) -> None:
    for figure in plan(tmp_path, crossing(unmeasured=UNMEASURED)).values():
        assert not [word for word in words(drawn(figure)) if "accelerator" in word or "10⁹" in word]


def test_no_two_files_alike(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case(f"{name}.x", device, "float32", {"n": n}, size="n", devices=(device,)), n * 1e-6)
        for name in ("a/b", "a b", "A-b", "…")
        for device in ("cpu", "cuda:0")
        for n in (1, 2, 4)
    ]
    names = [name.lower() for name in plan(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))]
    assert len(names) == len(set(names)) == 7  # a speedup each and one of all, times, and the headline


# Files ----------------------------------------------------------------------------------------------------------------


def test_the_same_bytes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = plan(tmp_path, records.gpu_run())
    figures = [every["headline"], every["roofline-cpu"], *plan(tmp_path, crossing(), kinds=("speedup",)).values()]
    how = list(itertools.product(figures, ("svg", "png"), THEMES))
    files = [render(*each) for each in how]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setitem(mpl.rcParams, "lines.antialiased", False)
    assert [render(*each) for each in how] == files
    assert len({*files}) == len(files) == 12
    assert mpl.rcParams["lines.antialiased"] is False


def test_text_is_text_in_fonts_that_most_have(tmp_path: Path) -> None:
    (figure,) = plan(tmp_path, crossing(), kinds=("speedup",)).values()
    (((_, _, svg, dark),), _) = charting.drawn([figure])
    told = "".join(ET.fromstring(svg).itertext())
    assert "a.b" in told
    assert "10⁴ to 10⁵" in told  # a stroke around letters would make them paths
    assert b"'DejaVu Sans', 'Verdana'" in svg
    assert re.search(rb'<svg[^>]* width="600pt"', svg)  # 800 pixels
    assert [colour(theme, "page").encode() in each for each in (svg, dark) for theme in THEMES] == [
        True, False, False, True,
    ]  # fmt: skip


# Ticks, lines of text, places -----------------------------------------------------------------------------------------


def labels(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


@pytest.mark.parametrize(
    ("low", "high", "unit", "expected"),
    [
        (0.9e-6, 2e-3, "s", "1 µs, 10 µs, 100 µs, 1 ms"),
        (0.4, 2.5, "", "2× slower, 1×, 2×"),
        (0.05, 40, "", "10× slower, 1×, 10×"),
        (1e-4, 1e5, "", "1,000× slower, 1×, 1,000×"),
        (2.0, 150.0, "calls", "2 calls, 5 calls, 10 calls, 20 calls, 50 calls, 100 calls"),
    ],
)
def test_ticks(low: float, high: float, unit: str, expected: str) -> None:
    """In the words of the labels: no 0.1× beside 7.7× slower; and 1× is one of them."""
    axes = Canvas().add_subplot()
    axes.set(xscale="log", xlim=(low, high))
    log_axis(axes.xaxis, low, high, unit, 4 if high == 1e5 else 6)
    assert ", ".join(labels(axes.xaxis)) == expected


def test_extreme_ticks() -> None:
    axes = Canvas().add_subplot()
    axes.set(xscale="log", xlim=(1e-15, 1e30))
    log_axis(axes.xaxis, 1e-15, 1e30, "s", 6)
    assert len(labels(axes.xaxis)) <= 7
    told = [tick_text(value, "") for value in (5e-7, 1e-4, 1000, 1e7)]
    assert told == ["2·10⁶× slower", "10,000× slower", "1,000×", "10⁷×"]


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
    lines = wrap_text("a bb ccc dddd " * 20, 200, 12, 4)
    assert len(lines) == 4
    assert all(text_width(line, 12) <= 200 for line in lines)
    assert "…" in lines[-1]
    assert wrap_text("", 200, 12) == []
    assert wrap_text("the device wins from n ≈ 21k", 160, 12) == ["the device wins from", "n ≈ 21k"]


@pytest.mark.parametrize(
    ("places", "gap", "expected"),
    [
        ([1.0, 2.0], 0.2, [1.0, 2.0]),
        ([1.1, 1.0, 1.05], 0.2, [1.25, 0.85, 1.05]),
        ([0.0, 0.0], 0.2, [0.0, 0.2]),
        ([5.0], 0.2, [3.0]),
        ([0.1] * 5, 1.0, [0.0, 0.75, 1.5, 2.25, 3.0]),
        ([], 0.2, []),
    ],
)
def test_places_move_apart_as_little_as_it_takes(places: list[float], gap: float, expected: list[float]) -> None:
    assert spread(places, gap, 0.0, 3.0) == pytest.approx(expected)


# Charts that fail, and new ones ---------------------------------------------------------------------------------------


def test_a_chart_that_raises_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(LinePanels, "draw", lambda *_: 1 / 0)
    made, failed = charting.drawn(figures)
    assert len(failed) == len(lines) > 0
    assert all(figure.name in warning for figure, warning in zip(lines, failed, strict=True))
    assert [name for name, *_ in made] == [figure.name for figure in figures if figure not in lines]


def test_faults_are_found(tmp_path: Path) -> None:
    """Each on a picture that has it alone."""
    from dataclasses import replace

    figure: Figure = copy.copy(plan(tmp_path, crossing(), kinds=("speedup",))["speedup-a.b"])
    (panel,) = figure.chart.panels
    many = replace(figure.chart, panels=(panel,) * 7)
    few = replace(panel, curves=(replace(panel.curves[0], points=panel.curves[0].points[:2]),))
    for broken, found in (
        (replace(figure, title="word " * 90), "title cut"),
        (replace(figure, caption="See summary.md."), "points elsewhere"),
        (replace(figure, chart=many), "crowded"),
        (replace(figure, chart=replace(figure.chart, panels=(few,))), "points ["),
        (replace(figure, chart=replace(figure.chart, panels=(replace(panel, title="x" * 200),))), "leaves the page"),
    ):
        assert any(found in each for each in faults(broken)), found
