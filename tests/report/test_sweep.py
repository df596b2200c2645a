"""Which case stands for a workload."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench.report import sweep
from gpubench.report.labels import setting
from gpubench.runfile import matching
from gpubench.runfile.schema import Result


def row(workload: str, dtype: str = "float32", **params: Any) -> dict[str, Any]:
    result = Result(workload, "cpu", dtype, params, size="n" if "n" in params else None)
    return {"workload": workload, "dtype": dtype, "_result": result}


@pytest.mark.parametrize(
    ("workload", "kind"),
    [
        ("matmul.square", matching.MATRIX),
        ("matmul.batched", matching.OTHER_MATRIX),
        ("models.bert", matching.NETWORKS),
        ("training.lenet", matching.TRAINING),
        ("llm.decode", matching.NETWORKS),
        ("serving.bert", matching.NETWORKS),
        ("attention.causal", matching.OPERATORS),
        ("quantised.int8", matching.OTHER_MATRIX),
        ("elementwise.add", matching.ELEMENTWISE),
        ("classic.step", matching.ELEMENTWISE),
        ("reductions.softmax", matching.OPERATORS),
        ("convolution.conv2d", matching.OPERATORS),
        ("linear_algebra.svd", matching.LINEAR_ALGEBRA),
        ("fft.complex", matching.LINEAR_ALGEBRA),
        ("sparse.csr", matching.LINEAR_ALGEBRA),
        ("irregular.sort", matching.IRREGULAR),
        ("science.kmeans", matching.SCIENCE),
        ("mine.work", "mine.work"),
        ("training.part", None),
        ("transfer.create", None),
        ("serving.cold_start", None),
        ("models.compile_mode", None),
        ("distributed.lenet", None),
    ],
)
def test_kinds_of_work(workload: str, kind: str | None) -> None:
    assert matching.kind_of(workload) == kind


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
    names = ["mine.z", "classic.step", "elementwise.add", "models.bert", "matmul.square", "models.vit", "mine.a"]
    kinds = sweep.representatives([row(name) for name in [*names, "transfer.create"]])
    assert list(kinds) == [matching.MATRIX, matching.NETWORKS, matching.ELEMENTWISE, "mine.z", "mine.a"]
    assert [each["workload"] for each in kinds[matching.NETWORKS]] == ["models.bert", "models.vit"]
    assert [each["workload"] for each in kinds[matching.ELEMENTWISE]] == ["elementwise.add", "classic.step"]
