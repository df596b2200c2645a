"""``gpubench merge``: one results file of the parts of a run, measured by ``-k`` or by several jobs on one machine.

Parts belong together if they agree on all that both know: machine, versions, threads, preset, seed, commit. A benchmark
is measured in one part only; processes are numbered through, so that each sample keeps its own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from ..runfile.schema import KEY, Run

_MOST_NAMED = 3
_CHOSEN = ("devices", "dtypes", "variants")
"""Options of which a part names those that it measured."""
_Key = tuple[str, ...]


class Part(NamedTuple):
    """A results file: checked, and as it was written."""

    run: Run
    data: dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    parts = "results file, or a folder of them: two or more, of the same machine, versions, threads, preset and seed"
    parser.add_argument("runs", nargs="+", metavar="PART", help=parts)
    target = "results file to write (NAME.json), or a folder for run.json"
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=target)


def main(args: argparse.Namespace) -> int:
    """Returns 0. Raises UsageError for parts that don't belong together, RunFileError for what can't be read."""
    from ..format import counted
    from ..runfile.folder import RUN_FILE
    from ..runfile.reader import check_run, clean
    from ..runfile.writer import write
    from .report import read_all

    target = Path(args.output)
    target = target if target.suffix == ".json" and not target.is_dir() else target / RUN_FILE
    if target.exists():
        raise UsageError(f"{target} exists already: name another file with -o FILE")
    runs = read_all(args.runs)
    if len(runs) < 2:
        raise UsageError(f"expected two parts or more, and {runs[0].path} is the only results file")
    parts = [Part(run, _content(run.path)) for run in runs]
    data = joined(parts)
    check_run(target, data)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{target.parent}: can't write there: {error.strerror or error}") from None
    write(target, data)
    rest = len(data.get(KEY, {}).get("unmeasured", ()))
    print(
        clean(f"{target}: {counted(len(data['benchmarks']), 'benchmark')} of {len(parts)} parts, {rest} not measured")
    )
    return 0


def _content(path: Path) -> dict[str, Any]:
    """What a file holds that was read before; numbers that JSON hasn't, as a text."""
    if not path.is_file():
        raise UsageError(f"{path}: a part must be a file: it is read twice")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=str)
    return content


def joined(parts: Sequence[Part]) -> dict[str, Any]:
    """The content of one results file. Raises UsageError for parts of different runs, naming what differs, and for a
    benchmark that two of them measured."""
    _require_one_run(parts)
    _require_each_once(parts)
    first = min(parts, key=lambda part: (part.run.plain, part.run.started or ""))
    data = {**first.data, "machine_info": _machine_info(parts, first), "benchmarks": []}
    known = [part.data[KEY] for part in parts if not part.run.plain]
    offset, processes = 0, list[dict[str, Any]]()
    for part in parts:
        data["benchmarks"] += [_renumbered(mark, offset) for mark in part.data["benchmarks"]]
        numbered = [_shifted(each, offset) for each in part.data.get(KEY, {}).get("processes") or ()]
        processes += numbered
        offset += _count(part)
    if known:
        finished = max((text for facts in known if (text := facts.get("finished"))), default=None)
        facts = {"ceilings": _ceilings(parts), "processes": processes, "unmeasured": _unmeasured(parts)}
        data[KEY] = first.data[KEY] | {"asked": _asked(known), "finished": finished} | facts
    return data


# Do they belong together? ---------------------------------------------------------------------------------------------


def _require_one_run(parts: Sequence[Part]) -> None:
    for (place, facts), (other, others) in combinations([(part.run.path, _facts(part)) for part in parts], 2):
        shared = [name for name in facts if name in others and facts[name] != others[name]]
        if shared:
            differences = "; ".join(f"{name} {facts[name]} and {others[name]}" for name in shared)
            raise UsageError(
                f"{place} and {other} are no parts of one run: {differences}. Compare them: gpubench report, compare"
            )


def _facts(part: Part) -> dict[str, str]:
    """What the parts of a run share, as far as this one knows it."""
    run, info = part.run, part.data.get("machine_info") or {}
    ours = info.get(KEY) or {}
    facts: dict[str, Any] = {
        "CPU": (info.get("cpu") or {}).get("brand_raw"),
        "Python": ours.get("python") or f"{info.get('python_implementation')} {info.get('python_version')}",
        "commit": (part.data.get("commit_info") or {}).get("id"),
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


def _require_each_once(parts: Sequence[Part]) -> None:
    measured = [{key for result in part.run.results if result.times for key in _keys(result)} for part in parts]
    for (part, keys), (other, others) in combinations(zip(parts, measured, strict=True), 2):
        if shared := keys & others:
            kind = max(key[0] for key in shared)  # "identity" where it is known
            both = sorted(" ".join(key[1:]) for key in shared if key[0] == kind)
            named = ", ".join(both[:_MOST_NAMED]) + (f" and {len(both) - _MOST_NAMED} more" * (len(both) > _MOST_NAMED))
            raise UsageError(f"{part.run.path} and {other.run.path} both measured {named}: a benchmark is in one part")


def _keys(case: Any) -> set[_Key]:
    """Names under which a benchmark is known: in its file, and on every machine."""
    keys: set[_Key] = {("file", case.fullname)} if case.fullname else set()
    if case.implementation:  # else it is of pytest-benchmark alone
        keys.add(("identity", case.id, case.device, case.implementation))
    return keys


# Joining --------------------------------------------------------------------------------------------------------------


def _machine_info(parts: Sequence[Part], first: Part) -> dict[str, Any]:
    """That of the part that knows the most devices, with those that only others know."""
    widest = max((part for part in parts if part.run.plain == first.run.plain), key=lambda part: len(_devices(part)))
    info: dict[str, Any] = widest.data.get("machine_info") or {}
    devices = {each["name"]: each for part in (*parts, widest) for each in _devices(part)}
    if not devices:
        return info
    order = list(dict.fromkeys(each["name"] for part in (widest, *parts) for each in _devices(part)))
    return info | {KEY: info[KEY] | {"devices": [devices[name] for name in order]}}


def _devices(part: Part) -> list[dict[str, Any]]:
    ours = (part.data.get("machine_info") or {}).get(KEY) or {}
    return ours.get("devices") or []


def _asked(known: Iterable[dict[str, Any]]) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    for facts in known:
        for name, value in (facts.get("asked") or {}).items():
            before = asked.get(name, value)
            if name in _CHOSEN:
                asked[name] = list(dict.fromkeys([*before, *value]))
            else:
                asked[name] = value if before == value else "both"
    return asked


def _ceilings(parts: Sequence[Part]) -> dict[str, Any]:
    """By device the better figure of each kind: a peak that one part reached, the others could have reached."""
    from msgspec import to_builtins

    highest: dict[str, Any] = {}
    for part in parts:
        for name, measured in part.run.ceilings.items():
            highest[name] = highest[name].raised(measured) if name in highest else measured
    return {name: to_builtins(ceilings) for name, ceilings in highest.items()}


def _unmeasured(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """A row for each benchmark that no part measured; that of a failure rather than of one that was skipped."""
    measured = {key for part in parts for result in part.run.results if result.times for key in _keys(result)}
    rows, places = list[dict[str, Any]](), dict[_Key, int]()
    for part in parts:
        written = (part.data.get(KEY) or {}).get("unmeasured") or ()
        fresh: dict[_Key, int] = {}
        for result, row in zip((each for each in part.run.results if not each.times), written, strict=True):
            keys = _keys(result) | {("file", str(row.get("fullname")))}
            if keys & measured:
                continue
            place = next((places[key] for key in keys if key in places), len(rows))
            fresh |= dict.fromkeys(keys, place)
            if place == len(rows):
                rows.append(row)
            elif rows[place]["status"] == "skipped":
                rows[place] = row
        places |= fresh
    return rows


def _count(part: Part) -> int:
    """Numbers that its processes take."""

    entries = list((part.data.get(KEY) or {}).get("processes") or ())
    for mark in part.data["benchmarks"]:
        entries += _processes(mark)
    return max((int(each["process"]) for each in entries), default=0) + 1


def _processes(mark: dict[str, Any]) -> list[dict[str, Any]]:
    ours = (mark.get("extra_info") or {}).get(KEY) or {}
    return ours.get("processes") or []


def _renumbered(mark: dict[str, Any], offset: int) -> dict[str, Any]:
    if not offset or not _processes(mark):
        return mark
    extra = mark["extra_info"]
    processes = [_shifted(each, offset) for each in _processes(mark)]
    return mark | {"extra_info": extra | {KEY: extra[KEY] | {"processes": processes}}}


def _shifted(process: dict[str, Any], offset: int) -> dict[str, Any]:
    return process | {"process": process["process"] + offset}
