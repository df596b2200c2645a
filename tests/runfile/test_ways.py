"""Which results stand for a CPU's fastest way: what estimates, too, hold a GPU against."""

from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.runfile import ways
from gpubench.runfile.runs import read
from gpubench.runfile.schema import Case
from gpubench.runfile.ways import fastest_way

SLOW = {"workload": "a.b", "device": "cpu", "dtype": "float32", "params": {"n": 8}, "kind": "irregular"}


@pytest.mark.parametrize(
    ("way", "flag", "counts"),
    [
        ({}, "", True), ({}, "noisy", True), ({}, "waiting", False), ({}, "implausible", False),
        ({"device": "cpu:1"}, "", False), ({"cache": "cold"}, "", False), ({"params": {"n": 8.0}}, "", False),
        ({"params": {"n": 8, "form": "out"}}, "", True), ({"params": {"n": 8, "form": "inplace"}}, "", False),
        ({"params": {"n": 8, "form": "out"}, "kind": ""}, "", False),  # what a form is in one's own, nobody knows
    ],
)  # fmt: skip
def test_only_what_did_the_same_job_on_the_same_device_is_a_way(
    save: Any, way: dict[str, Any], flag: str, counts: bool
) -> None:
    marks = [
        records.benchmark(Case(**SLOW), 2.0),
        records.benchmark(Case(**SLOW | {"implementation": "numpy"} | way), 1.0, flags=(flag,) if flag else ()),
    ]
    slow, other = read(Path(save("run.json", records.run_file(marks)))).results
    assert (fastest_way(slow, [slow, other]) is slow) == (not counts)


def test_a_job_may_have_thousands_of_ways(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that take as long are no faster, whatever they do."""
    cases = [Case(**SLOW | {"variant": f"v{number}"}) for number in range(300)]
    results = read(Path(save("run.json", records.run_file([records.benchmark(case, 2.0) for case in cases])))).results
    monkeypatch.setattr(ways, "job", lambda result: pytest.fail("compared with each other"))
    assert all(fastest_way(each, results) is each for each in results)
