"""The sentence, the rows and the warnings, from hand-made records."""

import pytest
import reading
from reading import answered, ratios, rows, study_of
from records import run

from gpubench.compare.comparison import compare_sides
from gpubench.compare.evidence import Terms
from gpubench.compare.samples import Side, add_runs
from gpubench.report.answer import Answer
from gpubench.report.charts.headline_chart import headline_figures
from gpubench.report.charts.pictures import plan
from gpubench.report.number import MISSING, Sign
from gpubench.report.results import findings
from gpubench.report.tables import answer_tables, beside_each_other, machine_table, results_table
from gpubench.report.webpage import numbers_table
from gpubench.runfile.matching import KINDS

MATMUL = KINDS["matmul"]
SMOKE, SIMULATED, BUSY, NOISY = "Smoke run", "come from a model", "was busy", "results are noisy"
CALL, ONE_PROCESS = " flagged ", "Timed in one process"
NO_PEAK, ABOVE_PEAK, SLOW_LIBRARY = "measured peaks of", "above the measured peak", "products run at"
CONCERNS = (SMOKE, SIMULATED, BUSY, NOISY, CALL, ONE_PROCESS, NO_PEAK, ABOVE_PEAK, SLOW_LIBRARY)
"""The words that tell each warning from the others."""


def warnings(answer):
    """By their subject, in their order; a busy machine's mentions the noise."""
    return {next(words for words in CONCERNS if words in str(warning)): warning for warning in answer.warnings}


def test_the_sentence_and_the_table_are_one_list_of_rows():
    one = run().bench("mine.work", cpu=1.0, gpu=2.0, copies=0.1).bench("matmul.square", cpu=1.0, gpu=0.01, copies=0.01)
    one.bench("elementwise.add", cpu=1.0, gpu=0.02, copies=2.0).bench("elementwise.exp", cpu=1.0, gpu=0.01, copies=2.0)
    one.bench("elementwise.exp", cpu=1.0, gpu=0.005, copies=2.0, n=128).bench("transfer.create", cpu=1.0, gpu=0.01)
    answer = answered(one)
    texts = {"mine.work, n=64": "2.0× slower", "matmul.square, n=64": "100×", "elementwise.exp, n=128": "200×"}
    assert ratios(answer) == {"Synthetic H": texts | {"elementwise.add, n=64": "50×"}}
    assert answer.sentence == (
        "Synthetic H against Synthetic, 2 threads: faster in 3 of 4 benchmarks (50× to 200×), in 1 also when the data "
        "is copied for every call. Not faster: mine.work, n=64 (2.0× slower)."
    )
    table, causes = answer_tables(answer)
    assert [row["benchmark"] for row in rows(table)] == list(ratios(answer)["Synthetic H"])
    copies = "slower only because of the copies: without them 50×"
    assert ("elementwise.add, n=64", "4.0× slower with copies", copies) in causes.rows  # of a single device
    assert len(answer_tables(answer, 15)) == 1
    (figure,) = headline_figures(answer.study)
    assert [each.name for each in figure.chart.entries] == list(ratios(answer)["Synthetic H"])
    assert "Synthetic H faster in 3 of 4 benchmarks (50× to 200×)" in figure.subtitle


def test_dtypes_are_rows_of_their_own_below_the_first():
    """One buyer's 5× is another's 289×."""
    one = run().bench("matmul.square", cpu=1.0, gpu=0.001, dtype="float16")
    assert ratios(answered(one)) == {"Synthetic H": {"matmul.square, float16, n=64": "1,000×"}}
    for dtype, gpu in {"float64": 0.5, "float32": 0.1, "bfloat16": 0.01}.items():
        one.bench("matmul.square", cpu=1.0, gpu=gpu, dtype=dtype)
    answer = answered(one)
    texts = ratios(answer)["Synthetic H"]
    assert texts == {"matmul.square, n=64": "10×", "bfloat16": "100×", "float64": "2.0×", "float16": "1,000×"}
    (table,) = answer_tables(answer)
    assert [row[0] for row in table.rows] == ["matmul.square, n=64", *(f"\u2003{each}" for each in list(texts)[1:])]
    assert "float32 where no dtype is named" in table.note


@pytest.mark.parametrize(("count", "kinds"), [(4, 1), (30, 1), (30, 3)])
def test_a_screen_has_fifteen_rows_of_all_kinds_and_counts_the_others(count, kinds):
    one = run()
    for i in range(count):
        one.bench(f"{('mine', 'models', 'training')[i % kinds]}.work{i}", cpu=1.0, gpu=0.1)
    (brief,), (whole,) = answer_tables(answered(one), 15), answer_tables(answered(one))
    assert (len(brief.rows), len(whole.rows)) == (min(count, 15), count)
    assert (f"{count - 15} more in the report" in brief.note) == (count > 15)
    assert len({row[0].partition(".")[0] for row in brief.rows}) == kinds


def test_a_screen_has_each_workload_before_the_second_setting_of_one():
    one = run()
    for how in "abcdefgh":
        one.bench("mine.add", cpu=1.0, gpu=0.1, how=how, n=8).bench("mine.mul", cpu=1.0, gpu=0.1, how=how, n=8)
    for name in "uvwxyz":
        one.bench(f"mine.{name}", cpu=1.0, gpu=0.1)
    (brief,) = answer_tables(answered(one), 8)
    names = [row[0].partition(",")[0] for row in brief.rows]
    assert names == ["mine.add", "mine.mul", *map("mine.{}".format, "uvwxyz")]
    one.bench("other.a", cpu=1.0, gpu=0.1)  # of another file
    (brief,) = answer_tables(answered(one), 2)
    assert [row[0].partition(",")[0] for row in brief.rows] == ["mine.add", "other.a"]


def test_a_benchmark_has_one_row_although_a_file_lacks_its_kind_and_title():
    for lacking in ((1,), (0, 2)):
        runs = [run(name, gpu={"label": name}) for name in ("H100", "H200", "A10")]
        for gpu, one in enumerate(runs, 1):
            one.bench("matmul.square", cpu=1.0, gpu=0.1 * gpu, title="Product")
        for mark in (mark for i in lacking for mark in runs[i].marks):
            mark["extra_info"]["gpubench"] |= {"kind": "", "title": "", "size": None}
        for table in answer_tables(answered(*runs)):
            assert [row[0] for row in table.rows] == ["Product, n=64"]
            assert str(MISSING) not in table.rows[0]


def test_the_range_of_the_speedups_is_that_of_the_shown_ones():
    """One is a limit, and nobody sees its middle."""
    wide = (20.0, 40.0, 100.0)
    one = run().bench("a.a", cpu=wide, gpu=(1.0, 1.0, 1.0)).bench("a.b", cpu=50.0, gpu=1.0)
    limit = answered(one).study.pairs[0].ratio.mark
    assert limit.startswith("≥ ")
    assert f"faster in 2 of 2 benchmarks ({limit} to 50×)" in answered(one).sentence
    one.bench("a.b", cpu=wide, gpu=(1.0, 1.0, 1.0), n=128)
    assert f"faster in 2 of 2 benchmarks (at least {limit.removeprefix('≥ ')})" in answered(one).sentence


def test_a_benchmark_of_a_known_size_has_one_row_and_any_other_a_row_for_each_setting():
    numbers = [(n, p) for n in (64, 256, 1024) for p in (1, 2)]
    for size, count in ((None, 6), ("n", 2)):
        one = run()
        for n, p in numbers:
            one.bench("mine.cdist", cpu=1.0, gpu=0.1, p=p, n=n, size="n")
        for mark in one.marks:
            mark["extra_info"]["gpubench"]["size"] = size
        assert f"faster in {count} of {count} benchmarks (10×)" in answered(one).sentence


def test_of_several_machines_the_busy_one_is_named_with_its_results():
    busy = run("b", processes=1).bench("a.a", cpu=1.0, flags=("contended",)).bench("a.c", cpu=1.0, flags=("noisy",))
    warning = warnings(answered(run("a").bench("a.a", cpu=1.0), busy.bench("a.b", cpu=1.0)))[BUSY]
    assert (warning.summary, warning.evidence) == (
        "The machine of b was busy",
        ": 1 of 3 results is noisy (*) and too long by an unknown amount",
    )


def test_copies_count_as_a_win_only_where_that_is_known():
    moved = {"in_bytes": 4, "out_bytes": 0, "in_s": 2e-3}
    one = run()
    for name, spread in (("a.a", 0.9), ("a.b", 0.01)):
        one.bench(name, cpu=1e-2, spread=spread).bench(name, gpu=1e-4, transfer=moved)
    said = answered(one).sentence
    assert "in 1 also when the data is copied" in said, said


def test_what_loses_and_what_is_unknown_is_in_the_sentence():
    one = run().bench("a.a", cpu=1.0, gpu=0.5).bench("a.b", cpu=1.0, gpu=1.0)
    one.bench("a.c", cpu=1.0).bench("a.c", gpu=0.5, spread=0.9)
    one.bench("a.d", cpu=1.0).bench("a.d", gpu=0.5, spread=0.9).bench("a.e", cpu=1.0, gpu=1.0)
    texts = "faster in 1 of 5 benchmarks (2.0×). Not faster: a.b, n=64 (1.0×); a.e, n=64 (1.0×). "
    assert f"{texts}Unknown: a.c, n=64; a.d, n=64." in answered(one).sentence
    none = run().bench("a.a", cpu=1.0, gpu=2.0).bench("a.b", cpu=1.0, gpu=2.0)
    assert "faster in none of 2 benchmarks." in answered(none).sentence


def test_what_does_not_fill_the_gpu_is_marked():
    one = run(ceilings={"cuda:0": {"throughput": {"float32": 1e13}}})
    one.bench("models.large", cpu=1.0, gpu=0.5, title="Large", flops=1e12)  # 20% of its peak
    one.bench("models.small", cpu=1.0, gpu=4.0, title="Small", flops=1e12)
    one.bench("training.step", cpu=1.0, title="Step")
    one.bench("training.step", gpu=2.0, title="Step", device_s=1e-3, launch_s=2e-3)
    (table,) = answer_tables(answered(one), 15)
    texts = {row["benchmark"]: row["speedup"] for row in rows(table)}
    assert texts == {"Large, n=64": "2.0×", "Small, n=64": "4.0× slower†", "Step, n=64": "2.0× slower†"}
    assert Sign.UNFILLED.footnote in table.footnote


def test_memory_bound_work_in_the_cache_of_a_gpu_is_marked():
    """Of a cache of 50 MB: work on 33 MB, and none on 537 MB, no product, and none that is launch-bound."""
    band = {"pattern": "read", "byte_per_s": 3e12}
    bands = [band | {"footprint_bytes": n, "level": name} for n, name in ((25e6, "l2"), (1e8, "l2+"), (2e8, "memory"))]
    one = run(ceilings={"cuda:0": {"bandwidth": bands, "throughput": {"float32": 1e13}}})
    of = {"small": {"bytes": 33.5e6}, "large": {"bytes": 537e6}, "mm": {"bytes": 1e6, "flops": 1e9}}
    for name, how in of.items():
        seconds = how["bytes"] / 2e12 if name != "mm" else 2e-4
        one.bench(f"reductions.{name}", cpu=20 * seconds, gpu=seconds, title=name, **how)
    one.bench("reductions.tiny", cpu=1e-4, gpu=5e-6, title="tiny", bytes=1e4)
    answer = answered(one)
    (table,), listed = answer_tables(answer, 15), results_table(answer.study)
    texts = {row["benchmark"]: row["speedup"] for row in rows(table)}
    assert texts == {"small, n=64": "20×§", "large, n=64": "20×", "mm, n=64": "20×", "tiny, n=64": "20×†"}
    assert Sign.IN_CACHE.footnote in table.footnote
    assert Sign.IN_CACHE.footnote in listed.footnote
    assert [row["throughput"] for row in rows(listed) if "§" in row["throughput"]] == ["2.00 TB/s§"]


def test_a_speedup_needs_no_peak_and_titles_are_what_people_read_and_type():
    one = run(ceilings={"cuda:0": {"throughput": {"float32": 1e13}}}).bench("mine.net", cpu=1.0, title="ResNet-9")
    answer = answered(one.bench("mine.net", gpu=0.01, flops=1e12, title="ResNet-9"), expression="resnet-9 n=64")
    assert ratios(answer) == {"Synthetic H": {"ResNet-9, n=64": "100×"}}
    assert ABOVE_PEAK in warnings(answer)


def test_a_single_result_of_many_above_its_peak_is_told_below_the_tables():
    for count, minor in ((18, False), (20, True)):
        one = run(ceilings={"cpu": {"throughput": {"float32": 1e10}}}).bench("mine.above", cpu=1.0, flops=1.1e10)
        for i in range(count):
            one.bench(f"mine.w{i}", cpu=1.0)
        assert warnings(answered(one))[ABOVE_PEAK].minor is minor


def test_equal_settings_are_one_row_in_whatever_order_each_device_ran_them():
    one = run(cuda=2)
    for how, other in ("ab", "ba"):
        one.bench("matmul.square", gpu=0.1, how=how).bench("matmul.square", gpu1=0.1, how=other)
    (row,) = answered(one).times
    assert (row.label, [row.differing(item) for item in row.items]) == ("matmul.square, a", ["", ""])


def test_a_cpu_alone_has_its_times_and_a_hint():
    def measured(peak):
        one = run(cuda=0, ceilings={"cpu": {"throughput": {"float32": peak}}})
        return one.bench("matmul.square", cpu="10 ms", flops=1e9, bytes=1e6)

    answer = answered(measured(1.25e11).bench("elementwise.add", cpu="1 ms", numpy="2 ms", bytes=1e6))
    assert (answer.speedups, {item.library for row in answer.times for item in row.items}) == ([], {""})
    assert answer.sentence.startswith(
        f"Synthetic, 2 threads: 100 GFLOP/s in {MATMUL.words} (n=64, 80% of peak), 1.00 GB/s"
    )
    assert [row.label for row in answer.times] == ["matmul.square, n=64", "elementwise.add, n=64"]
    assert "no CUDA or ROCm support" in answer.hint
    unknown = run().bench("mine.parse", cpu="1 ms", n=None, device="", dtype="", devices=())
    unknown.data["machine_info"]["gpubench"]["devices"] = []
    assert answered(unknown).hint == ""
    lower = answered(measured(5e10))
    assert "GFLOP/s" not in lower.sentence  # above its peak
    assert ABOVE_PEAK in warnings(lower)


def test_of_a_device_whose_peaks_are_disproved_no_share_is_shown_anywhere():
    one = run(cuda=0, ceilings={"cpu": {"throughput": {"float32": 5e10}}})
    for name in "abcd":
        one.bench(f"mine.{name}", cpu="10 ms", flops=1e9, flags=("implausible",))
    answer = answered(one)
    assert ABOVE_PEAK not in warnings(answer)
    assert "4 of 4 results exceed them" in warnings(answer)[NO_PEAK].evidence
    assert {row["utilisation"] for row in reading.results(answer.study)} == {None}
    assert not any(row.quality.doubt or row.quality.noisy for row in answer.study.measured)  # their rates are shown
    drawn, _ = plan(answer.study)
    assert drawn
    assert not any("peak" in f"{figure.title} {figure.subtitle} {figure.caption}" for figure in drawn)


@pytest.mark.parametrize(("work", "warned"), [({"bytes": 1e6}, True), ({}, False)])
def test_wrong_peaks_are_named_where_a_share_of_them_would_be_shown(work, warned):
    bands = [{"pattern": "read", "footprint_bytes": size, "byte_per_s": rate, "level": "memory"}
             for size, rate in ((5e8, 1.4e10), (1e9, 3e10))]  # fmt: skip
    answer = answered(run(cuda=0, ceilings={"cpu": {"bandwidth": bands}}).bench("mine.sort", cpu=0.01, **work))
    assert "contradict each other" in answer.study.runs[0].disproved["cpu"]
    assert (NO_PEAK in warnings(answer)) == warned


@pytest.mark.parametrize(
    ("how", "flags", "expected"),
    [
        ({"flags": ("contended",)}, (), {BUSY}),
        ({}, ("contended",), {BUSY}),
        ({}, ("noisy",), {NOISY}),
        ({"processes": 1}, (), {ONE_PROCESS}),
        ({"preset": "smoke"}, ("noisy",), {SMOKE}),
        ({"gpu": {"simulated": True}}, (), {SIMULATED}),
        ({"flags": ("contended",)}, ("altered",), {BUSY, CALL}),
        ({}, ("altered", "unwaited"), {CALL}),
        ({}, ("switched", "power-limited"), {CALL}),
        ({}, (), set()),
    ],
)
def test_what_a_reader_must_know_first(how, flags, expected):
    one = run(**how)
    for i in range(3):
        one.bench(f"mine.work{i}", cpu=1.0, flags=flags)
    assert warnings(answered(one)).keys() == expected


def test_a_warning_says_where_and_what_to_try():
    def measured(**how):
        one = run(flags=("contended",), **how)
        for i, flags in enumerate((("noisy",), ("noisy", "altered"), ("altered",))):
            one.bench(f"mine.work{i}", cpu=0.1, flags=flags)
        return one

    by_concern = warnings(answered(measured()))
    assert "2 of 3" in by_concern[BUSY].evidence  # a call that alters its process isn't noise
    texts = "2 results flagged altered (mine.work1, mine.work2): the benchmark left settings"
    assert texts in str(by_concern[CALL])
    assert by_concern[CALL].advice.startswith("To try: put settings back")
    assert by_concern[BUSY].advice.startswith("Close other programs and run again before you quote them")
    assert "--threads 1" in by_concern[BUSY].advice  # of two: other people's programs can't be closed
    assert "--processes" not in by_concern[BUSY].advice  # more of them are busy too
    without = measured()
    without.data["machine_info"]["gpubench"]["torch"] = None  # whose threads no option sets
    assert "--threads" not in warnings(answered(without))[BUSY].advice
    slow = measured().bench("mine.long", cpu=0.6)  # on one thread of two too slow for the preset
    assert "--threads" not in warnings(answered(slow))[BUSY].advice


def test_a_slow_library_is_named_unless_the_machine_was_busy():
    """A GPU that is held against it would win by as much more."""
    peaks = {"cpu": {"throughput": {"float32": 1e11}, "ways": {"float32": {"torch": 4e10, "numpy": 1e11}}}}
    quiet, busy = (answered(run(ceilings=peaks, flags=each).bench("a.b", cpu=1.0)) for each in ((), ("contended",)))
    assert "PyTorch's float32 products run at 40% of what NumPy reaches" in warnings(quiet)[SLOW_LIBRARY].summary
    assert SLOW_LIBRARY not in warnings(busy)


def test_a_smoke_run_answers_nothing():
    answer = answered(run(preset="smoke").bench("matmul.square", cpu=1.0, gpu=0.01))
    assert (answer.speedups, "--preset quick" in answer.sentence) == ([], True)


def two_gpus():
    """A laptop's GPU, and one twice as fast beside a CPU 2.5 times as fast."""
    return [
        run(name, gpu={"label": label}).bench("models.mlp", cpu=cpu, gpu=gpu)
        for name, label, cpu, gpu in (("laptop", "NVIDIA RTX 4060", 1.0, 0.2), ("server", "NVIDIA H200", 0.4, 0.1))
    ]


def test_gpus_of_several_machines_are_compared_with_the_first_one():
    laptop, server = two_gpus()
    answer = answered(laptop, server)
    label = "models.mlp, n=64"
    assert [(each.baseline, list(each.devices.values())) for each in answer.speedups] == [
        ("RTX 4060", ["H200"]),
        ("Synthetic, 2 threads · laptop", ["RTX 4060", "Synthetic, 2 threads · server"]),
    ]
    assert answer.sentence.startswith("H200 against RTX 4060: 2.0× on models.mlp, n=64. RTX 4060 against ")
    assert ratios(answered(server, laptop))["RTX 4060"] == {label: "2.0× slower"}
    assert "H200 against RTX 4060: 2.0×" in answered(laptop, server, baseline="RTX 4060").sentence


def test_a_machine_without_a_gpu_is_the_reference_of_the_gpus_that_are_offered():
    """The machine that somebody has now."""
    mine = run("mine", cuda=0, cpu={"label": "Old CPU"}).bench("models.mlp", cpu=2.0)
    answer = answered(mine, *two_gpus())
    (speedups,) = answer.speedups
    label = "models.mlp, n=64"
    assert speedups.baseline == "Old, 2 threads"
    assert {name: of[label] for name, of in ratios(answer).items()} == {
        "RTX 4060": "10×", "H200": "20×", "Synthetic, 2 threads · laptop": "2.0×",
        "Synthetic, 2 threads · server": "5.0×",
    }  # fmt: skip
    assert "RTX 4060 against Old, 2 threads: 10× on models.mlp, n=64." in answer.sentence
    assert answer.sentence.endswith(" And 1 more: Synthetic, 2 threads · server.")


@pytest.mark.parametrize(
    ("mine", "sentence"),
    [
        ({"numpy": 4.0}, " Not compared, because nothing is alike: mine."),
        ({"cpu": 4.0, "dtype": "bfloat16"}, " Not compared, because nothing is alike: mine."),  # no baseline of float32
        ({"cpu": 4.0}, "H200 against Old, 2 threads: 40×"),
    ],
)
def test_a_machine_whose_benchmarks_differ_is_named_and_hides_no_speedup_of_another(mine, sentence):
    old = run("mine", cuda=0, cpu={"label": "Old CPU"}).bench("models.mlp", **mine)
    answer = answered(old, two_gpus()[1])
    assert sentence in answer.sentence
    assert "H200 against " in answer.sentence


@pytest.mark.parametrize(
    ("baseline", "name"),
    [("cpu", "the CPU of the same machine"), ("cuda:0", "the baseline"), ("one", "one, 2 threads")],
)
def test_baselines_of_several_machines_have_one_name(baseline, name):
    runs = [run(each, cpu={"label": each}).bench("a.b", cpu=1.0).bench("a.b", gpu=0.1) for each in ("one", "two")]
    for i, one in enumerate(runs):
        one.data["machine_info"]["gpubench"]["devices"][1]["label"] = f"GPU {i}"
    runs[0].marks.pop() if baseline == "one" else None
    assert f"speedup over {name}" in numbers_table(study_of(*runs, baseline=baseline)).columns


def test_a_benchmark_without_a_common_size_is_named():
    """Also of the same CPU, unless an option would compare it."""
    runs = [run(name).bench("a.a", cpu=1.0, n=8).bench("a.b", cpu=1.0, n=n) for name, n in (("one", 8), ("two", 9))]
    runs[1].bench("a.c", cpu=1.0, n=8)
    assert answered(*runs).left_out == "Not compared, because sizes or settings differ between the runs: a.b"
    for one, threads in zip(runs, (1, 2), strict=True):
        one.bench("a.b", cpu=1.0, n=64, cache="cold" if threads == 1 else "hot")
    assert answered(*runs).left_out.startswith("Not compared: 1 benchmark has no comparable baseline")


def test_a_device_that_a_sentence_has_no_room_for_is_named():
    gpus = ["RTX 4060", "L4", "A100", "H100", "H200", "B200"]
    runs = [run(name, cuda=1, gpu={"label": name}).bench("a.b", gpu=1.0 / at) for at, name in enumerate(gpus, 1)]
    sentence = answered(*runs).sentence
    assert all(name in sentence for name in gpus)
    assert "And 2 more: H200, B200." in sentence
    machines = machine_table(study_of(*runs, run("seventh").bench("a.b", cpu=1.0)))
    assert (len(machines.columns), "Without a column: seventh." in machines.note) == (7, True)


def test_a_third_run_changes_nothing_between_the_other_two():
    one, two = (
        run(name, gpu={"label": name}).bench("matmul.square", gpu=lambda n, s=seconds: s * n, n=(1, 2, 4))
        for name, seconds in (("A", 4.0), ("B", 1.0))
    )
    third = run("C", gpu={"label": "C"}).bench("matmul.square", gpu=2.0, n=1)
    label = "matmul.square, n=4"
    assert ratios(answered(one, two)) == {"B": {label: "4.0×"}}
    answer = answered(one, two, third)
    assert ratios(answer)["B"] == {label: "4.0×"}
    (table,) = answer_tables(answer, 15)
    assert table.rows == ((label, "16.0 s", "4.0×", "2.0× (n=1)"),)


def test_a_device_that_calls_itself_modelled_is_warned_of_even_in_short():
    one = run(processes=1, gpu={"label": "NVIDIA H200 (modelled)"}).bench("matmul.square", cpu=1.0, gpu=0.01)
    texts = warnings(answered(one))[SIMULATED]
    assert "NVIDIA H200 (modelled)" in str(texts)
    assert "H200 (modelled)" in texts.summary


@pytest.mark.parametrize(("flags", "star"), [((), ""), (("noisy",), "*")])
def test_a_number_of_the_sentence_has_its_star(flags, star):
    one = run().bench("matmul.square", cpu=1.0, flops=1e9, flags=flags)
    assert f"{'1.0' if star else '1.00'} GFLOP/s{star} in matrix products" in answered(one).sentence
    assert f"100×{star} on matmul.square" in answered(one.bench("matmul.square", gpu=0.01)).sentence


def two_titles():
    return run().bench("a.x", cpu=1.0, gpu=0.1, title="Sort").bench("b.x", cpu=1.0, gpu=0.1, title="Sort")


def labelled(one):
    for i, device in enumerate(one.data["machine_info"]["gpubench"]["devices"][1:]):
        device["label"] = f"GPU {i}"
    return one


def library(*torch):
    one = run().bench("matmul.square", cpu=8.0, gpu=2.0, by="tinygrad")
    return one.bench("matmul.square", cpu=9.0, gpu=1.0) if torch else one


@pytest.mark.parametrize(
    ("runs", "rows"),
    [
        ([two_titles()], {"Synthetic H": {"a.x, n=64": "10×", "b.x, n=64": "10×"}}),
        ([labelled(run(cuda=2).bench("a.0", cpu=9.0, gpu=0.2).bench("a.1", cpu=9.0, gpu1=0.2))],
         {"GPU 0": {"a.0, n=64": "45×"}, "GPU 1": {"a.1, n=64": "45×"}}),
        ([run(cuda=2).bench("a.0", cpu=9.0, gpu=0.2, gpu1=0.4).bench("a.1", cpu=9.0, gpu1=0.3)],
         {"Synthetic H #0": {"a.0, n=64": "45×"}, "Synthetic H #1": {"a.0, n=64": "22×", "a.1, n=64": "30×"}}),
        ([run(name, cuda=0, cpu={"label": name}).bench("a.b", cpu=s) for name, s in (("one", 2.0), ("two", 1.0))],
         {"two, 2 threads": {"a.b, n=64": "2.0×"}}),
        ([library()], {"Synthetic H · tinygrad": {"matmul.square, n=64": "4.0×"}}),
        ([library("torch")], {"Synthetic H": {"matmul.square, n=64": "8.0×"}}),
        ([run().skip("a.b")], {}),
    ],
    ids=["one title", "no common benchmark", "equal GPUs", "two CPUs", "library", "library beside torch", "nothing"],
)  # fmt: skip
def test_each_device_has_its_rows(runs, rows):
    """A library on a GPU has a column only where torch has none."""
    answer = answered(*runs)
    assert ratios(answer) == rows
    assert all(each in answer.sentence for of in rows.values() for each in of.values())
    assert all(speedups.alike == (len(runs) == 2) for speedups in answer.speedups)
    assert rows or answer.sentence == "Nothing was measured."


# Several machines -----------------------------------------------------------------------------------------------------


def test_what_differs_between_runs_comes_first():
    server = run("server", gpu={"driver": "580"}, threads=8, torch="2.13.0+cu130")
    laptop = run("laptop", gpu={"driver": "570"}, torch="2.12.0+cu130")
    runs = [each.bench("matmul.square", cpu=1.0, gpu=0.01) for each in (server, laptop)]
    facts = {what: texts for what, *texts in machine_table(study_of(*runs)).rows}
    assert facts["torch"] == ["2.13.0+cu130", "2.12.0+cu130"]
    assert facts["threads"] == ["8", "2"]
    assert facts["cuda:0 driver"] == ["580", "570"]
    alike = [texts[0] == texts[1] for texts in facts.values()]
    assert alike == sorted(alike)
    assert facts["preset"] == ["quick", "quick"]


def test_threads_are_those_that_were_used():
    one = study_of(run().bench("matmul.square", cpu=1.0, threads=1))
    assert one.names.of(one.measured[0]) == "Synthetic, 1 thread"
    most = run().bench("a.b", cpu=1.0, threads=1).bench("a.c", cpu=1.0, threads=3).bench("a.d", cpu=1.0, threads=3)
    assert study_of(most).names.of(study_of(most).measured[0]) == "Synthetic, 3 threads"


def test_what_no_device_shares_stands_under_its_own():
    one = run(cuda=2).bench("a.n", gpu="5 ms").bench("a.m", gpu1="1 ms").bench("a.k", cpu="2 ms")
    one.bench("a.j", n=(8, 64), cpu="3 ms")  # two benchmarks, one row: a count would be another than the title's
    assert sorted(answered(one).sentence.removesuffix(".").split(". ")) == [
        "Synthetic H #0: a.n takes 5.00 ms",
        "Synthetic H #1: a.m takes 1.00 ms",
        "Synthetic, 2 threads: 2.00 ms (a.k) to 3.00 ms (a.j)",
    ]


def test_devices_of_one_name_are_told_apart():
    study = study_of(*(run(name, cuda=2).bench("matmul.square", gpu=1.0, gpu1=1.0) for name in ("one", "two")))
    names = {study.names.of(row) for row in study.measured}
    assert names == {f"Synthetic H #{i} · {name}" for i in (0, 1) for name in ("one", "two")}


def test_a_sentence_names_the_workload_of_a_dtype():
    one = run().bench("mine.w", cpu=1.0, gpu=0.1, kind="matmul")
    one.bench("mine.w", cpu=1.0, gpu=2.0, dtype="bfloat16", kind="matmul")
    assert "Not faster: mine.w, bfloat16 (2.0× slower)." in Answer(study_of(one)).sentence


def test_one_cpu_is_one_column_whether_a_benchmark_names_it_or_not():
    one = run(cuda=0).bench("mine.a", cpu="1 ms").bench("mine.b", cpu="2 ms", device="", devices=())
    assert {answered(one).study.names.of(row) for row in answered(one).study.measured} == {"Synthetic, 2 threads"}
    with_gpu = run().bench("mine.a", cpu="1 ms", gpu="1 ms").bench("mine.b", cpu="2 ms", device="", devices=())
    assert "unknown device" in {answered(with_gpu).study.names.of(row) for row in answered(with_gpu).study.measured}


def test_a_star_is_explained_only_where_a_number_has_one():
    """``(a + b)*c`` is a name."""
    for name, flags in (("time.(a + b)*c", ()), ("time.x @ y*z", ()), ("time.c", ("noisy",))):
        study = answered(run(cuda=0).bench(name, cpu="1 ms", flags=flags).bench("time.d", cpu="2 ms")).study
        for table in (beside_each_other(study), results_table(study), *answer_tables(Answer(study))):
            assert ("* noisy" in table.footnote) == bool(flags)


def test_a_flag_without_a_star_is_told_without_one():
    (line,) = [line for line in findings(study_of(run().bench("a.b", cpu=1.0, gpu=0.1, flags=("power-limited",))))
               if "power-limited" in line]  # fmt: skip
    assert line.startswith("power-limited: ")


def test_the_machine_table_says_busy_where_a_result_was():
    one = run(cuda=0).bench("a.b", cpu=1.0, flags=("contended",)).bench("a.c", cpu=1.0)
    facts = {what: texts for what, *texts in machine_table(study_of(one)).rows}
    assert facts["machine busy"] == ["yes"]


def test_what_a_plain_process_pays_is_said_where_it_is_another_time(tmp_path):
    one = run().bench("own.conv", cpu=1.44e-3, plain_s=5.2e-3).bench("own.sum", cpu=1e-3, plain_s=1.1e-3)
    one.bench("own.busy", cpu=1e-3, plain_s=9e-3, flags=("contended",)).bench("own.copy", cpu=1e-3, plain_s=1.3e-3)
    one.bench("own.drift", cpu=1e-3, plain_s=0.5e-3).bench("own.phase", cpu=1e-3, plain_s=1.3e-3)
    one.marks[-1]["extra_info"]["gpubench"]["processes"][0]["blocks"] = [1e-3, 1.2e-3]
    (warning,) = (each for each in Answer(study_of(one)).warnings if "plain program" in each.summary)
    assert str(warning).startswith("A plain program takes 5.20 ms for own.conv, not 1.44 ms, and 1 other benchmark ano")
    assert "MALLOC_TRIM_THRESHOLD_=1073741824" in str(warning)
    side, path = Side("new"), one.save(tmp_path / "run.json")
    add_runs(side, [path])
    note = next(each for each in compare_sides(side, side, Terms()).notes if "plain" in each)
    assert note.startswith("new: a plain program takes 5.20 ms for own.conv")
