"""The work of ranks in tests, and ranks that are forked without a launcher."""

import os
import pickle
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import forked
import torch
import torch.distributed as dist

from gpubench.errors import WrongAnswer
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.ranks import Rank, join_process_group, measure_rank
from gpubench.measure.verify import unchecked
from gpubench.runfile.schema import Check

IMPORTED = Path(__file__).parents[1], Path(__file__).parent
"""Folders of modules that ranks import."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_rank(folder, port, number, module, words):
    """A forked Python with the environment that torchrun gives a rank of two; its output is in ``said``."""
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": number, "WORLD_SIZE": 2, "LOCAL_RANK": 0}
    given |= {"LOCAL_WORLD_SIZE": 1, "TORCHELASTIC_RUN_ID": "test", "OMP_NUM_THREADS": 1}
    environment = os.environ | {name: str(value) for name, value in given.items()}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, IMPORTED))
    return forked.Forked(module, words, (f"{folder}/said",) * 2, str(folder), environment)


def on_two_ranks(folder, call, jobs):
    """Return, for each job, the values of ``call(rank, job)`` on two ranks, or the errors."""
    (folder / "given").write_bytes(pickle.dumps((call, jobs)))
    code = "import duties; duties.answer()"
    ranks = [start_rank(folder, free_port(), number, "-c", [code]) for number in range(2)]
    assert [rank.wait(300) for rank in ranks] == [0, 0], (folder / "said").read_text()
    return [*zip(*(pickle.loads((folder / f"answers {number}").read_bytes()) for number in range(2)), strict=True)]


def answer():
    call, jobs = pickle.loads(Path("given").read_bytes())
    rank, answers = Rank(int(os.environ["RANK"]), 2, "cpu", 1), []
    for number, job in enumerate(jobs):
        join_process_group(rank, 60.0, dist.FileStore(f"store {number}", 2))
        try:
            answers.append(call(rank, job))
        except Exception as error:
            answers.append(error)
        dist.destroy_process_group()
    Path(f"answers {rank.number}").write_bytes(pickle.dumps(answers))
    sys.stdout.flush()
    os._exit(0)


class Job:
    """Does nothing at each of its steps; ``rank`` is where it was started."""

    dtype, rank = "float32", None

    def start(self, rank):
        self.rank = rank

    def step(self):
        """The call that is timed."""

    def reset(self):
        """Before each round."""

    def check(self):
        return unchecked("nothing to check")

    def record(self) -> dict[str, Any]:
        return {}


class Uneven(Job):
    """Rank 1 takes longer."""

    def step(self):
        time.sleep(0.03 if self.rank.number else 0.002)


def measure_smoke(rank, job):
    return measure_rank(rank, job, PRESET_SETTINGS["smoke"])


def trained(rank, job):
    """The loss curve of a job with epochs, or its first gradient. A step that shares none is checked as DDP's."""
    job.start(rank)
    if job.epochs:
        return job.record()["losses"]
    if job.method != "unsynchronised":
        return job.gradient()
    job.method = "ddp"
    return job.check()


def total(rank):
    value = torch.tensor([float(rank.number + 1)])
    dist.all_reduce(value)
    return value.item()


def fail(error):
    raise error


DUTIES = {
    "": lambda: None,
    "after": lambda: None,
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "fail": lambda: fail(ValueError("no such\nthing")),
    "exhaust": lambda: fail(MemoryError("no more")),
    "mistake": lambda: fail(WrongAnswer("its sum is wrong")),
    "print_much": lambda: print("much\n" * 2_000_000),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 3),
}


class Meeting(Job):
    """Every rank waits for the others; one of them does its ``duty`` first."""

    def __init__(self, duty="", target=1):
        self.duty, self.target = duty, target

    def step(self):
        return total(self.rank)

    def check(self):
        if self.rank.number == self.target:
            DUTIES[self.duty]()
        return Check("passed", abs(total(self.rank) - 3.0), 0.0)


SOURCE = f"""
import sys
sys.path[:0] = {list(map(str, IMPORTED))}
import pytest, duties

pytestmark = pytest.mark.gpubench_parallel

@pytest.mark.parametrize("duty", DUTIES)
def test_step(gpubench, gpubench_ranks, duty):
    name, _, target = duty.partition(" ")
    gpubench.declare(items=8, unit="sample")
    gpubench_ranks.measure(gpubench, duties.Meeting(name, int(target or 1)), 2, method="ddp", mode="strong")
"""


def source(*names):
    return SOURCE.replace("DUTIES", repr(names))
