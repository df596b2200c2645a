"""Names of tests as benchmarks: the workload of a test with our fixture, and the identity of any other test."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any

from msgspec import structs

from ..errors import clean
from .matching import SHIPPED
from .schema import Case, Result

LONGEST_TEXT = 2000
"""Characters kept of a text from a file: a reason may hold a whole traceback, which would be too long for a table."""
LONGEST_VALUE = 40  # the longest text of a parameter's value that is shown; pytest's id stands for a longer one
_OBJECT = re.compile(r"\AUNSERIALIZABLE\[(.*)\]\Z", re.DOTALL)
"""The text that pytest-benchmark writes for a value that JSON can't represent."""
_TORCH_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_DEVICE = re.compile(r"([a-z][a-z0-9_]*)(?::(\d+))?")
_DTYPE = re.compile(r"(?:torch\.)?(b?float(?:16|32|64))")
_DEVICE_NAMES = ("device", "dev", "torch_device", "device_name", "device_type")
_LIBRARIES = {"torch": "PyTorch", "numpy": "NumPy"}


def library_label(name: str) -> str:
    """Return the label of a library, ``NumPy`` for ``numpy``; another name is returned unchanged."""
    return _LIBRARIES.get(name, name)


def workload_of(fullname: str, shipped: bool = False) -> str:
    """``sorting.TestFast.sort`` of ``a/test_sorting.py::TestFast::test_sort[x]``, for names without further details: a
    name may itself hold brackets and colons, which only pytest can distinguish."""
    file, _, rest = fullname.partition("::")
    return workload_by_names(file, rest.partition("[")[0].split("::"), {}, shipped)


def workload_by_names(file: str, names: Sequence[str], stems: Mapping[str, str], shipped: bool = False) -> str:
    """The workload of a test by the ``names`` of its classes and its function, and the ``stems`` of :func:`told_stems`.
    ``shipped`` files come with gpubench; another file of the same name keeps its prefix, as ``test_fft``."""
    stem = _stem(file) if shipped else stems.get(file, _stem(file))
    stem = f"test_{stem}" if stem in SHIPPED and not shipped else stem
    name = names[-1].removeprefix("test_") or names[-1]
    parts = [part for part in (stem, *names[:-1]) if part]
    return ".".join(parts if name in ("", *parts[-1:]) else [*parts, name])


def _stem(file: str) -> str:
    whole = PurePosixPath(file.replace("\\", "/")).stem
    return whole.removeprefix("test_").removesuffix("_test") or whole


def told_stems(fullnames: Iterable[str]) -> dict[str, str]:
    """The paths, without their suffixes, of files that would share a stem."""
    files = dict.fromkeys(name.partition("::")[0] for name in fullnames)
    counts = Counter(map(_stem, files))
    return {file: file.replace("\\", "/").removesuffix(".py") for file in files if counts[_stem(file)] > 1}


def plain_case(fullname: str, given: Mapping[str, Any]) -> Case:
    """The identity of a test that doesn't use our fixture: pytest's name, and its parameters as pytest-benchmark has
    them.

    The only parameter that is a device gives the device, and the only one of a known dtype the dtype; without them both
    are unknown. Values that are meaningless to a reader, such as an object's, are replaced by pytest's id.
    """
    test, _, ident = fullname.partition("[")
    texts = {name: _OBJECT.sub(r"\1", value) for name, value in given.items() if isinstance(value, str)}
    devices = {name: device for name, text in texts.items() if (device := _device_name(name, text))}
    dtypes = {name: match[1] for name, text in texts.items() if (match := _DTYPE.fullmatch(text))}
    single = [dict(values) if len(values) == 1 else {} for values in (devices, dtypes)]
    shown = {name: _readable(value) for name, value in given.items() if name not in {**single[0], **single[1]}}
    params = {name: value for name, value in shown.items() if value is not ...}
    if len(params) < len(shown):
        params["id"] = clean(ident.removesuffix("]")[:LONGEST_TEXT])
    device, dtype = ("".join(values.values()) for values in single)
    return Case(test.removeprefix("::"), device, dtype, params, implementation="", variant="", cache="")


def _device_name(name: str, text: str) -> str:
    """``cuda:0`` for a torch device, or for a text in a parameter named like ``device``; empty for anything else."""
    match = _TORCH_DEVICE.fullmatch(text) or (name.lower() in _DEVICE_NAMES and _DEVICE.fullmatch(text.lower()))
    return f"{match[1]}:{match[2] or '0' * (match[1] in ('cuda', 'xpu'))}".rstrip(":") if match else ""


def _readable(value: Any) -> Any:
    """A value as a table shows it; ``...`` if it is meaningless there."""
    if value is None or (isinstance(value, int | float) and abs(value) <= (2**63 - 1, 1e300)[isinstance(value, float)]):
        return value
    if isinstance(value, int | float):
        return str(value) if isinstance(value, float) or abs(value) < 10**LONGEST_VALUE else ...
    text = value if isinstance(value, str) else json.dumps(value)
    return clean(text) if len(text) <= LONGEST_VALUE and not _OBJECT.match(text) else ...


def named(results: Iterable[Result]) -> list[Result]:
    """All results of a run under names that differ; tests of other fixtures have pytest's. Where several have one
    full name, as pytest gives all tests with a configuration elsewhere, the second is ``test_x#2``."""
    counts: Counter[tuple[str, str]] = Counter()
    rows, cases = [], []
    for row in results:
        counts[key := (row.fullname, str(row.case) if row.implementation else "")] += 1
        if counts[key] > 1:
            test, bracket, rest = row.fullname.partition("[")
            row = structs.replace(row, fullname=f"{test}#{counts[key]}{bracket}{rest}")
        rows.append(row)
        cases.append(row.case if row.implementation or row.workload else plain_case(row.fullname, row.params))
    return [structs.replace(row, **structs.asdict(case)) for row, case in zip(rows, numbered(cases), strict=True)]


def numbered(cases: Sequence[Case]) -> list[Case]:
    """These cases; the second of one identity is called ``sorting.sort#2``."""
    counts: Counter[str] = Counter()
    rows = []
    for case in cases:
        counts[key := str(case)] += 1
        rows.append(structs.replace(case, workload=f"{case.workload}#{counts[key]}") if counts[key] > 1 else case)
    return rows


def shared_place(tests: Iterable[str]) -> str:
    """The folders, or the file, that all tests of these full names share, up to the names that differ."""
    files = {test.partition("::")[0] for test in tests if "::" in test}
    if len(files) == 1:
        return f"{min(files)}::"
    folder = posixpath.commonpath(files) if len({posixpath.isabs(file) for file in files}) == 1 else ""
    return f"{folder}/" if folder else ""


def shared_params(cases: Collection[Case]) -> dict[str, frozenset[str]]:
    """By workload the parameters that are equal in all its benchmarks on each device, where one has several."""
    counts = Counter((case.workload, case.device) for case in cases)
    several = {workload for (workload, _), count in counts.items() if count > 1}
    values = {(case.workload, name, case.device, repr(value)) for case in cases for name, value in case.params.items()}
    distinct = Counter(value[:3] for value in values)
    varied = {key[:2] for key, count in distinct.items() if count > 1}
    names = sorted({key[:2] for key in distinct if key[0] in several} - varied)
    return {workload: frozenset(name for _, name in group) for workload, group in groupby(names, itemgetter(0))}
