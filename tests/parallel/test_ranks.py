"""Cases of several processes, as pytest runs them: what enters the run file, what a failing rank costs, and what a rank
times: its device's work, not the queueing."""

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import forked
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import duties

from gpubench import devices
from gpubench.devices.cpu import cores
from gpubench.errors import OverBudget, Unmeasurable, UsageError
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.clock import DeviceClock
from gpubench.measure.work import Declaration
from gpubench.parallel import ranks, team
from gpubench.parallel.ranks import Ranks, RankTimes, _flags_of_ranks, _take_rounds, circle, device_counts, measure_rank
from gpubench.parallel.team import Rank, WorkerGroup
from gpubench.runfile.flags import Flag
from gpubench.runfile.schema import Check
from gpubench.testing import VirtualDevice, VirtualMachine

HERE = Path(__file__).parent
pytestmark = pytest.mark.xdist_group("ranks")  # two look at one run

SOURCE = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import pytest, duties
from gpubench.measure import disturbance
from gpubench.runfile.flags import Flag

@pytest.fixture(autouse=True)
def contended(monkeypatch):
    flagged = lambda before, after: iter([Flag("contended", "cores")])
    monkeypatch.setattr(disturbance, "disturbed", flagged)

pytestmark = pytest.mark.gpubench_parallel

@pytest.mark.parametrize("duty", ["none", "die", "after"])
def test_step(gpubench, gpubench_ranks, duty):
    if duty not in ("none", "after"):
        gpubench_ranks.group(gpubench, ["cpu", "cpu"], 1).run(duties.misbehave, duty)
    gpubench.declare(items=8, unit="sample")
    gpubench_ranks.measure(gpubench, duties.Meeting(), 2, method="ddp", mode="strong")

def test_many(gpubench, gpubench_ranks):
    gpubench_ranks.measure(gpubench, duties.Meeting(), 5000, method="ddp")
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """The run file of these duties, each in a case of its own, of a pytest that has left no process behind."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "test_it.py").write_text(SOURCE)
    forked.serve()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    options = "--gpubench-preset=smoke", "--gpubench-no-ceilings", "--gpubench-ranks-deadline=2", "-k", "step"
    forked.pytest("-p", "gpubench.plugin", "--benchmark-json=run.json", *options, cwd=folder)
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert not psutil.wait_procs(left, timeout=30)[1]
    return json.loads((folder / "run.json").read_text())


def test_a_rank_that_dies_ends_its_case_and_the_next_one_runs(steps):
    assert [b["params"]["duty"] for b in steps["benchmarks"]] == ["none", "after"]
    (row,) = steps["gpubench"]["unmeasured"]
    assert (row["params"]["duty"], row["status"], row["reason"]) == ("die", "crashed", "rank 1: killed by SIGKILL")


def test_durations_come_from_the_ranks(steps):
    case = steps["benchmarks"][0]
    assert case["options"]["timer"] == "device_clock"
    ours = case["extra_info"]["gpubench"]
    assert [flag["flag"] for flag in ours["processes"][0]["flags"]] == ["contended"]  # what disturbed the ranks
    assert ours["parallel"] == {
        "devices": 2, "threads": 1, "interconnect": "memory", "method": "ddp", "mode": "strong",
    }  # fmt: skip
    assert ours["threads"] == 2
    assert ours["check"]["status"] == "passed"
    assert case["stats"]["rounds"] >= 3
    assert all(0 < sample < 1 for sample in case["stats"]["data"])


def test_more_devices_than_there_are_is_a_skip_with_the_numbers_or_an_error_where_they_are_required(bench):
    numbers = f"needs 5000 CPU cores, one a rank; {cores()} here"
    for options, status, reason, outcome in (
        ([], "skipped", numbers, "skipped"),
        (["--gpubench-require-device=cpu"], "error", f"UsageError: required devices absent: {numbers}", "failed"),
    ):
        (row,) = bench(SOURCE, "-k", "many", *options, **{outcome: 1}).rows
        assert (row["status"], row["reason"]) == (status, reason)


def test_with_nothing_to_time_each_case_runs_once(bench):
    bench(SOURCE, "--benchmark-disable", "-k", "step and none", usual=(), apart=True, passed=1)


@pytest.fixture
def kind(monkeypatch):
    """Virtual accelerators on a machine of their own, which ranks find by name."""
    kind = VirtualDevice.on(VirtualMachine())
    monkeypatch.setitem(devices.base.KINDS, "virtual", kind)
    return kind


class Queueing(duties.Job):
    """Each step queues 2 ms on a virtual accelerator; ``steps`` are those of all its copies."""

    def __init__(self, machine):
        super().__init__()
        self.machine, self.steps = machine, []

    def step(self):
        self.steps.append(self.rank)
        self.machine.launch(2e-3)


def test_a_rank_waits_for_its_device(kind):
    job = Queueing(kind.machine)
    times = measure_rank(Rank(0, 1, "virtual:0", 1), job, PRESET_SETTINGS["quick"])
    assert job.rank is None  # of torchrun's, the caller's lives on, and would hold the memory
    assert times.first_s == pytest.approx(2e-3, rel=1e-6)
    assert times.durations == [pytest.approx(2e-3 * times.iterations, rel=1e-6)] * len(times.durations)


def test_a_rank_that_is_too_slow_on_a_busy_machine_blames_other_programs(kind):
    job = types.SimpleNamespace(**{name: lambda *_: None for name in ("start", "reset", "check")}, dtype="float32")
    job.step = lambda: kind.machine.launch(9.0)
    for busy, said in ((True, "on a busy machine: a call takes 9.00 s"), (False, "make the call smaller")):
        with pytest.raises(OverBudget, match=said):
            measure_rank(Rank(0, 1, "virtual:0", 1), job, PRESET_SETTINGS["quick"], busy=busy)


def test_what_this_process_keeps_for_later_is_released_before_ranks_start(kind, monkeypatch):
    """On one GPU a rank shares the memory with it."""
    order = []
    kind.release_memory = classmethod(lambda cls: order.append("released"))
    monkeypatch.setattr(ranks, "_devices_and_threads", lambda *_: (["virtual:0", "virtual:0"], 1))

    def group(*_):
        order.append("started")
        raise Unmeasurable("enough")

    fixture = types.SimpleNamespace(take_declaration=Declaration, home=kind(), allowance=None, enabled=True)
    with pytest.raises(Unmeasurable, match="enough"):
        Ranks.measure(types.SimpleNamespace(group=group), fixture, None, 2)
    assert order == ["released", "started"]


def test_ranks_meet_before_each_round_and_are_timed_from_there(kind, monkeypatch):
    monkeypatch.setattr("torch.distributed.barrier", lambda: kind.machine.launch(5.0))
    times = _take_rounds(Rank(0, 2, "virtual:0", 1), Queueing(kind.machine), DeviceClock([kind()]), 2, 3)
    assert times == pytest.approx([6e-3] * 2, rel=1e-6)
    assert kind.machine.time_s == pytest.approx(2 * 5.006, rel=1e-6)


def test_a_rank_tells_what_slowed_its_own_device_down(kind):
    readings = iter([2e9, 1e9])
    kind.clocks = lambda self: {"sm": next(readings)}
    unwarmed = replace(PRESET_SETTINGS["quick"], warmup=0.0)
    times = measure_rank(Rank(0, 1, "virtual:0", 1), Queueing(kind.machine), unwarmed)
    assert times.flags == (Flag("throttled", "virtual:0: 2.00 to 1.00 GHz"),)
    quiet = replace(times, flags=())
    (flag,) = _flags_of_ranks([quiet, times, times])
    assert flag == Flag("throttled", "rank 1: virtual:0: 2.00 to 1.00 GHz, rank 2: virtual:0: 2.00 to 1.00 GHz")


@pytest.mark.parametrize("known", [True, False])
def test_ranks_warm_up_until_the_clocks_stand(kind, known):
    """They rise for 0.8 s."""
    machine, job = kind.machine, Queueing(kind.machine)
    risen = lambda: min(1.0, 0.2 + machine.time_s)  # noqa: E731
    if known:
        kind.clocks = lambda self: {"sm": risen() * 2e9}
    job.step = lambda: machine.launch(1e-3 / risen())
    times = measure_rank(Rank(0, 1, "virtual:0", 1), job, PRESET_SETTINGS["quick"])
    assert times.durations == [pytest.approx(1e-3 * times.iterations, rel=0.05)] * len(times.durations)


def test_all_ranks_warm_up_as_often_as_the_first(kind, monkeypatch):
    """Another number of steps, and they would wait for one another forever."""
    job, decided = Queueing(kind.machine), iter([0.01, 5, False, 7, False, 9, True, (3, 1)])
    monkeypatch.setattr(ranks, "_decide_on_rank_0", lambda rank, decide: next(decided))
    measure_rank(Rank(0, 1, "virtual:0", 1), job, PRESET_SETTINGS["quick"])
    assert len(job.steps) == 2 + (5 + 7 + 9) + 3


@pytest.mark.usefixtures("kind")
def test_idle_workers_end_before_another_case_has_their_kind_of_device():
    kept, closed = Ranks(60.0), []
    virtual, cpu = (types.SimpleNamespace(close=lambda name=name: closed.append(name)) for name in ("virtual", "cpu"))
    kept._groups = {(("virtual:0", "virtual:1"), 1): virtual, (("cpu", "cpu"), 1): cpu}
    kept.close_idle("cpu")
    assert closed == []
    kept.close_idle("virtual:0")
    assert closed == ["virtual"]
    assert list(kept._groups.values()) == [cpu]


def test_a_worker_returns_the_memory_of_its_accelerator_after_each_job(kind):
    returned = []
    kind.release_memory = classmethod(lambda cls: returned.append(cls.kind))
    team._release_memory(Rank(0, 2, "cpu", 1))
    assert returned == []
    team._release_memory(Rank(0, 2, "virtual:0", 1))
    assert returned == ["virtual"]


def test_a_group_begins_with_the_device_of_its_case():
    assert [circle(VirtualDevice(1), count) for count in (1, 2)] == [
        [VirtualDevice(1)], [VirtualDevice(1), VirtualDevice(0)]
    ]  # fmt: skip


def test_torchrun_s_ranks_are_filed_under_the_first_device_only(monkeypatch):
    monkeypatch.setattr(ranks, "collective_backend", lambda kind: "gloo")
    monkeypatch.setattr(ranks, "launched_rank", lambda: Rank(0, 2, "", 1))
    second = types.SimpleNamespace(home=VirtualDevice(1))
    with pytest.raises(Unmeasurable, match="torchrun's ranks begin with virtual:0: measured there"):
        ranks.Ranks(1.0).group(second, ["virtual:1", "virtual:0"], 1)


def test_the_number_of_rounds_is_one_decision_and_a_step_costs_its_slowest_rank():
    two = WorkerGroup(["cpu"] * 2, 1, 60.0)
    found = two.run(measure_rank, duties.Uneven(), PRESET_SETTINGS["smoke"], True)
    two.close()
    assert len(found[0].durations) == len(found[1].durations) >= 3
    assert found[0].iterations == found[1].iterations
    assert min(found[1].durations) > max(found[0].durations)


def test_a_round_lasts_as_long_as_its_slowest_rank_and_what_ranks_saw_is_said(monkeypatch):
    entered, slowed, judged = [], (Flag("throttled", "heat"),), []
    times = [
        RankTimes([1.0, 5.0], 2, 0.1, Check("passed")),
        RankTimes([3.0, 2.0], 2, 0.2, Check("unchecked"), flags=slowed),
    ]
    team = types.SimpleNamespace(
        altered=(Flag("altered", "threads"),), run=lambda *given: judged.append(given[-1]) or times
    )
    case = types.SimpleNamespace(
        take_declaration=Declaration, home=devices.CPU,
        case=types.SimpleNamespace(threads=2), allowance=None, enabled=True, is_busy=lambda: True,
        replay=lambda *measured, **record: entered.append((*measured, record)),
    )  # fmt: skip
    ranks = Ranks(60.0)
    monkeypatch.setattr(ranks, "group", lambda *_: team)
    ranks.measure(case, None, 2, method="ddp")
    ((durations, iterations, _, flags, record),) = entered
    assert judged == [True]
    assert [(flag.name, flag.seen) for flag in flags] == [("throttled", "rank 1: heat"), ("altered", "threads")]
    assert (durations, iterations, record["check"].status) == ([3.0, 5.0], 2, "passed")
    assert (record["devices"], record["threads"]) == (("cpu",), 2)


@pytest.mark.parametrize(("ranks", "counts"), [("2", [2]), ("6", [2, 4, 6]), ("16", [2, 4, 8, 16])])
def test_under_torchrun_all_its_ranks_are_a_count_to_measure(monkeypatch, ranks, counts):
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": ranks}.items():
        monkeypatch.setenv(name, value)
    assert device_counts() == counts


def test_a_declaration_that_ranks_cannot_keep_is_refused():
    fixture = types.SimpleNamespace(take_declaration=lambda: Declaration(check=False))
    with pytest.raises(UsageError, match=r"ranks take flops, nbytes, items and unit from gpubench\.declare"):
        Ranks(60.0).measure(fixture, None, 2)
