"""The outcome of each test, and the journal of a measuring process, from which the results file is assembled."""

from __future__ import annotations

import contextlib
import datetime
import gc
import hashlib
import json
import os
import platform
import re
import stat
import sys
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ..devices import in_use
from ..devices.cpu import learn
from ..errors import RankFailure, Unmeasurable, UsageError
from ..measure import environment
from ..measure.data import shortage
from ..measure.session import Session, Unmeasured
from ..runfile.ledger import Event, Ledger, recorded
from ..runfile.quantities import counted
from ..runfile.reader import LARGEST, beginning, convert, percentiles, result_of
from ..runfile.schema import (
    KEY,
    LONGEST_TEXT,
    MOST_CASES,
    MOST_NAMES,
    MOST_PARAMS,
    OK,
    SAMPLES_KEPT,
    SCHEMA_VERSION,
    Case,
    Ceilings,
)
from ..runfile.version import __version__
from ..runfile.writer import fit, text_of, without_paths
from ..supervise.child import loaded_modules
from ..supervise.process import MODULES
from .parametrize import shown_library

if TYPE_CHECKING:
    import pytest

    from ..measure.fixture import Gpubench
    from ..measure.state import State

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
MEASURING_ROOMS = ("cards", "devices", "measure", "plugin", "runfile", "statistics")
"""Folders of the package with code that decides the meaning of a number: a run is resumed only with the same code."""
LONGEST_REASON = 500
_NO_COMPILER = re.compile(
    "Failed to find C compiler|No working C\\+\\+ compiler found|Cannot find a working triton installation"
    "|too old to be supported by the triton GPU compiler"
)
"""The words of ``torch.compile`` on a machine where it can't work."""
_LACKING = re.compile(
    r"The operator 'aten::[^']+' is not currently implemented for the (?!CPU)\w+ device"
    r"|Could not run 'aten::[^']+' with arguments from the '(?!CPU)\w+' backend"
)
"""How torch begins to say that a device, other than the CPU, lacks an operator."""
_FAILED_BUILD = re.compile(r"CalledProcessError: Command '\[[^]]*\.c'")
"""How torch says that a C compiler has failed, because Triton leaves the compiler's words on the terminal."""
_HEADER = Path(sysconfig.get_path("include"), "Python.h")


@dataclass(slots=True)
class Attempt:
    """A test that is measured: its identity, pytest-benchmark's fixture, and ours or, for a plain benchmark, its
    record; ``state``: the process's settings before the test's body."""

    case: Case
    benchmark: Any = None
    fixture: Gpubench | None = None
    plain: Any = None
    state: State | None = None


def planned(item: pytest.Item, case: Case, skip: str | None) -> dict[str, Any]:
    """Describe a benchmark for a list; ``skip`` is the reason if it wouldn't be measured."""
    return case.as_dict() | {"fullname": item.nodeid, "library": shown_library(item), "skip": skip}


def note_phase(session: Session, attempt: Attempt, item: pytest.Item, report: Any, call: pytest.CallInfo[None]) -> None:
    """Record the outcome of one phase of a test, and after its call the rounds of a plain benchmark."""
    status, reason = _outcome(report, call)
    reason = without_paths(reason)
    if status == OK and report.when == "call":
        try:
            if attempt.fixture is not None and not attempt.fixture.called:
                status, reason = "skipped", "the test did not call gpubench(...)"
            elif attempt.plain:
                attempt.case = attempt.plain.record(attempt.case)
        except Exception as error:
            status, reason = _spoilt(error)
    if status != OK:
        keep_reason(session, attempt, item, status, reason)


def _spoilt(error: Exception) -> tuple[str, str]:
    return "error", f"the result can't be kept: {type(error).__name__}: {text_of(error)}"


def keep_reason(session: Session, attempt: Attempt, item: Any, status: str, reason: str) -> None:
    """Record why a test has no result; of several reasons the first one counts."""
    case = attempt.fixture.case if attempt.fixture else attempt.case
    session.unmeasured.setdefault(item.nodeid, Unmeasured(case, status, reason))


def end_test(session: Session, attempt: Attempt, item: Any, recorder: Any) -> list[str]:
    """Restore the settings that a test left changed, flag and record its result; return the names of settings that
    can't be restored."""
    flag, stuck = attempt.state.restore() if attempt.state else (None, [])
    if flag is not None:
        session.raised.append((attempt.case, flag))
        for process in attempt.benchmark.extra_info.get(KEY, {}).get("processes", ())[:1] if attempt.benchmark else ():
            process["flags"] = [*process["flags"], msgspec.to_builtins(flag)]
        if row := session.unmeasured.get(item.nodeid):
            session.unmeasured[item.nodeid] = row._replace(reason=f"{row.reason} ({flag.seen})")
    if attempt.fixture:
        attempt.fixture.library.close()
    if recorder:
        recorder.end(item, attempt)
    return stuck


def ruined() -> str | None:
    """Return which device has become unusable after a case without a result, and why; every later case would fail."""
    for device in in_use():
        if why := device.ruined():
            return f"{device} is unusable ({without_paths(why)[:LONGEST_REASON]})"
    return None


def free_memory() -> None:
    """Free the memory that a failed case holds through its traceback, which the next case may need."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):  # pytest's, for a debugger
        vars(sys).pop(name, None)
    gc.collect()
    for kind in {type(device) for device in in_use()}:
        kind.release_memory()


def summary_lines(session: Session) -> list[str]:
    """Return lines on the tests without a time and on the flags."""
    lines, raised = [], Counter(flag.name for _, flag in session.raised)
    if session.unmeasured:
        counts = Counter(row.status for row in session.unmeasured.values())
        lines.append(f"{', '.join(f'{count} {status}' for status, count in counts.items())} (reasons: pytest -rs)")
    for flag in session.process_flags() if raised or session.begun else ():
        lines.append(f"{flag.name}, all of it: {flag.seen}")
    for name, count in raised.most_common():
        case, first = next((case, flag) for case, flag in session.raised if flag.name == name)
        where = f" on {case.device}" if case.device else ""
        lines.append(f"{name}: {counted(count, 'benchmark')}, first {case.id}{where}: {first.seen}")
    return [*lines, *(f"measured without {name}: {why}" for name, why in session.absent.items())]


def _outcome(report: Any, call: pytest.CallInfo[None]) -> tuple[str, str]:
    if report.passed:
        return OK, ""
    if call.excinfo is None:  # a strict xfail that passed
        return "error", " ".join(str(report.longrepr).split())[:LONGEST_REASON]
    if hasattr(report, "wasxfail"):
        return "skipped", f"expected to fail: {report.wasxfail or 'no reason given'}"
    if report.skipped:
        return "skipped", skip_reason(report)
    return outcome_of(call.excinfo.value)


def skip_reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return why pytest has skipped a file or a test."""
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")


def outcome_of(error: BaseException) -> tuple[str, str]:
    """Return the status and the reason of a benchmark that raised this error."""
    if isinstance(error, Unmeasurable):
        return "skipped", str(error)
    if isinstance(error, RankFailure):
        return error.status, str(error)[:LONGEST_REASON]
    kind = type(error).__name__
    text = " ".join(text_of(error).split()) or kind
    if short := shortage(error):
        return "oom", short[:LONGEST_REASON]
    if isinstance(error, NotImplementedError) and (lacking := _LACKING.match(text)):
        return "skipped", lacking[0]
    if no_compiler := _NO_COMPILER.search(text):
        return "skipped", f"torch.compile: {no_compiler[0]}"
    if "Python.h: No such file" in text or (_FAILED_BUILD.search(text) and not _HEADER.exists()):
        return "skipped", "torch.compile needs Python.h: install python3-dev (Debian) or python3-devel (Fedora)"
    notes = getattr(error, "__notes__", ())  # a user's error may have anything there
    texts = [" ".join(text_of(note).split()) for note in notes] if isinstance(notes, list) else []
    place = "".join(f" ({text})" for text in texts)[:100]
    return "error", f"{kind}: {text}"[: LONGEST_REASON - len(place)] + place


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """A context that turns a :class:`UsageError` into pytest's, which ends the session with one line."""
    try:
        yield
    except UsageError as error:
        import pytest

        raise pytest.UsageError(f"gpubench: {error}") from None


def code_hash(sources: Collection[Path], package: Path = PACKAGE_FOLDER) -> str:
    """Return a hash of the benchmark files, the modules beside them, and the package's measuring code."""
    beside = {path for folder in {path.parent for path in sources} for path in folder.glob("*.py") if path.is_file()}
    shared = {path for path in beside if not path.name.startswith("test_") and not path.stem.endswith("_test")}
    files = [path for room in MEASURING_ROOMS for path in (package / room).rglob("*.py")]
    names = sorted((path.relative_to(package).as_posix(), path) for path in files)
    code = hashlib.sha256()
    for name, path in [*names, *sorted((path.name, path) for path in shared.union(sources))]:
        code.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return code.hexdigest()[:16]


def require_room(cases: Mapping[str, Case], processes: int) -> None:
    """Raise UsageError if the results file of these cases, by full name, would be too large to read, or if their
    parameters would not fit in a table."""
    most = min(MOST_CASES, LARGEST // (processes * (SAMPLES_KEPT + 50) * 30))  # bytes of a number
    if len(cases) > most:
        refusal = f"at most {most} fit in a run with --processes {processes}: choose some with -k"
        raise UsageError(f"{counted(len(cases), 'benchmark')}, {refusal}")
    for fullname, case in cases.items():
        if len(case.params) > MOST_PARAMS:
            raise UsageError(f"{fullname}: {len(case.params)} parameters: a benchmark may have {MOST_PARAMS}")
    if len(names := {name for case in cases.values() for name in case.params}) > MOST_NAMES:
        refusal = f"a table holds {MOST_NAMES}: choose some benchmarks with -k"
        raise UsageError(f"{len(names)} different names of parameters: {refusal}")


def thin(samples: list[float]) -> list[float]:
    """Return at most ``SAMPLES_KEPT`` samples, evenly spread in time, with the first and the last."""
    count = len(samples)
    if count <= SAMPLES_KEPT:
        return samples
    return [samples[round(i * (count - 1) / (SAMPLES_KEPT - 1))] for i in range(SAMPLES_KEPT)]


class Recorder:
    """Writes one measuring process's events. Each event is on disk before anything else happens. Without ``config``
    there is no pytest, and no conftest.py has a say."""

    def __init__(self, config: pytest.Config | None, session: Session, path: Path) -> None:
        self.config, self.session, self.ledger = config, session, Ledger(path)
        self._whole = False  # whether the samples of a benchmark are all kept

    def begin(
        self, cases: Mapping[str, Case], timed: list[tuple[Case, bool]], sources: Collection[Path],
        ranks: Event | None = None,
    ) -> None:  # fmt: skip
        """Record the tests by full name, the machine, and the code. ``timed``: the cases that aren't known to be
        skipped, each with whether it needs several processes; ``sources``: their files; ``ranks`` names the cases that
        another launch measures. Raises UsageError if an earlier session of this journal differs."""
        session, settings = self.session, self.session.settings
        earlier = next((event for event in recorded(self.ledger.path) if event["event"] == "session"), None)
        if earlier:
            session.agreed_threads = earlier["fingerprint"].get("threads")
        about = self._about_pytest_benchmark()
        machine = about["machine_info"].setdefault(KEY, session.describe_machine())  # a conftest may have emptied it
        fingerprint = {
            "machine": machine["label"], "devices": [device["label"] for device in machine["devices"]],
            "torch": (machine["torch"] or {}).get("version"), "python": machine["python"],
            "threads": session.use_threads(), "gpubench": __version__, "code": code_hash(sources),
        }  # fmt: skip
        if earlier:
            pairs = {key: (before, fingerprint.get(key)) for key, before in earlier["fingerprint"].items()}
            if changes := [f"{key} was {before}, is {now}" for key, (before, now) in pairs.items() if before != now]:
                refusal = "this run can't be resumed, its numbers wouldn't belong together"
                raise UsageError(f"{refusal}: {'; '.join(changes)}")
            peaks = earlier["gpubench"].get("ceilings") or {}  # the ones of the results file
            session.peaks = convert(peaks, dict[str, Ceilings], f"{self.ledger.path}: session") or None
            self._whole = bool(earlier.get("whole"))
        estimated_s = session.estimated_s(timed)
        if not settings.brief:  # whose peaks are measured after a first call
            session.measure_ceilings()
        session.begin()
        unknown = {"dtype": ""} if settings.brief and not settings.dtypes else {}  # as its data isn't there yet
        identities = {name: structs.replace(case, **unknown).as_dict() for name, case in cases.items()}
        ours = {
            "schema_version": SCHEMA_VERSION, "version": __version__, "preset": settings.preset, "seed": settings.seed,
            "started": session.started, "ceilings": session.ceilings,
        }  # fmt: skip
        state = {"gpubench": ours, "canary": session.check_machine().canary, "flags": session.process_flags()}
        about |= msgspec.to_builtins(state) | ({"ranks": ranks} if ranks else {}) | _modules()
        about |= {"notices": session.notices, "estimated_s": estimated_s, "before": session.before}
        self._append("session", cases=list(cases), identities=identities, fingerprint=fingerprint, **about)

    def _about_pytest_benchmark(self) -> dict[str, Any]:
        """Return machine and commit as pytest-benchmark describes them, which needs pytest."""
        from pytest_benchmark import __version__, utils

        if self.config is None:
            import cpuinfo

            machine = {name: getattr(platform, name)() for name in _PLATFORM}
            machine |= {"node": "", "python_implementation_version": platform.python_version()}
            learn(machine.setdefault("cpu", cpuinfo.get_cpu_info()))
            commit = utils.get_commit_info() | {"project": "", "branch": ""}  # type: ignore[no-untyped-call]
        else:
            hook = self.config.hook
            machine = hook.pytest_benchmark_generate_machine_info(config=self.config)
            learn(machine.get("cpu"))
            hook.pytest_benchmark_update_machine_info(config=self.config, machine_info=machine)
            commit = hook.pytest_benchmark_generate_commit_info(config=self.config)
            hook.pytest_benchmark_update_commit_info(config=self.config, commit_info=commit)
        return {"machine_info": machine, "commit_info": commit, "datetime": _now(), "version": __version__}

    def _append(self, event: str, **facts: Any) -> None:
        """Append an event. If the disk is full, stop the whole session, since later results couldn't be kept either."""
        with usage_errors() if self.config else contextlib.nullcontext():
            self.ledger.add_event(event, process=self.session.settings.process, **facts)

    def start(self, item: Any, case: Case) -> None:
        """Record that a test begins, and the bytes of this process's log, after which messages of its end come."""
        said = None
        with contextlib.suppress(OSError):
            state = os.fstat(2)
            said = state.st_size if stat.S_ISREG(state.st_mode) else None
        self._append("start", fullname=item.nodeid, name=item.name, case=case.as_dict(), said=said)

    def end(self, item: Any, attempt: Attempt) -> None:
        """Record the result of a test that has ended, or why it has none."""
        stats, result = getattr(attempt.benchmark, "stats", None), dict[str, Any]()
        if item.nodeid not in self.session.unmeasured:
            try:
                result = {} if stats is None else self._sound(stats)
                why = "skipped", "the test measured nothing"
            except Exception as error:
                why = _spoilt(error)
            if not result:
                keep_reason(self.session, attempt, item, *why)
        row = self.session.unmeasured.get(item.nodeid)
        facts = {"reason": row.reason, "case": row.case.as_dict()} if row else {"benchmark": result}
        status = row.status if row else OK
        self._append("end", fullname=item.nodeid, status=status, library=shown_library(item), **facts)

    def _sound(self, stats: Any) -> dict[str, Any]:
        """Return a benchmark's result without long samples and parameters. Raises RunFileError if no reader would
        accept it, which would make the other results unreadable."""
        benchmark: dict[str, Any] = fit(stats.as_dict(include_data=True))
        if not self._whole:  # else the session that takes it over does so
            given = benchmark.get("params") or {}
            benchmark["params"] = {name: _brief(value) for name, value in given.items()} or None
            benchmark["param"] = _brief(benchmark.get("param"))
            ours = benchmark.get("extra_info", {}).get(KEY)
            if ours and "data" in benchmark["stats"]:
                ours |= percentiles(benchmark["stats"]["data"], ours["processes"])
                benchmark["stats"]["data"] = thin(benchmark["stats"]["data"])
            with beginning("its result"):
                result_of("", json.loads(json.dumps(benchmark)), {})
        return benchmark

    def finish(self, code: int) -> None:
        """Record that the process ends by itself, with pytest's exit code."""
        ceilings = msgspec.to_builtins(self.session.ceilings)  # again where a result exceeded the first ones
        with contextlib.suppress(UsageError):  # the supervisor notices that this event is missing
            facts = {"ceilings": ceilings, "after": environment.moment()}
            with contextlib.suppress(Exception):  # a test may have left torch unusable
                facts |= {"machine": self.session.late_machine()}
            facts |= {"process": self.session.settings.process, "code": code}
            self.ledger.add_event("finish", **_modules(), **facts)
        self.ledger.close()


_PLATFORM = ("processor", "machine", "python_compiler", "python_implementation", "python_version", "python_build",
             "release", "system")  # fmt: skip
"""Facts of the machine in pytest-benchmark's file, each a function of :mod:`platform`."""


def _modules() -> dict[str, Any]:
    """Return the files of this process's modules if two sides are compared: their paths belong into no other run."""
    return {"modules": loaded_modules()} if os.environ.get(MODULES) else {}


def _brief(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:LONGEST_TEXT] if len(text) > LONGEST_TEXT else value


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()
