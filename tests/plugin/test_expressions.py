"""Expressions are measured without pytest, in turn: the machine's changes meanwhile meet all of them."""

from __future__ import annotations

import itertools
import os

import pytest
import torch

from gpubench.devices import base
from gpubench.devices.virtual import VirtualDevice, VirtualMachine
from gpubench.measure import probes
from gpubench.measure.expression import Timing, expressions
from gpubench.measure.session import Mode, Session, Settings
from gpubench.plugin.expressions import Expressions
from gpubench.runfile.ledger import assemble, recorded


@pytest.fixture
def machine(monkeypatch):
    """A virtual device's clock, which calls may advance."""
    machine = VirtualMachine()
    monkeypatch.setitem(base.KINDS, VirtualDevice.kind, VirtualDevice)
    monkeypatch.setattr(VirtualDevice, "machine", machine)
    monkeypatch.setattr(VirtualDevice, "now", staticmethod(machine.now))
    return machine


@pytest.fixture
def events(tmp_path):
    """Measure expressions, and return the events of the journal."""

    def events(timing, device="virtual", preset="smoke", **settings):
        settings = Settings(devices=(device,), preset=preset, brief=True, **{"ceilings": False} | settings)
        Expressions(timing, Session(settings, Mode.IN_PYTEST)).run(tmp_path / "journal")
        return recorded(tmp_path / "journal")

    return events


def stats(events):
    return {mark["name"][5:8]: mark["stats"] for mark in assemble(events)["benchmarks"]}


def ends(events):
    return [event for event in events if event["event"] == "end"]


def drifting(machine, work):
    """Calls of 1 and 2 ms, on a machine that gets three times as slow meanwhile."""

    def one():
        machine.launch(1e-3 * (1.0 if machine.time_s < 1.4 else 3.0))

    return Timing({"one": one, "two": work}, check=False)


def test_expressions_are_timed_in_turn(machine, events):
    def two():
        machine.launch(2e-3 * (1.0 if machine.time_s < 1.4 else 3.0))

    found = stats(events(drifting(machine, two), preset="full"))
    assert len({round(value, 4) for value in found["one"]["data"]}) == 2  # it did get slower meanwhile
    assert [found["two"][key] / found["one"][key] for key in ("mean", "median")] == pytest.approx([2.0, 2.0], rel=0.1)


@pytest.mark.parametrize("calls", [0, 200], ids=["at once", "within the rounds"])
def test_a_call_that_fails_costs_its_own_time_alone(machine, events, calls):
    made = itertools.count()

    def two():
        assert next(made) < calls
        machine.launch(2e-3)

    run = assemble(events(drifting(machine, two), preset="full"))
    (mark,) = run["benchmarks"]
    assert mark["extra_info"]["gpubench"]["workload"] == "time.one"
    (row,) = run["gpubench"]["unmeasured"]
    assert (row["workload"], row["status"], row["reason"][:14]) == ("time.two", "error", "AssertionError")


def test_expressions_of_one_size_follow_each_other_in_either_order(machine, events):
    timing = expressions(["len([])", "abs(1)"], sizes=[("n", tuple(range(1, 13)))], check=False)
    begun = [event["name"] for event in events(timing, "cpu") if event["event"] == "start"]
    pairs = list(zip(begun[::2], begun[1::2], strict=True))
    assert all(one.partition("[float")[2] == other.partition("[float")[2] for one, other in pairs)
    assert {one[:8] for one, _ in pairs} == {"test_len", "test_abs"}
    assert len({one.rpartition("-")[2] for one, _ in pairs}) == 12


@pytest.mark.parametrize(("text", "status"), [("-x", "ok"), ("x @ x", "error")])
def test_an_expression_that_fails_is_not_kept_waiting_for_measured_peaks(events, monkeypatch, text, status):
    monkeypatch.setitem(probes.EFFORTS, "brief", probes.EFFORTS["smoke"])
    found = events(expressions([text], "x = randn(2, 3)"), "cpu", ceilings=True)
    assert [event["status"] for event in ends(found)] == [status]
    assert bool(assemble(found)["gpubench"]["ceilings"]) == (status == "ok")


def test_a_setting_that_an_expression_leaves_changed_is_named_and_restored(events):
    before = torch.get_default_dtype()
    found = events(expressions(["torch.set_default_dtype(torch.float64)", "1 + 1"]), "cpu")
    ends = {
        event["fullname"][19:24]: event["benchmark"]["extra_info"]["gpubench"]
        for event in found
        if event["event"] == "end"
    }
    flags = [[flag["flag"] for flag in record["processes"][0]["flags"]] for record in ends.values()]
    assert sorted("altered" in names for names in flags) == [False, True]
    assert torch.get_default_dtype() == before


def test_a_first_expression_that_ends_the_process_costs_the_others_nothing(events):
    """Its call isn't made again to compare the results."""
    found = events(expressions(["exit(made.append(1))", "len(made)"], "made = []"), "cpu")
    assert [
        (event["status"], event.get("reason")) for event in sorted(ends(found), key=lambda event: event["fullname"])
    ] == [("error", "SystemExit: None"), ("ok", None)]


def test_what_is_asked_for_gives_the_items_and_their_names():
    sizes = [("n", (1, 2)), ("k", (4,))]
    timing = expressions(['a[::2] @ "b"', "np.sin(a)"], "a = 1", sizes=sizes, dtypes=["bfloat16"], variants=["compile"])
    session = Session(Settings(devices=("cpu",), dtypes=("bfloat16",), variants=("compile",), brief=True))
    one, other = ([*Expressions(timing, session).of(name)] for name in timing.calls)
    assert [item.nodeid for item in one] == [
        f'test_time.py::test_a[::2] @ "b"[cpu-bfloat16-compile-{n}-4]' for n in (1, 2)
    ]
    assert [(item.attempt.case.params, item.attempt.case.size, item.skip) for item in one] == [
        ({"n": n, "k": 4}, "n", "") for n in (1, 2)
    ]
    assert [(item.attempt.case.implementation, item.skip) for item in other] == [
        ("numpy", "not for this workload: bfloat16, compile")
    ]


def test_a_journal_that_has_some_is_gone_on_with(events, tmp_path):
    timing = expressions(["1 + 1", "2 + 2"])
    first = events(timing, "cpu")
    dropped = next(event["fullname"] for event in first if event["event"] == "end")
    lines = [
        line
        for line in (tmp_path / "journal").read_bytes().splitlines(True)
        if b'"event": "end"' not in line or dropped.encode() not in line
    ]
    (tmp_path / "journal").write_bytes(b"".join(lines))
    again = events(timing, "cpu")[len(lines) :]
    assert [event["fullname"] for event in again if event["event"] == "end"] == [dropped]
    assert os.path.exists(tmp_path / "journal")
