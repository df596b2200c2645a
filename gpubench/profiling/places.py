"""Lines of the user's code, for answers that name one, and loops of a script."""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_OTHERS = (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib")), str(Path(__file__).parents[1]))
MARK = "__gpubench_step__"
"""The function that a marked loop calls at the begin of each turn."""


def is_user_code(name: str) -> bool:
    """Return whether a file is neither Python's, nor an installed package's, nor gpubench's."""
    beside_torch = str(Path(getattr(sys.modules.get("torch"), "__file__", None) or __file__).parents[1])
    return not name.startswith(("<", *_OTHERS, beside_torch)) and "site-packages" not in name


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the user's code, the innermost first."""
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def line_of(frame: FrameType | None) -> str:
    """Return ``train.py:31`` for the innermost frame of the user's code; empty without one."""
    own = next(frames(frame), None)
    return f"{os.path.basename(own.f_code.co_filename)}:{own.f_lineno}" if own else ""


def user_line() -> str:
    """Return the line of the user's code that is running in this thread."""
    return line_of(sys._getframe(1))


def _loops(tree: ast.Module) -> Iterator[tuple[ast.For | ast.While | ast.AsyncFor, range]]:
    """Yield the loops with their lines, outer loops first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While | ast.AsyncFor):
            yield node, range(node.lineno, (node.end_lineno or 0) + 1)


def busiest_loop(source: str | bytes, turns: Counter[int]) -> tuple[int, float] | None:
    """Return the line of the innermost loop of a script that holds nearly all samples, and its share of them."""
    total, best = sum(turns.values()) or 1, None
    for node, lines in _loops(ast.parse(source)):
        share = sum(n for line, n in turns.items() if line in lines) / total
        best = (node.lineno, share) if share > 0.8 else best
    return best


def marked(source: str | bytes, line: int) -> ast.Module | None:
    """Return the script with a mark in the innermost loop at a line; None if no loop is there."""
    tree = ast.parse(source)
    bodies = [node.body for node, lines in _loops(tree) if line in lines]
    if not bodies:
        return None
    bodies[-1].insert(0, ast.copy_location(ast.parse(f"{MARK}()").body[0], bodies[-1][0]))
    return ast.fix_missing_locations(tree)
