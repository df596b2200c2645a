"""``gpubench compare`` of two machines: differences, and which matter."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import records
from suites import change, plain, run_file

from gpubench.commands.cli import main
from gpubench.compare.samples import CONFIRM, Side, add_runs, measured_in_turn
from gpubench.runfile.schema import Case


def test_another_machine_is_refused_unless_that_is_allowed(save, capsys) -> None:
    data = run_file()
    files = [save("base.json", data), save("new.json", change(data, "devices", 0, "label", to="Other CPU"))]
    assert main(["compare", *files]) == 2
    shown = capsys.readouterr()
    says = "CPU Synthetic CPU → Other CPU"
    assert (says in shown.err, "--allow machine" in shown.err, shown.err.count("\n"), shown.out) == (True, True, 1, "")
    assert "--threads" not in shown.err
    fewer = save("fewer.json", change(data, "threads", to=1))  # as a run on a busy machine chooses
    assert main(["compare", files[0], fewer]) == 2
    assert "threads 2 → 1 (measure both with the same --threads N, or compare" in capsys.readouterr().err
    assert main(["compare", *files, "--allow=machine", "--format=json"]) == 0
    assert f"another machine: {says}" in json.loads(capsys.readouterr().out)["notes"]


@pytest.mark.parametrize(
    ("path", "to", "notes"),
    [
        (("torch", "version"), "2.14.0", ["other software: torch 2.13.0+cpu → 2.14.0"]),
        # unchanged code would be called slower: two libraries of one CPU are 30 times apart under some variables
        (("cpu", "variables"), {"MKL_CBWR": "COMPATIBLE"},
         ["the CPU was used otherwise: MKL_CBWR not set → COMPATIBLE"]),
        (("label",), "my laptop", []),
        (("cpu", "cores"), 4, []),
        (("devices",), [dict(records.CPU), dict(records.GPU)], []),  # a GPU that no case of both used
    ],
)  # fmt: skip
def test_other_differences_that_matter_are_noted(save, capsys, path, to, notes) -> None:
    data = change(run_file(), "cpu", "variables", to={})
    files = [save("base.json", data), save("new.json", change(data, *path, to=to))]
    assert main(["compare", *files, "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == notes


MINUTES = "2026-01-31T12:{:02d}:00+00:00"


@pytest.mark.parametrize(
    ("order", "fresh", "stamp", "expected"),
    [
        *((order, False, MINUTES, True) for order in ("ab" * 5, "ba" * 2, "abba" * 3)),
        *((order, False, MINUTES, False)
          for order in ("ab", "aaaaabbbbb", "aabb" * 3, "ab" * 5 + "a", "ab" * 5 + "aa")),
        # fresh runs are looked at by themselves
        ("aabbABBA", True, MINUTES, True), ("aabbABBA", False, MINUTES, False),
        ("abbaAABB", False, MINUTES, True), ("abbaAABB", True, MINUTES, False),
        # time stamps that don't differ show nothing
        *(("ab" * 6, False, stamp, False) for stamp in ("2026-01-31T12:00:00", "", "noon {}", "2026-01-31")),
    ],
)  # fmt: skip
def test_runs_that_alternate_in_time_were_measured_in_turn(order, fresh, stamp, expected):
    """A capital is a fresh run."""
    sides = {"a": Side("base"), "b": Side("new")}
    for turn, letter in enumerate(order):
        stage = CONFIRM if letter.isupper() else None
        sides[letter.lower()].runs.append(SimpleNamespace(started=stamp.format(turn), stage=stage))  # type: ignore[arg-type]
    assert measured_in_turn(sides["a"], sides["b"], fresh) is expected


def test_time_stamps_are_compared_across_zones_and_not_in_the_order_of_files():
    base, new = Side("base"), Side("new")
    for i in (3, 0, 2, 1, 4):
        early, late = f"2026-01-31T1{i}:00:00+00:00", f"2026-01-31T1{i + 2}:30:00+02:00"
        base.runs.append(SimpleNamespace(started=early, stage=None))  # type: ignore[arg-type]
        new.runs.append(SimpleNamespace(started=late, stage=None))  # type: ignore[arg-type]
    assert measured_in_turn(base, new, fresh=False)


def test_a_process_is_its_median_its_lower_quartile_and_its_fastest_round(save) -> None:
    mark = records.benchmark(Case("a.b", "cpu", "float32", devices=("cpu",)), 1.35)
    mark["stats"]["data"] = [1.7, 1.0, 1.6, 1.1, 1.5, 1.2, 1.4, 1.3]
    mark["extra_info"]["gpubench"]["processes"][0]["kept"] = 8
    add_runs(side := Side("base"), [save("run.json", records.run_file([mark]))])
    ((seen,),) = side.cases.values()
    assert (seen.median_s, seen.quartile_s, seen.least_s) == (1.35, 1.1, 1.0)


MS = 1e-3
TICKS = [7.93 * MS, *[7.972 * MS] * 9, *[7.975 * MS] * 10, 12 * MS]
"""Recorded: 30 µs of work on two cores that others use; between two rounds some microseconds pass."""


def one_run(times, is_plain=True, flag=None, with_data=True):
    """A run of one process of five quiet benchmarks and ``a.slow``, with these rounds."""
    data = run_file()
    for mark in data["benchmarks"]:
        rounds = sorted(times) if "a.slow" in mark["fullname"] else [MS * (1 + i / 1e4) for i in range(20)]
        q1, middle, q3 = (rounds[len(rounds) * i // 4] for i in (1, 2, 3))
        known = {"min": rounds[0], "q1": q1, "median": middle, "q3": q3, "iqr": q3 - q1, "mean": middle}
        mark["stats"] |= known | {"rounds": len(rounds), "data": rounds}
        process = mark["extra_info"]["gpubench"]["processes"][0]
        process |= {"median_s": middle, "iqr_s": q3 - q1, "kept": len(rounds), "flags": []}
        if flag and "a.slow" in mark["fullname"]:
            process["flags"] = [{"flag": flag, "seen": "others"}]
        mark["extra_info"]["gpubench"]["processes"] = [process]
    data["gpubench"]["processes"] = data["gpubench"]["processes"][:1]
    data = plain(data) if is_plain else data
    for mark in data["benchmarks"] if not with_data else ():
        del mark["stats"]["data"]
    return data


@pytest.mark.parametrize(
    ("times", "how", "code"),
    [
        ([0.03 * MS * (1 + i / 1e3) for i in range(20)], {}, 0),  # as before
        ([5.1 * MS * (1 + i / 500) for i in range(20)], {}, 1),
        ([0.3 * MS * (1 + i / 20) for i in range(20)], {}, 1),  # shorter than any program is let run
        ([4 * MS * (1 + i / 20) for i in range(20)], {}, 0),
        ([4 * MS * (1 + i / 20) for i in range(20)], {"with_data": False}, 0),
        ([0.03 * MS, *[8 * MS] * 19], {"with_data": False}, 0),
        (TICKS, {}, 0),
        (TICKS, {"is_plain": False, "flag": "contended"}, 0),
        (TICKS, {"is_plain": False, "flag": "waiting"}, 0),
        (TICKS, {"is_plain": False}, 1),
    ],
)
def test_one_run_proves_what_waiting_does_not_explain(save, capsys, times, how, code) -> None:
    quick = [0.03 * MS * (1 + i / 1e3) for i in range(20)]
    files = [save(f"{i}.json", one_run(each, **how) | {"datetime": f"2026-01-0{i + 1}T00:00:00+00:00"})
             for i, each in enumerate((quick, times))]  # fmt: skip
    assert main(["compare", *files]) == code
    shown = capsys.readouterr().out
    waited = code == 0 and times[0] > MS
    assert ("one run a side on a busy machine: its rounds may have waited" in shown) == waited
    assert ("measure again, or use --interleave" in shown) == waited
    assert main(["compare", *reversed(files)]) == 0  # many times faster, without an interval
    assert "× faster" in capsys.readouterr().out or code == 0
    assert main(["compare", *reversed(files), "--format=json"]) == 0
    (slow,) = (each for each in json.loads(capsys.readouterr().out)["cases"] if "slow" in each["id"])
    assert (slow["verdict"] == "faster") == (code == 1)
    assert (slow["cause"] == "waited") == waited
