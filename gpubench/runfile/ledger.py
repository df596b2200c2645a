"""The ledger: an append-only file of JSON lines from which a run file can be made at any moment.

Each line is on disk before the next thing happens, so it survives the process that wrote it. A line is one event, an
object with the key ``event``:

``run``       by the supervisor, first: ``schema_version``, ``processes``, ``options`` and ``paths`` for pytest,
              ``deadline_s``, and the journal's own ``inode`` and ``device``, which a copy doesn't have
``session``   a measuring process begins: ``process``, ``cases`` (their full names), ``fingerprint``, and what a run
              file says of machine, options and time; ``ranks``: the ``cases`` of several ranks, which another launch
              measures, and the ``count`` of these ranks
``start``     a case begins: ``process``, ``fullname``, ``name``, ``case``
``end``       it has ended: ``process``, ``fullname``, ``status``, and ``benchmark`` (as pytest-benchmark writes it) or
              ``reason``
``failure``   a measuring process can't begin or go on: ``reason``
``rank``      a rank has died or hangs: ``status`` and ``reason`` of the case that was being measured
``finish``    a measuring process has ended by itself: ``process``, pytest's exit ``code``, ``after``
``complete``  by the supervisor, last: the run file was written

A crash can leave a last line unfinished. Such a line is ignored, as is any that can't be used; the next event starts
on a line of its own.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import RunFileError, Unwritten, UsageError
from ..statistics import intervals
from .schema import KEY, OK
from .writer import fit, without_homes

RUN_FILE, LEDGER = "run.json", "run.ledger.jsonl"  # files of a run in its folder
LONGEST_LINE = 64 * 1024**2  # a session of 20,000 cases writes 20 MiB
_UNMERGED = "no number: its entries in the journal don't belong together"
BEFORE, WITHIN = "the run was ended before this case", "the run was ended while this case was measured"
SKIPPED_FILES = "skipped as a whole: "
"""How the line begins, in a session's notices and in the log, that names files with their reasons."""
BEGINS, COMPLETE = b'{"event": "run"', b'{"event": "complete"}\n'

Event = dict[str, Any]


class Ledger:
    """Appends events; each is on disk before :meth:`add_event` returns."""

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


# From a ledger to a run file ------------------------------------------------------------------------------------------


def assemble(events: Sequence[Event]) -> dict[str, Any]:
    """The run file made from these events. Raises RunFileError where there is no session among them.

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
        unmeasured.append(_row(first, name, end, started.get(name, {}).get("case")))
    output: dict[str, Any] = {key: first.get(key) for key in ("machine_info", "commit_info", "datetime", "version")}
    late = [
        event["machine"] for event in events if event["event"] == "finish" and isinstance(event.get("machine"), dict)
    ]
    if late:  # a test's body imported torch
        output["machine_info"] = {**first["machine_info"], KEY: late[0]}
    cases = {"benchmarks": benchmarks, "unmeasured": unmeasured}
    if not (output["machine_info"] or {}).get("node"):  # otherwise the run was asked to name its machine
        cases = without_homes(cases)
    output["benchmarks"] = cases["benchmarks"]
    output[KEY] = first["gpubench"] | _run(events) | {"unmeasured": cases["unmeasured"]}
    return output


def _row(session: Event, fullname: str, end: Event, begun: Any) -> dict[str, Any]:
    """The entry of a case without a time. For a case that never began, the session has its identity from collecting."""
    case = end.get("case") or begun or inner(session, "identities", fullname)
    identity = case if isinstance(case, dict) else {"workload": fullname, "device": "cpu", "dtype": ""}
    outcome = {"status": end["status"], "reason": str(end.get("reason") or "")}
    return identity | {"name": fullname.rpartition("::")[2], "fullname": fullname} | outcome


def _run(events: Iterable[Event]) -> dict[str, Any]:
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


def percentiles(data: Iterable[float], processes: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the percentiles of single calls among the samples of all processes; None where a sample spans several
    calls."""
    single = all((process.get("iterations") or 1) == 1 for process in processes)
    samples = sorted(data) if single else []
    return {name: intervals.nearest_rank(samples, share) for name, share in (("p95_s", 0.95), ("p99_s", 0.99))}


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
