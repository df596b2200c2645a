"""The speedup that an honest opponent would grant: over the fastest way that the CPU was measured to do the job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from reading import BOTH, mark, run

from gpubench.devices.implementations import LIBRARIES
from gpubench.measure import clock
from gpubench.report import words
from gpubench.report.answer import Answer
from gpubench.report.charts.headline_chart import headline_figures
from gpubench.report.charts.speedup_chart import speedup_figures
from gpubench.report.columns import csv_files
from gpubench.report.pairs import Pair
from gpubench.report.study import Study
from gpubench.report.tables import answer_tables, speedup_table
from gpubench.report.webpage import COLUMNS, page_data
from gpubench.runfile.reader import read
from gpubench.testing import VirtualDevice

TWICE_AS_FAST = """
import pytest
from gpubench import Implementation, register_implementation
from gpubench.testing import VirtualDevice

@register_implementation
class Fast(Implementation):
    name, label, module = "fast", "Fast", "numpy"
    why_not_on = classmethod(lambda cls, device: "a library for CPUs" if device.accelerator else None)
    array = lambda self, tensor: tensor

pytestmark = pytest.mark.gpubench(kind="irregular", implementations=["torch", "fast"], size="n")
SECONDS = {"torch": 17e-3, "fast": 8.5e-3}

def work(gpubench, n):
    machine = VirtualDevice.machine
    if gpubench.home.accelerator:
        gpubench(lambda: machine.launch(6.8e-3 * n), check=False, threads=1)
    else:
        def call():
            machine.time_s += SECONDS[gpubench.implementation] * n
        gpubench(call, check=False, threads=1)

SIZES = pytest.mark.gpubench_sweep("n", quick=[1, 2, 4])

@SIZES
def test_sort(gpubench, n): work(gpubench, n)

@SIZES
def test_scan(gpubench, n): work(gpubench, n)

@SIZES
def test_pick(gpubench, n): work(gpubench, n)
"""


@pytest.fixture
def study(virtual: Any, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A GPU takes 6.8 ms, PyTorch on the CPU 17, another library there 8.5, by a clock that nobody's work can slow."""
    monkeypatch.setattr(clock, "perf_counter", VirtualDevice.now)
    before = dict(LIBRARIES)
    _, data = virtual(TWICE_AS_FAST, "--gpubench-device=cpu", "--gpubench-preset=quick", passed=27)
    LIBRARIES.clear()
    LIBRARIES.update(before)
    assert data
    return Study([read(pytester.path / "run.json")])


def test_everything_that_people_read_uses_the_library_that_is_twice_as_fast(study: Study) -> None:
    """2.5× of PyTorch over PyTorch is 1.25× over the CPU's fastest way."""
    answer = Answer(study)
    assert re.search(r"faster in 3 of 3 benchmarks \(1\.2×", answer.sentence)
    (table,) = answer_tables(answer, 15)
    cells = {cell.replace("*", "") for cell in table.rows[0]}
    assert {"1.2×", "2.5× over PyTorch"} <= cells
    assert any(cell.endswith(" by fast") for cell in cells)
    (first, *_) = speedup_table(study, study.pairs).rows
    assert [cell.replace("*", "") for cell in first if cell.startswith("2.5×")] == ["2.5× over PyTorch"]
    lines = [line.split(",") for line in csv_files(study)["speedup.csv"].splitlines()]
    named = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    assert {(round(float(each["speedup"]), 2), round(float(each["best_cpu_speedup"]), 2)) for each in named} == {
        (2.5, 1.25)
    }
    assert {each["best_cpu"] for each in named} == {"fast"}
    (headline,) = headline_figures(study)
    marks = [mark for each in headline.chart.entries for mark in each.marks]
    drawn = {(round(each.value, 2), each.words.replace("*", "")) for each in marks}  # a busy machine adds a star
    assert drawn == {(1.25, "1.2×‡")}
    assert "‡: over the CPU's fastest way, where that is another: fast." in headline.caption
    by_size = next(figure for figure in speedup_figures(study) if figure.kind == "speedup")
    points = [point for panel in by_size.chart.panels for point in panel.curves[0].points]
    assert {round(point.y, 2) for point in points} == {1.25}
    assert "over the CPU's fastest way, where that is another: fast." in by_size.caption
    page = page_data(study)
    shown = [each[COLUMNS.index("speedup")] for each in page["rows"]]
    assert {each for each in shown if each} == {1.25}


def pair_of(folder: Path, cpu_way: dict[str, Any], **base: Any) -> Pair:
    """A GPU of 1 s against a CPU of 8 s that can also do it in the way given."""
    terms = {"kind": "irregular"} | base
    other = (
        {"seconds": 4.0, "kind": terms["kind"]} | {n: terms[n] for n in ("dtype", "variant") if n in terms} | cpu_way
    )
    params = other.pop("params", {})
    workload = other.pop("workload", "a.b")
    marks = [mark("a.b", "cpu", 8.0, **terms), mark("a.b", "cuda:0", 1.0, **terms), mark(workload, "cpu", **other)]
    marks[2]["extra_info"]["gpubench"]["params"] |= params
    (pair,) = Study([run(folder, marks)]).device_pairs
    return pair


@pytest.mark.parametrize(
    ("way", "base", "told"),
    [
        ({"implementation": "numpy"}, {}, "NumPy"),
        ({"implementation": "numpy", "threads": 1}, {"threads": 2}, "NumPy"),
        ({"variant": "compile"}, {}, "PyTorch, compiled"),
        ({"params": {"form": "out"}}, {}, "PyTorch, out"),
        ({"workload": "a.b_channels_last"}, {}, "PyTorch, channels last"),
        ({"workload": "a.b_tuned", "params": {"tuning": "channels last"}}, {}, "PyTorch, channels last"),
        ({"workload": "a.b_per_core", "seconds": 8.0, "parallel": {"devices": 2}}, {}, "PyTorch, one process a core"),
        ({"dtype": "float32"}, {"dtype": "float16"}, "PyTorch, float32"),
        ({"variant": "eager"}, {"variant": "autocast"}, "PyTorch, eager"),
        ({"implementation": "numpy", "flags": ("noisy",)}, {}, "NumPy"),
    ],
)
def test_a_faster_way_of_the_cpu_counts(tmp_path: Path, way: Any, base: Any, told: str) -> None:
    pair = pair_of(tmp_path, way, **base)
    assert (pair.speedup, words.way(pair), pair.like_with_like.speedup) == (4.0, told, 8.0)
    assert pair.base.time_s == 8.0
    assert pair.quality.noisy == bool(way.get("flags"))  # its star stands beside the speedup


@pytest.mark.parametrize(
    ("way", "base"),
    [
        ({"implementation": "numpy", "flags": ("waiting",)}, {}),
        ({"implementation": "numpy", "flags": ("implausible",)}, {}),
        ({"implementation": "numpy", "medians": (0.4, 4.0, 40.0)}, {}),
        ({"implementation": "numpy", "seconds": 7.9, "spread": 0.001}, {"spread": 0.001}),
        ({"implementation": "numpy", "check": {"status": "unchecked"}}, {}),
        ({"variant": "autocast"}, {}),
        ({"dtype": "bfloat16"}, {}),
        ({"dtype": "float64"}, {}),
        ({"implementation": "numpy", "n": 65}, {}),
        ({"params": {"form": "inplace"}}, {}),
        ({"params": {"form": "sparse"}}, {"kind": ""}),
        ({}, {}),
    ],
    ids=["waited", "implausible", "too noisy", "1% faster", "unverified", "less exact", "bfloat16", "float64", "size",
         "over its input", "own parameter", "the same again"],
)  # fmt: skip
def test_what_is_in_doubt_or_does_another_job_counts_for_nothing(tmp_path: Path, way: Any, base: Any) -> None:
    pair = pair_of(tmp_path, way, **base)
    assert (pair.speedup, pair.best_cpu, words.way(pair)) == (8.0, None, "")


def test_a_way_whose_slowest_process_beats_the_fastest_of_the_other_is_faster(tmp_path: Path) -> None:
    """Times of a busy machine, so far apart that the interval of their ratio holds 1."""
    marks = [
        mark("a.b", "cpu", 8.0, medians=(5.0, 8.0, 80.0)),
        mark("a.b", "cuda:0", 1.0, medians=(1.0, 1.0, 1.0)),
        mark("a.b", "cpu", 4.0, medians=(0.4, 4.0, 4.9), implementation="numpy"),
    ]
    (pair,) = Study([run(tmp_path, marks)]).device_pairs
    assert (pair.speedup, words.way(pair)) == (4.0, "NumPy")


def test_a_baseline_that_was_asked_for_is_the_way(tmp_path: Path) -> None:
    marks = [mark("a.b", "cpu", 8.0), mark("a.b", "cuda:0", 1.0), mark("a.b", "cpu", 4.0, implementation="numpy")]
    marks[0]["extra_info"]["gpubench"]["params"] = marks[2]["extra_info"]["gpubench"]["params"]
    made = run(tmp_path, marks)
    assert [pair.speedup for pair in Study([made], "cpu").device_pairs if pair.other.on_accelerator] == [4.0]
    study = Study([made], "numpy")
    assert [(pair.speedup, pair.best_cpu) for pair in study.device_pairs if pair.other.on_accelerator] == [(4.0, None)]


def test_a_cpu_beside_several_gpus_is_shown_at_its_fastest_too(tmp_path: Path) -> None:
    marks = [mark("a.b", "cpu", 8.0), mark("a.b", "cuda:0", 1.0), mark("a.b", "cpu", 4.0, implementation="numpy")]
    runs = [run(tmp_path, marks, name, devices=BOTH) for name in ("one", "two")]
    found = Study(runs).gpu_pairs
    assert [(pair.speedup, words.way(pair)) for pair in found if not pair.other.on_accelerator] == [(0.25, "NumPy")]


def test_what_is_faster_than_the_cpu_can_be_counts_for_nothing(tmp_path: Path) -> None:
    """Seen by the report alone, as the file has no flag: of 10 FLOP/s the library would have done 25."""
    work = {"flops": 100.0}
    marks = [mark("a.b", "cpu", 20.0, work=work), mark("a.b", "cuda:0", 1.0, work=work)]
    marks.append(mark("a.b", "cpu", 4.0, work=work, implementation="numpy"))
    (pair,) = Study([run(tmp_path, marks, ceilings={"cpu": {"throughput": {"float32": 10.0}}})]).device_pairs
    assert (pair.speedup, pair.best_cpu) == (20.0, None)
