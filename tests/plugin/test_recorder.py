"""The fingerprint that a resumed run is held against covers all code that measures."""

import contextlib
import shutil
import sys

import pytest
import torch
from sources import lay

from gpubench.measure import disturbance, environment
from gpubench.plugin import recorder
from gpubench.plugin.recorder import MEASURING_ROOMS, PACKAGE_FOLDER, code_hash
from gpubench.runfile.ledger import Ledger, assemble, read_ledger
from gpubench.runfile.runs import read_runs
from gpubench.runfile.schema import CanaryTimes, Parallel

FILES = sorted(
    path.relative_to(PACKAGE_FOLDER).as_posix()
    for folder in MEASURING_ROOMS
    for path in (PACKAGE_FOLDER / folder).rglob("*.py")
)
NEG = "def test_neg(gpubench): gpubench(lambda x: -x, gpubench.randn(4))\n"
WITHOUT_NUMBERS = {"errors", "matching", "version", "supervise"}
"""Modules of the package that a measuring process loads, and that decide no number: texts, names, its own start."""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code") / "gpubench"
    shutil.copytree(PACKAGE_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_byte_of_any_file_that_measures_changes_the_fingerprint(package):
    before, unnoticed = code_hash([], package), []
    for name in FILES:
        path = package / name
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        unnoticed += [name] * (code_hash([], package) == before)
        path.write_bytes(content)
    assert unnoticed == []
    assert code_hash([], package) == before
    assert {"measure/ranks.py", "devices/cuda.py", "measure/probes.py"} <= {*FILES}


def test_a_byte_of_a_benchmark_file_or_of_a_module_beside_it_changes_it_its_folder_and_other_tests_do_not(
    package, tmp_path
):
    hashes = set()
    for folder, text, shared in (("a", "one", "1"), ("b", "one", "1"), ("c", "two", "1"), ("d", "one", "2")):
        lay(tmp_path / folder, {"test_x.py": text, "networks.py": shared, "test_y.py": folder, "y_test.py": folder})
        (tmp_path / folder / ".#x.py").symlink_to("an editor's lock")
        hashes.add(code_hash([tmp_path / folder / "test_x.py"], package))
    assert len(hashes) == 3


CASE = """
import sys, torch
def test_neg(gpubench): gpubench(torch.neg, gpubench.randn(8))
def test_loaded():
    import gpubench.measure.ranks
    print("loaded", *(name for name in sys.modules if name.startswith("gpubench.")))
"""


def test_what_a_measuring_process_loads_is_covered(pytester):
    pytester.makepyfile(test_it=CASE)
    result = pytester.runpytest_subprocess("--gpubench-preset=smoke", "--gpubench-no-ceilings", "-s")
    (line,) = (line for line in result.outlines if "loaded " in line)
    covered = {*MEASURING_ROOMS}
    rooms = {name.split(".")[1] for name in line.split("loaded ")[1].split()}
    assert rooms - covered - WITHOUT_NUMBERS == set(), sys.path


def sessions(journal):
    return [event for event in read_ledger(journal) if event["event"] == "session"]


PEAKS = """
import os, pathlib, torch
def test_crashes_once(gpubench):
    if not pathlib.Path("begun").exists():
        pathlib.Path("begun").touch()
        os._exit(7)
    gpubench(torch.neg, gpubench.randn(8))
"""


def test_a_run_that_goes_on_in_another_process_keeps_its_measured_peaks(bench, pytester):
    path = pytester.path / "run.ledger.jsonl"
    options = ["--gpubench-preset=smoke", f"--gpubench-ledger={path}", "--gpubench-process=0/1"]
    assert [bench(PEAKS, usual=options, apart=True).ret for _ in range(2)] == [7, 0]
    first, second = sessions(path)
    assert second["gpubench"]["ceilings"] == first["gpubench"]["ceilings"] != {}  # measured anew, they would differ
    assert second["estimated_s"] < first["estimated_s"]


LONG = """
import pytest, torch
TEXTS = pytest.mark.parametrize("text", ["x" * 100_000 + end for end in ("a", "b", f"c{'x' * 5000}", f"d{'x' * 5000}")])
@TEXTS
def test_ours(gpubench, text): gpubench(torch.neg, gpubench.randn(8))
@TEXTS
def test_plain(benchmark, text): benchmark(len, text)
@TEXTS
def test_fails(benchmark, text): assert 0
"""


def test_an_id_that_holds_the_data_is_cut_and_differs_from_others(bench, pytester):
    usual, path = ["--gpubench-preset=smoke", "--gpubench-no-ceilings"], pytester.path / "run.ledger.jsonl"
    bench(LONG, usual=[*usual, f"--gpubench-ledger={path}"])
    assert path.stat().st_size < 500_000
    (run,) = read_runs([path])
    assert len({each.fullname for each in run.results}) == len({each.id for each in run.results}) == 12
    bench(LONG, usual=[*usual, "--benchmark-json=run.json", "-k", "ours"], passed=4)
    (run,) = read_runs([pytester.path / "run.json"])
    assert len({each.id for each in run.results}) == 4
    assert (pytester.path / "run.json").stat().st_size < 100_000


JOURNAL = "--gpubench-preset=smoke", "--gpubench-no-ceilings", "--gpubench-ledger=run.ledger.jsonl"
ODD = """
import math, numpy, torch, pytest
class Silent(Exception):
    def __str__(self): raise RuntimeError("no text")
@pytest.mark.parametrize("x", [math.inf, math.nan, pytest.param(10**5000, id="long"), 1.5])
def test_parameter(gpubench, x): gpubench(torch.neg, gpubench.randn(8))
def test_extra(gpubench, benchmark):
    loop = []
    loop.append(loop)
    benchmark.extra_info.update({"nan": math.nan, "odd": {(1, 2): 10**5000, None: {3}}, "loop": loop})
    gpubench.parallel = {"method": "single", "devices": 1, "ideal_speedup": math.inf, "losses": [1.0]}
    gpubench(torch.neg, gpubench.randn(8))
def test_silent(gpubench): raise Silent
@pytest.mark.gpubench(implementations=["numpy"])
def test_library(gpubench): gpubench(numpy.negative, gpubench.numpy(gpubench.randn(8)))
"""


def test_no_value_stops_a_run_and_the_journal_tells_a_reader_what_to_call_a_library(bench, pytester):
    bench(ODD, usual=JOURNAL, name="test_odd", apart=True, passed=6, failed=1)
    events = read_ledger(pytester.path / "run.ledger.jsonl")
    made = assemble(events)
    (run,) = read_runs([pytester.path / "run.ledger.jsonl"])
    params = [result.params["x"] for result in run.results if result.workload == "odd.parameter"]
    assert params == ["inf", "nan", "long", 1.5]
    (trained,) = (result for result in run.results if result.parallel)
    assert trained.parallel == Parallel("single", ideal_speedup=None)
    (silent,) = (result for result in run.results if result.status != "ok")
    assert (silent.workload, silent.reason) == ("odd.silent", "Silent: Silent that has no text")
    assert {event["library"] for event in events if event["event"] == "end"} == {"", "NumPy"}
    assert (len(made["benchmarks"]), len(made["gpubench"]["unmeasured"])) == (6, 1)
    (extra,) = (each["extra_info"] for each in made["benchmarks"] if "nan" in each["extra_info"])
    assert (extra["nan"], extra["odd"]) == (None, {"(1, 2)": "int that has no text", "None": "{3}"})


NAMED = """
import pytest, torch
@pytest.mark.parametrize("n", [1])
def test_first(gpubench, n): gpubench(torch.neg, gpubench.randn(8))
@pytest.mark.parametrize("m", [1])
def test_second(gpubench, m): gpubench(torch.neg, gpubench.randn(8))
"""


@pytest.mark.parametrize(
    ("limit", "most", "refusal"),
    [
        ("MOST_CASES", 1, "2 benchmarks, at most 1 fit in a run with --processes 1: choose some with -k"),
        ("MOST_NAMES", 1, "2 different names of parameters: a table holds 1: choose some benchmarks with -k"),
        ("MOST_PARAMS", 0, "test_first[cpu-float32-1]: 1 parameters: a benchmark may have 0"),
    ],
)
def test_more_than_can_be_read_again_is_refused_before_measuring(bench, pytester, monkeypatch, limit, most, refusal):
    for name, value in (("MOST_CASES", 2), ("MOST_NAMES", 2), ("MOST_PARAMS", 1), (limit, most)):
        monkeypatch.setattr(recorder, name, value)
    ran = bench(NAMED, usual=JOURNAL)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert refusal in ran.said
    assert not list(pytester.path.glob("run*"))


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
def test_ours(gpubench, benchmark):
    gpubench.declare(check=False)(abs, 1)
    benchmark.extra_info["gpubench"]["processes"][0]["median_s"] = 0.0
class Exits(Exception):
    def __str__(self): raise SystemExit
class Noted(Exception):
    __notes__ = 3
def test_exits(benchmark): raise Exits
def test_odd_notes(benchmark): raise Noted
def test_long_note(benchmark):
    error = ValueError("x")
    error.add_note("n\\n" * 999)
    raise error
@pytest.mark.parametrize("data", [list(range(100_000))])
def test_sound(benchmark, data): benchmark(sum, data)
def test_our_sound(gpubench): gpubench.declare(check=False)(abs, 1)
"""


def test_a_result_that_nobody_could_read_costs_its_test_alone_and_says_why(bench, pytester):
    bench(SPOILT, usual=["--benchmark-quiet", *JOURNAL])
    run = assemble(read_ledger(pytester.path / "run.ledger.jsonl"))
    assert [mark["name"].partition("[")[0] for mark in run["benchmarks"]] == ["test_sound", "test_our_sound"]
    assert len(run["benchmarks"][0]["params"]["data"]) == 2000  # data in a parameter would fill the file
    reasons = {row["name"].partition("[")[0]: row["reason"] for row in run["gpubench"]["unmeasured"]}
    assert reasons.pop("test_exits") == "Exits: Exits that has no text"
    assert reasons.pop("test_odd_notes") == "Noted: Noted"
    assert reasons.pop("test_long_note") == f"ValueError: x ({'n ' * 49}"
    assert {reason.partition(": ")[0] for reason in reasons.values()} == {"the result can't be kept"}
    said = {
        "test_negative": "RunFileError: its result: stats.min: expected a number >= 0.0",
        "test_no_extra": "TypeError: 'NoneType' object",
        "test_ours": "extra_info.gpubench.processes[0].median_s",
        "test_cleared": "",
    }
    assert {name: said[name] in reason for name, reason in reasons.items()} == dict.fromkeys(said, True)


def test_a_run_measures_with_one_thread_where_two_are_slower_and_goes_on_with_it(bench, pytester, monkeypatch):
    """All of its processes, whatever they find: their numbers belong together."""
    journal = pytester.path / "journal"
    with contextlib.closing(Ledger(journal)) as ledger:
        ledger.add_event("run", processes=2, options=[], paths=["/test_it.py"])
    options = ["--gpubench-no-ceilings", "--benchmark-max-time=0.001", f"--gpubench-ledger={journal}"]
    monkeypatch.setattr(environment, "set_threads", lambda count=None: count or 2)
    for process, all_s in enumerate((80.0, 0.5)):
        monkeypatch.setattr(disturbance, "canary", lambda threads, all_s=all_s: CanaryTimes(threads, 1.0, all_s))
        bench(NEG, f"--gpubench-process={process}/2", usual=options)
    first, second = sessions(journal)
    assert [each["fingerprint"]["threads"] for each in (first, second)] == [1, 1]
    assert [len(each["notices"]) for each in (first, second)] == [1, 0]
    (benchmark,) = assemble(read_ledger(journal))["benchmarks"]
    assert benchmark["extra_info"]["gpubench"]["threads"] == 1


def test_the_threads_of_a_machine_are_those_that_are_used(bench, pytester):
    """They were asked for before they were set."""
    before = torch.get_num_threads()
    try:
        ran = bench(NEG, f"--gpubench-threads={before + 1}")
    finally:
        torch.set_num_threads(before)
    assert ran.data["machine_info"]["gpubench"]["threads"] == before + 1
