"""Checks the types of the package against the sources of the oldest torch that it allows: a name that came later is an
error there, unless the code asks for it first. Torch itself isn't installed, only read."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT, FOLDER = Path(__file__).resolve().parent.parent, Path(sys.argv[1])
READ = (".py", ".pyi", "py.typed")

dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
(oldest,) = (text.replace(">=", "==") for text in dependencies if text.startswith("torch>="))
fetch = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", FOLDER, oldest)
subprocess.run(fetch, check=True)
(wheel,) = FOLDER.glob("torch-*.whl")
with zipfile.ZipFile(wheel) as file:
    names = [name for name in file.namelist() if name.startswith("torch/") and name.endswith(READ)]
    file.extractall(FOLDER, names)
print(f"{wheel.name}: {len(names)} sources")
check = [sys.executable, "-m", "mypy", "--cache-dir", str(FOLDER / "cache"), "--no-error-summary"]
environment = os.environ | {"MYPYPATH": str(FOLDER)}
done = subprocess.run(check, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
faults = [line for line in done.stdout.splitlines() if line.startswith("gpubench")]
if done.returncode not in (0, 1):
    sys.exit(done.stdout + done.stderr)
sys.exit("\n".join(faults) or 0)
