"""``gpubench time``: what it understands, what it refuses in a line, and what it measures."""

import argparse
import json
import shlex

import pytest
from inprocess import gpubench

from gpubench.commands.cli import parser
from gpubench.commands.time import benchmark_file_of, parse_sizes
from gpubench.errors import UsageError
from gpubench.runfile.reader import read


def timing(line):
    return benchmark_file_of(parser("time").parse_args(shlex.split(line)))


@pytest.mark.parametrize(
    ("texts", "sizes"),
    [
        ([], []),
        (["n=256,1024"], [(("n",), ((256,), (1024,)))]),
        (["n=64..512"], [(("n",), ((64,), (128,), (256,), (512,)))]),
        (["n=3..20"], [(("n",), ((3,), (6,), (12,)))]),
        (["64,128"], [(("n",), ((64,), (128,)))]),
        (["n=1e3,1_000_000"], [(("n",), ((1000,), (1000000,)))]),
        (["p=0.1,0.5"], [(("p",), ((0.1,), (0.5,)))]),
        (["n=1,2 m=3,4"], [(("n", "m"), ((1, 3), (2, 4)))]),
        (["n=1,2 m=3"], [(("n", "m"), ((1, 3), (2, 3)))]),
        (["n=1,2", "m=3,4"], [(("n",), ((1,), (2,))), (("m",), ((3,), (4,)))]),
    ],
)
def test_sizes(texts, sizes):
    assert parse_sizes(texts) == sizes


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["n=12x"], "'12x' is no number above 0; write n=256,1024,4096 or n=64..8192"),
        (["n="], "'' is no number above 0"),
        (["n=0"], "'0' is no number above 0"),
        ([" "], "write n=256,1024,4096"),
        (["n=9..3"], "the first must not be above the last"),
        (["n=1,2 m=1,2,3"], "as many values each: n has 2"),
        (["n=1", "n=2"], "size n is given twice"),
        (["lambda=1"], "'lambda' can't be the name of a size"),
        (["torch=1"], "'torch' can't be the name of a size"),
        (["n=1..1e14", "m=1..1e5"], "799 sizes: at most 200 are measured at once"),
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
        ("'softmax(a, -1)' --setup 'a = randn(9)'", "unknown function 'softmax': write torch.softmax or F.softmax"),
        ("'a @@ b'", "expression 'a @@ b' is not Python: invalid syntax at 'a @@ b'"),
        ("a --setup 'a = (' ", "--setup is not Python: '(' was never closed"),
        ("'' ", "expression '' is empty: write for example 'a @ b'"),
        ("1 '1 '", "an expression is given twice"),
        ("1 2 --against 3", "--against takes one expression"),
        ("1 --import 'os; rm'", "--import 'os; rm': expected the name of a module"),
    ],
)  # fmt: skip
def test_what_can_not_be_timed_is_refused_with_how(line, message):
    with pytest.raises(UsageError) as error:
        timing(line)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_benchmark_file_is_python_with_all_that_was_asked(tmp_path):
    line = "'a[::2] @ \"b\"' 'np.sin(a)' --setup 'a = 1' --size 'n=1,2 m=3' --size k=4 --dtype tf32 --variant compile"
    path = timing(line).write(tmp_path)
    source = path.read_text()
    compile(source, path.name, "exec")
    assert path.name == "test_time.py"
    assert "parametrize('n,m', [(1, 3), (2, 3)])" in source
    assert "parametrize('k', [4])" in source
    assert "dtypes=('tf32',), variants=('compile',), size='n'" in source
    assert source.count("implementations=('numpy',)") == 1


def test_a_module_makes_names_that_are_not_known_before():
    assert list(timing("'f(x)' --import mine").benchmarks) == ["f(x)"]


SMOKE = ("--preset=smoke", "--no-ceilings", "--device=cpu")


def test_measures_keeps_the_results_and_draws(tmp_path):
    words = ["a @ b", "torch.mm(a, b)", "--setup=a, b = randn(n, n), randn(n, n)", "--size=n=8..32"]
    done = gpubench("time", *words, *SMOKE, "--processes=2", "-o", "mine.json", "--chart=c.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.svg", "mine.json"]
    run = read(tmp_path / "mine.json")
    assert {(each.workload, each.params["n"], each.size) for each in run.results} == {
        (f"time.{text}", n, "n") for text in words[:2] for n in (8, 16, 32)
    }
    assert all(each.check.status == "passed" and each.work.flops == 2 * each.params["n"] ** 3 for each in run.results)
    assert all(len(each.times.processes) == 2 for each in run.results)
    rows = [line.split()[:-1] for line in done.stdout.splitlines() if line.startswith("  a @ b  n=")]
    assert [row[3] for row in rows] == ["n=8", "n=16", "n=32"]
    assert "On the CPU, n=32: torch.mm(a, b) is " in done.stdout
    shown = gpubench("show", "mine.json", cwd=tmp_path)
    reported = gpubench("report", "mine.json", "-o", "out", "--no-charts", cwd=tmp_path)
    assert (shown.returncode, reported.returncode) == (0, 0)
    summary, page = ((tmp_path / "out" / name).read_text() for name in ("summary.md", "report.html"))
    read_by_people = done.stdout, done.stderr, shown.stdout, reported.stdout, summary, page
    assert [text for text in read_by_people if "a @ b" not in text or f"time.{words[0]}" in text] == []


def test_a_benchmark_that_fails_is_a_line_and_exit_code_1(tmp_path):
    done = gpubench("time", "a @ b", "--setup=a, b = randn(2, 3), randn(2, 3)", *SMOKE, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if "a @ b" in line)
    assert line.startswith("a @ b on cpu: error: RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")


def test_where_every_expression_was_skipped_it_ends_with_2_and_the_reason(tmp_path):
    words = ["--setup=a = randn(n)", "--size=n=1e13", "-o=r.json"]
    done = gpubench("time", "a + a", "a * a", *words, *SMOKE, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()[-1:]
    assert line.startswith("gpubench time: nothing was measured: ")
    assert " more on cpu, " in line
    assert {each.status for each in read(tmp_path / "r.json").results} == {"skipped"}
    done = gpubench("time", "a + a", words[0], "--size=n=8,1e13", *SMOKE, cwd=tmp_path)
    assert done.returncode == 0, "one of two sizes was measured"


def test_own_modules_and_numpy(tmp_path):
    (tmp_path / "mine.py").write_text("def twice(x): return x + x\n")
    words = ["twice(a)", "--import=mine", "--setup=a = randn(9)", "--against=a + a", "-o=r.json"]
    done = gpubench("time", *words, *SMOKE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    results = json.loads((tmp_path / "r.json").read_text())["benchmarks"]
    assert [each["extra_info"]["gpubench"]["implementation"] for each in results] == ["torch", "numpy"]
    assert "NumPy" in done.stdout
    assert "time.twice(a), float32" not in done.stdout
    done = gpubench("time", "twice(q + k)", "--import=mine", *SMOKE, cwd=tmp_path)
    assert "unknown names q, k: make them in the setup, for example 'q, k = randn(n, n), randn(n, n)'" in done.stdout
    done = gpubench("time", "f(1)", "--import=nowhere", *SMOKE, cwd=tmp_path)
    assert "can't import nowhere: ModuleNotFoundError: No module named 'nowhere'" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device=cuda:7"], "cuda:7 is not available"),
        (["--device=cuba"], "unknown device 'cuba'"),
        (["-o=no/such/r.json"], "no/such/r.json: no such folder"),
        (["-o=other.txt"], "other.txt: exists already"),
        (["--kind=time"], "--kind is for --chart FILE"),
        (["--chart=c.svg", "--kind=pie"], "argument --kind: invalid choice: 'pie'"),
        (["--processes=0"], "processes must be 1 or more, not 0"),
    ],
)
def test_what_can_not_be_done_ends_with_2_and_a_line(tmp_path, words, message):
    (tmp_path / "other.txt").write_text("mine")
    done = gpubench("time", "torch.ones(3)", "--preset=smoke", "--no-ceilings", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "other.txt").read_text() == "mine"


def test_the_command_line_is_declared():
    args = parser("time").parse_args(["a", "--size=n=1", "--size=m=2"])
    assert isinstance(args, argparse.Namespace)
    assert args.sizes == ["n=1", "m=2"]
