"""The times of ranks: their device's work, not the queueing; and runs in which each rank misbehaves, by each of the
three ways to start ranks. In a team of threads all agree which error came first, or which rank hangs."""

import contextlib
import os
import sys
import threading
import types
from dataclasses import replace

import duties
import forked
import pytest
import torch
from inprocess import Ran, measure
from torch.distributed import HashStore
from waiting import survivors

from gpubench import devices
from gpubench.devices.cpu import cores
from gpubench.devices.virtual import VirtualDevice, VirtualMachine
from gpubench.errors import OverBudget, RankFailure, Unmeasurable, UsageError, WrongAnswer
from gpubench.measure import ranks
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.clock import DeviceClock
from gpubench.measure.ranks import Rank, Ranks, RankTimes, Team, circle, measure_rank
from gpubench.measure.work import Request
from gpubench.runfile.flags import Flag
from gpubench.runfile.ledger import LEDGER, assemble, read_ledger
from gpubench.runfile.schema import Check

pytestmark = pytest.mark.xdist_group("ranks")  # they use all cores

DUTIES = "", "die", "fail", "stop 0", "print_much", "mistake", "after"
FAILED = {
    "die": ("crashed", "rank 1: killed by SIGKILL, perhaps because memory ran out"),
    "fail": ("error", "rank 1: ValueError: no such thing"),
    "mistake": ("error", "rank 1: WrongAnswer: its sum is wrong"),
    "stop 0": ("timeout", "rank 0: no progress for 8 s"),
}
QUICKLY = "--gpubench-ranks-deadline=8", "--gpubench-no-ceilings"


def rows_of(ran):
    return {row["params"]["duty"]: (row["status"], row["reason"]) for row in ran.rows}


def measured_in(ran):
    return {mark["params"]["duty"]: mark["extra_info"]["gpubench"] for mark in ran.marks}


def test_a_rank_that_dies_raises_or_hangs_ends_its_case_and_the_next_ones_run(tmp_path):
    ran = measure(tmp_path, duties.source(*DUTIES), "--", *QUICKLY, code=1)
    assert rows_of(ran) == FAILED
    records = measured_in(ran)
    assert set(records) == {"", "print_much", "after"}
    for record in records.values():
        assert record["parallel"] == {
            "devices": 2, "threads": 1, "interconnect": "memory", "method": "ddp", "mode": "strong",
        }  # fmt: skip
        assert (record["threads"], record["check"]["status"]) == (2, "passed")
    assert not survivors(tmp_path)


def test_plain_pytest_starts_ranks_of_its_own_and_takes_over_their_results(bench, pytester):
    source = duties.source("", "die", "mistake", "stop 0", "after") + MANY
    ran = bench(source, "-rs", "--benchmark-min-rounds=400", *QUICKLY, apart=True, passed=2, failed=3, skipped=1)
    many = f"needs 5000 CPU cores, one a rank; {cores()} here"
    assert [row["reason"] for row in ran.rows if "duty" not in row["params"]] == [many]
    ran.data["gpubench"]["unmeasured"] = [row for row in ran.rows if "duty" in row["params"]]
    assert rows_of(ran) == {duty: FAILED[duty] for duty in ("die", "mistake", "stop 0")}
    assert [*measured_in(ran)] == ["", "after"]
    case = ran.marks[0]
    assert case["options"]["timer"] == "device_clock"
    assert case["stats"]["rounds"] >= 400  # as in the ranks, although files hold fewer samples
    assert all(0 < sample < 1 for sample in case["stats"]["data"])
    with contextlib.chdir("/"):
        assert not survivors(pytester.path)


MANY = """
def test_many(gpubench, gpubench_ranks):
    gpubench_ranks.measure(gpubench, duties.Meeting(), 5000)
"""


def test_under_torchrun_a_rank_that_raises_ends_its_case_and_the_next_ones_run(tmp_path):
    """Two machines with a rank each. Threads that the first rank leaves changed are put back, and flagged."""
    file, port = tmp_path / "test_it.py", duties.free_port()
    file.write_text(duties.source("", "fail", "exhaust", "threads 0", "mistake", "after"))
    words = [file.name, "-p", "gpubench.plugin", "-p", "no:cacheprovider", "--gpubench-preset=smoke", *QUICKLY]
    words += ["--gpubench-device=cpu", "--benchmark-json=run.json"]
    started = [duties.start_rank(tmp_path, port, number, "pytest", words) for number in range(2)]
    assert all(rank.wait(120) for rank in started)
    ran = Ran(1, "", "", tmp_path / "run.json")
    records = measured_in(ran)
    assert list(records) == ["", "threads 0", "after"]
    assert {record["parallel"]["interconnect"] for record in records.values()} == {"network"}
    assert [flag["flag"] for flag in records["threads 0"]["processes"][0]["flags"]] == ["altered"]
    failed = {duty: FAILED[duty] for duty in ("fail", "mistake")}
    assert rows_of(ran) == failed | {"exhaust": ("oom", "rank 1: MemoryError: no more")}
    assert not survivors(tmp_path)


def test_ranks_that_torchrun_restarts_continue_after_a_death(tmp_path):
    (tmp_path / "test_it.py").write_text(duties.source("", "die", "after"))
    words = ["--standalone", "--nproc-per-node=2", "--max-restarts=2", "-m", "pytest", "test_it.py", *QUICKLY]
    words += ["-p", "gpubench.plugin", "--gpubench-preset=smoke", f"--gpubench-ledger={LEDGER}"]
    streams, paths = (f"{tmp_path}/said",) * 2, os.pathsep.join(map(str, duties.IMPORTED))
    launched = forked.Forked("torch.distributed.run", words, streams, str(tmp_path), os.environ | {"PYTHONPATH": paths})
    assert launched.wait(300) == 0, (tmp_path / "said").read_text()
    run = assemble(read_ledger(tmp_path / LEDGER))
    assert {mark["params"]["duty"] for mark in run["benchmarks"]} == {"", "after"}
    (row,) = run["gpubench"]["unmeasured"]
    assert (row["params"]["duty"], row["status"]) == ("die", "crashed")
    assert row["reason"] == "a rank has died: torchrun's output names it"


def test_ranks_share_a_session_which_the_scheduler_takes_for_one_group(tmp_path):
    code = "import os; open(os.environ['RANK'], 'w').write(str(os.getsid(0)))"
    words = ["--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "--no-python", sys.executable, "-c", code]
    launcher = forked.Forked(forked.OUR_LAUNCHER, words, (f"{tmp_path}/said",) * 2, str(tmp_path), os.environ)
    assert launcher.wait(120) == 0, (tmp_path / "said").read_text()
    assert {(tmp_path / rank).read_text() for rank in "01"} == {str(os.getsid(0))}


def test_ranks_work_where_nothing_is_timed(bench):
    bench(duties.source("after"), "--benchmark-disable", usual=(), apart=True, passed=1)


@pytest.fixture
def kind(monkeypatch):
    """Virtual accelerators on a machine of their own, which ranks find by name."""
    kind = VirtualDevice.on(VirtualMachine())
    monkeypatch.setitem(devices.base.KINDS, "virtual", kind)
    return kind


@pytest.fixture
def launched(monkeypatch):
    """As a rank of so many."""

    def launched(ranks):
        for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": ranks}.items():
            monkeypatch.setenv(name, str(value))

    return launched


class Queueing(duties.Job):
    """Each step queues 2 ms on a virtual accelerator; ``steps`` counts the steps of all its copies."""

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
    job = Queueing(kind.machine)
    steps = iter([9.0])
    job.step = lambda: kind.machine.launch(next(steps, 1e-3))
    assert measure_rank(Rank(0, 1, "virtual:0", 1), job, PRESET_SETTINGS["quick"]).first_s == pytest.approx(9.0)
    job.step = lambda: kind.machine.launch(9.0)
    for busy, said in ((True, "on a busy machine: a call takes 9.00 s"), (False, "make the call smaller")):
        with pytest.raises(OverBudget, match=said):
            measure_rank(Rank(0, 1, "virtual:0", 1), job, PRESET_SETTINGS["quick"], busy=busy)


def test_ranks_meet_before_each_round_and_are_timed_from_there(kind, monkeypatch):
    monkeypatch.setattr("torch.distributed.barrier", lambda: kind.machine.launch(5.0))
    times = ranks._take_rounds(Rank(0, 2, "virtual:0", 1), Queueing(kind.machine), DeviceClock([kind()]), int, 2, 3)
    assert times == pytest.approx([6e-3] * 2, rel=1e-6)
    assert kind.machine.time_s == pytest.approx(2 * 5.006, rel=1e-6)


def test_a_rank_tells_what_slowed_its_own_device_down(kind):
    readings = iter([2e9, 1e9])
    kind.clocks = lambda self: {"sm": next(readings)}
    unwarmed = replace(PRESET_SETTINGS["quick"], warmup=0.0)
    times = measure_rank(Rank(0, 1, "virtual:0", 1), Queueing(kind.machine), unwarmed)
    assert times.flags == (Flag("throttled", "virtual:0: 2.00 to 1.00 GHz"),)
    quiet = replace(times, flags=())
    (flag,) = ranks._flags_of_ranks([quiet, times, times])
    assert flag == Flag("throttled", "rank 1: virtual:0: 2.00 to 1.00 GHz, rank 2: virtual:0: 2.00 to 1.00 GHz")


def test_all_ranks_warm_up_as_often_as_the_first(kind, monkeypatch):
    """Another number of steps, and they would wait for one another forever."""
    job, decided = Queueing(kind.machine), iter([(0.01, False), 5, False, 7, False, 9, True, (3, 1)])
    monkeypatch.setattr(ranks, "_decide_on_rank_0", lambda rank, decide: next(decided))
    measure_rank(Rank(0, 1, "virtual:0", 1), job, PRESET_SETTINGS["quick"])
    assert len(job.steps) == 2 + (5 + 7 + 9) + 3


def test_a_group_begins_with_the_device_of_its_case():
    assert [circle(VirtualDevice(1), count) for count in (1, 2)] == [
        [VirtualDevice(1)], [VirtualDevice(1), VirtualDevice(0)]
    ]  # fmt: skip


def test_a_rank_returns_the_memory_of_its_accelerator(kind):
    returned = []
    kind.release_memory = classmethod(lambda cls: returned.append(cls.kind))
    ranks.release_memory(Rank(0, 2, "cpu", 1))
    assert returned == []
    ranks.release_memory(Rank(0, 2, "virtual:0", 1))
    assert returned == ["virtual"]


@pytest.fixture
def fixture():
    """The parts of a test's fixture that ranks use; ``entered`` is its record."""
    entered = []
    return types.SimpleNamespace(
        take_declaration=Request, home=devices.CPU, case=types.SimpleNamespace(threads=2), allowance=None,
        is_busy=lambda: False, too_few=Unmeasurable, entered=entered,
        replay=lambda *measured, **record: entered.append((*measured, record)),
    )  # fmt: skip


def crew(world_size, times=()):
    return types.SimpleNamespace(number=0, world_size=world_size, run=lambda *_: times, note_progress=int)


def test_a_round_lasts_as_long_as_its_slowest_rank_and_its_flags_name_the_rank(fixture, launched):
    launched(2)
    slowed = (Flag("throttled", "heat"),)
    first = RankTimes([1.0, 5.0], 2, 0.1, Check("passed"))
    second = RankTimes([3.0, 2.0], 2, 0.2, Check("unchecked"), flags=slowed)
    Ranks(crew(2, [first, second]), "a").measure(fixture, None, min(2, cores()), method="ddp")
    ((durations, iterations, _, rounds, record),) = fixture.entered
    assert [(flag.name, flag.seen) for flag in rounds.flags] == [("throttled", "rank 1: heat")]
    assert (durations, iterations, rounds.check.status) == ([3.0, 5.0], 2, "passed")
    assert record["devices"] == ("cpu",)


def test_ranks_of_several_machines_begin_with_the_first_device(fixture, launched, monkeypatch):
    launched(4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(ranks, "collective_backend", lambda kind: "gloo")
    fixture.home = VirtualDevice(1)
    with pytest.raises(Unmeasurable, match="torchrun's ranks begin with virtual:0: measured there"):
        Ranks(crew(4), "a").measure(fixture, None, 4)


def test_more_ranks_than_were_started_are_a_skip(fixture, launched, monkeypatch):
    launched(2)
    monkeypatch.setattr(ranks, "cores", lambda: 12)
    with pytest.raises(Unmeasurable, match="needs 12 ranks, 2 were started: torchrun --nproc-per-node 12 -m pytest"):
        Ranks(crew(2), "a").measure(fixture, None, 12)


@pytest.mark.parametrize(("started", "counts"), [(2, [2]), (6, [2, 4, 6]), (16, [2, 4, 8, 16])])
def test_under_torchrun_all_its_ranks_are_a_count_to_measure(launched, started, counts):
    launched(started)
    assert ranks.device_counts() == counts


def test_a_declaration_that_ranks_cannot_keep_is_refused(fixture):
    fixture.take_declaration = lambda: Request(check=False)
    with pytest.raises(UsageError, match=r"ranks take flops, nbytes, items and unit from gpubench\.declare"):
        Ranks(crew(2), "a").measure(fixture, None, 2)


@pytest.fixture
def run(monkeypatch):
    """Runs ``call(team)`` on each rank; returns the values, or the errors."""
    store = HashStore()
    monkeypatch.setattr(ranks, "launcher_store", lambda *_: store)
    monkeypatch.setattr(ranks, "join_process_group", lambda *_: None)

    def run(*calls, deadline_s=60.0, on_hang=lambda failure: None):
        monkeypatch.setenv("WORLD_SIZE", str(len(calls)))
        answers, started = [None] * len(calls), []

        def answer(own, call):
            try:
                answers[own.number] = call(own)
            except Exception as error:
                answers[own.number] = error

        for number, call in enumerate(calls):
            monkeypatch.setenv("RANK", str(number))
            started.append(threading.Thread(target=answer, args=(Team(deadline_s, on_hang), call)))
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(60)
        return answers

    return run


def times(rank):
    return RankTimes([float(rank.number)], 1, 0.5, Check("passed"))


def measuring(world_size, work=times, name="a"):
    return lambda own: own.run(name, Rank(own.number, world_size, "cpu", 1), ["cpu"] * world_size, work)


def raising(error, after=None):
    def work(rank):
        if after:
            after.wait(60)
        raise error

    return work


def test_the_first_ranks_measure_and_all_have_their_times(run):
    for answer in run(*[measuring(2)] * 3):
        assert [each.durations for each in answer] == [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (WrongAnswer("wrong"), "error", "rank 1: WrongAnswer: wrong"),
        (OverBudget("slow"), None, "slow"),
        (ValueError("no such\nthing at [10.1.2.3]:4567"), "error", "rank 1: ValueError: no such thing at …"),
        (MemoryError("no more"), "oom", "rank 1: MemoryError: no more"),
    ],
)
def test_the_error_that_came_first_is_raised_on_every_rank(run, monkeypatch, error, status, text):
    left = threading.Event()
    # Then the collective of the other rank fails.
    monkeypatch.setattr(Team, "close", lambda self: sys.exc_info()[0] and left.set())
    innocent = raising(RuntimeError("Connection closed by peer"), left)
    for answer in run(measuring(2, innocent), measuring(2, raising(error)), measuring(2)):
        assert (getattr(answer, "status", None), str(answer)) == (status, text)
        assert isinstance(answer, Unmeasurable) == (status is None)


def test_the_next_benchmark_runs_after_an_error(run):
    def both(own):
        with pytest.raises(RankFailure, match="WrongAnswer: wrong"):
            measuring(2, raising(WrongAnswer("wrong")))(own)
        return measuring(2, name="b")(own)

    assert [[each.durations for each in answer] for answer in run(both, both)] == [[[0.0], [1.0]]] * 2


def test_a_rank_that_does_not_answer_hangs_and_nothing_runs_after_it(run, monkeypatch):
    monkeypatch.setattr(ranks, "_GRACE_S", 0.1)
    seen, end = [], threading.Event()

    def hang(rank):
        end.wait(60)
        return times(rank)

    def innocent(own):
        try:
            with pytest.raises(RankFailure, match=r"rank 1: no progress for 0\.2 s") as failure:
                measuring(2, raising(RuntimeError("Timed out")))(own)
            with pytest.raises(RankFailure, match="rank 1: no progress"):
                measuring(2, name="b")(own)
        finally:
            end.set()
        return failure.value.status

    answers = run(innocent, measuring(2, hang), deadline_s=0.2, on_hang=seen.append)
    assert answers[0] == "timeout"
    assert str(seen[0]) == "rank 1: no progress for 0.2 s"


def test_a_rank_that_is_at_another_benchmark_is_named(run):
    answers = run(measuring(2), measuring(2, name="b"), deadline_s=0.2)
    assert [str(answer) for answer in answers] == ["rank 1: no progress for 0.2 s", "rank 1: is at b, rank 0 at a"]


def test_ranks_join_anew_for_other_devices_or_threads_only(run, monkeypatch):
    joined = []
    monkeypatch.setattr(ranks, "join_process_group", lambda rank, *_: joined.append((rank.number, rank.world_size)))

    def several(own):
        for world_size in (2, 2, 1, 2):
            measuring(world_size)(own)

    run(several, several)
    assert sorted(joined) == [(0, 1), (0, 2), (0, 2), (1, 2), (1, 2)]


def test_a_rank_meets_the_vector_math_library_before_its_threads_do(monkeypatch):
    did = []
    monkeypatch.setattr(ranks, "resolve_vector_math", lambda: did.append("resolve"))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: did.append(count))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: did.append("join"))
    ranks.join_process_group(Rank(0, 2, "cpu", 3), 1.0, HashStore())
    assert did == ["resolve", 3, "join"]


def test_a_rendezvous_that_never_completes_is_one_reason_within_the_deadline(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 2)
    with pytest.raises(RankFailure, match="rank 0: the ranks could not meet: "):
        ranks.join_process_group(Rank(0, 2, "cpu", 1), 1.0, store)


def test_a_missing_backend_is_a_skip(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: False)
    with pytest.raises(Unmeasurable, match="this torch was built without nccl, which cuda needs"):
        ranks.collective_backend("cuda")


def test_reasons_hold_no_addresses():
    error = RuntimeError("Connection closed by peer [10.1.2.3]:4567,\n of fe80::1:2 and [::ffff:10.1.2.3]:80; 2 of 3")
    assert ranks.one_line(error) == "Connection closed by peer …, of … and …; 2 of 3"


def test_the_number_of_rounds_is_one_decision_and_a_step_costs_its_slowest_rank(tmp_path):
    ((first, second),) = duties.on_two_ranks(tmp_path, duties.measure_smoke, [duties.Uneven()])
    assert len(first.durations) == len(second.durations) >= 3
    assert first.iterations == second.iterations
    assert min(second.durations) > max(first.durations)
