"""The format is documented from the types that read it, for programs (schema.json) and for people (docs/format.md), and
committed files keep to it. Run as a script this writes both."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from gpubench.runfile.schema import RunFile

CHECKOUT = Path(__file__).parents[2]
RESULTS = sorted((CHECKOUT / "results").glob("*/run.json"))
SCHEMA = CHECKOUT / "gpubench/runfile/schema.json"
PAGE = CHECKOUT / "docs/format.md"

INTRODUCTION = """# Format of a run file

A run file (`run.json`) is a file of pytest-benchmark with keys of gpubench added in three places:
`benchmarks[i].extra_info.gpubench` (a [Measurement](#measurement)), `machine_info.gpubench` and `gpubench`.

Values are in SI base units; what is unknown is null, never 0 and never NaN. Each benchmark has an `id` too, made of its
other keys. Keys that are not listed are ignored. A JSON Schema of the same: `gpubench/runfile/schema.json`.
This page is made by `python tests/runfile/test_schema.py`.
"""


def json_schema() -> dict[str, Any]:
    """JSON Schema of a run file (draft 2020-12)."""
    schema = json.loads(json.dumps(msgspec.json.schema(RunFile)))  # tuples become lists
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gpubench run file", **schema}


def format_page() -> str:
    """A table of keys for each type, the whole file first."""
    definitions = json_schema()["$defs"]
    page = INTRODUCTION
    for name in ["RunFile", *sorted(definitions.keys() - {"RunFile"})]:
        page += f"\n## {name}\n\n{inspect.cleandoc(definitions[name]['description'])}\n"
        page += "\n| key | value | meaning |\n|---|---|---|\n"
        for key, value in definitions[name]["properties"].items():
            kind = kind_of_value(value) + ("" if key in definitions[name]["required"] else ", optional")
            page += f"| `{key}` | {kind} | {value.get('description', '').replace('|', '&#124;')} |\n"
    return page


def kind_of_value(value: dict[str, Any]) -> str:
    """The type of a value in words, linked where it has a table."""
    if "anyOf" in value:
        kinds = map(kind_of_value, value["anyOf"])
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    kind = str(value.get("type", "anything")).replace("array", "list")
    inner = value.get("items") or value.get("additionalProperties")
    return f"{kind} of {kind_of_value(inner)}" if isinstance(inner, dict) and inner else kind


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.parent.name)
def test_committed_run_files_keep_to_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), json_schema())


def test_the_schema_refuses_a_time_of_zero() -> None:
    import records  # found by pytest only

    data = records.cpu_run()
    jsonschema.validate(data, json_schema())
    data["benchmarks"][0]["stats"]["median"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json_schema())


def test_what_is_committed_is_current() -> None:
    """Else: python tests/runfile/test_schema.py"""
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json_schema()
    assert PAGE.read_text(encoding="utf-8") == format_page()


def test_every_key_of_ours_says_what_it_means() -> None:
    definitions = json_schema()["$defs"]
    theirs = {"Stats", "Processor", "MachineInfo", "Options", "Benchmark"}
    for name in definitions.keys() - theirs:
        for key, value in definitions[name]["properties"].items():
            assert value.get("description"), f"{name}.{key}"


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(json_schema(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(format_page(), encoding="utf-8")
