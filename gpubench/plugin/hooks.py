"""The plugin's state and its hooks. torch is imported only for a test that needs it; configuring touches no device."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol
from msgspec import structs

from ..devices import register
from ..errors import RankFailure, Unmeasurable, UsageError
from ..estimate.demo import Demo
from ..measure.run_settings import Mode
from ..measure.session import Session
from ..runfile.journal import read_ledger, recorded
from ..runfile.kinds import names_of
from ..runfile.ledger import LEDGER, SKIPPED_FILES, Event, Ledger, assemble, cut_off, missing
from ..runfile.matching import matcher, nothing_matches
from ..runfile.naming import numbered, told_stems
from ..runfile.quantities import counted, listed, seconds_text
from ..runfile.schema import KEY, Case
from ..runfile.writer import fit, keep, write
from ..supervise.process import NO_TESTS
from . import outcomes, settings
from .benchmark_fixture import is_pytest_benchmarks
from .fixtures import RANKS, Attempt, Plain, calibrate_plain
from .parametrize import GLANCE, Markers, case_of, fixture_names, glances, parametrize, possible, tell_apart
from .plain_process import begin_plain
from .recorder import Recorder, require_room

if TYPE_CHECKING:
    from ..parallel.team import Team

register(Demo)
_PARAMETRIZED = {"gpubench", "gpubench_device", "gpubench_variant"}


class Plugin:
    """The state of one pytest session: ``config.pluginmanager.getplugin(STATE)`` with :data:`.settings.STATE`."""

    @settings.usage_errors()
    def __init__(self, config: pytest.Config) -> None:
        """Raises pytest.UsageError for an unknown value of an option."""
        self.config = config
        self._follows = settings.launched() and os.environ.get("RANK", "0") != "0"
        """Whether it is a rank of which rank 0 writes the results."""
        if self._follows:
            config.option.benchmark_json = None
        self.session = Session(settings.read_settings(config), settings.mode_of(config))
        self.measures = False  # whether a test that is measured was collected
        self.session.times = False  # whether they will be timed, plain ones too
        self._timed: list[tuple[Case, bool]] = []  # cases that aren't known to be skipped, and whether they use ranks
        self.recorder: Recorder | None = None
        self.unwritten = False  # whether a results file is asked for that pytest-benchmark hasn't written yet
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # of a journal that has no results file
        self.attempts: dict[str, Attempt] = {}
        self.collected: list[pytest.Item] | None = None  # in the order of the results file: measured ones are shuffled
        self._skipped: list[str] = []  # files, each with its reason
        self._chosen: set[str] = set()  # full names of the benchmarks that are measured
        self._elsewhere: dict[str, Event] | None = None  # results of the ranks that this session has started

    @functools.cached_property
    def team(self) -> Team:
        """The ranks that torchrun started together with this one."""
        from ..parallel.team import Team

        return Team(self.session.settings.ranks_deadline, self._end_rank)

    def _end_rank(self, failure: RankFailure) -> None:
        """End all ranks of a supervised launch, since one of them hangs: another launch measures the rest."""
        if self.session.mode is Mode.RUN:
            journal = Ledger(self.config.getoption("--gpubench-ledger"))
            journal.add_event("rank", status=failure.status, reason=str(failure))
            os._exit(1)

    def ranks_of(self, name: str) -> Any:
        """Return the value of the fixture ``gpubench_ranks`` for the test of this full name."""
        from ..parallel.ranks import Ranks
        from .launch import Results

        return Ranks(self.team, name) if settings.launched() else Results(name, self._measure_elsewhere)

    def _measure_elsewhere(self) -> dict[str, Event]:
        from .launch import measure_ranks

        if self._elsewhere is None:
            self._elsewhere = measure_ranks(self.config, self.session, self._ranks_to_start(self._chosen))
        return self._elsewhere

    def _ranks_to_start(self, names: Iterable[str]) -> Event:
        """Return the benchmarks of ranks among these, and how many ranks they need; empty if there are none, or if
        torchrun has started this session."""
        cases = [item.nodeid for item in self.collected or () if RANKS in fixture_names(item)]
        if settings.launched() or not (cases := [name for name in cases if name in set(names)]):
            return {}
        from ..parallel.ranks import device_counts

        return {"cases": cases, "count": max(device_counts())}

    @settings.usage_errors()
    def pytest_sessionstart(self) -> None:
        """Reject unknown and missing devices before anything is collected; torch is imported only if a device is
        named."""
        if self.session.settings.required:
            self.session.require_devices()
        if set(self.session.settings.devices) - {"auto", "all", "cpu"}:
            _ = self.session.choices
        _ = self.session.implementations

    @pytest.hookimpl(tryfirst=True)
    @settings.usage_errors()
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize a test that uses the fixture; check the markers of a plain one."""
        if set(metafunc.fixturenames) >= _PARAMETRIZED:
            parametrize(metafunc, self.session)
        elif "benchmark" in metafunc.fixturenames:
            Markers.of(metafunc.definition)

    @pytest.hookimpl(trylast=True)
    @settings.usage_errors()
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Distinguish files of the same name. For the supervisor, keep only tests without a result, in this process's
        order."""
        several = [item.name for item, count in Counter(items).items() if count > 1]
        if several:  # a conftest has doubled them, and a test has one result
            self.session.notices.append(f"collected several times, measured once: {listed(several, 3)}")
        items[:] = [item for item in dict.fromkeys(items) if possible(item, self.session)]
        if self.session.mode is not Mode.OFF:
            tell_apart([item for item in items if "benchmark" in fixture_names(item)])
        self.collected = list(items)
        if settings.launched():  # by torchrun: all processes would measure other tests at the same time
            self._keep(items, [item for item in items if RANKS in fixture_names(item)])
        if expression := config.getoption("--gpubench-match"):
            matches, every = matcher(expression), list(items)
            self._keep(items, [item for item in items if matches(self._names(item))])
            if every and not items:
                raise nothing_matches(expression, (case.workload for case in self._cases.values()))
        if self.session.settings.preset == GLANCE and any(map(glances, items)):  # else no test declares it
            before = len(items)
            self._keep(items, [item for item in items if glances(item) or "benchmark" not in fixture_names(item)])
            if expression and len(items) < before:
                left_out = counted(before - len(items), "benchmark")
                self.session.notices.append(f"preset glance leaves out {left_out} that -k chooses: use --preset quick")
        # By all, so alike in each process.
        self.session.plain = not any("gpubench" in fixture_names(item) for item in items)
        if self.session.mode is Mode.RUN:
            names = self._missing(Path(config.getoption("--gpubench-ledger")))
            wanted = {item.nodeid for item in items} if names is None else set(names)
            self._keep(items, [item for item in items if item.nodeid in wanted])
            self._shuffle(items)

    def _missing(self, journal: Path) -> list[str] | None:
        """Return the full names of the cases that this process has still to measure, on all ranks those of rank 0."""
        events = recorded(journal)
        restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"  # after a rank has died or hung
        if restarted and not self._follows and (end := cut_off(events)):
            Ledger(journal).add_event(**end)
            events.append(end)
        names = missing(events, self.session.settings.process)
        return self.team.agree(names) if settings.launched() else names

    def _shuffle(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: item.nodeid if settings.launched() else "")  # each rank has the same order
        random.Random(f"{self.session.settings.seed}/{self.session.settings.process}").shuffle(items)

    def _names(self, item: pytest.Item) -> list[str]:
        """Return all names by which a test can be selected: those that pytest knows, and those that tables show."""
        names = [item.nodeid, *item.listextrakeywords(), *(marker.name for marker in item.iter_markers())]
        if "benchmark" in fixture_names(item):
            case = self.case_of(item)
            names += [case.id, case.device, *names_of(case)]
        return names

    def _keep(self, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
        kept_ids = {item.nodeid for item in kept}
        self.config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept_ids])
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why a file is skipped as a whole: its tests are in no table."""
        if report.skipped and self.session.mode is Mode.RUN:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._skipped.append(f"{report.nodeid} ({reason.removeprefix('Skipped: ')})")

    @settings.usage_errors()
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin the journal, or measure the peaks, unless nothing will be measured."""
        if self._skipped:
            self.session.notices.append(f"{SKIPPED_FILES}{listed(self._skipped, 3)}")
        if session.testsfailed or self.collected is None:
            return  # a file that can't be imported, or a -k that pytest refused
        if settings.launched():  # collections between rounds would empty the caches: a DDP step took 15% longer
            gc.collect()
            gc.freeze()
        wanted = "gpubench" if self.session.mode is Mode.ALONE else "benchmark"
        self.measures = any(wanted in fixture_names(item) for item in session.items)
        if not self.measures or self.config.option.collectonly:
            return
        self._note_untimed(self.collected)
        self._chosen = {item.nodeid for item in session.items if "benchmark" in fixture_names(item)}
        tests = [item for item in self.collected if item.nodeid in self._chosen]
        timed = [item for item in tests if item.get_closest_marker("skip") is None]
        self._timed = [(self.case_of(item), RANKS in fixture_names(item)) for item in timed]
        self.session.collected = [self.case_of(item) for item in timed if "gpubench" in fixture_names(item)]
        option = self.config.getoption
        workers = option("dist", "no") != "no" or hasattr(self.config, "workerinput")
        off = option("benchmark_disable", False) and not option("benchmark_enable", False)
        off = off or workers or option("benchmark_skip", False)
        self.session.times = self.session.mode is not Mode.OFF and not off and not self._follows
        if self.session.times and self.session.mode is not Mode.PLAN:
            names = {item: fixture_names(item) for item in tests}
            ours = {item.nodeid: item for item in tests if "gpubench" in names[item] and RANKS not in names[item]}
            cases = {name: self.case_of(item) for name, item in ours.items()}
            self.session.plain_process = begin_plain(self.session, cases, lambda name: self._run_plainly(ours[name]))
            uses_torch = self.session.collected or option("benchmark_json", None)
            with self.session.measuring() if uses_torch else contextlib.nullcontext():
                self._begin_journal({item.nodeid: self.case_of(item) for item in tests})
            if self.session.mode is Mode.RUN and not settings.launched():  # the supervisor starts ranks for the others
                session.items[:] = [item for item in session.items if RANKS not in fixture_names(item)]
            if self.session.mode is Mode.ALONE and self.session.collected:
                self._announce()

    def _run_plainly(self, item: pytest.Item) -> None:
        capture = "capturemanager"  # its files are the parent's, with the output of the test there
        self.config.pluginmanager.unregister(name=capture)
        self.recorder = None
        runtestprotocol(item, log=False, nextitem=None)

    def _announce(self) -> None:
        """Print a line on the benchmarks among a project's tests, with the reason for a single thread."""
        session, terminal = self.session, self.config.pluginmanager.getplugin("terminalreporter")
        seconds = seconds_text(session.estimated_s(self._timed))
        threads = f"the CPU on {counted(session.use_threads(), 'thread')}"
        line = f"{counted(len(session.collected), 'benchmark')}, {threads}, about {seconds} on idle cores"
        for text in (line, *session.notices) if terminal else ():
            terminal.write_line(f"gpubench: {text}")

    def _note_untimed(self, collected: list[pytest.Item]) -> None:
        marked = [item.name for item in collected if item.get_closest_marker("benchmark")]
        timed = {item.name for item in collected if "benchmark" in fixture_names(item)}
        if untimed := [name for name in marked if name not in timed]:
            names = listed(untimed, 3)
            self.session.notices.append(f"not measured, as they have the marker but no fixture that times: {names}")

    def _begin_journal(self, cases: Mapping[str, Case]) -> None:
        """Raises UsageError where results can't be kept: pytest-benchmark would notice when all is measured."""
        if self.session.mode is Mode.RUN:
            require_room(cases, self.session.settings.processes)
            journal: Path | None = Path(self.config.getoption("--gpubench-ledger"))
        else:
            journal = self._own_journal()
        if journal is None:
            return
        recorder = Recorder(self.config, self.session, journal)
        # Files of all measured tests, so that it is the same for each process of a run.
        sources = {item.path for item in self.collected or () if "benchmark" in fixture_names(item)}
        recorder.begin(cases, self._timed, sources, self._ranks_to_start(cases))
        self.recorder = recorder

    def _own_journal(self) -> Path | None:
        """Return the place of the journal of a session without a supervisor: beside the results file, or in a folder of
        its own beside none. None if no results are to be written."""
        option = self.config.getoption
        asked, saved = (
            option("benchmark_json", None),
            option("benchmark_save", None) or option("benchmark_autosave", None),
        )
        path = Path(asked or "none.json")
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(f"{path}: no results file can be written there")
        self.unwritten = bool(asked)
        if asked and (path.is_file() or not path.exists()):
            journal = path.with_suffix(".ledger.jsonl")
            for earlier, name in keep([journal]) if os.path.lexists(journal) else ():
                print(f"\ngpubench: {earlier.name}, of a session that was killed, is now {name.name}")
            return journal
        if not (asked or saved):
            return None
        self._folder = tempfile.TemporaryDirectory(prefix="gpubench-")
        return Path(self._folder.name, LEDGER)

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
        return dict(zip(cases, numbered([*cases.values()]), strict=True))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure with this session's threads; the project's other tests keep theirs."""
        with self.session.measuring() if "gpubench" in fixture_names(item) else contextlib.nullcontext():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Determine the case and give it its device's clock, before pytest-benchmark makes its fixture."""
        names = fixture_names(item)
        if "gpubench" in names:
            if self.session.times and self.session.mode is not Mode.PLAN:
                self.session.begin()
            case = structs.replace(self.case_of(item), threads=self.session.use_threads())
            self._start(item, case)
            self.session.begun = True
        elif "benchmark" in names and self.session.times:
            self._start(item, self.case_of(item))
        try:
            return (yield)
        except Unmeasurable as error:  # raised in a fixture that asks for too much memory
            pytest.skip(str(error))

    def _start(self, item: pytest.Item, case: Case) -> None:
        self.attempts[item.nodeid] = Attempt(case)
        self.session.unmeasured.pop(item.nodeid, None)  # of a test that is rerun
        if self.recorder:
            self.recorder.start(item, case)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Set the options of a plain benchmark's fixture, which another fixture may use already."""
        benchmark = yield
        if fixturedef.argname == "benchmark" and is_pytest_benchmarks(benchmark):
            attempt = self.attempts.get(request.node.nodeid)
            if attempt:
                attempt.benchmark = benchmark
            if "gpubench" not in fixture_names(request.node):
                if attempt and self.session.mode is Mode.RUN:
                    attempt.plain = Plain(request.node, self.session, benchmark)
                else:
                    calibrate_plain(request.node, benchmark)
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
                result = yield
            if attempt and attempt.fixture:
                attempt.fixture.require_no_declaration()
            return result
        except Unmeasurable as error:
            pytest.skip(str(error))
        finally:
            if attempt and attempt.fixture:
                attempt.fixture.take_declaration()  # of a test that failed before its call
            if attempt and attempt.state:
                attempt.state.compare()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Fail a test whose fixtures declare a call as they end."""
        result = yield
        if (attempt := self.attempts.get(item.nodeid)) and attempt.fixture:
            attempt.fixture.require_no_declaration()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Keep a row for each case without a time."""
        report: Any = yield
        attempt = self.attempts.get(item.nodeid)
        if attempt is None:
            return report
        outcomes.note(self.session, attempt, item, report, call)
        if self.session.mode is Mode.PLAN:
            return report
        ruined = None if report.passed else outcomes.ruined()
        stuck: list[str] = []
        if report.when == "teardown":
            stuck = outcomes.restore(self.session, attempt, item)
            if attempt.fixture:
                attempt.fixture.library.close()
            if self.recorder:
                self.recorder.end(item, attempt)
        if self.session.mode is Mode.RUN and (stuck or ruined):  # another process measures the remaining tests
            why = ruined or f"{', '.join(stuck)} can't be put back"
            item.session.shouldstop = f"gpubench: {why} in this process"
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Free memory between two tests, when nothing holds the last one's traceback any more."""
        if nodeid in self.session.unmeasured:
            outcomes.free_memory()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
        """End the journal, from which pytest-benchmark's files are written; it stays if they can't be."""
        try:
            if self.session.plain_process:
                self.session.plain_process.close()
            if "team" in vars(self):
                self.team.close()
                if self.session.mode is Mode.RUN and exitstatus in (pytest.ExitCode.TESTS_FAILED, NO_TESTS):
                    session.exitstatus = 0  # the journal has it, and torchrun would restart the ranks
            if self.recorder:
                self.recorder.finish(int(exitstatus))
            result = yield
            if self.recorder and self.session.mode is Mode.ALONE:
                journal = self.recorder.ledger.path
                if self.unwritten:  # pytest-benchmark writes no file without a number
                    write(Path(self.config.getoption("benchmark_json")).resolve(), assemble(read_ledger(journal)))
                journal.unlink(missing_ok=True)
            return result
        finally:
            if self._folder:
                self._folder.cleanup()
            if plan := self.config.getoption("--gpubench-plan"):
                found = {"cases": self.session.planned, "estimated_s": self.session.estimated_s(self._timed)}
                Path(plan).write_text(json.dumps(fit(found), indent=1, allow_nan=False), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print which benchmarks have no time, what casts doubt on the times, and the command that reads the file."""
        if not self.session.times or self.session.mode is Mode.PLAN:
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
            machine_info[KEY] = self.session.describe_machine()
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
        if KEY in saved and KEY not in machine_info:
            known = {name: value for name, value in saved.items() if name != KEY}
            compared_benchmark["machine_info"] = known | {"node": saved.get("node") or machine_info.get("node")}
        try:
            return (yield)
        finally:
            compared_benchmark["machine_info"] = saved

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Let pytest-benchmark write the results file in a session with gpubench tests."""
        if self.measures and self.recorder:
            self.unwritten = False
            output_json.clear()
            output_json.update(assemble(read_ledger(self.recorder.ledger.path)))
