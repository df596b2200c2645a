"""``gpubench time``: its words, its refusals in a line, and its measurements."""

import json
import re
import shlex
import sys
from types import SimpleNamespace

import psutil
import pytest
from inprocess import gpubench
from records import run as run_of

from gpubench.commands import time
from gpubench.commands.cli import main, parser
from gpubench.commands.time import Span, further_size, keep, said, span_of, timing_of
from gpubench.errors import Unmeasurable, UsageError
from gpubench.measure.expression import Timing, expressions, parse_sizes
from gpubench.plugin.expressions import Expressions, Growth
from gpubench.report.results import Results
from gpubench.runfile import thresholds
from gpubench.runfile.runs import read
from gpubench.runfile.schema import Case
from gpubench.supervise import progress

pytestmark = pytest.mark.usefixtures("no_ceilings")


def timing(line):
    return timing_of(parser("time").parse_args(shlex.split(line)))


@pytest.mark.parametrize(
    ("words", "deadline_s"), [((), 120.0), (("--preset=full",), 600.0), (("--preset=full", "--deadline=7"), 7.0)]
)
def test_the_preset_full_and_deadline_give_an_expression_more_time(monkeypatch, words, deadline_s):
    asked = []

    class Asked(Exception):
        pass

    def supervisor(*terms, **_):
        asked.append(terms[4])
        raise Asked

    monkeypatch.setattr(time, "Supervisor", supervisor)
    with pytest.raises(Asked):
        time.main(parser("time").parse_args(["1 + 1", *words]))
    assert asked == [deadline_s]


def test_an_expression_that_is_stopped_names_the_option_that_allows_more(tmp_path):
    done = gpubench("time", "time.sleep(60)", "--setup=import time", "--deadline=2", "--device=cpu", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("stopped: not finished after 2 s; --deadline 10 waits longer")


def test_sizes():
    found = parse_sizes(["n=64,128", "m=1e3,1_000_000", "p=0.1,0.5"])
    assert found == [("n", (64, 128)), ("m", (1000, 1000000)), ("p", (0.1, 0.5))]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["n=12x"], "'12x' is no number above 0; write n=256,1024,4096"),
        (["8,9"], "write n=256,1024,4096"),
        (["n=" + ",".join(map(str, range(1, 202)))], "201 sizes: at most 200 are measured at once"),
        (["n="], "'' is no number above 0"),
        (["n=0"], "'0' is no number above 0"),
        ([" "], "write n=256,1024,4096"),
        (["n=1", "n=2"], "size n is given twice"),
        (["lambda=1"], "size 'lambda=1': write n=256"),
        (["torch=1"], "size 'torch=1': write n=256"),
        (["benchmark=4"], "size 'benchmark=4': write n=256"),
        (["gpubench_device=4"], "size 'gpubench_device=4': write n=256"),
    ],
)
def test_sizes_that_are_none(texts, message):
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        parse_sizes(texts)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("'a @ b'", "unknown names a, b: make them with --setup 'a, b = randn(n, n), randn(n, n)' --size n=256,1"),
        ("'a @ b' --size k=8", "unknown names a, b: make them with --setup 'a, b = randn(k, k), randn(k, k)'"),
        ("'a @ b' --setup 'a = randn(n)' --size n=8",
         "unknown name b: make it with --setup 'a = randn(n); b = randn(n, n)'"),
        ("a.T --setup 'a = randn(n)'", "unknown name 'n' in the setup: if it is a size, add --size n=256,1024,4096"),
        ("a --setup 'a = torch.randn(9, dtype=float64)'",
         "unknown name 'float64': write torch.float64, or ask for --dtype float64"),
        ("'radn(9)'", "unknown function 'radn': did you mean randn, torch.radn or F.radn? Else make it in the setup"),
        ("'rnad(9)'", "unknown function 'rnad': did you mean rand, torch.rnad or F.rnad?"),
        ("'sort(x)' --setup 'x = 1'", "unknown function 'sort': did you mean sorted, torch.sort or F.sort?"),
        ("a @ b", "put the expression in quotes: 'a @ b'"),
        ("x if y else z --setup 'x = y = z = 1'", "put the expression in quotes: 'x if y else z'"),
        ("a gpubench b", "put the expression in quotes: the shell replaces * by names of files"),
        ("'a @ b --setup a, b = c'", "close the quote before --setup: 'a @ b' --setup a, b = c"),
        ("--size n=64 128 'a @ b'", "--size takes one word: write --size n=64,128"),
        ("'softmax(a, -1)' --setup 'a = randn(9)'", "unknown function 'softmax': write torch.softmax or F.softmax"),
        ("a --setup 'a = (' ", "the setup is not Python: '(' was never closed"),
        ("1 '1 '", "an expression is given twice"),
        ("'pd.Series([1])'", "unknown name 'pd': write 'import pandas as pd' in --setup"),
        ("'json.dumps(x)' --setup 'x = 1'", "unknown name 'json': write 'import json' in --setup"),
        (f"'{'a' * 1001}'", "an expression has 1000 characters at most, not 1001"),
        ("numpy --size n=8", "numpy is a module: write what to call, such as"),
    ],
)  # fmt: skip
def test_what_can_not_be_timed_is_refused_with_how(line, message):
    with pytest.raises(UsageError) as error:
        timing(line)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "texts", [["x[0]", "x[1]"], ["a # b::c", "a # b::d"], ["'x y'", "'x  y'"], ["1" * 100, "1" * 101]]
)
def test_two_expressions_have_two_names(texts):
    calls = expressions(texts, "x = a = 1").calls
    assert (len(calls), list(calls.values())) == (2, texts)


SMOKE = ("--preset=smoke", "--device=cpu")


def timed(folder, *words, code=0):
    """The screen of ``gpubench time``."""
    done = gpubench("time", *words, *SMOKE, cwd=folder)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def test_measures_keeps_the_results_and_draws(tmp_path):
    words = ["a @ b", "torch.mm(a, b)", "--setup=a, b = randn(n, n), randn(n, n)", "--size=n=8,16,32"]
    done = timed(tmp_path, *words, "--processes=2", "-o", "mine.json", "--chart=c.svg", "--gpu=L4")
    assert "modelled, not measured" in done.stdout
    assert " L4" in done.stdout
    rows_of_estimates = r"(a @ b|torch\.mm\(a, b\)) float32, n=\d+  "
    estimated = [line for line in done.stdout.splitlines() if re.match(rows_of_estimates, line)]
    assert len(estimated) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.svg", "mine.json"], done.stderr
    run = read(tmp_path / "mine.json")
    assert {(each.workload, each.params["n"], each.size) for each in run.results} == {
        (f"time.{text}", n, "n") for text in words[:2] for n in (8, 16, 32)
    }
    assert all(each.check.status == "passed" and each.work.flops == 2 * each.params["n"] ** 3 for each in run.results)
    assert all(len(each.times.processes) == 2 for each in run.results)
    rows = [line.split()[:-1] for line in done.stdout.splitlines() if line.startswith("a @ b  n=")]
    assert [row[3] for row in rows] == ["n=8", "n=16", "n=32"]
    assert re.search(r", float32, n=32: torch.mm\(a, b\) (is|can't be told apart) .* a @ b\.", done.stdout)
    shown = gpubench("show", "mine.json", cwd=tmp_path)
    reported = gpubench("report", "mine.json", "-o", "out", "--charts=none", cwd=tmp_path)
    assert (shown.returncode, reported.returncode) == (0, 0)
    summary, page = ((tmp_path / "out" / name).read_text() for name in ("summary.md", "report.html"))
    assert "a\u00a0@ b" in page  # not broken; the search looks for each word
    read_by_people = done.stdout, done.stderr, shown.stdout, reported.stdout, summary
    assert [text for text in read_by_people if "a @ b" not in text or f"time.{words[0]}" in text] == []


@pytest.mark.parametrize(
    ("words", "code", "table", "last"),
    [
        (["a @ b", "--setup=a, b = randn(2, n), randn(2, n)", "--size=n=3,4"], 2, "",
         "gpubench time: a @ b, n=3: RuntimeError: mat1 and mat2 shapes"),
        (["a.t().tolist", "--setup=a = randn(2)"], 2, "", "a.t().tolist names a function and doesn't call it: write '"),
        (["torch.empty_like(a)", "--setup=a = randn(2)"], 2, "", "gpubench.time(…, check=False) in Python times it"),
        (["a.nope()", "a + a", "--setup=a = randn(2)"], 1, "no attribute 'nope'", ""),
        (["a + a", "a * a", "--setup=a = randn(n)", "--size=n=1e13"], 2, "", "needs 40.0 TB more on cpu, "),
        (["a + a", "--setup=a = randn(n)", "--size=n=8,1e13"], 0, "needs 40.0 TB more on cpu, ", ""),
    ],
    ids=["fails", "is not called", "is wrong", "one of two fails", "each is too large", "one size is too large"],
)  # fmt: skip
def test_what_has_no_number_is_a_line_once_and_without_any_the_end(tmp_path, words, code, table, last):
    done = timed(tmp_path, *words, "-o=r.json", code=code)
    assert (tmp_path / "r.json").exists() == (code != 2)
    assert done.stdout.count(table) == 1 if table else done.stdout == ""
    assert last in done.stderr.splitlines()[-1] if last else table not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="no such limit")
@pytest.mark.parametrize("setup", ["torch.ones({n})", "np.ones({n})", "[0] * {n}"])
def test_memory_that_is_not_free_is_refused_before_it_is_filled(tmp_path, setup):
    size = psutil.virtual_memory().available // 7  # of 8 bytes: more than is free, less than there is
    done = timed(tmp_path, "len(a)", f"--setup=a = {setup.format(n=size)}", "--dtype=float64", code=2)
    assert " more on cpu, " in done.stderr


def test_one_number_is_one_line(tmp_path):
    done = timed(tmp_path, "1 + 1")
    assert done.stderr == ""
    head, *star = done.stdout.splitlines()
    assert head.split()[:3] == ["1", "+", "1"]
    assert head.split()[4].rstrip("*") in ("ns", "µs")
    assert len(star) == ("*" in head and "too noisy" not in head)
    whole = timed(tmp_path, "1 + 1", "-v")
    assert "PyTorch" in whole.stdout
    assert "Devices: CPU" in whole.stderr
    assert "[1/1]  1 + 1  CPU " in whole.stderr  # without the dtype that numbers don't have


def test_where_one_number_is_asked_for_the_choice_of_one_thread_is_printed(tmp_path, monkeypatch, capsys):
    made = SimpleNamespace(log=tmp_path / "log", processes=1, events=[], begin=lambda: None)
    made.measure = lambda: made.note({"event": "session", "notices": ["Measuring with 1 thread"]})
    monkeypatch.setattr(time, "Supervisor", lambda *given, **_: setattr(made, "note", given[-1]) or made)
    args = parser("time").parse_args(["1 + 1"])
    time._measured(args, timing_of(args), True, tmp_path)
    assert capsys.readouterr().err == "Measuring with 1 thread\n"


def test_a_long_benchmark_is_named_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "LONG_S", 0.0)
    said = "still working on 1 + 1 (0 s). It stops by itself after 120 s; Ctrl-C stops it now."
    assert timed(tmp_path, "1 + 1").stderr == f"gpubench time: {said}\n"


def test_expressions_with_brackets_are_rows_of_their_own_in_every_reader(tmp_path):
    texts = ["x[0].sum()", "x[:, 0].sum()", "x[::2].sum()", "torch.cat([x, x])"]
    done = timed(tmp_path, *texts, "--setup=x = randn(n, n)", "--size=n=8,16", "-o=i.json")
    run = read(tmp_path / "i.json")
    assert [each.workload for each in run.results[::2]] == [f"time.{text}" for text in texts]
    assert len({each.id for each in run.results}) == 8
    work = {each.workload: each.work.bytes for each in run.results if each.params["n"] == 16}
    assert work["time.x[0].sum()"] is None, "the inputs are read in part"
    assert work["time.torch.cat([x, x])"] == 4 * (16 * 16 + 2 * 16 * 16)
    shown = gpubench("show", "i.json", cwd=tmp_path)
    exported = gpubench("show", "i.json", "--format=csv", cwd=tmp_path)
    for text in texts:
        assert (text in done.stdout, text in shown.stdout, text in exported.stdout.replace('""', '"')) == (True,) * 3
    for text in texts:
        compared = gpubench("compare", "i.json", "i.json", "-k", text, cwd=tmp_path)
        assert compared.stdout.count("n=16") >= 1, compared.stderr
        assert [other for other in texts if other != text and other in compared.stdout] == []


@pytest.mark.parametrize(
    ("setup", "text", "dtype"),
    [("x = np.ones(9)", "x + x", "float64"), ("x = randn(9)", "x + x", "float32"), ("x = 1", "x + x", ""),
     ("x = torch.ones(9, dtype=torch.int32)", "x + x", "int32")],
)  # fmt: skip
def test_the_dtype_is_that_of_the_data(tmp_path, setup, text, dtype):
    timed(tmp_path, text, f"--setup={setup}", "-o=r.json")
    assert [result.dtype for result in read(tmp_path / "r.json").results] == [dtype]
    if dtype == "float64":
        said = timed(tmp_path, text, f"--setup={setup}", "--dtype=bfloat16", code=2).stderr
        assert said == "gpubench time: the data is float64, not bfloat16: make it with randn() or dtype=dtype\n"


def test_what_was_measured_is_printed_although_the_file_can_not_be_written(tmp_path):
    (tmp_path / "sub").mkdir()
    gone = "--setup=import shutil; shutil.rmtree('sub', ignore_errors=True)"
    done = timed(tmp_path, "1 + 1", gone, "-o=sub/r.json", code=2)
    assert "1 + 1" in done.stdout
    assert "sub/r.json: can't be written" in done.stderr


def test_expressions_with_different_results_are_told_apart(tmp_path):
    words = ["x.sort().values", "np.sort(x)", "x.sum(0)", "--setup=x = randn(3, 4)", "-o=r.json"]
    done = timed(tmp_path, *words)
    flags = {each.workload: [flag.seen for flag in each.flags if flag.name == "different-result"]
             for each in read(tmp_path / "r.json").results}  # fmt: skip
    said = "the result has the shape (4,), that of x.sort().values (3, 4)"
    assert list(flags.values()) == [[], [], [said]]
    assert said in done.stdout


def test_an_error_of_the_call_names_the_expression_and_its_size(tmp_path):
    said = timed(tmp_path, "a @ a", "--setup=a = randn(n, 3)", "--size=n=8", code=2).stderr
    assert "gpubench time: a @ a, n=8: RuntimeError: mat1 and mat2" in said
    said = timed(tmp_path, "np.add(x.numpy(), 1)", "--setup=x = randn(9)", code=2).stderr
    assert "an expression with np gets NumPy arrays, so leave out .numpy(), or np" in said


def test_own_modules_and_numpy_beside_torch(tmp_path):
    (tmp_path / "mine.py").write_text("def twice(x): return x + x\n")
    words = ["twice(a)", "np.add(a, a)", "--setup=from mine import twice; a = randn(9)", "-o=r.json"]
    done = timed(tmp_path, *words)
    assert [each.implementation for each in read(tmp_path / "r.json").results] == ["torch", "numpy"]
    assert re.search(r"np\.add\(a, a\) is .* twice\(a\)", done.stdout)


def test_a_setup_for_each_call_and_a_coroutine(tmp_path):
    words = ["--setup=b = np.random.rand(n)", "--each=a = b.copy()", "--size=n=2000", "-o=r.json"]
    timed(tmp_path, "a.sort()", *words)
    (result,) = read(tmp_path / "r.json").results
    assert "altered" not in {flag.name for flag in result.flags}
    assert "altered" in timed(tmp_path, "b.sort()", words[0], words[2], "-v").stdout
    setup = "import asyncio\nasync def f(x):\n    await asyncio.sleep(0.02)\n    return x\nx = randn(4)"
    timed(tmp_path, "await f(x)", f"--setup={setup}", "--each=x = randn(4)", "-o=a.json")
    (result,) = read(tmp_path / "a.json").results
    assert result.times.median_s >= 0.02
    assert "does its work when it is awaited" in timed(tmp_path, "f(x)", f"--setup={setup}", code=2).stderr


# A range of sizes

CPU, GPU = "AMD EPYC 9354 32-Core Processor", "NVIDIA L4"
SPAN = Span("n", 10**3, 10**7)


def swept(cpu, gpu=lambda n: 1e-5, sizes=(10**3, 10**4, 10**5, 10**6, 10**7), **how):
    return Results([run_of(processes=1).bench("time.rank(g)", cpu=cpu, gpu=gpu, n=sizes, **how).read()])


SEARCHED = swept(lambda n: n / 3e9)  # alike at n = 30,000
FOUND = swept(lambda n: n / 3e9, sizes=(10**3, 10**4, 26000, 28000, 30000, 32000, 10**5, 10**6, 10**7))


def test_the_grid_is_measured_and_then_what_halves_the_range():
    assert span_of(["n=1e3..1e7"], 1) == SPAN
    assert SPAN.text == "n=1000,10000,100000,1000000,10000000"
    assert further_size(SEARCHED) == pytest.approx(30_000, rel=0.25)
    assert further_size(FOUND) is None
    assert further_size(swept("1 s", "1 ms")) is None
    assert further_size(Results([run_of().bench("time.rank(g)", cpu="1 s").read()])) is None


@pytest.mark.parametrize(
    ("sizes", "processes", "message"),
    [
        *(
            ([size], 1, "write n=1e3..1e7")
            for size in ("n=..", "n=1e3..", "n=1e7..1e3", "n=0..5", "n=a..b", "n=1..inf")
        ),
        (["n=1..9", "m=2"], 1, "a range of sizes stands alone"),
        (["n=1..9"], 3, "a range of sizes stands alone"),
    ],
)
def test_what_is_no_range_or_not_alone_is_refused(sizes, processes, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        span_of(sizes, processes)
    assert span_of(["n=1,2"], 3) is None


def test_the_size_in_a_sentence():
    assert said(FOUND, SPAN).startswith("Synthetic H is faster from n = 30,000 (2")
    assert said(SEARCHED, SPAN) == "It is unsure from which n Synthetic H is faster, after 5 sizes."
    assert said(swept("1 s", "1 ms"), SPAN) == "Synthetic H is always faster, from n = 1,000 to 10,000,000."
    assert said(swept("1 ms", "1 s"), SPAN) == "Synthetic H is never faster, from n = 1,000 to 10,000,000."


def test_the_file_that_a_library_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(thresholds, "hardware", lambda: (CPU, (GPU,)))
    path = tmp_path / "thresholds.json"
    assert keep(FOUND, str(path)) == f'{path}: "rank(g)": 30000 for {CPU} + {GPU}; elsewhere the default'
    (entry,) = json.loads(path.read_text())["thresholds"]["rank(g)"]
    assert entry["low"] < 30_000 < entry["high"]
    assert entry["torch"] == "2.13.0+cpu"
    assert thresholds.threshold("rank(g)", default=7, file=path) == 30_000
    keep(swept("1 ms", "1 s"), str(path))
    assert json.loads(path.read_text())["thresholds"]["rank(g)"][0]["size"] == "never"
    assert thresholds.threshold("rank(g)", default=7, file=path) == 7


def test_why_no_file_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(thresholds, "hardware", lambda: (CPU, ()))
    assert main(["time", "n + 1", "--size=n=1..3", f"--threshold={tmp_path}/a.json"]) == 2  # before it measures
    assert "a.json can't be written: thresholds are for CPUs and NVIDIA GPUs" in capsys.readouterr().err
    with pytest.raises(UsageError, match="elsewhere the default holds"):
        keep(FOUND, str(tmp_path / "a.json"))
    with pytest.raises(UsageError, match="no GPU was measured"):
        keep(Results([run_of().bench("time.a", cpu="1 s").read()]), str(tmp_path / "a.json"))
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
    items = [SimpleNamespace(sizes={"n": n}, attempt=attempt, conditions="cpu") for n in (3, 1, 5, 2, 4)]
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
