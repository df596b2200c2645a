"""The options of measuring, declared once.

pytest's options and ini keys, the command lines of ``gpubench run`` and ``gpubench compare --interleave``, what these
pass on to measuring processes, and docs/options.md are loops over :data:`OPTIONS`. Standard library only.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import UsageError
from .runfile.matching import matcher

PRESETS = ("smoke", "quick", "full")
DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64")
VARIANTS = ("eager", "autocast", "compile", "graph")
CACHES = ("hot", "cold")

OPTIONAL_DEVICES = ("auto", "all", "cpu")
"""Names of devices that stand for those that are there."""

WHAT, CARE, OUTPUT, ADVANCED = GROUPS = ("what to measure", "how carefully", "output", "advanced")
"""Headings of ``--help``."""


@dataclass(frozen=True, slots=True)
class Option:
    """``--NAME`` on the command line; ``--gpubench-NAME`` and the ini key ``gpubench_NAME`` in pytest.

    ``field`` is the attribute of :class:`gpubench.measure.session.Settings` that holds the value. An option whose
    ``default`` is a ``bool`` is a switch that inverts it; one whose ``default`` is a tuple can be repeated.
    """

    name: str
    field: str
    group: str
    help: str
    metavar: str = ""
    default: Any = None
    type: type = str
    choices: tuple[str, ...] = ()

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
        """The value of this text. Raises :class:`UsageError`, saying what was expected."""
        if self.choices and text not in self.choices:
            raise UsageError(f"unknown {self.name} {text!r}: choose from {', '.join(self.choices)}")
        try:
            value = self.type(text)
        except ValueError:
            value = math.nan
        if self.type is int and not isinstance(value, int):
            raise UsageError(f"{self.name} must be a whole number, not {text!r}")
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
    Option("preset", "preset", CARE, "smoke (checks that the code runs), quick (default) or full (takes longest)",
           "PRESET", "quick", choices=PRESETS),
    Option("threads", "threads", CARE, "CPU threads for torch and NumPy (default: all cores that may be used)", "N",
           type=int),
    Option("seed", "seed", ADVANCED, "seed of all inputs (default: 0)", "N", 0, int),
    Option("cache", "cache", ADVANCED, "hot: inputs may be cached (default); cold: flush the last-level cache before"
           " each round; both", "CACHE", "hot", choices=(*CACHES, "both")),
    Option("ranks-deadline", "ranks_deadline", ADVANCED, "timeout for multi-process benchmarks without progress, in"
           " seconds (default: 60)", "S", 60.0, float),
    Option("no-ceilings", "ceilings", ADVANCED, "skip the measurement of peak performance (no roofline)",
           default=True),
    Option("machine", "machine", OUTPUT, "name of this machine in reports (default: its CPU and GPU models)", "LABEL"),
    Option("identify", "identify", OUTPUT, "keep host name and paths in the results file", default=False),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}


def declare(groups: Mapping[str, argparse._ArgumentGroup]) -> None:
    """Add all options to a command line, each in the group of its heading; those not given are ``None`` there."""
    for option in OPTIONS:
        how: dict[str, Any] = {"help": option.help, "default": None}
        if option.switch:
            how["action"] = "store_true"
        else:
            how |= {"metavar": option.metavar, "type": option.parse}
            how["action"] = "append" if option.repeatable else "store"
        groups[option.group].add_argument(f"--{option.name}", **how)


def given(args: argparse.Namespace) -> list[Option]:
    """The options that stand on this command line."""
    return [option for option in OPTIONS if getattr(args, option.dest) is not None]


def passed_on(args: argparse.Namespace) -> list[str]:
    """The same options as arguments of pytest, for a measuring process. A device that is named must be there."""
    words = []
    named = [name for name in args.device or () if name not in OPTIONAL_DEVICES]
    args = argparse.Namespace(**vars(args) | {"require_device": [*(args.require_device or ()), *named] or None})
    for option in given(args):
        value = getattr(args, option.dest)
        values = value if option.repeatable else [value]
        words += [option.flag] if option.switch else [f"{option.flag}={item}" for item in values]
    return words


def add_expression(group: argparse._ActionsContainer) -> None:
    """Add ``-k``, by which benchmarks are chosen."""
    text = (
        "only benchmarks whose name matches: matmul.square, networks, n=64, 'resnet50 and not compile'; repeated: any"
        " of them"
    )
    group.add_argument("-k", dest="expression", action=_AnyOf, metavar="EXPR", help=text)


class _AnyOf(argparse.Action):
    """Joins the expressions of several ``-k`` by ``or``."""

    def __call__(self, parser: object, args: argparse.Namespace, value: object, option: object = None) -> None:
        earlier = getattr(args, self.dest)
        setattr(args, self.dest, value if earlier is None else f"({earlier}) or ({value})")


def chosen(args: argparse.Namespace) -> list[str]:
    """What ``-k`` says as an argument of pytest. Raises :class:`UsageError` for a wrong expression."""
    if args.expression is None:
        return []
    matcher(args.expression)
    return [f"--gpubench-match={args.expression}"]
