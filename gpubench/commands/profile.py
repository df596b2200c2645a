"""``gpubench profile``: the parts of a script's step, and the parts that a GPU speeds up."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec
import psutil

from ..errors import UsageError, clean
from ..profiling.profile import Profile
from ..runfile import options
from ..statistics.intervals import median_interval
from ..supervise.process import bound, on_signals, signal_or_code

FAREWELL_S = 3.0
"""Seconds that processes which a script has started have after its end."""
NO_SCRIPTS = {
    r"torchrun|accelerate|deepspeed|torch\.distributed\.(run|launch)":
        "torchrun and accelerate launch start other processes: give the script itself",
    r"python[\d.]*": "leave out python: gpubench profile SCRIPT, with its own words behind it",
    r".*\.ipynb": "a notebook is no script: gpubench.profile(step), in it, takes a function that makes one step",
}  # fmt: skip
"""Names of programs and files that aren't scripts, and what to do."""
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
_REFUSED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    add, read = parser.add_argument, options.reader
    add("--steps", type=read("steps"), metavar="N", help="steps to time (default: at least 24, for at least 2 s)")
    add("--runs", type=read("runs"), default=1, metavar="N", help="runs of the script (default: 1)")
    card = "a GPU, or a results file of one, which narrows its range; repeatable (default: L4, RTX 4090, A100, H100)"
    add("--gpu", dest="gpus", action="append", default=[], metavar="CARD", help=card)
    add("--device", choices=("cpu",), help="measure the CPU alone, although a GPU is here")
    add("--json", metavar="FILE", help="write all values as JSON")
    add("-o", "--output", metavar="PICTURE", help="draw the parts of a step, .svg or .png")
    add("--step", type=read("step"), metavar="LINE", help="a step is a turn of the loop at this line of the script")
    add("--to-the-end", action="store_true", help="let the script run to its end, instead of ending it when measured")
    add("-m", dest="module", action="store_true", help="run a module, as python -m does")
    add("words", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="the script and its arguments")


def main(args: argparse.Namespace) -> int:
    """Returns 0 if a step was measured, the script's own exit code if it failed before or ran to its end, and 2 for a
    refusal. Raises UsageError for a script or an option that can't be used."""
    from ..profiling.profile_answer import bars_of, cards_of, complete, screen
    from ..runfile.writer import picture_format, replace, require_new

    args.words = args.words[args.words[:1] == ["--"] :]
    if not args.words:
        raise UsageError("name a script: gpubench profile train.py, with its own words behind it")
    name = os.path.basename(args.words[0])
    for advice in (advice for names, advice in NO_SCRIPTS.items() if re.fullmatch(names, name)):
        raise UsageError(advice)
    if not args.module and not os.path.isfile(args.words[0]):
        raise UsageError(f"{args.words[0]}: {'is a folder' if os.path.isdir(args.words[0]) else 'no such file'}")
    cards, kind = cards_of(args.gpus), args.output and picture_format(args.output)
    for path in filter(None, (args.json, args.output)):
        require_new(path)
    how = "to its end" if args.to_the_end else "until its steps are measured, then ends it as if switched off"
    _say(f"runs {name} in {os.getcwd()} {how}; what it writes until then stays")
    code, profile = _measured(args)
    if profile.refusal:
        _say(f"{name}: {profile.refusal}")
        return code if code and (args.to_the_end or profile.ended == "failed") else _REFUSED
    profile = _repeated(args, profile)
    complete(profile, cards)
    print("\n".join(["", *map(clean, screen(profile))]), flush=True)
    if args.json:
        replace(Path(args.json), msgspec.json.format(msgspec.json.encode(profile), indent=1))
    if kind:
        from ..report.charts.pictures import render, stacked_figure

        replace(Path(args.output), render(stacked_figure(*bars_of(profile)), kind))
    return code if args.to_the_end else 0


def _say(text: str) -> None:
    print(clean(f"gpubench profile: {text}"), file=sys.stderr, flush=True)


def _repeated(args: argparse.Namespace, profile: Profile) -> Profile:
    """Run the script again, and take the run in the middle with the interval of the means of all; then once more on the
    CPU if it used a GPU, and keep the GPU's time beside it."""
    runs = [profile, *(_measured(args)[1] for _ in range(args.runs - 1))]
    runs = sorted((each for each in runs if each.step), key=lambda each: each.mean_s)
    profile = runs[len(runs) // 2]
    step = profile.step
    assert step is not None
    if len(runs) > 1:
        interval = median_interval([each.mean_s for each in runs])
        step.low_s, step.high_s, profile.runs = interval.low, interval.high, len(runs)
    if profile.device == "cpu":
        return profile
    on_cpu = _measured(args, HIDDEN)[1]
    if on_cpu.refusal:
        _say(f"on the CPU: {on_cpu.refusal}; only the GPU is shown")
        return profile
    on_cpu.measured[profile.gpu or profile.device] = step.low_s, step.mean_s, step.high_s or step.mean_s
    return on_cpu


def _measured(args: argparse.Namespace, environment: Mapping[str, str] = {}) -> tuple[int, Profile]:
    """Run the script once; return its exit code, as a shell reports it, and the result."""
    with tempfile.TemporaryDirectory(prefix="gpubench-profile-") as folder:
        result = Path(folder) / "profile.json"
        session = {"result": str(result), "words": args.words, "module": args.module, "line": args.step}
        session |= {"to_the_end": args.to_the_end} | ({"steps": args.steps, "steps_s": 0.0} if args.steps else {})
        words = [sys.executable, "-P", "-m", "gpubench.profiling.script", json.dumps(session)]
        ended = _run(words, HIDDEN if args.device == "cpu" else environment)
        code = 128 - ended if ended < 0 else ended
        if result.exists():
            return code, msgspec.json.decode(result.read_bytes(), type=Profile)
        refusal = f"{signal_or_code(ended)} before it was measured"
        return code, Profile(args.words[0], refusal=refusal, ended="failed")


def _run(words: list[str], environment: Mapping[str, str]) -> int:
    """Run a process in a session of its own, and end the rest of the session."""
    with on_signals(_leave):
        child = subprocess.Popen(bound(words), env={**os.environ, **environment}, start_new_session=True)
        seen = {child.pid}
        try:
            while child.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(0.5)
                seen.update(process.pid for process in _session(child.pid))
        finally:
            _end(child.pid, seen)
            child.wait()
    return child.returncode


def _leave(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _session(leader: int) -> list[psutil.Process]:
    """Return the living processes of a session; none on Windows, which has no sessions."""
    processes = list[psutil.Process]()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, AttributeError, psutil.Error):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _end(leader: int, seen: set[int]) -> None:
    """End the processes of a session, and remove their shared memory: its names hold their numbers."""
    began_s = time.monotonic()
    for number, until_s in ((0, 0.2 * FAREWELL_S), (15, FAREWELL_S), (9, 2 * FAREWELL_S)):
        while (left := _session(leader)) and time.monotonic() - began_s < until_s:
            for process in left:
                seen.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            time.sleep(0.05)
    for path in Path("/dev/shm").glob("torch_*"):
        if path.name.split("_")[1] in map(str, seen):
            path.unlink(missing_ok=True)
