"""Numbers for people: seconds, bytes and rates with an SI prefix. Files never hold these."""

from __future__ import annotations

import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import takewhile

from ..errors import UsageError

SWITCH = {True: "on", False: "off", None: "unknown"}
_PREFIXES = {-4: "p", -3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E"}
_DIVISIBLE = ("s", "J", "W")
"""Units that may have a prefix below one: there is no millisample, and msamples next to Msamples would be misread."""
_PLAIN = str.maketrans(
    {"·": "-", "×": "x", "±": "+-", "≈": "~", "µ": "u", "…": "...", "✓": "+", "◐": "o", "✗": "-", "—": "-", "–": "-"}
    | {"→": "->", "†": "+", "‡": "++"}
)
_POWER = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def text(value: float | None, unit: str, digits: int = 3) -> str:
    """``text(1.5e-4, "s")`` is ``150 µs``, ``text(0.935, "samples/s")`` has no prefix; ``None`` is an em dash."""
    if value is None or not math.isfinite(value):
        return "—"
    if value == 0:
        return f"0 {unit}"
    rounded = float(f"{value:.{digits - 1}e}")  # first, so that 999.9 becomes 1.00 k and not 1000
    exponent = math.floor(math.log10(abs(rounded)) + 1e-12)
    least = min(_PREFIXES) if unit in _DIVISIBLE else 0
    if exponent < -4 and not least:
        return f"{rounded:.{digits - 1}e} {unit}".rstrip()
    step = max(least, min(max(_PREFIXES), exponent // 3))
    decimals = max(0, digits - 1 - (exponent - 3 * step))
    return f"{rounded / 1000.0**step:.{decimals}f} {_PREFIXES[step]}{unit}".rstrip()


def seconds_text(value: float | None) -> str:
    """``250 ms``; above a minute ``3 min 05 s``."""
    if value is not None and value >= 60:
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
    return text(value, "s")


def estimate_text(value: float | None) -> str:
    """Return seconds with two digits, since an estimate has no more: ``270 µs``, ``0.7 s``, ``13 s``."""
    if value is not None and value >= 60:
        return seconds_text(value)
    return f"{value:.2g} s" if value and value >= 0.095 else text(value, "s", 2)


def moment_of(words: object) -> datetime | None:
    """The moment of an ISO 8601 text, in UTC where it names no zone; None for anything else."""
    try:
        moment = datetime.fromisoformat(str(words))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def share_of(words: str) -> float:
    """The share in ``5%`` or ``0.05``: 0.05. Raises UsageError."""
    number, percent, rest = words.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not 0 < value < 1:
        raise UsageError(f"invalid threshold {words!r}: write 5% or 0.05")
    return value


def ratio_text(value: float, sign: str = "×") -> str:
    """``132×``, ``8.6×``, ``0.24×``: two digits, three from a hundred on; no ratio is rounded in another way."""
    if value >= 1e6:
        return f"{value:.1e}{sign}"
    if value >= 99.5:
        return f"{float(f'{value:.3g}'):,.0f}{sign}"
    return f"{value:.{0 if value >= 9.95 else 1}f}{sign}" if value >= 0.995 else f"{value:.2g}{sign}"


def times(value: float) -> str:
    """``132×``, ``8.6×``; below one ``4.2× slower``."""
    inverse = ratio_text(max(value, 1 / value))
    return inverse if value >= 1 or inverse == ratio_text(1.0) else f"{inverse} slower"


def times_range(low: float, high: float, joint: str = "× to ") -> str:
    """``48× to 113×``, ``2.2× to 3.3× slower``; the ``joint`` is between numbers on one side of 1."""
    if times(low) == times(high):
        return times(low)
    if low < 1 and (high >= 1 or ratio_text(1 / high) == ratio_text(1.0)):
        return f"{times(low)} to {times(high)}"
    first, last = (low, high) if low >= 1 else (1 / high, low)
    return ratio_text(first, "") + joint + times(last)


def counted(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``, ``2 processes``."""
    return f"{count} {noun}" + ("" if count == 1 else "es" if noun.endswith(("s", "ch")) else "s")


def listed(names: Iterable[str], most: int = 6, joint: str = ", ") -> str:
    """``a, b, c and 2 more``: at most ``most`` of the names, and how many others there are."""
    shown = list(names)
    return joint.join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def shorten(name: str, longest: int = 40) -> str:
    """A name of at most ``longest`` characters, cut in the middle, since names differ at their ends."""
    end = longest // 2
    return name if len(name) <= longest else f"{name[: longest - end - 1]}…{name[-end:]}"


def shorten_apart(names: Iterable[str], longest: int = 40) -> dict[str, str]:
    """Shorten names so that they still differ: without the words that all long ones begin with, then in the middle, and
    where that leaves two alike, numbered."""
    every = dict.fromkeys(names)
    long = [re.split(r"(?<=[\s._/:-])", name) for name in every if len(name) > longest]
    same = takewhile(lambda parts: len({*parts}) == 1, zip(*long, strict=False)) if len(long) > 1 else ()
    begin = sum(len(parts[0]) for parts in same)
    ends = {name: f"…{name[begin:]}" if begin > 1 and len(name) > longest else name for name in every}
    short = {name: shorten(end, longest) for name, end in ends.items()}
    counts = Counter(short.values())
    numbered = enumerate((name for name in every if counts[short[name]] > 1), 1)
    return short | {name: f"{shorten(short[name], longest - 1 - len(str(i)))}#{i}" for i, name in numbered}


def shared_place(tests: Iterable[str]) -> str:
    """The folders, or the file, that all tests of these full names share, up to the names that differ."""
    files = {test.partition("::")[0] for test in tests if "::" in test}
    if len(files) == 1:
        return f"{min(files)}::"
    folder = posixpath.commonpath(files) if len({posixpath.isabs(file) for file in files}) == 1 else ""
    return f"{folder}/" if folder else ""


def holds_words(label: str, name: str) -> bool:
    """Whether whole words of a device's label are that name: ``H200`` of ``NVIDIA H200``."""
    return bool(name.strip() and re.search(rf"(?<!\w){re.escape(name.strip())}(?!\w)", label, re.IGNORECASE))


def plain_signs(error: UnicodeError) -> tuple[str, int]:
    """A handler for :func:`codecs.register_error` that replaces signs that a terminal can't show by ASCII."""
    assert isinstance(error, UnicodeEncodeError)
    whole, start, end = error.object, error.start, error.end
    if _POWER.fullmatch(whole[end - 1]) and (rest := _POWER.match(whole, end)):
        end = rest.end()  # the rest of a power, of which the terminal has some digits
    plain = _POWER.sub(lambda power: f"^{power[0].translate(_DIGITS)}", whole[start:end]).translate(_PLAIN)
    within = start and _POWER.fullmatch(whole[start - 1])
    return plain.removeprefix("^" if within else "").encode("ascii", "replace").decode(), end
