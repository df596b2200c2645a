"""The sentence, the rows and the warnings, from hand-made records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
import records
from reading import answered, both, mark, ratios, rows, run

from gpubench.report.answer import Answer, Warning
from gpubench.report.charts.headline_chart import headline_figures
from gpubench.report.charts.pictures import plan
from gpubench.report.render import terminal
from gpubench.report.study import Study
from gpubench.report.tables import answer_tables, machine_table
from gpubench.runfile.kinds import KINDS
from gpubench.runfile.quantities import UNFILLED_SIGN
from gpubench.runfile.schema import Case

MATMUL = KINDS["matmul"]


SMOKE, SIMULATED, BUSY, NOISY = "Smoke run", "come from a model", "was busy", "results are noisy"
CALL, ONE_PROCESS = " flagged ", "Timed in one process"
NO_PEAK, ABOVE_PEAK, SLOW_LIBRARY = "measured peaks of", "above the measured peak", "products run at"
CONCERNS = (SMOKE, SIMULATED, BUSY, NOISY, CALL, ONE_PROCESS, NO_PEAK, ABOVE_PEAK, SLOW_LIBRARY)
"""What tells each warning from the others."""


def concerns(found: Answer) -> list[str]:
    """In the order of the warnings, of which a busy machine's mentions the noise."""
    return [next(words for words in CONCERNS if words in str(warning)) for warning in found.warnings]


def warning(found: Answer, concern: str) -> Warning:
    return found.warnings[concerns(found).index(concern)]


def test_the_sentence_and_the_table_are_one_list_of_rows(tmp_path: Path) -> None:
    marks = [
        *both("mine.work", 1.0, 2.0, copies=0.1),
        *both("matmul.square", 1.0, 0.01, copies=0.01),
        *both("elementwise.add", 1.0, 0.02, copies=2.0),
        *both("elementwise.exp", 1.0, 0.01, copies=2.0),
        *both("elementwise.exp", 1.0, 0.005, copies=2.0, n=128),
        *both("transfer.create", 1.0, 0.01),
    ]
    found = answered(tmp_path, marks)
    assert ratios(found) == {
        "Synthetic H": {
            "mine.work, n=64": "2.0× slower",
            "matmul.square, n=64": "100×",
            "elementwise.exp, n=128": "200×",
            "elementwise.add, n=64": "50×",
        }
    }
    assert found.sentence == (
        "Synthetic H against Synthetic, 2 threads: faster in 3 of 4 benchmarks (50× to 200×), in 1 also when the data "
        "is copied for every call. Not faster: mine.work, n=64 (2.0× slower)."
    )
    (table,) = answer_tables(found)
    assert [row["benchmark"] for row in rows(table)] == list(ratios(found)["Synthetic H"])
    (figure,) = headline_figures(found.study)
    assert [f"{each.name}, {each.detail}" for each in figure.chart.entries] == list(ratios(found)["Synthetic H"])
    assert "Synthetic H faster in 3 of 4 benchmarks (50× to 200×)" in figure.subtitle


def test_dtypes_are_rows_of_their_own_below_the_first(tmp_path: Path) -> None:
    """One buyer's 5× is another's 289×."""
    dtypes = {"float16": 0.001, "float64": 0.5, "float32": 0.1, "bfloat16": 0.01}
    marks = [each for dtype, gpu in dtypes.items() for each in both("matmul.square", 1.0, gpu, dtype=dtype)]
    found = answered(tmp_path, marks)
    told = ratios(found)["Synthetic H"]
    assert told == {"matmul.square, n=64": "10×", "bfloat16": "100×", "float64": "2.0×", "float16": "1,000×"}
    (table,) = answer_tables(found)
    assert [row[0] for row in table.rows] == ["matmul.square, n=64", *(f"\u2003{each}" for each in list(told)[1:])]
    assert "float32 where no dtype is named" in table.note
    (alone,) = ratios(answered(tmp_path, marks[:2])).values()
    assert alone == {"matmul.square, float16, n=64": "1,000×"}


@pytest.mark.parametrize(("count", "kinds"), [(4, 1), (30, 1), (30, 3)])
def test_a_screen_has_fifteen_rows_of_all_kinds_and_counts_the_others(tmp_path: Path, count: int, kinds: int) -> None:
    names = [f"{('mine', 'models', 'training')[i % kinds]}.work{i}" for i in range(count)]
    found = answered(tmp_path, [each for name in names for each in both(name, 1.0, 0.1)])
    (brief,), (whole,) = answer_tables(found, 15), answer_tables(found)
    assert (len(brief.rows), len(whole.rows)) == (min(count, 15), count)
    assert (f"{count - 15} more in the report" in brief.note) == (count > 15)
    assert len({row[0].partition(".")[0] for row in brief.rows}) == kinds


def test_what_loses_and_what_is_unknown_is_in_the_sentence(tmp_path: Path) -> None:
    marks = [*both("a.a", 1.0, 0.5), *both("a.b", 1.0, 1.0), *both("a.c", 1.0, 0.5, spread=0.9)]
    said = answered(tmp_path, marks).sentence
    assert "faster in 1 of 3 benchmarks (2.0×). Not faster: a.b, n=64 (1.0×). Unknown: a.c, n=64." in said
    assert (
        "faster in none of 2 benchmarks."
        in answered(tmp_path, [*both("a.a", 1.0, 2.0), *both("a.b", 1.0, 2.0)]).sentence
    )


def test_what_does_not_fill_the_gpu_is_marked(tmp_path: Path) -> None:
    peaks = {"cuda:0": {"throughput": {"float32": 1e13}}}
    marks = [
        *both("models.large", 1.0, 0.5, title="Large", work={"flops": 1e12}),  # 20% of its peak
        *both("models.small", 1.0, 4.0, title="Small", work={"flops": 1e12}),
        *both("training.step", 1.0, 2.0, title="Step", device_s=1e-3, launch_s=2e-3),
    ]
    (table,) = answer_tables(answered(tmp_path, marks, ceilings=peaks), 15)
    told = {row["benchmark"]: row["speedup"] for row in rows(table)}
    assert told == {"Large, n=64": "2.0×", "Small, n=64": "4.0× slower†", "Step, n=64": "2.0× slower†"}
    assert UNFILLED_SIGN in table.footnote


def test_benchmarks_of_one_title_are_told_apart(tmp_path: Path) -> None:
    marks = [*both("a.x", 1.0, 0.1, title="Sort"), *both("b.x", 1.0, 0.1, title="Sort")]
    assert set(ratios(answered(tmp_path, marks))["Synthetic H"]) == {"a.x, n=64", "b.x, n=64"}


def test_a_batch_too_large_for_the_cpu_is_compared_per_item(tmp_path: Path) -> None:
    def batch(device: str, seconds: float, n: int, flops: float) -> dict[str, Any]:
        work = {"flops": flops, "items": n, "unit": "image"}
        return mark("models.net", device, seconds, n=n, title="Net", work=work, copies=0.1 if n > 1 else None)

    marks = [batch("cpu", 1.0, 1, 1e9), batch("cpu", 1.9, 2, 2e9), batch("cuda:0", 0.5, 100, 1e11)]
    study = Study([run(tmp_path, marks)])
    (pair,) = study.pairs
    assert (pair.batches, pair.speedup) == (50, pytest.approx(50 * 1.9 / 0.5))
    assert pair.ratio.low < pair.speedup < pair.ratio.high
    assert pair.copies is not None
    assert pair.copies.speedup == pytest.approx(50 * 1.9 / 0.7)
    assert pair.differs == "n 100 against 2, per image"
    assert study.crossings == []
    (table,) = answer_tables(Answer(study))
    assert [(row["benchmark"], row["Synthetic"]) for row in rows(table)] == [("Net, n=100", "1.90 s (n=2)")]
    other_work = [batch("cpu", 1.0, 1, 1e9), batch("cuda:0", 0.5, 100, 9e12)]  # products of matrices that size
    assert not Study([run(tmp_path, other_work, "other")]).pairs


def test_a_speedup_needs_no_peak_and_titles_are_what_people_read_and_type(tmp_path: Path) -> None:
    marks = both("mine.net", 1.0, 0.01, work={"flops": 1e12}, title="ResNet-9")
    made = run(tmp_path, marks, ceilings={"cuda:0": {"throughput": {"float32": 1e13}}})
    found = Answer(Study([made], expression="resnet-9 n=64"))
    assert ratios(found) == {"Synthetic H": {"ResNet-9, n=64": "100×"}}
    assert ABOVE_PEAK in concerns(found)


def test_a_cpu_alone_has_its_times_and_a_hint(tmp_path: Path) -> None:
    work = {"flops": 1e9, "bytes": 1e6}
    marks = [mark("matmul.square", "cpu", 0.01, work=work), mark("elementwise.add", "cpu", 1e-3, work={"bytes": 1e6})]
    peaks = {"cpu": {"throughput": {"float32": 1.25e11}}}
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings=peaks)
    assert found.speedups == []
    assert found.sentence.startswith(
        f"Synthetic, 2 threads: 100 GFLOP/s in {MATMUL.words} (n=64, 80% of peak), 1.00 GB/s"
    )
    assert [row.label for row in found.times] == ["matmul.square, n=64", "elementwise.add, n=64"]
    assert "no CUDA or ROCm support" in found.hint
    unknown = [records.benchmark(Case("mine.parse", "", "", {}), 1e-3)]
    assert answered(tmp_path, unknown, devices=()).hint == ""
    lower = answered(tmp_path, marks[:1], devices=(records.CPU,), ceilings={"cpu": {"throughput": {"float32": 5e10}}})
    assert "GFLOP/s" not in lower.sentence  # above its peak
    assert ABOVE_PEAK in concerns(lower)


def test_of_a_device_whose_peaks_are_disproved_no_share_is_shown_anywhere(tmp_path: Path) -> None:
    flags = ("implausible",)
    marks = [mark(f"mine.{name}", "cpu", 0.01, work={"flops": 1e9}, flags=flags) for name in "abcd"]
    peaks = {"cpu": {"throughput": {"float32": 5e10}}}
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings=peaks)
    assert ABOVE_PEAK not in concerns(found)
    assert "4 of 4 results exceed them" in warning(found, NO_PEAK).where
    assert {row["utilisation"] for row in reading.results(found.study)} == {None}
    assert not any(row.quality.doubt or row.quality.noisy for row in found.study.measured)  # their rates are shown
    drawn, _ = plan(found.study, every=True)
    assert drawn
    assert not any("peak" in f"{figure.title} {figure.subtitle} {figure.caption}" for figure in drawn)


@pytest.mark.parametrize(("work", "warned"), [({"bytes": 1e6}, True), ({}, False)])
def test_wrong_peaks_are_named_where_a_share_of_them_would_be_shown(
    tmp_path: Path, work: dict[str, float], warned: bool
) -> None:
    bands = [{"pattern": "read", "footprint_bytes": size, "byte_per_s": rate, "level": "memory"}
             for size, rate in ((5e8, 1.4e10), (1e9, 3e10))]  # fmt: skip
    marks = [mark("mine.sort", "cpu", 0.01, work=work)]
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings={"cpu": {"bandwidth": bands}})
    assert "contradict each other" in found.study.runs[0].disproved["cpu"]
    assert (NO_PEAK in concerns(found)) == warned


def test_threads_pay_where_both_were_measured(tmp_path: Path) -> None:
    marks = [mark("distributed.lenet", "cpu", seconds) for seconds in (0.06, 0.1)]
    for each, method, threads in zip(marks, ("single", "one thread"), (2, 1), strict=True):
        each["extra_info"]["gpubench"] |= {"threads": threads, "params": {"method": method}}
        each["extra_info"]["gpubench"]["parallel"] = {"method": method, "devices": 1}
    found = answered(tmp_path, marks, devices=(records.CPU,))
    assert "2 threads against one: 1.7× on distributed.lenet" in found.sentence


@pytest.mark.parametrize(
    ("how", "flags", "expected"),
    [
        ({"flags": ("contended",)}, (), {BUSY}),
        ({}, ("noisy",), {NOISY}),
        ({"processes": 1}, (), {ONE_PROCESS}),
        ({"preset": "smoke"}, ("noisy",), {SMOKE}),
        ({"devices": (records.CPU, {**records.GPU, "simulated": True})}, (), {SIMULATED}),
        ({"flags": ("contended",)}, ("altered",), {BUSY, CALL}),
        ({}, ("altered", "unwaited"), {CALL}),
        ({}, ("switched", "power-limited"), {CALL}),
        ({}, (), set()),
    ],
)
def test_what_a_reader_must_know_first(
    tmp_path: Path, how: dict[str, Any], flags: tuple[str, ...], expected: set[str]
) -> None:
    more = {"medians": (1.0,)} if how.get("processes") == 1 else {}
    marks = [mark(f"mine.work{i}", "cpu", 1.0, flags=flags, **more) for i in range(3)]
    assert {*concerns(answered(tmp_path, marks, **how))} == expected


def test_a_warning_says_where_and_what_to_try(tmp_path: Path) -> None:
    flags = (("noisy",), ("noisy", "altered"), ("altered",))
    marks = [mark(f"mine.work{i}", "cpu", 0.1, flags=each) for i, each in enumerate(flags)]
    found = answered(tmp_path, marks, flags=("contended",))
    busy, altered = warning(found, BUSY), warning(found, CALL)
    assert "2 of 3" in busy.where  # a call that alters its process isn't noise
    assert "2 results flagged altered (mine.work1, mine.work2): the benchmark left settings" in altered.where
    assert altered.try_.startswith("To try: put settings back")
    assert "--threads 1" in busy.try_  # of two: other people's programs can't be closed
    for used, advised in ((1, 5), (5, 10)):  # never what was used already
        tries = warning(answered(tmp_path, marks, flags=("contended",), processes=used), BUSY).try_
        assert tries.endswith(f"--processes {advised}.")
    marks.append(mark("mine.long", "cpu", 0.6))  # on one thread of two too slow for the preset
    assert "--threads" not in warning(answered(tmp_path, marks, flags=("contended",)), BUSY).try_


def test_a_slow_library_is_named_unless_the_machine_was_busy(tmp_path: Path) -> None:
    """A GPU that is held against it would win by as much more."""
    slow = {"throughput": {"float32": 1e11}, "ways": {"float32": {"torch": 4e10, "numpy": 1e11}}}
    marks, peaks = [mark("mine.work", "cpu", 1.0)], {"cpu": records.ceilings("cpu") | slow}
    told = warning(answered(tmp_path, marks, ceilings=peaks), SLOW_LIBRARY)
    assert "PyTorch's float32 products run at 40% of what NumPy reaches" in told.where
    assert SLOW_LIBRARY not in concerns(answered(tmp_path, marks, ceilings=peaks, flags=("contended",)))


def test_a_smoke_run_answers_nothing(tmp_path: Path) -> None:
    found = answered(tmp_path, both("matmul.square", 1.0, 0.01), preset="smoke")
    assert (found.speedups, "--preset quick" in found.sentence) == ([], True)


def two_gpus(folder: Path) -> list[Any]:
    """A laptop's GPU, and one twice as fast beside a CPU 2.5 times as fast."""
    return [
        run(folder, both("models.mlp", cpu, gpu), name, devices=(records.CPU, {**records.GPU, "label": label}))
        for name, label, cpu, gpu in (("laptop", "NVIDIA RTX 4060", 1.0, 0.2), ("server", "NVIDIA H200", 0.4, 0.1))
    ]


def test_several_gpus_are_compared_with_the_slowest_and_not_with_their_cpus(tmp_path: Path) -> None:
    """An H200 against its own CPU and a laptop's GPU against its own say nothing of each other."""
    runs = two_gpus(tmp_path)
    for order in (runs, runs[::-1]):
        found = Answer(Study(order))
        (each,) = found.speedups
        assert (list(each.devices.values()), each.baseline) == (["H200"], "RTX 4060")
        assert found.sentence == "H200 against RTX 4060: 2.0× on models.mlp, n=64."
        in_the_picture = {pair.base.facts.label for pair in found.study.gpu_pairs}
        assert in_the_picture == {"NVIDIA RTX 4060"}  # as in the sentence above it, whichever file came first
    assert "H200 against RTX 4060: 2.0×" in Answer(Study(runs, "RTX 4060")).sentence


def test_a_machine_without_a_gpu_stands_beside_several_gpus(tmp_path: Path) -> None:
    """The machine that somebody has now, to whom two GPUs are offered."""
    runs = two_gpus(tmp_path)
    mine = run(tmp_path, [mark("models.mlp", "cpu", 2.0)], "mine", devices=({**records.CPU, "label": "Old CPU"},))
    for order in ([mine, *runs], [*runs, mine]):
        found = Answer(Study(order))
        label = "models.mlp, n=64"
        assert ratios(found) == {"H200": {label: "2.0×"}, "Old, 2 threads": {label: "10× slower"}}
        assert "Old, 2 threads against RTX 4060: 10× slower on models.mlp, n=64." in found.sentence
        (table,) = answer_tables(found)
        assert "10× slower" in "\n".join(terminal(table, 100))


def test_a_third_run_changes_nothing_between_the_other_two(tmp_path: Path) -> None:
    def machine(name: str, seconds: float, sizes: tuple[int, ...]) -> Any:
        marks = [mark("matmul.square", "cuda:0", seconds * n, n=n) for n in sizes]
        return run(tmp_path, marks, name, devices=(records.CPU, {**records.GPU, "label": name}))

    one, two, third = machine("A", 4.0, (1, 2, 4)), machine("B", 1.0, (1, 2, 4)), machine("C", 2.0, (1,))
    label = "matmul.square, n=4"
    assert ratios(Answer(Study([one, two]))) == {"B": {label: "4.0×"}}
    found = Answer(Study([one, two, third]))
    assert ratios(found)["B"] == {label: "4.0×"}
    (table,) = answer_tables(found, 15)
    assert table.rows == ((label, "16.0 s", "4.0×", "2.0× (n=1)"),)


def test_machines_without_a_gpu_are_compared_by_their_cpus(tmp_path: Path) -> None:
    marks = {name: [mark("matmul.square", "cpu", seconds)] for name, seconds in (("one", 2.0), ("two", 1.0))}
    runs = [
        run(tmp_path, made, name, devices=({**records.CPU, "label": f"CPU {name}"},)) for name, made in marks.items()
    ]
    (each,) = (found := Answer(Study(runs))).speedups
    assert each.alike
    assert [list(of.values()) for of in ratios(found).values()] == [["2.0×"]]


def test_devices_that_share_no_benchmark_are_compared_with_the_cpu(tmp_path: Path) -> None:
    gpus = [{**records.GPU, "name": f"cuda:{i}", "label": f"GPU {i}"} for i in range(2)]
    marks = [
        mark(f"a.{i}", device, seconds) for i in range(2) for device, seconds in (("cpu", 9.0), (f"cuda:{i}", 0.2))
    ]
    found = answered(tmp_path, marks, devices=(records.CPU, *gpus))
    assert ratios(found) == {"0": {"a.0, n=64": "45×"}, "1": {"a.1, n=64": "45×"}}
    assert len(found.sentence.split("45×")) == 3


def test_nothing_measured_is_said_so(tmp_path: Path) -> None:
    data = records.run_file([], [records.unmeasured(Case("a.b", "cpu", "float32"))])
    assert Answer(Study([reading.run_of(tmp_path, data)])).sentence == "Nothing was measured."


def test_another_library_on_a_gpu_has_a_column_only_where_torch_has_none(tmp_path: Path) -> None:
    times = (("cpu", 8.0), ("cuda:0", 2.0))
    other = [mark("matmul.square", device, time, implementation="tinygrad") for device, time in times]
    assert set(ratios(answered(tmp_path, other))) == {"Synthetic H · tinygrad"}
    assert set(ratios(answered(tmp_path, [*other, *both("matmul.square", 9.0, 1.0)]))) == {"Synthetic H"}


def test_a_device_that_calls_itself_modelled_is_warned_of_even_in_short(tmp_path: Path) -> None:
    gpu = {**records.GPU, "label": "NVIDIA H200 (modelled)"}
    marks = both("matmul.square", 1.0, 0.01)
    found = Answer(Study([reading.run_of(tmp_path, records.run_file(marks, devices=(records.CPU, gpu)))]))
    told = warning(found, SIMULATED)
    assert "NVIDIA H200 (modelled)" in str(told)
    assert "H200 (modelled)" in told.summary


def test_a_number_of_the_sentence_has_its_star(tmp_path: Path) -> None:
    work = {"work": {"flops": 1e9}}
    for flags, star in (((), ""), (("noisy",), "*")):
        product = mark("matmul.square", "cpu", 1.0, flags=flags, **work)
        assert f"1.00 GFLOP/s{star} in matrix products" in answered(tmp_path, [product]).sentence
        sides = [product, mark("matmul.square", "cuda:0", 0.01)]
        assert f"100×{star} on matmul.square" in answered(tmp_path, sides).sentence


# Several machines -----------------------------------------------------------------------------------------------------


def test_what_differs_between_runs_comes_first(tmp_path: Path) -> None:
    machines = [
        ("server", "580", {"machine_threads": 8, "torch": "2.13.0+cu130"}),
        ("laptop", "570", {"machine_threads": 2, "torch": "2.12.0+cu130"}),
    ]
    marks = both("matmul.square", 1.0, 0.01)
    runs = [
        run(tmp_path, marks, name, devices=(records.CPU, {**records.GPU, "driver": driver}), **how)
        for name, driver, how in machines
    ]
    found = {what: told for what, *told in machine_table(Study(runs)).rows}
    assert found["torch"] == ["2.13.0+cu130", "2.12.0+cu130"]
    assert found["threads"] == ["8", "2"]
    assert found["cuda:0 driver"] == ["580", "570"]
    alike = [told[0] == told[1] for told in found.values()]
    assert alike == sorted(alike)
    assert found["preset"] == ["quick", "quick"]


def test_threads_are_those_that_were_used(tmp_path: Path) -> None:
    one = Study([run(tmp_path, [mark("matmul.square", "cpu", 1.0, threads=1)], machine_threads=2)])
    assert one.names.of(one.measured[0]) == "Synthetic, 1 thread"


def test_what_no_device_shares_stands_under_its_own(tmp_path: Path) -> None:
    marks = [mark("a.n", "cuda:0", 5e-3), mark("a.m", "cuda:1", 1e-3), mark("a.k", "cpu", 2e-3)]
    devices = (records.CPU, records.GPU, {**records.GPU, "name": "cuda:1"})
    said = Answer(Study([run(tmp_path, marks, devices=devices)])).sentence
    parts = [
        "Synthetic H #0: a.n takes 5.00 ms",
        "Synthetic H #1: a.m takes 1.00 ms",
        "Synthetic, 2 threads: a.k takes 2.00 ms",
    ]
    assert sorted(said.removesuffix(".").split(". ")) == parts


def test_devices_of_one_name_are_told_apart(tmp_path: Path) -> None:
    twins = (records.CPU, records.GPU, {**records.GPU, "name": "cuda:1"})
    marks = [mark("matmul.square", device, 1.0) for device in ("cuda:0", "cuda:1")]
    study = Study([run(tmp_path, marks, name, devices=twins) for name in ("one", "two")])
    names = {study.names.of(row) for row in study.measured}
    assert names == {f"Synthetic H #{i} · {name}" for i in (0, 1) for name in ("one", "two")}
