"""``gpubench show``: any benchmark's time, spread and rates."""

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import records
from suites import NAMES, plain, run_file

from gpubench.commands.cli import main
from gpubench.runfile.matching import KINDS

NETWORKS = KINDS["networks"]


@pytest.fixture
def run(save):
    return save("run.json", run_file())


def parts(out):
    """Lines above the results, the heads of their columns, and the results with the lines below."""
    above, _, table = out.rpartition("\n\n")
    heads, *lines = table.splitlines()
    return above.splitlines(), heads, lines


def test_each_benchmark_has_its_time_and_spread(run, capsys):
    assert main(["show", run]) == 0
    _, heads, lines = parts(capsys.readouterr().out)
    assert len(re.split("  +", heads.strip())) == 4  # name, device, time and spread: no column that holds nothing
    assert {line.partition(" ")[0] for line in lines} >= set(NAMES)
    (line,) = (line for line in lines if "a.slow" in line)
    assert "2.00 ms" in line
    assert "±1%" in line  # t(0.975, 2) = 4.3 over √3 of ½%


@pytest.mark.parametrize(
    ("expressions", "found"),
    [(["n=8"], NAMES), (["a. or b.even"], NAMES[:3]), (["a.slow", "c.one"], ["a.slow", "c.one"])],
)
def test_a_name_that_is_shown_can_be_typed_and_several_expressions_are_joined(run, capsys, expressions, found):
    assert main(["show", run, *(f"-k{each}" for each in expressions)]) == 0
    assert [line.split()[0] for line in parts(capsys.readouterr().out)[2] if " ms" in line] == list(found)


def test_a_name_that_matches_nothing_is_refused_with_the_nearest_ones_first(run, capsys):
    assert main(["show", run, "-k", "not cpu"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(name in captured.err for name in ("not cpu", *NAMES))
    assert main(["show", run, "-k", "c.tow"]) == 2
    assert "choose from c.two, " in capsys.readouterr().err
    assert main(["show", run, "-k", "a.slow or c.tow or n = 8"]) == 0
    assert capsys.readouterr().err == "gpubench: -k: nothing matches c.tow\n"


def test_tests_of_one_folder_are_named_without_it(save, capsys):
    data = plain(records.run().bench("a.b", cpu="1 ms").bench("a.c", cpu="1 ms").data, params=None)
    for mark, name in zip(data["benchmarks"], "xy", strict=True):
        mark["fullname"] = f"a/b/test_{name}.py::test_f"
    assert main(["show", save("plain.json", data)]) == 0
    assert [line.split()[0] for line in parts(capsys.readouterr().out)[2][:2]] == [f"test_{n}.py::test_f" for n in "xy"]


@pytest.mark.parametrize(
    "expression",
    [NETWORKS.heading, f"{NETWORKS.words} and not autocast", "models.mlp float32, batch=32", "H-GPU and mlp"],
)
def test_a_kind_of_work_and_a_device_can_be_typed(save, capsys, expression):
    assert main(["show", save("run.json", records.gpu_run()), "-k", expression]) == 0
    lines = [line for line in parts(capsys.readouterr().out)[2] if "batch=" in line]
    assert lines
    assert all(line.startswith("models.") for line in lines)
    assert not any("autocast" in line for line in lines) or "autocast" not in expression


@pytest.mark.parametrize("width", ["80", "1000"])
def test_of_many_results_the_answer_comes_first_and_few_stay_short(save, capsys, monkeypatch, width):
    """Whoever asked for one benchmark has no question about all of them."""
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run = save("run.json", records.gpu_run(processes=3))
    for words in ([], ["-k", "matmul.square and n=64"]):
        assert main(["show", run, *words]) == 0
        lines, _, _ = parts(capsys.readouterr().out)
        assert "Synthetic H-GPU" in lines[0]
        assert any(line.startswith("WARNING: ") for line in lines)
        assert ("faster in " in " ".join(lines)) is not bool(words)
        assert len(lines) <= (12 if width == "80" else 6)


def test_what_a_sign_means_stands_below(save, capsys):
    assert main(["show", save("run.json", records.gpu_run()), "-k", NETWORKS.words]) == 0
    _, _, lines = parts(capsys.readouterr().out)
    at = next(i for i, line in enumerate(lines) if line.startswith("~ is "))
    rows, note = lines[:at], " ".join(lines[at:])
    for sign in ("*", "~", "—"):
        assert any(sign in row for row in rows)
        assert f"{sign} " in note


@pytest.mark.parametrize("words", [("show",), ("report", "--charts", "none"), ("estimate", "--gpu", "L4")])
def test_lines_are_folded_in_a_terminal_alone(run, capsys, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)

    def lines(terminal, columns):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        assert main([words[0], run, *words[1:]]) == 0
        return capsys.readouterr().out.splitlines()

    assert max(map(len, lines(True, "56"))) <= 56
    assert lines(False, "56") == lines(True, "1000")


@pytest.fixture
def two(save):
    """A benchmark on a CPU and a GPU, and one that wasn't measured."""
    return save("run.json", records.run().bench("a.b", n=8, cpu="2 ms").bench("a.b", n=8, gpu="1 ms").skip("a.gone"))


def test_csv_has_all_values_of_each_benchmark_and_why_one_has_none(two, capsys):
    assert main(["show", two, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["status"], row["time_s"]) for row in rows] == [("ok", "0.002"), ("ok", "0.001"), ("skipped", "")]


def test_markdown_is_the_answer_or_with_k_a_row_for_every_size(two, capsys, save):
    assert main(["show", two, "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    (row,) = (line for line in text.splitlines() if line.startswith("| a.b"))
    assert all(words in row for words in ("n=8", "2.00 ms", "1.00 ms", "2.0×"))
    assert "Synthetic H" in text
    assert "Speedup over" not in text  # the heads of the columns say it
    path = save("sized.json", records.run().bench("a.b", cpu="1 ms", n=(8, 16)).bench("a.c", cpu="1 ms", n=(8, 16)))
    for words, count in (([], 2), (["-k", "a.b"], 2), (["-k", "a.b or a.c"], 4)):
        assert main(["show", path, "--format", "markdown", *words]) == 0
        table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        assert (table[0].startswith("| benchmark |"), len(table)) == (True, 2 + count)
    path = save("numpy.json", records.run(cuda=0).bench("a.b", cpu="1 ms", numpy="2 ms", n=(8, 16)))
    assert main(["show", path, "--format", "markdown", "-k", "a.b"]) == 0
    assert "| speedup over NumPy |" in capsys.readouterr().out


def test_a_results_file_goes_unchanged_into_pytest_benchmark_s_own_compare(tmp_path):
    measured = Path(__file__).parent.parent.parent / "results/xeon-2-cores/run.json"
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(measured.read_bytes())
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "a.json", "b.json", "--columns=median"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test_square[cpu-float32-1024]") >= 2
