"""Which measured case stands for a workload: at its largest size, in one setting that can be named, never a mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .labels import Row, family, grouped, setting
from .sweep import size_of, size_parameter

TRAINING, NETWORKS, MATRIX = "Training networks", "Running networks", "n × n matrix products"
OTHER_MATRIX, ELEMENTWISE = "Other matrix products", "Elementwise work"
WORK_KINDS = (MATRIX, OTHER_MATRIX, NETWORKS, TRAINING, ELEMENTWISE)
"""Kinds of work in the order of a report; a workload of none of them is a kind of its own, by its name."""
_FAMILIES = {"training": TRAINING, "models": NETWORKS, "matmul": OTHER_MATRIX, "elementwise": ELEMENTWISE}
_PARTS = {"training.part", "training.large_part", "training.input", "training.pinned_input", "training.width"}
"""Parts of a step, and a step at widths that nobody would train: no work of their own."""
_NO_WORK = {"transfer", "distributed", "data_parallel", "model_parallel"}
"""Families about copies, and about several devices, which have tables of their own."""
_DTYPES = ("float32", "bfloat16", "float64", "tf32", "float16")
"""The first that a workload has stands for it; half precision, which many CPUs only emulate, never before float32."""
_USUAL = ("out", "preallocated")
"""Settings that time the work alone, without allocating its result."""


def kind_of(workload: str) -> str | None:
    """``Elementwise work``; the workload itself where it is nobody's; None for what is no work of its own."""
    if workload in _PARTS or family(workload) in _NO_WORK:
        return None
    return MATRIX if workload == "matmul.square" else _FAMILIES.get(family(workload), workload)


def representative(rows: Sequence[Row]) -> Row:
    """Of a workload's rows on one device: the plainest setting at its largest size, the same on every machine."""
    size = size_parameter(list(rows))

    def order(row: Row) -> tuple[object, ...]:
        case = row["_result"]
        dtype = _DTYPES.index(case.dtype) if case.dtype in _DTYPES else len(_DTYPES)
        numbers = [-value for name, value in sorted(case.params.items()) if isinstance(value, int | float)]
        largest = -(size_of(row, size) or 0.0) if size else 0.0
        usual = not any(value in _USUAL for value in case.params.values())
        return case.variant != "eager", dtype, case.cache != "hot", usual, largest, numbers

    return min(rows, key=order)


def representatives(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """By kind of work, in the order of WORK_KINDS, then the workloads of no kind: a row for each workload."""
    kinds: dict[str, list[Row]] = {}
    for workload, members in grouped(rows, lambda row: row["workload"]).items():
        kind = kind_of(workload)
        if kind is not None:
            kinds.setdefault(kind, []).append(representative(members))
    order = [*(kind for kind in WORK_KINDS if kind in kinds), *(kind for kind in kinds if kind not in WORK_KINDS)]
    return {kind: kinds[kind] for kind in order}


def setting_of(row: Row) -> str:
    """``float32, out, n=4096``: the setting in which a row stands for its workload."""
    case = row["_result"]
    words = [case.dtype, *([case.variant] if case.variant != "eager" else [])]
    return ", ".join([word for word in words if word] + [setting(name, value) for name, value in case.params.items()])
