"""The examples run as their first lines say, and the experiments of docs/ could."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import records

from gpubench.commands.cli import main
from gpubench.errors import RunFileError
from gpubench.runfile.runs import read

ROOT = Path(__file__).parent.parent
EXAMPLES, EXPERIMENTS = ROOT / "examples", ROOT / "docs/experiments"

pytestmark = pytest.mark.xdist_group("examples")  # two tests look at one run


def _pytest(*arguments):
    path = os.pathsep.join([str(EXAMPLES), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    shared = ("-p", "gpubench.plugin", "-p", "no:cacheprovider", "--gpubench-preset=smoke", "--gpubench-no-ceilings")
    # -p: of a package that may not be installed
    return forked.pytest(*arguments, *shared, cwd=ROOT, PYTHONPATH=path.strip(os.pathsep))


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("examples") / "run.json"
    timer = ("--benchmark-timer=gpubench.timer", "--benchmark-max-time=0.01", "--benchmark-quiet")
    done = _pytest(EXAMPLES, "--gpubench-device=cpu", *timer, f"--benchmark-json={path}")
    assert done.returncode == 0, done.stdout
    return path


def test_benchmarks_are_measured_and_checked(run_file):
    measured = json.loads(run_file.read_text())["benchmarks"]
    cases = {entry["name"]: entry["extra_info"].get("gpubench") for entry in measured}
    ours = [case for case in cases.values() if case]
    assert {case["workload"] for case in ours} == {"softmax", "rms_norm"}
    assert {case["dtype"] for case in ours} == {"float32", "bfloat16"}
    assert {case["check"]["status"] for case in ours} == {"passed"}
    assert cases["test_fft"] is None


def test_a_run_compared_with_itself_has_not_changed(run_file):
    script = [sys.executable, EXAMPLES / "compare_runs.py", run_file, run_file]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ratios = [float(line.split("x")[0]) for line in done.stdout.splitlines()]
    assert len(ratios) >= 5
    assert set(ratios) == {1.0}


def test_numbers_pictures_and_tables_change_only_with_the_results(tmp_path, capsys):
    """So that ``git diff --exit-code`` after the commands of a page finds stale files."""
    (tmp_path / "docs").mkdir()
    run, page = tmp_path / "run.json", tmp_path / "docs/page.md"

    def measured(seconds):
        cases = {device: records.case("mine.sort", device) for device in ("cpu", "cuda:0")}
        marks = [records.benchmark(cases["cpu"], seconds), records.benchmark(cases["cuda:0"], 1e-4)]
        run.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, records.GPU))))
        return marks

    def fill():
        script = [sys.executable, EXAMPLES / "fill_page.py", run, tmp_path / "page.in", page]
        return subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=120).returncode

    def stale(*commit):
        (tmp_path / "page.in").write_text("Sorts {{mine.sort}} as fast.\n")
        assert fill() == 0
        assert main(["chart", str(run), "-o", str(tmp_path / "docs/speed.svg")]) == 0
        capsys.readouterr()
        assert main(["show", str(run), "--format", "markdown"]) == 0
        (tmp_path / "docs/speed.md").write_text(capsys.readouterr().out)
        git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
        for words in commit or (["add", "--intent-to-add", "docs"],):
            subprocess.run([*git, *words], check=True, capture_output=True)
        found = subprocess.run([*git, "diff", "--name-only", "docs"], check=True, capture_output=True, text=True)
        return found.stdout.split()

    marks = measured(1e-3)
    assert stale(["init"], ["add", "."], ["commit", "-m", "x"]) == []
    assert page.read_text() == "Sorts 10× (9.6× to 10×) as fast.\n"
    assert stale() == []
    measured(2e-3)
    assert stale() == ["docs/page.md", "docs/speed.md", "docs/speed.svg"]
    (tmp_path / "page.in").write_text("{{mine.srt}}")
    assert fill() == 1
    (tmp_path / "page.in").write_text("In {{time of mine.sort and cpu}}, {{time of sort and cuda:0}}.")
    assert fill() == 0
    assert page.read_text() == "In 2.00 ms, 100 µs."
    (tmp_path / "page.in").write_text("Sorts {{mine.sort}} as fast.\n")
    modelled = {**records.GPU, "simulated": True}
    for flag, gpu, spread, code, told in (  # one process that was disturbed
        ("noisy", modelled, 1, 0, "Sorts 10×* (9.6× to 10×, simulated) as fast."),
        ("contended", modelled, 5, 0, "at least 2×* (simulated)"),
        ("contended", records.GPU, 5, 0, "at least 2×* as"),
        ("waiting", records.GPU, 5, 1, "12×"),
    ):
        for mark in marks:
            mark["extra_info"]["gpubench"]["processes"][0]["flags"] = [{"flag": flag, "seen": "x"}]
            if spread > 1:
                mark["stats"]["max"] = mark["stats"]["q3"] = spread * mark["stats"]["median"]
        run.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, gpu))))
        page.write_text("Sorts 12× as fast.\n")
        assert fill() == code
        assert told in page.read_text()
        assert page.read_text().endswith("\n(*: noisy, may be far off)\n") == ("*" in told)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{mine}}", "write {{mine.sort float32, n=64}} or {{mine.fft float32, n=64}}"),
        ("{{time of sort}}", "write {{time of mine.sort float32, n=64 and cpu}} or {{time of"),
        ("{{mine.alone}}", "{{mine.alone}}: nothing is compared; a time is {{time of mine.alone}}"),
        ("{{time of alon}}", "write {{time of mine.alon float32, n=64 and not mine.alone}} or {{time of mine.alone"),
        ("{{mine.srt}}", "{{mine.srt}}: no benchmark matches"),
        ("{{mine.sort and n=65}}", "mine.alone; there are n=64\n"),
    ],
)
def test_a_template_that_names_no_single_number_is_answered_in_its_own_words(tmp_path, template, told):
    made = records.run(processes=1).bench("mine.sort", cpu=1e-3, gpu=1e-4).bench("mine.fft", cpu=1e-3, gpu=1e-4)
    run = made.bench("mine.alon", cpu=1e-3).bench("mine.alone", cpu=1e-3).save(tmp_path / "run.json")
    (tmp_path / "page.in").write_text(template)
    script = [sys.executable, EXAMPLES / "fill_page.py", run, tmp_path / "page.in", tmp_path / "page"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, (tmp_path / "page").exists()) == (1, False)
    assert told in done.stderr


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_it_says_how_it_is_run(script):
    assert re.search(rf"^    .*\b{script.removesuffix('.py')}", (EXAMPLES / script).read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", sorted(path.name for path in EXPERIMENTS.glob("[!t]*.py")))
def test_it_says_how_it_is_run_and_what_it_imports_from_the_package_exists(script):
    source = (EXPERIMENTS / script).read_text()
    assert re.search(rf"^.*(python|torchrun .*) docs/experiments/{script}", source, re.MULTILINE)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gpubench":
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.import_module(f"{node.module}.{name.name}")
        elif isinstance(node, ast.Import):
            for name in (each.name for each in node.names if each.name.startswith("gpubench")):
                importlib.import_module(name)


def test_old_results_are_converted_by_the_script_that_their_complaint_names(tmp_path):
    made = records.run(cuda=0, processes=1).bench("training.part", cpu=1.0, part="forward", kind="details")
    parallel = {"method": "stages", "phases": {"forward": 1.0}, "microbatches": 4}
    for params in (
        {"schedule": "stages", "devices": 2},
        {"method": "naive", "devices": 2},
        {"method": "stages", "devices": 16},
    ):
        made.bench("model_parallel.mlp", cpu=1.0, size=None, params=params, parallel=parallel)
    made.bench("training.width", cpu=0.1 + 0.2, batch=5, width=3, widened="all layers", kind="details")
    operators = [{"kind": "product", "count": 1, "flops": 1e30, "bytes": 1.0}]
    usual = {"cpu": 1.0, "flops": 12345678901234567, "operators": operators, "memory_bytes": 9}
    made.bench("attention.causal", length=7, backend="math", **usual).bench("mine.attention", n=1, **usual)
    made.bench("time.x", cpu=1.0).skip("llm.decode_int8", batch=1).skip("mine.part", batch=1)
    made.data["gpubench"] |= {"schema_version": 2, "asked": {}}
    old = made.save(tmp_path / "old/run.json")
    complaint = r"run.json: gpubench.schema_version: expected 3, found 2: docs/experiments/convert_results.py of gp"
    with pytest.raises(RunFileError, match=complaint):
        read(old)
    script = [sys.executable, EXPERIMENTS / "convert_results.py", old, tmp_path / "new"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.endswith("run.json: 6 benchmarks\n")
    run, new = read(tmp_path / "new/run.json"), json.loads((tmp_path / "new/run.json").read_text())
    stages, width, attention, mine, *_ = (mark["extra_info"]["gpubench"] for mark in new["benchmarks"])
    kept = ["model_parallel.mlp", "training.width", "attention.causal", "mine.attention", "time.x", "mine.part"]
    assert [result.workload for result in run.results] == kept
    assert (stages["params"]["devices"], stages["parallel"], width["kind"]) == (16, {"method": "stages"}, "training")
    assert new["benchmarks"][1]["stats"] == made.marks[4]["stats"]
    assert attention["work"] == {name: value for name, value in mine["work"].items() if name != "operators"}
    assert (mine["work"]["flops"], mine["memory_bytes"], "memory_bytes" in attention) == (12345678901234567, 9, False)
    assert (new["gpubench"]["schema_version"], "asked" in new["gpubench"]) == (3, False)
