"""``-k EXPRESSION``: which benchmarks are chosen, by any name that is shown. Standard library only.

As in pytest words are joined by ``and``, ``or``, ``not`` and brackets, and a word matches a part of a name, in small
or capital letters; of a kind of work whole words only, as ``sort`` isn't all that is irregular. Unlike in pytest
``matmul.square``, ``n=64`` and ``cuda:0`` are words too, and words side by side must all match, so that
``matmul.square float32, n=64`` can be pasted from a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher

from ..errors import UsageError
from .kinds import KINDS

Matcher = Callable[[str], bool]
_EXPRESSIONS = "time."
"""What the names of expressions begin with: the file that they are measured in."""
SHIPPED = frozenset({
    "attention", "classic", "convolution", "data_parallel", "distributed", "elementwise", "fft", "irregular",
    "linear_algebra", "llm", "matmul", "model_parallel", "models", "quantised", "reductions", "science", "serving",
    "sparse", "training", "transfer", "time",
})  # fmt: skip
"""Names of the files that come with gpubench, or are written by it: another file of such a name keeps its test_."""
_TOKEN = re.compile(
    r"\s*((?:and|or|not)(?=[\s(])|[()]|(?:[^\s()]|(?<=[\w\])])\((?:[^()]|\([^()]*\))*\))+)"  # torch.add(a, b) is a word
)
_EQUALS = re.compile(r"(?<=\w)\s+=\s+(?=\w)")
_POWER = re.compile("10([⁰¹²³⁴⁵⁶⁷⁸⁹]{1,2})")
_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_HEADINGS = frozenset(kind.heading for kind in KINDS.values())
_KINDS = re.compile("^<.*>$", re.MULTILINE)
"""Kinds of work among a benchmark's names, as :func:`matcher` writes them."""
_OPERATORS = ("and", "or", "not", "(", ")")


def shown_name(workload: str) -> str:
    """What a person calls it: the expression alone where ``gpubench time`` has measured one."""
    return workload.removeprefix(_EXPRESSIONS)


def matcher(expression: str) -> Callable[[Iterable[str]], bool]:
    """A function that says whether one of a benchmark's names matches. Raises :class:`UsageError`."""
    parser = _Parser(expression)
    test = parser.alternatives()
    if parser.tokens:
        parser.refuse()
    return lambda names: test("\n".join(f"<{name}>" if name in _HEADINGS else name for name in names).lower())


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
        typed = _POWER.sub(lambda power: str(10 ** int(power[1].translate(_DIGITS))), _EQUALS.sub("=", expression))
        self.tokens = [token.rstrip(",") or token for token in _TOKEN.findall(typed)]

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
        while self.take("and") or self.tokens[:1] not in ([], ["or"], [")"]):
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
        of_kind = re.compile(rf"<(?:.*\W)?{re.escape(word)}(?:\W.*)?>$", re.MULTILINE)
        return lambda names: word in _KINDS.sub("", names) or bool(of_kind.search(names))
