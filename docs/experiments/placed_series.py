"""Record a series for ``verdicts.py recorded``: runs in turn, with the rounds at several placements and at one.

python docs/experiments/placed_series.py FOLDER --pairs 12     # FOLDER/placed and FOLDER/unplaced, some ten minutes
python docs/experiments/verdicts.py recorded FOLDER/placed --slowed slowed --in series
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = """
import os
import pytest, torch
from torch import nn
from torch.nn import functional as F

CALLS = {
    "lstm": lambda g: (g.module(lambda: nn.LSTM(64, 64)), g.randn(32, 8, 64)),
    "convolution": lambda g: (F.conv2d, g.randn(8, 16, 56, 56), g.randn(16, 16, 3, 3)),
    "add": lambda g: (torch.add, g.randn(10**5), g.randn(10**5)),
    "product": lambda g: (torch.mm, g.randn(256, 256), g.randn(256, 256)),
    "softmax": lambda g: (torch.softmax, g.randn(256, 512), -1),
    "sort": lambda g: (torch.sort, g.randn(20_000)),
    "norm": lambda g: (F.layer_norm, g.randn(256, 512), (512,)),
    "exp": lambda g: (torch.exp, g.randn(10**5)),
}

@pytest.mark.parametrize("name", CALLS)
def test_call(gpubench, name):
    with torch.no_grad():
        gpubench(*CALLS[name](gpubench))

def products(a, count):
    for _ in range(count):
        a @ a

def test_slowed(gpubench):
    gpubench(products, gpubench.randn(128, 128), int(os.environ["PRODUCTS"]))
"""
UNPLACED = "from gpubench.measure import prepare\nprepare._place = lambda *_: None\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=12)
    terms = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(terms.pairs):
            sides = [(kind, side) for kind in ("placed", "unplaced") for side in ("base", "new")]
            for kind, side in sides if number % 2 == 0 else reversed(sides):
                suite = Path(scratch) / kind
                suite.mkdir(exist_ok=True)
                (suite / "test_suite.py").write_text(SUITE)
                (suite / "conftest.py").write_text("" if kind == "placed" else UNPLACED)
                out = suite / f"{side}{number}"
                command = [sys.executable, "-m", "gpubench", "run", "test_suite.py", "-o", out.name, "--charts=none"]
                command += ["--processes=1", "--device=cpu", "--threads=1", "--preset=glance"]
                environment = os.environ | {"PRODUCTS": "10" if side == "base" else "11"}
                subprocess.run(command, cwd=suite, env=environment, check=True, stdout=subprocess.DEVNULL)
                kept = terms.folder / kind / "series" / side / f"{number:02}.json"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes((out / "run.json").read_bytes())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
