"""The outcome of each test: its status, the reason in one line, and the lines at the end of a session."""

from __future__ import annotations

import gc
import re
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ..devices import in_use
from ..errors import RankFailure, Unmeasurable
from ..measure.data import shortage
from ..measure.run_settings import Mode
from ..measure.session import Session, Unmeasured
from ..runfile.quantities import counted
from ..runfile.schema import KEY, OK
from ..runfile.writer import text_of, without_paths
from .fixtures import Attempt
from .parametrize import fixture_names, shown_library

LONGEST_REASON = 500
_LISTED = "listed"
"""Reason with which a benchmark that a run would measure is skipped by ``--list``."""
_LACKING = re.compile(
    r"The operator 'aten::[^']+' is not currently implemented for the (?!CPU)\w+ device"
    r"|Could not run 'aten::[^']+' with arguments from the '(?!CPU)\w+' backend"
)
"""How torch begins to say that a device, other than the CPU, lacks an operator."""
_NO_COMPILER = re.compile(
    "Failed to find C compiler|No working C\\+\\+ compiler found|Cannot find a working triton installation"
    "|too old to be supported by the triton GPU compiler"
)
"""How ``torch.compile`` says that it can't work on this machine."""
_FAILED_BUILD = re.compile(r"CalledProcessError: Command '\[[^]]*\.c'")
"""How it says that a C compiler has failed, whose own words Triton leaves on the terminal."""
_HEADER = Path(sysconfig.get_path("include"), "Python.h")


class Listed:
    """Skips every benchmark for ``--list``. It is no wrapper, so all plugins have set up what they tear down; and it
    acts after pytest's own marks, so a test that those skip keeps their reason."""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a benchmark that isn't skipped for another reason."""
        if {"gpubench", "benchmark"}.intersection(fixture_names(item)):
            pytest.skip(_LISTED)


def note(session: Session, attempt: Attempt, item: pytest.Item, report: Any, call: pytest.CallInfo[None]) -> None:
    """Record the outcome of one phase of a test; of its call also what was timed, if that is a plain benchmark."""
    status, reason = _outcome(report, call)
    reason = without_paths(reason)
    if session.mode is Mode.PLAN:
        if report.when == "setup":
            skip = None if reason == _LISTED else reason
            shown = {"fullname": item.nodeid, "library": shown_library(item), "skip": skip}
            session.planned.append(attempt.case.as_dict() | shown)
        return
    if status == OK and report.when == "call":
        try:
            if attempt.fixture is not None and not attempt.fixture.called:
                status, reason = "skipped", "the test did not call gpubench(...)"
            elif attempt.plain:
                attempt.case = attempt.plain.record(attempt.case)
        except Exception as error:
            status, reason = spoilt(error)
    if status != OK:
        keep_reason(session, attempt, item, status, reason)


def spoilt(error: Exception) -> tuple[str, str]:
    """Return the status and the reason of a test that did something to its own result, which alone is lost."""
    return "error", f"the result can't be kept: {type(error).__name__}: {text_of(error)}"


def keep_reason(session: Session, attempt: Attempt, item: Any, status: str, reason: str) -> None:
    """Record why a test has no result; of several reasons the first one counts."""
    case = attempt.fixture.case if attempt.fixture else attempt.case
    session.unmeasured.setdefault(item.nodeid, Unmeasured(case, status, reason))


def restore(session: Session, attempt: Attempt, item: Any) -> list[str]:
    """Restore the settings that a finished test left changed, and flag its result; return the names of those that can't
    be restored."""
    flag, stuck = attempt.state.restore() if attempt.state else (None, [])
    if flag is not None:
        session.raised.append((attempt.case, flag))
        for process in attempt.benchmark.extra_info.get(KEY, {}).get("processes", ())[:1] if attempt.benchmark else ():
            process["flags"] = [*process["flags"], msgspec.to_builtins(flag)]
        if row := session.unmeasured.get(item.nodeid):
            session.unmeasured[item.nodeid] = row._replace(reason=f"{row.reason} ({flag.seen})")
    return stuck


def ruined() -> str | None:
    """Return which device has become unusable after a case without a result, and why; every later case would fail."""
    for device in in_use() if "torch" in sys.modules else ():
        if why := device.ruined():
            return f"{device} is unusable ({without_paths(why)[:LONGEST_REASON]})"
    return None


def free_memory() -> None:
    """Free the memory that a failed case holds through its traceback, which the next case may need."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):  # pytest's, for a debugger
        vars(sys).pop(name, None)
    gc.collect()
    for kind in {type(device) for device in (in_use() if "torch" in sys.modules else ())}:
        kind.release_memory()


def summary_lines(session: Session) -> list[str]:
    """Return the lines on what has no time and what was flagged."""
    lines = []
    if session.unmeasured:
        counts = Counter(row.status for row in session.unmeasured.values())
        lines.append(f"{', '.join(f'{count} {status}' for status, count in counts.items())} (reasons: pytest -rs)")
    raised = Counter(flag.name for _, flag in session.raised)
    whole = session.process_flags() if raised or session.begun else ()
    lines += [f"{flag.name}, all of it: {flag.seen}" for flag in whole]
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
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return "skipped", text.removeprefix("Skipped: ")
    return outcome_of(call.excinfo.value)


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
    place = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return "error", f"{kind}: {text}"[: LONGEST_REASON - len(place)] + place
