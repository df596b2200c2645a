"""What a person reads uses the field's words: none of our own where readers of PyTorch, pytest or nvbench have one."""

import ast
import re
from pathlib import Path

import pytest

from gpubench.commands import cli

PACKAGE = Path(cli.__file__).parent.parent
PLAIN = {
    # pattern to avoid: what to write
    r"cases?": "benchmark",
    r"resident|one-shot": "data on the GPU, with copies",
    r"break-even calls": "calls to amortize the copies",
    r"ceilings?|at best": "measured peak",
    r"utili[sz]ations?": "% of peak",
    r"launch floors?": "launch overhead",
    r"compulsory": "minimum memory traffic",
    r"regimes?|terms": "variant, configuration",
    r"waiting clock": "synchronized timer",
    r"contended": "machine busy",
    r"canar(?:y|ies)": "self-check",
    r"ledgers?": "journal",
    r"run files?": "results file",
    r"gave no number|unmeasured": "skipped, failed",
    r"ambiguous": "inconclusive",
    r"(?:un)?settle[ds]?": "conclusive",
    r"best that is(?:n't| not) parallel": "single-process baseline",
    r"nothing exchanged": "without communication",
    r"several devices": "multi-GPU, distributed",
    r"paired": "compared",
}
KEPT = {
    "cases": "key of compare's JSON",
    "unmeasured": "key of the results file",
    "utilisation": "key of the results file and column of results.csv",
    "case": "key of a ledger's events",
    "canary": "key of the results file",
    "ledger": "argument of recover",
    "ceilings": "attribute of the settings",
    "no-ceilings": "name of an option",
    "regime": "value of --allow and column of results.csv",
    "resident": "value of a key of the results file",
    "contended": "name of a flag",
}
"""Strings that are names and no texts, each with what it names."""
NAMES = "|".join(
    (
        r"--no-ceilings",
        r"\.ledger\.jsonl",
        r"--allow WHAT",
        r"dtype, precision, regime, cache, threads, seed",
        r"implementation, regime, cache, threads",
        r"resident or one-shot",
    )
)
"""Names that stand within texts."""
SPOKEN = (
    "commands/cli.py",
    "runfile/options.py",
    "commands/*.py",
    "compare/*.py",
    "plugin/*.py",
    "report/*.py",
    "supervise/*.py",
    "runfile/flags.py",
    "measure/disturbance.py",
)
"""Modules whose strings a person reads: the command line, the progress, the flags, the verdicts, the report."""


def avoidable(text: str) -> list[str]:
    """The words of ``text`` that it should do without, each with what to write."""
    text = re.sub(NAMES, "", re.sub(r"\s+", " ", text))
    return [
        f"{found!r}: write {plain!r}"
        for pattern, plain in PLAIN.items()
        for found in re.findall(rf"(?<![\w-])(?:{pattern})(?![\w-])", text, re.IGNORECASE)
    ]


def strings(path: Path) -> list[str]:
    """The strings of a module without its docstrings; what an f-string inserts is left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            skipped |= set(map(id, parts))
            texts.append("{}".join(str(part.value) for part in parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            texts.append(node.value)
    return [text for text in texts if text not in KEPT]


@pytest.mark.parametrize(
    "text",
    ["10 cases", "the Ceiling", "at\n best", "with a canary.", "no run file", "To settle it", "it is ambiguous: 3"],
)
def test_words_of_our_own_are_found_and_no_others(text) -> None:
    assert len(avoidable(text)) == 1
    assert avoidable(f"{text.replace(' ', '')}ly, pass --no-ceilings") == []


@pytest.mark.parametrize(
    "path",
    [path for pattern in SPOKEN for path in sorted(PACKAGE.glob(pattern))],
    ids=lambda path: path.relative_to(PACKAGE).as_posix(),
)
def test_messages_verdicts_and_table_headings(path) -> None:
    assert {text: avoidable(text) for text in strings(path) if avoidable(text)} == {}
