"""``python -m gpubench.plugin.launcher``: starts pytest on several ranks by torchrun, with torchrun's own options, and
is the command of each rank.

torchrun says which rank failed in its log only; here the supervisor reads it in the journal.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from torch.distributed.run import parse_args, run

from ..devices.cpu import cores
from ..runfile.ledger import Ledger
from ..supervise import process
from ..supervise.child import become_child, run_pytest
from .settings import launched

_STOPPED = "; after a collective that timed out, NCCL_P2P_DISABLE=1 may help, and NCCL_DEBUG=INFO says more"


def start_ranks(words: Sequence[str]) -> int:
    """Start the ranks and wait for them; write into the journal which one failed first."""
    os.environ[process.SUPERVISOR] = str(os.getpid())  # the ranks end with this process
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))  # torchrun would set 1, and rank 0 also measures with all
    if loopback := {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}:  # lo0: macOS; keeps others out
        os.environ |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), min(loopback))
    try:
        run(parse_args([*words]))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        ended = {rank: failure for rank, failure in error.failures.items() if failure.exitcode != -signal.SIGTERM}
        failures = ended or error.failures  # torchrun ends the other ranks by SIGTERM
        first = min(failures, key=lambda rank: failures[rank].timestamp)
        reason = f"rank {first}: {_how_it_ended(failures[first])}"
        Ledger(os.environ[process.JOURNAL]).add_event("rank", status="crashed", reason=reason)
        return 1
    return 0


def _how_it_ended(failure: ProcessFailure) -> str:
    if isinstance(failure.message, dict):  # of an exception
        return str(failure.message["message"])
    return process.signal_or_code(failure.exitcode) + _STOPPED * (failure.exitcode == -signal.SIGABRT)


@record
def measure(words: Sequence[str]) -> None:
    """Run pytest on this rank. Raises RuntimeError if pytest didn't come to its end, so that the other ranks end."""
    if code := run_pytest(words):
        raise RuntimeError(f"pytest exited with {code}")


if __name__ == "__main__":
    become_child()
    code = measure(sys.argv[1:]) if launched() else start_ranks(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code or 0)  # to take torch down in good order lasts seconds
