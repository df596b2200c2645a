"""``gpubench merge``: one results file of the parts of a run, measured by ``-k`` or by several jobs on one machine.

Parts belong together if they agree on every fact that both hold: machine, versions, threads, preset, seed, commit. A
benchmark is measured in one part only; processes are numbered through, so that each sample keeps its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from ..runfile.ledger import inner
from ..runfile.schema import KEY, Ceilings, Run


class Part(NamedTuple):
    """A results file: the checked run, and the whole content of the file."""

    run: Run
    data: dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parts = "results file, or a folder of them: two or more, of the same machine, versions, threads, preset and seed"
    parser.add_argument("runs", nargs="+", metavar="PART", help=parts)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="results file to write")


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError for parts that don't belong together, RunFileError for what can't be read."""
    from ..runfile.quantities import counted
    from ..runfile.reader import check_run, clean, content_of
    from ..runfile.writer import require_new, write
    from .report import read_all

    target = Path(args.output)
    require_new(target)
    runs = read_all(args.runs)
    if len(runs) < 2:
        raise UsageError(f"expected two parts or more, and {runs[0].path} is the only results file")
    if pipes := [str(run.path) for run in runs if not run.path.is_file()]:
        raise UsageError(f"{pipes[0]}: a part must be a file: it is read twice")
    parts = [Part(run, content_of(run.path)) for run in sorted(runs, key=lambda run: (run.plain, run.started or ""))]
    _require_one_run(parts)
    _require_each_once(runs)
    data = joined(parts)
    check_run(target, data)
    write(target, data)
    rest = len(data.get(KEY, {}).get("unmeasured", ()))
    measured = counted(len(data["benchmarks"]), "benchmark")
    print(clean(f"{target}: {measured} of {len(parts)} parts, {rest} not measured"))
    return 0


def joined(parts: Sequence[Part]) -> dict[str, Any]:
    """The run file of these parts, the earliest of ours first."""
    from msgspec import to_builtins

    from ..runfile.ledger import Event, assemble, events_of

    events = list[Event]()
    for part in parts:
        events += events_of(part.data, 1 + max((event["process"] for event in events), default=-1))
    data = assemble(events)
    if parts[0].run.plain:
        del data[KEY]
        return data
    peaks: dict[str, Ceilings] = {}
    for name, ceilings in (each for part in parts for each in part.run.ceilings.items()):
        peaks[name] = peaks[name].raised(ceilings) if name in peaks else ceilings
    asked = [inner(part.data, KEY, "asked") for part in parts if not part.run.plain]
    data[KEY] |= {"ceilings": to_builtins(peaks), "asked": {"parts": asked}}
    widest = max(parts, key=lambda part: (not part.run.plain, len(_devices(part))))
    devices = {each["name"]: each for part in (widest, *parts) for each in _devices(part)}
    info = widest.data.get("machine_info") or {}
    data["machine_info"] = info | ({KEY: info[KEY] | {"devices": [*devices.values()]}} if devices else {})
    return data


def _devices(part: Part) -> list[dict[str, Any]]:
    return inner(part.data, "machine_info", KEY, "devices") or []


def _require_one_run(parts: Sequence[Part]) -> None:
    for (place, facts), (other, others) in combinations([(part.run.path, _facts(part)) for part in parts], 2):
        shared = [name for name in facts if name in others and facts[name] != others[name]]
        if shared:
            differences = "; ".join(f"{name} {facts[name]} and {others[name]}" for name in shared)
            raise UsageError(
                f"{place} and {other} are no parts of one run: {differences}. Compare them: gpubench report, compare"
            )


def _facts(part: Part) -> dict[str, str]:
    """The facts that all parts of a run share, as far as this part holds them."""
    run, info = part.run, part.data.get("machine_info")
    version = f"{inner(info, 'python_implementation')} {inner(info, 'python_version')}"
    facts: dict[str, Any] = {
        "CPU": inner(info, "cpu", "brand_raw"),
        "Python": inner(info, KEY, "python") or version,
        "commit": inner(part.data, "commit_info", "id"),
        "threads": run.machine.threads,
        "PyTorch": run.machine.torch,
        "gpubench": run.version,
        "preset": run.preset,
        "seed": run.seed,
    }
    if not run.plain:
        names = ", ".join(sorted(device.name for device in run.machine.devices))
        facts[f"machine ({names})"] = run.machine.label  # without a GPU it may be called differently
        for device in run.machine.devices:
            facts |= {device.name: device.label, f"driver of {device.name}": device.driver}
        accelerated = any(run.machine.device(result.device).accelerator for result in run.results)
        switches = run.machine.precision if accelerated else ("float32_matmul",)
        facts |= {name: run.machine.precision.get(name) for name in switches}
    unknown = (None, "", "None None", "unversioned")
    return {name: str(value) for name, value in facts.items() if value not in unknown}


def _require_each_once(runs: Sequence[Run]) -> None:
    from ..compare.samples import CaseKey, key_of

    measured: dict[CaseKey, Path] = {}
    for run in runs:
        for key in [key_of(result) for result in run.results if result.times]:
            if measured.setdefault(key, run.path) != run.path:
                raise UsageError(f"{measured[key]} and {run.path} both measured {key}: a benchmark is in one part")
