"""The benchmarks of several ranks in a pytest that torchrun hasn't started: another launch measures all of them, under
the supervisor, and its results are taken over."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ..errors import RankFailure
from ..runfile.ledger import Event
from ..runfile.schema import KEY, OK
from ..runfile.writer import scratch
from ..supervise import process
from ..supervise.supervisor import Supervisor, Unable

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench
    from ..measure.session import Session

_DEADLINES = 10
"""Most deadlines of a rank that a benchmark may take."""


def measure_ranks(config: pytest.Config, session: Session, ranks: Event) -> dict[str, Event]:
    """Measure benchmarks on several ranks; return the event of the end of each, by full name. ``ranks`` are the
    ``cases`` and the ``count`` of the ranks. Raises KeyboardInterrupt if the user interrupts it."""
    from ..devices import in_use

    for device in in_use():
        device.release_memory()  # which the ranks may need
    with scratch("gpubench-ranks-") as folder:
        words = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
        words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this package is imported before pytest
        words += ["-p", "gpubench.plugin", "-s", f"--rootdir={config.rootpath}"]
        words += ["-n0"] if config.pluginmanager.hasplugin("xdist") else []
        if not session.times:  # one round of each tells whether it works
            words += ["--benchmark-enable", "--benchmark-max-time=0.001", "--benchmark-min-rounds=1"]
        place = process.Interpreter(folder=config.invocation_params.dir)
        deadline_s = max(process.SILENCE_S, _DEADLINES * session.settings.ranks_deadline)
        supervisor = Supervisor(
            folder, (), words, 1, deadline_s, lambda event: None, interpreter=place, command=_command
        )
        begun = _session(session, ranks)
        supervisor.append(begun)
        supervisor.events.append(begun)
        why = "not measured"
        try:
            supervisor.measure()
        except Unable as error:
            why = str(error)
        if supervisor.interrupted:
            raise KeyboardInterrupt
        ends = {event["fullname"]: event for event in supervisor.events if event["event"] == "end"}
    return {name: {"status": "crashed", "reason": why} for name in ranks["cases"]} | ends


def _command(_paths: Sequence[str], options: Sequence[str], python: str) -> list[str]:
    return [*process.pytest_command((), (), python)[:4], *options]


def _session(session: Session, ranks: Event) -> Event:
    """Return the event that makes the ranks measure these tests, with the threads and the peaks of this session."""
    if session.times:
        session.measure_ceilings()
    peaks = msgspec.to_builtins(session.ceilings)
    return {
        "event": "session", "process": 0, "cases": ranks["cases"], "ranks": ranks, "whole": True,
        "machine_info": {}, "gpubench": {"ceilings": peaks}, "fingerprint": {"threads": session.use_threads()},
    }  # fmt: skip


class Results:
    """The value of the fixture ``gpubench_ranks`` where another launch has measured: the result of a benchmark."""

    def __init__(self, name: str, ends: Callable[[], dict[str, Event]]) -> None:
        self._name, self._ends = name, ends

    def measure(self, gpubench: Gpubench, *_job: Any, **_record: Any) -> None:
        """Take over the times and the record of the benchmark. Raises RankFailure, or skips, if it has none."""
        gpubench.take_declaration()
        end = self._ends()[self._name]
        if end["status"] == "skipped":
            pytest.skip(end["reason"])
        if end["status"] != OK:
            raise RankFailure(None, end["reason"], end["status"])
        stats, record = end["benchmark"]["stats"], end["benchmark"]["extra_info"][KEY]
        calls = stats["iterations"]
        gpubench.take_over([calls * call_s for call_s in stats["data"]], calls, record)
