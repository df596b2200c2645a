"""On which terms a test is measured: the devices, dtypes, implementations, variants and sizes it is parametrised with.

pytest keeps the registry, the sweep, the ids, the skips and the selection; this only tells it the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ..devices import Choice
from ..errors import UsageError
from ..schema import DTYPES, IMPLEMENTATIONS, PRESETS, VARIANTS, Case, Scalar
from .session import Session

NAMES = ("gpubench_device", "gpubench_dtype", "gpubench_implementation", "gpubench_variant")
"""The fixtures that carry a case's terms."""
FULL_ONLY = frozenset({"compile"})
"""Variants too slow for any other preset, unless asked for."""

_MARKER = {
    "dtypes": DTYPES,
    "implementations": IMPLEMENTATIONS,
    "variants": VARIANTS,
    "devices": ("any", "cpu", "accelerator", "two accelerators"),
    "size": None,
}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a test's ``gpubench`` markers say; the closest marker wins, key by key."""

    dtypes: tuple[str, ...] = ("float32",)
    implementations: tuple[str, ...] = ("torch",)
    variants: tuple[str, ...] = ("eager",)
    devices: str = "any"
    size: str | None = None

    @classmethod
    def of(cls, node: Any) -> Terms:
        """Raises :class:`UsageError` for a key or value that doesn't exist, naming those that do."""
        said: dict[str, Any] = {}
        for marker in node.iter_markers("gpubench"):
            if marker.args:
                raise UsageError(f"{node.nodeid}: the gpubench marker takes keywords only: {', '.join(_MARKER)}")
            for key, value in marker.kwargs.items():
                if key not in _MARKER:
                    raise UsageError(f"{node.nodeid}: unknown gpubench marker key {key!r}: {', '.join(_MARKER)}")
                value = tuple(value) if isinstance(value, list | tuple) else value
                known = _MARKER[key]
                values = value if isinstance(value, tuple) else (value,)
                if known is not None and (unknown := [v for v in values if v not in known]):
                    raise UsageError(f"{node.nodeid}: {key} has no {unknown[0]!r}: choose from {', '.join(known)}")
                said.setdefault(key, values if key not in ("devices", "size") else value)
        return cls(**said)


def parametrize(metafunc: pytest.Metafunc, session: Session) -> None:
    """Give a test that uses the ``gpubench`` fixture its devices, dtypes, implementations, variants and sizes."""
    terms = Terms.of(metafunc.definition)
    combinations = list(_combinations(terms, session))
    anywhere = any(not values.marks for values in combinations)
    metafunc.parametrize(NAMES, combinations, indirect=True)
    for marker in metafunc.definition.iter_markers("gpubench_sweep"):
        names, values = _sweep(marker, session.asked.preset)
        # A case that runs nowhere here is one row, not one for each size.
        metafunc.parametrize(names, values if anywhere else values[:1])


def case_of(item: pytest.Item) -> Case:
    """The identity of a collected test: what it is, and on which terms it runs."""
    params = dict(getattr(getattr(item, "callspec", None), "params", {}))
    own = {name: _scalar(value) for name, value in params.items() if name not in NAMES}
    device = params.get(NAMES[0], "cpu")
    return Case(
        workload=workload_of(item),
        device=device,
        dtype=params.get(NAMES[1], "float32"),
        implementation=params.get(NAMES[2], "torch"),
        variant=params.get(NAMES[3], "eager"),
        params=own,
        size=Terms.of(item).size,
        devices=(device,),
    )


def workload_of(item: pytest.Item) -> str:
    """File and function without their ``test_``: ``test_matmul.py::test_square`` is ``matmul.square``."""
    stem = item.path.stem.removeprefix("test_").removesuffix("_test")
    function = getattr(item, "originalname", None) or item.name.split("[")[0]
    parts = [stem, *(node.name for node in item.listchain() if isinstance(node, pytest.Class))]
    name = function.removeprefix("test_")
    return ".".join(parts if parts[-1] == name else [*parts, name])


def _combinations(terms: Terms, session: Session) -> Iterable[Any]:
    absent = []
    devices = []
    for choice in session.choices:
        if choice.device is None:
            absent.append(choice)
        elif terms.devices == "any" or choice.device.accelerator == (terms.devices != "cpu"):
            devices.append(choice)
    if terms.devices == "two accelerators" and len(devices) < 2:
        reason = f"needs two accelerators, {len(devices)} chosen ({', '.join(c.name for c in session.choices)})"
        devices = [] if absent else [Choice(devices[0].name if devices else "accelerator", None, reason)]
    elif not devices and not absent:
        wanted = "an accelerator" if terms.devices != "cpu" else "the CPU"
        reason = f"needs {wanted}, chosen: {', '.join(c.name for c in session.choices)}"
        devices = [Choice("cpu" if terms.devices == "cpu" else "accelerator", None, reason)]
    asked_variants = session.asked.variants
    for choice in [*devices, *absent]:
        for dtype in session.asked.dtypes or terms.dtypes:
            lacking = choice.device.lacks(dtype) if choice.device else None
            if lacking and not session.asked.dtypes:
                continue  # the workload's own list says what to run where it exists
            for implementation in terms.implementations:
                if implementation == "numpy" and (choice.device is None or choice.device.accelerator):
                    continue  # NumPy knows the CPU only
                if implementation == "numpy" and dtype in ("tf32", "bfloat16", "float16"):
                    continue  # NumPy has no such product, or one that nobody uses
                for variant in terms.variants:
                    if (
                        variant not in asked_variants
                        if asked_variants
                        else (variant in FULL_ONLY and session.asked.preset != "full")
                    ):
                        continue
                    if variant == "autocast" and dtype != "float32":
                        continue  # autocast starts from float32
                    yield _parameters(choice, dtype, implementation, variant, choice.reason or lacking)


def _parameters(choice: Choice, dtype: str, implementation: str, variant: str, reason: str | None) -> Any:
    terms = [choice.name, dtype]
    terms += [term for term, usual in ((implementation, "torch"), (variant, "eager")) if term != usual]
    marks = [pytest.mark.skip(reason=reason)] if reason else []
    return pytest.param(choice.name, dtype, implementation, variant, id="-".join(terms), marks=marks)


def _sweep(marker: pytest.Mark, preset: str) -> tuple[str, list[Any]]:
    """Names and values of a ``gpubench_sweep`` marker under a preset.

    ``quick`` must be there; ``smoke`` defaults to its first value and ``full`` to all of it.
    """
    values: Mapping[str, Any] = marker.kwargs
    if len(marker.args) != 1 or "quick" not in values or set(values) - set(PRESETS):
        raise UsageError("gpubench_sweep takes one name, and values for smoke, quick (needed) and full")
    quick = list(values["quick"])
    chosen = {"smoke": list(values.get("smoke", quick[:1])), "quick": quick, "full": list(values.get("full", quick))}
    return marker.args[0], chosen[preset]


def _scalar(value: Any) -> Scalar:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
