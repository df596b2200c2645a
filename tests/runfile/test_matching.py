"""``-k``: what is shown can be typed."""

import pytest

from gpubench.errors import UsageError
from gpubench.runfile.kinds import KINDS, names_of
from gpubench.runfile.matching import matcher
from gpubench.runfile.schema import Case

NAMES = ["test_matmul.py::test_square[cuda:0-float32-64]", "matmul.square[float32-n=64]", "cuda:0", "parallel"]
NAMES += ["time.torch.add(a[0], f(b))[float32]", "n=10000000"]
NAMES += names_of(Case("matmul.square", "cpu", kind="matmul", title="n × n"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("matmul", True),
        ("matmul.square", True),
        ("MatMul.Square", True),
        ("matmul" + 50_000 * " ", True),  # took minutes
        ("n=64", True),
        ("n=6", False),
        ("m=64", False),
        ("cuda:0", True),
        ("float32-n=64", True),
        ("matmul.square[float32-n=64]", True),
        ("not parallel", False),
        ("matmul and not float16", True),
        ("conv or square", True),
        ("conv or square and float16", False),
        ("(conv or square) and float32", True),
        ("not (conv or square)", False),
        ("matmul.square float32, n=64", True),  # as a table shows it
        ("matmul.square float16, n=64", False),
        ("matmul.square float32, n = 64", True),
        ("n = 10⁷", True),
        ("n = 10⁶", False),
        ("matmul not float16", True),
        (f"n × n {KINDS['matmul'].words}", True),
        (f"{KINDS['matmul'].words.split()[0]} or networks", True),
        ("networks", False),
        ("time.torch.add(a[0], f(b))", True),
        ("torch.add(a[0], f(b)) or matmul", True),
        ("torch.add(a, b)", False),
        ("not(conv)", True),
    ],
)
def test_names_as_they_are_shown(expression, expected):
    assert matcher(expression)(NAMES) is expected


@pytest.mark.parametrize(
    ("expression", "expected"), [("sort", False), ("sorting", True), ("irregular access", True), ("gather", True)]
)
def test_of_a_kind_of_work_whole_words_match(expression, expected):
    """``-k sort`` measured thirteen benchmarks of "Sorting, irregular access" besides."""
    assert matcher(expression)(["irregular.gather[float32-n=64]", "Gather", "Sorting and irregular access"]) is expected


@pytest.mark.parametrize("expression", ["", "matmul and and", "(matmul", "matmul)", "not", "or", "not or b", "()"])
def test_a_wrong_expression_is_refused_in_a_line(expression):
    with pytest.raises(UsageError, match=r"^-k '.*': expected [^\n]*$"):
        matcher(expression)
