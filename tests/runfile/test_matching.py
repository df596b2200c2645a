"""``-k``: a shown name can be typed."""

import pytest

from gpubench.errors import UsageError
from gpubench.runfile.matching import KINDS, matcher, names_of
from gpubench.runfile.schema import Case

NAMES = ["test_matmul.py::test_square[cuda:0-float32-64]", "matmul.square[float32-n=64]", "cuda:0", "parallel"]
NAMES += ["time.torch.add(a[0], f(b))[float32]", "n=10000000", "separator_between_columns=4"]
NAMES += names_of(Case("matmul.square", "cpu", kind="matmul", title="n × n"))

KIND = KINDS["matmul"].words
CHOSEN = [
    "matmul", "matmul.square", "MatMul.Square", "n=64", "cuda:0", "float32-n=64", "matmul.square[float32-n=64]",
    "matmul" + 50_000 * " ",  # took minutes
    "matmul and not float16", "matmul not float16", "conv or square", "(conv or square) and float32", "not(conv)",
    "matmul.square float32, n=64", "matmul.square float32, n = 64", "n = 10⁷",  # as a table shows it
    f"n × n {KIND}", f"{KIND.split()[0]} or networks",
    "time.torch.add(a[0], f(b))", "torch.add(a[0], f(b)) or matmul", "square eager", "separator_…en_columns=4",
]  # fmt: skip
OTHERS = [
    "n=6", "m=64", "not parallel", "conv or square and float16", "not (conv or square)", "networks", "n = 10⁶",
    "matmul.square float16, n=64", "torch.add(a, b)", "not eager", "separator_…en_columns=5",
]  # fmt: skip


@pytest.mark.parametrize("expression", [*CHOSEN, *OTHERS])
def test_names_as_they_are_shown(expression):
    assert matcher(expression)(NAMES) is (expression in CHOSEN)


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
