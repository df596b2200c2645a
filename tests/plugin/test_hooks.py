"""The plugin among others: options, markers, other plugins, and pytest runs that have nothing to do with us."""

import json
import os
import sys
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path

import forked
import pytest
import torch
from sources import lay

from gpubench.devices import Choice
from gpubench.devices.virtual import VirtualDevice
from gpubench.measure import disturbance, environment
from gpubench.measure.session import Session, Settings
from gpubench.plugin import recorder
from gpubench.plugin.parametrize import Markers, case_of, combinations
from gpubench.runfile.ledger import WITHIN, assemble, read_ledger
from gpubench.runfile.matching import KINDS, SHIPPED
from gpubench.runfile.runs import read_runs

CASE = """
import torch, pytest
def test_neg(gpubench):
    gpubench(lambda x: x.is_meta or -x, gpubench.randn(8))  # not counted: torch would load its compiler for that
"""

LINEAR = """
def test_linear(gpubench):
    gpubench(torch.nn.Linear(4, 4).eval(), gpubench.randn(2, 4))
"""


def marked(marker, source=CASE):
    """The test with our marker."""
    return source.replace("def test", f"@pytest.mark.gpubench({marker})\ndef test")


@pytest.mark.parametrize(
    ("call", "unneeded"),
    [
        ("benchmark(len, [])", ["torch", "pandas", "matplotlib", "numpy", "scipy"]),
        ("", ["msgspec", "gpubench.plugin.hooks", "gpubench.measure.session"]),
    ],
    ids=["plain benchmarks", "no benchmark"],
)
def test_a_suite_of_others_imports_no_more_than_it_needs(pytester, call, unneeded):
    pytester.makepyfile(f"""
        import sys
        def test_plain({"benchmark" if call else ""}):
            {call}
            assert "gpubench.plugin.registration" in sys.modules
            assert not set({unneeded}) & sys.modules.keys()
    """)
    pytester.runpytest_subprocess("--benchmark-json=plain.json").assert_outcomes(passed=1)
    assert not call or "gpubench" not in (pytester.path / "plain.json").read_text()


def test_the_installed_plugin_is_called_gpubench_and_loaded_once(pytester):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    ((name, place),) = project["project"]["entry-points"]["pytest11"].items()
    assert name == "gpubench"  # so that -p no:gpubench switches it off
    pytester.makepyfile(CASE)
    is_installed = any(entry.name == name for entry in metadata.entry_points(group="pytest11"))
    entry = [] if is_installed else ["-p", place]  # pytest loads an installed one by itself
    options = ["--gpubench-preset=smoke", "--gpubench-no-ceilings", "-W", "error::pytest.PytestAssertRewriteWarning"]
    for names in (entry, [*entry, "-p", "gpubench.plugin"], ["-p", "gpubench.plugin", *entry]):
        result = pytester.runpytest_subprocess(*names, *options)
        result.assert_outcomes(passed=1)


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


def test_torch_that_a_test_imports_in_its_body_is_recorded_and_no_change(pytester):
    pytester.makepyfile(
        test_it="def test_plain(benchmark):\n    import torch\n    benchmark(torch.mm, *[torch.ones(9, 9)] * 2)"
    )
    pytester.runpytest_subprocess("--gpubench-ledger=journal.jsonl", "--gpubench-preset=smoke")
    events = read_ledger(pytester.path / "journal.jsonl")
    run = assemble(events)
    assert events[0]["machine_info"]["gpubench"]["torch"] is None
    assert run["machine_info"]["gpubench"]["torch"]["version"] == torch.__version__
    ((process,),) = (each["extra_info"]["gpubench"]["processes"] for each in run["benchmarks"])
    assert "altered" not in [flag["flag"] for flag in process["flags"]]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--gpubench-device=gpu", "unknown device 'gpu': choose from auto, all, cpu, "),
        ("--gpubench-device=cuda:x", "unknown device 'cuda:x': choose from"),
        ("--gpubench-dtype=fp32", "unknown dtype 'fp32': choose from float32, tf32, bfloat16, float16, float64"),
        ("--gpubench-variant=jit", "unknown variant 'jit': choose from eager, autocast, compile"),
        ("--gpubench-require-device=xpu", "xpu:0 is not available: "),
        ("--gpubench-require-device=demo", "required device not measured: demo is not among cpu"),
        ("--gpubench-preset=huge", "unknown preset 'huge': choose from smoke, glance, quick, full"),
        ("--gpubench-threads=two", "threads must be a whole number, not 'two'"),
        ("--gpubench-threads=0", "threads must be 1 or more, not '0'"),
        ("--gpubench-seed=-1", "seed must be 0 or more, not '-1'"),
        ("--gpubench-seed=9223372036854775808", "seed must be below 2**63"),  # it was measured, and then unreadable
        ("--gpubench-process=3/3", "argument --gpubench-process: invalid"),
        ("--gpubench-ranks-deadline=nan", "ranks-deadline must be seconds above 0, not 'nan'"),
        ("--benchmark-json=no/run.json", "no/run.json: no results file can be written there"),
        ("--benchmark-json=.", ".: no results file can be written there"),
        ("-kneg and and", "Wrong expression passed to '-k'"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_4(bench, option, says):
    ran = bench(CASE, option)
    assert ran.ret == 4
    assert [line for line in ran.said.splitlines() if says in line]
    assert "Traceback" not in ran.said
    assert "INTERNALERROR" not in ran.said


def test_a_device_that_is_absent_is_a_row_with_its_reason_and_fails_the_run_where_it_is_required(bench):
    for devices, measured in ((["--gpubench-device=cpu"], 1), ([], 0)):
        ran = bench(CASE, *devices, "--gpubench-device=xpu", passed=measured, skipped=1)
        (row,) = ran.rows
        assert (len(ran.marks), row["device"], row["status"]) == (measured, "xpu:0", "skipped")
        assert row["reason"].startswith("xpu:0 is not available: ")
    assert bench(CASE, "--gpubench-require-device=cpu").ret == 0


def test_auto_and_all_and_names(virtual):
    source = """
        def test_names(gpubench, machine):
            index = int(gpubench.case.device.partition(":")[2] or 0)
            gpubench.declare(check=False)(machine.launch, 1e-3, index)
    """
    for options, devices in (
        (["--gpubench-device=auto"], ["cpu", "virtual:0"]),
        (["--gpubench-device=all"], ["cpu", "virtual:0", "virtual:1"]),
        (["--gpubench-device=virtual:1"], ["virtual:0", "virtual:1"]),  # beside the fixture's own `virtual`
    ):
        _, run = virtual(source, "--gpubench-preset=smoke", *options)
        assert sorted(b["params"]["gpubench_device"] for b in run["benchmarks"]) == devices


def test_sizes_come_from_the_preset(bench):
    source = """
import torch, pytest
@pytest.mark.gpubench_sweep("n", smoke=[1], quick=[2, 3], full=[2, 3, 4])
@pytest.mark.gpubench(dtypes=["float32", "tf32", "float64"])
def test_neg(gpubench, n): gpubench(torch.neg, gpubench.randn(n))
"""
    for preset, sizes in (("smoke", [1]), ("glance", [2, 3]), ("quick", [2, 3]), ("full", [2, 3, 4])):
        names = bench(source, "--collect-only", "-q", f"--gpubench-preset={preset}").collected
        assert names == [f"test_neg[cpu-{dtype}-{n}]" for dtype in ("float32", "float64") for n in sizes]


GLANCED = """
import torch, pytest
NETWORK = pytest.mark.gpubench(variants=["eager", "autocast"])
@NETWORK
@pytest.mark.gpubench_sweep("n", glance=[5], quick=[2, 3])
@pytest.mark.gpubench_sweep("m", quick=[1])
def test_chosen(gpubench, n, m): gpubench(torch.neg, gpubench.randn(n))
@NETWORK
@pytest.mark.gpubench_sweep("n", quick=[2, 3])
def test_other(gpubench, n): gpubench(torch.neg, gpubench.randn(n))
@pytest.mark.gpubench_sweep("n", glance=[5], quick=[2, 3])
@pytest.mark.gpubench_sweep("m", glance=[], quick=[1])
def test_refused(gpubench, n, m): gpubench(torch.neg, gpubench.randn(n))
def test_plain(benchmark): benchmark(len, [])
def test_ordinary(): pass
"""


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ([], ["test_chosen[cpu-float32-1-5]", "test_ordinary"]),
        (["--gpubench-variant=autocast"], ["test_chosen[cpu-float32-autocast-1-5]", "test_ordinary"]),
        # That file or test knows nothing of a glance.
        (["-k", "other"], ["test_other[cpu-float32-2]", "test_other[cpu-float32-3]"]),
        (["--gpubench-match=other or plain"], ["test_other[cpu-float32-2]", "test_other[cpu-float32-3]", "test_plain"]),
    ],
)
def test_a_glance_has_the_tests_that_choose_it(bench, options, ids):
    """Without rows for the others; where none chooses it, all of them."""
    assert bench(GLANCED, "--collect-only", "-q", "--gpubench-preset=glance", *options).collected == ids


def test_what_a_glance_leaves_out_of_what_k_chooses_is_said(bench, pytester):
    journal = pytester.path / "run.ledger.jsonl"
    usual = ["--gpubench-preset=glance", "--gpubench-no-ceilings", f"--gpubench-ledger={journal}"]
    bench(GLANCED, "--gpubench-match=chosen or other", usual=usual)
    session, *_ = read_ledger(journal)
    assert session["notices"][:1] == ["preset glance leaves out 2 benchmarks that -k chooses: use --preset quick"]


def test_dtypes_can_be_chosen(bench):
    def dtypes(marker, *options):
        names = bench(marked(marker), "--collect-only", "-q", *options).collected
        return [name.partition("-")[2].rstrip("]") for name in names]

    source, tf32 = "dtypes=['float32', 'tf32', 'float64']", "--gpubench-dtype=tf32"
    assert dtypes(source, "--gpubench-dtype=float64", tf32) == ["float64", "tf32"]
    assert dtypes("", tf32, "--gpubench-dtype=bfloat16") == ["bfloat16"]
    assert "tf32 does not exist on cpu" in bench(marked(source), tf32, skipped=1).said
    longest = "full_dtypes=['bfloat16', 'float16']"  # come besides
    assert dtypes(longest, "--gpubench-preset=quick") == ["float32"]
    assert dtypes(longest, "--gpubench-preset=full") == ["float32", "bfloat16", "float16"]
    assert dtypes(longest, "--gpubench-preset=quick", "--gpubench-dtype=float16") == ["float16"]


def test_our_marker_is_merged_into_the_tests_own_and_another_timer_is_overridden_with_a_warning(bench):
    marker = "@pytest.mark.benchmark(group='mine', min_rounds=7, timer=__import__('time').process_time)"
    ran = bench(CASE.replace("def test", f"{marker}\ndef test"))
    (mark,) = ran.marks
    assert (mark["options"]["timer"], mark["options"]["min_rounds"]) == ("device_clock", 7)
    assert mark["stats"]["rounds"] >= 7
    assert "another timer was asked for" in ran.said
    assert "another timer was asked for" in bench(CASE, "--benchmark-timer=time.process_time").said


def test_pytest_benchmarks_own_options_keep_working(bench, pytester):
    pytester.makeini("[pytest]\naddopts = --benchmark-min-rounds=9")
    assert bench(CASE, "--benchmark-save=one").ret == 0
    ran = bench(CASE, "--benchmark-compare=0001", "--benchmark-compare-fail=min:10000%", apart=True)  # which warns
    assert ran.ret == 0
    assert "(NOW)" in ran.said
    assert "machine_info is different" not in ran.said
    assert bench(CASE, "--benchmark-precision=0.5", "--benchmark-group-by=param:gpubench_device").ret == 0
    saved = next(pytester.path.glob(".benchmarks/*/0001_one.json"))
    assert json.loads(saved.read_text())["benchmarks"][0]["stats"]["rounds"] >= 9


def test_reasons_without_a_number_are_written_into_the_file_and_not_over_it(bench, pytester):
    """It may be /dev/stdout."""
    (pytester.path / "run.json").symlink_to("elsewhere.json")
    ran = bench("import pytest\ndef test_it(gpubench): pass\ndef test_plain(benchmark): pytest.skip('no data')\n")
    assert [row["reason"] for row in ran.rows] == ["the test did not call gpubench(...)", "no data"]
    assert (pytester.path / "run.json").is_symlink()


def test_a_results_file_that_fails_to_be_written_leaves_the_journal(bench, pytester):
    bench(CASE + "def test_it():\n    import os\n    os.mkdir('out.json')\n", "--benchmark-json=out.json")
    results = next(iter(read_runs([pytester.path / "out.ledger.jsonl"]))).results
    assert [result.status for result in results] == ["ok"]


def test_a_file_that_leaves_the_working_folder_as_it_is_imported_loses_no_results(bench, pytester):
    """pytest goes back, where no journal was."""
    leaves = "import os\nos.mkdir('elsewhere')\nos.chdir('elsewhere')\n"
    assert bench(leaves + CASE, apart=True, passed=1).names == ["test_neg"]
    assert not list(pytester.path.rglob("*.ledger.jsonl"))


@pytest.mark.parametrize("option", ["--benchmark-disable", "--benchmark-skip"])
def test_where_nothing_is_timed_the_machine_is_not_looked_at(bench, monkeypatch, option):
    monkeypatch.setattr("gpubench.measure.disturbance.canary", lambda threads: pytest.fail("looked at"))
    assert not [line for line in bench(CASE, option).said.splitlines() if line.startswith("gpubench: ")]


def test_disabled_it_still_checks(bench):
    wrong = "def test_wrong(gpubench): gpubench.declare(check=lambda x: x + 1)(lambda x: x, gpubench.randn(4))\n"
    bench(CASE + wrong, "--benchmark-disable", passed=1, failed=1)


def test_xdist_does_not_crash(bench):
    pytest.importorskip("xdist")
    bench(CASE, "-n1", apart=True, passed=1)


def test_without_pytest_benchmark_it_skips(bench):
    ran = bench(CASE, "-p", "no:benchmark", usual=["--gpubench-preset=smoke", "-rs"], apart=True, skipped=1)
    assert "needs pytest-benchmark" in ran.said


def test_beside_a_plugin_that_replaces_pytest_benchmark_it_skips(bench, pytester):
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
    bench(CASE, usual=["-rs"], apart=True, skipped=1)


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("dtypes=['f32']", "dtypes has no 'f32': choose from float32"),
        ("kind='network'", "kind has no 'network': choose from matmul, networks"),
        ("kind=['networks']", "kind must be a text, not ['networks']"),
        ("title=50", "title must be a text, not 50"),
        ("full_dtypes=['half']", "full_dtypes has no 'half': choose from float32"),
        ("name='ResNet'", "unknown gpubench marker key 'name': dtypes"),
    ],
)
def test_a_wrong_marker_names_what_exists(bench, marker, says):
    ran = bench(marked(marker))
    assert says in ran.said
    assert ran.ret not in (0, 5)


def test_a_benchmark_says_what_it_is(bench):
    """In each of its rows, measured or not; one's own may leave it out."""
    mine = "pytestmark = pytest.mark.gpubench(kind='science', title='Minus')\n"
    source = CASE + mine + "@pytest.mark.gpubench(title='')\ndef test_idle(gpubench): pass\n"
    for text, expected in ((source, [("science", "Minus"), ("science", "")]), (CASE, [("", "")])):
        ran = bench(text)
        assert [(result.kind, result.title) for result in ran.run.results] == expected
        assert [row["reason"] for row in ran.rows] == ["the test did not call gpubench(...)"] * (text is source)


def test_every_shipped_benchmark_says_what_it_is(pytester):
    """And people can tell them apart."""

    class Collected:
        items: tuple[pytest.Item, ...] = ()

        def pytest_collection_finish(self, session):
            Collected.items = tuple(session.items)

    folder = str(Path(__file__).parents[2] / "benchmarks")
    options = "--collect-only", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--gpubench-preset=full"
    assert pytester.runpytest_inprocess(folder, *options, plugins=[Collected()]).ret == 0
    every = [case_of(item, {}) for item in Collected.items]
    assert [case for case, count in Counter(str(case.as_dict()) for case in every).items() if count > 1] == []
    cases = {case.workload: case for case in every}
    assert {workload.partition(".")[0] for workload in cases} == SHIPPED - {"time"}
    assert [case.workload for case in cases.values() if case.kind not in KINDS] == []
    assert [case.workload for case in cases.values() if not case.title] == []
    assert [title for title, count in Counter(case.title for case in cases.values()).items() if count > 1] == []


def test_a_workload_that_runs_nowhere_here_is_one_row(bench):
    source = """
@pytest.mark.gpubench(devices="accelerator")
@pytest.mark.gpubench_sweep("n", smoke=[1, 2, 3], quick=[1])
def test_move(gpubench, n): pass
"""
    (row,) = bench(CASE + source, passed=1, skipped=1).rows
    assert row["reason"] == "needs a GPU; this run uses: cpu"
    (row,) = bench(marked("devices='two accelerators'"), "--gpubench-device=demo", skipped=1).rows
    assert row["reason"] == "needs two accelerators of a kind; this run uses: demo"


def test_nothing_is_registered_without_our_prefix(bench):
    section = bench("", "--help").out.split("benchmarks on every device:")[1].split("\n\n")[0]
    flags = [word for word in section.split() if word.startswith("--")]
    assert {flag[:11] for flag in flags} == {"--gpubench-"}


def test_quick_variants_are_compiled_on_the_cpu_and_graphs_on_an_accelerator(bench):
    graphs = "from gpubench.plugin.demo import Demo\nDemo.supports_graphs = True\n"
    source = graphs + marked("variants=['eager', 'compile', 'graph'], quick_variants=['compile', 'graph']")
    both = "--collect-only", "-q", "--gpubench-device=demo", "--gpubench-device=cpu"
    found = {
        preset: sorted(name[9:-1] for name in bench(source, *both, f"--gpubench-preset={preset}").collected)
        for preset in ("smoke", "glance", "quick", "full")
    }
    eager = ["cpu-float32", "demo-float32"]
    quick = ["cpu-float32-compile", "demo-float32-graph"]
    every = ["cpu-float32-compile", "demo-float32-compile", "demo-float32-graph"]
    assert found == {"smoke": eager, "glance": eager, "quick": sorted(eager + quick), "full": sorted(eager + every)}


@pytest.mark.parametrize("option", ["--gpubench-variant=autocast", "--gpubench-dtype=tf32"])
def test_a_workload_without_what_was_asked_for_is_one_row(bench, option):
    source = CASE + marked("variants=['eager', 'autocast'], dtypes=['float32', 'tf32']", LINEAR)
    assert "not for this workload" in bench(source, option).rows[0]["reason"]


@pytest.mark.parametrize(("dtype", "reason"), [("float32", ""), ("bfloat16", "emulated")])
def test_autocast_runs_where_bfloat16_is_emulated_in_float16(dtype, reason):
    class Turing(VirtualDevice):
        def lacks(self, dtype):
            return "emulated" if dtype == "bfloat16" else None

    session = Session(Settings(dtypes=(dtype,)))
    session.choices = [Choice("virtual:0", Turing())]
    found = combinations(Markers(dtypes=(dtype,), variants=("autocast" if dtype == "float32" else "eager",)), session)
    assert [why for why, _ in found] == [reason]


BUILDS = "backend='inductor' raised: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/main.c', '-O3']' returned 1."
PYTHON_H = "torch.compile needs Python.h: install python3-dev (Debian) or python3-devel (Fedora)"


@pytest.mark.parametrize(
    ("kind", "text", "present", "reason"),
    [
        ("NotImplementedError", "The operator 'aten::qr' is not currently implemented for the MPS device. If you want",
         True, "The operator 'aten::qr' is not currently implemented for the MPS device"),
        ("NotImplementedError", "Could not run 'aten::geqrf' with arguments from the 'XPU' backend. This could be",
         True, "Could not run 'aten::geqrf' with arguments from the 'XPU' backend"),
        ("NotImplementedError", "Could not run 'aten::geqrf' with arguments from the 'CPU' backend.", True, None),
        ("NotImplementedError", "the benchmark's own", True, None),
        ("RuntimeError", "backend='inductor' raised: RuntimeError: Failed to find C compiler. Please specify via CC",
         True, "torch.compile: Failed to find C compiler"),
        ("RuntimeError", "C++ compile error Output: x.h:1:10: fatal error: Python.h: No such file or directory",
         True, PYTHON_H),
        ("RuntimeError", BUILDS, False, PYTHON_H),
        ("RuntimeError", BUILDS, True, None),
        ("RuntimeError", "CalledProcessError: Command '['false']' returned 1.", False, None),
    ],
)  # fmt: skip
def test_what_a_device_or_the_machine_lacks_is_skipped(bench, monkeypatch, tmp_path, kind, text, present, reason):
    monkeypatch.setattr(recorder, "_HEADER", Path(__file__) if present else tmp_path / "Python.h")
    (row,) = bench(f"def test_it(gpubench): raise {kind}({text!r})").rows
    assert row["status"] == ("skipped" if reason else "error")
    assert row["reason"] == reason or (reason is None and row["reason"].startswith(f"{kind}: {text[:20]}"))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Aten Op fallback from XPU to CPU happens. This may have performance implications.", "skipped"),
        ("The operator 'aten::qr' is not currently supported on the MPS backend and will fall back to run on the CPU.",
         "skipped"),
        ("the benchmark's own", "ok"),
    ],
)  # fmt: skip
def test_what_is_computed_on_the_cpu_instead_is_refused(virtual, text, status):
    source = f"""
import warnings
def test_it(gpubench, machine):
    def call():
        warnings.warn({text!r})
        machine.launch(1e-3)
    gpubench.declare(check=False)(call)
"""
    result, run = virtual(source, **{"passed" if status == "ok" else "skipped": 1})
    assert ("computed on the CPU: " in result.stdout.str() + str(run)) == (status == "skipped")


SWITCHED = """
import pytest, torch
from gpubench.measure.budget import Rates
from gpubench.measure.precision import float32_state
from gpubench.devices.virtual import VirtualDevice
VirtualDevice.lacks = lambda self, dtype: None  # not even tf32
Rates.estimate = lambda *_: (None, "")
{program}
before, layers = float32_state(), {{"product": torch.nn.Linear(8, 8), "convolution": torch.nn.Conv2d(8, 2, 3)}}
{marker}
@pytest.mark.parametrize("kind", ["product", "convolution", "recurrent"])
def test_it(gpubench, machine, kind):
    layer, x, seen = layers.get(kind, torch.nn.LSTM(8, 8)), torch.ones(8, 8, 8), []
    layer.register_forward_pre_hook(lambda *_: seen.append(float32_state()) or machine.launch(1e-2))
    with torch.inference_mode():
        gpubench.declare(devices=["cpu"], check=False)(layer, x)
    assert seen and all(state == before for state in seen) == {kept}
"""
IEEE = "@pytest.mark.gpubench(dtypes=['float32'])"


@pytest.mark.parametrize(
    ("program", "marker", "shortened"),
    [
        ("", "", ["convolution", "recurrent"]),
        ("torch.set_float32_matmul_precision('high')", "", ["convolution", "product", "recurrent"]),
        ("torch.backends.cudnn.allow_tf32 = False", "", []),
        ("torch.set_float32_matmul_precision('high')", IEEE, []),
    ],
)
def test_a_test_that_names_no_dtype_keeps_the_program_s_switches_and_says_so(virtual, program, marker, shortened):
    source = SWITCHED.format(program=program, marker=marker, kept=not marker)
    _, run = virtual(source, apart=True, passed=3)
    rows = [(mark["params"]["kind"], mark["extra_info"]["gpubench"]) for mark in run["benchmarks"]]
    assert {row["dtype"] for _, row in rows} == {"float32"}
    assert sorted(kind for kind, row in rows if row["precision"]["tf32"]) == shortened
    assert sorted(kind for kind, row in rows if row["precision"].get("own_switches")) == shortened


RISING = """
from gpubench.devices.virtual import VirtualDevice
def test_it(gpubench, machine, monkeypatch):
    begin = machine.time_s
    risen = lambda: min(1.0, 0.2 + (machine.time_s - begin))
    if {known}:
        monkeypatch.setattr(VirtualDevice, "clocks", lambda self: {{"sm": risen() * 2e9}})
    gpubench.declare(check=False)(lambda: machine.launch(1e-3 / risen()))
"""


@pytest.mark.parametrize("known", [True, False])
def test_the_warm_up_lasts_until_the_clocks_stand(virtual, known):
    """They rise for 0.8 s."""
    _, run = virtual(RISING.format(known=known), "--gpubench-preset=quick", passed=1)
    (bench,) = run["benchmarks"]
    assert bench["stats"]["median"] == pytest.approx(1e-3, rel=0.05)
    assert bench["extra_info"]["gpubench"]["latency_s"] == pytest.approx(1e-3, rel=0.05)


def test_a_strict_xfail_that_passes_is_no_number(bench):
    source = CASE.replace("def test", "@pytest.mark.xfail(strict=True, reason='not yet')\ndef test")
    ran = bench(source, failed=1)
    (row,) = ran.rows
    assert (ran.marks, row["status"], row["reason"]) == ([], "error", "[XPASS(strict)] not yet")


STOPPED = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
def test_stop(gpubench):
    calls = []
    def stop(x):
        calls.append(1)
        if len(calls) > 20:
            os.kill(os.getpid(), signal.SIGINT)
    gpubench.declare(check=False)(stop, gpubench.randn(4))
"""


def test_an_interrupted_case_is_no_number(bench):
    ran = bench(CASE + STOPPED, apart=True)
    assert [mark["name"] for mark in ran.marks] == ["test_neg[cpu-float32]"]
    assert [row["reason"] for row in ran.rows] == [WITHIN]


def test_a_fixture_that_asks_for_too_much_is_a_skip_and_one_of_our_name_is_left_alone(bench):
    source = """
@pytest.fixture
def big(gpubench): return gpubench.randn(10**14)
def test_big(gpubench, big): pass
class TestOwn:
    @pytest.fixture
    def gpubench(self): return 1
    def test_own(self, gpubench): assert gpubench == 1
"""
    bench(CASE + source, passed=2, skipped=1)


def test_identities_hold_no_addresses_and_tell_files_of_one_name_apart(bench, pytester):
    source = """
import torch, pytest
@pytest.mark.parametrize("op", [torch.neg, torch.abs, object()])
def test_op(gpubench, op): gpubench(lambda x: x.is_meta or -x, gpubench.randn(4))
"""
    for folder in ("a", "b"):
        (pytester.mkpydir(folder) / "test_same.py").write_text(source)
    ran = bench("", "a", "b", apart=True, passed=6)
    ids = [record["id"] for record in ran.records]
    assert ids[:3] == [f"a/test_same.op[float32-op={op}]" for op in ("neg", "abs", "op2")]
    assert len(set(ids)) == 6


SUM, OURS = (
    "def test_f(benchmark): benchmark(sum, [1])",
    "def test_f(gpubench): gpubench.declare(check=False)(sum, [1])",
)
TOPS = "a/", "b/", ""
ONE_ID = "def pytest_collection_modifyitems(items):\n    for item in items: item._nodeid = 'all::one'"


@pytest.mark.parametrize(
    ("sources", "options", "names"),
    [
        ({"a/test_s.py": SUM, "b/test_s.py": OURS}, ["-c", os.devnull], {"a/test_s.py::test_f", "b/test_s.f"}),
        ({"test_s.py": SUM, "test_t.py": SUM}, ["-c", os.devnull], {"test_s.py::test_f", "test_t.py::test_f"}),
        ({"test_s.py": SUM, "test_t.py": SUM, "conftest.py": ONE_ID}, [], {"all::one", "all::one#2"}),
        ({f"{top}x/test_s.py": OURS for top in TOPS}, [], {f"{top}x/test_s.f" for top in TOPS}),
        ({"s_test.py": OURS, "test_s.py": OURS}, [], {"s_test.f", "test_s.f"}),
        ({"test_s.py": f"{OURS}\n{OURS.replace('test_', '')}"}, ["-opython_functions=f test_*"], {"s.f", "s.f#2"}),
    ],
    ids=["no file, two folders", "no file", "conftest", "folders of one name", "files of one stem", "functions"],
)
def test_tests_that_share_an_id_or_a_name_are_several_benchmarks(pytester, sources, options, names):
    lay(pytester.path, sources)
    wanted = [pytester.path / name for name in sources if name != "conftest.py"]
    journal = "--gpubench-ledger=run.ledger.jsonl"
    words = ["--gpubench-process=0/1", journal, "--gpubench-preset=smoke", "--gpubench-device=cpu", *options]
    with forked.instead():
        assert pytester.runpytest_subprocess(*words, "--import-mode=importlib", *wanted).ret == 0
    results = next(iter(read_runs([pytester.path / "run.ledger.jsonl"]))).results
    assert {result.workload for result in results} == names
    assert [result.status for result in results] == ["ok"] * len(names)


def test_a_file_called_like_one_of_the_suite_is_somebodys_own(bench, pytester, monkeypatch):
    """By where it lies, of whichever installation: the suite's names are used only in the suite."""
    for name in ("test_fft", "test_time"):  # modules of the tests that this process has run before
        monkeypatch.delitem(sys.modules, name, raising=False)
    sources = {"benchmarks/test_fft.py": CASE, "test_time.py": CASE}
    sources |= {"checkout/benchmarks/test_fft.py": CASE, "checkout/gpubench/plugin/parametrize.py": ""}
    lay(pytester.path, sources)

    def workloads(*files):
        ran = bench("", *files, "--import-mode=importlib")
        assert ran.ret == 0
        return {result.workload for result in ran.run.results}

    assert workloads("benchmarks", "test_time.py") == {"test_fft.neg", "test_time.neg"}
    assert workloads("checkout") == {"fft.neg"}
    assert workloads("checkout", "benchmarks") == {"fft.neg", "benchmarks/test_fft.neg"}


AMONG_OTHERS = """
import torch
seen = [torch.get_num_threads()]
def test_before(): seen.append(torch.get_num_threads())
def test_benchmark(gpubench):
    gpubench.declare(check=False)(lambda: seen.append(torch.get_num_threads()))
    torch.set_num_threads(1)
def test_after():
    first, before, *within, last = *seen, torch.get_num_threads()
    assert (first, before, {*within}, last) == (2, 2, {THREADS}, 2)
"""


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("notice", ["", "Other programs use the cores"])
def test_threads_among_a_project_s_tests_are_chosen_with_a_line_and_given_back(bench, monkeypatch, notice):
    """On a busy machine `pytest` asks as a run does; the project's other tests keep their threads."""
    check = disturbance.SelfCheck(notice=notice)
    monkeypatch.setattr(disturbance.SelfCheck, "of", lambda threads, option: check)
    monkeypatch.setattr(environment.cpu, "cores", lambda: 3)
    threads = 1 if notice else 3
    torch.set_num_threads(2)
    options = ["--gpubench-preset=glance", "--gpubench-no-ceilings"]
    ran = bench(AMONG_OTHERS.replace("THREADS", str(threads)), usual=options, passed=3)
    line = f"gpubench: 1 benchmark, the CPU on {threads} thread{'s' * (threads > 1)}, about"
    assert [text for text in ran.said.splitlines() if text.startswith((line, "gpubench: Other"))][1:] == [
        f"gpubench: {notice}"
    ] * bool(notice)
    assert line in ran.said


def test_a_test_of_variants_that_only_full_measures_says_so(bench):
    (row,) = bench(marked('variants=["compile"]'), "--gpubench-preset=quick", skipped=1).rows
    assert row["reason"].startswith("only preset full measures compile unless asked for: --preset full, or --variant")
