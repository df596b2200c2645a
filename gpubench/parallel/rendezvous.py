"""How ranks find each other and join a process group, and the reason when they don't."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..devices.cpu import resolve_vector_math
from ..errors import RankFailure, Unmeasurable

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store

PATIENCE = 10
"""Number of deadlines that a rank waits for others: a parent process watches them, or rank 0 measures alone."""

_ADDRESS = re.compile(r"\[?(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:]+:[0-9a-f.]*)\]?(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a process group: its rank, the world size, its device by name and its CPU threads."""

    number: int
    world_size: int
    device: str
    threads: int

    @property
    def torch_device(self) -> torch.device:
        """The rank's device, for torch."""
        import torch

        return torch.device(self.device)


def collective_backend(kind: str) -> str:
    """torch's collective backend for a kind of device: nccl, gloo, ….

    Raises :class:`Unmeasurable` where this torch build has none.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise Unmeasurable("this torch was built without torch.distributed")
    try:
        name = str(dist.get_default_backend_for_device(kind))
    except (ValueError, AttributeError):
        raise Unmeasurable(f"torch has no collective backend for {kind}") from None
    if name.lower() == "undefined":
        raise Unmeasurable(f"torch has no collective backend for {kind}")
    if not dist.is_backend_available(name):
        raise Unmeasurable(f"this torch was built without {name}, which {kind} needs")
    return name


def file_store(path: str, rank: Rank) -> Store:
    """The rendezvous store of ranks on this machine: a file."""
    from torch._C._distributed_c10d import FileStore

    return FileStore(path, rank.world_size)


def launcher_store(rank: Rank, deadline_s: float) -> Store:
    """The rendezvous store of torchrun's ranks. Raises :class:`RankFailure` with one line when it can't be reached."""
    from torch.distributed.rendezvous import rendezvous

    with _in_one_line(rank, deadline_s):
        store: Store
        store, _, _ = next(rendezvous("env://", rank.number, rank.world_size, timeout=timedelta(seconds=deadline_s)))
    return store


def join_process_group(rank: Rank, deadline_s: float, store: Store) -> None:
    """Join the process group through a store that all ranks share.

    Raises :class:`RankFailure` with one line when the others don't join in time.
    """
    import torch
    import torch.distributed as dist

    resolve_vector_math()
    torch.set_num_threads(rank.threads)
    device = rank.torch_device
    options: dict[str, Any] = {}
    if device.index is not None:
        torch.get_device_module(device.type).set_device(device.index)
        options["device_id"] = device
    timeout = timedelta(seconds=deadline_s)
    with _in_one_line(rank, deadline_s):
        store.set_timeout(timeout)
        dist.init_process_group(
            collective_backend(device.type),
            store=store,
            rank=rank.number,
            world_size=rank.world_size,
            timeout=timeout,
            **options,
        )


@contextlib.contextmanager
def _in_one_line(rank: Rank, deadline_s: float) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:  # dist.DistError is a RuntimeError
        raise RankFailure(rank.number, rendezvous_failure(error, rank, deadline_s), status="error") from error


def rendezvous_failure(error: BaseException, rank: Rank, deadline_s: float) -> str:
    """Why the ranks did not meet, in one line."""
    text = one_line(error)
    port = os.environ.get("MASTER_PORT")
    where = f"port {port}" if port else "on this machine"
    if "EADDRINUSE" in text or "address already in use" in text.lower():
        return f"the rendezvous port is taken ({where}): choose another by --rdzv-endpoint or --master-port"
    if "timed out" in text.lower() or "timeout" in text.lower():
        return f"the rendezvous of {rank.world_size} ranks was not complete within {deadline_s:g} s ({where})"
    return f"the ranks could not meet: {text[:200]}"


def one_line(error: BaseException) -> str:
    """An error's text without the addresses of machines: reasons end up in published files."""
    return _ADDRESS.sub("…", " ".join(str(error).split()))[:300]


def launched_rank() -> Rank | None:
    """The rank that torchrun gave this process, its device not yet known; ``None`` without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "", 1)
