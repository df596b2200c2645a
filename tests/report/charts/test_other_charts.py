"""The headline, rates, rooflines, break-even calls, where time goes, and energy: what stands where."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import records
from drawing import chart_data, drawn, faults, plan, words
from gpubench.report.charts.gpu_time_chart import StackedBars
from gpubench.report.charts.wording import OTHERS, Naming, caption

from gpubench.report.charts.layouts import LinePanels, NamedRows
from gpubench.report.charts.page import Figure
from gpubench.report.charts.roofline_chart import Roofline
from gpubench.report.labels import device_label
from gpubench.report.machines import device_prices
from gpubench.report.sweep import slowest_first
from gpubench.runfile.schema import Case


def rows_of(figure: Figure) -> NamedRows:
    assert isinstance(figure.chart, NamedRows)
    return figure.chart


def pair_of(workload: str, speedup: float, **how: Any) -> list[dict[str, Any]]:
    dtype = how.pop("dtype", "float32")
    return [
        records.benchmark(Case(workload, device, dtype, {"n": 10}, size="n", devices=(device,)), median, **how)
        for device, median in (("cpu", 1e-3), ("cuda:0", 1e-3 / speedup))
    ]


def run_of(*marks: list[dict[str, Any]], **how: Any) -> dict[str, Any]:
    return records.run_file([mark for each in marks for mark in each], devices=(records.CPU, records.GPU), **how)


def test_the_headline_names_10_to_16_settings_and_writes_their_values(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.gpu_run(3))["headline"]
    entries = rows_of(figure).entries
    assert 10 <= len(entries) <= 16
    assert [*dict.fromkeys(entry.group for entry in entries)] == ["Run a network", "Matrix products", "Elementwise"]
    assert all(entry.detail for entry in entries)
    shown = words(drawn(figure))
    for entry in entries:
        assert entry.name in shown
        assert all(mark.words in shown for mark in entry.marks)
    assert any(mark.hollow for entry in entries for mark in entry.marks)
    assert "Synthetic H: " in figure.title
    assert figure.title.endswith("× as fast as Synthetic, 2 threads, in float32")


def test_ones_own_benchmarks_keep_their_rows(tmp_path: Path) -> None:
    data = records.gpu_run()
    own = [pair_of(f"mine.job{i}", 3.0 + i) for i in range(5)]
    data["benchmarks"] += [mark for each in own for mark in each]
    entries = rows_of(plan(tmp_path, data)["headline"]).entries
    assert [entry.name for entry in entries if entry.group == OTHERS] == [f"mine.job{i}" for i in range(5)]
    assert len(entries) <= 16


def test_what_is_too_noisy_has_no_mark(tmp_path: Path) -> None:
    data = run_of(pair_of("a.x", 2.0), pair_of("a.y", 2.0, medians=(1e-5, 1e-3, 1e-1)), pair_of("a.z", 2.0))
    marks = [entry.marks[0] for entry in rows_of(plan(tmp_path, data)["headline"]).entries]
    assert [mark.words for mark in marks] == ["2.0×", "unknown (too noisy)", "2.0×"]
    assert marks[1].value is None


ABOVE = {"cuda:0": {"bandwidth": [], "throughput": {"float32": 1e9}, "launch_floor_s": 1e-6}}


def test_the_title_of_a_headline_is_made_from_sound_rows_in_the_plainest_dtype(tmp_path: Path) -> None:
    data = run_of(
        pair_of("matmul.square", 3.0),
        pair_of("matmul.square", 90.0, dtype="float64"),
        pair_of("a.x", 2.0),
        pair_of("a.y", 70.0, work={"flops": 1e9, "bytes": 1.0}),
        ceilings=ABOVE,
    )
    figure = plan(tmp_path, data)["headline"]
    assert figure.title == "Synthetic H: 2.0× to 3.0× as fast as Synthetic, 2 threads, in float32"
    shown = [mark.words for entry in rows_of(figure).entries for mark in entry.marks]
    assert "90×" in shown
    assert "— above the measured peak" in shown
    assert not any("70×" in words for words in shown)


def test_a_title_names_its_dtype_only_where_others_stand_beside_it(tmp_path: Path) -> None:
    data = run_of(pair_of("a.x", 2.0), pair_of("a.y", 0.5), pair_of("a.z", 3.0))
    figure = plan(tmp_path, data)["headline"]
    assert figure.title == "Synthetic H: 2.0× slower to 3.0× as fast, against Synthetic, 2 threads"


def test_a_rate_above_the_measured_peak_is_not_drawn(tmp_path: Path) -> None:
    marks = [mark("mine.job", 1e-3, flops=flops, bytes=1.0) for flops in (1e5, 3e5, 5e5, 1e9)]
    data = records.run_file(marks, devices=(records.CPU, records.GPU), ceilings=ABOVE)
    figure = plan(tmp_path, data)["throughput-mine"]
    assert isinstance(figure.chart, LinePanels)
    (curve,) = figure.chart.panels[0].curves
    assert (len(curve.points), curve.left_out, curve.label) == (3, 1, "above peak")
    assert "FLOP/s" not in figure.title  # no number of the largest size can be read
    assert "1 result isn't drawn: too noisy, or above the measured peak" in figure.caption
    assert not [each for each in drawn(figure).canvas.axes[0].lines if len(each.get_xdata()) > 3]


def test_two_machines_have_a_mark_each(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)"))["headline"]
    assert {len(entry.marks) for entry in rows_of(figure).entries} == {2}
    assert {mark.role for entry in rows_of(figure).entries for mark in entry.marks} == {"accelerator0", "accelerator1"}
    assert "the CPU of the same machine" in figure.subtitle
    assert {"CPU faster", "GPU faster"} <= {word.strip("◂▸ ") for word in words(drawn(figure))}


def test_across_machines_the_sides_name_the_baseline(tmp_path: Path) -> None:
    figures = plan(tmp_path, records.gpu_run(), records.gpu_run(1, 2.0, "Other (synthetic)"))
    sides = {word.strip("◂▸ ") for word in words(drawn(figures["headline-2"]))}
    assert {"slower than run0", "faster than run0"} <= sides


def test_without_a_gpu_the_headline_shows_shares_of_the_peak(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.cpu_run())["headline"]
    assert rows_of(figure).unit == "%"
    assert "measured peak" in figure.title
    assert "No GPU used. " in figure.caption
    assert "pytorch.org" not in figure.caption  # advice to who ran it, not to who reads the picture
    above = records.benchmark(
        Case("mine.job", "cpu", "float32", {"n": 1}, size="n"), 1e-9, work={"bytes": 1e9, "items": 1}
    )
    slow = records.benchmark(
        Case("mine.sort", "cpu", "float32", {"n": 1}, size="n"), 1.0, work={"bytes": 1e6, "items": 1}
    )
    data = records.cpu_run()
    data["benchmarks"] += [above, slow]
    marks = {entry.name: entry.marks[0] for entry in rows_of(plan(tmp_path, data)["headline"]).entries}
    assert (marks["mine.job"].value, marks["mine.job"].words) == (None, "— above the measured peak")
    assert marks["mine.sort"].words == "<1%"  # not nothing


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX 4060 Laptop GPU", "RTX 4060 Laptop"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
        ("Apple M2", "Apple M2"),
        ("", "cuda:0"),
    ],
)
def test_devices_are_called_as_people_do(tmp_path: Path, label: str, expected: str) -> None:
    marks = pair_of("a.x", 2.0)
    data = records.run_file(marks, devices=(records.CPU, {**records.GPU, "label": label}))
    found = chart_data(tmp_path, data)
    (row,) = found.on_accelerators(found.rows)
    assert found.naming.device(row) == expected


def test_equal_devices_are_told_apart(tmp_path: Path) -> None:
    devices = [{**records.GPU, "name": f"cuda:{i}"} for i in range(2)]
    marks = [
        records.benchmark(Case("a.x", device["name"], "float32", devices=(device["name"],)), 1.0) for device in devices
    ]
    found = chart_data(tmp_path, records.run_file(marks, devices=(records.CPU, *devices)))
    naming = Naming(found.results)
    assert [naming.device(row) for row in found.rows] == ["Synthetic H #0", "Synthetic H #1"]
    assert len({naming.role(row) for row in found.rows}) == 2
    run = found.rows[0]["_run"]
    assert [device_label(run, each["name"]) for each in devices] == ["Synthetic H-GPU #0", "Synthetic H-GPU #1"]
    assert device_label(run, "cpu") == "Synthetic CPU"
    assert caption(found.rows, naming).startswith("2 × Synthetic H-GPU")
    costs = device_prices(found.results, {"H-GPU": 2.0})
    assert sorted(device for _, device in costs) == ["cuda:0", "cuda:1"]


def test_libraries_on_a_cpu_look_different(tmp_path: Path) -> None:
    case = {"workload": "aa.mm", "device": "cpu", "dtype": "float32", "params": {"n": 9}, "size": "n"}
    names = ("torch", "jax", "numpy", "mlx")
    marks = [records.benchmark(Case(**case, implementation=name), 1e-6) for name in names]
    data = chart_data(tmp_path, records.run_file(marks, devices=(records.CPU,)))
    assert {data.naming.device(row).partition(",")[0]: data.naming.role(row) for row in data.rows} == {
        "Synthetic": "cpu0", "NumPy": "cpu1", "JAX": "accelerator3", "mlx": "accelerator2"
    }  # fmt: skip


def test_cpu_and_gpu_are_in_every_panel_of_a_rate(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.gpu_run())["throughput-matmul"]
    assert isinstance(figure.chart, LinePanels)
    panels = figure.chart.panels
    assert all("n × n" in panel.title for panel in panels[:5])
    both = [panel for panel in panels if not panel.title.endswith(("tf32", " float16"))]
    assert all([curve.role for curve in panel.curves] == ["accelerator0", "cpu0"] for panel in both)
    assert all(curve.label.endswith("FLOP/s") for panel in panels for curve in panel.curves)


def test_one_s_own_benchmark_without_work_has_a_picture_of_its_time(tmp_path: Path) -> None:
    marks = [records.benchmark(Case("mine.job", "cpu", "float32", {"n": n}, size="n"), n * 1e-6) for n in (1, 2, 4)]
    (figure,) = plan(tmp_path, records.run_file(marks), every=False).values()
    assert figure.name == "time-mine"


def plain(name: str, median: float, **params: Any) -> dict[str, Any]:
    """As a test of somebody else's suite is recorded: neither device nor dtype is known."""
    return records.benchmark(Case(name, "", "", params, devices=()), median)


def test_benchmarks_that_declare_no_work_have_a_picture_of_their_times(tmp_path: Path) -> None:
    times = {"imports.field": 2e-6, "imports.model": 3e-3, "regex.many": 4e-2, "alone": 1e-3}
    marks = [plain(name, median) for name, median in times.items()]
    figure = plan(tmp_path, records.run_file(marks), every=False)["headline"]
    assert figure.title == "4 benchmarks take 2.00 µs to 40.0 ms per call"
    entries = rows_of(figure).entries
    assert [(entry.group, entry.name, entry.marks[0].words) for entry in entries] == [
        *(("", "regex.many", "40.0 ms"), ("", "alone", "1.00 ms")),
        *(("imports", "model", "3.00 ms"), ("imports", "field", "2.00 µs")),
    ]
    assert not any(words in figure.caption for words in ("unknown", "TF32"))
    assert faults(drawn(figure)) == []


def test_a_picture_of_times_holds_the_slowest_at_their_largest_size(tmp_path: Path) -> None:
    marks = [plain(f"mine.w{i}", 1e-3 * (i + 1) * n, n=n) for i in range(60) for n in (1, 10)]
    figure = plan(tmp_path, records.run_file(marks))["headline"]
    names = [entry.name for entry in rows_of(figure).entries]
    assert names == [f"w{i}" for i in range(59, 59 - len(names), -1)]
    assert f"the {len(names)} slowest of 60, by file; " in figure.subtitle
    assert figure.title == "60 benchmarks, each at its largest size, take 10.0 ms to 600 ms per call"
    assert 15 <= len(names) <= 25
    assert faults(drawn(figure)) == []


def test_sizes_that_are_texts_have_rows_of_their_own_and_copies_none(tmp_path: Path) -> None:
    shapes = [
        records.benchmark(Case("mine.image", "cpu", "float32", {"shape": shape}, size="shape"), 1e-3 * (i + 1))
        for i, shape in enumerate(("64x64", "128x128", "256x256"))
    ]
    marks = [*shapes, records.benchmark(Case("transfer.pinned", "cpu", "float32", {"nbytes": 8}, size="nbytes"), 1.0)]
    entries = rows_of(plan(tmp_path, records.run_file(marks, devices=(records.CPU,)))["headline"]).entries
    assert [(each.name, each.detail) for each in entries] == [
        ("image", f"float32, {shape}") for shape in ("256x256", "128x128", "64x64")
    ]


def test_machines_with_other_sizes_stand_at_the_largest_that_both_have(tmp_path: Path) -> None:
    def run(machine: str, *sizes: int) -> dict[str, Any]:
        marks = [plain(f"mine.w{i}", 1e-3 * n, n=n) for i in range(3) for n in sizes]
        return records.run_file(marks, devices=(records.CPU,), label=machine)

    data = chart_data(tmp_path, run("one", 1, 10, 100), run("two", 1, 10))
    shown = slowest_first(data.rows)
    assert [[row["size"] for row in rows] for rows in shown] == [[10, 10]] * 3
    assert {row["run"] for row in shown[0]} == {"run0", "run1"}


def test_a_device_without_one_s_dtype_still_has_its_rates(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.gpu_run())["throughput-matmul"]
    assert isinstance(figure.chart, LinePanels)
    (tf32,) = [panel for panel in figure.chart.panels if panel.title.endswith("tf32")]
    assert [curve.role for curve in tf32.curves] == ["accelerator0"]


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


def mark(workload: str, median: float, dtype: str = "float32", **work: float) -> dict[str, Any]:
    case = Case(workload, "cuda:0", dtype, {"n": int(sum(work.values()))}, size="n", devices=("cuda:0",))
    return records.benchmark(case, median, work=work)


MARKS = [
    mark("elementwise.add", 1.0, flops=1e9, bytes=12e9),
    mark("elementwise.add", 1.0, flops=2e9, bytes=24e9),
    mark("matmul.square", 2.0, flops=4e12, bytes=2e9),
    mark("matmul.square", 2.0, dtype="bfloat16", flops=8e12, bytes=2e9),
    mark("transfer.copy", 0.5, bytes=1e9),
    mark("models.mlp", 0.5, flops=1e10),
]


def rooflines(folder: Path, marks: list[dict[str, Any]], ceilings: dict[str, Any] | None = None) -> list[Figure]:
    known = {"cuda:0": CEILINGS if ceilings is None else ceilings}
    data = records.run_file(marks, devices=(records.CPU, records.GPU), ceilings=known)
    return list(plan(folder, data, kinds=("roofline",)).values())


def test_a_roofline_is_one_panel_with_the_best_of_each_workload_named(tmp_path: Path) -> None:
    (figure,) = rooflines(tmp_path, MARKS)
    chart = figure.chart
    assert isinstance(chart, Roofline)
    assert figure.name == "roofline-cuda-0"
    assert [(dot.x, dot.y, dot.label) for dot in chart.dots] == [
        (1 / 12, 1e9, ""), (1 / 12, 2e9, "add 12%"), (2e3, 2e12, ""), (4e3, 4e12, "n × n"),
    ]  # fmt: skip
    assert [(roof.label, roof.dtype) for roof in chart.roofs] == [
        ("float32 10.0 TFLOP/s", "float32"),
        ("memory 200 GB/s", ""),
        ("l2 800 GB/s", ""),
    ]
    page = drawn(figure)
    assert len(page.canvas.axes) == 1
    assert {note.get_text() for note in page.canvas.axes[0].texts if note.arrow_patch} == {"add 12%", "n × n"}
    assert figure.title == "Roofline of the Synthetic H: Elementwise add at 12% of its peak, in float32"
    assert faults(page) == []
    shown = words(page)
    assert {"add 12%", "n × n", *(roof.label for roof in chart.roofs)} <= set(shown)
    (axes,) = page.canvas.axes
    assert axes.get_xlim()[0] < min(dot.x for dot in chart.dots) < max(dot.x for dot in chart.dots) < axes.get_xlim()[1]
    assert axes.get_ylim()[0] < 1e9
    assert axes.get_ylim()[1] > 1e13


def test_names_on_a_roofline_are_told_apart_and_that_of_the_title_is_the_last_to_go(tmp_path: Path) -> None:
    alike = [
        mark(name, 1.0, flops=1e12, bytes=1e9) for name in ("models.bert", "serving.bert", "models.vit", "science.blur")
    ]
    (figure,) = rooflines(tmp_path, [*alike, mark("attention.causal", 1.0, flops=2e12, bytes=1e9)])
    assert isinstance(figure.chart, Roofline)
    assert {dot.label for dot in figure.chart.dots} == {
        "models BERT", "serving BERT", "ViT", "image blur", "attention causal 20%"
    }  # fmt: skip
    many = [mark(f"mine.w{i}", 1.0, flops=1e11 * 1.5**i, bytes=1e9) for i in range(12)]
    many += [mark(f"mine.v{i}", 1.0, flops=1e10 * 1.5**i, bytes=1e7) for i in range(12)]
    (figure,) = rooflines(tmp_path, [*many, mark("mine.best", 0.01, flops=1e8, bytes=1.9e9)])
    shown = {note.get_text() for note in drawn(figure).canvas.axes[0].texts if note.arrow_patch}
    assert "mine.best 95%" in shown
    assert len(shown) <= 16
    assert "the fastest are named" in figure.subtitle


def test_the_first_call_that_a_title_names_is_drawn_and_numpy_makes_none(tmp_path: Path) -> None:
    marks = [
        records.benchmark(
            Case(f"science.w{i}", device, "float32", {"n": n}, size="n", devices=(device,), implementation=library),
            1e-3,
            first_call_s=2e-3 * (i + 1),
        )
        for i in range(8)
        for n in (10, 100)
        for device, library in (("cpu", "torch"), ("cpu", "numpy"))
        if not (i == 0 and n == 10)  # one size is no line
    ]
    (figure,) = plan(tmp_path, records.run_file(marks), kinds=("first_call",)).values()
    chart = figure.chart
    assert isinstance(chart, LinePanels)
    assert [panel.title for panel in chart.panels] == [f"w{i}" for i in range(1, 7)]
    assert [len(panel.curves) for panel in chart.panels] == [2] * 6
    assert figure.title == "The first call of w6 takes 14 ms on the Synthetic, 14× a later one, at n = 100"
    assert faults(drawn(figure)) == []


def test_work_whose_bytes_cross_a_link_stands_under_no_memory(tmp_path: Path) -> None:
    served = mark("serving.bert", 1.0, flops=1e12, bytes=1e3)
    served["extra_info"]["gpubench"]["devices"] = ["cpu", "cuda:0"]
    (figure,) = rooflines(tmp_path, [*MARKS, served])
    (without,) = rooflines(tmp_path, MARKS)
    assert isinstance(figure.chart, Roofline)
    assert isinstance(without.chart, Roofline)
    assert figure.chart.dots == without.chart.dots


def test_a_roofline_s_title_names_the_dtype_of_its_mark(tmp_path: Path) -> None:
    figures = plan(tmp_path, records.gpu_run(3), kinds=("roofline",)).values()
    figure = next(each for each in figures if "Synthetic H" in each.title)
    assert isinstance(figure.chart, Roofline)
    (best,) = (dot for dot in figure.chart.dots if dot.label.endswith("%"))
    assert best.dtype == "bfloat16"  # under autocast
    assert figure.title.endswith(f"{best.label.split()[-1]} of its peak, in bfloat16")


def test_a_small_footprint_that_reads_low_is_no_roof(tmp_path: Path) -> None:
    low = {"pattern": "read", "level": "l1d", "footprint_bytes": 2e4, "byte_per_s": 1e11}
    between = {"pattern": "read", "level": "l2+", "footprint_bytes": 1e7, "byte_per_s": 3e11}
    (figure,) = rooflines(tmp_path, MARKS, {**CEILINGS, "bandwidth": [low, between, *CEILINGS["bandwidth"]]})
    assert isinstance(figure.chart, Roofline)
    assert [roof.label.partition(" ")[0] for roof in figure.chart.roofs if not roof.dtype] == ["memory", "l2"]


def test_no_peaks_no_roofline(tmp_path: Path) -> None:
    assert rooflines(tmp_path, MARKS, {}) == []
    assert rooflines(tmp_path, [mark("a.b", 1.0)] * 3, CEILINGS) == []


def test_peaks_of_a_busy_machine_are_called_too_low(tmp_path: Path) -> None:
    marks = [mark("a.b", 1e-3, flops=flops + i, bytes=1e6) for flops in (2e10, 1e9) for i in range(3)]
    for flags in ((), ("contended",)):
        data = records.run_file(marks, devices=(records.CPU, records.GPU), ceilings={"cuda:0": CEILINGS}, flags=flags)
        (figure,) = plan(tmp_path, data, kinds=("roofline",)).values()
        assert ("are too low" in figure.caption) == bool(flags)


def test_flagged_results_are_hollow_on_a_roofline(tmp_path: Path) -> None:
    marks = copy.deepcopy(MARKS)
    marks[2]["extra_info"]["gpubench"]["processes"][0]["flags"] = [{"flag": "noisy", "seen": "x"}]
    (figure,) = rooflines(tmp_path, marks)
    assert isinstance(figure.chart, Roofline)
    assert [dot.doubtful for dot in figure.chart.dots] == [False, False, True, False]
    assert "Hollow: noisy" in figure.caption


def test_what_is_above_the_measured_peak_is_not_on_a_roofline(tmp_path: Path) -> None:
    marks = copy.deepcopy(MARKS)
    marks[2]["extra_info"]["gpubench"]["processes"][0]["flags"] = [{"flag": "implausible", "seen": "3 × the peak"}]
    (figure,) = rooflines(tmp_path, marks)
    assert isinstance(figure.chart, Roofline)
    assert [(dot.y, dot.doubtful) for dot in figure.chart.dots] == [(1e9, False), (2e9, False), (4e12, False)]
    assert "Hollow" not in figure.caption


@pytest.mark.parametrize("span", [1.0, 1e-12, 1e12])
def test_extreme_results_are_drawn(tmp_path: Path, span: float) -> None:
    marks = [
        mark("a.b", max(1e-3, 1e-3 * span), flops=1e6 * span, bytes=1e3),
        mark("a.c", max(1e3, 1e-3 * span), flops=1.0, bytes=1e3 * span),
    ]
    (figure,) = rooflines(tmp_path, [*marks, mark("a.d", 1.0, flops=1e3, bytes=1e3)])
    assert faults(drawn(figure)) == []


def test_break_even_counts_calls(tmp_path: Path) -> None:
    figure = plan(tmp_path, records.gpu_run())["break-even"]
    assert isinstance(figure.chart, LinePanels)
    labels = [curve.label for panel in figure.chart.panels for curve in panel.curves]
    assert all(label.partition(" ")[2] in ("call", "calls") for label in labels)
    assert all(point.y >= 1 for panel in figure.chart.panels for curve in panel.curves for point in curve.points)
    assert "break-even" not in plan(tmp_path, records.cpu_run())
    most = max((float(label.split()[0].replace(",", "")), label) for label in labels)[1]
    assert figure.title.startswith(f"Copies are amortized within 1 to {most} at the largest size (most: ")


def test_where_time_goes_adds_up_to_one_call_with_copies(tmp_path: Path) -> None:
    moved = {"in_bytes": 8, "out_bytes": 8, "in_s": 3e-3, "out_s": 1e-3, "in_pinned_s": None, "out_pinned_s": None}
    marks = [
        records.benchmark(
            Case(f"mine.{name}", "cuda:0", "float32", {"n": 1}, size="n", devices=("cuda:0",)),
            5e-3, latency=6e-3, device_s=4e-3, transfer=moved,
        )
        for name in "abc"
    ]  # fmt: skip
    figure = plan(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))["gpu-time"]
    assert isinstance(figure.chart, StackedBars)
    bar = figure.chart.bars[0]
    assert dict(bar.parts) == pytest.approx({"copy in": 3e-3, "launch": 2e-3, "compute": 4e-3, "copy out": 1e-3})
    assert bar.total == pytest.approx(10e-3)
    shown = words(drawn(figure))
    assert {"30%", "20%", "40%", "10%", "10.0 ms"} <= set(shown)
    assert "3 of 3 benchmarks" in figure.title


def test_energy_is_counted_by_item(tmp_path: Path) -> None:
    marks = [
        records.benchmark(
            Case(f"mine.{name}", "cuda:0", "float32", {"n": 1}, size="n", devices=("cuda:0",)), 1e-3,
            work={"items": 100, "unit": "sample"}, energy_j=0.5,
        )
        for name in "abc"
    ]  # fmt: skip
    figure = plan(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))["energy"]
    assert [entry.marks[0].value for entry in rows_of(figure).entries] == [0.005] * 3
    assert "5.0 mJ/sample  500 W" in words(drawn(figure))
    assert figure.title == "Energy: the Synthetic H draws 500 W while it works"


def test_the_headline_keeps_the_workload_that_loses(tmp_path: Path) -> None:
    names = ("lenet", "resnet50", "gpt2", "cifar", "encoder", "tabular")
    pairs = (pair_of(f"training.{name}", 0.5 if name == "tabular" else 10.0) for name in names)
    figure = plan(tmp_path, run_of(*pairs))["headline"]
    shown = [entry.name for entry in rows_of(figure).entries]
    assert len(shown) < len(names)
    assert any("tabular" in name for name in shown)
    assert "slower" in figure.title


@pytest.mark.parametrize(
    ("counts", "says"), [((1,), " 1 process."), ((2, 3), " 2 and 3 processes."), ((1, 2, 3), " 1 to 3 processes.")]
)
def test_a_caption_counts_the_processes(tmp_path: Path, counts: tuple[int, ...], says: str) -> None:
    marks = [pair_of(f"a.b{count}", 3.0, medians=(1e-3, 1.1e-3, 1.2e-3)[:count]) for count in counts]
    data = chart_data(tmp_path, run_of(*marks))
    assert says in caption(data.rows, data.naming)
