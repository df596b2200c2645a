"""From a ledger to a run file: the samples of several processes, each still knowing its own, as one case."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import RunFileError
from .ledger import Event
from .reader import clean
from .schema import KEY, OK

BEFORE, WITHIN = "the run ended before this case", "the run ended while this case was measured"


def assemble(events: Sequence[Event]) -> dict[str, Any]:
    """The run file that these events amount to. Raises RunFileError when a benchmark in them is malformed.

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
            ends.setdefault(event["fullname"], {}).setdefault(event["process"], event)
        elif event["event"] == "start":
            started.setdefault(event["fullname"], event)
    benchmarks, unmeasured = [], []
    for fullname in dict.fromkeys(name for session in sessions for name in session["cases"]):
        ended = list(ends.get(fullname, {}).values())
        measured = [event for event in ended if event["status"] == OK]
        if measured:
            try:
                benchmarks.append(merge(measured))
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                why = clean(repr(error)[:200])
                raise RunFileError(f"ledger: {clean(fullname[:200])}: expected a measured case ({why})") from None
        elif fullname in started or ended:
            end = ended[0] if ended else {"status": "crashed", "reason": WITHIN}
            case = end.get("case") or started.get(fullname, {}).get("case")
            unmeasured.append(_row(first, fullname, end["status"], end.get("reason"), case))
        else:
            unmeasured.append(_row(first, fullname, "skipped", BEFORE))
    output: dict[str, Any] = {key: first.get(key) for key in ("machine_info", "commit_info", "datetime", "version")}
    output["benchmarks"], output[KEY] = benchmarks, first["gpubench"] | _run(events) | {"unmeasured": unmeasured}
    return output


def _row(session: Event, fullname: str, status: str, reason: Any, case: Any = None) -> dict[str, Any]:
    """A case without a number. Of one that never began, the session knows the identity from collecting."""
    identities = session.get("identities")
    known = case or (identities.get(fullname) if isinstance(identities, dict) else None)
    identity: dict[str, Any] = (
        known if isinstance(known, dict) else {"workload": fullname, "device": "cpu", "dtype": ""}
    )
    own = {"name": fullname.rpartition("::")[2], "fullname": fullname, "status": status, "reason": str(reason or "")}
    return identity | own


def _run(events: Iterable[Event]) -> dict[str, Any]:
    """When the run began and ended, and what each process saw before and after."""
    processes: dict[int, dict[str, Any]] = {}
    finished = None
    for event in events:
        if event["event"] == "session":
            seen = {key: event.get(key) for key in ("before", "canary", "flags")}
            processes.setdefault(event["process"], {"process": event["process"]} | seen)
        elif event["event"] == "finish" and event["process"] in processes:
            processes[event["process"]]["after"] = event.get("after")
            finished = event.get("finished") or finished
    return {"processes": list(processes.values()), "finished": finished}


def merge(ends: Sequence[Event]) -> dict[str, Any]:
    """One benchmark of several processes' results for the same case.

    What was done once (check, work) is the first process's. Statistics are those of the pooled samples, each process
    weighing as much as it has rounds; least, greatest and total are exact.
    """
    ends = sorted(ends, key=lambda event: int(event["process"]))
    first = ends[0]["benchmark"]
    merged: dict[str, Any] = first | {"extra_info": dict(first["extra_info"]), "stats": dict(first["stats"])}
    ours = merged["extra_info"].get(KEY)
    if ours:
        ours = merged["extra_info"][KEY] = dict(ours)
    if len(ends) == 1:
        if ours:
            ours["processes"] = [ours["processes"][0] | {"process": ends[0]["process"]}, *ours["processes"][1:]]
        return merged
    stats = [event["benchmark"]["stats"] for event in ends]
    data = [float(sample) for each in stats for sample in each["data"]]
    rounds = sum(int(each["rounds"]) for each in stats)
    total = sum(float(each["total"]) for each in stats)
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
    if ours:
        ours["processes"] = [
            each | {"process": event["process"]}
            for event in ends
            for each in event["benchmark"]["extra_info"][KEY]["processes"]
        ]
        latencies = [each["latency_s"] for each in ours["processes"] if each.get("latency_s") is not None]
        ours["latency_s"] = statistics.median(latencies) if latencies else None
    return merged


def pooled(data: list[float]) -> dict[str, Any]:
    """pytest-benchmark's statistics of these samples."""
    from pytest_benchmark.stats import Stats

    stats: Any = Stats()  # type: ignore[no-untyped-call]
    for sample in data:
        stats.update(sample)
    summary: dict[str, Any] = stats.as_dict()
    return summary
