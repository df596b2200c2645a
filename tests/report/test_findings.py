"""What a person reads: the summary in words, where no name from a file breaks out of its cell; and the ending of a run,
at most 25 lines of 80 columns that hold the answer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import records
from rich.console import Console

from gpubench.commands.report import Charts, write_report
from gpubench.report import answer, findings, judgement, labels, render, scaling, speedup, table
from gpubench.report.findings import MOST_LINES, WIDTH, ending, skip_kind
from gpubench.runfile import reader
from gpubench.runfile.schema import Case, Machine, Run

ROOT = Path(__file__).parent.parent.parent


def summarise(folder: Path, data: dict[str, Any]) -> render.Summary:
    path = folder / "run.json"
    path.write_text(json.dumps(data))
    runs = [reader.read(path)]
    results = table.results_table(runs)
    pairs = speedup.pair(results)
    written = speedup.pair_or_libraries(results, pairs)
    crossovers = judgement.crossover_table(written.table, labels.Names(results))
    answered = answer.answer(results, pairs.table, crossovers, runs)
    return findings.summarise(answered, runs, results, written, crossovers, scaling.scaling_table(results))


def rows(words: render.Summary, title: str) -> list[dict[str, str]]:
    (found,) = [each for each in (*words.tables, *words.details) if each.title == title]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_speedups(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case("a.b", device, "float32", {"n": n}, size="n", devices=(device,)), start + n * slope)
        for device, start, slope in (("cpu", 0.0, 1e-9), ("cuda:0", 1e-5, 1e-10))
        for n in (10**3, 10**6)
    ]
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    (row,) = rows(words, "Speedup")
    assert row == {
        "benchmark": "a.b float32, n=1000000",
        "device": "Synthetic H",
        "against": "the CPU",
        "time": "1.00 ms → 110 µs",
        "speedup": "9.1× (8.7× to 9.5×)",
        "faster from": "n between 10³ and 10⁶",
    }


def test_a_column_in_which_nothing_was_measured_is_no_column(tmp_path: Path) -> None:
    plain = [records.benchmark(Case("theirs.parse", "", "", {}), 1e-3)]
    words = summarise(tmp_path, records.run_file(plain))
    assert rows(words, "Times") == [{"benchmark": "theirs.parse", "time": "1.00 ms"}]


def spread_marks(times: dict[int, tuple[tuple[float, ...], tuple[float, ...]]]) -> dict[str, Any]:
    """Times of the processes on the CPU and on the device, at each size."""
    marks = [
        records.benchmark(
            Case("a.b", device, "float32", {"n": n}, size="n", devices=(device,)), own[len(own) // 2], medians=own
        )
        for n, sides in times.items()
        for device, own in zip(("cpu", "cuda:0"), sides, strict=True)
    ]
    return records.run_file(marks, devices=(records.CPU, records.GPU), processes=3)


STEADY = (1.0, 1.01, 1.02)


@pytest.mark.parametrize(
    ("sides", "cells"),
    [
        ((STEADY, (0.5, 0.51, 0.52)), ("2.0× (1.9× to 2.1×)", "every size measured")),
        (((0.001, 0.02, 4.0), (0.001, 0.002, 0.004)), ("unknown (too noisy)", "unsure")),
    ],
)
def test_nothing_is_stated_that_the_interval_leaves_open(
    tmp_path: Path, sides: tuple[tuple[float, ...], tuple[float, ...]], cells: tuple[str, str]
) -> None:
    (row,) = rows(summarise(tmp_path, spread_marks({10: sides, 20: sides})), "Speedup")
    assert (row["speedup"], row["faster from"]) == cells


def test_a_disputed_crossover_is_unsure(tmp_path: Path) -> None:
    doubted = ((0.9, 1.0, 1.4), STEADY)
    words = summarise(tmp_path, spread_marks({10: doubted, 20: ((3.0, 3.1, 3.2), STEADY)}))
    (row,) = rows(words, "Speedup")
    assert row["faster from"] == "unsure"


def test_where_the_device_never_wins_the_largest_size_is_named(tmp_path: Path) -> None:
    words = summarise(tmp_path, spread_marks({10: ((1.0,), (2.0,)), 20: ((1.0,), (3.0,))}))
    (row,) = rows(words, "Speedup")
    assert (row["speedup"], row["faster from"]) == ("3.0× slower (2.9× to 3.1× slower)", "not up to n = 20")


def test_no_rate_is_above_its_peak(tmp_path: Path) -> None:
    marks = [records.benchmark(Case("a.b", "cpu", "float32", {"n": 1}), 1e-3, work={"flops": 7e8})]
    ceilings = {"cpu": {"throughput": {"float32": 4e11}}}
    words = summarise(tmp_path, records.run_file(marks, ceilings=ceilings))
    assert rows(words, "Highest throughput")[0]["% of peak"] == "—"
    (warning,) = (line for line in words.warnings if "peak" in line)
    assert warning.startswith("1 result above 100% of the measured peak, which can't be (a.b)")


def test_the_highest_rate_is_none_that_cant_be(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case("a.b", "cpu", "float32", {"n": n}, devices=("cpu",)), seconds, work={"flops": 1e9})
        for n, seconds in ((1, 0.1), (2, 0.01))
    ]
    for peak, rate in ((5e10, "10.0 GFLOP/s"), (5e9, "—")):
        words = summarise(tmp_path, records.run_file(marks, ceilings={"cpu": {"throughput": {"float32": peak}}}))
        (row,) = rows(words, "Highest throughput")
        assert row["throughput"] == rate
        flags = {row["flag"]: row["evidence"] for row in rows(words, "Flags")}
        assert "2 times the measured peak" in flags["implausible"]


def test_processes_are_counted_and_not_their_flags(tmp_path: Path) -> None:
    data = records.run_file(gpu_marks(), devices=(records.CPU, records.GPU), processes=2, flags=("contended",) * 2)
    (row,) = rows(summarise(tmp_path, data), "Flags of whole processes")
    assert row["processes"] == "2 of 2"


def gpu_marks(*, moved: float | None = None, **of_all: Any) -> list[dict[str, Any]]:
    """Equal at 11,111 elements; on the device, all but 0.1 ns an element is launching."""
    marks = []
    for device, start, slope in (("cpu", 0.0, 1e-9), ("cuda:0", 1e-5, 1e-10)):
        for n in (10**3, 10**6):
            case = Case("a.b", device, "float32", {"n": n}, size="n", devices=(device,))
            measured = dict(of_all)
            if device != "cpu":
                measured |= {"device_s": n * slope, "launch_s": start}
                if moved:
                    measured["transfer"] = {"in_bytes": n, "out_bytes": n, "in_s": moved, "out_s": moved}
            marks.append(records.benchmark(case, start + n * slope, latency=start + n * slope, **measured))
    return marks


def test_copies_and_the_calls_that_amortize_them_stand_beside_the_speedup(tmp_path: Path) -> None:
    both = (records.CPU, records.GPU)
    (row,) = rows(summarise(tmp_path, records.run_file(gpu_marks(moved=2e-3), devices=both)), "Speedup")
    # 1 ms on the CPU; 110 µs, and 4 ms of copies, on the device
    assert (row["speedup"], row["with copies"], row["calls"]) == ("9.1× (8.7× to 9.5×)", "4.1× slower", "5")
    peaks = {"cuda:0": {"throughput": {"float32": 1e9}}}
    data = records.run_file(gpu_marks(moved=2e-3, work={"flops": 1e12}), devices=both, ceilings=peaks)
    (row,) = rows(summarise(tmp_path, data), "Speedup")
    assert (row["speedup"], row["faster from"], "with copies" in row, "calls" in row) == ("—", "unsure", False, False)


def test_launch_bound_until(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.run_file(gpu_marks(), devices=(records.CPU, records.GPU)))
    (row,) = rows(words, "Launch overhead")
    # device time / launch cost: 0.01 and 10
    assert (row["benchmark"], row["device"], row["launch-bound up to"]) == ("a.b float32", "cuda:0", "n = 10³")
    assert (row["busy at smallest"], row["busy at largest"]) == ("1%", "91%")
    assert row["no longer from"] == "≈ 10⁵"
    marks = [mark for mark in gpu_marks() if mark["params"]["n"] == 1000 or mark["params"]["device"] == "cpu"]
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    (row,) = rows(words, "Launch overhead")
    assert (row["launch-bound up to"], row["no longer from"]) == ("its only size", "not reached")


def test_what_is_not_paired_is_said(tmp_path: Path) -> None:
    marks = gpu_marks()
    for mark in marks[2:]:
        mark["extra_info"]["gpubench"]["precision"] = {"tf32": True}
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    assert rows(words, "Not compared") == [
        {
            "what differs": "TF32 on against off",
            "benchmarks": "2",
            "which": "a.b",
            "to compare them": "--allow precision",
        }
    ]
    assert words.left_out == (
        "not compared: 2 benchmarks have no comparable baseline, the nearest differs in precision (2). "
        "Use --allow precision to compare anyway"
    )


def test_what_is_not_paired_is_said_beside_cases_of_several_devices(tmp_path: Path) -> None:
    marks = gpu_marks()
    for mark in marks[2:]:
        mark["extra_info"]["gpubench"]["precision"] = {"tf32": True}
    for method, devices in (("single", 1), ("ddp", 2)):
        case = Case("distributed.lenet", "cpu", "float32", {"method": method}, devices=("cpu",))
        parallel = {"method": method, "devices": devices, "mode": "strong"}
        marks.append(records.benchmark(case, 0.1, work={"items": 128, "unit": "sample"}, parallel=parallel))
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    assert len(rows(words, "Multi-device")) == 1
    assert words.left_out.startswith("not compared: 2 benchmarks")


def test_flags_come_with_a_remedy(tmp_path: Path) -> None:
    marks = gpu_marks()
    marks[3] = records.benchmark(
        Case("a.b", "cuda:0", "float32", {"n": 10**6}, size="n", devices=("cuda:0",)), 1e-4, flags=("noisy",)
    )
    data = records.run_file(marks, devices=(records.CPU, records.GPU), processes=2, flags=("contended",))
    words = summarise(tmp_path, data)
    (row,) = rows(words, "Flags")
    assert (row["flag"], row["benchmarks"]) == ("noisy", "1")
    assert row["evidence"] == "e.g. a.b float32, n=1000000 on cuda:0: synthetic noisy"
    assert "--processes 10" in row["what to try"]
    (row,) = rows(words, "Flags of whole processes")
    assert (row["flag"], row["processes"], row["evidence"]) == (
        "contended",
        "2 of 2",
        "synthetic contended in 0",
    )


def test_ceilings_and_what_is_known_of_the_best(tmp_path: Path) -> None:
    marks = gpu_marks(work={"bytes": 1e6, "items": 10.0}, energy_j=0.5, memory_bytes=2e9)
    data = records.run_file(marks, devices=(records.CPU, records.GPU), ceilings={"cuda:0": records.ceilings("cuda:0")})
    words = summarise(tmp_path, data)
    found = {(row["device"], row["what"]): row["peak"] for row in rows(words, "Measured peaks")}
    assert found["cuda:0", "bandwidth at 1.00 GB, memory"].startswith("read 5.31 TB/s, copy 4.16 TB/s")
    assert found["cuda:0", "launch overhead"] == "4.80 µs"
    assert found["cuda:0", "host to device"] == "52.0 GB/s"
    (row,) = [row for row in rows(words, "Highest throughput") if row["device"] == "cuda:0"]
    assert (row["peak memory"], row["energy per call"], row["items/J"]) == ("2.00 GB", "500 mJ", "20.0 /J")
    assert row["% of peak"] == "<1%"
    data = records.run_file(gpu_marks(work={"bytes": 1e6}), devices=(records.CPU, records.GPU))
    assert set(rows(summarise(tmp_path, data), "Highest throughput")[0]) == {
        "benchmarks", "device", "dtype", "throughput", "reached by",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("work", "unit"),
    [
        ({"flops": 1.0, "bytes": 12.0}, "B/s"),
        ({"flops": 12.0, "bytes": 12.0}, "FLOP/s"),
        ({"flops": 12.0}, "FLOP/s"),
        ({"flops": 1.0, "bytes": 12.0, "items": 1.0, "unit": "token"}, "tokens/s"),
    ],
)
def test_work_is_judged_by_what_it_waits_for(tmp_path: Path, work: dict[str, Any], unit: str) -> None:
    data = records.run_file([records.benchmark(Case("a.b", "cpu", "float32", {}), 1.0, work=work)])
    (row,) = rows(summarise(tmp_path, data), "Highest throughput")
    assert row["throughput"].endswith(f" {unit}")


def test_cpu_alone_has_rates_and_numpy(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.cpu_run())
    assert {row["against"] for row in rows(words, "Speedup")} == {"NumPy", "NumPy (threads 2 against 1)"}
    assert any(row["throughput"].endswith("GFLOP/s") for row in rows(words, "Highest throughput"))


def test_dtypes_are_never_summed_up_together(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.gpu_run())
    dtypes = {"bfloat16", "float16", "float32", "float64"}
    squares = [row["benchmark"] for row in rows(words, "Speedup") if row["benchmark"].startswith("matmul.square")]
    assert sorted(word for name in squares for word in dtypes if f" {word}," in name) == sorted(dtypes)


def test_unmeasured_cases_are_grouped_by_reason(tmp_path: Path) -> None:
    left = [
        records.unmeasured(Case("a.b", "cpu", "float16", {"n": n}), "skipped", f"predicted {n / 7} s, budget 10 s")
        for n in (1, 2, 3)
    ]
    left.append(records.unmeasured(Case("a.c", "cpu", "float16", {}), "oom", "no memory"))
    words = summarise(tmp_path, records.run_file([], left))
    assert rows(words, "Skipped and failed") == [
        {"status": "oom", "benchmarks": "1", "reason": "no memory", "which": "a.c on cpu"},
        {
            "status": "skipped",
            "benchmarks": "3",
            "reason": "e.g. predicted 0.14285714285714285 s, budget 10 s",
            "which": "a.b on cpu",
        },
    ]


EVIL = "x|<img src=x onerror=alert(1)>`*_[a](javascript:b)\n# $y$ [red]z[/red]\x1b[31m"


def test_names_stay_in_their_cells(tmp_path: Path) -> None:
    data = records.run_file([], [records.unmeasured(Case(EVIL, "cpu", "float32", {}), "error", EVIL)], label=EVIL)
    words = summarise(tmp_path, data)
    text = render.summary_markdown(words)
    assert "<img" not in text
    assert "\x1b" not in text
    for line in text.splitlines():
        if "onerror" in line:
            cells = line.replace("\\|", "").strip("|").split("|")
            assert len(cells) == (7 if line.startswith("| run") else 4)
            assert "\\[a\\](" in line
            assert "\\$y\\$" in line
    stream = io.StringIO()
    render.show_summary(words, Console(file=stream, width=300), verbose=True)
    assert "\x1b" not in stream.getvalue()
    assert "[red]z[/red]" in stream.getvalue()


def test_the_total_of_many_steps_is_derived_and_called_derived(tmp_path: Path) -> None:
    mark = records.benchmark(Case("classic.step", "cpu", "float32", devices=("cpu",)), 0.25)
    mark["extra_info"]["gpubench"]["steps"] = 1000
    words = summarise(tmp_path, records.run_file([mark], devices=(records.CPU,)))
    (row,) = rows(words, "Whole jobs")
    assert (row["steps"], row["one step"], row["all steps"]) == ("1,000", "250 ms", "4 min 10 s")
    assert "Derived, not measured" in render.summary_markdown(words)


def lines_of(data: dict | Path, folder: Path) -> list[str]:
    if isinstance(data, dict):
        (folder / "run.json").write_text(json.dumps(data))
        data = folder / "run.json"
    report = write_report([data], folder / "out", charts=Charts("none"))
    lines = ending(report.answer, report.runs[0], report.files, 684.0)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH + len(str(folder))  # names of files may be longer
    return lines


def case(device: str, name: str = "mine.step", n: int = 8) -> Case:
    return Case(name, device, "float32", {"n": n}, size="n", devices=(device,))


def test_on_a_cpu_alone_it_is_the_times_and_why_there_is_no_gpu(tmp_path: Path) -> None:
    lines = lines_of(ROOT / "results/xeon-2-cores/run.json", tmp_path)
    assert lines[0] == "209 benchmarks in 11 min 24 s · Intel Xeon, 2 threads · PyTorch 2.13.0"
    assert lines[1].startswith("No GPU used: ")
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["benchmark", "time"])
    assert [i for i, line in enumerate(lines) if line.startswith("WARNING: ")] < [head]
    (answered,) = (i for i, line in enumerate(lines) if "in matrix products" in line)
    assert answered < lines.index(next(line for line in lines if line.startswith("WARNING: ")))
    assert len([line for line in lines[head + 1 :] if line.startswith("  ")]) >= 8
    assert not any("in results.csv" in line for line in lines)  # the table holds a few of 209 on purpose
    assert "Skipped: 9 need a GPU, 6 run with --preset full only. Failed: 0." in lines
    assert "report.html" in " ".join(lines[-3:])


def test_with_an_accelerator_it_is_the_speedups_and_the_times_of_own_benchmarks(tmp_path: Path) -> None:
    marks = [
        records.benchmark(
            case(device, n=n),
            seconds,
            medians=(seconds * 0.99, seconds, seconds * 1.01),
            check={"status": "unchecked"} if n == 8 else None,
        )
        for n in (8, 80)
        for device, seconds in (("cpu", 4e-3), ("cuda:0", 1e-4))
    ]
    lines = lines_of(records.run_file(marks, devices=(records.CPU, records.GPU), processes=3), tmp_path)
    assert any(line.split()[:2] == ["work", "typically"] for line in lines)
    assert any("mine.step" in line and "40×" in line for line in lines)
    assert "  mine.step[float32-n=80]  CPU 4.00 ms  cuda:0 100 µs" in lines
    assert "  mine.step[float32-n=8]  CPU 4.00 ms  cuda:0 100 µs  (not verified)" in lines


def test_one_benchmark_of_ones_own_has_its_time(tmp_path: Path) -> None:
    lines = lines_of(records.run_file([records.benchmark(case("cpu"), 2e-3)]), tmp_path)
    assert any("mine.step" in line and "2.00 ms" in line for line in lines)


def test_failed_and_skipped_ones_are_counted_by_their_reasons(tmp_path: Path) -> None:
    reasons = ["needs an accelerator, chosen: cpu", "not in preset quick", "sixteen tons"]
    left = [records.unmeasured(case("cpu", f"a.b{i}"), reason=reason) for i, reason in enumerate(reasons)]
    left.append(records.unmeasured(case("cpu", "a.bad"), status="error", reason="ValueError: x"))
    text = " ".join(lines_of(records.run_file([records.benchmark(case("cpu"), 2e-3)], left), tmp_path))
    assert "1 needs a GPU, 1 runs with --preset full only, 1 sixteen tons. Failed: 1 (a.bad)." in text


@pytest.mark.parametrize(
    ("count", "words"), [(30, "… {} more lines in summary.md"), (50, "and {} more in results.csv")]
)
def test_many_rows_are_cut_and_counted(tmp_path: Path, count: int, words: str) -> None:
    marks = [records.benchmark(case("cpu", f"mine.w{i}"), 1e-3 * (i + 1)) for i in range(count)]
    flags = ("contended",)
    lines = lines_of(records.run_file(marks, flags=flags), tmp_path)
    shown = sum(line.startswith("  mine.w") for line in lines)
    assert shown >= 5
    assert f"  {words.format(count - shown)}" in lines


def test_a_sign_that_no_printed_row_has_is_not_explained(tmp_path: Path) -> None:
    marks = [
        records.benchmark(case("cpu", f"mine.w{i}"), 1e-3 * (38 - i), flags=("noisy",) * (i == 35)) for i in range(38)
    ]
    lines = lines_of(records.run_file(marks), tmp_path)
    assert not any("*" in line for line in lines)


def test_a_folder_of_any_name_is_one_line_of_printable_characters() -> None:
    run = Run(Path("run.json"), Machine("m", (), "2.0"), ())
    assert [ending(answer.Answer("."), run, (), s)[0] for s in (0.2, 31.04, 61.0)] == [
        f"0 benchmarks in {words} · PyTorch 2.0" for words in ("1.0 s", "31 s", "1 min 01 s")
    ]
    lines = ending(answer.Answer("."), run, [Path("a\x1b[31m\nb") / "report.html"])
    assert any("a�[31m b/report.html" in line for line in lines)
    places = [Path(f"{'long' * 20} name") / name for name in ("report.html", "results.csv")]
    assert [line[-11:] for line in ending(answer.Answer("."), run, places)[-2:]] == ["ts, charts)", "results.csv"]
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("reason", ["", "x" * 300])
def test_an_unknown_reason_is_shown_short(reason: str) -> None:
    assert set(skip_kind(reason)) == {f"{'x' * 59}…" if reason else ""}
