"""Timing from Python and notebooks: people's calls, their results, and a process that is as it was."""

import asyncio
import functools
import math
import shlex
import sys

import numpy as np
import pytest
import torch

import gpubench
from gpubench.commands import notebook
from gpubench.commands.notebook import magic
from gpubench.errors import UsageError
from gpubench.measure import disturbance, probes

pytestmark = pytest.mark.usefixtures("no_ceilings")

QUICK = "--preset smoke --device cpu"
timed = functools.partial(gpubench.time, devices="cpu", preset="smoke")


def measured(*expressions, options="", **names):
    """The results of a magic that measures as little as can be."""
    return magic(f"{QUICK} {options} {shlex.join(expressions)}", None, names)


@pytest.fixture(autouse=True)
def _rough_peaks(monkeypatch):
    """Peaks are measured in no time, and mean nothing."""
    monkeypatch.setitem(probes.EFFORTS, "brief", probes.EFFORTS["smoke"])


def rows(results):
    return results.df.to_dict("records")


PEOPLE_TRY = {
    # a setup and an expression: what comes of it, ok or a part of the reason
    "a product": ("a, b = randn(9, 9), randn(9, 9)", "a @ b", "ok"),
    "in place": ("a = randn(9)", "a.add_(1)", "ok"),
    "in place, a statement": ("a = randn(9)", "a += 1", "ok"),
    "room for the result": ("a, c = randn(9), empty(9)", "torch.add(a, a, out=c)", "ok"),
    "several statements": ("a = randn(9)", "b = a * 2; b.sum()", "ok"),
    "NumPy": ("x = np.ones((9, 9))", "np.linalg.inv(x + np.eye(9))", "ok"),
    "NumPy of tensors": ("a = randn(9, 9)", "np.sort(a)", "ok"),
    "torch's own factories": ("a = torch.randn(9, 9)", "a.softmax(-1)", "ok"),
    "a network": ("net, x = module(lambda: nn.Linear(9, 3)), randn(4, 9)", "net(x)", "ok"),
    "a network made as usual": ("net, x = nn.Sequential(nn.Linear(9, 3), nn.ReLU()), randn(4, 9)", "net(x)", "ok"),
    "autograd": ("a = randn(9).requires_grad_()", "torch.autograd.grad((a * a).sum(), a)", "ok"),
    "backward": ("a = randn(9).requires_grad_()", "(a * a).sum().backward()", "ok"),
    "a list of tensors": ("xs = [randn(9) for _ in range(3)]", "torch.cat(xs)", "ok"),
    "a function of the setup": ("f = lambda x: x * 2; a = randn(9)", "f(a)", "ok"),
    "something random": ("a = randn(999)", "torch.rand_like(a)", "ok"),
    "a wrong shape": ("a, b = randn(2, 3), randn(2, 3)", "a @ b", "mat1 and mat2 shapes cannot be multiplied"),
    "a wrong dtype": ("a, b = randn(3, 3), randint(9, (3, 3))", "a @ b", "expected m1 and m2 to have the same dtype"),
    "a wrong device": ("a = randn(3)", "a.to('xpu')", "XPU enabled: leave out device=, .cuda() and .to(…)"),
    "a wrong device in the setup": ("a = torch.ones(3, device='xpu')", "a + 1", "XPU enabled: leave out device="),
    "a made network": ("f = module(nn.Linear(8, 8))", "f(1)", "write module(lambda: nn.Linear(…)) (in the setup)"),
    "a shape without brackets": ("a = randint(9, 4)", "a + 1", "randint(9, (4,))"),
    "too much memory": ("a = randn(10**7, 10**7)", "a + 1", "needs 400 TB more on cpu"),
    "too much memory in the call": ("a = randn(3)", "a.expand(10**13, 3).clone()", "one tensor would need 120 TB"),
    "a wrong name": ("a = randn(3)", "a.smu()", "AttributeError: 'Tensor' object has no attribute 'smu'"),
    "an error in the setup": ("a = 1 / 0", "a + 1", "ZeroDivisionError: division by zero (in the setup)"),
    "a long error in the setup": ("a = 1; raise ValueError('x' * 999)", "a + 1", "xxx (in the setup)"),
}


@pytest.mark.parametrize("what", PEOPLE_TRY)
def test_what_people_try_gives_a_result_or_says_what_to_do(what):
    setup, text, expected = PEOPLE_TRY[what]
    results = magic(f"{QUICK} --setup {shlex.quote(setup)}", text, {})
    (row,) = rows(results)
    assert expected in (row["status"], row["reason"]) or expected in row["reason"], row["reason"]
    assert "\n" not in (row["reason"] or "")
    shown = str(results)
    assert row["status"] == "ok" or f"time.{text}"[5:] in shown


@pytest.mark.parametrize(
    ("text", "options", "check"),
    [
        ("compiled(a)", "", "passed"),
        ("closure(b)", "", "passed"),
        ("(c * c).sum().backward()", "--setup 'c = a.clone().requires_grad_()'",
         "unchecked: the call returns no tensor and no number to compare"),
    ],
)  # fmt: skip
def test_the_result_says_what_was_checked(text, options, check):
    a, b = torch.ones(9), torch.ones(9, 9)
    functions = {"compiled": torch.compile(lambda x: x * 2 + 1), "closure": lambda x: x @ a}
    (row,) = rows(measured(text, options=options, a=a, b=b, **functions))
    assert row["status"] == "ok"
    assert row["check"].startswith(check)


def test_an_expression_sees_the_callers_variables():
    a = torch.ones(9, 9, dtype=torch.float64)
    row, second = rows(timed(["a @ other", "a - 1"], setup="other = randn(9, 9)"))
    assert second["workload"] == "time.a - 1"
    assert (row["workload"], row["dtype"], row["status"]) == ("time.a @ other", "float64", "ok")
    assert row["flop_per_s"] == pytest.approx(2 * 9**3 / row["time_s"])
    assert a.sum() == 81


def test_what_a_cell_awaits_is_measured_within_the_loop_of_the_notebook():
    async def slowly(x):
        await asyncio.sleep(0)
        return x + 1

    async def cell():
        found = timed("await slowly(a)", setup="a = await slowly(torch.ones(3))"), timed(lambda: asyncio.run(slowly(1)))
        await asyncio.sleep(0)  # the notebook's own loop goes on
        return [row["status"] for each in found for row in rows(each)], asyncio.current_task()

    statuses, task = asyncio.run(cell())
    assert statuses == ["ok", "ok"]
    assert task is not None


def test_a_function_with_arguments_and_sizes():
    made = timed(torch.mm, setup=lambda n: (torch.randn(n, n), torch.randn(n, n)), sizes={"n": [4, 8]})
    network, one = timed(torch.nn.Linear(3, 3), torch.ones(2, 3)), timed(lambda: 1)
    found = [(row["workload"], row.get("n"), row["check"]) for each in (made, network, one) for row in rows(each)]
    assert found == [
        ("time.mm", 4, "passed"), ("time.mm", 8, "passed"), ("time.Linear", None, "passed"),
        ("time.lambda", None, "unchecked: no tensor or array to repeat the call with"),
    ]  # fmt: skip


def test_what_runs_before_each_call_and_which_dtypes_are_options_in_python_too():
    how = {"setup": "b = randn(9)", "each": "a = b.clone()", "dtypes": ["float32", "float64"], "check": False}
    found = timed("a.add_(1)", **how).runs[0].results
    assert [(each.dtype, each.check.status) for each in found] == [("float32", "unchecked"), ("float64", "unchecked")]
    assert "altered" not in {flag.name for each in found for flag in each.flags}


def test_what_makes_no_sense_is_refused():
    for call, message in (
        (lambda: gpubench.time("nobody @ b"), "unknown names nobody, b: make them with setup="),
        (lambda: gpubench.time("a +"), "expression 'a \\+' is not Python"),
        (lambda: gpubench.time("1 + 1", 3), "an expression takes no arguments"),
        (lambda: gpubench.time(3), "expected a function, an expression or a list of expressions, not 3"),
        (lambda: gpubench.time([torch.neg, torch.sin]), "a list is for expressions"),
        (lambda: gpubench.time((torch.neg, torch.sin), 1), "a list is for expressions"),
        (lambda: gpubench.time("1 + 1", device="cpu"), "no option device: write devices="),
        (lambda: gpubench.time("1 + 1", size=3), "no option size: write sizes="),
        (lambda: gpubench.time("1 + 1", processes=3), "no option processes: it measures in this process"),
        (lambda: gpubench.time(torch.neg, setup="a = 1"), "a function's setup is a function"),
    ):
        with pytest.raises(UsageError, match=message):
            call()


def test_ctrl_c_ends_the_cell_and_those_after_it():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpubench.time(interrupt, preset="smoke")


def test_an_object_that_raises_what_it_likes_is_an_argument_like_others():
    class Odd:
        def __getattr__(self, name):
            raise ValueError(name)

    assert gpubench.time(lambda value: 1, Odd(), preset="smoke").df["time_s"][0] > 0


def test_on_a_busy_machine_one_thread_is_chosen_with_a_notice_unless_some_are_asked_for(monkeypatch, capsys):
    """As by ``gpubench time``: 6 µs of work took 16 ms where two threads waited for the scheduler."""
    busy = disturbance.SelfCheck(notice="Measuring with 1 thread")
    monkeypatch.setattr(disturbance.SelfCheck, "of", lambda *_: busy)
    before = torch.get_num_threads()
    (row,) = rows(gpubench.time(torch.neg, torch.ones(9), devices="cpu"))
    assert (row["threads"], capsys.readouterr().err) == (1, "Measuring with 1 thread\n")
    (row,) = rows(gpubench.time(torch.neg, torch.ones(9), devices="cpu", threads=2))
    assert (row["threads"], capsys.readouterr().err) == (2, "")
    assert torch.get_num_threads() == before


def test_the_process_is_as_before(one_thread):
    before = torch.get_num_threads(), torch.get_default_dtype(), list(sys.path)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    (row,) = rows(measured("a + 1", options="--dtype bfloat16 --setup 'a = torch.randn(9)'"))
    assert row["workload"] == "time.a + 1"
    assert torch.rand(1) == expected
    assert (torch.get_num_threads(), torch.get_default_dtype(), list(sys.path)) == before


def test_numpy_gets_the_same_values():
    results = magic(f"'a @ b' 'np.matmul(a, b)' {QUICK}", None, {"a": torch.ones(3, 3), "b": torch.ones(3, 3)})
    assert [(row["workload"], row["implementation"]) for row in rows(results)] == [
        ("time.a @ b", "torch"), ("time.np.matmul(a, b)", "numpy"),
    ]  # fmt: skip
    ratio = rows(results)[0]["time_s"] / rows(results)[1]["time_s"]
    low, high = results.speedup.low, results.speedup.high
    assert low <= ratio <= high or (math.isnan(low) and math.isnan(high))  # on a busy machine nothing is known
    (row,) = rows(measured("x @ x", x=np.ones((3, 3))))
    assert row["status"] == "ok"


class Shell:
    """The part of IPython that an extension gets."""

    def __init__(self):
        self.user_ns, self.magics = {"a": torch.ones(3)}, {}

    def register_magic_function(self, function, kind, name):
        self.magics[name] = kind, function


def test_the_magics(capsys):
    shell = Shell()
    gpubench.load_ipython_extension(shell)
    kind, function = shell.magics["gpubench"]
    assert kind == "line_cell"
    assert rows(function(f"{QUICK} 'a + 1'"))[0]["workload"] == "time.a + 1"
    results = function(f"{QUICK} --size n=2,4 --setup 'b = randn(n)'", "b * 2\n")
    assert [row["n"] for row in rows(results)] == [2, 4]
    assert "n=4" in results._repr_html_()
    for line, message in (
        ("b + 1", "gpubench: unknown name b: make it with setup='b = randn(n, n)', sizes='n=256,1024,4096'"),
        ("", "gpubench time: the following arguments are required: EXPRESSION"),
        ("--sice n=1 a", "gpubench time: unrecognized arguments: --sice: did you mean --size?"),
        ("--output x a", "gpubench: -o, --chart and --processes are for the command"),
        ("'a + 1' --setup 'x", "No closing quotation"),
        ("--device nope a+1", "gpubench: unknown device 'nope'"),
        ("a + 1 --size n=1", "the expression needs quotes: %gpubench 'a + 1' --size n=1"),
        ("pd.Series(a)", "gpubench: unknown name 'pd': import pandas as pd"),
    ):
        assert function(line) is None
        assert message in capsys.readouterr().err
    assert function("--help") is None
    assert "--size NAME=" in capsys.readouterr().out


def test_beside_a_cell_a_line_without_options_is_its_setup(monkeypatch):
    monkeypatch.setattr(notebook, "_measure", lambda timing, args: (list(timing.calls.values()), timing.setup))
    assert magic("b = randn(9)", "-b\n", {}) == (["-b"], "b = randn(9)")
    assert magic("", "-b\n", {"b": 1}) == (["-b"], "")
    for line in ("f('b')  - 'c'", "'a b'.split()", '"{}" * 3', "'a' in ['a']", "('a', 1)"):
        assert magic(line, None, {"f": abs}) == ([line], "")
    for typed in ("'{{}}'.format(b, 1)", 'f"{b}"', "d['a']", "'a b'.split(' ')", "b + 1"):
        assert magic(f"--device cpu {typed}", None, {"b": 1, "d": {}}) == ([typed], "")
        assert magic(f"--setup 'd = {{}}' -v {typed} --threads 1", None, {"b": 1}) == ([typed], "d = {}")
    assert magic("--device cpu 'b + 1' 'b + 2'", None, {"b": 1}) == (["b + 1", "b + 2"], "")
    assert magic("'{}'.format(b) --device cpu", None, {"b": 1}) == (["'{}'.format(b)"], "")
    for line in ("'1 + 1'", "'1 + 1' -v", "'1 + 1' --threads 1", "-v '1 + 1'"):
        assert magic(line, None, {}) == (["1 + 1"], "")


def test_in_a_notebook_of_ipython_the_magics_see_what_was_typed(monkeypatch):
    ipython = pytest.importorskip("IPython.testing.globalipapp").get_ipython()
    ipython.run_line_magic("load_ext", "gpubench")
    with monkeypatch.context() as patch:
        patch.setattr(notebook, "_measure", lambda timing, args: (list(timing.calls.values()), timing.setup))
        ipython.push({"n": 3})
        for line in ('f"{n}{1 + 1}"', "{n}", "'$n'.split()", '"{n}".format(n=n)'):
            assert ipython.run_line_magic("gpubench", line)[0] == [line]
            assert ipython.run_line_magic("gpubench", f"--device cpu {line}")[0] == [line]
        assert ipython.run_cell_magic("gpubench", "b = {n}", "len(b)\n") == (["len(b)"], "b = {n}")
    assert ipython.run_line_magic("gpubench", f"{QUICK} 'torch.ones(3)'") is not None
