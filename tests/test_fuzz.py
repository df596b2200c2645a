"""Every reader against files that nobody would write: a result, or one line that names the file; nothing else.

Some values in each place and 60 files with damaged bytes in CI; by hand all values, and more bytes, drawn anew each
time::

    GPUBENCH_FUZZ=10000 pytest tests/test_fuzz.py -p no:cacheprovider
"""

import copy
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import records
from suites import plain

from gpubench.errors import GpubenchError, RunFileError
from gpubench.runfile import ledger, runs, writer
from gpubench.runfile.runs import read_runs
from gpubench.runfile.schema import Case, Run

BY_HAND = int(os.environ.get("GPUBENCH_FUZZ", 0))
MOST_MEMORY_BYTES = 500e6

pytestmark = pytest.mark.xdist_group("fuzz")  # groups start first, and these take long

# Sound files ----------------------------------------------------------------------------------------------------------


CASES = [
    Case("matmul.square", device, "float32", {"n": n}, threads=2, size="n", devices=(device,))
    for device in ("cpu", "cuda:0")
    for n in (64, 256)
]


def whole_run() -> dict[str, Any]:
    data, names = records.gpu_run(2), {case.id for case in CASES}
    data["benchmarks"] = [mark for mark in data["benchmarks"] if mark["extra_info"]["gpubench"]["id"] in names]
    return data


def parallel_run() -> dict[str, Any]:
    """A benchmark of several devices, with all that such a case can say."""
    known = {"method": "ddp", "devices": 2, "mode": "strong"}
    shared = {"threads": 1, "ideal_speedup": 1.9, "interconnect": "NVLink", "bus_share": 1.5}
    shared |= {"rows": [[4, 4], [2, 2]]}
    how = {"params": known | {"nbytes": 1000}, "items": 256.0, "unit": "sample", "bytes": 1e6, "threads": 2}
    one = records.run(cuda=2, processes=1)
    return one.bench("distributed.lenet", gpu=1.6, size=None, parallel=shared | known, **how).data


def whole_ledger() -> list[dict[str, Any]]:
    """Two processes, seven cases: four measured, one failed, one going on when the run ended, one not begun."""
    names = [f"test_matmul.py::test_square[{i}]" for i in range(7)]
    known = [*CASES, *CASES[:3]]
    identities = {name: case.as_dict() for name, case in zip(names, known, strict=True)}
    begun = {"event": "run", "schema_version": 3, "processes": 2, "options": ["--gpubench-seed=1"]}
    events: list[dict[str, Any]] = [begun | {"paths": ["/b"], "inode": 987654321}]
    for process in (0, 1):
        session = records.session(process, dict(zip(names, known, strict=True)), before={})
        machine = {key: whole_run()[key] for key in ("machine_info", "gpubench")}
        events.append(session | machine | {"fingerprint": {"machine": "m", "threads": 2}})
        for i, name in enumerate(names[:6]):
            start, end = records.begun_and_ended(process, name, known[i], 1e-5 * (i + 1 + process / 10), said=i)
            failed = {key: end[key] for key in ("event", "process", "fullname")}
            failed |= {"status": "error", "reason": "x", "case": identities[name]}
            events += [start, end if i < 4 else failed][: 1 if i == 5 else 2]
        events.append({"event": "finish", "process": process, "after": {}})
    return [*events, {"event": "complete"}]


RUNS = [whole_run(), plain(whole_run(), params={"n": 1, "shape": [1, 2], "odd": None}), parallel_run()]
SHORT = [data | {"benchmarks": data["benchmarks"][:1]} for data in RUNS]
LEDGER = whole_ledger()

# What is changed in them ----------------------------------------------------------------------------------------------

DEEP, DIGITS, BEYOND, BROKEN = "DEEP:", "DIGITS:", "BEYOND", "BROKEN"
"""Stand for values that ``json.dumps`` won't write; :func:`dumped` puts it in their place."""


def nested(levels: int) -> Any:
    value: Any = []
    for i in range(levels):
        value = [value] if i % 2 else {"a": value}
    return value


HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 99, 1.5, -1e-9, 1e-300, 1e29, 1e300, 2**31, 2**63 - 1, 2**63, 10**30, 10**400,
    float("nan"), float("inf"), -float("inf"), BEYOND, BROKEN, "", "x", "nan", "1e5", "ok", "cpu", "cuda:0", "skipped",
    "=1+1", "a\nb\r\x1b[31m\x00\u2028", "<script>|`*", "\u202e", "\ud800", "é" * 5000, "x" * 200_000, "\U0001f600" * 99,
    "2026-13-45", "../../x", "a::b::c", [], {}, [[]], [None], [{}], {"a": 1}, {"": {"": {}}}, [1e-5, -1], [1e-5, 1e-5],
    [0.1] * 3000, ["cpu"] * 300, [10**400, 1], nested(8), nested(60), nested(200), nested(450), f"{DEEP}990",
    f"{DEEP}5000", f"{DEEP}200000", f"{DIGITS}4299", f"{DIGITS}5000", f"{DIGITS}200000",
]  # fmt: skip


def dumped(value: Any) -> str:
    text = json.dumps(value)
    for mark, make in ((DEEP, lambda n: "[" * n + "]" * n), (DIGITS, lambda n: "9" * n)):
        while (start := text.find(f'"{mark}')) >= 0:
            end = text.index('"', start + 1)
            text = text[:start] + make(int(text[start + 1 + len(mark) : end])) + text[end + 1 :]
    return text.replace(f'"{BEYOND}"', "1e999").replace(f'"{BROKEN}"', "-Infinity")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every object and list, as where it is and its key there."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def variants(small: Any, values: list[Any], at_once: int) -> Iterator[Any]:
    """Each place with so many of the values (the next with the following ones; by hand all of them), with its own entry
    within a list or under another key, and without it; the same data, changed and mended."""
    data, following = copy.deepcopy(small), itertools.cycle(values)
    for group, key in list(places(data)):
        entries, kept = copy.copy(group), group[key]
        for value in (*itertools.islice(following, len(values) if BY_HAND else at_once), [kept]):
            group[key] = value
            yield data
        group[key] = kept
        del group[key]
        yield data
        if isinstance(group, dict):
            group[f"{key}\ud800\n"] = kept
            yield data
        group.clear()
        group.update(entries) if isinstance(group, dict) else group.extend(entries)


def damaged(content: bytes, count: int) -> Iterator[bytes]:
    """So many changes of its bytes, each at another place."""
    for number in range(BY_HAND or count):
        random = Random(time.time_ns() if BY_HAND else number)
        at, end = sorted(random.choices(range(len(content)), k=2))
        flipped = bytes([content[at] ^ (1 << random.randrange(8))])
        text = content.decode()
        ways = (content[:at], content[:at] + flipped + content[at + 1 :], content[:at] + random.randbytes(8) + content)
        ways += content[:at] + content[end:], content[:end] + content[at:], content + b"\0" * 200, random.randbytes(300)
        ways += b"\xef\xbb\xbf" + content, text.encode("utf-16"), text.encode("latin-1", "replace") + b"\xe9"
        yield ways[number % len(ways)]


def lines(events: list[Any]) -> str:
    return "".join(dumped(event) + "\n" for event in events)


# Readers --------------------------------------------------------------------------------------------------------------


def refused_or_read(named: str, reader: Callable[..., Any], *arguments: Any) -> Any:
    """The reader's result, or None for an error as it should be."""
    try:
        return reader(*arguments)
    except GpubenchError as error:
        text = str(error)
        assert text.isprintable(), text
        assert named in text
        assert len(text) < 5000
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def read_run(content: bytes, folder: Path) -> None:
    path = folder / "mutated run.json"
    path.write_bytes(content)
    require_sound(refused_or_read(path.name, runs.read, path))


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
    for run in refused_or_read(path.name, lambda paths: [*read_runs(paths)], [path]) or ():
        require_sound(run)


SMALL = [value for value in HOSTILE if len(dumped(value)) < 5000]


def short_ledger() -> list[dict[str, Any]]:
    """With a case of each kind: measured, failed, going on."""
    names = [f"test_matmul.py::test_square[{i}]" for i in (0, 4, 6)]
    for event in (events := whole_ledger()):
        if "cases" in event:
            event["cases"], event["machine_info"], event["gpubench"] = names, {}, {"schema_version": 3}
            event["identities"] = {name: event["identities"][name] for name in names}
    return [event for event in events if event.get("fullname", names[0]) in names]


@pytest.mark.parametrize(
    ("read", "sound", "values", "at_once", "text"),
    [
        (read_run, SHORT[0], SMALL, 3, dumped),
        (read_run, SHORT[1], HOSTILE, 2, dumped),
        (read_run, RUNS[2], SMALL, 2, dumped),
        (read_journal, short_ledger(), [None, -1, 10**400, [], "a\n\x1b\ud800"], 2, lines),
    ],
    ids=["run", "plain", "parallel", "journal"],
)
def test_every_hostile_value_in_every_place(read, sound, values, at_once, text, folder):
    for mutated in variants(sound, values, at_once):
        read(text(mutated).encode("utf-8", "surrogatepass"), folder)


@pytest.mark.parametrize(
    ("read", "sound"), [(read_run, dumped(RUNS[0])), (read_journal, lines(LEDGER)), (read_run, dumped(RUNS[1]))]
)
def test_damaged_bytes(read, sound, folder):
    for content in damaged(sound.encode(), 60):
        read(content, folder)


def test_followers(folder):
    path = folder / "followed"
    for number, content in enumerate(damaged(lines(LEDGER).encode(), 60)):
        path.unlink(missing_ok=True)
        follower, cut = ledger.Follower(path), 20 * number
        path.write_bytes(content[:cut])
        seen = refused_or_read(path.name, lambda follower=follower: list(follower.events()))
        with path.open("ab") as file:
            file.write(content[cut:])
        seen += refused_or_read(path.name, lambda follower=follower: list(follower.events()))
        assert all(event["event"] in ledger.KINDS for event in seen)
        assert list(follower.events()) == []
        follower.close()


def test_what_is_mutated_is_sound(folder):
    for data in RUNS:
        writer.write(folder / "sound.json", data)
        assert {result.status for result in runs.read(folder / "sound.json").results} <= {"ok", "skipped"}
    (folder / "sound.ledger.jsonl").write_text(lines(LEDGER))
    statuses = [result.status for run in read_runs([folder / "sound.ledger.jsonl"]) for result in run.results]
    assert statuses == ["ok"] * 4 + ["error", "skipped", "skipped"]


# The largest there can be ---------------------------------------------------------------------------------------------

MiB = 1024**2
SESSION = b'{"event":"session","process":0,"cases":["a"],"fingerprint":{},"machine_info":{},"gpubench":{}}\n'
EXTREME: dict[str, Callable[[], Iterator[bytes]]] = {
    "ledger": lambda: iter([SESSION, *[b'{"event":"complete","a":[' + b'{"a":1},' * 78_000 + b"1]}\n"] * 10]),
    "too many lists": lambda: iter([b'{"benchmarks":[', b"[]," * 9_000_000, b"[]]}"]),
    "one wide text": lambda: iter([b'{"benchmarks":"', "\U0001f600".encode(), b"x" * (47 * MiB), b'"}']),
    "/dev/zero": lambda: iter([]),
}
READING = """
import os, sys
from gpubench.runfile import ledger, runs
from gpubench.errors import GpubenchError
for read in (runs.read, lambda path: ledger.assemble(ledger.read_ledger(path)), ledger.recorded):
    path = sys.argv[1]
    if not os.path.isfile(path) and read is not runs.read:
        continue
    try:
        read(path)
    except GpubenchError as error:
        assert str(error).isprintable()
lines = open("/proc/self/status").read().splitlines()  # ru_maxrss counts what the process was forked from
print(1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux tells it")
@pytest.mark.parametrize("kind", EXTREME)
def test_memory(kind, tmp_path):
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


@pytest.mark.skipif(sys.platform != "linux", reason="its devices")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/proc/self/mem", "/"])
def test_devices_and_folders_are_no_files(device):
    for read in (runs.read, ledger.read_ledger):
        with pytest.raises(RunFileError, match="expected"):
            read(device)


def test_a_broken_case_with_a_broken_name(tmp_path, capsys):
    name = "a\n\x1b[31m" + "b" * 100_000
    events = whole_ledger()
    events[1]["cases"] = [name]
    events.append({"event": "end", "process": 0, "fullname": name, "status": "ok", "benchmark": {}})
    (tmp_path / "ledger").write_text("".join(json.dumps(event) + "\n" for event in events))
    ledger.assemble(ledger.read_ledger(tmp_path / "ledger"))
    (said,) = capsys.readouterr().err.splitlines()
    assert said.isprintable()
    assert len(said) < 1000


@pytest.mark.skipif(sys.platform != "linux", reason="file names are texts there")
def test_a_file_whose_name_is_no_text(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff\n.json"))
    path.write_text("{")
    with pytest.raises(RunFileError) as caught:
        runs.read(path)
    assert str(caught.value).isprintable()
