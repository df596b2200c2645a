"""Outputs of a call: the numbers of a result, of any library and layout, and how two results differ; and runs of a copy
under a mode: with memory poisoned, results rounded, or free choices made otherwise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

from ..devices import CPU
from ..devices.lazy import np, torch
from .copies import CallCopy
from .data import bare_tensors, dispatch_mode, is_array, leaves, require_memory, tensors, uncompiled

_MOST_OUTPUTS = 10_000  # their comparison takes seconds
_FORMAT = {"element_size", "untyped_storage", "data_ptr", "nbytes", "itemsize", "__repr", "nan_to_num"}
"""Methods and properties of tensors, without the last underscores, that depend on the dtype or the place in memory."""
_RANKS = {"linalg_matrix_rank", "linalg_lstsq"}  # Functions that count the singular values above the dtype's epsilon
_VECTORS: dict[str, dict[int, bool]] = {
    "_linalg_svd": {0: False, 2: True},
    "_linalg_eigh": {1: False},
    "linalg_qr": {0: False, 1: True},
    "linalg_eig": {1: False},
    "_linalg_eigvals": {},
}
"""Decompositions, with the positions of the results that hold vectors of any sign, and whether these are
rows."""


class Incomparable(Exception):
    """A result that can't be compared; the text is the reason."""


class Output(NamedTuple):
    """Numbers of a result: dense, real, on the CPU, with the ``dtype`` that they had; a Python number has none."""

    values: torch.Tensor
    dtype: str

    @property
    def is_whole(self) -> bool:
        """Whether all are whole numbers."""
        return not self.values.is_floating_point() or bool((self.values == self.values.round()).all())


def elements(*values: Any) -> int:
    """Return the number of elements of all tensors and arrays in these values, without the parameters of modules."""
    arrays = [leaf for leaf in leaves(values) if is_array(leaf) or _is_like_an_array(leaf)]
    return sum(t.numel() for t in bare_tensors(values)) + sum(int(math.prod(array.shape)) for array in arrays)


def _is_like_an_array(value: Any) -> bool:
    """Whether the value is a number of NumPy, a table of pandas or their like."""
    return hasattr(type(value), "__array__") and not (isinstance(value, torch.Tensor) or is_array(value))


def outputs(result: Any) -> list[Output]:
    """Return each tensor, array, number and long list of numbers in a result. Raises :class:`Incomparable`."""
    parts = leaves(result)
    if len(parts) > _MOST_OUTPUTS:
        raise Incomparable(f"the result has {len(parts)} parts: too many to compare")
    return [output for part in parts for output in _outputs_of(part)]


def _outputs_of(leaf: Any) -> list[Output]:
    leaf = np.asarray(leaf) if _is_like_an_array(leaf) else leaf
    kind, dtype = type(leaf).__name__, str(getattr(leaf, "dtype", "")).removeprefix("torch.")
    if isinstance(leaf, bool | int | float | complex | list | tuple | dict | np.ndarray):
        try:
            array = np.asarray(list(leaf.values()) if isinstance(leaf, dict) else leaf)
        except ValueError as error:
            raise Incomparable("the result is nested too deeply to compare") from error
        if array.dtype.kind not in "biufcmMSU":
            raise Incomparable(f"an array of {'objects' if array.dtype.kind == 'O' else array.dtype} can't be compared")
        form: Any = array.dtype.newbyteorder("=")
        if array.dtype.kind in "SU":  # text as its bytes
            array, form = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8), "u1"
        elif array.dtype.kind in "mMfc":  # dates as whole numbers
            form = {"f": f"f{min(8, form.itemsize)}", "c": f"c{min(16, form.itemsize)}"}.get(array.dtype.kind, "i8")
        leaf = torch.from_numpy(np.array(array, form))  # a copy, since torch has no reversed views
    elif is_array(leaf):
        leaf = torch.from_dlpack(leaf)
    elif not isinstance(leaf, torch.Tensor):
        return []
    try:
        return [Output(part, dtype) for part in _dense(leaf.detach().cpu())]
    except Exception as error:
        raise Incomparable(f"a {kind} of torch.{dtype} can't be compared") from error


def _dense(tensor: Any) -> list[torch.Tensor]:
    """Return a tensor's numbers, complex ones as pairs; formats of 8 bits and fewer as their codes."""
    if tensor.is_nested:
        return [dense for part in tensor.unbind() for dense in _dense(part)]
    if hasattr(tensor, "_masked_data"):
        tensor = tensor.to_tensor(0)
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if str(tensor.layout) != "torch.strided":
        require_memory(8 * tensor.numel(), CPU)
        tensor = tensor.to_dense()
    tensor = tensor.as_subclass(torch.Tensor)
    if tensor.is_complex():
        tensor = tensor.to(torch.complex64) if tensor.dtype == torch.complex32 else tensor
        return [torch.view_as_real(tensor.resolve_conj())]
    codes = tensor.dtype.itemsize == 1 and tensor.dtype not in (torch.bool, torch.int8)
    return [tensor.view(torch.uint8) if codes else tensor.resolve_neg()]


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return where both hold the same number or NaN; integers are compared as such, since float64 lacks some int64."""
    if left.dtype != right.dtype:
        left, right = left.double(), right.double()
    return (left == right) | ((left != left) & (right != right))


def others(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return where one whole number isn't the other."""
    near = left.is_floating_point() and (left.double() - right.double()).abs_() <= 0.5
    return ~(_same(left, right) | near)


def error_of(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return the largest difference / largest finite value expected, or the least normal number of the result's dtype,
    since smaller numbers have fewer digits; infinite if only one of two numbers is NaN or infinite."""
    if not right.numel():
        return 0.0
    least, step = 0.0, float(not left.is_floating_point() and not right.is_floating_point())
    if left.is_floating_point() and right.is_floating_point():
        least = torch.finfo(left.dtype).smallest_normal
        right = right.to(left.dtype)  # what overflows or vanishes in the result's dtype does so in the expected value
    same, left, right = _same(left, right), left.double(), right.double()
    difference = (left - right).abs_().clamp_(min=step)  # integers of which float64 makes one
    difference[same] = 0  # equal infinities too
    worst = difference.max().item()
    scale = right.abs().nan_to_num_(0.0, 0.0).max().item()  # of the finite values
    return math.inf if math.isnan(worst) else worst / max(scale, least) if scale else worst


def pairs(left: list[Output], right: list[Output]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return the numbers of the outputs of two results, in pairs."""
    return ((a.values, b.values) for a, b in zip(left, right, strict=True))


def agree(left: list[Output], right: list[Output], allowed: float) -> bool:
    """Whether two results are the same within a relative error."""
    return len(left) == len(right) and all(
        a.shape == b.shape and error_of(a, b) <= allowed * a.is_floating_point() for a, b in pairs(left, right)
    )


@dataclass(slots=True)
class Seen:
    """Observations of a run: counts of results' ``dtypes``, and whether it drew random numbers, decomposed a matrix,
    read a dtype's format, such as the size of its elements, and counted singular values."""

    dtypes: Counter[str] = field(default_factory=Counter)
    random: bool = False
    decomposed: bool = False
    format: bool = False
    ranks: bool = False


@contextmanager
def poisoned(
    seen: Seen | None = None, rounded: torch.dtype | None = None, vary: bool = False, most: float = math.inf
) -> Iterator[None]:
    """A context in which memory that torch allocates and nothing fills holds NaN, not an earlier call's answer.

    ``seen`` notes the operators; more than ``most`` raise NotImplementedError, since a loop may never end with rounded
    results. The results of operators are ``rounded`` to a dtype. With ``vary`` an operator's free choices are made
    otherwise: random numbers, signs of vectors, the order of eigenvalues.
    """
    aten, noted = torch.ops.aten, seen or Seen()
    unfilled = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided}

    def handle(_: Any, step: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if noted.dtypes.total() > most:
            raise NotImplementedError("its number of steps depends on rounding")
        if str(step) == "aten.view.dtype" and (args[0].is_floating_point() or args[0].is_complex()):
            raise NotImplementedError("it reads the bits of its input, and float64 has other ones")
        name, draws = step.overloadpacket.__name__, torch.Tag.nondeterministic_seeded in step.tags
        result = _drawn(noted, step, args, kwargs) if draws else step(*args, **kwargs)
        if step.overloadpacket in unfilled:
            return result.fill_(math.nan) if result.is_floating_point() else result
        if vary:
            result = step(*args, **kwargs) if draws else _chosen_otherwise(name, result)
        if not step.is_view:
            results = bare_tensors(result)
            noted.decomposed |= name in _VECTORS
            noted.dtypes.update(str(each.dtype).removeprefix("torch.") for each in results)
            for each in results if rounded else ():
                real = torch.view_as_real(each) if each.dtype == torch.complex128 and not each.is_conj() else each
                if real.dtype == torch.float64:
                    with suppress(RuntimeError):  # within torch.func, where a result may not be written
                        real.copy_(real.to(rounded))
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
            self._seen.format |= name.rstrip("_") in _FORMAT
            for kind in {leaf.device.type for leaf in args if isinstance(leaf, torch.Tensor)}:
                if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                    self._seen.dtypes[str(torch.get_autocast_dtype(kind)).removeprefix("torch.")] += 1
            return function(*args, **(kwargs or {}))

    return Noting


def _drawn(seen: Seen, step: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operator, and note whether it moved a random stream: dropout with p=0 draws nothing."""
    given = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator))
    stream = next(given, torch.default_generator)
    before, result = stream.get_state(), step(*args, **kwargs)
    seen.random |= not torch.equal(before, stream.get_state())
    return result


def _chosen_otherwise(name: str, result: Any) -> Any:
    """Change the sign of each second vector of a decomposition, and the order of eigenvalues."""
    for place, across in _VECTORS.get(name, {}).items():
        (result[place].mT if across else result[place])[..., ::2].neg_()
    for unordered in {"linalg_eig": result, "_linalg_eigvals": [result]}.get(name, ()):
        unordered.copy_(unordered.flip(-1))
    return result


def move(call: CallCopy, unit: float) -> None:
    """Change each number of a call's inputs by this relative amount, up or down at random, but whole numbers only up,
    since an operator that cuts digits off would take them for the one before."""
    arrays = [leaf for leaf in leaves((call.args, call.kwargs)) if isinstance(leaf, np.ndarray)]
    held = [torch.from_numpy(each) for each in arrays if each.dtype == np.float64 and each.flags.writeable]
    for part in [*tensors(call.args, call.kwargs, call.function), *held]:
        part = torch.view_as_real(part.detach()) if part.is_complex() and not part.is_conj() else part.detach()
        if part.dtype == torch.float64 and part.numel():
            signs = 2 * torch.randint(0, 2, part.shape, dtype=torch.float64) - 1
            signs = signs if unit > 0 else -signs
            part.mul_(1 + abs(unit) * torch.where(part == part.round(), signs.clamp(min=0), signs))
