"""The fingerprint that a resumed run is held against covers all code that measures."""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from gpubench.commands.cli import main
from gpubench.errors import UsageError
from gpubench.measure import disturbance, environment, session
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.plugin import recorder
from gpubench.plugin.recorder import (
    MEASURING_ROOMS,
    PACKAGE_FOLDER,
    code_hash,
    require_room,
    require_same,
)
from gpubench.runfile.ledger import Ledger, assemble, read_ledger
from gpubench.runfile.reader import read
from gpubench.runfile.schema import MOST_NAMES, MOST_PARAMS, CanaryTimes, Case

FILES = sorted(
    path.relative_to(PACKAGE_FOLDER).as_posix()
    for folder in MEASURING_ROOMS
    for path in (PACKAGE_FOLDER / folder).rglob("*.py")
)
WITHOUT_NUMBERS = {"errors", "matching", "version", "supervise"}
"""What a measuring process loads of the package that decides no number: texts, names, its own start."""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code") / "gpubench"
    shutil.copytree(PACKAGE_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("name", FILES)
def test_a_byte_of_any_file_that_measures_changes_the_fingerprint(package, name):
    path = package / name
    before, content = code_hash([], package), path.read_bytes()
    path.write_bytes(content + b"\n")
    try:
        assert code_hash([], package) != before
    finally:
        path.write_bytes(content)
    assert code_hash([], package) == before


def test_the_rooms_named_by_their_risk_are_among_them():
    for name in ("workloads/training.py", "parallel/ranks.py", "devices/cuda.py", "measure/probes.py"):
        assert name in FILES


def test_a_byte_of_a_benchmark_file_changes_it_and_its_folder_does_not(package, tmp_path):
    hashes = set()
    for folder, text in (("a", "one"), ("b", "one"), ("c", "two")):
        path = tmp_path / folder / "test_x.py"
        path.parent.mkdir()
        path.write_text(text)
        hashes.add(code_hash([path], package))
    assert len(hashes) == 2


CASE = """
import sys, torch

def test_neg(gpubench):
    gpubench(torch.neg, gpubench.randn(8))

def test_ranks(gpubench, gpubench_ranks):
    from gpubench.parallel import ranks

def test_loaded():
    import gpubench.workloads.training
    print("loaded", *(name for name in sys.modules if name.startswith("gpubench.")))
"""


def test_what_a_measuring_process_loads_is_covered(pytester):
    pytester.makepyfile(test_it=CASE)
    result = pytester.runpytest_subprocess("--gpubench-preset=smoke", "--gpubench-no-ceilings", "-s", "-k", "not ranks")
    (line,) = (line for line in result.outlines if "loaded " in line)
    covered = {*MEASURING_ROOMS}
    rooms = {name.split(".")[1] for name in line.split("loaded ")[1].split()}
    assert rooms - covered - WITHOUT_NUMBERS == set(), sys.path


def test_another_fingerprint_is_refused_by_what_differs(tmp_path):
    path = tmp_path / "ledger"
    require_same(path, {"code": "a"})
    facts = {"process": 0, "cases": [], "machine_info": {}, "gpubench": {}}
    Ledger(path).append("session", fingerprint={"code": "a", "torch": "2"}, **facts)
    require_same(path, {"code": "a", "torch": "2"})
    with pytest.raises(UsageError, match=r"can't be resumed.*: code was a, is b$"):
        require_same(path, {"code": "b", "torch": "2"})


PEAKS = """
import os, pathlib, torch

def test_crashes_once(gpubench):
    if not pathlib.Path("begun").exists():
        pathlib.Path("begun").touch()
        os._exit(7)
    gpubench(torch.neg, gpubench.randn(8))
"""


def test_a_run_that_goes_on_in_another_process_keeps_its_measured_peaks(pytester, forking):
    pytester.makepyfile(test_it=PEAKS)
    path = pytester.path / "run.ledger.jsonl"
    options = [
        "--gpubench-preset=smoke",
        "--gpubench-device=cpu",
        f"--gpubench-ledger={path}",
        "--gpubench-process=0/1",
    ]
    assert [pytester.runpytest_subprocess(*options).ret for _ in range(2)] == [7, 0]
    first, second = (event for event in read_ledger(path) if event["event"] == "session")
    assert second["gpubench"]["ceilings"] == first["gpubench"]["ceilings"] != {}  # measured anew, they would differ
    assert second["estimated_s"] < first["estimated_s"]


def test_what_a_run_will_take_is_estimated_at_the_pace_of_this_machine(pytester, monkeypatch):
    """41 s were promised where other programs had three quarters of the cores, and 2 min 5 s taken."""
    skipped = "import pytest\n@pytest.mark.skip(reason='needs a GPU')\ndef test_gpu(gpubench): pass\n"
    pytester.makepyfile(f"{skipped}import torch\ndef test_it(gpubench): gpubench(torch.neg, gpubench.randn(100))")
    found = {}
    for share in (1.0, 0.25):
        monkeypatch.setattr(session, "core_share", lambda share=share: share)
        path = pytester.path / f"{share}.ledger.jsonl"
        with contextlib.closing(Ledger(path)) as ledger:
            ledger.append("run", processes=1, options=[], paths=[])
        options = "--gpubench-device=cpu", "--gpubench-threads=1", "--gpubench-no-ceilings"
        pytester.runpytest_inprocess(*options, f"--gpubench-ledger={path}")
        (found[share],) = (event for event in read_ledger(path) if event["event"] == "session")
    one_case_s = PRESET_SETTINGS[found[1.0]["gpubench"]["preset"]].case_s
    assert found[0.25]["estimated_s"] == 4 * found[1.0]["estimated_s"] == 4 * one_case_s
    assert found[0.25]["start_cpu_s"] > 3 * found[1.0]["start_cpu_s"]


LIBRARIES = """
import numpy, pytest, torch

@pytest.mark.gpubench(implementations=["torch", "numpy"])
def test_neg(gpubench):
    x = gpubench.randn(8)
    if gpubench.implementation == "numpy":
        gpubench(numpy.negative, gpubench.numpy(x))
    else:
        gpubench(torch.neg, x)
"""


def test_the_journal_tells_a_reader_that_knows_no_library_what_to_call_it(pytester, forking):
    pytester.makepyfile(test_it=LIBRARIES)
    options = ["--gpubench-preset=smoke", "--gpubench-no-ceilings", "--gpubench-device=cpu"]
    pytester.runpytest_subprocess(*options, "--benchmark-json=run.json").assert_outcomes(passed=2)
    ends = [each for each in read_ledger(pytester.path / "run.ledger.jsonl") if each["event"] == "end"]
    assert [each["library"] for each in ends] == ["", "NumPy"]


ODD = """
import math, torch, pytest

class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")

@pytest.mark.parametrize("x", [math.inf, math.nan, pytest.param(10**5000, id="long"), 1.5])
def test_parameter(gpubench, x):
    gpubench(torch.neg, gpubench.randn(8))

def test_extra(gpubench, benchmark):
    loop = []
    loop.append(loop)
    benchmark.extra_info.update({"nan": math.nan, "odd": {(1, 2): 10**5000, None: {3}}, "loop": loop})
    gpubench.parallel = {"method": "single", "devices": 1, "losses": [1.0, math.nan, math.inf]}
    gpubench(torch.neg, gpubench.randn(8))

def test_silent(gpubench):
    raise Silent
"""


def test_no_value_stops_a_run(pytester, forking):
    pytester.makepyfile(test_odd=ODD)
    options = ["--gpubench-preset=smoke", "--gpubench-no-ceilings", "--benchmark-json=run.json"]
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=5, failed=1)
    run = read(pytester.path / "run.json")
    params = [result.params["x"] for result in run.results if result.workload == "odd.parameter"]
    assert params == ["inf", "nan", "x2", 1.5]
    (trained,) = (result for result in run.results if result.parallel)
    assert trained.parallel.losses == [1.0, None, None]
    (silent,) = (result for result in run.results if result.status != "ok")
    assert (silent.workload, silent.reason) == ("odd.silent", "Silent: Silent that has no text")
    made = assemble(read_ledger(pytester.path / "run.ledger.jsonl"))
    assert (len(made["benchmarks"]), len(made["gpubench"]["unmeasured"])) == (5, 1)
    (extra,) = (each["extra_info"] for each in made["benchmarks"] if "nan" in each["extra_info"])
    assert (extra["nan"], extra["odd"]) == (None, {"(1, 2)": "int that has no text", "None": "{3}"})


TAMPERED = """
import pytest

@pytest.mark.parametrize("place", [-1, None])
def test_plain(benchmark, place):
    benchmark(abs, 1)
    if place:
        benchmark.stats.stats.data.append(-5.0)

@pytest.mark.parametrize("place", [-1, None])
def test_ours(gpubench, benchmark, place):
    gpubench(abs, 1, check=False)
    if place:
        benchmark.extra_info["gpubench"]["processes"][0]["median_s"] = 0.0
"""


@pytest.mark.parametrize("supervised", [False, True])
def test_what_no_reader_takes_costs_one_case_and_not_the_file(pytester, supervised):
    pytester.makepyfile(test_odd=TAMPERED)
    supervised_by = ["--gpubench-ledger=run.ledger.jsonl"] if supervised else ["--benchmark-json=run.json"]
    pytester.runpytest_inprocess("--gpubench-preset=smoke", "--gpubench-no-ceilings", *supervised_by)
    assert main(["recover", "run.ledger.jsonl", "-o", "made.json"]) == 0
    for name in ("made.json",) if supervised else ("run.json", "made.json"):
        statuses = {
            (each.workload, each.params.get("place")): each.status for each in read(pytester.path / name).results
        }
        assert sorted(statuses.values()) == ["error", "error", "ok", "ok"]
    reasons = [row["reason"] for row in json.loads(Path("made.json").read_text())["gpubench"]["unmeasured"]]
    places = ("stats.min", "extra_info.gpubench.processes[0].median_s")
    assert [place in reason for place, reason in zip(places, reasons, strict=True)] == [True, True]


def test_more_benchmarks_than_can_be_read_again_are_refused_before_measuring(pytester, monkeypatch):
    monkeypatch.setattr(recorder, "MOST_CASES", 1)
    pytester.makepyfile(test_it=CASE)
    result = pytester.runpytest_inprocess("--gpubench-preset=smoke", "--benchmark-json=run.json", "-k", "neg or ranks")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "2 benchmarks, at most 1 fit in a run with --processes 1: choose some with -k" in result.stderr.str()


NAMED = """
import pytest, torch

@pytest.mark.parametrize("n", [1])
def test_first(gpubench, n):
    gpubench(torch.neg, gpubench.randn(8))

@pytest.mark.parametrize("m", [1])
def test_second(gpubench, m):
    gpubench(torch.neg, gpubench.randn(8))
"""


def test_more_names_of_parameters_than_a_table_holds_are_refused_before_measuring(pytester, monkeypatch):
    monkeypatch.setattr(recorder, "MOST_NAMES", 1)
    pytester.makepyfile(test_it=NAMED)
    result = pytester.runpytest_inprocess("--gpubench-preset=smoke", "--benchmark-json=run.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    refusal = "2 different names of parameters: a table holds 1: choose some benchmarks with -k"
    assert refusal in result.stderr.str()
    assert not list(pytester.path.glob("run*"))


def test_what_fits_in_a_table_is_what_a_report_accepts():
    names = [f"p{i}" for i in range(MOST_NAMES)]
    cases = {name: Case("a.b", "cpu", params={name: 1}) for name in names}
    require_room(cases, 3)
    with pytest.raises(UsageError, match=f"{MOST_NAMES + 1} different names of parameters"):
        require_room(cases | {"more": Case("a.b", "cpu", params={"more": 1})}, 3)
    require_room({"a": Case("a.b", "cpu", params=dict.fromkeys(names[:MOST_PARAMS], 1))}, 3)
    with pytest.raises(UsageError, match=f"a: {MOST_PARAMS + 1} parameters: a benchmark may have {MOST_PARAMS}"):
        require_room({"a": Case("a.b", "cpu", params=dict.fromkeys(names[: MOST_PARAMS + 1], 1))}, 3)


PLAIN = ("--gpubench-preset=smoke", "--gpubench-no-ceilings", "--benchmark-json=run.json")


def of_a_killed_session(journal):
    journal.write_text("".join(line for line in journal.read_text().splitlines(True) if '"finish"' not in line))


def of_a_run(journal):
    run = {"event": "run", "schema_version": 1, "processes": 1, "options": [], "paths": ["/b"]}
    journal.write_text(json.dumps(run) + "\n" + journal.read_text())


def whose_results_were_never_written(journal):
    (journal.parent / "run.json").unlink()


def that_cant_be_read(journal):
    journal.write_text("mine\n")


def that_is_a_link(journal):
    journal.unlink()
    journal.symlink_to("nowhere")


KEPT = [of_a_killed_session, of_a_run, whose_results_were_never_written, that_cant_be_read, that_is_a_link]


@pytest.mark.parametrize("make", KEPT, ids=[make.__name__ for make in KEPT])
def test_a_journal_that_is_in_the_way_is_kept(pytester, make):
    pytester.makepyfile(test_it="def test_neg(gpubench):\n    gpubench(abs, 1, check=False)\n")
    journal, kept = pytester.path / "run.ledger.jsonl", pytester.path / "run.1.ledger.jsonl"
    pytester.runpytest_inprocess(*PLAIN)
    make(journal)
    before = os.readlink(journal) if journal.is_symlink() else journal.read_text()
    result = pytester.runpytest_inprocess(*PLAIN)
    assert (os.readlink(kept) if kept.is_symlink() else kept.read_text()) == before
    assert "gpubench: run.ledger.jsonl was there before and is now run.1.ledger.jsonl" in result.outlines
    assert "finish" in journal.read_text()


def test_the_journal_of_a_session_whose_results_are_written_goes(pytester):
    pytester.makepyfile(test_it="def test_neg(gpubench):\n    gpubench(abs, 1, check=False)\n")
    for _ in range(2):
        assert "was there before" not in pytester.runpytest_inprocess(*PLAIN).stdout.str()
    assert [path.name for path in pytester.path.glob("*.jsonl")] == ["run.ledger.jsonl"]


SPOILT = """
import pytest

def test_cleared(benchmark):
    benchmark(sum, (1, 2))
    benchmark.stats.stats.data.clear()

def test_negative(benchmark):
    benchmark(sum, (1, 2))
    benchmark.stats.stats.data.append(-5.0)

def test_no_extra(benchmark):
    benchmark(sum, (1, 2))
    benchmark.extra_info = None

class Exits(Exception):
    def __str__(self):
        raise SystemExit

def test_exits(benchmark):
    raise Exits

def test_sound(benchmark):
    benchmark(sum, (1, 2))
"""


def test_a_result_that_nobody_could_read_costs_its_test_alone_and_says_why(pytester):
    pytester.makepyfile(test_it=SPOILT)
    journal = pytester.path / "journal"
    pytester.runpytest_inprocess("--gpubench-preset=smoke", f"--gpubench-ledger={journal}", "--benchmark-quiet")
    run = assemble(read_ledger(journal))
    assert [benchmark["name"] for benchmark in run["benchmarks"]] == ["test_sound"]
    reasons = {row["name"]: row["reason"] for row in run["gpubench"]["unmeasured"]}
    negative = "RunFileError: its result: stats.min: expected a number >= 0.0"
    assert reasons.pop("test_negative") == f"the result can't be kept: {negative}"
    assert reasons.pop("test_no_extra").startswith("the result can't be kept: TypeError: 'NoneType' object")
    assert reasons.pop("test_cleared").startswith("the result can't be kept: ")
    assert reasons.pop("test_exits") == "Exits: Exits that has no text"
    assert reasons == {}


def test_a_run_measures_with_one_thread_where_two_are_slower_and_goes_on_with_it(pytester, monkeypatch):
    """All of its processes, whatever they find: their numbers belong together."""
    pytester.makepyfile(test_it="def test_neg(gpubench):\n    gpubench(lambda x: -x, gpubench.randn(4))\n")
    journal = pytester.path / "journal"
    ledger = Ledger(journal)
    ledger.append("run", processes=2, options=[], paths=["/test_it.py"])
    ledger.close()
    options = ["--gpubench-device=cpu", "--gpubench-no-ceilings", "--benchmark-max-time=0.001", "--benchmark-quiet"]
    monkeypatch.setattr(environment, "set_threads", lambda count=None: count or 2)
    for process, all_s in enumerate((80.0, 0.5)):
        monkeypatch.setattr(disturbance, "canary", lambda threads, all_s=all_s: CanaryTimes(threads, 1.0, all_s))
        pytester.runpytest_inprocess(*options, f"--gpubench-ledger={journal}", f"--gpubench-process={process}/2")
    first, second = (event for event in read_ledger(journal) if event["event"] == "session")
    assert [each["fingerprint"]["threads"] for each in (first, second)] == [1, 1]
    assert [len(each["notices"]) for each in (first, second)] == [1, 0]
    (benchmark,) = assemble(read_ledger(journal))["benchmarks"]
    assert benchmark["extra_info"]["gpubench"]["threads"] == 1


def test_the_threads_of_a_machine_are_those_that_are_used(pytester):
    """They were asked for before they were set."""
    pytester.makepyfile(test_it="def test_neg(gpubench):\n    gpubench(lambda x: -x, gpubench.randn(4))\n")
    journal, before = pytester.path / "journal", torch.get_num_threads()
    options = ["--gpubench-preset=smoke", f"--gpubench-threads={before + 1}", "--gpubench-no-ceilings"]
    try:
        pytester.runpytest_inprocess(*options, f"--gpubench-ledger={journal}")
    finally:
        torch.set_num_threads(before)
    (session,) = (event for event in read_ledger(journal) if event["event"] == "session")
    assert session["machine_info"]["gpubench"]["threads"] == session["fingerprint"]["threads"] == before + 1
