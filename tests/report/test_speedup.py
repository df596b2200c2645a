"""speedup.csv: what is paired with what, and with which uncertainty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import records

from gpubench.errors import UsageError
from gpubench.report import speedup, table
from gpubench.runfile import reader
from gpubench.runfile.schema import Case


def run(folder: Path, marks: list[dict[str, Any]], name: str = "run", **how: Any) -> reader.Run:
    path = folder / f"{name}.json"
    how.setdefault("devices", (records.CPU, records.GPU, {**records.GPU, "name": "cuda:1"}))
    path.write_text(json.dumps(records.run_file(marks, **how)))
    return reader.read(path)


def mark(device: str, median: float, workload: str = "a.b", **how: Any) -> dict[str, Any]:
    measured = ("medians", "spread", "latency", "transfer", "precision", "flags", "work")
    times = {key: how.pop(key) for key in measured if key in how}
    case = Case(workload, device, how.pop("dtype", "float32"), how.pop("params", {"n": 64}), devices=(device,), **how)
    return records.benchmark(case, median, **times)


def speedups(runs: list[reader.Run], baseline: str | None = None) -> pd.DataFrame:
    results = table.results_table(runs)
    return speedup.pair(results, speedup.resolve(results, baseline)).table


def found(frame: pd.DataFrame) -> list[tuple[str, str, float]]:
    return [
        (f"{row['baseline_run']}/{row['baseline_device']}", f"{row['run']}/{row['device']}", row["speedup"])
        for row in table.records(frame)
    ]


def test_exact_text(tmp_path: Path) -> None:
    moved = {"in_bytes": 4, "out_bytes": 4, "in_s": 8.0, "out_s": 4.0, "in_pinned_s": 1.5, "out_pinned_s": 0.5}
    marks = [mark("cpu", 8.0, spread=0.25, threads=2, latency=9.0, flags=("noisy",))]
    marks.append(mark("cuda:0", 2.0, spread=0.5, threads=2, latency=6.0, transfer=moved))
    assert table.csv_text(speedups([run(tmp_path, marks)])) == (
        "device_name,workload,dtype,variant,setting,size_name,size,speedup,low,high,one_shot_speedup,break_even_calls,"
        "baseline_s,time_s,flags,id,run,machine,device,implementation,threads,baseline_run,baseline_machine,"
        "baseline_device,baseline_implementation,baseline_threads,differs,uncertainty,regime,cache,n,one_shot_low,"
        "one_shot_high,baseline_one_shot_s,one_shot_s,one_shot_pinned_s,one_shot_pinned_speedup\n"
        "Synthetic H-GPU,a.b,float32,eager,n=64,,,4.0,2.8,6.0,0.5,2,8.0,2.0,noisy,a.b[float32-n=64],run,Synthetic CPU "
        "(synthetic),cuda:0,torch,2,run,Synthetic CPU (synthetic),cpu,torch,2,,spread within one process,resident,hot,"
        "64,,,9.0,18.0,8.0,1.125\n"
    )


def test_processes_give_an_interval(tmp_path: Path) -> None:
    marks = [mark("cpu", 4.0, medians=(3.6, 4.0, 4.4)), mark("cuda:0", 1.0, medians=(0.9, 1.0, 1.1))]
    (row,) = table.records(speedups([run(tmp_path, marks)]))
    assert row["uncertainty"] == "95% interval, 3 processes"
    assert row["speedup"] == pytest.approx(4.0)
    assert row["low"] < 4.0 < row["high"]
    marks[1] = mark("cuda:0", 1.0, medians=(0.9, 1.1))
    (row,) = table.records(speedups([run(tmp_path, marks)]))
    assert row["uncertainty"] == "95% interval, 3 and 2 processes"
    marks[1] = mark("cuda:0", 1.0)
    (row,) = table.records(speedups([run(tmp_path, marks)]))
    assert row["uncertainty"] == "spread within one process"


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "tf32"},
        {"variant": "autocast"},
        {"regime": "one-shot"},
        {"params": {"n": 65}},
        {"params": {"n": "64"}},
        {"params": {}},
        {"workload": "a.c"},
        {"implementation": "numpy"},
    ],
)
def test_unlike_is_never_paired(tmp_path: Path, other: dict[str, Any]) -> None:
    assert speedups([run(tmp_path, [mark("cpu", 1.0), mark("cuda:0", 1.0, **other)])]).empty


def test_unmeasured_is_never_paired(tmp_path: Path) -> None:
    gone = records.unmeasured(Case("a.b", "cpu", "float32", {"n": 64}))
    assert speedups([run(tmp_path, [mark("cuda:0", 1.0)], unmeasured=[gone])]).empty


def test_baselines_within_a_run(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cuda:0", 2.0), mark("cuda:1", 1.0), mark("cpu", 16.0, implementation="numpy")]
    runs = [run(tmp_path, marks)]
    expected = [("run/cpu", "run/cuda:0", 4.0), ("run/cpu", "run/cuda:1", 8.0)]
    assert found(speedups(runs)) == expected
    assert found(speedups(runs, "cpu")) == expected
    assert found(speedups(runs, "run")) == expected
    assert found(speedups(runs, "Synthetic CPU (synthetic)")) == expected
    assert found(speedups(runs, "cuda:1")) == [("run/cuda:1", "run/cpu", 0.125), ("run/cuda:1", "run/cuda:0", 0.5)]
    assert found(speedups(runs, "numpy")) == [
        ("run/cpu", "run/cpu", 2.0),
        ("run/cpu", "run/cuda:0", 8.0),
        ("run/cpu", "run/cuda:1", 16.0),
    ]


def test_several_machines(tmp_path: Path) -> None:
    """Each accelerator against its own CPU, and each device against the first machine's of its kind."""
    one = run(tmp_path, [mark("cpu", 8.0), mark("cuda:0", 2.0)], "one", label="A (synthetic)")
    two = run(tmp_path, [mark("cpu", 4.0), mark("cuda:1", 0.5)], "two", label="B (synthetic)")
    assert found(speedups([one, two])) == [
        ("one/cpu", "one/cuda:0", 4.0),
        ("two/cpu", "two/cuda:1", 8.0),
        ("one/cpu", "two/cpu", 2.0),
        ("one/cuda:0", "two/cuda:1", 4.0),
    ]
    assert found(speedups([one, two], "B (synthetic)"))[:2] == [
        ("two/cpu", "one/cpu", 0.5),
        ("two/cuda:1", "one/cuda:0", 0.25),
    ]


def test_a_case_that_the_first_machine_lacks_has_no_other_baseline(tmp_path: Path) -> None:
    one = run(tmp_path, [mark("cpu", 8.0)], "one")
    two, three = (run(tmp_path, [mark("cpu", 1.0, workload="a.x")], name) for name in ("two", "three"))
    assert speedups([one, two, three]).empty


def test_a_machine_with_a_cpu_alone_as_baseline(tmp_path: Path) -> None:
    one = run(tmp_path, [mark("cpu", 8.0)], "one", label="A (synthetic)")
    two = run(tmp_path, [mark("cuda:0", 2.0)], "two", label="B (synthetic)")
    assert speedups([one, two]).empty
    assert found(speedups([one, two], "one")) == [("one/cpu", "two/cuda:0", 4.0)]


def test_a_case_met_twice_is_paired_in_order(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cpu", 9.0), mark("cuda:0", 4.0), mark("cuda:0", 3.0)]
    assert [speedup for _, _, speedup in found(speedups([run(tmp_path, marks)]))] == [2.0, 3.0]


def test_unknown_baseline_names_what_exists(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^unknown baseline 'cuda:7': choose from cpu, cuda:0, torch, Synthetic"):
        speedups([run(tmp_path, [mark("cpu", 1.0), mark("cuda:0", 1.0)])], "cuda:7")


def pairing(runs: list[reader.Run], *allow: str, baseline: str | None = None) -> speedup.Pairs:
    results = table.results_table(runs)
    return speedup.pair(results, speedup.resolve(results, baseline), allow)


TF32, IEEE = {"tf32": True}, {"tf32": False}
REDUCED = {"bf16_reduced_precision_reduction": True}
FULL = {"bf16_reduced_precision_reduction": False}


@pytest.mark.parametrize(
    ("term", "base", "other", "words"),
    [
        ("precision", {"precision": IEEE}, {"precision": TF32}, "TF32 on against off"),
        ("precision", {"precision": TF32}, {"precision": IEEE}, "TF32 off against on"),
        ("precision", {}, {"precision": TF32}, "TF32 on against off"),
        ("precision", {"precision": TF32}, {"precision": TF32}, "TF32 on against off"),
        (
            "precision",
            {"dtype": "bfloat16", "precision": FULL},
            {"dtype": "bfloat16", "precision": REDUCED},
            "bf16 reduced precision reduction on against off",
        ),
        (
            "precision",
            {"variant": "autocast", "precision": REDUCED},
            {"variant": "autocast", "precision": FULL},
            "bf16 reduced precision reduction off against on",
        ),
        ("dtype", {}, {"dtype": "tf32", "precision": TF32}, "dtype tf32 against float32"),
        ("dtype", {}, {"dtype": "bfloat16"}, "dtype bfloat16 against float32"),
        ("threads", {"threads": 1}, {"threads": 2}, "threads 2 against 1"),
        ("regime", {}, {"regime": "one-shot"}, "regime one-shot against resident"),
        ("cache", {}, {"cache": "cold"}, "cache cold against hot"),
    ],
)
def test_unlike_is_left_out_or_named(
    tmp_path: Path, term: str, base: dict[str, Any], other: dict[str, Any], words: str
) -> None:
    runs = [run(tmp_path, [mark("cpu", 8.0, **base), mark("cuda:0", 2.0, **other)])]
    made = pairing(runs)
    assert made.table.empty
    assert [entry.terms for entry in made.left_out] == [{term: words}]
    others = [each for each in ("dtype", "precision", "regime", "cache", "threads", "seed") if each != term]
    assert pairing(runs, *others).table.empty
    told = pairing(runs, term)
    (row,) = table.records(told.table)
    assert (row["differs"], row["speedup"], told.left_out) == (words, 4.0, ())


@pytest.mark.parametrize(
    ("base", "other"),
    [
        ({"precision": IEEE}, {}),
        ({"precision": {}}, {"precision": IEEE}),
        ({"dtype": "float64", "precision": IEEE}, {"dtype": "float64", "precision": TF32}),
        ({"dtype": "bfloat16", "precision": IEEE}, {"dtype": "bfloat16", "precision": TF32}),
        ({"precision": REDUCED}, {"precision": FULL}),
        ({"dtype": "bfloat16"}, {"dtype": "bfloat16", "precision": REDUCED}),
        ({"threads": None}, {"threads": 2}),
    ],
)
def test_what_changes_nothing_is_no_difference(tmp_path: Path, base: dict[str, Any], other: dict[str, Any]) -> None:
    made = pairing([run(tmp_path, [mark("cpu", 8.0, **base), mark("cuda:0", 2.0, **other)])])
    assert ([row["differs"] for row in table.records(made.table)], made.left_out) == ([None], ())


def test_tf32_that_may_be_on_is_a_difference(tmp_path: Path) -> None:
    """Unknown at the baseline and on at the other: the ratio might be of unlike precisions."""
    one = run(tmp_path, [mark("cuda:0", 8.0)], "one", tf32=None)
    two = run(tmp_path, [mark("cuda:0", 2.0)], "two", tf32=True)
    assert [entry.terms for entry in pairing([one, two]).left_out] == [{"precision": "TF32 on against unknown"}]
    assert pairing([two, run(tmp_path, [mark("cuda:0", 8.0)], "three", tf32=True)]).left_out == ()


SWITCHES = {"tf32": False, "cudnn_benchmark": False, "deterministic": False, "variables": ""}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cudnn_benchmark": True}, "cudnn benchmark on against off"),
        ({"deterministic": True}, "deterministic on against off"),
        (
            {"variables": "NVIDIA_TF32_OVERRIDE=0"},
            "variables NVIDIA_TF32_OVERRIDE=0 against none",
        ),
    ],
)
def test_only_equal_switches_are_paired(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    """Between accelerators; a CPU's times know of no more than deterministic algorithms."""
    marks = [mark("cuda:0", 8.0, precision=SWITCHES), mark("cuda:1", 2.0, precision=SWITCHES | changed)]
    made = pairing([run(tmp_path, marks)], baseline="cuda:0")
    assert [entry.terms for entry in made.left_out] == [{"precision": words}]
    marks = [mark("cpu", 8.0, precision=SWITCHES), mark("cuda:0", 2.0, precision=SWITCHES | changed)]
    left = [{"precision": words}] if "deterministic" in changed else []
    assert [entry.terms for entry in pairing([run(tmp_path, marks, "two")]).left_out] == left


def test_autocast_is_paired_in_equal_dtypes(tmp_path: Path) -> None:
    half = {"tf32": False, "autocast": "float16"}
    marks = [mark("cpu", 8.0, variant="autocast"), mark("cuda:0", 2.0, variant="autocast", precision=half)]
    (entry,) = pairing([run(tmp_path, marks)]).left_out
    assert entry.terms == {"precision": "autocast in float16 against bfloat16"}
    marks = [mark(name, 8.0, variant="autocast", precision=half) for name in ("cpu", "cuda:0")]
    assert pairing([run(tmp_path, marks, "two")]).left_out == ()


def test_seeds_are_data(tmp_path: Path) -> None:
    one = run(tmp_path, [mark("cpu", 8.0)], "one", seed=0)
    two = run(tmp_path, [mark("cpu", 2.0)], "two", seed=1)
    assert [entry.terms for entry in pairing([one, two]).left_out] == [{"seed": "seed 1 against 0"}]
    assert table.records(pairing([one, two], "seed").table)[0]["differs"] == "seed 1 against 0"
    assert pairing([one, run(tmp_path, [mark("cpu", 2.0)], "three", seed=None)]).left_out == ()


def test_several_differences_must_all_be_allowed(tmp_path: Path) -> None:
    runs = [run(tmp_path, [mark("cpu", 8.0, threads=1), mark("cuda:0", 2.0, threads=2, cache="cold")])]
    (entry,) = pairing(runs).left_out
    assert entry.terms == {"cache": "cache cold against hot", "threads": "threads 2 against 1"}
    (entry,) = pairing(runs, "cache").left_out
    assert entry.terms == {"threads": "threads 2 against 1"}
    (row,) = table.records(pairing(runs, "threads", "cache").table)
    assert row["differs"] == "cache cold against hot, threads 2 against 1"


def test_a_like_baseline_comes_before_an_allowed_one(tmp_path: Path) -> None:
    """With dtypes allowed, bfloat16 takes the CPU's bfloat16, float16 its float32, and never its bfloat16."""
    marks = [mark("cpu", 9.0, dtype="bfloat16"), mark("cpu", 8.0), mark("cpu", 7.0, threads=1)]
    marks += [mark("cuda:0", 1.0, dtype=dtype) for dtype in ("bfloat16", "float16", "float32")]
    rows = table.records(pairing([run(tmp_path, marks)], "dtype", "threads").table)
    assert [(row["dtype"], row["baseline_s"], row["differs"]) for row in rows] == [
        ("bfloat16", 9.0, None),
        ("float16", 8.0, "dtype float16 against float32"),
        ("float32", 8.0, None),
    ]


def test_a_named_implementation_brings_its_threads(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0, threads=2), mark("cpu", 24.0, threads=1, implementation="numpy")]
    (row,) = table.records(pairing([run(tmp_path, marks)], baseline="numpy").table)
    assert (row["speedup"], row["differs"]) == (3.0, "threads 2 against 1")


def moved(seconds: float | None, pinned: float | None = None, out_bytes: int = 0) -> dict[str, Any]:
    return {"in_bytes": 4, "out_bytes": out_bytes, "in_s": seconds, "in_pinned_s": pinned}


@pytest.mark.parametrize(
    ("cpu", "accelerator", "transfer", "calls"),
    [
        (10.0, 1.0, moved(90.0), 10),
        (10.0, 1.0, moved(91.0), 11),
        (10.0, 1.0, moved(0.001), 1),
        (10.0, 10.0, moved(1.0), None),
        (1.0, 10.0, moved(1.0), None),
        (0.3, 0.1, moved(0.2 * 3), 3),
    ],
)
def test_break_even(
    tmp_path: Path, cpu: float, accelerator: float, transfer: dict[str, Any], calls: int | None
) -> None:
    (row,) = table.records(
        speedups([run(tmp_path, [mark("cpu", cpu), mark("cuda:0", accelerator, transfer=transfer)])])
    )
    assert row["break_even_calls"] == calls
    assert row["one_shot_s"] == pytest.approx(transfer["in_s"] + 1.1 * accelerator)
    assert row["one_shot_speedup"] == pytest.approx(1.1 * cpu / row["one_shot_s"])


@pytest.mark.parametrize("transfer", [None, moved(None), moved(1.0, out_bytes=4)])
def test_an_unknown_copy_gives_no_one_shot(tmp_path: Path, transfer: dict[str, Any] | None) -> None:
    (row,) = table.records(speedups([run(tmp_path, [mark("cpu", 8.0), mark("cuda:0", 2.0, transfer=transfer)])]))
    assert {row[name] for name in table.ONE_SHOT_COLUMNS} == {None}


def test_an_accelerator_is_no_baseline_of_a_one_shot(tmp_path: Path) -> None:
    marks = [mark("cuda:0", 8.0, transfer=moved(1.0)), mark("cuda:1", 2.0, transfer=moved(1.0))]
    (row,) = table.records(speedups([run(tmp_path, marks)], "cuda:0"))
    assert row["one_shot_s"] is None


def test_processes_give_the_one_shot_an_interval(tmp_path: Path) -> None:
    marks = [mark("cpu", 4.0, medians=(3.6, 4.0, 4.4)), mark("cuda:0", 1.0, medians=(0.9, 1.0, 1.1), transfer=moved(2))]
    (row,) = table.records(speedups([run(tmp_path, marks)]))
    assert row["one_shot_low"] < row["one_shot_speedup"] < row["one_shot_high"]
    assert row["one_shot_speedup"] == pytest.approx(1.1 * 4 / (2 + 1.1), rel=0.01)


def test_the_tables_flag_what_beats_a_peak(tmp_path: Path) -> None:
    marks = [mark("cpu", 1.0), mark("cuda:0", 0.01, work={"flops": 1e12}, flags=("noisy",))]
    measured = run(tmp_path, marks, ceilings={"cuda:0": {"throughput": {"float32": 5e13}}})
    results = table.results_table([measured])
    assert [row["flags"] for row in table.records(results)] == [None, "noisy implausible"]
    assert [row["flags"] for row in table.records(speedup.pair(results).table)] == ["noisy implausible"]


def test_other_libraries_are_held_against_numpy_or_torch_where_there_is_no_gpu(tmp_path: Path) -> None:
    marks = [mark("cpu", 8.0), mark("cpu", 2.0, implementation="jax")]
    for name, more, expected in (
        ("two", [], {"jax": ("torch", 4.0)}),
        ("three", [mark("cpu", 16.0, implementation="numpy")], {"torch": ("numpy", 2.0), "jax": ("numpy", 8.0)}),
    ):
        results = table.results_table([run(tmp_path, [*marks, *more], name, devices=(records.CPU,))])
        pairs = speedup.pair_or_libraries(results, speedup.pair(results)).table
        shown = {
            row["implementation"]: (row["baseline_implementation"], row["speedup"]) for row in table.records(pairs)
        }
        assert shown == expected


def test_another_library_leads_only_where_torch_has_no_pair(tmp_path: Path) -> None:
    marks = [mark(device, time, implementation="jax") for device, time in (("cpu", 8.0), ("cuda:0", 2.0))]
    alone = table.records(speedups([run(tmp_path, marks)]))
    assert speedup.leading(alone) == alone
    pairs = table.records(speedups([run(tmp_path, [*marks, mark("cpu", 9.0), mark("cuda:0", 1.0)])]))
    assert [row["implementation"] for row in pairs] == ["jax", "torch"]
    assert [row["implementation"] for row in speedup.leading(pairs)] == ["torch"]
    across = table.records(speedups([run(tmp_path, marks)], "cuda:0"))
    assert speedup.leading(across) == across
