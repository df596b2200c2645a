"""The answer: how much faster each device is, from which size, and whether it is worth it.

Pure functions from a report's tables to words and numbers; the terminal, summary.md, the pictures' titles and the page
show the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ..format import counted, seconds_text, text
from ..runfile.matching import ELEMENTWISE, MATRIX, WORK_KINDS, kind_of
from ..runfile.schema import Result, Run
from . import judgement, labels, sweep
from .judgement import IF_IT_STAYS, TOO_NOISY, UNSURE, WORTH_IT, copies_text, crossover_text, peak_text
from .labels import Row, arithmetic, device_label, grouped, implementation_name, listed, times_range, times_text
from .lead import IN_WORDS, lead, size_words
from .machines import DeviceOfRun, SideBySide
from .speedup import RESIDENT, on_accelerator
from .sweep import rate_of, representatives
from .table import BASE, CROSSING, LINE, records

MOST_TIMES = 10
_BUSY_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One kind of work on a card; the numbers are those of ``row``, one measured pair, and never a mean.

    ``typically``, ``range`` (over ``count`` workloads, each at its largest size), ``copies`` and ``since`` are ready to
    print. ``row`` is None where all of them are too noisy or can't be. ``exceptions`` are workloads, dtypes and
    variants of which the opposite of the verdict holds.
    """

    name: str
    typically: str
    range: str
    copies: str
    since: str
    verdict: str
    row: Row | None
    exceptions: str = ""
    count: int = 1

    @property
    def worth(self) -> str:
        """``✓ worth it``, ``± depends: not lenet``."""
        return f"± depends: {self.exceptions}" if self.exceptions else f"{judgement.MARKS[self.verdict]} {self.verdict}"

    @property
    def cells(self) -> tuple[str, ...]:
        """As :data:`ANSWER_COLUMNS`."""
        ends = f"{self.range} ({self.count})" if self.count > 1 else self.range
        return self.name, self.typically, ends, self.copies, self.since, self.worth


ANSWER_COLUMNS = ("work", "typically", "range", "with copies", "faster from", "worth it?")


@dataclass(frozen=True, slots=True)
class Card:
    """One device against a named baseline: ``NVIDIA H200`` against ``Intel Xeon, 2 threads``."""

    run: str
    device: str
    baseline: str
    rows: tuple[AnswerRow, ...]


class Timing(NamedTuple):
    """A workload's time on a CPU at its largest size, as TIMING_COLUMNS; ``time`` has a ``*`` where it was flagged."""

    name: str
    time: str
    rate: str
    peak: str


TIMING_COLUMNS = ("benchmark", "time", "throughput", "% of peak")


@dataclass(frozen=True, slots=True)
class Answer:
    """``cards`` where there is a device to hold against another, ``times`` where there is only a CPU.

    ``hint`` is one line on how to see a GPU, empty where there is one.
    """

    sentence: str
    warnings: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    times: tuple[Timing, ...] = ()
    hint: str = ""


def answer(
    results: pd.DataFrame,
    speedups: pd.DataFrame,
    crossovers: pd.DataFrame,
    runs: Sequence[Run],
    compared: SideBySide | None = None,
    costs: Mapping[DeviceOfRun, float] | None = None,
) -> Answer:
    """``results``, ``speedups``, ``crossovers``, ``compared``, ``costs`` as :func:`.table.results_table`,
    :func:`.speedup.pair`, :func:`.judgement.crossover_table`, :func:`.machines.side_by_side` and
    :func:`.prices.device_prices` make them."""
    rows = [row for row in records(results) if row["_result"].times]
    named = {row["run"]: row["_run"] for row in rows}
    pairs = records(speedups)
    inside = [row for row in pairs if row["run"] == row["baseline_run"]]
    sides = ("run", "device", "implementation", "baseline_run", "baseline_device", "baseline_implementation")
    # across machines only where nothing is paired inside one
    groups = grouped(inside or pairs, lambda row: tuple(row[name] for name in sides))
    crossings = crossings_by_pair(crossovers)
    counts = Counter(_device(members[0]) for members in groups.values())
    cards = tuple(
        Card(members[0]["run"], _told_apart(members[0], counts), _baseline(members, named), body)
        for members in groups.values()
        if (body := _card_rows(members, crossings))
    )
    noted, sentence = warnings(rows, runs), lead(cards, compared, costs or {})
    if cards:
        return Answer(sentence, noted, cards)
    alone = [row for row in rows if row["implementation"] != "numpy"]
    hint = "" if any(map(on_accelerator, rows)) else _gpu_hint(runs)
    return Answer(" ".join(filter(None, [sentence, _cpu_sentence(alone)])), noted, (), _timings(alone), hint)


def pair_key(row: Row) -> tuple[int, int]:
    """Tells pairs apart."""
    return id(row["_result"]), id(row[BASE])


def crossings_by_pair(crossovers: pd.DataFrame) -> dict[tuple[int, int], Row]:
    """Rows of a crossover table with resident data, by the :func:`pair_key` of the largest size."""
    return {pair_key(row[LINE].row): row for row in records(crossovers) if row["regime"] == RESIDENT}


def _card_rows(members: list[Row], crossings: dict[tuple[int, int], Row]) -> tuple[AnswerRow, ...]:
    rows = []
    for kind, chosen in representatives(members).items():
        sound = [row for row in chosen if judgement.withheld(row) != judgement.ABOVE_PEAK]
        crossed = [crossings[pair_key(row)] for row in sound if pair_key(row) in crossings]
        unknown = AnswerRow(kind, "—", "—", "—", "—", UNSURE, None)
        rows.append(_row(kind, sound, crossed, _in_other_arithmetic(kind, members)) if sound else unknown)
    return tuple(rows)


def _in_other_arithmetic(kind: str, members: list[Row]) -> dict[str, Row]:
    """The typical pair in each dtype and variant, of those that the kind of work was measured in: ``bfloat16``."""
    work = [row for row in members if kind_of(row["workload"]) == kind]
    found = {}
    for name, rows in grouped(work, arithmetic).items():
        if known := judgement.known_speedups(representatives(rows)[kind]):
            found[name.removeprefix("float32 ")] = judgement.middle(known)
    return found


def _device(row: Row) -> str:
    label = device_label(row["_run"], row["device"])
    same = row["device"] == row["baseline_device"] and row["run"] == row["baseline_run"]
    return f"{implementation_name(row['implementation'])} on {label}" if same else label


def _told_apart(row: Row, counts: Counter[str]) -> str:
    """The device, with its run's name where several have a device that is called the same."""
    name = _device(row)
    return f"{name} · {labels.shorten(row['run'], 24)}" if counts[name] > 1 else name


def _baseline(members: list[Row], runs: dict[str, Run]) -> str:
    first = members[0]
    threads = {row["baseline_threads"] for row in members if row["baseline_threads"]}
    label = _with_threads(runs[first["baseline_run"]], first["baseline_device"], threads)
    if first["implementation"] != first["baseline_implementation"]:
        label = f"{implementation_name(first['baseline_implementation'])} on {label}"
    return label if first["run"] == first["baseline_run"] else f"{label} ({first['baseline_run']})"


def _with_threads(run: Run, device: str, threads: set[int]) -> str:
    """``Intel Xeon, 2 threads``; a GPU has none."""
    words = f", {' or '.join(map(str, sorted(threads)))} thread{'s' if threads != {1} else ''}"
    return device_label(run, device) + (words if device == "cpu" and threads else "")


def _row(kind: str, members: list[Row], crossings: list[Row], others: dict[str, Row]) -> AnswerRow:
    known = judgement.known_speedups(members)
    if not known:
        return AnswerRow(kind, TOO_NOISY, "—", "—", "—", UNSURE, None)
    typical = judgement.middle(known)
    low, high = known[0]["speedup"], known[-1]["speedup"]
    if len(known) == 1:
        low, high = typical["low"], typical["high"]
    name = kind if kind not in WORK_KINDS or typical["dtype"] in ("float32", None) else f"{kind}, {typical['dtype']}"
    judged, since = judgement.verdict(typical), _since(crossings, typical)
    exceptions = _exceptions(known, others, judged)
    since = "depends" if exceptions and since == judgement.EVERY_SIZE else since
    cells = times_text(typical["speedup"]), times_range(low, high), copies_text(typical), since
    return AnswerRow(name, *cells, judged, typical, exceptions, len(known))


def _exceptions(members: list[Row], others: dict[str, Row], judged: str) -> str:
    """``not lenet`` where the others are worth it, ``only lenet`` where the others aren't; ``not float64`` likewise."""
    wins, loses = (WORTH_IT, IF_IT_STAYS), (judgement.NOT_WORTH_IT,)
    opposite, word = (loses, "not") if judged in wins else (wins, "only") if judged in loses else ((), "")
    names = [row["workload"].split(".", 1)[-1] for row in members if judgement.verdict(row) in opposite]
    names += [
        name
        for name, row in others.items()
        if judgement.verdict(row) in opposite and all(row is not each for each in members)
    ]
    return f"{word} {listed([labels.shorten(name, 24) for name in names], 2)}" if names else ""


def _since(crossings: Sequence[Row], typical: Row) -> str:
    """``n ≈ 72``; ``n ≈ 11k to 68k`` where several workloads cross, ``depends`` where only some of them do, else what
    holds for the typical one."""
    words = {id(row): crossover_text(row[CROSSING], row[LINE], row["size_parameter"]) for row in crossings}
    names = {row["size_parameter"] for row in crossings}
    if len(crossings) > 1 and len(names) == 1 and all("≈" in word for word in words.values()):
        (name,) = names
        sizes = [row["crossover"] for row in crossings]
        ends = dict.fromkeys((labels.rounded_size(min(sizes), name), labels.rounded_size(max(sizes), name)))
        return f"{labels.size_label(name)} ≈ {' to '.join(ends)}"
    if len({word.startswith(("not ", "only ")) for word in words.values()}) > 1:
        return "depends"
    return next((words[id(row)] for row in crossings if row[LINE].row["_result"] is typical["_result"]), "—")


def _timings(rows: list[Row]) -> tuple[Timing, ...]:
    """Up to ten workloads: first all of the user's own, then one of each kind in turn, in the order of WORK_KINDS."""
    kinds = representatives(rows)
    mine = [row for kind, members in kinds.items() if kind not in WORK_KINDS for row in members]
    known = [members for kind, members in kinds.items() if kind in WORK_KINDS]
    in_turn = [members[i] for i in range(MOST_TIMES) for members in known if i < len(members)]
    chosen = {id(row) for row in [*mine, *in_turn][:MOST_TIMES]}
    return tuple(timing(row) for members in kinds.values() for row in members if id(row) in chosen)


def timing(row: Row) -> Timing:
    """The cells of one measured case; a share above the measured peak can't be, and is a dash."""
    times, rate = row["_result"].times, rate_of(row)
    values = rate.measure(row) if rate else None
    doubt = judgement.withheld(row)
    numpy = "NumPy" if row["implementation"] == "numpy" else ""
    words = row["workload"], numpy, unverified(row["_result"]), sweep.setting_of(row)
    return Timing(
        " ".join(filter(None, words)),
        time_text(times.median_s, labels.flagged(row)),
        "" if not (rate and values) else "—" if doubt else text(values[0], rate.unit),
        "" if row["utilisation"] is None else peak_text(row["utilisation"]),
    )


def time_text(seconds: float, doubtful: bool) -> str:
    """``10.0 ms``; ``10 ms*``, to two digits, where the result is flagged."""
    return f"{text(seconds, 's', 2)}*" if doubtful else seconds_text(seconds)


def unverified(result: Result) -> str:
    """``(not verified)`` for the user's own benchmark whose result was not compared with a reference."""
    own = kind_of(result.workload) == result.workload
    return "(not verified)" if own and result.check and result.check.status != "passed" else ""


def _cpu_sentence(rows: list[Row]) -> str:
    """What the machine reaches of its measured peaks, and where threads pay."""
    kinds = representatives(rows)
    if not kinds:
        what = f"{counted(len(rows), 'benchmark')} measured, of copies or multi-GPU work: gpubench show lists them."
        return what if rows else "Nothing was measured."
    parts = []
    for kind in (kind for kind in (MATRIX, ELEMENTWISE) if kind in kinds and not judgement.withheld(kinds[kind][0])):
        cells = timing(kinds[kind][0])
        details = [
            size_words(kinds[kind][0]) * (kind == MATRIX),
            f"{cells.peak} of peak" * (cells.peak not in ("", "—")),
        ]
        shown = ", ".join(filter(None, details))
        parts.append(f"{cells.rate} in {IN_WORDS[kind]}" + (f" ({shown})" if shown else ""))
    if not parts:
        row = next(iter(kinds.values()))[0]
        parts = [f"{row['workload']} takes {timing(row).time}"]
    run, device = rows[0]["_run"], rows[0]["device"]
    machine = _with_threads(run, device, {run.machine.threads} - {None})
    return f"{machine}: {', '.join(parts)}.{_threads_pay(rows)}"


def _threads_pay(rows: list[Row]) -> str:
    """Where a case ran with one thread and with all of them: what the others bring."""
    jobs: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        parallel = row["_result"].parallel
        if parallel and parallel.devices == 1 and parallel.method in ("single", "one thread"):
            jobs.setdefault((row["run"], row["workload"]), {})[parallel.method] = row
    gains = [
        (sides["one thread"]["time_s"] / sides["single"]["time_s"], sides["single"])
        for sides in jobs.values()
        if len(sides) == 2
    ]
    if not gains:
        return ""
    gain, row = max(gains, key=lambda entry: entry[0])
    return f" {row['threads']} threads against one: {times_text(gain)} on {row['workload']}."


def _gpu_hint(runs: Sequence[Run]) -> str:
    """One line on how to see a GPU, for runs that had none."""
    builds = [run.machine.torch or "" for run in runs]
    if any(build.endswith("+cpu") for build in builds):
        return (
            "No GPU used: this PyTorch build (+cpu) has no CUDA or ROCm support. Have a GPU? "
            "Install a GPU build (pytorch.org/get-started), then run again."
        )
    return "No GPU used. Have a GPU? gpubench env says why PyTorch can't see it."


def warnings(rows: Sequence[Row], runs: Sequence[Run]) -> tuple[str, ...]:
    """What a reader has to know before the numbers, one line each."""
    smoke = [run.preset == "smoke" for run in runs]
    lines = ["Smoke run: it checks that the benchmarks work; its times mean nothing."] * any(smoke)
    devices = {device.label or device.name for run in runs for device in run.machine.devices if device.simulated}
    if devices:
        lines.append(f"Times of the {listed(sorted(devices))} come from a model, not from hardware: don't quote them.")
    if smoke and all(smoke):
        return tuple(lines)
    judged = [row for row in rows if kind_of(row["workload"])] or rows
    noisy = sum(labels.noisy(row) for row in judged)
    busy = any(flag.name == "contended" for run in runs for flag in run.flags)
    if judged and (busy or noisy > _BUSY_SHARE * len(judged)):
        cause = "The machine was busy" if busy else "Many results are noisy"
        count = f"{noisy} of {len(judged)} results are noisy (*) and may be far off"
        effect = count if noisy else "all times may be too long, although no single result is noisy"
        lines.append(f"{cause}: {effect}. Close other programs and run again.")
    if rows and all(len(row["_result"].times.processes) < 2 for row in rows):
        lines.append("One process: ranges are no confidence intervals (use --processes 3).")
    above = [row for row in judged if (row["utilisation"] or 0) > 1]
    if above:
        names = listed(list(dict.fromkeys(row["workload"] for row in above)), 2)
        hidden = "% of peak" + " and speedup" * any(map(judgement.withheld, above))
        lines.append(
            f"{counted(len(above), 'result')} above 100% of the measured peak, which can't be ({names}): the peak was "
            f"measured too low or the work overstated; no {hidden} is shown."
        )
    return tuple(lines)
