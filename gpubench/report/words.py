"""What a benchmark, a setting, a device, a size, a ratio, a crossover and "unknown" is called: one name for one thing,
on every screen, page and picture."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from statistics import mode

from msgspec import structs

from ..devices.implementations import implementation_label
from ..runfile.facts import threads_available
from ..runfile.flags import Reason
from ..runfile.matching import shown_name
from ..runfile.quantities import (
    IN_CACHE,
    UNFILLED,
    counted,
    listed,
    ratio_text,
    seconds_text,
    shorten,
    shorten_apart,
    text,
)
from ..runfile.schema import Case, DeviceFacts, Run, Scalar
from ..runfile.ways import HOW, LAYOUT
from .pairs import Pair
from .rows import Measured, Row, Source, grouped
from .sweeps import Crossing

NO_VALUE = "—"
_MODELLED = re.compile(r"\b(modelled|simulated)\b", re.IGNORECASE)
"""Words in the name of a device or a machine whose times come from a model."""
MODELLED = "Times of the {} come from a model, not from hardware"
UNSURE = "can't tell"
OWN = "Own benchmarks"
"""The heading of the user's benchmarks."""
EVERY_SIZE = "every size"
LATEST = " at the latest"
"""The end of what is said of a size by which a device is faster, where the size from which on isn't known."""
OTHER_WAY = "‡"
"""The mark of a speedup over a way of the CPU that differs from the other side's."""
_VARIANTS = {"compile": "compiled"}
_NOISE = re.compile(
    r"\((?!modelled|simulated)[^)]*\)|\b(NVIDIA|AMD|Intel|GeForce|Tesla|Processor|CPU|GPU|Graphics)\b"
    r"|@.*$|\b\d+-Core\b|[- ](SXM\d?|PCIe|HBM\d\w*|\d+ ?GB)\b",
    re.IGNORECASE,
)
"""What a maker's name of a device has beyond the name that people use."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTES = ("nbytes", "bytes")
_LONGEST_VALUE, _LONGEST_DEVICE, _LONGEST_RUN = 24, 28, 24


# Benchmarks and their settings ----------------------------------------------------------------------------------------


def name(case: Case) -> str:
    """``ResNet-50``, ``a @ b``: a workload, whatever its setting."""
    return shorten(case.title or shown_name(case.workload))


def name_apart(rows: Iterable[Row]) -> list[Row]:
    """The rows, with titles that differ: by the names that -k takes where workloads have one title, where names are too
    long to show by what is shown, and by a number for benchmarks of a workload that would still have one label."""
    every = list(rows)
    full = {row.result.workload: row.result.title or shown_name(row.result.workload) for row in every}
    titles = Counter(full.values())
    full = {workload: title if titles[title] < 2 else shown_name(workload) for workload, title in full.items()}
    short = shorten_apart(full.values())
    labels = grouped(range(len(every)), lambda at: (every[at].result.workload, setting(every[at].result)))
    for (workload, _), alike in labels.items():
        ids = {name: i for i, name in enumerate(dict.fromkeys(every[at].result.id for at in alike), 1)}
        for row, at in ((every[at], at) for at in alike):
            title = short[full[workload]]
            if len(ids) > 1:
                title = f"{shorten(title, 36)} #{ids[row.result.id]}"
            if title != name(row.result):
                every[at] = replace(row, result=structs.replace(row.result, title=title))
    return every


def setting(case: Case, without: Collection[str | None] = ()) -> str:
    """``float32, out, n=4096``: all that tells it from others of its workload; each word can be typed after ``-k``.
    ``without`` names what to leave out because it stands elsewhere: parameters, ``dtype``, ``variant``."""
    return ", ".join(settings(case, without))


def settings(case: Case, without: Collection[str | None] = ()) -> list[str]:
    """Return the words of :func:`setting` as a list."""
    words = [
        case.dtype * ("dtype" not in without),
        case.variant * (case.variant != "eager" and "variant" not in without),
    ]
    words += [f"cache {case.cache}" * (case.cache not in ("", "hot"))]
    left_out = {*without, *getattr(case, "shared", ())}
    return list(filter(None, words)) + [parameter(key, v) for key, v in case.params.items() if key not in left_out]


def benchmark(case: Case) -> str:
    """``ResNet-50 float32, batch=1``: a benchmark, without its device."""
    return f"{name(case)} {setting(case)}".strip()


def parameter(name: str, value: Scalar) -> str:
    """A parameter's value, with its name where the value alone isn't clear: ``out``, ``n=10⁷``, ``limit=None``."""
    if isinstance(value, str) and value == value.strip() and any(map(str.isalnum, value)):
        return shorten(value, _LONGEST_VALUE)
    if isinstance(value, int) and not isinstance(value, bool) and (power := _power_of_ten(value)):
        words = raised(power)
    else:
        words = str(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
    words = shorten(words, _LONGEST_VALUE - 6)
    return f"{shorten(name, _LONGEST_VALUE - 1 - len(words))}={words}"


def size(row: Row) -> str:
    """``n=4096``; empty where it has no size."""
    return "" if row.size_name is None or row.size is None else parameter(row.size_name, row.size)


def unverified(row: Row) -> str:
    """``(not verified)`` for a user's benchmark whose result was not compared with a reference."""
    check = row.result.check
    return "(not verified)" if row.own and check and check.status != "passed" else ""


# Devices --------------------------------------------------------------------------------------------------------------


class Names:
    """The names of the report's devices: the shortest that are unambiguous."""

    def __init__(self, rows: Iterable[Row]) -> None:
        by_source = grouped(rows, lambda row: row.source)
        plain = {source: _name_of(members) for source, members in by_source.items()}
        gpus = [source for source, members in by_source.items() if members[0].on_accelerator]
        self.sources = sorted(plain, key=lambda source: (source not in gpus, source.library != ""))
        self.accelerators = [source for source in self.sources if source in gpus]
        self._names: dict[Source, str] = {}
        runs = shorten_apart((source.run for source in plain), _LONGEST_RUN)
        for source, words in plain.items():
            rivals = {other.run for other in plain if plain[other] == words and other != source}
            if source.run in rivals:
                words = f"{words} #{source.device.partition(':')[2] or source.device}"
            if rivals - {source.run}:
                words = f"{words} · {runs[source.run]}"
            self._names[source] = words

    def of(self, row: Row) -> str:
        """``H200``; ``Xeon, 2 threads``; ``NumPy``."""
        return self._names.get(row.source, row.result.device)

    def order(self, row: Row) -> int:
        """Return its position among the report's devices: GPUs, CPUs, other libraries."""
        return self.sources.index(row.source)

    def subject(self, pair: Pair) -> str:
        """``H200``; ``PyTorch`` where libraries are compared on one device."""
        library = implementation_label(pair.other.result.implementation)
        return library if pair.within_device else without_threads(self.of(pair.other))

    def baseline(self, pairs: Sequence[Pair]) -> str:
        """Return the name of the baseline of these pairs."""
        names = dict.fromkeys(self.of(pair.base) for pair in pairs)
        if len(names) == 1:
            return next(iter(names))
        runs = {pair.base.run_name for pair in pairs if not pair.within_run}
        if len(runs) == 1:
            return shorten(runs.pop())
        cpus = all(pair.base.result.device == "cpu" for pair in pairs)
        return "the CPU of the same machine" if cpus else "the baseline"


def _name_of(rows: Sequence[Row]) -> str:
    row, name = rows[0], rows[0].source.device
    if not name:
        return "unknown device"
    device = row.run.machine.device(name)
    known = shorten(usual_name(device.label) or ("CPU" if device.name == "cpu" else device.name), _LONGEST_DEVICE)
    if device.simulated and "simulated" not in known.lower():
        known += " (simulated)"
    if row.library:
        label = implementation_label(row.library)
        return f"{known} · {label}" if row.on_accelerator else label
    used = [each.result.threads for each in rows if isinstance(each, Measured) and each.result.threads]
    threads = mode(used) if used else row.run.machine.threads
    if not threads or row.on_accelerator:
        return known
    available = threads_available(row.run)
    return f"{known}, {threads} of {available} threads" if available else f"{known}, {counted(threads, 'thread')}"


def device_label(run: Run, name: str) -> str:
    """What its maker calls the device: ``NVIDIA H200``, of two equal ones ``NVIDIA H200 #0``; its name where the file
    knows no other. One that isn't recorded is the machine if it has no accelerator, else ``unknown device``."""
    if not name and any(each.accelerator for each in run.machine.devices):
        return "unknown device"
    label = run.machine.device(name).label or (run.machine.label if name in ("cpu", "") else "")
    twins = [each for each in run.machine.devices if each.label == label]
    label = re.sub(r"\((R|TM|C)\)", "", label, flags=re.IGNORECASE)
    label = shorten(" ".join(label.split()).removesuffix(" Processor"), 60) or name
    return f"{label} #{name.partition(':')[2] or name}" if len(twins) > 1 and label != name else label


def without_threads(name: str) -> str:
    """A device's name without its number of threads, unless it took fewer than there are."""
    return re.sub(r", \d+ threads?\b", "", name)


def usual_name(label: str) -> str:
    """``H200`` of ``NVIDIA H200``: the name that people use."""
    return " ".join(_NOISE.sub(" ", label).split()).strip(" -,") or label


def machine(run: Run) -> str:
    """What a run was measured on: devices, threads, the version of PyTorch."""
    threads = f", {counted(run.machine.threads, 'thread')}" if run.machine.threads else ""
    if available := threads_available(run):
        threads = f", {run.machine.threads} of {available} threads (no fair CPU)"
    parts = [device_label(run, each.name) + (threads if each.name == "cpu" else "") for each in run.machine.devices]
    return " · ".join([*parts, *([f"PyTorch {run.machine.torch.partition('+')[0]}"] if run.machine.torch else [])])


def simulated(devices: Iterable[DeviceFacts]) -> str:
    """That times of devices come from a model: simulated ones, and those whose name says so; empty if none do."""
    names = sorted({model for device in devices if (model := modelled(device))})
    return MODELLED.format(listed(names)) * bool(names)


def modelled(device: DeviceFacts) -> str:
    """The name of a device whose times come from a model; empty of hardware."""
    return (device.label or device.name) * bool(device.simulated or _MODELLED.search(device.label))


def cautions(rows: Iterable[Row]) -> list[str]:
    """What must stand beside numbers of these results wherever they are shown: that a model made them, and that nothing
    verified them."""
    rows = list(rows)
    names = listed(list(dict.fromkeys(name(row.result) for row in rows if unverified(row))))
    return [*filter(None, [simulated(row.facts for row in rows)]), *[f"Not verified: {names}"] * bool(names)]


# Numbers --------------------------------------------------------------------------------------------------------------


def times(value: float) -> str:
    """``132×``, ``8.6×``; below one ``4.2× slower``. Rounded as :func:`gpubench.runfile.quantities.ratio_text` does."""
    if value >= 1:
        return ratio_text(value)
    inverse = ratio_text(1 / value)
    return inverse if inverse == "1.0×" else f"{inverse} slower"


def times_range(low: float, high: float) -> str:
    """``48× to 113×``, ``2.2× to 3.3× slower``."""
    ends = times(low), times(high)
    if ends[0] != ends[1] and all(end.endswith(" slower") for end in ends):
        ends = ends[1].removesuffix(" slower"), ends[0]
    return " to ".join(dict.fromkeys(ends))


def speedup(pair: Pair, sign: str = "") -> str:
    """``132× (111× to 141×)``, without a range that rounds to the same; only the limit where it is wide, and the reason
    where it is unknown. The ``sign`` stands beside the ratio."""
    return ratio(pair) + sign + bracketed(ratio_range(pair))


def ratio_range(pair: Pair) -> str:
    """``111× to 141×``: the range of a speedup that is shown; empty if it rounds to the same, or if the machine was
    busy, because then no range says how far off the speedup is."""
    if not pair.shown or pair.busy:
        return ""
    spread = times_range(pair.values.low, pair.values.high)
    return spread if spread != times(pair.speedup) else ""


def bracketed(text: str) -> str:
    """`` (text)``; empty without a text."""
    return f" ({text})" if text else ""


def ratio(pair: Pair) -> str:
    """``132×``; what is known of it where its interval is wide, ``≥ 20×``; with a star where a time is noisy."""
    if pair.shown:
        told = times(pair.speedup)
    elif limit := pair.limit:
        told = f"≥ {ratio_text(limit)}" if limit > 1 else f"≥ {ratio_text(1 / limit)} slower"
    else:
        told = str(pair.quality.doubt or times_range(pair.values.low, pair.values.high))
    return told + "*" * (pair.quality.noisy and not pair.unknown)


def with_copies(pair: Pair) -> str:
    """The speedup with inputs and results copied for every call."""
    return ratio(pair.copies) if pair.copies else NO_VALUE


def uncertainty(ranges: Iterable[str]) -> str:
    """What the ranges of several speedups are, of what each is: ``95% interval, 2 or 3 processes``."""
    told = []
    for kind, alike in grouped(sorted({*ranges} - {""}), lambda each: each.partition(", ")[0]).items():
        counts = sorted(
            {int(count) for each in alike for count in re.findall(r"\d+(?=.* processes)", each[len(kind) :])}
        )
        told.append(kind + f", {' or '.join(map(str, counts))} processes" * bool(counts))
    return listed(told)


def way(pair: Pair) -> str:
    """``NumPy``: the fastest way of the CPU, where it isn't the way of the other side; by its library and what
    distinguishes the two."""
    if pair.fastest_way is None:
        return ""
    best, same = (_way(row) for row in (pair.fastest_way, pair.other if pair.base.on_accelerator else pair.base))
    names = [name for name in best | same if name == "library" or best.get(name) != same.get(name)]
    return ", ".join(filter(None, (best.get(name, "") for name in names)))


def ways(pairs: Iterable[Pair]) -> list[str]:
    """Return the ways of several pairs, each once."""
    return sorted({way(pair) for pair in pairs} - {""})


def _way(row: Measured) -> dict[str, str]:
    case = row.result
    how = {name: str(case.params[name]) for name in HOW if case.params.get(name) is not None}
    how |= {"layout": "channels last"} if case.kind and case.workload.endswith(LAYOUT) else {}
    library = implementation_label(case.implementation)
    return {"library": library, "variant": _VARIANTS.get(case.variant, case.variant), "dtype": case.dtype} | how


def time(row: Measured) -> str:
    """``10.0 ms``; ``10 ms*``, to two digits, where the result is flagged."""
    return starred_time(row.time_s, row.quality.star)


def starred_time(seconds: float, star: str) -> str:
    """Return seconds as :func:`time` does, with the star if there is one."""
    return f"{text(seconds, 's', 2)}{star}" if star else seconds_text(seconds)


def side_time(pair: Pair, place: int, brief: bool = False) -> str:
    """``10.0 ms``: the time of the baseline (place 0) or of the other side; ``64.0 µs by NumPy`` where it is that of
    the CPU's fastest way, ``64.0 µs‡`` if ``brief``."""
    side = pair.sides[place]
    time_text = starred_time((pair.base_s, pair.time_s)[place], side.quality.star)
    other = OTHER_WAY if brief else f" by {way(pair)}"
    return time_text + other * (side is pair.fastest_way)


def signs(pair: Pair) -> str:
    """Return the signs beside a ratio: of work that is too small for the GPU, and of data in its cache."""
    return UNFILLED * (not pair.fills) + IN_CACHE * pair.in_cache


def has_star(item: Measured | Pair) -> bool:
    """Whether a number of a result, or of a comparison, has a star."""
    sides = item.sides if isinstance(item, Pair) else ()
    return item.quality.noisy or any(row.quality.star for row in (item.subject, *sides))


def time_and_spread(row: Measured) -> str:
    """``10.0 ms ±2%``."""
    return f"{time(row)} {precision(row)}"


def precision(row: Measured) -> str:
    """``±2%``: half the interval of several processes; ``~2%`` of one process: half the interquartile range; the
    reason where neither would say how far off the time is; ``7.70 ms of CPU time`` of an interrupted thread."""
    if row.interrupted:
        return f"{seconds_text(row.times.cpu_s)} of CPU time"
    if reasons := [reason.interval for reason in row.quality.why if reason.interval]:
        return reasons[0]
    sign = "±" if row.interval else "~"
    return f"{sign}<1%" if row.spread < 0.01 else f"{sign}{row.spread:.0%}"


def spread_of_rounds(row: Measured) -> str:
    """``half of the rounds are spread over 33% of the median``: the evidence of noise."""
    return f"half of the rounds are spread over {row.times.iqr_s / row.time_s:.0%} of the median"


def throughput(row: Measured) -> str:
    """``15.0 TFLOP/s``; to two digits where the result is flagged; a dash where it can't be; empty where no work is
    declared; with the sign of data in the GPU's cache."""
    if not row.rate or not row.throughput:
        return ""
    if row.quality.doubt:
        return NO_VALUE
    return text(row.throughput.value, row.rate.unit, 2 if row.quality.star else 3) + IN_CACHE * row.in_cache


def starred_throughput(row: Measured) -> str:
    """The same where no time with its star stands beside it."""
    return throughput(row).removesuffix(IN_CACHE) + row.quality.star


def share_of_peak(row: Measured) -> str:
    """``73%`` of a measured peak; a dash where it can't be; empty where it is unknown."""
    share = row.utilisation
    if share is None:
        return ""
    return NO_VALUE if share > 1 or row.quality.doubt else "<1%" if share < 0.01 else f"{share:.0%}"


# Sizes and crossovers -------------------------------------------------------------------------------------------------


def crossing(found: Crossing) -> str:
    """Return, in words, the size from which the device is faster, as far as the interval or the nearest measured sizes
    make it certain; where they don't, the size from which it surely is."""
    line, known = found.whole, found.crossover
    sizes, label = [point.x for point in line.points], size_label(line.size_name)
    if found.doubtful or (known.size is not None and not found.ends):
        return _at_the_latest(found)
    if known.always:
        return EVERY_SIZE
    if known.size is None or not found.ends:
        ahead = [x for x, pair in zip(sizes, line.items, strict=True) if pair.faster]
        upper = size_text(max(ahead) if ahead else sizes[-1], line.size_name)
        return f"{'only' if ahead else 'not'} up to {label} = {upper}"
    if known.low is None:
        low, high = (size_text(end, line.size_name) for end in found.ends)
        return f"{label} between {low} and {high}"
    return f"{label} ≈ {rounded_size(known.size, line.size_name)}"


def _at_the_latest(found: Crossing) -> str:
    """``n = 1024 at the latest``: from which size it surely is faster, also since it is so with copies even."""
    line, label = found.whole, size_label(found.whole.size_name)
    measured = [*zip(line.points, line.items, strict=True)]
    ahead = [point.x for point, _ in takewhile(lambda each: each[1].faster, reversed(measured))]
    if len(ahead) == len(measured) > 1:
        return EVERY_SIZE
    told = crossing(found.copies) if found.copies else UNSURE
    size = found.copies.crossover.size if found.copies and "≈" in told else None
    if size is None or size > min(ahead, default=math.inf):
        told = f"{label} = {size_text(ahead[-1], line.size_name)}" if ahead else UNSURE
    return told if told == UNSURE else told + LATEST


def wins(found: Crossing) -> str:
    """``from n ≈ 72``, ``every size``, ``only up to n = 128``, ``not up to n = 10⁷``: at which sizes the device is
    faster; ``can't tell`` where the intervals allow several answers."""
    return _sizes_of_wins(found) + found.star


def _sizes_of_wins(found: Crossing) -> str:
    start = crossing(found)
    return start if start in (UNSURE, EVERY_SIZE) or " up to " in start else f"from {start}"


def faster(found: Crossing) -> str:
    """``faster from n ≈ 72``, ``faster at every size``, ``not faster up to n = 10⁷``: the same in a sentence."""
    told = _sizes_of_wins(found)
    why = found.whole.items[-1].quality.doubt or Reason.TOO_NOISY
    unknown = f"from which size is {why if len(found.whole.points) > 1 else 'unknown'}"
    told = {UNSURE: unknown, EVERY_SIZE: "at every size"}.get(told, told)
    size, measured = found.crossover.size or 0.0, zip(found.whole.points, found.whole.items, strict=True)
    told += " and at some smaller sizes" * any(point.x < size and pair.faster for point, pair in measured)
    told += found.star
    return f"not faster {told.removeprefix('not ')}" if told.startswith("not ") else f"faster {told}"


def size_text(size: float, name: str = "") -> str:
    """``1024``, ``10⁷``, ``65.5k``; sizes in bytes ``1 MB``."""
    if name in _BYTES:
        return text(size, "B", 3).replace(".00", "").replace(".0 ", " ")
    if power := _power_of_ten(size):
        return raised(power)
    if size < 10_000:
        return f"{size:.4g}" if size == int(size) else f"{float(f'{size:.3g}'):g}"
    number, _, prefix = text(size, "", 3).partition(" ")
    return f"{float(number):g}{prefix}"


def rounded_size(size: float, name: str = "") -> str:
    """A size that was estimated, to two digits: ``72``, ``34k``; below ten a whole number."""
    return size_text(max(1, round(size)) if size < 10 else float(f"{size:.2g}"), name)


def size_label(name: str) -> str:
    """The size parameter's name for an axis."""
    return "bytes" if name in _BYTES else shorten(name)


def raised(power: int) -> str:
    """``10⁻⁴``."""
    return "10" + str(power).translate(_SUPERSCRIPTS)


def _power_of_ten(size: float) -> int:
    """The exponent of a size of 10,000 or more that is a power of ten, else 0."""
    power = round(math.log10(size)) if size >= 10_000 else 0
    return power if power and math.isclose(size, 10.0**power, rel_tol=1e-9) else 0
