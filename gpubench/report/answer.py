"""The answer: how much faster each device is, from which size, and whether it is worth it.

Pure functions from a report's tables to words and numbers; the terminal, summary.md, the pictures' titles and the page
show the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ..format import counted, seconds_text, text
from ..runfile.schema import Run
from . import judgement, labels, sweep
from .judgement import IF_IT_STAYS, TOO_NOISY, UNSURE, WORTH_IT, WORTHWHILE, copies_text, crossover_text, peak_text
from .labels import Row, device_label, grouped, implementation_name, listed, short_device, times_range, times_text
from .speedup import RESIDENT, on_accelerator
from .sweep import ELEMENTWISE, MATRIX, NETWORKS, OTHER_MATRIX, TRAINING, WORK_KINDS, rate_of, representatives
from .table import BASE, CROSSING, LINE, records

MOST_TIMES = 10
_BUSY_SHARE = 1 / 3
_IN_WORDS = {
    MATRIX: "large matrix products",
    OTHER_MATRIX: "batched and tall matrix products",
    NETWORKS: "networks",
    TRAINING: "training",
    ELEMENTWISE: "elementwise work",
}


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One kind of work on a card; the numbers are those of ``row``, one measured pair, and never a mean.

    ``typically``, ``range`` (over workloads, each at its largest size), ``copies`` and ``since`` are ready to print.
    ``row`` is None where all of them are too noisy or can't be.
    """

    name: str
    typically: str
    range: str
    copies: str
    since: str
    verdict: str
    row: Row | None

    @property
    def worth(self) -> str:
        """``✓ worth it``."""
        return f"{judgement.MARKS[self.verdict]} {self.verdict}"

    @property
    def cells(self) -> tuple[str, ...]:
        """As :data:`ANSWER_COLUMNS`."""
        return self.name, self.typically, self.range, self.copies, self.since, self.worth


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


def answer(results: pd.DataFrame, speedups: pd.DataFrame, crossovers: pd.DataFrame, runs: Sequence[Run]) -> Answer:
    """``results``, ``speedups`` and ``crossovers`` as :func:`.table.results_table`, :func:`.speedup.pair` and
    :func:`.judgement.crossover_table` make them."""
    rows = [row for row in records(results) if row["_result"].times]
    named = {row["run"]: row["_run"] for row in rows}
    pairs = records(speedups)
    inside = [row for row in pairs if row["run"] == row["baseline_run"]]
    sides = ("run", "device", "implementation", "baseline_run", "baseline_device", "baseline_implementation")
    # across machines only where nothing is paired inside one
    groups = grouped(inside or pairs, lambda row: tuple(row[name] for name in sides))
    crossings = crossings_by_pair(crossovers)
    cards = tuple(
        Card(members[0]["run"], _device(members[0]), _baseline(members, named), body)
        for members in groups.values()
        if (body := _card_rows(members, crossings))
    )
    noted = warnings(rows, runs)
    if cards:
        return Answer(" ".join(_card_sentence(card) for card in cards), noted, cards)
    alone = [row for row in rows if row["implementation"] != "numpy"]
    hint = "" if any(map(on_accelerator, rows)) else _gpu_hint(runs)
    return Answer(_cpu_sentence(alone), noted, (), _timings(alone), hint)


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
        rows.append(_row(kind, sound, crossed) if sound else unknown)
    return tuple(rows)


def _device(row: Row) -> str:
    label = device_label(row["_run"], row["device"])
    same = row["device"] == row["baseline_device"] and row["run"] == row["baseline_run"]
    return f"{implementation_name(row['implementation'])} on {label}" if same else label


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


def _row(kind: str, members: list[Row], crossings: list[Row]) -> AnswerRow:
    known = [row for row in members if not judgement.too_noisy(row["low"], row["high"])]
    known.sort(key=lambda row: row["speedup"])
    if not known:
        return AnswerRow(kind, TOO_NOISY, "—", "—", "—", UNSURE, None)
    typical = known[(len(known) - 1) // 2]
    low, high = known[0]["speedup"], known[-1]["speedup"]
    if len(known) == 1:
        low, high = typical["low"], typical["high"]
    name = kind if kind not in WORK_KINDS or typical["dtype"] in ("float32", None) else f"{kind}, {typical['dtype']}"
    cells = times_text(typical["speedup"]), times_range(low, high), copies_text(typical), _since(crossings, typical)
    return AnswerRow(name, *cells, judgement.verdict(typical), typical)


def _since(crossings: Sequence[Row], typical: Row) -> str:
    """``n ≈ 72``; ``n ≈ 11k to 68k`` where several workloads cross, else what holds for the typical one."""
    words = {id(row): crossover_text(row[CROSSING], row[LINE], row["size_parameter"]) for row in crossings}
    names = {row["size_parameter"] for row in crossings}
    if len(crossings) > 1 and len(names) == 1 and all("≈" in word for word in words.values()):
        (name,) = names
        sizes = [row["crossover"] for row in crossings]
        ends = dict.fromkeys((labels.rounded_size(min(sizes), name), labels.rounded_size(max(sizes), name)))
        return f"{labels.size_label(name)} ≈ {' to '.join(ends)}"
    return next((words[id(row)] for row in crossings if row[LINE].row["_result"] is typical["_result"]), "—")


def _card_sentence(card: Card) -> str:
    """``H200: 132× on large matrix products and 73× on networks.`` and what copies make of them."""
    sure = sorted((row for row in card.rows if row.verdict in (WORTH_IT, IF_IT_STAYS)), key=_leading)
    name = short_device(card.device)
    if not sure:
        return f"{name}: no work is surely {WORTHWHILE:g}× as fast as on {card.baseline}."
    lead = sure[:2]
    sentence = f"{name}: {' and '.join(f'{row.typically} on {_words(row)}' for row in lead)}."
    parts = [f"{row.copies} on {_words(row)}" for row in lead if row.copies not in ("—", TOO_NOISY)]
    slower = [row for row in sure[2:] if row.copies.endswith("slower")]
    parts += [f"{row.copies} on {_words(row)}, so leave that on the CPU" for row in slower[-1:]]
    if not parts:
        return sentence
    copied = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"{sentence} If the data has to be copied there and back for each call: {copied}."


def _leading(row: AnswerRow) -> int:
    """Place in the sentence; the user's own work comes before small and thin matrices."""
    order = (MATRIX, NETWORKS, TRAINING, "", OTHER_MATRIX, ELEMENTWISE)
    return order.index(row.name if row.name in order else "")


def _words(row: AnswerRow) -> str:
    return _IN_WORDS.get(row.name, row.name)


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
    star = "*" if row["_result"].flags else ""
    numpy = " NumPy" if row["implementation"] == "numpy" else ""
    return Timing(
        f"{row['workload']}{numpy} {sweep.setting_of(row)}",
        seconds_text(times.median_s) + star,
        text(values[0], rate.unit) if rate and values else "",
        "" if row["utilisation"] is None else peak_text(row["utilisation"]),
    )


def _cpu_sentence(rows: list[Row]) -> str:
    """What the machine reaches of its measured peaks, and where threads pay."""
    kinds = representatives(rows)
    if not kinds:
        return "Nothing was measured."
    parts = []
    for kind in (kind for kind in (MATRIX, ELEMENTWISE) if kind in kinds):
        cells = timing(kinds[kind][0])
        share = f" ({cells.peak} of peak)" if cells.peak not in ("", "—") else ""
        parts.append(f"{cells.rate} in {_IN_WORDS[kind]}{share}")
    if not parts:
        row = next(iter(kinds.values()))[0]
        parts = [f"{row['workload']} takes {seconds_text(row['_result'].times.median_s)}"]
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
    if smoke and all(smoke):
        return tuple(lines)
    flagged = sum(bool(row["_result"].flags) for row in rows)
    busy = any(flag.name == "contended" for run in runs for flag in run.flags)
    if rows and (busy or flagged > _BUSY_SHARE * len(rows)):
        cause = "The machine was busy" if busy else "Many results are doubtful"
        lines.append(
            f"{cause}: {flagged} of {len(rows)} results are flagged (*) and may be far off. "
            "Close other programs and run again before you quote them."
        )
    if rows and all(len(row["_result"].times.processes) < 2 for row in rows):
        lines.append("Measured in one process: ranges are its spread, not confidence intervals (use --processes 3).")
    above = [row for row in rows if (row["utilisation"] or 0) > 1]
    if above:
        names = listed(list(dict.fromkeys(row["workload"] for row in above)), 3)
        lines.append(
            f"{counted(len(above), 'result')} above 100% of the measured peak, which can't be ({names}): the peak was "
            "measured too low, or less work was done than declared. Their % of peak is not shown."
        )
    return tuple(lines)
