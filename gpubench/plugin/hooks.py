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
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol
from _pytest.skipping import evaluate_skip_marks
from msgspec import structs

from ..devices import register
from ..errors import RankFailure, Unmeasurable, UsageError
from ..measure.session import Mode, Session
from ..runfile.ledger import LEDGER, Event, Ledger, assemble, cut_off, missing, read_ledger, recorded
from ..runfile.matching import matcher, names_of, nothing_matches
from ..runfile.naming import numbered, shared_stems
from ..runfile.quantities import counted, estimate_text, listed
from ..runfile.schema import KEY, Case
from ..runfile.writer import fit, keep, without_paths, write
from ..supervise.process import NO_TESTS
from . import STATE, recorder as outcomes
from .demo import Demo
from .fixtures import RANKS, Plain, calibrate_plain, switch_on, timer_of
from .parametrize import GLANCE, Markers, case_of, fixture_names, glances, parametrize, possible, tell_apart
from .plain_process import begin_plain
from .settings import launched, mode_of, read_settings

if TYPE_CHECKING:
    from ..measure.ranks import Team

register(Demo)


def _with(items: list[pytest.Item], fixture: str) -> list[pytest.Item]:
    return [item for item in items if fixture in fixture_names(item)]


def _skip_by_mark(item: pytest.Item) -> str | None:
    """Return why a test's marks skip it; None also for marks that pytest refuses when the test begins."""
    with contextlib.suppress(Exception, pytest.fail.Exception):
        if skip := evaluate_skip_marks(item):
            return without_paths(skip.reason)
    return None


class Plugin:
    """The state of one pytest session: ``config.pluginmanager.getplugin(STATE)`` with :data:`.STATE`."""

    @outcomes.usage_errors()
    def __init__(self, config: pytest.Config) -> None:
        """Raises pytest.UsageError for an unknown value of an option."""
        self.config, self.attempts = config, dict[str, outcomes.Attempt]()
        self._follows = launched() and os.environ.get("RANK", "0") != "0"  # rank 0 writes the results
        if self._follows:
            config.option.benchmark_json = None
        self.session = Session(read_settings(config), mode_of(config), times=False)
        self.measures = False  # whether a test that is measured was collected
        self._timed: list[tuple[Case, bool]] = []  # cases that aren't known to be skipped, and whether they use ranks
        self.recorder: outcomes.Recorder | None = None
        self.unwritten = False  # whether a results file is asked for that pytest-benchmark hasn't written yet
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # of a journal that has no results file
        self.collected: list[pytest.Item] | None = None  # in the order of the results file: measured ones are shuffled
        self._skipped: list[str] = []  # files, each with its reason
        self._ranks: Event = {}  # benchmarks whose ranks another launch measures
        self._elsewhere: dict[str, Event] | None = None  # their results, if this session has started the ranks
        config.pluginmanager.register(self, STATE)

    @functools.cached_property
    def team(self) -> Team:
        """The ranks that torchrun started together with this one."""
        from ..measure.ranks import Team

        return Team(self.session.settings.ranks_deadline, self._end_rank)

    def _end_rank(self, failure: RankFailure) -> None:  # another launch measures the rest
        if self.session.mode is Mode.RUN:
            facts = {"status": failure.status, "reason": str(failure)}
            Ledger(self.config.getoption("--gpubench-ledger")).add_event("rank", **facts)
            os._exit(1)

    def ranks_of(self, name: str) -> Any:
        """Return the value of the fixture ``gpubench_ranks`` for the test of this full name."""
        from ..measure.ranks import Ranks
        from .launcher import Results, measure_ranks

        def measured() -> dict[str, Event]:
            if self._elsewhere is None:
                self._elsewhere = measure_ranks(self.config, self.session, self._ranks)
            return self._elsewhere

        return Ranks(self.team, name) if launched() else Results(name, measured)

    @outcomes.usage_errors()
    def pytest_sessionstart(self) -> None:
        """Reject unknown and missing devices before collection; torch is imported only if a device is named."""
        if self.session.settings.required:
            self.session.require_devices()
        if set(self.session.settings.devices) - {"auto", "all", "cpu"}:
            self.session.choose_devices()
        self.session.choose_libraries()

    @pytest.hookimpl(tryfirst=True)
    @outcomes.usage_errors()
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize a test that uses the fixture; check the markers of a plain one."""
        if {"gpubench", "gpubench_device", "gpubench_variant"}.issubset(metafunc.fixturenames):
            parametrize(metafunc, self.session)
        elif "benchmark" in metafunc.fixturenames:
            Markers.of(metafunc.definition)

    @pytest.hookimpl(trylast=True)
    @outcomes.usage_errors()
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Distinguish files of the same name; for the supervisor, keep only tests without a result."""
        notices = self.session.notices
        if several := [item.name for item, count in Counter(items).items() if count > 1]:
            # A conftest has doubled them, and a test has one result.
            notices.append(f"collected several times, measured once: {listed(several, 3)}")
        items[:] = [item for item in dict.fromkeys(items) if possible(item, self.session)]
        if self.session.mode is not Mode.OFF:
            tell_apart(_with(items, "benchmark"))
        self.collected = list(items)
        if launched():  # by torchrun: all processes would measure other tests at the same time
            self._keep(items, _with(items, RANKS))
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
                notices.append(f"preset glance leaves out {left_out} that -k chooses: use --preset quick")
        self.session.note_tests(only_plain=not _with(items, "gpubench"))  # by all, so alike in each process
        if self.session.mode is Mode.RUN:
            self._keep_missing(items)

    def _keep_missing(self, items: list[pytest.Item]) -> None:
        """Keep the tests that this process has still to measure, on all ranks rank 0's choice, in random order."""
        journal = Path(self.config.getoption("--gpubench-ledger"))
        events = recorded(journal)
        restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"  # after a rank has died or hung
        if restarted and not self._follows and (end := cut_off(events)):
            with contextlib.closing(Ledger(journal)) as ledger:
                ledger.add_event(**end)
            events.append(end)
        process = self.session.settings.process
        names = missing(events, process)
        if launched():
            names = self.team.agree(names)
            items.sort(key=lambda item: item.nodeid)  # each rank has the same order
        left = {item.nodeid for item in items} if names is None else {*names}
        self._keep(items, [item for item in items if item.nodeid in left])
        random.Random(f"{self.session.settings.seed}/{process}").shuffle(items)

    def _names(self, item: pytest.Item) -> list[str]:
        """Return all names by which a test can be selected: pytest's, and the ones that tables show."""
        names = [item.nodeid, *item.listextrakeywords(), *(marker.name for marker in item.iter_markers())]
        if "benchmark" in fixture_names(item):
            case = self._cases[item.nodeid]
            names += [case.id, case.device, *names_of(case)]
        return names

    def _keep(self, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
        kept_ids = {item.nodeid for item in kept}
        self.config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept_ids])
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why a file is skipped as a whole: its tests are in no table."""
        if report.skipped and self.session.mode in (Mode.RUN, Mode.PLAN):
            self._skipped.append(f"{report.nodeid} ({outcomes.skip_reason(report)})")

    @outcomes.usage_errors()
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin the journal, or measure the peaks, unless nothing will be measured. Raises UsageError if all files are
        skipped."""
        if session.testsfailed or self.collected is None:
            return  # a file that can't be imported, or a -k that pytest refused
        if self._skipped:
            self.session.notices.append(f"skipped as a whole: {listed(self._skipped, 3)}")
            if not self.collected:
                raise UsageError(self.session.notices[-1])
        if launched():  # collections between rounds would empty the caches: a DDP step took 15% longer
            gc.collect()
            gc.freeze()
        mode, option = self.session.mode, self.config.getoption
        self.measures = bool(_with(session.items, "gpubench" if mode is Mode.IN_PYTEST else "benchmark"))
        if not self.measures or self.config.option.collectonly:
            return
        chosen = {*_with(session.items, "benchmark")}
        tests = [item for item in self.collected if item in chosen]
        skips = {item: _skip_by_mark(item) for item in tests}
        timed = [item for item in tests if skips[item] is None]
        self._timed = [(self._cases[item.nodeid], RANKS in fixture_names(item)) for item in timed]
        self.session.collected = [self._cases[item.nodeid] for item in _with(timed, "gpubench")]
        marked = [item for item in self.collected if item.get_closest_marker("benchmark")]
        if untimed := [item.name for item in marked if "benchmark" not in fixture_names(item)]:
            why = "not measured, as they have the marker but no fixture that times"
            self.session.notices.append(f"{why}: {listed(untimed, 3)}")
        if (ranks := [item.nodeid for item in _with(tests, RANKS)]) and not launched():
            from ..measure.ranks import device_counts

            self._ranks = {"cases": ranks, "count": max(device_counts())}
        if plan := option("--gpubench-plan"):
            estimated_s = self.session.estimated_s(self._timed)
            rows = [outcomes.planned(item, self._cases[item.nodeid], skips[item]) for item in tests]
            Path(plan).write_text(json.dumps(fit({"cases": rows, "estimated_s": estimated_s})), encoding="utf-8")
            session.items.clear()
            return
        workers = option("dist", "no") != "no" or hasattr(self.config, "workerinput")
        off = option("benchmark_disable", False) and not option("benchmark_enable", False)
        off = off or workers or option("benchmark_skip", False)
        self.session.times = mode is not Mode.OFF and not off and not self._follows
        if self.session.times:
            self._begin(session, tests)

    def _begin(self, session: pytest.Session, tests: list[pytest.Item]) -> None:
        """Begin the journal. Raises UsageError, before anything is measured, where results can't be kept."""
        mode, ours = self.session.mode, {item.nodeid: item for item in _with(tests, "gpubench")}
        alone = [self._cases[name] for name, item in ours.items() if RANKS not in fixture_names(item)]
        self.session.plain_process = begin_plain(self.session, alone, lambda name: self._run_plainly(ours[name]))
        uses_torch = self.session.collected or self.config.getoption("benchmark_json", None)
        with self.session.measuring() if uses_torch else contextlib.nullcontext():
            cases = {item.nodeid: self._cases[item.nodeid] for item in tests}
            if mode is Mode.RUN:
                outcomes.require_room(cases, self.session.settings.processes)
            if (journal := self._journal()) is not None:
                recorder = outcomes.Recorder(self.config, self.session, journal)
                # Files of all measured tests, so that it is the same for each process of a run.
                sources = {item.path for item in _with(self.collected or [], "benchmark")}
                recorder.begin(cases, self._timed, sources, self._ranks)
                self.recorder = recorder
        if mode is Mode.RUN and not launched():  # the supervisor starts ranks for the others
            session.items[:] = [item for item in session.items if RANKS not in fixture_names(item)]
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        if mode is Mode.IN_PYTEST and self.session.collected and terminal:
            seconds = estimate_text(self.session.estimated_s(self._timed))
            threads = f"the CPU on {counted(self.session.use_threads(), 'thread')}"
            line = f"{counted(len(self.session.collected), 'benchmark')}, {threads}, about {seconds} on idle cores"
            for text in (line, *self.session.notices):
                terminal.write_line(f"gpubench: {text}")

    def _run_plainly(self, item: pytest.Item) -> None:
        self.config.pluginmanager.unregister(name="capturemanager")  # its files are the parent's
        self.recorder = None
        runtestprotocol(item, log=False, nextitem=None)

    @property
    def _results_path(self) -> Path:
        """The results file, wherever a test has gone since pytest was started."""
        return self.config.invocation_params.dir / (self.config.getoption("benchmark_json", None) or "none.json")

    def _journal(self) -> Path | None:
        """Return the place of the journal: the supervisor's, or beside the results file, or in a folder of its own.
        None if no results are to be written."""
        option = self.config.getoption
        if self.session.mode is Mode.RUN:
            return Path(option("--gpubench-ledger"))
        asked = option("benchmark_json", None)
        path = self._results_path
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(f"{asked}: no results file can be written there")
        self.unwritten = bool(asked)
        if asked and (path.is_file() or not path.exists()):
            journal = path.with_suffix(".ledger.jsonl")
            for earlier, name in keep([journal]) if os.path.lexists(journal) else ():
                print(f"\ngpubench: {earlier.name}, of a session that was killed, is now {name.name}")
            return journal
        if not (asked or option("benchmark_save", None) or option("benchmark_autosave", None)):
            return None
        self._folder = tempfile.TemporaryDirectory(prefix="gpubench-")
        return Path(self._folder.name, LEDGER)

    @functools.cached_property
    def _cases(self) -> dict[str, Case]:
        """Identities of all benchmarks by full name, without threads: whether a name is unique depends on all."""
        assert self.collected is not None  # else pytest 8.2, which gets every attribute of a plugin, would keep none
        tests = [item for item in self.collected if {"benchmark", "gpubench"}.intersection(fixture_names(item))]
        stems = shared_stems(item.nodeid for item in self.collected)
        cases = numbered([case_of(item, stems) for item in tests])
        return {item.nodeid: case for item, case in zip(tests, cases, strict=True)}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure with this session's threads; the project's other tests keep theirs."""
        with self.session.measuring() if "gpubench" in fixture_names(item) else contextlib.nullcontext():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Determine the case and give it its device's clock, before pytest-benchmark makes its fixture."""
        names, session = fixture_names(item), self.session
        if session.times:
            switch_on(self.config)
        if "gpubench" in names or ("benchmark" in names and session.times):
            case = self._cases[item.nodeid]
            if "gpubench" in names:
                if session.times:
                    session.begin()
                case, session.begun = structs.replace(case, threads=session.use_threads()), True
            self.attempts[item.nodeid] = outcomes.Attempt(case)
            session.unmeasured.pop(item.nodeid, None)  # of a test that is rerun
            if self.recorder:
                self.recorder.start(item, case)
        try:
            return (yield)
        except Unmeasurable as error:  # raised in a fixture that asks for too much memory
            pytest.skip(str(error))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Set the options of a plain benchmark's fixture, which another fixture may use already."""
        benchmark = yield
        if fixturedef.argname == "benchmark" and timer_of(benchmark):
            attempt = self.attempts.get(request.node.nodeid)
            if attempt:
                attempt.benchmark = benchmark
            if "gpubench" in fixture_names(request.node):
                pass
            elif attempt and self.session.mode is Mode.RUN:
                attempt.plain = Plain(request.node, self.session, benchmark)
            else:
                calibrate_plain(request.node, benchmark)
        return benchmark

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Skip a case that doesn't fit this machine, with the numbers as the reason."""
        if not (attempt := self.attempts.get(item.nodeid)):
            return (yield)
        from ..measure.state import State, untraced

        ours, attempt.state = attempt.fixture, State()
        try:
            with contextlib.nullcontext() if ours else untraced():  # ours pauses tracers itself
                result = yield
            if ours:
                ours.require_no_declaration()
            return result
        except Unmeasurable as error:
            pytest.skip(str(error))
        finally:
            if ours:
                ours.take_declaration()  # of a test that failed before its call
            attempt.state.compare()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Keep a row for each case without a time."""
        report: Any = yield
        if (attempt := self.attempts.get(item.nodeid)) is None:
            return report
        outcomes.note_phase(self.session, attempt, item, report, call)
        why = None if report.passed else outcomes.ruined()
        if report.when == "teardown" and (stuck := outcomes.end_test(self.session, attempt, item, self.recorder)):
            why = why or f"{', '.join(stuck)} can't be put back"
        if report.when == "teardown" and item in item.session._setupstate.stack:  # pytest would fail the next test
            why = why or "a hook has kept a test from being torn down"
        if self.session.mode is Mode.RUN and why:  # another process measures the remaining tests
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
            if self.recorder and self.session.mode is Mode.IN_PYTEST:
                if self.unwritten:  # pytest-benchmark writes no file without a number
                    results = assemble(read_ledger(self.recorder.ledger.path))
                    write(self._results_path.resolve(), results)
                self.recorder.ledger.path.unlink(missing_ok=True)
            return result
        finally:
            if self._folder:
                self._folder.cleanup()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the benchmarks without a time, doubts about the times, and the command that reads the file."""
        if not self.session.times:
            return
        lines, path = outcomes.summary_lines(self.session), self.config.getoption("benchmark_json", None)
        if path and Path(path).exists():
            lines.append(f"for tables and charts: gpubench report {path} -o DIR")
        for line in lines:
            terminalreporter.write_line(f"gpubench: {line}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add this machine's facts, which need torch, and leave out its name, which may name a person."""
        if self.measures:
            machine_info |= {KEY: self.session.describe_machine(), "node": ""}

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_commit_info(self, commit_info: dict[str, Any]) -> None:
        """Leave out project and branch, which may name a folder or a person."""
        if self.measures:
            commit_info |= {"project": "", "branch": ""}

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_compare_machine_info(
        self, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
    ) -> None:
        """Leave gpubench's facts out of the comparison of machines, which comes before they are read."""
        saved = compared_benchmark["machine_info"]
        if KEY in saved and KEY not in machine_info:
            del saved[KEY]
            saved["node"] = saved.get("node") or machine_info.get("node")

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Let pytest-benchmark write the results file in a session with gpubench tests."""
        if self.measures and self.recorder:
            self.unwritten = False
            output_json.clear()
            output_json.update(assemble(read_ledger(self.recorder.ledger.path)))
