"""Which case stands for a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubench.report import sweeps, words
from gpubench.report.rows import Measured
from gpubench.report.words import parameter
from gpubench.runfile.schema import Machine, Result, Run

RUN = Run(path=Path("run.json"), machine=Machine("m", ()), results=())


def row(workload: str, dtype: str = "float32", kind: str = "", **params: Any) -> Measured:
    size = "n" if "n" in params else None
    return Measured(RUN, "run", Result(workload, "cpu", dtype, params, size=size, kind=kind), size)


def test_a_workload_stands_at_its_largest_size_in_its_plainest_setting() -> None:
    rows = [
        row("a.b", form=form, n=n, dtype=dtype)
        for dtype in ("float16", "float64", "float32")
        for form in ("allocating", "out")
        for n in (10, 1000, 100)
    ]
    chosen = sweeps.plainest_first(rows)[0]
    assert words.setting(chosen.result) == "float32, out, n=1000"
    assert sweeps.plainest_first(rows[::-1])[0] is chosen  # not by the order of the file
    halves, double = row("a.b", "float16", n=1), row("a.b", "float64", n=1)
    assert sweeps.plainest_first([halves, double])[0] is double


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(("limit", value, f"limit={value}") for value in (None, True, 4, 1.5)),
        *(("limit", value, value) for value in ("out", "größer 2")),
        *(("limit", value, f'limit="{told}"') for value, told in (("", ""), (" ", " "), ("\t", "\\t"), (",", ","))),
        ("separator_between_columns", ",", 'separator…en_columns=","'),  # which doesn't hide its value
        ("separator_between_columns", 4, "separator_…een_columns=4"),
        ("separator", "x" * 90, f"{'x' * 11}…{'x' * 12}"),
    ],
)
def test_a_setting_reads_as_python_writes_it(name: str, value: Any, said: str) -> None:
    assert parameter(name, value) == said
    assert len(said) <= 24


def test_kinds_come_in_one_order_and_ones_own_work_first() -> None:
    kinds = ("elementwise", "", "networks", "copies", "matmul", "networks")
    rows = [row(f"some.work{i}", kind=kind) for i, kind in enumerate(kinds)]
    found = [[each.result.kind for each in members] for members in sweeps.in_order(rows)]
    assert found == [[""], ["matmul"], ["networks"] * 2, ["elementwise"]]
    assert len(sweeps.in_order([row("transfer.create", kind="copies")])) == 1  # there is nothing else
