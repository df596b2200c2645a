"""speedup.csv: what is paired with what, and with which uncertainty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
import records

from gpubench.errors import UsageError
from gpubench.measure import environment
from gpubench.report import words
from gpubench.report.pairs import LeftOut, Pair
from gpubench.report.study import Study
from gpubench.runfile import reader
from gpubench.runfile.flags import Level, Quality, Reason
from gpubench.runfile.schema import Case


def run(folder: Path, marks: list[dict[str, Any]], name: str = "run", **how: Any) -> reader.Run:
    devices = (records.CPU, records.GPU, {**records.GPU, "name": "cuda:1"})
    return reading.run_of(folder, records.run_file(marks, **{"devices": devices, **how}), name)


def mark(device: str, median: float, workload: str = "a.b", **how: Any) -> dict[str, Any]:
    measured = ("medians", "spread", "latency", "transfer", "precision", "flags", "work")
    times = {key: how.pop(key) for key in measured if key in how}
    case = Case(workload, device, how.pop("dtype", "float32"), how.pop("params", {"n": 64}), devices=(device,), **how)
    return records.benchmark(case, median, **times)


def compared(runs: list[reader.Run], baseline: str | None = None) -> list[Pair]:
    return Study(runs, baseline).device_pairs


def found(made: list[Pair]) -> list[Any]:
    """Run and device of both sides, and the speedup."""
    return [
        (*(f"{row.run_name}/{row.result.device}" for row in (pair.base, pair.other)), pair.speedup) for pair in made
    ]


def test_a_row_of_the_file(tmp_path: Path) -> None:
    """The order of the columns is that of the committed results."""
    moved = {"in_bytes": 4, "out_bytes": 4, "in_s": 8.0, "out_s": 4.0, "in_pinned_s": 1.5, "out_pinned_s": 0.5}
    marks = [mark("cpu", 8.0, spread=0.25, threads=2, latency=9.0, flags=("noisy",))]
    marks.append(mark("cuda:0", 2.0, spread=0.5, threads=2, latency=6.0, transfer=moved))
    (row,) = reading.speedups(Study([run(tmp_path, marks)]))
    ratio = {"speedup": 4.0, "low": pytest.approx(2.8), "high": 6.0, "one_shot_speedup": 0.5}
    assert {name: cell for name, cell in row.items() if cell is not None} == ratio | {
        **{f"best_cpu_{name}": cell for name, cell in ratio.items()},
        "device_name": "Synthetic H-GPU", "workload": "a.b", "dtype": "float32", "variant": "eager", "setting": "n=64",
        "baseline_s": 8.0, "time_s": 2.0, "flags": "noisy", "id": "a.b[float32-n=64]", "run": "run", "n": 64,
        "machine": "Synthetic CPU (synthetic)", "device": "cuda:0", "implementation": "torch", "threads": 2,
        "baseline_run": "run", "baseline_machine": "Synthetic CPU (synthetic)", "baseline_device": "cpu",
        "baseline_implementation": "torch", "baseline_threads": 2, "uncertainty": "spread within one process",
        "cache": "hot", "baseline_one_shot_s": 9.0, "one_shot_s": 18.0, "one_shot_pinned_s": 8.0,
        "one_shot_pinned_speedup": 1.125,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "told"),
    [(3, "95% interval, 3 processes"), (2, "95% interval, 3 and 2 processes"), (1, "spread within one process")],
)
def test_processes_give_an_interval(tmp_path: Path, count: int, told: str) -> None:
    marks = [mark("cpu", 4.0, medians=(3.6, 4.0, 4.4)), mark("cuda:0", 1.0, medians=(1.1, 0.9, 1.0)[:count])]
    (row,) = compared([run(tmp_path, marks)])
    assert row.uncertainty == told
    assert row.ratio.low < row.speedup < row.ratio.high


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "tf32"},
        {"variant": "autocast"},
        {"params": {"n": 65}},
        {"params": {"n": "64"}},
        {"params": {}},
        {"workload": "a.c"},
        {"implementation": "numpy"},
    ],
)
def test_unlike_is_never_paired(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not compared([run(tmp_path, [mark("cpu", 1.0), mark("cuda:0", 1.0, **other)])])


def test_baselines_within_a_run(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cuda:0", 2.0), mark("cuda:1", 1.0), mark("cpu", 16.0, implementation="numpy")]
    runs = [run(tmp_path, marks)]
    expected = [("run/cpu", "run/cuda:0", 4.0), ("run/cpu", "run/cuda:1", 8.0)]
    assert found(compared(runs)) == expected
    assert found(compared(runs, "cpu")) == expected
    assert found(compared(runs, "run")) == expected
    assert found(compared(runs, "Synthetic CPU (synthetic)")) == expected
    assert found(compared(runs, "cuda:1")) == [("run/cuda:1", "run/cpu", 0.125), ("run/cuda:1", "run/cuda:0", 0.5)]
    assert found(compared(runs, "numpy")) == [
        ("run/cpu", "run/cpu", 2.0),
        ("run/cpu", "run/cuda:0", 8.0),
        ("run/cpu", "run/cuda:1", 16.0),
    ]


def test_several_machines(tmp_path: Path) -> None:
    """Each accelerator against its own CPU, and each device against the first machine's of its kind."""
    one = run(tmp_path, [mark("cpu", 8.0), mark("cuda:0", 2.0)], "one", label="A (synthetic)")
    two = run(tmp_path, [mark("cpu", 4.0), mark("cuda:1", 0.5)], "two", label="B (synthetic)")
    assert found(compared([one, two])) == [
        ("one/cpu", "one/cuda:0", 4.0),
        ("two/cpu", "two/cuda:1", 8.0),
        ("one/cpu", "two/cpu", 2.0),
        ("one/cuda:0", "two/cuda:1", 4.0),
    ]
    assert found(compared([one, two], "B (synthetic)"))[:2] == [
        ("two/cpu", "one/cpu", 0.5),
        ("two/cuda:1", "one/cuda:0", 0.25),
    ]


def test_a_case_that_the_first_machine_lacks_has_no_other_baseline(tmp_path: Path) -> None:
    one = run(tmp_path, [mark("cpu", 8.0)], "one")
    two, three = (run(tmp_path, [mark("cpu", 1.0, workload="a.x")], name) for name in ("two", "three"))
    assert not compared([one, two, three])


def test_a_machine_with_a_cpu_alone_as_baseline(tmp_path: Path) -> None:
    one = run(tmp_path, [mark("cpu", 8.0)], "one", label="A (synthetic)")
    two = run(tmp_path, [mark("cuda:0", 2.0)], "two", label="B (synthetic)")
    assert not compared([one, two])
    assert found(compared([one, two], "one")) == [("one/cpu", "two/cuda:0", 4.0)]


def test_a_case_met_twice_is_paired_in_order(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cpu", 9.0), mark("cuda:0", 4.0), mark("cuda:0", 3.0)]
    assert [speedup for _, _, speedup in found(compared([run(tmp_path, marks)]))] == [2.0, 3.0]


def test_unknown_baseline_names_what_exists(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^unknown baseline 'cuda:7': choose from cpu, cuda:0, torch, Synthetic"):
        compared([run(tmp_path, [mark("cpu", 1.0), mark("cuda:0", 1.0)])], "cuda:7")


def pairing(runs: list[reader.Run], *allow: str, baseline: str | None = None) -> tuple[list[Pair], list[LeftOut]]:
    study = Study(runs, baseline, allow)
    return study.device_pairs, study.left_out


def differences(runs: list[reader.Run], *allow: str, baseline: str | None = None) -> list[dict[str, str]]:
    return [entry.differences for entry in pairing(runs, *allow, baseline=baseline)[1]]


def precision(**switches: Any) -> dict[str, Any]:
    return {"precision": switches}


TF32, IEEE = precision(tf32=True), precision(tf32=False)
REDUCED, FULL = (precision(bf16_reduced_precision_reduction=state) for state in (True, False))
BF16, AUTOCAST, HALF = {"dtype": "bfloat16"}, {"variant": "autocast"}, precision(tf32=False, autocast="float16")
SWITCHES = {"tf32": False, "cudnn_benchmark": False, "deterministic": False, "variables": ""}
KNOWN, ON_GPU = precision(**SWITCHES), {"device": "cuda:0"} | precision(**SWITCHES)


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
        *(
            (
                known,
                precision(**SWITCHES | {"deterministic": True}),
                "precision: deterministic algorithms on against off",
            )
            for known in (KNOWN, ON_GPU)
        ),
    ],
)
def test_what_differs_is_left_out_or_named(tmp_path: Path, base: Any, other: Any, differs: str) -> None:
    device, terms = base.get("device", "cpu"), {name: value for name, value in base.items() if name != "device"}
    runs = [run(tmp_path, [mark(device, 8.0, **terms), mark("cuda:1", 2.0, **other)])]
    term, _, words = differs.partition(": ")
    assert differences(runs, baseline=device) == [{term: words}] * bool(differs)
    others = [each for each in ("dtype", "precision", "cache", "threads", "seed") if each != term]
    assert len(pairing(runs, *others, baseline=device)[0]) == (not differs)
    (row,), left_out = pairing(runs, term, baseline=device)
    assert (row.differs, row.speedup, left_out) == (words, 4.0, [])


def test_the_program_s_own_tf32_is_named_beside_its_speedup(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0, **IEEE), mark("cuda:0", 2.0, **precision(tf32=True, own_switches=True))]
    (row,), left_out = pairing([run(tmp_path, marks)])
    assert (row.differs, row.speedup, left_out) == ("TF32 on against off", 4.0, [])
    assert row.other.result.compute_dtype == "tf32"
    other = run(tmp_path, [mark("cuda:0", 8.0, **IEEE)], "two")
    assert differences([other, run(tmp_path, marks[1:], "three")]) == [{"precision": "TF32 on against off"}]


@pytest.mark.parametrize(
    ("base", "other", "left"),
    [
        # unknown at the baseline and on at the other: the ratio might be of unlike precisions
        ({"tf32": None}, {"tf32": True}, {"precision": "TF32 on against unknown"}),
        ({"tf32": True}, {"tf32": True}, None),
        ({"seed": 0}, {"seed": 1}, {"seed": "seed 1 against 0"}),
        ({"seed": 0}, {"seed": None}, None),
    ],
)
def test_runs_of_unlike_data_or_precision_are_not_paired(tmp_path: Path, base: Any, other: Any, left: Any) -> None:
    runs = [run(tmp_path, [mark("cuda:0", 8.0)], name, **how) for name, how in (("one", base), ("two", other))]
    assert differences(runs) == [left] * bool(left)


def test_what_a_container_sets_makes_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = mark("cuda:0", 8.0, precision=SWITCHES | {"variables": environment.accelerator_variables()})
    values = {"VISIBLE_DEVICES": "GPU-11111111-2222", "DRIVER_CAPABILITIES": "compute", "PRODUCT_NAME": "CUDA"}
    for name, value in (values | {"REQUIRE_CUDA": "cuda>=12.6 brand=tesla"}).items():
        monkeypatch.setenv(f"NVIDIA_{name}", value)
    inside = mark("cuda:0", 2.0, precision=SWITCHES | {"variables": environment.accelerator_variables()})
    assert differences([run(tmp_path, [bare]), run(tmp_path, [inside], "two")]) == []


def test_several_differences_must_all_be_allowed(tmp_path: Path) -> None:
    runs = [run(tmp_path, [mark("cpu", 8.0, threads=1), mark("cuda:0", 2.0, threads=2, cache="cold")])]
    assert differences(runs) == [{"cache": "cache cold against hot", "threads": "threads 2 against 1"}]
    assert differences(runs, "cache") == [{"threads": "threads 2 against 1"}]
    (row,) = pairing(runs, "threads", "cache")[0]
    assert row.differs == "cache cold against hot, threads 2 against 1"


def test_a_like_baseline_comes_before_an_allowed_one(tmp_path: Path) -> None:
    """With dtypes allowed, bfloat16 takes the CPU's bfloat16, float16 its float32, and never its bfloat16."""
    marks = [mark("cpu", 9.0, dtype="bfloat16"), mark("cpu", 8.0), mark("cpu", 7.0, threads=1)]
    marks += [mark("cuda:0", 1.0, dtype=dtype) for dtype in ("bfloat16", "float16", "float32")]
    rows = pairing([run(tmp_path, marks)], "dtype", "threads")[0]
    assert [(row.other.dtype, row.base.time_s, row.differs) for row in rows] == [
        ("bfloat16", 9.0, ""),
        ("float16", 8.0, "dtype float16 against float32"),
        ("float32", 8.0, ""),
    ]


def test_a_named_implementation_brings_its_threads(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0, threads=2), mark("cpu", 24.0, threads=1, implementation="numpy")]
    (row,) = pairing([run(tmp_path, marks)], baseline="numpy")[0]
    assert (row.speedup, row.differs) == (3.0, "threads 2 against 1")


def moved(seconds: float | None, pinned: float | None = None, out_bytes: int = 0) -> dict[str, Any]:
    return {"in_bytes": 4, "out_bytes": out_bytes, "in_s": seconds, "in_pinned_s": pinned}


@pytest.mark.parametrize(
    ("base", "transfer"),
    [("cpu", None), ("cpu", moved(None)), ("cpu", moved(1.0, out_bytes=4)), ("cuda:1", moved(1.0))],
)
def test_no_one_shot_where_a_copy_is_unknown_or_the_baseline_an_accelerator(
    tmp_path: Path, base: str, transfer: dict[str, Any] | None
) -> None:
    (row,) = compared([run(tmp_path, [mark(base, 8.0), mark("cuda:0", 2.0, transfer=transfer)])], base)
    assert row.copies is None


def test_processes_give_the_one_shot_an_interval(tmp_path: Path) -> None:
    marks = [mark("cpu", 4.0, medians=(3.6, 4.0, 4.4)), mark("cuda:0", 1.0, medians=(0.9, 1.0, 1.1), transfer=moved(2))]
    (row,) = compared([run(tmp_path, marks)])
    assert row.copies
    assert row.copies.low < row.copies.speedup < row.copies.high
    assert row.copies.speedup == pytest.approx(1.1 * 4 / (2 + 1.1), rel=0.01)


def test_the_tables_flag_what_beats_a_peak(tmp_path: Path) -> None:
    marks = [mark("cpu", 1.0), mark("cuda:0", 0.01, work={"flops": 1e12}, flags=("noisy",))]
    measured = run(tmp_path, marks, ceilings={"cuda:0": {"throughput": {"float32": 5e13}}})
    study = Study([measured])
    assert [row.flags for row in study.measured] == [(), ("noisy", "implausible")]
    assert [pair.flags for pair in study.pairs] == [("noisy", "implausible")]


def test_other_libraries_are_held_against_numpy_or_torch_where_there_is_no_gpu(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cpu", 2.0, implementation="tinygrad")]
    for name, more, expected in (
        ("two", [], {"tinygrad": ("torch", 4.0)}),
        ("three", [mark("cpu", 16.0, implementation="numpy")], {"torch": ("numpy", 2.0), "tinygrad": ("numpy", 8.0)}),
    ):
        study = Study([run(tmp_path, [*marks, *more], name, devices=(records.CPU,))])
        shown = {
            pair.other.result.implementation: (pair.base.result.implementation, pair.speedup) for pair in study.pairs
        }
        assert shown == expected


@pytest.mark.parametrize(
    ("flags", "medians", "level", "why", "range_", "told"),
    [
        ((), (), Level.SOUND, (), "~1%", "4.0× ("),
        (("power-limited", "implausible"), (), Level.SOUND, (), "~1%", "4.0× ("),  # a ratio needs no peak
        (("cold",), (), Level.NOISY, (Reason.NOISY,), "~1%", "4.0×* ("),
        (("noisy", "too-short"), (), Level.NOISY, (Reason.TOO_SHORT, Reason.NOISY), "too short", "4.0×* ("),
        (("waiting",), (), Level.UNUSABLE, (Reason.WAITED,), "waited", "unknown (threads waited)"),
        (("noisy", "waiting"), (3.9, 4.0), Level.UNUSABLE, (Reason.WAITED, Reason.NOISY), "waited", "unknown (t"),
        # of one process beside other programs, whose shares of a long round no other round tells
        (("contended",), (), Level.UNUSABLE, (Reason.BUSY,), "busy", "unknown (machine b"),
        (("contended",), (3.9, 4.0, 4.1), Level.NOISY, (Reason.BUSY,), "busy", "4.0×* ("),
        ((), (0.2, 4.0, 80.0), Level.UNUSABLE, (Reason.TOO_NOISY, Reason.NOISY), "too noisy", "unknown (too n"),
    ],
)  # fmt: skip
def test_the_quality_of_a_speedup(
    tmp_path: Path, flags: Any, medians: Any, level: Level, why: Any, range_: str, told: str
) -> None:
    """In threads that waited 0.3 ms became 28 ms ±<1%, beside other programs 16 µs became 110 µs ±62%."""
    moves = moved(0.5)
    gpu = mark("cuda:0", 1.0, medians=(0.99, 1.0, 1.01)[: max(1, len(medians))], transfer=moves)
    cpu = mark("cpu", 4.0, flags=flags, medians=medians, spread=0.02)
    study = Study([run(tmp_path, [cpu, gpu])])
    (pair,) = study.pairs
    assert pair.quality == Quality(level, why)
    assert words.precision(study.measured[0]) == range_
    assert words.speedup(pair).startswith(told)
    assert words.with_copies(pair).startswith({"4": "2.8×", "u": told}[told[0]])
    assert (pair.drawn(copied=True) is None) == told.startswith("unknown")


@pytest.mark.parametrize(("time", "told"), [(1e-3, "≥ 78×*"), (1.0, "≥ 20×*")])
def test_beside_other_programs_a_speedup_is_at_least_what_the_fastest_rounds_allow(
    tmp_path: Path, time: float, told: str
) -> None:
    """A round longer than a time slice is interrupted, so the fastest one too; a shorter one shares the caches."""
    marks = [mark("cpu", time, flags=("contended",), spread=0.02), mark("cuda:0", time / 100, spread=0.02)]
    (pair,) = Study([run(tmp_path, marks)]).pairs
    assert words.ratio(pair) == told
    assert pair.drawn() is not None


def test_a_baseline_is_known_by_the_part_of_its_name_that_is_shown(tmp_path: Path) -> None:
    runs = [run(tmp_path, [mark("cpu", 4.0), mark("cuda:0", 1.0)])]
    assert found(compared(runs, "h-gpu")) == [("run/cuda:0", "run/cpu", 0.25)]
    for name in ("Synthetic", "", "gp"):  # of both, of none, no whole word
        with pytest.raises(UsageError, match=f"unknown baseline '{name}': choose from .*Synthetic H-GPU"):
            compared(runs, name)
