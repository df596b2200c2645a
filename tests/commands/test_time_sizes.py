"""A range of sizes: which are measured, the size that is found, and the file that keeps it."""

import json
import re
from types import SimpleNamespace

import pytest
from inprocess import gpubench
from records import run

from gpubench.commands.time import Span, further_size, keep, said, span_of
from gpubench.errors import Unmeasurable, UsageError
from gpubench.measure.expression import Timing
from gpubench.plugin.expressions import Expressions, Growth
from gpubench.report.results import Results
from gpubench.runfile import thresholds
from gpubench.runfile.schema import Case

CPU, GPU = "AMD EPYC 9354 32-Core Processor", "NVIDIA L4"
SPAN = Span("n", 10**3, 10**7)


def results(cpu, gpu=lambda n: 1e-5, sizes=(10**3, 10**4, 10**5, 10**6, 10**7), **how):
    return Results([run(processes=1).bench("time.rank(g)", cpu=cpu, gpu=gpu, n=sizes, **how).read()])


SEARCHED = results(lambda n: n / 3e9)  # alike at n = 30,000
FOUND = results(lambda n: n / 3e9, sizes=(10**3, 10**4, 26000, 28000, 30000, 32000, 10**5, 10**6, 10**7))


def test_the_grid_is_measured_and_then_what_halves_the_range():
    assert span_of(["n=1e3..1e7"], 1) == SPAN
    assert SPAN.text == "n=1000,10000,100000,1000000,10000000"
    assert further_size(SEARCHED) == pytest.approx(30_000, rel=0.25)
    assert further_size(FOUND) is None
    assert further_size(results("1 s", "1 ms")) is None
    assert further_size(Results([run().bench("time.rank(g)", cpu="1 s").read()])) is None


@pytest.mark.parametrize("size", ["n=..", "n=1e3..", "n=1e7..1e3", "n=0..5", "n=a..b", "n=1..inf"])
def test_what_is_no_range(size):
    with pytest.raises(UsageError, match=r"write n=1e3\.\.1e7"):
        span_of([size], 1)


def test_a_range_stands_alone():
    assert span_of(["n=1,2"], 3) is None
    for sizes, processes in ((["n=1..9", "m=2"], 1), (["n=1..9"], 3)):
        with pytest.raises(UsageError, match="a range of sizes stands alone"):
            span_of(sizes, processes)


def test_the_size_in_a_sentence():
    assert said(FOUND, SPAN).startswith("Synthetic H is faster from n = 30,000 (2")
    assert said(SEARCHED, SPAN) == "It is unsure from which n Synthetic H is faster, after 5 sizes."
    assert said(results("1 s", "1 ms"), SPAN) == "Synthetic H is always faster, from n = 1,000 to 10,000,000."
    assert said(results("1 ms", "1 s"), SPAN) == "Synthetic H is never faster, from n = 1,000 to 10,000,000."


def test_the_file_that_a_library_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(thresholds, "hardware", lambda: (CPU, (GPU,)))
    path = tmp_path / "thresholds.json"
    assert keep(FOUND, str(path)) == f'{path}: "rank(g)": 30000 for {CPU} + {GPU}; elsewhere the default'
    (entry,) = json.loads(path.read_text())["thresholds"]["rank(g)"]
    assert entry["low"] < 30_000 < entry["high"]
    assert entry["torch"] == "2.13.0+cpu"
    assert thresholds.threshold("rank(g)", default=7, file=path) == 30_000
    keep(results("1 ms", "1 s"), str(path))
    assert json.loads(path.read_text())["thresholds"]["rank(g)"][0]["size"] == "never"
    assert thresholds.threshold("rank(g)", default=7, file=path) == 7


def test_why_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(thresholds, "hardware", lambda: (CPU, ()))
    with pytest.raises(UsageError, match="elsewhere the default holds"):
        keep(FOUND, str(tmp_path / "a.json"))
    with pytest.raises(UsageError, match="no GPU was measured"):
        keep(Results([run().bench("time.a", cpu="1 s").read()]), str(tmp_path / "a.json"))
    assert [*tmp_path.iterdir()] == []


class Taken:
    """Rounds that took so long, of so much work."""

    def __init__(self, seconds, flops, memory):
        self.extra_info = {"gpubench": {"work": {"flops": flops, "bytes": None}, "memory_bytes": memory}}
        self.stats = type("", (), {"stats": type("", (), {"median": seconds})})


def test_a_size_whose_call_would_take_minutes_or_terabytes_isnt_begun():
    products, sums = Growth(), Growth()
    for n in (100, 1000):
        products.note(n, Taken(2e-11 * n**3, 2 * n**3, 12 * n**2))
        sums.note(n, Taken(1e-9, n, 1e6 * n))
        products.require(3000), sums.require(1000)
    with pytest.raises(Unmeasurable, match=r"predicted 20\.0 s a call"):
        products.require(10**4)
    with pytest.raises(Unmeasurable, match=r"predicted to need 1\.00 PB"):
        sums.require(10**9)


def test_sizes_of_a_range_are_measured_from_small_to_large():
    settings = SimpleNamespace(seed=0, process=0)
    attempt = SimpleNamespace(case=Case("time.a", "cpu"))
    items = [SimpleNamespace(sizes={"n": n}, attempt=attempt) for n in (3, 1, 5, 2, 4)]
    measured = Expressions(Timing({}, ascending=True), SimpleNamespace(settings=settings))
    assert [turn[0].sizes["n"] for turn in measured._turns(items)] == [1, 2, 3, 4, 5]


def test_a_range_on_a_simulated_gpu(tmp_path):
    words = "time", "a + b", "--setup=a, b = randn(n), randn(n)", "--size=n=1..3", "--device=demo", "--device=cpu"
    done = gpubench(*words, "-o", "run.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"is never faster, from n = 1 to 3|unsure from which n .* after 3 sizes", done.stdout)  # or busy
    kept = json.loads((tmp_path / "run.json").read_text())["benchmarks"]
    assert sorted(mark["params"]["n"] for mark in kept) == [1, 1, 2, 2, 3, 3]
    refused = gpubench(*words[:-3], "--size=n=1", "--threshold=t.json", cwd=tmp_path)
    assert "--threshold keeps the size that a range finds" in refused.stderr
