"""What tests have ranks do: functions that workers import by name."""

import os
import signal
import time
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch
import torch.distributed as dist

from gpubench.measure.verify import unchecked
from gpubench.parallel.team import report_progress
from gpubench.runfile.schema import Check

entered = []


def identity(rank):
    return rank.number, rank.world_size, rank.device, os.getpid()


def threads(rank):
    return torch.get_num_threads()


def keep_threads(rank, count):
    torch.set_num_threads(count)


def keep_inference(rank, target):
    if rank.number == target:
        entered.append(torch.inference_mode())
        entered[0].__enter__()


@dataclass
class Job:
    """Does nothing at each of its steps; ``rank`` is where it was started."""

    dtype: str = "float32"
    rank: Any = None

    def start(self, rank):
        self.rank = rank

    def step(self):
        """What is timed."""

    def reset(self):
        """Before each round."""

    def check(self):
        return unchecked("nothing to check")

    def record(self):
        return {}


def gradient(rank, job):
    """After one forward and backward pass."""
    job.start(rank)
    return job.gradient()


def forgotten(rank, job):
    """Check a job as DDP's whose network was never wrapped."""
    forgetful = replace(job, method="unsynchronised")
    forgetful.start(rank)
    forgetful.method = job.method
    return forgetful.check()


class Uneven(Job):
    """Rank 1 takes longer."""

    def step(self):
        time.sleep(0.03 if self.rank.number else 0.002)


def total(rank):
    value = torch.tensor([float(rank.number + 1)])
    dist.all_reduce(value)
    return value.item()


class Meeting(Job):
    """Every rank waits for the others."""

    def step(self):
        return total(self.rank)

    def check(self):
        return Check("passed", abs(total(self.rank) - 3.0), 0.0)


def listening(rank):
    """Addresses at which this rank can be reached once the group has worked together."""
    total(rank)
    return {each.laddr.ip for each in psutil.Process().net_connections("inet") if each.status == psutil.CONN_LISTEN}


ACTS = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "leave": lambda: os._exit(7),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: time.sleep(1000),
}
ERRORS = {"fail": ValueError("no such\nthing"), "exhaust": MemoryError("no more")}


def misbehave(rank, how, target=1):
    """One rank never comes to the meeting; the others have said that they are further."""
    if rank.number == target:
        if how in ERRORS:
            raise ERRORS[how]
        ACTS[how]()
    report_progress()
    return total(rank)
