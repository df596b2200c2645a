"""``gpubench run``: measure in child processes, show the progress, then report."""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import Unwritten, UsageError, clean
from ..runfile import options
from ..runfile.ledger import LEDGER, RUN_FILE, assemble, missing, reached
from ..runfile.quantities import counted, estimate_text, listed, shorten
from ..runfile.schema import ACCEPTABLE, OK, Run
from ..runfile.writer import Lock, keep, write
from ..supervise import process
from ..supervise.progress import LONGEST, Progress, whole_s
from ..supervise.project import described, project_options, read_project
from ..supervise.supervisor import Supervisor, Unable, planned, read_run
from .reading import add_charts, add_expression, chosen, print_ending, write_report

_MEASURED, _INCOMPLETE, _UNUSABLE = 0, 1, 2
FIRST_WORDS = "starting: importing and collecting the benchmarks takes a few seconds"
_LOG_HEAD = b"gpubench run: what the measuring processes print, with paths of this machine: not for publishing\n"
"""The first line of a run.log, by which gpubench recognizes its own."""
_OWN_OPTIONS = {"expression": "-k", "builtin": "--builtin", "processes": "--processes", "output": "--output",
                "list": "--list"}  # fmt: skip
"""Options that a resumed run doesn't take, beside the table's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    groups = {title: parser.add_argument_group(title) for title in options.GROUPS}
    what, care, output, advanced = groups.values()
    paths = "your own benchmark files (default: those of the project here; without any, the suite that comes with"
    what.add_argument("paths", nargs="*", metavar="PATH", help=f"{paths} gpubench)")
    add_expression(what)
    builtin = "the suite that comes with gpubench, although the project here has benchmarks"
    what.add_argument("--builtin", action="store_true", default=None, help=builtin)
    listed = "list the benchmarks and about how long all take; measure nothing"
    what.add_argument("--list", action="store_true", default=None, help=listed)
    how_many = "processes to time each benchmark in (default: 3; smoke and glance: 1)"
    care.add_argument("--processes", type=options.reader("processes"), metavar="K", help=how_many)
    output.add_argument("-o", "--output", metavar="DIR", help="folder for all results (default: out)")
    output.add_argument("--resume", metavar="DIR", help="resume the interrupted run in DIR")
    against = "what speedups are measured against, see gpubench report (default: the CPU)"
    output.add_argument("--baseline", metavar="NAME", help=against)
    add_charts(output)
    longest = "stop a benchmark that takes longer, in seconds (default: 120; with PATH, or --preset full, 600)"
    advanced.add_argument("--deadline", type=options.reader("deadline"), metavar="S", help=longest)
    options.declare(groups)
    parser.epilog = "What follows -- goes to pytest unchanged, for example: gpubench run -- --benchmark-min-rounds=20"


def main(args: argparse.Namespace) -> int:
    """Returns 0 when all benchmarks were measured or skipped for a reason, 1 when one failed, none was measured or the
    run was stopped, 2 when nothing can be collected. Raises UsageError or RunFileError when the input can't be used."""
    began, folder = time.monotonic(), args.resume or args.output or "out"
    progress, unable = Progress(resume=f"gpubench run --resume {folder}"), None
    if args.resume is None:
        first_words, run = _choose(args), _new(args, progress)
        if args.list:
            _say(first_words)
            return _list(args)
    else:
        first_words, run = FIRST_WORDS, _resumed(args, progress)
    supervisor: Supervisor | None = None
    try:
        with run as supervisor:
            _say(first_words)
            progress.expect(supervisor.processes, supervisor.events, supervisor.deadline_s)
            try:
                supervisor.measure()
            except Unable as error:
                unable = error
            except (Unwritten, OSError) as error:
                if supervisor.has_journal() or not _has(supervisor, "end"):
                    raise
                unable = Unable(0, str(error))
            finally:
                progress.stop()
        return _finish(args, supervisor, progress, unable, time.monotonic() - began)
    except Unwritten as error:
        if supervisor is None or not _has(supervisor, "end"):
            raise
        kept = f"; what was measured is kept: gpubench run --resume {supervisor.folder} continues"
        raise UsageError(f"{error}{kept * supervisor.has_journal()}") from None


def _list(args: argparse.Namespace) -> int:
    from ..report.render import listing, screen_width, terminal

    paths, passed, processes = _wanted(args)
    try:
        plan = planned(paths, passed)
    except Unable as error:
        return _explain(args, error, Progress(), "")
    cases, preset = plan["cases"], args.preset or "quick"
    names = [shorten(case["id"], LONGEST) + (f" ({case['library']})" if case["library"] else "") for case in cases]
    rows = [(name, case["device"], case["skip"] or "") for name, case in zip(names, cases, strict=True)]
    table = listing("", ("benchmark", "device", "skipped because"), rows)
    line = counted(len(cases), "benchmark") + (f" in {processes} processes" if processes > 1 else "")
    line += f", about {estimate_text(whole_s(plan['estimated_s'], processes))} on idle cores with preset {preset}"
    if skipped := sum(bool(case["skip"]) for case in cases):
        line += f"; {skipped} of them will be skipped"
    print("\n".join([*terminal(table, screen_width()), line]))
    return _MEASURED


def _choose(args: argparse.Namespace) -> str:
    """Choose the project's own benchmarks, or the suite, where the command line names no files, and fill in the
    project's options. Return the line that names the benchmarks."""
    project = read_project(Path.cwd(), upward=True)
    options.fill(args, project.options, project.file)
    if args.paths:
        if args.builtin:
            raise UsageError(f"--builtin measures the suite that comes with gpubench: leave out {args.paths[0]}")
        return FIRST_WORDS
    if args.builtin or not project.paths:
        yours = "" if args.builtin else " (gpubench run PATH measures yours)"
        return f"measuring the suite that comes with gpubench{yours}; {FIRST_WORDS}"
    args.paths = [*project.paths]
    yours = described(project.paths, project.source)
    return f"measuring {yours}; --builtin measures the suite that comes with gpubench; {FIRST_WORDS}"


def _finish(
    args: argparse.Namespace, supervisor: Supervisor, progress: Progress, unable: Unable | None, elapsed_s: float
) -> int:
    """Write the results file and the report, or print why there is nothing to write."""
    if unable and unable.code == process.USAGE:
        raise UsageError(unable.failure or str(unable))
    if not _has(supervisor, "session"):
        if supervisor.interrupted or (unable and unable.status != "crashed"):
            return _say("stopped before anything was measured" if supervisor.interrupted else str(unable), _INCOMPLETE)
        return _explain(args, unable or Unable(0, ""), progress, f": see {supervisor.log}")
    _write_run(supervisor)
    whole = not unable and not supervisor.interrupted
    if whole and not _has(supervisor, "complete"):
        supervisor.append({"event": "complete"})
    if supervisor.lock:
        supervisor.lock.release()
    if unable:
        _say(str(unable))
    if supervisor.interrupted:  # nothing is drawn, since whoever interrupts wants the prompt
        further = f"Resume with: gpubench run --resume {supervisor.folder}. Show what was measured: gpubench show"
        how_far = reached(supervisor.events, supervisor.processes)
        return _say(f"interrupted{how_far}. {further} {supervisor.folder}", _INCOMPLETE)
    if not whole:
        _say(f"stopped; reporting what was measured (resume with: gpubench run --resume {supervisor.folder})")
    failed = _say_unmeasured(supervisor, progress)
    measured = any(event["event"] == "end" and event["status"] == OK for event in supervisor.events)
    supervisor.events.clear()  # up to a gigabyte, and the report reads the file again
    folder, run_file = supervisor.folder, supervisor.folder / RUN_FILE
    report = write_report([run_file], folder, args.charts, baseline=args.baseline)
    print_ending(report, elapsed_s)
    for line in what_a_gpu_could_bring(report.study.runs[0], run_file):
        print(line)
    return _MEASURED if whole and not failed and measured else _INCOMPLETE


def _say_unmeasured(supervisor: Supervisor, progress: Progress) -> bool:
    """Print which benchmarks were skipped, and return whether one failed."""
    for line in progress.why_not("skipped", most=3):
        _say(line)
    ends = (event for event in supervisor.events if event["event"] == "end")
    latest = {(event["process"], event["fullname"]): event for event in ends}  # a rerun counts
    failed = {name: event for (_, name), event in latest.items() if event["status"] not in ACCEPTABLE}
    if failed:
        why = (f"{event['status']}: {' '.join(str(event.get('reason') or '').split())}" for event in failed.values())
        reasons = listed(dict.fromkeys(shorten(each, 100) for each in why), 2, "; ")
        _say(f"{counted(len(failed), 'benchmark')} failed ({reasons}): see {supervisor.log}")
    return bool(failed)


def _write_run(supervisor: Supervisor) -> None:
    """Write the results file. Raises UsageError with its place if a test has replaced the run's folder."""
    run = assemble(supervisor.events)
    try:
        write(supervisor.folder / RUN_FILE, run)
    except Unwritten as error:
        if supervisor.has_journal():  # it holds everything, and --resume goes on from it
            raise
        elsewhere = Path(tempfile.mkdtemp(prefix="gpubench-run-")) / RUN_FILE
        write(elsewhere, run)
        raise UsageError(f"{error}; what was measured is in {elsewhere}") from None


def _has(supervisor: Supervisor, name: str) -> bool:
    return any(event["event"] == name for event in supervisor.events)


def _say(text: str, code: int = _MEASURED) -> int:
    print(clean(f"gpubench run: {text}"), file=sys.stderr, flush=True)
    return code


@contextlib.contextmanager
def _new(args: argparse.Namespace, progress: Progress) -> Iterator[Supervisor]:
    """A new run. The earlier one in its folder is put back unless this one has begun to measure."""
    folder = Path("out" if args.output is None else args.output)
    paths, passed, processes = _wanted(args)
    if args.output == "":
        raise UsageError("-o needs the name of a folder")
    _require_writable(folder)
    lock, ledger = Lock(folder), folder / LEDGER
    moved = keep([path for path in (folder / RUN_FILE, ledger) if os.path.lexists(path)])
    supervisor = Supervisor(folder, paths, passed, processes, _deadline(args), progress.note, lock=lock)
    try:
        supervisor.log.write_bytes(_LOG_HEAD)
        supervisor.begin()
        yield supervisor
    finally:
        if not _has(supervisor, "session"):
            ledger.unlink(missing_ok=True)
            for path, kept in moved:
                kept.replace(path)
            lock.release()
        elif moved:
            _say(f"an earlier run was here: it is now {' and '.join(str(kept) for _, kept in moved)}")


@contextlib.contextmanager
def _resumed(args: argparse.Namespace, progress: Progress) -> Iterator[Supervisor]:
    """The run of a journal, with the options it was begun with."""
    given = [f"--{option.name}" for option in options.given(args)]
    given += [flag for name, flag in _OWN_OPTIONS.items() if getattr(args, name) is not None]
    if given := [*given, *args.paths, *args.pytest]:
        raise UsageError(f"--resume continues with the run's own options: leave out {given[0]}")
    if not args.resume:
        raise UsageError("--resume needs the folder of a run")
    target = Path(args.resume)
    if not target.is_dir() and target.name not in (RUN_FILE, LEDGER):
        raise UsageError(f"{target}: no run to resume: expected the folder of a run")
    folder = target if target.is_dir() else target.parent
    ledger = folder / LEDGER
    if not ledger.is_file():
        raise UsageError(f"{args.resume}: no run to resume: {ledger.name} is not there, or is no file")
    lock = Lock(folder)
    run, events = read_run(ledger)
    _require_writable(folder)
    for path in run["paths"]:
        if not os.path.exists(path.split("::")[0]):
            raise UsageError(f"{path}: no such file or folder, and the run needs it")
    deadline = _deadline(args) if args.deadline is not None else float(run.get("deadline_s") or _deadline(args))
    words = run["paths"], run["options"], run["processes"]
    supervisor = Supervisor(folder, *words, deadline, progress.note, events, lock=lock)
    if all(missing(supervisor.events, index) == [] for index in range(supervisor.processes)):
        _say("nothing is missing; failed benchmarks are not retried")
    yield supervisor


def _deadline(args: argparse.Namespace) -> float:
    return float(args.deadline or (600.0 if args.paths or args.preset == "full" else 120.0))


def _wanted(args: argparse.Namespace) -> tuple[list[str], list[str], int]:
    """Return benchmark files and folders, absolute; the options of pytest; the number of processes. Raises
    UsageError."""
    paths = [] if args.paths else [str(process.suite())]
    for text in args.paths:
        name, separator, test = text.partition("::")
        if not Path(name).exists():
            raise UsageError(f"{text}: no such file or folder")
        if not _has_tests(Path(name)):
            raise UsageError(f"{name} has no benchmarks: gpubench profile {name} shows what a GPU can speed up in it")
        paths.append(f"{Path(name).resolve()}{separator}{test}")
    given = [*options.passed_on(args), *chosen(args), *args.pytest]
    root = project_options(paths, Path.cwd(), given)
    return paths, [*root, *given], args.processes or (1 if args.preset in options.IN_ONE_PROCESS else 3)


def _has_tests(path: Path) -> bool:
    """Return whether a script could hold tests, by its code, which isn't executed: names that pytest looks for, or a
    fixture that measures. Folders, files that pytest collects by their names, and files with errors are pytest's."""
    if path.name.startswith("test_") or path.stem.endswith("_test") or path.suffix != ".py" or not path.is_file():
        return True
    try:
        nodes = [*ast.walk(ast.parse(path.read_bytes()))]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True
    named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.alias
    names = {node.name for node in nodes if isinstance(node, named)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)} & _FIXTURES
    return any(name in _FIXTURES or name.startswith(("test", "Test")) for name in names)


_FIXTURES = {"benchmark", "gpubench", "*"}  # a star imports tests from elsewhere


def _require_writable(folder: Path) -> None:
    """Raise UsageError before any measuring if the output can't be written, or the folder isn't gpubench's: an hour's
    run must not fail at its last step."""
    from ..report import output

    output.prepare_folder(folder)
    output.require_ours(folder)
    log = folder / "run.log"
    if not os.path.lexists(log):
        return
    if stat.S_ISREG(log.lstat().st_mode):  # a pipe would be waited for
        with log.open("rb") as file:
            if file.read(len(_LOG_HEAD)) == _LOG_HEAD:
                return
    raise UsageError(f"{log}: was not written by gpubench and would be replaced: move it, or choose another -o")


def _explain(args: argparse.Namespace, unable: Unable, progress: Progress, where: str) -> int:
    """Print in one line why nothing was measured, and ``where`` the output of pytest is."""
    if unable.code in (process.NO_TESTS, 0) and not progress.reasons:
        why = f"{' '.join(args.paths or ['the suite'])} has no test functions with the fixture gpubench or benchmark"
        why = "no benchmark matches" if chosen(args) else why
        why = f"no benchmark is measured with {' '.join(args.pytest)}" if args.pytest else why
        return _say(unable.failure or why, _UNUSABLE)
    if unable.code in (process.USAGE, process.INTERRUPTED):
        return _say(unable.failure + where * (unable.code == process.INTERRUPTED), _UNUSABLE)
    for line in progress.why_not():
        _say(line)
    if unable.failure and not progress.reasons:
        return _say(f"pytest can't run: {unable.failure}{where}", _UNUSABLE)
    return _say(f"nothing was measured (pytest {unable}){where}", _INCOMPLETE)


def what_a_gpu_could_bring(run: Run, run_file: Path) -> list[str]:
    """Return a line that names ``gpubench estimate``, where there was no GPU and the times mean something."""
    own = any(result.device and result.times for result in run.results)  # not of plain pytest-benchmark tests
    if run.preset == "smoke" or not own or any(device.accelerator for device in run.machine.devices):
        return []
    return [f"What could a GPU bring?  gpubench estimate {shlex.quote(str(run_file))}"]
