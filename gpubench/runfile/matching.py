"""``-k EXPRESSION``: which benchmarks are chosen, by any name that is shown. Standard library only.

As in pytest words are joined by ``and``, ``or``, ``not`` and brackets, and a word matches a part of a name, in small
or capital letters. A kind of work matches only as a whole word: ``sort`` must not select every irregular workload.
Unlike in pytest ``matmul.square``, ``n=64`` and ``cuda:0`` are words too, and words side by side must all match, so
that ``matmul.square float32, n=64`` can be pasted from a table.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError
from .quantities import listed, shorten

if TYPE_CHECKING:
    from .schema import Case


class Kind(NamedTuple):
    """A kind of work and its name in a sentence; ``summarised`` unless it has tables of its own."""

    words: str
    summarised: bool = True

    @property
    def heading(self) -> str:
        """The heading above the benchmarks of this kind."""
        return self.words[:1].upper() + self.words[1:]


KINDS = {
    "matmul": Kind("matrix products"),
    "networks": Kind("networks"),
    "training": Kind("training"),
    "elementwise": Kind("elementwise work"),
    "other_matmul": Kind("other matrix products"),
    "operators": Kind("operators of networks"),
    "linear_algebra": Kind("linear algebra"),
    "irregular": Kind("sorting and irregular access"),
    "science": Kind("science and images"),
    "copies": Kind("copies", summarised=False),
    "distributed": Kind("multi-GPU work", summarised=False),
}  # by the values that a benchmark's marker may have as its ``kind``, in the order of a report

_EXPRESSIONS = "time."  # prefix of the names of expressions: the file that they are measured in
SHIPPED = frozenset({
    "attention", "classic", "convolution", "data_parallel", "distributed", "elementwise", "fft", "irregular",
    "input", "linear_algebra", "llm", "matmul", "model_parallel", "models", "quantised", "reductions", "science",
    "serving", "sparse", "training", "transfer", "time",
})  # fmt: skip
"""Names of the files that come with gpubench, or are written by it: any other file of such a name keeps its
``test_``."""
_TOKEN = re.compile(
    r"\s*((?:and|or|not)(?=[\s(])|[()]|(?:[^\s()]|(?<=[\w\])])\((?:[^()]|\([^()]*\))*\))+)"  # torch.add(a, b) is a word
)
_POWER = re.compile("10([⁰¹²³⁴⁵⁶⁷⁸⁹]{1,2})")
_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_HEADINGS = frozenset(kind.heading for kind in KINDS.values())
_OPERATORS = ("and", "or", "not", "(", ")")


def names_of(case: Case) -> tuple[str, ...]:
    """The names of the benchmark, its kind of work and its variant in a report, which ``-k`` accepts."""
    heading = KINDS[case.kind].heading if case.kind in KINDS else ""
    return tuple(filter(None, (case.title, heading, case.variant)))


def shown_name(workload: str) -> str:
    """The name that people see: the expression alone where ``gpubench time`` measured it."""
    return workload.removeprefix(_EXPRESSIONS)


def _tokens(expression: str) -> list[str]:
    """Return the words, operators and brackets, sizes as a table shows them included: ``n = 10⁷``."""
    typed = " ".join(expression.split())  # the patterns would take the square of the number of spaces
    typed = _POWER.sub(lambda power: str(10 ** int(power[1].translate(_DIGITS))), typed)
    words = _TOKEN.findall(re.sub(r"(?<=\w)\s+=\s+(?=\w)", "=", typed))
    return [word.rstrip(",") or word for word in words]


def is_expression(workload: str) -> bool:
    """Whether ``gpubench time`` measured it: an expression, no test."""
    return workload.startswith(_EXPRESSIONS)


def matcher(expression: str, source: str = "-k") -> Callable[[Iterable[str]], bool]:
    """A function that returns whether one of a benchmark's names matches. Raises :class:`UsageError`, which names the
    ``source`` of the expression. Python reads it, with a name in the place of each word and ``and`` between words side
    by side."""
    patterns: dict[str, str] = {}
    terms = [""]
    for token in _tokens(expression):
        if token not in ("and", "or", ")") and terms[-1] not in ("", *_OPERATORS[:4]):
            terms.append("and")
        terms.append(token if token in _OPERATORS else f"word_{len(patterns)}")
        if token not in _OPERATORS:
            word = re.escape(token.lower()).replace("…", ".*")  # the middle of a name that a table cuts out
            if "=" in token:  # a parameter and its whole value: n=64 isn't n=640
                patterns[terms[-1]] = rf"(?<!\w){word}(?![\w.])"
            else:  # of the names, one a line, kinds of work stand in angle brackets
                patterns[terms[-1]] = rf"^<(?:.*\W)?{word}(?:\W.*)?>$|^(?!<.*>$).*{word}"
    try:
        code = compile(" ".join(terms).replace("( )", "(and)").strip(), "-k", "eval")  # else an empty tuple
    except (SyntaxError, RecursionError, MemoryError):
        raise UsageError(f"{source} {expression!r}: expected a word beside each and, or, not and bracket") from None

    def matches(names: Iterable[str]) -> bool:
        shown = "\n".join(f"<{name}>" if name in _HEADINGS else name for name in names).lower()
        chosen = {name: re.search(pattern, shown, re.MULTILINE) is not None for name, pattern in patterns.items()}
        return bool(eval(code, {"__builtins__": {}}, chosen))

    return matches


def unmatched_words(expression: str, benchmarks: Iterable[Iterable[str]]) -> list[str]:
    """Return the words of an expression that match no name of any benchmark."""
    shown = [list(names) for names in benchmarks]
    return [word for word in _tokens(expression) if word not in _OPERATORS and not any(map(matcher(word), shown))]


def nothing_matches(expression: str, names: Iterable[str], presets: Collection[str | None] = ()) -> UsageError:
    """An error that lists the available names, the nearest to the expression first, and says how to measure more than
    the smallest of the ``presets`` does."""
    words = [word.lower() for word in _tokens(expression) if word not in _OPERATORS]
    likeness = {name: max(SequenceMatcher(None, word, name.lower()).ratio() for word in words) for name in set(names)}
    nearest = sorted(sorted(likeness), key=lambda name: -likeness[name] if likeness[name] >= 0.5 else 0)
    more = f"; preset glance leaves many out, which preset quick has: gpubench run --list -k {shlex.quote(expression)}"
    complaint = f"no benchmark matches {shorten(expression, 200)!r}: choose from {listed(nearest)}"
    return UsageError(complaint + more * ("glance" in presets))
