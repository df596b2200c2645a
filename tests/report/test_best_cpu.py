"""The speedup that an honest opponent would grant: over the fastest way that the CPU was measured to do the job."""

import pytest
from reading import speedups, study_of
from records import run

from gpubench.report import words
from gpubench.report.answer import Answer
from gpubench.report.charts.headline_chart import headline_figures
from gpubench.report.charts.speedup_chart import speedup_figures
from gpubench.report.tables import answer_tables
from gpubench.report.webpage import numbers_table


def test_everything_that_people_read_uses_the_library_that_is_twice_as_fast():
    """2.5× of PyTorch over PyTorch is 1.2× over the CPU's fastest way."""
    one = run()
    for name in ("sort", "scan", "pick"):
        times = {"cpu": lambda n: 17e-3 * n, "numpy": lambda n: 8.16e-3 * n, "gpu": lambda n: 6.8e-3 * n}
        one.bench(f"a.{name}", **times, n=(1, 2, 4), kind="irregular")
    study = study_of(one)
    answer = Answer(study)
    assert "faster in 3 of 3 benchmarks (1.2×" in answer.sentence
    (table,), (screen,) = answer_tables(answer), answer_tables(answer, 15)
    assert "32.6 ms by NumPy" in table.rows[0]
    assert {"1.2×", "32.6 ms‡"} <= {*screen.rows[0]}
    assert screen.note.endswith("‡ the CPU's fastest way: NumPy.")
    named = [{name: row[name] for name in ("speedup", "baseline_way")} for row in speedups(study)]
    assert named == [{"speedup": pytest.approx(1.2), "baseline_way": "NumPy"}] * 9
    (headline,) = headline_figures(study)
    drawn = [(each.value, each.words) for row in headline.chart.entries for each in row.marks]
    assert drawn == [(pytest.approx(1.2), "1.2×‡")] * 3
    by_size = next(figure for figure in speedup_figures(study) if figure.kind == "speedup")
    points = [point for panel in by_size.chart.panels for point in panel.curves[0].points]
    assert [point.y for point in points] == pytest.approx([1.2] * len(points))
    for figure in (headline, by_size):
        assert "ver the CPU's fastest way, where that is another: NumPy." in figure.caption
    ratios = {row[3].value for row in numbers_table(study).cells}
    assert [*ratios - {None}] == pytest.approx([1.2])


def pair_of(way, **base):
    """A GPU of 1 s against a CPU of 8 s that can also do it in the way given, in 4 s."""
    same = {name: base[name] for name in ("kind", "dtype", "variant") if name in base}
    usual = {"workload": "a.b", "cpu": 4.0, "n": 64, "kind": "irregular"} | same
    one = run().bench("a.b", cpu=8.0, gpu=1.0, n=64, **{"kind": "irregular"} | base).bench(**usual | way)
    (pair,) = study_of(one).device_pairs
    return pair


@pytest.mark.parametrize(
    ("way", "base", "told"),
    [
        ({"by": "numpy"}, {}, "NumPy"),
        ({"by": "numpy", "threads": 1}, {"threads": 2}, "NumPy"),
        ({"variant": "compile"}, {}, "PyTorch, compiled"),
        ({"form": "out"}, {}, "PyTorch, out"),
        ({"workload": "a.b_channels_last"}, {}, "PyTorch, channels last"),
        ({"dtype": "float32"}, {"dtype": "float16"}, "PyTorch, float32"),
        ({"variant": "eager"}, {"variant": "autocast"}, "PyTorch, eager"),
        ({"by": "numpy", "flags": ("noisy",)}, {}, "NumPy"),
    ],
)
def test_a_faster_way_of_the_cpu_counts(way, base, told):
    pair = pair_of(way, **base)
    assert (pair.speedup, words.way(pair)) == (4.0, told)
    assert pair.base.time_s == 8.0
    assert pair.quality.noisy == bool(way.get("flags"))  # its star stands beside the speedup


@pytest.mark.parametrize(
    ("way", "base"),
    [
        ({"by": "numpy", "flags": ("waiting",)}, {}),
        ({"by": "numpy", "flags": ("implausible",)}, {}),
        ({"by": "numpy", "cpu": (0.4, 4.0, 40.0)}, {}),
        ({"by": "numpy", "cpu": 7.9, "spread": 0.001}, {"spread": 0.001}),
        ({"by": "numpy", "check": {"status": "unchecked"}}, {}),
        ({"variant": "autocast"}, {}),
        ({"dtype": "bfloat16"}, {}),
        ({"dtype": "float64"}, {}),
        ({"by": "numpy", "n": 65}, {}),
        ({"form": "inplace"}, {}),
        ({"form": "sparse"}, {"kind": ""}),
        ({}, {}),
    ],
    ids=["waited", "implausible", "too noisy", "1% faster", "unverified", "less exact", "bfloat16", "float64", "size",
         "over its input", "own parameter", "the same again"],
)  # fmt: skip
def test_what_is_in_doubt_or_does_another_job_counts_for_nothing(way, base):
    pair = pair_of(way, **base)
    assert (pair.speedup, pair.fastest_way, words.way(pair)) == (8.0, None, "")


def test_a_way_whose_slowest_process_beats_the_fastest_of_the_other_is_faster():
    """Times of a busy machine, so far apart that the interval of their ratio holds 1."""
    one = run().bench("a.b", cpu=(5.0, 8.0, 80.0), gpu=(1.0, 1.0, 1.0), numpy=(0.4, 4.0, 4.9))
    (pair,) = study_of(one).device_pairs
    assert (pair.speedup, words.way(pair)) == (4.0, "NumPy")


@pytest.mark.parametrize(("baseline", "best"), [("cpu", "NumPy"), ("numpy", "")])
def test_a_baseline_that_was_asked_for_is_the_way(baseline, best):
    study = study_of(run().bench("a.b", cpu=8.0, gpu=1.0, numpy=4.0), baseline=baseline)
    (pair,) = (pair for pair in study.device_pairs if pair.other.on_accelerator)
    assert (pair.speedup, words.way(pair)) == (4.0, best)


def test_a_cpu_beside_several_gpus_is_shown_at_its_fastest_too():
    runs = [run(name).bench("a.b", cpu=8.0, gpu=1.0, numpy=4.0) for name in ("one", "two")]
    pairs = study_of(*runs, baseline="Synthetic H-GPU").device_pairs
    own = [(pair.speedup, words.way(pair)) for pair in pairs if not pair.other.library and pair.within_run]
    assert own == [(0.25, "NumPy")] * 2


def test_what_is_faster_than_the_cpu_can_be_counts_for_nothing():
    """Seen by the report alone, as the file has no flag: of 10 FLOP/s the library would have done 25."""
    peaks = {"cpu": {"throughput": {"float32": 10.0}}}
    (pair,) = study_of(run(ceilings=peaks).bench("a.b", cpu=20.0, gpu=1.0, numpy=4.0, flops=100.0)).device_pairs
    assert (pair.speedup, pair.fastest_way) == (20.0, None)
