"""results.csv: its exact text, and names from a file that can't harm it."""

import csv
import io
import json
import math
from pathlib import Path

import pytest
import reading
from reading import study_of
from records import cpu_run, gpu_run, run

from gpubench.commands.reading import write_report
from gpubench.errors import RunFileError
from gpubench.report import rows
from gpubench.report.columns import METRICS, csv_files
from gpubench.report.number import MISSING
from gpubench.report.tables import flag_table
from gpubench.runfile import reader
from gpubench.runfile.quality import judged


def rows_of(one):
    """Of results.csv, as a spreadsheet reads them."""
    return list(csv.DictReader(io.StringIO(csv_files(study_of(one))["results.csv"])))


def test_a_row_has_what_was_measured_and_nothing_else():
    """The order of the columns and the form of the numbers are as in the committed results."""
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
    (row,) = rows_of(run().bench("a.b", cpu=(1.0, math.e**0.1, math.e**0.2)))
    half = 0.1026 * 4.302653 / math.sqrt(3)
    assert [math.log(float(row[name])) for name in ("low_s", "high_s")] == pytest.approx([0.1 - half, 0.1 + half])
    (row,) = rows_of(run().bench("a.b", cpu=(1.0, math.e, math.e**2)))  # every table says "too noisy"
    assert (row["low_s"], row["high_s"]) == ("", "")


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ((1, 2, 30), "x"),
        ((1e3, 1e6), "x"),
        ((0.25, 0.5, 1.0), None),
        ((1, 1), None),
        ((1, "a"), None),
        ((1e200, 1e201), None),
    ],  # which no axis holds
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


def percentiles(*samples, iterations=1):
    """Of a results file with these samples of each process, as a report reads it."""
    one = run(processes=len(samples)).bench("a.b", cpu=tuple(float(len(samples)) for _ in samples))
    mark = one.marks[0]
    mark["stats"]["data"] = [sample for of_process in samples for sample in of_process]
    mark["stats"]["iterations"] = iterations
    for process, of_process in zip(mark["extra_info"]["gpubench"]["processes"], samples, strict=True):
        process |= {"kept": len(of_process), "iterations": iterations}
    run_of_file = judged(reader.check_run(Path("run.json"), one.data, samples=False))
    (row,) = study_of(run_of_file).measured
    assert row.times.samples == ((),) * len(samples) or not row.times.samples
    return tuple(METRICS[name].of(row) for name in ("p95_s", "p99_s"))


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
    for variant in ("eager", "autocast"):
        one.bench("a.b", cpu=1.0, flops=8e8, variant=variant)
    assert [row["utilisation"] for row in reading.results(study_of(one))] == pytest.approx([0.8, 0.2])


def test_the_low_end_of_a_rate_is_that_of_the_slow_rounds():
    (row,) = study_of(run(processes=1).bench("a.b", cpu=2.0, spread=0.5, items=6.0)).measured
    assert (row.times.q1_s, row.times.q3_s) == (1.5, 2.5)
    assert row.throughput == pytest.approx((3.0, 2.4, 4.0))


def test_every_documented_column_is_filled_for_a_run_that_measures_it(tmp_path):
    """Through files, as a report reads them: a column that nothing fills is a wrong promise."""
    data = gpu_run(processes=3)
    for mark in data["benchmarks"]:
        ours = mark["extra_info"]["gpubench"]
        mark["stats"]["data"] = [mark["stats"]["median"] * (1 + i / 1e4) for i in range(360)]
        ours["processes"] = [process | {"kept": 120, "iterations": 1} for process in ours["processes"]]
        ours |= {"first_call_s": 1.0, "latency_s": 2.0}
    (tmp_path / "run.json").write_text(json.dumps(data))
    write_report([tmp_path / "run.json"], tmp_path / "out", charts="none")
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [name for name in METRICS if not any(row[name] for row in lines)] == []
    with (tmp_path / "out" / "speedup.csv").open(newline="") as file:
        speedups = list(csv.DictReader(file))
    always = {"speedup", "low", "high", "shown", "one_shot_speedup", "baseline_s", "baseline_way", "simulated"}
    assert [name for name in always if not any(row[name] for row in speedups)] == []


def test_speedups_in_a_file_are_those_that_are_shown():
    """Of a wide interval a limit; nothing of times that say nothing; and whether a model made them."""
    one = run(gpu={"simulated": True}).bench("a.a", cpu=8.0, gpu=1.0)
    one.bench("a.b", cpu=(2.0, 8.0, 50.0), gpu=(0.01,) * 3).bench("a.c", cpu=(0.1, 1.0, 10.0), gpu=(0.1, 1.0, 10.0))
    study = study_of(one)
    lines = [(row["speedup"], row["shown"], row["limit"], row["simulated"]) for row in reading.speedups(study)]
    limit = study.pairs[1].values.low
    assert lines == [
        (8.0, "8.0×", None, True),
        (limit, study.pairs[1].ratio.mark, "at least", True),
        (None, "unknown (too noisy)", None, True),
    ]
    assert limit < 700
    *_, unknown = reading.speedups(study)
    assert (unknown["low"], unknown["high"]) == (None, None)


def test_a_noisy_time_of_a_plain_file_has_its_star():
    """By the rule that gpubench measures with: half of the rounds spread over more than 15% of the median."""

    def plain(iqr, rounds=20):
        stats = {"median": 1.0, "mean": 1.0, "min": 0.8, "iqr": iqr, "rounds": rounds, "iterations": 1}
        mark = {"fullname": "test_a.py::test_x", "params": None, "stats": stats}
        return study_of(reader.check_run(Path("x.json"), {"benchmarks": [mark], "machine_info": {"machine": "x86_64"}}))

    for iqr, rounds, star in ((0.16, 20, "*"), (0.14, 20, ""), (0.16, 3, "")):
        (row,) = plain(iqr, rounds).measured
        assert (row.quality.star, "noisy" in row.flags) == (star, bool(star))
        assert (row.times.q1_s, row.times.q3_s) == (1 - iqr / 2, 1 + iqr / 2)  # which the file lacks
    table = flag_table(plain(0.16))
    assert "half of the rounds are spread over 16% of the median" in table.rows[0][2]


def test_a_fast_convolution_above_its_direct_flops_is_plausible():
    peaks = {"cuda:0": {"throughput": {"float32": 1e13}}}
    one = run(ceilings=peaks).bench("convolution.c", cpu=1.0).bench("convolution.c", gpu=0.01, flops=1.6e11, bytes=1e6)
    for mark in one.marks:
        mark["extra_info"]["gpubench"]["convolution_share"] = 1.0
    row = study_of(one).measured[-1]
    assert (round(row.utilisation, 2), row.flags, str(row.speed)) == (1.6, (), "16.0 TFLOP/s")
    assert row.peak_share == MISSING  # of more than there is no share is shown
    for mark in one.marks:
        mark["extra_info"]["gpubench"]["convolution_share"] = 0.0
    assert study_of(one).measured[-1].flags == ("implausible",)
