"""Several machines: what is held against what, at which size, what differs between them, and what work costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import records

from gpubench.errors import UsageError
from gpubench.report import machines, table
from gpubench.report.judgement import TOO_NOISY, UNSURE
from gpubench.report.render import Table
from gpubench.runfile import reader
from gpubench.runfile.schema import Case, Run

SERVER_CPU = {**records.CPU, "label": "AMD EPYC"}
SERVER_GPU = {**records.GPU, "label": "NVIDIA H200", "driver": "580"}
LAPTOP_CPU = {**records.CPU, "label": "Intel Core"}
LAPTOP_GPU = {**records.GPU, "label": "NVIDIA RTX 4060", "driver": "570"}


def bought(results: pd.DataFrame, amounts: dict[str, float]) -> tuple[Table, ...]:
    return machines.price_tables(machines.side_by_side(results), machines.device_prices(results, amounts))


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


def tables_of(results: pd.DataFrame) -> tuple[Table, ...]:
    return machines.machine_tables(machines.side_by_side(results), results)


def made(runs: list[Run]) -> dict[str, Table]:
    return {each.title: each for each in tables_of(table.results_table(runs))}


def test_the_baseline_is_chosen_by_device(runs: list[Run]) -> None:
    tables = made(runs)
    gpus, cpus = tables["GPU against GPU"], tables["CPU against CPU"]
    own = tables["Each GPU against the CPU of its own machine"]
    at = ("n × n matrix products", "matmul.square float32, n=512")  # the largest that all of them measured
    assert gpus.columns == ("work", "benchmarks", "H200", "RTX 4060")
    assert gpus.rows == ((*at, "1×", "8.0× slower (8.0× slower)"),)
    assert cpus.columns == ("work", "benchmarks", "EPYC, 8 threads", "Core, 2 threads")
    assert cpus.rows == ((*at, "1×", "2.0× slower (2.0× slower)"),)
    assert "threads 2 against 8" in cpus.note
    assert own.columns == ("work", "benchmarks", "H200", "RTX 4060")
    assert own.rows == ((*at, "100× (100×)", "25× (25×)"),)
    assert own.note.startswith("Speedup: H200 against EPYC, 8 threads; RTX 4060 against Core, 2 threads.")


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
    assert tables_of(table.results_table(runs[:1])) == ()
    empty = table.results_table([])
    assert isinstance(empty, pd.DataFrame)
    assert tables_of(empty) == ()


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
    lines = machines.work_lines(table.results_table([first, second]))
    assert [(each.kind, each.middle.name) for each in lines] == [("Running networks", "models.c float32, n=64")]
    alone = run(tmp_path, "c", [mark("cpu", 1.0, "models.b")])
    lines = machines.work_lines(table.results_table([first, alone]))
    assert [each.contents for each in lines] == ["models.b float32, n=64"]  # most devices have it


def test_devices_of_one_name_are_told_apart(tmp_path: Path) -> None:
    two = ({**SERVER_GPU}, {**SERVER_GPU, "name": "cuda:1"})
    marks = [mark("cpu", 1.0), mark("cuda:0", 0.1), mark("cuda:1", 0.1)]
    results = table.results_table([run(tmp_path, name, marks, devices=(SERVER_CPU, *two)) for name in ("a", "b")])
    assert machines.device_names(results) == {
        ("a", "cpu"): "EPYC, 2 threads · a",
        ("a", "cuda:0"): "H200 #0 · a",
        ("a", "cuda:1"): "H200 #1 · a",
        ("b", "cpu"): "EPYC, 2 threads · b",
        ("b", "cuda:0"): "H200 #0 · b",
        ("b", "cuda:1"): "H200 #1 · b",
    }


def test_gpus_of_different_kinds_are_compared(tmp_path: Path) -> None:
    apple = {"name": "mps", "kind": "mps", "label": "Apple M3"}
    first = run(tmp_path, "a", [mark("cpu", 1.0), mark("cuda:0", 0.1)], devices=(SERVER_CPU, SERVER_GPU))
    second = run(tmp_path, "b", [mark("cpu", 1.0), mark("mps", 0.2)], devices=(LAPTOP_CPU, apple))
    tables = made([first, second])
    assert tables["GPU against GPU"].columns[2:] == ("H200", "Apple M3")
    assert tables["GPU against GPU"].rows[0][2:] == ("1×", "2.0× slower (2.0× slower)")


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
    lines = machines.work_lines(table.results_table([first, second]))
    assert [each.middle.name for each in lines] == ["models.b float32, n=64"]


PRICED = ({**records.CPU, "label": "Intel Xeon"}, {**records.GPU, "label": "NVIDIA H200"})
WORK = {"items": 10, "unit": "sample", "flops": 1e6}


def priced(
    device: str, median: float, *medians: float, work: dict[str, Any] | None = None, **how: Any
) -> dict[str, Any]:
    case = Case("models.net", device, "float32", {"batch": 10}, size="batch", threads=2, devices=(device,))
    return records.benchmark(case, median, medians=medians or (median,) * 3, work=WORK if work is None else work, **how)


def results(folder: Path, cpu: dict[str, Any], gpu: dict[str, Any]) -> pd.DataFrame:
    path = folder / "mine.json"
    path.write_text(json.dumps(records.run_file([cpu, gpu], devices=PRICED, processes=3, label="Server")))
    return table.results_table([reader.read(path)])


@pytest.fixture
def ten(tmp_path: Path) -> pd.DataFrame:
    """A GPU ten times as fast as the CPU."""
    return results(tmp_path, priced("cpu", 1.0), priced("cuda:0", 0.1, energy_j=50.0))


def test_a_price_is_a_name_and_an_amount() -> None:
    assert machines.parse_price("H200=2.99") == ("H200", 2.99)
    assert machines.parse_price("a=b=3") == ("a=b", 3.0)
    for words in ("H200", "=3", " =3", "H200=", "H200=x", "H200=0", "H200=-1", "H200=nan", "H200=inf"):
        with pytest.raises(UsageError, match=r"write NAME=2\.99"):
            machines.parse_price(words)


@pytest.mark.parametrize("name", ["H200", "h200", "NVIDIA H200", "cuda:0"])
def test_a_device_is_named_as_people_name_it(ten: pd.DataFrame, name: str) -> None:
    assert machines.device_prices(ten, {name: 3.0}) == {("mine", "cuda:0"): 3.0}


@pytest.mark.parametrize("name", ["Server", "mine"])
def test_a_machine_stands_for_its_devices_and_a_device_goes_before(ten: pd.DataFrame, name: str) -> None:
    costs = machines.device_prices(ten, {"cpu": 0.5, name: 3.0})
    assert costs == {("mine", "cpu"): 0.5, ("mine", "cuda:0"): 3.0}


def test_a_price_for_what_is_not_there_names_what_is(ten: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match=r"called 'A100': a price can be given for Xeon, H200, mine$"):
        bought(ten, {"A100": 2.0})


def test_work_for_money_and_energy_of_an_item(ten: pd.DataFrame) -> None:
    work, cheaper = bought(ten, {"cpu": 0.5, "H200": 3.6})
    assert [row[2:] for row in work.rows] == [
        ("Xeon, 2 threads", "0.50", "72.0 ksamples", "—"),  # 10 samples/s, 7200 s for 1.00
        ("H200", "3.60", "100 ksamples", "5.00 J/sample"),  # 100 samples/s, 1000 s for 1.00
    ]
    assert work.rows[0][:2] == ("Running networks", "models.net float32, batch=10")
    assert cheaper.title == "Which device is cheaper: H200 or Xeon, 2 threads"
    assert cheaper.columns == ("work", "benchmarks", "price ratio", "break-even ratio", "cheaper")
    assert [row[2:] for row in cheaper.rows] == [("7.2×", "10×", "H200")]


def test_the_cpu_is_cheaper_from_the_speedup_on(tmp_path: Path) -> None:
    table_of = results(tmp_path, priced("cpu", 1.0, 0.95, 1.0, 1.05), priced("cuda:0", 0.1, 0.095, 0.1, 0.105))

    def cheaper(ratio: float) -> str:
        return bought(table_of, {"cpu": 1.0, "cuda:0": ratio})[1].rows[0][-1]

    assert cheaper(6.0) == "H200"
    assert cheaper(10.0) == UNSURE
    assert cheaper(15.0) == "Xeon, 2 threads"


def test_one_price_gives_the_ratio_up_to_which_it_pays(ten: pd.DataFrame) -> None:
    work, cheaper = bought(ten, {"H200": 3.6})
    assert [row[2] for row in work.rows] == ["H200"]
    assert cheaper.rows[0][2:] == ("—", "10×", "—")
    assert bought(ten, {}) == ()


def test_work_that_declares_nothing_is_counted_in_calls(tmp_path: Path) -> None:
    nothing = {"items": None, "flops": None}
    frame = results(tmp_path, priced("cpu", 1.0, work=nothing), priced("cuda:0", 0.1, work=nothing, energy_j=50.0))
    (row,) = bought(frame, {"H200": 3.6})[0].rows
    assert row[-2:] == ("10.0 kcalls", "50.0 J/call")
    (row,) = bought(frame, {"cpu": 3.6})[0].rows
    assert row[-1] == "1.00 kcalls"  # no energy, no column


def test_noise_has_no_price(tmp_path: Path) -> None:
    frame = results(tmp_path, priced("cpu", 1.0), priced("cuda:0", 0.1, 0.02, 0.1, 0.5))
    work, cheaper = bought(frame, {"H200": 3.6, "cpu": 1.0})
    assert work.rows[1][-1] == TOO_NOISY
    assert cheaper.rows[0][2:] == ("3.6×", TOO_NOISY, UNSURE)


def test_a_part_of_a_name_that_no_other_has_is_enough(ten: pd.DataFrame) -> None:
    assert machines.device_prices(ten, {"h20": 3.0}) == {("mine", "cuda:0"): 3.0}
    with pytest.raises(UsageError, match="called 'u'"):  # cpu and cuda:0
        machines.device_prices(ten, {"u": 3.0})


def test_what_has_a_price_on_both_sides_belongs_to_the_answer(ten: pd.DataFrame) -> None:
    compared = machines.side_by_side(ten)
    first, others = machines.leading_tables(compared, ten, machines.device_prices(ten, {"cpu": 0.5, "H200": 3.0}))
    assert [each.title for each in first] == ["Which device is cheaper: H200 or Xeon, 2 threads"]
    assert [each.title for each in others] == ["Work for money"]
    first, others = machines.leading_tables(compared, ten, machines.device_prices(ten, {"H200": 3.0}))
    assert first == []
    assert len(others) == 2
