"""What tests have ranks do: functions that workers import by name."""

import os
import signal
import time
from dataclasses import dataclass
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


def die(rank, target, how):
    if rank.number == target:
        os.kill(os.getpid(), how)
    return total(rank)


def leave(rank, target):
    if rank.number == target:
        os._exit(7)
    return total(rank)


def fail(rank, target):
    if rank.number == target:
        raise ValueError("no such\nthing")
    return total(rank)


def exhaust(rank, target):
    if rank.number == target:
        raise MemoryError("no more")
    return total(rank)


def stop(rank, target):
    if rank.number == target:
        os.kill(os.getpid(), signal.SIGSTOP)
    return total(rank)


def sleep(rank, target):
    """One rank never comes to the meeting; the others have said that they are further."""
    if rank.number == target:
        time.sleep(1000)
    report_progress()
    return total(rank)
