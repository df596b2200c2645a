"""One table, drawn for a terminal, Markdown, HTML and CSV."""

import re

import pytest

from gpubench.report.number import MISSING, Number, Sign, State, seconds
from gpubench.report.render import Column, Table, csv_text, escape, markdown, table, terminal

MS = seconds(1e-3)
WIDE = Table("A title", ("name", "time"), (("a long name of a benchmark " * 4, MS), ("b", seconds(0.0125, star=True))))


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_table_is_as_wide_as_the_terminal_at_most(width):
    lines = terminal(WIDE, width)
    assert max(map(len, lines)) <= width
    assert "1.00 ms" in "\n".join(lines)


def test_a_table_whose_numbers_need_more_than_the_terminal_has_is_not_cut_off():
    heads = ("benchmark", *(f"column {i}" for i in range(6)))
    time = seconds(178e-6).noted(" by PyTorch, float32")
    lines = terminal(Table("", heads, (("a long name of a benchmark", *[time] * 6),)), 80)
    assert "\n".join(lines).count("178 µs by PyTorch, float32") == 6
    assert lines[1].startswith("a long name of a ")  # and a name has room for words


@pytest.mark.parametrize("width", [30, 50, 70])
def test_a_name_goes_on_in_the_next_line_at_its_joints_and_never_in_a_number(width):
    name = "test_images.py::TestOps::test_blur[kernel_size-1234567-0.25-bfloat16-n=1048576]"
    lines = terminal(Table("", ("benchmark", "time"), ((name, MS),)), width)
    parts = [line.split("  ")[0] for line in lines[1:]]
    assert "".join(parts) == name
    assert all(any(part in line for line in lines) for part in ("1234567", "0.25", "n=1048576", "bfloat16", "TestOps"))


@pytest.mark.parametrize("width", [20, 40, 70])
def test_no_number_interval_or_word_is_folded(width):
    """Also where another row has words in place of the number, and within a sentence."""
    heads = ("benchmark", "verdict", "interval", "reason")
    change, unknown = Number(1.0, state=State.KNOWN, words="-28.5 … +39.9 %"), Number(words="unknown")
    rows = [("a.b eps=1e-05, dim=-1", "inconclusive", *rest) for rest in ((change, "varies by 7.7 %"), (unknown, ""))]
    lines = terminal(Table("", heads, tuple(rows)), width)
    assert all(any(part in line for line in lines) for part in (str(change), "inconclusive", "7.7 %", "1e-05", "=-1"))


def test_numbers_stand_at_the_right_and_texts_at_the_left():
    head, first, second, *_ = terminal(Table("", ("name", "time"), (("a", MS), ("bc", seconds(0.0123, star=True)))), 40)
    assert (head, first, second) == ("name     time", "a     1.00 ms", "bc     12 ms*")


def test_empty_columns_are_no_columns():
    columns = [Column("n", str), Column("none", lambda _: MISSING), Column("x", lambda n: n * 2)]
    made = table("T", columns, [1, 2])
    assert (made.columns, made.rows) == (("n", "x"), (("1", "2"), ("2", "4")))
    assert table("T", columns, []).rows == ()


@pytest.mark.parametrize(
    "name",
    ["[x](https://evil)", "@somebody", "#1 GH-12", "<img src=x>", "a|b", "`code`", "www.example.org", "$x$", "~~s~~"],
)
def test_no_name_is_a_link_or_a_mention(name):
    plain = re.sub(r"\\.|<!-- -->", " ", escape(name))  # without what is escaped or kept apart
    assert not re.search(r"[\\|`*_\[\]~#$<]|://|@\w|www\.|GH-", plain), plain


def test_a_dash_and_a_star_are_explained_once():
    assert "noisy" in WIDE.footnote
    assert Table("", ("a",), ((MISSING,),)).footnote.startswith("— ")
    assert Table("", ("a",), ((MISSING,),), "— means never.", frozenset({Sign.UNKNOWN})).footnote == "— means never."
    assert Table("", ("a",), (("a * b", "≥ 20×", "—"),)).footnote == ""  # these are texts
    assert Table("", ("a",), ((Number(20.0, state=State.AT_LEAST),),)).footnote == "≥ only a limit is known."


def test_markdown_holds_the_cells_and_nothing_that_acts():
    hostile = Table("<b>", ("a",), (("<script>x</script>|",),), "A note.")
    assert markdown(hostile)[0] == "| a |"
    assert "A note." in markdown(hostile)
    assert "<script>" not in "".join(markdown(hostile))


def test_csv_is_exact():
    columns = [Column("=x", lambda value: value), Column("kind", lambda value: None)]
    assert csv_text(columns, [1.2345678901234568e-05, True, "=1+1", None]) == (
        "'=x,kind\n1.2345678901234568e-05,\ntrue,\n'=1+1,\n,\n"
    )


def test_a_range_without_a_value_is_shown_in_brief_tables_too():
    assert str(Number(low=1.02, high=5.0, state=State.RANGE).brief) == "1.0× to 5.0×"
    assert str(Number(2.0, low=1.9, high=2.2, state=State.KNOWN).brief) == "2.0×"
