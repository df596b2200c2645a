"""The speedup that an honest opponent would grant: over the fastest way that the CPU was measured to do the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reading import BOTH, mark, run, speedups

from gpubench.report import words
from gpubench.report.answer import Answer
from gpubench.report.charts.headline_chart import headline_figures
from gpubench.report.charts.speedup_chart import speedup_figures
from gpubench.report.pairs import Pair
from gpubench.report.study import Study
from gpubench.report.tables import answer_tables
from gpubench.report.webpage import COLUMNS, page_data


def test_everything_that_people_read_uses_the_library_that_is_twice_as_fast(tmp_path: Path) -> None:
    """2.5× of PyTorch over PyTorch is 1.2× over the CPU's fastest way."""
    sides = ("cpu", "torch", 17e-3), ("cpu", "numpy", 8.16e-3), ("cuda:0", "torch", 6.8e-3)
    marks = [
        mark(f"a.{name}", device, seconds * n, n, kind="irregular", implementation=library)
        for name in ("sort", "scan", "pick")
        for device, library, seconds in sides
        for n in (1, 2, 4)
    ]
    study = Study([run(tmp_path, marks)])
    answer = Answer(study)
    assert "faster in 3 of 3 benchmarks (1.2×" in answer.sentence
    (table,) = answer_tables(answer, 15)
    assert {"1.2×", "2.5× over PyTorch", "32.6 ms by NumPy"} <= {*table.rows[0]}
    named = [{name: row[name] for name in ("speedup", "best_cpu", "best_cpu_speedup")} for row in speedups(study)]
    assert named == [{"speedup": pytest.approx(2.5), "best_cpu": "NumPy", "best_cpu_speedup": pytest.approx(1.2)}] * 9
    (headline,) = headline_figures(study)
    drawn = [(each.value, each.words) for row in headline.chart.entries for each in row.marks]
    assert drawn == [(pytest.approx(1.2), "1.2×‡")] * 3
    by_size = next(figure for figure in speedup_figures(study) if figure.kind == "speedup")
    points = [point for panel in by_size.chart.panels for point in panel.curves[0].points]
    assert [point.y for point in points] == pytest.approx([1.2] * len(points))
    for figure in (headline, by_size):
        assert "ver the CPU's fastest way, where that is another: NumPy." in figure.caption
    shown = [each[COLUMNS.index("speedup")] for each in page_data(study)["rows"]]
    assert {each for each in shown if each} == {1.2}


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
