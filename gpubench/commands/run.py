"""The options of ``gpubench run``; standard library only, so that ``--help`` loads nothing else."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import GpubenchError, RunFileError, UsageError
from ..format import counted
from ..report import output
from ..runfile import merge
from ..runfile.folder import LEDGER, RUN_FILE, Earlier
from ..runfile.ledger import Event, Ledger, Lock, read
from ..runfile.schema import CACHES, DTYPES, OK, PRESETS, SCHEMA_VERSION, VARIANTS
from ..runfile.writer import write
from ..supervise import plan, process
from ..supervise.progress import Progress
from ..supervise.supervisor import Supervisor, Unable
from .report import formats

PASSED_ON = ("preset", "device", "require_device", "dtype", "variant", "threads", "seed", "cache",
             "ranks_deadline", "machine")  # fmt: skip
"""Options that are the plugin's own, prefixed with ``--gpubench-`` there."""


SWITCHES = ("identify", "no_ceilings")
"""The same, without a value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what :func:`gpubench.commands.run.main` reads."""
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


# ``gpubench run``: measure in child processes, tell how far it is, then report.


MEASURED, INCOMPLETE, UNUSABLE = 0, 1, 2
_INTERRUPTED, _USAGE, _NOTHING_COLLECTED = 2, 4, 5  # pytest's exit codes
ACCEPTABLE = (OK, "skipped")


def main(args: argparse.Namespace) -> int:
    """Returns 0 when all that was asked for was measured or skipped for a reason, 1 when a case failed or the run was
    stopped, 2 when the input can't be used."""
    try:
        if args.list and args.resume is not None:
            raise UsageError("--list shows what a new run would measure: leave out --resume")
        if args.list:
            return plan.show(paths(args), options(args), args.preset or "quick", _processes(args))
        return _measure(args)
    except plan.NoPlan as error:
        return _explain(error.code, Progress(), error.log, False)
    except GpubenchError as error:
        print(f"gpubench run: {error}", file=sys.stderr)
        return UNUSABLE


def _measure(args: argparse.Namespace) -> int:
    progress, unable = Progress(), None
    run = contextlib.nullcontext(_resumed(args, progress)) if args.resume is not None else _fresh(args, progress)
    with run as supervisor, progress:
        progress.expect(supervisor.processes, supervisor.events)
        try:
            supervisor.measure()
        except Unable as error:
            unable = error
    return _finish(args, supervisor, progress, unable)


def _finish(args: argparse.Namespace, supervisor: Supervisor, progress: Progress, unable: Unable | None) -> int:
    """Write the run file and the report, or say why there is nothing to write."""
    if unable and unable.code == _USAGE:
        raise UsageError(_complaint(_lines(supervisor.log)))
    sessions = any(event["event"] == "session" for event in supervisor.events)
    if not sessions and unable and unable.status == "timeout":
        print(f"gpubench run: {unable}", file=sys.stderr)
        return INCOMPLETE
    if not sessions:
        return _explain(unable.code if unable else 0, progress, supervisor.log, supervisor.interrupted)
    run_file = supervisor.folder / RUN_FILE
    data = merge.assemble(supervisor.events)
    write(run_file, data)
    whole = not unable and not supervisor.interrupted
    if whole and not any(event["event"] == "complete" for event in supervisor.events):
        _append(supervisor.ledger, "complete")
    if supervisor.lock:
        supervisor.lock.release()
    if unable:
        print(f"gpubench run: {unable}", file=sys.stderr)
    if not whole:
        print(
            "gpubench run: stopped; reporting what was measured"
            f" (go on with: gpubench run --resume {supervisor.folder})",
            file=sys.stderr,
        )
    ends = [event for event in supervisor.events if event["event"] == "end"]
    bad = {event["fullname"] for event in ends if event["status"] not in ACCEPTABLE}
    if bad and not supervisor.interrupted:
        print(f"gpubench run: {counted(len(bad), 'case')} failed: see {supervisor.log}", file=sys.stderr)
    return max(_report(args, supervisor.folder, run_file), MEASURED if whole and not bad else INCOMPLETE)


@contextlib.contextmanager
def _fresh(args: argparse.Namespace, progress: Progress) -> Iterator[Supervisor]:
    """A new run. The earlier one in its folder is put back unless this one begins to measure."""
    folder = Path("out" if args.output is None else args.output)
    files, passed = paths(args), options(args)
    processes = _processes(args)
    if args.output == "":
        raise UsageError("-o needs the name of a folder")
    _require_writable(folder)
    deadline_s = _deadline(args)
    earlier = Earlier(folder)
    began = False

    def tell(event: Event) -> None:
        nonlocal began
        began = began or event["event"] == "session"
        if began:
            earlier.announce()
        progress.tell(event)

    supervisor = Supervisor(folder, files, passed, processes, deadline_s, tell)
    try:
        supervisor.log.write_bytes(b"")
        facts = {"processes": processes, "options": passed, "paths": files, "deadline_s": deadline_s}
        _append(supervisor.ledger, "run", schema_version=SCHEMA_VERSION, **facts)
        supervisor.lock = Lock(supervisor.ledger)
        yield supervisor
    finally:
        if not began:
            earlier.restore()


def _resumed(args: argparse.Namespace, progress: Progress) -> Supervisor:
    """The run that a ledger tells of, on its own terms."""
    given = [name for name in (*PASSED_ON, "processes", "expression", "output") if getattr(args, name) is not None]
    given += [name for name in SWITCHES if getattr(args, name)]
    if given or args.paths or args.pytest:
        named = f"--{given[0].replace('_', '-')}" if given else (args.paths or args.pytest)[0]
        raise UsageError(f"--resume goes on with the run's own options: leave out {named}")
    target = Path(args.resume)
    if not args.resume:
        raise UsageError("--resume needs the folder of a run")
    if not target.is_dir() and target.name not in (RUN_FILE, LEDGER):
        raise UsageError(f"{target}: no run to go on with: expected the folder of a run")
    folder = target if target.is_dir() else target.parent
    ledger = folder / LEDGER
    if not ledger.exists():
        raise UsageError(f"{args.resume}: no run to go on with: {ledger.name} is not there")
    lock = Lock(ledger)
    events = read(ledger)
    runs = [event for event in events if event["event"] == "run"]
    if not runs:
        raise RunFileError(f"{ledger}: file: expected a run of gpubench run; make a run file with gpubench recover")
    _require_writable(folder)
    run = runs[0]
    for path in run["paths"]:
        if not Path(str(path).split("::")[0]).exists():
            raise UsageError(f"{path}: no such file or folder, and the run needs it")
    deadline = _deadline(args) if args.deadline is not None else float(run.get("deadline_s") or _deadline(args))
    files, passed = ([str(word) for word in run[key]] for key in ("paths", "options"))
    supervisor = Supervisor(folder, files, passed, run["processes"], deadline, progress.tell, events, lock=lock)
    if all(supervisor.missing(index) == [] for index in range(supervisor.processes)):
        print("gpubench run: nothing is missing; what failed is not tried again", file=sys.stderr)
    return supervisor


def _processes(args: argparse.Namespace) -> int:
    if args.processes is not None and args.processes < 1:
        raise UsageError(f"processes must be 1 or more, not {args.processes}")
    return args.processes or (1 if args.preset == "smoke" else 3)


def _deadline(args: argparse.Namespace) -> float:
    if args.deadline is not None and not args.deadline > 0:
        raise UsageError(f"the deadline must be above 0 s, not {args.deadline:g}")
    return float(args.deadline or (600.0 if args.preset == "full" else 120.0))


def _append(path: Path, event: str, **facts: object) -> None:
    ledger = Ledger(path)
    ledger.append(event, **facts)
    ledger.close()


def paths(args: argparse.Namespace) -> list[str]:
    """Benchmark files and folders, absolute; what follows ``--`` is pytest's and never among them."""
    if not args.paths:
        return [str(process.suite())]
    found = []
    for text in args.paths:
        name, separator, test = text.partition("::")
        if not Path(name).exists():
            raise UsageError(f"{text}: no such file or folder")
        found.append(f"{Path(name).resolve()}{separator}{test}")
    return found


def options(args: argparse.Namespace) -> list[str]:
    """pytest's options for these arguments."""
    found = []
    for name in PASSED_ON:
        value = getattr(args, name)
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                found.append(f"--gpubench-{name.replace('_', '-')}={item}")
    for name in SWITCHES:
        if getattr(args, name):
            found.append(f"--gpubench-{name.replace('_', '-')}")
    if args.expression:
        found += ["-k", args.expression]
    return [*found, *args.pytest]


def _require_writable(folder: Path) -> None:
    """Before any measuring: an hour's run must not fail at its last line, over somebody else's tables neither."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = "it is no folder" if folder.exists() and not folder.is_dir() else error.strerror
        raise UsageError(f"{folder}: can't write there: {why}") from None
    output.require_ours(folder, output.TABLES)


def _explain(code: int, progress: Progress, log: Path | str, interrupted: bool) -> int:
    """Nothing was measured: say why in a line, from what pytest said."""
    lines = _lines(log)
    seen = f": see {log}" if isinstance(log, Path) else ""
    if interrupted:
        print("gpubench run: stopped before anything was measured", file=sys.stderr)
        return INCOMPLETE
    if code == _USAGE:
        print(f"gpubench run: {_complaint(lines)}", file=sys.stderr)
        return UNUSABLE
    if code == _NOTHING_COLLECTED:
        print("gpubench run: no case matches", file=sys.stderr)
        return UNUSABLE
    if code == _INTERRUPTED:
        print(f"gpubench run: {_uncollected(lines)}{seen}", file=sys.stderr)
        return UNUSABLE
    for reason, count in progress.reasons.most_common(5):
        print(f"gpubench run: {count} × {reason}", file=sys.stderr)
    if not progress.reasons:
        print("\n".join(lines[-15:]), file=sys.stderr)
    print(f"gpubench run: nothing was measured (pytest ended with {code}){seen}", file=sys.stderr)
    return INCOMPLETE


def _lines(log: Path | str) -> list[str]:
    said = log.read_text(encoding="utf-8", errors="replace") if isinstance(log, Path) else log
    return [line for line in said.splitlines() if line.strip()]


def _uncollected(lines: list[str]) -> str:
    """Which files pytest can't collect, and what is wrong with the last of them, with its line if that is known."""
    files = [line.removeprefix("ERROR ").split(" - ")[0] for line in lines if line.startswith("ERROR ")]
    wrong = [line.removeprefix("E").strip() for line in lines if line.startswith("E  ")]
    places = [text.rpartition(", ")[2] for text in wrong if text.startswith('File "') and ", line " in text]
    name = ", ".join(files[-3:]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    where = f", {places[-1]}" if places else ""
    return f"{name or 'the files'} can't be collected: {(wrong or lines[-1:])[-1]}{where}"


def _complaint(lines: list[str]) -> str:
    """The line in which pytest says what it can't use."""
    said = [line for line in lines if ": error: " in line]
    said += [line for line in lines if line.startswith("ERROR: ") and not line.startswith("ERROR: usage:")]
    text = (said or lines[-1:] or ["pytest refused its options"])[0]
    return text.split(": error: ")[-1].removeprefix("ERROR: ").removeprefix("gpubench: ")


def _report(args: argparse.Namespace, folder: Path, run_file: Path) -> int:
    from . import report

    return report.main(
        argparse.Namespace(
            runs=[str(run_file)],
            output=str(folder),
            baseline=args.baseline,
            allow=[],
            charts=args.charts,
            formats=args.formats,
        )
    )
