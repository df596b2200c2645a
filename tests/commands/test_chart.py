"""``gpubench chart``: the picture that it draws, and its refusals in one line."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import records
import suites
from records import sweep

from gpubench.commands import cli


@pytest.fixture
def run(tmp_path):
    one = records.run(ceilings={name: records.ceilings(name) for name in ("cpu", "cuda:0")})
    for name, dtype in (("matmul.square", "float32"), ("mine.work", "float32"), ("matmul.square", "float64")):
        sweep(name, one=one, cpu=1e-4, gpu=1e-6, dtype=dtype, copies=1e-4, flops=2e6, bytes=1e5)
    return one.save(tmp_path / "run.json")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "picture.svg"


def chart(*words: str | Path) -> int:
    return cli.main(["chart", *map(str, words)])


def words_of(path: Path) -> str:
    """Its title, its description and every text in it."""
    return " ".join(" ".join(ET.fromstring(path.read_text()).itertext()).split())


@pytest.mark.parametrize("suffix", [".svg", ".PNG"])
@pytest.mark.parametrize("kind", ["headline", "speedup", "rate", "time"])
def test_each_kind_is_one_file(run, out, kind, suffix, capsys):
    out = out.with_suffix(suffix)
    assert chart(run, "--kind", kind, "-o", out) == 0
    assert capsys.readouterr().out == f"{out}\n"
    first = out.read_bytes()
    assert first.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    assert chart(run, "--kind", kind, "-o", out) == 0
    assert out.read_bytes() == first


def test_a_file_that_is_read_or_isn_t_ours_is_not_replaced(run, tmp_path, capsys):
    """Whatever the way it is named."""
    notes = tmp_path / "notes.svg"
    notes.write_text("mine")
    for command in (["chart", str(run)], ["time", "1+1", "--chart"], ["time", "1+1"]):
        option = [] if command[-1] == "--chart" else ["-o"]
        assert [cli.main([*command, *option, str(path)]) for path in (run, notes)] == [2, 2]
    assert capsys.readouterr().err.count("exists already") == 6
    assert notes.read_text() == "mine"


def test_without_a_kind_it_is_the_first_picture_of_a_report(run, tmp_path, out):
    assert chart(run, "-o", tmp_path / "a.svg") == chart(run, "--kind", "headline", "-o", out) == 0
    assert (tmp_path / "a.svg").read_bytes() == out.read_bytes()
    run.write_text(json.dumps(records.gpu_run(3)))
    assert chart(run, "-o", out) == 0
    assert "Synthetic H" in words_of(out)


def test_title_and_theme(run, out):
    words = ("--title", "A <b>title</b>", "--theme", "dark")
    assert chart(run, "--kind", "speedup", "-k", "mine", *words, "-o", out) == 0
    for text in ("A &lt;b&gt;title&lt;/b&gt;", "#0d1117"):
        assert text in out.read_text()
    assert "mine.work" in words_of(out)  # what was measured


def test_other_pictures_that_match_are_listed(run, out, capsys):
    assert chart(run, "--kind", "speedup", "-k", "matmul or mine", "-o", out) == 0
    (line,) = capsys.readouterr().err.splitlines()
    drew, _, others = line.partition("draws another one: ")
    assert "Speedup by size" in drew
    assert "mine.work" in others
    assert "mine.work" in words_of(out)
    assert chart(run, "--kind", "speedup", "-k", "mine and not n=1", "-o", out) == 0
    assert capsys.readouterr().err == ""
    assert (">1<" in out.read_text(), ">100<" in out.read_text()) == (False, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--kind", "speedup", "-k", "cpu"),
         ("speedup picture: it takes three values over a size, on two devices", "these results make headline, rate")),
        (("--kind", "rate", "-k", "resnet"), ("resnet", "matmul.square, mine.work")),
        (("--kind", "rate", "-o", "picture.gif"), (".svg or .png",)),
        (("--kind", "nonsense"),
         ("unknown kind 'nonsense': choose headline, speedup, rate, time, scaling",)),
        (("--kind", "scaling"),
         ("it takes three benchmarks that each use several devices at once; these results make headline",
          ", time\n")),
    ],
)  # fmt: skip
def test_one_line_names_what_there_is(run, out, words, named, capsys):
    assert chart(run, "-o", out, *words) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert all(each in captured.err for each in named), captured.err
    assert not captured.out
    assert not out.exists()


@pytest.mark.parametrize("kind", ["time", "speedup", "rate", None])
def test_results_without_a_time_say_so_and_why(tmp_path, out, capsys, kind):
    gone = records.run().skip("a.b", "error", "wrong result: off", n=8).save(tmp_path / "gone.json")
    assert chart(gone, "-o", out, *(("--kind", kind) if kind else ())) == 2
    assert capsys.readouterr().err.endswith("and here no benchmark has a time (error: wrong result: off)\n")


def test_of_one_benchmark_by_default_the_sizes_are_drawn(run, out):
    assert chart(run, "-k", "mine", "-o", out) == 0
    assert "mine.work: speedup of" in words_of(out)
    assert chart(run, "-k", "mine and not n=1", "-o", out) == 0  # with copies there are four values
    assert chart(run, "-k", "mine and n=1", "-o", out) == 0
    assert "At its largest size" in words_of(out)


def test_no_picture_estimates_work_that_is_unknown(tmp_path, out, capsys):
    (tmp_path / "plain.json").write_text(json.dumps(suites.plain(suites.run_file())))
    assert chart(tmp_path / "plain.json", "--kind", "estimate", "-o", out) == 2
    assert "no estimate picture: nothing is known" in capsys.readouterr().err
