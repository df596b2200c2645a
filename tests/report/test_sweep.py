"""Which case stands for a workload."""

from __future__ import annotations

from typing import Any

from gpubench.report import sweep
from gpubench.report.labels import setting
from gpubench.runfile.kinds import KINDS
from gpubench.runfile.schema import Result


def row(workload: str, dtype: str = "float32", kind: str = "", **params: Any) -> dict[str, Any]:
    result = Result(workload, "cpu", dtype, params, size="n" if "n" in params else None, kind=kind)
    return {"workload": workload, "dtype": dtype, "_result": result}


def test_a_workload_stands_at_its_largest_size_in_its_plainest_setting() -> None:
    rows = [
        row("a.b", form=form, n=n, dtype=dtype)
        for dtype in ("float16", "float64", "float32")
        for form in ("allocating", "out")
        for n in (10, 1000, 100)
    ]
    chosen = sweep.representative(rows)
    assert sweep.setting_of(chosen) == "float32, out, n=1000"
    assert sweep.representative(rows[::-1]) is chosen  # not by the order of the file


def test_a_setting_reads_as_python_writes_it() -> None:
    words = [setting("limit", value) for value in (None, True, 4, 1.5, "out", "", " ", "\t", ",", "größer 2")]
    assert words == [
        "limit=None",
        "limit=True",
        "limit=4",
        "limit=1.5",
        "out",
        'limit=""',
        'limit=" "',
        'limit="\\t"',
        'limit=","',
        "größer 2",
    ]


def test_a_long_name_of_a_parameter_does_not_hide_its_value() -> None:
    shown = [setting("separator_between_columns", value) for value in (",", ";", " ", 4, "x" * 90)]
    assert len(set(shown)) == 5
    assert {len(words) <= 24 for words in shown} == {True}
    assert shown[0] == 'separator_between_c…=","'


def test_half_precision_never_leads_where_there_is_another() -> None:
    halves, double = row("a.b", "float16", n=1), row("a.b", "float64", n=1)
    assert sweep.representative([halves, double]) is double
    assert sweep.representative([halves]) is halves


def test_kinds_come_in_one_order_and_ones_own_work_last() -> None:
    networks, elementwise, matmul = ({"kind": kind} for kind in ("networks", "elementwise", "matmul"))
    suite = {"classic.step": elementwise, "elementwise.add": elementwise, "models.bert": networks}
    suite |= {"matmul.square": matmul, "models.vit": networks}
    rows = [row("mine.z"), *(row(name, **kind) for name, kind in suite.items()), row("mine.a")]
    kinds = sweep.representatives([*rows, row("transfer.create", kind="copies")])
    names = {kind: [each["workload"] for each in members] for kind, members in kinds.items()}
    assert list(names.items()) == [
        (KINDS["matmul"].heading, ["matmul.square"]),
        (KINDS["networks"].heading, ["models.bert", "models.vit"]),
        (KINDS["elementwise"].heading, ["elementwise.add", "classic.step"]),
        ("mine.z", ["mine.z"]),
        ("mine.a", ["mine.a"]),
    ]
