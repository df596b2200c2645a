"""Runs of a copied call under a mode: with memory poisoned, results rounded, or free choices made otherwise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

from ..devices.lazy import np, torch
from .copies import CallCopy
from .data import bare_tensors, dispatch_mode, leaves, tensors, uncompiled

_FORMAT = {"element_size", "untyped_storage", "data_ptr", "nbytes", "itemsize", "__repr__"}
"""Methods and properties of tensors whose values depend on the dtype or the place in memory."""
_RANKS = {"linalg_matrix_rank", "linalg_lstsq"}  # Functions that count the singular values above the dtype's epsilon
_VECTORS: dict[str, dict[int, bool]] = {
    "_linalg_svd": {0: False, 2: True},
    "_linalg_eigh": {1: False},
    "linalg_qr": {0: False, 1: True},
    "linalg_eig": {1: False},
    "_linalg_eigvals": {},
}
"""Decompositions, with the positions of the results that hold vectors, whose signs are free, and whether these are
rows."""


@dataclass(slots=True)
class Seen:
    """Observations of a run: ``dtypes`` counts the results of operators; the others say whether it drew random numbers,
    decomposed a matrix, read a dtype's format, such as the size of its elements, and counted singular values."""

    dtypes: Counter[str] = field(default_factory=Counter)
    random: bool = False
    decomposed: bool = False
    format: bool = False
    ranks: bool = False


@contextmanager
def poisoned(
    seen: Seen | None = None, rounded: torch.dtype | None = None, vary: bool = False, most: float = math.inf
) -> Iterator[None]:
    """A context in which memory that the program asks torch for and doesn't fill holds NaN, not an earlier call's
    answer.

    ``seen`` notes the operators; more than ``most`` raise NotImplementedError, since a loop that ends when a result
    stands may never end with rounded results. The results of operators are ``rounded`` to a dtype. With ``vary`` an
    operator's free choices are made otherwise: random numbers, signs of vectors, the order of eigenvalues.
    """
    aten, noted = torch.ops.aten, seen or Seen()
    unfilled = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided}

    def handle(_: Any, step: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if noted.dtypes.total() > most:
            raise NotImplementedError("its number of steps depends on rounding")
        if str(step) == "aten.view.dtype" and (args[0].is_floating_point() or args[0].is_complex()):
            raise NotImplementedError("it reads the bits of its input, and float64 has other ones")
        result = _drawing(noted, step, args, kwargs)
        if step.overloadpacket in unfilled:
            return result.fill_(math.nan) if result.is_floating_point() else result
        if vary:
            result = _choose_otherwise(step, args, kwargs, result)
        if not step.is_view:
            results = bare_tensors(result)
            noted.decomposed |= step.overloadpacket.__name__ in _VECTORS
            noted.dtypes.update(str(each.dtype).removeprefix("torch.") for each in results)
            _round(results, rounded)
        return result

    def finfo(*args: Any, limits: Any = torch.finfo) -> Any:
        noted.format = True
        return limits(*args)

    with uncompiled(), mock.patch("torch.finfo", finfo), _noting()(noted), dispatch_mode()(handle):
        yield


@cache
def _noting() -> Any:
    """Return the class of modes that note autocast and questions about the dtype, which reach no operator."""
    from torch.overrides import TorchFunctionMode

    class Noting(TorchFunctionMode):
        def __init__(self, seen: Seen) -> None:
            self._seen = seen

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            self._seen.ranks |= name in _RANKS
            name = getattr(function.__self__, "__name__", "") if name == "__get__" else name
            self._seen.format |= name in _FORMAT
            for kind in {leaf.device.type for leaf in args if isinstance(leaf, torch.Tensor)}:
                if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                    self._seen.dtypes[str(torch.get_autocast_dtype(kind)).removeprefix("torch.")] += 1
            return function(*args, **(kwargs or {}))

    return Noting


def _drawing(seen: Seen, step: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operator, and note whether it moved a random stream: dropout with p=0 draws nothing."""
    if torch.Tag.nondeterministic_seeded not in step.tags:
        return step(*args, **kwargs)
    given = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator))
    stream = next(given, torch.default_generator)
    before, result = stream.get_state(), step(*args, **kwargs)
    seen.random |= not torch.equal(before, stream.get_state())
    return result


def _choose_otherwise(step: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """Change what an operator leaves to its algorithm: random numbers, the sign of each second vector of a
    decomposition, the order of eigenvalues."""
    if torch.Tag.nondeterministic_seeded in step.tags:
        return step(*args, **kwargs)
    name = step.overloadpacket.__name__
    for place, across in _VECTORS.get(name, {}).items():
        (result[place].mT if across else result[place])[..., ::2].neg_()
    for unordered in {"linalg_eig": result, "_linalg_eigvals": [result]}.get(name, ()):
        unordered.copy_(unordered.flip(-1))
    return result


def _round(results: list[torch.Tensor], dtype: torch.dtype | None) -> None:
    """Round float64 numbers, also in complex ones, to another dtype, in place."""
    for tensor in results if dtype else ():
        real = torch.view_as_real(tensor) if tensor.dtype == torch.complex128 and not tensor.is_conj() else tensor
        if real.dtype == torch.float64:
            with suppress(RuntimeError):  # within torch.func, where a result may not be written
                real.copy_(real.to(dtype))


def move(call: CallCopy, unit: float) -> None:
    """Change each number that a call is given by this relative amount, up or down at random. Whole numbers aren't made
    smaller, since what cuts digits off would take them for the one before."""
    arrays = [leaf for leaf in leaves((call.args, call.kwargs)) if isinstance(leaf, np.ndarray)]
    held = [torch.from_numpy(each) for each in arrays if each.dtype == np.float64 and each.flags.writeable]
    for part in [*tensors(call.args, call.kwargs, call.function), *held]:
        part = torch.view_as_real(part.detach()) if part.is_complex() and not part.is_conj() else part.detach()
        if part.dtype == torch.float64 and part.numel():
            signs = 2 * torch.randint(0, 2, part.shape, dtype=torch.float64) - 1
            signs = signs if unit > 0 else -signs
            part.mul_(1 + abs(unit) * torch.where(part == part.round(), signs.clamp(min=0), signs))
