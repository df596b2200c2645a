"""What the measuring process adds to the file that pytest-benchmark writes."""

from __future__ import annotations

import datetime
from typing import Any

from ..schema import KEY, SAMPLES_KEPT, SCHEMA_VERSION
from . import environment
from .session import Session


def complete(output: dict[str, Any], session: Session, version: str, failed: set[str]) -> None:
    """Add our top-level keys, thin the raw samples, and take out cases that failed after they were timed.

    pytest-benchmark writes those too; their rows are in ``unmeasured``.
    """
    output["benchmarks"] = [b for b in output["benchmarks"] if b["fullname"] not in failed]
    for benchmark in output["benchmarks"]:
        if KEY in benchmark.get("extra_info", {}) and "data" in benchmark["stats"]:
            benchmark["stats"]["data"] = thin(benchmark["stats"]["data"])
    asked = session.asked
    output[KEY] = {
        "schema_version": SCHEMA_VERSION,
        "version": version,
        "preset": asked.preset,
        "seed": asked.seed,
        "asked": {"devices": list(asked.devices), "dtypes": list(asked.dtypes), "variants": list(asked.variants)},
        "started": session.started,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(),
        "processes": [{"process": 0, "before": session.before, "after": environment.moment()}],
        "unmeasured": [case.as_dict() for case in session.unmeasured],
    }


def thin(samples: list[float]) -> list[float]:
    """At most :data:`~gpubench.schema.SAMPLES_KEPT` samples, evenly spread in time, first and last included."""
    count = len(samples)
    if count <= SAMPLES_KEPT:
        return samples
    last = SAMPLES_KEPT - 1
    return [samples[round(i * (count - 1) / last)] for i in range(SAMPLES_KEPT)]
