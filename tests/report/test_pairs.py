"""speedup.csv: the pairs and their uncertainty."""

import copy
import csv
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import reading
import records
from reading import study_of

import gpubench
from gpubench.commands.cli import main
from gpubench.errors import UsageError
from gpubench.report.answer import Answer
from gpubench.report.charts.headline_chart import headline_figures
from gpubench.report.columns import csv_files
from gpubench.report.results import answer_screen, findings
from gpubench.report.study import Study
from gpubench.report.tables import answer_tables
from gpubench.runfile.flags import Quality, Reason
from gpubench.runfile.runs import read_runs

run = partial(records.run, processes=1, cuda=2)


def compared(*runs, baseline=None):
    return study_of(*runs, baseline=baseline).device_pairs


def sides_of(*runs, baseline=None):
    """Run and device of both sides, and the speedup."""
    return [
        (*(f"{row.run_name}/{row.result.device}" for row in (pair.base, pair.other)), pair.speedup)
        for pair in compared(*runs, baseline=baseline)
    ]


def test_a_row_of_the_file():
    """The order of the columns is as in the committed results."""
    moved = {"in_bytes": 4, "out_bytes": 4, "in_s": 8.0, "out_s": 4.0, "in_pinned_s": 1.5, "out_pinned_s": 0.5}
    both = run().bench("a.b", cpu=8.0, spread=0.25, threads=2, latency=9.0, flags=("noisy",))
    both.bench("a.b", gpu=2.0, spread=0.5, threads=2, latency=6.0, transfer=moved)
    (row,) = reading.speedups(study_of(both))
    ratio = {"speedup": 4.0, "low": pytest.approx(2.8), "high": 6.0, "one_shot_speedup": 4 / 9}
    assert {name: cell for name, cell in row.items() if cell is not None} == ratio | {
        "shown": "4.0×*", "simulated": False,
        "device_name": "Synthetic H-GPU", "workload": "a.b", "dtype": "float32", "variant": "eager", "size_name": "n",
        "size": 64, "baseline_s": 8.0, "time_s": 2.0, "flags": "noisy", "id": "a.b[float32-n=64]", "run": "run",
        "n": 64, "machine": "Synthetic CPU (synthetic)", "device": "cuda:0", "implementation": "torch", "threads": 2,
        "baseline_run": "run", "baseline_machine": "Synthetic CPU (synthetic)", "baseline_device": "cpu",
        "baseline_implementation": "torch", "baseline_threads": 2, "uncertainty": "spread within one process",
        "cache": "hot", "baseline_one_shot_s": 8.0, "one_shot_s": 18.0, "one_shot_pinned_s": 8.0,
        "one_shot_pinned_speedup": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "told"),
    [(3, "95% interval, 3 processes"), (2, "95% interval, 3 and 2 processes"), (1, "spread within one process")],
)
def test_processes_give_an_interval(count, told):
    moved = {"in_bytes": 4, "out_bytes": 0, "in_s": 2}
    study = study_of(run().bench("a.b", cpu=(3.6, 4.0, 4.4), gpu=(1.1, 0.9, 1.0)[:count], transfer=moved))
    (row,), (line,) = study.pairs, reading.speedups(study)
    assert str(row.uncertainty) == told
    assert row.values.low < row.speedup < row.values.high
    if count == 3:
        assert row.copies.values.low < row.copies.speedup < row.copies.values.high
        assert row.copies.speedup == pytest.approx(4 / (2 + 1), rel=0.01)
    ends = row.copies.values[1:] if count > 1 else (None, None)  # in the file too; of one process none is known
    assert (line["one_shot_low"], line["one_shot_high"]) == ends


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "tf32"}, {"variant": "autocast"}, {"n": 65}, {"n": "64"}, {"n": None}, {"workload": "a.c"},
        {"by": "numpy"},
    ],
)  # fmt: skip
def test_unlike_is_never_paired(other):
    assert not compared(run().bench("a.b", cpu=1.0).bench(**{"workload": "a.b", "gpu": 1.0} | other))


def test_baselines_within_a_run():
    one = run().bench("a.b", cpu=8.0, gpu=2.0, gpu1=1.0, numpy=16.0)
    expected = [("run/cpu", "run/cuda:0", 4.0), ("run/cpu", "run/cuda:1", 8.0)]
    for baseline in (None, "cpu", "run", "Synthetic CPU (synthetic)"):
        assert sides_of(one, baseline=baseline) == expected
    assert sides_of(one, baseline="cuda:1") == [("run/cuda:1", "run/cpu", 0.125), ("run/cuda:1", "run/cuda:0", 0.5)]
    numpys = [("run/cpu", "run/cpu", 2.0), ("run/cpu", "run/cuda:0", 8.0), ("run/cpu", "run/cuda:1", 16.0)]
    assert sides_of(one, baseline="numpy") == numpys


def test_several_machines():
    """The first machine is the reference: each device is compared with its device of the same kind, or its CPU."""
    one, two = run("one").bench("a.b", cpu=8.0, gpu=2.0), run("two").bench("a.b", cpu=4.0, gpu1=0.5)
    first = [("one/cpu", "one/cuda:0", 4.0), ("one/cpu", "two/cpu", 2.0), ("one/cuda:0", "two/cuda:1", 4.0)]
    assert sides_of(one, two) == sides_of(one, two, baseline="one") == first
    turned = [("two/cpu", "one/cpu", 0.5), ("two/cuda:1", "one/cuda:0", 0.25), ("two/cpu", "two/cuda:1", 8.0)]
    assert sides_of(one, two, baseline="two") == sides_of(two, one)[1:] + sides_of(two, one)[:1] == turned
    others = [run(name).bench("a.x", cpu=1.0) for name in ("three", "four")]
    assert not compared(run("one").bench("a.b", cpu=8.0), *others)  # what the first lacks has no other baseline
    runs = run("one").bench("a.b", cpu=8.0), run("two").bench("a.b", gpu=2.0)
    assert sides_of(*runs) == sides_of(*runs, baseline="one") == [("one/cpu", "two/cuda:0", 4.0)]
    two_gpus = run("one").bench("a.b", gpu=2.0, gpu1=8.0)
    assert sides_of(two_gpus, run("two").bench("a.b", gpu1=0.5)) == [("one/cuda:1", "two/cuda:1", 16.0)]
    lacking = run("three").bench("a.x", cpu=4.0, gpu=1.0)  # what the first lacks is compared with its own CPU
    assert sides_of(one, lacking)[1:] == [("three/cpu", "three/cuda:0", 4.0)]


def test_threads_of_two_machines_differ_and_are_named():
    one, two = run("one").bench("a.b", cpu=8.0, threads=2), run("two").bench("a.b", cpu=1.0, threads=16)
    (pair,) = compared(one, two)
    assert (pair.speedup, pair.differs) == (8.0, "threads 16 against 2")


def test_a_case_met_twice_is_paired_in_order():
    twice = run().bench("a.b", cpu=8.0).bench("a.b", cpu=9.0).bench("a.b", gpu=4.0).bench("a.b", gpu=3.0)
    assert [pair.speedup for pair in compared(twice)] == [2.0, 3.0]


def test_a_baseline_is_known_by_the_part_of_its_name_that_is_shown_and_an_unknown_one_names_what_exists():
    one = records.run(processes=1).bench("a.b", cpu=4.0, gpu=1.0)
    assert sides_of(one, baseline="h-gpu") == [("run/cuda:0", "run/cpu", 0.25)]
    for name in ("Synthetic", "", "gp", "cuda:7"):  # of both, of none, no whole word
        choices = "choose from cpu, cuda:0, torch, Synthetic .*Synthetic H-GPU"
        with pytest.raises(UsageError, match=f"^unknown baseline '{name}': {choices}"):
            compared(one, baseline=name)


def differences(*runs, allow=(), baseline=None):
    return [differences for _, differences in study_of(*runs, baseline=baseline, allow=allow).left_out]


def precision(**switches):
    return {"precision": switches}


TF32, IEEE = precision(tf32=True), precision(tf32=False)
REDUCED, FULL = (precision(bf16_reduced_precision_reduction=state) for state in (True, False))
BF16, AUTOCAST, HALF = {"dtype": "bfloat16"}, {"variant": "autocast"}, precision(tf32=False, autocast="float16")
SWITCHES = {"tf32": False, "cudnn_benchmark": False, "deterministic": False, "variables": ""}
KNOWN, ON_GPU = precision(**SWITCHES), {"on": "gpu"} | precision(**SWITCHES)
EXACT = precision(**SWITCHES | {"deterministic": True})


@pytest.mark.parametrize(
    ("base", "other", "differs"),
    [
        (IEEE, TF32, "precision: TF32 on against off"),
        (TF32, IEEE, "precision: TF32 off against on"),
        ({}, TF32, "precision: TF32 on against off"),
        (TF32, TF32, "precision: TF32 on against off"),  # a CPU has none
        (BF16 | FULL, BF16 | REDUCED, "precision: bf16 reduced-precision reduction on against off"),
        (AUTOCAST | REDUCED, AUTOCAST | FULL, "precision: bf16 reduced-precision reduction off against on"),
        (AUTOCAST, AUTOCAST | HALF, "precision: autocast in float16 against bfloat16"),
        (AUTOCAST | HALF, AUTOCAST | HALF, ""),
        ({}, {"dtype": "tf32"} | TF32, "dtype: dtype tf32 against float32"),
        ({}, BF16, "dtype: dtype bfloat16 against float32"),
        ({"threads": 1}, {"threads": 2}, "threads: threads 2 against 1"),
        ({}, {"cache": "cold"}, "cache: cache cold against hot"),
        (IEEE, {}, ""),
        (precision(), IEEE, ""),
        ({"dtype": "float64"} | IEEE, {"dtype": "float64"} | TF32, ""),
        (BF16 | IEEE, BF16 | TF32, ""),
        (REDUCED, FULL, ""),
        (BF16, BF16 | REDUCED, ""),
        ({"threads": None}, {"threads": 2}, ""),
        # of two accelerators: only equal switches; a CPU's times know of no more than deterministic algorithms
        (ON_GPU, precision(**SWITCHES | {"cudnn_benchmark": True}), "precision: cuDNN benchmark on against off"),
        (ON_GPU, precision(**SWITCHES | {"variables": "X=0"}), "precision: variables X=0 against none"),
        (KNOWN, precision(**SWITCHES | {"cudnn_benchmark": True}), ""),
        (KNOWN, EXACT, "precision: deterministic algorithms on against off"),
        (ON_GPU, EXACT, "precision: deterministic algorithms on against off"),
    ],
)
def test_what_differs_is_left_out_or_named(base, other, differs):
    side = base.get("on", "cpu")
    terms = {name: value for name, value in base.items() if name != "on"}
    one, device = run().bench("a.b", **{side: 8.0}, **terms).bench("a.b", gpu1=2.0, **other), records.SIDES[side][0]
    term, _, words = differs.partition(": ")
    assert differences(one, baseline=device) == [{term: words}] * bool(differs)
    others = [each for each in ("dtype", "precision", "cache", "threads", "seed") if each != term]
    assert len(study_of(one, baseline=device, allow=others).device_pairs) == (not differs)
    allowed = study_of(one, baseline=device, allow=[term])
    (row,) = allowed.device_pairs
    assert (row.differs, row.speedup, allowed.left_out) == (words, 4.0, [])


def test_the_program_s_own_tf32_is_named_beside_its_speedup():
    own = precision(tf32=True, own_switches=True)
    study = study_of(run().bench("a.b", cpu=8.0, **IEEE).bench("a.b", gpu=2.0, **own))
    (row,) = study.device_pairs
    assert (row.differs, row.speedup, study.left_out) == ("TF32 on against off", 4.0, [])
    assert row.other.result.compute_dtype == "tf32"
    other, third = run("two").bench("a.b", gpu=8.0, **IEEE), run("three").bench("a.b", gpu=2.0, **own)
    assert differences(other, third) == [{"precision": "TF32 on against off"}]
    cpu = run("two").bench("a.b", cpu=8.0, **IEEE)  # of another run: its program's switches aren't this one's
    assert differences(cpu, third, baseline="two") == [{"precision": "TF32 on against off"}]


@pytest.mark.parametrize(
    ("base", "other", "left"),
    [
        # unknown at the baseline and on at the other: the ratio might be of unlike precisions
        ({"tf32": None}, {"tf32": True}, {"precision": "TF32 on against unknown"}),
        ({"tf32": True}, {"tf32": True}, None),
        ({"tf32": None}, {"tf32": False}, None),
        ({"seed": 0}, {"seed": 1}, {"seed": "seed 1 against 0"}),
        ({"seed": 0}, {"seed": None}, None),
    ],
)
def test_runs_of_unlike_data_or_precision_are_not_paired(base, other, left):
    runs = [run(**how).bench("a.b", gpu=8.0) for how in (base, other)]
    assert differences(*runs) == [left] * bool(left)


def test_several_differences_must_all_be_allowed():
    one = run().bench("a.b", cpu=8.0, threads=1).bench("a.b", gpu=2.0, threads=2, cache="cold")
    assert differences(one) == [{"cache": "cache cold against hot", "threads": "threads 2 against 1"}]
    assert differences(one, allow=["cache"]) == [{"threads": "threads 2 against 1"}]
    two = run("one").bench("a.b", gpu=8.0, cache="cold").bench("a.b", gpu1=8.0, cache="cold", dtype="float16")
    assert differences(two, run("two").bench("a.b", gpu=1.0, dtype="float16")) == [{"cache": "cache hot against cold"}]
    (row,) = study_of(one, allow=("threads", "cache")).device_pairs
    assert row.differs == "cache cold against hot, threads 2 against 1"


def test_a_like_baseline_comes_before_an_allowed_one():
    """With dtypes allowed, bfloat16 takes the CPU's bfloat16, float16 its float32, and never its bfloat16."""
    one = run().bench("a.b", cpu=9.0, dtype="bfloat16").bench("a.b", cpu=8.0).bench("a.b", cpu=7.0, threads=1)
    for dtype in ("bfloat16", "float16", "float32"):
        one.bench("a.b", gpu=1.0, dtype=dtype)
    rows = study_of(one, allow=("dtype", "threads")).device_pairs
    assert [(row.other.dtype, row.base.time_s, row.differs) for row in rows] == [
        ("bfloat16", 9.0, ""),
        ("float16", 8.0, "dtype float16 against float32"),
        ("float32", 8.0, ""),
    ]


def test_a_named_implementation_brings_its_threads():
    one = run().bench("a.b", cpu=8.0, threads=2).bench("a.b", numpy=24.0, threads=1)
    (row,) = compared(one, baseline="numpy")
    assert (row.speedup, row.differs) == (3.0, "threads 2 against 1")


@pytest.mark.parametrize(
    ("base", "copy"),
    [("cpu", None), ("cpu", {"in_s": None}), ("cpu", {"in_s": 1.0, "out_bytes": 4}), ("gpu1", {"in_s": 1.0})],
)
def test_no_one_shot_where_a_copy_is_unknown_or_the_baseline_an_accelerator(base, copy):
    transfer = copy and {"in_bytes": 4, "out_bytes": 0} | copy
    one = run().bench("a.b", **{base: 8.0}).bench("a.b", gpu=2.0, transfer=transfer)
    (row,) = compared(one, baseline=records.SIDES[base][0])
    assert row.copies is None


def test_the_tables_flag_what_beats_a_peak():
    peaks = {"cuda:0": {"throughput": {"float32": 5e13}}}
    study = study_of(run(ceilings=peaks).bench("a.b", cpu=1.0).bench("a.b", gpu=0.01, flops=1e12, flags=("noisy",)))
    assert [row.flags for row in study.measured] == [(), ("noisy", "implausible")]
    assert [pair.flags for pair in study.pairs] == [("noisy", "implausible")]


@pytest.mark.parametrize(
    ("numpy", "expected"),
    [({}, {"tinygrad": ("torch", 4.0)}), ({"numpy": 16.0}, {"torch": ("numpy", 2.0), "tinygrad": ("numpy", 8.0)})],
)
def test_other_libraries_are_held_against_numpy_or_torch_where_there_is_no_gpu(numpy, expected):
    study = study_of(run(cuda=0).bench("a.b", cpu=8.0, **numpy).bench("a.b", cpu=2.0, by="tinygrad"))
    ways = [[side.result.implementation for side in pair.sides] for pair in study.pairs]
    assert {other: (base, pair.speedup) for (base, other), pair in zip(ways, study.pairs, strict=True)} == expected


@pytest.mark.parametrize(
    ("flags", "cpu", "why", "range_", "told"),
    [
        ((), 4.0, (), "~1%", "4.0× ("),
        (("power-limited", "implausible"), 4.0, (), "~1%", "4.0× ("),  # a ratio needs no peak
        (("altered",), 4.0, (Reason.NOISY,), "~1%", "4.0×* ("),
        (("noisy", "too-short"), 4.0, (Reason.TOO_SHORT, Reason.NOISY), "too short", "4.0×* ("),
        (("waiting",), 4.0, (Reason.WAITED,), "waited", "unknown (threads waited)"),
        (("noisy", "waiting"), (3.9, 4.0), (Reason.WAITED, Reason.NOISY), "waited", "unknown (t"),
        (("contended",), 4.0, (Reason.BUSY,), "busy", "4.0×*"),
        (("contended",), (3.9, 4.0, 4.1), (Reason.BUSY,), "busy", "4.0×*"),
        ((), (0.2, 4.0, 80.0), (Reason.TOO_NOISY, Reason.NOISY), "too noisy", "unknown (too n"),
    ],
)  # fmt: skip
def test_the_quality_of_a_speedup(flags, cpu, why, range_, told):
    """In threads that waited 0.3 ms became 28 ms ±<1%, beside other programs 16 µs became 110 µs ±62%."""
    gpu = (0.99, 1.0, 1.01)[: len(cpu) if isinstance(cpu, tuple) else 1]
    one = run().bench("a.b", cpu=cpu, flags=flags, spread=0.02, cpu_s=3.3 if len(gpu) > 1 else None)
    one.bench("a.b", gpu=gpu, transfer={"in_bytes": 4, "out_bytes": 0, "in_s": 0.4})
    study = study_of(one)
    (pair,) = study.pairs
    assert pair.quality == Quality(why, why[0] if told.startswith("u") else None)
    assert str(study.measured[0].accuracy) == range_
    assert str(pair.ratio).startswith(told)
    assert str(pair.copied_ratio).startswith({"4": "2.9×", "u": told}[told[0]])
    assert (pair.copies.drawn is None) == told.startswith("unknown")


@pytest.mark.parametrize("flags", [("contended",), ("noisy",)])
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(("time", "cpu_s"), [(1e-3, None), (1.0, None), (1.0, 0.1)])
def test_a_speedup_beside_other_programs_has_a_star_and_no_range(time, cpu_s, processes, flags):
    """No interval and no model says how far off it is."""
    flags = flags if cpu_s else ("contended",)  # a noisy time has nothing to be held against
    one = run(processes=processes).bench("a.b", cpu=time, flags=flags, spread=0.02, cpu_s=cpu_s)
    one.bench("a.b", gpu=time / 100, spread=0.02, transfer={"in_bytes": 4, "out_bytes": 0, "in_s": time / 50})
    (pair,) = study_of(one.bench("a.other", cpu=1.0, flags=("contended",))).pairs
    assert (pair.ratio.mark, str(pair.ratio)) == ("100×*", "100×*")
    assert str(pair.copied_ratio).endswith("×*")  # its CPU is the same noisy one


@pytest.mark.parametrize(
    ("threads", "cpu_s", "flags", "told"),
    [
        (1, 7.7e-3, ("contended",), "20 ms*, 7.70 ms of CPU time"),
        (1, 7.7e-3, ("noisy",), "20 ms* ~2%"),  # nobody else was seen
        (1, 19.9e-3, ("contended",), "20 ms* busy"),  # it had its core
        (2, 7.7e-3, ("contended",), "20 ms* busy"),  # of one of its threads
        (1, None, ("contended",), "20 ms* busy"),
        (1, 7.7e-3, (), "20.0 ms ~2%"),
    ],
)
def test_an_interrupted_thread_shows_its_cpu_time(threads, cpu_s, flags, told):
    one = run().bench("a.b", cpu="20 ms", threads=threads, cpu_s=cpu_s, flags=flags)
    (row,) = study_of(one).measured
    assert str(row.accurate_time) == told


def on_threads(used, cores, **how):
    one = run(threads=used, cuda=1, **how).bench("a.b", cpu=8.0, threads=used).bench("a.b", gpu=1.0, threads=used)
    one.data["machine_info"]["gpubench"]["cpu"] = cores
    return one


@pytest.mark.parametrize(
    ("used", "cores", "available"),
    [
        (1, {"cores": 16}, 16), (1, {"logical_cpus": 2}, 2), (4, {"cores": 16, "cgroup_cores": 8.0}, 8),
        (4, {"cores": 16, "cgroup_cores": 4.5}, None), (2, {"cores": 1, "logical_cpus": 2}, None), (2, {}, None),
    ],
)  # fmt: skip
def test_a_cpu_on_fewer_threads_than_it_has_is_named_wherever_its_ratio_is(used, cores, available):
    study = study_of(on_threads(used, cores))
    answer, (pair,) = Answer(study), study.pairs
    name = f"Synthetic, {used} of {available} threads" if available else f"Synthetic, {used} thread"
    assert (pair.ratio.mark, pair.ratio.mark.endswith("*")) == ("8.0×" + "*" * bool(available), bool(available))
    (table,) = answer_tables(answer)
    (figure,) = headline_figures(study)
    for text in (table.title, answer.sentence, figure.title, findings(study)[0]):
        assert name in text
    assert answer.sentence.startswith("No fair CPU: it took ") == bool(available)
    assert ("no fair CPU" in answer_screen(study)[0]) == bool(available)
    assert any(name in head for head in table.columns) or not available


def test_a_limit_just_below_one_is_of_what_is_slower_and_none_that_rounds_to_one():
    (pair,) = study_of(run().bench("a.b", cpu=1.0, spread=1.4).bench("a.b", gpu=1.0, spread=0.0)).pairs
    assert replace(pair, batches=0.94 / pair.values.high).ratio.mark == "≥ 1.1× slower"
    for nearly, mark in ((0.97 / pair.values.high, "5.8× slower to 1.0×"), (1.04 / pair.values.low, "1.0× to 5.9×")):
        close = replace(pair, batches=nearly)
        assert (close.ratio.mark, close.faster, close.drawn) == (mark, False, None)


# -k is a view --------------------------------------------------------------------------------------------------------

COMMITTED = sorted((Path(__file__).parents[2] / "results").glob("*/run.json"))
EXPRESSIONS = (
    "H100", "cuda:0", "cuda", "torch", "float16", "float32", "float16 and not numpy", "not numpy", "not float32",
    "matmul", "matmul and n=1024", "float16 n=1024", "n=1024 or n=4096", "not n=1024", "sort", "irregular", "models",
    "resnet50 and float32", "autocast", "not cpu", "elementwise and out", "H100 and not eager", "training", "out",
    "batch=32", "attention or softmax",
)  # fmt: skip


def with_a_gpu(path, folder):
    """The file with a made-up GPU that is 2 to 60 times as fast as PyTorch on the CPU."""
    data = json.loads(path.read_text())
    data["machine_info"]["gpubench"]["devices"].append({"name": "cuda:0", "kind": "cuda", "label": "NVIDIA H100"})
    for number, mark in enumerate([*data["benchmarks"]]):
        ours = mark["extra_info"]["gpubench"]
        if ours["device"] == "cpu" and ours["implementation"] == "torch" and not ours.get("parallel"):
            mark, factor = copy.deepcopy(mark), 2 + number * 7 % 59
            ours = mark["extra_info"]["gpubench"]
            ours |= {"device": "cuda:0", "devices": ["cuda:0"]}
            ours["transfer"] = {"in_bytes": 8, "out_bytes": 8, "in_s": 1e-5, "out_s": 1e-5}
            for process in ours["processes"]:
                process["median_s"] /= factor
            for name in ("median", "mean", "min", "max", "q1", "q3", "iqr"):
                mark["stats"][name] /= factor
            mark["fullname"] += "-gpu"
            mark["options"]["timer"] = "device_clock"
            data["benchmarks"].append(mark)
    saved = folder / path.parent.name / "run.json"
    saved.parent.mkdir()
    saved.write_text(json.dumps(data))
    return saved


def numbers(paths, expression=None):
    """The rows of speedup.csv and crossover.csv by their keys, and the speedup that a screen shows."""
    study = Study([*read_runs(paths, samples=False)], expression=expression)
    keyed = {(pair.other.source, pair.other.result.id, pair.other.result.fullname): str(pair.ratio)
             for pair in study.pairs}  # fmt: skip
    named = ("run", "device", "workload", "implementation", "variant", "cache", "dtype", "regime", "baseline_device")
    files = {}
    for name, text in csv_files(study).items():
        for row in csv.DictReader(text.splitlines()):
            if name == "speedup.csv":
                key = "speedup", row["run"], row["device"], row["id"], row["implementation"]
                files[key] = [row[cell] for cell in ("speedup", "low", "high", "shown", "one_shot_speedup")]
            if name == "crossover.csv":
                key = "crossover", *(row[cell] for cell in named), row.get("form") or "", row.get("width") or ""
                files[key] = [row[cell] for cell in ("crossover", "low", "high", "kind")]
    return keyed | files


def test_k_changes_no_speedup_and_no_crossover(tmp_path):
    paths = [with_a_gpu(path, tmp_path) for path in COMMITTED]
    for files in ([paths[0]], [paths[-1]], paths):
        everything, seen = numbers(files), 0
        for expression in EXPRESSIONS:
            try:
                some = numbers(files, expression)
            except UsageError:  # chooses nothing here
                continue
            seen += bool(some)
            assert {key: everything[key] for key in some} == some, expression
        assert seen >= 20


def seen(path, folder, *chosen):
    """The rows of the files and of the page of a report, and of the API, that stand for a measured speedup."""
    assert main(["report", str(path), "-o", str(folder), "--charts=none", *(f"-k={each}" for each in chosen)]) == 0
    files = [[*csv.DictReader((folder / name).read_text().splitlines())] for name in ("speedup.csv", "results.csv")]
    page = (folder / "report.html").read_text().partition('id="numbers"')[2].partition('id="details"')[0]
    cells = (re.findall(r'data-value="([^"]*)"', line) for line in page.split("<tr>"))
    loaded = gpubench.load(path, k=next(iter(chosen), None)).speedups
    api = loaded[["id", "implementation", "variant", "device", "speedup", "shown"]].itertuples(index=False)
    rows = ({name: value for name, value in row.items() if value} for file in files for row in file)
    return {*map(str, api)}, {*map(str, rows)}, {str(row[:3]) for row in cells if len(row) > 2 and row[1]}


def test_k_changes_no_number_of_a_report_s_files_its_page_and_the_api(tmp_path):
    path = with_a_gpu(COMMITTED[0], tmp_path)
    whole = seen(path, tmp_path / "whole")
    for number, expression in enumerate(("H100", "float16 and not numpy", "n=1024", "cuda:0", "models or training")):
        for some, every in zip(seen(path, tmp_path / str(number), expression), whole, strict=True):
            assert some <= every, expression
            assert some
