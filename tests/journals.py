"""Journals of runs that nobody measured, of any size."""

from __future__ import annotations

import json
from pathlib import Path

import records

from gpubench.runfile.schema import Case


def made_up(path: Path, cases: int, processes: int, samples: int) -> None:
    """A journal of so many cases, each measured by all processes."""
    known = {f"test_a.py::test_b[{n}]": Case("a.b", "cpu", "float32", {"n": n}, size="n", devices=("cpu",))
             for n in range(cases)}  # fmt: skip
    times = [1.2345678901234567e-05 * (1 + i / 1e9) for i in range(samples)]
    written = json.dumps(times)
    with path.open("w") as file:
        run = {"event": "run", "schema_version": 2, "processes": processes, "options": [], "paths": [str(path)]}
        file.write(json.dumps(run | {"inode": path.stat().st_ino, "device": path.stat().st_dev}) + "\n")
        for process in range(processes):
            file.write(json.dumps(records.session(process, known)) + "\n")
            for name, case in known.items():
                start, end = records.begun_and_ended(process, name, case, times[0])
                mark = end["benchmark"]
                mark["extra_info"]["gpubench"]["processes"][0] |= {"kept": samples, "rounds": samples}
                mark["stats"] |= {"data": "samples", "total": sum(times), "rounds": samples}
                file.write(json.dumps(start) + "\n" + json.dumps(end).replace('"samples"', written) + "\n")
            file.write(json.dumps({"event": "finish", "process": process}) + "\n")
