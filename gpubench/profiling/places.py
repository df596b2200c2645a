"""Lines of the user's code, for answers that name one, and a sampler of them."""

from __future__ import annotations

import _thread
import ast
import os
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_OTHERS = (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib")), str(Path(__file__).parents[1]))
BRIEF_S, LONG_S = 0.005, 0.05
"""Seconds between two samples of a step, and of a script that is looked for."""


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
    found = next(frames(frame), None)
    return f"{os.path.basename(found.f_code.co_filename)}:{found.f_lineno}" if found else ""


def user_line() -> str:
    """Return the line of the user's code that is running in this thread."""
    return line_of(sys._getframe(1))


class Sampler:
    """A thread that samples the lines of another one: it names a line, and gives no shares, since it prefers calls that
    release the interpreter's lock. ``watch`` gets the seconds since the start and the frame, and returns whether to
    take a sample."""

    def __init__(self, thread: int, script: str, watch: Callable[[float, Any], bool]) -> None:
        self.thread, self.script, self._watch = thread, script, watch
        self.lines: dict[str, Counter[str]] = {}
        self.turns: Counter[int] = Counter()
        self.region: Any = lambda: ""
        self.interval_s, self._ended = LONG_S, False
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._ended:
            time.sleep(self.interval_s)
            frame = None if self._ended else sys._current_frames().get(self.thread)
            if not self._ended and self._watch(time.monotonic() - began_s, frame):
                own = [each for each in frames(frame) if each.f_code.co_filename == self.script]
                self.turns.update(each.f_lineno for each in own[-1:])
                self.lines.setdefault(self.region(), Counter()).update([line_of(frame)])

    def stop(self) -> None:
        """End the thread after its next look."""
        self._ended = True


def busiest_loop(source: str, turns: Counter[int]) -> tuple[int, float] | None:
    """Return the line of the innermost loop of a script that holds nearly all samples, and its share of them."""
    total, best = sum(turns.values()) or 1, None
    for node in ast.walk(ast.parse(source)):  # outer loops come first
        if isinstance(node, ast.For | ast.While):
            share = sum(n for line, n in turns.items() if node.lineno <= line <= (node.end_lineno or 0)) / total
            best = (node.lineno, share) if share > 0.8 else best
    return best


MARK = "__gpubench_step__"
"""The function that a marked loop calls at the begin of each turn."""


def marked(source: str, line: int) -> ast.Module | None:
    """Return the script with a mark in the innermost loop at a line; None if no loop is there."""
    tree, body = ast.parse(source), None
    for node in ast.walk(tree):  # outer loops come first
        if isinstance(node, ast.For | ast.While | ast.AsyncFor) and node.lineno <= line <= (node.end_lineno or 0):
            body = node.body
    if body is None:
        return None
    body.insert(0, ast.copy_location(ast.parse(f"{MARK}()").body[0], body[0]))
    return ast.fix_missing_locations(tree)
