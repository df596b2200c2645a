"""What tests have ranks do: functions that workers import by name."""

import os
import signal
import time

from gpubench.parallel.rank import advance


def identity(place):
    return place.rank, place.size, place.device, os.getpid()


def threads(place):
    import torch

    return torch.get_num_threads()


def total(place):
    import torch
    import torch.distributed as dist

    value = torch.tensor([float(place.rank + 1)])
    dist.all_reduce(value)
    return value.item()


def die(place, rank, how):
    if place.rank == rank:
        os.kill(os.getpid(), how)
    return total(place)


def leave(place, rank):
    if place.rank == rank:
        os._exit(7)
    return total(place)


def fail(place, rank):
    if place.rank == rank:
        raise ValueError("no such\nthing")
    return total(place)


def exhaust(place, rank):
    if place.rank == rank:
        raise MemoryError("no more")
    return total(place)


def stop(place, rank):
    if place.rank == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    return total(place)


def sleep(place, rank):
    """One rank never comes to the meeting; the others have said that they are further."""
    if place.rank == rank:
        time.sleep(1000)
    advance()
    return total(place)
