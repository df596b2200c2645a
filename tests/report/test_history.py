"""Runs in time: where a level changed, what a report shows of them, and that nothing is seen in noise."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import reading
import records

from gpubench.commands.cli import main
from gpubench.report import history
from gpubench.report.study import Study
from gpubench.runfile.reader import read
from gpubench.runfile.schema import Case
from gpubench.statistics.inference import change_points

RUNS = 30


def recorded(
    folder: Path, count: int = RUNS, workloads: tuple[str, ...] = ("a.steady", "a.stepped"), longer: float = 1.2
) -> list[Path]:
    """a.stepped takes so much longer from the 18th run on; files are named against their order in time."""
    chance = random.Random(3)
    paths = []
    for i in range(count):
        marks = []
        for name in workloads:
            for n in (8, 64):
                case = Case(name, "cpu", "float32", {"n": n}, size="n", devices=("cpu",))
                step = longer if name == "a.stepped" and i >= 18 else 1.0
                marks.append(records.benchmark(case, 1e-4 * n * step * (1 + 0.02 * chance.gauss(0, 1))))
        started = f"2026-{1 + i // 28:02}-{1 + i % 28:02}T12:00:00+00:00"
        paths.append(folder / f"{count - i:03}.json")
        paths[-1].write_text(json.dumps(records.run_file(marks, started=started)))
    return paths


def study(paths: list[Path]) -> Study:
    return Study([read(path) for path in sorted(paths)])


def test_a_step_is_found_where_it_is_and_nothing_else(tmp_path: Path) -> None:
    stepped, steady = study(recorded(tmp_path)).trends
    assert [each.last.result.workload for each in (stepped, steady)] == ["a.stepped", "a.steady"]
    assert [series.changes for series in stepped.series] == [(18,), (18,)]
    assert stepped.series[0].dates[18] == "2026-01-19"
    assert stepped.series[0].levels[1] / stepped.series[0].levels[0] == pytest.approx(1.2, rel=0.03)
    assert all(series.changes == () for series in steady.series)


def test_a_step_of_less_than_five_percent_is_none(tmp_path: Path) -> None:
    trends = study(recorded(tmp_path, longer=1.04)).trends
    every = [series for each in trends for series in each.series]
    assert [18] in [change_points(series.times, history.CHANGE_LEVEL) for series in every]
    assert {series.changes for series in every} == {()}


def test_runs_of_one_day_are_told_apart_by_the_time_of_day(tmp_path: Path) -> None:
    paths = recorded(tmp_path, 8)
    for i, path in enumerate(sorted(paths)):
        data = json.loads(path.read_text())
        data["gpubench"]["started"] = data["datetime"] = f"2026-01-31T{8 + i:02}:30:00+00:00"
        path.write_text(json.dumps(data))
    assert study(paths).trends[0].series[0].dates[:2] == ("2026-01-31 08:30", "2026-01-31 09:30")


def test_among_many_workloads_only_those_that_changed_are_a_trend(tmp_path: Path) -> None:
    many = tuple(f"b.steady{i}" for i in range(history.MOST_UNCHANGED))
    trends = study(recorded(tmp_path, workloads=("a.stepped", *many))).trends
    assert [each.last.result.workload for each in trends] == ["a.stepped"]


def test_few_runs_are_no_trend_and_all_are_shown(tmp_path: Path) -> None:
    few = study(recorded(tmp_path, history.LEAST_RUNS - 1))
    assert (few.trends, len(few.runs)) == ([], history.LEAST_RUNS - 1)


def test_of_a_trend_only_the_last_run_is_shown_beside_other_machines(tmp_path: Path) -> None:
    paths = recorded(tmp_path, 8)
    elsewhere = reading.run_of(tmp_path, records.cpu_run(label="Other (synthetic)"), "other")
    shown = Study([elsewhere, *(read(path) for path in sorted(paths))]).runs
    assert [run.path.stem for run in shown] == ["other", "001"]
    undated = json.loads(paths[0].read_text()) | {"datetime": None}
    undated["gpubench"]["started"] = None
    assert history.in_time([reading.run_of(tmp_path, undated, "undated")]) == []


def test_the_report_draws_trends_and_its_other_charts_show_the_last_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    recorded(runs)
    assert main(["report", str(runs), "-o", str(tmp_path / "out")]) == 0
    assert f"{RUNS - 1} earlier runs left out here" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out/charts").iterdir()}
    assert {"trend-a.stepped-light.svg", "trend-a.steady-light.svg", "time-a-light.svg"} <= names
    assert "2026-01-19" in (tmp_path / "out/charts/trend-a.stepped-light.svg").read_text()  # the day of the change
    rows = (tmp_path / "out/results.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * RUNS
    assert (tmp_path / "out/speedup.csv").read_text().count("\n") == 1
    summary = (tmp_path / "out/summary.md").read_text()
    assert "trend-a.stepped-light.svg" in summary
    assert "2026-02-02" in summary  # the last run's day
    assert "2026-01-18" not in summary


def test_levels_are_found_in_noise_with_outliers() -> None:
    chance = random.Random(1)
    values = [1.0 + 0.02 * chance.gauss(0, 1) for _ in range(90)]
    values[30:60] = [value * 1.3 for value in values[30:60]]
    values[5] = values[70] = 9.0
    found = change_points(values, 0.01)
    assert len(found) == 2
    assert abs(found[0] - 30) <= 2
    assert abs(found[1] - 60) <= 2


def test_a_clear_step_of_two_weeks_is_found_among_ten_benchmarks() -> None:
    chance = random.Random(2)
    values = [1.0 + 0.02 * chance.gauss(0, 1) for _ in range(24)]
    assert change_points(values, 0.01 / 10) == []
    values[14:] = [value * 1.15 for value in values[14:]]
    assert change_points(values, 0.01 / 10) == [14]


@pytest.mark.parametrize("count", [0, 1, 5, 6, 40, 400])
def test_no_change_is_seen_in_noise_or_in_equal_values(count: int) -> None:
    chance = random.Random(count)
    assert change_points([chance.random() for _ in range(count)], 0.001) == []
    assert change_points([1.0] * count, 0.001) == []


def test_of_series_without_a_change_no_more_than_the_level_seem_to_have_one() -> None:
    chance = random.Random(3)
    seen = sum(bool(change_points([chance.random() for _ in range(24)], 0.05)) for _ in range(200))
    assert seen <= 10
