"""Rules of every picture: room, type sizes, ticks, words that don't lie on each other, equal bytes."""

import itertools
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib as mpl
import pytest
import records
from drawing import drawn, faults, plan, study_of, words

from gpubench.report.charts import pictures as charting, rate_chart
from gpubench.report.charts.layouts import LinePanels, spread
from gpubench.report.charts.page import log_ticks, size_ticks, tick_text
from gpubench.report.charts.pictures import render
from gpubench.report.charts.theme import THEMES, colour

RESULTS = Path(__file__).resolve().parents[3] / "results"
run = partial(records.run, processes=1)


def crossing(*names, one=None, size="n", factor=1.0, noisy=None, **how):
    """A CPU at 1 ns an element against a device at 10 µs and 0.1 ns: equal at 11,111 elements, or ``factor`` as slow.
    With ``noisy`` of three processes, which differ by a factor of 10,000 in the results at these places."""
    one, places, copies = one or run(), itertools.count(), how.pop("copies", None)

    def times(start, slope, apart, n):
        time, apart = start + n * slope, 100.0 if next(places) in (noisy or ()) else apart
        return time if noisy is None else (time, time * apart, time / apart)

    sizes = {size: (10**3, 10**4, 10**5, 10**6), "items": int}
    for name in names or ("a.b",):
        one.bench(name, cpu=partial(times, 0.0, 1e-9 * factor, 1.02), **sizes, **how)
        one.bench(name, gpu=partial(times, 1e-5, 1e-10, 1.0), **sizes, copies=copies)
    return one


def unmeasured():
    return crossing().skip("a.b", "oom", device="cuda:0", n=10**9).skip("a.b", "oom", device="accelerator", n=10)


def plain_tests():
    """Two lists of them were once paired by their positions."""
    one = run(cuda=0)
    for name, device in (("mix.alpha", ""), ("mix.beta", "cpu"), ("mix.gamma", "")):
        one.bench(name, cpu=lambda n: n * 1e-6, n=(100, 1000, 10000), device=device, dtype="", devices=())
    return one


def settings_of(*crossings):
    """A run of one workload in several settings, which cross 1× at these sizes."""
    one = records.run()
    for i, equal in enumerate(crossings):
        times = {"cpu": lambda n: 1e-9 * n, "gpu": lambda n, equal=equal: 1e-9 * equal * (n / equal) ** 0.5}
        one.bench("a.b", **times, n=(10**3, 10**4, 10**5), form=f"f{i}")
    return one


CROSSINGS = ((1.0, 10.0), (800.0, 900.0), (5e3,), (1e7, 1e8), (5e3, 5e3, 10.0, 1e7, 1.0, 9.0))
"""Also where hardly anything is slower than 1×, in small panels."""
TWO = "mine.one", "mine.two"
RUNS = {
    "CPU": lambda: [records.cpu_run()],
    "GPU": lambda: [records.gpu_run(3)],
    "two machines": lambda: [records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)")],
    "reference": lambda: [json.loads((RESULTS / "xeon-2-cores/run.json").read_text())],
    "scaling": lambda: [json.loads((RESULTS / "xeon-2-cores-scaling/run.json").read_text())],
    "one function": lambda: [crossing("mine.one")],
    "two functions": lambda: [crossing(*TWO, size="rows")],
    "nine functions": lambda: [crossing(*(f"mine.function_{i}" for i in range(9)))],
    "busy": lambda: [crossing(*TWO, "mine.three", flags=("contended",))],
    "hostile names": lambda: [crossing("../../evil$x^{2.<script>&</script>$\\frac")],
    "long names": lambda: [crossing(*(f"a.{'long_' * 60}{i}" for i in range(3)))],
    "unmeasured": lambda: [unmeasured()],
    "plain tests": lambda: [plain_tests()],
    "simulated": lambda: [crossing(one=run(gpu={"simulated": True}))],
    "far ahead": lambda: [crossing(*TWO, factor=1e7)],
    "far behind": lambda: [crossing(*TWO, factor=1e-7)],
    "names alike": lambda: [crossing("a/b.x", "a b.x", "A-b.x", "é.x")],
    **{f"crossing at {sizes}": lambda sizes=sizes: [settings_of(*sizes)] for sizes in CROSSINGS},
}


@pytest.mark.parametrize("runs", RUNS)
def test_every_picture_can_be_read(runs):
    """Nothing below 11 pixels, nothing cut, nothing on anything else, all labelled, at most 700 high."""
    figures = plan(*RUNS[runs](), every=runs in ("GPU", "two functions", "names alike"))
    assert figures
    assert {name: found for name, figure in figures.items() if (found := faults(figure))} == {}
    titles = [figure.title for figure in figures.values()]
    assert len(set(titles)) == len(titles)
    assert all("TF32 " in figure.facts or runs == "plain tests" for figure in figures.values())
    models = {"come from a model" in figure.notice for figure in figures.values()}
    assert models == {runs == "simulated"}
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) for name in figures)
    assert b"<script" not in b"".join(map(render, figures.values())).replace(b"<script>&amp;", b"")


@pytest.mark.parametrize(("runs", "most"), [("CPU", 5), ("GPU", 5), ("two machines", 6)])
def test_a_report_shows_the_first_pictures(runs, most):
    few, every = (plan(*RUNS[runs](), every=every) for every in (False, True))
    assert 4 <= len(few) <= most
    assert len(every) > len(few)
    assert next(iter(few)) == "headline"
    assert few.keys() <= every.keys()


def test_unmeasured_is_never_drawn():
    for figure in plan(unmeasured()).values():
        assert not [word for word in words(drawn(figure)) if "accelerator" in word or "10⁹" in word]


# Files ----------------------------------------------------------------------------------------------------------------


def test_the_same_bytes_again(monkeypatch):
    every = plan(records.gpu_run())
    figures = [every["headline"], every["throughput-matmul"], *plan(crossing(), kinds=("speedup",)).values()]
    how = list(itertools.product(figures, ("svg", "png"), THEMES))
    files = [render(*each) for each in how]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setitem(mpl.rcParams, "lines.antialiased", False)
    assert [render(*each) for each in how] == files
    assert len({*files}) == len(files) == 12
    assert mpl.rcParams["lines.antialiased"] is False


def test_text_is_text_in_fonts_that_most_have():
    (figure,) = plan(crossing(), kinds=("speedup",)).values()
    svg, dark = (render(figure, theme=theme) for theme in THEMES)
    told = "".join(ET.fromstring(svg).itertext())
    assert "a.b" in told
    assert "1× at 10⁴ to 10⁵" in told
    assert b"'DejaVu Sans', 'Verdana'" in svg
    assert re.search(rb'<svg[^>]* width="600pt"', svg)  # 800 pixels
    assert [colour(theme, "page").encode() in each for each in (svg, dark) for theme in THEMES] == [
        True, False, False, True,
    ]  # fmt: skip


# Ticks, lines of text, places -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "unit", "expected"),
    [
        (0.9e-6, 2e-3, "s", "1 µs, 10 µs, 100 µs, 1 ms"), (0.4, 2.5, "", "2× slower, 1×, 2×"),
        (0.05, 40, "", "10× slower, 1×, 10×"), (1e-4, 1e5, "", "1,000× slower, 1×, 1,000×"),
        (2.0, 150.0, "calls", "2, 5, 10, 20, 50, 100"), (2e9, 3e13, "FLOP/s", "10 G, 100 G, 1 T, 10 T"),
    ],
)  # fmt: skip
def test_ticks(low, high, unit, expected):
    """In the words of the labels: no 0.1× beside 7.7× slower; and 1× is one of them."""
    assert ", ".join(log_ticks(low, high, unit, 4 if high == 1e5 else 6).values()) == expected
    assert len(log_ticks(1e-15, 1e30, "s")) <= 7
    assert [*log_ticks(0.08, 3.0, "", 5, room=300).values()] == ["10× slower", "1×"]  # not 5× slower beside it
    shown = [tick_text(value, "") for value in (5e-7, 1e-4, 1000, 1e7)]
    assert shown == ["2·10⁶× slower", "10,000× slower", "1,000×", "10⁷×"]


def test_the_largest_size_always_has_its_tick():
    for sizes, name, room, expected in (
        ([64, 256, 1024], "n", 500, ["1024", "256", "64"]),
        ([10**3, 10**9], "nbytes", 500, ["1 GB", "1 kB"]),
        ([10**5, 65536], "n", 500, ["10⁵", "65.5k"]),
        ([1000, 1001, 1002, 2000], "n", 60, ["2000", "1002"]),
    ):
        assert [*size_ticks(sizes, name, room).values()] == expected


@pytest.mark.parametrize(
    ("places", "gap", "expected"),
    [
        ([1.0, 2.0], 0.2, [1.0, 2.0]), ([1.1, 1.0, 1.05], 0.2, [1.25, 0.85, 1.05]), ([0.0, 0.0], 0.2, [0.0, 0.2]),
        ([5.0], 0.2, [3.0]), ([0.1] * 5, 1.0, [0.0, 0.75, 1.5, 2.25, 3.0]), ([], 0.2, []),
    ],
)  # fmt: skip
def test_places_move_apart_as_little_as_it_takes(places, gap, expected):
    assert spread(places, gap, 0.0, 3.0) == pytest.approx(expected)


# Charts that fail, and new ones ---------------------------------------------------------------------------------------


def test_a_chart_that_raises_costs_itself_alone(monkeypatch):
    study = study_of(records.cpu_run())
    whole, none = charting.plan(study)
    monkeypatch.setattr(rate_chart, "rate_figures", lambda study: [][0])
    figures, failed = charting.plan(study)
    assert none == []
    assert [warning.split()[0] for warning in failed] == ["rate"]
    assert {each.kind for each in whole} - {each.kind for each in figures} == {"rate", "time"}


def test_a_picture_that_cannot_be_drawn_costs_itself_alone(monkeypatch):
    figures, _ = charting.plan(study_of(records.cpu_run()))
    lines = [figure for figure in figures if isinstance(figure.chart, LinePanels)]
    monkeypatch.setattr(LinePanels, "draw", lambda *_: 1 / 0)
    made, failed = charting.drawn(figures)
    assert [warning.split()[1] for warning in failed] == [figure.name for figure in lines] != []
    assert [each.figure for each in made] == [figure for figure in figures if figure not in lines]


def test_faults_are_found():
    """Each on a picture that has it alone."""
    figure = plan(crossing(), kinds=("speedup",))["speedup-a.b"]
    (panel,) = figure.chart.panels
    curve = panel.curves[0]
    few = panel._replace(curves=(curve._replace(dots=curve.dots[:2]),))
    panels = {"crowded": (panel,) * 7, "points [": (few,), "leaves the page": (panel._replace(title="x" * 200),)}
    broken = {"px high": {"caption": " ".join(["word"] * 999)}, "points elsewhere": {"caption": "See summary.md."}}
    broken |= {found: {"chart": replace(figure.chart, panels=changed)} for found, changed in panels.items()}
    for found, changes in broken.items():
        assert any(found in each for each in faults(replace(figure, **changes))), found
    assert not faults(replace(figure, caption=f"{figure.caption} {' '.join(['more'] * 90)}"))  # as of several machines
