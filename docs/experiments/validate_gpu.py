"""Fifteen minutes on a CUDA GPU: three commands, our timer beside others', and published figures beside ours.

    python docs/experiments/validate_gpu.py --commands       # the shell text of the three commands, to be run in turn
    python docs/experiments/validate_gpu.py --timers         # ours beside torch's Timer and triton's do_bench
    python docs/experiments/validate_gpu.py RUN.json …       # a Markdown table: published, ours, ratio, source

The commands run in a checkout and write archives into the folder $OUT, the most valuable first, so that a machine that
is lost leaves what came before. A machine without a network needs wheels of the packages that it lacks in ``.whl/``.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PLACE = (
    "S=/tmp/site; [ -d $S ] || python3 -m pip install -q --no-index --no-deps --no-compile --target $S .whl/*.whl;"
    " export PYTHONPATH=$PWD:$S PYTHONUNBUFFERED=1; G='python3 -m gpubench run --charts=none';"
    " C=$(python3 -c 'from gpubench.devices.cpu import cores; print(cores())'); "
)
_FACTS = """python3 - <<'P'
import time; t=time.time(); import torch as T; from importlib.metadata import version as v
print({n:v(n) for n in 'torch triton numpy pytest transformers'.split()}, 'import', time.time()-t)
def s(f,k):
    [f() for _ in 'abc']; a,b=(T.cuda.Event(enable_timing=True) for _ in 'ab'); a.record(); [f() for _ in range(k)]
    b.record(); T.cuda.synchronize(); return a.elapsed_time(b)/1e3/k
x,y=(T.randn(8192,8192,device='cuda',dtype=T.bfloat16) for _ in 'ab'); print('bf16', 2*8192**3/s(lambda:x@y,20)/1e12)
m=T.empty(1<<30,dtype=T.uint8,device='cuda').random_(256); c=T.empty_like(m); d=m[:1<<28]; o=m[:1]
print('copy TB/s', 2*m.nbytes/s(lambda:c.copy_(m),20)/1e12, 'launch us', s(o.neg_,3000)*1e6)
h=T.empty(1<<28,dtype=T.uint8).pin_memory(); print('pinned GB/s', h.nbytes/s(lambda:d.copy_(h,non_blocking=True),8)/1e9)
P
"""
_TOPICS = "attention quantised llm reductions convolution irregular fft transfer"
_QUICK = " ".join(f"benchmarks/test_{name}.py" for name in _TOPICS.split())
COMMANDS = {
    "1 facts and the first process of glance (190 s)": f"{_PLACE}nvidia-smi --query-gpu=name,driver_version,clocks.sm,"
    f"clocks.max.sm,power.draw,power.limit,pcie.link.gen.max,pcie.link.width.max --format=csv; lscpu | head -20\n"
    f"{_FACTS}python3 -m gpubench env; timeout -s INT -k 20 100 $G --builtin --preset glance --processes 3 --threads $C"
    " -o /tmp/glance; tar czf $OUT/glance1.tgz -C /tmp glance",
    "2 the rest of glance, and quick (390 s)": f"{_PLACE}R='--builtin --preset glance --processes 3 --threads '$C' -o"
    " /tmp/glance'; [ -f /tmp/glance/run.ledger.jsonl ] && R='--resume /tmp/glance'; timeout -s INT -k 20 190 $G $R;"
    f" tar czf $OUT/glance.tgz -C /tmp glance; timeout -s INT -k 20 150 $G {_QUICK} --preset quick --processes 1"
    " --threads $C --deadline 60 -o /tmp/quick; tar czf $OUT/quick.tgz -C /tmp quick",
    "3 timers, tests and the code of every benchmark (220 s)": f"{_PLACE}timeout -s INT -k 5 80 python3"
    " docs/experiments/validate_gpu.py --timers | tee $OUT/timers.md; timeout -s INT -k 5 60 python3 -m pytest"
    ' -p gpubench.plugin -p no:cacheprovider -q -m gpu tests/test_gpu.py -k "not suite_runs" >$OUT/tests.txt 2>&1;'
    ' tail -5 $OUT/tests.txt; N="not distributed and not data_parallel and not model_parallel"; timeout -s INT -k 15 70'
    " $G --builtin --preset smoke --device cuda --variant eager --variant graph --processes 1 -o /tmp/smoke -k"
    ' "$N"; tar czf $OUT/smoke.tgz -C /tmp smoke; timeout -s INT -k 5 45 $G --builtin --preset smoke --device cuda'
    ' --variant compile --processes 1 -o /tmp/compile -k "models.mlp or models.lenet"; tar czf $OUT/compile.tgz'
    " -C /tmp compile",
}

_ZZC, _MAMF = "zzc0721/torch-performance-test-data#79", "stas00/ml-engineering, MAMF finder"
_SQUARE = {
    "float32": (37.4, 49.6, 51.9), "tf32": (120, 335, 402),
    "float16": (179, 645, 760), "bfloat16": (177, 677, 789),
}  # fmt: skip
PUBLISHED: list[tuple[str, str, float, float, float, str]] = [
    *(("H100", f"matmul.square[{dtype}-n={n}]", rate * 1e12, 0.88, 1.08, _ZZC)
      for dtype, rates in _SQUARE.items() for n, rate in zip((1024, 2048, 4096), rates, strict=True)),
    ("H100", "peak bfloat16", 792e12, 0.95, 1.03, _MAMF),
    ("H200", "peak bfloat16", 759e12, 0.95, 1.05, _MAMF),
    ("H100", "peak float64", 57e12, 0.80, 1.05, "the reached share of NVIDIA's datasheet"),
    ("H100", "quantised.fp8[n=4096]", 1403e12, 0.65, 1.0, _MAMF),
    ("H100", "memory copy", 3.02e12, 0.95, 1.04, "seen on such a machine"),
    ("H100", "memory triad", 3.08e12, 0.95, 1.04, "seen on such a machine"),
    ("H100", "l2 read", 6.9e12, 0.6, 1.3, "te42kyfo/gpu-benches, gpu-l2-cache"),
    ("H200", "l2 read", 9.7e12, 0.6, 1.3, "te42kyfo/gpu-benches, gpu-l2-cache"),
    ("H100", "host to device", 55.6e9, 0.75, 1.03, "NVIDIA's blog on nvbandwidth"),
    ("H100", "launch", 4e-6, 0.5, 2.0, "susun-blog, pegainfer"),
    ("H100", "attention.causal[bfloat16-length=4096-backend=flash]", 299e12, 0.55, 1.1, "arXiv 2407.08608, fig. 5"),
    ("H100", "reductions.softmax[float32-rows=65536]", 3.01e12, 0.6, 1.0, "Dao-AILab/quack"),
]  # fmt: skip
"""GPU, our benchmark or peak, published FLOP/s, B/s or s, range of the ratio that needs no explanation, source."""


HEAD = "| GPU | benchmark | published | ours | ratio | source |\n|---|---|---|---|---|---|"


def ours(run: Any, device: str) -> dict[str, float]:
    """Return the rates and times of one device of a run by the names of :data:`PUBLISHED`."""
    values = {}
    for result in run.results:
        if result.device == device and result.times and result.work:
            amount = result.work.flops or result.work.bytes
            values[result.id] = (amount or 0.0) / result.times.median_s
    if peaks := run.ceilings.get(device):
        values |= {f"peak {dtype}": rate for dtype, rate in peaks.throughput.items()}
        values |= {f"{each.level} {each.pattern}": each.byte_per_s for each in peaks.bandwidth}
        values |= {"host to device": peaks.host_to_device_byte_per_s or 0.0, "launch": peaks.launch_floor_s or 0.0}
    return {name: value for name, value in values.items() if value}


def compared(run: Any) -> Iterator[str]:
    """Yield a Markdown row for each published figure of a GPU of the run that was measured."""
    for device in run.machine.devices:
        values = ours(run, device.name) if device.kind != "cpu" else {}
        for gpu, name, published, low, high, source in PUBLISHED:
            if gpu in (device.label or "") and name in values:
                ratio = values[name] / published
                sign = "" if low <= ratio <= high else " **explain**"
                shown = f"{published:.3g} | {values[name]:.3g} | {ratio:.2f}{sign}"
                yield f"| {device.label} | {name} | {shown} | {source} |"


def seconds_per_call(call: Callable[[], Any], clock: Any, rounds: int = 30) -> float:
    """Return the median seconds of a call over rounds of so many calls that the wait at a round's end is 1 % of it."""
    from gpubench.measure.clock import MIN_ROUND, MIN_WAITS, repeat

    repeat(call, clock, least=2, most=10_000, seconds=0.25)
    least_s = max(MIN_ROUND, MIN_WAITS * clock.wait_s())
    calls = max(1, int(least_s / (repeat(call, clock, least=1, most=1, calls=20)[0] / 20)))
    return statistics.median(repeat(call, clock, least=rounds, most=rounds, calls=calls)) / calls


def timers(device: str) -> Iterator[str]:
    """Yield a Markdown table of our time over torch's Timer's and triton's do_bench's, and of device times."""
    import torch
    from torch.utils.benchmark import Timer

    from gpubench.devices import find_device
    from gpubench.measure.clock import DeviceClock
    from gpubench.measure.probes import device_time

    gpu = find_device(device).device
    if gpu is None:
        raise SystemExit(f"validate_gpu: no {device}")
    n, count = (4096, 10**8) if gpu.accelerator else (64, 10**4)
    a, x = torch.randn(n, n, device=str(gpu)), torch.randn(count, device=str(gpu))
    calls = {"neg_ of 1000": x[:1000].neg_, f"product of {n}": lambda: a @ a, f"add of {count}": lambda: x.add_(1.0)}
    yield "| call | ours, s | ours / Timer | / do_bench | device time / do_bench_cudagraph |\n|---|---|---|---|---|"
    for name, call in calls.items():
        ours_s = seconds_per_call(call, DeviceClock([gpu]))
        theirs = [Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.5).median]
        with contextlib.suppress(Exception):  # it compiles C code, and a container may have no compiler
            from triton import testing

            theirs.append(testing.do_bench(call, return_mode="median") / 1e3)
            device_s = device_time(call, gpu, ours_s, None).device_s or float("nan")
            theirs.append(ours_s * testing.do_bench_cudagraph(call, return_mode="median") / 1e3 / device_s)
        yield f"| {name} | {ours_s:.3g} | " + " | ".join(f"{ours_s / each:.3f}" for each in theirs) + " |"


def main() -> None:
    """Print the tables that the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="results files or folders")
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--timers", nargs="?", const="cuda", metavar="DEVICE")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from gpubench.runfile.runs import read

    lines = [f"# {title}\n{text}\n" for title, text in COMMANDS.items()] if options.commands else []
    rows = [row for path in options.runs for row in compared(read(path))]
    for line in (*lines, *(timers(options.timers) if options.timers else ()), *([HEAD] if rows else []), *rows):
        print(line, flush=True)


if __name__ == "__main__":
    main()
