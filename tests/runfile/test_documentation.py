"""The format is documented from the types that read it, and committed files keep to it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import records

from gpubench.runfile import documentation

RESULTS = sorted((Path(__file__).parents[2] / "results").glob("*/run.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.parent.name)
def test_committed_run_files_keep_to_the_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), documentation.json_schema())


def test_the_schema_refuses_a_time_of_zero() -> None:
    data = records.cpu_run()
    jsonschema.validate(data, documentation.json_schema())
    data["benchmarks"][0]["stats"]["median"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, documentation.json_schema())


def test_what_is_committed_is_current() -> None:
    """Else: python -m gpubench.runfile.documentation"""
    assert json.loads(documentation.SCHEMA.read_text(encoding="utf-8")) == documentation.json_schema()
    assert documentation.PAGE.read_text(encoding="utf-8") == documentation.format_page()


def test_every_key_of_ours_says_what_it_means() -> None:
    definitions = documentation.json_schema()["$defs"]
    theirs = {"Stats", "Processor", "MachineInfo", "Options", "Benchmark"}
    for name in definitions.keys() - theirs:
        for key, value in definitions[name]["properties"].items():
            assert value.get("description"), f"{name}.{key}"
