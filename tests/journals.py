"""Journals of runs that nobody measured, of any size."""

from __future__ import annotations

import json
from pathlib import Path

import records

from gpubench.runfile.schema import Case


def made_up(path: Path, cases: int, processes: int, samples: int) -> None:
    """A journal of so many cases, each measured by all processes."""
    names = [f"test_a.py::test_b[{n}]" for n in range(cases)]
    known = [Case("a.b", "cpu", "float32", {"n": n}, size="n", devices=("cpu",)) for n in range(cases)]
    run = records.run_file([])
    facts = {key: run[key] for key in ("machine_info", "commit_info", "datetime", "version", "gpubench")}
    facts |= {"cases": names, "identities": {name: case.as_dict() for name, case in zip(names, known, strict=True)}}
    times = [1.2345678901234567e-05 * (1 + i / 1e9) for i in range(samples)]
    written = json.dumps(times)
    with path.open("w") as file:
        run = {"event": "run", "schema_version": 1, "processes": processes, "options": [], "paths": [str(path)]}
        file.write(json.dumps(run | {"inode": path.stat().st_ino}) + "\n")
        for process in range(processes):
            session = {"event": "session", "process": process, "fingerprint": {"code": "stub"}, "estimated_s": 1.0}
            file.write(json.dumps(session | facts) + "\n")
            for name, case in zip(names, known, strict=True):
                mark = records.benchmark(case, times[0], rounds=samples) | {"fullname": name}
                mark["extra_info"]["gpubench"]["processes"][0]["kept"] = samples
                mark["stats"] |= {"data": "samples", "total": sum(times), "rounds": samples}
                who = {"process": process, "fullname": name}
                file.write(json.dumps({"event": "start", **who, "name": name, "case": case.as_dict()}) + "\n")
                end = json.dumps({"event": "end", **who, "status": "ok", "benchmark": mark})
                file.write(end.replace('"samples"', written) + "\n")
            file.write(json.dumps({"event": "finish", "process": process}) + "\n")
