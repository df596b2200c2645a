"""Run files and ledgers that nobody would write: sound ones, with values and bytes changed in them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import records
from hypothesis import strategies as st

from gpubench.runfile import ledger
from gpubench.runfile.schema import Case

# What is mutated ------------------------------------------------------------------------------------------------------


def cases() -> list[Case]:
    return [
        Case("matmul.square", device, "float32", {"n": n}, threads=2, size="n", devices=(device,))
        for device in ("cpu", "cuda:0")
        for n in (64, 256)
    ]


MEASURED: dict[str, Any] = {
    "device_s": 1e-5,
    "launch_s": 1e-6,
    "transfer": {"in_bytes": 1, "out_bytes": 1, "in_s": 1e-5, "out_s": 2e-5, "in_pinned_s": 5e-6, "out_pinned_s": 1e-6},
    "memory_bytes": 98304,
    "energy_j": 0.004,
    "precision": {"tf32": False},
}


def whole_run() -> dict[str, Any]:
    marks = [
        records.benchmark(
            case,
            1e-5 * (i + 1),
            work={"flops": 1e6, "bytes": 1e4},
            medians=(1e-5 * (i + 1), 1.1e-5 * (i + 1)),
            flags=("noisy", "implausible"),
            **(copy.deepcopy(MEASURED) if case.device == "cuda:0" else {}),
        )
        for i, case in enumerate(cases())
    ]
    left = [records.unmeasured(Case("matmul.square", "cpu", "float16", {"n": 8192}, size="n"))]
    return records.run_file(
        marks,
        left,
        devices=(records.CPU, records.GPU),
        processes=2,
        ceilings={name: records.ceilings(name) for name in ("cpu", "cuda:0")},
        flags=("contended",),
    )


def parallel_run() -> dict[str, Any]:
    """Several devices of two kinds, with all that a case of them can say."""
    marks = []
    shared = {"threads": 1, "ideal_speedup": 1.9, "interconnect": "NVLink", "bus_share": 1.5, "microbatches": 4}
    shared |= {"rows": [[4, 4], [2, 2]], "losses": [2.3, 1.1, 0.4], "workers": 2}
    ways = (("single", 1, 2.0), ("one thread", 1, 3.0), ("ddp", 2, 1.6), ("gpipe", 2, 1.8), ("data_parallel", 2, 1.7))
    for device, speed in (("cpu", 1.0), ("cuda:0", 50.0)):
        for mode in ("strong", "weak"):
            for method, devices, seconds in ways:
                params = {"method": method, "devices": devices, "mode": mode, "nbytes": 1000}
                case = Case("distributed.lenet", device, "float32", params, threads=2, devices=(device,))
                phases = {"forward": seconds / 2 / speed, "backward": seconds / 3 / speed}
                work = {"items": 128.0 * devices, "unit": "sample", "bytes": 1e6}
                mark = records.benchmark(case, seconds / speed, work=work)
                about = {"method": method, "devices": devices, "mode": mode, "phases": phases}
                mark["extra_info"]["gpubench"]["parallel"] = shared | about
                marks.append(mark)
    return records.run_file(marks, devices=(records.CPU, records.GPU, records.GPU | {"name": "cuda:1"}))


def plain_run() -> dict[str, Any]:
    data = whole_run()
    del data["gpubench"], data["machine_info"]["gpubench"]
    for mark in data["benchmarks"]:
        mark |= {"extra_info": {}, "params": {"n": 1, "shape": [1, 2], "odd": None}}
    return data


INODE = 987654321
"""Of a journal, by which a copy is known."""


def whole_ledger() -> list[dict[str, Any]]:
    """Two processes, seven cases: four measured, one failed, one going on when the run ended, one not begun."""
    names = [f"test_matmul.py::test_square[{i}]" for i in range(7)]
    known = [*cases(), *cases()[:3]]
    identities = {name: case.as_dict() for name, case in zip(names, known, strict=True)}
    begun = {"event": "run", "schema_version": 2, "processes": 2, "options": ["--gpubench-seed=1"]}
    events: list[dict[str, Any]] = [begun | {"paths": ["/b"], "inode": INODE}]
    for process in (0, 1):
        session = records.session(process, dict(zip(names, known, strict=True)), before={})
        machine = {key: whole_run()[key] for key in ("machine_info", "gpubench")}
        events.append(session | machine | {"fingerprint": {"machine": "m", "threads": 2}})
        for i, name in enumerate(names[:6]):
            start, end = records.begun_and_ended(process, name, known[i], 1e-5 * (i + 1 + process / 10), said=i)
            failed = {key: end[key] for key in ("event", "process", "fullname")}
            failed |= {"status": "error", "reason": "x", "case": identities[name]}
            events += [start, end if i < 4 else failed][: 1 if i == 5 else 2]
        events.append({"event": "finish", "process": process, "finished": "2026-01-31T12:00:00", "after": {}})
    return [*events, {"event": "complete"}]


RUNS = [whole_run(), plain_run(), parallel_run()]
LEDGER = whole_ledger()

# How ------------------------------------------------------------------------------------------------------------------

TWICE, DEEP, DIGITS, BEYOND, BROKEN = "TWICE:", "DEEP:", "DIGITS:", "BEYOND", "BROKEN"
"""Stand for what ``json.dumps`` won't write; :func:`dumped` puts it in their place."""


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
    return text.replace(TWICE, "").replace(f'"{BEYOND}"', "1e999").replace(f'"{BROKEN}"', "-Infinity")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every object and list, as where it is and its key there."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def mutate(draw: Any, value: Any) -> None:
    """One change somewhere in it."""
    found = list(places(value))
    if not found:
        return
    group, key = found[draw(st.integers(0, len(found) - 1))]
    change = draw(st.sampled_from(("put", "put", "put", "drop", "twice", "rename", "negative", "text", "wrap", "swap")))
    if change == "put":
        group[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
    elif change == "drop":
        del group[key]
    elif change == "twice" and isinstance(group, list):
        group.insert(key, copy.deepcopy(group[key]))
    elif change == "twice":
        group[TWICE + key] = group[key]
    elif change == "rename" and isinstance(group, dict):
        group[draw(st.sampled_from(("", "a" * 5000, "gpubench", "n", "\ud800\n", "__class__")))] = group.pop(key)
    elif change == "negative" and isinstance(group[key], int | float):
        group[key] = -group[key]
    elif change == "text":
        group[key] = str(group[key])[:1000]
    elif change == "wrap":
        group[key] = draw(st.sampled_from(([group[key]], {"a": group[key]}, [group[key]] * 3)))
    elif change == "swap":
        other, at = found[draw(st.integers(0, len(found) - 1))]
        group[key] = copy.deepcopy(other[at]) if len(json.dumps(other, default=str)) < 10**5 else None


def damage(draw: Any, content: bytes) -> bytes:
    """One change to its bytes."""
    at, length = draw(st.integers(0, len(content))), draw(st.integers(0, 200))
    change = draw(st.sampled_from(("cut", "flip", "insert", "drop", "double", "utf-16", "latin-1", "bom", "nul")))
    if change == "cut":
        return content[:at]
    if change == "flip" and at < len(content):
        return content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
    if change == "insert":
        return content[:at] + draw(st.binary(max_size=8)) + content[at:]
    if change == "drop":
        return content[:at] + content[at + length :]
    if change == "double":
        return content[: at + length] + content[at:]
    if change == "nul":
        return content + b"\0" * length
    text = content.decode("utf-8", "replace")
    return {"utf-16": text.encode("utf-16"), "latin-1": text.encode("latin-1", "replace") + b"\xe9"}.get(
        change, b"\xef\xbb\xbf" + content
    )


@st.composite
def mutated_runs(draw: Any, runs: list[dict[str, Any]] = RUNS) -> bytes:
    data = copy.deepcopy(draw(st.sampled_from(runs)))
    for _ in range(draw(st.integers(0, 3))):
        mutate(draw, data)
    content = dumped(data).encode("utf-8", "surrogatepass")
    return damage(draw, content) if draw(st.integers(0, 3)) == 0 else content


@st.composite
def mutated_ledgers(draw: Any) -> bytes:
    events = copy.deepcopy(LEDGER)
    for _ in range(draw(st.integers(0, 3))):
        mutate(draw, events)
    content = "".join(dumped(event) + "\n" for event in events).encode()
    return damage(draw, content) if draw(st.integers(0, 3)) == 0 else content


KEYS = sorted({key for tree in (*RUNS, LEDGER) for group, key in places(tree) if isinstance(group, dict)})
VALUES = st.recursive(
    st.sampled_from([value for value in HOSTILE if not isinstance(value, list | dict)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=30,
)
RUN_LIKE = st.fixed_dictionaries(
    {"benchmarks": st.lists(VALUES, max_size=3)}, optional={"gpubench": VALUES, "machine_info": VALUES}
)
EVENT_LIKE = st.fixed_dictionaries(
    {"event": st.sampled_from([*sorted(ledger.EVENTS), [], {}, None, 1, "x"])},
    optional={
        key: st.sampled_from([event[key] for event in LEDGER if key in event]) | VALUES
        for key in sorted({key for event in LEDGER for key in event} - {"event"})
    },
)
RANDOM = st.binary(max_size=300)
RUN_FILES = mutated_runs() | mutated_runs() | (VALUES | RUN_LIKE).map(lambda v: dumped(v).encode()) | RANDOM
LEDGERS = (
    mutated_ledgers()
    | mutated_ledgers()
    | st.lists(EVENT_LIKE | VALUES, max_size=6).map(lambda all_: "".join(dumped(v) + "\n" for v in all_).encode())
    | RANDOM
)
