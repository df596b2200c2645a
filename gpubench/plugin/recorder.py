"""The journal that a measuring process writes, from which the results file is assembled."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from ..devices.cpu import learn
from ..errors import UsageError
from ..measure import environment
from ..measure.session import Session
from ..runfile.journal import recorded
from ..runfile.ledger import Event, Ledger, percentiles
from ..runfile.naming import LONGEST_TEXT
from ..runfile.quantities import counted
from ..runfile.reader import LARGEST, check_case, convert
from ..runfile.schema import KEY, MOST_CASES, MOST_NAMES, MOST_PARAMS, OK, SAMPLES_KEPT, SCHEMA_VERSION, Case, Ceilings
from ..runfile.version import __version__
from ..runfile.writer import fit
from ..supervise.process import MODULES
from ..supervise.sources import loaded_modules
from .fixtures import Attempt
from .outcomes import keep_reason, spoilt
from .parametrize import shown_library
from .settings import usage_errors

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
MEASURING_ROOMS = ("devices", "estimate", "measure", "parallel", "plugin", "runfile", "statistics")
"""Folders of the package whose code decides what a number means: a run is resumed only if this code is unchanged."""


def code_hash(sources: Collection[Path], package: Path = PACKAGE_FOLDER) -> str:
    """Return a hash that changes with any byte of the benchmark files, of the modules beside them, which they may
    share, and of the package's measuring code."""
    beside = {path for folder in {path.parent for path in sources} for path in folder.glob("*.py") if path.is_file()}
    shared = {path for path in beside if not path.name.startswith("test_") and not path.stem.endswith("_test")}
    files = {path.relative_to(package): path for room in MEASURING_ROOMS for path in (package / room).rglob("*.py")}
    names = sorted((name.as_posix(), path) for name, path in files.items())
    code = hashlib.sha256()
    for name, path in [*names, *sorted((path.name, path) for path in shared.union(sources))]:
        code.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return code.hexdigest()[:16]


def require_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise UsageError if the fingerprints of two sessions differ: in the machine, torch, or the code."""
    if changed := [key for key in before if before[key] != now.get(key)]:
        changes = "; ".join(f"{key} was {before[key]}, is {now.get(key)}" for key in changed)
        raise UsageError(f"this run can't be resumed, its numbers wouldn't belong together: {changes}")


def require_room(cases: Mapping[str, Case], processes: int) -> None:
    """Raise UsageError, before anything is measured, if the run file of these cases would be too large to read, or if
    their parameters would not fit in a table. ``cases`` are by full name."""
    most = min(MOST_CASES, LARGEST // (processes * (SAMPLES_KEPT + 50) * 30))  # bytes of a number
    if len(cases) > most:
        refusal = f"at most {most} fit in a run with --processes {processes}: choose some with -k"
        raise UsageError(f"{counted(len(cases), 'benchmark')}, {refusal}")
    for fullname, case in cases.items():
        if len(case.params) > MOST_PARAMS:
            raise UsageError(f"{fullname}: {len(case.params)} parameters: a benchmark may have {MOST_PARAMS}")
    names = {name for case in cases.values() for name in case.params}
    if len(names) > MOST_NAMES:
        refusal = f"a table holds {MOST_NAMES}: choose some benchmarks with -k"
        raise UsageError(f"{len(names)} different names of parameters: {refusal}")


def _about(session: Session) -> dict[str, Any]:
    """Return the top-level facts of a run that are known when it begins."""
    settings = session.settings
    asked = {name: list(getattr(settings, name)) for name in ("devices", "dtypes", "variants", "implementations")}
    if not settings.brief:  # whose peaks are measured after a first call
        session.measure_ceilings()
    return {
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "preset": settings.preset,
        "seed": settings.seed,
        "asked": asked | {"cache": settings.cache},
        "started": session.started,
        "ceilings": msgspec.to_builtins(session.ceilings),
    }


def _began(session: Session) -> dict[str, Any]:
    """Return the state of the machine before this process's first case."""
    session.begin()
    canary, flags = msgspec.to_builtins((session.check_machine().canary, session.process_flags()))
    return {"before": session.before, "canary": canary, "flags": flags}


def _thin(benchmark: dict[str, Any]) -> None:
    """Cut off what is too long: parameters may be a test's whole data, of which its name tells enough."""
    given = benchmark.get("params") or {}
    benchmark["params"] = {name: _brief(value) for name, value in given.items()} or None
    benchmark["param"] = _brief(benchmark.get("param"))
    ours = benchmark.get("extra_info", {}).get(KEY)
    if ours and "data" in benchmark["stats"]:
        ours |= percentiles(benchmark["stats"]["data"], ours["processes"])
        benchmark["stats"]["data"] = thin(benchmark["stats"]["data"])


def thin(samples: list[float]) -> list[float]:
    """Return at most :data:`~gpubench.runfile.schema.SAMPLES_KEPT` samples, evenly spread in time, with the first and
    the last."""
    count = len(samples)
    if count <= SAMPLES_KEPT:
        return samples
    return [samples[round(i * (count - 1) / (SAMPLES_KEPT - 1))] for i in range(SAMPLES_KEPT)]


def _of_pytest_benchmark(session: Session, config: pytest.Config | None) -> dict[str, Any]:
    """Return machine and commit as pytest-benchmark describes them; without ``config`` no conftest.py has a say."""
    from pytest_benchmark import __version__, plugin
    from pytest_benchmark.utils import get_commit_info

    if config is None:
        machine = plugin.pytest_benchmark_generate_machine_info()  # type: ignore[no-untyped-call]
        learn(machine["cpu"])
        machine |= {KEY: session.describe_machine(), "node": ""}
        commit = get_commit_info() | {"project": "", "branch": ""}  # type: ignore[no-untyped-call]
    else:
        machine = config.hook.pytest_benchmark_generate_machine_info(config=config)
        learn(machine.get("cpu"))
        config.hook.pytest_benchmark_update_machine_info(config=config, machine_info=machine)
        commit = config.hook.pytest_benchmark_generate_commit_info(config=config)
        config.hook.pytest_benchmark_update_commit_info(config=config, commit_info=commit)
    return {"machine_info": machine, "commit_info": commit, "datetime": _now(), "version": __version__}


class Recorder:
    """Writes one measuring process's events. Each event is on disk before anything else happens."""

    def __init__(self, config: pytest.Config | None, session: Session, path: Path) -> None:
        self.config, self.session, self.ledger = config, session, Ledger(path)
        self._whole = False  # whether the samples of a benchmark are all kept

    def begin(
        self,
        cases: Mapping[str, Case],
        timed: list[tuple[Case, bool]],
        sources: Collection[Path],
        ranks: Event | None = None,
    ) -> None:
        """Record what will be measured, on which machine, and with which code.

        ``cases`` are the tests by full name. ``timed`` are those that aren't known to be skipped, each with whether it
        needs several processes. ``sources`` are the files that hold them. ``ranks`` names the cases that
        another launch measures. Raises UsageError if an earlier session of this journal differs.
        """
        session, settings = self.session, self.session.settings
        earlier = next((event for event in recorded(self.ledger.path) if event["event"] == "session"), None)
        if earlier:
            session.agreed_threads = earlier["fingerprint"].get("threads")
        began = _of_pytest_benchmark(session, self.config)
        machine = began["machine_info"].setdefault(KEY, session.describe_machine())  # a conftest may have emptied it
        fingerprint = self._fingerprint(machine, sources)
        if earlier:
            require_same(earlier["fingerprint"], fingerprint)
            known = earlier["gpubench"].get("ceilings") or {}  # its peaks are those of the results file
            session.peaks = convert(known, dict[str, Ceilings], f"{self.ledger.path}: session") or None
            self._whole = bool(earlier.get("whole"))
        unknown = {"dtype": ""} if settings.brief and not settings.dtypes else {}  # as its data isn't there yet
        self._append(
            "session",
            cases=list(cases),
            identities={name: structs.replace(case, **unknown).as_dict() for name, case in cases.items()},
            notices=session.notices,
            estimated_s=session.estimated_s(timed),
            fingerprint=fingerprint,
            gpubench=_about(session),
            **({"ranks": ranks} if ranks else {}),
            **began,
            **_began(session),
            **_modules(),
        )

    def _fingerprint(self, machine: Mapping[str, Any], sources: Collection[Path]) -> dict[str, Any]:
        """Return what must be equal for the numbers of two sessions to belong to one run."""
        return {
            "machine": machine["label"],
            "devices": [device["label"] for device in machine["devices"]],
            "torch": (machine["torch"] or {}).get("version"),
            "python": machine["python"],
            "threads": self.session.use_threads(),
            "gpubench": __version__,
            "code": code_hash(sources),
        }

    def _append(self, event: str, **facts: Any) -> None:
        """Append an event. If the disk is full, stop the whole session, since later results couldn't be kept either."""
        with usage_errors():
            self.ledger.add_event(event, process=self.session.settings.process, **facts)

    def start(self, item: Any, case: Case) -> None:
        """Record that a test begins."""
        self._append("start", fullname=item.nodeid, name=item.name, case=case.as_dict(), said=_stderr_size())

    def end(self, item: Any, attempt: Attempt) -> None:
        """Record the result of a test that has ended, or why it has none."""
        stats, result = getattr(attempt.benchmark, "stats", None), dict[str, Any]()
        if item.nodeid not in self.session.unmeasured:
            try:
                result = {} if stats is None else _sound(stats, self._whole)
                why = "skipped", "the test measured nothing"
                if getattr(attempt.benchmark, "disabled", False):
                    why = "error", "not timed: a test has switched pytest-benchmark off for the whole session"
            except Exception as error:
                why = spoilt(error)
            if not result:
                keep_reason(self.session, attempt, item, *why)
        row = self.session.unmeasured.get(item.nodeid)
        facts = {"reason": row.reason, "case": row.case.as_dict()} if row else {"benchmark": result}
        status = row.status if row else OK
        self._append("end", fullname=item.nodeid, status=status, library=shown_library(item), **facts)

    def finish(self, code: int) -> None:
        """Record that the process ends by itself, with pytest's exit code."""
        ceilings = msgspec.to_builtins(self.session.ceilings)  # again where a result exceeded the first ones
        with contextlib.suppress(pytest.UsageError):  # the supervisor notices that this event is missing
            facts = {"ceilings": ceilings, "finished": _now(), "after": environment.moment()}
            with contextlib.suppress(Exception):  # a test may have left torch unusable
                facts |= {"machine": self.session.late_machine()}
            self._append("finish", code=code, **_modules(), **facts)
        self.ledger.close()


def _modules() -> dict[str, Any]:
    """Return the files of this process's modules if two sides are compared: their paths belong into no other run."""
    return {"modules": loaded_modules()} if os.environ.get(MODULES) else {}


def _sound(stats: Any, whole: bool) -> dict[str, Any]:
    """Return a benchmark's result. Raises RunFileError if no reader would accept it, which would make the other results
    unreadable."""
    benchmark: dict[str, Any] = fit(stats.as_dict(include_data=True))
    if not whole:
        _thin(benchmark)
    check_case("its result", json.loads(json.dumps(benchmark)))
    return benchmark


def _brief(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:LONGEST_TEXT] if len(text) > LONGEST_TEXT else value


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def _stderr_size() -> int | None:
    """Return the bytes that this process has written to its log, if that is a file; messages of its end come after
    them."""
    try:
        state = os.fstat(2)
    except OSError:
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) else None
