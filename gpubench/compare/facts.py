"""May two sides be compared? What their machines have in common, and in what they differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..records import Run
from .sides import SMOKE, Side

_MODES = {"tf32": "TF32", "float32_matmul": "float32 matmul precision"} | {
    f"{name}_reduced_precision_reduction": f"{name} reduced-precision reduction" for name in ("fp16", "bf16")
}


@dataclass(frozen=True, slots=True)
class Differences:
    """``machine``: other hardware or other terms of measuring, ``software``: what may well be the change itself."""

    machine: tuple[str, ...]
    software: tuple[str, ...]


def differences(base: Side, new: Side, devices: Iterable[str]) -> Differences:
    """Of what matters to cases on these ``devices``, and of the CPU always: it launches what a GPU runs.

    What one side doesn't know is no difference. Facts that differ within a side are told as well.
    """
    names = sorted(set(devices))
    facts: dict[str, list[dict[str, str | None]]] = {side.name: _facts(side.runs, names) for side in (base, new)}
    found: dict[str, str] = {}
    for fact in dict.fromkeys(name for side in facts.values() for each in side for name in each):
        values = {
            side: sorted({value for each in own if (value := each.get(fact)) is not None})
            for side, own in facts.items()
        }
        known = {value for side in values.values() for value in side}
        if len(known) > 1 and all(values.values()):
            ours, theirs = (" and ".join(side) for side in values.values())
            found[fact] = f"{fact} {ours} → {theirs}" if ours != theirs else f"{fact} {ours} on either side"
        elif len(known) > 1:
            found[fact] = f"{fact} {' and '.join(sorted(known))} on one side"
    software = {fact: text for fact, text in found.items() if fact == "torch" or fact.endswith(" driver")}
    return Differences(tuple(text for fact, text in found.items() if fact not in software), tuple(software.values()))


def _facts(runs: Iterable[Run], names: list[str]) -> list[dict[str, str | None]]:
    return list({tuple(facts.items()): facts for facts in (_of_run(run, names) for run in runs)}.values())


def _of_run(run: Run, names: list[str]) -> dict[str, str | None]:
    machine = run.machine
    facts: dict[str, str | None] = {}
    used = [machine.device(name) for name in sorted({"cpu", *names})]
    for device in used:
        facts[_called(device.name)] = device.label or None
        facts[f"{device.name} driver"] = device.driver
    facts["torch"] = machine.torch
    facts["threads"] = None if machine.threads is None else str(machine.threads)
    accelerated = any(device.accelerator for device in used)
    for name in _MODES if accelerated else ("float32_matmul",):
        value = machine.precision.get(name)
        words = {True: "on", False: "off"}
        facts[_MODES[name]] = words[value] if isinstance(value, bool) else None if value is None else str(value)
    return facts


def _called(name: str) -> str:
    return "CPU" if name == "cpu" else name


def presets(base: Side, new: Side) -> str | None:
    """A line where the sides were measured with different care."""
    used = [sorted({run.preset for run in side.runs if run.preset}) for side in (base, new)]
    if all(used) and used[0] != used[1]:
        return f"presets differ: base {', '.join(used[0])}, new {', '.join(used[1])}; only cases of both are compared"
    return None


def doubts(base: Side, new: Side) -> list[str]:
    """A line for what keeps runs, or processes of them, from being evidence."""
    found = []
    tried = [side.name for side in (base, new) if any(run.preset == SMOKE for run in side.runs)]
    if tried:
        found.append(f"smoke runs prove nothing, their rounds are too few ({' and '.join(tried)}): measure quick ones")
    for side in (base, new):
        slow, of = sum(len(run.slow_threads) for run in side.runs), sum(run.processes for run in side.runs)
        if slow:
            found.append(f"{side.name}: in {slow} of {of} processes more threads were slower than one (thread canary)")
    return found
