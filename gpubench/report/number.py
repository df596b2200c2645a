"""A number that a report shows, with its state: an output makes a text of it, and no code reads the text again.

:class:`Number` is a time, a ratio, a rate or a share; :class:`Start` is the size from which a device is faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from ..runfile.quantities import seconds_text, shorten, text, times, times_range

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTES = ("nbytes", "bytes")
TIMES, SECONDS, PERCENT, HALF_INTERVAL, HALF_SPREAD = "×", "s", "%", "±", "~"
"""Units: a ratio, seconds, a share, half a 95 % interval and half an interquartile range as shares of the median. Any
other unit is a rate's."""


class State(StrEnum):
    """The knowledge of a number; ``limit`` in speedup.csv has the values of the two limits."""

    KNOWN, AT_LEAST, AT_MOST, RANGE, UNKNOWN = "known", "at least", "at most", "range", "unknown"


LIMITS = (State.AT_LEAST, State.AT_MOST)
"""The states of a limit."""


class Sign(Enum):
    """A sign beside a number, and its meaning in a footnote."""

    UNSURE = "can't tell", ": from which size, if from any"
    UNKNOWN = "—", " not known or not measured"
    NOISY = "*", " noisy: may be far off"
    LIMIT = "≥", " only a limit is known"
    UNFILLED = "†", " doesn't fill the GPU: launch-bound, or below a tenth of its peak"
    IN_CACHE = "§", " in the GPU's cache: from memory it is slower"
    OTHER_WAY = "‡", " over the CPU's fastest way, which is another"

    @property
    def footnote(self) -> str:
        """``* noisy: may be far off``."""
        return "".join(self.value)

    def __str__(self) -> str:
        return self.value[0]


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a ``state``; as a text it is a cell of a table.

    ``value`` is None if the state is unknown or a range, and the limit if only a limit is known. ``low`` and ``high``
    are the ends of a range to show. ``words`` stand in place of a number that has no value, or that isn't written as
    its unit is; ``note`` follows the number.
    """

    value: float | None = None
    unit: str = TIMES
    low: float | None = None
    high: float | None = None
    state: State = State.UNKNOWN
    signs: tuple[Sign, ...] = ()
    words: str = ""
    note: str = ""
    digits: int = 3

    def signed(self, sign: Sign, condition: bool = True) -> Number:
        """Return the number with this sign beside it, if the ``condition`` holds."""
        return replace(self, signs=(*self.signs, sign)) if condition else self

    def without(self, *signs: Sign) -> Number:
        """Return the number without these signs."""
        return replace(self, signs=tuple(sign for sign in self.signs if sign not in signs))

    def noted(self, note: str) -> Number:
        """Return the number with this text behind it."""
        return replace(self, note=self.note + note) if note else self

    @property
    def brief(self) -> Number:
        """The number without its range."""
        return self if self.low is None or self.state is State.RANGE else replace(self, low=None, high=None)

    @property
    def footnotes(self) -> set[Sign]:
        """The signs to explain below a table."""
        unknown = self.state is State.UNKNOWN and not self.words
        return {*self.signs, *[Sign.LIMIT] * (self.state in LIMITS), *[Sign.UNKNOWN] * unknown}

    @property
    def mark(self) -> str:
        """The number with its signs, without range and note: for a picture or a sentence."""
        return self._digits() + "".join(map(str, self.signs))

    @property
    def range(self) -> str:
        """``111× to 141×``; empty if there is none, or if it rounds to the number itself."""
        if self.state is not State.KNOWN or self.low is None or self.high is None or self.value is None:
            return ""
        ends = times_range(self.low, self.high)
        return "" if ends == times(self.value) else ends

    def _digits(self) -> str:
        if self.words:
            return self.words
        if self.value is None:
            return str(Sign.UNKNOWN) if self.low is None or self.high is None else times_range(self.low, self.high)
        if self.unit == TIMES:
            return f"{Sign.LIMIT} " * (self.state in LIMITS) + times(self.value)
        if self.unit == SECONDS and self.digits > 2:
            return seconds_text(self.value)
        if self.unit in (PERCENT, HALF_INTERVAL, HALF_SPREAD):
            return self.unit.strip(PERCENT) + ("<1%" if self.value < 0.01 else f"{self.value:.0%}")
        return text(self.value, self.unit, self.digits)

    def __str__(self) -> str:
        return f"{self.mark}{f' ({self.range})' if self.range else ''}{self.note}"


MISSING = Number()
"""A number that isn't known, or that wasn't measured."""


def seconds(value: float | None, star: bool = False) -> Number:
    """Return a time: to two digits with a star if it is noisy."""
    if value is None:
        return MISSING
    return Number(value, SECONDS, state=State.KNOWN, signs=(Sign.NOISY,) * star, digits=2 if star else 3)


def share(value: float, unit: str = PERCENT) -> Number:
    """Return a share of one, in percent."""
    return Number(value, unit, state=State.KNOWN)


class StartKind(StrEnum):
    """The certainty of the size from which a device is faster."""

    EVERY, ABOUT, BETWEEN, LATEST = "every size", "about", "between", "at the latest"
    ONLY_UP_TO, NOT_UP_TO, UNSURE = "only up to", "not up to", "unsure"


@dataclass(frozen=True, slots=True)
class Start:
    """The size from which a device is faster; as a text it is a cell of a table.

    It is ``low``, or lies between ``low`` and ``high``. ``also_below``: the device is faster at some smaller sizes too.
    ``doubt`` is the reason why the size is unknown.
    """

    kind: StartKind
    name: str
    low: float = 0.0
    high: float = 0.0
    noisy: bool = False
    also_below: bool = False
    doubt: str = ""
    note: str = ""

    def noted(self, note: str) -> Start:
        """Return it with this text behind it."""
        return replace(self, note=self.note + note) if note else self

    @property
    def footnotes(self) -> set[Sign]:
        """The signs to explain below a table."""
        return {*[Sign.UNSURE] * (self.kind is StartKind.UNSURE), *[Sign.NOISY] * self.noisy}

    @property
    def size(self) -> str:
        """``n ≈ 72``, ``n between 64 and 128``, ``n = 128``."""
        label, low = size_label(self.name), size_text(self.low, self.name)
        if self.kind is StartKind.BETWEEN:
            return f"{label} between {low} and {size_text(self.high, self.name)}"
        if self.kind is StartKind.ABOUT:
            return f"{label} ≈ {rounded_size(self.low, self.name)}"
        return f"{label} = {low}"

    @property
    def place(self) -> str:
        """``from n ≈ 72``, ``every size``, ``only up to n = 128``, without signs."""
        if self.kind in (StartKind.ONLY_UP_TO, StartKind.NOT_UP_TO):
            return f"{self.kind} {self.size}"
        if self.kind in (StartKind.EVERY, StartKind.UNSURE):
            return str(self.kind if self.kind is StartKind.EVERY else Sign.UNSURE)
        return f"from {self.size}{' at the latest' * (self.kind is StartKind.LATEST)}"

    def sentence(self, verb: str = "faster") -> str:
        """``faster from n ≈ 72``, ``faster at every size``, ``not faster up to n = 10⁷``; without the ``verb`` if it is
        empty."""
        places = {
            StartKind.NOT_UP_TO: f"up to {self.size}",
            StartKind.EVERY: f"at {self.kind}",
            StartKind.UNSURE: f"from a size that is {self.doubt}",
        }
        negation, also = "not" * (self.kind is StartKind.NOT_UP_TO), "and at some smaller sizes" * self.also_below
        words = filter(None, (negation, verb, places.get(self.kind, self.place), also))
        return " ".join(words) + str(Sign.NOISY) * self.noisy

    def __str__(self) -> str:
        return self.place + str(Sign.NOISY) * self.noisy + self.note


def size_text(size: float, name: str = "") -> str:
    """``1024``, ``10⁷``, ``65.5k``; sizes in bytes ``1 MB``."""
    if name in _BYTES:
        return text(size, "B", 3).replace(".00", "").replace(".0 ", " ")
    if power := power_of_ten(size):
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


def power_of_ten(size: float) -> int:
    """The exponent of a size of 10,000 or more that is a power of ten, else 0."""
    power = round(math.log10(size)) if size >= 10_000 else 0
    return power if power and math.isclose(size, 10.0**power, rel_tol=1e-9) else 0
