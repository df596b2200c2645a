"""The recipes of CONTRIBUTING.md, carried out in a copy of the tree: each is one file, or one entry of one file."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("no_ceilings")

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RUN = ROOT / "results/xeon-2-cores/run.json"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("gpubench", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def gpubench(tree: Path, *words: str | Path) -> str:
    path = os.pathsep.join([str(tree), os.environ["PYTHONPATH"]])  # the copy is imported, and the plugins of the tests
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-m", "gpubench", *map(str, words)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def recipe(heading: str) -> str:
    """The first piece of code below a heading."""
    code = re.search(rf"^## {heading}$.*?```python\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)
    assert code
    return re.sub(r"^   ", "", code[1], flags=re.MULTILINE)


def test_a_workload_is_one_file(tree: Path) -> None:
    """Known by its kind and title in a run, and by nothing else."""
    (tree / "benchmarks/test_new.py").write_text(f"import pytest\nimport torch\n\n\n{recipe('A workload')}")
    words = ["--preset", "smoke", "--device", "cpu", "--processes", "1", "--charts", "none"]
    gpubench(tree, "run", "benchmarks/test_new.py", "-o", "out", *words)
    (row,) = csv.DictReader(io.StringIO((tree / "out/results.csv").read_text()))
    title = re.search(r'title="([^"]+)"', recipe("A workload"))
    assert title
    assert (row["workload"], row["status"], row["kind"], row["title"]) == ("new.rfft", "ok", "linear_algebra", title[1])
    assert title[1] in gpubench(tree, "show", "out", "-k", title[1])


def test_a_metric_is_one_entry(tree: Path) -> None:
    path = tree / "gpubench/report/columns.py"
    entry = f"    {recipe('A metric').strip()},\n)  # fmt: skip\nMETRICS ="
    path.write_text(path.read_text(encoding="utf-8").replace(")  # fmt: skip\nMETRICS =", entry), encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(gpubench(tree, "show", RUN, "--format", "csv"))))
    measured = [row for row in rows if row["status"] == "ok"]
    assert all(float(row["iqr_share"]) == float(row["iqr_s"]) / float(row["time_s"]) for row in measured)
    page = "from regenerate import metrics_table; print(metrics_table())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(ROOT / "docs")])}
    made = subprocess.check_output([sys.executable, "-c", page], env=environment, text=True, cwd=tree)
    assert "| `iqr_share` |" in made


CHART = '''
"""Times of all benchmarks, as one row each."""

from .layouts import NamedRow, NamedRows, RowMark
from .page import Figure


def new_figures(study):
    marks = [NamedRow("", row.result.id, (RowMark(row.time_s, "cpu0", "x"),)) for row in study.measured[:5]]
    return [Figure("new", "new", "Five times", "A finding", "Small print.", NamedRows(tuple(marks), "s"), rank=99)]
'''


def test_a_chart_is_one_file(tree: Path) -> None:
    (tree / "gpubench/report/charts/new_chart.py").write_text(CHART)
    gpubench(tree, "chart", RUN, "--kind", "new", "-o", "new.svg")
    assert "Five times" in (tree / "new.svg").read_text(encoding="utf-8")


def test_a_device_is_one_file(tree: Path) -> None:
    head = "from .base import register\nfrom .torch_device import TorchDevice\n\n\n"
    (tree / "gpubench/devices/npu.py").write_text(head + recipe("A device"))
    assert "npu" in gpubench(tree, "env")
