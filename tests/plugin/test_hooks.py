"""The plugin among others: options, markers, other plugins, and pytest runs that have nothing to do with us."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gpubench.plugin.overrides import IGNORED
from gpubench.plugin.parametrize import case_of
from gpubench.runfile.kinds import KINDS
from gpubench.runfile.ledger import read_ledger
from gpubench.runfile.reader import plain_case, read

CASE = """
import torch, pytest
def test_neg(gpubench):
    gpubench(lambda x: x.is_meta or -x, gpubench.randn(8))  # not counted: torch would load its compiler for that
"""


@pytest.fixture
def run(pytester):
    def run(source=CASE, *options):
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_inprocess("--gpubench-preset=smoke", "--gpubench-no-ceilings", *options)

    return run


def test_a_plain_run_imports_neither_torch_nor_pandas_nor_numpy(pytester):
    pytester.makepyfile("""
        import sys
        def test_plain(benchmark):
            benchmark(len, [])
        def test_loaded(request):
            assert request.config.pluginmanager.hasplugin("gpubench.plugin")
            assert not {"torch", "pandas", "matplotlib", "numpy", "scipy"} & set(sys.modules)
    """)
    result = pytester.runpytest_subprocess("--benchmark-json=plain.json")
    result.assert_outcomes(passed=2)
    assert "gpubench" not in json.loads((pytester.path / "plain.json").read_text())


def test_expressions_of_one_size_are_measured_directly_after_each_other_in_either_order(pytester):
    pytester.makepyfile(
        test_it="""
        import pytest
        sizes = pytest.mark.parametrize("n", range(12))
        @sizes
        def test_a(benchmark, n):
            benchmark(len, [])
        @sizes
        def test_b(benchmark, n):
            benchmark(len, [])
    """
    )
    options = ["--gpubench-process=0/1", "--gpubench-ledger=journal.jsonl", "--gpubench-preset=smoke"]
    pytester.runpytest_inprocess("--gpubench-brief", *options).assert_outcomes(passed=24)
    begun = [event["name"] for event in read_ledger(pytester.path / "journal.jsonl") if event["event"] == "start"]
    pairs = list(zip(begun[::2], begun[1::2], strict=True))
    assert all(one.partition("[")[2] == other.partition("[")[2] for one, other in pairs)
    assert {one[:6] for one, _ in pairs} == {"test_a", "test_b"}
    assert [one.partition("[")[2] for one, _ in pairs] != [f"{n}]" for n in range(12)]


@pytest.mark.parametrize(("imports", "knows_torch"), [("import json", False), ("import torch", True)])
def test_a_measured_suite_that_does_without_torch_is_not_made_to_import_it(pytester, imports, knows_torch):
    pytester.makepyfile(test_it=f"{imports}\ndef test_plain(benchmark):\n    benchmark(len, [])")
    pytester.makeconftest("import sys\ndef pytest_unconfigure():\n    print('torch loaded:', 'torch' in sys.modules)")
    result = pytester.runpytest_subprocess("--gpubench-ledger=journal.jsonl", "--gpubench-preset=smoke", "-s")
    result.stdout.fnmatch_lines([f"torch loaded: {knows_torch}"])
    facts = read_ledger(pytester.path / "journal.jsonl")[0]["machine_info"]["gpubench"]
    assert (facts["torch"] is not None) == knows_torch  # nor is another process
    assert facts["devices"][0]["label"] == facts["cpu"]["model"]
    assert facts["threads"] >= 1


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--gpubench-device=gpu", "unknown device 'gpu': choose from auto, all, cpu, "),
        ("--gpubench-device=cuda:x", "unknown device 'cuda:x': choose from"),
        ("--gpubench-dtype=fp32", "unknown dtype 'fp32': choose from float32, tf32, bfloat16, float16, float64"),
        ("--gpubench-variant=jit", "unknown variant 'jit': choose from eager, autocast, compile"),
        ("--gpubench-preset=huge", "unknown preset 'huge': choose from smoke, glance, quick, full"),
        ("--gpubench-threads=two", "threads must be a whole number, not 'two'"),
        ("--gpubench-threads=0", "threads must be 1 or more, not 0"),
        ("--gpubench-seed=-1", "the seed must be 0 or more, not -1"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_4(run, option, says):
    result = run(CASE, option)
    assert result.ret == 4
    lines = [line for line in [*result.errlines, *result.outlines] if line.strip()]
    assert [line for line in lines if says in line]
    assert not [line for line in lines if "Traceback" in line or "INTERNALERROR" in line]


def test_a_required_device_that_is_absent_fails_the_run(run):
    result = run(CASE, "--gpubench-require-device=xpu")
    assert result.ret == 4
    assert "xpu:0 is not available: " in result.stderr.str() + result.stdout.str()
    assert run(CASE, "--gpubench-require-device=cpu").ret == 0


def test_a_device_asked_for_and_absent_is_a_row_with_its_reason(run, pytester):
    result = run(CASE, "--gpubench-device=cpu", "--gpubench-device=xpu", "--benchmark-json=run.json")
    result.assert_outcomes(passed=1, skipped=1)
    (row,) = json.loads((pytester.path / "run.json").read_text())["gpubench"]["unmeasured"]
    assert (row["device"], row["status"]) == ("xpu:0", "skipped")
    assert row["reason"].startswith("xpu:0 is not available: ")


def test_auto_and_all_and_names(virtual):
    source = """
        def test_names(gpubench, machine):
            index = int(gpubench.case.device.partition(":")[2] or 0)
            gpubench(machine.launch, 1e-3, index, check=False)
    """
    for options, devices in (
        (["--gpubench-device=auto"], ["cpu", "virtual:0"]),
        (["--gpubench-device=all"], ["cpu", "virtual:0", "virtual:1"]),
        (["--gpubench-device=virtual:1"], ["virtual:0", "virtual:1"]),  # beside the fixture's own `virtual`
    ):
        _, run = virtual(source, "--gpubench-preset=smoke", *options)
        assert sorted(b["params"]["gpubench_device"] for b in run["benchmarks"]) == devices


def test_sizes_come_from_the_preset(run, pytester):
    source = """
import torch, pytest
@pytest.mark.gpubench_sweep("n", smoke=[1], quick=[2, 3], full=[2, 3, 4])
@pytest.mark.gpubench(dtypes=["float32", "tf32", "float64"])
def test_neg(gpubench, n):
    gpubench(torch.neg, gpubench.randn(n))
"""
    for preset, sizes in (("smoke", [1]), ("glance", [2, 3]), ("quick", [2, 3]), ("full", [2, 3, 4])):
        result = run(source, "--collect-only", "-q", f"--gpubench-preset={preset}")
        ids = [line.split("[")[1].rstrip("]") for line in result.outlines if "::" in line]
        assert ids == [f"cpu-{dtype}-{n}" for dtype in ("float32", "float64") for n in sizes]


GLANCED = """
import torch, pytest
NETWORK = pytest.mark.gpubench(variants=["eager", "autocast"])
@NETWORK
@pytest.mark.gpubench_sweep("n", glance=[5], quick=[2, 3])
@pytest.mark.gpubench_sweep("m", quick=[1])
def test_chosen(gpubench, n, m):
    gpubench(torch.neg, gpubench.randn(n))
@NETWORK
@pytest.mark.gpubench_sweep("n", quick=[2, 3])
def test_other(gpubench, n):
    gpubench(torch.neg, gpubench.randn(n))
@pytest.mark.gpubench_sweep("n", glance=[5], quick=[2, 3])
@pytest.mark.gpubench_sweep("m", glance=[], quick=[1])
def test_refused(gpubench, n, m):
    gpubench(torch.neg, gpubench.randn(n))
def test_plain(benchmark):
    benchmark(len, [])
def test_ordinary():
    pass
"""


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ([], ["test_chosen[cpu-float32-1-5]", "test_ordinary"]),
        (["--gpubench-variant=autocast"], ["test_chosen[cpu-float32-autocast-1-5]", "test_ordinary"]),
        (
            ["-k", "other"],
            ["test_other[cpu-float32-2]", "test_other[cpu-float32-3]"],
        ),  # that file or test knows nothing of a glance
        (["--gpubench-match=other or plain"], ["test_other[cpu-float32-2]", "test_other[cpu-float32-3]", "test_plain"]),
    ],
)
def test_a_glance_has_the_tests_that_choose_it(run, options, ids):
    """Without rows for the others; where none chooses it, all of them."""
    result = run(GLANCED, "--collect-only", "-q", "--gpubench-preset=glance", *options)
    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == ids


def test_dtypes_can_be_chosen(run):
    source = CASE.replace("def test", "@pytest.mark.gpubench(dtypes=['float32', 'tf32', 'float64'])\ndef test")
    result = run(source, "--collect-only", "-q", "--gpubench-dtype=float64", "--gpubench-dtype=tf32")
    assert [line for line in result.outlines if "::" in line] == [
        "test_it.py::test_neg[cpu-float64]",
        "test_it.py::test_neg[cpu-tf32]",
    ]
    result = run(source, "--gpubench-dtype=tf32", "-rs")
    result.assert_outcomes(skipped=1)
    assert "tf32 does not exist on cpu" in result.stdout.str()
    result = run(CASE, "--gpubench-dtype=tf32", "--gpubench-dtype=bfloat16", "--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == ["test_it.py::test_neg[cpu-bfloat16]"]


def test_dtypes_of_the_longest_preset_come_besides(run):
    source = CASE.replace("def test", "@pytest.mark.gpubench(full_dtypes=['bfloat16', 'float16'])\ndef test")

    def names(*options):
        result = run(source, "--collect-only", "-q", *options)
        return [line.split("::")[1] for line in result.outlines if "::" in line]

    assert names("--gpubench-preset=quick") == ["test_neg[cpu-float32]"]
    assert names("--gpubench-preset=full") == [
        "test_neg[cpu-float32]",
        "test_neg[cpu-bfloat16]",
        "test_neg[cpu-float16]",
    ]
    assert names("--gpubench-preset=quick", "--gpubench-dtype=float16") == ["test_neg[cpu-float16]"]
    result = run(source.replace("'float16'", "'half'"))
    assert "full_dtypes has no 'half': choose from float32" in result.stdout.str() + result.stderr.str()


def test_options_can_stand_in_the_ini_file(run, pytester):
    pytester.makeini("[pytest]\ngpubench_dtype = float64\ngpubench_preset = smoke\n")
    result = pytester.runpytest_inprocess(pytester.makepyfile(CASE), "--collect-only", "-q")
    assert "cpu-float64" in result.stdout.str()


@pytest.mark.parametrize(
    ("addopts", "ignored"),
    [
        ("-n 2 --dist=loadfile -v", ["-n", "--dist"]),
        ("-xvs --maxfail=3", ["-x or --maxfail"]),
        ("--benchmark-skip --benchmark-disable --benchmark-json=a.json", ["--benchmark-skip", "--benchmark-disable",
         "--benchmark-json"]),
        ("-p no:benchmark --benchmark-skip", ["-p no:benchmark", "--benchmark-skip"]),
        ("--lf --pdb --sw", ["--pdb", "--lf", "--sw"]),
        ("--gone=3 --away src", ["--gone=3", "--away"]),
        ("-ra --co --benchmark-min-rounds=9 -m 'not slow'", []),
    ],
)  # fmt: skip
def test_options_of_a_project_with_which_nothing_can_be_measured_are_taken_back(pytester, addopts, ignored):
    """In a process of ``gpubench run``, where those of its command line stay."""
    pytester.makeini(f"[pytest]\naddopts = {addopts}\n")
    seen = []

    class Look:
        def pytest_collection_finish(self, session):
            option = session.config.option
            values = bool(option.maxfail), option.usepdb, option.numprocesses, option.dist, option.benchmark_json
            seen.append((session.config.stash[IGNORED], values, option.benchmark_skip or option.benchmark_disable))

    command = "--gpubench-plan=plan.json", "--collect-only", pytester.makepyfile(CASE)
    assert pytester.runpytest_inprocess(*command, plugins=[Look()]).ret == 0
    assert seen == [(ignored, (False, False, None, "no", None), False)]
    assert not (pytester.path / ".pytest_cache").exists()


def test_our_marker_is_merged_into_the_tests_own(run, pytester):
    source = """
import time, torch, pytest
@pytest.mark.benchmark(group="mine", min_rounds=7, timer=time.process_time)
def test_neg(gpubench):
    gpubench(torch.neg, gpubench.randn(8))
"""
    result = run(source, "--benchmark-json=run.json")
    (bench,) = json.loads((pytester.path / "run.json").read_text())["benchmarks"]
    assert bench["options"]["timer"] == "device_clock"
    assert bench["options"]["min_rounds"] == 7
    assert bench["stats"]["rounds"] >= 7
    assert "another timer was asked for" in result.stdout.str()


def test_an_explicit_timer_option_is_overridden_with_a_warning(run):
    assert "another timer was asked for" in run(CASE, "--benchmark-timer=time.process_time").stdout.str()


def test_pytest_benchmarks_own_options_keep_working(run, pytester):
    assert run(CASE, "--benchmark-save=one", "--benchmark-min-rounds=9").ret == 0
    result = run(CASE, "--benchmark-compare=0001", "--benchmark-compare-fail=min:10000%")
    assert result.ret == 0
    assert "(NOW)" in result.stdout.str()
    assert "machine_info is different" not in result.stdout.str() + result.stderr.str()
    assert run(CASE, "--benchmark-precision=0.5", "--benchmark-group-by=param:gpubench_device").ret == 0
    saved = next(pytester.path.glob(".benchmarks/*/0001_one.json"))
    assert json.loads(saved.read_text())["benchmarks"][0]["stats"]["rounds"] >= 9


def test_histogram(pytester, forking):
    if importlib.util.find_spec("pygal") is None:
        pytest.skip("pytest-benchmark's extra [histogram] is not installed")
    pytester.makepyfile(test_it=CASE)
    assert pytester.runpytest_subprocess("--gpubench-preset=smoke", "--benchmark-histogram=h").ret == 0
    assert list(pytester.path.glob("h*.svg"))


def test_disabled_it_still_checks(run):
    wrong = CASE + "\ndef test_wrong(gpubench):\n    gpubench(lambda x: x, gpubench.randn(4), check=lambda x: x + 1)\n"
    run(wrong, "--benchmark-disable").assert_outcomes(passed=1, failed=1)


def test_xdist_does_not_crash(pytester, forking):
    pytest.importorskip("xdist")
    pytester.makepyfile(test_it=CASE)
    result = pytester.runpytest_subprocess("-n1", "--gpubench-preset=smoke")
    result.assert_outcomes(passed=1)


def test_without_pytest_benchmark_it_skips(pytester, forking):
    pytester.makepyfile(test_it=CASE)
    result = pytester.runpytest_subprocess("-p", "no:benchmark", "-rs")
    result.assert_outcomes(skipped=1)
    assert "needs pytest-benchmark" in result.stdout.str()


def test_beside_a_plugin_that_replaces_pytest_benchmark_it_skips(pytester, forking):
    """As pytest-codspeed does when it is active: blocks pytest-benchmark, and brings another `benchmark` fixture."""
    pytester.makeconftest("""
        import pytest
        @pytest.hookimpl(tryfirst=True)
        def pytest_configure(config):
            config.option.benchmark_disable = True
            config.pluginmanager.set_blocked("pytest-benchmark")
        def pytest_runtest_setup(item):
            marker = item.get_closest_marker("benchmark")
            assert marker is None or "timer" not in marker.kwargs
    """)
    pytester.makepyfile(test_it=CASE)
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("dtypes=['f32']", "dtypes has no 'f32': choose from float32"),
        ("kind='network'", "kind has no 'network': choose from matmul, networks"),
        ("kind=['networks']", "kind must be a text, not ['networks']"),
        ("title=50", "title must be a text, not 50"),
        ("name='ResNet'", "unknown gpubench marker key 'name': dtypes"),
    ],
)
def test_a_wrong_marker_names_what_exists(run, marker, says):
    result = run(CASE.replace("def test", f"@pytest.mark.gpubench({marker})\ndef test"))
    assert says in result.stdout.str() + result.stderr.str()
    assert result.ret not in (0, 5)


def test_a_benchmark_says_what_it_is(run, pytester):
    """In each of its rows, measured or not; one's own may leave it out."""
    marked = "pytestmark = pytest.mark.gpubench(kind='science', title='Minus')\n"
    source = CASE + marked + "@pytest.mark.gpubench(title='')\ndef test_idle(gpubench): pass\n"
    for text, expected in ((source, [("science", "Minus"), ("science", "")]), (CASE, [("", "")])):
        run(text, "--benchmark-json=run.json")
        results = read(pytester.path / "run.json").results
        assert [(result.kind, result.title) for result in results] == expected


def test_every_shipped_benchmark_says_what_it_is(pytester):
    """And they are told apart by what people read."""

    class Collected:
        items: tuple[pytest.Item, ...] = ()

        def pytest_collection_finish(self, session):
            Collected.items = tuple(session.items)

    folder = str(Path(__file__).parents[2] / "benchmarks")
    options = "--collect-only", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--gpubench-preset=full"
    assert pytester.runpytest_inprocess(folder, *options, plugins=[Collected()]).ret == 0
    cases = {case_of(item, ()).workload: case_of(item, ()) for item in Collected.items}
    assert len({workload.partition(".")[0] for workload in cases}) == len(list(Path(folder).glob("test_*.py")))
    assert [case.workload for case in cases.values() if case.kind not in KINDS] == []
    assert [case.workload for case in cases.values() if not case.title] == []
    assert [title for title, count in Counter(case.title for case in cases.values()).items() if count > 1] == []


def test_a_workload_that_runs_nowhere_here_is_one_row(run, pytester):
    source = (
        CASE
        + """
@pytest.mark.gpubench(devices="accelerator")
@pytest.mark.gpubench_sweep("n", smoke=[1, 2, 3], quick=[1])
def test_move(gpubench, n): pass
"""
    )
    run(source, "--gpubench-device=cpu", "--benchmark-json=run.json").assert_outcomes(passed=1, skipped=1)
    (row,) = json.loads((pytester.path / "run.json").read_text())["gpubench"]["unmeasured"]
    assert row["reason"] == "needs a GPU; this run uses: cpu"


AFTER_RANKS = """
import pytest

def test_ranks(gpubench_ranks): pass

@pytest.mark.gpubench(devices="two accelerators")
def test_move(gpubench): pass
"""


def test_a_workload_that_runs_nowhere_here_is_skipped_after_ranks_too(run):
    """Its device is none that exists, so no rank's group has to give it up."""
    run(AFTER_RANKS, "--gpubench-device=cpu").assert_outcomes(passed=1, skipped=1)


def test_nothing_is_registered_without_our_prefix(pytester):
    out = subprocess.run([sys.executable, "-m", "pytest", "--help"], capture_output=True, text=True, cwd=pytester.path)
    section = out.stdout.split("benchmarks on every device:")[1].split("\n\n")[0]
    flags = [word for line in section.splitlines() for word in line.split() if word.startswith("--")]
    assert flags
    assert all(flag.startswith("--gpubench-") for flag in flags)


def test_variants_of_the_quick_preset_are_for_the_cpu_and_that_preset_alone(run):
    source = CASE + "\n@pytest.mark.gpubench(variants=['eager', 'compile'], quick_variants='compile')\n"
    source += "def test_linear(gpubench):\n    gpubench(torch.nn.Linear(4, 4).eval(), gpubench.randn(2, 4))\n"
    compiled = {}
    for preset in ("smoke", "glance", "quick", "full"):
        chosen = ("-k", "linear", "--gpubench-device=demo", "--gpubench-device=cpu", f"--gpubench-preset={preset}")
        lines = run(source, "--collect-only", "-q", *chosen).outlines
        compiled[preset] = [line.partition("[")[2].partition("-")[0] for line in lines if line.endswith("-compile]")]
    assert compiled == {"smoke": [], "glance": [], "quick": ["cpu"], "full": ["demo", "cpu"]}


@pytest.mark.parametrize("option", ["--gpubench-variant=autocast", "--gpubench-dtype=tf32"])
def test_a_workload_without_what_was_asked_for_is_one_row(run, pytester, option):
    source = CASE + "\n@pytest.mark.gpubench(variants=['eager', 'autocast'], dtypes=['float32', 'tf32'])\n"
    source += "def test_linear(gpubench):\n    gpubench(torch.nn.Linear(4, 4).eval(), gpubench.randn(2, 4))\n"
    run(source, option, "--benchmark-json=run.json")
    rows = json.loads((pytester.path / "run.json").read_text())["gpubench"]["unmeasured"]
    assert "not for this workload" in rows[0]["reason"]


def test_a_required_device_must_also_be_measured(virtual):
    source = "def test_it(gpubench, machine): gpubench(machine.launch, 1e-3, check=False)"
    result, _ = virtual(source, "--gpubench-require-device=cpu")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*required device not measured: cpu is not among virtual:0*"])


def test_a_run_without_a_number_still_has_its_rows(run, pytester):
    run(CASE, "--gpubench-device=xpu", "--benchmark-json=run.json").assert_outcomes(skipped=1)
    data = json.loads((pytester.path / "run.json").read_text())
    assert data["benchmarks"] == []
    assert data["gpubench"]["unmeasured"][0]["status"] == "skipped"


def test_a_strict_xfail_that_passes_is_no_number(run, pytester):
    source = CASE.replace("def test", "@pytest.mark.xfail(strict=True, reason='not yet')\ndef test")
    run(source, "--benchmark-json=run.json").assert_outcomes(failed=1)
    data = json.loads((pytester.path / "run.json").read_text())
    (row,) = data["gpubench"]["unmeasured"]
    assert (data["benchmarks"], row["status"], row["reason"]) == ([], "error", "[XPASS(strict)] not yet")


def test_an_interrupted_case_is_no_number(pytester, forking):
    pytester.makepyfile(
        test_it=CASE
        + """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
def test_stop(gpubench):
    calls = []
    def stop(x):
        calls.append(1)
        if len(calls) > 20:
            os.kill(os.getpid(), signal.SIGINT)
    gpubench(stop, gpubench.randn(4), check=False)
"""
    )
    pytester.runpytest_subprocess("--gpubench-preset=smoke", "--benchmark-json=run.json")
    data = json.loads((pytester.path / "run.json").read_text())
    assert [b["name"] for b in data["benchmarks"]] == ["test_neg[cpu-float32]"]
    (row,) = data["gpubench"]["unmeasured"]
    assert row["reason"] == "interrupted while it was measured"


def test_a_fixture_that_asks_for_too_much_is_a_skip(run):
    source = (
        CASE
        + """
@pytest.fixture
def big(gpubench): return gpubench.randn(10**14)
def test_big(gpubench, big): pass
"""
    )
    run(source).assert_outcomes(passed=1, skipped=1)


def test_a_users_own_fixture_of_our_name_is_left_alone(run):
    run(
        "import pytest\n@pytest.fixture\ndef gpubench(): return 1\ndef test_own(gpubench): assert gpubench == 1\n"
    ).assert_outcomes(passed=1)


def test_identities_hold_no_addresses_and_tell_files_of_one_name_apart(pytester, forking):
    source = """
import torch, pytest
@pytest.mark.parametrize("op", [torch.neg, torch.abs, object()])
def test_op(gpubench, op):
    gpubench(lambda x: x.is_meta or -x, gpubench.randn(4))
"""
    for folder in ("a", "b"):
        (pytester.mkpydir(folder) / "test_same.py").write_text(source)
    pytester.runpytest_subprocess("--gpubench-preset=smoke", "--benchmark-json=run.json").assert_outcomes(passed=6)
    data = json.loads((pytester.path / "run.json").read_text())
    ids = [b["extra_info"]["gpubench"]["id"] for b in data["benchmarks"]]
    assert ids[:3] == ["a/same.op[float32-op=neg]", "a/same.op[float32-op=abs]", "a/same.op[float32-op=op2]"]
    assert len(set(ids)) == 6


def test_an_expression_that_pytest_refuses_is_no_internal_error(run):
    result = run(CASE, "-k", "neg and and", "--benchmark-json=run.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "INTERNALERROR" not in str(result.stdout) + str(result.stderr)


def test_options_count_from_the_environment_too(run, monkeypatch, pytester):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--benchmark-min-rounds=17")
    run(CASE, "--benchmark-json=run.json")
    (bench,) = json.loads((pytester.path / "run.json").read_text())["benchmarks"]
    assert bench["options"]["min_rounds"] == 17


def test_a_test_that_never_measures_is_a_row(run, pytester):
    run(CASE + "\ndef test_idle(gpubench): pass\n", "--benchmark-json=run.json")
    (row,) = json.loads((pytester.path / "run.json").read_text())["gpubench"]["unmeasured"]
    assert row["reason"] == "the test did not call gpubench(...)"


def test_the_header_names_devices_and_preset(pytester):
    result = pytester.runpytest_inprocess("-p", "gpubench.plugin", "--gpubench-device=cpu", "--gpubench-preset=smoke")
    result.stdout.fnmatch_lines(["gpubench: devices cpu, preset smoke"])
    assert "torch" not in result.stdout.str()


def test_a_file_called_like_one_of_the_suite_is_somebodys_own(pytester, monkeypatch):
    """By where it lies, of whichever installation: names are those of the suite only in the suite."""
    for name in ("test_fft", "test_time"):  # modules of the tests that this process has run before
        monkeypatch.delitem(sys.modules, name, raising=False)
    sources = {"benchmarks/test_fft.py": CASE, "test_time.py": CASE}
    sources |= {"checkout/benchmarks/test_fft.py": CASE, "checkout/gpubench/plugin/parametrize.py": ""}
    for name, source in sources.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    options = "--gpubench-preset=smoke", "--gpubench-no-ceilings", "--gpubench-device=cpu", "--benchmark-json=run.json"

    def workloads(*files):
        assert pytester.runpytest_inprocess(*options, *files, "--import-mode=importlib").ret == 0
        return {result.workload for result in read(pytester.path / "run.json").results}

    assert workloads("benchmarks", "test_time.py") == {"test_fft.neg", "test_time.neg"}
    assert workloads("checkout") == {"fft.neg"}
    assert workloads("checkout", "benchmarks") == {"fft.neg", "benchmarks/fft.neg"}
    assert plain_case("a/test_models.py::test_it", {}).workload == "test_models.it"
