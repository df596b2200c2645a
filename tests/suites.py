"""Run files of a small suite, to compare."""

import copy
from typing import Any

import records

NAMES = ("a.fast", "a.slow", "b.even", "b.odd", "c.one", "c.two")


def run_file(factor: float = 1.0, wobble: float = 0.0, names: tuple[str, ...] = NAMES, **how: Any) -> dict[str, Any]:
    """A run of three processes; ``factor`` is how much slower a.slow is."""
    marks = []
    for i, name in enumerate(names):
        median = 1e-3 * (i + 1) * (1 + wobble) * (factor if name == "a.slow" else 1.0)
        marks.append(records.benchmark(records.case(name), median, medians=(median * 0.995, median, median * 1.005)))
    return records.run_file(marks, processes=3, **how)


def plain(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As pytest-benchmark alone would have written it, with ``more`` in each entry."""
    data = copy.deepcopy(data)
    del data["gpubench"], data["machine_info"]["gpubench"]
    for mark in data["benchmarks"]:
        mark |= {"extra_info": {}, "options": {"timer": "perf_counter"}} | more
    return data


def change(data: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    data = copy.deepcopy(data)
    place = data["machine_info"]["gpubench"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return data
