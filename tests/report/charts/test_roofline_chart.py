"""Roofline charts: which cases stand where, under which ceilings, and that what is named can be read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.report import speedup, table
from gpubench.report.charts import draw, selection
from gpubench.report.charts.page import LIGHT, Figure
from gpubench.report.charts.roofline_chart import Roofline, RoofPanel, draw_roofline
from gpubench.runfile import reader
from gpubench.runfile.schema import Case

CEILINGS: dict[str, Any] = {
    "bandwidth": [
        {"pattern": "read", "level": "l2", "footprint_bytes": 1e6, "byte_per_s": 8e11},
        {"pattern": "copy", "level": "l2", "footprint_bytes": 1e6, "byte_per_s": 6e11},
        {"pattern": "read", "level": "memory", "footprint_bytes": 1e9, "byte_per_s": 2e11},
        {"pattern": "copy", "level": "memory", "footprint_bytes": 1e9, "byte_per_s": 1e11},
    ],
    "throughput": {"float32": 1e13},
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
SMALL = [mark("elementwise.add", 1e-5, flops=50, bytes=600), mark("models.mlp", 2e-5, flops=1e4)]


def plan(folder: Path, marks: list[dict[str, Any]], ceilings: dict[str, Any] | None = None) -> list[Figure]:
    path = folder / "run.json"
    known = {"cuda:0": CEILINGS if ceilings is None else ceilings}
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU), ceilings=known)))
    results = table.results_table([reader.read(path)])
    return [each for each in selection.plan(results, speedup.pair(results).table) if isinstance(each.chart, Roofline)]


def panels(folder: Path) -> list[RoofPanel]:
    (figure,) = plan(folder, MARKS)
    assert isinstance(figure.chart, Roofline)
    assert (figure.name, figure.title) == ("roofline-cuda-0", "Roofline of cuda:0")
    return list(figure.chart.panels)


def test_cases_stand_where_their_work_puts_them(tmp_path: Path) -> None:
    intensity, moving, computing = panels(tmp_path)
    assert [(m.x, m.y) for m in intensity.marks] == [(1 / 12, 1e9), (1 / 12, 2e9), (2e3, 2e12), (4e3, 4e12)]
    assert [(m.x, m.y) for m in moving.marks] == [(12e9, 12e9), (24e9, 24e9), (1e9, 2e9)]
    assert [(m.x, m.y) for m in computing.marks] == [(4e12, 2e12), (8e12, 4e12), (1e10, 2e10)]


def test_the_best_of_each_workload_is_named(tmp_path: Path) -> None:
    intensity, moving, computing = panels(tmp_path)
    assert [m.label for m in intensity.marks] == ["", "add", "", "square"]
    assert [m.label for m in moving.marks] == ["", "add", "copy"]
    assert [m.label for m in computing.marks] == ["", "square", "mlp"]


def test_ceilings_are_named_with_their_value(tmp_path: Path) -> None:
    intensity, moving, computing = panels(tmp_path)
    assert [(roof.label, roof.slope) for roof in intensity.roofs] == [
        ("memory, read 200 GB/s", 1),
        ("l2, read 800 GB/s", 1),
        ("float32 matmul 10.0 TFLOP/s", 0),
    ]
    assert [(roof.label, roof.points) for roof in moving.roofs] == [
        ("read 200 GB/s at 1.00 GB", ((1e6, 8e11), (1e9, 2e11))),
        ("copy 100 GB/s at 1.00 GB", ((1e6, 6e11), (1e9, 1e11))),
        ("launch floor 5.00 µs", ((1.0, pytest.approx(2e5)),)),
    ]
    assert [roof.label for roof in computing.roofs] == ["float32 matmul 10.0 TFLOP/s", "launch floor 5.00 µs"]


def test_a_small_footprint_that_reads_low_is_no_ceiling(tmp_path: Path) -> None:
    """At 20 kB a call's own cost shows; the figure of 1 MB stands for it, as for utilisation."""
    low = {"pattern": "read", "level": "l1d", "footprint_bytes": 2e4, "byte_per_s": 1e11}
    between = {"pattern": "read", "level": "l2+", "footprint_bytes": 1e7, "byte_per_s": 3e11}
    (figure,) = plan(tmp_path, MARKS, {**CEILINGS, "bandwidth": [low, between, *CEILINGS["bandwidth"]]})
    intensity, moving, _ = figure.chart.panels
    assert isinstance(intensity, RoofPanel)
    assert isinstance(moving, RoofPanel)
    assert [roof.label.partition(",")[0] for roof in intensity.roofs if roof.slope] == ["memory", "l2"]
    assert moving.roofs[0].points == ((2e4, 8e11), (1e6, 8e11), (1e7, 3e11), (1e9, 2e11))


def test_no_ceilings_no_chart(tmp_path: Path) -> None:
    assert plan(tmp_path, MARKS, {}) == []
    assert plan(tmp_path, [mark("a.b", 1.0)], CEILINGS) == []
    (figure,) = plan(tmp_path, MARKS, {"throughput": {"float32": 1e13}})
    assert isinstance(figure.chart, Roofline)
    assert [panel.y_unit for panel in figure.chart.panels] == ["FLOP/s", "FLOP/s"]


def test_everything_named_is_drawn_and_apart(tmp_path: Path) -> None:
    (figure,) = plan(tmp_path, MARKS + SMALL)
    assert isinstance(figure.chart, Roofline)
    page = draw_roofline(figure, figure.chart)
    for panel, axes in zip(figure.chart.panels, page.figure.axes, strict=True):
        drawn = {text.get_text(): text for text in axes.texts}
        expected = {mark.label for mark in panel.marks if mark.label} | {roof.label for roof in panel.roofs}
        assert expected <= set(drawn)
        boxes = [drawn[name].get_window_extent() for name in expected if not drawn[name].get_rotation()]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        assert axes.get_xlim()[0] < min(m.x for m in panel.marks) <= max(m.x for m in panel.marks) < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < min(m.y for m in panel.marks)
        assert axes.get_ylim()[1] > max(rate for roof in panel.roofs if not roof.slope for _, rate in roof.points)


def test_names_keep_off_markers_and_never_hide_one(tmp_path: Path) -> None:
    (figure,) = plan(tmp_path, MARKS + SMALL)
    assert isinstance(figure.chart, Roofline)
    page = draw_roofline(figure, figure.chart)
    page.ink.apply(LIGHT)
    for axes in page.figure.axes:
        names = [text for text in axes.texts if text.get_path_effects()]
        markers = [line for line in axes.lines if line.get_marker() not in ("", "None", None)]
        assert max(text.get_zorder() for text in names) < min(line.get_zorder() for line in markers)
        boxes = [text.get_window_extent() for text in names]
        for line in markers:
            x, y = axes.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
            assert not any(
                box.contains(x, y) for box, name in zip(boxes, names, strict=True) if not name.get_rotation()
            )


def test_ceilings_that_cases_beat_on_a_busy_machine_are_called_too_low(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for flags in ((), ("contended",)):
        data = records.run_file(
            [mark("a.b", 1e-3, flops=2e10)],
            devices=(records.CPU, records.GPU),
            ceilings={"cuda:0": CEILINGS},
            flags=flags,
        )
        path.write_text(json.dumps(data))
        results = table.results_table([reader.read(path)])
        (figure,) = [f for f in selection.plan(results, speedup.pair(results).table) if isinstance(f.chart, Roofline)]
        assert ("Up to 200% of a peak: the peaks were measured while the machine was busy" in figure.caption) == bool(
            flags
        )
        assert "  " not in figure.caption


def test_flagged_cases_are_hollow(tmp_path: Path) -> None:
    marks = copy.deepcopy(MARKS)
    marks[2]["extra_info"]["gpubench"]["processes"][0]["flags"] = [{"flag": "implausible", "seen": "3 × the ceiling"}]
    (figure,) = plan(tmp_path, marks)
    assert isinstance(figure.chart, Roofline)
    assert [m.flagged for m in figure.chart.panels[0].marks] == [False, False, True, False]
    assert "Hollow: flagged" in figure.caption


@pytest.mark.parametrize("span", [1.0, 1e-12, 1e12])
def test_extreme_cases_are_drawn(tmp_path: Path, span: float) -> None:
    figures_ = plan(tmp_path, [mark("a.b", 1e-3, flops=1e6 * span, bytes=1e3), mark("a.c", 1e3, bytes=1e3 * span)])
    assert len(draw.render(figures_, ("svg",))) == 2
