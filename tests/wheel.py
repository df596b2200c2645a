"""Installs a folder's wheel and holds it against the checkout: every file of the package and of its benchmarks, and
nothing else. Then reads committed results by each command that needs no torch."""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

(WHEEL,) = Path(sys.argv[1]).glob("*.whl")
INSTALL = (sys.executable, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall")
subprocess.run([*INSTALL, WHEEL], check=True)

import gpubench  # noqa: E402  (with no dependency installed: only names that are used may import one)

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = Path(gpubench.__file__).parent


def files(folder: Path, prefix: str = "") -> set[str]:
    """Relative names of a folder's files, without the leavings of Python and editors."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {prefix + name.as_posix() for name in names if "__pycache__" not in name.parts and name.suffix != ".pyc"}


if INSTALLED == ROOT / "gpubench":
    sys.exit("wheel: this is the checkout, not what was built from it")
expected = files(ROOT / "gpubench") | files(ROOT / "benchmarks", "benchmarks/")
missing, surplus = sorted(expected - files(INSTALLED)), sorted(files(INSTALLED) - expected)
if missing or surplus:
    sys.exit(f"wheel: missing {missing}, surplus {surplus}")
if importlib.util.find_spec("torch"):
    sys.exit("wheel: torch is installed: whether the commands that read need it isn't tested")
RUN = str(ROOT / "results/xeon-2-cores/run.json")
with tempfile.TemporaryDirectory() as folder:
    for words in (
        ["show", RUN], ["chart", RUN, "-o", f"{folder}/chart.svg", "-k", "matmul.square"],
        ["report", RUN, "-o", f"{folder}/report"], ["compare", RUN, RUN], ["estimate", RUN],
    ):  # fmt: skip
        done = subprocess.run([sys.executable, "-I", "-m", "gpubench", *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"wheel: without torch, gpubench {' '.join(words)} ends with {done.returncode}: {done.stderr}")
print(f"wheel: {gpubench.__version__}, {len(expected)} files")
