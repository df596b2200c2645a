"""Results for scripts and notebooks: frames, one number, plots, text and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
import records

from gpubench.errors import UsageError
from gpubench.report.results import Results
from gpubench.runfile.schema import Case

SIZES = (64, 256, 1024)


def made(folder: Path, marks: list[Any], unmeasured: list[Any] | None = None, **how: Any) -> Results:
    devices = (records.CPU, records.GPU) if any("cuda" in str(mark) for mark in marks) else (records.CPU,)
    return Results([reading.run_of(folder, records.run_file(marks, unmeasured, devices=devices, **how))])


def mark(n: int, seconds: float, device: str = "cpu", text: str = "a @ b", processes: int = 1, **how: Any) -> Any:
    implementation = how.pop("implementation", "torch")
    case = Case(f"time.{text}", device, "float32", {"n": n}, implementation, size="n", devices=(device,))
    medians = tuple(seconds * (1 + 0.01 * i) for i in range(processes))
    return records.benchmark(case, seconds, medians=medians, work={"flops": 2.0 * n**3}, **how)


def on_gpu(n: int, seconds: float, **how: Any) -> Any:
    copies = {"in_bytes": 8 * n * n, "out_bytes": 4 * n * n, "in_s": 1e-3, "out_s": 1e-3}
    return mark(n, seconds, "cuda:0", transfer={**copies, "in_pinned_s": None, "out_pinned_s": None}, **how)


def sentences(results: Results) -> list[str]:
    """What the screen says below its table."""
    return str(results).rpartition("\n\n")[2].splitlines()


def crossing(processes: int) -> list[Any]:
    """The GPU is slower at 64, and 32 times as fast at 1024."""
    sides = [mark(n, n**3 / 1e9, processes=processes) for n in SIZES]
    return sides + [on_gpu(n, 1e-3 + n**3 / 1e12, processes=processes) for n in SIZES]


@pytest.fixture
def compared(tmp_path: Path) -> Results:
    return made(tmp_path, crossing(1))


def test_frames_hold_what_the_files_hold(compared: Results) -> None:
    assert compared.df["time_s"].dtype == float
    assert list(compared.df["device"]) == ["cpu"] * 3 + ["cuda:0"] * 3
    assert list(compared.speedups["speedup"]) == pytest.approx([n**3 / 1e9 / (1e-3 + n**3 / 1e12) for n in SIZES])
    last = compared.speedups.iloc[-1]
    found = compared.speedup
    assert found is not None
    assert (found, found.low, found.high) == (last["speedup"], last["low"], last["high"])


def test_the_screen_has_a_row_for_each_size(compared: Results) -> None:
    lines = str(compared).splitlines()
    (header,) = (line for line in lines if "speedup" in line and "with copies" in line)
    assert header.split()[0] == "CPU"
    cells = {line.split()[0]: line for line in lines if line.startswith("n=")}
    assert list(cells) == [f"n={n}" for n in SIZES]
    assert "3.8× slower" in cells["n=64"]
    assert "1.07 s ~2%" in cells["n=1024"]  # of one process no interval


def test_several_processes_give_an_interval_and_a_crossover(tmp_path: Path) -> None:
    results = made(tmp_path, crossing(3), processes=3)
    assert " from n ≈ 1" in sentences(results)[0]
    assert "±" in str(results)
    assert "~" not in str(results)


def test_the_sentence_says_where_the_gpu_is_faster(compared: Results) -> None:
    found = "a @ b, float32: Synthetic H is faster than Synthetic, 2 threads from n between 64 and 256."
    assert sentences(compared)[0] == found
    assert "Timed in one process" not in str(compared)  # ~ says it


def test_one_size_is_a_ratio_with_its_range(tmp_path: Path) -> None:
    for cpu_s, gpu_s, said in ((9.8e-3, 1e-3, "9.8× (9.4× to 10×) as"), (1e-3, 9.8e-3, "9.8× slower (9.4× to 10×)")):
        assert said in sentences(made(tmp_path, [mark(64, cpu_s), on_gpu(64, gpu_s)]))[0]


def test_expressions_are_compared_with_the_first_and_drawn_side_by_side(tmp_path: Path) -> None:
    marks = [mark(n, 1e-3, text="a @ b") for n in SIZES] + [mark(n, 5e-4, text="a.mm(b)") for n in SIZES]
    results = made(tmp_path, marks)
    assert results.speedup == 2.0
    assert "a.mm(b) is 2.0× (1.9× to 2.1×) as fast as a @ b." in sentences(results)[0]
    rows = [line for line in str(results).splitlines() if "n=64 " in line]
    assert ["a @ b" in row for row in rows] == [True, False]
    (same, *_) = sentences(made(tmp_path, [mark(64, 1e-3), mark(64, 1.001e-3, text="c")]))
    assert "as fast, within the spread" in same
    marks += [on_gpu(n, 1e-4, text="a @ b") for n in SIZES] + [on_gpu(n, 2e-4, text="a.mm(b)") for n in SIZES]
    picture = made(tmp_path, marks).chart()._repr_svg_()
    assert not [each for each in ("500 µs", "200 µs", "Synthetic H", "a @ b", "a.mm(b)") if each not in picture]


def test_functions_of_a_file_are_no_rivals_as_expressions_are(tmp_path: Path) -> None:
    cases = [Case(f"mine.{name}", "cpu", "float32", {"n": 8}, size="n", devices=("cpu",)) for name in ("a", "b")]
    assert made(tmp_path, [records.benchmark(case, 1.0) for case in cases]).speedup is None


@pytest.mark.parametrize(
    ("device_s", "told"),
    [
        ((1e-6, 2e-6, 9e-5), ["up to n=256", "2.00 µs", "100 µs"]),
        ((1e-6, 2e-6, 3e-6), ["at every size", "3.00 µs", "100 µs"]),
        ((2e-6,), ["2.00 µs", "100 µs"]),
        ((4e-5, 5e-5, 9e-5), None),
        ((None, None, None), None),
    ],
)
def test_launches_that_take_longer_than_their_work_are_named(tmp_path: Path, device_s, told) -> None:
    marks = [on_gpu(n, 1e-4, device_s=seconds, launch_s=2e-5) for n, seconds in zip(SIZES, device_s, strict=False)]
    lines = [line for line in sentences(made(tmp_path, marks)) if "launch-bound" in line]
    assert len(lines) == (told is not None)
    assert all(words in lines[0] for words in told or [])
    assert not lines or (("size" in lines[0] or "up to" in lines[0]) == (len(device_s) > 1))


def test_libraries_are_named_with_the_gpu_they_ran_on_and_numpy_is_the_baseline_without_one(tmp_path: Path) -> None:
    results = made(tmp_path, [mark(64, 1e-3), mark(64, 4e-3, implementation="numpy")])
    assert results.speedup == 4.0
    assert "4.0× (3.8× to 4.2×) as fast as NumPy" in sentences(results)[0]
    marks = [mark(64, 1e-3), mark(64, 4e-3, implementation="tinygrad"), mark(64, 2e-3, implementation="numpy")]
    marks.append(mark(64, 1e-4, device="cuda:0", implementation="mlx"))
    text = str(made(tmp_path, marks))
    assert not [name for name in ("NumPy", "tinygrad", "H · mlx") if name not in text], text


def test_failures_doubts_and_unverified_results_are_named(tmp_path: Path) -> None:
    marks = [mark(64, 1e-3, flags=("noisy",), check={"status": "unchecked", "reason": "because"})]
    failed = [records.unmeasured(Case("time.a @ b", "cpu", "float32", {"n": n}), "oom", "no room") for n in (8, 9)]
    text = str(made(tmp_path, marks, failed))
    for words in ("1.0 ms*", "synthetic noisy", "because", "No GPU was measured"):
        assert words in text
    (line,) = (line for line in text.splitlines() if "oom" in line)
    assert all(words in line for words in ("a @ b", "n=8", "n=9", "cpu", "no room"))


def test_nothing_measured_and_many_results(tmp_path: Path) -> None:
    failed = [records.unmeasured(Case("time.f()", "cpu", "float32"), "error", "NameError: f")]
    assert "NameError: f" in str(made(tmp_path, [], failed))
    for name in ("a", "b"):
        reading.run_of(tmp_path, records.gpu_run(), name)
    both = Results.load(tmp_path / "a.json", tmp_path / "b.json", tmp_path / "a.json")
    assert len(both.runs) == 1  # copies of one
    assert "faster in " in str(both)
    assert len(str(both).splitlines()) < 34
    with pytest.raises(
        UsageError, match=r"choose one with load\(…, k='elementwise.add float32, allocating, n=10⁷'\): "
    ):
        print(both.speedup)
    assert len(Results.load(tmp_path / "a.json", k="matmul.square and n=64").df) < len(both.df)


def test_html_has_the_same_text_and_no_markup_of_others(compared: Results, tmp_path: Path) -> None:
    assert str(compared) in compared._repr_html_()
    assert "a &lt;b&gt;" in made(tmp_path, [mark(8, 1.0), mark(8, 2.0, text="a <b> c")])._repr_html_()


def test_the_first_call_has_a_line_where_it_took_much_longer_than_the_others(tmp_path: Path) -> None:
    marks = [mark(64, 1e-3, first_call_s=0.5), mark(256, 1e-3, first_call_s=0.02), on_gpu(64, 1e-3, first_call_s=9e-3)]
    (line,) = (line for line in sentences(made(tmp_path, marks)) if "first call" in line)
    assert all(words in line for words in ("n=64", "500 ms", "500×"))
    assert "first call" not in str(made(tmp_path, [mark(64, 1e-6, first_call_s=9e-4)]))  # nothing that anybody notices


def test_charts_are_those_of_the_command(compared: Results, tmp_path: Path) -> None:
    picture = compared.chart()
    assert repr(picture).startswith("<Picture: a @ b")
    svg = picture._repr_svg_()
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    compared.chart("time").save(tmp_path / "time.svg")
    assert (tmp_path / "time.svg").read_text().partition("<svg")[2] == compared.chart("time")._repr_svg_()[4:]
    compared.chart("time").save(tmp_path / "dark.svg", theme="dark")
    assert "#0d1117" in (tmp_path / "dark.svg").read_text()
    with pytest.raises(UsageError, match="unknown theme 'night': choose light or dark"):
        picture.save(tmp_path / "night.svg", theme="night")
    with pytest.raises(UsageError, match=r"ends in .svg or .png"):
        picture.save(tmp_path / "speedup.pdf")
    with pytest.raises(UsageError, match="no picture"):
        made(tmp_path, [mark(64, 1e-3)]).chart()


def test_where_a_busy_machine_timed_one_process_no_size_is_named(tmp_path: Path) -> None:
    sides = [mark(n, n**3 / 1e9, flags=("contended",)) for n in SIZES] + [on_gpu(n, 1e-3) for n in SIZES]
    assert "too noisy to say" in sentences(made(tmp_path, sides))[0]


def test_a_parameter_called_dtype_tells_rows_apart(tmp_path: Path) -> None:
    cases = [Case("a.s", "cpu", "", {"dtype": name, "n": 8}, size="n", devices=("cpu",)) for name in ("int8", "int32")]
    shown = str(made(tmp_path, [records.benchmark(case, 1.0) for case in cases]))
    assert "int8" in shown
    assert "int32" in shown
