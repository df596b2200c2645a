"""The headline, rates and speedups by size: places, times too noisy to mark, the crossover on its line."""

import itertools
import math
from functools import partial

import pytest
import records
from drawing import drawn, faults, plan, study_of
from matplotlib.markers import CARETUP
from test_page import crossing, settings_of

from gpubench.report.charts.layouts import NamedRow, NamedRows, RowMark, stacked_figure
from gpubench.report.charts.page import Figure
from gpubench.report.charts.selection import facts_of
from gpubench.report.charts.speedup_chart import speedup_figures
from gpubench.report.charts.theme import LIGHT, colour, role_of

run = partial(records.run, processes=1)


@pytest.mark.parametrize(("gpu", "told"), [({}, "1.00 ms"), ({"gpu": 1e-3 / 3}, "3.0×")])
def test_one_function_has_a_headline(gpu, told):
    (entry,) = plan(run().bench("mine.job", cpu="1 ms", **gpu), every=False)["headline"].chart.entries
    assert [mark.words for mark in entry.marks] == [told]


def test_what_is_too_noisy_has_no_mark_and_a_limit_a_bar():
    one = run().bench("a.x", cpu="1 ms", gpu="0.5 ms").bench("a.y", cpu=(1e-5, 1e-3, 1e-1), gpu=(1e-5, 1e-3, 1e-1))
    wide = (2e-4, 1e-3, 5e-3)
    figure = plan(one.bench("a.z", cpu=wide, flags=("contended",)).bench("a.z", gpu=(1e-6,) * 3))["headline"]
    marks = [entry.marks[0] for entry in figure.chart.entries]
    assert [mark.words for mark in marks] == ["2.0×", "unknown (too noisy)", "≥ 17×*"]
    assert [mark.value for mark in marks] == [2.0, None, None]
    assert marks[1].low is marks[1].high is None
    assert faults(figure) == []
    assert 16 < (marks[2].low or 0) < 17 < 1000 < (marks[2].high or 0)


@pytest.mark.parametrize("ends", [(49.0, 300.0), (49.0, 1e9), (1e-9, 1 / 49), (1 / 300, 1 / 49)])
def test_a_limit_alone_is_within_its_axis(ends):
    mark = RowMark(None, "accelerator0", "≥ 49× slower*", *ends)
    chart = NamedRows((NamedRow("", "mine.job, n=8", (mark,)),), "", (), ("slower", "faster"))
    figure = Figure("headline", "headline", "Speedup", "", "≥: only a limit is known. *: noisy", chart)
    assert faults(figure) == []
    (axes,) = drawn(figure).canvas.axes
    low, high = axes.get_xlim()
    (bar,) = (line.get_xdata() for line in axes.lines if line.get_linewidth() == 4)
    (limit,) = (line for line in axes.lines if line.get_marker() in ("<", ">"))
    assert (limit.get_xdata()[0] > 1) == (limit.get_marker() == ">")
    assert low <= min(bar) < max(bar) <= high
    assert {49.0, 1 / 49} & {*bar}
    assert high / low < 1e5
    arrows = {line.get_marker() for line in axes.lines if line.get_markersize() == 9} - {"None"}
    assert bool(arrows) == (max(ends) > 1e3 * min(ends))
    assert max(bar) > 5 * min(bar)


def test_a_wide_interval_of_a_share_does_not_shorten_the_bars():
    marks = (RowMark(50.0, "accelerator0", "50%", 5.0, 900.0, 100.0), RowMark(90.0, "accelerator0", "90%"))
    chart = NamedRows(tuple(NamedRow("job", mark.words, (mark,)) for mark in marks), "%")
    (axes,) = drawn(Figure("scaling", "scaling", "Several", "", "", chart)).canvas.axes
    assert axes.get_xlim() == pytest.approx((0, 104))


def test_the_parts_of_a_step_stand_beside_each_other():
    (axes,) = drawn(stacked_figure("about 2×", [("CPU", (1.0, 2.0, 3.0, 4.0), 11.0, "11 s")], "")).canvas.axes
    assert [patch.get_bbox().intervalx.tolist() for patch in axes.patches] == [
        [0, 1],
        [1, 3],
        [3, 6],
        [6, 10],
        [10, 11],
    ]


def test_a_legend_names_what_is_drawn():
    one = run().bench("a.z", cpu=(2e-4, 1e-3, 5e-3), flags=("contended",))
    one.bench("a.z", gpu=(1e-6,) * 3, copies=1e-3)
    figure = plan(one)["headline"]
    assert [(key.label, key.look) for key in figure.chart.keys] == [("data stays on the GPU", "bar")]
    assert (figure.notice, "At its largest size" in figure.subtitle) == ("1 of 1 result is noisy and may be off", True)
    figure = plan(one.bench("a.x", cpu="1 ms", gpu="0.5 ms", copies=1e-6))["headline"]
    assert [key.look for key in figure.chart.keys] == ["mark", "tick"]


def test_a_noisy_rate_has_two_digits_and_a_star():
    one = run(cuda=0).bench("mine.job", cpu=1.0, flops=float, bytes=1.0, n=(10, 100, 12345), flags=("noisy",))
    figure = plan(one)["throughput-own"]
    assert (figure.chart.panels[0].curves[0].label, "12 kFLOP/s*" in figure.subtitle) == ("12 kFLOP/s*", True)
    assert faults(figure) == []


def test_a_rate_above_the_measured_peak_is_not_drawn():
    above = {"cuda:0": {"bandwidth": [], "throughput": {"float32": 1e9}, "launch_floor_s": 1e-6}}
    sizes = 10**5, 3 * 10**5, 5 * 10**5, 10**9
    one = run(ceilings=above).bench("mine.job", gpu="1 ms", flops=float, bytes=1.0, n=sizes)
    figure = plan(one)["throughput-own"]
    (curve,) = figure.chart.panels[0].curves
    assert (len(curve.points), curve.dots[-1].x, curve.dots[-1].title) == (3, 1e9, "above the measured peak")
    assert curve.label == "500 MFLOP/s at n = 500k"
    assert "1 result not drawn: above the measured peak. " in f"{figure.caption} "
    assert "FLOP/s" not in figure.subtitle  # no number of the largest size can be read
    assert faults(figure) == []


@pytest.mark.parametrize(
    ("kind", "told"),
    [("time-own", ("1.00 ms", "100 µs at n = 100")), ("throughput-own", ("10.0 MFLOP/s", "1.00 MFLOP/s at n = 100"))],
)
def test_a_line_that_ends_before_another_has_the_size_of_its_last_value(kind, told):
    one = run().bench("mine.job", gpu=lambda n: 1e-7 * n, n=(10, 100, 1000, 10_000), flops=float, bytes=1.0)
    figure = plan(one.bench("mine.job", cpu=lambda n: 1e-6 * n, n=(10, 100), flops=float, bytes=1.0))[kind]
    assert tuple(curve.label for curve in figure.chart.panels[0].curves) == told
    assert ("n=10⁴: Synthetic H 1" in figure.subtitle, "Synthetic 1" in figure.subtitle) == (True, False)
    assert faults(figure) == []


def test_the_headline_names_the_size_of_a_device_that_lacks_the_row_s():
    one = run(cuda=2).bench("mine.job", cpu=1e-3, gpu=1e-4, n=(10, 100))
    one.bench("mine.job", gpu1=1e-4, n=10).data["machine_info"]["gpubench"]["devices"][2]["label"] = "Other GPU"
    (entry,) = plan(one)["headline"].chart.entries
    assert [mark.words for mark in entry.marks] == ["10×", "10× (n=10)"]


def test_a_line_is_broken_where_a_size_isnt_drawn_and_ends_with_its_last_value():
    one = run(processes=1).bench("mine.job", cpu=lambda n: 1e-6 * n, n=(10, 1000, 10_000))
    figure = plan(one.bench("mine.job", cpu=1e-4, n=100, spread=1.9))["time-own"]
    (line,) = (line for line in drawn(figure).canvas.axes[0].lines if len(line.get_xdata()) > 2)
    assert [*line.get_xdata()] == [10, 100, 1000, 10_000]
    assert [math.isnan(y) for y in line.get_ydata()] == [False, True, False, False]
    assert "1 result not drawn: unknown (too noisy)." in figure.caption
    (curve,) = plan(one.bench("mine.job", cpu=1e-1, n=10**5, spread=1.9))["time-own"].chart.panels[0].curves
    assert (len(curve.points), curve.label) == (3, "10.0 ms at n = 10⁴")


def test_a_panel_has_two_sizes_and_the_small_print_counts_the_others():
    one = run().bench("a.x", cpu=1e-3, gpu=1e-4, n=(10, 100, 1000)).bench("a.y", cpu=1e-3, gpu=1e-4, n=10)
    figures = plan(one.bench("a.y", cpu=1e-3, gpu=1e-4, n=100, spread=1.9).bench("a.z", cpu=1.0, gpu=0.1, n=(1, 2)))
    assert [panel.title for panel in figures["time-own"].chart.panels] == ["a.x", "a.z"]
    assert "2 results not drawn: a single size. 2 results not drawn: unknown (too" in figures["time-own"].caption
    assert [panel.title for panel in figures["speedup"].chart.panels] == ["a.x", "a.z"]


@pytest.mark.parametrize(("name", "sides"), [("Other H", ("◂ Synthetic faster", "Other H faster ▸")),
                                             ("W" * 26, ("◂ slower", "faster ▸"))])  # fmt: skip
def test_the_sides_of_1x_are_named_at_the_ends_of_the_axis(name, sides):
    figure = plan(run(gpu={"label": name}).bench(f"a.{name}", cpu="1 ms", gpu="0.1 ms"))["headline"]
    assert faults(figure) == []
    (axes,) = drawn(figure).canvas.axes
    left, right = (next(text for text in axes.texts if text.get_text() == side) for side in sides)
    assert left.get_window_extent().x0 == pytest.approx(axes.bbox.x0, abs=1)
    assert right.get_window_extent().x1 == pytest.approx(axes.bbox.x1, abs=1)


def test_without_a_gpu_the_headline_shows_shares_of_the_peak():
    one = records.Made(records.cpu_run(), "", 1).bench("mine.job", cpu=1e-9, n=8, bytes=1e9, items=1)
    one.bench("mine.wait", cpu=1.0, n=8, bytes=1e9, items=1, flags=("waiting",))
    figure = plan(one.bench("mine.sort", cpu=1.0, n=8, bytes=1e6, items=1))["headline"]
    assert (figure.chart.unit, "No GPU used. " in figure.caption) == ("%", True)
    marks = {entry.name: entry.marks[0] for entry in figure.chart.entries}
    assert (marks["mine.job, n=8"].value, marks["mine.job, n=8"].words) == (None, "— above the measured peak")
    assert (marks["mine.wait, n=8"].value, marks["mine.wait, n=8"].words) == (None, "— unknown (threads waited)")
    assert marks["mine.sort, n=8"].words == "<1% of B/s"  # not nothing


def test_cpu_and_gpu_are_in_every_panel_of_a_rate_that_both_have():
    panels = plan(records.gpu_run())["throughput-matmul"].chart.panels
    roles = {panel.title.rpartition(" ")[2]: [curve.role for curve in panel.curves] for panel in panels}
    assert roles["tf32"] == ["accelerator0"]
    assert roles["float32"] == roles["bfloat16"] == ["accelerator0", "cpu0"]


def test_the_gpus_come_first_where_a_panel_has_not_room_for_all_devices():
    """The CPUs of two machines stood there instead of the second machine's GPU."""
    runs = [run(name, cuda=2, gpu={"label": name}) for name in ("one", "two")]
    for one in runs:
        one.bench("a.x", cpu=1e-3, gpu=1e-4, gpu1=1e-4, n=(10, 100, 1000), flops=1e6, bytes=1e6)
    figure = plan(*runs)["throughput-own"]
    (panel,) = figure.chart.panels
    assert {curve.role for curve in panel.curves} == {f"accelerator{i}" for i in range(4)}
    assert "Not shown: Synthetic, 2 threads · one, Synthetic, 2 threads · two." in figure.caption


def test_sizes_that_are_texts_have_rows_of_their_own_and_copies_none():
    shapes = ("64x64", "128x128", "256x256")
    one = run(cuda=0).bench("mine.image", cpu=len, shape=shapes, size="shape")
    one.bench("transfer.pinned", cpu=1.0, nbytes=8)
    entries = plan(one)["headline"].chart.entries
    assert [each.name for each in entries] == [f"mine.image, {shape}" for shape in shapes]


def test_a_picture_says_which_benchmarks_it_cant_show():
    one = run().bench("mine.x", gpu=1e-3, n=(10, 100, 1000), flops=1e6, bytes=1e6)
    one.bench("mine.y", gpu=1e-3, n=(10, 100, 1000), bytes=1e6)
    figures = plan(one)
    assert "Not drawn (work counted otherwise or unknown): mine.y." in figures["throughput-own"].caption


def test_devices_and_libraries_have_looks_of_their_own():
    one = run(cuda=2).bench("a.x", gpu=1.0, gpu1=1.0)
    for name in ("torch", "tinygrad", "numpy", "mlx"):
        one.bench("a.x", cpu=1e-6, by=name)
    study = study_of(one)
    roles = {(row.result.device, row.library): role_of(study.names, row) for row in study.measured}
    assert [study.names.of(row) for row in study.measured[:2]] == ["Synthetic H #0", "Synthetic H #1"]
    assert [*roles.values()] == ["accelerator0", "accelerator1", "cpu0", "accelerator2", "cpu1", "accelerator3"]
    facts = "Synthetic CPU, 2 threads · Synthetic H-GPU #0 · Synthetic H-GPU #1 · PyTorch 2.13.0 · 2026-01-31"
    assert facts_of(study, study.measured[:2]) == f"{facts} · 1 process · float32 · TF32 off"


def test_each_expression_has_a_line_whatever_computes_it():
    one = run(cuda=0)
    for name, by in (("x + y", "torch"), ("np.cos(x)", "numpy")):
        one.bench(f"time.{name}", cpu=lambda n: 1e-6 * n, n=(10, 100), by=by)
    figure = plan(one)["time-expressions"]
    (panel,) = figure.chart.panels
    assert [key.label for key in figure.chart.keys] == ["x + y", "np.cos(x)"]
    curves = [(curve.label, curve.role) for curve in panel.curves]
    assert curves == [("100 µs", "float32"), ("100 µs by NumPy", "bfloat16")]
    assert "x + y 100 µs, np.cos(x) 100 µs by NumPy" in figure.subtitle


# Several devices ------------------------------------------------------------------------------------------------------


def test_several_devices_have_one_picture_with_its_ideal_and_none_of_their_times():
    one = run(cuda=8)

    def bench(method, devices, gpu, name="lenet", **how):
        params = {"method": method, "devices": devices}
        parallel = params | {"mode": "strong", "ideal_speedup": devices}
        how = {"items": 128, "unit": "sample", "size": None, "parallel": parallel} | how
        one.bench(f"distributed.{name}", gpu=gpu, params=params | how.pop("params", {}), **how)

    for n in (10**3, 10**5, 10**7):
        bench("all_reduce", 8, n / 1e11, "all_reduce", params={"nbytes": n}, bytes=n)
    bench("single", 1, 1.0)
    for k in (2, 4, 8):
        bench("ddp", k, 1 / k + 0.02, flags=("noisy",) * (k == 2))
        bench("unsynchronised", k, 1 / k)
    figures = plan(one)
    assert not [name for name in figures if name.startswith(("time", "samples"))]
    (figure,) = (each for each in figures.values() if each.kind == "scaling")
    ddp = [entry for entry in figure.chart.entries if entry.name.startswith("ddp")]
    assert [entry.name for entry in ddp] == ["ddp on 2 devices", "ddp on 4 devices", "ddp on 8 devices"]
    every = [entry.marks[0] for entry in figure.chart.entries]
    assert {mark.second for mark in every} == {100.0}
    assert ddp[0].marks[0].value == pytest.approx(100 / 0.52 / 2)
    assert all(mark.low <= mark.value <= mark.high for mark in every)
    assert figure.subtitle.startswith("Best: ddp on 2 devices reaches 96%* (unsynchronised: without communication")
    assert faults(figure) == []


# Speedups -------------------------------------------------------------------------------------------------------------


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
    one, sizes = records.run(), (64, 256, 1024)
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
        (lambda: crossing(noisy=(3,)), "Synthetic H faster from a size that is unknown (too noisy)", [], None),
        (lambda: with_copies(), "Synthetic H faster from n = 1024 at the latest, with copies from n ≈ 300",
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


def test_the_label_of_a_line_without_its_largest_size_is_its_last_value():
    (sound,) = curves(speedup(crossing(noisy=())))
    figure = speedup(crossing(noisy=(3,)))
    (curve,) = curves(figure)
    assert curve.points == sound.dots[:3]
    assert curve.label == "5.0× data stays at n = 10⁵"
    assert plan(crossing(noisy=(0, 1, 2, 3)), kinds=("speedup",)) == {}


def test_intervals_are_bars_and_a_wide_one_does_not_flatten_the_lines():
    figure = speedup(crossing(noisy=(3,)))
    points = [point for curve in curves(figure) for point in curve.points]
    values, (low, high) = [point.y for point in points], axes_of(figure).get_ylim()
    assert all(point.low < point.y < point.high for point in points)
    assert "Bar at a point: 95% interval, 3 processes" in figure.caption
    assert math.log10(high / low) < math.log10(max(values) / min(values)) + 3


def test_the_bar_of_a_limit_that_goes_on_beyond_the_axis_ends_in_an_arrow():
    one = records.run().bench("a.b", cpu=(1e-2, 1e-1, 1.0), n=(10, 100)).bench("a.b", cpu=1e-2, n=1000)
    figure = speedup(one.bench("a.b", gpu=1e-9, n=(10, 100, 1000)))
    axes = axes_of(figure)
    cut = [point.x for point in curves(figure)[0].points if point.high > axes.get_ylim()[1]]
    assert cut == [line.get_xdata()[0] for line in axes.lines if line.get_marker() == CARETUP] == [10, 100]
    (line,) = (line for line in axes.lines if len(line.get_xdata()) == 3)
    assert [math.isnan(y) for y in line.get_ydata()] == [True, True, False]  # no line joins a limit


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
    falling = {"cpu": lambda n: 1e-7 * n, "gpu": lambda n: 1e-9 * n**1.5, "n": (10, 10**3, 10**6)}
    one = records.run().bench("a.b", **falling, copies=1e-6).bench("a.c", cpu=1e-3, gpu=1e-4, n=(1, 2))
    page = drawn(speedup(one))
    rising = records.run(cuda=2).bench("a.b", **falling, gpu1=lambda n: 1e-9 * n**0.9)
    for each in (page, drawn(speedup(rising))):
        (words,) = (text for text in each.canvas.axes[0].texts if text.get_text() == "Synthetic faster")
        assert words.get_horizontalalignment() == "left"
    several = drawn(plan(one, kinds=("speedup",))["speedup"])
    (legend,) = several.canvas.legends
    assert colour(LIGHT, "page") not in {line.get_markerfacecolor() for line in legend.get_lines()}


def test_panels_of_dtypes_are_of_one_setting_which_the_title_names():
    one = records.run()
    for dtype, width in itertools.product(("float32", "float64"), (1, 4)):
        one.bench("a.b", cpu=1e-3, gpu=1e-4, n=(10, 100, 1000), width=width, size="n", dtype=dtype)
    figure = speedup(one)
    assert [*panels(figure)] == ["float32", "float64"]
    assert figure.title.startswith("a.b, width=4: speedup of ")
    times = [(panel.title, len(panel.curves)) for panel in plan(one)["time-own"].chart.panels]
    assert times == [("float32, width=4", 2), ("float64, width=4", 2)]


def test_two_libraries_of_one_device_are_both_named():
    figures = plan(records.cpu_run(), kinds=("speedup",))
    assert figures
    assert all("PyTorch" in figure.title and "NumPy" in figure.title for figure in figures.values())


# Several benchmarks ---------------------------------------------------------------------------------------------------


def test_several_functions_are_one_picture_over_one_baseline():
    """Each over its own size; several files together."""
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
    assert len(drawn(figure).canvas.axes[0].get_yticklabels()) > 2
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
        one = records.run(name, cuda=0)
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
        one = records.run(name).bench("a.b", cpu=1e-3 * pace, gpu=1e-4 / pace, n=(10, 100, 1000))
        runs.append(one.bench("a.b", numpy=1e-4, n=(10, 100, 1000)))
    of_one, *_ = speedup_figures(study_of(*runs, baseline="cuda:0"))
    assert of_one.title == "a.b: speedup of Synthetic · one over Synthetic H · one"
    assert "At some sizes of the CPU's fastest way, where that is another: NumPy." in of_one.caption
    gpus, *_ = speedup_figures(study_of(*runs))
    assert gpus.title == "a.b: speedup of Synthetic H · two over Synthetic H · one"
    assert "Not shown: Synthetic, 2 threads · one, Synthetic, 2 threads · two." in gpus.caption
