"""Names of tests as benchmarks: the workload of a test with our fixture, and the identity of any other test."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec import structs

from ..errors import clean
from .matching import SHIPPED
from .schema import LONGEST_TEXT, Case, DeviceFacts

_LONGEST_VALUE = 40  # the longest text of a parameter's value that is shown; pytest's id stands for a longer one
_OBJECT = re.compile(r"\AUNSERIALIZABLE\[(.*)\]\Z", re.DOTALL)  # pytest-benchmark's text where JSON has no value
_TORCH_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_DEVICE, _NAMES = re.compile(r"([a-z][a-z0-9_]*)(?::(\d+))?"), re.compile("dev|(torch_)?device|device_(name|type)")
_DTYPE = re.compile(r"(?:torch\.)?(b?float(?:16|32|64))")


def workload_of(file: str, names: Sequence[str], stems: Mapping[str, str], shipped: bool = False) -> str:
    """``sorting.TestFast.sort``, by the ``names`` of a test's classes and function, and :func:`shared_stems`. A file
    of the name of a ``shipped`` one keeps its prefix: ``test_fft``."""
    stem = _stem(file) if shipped else stems.get(file, _stem(file))
    stem = f"test_{stem}" if stem in SHIPPED and not shipped else stem
    name = names[-1].removeprefix("test_") or names[-1]
    parts = [part for part in (stem, *names[:-1]) if part]
    return ".".join(parts if name in ("", *parts[-1:]) else [*parts, name])


def _stem(file: str) -> str:
    whole = PurePosixPath(file.replace("\\", "/")).stem
    return whole.removeprefix("test_").removesuffix("_test") or whole


def shared_stems(fullnames: Iterable[str]) -> dict[str, str]:
    """The paths, without their suffixes, of files that would share a stem."""
    files = {name.partition("::")[0] for name in fullnames}
    counts = Counter(map(_stem, files))
    return {file: file.replace("\\", "/").removesuffix(".py") for file in files if counts[_stem(file)] > 1}


def plain_case(fullname: str, given: Mapping[str, Any], devices: Iterable[DeviceFacts] = ()) -> Case:
    """The identity of a test that doesn't use our fixture: pytest's name, and parameters as pytest-benchmark has them.
    The only one that is a device (``cuda`` is the first of that kind) or a dtype gives it, else it is unknown. pytest's
    id replaces values that are meaningless to a reader, such as an object's."""
    test, _, ident = fullname.partition("[")
    texts = {name: _OBJECT.sub(r"\1", value) for name, value in given.items() if isinstance(value, str)}
    matches = {name: _DEVICE.fullmatch(texts[name].lower()) for name in texts if _NAMES.fullmatch(name.lower())}
    matches |= {name: match for name, text in texts.items() if (match := _TORCH_DEVICE.fullmatch(text))}
    places = {name: ":".join(filter(None, match.groups())) for name, match in matches.items() if match}
    dtypes = {name: match[1] for name, text in texts.items() if (match := _DTYPE.fullmatch(text))}
    single = [values if len(values) == 1 else {} for values in (places, dtypes)]
    shown = {name: _readable(value) for name, value in given.items() if name not in {**single[0], **single[1]}}
    params = {name: value for name, value in shown.items() if value is not ...}
    if len(params) < len(shown):
        params["id"] = clean(ident.removesuffix("]")[:LONGEST_TEXT])
    place, dtype = ("".join(values.values()) for values in single)
    device = next((each.name for each in devices if each.kind == place), place)
    return Case(test.removeprefix("::"), device, dtype, params, implementation="", variant="", cache="")


def _readable(value: Any) -> Any:
    """A value as a table shows it; ``...`` if it is meaningless there."""
    if value is None or (isinstance(value, int | float) and abs(value) <= (2**63 - 1, 1e300)[isinstance(value, float)]):
        return value
    if isinstance(value, int):
        return str(value) if abs(value) < 10**_LONGEST_VALUE else ...
    text = json.dumps(value) if isinstance(value, list | dict) else str(value)
    return clean(text) if len(text) <= _LONGEST_VALUE and not _OBJECT.match(text) else ...


def numbered(cases: Sequence[Case]) -> list[Case]:
    """These cases; the second of one identity is called ``sorting.sort#2``."""
    numbers = zip(cases, repeats(map(str, cases)), strict=True)
    return [structs.replace(case, workload=f"{case.workload}#{n}") if n > 1 else case for case, n in numbers]


def repeats(keys: Iterable[Hashable]) -> Iterator[int]:
    """Of each key the number of equal ones up to it."""
    counts = Counter[Hashable]()
    for key in keys:
        counts[key] += 1
        yield counts[key]
