"""Read run files: checked where they enter, so that later code may divide by a time and take its logarithm.

msgspec checks the types and ranges that :mod:`gpubench.runfile.schema` declares; duplicate keys, sizes and what must
hold between values are checked here. A file that can't be trusted raises :class:`~gpubench.errors.RunFileError` with
one line, ``path: place: what was expected``. Unknown keys are ignored, and a file of pytest-benchmark alone is read as
what it says: times of one process, on a device that a parameter names or nobody knows, with no work declared.

JSON itself is parsed by the standard library: it names line and column, shows every key of an object, and reads the
NaN that plain files hold among their parameters.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import statistics
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, chain
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import structs

from ..errors import RunFileError
from . import schema
from .flags import ADVICE, apart
from .matching import SHIPPED
from .schema import KEY, Case, DeviceFacts, Machine, Measurement, Process, Raised, Result, Run, RunFile, Times

LONGEST_TEXT = 2000
"""Characters kept of a text from a file: a reason may hold a whole traceback, a table shall not."""
LARGEST, MOST_VALUES, MOST_GROUPS = 1024**3, 24_000_000, 4_000_000
"""Bytes of a file; values, lists and objects in it, of some 60 and 300 bytes of memory each. A journal of 20,000 cases
in three processes has 400 MiB, 18 million values and 1.7 million lists and objects."""
DEEPEST = 400
"""Levels of nesting. Ours are 7; at a thousand, writing would end in a RecursionError."""

T = TypeVar("T")
_Place = tuple[str | int, ...]
"""Keys and indices that lead to a value."""


class Foreign(RunFileError):
    """JSON that isn't a pytest-benchmark file at all: in a folder of run files it may lie about."""


def read(path: str | os.PathLike[str], samples: bool = True) -> Run:
    """Raises RunFileError for a file that is missing, truncated, foreign or inconsistent.

    Without ``samples`` the run has none: those of a thousand runs don't fit in memory.
    """
    path = Path(path)
    return check_run(path, _load(path), samples)


def check_run(path: Path, root: Any, samples: bool = True) -> Run:
    """The run in the content of a results file; ``path`` is for what :func:`read` raises."""
    if not isinstance(root, dict) or "benchmarks" not in root:
        raise Foreign(f"{clean(str(path))}: file: expected a pytest-benchmark file, an object with a key 'benchmarks'")
    marks = root["benchmarks"]
    if not isinstance(marks, list):
        _refuse(path, ("benchmarks",), "a list", marks)
    if len(marks) > schema.MOST_CASES:
        _refuse(path, ("benchmarks",), f"at most {schema.MOST_CASES} cases", len(marks))
    ours = root.get(KEY)
    extras = (mark.get("extra_info") for mark in marks if isinstance(mark, dict))
    plain = ours is None and not any(isinstance(extra, dict) and KEY in extra for extra in extras)
    version = ours.get("schema_version") if isinstance(ours, dict) else None
    if not plain and (version != schema.SCHEMA_VERSION or isinstance(version, bool)):
        _refuse(path, (KEY, "schema_version"), str(schema.SCHEMA_VERSION), version)
    file = convert(path, root | {"benchmarks": []}, RunFile)
    machine = _machine(path, file.machine_info or schema.MachineInfo())
    kinds = {device.name: device.kind for device in reversed(machine.devices)}
    names = (mark.get("fullname") for mark in marks if isinstance(mark, dict))
    ambiguous = ambiguous_files(name for name in names if isinstance(name, str))
    results = [_result(path, number, mark, kinds, ambiguous, samples) for number, mark in enumerate(marks)]
    plain_cases = told_apart({result.fullname: result.case for result in results if not result.implementation})
    for place, each in enumerate(results):
        if each.fullname in plain_cases:
            results[place] = structs.replace(each, params=plain_cases[each.fullname].params)
    if plain or file.gpubench is None:
        return Run(path, machine, tuple(results), file.datetime, plain=True)
    return _run(path, machine, results, file.gpubench)


def _run(path: Path, machine: Machine, results: list[Result], facts: schema.RunFacts) -> Run:
    if facts.started is not None:
        try:
            datetime.fromisoformat(facts.started)
        except ValueError:
            _refuse(path, (KEY, "started"), "an ISO 8601 date and time", facts.started)
    for entry in facts.unmeasured or ():
        case = {name: getattr(entry, name) for name in Case.__struct_fields__}
        row = Result(**case, status=entry.status, reason=entry.reason or "", fullname=entry.fullname or "")
        results.append(row)
    processes = facts.processes or ()
    known = {name: getattr(facts, name) for name in ("started", "preset", "stage", "version", "seed")}
    known |= {"processes": len(processes) or 1, "ceilings": facts.ceilings or {}, "flags": _flags(processes)}
    slow = tuple(each.index for each in processes if each.canary and each.canary.all_s > each.canary.one_s)
    return Run(path, machine, tuple(results), slow_threads=slow, **known)


def _machine(path: Path, info: schema.MachineInfo) -> Machine:
    """The CPU's model names a machine that says no more; its host name is private."""
    label = (info.cpu and info.cpu.brand_raw) or info.machine or "unknown machine"
    facts = info.gpubench
    if facts is None:
        return Machine(label, (DeviceFacts("cpu", "cpu", label),))
    precision = facts.precision or {}
    tf32 = precision.get("tf32")
    if tf32 is not None and not isinstance(tf32, bool):
        _refuse(path, ("machine_info", KEY, "precision", "tf32"), "true, false or null", tf32)
    devices = facts.devices or (DeviceFacts("cpu", "cpu", label),)
    torch = facts.torch.version if facts.torch else None
    return Machine(facts.label or label, devices, torch, tf32, facts.threads, precision)


def _result(
    path: Path, number: int, mark: Any, kinds: Mapping[str, str], ambiguous: Collection[str], samples: bool
) -> Result:
    place: _Place = ("benchmarks", number)
    benchmark = convert(path, mark, schema.Benchmark, place)
    measured = benchmark.extra_info.gpubench if benchmark.extra_info else None
    if measured is None:
        return _plain(path, place, benchmark, ambiguous, samples)
    timer = benchmark.options and benchmark.options.timer
    used = (measured.device, *measured.devices)
    accelerators = [name for name in used if kinds.get(name, name.partition(":")[0]) not in ("", "cpu")]
    if accelerators and timer not in schema.TIMERS:
        expected = f"a timer that waits for {accelerators[0]} ({', '.join(schema.TIMERS)})"
        _refuse(path, (*place, "options", "timer"), expected, timer)
    times = _times(path, place, benchmark, measured, samples)
    flags = _flags(measured.processes)
    flags += _apart(times, flags)
    values: tuple[Any, ...] = (*structs.astuple(measured), schema.OK, None, times, flags, benchmark.fullname or "")
    return Result(*values)


def _plain(path: Path, place: _Place, benchmark: schema.Benchmark, ambiguous: Collection[str], samples: bool) -> Result:
    """A case of another's test."""
    if benchmark.fullname is None:
        _refuse(path, (*place, "fullname"), "a text", None)
    given = {} if benchmark.params is None else benchmark.params
    if not isinstance(given, dict):
        _refuse(path, (*place, "params"), "an object", given)
    if len(given) > schema.MOST_PARAMS:
        _refuse(path, (*place, "params"), f"at most {schema.MOST_PARAMS} parameters", len(given))
    case = plain_case(benchmark.fullname, given, ambiguous)
    times = _times(path, place, benchmark, Measurement("", ""), samples)
    return Result(**structs.asdict(case), times=times, fullname=benchmark.fullname)


def _times(path: Path, place: _Place, benchmark: schema.Benchmark, measured: Measurement, with_samples: bool) -> Times:
    stats, processes = benchmark.stats, measured.processes
    data = stats.data or ()
    kept = [process.kept for process in processes] or [len(data)]
    if data and sum(kept) != len(data):  # or a sample would count for the wrong process
        expected = f"{sum(kept)} samples, as many as its processes kept,"
        _refuse(path, (*place, "stats", "data"), expected, len(data))
    shares: tuple[Sequence[float], ...] = ()
    if with_samples:
        samples, ends = array("d", data), accumulate(kept)
        shares = tuple(samples[end - count : end] for end, count in zip(ends, kept, strict=True))
    medians = [process.median_s for process in processes]
    median = statistics.geometric_mean(medians) if len(medians) > 1 else stats.median
    alone = Process(0, stats.rounds, len(data), stats.iterations, stats.median, latency_s=measured.latency_s)
    return Times(
        median_s=median,
        mean_s=stats.mean,
        min_s=stats.min,
        iqr_s=stats.iqr,
        q1_s=min(stats.q1 or max(stats.median - stats.iqr / 2, stats.median / 2), median),
        q3_s=max(stats.q3 or stats.median + stats.iqr / 2, median),
        rounds=stats.rounds,
        iterations=stats.iterations,
        latency_s=measured.latency_s,
        timer=(benchmark.options and benchmark.options.timer) or "",
        processes=processes or (alone,),
        samples=shares,
    )


def _flags(processes: Iterable[Process | schema.ProcessFacts]) -> tuple[Raised, ...]:
    """Flags of all processes, each name once; a name that this version doesn't know is left out."""
    found: dict[str, tuple[str, list[int]]] = {}
    for process in processes:
        for flag in process.flags or ():
            if flag.name in ADVICE:
                found.setdefault(flag.name, (flag.seen, []))[1].append(process.index)
    return tuple(Raised(name, seen, tuple(indices)) for name, (seen, indices) in found.items())


def _apart(times: Times, flags: tuple[Raised, ...]) -> tuple[Raised, ...]:
    """``noisy`` because processes disagree, which none of them can see."""
    rounds = [(process.median_s, process.rounds) for process in times.processes]
    seen = apart(rounds, times.iqr_s / times.median_s)
    if not seen or any(flag.name == "noisy" for flag in flags):
        return ()
    return (Raised("noisy", seen, tuple(process.index for process in times.processes)),)


# Other people's benchmarks --------------------------------------------------------------------------------------------

LONGEST_VALUE = 40
"""Characters of a parameter's value that is shown as it is; of a longer one, pytest's id says more."""
_OBJECT = re.compile(r"UNSERIALIZABLE\[(.*)\]", re.DOTALL)
"""What pytest-benchmark writes of a value that JSON doesn't know."""
_TORCH_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_DEVICE = re.compile(r"([a-z][a-z0-9_]*)(?::(\d+))?")
_DTYPE = re.compile(r"(?:torch\.)?(b?float(?:16|32|64))")
_DEVICE_NAMES = ("device", "dev", "torch_device", "device_name", "device_type")
_INDEXED = ("cuda", "xpu")
"""Kinds whose first device is meant where no index is given."""


def workload_of(fullname: str, ambiguous: Collection[str] = (), shipped: bool = False) -> str:
    """``sorting.TestFast.sort`` of ``a/test_sorting.py::TestFast::test_sort[x]``, as of ``a/sorting_test.py::…``.

    ``ambiguous`` are the names of files that occur twice: there the folder is part of the name. ``shipped`` files come
    with gpubench; another one that is called like one of them is ``test_fft`` in full.
    """
    file, _, rest = fullname.partition("::")
    place = PurePosixPath(file.replace("\\", "/"))
    stem = place.stem.removeprefix("test_").removesuffix("_test") or place.stem
    if not shipped and place.name in ambiguous and place.parent.name:
        stem = f"{place.parent.name}/{stem}"
    elif not shipped and stem in SHIPPED:
        stem = f"test_{stem}"
    *classes, function = rest.partition("[")[0].split("::")
    name = function.removeprefix("test_") or function
    parts = [stem, *classes]
    return ".".join(parts if parts[-1] == name or not name else [*parts, name])


def ambiguous_files(fullnames: Iterable[str]) -> frozenset[str]:
    """Names of files that occur in several folders."""
    files = {name.partition("::")[0].replace("\\", "/") for name in fullnames}
    counts = Counter(PurePosixPath(file).name for file in files)
    return frozenset(name for name, count in counts.items() if count > 1)


def plain_case(fullname: str, given: Mapping[str, Any], ambiguous: Collection[str] = ()) -> Case:
    """The identity of a test that doesn't use our fixture, from its name and parameters, as pytest-benchmark has them.

    A parameter that holds a device, or the only one of several that is called so, gives the device, and one of a known
    dtype the dtype; without them both are unknown. A value that says nothing to a reader, as an object's, is replaced
    by its part of the id, or, where the id doesn't tell the parts, all such by the whole of it.
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
    workload = workload_of(fullname, ambiguous)
    return Case(workload, device, dtype, shown, implementation="", variant="", regime="", cache="")


def without_shared(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Plain cases by full name, without the parameters that are equal in all of a workload's on one device."""
    values: dict[tuple[str, str], dict[str, set[str]]] = {}
    counts = Counter((case.workload, case.device) for case in cases.values())
    for case in cases.values():
        known = values.setdefault((case.workload, case.device), {})
        for name, value in case.params.items():
            known.setdefault(name, set()).add(repr(value))
    varied = {(key[0], name) for key, known in values.items() for name, each in known.items() if len(each) > 1}
    several = {workload for (workload, _), count in counts.items() if count > 1}
    return {
        name: structs.replace(
            case, params={key: value for key, value in case.params.items() if (case.workload, key) in varied}
        )
        if case.workload in several
        else case
        for name, case in cases.items()
    }


def told_apart(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Plain cases by full name; those that would be called alike get pytest's id besides."""
    names = {name: (case.id, case.device) for name, case in cases.items()}
    counts = Counter(names.values())
    return {
        name: structs.replace(case, params={**case.params, "id": ident})
        if counts[names[name]] > 1 and (ident := _ident(name))
        else case
        for name, case in cases.items()
    }


def _ident(fullname: str) -> str:
    """What pytest calls a test's parameters: ``x-1`` of ``test_sort[x-1]``."""
    return clean(fullname.partition("[")[2].removesuffix("]"))


def _device_name(name: str, value: Any) -> str:
    """``cuda:0`` of torch's device, or of a text in a parameter that is called so; empty for anything else."""
    text = _text(value)
    found = _TORCH_DEVICE.fullmatch(text or "") or (name in _DEVICE_NAMES and _DEVICE.fullmatch(text or ""))
    if not found:
        return ""
    index = found[2] or ("0" if found[1] in _INDEXED else "")
    return f"{found[1]}:{index}" if index else str(found[1])


def _text(value: Any) -> str | None:
    """A text, or that of an object."""
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


# Parsing --------------------------------------------------------------------------------------------------------------


class Allowance:
    """How much of a file may be parsed before it takes too much memory: above a floor only what is as dense as ours."""

    size = values = groups = 0

    def excess(self, content: bytes) -> str:
        """What was expected of the file if it is too large with this part of it. Signs within a text count as well."""
        self.size += len(content)
        self.values += content.count(b",")
        self.groups += content.count(b"[") + content.count(b"{")
        if self.size > min(LARGEST, 48 * 1024**2 + 100 * self.values):
            return f"at most {LARGEST // 1024**2} MiB, and few long texts"
        most = min(MOST_VALUES, 2_000_000 + self.size // 8), min(MOST_GROUPS, 800_000 + self.size // 100)
        few = self.values <= most[0] and self.groups <= most[1]
        return "" if few else f"at most {most[0]} values and {most[1]} lists and objects"


def shallow(value: Any) -> bool:
    """Whether it is nested no deeper than any file of ours."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for group in level:
            entries = group.values() if isinstance(group, dict) else group
            if not {dict, list}.isdisjoint(map(type, entries)):  # a million samples are told apart at once
                inner += [entry for entry in entries if isinstance(entry, dict | list)]
        level = inner
        if not level:
            return True
    return False


def _load(path: Path) -> Any:
    """The whole of a file, its texts cleaned, in which no key stands twice in an object."""

    def entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            _refuse(path, f"key {clean(twice)[:60]!r}", "every key once in an object, found it twice")
        if any(len(key) > LONGEST_TEXT for key, _ in pairs):
            _refuse(path, "file", f"keys of at most {LONGEST_TEXT} characters")
        return {clean(key): _cleaned(value) for key, value in pairs}

    content = _bytes(path)
    if (ordinary := _ordinary(content)) is not None:
        return ordinary
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=entries)
    except UnicodeDecodeError as error:
        _refuse(path, f"byte {error.start}", "UTF-8 text")
    except json.JSONDecodeError as error:
        _refuse(path, f"line {error.lineno} column {error.colno}", f"JSON ({error.msg}): is the file truncated?")
    except RecursionError:
        _refuse(path, "file", "a run file, found JSON nested too deeply")
    except ValueError:  # an integer of thousands of digits
        _refuse(path, "file", "numbers of a sensible length")
    if isinstance(value, dict | list) and not shallow(value):
        _refuse(path, "file", "a run file, found JSON nested too deeply")
    return value


def _ordinary(content: bytearray) -> Any:
    """What the slower parser would make of it, where no text is to be cleaned and no key stands twice; else None.

    A key that stands twice leaves more colons in the file than its objects have entries and its texts have colons.
    """
    try:
        root = msgspec.json.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not isinstance(root, dict) or b"\\u003" in content:  # an escaped colon
        return None
    colons, objects, lists = 0, [root], list[list[Any]]()
    for _ in range(DEEPEST):
        lists = [entries for entries in lists if set(map(type, entries)) != {float}]  # not a million samples one by one
        values = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(lists)]
        texts = [*chain.from_iterable(objects), *(value for value in values if type(value) is str)]
        together = "".join(texts)
        if not together.isprintable() or max(map(len, texts), default=0) > LONGEST_TEXT:
            return None
        colons += sum(map(len, objects)) + together.count(":")
        objects = [value for value in values if type(value) is dict]
        lists = [value for value in values if type(value) is list]
        if not objects and not lists:
            return root if colons == content.count(b":") else None
    return None


def _bytes(path: Path) -> bytearray:
    content, allowance = bytearray(), Allowance()
    try:
        with path.open("rb") as file:
            while part := file.read(2**24):  # a device or a pipe doesn't tell its size
                content += part
                if excess := allowance.excess(part):
                    _refuse(path, "file", f"a run file of {excess}")
    except (OSError, ValueError) as error:
        _refuse(path, "file", f"a readable run file ({getattr(error, 'strerror', None) or error})")
    if not content or content.isspace():
        _refuse(path, "file", "a run file, found an empty file")
    return content


def _cleaned(value: Any) -> Any:
    if type(value) is str:
        return clean(value[:LONGEST_TEXT])
    if type(value) is list and not {str, list}.isdisjoint(map(type, value)):  # not a million samples one by one
        return [_cleaned(entry) for entry in value]
    return value


def clean(text: str) -> str:
    """One line of printable characters: names from a file end up in terminals, CSV cells and SVG."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


# Complaints -----------------------------------------------------------------------------------------------------------


def _refuse(path: Path | str, place: _Place | str, expected: str, *found: Any) -> NoReturn:
    if not isinstance(place, str):
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).lstrip(".")
    shown = ", found nothing" if found == (None,) else f", found {clean(reprlib.repr(*found)[:60])}" if found else ""
    raise RunFileError(f"{clean(str(path))}: {clean(place) or 'file'}: expected {expected}{shown}")


def convert(path: Path | str, value: Any, kind: type[T], place: _Place = ()) -> T:
    """The value as that type. Raises RunFileError, which names the place and shows what is there."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        inner, message = _fault(value, kind, str(error))
    except UnicodeEncodeError:  # half a character, from a ledger: the texts of run files are clean
        _refuse(path, place, "text that can be encoded")
    if message.startswith("expected "):  # our own
        _refuse(path, place + inner, message.removeprefix("expected "))
    found: Any = value
    for key in inner:
        found = found.get(key) if isinstance(found, dict) else found[key]
    _refuse(path, place + inner, _words(message), len(found) if " of length " in message else found)


def _fault(value: Any, kind: Any, text: str) -> tuple[_Place, str]:
    """Where msgspec found a fault, and its message: it names neither the keys of mappings nor missing values' types."""
    message, _, rest = text.partition(" - at `")
    place: _Place = ()
    current = value
    for name, index in re.findall(r"\.([^.\[`]+)|\[([^]]+)\]", rest.removeprefix("key` in `")):
        if index == "...":
            name = next(
                (key for key in current if _complaint(_replaced(value, place, {key: current[key]}), kind)), None
            )
            if name is None:
                break
        key: str | int = int(index) if index.isdigit() else name
        place, current = (*place, key), current[key]
    if missing := re.fullmatch(r"Object missing required field `(.+)`", message):
        place = (*place, missing[1])
        message = _complaint(_replaced(value, place, None), kind).partition(" - at `")[0] or message
    return place, message.removeprefix("Expected each").removeprefix("Value ")


def _complaint(value: Any, kind: Any) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _replaced(value: Any, place: _Place, new: Any) -> Any:
    """A copy with another value at that place."""
    if not place:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    key = place[0]
    copy[key] = _replaced(copy[key] if isinstance(value, list) else copy.get(key), place[1:], new)
    return copy


_WORDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
          "object": "an object", "null": "null"}  # fmt: skip


def _words(message: str) -> str:
    """What msgspec expected, in words of JSON."""
    if choice := re.search(r"regex '\^\((.+)\)\$'", message):
        return f"one of {choice[1].rstrip('|').replace('|', ', ')}"
    kinds = re.match(r"Expected `(.+?)`(?: of length)?(?: ([<>]=) (\S+))?", message)
    if not kinds:
        return "a finite number of a sensible size"
    if " of length " in message:
        return f"at most {kinds[3]} entries"
    names = [name for name in _WORDS if name in kinds[1].split(" | ")]
    if "float" in names and "int" in names:
        names.remove("int")
    if len(names) == 2 and "null" in names:
        names.remove("null")
    if kinds[2]:
        limit = f"of at {'least' if kinds[2] == '>=' else 'most'} {float(kinds[3]):g}"
        return f"{_WORDS[names[0]].replace('a number', 'a finite number')} {limit}"
    return " or ".join(_WORDS[name] for name in names)
