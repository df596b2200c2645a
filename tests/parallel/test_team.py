"""Groups of real processes over gloo: they work together, and whatever one of them does, the next case runs."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import psutil
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import duties

from gpubench.errors import RankFailure, Unmeasurable
from gpubench.parallel import team
from gpubench.parallel.team import Rank, TorchrunGroup, WorkerGroup


@pytest.fixture
def group():
    groups = []

    def start(size=2, deadline_s=60.0):
        groups.append(WorkerGroup(["cpu"] * size, 1, deadline_s))
        return groups[-1]

    yield start
    for one in groups:
        one.close()
        assert not any(psutil.pid_exists(process.pid) for process in one.processes)


def test_each_worker_is_a_rank_of_its_own_and_lives_on_between_cases(group):
    two = group()
    first = two.run(duties.identity)
    assert [answer[:3] for answer in first] == [(0, 2, "cpu"), (1, 2, "cpu")]
    assert len({os.getpid(), *(answer[3] for answer in first)}) == 3
    assert two.run(duties.identity) == first
    assert two.run(duties.total) == [3.0, 3.0]


def assert_ended(group):
    assert group.broken
    assert not any(psutil.pid_exists(process.pid) for process in group.processes)


def test_what_a_function_leaves_changed_on_a_rank_is_named_and_put_back(group):
    two = group()
    two.run(duties.keep_threads, 3)
    assert [flag.seen for flag in two.altered] == [f"rank {i}: left changed: torch threads (1 → 3)" for i in (0, 1)]
    assert two.run(duties.threads) == [1, 1]  # those they were given
    assert two.altered == []


def test_ranks_in_which_something_cant_be_put_back_end(group):
    two = group()
    two.run(duties.keep_inference, 1)
    (flag,) = two.altered
    assert flag.seen.startswith("rank 1: left changed: ")
    assert "inference mode (False → True)" in flag.seen
    assert_ended(two)


def test_a_rank_meets_the_vector_math_library_before_its_threads_do(monkeypatch):
    did = []
    monkeypatch.setattr(team, "resolve_vector_math", lambda: did.append("resolve"))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: did.append(count))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: did.append("join"))
    team.join_process_group(Rank(0, 2, "cpu", 3), 1.0, torch.distributed.HashStore())
    assert did == ["resolve", 3, "join"]


@pytest.mark.parametrize(
    ("how", "target", "status", "says"),
    [
        ("die", 1, "crashed", "rank 1: killed by SIGKILL"),
        ("leave", 1, "crashed", "rank 1: exited with 7"),
        ("fail", 1, "error", "rank 1: ValueError: no such thing"),
        ("stop", 0, "timeout", "rank 0: no progress for 2 s: it is stopped"),
        ("sleep", 1, "timeout", "rank 1: no progress for 2 s: it is behind the others"),
    ],
)
def test_the_rank_to_blame_is_named_and_nothing_is_left(group, how, target, status, says):
    two = group(deadline_s=2.0)
    with pytest.raises(RankFailure) as failure:
        two.run(duties.misbehave, how, target)
    assert (failure.value.status, str(failure.value)) == (status, says)
    assert_ended(two)
    assert group().run(duties.total) == [3.0, 3.0]


@pytest.mark.parametrize(("device", "remedy"), [("cpu", ""), ("cuda:0", "; NCCL_P2P_DISABLE=1 helps")])
def test_where_all_ranks_hang_the_reason_names_what_helps(device, remedy):
    """GeForce cards can't reach one another, and NCCL may wait for that forever."""
    process = types.SimpleNamespace(pid=os.getpid())
    two = types.SimpleNamespace(_deadline_s=2.0, processes=[process] * 2, _counts=[7, 7], _devices=[device] * 2)
    reason = str(WorkerGroup._hang(two, [0, 1]))
    assert reason.startswith(f"no progress for 2 s on ranks 0, 1{remedy}")
    assert ("NCCL" in reason) == bool(remedy)


def test_a_start_that_takes_longer_than_the_deadline_is_not_hanging(group, monkeypatch):
    monkeypatch.setattr(team, "wait", lambda things, timeout, wait=team.wait: wait(things, 1e-3))
    assert group(deadline_s=0.0).processes


def test_a_worker_killed_while_idle_is_noticed(group):
    two = group()
    os.kill(two.processes[1].pid, signal.SIGKILL)
    two.processes[1].join()
    with pytest.raises(RankFailure, match="rank 1: killed by SIGKILL"):
        two.run(duties.total)


def test_a_rendezvous_that_never_completes_is_one_reason_within_the_deadline(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 2)
    with pytest.raises(RankFailure, match=r"rank 0: the rendezvous of 2 ranks was not complete within 1 s"):
        team.join_process_group(Rank(0, 2, "cpu", 1), 1.0, store)


def test_a_port_that_is_taken_is_one_reason(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        with pytest.raises(RankFailure, match=r"the rendezvous port is taken \(port \d+\): choose another"):
            team.launcher_store(Rank(0, 2, "cpu", 1), 5.0)


def test_a_missing_backend_is_a_skip(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: False)
    with pytest.raises(Unmeasurable, match="this torch was built without nccl, which cuda needs"):
        team.collective_backend("cuda")


def test_reasons_hold_no_addresses():
    error = RuntimeError("Connection closed by peer [10.1.2.3]:4567,\n of fe80::1:2 and [::ffff:10.1.2.3]:80; 2 of 3")
    assert team.one_line(error) == "Connection closed by peer …, of … and …; 2 of 3"


OWNER = f"""
import sys
from gpubench.parallel.team import WorkerGroup
sys.path.insert(0, {str(Path(__file__).parent)!r})
import duties
if __name__ == "__main__":
    group = WorkerGroup(["cpu"] * 2, 1, 60.0)
    print(*(address for addresses in group.run(duties.listening) for address in addresses))
    print(*(process.pid for process in group.processes), flush=True)
    group.run(duties.misbehave, "sleep")
"""


def test_workers_can_be_reached_from_here_only_and_end_with_a_parent_that_is_killed(tmp_path):
    """Although the environment names the interface by which other machines reach this one, as on a cluster."""
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    known = [(name, each) for name, addresses in psutil.net_if_addrs().items() for each in addresses]
    outside = [name for name, each in known if each.family == socket.AF_INET and not each.address.startswith("127.")]
    environment = os.environ | ({"GLOO_SOCKET_IFNAME": outside[0]} if outside else {})
    owner = subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True)
    addresses, pids = (owner.stdout.readline().split() for _ in range(2))
    owner.kill()
    owner.communicate()
    assert set(addresses) <= {"127.0.0.1", "::1"}
    assert addresses
    assert len(pids) == 2
    gone, left = psutil.wait_procs([psutil.Process(int(p)) for p in pids if psutil.pid_exists(int(p))], timeout=60)
    assert not left, gone
    assert not list(Path(tempfile.gettempdir()).glob(f"gpubench-ranks-{owner.pid}-*"))


def test_torchrun_s_ranks_join_anew_where_a_case_is_on_other_devices(monkeypatch):
    calls = []
    monkeypatch.setattr(TorchrunGroup, "close", lambda self: calls.append("close"))
    monkeypatch.setattr(TorchrunGroup, "_join", lambda self: calls.append(self._rank.device))
    group = object.__new__(TorchrunGroup)
    group._rank, group.broken = Rank(0, 2, "cpu", 1), None
    group.move(Rank(0, 2, "cpu", 1))
    assert calls == []
    group.move(Rank(0, 2, "cuda:0", 1))
    assert calls == ["close", "cuda:0"]
