"""Prove the figures of a CUDA GPU in steps, when one is at hand for minutes only. Nothing that was measured is lost.

    python docs/experiments/validate_gpu.py --list           # the steps, and how long each takes
    python docs/experiments/validate_gpu.py OUT               # as many as fit in nine minutes
    python docs/experiments/validate_gpu.py OUT --from OUT/validation.tar.gz    # go on, on this machine or another

Each call leaves one file, ``OUT/validation.tar.gz``, with all results so far and what is still to do. It is rewritten
every ten seconds, so a killed call loses no more than that. The next call begins with it, in any folder, and repeats no
measurement. The most valuable steps come first. A machine without a network needs the libraries that it lacks as wheels
(``--wheels FOLDER``); the first line of a call names them. Without a CUDA GPU the script ends with one line.

``--device``, ``--small``, ``--tests``, ``--suite`` and ``--saved-every`` are for rehearsals without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
ARCHIVE = "validation.tar.gz"
LIMIT_S, SAVED_EVERY_S = 540.0, 10.0
"""Seconds that a call may take, and seconds between two savings."""
AT_HAND_S = 1800.0
"""Seconds for which a GPU is often available: the first steps fit into them, and a line shows which don't."""
PATIENCE_S = 25.0
"""Seconds that a process may take to write its results when it is asked to stop."""
LARGEST_LOG = 1 << 20
LONGEST_REASON = 4000
DISTRIBUTIONS = ("torch", "triton", "numpy", "pytest", "pytest-benchmark", "py-cpuinfo2", "msgspec", "transformers")
REFERENCE = {
    "networks": (("models", "matmul", "llm", "serving"), 250.0, 230.0),
    "training": (("training", "attention", "quantised"), 195.0, 175.0),
    "elementwise": (("elementwise", "transfer", "classic"), 175.0, 160.0),
    "science": (("convolution", "reductions", "irregular", "linear_algebra", "fft", "sparse", "science"), 160.0, 150.0),
}
"""Runs of the preset quick, the most valuable first: families of benchmarks, and the seconds that their first process
and the other two take, on an H100 with 16 cores: half as many again as ``gpubench run --list`` estimates there, since
none has run on a GPU. ``gpubench report`` reads their results files together."""
FIRST = ", first process"
FULL_MIN = {
    "models": 130, "matmul": 23, "llm": 48, "serving": 6, "training": 72, "attention": 59, "quantised": 4,
    "elementwise": 35, "transfer": 15, "classic": 1, "convolution": 4, "reductions": 10, "irregular": 20,
    "linear_algebra": 45, "fft": 12, "sparse": 8, "science": 14,
}  # fmt: skip
"""Minutes of a family in the preset full, estimated from its number of benchmarks; fewer where many are too slow or too
large."""
PARALLEL = ("distributed", "data_parallel", "model_parallel")
TESTS_LOG = "GPUBENCH_VALIDATION_TESTS"

_MAMF = "stas00/ml-engineering, compute/accelerator"
_SEEN = "seen on such a machine"
_SHEET = "the reached share of NVIDIA's datasheet"
PUBLISHED: dict[str, dict[str, tuple[float, str]]] = {
    "GH200": {"bfloat16": (828.6e12, _MAMF)},
    "H200": {
        "bfloat16": (759e12, _MAMF), "float32": (51.3e12, _SHEET), "copy": (4.3e12, _SEEN),
        "host to device": (55.6e9, "NVIDIA's blog, nvbandwidth"), "launch": (4e-6, "susun-blog, pegainfer"),
    },
    "H100 PCIe": {"bfloat16": (433e12, _MAMF), "all-reduce of 2": (116e9, "nccl-tests#212")},
    "H100": {
        "bfloat16": (792e12, _MAMF), "float8": (1402.6e12, _MAMF), "float32": (51e12, _SHEET),
        "float64": (57e12, _SHEET), "copy": (3.0e12, _SEEN),
        "host to device": (55.6e9, "NVIDIA's blog, nvbandwidth"), "launch": (4e-6, "susun-blog, pegainfer"),
        "attention": (324e12, "FlashAttention-3, arXiv 2407.08608, fig. 5"), "clock": (1.98e9, _SEEN),
        "idle with a context": (121.7, "sglang#27567"), "all-reduce of 8": (480e9, "nccl-tests#272, #1161"),
        "GPT-2 training": (463e3, "modded-nanogpt's README"),
    },
    "A100": {
        "bfloat16": (271.2e12, _MAMF), "float32": (19.2e12, _SHEET), "copy": (1.6e12, _SEEN),
        "host to device": (26e9, _SEEN), "GPT-2 training": (195e3, "nanoGPT"),
    },
    "MI300X": {"bfloat16": (668e12, _MAMF)},
    "T4": {"float16": (24e12, "NVIDIA's forum, 264462: by its 70 W")},
}  # fmt: skip
"""What others measured, with the source, by the first name that a GPU's contains: FLOP/s of matrix products and of
attention (16k tokens, heads of 64, no mask), bytes/s of a copy (read and written), of pinned copies and of all-reduce
(bus bandwidth), seconds of a launch, the SM clock in Hz, watts, tokens/s of one GPU."""
UNITS = {"copy": "B/s", "launch": "s", "clock": "Hz", "idle with a context": "W", "GPT-2 training": "tokens/s"}
ELSEWHERE = {"GPT-2 training": "training.gpt2 of the reference run", "all-reduce of": "distributed, with several GPUs"}
"""Where facts are measured that one GPU's figures don't have."""
EXPLAINED = 0.95
"""Ratio to a published figure below which gpubench's figure must be explained or corrected."""


class Refused(Exception):
    """Raised if this machine or archive can't be used, with the reason."""


@dataclass(frozen=True)
class Step:
    """A part of the validation: its purpose, and about how many seconds it takes on one data-centre GPU.

    ``tries``: how often a step is begun that fails or runs out of time; one that resumes is continued without limit.
    """

    name: str
    text: str
    seconds: float
    families: tuple[str, ...] = ()
    tries: int = 2

    @property
    def resumes(self) -> bool:
        """Whether a call continues where an earlier one was ended."""
        return bool(self.families) or self.name.endswith("tests")

    @property
    def preset(self) -> str:
        """The preset of a reference run."""
        return self.name.partition(" ")[0]


def all_steps() -> list[Step]:
    """Return all steps, the most valuable first: every family's first process before the others."""
    reference = "reference run, preset quick, in three processes"
    runs = [(f"quick {title}", *entry) for title, entry in REFERENCE.items()]
    return [
        Step("sanity", "variables, facts, device times, bfloat16 with clocks and watts, layouts, TF32", 45),
        Step("gpu tests", "tests/test_gpu.py but for the suite's, test by test", 60),
        Step("figures", "products, attention, copies and launches beside published figures", 60),
        Step("timers", "our times beside torch.utils.benchmark.Timer and triton's do_bench", 75),
        *(
            Step(f"{name}{FIRST}", f"{reference}: {', '.join(names)}", first_s, names)
            for name, names, first_s, _ in runs
        ),
        Step("pitfalls", "what is read without a synchronization, and with TF32 left on", 40),
        *(Step(name, f"the other two processes: {', '.join(names)}", rest_s, names) for name, names, _, rest_s in runs),
        Step("tests", "pytest -m gpu tests/, the suite's benchmarks on tiny sizes among them", 300),
        *(Step(f"full {name}", f"preset full, {name} alone", 60.0 * most, (name,)) for name, most in FULL_MIN.items()),
        Step("quick parallel", f"{reference}, for several GPUs: {', '.join(PARALLEL)}", 900, PARALLEL),
    ]


@dataclass
class Call:
    """One call of this program: its options, its folders and its end."""

    out: Path
    work: Path
    begin: float
    limit_s: float
    device: str = "cuda"
    small: bool = False
    tests: str = "tests"
    suite: tuple[str, ...] = ()
    saved_every_s: float = SAVED_EVERY_S
    site: Path | None = None
    state: dict[str, Any] = field(default_factory=dict)
    _saved_s: float = 0.0
    _size: int = -1

    @property
    def left_s(self) -> float:
        """Return the seconds to the end of this call, without those that saving takes."""
        return self.begin + self.limit_s - time.monotonic() - 5.0

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the measuring processes: the package of this checkout, and the wheels'
        libraries."""
        paths = [str(ROOT), str(Path(__file__).parent), str(self.site or ""), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}

    def part(self, step: str) -> Path:
        """Return the path of a step's part of validation.md."""
        return self.work / "parts" / f"{step.replace(' ', '-')}.md"

    def save(self, *, whole: bool = False) -> None:
        """Rewrite the archive if anything has changed; ``whole``: validation.md too."""
        if whole:
            self._write_page()
        (self.work / "state.json").write_text(json.dumps(self.state, indent=1) + "\n")
        files = [path for path in sorted(self.work.rglob("*")) if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        if size == self._size and not whole:
            return
        self._size, partial = size, self.out / f".{ARCHIVE}"
        self.out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(partial, "w:gz", compresslevel=6 if whole else 1) as archive:
            for path in files:
                archive.add(path, str(path.relative_to(self.work)))
        os.replace(partial, self.out / ARCHIVE)  # never half an archive
        self._saved_s = time.monotonic()

    def save_now_and_then(self) -> None:
        """Save every ``--saved-every`` seconds; called every second while a step works."""
        if time.monotonic() - self._saved_s >= self.saved_every_s:
            self.save()

    def _write_page(self) -> None:
        parts = [self.part(step.name) for step in all_steps()]
        texts = [path.read_text(encoding="utf-8") for path in parts if path.exists()]
        head = "# Validation\n\n" + "".join(f"- {line}\n" for line in self.state.get("calls", ()))
        (self.work / "validation.md").write_text("\n".join([head, *texts]), encoding="utf-8")

    def note(self, step: Step, status: str, seconds: float) -> None:
        """Record the outcome of a step, with the seconds that it took over all calls."""
        known = self.state.setdefault("steps", {}).setdefault(step.name, {"seconds": 0.0, "tries": 0})
        tries = known["tries"] + (0 if status == "resumable" else 1)
        known |= {"status": status, "seconds": round(known["seconds"] + seconds, 1), "tries": tries}

    def todo(self, step: Step) -> bool:
        """Whether there is anything left to do in a step."""
        known = self.state.get("steps", {}).get(step.name, {})
        return known.get("status") not in ("done", "ended") and known.get("tries", 0) < step.tries


# Processes ------------------------------------------------------------------------------------------------------------


def run(
    call: Call, step: Step, arguments: Sequence[str], limit_s: float, enough: Callable[[], bool] = lambda: False
) -> int | None:
    """Run a Python process and return its exit code; ``None`` when its time was up or what it had done was ``enough``.
    It is asked to stop first, then killed."""
    log = call.work / "logs" / f"{step.name.replace(' ', '-')}.txt"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=call.environment, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        end, asked = time.monotonic() + max(1.0, limit_s - PATIENCE_S), False
        try:
            while process.poll() is None:
                if time.monotonic() > end + PATIENCE_S:
                    break
                if not asked and (time.monotonic() > end or enough()):
                    end = min(end, time.monotonic())
                    process.send_signal(signal.SIGINT)
                    asked = True
                call.save_now_and_then()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
        except BaseException:  # this program is to end: what was measured is written down first
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
            process.wait()
            _shorten(log)
    return None if asked else process.returncode


def _shorten(log: Path) -> None:
    content = log.read_bytes()
    if len(content) > LARGEST_LOG:
        log.write_bytes(b"(the beginning is left out)\n" + content[-LARGEST_LOG:])


def work_on(call: Call, step: Step) -> str:
    """Do a step as far as this call's time allows, and return its status: done, ended (it failed), resumable."""
    if step.name.endswith("tests"):
        return tests(call, step)
    if step.families:
        return reference(call, step)
    target = call.part(step.name)
    target.parent.mkdir(exist_ok=True)
    partial = target.with_suffix(".partial")
    options = ["--device", call.device, *(["--small"] if call.small else [])]
    code = run(call, step, [__file__, "--measure", step.name, str(partial), *options], call.left_s)
    if code == 0:
        os.replace(partial, target)
        return "done"
    why = "it was out of time" if code is None else f"it ended with {code}"
    target.write_text(f"## {step.name}\n\nNot measured: {why}; see logs/{step.name}.txt.\n")
    partial.unlink(missing_ok=True)
    return "failed"


# Tests ----------------------------------------------------------------------------------------------------------------


def _test_events(log: Path) -> list[dict[str, Any]]:
    """Return the events of the tests; a last line that was cut off is ignored."""
    events = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        with contextlib.suppress(ValueError):
            events.append(json.loads(line))
    return events


def _finished_tests(events: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the last event of each test that ended. One that was begun twice without an end counts as ended."""
    finished = {event["test"]: event for event in events if "outcome" in event}
    begun = [event["test"] for event in events if "begun" in event]
    hung = {name for name in begun if name not in finished and begun.count(name) > 1}
    return finished | {name: {"test": name, "outcome": "not finished", "seconds": None} for name in sorted(hung)}


def _shown(report: Any) -> str:
    """Return why a test didn't pass, and the end of its output, in which a pytest inside a test reports its failure."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    written = [text[-LONGEST_REASON:] for _, text in report.sections]
    return "\n".join([str(report.longrepr)[-LONGEST_REASON:], *written])


class TestLog:
    """A pytest plugin that writes each test's outcome at once, and leaves out tests that have one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, dict[str, Any]] = {}

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Move tests that were begun but didn't end to the end, since they would take the time of all others again."""
        events = _test_events(self._path)
        finished, begun = _finished_tests(events), {event["test"] for event in events if "begun" in event}
        known = [item for item in items if item.nodeid in finished]
        items[:] = sorted((item for item in items if item not in known), key=lambda item: item.nodeid in begun)
        config.hook.pytest_deselected(items=known)

    def pytest_collectreport(self, report: Any) -> None:
        """Record a file that can't be imported, for example because a library is missing: its tests are missing too."""
        if report.failed and report.nodeid not in _finished_tests(_test_events(self._path)):
            self._append({"test": report.nodeid, "outcome": "not collected", "reason": _shown(report)})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._append({"test": nodeid, "begun": True})

    def pytest_runtest_logreport(self, report: Any) -> None:
        known = self._outcomes.setdefault(report.nodeid, {"test": report.nodeid, "outcome": "passed", "seconds": 0.0})
        known["seconds"] = round(known["seconds"] + report.duration, 3)
        if report.outcome != "passed" and known["outcome"] == "passed":
            known |= {"outcome": report.outcome, "reason": _shown(report)}

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._append(self._outcomes[nodeid])

    def _append(self, event: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def pytest_configure(config: Any) -> None:
    """``-p validate_gpu``: this file is a plugin of the pytest that it starts."""
    if path := os.environ.get(TESTS_LOG):
        config.pluginmanager.register(TestLog(Path(path)), "validation's tests")


def tests(call: Call, step: Step) -> str:
    """Run each test once, over all calls."""
    log = call.work / "tests.jsonl"
    os.environ[TESTS_LOG] = str(log)
    options = ["-p", "gpubench.plugin", "-p", "validate_gpu", "-p", "no:cacheprovider", "-q", "-m", "gpu"]
    if call.small:
        options = options[:-2]
    where = call.tests
    if step.name == "gpu tests" and not call.small:
        where, options = "tests/test_gpu.py", [*options, "-k", "not suite_runs"]
    code = run(call, step, ["-m", "pytest", *options, "--continue-on-collection-errors", where], call.left_s)
    events = _test_events(log)
    finished = _finished_tests(events)
    counts = {word: sum(event["outcome"] == word for event in finished.values()) for word in
              ("passed", "failed", "skipped", "not finished", "not collected")}  # fmt: skip
    whole = code in (0, 1, 5) and any(counts[word] for word in ("passed", "failed", "skipped"))
    words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    lines = [f"## {step.name}\n", f"`pytest -m gpu {where}`, {'all' if whole else 'so far'}: {words}.\n"]
    for event in finished.values():
        if event["outcome"] not in ("passed", "skipped"):
            text = str(event.get("reason", "it was begun twice and came to no end in this call's time"))
            lines.append(f"### {event['test']}\n\n```text\n{text}\n```\n")
    call.part(step.name).parent.mkdir(exist_ok=True)
    call.part(step.name).write_text("\n".join(lines), encoding="utf-8")
    return "done" if whole else "resumable" if code is None else "failed"


# Reference runs -------------------------------------------------------------------------------------------------------


def reference(call: Call, step: Step) -> str:
    """Measure a reference run, or what is missing of it. It resumes if machine, software and code are the same."""
    title, alone, _ = step.name.partition(FIRST)
    folder = call.work / f"run-{title.replace(' ', '-')}"
    files = [f"benchmarks/test_{name}.py" for name in step.families]
    files = [str(ROOT / name) for name in (call.suite or files)]
    preset = "smoke" if call.small else step.preset
    fresh = [*files, f"--preset={preset}", "--processes=3", "--charts=none", "-o", str(folder)]
    if call.device != "cuda":
        fresh.insert(len(files), f"--device={call.device}")
    ledger = folder / "run.ledger.jsonl"

    def enough() -> bool:
        return bool(alone) and _progress(ledger).first

    if enough():
        return "done"
    if adopt(ledger, files):
        resumed = ["-m", "gpubench", "run", "--resume", str(folder), "--charts=none"]
        code = run(call, step, resumed, call.left_s, enough)
        if code == 2:  # another machine or code: what was measured elsewhere is kept beside
            number = sum(1 for _ in call.work.glob(f"{folder.name}.before-*")) + 1
            folder.rename(folder.with_name(f"{folder.name}.before-{number}"))
            code = run(call, step, ["-m", "gpubench", "run", *fresh], call.left_s, enough)
    else:
        code = run(call, step, ["-m", "gpubench", "run", *fresh], call.left_s, enough)
    ended, cases, whole, first = _progress(ledger)
    state = f"{ended}, complete" if whole else f"{ended} of at most {cases}, not complete yet"
    lines = [f"## Reference run: {step.name}\n", f"Timings (benchmarks times processes): {state}.\n"]
    lines += [f"- {number} {words}" for words, number in _device_times(folder / "run.json").most_common()]
    call.part(step.name).parent.mkdir(exist_ok=True)
    call.part(step.name).write_text("\n".join(lines), encoding="utf-8")
    return "done" if whole or (alone and first) else "resumable" if code is None or ended else "failed"


def adopt(ledger: Path, files: Sequence[str]) -> bool:
    """Adopt the journal of an archive for this folder, if its benchmarks are those of this checkout.

    ``gpubench run --resume`` asks the user before it continues a copied journal, since that names files and options to
    run. Here they are compared with what this program would run.
    """
    if not ledger.exists():
        return False
    first, *rest = ledger.read_text(encoding="utf-8").split("\n")
    event = json.loads(first)
    names = [[Path(path).name for path in paths] for paths in (event.get("paths", ()), files)]
    allowed = re.compile(r"--gpubench-(preset|device)=\w+")
    # Only a run of files of others names a folder for their names to begin in.
    roots = {f"--rootdir={Path(path).parent}" for path in event.get("paths", ())}
    strange = [option for option in event["options"] if option not in roots and not allowed.fullmatch(option)]
    event["options"] = [f"--rootdir={Path(files[0]).parent}" if each in roots else each for each in event["options"]]
    if event.get("event") != "run" or names[0] != names[1] or strange:
        raise Refused(f"{ledger.name} of the archive is no run of this program: it is not resumed")
    place = ledger.stat()
    event |= {"paths": list(files), "inode": place.st_ino, "device": place.st_dev}
    ledger.write_text("\n".join([json.dumps(event), *rest]), encoding="utf-8")
    return True


def _device_times(run: Path) -> Counter[str]:
    """How many benchmarks on a GPU have a device time, and how it was measured, or why they have none."""
    counts: Counter[str] = Counter()
    with contextlib.suppress(OSError, ValueError):
        for mark in json.loads(run.read_text(encoding="utf-8"))["benchmarks"]:
            ours = mark["extra_info"]["gpubench"]
            if method := ours.get("device_method"):
                counts[f"with a device time, {method}"] += 1
            elif reason := ours.get("device_reason"):
                counts[f"without a device time: {reason}"] += 1
    return counts


class Progress(NamedTuple):
    """How many cases have ended over all processes, how many there will be, whether the run is complete, and whether
    its first process is."""

    ended: int
    cases: int
    whole: bool
    first: bool


def _progress(ledger: Path) -> Progress:
    ended, cases, processes, whole, first = set(), 0, 1, False, False
    for line in ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if event["event"] == "run":
                processes = event["processes"]
            elif event["event"] == "session" and not event["process"]:
                cases = max(cases, len(event["cases"]))
            elif event["event"] == "end":
                ended.add((event["process"], event["fullname"]))
            whole = whole or event["event"] == "complete"
            first = first or whole or (event["event"] == "session" and event["process"] > 0)
    return Progress(len(ended), cases * processes, whole, first)


# What is measured in a process of its own -----------------------------------------------------------------------------


def _versions() -> str:
    known = []
    for name in DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            known.append(f"{name} {metadata.version(name)}")
    return ", ".join(known)


def figures(gpu: Any, small: bool) -> Iterator[str]:
    """Yield gpubench's ceilings of the GPU next to published measurements."""
    from gpubench.measure import ceilings
    from gpubench.runfile.quantities import text

    dtypes = ["float32", "tf32", "bfloat16", "float16", "float64"]
    measured = ceilings.measure_ceilings({gpu: dtypes}, "smoke" if small else "full")[str(gpu)]
    known = next((values for name, values in PUBLISHED.items() if name in gpu.label), {})
    memory = [entry for entry in measured.bandwidth if entry.level == "memory" and entry.pattern == "copy"]
    ours: dict[str, float | None] = dict(measured.throughput)
    largest = max(memory, key=lambda entry: entry.footprint_bytes, default=None)  # the cache helps least there
    ours["copy"] = largest and largest.byte_per_s
    ours["host to device"] = measured.host_to_device_byte_per_s
    ours["device to host"] = measured.device_to_host_byte_per_s
    ours["launch"] = measured.launch_floor_s
    ours["attention"] = _attention(gpu, 64 if small else 16384)
    ours["float8"] = _float8(gpu, 32 if small else 8192)
    ours["clock"] = (gpu.clocks() or {}).get("sm")
    ours["idle with a context"] = _idle_watts(gpu, 0.1 if small else 2.0)
    yield f"## {gpu.label}: our figures beside published ones\n"
    yield f"Driver {gpu.facts().get('driver')}, {_versions()}. Marked with an !: slower than {EXPLAINED} of it.\n"
    yield "| what | ours | published as measured | ratio | source |\n|---|---:|---:|---:|---|"
    for name in dict.fromkeys([*ours, *known]):
        value, (theirs, source) = ours.get(name), known.get(name, (None, "—"))
        unit = UNITS.get(name, "B/s" if name.startswith(("host", "device", "all-reduce")) else "FLOP/s")
        ratio = value / theirs if value and theirs else None
        slow = ratio is not None and (1 / ratio if unit == "s" else ratio) < EXPLAINED
        place = next((place for start, place in ELSEWHERE.items() if name.startswith(start)), "")
        words = place or ("—" if ratio is None else f"{ratio:.3f}{' !' * slow}")
        yield f"| {name} | {text(value, unit)} | {text(theirs, unit)} | {words} | {source} |"
    yield ""
    for entry in measured.bandwidth:  # where the cache ends
        if entry.pattern == "copy":
            yield f"- copy of {text(entry.footprint_bytes, 'B')} ({entry.level}): {text(entry.byte_per_s, 'B/s')}"
    yield ""


def _attention(gpu: Any, tokens: int) -> float:
    """FLOP/s of the forward pass of fused attention in bfloat16, 16 heads of 64, without a mask."""
    import torch

    from gpubench.measure.clock import DeviceClock

    query = torch.randn(1, 16, tokens, 64, device=str(gpu), dtype=torch.bfloat16)
    call = partial(torch.nn.functional.scaled_dot_product_attention, query, query, query)
    return 4 * 16 * tokens**2 * 64 / _median(call, DeviceClock([gpu]), rounds=5, calls=5)


def _float8(gpu: Any, n: int) -> float | None:
    """FLOP/s of a product in float8_e4m3fn with fast accumulation, as published rates are; ``None`` without it."""
    import torch

    from gpubench.measure.clock import DeviceClock

    with contextlib.suppress(RuntimeError, NotImplementedError):
        a, b = (torch.randn(n, n, device=str(gpu)).to(torch.float8_e4m3fn) for _ in range(2))
        options = {"scale_a": torch.ones((), device=str(gpu)), "scale_b": torch.ones((), device=str(gpu))}
        call = partial(torch._scaled_mm, a, b.t(), **options, out_dtype=torch.bfloat16, use_fast_accum=True)
        return 2 * n**3 / _median(call, DeviceClock([gpu]), rounds=5, calls=5)
    return None


def _idle_watts(gpu: Any, seconds: float) -> float | None:
    before = gpu.energy_j()
    time.sleep(seconds)
    return None if before is None else (gpu.energy_j() - before) / seconds


def sanity(gpu: Any, small: bool) -> Iterator[str]:
    """Yield what is wrong most often on a new machine, within a minute."""
    import torch

    from gpubench.measure import environment
    from gpubench.measure.clock import DeviceClock
    from gpubench.measure.precision import matmul_precision
    from gpubench.measure.probes import device_time
    from gpubench.runfile.quantities import seconds_text, text

    clock, n = DeviceClock([gpu]), 64 if small else 8192
    yield "## Sanity\n"
    set_here = re.compile("(NVIDIA|CUDA|NCCL|HSA|TORCH|PYTORCH)_.*")
    hidden = re.compile(r"(GPU|MIG)-[0-9a-f-]+", re.IGNORECASE)
    variables = (f"{name}={hidden.sub('…', value)}" for name, value in sorted(os.environ.items()))
    yield "\n".join(["```text", *filter(set_here.match, variables), "```\n"])
    with contextlib.suppress(OSError):  # what names no serial number
        link = "pcie.link.gen.max,pcie.link.gen.current,pcie.link.width.current,persistence_mode,compute_mode"
        for asked in (["-q", "-d", "PERFORMANCE,POWER,CLOCK,ECC"], [f"--query-gpu={link}", "--format=csv"]):
            told = subprocess.run(["nvidia-smi", *asked], stdout=subprocess.PIPE, text=True).stdout
            yield f"```text\n{told}\n```\n"
    facts = gpu.facts()
    yield f"- unknown: {', '.join(name for name, value in facts.items() if value is None) or 'nothing'}"
    yield f"- switches that change times: {'; '.join(environment.unusual()) or 'none'}"
    yield f"- caches: {gpu.cache_bytes()} bytes; energy counter: {gpu.energy_j()}; other programs: "
    yield f"  {gpu.other_processes() if hasattr(gpu, 'other_processes') else 'unknown'}"
    one, many = (torch.ones(count, dtype=torch.uint8, device=str(gpu)) for count in (1, 2**16 if small else 2**30))
    for words, call in (("neg_ of one element", one.neg_), ("copy of a GiB", many.clone)):
        wall_s = _median(call, clock)
        inside = device_time(call, gpu, wall_s, None)
        shown = inside.device_reason or text(inside.device_s, "s")
        yield f"- {words}: {seconds_text(wall_s)}, on the device: {shown}, its launch: {text(inside.launch_s, 's')}"
    a, b = (torch.randn(n, n, device=str(gpu), dtype=torch.bfloat16) for _ in range(2))
    begin, joules, count, counted = clock(), gpu.energy_j(), 0, set()
    while clock() - begin < (0.1 if small else 2.0):
        torch.mm(a, b)
        count += 1
        counted.add(gpu.energy_j())  # while it works
    seconds = clock() - begin
    watts = None if joules is None else (gpu.energy_j() - joules) / seconds
    for _ in range(1 if small else 50):  # so that it works while it is asked
        torch.mm(a, b)
    reasons = ", ".join(gpu.throttle_reasons()) or "none"
    yield f"- bfloat16 of {n} for {seconds:.1f} s: {text(2 * n**3 * count / seconds, 'FLOP/s')}, {gpu.clocks()} Hz,"
    yield f"  {text(watts, 'W')}, clocks held back by: {reasons}; the energy counter moved {len(counted) - 1} times"
    left, right = (torch.randint(-9, 9, (n, n), device=str(gpu), dtype=torch.int8) for _ in range(2))
    for words, second in (("by rows", right), ("by columns", right.t())):
        with contextlib.suppress(RuntimeError):
            product_s = _median(partial(torch._int_mm, left, second), clock, rounds=5, calls=3)
            yield f"- int8 of {n}, second operand {words}: {text(2 * n**3 / product_s, 'op/s')}"
    images = torch.randn(2 if small else 32, 64, 56, 56, device=str(gpu))
    convolution = torch.nn.Conv2d(64, 64, 3, padding=1).to(str(gpu)).requires_grad_(False)
    for words, dtype in (("IEEE", "float32"), ("TF32", "tf32")):
        with matmul_precision(dtype):
            yield f"- a 3 × 3 convolution in {words}: {seconds_text(_median(partial(convolution, images), clock))}"
    yield f"- the same as PyTorch does by default: {seconds_text(_median(partial(convolution, images), clock))}\n"


def _median(call: Callable[[], Any], clock: Callable[[], float], rounds: int = 30, calls: int = 20) -> float:
    """Median over rounds of the seconds per call, after a quarter of a second of warm-up."""
    begin = clock()
    while clock() - begin < 0.25:
        call()
    times = []
    for _ in range(rounds):
        start = clock()
        for _ in range(calls):
            call()
        times.append((clock() - start) / calls)
    return statistics.median(times)


def timers(gpu: Any, small: bool) -> Iterator[str]:
    """Yield gpubench's time next to those of torch's Timer and triton's do_bench, and its device time next to that of
    triton's do_bench_cudagraph: the first call is shorter than its launch, so that an error of launches shows."""
    import torch
    from torch.utils.benchmark import Timer

    from gpubench.measure.clock import DeviceClock
    from gpubench.measure.precision import matmul_precision
    from gpubench.measure.probes import device_time
    from gpubench.runfile.quantities import seconds_text

    n, count = (64, 10**4) if small else (4096, 10**8)
    a, b = (torch.randn(n, n, device=str(gpu)) for _ in range(2))
    x, y, target = (torch.randn(count, device=str(gpu)) for _ in range(3))
    cases = {
        "neg_ of 1000": x[:1000].neg_,
        f"matmul of {n}, float32": lambda: torch.mm(a, b),
        f"add of {count:,}, out=": lambda: torch.add(x, y, out=target),
    }
    yield "## Our time beside other timers'\n"
    yield "| call | ours | ours / torch's Timer | ours / triton's do_bench | on the device / do_bench_cudagraph |"
    yield "|---|---:|---:|---:|---:|"
    with matmul_precision("float32"):
        for name, call in cases.items():
            ratios: dict[str, list[float]] = {"timer": [], "do_bench": [], "do_bench_cudagraph": []}
            times = []
            for _ in range(1 if small else 5):
                times.append(_median(call, DeviceClock([gpu])))
                timer = Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=0.1 if small else 0.5)
                ratios["timer"].append(times[-1] / timer.median)
                with contextlib.suppress(Exception):  # it compiles C code, and a container may have no compiler
                    from triton import testing

                    ratios["do_bench"].append(times[-1] / (testing.do_bench(call, return_mode="median") / 1e3))
                    device_s = device_time(call, gpu, times[-1], None).device_s
                    theirs_ms = testing.do_bench_cudagraph(call, return_mode="median")
                    ratios["do_bench_cudagraph"].append(device_s / (theirs_ms / 1e3))
            shown = [f"{statistics.median(values):.3f}" if values else "—" for values in ratios.values()]
            yield f"| {name} | {' | '.join([seconds_text(statistics.median(times)), *shown])} |"
    yield "\nMedians of five in turn. do_bench flushes the L2 cache before each call; ours doesn't.\n"


def pitfalls(gpu: Any, small: bool) -> Iterator[str]:
    """Yield the rows of pitfalls.py that need an accelerator, from the script itself."""
    yield "## Pitfalls\n"
    if small:
        yield "Left out: a rehearsal.\n"
        return
    script = Path(__file__).with_name("pitfalls.py")
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    yield done.stdout  # its errors go to the log


MEASURED = {"sanity": sanity, "figures": figures, "timers": timers, "pitfalls": pitfalls}


def measure(name: str, target: Path, device: str, small: bool) -> int:
    """Run one of the measurements above in its own process, since this one must not hold the GPU while others
    measure."""
    sys.path.insert(0, str(ROOT))
    from gpubench import devices
    from gpubench.measure.environment import set_threads

    set_threads()
    gpu = devices.find_device(device).device
    if gpu is None:
        raise Refused(f"no {device}")
    with target.open("w", encoding="utf-8") as file:
        for line in MEASURED[name](gpu, small):
            file.write(line + "\n")
            file.flush()
    return 0


# The program ----------------------------------------------------------------------------------------------------------


def install(wheels: Path, site: Path) -> None:
    """Unpack wheels for this call and its processes. Raises Refused if pip fails."""
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--target", str(site)]
    files = sorted(map(str, wheels.glob("*.whl")))
    done = subprocess.run([sys.executable, "-m", "pip", "install", *options, *files], capture_output=True, text=True)
    if done.returncode or not files:
        last = (done.stderr.strip().splitlines() or ["there are none"])[-1]
        raise Refused(f"the wheels of {wheels} can't be installed: {last}")
    sys.path.insert(0, str(site))


def missing() -> list[str]:
    """Return the libraries that the package, its networks and its view of a GPU need, missing or too old ones."""
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lacking = []
    for text in [*project["dependencies"], *project["optional-dependencies"]["models"]]:
        requirement = Requirement(text)
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            lacking.append(text)
        else:
            if not requirement.specifier.contains(version, prereleases=True):
                lacking.append(f"{text} ({version} is here)")
    return lacking


def require_gpu(device: str) -> str:
    """Return the GPU's name, found in another process so that this one never holds the GPU. Raises Refused without a
    GPU."""
    code = "import sys; from gpubench import devices; choice = devices.find_device(sys.argv[1])\n"
    code += "print(choice.device.label if choice.device else '', choice.reason or '', sep='\\n')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), *sys.path)))}
    command = [sys.executable, "-c", code, device]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    label, reason, *_ = [*done.stdout.split("\n"), "", ""]
    if done.returncode or not label:
        raise Refused(f"no CUDA GPU: {reason or (done.stderr.strip().splitlines() or ['?'])[-1]}")
    return label


def begin(args: argparse.Namespace, scratch: Path) -> Call:
    """Unpack what earlier calls have left. Raises Refused."""
    call = Call(args.out.resolve(), scratch / "work", time.monotonic(), args.limit, args.device, args.small)
    call.tests, call.suite, call.saved_every_s = args.tests, tuple(args.suite or ()), args.saved_every
    call.work.mkdir()
    if args.wheels:
        call.site = scratch / "site"
        install(args.wheels, call.site)
    if lacking := missing():
        raise Refused(f"bring as wheels (--wheels FOLDER): {', '.join(lacking)}")
    label = require_gpu(args.device)
    source = args.earlier or (call.out / ARCHIVE)
    if source.exists():
        with tarfile.open(source) as archive:
            archive.extractall(call.work, filter="data")
        call.state = json.loads((call.work / "state.json").read_text())
    elif args.earlier:
        raise Refused(f"{source}: no such file")
    now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    call.state.setdefault("calls", []).append(f"{now} UTC: {label}, Python {sys.version.split()[0]}, {_versions()}")
    return call


def listing(state: dict[str, Any]) -> Iterator[str]:
    """Yield a line for every step, with about how long it takes and its outcome so far, and one where the usual time
    ends."""
    total = 0.0
    for step in all_steps():
        before, total = total, total + step.seconds
        if before <= AT_HAND_S < total:
            held, at_hand = before / 60, AT_HAND_S / 60
            yield f"--- about {held:.0f} min up to here; what follows needs more than {at_hand:.0f} min of a GPU ---"
        known = state.get("steps", {}).get(step.name, {})
        status = known.get("status", "to do")
        spent = f", {known['seconds']:.0f} s so far" if known else ""
        goes_on = ", over several calls" if step.resumes and step.seconds > LIMIT_S else ""
        yield f"{step.name:20} about {step.seconds / 60:5.1f} min{goes_on}: {step.text} [{status}{spent}]"


def proceed(call: Call, chosen: Sequence[str]) -> bool:
    """Do what fits in this call, and return whether all steps that were begun ended well."""
    good = True
    for step in all_steps():
        if (chosen and step.name not in chosen) or not call.todo(step):
            continue
        needed = 60.0 if step.resumes else min(1.3 * step.seconds, 0.9 * call.limit_s)
        if call.left_s < (PATIENCE_S if call.small else needed):
            print(f"{step.name}: left for the next call, {call.left_s:.0f} s are too few", flush=True)
            break
        print(f"{step.name}: about {step.seconds / 60:.1f} min, {call.left_s / 60:.1f} left", flush=True)
        start = time.monotonic()
        status = work_on(call, step)
        call.note(step, status, time.monotonic() - start)
        call.save(whole=True)
        good = good and status != "failed"
        print(f"{step.name}: {status} after {time.monotonic() - start:.0f} s; saved in {ARCHIVE}", flush=True)
        if status == "resumable":
            break
    return good


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def parsed() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", help=f"folder for {ARCHIVE}")
    parser.add_argument("--list", action="store_true", help="print the steps and their times; measure nothing")
    parser.add_argument("--from", dest="earlier", type=Path, metavar="ARCHIVE", help="go on with this archive")
    parser.add_argument("--step", action="append", choices=[step.name for step in all_steps()], help="default: all")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="seconds for this call (540)")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="libraries that this machine lacks")
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--small", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tests", default="tests", help=argparse.SUPPRESS)
    parser.add_argument("--suite", action="append", help=argparse.SUPPRESS)
    parser.add_argument("--saved-every", type=float, default=SAVED_EVERY_S, help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=MEASURED, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.out and not args.list:
        parser.error("OUT is needed")
    return args


def main() -> int:
    """Return 0 if all steps that were begun ended well, 1 if one failed, 2 if nothing can be measured."""
    args = parsed()
    if args.measure:
        return measure(args.measure, args.out, args.device, args.small)
    if args.list:
        state: dict[str, Any] = {}
        if source := args.earlier or (args.out and args.out / ARCHIVE):
            with contextlib.suppress(OSError), tarfile.open(source) as archive:
                file = archive.extractfile("state.json")
                state = json.load(file) if file else {}
        print("\n".join(listing(state)))
        return 0
    signal.signal(signal.SIGTERM, _stop)
    scratch = Path(tempfile.mkdtemp(prefix="gpubench-validation-"))
    try:
        call = begin(args, scratch)
        print("\n".join(listing(call.state)), flush=True)
        try:
            good = proceed(call, args.step or ())
        finally:
            call.save(whole=True)
        left = [step.name for step in all_steps() if call.todo(step)]
        print(f"{call.out / ARCHIVE}: " + (f"left: {', '.join(left)}" if left else "all steps are done"), flush=True)
        return int(not good)
    except Refused as error:
        print(f"validate_gpu: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("validate_gpu: stopped; what was measured is saved", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
