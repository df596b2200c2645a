"""Every reader against files that nobody would write: a result, or one line that names the file; nothing else.

A hundred files a reader in CI. By hand many more, drawn anew each time::

    GPUBENCH_FUZZ=10000 pytest tests/test_fuzz.py -p no:cacheprovider
"""

from __future__ import annotations

import copy
import csv
import gc
import io
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from mutations import HOSTILE, LEDGER, LEDGERS, RUN_FILES, RUNS, dumped, mutated_runs, places, whole_ledger, whole_run

from gpubench.commands.report import write_report
from gpubench.errors import GpubenchError, RunFileError
from gpubench.report.output import MANIFEST
from gpubench.runfile import ledger, reader, writer
from gpubench.runfile.folder import read_runs
from gpubench.runfile.schema import Run

BY_HAND = int(os.environ.get("GPUBENCH_FUZZ", 0))
SLOWEST_S = 1.0
MOST_MEMORY_BYTES = 500e6

pytestmark = pytest.mark.xdist_group("fuzz")  # groups start first, and these take long


def fuzz(examples: int) -> Any:
    return settings(
        max_examples=BY_HAND * examples // 100 if BY_HAND else examples,
        derandomize=not BY_HAND,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def refused_or_read(named: str, reader: Callable[..., Any], *arguments: Any) -> Any:
    """What the reader gives, or None for an error as it should be."""
    gc.disable()  # it would go through all that Hypothesis keeps, for a second
    before = time.process_time()  # and not the wall: a busy neighbour is no fault of the reader's
    try:
        return reader(*arguments)
    except GpubenchError as error:
        text = str(error)
        assert text.isprintable(), text
        assert named in text
        assert len(text) < 5000
        return None
    finally:
        took = time.process_time() - before
        gc.enable()
        assert took < SLOWEST_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def read_run(content: bytes, folder: Path) -> None:
    path = folder / "mutated run.json"
    path.write_bytes(content)
    require_sound(refused_or_read(path.name, reader.read, path))


def require_sound(run: Run | None) -> None:
    for result in run.results if run else ():
        assert (result.times is None) == (result.status != "ok")
        assert result.times is None or result.times.median_s > 0
        case = result.case
        texts = [case.workload, case.device, case.dtype, *case.params, result.reason, run.machine.label, run.version]
        assert all(text is None or text.isprintable() for text in texts)


def read_journal(content: bytes, folder: Path) -> None:
    path = folder / "mutated.ledger.jsonl"
    path.write_bytes(content)
    for run in refused_or_read(path.name, read_runs, [path]) or ():
        require_sound(run)


def report(content: bytes, folder: Path) -> None:
    path, out = folder / "reported.json", folder / "out"
    path.write_bytes(content)
    if refused_or_read(path.name, lambda: write_report([path], out, charts="none")) is None:
        return
    tables = {"results.csv", "speedup.csv", "crossover.csv", "summary.md"}
    several = {"scaling.csv"} & {entry.name for entry in out.iterdir()}  # of runs with benchmarks of several devices
    assert {entry.name for entry in out.iterdir()} == {*tables, *several, "report.html", MANIFEST}
    for name in ("results.csv", "speedup.csv"):
        rows = list(csv.reader(io.StringIO((out / name).read_text(encoding="utf-8"))))
        assert len({len(row) for row in rows}) == 1
        assert all(cell.isprintable() and not cell.startswith(("=", "+", "@")) for row in rows for cell in row)
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert "<script" not in summary
    assert all(line.isprintable() for line in summary.split("\n"))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert not any(text in page for text in HOSTILE if isinstance(text, str) and "<" in text)


test_run_files = fuzz(100)(given(content=RUN_FILES)(read_run))
test_journals = fuzz(100)(given(content=LEDGERS)(read_journal))
test_reports = fuzz(40)(given(content=mutated_runs())(report))


def variants(small: Any, values: list[Any], at_once: int) -> Iterator[Any]:
    """Each place with so many of the values (the next with those that follow; by hand all of them), and without its
    entry; the same data, changed and mended."""
    data, following = copy.deepcopy(small), itertools.cycle(values)
    for group, key in list(places(data)):
        entries, kept = copy.copy(group), group[key]
        for value in itertools.islice(following, len(values) if BY_HAND else at_once):
            group[key] = value
            yield data
        group[key] = kept
        del group[key]
        yield data
        group.clear()
        group.update(entries) if isinstance(group, dict) else group.extend(entries)


SMALL = [value for value in HOSTILE if len(dumped(value)) < 5000]


def test_every_hostile_value_in_every_place_of_a_run_file(folder: Path) -> None:
    data = whole_run()
    del data["benchmarks"][1:]
    for mutated in variants(data, SMALL, 3):
        read_run(dumped(mutated).encode(), folder)


def test_every_hostile_value_in_every_place_of_a_ledger(folder: Path) -> None:
    names = [f"test_matmul.py::test_square[{i}]" for i in (0, 4, 6)]
    for event in (events := whole_ledger()):
        if "cases" in event:
            event["cases"], event["machine_info"], event["gpubench"] = names, {}, {"schema_version": 2}
            event["identities"] = {name: event["identities"][name] for name in names}
    events = [event for event in events if event.get("fullname", names[0]) in names]
    for mutated in variants(events, [None, -1, 10**400, [], "a\n\x1b\ud800"], 2):
        read_journal("".join(dumped(event) + "\n" for event in mutated).encode(), folder)


def test_every_hostile_text_in_every_place_of_a_report(folder: Path) -> None:
    data = whole_run()
    del data["benchmarks"][1:]
    for mutated in variants(data, ["=1+1", "<script>\x1b\u2028|\n", "\ud800"], 1):
        report(dumped(mutated).encode(), folder)


@fuzz(100)
@given(content=LEDGERS, cut=st.integers(0, 2000))
def test_followers(content: bytes, cut: int, folder: Path) -> None:
    path = folder / "followed"
    path.unlink(missing_ok=True)
    follower = ledger.Follower(path)
    path.write_bytes(content[:cut])
    seen = refused_or_read(path.name, lambda: list(follower.events()))
    with path.open("ab") as file:
        file.write(content[cut:])
    seen += refused_or_read(path.name, lambda: list(follower.events()))
    assert all(event["event"] in ledger.EVENTS for event in seen)
    assert list(follower.events()) == []


def test_what_is_mutated_is_sound(folder: Path) -> None:
    for data in RUNS:
        writer.write(folder / "sound.json", data)
        assert len(reader.read(folder / "sound.json").results) >= 4
    content = "".join(dumped(event) + "\n" for event in LEDGER)
    (folder / "sound.ledger.jsonl").write_text(content)
    statuses = [result.status for run in read_runs([folder / "sound.ledger.jsonl"]) for result in run.results]
    assert statuses == ["ok"] * 4 + ["error", "skipped", "skipped"]


# The largest there can be ---------------------------------------------------------------------------------------------

MiB = 1024**2
SESSION = b'{"event":"session","process":0,"cases":["a"],"fingerprint":{},"machine_info":{},"gpubench":{}}\n'
SAMPLED = (
    b'{"benchmarks":[{"fullname":"a.py::b","stats":{"median":1.5,"mean":1.5,"min":1,"iqr":1,"rounds":9,"iterations":1,'
    b'"data":['
)
EXTREME: dict[str, Callable[[], Iterator[bytes]]] = {
    "empty lists": lambda: iter([b'{"benchmarks":[', b"[]," * 190_000, b"[]]}"]),
    "empty objects": lambda: iter([b'{"benchmarks":[', b"{}," * 190_000, b"{}]}"]),
    "small objects": lambda: iter([b'{"benchmarks":[', b'{"a":1},' * 190_000, b"{}]}"]),
    "ledger": lambda: iter([SESSION, *[b'{"event":"complete","a":[' + b'{"a":1},' * 78_000 + b"1]}\n"] * 10]),
    "samples": lambda: iter([SAMPLED, b"1.5," * 1_990_000, b"1]}}]}"]),
    "numbers": lambda: iter([b'{"benchmarks":[],"a":[', b"1.5," * 1_990_000, b"1]}"]),
    "too many lists": lambda: iter([b'{"benchmarks":[', b"[]," * 9_000_000, b"[]]}"]),
    "too many numbers": lambda: iter([b'{"benchmarks":[],"a":[', b"1," * 15_000_000, b"1]}"]),
    "one text": lambda: iter([b'{"benchmarks":"', b"x" * (47 * MiB), b'"}']),
    "one wide text": lambda: iter([b'{"benchmarks":"', "\U0001f600".encode(), b"x" * (47 * MiB), b'"}']),
    "one key": lambda: iter([b'{"benchmarks":[],"', b"x" * (47 * MiB), b'":1}']),
    "too large": lambda: iter([b'{"benchmarks":"', *[b"x" * MiB] * 600, b'"}']),
    "spaces": lambda: iter([b" " * MiB] * 600),
    "/dev/zero": lambda: iter([]),
    "a line without end": lambda: iter([b'{"event":"run",', *[b"x" * MiB] * 600]),
}
READING = """
import os, sys
from gpubench.runfile import ledger, reader, writer
from gpubench.errors import GpubenchError
for read in (reader.read, lambda path: ledger.assemble(ledger.read_ledger(path)), lambda path: list(follower.events())):
    path = sys.argv[1]
    if not os.path.isfile(path) and read is not reader.read:
        continue
    follower = ledger.Follower(path)
    follower._read = 0
    try:
        read(path)
    except GpubenchError as error:
        assert str(error).isprintable()
lines = open("/proc/self/status").read().splitlines()  # ru_maxrss counts what the process was forked from
print(1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux tells it")
@pytest.mark.parametrize("kind", EXTREME if BY_HAND else ["/dev/zero", "ledger", "one wide text", "too many lists"])
def test_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "extreme.json"
    with path.open("wb") as file:
        file.writelines(EXTREME[kind]())
    if kind == "/dev/zero":
        path.unlink()
        path.symlink_to(kind)
    done = subprocess.run([sys.executable, "-c", READING, path], capture_output=True, text=True, timeout=120)
    path.unlink()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MOST_MEMORY_BYTES


def test_many_samples_are_read_in_good_time(tmp_path: Path) -> None:
    """A run ten times as large as the suite's own."""
    data = whole_run()
    mark = data["benchmarks"][0]
    mark["stats"]["data"] = [1.2345678901234567e-05 * (1 + i / 1e9) for i in range(600)]
    ours = mark["extra_info"]["gpubench"]
    ours["processes"] = [ours["processes"][0] | {"process": i, "kept": 200} for i in range(3)]
    data["benchmarks"] = [mark] * 1000
    path = tmp_path / "large.json"
    writer.write(path, data)
    assert path.stat().st_size < reader.LARGEST
    assert len(refused_or_read(path.name, reader.read, path).results) == 1001


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/proc/self/mem", "/"])
def test_devices_and_folders_are_no_files(device: str) -> None:
    if not Path(device).exists():
        pytest.skip(f"no {device} here")
    for read in (reader.read, ledger.read_ledger):
        with pytest.raises(RunFileError, match="expected"):
            read(device)


def test_a_broken_case_with_a_broken_name(tmp_path: Path) -> None:
    name = "a\n\x1b[31m" + "b" * 100_000
    events = whole_ledger()
    events[1]["cases"] = [name]
    events.append({"event": "end", "process": 0, "fullname": name, "status": "ok", "benchmark": {}})
    (tmp_path / "ledger").write_text("".join(json.dumps(event) + "\n" for event in events))
    with pytest.raises(RunFileError) as caught:
        ledger.assemble(ledger.read_ledger(tmp_path / "ledger"))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.skipif(sys.platform != "linux", reason="file names are texts there")
def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff\n.json"))
    path.write_text("{")
    with pytest.raises(RunFileError) as caught:
        reader.read(path)
    assert str(caught.value).isprintable()
    path.write_text(json.dumps(whole_run()))
    write_report([path], tmp_path / "out", charts="none")
    assert (tmp_path / "out/results.csv").read_text(encoding="utf-8").count("\n") > 4
