"""The command ``gpubench``. Only the chosen command is imported, so that help is instant."""

from __future__ import annotations

import argparse
import codecs
import difflib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ..errors import GpubenchError
from ..runfile.quantities import plain_signs
from ..runfile.version import __version__

COMMANDS = {
    # heading: {name in gpubench.commands: help}
    "Measure": {
        "run": "benchmark this machine (about 10 minutes, with a GPU 20; results in out/)",
        "time": "time one expression on CPU and GPU",
        "profile": "run a script for some steps; show what a GPU can speed up in it, and what not",
        "env": "list the available devices; explain why a GPU is missing",
    },
    "Look at results": {
        "show": "print results in the terminal, or as Markdown or CSV",
        "report": "write tables, charts and a summary for one or more results; compare machines",
        "chart": "draw one picture: headline, speedup, rate and more",
        "compare": "compare two versions of your code; exit code 1 on a regression",
        "estimate": "estimate how fast a GPU that you don't have would run this",
    },
}
EXAMPLES = {
    "gpubench run --preset glance": "a first look, about a minute",
    "gpubench run": "everything",
    "gpubench run -k resnet50 --device cuda": "one benchmark, GPU only",
    "gpubench run bench/": "your own benchmarks",
    "gpubench time 'a @ b' --setup … --size …": "one expression",
    "gpubench profile train.py": "your own script",
    "gpubench report a/run.json b/run.json -o both": "two machines",
    "gpubench compare before/ after/": "two versions",
    "gpubench estimate out/run.json": "a GPU that isn't here",
}
_HELP = {name: text for group in COMMANDS.values() for name, text in group.items()}
_UNUSABLE, INTERRUPTED, BROKEN_PIPE = 2, 128 + 2, 128 + 13
"""Exit codes: unusable input, and the codes that a shell reports for programs ended by SIGINT and by SIGPIPE."""
_TAKE_PYTEST_OPTIONS, _READING = ("run", "compare"), ("show", "report", "chart", "estimate")


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line with a suggestion; ``--help`` has the rest."""

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own method goes on when the output can't be written."""
        print(self.format_help(), end="", file=file, flush=True)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words, which an error message may quote."""
        self._words = list(args or ())
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with 2 and one line, with the nearest option where one was mistyped."""
        from ..errors import clean  # paths and names of others must not act on a terminal

        if message.startswith("unrecognized arguments: "):
            word = message.split()[2]
            message += _suggestion(word.split("=")[0], self._option_string_actions) or self._of_one_word(word)
        elif message.startswith("the following arguments are required: EXPRESSION") and self._words:
            message += ": write it first, in quotes: gpubench time 'a @ b' …"
        self.exit(_UNUSABLE, clean(f"{self.prog}: {message}") + "\n")

    def _of_one_word(self, word: str) -> str:
        """Return the remedy for a second word behind an option that takes one."""
        before = self._words[: self._words.index(word)] if word in self._words else []
        place = max((i for i, each in enumerate(before) if each[:1] == "-"), default=len(before))
        option, equals, value = (before[place:] or [""])[0].partition("=")
        values, action = [*[value] * bool(equals), *before[place + 1 :], word], self._option_string_actions.get(option)
        if action is None or action.nargs is not None or len(values) != 2:
            return ""
        if "=" in values[0]:
            return f": {option} takes one word: write {option} {','.join(values)}"
        several = f", or {' '.join(f'{option} {each}' for each in values)}" if action.metavar in ("CARD", "GPU") else ""
        return f": {option} takes one word: write {option} '{' '.join(values)}'{several}"


def parser(command: str) -> Parser:
    """Return the command line of one command."""
    sub = Parser(prog=f"gpubench {command}", description=f"{_HELP[command][0].upper()}{_HELP[command][1:]}.")
    reads = command in _READING
    module = importlib.import_module(".reading" if reads else f".{command}", __package__)
    getattr(module, f"{command}_arguments" if reads else "add_arguments")(sub)
    sub.set_defaults(main=getattr(module, command if reads else "main"))
    return sub


def help_text() -> str:
    """Return the text of ``gpubench --help``."""
    question = "Benchmark PyTorch on your CPU and GPU: how much faster is the GPU, and from what size?"
    lines = ["usage: gpubench COMMAND [options]", "", question]
    for heading, commands in COMMANDS.items():
        lines += ["", heading, *(f"  {name:<10} {text}" for name, text in commands.items())]
    lines += ["", "Examples", *(f"  {words:<46} {text}" for words, text in EXAMPLES.items())]
    last = "gpubench COMMAND --help lists a command's options; gpubench --version prints the version."
    return "\n".join([*lines, "", last])


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 for success, 2 for unusable input, output that can't be written or a
    defect, 141 if the reader of the output has gone, as with ``| head`` (1 would pass for a proven slowdown)."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed before this process was started
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    codecs.register_error("plain-signs", plain_signs)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="plain-signs")  # a terminal without × is no reason to fail
    code = _guarded(list(sys.argv[1:] if argv is None else argv))
    for output in (sys.stdout, sys.stderr):
        try:
            output.flush()
        except OSError:  # the rest would fail again at exit, and change the code
            with suppress(OSError):
                output.close()
    return code


def _guarded(words: list[str]) -> int:
    code, complaint = _UNUSABLE, ""
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code, complaint = INTERRUPTED, "gpubench: interrupted"
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):  # rich makes it an exit
            raise
        code = BROKEN_PIPE
    except OSError as error:
        place = repr(error.filename)[:200] if error.filename else "output"
        code, complaint = _UNUSABLE, f"gpubench: {place}: {error.strerror or error}"
    except Exception:
        code, complaint = _UNUSABLE, traceback.format_exc()
    if complaint:
        with suppress(OSError, ValueError):  # it may be full or closed, and the exit code says the most
            print(complaint, file=sys.stderr, flush=True)
    return code


def _run(words: list[str]) -> int:
    command = (words or ["help"])[0]
    if command in ("-h", "--help", "help", "--version"):
        print(f"gpubench {__version__}" if command == "--version" else help_text())
        return 0
    if command not in _HELP:
        advice = _suggestion(command, _HELP) or f": choose from {', '.join(_HELP)}"
        print(f"gpubench: unknown command {command!r}{advice}", file=sys.stderr)
        return _UNUSABLE
    split = words.index("--") if "--" in words and command != "profile" else len(words)  # they are the script's
    sub = parser(command)
    args = sub.parse_args(words[1:split])
    args.pytest = words[split + 1 :]
    if args.pytest and command not in _TAKE_PYTEST_OPTIONS:
        sub.error("-- and what follows it is for gpubench run and compare --interleave")
    try:
        return int(args.main(args))
    except GpubenchError as error:
        print(f"gpubench {command}: {error}", file=sys.stderr)
        return _UNUSABLE


def _suggestion(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f": did you mean {close[0]}?" if close else ""
