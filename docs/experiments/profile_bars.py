"""How true is ``gpubench profile``? Run it on idle cores: others make each of these worse.

python docs/experiments/profile_bars.py truth      # parts against sleeps that the script times itself
python docs/experiments/profile_bars.py bound      # no infinitely fast GPU beats the bound; loaders of k workers
python docs/experiments/profile_bars.py overhead   # the watcher on and off in alternating blocks of one process
python docs/experiments/profile_bars.py repeats    # intervals of --runs 3 against the median of 20 repeats
python docs/experiments/profile_bars.py coverage   # simulated intervals
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]
from profile_corpus import SHAPES  # noqa: E402
from profiling.scripts import PRELUDE  # noqa: E402

from gpubench.profiling.profile import mean_interval  # noqa: E402

STEPS, COLD = 60, 3
"""Steps of a block with or without the watcher, and those before that aren't timed: replaced attributes clear Python's
caches of types, which costs the first two steps a third of their time, and in a profile belongs to the warm-up."""
SCRIPTS = {
    "slow_loader": "data = lambda: DataLoader(Slow(), batch_size=8)",
    "two_workers": "data = lambda: DataLoader(Slow(), batch_size=8, num_workers=2)",
    "fast_loader": "data = lambda: batches()",
    "own_generator": "def data():\n    while True: time.sleep(0.004); yield torch.rand(12, 8), torch.arange(12) % 3",
    "own_python": "data = lambda: ((torch.rand(12, 8), torch.tensor(sorted(range(99))[:12]) % 3) for _ in range(999))",
}
"""Where the data of a script come from. With the word ``stub`` behind it, a script's network has a width of 1:
its operators take no time, as on an infinitely fast GPU, but the host still launches them."""
BODY = """
class Slow(Rows):
    def __getitem__(self, i): time.sleep(0.001); return super().__getitem__(i)
W = 1 if sys.argv[1:] else 512
net = nn.Sequential(nn.Linear(8, W), nn.ReLU(), *[nn.Linear(W, W) for _ in range(6)], nn.Linear(W, 3))
opt = torch.optim.SGD(net.parameters(), 1e-3); ends = []
{data}
most_s = 4 if sys.argv[1:] else 1000  # profile ends the script before
while len(ends) < 5 or ends[-1] - ends[0] < most_s:
    for x, y in data():
        step(net, opt, x, y)
        ends.append(time.perf_counter())
        if ends[-1] - ends[0] > most_s: break
if sys.argv[1:]: print((ends[-1] - ends[5]) / (len(ends) - 6))
"""


def profiled(name: str, source: str, *options: str) -> dict:
    """Return the JSON of a script's profile, with the files that it wrote by name."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{name}.py").write_text(PRELUDE + source)
        words = ["-m", "gpubench", "profile", "--json", "out.json", *options, f"{name}.py"]
        done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return {path.name: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}


def truth() -> None:
    """Print each part beside the mean of its sleeps, and whether it is within 10 % and 0.3 ms."""
    files = profiled("sleeps", SHAPES["sleeps"], "--to-the-end")
    for part, seconds in files["out.json"]["regions"].items():
        slept = [took for name, took in files["truth.json"] if name == part]
        if slept:
            known = statistics.fmean(slept)
            held = abs(seconds - known) <= 0.1 * known + 3e-4
            print(f"{part:10} {1e3 * seconds:7.2f} ms, slept {1e3 * known:.2f} ms: {'within' if held else 'OUTSIDE'}")
    step, parts = files["out.json"]["step"]["mean_s"], files["out.json"]["parts"]
    print(f"sum of parts / step - 1 = {sum(parts.values()) / step - 1:.1e}")


def bound() -> None:
    """Print for each script the speedup by a network that takes no time, and the bound."""
    for name, data in SCRIPTS.items():
        source = BODY.format(data=data)
        found = profiled(name, source)["out.json"]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "stub.py").write_text(PRELUDE + source)
            words = [sys.executable, "stub.py", "stub"]
            stub_s = float(subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout)
        speedup = found["step"]["mean_s"] / stub_s
        verdict = "held" if speedup <= found["bound"] else "BEATEN"
        print(f"{name:14} step {1e3 * found['step']['mean_s']:.2f} ms, stub {1e3 * stub_s:.2f} ms: ", end="")
        print(f"{speedup:.2f}×, bound {found['bound']:.2f}×: {verdict}")
    for workers in (1, 2, 4):
        data = f"data = lambda: DataLoader(Slow(), batch_size=8, num_workers={workers})"
        alone_s = profiled("alone", BODY.format(data=data))["out.json"]["loaders"][0]["alone_s"]
        print(f"{workers} sleeping workers: a batch in {1e3 * alone_s:.2f} ms, expected {8 / workers:.2f} ms or more")


def overhead() -> None:
    """Print the ratio of a small network's step with and without the watcher, in 40 alternating blocks."""
    import torch

    from gpubench.profiling.watcher import Plan, Watcher

    torch.set_num_threads(1)
    sizes, relu = (784, 512, 512, 10), torch.nn.ReLU()
    net = torch.nn.Sequential(*(each for a, b in pairwise(sizes) for each in (torch.nn.Linear(a, b), relu)))
    opt, x = torch.optim.SGD(net.parameters(), 1e-3), torch.randn(128, 784)
    ratios, blocks = [], {False: 0.0, True: 0.0}
    for i in range(80):
        watcher, watched = Watcher(Plan(steps=10**9, warm=1, warm_s=0.0, most_warm=1), lambda: False), i % 4 in (1, 2)
        if watched:
            watcher.install()
        for j in range(COLD + STEPS):
            if j == COLD:
                begin = time.thread_time()  # of this thread alone, so that other programs count less
            opt.zero_grad()
            net(x).square().mean().backward()
            opt.step()
        blocks[watched] = time.thread_time() - begin
        watcher.restore()
        if i % 2:
            ratios.append(blocks[True] / blocks[False])
    print(f"a step without: {1e6 * blocks[False] / STEPS:.0f} µs of CPU time")
    print(f"with / without the watcher: {statistics.median(ratios):.4f} (median of {len(ratios)}; bar: 1.02)")


def repeats(times: int = 20) -> None:
    """Print how many intervals of three runs hold the median of all repeats."""
    held = 0
    for name in ("slow_loader", "fast_loader", "own_generator"):
        source = BODY.format(data=SCRIPTS[name])
        steps = [profiled(name, source, "--runs", "3")["out.json"]["step"] for _ in range(times)]
        middle = statistics.median(step["mean_s"] for step in steps)
        now = sum(step["low_s"] <= middle <= step["high_s"] for step in steps)
        held += now
        print(f"{name}: {now} of {times} intervals hold {1e3 * middle:.2f} ms")
    print(f"{held} of {3 * times} (bar: {math.ceil(0.9 * 3 * times)})")


def coverage(times: int = 3000) -> None:
    """Print the share of simulated intervals that hold the mean, and their half width."""
    chance = random.Random(1)

    def dependent(count: int, share: float) -> list[float]:
        now, steps = chance.gauss(0, 1), []
        for _ in range(count):
            steps.append(1 + 0.1 * now)
            now = share * now + math.sqrt(1 - share**2) * chance.gauss(0, 1)
        return steps

    def workers(count: int, cycle: int) -> list[float]:
        return [(1 + 2 * (i % cycle == 0)) * (1 + chance.gauss(0, 0.02)) for i in range(count)]

    for count in (24, 40, 80):
        for name, make, mean, cycle in [
            ("independent", lambda n=count: dependent(n, 0.0), 1.0, 1),
            ("AR 0.5", lambda n=count: dependent(n, 0.5), 1.0, 1),
            ("AR 0.8", lambda n=count: dependent(n, 0.8), 1.0, 1),
            ("2 workers in turn", lambda n=count: workers(n, 2), 2.0, 2),
            ("4 workers in turn", lambda n=count: workers(n, 4), 1.5, 4),
        ]:
            found = [mean_interval(make(), cycle) for _ in range(times)]
            share = sum(each.low <= mean <= each.high for each in found) / times
            half = statistics.fmean(each.high - each.low for each in found) / 2 / mean
            print(f"{count} steps, {name:18} {share:.3f} hold the mean, ±{half:.1%}")


if __name__ == "__main__":
    globals()[sys.argv[1] if sys.argv[1:] else "coverage"]()
