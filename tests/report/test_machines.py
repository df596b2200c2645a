"""Several machines: what is held against what, at which size, and what differs between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import records

from gpubench.report import machines, table
from gpubench.report.judgement import TOO_NOISY
from gpubench.report.render import Table
from gpubench.runfile import reader
from gpubench.runfile.schema import Case, Run

SERVER_CPU = {**records.CPU, "label": "AMD EPYC"}
SERVER_GPU = {**records.GPU, "label": "NVIDIA H200", "driver": "580"}
LAPTOP_CPU = {**records.CPU, "label": "Intel Core"}
LAPTOP_GPU = {**records.GPU, "label": "NVIDIA RTX 4060", "driver": "570"}


def mark(device: str, median: float, workload: str = "matmul.square", **how: Any) -> dict[str, Any]:
    n, dtype, threads = how.pop("n", 64), how.pop("dtype", "float32"), how.pop("threads", 2)
    medians = how.pop("medians", (median, median, median))
    case = Case(workload, device, dtype, {"n": n}, size="n", threads=threads, devices=(device,))
    return records.benchmark(case, median, medians=medians, **how)


def run(folder: Path, name: str, marks: list[dict[str, Any]], **how: Any) -> Run:
    path = folder / f"{name}.json"
    threads, driver = how.pop("machine_threads", 2), how.pop("preset", "quick")
    data = records.run_file(marks, label=name, processes=3, **how)
    data["machine_info"]["gpubench"]["threads"] = threads
    data["gpubench"]["preset"] = driver
    path.write_text(json.dumps(data))
    return reader.read(path)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """A server 8 times a laptop on the GPU and twice on the CPU; the laptop didn't get to the largest size."""
    server = [mark(d, t * n, n=n, threads=8) for d, t in (("cpu", 1.0), ("cuda:0", 0.01)) for n in (64, 512, 4096)]
    laptop = [mark(d, t * n, n=n, threads=2) for d, t in (("cpu", 2.0), ("cuda:0", 0.08)) for n in (64, 512)]
    return [
        run(tmp_path, "server", server, devices=(SERVER_CPU, SERVER_GPU), machine_threads=8, torch="2.13.0+cu130"),
        run(tmp_path, "laptop", laptop, devices=(LAPTOP_CPU, LAPTOP_GPU), torch="2.12.0+cu130"),
    ]


def made(runs: list[Run]) -> dict[str, Table]:
    return {each.title: each for each in machines.machine_tables(table.results_table(runs))}


def test_the_baseline_is_chosen_by_device(runs: list[Run]) -> None:
    tables = made(runs)
    gpus, cpus = tables["GPU against GPU"], tables["CPU against CPU"]
    own = tables["Each GPU against the CPU of its own machine"]
    at = ("n × n matrix products", "matmul.square float32, n=512")  # the largest that all of them measured
    assert gpus.columns == ("work", "benchmark", "time, H200", "RTX 4060")
    assert gpus.rows == ((*at, "5.12 s", "8.0× slower (8.0× slower)"),)
    assert cpus.columns == ("work", "benchmark", "time, EPYC, 8 threads", "Core, 2 threads")
    assert cpus.rows == ((*at, "8 min 32 s", "2.0× slower (2.0× slower)"),)
    assert "threads 2 against 8" in cpus.note
    assert own.columns == ("work", "benchmark", "H200", "RTX 4060")
    assert own.rows == ((*at, "100× (100×)", "25× (25×)"),)
    assert own.note.startswith("H200 against EPYC, 8 threads; RTX 4060 against Core, 2 threads.")


def test_what_differs_is_named_and_what_does_not_is_said(runs: list[Run], tmp_path: Path) -> None:
    differs = made(runs)["What differs between the machines"]
    assert differs.columns == ("what", "server", "laptop")
    assert differs.rows == (
        ("machine", "server", "laptop"),
        ("PyTorch", "2.13.0+cu130", "2.12.0+cu130"),
        ("CPU threads", "8", "2"),
        ("GPU driver", "580", "570"),
    )
    assert differs.note == "The same everywhere: TF32, preset, processes, seed, gpubench."
    other = run(tmp_path, "other", [mark("cpu", 1.0)], tf32=True, preset="full", flags=("contended",))
    facts = {row[0]: row[1:] for row in machines.differences(table.results_table([runs[1], other])).rows}
    assert facts["TF32"] == ("off", "on")
    assert facts["preset"] == ("quick", "full")
    assert facts["machine busy"] == ("no", "yes")
    assert facts["GPU driver"] == ("570", "unknown")


def test_a_single_run_has_no_such_tables(runs: list[Run]) -> None:
    assert machines.machine_tables(table.results_table(runs[:1])) == ()
    empty = table.results_table([])
    assert isinstance(empty, pd.DataFrame)
    assert machines.machine_tables(empty) == ()


def test_noise_and_what_cannot_be_are_no_numbers(tmp_path: Path) -> None:
    wide = mark("cuda:0", 0.1, medians=(0.02, 0.1, 0.5))
    first = run(tmp_path, "a", [mark("cpu", 1.0), mark("cuda:0", 0.1)], devices=(SERVER_CPU, SERVER_GPU))
    second = run(tmp_path, "b", [mark("cpu", 2.0, flags=("noisy",)), wide], devices=(LAPTOP_CPU, LAPTOP_GPU))
    tables = made([first, second])
    assert tables["GPU against GPU"].rows[0][-1] == TOO_NOISY
    assert tables["CPU against CPU"].rows[0][-1] == "2.0× slower (2.0× slower)*"
    assert "* noisy" in tables["CPU against CPU"].note
    above = mark("cuda:0", 0.1, work={"flops": 1e9})
    peak = {"cuda:0": {"throughput": {"float32": 1e9}}}
    third = run(tmp_path, "c", [mark("cpu", 1.0), above], devices=(LAPTOP_CPU, LAPTOP_GPU), ceilings=peak)
    tables = made([first, third])
    assert tables["Each GPU against the CPU of its own machine"].rows[0][2:] == ("10× (10×)",)
    assert "GPU against GPU" not in tables  # the third's is ten times its peak


def test_the_workload_in_the_middle_stands_for_its_kind(tmp_path: Path) -> None:
    names = {"models.a": 2.0, "models.b": 50.0, "models.c": 8.0}
    first = run(tmp_path, "a", [mark("cpu", 1.0, name) for name in names])
    second = run(tmp_path, "b", [mark("cpu", slower, name) for name, slower in names.items()])
    shared = machines.shared_benchmarks(table.results_table([first, second]))
    assert [(each.kind, each.name) for each in shared] == [("Running networks", "models.c float32, n=64")]
    alone = run(tmp_path, "c", [mark("cpu", 1.0, "models.b")])
    shared = machines.shared_benchmarks(table.results_table([first, alone]))
    assert [each.name for each in shared] == ["models.b float32, n=64"]  # most devices have it


def test_devices_of_one_name_are_told_apart(tmp_path: Path) -> None:
    two = ({**SERVER_GPU}, {**SERVER_GPU, "name": "cuda:1"})
    marks = [mark("cpu", 1.0), mark("cuda:0", 0.1), mark("cuda:1", 0.1)]
    results = table.results_table([run(tmp_path, name, marks, devices=(SERVER_CPU, *two)) for name in ("a", "b")])
    assert machines.device_names(results) == {
        ("a", "cpu"): "EPYC, 2 threads · a",
        ("a", "cuda:0"): "H200 cuda:0 · a",
        ("a", "cuda:1"): "H200 cuda:1 · a",
        ("b", "cpu"): "EPYC, 2 threads · b",
        ("b", "cuda:0"): "H200 cuda:0 · b",
        ("b", "cuda:1"): "H200 cuda:1 · b",
    }


def test_gpus_of_different_kinds_are_compared(tmp_path: Path) -> None:
    apple = {"name": "mps", "kind": "mps", "label": "Apple M3"}
    first = run(tmp_path, "a", [mark("cpu", 1.0), mark("cuda:0", 0.1)], devices=(SERVER_CPU, SERVER_GPU))
    second = run(tmp_path, "b", [mark("cpu", 1.0), mark("mps", 0.2)], devices=(LAPTOP_CPU, apple))
    tables = made([first, second])
    assert tables["GPU against GPU"].columns[2:] == ("time, H200", "Apple M3")
    assert tables["GPU against GPU"].rows[0][2:] == ("100 ms", "2.0× slower (2.0× slower)")


def test_a_device_too_many_is_counted(tmp_path: Path) -> None:
    runs = [run(tmp_path, f"r{i}", [mark("cpu", 1.0 + i)]) for i in range(machines.MOST_COLUMNS + 3)]
    tables = made(runs)
    assert len(tables["CPU against CPU"].columns) == 3 + machines.MOST_COLUMNS
    assert "2 more devices" in tables["CPU against CPU"].note
    assert "3 more runs" in tables["What differs between the machines"].note


def test_a_workload_above_the_peak_stands_for_no_kind_that_has_a_sound_one(tmp_path: Path) -> None:
    above = mark("cpu", 1.0, "models.a", work={"flops": 1e12})
    peak = {"cpu": {"throughput": {"float32": 1e9}}}
    first = run(tmp_path, "a", [above, mark("cpu", 1.0, "models.b")], ceilings=peak)
    second = run(tmp_path, "b", [mark("cpu", 1.0, "models.a"), mark("cpu", 2.0, "models.b")])
    shared = machines.shared_benchmarks(table.results_table([first, second]))
    assert [each.name for each in shared] == ["models.b float32, n=64"]
