"""JSON read with care: every value knows the file and the place that it came from.

Whatever is wrong with it raises :class:`~gpubench.errors.RunFileError` with one line,
``path: place: what was expected``. Standard library only.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from .errors import RunFileError
from .schema import Scalar

LONGEST_TEXT = 2000
"""Characters kept of a text from a file: a reason may hold a whole traceback, a table shall not."""
TINIEST, HUGEST = 1e-15, 1e30
LARGEST = 48 * 1024**2
"""Bytes of a file. A run of a thousand cases in three processes has 20 MiB."""
MOST_VALUES, MOST_GROUPS = 2_000_000, 200_000
"""Values, and lists and objects: they take some 60 and 300 bytes of memory, however few they take in the file. That
run has 700,000 and 20,000."""
DEEPEST = 400
"""Levels of nesting. Ours are 7; at a thousand, writing would end in a RecursionError."""


class Allowance:
    """How much may still be parsed before it takes too much memory."""

    def __init__(self, values: int = MOST_VALUES, groups: int = MOST_GROUPS) -> None:
        self.values, self.groups = values, groups

    def covers(self, content: bytes) -> bool:
        """Take off what this JSON amounts to, at most: what is in a text counts as well."""
        self.values -= content.count(b",")
        self.groups -= content.count(b"[") + content.count(b"{")
        return min(self.values, self.groups) >= 0


def shallow(value: Any) -> bool:
    """Whether it is nested no deeper than any file of ours."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for group in level:
            entries = group.values() if isinstance(group, dict) else group
            if not {dict, list}.isdisjoint(map(type, entries)):  # a million samples are told apart at once
                inner += [entry for entry in entries if isinstance(entry, dict | list)]
        level = inner
        if not level:
            return True
    return False


def load(path: Path) -> At:
    """The whole of a file, in which no key stands twice in an object."""

    def refuse(place: str, expected: str) -> NoReturn:
        raise RunFileError(f"{clean(str(path))}: {place}: expected {expected}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if any(len(key) > LONGEST_TEXT for key in entries):
            refuse("file", f"keys of at most {LONGEST_TEXT} characters")
        if len(entries) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            refuse(f"key {clean(twice)[:60]!r}", "every key once in an object, found it twice")
        return entries

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)  # of a device or a pipe there is no telling how much is in it
    except (OSError, ValueError) as error:
        refuse("file", f"a readable run file ({getattr(error, 'strerror', None) or error})")
    if not content.strip():
        refuse("file", "a run file, found an empty file")
    if len(content) > LARGEST:
        refuse("file", f"a run file of at most {LARGEST // 1024**2} MiB")
    if not Allowance().covers(content):
        refuse("file", f"a run file of at most {MOST_VALUES} values and {MOST_GROUPS} lists and objects")
    try:
        text = content.decode("utf-8-sig")
        del content
        value = json.loads(text, object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        refuse(f"byte {error.start}", "UTF-8 text")
    except json.JSONDecodeError as error:
        refuse(f"line {error.lineno} column {error.colno}", f"JSON ({error.msg}): is the file truncated?")
    except RecursionError:
        refuse("file", "a run file, found JSON nested too deeply")
    except ValueError:  # an integer of thousands of digits
        refuse("file", "numbers of a sensible length")
    if isinstance(value, dict | list) and not shallow(value):
        refuse("file", "a run file, found JSON nested too deeply")
    return At(value, path)


class At:
    """A value and the place it has in the file, so that every complaint can name both.

    ``at["a"][0].positive()`` either gives a number above 0 or refuses the file. A missing key is a value too, of
    ``None`` like JSON's ``null``: whether it may be is decided by what it is read as.
    """

    __slots__ = ("path", "place", "value")

    def __init__(self, value: Any, path: Path, place: str = "") -> None:
        self.value, self.path, self.place = value, path, place

    def __getitem__(self, key: str) -> At:
        return At(self.mapping().get(key), self.path, f"{self.place}.{key}" if self.place else key)

    def __iter__(self) -> Iterator[At]:
        """The entries of a list; none where it is missing."""
        if not self.missing and not isinstance(self.value, list):
            self.refuse("a list")
        return (At(entry, self.path, f"{self.place}[{i}]") for i, entry in enumerate(self.value or ()))

    @property
    def missing(self) -> bool:
        return self.value is None

    def mapping(self) -> dict[str, Any]:
        """A missing object is an empty one."""
        if not self.missing and not isinstance(self.value, dict):
            self.refuse("an object")
        return self.value or {}

    def text(self, *default: str | None) -> Any:
        """A text, cleaned; ``default`` where it may be missing."""
        if self.missing and default:
            return default[0]
        if not isinstance(self.value, str):
            self.refuse("a text")
        return clean(self.value[:LONGEST_TEXT])

    def flag(self) -> bool | None:
        if not self.missing and not isinstance(self.value, bool):
            self.refuse("true, false or null")
        return bool(self.value) if not self.missing else None

    def number(self, least: float = 0.0) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse("a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or number < least:
            self.refuse(f"a finite number not below {least:g}")
        return number

    def numbers(self) -> tuple[float, ...]:
        """The numbers of a list, none below 0; at once where nothing is wrong, since there may be a million."""
        values = self.value
        if isinstance(values, list) and values and set(map(type, values)) <= {float, int}:
            with suppress(OverflowError):
                numbers = tuple(map(float, values))
                if min(numbers) >= 0 and math.isfinite(sum(numbers)):
                    return numbers
        return tuple(entry.number() for entry in self)

    def positive(self) -> float:
        """A time, or an amount of work: above 0, and of a size whose ratios stay finite."""
        if not TINIEST <= self.number() <= HUGEST:
            self.refuse(f"a number above 0 ({TINIEST:g} to {HUGEST:g})")
        return self.number()

    def count(self, least: int = 1) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value < 2**63:
            self.refuse(f"a whole number from {least}")
        return int(self.value)

    def whole(self) -> int:
        """A whole number, 0 included: a seed, an index."""
        return self.count(0)

    def optional(self, kind: str) -> Any:
        """What the method of that name gives, or None where the value is missing."""
        return None if self.missing else getattr(self, kind)()

    def scalar(self) -> Scalar:
        """A parameter: a JSON scalar, a finite one."""
        if isinstance(self.value, dict | list):
            self.refuse("a text, a number, true, false or null")
        if isinstance(self.value, str):
            return str(self.text())
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            self.number(-math.inf)
        return self.value  # type: ignore[no-any-return]

    def refuse(self, expected: str, found: str | None = None) -> NoReturn:
        found = found or ("nothing" if self.missing else clean(reprlib.repr(self.value)[:60]))
        place = clean(self.place) or "file"
        raise RunFileError(f"{clean(str(self.path))}: {place}: expected {expected}, found {found}")


def clean(text: str) -> str:
    """One line of printable characters: names from a file end up in terminals, CSV cells and SVG."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
