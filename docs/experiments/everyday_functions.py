"""Is a right answer of an everyday function ever refused, or a wrong one passed?

    python docs/experiments/everyday_functions.py

Calls some 190 functions of torch as a benchmark does, checks each result against its float64 reference, and prints what
isn't simply passed. Then the same for functions that are broken on purpose: none may pass.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import linalg, nn

from gpubench.devices import CPU
from gpubench.devices.implementations import find_implementation
from gpubench.errors import Unmeasurable, WrongAnswer
from gpubench.measure.budget import Rates
from gpubench.measure.copies import Uncopyable, copy_call
from gpubench.measure.verify import Reference, prepare_reference
from gpubench.measure.work import Call as Prepared, Request, Work, agree, count
from gpubench.runfile.schema import Check

_draws = torch.Generator().manual_seed(1)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_draws)


X, Y, V = randn(1000), randn(1000), randn(96)
A, B, S = randn(64, 64), randn(64, 64), randn(96, 96)
P = A @ A.T + 64 * torch.eye(64)
IMAGE, TEXT, HEADS = randn(2, 3, 32, 32), randn(4, 16, 64), randn(2, 4, 16, 8)
MANY = randn(1_000_000)
INDEX = torch.randint(64, (100,), generator=_draws)

Call = tuple[Callable[..., Any], tuple[Any, ...]]
ONE = """sin cos tan exp log log2 log10 log1p sqrt rsqrt reciprocal abs neg sign floor ceil round trunc frac sigmoid
tanh asin acos atan sinh cosh asinh acosh atanh erf erfc erfinv lgamma digamma expm1 square relu isnan logit i0 sum mean
std var prod max min argmax argmin norm sort argsort unique median nonzero histc diff std_mean trapezoid"""
ALONG = "logsumexp cumsum cumprod mode softmax log_softmax cummax logcumsumexp"
TWO = """add sub mul div pow atan2 maximum minimum fmod remainder hypot dot outer eq lt copysign logaddexp floor_divide
isclose polar complex"""
MATRIX = "inv det slogdet eig eigvals svd svdvals qr pinv matrix_rank matrix_exp lu lu_factor cond matrix_norm"
POSITIVE = "eigh eigvalsh cholesky cholesky_ex ldl_factor inv"


def autocast(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return layer(x)


def chaos(x: torch.Tensor) -> torch.Tensor:
    for _ in range(50):
        x = 3.9 * x * (1 - x)
    return x


CALLS: dict[str, Call] = {
    **{name: (getattr(torch, name), (X,)) for name in ONE.split()},
    **{name: (getattr(torch, name), (X, 0)) for name in ALONG.split()},
    **{name: (getattr(torch, name), (X, Y)) for name in TWO.split()},
    **{f"linalg.{name}": (getattr(linalg, name), (A,)) for name in MATRIX.split()},
    **{f"linalg.{name} positive": (getattr(linalg, name), (P,)) for name in POSITIVE.split()},
    "x ** 0.5": (lambda x: x**0.5, (X,)),
    "int": (lambda x: (x * 1000).int(), (randn(100_000),)),
    "mask": (lambda x: x[x > 0], (A,)),
    "bins": (lambda x: torch.histc(x, 100, -4, 4), (MANY,)),
    "counts": (lambda x: torch.bincount((x.sigmoid() * 10).floor().long()), (MANY,)),
    "largest of rows": (lambda a, b: (a @ b).argmax(1), (A, B)),
    "indices": (lambda x: torch.topk(x, 10).indices, (MANY,)),
    "hundredths": (lambda x: (x * 100).round(), (MANY,)),
    "topk": (torch.topk, (X, 10)),
    "quantile": (torch.quantile, (X, 0.3)),
    "searchsorted": (lambda x, y: torch.searchsorted(x.sort().values, y), (X, Y)),
    "bincount": (torch.bincount, (INDEX,)),
    "gather": (lambda a, i: a[i], (A, INDEX)),
    "scatter_add": (lambda x, i: x.new_zeros(64).scatter_add(0, i, x), (randn(100), INDEX)),
    "where": (lambda a, b: torch.where(a > 0, a, b), (A, B)),
    "cat": (lambda a, b: torch.cat([a, b]), (A, B)),
    "round to 3 digits": (lambda x: torch.round(x, decimals=3), (X,)),
    "cdist": (torch.cdist, (A, A)),
    "pdist": (F.pdist, (A,)),
    "cov": (torch.cov, (A,)),
    "corrcoef": (torch.corrcoef, (A,)),
    "kron": (torch.kron, (randn(8, 8), randn(8, 8))),
    "mm": (torch.mm, (A, B)),
    "mv": (torch.mv, (S, V)),
    "bmm": (torch.bmm, (randn(4, 8, 8), randn(4, 8, 8))),
    "addmm": (torch.addmm, (A, A, B)),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), (A, B)),
    "three products": (lambda a, b: linalg.multi_dot([a, b, a]), (A, B)),
    "bfloat16 product": (lambda a, b: a.bfloat16() @ b.bfloat16(), (A, B)),
    "half": (lambda a: a.half() * 3, (X,)),
    "complex32": (lambda x: x.to(torch.complex32), (X,)),
    "solve": (linalg.solve, (S, V)),
    "lstsq": (linalg.lstsq, (A, B)),
    "triangular": (lambda a, b: linalg.solve_triangular(a.triu(), b, upper=True), (A, B)),
    "matrix_power": (linalg.matrix_power, (A, 5)),
    "cholesky of a product": (lambda a: linalg.cholesky(a @ a.T + torch.eye(64, dtype=a.dtype)), (A,)),
    "svd_lowrank": (lambda a: torch.svd_lowrank(a, 6), (A,)),
    "pca_lowrank": (lambda a: torch.pca_lowrank(a, 6), (A,)),
    "reconstruction": (lambda a: (lambda u, s, v: u * s @ v)(*linalg.svd(a)), (A,)),
    "fft": (torch.fft.fft, (X,)),
    "rfft": (torch.fft.rfft, (X,)),
    "fft2": (torch.fft.fft2, (A,)),
    "stft": (lambda x: torch.stft(x, 64, window=torch.hann_window(64, dtype=x.dtype), return_complex=True), (X,)),
    "conv2d": (F.conv2d, (IMAGE, randn(8, 3, 3, 3))),
    "conv1d": (F.conv1d, (randn(2, 3, 64), randn(4, 3, 5))),
    "conv_transpose2d": (F.conv_transpose2d, (IMAGE, randn(3, 8, 3, 3))),
    "max_pool2d": (F.max_pool2d, (IMAGE, 2)),
    "avg_pool2d": (F.avg_pool2d, (IMAGE, 2)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE,)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (IMAGE, randn(2, 16, 16, 2))),
    "unfold": (F.unfold, (IMAGE, 3)),
    "layer_norm": (F.layer_norm, (TEXT, (64,))),
    "rms_norm": (F.rms_norm, (TEXT, (64,))),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,)),
    "group_norm": (F.group_norm, (IMAGE, 3)),
    "normalize": (F.normalize, (A,)),
    "cosine_similarity": (F.cosine_similarity, (A, B)),
    "gelu": (F.gelu, (X,)),
    "silu": (F.silu, (X,)),
    "softplus": (F.softplus, (X,)),
    "attention": (F.scaled_dot_product_attention, (HEADS, HEADS, HEADS)),
    "embedding": (F.embedding, (INDEX, A)),
    "one_hot": (F.one_hot, (INDEX,)),
    "cross_entropy": (lambda a: F.cross_entropy(a, torch.arange(64)), (A,)),
    "mse_loss": (F.mse_loss, (A, B)),
    "kl_div": (lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1)), (A, B)),
    "dropout": (F.dropout, (A,)),
    "gradient": (lambda x: torch.func.grad(lambda y: (y**3).sum())(x), (X,)),
    "linear": (nn.Linear(64, 64), (TEXT,)),
    "lstm": (nn.LSTM(64, 64, 2, batch_first=True), (TEXT,)),
    "encoder layer": (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval(), (TEXT,)),
    "autocast": (autocast, (nn.Linear(64, 64), TEXT)),
    "chaos": (chaos, (X.sigmoid(),)),
    "fifty steps": (lambda x: sum((x * k).sin() for k in range(50)), (X,)),
    "sparse product": (torch.sparse.mm, (A.relu().to_sparse(), B)),
    "sparse result": (torch.Tensor.to_sparse_csr, (A.relu(),)),
    "csr": (torch.mv, (S.relu().to_sparse_csr(), V)),
    "csc": (torch.matmul, (A.relu().to_sparse_csc(), B)),
    "bsr": (torch.matmul, (A.relu().to_sparse_bsr((4, 4)), B)),
    "nested": (torch.sin, (torch.nested.nested_tensor([randn(5), randn(7)], layout=torch.jagged),)),
    "quantised": (torch.dequantize, (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),)),
}


def _off(function: Callable[..., Any], by: float = 1e-3) -> Callable[..., Any]:
    def broken(*args: Any) -> Any:
        result = function(*args).clone().contiguous()
        result.view(-1)[-1] += by
        return result

    return broken


BROKEN: dict[str, tuple[Call, Callable[..., Any]]] = {
    "sin, one element": (CALLS["sin"], _off(torch.sin)),
    "sin, the other sign": (CALLS["sin"], lambda x: -torch.sin(x)),
    "sin with NaN": (CALLS["sin"], lambda x: torch.sin(x) + torch.where(x > 2, torch.nan, 0.0)),
    "log without NaN": (CALLS["log"], lambda x: torch.log(x).nan_to_num()),
    "mm in half precision": (CALLS["mm"], lambda a, b: (a.half() @ b.half()).float()),
    "mm in bfloat16": (CALLS["mm"], lambda a, b: (a.bfloat16() @ b.bfloat16()).float()),
    "solve": (CALLS["solve"], _off(linalg.solve)),
    "inv": (CALLS["linalg.inv"], _off(linalg.inv)),
    "singular values": (CALLS["linalg.svd"], lambda a: (lambda u, s, v: (u, s * 1.001, v))(*linalg.svd(a))),
    "eigenvalues": (CALLS["linalg.eigvalsh positive"], lambda a: linalg.eigvalsh(a) * 1.001),
    "int": (CALLS["int"], lambda x: (x * 1000).int() + 5),
    "sum of some": (CALLS["sum"], lambda x: x[:-1].sum()),
    "argmax": (CALLS["argmax"], lambda x: x.argmax() + 1),
    "bins": (CALLS["bins"], lambda x: torch.histc(x, 100, -4, 4).roll(1)),
    "counts": (CALLS["counts"], lambda x: torch.bincount((x.sigmoid() * 10).floor().long()).roll(1)),
    "largest of rows": (CALLS["largest of rows"], lambda a, b: (a @ b).argmax(1) + 1),
    "indices": (CALLS["indices"], lambda x: torch.topk(x, 10).indices + 1),
    "hundredths": (CALLS["hundredths"], lambda x: (x * 100).ceil()),
    "cumulative sum": (CALLS["cumsum"], lambda x, d: x.flip(0).cumsum(d)),
    "layer_norm": (CALLS["layer_norm"], lambda x, shape: F.layer_norm(x, shape, eps=1e-2)),
    "fft": (CALLS["fft"], lambda x: torch.fft.fft(x) * 1.0001),
    "unwritten": ((torch.empty_like, (X,)), torch.empty_like),
    "shape": (CALLS["neg"], lambda x: -x[:-1]),
    "sparse": (CALLS["sparse product"], lambda a, b: torch.sparse.mm(a, b) * 1.001),
}


def judge(function: Callable[..., Any], args: tuple[Any, ...], instead: Callable[..., Any] | None = None) -> Check:
    """Check a call's result, or that of another function ``instead``, as a benchmark does. Raises WrongAnswer."""
    counted = None
    with contextlib.suppress(Unmeasurable, Uncopyable):  # such as a tensor that an operator refuses to count
        counted = count(copy_call(function, args, {}))
    prepared = Prepared(Request(function, args, work=agree(Work(), counted)), args, {})
    library = find_implementation("torch")(CPU, "float32")
    reference = prepare_reference(prepared, "float32", 60.0, Rates().estimate, library, exact=True)
    result = (instead or function)(*args)
    return reference.check(result) if isinstance(reference, Reference) else reference


def main() -> int:
    outcomes: collections.Counter[str] = collections.Counter()
    for name, (function, args) in CALLS.items():
        try:
            outcome = judge(function, args)
        except WrongAnswer as error:
            outcome = Check("refused", reason=str(error))
        outcomes[outcome.status] += 1
        if outcome.status != "passed":
            print(f"{name:24} {outcome.status}: {outcome.reason}")
    print(f"{len(CALLS)} functions: {dict(outcomes)}")
    passed = [name for name, (call, instead) in BROKEN.items() if not caught(call, instead)]
    print(f"{len(BROKEN)} broken ones: {len(BROKEN) - len(passed)} caught{f'; not: {passed}' * bool(passed)}")
    return bool(outcomes["refused"] or passed)


def caught(call: Call, instead: Callable[..., Any]) -> bool:
    """Whether the result of a broken function is called wrong."""
    try:
        judge(*call, instead)
    except WrongAnswer:
        return True
    return False


if __name__ == "__main__":
    raise SystemExit(main())
