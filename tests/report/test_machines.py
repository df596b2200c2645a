"""Several machines: what differs between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import records
from reading import mark, rows, run

from gpubench.report.answer import Answer
from gpubench.report.study import Study
from gpubench.report.tables import answer_tables, differences

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
    assert row["speedup"].startswith("8.0×")


def test_what_differs_is_named_and_what_does_not_is_said(study: Study) -> None:
    table = differences(study)
    found = {what: told for what, *told in table.rows}
    assert found["torch"] == ["2.13.0+cu130", "2.12.0+cu130"]
    assert found["threads"] == ["8", "2"]
    assert found["cuda:0 driver"] == ["580", "570"]
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
