"""Read runs from results files, journals and folders of them, and the events of a journal that grows. All
times are positive and finite afterwards, so later code doesn't check them.

msgspec checks the types and ranges that :mod:`gpubench.runfile.schema` declares; sizes and what must hold between
values are checked here. A file that can't be trusted raises :class:`~gpubench.errors.RunFileError` with one line,
``path: place: what was expected``. Unknown keys are ignored, and a file of pytest-benchmark alone is read as it is:
times of one process, without declared work, on a device that is unknown unless a parameter names it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import reprlib
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NoReturn, TypeVar

import msgspec
from msgspec import Meta, defstruct, structs

from ..errors import RunFileError, UsageError, clean
from ..statistics.intervals import median as median_of
from . import ledger, schema
from .flags import ADVICE, CONTENDED, FEW, NOISY
from .ledger import LEDGER, LONGEST_LINE, RUN_FILE, Event, percentiles
from .naming import LONGEST_TEXT, named
from .quantities import listed
from .schema import (
    KEY,
    OK,
    Benchmark,
    Case,
    DeviceFacts,
    Machine,
    Measurement,
    Process,
    Raised,
    Result,
    Run,
    RunFile,
    Times,
)
from .utilisation import disproved, raise_peaks
from .writer import Lock

LARGEST = 256 * 1024**2
"""The most bytes of a file: those of a run of 11,900 cases in three processes."""
APART = 1.25
"""Slowest over fastest process: on a quiet machine nine of ten cases stay below."""
_JOURNAL = ".ledger.jsonl"
_KEPT = re.compile(r"run\.[1-9][0-9]*\.json")
_MOST_NAMED = 4
_COMPRESSED = b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
"""How files of gzip, zip, bzip2, xz and zstd begin."""


TOO_DEEP = "nested too deep to be a results file"

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Measurement)
_Number = Annotated[int, Meta(ge=0, le=9999)]
_Ranks = defstruct("ranks", [("cases", list[str]), ("count", Annotated[int, Meta(ge=1, le=9999)])])
_FIELDS: dict[str, list[Any]] = {
    "run": [("processes", Annotated[int, Meta(ge=1, le=9999)]), ("options", list[str]), ("paths", list[str]),
            ("deadline_s", Annotated[float, Meta(gt=0)] | None, None)],
    "session": [("process", _Number), ("cases", list[str]), ("fingerprint", dict), ("machine_info", dict),
                ("gpubench", dict), ("estimated_s", float | None, None), ("ranks", _Ranks | None, None)],
    "start": [("process", _Number), ("fullname", str), ("name", str), ("case", dict)],
    "end": [("process", _Number), ("fullname", str), ("status", str), ("library", str | None, None)],
    "failure": [("reason", str)],
    "rank": [("status", str), ("reason", str)],
    "finish": [("process", _Number)],
    "complete": [],
}  # fmt: skip
_KINDS = {name: defstruct(name, fields, kw_only=True) for name, fields in _FIELDS.items()}
_MEASURED = defstruct("end", [("benchmark", Benchmark)], bases=(_KINDS["end"],), kw_only=True)
EVENTS = frozenset(_KINDS)


class Foreign(RunFileError):
    """A file of something else than pytest-benchmark, as may be among the run files of a folder."""


# Where runs are -------------------------------------------------------------------------------------------------------


def read_runs(paths: Iterable[str | Path], samples: bool = True) -> Iterator[Run]:
    """Read results files, journals, and folders of results files at any depth, in the order given.

    Where a run was interrupted, or has no results file, its journal is read, and how far it got is printed on stderr. A
    copy of a file counts once: otherwise it would pass for another machine or process. Without ``samples`` runs have
    none: those of a thousand don't fit in memory. Raises UsageError for a path without a run, RunFileError for a file
    that can't be trusted, and where no benchmark is in any.
    """
    known: dict[bytes, Path] = {}
    empty = True
    for path in map(Path, paths):
        for run in _runs_at(path, samples):
            empty = empty and not run.results
            if (first := known.setdefault(run.digest, run.path)) is run.path:
                yield run
            else:
                print(clean(f"gpubench: {run.path} is a copy of {first}: counted once"), file=sys.stderr)
    if known and empty:
        _refuse(f"{listed(map(str, known.values()), _MOST_NAMED)}: benchmarks", "a benchmark, found none")


def _runs_at(path: Path, samples: bool) -> Iterator[Run]:
    if path.is_fifo() and path.absolute().parts[1:2] not in (("dev",), ("proc",)):  # a shell's <(…) is there
        raise UsageError(f"{path}: a named pipe may never be written to: copy it to a file first")
    if os.path.isdir(path):
        yield from _runs_in(path, samples)
    elif os.path.exists(path):
        yield read_journal(path, samples) if path.name.endswith(_JOURNAL) else read(path, samples)
    else:
        hint = f": gpubench run -o {path} makes one" * (not path.suffix)
        raise UsageError(f"{path}: no such file or folder{hint}")


def _runs_in(folder: Path, samples: bool) -> Iterator[Run]:
    """The runs in a folder; other JSON files are left out.

    Hidden folders hold environments and repositories, thousands of files, and no runs. Earlier runs that a folder keeps
    must be named: they would count as more machines or processes. Unreadable files are named on stderr and skipped.
    """
    found, other = False, None
    files = {path: path for path in folder.rglob("*.json")}
    files |= {path.with_name(RUN_FILE): path for path in folder.rglob(LEDGER) if _stands(path)}
    for place, path in sorted(files.items()):
        hidden = any(part.startswith(".") for part in place.relative_to(folder).parts[:-1])
        if hidden or (_KEPT.fullmatch(path.name) and (path.parent / LEDGER).exists()):
            continue
        if not path.is_file() or not os.access(path, os.R_OK):  # a FIFO would be waited for
            print(clean(f"gpubench: {path} is passed over: not a readable file"), file=sys.stderr)
            continue
        try:
            run = read(path, samples) if path == place else read_journal(path, samples)
        except Foreign as error:
            if "a key 'benchmarks'" not in str(error):
                print(f"gpubench: passed over: {error}", file=sys.stderr)
            other = other or path
            continue
        found = True
        yield run
    if not found:
        only = f"; only other JSON such as {other.relative_to(folder)}" if other else ""
        expected = "*.json written by gpubench run or pytest --benchmark-json"
        raise UsageError(f"{folder}: no run file in this folder or those in it ({expected}){only}")


def _stands(path: Path) -> bool:
    """Whether a journal stands for a run: that of a ``gpubench run`` which never ended, by its first and last line, or
    whose results file isn't beside it."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return False
    with path.open("rb") as file:
        begun = file.read(len(ledger.BEGINS)) == ledger.BEGINS
        file.seek(max(0, path.stat().st_size - len(ledger.COMPLETE)))
        return begun and (file.read() != ledger.COMPLETE or not path.with_name(RUN_FILE).exists())


# Journals -------------------------------------------------------------------------------------------------------------


def read_journal(path: Path, samples: bool = True) -> Run:
    """The run of a journal, under the name of the results file that it would become."""
    events = read_ledger(path)
    if not any(event["event"] == "session" for event in events):
        kept = [each.name for each in sorted(path.parent.glob("run.*.json")) if _KEPT.fullmatch(each.name)]
        beside = f"; results of earlier runs beside it: {listed(kept, _MOST_NAMED)}" if kept else ""
        raise Foreign(f"{path}: its run was ended before any benchmark began{beside}")
    with _beginning(path):
        root = cleaned(ledger.assemble(events))
    processes = next((event["processes"] for event in events if event["event"] == "run"), 1)
    if progress := ledger.reached(events, processes):
        state, resume = "interrupted", f"; gpubench run --resume {path.parent}" if path.name == LEDGER else ""
        try:
            Lock(path.parent).release()
        except UsageError:
            state, resume = "under way", ""
        print(clean(f"gpubench: {path}: {state}{progress}{resume}"), file=sys.stderr)
    run = check_run(path, root, samples)
    name = path.with_name(path.name.removesuffix(_JOURNAL) + ".json")
    return structs.replace(run, path=name, digest=hashlib.sha256(path.read_bytes()).digest())


def read_ledger(path: str | os.PathLike[str]) -> list[Event]:
    """All usable events of a ledger; lines that can't be used are named on stderr and passed over, so that ``--resume``
    measures again what they held. Raises RunFileError, which names the file, the line and what was expected."""
    path = Path(path)
    events: list[Event] = []
    unusable, size, values = [], 0, 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                size, values = size + len(line), values + line.count(b",")
                if too_large := _excess(size, values):
                    raise RunFileError(f"{path}: line {number}: expected {too_large}")
                with _beginning(f"{path}: line {number}"):
                    try:
                        event = event_of(line)
                    except RunFileError as error:
                        if line.startswith(ledger.BEGINS):  # it says what is executed
                            raise
                        unusable.append(f"line {number} is passed over: {error}")
                        continue
                    if event and event.get("schema_version", schema.SCHEMA_VERSION) not in schema.VERSIONS:
                        _refuse("schema_version", " or ".join(map(str, schema.VERSIONS)))
                events += [event] if event else []
    except OSError as error:
        raise RunFileError(f"{path}: file: expected a readable ledger ({error.strerror or error})") from None
    if not any(event["event"] == "session" for event in events) and (unusable or not events):
        found = unusable[0] if unusable else "file: expected a ledger, found neither a run nor a session in it"
        raise RunFileError(f"{path}: {found}")
    if unusable:
        print(clean(f"gpubench: {path}: {listed(unusable, _MOST_NAMED, '; ')}"), file=sys.stderr)
    return events


class Follower:
    """Reads a journal that another process is still writing, from its present end. It stays open, since a benchmark may
    remove it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._file = Path(path), None
        self.unreadable = ""
        """Complaint about the first line that can't be read."""
        if self._path.exists():
            self._file = self._path.open("rb")
            self._file.seek(0, os.SEEK_END)

    def events(self) -> Iterator[Event]:
        """The events added since the last call; a line not yet complete is left for the next."""
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        for line in _lines_of(self._file) if self._file else ():
            try:
                if line.strip() and (event := event_of(line)):  # a line that is empty follows one that was cut off
                    yield event
            except RunFileError as error:
                self.unreadable = self.unreadable or str(error)

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def recorded(path: str | os.PathLike[str]) -> list[Event]:
    """The events that a journal holds now; none where it isn't there."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        return [event for line in _lines_of(file) if (event := _usable_event(line))]
    return []


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the complete lines from here; one that is still being written is left for the next call."""
    for line in iter(lambda: file.readline(LONGEST_LINE), b""):
        if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
            file.seek(-len(line), os.SEEK_CUR)
            return
        yield line


def _usable_event(line: bytes) -> Event | None:
    with suppress(RunFileError):
        return event_of(line)
    return None


def event_of(line: bytes) -> Event | None:
    """The event of a line, or ``None`` for one that is cut off, or of another version. Raises RunFileError, which names
    the test if there is one, for a line that can't be used."""
    if not line.endswith(b"\n"):
        return None
    try:
        event = decoded(line)
    except (ValueError, RecursionError, MemoryError):
        raise RunFileError("expected an event, found no whole JSON") from None
    if not isinstance(event, dict) or not isinstance(kind := event.get("event"), str) or kind not in EVENTS:
        return None
    try:
        convert(event, _MEASURED if kind == "end" and event.get("status") == OK else _KINDS[kind], kind)
    except RunFileError as error:
        name = event.get("fullname")
        raise RunFileError(f"{name[:200]}: {error}" if isinstance(name, str) else str(error)) from None
    return event


# One file -------------------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], samples: bool = True) -> Run:
    """Read a run file, without ``samples`` if so. Raises RunFileError for a file that is missing, truncated, foreign or
    inconsistent."""
    path = Path(path)
    with _beginning(path):
        content = _content_of(path)
        root = _parsed(content)
    return structs.replace(check_run(path, root, samples), digest=hashlib.sha256(content).digest())


def check_run(path: Path, root: Any, samples: bool = True) -> Run:
    """The run in the content of a results file; errors, those that :func:`read` describes, begin with ``path``.

    An entry that can't be used is a row without a number."""
    with _beginning(path):
        marks, plain = _entries(root)
        ours = root.get(KEY)
        rows = ours.get("unmeasured") if isinstance(ours, dict) else None
        few = ours | {"unmeasured": rows[:0]} if isinstance(rows, list) and len(rows) <= schema.MOST_CASES else ours
        file = convert(root | {"benchmarks": [], KEY: few}, RunFile)
        machine = _machine(file.machine_info or schema.MachineInfo())
        kinds = {device.name: device.kind for device in reversed(machine.devices)}
        results, errors = [], []
        for number, mark in enumerate(marks):
            try:
                results.append(_result(f"benchmarks[{number}]", mark, kinds, samples))
            except RunFileError as error:
                errors.append(error)
                results.append(_unusable(mark, str(error)))
        if errors and len(errors) == len(marks):
            raise errors[0]
        results = named(results)
        if plain or file.gpubench is None:
            return Run(path, machine, tuple(results), file.datetime, plain=True)
        results += [_row(f"{KEY}.unmeasured[{number}]", row) for number, row in enumerate(rows or ())]
        return _run(path, machine, results, file.gpubench)


def _entries(root: Any) -> tuple[list[Any], bool]:
    """The entries of ``benchmarks``, and whether the file is one of pytest-benchmark alone."""
    if not isinstance(root, dict) or "benchmarks" not in root:
        raise Foreign("file: expected a pytest-benchmark file, an object with a key 'benchmarks'")
    marks = root["benchmarks"]
    if KEY not in root and marks != [] and not (isinstance(marks, list) and any(map(_is_entry, marks))):
        raise Foreign("benchmarks: another tool's results: no entry has pytest-benchmark's stats")
    if not isinstance(marks, list):
        _refuse("benchmarks", "a list", marks)
    if len(marks) > schema.MOST_CASES:
        _refuse("benchmarks", f"at most {schema.MOST_CASES} cases", len(marks))
    ours = root.get(KEY)
    extras = (mark.get("extra_info") for mark in marks if isinstance(mark, dict))
    plain = ours is None and not any(isinstance(extra, dict) and KEY in extra for extra in extras)
    version = ours.get("schema_version") if isinstance(ours, dict) else None
    if not plain and (version not in schema.VERSIONS or isinstance(version, bool)):
        _refuse(f"{KEY}.schema_version", " or ".join(map(str, schema.VERSIONS)), version)
    return marks, plain


def _is_entry(mark: Any) -> bool:
    """Whether it has times as pytest-benchmark writes them; pytest-codspeed's end in ``_ns``."""
    stats = mark.get("stats", ()) if isinstance(mark, dict) else ()
    return isinstance(stats, dict) and not {"median", "mean", "min"}.isdisjoint(stats)


def _unusable(mark: Any, reason: str) -> Result:
    """The row of a benchmark whose entry can't be used, without a number."""
    given = mark if isinstance(mark, dict) else {}
    name = given.get("fullname") or given.get("name") or re.split("[.:]", reason)[0]
    params, stats = given.get("params"), given.get("stats")
    if isinstance(stats, dict) and 0 in (stats.get("median"), stats.get("mean")):
        reason = "0 s by its clock"
    row = _unnamed(str(name), params if isinstance(params, dict) else {})
    return structs.replace(row, status="error", reason=f"no number: {reason}")


def _unnamed(fullname: str, params: Mapping[str, Any]) -> Result:
    """A row of a test that doesn't use our fixture; the tests of a run are named together."""
    case = Case("", "", params=params, implementation="", variant="", cache="")
    return Result(**structs.asdict(case), fullname=fullname)


def _row(place: str, entry: Any) -> Result:
    """The row of a benchmark that gave no number; one of an entry that can't be used has that as its reason."""
    try:
        row = convert(entry, schema.UnmeasuredCase, place)
    except RunFileError as error:
        return named([_unusable(entry, str(error))])[0]
    case = {name: getattr(row, name) for name in Case.__struct_fields__}
    return Result(**case, status=row.status, reason=row.reason or "", fullname=row.fullname or "")


def _run(path: Path, machine: Machine, results: list[Result], facts: schema.RunFacts) -> Run:
    processes = facts.processes or ()
    known = {name: getattr(facts, name) for name in ("started", "preset", "stage", "version", "seed")}
    known |= {"processes": len(processes) or 1, "flags": _flags(processes)}
    peaks = raise_peaks(results, facts.ceilings or {})
    why = known["disproved"] = disproved(results, peaks)
    known["ceilings"] = {name: ceilings for name, ceilings in peaks.items() if name not in why}
    slow = tuple(each.index for each in processes if each.canary and each.canary.all_s > each.canary.one_s)
    flags = chain(known["flags"], *(result.flags for result in results))
    known["contended"] = any(flag.name == CONTENDED for flag in flags)
    return Run(path, machine, tuple(results), slow_threads=slow, **known)


def _machine(info: schema.MachineInfo) -> Machine:
    """The machine, with the CPU's model as the default of its name; the host name is private."""
    label = (info.cpu and (info.cpu.brand_raw or info.cpu.brand)) or info.machine or "unknown machine"
    facts = info.gpubench or Machine()
    tf32 = (facts.precision or {}).get("tf32")
    if tf32 is not None and not isinstance(tf32, bool):
        _refuse(f"machine_info.{KEY}.precision.tf32", "true, false or null", tf32)
    devices = facts.devices or (DeviceFacts("cpu", "cpu", label),)
    return structs.replace(facts, label=facts.label or label, devices=devices)


def check_case(name: str, mark: Any) -> None:
    """Raise RunFileError, which begins with ``name``, for an entry of ``benchmarks``, as JSON gives it, that no file
    may hold."""
    with _beginning(name):
        _result("", mark, {}, samples=False)


def _result(place: str, mark: Any, kinds: Mapping[str, str], samples: bool) -> Result:
    benchmark = convert(mark, Benchmark, place)
    measured = benchmark.extra_info.gpubench if benchmark.extra_info else None
    if measured is None:
        return _plain(place, benchmark, samples)
    timer = benchmark.options and benchmark.options.timer
    used = (measured.device, *measured.devices)
    accelerators = [name for name in used if kinds.get(name, name.partition(":")[0]) not in ("", "cpu")]
    if accelerators and timer not in schema.TIMERS:
        expected = f"a timer that waits for {accelerators[0]} ({', '.join(schema.TIMERS)})"
        _refuse(f"{place}.options.timer", expected, timer)
    times = _times(place, benchmark, measured, samples)
    measured = _with_percentiles(measured, benchmark)
    flags = _flags(measured.processes)
    if (seen := apart(times)) and not any(flag.name == "noisy" for flag in flags):
        flags += (Raised("noisy", seen, tuple(process.index for process in times.processes)),)
    values: tuple[Any, ...] = (*structs.astuple(measured), OK, None, times, flags, benchmark.fullname or "")
    return Result(*values)


def _plain(place: str, benchmark: Benchmark, samples: bool) -> Result:
    """The result of a test that doesn't use our fixture."""
    if benchmark.fullname is None:
        _refuse(f"{place}.fullname", "a text", None)
    given = {} if benchmark.params is None else benchmark.params
    if not isinstance(given, dict):
        _refuse(f"{place}.params", "an object", given)
    if len(given) > schema.MOST_PARAMS:
        _refuse(f"{place}.params", f"at most {schema.MOST_PARAMS} parameters", len(given))
    times = _times(place, benchmark, Measurement("", ""), samples)
    return structs.replace(_with_percentiles(_unnamed(benchmark.fullname, given), benchmark), times=times)


def _with_percentiles(measured: _M, benchmark: Benchmark) -> _M:
    """Return what was measured with the percentiles of the samples, for files that only hold the samples."""
    if measured.p95_s is not None or benchmark.stats.iterations > 1 or not benchmark.stats.data:
        return measured
    processes = [{"iterations": process.iterations} for process in measured.processes]
    return structs.replace(measured, **percentiles(filter(None, benchmark.stats.data), processes))


def _times(place: str, benchmark: Benchmark, measured: Measurement, with_samples: bool) -> Times:
    stats, processes = benchmark.stats, measured.processes
    if stats.median < stats.min * (1 - 1e-9):
        _refuse(f"{place}.stats.median", f"at least the least time, {stats.min:g} s,", stats.median)
    data = stats.data or ()
    kept = [process.kept for process in processes] or [len(data)]
    if data and sum(kept) != len(data):  # or a sample would count for the wrong process
        expected = f"{sum(kept)} samples, as many as its processes kept,"
        _refuse(f"{place}.stats.data", expected, len(data))
    shares: tuple[Sequence[float], ...] = ()
    if with_samples:
        samples, ends = array("d", data), accumulate(kept)
        shares = tuple(samples[end - count : end] for end, count in zip(ends, kept, strict=True))
    medians = [process.median_s for process in processes]
    placements = processes[0].placements if len(processes) == 1 else ()
    median = median_of(placements or medians) if len(placements or medians) > 1 else stats.median
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
    """Flags of all processes, each name once; what this version doesn't know is some noise."""
    found: dict[str, tuple[str, list[int]]] = {}
    for process in processes:
        for flag in process.flags or ():
            name, seen = (flag.name, flag.seen) if flag.name in ADVICE else ("noisy", f"{flag.name}: {flag.seen}")
            indices = found.setdefault(name, (seen, []))[1]
            indices += [process.index] * (process.index not in indices)
    return tuple(Raised(name, seen, tuple(indices)) for name, (seen, indices) in found.items())


def apart(times: Times) -> str | None:
    """Why a case is ``noisy`` in a way that no process alone could see; None if it isn't."""
    medians = sorted(process.median_s for process in times.processes)
    rounds = [process.rounds for process in times.processes]
    spread = times.iqr_s / times.median_s
    if medians[-1] > APART * medians[0]:
        return f"the slowest process took {medians[-1] / medians[0]:.3g} times the fastest"
    if len(rounds) > 1 and max(rounds) < FEW <= sum(rounds) and spread > NOISY:
        return f"half of all {sum(rounds)} rounds are spread over {spread:.0%} of the median"
    return None


# Parsing --------------------------------------------------------------------------------------------------------------


def _content_of(path: Path) -> bytes:
    """What a file holds. Raises RunFileError for what can't be read, or would take too much memory."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)  # a device or a pipe has no known size
    except (OSError, ValueError) as error:
        _refuse("file", f"a readable run file ({getattr(error, 'strerror', None) or error})")
    if not content or content.isspace():
        raise Foreign("file: expected a run file, found an empty file")  # pytest leaves one where it was interrupted
    if content.startswith(_COMPRESSED):
        _refuse("file", "JSON (it is compressed: unpack it first)")
    if too_large := _excess(len(content), content.count(b",")):
        _refuse("file", too_large)
    return content


def _parsed(content: bytes) -> Any:
    """The value of some JSON, its texts in one printable line each. Raises RunFileError."""
    try:
        return cleaned(decoded(content))
    except (ValueError, MemoryError) as error:
        kind = RunFileError if b"benchmarks" in content else Foreign  # a damaged results file isn't passed over
        raise kind(f"file: expected JSON ({error})") from None


def decoded(content: bytes) -> Any:
    """The value of some JSON. Raises ValueError, RecursionError or MemoryError."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:  # NaN, half a character, a byte order mark; and json reports where a fault is
        return json.loads(content.decode("utf-8-sig"), parse_constant=lambda name: str(float(name)))


_WORDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
          "object": "an object"}  # fmt: skip


def convert(value: Any, kind: type[_T], place: str = "") -> _T:
    """The value as that type. Raises RunFileError, which names the place and what msgspec expected there."""
    try:
        return msgspec.convert(value, kind)
    except RecursionError:
        raise RunFileError(TOO_DEEP) from None
    except (msgspec.ValidationError, ValueError) as error:  # a UnicodeError too: half a character
        words, _, inner = str(error).partition(" - at `")
    words = words.replace("Object missing required field", "Expected a value for")
    words = re.sub("`(.+?)`", lambda kinds: " or ".join(_WORDS.get(k, k) for k in kinds[1].split(" | ")), words)
    inner = f"{place}{inner.rpartition('$')[2].rstrip('`')}".lstrip(".")
    raise RunFileError(f"{inner or 'file'}: {words[:1].lower()}{words[1:200]}")


def _excess(size: int, values: int) -> str:
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


# Complaints -----------------------------------------------------------------------------------------------------------


def _refuse(place: str, expected: str, *found: Any) -> NoReturn:
    shown = f", found {reprlib.repr(*found)[:60]}" if found else ""
    raise RunFileError(f"{place}: expected {expected}{shown}")


@contextmanager
def _beginning(place: object) -> Iterator[None]:
    """Let errors begin with the name of the file."""
    try:
        yield
    except (RunFileError, RecursionError) as error:
        known = isinstance(error, RunFileError)
        raise (type(error) if known else RunFileError)(f"{place}: {error if known else TOO_DEEP}") from None
