"""The experiments of docs/ say how they are run, and what they import from the package exists."""

import ast
import importlib
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parent.parent / "docs/experiments"


@pytest.mark.parametrize("script", sorted(path.name for path in EXPERIMENTS.glob("[!t]*.py")))
def test_it_says_how_it_is_run_and_what_it_imports_from_the_package_exists(script):
    source = (EXPERIMENTS / script).read_text()
    assert f"python docs/experiments/{script}" in source
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gpubench":
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.import_module(f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in (each.name for each in node.names if each.name.startswith("gpubench")):
                importlib.import_module(name)
