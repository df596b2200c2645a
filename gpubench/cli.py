"""The command ``gpubench``. Each subcommand imports what it needs when it is called: help is instant."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

from .version import __version__

COMMANDS = {
    # in gpubench.commands: name, help
    "run": "measure this machine: run file, CSV, charts, summary",
    "recover": "make a run file from the ledger of an interrupted run",
    "report": "tables, charts and a summary from run files",
    "compare": "did it change? two sets of runs, a verdict for each case",
    "export": "a run file for github-action-benchmark, Bencher or as CSV",
    "env": "which devices torch sees and by what name, or why it sees none",
}

BROKEN_PIPE = 128 + 13
"""What a shell calls the end of a program by SIGPIPE."""


class Parser(argparse.ArgumentParser):
    """Complains in one line; ``--help`` has the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line; the commands import what they need only when they run."""
    top = Parser(
        prog="gpubench", description="How much faster is the GPU than the CPU? In numbers that can be trusted."
    )
    top.add_argument("--version", action="version", version=f"gpubench {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        _command(name).add_arguments(sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code: 0 for success, 2 for input that can't be used, 141 where the reader of
    our output has gone, as with ``| head``: 1 would pass for a verdict."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed when we were started
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    args = parser().parse_args(words[:split])
    args.pytest = words[split + 1 :]
    if args.pytest and args.command not in ("run", "compare"):
        parser().error("-- and what follows it is for gpubench run and compare --interleave")
    module = _command(args.command)
    try:
        code: int = module.main(args)
        sys.stdout.flush()
    except BrokenPipeError:
        return _unread()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich makes an exit of it
            return _unread()
        raise
    return code


def _command(name: str) -> ModuleType:
    return importlib.import_module(f".commands.{name}", __package__)


def _unread() -> int:
    for stream in (sys.stdout, sys.stderr):  # what is left would fail again at exit, and change the code
        with suppress(BrokenPipeError):
            stream.close()
    return BROKEN_PIPE
