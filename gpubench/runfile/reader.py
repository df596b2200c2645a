"""Read and validate run files. All times are positive and finite afterwards, so later code doesn't check them.

msgspec checks the types and ranges that :mod:`gpubench.runfile.schema` declares; sizes and what must hold between
values are checked here. A file that can't be trusted raises :class:`~gpubench.errors.RunFileError` with one line,
``path: place: what was expected``. Unknown keys are ignored, and a file of pytest-benchmark alone is read as it is:
times of one process, without declared work, on a device that is unknown unless a parameter names it.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import structs

from ..errors import RunFileError
from ..statistics.intervals import median as median_of
from . import schema
from .flags import ADVICE, apart
from .matching import SHIPPED
from .quantities import moment_of
from .schema import KEY, Case, DeviceFacts, Machine, Measurement, Process, Raised, Result, Run, RunFile, Times
from .utilisation import disproved, raise_peaks

LONGEST_TEXT = 2000
"""Characters kept of a text from a file: a reason may hold a whole traceback, which would be too long for a table."""
LARGEST = 256 * 1024**2
"""The most bytes of a file: those of a run of 11,900 cases in three processes."""

TOO_DEEP = "nested too deep to be a results file"

T = TypeVar("T")


class Foreign(RunFileError):
    """JSON of something else than pytest-benchmark, as may be among the run files of a folder."""


def read(path: str | os.PathLike[str], samples: bool = True) -> Run:
    """Read a run file. Raises RunFileError for a file that is missing, truncated, foreign or inconsistent.

    Without ``samples`` the run has none: those of a thousand runs don't fit in memory.
    """
    path = Path(path)
    try:
        return check_run(path, _content_of(path), samples)
    except RecursionError:
        raise RunFileError(f"{clean(str(path))}: {TOO_DEEP}") from None


def check_run(path: Path, root: Any, samples: bool = True, whole: bool = False) -> Run:
    """The run in the content of a results file; ``path`` is used in the errors that :func:`read` describes.

    An entry that can't be used is a row without a number, unless the file must be ``whole``."""
    if not isinstance(root, dict) or "benchmarks" not in root:
        estimated = isinstance(root, dict) and root.get("status") == "modelled"
        found = ": it holds an estimate, which was modelled and not measured" if estimated else ""
        wanted = "expected a pytest-benchmark file, an object with a key 'benchmarks'"
        raise Foreign(f"{clean(str(path))}: file: {wanted}{found}")
    marks, plain = _entries(path, root)
    file = convert(path, root | {"benchmarks": []}, RunFile)
    machine = _machine(path, file.machine_info or schema.MachineInfo())
    kinds = {device.name: device.kind for device in reversed(machine.devices)}
    names = (mark.get("fullname") for mark in marks if isinstance(mark, dict))
    ambiguous = ambiguous_files(name for name in names if isinstance(name, str))
    results, errors = [], []
    for number, mark in enumerate(marks):
        try:
            results.append(_result(path, f"benchmarks[{number}]", mark, kinds, ambiguous, samples))
        except RunFileError as error:
            errors.append(error)
            results.append(_unusable(mark, str(error).removeprefix(f"{clean(str(path))}: "), ambiguous))
    if errors and (whole or len(errors) == len(marks)):
        raise errors[0]
    plain_cases = told_apart(without_shared({each.fullname: each.case for each in results if not each.implementation}))
    for place, each in enumerate(results):
        if each.fullname in plain_cases:
            results[place] = structs.replace(each, params=plain_cases[each.fullname].params)
    if plain or file.gpubench is None:
        return Run(path, machine, tuple(results), file.datetime, plain=True)
    return _run(path, machine, results, file.gpubench)


def _entries(path: Path, root: dict[str, Any]) -> tuple[list[Any], bool]:
    """The entries of ``benchmarks``, and whether the file is one of pytest-benchmark alone."""
    marks = root["benchmarks"]
    if marks and isinstance(marks, list) and not any(isinstance(mark, dict) and "stats" in mark for mark in marks):
        raise Foreign(f"{clean(str(path))}: benchmarks: another tool's results: no entry has pytest-benchmark's stats")
    if not isinstance(marks, list):
        _refuse(path, "benchmarks", "a list", marks)
    if len(marks) > schema.MOST_CASES:
        _refuse(path, "benchmarks", f"at most {schema.MOST_CASES} cases", len(marks))
    ours = root.get(KEY)
    extras = (mark.get("extra_info") for mark in marks if isinstance(mark, dict))
    plain = ours is None and not any(isinstance(extra, dict) and KEY in extra for extra in extras)
    version = ours.get("schema_version") if isinstance(ours, dict) else None
    if not plain and (version not in schema.VERSIONS or isinstance(version, bool)):
        _refuse(path, f"{KEY}.schema_version", " or ".join(map(str, schema.VERSIONS)), version)
    return _numbered(marks), plain


def _numbered(marks: Sequence[Any]) -> list[Any]:
    """The entries of ``benchmarks``; the second of a full name is called ``test_x#2``, as pytest gives all tests one
    name whose configuration lies elsewhere."""
    counts: Counter[Any] = Counter()
    found = []
    for mark in marks:
        name, extra = (mark.get("fullname"), mark.get("extra_info")) if isinstance(mark, dict) else (None, None)
        if isinstance(name, str):
            ours = extra.get(KEY) if isinstance(extra, dict) else None
            case = [ours.get(field) for field in Case.__struct_fields__] if isinstance(ours, dict) else None
            counts[key := (name, str(case))] += 1
            if (number := counts[key]) > 1:
                test, bracket, rest = name.partition("[")
                mark = mark | {"fullname": f"{test}#{number}{bracket}{rest}", "number": number}
        found.append(mark)
    return found


def _unusable(mark: Any, reason: str, ambiguous: Collection[str]) -> Result:
    """The row of a benchmark whose entry can't be used, without a number."""
    given = mark if isinstance(mark, dict) else {}
    name = given.get("fullname") or given.get("name") or reason.partition(".")[0]
    params, stats = given.get("params"), given.get("stats")
    case = plain_case(str(name), params if isinstance(params, dict) else {}, ambiguous)
    if isinstance(stats, dict) and 0 in (stats.get("median"), stats.get("mean")):
        reason = "0 s by its clock"
    return Result(**structs.asdict(case), status="error", reason=f"no number: {reason}", fullname=str(name))


def _run(path: Path, machine: Machine, results: list[Result], facts: schema.RunFacts) -> Run:
    if facts.started is not None and not moment_of(facts.started):
        _refuse(path, f"{KEY}.started", "an ISO 8601 date and time", facts.started)
    for entry in facts.unmeasured or ():
        case = {name: getattr(entry, name) for name in Case.__struct_fields__}
        row = Result(**case, status=entry.status, reason=entry.reason or "", fullname=entry.fullname or "")
        results.append(row)
    processes = facts.processes or ()
    known = {name: getattr(facts, name) for name in ("started", "preset", "stage", "version", "seed")}
    known |= {"processes": len(processes) or 1, "flags": _flags(processes)}
    peaks = raise_peaks(results, facts.ceilings or {})
    why = known["disproved"] = disproved(results, peaks)
    known["ceilings"] = {name: ceilings for name, ceilings in peaks.items() if name not in why}
    slow = tuple(each.index for each in processes if each.canary and each.canary.all_s > each.canary.one_s)
    return Run(path, machine, tuple(results), slow_threads=slow, **known)


def _machine(path: Path, info: schema.MachineInfo) -> Machine:
    """The machine, with the CPU's model as the default of its name; the host name is private."""
    label = (info.cpu and (info.cpu.brand_raw or info.cpu.brand)) or info.machine or "unknown machine"
    facts = info.gpubench
    if facts is None:
        return Machine(label, (DeviceFacts("cpu", "cpu", label),))
    precision = facts.precision or {}
    tf32 = precision.get("tf32")
    if tf32 is not None and not isinstance(tf32, bool):
        _refuse(path, f"machine_info.{KEY}.precision.tf32", "true, false or null", tf32)
    devices = facts.devices or (DeviceFacts("cpu", "cpu", label),)
    torch = facts.torch.version if facts.torch else None
    cpu = facts.cpu or schema.CpuFacts()
    return Machine(facts.label or label, devices, torch, tf32, facts.threads, precision, cpu)


def check_case(name: str, mark: Any) -> None:
    """Raise RunFileError for an entry of ``benchmarks``, as JSON gives it, that no file may hold."""
    _result(name, "", mark, {}, (), samples=False)


def _result(
    path: Path | str, place: str, mark: Any, kinds: Mapping[str, str], ambiguous: Collection[str], samples: bool
) -> Result:
    benchmark = convert(path, mark, schema.Benchmark, place)
    measured = benchmark.extra_info.gpubench if benchmark.extra_info else None
    if measured is None:
        return _plain(path, place, benchmark, ambiguous, samples)
    if number := mark.get("number"):
        measured = structs.replace(measured, workload=f"{measured.workload}#{number}")
    timer = benchmark.options and benchmark.options.timer
    used = (measured.device, *measured.devices)
    accelerators = [name for name in used if kinds.get(name, name.partition(":")[0]) not in ("", "cpu")]
    if accelerators and timer not in schema.TIMERS:
        expected = f"a timer that waits for {accelerators[0]} ({', '.join(schema.TIMERS)})"
        _refuse(path, f"{place}.options.timer", expected, timer)
    times = _times(path, place, benchmark, measured, samples)
    flags = _flags(measured.processes)
    flags += _apart(times, flags)
    values: tuple[Any, ...] = (*structs.astuple(measured), schema.OK, None, times, flags, benchmark.fullname or "")
    return Result(*values)


def _plain(
    path: Path | str, place: str, benchmark: schema.Benchmark, ambiguous: Collection[str], samples: bool
) -> Result:
    """The result of a test that doesn't use our fixture."""
    if benchmark.fullname is None:
        _refuse(path, f"{place}.fullname", "a text", None)
    given = {} if benchmark.params is None else benchmark.params
    if not isinstance(given, dict):
        _refuse(path, f"{place}.params", "an object", given)
    if len(given) > schema.MOST_PARAMS:
        _refuse(path, f"{place}.params", f"at most {schema.MOST_PARAMS} parameters", len(given))
    case = plain_case(benchmark.fullname, given, ambiguous)
    times = _times(path, place, benchmark, Measurement("", ""), samples)
    return Result(**structs.asdict(case), times=times, fullname=benchmark.fullname)


def _times(
    path: Path | str, place: str, benchmark: schema.Benchmark, measured: Measurement, with_samples: bool
) -> Times:
    stats, processes = benchmark.stats, measured.processes
    if stats.median < stats.min * (1 - 1e-9):
        _refuse(path, f"{place}.stats.median", f"at least the least time, {stats.min:g} s,", stats.median)
    data = stats.data or ()
    kept = [process.kept for process in processes] or [len(data)]
    if data and sum(kept) != len(data):  # or a sample would count for the wrong process
        expected = f"{sum(kept)} samples, as many as its processes kept,"
        _refuse(path, f"{place}.stats.data", expected, len(data))
    shares: tuple[Sequence[float], ...] = ()
    if with_samples:
        samples, ends = array("d", data), accumulate(kept)
        shares = tuple(samples[end - count : end] for end, count in zip(ends, kept, strict=True))
    medians = [process.median_s for process in processes]
    median = median_of(medians) if len(medians) > 1 else stats.median
    alone = Process(0, stats.rounds, stats.median, len(data), stats.iterations, latency_s=measured.latency_s)
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
    """The flag ``noisy`` if processes disagree, which no process alone can see."""
    rounds = [(process.median_s, process.rounds) for process in times.processes]
    seen = apart(rounds, times.iqr_s / times.median_s)
    if not seen or any(flag.name == "noisy" for flag in flags):
        return ()
    return (Raised("noisy", seen, tuple(process.index for process in times.processes)),)


# Other people's benchmarks --------------------------------------------------------------------------------------------

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


def workload_of(fullname: str, ambiguous: Collection[str] = (), shipped: bool = False) -> str:
    """``sorting.TestFast.sort`` of ``a/test_sorting.py::TestFast::test_sort[x]``, as of ``a/sorting_test.py::…``.

    Used for files without further details: a name may itself hold brackets and colons, which only pytest can
    distinguish.
    """
    file, _, rest = fullname.partition("::")
    return workload_by_names(file, rest.partition("[")[0].split("::"), ambiguous, shipped)


def workload_by_names(file: str, names: Sequence[str], ambiguous: Collection[str] = (), shipped: bool = False) -> str:
    """The workload of a test; ``names`` are the names of its classes and of its function.

    ``ambiguous`` are the names of files that occur twice: there the folder is part of the name. ``shipped`` files come
    with gpubench; another file of the same name keeps its prefix, as ``test_fft``.
    """
    place = PurePosixPath(file.replace("\\", "/"))
    stem = place.stem.removeprefix("test_").removesuffix("_test") or place.stem
    if not shipped and place.name in ambiguous and place.parent.name:
        stem = f"{place.parent.name}/{stem}"
    elif not shipped and stem in SHIPPED:
        stem = f"test_{stem}"
    *classes, function = names
    name = function.removeprefix("test_") or function
    parts = [part for part in (stem, *classes) if part]
    return ".".join(parts if name in ("", *parts[-1:]) else [*parts, name])


def ambiguous_files(fullnames: Iterable[str]) -> frozenset[str]:
    """Names of files that occur in several folders."""
    files = {name.partition("::")[0].replace("\\", "/") for name in fullnames}
    counts = Counter(PurePosixPath(file).name for file in files)
    return frozenset(name for name, count in counts.items() if count > 1)


def plain_case(fullname: str, given: Mapping[str, Any], ambiguous: Collection[str] = ()) -> Case:
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
    workload = workload_of(fullname, ambiguous)
    return Case(workload, device, dtype, shown, implementation="", variant="", regime="", cache="")


def without_shared(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Plain cases by full name, without the parameters that are equal in all of a workload's on one device."""
    values: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for case in cases.values():
        for name, value in case.params.items():
            values[case.workload, case.device, name].add(repr(value))
    varied = {(workload, name) for (workload, _, name), found in values.items() if len(found) > 1}
    counts = Counter((case.workload, case.device) for case in cases.values())
    several = {workload for (workload, _), count in counts.items() if count > 1}

    def without(case: Case) -> Case:
        params = {name: value for name, value in case.params.items() if (case.workload, name) in varied}
        return structs.replace(case, params=params) if case.workload in several else case

    return {name: without(case) for name, case in cases.items()}


def told_apart(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Plain cases by full name; pytest's id is added to cases that would otherwise have the same name."""
    names = {name: (case.id, case.device) for name, case in cases.items()}
    counts = Counter(names.values())
    return {
        name: structs.replace(case, params={**case.params, "id": ident})
        if counts[names[name]] > 1 and (ident := _ident(name))
        else case
        for name, case in cases.items()
    }


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


# Parsing --------------------------------------------------------------------------------------------------------------


def _content_of(path: Path) -> Any:
    """What a JSON file holds, its texts in one printable line each. Raises RunFileError for what isn't JSON."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)  # a device or a pipe has no known size
    except (OSError, ValueError) as error:
        _refuse(path, "file", f"a readable run file ({getattr(error, 'strerror', None) or error})")
    if not content or content.isspace():
        _refuse(path, "file", "a run file, found an empty file")
    if content.startswith((b"\x1f\x8b", b"PK\x03\x04")):
        _refuse(path, "file", "JSON (it is compressed: unpack it first)")
    if too_large := excess(len(content), content.count(b",")):
        _refuse(path, "file", too_large)
    try:
        return cleaned(decoded(content))
    except (ValueError, MemoryError) as error:
        _refuse(path, "file", f"JSON ({error})")


def decoded(content: bytes) -> Any:
    """The value of some JSON. Raises ValueError, RecursionError or MemoryError."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:  # NaN, half a character, a byte order mark; and json reports where a fault is
        return json.loads(content.decode("utf-8-sig"), parse_constant=lambda name: str(float(name)))


def excess(size: int, values: int) -> str:
    """What was expected instead of ``size`` bytes with ``values`` commas, if they would take too much memory."""
    most = 800_000 + size // 20  # an object takes 230 bytes of memory; a measured time has 20 characters
    few = size <= LARGEST and values <= most
    return "" if few else f"at most {LARGEST // 1024**2} MiB, and {most} values up to here"


def cleaned(value: Any) -> Any:
    """The value with its texts cleaned, changed in place."""
    if isinstance(value, str):
        return clean(value[:LONGEST_TEXT])
    if isinstance(value, dict) and not all(len(key) <= LONGEST_TEXT and key.isprintable() for key in value):
        value = {clean(key[:LONGEST_TEXT]): entry for key, entry in value.items()}
    if isinstance(value, dict) or (isinstance(value, list) and set(map(type, value)) != {float}):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(entry, str | dict | list):
                value[key] = cleaned(entry)
    return value


def clean(text: str) -> str:
    """One line of printable characters: names from a file end up in terminals, CSV cells and SVG."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


# Complaints -----------------------------------------------------------------------------------------------------------

_WORDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
          "object": "an object"}  # fmt: skip


def _refuse(path: Path | str, place: str, expected: str, *found: Any) -> NoReturn:
    shown = f", found {clean(reprlib.repr(*found)[:60])}" if found else ""
    raise RunFileError(clean(f"{path}: {place or 'file'}: expected {expected}{shown}"))


def convert(path: Path | str, value: Any, kind: type[T], place: str = "") -> T:
    """The value as that type. Raises RunFileError, which names file, place and what msgspec expected there."""
    try:
        return msgspec.convert(value, kind)
    except RecursionError:
        raise RunFileError(clean(f"{path}: {TOO_DEEP}")) from None
    except ValueError as error:  # a UnicodeError too: half a character
        words, _, inner = str(error).partition(" - at `")
    words = words.replace("Object missing required field", "Expected a value for")
    words = re.sub("`(.+?)`", lambda kinds: " or ".join(_WORDS.get(k, k) for k in kinds[1].split(" | ")), words)
    inner = f"{place}{inner.rpartition('$')[2].rstrip('`')}".lstrip(".")
    raise RunFileError(clean(f"{path}: {inner or 'file'}: {words[:1].lower()}{words[1:200]}"))
