"""What is said of a number, and what isn't; crossover.csv: from which size on the other side wins, in each regime."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.report import judgement, labels, speedup, table
from gpubench.report.judgement import ABOVE_PEAK, IF_IT_STAYS, NOT_WORTH_IT, TOO_NOISY, UNSURE, WORTH_IT, Crossing
from gpubench.report.labels import Names
from gpubench.report.sweep import Line, Point
from gpubench.runfile import reader
from gpubench.runfile.schema import Case, DeviceFacts, Machine, Run
from gpubench.statistics import ABSENT, ALWAYS, CROSSES, NEVER, Crossover

MACHINE = Machine("m", (DeviceFacts("cpu", "cpu", ""), DeviceFacts("cuda:0", "cuda", "")))


def pair(low: float, high: float, shot: tuple[float, float] | None, **more: Any) -> dict[str, Any]:
    run = Run(path=None, machine=MACHINE, results=())  # type: ignore[arg-type]
    shot_value = math.sqrt(shot[0] * shot[1]) if shot else None
    return {
        "device": "cuda:0", "baseline_device": "cpu", "low": low, "high": high, "speedup": math.sqrt(low * high),
        "one_shot_speedup": shot_value, "one_shot_low": shot and shot[0], "one_shot_high": shot and shot[1],
        "_run": run, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "shot", "verdict"),
    [
        (9.0, 11.0, (1.5, 1.7), WORTH_IT),
        (9.0, 11.0, (1.4, 1.7), IF_IT_STAYS),
        (9.0, 11.0, (0.2, 0.3), IF_IT_STAYS),
        (9.0, 11.0, None, IF_IT_STAYS),
        (1.4, 1.6, (1.0, 1.1), UNSURE),
        (1.1, 1.4, (1.0, 1.1), NOT_WORTH_IT),
        (0.1, 0.2, (0.1, 0.2), NOT_WORTH_IT),
        (2.0, 8.1, (2.0, 3.0), UNSURE),  # wider than a factor of four
    ],
)
def test_verdicts_are_made_at_the_low_end(
    low: float, high: float, shot: tuple[float, float] | None, verdict: str
) -> None:
    assert judgement.verdict(pair(low, high, shot)) == verdict


def test_between_equals_no_copies_are_asked_for() -> None:
    assert judgement.verdict(pair(2.0, 3.0, None, device="cpu")) == WORTH_IT
    assert judgement.verdict(pair(2.0, 3.0, None, baseline_device="cuda:0")) == WORTH_IT


def test_an_interval_beyond_a_factor_of_four_is_no_number() -> None:
    assert judgement.speedup_words(pair(2.0, 8.0, None)) == "4.0× (2.0× to 8.0×)"
    assert judgement.speedup_words(pair(2.0, 8.1, None)) == TOO_NOISY
    assert judgement.copies_text(pair(2.0, 3.0, (0.1, 0.5))) == TOO_NOISY
    assert judgement.copies_text(pair(2.0, 3.0, (0.2, 0.2))) == "5.0× slower"
    assert judgement.copies_text(pair(2.0, 3.0, None)) == "—"


def test_what_beats_its_peak_is_withheld_everywhere() -> None:
    above = pair(2.0, 3.0, (1.6, 1.7), flags="noisy implausible")
    assert judgement.withheld(above) == ABOVE_PEAK
    assert (judgement.speedup_words(above), judgement.copies_text(above)) == ("—", "—")
    assert judgement.verdict(above) == UNSURE
    assert judgement.withheld(pair(2.0, 8.1, None, flags="noisy")) == TOO_NOISY
    assert judgement.withheld(pair(2.0, 8.0, None, flags="noisy")) == ""
    assert judgement.withheld({"flags": None}) == ""
    assert judgement.withheld({"flags": "implausible"}) == ABOVE_PEAK


@pytest.mark.parametrize(("share", "words"), [(0.73, "73%"), (1.0, "100%"), (1.01, "—"), (0.001, "<1%"), (None, "—")])
def test_nothing_is_above_its_peak(share: float | None, words: str) -> None:
    assert judgement.peak_text(share) == words


UP = (0.5, 2.0, 4.0)


@pytest.mark.parametrize(
    ("known", "ratios", "words"),
    [
        (Crossover(72.4, CROSSES, 65.0, 79.0), UP, "n ≈ 72"),
        (Crossover(72.4, CROSSES, 0.0, 79.0), UP, UNSURE),
        (Crossover(72.4, CROSSES, 65.0, math.inf), UP, UNSURE),
        (Crossover(72.4, CROSSES), UP, "n between 64 and 128"),
        (Crossover(None, ALWAYS, 0.0, 0.0), UP, "every size measured"),
        (Crossover(None, ALWAYS), UP, "every size measured"),
        (Crossover(None, ALWAYS, 0.0, 70.0), UP, UNSURE),
        (Crossover(None, NEVER), (0.5, 0.4, 0.3), "not up to n = 256"),
        (Crossover(None, ABSENT), (0.5, 2.0, 0.5), "only up to n = 128"),
        (Crossover(72.4, CROSSES, 60.0, 256.0), UP, UNSURE),
    ],
)
def test_a_crossover_is_stated_only_as_far_as_it_is_known(
    known: Crossover, ratios: tuple[float, ...], words: str
) -> None:
    points = tuple(Point(x, y, y, y) for x, y in zip((64, 128, 256), ratios, strict=True))
    assert judgement.crossover_text(Crossing(known, 3), Line({}, points, {}, ()), "n") == words


def test_a_crossover_over_what_cant_be_is_unsure() -> None:
    points = tuple(Point(x, y, y, y) for x, y in zip((64, 128, 256), UP, strict=True))
    line = Line({}, points, {}, ({"flags": "implausible"},))
    assert judgement.crossover_text(Crossing(Crossover(72.4, CROSSES, 65.0, 79.0), 3), line, "n") == UNSURE


def test_one_size_has_no_crossover() -> None:
    line = Line({}, (Point(64, 2.0, 2.0, 2.0),), {}, ())
    assert judgement.crossover_text(Crossing(Crossover(None, ALWAYS), 3), line, "n") == UNSURE


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (132.4, "132×"), (1412.0, "1,410×"), (99.6, "100×"), (8.64, "8.6×"), (9.96, "10×"), (1.0, "1.0×"),
        (0.98, "1.0×"), (0.00793, "126× slower"), (0.24, "4.2× slower"), (3.2e7, "3.2e+07×"),
    ],
)  # fmt: skip
def test_numbers_for_people(value: float, words: str) -> None:
    assert labels.times_text(value) == words


def test_ranges_for_people() -> None:
    assert labels.times_range(48, 113) == "48× to 113×"
    assert labels.times_range(132.1, 132.4) == "132×"
    assert labels.times_range(0.3, 0.45) == "2.2× to 3.3× slower"
    assert labels.times_range(0.5, 2) == "2.0× slower to 2.0×"


@pytest.mark.parametrize(("size", "words"), [(72.4, "72"), (34_300, "34k"), (1.07, "1"), (0.4, "1"), (1e7, "10⁷")])
def test_estimated_sizes_have_two_digits(size: float, words: str) -> None:
    assert labels.rounded_size(size) == words


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


def crossovers(*runs: reader.Run) -> list[dict[str, Any]]:
    results = table.results_table(runs)
    return table.records(judgement.crossover_table(speedup.pair(results).table, Names(results)))


def test_crossovers_as_csv(tmp_path: Path) -> None:
    results = table.results_table([write(tmp_path, ratios((0.25,), (4.0,), moved=0.25))])
    frame = judgement.crossover_table(speedup.pair(results).table, Names(results))
    same = "run,Synthetic CPU (synthetic),cuda:0,a.b,torch,eager,hot,out,,float32,"
    same += "run,Synthetic CPU (synthetic),cpu,torch,,"
    lines = table.csv_text(frame).splitlines()
    assert lines[0] == (
        "run,machine,device,workload,implementation,variant,cache,form,n,dtype,baseline_run,baseline_machine,"
        "baseline_device,baseline_implementation,differs,regime,size_parameter,crossover,low,high,kind,processes,note"
    )
    assert [line.removeprefix(same).partition(",")[0] for line in lines[1:]] == ["resident", "one-shot"]
    resident, shot = crossovers(write(tmp_path, ratios((0.25,), (4.0,), moved=0.25)))
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
def test_a_crossover_is_described_by_its_kind(tmp_path: Path, speeds: tuple[float, float], kind: str) -> None:
    (row,) = crossovers(write(tmp_path, ratios((speeds[0],) * 2, (speeds[1],) * 2)))
    assert (row["kind"], row["crossover"], row["low"], row["high"], row["note"]) == (kind, None, None, None, None)


def test_processes_give_an_interval(tmp_path: Path) -> None:
    (row,) = crossovers(write(tmp_path, ratios((0.24, 0.25, 0.26), (3.9, 4.0, 4.1)), processes=3))
    assert row["low"] < row["crossover"] < row["high"]
    assert (row["processes"], row["note"]) == (3, None)


def test_open_ends_are_said(tmp_path: Path) -> None:
    (row,) = crossovers(write(tmp_path, ratios((0.5, 1.5, 0.9), (1.2, 0.7, 3.0)), processes=3))
    assert (row["low"], row["high"], row["kind"]) == (None, None, "crosses")
    assert row["note"] == "interval begins below the smallest size; interval ends beyond the largest size"
    (row,) = crossovers(write(tmp_path, ratios((1.1, 1.5, 0.9), (4.0, 4.0, 4.0)), processes=3))
    assert (row["crossover"], row["kind"]) == (None, "always")
    assert row["note"] == "processes disagree: in some resamples it crosses"


def test_processes_are_paired_within_a_run_only(tmp_path: Path) -> None:
    """All processes of a run see a machine twice as slow: that says nothing about the ratio."""
    speeds = (1.0, 2.0, 0.7)

    def side(device: str, times: tuple[float, float]) -> list[dict[str, Any]]:
        return [mark(device, n, tuple(seconds * s for s in speeds)) for n, seconds in zip(SIZES, times, strict=True)]

    (row,) = crossovers(write(tmp_path, side("cpu", (1.0, 1.0)) + side("cuda:0", (4.0, 0.25)), processes=3))
    assert (row["low"], row["high"]) == pytest.approx((1000, 1000))
    one = write(tmp_path, side("cuda:0", (1.0, 1.0)), "one", processes=3)
    two = write(tmp_path, side("cuda:0", (4.0, 0.25)), "two", processes=3)
    (row,) = crossovers(one, two)
    assert row["crossover"] == pytest.approx(1000)
    assert (row["low"] or 0.0) < 500 < 2000 < (row["high"] or math.inf)


def test_processes_that_missed_a_size_dont_count(tmp_path: Path) -> None:
    marks = ratios((0.24, 0.25, 0.26), (3.9, 4.0, 4.1))
    lost = marks[-1]["extra_info"]["gpubench"]["processes"]
    del lost[0]
    marks[-1]["stats"]["data"] = marks[-1]["stats"]["data"][1:]
    (row,) = crossovers(write(tmp_path, marks, processes=3))
    assert row["processes"] == 2
    del lost[0]
    marks[-1]["stats"]["data"] = marks[-1]["stats"]["data"][1:]
    (row,) = crossovers(write(tmp_path, marks, processes=3))
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
    rows = table.records(judgement.crossover_table(made, Names(results)))
    assert [row["crossover"] for row in rows] == [None, None]
