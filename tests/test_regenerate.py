"""Everything that is made from something else is committed as it is made today."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import jsonschema
import pytest
import records

pytest.importorskip("nbformat")
ROOT = Path(__file__).resolve().parents[1]
specification = importlib.util.spec_from_file_location("regenerate", ROOT / "docs/regenerate.py")
regenerate = importlib.util.module_from_spec(specification)
specification.loader.exec_module(regenerate)


def test_nothing_that_is_derived_is_outdated():
    assert regenerate.outdated(regenerate.derived()) == [], "run tox run -e regenerate"


def test_a_changed_file_and_one_too_many_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(regenerate, "ROOT", tmp_path)
    (tmp_path / "results/x/charts").mkdir(parents=True)
    (tmp_path / "results/x/charts/old.svg").write_text("old")
    (tmp_path / "same.md").write_text("same")
    assert regenerate.outdated({"same.md": b"same", "new.md": b""}) == ["new.md", "results/x/charts/old.svg"]


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*/run.json")), ids=lambda path: path.parent.name)
def test_committed_results_keep_to_the_schema(path):
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), regenerate.json_schema())


def test_the_schema_refuses_a_time_of_zero():
    data = records.cpu_run()
    jsonschema.validate(data, regenerate.json_schema())
    data["benchmarks"][0]["stats"]["median"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, regenerate.json_schema())


def test_every_key_of_ours_says_what_it_means():
    definitions = regenerate.json_schema()["$defs"]
    for name in definitions.keys() - {"Stats", "MachineInfo", "Options", "Benchmark"}:
        for key, value in definitions[name]["properties"].items():
            assert value.get("description"), f"{name}.{key}"
