"""What a file that is made to be published need not say: where on whose machine it was made."""

from __future__ import annotations

import getpass
import re
import socket
from contextlib import suppress

COMMON = frozenset({"root", "localhost", "user", "admin", "runner"})
"""Names that many machines have: they give nobody away, and are words of other meanings too."""


def without_paths(text: str) -> str:
    """The text with absolute paths cut down to their last part, and without the names of host and user."""
    text = re.sub(r"(?<![\w.])(?:[A-Za-z]:)?(?:[/\\\\][^\s/\\\\:'\"]+)+[/\\\\]([^\s/\\\\:'\"]+)", r"\1", text)
    names = {"host": socket.gethostname()}
    with suppress(KeyError, OSError, ImportError):
        names["user"] = getpass.getuser()
    for what, name in names.items():
        if len(name) > 2 and name not in COMMON:
            text = re.sub(rf"\b{re.escape(name)}\b", f"({what})", text)
    return text
