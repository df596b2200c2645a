"""Expressions as functions of what they use."""

import pytest
import torch

from gpubench.errors import UsageError
from gpubench.measure.expression import (
    brought,
    called_names,
    dtype_of,
    function_of,
    made_names,
    on_numpy,
    parse,
    unknown_names,
    used_names,
)


def names(text):
    return used_names(parse(text, "it"))


def call(text, **namespace):
    made = function_of(text, {"torch": torch, **namespace})
    return made, made.function(*made.args, **made.kwargs)


def test_names_are_those_that_are_read_in_their_order():
    assert names("a @ b + a.T") == ["a", "b"]
    assert set(names("x += y")) == {"x", "y"}
    assert made_names(parse("import math as m; a, (b, *c) = f(); d: int = 1; x += 1\nfor i in c: pass", "it")) == set(
        "mabcdi"
    )
    assert made_names(parse("def f(p, *q, r=1): pass\nlambda s: s\ntry: pass\nexcept E as t: pass", "it")) == set(
        "fpqrst"
    )


def test_unknown_names_are_those_that_nothing_makes():
    assert unknown_names(["a = randn(n)", "a @ b"], ["n"]) == ["b"]
    assert unknown_names(["", "[x for x in range(3)] + torch.tolist(F, np)"], []) == []
    assert called_names("f(g(x)) + a.h(1)") == {"f", "g"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a @@ b", "it is not Python: invalid syntax at 'a @@ b'"),
        ("f(", r"it is not Python: '\(' was never closed at 'f\('"),
        ("a = 1\nb = (", r"it is not Python: .* in line 2 at 'b = \('"),
        ("  ", "it is empty"),
        ("a\0b", "it is not Python: "),
    ],
)
def test_what_is_no_python_is_refused_with_the_place(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text, "it")


def test_values_are_arguments_and_functions_are_not():
    a, b = torch.ones(2, 2), torch.ones(2, 2)
    made, result = call("f(a @ b)", a=a, b=b, f=torch.neg)
    assert all(got is wanted for got, wanted in zip(made.args, (a, b), strict=True))
    assert torch.equal(result, -(a @ b))
    network = torch.nn.Linear(2, 2)
    assert call("net(a)", net=network, a=a)[0].args == (network, a)


def test_a_list_of_tensors_is_one_argument():
    parts = [torch.ones(2), torch.zeros(2)]
    made, result = call("torch.cat(parts)", parts=parts)
    assert made.args == (parts,)
    assert result.tolist() == [1, 1, 0, 0]


def test_out_is_a_keyword_unless_it_is_read_too():
    a, c = torch.ones(2), torch.empty(2)
    made, result = call("torch.add(a, a, out=c)", a=a, c=c)
    assert len(made.args) == 1
    assert made.kwargs["out"] is c
    assert result is c
    assert call("torch.add(a, c, out=c)", a=a, c=c)[0].kwargs == {}
    assert call("torch.add(a, a, out=out)", a=a, out=c)[0].kwargs["out"] is c
    assert call("torch.add(out, out, out=c)", out=a, c=c)[0].kwargs == {}


@pytest.mark.parametrize(
    ("text", "result"),
    [("a + 1", 2.0), ("b = a + 1", 2.0), ("a += 1", 2.0), ("b = a * 2; b + 1", 3.0), ("a.add_(1)\n", 2.0)],
)
def test_the_last_statement_gives_the_result(text, result):
    assert float(call(text, a=torch.ones(()))[1]) == result


def test_several_results_and_none():
    assert call("x, y = a, b", a=1, b=2)[1] == (1, 2)
    assert call("for i in range(2): pass")[1] is not None  # the loop's variable
    assert call("if a: pass", a=1)[1] is None


def test_numpy_is_recognised_by_its_name():
    assert on_numpy("np.dot(a, b)")
    assert not on_numpy("a @ b")


def test_a_module_brings_its_public_names():
    names = brought("math")
    assert names["pi"] == names["math"].pi
    with pytest.raises(UsageError, match="can't import nowhere: ModuleNotFoundError"):
        brought("nowhere")


def test_one_dtype_of_all_tensors():
    half, single = torch.ones(1, dtype=torch.float16), torch.ones(1)
    assert dtype_of([half, {"x": half}]) == "float16"
    assert dtype_of([half, single]) is None
    assert dtype_of([torch.nn.Linear(1, 1).to(torch.bfloat16), torch.ones(1, dtype=torch.int64)]) == "bfloat16"
