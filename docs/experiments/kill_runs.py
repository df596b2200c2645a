"""Is anything lost when a run is killed? Kills many at random moments, resumes each, and counts.

    python docs/experiments/kill_runs.py --times 100

A suite of ten cases that takes about five seconds is started, and after a random time either the supervisor or the
measuring process gets SIGKILL. Then: is the ledger readable, is every case that had ended still in the result after
``--resume``, is the set of cases complete, is a process left over?
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from gpubench.errors import RunFileError
from gpubench.runfile.ledger import read_ledger

SUITE = """
import torch, pytest, time

@pytest.mark.parametrize("n", range(10))
def test_sleep(gpubench, n):
    gpubench(lambda x: x.is_meta or time.sleep(0.04), gpubench.randn(n + 1), check=False)
"""
COMMAND = [sys.executable, "-m", "gpubench", "run", "--no-charts"]


def once(number: int) -> dict[str, int]:
    """One killed and resumed run; what went wrong, counted."""
    chance = random.Random(number)
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE)
        options = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        supervisor = subprocess.Popen([*COMMAND, "test_suite.py", "--processes=1"], **options)
        time.sleep(chance.uniform(0.1, 9.0))
        whom = chance.choice(["supervisor", "measuring process"])
        victims = psutil.Process(supervisor.pid).children() if supervisor.poll() is None else []
        if whom == "measuring process" and victims:
            victims[0].send_signal(signal.SIGKILL)
            supervisor.wait(timeout=60)
        else:
            supervisor.send_signal(signal.SIGKILL)
            supervisor.wait()
        time.sleep(0.5)
        orphans = _left(folder)
        ledger = folder / "out/run.ledger.jsonl"
        ended, unreadable = set(), 0
        if ledger.exists() and '"event": "session"' in ledger.read_text():
            try:
                ended = {e["fullname"] for e in read_ledger(ledger) if e["event"] == "end" and e["status"] == "ok"}
            except RunFileError:
                unreadable = 1
        begun = ledger.exists() and '"event": "run"' in ledger.read_text()
        arguments = ["--resume", "out"] if begun else ["test_suite.py", "--processes=1"]
        subprocess.run([*COMMAND, *arguments], timeout=120, **options)
        data = json.loads((folder / "out/run.json").read_text())
        measured = {benchmark["fullname"] for benchmark in data["benchmarks"]}
        rows = {row["fullname"] for row in data["gpubench"]["unmeasured"]}
        starts = [e["fullname"] for e in read_ledger(ledger) if e["event"] == "start"]
        again = sum(starts.count(name) > 1 for name in ended)
        return {
            "in the middle": int(0 < len(ended) < 10),
            "finished cases lost": len(ended - measured),
            "finished cases measured again": again,
            "ledgers unreadable": unreadable,
            "sets of cases incomplete": int(len(measured | rows) != 10),
            "processes left over": orphans + _left(folder),
        }


def _left(folder: Path) -> int:
    count = 0
    for process in psutil.process_iter(["cmdline", "status"]):
        running = process.info["status"] != psutil.STATUS_ZOMBIE
        count += running and str(folder) in " ".join(process.info["cmdline"] or [])
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=2)
    args = parser.parse_args()
    with ThreadPoolExecutor(args.parallel) as pool:
        seen = list(pool.map(once, range(args.times)))
    print(f"{args.times} runs killed")
    for key in seen[0]:
        print(f"{sum(each[key] for each in seen):5}  {key}")
    return int(any(value for each in seen for key, value in each.items() if key != "in the middle"))


if __name__ == "__main__":
    raise SystemExit(main())
