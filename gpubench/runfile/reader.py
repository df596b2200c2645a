"""JSON read with care: every value knows the file and the place that it came from.

Whatever is wrong with it raises :class:`~gpubench.errors.RunFileError` with one line,
``path: place: what was expected``. Standard library only.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
import statistics
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from msgspec import structs

from ..errors import RunFileError
from ..options import CACHES
from .flags import ADVICE, apart
from .schema import (
    KEY,
    MOST_CASES,
    MOST_DEVICES,
    MOST_FLAGS,
    MOST_PARAMS,
    SCHEMA_VERSION,
    TIMERS,
    UNMEASURED,
    Bandwidth,
    Case,
    Ceilings,
    Check,
    DeviceFacts,
    Machine,
    Parallel,
    Process,
    Raised,
    Result,
    Run,
    Scalar,
    Times,
    Transfer,
    Work,
)

LONGEST_TEXT = 2000
"""Characters kept of a text from a file: a reason may hold a whole traceback, a table shall not."""
TINIEST, HUGEST = 1e-15, 1e30
LARGEST = 48 * 1024**2
"""Bytes of a file. A run of a thousand cases in three processes has 20 MiB."""
MOST_VALUES, MOST_GROUPS = 2_000_000, 200_000
"""Values, and lists and objects: they take some 60 and 300 bytes of memory, however few they take in the file. That
run has 700,000 and 20,000."""
DEEPEST = 400
"""Levels of nesting. Ours are 7; at a thousand, writing would end in a RecursionError."""


class Allowance:
    """How much may still be parsed before it takes too much memory."""

    def __init__(self, values: int = MOST_VALUES, groups: int = MOST_GROUPS) -> None:
        self.values, self.groups = values, groups

    def covers(self, content: bytes) -> bool:
        """Take off what this JSON amounts to, at most: what is in a text counts as well."""
        self.values -= content.count(b",")
        self.groups -= content.count(b"[") + content.count(b"{")
        return min(self.values, self.groups) >= 0


def shallow(value: Any) -> bool:
    """Whether it is nested no deeper than any file of ours."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for group in level:
            entries = group.values() if isinstance(group, dict) else group
            if not {dict, list}.isdisjoint(map(type, entries)):  # a million samples are told apart at once
                inner += [entry for entry in entries if isinstance(entry, dict | list)]
        level = inner
        if not level:
            return True
    return False


def load(path: Path) -> At:
    """The whole of a file, in which no key stands twice in an object."""

    def refuse(place: str, expected: str) -> NoReturn:
        raise RunFileError(f"{clean(str(path))}: {place}: expected {expected}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if any(len(key) > LONGEST_TEXT for key in entries):
            refuse("file", f"keys of at most {LONGEST_TEXT} characters")
        if len(entries) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            refuse(f"key {clean(twice)[:60]!r}", "every key once in an object, found it twice")
        return entries

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)  # of a device or a pipe there is no telling how much is in it
    except (OSError, ValueError) as error:
        refuse("file", f"a readable run file ({getattr(error, 'strerror', None) or error})")
    if not content.strip():
        refuse("file", "a run file, found an empty file")
    if len(content) > LARGEST:
        refuse("file", f"a run file of at most {LARGEST // 1024**2} MiB")
    if not Allowance().covers(content):
        refuse("file", f"a run file of at most {MOST_VALUES} values and {MOST_GROUPS} lists and objects")
    try:
        text = content.decode("utf-8-sig")
        del content
        value = json.loads(text, object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        refuse(f"byte {error.start}", "UTF-8 text")
    except json.JSONDecodeError as error:
        refuse(f"line {error.lineno} column {error.colno}", f"JSON ({error.msg}): is the file truncated?")
    except RecursionError:
        refuse("file", "a run file, found JSON nested too deeply")
    except ValueError:  # an integer of thousands of digits
        refuse("file", "numbers of a sensible length")
    if isinstance(value, dict | list) and not shallow(value):
        refuse("file", "a run file, found JSON nested too deeply")
    return At(value, path)


class At:
    """A value and the place it has in the file, so that every complaint can name both.

    ``at["a"][0].positive()`` either gives a number above 0 or refuses the file. A missing key is a value too, of
    ``None`` like JSON's ``null``: whether it may be is decided by what it is read as.
    """

    __slots__ = ("path", "place", "value")

    def __init__(self, value: Any, path: Path, place: str = "") -> None:
        self.value, self.path, self.place = value, path, place

    def __getitem__(self, key: str) -> At:
        return At(self.mapping().get(key), self.path, f"{self.place}.{key}" if self.place else key)

    def __iter__(self) -> Iterator[At]:
        """The entries of a list; none where it is missing."""
        if not self.missing and not isinstance(self.value, list):
            self.refuse("a list")
        return (At(entry, self.path, f"{self.place}[{i}]") for i, entry in enumerate(self.value or ()))

    @property
    def missing(self) -> bool:
        return self.value is None

    def mapping(self) -> dict[str, Any]:
        """A missing object is an empty one."""
        if not self.missing and not isinstance(self.value, dict):
            self.refuse("an object")
        return self.value or {}

    def text(self, *default: str | None) -> Any:
        """A text, cleaned; ``default`` where it may be missing."""
        if self.missing and default:
            return default[0]
        if not isinstance(self.value, str):
            self.refuse("a text")
        return clean(self.value[:LONGEST_TEXT])

    def flag(self) -> bool | None:
        if not self.missing and not isinstance(self.value, bool):
            self.refuse("true, false or null")
        return bool(self.value) if not self.missing else None

    def number(self, least: float = 0.0) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse("a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or number < least:
            self.refuse(f"a finite number not below {least:g}")
        return number

    def numbers(self) -> tuple[float, ...]:
        """The numbers of a list, none below 0; at once where nothing is wrong, since there may be a million."""
        values = self.value
        if isinstance(values, list) and values and set(map(type, values)) <= {float, int}:
            with suppress(OverflowError):
                numbers = tuple(map(float, values))
                if min(numbers) >= 0 and math.isfinite(sum(numbers)):
                    return numbers
        return tuple(entry.number() for entry in self)

    def positive(self) -> float:
        """A time, or an amount of work: above 0, and of a size whose ratios stay finite."""
        if not TINIEST <= self.number() <= HUGEST:
            self.refuse(f"a number above 0 ({TINIEST:g} to {HUGEST:g})")
        return self.number()

    def count(self, least: int = 1) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value < 2**63:
            self.refuse(f"a whole number from {least}")
        return int(self.value)

    def whole(self) -> int:
        """A whole number, 0 included: a seed, an index."""
        return self.count(0)

    def optional(self, kind: str) -> Any:
        """What the method of that name gives, or None where the value is missing."""
        return None if self.missing else getattr(self, kind)()

    def scalar(self) -> Scalar:
        """A parameter: a JSON scalar, a finite one."""
        if isinstance(self.value, dict | list):
            self.refuse("a text, a number, true, false or null")
        if isinstance(self.value, str):
            return str(self.text())
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            self.number(-math.inf)
        return self.value  # type: ignore[no-any-return]

    def refuse(self, expected: str, found: str | None = None) -> NoReturn:
        found = found or ("nothing" if self.missing else clean(reprlib.repr(self.value)[:60]))
        place = clean(self.place) or "file"
        raise RunFileError(f"{clean(str(self.path))}: {place}: expected {expected}, found {found}")


def clean(text: str) -> str:
    """One line of printable characters: names from a file end up in terminals, CSV cells and SVG."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


# Read run files: checked where they enter. They are written by :mod:`gpubench.runfile.writer`.
#
# What :func:`read` returns is frozen and in range, so that later code may divide by a time and take its logarithm.
# A file that can't be trusted raises :class:`~gpubench.errors.RunFileError` with one line,
# ``path: place: what was expected``. Keys that this version doesn't know are ignored, and a plain pytest-benchmark
# file is read as what it says: times on a CPU, of one process, of nothing declared.
#
# Standard library only.


def read(path: str | os.PathLike[str]) -> Run:
    """Raises RunFileError for a file that is missing, truncated, foreign or inconsistent."""
    path = Path(path)
    root = load(path)
    if not isinstance(root.value, dict) or "benchmarks" not in root.value:
        raise Foreign(f"{clean(str(path))}: file: expected a pytest-benchmark file, an object with a key 'benchmarks'")
    if root["benchmarks"].missing:
        root["benchmarks"].refuse("a list")
    benchmarks = list(root["benchmarks"])
    if len(benchmarks) > MOST_CASES:
        root["benchmarks"].refuse(f"at most {MOST_CASES} cases", f"{len(benchmarks)}")
    ours = root[KEY]
    plain = ours.missing and not any(KEY in mark["extra_info"].mapping() for mark in benchmarks)
    if plain:
        machine = _plain_machine(root["machine_info"])
        started = root["datetime"].text(None)
        return Run(path, machine, tuple(_plain(mark) for mark in benchmarks), started, plain=True)
    if ours["schema_version"].value != SCHEMA_VERSION or isinstance(ours["schema_version"].value, bool):
        ours["schema_version"].refuse(str(SCHEMA_VERSION))
    machine = _machine(root["machine_info"])
    kinds = {device.name: device.kind for device in reversed(machine.devices)}
    results = [_measured(mark, kinds) if KEY in mark["extra_info"].mapping() else _plain(mark) for mark in benchmarks]
    unmeasured = list(ours["unmeasured"])
    if len(unmeasured) > MOST_CASES:
        ours["unmeasured"].refuse(f"at most {MOST_CASES} cases", f"{len(unmeasured)}")
    results += [_unmeasured(entry) for entry in unmeasured]
    return Run(
        path,
        machine,
        tuple(results),
        started=_moment(ours["started"]),
        preset=ours["preset"].text(None),
        version=ours["version"].text(None),
        processes=max(1, len(list(ours["processes"]))),
        seed=ours["seed"].optional("whole"),
        ceilings=_ceilings(ours["ceilings"]),
        flags=_flags(ours["processes"]),
        slow_threads=_slow_threads(ours["processes"]),
    )


class Foreign(RunFileError):
    """JSON that isn't a pytest-benchmark file at all: in a folder of run files it may lie about."""


def _moment(at: At) -> str | None:
    text = at.text(None)
    if text is not None:
        try:
            datetime.fromisoformat(text)
        except ValueError:
            at.refuse("an ISO 8601 date and time")
    return text  # type: ignore[no-any-return]


def _machine(info: At) -> Machine:
    ours = info[KEY]
    devices = tuple(
        DeviceFacts(entry["name"].text(), entry["kind"].text(), entry["label"].text(""), entry["driver"].text(None))
        for entry in ours["devices"]
    )
    if len(devices) > MOST_DEVICES:
        ours["devices"].refuse(f"at most {MOST_DEVICES} devices", str(len(devices)))
    return Machine(
        label=ours["label"].text(None) or _plain_machine(info).label,
        devices=devices or _plain_machine(info).devices,
        torch=ours["torch"]["version"].text(None),
        tf32=ours["precision"]["tf32"].flag(),
        threads=ours["threads"].optional("count"),
        precision=_scalars(ours["precision"]),
    )


def _plain_machine(info: At) -> Machine:
    """The CPU's model names a machine that says no more; its host name is nobody's business."""
    label = info["cpu"]["brand_raw"].text(None) or info["machine"].text(None) or "unknown machine"
    return Machine(label, (DeviceFacts("cpu", "cpu", label),))


def _case(at: At) -> Case:
    devices = tuple(entry.text() for entry in at["devices"])
    params = _params(at)
    return Case(
        workload=at["workload"].text(),
        device=at["device"].text(),
        dtype=at["dtype"].text(""),
        params={clean(name): params[name].scalar() for name in params.mapping()},
        implementation=at["implementation"].text("torch"),
        variant=at["variant"].text("eager"),
        regime=at["regime"].text("resident"),
        cache=_cache(at["cache"]),
        threads=at["threads"].optional("count"),
        size=at["size"].text(None),
        devices=devices,
    )


def _cache(at: At) -> str:
    text: str = at.text(CACHES[0])
    if text not in CACHES:
        at.refuse(f"one of {', '.join(CACHES)}")
    return text


def _scalars(at: At) -> dict[str, Scalar]:
    if len(at.mapping()) > MOST_PARAMS:
        at.refuse(f"at most {MOST_PARAMS} entries", f"{len(at.mapping())}")
    return {clean(name): at[name].scalar() for name in at.mapping()}


def _params(at: At) -> At:
    params = at["params"]
    if len(params.mapping()) > MOST_PARAMS:
        params.refuse(f"at most {MOST_PARAMS} parameters", f"{len(params.mapping())}")
    return params


def _measured(mark: At, kinds: Mapping[str, str]) -> Result:
    ours = mark["extra_info"][KEY]
    case = _case(ours)
    timer = mark["options"]["timer"]
    used = dict.fromkeys((case.device, *case.devices))
    accelerators = [name for name in used if kinds.get(name, name.partition(":")[0]) != "cpu"]
    if accelerators and timer.value not in TIMERS:
        timer.refuse(f"a timer that waits for {accelerators[0]} ({', '.join(TIMERS)})")
    work = ours["work"]
    declared = {name: work[name].optional("positive") for name in ("flops", "bytes", "items")}
    times, flags = _times(mark, ours), _flags(ours["processes"])
    check = ours["check"]
    return Result(
        **structs.asdict(case),
        work=Work(**declared, unit=work["unit"].text("element")),
        times=times,
        processes=times.processes,
        latency_s=times.latency_s,
        check=None
        if check["status"].text(None) is None
        else Check(check["status"].text(), check["error"].optional("number"), None, check["reason"].text(None)),
        steps=ours["steps"].optional("count"),
        device_s=ours["device_s"].optional("positive"),
        launch_s=ours["launch_s"].optional("positive"),
        transfer=_transfer(ours["transfer"]),
        memory_bytes=ours["memory_bytes"].optional("number"),
        energy_j=ours["energy_j"].optional("positive"),
        precision=_scalars(ours["precision"]),
        flags=flags + _apart(times, flags),
        parallel=_parallel(ours["parallel"]),
        fullname=mark["fullname"].text(""),
    )


def _parallel(at: At) -> Parallel | None:
    if at.missing:
        return None
    phases = at["phases"]
    rows = list(at["rows"])
    if len(phases.mapping()) > MOST_PARAMS or len(rows) > MOST_CASES:
        at.refuse(f"at most {MOST_PARAMS} phases and {MOST_CASES} batches")
    return Parallel(
        method=at["method"].text(None),
        devices=at["devices"].optional("count") or 1,
        threads=at["threads"].optional("count"),
        mode=at["mode"].text(None),
        ideal_speedup=at["ideal_speedup"].optional("positive"),
        interconnect=at["interconnect"].text(None),
        bus_share=at["bus_share"].optional("positive"),
        microbatches=at["microbatches"].optional("count"),
        phases={clean(name): phases[name].number() for name in phases.mapping()},
        rows=tuple(tuple(part.count(0) for part in batch) for batch in rows),
    )


def _transfer(at: At) -> Transfer | None:
    if at.missing:
        return None
    seconds = {name: at[name].optional("positive") for name in ("in_s", "out_s", "in_pinned_s", "out_pinned_s")}
    return Transfer(at["in_bytes"].count(0), at["out_bytes"].count(0), **seconds)


def _flags(processes: At) -> tuple[Raised, ...]:
    """Flags of all processes, each name once; one that this version doesn't know is not passed on."""
    found: dict[str, tuple[str, list[int]]] = {}
    for entry in processes:
        flags = list(entry["flags"])
        if len(flags) > MOST_FLAGS:
            entry["flags"].refuse(f"at most {MOST_FLAGS} flags", f"{len(flags)}")
        for flag in flags:
            name, seen = flag["flag"].text(), flag["seen"].text("")
            if name in ADVICE:
                found.setdefault(name, (seen, []))[1].append(entry["process"].count(0))
    return tuple(Raised(name, seen, tuple(where)) for name, (seen, where) in found.items())


def _apart(times: Times, flags: tuple[Raised, ...]) -> tuple[Raised, ...]:
    """``noisy`` because processes disagree, which none of them can see."""
    rounds = [(process.median_s, process.rounds) for process in times.processes]
    seen = apart(rounds, times.iqr_s / times.median_s)
    if not seen or any(flag.name == "noisy" for flag in flags):
        return ()
    return (Raised("noisy", seen, tuple(process.index for process in times.processes)),)


def _slow_threads(processes: At) -> tuple[int, ...]:
    found = []
    for entry in processes:
        one, every = (entry["canary"][name].optional("positive") for name in ("one_s", "all_s"))
        if one and every and every > one:
            found.append(entry["process"].count(0))
    return tuple(found)


_BANDWIDTH = ("footprint_bytes", "byte_per_s")


def _ceilings(at: At) -> dict[str, Ceilings]:
    if len(at.mapping()) > MOST_DEVICES:
        at.refuse(f"at most {MOST_DEVICES} devices", str(len(at.mapping())))
    found = {}
    for name in at.mapping():
        own = at[name]
        entries = list(own["bandwidth"])
        if len(entries) > MOST_DEVICES:
            own["bandwidth"].refuse(f"at most {MOST_DEVICES} entries", str(len(entries)))
        bandwidth = tuple(
            Bandwidth(at["pattern"].text(), at["level"].text(""), *(at[key].positive() for key in _BANDWIDTH))
            for at in entries
        )
        rates = own["throughput"]
        if len(rates.mapping()) > MOST_PARAMS:
            rates.refuse(f"at most {MOST_PARAMS} entries", str(len(rates.mapping())))
        throughput = {clean(dtype): rates[dtype].positive() for dtype in rates.mapping()}
        single = ("launch_floor_s", "host_to_device_byte_per_s", "device_to_host_byte_per_s")
        found[clean(name)] = Ceilings(bandwidth, throughput, **{key: own[key].optional("positive") for key in single})
    return found


def _unmeasured(entry: At) -> Result:
    status = entry["status"]
    if status.value not in UNMEASURED:
        status.refuse(f"one of {', '.join(UNMEASURED)}")
    work = entry["work"]["unit"].text("element")
    case = structs.asdict(_case(entry))
    return Result(**case, work=Work(unit=work), status=status.value, reason=entry["reason"].text(""))


def _plain(mark: At) -> Result:
    """A case of another's test: named by its file, class and function, as ours are by file and function."""
    file, *rest = mark["fullname"].text().split("::")
    names = [Path(file.replace("\\", "/")).stem, *(part.partition("[")[0] for part in rest)]
    workload = ".".join(name.removeprefix("test_") or name for name in names)
    params = {}
    for name in _params(mark).mapping():
        at = mark["params"][name]
        structured = isinstance(at.value, dict | list) or at.value != at.value  # NaN differs from itself
        params[clean(name)] = clean(json.dumps(at.value)[:LONGEST_TEXT]) if structured else at.scalar()
    case = Case(workload, "cpu", "", params, implementation="", variant="", regime="", cache="")
    times = _times(mark, At(None, mark.path, mark.place))
    return Result(**structs.asdict(case), times=times, fullname=mark["fullname"].text())


def _times(mark: At, ours: At) -> Times:
    stats = mark["stats"]
    pooled, iqr = stats["median"].positive(), stats["iqr"].number()
    rounds, iterations = stats["rounds"].count(), stats["iterations"].count()
    samples = array("d", stats["data"].numbers())
    latency = ours["latency_s"].optional("positive")
    q1, q3 = (stats[name].optional("positive") for name in ("q1", "q3"))
    processes, shares = _processes(ours["processes"], stats, samples)
    medians = [process.median_s for process in processes]
    median = statistics.geometric_mean(medians) if len(medians) > 1 else pooled
    return Times(
        median_s=median,
        mean_s=stats["mean"].positive(),
        min_s=stats["min"].number(),
        iqr_s=iqr,
        q1_s=min(q1 or max(pooled - iqr / 2, pooled / 2), median),
        q3_s=max(q3 or pooled + iqr / 2, median),
        rounds=rounds,
        iterations=iterations,
        latency_s=latency,
        timer=mark["options"]["timer"].text(""),
        processes=processes or (Process(0, rounds, len(samples), iterations, pooled, latency_s=latency),),
        samples=shares or (samples,),
    )


def _processes(entries: At, stats: At, samples: Sequence[float]) -> tuple[Any, ...]:
    """Each process with its own samples; they must add up, or a sample would count for the wrong process."""
    processes: list[Process] = []
    shares: list[Sequence[float]] = []
    start = 0
    for entry in entries:
        kept = entry["kept"].count(0)
        processes.append(
            Process(
                index=entry["process"].count(0),
                median_s=entry["median_s"].positive(),
                rounds=entry["rounds"].count(),
                kept=kept,
                iterations=entry["iterations"].count(),
                latency_s=entry["latency_s"].optional("positive"),
            )
        )
        shares.append(samples[start : start + kept])
        start += kept
    if processes and samples and start != len(samples):
        stats["data"].refuse(f"{start} samples, as many as its processes kept,", f"{len(samples)}")
    if len({process.index for process in processes}) < len(processes):
        entries.refuse("each process once")
    return tuple(processes), tuple(shares)
