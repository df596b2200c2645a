"""Results for scripts and notebooks: frames, one number, plots, text and HTML."""

import json

import pytest
import records
from matplotlib.figure import Figure

from gpubench.errors import UsageError
from gpubench.report.results import Results
from gpubench.runfile.schema import Case

SIZES = (64, 256, 1024)


def made(tmp_path, marks, unmeasured=None, **how):
    devices = (records.CPU, records.GPU) if any("cuda" in str(mark) for mark in marks) else (records.CPU,)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.run_file(marks, unmeasured, devices=devices, **how)))
    return Results.load(path)


def mark(n, seconds, device="cpu", text="a @ b", processes=1, **how):
    case = Case(
        f"time.{text}", device, "float32", {"n": n}, how.pop("implementation", "torch"), size="n", devices=(device,)
    )
    medians = tuple(seconds * (1 + 0.01 * i) for i in range(processes))
    return records.benchmark(case, seconds, medians=medians, work={"flops": 2.0 * n**3}, **how)


def on_gpu(n, seconds, **how):
    copies = {"in_bytes": 8 * n * n, "out_bytes": 4 * n * n, "in_s": 1e-3, "out_s": 1e-3}
    return mark(n, seconds, "cuda:0", transfer={**copies, "in_pinned_s": None, "out_pinned_s": None}, **how)


@pytest.fixture
def compared(tmp_path):
    """The GPU is slower at 64, and 32 times as fast at 1024."""
    marks = [mark(n, n**3 / 1e9) for n in SIZES] + [on_gpu(n, 1e-3 + n**3 / 1e12) for n in SIZES]
    return made(tmp_path, marks)


def test_frames_hold_what_the_files_hold(compared):
    assert [column for column in compared.df if column.startswith("_")] == []
    assert compared.df["time_s"].dtype == float
    assert list(compared.df["device"]) == ["cpu"] * 3 + ["cuda:0"] * 3
    assert list(compared.speedups["speedup"]) == pytest.approx([n**3 / 1e9 / (1e-3 + n**3 / 1e12) for n in SIZES])
    assert compared.speedup == compared.speedups["speedup"].iloc[-1]
    assert list(compared.machines["device_name"]) == ["Synthetic CPU", "Synthetic H-GPU"]


def test_the_screen_has_a_row_for_each_size_and_the_answer_in_a_sentence(compared):
    text = str(compared)
    lines = [line.strip() for line in text.splitlines()]
    (header,) = (line for line in lines if line.startswith("CPU "))
    assert header.split("  ")[0] == "CPU"
    assert "speedup" in header
    assert "with copies" in header
    rows = {line.split()[0]: line for line in lines if line.startswith("n=")}
    assert list(rows) == [f"n={n}" for n in SIZES]
    assert "3.8× slower" in rows["n=64"]
    assert "1.07 s ±2%" in rows["n=1024"]
    assert "a @ b, float32: Synthetic H is faster than the CPU from n between 64 and 256." in text
    assert "± is half the interquartile range of one process" in text


def test_several_processes_give_an_interval_and_a_place(tmp_path):
    marks = [mark(n, n**3 / 1e9, processes=3) for n in SIZES] + [
        on_gpu(n, 1e-3 + n**3 / 1e12, processes=3) for n in SIZES
    ]
    text = str(made(tmp_path, marks, processes=3))
    assert "is faster than the CPU from n ≈ 1" in text
    assert "± is half the 95% confidence interval." in text


@pytest.mark.parametrize(
    ("gpu_s", "sentence"),
    [
        (lambda n: n**3 / 1e12, "Synthetic H is faster than the CPU at every size measured."),
        (lambda n: 10.0, "Synthetic H is not faster than the CPU up to n = 1024."),
        (lambda n: 1e-4 if n == 64 else 10.0, "Synthetic H is faster than the CPU only up to n = 64."),
    ],
)
def test_the_sentence_says_where_the_gpu_is_faster(tmp_path, gpu_s, sentence):
    marks = [mark(n, n**3 / 1e9) for n in SIZES] + [on_gpu(n, gpu_s(n)) for n in SIZES]
    assert f"a @ b, float32: {sentence}" in str(made(tmp_path, marks))


def test_one_size_is_a_ratio(tmp_path):
    assert "a @ b, float32: Synthetic H is 9.8× (9.4× to 10×) as fast as the CPU." in str(
        made(tmp_path, [mark(64, 9.8e-3), on_gpu(64, 1e-3)])
    )
    assert "is 9.8× (9.4× to 10×) slower" not in str(made(tmp_path, [mark(64, 1e-3), on_gpu(64, 9.8e-3)]))
    assert "Synthetic H is 9.8× slower (10× to 9.4×) than the CPU." in str(
        made(tmp_path, [mark(64, 1e-3), on_gpu(64, 9.8e-3)])
    ) or "Synthetic H is 9.8× slower (9.4× to 10×) than the CPU." in str(
        made(tmp_path, [mark(64, 1e-3), on_gpu(64, 9.8e-3)])
    )


def test_expressions_are_compared_with_the_first(tmp_path):
    marks = [mark(n, 1e-3, text="a @ b") for n in SIZES] + [mark(n, 5e-4, text="a.mm(b)") for n in SIZES]
    results = made(tmp_path, marks)
    assert results.speedup == 2.0
    text = str(results)
    assert "On the CPU, n=1024: a.mm(b) is 2.0× (1.9× to 2.1×) as fast as a @ b." in text
    assert [line.split("  ")[1] for line in text.splitlines() if "n=64 " in line] == ["a @ b", "a.mm(b)"]
    same = made(tmp_path, [mark(64, 1e-3), mark(64, 1.001e-3, text="c")])
    assert "On the CPU, n=64: c is as fast, within the spread" in str(same)


LAUNCH_BOUND = "a @ b, float32: launch-bound on Synthetic H"


def launched(n, seconds, device_s, launch_s, **how):
    return on_gpu(n, seconds, device_s=device_s, launch_s=launch_s, **how)


@pytest.mark.parametrize(
    ("device_s", "sentence"),
    [
        ((1e-6, 2e-6, 9e-5), " up to n=256 (the GPU works 2.00 µs of a call's 100 µs)."),
        ((1e-6, 2e-6, 3e-6), " at every size (the GPU works 3.00 µs of a call's 100 µs)."),
        ((4e-5, 5e-5, 9e-5), None),
        ((None, None, None), None),
    ],
)
def test_launches_that_take_longer_than_their_work_are_named(tmp_path, device_s, sentence):
    marks = [launched(n, 1e-4, seconds, 2e-5) for n, seconds in zip(SIZES, device_s, strict=True)]
    lines = str(made(tmp_path, marks)).splitlines()
    assert [line for line in lines if "launch-bound" in line] == ([f"{LAUNCH_BOUND}{sentence}"] if sentence else [])


def test_a_call_of_one_size_is_launch_bound_or_not(tmp_path):
    text = str(made(tmp_path, [launched(64, 1e-4, 2e-6, 2e-5)]))
    assert f"{LAUNCH_BOUND} (the GPU works 2.00 µs of a call's 100 µs)." in text


def test_numpy_is_the_baseline_where_there_is_no_gpu(tmp_path):
    results = made(tmp_path, [mark(64, 1e-3), mark(64, 4e-3, implementation="numpy")])
    assert results.speedup == 4.0
    assert "PyTorch is 4.0× (3.8× to 4.2×) as fast as NumPy." in str(results)


def test_failures_doubts_and_unverified_results_are_named(tmp_path):
    marks = [mark(64, 1e-3, flags=("noisy",), check={"status": "unchecked", "reason": "because"})]
    failed = [records.unmeasured(Case("time.a @ b", "cpu", "float32", {"n": n}), "oom", "no room") for n in (8, 9)]
    text = str(made(tmp_path, marks, failed))
    assert "1.00 ms*" in text
    assert "* noisy: synthetic noisy" in text
    assert "Not verified: because." in text
    assert "a @ b, n=8; n=9 on cpu: oom: no room" in text
    assert "No GPU was measured" in text


def test_nothing_measured_and_many_runs(tmp_path):
    failed = [records.unmeasured(Case("time.f()", "cpu", "float32"), "error", "NameError: f")]
    assert "f() on cpu: error: NameError: f" in str(made(tmp_path, [], failed))
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(records.gpu_run()))
    both = Results.load(tmp_path / "a.json", tmp_path / "b.json", tmp_path / "a.json")
    assert len(both.runs) == 1  # copies of one
    text = str(Results.load(tmp_path / "a.json"))
    assert "see .df, .speedups, .machines and .plot()" in text
    assert "× on matrix products" in text


def test_html_has_the_same_cells_and_no_markup_of_others(compared, tmp_path):
    html = compared._repr_html_()
    assert html.count("<tr>") == 4
    assert "is faster than the CPU from n between 64 and 256" in html
    assert "a &lt;b&gt;" in made(tmp_path, [mark(8, 1.0), mark(8, 2.0, text="a <b> c")])._repr_html_()


def test_plots(compared, tmp_path):
    for kind, label in ((None, "speedup"), ("time", "time per call (s)"), ("rate", "FLOP/s")):
        axes = compared.plot(kind, ax=Figure().subplots())
        assert (axes.get_xscale(), axes.get_ylabel(), axes.get_xlabel()) == ("log", label, "n")
    assert len(axes.containers) == 2
    x, y = compared.plot(ax=Figure().subplots()).containers[0].lines[0].get_data()
    assert list(x) == list(SIZES)
    assert list(y) == pytest.approx(list(compared.speedups["speedup"]))
    with pytest.raises(UsageError, match="unknown kind of plot 'pie': choose from speedup, time, rate"):
        compared.plot("pie")
    with pytest.raises(UsageError, match="no time over a size: that needs several sizes"):
        made(tmp_path, [mark(64, 1e-3)]).plot()


def test_the_first_call_has_a_line_where_it_took_much_longer_than_the_others(tmp_path):
    marks = [mark(64, 1e-3, first_call_s=0.5), mark(256, 1e-3, first_call_s=0.02), on_gpu(64, 1e-3, first_call_s=9e-3)]
    text = str(made(tmp_path, marks))
    assert "n=64: the first call took 500 ms, 500× a later one (CPU)." in text
    assert text.count("first call") == 1
    assert "first call" not in str(made(tmp_path, [mark(64, 1e-6, first_call_s=9e-4)]))  # nothing that anybody notices


def picture(results, kind=None):
    """Its title and its text as SVG."""
    made_picture = results.chart(kind)
    return repr(made_picture), made_picture._repr_svg_()


def test_charts_are_those_of_the_command(compared, tmp_path):
    title, svg = picture(compared)
    assert title.startswith("<Picture: a @ b: the Synthetic H wins from between n = 64 and 256")
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    compared.chart("time").save(tmp_path / "time.svg")
    assert (tmp_path / "time.svg").read_text().partition("<svg")[2] == picture(compared, "time")[1][4:]
    compared.chart().save(tmp_path / "speedup.png")
    assert (tmp_path / "speedup.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"a picture's name ends in .svg or .png"):
        compared.chart().save(tmp_path / "speedup.pdf")
    with pytest.raises(UsageError, match="no picture: it takes three values over a size"):
        made(tmp_path, [mark(64, 1e-3)]).chart()


def test_the_chart_of_several_expressions_holds_them_side_by_side(tmp_path):
    marks = [mark(n, 1e-3, text="a @ b") for n in SIZES] + [mark(n, 5e-4, text="a.mm(b)") for n in SIZES]
    marks += [on_gpu(n, 1e-4, text="a @ b") for n in SIZES] + [on_gpu(n, 2e-4, text="a.mm(b)") for n in SIZES]
    title, svg = picture(made(tmp_path, marks))
    words = "2.0× as fast on the Synthetic, 2.0× slower on the Synthetic H at n = 1024"
    assert title == f"<Picture: a.mm(b) against a @ b: {words}>"
    for shown in ("500 µs", "200 µs", "Synthetic CPU", "Synthetic H", "a @ b", "a.mm(b)"):
        assert f">{shown}" in svg, shown
    third = made(tmp_path, [*marks, *(mark(n, 3e-3, text="c") for n in SIZES)])
    assert picture(third)[0] == "<Picture: Expressions>"


def test_the_chart_of_first_calls(tmp_path):
    marks = [mark(n, 1e-3, first_call_s=2e-3) for n in SIZES] + [on_gpu(n, 1e-4, first_call_s=0.02) for n in SIZES]
    title, svg = picture(made(tmp_path, marks), "first-call")
    assert title == "<Picture: a @ b: the first call takes 20 ms on the Synthetic H, 200× a later one, at n = 1024>"
    assert svg.count(" first call<") == 2
    assert svg.count("stroke-dasharray") == 3  # two lines and the legend
    with pytest.raises(UsageError, match="no first-call picture can be made of these results"):
        made(tmp_path, [mark(n, 1e-3) for n in SIZES]).chart("first-call")


def test_other_libraries_are_named_with_the_gpu_they_ran_on(tmp_path):
    marks = [mark(64, 1e-3), mark(64, 4e-3, implementation="jax"), mark(64, 2e-3, implementation="numpy")]
    marks.append(mark(64, 1e-4, device="cuda:0", implementation="cupy"))
    text = str(made(tmp_path, marks))
    assert not [name for name in ("NumPy", "JAX", "H · CuPy") if name not in text], text
