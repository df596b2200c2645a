"""``-k``: what is shown can be typed."""

import pytest

from gpubench.errors import UsageError
from gpubench.runfile.matching import kind_names, matcher

NAMES = ["test_matmul.py::test_square[cuda:0-float32-64]", "matmul.square[float32-n=64]", "cuda:0", "parallel"]
NAMES += ["n=10000000", *kind_names("matmul.square")]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("matmul", True),
        ("matmul.square", True),
        ("MatMul.Square", True),
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
        ("n × n matrix products", True),
        ("matrix or networks", True),
        ("networks", False),
    ],
)
def test_names_as_they_are_shown(expression, expected):
    assert matcher(expression)(NAMES) is expected


@pytest.mark.parametrize(
    ("expression", "expected"), [("sort", False), ("sorting", True), ("irregular access", True), ("gather", True)]
)
def test_of_a_kind_of_work_whole_words_match(expression, expected):
    """``-k sort`` measured thirteen benchmarks of "Sorting, irregular access" besides."""
    assert matcher(expression)(["irregular.gather[float32-n=64]", *kind_names("irregular.gather")]) is expected


@pytest.mark.parametrize("expression", ["", "matmul and and", "(matmul", "matmul)", "not", "or", "not or b", "()"])
def test_a_wrong_expression_is_refused_in_a_line(expression):
    with pytest.raises(UsageError, match=r"^-k '.*': expected [^\n]*$"):
        matcher(expression)
