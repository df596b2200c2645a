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
    assert head.split() == ["benchmark", "device", "time", "spread"]  # no column that holds nothing
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


def test_several_expressions_are_joined(run, capsys):
    assert main(["show", run, "-k", "a.slow", "-k", "c.one"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == ["a.slow[float32-n=8]", "c.one[float32-n=8]"]


def test_a_kind_of_work_and_a_device_can_be_typed(tmp_path, capsys):
    import records

    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.gpu_run()))
    for expression in (
        "running networks",
        "networks and not autocast",
        "models.mlp float32, batch=32",
        "H-GPU and mlp",
    ):
        assert main(["show", str(path), "-k", expression]) == 0
        names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:] if "[" in line]
        assert names
        assert all(name.startswith("models.") for name in names)


def test_what_a_sign_means_stands_below(tmp_path, capsys):
    import records

    from gpubench.runfile.schema import Case

    marks = [records.benchmark(Case("a.b", "cpu", "float32", {}), 1e-3, work={"flops": 1e9}, flags=("noisy",))]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.run_file(marks, ceilings={"cpu": {"throughput": {"float32": 1e9}}})))
    assert main(["show", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line[:2] for line in lines] == ["* ", "~ ", "— "]


def test_a_report_folder_shows_the_runs_it_was_made_of(run, tmp_path, capsys):
    out = tmp_path / "deep" / "both"
    assert main(["report", run, "-o", str(out), "--no-charts"]) == 0
    capsys.readouterr()
    assert main(["show", str(out)]) == 0
    assert "a.slow[float32-n=8]" in capsys.readouterr().out
    (tmp_path / "run.json").unlink()
    assert main(["show", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"gpubench show: {out}: holds a report; its results file was {run}, which is not there any more"


def test_a_name_that_is_missing_is_said_with_what_there_is(run, tmp_path, capsys):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("{}")
    assert main(["show", str(tmp_path / "rum.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    there = f"{tmp_path / 'other' / 'run.json'}, {run}"
    assert line == f"gpubench show: {tmp_path / 'rum.json'}: no such file or folder; in {tmp_path}: {there}"
    assert main(["show", str(tmp_path / "no" / "such" / "run.json")]) == 2
    assert f"in {tmp_path}: " in capsys.readouterr().err


def test_the_width_of_columns_holds_in_a_pipe_too(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["show", run]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
