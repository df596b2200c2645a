"""What the page draws: the same numbers as the tables, and nothing that an interval denies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.commands.report import read_all
from gpubench.report.judgement import crossover_table
from gpubench.report.labels import Names
from gpubench.report.page_data import COLUMNS, INTERNED, page_data
from gpubench.report.scaling import scaling_table
from gpubench.report.speedup import pair, resolve
from gpubench.report.table import results_table
from gpubench.runfile.schema import Case


def made(tmp_path: Path, *files: dict[str, Any]) -> dict[str, Any]:
    paths = []
    for i, content in enumerate(files):
        paths.append(tmp_path / f"run{i}.json")
        paths[-1].write_text(json.dumps(content))
    results = results_table(read_all(paths))
    speedups = pair(results, resolve(results, None)).table
    data = page_data(results, speedups, crossover_table(speedups, Names(results)), scaling_table(results), ())
    return json.loads(json.dumps(data, allow_nan=False))  # as the page reads it


def rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """As the script makes them."""
    found = [dict(zip(data["columns"], values, strict=True)) for values in data["rows"]]
    return [{k: data["strings"][v] if k in data["interned"] else v for k, v in row.items()} for row in found]


def both(
    workload: str = "aa.mm", times: tuple[float, float] = (1e-6, 1e-7), sizes=(1, 10, 100), **terms: Any
) -> list[Any]:
    return [
        records.benchmark(Case(workload, device, "float32", {"n": n, **terms}, size="n", devices=(device,)), time * n)
        for device, time in zip(("cpu", "cuda:0"), times, strict=True)
        for n in (1, 10, 100)
    ]


def run(marks: list[Any]) -> dict[str, Any]:
    return records.run_file(marks, devices=(records.CPU, records.GPU))


def test_a_row_holds_the_tables_numbers(tmp_path: Path) -> None:
    data = made(tmp_path, run(both(form="out")))
    assert tuple(data["columns"]) == COLUMNS
    assert set(data["interned"]) == set(INTERNED)
    row = next(row for row in rows(data) if row["speedup"] and row["size"] == 10)
    assert (row["workload"], row["dtype"], row["setting"], row["size_name"]) == ("aa.mm", "float32", "out", "n")
    assert row["speedup"] == pytest.approx(10)
    assert row["time_s"] == pytest.approx(1e-6)
    assert row["baseline_s"] == pytest.approx(1e-5)
    device = data["devices"][row["device"]]
    assert device["colour"] == "d0"
    assert data["devices"][0]["colour"] == "cpu"
    assert data["first"] == "aa.mm"


def test_the_headline_has_one_row_a_workload_at_its_largest_size(tmp_path: Path) -> None:
    data = made(tmp_path, run([*both("aa.mm"), *both("aa.add", (2e-6, 1e-6))]))
    (first, second) = data["headline"]["groups"]
    assert [row["name"] for group in (first, second) for row in group["rows"]] == ["mm", "add"]
    (mark,) = first["rows"][0]["marks"]
    assert mark["text"] == "10×"
    assert "n = 100" in first["rows"][0]["setting"]
    assert "10×" in data["headline"]["markdown"]


def test_a_cpu_alone_has_no_headline_and_times(tmp_path: Path) -> None:
    marks = [mark for mark in both() if "cpu" in json.dumps(mark)]
    data = made(tmp_path, records.run_file(marks, devices=(records.CPU,)))
    assert data["headline"]["groups"] == []
    assert all(row["speedup"] is None and row["time_s"] for row in rows(data))


def test_machines_have_devices_of_their_own(tmp_path: Path) -> None:
    data = made(tmp_path, run(both()), run(both(times=(1e-6, 2e-7))))
    shown = [device for device in data["devices"] if device["colour"] != "cpu"]
    assert [(device["colour"], device["shape"]) for device in shown] == [("d0", 0), ("d1", 1)]
    assert len({device["short"] for device in data["devices"]}) >= 3
    speedups = {row["device"]: row["speedup"] for row in rows(data) if row["speedup"]}
    assert sorted(round(value) for value in speedups.values()) == [5, 10]  # each against its own CPU


def test_an_unmeasured_benchmark_is_a_row_with_its_reason(tmp_path: Path) -> None:
    content = run(both())
    case = Case("aa.big", "cuda:0", "float32", {"n": 5}, size="n")
    content["gpubench"]["unmeasured"] = [records.unmeasured(case, "oom", "needs 90 GB")]
    (row,) = [row for row in rows(made(tmp_path, content)) if row["workload"] == "aa.big"]
    assert (row["status"], row["reason"], row["time_s"]) == ("oom", "needs 90 GB", None)
