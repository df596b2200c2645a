"""Training: the networks, data, losses and optimisers of timed steps, on one device or on one rank of several. A step
is a loop's turn for each batch: clear the gradients, forward, loss, backward, update. Data is random, from a seed.
Dropout is off, so that a step has a single right result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from gpubench.errors import WrongAnswer
from gpubench.measure.data import Data, reference_data, require_memory
from gpubench.measure.precision import autocast_dtype, compiled, torch_dtype

from . import models

Batch = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
GRADIENT_TOLERANCE = 1e-2
"""Largest relative L2 error of a gradient. Rounding alone explains less, but it can switch a ReLU or a max-pooling to
its other side, and one switched position has changed a gradient by some thousandths."""
CURVE_TOLERANCE = 0.02
"""Largest difference between two loss curves, relative to the first loss."""
MEMORY_PER_PARAMETER = {"sgd": 3, "adam": 4}
"""Numbers that training holds per parameter: itself, its gradient, and the optimiser's momentum or two moments."""


@dataclass(frozen=True, slots=True)
class Task:
    """A network and what it learns: ``inputs`` and ``targets`` draw a batch of this many rows, each of ``tokens``
    tokens if the network learns language."""

    build: Callable[..., nn.Module]
    inputs: Callable[[Data, int], torch.Tensor]
    targets: Callable[[Data, torch.Tensor], torch.Tensor]
    loss: Loss
    batch_norm: bool = False
    tokens: int | None = None


def _normal(*shape: int) -> Callable[[Data, int], torch.Tensor]:
    return lambda data, batch: data.randn(batch, *shape)


def _classes(count: int) -> Callable[[Data, torch.Tensor], torch.Tensor]:
    return lambda data, inputs: data.randint(count, (len(inputs),))


def _scores(count: int) -> Callable[[Data, torch.Tensor], torch.Tensor]:
    return lambda data, inputs: data.randn(len(inputs), count)


def _prices(data: Data, inputs: torch.Tensor) -> torch.Tensor:
    """Return a smooth function of the columns, with noise, because the original house prices were withdrawn."""
    weights = data.randn(inputs.shape[1], 1) / inputs.shape[1] ** 0.5
    prices: torch.Tensor = (inputs @ weights).sin() * 2 + 0.1 * data.randn(len(inputs), 1)
    return prices


def _cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def _language(build: Callable[..., nn.Module], vocabulary: int, length: int) -> Task:
    """Return a task of random tokens with random targets."""

    def draw(data: Data, batch: int) -> torch.Tensor:
        return data.randint(vocabulary, (batch, length))

    return Task(build, draw, lambda data, inputs: draw(data, len(inputs)), _cross_entropy, tokens=length)


FIRST_SCALE = 2.0**10
"""Factor of a loss before float16's backward pass. With torch's 2**16 the first step of a small batch overflows, which
skips its update."""
GPT2_LENGTH = 32
TASKS = {
    "lenet": Task(models.LeNet, _normal(1, 32, 32), _classes(10), _cross_entropy),
    "cifar": Task(models.CifarNet, _normal(3, 32, 32), _classes(10), _cross_entropy),
    "resnet50": Task(models.resnet50, _normal(3, 224, 224), _classes(1000), _cross_entropy, batch_norm=True),
    "gpt2": _language(models.gpt2, 50257, GPT2_LENGTH),
    "gpt2_512": _language(models.gpt2, 50257, 512),
    "llama_125M": _language(lambda: models.llama("125M"), 32_000, 512),
    "llama_10M": _language(lambda: models.llama("10M"), 16_000, 32),
    "deep_mlp": Task(models.deep_mlp, _normal(512), _scores(512), nn.functional.mse_loss),
    "linear": Task(lambda: nn.Linear(5, 2), _normal(5), _scores(2), nn.functional.mse_loss),
    "tabular": Task(partial(models.mlp, 13, 16, 1, 32), _normal(13), _prices, nn.functional.mse_loss),
}
TABULAR_ROWS, TABULAR_BATCH, TABULAR_EPOCHS = 506, 128, 100
TABULAR: dict[str, Any] = {"rows": TABULAR_ROWS, "rate": 0.01}
"""What the job on the table differs by from the others; its optimiser is Adam."""


def batches(name: str, data: Data, rows: int, size: int) -> list[Batch]:
    """Return ``rows`` rows of a task's data, in batches of ``size``; the last may be smaller."""
    inputs = TASKS[name].inputs(data, rows)
    targets = TASKS[name].targets(data, inputs)
    if name == "tabular":
        inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    return list(zip(torch.split(inputs, size), torch.split(targets, size), strict=True))


def network(name: str, data: Data, **options: Any) -> nn.Module:
    """Return the task's network in training mode, with parameters from the seed and without dropout."""
    built = data.module(models.kept(TASKS[name].build, **options)).train()
    for module in built.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return built


def optimizer(name: str, parameters: Sequence[nn.Parameter], rate: float = 1e-3) -> torch.optim.Optimizer:
    """Return the optimiser ``sgd``, with momentum 0.9, or ``adam``."""
    return torch.optim.SGD(parameters, rate, momentum=0.9) if name == "sgd" else torch.optim.Adam(parameters, rate)


class Trainer:
    """A network with its loss, data and optimiser. ``shares`` weight each batch's loss: a rank that has r of a batch's
    n rows on k ranks weights it with r k / n, so that the ranks' average is the mean over the whole batch. With
    ``accumulates`` set, the batches are parts of one, and a step updates once."""

    accumulates = False

    def __init__(
        self, network: nn.Module, loss: Loss, batches: Sequence[Batch], update: torch.optim.Optimizer, *,
        autocast: str | None = None, shares: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        self.parameters, self.batches, self.update_rule = list(network.parameters()), batches, update
        self._network, self._loss, self._shares = network, loss, shares or [1.0] * len(batches)
        self._rows, self._kind = [len(inputs) for inputs, _ in batches], batches[0][0].device.type
        self._autocast = torch_dtype(autocast) if autocast else None
        half = self._autocast == torch.float16
        self._scaler = torch.amp.GradScaler(self._kind, init_scale=FIRST_SCALE) if half else None

    def forward(self, index: int) -> torch.Tensor:
        """Return the loss of one batch."""
        (inputs, targets), share = self.batches[index], self._shares[index]
        if self._autocast:
            with torch.autocast(self._kind, dtype=self._autocast):
                loss = self._loss(self._network(inputs).float(), targets)
        else:
            loss = self._loss(self._network(inputs), targets)
        return loss if share == 1.0 else loss * share

    def step(self) -> torch.Tensor:
        """Train once on every batch; return the mean loss over all rows, before the updates."""
        total: torch.Tensor | None = None
        for index, rows in enumerate(self._rows):
            if not (self.accumulates and index):
                self.update_rule.zero_grad(set_to_none=True)
            share, last = rows / sum(self._rows), index == len(self._rows) - 1
            loss = self.forward(index)
            self._learn(loss * share if self.accumulates else loss, update=last or not self.accumulates)
            weighed = loss.detach() * share if len(self._rows) > 1 else loss.detach()
            total = weighed if total is None else total + weighed
        assert total is not None, "no batch"
        return total

    def _learn(self, loss: torch.Tensor, *, update: bool) -> None:
        """Run the backward pass, and the update if wanted; gradients in float16 are scaled meanwhile, so that small
        ones don't vanish."""
        scaler = self._scaler
        scaled = loss if scaler is None else scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]
        if update and scaler is None:
            self.update_rule.step()
        elif update and scaler is not None:
            scaler.step(self.update_rule)
            scaler.update()

    def inputs_of(self, part: str) -> list[torch.Tensor]:
        """Return the batches, new at each call."""
        return [tensor for batch in self.batches for tensor in batch]

    def gradient(self) -> torch.Tensor:
        """Return all current gradients as one float64 vector on the CPU."""
        return flat([parameter.grad for parameter in self.parameters])

    def first_gradient(self) -> torch.Tensor:
        """Return the gradients of the first batch's loss as :meth:`gradient` does, and clear them."""
        self.forward(0).backward()  # type: ignore[no-untyped-call]
        gradient = self.gradient()
        self.update_rule.zero_grad(set_to_none=True)
        return gradient

    step.applies_variant = True  # type: ignore[attr-defined]


def flat(tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return the tensors as one float64 vector on the CPU."""
    return torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors if tensor is not None])


def relative_error(vector: torch.Tensor, reference: torch.Tensor) -> float:
    """Return ||vector - reference|| / ||reference|| in the L2 norm."""
    return float(torch.linalg.vector_norm(vector - reference) / torch.linalg.vector_norm(reference))


def trainer(
    name: str, data: Data, batch: int, *, update: str = "sgd", variant: str = "eager", rate: float = 1e-3,
    rows: int | None = None, wrap: Callable[[nn.Module], Any] | None = None, **options: Any,
) -> Trainer:  # fmt: skip
    """Return the trainer of a task, with ``rows`` rows of data (default: one batch) in batches of ``batch``. The
    variant ``autocast`` may name its dtype, as ``autocast float16``, whose gradients are scaled. ``wrap`` makes the
    network that is called."""
    built = network(name, data, **options)
    size = sum(parameter.nbytes for parameter in built.parameters())
    require_memory((MEMORY_PER_PARAMETER[update] - 1) * size, data.home)
    split = batches(name, data, rows or batch, batch)
    rule, (variant, _, half) = optimizer(update, list(built.parameters()), rate), variant.partition(" ")
    autocast = (half or autocast_dtype(data.home)) if variant == "autocast" else None
    wrap = compiled if variant == "compile" else wrap
    called: Any = wrap(built) if wrap else built
    return Trainer(called, TASKS[name].loss, split, rule, autocast=autocast)


def verify_step(learner: Any, reference: Any, tolerance: float = GRADIENT_TOLERANCE) -> torch.Tensor:
    """Return the loss of the reference's step. Raises :class:`WrongAnswer` if the gradients differ by more than
    ``tolerance``, relative in the L2 norm."""
    loss: torch.Tensor = reference.step()
    error = relative_error(learner.gradient(), reference.gradient())
    if not error <= tolerance:
        raise WrongAnswer(f"wrong gradient: relative L2 error {error:.3g}, allowed is {tolerance:g}")
    return loss


def loss_curve(learner: Trainer, epochs: int) -> list[float]:
    """Return the mean loss of each epoch, before its updates."""
    return [loss.item() for loss in [learner.step() for _ in range(epochs)]]


def require_learning(losses: Sequence[float], reference: Sequence[float]) -> None:
    """Raise WrongAnswer unless the loss falls by at least half and stays within CURVE_TOLERANCE of the reference's at
    every epoch."""
    if not losses[-1] <= losses[0] / 2:
        raise WrongAnswer(f"the loss fell from {losses[0]:.3g} to {losses[-1]:.3g} only, not by half")
    worst = max(abs(loss - expected) for loss, expected in zip(losses, reference, strict=True)) / reference[0]
    if not worst <= CURVE_TOLERANCE:
        raise WrongAnswer(f"the loss curve is off by {worst:.3g} of the first loss, allowed is {CURVE_TOLERANCE:g}")


def require_task_learned(losses: Sequence[float], seed: int) -> None:
    """Compare a loss curve of the tabular task with the float64 curve of one process on the CPU; raises WrongAnswer."""
    exact = trainer("tabular", reference_data(seed), TABULAR_BATCH, update="adam", **TABULAR)
    require_learning(losses, loss_curve(exact, TABULAR_EPOCHS))


def measure(
    gpubench: Any, fresh: Callable[[Data], Any], exact: Callable[[Data], Any] | None = None,
    tolerance: float = GRADIENT_TOLERANCE, *, epochs: int | None = None, **work: Any,
) -> None:  # fmt: skip
    """Time a step of the learner that ``fresh`` makes of data. Its loss and gradients are compared with those of the
    learner that ``exact``, or else ``fresh``, makes in float64 on the CPU. With ``epochs``, the number in the whole
    tabular task, the loss curve of another learner is recorded."""
    seed = gpubench.data.seed
    if epochs:
        losses = loss_curve(fresh(Data(gpubench.home, gpubench.dtype, seed)), epochs)
        gpubench.parallel["losses"] = losses
        if gpubench.first:
            require_task_learned(losses, seed)
    learner = fresh(gpubench.data)

    def reference() -> torch.Tensor:
        return verify_step(learner, (exact or fresh)(reference_data(seed)), tolerance)

    gpubench.declare(check=reference, steps=epochs, **work)
    gpubench(learner.step)
