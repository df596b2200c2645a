"""The devices, dtypes, implementations, variants, caches and sizes with which a test is measured: pytest provides the
registry, the sweep, the ids, the skips and the selection; this module provides the values."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ..devices import Choice, find_device
from ..devices.implementations import TORCH, Implementation, find_implementation
from ..errors import UsageError
from ..measure.precision import autocast_dtype
from ..measure.session import Session
from ..runfile.kinds import KINDS
from ..runfile.naming import LONGEST_TEXT, plain_case, workload_by_names
from ..runfile.options import CACHES, DTYPES, PRESETS, VARIANTS
from ..runfile.quantities import shorten
from ..runfile.schema import Case, Scalar
from ..runfile.writer import text_of
from .settings import PARAMETERS

FULL_ONLY = frozenset({"compile", "graph"})
"""Variants that only the preset full measures unless they are asked for: they are slow, or of interest to few."""
GLANCE = "glance"
"""The preset that contains only tests which declare values for it."""
_FIXTURES = [f"gpubench_{name}" for name in PARAMETERS]

_DTYPE = re.compile(r"(b?float|complex|u?int|bool|float8_)\w*")
_PLACES = ("any", "cpu", "accelerator", "two accelerators")
_KNOWN = {
    "dtypes": DTYPES, "full_dtypes": DTYPES, "variants": VARIANTS, "quick_variants": VARIANTS, "devices": _PLACES,
    "kind": KINDS,
}  # fmt: skip
"""The possible values of some keys of the ``gpubench`` marker."""


@dataclass(frozen=True, slots=True)
class Markers:
    """The values of a test's ``gpubench`` markers; for each key the closest marker counts.

    ``dtypes`` are those that the test supports; a test that names none runs in float32, and in others when asked. The
    preset ``full`` adds ``full_dtypes``. ``implementations`` are measured where they are installed. ``quick_variants``
    are measured in the preset ``quick`` too: ``compile`` on the CPU alone, where a fair baseline would also be
    compiled, and ``graph`` on accelerators, where a small network's launches take longer than its work. ``writing``:
    values of parameters with which the call writes into a given array, ``{"form": ["out", "inplace"]}``; a library that
    can't is measured without them. ``kind`` is a key of :data:`~gpubench.runfile.kinds.KINDS`, ``title`` the workload's
    name for people.
    """

    dtypes: tuple[str, ...] = ()
    full_dtypes: tuple[str, ...] = ()
    implementations: tuple[str, ...] = (TORCH,)
    variants: tuple[str, ...] = ("eager",)
    quick_variants: tuple[str, ...] = ()
    devices: str = "any"
    size: str = ""
    writing: Mapping[str, Collection[Any]] = field(default_factory=dict)
    kind: str = ""
    title: str = ""

    @classmethod
    def of(cls, node: Any) -> Markers:
        """Read the markers of a test. Raises :class:`UsageError` for an unknown key or value, with a list of the known
        ones."""
        values: dict[str, Any] = {}
        defaults = {each.name: each.default for each in fields(cls)}
        for marker in node.iter_markers("gpubench"):
            if marker.args:
                raise UsageError(f"{node.nodeid}: the gpubench marker takes keywords only: {', '.join(defaults)}")
            for key, value in marker.kwargs.items():
                if key not in defaults:
                    raise UsageError(f"{node.nodeid}: unknown gpubench marker key {key!r}: {', '.join(defaults)}")
                if isinstance(defaults[key], str) and not isinstance(value, str):
                    raise UsageError(f"{node.nodeid}: {key} must be a text, not {value!r}")
                entries = tuple(value) if isinstance(value, list | tuple) else (value,)
                known = _KNOWN.get(key, entries)
                if unknown := [entry for entry in entries if entry not in known]:
                    raise UsageError(f"{node.nodeid}: {key} has no {unknown[0]!r}: choose from {', '.join(known)}")
                values.setdefault(key, entries if isinstance(defaults[key], tuple) else value)
        markers = cls(**values)
        try:
            for name in markers.implementations:
                find_implementation(name)
        except (UsageError, ValueError) as error:
            raise UsageError(f"{node.nodeid}: {error}") from None
        return markers


def parametrize(metafunc: pytest.Metafunc, session: Session) -> None:
    """Parametrize a test that uses the ``gpubench`` fixture with its devices, dtypes, implementations, variants and
    sizes."""
    markers = Markers.of(metafunc.definition)
    found = combinations(markers, session)
    skips = [[pytest.mark.skip(reason=reason)] if reason else [] for reason, _ in found]
    params = [
        pytest.param(*values, id=ident(values), marks=marks) for (_, values), marks in zip(found, skips, strict=True)
    ]
    metafunc.parametrize(_FIXTURES, params, indirect=True)
    anywhere = not all(skips)
    for marker in metafunc.definition.iter_markers("gpubench_sweep"):
        names, values = _sweep(marker, session.settings.preset)
        # A case that runs nowhere here is one row, not one for each size.
        metafunc.parametrize(names, values if anywhere else values[:1])


def glances(item: pytest.Item) -> bool:
    """Whether a test is in the preset ``glance``: at least one of its sweeps has values for it, and none an empty
    list."""
    values = [marker.kwargs[GLANCE] for marker in item.iter_markers("gpubench_sweep") if GLANCE in marker.kwargs]
    return bool(values) and all(values)


def possible(item: pytest.Item, session: Session) -> bool:
    """Whether a test's implementation can write into given arrays, where its parameters require that, and its dtype is
    that of its own parameter, if it has one."""
    given = _parameters_of(item)
    if (own := _own_dtype(given)) and "gpubench_dtype" in given:
        asked = session.settings.dtypes or _dtypes(Markers.of(item), session)[:1]
        if given["gpubench_dtype"] != (own[1] if session.settings.dtypes else asked[0]):
            return False
    if _library(item).writes:
        return True
    return not _is_writing(given, Markers.of(item))


def declarations(item: pytest.Item, session: Session) -> dict[str, bool]:
    """Return whether the test, or the user, names its dtypes, whether it says that its call writes into what it is
    given, and whether its float32 products are what the program's switches say: those of the suite are IEEE's."""
    given, markers = _parameters_of(item), Markers.of(item)
    dtype = bool(session.settings.dtypes or markers.dtypes or markers.full_dtypes) and not _own_dtype(given)
    own_switches = not dtype and not _of_suite(item.path.parent)
    return {"dtype": dtype, "writing": _is_writing(given, markers), "own_switches": own_switches}


def _parameters_of(item: pytest.Item) -> Mapping[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _is_writing(given: Mapping[str, Any], markers: Markers) -> bool:
    return any(given.get(name) in values for name, values in markers.writing.items())


def _own_dtype(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """The name and value of the only parameter of the test's own that holds a dtype, of torch or NumPy."""
    found = []
    for name, value in given.items():
        text = value if isinstance(value, str) and name in ("dtype", "torch_dtype") else ""
        if type(value).__name__ == "dtype" or type(value).__name__.endswith("DType"):
            text = str(value)
        elif isinstance(value, type) and value.__module__ == "numpy":
            text = value.__name__
        if name not in _FIXTURES and (match := _DTYPE.fullmatch(text.removeprefix("torch."))):
            found.append((name, match[0]))
    return found[0] if len(found) == 1 else None


def fixture_names(item: pytest.Item) -> list[str]:
    """Names of the fixtures that a test uses."""
    return list(getattr(item, "fixturenames", ()))


def shown_library(item: pytest.Item) -> str:
    """Return the label of a test's implementation; empty for torch, which is the default."""
    library = _library(item)
    return "" if library.name == TORCH else library.label


def _library(item: pytest.Item) -> type[Implementation]:
    return find_implementation(_parameters_of(item).get("gpubench_implementation", TORCH))


def tell_apart(items: Sequence[pytest.Item]) -> None:
    """Give tests of one node id several, since all that is written of a test goes by it, also pytest-benchmark's file.

    pytest leaves out the file where its settings lie elsewhere: it is put back. Otherwise the second is ``test_x#2``.
    An id that holds a test's whole data is cut in the middle.
    """
    for item in items:
        item._nodeid, item.name = (shorten(name, LONGEST_TEXT) for name in (item.nodeid, item.name))
    fileless = [item for item in items if item.nodeid.startswith("::")]
    above = os.path.commonpath([item.path.parent for item in fileless]) if fileless else ""
    for item in fileless:
        item._nodeid = f"{item.path.relative_to(above).as_posix()}{item.nodeid}"
    counts: Counter[str] = Counter()
    for item in items:
        counts[item.nodeid] += 1
        if (number := counts[item.nodeid]) > 1:
            test, bracket, rest = item.nodeid.partition("[")
            item._nodeid = f"{test}#{number}{bracket}{rest}"


def case_of(item: pytest.Item, stems: Mapping[str, str]) -> Case:
    """Return the identity of a collected test. ``stems`` are those of files that would share theirs."""
    if "gpubench" not in fixture_names(item):
        return _plain_case_of(item)
    given, markers = _parameters_of(item), Markers.of(item)
    callspec = getattr(item, "callspec", None)
    indices = getattr(callspec, "indices", {})
    kit = {name: given.get(f"gpubench_{name}", default) for name, default in PARAMETERS.items()}
    others = {name: value for name, value in given.items() if name not in _FIXTURES}
    parts = _id_parts(callspec, others)
    named = {name: getattr(value, "__name__", f"{name}{indices.get(name, 0)}") for name, value in others.items()}
    params = {name: _scalar(value, parts.get(name, named[name])) for name, value in others.items()}
    if own := _own_dtype(others):
        kit["dtype"] = own[1]
        del params[own[0]]
    names = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    names.append(getattr(item, "originalname", item.name))
    workload = workload_by_names(item.nodeid.partition("::")[0], names, stems, shipped=_of_suite(item.path.parent))
    told: dict[str, Any] = {"size": markers.size or None, "kind": markers.kind, "title": markers.title}
    return Case(workload, params=params, devices=(kit["device"],), **told, **kit)


@functools.cache
def _of_suite(folder: Path) -> bool:
    """Whether a folder is called ``benchmarks`` and lies inside this package, or next to it in a checkout, even of
    another installation."""
    room = Path(__file__).parent.name, Path(__file__).name
    packages = folder.parent, folder.parent / "gpubench"
    return folder.name == "benchmarks" and any(package.joinpath(*room).is_file() for package in packages)


def _plain_case_of(item: pytest.Item) -> Case:
    """Return the identity of a test with only the ``benchmark`` fixture."""
    values = {
        name: value if isinstance(value, str | float | int | bool | None) else f"UNSERIALIZABLE[{_repr(value)}]"
        for name, value in _parameters_of(item).items()
    }
    case = plain_case(item.nodeid, values)
    device = case.device
    with contextlib.suppress(UsageError):  # the text names no torch device
        device = find_device(device).name if device else ""
    return structs.replace(case, device=device, devices=(device,) if device else ())


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return type(value).__name__


def combinations(markers: Markers, session: Session) -> list[tuple[str, tuple[str, ...]]]:
    """Return the values of :data:`PARAMETERS` with which a test is measured, each after the reason to skip it or an
    empty text; a single one, which is skipped, if the test has nothing of what was asked for."""
    return [*_combinations(markers, session)] or [_nothing(markers, session)]


def _combinations(markers: Markers, session: Session) -> Iterator[tuple[str, tuple[str, ...]]]:
    caches = CACHES if session.settings.cache == "both" else (session.settings.cache,)
    for choice, dtype in itertools.product(_choices(markers, session), _dtypes(markers, session)):
        if choice.device and choice.device.lacks(dtype) and not session.settings.dtypes:
            continue  # the workload's own list applies only where the dtype exists
        variants = [each for each in markers.variants if _is_wanted(each, choice, dtype, markers, session)]
        for implementation, variant, cache in itertools.product(_implementations(markers, session), variants, caches):
            if _library_can(implementation, choice, dtype, variant):
                reason = choice.reason or _lacking(choice, dtype, variant) or ""
                yield reason, (choice.name, dtype, implementation, variant, cache)


def _choices(markers: Markers, session: Session) -> list[Choice]:
    """Return the chosen devices that the test runs on and those that are absent, or else one that states what the test
    needs."""
    wanted = None if markers.devices == "any" else markers.devices != "cpu"  # whether it must be an accelerator
    devices = [each for each in session.choices if each.device and wanted in (None, each.device.accelerator)]
    absent = [choice for choice in session.choices if choice.device is None]
    if markers.devices == "two accelerators":
        kinds = Counter(choice.device.kind for choice in devices if choice.device)
        devices = [choice for choice in devices if choice.device and kinds[choice.device.kind] > 1]
    needs = {"cpu": "the CPU", "two accelerators": "two accelerators of a kind"}.get(markers.devices, "a GPU")
    reason = f"needs {needs}; this run uses: {', '.join(choice.name for choice in session.choices)}"
    nowhere = Choice("cpu" if markers.devices == "cpu" else "accelerator", None, reason)
    return [*devices, *absent] or [nowhere]


def _library_can(implementation: str, choice: Choice, dtype: str, variant: str) -> bool:
    library = find_implementation(implementation)
    if implementation == TORCH:
        return True
    known = dtype in library.dtypes and variant in library.variants
    return bool(known and choice.device and not library.why_not_on(choice.device))


def _implementations(markers: Markers, session: Session) -> list[str]:
    """Return the requested implementations that the test can use; by default its own."""
    absent = {name: why for name in markers.implementations if (why := find_implementation(name).why_absent())}
    if not session.implementations:
        session.absent |= absent
    asked = session.implementations or markers.implementations
    return [name for name in markers.implementations if name in asked and name not in absent]


def _is_wanted(variant: str, choice: Choice, dtype: str, markers: Markers, session: Session) -> bool:
    """Whether a variant was asked for or, if none was, is one of the preset's on that device."""
    preset, device = session.settings.preset, choice.device
    if variant == "autocast" and dtype != "float32":
        return False  # autocast starts from float32
    if session.settings.variants:
        return variant in session.settings.variants
    if variant == "graph" and device and not device.supports_graphs:
        return False
    if variant in FULL_ONLY and preset != "full":
        is_usual = device is not None and device.accelerator == (variant == "graph")  # compiling takes long on a GPU
        return preset == "quick" and variant in markers.quick_variants and is_usual
    return variant != "autocast" or preset != GLANCE


def _lacking(choice: Choice, dtype: str, variant: str) -> str | None:
    if choice.device is None:
        return None
    if variant == "graph" and not choice.device.supports_graphs:
        return f"{choice.name} has no graphs of launches"
    return choice.device.lacks(autocast_dtype(choice.device) if variant == "autocast" else dtype)


def _dtypes(markers: Markers, session: Session) -> list[str]:
    """Return the requested dtypes that the test supports; tf32 changes products only, so a test must name it. One that
    names only float32 and its shorter product can be in any."""
    if not session.settings.dtypes:
        further = markers.full_dtypes if session.settings.preset == "full" else ()
        return [*dict.fromkeys((*(markers.dtypes or ("float32",)), *further))]
    able = markers.dtypes or tuple(dtype for dtype in DTYPES if dtype != "tf32")
    if set(able) == {"float32", "tf32"}:
        able = tuple(DTYPES)
    return [dtype for dtype in session.settings.dtypes if dtype in able]


def _nothing(markers: Markers, session: Session) -> tuple[str, tuple[str, ...]]:
    asked = [*session.settings.dtypes, *session.settings.variants, *session.settings.implementations]
    absent = [text for name in markers.implementations if (text := find_implementation(name).why_absent())]
    if asked:
        reason = f"not for this workload: {', '.join(asked)}"
    elif absent:
        reason = "; ".join(absent)
    elif FULL_ONLY.issuperset(markers.variants) and session.settings.preset != "full":
        names = ", ".join(markers.variants)
        reason = (
            f"only preset full measures {names} unless asked for: --preset full, or --variant {markers.variants[0]}"
        )
    else:
        reason = "not for this workload: none of its dtypes exists on the chosen devices"
    first = (markers.dtypes or ("float32",))[0], markers.implementations[0], markers.variants[0]
    return reason, (session.choices[0].name, *first, CACHES[0])


def ident(values: Iterable[object]) -> str:
    """Return pytest's id of a test with these parameters."""
    return "-".join(_shown(map(str, values)))


def _shown(values: Iterable[str]) -> list[str]:
    return [value for value in values if value not in ("torch", "eager", "hot")]


def _sweep(marker: pytest.Mark, preset: str) -> tuple[str, list[Any]]:
    """Return the names and values of a ``gpubench_sweep`` marker under a preset.

    ``quick`` is required; ``smoke`` defaults to its first value, ``glance`` and ``full`` to all its values.
    """
    values: Mapping[str, Any] = marker.kwargs
    if len(marker.args) != 1 or "quick" not in values or set(values) - set(PRESETS):
        raise UsageError("gpubench_sweep takes one name, and values for smoke, glance, quick (needed) and full")
    given = {name: list(each) for name, each in values.items()}
    quick = given["quick"]
    chosen = {"smoke": quick[:1], "glance": quick, "full": quick} | given
    names = str(marker.args[0])
    count = len(names.split(","))
    absent = pytest.param(*[None] * count, marks=pytest.mark.skip(reason=f"not in preset {preset}"), id=f"not-{preset}")
    return names, chosen[preset] or [absent]


def _id_parts(callspec: Any, others: Mapping[str, Any]) -> dict[str, str]:
    """Each parameter's part of pytest's id, where the id can be split into them."""
    parts = str(getattr(callspec, "id", "")).split("-")[-len(others) :] if others else []
    ours = _shown(str(callspec.params.get(name, "")) for name in _FIXTURES) if parts else []
    return dict(zip(others, parts, strict=True)) if parts and callspec.id == "-".join([*ours, *parts]) else {}


def _scalar(value: Any, otherwise: str) -> Scalar:
    """Return a parameter as a JSON scalar that is the same in every process; of an object ``otherwise``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, float | bool | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return shorten(value if isinstance(value, str) else text_of(otherwise), LONGEST_TEXT)
