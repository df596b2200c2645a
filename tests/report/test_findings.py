"""The summary in words: what it says, and that no name from a file breaks out of its cell."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import records
from rich.console import Console

from gpubench.report import findings, labels, render, scaling, speedup, table
from gpubench.runfile import reader
from gpubench.runfile.schema import Case


def summarise(folder: Path, data: dict[str, Any]) -> render.Summary:
    path = folder / "run.json"
    path.write_text(json.dumps(data))
    runs = [reader.read(path)]
    results = table.results_table(runs)
    return findings.summarise(runs, results, speedup.pair(results), scaling.scaling_table(results))


def rows(words: render.Summary, title: str) -> list[dict[str, str]]:
    (found,) = [each for each in words.tables if each.title == title]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_speedups(tmp_path: Path) -> None:
    marks = [
        records.benchmark(Case("a.b", device, "float32", {"n": n}, size="n", devices=(device,)), start + n * slope)
        for device, start, slope in (("cpu", 0.0, 1e-9), ("cuda:0", 1e-5, 1e-10))
        for n in (10**3, 10**6)
    ]
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    (row,) = rows(words, "Speedup")
    assert (row["family"], row["dtype"], row["device"], row["against"]) == ("a", "float32", "cuda:0", "the CPU")
    assert row["speedup at largest sizes"] == "9.09×"
    assert row["best"] == "9.09× (8.73×–9.46×) a.b float32, n=1000000"
    assert row["faster from"] == "n ≈ 34.3k"


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


def test_the_best_is_that_which_is_surely_fast_and_not_the_noisiest(tmp_path: Path) -> None:
    noisy = (0.001, 0.02, 4.0)
    (row,) = rows(summarise(tmp_path, spread_marks({10: (STEADY, noisy), 20: (STEADY, (0.5, 0.51, 0.52))})), "Speedup")
    assert row["best"].startswith("1.98× (")
    assert row["best"].endswith("n=20")


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        ((STEADY, (0.5, 0.51, 0.52)), "always (1 of 1)"),
        (((0.001, 0.02, 4.0), (0.001, 0.002, 0.004)), "may be anywhere (1 of 1)"),
    ],
)
def test_always_is_said_only_where_the_interval_allows_nothing_else(
    tmp_path: Path, sides: tuple[tuple[float, ...], tuple[float, ...]], said: str
) -> None:
    words = summarise(tmp_path, spread_marks({10: sides, 20: sides}))
    (row,) = rows(words, "Speedup")
    assert row["faster from"] == said
    (found,) = [each for each in words.tables if each.title == "Speedup"]
    assert ("May be anywhere: " in found.note) == ("anywhere" in said)


def test_a_disputed_crossover_is_only_perhaps_so(tmp_path: Path) -> None:
    doubted = ((0.9, 1.0, 1.4), STEADY)
    words = summarise(tmp_path, spread_marks({10: doubted, 20: ((3.0, 3.1, 3.2), STEADY)}))
    (row,) = rows(words, "Speedup")
    assert row["faster from"] == "perhaps always (1 of 1)"


def test_words_for_no_crossover_are_explained_where_they_stand(tmp_path: Path) -> None:
    for second, word in ((3.0, "Never: "), (1.5, "Not in this range: ")):
        words = summarise(tmp_path, spread_marks({10: ((1.0,), (2.0,)), 20: ((1.0,), (second,))}))
        (found,) = [each for each in words.tables if each.title == "Speedup"]
        assert word in found.note
        assert found.note.count(": behind") == 1


def test_rates_above_doubtful_ceilings_are_commented(tmp_path: Path) -> None:
    marks = [records.benchmark(Case("a.b", "cpu", "float32", {"n": 1}), 1e-3, work={"flops": 7e8})]
    ceilings = {"cpu": {"throughput": {"float32": 4e11}}}
    for flags, said in (((), False), (("contended",), True)):
        words = summarise(tmp_path, records.run_file(marks, ceilings=ceilings, flags=flags))
        (found,) = [each for each in words.tables if each.title == "Highest rates"]
        assert rows(words, "Highest rates")[0]["utilisation"] == "175%"
        assert ("Up to 175% of a ceiling: the ceilings of this run are too low, see the flags." in found.note) == said


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


def test_one_shot_and_break_even_stand_beside_the_resident_speedup(tmp_path: Path) -> None:
    both = (records.CPU, records.GPU)
    (row,) = rows(summarise(tmp_path, records.run_file(gpu_marks(moved=2e-3), devices=both)), "Speedup")
    # 1 ms on the CPU; 110 µs, and 4 ms of copies, on the device
    assert (row["speedup at largest sizes"], row["one-shot"], row["break-even"]) == ("9.09×", "0.243×", "5 calls")
    assert (row["faster from"], row["one-shot faster from"]) == ("n ≈ 34.3k", "not in this range (1 of 1)")
    (row,) = rows(summarise(tmp_path, records.run_file(gpu_marks(), devices=both)), "Speedup")
    assert "one-shot" not in row


def test_launch_bound_until(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.run_file(gpu_marks(), devices=(records.CPU, records.GPU)))
    (row,) = rows(words, "Launch-bound")
    # device time / launch cost: 0.01 and 10
    assert (row["case"], row["device"], row["launch-bound up to"]) == ("a.b float32", "cuda:0", "n = 10³")
    assert (row["busy at smallest"], row["busy at largest"]) == ("1%", "91%")
    assert row["no longer from"] == "≈ 10⁵"
    marks = [mark for mark in gpu_marks() if mark["params"]["n"] == 1000 or mark["params"]["device"] == "cpu"]
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    (row,) = rows(words, "Launch-bound")
    assert (row["launch-bound up to"], row["no longer from"]) == ("its one size", "not in this range")


def test_what_is_not_paired_is_said(tmp_path: Path) -> None:
    marks = gpu_marks()
    for mark in marks[2:]:
        mark["extra_info"]["gpubench"]["precision"] = {"tf32": True}
    words = summarise(tmp_path, records.run_file(marks, devices=(records.CPU, records.GPU)))
    assert rows(words, "Not paired") == [
        {
            "what differs": "TF32 on against off",
            "cases": "2",
            "workloads": "a.b",
            "to pair them": "--allow precision",
        }
    ]
    assert words.left_out == (
        "2 cases not paired with a baseline that differs in precision (2); --allow precision pairs them and says so"
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
    assert len(rows(words, "Several devices")) == 1
    assert words.left_out.startswith("2 cases not paired")


def test_flags_come_with_a_remedy(tmp_path: Path) -> None:
    marks = gpu_marks()
    marks[3] = records.benchmark(
        Case("a.b", "cuda:0", "float32", {"n": 10**6}, size="n", devices=("cuda:0",)), 1e-4, flags=("noisy",)
    )
    data = records.run_file(marks, devices=(records.CPU, records.GPU), processes=2, flags=("contended",))
    words = summarise(tmp_path, data)
    (row,) = rows(words, "Flags")
    assert (row["flag"], row["cases"]) == ("noisy", "1")
    assert row["what was seen"] == "e.g. a.b float32, n=1000000 on cuda:0: synthetic noisy"
    assert "--processes 10" in row["what to try"]
    (row,) = rows(words, "Flags of whole processes")
    assert (row["flag"], row["processes"], row["what was seen"]) == (
        "contended",
        "2 of 2",
        "synthetic contended in 0",
    )


def test_ceilings_and_what_is_known_of_the_best(tmp_path: Path) -> None:
    marks = gpu_marks(work={"bytes": 1e6, "items": 10.0}, energy_j=0.5, memory_bytes=2e9)
    data = records.run_file(marks, devices=(records.CPU, records.GPU), ceilings={"cuda:0": records.ceilings("cuda:0")})
    words = summarise(tmp_path, data)
    found = {(row["device"], row["what"]): row["at best"] for row in rows(words, "Ceilings")}
    assert found["cuda:0", "bandwidth at 1.00 GB, memory"].startswith("read 5.31 TB/s, copy 4.16 TB/s")
    assert found["cuda:0", "launch floor"] == "4.80 µs"
    assert found["cuda:0", "host to device"] == "52.0 GB/s"
    (row,) = [row for row in rows(words, "Highest rates") if row["device"] == "cuda:0"]
    assert (row["peak memory"], row["energy per call"], row["items per joule"]) == ("2.00 GB", "500 mJ", "20.0 /J")
    assert row["utilisation"] == "<1%"
    data = records.run_file(gpu_marks(work={"bytes": 1e6}), devices=(records.CPU, records.GPU))
    assert set(rows(summarise(tmp_path, data), "Highest rates")[0]) == {
        "workload", "device", "dtype", "rate", "reached by",
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
    (row,) = rows(summarise(tmp_path, data), "Highest rates")
    assert row["rate"].endswith(f" {unit}")


def test_cpu_alone_has_rates_and_numpy(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.cpu_run())
    assert {row["against"] for row in rows(words, "Speedup")} == {"NumPy", "NumPy (threads 2 against 1)"}
    assert any(row["rate"].endswith("GFLOP/s") for row in rows(words, "Highest rates"))


def test_dtypes_are_never_summed_up_together(tmp_path: Path) -> None:
    words = summarise(tmp_path, records.gpu_run())
    found = [row["dtype"] for row in rows(words, "Speedup") if row["family"] == "matmul"]
    assert sorted(found) == ["bfloat16", "float16", "float32", "float64"]


def test_unmeasured_cases_are_grouped_by_reason(tmp_path: Path) -> None:
    left = [
        records.unmeasured(Case("a.b", "cpu", "float16", {"n": n}), "skipped", f"predicted {n / 7} s, budget 10 s")
        for n in (1, 2, 3)
    ]
    left.append(records.unmeasured(Case("a.c", "cpu", "float16", {}), "oom", "no memory"))
    words = summarise(tmp_path, records.run_file([], left))
    assert rows(words, "Not measured") == [
        {"status": "oom", "cases": "1", "reason": "no memory", "which": "a.c on cpu"},
        {
            "status": "skipped",
            "cases": "3",
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
    render.show_summary(words, Console(file=stream, width=300))
    assert "\x1b" not in stream.getvalue()
    assert "[red]z[/red]" in stream.getvalue()


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0123, "0.0123×"), (1.0, "1.00×"), (9.996, "10.0×"), (99.97, "100×"), (1234.5, "1,230×"), (3.2e7, "3.2e+07×")],
)
def test_factor(value: float, words: str) -> None:
    assert labels.factor(value) == words


def test_the_total_of_many_steps_is_derived_and_called_derived(tmp_path: Path) -> None:
    mark = records.benchmark(Case("classic.step", "cpu", "float32", devices=("cpu",)), 0.25)
    mark["extra_info"]["gpubench"]["steps"] = 1000
    words = summarise(tmp_path, records.run_file([mark], devices=(records.CPU,)))
    (row,) = rows(words, "Whole jobs")
    assert (row["steps"], row["one step"], row["all steps"]) == ("1,000", "250 ms", "4 min 10 s")
    assert "Derived, not measured" in render.summary_markdown(words)
