"""The launch of ranks by torchrun, in a pytest that torchrun hasn't started: another launch measures all benchmarks of
several ranks, under the supervisor, and this session takes over its results. ``python -m gpubench.plugin.launcher``
starts pytest on several ranks, with torchrun's own options, and is the command of each rank. torchrun names the rank
that failed in its log only; here the supervisor reads it in the journal."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ..devices import in_use
from ..devices.cpu import cores
from ..errors import RankFailure
from ..runfile.ledger import Event, Ledger
from ..runfile.schema import KEY, OK
from ..runfile.writer import scratch
from ..supervise import process
from ..supervise.child import become_child, run_pytest
from ..supervise.supervisor import Supervisor, Unable
from .settings import launched

if TYPE_CHECKING:
    from ..measure.fixture import Gpubench
    from ..measure.session import Session

_DEADLINES = 10
"""Most deadlines of a rank that a benchmark may take."""
_STOPPED = "; after a collective that timed out, NCCL_P2P_DISABLE=1 may help, and NCCL_DEBUG=INFO says more"


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


def measure_ranks(config: pytest.Config, session: Session, ranks: Event) -> dict[str, Event]:
    """Measure benchmarks on several ranks; return the event of the end of each, by full name. ``ranks`` are the
    ``cases`` and the ``count`` of the ranks. Raises KeyboardInterrupt if the user interrupts it."""
    for device in in_use():
        device.release_memory()  # which the ranks may need
    if session.times:
        session.measure_ceilings()
    begun = {
        "event": "session", "process": 0, "cases": ranks["cases"], "ranks": ranks, "whole": True, "machine_info": {},
        "gpubench": {"ceilings": msgspec.to_builtins(session.ceilings)},
        "fingerprint": {"threads": session.use_threads()},
    }  # fmt: skip
    words = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # this package is imported before pytest
    words += ["-p", "gpubench.plugin", "-s", f"--rootdir={config.rootpath}"]
    words += ["-n0"] if config.pluginmanager.hasplugin("xdist") else []
    if not session.times:  # one round of each tells whether it works
        words += ["--benchmark-enable", "--benchmark-max-time=0.001", "--benchmark-min-rounds=1"]
    place, why = process.Interpreter(folder=config.invocation_params.dir), "not measured"
    deadline_s = max(process.SILENCE_S, _DEADLINES * session.settings.ranks_deadline)

    def command(_paths: Sequence[str], options: Sequence[str], python: str) -> list[str]:
        return [*process.pytest_command((), (), python)[:4], *options]

    with scratch("gpubench-ranks-") as folder:
        terms = folder, (), words, 1, deadline_s, lambda event: None
        supervisor = Supervisor(*terms, interpreter=place, command=command)
        supervisor.append(begun)
        supervisor.events.append(begun)
        try:
            supervisor.measure()
        except Unable as error:
            why = str(error)
        if supervisor.interrupted:
            raise KeyboardInterrupt
    ends = {event["fullname"]: event for event in supervisor.events if event["event"] == "end"}
    return {name: {"status": "crashed", "reason": why} for name in ranks["cases"]} | ends


def _start_ranks(words: Sequence[str]) -> int:
    """Start the ranks and wait for them; write into the journal which one failed first."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
    from torch.distributed.run import parse_args, run

    def popen(**how: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(**how | {"start_new_session": False, "process_group": 0})

    os.environ[process.SUPERVISOR] = str(os.getpid())  # the ranks end with this process
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))  # torchrun would set 1, and rank 0 also measures with all
    if loopback := {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}:  # lo0: macOS; keeps others out
        os.environ |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), min(loopback))
    # torchrun gives each rank a session, which Linux schedules as a group of its own: on a busy machine a rank that is
    # woken by another then waits for all other groups: a step took 1.8 times as long, with equal CPU time.
    vars(sys.modules[SubprocessHandler.__module__])["Popen"] = popen
    try:
        run(parse_args([*words]))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        ended = {rank: failure for rank, failure in error.failures.items() if failure.exitcode != -signal.SIGTERM}
        failures = ended or error.failures  # torchrun ends the other ranks by SIGTERM
        first = min(failures, key=lambda rank: failures[rank].timestamp)
        code, message = failures[first].exitcode, failures[first].message
        reason = process.signal_or_code(code) + _STOPPED * (code == -signal.SIGABRT)
        reason = str(message["message"]) if isinstance(message, dict) else reason  # of an exception
        Ledger(os.environ[process.JOURNAL]).add_event("rank", status="crashed", reason=f"rank {first}: {reason}")
        return 1
    return 0


def _measure(words: Sequence[str]) -> None:
    """Run pytest on this rank. Raises RuntimeError if pytest didn't come to its end, so that the other ranks end."""
    if code := run_pytest(words):
        raise RuntimeError(f"pytest exited with {code}")


if __name__ == "__main__":
    become_child()
    if launched():
        from torch.distributed.elastic.multiprocessing.errors import record

        code = record(_measure)(sys.argv[1:]) or 0
    else:
        code = _start_ranks(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # to take torch down in good order lasts seconds
