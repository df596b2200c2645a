"""What ranks are told to do: a training step, the same in every process, and its gradient checked against one's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import training
from ..devices import CPU, device as find_device
from ..errors import WrongAnswer
from ..measure.check import Check
from ..measure.data import Data
from ..measure.precision import torch_dtype
from .rendezvous import Place

if TYPE_CHECKING:
    import torch

TOLERANCES = {"float64": 1e-10, "float32": training.GRADIENT_TOLERANCE}
"""Of the gradient against one process's in float64 on the CPU, relative in the L2 norm. Where no ReLU or max-pooling
switches sides through rounding float32 is below 1e-6; a switch has been seen to cost thousandths, forgetting to average
costs 0.5."""
LOOSE = 0.2  # bfloat16 has eight bits, and rounds in every layer


@dataclass(frozen=True, slots=True)
class Job:
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
