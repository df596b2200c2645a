"""The ranks that torchrun started, on one machine or several; this process is one of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..errors import GpubenchError, RankFailure
from . import progress
from .rendezvous import PATIENCE, Place, join, launcher_store, one_line
from .worker import sendable


class World:
    """Runs a function on all ranks, each of which calls :meth:`run` with the same one at the same point."""

    def __init__(self, place: Place, deadline_s: float) -> None:
        self.broken: RankFailure | None = None
        self._place, self._deadline_s = place, deadline_s
        self._store = launcher_store(place, deadline_s)
        self._meetings = 0
        progress.tell_into([0] * place.size, place.rank)
        self._meet()

    def _meet(self) -> None:
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        self._meetings += 1
        join(self._place, self._deadline_s, PrefixStore(f"gpubench {self._meetings}", self._store))
        patience = timedelta(seconds=PATIENCE * self._deadline_s)
        self._control = dist.new_group(backend="gloo", timeout=patience)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What ``function(place, *arguments)`` returns on each rank, on every rank.

        Raises, on every rank, what the first to fail raised; :class:`RankFailure` if it isn't one of our errors. A rank
        that is gone ends the world: cases after it fail too.
        """
        import torch.distributed as dist

        if self.broken:
            raise self.broken
        answers: list[Any] = [None] * self._place.size
        try:
            dist.barrier(group=self._control)
            start = time.monotonic()
            answer: Any
            try:
                answer = function(self._place, *arguments)
            except Exception as error:
                answer = sendable(error, self._place.rank)
            dist.all_gather_object(answers, (time.monotonic() - start, answer), group=self._control)
        except Exception as error:
            self.broken = RankFailure(None, f"{type(error).__name__}: {one_line(error)}", status="error")
            raise self.broken from error
        failures = [(seconds, answer) for seconds, answer in answers if isinstance(answer, GpubenchError)]
        if failures:
            self._meet_again()
            raise min(failures, key=lambda failure: failure[0])[1]  # others fail for want of the first
        return [answer for _, answer in answers]

    def _meet_again(self) -> None:
        """A rank that waited in vain for another one's part has closed its connections."""
        self.close()
        try:
            self._meet()
        except RankFailure as error:
            self.broken = error

    def close(self) -> None:
        """Leave the process group."""
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):  # others may be gone
            dist.destroy_process_group()
