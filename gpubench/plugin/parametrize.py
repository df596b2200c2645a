"""The devices, dtypes, implementations, variants, caches and sizes with which a test is measured, and its identity."""

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
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ..devices import Choice, find_device
from ..devices.implementations import TORCH, Implementation, find_implementation
from ..errors import UsageError
from ..measure.precision import autocast_dtype
from ..measure.session import Session
from ..runfile.matching import KINDS
from ..runfile.naming import plain_case, workload_of
from ..runfile.options import CACHES, DTYPES, PRESETS, VARIANTS
from ..runfile.quantities import shorten
from ..runfile.schema import LONGEST_TEXT, Case, Scalar
from ..runfile.writer import text_of
from . import PARAMETERS

if TYPE_CHECKING:
    import pytest

FULL_ONLY = frozenset({"compile", "graph"})
"""Variants that only the preset full measures unless they are asked for: they are slow, or of interest to few."""
GLANCE = "glance"
"""The preset that contains only tests with values for it."""
_FIXTURES = [f"gpubench_{name}" for name in PARAMETERS]
_DTYPE = re.compile(r"(b?float|complex|u?int|bool|float8_)\w*")
_NEEDS = {"any": "", "cpu": "the CPU", "accelerator": "a GPU", "two accelerators": "two accelerators of a kind"}
_KNOWN: dict[str, Collection[str]] = {
    "dtypes": DTYPES, "full_dtypes": DTYPES, "variants": VARIANTS, "quick_variants": VARIANTS, "devices": _NEEDS,
    "kind": KINDS,
}  # fmt: skip
"""The possible values of some keys of the ``gpubench`` marker."""


@dataclass(frozen=True, slots=True)
class Markers:
    """The values of a test's ``gpubench`` markers (docs/own-benchmarks.md), of each key by the closest marker.
    ``writing``: values of parameters with which the call writes into a given array, ``{"form": ["out", "inplace"]}``; a
    library that can't is measured without them."""

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

    def is_writing(self, given: Mapping[str, Any]) -> bool:
        """Return whether the call of a test with these parameters writes into a given array."""
        return any(given.get(name) in values for name, values in self.writing.items())

    @classmethod
    def of(cls, node: Any) -> Markers:
        """Read the markers of a test. Raises :class:`UsageError` for an unknown key or value, with the known ones."""
        values, defaults = dict[str, Any](), {each.name: each.default for each in fields(cls)}
        try:
            for marker in node.iter_markers("gpubench"):
                if marker.args:
                    raise UsageError(f"the gpubench marker takes keywords only: {', '.join(defaults)}")
                for key, value in marker.kwargs.items():
                    if key not in defaults:
                        raise UsageError(f"unknown gpubench marker key {key!r}: {', '.join(defaults)}")
                    if isinstance(defaults[key], str) and not isinstance(value, str):
                        raise UsageError(f"{key} must be a text, not {value!r}")
                    entries = tuple(value) if isinstance(value, list | tuple) else (value,)
                    known = _KNOWN.get(key, entries)
                    if unknown := [entry for entry in entries if entry not in known]:
                        raise UsageError(f"{key} has no {unknown[0]!r}: choose from {', '.join(known)}")
                    values.setdefault(key, entries if isinstance(defaults[key], tuple) else value)
            for name in values.get("implementations", ()):
                find_implementation(name)
        except (UsageError, ValueError) as error:
            raise UsageError(f"{node.nodeid}: {error}") from None
        return cls(**values)


def parametrize(metafunc: pytest.Metafunc, session: Session) -> None:
    """Parametrize a test that uses the fixture ``gpubench``. Of a sweep's values ``quick`` is required; ``smoke`` is
    its first one by default, ``glance`` and ``full`` are all of them."""
    import pytest

    preset, found = session.settings.preset, combinations(Markers.of(metafunc.definition), session)
    marks = [[pytest.mark.skip(reason=reason)] if reason else [] for reason, _ in found]
    params = [pytest.param(*kit, id=ident(kit), marks=skips) for (_, kit), skips in zip(found, marks, strict=True)]
    metafunc.parametrize(_FIXTURES, params, indirect=True)
    for marker in metafunc.definition.iter_markers("gpubench_sweep"):
        if len(marker.args) != 1 or "quick" not in marker.kwargs or set(marker.kwargs) - set(PRESETS):
            raise UsageError("gpubench_sweep takes one name, and values for smoke, glance, quick (needed) and full")
        given = {name: list(values) for name, values in marker.kwargs.items()}
        quick, names = given["quick"], str(marker.args[0])
        skip = pytest.mark.skip(reason=f"not in preset {preset}")
        absent = pytest.param(*[None] * len(names.split(",")), marks=skip, id=f"not-{preset}")
        values = ({"smoke": quick[:1], GLANCE: quick, "full": quick} | given)[preset] or [absent]
        # A case that runs nowhere here is one row, not one for each size.
        metafunc.parametrize(names, values[:1] if all(marks) else values)


def glances(item: pytest.Item) -> bool:
    """Return whether a test is in the preset ``glance``: a sweep has values for it, and none an empty list."""
    values = [marker.kwargs[GLANCE] for marker in item.iter_markers("gpubench_sweep") if GLANCE in marker.kwargs]
    return bool(values) and all(values)


def possible(item: pytest.Item, session: Session) -> bool:
    """Return whether a test's implementation can write into given arrays, where its parameters require that, and its
    dtype is the one of its own parameter, if it has one."""
    given, markers = _parameters_of(item), Markers.of(item)
    if (own := _own_dtype(given)) and "gpubench_dtype" in given:
        wanted = own[1] if session.settings.dtypes else _dtypes(markers, session)[0]
        if given["gpubench_dtype"] != wanted:
            return False
    return _library(item).writes or not markers.is_writing(given)


def declarations(item: pytest.Item, session: Session) -> dict[str, bool]:
    """Return whether the test, or the user, names its dtypes, whether its call writes into its arguments, and whether
    its float32 products follow the program's switches: the suite's are IEEE's."""
    given, markers = _parameters_of(item), Markers.of(item)
    dtype = bool(session.settings.dtypes or markers.dtypes or markers.full_dtypes) and not _own_dtype(given)
    own_switches = not dtype and not _of_suite(item.path.parent)
    return {"dtype": dtype, "writing": markers.is_writing(given), "own_switches": own_switches}


def _parameters_of(item: pytest.Item) -> Mapping[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _own_dtype(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return name and value of the only parameter of the test's own that holds a dtype, of torch or NumPy."""
    found = []
    for name, value in given.items():
        text = value if isinstance(value, str) and name in ("dtype", "torch_dtype") else ""
        if type(value).__name__.endswith(("dtype", "DType")):
            text = str(value)
        elif isinstance(value, type) and value.__module__ == "numpy":
            text = value.__name__
        if name not in _FIXTURES and (match := _DTYPE.fullmatch(text.removeprefix("torch."))):
            found.append((name, match[0]))
    return found[0] if len(found) == 1 else None


def fixture_names(item: pytest.Item) -> list[str]:
    """Return the names of the fixtures that a test uses."""
    return list(getattr(item, "fixturenames", ()))


def shown_library(item: pytest.Item) -> str:
    """Return the label of a test's implementation; empty for torch, which is the default."""
    return "" if (library := _library(item)).name == TORCH else library.label


def _library(item: pytest.Item) -> type[Implementation]:
    return find_implementation(_parameters_of(item).get("gpubench_implementation", TORCH))


def tell_apart(items: Sequence[pytest.Item]) -> None:
    """Give tests of one node id several, since all records go by it: pytest leaves out the file where its settings lie
    elsewhere, and a second test is ``test_x#2``. An id that holds a test's whole data is cut in the middle."""
    fileless = [item for item in items if item.nodeid.startswith("::")]
    above = os.path.commonpath([item.path.parent for item in fileless]) if fileless else ""
    counts: Counter[str] = Counter()
    for item in items:
        item._nodeid, item.name = (shorten(name, LONGEST_TEXT) for name in (item.nodeid, item.name))
        if item in fileless:
            item._nodeid = f"{item.path.relative_to(above).as_posix()}{item.nodeid}"
        counts[item.nodeid] += 1
        if (number := counts[item.nodeid]) > 1:
            test, bracket, rest = item.nodeid.partition("[")
            item._nodeid = f"{test}#{number}{bracket}{rest}"


def case_of(item: pytest.Item, stems: Mapping[str, str]) -> Case:
    """Return the identity of a collected test. ``stems`` are the stems of files that would share theirs."""
    given, markers = _parameters_of(item), Markers.of(item)
    if "gpubench" not in fixture_names(item):
        return _plain_case(item.nodeid, given)
    kit = {name: given.get(f"gpubench_{name}", default) for name, default in PARAMETERS.items()}
    others = {name: value for name, value in given.items() if name not in _FIXTURES}
    params = _readable(others, getattr(item, "callspec", None))
    if own := _own_dtype(others):
        kit["dtype"] = own[1]
        del params[own[0]]
    names = [node.name for node in item.listchain() if isinstance(getattr(node, "obj", None), type)]
    names.append(getattr(item, "originalname", item.name))
    workload = workload_of(item.nodeid.partition("::")[0], names, stems, shipped=_of_suite(item.path.parent))
    about: dict[str, Any] = {"size": markers.size or None, "kind": markers.kind, "title": markers.title}
    return Case(workload, params=params, devices=(kit["device"],), **about, **kit)


@functools.cache
def _of_suite(folder: Path) -> bool:
    """Return whether a folder is the ``benchmarks`` in this package or beside it, even of another installation."""
    room = Path(__file__).parent.name, Path(__file__).name
    packages = folder.parent, folder.parent / "gpubench"
    return folder.name == "benchmarks" and any(package.joinpath(*room).is_file() for package in packages)


def _plain_case(nodeid: str, given: Mapping[str, Any]) -> Case:
    """Return the identity of a test with only the ``benchmark`` fixture."""
    values = dict(given)
    for name, value in given.items():
        if not isinstance(value, str | float | int | bool | None):
            text = type(value).__name__
            with contextlib.suppress(Exception):  # of the user's __repr__
                text = repr(value)
            values[name] = f"UNSERIALIZABLE[{text}]"
    case = plain_case(nodeid, values)
    device = case.device
    with contextlib.suppress(UsageError):  # the text names no torch device
        device = find_device(device).name if device else ""
    return structs.replace(case, device=device, devices=(device,) if device else ())


Kit = tuple[str, tuple[str, ...]]


def combinations(markers: Markers, session: Session) -> list[Kit]:
    """Return the values of :data:`PARAMETERS` with which a test is measured, each after the reason to skip it or an
    empty text; a single one, which is skipped, if the test has nothing of all that was asked for."""
    return [*_combinations(markers, session)] or [_nothing(markers, session)]


def _combinations(markers: Markers, session: Session) -> Iterator[Kit]:
    caches = CACHES if session.settings.cache == "both" else (session.settings.cache,)
    for choice, dtype in itertools.product(_choices(markers, session), _dtypes(markers, session)):
        device = choice.device
        if device and device.lacks(dtype) and not session.settings.dtypes:
            continue  # the workload's own list applies only where the dtype exists
        variants = [each for each in markers.variants if _is_wanted(each, choice, dtype, markers, session)]
        for name, variant, cache in itertools.product(_implementations(markers, session), variants, caches):
            library, reason = find_implementation(name), choice.reason
            known = dtype in library.dtypes and variant in library.variants
            if name != TORCH and not (known and device and not library.why_not_on(device)):
                continue
            if device and variant == "graph" and not device.supports_graphs:
                reason = f"{choice.name} has no graphs of launches"
            elif device:
                reason = device.lacks(autocast_dtype(device) if variant == "autocast" else dtype)
            yield reason or "", (choice.name, dtype, name, variant, cache)


def _choices(markers: Markers, session: Session) -> list[Choice]:
    """Return the chosen devices that the test runs on and the absent ones, or else one that states the test's need."""
    wanted = None if markers.devices == "any" else markers.devices != "cpu"  # whether it must be an accelerator
    devices = [each for each in session.choose_devices() if each.device and wanted in (None, each.device.accelerator)]
    if markers.devices == "two accelerators":
        kinds = Counter(each.device.kind for each in devices if each.device)
        devices = [each for each in devices if each.device and kinds[each.device.kind] > 1]
    uses = ", ".join(choice.name for choice in session.choose_devices())
    reason = f"needs {_NEEDS[markers.devices]}; this run uses: {uses}"
    nowhere = Choice("cpu" if markers.devices == "cpu" else "accelerator", None, reason)
    return [*devices, *(each for each in session.choose_devices() if each.device is None)] or [nowhere]


def _implementations(markers: Markers, session: Session) -> list[str]:
    """Return the requested implementations that the test can use; by default its own."""
    absent = _absent(markers)
    if not session.choose_libraries():
        session.absent |= absent
    asked = session.choose_libraries() or markers.implementations
    return [name for name in markers.implementations if name in asked and name not in absent]


def _absent(markers: Markers) -> dict[str, str]:
    return {name: why for name in markers.implementations if (why := find_implementation(name).why_absent())}


def _is_wanted(variant: str, choice: Choice, dtype: str, markers: Markers, session: Session) -> bool:
    """Return whether a variant was asked for or, if none was, is one of the preset's on that device."""
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


def _dtypes(markers: Markers, session: Session) -> list[str]:
    """Return the requested dtypes that the test supports: tf32 if the test names it, any if it names no further one."""
    if not session.settings.dtypes:
        further = markers.full_dtypes if session.settings.preset == "full" else ()
        return [*dict.fromkeys((*(markers.dtypes or ("float32",)), *further))]
    able = markers.dtypes or tuple(dtype for dtype in DTYPES if dtype != "tf32")
    return [dtype for dtype in session.settings.dtypes if dtype in able or {*able} == {"float32", "tf32"}]


def _nothing(markers: Markers, session: Session) -> Kit:
    if asked := [*session.settings.dtypes, *session.settings.variants, *session.settings.implementations]:
        reason = f"not for this workload: {', '.join(asked)}"
    elif absent := _absent(markers):
        reason = "; ".join(absent.values())
    elif FULL_ONLY.issuperset(markers.variants) and session.settings.preset != "full":
        names, how = ", ".join(markers.variants), f"--preset full, or --variant {markers.variants[0]}"
        reason = f"only preset full measures {names} unless asked for: {how}"
    else:
        reason = "not for this workload: none of its dtypes exists on the chosen devices"
    first = (markers.dtypes or ("float32",))[0], markers.implementations[0], markers.variants[0]
    return reason, (session.choose_devices()[0].name, *first, CACHES[0])


def ident(values: Iterable[object]) -> str:
    """Return pytest's id of a test with these parameters."""
    return "-".join(text for text in map(str, values) if text not in ("torch", "eager", "hot"))


def _readable(others: Mapping[str, Any], callspec: Any) -> dict[str, Scalar]:
    """Return parameters as JSON scalars that are the same in every process: an object by its part of pytest's id, or by
    its name."""
    shown, ids = dict[str, Scalar](), dict[str, str]()
    if others:
        parts = str(callspec.id).split("-")[-len(others) :]
        ours = ident(callspec.params.get(name, "") for name in _FIXTURES)
        if callspec.id == "-".join([ours] * bool(ours) + parts):
            ids = dict(zip(others, parts, strict=False))
    for name, value in others.items():
        if isinstance(value, float) and not math.isfinite(value):
            shown[name] = str(value)
        elif isinstance(value, float | bool | None) or (isinstance(value, int) and abs(value) < 2**63):
            shown[name] = value
        else:
            label = getattr(value, "__name__", f"{name}{callspec.indices.get(name, 0)}")
            shown[name] = shorten(value if isinstance(value, str) else text_of(ids.get(name, label)), LONGEST_TEXT)
    return shown
