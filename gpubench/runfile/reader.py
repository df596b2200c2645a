"""Decode results files: the bytes of one file become a run. All times are positive and finite afterwards, so later code
doesn't check them.

msgspec checks the types and ranges that :mod:`gpubench.runfile.schema` declares; sizes and relations between
values are checked here. A file that can't be trusted raises :class:`~gpubench.errors.RunFileError` with one line,
``path: place: expectation``. Unknown keys are ignored, and a file of pytest-benchmark alone is read as it is:
times of one process, without declared work, on a device that is unknown unless a parameter names it.
"""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
from msgspec import structs

from ..errors import RunFileError, clean
from ..statistics import intervals
from . import schema
from .flags import ADVICE, NOISY_FLAG
from .naming import numbered, plain_case, repeats
from .schema import KEY, LONGEST_TEXT, Benchmark, Case, Machine, Measurement, Process, Raised, Result, Run, Times

LARGEST = 256 * 1024**2  # the most bytes of a file: a run of 11,900 cases in three processes
MOST_NAMED = 4
_COMPRESSED = b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
"""How files of gzip, zip, bzip2, xz and zstd begin."""
_UNNAMED: dict[str, Any] = {"workload": "", "device": "", "implementation": "", "variant": "", "cache": ""}
"""The identity of a test that doesn't use our fixture; the tests of a run are named together."""
_PARAMS = Annotated[dict[str, Any], msgspec.Meta(max_length=schema.MOST_PARAMS)]
_PLAIN = msgspec.defstruct("plain", [("fullname", str), ("params", _PARAMS | None)])
_WORDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
          "object": "an object"}  # fmt: skip
_T = TypeVar("_T")


class Foreign(RunFileError):
    """A file of something else than pytest-benchmark, as may be among the results files of a folder."""


class Unrelated(Foreign):
    """JSON that has nothing to do with benchmarks: a folder is read without a word about it."""


def read_file(path: Path, samples: bool = True) -> Run:
    """Decode a results file, without ``samples`` if so. Raises RunFileError for a file that is missing, truncated, too
    large, foreign or inconsistent."""
    with beginning(path):
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST + 1)  # a device or a pipe has no known size
        except (OSError, ValueError) as error:
            _refuse("file", f"a readable run file ({getattr(error, 'strerror', None) or error})")
        if not content or content.isspace():
            raise Foreign("file: expected a run file, found an empty file")  # pytest leaves one if it is interrupted
        if content.startswith(_COMPRESSED):
            _refuse("file", "JSON (it is compressed: unpack it first)")
        if too_large := excess(len(content), content.count(b",")):
            _refuse("file", too_large)
        try:
            root = cleaned(decoded(content))
        except (ValueError, MemoryError) as error:
            kind = RunFileError if b"benchmarks" in content else Foreign  # a damaged results file isn't passed over
            raise kind(f"file: expected JSON ({error})") from None
    return structs.replace(check_run(path, root, samples), digest=hashlib.sha256(content).digest())


def check_run(path: Path, root: Any, samples: bool = True) -> Run:
    """The run in the content of a results file; errors, see :func:`read_file`, begin with ``path``.

    An entry that can't be used is a row without a number."""
    with beginning(path):
        marks, plain = _entries(root)
        ours = root.get(KEY)
        gone = ours.get("unmeasured") if isinstance(ours, dict) else None
        usable = isinstance(gone, list) and len(gone) <= schema.MOST_CASES
        file = convert(root | {"benchmarks": [], KEY: ours | {"unmeasured": []} if usable else ours}, schema.RunFile)
        machine = _machine(file.machine_info or schema.MachineInfo())
        kinds = {device.name: device.kind for device in reversed(machine.devices)}
        results: list[Result] = []
        errors: list[RunFileError] = []
        for number, mark in enumerate(marks):
            try:
                results.append(result_of(f"benchmarks[{number}]", mark, kinds, samples))
            except RunFileError as error:
                errors.append(error)
                results.append(_unusable(mark, str(error)))
        if errors and len(errors) == len(marks):
            raise errors[0]
        facts = file.gpubench
        if plain or facts is None:
            return Run(path, machine, _named(results, machine), file.datetime, plain=True)
        results += [_row(f"{KEY}.unmeasured[{number}]", row) for number, row in enumerate(gone or ())]
        processes = facts.processes or ()
        canaries = [(each.index, each.canary) for each in processes if each.canary and machine.threads != 1]
        slow = tuple(index for index, canary in canaries if canary.all_s > canary.one_s)
        settings = {name: getattr(facts, name) for name in ("started", "preset", "stage", "version", "seed")}
        settings |= {"processes": len(processes) or 1, "flags": _flags(processes), "slow_threads": slow}
        return Run(path, machine, _named(results, machine), ceilings=facts.ceilings or {}, **settings)


def _entries(root: Any) -> tuple[list[Any], bool]:
    """The entries of ``benchmarks``, and whether the file is one of pytest-benchmark alone."""
    if not isinstance(root, dict) or "benchmarks" not in root:
        raise Unrelated("file: expected a pytest-benchmark file, an object with a key 'benchmarks'")
    marks, ours = root["benchmarks"], root.get(KEY)
    objects = [mark for mark in marks if isinstance(mark, dict)] if isinstance(marks, list) else []
    stats = [mark["stats"] for mark in objects if isinstance(mark.get("stats"), dict)]
    ends = all({"median", "mean", "min"}.isdisjoint(each) for each in stats)  # pytest-codspeed's end in _ns
    if KEY not in root and marks != [] and ends:
        raise Foreign("benchmarks: another tool's results: no entry has pytest-benchmark's stats")
    if not isinstance(marks, list):
        _refuse("benchmarks", "a list", marks)
    if len(marks) > schema.MOST_CASES:
        _refuse("benchmarks", f"at most {schema.MOST_CASES} cases", len(marks))
    plain = ours is None and not any(KEY in mark["extra_info"] for mark in objects
                                     if isinstance(mark.get("extra_info"), dict))  # fmt: skip
    version = ours.get("schema_version") if isinstance(ours, dict) else None
    if not plain and type(version) is int and version in (1, 2):
        remedy = "docs/experiments/convert_results.py of gpubench's source converts the file"
        raise RunFileError(f"{KEY}.schema_version: expected {schema.SCHEMA_VERSION}, found {version}: {remedy}")
    if not plain and version != schema.SCHEMA_VERSION:
        _refuse(f"{KEY}.schema_version", f"{schema.SCHEMA_VERSION}", version)
    return marks, plain


def _unusable(mark: Any, reason: str) -> Result:
    """The row of a benchmark with an entry that can't be used, without a number."""
    given = mark if isinstance(mark, dict) else {}
    name = given.get("fullname") or given.get("name") or reason.partition(":")[0]
    params, stats = given.get("params"), given.get("stats")
    if isinstance(stats, dict) and 0 in (stats.get("median"), stats.get("mean")):
        reason = "0 s by its clock"
    values: dict[str, Any] = _UNNAMED | {"params": params if isinstance(params, dict) else {}}
    return Result(**values, status="error", reason=f"no number: {reason}", fullname=str(name))


def _row(place: str, entry: Any) -> Result:
    """The row of a benchmark that gave no number; one of an entry that can't be used has that as its reason."""
    try:
        row = convert(entry, schema.UnmeasuredCase, place)
    except RunFileError as error:
        return _unusable(entry, str(error))
    case = {name: getattr(row, name) for name in Case.__struct_fields__}
    return Result(**case, status=row.status, reason=row.reason or "", fullname=row.fullname or "")


def _named(results: Sequence[Result], machine: Machine) -> tuple[Result, ...]:
    """All results of a run under names that differ: of tests with one full name the second is ``test_x#2``."""
    rows, cases = [], []
    numbers = repeats((row.fullname, row.implementation and str(row.case)) for row in results)
    for row, number in zip(results, numbers, strict=True):
        name = row.fullname if number == 1 else re.sub(r"(?=\[)|\Z", f"#{number}", row.fullname, count=1)
        rows.append(structs.replace(row, fullname=name))
        plain = not row.implementation and not row.workload
        cases.append(plain_case(name, row.params, machine.devices) if plain else row.case)
    identities = map(structs.asdict, numbered(cases))
    return tuple(structs.replace(row, **case) for row, case in zip(rows, identities, strict=True))


def _machine(info: schema.MachineInfo) -> Machine:
    """The machine, with the CPU's model as the default of its name; the host name is private."""
    label = str((info.cpu or {}).get("brand_raw") or info.machine or "unknown machine")
    facts = info.gpubench or Machine()
    tf32 = (facts.precision or {}).get("tf32")
    if not isinstance(tf32, bool | None):
        _refuse(f"machine_info.{KEY}.precision.tf32", "true, false or null", tf32)
    devices = facts.devices or (schema.DeviceFacts("cpu", "cpu", label),)
    return structs.replace(facts, label=facts.label or label, devices=devices)


def result_of(place: str, mark: Any, kinds: Mapping[str, str], samples: bool = False) -> Result:
    """The result in an entry of ``benchmarks``, as JSON gives it. ``kinds`` are those of the devices. Raises
    RunFileError if no file may hold it."""
    benchmark = convert(mark, Benchmark, place)
    measured = (benchmark.extra_info and benchmark.extra_info.gpubench) or _plain(place, benchmark)
    timer = benchmark.options and benchmark.options.timer
    for name in (measured.device, *measured.devices):
        if timer not in schema.TIMERS and kinds.get(name, name.partition(":")[0]) not in ("", "cpu"):
            _refuse(f"{place}.options.timer", f"a timer that waits for {name} ({', '.join(schema.TIMERS)})", timer)
    times = _times(place, benchmark, measured, samples)
    if measured.p95_s is None and benchmark.stats.iterations == 1 and benchmark.stats.data:  # a file of samples alone
        processes = [{"iterations": process.iterations} for process in measured.processes]
        measured = structs.replace(measured, **percentiles(filter(None, benchmark.stats.data), processes))
    known: dict[str, Any] = structs.asdict(measured)
    return Result(**known, times=times, flags=_flags(measured.processes), fullname=benchmark.fullname or "")


def percentiles(data: Iterable[float], processes: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the percentiles of single calls among the samples of all processes; None where a sample spans several
    calls."""
    single = all((process.get("iterations") or 1) == 1 for process in processes)
    samples = sorted(data) if single else []
    return {name: intervals.nearest_rank(samples, share) for name, share in (("p95_s", 0.95), ("p99_s", 0.99))}


def _plain(place: str, benchmark: Benchmark) -> Measurement:
    """The measurement of a test that doesn't use our fixture."""
    given: Any = convert({"fullname": benchmark.fullname, "params": benchmark.params}, _PLAIN, place)
    return Measurement(**_UNNAMED, params=given.params or {})


def _times(place: str, benchmark: Benchmark, measured: Measurement, with_samples: bool) -> Times:
    stats, processes = benchmark.stats, measured.processes
    if stats.median < stats.min * (1 - 1e-9):
        _refuse(f"{place}.stats.median", f"at least the least time, {stats.min:g} s,", stats.median)
    data = stats.data or ()
    kept = [process.kept for process in processes] or [len(data)]
    if data and sum(kept) != len(data):  # or a sample would count for the wrong process
        _refuse(f"{place}.stats.data", f"{sum(kept)} samples, as many as its processes kept,", len(data))
    shares: tuple[Sequence[float], ...] = ()
    if with_samples:
        samples, ends = array("d", data), accumulate(kept)
        shares = tuple(samples[end - count : end] for end, count in zip(ends, kept, strict=True))
    medians = (len(processes) == 1 and processes[0].placements) or [process.median_s for process in processes]
    median = intervals.median(medians) if len(medians) > 1 else stats.median
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
    """Flags of all processes, each name once; a flag that this version doesn't know is some noise."""
    flags: dict[str, Raised] = {}
    for process in processes:
        for flag in process.flags or ():
            name, seen = (flag.name, flag.seen) if flag.name in ADVICE else (NOISY_FLAG, f"{flag.name}: {flag.seen}")
            first = flags.get(name) or Raised(name, seen, ())
            flags[name] = structs.replace(first, processes=tuple(dict.fromkeys((*first.processes, process.index))))
    return tuple(flags.values())


# Parsing --------------------------------------------------------------------------------------------------------------


def decoded(content: bytes) -> Any:
    """The value of some JSON. Raises ValueError, RecursionError or MemoryError."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:  # NaN, half a character, a byte order mark; and json reports where a fault is
        return json.loads(content.decode("utf-8-sig"), parse_constant=lambda name: str(float(name)))


def convert(value: Any, kind: type[_T], place: str = "") -> _T:
    """The value as that type. Raises RunFileError, which names the place and the type that msgspec expected there."""
    try:
        return msgspec.convert(value, kind)
    except RecursionError:
        raise RunFileError("nested too deep to be a results file") from None
    except (msgspec.ValidationError, ValueError) as error:  # a UnicodeError too: half a character
        words, _, inner = str(error).partition(" - at `")
    words = words.replace("Object missing required field", "Expected a value for")
    words = re.sub("`(.+?)`", lambda kinds: " or ".join(_WORDS.get(k, k) for k in kinds[1].split(" | ")), words)
    inner = f"{place}{inner.rpartition('$')[2].rstrip('`')}".lstrip(".")
    raise RunFileError(f"{inner or 'file'}: {words[:1].lower()}{words[1:200]}")


def excess(size: int, values: int) -> str:
    """The expectation instead of ``size`` bytes with ``values`` commas, if they would take too much memory."""
    most = 800_000 + size // 20  # an object takes 230 bytes of memory; a measured time has 20 characters
    few = size <= LARGEST and values <= most
    return "" if few else f"at most {LARGEST // 1024**2} MiB, and {most} values up to here"


def cleaned(value: Any) -> Any:
    """The value with its texts in one printable line each, changed in place."""
    if isinstance(value, str):
        return clean(value[:LONGEST_TEXT])
    if isinstance(value, dict) and not all(len(key) <= LONGEST_TEXT and key.isprintable() for key in value):
        value = {clean(key[:LONGEST_TEXT]): entry for key, entry in value.items()}
    if isinstance(value, dict) or (isinstance(value, list) and set(map(type, value)) != {float}):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(entry, str | dict | list):
                value[key] = cleaned(entry)
    return value


def _refuse(place: str, expected: str, *values: Any) -> NoReturn:
    shown = f", found {reprlib.repr(*values)[:60]}" if values else ""
    raise RunFileError(f"{place}: expected {expected}{shown}")


@contextmanager
def beginning(place: object) -> Iterator[None]:
    """Let errors begin with the name of the file."""
    try:
        yield
    except RecursionError:
        raise RunFileError(f"{place}: nested too deep to be a results file") from None
    except RunFileError as error:
        raise type(error)(f"{place}: {error}") from None
