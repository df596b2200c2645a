"""The Python call of ``gpubench profile``, for notebooks: a function makes one step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import UsageError
from .gpus import cards_of, complete
from .profile import Profile
from .profile_text import screen
from .script import Script, Session
from .watcher import Plan


def profile(step: Callable[[], Any], /, *, steps: int = 30, gpus: Sequence[str] = ()) -> Profile:
    """Print and return the profile of a function that makes one step: its parts on this CPU, and its time on GPUs.

    ``step`` is called without arguments: some times to warm up, ``steps`` times to be timed, then a few times to be
    traced and counted. ``gpus`` are names of GPUs, or results files of them. Raises UsageError for fewer than 5 steps
    or an unknown GPU; an exception of the function ends the profile.
    """
    if steps < 5:
        raise UsageError(f"steps must be 5 or more, not {steps}")
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")
    cards, name = cards_of(gpus), getattr(step, "__name__", "step")
    script = Script(Session(os.devnull, [f"{name}()"], to_the_end=True, plan=Plan(steps=steps, steps_s=0.0)))
    script.hook()
    try:
        while script.watcher.phase != "over":
            script.watcher.turn()
            step()
    finally:
        script.stop()
        script.watcher.restore()
    complete(script.profile, cards)
    print("\n".join(screen(script.profile)))
    return script.profile
