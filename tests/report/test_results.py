"""Results for scripts and notebooks: frames, one number, plots, text and HTML."""

import json
import math
from functools import partial

import pytest
import records

import gpubench
from gpubench.errors import UsageError
from gpubench.report.answer import Answer
from gpubench.report.results import MOST_LINES, Results
from gpubench.report.tables import answer_tables

SIZES = (64, 256, 1024)
COPIES = {"in_bytes": 32768, "out_bytes": 16384, "in_s": 1e-3, "out_s": 1e-3, "in_pinned_s": None, "out_pinned_s": None}


class Timed(records.Made):
    """A file of ``gpubench time``: expressions at sizes."""

    def time(self, text="a @ b", n=64, **how):
        transfer = {"transfer": COPIES} if "gpu" in how else {}
        return self.bench(f"time.{text}", n=n, flops=1e9, **transfer | how)


def run(cuda=0, processes=1):
    return Timed(records.run(cuda=cuda, processes=processes).data, "run", processes)


def made(one):
    return Results([one.read()])


def sentences(one):
    """The lines below the screen's table."""
    return str(made(one)).rpartition("\n\n")[2].splitlines()


def crossing(processes=1):
    """The GPU is slower at 64, and 32 times as fast at 1024."""
    return run(1, processes).time(n=SIZES, cpu=lambda n: n**3 / 1e9).time(n=SIZES, gpu=lambda n: 1e-3 + n**3 / 1e12)


@pytest.fixture
def compared():
    return made(crossing())


def test_frames_hold_what_the_files_hold(compared):
    assert compared.df["time_s"].dtype == float
    assert list(compared.df["device"]) == ["cpu"] * 3 + ["cuda:0"] * 3
    assert list(compared.speedups["speedup"]) == pytest.approx([n**3 / 1e9 / (1e-3 + n**3 / 1e12) for n in SIZES])
    last = compared.speedups.iloc[-1]
    ratio = compared.speedup
    assert (ratio, ratio.low, ratio.high) == (last["speedup"], last["low"], last["high"])


def test_the_screen_has_a_row_for_each_size_and_says_from_where_the_gpu_is_faster(compared):
    lines = str(compared).splitlines()
    (header,) = (line for line in lines if "speedup" in line and "with copies" in line)
    assert header.split()[0] == "CPU"
    cells = {line.split()[0]: line for line in lines if line.startswith("n=")}
    assert list(cells) == [f"n={n}" for n in SIZES]
    assert "3.8× slower" in cells["n=64"]
    assert "1.07 s ~2%" in cells["n=1024"]  # of one process no interval
    assert "a @ b, float32: Synthetic H is faster than Synthetic, 2 threads from n between 64 and 256." in lines
    assert "Timed in one process" not in str(compared)  # ~ says it


def test_several_processes_give_an_interval_and_a_crossover():
    assert " from n ≈ 1" in sentences(crossing(3))[0]
    assert "±" in str(made(crossing(3)))
    assert "~" not in str(made(crossing(3)))


@pytest.mark.parametrize(
    ("cpu", "gpu", "said"),
    [("9.8 ms", "1 ms", "9.8× (9.4× to 10×) as"), ("1 ms", "9.8 ms", "9.8× slower (9.4× to 10×)")],
)
def test_one_size_is_a_ratio_with_its_range(cpu, gpu, said):
    assert said in sentences(run(1).time(cpu=cpu, gpu=gpu))[0]


def test_expressions_are_compared_with_the_first_and_drawn_side_by_side():
    one = run().time(n=SIZES, cpu="1 ms").time("a.mm(b)", n=SIZES, cpu="0.5 ms")
    assert made(one).speedup == 2.0
    assert "a.mm(b) is 2.0× (1.9× to 2.1×) as fast as a @ b." in sentences(one)[0]
    rows = [line for line in str(made(one)).splitlines() if "n=64 " in line]
    assert ["a @ b" in row for row in rows] == [True, False]
    alike = sentences(run().time(cpu="1 ms").time("c", cpu="1.001 ms"))[0]
    assert alike.endswith(": c can't be told apart here (1.0×) from a @ b.")
    noisy = sentences(run(processes=3).time(cpu=(1e-4, 1e-3, 1e-2)).time("c", cpu=(1e-4, 1e-3, 1e-2)))[0]
    assert noisy.endswith(": c is too noisy to compare with a @ b.")
    both = run(1).time(n=SIZES, cpu="1 ms", gpu="0.1 ms").time("a.mm(b)", n=SIZES, cpu="0.5 ms", gpu="0.2 ms")
    picture = made(both).chart()._repr_svg_()
    assert not [each for each in ("500 µs", "200 µs", "Synthetic H", "a @ b", "a.mm(b)") if each not in picture]


def test_functions_of_a_file_are_no_rivals_as_expressions_are():
    assert made(run().bench("mine.a", cpu=1.0).bench("mine.b", cpu=1.0)).speedup is None


def test_libraries_are_named_with_the_gpu_they_ran_on_and_numpy_is_the_baseline_without_one():
    one = run().time(cpu="1 ms", numpy="4 ms")
    assert made(one).speedup == 4.0
    assert "4.0× (3.8× to 4.2×) as fast as NumPy" in sentences(one)[0]
    several = run(1).time(cpu="1 ms", numpy="2 ms").time(cpu="4 ms", by="tinygrad").time(gpu="0.1 ms", by="mlx")
    text = str(made(several))
    assert not [name for name in ("NumPy", "tinygrad", "H · mlx") if name not in text], text


def test_failures_doubts_and_unverified_results_are_named():
    one = run().time(cpu="1 ms", flags=("noisy",), check={"status": "unchecked", "reason": "because"})
    text = str(made(one.skip("time.a @ b", "oom", "no room", n=8).skip("time.a @ b", "oom", "no room", n=9)))
    for words in ("1.0 ms*", "synthetic noisy", "because", "No GPU was measured"):
        assert words in text
    (line,) = (line for line in text.splitlines() if "oom" in line)
    assert all(words in line for words in ("a @ b", "n=8", "n=9", "cpu", "no room"))


def test_nothing_measured_and_many_results(tmp_path):
    assert "NameError: f" in str(made(run().skip("time.f()", "error", "NameError: f")))
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(records.gpu_run()))
    both = Results.load(tmp_path / "a.json", tmp_path / "b.json", tmp_path / "a.json")
    assert len(both.runs) == 1  # copies of one
    assert "faster in " in str(both)
    assert len(str(both).splitlines()) <= MOST_LINES
    choose = r"choose one with load\(…, k='elementwise.add float32, allocating, n=10⁷'\): "
    with pytest.raises(UsageError, match=choose):
        print(both.speedup)
    assert len(Results.load(tmp_path / "a.json", k="matmul.square and n=64").df) < len(both.df)


def test_html_has_the_same_text_and_no_markup_of_others(compared):
    assert str(compared) in compared._repr_html_()
    assert "a &lt;b&gt;" in made(run().time(cpu=1.0).time("a <b> c", cpu=2.0))._repr_html_()


def test_the_first_call_has_a_line_where_it_took_much_longer_than_the_others():
    one = run(1).time(cpu="1 ms", first_call_s=0.5).time(n=256, cpu="1 ms", first_call_s=0.02)
    (line,) = (line for line in sentences(one.time(gpu="1 ms", first_call_s=9e-3)) if "first call" in line)
    assert all(words in line for words in ("n=64", "500 ms", "500×"))
    assert "first call" not in str(made(run().time(cpu="0.001 ms", first_call_s=9e-4)))  # nothing that anybody notices


def test_charts_are_those_of_the_command(compared, tmp_path):
    picture, time = compared.chart(), compared.chart("time")
    assert repr(picture).startswith("<Picture: a @ b")
    svg = picture._repr_svg_()
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    time.save(tmp_path / "time.svg")
    assert (tmp_path / "time.svg").read_text().partition("<svg")[2] == time._repr_svg_()[4:]
    time.save(tmp_path / "dark.svg", theme="dark")
    assert "#0d1117" in (tmp_path / "dark.svg").read_text()
    for refused, message in (
        (partial(picture.save, tmp_path / "night.svg", theme="night"), "unknown theme 'night': choose light or dark"),
        (partial(picture.save, tmp_path / "speedup.pdf"), r"ends in .svg or .png"),
        (made(run().skip("time.f()", "error", "NameError: f")).chart, "no picture: .* no benchmark has a time"),
        (partial(compared.chart, "estimate"), "gpubench chart RUN --kind estimate"),
    ):
        with pytest.raises(UsageError, match=message):
            refused()


def test_where_there_are_no_lines_to_draw_a_report_s_first_picture_is_drawn(compared):
    assert repr(made(run(1).time(cpu="1 ms", gpu="0.1 ms")).chart()).startswith("<Picture: Speedup of Synthetic H")
    many = crossing().bench("mine.work", cpu="1 ms", gpu="0.1 ms")
    assert repr(made(many).chart()) == repr(made(many).chart("headline")) != repr(compared.chart())


def test_a_printed_speedup_is_what_a_table_shows():
    one = Timed(records.run(gpu={"simulated": True}, processes=1).data, "run", 1)
    ratio = made(one.time(cpu="1 ms", gpu="0.1 ms", flags=("noisy",))).speedup
    assert (f"{ratio}", str(ratio), f"{ratio:.1f}", ratio * 1) == ("10×* (simulated)",) * 2 + ("10.0", float(ratio))
    assert str(made(run().time(cpu="1 ms").time("c", cpu="0.5 ms")).speedup) == "2.0×"


def test_a_speedup_is_one_number_in_the_table_the_file_and_the_api(tmp_path):
    """Over the CPU's fastest way, which is NumPy; of a wide interval the limit."""
    for name, cpu in (("sound", (8.0, 8.0, 8.0)), ("wide", (2.0, 8.0, 60.0)), ("open", (0.1, 4.0, 90.0))):
        one = records.run().bench("a.b", cpu=(200.0,) * 3, gpu=(1.0, 1.0, 1.0), numpy=cpu)
        one.save(tmp_path / name / "run.json")
        result = gpubench.load(tmp_path / name)
        (row,) = result.speedups.to_dict("records")
        (table,) = answer_tables(Answer(result.study), 15)
        assert str(result.speedup) == row["shown"] == dict(zip(table.columns, table.rows[0], strict=True))["speedup"]
        in_file = [math.nan if row[name] is None else row[name] for name in ("speedup", "low", "high")]
        speedup = result.speedup
        assert [float(speedup), speedup.low, speedup.high] == pytest.approx(in_file, nan_ok=True)


def test_the_size_from_which_a_gpu_is_faster_has_the_star_of_a_busy_machine():
    one = run(1).time(n=SIZES, cpu=lambda n: n**3 / 1e9, flags=("contended",)).time(n=SIZES, gpu="1 ms")
    assert sentences(one)[0].endswith("is faster than Synthetic, 2 threads from n between 64 and 256*.")


def test_a_parameter_called_dtype_tells_rows_apart():
    one = run()
    for name in ("int8", "int32"):
        one.bench("a.s", cpu=1.0, dtype="", params={"dtype": name, "n": 8}, size="n")
    screen = str(made(one))
    assert "int8" in screen
    assert "int32" in screen
