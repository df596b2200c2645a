"""The format of run files for other programs (schema.json) and for people (docs/format.md), from the types themselves.

``python -m gpubench.runfile.documentation`` in a checkout writes both.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from .schema import RunFile

SCHEMA = Path(__file__).with_name("schema.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "format.md"

_INTRODUCTION = """# Format of a run file

A run file (`run.json`) is a file of pytest-benchmark with keys of gpubench added in three places:
`benchmarks[i].extra_info.gpubench` (a [Measurement](#measurement)), `machine_info.gpubench` and `gpubench`.

Values are in SI base units; what is unknown is null, never 0 and never NaN. Each benchmark has an `id` too, made of its
other keys. Keys that are not listed are ignored. A JSON Schema of the same: `gpubench/runfile/schema.json`.
This page is made by `python -m gpubench.runfile.documentation`.
"""


def json_schema() -> dict[str, Any]:
    """JSON Schema of a run file (draft 2020-12)."""
    schema = json.loads(json.dumps(msgspec.json.schema(RunFile)))  # tuples become lists
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gpubench run file", **schema}


def format_page() -> str:
    """A table of keys for each type, the whole file first."""
    definitions = json_schema()["$defs"]
    page = _INTRODUCTION
    for name in ["RunFile", *sorted(definitions.keys() - {"RunFile"})]:
        page += f"\n## {name}\n\n{inspect.cleandoc(definitions[name]['description'])}\n"
        page += "\n| key | value | meaning |\n|---|---|---|\n"
        for key, value in definitions[name]["properties"].items():
            kind = _kind(value) + ("" if key in definitions[name]["required"] else ", optional")
            page += f"| `{key}` | {kind} | {value.get('description', '').replace('|', '&#124;')} |\n"
    return page


def _kind(value: dict[str, Any]) -> str:
    """The type of a value in words, linked where it has a table."""
    if "anyOf" in value:
        kinds = map(_kind, value["anyOf"])
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    kind = str(value.get("type", "anything")).replace("array", "list")
    inner = value.get("items") or value.get("additionalProperties")
    return f"{kind} of {_kind(inner)}" if isinstance(inner, dict) and inner else kind


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(json_schema(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(format_page(), encoding="utf-8")
