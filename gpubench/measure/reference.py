"""The float64 reference of a case: made before its first call, held against its first result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..devices import CPU
from ..errors import TooLarge
from ..schema import Work
from . import check as checking
from .budget import Rates
from .check import Check
from .data import require_memory, tensors
from .work import Counted

FIRST = 10.0
"""The first case of a workload on a device may take so many times the allowance: each is checked at least once."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A function and float64 copies of its arguments, made before the first call, which may change them."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    flops: float | None
    inputs: int
    precision: str

    def check(self, result: Any) -> Check:
        """Compare a result with the reference's; raises :class:`~gpubench.errors.WrongAnswer`."""
        allowed = checking.tolerance(self.precision, self.flops, self.inputs, checking.elements(result))
        return checking.compare(result, checking.reference(self.function, self.args, self.kwargs), allowed)


def prepare(
    check: Callable[..., Any] | bool,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    work: Work,
    counted: Counted | None,
    precision: str,
    allowance: float,
    rates: Rates,
    torch_only: bool,
) -> Reference | Check:
    """The reference, or why there will be none (an unchecked :class:`Check`).

    ``allowance``: seconds that it may take. ``precision``: the dtype whose rounding to expect. ``torch_only``: the
    call works on tensors, so one without any can't be repeated in float64.
    """
    if check is False:
        return checking.unchecked("the case asks for no check")
    if check is True and not tensors(args, kwargs, fn) and torch_only:
        return checking.unchecked("no tensor among the arguments to repeat the call with")
    seconds, why = rates.predict(work, CPU, "float64")
    if seconds is not None and 2 * seconds > allowance:
        return checking.unchecked(f"a float64 reference would take too long: {why}")
    # Twice the bytes in float64, and room for intermediate results of the outputs' size.
    size = 2 * sum(t.nbytes for t in tensors(args, kwargs, fn)) + 8 * (counted.output_bytes if counted else 0)
    try:
        require_memory(size, CPU)
    except TooLarge as error:
        return checking.unchecked(f"a float64 reference would not fit: {error}")
    function = checking.in_float64(fn) if check is True else check
    inputs = checking.elements(args, kwargs)
    return Reference(
        function, checking.in_float64(args), checking.in_float64(dict(kwargs)), work.flops, inputs, precision
    )
