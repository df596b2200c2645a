"""crossover.csv: from which size on the other side wins, in each regime, and how far that is known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.report import crossover, speedup, table
from gpubench.report.labels import Names
from gpubench.runfile import reader
from gpubench.runfile.schema import Case

SIZES = (10**2, 10**4)


def mark(device: str, n: int, medians: tuple[float, ...], **measured: Any) -> dict[str, Any]:
    case = Case("a.b", device, "float32", {"form": "out", "n": n}, size="n", devices=(device,))
    centre = sorted(medians)[len(medians) // 2]
    return records.benchmark(case, centre, medians=medians, latency=centre, **measured)


def write(folder: Path, marks: list[dict[str, Any]], name: str = "run", **how: Any) -> reader.Run:
    for entry in marks:  # a call alone costs what it costs in a row
        for process in entry["extra_info"]["gpubench"]["processes"]:
            process["latency_s"] = process["median_s"]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU), **how)))
    return reader.read(path)


def ratios(*speeds: tuple[float, ...], moved: float | None = None) -> list[dict[str, Any]]:
    """A CPU of 1 s a call against a device with these speedups, by size and process."""
    transfer = {"in_bytes": 8, "out_bytes": 0, "in_s": moved} if moved else None
    marks = []
    for n, own in zip(SIZES, speeds, strict=True):
        marks.append(mark("cpu", n, (1.0,) * len(own)))
        marks.append(mark("cuda:0", n, tuple(1 / speed for speed in own), transfer=transfer))
    return marks


def found(*runs: reader.Run) -> list[dict[str, Any]]:
    results = table.results_table(runs)
    return table.records(crossover.crossover_table(speedup.pair(results).table, Names(results)))


def test_exact_text(tmp_path: Path) -> None:
    results = table.results_table([write(tmp_path, ratios((0.25,), (4.0,), moved=0.25))])
    frame = crossover.crossover_table(speedup.pair(results).table, Names(results))
    same = "run,Synthetic CPU (synthetic),cuda:0,a.b,torch,eager,hot,out,,float32,"
    same += "run,Synthetic CPU (synthetic),cpu,torch,,"
    lines = table.csv_text(frame).splitlines()
    assert lines[0] == (
        "run,machine,device,workload,implementation,variant,cache,form,n,dtype,baseline_run,baseline_machine,"
        "baseline_device,baseline_implementation,differs,regime,size_parameter,crossover,low,high,kind,processes,note"
    )
    assert [line.removeprefix(same).partition(",")[0] for line in lines[1:]] == ["resident", "one-shot"]
    resident, shot = found(write(tmp_path, ratios((0.25,), (4.0,), moved=0.25)))
    assert resident["crossover"] == pytest.approx(1000)
    low, high = math.log(1 / 4.25), math.log(2)
    assert shot["crossover"] == pytest.approx(100 * 100 ** (-low / (high - low)))
    for row in (resident, shot):
        assert (row["low"], row["high"], row["kind"], row["processes"]) == (None, None, "crosses", 1)
        assert row["note"] == "one process: no interval"


@pytest.mark.parametrize(
    ("speeds", "kind"),
    [
        ((2.0, 4.0), "always"),
        ((1.0, 1.0), "always"),
        ((0.5, 0.25), "never"),
        ((0.25, 0.5), "not in this range"),
        ((2.0, 0.5), "not in this range"),
    ],
)
def test_in_words(tmp_path: Path, speeds: tuple[float, float], kind: str) -> None:
    (row,) = found(write(tmp_path, ratios((speeds[0],) * 2, (speeds[1],) * 2)))
    assert (row["kind"], row["crossover"], row["low"], row["high"], row["note"]) == (kind, None, None, None, None)


def test_processes_give_an_interval(tmp_path: Path) -> None:
    (row,) = found(write(tmp_path, ratios((0.24, 0.25, 0.26), (3.9, 4.0, 4.1)), processes=3))
    assert row["low"] < row["crossover"] < row["high"]
    assert (row["processes"], row["note"]) == (3, None)


def test_open_ends_are_said(tmp_path: Path) -> None:
    (row,) = found(write(tmp_path, ratios((0.5, 1.5, 0.9), (1.2, 0.7, 3.0)), processes=3))
    assert (row["low"], row["high"], row["kind"]) == (None, None, "crosses")
    assert row["note"] == "interval begins below the smallest size; interval ends beyond the largest size"
    (row,) = found(write(tmp_path, ratios((1.1, 1.5, 0.9), (4.0, 4.0, 4.0)), processes=3))
    assert (row["crossover"], row["kind"]) == (None, "always")
    assert row["note"] == "processes disagree: in some resamples it crosses"


def test_processes_are_paired_within_a_run_only(tmp_path: Path) -> None:
    """All processes of a run see a machine twice as slow: that says nothing about the ratio."""
    speeds = (1.0, 2.0, 0.7)

    def side(device: str, times: tuple[float, float]) -> list[dict[str, Any]]:
        return [mark(device, n, tuple(seconds * s for s in speeds)) for n, seconds in zip(SIZES, times, strict=True)]

    (row,) = found(write(tmp_path, side("cpu", (1.0, 1.0)) + side("cuda:0", (4.0, 0.25)), processes=3))
    assert (row["low"], row["high"]) == pytest.approx((1000, 1000))
    one = write(tmp_path, side("cuda:0", (1.0, 1.0)), "one", processes=3)
    two = write(tmp_path, side("cuda:0", (4.0, 0.25)), "two", processes=3)
    (row,) = found(one, two)
    assert row["crossover"] == pytest.approx(1000)
    assert (row["low"] or 0.0) < 500 < 2000 < (row["high"] or math.inf)


def test_processes_that_missed_a_size_dont_count(tmp_path: Path) -> None:
    marks = ratios((0.24, 0.25, 0.26), (3.9, 4.0, 4.1))
    lost = marks[-1]["extra_info"]["gpubench"]["processes"]
    del lost[0]
    marks[-1]["stats"]["data"] = marks[-1]["stats"]["data"][1:]
    (row,) = found(write(tmp_path, marks, processes=3))
    assert row["processes"] == 2
    del lost[0]
    marks[-1]["stats"]["data"] = marks[-1]["stats"]["data"][1:]
    (row,) = found(write(tmp_path, marks, processes=3))
    assert (row["processes"], row["low"], row["note"]) == (1, None, "one process: no interval")


def test_a_baseline_that_changes_on_the_way_is_another_line(tmp_path: Path) -> None:
    """float32 stands in for bfloat16 at one size only: no crossover is drawn through both."""
    marks = ratios((0.25,), (4.0,))
    marks[3]["extra_info"]["gpubench"]["dtype"] = marks[1]["extra_info"]["gpubench"]["dtype"] = "bfloat16"
    marks.append(json.loads(json.dumps(marks[0])))
    marks[-1]["extra_info"]["gpubench"]["dtype"] = "bfloat16"
    results = table.results_table([write(tmp_path, marks)])
    made = speedup.pair(results, allow=("dtype",)).table
    assert [row["differs"] for row in table.records(made)] == [None, "dtype bfloat16 against float32"]
    rows = table.records(crossover.crossover_table(made, Names(results)))
    assert [row["crossover"] for row in rows] == [None, None]
