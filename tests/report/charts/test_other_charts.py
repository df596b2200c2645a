"""The headline, rates and rooflines: what stands where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import records
from drawing import drawn, faults, plan, study_of

from gpubench.report.charts import roofline_chart
from gpubench.report.charts.layouts import NamedRow, NamedRows, RowMark
from gpubench.report.charts.page import Figure
from gpubench.report.charts.selection import caption
from gpubench.report.charts.theme import role_of
from gpubench.runfile.schema import Case


def pair_of(workload: str, speedup: float, **how: Any) -> list[dict[str, Any]]:
    return [
        records.benchmark(Case(workload, device, "float32", {"n": 10}, size="n", devices=(device,)), median, **how)
        for device, median in (("cpu", 1e-3), ("cuda:0", 1e-3 / speedup))
    ]


def run_of(*marks: list[dict[str, Any]], **how: Any) -> dict[str, Any]:
    return records.run_file([mark for each in marks for mark in each], devices=(records.CPU, records.GPU), **how)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_one_function_has_a_headline(tmp_path: Path, device: str) -> None:
    marks = pair_of("mine.job", 3.0)
    data = records.run_file(marks[: 1 if device == "cpu" else 2], devices=(records.CPU, records.GPU))
    (entry,) = plan(tmp_path, data, every=False)["headline"].chart.entries
    assert [mark.words for mark in entry.marks] == ["1.00 ms" if device == "cpu" else "3.0×"]


def test_what_is_too_noisy_has_no_mark_and_a_limit_a_bar(tmp_path: Path) -> None:
    noisy = pair_of("a.y", 2.0, medians=(1e-5, 1e-3, 1e-1)), pair_of("a.z", 40.0, flags=("contended",))
    marks = [entry.marks[0] for entry in plan(tmp_path, run_of(pair_of("a.x", 2.0), *noisy))["headline"].chart.entries]
    assert [mark.words for mark in marks] == ["2.0×", "unknown (too noisy)", "≥ 31×*"]
    assert [mark.value for mark in marks] == [2.0, None, None]
    assert marks[1].low is marks[1].high is None
    assert 30 < (marks[2].low or 0) < 31 < 52 < (marks[2].high or 0) < 53


ABOVE = {"cuda:0": {"bandwidth": [], "throughput": {"float32": 1e9}, "launch_floor_s": 1e-6}}


def test_a_rate_above_the_measured_peak_is_not_drawn(tmp_path: Path) -> None:
    marks = [mark("mine.job", 1e-3, flops=flops, bytes=1.0) for flops in (1e5, 3e5, 5e5, 1e9)]
    data = records.run_file(marks, devices=(records.CPU, records.GPU), ceilings=ABOVE)
    figure = plan(tmp_path, data)["throughput-own"]
    (curve,) = figure.chart.panels[0].curves
    assert (len(curve.points), curve.left_out, curve.label) == (3, 1, "then above the measured peak")
    assert "FLOP/s" not in figure.subtitle  # no number of the largest size can be read
    assert faults(figure) == []
    assert not [each for each in drawn(figure).canvas.axes[0].lines if len(each.get_xdata()) > 3]


def test_without_a_gpu_the_headline_shows_shares_of_the_peak(tmp_path: Path) -> None:
    data = records.cpu_run()
    for name, seconds, size in (("mine.job", 1e-9, 1e9), ("mine.sort", 1.0, 1e6)):
        data["benchmarks"].append(records.benchmark(records.case(name), seconds, work={"bytes": size, "items": 1}))
    figure = plan(tmp_path, data)["headline"]
    assert (figure.chart.unit, "No GPU used. " in figure.caption) == ("%", True)
    marks = {entry.name: entry.marks[0] for entry in figure.chart.entries}
    assert (marks["mine.job"].value, marks["mine.job"].words) == (None, "— above the measured peak")
    assert marks["mine.sort"].words == "<1%"  # not nothing


def test_cpu_and_gpu_are_in_every_panel_of_a_rate_that_both_have(tmp_path: Path) -> None:
    panels = plan(tmp_path, records.gpu_run())["throughput-matmul"].chart.panels
    roles = {panel.title.rpartition(" ")[2]: [curve.role for curve in panel.curves] for panel in panels}
    assert roles["tf32"] == ["accelerator0"]
    assert roles["float32"] == roles["bfloat16"] == ["accelerator0", "cpu0"]


def test_one_s_own_benchmark_without_work_has_a_picture_of_its_time(tmp_path: Path) -> None:
    marks = [records.benchmark(Case("mine.job", "cpu", "float32", {"n": n}, size="n"), n * 1e-6) for n in (1, 2, 4)]
    assert [*plan(tmp_path, records.run_file(marks), every=False)] == ["headline", "time-own"]


def test_sizes_that_are_texts_have_rows_of_their_own_and_copies_none(tmp_path: Path) -> None:
    shapes = [
        records.benchmark(Case("mine.image", "cpu", "float32", {"shape": shape}, size="shape"), 1e-3 * (i + 1))
        for i, shape in enumerate(("64x64", "128x128", "256x256"))
    ]
    marks = [*shapes, records.benchmark(Case("transfer.pinned", "cpu", "float32", {"nbytes": 8}, size="nbytes"), 1.0)]
    entries = plan(tmp_path, records.run_file(marks, devices=(records.CPU,)))["headline"].chart.entries
    assert [(each.name, each.detail) for each in entries] == [
        ("mine.image", shape) for shape in ("64x64", "128x128", "256x256")
    ]


CEILINGS: dict[str, Any] = {
    "bandwidth": [
        {"pattern": "read", "level": "l2", "footprint_bytes": 1e6, "byte_per_s": 8e11},
        {"pattern": "copy", "level": "l2", "footprint_bytes": 1e6, "byte_per_s": 6e11},
        {"pattern": "read", "level": "memory", "footprint_bytes": 1e9, "byte_per_s": 2e11},
        {"pattern": "copy", "level": "memory", "footprint_bytes": 1e9, "byte_per_s": 1e11},
    ],
    "throughput": {"float32": 1e13, "float64": 1e12},
    "launch_floor_s": 5e-6,
}


def mark(
    workload: str, median: float, flags: tuple[str, ...] = (), dtype: str = "float32", **work: float
) -> dict[str, Any]:
    case = Case(workload, "cuda:0", dtype, {"n": int(sum(work.values()))}, size="n", devices=("cuda:0",))
    return records.benchmark(case, median, work=work, flags=flags)


MARKS = [
    mark("elementwise.add", 1.0, flops=1e9, bytes=12e9),
    mark("elementwise.add", 1.0, flops=2e9, bytes=24e9),
    mark("matmul.square", 2.0, flops=4e12, bytes=2e9),
    mark("matmul.square", 2.0, dtype="bfloat16", flops=8e12, bytes=2e9),
    mark("transfer.copy", 0.5, bytes=1e9),
    mark("models.mlp", 0.5, flops=1e10),
]


def rooflines(folder: Path, marks: list[dict[str, Any]], ceilings: Any = None, **how: Any) -> list[Figure]:
    known = {"cuda:0": CEILINGS if ceilings is None else ceilings}
    data = records.run_file(marks, devices=(records.CPU, records.GPU), ceilings=known, **how)
    return list(plan(folder, data, kinds=("roofline",)).values())


def test_a_roofline_is_one_panel_with_the_best_of_each_workload_named(tmp_path: Path) -> None:
    (figure,) = rooflines(tmp_path, MARKS)
    chart = figure.chart
    assert figure.name == "roofline-cuda-0"
    assert [(dot.x, dot.y, dot.label) for dot in chart.dots] == [
        (1 / 12, 1e9, ""), (1 / 12, 2e9, "elementwise.add 12%"), (2e3, 2e12, ""), (4e3, 4e12, "matmul.square"),
    ]  # fmt: skip
    assert [(roof.label, roof.dtype) for roof in chart.roofs] == [
        ("float32 10.0 TFLOP/s", "float32"),
        ("memory 200 GB/s", ""),
        ("l2 800 GB/s", ""),
    ]
    assert (figure.title, "12%" in figure.subtitle, faults(figure)) == ("Roofline: Synthetic H", True, [])


def test_work_whose_bytes_cross_a_link_stands_under_no_memory(tmp_path: Path) -> None:
    served = mark("serving.bert", 1.0, flops=1e12, bytes=1e3)
    served["extra_info"]["gpubench"]["devices"] = ["cpu", "cuda:0"]
    (figure,), (without,) = rooflines(tmp_path, [*MARKS, served]), rooflines(tmp_path, MARKS)
    assert figure.chart.dots == without.chart.dots


def test_a_small_footprint_that_reads_low_is_no_roof(tmp_path: Path) -> None:
    low = {"pattern": "read", "level": "l1d", "footprint_bytes": 2e4, "byte_per_s": 1e11}
    between = {"pattern": "read", "level": "l2+", "footprint_bytes": 1e7, "byte_per_s": 3e11}
    (figure,) = rooflines(tmp_path, MARKS, {**CEILINGS, "bandwidth": [low, between, *CEILINGS["bandwidth"]]})
    assert [roof.label.partition(" ")[0] for roof in figure.chart.roofs if not roof.dtype] == ["memory", "l2"]


def test_no_peaks_no_roofline(tmp_path: Path) -> None:
    assert rooflines(tmp_path, MARKS, {}) == rooflines(tmp_path, [mark("a.b", 1.0)] * 3) == []


@pytest.mark.parametrize(
    ("flag", "hollow"), [("noisy", [False, False, True, False]), ("implausible", [False, False, False])]
)
def test_noisy_results_are_hollow_on_a_roofline_and_those_above_it_left_out(
    tmp_path: Path, flag: str, hollow: list[bool]
) -> None:
    marks = [*MARKS[:2], mark("matmul.square", 2.0, (flag,), flops=4e12, bytes=2e9), *MARKS[3:]]
    (figure,) = rooflines(tmp_path, marks)
    assert [dot.doubtful for dot in figure.chart.dots] == hollow
    assert faults(figure) == []


@pytest.mark.parametrize("span", [1.0, 1e-12, 1e12])
def test_extreme_results_are_drawn(tmp_path: Path, span: float) -> None:
    marks = [
        mark("a.b", max(1e-3, 1e-3 * span), flops=1e6 * span, bytes=1e3),
        mark("a.c", max(1e3, 1e-3 * span), flops=1.0, bytes=1e3 * span),
    ]
    (figure,) = rooflines(tmp_path, [*marks, mark("a.d", 1.0, flops=1e3, bytes=1e3)])
    assert faults(figure) == []


def test_devices_and_libraries_have_looks_of_their_own(tmp_path: Path) -> None:
    devices = [{**records.GPU, "name": f"cuda:{i}"} for i in range(2)]
    marks = [records.benchmark(Case("a.x", each["name"], "float32", devices=(each["name"],)), 1.0) for each in devices]
    names = ("torch", "tinygrad", "numpy", "mlx")
    marks += [records.benchmark(Case("a.x", "cpu", "float32", implementation=name), 1e-6) for name in names]
    study = study_of(tmp_path, records.run_file(marks, devices=(records.CPU, *devices)))
    roles = {(row.result.device, row.library): role_of(study.names, row) for row in study.measured}
    assert [study.names.of(row) for row in study.measured[:2]] == ["Synthetic H #0", "Synthetic H #1"]
    assert [*roles.values()] == ["accelerator0", "accelerator1", "cpu0", "accelerator2", "cpu1", "accelerator3"]
    assert caption(study, study.measured[:2]).startswith("2 × Synthetic H-GPU")


def test_where_a_roofline_is_crowded_the_name_of_the_subtitle_is_the_last_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [
        mark(f"mine.{x}{i}", 1.0, flops=f * 1.5**i, bytes=b)
        for x, f, b in (("w", 1e11, 1e9), ("v", 1e10, 1e7))
        for i in range(12)
    ]
    (figure,) = rooflines(tmp_path, [*many, mark("mine.best", 0.01, flops=1e8, bytes=1.9e9)])
    assert faults(figure) == []
    monkeypatch.setattr(roofline_chart, "_MOST_COVERED", -1.0)  # as where dots and lines are everywhere
    crowded = {note.get_text() for note in drawn(figure).canvas.axes[0].texts if note.arrow_patch}
    assert crowded == {"mine.best 95%"}


def test_each_expression_has_a_line_whatever_computes_it(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case(f"time.{name}", "cpu", "float32", {"n": n}, size="n", implementation=by), 1e-6 * n)
        for name, by in (("x + y", "torch"), ("np.cos(x)", "numpy"))
        for n in (10, 100)
    ]
    figure = plan(tmp_path, records.run_file(marks, devices=(records.CPU,)))["time-expressions"]
    (panel,) = figure.chart.panels
    assert [key.label for key in figure.chart.keys] == ["x + y", "np.cos(x)"]
    assert [(curve.label, curve.role) for curve in panel.curves] == [
        ("100 µs", "float32"), ("100 µs by NumPy", "bfloat16")
    ]  # fmt: skip
    assert "x + y 100 µs, np.cos(x) 100 µs by NumPy" in figure.subtitle


@pytest.mark.parametrize(
    ("counts", "says"), [((1,), " 1 process."), ((2, 3), " 2 and 3 processes."), ((1, 2, 3), " 1 to 3 processes.")]
)
def test_a_caption_counts_processes(tmp_path: Path, counts: tuple[int, ...], says: str) -> None:
    marks = [pair_of(f"a.b{count}", 3.0, medians=(1e-3, 1.1e-3, 1.2e-3)[:count]) for count in counts]
    study = study_of(tmp_path, run_of(*marks))
    assert says in caption(study, study.measured)


def test_words_left_of_a_mark_dont_stand_on_its_name() -> None:
    """Of a narrow axis: "4.5× slower" of the mark near its left end."""
    values = {"4.5× slower": 0.22, "7.7× slower": 0.13, "1,000×": 1000.0}
    marks = [RowMark(value, "accelerator1", told, value, value) for told, value in values.items()]
    entries = tuple(NamedRow("Networks", "Encoder layer", "float32, batch=8, length=128", (mark,)) for mark in marks)
    figure = Figure("headline", "headline", "Speedup", "", "", NamedRows(entries, "", (), ("slower", "faster")))
    assert faults(figure) == []


# Several devices ------------------------------------------------------------------------------------------------------


def scaled(median: float, method: str, devices: int, workload: str = "distributed.lenet", **params: Any) -> Any:
    case = Case(workload, "cuda:0", "float32", {"method": method, "devices": devices, **params}, devices=("cuda:0",))
    parallel = {"method": method, "devices": devices, "mode": "strong", "ideal_speedup": devices}
    work = {"items": 128, "unit": "sample", "bytes": params.get("nbytes")}
    return records.benchmark(case, median, work=work, parallel=parallel)


def test_several_devices_have_one_picture_with_its_ideal_and_none_of_their_times(tmp_path: Path) -> None:
    marks = [scaled(n / 1e11, "all_reduce", 8, "distributed.all_reduce", nbytes=n) for n in (10**3, 10**5, 10**7)]
    marks += [scaled(1.0, "single", 1)]
    for k in (2, 4, 8):
        marks += [scaled(1 / k + 0.02, "ddp", k), scaled(1 / k, "unsynchronised", k)]
    gpus = tuple({**records.GPU, "name": f"cuda:{i}"} for i in range(8))
    figures = plan(tmp_path, records.run_file(marks, devices=(records.CPU, *gpus)))
    assert not [name for name in figures if name.startswith(("time", "samples"))]
    (figure,) = (each for each in figures.values() if each.kind == "scaling")
    ddp = [entry for entry in figure.chart.entries if entry.name == "ddp"]
    assert [entry.detail for entry in ddp] == ["2 devices", "4 devices", "8 devices"]
    every = [entry.marks[0] for entry in figure.chart.entries]
    assert {mark.second for mark in every} == {100.0}
    assert ddp[0].marks[0].value == pytest.approx(100 / 0.52 / 2)
    assert all(mark.low <= mark.value <= mark.high for mark in every)
    assert figure.subtitle.startswith("Most: ddp on 2 devices, 96%")  # not the control
    assert faults(figure) == []
