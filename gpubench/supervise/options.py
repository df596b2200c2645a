"""The options of ``gpubench run``; standard library only, so that ``--help`` loads nothing else."""

from __future__ import annotations

import argparse

from ..report.options import formats
from ..schema import CACHES, DTYPES, PRESETS, VARIANTS

PASSED_ON = ("preset", "device", "require_device", "dtype", "variant", "threads", "seed", "cache",
             "ranks_deadline", "machine")  # fmt: skip
"""Options that are the plugin's own, prefixed with ``--gpubench-`` there."""


SWITCHES = ("identify", "no_ceilings")
"""The same, without a value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`gpubench.supervise.run.main` reads."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="benchmark files of your own; default: the suite's")
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for all results (default: out)")
    parser.add_argument("-k", dest="expression", metavar="EXPR", help="only cases whose name matches, as in pytest")
    parser.add_argument("--list", action="store_true", help="print the cases, what each will take, and what is skipped")
    parser.add_argument("--preset", choices=PRESETS, help="how much care to take (default: quick, some minutes)")
    parser.add_argument(
        "--processes", type=int, metavar="K", help="split the rounds over K processes (default: 3; smoke: 1)"
    )
    parser.add_argument("--resume", metavar="DIR", help="go on with the unfinished run in that folder")
    parser.add_argument(
        "--deadline", type=float, metavar="S", help="a case that takes longer is stopped (default: 120; full: 600)"
    )
    parser.add_argument("--device", action="append", metavar="NAME", help="auto (default), all, cpu, cuda, cuda:1 …")
    parser.add_argument("--require-device", action="append", metavar="NAME", help="fail at once unless it is there")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="instead of each workload's own")
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="how networks are run")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads; default: the cores it may use")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of all inputs")
    parser.add_argument("--cache", choices=(*CACHES, "both"), help="flush the device's last cache before each round?")
    parser.add_argument(
        "--ranks-deadline", metavar="S", help="several processes without progress for so long count as hanging (60)"
    )
    parser.add_argument("--no-ceilings", action="store_true", help="don't measure what each device can do at best")
    parser.add_argument("--machine", metavar="LABEL", help="name of this machine in the report")
    parser.add_argument("--identify", action="store_true", help="keep host name and paths in the run file")
    parser.add_argument("--baseline", metavar="NAME", help="what speedups are measured against (see gpubench report)")
    parser.add_argument("--no-charts", dest="charts", action="store_false", help="write the tables only")
    parser.add_argument("--format", dest="formats", type=formats, default=formats("svg,png"), metavar="svg,png",
                        help="kinds of chart files (default: both)")  # fmt: skip
    parser.epilog = "What follows -- goes to pytest as it is, for example: gpubench run -- --benchmark-min-rounds=20"
