"""Checks of results, before anything is timed: the time of a wrong result means nothing.

A float64 copy of the inputs is made before the first call and compared with that call's result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..devices import CPU
from ..devices.implementations import TORCH, Implementation
from ..errors import TooLarge, Unrepeatable, WrongAnswer
from ..runfile.schema import Check
from .budget import Rates
from .data import apart_from, as_tensor, bare_tensors, dispatch_mode, is_array, require_memory, tensors
from .precision import ROUNDOFF
from .work import Prepared, substituted

if TYPE_CHECKING:
    import torch

LOOSEST = {"float64": 1e-10, "float32": 1e-3, "tf32": 2e-2, "float16": 2e-2, "bfloat16": 5e-2}
"""However long the reduction, a larger relative error than this is a wrong result, not rounding."""


_CHAIN = 100
"""An error up to this many times the tolerance may be the rounding of many steps."""


def unchecked(reason: str) -> Check:
    """Return the outcome of a case that has no reference, with the reason."""
    return Check("unchecked", reason=reason)


def tolerance(dtype: str, flops: float | None, inputs: int, outputs: int) -> float:
    """Return the largest relative error that rounding explains: 8 u + 4 u sqrt(k).

    u is the dtype's unit roundoff and k the length of the longest sum behind one output. Rounding errors of a sum of k
    terms grow as sqrt(k) u if they are independent (Higham and Mary, *A New Approach to Probabilistic Rounding Error
    Analysis*, 2019); the factors leave room for an unlucky draw. k is at most the number of multiply-adds, or of
    elements of all inputs, per element of the output.
    """
    length = max(1.0, (flops or 0) / (2 * max(1, outputs)), inputs / max(1, outputs))
    return min(ROUNDOFF[dtype] * (8 + 4 * math.sqrt(length)), LOOSEST[dtype])


def elements(*values: Any) -> int:
    """Number of elements of all tensors and arrays in these values, without the parameters of modules."""
    import numpy as np
    from torch.utils import _pytree

    arrays = [leaf for leaf in _pytree.tree_leaves(values) if is_array(leaf) or isinstance(leaf, np.generic)]
    return sum(t.numel() for t in bare_tensors(values)) + sum(int(math.prod(array.shape)) for array in arrays)


def in_float64(value: Any, library: Implementation | None = None) -> Any:
    """Return a copy on the CPU with floating-point parts in float64: modules, tensors and arrays, in any container.
    Arrays become NumPy's, and functions of the ``library`` become those of NumPy that do the same."""
    import numpy as np
    import torch
    from torch.utils import _pytree

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.nn.Module):
            return substituted(leaf, convert)
        if isinstance(leaf, torch.Tensor):
            real = torch.float64 if leaf.is_floating_point() else leaf.dtype
            copied = leaf.detach().to("cpu", copy=True).to(torch.complex128 if leaf.is_complex() else real)
            return copied.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, np.ndarray):
            return leaf.astype({"f": np.float64, "c": np.complex128}.get(leaf.dtype.kind, leaf.dtype))
        if is_array(leaf):
            return convert(as_tensor(leaf)).numpy()
        return library.twin(leaf) if library else leaf

    return _pytree.tree_map(convert, value)


def poisoned() -> Any:
    """A context in which memory that the program asks torch for and doesn't fill holds NaN, not an earlier call's
    answer."""
    import torch

    aten = torch.ops.aten
    unfilled = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided}

    class Poisoned(dispatch_mode()):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = operator(*args, **(kwargs or {}))
            if operator.overloadpacket in unfilled and result.is_floating_point():
                result.fill_(math.nan)
            return result

    return Poisoned()


def poison(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Fill the tensors of ``out=`` with NaN, unless the call reads them too."""
    given = {name: value for name, value in kwargs.items() if name != "out"}
    for tensor in apart_from(kwargs.get("out"), args, given):
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.detach().fill_(math.nan)


def compare(result: Any, expected: Any, allowed: float) -> Check:
    """Compare all outputs. Raises :class:`WrongAnswer` with the worst error if they differ by more than ``allowed``, a
    relative error.

    If there are no outputs, there is nothing to compare, and the outcome is unchecked.
    """
    got, wanted = _outputs(result), _outputs(expected)
    if not got and not wanted:
        return unchecked("the call returns no tensor and no number to compare")
    if len(got) != len(wanted):
        raise WrongAnswer(f"wrong result: {len(got)} outputs, the reference has {len(wanted)}")
    worst = 0.0
    for left, right in zip(got, wanted, strict=True):
        if left.shape != right.shape:
            raise WrongAnswer(f"wrong result: shape {tuple(left.shape)}, the reference has {tuple(right.shape)}")
        worst = max(worst, _error(left, right))
    if not worst <= allowed:
        kind = "an output is not finite or was never written" if math.isinf(worst) else f"relative error {worst:.3g}"
        text = f"wrong result: {kind} (tolerance {allowed:.3g})"
        if worst <= _CHAIN * allowed:
            text += "; a chain of steps rounds more: pass check=, a reference that makes the same steps"
        raise WrongAnswer(text)
    return Check("passed", worst, allowed)


def _outputs(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a result, on the CPU in float64; a number counts as one."""
    import numpy as np
    import torch
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves(result)
    leaves = [as_tensor(x) if is_array(x) or isinstance(x, np.generic | int | float) else x for x in leaves]
    outputs = [t.detach().to("cpu") for t in tensors(leaves)]
    return [(torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).double() for t in outputs]


def _error(left: torch.Tensor, right: torch.Tensor) -> float:
    if not right.numel():
        return 0.0
    difference = (left - right).abs_()
    difference[left == right] = 0  # equal infinities
    worst = difference.max().item()
    scale = right.abs().nan_to_num_(0.0, 0.0).max().item()  # of the finite values
    if math.isnan(worst):
        return math.inf
    return worst / scale if scale else worst


FIRST = 10.0
"""The first reference of a workload on a device may take this many times its allowance, so that each is checked
once."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A function and float64 copies of its arguments, made before the first call, which may change them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    flops: float | None
    inputs: int
    precision: str
    library: Implementation

    def check(self, result: Any) -> Check:
        """Compare a result with the reference's. Raises :class:`~gpubench.errors.WrongAnswer`, and
        :class:`~gpubench.errors.Unrepeatable` if the call can't be repeated in float64, for example a closure over
        float32 tensors."""
        try:
            with poisoned(), self.library.in_double():
                expected = self.function(*self.args, **self.kwargs)
        except WrongAnswer:  # a reference may also check what the call doesn't return
            raise
        except Exception as error:
            message = " ".join(str(error).split())[:150]
            raise Unrepeatable(
                f"the call can't be repeated in float64 to check it ({type(error).__name__}: {message}):"
                " pass modules and tensors as arguments, or a reference as check=, or check=False"
            ) from error
        return compare(result, expected, tolerance(self.precision, self.flops, self.inputs, elements(result)))


def prepare_reference(
    prepared: Prepared, precision: str, allowance: float, rates: Rates, library: Implementation
) -> Reference | Check:
    """Return the reference, or an unchecked :class:`Check` that says why there is none.

    ``allowance``: seconds that it may take. ``precision``: the dtype whose rounding to expect. ``library``: what the
    call computes with. A call of torch works on tensors, so without any it can't be repeated in float64.
    """
    check, call, work = prepared.request.check, prepared.request.function, prepared.work
    args, kwargs, counted = prepared.args, prepared.kwargs, prepared.counted
    if check is False or isinstance(check, str):
        return unchecked(check or "check=False")
    if check is True and not tensors(args, kwargs, call) and library.name == TORCH:
        return unchecked("no tensor among the arguments to repeat the call with")
    seconds, basis = rates.estimate(work, CPU, "float64")
    if seconds is not None and 2 * seconds > allowance:
        return unchecked(f"a float64 reference would take too long: {basis}")
    # Twice the bytes in float64, and room for intermediate results of the outputs' size.
    size = 2 * sum(t.nbytes for t in tensors(args, kwargs, call)) + 8 * (counted.output_bytes if counted else 0)
    try:
        require_memory(size, CPU)
    except TooLarge as error:
        return unchecked(f"a float64 reference would not fit: {error}")
    function = in_float64(call, library) if check is True else check
    args, kwargs, inputs = in_float64(args, library), in_float64(dict(kwargs), library), elements(args, kwargs)
    return Reference(function, args, kwargs, work.flops, inputs, precision, library)
