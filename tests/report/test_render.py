"""Tables on a terminal: where cells are broken."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from gpubench.report import render
from gpubench.report.render import Summary, Table

HEAD = ("workload", "a note of several words", "speedup")
BODY = ("distributed.all_reduce", "why this is so, at some length, with reasons", "1.12× (0.543×–2.32×)")


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (22, ["distributed.all_reduce"]),
        (18, ["distributed.all_", "reduce"]),
        (12, ["distributed.", "all_reduce"]),
        (4, ["dist", "ribu", "ted.", "all_", "redu", "ce"]),
    ],
)
def test_a_name_is_broken_where_it_has_a_joint(width: int, lines: list[str]) -> None:
    assert render.wrap_cell("distributed.all_reduce", width).split("\n") == lines


def test_a_number_stays_in_one_piece() -> None:
    assert render.wrap_cell("1.12× (0.543×–2.32×)", 15).split("\n") == ["1.12×", "(0.543×–2.32×)"]
    assert render.wrap_cell("1.12× (0.543×–2.32×)", 9).split("\n") == ["1.12×", "(0.543×–", "2.32×)"]


def test_a_number_keeps_its_unit() -> None:
    cells = render.fit_columns([("rate", "note"), ("2.27 TFLOP/s", "many words " * 9)], 40)[1]
    assert cells[0] == "2.27 TFLOP/s"
    assert render.wrap_cell("2.27 TFLOP/s", 8).split("\n") == ["2.27", "TFLOP/s"]


def test_names_and_numbers_come_before_prose() -> None:
    """Which is broken at spaces as often as it takes."""
    (_, cells) = render.fit_columns([HEAD, BODY], 60)
    assert cells[0] == BODY[0]
    assert "(0.543×–2.32×)" in cells[2].split("\n")
    assert max(map(len, cells[1].split("\n"))) < len(BODY[1])


@pytest.mark.parametrize("width", [10, 40, 80, 120, 300])
def test_a_table_is_as_wide_as_the_terminal_at_most(width: int) -> None:
    stream = io.StringIO()
    render.show_summary(Summary((Table("A table", HEAD, (BODY, ("", "", "—"))),)), Console(file=stream, width=width))
    assert max(map(len, stream.getvalue().splitlines())) <= width


@pytest.mark.parametrize(
    ("name", "markdown"),
    [
        ("https://a.example/x", "https:<!-- -->//a.example/x"),
        ("www.a.example", "www<!-- -->.a.example"),
        ("@someone", "@<!-- -->someone"),
        ("a@b.example", "a@<!-- -->b.example"),
        ("GH-12, #12", "GH<!-- -->-12, \\#12"),
        ("a @ b: c", "a @ b: c"),
    ],
)
def test_no_name_is_a_link_or_a_mention(name: str, markdown: str) -> None:
    assert render.escape(name) == markdown


def test_a_terminal_of_plain_letters_gets_signs_that_it_has() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    table = Table("T", ("n ≈ 10⁷", "speedup"), (("✓ worth it", "12× (3.0–20×)"), ("名", "±1 µs →")), "a — b")
    render.show_summary(Summary((table,), lead=("125× on networks…",)), Console(file=stream, width=80))
    stream.flush()
    words = raw.getvalue().decode("ascii")
    for shown in ("n ~ 10^7", "+ worth it", "12x (3.0-20x)", "+-1 us ->", "a - b", "125x on networks..."):
        assert shown in words
    assert words.count("?") == 1  # the name that no ASCII sign stands for


@pytest.mark.parametrize("columns", ["abc", "0", "-5", "90"])
def test_a_terminal_that_says_nonsense_of_its_width_has_one(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    render.show_summary(Summary((Table("A table", HEAD, (BODY,)),), lead=("ten words",)))
    assert BODY[0] in capsys.readouterr().out


def test_the_width_of_columns_holds_in_a_pipe_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    render.show_summary(Summary((), lead=("word " * 40,)))
    assert max(len(line.rstrip()) for line in capsys.readouterr().out.splitlines()) <= 50


def test_three_lines_of_warnings_and_how_many_more() -> None:
    warnings = ("one two three four five six", "short", "again one two three four five", "last")
    assert render.warning_lines(warnings, 30) == [
        "WARNING: one two three four",
        "  five six",
        "WARNING: short",
        "and 2 more: see summary.md",
    ]
    assert len(render.warning_lines(warnings[:1], 14)) > 3  # the first is never cut


def test_a_dash_and_a_star_are_explained_once() -> None:
    rows = (("—", "8.0× (7× to 9×)*"), ("a*b", "—"))
    assert render.footnote(Table("T", ("a", "b"), rows)) == "— not known or not measured. * noisy: may be far off."
    assert render.footnote(Table("T", ("a", "b"), rows, "— never. * flagged.")) == "— never. * flagged."
    assert render.footnote(Table("T", ("a", "b"), (("a*b", "c*"),))) == ""
    assert "not known" in render.html_table(Table("T", ("a", "b"), rows))[-1]


EVIL = ("a|b@c.d", "<script>x</script>", "`c`_ *d* :role:`e`")


def test_a_table_as_rst_has_nothing_that_acts() -> None:
    lines = render.rst_table(Table("T", ("one", "two", "three"), (EVIL,), "note"))
    assert lines[:3] == [".. list-table:: T", "   :header-rows: 1", ""]
    assert lines[3:6] == ["   * - one", "     - two", "     - three"]
    assert lines[6:9] == [
        r"   * - a\|b\@c.d",
        r"     - \<script\>x\</script\>",
        r"     - \`c\`\_ \*d\* \:role\:\`e\`",
    ]
    assert lines[9:] == ["", "note"]


def test_a_table_as_html_has_nothing_that_acts() -> None:
    text = "\n".join(render.html_table(Table("<T>", ("one", "two", "three"), (EVIL,))))
    assert "<caption>&lt;T&gt;</caption>" in text
    assert "<td>&lt;script&gt;x&lt;/script&gt;</td>" in text
    assert "<script>" not in text
