"""Does it hold? Kills, hostile benchmarks, damaged files, double starts and files of others, by count and seed.

    python docs/experiments/attack.py                                   # all, in full: hours on two cores
    python docs/experiments/attack.py kills=20 starts=10 foreign --seed 7

Prints, for each attack, how often it was tried and what broke; the exit code is 1 if anything did. A try depends only
on the seed and its number, so ``kills=1 --seed 107`` repeats the eighth of ``kills=20 --seed 100``.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import getpass
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import mutations  # noqa: E402 - the tests' own

from gpubench.commands import cli  # noqa: E402
from gpubench.errors import GpubenchError, RunFileError  # noqa: E402
from gpubench.runfile.ledger import read_ledger  # noqa: E402

RUN = [sys.executable, "-m", "gpubench", "run", "--no-charts", "--no-ceilings", "--device=cpu"]
REPORT = [sys.executable, "-m", "gpubench", "report"]
CASES = 10
SUITE = """
import pytest, time

@pytest.mark.parametrize("n", range(10))
def test_sleep(gpubench, n):
    gpubench(lambda x: x.is_meta or time.sleep(0.04), gpubench.randn(n + 1), check=False)
"""
LONGEST_S = 20.0
"""A reader or a refusal that takes longer hangs."""
Broken = list[str]


# Processes ------------------------------------------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
    """With scratch files of the children inside the folder, to see what is left of them."""
    (folder / "scratch").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder / "scratch"), "PYTHONPATH": str(ROOT)}


def call(command: list[str], folder: Path, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, errors="replace", text=True, timeout=timeout
    )


def left_over(folder: Path) -> Broken:
    """Processes whose command line or working folder lies there, and scratch files."""
    names = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            about = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
            names += [f"process left over: {process.info['pid']}"] if any(str(folder) in each for each in about) else []
    scratch = [path for path in (folder / "scratch").glob("*") if not path.name.startswith("torchinductor")]
    parts = [path.name for path in folder.rglob("*.part")]
    return names + [f"scratch left: {path.name}" for path in scratch] + [f"part left: {name}" for name in parts]


def traceback_in(done: subprocess.CompletedProcess[str]) -> Broken:
    """A traceback that a person would see."""
    return ["traceback"] if "Traceback (most recent call last)" in done.stdout + done.stderr else []


def rows_of(run_file: Path) -> tuple[set[str], dict[str, str]]:
    """Names that were measured, and names with the reason why not."""
    data = json.loads(run_file.read_text())
    measured = {benchmark["fullname"] for benchmark in data["benchmarks"]}
    return measured, {row["fullname"]: row["reason"] for row in data["gpubench"]["unmeasured"]}


# Kills ----------------------------------------------------------------------------------------------------------------

KILLS = [
    (whom, number)
    for whom in ("supervisor", "measuring process", "both")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
] + [("measuring process", signal.SIGSEGV)]


def kill(number: int) -> Broken:
    """Kill a run at a random moment and resume it: nothing finished is lost, doubled or changed."""
    chance = random.Random(number)
    whom, how = KILLS[number % len(KILLS)]
    with tempfile.TemporaryDirectory(prefix="kill-") as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE)
        options = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        start = [*RUN, "test_suite.py", "--processes=1"]
        supervisor = subprocess.Popen(start, env=environment(folder), start_new_session=True, **options)
        time.sleep(chance.uniform(0.1, 9.0))
        children = psutil.Process(supervisor.pid).children() if supervisor.poll() is None else []
        victims = children if whom != "supervisor" else []
        victims = victims if whom == "measuring process" and children else [*victims, psutil.Process(supervisor.pid)]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(how)
        supervisor.wait(timeout=120)
        time.sleep(0.5)
        broken = [each for each in left_over(folder) if each.startswith("process")]
        return broken + _resumed(folder, start)


def _resumed(folder: Path, start: list[str]) -> Broken:
    ledger = folder / "out/run.ledger.jsonl"
    ended: dict[str, Any] = {}
    begun = ledger.exists() and '"event": "run"' in ledger.read_text()
    if begun and '"event": "session"' in ledger.read_text():
        try:
            events = read_ledger(ledger)
        except RunFileError as error:
            return [f"unreadable: {error}"]
        ended = {e["fullname"]: e["benchmark"] for e in events if e["event"] == "end" and e["status"] == "ok"}
    done = call([*RUN, "--resume", "out"] if begun else start, folder)
    measured, refused = rows_of(folder / "out/run.json")
    starts = Counter(e["fullname"] for e in read_ledger(ledger) if e["event"] == "start")
    data = {each["fullname"]: each for each in json.loads((folder / "out/run.json").read_text())["benchmarks"]}
    broken = [f"lost: {name}" for name in ended.keys() - measured]
    broken += [f"measured again: {name}" for name in ended if starts[name] > 1]
    broken += [
        f"changed: {name}" for name, mark in ended.items() if data[name]["stats"]["data"] != mark["stats"]["data"]
    ]
    broken += ["incomplete"] if len(measured | refused.keys()) != CASES else []
    return broken + traceback_in(done) + left_over(folder)


# Hostile benchmarks ---------------------------------------------------------------------------------------------------


def hostile(number: int) -> Broken:
    """All kinds of ``hostile_suite`` in one run: each healthy case is measured, each hostile one has its row."""
    suite = Path(__file__).with_name("hostile_suite.py")
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        done = call([*RUN, str(suite), "--processes=1", "--deadline=10", f"--seed={number}"], folder, 3 * 3600)
        if not (folder / "out/run.json").exists():
            return [f"no run file: {done.stderr[-500:]}"]
        measured, refused = rows_of(folder / "out/run.json")
        ledger = read_ledger(folder / "out/run.ledger.jsonl")
        cases = next(event["cases"] for event in ledger if event["event"] == "session")
        healthy = [case for case in cases if "healthy-after-" in case]
        broken = [f"healthy, not measured: {case}: {refused.get(case)}" for case in healthy if case not in measured]
        broken += [f"no row: {case}" for case in cases if case not in measured and case not in refused]
        broken += [f"no reason: {case}" for case, reason in refused.items() if not reason]
        broken += _slower(folder / "out/run.json") + traceback_in(done) + left_over(folder)
        for again in (
            ["report", "out/run.json", "-o", "again", "--no-charts"],
            ["show", "out"],
            ["export", "out/run.json"],
        ):
            read = call([*RUN[:3], *again], folder)
            broken += [f"{again[0]} ended with {read.returncode}"] if read.returncode else []
            broken += traceback_in(read)
        return broken


def _slower(run_file: Path) -> Broken:
    """Healthy cases that what came before them made slower, without a flag: twice the median of all."""
    marks = [b for b in json.loads(run_file.read_text())["benchmarks"] if "healthy-after-" in b["fullname"]]
    medians = sorted(mark["stats"]["median"] for mark in marks)
    usual = medians[len(medians) // 2]
    return [
        f"slower without a flag: {mark['fullname']}: {mark['stats']['median'] / usual:.1f}×"
        for mark in marks
        if mark["stats"]["median"] > 2 * usual and not mark["extra_info"]["gpubench"]["flags"]
    ]


# Damaged files --------------------------------------------------------------------------------------------------------


def drawn(strategy: Any, number: int) -> bytes:
    """One example of a strategy, by number; not the first, which is always the simplest."""
    examples: list[bytes] = []

    @seed(number)
    @settings(
        max_examples=6, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate,)
    )
    @given(strategy)
    def take(content: bytes) -> None:
        examples.append(content)

    take()
    return examples[-1]


def _commands(arguments: list[list[str]], allowed: tuple[int, ...] = (0, 2)) -> Broken:
    """Run commands in this process; what they broke."""
    broken = []
    for words in arguments:
        out, err = io.StringIO(), io.StringIO()
        began = time.process_time()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = cli.main(words)
        except SystemExit as end:
            code = end.code
        except Exception as error:  # what an attack looks for
            broken.append(f"{words[0]}: {type(error).__name__}: {str(error)[:200]}")
            continue
        took = time.process_time() - began
        broken += [f"{words[0]} took {took:.0f} s"] if took > LONGEST_S else []
        broken += [f"{words[0]} ended with {code}: {err.getvalue()[-200:]}"] if code not in allowed else []
        text = out.getvalue() + err.getvalue()
        broken += (
            [f"{words[0]} printed a control character"]
            if any(not c.isprintable() and c not in "\n\t" for c in text)
            else []
        )
    return broken


def damaged_file(number: int) -> Broken:
    """A mutated run file through tables, comparison, conversion and the terminal."""
    with tempfile.TemporaryDirectory(prefix="file-") as name:
        path, sound = Path(name) / "run.json", Path(name) / "sound.json"
        path.write_bytes(drawn(mutations.RUN_FILES, number))
        sound.write_text(json.dumps(mutations.RUNS[0]))
        broken = _commands(
            [
                ["report", str(path), "-o", f"{name}/out", "--no-charts"],
                ["show", str(path)],
                ["export", str(path), "-o", f"{name}/export.json"],
            ]
        )
        broken += _commands([["compare", "--base", str(sound), "--new", str(path), "--across-machines"]], (0, 1, 2, 3))
        for table in Path(name).glob("out/*.csv"):
            rows = list(csv.reader(io.StringIO(table.read_text())))
            broken += [f"{table.name}: uneven rows"] if len({len(row) for row in rows}) > 1 else []
        return broken


def damaged_journal(number: int) -> Broken:
    """A mutated journal through recover and a resume that has nothing to measure, or refuses."""
    with tempfile.TemporaryDirectory(prefix="journal-") as name:
        out = Path(name) / "out"
        out.mkdir()
        journal = out / "run.ledger.jsonl"
        content = drawn(mutations.LEDGERS, number)
        journal.write_bytes(content)
        broken = _commands([["recover", str(journal), "-o", f"{name}/recovered.json"]])
        # Of what it was begun with nothing exists any more, so that no resume goes on to measure.
        broken += _commands([["run", "--resume", str(out), "--no-charts"]], (0, 1, 2))
        broken += ["journal deleted"] if not journal.exists() else []
        broken += ["journal changed"] if not journal.read_bytes().startswith(content) else []
        return broken


# Starts and files of others -------------------------------------------------------------------------------------------


def double_start(number: int) -> Broken:
    """Two runs begun in one folder: one measures, the other says so and touches nothing."""
    chance = random.Random(number)
    with tempfile.TemporaryDirectory(prefix="start-") as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE.replace("range(10)", "range(2)"))
        earlier = chance.random() < 0.5
        if earlier:
            call([*RUN, "test_suite.py", "--processes=1"], folder)
        started = []
        for _ in range(2):
            started.append(
                subprocess.Popen(
                    [*RUN, "test_suite.py", "--processes=1"],
                    cwd=folder,
                    env=environment(folder),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            time.sleep(chance.choice([0.0, 0.01, 0.1, 0.5, 2.0]))
        texts = [process.communicate(timeout=300)[0] for process in started]
        codes = sorted(process.returncode for process in started)
        broken = [f"exit codes {codes}: {texts[-1][-300:]}"] if codes not in ([0, 2], [0, 0]) else []
        broken += ["traceback"] if any("Traceback" in text for text in texts) else []
        runs = sorted((folder / "out").glob("run*.json"))
        wanted = codes.count(0) + earlier
        broken += [f"{len(runs)} run files, not {wanted}"] if len(runs) != wanted else []
        for path in runs:
            journal = path.with_name(f"{path.stem}.ledger.jsonl")
            broken += [f"{journal.name} is gone"] if not journal.exists() else []
            broken += [f"{path.name} holds {len(rows_of(path)[0])} of 2"] if len(rows_of(path)[0]) != 2 else []
        return broken + left_over(folder)


FOREIGN = [
    "out/run.json",
    "out/run.log",
    "out/run.ledger.jsonl",
    "out/summary.md",
    "out/results.csv",
    "out/speedup.csv",
    "out/crossover.csv",
    "out/report.html",
    "out/charts/headline.svg",
    "out/charts/c-dark.svg",
    "out/charts/notes.txt",
    "out/.written-by-gpubench.json",
    "out/run.1.json",
    "out/run.json.part",
    "out/turns/000-base/work.txt",
]
SET_UPS = [(name, way) for name in FOREIGN for way in ("a file", "a link")]


def foreign(number: int) -> Broken:
    """A file of somebody else where a run or report writes: kept, byte for byte, also behind a link."""
    name, way = SET_UPS[number % len(SET_UPS)]
    with tempfile.TemporaryDirectory(prefix="foreign-") as temporary:
        folder, content = Path(temporary), b"somebody's work\n"
        (folder / "test_suite.py").write_text(SUITE.replace("range(10)", "range(1)"))
        path, elsewhere = folder / name, folder / "elsewhere.txt"
        path.parent.mkdir(parents=True)
        if way == "a link":
            elsewhere.write_bytes(content)
            path.symlink_to(elsewhere)
        else:
            path.write_bytes(content)
        done = call([*RUN, "test_suite.py", "--processes=1"], folder)
        again = call([*REPORT, str(ROOT / "results/xeon-2-cores/run.json"), "-o", "out", "--no-charts"], folder)
        keeps = elsewhere if way == "a link" else path
        held = [each for each in folder.rglob("*") if each.is_file() and each.read_bytes() == content]
        broken = [] if held else [f"{name}: gone"]
        if held and keeps not in held and not any(each.name.startswith("run.") for each in held):
            broken = [f"{name}: moved to {held[0].name}"]
        broken += (
            [f"{name}: the link is gone"]
            if way == "a link" and not any(p.is_symlink() for p in path.parent.glob("*"))
            else []
        )
        codes = (done.returncode, again.returncode)
        broken += [f"{name}: exit codes {codes}"] if not set(codes) <= {0, 2} else []
        return [f"{each} ({way})" for each in broken] + traceback_in(done) + traceback_in(again)


# What a published file says -------------------------------------------------------------------------------------------


def secrets(folder: Path) -> dict[str, str]:
    """Twenty texts that say whose machine it was, by where they are planted."""
    return {
        "folder": "secretfolder",
        "file": "secretfile",
        "home": "/home/secretuser/x",
        "include": "-I/opt/secretprefix/include",
        "windows": r"C:\Users\secretwindows\x",
        "unc": r"\\secretserver\share\x",
        "token": "https://u:secrettoken@host.example/x",
        "query": "https://host.example/?key=secretkey",
        "host": "https://secrethost.internal:8080/x",
        "tilde": "~secrettilde/x",
        "address": "10.11.12.13",
        "address6": "fe80::1234:5678:9abc:def0",
        "ssh": "secretssh@10.9.8.7:/x",
        "spaces": "/srv/secret space/x",
        "file-url": "file:///srv/secreturl/x",
        "quoted": "'/srv/secretquoted/x'",
        "colon": "PATH=/bin:/srv/secretcolon/bin",
        "mail": "secretmail@host.example",
        "user": getpass.getuser(),
        "hostname": socket.gethostname(),
    }


def privacy(number: int) -> Broken:
    """Identifying texts in errors, options and names of folders: none is in what is meant to be published."""
    with tempfile.TemporaryDirectory(prefix="private-") as name:
        planted = secrets(Path(name))
        folder = Path(name) / planted["folder"]
        folder.mkdir()
        texts = [text for key, text in planted.items() if key not in ("folder", "file", "user", "hostname")]
        (folder / f"test_{planted['file']}.py").write_text(
            f"import pytest, torch\nTEXTS = {texts!r}\n\n@pytest.mark.parametrize('i', range({len(texts)}))\n"
            "def test_raises(gpubench, i):\n    raise ValueError('near ' + TEXTS[i])\n\n"
            "def test_sound(gpubench):\n    gpubench(torch.neg, gpubench.randn(9))\n"
        )
        done = call([*RUN, str(folder / f"test_{planted['file']}.py"), "--processes=1"], folder)
        published = [folder / "out" / each for each in ("run.json", "results.csv", "summary.md", "report.html")]
        if missing := [path.name for path in published if not path.exists()]:
            return [f"not written: {missing}: {done.stderr[-300:]}"]
        content = "".join(path.read_text() for path in published)
        marks = {key: _word(text) for key, text in planted.items()}
        common = {
            "file",
            *[key for key in ("user", "hostname") if len(planted[key]) < 3 or planted[key] in ("root", "localhost")],
        }
        return [f"{key} is published: {text}" for key, text in marks.items() if key not in common and text in content]


def _word(text: str) -> str:
    """The part of a planted text that identifies."""
    found = re.search(r"secret\w+", text)
    return found.group() if found else text


ATTACKS: dict[str, tuple[Callable[[int], Broken], int]] = {
    "kills": (kill, 200),
    "hostile": (hostile, 1),
    "files": (damaged_file, 20_000),
    "journals": (damaged_journal, 2_000),
    "starts": (double_start, 100),
    "foreign": (foreign, len(SET_UPS)),
    "privacy": (privacy, 1),
}
"""Name → one try by its number, and how many tries are a full attack."""


def attack(name: str, count: int, seed: int, parallel: int) -> list[str]:
    """Make so many tries; what broke, each with the try's number."""
    one_try, _ = ATTACKS[name]

    def tried(number: int) -> list[str]:
        try:
            return [f"{name} {number}: {each}" for each in one_try(number)]
        except (subprocess.TimeoutExpired, OSError, ValueError, GpubenchError) as error:
            return [f"{name} {number}: {type(error).__name__}: {str(error)[:200]}"]

    numbers = range(seed, seed + count)
    if parallel == 1 or name in ("files", "journals"):  # these redirect this process's output
        return [each for number in numbers for each in tried(number)]
    with ThreadPoolExecutor(parallel) as pool:
        return [each for group in pool.map(tried, numbers) for each in group]


def chosen(words: list[str]) -> Iterator[tuple[str, int]]:
    """``kills=20`` → ("kills", 20); all attacks in full where none is named."""
    for word in words or ATTACKS:
        name, _, count = word.partition("=")
        if name not in ATTACKS:
            raise SystemExit(f"attack: unknown attack {name!r}: choose from {', '.join(ATTACKS)}")
        yield name, int(count or ATTACKS[name][1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attacks", nargs="*", metavar="NAME[=COUNT]", help=", ".join(ATTACKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=2)
    args = parser.parse_args()
    anything = False
    print("| attack | tried | broken | seconds |\n|---|---:|---:|---:|", flush=True)
    for name, count in chosen(args.attacks):
        began = time.monotonic()
        broken = attack(name, count, args.seed, args.parallel)
        anything = anything or bool(broken)
        print("".join(f"{line}\n" for line in broken), end="", file=sys.stderr, flush=True)
        print(f"| {name} | {count:,} | {len(broken)} | {time.monotonic() - began:.0f} |", flush=True)
    return int(anything)


if __name__ == "__main__":
    raise SystemExit(main())
