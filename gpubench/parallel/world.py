"""The ranks that torchrun started, on one machine or several; this process is one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..errors import GpubenchError, RankFailure
from . import progress
from .rendezvous import PATIENCE, Place, join, one_line


class World:
    """Runs a function on all ranks, each of which calls :meth:`run` with the same one at the same point."""

    def __init__(self, place: Place, deadline_s: float) -> None:
        import torch.distributed as dist

        self.broken: RankFailure | None = None
        self._place, self._deadline_s = place, deadline_s
        progress.tell_into([0] * place.size, place.rank)
        join(place, deadline_s)
        patience = timedelta(seconds=PATIENCE * deadline_s)
        self._control = dist.new_group(backend="gloo", timeout=patience)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What ``function(place, *arguments)`` returns on each rank, on every rank.

        Raises, on every rank, what one of them raised. A rank that is gone ends the world: cases after it fail too.
        """
        import torch.distributed as dist

        if self.broken:
            raise self.broken
        answers: list[Any] = [None] * self._place.size
        try:
            dist.barrier(group=self._control)
            answer: Any
            try:
                answer = function(self._place, *arguments)
            except GpubenchError as error:
                answer = error
            dist.all_gather_object(answers, answer, group=self._control)
        except Exception as error:
            told = f"{type(error).__name__}: {one_line(error)}"
            self.broken = RankFailure(self._place.rank, told, status="error")
            raise self.broken from error
        for answer in answers:
            if isinstance(answer, GpubenchError):
                raise answer
        return answers

    def close(self) -> None:
        """Leave the process group."""
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):  # others may be gone
            dist.destroy_process_group()
