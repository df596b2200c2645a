"""What one rank does to measure a job: check, warm up, time each round after a barrier.

Every rank runs this at the same time. What depends on a measured time (the number of rounds, whether to go on at all)
is decided by rank 0 and sent to all, so that all ranks reach the same barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..devices import CPU, find_device
from ..errors import WrongAnswer
from ..measure import budget
from ..measure.budget import MIN_ROUND, Preset
from ..measure.clock import DeviceClock, repeat
from ..measure.data import Data
from ..measure.precision import matmul_precision, torch_dtype
from ..runfile.schema import Check
from ..workloads import training
from .rendezvous import Rank

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
MOST_ROUNDS = 1000

_progress: Any = [0]
_number = 0


def share_progress(counts: Any, number: int) -> None:
    """Count the progress of rank ``number`` in ``counts`` from now on: shared memory, one integer per rank."""
    global _progress, _number
    _progress, _number = counts, number


def report_progress() -> None:
    """Count one finished step: a rank that doesn't within the deadline counts as hanging."""
    _progress[_number] += 1


class RankWork(Protocol):
    """A job that is set up on one rank."""

    def step(self) -> Any:
        """The call that is timed."""

    def reset(self) -> None:
        """Runs untimed before each round."""

    def check(self) -> Check:
        """Check the result, once, before anything else; raises :class:`WrongAnswer`."""

    def record(self) -> dict[str, Any]:
        """Further fields of the case's record."""


class RankJob(Protocol):
    """A case's work, described so that it can be sent to the ranks."""

    dtype: str

    def start(self, rank: Rank) -> RankWork:
        """Set the work up on one rank."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """What one rank measured: ``durations`` are the seconds of each round of ``iterations`` steps.

    ``first_s``: seconds of the first step. ``record``: further fields of the case's record.
    """

    durations: Sequence[float]
    iterations: int
    first_s: float
    check: Check
    record: dict[str, Any] = field(default_factory=dict)


def measure_rank(rank: Rank, job: RankJob, preset: Preset, timed: bool = True) -> RankTimes:
    """Check and time a job on this rank; ``timed=False`` runs a single step.

    Raises :class:`OverBudget`, on every rank, when a step takes too long.
    """
    with matmul_precision(job.dtype):
        work = job.start(rank)
        report_progress()
        check = work.check()
        report_progress()
        timer = _Timer(rank)
        work.reset()
        first_s = timer.seconds(work.step)
        if not timed:
            return RankTimes([first_s], 1, first_s, check, work.record())
        warm_s = timer.seconds(work.step)
        step_s = decide_on_rank_0(rank, lambda: min(first_s, warm_s))
        budget.require(step_s, "seen in warm-up", preset)
        for _ in range(min(MOST_ROUNDS, int(preset.warmup / max(step_s, 1e-6)))):
            work.step()
            report_progress()
        work.reset()
        last_s = timer.seconds(work.step)
        count, iterations = decide_on_rank_0(rank, lambda: _rounds(min(step_s, last_s), preset))
        durations = []
        for _ in range(count):
            work.reset()
            durations.append(timer.seconds(work.step, iterations))
        return RankTimes(durations, iterations, first_s, check, work.record())


def _rounds(step_s: float, preset: Preset) -> tuple[int, int]:
    """Number of rounds and of steps per round: a round lasts at least MIN_ROUND, all of them the preset's time."""
    if few := budget.rounds(step_s, preset):
        return few, 1
    iterations = max(1, min(1000, round(MIN_ROUND / max(step_s, 1e-7))))
    return max(preset.min_rounds, min(MOST_ROUNDS, int(preset.max_time / (iterations * max(step_s, 1e-7))))), iterations


class _Timer:
    """Times calls on this rank: from when all ranks are ready to when its own device is done."""

    def __init__(self, rank: Rank) -> None:
        device = find_device(rank.device).device
        self._clock = DeviceClock([device] if device else [])
        self._world_size = rank.world_size

    def seconds(self, call: Callable[[], Any], calls: int = 1) -> float:
        (seconds,) = repeat(call, self._clock, least=1, most=1, calls=calls, before=self._barrier)
        report_progress()
        return seconds

    def _barrier(self) -> None:
        if self._world_size > 1:
            import torch.distributed as dist

            dist.barrier()


def decide_on_rank_0(rank: Rank, decide: Callable[[], T]) -> T:
    """The result of ``decide`` on rank 0, returned on every rank."""
    if rank.world_size == 1:
        return decide()
    import torch.distributed as dist

    decision = [decide() if rank.number == 0 else None]
    dist.broadcast_object_list(decision)
    return decision[0]  # type: ignore[return-value]


TOLERANCES = {"float64": 1e-10, "float32": training.GRADIENT_TOLERANCE}
"""Of the gradient against that of one process in float64 on the CPU, relative in the L2 norm. Without a ReLU or
max-pooling that rounding switches, float32 stays below 1e-6; one switch has cost thousandths, a missing average
costs 0.5."""
_OTHER_TOLERANCE = 0.2  # bfloat16 has eight bits, and rounds in every layer


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training step on several ranks: ``batch`` rows over all ranks; ``rows`` as in :func:`training.trainer`."""

    task: str
    method: str
    batch: int
    optimizer: str = "sgd"
    rate: float = 1e-3
    rows: int | None = None
    epochs: int = 0
    dtype: str = "float32"
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def data(self, rank: Rank) -> Data:
        """The job's data on a rank's device."""
        device = find_device(rank.device).device
        assert device is not None, rank.device
        return Data(device, torch_dtype(self.dtype), self.seed)

    def compare(self, gradient: torch.Tensor) -> Check:
        """Check the job's first gradient against that of one process on the whole batch, in float64 on the CPU.

        Raises :class:`WrongAnswer` when they differ by more than rounding in the job's dtype explains.
        """
        import torch

        exact = Data(CPU, torch.float64, self.seed)
        reference = training.trainer(self.task, exact, self.batch, rows=self.rows, **self.options)
        reference.backward()
        error = training.relative_error(gradient, reference.gradient())
        allowed = TOLERANCES.get(self.dtype, _OTHER_TOLERANCE)
        if not error <= allowed:
            raise WrongAnswer(
                f"the gradient differs from a single process's by {error:.3g} in the L2 norm, allowed is {allowed:g}"
            )
        return Check("passed", error, allowed)
