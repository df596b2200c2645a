"""The experiments of docs/ start, and say what they need."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench import devices

EXPERIMENTS = Path(__file__).parent.parent / "docs/experiments"


@pytest.mark.parametrize("script", sorted(path.name for path in EXPERIMENTS.glob("*.py")))
def test_it_compiles_and_says_how_it_is_run(script):
    source = (EXPERIMENTS / script).read_text()
    compile(source, script, "exec")
    how = {"verdict_cases.py": "for verdicts.py", "hostile_suite.py": "python docs/experiments/attack.py hostile"}
    assert how.get(script, f"python docs/experiments/{script}") in source


@pytest.mark.parametrize("script", sorted(path.name for path in EXPERIMENTS.glob("*.py")))
def test_what_it_imports_from_the_package_exists(script):
    for node in ast.walk(ast.parse((EXPERIMENTS / script).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gpubench":
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.import_module(f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("gpubench"):
                    importlib.import_module(name.name)


@pytest.mark.skipif(devices.kinds()["cuda"].count() > 0, reason="there is a GPU, and it takes minutes")
def test_without_a_gpu_it_refuses_in_one_line(tmp_path):
    command = [sys.executable, str(EXPERIMENTS / "validate_gpu.py"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("validate_gpu: no CUDA GPU")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
