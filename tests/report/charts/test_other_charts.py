"""The headline and rates: what stands where."""

import math
from functools import partial

import pytest
import records
from drawing import drawn, faults, plan, study_of

from gpubench.report.charts.layouts import NamedRow, NamedRows, RowMark
from gpubench.report.charts.page import Figure
from gpubench.report.charts.selection import facts_of
from gpubench.report.charts.theme import role_of

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
    assert curve.label == "then above the measured peak"
    assert "1 result not drawn: above the measured peak. " in f"{figure.caption} "
    assert "FLOP/s" not in figure.subtitle  # no number of the largest size can be read
    assert faults(figure) == []
    (line,) = (each for each in drawn(figure).canvas.axes[0].lines if len(each.get_xdata()) > 3)
    assert [math.isnan(y) for y in line.get_ydata()] == [False, False, False, True]


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


def test_a_line_is_broken_where_a_size_isnt_drawn_and_has_no_number_if_that_is_its_end():
    one = run(processes=1).bench("mine.job", cpu=lambda n: 1e-6 * n, n=(10, 1000, 10_000))
    figure = plan(one.bench("mine.job", cpu=1e-4, n=100, spread=1.9))["time-own"]
    (line,) = (line for line in drawn(figure).canvas.axes[0].lines if len(line.get_xdata()) > 2)
    assert [*line.get_xdata()] == [10, 100, 1000, 10_000]
    assert [math.isnan(y) for y in line.get_ydata()] == [False, True, False, False]
    assert "1 result not drawn: unknown (too noisy)." in figure.caption
    (curve,) = plan(one.bench("mine.job", cpu=1e-1, n=10**5, spread=1.9))["time-own"].chart.panels[0].curves
    assert (len(curve.points), curve.label) == (3, "then unknown (too noisy)")


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
    (panel,) = plan(*runs)["throughput-own"].chart.panels
    assert {curve.role for curve in panel.curves} == {f"accelerator{i}" for i in range(4)}


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
