"""The plugin's other half: what came of each test, and what is added to the file that pytest-benchmark writes."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ..errors import RankFailure
from ..measure.session import Session, Unmeasured
from ..runfile.redact import without_paths
from ..runfile.schema import KEY, OK, Case
from ..version import __version__

SESSION = pytest.StashKey[Session]()
CASE = pytest.StashKey[Case]()
GPUBENCH = pytest.StashKey[Any]()
RECORDER = pytest.StashKey[Any]()
MEASURING = pytest.StashKey[bool]()


def pytest_runtest_logfinish(nodeid: str, location: Any) -> None:
    """Between two tests: nothing holds the traceback of the last one any more."""
    if nodeid in _FAILED:
        _FAILED.discard(nodeid)
        _forget()


_FAILED: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Keep a row for each case that gave no number."""
    report: Any = yield
    if CASE not in item.stash:
        return report
    session = item.config.stash[SESSION]
    status, reason = _outcome(report, call)
    if not session.settings.identify:
        reason = without_paths(reason)
    if session.settings.plan:
        if report.when == "call" or (report.when == "setup" and status != OK):
            known = getattr(item.stash.get(GPUBENCH, None), "estimate", None)
            estimate = known.as_dict() if known else {"call_s": None, "case_s": 0.0, "skip": reason or "not planned"}
            session.estimates.append(item.stash[CASE].as_dict() | {"fullname": item.nodeid} | estimate)
        return report
    if status == OK and report.when == "call":
        session.unmeasured[:] = [row for row in session.unmeasured if row.fullname != item.nodeid]  # a rerun
        gpubench = item.stash.get(GPUBENCH, None)
        if gpubench is not None and not gpubench.called:
            status, reason = "skipped", "the test did not call gpubench(...)"
    if status != OK:
        _FAILED.add(item.nodeid)
    if status != OK and not any(row.fullname == item.nodeid for row in session.unmeasured):
        gpubench = item.stash.get(GPUBENCH, None)
        case = gpubench.case if gpubench else item.stash[CASE]
        session.unmeasured.append(Unmeasured(case, item.name, item.nodeid, status, reason))
    if recorder := item.config.stash.get(RECORDER, None):
        recorder.report(item, report.when, status, reason, getattr(call.excinfo, "value", None))
    return report


def _forget() -> None:
    """Free what a case that failed holds through its traceback, lest the next one finds no memory."""
    import gc

    from ..devices import in_use

    for name in ("last_type", "last_value", "last_traceback", "last_exc"):  # pytest's, for a debugger
        vars(sys).pop(name, None)
    gc.collect()
    for kind in {type(device) for device in in_use()}:
        kind.release_memory()


def _outcome(report: Any, call: pytest.CallInfo[None]) -> tuple[str, str]:
    """Status of one phase of a test, and the reason in one line."""
    if report.passed or call.excinfo is None:
        return OK, ""
    if hasattr(report, "wasxfail"):
        return "skipped", f"expected to fail: {report.wasxfail or 'no reason given'}"
    if report.skipped:
        where = report.longrepr
        text = where[2] if isinstance(where, tuple) else str(where)
        return "skipped", text.removeprefix("Skipped: ")
    error = call.excinfo.value
    if isinstance(error, RankFailure):
        return error.status, str(error)[:500]
    text = " ".join(str(error).split()) or type(error).__name__
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if memory or re.search("can't allocate memory|out of memory|ALLOC_FAILED", text, re.IGNORECASE):
        return "oom", text[:500]
    return "error", f"{type(error).__name__}: {text}"[:500]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """After pytest-benchmark has written its file: see that it is whole, or write one where it wrote none."""
    try:
        return (yield)
    finally:
        if recorder := session.config.stash.get(RECORDER, None):
            recorder.finish()
            if not session.config.getoption("--gpubench-ledger"):
                recorder.write_run_file(Path(session.config.getoption("benchmark_json")))
        if plan := session.config.getoption("--gpubench-plan"):
            text = json.dumps(session.config.stash[SESSION].plan, indent=1, allow_nan=False)
            Path(plan).write_text(text, encoding="utf-8")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what gave no number, and what to do with the file."""
    unmeasured = config.stash[SESSION].unmeasured
    path = config.getoption("benchmark_json", None)
    if MEASURING not in config.stash or config.getoption("--gpubench-plan"):
        return
    if unmeasured:
        counts: dict[str, int] = {}
        for row in unmeasured:
            counts[row.status] = counts.get(row.status, 0) + 1
        told = ", ".join(f"{count} {status}" for status, count in counts.items())
        terminalreporter.write_line(f"gpubench: no number for {told} (pytest -rs tells why)")
    for line in _doubts(config.stash[SESSION]):
        terminalreporter.write_line(f"gpubench: {line}")
    if path and Path(path).exists():
        terminalreporter.write_line(f"gpubench: for tables and charts: gpubench report {path} -o DIR")


def _doubts(session: Session) -> list[str]:
    """What the flags say, in a line each."""
    raised = Counter(flag.name for _, flag in session.raised)
    lines = [f"{flag.name}, all of it: {flag.seen}" for flag in (session.flags if raised or session.begun else ())]
    for name, count in raised.most_common():
        case, first = next((case, flag) for case, flag in session.raised if flag.name == name)
        lines.append(f"{name}: {count} case{'s' * (count > 1)}, first {case.id} on {case.device}: {first.seen}")
    return lines


# What pytest-benchmark writes ------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Add this machine's facts, once a gpubench test was collected: before that, no torch.

    The host's name says nothing about speed and something about its owner: it is left out unless asked for.
    """
    if MEASURING in config.stash:
        machine_info[KEY] = config.stash[SESSION].machine
        if not config.stash[SESSION].settings.identify:
            machine_info["node"] = ""


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
) -> Generator[None, Any, Any]:
    """pytest-benchmark compares machines while it is configured, when ours isn't known yet: leave our facts out."""
    saved = compared_benchmark["machine_info"]
    ours = None if KEY in machine_info else saved.pop(KEY, None)
    node = saved.get("node")
    if ours is not None and not node:
        saved["node"] = machine_info.get("node")
    try:
        return (yield)
    finally:
        if ours is not None:
            saved[KEY], saved["node"] = ours, node


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add our keys to every file pytest-benchmark writes of a session with gpubench tests."""
    if MEASURING in config.stash:
        from .recorder import complete

        session = config.stash[SESSION]
        complete(output_json, session, __version__, {row.fullname for row in session.unmeasured})
