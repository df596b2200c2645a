"""What other tools are given: exact, and nothing left out in silence."""

import csv
import io
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import records
from suites import plain

from gpubench.commands.cli import main

one = partial(records.run, processes=1)


@pytest.fixture
def run(save):
    measured = one().bench("a.b", n=8, cpu="2 ms", spread=0.1).bench("a.b", n=8, gpu="1 ms")
    return save("run.json", measured.skip("a.gone"))


@pytest.fixture
def export(capsys):
    def export(path, to, *words):
        """What it printed, of JSON the values, and what it said on stderr."""
        assert main(["export", path, "--to", to, *words]) == 0
        shown = capsys.readouterr()
        return (shown.out if to in ("csv", "markdown") else json.loads(shown.out)), shown.err

    return export


def test_a_markdown_table_has_a_row_for_each_workload(run, export, save):
    text, error = export(run, "markdown")
    (row,) = (line for line in text.splitlines() if line.startswith("| a.b"))
    assert all(words in row for words in ("n=8", "2.00\xa0ms", "1.00\xa0ms", "2.0×"))
    assert "Synthetic H" in text
    assert "PyTorch 2.13.0" in text
    assert "*" not in text.replace("\\*", "*")
    assert error == ""
    flagged = one().bench("a.b", cpu="2 ms").bench("a.b", gpu="1 ms", flags=("noisy",))
    text, _ = export(save("flagged.json", flagged), "markdown")
    assert text.replace("\\*", "*").count("* ") >= 2  # at its time, and what that means


def test_folders_and_k_choose_what_is_exported(run, export, save, capsys):
    assert list(export(run, "bmf", "-k", "cuda")[0]) == ["a.b[float32-n=8] on cuda:0"]
    assert main(["export", run, "--to", "bmf", "-k", "resnet"]) == 2
    assert "choose from a.b, a.gone" in capsys.readouterr().err
    folder = str(Path(save("other.json", one(cuda=0).bench("a.b", n=8, cpu="3 ms"))).parent)
    shown, _ = export(folder, "bmf", "-k", "cpu and a.b")
    assert {name: each["latency"]["value"] for name, each in shown.items()} == pytest.approx(
        {"other: a.b[float32-n=8]": 3e6, "run: a.b[float32-n=8]": 2e6}
    )


def test_no_command_replaces_what_it_reads_or_what_isnt_ours(run, tmp_path, capsys):
    """Whatever the way it is named: as a file, by its folder, or the journal beside it."""
    folder, notes = tmp_path / "side", tmp_path / "notes.svg"
    folder.mkdir()
    for name in ("run.json", "run.ledger.jsonl"):
        (folder / name).write_bytes(Path(run).read_bytes())
    notes.write_text("mine")
    journal, data = str(folder / "run.ledger.jsonl"), str(folder / "run.json")
    taken = (run, data, journal, str(notes))
    for command in (["export", run, "--to", "csv"], ["export", str(folder), "--to", "markdown"], ["time", "1+1"]):
        assert [main([*command, "-o", target]) for target in taken] == [2, 2, 2, 2]
    assert main(["chart", run, "-o", str(notes)]) == 2
    assert main(["time", "1+1", "--chart", str(notes)]) == 2
    assert capsys.readouterr().err.count("\n") == 14
    assert len({Path(path).read_bytes() for path in taken[:3]}) == 1
    assert notes.read_text() == "mine"


def test_github_action_benchmark(run, export):
    (first, second), error = export(run, "github-action-benchmark")
    extra = first.pop("extra")
    assert first == {"name": "a.b[float32-n=8]", "unit": "ms", "value": 2.0, "range": "± 0.100"}
    assert "50 rounds" in extra
    assert "interquartile" in extra  # of one process its range is no interval
    assert second["name"] == "a.b[float32-n=8] on cuda:0"
    assert "a.gone[float32]" in error


def test_a_doubtful_time_is_marked_where_a_program_looks(save, export):
    flagged = records.run().bench("a.b", cpu="2 ms", spread=0.05, flags=("noisy", "altered"))
    (entry,), _ = export(save("run.json", flagged), "github-action-benchmark")
    assert entry["extra"].endswith("flagged: noisy, altered")
    assert "95% interval" in entry["extra"]
    assert float(entry["range"].removeprefix("± ")) == pytest.approx(1.026 * 4.303 / 3**0.5 * 0.1, rel=0.02)


def test_a_model_and_an_unverified_result_are_named_in_what_is_published(save, export, tmp_path):
    check = {"status": "unchecked", "error": None, "tolerance": None, "reason": "check=False"}
    unlike = one(gpu={"simulated": True}).bench("a.b", n=8, cpu="1 ms", gpu="1 ms", check=check)
    path = save("run.json", unlike)
    model = "Times of the Synthetic H-GPU come from a model, not from hardware"
    text, _ = export(path, "markdown")
    assert model in text
    assert "a.b, n=8 (not verified)" in text
    cpu, gpu = (entry["extra"] for entry in export(path, "github-action-benchmark")[0])
    names = [entry["name"] for entry in export(path, "github-action-benchmark")[0]]
    assert names == list(export(path, "bmf")[0]) == ["a.b[float32-n=8]", "a.b[float32-n=8] on cuda:0 (simulated)"]
    assert (model in cpu, model in gpu) == (False, True)
    assert all(extra.endswith("Not verified: a.b") for extra in (cpu, gpu))
    assert main(["chart", path, "-o", str(tmp_path / "a.svg")]) == 0
    drawn = re.sub(r"<[^>]*>|\s+", " ", (tmp_path / "a.svg").read_text())
    assert "Not verified: a.b." in " ".join(drawn.split())


@pytest.mark.parametrize(
    ("seconds", "value", "unit", "spread"),
    [
        (12.5, 12.5, "s", "± 2.50"), (2e-3, 2.0, "ms", "± 0.400"), (4.25e-5, 42.5, "us", "± 8.50"),
        (9.999999e-7, 1000.0, "ns", "± 200."), (1e-10, 0.1, "ns", "± 0.0200"),
    ],
)  # fmt: skip
def test_times_have_a_unit_that_people_read(save, export, seconds, value, unit, spread):
    """And one that the action converts, with a range that it understands: two signs or more."""
    path = save("run.json", one().bench("a.b", cpu=seconds, spread=0.4))
    (entry,), _ = export(path, "github-action-benchmark")
    assert (entry["value"], entry["unit"], entry["range"]) == (value, unit, spread)


def test_bmf_and_csv_which_has_a_row_for_what_was_not_measured_too(run, export, tmp_path):
    assert main(["export", run, "--to", "bmf", "-o", str(tmp_path / "bmf.json")]) == 0
    entries = json.loads((tmp_path / "bmf.json").read_text())
    latency = entries["a.b[float32-n=8]"]["latency"]
    assert latency == pytest.approx({"value": 2e6, "lower_value": 1.9e6, "upper_value": 2.1e6})
    assert len(entries) == 2
    rows = list(csv.DictReader(io.StringIO(export(run, "csv")[0])))
    assert [row["status"] for row in rows] == ["ok", "ok", "skipped"]


def test_plain_files_go_by_their_full_names_each_its_own(save, export):
    data = plain(one().bench("a.b", cpu="2 ms").bench("a.b", cpu="2 ms").data)
    name = data["benchmarks"][0]["fullname"]
    assert list(export(save("plain.json", data), "bmf")[0]) == [name, name.replace("[", "#2[", 1)]


def test_run_files_go_unchanged_into_pytest_benchmarks_own_compare(tmp_path):
    measured = Path(__file__).parent.parent.parent / "results/xeon-2-cores/run.json"
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(measured.read_bytes())
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "a.json", "b.json", "--columns=median"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test_square[cpu-float32-1024]") >= 2


def test_of_chosen_benchmarks_the_markdown_table_has_every_size(export, save):
    """One benchmark after the other, but expressions at each size beside each other."""
    sized = {"cpu": "1 ms", "n": (8, 16)}
    path = save("run.json", records.run().bench("a.b", **sized).bench("a.c", **sized))
    for words, count in (([], 2), (["-k", "a.b"], 2), (["-k", "a.b or a.c"], 4)):
        text, _ = export(path, "markdown", *words)
        table = [line for line in text.splitlines() if line.startswith("|")]
        assert (table[0].startswith("| benchmark |"), len(table)) == (True, 2 + count)
        assert all("1.00\xa0ms ±" in line for line in table[2:])
        assert "a.b" in text
        assert "95% confidence interval" in text
    assert [line.split()[1] for line in table[2:]] == ["a.b", "a.b", "a.c", "a.c"]
    other = records.run().bench("a.b", numpy="0.1 ms", gpu="0.2 ms", **sized)
    text, _ = export(save("other.json", other), "markdown", "-k", "a.b")  # slower than NumPy, faster than PyTorch
    assert text.count("2.0× slower‡") == 2
    assert "‡ the CPU's fastest way: NumPy." in text
    path = save("time.json", records.run().bench("time.a", **sized).bench("time.b", **sized))
    rows = export(path, "markdown", "-k", "a or b")[0].splitlines()[2:6]
    assert [line.split()[1] for line in rows] == ["a", "b", "a", "b"]
