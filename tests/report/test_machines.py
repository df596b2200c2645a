"""Several machines: what differs between them, and what the same work costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import records
from comparing import mark, rows, run

from gpubench.errors import UsageError
from gpubench.report.answer import Answer
from gpubench.report.study import Study, parse_price
from gpubench.report.tables import answer_tables, cost_table, differences

SERVER = ({**records.CPU, "label": "AMD EPYC"}, {**records.GPU, "label": "NVIDIA H200", "driver": "580"})
LAPTOP = ({**records.CPU, "label": "Intel Core"}, {**records.GPU, "label": "NVIDIA RTX 4060", "driver": "570"})


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A server 8 times a laptop on the GPU and twice on the CPU; the laptop didn't get to the largest size."""

    def marks(cpu: float, gpu: float, sizes: tuple[int, ...], threads: int) -> list[dict[str, Any]]:
        speeds = (("cpu", cpu), ("cuda:0", gpu))
        return [mark("matmul.square", d, t * n, n=n, threads=threads) for d, t in speeds for n in sizes]

    server = run(tmp_path, marks(1.0, 0.01, (64, 512, 4096), 8), "server", devices=SERVER, machine_threads=8,
                 label="server", torch="2.13.0+cu130")  # fmt: skip
    laptop = run(tmp_path, marks(2.0, 0.08, (64, 512), 2), "laptop", devices=LAPTOP, label="laptop",
                 torch="2.12.0+cu130")  # fmt: skip
    return Study([server, laptop])


def test_gpus_stand_side_by_side_at_the_largest_size_that_both_have(study: Study) -> None:
    (table,) = answer_tables(Answer(study))
    assert table.title == "Speedup over RTX 4060"
    (row,) = rows(table)
    assert row["H200"].startswith("8.0×")


def test_what_differs_is_named_and_what_does_not_is_said(study: Study) -> None:
    table = differences(study)
    found = {what: told for what, *told in table.rows}
    assert found["PyTorch"] == ["2.13.0+cu130", "2.12.0+cu130"]
    assert found["CPU threads"] == ["8", "2"]
    assert found["GPU driver"] == ["580", "570"]
    assert "preset" in table.note


def test_threads_are_those_that_were_used(tmp_path: Path) -> None:
    one = Study([run(tmp_path, [mark("matmul.square", "cpu", 1.0, threads=1)], machine_threads=2)])
    assert one.names.of(one.measured[0]) == "Synthetic, 1 thread"


def test_devices_of_one_name_are_told_apart(tmp_path: Path) -> None:
    twins = (records.CPU, records.GPU, {**records.GPU, "name": "cuda:1"})
    marks = [mark("matmul.square", device, 1.0) for device in ("cuda:0", "cuda:1")]
    study = Study([run(tmp_path, marks, name, devices=twins) for name in ("one", "two")])
    names = {study.names.of(row) for row in study.measured}
    assert names == {f"Synthetic H #{i} · {name}" for i in (0, 1) for name in ("one", "two")}


def test_a_price_is_a_name_and_an_amount() -> None:
    assert parse_price("NVIDIA H200=2.99") == ("NVIDIA H200", 2.99)
    for wrong in ("H200", "=2", "H200=", "H200=-1", "H200=nan", "H200=inf"):
        with pytest.raises(UsageError, match="invalid price"):
            parse_price(wrong)


@pytest.mark.parametrize("name", ["server", "NVIDIA H200", "H200", "h200", "EPYC", "serv"])
def test_a_machine_or_a_device_is_named_as_people_name_it(study: Study, name: str) -> None:
    (found, _) = Study(study.runs, prices=[f"{name}=2", "laptop=1"]).priced
    assert {row.run_name for row in found.rows} == {"server"}


def test_a_price_for_what_is_not_there_names_what_is(study: Study) -> None:
    with pytest.raises(UsageError, match=r"unknown machine or device 'A100': choose from .*H200.*RTX 4060"):
        Study(study.runs, prices=["A100=1", "laptop=1"])
    with pytest.raises(UsageError, match="one price compares nothing"):
        Study(study.runs, prices=["H200=1"])


def test_every_name_that_is_offered_is_taken(tmp_path: Path) -> None:
    """ "unknown machine or device 'Xeon': choose from Xeon, H200": the machine's own name has it too."""
    marks = [mark("matmul.square", device, 1.0) for device in ("cpu", "cuda:0")]
    study = Study([run(tmp_path, marks, devices=SERVER, label="AMD EPYC Server")])
    offered = {study.names.short(row) for row in study.measured}
    for name in offered:
        assert {study.names.short(row) for row in Study(study.runs, prices=[f"{name}=1", "H200=2"]).priced[0].rows} == {
            name
        }
    assert len(offered) == 2


def test_the_same_work_on_each_machine_relative_to_the_cheapest(study: Study) -> None:
    """8 times as fast for 16 times the money: twice as dear, on the fastest device of each machine."""
    (row,) = rows(cost_table(Study(study.runs, prices=["server=16", "laptop=1"])))
    assert row["server (H200), 16 per hour"] == "2.0×"
    assert row["laptop (RTX 4060), 1 per hour"] == "1.0×"


def test_a_machine_called_by_a_letter_of_its_gpu_is_named_with_the_gpu(tmp_path: Path) -> None:
    machines = (("h", SERVER), ("l", LAPTOP))
    made = [run(tmp_path, [mark("a.b", "cuda:0", 1.0)], name, devices=of) for name, of in machines]
    assert "h (H200), 2 per hour" in cost_table(Study(made, prices=["h=2", "l=3"])).columns


def test_two_devices_of_one_machine_have_their_own_prices(study: Study) -> None:
    """A GPU isn't compared with the CPU of the machine that has its price."""
    (row,) = rows(cost_table(Study(study.runs, prices=["AMD EPYC=1", "H200=50"])))
    assert row["AMD EPYC, 1 per hour"] == "2.0×"
    assert row["H200, 50 per hour"] == "1.0×"


def test_a_price_of_work_that_does_not_fill_the_gpu_is_marked_and_stands_last(tmp_path: Path) -> None:
    """LeNet was 41 times as dear on an H200, whose launches it waits for."""
    waits = {"device_s": 1e-3, "launch_s": 2e-3}
    made = [
        run(tmp_path, [mark("a.waits", "cuda:0", 1.0, **how), mark("a.works", "cuda:0", 0.5)], name, devices=devices)
        for name, devices, how in (("server", SERVER, waits), ("laptop", LAPTOP, {}))
    ]
    study = Study(made)
    first, last = cost_table(Study(study.runs, prices=["H200=2", "RTX 4060=1"])).rows
    assert {"a.works float32, n=64", "2.0×"} <= {*first}
    assert {"a.waits float32, n=64", "2.0×†"} <= {*last}
