"""A team whose ranks are threads: whatever one of them does, all agree which error came first, or who hangs."""

import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

sys.path.insert(0, str(Path(__file__).parent))
import duties

from gpubench.errors import OverBudget, RankFailure, Unmeasurable, WrongAnswer
from gpubench.parallel import team
from gpubench.parallel.team import Rank, RankTimes, Team
from gpubench.runfile.schema import Check


@pytest.fixture
def run(monkeypatch):
    """Runs ``call(team)`` on each rank; returns the values, or the errors."""
    store = HashStore()
    monkeypatch.setattr(team, "launcher_store", lambda *_: store)
    monkeypatch.setattr(team, "join_process_group", lambda *_: None)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")

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
    monkeypatch.setattr(team, "_GRACE_S", 0.1)
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
    monkeypatch.setattr(team, "join_process_group", lambda rank, *_: joined.append((rank.number, rank.world_size)))

    def several(own):
        for world_size in (2, 2, 1, 2):
            measuring(world_size)(own)

    run(several, several)
    assert sorted(joined) == [(0, 1), (0, 2), (0, 2), (1, 2), (1, 2)]


def test_a_rank_meets_the_vector_math_library_before_its_threads_do(monkeypatch):
    did = []
    monkeypatch.setattr(team, "resolve_vector_math", lambda: did.append("resolve"))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: did.append(count))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: did.append("join"))
    team.join_process_group(Rank(0, 2, "cpu", 3), 1.0, HashStore())
    assert did == ["resolve", 3, "join"]


def test_a_rendezvous_that_never_completes_is_one_reason_within_the_deadline(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 2)
    with pytest.raises(RankFailure, match="rank 0: the ranks could not meet: "):
        team.join_process_group(Rank(0, 2, "cpu", 1), 1.0, store)


def test_a_missing_backend_is_a_skip(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: False)
    with pytest.raises(Unmeasurable, match="this torch was built without nccl, which cuda needs"):
        team.collective_backend("cuda")


def test_reasons_hold_no_addresses():
    error = RuntimeError("Connection closed by peer [10.1.2.3]:4567,\n of fe80::1:2 and [::ffff:10.1.2.3]:80; 2 of 3")
    assert team.one_line(error) == "Connection closed by peer …, of … and …; 2 of 3"


def test_the_number_of_rounds_is_one_decision_and_a_step_costs_its_slowest_rank(tmp_path):
    ((first, second),) = duties.on_two_ranks(tmp_path, duties.measure_smoke, [duties.Uneven()])
    assert len(first.durations) == len(second.durations) >= 3
    assert first.iterations == second.iterations
    assert min(second.durations) > max(first.durations)
