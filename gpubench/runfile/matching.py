"""``-k EXPRESSION``: which benchmarks are chosen, by any name that is shown. Standard library only.

As in pytest words are joined by ``and``, ``or``, ``not`` and brackets, and a word matches a part of a name, in small
or capital letters. Unlike there ``matmul.square``, ``n=64`` and ``cuda:0`` are words too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher

from ..errors import UsageError

Matcher = Callable[[str], bool]
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
_OPERATORS = ("and", "or", "not", "(", ")")


def matcher(expression: str) -> Callable[[Iterable[str]], bool]:
    """A function that says whether one of a benchmark's names matches. Raises :class:`UsageError`."""
    parser = _Parser(expression)
    test = parser.alternatives()
    if parser.tokens:
        parser.refuse()
    return lambda names: test("\n".join(names).lower())


def nothing_matches(expression: str, names: Iterable[str], most: int = 6) -> UsageError:
    """An error that names what there is, the names nearest to the expression first."""
    known = sorted(set(names))
    words = [word.lower() for word in _TOKEN.findall(expression) if word not in _OPERATORS]
    likeness = {name: max(SequenceMatcher(None, word, name.lower()).ratio() for word in words) for name in known}
    nearest = sorted(known, key=lambda name: -likeness[name] if likeness[name] >= 0.5 else 0)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return UsageError(f"no benchmark matches {expression!r}: choose from {', '.join(nearest[:most])}{more}")


class _Parser:
    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.tokens = _TOKEN.findall(expression)

    def refuse(self) -> None:
        expected = "a word, 'not' or '('" if not self.tokens or self.tokens[0] != ")" else "no ')'"
        where = f"before {self.tokens[0]!r}" if self.tokens else "at its end"
        raise UsageError(f"-k {self.expression!r}: expected {expected} {where}")

    def take(self, token: str) -> bool:
        if self.tokens[:1] == [token]:
            del self.tokens[0]
            return True
        return False

    def alternatives(self) -> Matcher:
        tests = [self.conjunction()]
        while self.take("or"):
            tests.append(self.conjunction())
        return lambda names: any(test(names) for test in tests)

    def conjunction(self) -> Matcher:
        tests = [self.term()]
        while self.take("and"):
            tests.append(self.term())
        return lambda names: all(test(names) for test in tests)

    def term(self) -> Matcher:
        if self.take("not"):
            negated = self.term()
            return lambda names: not negated(names)
        if self.take("("):
            inner = self.alternatives()
            if not self.take(")"):
                raise UsageError(f"-k {self.expression!r}: expected ')' at its end")
            return inner
        if not self.tokens or self.tokens[0] in _OPERATORS:
            self.refuse()
        word = self.tokens.pop(0).lower()
        if "=" in word:  # a parameter and its whole value: n=64 isn't n=640
            pattern = re.compile(rf"(?<!\w){re.escape(word)}(?![\w.])")
            return lambda names: bool(pattern.search(names))
        return lambda names: word in names
