"""Names of tests as benchmarks: the workload of a file and a function, and the identity of a test that doesn't use our
fixture."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from msgspec import structs

from ..errors import clean
from .matching import SHIPPED
from .schema import Case, Result

LONGEST_TEXT = 2000
"""Characters kept of a text from a file: a reason may hold a whole traceback, which would be too long for a table."""
LONGEST_VALUE = 40
"""The longest text of a parameter's value that is shown as it is; a longer one is replaced by its part of pytest's
id."""
_OBJECT = re.compile(r"UNSERIALIZABLE\[(.*)\]", re.DOTALL)
"""The text that pytest-benchmark writes for a value that JSON can't represent."""
_TORCH_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_DEVICE = re.compile(r"([a-z][a-z0-9_]*)(?::(\d+))?")
_DTYPE = re.compile(r"(?:torch\.)?(b?float(?:16|32|64))")
_DEVICE_NAMES = ("device", "dev", "torch_device", "device_name", "device_type")
_INDEXED = ("cuda", "xpu")
"""Types of devices for which no index means the first device."""


def workload_of(fullname: str, stems: Mapping[str, str] = MappingProxyType({}), shipped: bool = False) -> str:
    """``sorting.TestFast.sort`` of ``a/test_sorting.py::TestFast::test_sort[x]``, as of ``a/sorting_test.py::…``.

    Used for files without further details: a name may itself hold brackets and colons, which only pytest can
    distinguish.
    """
    file, _, rest = fullname.partition("::")
    return workload_by_names(file, rest.partition("[")[0].split("::"), stems, shipped)


def workload_by_names(file: str, names: Sequence[str], stems: Mapping[str, str], shipped: bool = False) -> str:
    """The workload of a test; ``names`` are the names of its classes and of its function.

    ``stems`` are those of files that need more than their own, see :func:`told_stems`. ``shipped`` files come with
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


def plain_case(fullname: str, given: Mapping[str, Any], stems: Mapping[str, str] = MappingProxyType({})) -> Case:
    """The identity of a test that doesn't use our fixture, from its name and parameters, as pytest-benchmark has them.

    A parameter that holds a device, or the only one of several that is called so, gives the device, and one of a known
    dtype the dtype; without them both are unknown. A value that is meaningless to a reader, such as an object's, is
    replaced by its part of pytest's id, or, where the id can't be split into parts, all such values by the whole id.
    """
    params = dict(given)
    devices = {name: found for name, value in given.items() if (found := _device_name(name, value))}
    device = params.pop(next(iter(devices)), "") and next(iter(devices.values())) if len(devices) == 1 else ""
    texts = ((name, _text(value)) for name, value in params.items())
    dtypes = {name: match[1] for name, text in texts if (match := _DTYPE.fullmatch(text or ""))}
    dtype = params.pop(next(iter(dtypes)), "") and next(iter(dtypes.values())) if len(dtypes) == 1 else ""
    ident = _ident(fullname)
    parts = dict(zip(given, ident.split("-"), strict=True)) if ident.count("-") == len(given) - 1 else {}
    shown = {name: _readable(value, parts.get(name)) for name, value in params.items()}
    if any(value is ... for value in shown.values()):
        shown = {name: value for name, value in shown.items() if value is not ...} | {"id": clean(ident[:LONGEST_TEXT])}
    workload = workload_of(fullname, stems)
    return Case(workload, device, dtype, shown, implementation="", variant="", cache="")


def named(results: Sequence[Result]) -> list[Result]:
    """All results of a run, those of other fixtures under names that tell them apart; where the file gives none, the
    name is made from the test's full name and parameters. Where several have one full name, as pytest gives all tests
    whose configuration lies elsewhere, the second is ``test_x#2``."""
    counts: Counter[tuple[str, str]] = Counter()
    for number, each in enumerate(results := list(results)):
        counts[key := (each.fullname, str(each.case) if each.implementation else "")] += 1
        if counts[key] > 1:
            test, bracket, rest = each.fullname.partition("[")
            results[number] = structs.replace(each, fullname=f"{test}#{counts[key]}{bracket}{rest}")
    stems = told_stems(each.fullname for each in results)
    plain = told_apart(
        {
            each.fullname: each.case if each.workload else plain_case(each.fullname, each.params, stems)
            for each in results
            if not each.implementation
        }
    )
    cases = numbered([each.case if each.implementation else plain[each.fullname] for each in results])
    return [structs.replace(each, **structs.asdict(case)) for each, case in zip(results, cases, strict=True)]


def numbered(cases: Sequence[Case]) -> list[Case]:
    """These cases; the second of one identity is called ``sorting.sort#2``."""
    counts: Counter[str] = Counter()
    found = []
    for case in cases:
        counts[key := str(case)] += 1
        found.append(structs.replace(case, workload=f"{case.workload}#{counts[key]}") if counts[key] > 1 else case)
    return found


def told_apart(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Plain cases by full name, without the parameters that are equal in all of a workload's on one device, and with
    pytest's id where they would otherwise have the same name."""
    shared, short = shared_params(cases.values()), {}
    for fullname, case in cases.items():
        params = {name: value for name, value in case.params.items() if name not in shared.get(case.workload, ())}
        short[fullname] = structs.replace(case, params=params)
    names = Counter((case.id, case.device) for case in short.values())
    for fullname, case in short.items():
        if names[case.id, case.device] > 1 and (ident := _ident(fullname)):
            short[fullname] = structs.replace(case, params={**case.params, "id": ident})
    return short


def shared_params(cases: Collection[Case]) -> dict[str, frozenset[str]]:
    """By workload the parameters that are equal in all its benchmarks on each device, where one has several."""
    values: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for case in cases:
        for name, value in case.params.items():
            values[case.workload, case.device, name].add(repr(value))
    varied = {(workload, name) for (workload, _, name), found in values.items() if len(found) > 1}
    counts = Counter((case.workload, case.device) for case in cases)
    several = {workload for (workload, _), count in counts.items() if count > 1}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for workload, _, name in values:
        if workload in several and (workload, name) not in varied:
            found[workload].add(name)
    return {workload: frozenset(names) for workload, names in found.items()}


def _ident(fullname: str) -> str:
    """pytest's id of a test's parameters: ``x-1`` for ``test_sort[x-1]``."""
    return clean(fullname.partition("[")[2].removesuffix("]"))


def _device_name(name: str, value: Any) -> str:
    """``cuda:0`` for a torch device, or for a text in a parameter named like ``device``; empty for anything else."""
    text = _text(value) or ""
    found = _TORCH_DEVICE.fullmatch(text) or (name.lower() in _DEVICE_NAMES and _DEVICE.fullmatch(text.lower()))
    if not found:
        return ""
    index = found[2] or ("0" if found[1] in _INDEXED else "")
    return f"{found[1]}:{index}" if index else str(found[1])


def _text(value: Any) -> str | None:
    """The value if it is a text, the text within if it stands for an object, else None."""
    if not isinstance(value, str):
        return None
    inner = _OBJECT.fullmatch(value)
    return inner[1] if inner else value


def _readable(value: Any, part: str | None) -> Any:
    """A value as a table shows it, else its part of pytest's id, else ``...``."""
    if isinstance(value, float) and not -1e300 <= value <= 1e300:
        return str(value)
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= LONGEST_VALUE and not _OBJECT.fullmatch(text):
        return clean(text)
    return ... if part is None else clean(part[:LONGEST_TEXT])
