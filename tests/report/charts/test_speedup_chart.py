"""Speedup pictures: the crossover on its line, what is too noisy to mark, and several benchmarks in one."""

import itertools
import math

import pytest
import records
from drawing import drawn, faults, plan
from matplotlib.markers import CARETUP
from reading import study_of
from records import run
from test_page import crossing, settings_of

from gpubench.report.charts.speedup_chart import speedup_figures
from gpubench.report.charts.theme import LIGHT, colour


def speedup(*runs):
    figure = plan(*runs, kinds=("speedup",))["speedup-a.b"]
    assert faults(figure) == []
    return figure


def panels(figure):
    return {panel.title: list(panel.curves) for panel in figure.chart.panels}


def curves(figure):
    return [curve for members in panels(figure).values() for curve in members]


def with_copies():
    """Of noisy medians on the GPU, but not of one call with its copies, from 300 µs."""
    one, sizes = run(), (64, 256, 1024)
    one.bench("a.b", cpu=lambda n: n * 1e-6, n=sizes)
    return one.bench("a.b", gpu=lambda n: (1e-3, 1e-5, 1e-7) if n < 1000 else 1e-5, n=sizes, latency=1e-4, copies=1e-4)


def axes_of(figure):
    return drawn(figure).canvas.axes[0]


@pytest.mark.parametrize(
    ("data", "subtitle", "sizes", "told"),
    [
        (lambda: crossing(noisy=()), "Synthetic H faster from n ≈ 11k", [11_400], "1× at n ≈ 11k"),
        (crossing, "Synthetic H faster from n between 10⁴ and 10⁵", [], "1× at 10⁴ to 10⁵"),
        (lambda: settings_of(1e7), "Synthetic H not faster up to n = 10⁵", [], None),
        (lambda: crossing(noisy=(1,)), "Synthetic H faster from n = 10⁵ at the latest", [], None),
        (lambda: crossing(noisy=(2,)), "Synthetic H faster from n = 10⁶ at the latest", [], None),
        (lambda: crossing(noisy=(3,)), "Synthetic H faster from which size is unknown (too noisy)", [], None),
        (lambda: with_copies(), "Synthetic H faster from n ≈ 300 at the latest, with copies from n ≈ 300",
         [300], "1× at n ≈ 300 with copies"),
    ],
)  # fmt: skip
def test_the_crossover_on_its_line_is_what_the_subtitle_says(data, subtitle, sizes, told):
    """Without an interval the sizes on either side are all that is said; where it is unsure there is no mark."""
    figure = speedup(data())
    assert figure.subtitle == subtitle
    axes = axes_of(figure)
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert [line.get_xdata()[0] for line in diamonds] == pytest.approx(sizes, rel=0.05)
    assert {line.get_markerfacecolor() for line in diamonds} <= {colour(LIGHT, "accelerator0")}  # hollow is noisy
    shown = {text.get_text() for text in axes.texts}
    assert {word for word in shown if "≈" in word or " to " in word} == {told} - {None}
    assert "Synthetic faster" in shown
    between = [line for line in axes.lines if list(line.get_xdata()) == [1e4, 1e5] and {*line.get_ydata()} == {1.0}]
    assert len(between) == (data is crossing)


def test_what_is_too_noisy_is_not_drawn_and_the_label_says_so():
    (sound,) = curves(speedup(crossing(noisy=())))
    figure = speedup(crossing(noisy=(3,)))
    (curve,) = curves(figure)
    assert curve.points == sound.dots[:3]
    assert (curve.label, curve.cut) == ("data stays, then unknown (too noisy)", True)
    assert plan(crossing(noisy=(0, 1, 2, 3)), kinds=("speedup",)) == {}


def test_a_busy_machine_leaves_hollow_points_and_stars():
    figure = speedup(crossing(flags=("contended",), rounds=50))
    (curve,) = curves(figure)
    assert curve.label == "9.1×* data stays"
    assert all(point.flagged and not point.limit for point in curve.points)
    assert "Hollow or with *: noisy" in figure.caption


def test_intervals_are_bars_and_a_wide_one_does_not_flatten_the_lines():
    figure = speedup(crossing(noisy=(3,)))
    points = [point for curve in curves(figure) for point in curve.points]
    values, (low, high) = [point.y for point in points], axes_of(figure).get_ylim()
    assert all(point.low < point.y < point.high for point in points)
    assert "Bar at a point: 95% interval, 3 processes" in figure.caption
    assert math.log10(high / low) < math.log10(max(values) / min(values)) + 3


def test_the_bar_of_a_limit_that_goes_on_beyond_the_axis_ends_in_an_arrow():
    one = run().bench("a.b", cpu=(1e-2, 1e-1, 1.0), n=(10, 100)).bench("a.b", cpu=1e-2, n=1000)
    figure = speedup(one.bench("a.b", gpu=1e-9, n=(10, 100, 1000)))
    axes = axes_of(figure)
    cut = [point.x for point in curves(figure)[0].points if point.high > axes.get_ylim()[1]]
    assert cut == [line.get_xdata()[0] for line in axes.lines if line.get_marker() == CARETUP] == [10, 100]


@pytest.mark.parametrize("flagged", [1, 4])
def test_flagged_results_are_hollow_and_many_have_a_warning(flagged):
    """A result that is drawn with copies too counts once."""
    one = crossing(copies=1e-5)
    for mark in one.marks[-flagged:]:
        mark["extra_info"]["gpubench"]["processes"][0]["flags"] = [{"flag": "noisy", "seen": "IQR 40 % of the median"}]
    figure = speedup(one)
    lines = [line for line in axes_of(figure).lines if line.get_linestyle() == "None"]
    hollow = [line.get_xdata()[0] for line in lines if line.get_markerfacecolor() == colour(LIGHT, "page")]
    assert hollow == [10**3, 10**4, 10**5, 10**6][-flagged:]
    assert figure.notice == "4 of 4 results are noisy and may be off" * (flagged == 4)


def test_copies_are_dashed_and_each_dtype_or_setting_has_its_panel_the_plainest_first():
    figures = plan(records.gpu_run(3), kinds=("speedup",))
    product, add = figures["speedup-matmul.square"], figures["speedup-elementwise.add"]
    solid, dashed = curves(product)[:2]
    assert [(each.dashed, each.role) for each in (solid, dashed)] == [(False, "accelerator0"), (True, "accelerator0")]
    assert all(a.y >= b.y for a, b in zip(solid.points, dashed.points, strict=True))
    assert [*panels(product)] == ["float32", "bfloat16", "float64", "float16"]
    assert [*panels(add)] == ["out", "allocating", "inplace"]
    assert add.subtitle == "Synthetic H faster from n ≈ 33k*, with copies not up to n = 10⁷* (out)"
    assert "1× at n ≈ 120, n ≈ 190 with copies" in {text.get_text() for text in axes_of(product).texts}
    sizes = [line.get_markersize() for line in axes_of(product).lines if line.get_marker() == "D"]
    assert sizes == [8, 5.5]


def test_words_below_1x_stand_where_no_line_falls_and_a_key_is_not_hollow():
    """Hollow is noisy."""
    one = run().bench("a.b", cpu=lambda n: 1e-7 * n, gpu=lambda n: 1e-9 * n**1.5, copies=1e-6, n=(10, 10**3, 10**6))
    page = drawn(speedup(one.bench("a.c", cpu=1e-3, gpu=1e-4, copies=1e-6, n=(1, 2))))
    (words,) = (text for text in page.canvas.axes[0].texts if text.get_text() == "Synthetic faster")
    assert words.get_horizontalalignment() == "left"
    several = drawn(plan(one, kinds=("speedup",))["speedup"])
    (legend,) = several.canvas.legends
    assert colour(LIGHT, "page") not in {line.get_markerfacecolor() for line in legend.get_lines()}


def test_panels_of_dtypes_are_of_one_setting_which_the_title_names():
    one = run()
    for dtype, width in itertools.product(("float32", "float64"), (1, 4)):
        one.bench("a.b", cpu=1e-3, gpu=1e-4, n=(10, 100, 1000), width=width, size="n", dtype=dtype)
    figure = speedup(one)
    assert [*panels(figure)] == ["float32", "float64"]
    assert figure.title.startswith("a.b, width=4: speedup of ")


def test_two_libraries_of_one_device_are_both_named():
    figures = plan(records.cpu_run(), kinds=("speedup",))
    assert figures
    assert all("PyTorch" in figure.title and "NumPy" in figure.title for figure in figures.values())


# Several benchmarks ---------------------------------------------------------------------------------------------------


def test_several_functions_are_one_picture_over_one_baseline():
    """Each over its own size; those of several files together."""
    one = crossing("mine.attention", one=crossing("mine.distance", "other.norm"), size="batch")
    (figure,) = (figure for figure in plan(one, every=False).values() if figure.kind == "speedup")
    assert figure.title == "Speedup by size of Synthetic H over Synthetic, 2 threads"
    assert figure.subtitle == "At the largest size: Synthetic H faster in 3 of 3"
    assert [*panels(figure)] == ["mine.attention", "mine.distance", "other.norm"]
    assert [panel.size for panel in figure.chart.panels] == ["batch", "n", "n"]
    times = plan(one)["time-own"]
    assert times.title == "mine, other: time per call by size"
    assert [*panels(times)] == [*panels(figure)]


def test_of_many_the_users_own_and_then_each_kind_of_work_are_drawn():
    mine = [f"mine.{letter}" for letter in "abcdefg"]
    whole = records.Made(records.gpu_run(), "", 1)
    figure = plan(crossing(mine[0], one=whole), every=False)["speedup"]
    kinds = {name.partition(".")[0] for name in panels(figure)}
    assert len(panels(figure)) == 6
    assert {"mine", "matmul", "models", "elementwise"} <= kinds
    assert "more benchmarks not shown" in figure.caption
    assert [*panels(plan(crossing(*mine[1:], one=whole), every=False)["speedup"])] == mine[:6]


def test_the_gpus_of_two_machines_have_one_baseline():
    """Against its own CPU each would look better, the slower its CPU is."""
    figures = plan(records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)"), every=False)
    for figure in figures.values():
        if figure.kind in ("headline", "speedup"):
            assert "over Synthetic H · run0" in figure.title
    roles = {curve.role for figure in figures.values() if figure.kind == "speedup" for curve in curves(figure)}
    assert roles == {"accelerator1"}


def test_cpus_of_two_machines_have_the_baseline_and_the_setting_of_the_headline():
    """The first; of two widths the larger, which is named."""
    runs = []
    for name, seconds in (("fast", 1e-3), ("slow", 2e-3)):
        one = run(name, cuda=0)
        for width in (1, 4):
            one.bench("models.cifar", cpu=seconds, n=(10, 100, 1000), width=width, size="n")
        runs.append(one.bench("mine.b", cpu=seconds, n=(10, 100, 1000)))
    figures = plan(*runs, every=False)
    headline, several = figures["headline"], figures["speedup"]
    assert [*panels(several)] == ["mine.b", "models.cifar, width=4"]
    bases = [figure.title.partition(" over ")[2] for figure in (several, headline)]
    assert bases == ["Synthetic, 2 threads · fast"] * 2
    assert {curve.label for curve in curves(several)} == {"2.0× slower"}


def test_a_gpu_as_the_baseline_says_whose_fastest_way_counts_and_which_device_isnt_shown():
    runs = []
    for name, pace in (("one", 1.0), ("two", 2.0)):
        one = run(name).bench("a.b", cpu=1e-3 * pace, gpu=1e-4 / pace, n=(10, 100, 1000))
        runs.append(one.bench("a.b", numpy=1e-4, n=(10, 100, 1000)))
    of_one, *_ = speedup_figures(study_of(*runs, baseline="cuda:0"))
    assert of_one.title == "a.b: speedup of Synthetic · one over Synthetic H · one"
    assert "At some sizes of the CPU's fastest way, where that is another: NumPy." in of_one.caption
    gpus, *_ = speedup_figures(study_of(*runs))
    assert gpus.title == "a.b: speedup of Synthetic H · two over Synthetic H · one"
    assert "Not shown: Synthetic, 2 threads · one, Synthetic, 2 threads · two." in gpus.caption
