"""Several machines: what is held against what; and what work costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.errors import UsageError
from gpubench.report import machines, speedup, table
from gpubench.report.machines import cheaper_price_ratio, parse_prices, price_table, work_per_price
from gpubench.runfile import reader
from gpubench.runfile.schema import Case, Run


def run(folder: Path, name: str, cpu: float, gpu: float | None, spread: float = 0.01, **how: Any) -> Run:
    """One benchmark of ten samples on a CPU, and on a GPU named for the run."""
    marks, devices = [], [{**records.CPU, "label": f"CPU {name}"}]
    if gpu is not None:
        devices.append({**records.GPU, "label": f"NVIDIA {name}"})
    for device, seconds in (("cpu", cpu), ("cuda:0", gpu)):
        if seconds is not None:
            case = Case("models.mine", device, "float32", {"n": 64}, size="n", devices=(device,))
            medians = (seconds * (1 - spread), seconds, seconds * (1 + spread))
            work = {"items": 10, "unit": "sample"}
            energy = {"energy_j": 5.0} if device != "cpu" else {}
            marks.append(records.benchmark(case, seconds, medians=medians, work=work, **energy))
    path = folder / f"{name}.json"
    data = records.run_file(marks, devices=tuple(devices), label=f"Machine {name}", processes=3, **how)
    path.write_text(json.dumps(data))
    return reader.read(path)


def test_like_is_held_against_like_and_each_gpu_against_its_own_cpu(tmp_path: Path) -> None:
    runs = [run(tmp_path, "A", 1.0, 0.1), run(tmp_path, "B", 0.5, 0.2)]
    found = {each.title: (each.columns, each.rows) for each in machines.machine_tables(table.results_table(runs))}
    name = "models.mine float32, n=64"
    assert found == {
        "GPU against its own CPU": (("benchmark", "NVIDIA A", "NVIDIA B"), ((name, "10×", "2.5×"),)),
        "GPU against GPU: how much faster than NVIDIA A": (("benchmark", "NVIDIA B"), ((name, "2.0× slower"),)),
        "CPU against CPU: how much faster than CPU A, 2 threads": (
            ("benchmark", "CPU B, 2 threads"), ((name, "2.0×"),),
        ),
    }  # fmt: skip


def test_one_machine_and_machines_without_a_gpu(tmp_path: Path) -> None:
    assert machines.machine_tables(table.results_table([run(tmp_path, "A", 1.0, 0.1)])) == ()
    runs = [run(tmp_path, "A", 1.0, None), run(tmp_path, "B", 0.5, None)]
    (only,) = machines.machine_tables(table.results_table(runs))
    assert only.title.startswith("CPU against CPU")


def test_what_differs_between_the_machines_is_named(tmp_path: Path) -> None:
    runs = [run(tmp_path, "A", 1.0, None), run(tmp_path, "B", 0.5, None, torch="2.14.0+cu130", seed=1)]
    (only,) = machines.machine_tables(table.results_table(runs))
    assert only.note == "The machines differ in PyTorch: 2.13.0+cpu (A), 2.14.0+cu130 (B); seed: 0 (A), 1 (B)."


def test_a_noisy_ratio_is_no_number(tmp_path: Path) -> None:
    runs = [run(tmp_path, "A", 1.0, None), run(tmp_path, "B", 0.5, None, spread=0.7)]
    (only,) = machines.machine_tables(table.results_table(runs))
    assert only.rows[0][1] == "unknown (too noisy)"


def test_two_devices_of_one_name_are_told_apart_by_their_run(tmp_path: Path) -> None:
    runs = [run(tmp_path, "A", 1.0, 0.1), run(tmp_path, "B", 0.5, 0.2)]
    for each in runs:
        path = each.path
        path.write_text(path.read_text().replace(f"NVIDIA {path.stem}", "NVIDIA X"))
    results = table.results_table([reader.read(each.path) for each in runs])
    assert machines.machine_tables(results)[0].columns == ("benchmark", "NVIDIA X (A)", "NVIDIA X (B)")


def test_prices_are_parsed() -> None:
    assert parse_prices(["H200=2.99", "a=b=1"]) == {"H200": 2.99, "a=b": 1.0}
    for bad in ("H200", "=2", "H200=", "H200=-1", "H200=nan", "H200=inf", "H200=0"):
        with pytest.raises(UsageError, match="invalid price"):
            parse_prices([bad])


def priced(folder: Path, prices: dict[str, float], gpu: float = 0.1) -> dict[str, tuple[str, ...]]:
    results = table.results_table([run(folder, "A", 1.0, gpu)])
    made = price_table(results, speedup.pair(results).table, prices)
    return {row[1]: row for row in made.rows}


def test_work_for_money_and_energy(tmp_path: Path) -> None:
    assert work_per_price(10.0, 2.0) == 18_000
    rows = priced(tmp_path, {"nvidia a": 3.6, "CPU A": 0.36})
    assert rows["NVIDIA A"][2:] == ("3.6", "100 ksamples", "500 mJ", "above 10× its price")
    assert rows["CPU A"][2:] == ("0.36", "100 ksamples", "—", "—")
    assert list(priced(tmp_path, {"cuda:0": 1.0})) == ["NVIDIA A"]
    assert set(priced(tmp_path, {"Machine A": 1.0})) == {"NVIDIA A", "CPU A"}
    assert priced(tmp_path, {"cuda:0": 1.0}, gpu=2.0)["NVIDIA A"][5] == "at the same price"


def test_a_price_for_what_is_not_there_names_what_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'H100', which isn't there: choose from CPU A, cpu, Machine A, A, NVIDIA A"):
        priced(tmp_path, {"H100": 1.0})


def test_the_cpu_is_cheaper_from_the_speedup_on() -> None:
    pair = {
        "speedup": 10.0,
        "low": 8.0,
        "high": 12.0,
        "one_shot_speedup": 2.0,
        "one_shot_low": 1.0,
        "one_shot_high": 5.0,
    }
    assert cheaper_price_ratio(pair) == 10.0
    assert cheaper_price_ratio(pair, copies=True) is None  # too noisy
