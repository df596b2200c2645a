"""How far a rank has come, told to the process that watches it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..devices import CPU, find_device
from ..errors import WrongAnswer
from ..measure.budget import MIN_ROUND, Preset, require, rounds as fitting_rounds
from ..measure.clock import DeviceClock, repeat
from ..measure.data import Data
from ..measure.precision import matmul_precision, torch_dtype
from ..runfile.schema import Check
from ..workloads import training
from .rendezvous import Place

_count: Any = [0]
_rank = 0


def tell_into(counts: Any, rank: int) -> None:
    """From now on count in shared memory."""
    global _count, _rank
    _count, _rank = counts, rank


def advance() -> None:
    """Something was finished: a rank that doesn't say so for as long as the deadline counts as hanging."""
    _count[_rank] += 1


# A rank's part in measuring a job: check, warm up, time each round after a barrier.
#
# Every rank runs this at the same time. What depends on a measured time (how many rounds, whether at all) is decided
# by rank 0 and sent to all, or ranks would disagree on how often to meet.


T = TypeVar("T")
MOST_ROUNDS = 1000


class Work(Protocol):
    """What a rank does in a case, set up and ready."""

    def step(self) -> Any:
        """The call that is timed."""

    def reset(self) -> None:
        """Runs untimed before each round."""

    def check(self) -> Check:
        """Is the answer right? Called once, before anything else; raises WrongAnswer."""

    def told(self) -> dict[str, Any]:
        """What else the case has to say, for its record."""


class Job(Protocol):
    """A case's work, described so that it can be sent to the ranks."""

    dtype: str

    def start(self, place: Place) -> Work:
        """Set it up on one rank."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one rank found. ``durations`` are seconds of each round of ``iterations`` steps."""

    durations: Sequence[float]
    iterations: int
    first_s: float
    check: Check
    told: dict[str, Any] = field(default_factory=dict)


def measure(place: Place, job: Job, preset: Preset, timed: bool = True) -> Measured:
    """Raises :class:`OverBudget`, on every rank, when a step takes too long; ``timed=False`` is one step only."""
    with matmul_precision(job.dtype):
        work = job.start(place)
        advance()
        outcome = work.check()
        advance()
        timer = _Timer(place)
        work.reset()
        first_s = timer.seconds(work.step)
        if not timed:
            return Measured([first_s], 1, first_s, outcome, work.told())
        warm_s = timer.seconds(work.step)
        step_s = together(place, lambda: min(first_s, warm_s))
        require(step_s, "seen in warm-up", preset)
        for _ in range(min(MOST_ROUNDS, int(preset.warmup / max(step_s, 1e-6)))):
            work.step()
            advance()
        work.reset()
        again_s = timer.seconds(work.step)
        count, iterations = together(place, lambda: _rounds(min(step_s, again_s), preset))
        durations = []
        for _ in range(count):
            work.reset()
            durations.append(timer.seconds(work.step, iterations))
        return Measured(durations, iterations, first_s, outcome, work.told())


def _rounds(step_s: float, preset: Preset) -> tuple[int, int]:
    """How many rounds of how many steps: a round lasts at least MIN_ROUND, and all of them the preset's time."""
    if few := fitting_rounds(step_s, preset):
        return few, 1
    iterations = max(1, min(1000, round(MIN_ROUND / max(step_s, 1e-7))))
    return max(preset.min_rounds, min(MOST_ROUNDS, int(preset.max_time / (iterations * max(step_s, 1e-7))))), iterations


class _Timer:
    """Times calls on this rank: from when all ranks are ready to when its own device is done."""

    def __init__(self, place: Place) -> None:
        home = find_device(place.device).device
        self._clock = DeviceClock([home] if home else [])
        self._ranks = place.size

    def seconds(self, call: Callable[[], Any], calls: int = 1) -> float:
        (seconds,) = repeat(call, self._clock, least=1, most=1, calls=calls, before=self._meet)
        advance()
        return seconds

    def _meet(self) -> None:
        import torch.distributed as dist

        if self._ranks > 1:
            dist.barrier()


def together(place: Place, decide: Callable[[], T]) -> T:
    """What rank 0 decides, on every rank."""
    if place.size == 1:
        return decide()
    import torch.distributed as dist

    decision = [decide() if place.rank == 0 else None]
    dist.broadcast_object_list(decision)
    return decision[0]  # type: ignore[return-value]


# What ranks are told to do: a training step, the same in every process, and its gradient checked against one's.


if TYPE_CHECKING:
    import torch

TOLERANCES = {"float64": 1e-10, "float32": training.GRADIENT_TOLERANCE}
"""Of the gradient against one process's in float64 on the CPU, relative in the L2 norm. Where no ReLU or max-pooling
switches sides through rounding float32 is below 1e-6; a switch has been seen to cost thousandths, forgetting to average
costs 0.5."""
LOOSE = 0.2  # bfloat16 has eight bits, and rounds in every layer


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training step on several ranks. ``batch`` rows in all, over all ranks; ``rows`` as in a :class:`Trainer`."""

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

    def data(self, place: Place) -> Data:
        """The job's data on a rank's device."""
        home = find_device(place.device).device
        assert home is not None, place.device
        return Data(home, torch_dtype(self.dtype), self.seed)

    def compare(self, gradient: torch.Tensor) -> Check:
        """The job's first gradient against that of one process on the whole batch, in float64 on the CPU.

        Raises :class:`WrongAnswer` when they differ by more than rounding in the job's dtype explains.
        """
        import torch

        exact = Data(CPU, torch.float64, self.seed)
        reference = training.trainer(self.task, exact, self.batch, rows=self.rows, **self.options)
        reference.backward()
        error = training.relative_error(gradient, reference.gradient())
        allowed = TOLERANCES.get(self.dtype, LOOSE)
        if not error <= allowed:
            raise WrongAnswer(
                f"the gradient differs from a single process's by {error:.3g} in the L2 norm, allowed is {allowed:g}"
            )
        return Check("passed", error, allowed)
