"""results.csv: its exact text, and what a name from a file can't do to it."""

import csv
import io
import math
from pathlib import Path

import pytest
import reading
from reading import study_of
from records import cpu_run, run

from gpubench.errors import RunFileError
from gpubench.report import rows
from gpubench.report.columns import METRICS, csv_files
from gpubench.report.rows import Measured
from gpubench.runfile.schema import Machine, Process, Result, Run, Times


def rows_of(one):
    """Of results.csv, as a spreadsheet reads them."""
    return list(csv.DictReader(io.StringIO(csv_files(study_of(one))["results.csv"])))


def test_a_row_has_what_was_measured_and_nothing_else():
    """The order of the columns and the form of the numbers are those of the committed results."""
    band = {"pattern": "copy", "level": "l2", "footprint_bytes": 4096, "byte_per_s": 65536.0}
    one = run(label='A "synthetic" one, here', processes=1, ceilings={"cuda:0": {"bandwidth": [band]}})
    one.bench("transfer.copy", gpu=0.125, pinned=True, nbytes=4096, size="nbytes", threads=2, cache="cold", flops=32,
              bytes=4096, items=64, latency=0.3, spread=0.5, energy_j=0.25, memory_bytes=1024,
              flags=("noisy", "too-short"), device_s=0.0625, launch_s=0.03125, iterations=7,
              transfer={"in_bytes": 1, "out_bytes": 1, "in_s": 1.5, "out_s": 2.5, "out_pinned_s": 0.75})  # fmt: skip
    one.skip("a.b", "oom", "needs 2 GB, 1 is free", "cuda:0", dtype="float16", n=10**8)
    assert " ".join(rows_of(one)[0]) == (
        "run machine device device_name family workload dtype variant setting size_name size time_s low_s high_s rate"
        " rate_unit utilisation status flags reason implementation cache threads n nbytes pinned latency_s p95_s p99_s"
        " first_call_s device_s launch_s copy_in_s copy_out_s copy_in_pinned_s copy_out_pinned_s iqr_s mean_s min_s"
        " rounds iterations flop_per_s byte_per_s item_per_s memory_bytes energy_j item_per_j check_error check kind"
        " title pytest_id"
    )
    both = {"run": "run", "machine": 'A "synthetic" one, here', "device": "cuda:0", "device_name": "Synthetic H-GPU"}
    both |= {"implementation": "torch", "variant": "eager"}
    measured, absent = ({name: cell for name, cell in row.items() if cell} for row in rows_of(one))
    assert measured == both | {
        "family": "transfer", "workload": "transfer.copy", "dtype": "float32", "setting": "pinned=true",
        "size_name": "nbytes", "size": "4096", "nbytes": "4096", "pinned": "true", "cache": "cold", "threads": "2",
        "time_s": "0.125", "rate": "32768.0", "rate_unit": "B/s", "utilisation": "0.5", "status": "ok",
        "flags": "noisy too-short", "latency_s": "0.3", "device_s": "0.0625", "launch_s": "0.03125",
        "copy_in_s": "1.5", "copy_out_s": "2.5", "copy_out_pinned_s": "0.75", "iqr_s": "0.0625", "mean_s": "0.125",
        "min_s": "0.09375", "rounds": "50", "iterations": "7", "byte_per_s": "32768.0", "item_per_s": "512.0",
        "flop_per_s": "256.0", "memory_bytes": "1024.0", "energy_j": "0.25", "item_per_j": "256.0", "kind": "copies",
        "check_error": "0.0", "check": "passed", "pytest_id": one.marks[0]["fullname"],
    }  # fmt: skip
    assert absent == both | {
        "family": "a", "workload": "a.b", "dtype": "float16", "size_name": "n", "size": "100000000", "n": "100000000",
        "cache": "hot", "status": "oom", "reason": "needs 2 GB, 1 is free", "pytest_id": one.gone[0]["fullname"],
    }  # fmt: skip


def test_several_processes_give_the_time_an_interval():
    """Student's t with two degrees of freedom (4.303) about the median of logarithms 0, 1 and 2, 2.6 % wider for it."""
    (row,) = rows_of(run().bench("a.b", cpu=(1.0, math.e, math.e**2)))
    half = 1.026 * 4.302653 / math.sqrt(3)
    assert [math.log(float(row[name])) for name in ("low_s", "high_s")] == pytest.approx([1 - half, 1 + half])


@pytest.mark.parametrize(
    ("values", "size"),
    [((1, 2, 30), "x"), ((1e3, 1e6), "x"), ((0.25, 0.5, 1.0), None), ((1, 1), None), ((1, "a"), None)],
)
def test_the_only_whole_number_that_varies_is_the_size(values, size):
    one = run()
    for value in values:
        one.bench("mine.work", cpu=1e-3, x=value, dtype="", implementation="", size=None)
    assert {row["size_name"] for row in reading.results(study_of(one))} == {size}


def test_parameters_named_like_columns():
    params = {"device": "x", "param_device": 1, "variant": 2, "time_s": 3, "_run": 4}
    (row,) = rows_of(run().bench("a.b", cpu=1.0, params=params))
    assert row["device"] == "cpu"
    assert row["param_param_device"] == "x"
    assert [row["param_device"], row["param_variant"], row["param_time_s"], row["_run"]] == ["1", "2", "3", "4"]


def test_names_of_parameters_are_bounded():
    one = run()
    for i in range(8):
        one.bench("a.b", cpu=1e-6, **{f"p{i}_{k}": 1 for k in range(60)})
    assert len(study_of(one).rows) == 8
    with pytest.raises(RunFileError, match="540 different names of parameters: a table holds 500"):
        study_of(one.bench("a.b", cpu=1e-6, **{f"q_{k}": 1 for k in range(60)}))


def test_texts_are_no_formulas():
    params = {"a": "=1+1", "b": "@SUM(A1)", "c": "-2", "d": "+x", "e": -2.5, "=f": "\n=1"}
    params |= {"g": "＝1", "h": "＠x", "i": "a;=1", "j": "a;b", "k": "a-b"}  # of full width, and after a semicolon
    (row,) = rows_of(run().bench("=cmd|'/c calc'!A0", cpu=1.0, params=params))
    assert row["workload"] == "'=cmd|'/c calc'!A0"
    assert [row[name] for name in "abcde"] == ["'=1+1", "'@SUM(A1)", "'-2", "'+x", "-2.5"]
    assert [row[name] for name in "ghijk"] == ["'＝1", "'＠x", "a;'=1", "a;b", "a-b"]
    assert row["'=f"] == " =1"


def test_run_names_are_told_apart():
    paths = [Path("/r/a/run.json"), Path("/r/b/run.json"), Path("/r/b/other.json")]
    assert rows.run_names(paths) == ["a", "b", "other"]
    assert rows.run_names([Path("/x/a/run.json"), Path("/y/a/run.json")]) == ["x/a", "y/a"]
    assert rows.run_names([Path("/x/a/run.json"), Path("/y/b/run.json"), Path("/x/a.json")]) == ["a/run", "b/run", "a"]
    assert rows.run_names([Path("/x/a\x1b[1m/r\n.json"), Path("/x/b/r\n.json")]) == ["a�[1m/r ", "b/r "]


def test_a_pytest_id_is_in_the_results_and_can_be_typed():
    (first, *_) = reading.results(study_of(cpu_run()))
    assert first["pytest_id"].startswith("benchmarks/test_")
    chosen = reading.results(study_of(cpu_run(), expression=first["pytest_id"]))
    assert {row["pytest_id"] for row in chosen} == {first["pytest_id"]}


# Metrics --------------------------------------------------------------------------------------------------------------


def percentiles(*processes: list[float], iterations: int = 1) -> tuple[float | None, float | None]:
    """p95 and p99 of samples by process."""
    facts = tuple(Process(i, len(each), 1.0, len(each), iterations) for i, each in enumerate(processes))
    times = Times(1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1, iterations, None, "device_clock", facts, processes)
    run = Run(Path(), Machine("a machine", ()), ())
    p95, p99 = (
        METRICS[name].of(Measured(run, "run", Result("a.b", "cpu", times=times), None)) for name in ("p95_s", "p99_s")
    )
    return p95, p99


def test_percentiles_are_of_single_calls_and_need_enough_of_them():
    calls = [float(i) for i in range(200, 0, -1)]
    assert percentiles(calls) == (190, 198)
    assert percentiles(calls[:150], calls[150:]) == (190, 198)  # of all processes together
    assert percentiles(calls, iterations=2) == (None, None)
    assert percentiles(calls[-20:]) == (19, None)
    assert percentiles(calls[-19:]) == (None, None)
    assert percentiles(calls[-100:]) == (95, 99)
    assert percentiles(calls[-99:]) == (95, None)


def test_a_share_of_peak_is_that_of_the_dtype_which_computed_it():
    """Autocast computes float32's products in bfloat16."""
    one = run(ceilings={"cpu": {"throughput": {"float32": 1e9, "bfloat16": 4e9}}})
    for each in ("eager", "autocast"):
        one.bench("a.b", cpu=1.0, flops=8e8, variant=each)
    assert [row["utilisation"] for row in reading.results(study_of(one))] == pytest.approx([0.8, 0.2])


def test_the_low_end_of_a_rate_is_that_of_the_slow_rounds():
    (row,) = study_of(run(processes=1).bench("a.b", cpu=2.0, spread=0.5, items=6.0)).measured
    assert (row.times.q1_s, row.times.q3_s) == (1.5, 2.5)
    assert row.throughput == pytest.approx((3.0, 2.4, 4.0))
