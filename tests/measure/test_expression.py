"""Expressions as functions of their inputs."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpubench.errors import UsageError
from gpubench.measure import probes
from gpubench.measure.data import dtypes_of
from gpubench.measure.expression import difference_of, expressions, function_of, hints, names_in, parse
from gpubench.measure.fixture import implausible_flags
from gpubench.measure.session import Session, Settings
from gpubench.runfile.schema import Case, Ceilings, Work


def call(text, **namespace):
    function, names, out = function_of(text, {"torch": torch, **namespace})
    return [*names, out], function(*(namespace[name] for name in names), **({"out": namespace[out]} if out else {}))


@pytest.mark.parametrize(
    ("text", "read", "made"),
    [
        ("a @ b + a.T", "ab", ""),
        ("x += y", "xy", "x"),
        ("x[idx].sum()", ["x", "idx"], ""),
        ("import math as m; a, (b, *c) = f(); d = 1\nfor i in c: pass", "fc", "mabcdi"),
        ("def g(p, *q, r=1): return p + t\nlambda s: s\ntry: pass\nexcept E as u: pass", "Et", "gu"),
        ("[x @ y for x, y in zip(a, b)]", ["zip", "a", "b"], ""),
    ],
)
def test_names_that_are_read_in_their_order_and_made(text, read, made):
    assert names_in(text) == (list(read), set(made))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a @@ b", "it is not Python: invalid syntax at 'a @@ b'"),
        ("f(", r"it is not Python: '\(' was never closed at 'f\('"),
        ("a = 1\nb = (", r"it is not Python: .* in line 2 at 'b = \('"),
        ("  ", "it is empty"),
        ("a\0b", "it is not Python: "),
        ("return a", "it is not Python: 'return' outside function"),
        ("+".join("a" * 3000), "it is nested too deeply"),
        ("a" + ".T" * 20_000, "it is nested too deeply"),
        ("def f(): pass", "it makes a function and doesn't call it: move it to the setup"),
        ("f = lambda: x", "it makes a function and doesn't call it: move it to the setup"),
        ("lambda: x + 1", r"it makes a function and doesn't call it: write 'x \+ 1'"),
        (f"lambda: {'+'.join('1' * 490)}", "doesn't call it"),
    ],
)
def test_what_is_no_python_or_never_called_is_refused_with_the_place(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text, "it")
    parse("f = lambda: x + 1", "a setup")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("b = 1 # one\nb + 1", "b = 1; b + 1"),
        ("sum([\n    1,  # one\n    2,\n])", "sum([1, 2])"),
        ("1  +  1", "1 + 1"),
        ("'a # b'", "'a # b'"),
    ],
)
def test_an_expression_of_several_lines_is_named_without_its_comments(text, name):
    assert list(expressions([text]).calls) == [name]


def test_values_are_arguments_and_functions_are_not():
    a, b = torch.ones(2, 2), torch.ones(2, 2)
    names, result = call("f(a @ b)", a=a, b=b, f=torch.neg)
    assert names == ["a", "b", ""]
    assert torch.equal(result, -(a @ b))
    assert call("net(a)", net=torch.nn.Linear(2, 2), a=a)[0] == ["net", "a", ""]
    names, result = call("torch.cat(parts)", parts=[torch.ones(2), torch.zeros(2)])
    assert (names, result.tolist()) == (["parts", ""], [1, 1, 0, 0])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("torch.add(a, a, out=c)", ["a", "c"]),
        ("torch.add(a, c, out=c)", ["a", "c", ""]),
        ("torch.add(a, a, out=out)", ["a", "out"]),
        ("torch.add(out, out, out=c)", ["out", "c", ""]),
    ],
)
def test_out_is_a_keyword_unless_it_is_read_too(text, names):
    a, c = torch.ones(2), torch.empty(2)
    found, result = call(text, **{name: a if name == names[0] else c for name in names if name})
    assert found == names
    assert result is c


@pytest.mark.parametrize(
    ("text", "result"),
    [
        *(("a + 1", 2.0), ("b = a + 1", 2.0), ("a += 1", 2.0), ("b = a * 2; b + 1", 3.0), ("a.add_(1)\n", 2.0)),
        *(
            ("x, y = a, 2", (1, 2)),
            ("with torch.no_grad(): a + 1", 2.0),
            ("for i in range(2): pass", None),
            ("if a: pass", None),
        ),
    ],
)
def test_the_last_statement_gives_the_result(text, result):
    assert call(text, a=torch.ones(()))[1] == result


async def rows(x):
    for row in x:
        yield row


@pytest.mark.parametrize(
    ("text", "result"),
    [
        *(("await f(a)", 2.0), ("[r async for r in rows(a)]", [1.0, 1.0]), ("{r async for r in rows(a) if r}", {1.0})),
        ("async for r in rows(a): pass\nr + 1", 2.0), ("x = await f(a); x + 1", 3.0), ("sum([1 for r in a])", 2),
    ],
)  # fmt: skip
def test_what_is_awaited_gives_its_result(text, result):
    async def f(x):
        return x[0] + 1

    assert call(text, a=[1.0, 1.0], f=f, rows=rows)[1] == result


@pytest.mark.parametrize(
    ("first", "other", "said"),
    [
        ("x.sum()", "x.sum(0)", r"the result has the shape \(4,\), that of it \(\)"),
        ("x + 1", "x * 2", "the result differs from that of it: relative error 0.[0-9]+"),
        ("x > 0", "x >= 0", "differs from that of it: relative error 1"),
        ("x", "(x, x)", "has 2 parts, that of it has 1"),
        ("x.to(torch.bfloat16) * 3", "x * 3", ""),
        ("x + x", "2 * x", ""),
        ("x.sum()", "x.sum().item()", ""),
        ("x / 0", "x / torch.zeros(())", ""),
        ("x.relu_()", "x.relu()", ""),
        ("torch.rand(3)", "torch.rand(3)", ""),
        ("'a'", "x", ""),
        ("1 / 0", "x", ""),
        ("x.tolist() * 99", "x", r"shape \(4, 4\), that of it \(396, 4\)"),
        ("None", "x", ""),
    ],
)
def test_another_result_is_one_of_other_shape_or_values(first, other, said):
    x = torch.arange(16.0).reshape(4, 4) / 3
    calls = [eval(f"lambda: {text}", {"torch": torch, "x": x.clone()}) for text in (other, first)]
    assert re.search(said, difference_of(calls, "it")) if said else difference_of(calls, "it") == ""


@pytest.mark.parametrize(
    ("text", "hint"),
    [("x", "x computes nothing"), ("3.5", "computes nothing"), ("print(x)", "includes printing"), ("x + 1", "")],
)
def test_expressions_without_work_get_a_hint(text, hint):
    found = list(hints([text]))
    assert (len(found), hint in "".join(found)) == (bool(hint), True)


def test_dtypes_are_those_of_tensors_arrays_and_networks():
    half, single = torch.ones(1, dtype=torch.float16), torch.ones(1)
    assert dtypes_of([half, {"x": half}]) == {"float16"}
    assert dtypes_of([half, single, np.ones(1)]) == {"float16", "float32", "float64"}
    network = torch.nn.Linear(1, 1).to(torch.bfloat16)
    assert dtypes_of([network, torch.ones(1, dtype=torch.int64)]) == {"bfloat16", "int64"}
    assert dtypes_of([1.5, "x", np.arange(3)]) == {"int64"}


def test_what_launches_nothing_is_not_implausible(monkeypatch):
    session = Session(Settings())
    vars(session).update(peaks={"cpu": Ceilings(launch_floor_s=1e-3)}, self_check=SimpleNamespace(canary=None))
    monkeypatch.setattr(probes, "measure_ceilings", lambda *_: {})
    case = Case("time.1 + 1", "cpu", "float32", devices=("cpu",))
    for launches, names in ((False, []), (True, ["implausible"])):
        assert [flag.name for flag in implausible_flags(session, case, Work(), 1e-6, launches)] == names
