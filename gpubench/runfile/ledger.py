"""The ledger: an append-only file of JSON lines from which a results file can be made at any moment.

Each line is on disk before the next thing happens, so it survives the process that wrote it. A line is one event, an
object with the key ``event``:

``run``       by the supervisor, first: ``schema_version``, ``processes``, ``options`` and ``paths`` for pytest,
              ``deadline_s``, and the journal's own ``inode`` and ``device``, which a copy doesn't have
``session``   a measuring process begins: ``process``, ``cases`` (their full names), ``fingerprint``, and what a results
              file says of machine, options and time; ``ranks``: the ``cases`` of several ranks, which another launch
              measures, and the ``count`` of these ranks
``start``     a case begins: ``process``, ``fullname``, ``name``, ``case``
``end``       it has ended: ``process``, ``fullname``, ``status``, and ``benchmark`` (as pytest-benchmark writes it) or
              ``reason``
``failure``   a measuring process can't begin or go on: ``reason``
``rank``      a rank has died or hangs: ``status`` and ``reason`` of the case that was being measured
``finish``    a measuring process has ended by itself: ``process``, pytest's exit ``code``, ``after``
``complete``  by the supervisor, last: the results file was written

A crash can leave a last line unfinished. Such a line is ignored, as is any that can't be used; the next event starts
on a line of its own.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, defstruct

from ..errors import RunFileError, Unwritten, UsageError, clean
from .quantities import listed
from .reader import MOST_NAMED, beginning, convert, decoded, excess, percentiles
from .schema import KEY, OK, SCHEMA_VERSION, Benchmark
from .writer import fit, without_homes

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"  # files of a run in its folder
LONGEST_LINE = 64 * 1024**2  # a session of 20,000 cases writes 20 MiB
_UNMERGED = "no number: its entries in the journal don't belong together"
BEFORE, WITHIN = "the run was ended before this case", "the run was ended while this case was measured"
BEGINS, COMPLETE = b'{"event": "run"', b'{"event": "complete"}\n'

Event = dict[str, Any]


class Ledger:
    """Appends events; each is on disk before :meth:`add_event` returns. Raises UsageError where they can't be."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self._writer = Path(path), os.getpid()
        try:
            self._file = self.path.open("a+b", buffering=0)
            if self._file.seek(0, os.SEEK_END):
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":  # a writer before us was killed in the middle of a line
                    self._write(b"\n")
        except OSError as error:
            raise Unwritten(f"{self.path}: can't be written: {error.strerror or error}") from None

    def add_event(self, event: str, **facts: Any) -> None:
        """Raises UsageError if the disk is full, since further results couldn't be saved."""
        if os.getpid() != self._writer:
            os._exit(1)  # a child forked by a benchmark would continue as a second pytest and write every result twice
        line = json.dumps(fit({"event": event, **facts}), allow_nan=False).encode() + b"\n"
        if len(line) > LONGEST_LINE:
            raise UsageError(f"{self.path}: a line of {len(line)} bytes can't be written: at most {LONGEST_LINE}")
        try:
            self._write(line)
        except OSError as error:
            raise Unwritten(f"{self.path}: can't be written: {error.strerror or error}") from None

    def _write(self, content: bytes) -> None:
        while content:
            content = content[self._file.write(content) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; its events are on disk already."""
        with suppress(OSError):
            self._file.close()


def inner(value: Any, *keys: str) -> Any:
    """The value at these nested keys, or None: values that the schema doesn't describe may be of any type."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


# Reading --------------------------------------------------------------------------------------------------------------

_Number, _Count = Annotated[int, Meta(ge=0, le=9999)], Annotated[int, Meta(ge=1, le=9999)]
_Ranks = defstruct("ranks", [("cases", list[str]), ("count", _Count)])
_FIELDS: dict[str, list[Any]] = {
    "run": [("processes", _Count), ("options", list[str]), ("paths", list[str]),
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
KINDS = {name: defstruct(name, fields, kw_only=True) for name, fields in _FIELDS.items()}  # of events
_MEASURED = defstruct("end", [("benchmark", Benchmark)], bases=(KINDS["end"],), kw_only=True)


def read_ledger(path: str | os.PathLike[str]) -> list[Event]:
    """All usable events of a ledger; lines that can't be used are named on stderr and passed over, so that ``--resume``
    measures their cases again. Raises RunFileError, which names the file, the line and the expectation."""
    events: list[Event] = []
    unusable, size, values = [], 0, 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                size, values = size + len(line), values + line.count(b",")
                with beginning(f"{path}: line {number}"):
                    if too_large := excess(size, values):
                        raise RunFileError(f"expected {too_large}")
                    try:
                        event = _event_of(line)
                    except RunFileError as error:
                        if line.startswith(BEGINS):  # it says what is executed
                            raise
                        unusable.append(f"line {number} is passed over: {error}")
                    else:
                        events += [event] if event else []
    except OSError as error:
        raise RunFileError(f"{path}: file: expected a readable ledger ({error.strerror or error})") from None
    if not any(event["event"] == "session" for event in events) and (unusable or not events):
        why = unusable[0] if unusable else "file: expected a ledger, found neither a run nor a session in it"
        raise RunFileError(f"{path}: {why}")
    if unusable:
        print(clean(f"gpubench: {path}: {listed(unusable, MOST_NAMED, '; ')}"), file=sys.stderr)
    return events


class Follower:
    """Reads a journal that another process is still writing, from its present end or as a ``whole``. It stays open,
    since a benchmark may remove it. ``unreadable`` is the complaint about the first line that can't be read."""

    def __init__(self, path: str | os.PathLike[str], whole: bool = False) -> None:
        self._path, self._file, self.unreadable = Path(path), None, ""
        if self._path.exists():
            self._file = self._path.open("rb")
            self._file.seek(0, os.SEEK_SET if whole else os.SEEK_END)

    def events(self) -> Iterator[Event]:
        """The events added since the last call; a line not yet complete is left for the next."""
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        if self._file and os.fstat(self._file.fileno()).st_size < self._file.tell():
            self.unreadable = self.unreadable or "it was cut off"
        for line in iter(lambda: self._file.readline(LONGEST_LINE) if self._file else b"", b""):
            if self._file and not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                self._file.seek(-len(line), os.SEEK_CUR)
                return
            try:
                if line.strip() and (event := _event_of(line)):  # a line that is empty follows one that was cut off
                    yield event
            except RunFileError as error:
                self.unreadable = self.unreadable or str(error)

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def recorded(path: str | os.PathLike[str]) -> list[Event]:
    """The events that a journal holds now; none where it isn't there."""
    with closing(Follower(path, whole=True)) as follower:
        return list(follower.events())


def _event_of(line: bytes) -> Event | None:
    """The event of a line, or ``None`` for one that is cut off, or unknown. Raises RunFileError, which names the test
    if there is one, for a line that can't be used."""
    if not line.endswith(b"\n"):
        return None
    try:
        event = decoded(line)
    except (ValueError, RecursionError, MemoryError):
        raise RunFileError("expected an event, found no whole JSON") from None
    if not isinstance(event, dict) or not isinstance(kind := event.get("event"), str) or kind not in KINDS:
        return None
    if kind == "run" and (version := event.get("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
        remedy = "the gpubench that began the run can finish it"
        raise RunFileError(f"schema_version: expected {SCHEMA_VERSION}, found {version!r:.60}: {remedy}")
    try:
        convert(event, _MEASURED if kind == "end" and event.get("status") == OK else KINDS[kind], kind)
    except RunFileError as error:
        name = event.get("fullname")
        raise RunFileError(f"{name[:200]}: {error}" if isinstance(name, str) else str(error)) from None
    return event


# How far a run got ----------------------------------------------------------------------------------------------------


def missing(events: Iterable[Event], process: int) -> list[str] | None:
    """Full names of the cases that this process has still to end; ``None`` before they are known.

    The first process runs all cases; the others skip its failures.
    """
    cases: list[str] | None = None
    ends: dict[int, dict[str, str]] = {0: {}, process: {}}
    for event in events:
        if event["event"] == "session" and cases is None:
            cases = event["cases"]
        elif event["event"] == "end" and event["process"] in ends:
            ends[event["process"]][event["fullname"]] = event["status"]
    if cases is None:
        return None
    return [name for name in cases if name not in ends[process] and (process == 0 or ends[0].get(name) == OK)]


def cut_off(events: Sequence[Event]) -> Event | None:
    """Return the end of the latest case, whose ranks were ended within it; ``None`` if it has ended."""
    start = next((event for event in reversed(events) if event["event"] in ("start", "end")), None)
    if start is None or start["event"] == "end":
        return None
    unknown = {"status": "crashed", "reason": "a rank has died: torchrun's output names it"}
    why = next((event for event in events[events.index(start) :] if event["event"] == "rank"), unknown)
    return start | {"event": "end", "status": why["status"], "reason": why["reason"]}


def reached(events: Sequence[Event], processes: int) -> str:
    """How far a run of so many processes got: `` in process 2 of 3: 4 of 10 measured``; empty where it is complete."""
    latest = max(event["process"] for event in events if event["event"] == "session")
    left = missing(events, latest) or ()
    if events[-1]["event"] == "complete" or (latest + 1 >= processes and not left):
        return ""
    ends = {each["fullname"]: each["status"] for each in events if each["event"] == "end" and each["process"] == latest}
    place = f" in process {latest + 1} of {processes}" if processes > 1 else ""
    return f"{place}: {[*ends.values()].count(OK)} of {len(ends) + len(left)} measured"


# From a ledger to a results file --------------------------------------------------------------------------------------


def assemble(events: Sequence[Event]) -> dict[str, Any]:
    """The results file made from these events. Raises RunFileError where there is no session among them.

    Every case that was collected is in it: measured, or unmeasured with the status of the first process that tried.
    """
    sessions = [event for event in events if event["event"] == "session"]
    if not sessions:
        raise RunFileError("ledger: file: expected a session, found none: nothing had begun")
    first = sessions[0]
    ends: dict[str, dict[int, Event]] = {}
    started: dict[str, Event] = {}
    for event in events:
        if event["event"] == "end":
            ends.setdefault(event["fullname"], {})[event["process"]] = event  # the last one is that of a rerun
        elif event["event"] == "start":
            started.setdefault(event["fullname"], event)
    benchmarks, unmeasured = [], []
    for name in dict.fromkeys(name for session in sessions for name in session["cases"]):
        ended = list(ends.get(name, {}).values())
        try:
            if measured := [event for event in ended if event["status"] == OK]:
                benchmarks.append(merge(measured))
                continue
            reason = {"status": "skipped", "reason": WITHIN if name in started else BEFORE}
            end = min(ended, key=lambda event: event["status"] == "skipped", default=reason)  # a failure says more
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            end = {"status": "error", "reason": _UNMERGED}
        case = end.get("case") or started.get(name, {}).get("case") or inner(first, "identities", name)
        identity = case if isinstance(case, dict) else {"workload": name, "device": "cpu", "dtype": ""}
        outcome = {"status": end["status"], "reason": str(end.get("reason") or "")}
        unmeasured.append(identity | {"name": name.rpartition("::")[2], "fullname": name} | outcome)
    output: dict[str, Any] = {key: first.get(key) for key in ("machine_info", "commit_info", "datetime", "version")}
    late = (event.get("machine") for event in events if event["event"] == "finish")
    if machine := next((each for each in late if isinstance(each, dict)), None):  # a test's body imported torch
        output["machine_info"] = {**first["machine_info"], KEY: machine}
    cases = {"benchmarks": benchmarks, "unmeasured": unmeasured}
    if not (output["machine_info"] or {}).get("node"):  # otherwise the run was asked to name its machine
        cases = without_homes(cases)
    output["benchmarks"] = cases["benchmarks"]
    output[KEY] = first["gpubench"] | _surroundings(events) | {"unmeasured": cases["unmeasured"]}
    return output


def _surroundings(events: Iterable[Event]) -> dict[str, Any]:
    """The state of the machine before and after each process, and the latest peaks."""
    processes: dict[int, dict[str, Any]] = {}
    peaks: Any = {}  # the reader of the results file checks what they are
    for event in events:
        if event["event"] == "session":
            before = {key: event.get(key) for key in ("before", "canary", "flags")}
            processes.setdefault(event["process"], {"process": event["process"]} | before)
            peaks = peaks or event[KEY].get("ceilings") or {}
        elif event["event"] == "finish" and event["process"] in processes:
            processes[event["process"]]["after"] = event.get("after")
            again = event.get("ceilings")
            peaks = peaks | again if isinstance(peaks, dict) and isinstance(again, dict) else peaks
    return {"processes": list(processes.values()), "ceilings": peaks}


def merge(ends: Sequence[Event]) -> dict[str, Any]:
    """Merge several processes' results for the same case into one benchmark.

    Values measured only once (check, work) are the first process's. Statistics are of the pooled samples, each
    process weighing as much as it has rounds; least, greatest and total are exact.
    """
    ends = sorted(ends, key=lambda event: int(event["process"]))
    first = ends[0]["benchmark"]
    merged: dict[str, Any] = first | {"extra_info": dict(first["extra_info"]), "stats": dict(first["stats"])}
    data = merged["stats"].get("data") or ()
    if len(ends) > 1:
        stats = [event["benchmark"]["stats"] for event in ends]
        data = [float(sample) for each in stats for sample in each["data"]]
        rounds, total = sum(int(each["rounds"]) for each in stats), sum(float(each["total"]) for each in stats)
        merged["stats"] |= pooled(data) | {
            "min": min(each["min"] for each in stats),
            "max": max(each["max"] for each in stats),
            "rounds": rounds,
            "total": total,
            "mean": total / rounds,
            "ops": rounds / total,
            "iterations": round(statistics.median(each["iterations"] for each in stats)),
            "data": data,
        }
    if ours := merged["extra_info"].get(KEY):
        each_has = [(event["process"], event["benchmark"]["extra_info"][KEY]["processes"]) for event in ends]
        processes = [one | {"process": number} for number, parts in each_has for one in parts]
        latencies = [one["latency_s"] for one in processes if one.get("latency_s") is not None]
        latency = {"latency_s": statistics.median(latencies) if latencies else None} if len(ends) > 1 else {}
        merged["extra_info"][KEY] = ours | latency | {"processes": processes} | percentiles(data, processes)
    return merged


def pooled(data: list[float]) -> dict[str, Any]:
    """pytest-benchmark's statistics of these samples. Mean and deviation are computed here: pytest-benchmark uses exact
    fractions, which take a minute for a large run."""
    from pytest_benchmark.stats import Stats

    stats: Any = Stats()  # type: ignore[no-untyped-call]
    stats.data = data
    mean = stats.mean = math.fsum(data) / len(data)
    squares = math.fsum((sample - mean) ** 2 for sample in data)
    stats.stddev = math.sqrt(squares / max(1, len(data) - 1))
    return stats.as_dict()  # type: ignore[no-any-return]
