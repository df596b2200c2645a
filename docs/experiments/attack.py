"""Does it hold? Kills, hostile benchmarks, damaged files, odd names and double starts, by count and seed.

    python docs/experiments/attack.py                                   # all, in full: hours on two cores
    python docs/experiments/attack.py kills=20 starts=10 names --seed 7

Prints, for each attack, how often it was tried and what broke; the exit code is 1 if anything did. A try depends only
on the seed and its number, so ``kills=1 --seed 107`` repeats the eighth of ``kills=20 --seed 100``.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import measuring_stub  # noqa: E402 - the tests' own
import mutations  # noqa: E402

from gpubench.commands import cli  # noqa: E402
from gpubench.errors import RunFileError  # noqa: E402
from gpubench.runfile.ledger import read_ledger  # noqa: E402
from gpubench.supervise import process as measuring  # noqa: E402

GPUBENCH = [sys.executable, "-m", "gpubench"]
STUB = ["gpubench of a fork"]
"""The same command line, journal, supervisor and report, see :class:`Fork`."""
ONE_IN = 10
"""One of this many tries measures and the others use a stub, since measuring takes ten times as long."""
RUN_WORDS = ["run", "--charts=none", "--no-ceilings", "--device=cpu"]
RUN = [*GPUBENCH, *RUN_WORDS]
CASES = 10
SUITE = """
import pytest, time

@pytest.mark.parametrize("n", range(10))
def test_sleep(gpubench, n):
    gpubench(lambda x: x.is_meta or time.sleep(0.02), gpubench.randn(n + 1), check=False)
"""
LONGEST_S = 20.0
"""Seconds after which a reader or a refusal counts as hanging."""
CHUNK = 100
"""Number of damaged files that are drawn at once."""
Broken = list[str]


# Processes ------------------------------------------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the children's scratch files lie inside the folder, so that what they leave can be
    found."""
    (folder / "scratch").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder / "scratch"), "PYTHONPATH": str(ROOT)}


class Fork:
    """``gpubench`` in a fork of this process, which has already imported the slow modules, with the methods of a
    ``Popen``. The measuring processes that it starts write a journal and don't load torch."""

    def __init__(self, words: list[str], folder: Path) -> None:
        _import_all()
        self._output = folder / f"printed-{time.monotonic_ns()}.txt"
        arguments = (words, folder, self._output)
        self._process = multiprocessing.get_context("fork").Process(target=_in_fork, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def wait(self, timeout: float) -> None:
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired(STUB, timeout)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Return what the process printed, errors included."""
        self.wait(timeout)
        return self._output.read_text(errors="replace") if self._output.exists() else "", ""


@functools.cache
def _import_all() -> None:
    """Import what a run and its report need."""
    with tempfile.TemporaryDirectory(prefix="imports-") as name:
        (Path(name) / "run.json").write_text(json.dumps(mutations.RUNS[0]))
        _commands([["report", f"{name}/run.json", "-o", f"{name}/out", "--charts=none"], ["run", "--help"]])


def _in_fork(words: list[str], folder: Path, output: Path) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment(folder))
    tempfile.tempdir, sys.argv = None, ["gpubench", *words]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr = output.open("a")
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    measuring.pytest_command = measuring_stub.slow_command
    sys.exit(cli.main(words))


def begun(command: list[str], folder: Path) -> subprocess.Popen[str] | Fork:
    """Start a command in a folder; errors are printed among its output."""
    if command[:1] == STUB:
        return Fork(command[1:], folder)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment(folder), start_new_session=True, **streams)


def call(command: list[str], folder: Path, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    if command[:1] == STUB:
        fork = Fork(command[1:], folder)
        text, _ = fork.communicate(timeout)
        return subprocess.CompletedProcess(command, fork.returncode or 0, "", text)
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, errors="replace", text=True, timeout=timeout
    )


def left_over(folder: Path, patience_s: float = 0.0, after_kill: bool = False) -> Broken:
    """Return the processes that still refer to the folder after ``patience_s`` seconds, and scratch files, unless the
    process was just killed and couldn't remove them."""
    end = time.monotonic() + patience_s
    while (left := _processes_in(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    scratch = [path for path in (folder / "scratch").glob("*") if not path.name.startswith("torchinductor")]
    files = [f"scratch left: {path.name}" for path in scratch]
    files += [f"part left: {path.name}" for path in folder.rglob("*.part")]
    return left if after_kill else left + files


def _processes_in(folder: Path) -> Broken:
    names = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            about = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
            names += [f"process left over: {process.info['pid']}"] if any(str(folder) in each for each in about) else []
    return names


def traceback_in(done: subprocess.CompletedProcess[str]) -> Broken:
    """Return a traceback that a user would see."""
    return _traceback(done.stdout + done.stderr)


def _traceback(text: str) -> Broken:
    shown = text.partition("Traceback (most recent call last)")[2]
    return [f"traceback: {shown.strip().splitlines()[-1][:200]}"] if shown.strip() else []


def rows_of(run_file: Path) -> tuple[set[str], dict[str, str]]:
    """Return the names that were measured, and those that weren't, with the reason."""
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
        processes = 2 if number % 3 == 0 else 1
        program = GPUBENCH if number % ONE_IN == 0 else STUB
        start = [*program, *RUN_WORDS, "test_suite.py", "--preset=smoke", f"--processes={processes}"]
        supervisor = begun(start, folder)
        _wait_for_moment(chance, supervisor, folder / "out/run.ledger.jsonl", processes, _START_S[program is STUB])
        with contextlib.suppress(psutil.NoSuchProcess):  # a stub may have ended meanwhile
            process = psutil.Process(supervisor.pid)
            victims = process.children() if whom != "supervisor" else []
            for victim in victims if whom == "measuring process" and victims else [*victims, process]:
                victim.send_signal(how)
        supervisor.wait(timeout=120)
        broken = left_over(folder, patience_s=5.0, after_kill=True)
        return broken + _resumed(folder, program, start)


_START_S = (5.0, 1.0)
"""Seconds that a run takes to start, and a stub."""


def _wait_for_moment(
    chance: random.Random, run: subprocess.Popen[str] | Fork, journal: Path, processes: int, start_s: float
) -> None:
    """Wait for the moment of the kill: one in five is while the run starts, the others are after an event of the
    journal, up to the last."""
    if chance.random() < 0.2:
        time.sleep(chance.uniform(0.0, start_s))
        return
    events, delay = chance.randint(1, 2 + processes * (2 * CASES + 2)), chance.choice([0.0, 0.01, 0.1, 0.5])
    while run.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < events):
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, delay))


def _resumed(folder: Path, program: list[str], start: list[str]) -> Broken:
    ledger = folder / "out/run.ledger.jsonl"
    ended: dict[tuple[str, int], Any] = {}
    before = ledger.read_bytes() if ledger.exists() else b""
    if b'"event": "session"' in before:
        try:
            events = read_ledger(ledger)
        except RunFileError as error:
            return [f"unreadable: {error}"]
        measured = [event for event in events if event["event"] == "end" and event["status"] == "ok"]
        ended = {(event["fullname"], event["process"]): event["benchmark"]["stats"]["data"] for event in measured}
    done = call([*program, "run", "--charts=none", "--resume", "out"] if b'"event": "run"' in before else start, folder)
    if not (folder / "out/run.json").exists():
        return [f"no run file after it was resumed: {done.stderr[-300:]}"]
    names, refused = rows_of(folder / "out/run.json")
    benchmarks = json.loads((folder / "out/run.json").read_text())["benchmarks"]
    data = {benchmark["fullname"]: benchmark["stats"]["data"] for benchmark in benchmarks}
    starts = Counter(
        (event["fullname"], event["process"]) for event in read_ledger(ledger) if event["event"] == "start"
    )
    broken = [f"lost: {name}" for name, _ in ended if name not in names]
    broken += [f"measured again: {key}" for key in ended if starts[key] > 1]
    broken += [
        f"twice in the file: {name}" for name, count in Counter(b["fullname"] for b in benchmarks).items() if count > 1
    ]
    broken += [f"changed: {name}" for (name, _), samples in ended.items() if not _holds(data.get(name, []), samples)]
    broken += [] if ledger.read_bytes().startswith(before) else ["the journal was changed"]
    broken += ["incomplete"] if len(names | refused.keys()) != CASES else []
    ends = [event["status"] for event in read_ledger(ledger) if event["event"] == "end"]  # of every process
    failed = int(not set(ends) <= {"ok", "skipped"})
    broken += [f"ended with {done.returncode}"] if done.returncode != failed else []
    return broken + traceback_in(done) + left_over(folder)


def _holds(data: list[float], samples: list[float]) -> bool:
    """Whether the samples of a process are among those of all, in their order."""
    return any(data[at : at + len(samples)] == samples for at in range(len(data) - len(samples) + 1))


# Hostile benchmarks ---------------------------------------------------------------------------------------------------


def hostile(number: int) -> Broken:
    """All kinds of ``hostile_suite`` in one run: each healthy case is measured, each hostile one has its row."""
    suite = Path(__file__).with_name("hostile_suite.py")
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        done = call([*RUN, str(suite), "--processes=1", "--deadline=60", f"--seed={number}"], folder, 3 * 3600)
        return _judged(folder, done)


def _judged(folder: Path, done: subprocess.CompletedProcess[str]) -> Broken:
    """Return what is wrong with a run of hostile benchmarks that has ended."""
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
        ["report", "out/run.json", "-o", "again", "--charts=none"],
        ["show", "out"],
        ["export", "out/run.json", "--to=csv"],
    ):
        read = call([*GPUBENCH, *again], folder)
        broken += [f"{again[0]} ended with {read.returncode}"] if read.returncode else []
        broken += traceback_in(read)
    return broken


def _slower(run_file: Path) -> Broken:
    """Return unflagged healthy cases that earlier cases made slower: to more than twice the median of all."""
    marks = [b for b in json.loads(run_file.read_text())["benchmarks"] if "healthy-after-" in b["fullname"]]
    medians = sorted(mark["stats"]["median"] for mark in marks)
    usual = medians[len(medians) // 2]
    return [
        f"slower without a flag: {mark['fullname']}: {mark['stats']['median'] / usual:.1f}×"
        for mark in marks
        if mark["stats"]["median"] > 2 * usual and not _flags(mark)
    ]


def _flags(mark: dict[str, Any]) -> list[Any]:
    return [flag for process in mark["extra_info"]["gpubench"]["processes"] for flag in process["flags"]]


# Damaged files, hostile names -----------------------------------------------------------------------------------------

KINDS = {
    "file": mutations.RUN_FILES,
    "journal": mutations.LEDGERS,
}


def drawn(kind: str, number: int) -> bytes:
    """Return one example of a kind, by number."""
    examples = _chunk(kind, number // CHUNK)
    return examples[number % len(examples)]


@functools.lru_cache(maxsize=1)
def _chunk(kind: str, number: int) -> list[bytes]:
    """Return :data:`CHUNK` examples at once, since each drawing costs as much as ten examples. The first, which is
    always the simplest, is left out."""
    examples: list[bytes] = []
    phases = {"database": None, "deadline": None, "phases": (Phase.generate,)}

    @seed(number)
    @settings(max_examples=CHUNK + 1, suppress_health_check=list(HealthCheck), **phases)
    @given(KINDS[kind])
    def take(content: bytes) -> None:
        examples.append(content)

    take()
    return examples[1:]


def _commands(arguments: list[list[str]], allowed: tuple[int, ...] = (0, 2)) -> Broken:
    """Run commands in this process, and return what they broke."""
    broken = []
    for words in arguments:
        out, err = io.StringIO(), io.StringIO()
        began = time.process_time()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = cli.main(words)
        except SystemExit as end:
            code = end.code
        if code == cli.INTERRUPTED:  # by whoever stops the attack
            raise KeyboardInterrupt
        took, text = time.process_time() - began, out.getvalue() + err.getvalue()
        broken += [f"{words[0]}: {each}" for each in _traceback(text)]
        broken += [f"{words[0]} took {took:.0f} s"] if took > LONGEST_S else []
        broken += [f"{words[0]} ended with {code}: {err.getvalue()[-200:]}"] if code not in allowed else []
        broken += [f"{words[0]} ended with {code} and said nothing"] if code and not text else []
        broken += (
            [f"{words[0]}: {code} without a slowdown"] if words[0] == "compare" and _false_alarm(code, text) else []
        )
        odd = {c for c in text if not c.isprintable() and c not in "\n\t"}
        broken += [f"{words[0]} printed {odd}"] if odd else []
    return broken


def _false_alarm(code: Any, text: str) -> bool:
    return code == 1 and "slower" not in text


def damaged_file(number: int) -> Broken:
    """Pass a mutated run file through the tables, and in turn through the terminal, a conversion and a comparison."""
    with tempfile.TemporaryDirectory(prefix="file-") as name:
        path, sound = Path(name) / "run.json", Path(name) / "sound.json"
        path.write_bytes(drawn("file", number))
        sound.write_text(json.dumps(mutations.RUNS[0]))
        export = ["export", str(path), "-o", f"{name}/exported", f"--to={EXPORTS[number % len(EXPORTS)]}"]
        compare = ["compare", str(sound), str(path), "--across-machines"]
        further = (["show", str(path)], export, compare)[number // len(EXPORTS) % 3]
        broken = _commands([["report", str(path), "-o", f"{name}/out", "--charts=none"]])
        broken += _commands([further], (0, 1, 2, 3) if further is compare else (0, 2))
        return broken + _tables(Path(name) / "out")


EXPORTS = ("github-action-benchmark", "bmf", "oss", "csv", "markdown", "rst", "html")


def _tables(folder: Path) -> Broken:
    """Return what is wrong with the CSV files of a folder."""
    broken = []
    for table in folder.glob("*.csv"):
        rows = list(csv.reader(io.StringIO(table.read_text())))
        broken += [f"{table.name}: uneven rows"] if len({len(row) for row in rows}) > 1 else []
        cells = [cell for row in rows for cell in row]
        broken += [f"{table.name}: a formula"] if any(cell.startswith(FORMULAS) for cell in cells) else []
    return broken


FORMULAS = ("=", "+", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff20")
"""First characters of cells that a spreadsheet computes; the last ones are full-width signs."""


def damaged_journal(number: int) -> Broken:
    """Pass a mutated journal through recover and through a resume that refuses, or whose measuring processes end at
    once."""
    with tempfile.TemporaryDirectory(prefix="journal-") as name:
        out = Path(name) / "out"
        out.mkdir()
        journal = out / "run.ledger.jsonl"
        journal.touch()
        content = drawn("journal", number).replace(b"%d" % mutations.INODE, b"%d" % journal.stat().st_ino)
        content = content.replace(b'"/b"', json.dumps(name).encode())
        journal.write_bytes(content)
        broken = _commands([["recover", str(journal), "-o", f"{name}/recovered.json"]])
        with _nothing_measured():
            broken += _commands([["run", "--resume", str(out), "--charts=none"]], (0, 1, 2))
        broken += ["journal deleted"] if not journal.exists() else []
        broken += ["journal changed"] if not journal.read_bytes().startswith(content) else []
        return broken + _tables(out)


@contextlib.contextmanager
def _nothing_measured() -> Iterator[None]:
    """A context in which measuring processes end at once: a damaged journal names files and options that must not be
    run."""
    usual = measuring.pytest_command
    measuring.pytest_command = lambda *_: ["true"]
    try:
        yield
    finally:
        measuring.pytest_command = usual


NAMES = [
    *("a\nb", "a\rb", "\x1b[31mred", "\x1b]0;title\x07", "\u202egnp", "\u2028line", "\udcff", "é" * 100, "x" * 240),
    *("=1+1", "+1", "@everyone", "a;b", "\uff1d1+1", "-rf", "--help", "$(touch x)", "%s", "{0}", "*", "#1", " ", "~"),
    *("<script>alert(1)<", "[x](javascript:1)", "![x](http:x)", "`code`", "| a | b |", "<!-- x", "\\", "&amp;"),
]


def named(number: int) -> Broken:
    """Give a run file and a folder an absurd name: no character of it may have an effect anywhere."""
    name = NAMES[number % len(NAMES)]
    with tempfile.TemporaryDirectory(prefix="name-") as temporary:
        folder = Path(temporary) / name
        folder.mkdir()
        path = folder / f"{name}.json"[-200:]
        path.write_text(json.dumps(mutations.RUNS[0]))
        out = folder / "out"
        broken = _commands(
            [
                ["report", str(path), "-o", str(out), "--charts=all"],
                ["report", str(folder), "-o", str(out / "again"), "--charts=none"],
                ["show", str(path)],
                *(["export", str(path), "-o", f"{folder}/exported.{to}", f"--to={to}"] for to in EXPORTS),
                ["compare", str(path), str(path), "--format=markdown"],
                ["compare", str(path), str(path)],
                ["recover", str(path), "-o", str(folder / "made")],
                ["run", "--resume", str(folder)],
            ],
            (0, 2, 3),
        )
        broken += [f"{name!a} acts in {mark}" for mark in _active(out)]
        return [f"{each} ({name!a})" for each in broken + _tables(out)]


def _active(out: Path) -> list[str]:
    """Return where a name became markup, a link or a control character."""
    summary = (out / "summary.md").read_text() if (out / "summary.md").exists() else ""
    page = (out / "report.html").read_text() if (out / "report.html").exists() else ""
    signs = ("<script>alert", "[x](javascript", "![x](http", "@everyone")
    active = [f"summary.md: {sign}" for sign in signs if re.search(rf"(?<!\\){re.escape(sign)}", summary)]
    active += [f"report.html: {sign}" for sign in signs[:1] if sign in page]
    return active + [f"{file}: control" for file, text in (("md", summary), ("html", page)) if CONTROL.search(text)]


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e]")


# Starts ---------------------------------------------------------------------------------------------------------------


@functools.lru_cache
def _finished() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with a finished run, for copying. It is removed when this process ends."""
    temporary = tempfile.TemporaryDirectory(prefix="finished-")
    folder = Path(temporary.name)
    (folder / "test_suite.py").write_text(SUITE)
    done = call([*STUB, *START_WORDS], folder)
    if done.returncode:
        raise ValueError(f"the suite can't be measured: {done.stderr[-500:]}")
    return temporary


START_WORDS = [*RUN_WORDS, "test_suite.py", "--preset=smoke", "--processes=1"]


def double_start(number: int) -> Broken:
    """Begin two runs in one folder: one must measure, and the other must report that and change nothing."""
    chance = random.Random(number)
    with tempfile.TemporaryDirectory(prefix="start-") as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE)
        earlier = chance.random() < 0.5
        if earlier:
            finished = _finished()
            shutil.copytree(Path(finished.name) / "out", folder / "out")
        program = GPUBENCH if number % ONE_IN == 0 else STUB
        started = []
        for _ in range(2):
            started.append(begun([*program, *START_WORDS], folder))
            time.sleep(chance.choice([0.0, 0.01, 0.1, 0.5, 2.0]))
        texts = [process.communicate(timeout=300)[0] for process in started]
        codes = sorted(process.returncode for process in started)
        broken = [f"exit codes {codes}: {texts[-1][-300:]}"] if codes not in ([0, 2], [0, 0]) else []
        broken += [each for text in texts for each in _traceback(text)]
        runs = sorted((folder / "out").glob("run*.json"))
        wanted = codes.count(0) + earlier
        broken += [f"{len(runs)} run files, not {wanted}"] if len(runs) != wanted else []
        for path in runs:
            journal = path.with_name(f"{path.stem}.ledger.jsonl")
            broken += [f"{journal.name} is gone"] if not journal.exists() else []
            count = len(rows_of(path)[0])
            broken += [f"{path.name} holds {count} of {CASES}"] if count != CASES else []
        return broken + left_over(folder, patience_s=5.0)


ATTACKS: dict[str, tuple[Callable[[int], Broken], int]] = {
    "kills": (kill, 200),
    "hostile": (hostile, 1),
    "files": (damaged_file, 20_000),
    "journals": (damaged_journal, 2_000),
    "names": (named, len(NAMES)),
    "starts": (double_start, 100),
}
"""The function of one try, which takes its number, and how many tries a full attack has; by name."""


def tried(name: str, number: int) -> list[str]:
    """Return what one try broke."""
    one_try, _ = ATTACKS[name]
    try:
        return [f"{name} {number}: {each}" for each in one_try(number)]
    except Exception as error:  # a defect of the attack itself must not hide what other tries broke
        return [f"{name} {number}: {type(error).__name__}: {str(error)[:200]}"]


def tries(name: str, count: int, seed: int, parallel: int) -> Iterator[Broken]:
    """Yield what each of ``count`` tries broke, with its number."""
    one_try, numbers = functools.partial(tried, name), range(seed, seed + count)
    if parallel == 1:
        yield from map(one_try, numbers)
        return
    pool = ProcessPoolExecutor if name in (*IN_PROCESS, *FORKING) else ThreadPoolExecutor
    with pool(parallel) as workers:
        yield from workers.map(one_try, numbers, chunksize=CHUNK if name in IN_PROCESS else 1)


def attack(name: str, count: int, seed: int, parallel: int) -> Broken:
    """Return all that ``count`` tries broke."""
    return [each for broken in tries(name, count, seed, parallel) for each in broken]


IN_PROCESS, FORKING = ("files", "journals", "names"), ("kills", "starts")
"""The former redirect their process's output, and the latter must not be forked while several threads run."""


def chosen(words: list[str]) -> Iterator[tuple[str, int]]:
    """Yield ("kills", 20) for ``kills=20``; all attacks in full if none is named."""
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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, also by all children
    anything = False
    print("| attack | tried | broken | seconds |\n|---|---:|---:|---:|", flush=True)
    for name, count in chosen(args.attacks):
        began, done, all_broken, stopped = time.monotonic(), 0, 0, False
        try:
            for broken in tries(name, count, args.seed, args.parallel):
                done, all_broken = done + 1, all_broken + len(broken)
                print("".join(f"{line}\n" for line in broken), end="", file=sys.stderr, flush=True)
        except KeyboardInterrupt:  # finished tries count
            stopped = True
        anything = anything or all_broken > 0 or stopped
        print(f"| {name} | {done:,} | {all_broken} | {time.monotonic() - began:.0f} |", flush=True)
        if stopped:
            break
    return int(anything)


if __name__ == "__main__":
    raise SystemExit(main())
