"""What the measuring process adds to the file that pytest-benchmark writes."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from ..schema import KEY, SAMPLES_KEPT, SCHEMA_VERSION
from . import environment
from .session import Session, Unmeasured


def about(session: Session, version: str) -> dict[str, Any]:
    """The top-level facts of a run that are known when it begins."""
    asked = session.asked
    return {
        "schema_version": SCHEMA_VERSION,
        "version": version,
        "preset": asked.preset,
        "seed": asked.seed,
        "asked": {
            "devices": list(asked.devices),
            "dtypes": list(asked.dtypes),
            "variants": list(asked.variants),
            "cache": asked.cache,
        },
        "started": session.started,
        "ceilings": {name: dataclasses.asdict(found) for name, found in session.ceilings.items()},
    }


def began(session: Session) -> dict[str, Any]:
    """What this process saw before its first case."""
    canary = session.canary
    return {
        "before": session.before,
        "canary": canary.as_dict() if canary else None,
        "flags": [flag.as_dict() for flag in session.flags],
    }


def complete(output: dict[str, Any], session: Session, version: str, failed: set[str]) -> None:
    """Add our top-level keys, thin the raw samples, and take out cases that failed after they were timed.

    pytest-benchmark writes those too; their rows are in ``unmeasured``.
    """
    done = {b["fullname"] for b in output["benchmarks"] if KEY in b["extra_info"]}
    unfinished = session.begun.keys() - done  # of a case that was interrupted, pytest-benchmark keeps some rounds
    for fullname in unfinished - failed:
        name = fullname.rpartition("::")[2]
        reason = "interrupted while it was measured"
        session.unmeasured.append(Unmeasured(session.begun[fullname], name, fullname, "error", reason))
    gone = failed | unfinished
    output["benchmarks"] = [b for b in output["benchmarks"] if b["fullname"] not in gone]
    for benchmark in output["benchmarks"]:
        thin_samples(benchmark)
    output[KEY] = about(session, version) | {
        "finished": datetime.datetime.now(datetime.UTC).isoformat(),
        "processes": [{"process": 0} | began(session) | {"after": environment.moment()}],
        "unmeasured": [case.as_dict() for case in session.unmeasured],
    }


def thin_samples(benchmark: dict[str, Any]) -> None:
    """Thin the raw samples of one of our cases, in place."""
    if KEY in benchmark.get("extra_info", {}) and "data" in benchmark["stats"]:
        benchmark["stats"]["data"] = thin(benchmark["stats"]["data"])


def thin(samples: list[float]) -> list[float]:
    """At most :data:`~gpubench.schema.SAMPLES_KEPT` samples, evenly spread in time, first and last included."""
    count = len(samples)
    if count <= SAMPLES_KEPT:
        return samples
    last = SAMPLES_KEPT - 1
    return [samples[round(i * (count - 1) / last)] for i in range(SAMPLES_KEPT)]
