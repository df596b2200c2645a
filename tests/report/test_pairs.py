"""speedup.csv: what is paired with what, and with which uncertainty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import records

from gpubench import runfile
from gpubench.errors import UsageError
from gpubench.report import pairs, table
from gpubench.schema import Case


def run(folder: Path, marks: list[dict[str, Any]], name: str = "run", **how: Any) -> runfile.Run:
    path = folder / f"{name}.json"
    how.setdefault("devices", (records.CPU, records.GPU, {**records.GPU, "name": "cuda:1"}))
    path.write_text(json.dumps(records.run_file(marks, **how)))
    return runfile.read(path)


def mark(device: str, median: float, workload: str = "a.b", **how: Any) -> dict[str, Any]:
    times = {key: how.pop(key) for key in ("medians", "spread") if key in how}
    case = Case(workload, device, how.pop("dtype", "float32"), how.pop("params", {"n": 64}), devices=(device,), **how)
    return records.benchmark(case, median, **times)


def speedups(runs: list[runfile.Run], baseline: str | None = None) -> pd.DataFrame:
    results = table.frame(runs)
    return pairs.pair(results, pairs.resolve(results, baseline))


def found(frame: pd.DataFrame) -> list[tuple[str, str, float]]:
    return [
        (f"{row['baseline_run']}/{row['baseline_device']}", f"{row['run']}/{row['device']}", row["speedup"])
        for row in table.records(frame)
    ]


def test_exact_text(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0, spread=0.25, threads=2), mark("cuda:0", 2.0, spread=0.5, threads=1)]
    assert table.to_csv(speedups([run(tmp_path, marks)])) == (
        "baseline_run,baseline_machine,baseline_device,baseline_implementation,baseline_threads,run,machine,device,"
        "implementation,threads,workload,variant,regime,n,dtype,baseline_s,time_s,speedup,low,high,uncertainty\n"
        "run,Synthetic CPU (synthetic),cpu,torch,2,run,Synthetic CPU (synthetic),cuda:0,torch,1,a.b,eager,resident,64,"
        "float32,8.0,2.0,4.0,2.8,6.0,spread within one process\n"
    )


def test_processes_give_an_interval(tmp_path: Path) -> None:
    marks = [mark("cpu", 4.0, medians=(3.6, 4.0, 4.4)), mark("cuda:0", 1.0, medians=(0.9, 1.0, 1.1))]
    (row,) = table.records(speedups([run(tmp_path, marks)]))
    assert row["uncertainty"] == "95% interval, 3 processes"
    assert row["speedup"] == pytest.approx(4.0)
    assert row["low"] < 4.0 < row["high"]
    marks[1] = mark("cuda:0", 1.0, medians=(0.9, 1.1))
    (row,) = table.records(speedups([run(tmp_path, marks)]))
    assert row["uncertainty"] == "95% interval, 3 and 2 processes"
    marks[1] = mark("cuda:0", 1.0)
    (row,) = table.records(speedups([run(tmp_path, marks)]))
    assert row["uncertainty"] == "spread within one process"


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "tf32"},
        {"variant": "autocast"},
        {"regime": "one-shot"},
        {"params": {"n": 65}},
        {"params": {"n": "64"}},
        {"params": {}},
        {"workload": "a.c"},
        {"implementation": "numpy"},
    ],
)
def test_unlike_is_never_paired(tmp_path: Path, other: dict[str, Any]) -> None:
    assert speedups([run(tmp_path, [mark("cpu", 1.0), mark("cuda:0", 1.0, **other)])]).empty


def test_unmeasured_is_never_paired(tmp_path: Path) -> None:
    gone = records.unmeasured(Case("a.b", "cpu", "float32", {"n": 64}))
    assert speedups([run(tmp_path, [mark("cuda:0", 1.0)], unmeasured=[gone])]).empty


def test_baselines_within_a_run(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cuda:0", 2.0), mark("cuda:1", 1.0), mark("cpu", 16.0, implementation="numpy")]
    runs = [run(tmp_path, marks)]
    expected = [("run/cpu", "run/cuda:0", 4.0), ("run/cpu", "run/cuda:1", 8.0)]
    assert found(speedups(runs)) == expected
    assert found(speedups(runs, "cpu")) == expected
    assert found(speedups(runs, "run")) == expected
    assert found(speedups(runs, "Synthetic CPU (synthetic)")) == expected
    assert found(speedups(runs, "cuda:1")) == [("run/cuda:1", "run/cpu", 0.125), ("run/cuda:1", "run/cuda:0", 0.5)]
    assert found(speedups(runs, "numpy")) == [
        ("run/cpu", "run/cpu", 2.0),
        ("run/cpu", "run/cuda:0", 8.0),
        ("run/cpu", "run/cuda:1", 16.0),
    ]


def test_several_machines(tmp_path: Path) -> None:
    """Each accelerator against its own CPU, and each device against the first machine's of its kind."""
    one = run(tmp_path, [mark("cpu", 8.0), mark("cuda:0", 2.0)], "one", label="A (synthetic)")
    two = run(tmp_path, [mark("cpu", 4.0), mark("cuda:1", 0.5)], "two", label="B (synthetic)")
    assert found(speedups([one, two])) == [
        ("one/cpu", "one/cuda:0", 4.0),
        ("two/cpu", "two/cuda:1", 8.0),
        ("one/cpu", "two/cpu", 2.0),
        ("one/cuda:0", "two/cuda:1", 4.0),
    ]
    assert found(speedups([one, two], "B (synthetic)"))[:2] == [
        ("two/cpu", "one/cpu", 0.5),
        ("two/cuda:1", "one/cuda:0", 0.25),
    ]


def test_a_case_that_the_first_machine_lacks_has_no_other_baseline(tmp_path: Path) -> None:
    one = run(tmp_path, [mark("cpu", 8.0)], "one")
    two, three = (run(tmp_path, [mark("cpu", 1.0, workload="a.x")], name) for name in ("two", "three"))
    assert speedups([one, two, three]).empty


def test_a_machine_with_a_cpu_alone_as_baseline(tmp_path: Path) -> None:
    one = run(tmp_path, [mark("cpu", 8.0)], "one", label="A (synthetic)")
    two = run(tmp_path, [mark("cuda:0", 2.0)], "two", label="B (synthetic)")
    assert speedups([one, two]).empty
    assert found(speedups([one, two], "one")) == [("one/cpu", "two/cuda:0", 4.0)]


def test_a_case_met_twice_is_paired_in_order(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cpu", 9.0), mark("cuda:0", 4.0), mark("cuda:0", 3.0)]
    assert [speedup for _, _, speedup in found(speedups([run(tmp_path, marks)]))] == [2.0, 3.0]


def test_unknown_baseline_names_what_exists(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^unknown baseline 'cuda:7': choose from cpu, cuda:0, torch, Synthetic"):
        speedups([run(tmp_path, [mark("cpu", 1.0), mark("cuda:0", 1.0)])], "cuda:7")
