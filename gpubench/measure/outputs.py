"""Outputs of a call: the numbers of a result, of any library and layout, and how two results differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..devices import CPU
from ..devices.lazy import np, torch
from .data import bare_tensors, is_array, leaves, require_memory

_MOST_OUTPUTS = 10_000  # their comparison takes seconds


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
    arrays = [leaf for leaf in leaves(values) if is_array(leaf) or isinstance(leaf, np.generic)]
    return sum(t.numel() for t in bare_tensors(values)) + sum(int(math.prod(array.shape)) for array in arrays)


def outputs(result: Any) -> list[Output]:
    """Return the outputs in a result: each tensor, array and number, and each long list of numbers. Raises
    :class:`Incomparable`."""
    found = [output for leaf in leaves(result) for output in _outputs_of(leaf)]
    if len(found) > _MOST_OUTPUTS:
        raise Incomparable(f"the result has {len(found)} parts: too many to compare")
    return found


def _outputs_of(leaf: Any) -> list[Output]:
    kind, dtype = type(leaf).__name__, str(getattr(leaf, "dtype", "")).removeprefix("torch.")
    if isinstance(leaf, bool | int | float | complex | list | tuple | dict | np.ndarray | np.generic):
        try:
            array = np.asarray(list(leaf.values()) if isinstance(leaf, dict) else leaf)
        except ValueError as error:
            raise Incomparable("the result is nested too deeply to compare") from error
        if array.dtype.kind not in "biufcmMSU":
            raise Incomparable(f"an array of {'objects' if array.dtype.kind == 'O' else array.dtype} can't be compared")
        leaf = _of_numpy(array)
    elif is_array(leaf):
        leaf = torch.from_dlpack(leaf)
    elif not isinstance(leaf, torch.Tensor):
        return []
    try:
        return [Output(part, dtype) for part in _dense(leaf.detach().cpu())]
    except Exception as error:
        raise Incomparable(f"a {kind} of torch.{dtype} can't be compared") from error


def _of_numpy(array: Any) -> torch.Tensor:
    """Return an array's numbers; dates as whole numbers, text as its bytes."""
    kind, size = array.dtype.kind, array.itemsize
    if kind in "SU":
        return torch.from_numpy(np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).copy())
    usual = {"m": "i8", "M": "i8", "f": f"f{min(8, size)}", "c": f"c{min(16, size)}"}.get(kind)
    return torch.from_numpy(np.array(array, usual or array.dtype.newbyteorder("=")))  # torch has no reversed views


def _dense(tensor: Any) -> list[torch.Tensor]:
    """Return the numbers of a tensor in dtypes that torch computes with, complex ones as pairs; formats of 8 bits and
    fewer as their codes."""
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
    """Return the largest difference / largest finite value expected; infinite where only one of them is NaN or
    infinite. Numbers that are subnormal in the result's dtype have fewer digits: for these it is difference / least
    normal number."""
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
