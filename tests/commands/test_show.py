"""``gpubench show``: any benchmark's time, spread and rates."""

import json

import pytest
from suites import run_file

from gpubench.commands.cli import main


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run_file()))
    return str(path)


def test_each_benchmark_has_its_time_and_spread(run, capsys):
    assert main(["show", run]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["benchmark", "device", "time", "spread", "throughput", "%", "of", "peak"]
    assert len(lines) == 6
    (line,) = (line for line in lines if "a.slow" in line)
    assert line.split()[:4] == ["a.slow[float32-n=8]", "cpu", "2.00", "ms"]
    assert "±" in line


@pytest.mark.parametrize(("expression", "count"), [("a.slow", 1), ("n=8", 6), ("a. or b.even", 3), ("not cpu", 0)])
def test_a_name_that_is_shown_can_be_typed(run, capsys, expression, count):
    code = main(["show", run, "-k", expression])
    captured = capsys.readouterr()
    assert code == (0 if count else 2)
    assert len(captured.out.splitlines()) == (count + 1 if count else 0)
    names = "a.fast, a.slow, b.even, b.odd, c.one, c.two"
    refusal = f"gpubench show: no benchmark matches {expression!r}: choose from {names}\n"
    assert captured.err == ("" if count else refusal)


def test_the_nearest_names_come_first(run, capsys):
    assert main(["show", run, "-k", "c.tow"]) == 2
    assert "choose from c.two, " in capsys.readouterr().err


def test_what_has_no_time_says_why(tmp_path, capsys):
    import records

    from gpubench.runfile.schema import Case

    path = tmp_path / "run.json"
    case = Case("a.b", "cuda:0", "float32", {"n": 1}, size="n")
    path.write_text(json.dumps(records.run_file([], [records.unmeasured(case)])))
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out.startswith("  a.b[float32-n=1]  cuda:0  skipped: ")


@pytest.mark.parametrize("words", [["nowhere.json"], ["-k", "a and"]])
def test_bad_input_is_a_line(run, capsys, words):
    assert main(["show", *([run] if words[0] == "-k" else []), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpubench show: ")
