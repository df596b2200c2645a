"""The options of measuring, declared once.

pytest's options and ini keys, the command lines of ``gpubench run`` and ``gpubench compare --interleave``, what these
pass on to measuring processes, and docs/options.md are loops over :data:`OPTIONS`. Standard library only.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from .quantities import share_of

PRESETS = ("smoke", "glance", "quick", "full")
IN_ONE_PROCESS = ("smoke", "glance")  # presets of a run that times in one process by default
DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64")
VARIANTS = ("eager", "autocast", "compile", "graph")
CACHES = ("hot", "cold")
OPTIONAL_DEVICES = ("auto", "all", "cpu")  # names of devices that stand for the available ones
WHAT, CARE, OUTPUT, ADVANCED = GROUPS = ("what to measure", "how carefully", "output", "advanced")
"""Headings of ``--help``."""


@dataclass(frozen=True, slots=True)
class Option:
    """``--NAME`` on the command line; ``--gpubench-NAME`` and the ini key ``gpubench_NAME`` in pytest.

    ``field`` is the attribute of :class:`gpubench.measure.session.Settings` that holds the value. An option whose
    ``default`` is a ``bool`` is a switch that inverts it; one with a tuple as its ``default`` can be repeated.
    """

    name: str
    field: str
    group: str
    help: str
    metavar: str = ""
    default: Any = None
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    least: float = -math.inf

    @property
    def dest(self) -> str:
        """The attribute of parsed arguments."""
        return self.name.replace("-", "_")

    @property
    def flag(self) -> str:
        """The option of pytest."""
        return f"--gpubench-{self.name}"

    @property
    def ini(self) -> str:
        """The key in pytest's configuration file."""
        return f"gpubench_{self.dest}"

    @property
    def switch(self) -> bool:
        """Whether it takes no value."""
        return isinstance(self.default, bool)

    @property
    def repeatable(self) -> bool:
        """Whether it may be given more than once."""
        return isinstance(self.default, tuple)

    def parse(self, text: str) -> Any:
        """The value of this text. Raises :class:`UsageError`, which names the expectation."""
        if self.choices and text not in self.choices:
            raise UsageError(f"unknown {self.name} {text!r}: choose from {', '.join(self.choices)}")
        try:
            value = self.type(text)
        except ValueError:
            value = math.nan
        if self.type is int and not self.least <= value < 2**63:  # a results file holds no larger one
            wanted = "below 2**63" if value >= self.least else f"{self.least} or more"
            raise UsageError(f"{self.name} must be {'a whole number' if math.isnan(value) else wanted}, not {text!r}")
        if self.type is float and not 0 < value < 1e9:
            raise UsageError(f"{self.name} must be seconds above 0, not {text!r}")
        return value


OPTIONS = (
    Option("device", "devices", WHAT, "auto (the CPU and the first device of each kind; default), all, cpu, cuda,"
           " cuda:1 …, demo (simulated GPU); repeatable", "NAME", ("auto",)),
    Option("require-device", "required", WHAT, "exit with an error if this device is missing; repeatable", "NAME", ()),
    Option("dtype", "dtypes", WHAT, f"use this data type instead of each benchmark's default: {', '.join(DTYPES)};"
           " repeatable", "DTYPE", (), choices=DTYPES),
    Option("variant", "variants", WHAT, f"how networks are run: {', '.join(VARIANTS)}; repeatable", "VARIANT", (),
           choices=VARIANTS),
    Option("implementation", "implementations", WHAT, "library that does the work: torch, numpy, or all that"
           " are installed (default: torch, with numpy beside it); repeatable", "NAME", ()),
    Option("preset", "preset", CARE, "smoke (checks that the code runs), glance (a first look: about 45 benchmarks"
           " in a minute), quick (default) or full (takes longest)", "PRESET", "quick", choices=PRESETS),
    Option("threads", "threads", CARE, "CPU threads for torch and NumPy (default: all cores that may be used)", "N",
           type=int, least=1),
    Option("seed", "seed", ADVANCED, "seed of all inputs (default: 0)", "N", 0, int, least=0),
    Option("cache", "cache", ADVANCED, "hot: inputs may be cached (default); cold: flush the last-level cache before"
           " each round; both", "CACHE", "hot", choices=(*CACHES, "both")),
    Option("machine", "machine", OUTPUT, "name of this machine in reports (default: its CPU and GPU models)", "LABEL"),
)  # fmt: skip
OF_PYTEST = (
    Option("no-ceilings", "ceilings", ADVANCED, "skip the measurement of peak performance (no % of peak)",
           default=True),
    Option("ranks-deadline", "ranks_deadline", ADVANCED, "timeout for multi-process benchmarks without progress, in"
           " seconds (default: 60)", "S", 60.0, float),
)  # fmt: skip
"""Options of measuring that pytest alone has; ``gpubench run … -- --gpubench-no-ceilings`` passes one on."""
_OF_COMMANDS = (
    Option("processes", "processes", CARE, "", type=int, least=1),
    Option("deadline", "deadline", ADVANCED, "", type=float),
    Option("baseline", "baseline", OUTPUT, ""),
    Option("threshold", "threshold", CARE, "", type=share_of),
    Option("budget", "budget", CARE, "", type=float),
    Option("pairs", "pairs", CARE, "", type=int),
    Option("steps", "steps", CARE, "", type=int, least=5),
    Option("runs", "runs", CARE, "", type=int, least=1),
    Option("step", "step", WHAT, "", type=int, least=1),
)  # options that single commands declare and parse with :func:`reader`
_KEYS = ("devices", "preset", "threads", "processes", "deadline", "baseline", "threshold", "budget")
"""Options that ``[tool.gpubench]`` may set, by their fields."""


def reader(name: str) -> Callable[[str], Any]:
    """The function that parses an option of a single command, for argparse."""
    return next(option.parse for option in _OF_COMMANDS if option.name == name)


def declare(groups: Mapping[str, argparse._ArgumentGroup], without: Collection[str] = ()) -> None:
    """Add the options to a command line, each in the group of its heading; options that aren't given are ``None``
    there."""
    for option in (option for option in OPTIONS if option.name not in without):
        how: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "type": option.parse}
        action = "append" if option.repeatable else "store"
        groups[option.group].add_argument(f"--{option.name}", action=action, **how)


def given(args: argparse.Namespace) -> list[Option]:
    """The options that this command line sets."""
    return [option for option in OPTIONS if getattr(args, option.dest, None) is not None]


def values(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that this command line sets, by their fields. A device that is named must be available."""
    settings = {option.field: value for option in given(args) if (value := getattr(args, option.dest)) != []}
    named = [name for name in args.device or () if name not in OPTIONAL_DEVICES]
    required = [*settings.pop("required", ()), *named]
    return settings | ({"required": required} if required else {})


def passed_on(args: argparse.Namespace) -> list[str]:
    """These settings as arguments of pytest, for a measuring process."""
    every = [(option, value) for option in OPTIONS if (value := values(args).get(option.field)) is not None]
    return [f"{option.flag}={v}" for option, value in every for v in (value if option.repeatable else [value])]


def fill(args: argparse.Namespace, values: Mapping[str, Any], file: str, only: str = "") -> None:
    """Give options that no command line sets the ``values`` of ``[tool.gpubench]``: all that this command has, or
    ``only`` one. Raises :class:`UsageError` for a key or a value that doesn't exist."""
    known = {option.field: option for option in (*OPTIONS, *_OF_COMMANDS) if option.field in _KEYS}
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
            choices = f"did you mean {near[0]}?" if near else f"choose from paths, {', '.join(known)}"
            raise UsageError(f"{file}: [tool.gpubench]: unknown key {key!r}: {choices}")
        option = known[key]
        if only in ("", key) and getattr(args, option.dest, "no such option") is None:
            items = value if isinstance(value, list) and option.repeatable else [value]
            try:
                if wrong := [v for v in items if isinstance(v, bool) or not isinstance(v, str | int | float)]:
                    raise UsageError(f"{key} can't be {wrong[0]!r}")
                parsed = [option.parse(str(item)) for item in items]
            except UsageError as error:
                raise UsageError(f"{file}: [tool.gpubench]: {error}") from None
            setattr(args, option.dest, parsed if option.repeatable else parsed[0])
