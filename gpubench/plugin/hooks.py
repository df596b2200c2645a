"""The plugin's state and its hooks. torch is imported only for a test that needs it; configuring touches no device."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ..errors import Unmeasurable, UsageError
from ..measure.session import Mode, Session
from ..runfile.folder import keep
from ..runfile.kinds import names_of
from ..runfile.ledger import SKIPPED_FILES, assemble, missing, recorded
from ..runfile.matching import matcher, nothing_matches
from ..runfile.naming import numbered, told_apart, told_stems
from ..runfile.quantities import listed
from ..runfile.reader import read_ledger
from ..runfile.schema import KEY, OK, Case
from ..runfile.writer import fit, text_of, write
from . import outcomes, settings
from .fixtures import RANKS, Attempt, Plain, lengthen_rounds
from .parametrize import GLANCE, Markers, case_of, fixture_names, glances, parametrize, possible, tell_apart
from .recorder import Recorder, complete_run, require_room

if TYPE_CHECKING:
    from ..parallel.ranks import Ranks

_PARAMETRIZED = {"gpubench", "gpubench_device", "gpubench_variant"}


def _point(case: Case) -> str:
    """Return the size, device, dtype and variant that expressions which are compared with each other share."""
    return f"{case.params} {case.device} {case.dtype} {case.variant}"


class Plugin:
    """The state of one pytest session: ``config.pluginmanager.getplugin("gpubench")``."""

    def __init__(self, config: pytest.Config) -> None:
        """Raises pytest.UsageError for an unknown value of an option."""
        self.config = config
        if settings.launched() and os.environ.get("RANK", "0") != "0":
            config.option.benchmark_json = None  # torchrun's rank 0 writes for all
        with settings.usage_errors():
            self.session = Session(settings.read_settings(config), settings.mode_of(config))
        self.mode = self.session.mode
        self.measures = False  # whether a test that is measured was collected
        self._listed: list[tuple[Case, bool]] = []
        self.recorder: Recorder | None = None
        self.alone = False  # whether a session without a supervisor measures
        self.unwritten = False  # whether a results file is asked for that pytest-benchmark hasn't written yet
        self.attempts: dict[str, Attempt] = {}
        self.collected: list[pytest.Item] | None = None
        self.order: dict[str, int] = {}  # the place of each test before they were shuffled: that of the results file
        self.sources: set[Path] = set()  # files of all measured tests: the same for each process of a run
        self._failed: set[str] = set()
        self._skipped: list[str] = []  # files, each with its reason
        self.ranks: Ranks | None = None

    def pytest_sessionstart(self) -> None:
        """Reject unknown and missing devices before anything is collected; torch is imported only if a device is
        named."""
        with settings.usage_errors():
            if self.session.settings.required:
                self.session.require_devices()
            if set(self.session.settings.devices) - {"auto", "all", "cpu"}:
                _ = self.session.choices
            _ = self.session.implementations

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if set(metafunc.fixturenames) >= _PARAMETRIZED:
            with settings.usage_errors():
                parametrize(metafunc, self.session)
        elif "benchmark" in metafunc.fixturenames:
            with settings.usage_errors():  # a plain benchmark may have a limit
                Markers.of(metafunc.definition)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Distinguish files of the same name. For the supervisor, keep only tests without a result, in this process's
        order."""
        items[:] = [item for item in items if possible(item, self.session)]
        if self.mode is not Mode.OFF:
            tell_apart([item for item in items if "benchmark" in fixture_names(item)])
        self.collected = list(items)
        if settings.launched():  # by torchrun: all processes would measure other tests at the same time
            self._keep(items, [item for item in items if RANKS in fixture_names(item)])
        self.sources = {item.path for item in items if "benchmark" in fixture_names(item)}
        if expression := config.getoption("--gpubench-match"):
            with settings.usage_errors():
                matches = matcher(expression)
                every = list(items)
                self._keep(items, [item for item in items if matches(self._names(item))])
                if every and not items:
                    raise nothing_matches(expression, map(self._workload, every))
        if self.session.settings.preset == GLANCE and any(map(glances, items)):  # else no test declares it
            self._keep(items, [item for item in items if glances(item) or "benchmark" not in fixture_names(item)])
        # By all, so alike in each process.
        self.session.plain = not any("gpubench" in fixture_names(item) for item in items)
        if ledger := config.getoption("--gpubench-ledger"):
            names = missing(recorded(ledger), self.session.settings.process)
            wanted = {item.nodeid for item in items} if names is None else set(names)
            self._keep(items, [item for item in items if item.nodeid in wanted])
        self.order = {item.nodeid: place for place, item in enumerate(items)}
        if config.getoption("--gpubench-process"):
            random.Random(f"{self.session.settings.seed}/{self.session.settings.process}").shuffle(items)
            if self.session.settings.brief:  # randomised blocks: expressions of one size directly after each other
                blocks: dict[str, int] = {}
                items.sort(key=lambda item: blocks.setdefault(_point(self.case_of(item)), len(blocks)))
            if any(RANKS in fixture_names(item) for item in items) and self.session.accelerated:
                # Workers keep contexts on devices, until a case of one process needs these.
                items.sort(key=lambda item: RANKS in fixture_names(item))

    def _names(self, item: pytest.Item) -> list[str]:
        """Return all names by which a test can be selected: those that pytest knows, and those that tables show."""
        names = [item.nodeid, *item.listextrakeywords(), *(marker.name for marker in item.iter_markers())]
        if "benchmark" in fixture_names(item):
            case = self.case_of(item)
            names += [case.id, case.device, *names_of(case)]
        return names

    def _workload(self, item: pytest.Item) -> str:
        return self.case_of(item).workload if "benchmark" in fixture_names(item) else item.name

    def _keep(self, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
        kept_ids = {item.nodeid for item in kept}
        self.config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept_ids])
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why a file is skipped as a whole: its tests are in no table."""
        if report.skipped and self.mode is Mode.RUN:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._skipped.append(f"{report.nodeid} ({reason.removeprefix('Skipped: ')})")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin the journal, or measure the peaks, unless nothing will be measured."""
        if self._skipped:
            self.session.notices.append(f"{SKIPPED_FILES}{listed(self._skipped, 3)}")
            print(f"\n{self.session.notices[-1]}")  # in the log, from which the supervisor takes why there is nothing
        if session.testsfailed or self.collected is None:
            return  # a file that can't be imported, or a -k that pytest refused
        wanted = "gpubench" if self.mode is Mode.ALONE else "benchmark"
        measured = [item for item in session.items if wanted in fixture_names(item)]
        self.measures = bool(measured)
        if not measured or self.config.option.collectonly:
            return
        ours = [item for item in measured if "gpubench" in fixture_names(item)]
        self.session.collected = [self.case_of(item) for item in ours if item.get_closest_marker("skip") is None]
        marked = [item.name for item in self.collected if item.get_closest_marker("benchmark")]
        timed_names = {item.name for item in self.collected if "benchmark" in fixture_names(item)}
        if untimed := [name for name in marked if name not in timed_names]:
            names = listed(untimed, 3)
            self.session.notices.append(f"not measured, as they have the marker but no fixture that times: {names}")
        tests = [item for item in session.items if "benchmark" in fixture_names(item)]
        tests.sort(key=lambda item: self.order.get(item.nodeid, 0))
        cases = {item.nodeid: self.case_of(item) for item in tests}
        timed = [item for item in tests if item.get_closest_marker("skip") is None]
        self._listed = [(cases[item.nodeid], RANKS in fixture_names(item)) for item in timed]
        option = self.config.getoption
        workers = option("dist", "no") != "no" or hasattr(self.config, "workerinput")
        off = option("benchmark_disable", False) and not option("benchmark_enable", False)
        if workers or off or option("benchmark_skip", False):
            return  # pytest-benchmark times nothing
        with settings.usage_errors():
            if self.mode is Mode.RUN:
                require_room(cases, self.session.settings.processes)
                self._record(Path(option("--gpubench-ledger")), cases)
            elif self.mode is Mode.ALONE:
                self.alone, path = True, Path(option("benchmark_json", None) or "none.json")
                if path.is_dir() or not path.parent.is_dir():  # pytest-benchmark would notice when all is measured
                    raise UsageError(f"{path}: no results file can be written there")
                self.unwritten = bool(option("benchmark_json", None))
                if self.unwritten and (path.is_file() or not path.exists()):  # not beside /dev/stdout
                    journal = path.with_suffix(".ledger.jsonl")
                    for earlier, name in keep([journal]) if os.path.lexists(journal) else ():
                        print(f"\ngpubench: {earlier.name}, of a session that was killed, is now {name.name}")
                    self._record(journal, cases)

    def _record(self, journal: Path, cases: dict[str, Case]) -> None:
        recorder = Recorder(self.config, self.session, journal)
        recorder.begin(cases, self._listed, self.sources)
        self.recorder = recorder

    def case_of(self, item: pytest.Item) -> Case:
        """Return the identity of a test, in which the number of threads is still unknown."""
        return self._cases[item.nodeid]

    @functools.cached_property
    def _cases(self) -> dict[str, Case]:
        """Cases of all collected benchmarks: whether a name is unique depends on the others."""
        assert self.collected is not None  # else pytest 8.2, which gets every attribute of a plugin, would keep none
        tests = [item for item in self.collected if {"benchmark", "gpubench"}.intersection(fixture_names(item))]
        stems = told_stems(item.nodeid for item in self.collected)
        cases = {item.nodeid: case_of(item, stems) for item in tests}
        plain = [item.nodeid for item in tests if "gpubench" not in fixture_names(item)]
        cases |= told_apart({nodeid: cases[nodeid] for nodeid in plain})
        return dict(zip(cases, numbered([*cases.values()]), strict=True))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Determine the case and give it its device's clock, before pytest-benchmark makes its fixture."""
        names = fixture_names(item)
        if "gpubench" in names:
            if self.mode is not Mode.PLAN:
                _ = self.session.before, self.session.canary
            case = structs.replace(self.case_of(item), threads=self.session.threads)
            self._start(item, case)
            self.session.begun[item.nodeid] = case
            skipped = item.get_closest_marker("skip") is not None  # its device may not exist
            if self.ranks and RANKS not in names and not skipped:
                self.ranks.close_idle(case.device)
        elif "benchmark" in names and (self.mode is Mode.PLAN or self.recorder or self.alone):
            self._start(item, self.case_of(item))
        try:
            return (yield)
        except Unmeasurable as error:  # raised in a fixture that asks for too much memory
            pytest.skip(str(error))

    def _start(self, item: pytest.Item, case: Case) -> None:
        self.attempts[item.nodeid] = Attempt(case)
        if self.recorder:
            self.recorder.start(item, case)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Set the options of a plain benchmark's fixture, which another fixture may use already."""
        benchmark = yield
        if fixturedef.argname == "benchmark" and hasattr(benchmark, "_timer"):
            attempt = self.attempts.get(request.node.nodeid)
            if attempt:
                attempt.benchmark = benchmark
            if "gpubench" not in fixture_names(request.node):
                if attempt and self.mode is Mode.RUN:
                    attempt.plain = Plain(request.node, self.session, benchmark)
                else:
                    lengthen_rounds(request.node, benchmark)
        return benchmark

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Skip a case that doesn't fit this machine, with the numbers as the reason."""
        attempt = self.attempts.get(item.nodeid)
        pause: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if attempt:
            from ..measure.state import State, untraced

            attempt.state = State()
            if attempt.fixture is None:  # it would pause tracers itself
                pause = untraced()
        try:
            with pause:
                return (yield)
        except Unmeasurable as error:
            pytest.skip(str(error))
        finally:
            if attempt and attempt.state:
                attempt.state.compare()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Keep a row for each case without a time."""
        report: Any = yield
        attempt = self.attempts.get(item.nodeid)
        if attempt is None:
            return report
        status, reason = outcomes.note(self.session, attempt, item, report, call)
        if self.mode is Mode.PLAN:
            return report
        ruined = None
        if status != OK:
            self._failed.add(item.nodeid)
            ruined = outcomes.ruined()
        if report.when == "call" and status == OK and attempt.plain:
            try:
                attempt.case = attempt.plain.record(attempt.case)
            except Exception as error:  # a test can do anything to its own result
                status, reason = "error", f"the result can't be kept: {type(error).__name__}: {text_of(error)}"
        stuck = outcomes.restore(self.session, attempt, item) if report.when == "teardown" else []
        if report.when == "teardown" and attempt.fixture:
            attempt.fixture.library.close()
        if self.recorder:
            if stuck and not self.alone:
                self.recorder.abandon(item, f"{', '.join(stuck)} can't be put back in this process")
            if ruined and not self.alone:
                self.recorder.abandon(item, f"{ruined} in this process")
            self.recorder.report(item, report.when, status, reason)
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Free memory between two tests, when nothing holds the last one's traceback any more."""
        if nodeid in self._failed:
            self._failed.discard(nodeid)
            outcomes.free_memory()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, Any, Any]:
        """End the journal, or make sure that there is a results file, after pytest-benchmark may have written one."""
        failed = True
        try:
            result = yield
            failed = False
            return result
        finally:
            if self.recorder:
                self.recorder.finish(int(exitstatus))
            if self.alone and self.recorder:
                journal, path = self.recorder.ledger.path, Path(self.config.getoption("benchmark_json"))
                if self.unwritten:  # pytest-benchmark writes no file without a number
                    write(path.resolve(), assemble(read_ledger(journal)))
                if not failed:  # on a full disk pytest-benchmark's file is lost, and the journal isn't
                    journal.unlink(missing_ok=True)
            if plan := self.config.getoption("--gpubench-plan"):
                listed = {"cases": self.session.planned, "estimated_s": self.session.estimated_s(self._listed)}
                Path(plan).write_text(json.dumps(fit(listed), indent=1, allow_nan=False), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print which benchmarks have no time, what casts doubt on the times, and the command that reads the file."""
        if not self.measures or self.mode is Mode.PLAN:
            return
        for line in outcomes.summary_lines(self.session):
            terminalreporter.write_line(f"gpubench: {line}")
        path = self.config.getoption("benchmark_json", None)
        if path and Path(path).exists():
            terminalreporter.write_line(f"gpubench: for tables and charts: gpubench report {path} -o DIR")

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add this machine's facts if a gpubench test was collected, since they need torch. The host's name is left
        out: it reveals nothing about speed, but something about the owner."""
        if self.measures:
            machine_info[KEY] = self.session.machine
            machine_info["node"] = ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_commit_info(self, commit_info: dict[str, Any]) -> None:
        """Leave out the project, which is named after the working folder or its remote, and the branch, which may name
        a person."""
        if self.measures:
            commit_info |= {"project": "", "branch": ""}

    @pytest.hookimpl(optionalhook=True, wrapper=True)
    def pytest_benchmark_compare_machine_info(
        self, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
    ) -> Generator[None, Any, Any]:
        """Leave gpubench's facts out of the comparison of machines, which pytest-benchmark makes before they are
        known."""
        saved = compared_benchmark["machine_info"]
        facts = None if KEY in machine_info else saved.pop(KEY, None)
        node = saved.get("node")
        if facts is not None and not node:
            saved["node"] = machine_info.get("node")
        try:
            return (yield)
        finally:
            if facts is not None:
                saved[KEY], saved["node"] = facts, node

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Add gpubench's keys to every file that pytest-benchmark writes in a session with gpubench tests."""
        if self.measures:
            self.unwritten = False
            complete_run(output_json, self.session)
