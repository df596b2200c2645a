"""Names of tests as benchmarks: the workload of a test with our fixture, and the identity of any other test."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from pathlib import PurePosixPath
from typing import Any

from msgspec import structs

from ..errors import clean
from .matching import SHIPPED
from .schema import Case, Result

LONGEST_TEXT = 2000
"""Characters kept of a text from a file: a reason may hold a whole traceback, which would be too long for a table."""
LONGEST_VALUE = 40
"""The longest text of a parameter's value that is shown; pytest's id stands for a longer one."""
_OBJECT = re.compile(r"UNSERIALIZABLE\[(.*)\]", re.DOTALL)
"""The text that pytest-benchmark writes for a value that JSON can't represent."""
_TORCH_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_DEVICE = re.compile(r"([a-z][a-z0-9_]*)(?::(\d+))?")
_DTYPE = re.compile(r"(?:torch\.)?(b?float(?:16|32|64))")
_DEVICE_NAMES = ("device", "dev", "torch_device", "device_name", "device_type")
_INDEXED = ("cuda", "xpu")
"""Types of devices for which no index means the first device."""


def workload_of(fullname: str, shipped: bool = False) -> str:
    """``sorting.TestFast.sort`` of ``a/test_sorting.py::TestFast::test_sort[x]``, for names without further details: a
    name may itself hold brackets and colons, which only pytest can distinguish."""
    file, _, rest = fullname.partition("::")
    return workload_by_names(file, rest.partition("[")[0].split("::"), {}, shipped)


def workload_by_names(file: str, names: Sequence[str], stems: Mapping[str, str], shipped: bool = False) -> str:
    """The workload of a test; ``names`` are the names of its classes and of its function.

    ``stems`` belong to files that need more than their own, see :func:`told_stems`. ``shipped`` files come with
    gpubench; another file of the same name keeps its prefix, as ``test_fft``.
    """
    stem = _stem(file)
    if not shipped:
        stem = stems.get(file, stem)
        stem = f"test_{stem}" if stem in SHIPPED else stem
    *classes, function = names
    name = function.removeprefix("test_") or function
    parts = [part for part in (stem, *classes) if part]
    return ".".join(parts if name in ("", *parts[-1:]) else [*parts, name])


def _stem(file: str) -> str:
    whole = PurePosixPath(file.replace("\\", "/")).stem
    return whole.removeprefix("test_").removesuffix("_test") or whole


def told_stems(fullnames: Iterable[str]) -> dict[str, str]:
    """The stems of files that would share theirs: with as many of their folders as tell them apart, ``a/sorting``, or
    else in full, ``test_sorting`` and ``sorting_test``."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for file in dict.fromkeys(name.partition("::")[0] for name in fullnames):
        alike[_stem(file)].append(file)
    found: dict[str, str] = {}
    for stem, files in alike.items():
        places = [PurePosixPath(file.replace("\\", "/")) for file in files]
        for full, depth in product((False, True), range(1, max(len(place.parts) for place in places) + 1)):
            stems = ["/".join([*place.parts[-depth:-1], place.stem if full else stem]) for place in places]
            if len(files) > 1 and len(set(stems)) == len(files):
                found |= zip(files, stems, strict=True)
                break
    return found


def plain_case(fullname: str, given: Mapping[str, Any]) -> Case:
    """The identity of a test that doesn't use our fixture: pytest's name, and its parameters as pytest-benchmark has
    them.

    A parameter that holds a device, or the only one of several that is called so, gives the device, and one of a known
    dtype the dtype; without them both are unknown. Values that are meaningless to a reader, such as an object's, are
    replaced by pytest's id.
    """
    test, _, ident = fullname.partition("[")
    params = dict(given)
    devices = {name: found for name, value in given.items() if (found := _device_name(name, value))}
    device = params.pop(next(iter(devices)), "") and next(iter(devices.values())) if len(devices) == 1 else ""
    dtypes = {name: match[1] for name, value in params.items() if (match := _DTYPE.fullmatch(_text(value)))}
    dtype = params.pop(next(iter(dtypes)), "") and next(iter(dtypes.values())) if len(dtypes) == 1 else ""
    shown = {name: _readable(value) for name, value in params.items()}
    if ... in shown.values():
        shown = {name: value for name, value in shown.items() if value is not ...}
        shown["id"] = clean(ident.removesuffix("]")[:LONGEST_TEXT])
    return Case(test.removeprefix("::"), device, dtype, shown, implementation="", variant="", cache="")


def named(results: Iterable[Result]) -> list[Result]:
    """All results of a run under names that differ; tests of other fixtures have pytest's. Where several have one
    full name, as pytest gives all tests with a configuration elsewhere, the second is ``test_x#2``."""
    counts: Counter[tuple[str, str]] = Counter()
    found = []
    for each in results:
        counts[key := (each.fullname, str(each.case) if each.implementation else "")] += 1
        if counts[key] > 1:
            test, bracket, rest = each.fullname.partition("[")
            each = structs.replace(each, fullname=f"{test}#{counts[key]}{bracket}{rest}")
        case = each.case if each.implementation or each.workload else plain_case(each.fullname, each.params)
        found.append((each, case))
    cases = numbered([case for _, case in found])
    return [structs.replace(each, **structs.asdict(case)) for (each, _), case in zip(found, cases, strict=True)]


def numbered(cases: Sequence[Case]) -> list[Case]:
    """These cases; the second of one identity is called ``sorting.sort#2``."""
    counts: Counter[str] = Counter()
    found = []
    for case in cases:
        counts[key := str(case)] += 1
        found.append(structs.replace(case, workload=f"{case.workload}#{counts[key]}") if counts[key] > 1 else case)
    return found


def shared_place(tests: Iterable[str]) -> str:
    """The folders, or the file, that all tests of these full names share, up to the names that differ."""
    files = {test.partition("::")[0] for test in tests if "::" in test}
    if len(files) == 1:
        return f"{min(files)}::"
    folder = posixpath.commonpath(files) if len({posixpath.isabs(file) for file in files}) == 1 else ""
    return f"{folder}/" if folder else ""


def shared_params(cases: Collection[Case]) -> dict[str, frozenset[str]]:
    """By workload the parameters that are equal in all its benchmarks on each device, where one has several."""
    values: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for case in cases:
        for name, value in case.params.items():
            values[case.workload, case.device, name].add(repr(value))
    varied = {(workload, name) for (workload, _, name), of in values.items() if len(of) > 1}
    counts = Counter((case.workload, case.device) for case in cases)
    several = {workload for (workload, _), count in counts.items() if count > 1}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for workload, _, name in values:
        if workload in several and (workload, name) not in varied:
            found[workload].add(name)
    return {workload: frozenset(names) for workload, names in found.items()}


def _device_name(name: str, value: Any) -> str:
    """``cuda:0`` for a torch device, or for a text in a parameter named like ``device``; empty for anything else."""
    text = _text(value)
    found = _TORCH_DEVICE.fullmatch(text) or (name.lower() in _DEVICE_NAMES and _DEVICE.fullmatch(text.lower()))
    if not found:
        return ""
    index = found[2] or ("0" if found[1] in _INDEXED else "")
    return f"{found[1]}:{index}" if index else str(found[1])


def _text(value: Any) -> str:
    """The value if it is a text, the text within if it stands for an object, else an empty one."""
    inner = _OBJECT.fullmatch(value) if isinstance(value, str) else None
    return inner[1] if inner else value if isinstance(value, str) else ""


def _readable(value: Any) -> Any:
    """A value as a table shows it; ``...`` if it is meaningless there."""
    if isinstance(value, float) and not -1e300 <= value <= 1e300:
        return str(value)
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return clean(text) if len(text) <= LONGEST_VALUE and not _OBJECT.fullmatch(text) else ...
