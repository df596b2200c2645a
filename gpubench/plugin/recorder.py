"""What the measuring process adds to the file that pytest-benchmark writes."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ..errors import UsageError
from ..measure import environment
from ..measure.budget import CEILINGS_S, COMPILE_S, RANKS_S
from ..measure.session import Session, Unmeasured
from ..runfile.ledger import Follower, Ledger
from ..runfile.schema import KEY, OK, SAMPLES_KEPT, SCHEMA_VERSION, Case
from ..runfile.writer import write
from ..version import __version__
from .parametrize import case_of


def about(session: Session, version: str) -> dict[str, Any]:
    """The top-level facts of a run that are known when it begins."""
    asked = session.settings
    return {
        "schema_version": SCHEMA_VERSION,
        "version": version,
        "preset": asked.preset,
        "seed": asked.seed,
        "asked": {
            "devices": list(asked.devices),
            "dtypes": list(asked.dtypes),
            "variants": list(asked.variants),
            "cache": asked.cache,
        },
        "started": session.started,
        "ceilings": {name: msgspec.to_builtins(found) for name, found in session.ceilings.items()},
    }


def began(session: Session) -> dict[str, Any]:
    """What this process saw before its first case."""
    canary = session.canary
    return {
        "before": session.before,
        "canary": canary.as_dict() if canary else None,
        "flags": msgspec.to_builtins(session.flags),
    }


def complete(output: dict[str, Any], session: Session, version: str, failed: set[str]) -> None:
    """Add our top-level keys, thin the raw samples, and take out cases that failed after they were timed.

    pytest-benchmark writes those too; their rows are in ``unmeasured``.
    """
    done = {b["fullname"] for b in output["benchmarks"] if KEY in b["extra_info"]}
    unfinished = session.begun.keys() - done  # of a case that was interrupted, pytest-benchmark keeps some rounds
    for fullname in unfinished - failed:
        name = fullname.rpartition("::")[2]
        reason = "interrupted while it was measured"
        session.unmeasured.append(Unmeasured(session.begun[fullname], name, fullname, "error", reason))
    gone = failed | unfinished
    output["benchmarks"] = [b for b in output["benchmarks"] if b["fullname"] not in gone]
    for benchmark in output["benchmarks"]:
        thin_samples(benchmark)
    output[KEY] = about(session, version) | {
        "finished": datetime.datetime.now(datetime.UTC).isoformat(),
        "processes": [{"process": 0} | began(session) | {"after": environment.moment()}],
        "unmeasured": [case.as_dict() for case in session.unmeasured],
    }


def thin_samples(benchmark: dict[str, Any]) -> None:
    """Thin the raw samples of one of our cases, in place."""
    if KEY in benchmark.get("extra_info", {}) and "data" in benchmark["stats"]:
        benchmark["stats"]["data"] = thin(benchmark["stats"]["data"])


def thin(samples: list[float]) -> list[float]:
    """At most :data:`~gpubench.runfile.schema.SAMPLES_KEPT` samples, evenly spread in time, first and last included."""
    count = len(samples)
    if count <= SAMPLES_KEPT:
        return samples
    last = SAMPLES_KEPT - 1
    return [samples[round(i * (count - 1) / last)] for i in range(SAMPLES_KEPT)]


# Keeps a session's ledger: what it finds, what begins, what came of it.


ORDER = pytest.StashKey[dict[str, int]]()
"""The place of each collected case before the order was shuffled: that of the run file."""
SOURCES = pytest.StashKey[set[Path]]()
"""The files of all cases, those left out by ``--gpubench-only`` too: a process that has none of a file's cases left
measures with the same code."""
_PACKAGE = Path(__file__).resolve().parent.parent
MEASURING_ROOMS = ("devices", "measure", "parallel", "plugin", "runfile", "workloads")
"""Rooms whose code decides what a number means: a run is continued only by the same."""


class Recorder:
    """One measuring process's hand in a ledger. Each event is on disk before anything else happens."""

    def __init__(self, config: pytest.Config, session: Session, path: Path) -> None:
        self.config = config
        self.session = session
        self._earlier = None
        if not config.getoption("--gpubench-ledger"):
            path.unlink(missing_ok=True)  # of an earlier run into the same file
            self._earlier = _stamp(Path(config.getoption("benchmark_json")))
            if not path.parent.is_dir():
                raise UsageError(f"{path.parent}: no such folder, so no run file can be written there")
        self.ledger = Ledger(path)
        self.poisoned = False
        self._outcomes: dict[str, tuple[str, str]] = {}

    def begin(self, items: list[pytest.Item]) -> None:
        """Write down what will be measured, where, and on which terms."""
        cases = [item for item in items if "benchmark" in getattr(item, "fixturenames", ())]
        cases.sort(key=lambda item: self.config.stash[ORDER].get(item.nodeid, 0))
        hook, session = self.config.hook, self.session
        machine: dict[str, Any] = hook.pytest_benchmark_generate_machine_info(config=self.config)
        hook.pytest_benchmark_update_machine_info(config=self.config, machine_info=machine)
        commit = hook.pytest_benchmark_generate_commit_info(config=self.config)
        hook.pytest_benchmark_update_commit_info(config=self.config, commit_info=commit)
        import pytest_benchmark

        fingerprint = self._fingerprint(machine)
        self._require_same(fingerprint)
        self.ledger.append(
            "session",
            process=session.settings.process,
            cases=[item.nodeid for item in cases],
            identities={item.nodeid: case_of(item).as_dict() for item in cases},
            estimated_s=self._estimated_s(cases),
            fingerprint=fingerprint,
            machine_info=machine,
            commit_info=commit,
            datetime=datetime.datetime.now(datetime.UTC).isoformat(),
            version=pytest_benchmark.__version__,
            gpubench=about(session, __version__),
            **began(session),
        )

    def _estimated_s(self, cases: list[pytest.Item]) -> float:
        """Seconds that these cases and the ceilings will take in a run's first process, as ``--list`` foresees it but
        for cases that will be skipped or are slow: those it finds out by counting their work."""
        session = self.session
        own = [case_of(item) for item in cases]
        ranks = sum("gpubench_ranks" in getattr(item, "fixturenames", ()) for item in cases)
        seconds = (len(cases) - ranks) * session.preset.case_s + ranks * RANKS_S
        seconds += COMPILE_S * sum(case.variant == "compile" for case in own)
        if session.settings.ceilings:
            seconds += CEILINGS_S[session.preset.name] * len({case.device for case in session.collected})
        return seconds

    def _require_same(self, now: dict[str, Any]) -> None:
        """Raise UsageError if an earlier session of this ledger was of another machine, torch or code."""
        for event in Follower(self.ledger.path, begin=True).events():
            if event["event"] == "session":
                before = event["fingerprint"]
                if changed := [key for key in before if before[key] != now.get(key)]:
                    told = "; ".join(f"{key} was {before[key]}, is {now.get(key)}" for key in changed)
                    raise UsageError(f"this run can't be continued, its numbers wouldn't belong together: {told}")
                return

    def _fingerprint(self, machine: dict[str, Any]) -> dict[str, Any]:
        """What must be equal for two sessions' numbers to belong to one run."""
        ours = machine[KEY]
        code = hashlib.sha256()
        package = {path for folder in MEASURING_ROOMS for path in (_PACKAGE / folder).rglob("*.py")}
        sources = self.config.stash[SOURCES] | package
        for path in sorted(sources):
            code.update(path.name.encode() + b"\0" + path.read_bytes())
        return {
            "machine": ours["label"],
            "devices": [device["label"] for device in ours["devices"]],
            "torch": (ours["torch"] or {}).get("version"),
            "python": ours["python"],
            "threads": self.session.threads,
            "gpubench": __version__,
            "code": code.hexdigest()[:16],
        }

    def _append(self, event: str, **facts: Any) -> None:
        """Stop the whole session when the disk won't take it: what is measured from now on could not be kept."""
        try:
            self.ledger.append(event, **facts)
        except UsageError as error:
            raise pytest.UsageError(f"gpubench: {error}") from None

    def start(self, item: pytest.Item, case: Case) -> None:
        self._append(
            "start",
            process=self.session.settings.process,
            fullname=item.nodeid,
            name=item.name,
            case=case.as_dict(),
            said=_said(),
        )

    def report(self, item: pytest.Item, when: str, status: str, reason: str, error: BaseException | None) -> None:
        """One phase of a test has ended; after the last the case's result goes to the ledger."""
        if status != OK:
            self._outcomes.setdefault(item.nodeid, (status, reason))
        if type(error).__name__ == "AcceleratorError":
            # The device's context is unusable: every further case of this process would fail.
            self.poisoned = True
            item.session.shouldstop = f"gpubench: a device is unusable in this process ({reason})"
        if when == "teardown":
            self._end(item)

    def _end(self, item: pytest.Item) -> None:
        status, reason = self._outcomes.pop(item.nodeid, (OK, ""))
        facts: dict[str, Any] = {"process": self.session.settings.process, "fullname": item.nodeid}
        stats = getattr(getattr(item, "funcargs", {}).get("benchmark"), "stats", None)
        if status == OK and stats is None:
            status, reason = "skipped", "the test measured nothing"
        if status == OK and stats is not None:
            benchmark = stats.as_dict(include_data=True)
            thin_samples(benchmark)
            benchmark = json.loads(json.dumps(benchmark, default=str))  # parameters may be any object
            self._append("end", **facts, status=status, benchmark=benchmark)
        else:
            rows = [row for row in self.session.unmeasured if row.fullname == item.nodeid]
            case = rows[0].case.as_dict() if rows else None
            self._append("end", **facts, status=status, reason=reason, case=case)

    def finish(self) -> None:
        """The process ends by itself."""
        facts = {"finished": datetime.datetime.now(datetime.UTC).isoformat(), "after": environment.moment()}
        with contextlib.suppress(UsageError):  # whatever was measured is there; the supervisor sees that this isn't
            self.ledger.append("finish", process=self.session.settings.process, poisoned=self.poisoned, **facts)
        self.ledger.close()

    def write_run_file(self, path: Path) -> None:
        """Put the file that pytest-benchmark wrote in its place in one step, or make one if it wrote none.

        It writes none when no case gave a number; ours then says why, case by case.
        """
        if _stamp(path) != self._earlier:
            write(path, json.loads(path.read_text(encoding="utf-8")))
        else:
            from ..runfile.ledger import read_ledger
            from ..runfile.merge import assemble

            write(path, assemble(read_ledger(self.ledger.path)))


def _said() -> int | None:
    """Bytes this process has said so far, if that goes into a file: what it says last, it says after them."""
    try:
        state = os.fstat(2)
    except OSError:
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) else None


def _stamp(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None
