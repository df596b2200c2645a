"""Convert results files of version 1 or 2 to version 3, which this gpubench reads.

    python docs/experiments/convert_results.py old/run.json old/002.json.gz NEW_FOLDER

Gone are fields that version 3 doesn't have, benchmarks of the suite that the suite doesn't have any more (of another
size they stay), and of the suite's attention the memory and the operators with their traffic, which older versions
counted in unfused form. The minimum traffic of attention stays, because the benchmark declares it. The suite's
benchmarks have the kind that they have in the suite. Every other number stays as it is, to the last digit.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpubench.runfile.matching import SHIPPED, is_expression
from gpubench.runfile.runs import read
from gpubench.runfile.schema import KEY, SCHEMA_VERSION, RunFile
from gpubench.runfile.writer import write
from gpubench.supervise.process import suite
from gpubench.supervise.supervisor import planned

Kinds = dict[tuple[str, frozenset[str], tuple[str, str] | None], str]
"""The kinds of the suite's benchmarks by workload, names of the parameters, and name and word of one of them, if any:
a method, a form, an optimizer."""
TYPES = json.loads(json.dumps(msgspec.json.schema(RunFile)))["$defs"]


def names_of(case: Mapping[str, Any]) -> list[tuple[str, frozenset[str], tuple[str, str] | None]]:
    """Return the names of a benchmark of any size."""
    words = [(name, value) for name, value in case["params"].items() if isinstance(value, str)]
    return [(case["workload"], frozenset(case["params"]), word) for word in (None, *words)]


def kinds_of_the_suite() -> Kinds:
    """Return the kinds of all benchmarks that the suite has in the presets quick and full."""
    plans = (planned([str(suite())], [f"--gpubench-preset={preset}"]) for preset in ("quick", "full"))
    return {name: case["kind"] for plan in plans for case in plan["cases"] for name in names_of(case)}


def fields_of(value: Any, kind: Mapping[str, Any]) -> Any:
    """Return a value without the fields that its type doesn't have; ``id`` is for other readers."""
    for option in kind.get("anyOf", [kind]):
        if "$ref" in option:
            kind = TYPES[option["$ref"].rpartition("/")[2]]
    if isinstance(value, list) and isinstance(kind.get("items"), dict):
        return [fields_of(entry, kind["items"]) for entry in value]
    if isinstance(value, dict) and "properties" in kind:
        own = kind["properties"] | {"id": {}}
        return {name: fields_of(entry, own[name]) for name, entry in value.items() if name in own}
    return value


def is_kept(case: dict[str, Any], kinds: Kinds) -> bool:
    """Return whether a benchmark is a user's own or the suite still has it, and give the latter its kind."""
    file = case["workload"].partition(".")[0]
    if is_expression(case["workload"]) or file not in SHIPPED or file == "input":  # which users' files could be called
        return True
    case["kind"] = kinds.get(names_of(case)[0], "")
    return kinds.keys() >= {*names_of(case)}


def converted(data: dict[str, Any], kinds: Kinds) -> dict[str, Any]:
    """Return the content of a file in version 3."""
    run = fields_of(data[KEY], TYPES["RunFacts"]) | {"schema_version": SCHEMA_VERSION}
    run["unmeasured"] = [case for case in run.get("unmeasured") or () if is_kept(case, kinds)]
    benchmarks = []
    for mark in data["benchmarks"]:
        if ours := (mark.get("extra_info") or {}).get(KEY):
            mark["extra_info"][KEY] = ours = fields_of(ours, TYPES["Measurement"])
            if not is_kept(ours, kinds):
                continue
            if ours["workload"].startswith("attention."):
                ours.pop("memory_bytes", None)
                ours["work"].pop("operators", None)
        benchmarks.append(mark)
    return data | {"benchmarks": benchmarks, KEY: run}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    of_the_suite = kinds_of_the_suite()
    args.folder.mkdir(parents=True, exist_ok=True)
    for file in args.files:
        content = json.loads(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
        new = args.folder / file.name.removesuffix(".gz")
        write(new, converted(content, of_the_suite))
        print(f"{new}: {len(read(new, samples=False).results)} benchmarks")
