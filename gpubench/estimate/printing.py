"""Estimates as text: a table with a column for each GPU, all values as columns of files, and the list of GPUs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..devices.datasheets import Figures, Gpu, read_cards
from ..devices.roofline import learned_values
from ..report import words
from ..report.answer import AnswerRow, answer_rows, choose_rows
from ..report.render import Column, Table, escape, markdown, table, terminal
from ..report.rows import PEOPLE_COUNT, Measured, grouped
from ..report.study import Study
from ..runfile.quantities import counted, listed, text
from .outlook import MODELLED, Outlook, key_of

VALUES: Sequence[Column[Outlook]] = (
    Column("id", lambda each: each.job.case.id),
    Column("how", lambda each: each.job.how),
    Column("filled", lambda each: each.job.filled),
    Column("gpu", lambda each: each.gpu),
    Column("cpu_s", lambda each: each.job.cpu_s),
    Column("cpu_way", lambda each: each.job.way),
    Column("bound", lambda each: each.bound),
    Column("shortest_s", lambda each: each.shortest_s),
    Column("at_most", lambda each: each.at_most),
    Column("probably_low", lambda each: each.probably and each.probably[0]),
    Column("probably_high", lambda each: each.probably and each.probably[1]),
    Column("with_copies_at_most", lambda each: each.with_copies_at_most),
    Column("memory_bytes", lambda each: each.memory_bytes),
    Column("batch", lambda each: each.batch),
    Column("rate_low", lambda each: each.rate and each.rate[0]),
    Column("rate_high", lambda each: each.rate and each.rate[1]),
    Column("unit", lambda each: each.job.work.unit),
    Column("status", lambda each: MODELLED),
    Column("note", lambda each: "; ".join(filter(None, (each.note, STARRED * bool(each.at_most and each.job.star))))),
)
"""Columns of files: SI base units, and empty where a value is unknown."""
MOST_SHOWN = 200.0
"""The largest speedup shown: a larger bound often rests only on the launch of an operation. Files hold it."""
NOTICE = "Modelled, not measured: from the GPU's datasheet and each benchmark's work. How wrong: docs/estimate.md"
BOUNDS, BEYOND = "≤ and ≥: no program does better (datasheet; 2 µs a launch)", f">{MOST_SHOWN:g}×: a range above that"
STARRED = "The CPU was busy, or its times noisy: a low end counts with the least time that it can be shown to need"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Line:
    """A row of the table: what it is called, and its estimates by GPU, or what else is ``told`` of them."""

    label: str
    answer: AnswerRow[Measured] | None
    of: Mapping[str, Outlook]
    told: Callable[[Outlook], str] | None = None

    @property
    def first(self) -> Outlook:
        """The estimate for the first GPU."""
        return next(iter(self.of.values()))


def lines_of(study: Study, estimates: Iterable[Outlook], every: bool = False) -> list[Line]:
    """The rows of the answer, as far as something can be estimated of them; if ``every``, each benchmark at each size,
    in each way that a GPU could compute it, and its items per second where people count them."""
    found: dict[Hashable, list[Line]] = {}
    able = (each for each in estimates if not each.job.obstacle)
    groups = grouped(able, lambda each: (key_of(each.job.case), each.job.how, each.job.filled))
    for (key, *_), members in groups.items():
        of, job = {each.gpu: each for each in members}, members[0].job
        how = f"\u2003{job.how}{', GPU full' * job.filled}"
        lines = found.setdefault(key, [])
        lines.append(Line(how if job.how else words.benchmark(job.case), None, of))
        counted_so = job.work.unit in PEOPLE_COUNT and (job.filled or not job.how)
        if counted_so and any(each.rate for each in members):
            lines.append(Line(f"\u2003{job.work.unit}s/s", None, of, _rates))
        if job.filled and any(each.memory_bytes for each in members):
            lines.append(Line("\u2003memory", None, of, _filled_memory))
    if every:
        return [line for lines in found.values() for line in lines]
    rows = [row for row in study.measured if not row.on_accelerator and not row.library]
    rows = [row for row in rows or study.measured if key_of(row.result) in found]
    answer = answer_rows(study, rows)
    return [Line(each.indented, each, found[key_of(each.items[0].result)][0].of) for each in answer]


def cell(each: Outlook, bound: bool = False, star: str = "") -> str:
    """``12–33×``, ``>200×``; ``12× to ≤ 33×`` where the range ends at the bound; ``≤ 2.6×`` where only a bound is known
    that excludes something; or ``unknown``. With the ``bound`` behind it if that is wanted, and the CPU's ``star``."""
    batch = f" at batch {each.batch}" * each.job.filled if each.batch else ""
    if each.at_most is None:
        return f"CPU unknown{batch}" if batch else UNKNOWN
    if each.at_most < 1:
        return f"≥ {words.times(each.at_most)}{star}"
    limit = f"≤ {words.times(each.at_most)}{star}"
    if each.probably is None:
        return limit if each.at_most <= MOST_SHOWN else UNKNOWN
    low, high = each.probably
    if high >= each.at_most and low <= MOST_SHOWN:
        return f"{words.times(low)} to {limit}{batch}"
    beyond = low > MOST_SHOWN and not bound
    likely = f">{MOST_SHOWN:g}×" if beyond else words.times_range(low, high).replace("× to ", "–")
    return likely + star + batch + f", {limit}" * (bound and each.at_most <= MOST_SHOWN)


def _rates(each: Outlook) -> str:
    """``410–1,100``; where launches hide what the GPU could do, the bound too: ``35–84, ≤ 1,100``."""
    if not each.rate:
        return ""
    most = (each.job.work.items or 0.0) * each.times / (each.shortest_s or 1.0)
    return "–".join(map(_people_count, each.rate)) + f", ≤ {_people_count(most)}" * each.launches


def _people_count(rate: float) -> str:
    rounded = float(f"{rate:.2g}")
    return f"{rounded / 1e6:g}M" if rounded >= 1e6 else f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _filled_memory(each: Outlook) -> str:
    """``31.2 GB of 80.0 GB``."""
    whole = read_cards()[0][each.gpu].value("capacity")
    sizes = [text(value, "B") for value in (each.memory_bytes, whole) if value]
    return " of ".join(sizes) if each.memory_bytes else ""


def _cell(gpu: str, bound: bool, line: Line) -> str:
    each = line.of[gpu]
    return line.told(each) if line.told else cell(each, bound, each.job.star)


def _cpu(line: Line) -> str:
    """The CPU's time, or its items per second; empty for another way than it was timed in."""
    job = line.first.job
    if job.how:
        return ""
    if line.told:
        return f"{_people_count((job.work.items or 0.0) / job.cpu_s)}{job.star}"
    return words.starred_time(job.cpu_s, job.star) + words.OTHER_WAY * bool(job.way)


def base_of(lines: Sequence[Line], name: str) -> str:
    """What the speedups are over: ``1 of 2 threads of Xeon``, since a CPU with more would be faster."""
    threads = {(line.first.job.case.threads, line.first.job.cores) for line in lines}
    count, cores = threads.pop() if len(threads) == 1 else (None, None)
    if not count:
        return name
    return f"{count} of {cores} threads of {name}" if count < (cores or 0) else f"{counted(count, 'thread')} of {name}"


def table_of(lines: Sequence[Line], bound: bool) -> Table:
    """The table; with a ``bound`` what is certain too."""
    gpus = dict.fromkeys(gpu for line in lines for gpu in line.of)
    columns = [
        Column[Line]("benchmark", lambda line: line.label),
        Column[Line]("CPU", _cpu),
    ]
    columns += [Column[Line](gpu, partial(_cell, gpu, bound)) for gpu in gpus]
    title = f"Estimated speedup over {base_of(lines, 'the CPU')} ({MODELLED}, not measured)"
    starred = [each for line in lines for each in line.of.values() if each.job.star]
    means = STARRED if any(each.at_most for each in starred) else STARRED.partition(":")[0]
    return table(title, columns, lines, f"* {means}." * bool(starred))


def foot(lines: Sequence[Line], estimates: Iterable[Outlook], bound: bool) -> list[str]:
    """What the cells mean, how often such ranges held, and why something is unknown."""
    shown = [each for line in lines for each in line.of.values()]
    beyond = f"; {BEYOND} (-k NAME shows it)" * any(">" in cell(each, bound) for each in shown)
    parts = [f"Ranges are likely; {BOUNDS}{beyond}.", f"{NOTICE}."]
    ways = grouped((each for each in shown if each.job.way), lambda each: each.job.way)
    if told := [f"{way} ({_names(of, shown)})" for way, of in ways.items()]:
        parts.insert(0, f"{words.OTHER_WAY} the CPU's fastest way: {listed(told, joint='; ')}.")
    ranges = {each.basis for each in shown if each.probably}
    held = {kind: dict.fromkeys(f"{share:.0%}" for share in ends) for kind, ends in learned_values().held.items()}
    rates = [f"{' to '.join(ends)} of {kind}" for kind, ends in held.items() if kind in ranges]
    if rates:
        parts.append(f"Ranges, on GPUs that were kept apart: {listed(rates, 9)} lay inside (float32, from 0.1 ms on).")
    if "" in ranges:
        parts.append("Compared with no measurement, so wide: convolutions, sorts, and any dtype but float32.")
    if launched := [each for each in shown if each.launches and each.probably]:
        why = "at the low end launches take most of the time; compiled, as a CUDA graph, or at a larger batch, which"
        why += " -k NAME shows, GPUs are faster and differ more"
        parts.append(f"Launch-bound ({why}): {_names(launched, shown)}.")
    if reads := dict.fromkeys(name for each in shown if (name := words.name(each.job.case)).endswith("prefill")):
        parts.append(
            f"{listed(reads)} reads tokens, all at once; generating them takes longer: gpubench run -k decode."
        )
    if any(each.job.how for each in shown):
        parts.append(
            "TF32 and autocast on the GPU are over the CPU in float32. GPU full: at a batch that fills it and fits its"
            " memory. The CPU is taken to be as fast per item."
        )
    copied = grouped((each for each in shown if each.with_copies_at_most), lambda each: key_of(each.job.case)).values()
    lost = [each[0] for each in copied if max(one.with_copies_at_most or 0.0 for one in each) < 1]
    if lost:
        parts.append(f"With the data copied in and out for every call no GPU here is faster: {_names(lost, shown)}.")
    parts += _memory(shown) if shown else []
    lacking = [each for each in (*shown, *(one for one in estimates if one.job.obstacle)) if each.note]
    for reason, members in grouped(lacking, lambda each: each.note).items():
        parts.append(f"{UNKNOWN.capitalize()}: {_names(members, shown)}: {reason}.")
    return parts


def _names(some: Sequence[Outlook], shown: Sequence[Outlook]) -> str:
    """The benchmarks of these estimates; with their sizes where others of the name are shown."""
    keys = {key_of(each.job.case) for each in some}
    others = {words.name(each.job.case) for each in shown if key_of(each.job.case) not in keys}
    called = [words.name(each.job.case) for each in some]
    told = [words.benchmark(each.job.case) if name in others else name for each, name in zip(some, called, strict=True)]
    return listed(dict.fromkeys(told), 6, joint="; ")


def _memory(shown: Sequence[Outlook]) -> list[str]:
    """The size and bandwidth of each GPU's memory, the bandwidth of the CPU's, and what the largest benchmark needs."""
    cards = read_cards()[0]
    sizes = [
        f"{name} {text(cards[name].value('capacity'), 'B')} at {text(cards[name].value('memory'), 'B/s')}"
        for name in dict.fromkeys(each.gpu for each in shown)
    ]
    cpu = listed(dict.fromkeys(text(each.job.bandwidth, "B/s") for each in shown if each.job.bandwidth))
    cpu = f"; the CPU's, as measured: {cpu}" if cpu else ""
    largest = max((each.job for each in shown), key=lambda job: job.held_bytes() * (not job.how))
    held, batch = largest.held_bytes(), largest.case.params.get("batch")
    need = f"The largest benchmark here needs {text(held, 'B')} ({words.name(largest.case)})"
    need += f" at batch={batch}, more at a larger one" * bool(batch)
    unknown = "What the benchmarks here need is unknown" + (
        ": measure the forward pass too, which tells it" * (largest.case.kind == "training")
    )
    return [f"GPU memory: {listed(sizes, len(sizes))}{cpu}. {need if held else unknown}."]


# Ways to write --------------------------------------------------------------------------------------------------------


def as_json(estimates: Iterable[Outlook], run: str) -> str:
    """All values as JSON."""
    rows = [{column.head: column.cell(each) for column in VALUES} for each in estimates]
    return json.dumps({"status": MODELLED, "notice": NOTICE, "run": run, "estimates": rows}, indent=1) + "\n"


def as_markdown(lines: Sequence[Line], estimates: Iterable[Outlook]) -> list[str]:
    """The table as Markdown, with every line and the bounds."""
    shown = table_of(lines, True)
    return [
        f"{shown.title}:",
        "",
        *markdown(shown),
        "",
        *(f"- {escape(each)}" for each in foot(lines, estimates, True)),
    ]


def screen(lines: Sequence[Line], estimates: Sequence[Outlook], every: bool, width: int) -> list[str]:
    """The lines for the terminal; if ``every`` all of them, with the bounds."""
    chosen = choose_rows([line.answer for line in lines if line.answer])
    shown = [line for line in lines if line.answer is None or line.answer in chosen]
    more = f"{counted(len(lines) - len(shown), 'more row')}: " if len(shown) < len(lines) else ""
    more += "-k NAME shows all sizes, bounds, and of networks TF32, autocast, items per second and a full batch;"
    more += " --format csv everything."
    below = [*foot(shown, estimates, every), *([] if every else [more[:1].upper() + more[1:]])]
    wrapped = (part for text in below for part in textwrap.wrap(text, width))
    return [*terminal(table_of(shown, every), width), "", *wrapped]


_UNITS = {"memory": "B/s", "memory_reached": "B/s", "link": "B/s", "cache": "B", "capacity": "B", "watt": "W"}
"""The units of a card's figures; of all others FLOP/s."""


def list_text(cards: Mapping[str, Gpu], sources: Mapping[str, str]) -> str:
    """All cards: each figure with its source."""
    lines, used = [], set()
    for card in cards.values():
        said = [f"also: {', '.join(card.aliases)}"] * bool(card.aliases)
        said += [f"emulates {', '.join(card.emulates)}"] * bool(card.emulates)
        lines.append(card.name + (f" ({'; '.join(said)})" if said else ""))
        for name in Figures.__struct_fields__:
            figure, told = getattr(card.figures, name), name.replace("_", " ")
            if figure is None:
                lines.append(f"  {told:15} {'—':>14}")
                continue
            note = f" ({figure.note})" if figure.note else ""
            lines.append(f"  {told:15} {text(figure.value, _UNITS.get(name, 'FLOP/s')):>14}  {figure.source}{note}")
            used.add(figure.source)
    lines += ["", "Sources", *(f"  {name:20} {sources[name]}" for name in sorted(used) if name in sources)]
    return "\n".join(lines)
