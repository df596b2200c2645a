"""``gpubench compare`` of two machines: what differs, what matters, and what their ceilings make of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import records
from suites import NAMES, change, run_file

from gpubench.commands.cli import main
from gpubench.compare.samples import CONFIRM, Side, machine_differences, measured_in_turn
from gpubench.runfile.schema import DeviceFacts, Machine


@pytest.mark.parametrize(
    ("path", "to", "says"),
    [
        (("devices", 0, "label"), "Other CPU", "CPU Synthetic CPU → Other CPU"),
        (("threads",), 1, "threads 2 → 1"),
        (("precision", "float32_matmul"), "medium", "float32 matmul precision highest → medium"),
    ],
)
def test_other_machines_are_refused_by_what_differs(save, capsys, path, to, says) -> None:
    data = change(run_file(), "precision", to={"tf32": False, "float32_matmul": "highest"})
    files = ["--base", save("base.json", data), "--new", save("new.json", change(data, *path, to=to))]
    assert main(["compare", *files]) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert "--across-machines" in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert main(["compare", *files, "--across-machines", "--format=json"]) == 0
    assert f"another machine: {says}" in json.loads(capsys.readouterr().out)["notes"]


def test_a_variable_that_slows_a_library_is_named(save, capsys) -> None:
    """Two libraries of one CPU are 30 times apart under some; unchanged code would be called slower."""
    known = [change(run_file(), "cpu", "variables", to=each) for each in ({}, {"MKL_CBWR": "COMPATIBLE"})]
    assert main(["compare", *(save(f"{i}.json", data) for i, data in enumerate(known)), "--format=json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert "the CPU was used otherwise: MKL_CBWR not set → COMPATIBLE" in notes


@pytest.mark.parametrize(
    ("path", "to", "notes"),
    [
        (("torch", "version"), "2.14.0", ["other software: torch 2.13.0+cpu → 2.14.0"]),
        (("precision", "tf32"), True, []),  # says nothing of a CPU
        (("label",), "my laptop", []),
        (("cpu", "cores"), 4, []),
        (("devices",), [records.CPU, records.GPU], []),  # a GPU that no case of both used
    ],
)
def test_what_does_not_matter_does_not_warn(save, capsys, path, to, notes) -> None:
    data = run_file()
    files = ["--base", save("base.json", data), "--new", save("new.json", change(data, *path, to=to))]
    assert main(["compare", *files, "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == notes


def with_ceilings(flops: float, width: float, factor: float) -> dict[str, Any]:
    data = run_file(names=NAMES[:3])
    for mark, work in zip(data["benchmarks"], ({"flops": 1e9}, {"bytes": 1e9}, {}), strict=True):
        ours = mark["extra_info"]["gpubench"]
        ours["work"] |= work
        for process in ours["processes"]:
            process["median_s"] *= factor
        mark["stats"]["data"] = [sample * factor for sample in mark["stats"]["data"]]
    data["gpubench"]["ceilings"] = {
        "cpu": {
            "bandwidth": [{"pattern": "copy", "footprint_bytes": 1e9, "byte_per_s": width}],
            "throughput": {"float32": flops},
        }
    }
    return data


def test_normalised_by_what_each_machine_can_do(save, capsys) -> None:
    """Half the time on a machine of twice the FLOP/s is the same; at equal bandwidth it is twice as good."""
    base = save("base.json", with_ceilings(1e11, 1e10, 1.0))
    new = save("new.json", change(with_ceilings(2e11, 1e10, 0.5), "devices", 0, "label", to="Faster CPU"))
    words = ["compare", "--base", base, "--new", new, "--across-machines", "--normalise", "--format", "json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(case["id"].split("[")[0], case["verdict"]) for case in document["cases"]] == [
        ("a.fast", "inconclusive"),  # a run a side doesn't show the machines' drift
        ("a.slow", "faster"),
    ]
    assert [case["ratio"] for case in document["cases"]] == pytest.approx([1.0, 0.5], rel=1e-4)
    assert "not normalised" in " ".join(document["notes"])
    without = save("without.json", change(run_file(), "devices", 0, "label", to="Faster CPU"))
    assert main([*words[:4], without, *words[5:]]) == 2
    assert "no measured peaks in" in capsys.readouterr().err


def test_normalising_corrects_the_speed_of_a_machine_once(save, capsys) -> None:
    """On a machine 5 % slower by its ceilings and in all cases, everything is the same."""
    base, new = run_file(), run_file(wobble=0.05)
    for data, flops in ((base, 1e13), (new, 1e13 / 1.05)):
        for mark in data["benchmarks"]:
            mark["extra_info"]["gpubench"]["work"] |= {"flops": 1e9}
        data["gpubench"]["ceilings"] = {"cpu": {"bandwidth": [], "throughput": {"float32": flops}}}
    files = ["--base", save("base.json", base), "--new", save("new.json", change(new, "threads", to=1))]
    assert main(["compare", *files, "--across-machines", "--normalise", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [case["ratio"] for case in document["cases"]] == pytest.approx([1.0] * 6, rel=1e-4)
    assert document["cases"][0]["new_s"] == pytest.approx(1.05e-3, rel=1e-3)
    assert not any(note.startswith("over all benchmarks") for note in document["notes"])


def test_the_cpu_is_a_fact_of_a_gpus_cases_too() -> None:
    base, new = Side("base"), Side("new")
    for side, label in ((base, "One CPU"), (new, "Other CPU")):
        devices = (DeviceFacts("cpu", "cpu", label), DeviceFacts("cuda:0", "cuda", "A GPU"))
        side.runs.append(SimpleNamespace(machine=Machine("", devices)))  # type: ignore[arg-type]
    machine, _ = machine_differences(base, new, ["cuda:0"])
    assert machine == ["CPU One CPU → Other CPU"]


def in_turn(order, stamp="2026-01-31T12:{:02d}:00+00:00", fresh=False):
    """A capital is a fresh run."""
    sides = {"a": Side("base"), "b": Side("new")}
    for turn, letter in enumerate(order):
        stage = CONFIRM if letter.isupper() else None
        sides[letter.lower()].runs.append(SimpleNamespace(started=stamp.format(turn), stage=stage))  # type: ignore[arg-type]
    return measured_in_turn(sides["a"], sides["b"], fresh)


@pytest.mark.parametrize("order", ["ab" * 5, "ba" * 2, "abba" * 3])
def test_runs_that_alternate_in_time_were_measured_in_turn(order):
    assert in_turn(order)


@pytest.mark.parametrize("order", ["ab", "aaaaabbbbb", "aabb" * 3, "ab" * 5 + "a", "ab" * 5 + "aa"])
def test_other_runs_were_not(order):
    assert not in_turn(order)


def test_fresh_runs_are_looked_at_by_themselves():
    assert in_turn("aabbABBA", fresh=True)
    assert not in_turn("aabbABBA")
    assert in_turn("abbaAABB")
    assert not in_turn("abbaAABB", fresh=True)


@pytest.mark.parametrize("stamp", ["2026-01-31T12:00:00", "", "noon {}", "2026-01-31"])
def test_time_stamps_that_do_not_differ_tell_nothing(stamp):
    assert not in_turn("ab" * 6, stamp)


def test_time_stamps_are_compared_across_zones_and_not_in_the_order_of_files():
    base, new = Side("base"), Side("new")
    for i in (3, 0, 2, 1, 4):
        early, late = f"2026-01-31T1{i}:00:00+00:00", f"2026-01-31T1{i + 2}:30:00+02:00"
        base.runs.append(SimpleNamespace(started=early, stage=None))  # type: ignore[arg-type]
        new.runs.append(SimpleNamespace(started=late, stage=None))  # type: ignore[arg-type]
    assert measured_in_turn(base, new, fresh=False)
