"""A card: a results file fit to be published. It has all benchmarks, each with the medians of its processes, and no
single rounds.

A card is a results file with the mark ``gpubench.card``: any reader of the one reads the other. It holds only keys that
:mod:`gpubench.runfile.schema` names, so nothing that another tool wrote beside ours is published with it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from ..errors import UsageError
from .columnar import as_columns
from .flags import Flag
from .reader import convert
from .schema import (
    KEY,
    Benchmark,
    Check,
    MachineFacts,
    MachineInfo,
    Operators,
    Parallel,
    Process,
    ProcessFacts,
    Run,
    RunFile,
    Stats,
    UnmeasuredCase,
)
from .writer import without_paths

DIGITS = 5
"""Significant digits of the numbers in a card: an error of 0.001 %, while processes differ by more than 0.1 %."""
_FREE = ("reason", "device_reason", "allowed_basis")
"""Fields of texts that may quote an exception: paths and names are removed from them again."""
_LEFT_OUT: dict[type[Struct], tuple[str, ...]] = {
    Stats: ("data",),
    Process: ("kept", "iterations", "iqr_s"),
    Check: ("tolerance",),
    Parallel: ("losses",),
    Flag: ("seen",),
}
"""Fields that no table of a report needs, or that reveal other programs."""


def card_of(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The card of the results file at ``path`` with the content ``data``; the card of a card is the card itself.

    Raises UsageError for a file of pytest-benchmark alone.
    """
    ours = data.get(KEY)
    if not isinstance(ours, dict):
        raise UsageError(f"{path}: a file of pytest-benchmark alone has no card: measure with gpubench run")
    file = convert(path, data, RunFile)
    assert file.gpubench
    processes = tuple(map(_process_facts, file.gpubench.processes or ()))
    left = tuple(map(_unmeasured, file.gpubench.unmeasured or ()))
    facts = structs.replace(file.gpubench, card=True, columns=None, asked=None, processes=processes, unmeasured=left)
    info = file.machine_info or MachineInfo()
    machine = info.gpubench or MachineFacts()
    label = machine_label(device.label or device.name for device in machine.devices or ())
    info = structs.replace(info, cpu=None, gpubench=structs.replace(machine, label=label))
    waited = any(device.accelerator for device in machine.devices or ())
    marks = tuple(_benchmark(mark, waited) for mark in file.benchmarks)
    return cast(dict[str, Any], _told(structs.replace(file, benchmarks=marks, machine_info=info, gpubench=facts)))


def machine_label(models: Iterable[str]) -> str:
    """The label of a machine with these devices, for machines that have no other label."""
    return " · ".join(f"{count}× {model}" if count > 1 else model for model, count in Counter(models).items())


def _benchmark(mark: Benchmark, waited: bool) -> Benchmark:
    """The benchmark without its rounds. What one call took in each process is kept only if ``waited``: it matters
    beside an accelerator, where calls wait."""
    ours = mark.extra_info and mark.extra_info.gpubench
    if not mark.extra_info or not ours:
        return mark
    work = structs.replace(ours.work, operators=_summed(ours.work.operators))
    processes = ours.processes if waited else tuple(structs.replace(each, latency_s=None) for each in ours.processes)
    ours = structs.replace(ours, work=work, processes=processes)
    fullname = mark.fullname if not ours.implementation else None
    extra = structs.replace(mark.extra_info, gpubench=ours)
    return structs.replace(mark, fullname=fullname, params=None, extra_info=extra)


def _unmeasured(case: UnmeasuredCase) -> UnmeasuredCase:
    """The case without the test's name and without an exception's message, which may be anything."""
    reason = case.reason if case.status == "skipped" else None
    return structs.replace(case, name=None, fullname=None, reason=reason)


def _summed(operators: Sequence[Operators]) -> tuple[Operators, ...]:
    """The operators summed by kind, as bounds and estimates need only the kinds."""
    kinds = {each.kind: [other for other in operators if other.kind == each.kind] for each in operators}
    return tuple(
        Operators(kind, *(sum(getattr(each, name) for each in alike) for name in ("count", "flops", "bytes")))
        for kind, alike in kinds.items()
    )


def _process_facts(facts: ProcessFacts) -> ProcessFacts:
    """The facts with the time as the only state of the machine."""
    states = {name: getattr(facts, name) or {} for name in ("before", "after")}
    times = {name: {"time": state["time"]} if "time" in state else None for name, state in states.items()}
    return structs.replace(facts, **times)


_fields = functools.cache(structs.fields)


def _told(value: Any) -> Any:
    """The value as JSON, without fields at their default, and with fewer digits; whole numbers keep theirs."""
    if isinstance(value, Struct):
        fields = [each for each in _fields(type(value)) if _given(value, each)]
        given = {each.encode_name: getattr(value, each.name) for each in fields}
        return {name: _told(without_paths(each) if name in _FREE else each) for name, each in given.items()}
    if isinstance(value, Mapping):
        return {name: _told(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_told(each) for each in value]
    if isinstance(value, float):
        value = value if value.is_integer() else float(f"{value:.{DIGITS}g}")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def _given(value: Struct, field: structs.FieldInfo) -> bool:
    """Whether a field must be written: it is required or not at its default, and isn't left out."""
    if field.name in _LEFT_OUT.get(type(value), ()):
        return False
    default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return field.required or getattr(value, field.name) not in (default, None)


def card_text(card: Mapping[str, Any]) -> str:
    """The card as the text of a file, its benchmarks as columns, one a line."""
    ours = dict(card[KEY])
    lists = {"benchmarks": card["benchmarks"], "unmeasured": ours.pop("unmeasured", [])}
    ours["columns"] = {name: as_columns(rows) for name, rows in lists.items()}
    return _text({**card, KEY: ours, "benchmarks": []}) + "\n"


def _text(value: Any, key: str = "") -> str:
    """JSON with a line for each list and for each single value, objects of single values in one line."""
    if isinstance(value, dict) and key != "params" and any(isinstance(each, dict | list) for each in value.values()):
        return "{" + ",\n".join(f"{json.dumps(name)}:{_text(each, name)}" for name, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def card_name(run: Run, text: str) -> str:
    """``nvidia-h200-2026-11-21-1a2b3c4d.json``: the first accelerator, or the CPU; the day; a hash of the content."""
    devices = sorted(run.machine.devices, key=lambda device: not device.accelerator)
    label = (devices[0].label if devices else "") or run.machine.label
    name = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", label.lower())).strip("-")[:40]
    return f"{name or 'machine'}-{run.date or 'undated'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
