"""The NumPy and the torch form of a workload compute the same; wrong factors, draws and prices are seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import (
    test_irregular as irregular,
    test_linear_algebra as linear_algebra,
    test_quantised as quantised,
    test_reductions as reductions,
    test_science as science,
    test_sparse as sparse,
    test_transfer as transfer,
)
from gpubench.devices import CPU
from gpubench.errors import WrongAnswer
from gpubench.measure.copies import copy_call
from gpubench.measure.data import Data
from gpubench.measure.work import count


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


POINTS_AND_CENTRES = draw(500, science.DIMENSIONS), 2 * draw(science.CLUSTERS, science.DIMENSIONS)
ROWS_WEIGHT_BIAS = draw(3, reductions.COLUMNS), draw(reductions.COLUMNS), draw(reductions.COLUMNS)
CLASSES = torch.arange(9) * 5
TAPS = torch.tensor(science.TAPS, dtype=torch.float64)
SPARSE_AND_DENSE = 2 * torch.arange(7), torch.tensor([0, 3] * 6), draw(12), draw(6, 2)
PAIRS = {
    "k-means": (science.kmeans_step, science.numpy_kmeans_step, POINTS_AND_CENTRES),
    "neighbours": (science.nearest, science.numpy_nearest, (draw(500, 8), draw(20, 8))),
    "stencil": (science.heat_step, science.heat_step, (draw(40, 40),)),
    "resize": (science.resize, science.numpy_resize, (draw(2, 3, science.LARGE, science.LARGE),)),
    "blur": (science.blur, science.scipy_blur, (draw(2, 3, 50, 50), TAPS)),
    "top-k": (*irregular.LARGEST, (draw(3, 1000),)),
    "scatter-add": (*irregular.SCATTER_ADD, (draw(50), torch.arange(200) % 37, draw(200))),
    "rows": (*irregular.ROWS, (torch.arange(200) % 37, draw(50, 8))),
    "gather": (*irregular.OF_OWN_ROW, (draw(9, 50), torch.arange(90).view(9, 10) % 37)),
    "sparse": (sparse.multiply, sparse.reference, SPARSE_AND_DENSE),
    "softmax": (reductions.softmax, reductions.numpy_softmax, (draw(3, 50),)),
    "layer norm": (*reductions.LAYER_NORM, ROWS_WEIGHT_BIAS),
    "rms norm": (*reductions.RMS_NORM, ROWS_WEIGHT_BIAS[:2]),
    "argmax": (reductions.argmax, reductions.numpy_argmax, (draw(3, 50),)),
    "cross-entropy": (torch.nn.functional.cross_entropy, reductions.numpy_cross_entropy, (draw(9, 50), CLASSES)),
}


def test_the_neighbours_themselves_are_found_in_both_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """``topk`` finds them, so a partition of distances alone would be less work."""
    sought = []
    monkeypatch.setattr(np, "argpartition", lambda *args, f=np.argpartition: sought.append(args) or f(*args))
    science.numpy_nearest(draw(500, 8).numpy(), draw(20, 8).numpy())
    assert sought


def test_both_libraries_blur_with_as_many_operations() -> None:
    images = draw(2, 3, 50, 50)
    counted = count(copy_call(science.blur, (images, TAPS), {}))
    assert counted
    assert counted.flops == 2 * 2 * len(science.TAPS) * images.numel()


@pytest.mark.parametrize("name", PAIRS)
def test_both_libraries_compute_the_same(name: str) -> None:
    function, numpy_function, tensors = PAIRS[name]
    result = numpy_function(*(tensor.numpy() for tensor in tensors))
    np.testing.assert_allclose(result, function(*tensors).numpy(), rtol=1e-9, atol=1e-12)


def test_the_exact_price_is_black_and_scholes() -> None:
    assert science.exact_price() == pytest.approx(10.4506, abs=1e-4)  # 100 N(0.35) - 95.1229 N(0.15), by tables


@pytest.mark.parametrize("n", [1000, 100_000])
def test_a_price_must_be_near_the_exact_one(n: int) -> None:
    simulated = science.numpy_simulated_price(n, np.random.default_rng(1), np.float64)
    science.require_price(simulated, n)
    for wrong in (science.exact_price() + 7 * science.PAYOFF_DEVIATION / math.sqrt(n), math.nan):
        with pytest.raises(WrongAnswer, match=f"from {n} paths"):
            science.require_price(wrong, n)


def test_normal_values_are_told_from_others() -> None:
    generator = np.random.default_rng(1)
    irregular.require_normal(generator.standard_normal(10**5))
    for wrong in (generator.random(10**5), 1.1 * generator.standard_normal(10**5), np.zeros(10**5)):
        with pytest.raises(WrongAnswer, match="normal values"):
            irregular.require_normal(wrong)


class Taken:
    """In place of the fixture: makes the inputs of a benchmark, and keeps the call that it would measure."""

    implementation = "torch"

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.args = dtype, ()
        self.data = Data(CPU, dtype, seed=0)
        self.randn, self.randint = self.data.randn, self.data.randint
        self.array = lambda tensor: tensor

    def declare(self, **terms: object) -> None:
        """Ignore the terms of the call."""

    def __call__(self, function: object, *args: object) -> None:
        self.function, self.args = function, args


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_running_sum_is_exact_even_if_its_parts_are_kept_in_16_bits(dtype: torch.dtype) -> None:
    taken = Taken(dtype)
    irregular.test_cumsum(taken, 2**20)
    (steps,) = taken.args
    shift, sums = 1, steps.clone()
    while shift < len(sums):  # each pass adds up twice as long a stretch (Hillis and Steele, CACM 29, 1986)
        sums[shift:] += sums[:-shift].clone()
        shift *= 2
    assert sums.dtype == dtype
    assert torch.equal(sums.double(), steps.double().cumsum(0))
    assert sums.unique().numel() > 200  # a sum that stands still would be exact too


def test_the_right_side_of_an_int8_product_is_stored_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor cores read it so; by rows it is copied first, or takes slower kernels."""
    monkeypatch.setattr(quantised, "require", lambda *_: None)
    taken = Taken(torch.int8)
    quantised.test_int8(taken, 64)
    a, b = taken.args
    assert b.stride() == (1, 64)
    assert torch.equal(taken.function(a, b).double(), quantised.exactly(a, b))


def test_how_many_different_values_are_drawn() -> None:
    drawn = np.random.default_rng(1).integers(1000, size=2000)
    assert irregular.expected_distinct(2000, 1000) == pytest.approx(len(np.unique(drawn)), rel=0.02)
    assert irregular.expected_distinct(1, 1000) == pytest.approx(1)


class Twisted:
    """torch.linalg, with one vector of each factorisation turned around or doubled."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __getattr__(self, name: str) -> object:
        def twisted(*args: torch.Tensor, **kwargs: object) -> tuple[torch.Tensor, ...]:
            parts = [part.clone() for part in getattr(torch.linalg, name)(*args, **kwargs)]
            parts[0 if name != "eigh" else 1][..., :, 3] *= self.factor
            return tuple(parts)

        return twisted


@pytest.mark.parametrize("shape", [(16, 16), (3, 16, 16)], ids=["one", "batch"])
@pytest.mark.parametrize("name", ["qr", "svd", "eigh"])
def test_factors_are_held_against_their_matrix(name: str, shape: tuple[int, ...]) -> None:
    matrix = draw(*shape)
    matrix = matrix + matrix.mT
    reference = partial(linear_algebra.reference, name)
    expected = linear_algebra.unique_part(name, torch.linalg, matrix)
    torch.testing.assert_close(reference(torch.linalg, matrix, "float64", matrix), expected)
    for factor in (-1.0, 2.0):
        if name == "eigh" and factor < 0:
            continue  # the other sign is as good
        with pytest.raises(WrongAnswer, match="tolerance"):
            reference(Twisted(factor), matrix, "float64", matrix)


@pytest.mark.parametrize("copy", [transfer.test_host_to_device, transfer.test_device_to_host])
def test_nothing_is_copied_to_a_gpu_that_works_in_the_cpu_s_memory(copy: Callable[..., None]) -> None:
    made = SimpleNamespace(randn=lambda n: None, empty=lambda n: None)
    there = SimpleNamespace(home=SimpleNamespace(shares_memory=True), host=made, **vars(made))
    with pytest.raises(pytest.skip.Exception, match="nothing need be copied"):
        copy(there, "pageable", False, 1000)
