"""What two cases differ in although they do the same work: dtype, precision, regime, cache, threads, seed.

A ratio of unlike cases is no speedup. They are left out of it unless someone allows the difference, which is then
named beside the ratio. What a file doesn't say is no difference, but for TF32: on at one side and unknown at the
other is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..roofline import compute_dtype
from ..schema import Scalar
from .labels import Row

FALLBACK = "float32"
"""The dtype that stands in for one that the baseline doesn't have, where dtypes may differ."""

_HALVES = {"float16": "fp16_", "bfloat16": "bf16_"}
_SWITCH = {True: "on", False: "off", None: "unknown"}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pair that was not made: the case, and for each term in the way what differs in words."""

    row: Row
    terms: dict[str, str]


def differences(base: Row, other: Row) -> dict[str, str]:
    """By term, in words, the other's value first: ``{"threads": "threads 2 against 1"}``."""
    found = {}
    for term in ("dtype", "regime", "cache"):
        if base[term] != other[term]:
            found[term] = f"{term} {other[term] or 'unknown'} against {base[term] or 'unknown'}"
    if words := _tf32(base, other) or _accumulation(base, other):
        found["precision"] = words
    for term, ours, theirs in (
        ("threads", other["threads"], base["threads"]),
        ("seed", other["_run"].seed, base["_run"].seed),
    ):
        if None not in (ours, theirs) and ours != theirs:
            found[term] = f"{term} {ours} against {theirs}"
    return found


def _tf32(base: Row, other: Row) -> str | None:
    """Whether float32 products were shortened on one side only; where the dtypes say so themselves, they do."""
    dtypes = {base["dtype"], other["dtype"]}
    if dtypes == {"float32", "tf32"}:
        return None
    theirs, ours = (_shortened(row) for row in (base, other))
    if dtypes == {"float32"} and theirs and ours:  # a switch of the whole program, and CPUs have no TF32
        theirs, ours = (row["_run"].machine.device(row["device"]).accelerator for row in (base, other))
    return f"TF32 {_SWITCH[ours]} against {_SWITCH[theirs]}" if (theirs is True) != (ours is True) else None


def _shortened(row: Row) -> bool | None:
    own = row["_result"].precision.get("tf32")
    if row["dtype"] == "tf32":
        return own is not False
    if row["dtype"] != "float32":
        return False
    known = own if own is not None else row["_run"].machine.tf32
    return known if isinstance(known, bool) else None


def _accumulation(base: Row, other: Row) -> str | None:
    """Switches of half-precision products that are known on both sides and differ."""
    dtypes = {compute_dtype(row["dtype"], row["variant"]) for row in (base, other)}
    prefix = _HALVES.get(dtypes.pop()) if len(dtypes) == 1 else None
    if prefix is None:
        return None
    theirs, ours = (_switches(row, prefix) for row in (base, other))
    for name in sorted(theirs.keys() & ours.keys()):
        if None not in (ours[name], theirs[name]) and ours[name] != theirs[name]:
            states = [_SWITCH[value] if isinstance(value, bool) else str(value) for value in (ours[name], theirs[name])]
            return f"{name.replace('_', ' ')} {' against '.join(states)}"
    return None


def _switches(row: Row, prefix: str) -> dict[str, Scalar]:
    known = row["_result"].precision or row["_run"].machine.precision
    return {name: value for name, value in known.items() if name.startswith(prefix)}
