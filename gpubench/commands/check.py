"""``gpubench check``: may these cards be published? Each reason why not is a sentence.

It finds slips, leaks, wrong units and nonsense. Carefully invented numbers look like measured ones; docs/publishing.md
describes what is done about those.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from ..errors import RunFileError, UsageError
from ..runfile.quantities import listed, moment_of
from ..runfile.schema import KEY, Result, Run, Times

PROCESSES = 3
FEW_PROCESSES = 0.1
"""Share of benchmarks that may have fewer processes, because one ended early."""
NOISY_MOST, BUSY_MOST = 0.5, 0.25
"""Shares of benchmarks that may be noisy, and measured on a busy machine: above them the card describes other programs
rather than the machine."""
FIRST_YEAR = 2025
"""The earliest plausible year of a run: an earlier date comes from a clock that wasn't set."""
CLOCK_OFF = timedelta(days=1)
LONGER = 1.5
"""The rounds of a run may seem to take at most this many times its duration, as medians stand for rounds."""
ROUNDED = 0.02
"""Relative accuracy of the median of many rounds: files keep 200 of them."""
EQUAL, FEW = 1e-4, 3
"""Two cards hold the same run if the ratio of their times is constant, within this share, in most of their common
benchmarks, of which there must be at least ``FEW``."""
UNUSUAL = 1.25
"""A card is unusual if its times differ by more than this factor from those of another card of the same name."""
_MODELLED = re.compile(r"\b(modelled|simulated|synthetic|emulated|demo)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"\b[\w-]+\.(local|lan|intranet|corp)\b|\b(?-i:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{7,}\b"
    r"|[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}"
    r"|\w['’]s[ -]([\w-]+ )?(i?mac|macbook|pc|desktop|laptop|computer|server|workstation)\b",
    re.IGNORECASE,
)
"""Names that owners give to machines, and serial numbers."""
LONGEST_TEXT, LONGEST_NAME = 200, 64
"""Most characters of a text, and of the name of a device; a CPU reports at most 48 for its own."""
ERROR_MOST = 0.2
"""Relative error of a result that counts as right: tolerances end at 0.05."""
_SIGNS = re.compile(r"[<>`|\\]|\]\(|&\w+;")
"""Signs of markup, which doesn't occur in our texts."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_REASONS = ("reason", "allowed_basis")
"""Keys of texts that may quote another library."""
_WRITTEN = ("label", "driver", "model", "reason", "device_reason", "allowed_basis")
"""Keys of texts in which the name of host or user can't be a word of a benchmark's name."""
_MOST_SHOWN = 3


@dataclass(frozen=True)
class Card:
    """A card to be published: the content of its file, the card made from that content, and the run read from it."""

    path: Path
    data: dict[str, Any]
    sound: dict[str, Any]
    run: Run

    @cached_property
    def medians(self) -> dict[tuple[str, ...], list[float]]:
        """The medians of the processes, by benchmark."""
        return {_key(each): [p.median_s for p in each.times.processes] for each in self.run.results if each.times}

    @property
    def name(self) -> tuple[object, ...]:
        """What the card is compared by: the devices and the threads."""
        return *sorted(device.label for device in self.run.machine.devices), self.run.machine.threads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`main` reads."""
    add = parser.add_argument
    add("cards", nargs="+", metavar="CARD", help="card, or a results file of which one would be made, or a folder")
    known = "folder of published cards: a copy of one is refused, and one far from those of its name is called unusual"
    add("--known", action="append", default=[], metavar="FOLDER", help=f"{known}; repeatable")
    formats = "text for people (default), or github: annotations of a workflow"
    add("--format", choices=("text", "github"), default="text", help=formats)


def main(args: argparse.Namespace) -> int:
    """Returns 0 if all may be published, else 1. Raises UsageError for what isn't there."""
    from ..runfile.reader import clean

    paths = list(_files(args.cards))
    cards = {path: read_card(path) for path in dict.fromkeys([*paths, *_files(args.known)])}
    sound = [card for card in cards.values() if isinstance(card, Card)]
    refused = 0
    for path in paths:
        card = cards[path]
        reasons = [card] if isinstance(card, str) else refusals(card, sound)
        notes = remarks(card, sound) if isinstance(card, Card) else []
        refused += bool(reasons)
        found = [("error", reason) for reason in reasons] + [("warning", f"unusual: {note}") for note in notes]
        for line in (_annotations if args.format == "github" else _lines)(path, found):
            print(clean(line))
    return 1 if refused else 0


def _files(paths: Iterable[str]) -> Iterator[Path]:
    from ..runfile.folder import not_there

    for path in map(Path, paths):
        if not path.exists():
            raise not_there(path)
        if path.is_dir() and not (found := sorted(path.rglob("[!.]*.json"))):
            raise UsageError(f"{path}: no card in this folder")
        yield from found if path.is_dir() else [path]


def _lines(path: Path, found: Sequence[tuple[str, str]]) -> list[str]:
    refused = any(kind == "error" for kind, _ in found)
    return [f"{path}: {'refused' if refused else 'may be published'}", *(f"  {words}" for _, words in found)]


def _annotations(path: Path, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The errors as workflow commands. Their special characters are escaped, as a file's name or text must not end a
    command."""
    place = re.sub("[%\r\n:,]", lambda sign: f"%{ord(sign[0]):02X}", str(path))
    for kind, words in found or [("notice", "may be published")]:
        yield f"::{kind} file={place}::" + re.sub("[%\r\n]", lambda sign: f"%{ord(sign[0]):02X}", words)


def read_card(path: Path) -> Card | str:
    """The card in a file, or the reason why the file holds none."""
    from ..runfile.card import card_of
    from ..runfile.reader import check_run, content_of

    try:
        data = content_of(path)
        run = check_run(path, data)
        return Card(path, data, card_of(data, path), run)
    except (RunFileError, UsageError) as error:
        return str(error).removeprefix(f"{path}: ")


def refusals(card: Card, others: Iterable[Card] = ()) -> list[str]:
    """One sentence for each reason why the card may not be published."""
    from ..devices.datasheets import read_cards
    from ..estimate.plausible import impossible

    rules = (_form, _private, _worded, _measured, _processes, _dates, _identities, _statistics, _quiet)
    reasons = [reason for rule in rules for reason in rule(card)]
    return [*reasons, *impossible(card.run, read_cards()[0]), *_copies(card, others)]


# The form -------------------------------------------------------------------------------------------------------------


def _form(card: Card) -> Iterator[str]:
    """Reasons in the form: a card must be exactly what would be made from it, without further keys or repeated keys."""
    from ..runfile.card import card_text

    if not card.run.card:
        return
    places = list(_differences(card.data, card.sound))
    for place in places[:_MOST_SHOWN]:
        yield f"{place}: not what gpubench export RUN --to card writes there"
    if not places and card.path.read_bytes() != card_text(card.data).encode():
        yield "not written as gpubench export RUN --to card writes it"


def _differences(found: Any, sound: Any, place: str = "") -> Iterator[str]:
    """The outermost places where two values differ."""
    if isinstance(found, dict) and isinstance(sound, dict):
        for name in {**found, **sound}:
            yield from _differences(found.get(name, ...), sound.get(name, ...), f"{place}.{name}".lstrip("."))
    elif isinstance(found, list) and isinstance(sound, list) and len(found) == len(sound):
        for number, pair in enumerate(zip(found, sound, strict=True)):
            yield from _differences(*pair, f"{place}[{number}]")
    elif found != sound:
        yield place


def _private(card: Card) -> Iterator[str]:
    """Find host, user, paths and addresses in any text."""
    from ..runfile.writer import without_paths, without_places

    places: dict[str, str] = {}
    for place, words in _texts(card.data if card.run.card else card.sound):
        places.setdefault(words, place)
    for words, place in places.items():
        written = place.rpartition(".")[2].partition("[")[0] in _WRITTEN
        if (without_paths if written else without_places)(words) != words or _NAMED.search(words):
            yield f"{place}: holds a path, an address or a name, {words[:80]!r}: nobody needs to know that"


def _worded(card: Card) -> Iterator[str]:
    """Names must consist of words in our own code, except for short names that a machine's maker chose."""
    told = dict(card.sound[KEY])
    names = [
        ("gpubench.version", str(told.pop("version", ""))),
        *_texts(card.sound.get("machine_info"), "machine_info"),
    ]
    ours = [*_texts(told, KEY), *_texts(card.sound["benchmarks"], "benchmarks")]
    places = {words: place for place, words in (*names, *ours) if len(words) > LONGEST_TEXT or _SIGNS.search(words)}
    places |= {words: place for place, words in ours if not place.endswith(_REASONS) and _unknown(words)}
    places |= {w: place for place, w in names if place.endswith(("label", "model")) and len(w) > LONGEST_NAME}
    for words, place in list(places.items())[:_MOST_SHOWN]:
        yield f"{place}: no text that gpubench writes there, {words[:80]!r}"


def _unknown(words: str) -> list[str]:
    """The words that don't occur in our code, with or without their first letter (a prefix, as in GFLOP)."""
    known = _vocabulary()
    return [word for word in _WORD.findall(words.lower()) if word not in known and word[1:] not in known]


@functools.cache
def _vocabulary() -> frozenset[str]:
    """All words of the package, its suite and its datasheets."""
    from ..supervise.process import PACKAGE, suite

    files = {*PACKAGE.rglob("*.py"), *suite().glob("*.py"), *PACKAGE.glob("devices/*.json")}
    return frozenset(word for file in files for word in _WORD.findall(file.read_text(encoding="utf-8").lower()))


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """All texts and keys, each with its place."""
    if isinstance(value, str):
        yield place, value
    for name, each in value.items() if isinstance(value, dict) else ():
        yield place, name
        yield from _texts(each, f"{place}.{name}".lstrip("."))
    for number, each in enumerate(value) if isinstance(value, list) else ():
        yield from _texts(each, f"{place}[{number}]")


# The measurement ------------------------------------------------------------------------------------------------------


def _measured(card: Card) -> Iterator[str]:
    run = card.run
    for device in run.machine.devices:
        if device.simulated or _MODELLED.search(f"{device.label} {device.driver}"):
            yield f"{device.label or device.name} is modelled: only what was measured is published"
    if run.preset not in ("glance", "quick", "full"):
        told = "smoke run: it tries the code, its times mean nothing" if run.preset == "smoke" else "unknown preset"
        yield f"{told}; measure with gpubench run"
    if run.stage:
        yield f"part of a comparison ({run.stage}), not a run of its own"
    if not card.medians:
        yield "no benchmark was measured"


def _processes(card: Card) -> Iterator[str]:
    """There must be three processes or more, each with its own times."""
    few = sum(len(each) < PROCESSES for each in card.medians.values())
    if card.run.processes < PROCESSES or few > FEW_PROCESSES * len(card.medians):
        yield f"timed in fewer than {PROCESSES} processes: nothing is known of its spread; gpubench run --processes 3"
    for one, other in combinations(range(PROCESSES), 2):
        pairs = [(each[one], each[other]) for each in card.medians.values() if len(each) > other]
        if len(pairs) >= FEW and sum(first == second for first, second in pairs) > len(pairs) / 2:
            yield f"processes {one} and {other} have the same times: one was copied"


def _dates(card: Card) -> Iterator[str]:
    started, finished = (moment_of(card.data[KEY].get(name)) for name in ("started", "finished"))
    if not started or not finished:
        yield "when it was measured isn't known"
        return
    written = moment_of(card.data.get("datetime"))
    for moment in {each.date(): each for each in (started, finished, written or finished)}.values():
        if not datetime(FIRST_YEAR, 1, 1, tzinfo=UTC) <= moment <= datetime.now(UTC) + CLOCK_OFF:
            yield f"measured on {moment:%Y-%m-%d}: the machine's clock was wrong"
    took = (finished - started).total_seconds()
    timed = sum(t.rounds * t.iterations * t.median_s for each in card.run.results if (t := each.times))
    timed += sum(each.first_call_s or 0.0 for each in card.run.results)
    if took < 0:
        yield "it ended before it began"
    elif timed > LONGER * took:
        yield f"its rounds take {timed:.3g} s, and the whole run took {took:.3g} s: seconds in another unit?"


def _identities(card: Card) -> Iterator[str]:
    """Names of flags, kinds of work and data types must be ours; each benchmark must occur once, with a right
    result."""
    from ..runfile.flags import ADVICE
    from ..runfile.kinds import KINDS
    from ..runfile.matching import SHIPPED
    from ..runfile.options import DTYPES

    results = card.run.results
    devices = {device.name for device in card.run.machine.devices}
    own = [each.id for each in results if each.kind not in KINDS or each.workload.partition(".")[0] not in SHIPPED]
    flags = set(re.findall(r'"flag": "(.*?)"', json.dumps(card.sound))) - ADVICE.keys()
    names = [*map(_key, results), *((device.name,) for device in card.run.machine.devices)]
    twice = [key[0] for key, count in Counter(names).items() if count > 1]
    strange = {each.dtype for each in results} - {*DTYPES, ""}
    missing = {each.device for each in results if each.times} - devices
    cpu, models = card.run.machine.cpu, {each.label for each in card.run.machine.devices if each.kind == "cpu"}
    threads = {each.threads for each in results} | {card.run.machine.threads, cpu.cores}
    most = cpu.logical_cpus or cpu.machine_cpus or math.inf
    wrong = [each.id for each in results if each.check_error is not None and each.check_error > ERROR_MOST]
    found = {
        "not a benchmark of the suite, so nobody else can measure it": own,
        "in it several times": twice,
        "unknown flags": flags,
        "unknown data types": strange,
        "devices that the machine doesn't have": missing,
        "the CPU has two names": sorted({*models, str(cpu.model)}) if len({*models, cpu.model}) > 1 else (),
        "more threads or cores than CPUs": [str(count) for count in threads if count and count > most],
        "wrong results, though checked": wrong,
    }
    yield from (f"{what}: {listed(names, _MOST_SHOWN)}" for what, names in found.items() if names)


def _statistics(card: Card) -> Iterator[str]:
    """The numbers of each benchmark must fit one set of rounds."""
    marks = zip(card.sound["benchmarks"], card.run.results, strict=False)
    wrong = [result.id for mark, result in marks if result.times and not _fits(mark["stats"], result.times)]
    if wrong:
        yield f"rounds, least time, quartiles and medians don't fit together: {listed(wrong, _MOST_SHOWN)}"


def _fits(stats: dict[str, Any], times: Times) -> bool:
    if sum(process.rounds for process in times.processes) != times.rounds:
        return False
    medians = sorted(process.median_s for process in times.processes)
    quartiles = [stats.get(name) or stats["median"] for name in ("q1", "median", "q3")]
    chains = ([stats["min"], *quartiles], [stats["min"], medians[0], stats["median"], medians[-1]])
    return all(one <= (1 + ROUNDED) * other for chain in chains for one, other in pairwise(chain))


def _quiet(card: Card) -> Iterator[str]:
    """Enough of the card must have been measured while nothing else ran."""
    from ..runfile.flags import WAITING

    raised = [{flag.name for flag in each.flags} for each in card.run.results if each.times]
    noisy, busy = (sum(bool(names & flags) for flags in raised) for names in ({"noisy"}, {"contended", WAITING}))
    for count, most, what in ((noisy, NOISY_MOST, "noisy"), (busy, BUSY_MOST, "measured while other programs ran")):
        if count > most * len(raised):
            yield f"{count} of {len(raised)} benchmarks are {what}: measure again on an idle machine"


# Other cards ----------------------------------------------------------------------------------------------------------


def _key(result: Result) -> tuple[str, ...]:
    return result.id, result.device, result.implementation, result.regime


def _ratios(card: Card, others: Iterable[Card]) -> Iterator[tuple[Card, list[float], float]]:
    """The other cards that share enough of its benchmarks, each with the logarithms of its times over theirs, process
    by process, and their median."""
    for other in others:
        shared = [(mine, other.medians[key]) for key, mine in card.medians.items() if key in other.medians]
        logs = [math.log(one / two) for mine, theirs in shared for one, two in zip(mine, theirs, strict=False)]
        if len(logs) >= FEW and other.path.resolve() != card.path.resolve():
            yield other, logs, statistics.median(logs)


def _copies(card: Card, others: Iterable[Card]) -> Iterator[str]:
    for other, logs, middle in _ratios(card, others):
        if sum(abs(each - middle) < EQUAL for each in logs) > len(logs) / 2:
            scaled = "" if abs(middle) < EQUAL else f", all times {math.exp(middle):.3g} times as long"
            yield f"a copy of {other.path}{scaled}"


def remarks(card: Card, others: Iterable[Card] = ()) -> list[str]:
    """What a reader should know although it is no reason to refuse the card."""
    from ..devices.datasheets import read_cards
    from ..estimate.plausible import known_gpus

    gpus = known_gpus(card.run, read_cards()[0])
    labels = {name: card.run.machine.device(name).label or name for name, gpu in gpus.items() if gpu is None}
    found = [f"no datasheet of the {label} is known: its rates are held against nothing" for label in labels.values()]
    for device in card.run.machine.devices:
        if words := _unknown(device.label):
            found.append(
                f"the name of the {device.label} has words that no known device has: {listed(words, _MOST_SHOWN)}"
            )
    reasons = {words for place, words in _texts(card.sound) if place.endswith(_REASONS) and _unknown(words)}
    found += [f"a reason in words that aren't gpubench's: {words[:80]!r}" for words in sorted(reasons)[:_MOST_SHOWN]]
    for other, _, middle in _ratios(card, others):
        if other.name == card.name and abs(middle) > math.log(UNUSUAL):
            found.append(f"times are {math.exp(middle):.2g} times those of {other.path}, which has the same devices")
    return found
