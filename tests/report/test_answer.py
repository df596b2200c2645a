"""The sentence, the cards and the warnings, from hand-made records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
import records
from comparing import answered, both, by_name, mark, run

from gpubench.report.answer import Answer, Concern, Warning
from gpubench.report.charts.pictures import plan
from gpubench.report.pairs import Verdict
from gpubench.report.render import terminal
from gpubench.report.rows import Doubt
from gpubench.report.study import Study
from gpubench.report.tables import answer_tables
from gpubench.report.words import EVERY_SIZE
from gpubench.runfile.kinds import KINDS
from gpubench.runfile.quantities import UNFILLED_SIGN
from gpubench.runfile.schema import Case

MATMUL, ELEMENTWISE, TRAINING = (KINDS[name] for name in ("matmul", "elementwise", "training"))


def concerns(found: Answer) -> set[Concern]:
    return {warning.what for warning in found.warnings}


def warning(found: Answer, concern: Concern) -> Warning:
    (told,) = (each for each in found.warnings if each.what is concern)
    return told


def test_a_card_names_both_sides_and_each_kind_of_work(tmp_path: Path) -> None:
    marks = [
        *both("mine.work", 1.0, 2.0, copies=0.1),
        *both("matmul.square", 1.0, 0.01, copies=0.01),
        *both("elementwise.add", 1.0, 0.02, copies=2.0),
        *both("elementwise.exp", 1.0, 0.01, copies=2.0),
        *both("elementwise.sum", 1.0, 0.04, copies=2.0),
        *both("transfer.create", 1.0, 0.01),
    ]
    found = answered(tmp_path, marks)
    (card,) = found.cards
    assert (card.device, card.baseline) == ("Synthetic H", "Synthetic, 2 threads")
    assert [row.name for row in card.rows] == [MATMUL.heading, ELEMENTWISE.heading, "mine.work"]
    square, elementwise, mine = card.rows
    assert (square.ratio, square.verdict) == ("100×", Verdict.WORTH_IT)
    assert (elementwise.ratio, elementwise.ends, len(elementwise.known)) == ("50×", "25× to 100×", 3)
    assert elementwise.typical is not None
    assert elementwise.typical.other.result.workload == "elementwise.add"  # a measured case, not a mean
    assert elementwise.verdict == Verdict.IF_IT_STAYS
    assert (mine.ratio, mine.verdict) == ("2.0× slower", Verdict.NOT_WORTH_IT)


def test_the_sentence_names_three_kinds_of_work_and_counts_the_others(tmp_path: Path) -> None:
    marks = [*both("matmul.square", 1.0, 0.01, copies=0.01), *both("models.mlp", 1.0, 0.1, copies=0.01)]
    marks += [*both("training.mlp", 1.0, 0.2, copies=0.01)]
    for i in range(9):
        marks += both(f"mine.fast{i}", 1.0, 0.1, copies=0.01)
    assert answered(tmp_path, marks).sentence == (
        f"Synthetic H against Synthetic, 2 threads: 100× on {MATMUL.words}, 10× on models.mlp, n=64, "
        "5.0× on training.mlp, n=64, and 9 more below. With inputs and results copied for every call: "
        f"33× on {MATMUL.words}, 8.3× on models.mlp, n=64, 4.5× on training.mlp, n=64."
    )


def test_what_argues_against_the_gpu_is_in_the_sentence(tmp_path: Path) -> None:
    marks = [*both("matmul.square", 1.0, 0.01, copies=0.01), *both("models.mlp", 1.0, 0.1, copies=0.01)]
    marks += [*both("training.mlp", 1.0, 0.2, copies=0.01), *both("elementwise.add", 1.0, 0.02, copies=2.0)]
    sentence = answered(tmp_path, marks).sentence
    assert f"50× on {ELEMENTWISE.words} (only if the data stays on the device)" in sentence
    assert f"4.0× slower on {ELEMENTWISE.words}" in sentence


def test_a_verdict_counts_the_workloads_that_agree(tmp_path: Path) -> None:
    wins = [*both("linear_algebra.qr", 1.0, 0.1, copies=0.01), *both("linear_algebra.svd", 1.0, 0.3, copies=0.01)]
    (row,) = by_name(answered(tmp_path, [*wins, *both("linear_algebra.solve", 1.0, 2.0, copies=0.01)])).values()
    assert (row.ends, row.worth) == ("2.0× slower to 10×", "✓ worth it, 2 of 3")
    losers = [*both("linear_algebra.svd", 1.0, 1.5), *both("linear_algebra.solve", 1.0, 2.0)]
    (row,) = by_name(answered(tmp_path, [*wins[:2], *losers])).values()
    assert row.worth == "✗ no, 2 of 3"


def test_not_every_size_where_one_workload_loses(tmp_path: Path) -> None:
    def sized(workload: str, gpu: float) -> list[dict[str, Any]]:
        return [each for n in (32, 64) for each in both(workload, 1.0, gpu, n=n)]

    wins = [*sized("linear_algebra.qr", 0.1), *sized("linear_algebra.svd", 0.2)]
    (row,) = by_name(answered(tmp_path, wins)).values()
    assert row.faster_from == EVERY_SIZE
    (row,) = by_name(answered(tmp_path, [*wins, *sized("linear_algebra.solve", 2.0)])).values()
    assert row.faster_from == "depends"
    (row,) = by_name(answered(tmp_path, [*wins, *both("linear_algebra.solve", 1.0, 2.0)])).values()
    assert row.faster_from == "depends"  # one size has no crossover


def test_networks_have_no_median_and_what_does_not_fill_the_gpu_is_marked_and_leads_nowhere(tmp_path: Path) -> None:
    """Of an H200 that a batch of 1 keeps waiting, whoever chooses hardware was told that it trains slower."""
    peaks = {"cuda:0": {"throughput": {"float32": 1e13}}}
    marks = [
        *both("models.large", 1.0, 0.5, title="Large", work={"flops": 1e12}),  # 20% of its peak
        *both("models.small", 1.0, 4.0, title="Small", work={"flops": 1e12}),
        *both("training.step", 1.0, 2.0, title="Step", device_s=1e-3, launch_s=2e-3),
    ]
    found = answered(tmp_path, marks, ceilings=peaks)
    (card,) = found.cards
    shown = [(row.heading, row.ratio) for row in card.rows]
    assert shown == [("Large, n=64", "2.0×"), ("Step, n=64", "2.0× slower†"), ("Small, n=64", "4.0× slower†")]
    assert "2.0× on Large, n=64 (only if the data stays on the device), and 2 more below" in found.sentence
    assert f"No benchmark of {TRAINING.words} fills the GPU" in found.sentence
    assert f"gpubench run --preset full -k '{TRAINING.words}'" in found.sentence
    (table,) = answer_tables(found)
    assert UNFILLED_SIGN in table.footnote


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
    assert (Answer(study).cards[0].rows[0].heading, study.crossings) == ("Net, n=100 vs 2", [])
    other_work = [batch("cpu", 1.0, 1, 1e9), batch("cuda:0", 0.5, 100, 9e12)]  # products of matrices that size
    assert not Study([run(tmp_path, other_work, "other")]).pairs


def test_nothing_worth_it_is_said_so(tmp_path: Path) -> None:
    found = answered(tmp_path, both("matmul.square", 1.0, 0.9, copies=0.1))
    assert "nothing is reliably 1.5× faster" in found.sentence


def test_noise_is_no_number_and_never_typical(tmp_path: Path) -> None:
    marks = [*both("elementwise.add", 1.0, 0.02), *both("elementwise.exp", 1.0, 0.5, spread=0.9)]
    (row,) = by_name(answered(tmp_path, marks)).values()
    assert (row.ratio, len(row.known)) == ("50×", 1)
    (row,) = by_name(answered(tmp_path, marks[2:])).values()
    assert (row.ratio, row.verdict) == (Doubt.TOO_NOISY, Verdict.UNSURE)


def test_a_speedup_needs_no_peak_and_is_never_withheld_for_one(tmp_path: Path) -> None:
    marks = both("matmul.square", 1.0, 0.01, work={"flops": 1e12})
    found = answered(tmp_path, marks, ceilings={"cuda:0": {"throughput": {"float32": 1e13}}})
    (row,) = by_name(found).values()
    assert row.ratio == "100×"
    assert Concern.ABOVE_PEAK in concerns(found)


def test_half_precision_never_leads_and_is_named_where_it_is_alone(tmp_path: Path) -> None:
    marks = [*both("matmul.square", 1.0, 0.001, dtype="float16"), *both("matmul.square", 1.0, 0.1)]
    assert [row.name for row in by_name(answered(tmp_path, marks)).values()] == [MATMUL.heading]
    (row,) = by_name(answered(tmp_path, marks[:2])).values()
    assert row.name == f"{MATMUL.heading}, float16"


def test_titles_are_what_people_read_and_type(tmp_path: Path) -> None:
    study = Study([run(tmp_path, both("mine.net", 1.0, 0.1, title="ResNet-9"))], expression="resnet-9 n=64")
    (row,) = by_name(Answer(study)).values()
    assert row.name == "ResNet-9"


def test_a_cpu_alone_has_its_times_and_a_hint(tmp_path: Path) -> None:
    work = {"flops": 1e9, "bytes": 1e6}
    marks = [mark("matmul.square", "cpu", 0.01, work=work), mark("elementwise.add", "cpu", 1e-3, work={"bytes": 1e6})]
    peaks = {"cpu": {"throughput": {"float32": 1.25e11}}}
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings=peaks)
    assert found.cards == []
    assert found.sentence.startswith(
        f"Synthetic, 2 threads: 100 GFLOP/s in {MATMUL.words} (n=64, 80% of peak), 1.00 GB/s"
    )
    assert [row.result.workload for row in found.times] == ["matmul.square", "elementwise.add"]
    assert "no CUDA or ROCm support" in found.hint


def test_a_rate_above_its_peak_is_not_led_with(tmp_path: Path) -> None:
    marks = [mark("matmul.square", "cpu", 0.01, work={"flops": 1e9})]
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings={"cpu": {"throughput": {"float32": 5e10}}})
    assert "GFLOP/s" not in found.sentence
    assert Concern.ABOVE_PEAK in concerns(found)


def test_of_a_device_whose_peaks_are_disproved_no_share_is_shown_anywhere(tmp_path: Path) -> None:
    flags = ("implausible",)
    marks = [mark(f"mine.{name}", "cpu", 0.01, work={"flops": 1e9}, flags=flags) for name in "abcd"]
    peaks = {"cpu": {"throughput": {"float32": 5e10}}}
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings=peaks)
    assert Concern.ABOVE_PEAK not in concerns(found)
    assert "4 of 4 results exceed them" in warning(found, Concern.NO_PEAK).where
    assert {row["utilisation"] for row in reading.results(found.study)} == {None}
    assert not any(row.doubt or row.noisy for row in found.study.measured)  # their rates are shown
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
    assert (Concern.NO_PEAK in concerns(found)) == warned


@pytest.mark.parametrize(("count", "shown"), [(4, 4), (12, 12), (45, 40)])
def test_of_many_own_benchmarks_the_slowest_lead(tmp_path: Path, count: int, shown: int) -> None:
    marks = [mark(f"mine.work{i}", "cpu", 1e-3 * (i + 1)) for i in range(count)]
    found = answered(tmp_path, marks, devices=(records.CPU,))
    (table,) = answer_tables(found)
    assert len(table.rows) == shown
    assert (f"{count - shown} more are in the CSV files" in table.note) == (count > shown)
    assert found.times[0].result.workload == f"mine.work{count - 1}"
    assert f"{count} benchmarks take 1.00 ms (mine.work0) to" in found.sentence


def test_without_a_known_device_there_is_no_hint_on_gpus(tmp_path: Path) -> None:
    marks = [records.benchmark(Case("mine.parse", "", "", {}), 1e-3)]
    assert answered(tmp_path, marks, devices=()).hint == ""


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
        ({"flags": ("contended",)}, (), {Concern.BUSY}),
        ({}, ("noisy",), {Concern.NOISY}),
        ({"processes": 1}, (), {Concern.ONE_PROCESS}),
        ({"preset": "smoke"}, ("noisy",), {Concern.SMOKE}),
        ({"devices": (records.CPU, {**records.GPU, "simulated": True})}, (), {Concern.SIMULATED}),
        ({}, (), set()),
    ],
)
def test_what_a_reader_must_know_first(
    tmp_path: Path, how: dict[str, Any], flags: tuple[str, ...], expected: set[Concern]
) -> None:
    more = {"medians": (1.0,)} if how.get("processes") == 1 else {}
    marks = [mark(f"mine.work{i}", "cpu", 1.0, flags=flags, **more) for i in range(3)]
    known = {Concern.BUSY, Concern.NOISY, Concern.ONE_PROCESS, Concern.SMOKE, Concern.SIMULATED}
    assert concerns(answered(tmp_path, marks, **how)) & known == expected


def test_a_warning_says_where_and_what_to_try(tmp_path: Path) -> None:
    marks = [mark(f"mine.work{i}", "cpu", 1.0, flags=("noisy",) * (i < 2)) for i in range(3)]
    busy = warning(answered(tmp_path, marks, flags=("contended",)), Concern.BUSY)
    assert "2 of 3" in busy.where
    assert "--threads 1" in busy.try_  # of two: other people's programs can't be closed


def test_a_slow_library_is_named_unless_the_machine_was_busy(tmp_path: Path) -> None:
    """A GPU that is held against it would win by as much more."""
    slow = {"throughput": {"float32": 1e11}, "ways": {"float32": {"torch": 4e10, "numpy": 1e11}}}
    marks, peaks = [mark("mine.work", "cpu", 1.0)], {"cpu": records.ceilings("cpu") | slow}
    told = warning(answered(tmp_path, marks, ceilings=peaks), Concern.SLOW_LIBRARY)
    assert "PyTorch's float32 products run at 40% of what NumPy reaches" in told.where
    assert Concern.SLOW_LIBRARY not in concerns(answered(tmp_path, marks, ceilings=peaks, flags=("contended",)))


def test_a_smoke_run_answers_nothing(tmp_path: Path) -> None:
    found = answered(tmp_path, both("matmul.square", 1.0, 0.01), preset="smoke")
    assert (found.cards, "--preset quick" in found.sentence) == ([], True)


def test_several_gpus_are_compared_with_the_slowest_and_not_with_their_cpus(tmp_path: Path) -> None:
    """An H200 against its own CPU and a laptop's GPU against its own say nothing of each other."""
    gpus = [{**records.GPU, "label": label} for label in ("NVIDIA RTX 4060", "NVIDIA H200")]
    runs = [
        run(tmp_path, both("models.mlp", cpu, gpu), name, devices=(records.CPU, device))
        for name, device, cpu, gpu in (("laptop", gpus[0], 1.0, 0.2), ("server", gpus[1], 0.4, 0.1))
    ]
    for order in (runs, runs[::-1]):
        found = Answer(Study(order))
        (card,) = found.cards
        assert (card.device, card.baseline, card.of_gpus) == ("H200", "RTX 4060", True)
        assert found.sentence == "H200 against RTX 4060: 2.0× on models.mlp, n=64."
        in_the_picture = {pair.base.facts.label for pair in found.study.gpu_pairs}
        assert in_the_picture == {"NVIDIA RTX 4060"}  # as in the sentence above it, whichever file came first


def test_a_machine_without_a_gpu_stands_beside_several_gpus(tmp_path: Path) -> None:
    """The machine that somebody has now, to whom two GPUs are offered."""
    runs = [
        run(tmp_path, both("models.mlp", cpu, gpu), name, devices=(records.CPU, {**records.GPU, "label": label}))
        for name, label, cpu, gpu in (("laptop", "RTX 4060", 1.0, 0.2), ("server", "H200", 0.4, 0.1))
    ]
    mine = run(tmp_path, [mark("models.mlp", "cpu", 2.0)], "mine", devices=({**records.CPU, "label": "Old CPU"},))
    for order in ([mine, *runs], [*runs, mine]):
        found = Answer(Study(order))
        ratios = {card.device: [row.ratio for row in card.rows] for card in found.cards}
        assert ratios == {"H200": ["2.0×"], "Old, 2 threads": ["10× slower"]}
        assert "Old, 2 threads against RTX 4060: 10× slower on models.mlp, n=64." in found.sentence
        (table,) = answer_tables(found)
        assert "10× slower" in "\n".join(terminal(table, 100))


def test_a_third_run_changes_nothing_between_the_other_two(tmp_path: Path) -> None:
    def machine(name: str, seconds: float, sizes: tuple[int, ...]) -> Any:
        marks = [mark("matmul.square", "cuda:0", seconds * n, n=n) for n in sizes]
        return run(tmp_path, marks, name, devices=(records.CPU, {**records.GPU, "label": name}))

    one, two, third = machine("A", 4.0, (1, 2, 4)), machine("B", 1.0, (1, 2, 4)), machine("C", 2.0, (1,))
    pair = {card.device: [row.ratio for row in card.rows] for card in Answer(Study([one, two])).cards}
    every = Answer(Study([one, two, third])).cards
    assert {card.device: [row.ratio for row in card.rows] for card in every}["B"] == pair["B"] == ["4.0×"]
    (of_b,) = [card for card in every if card.device == "B"]
    assert [each.other.size for each in of_b.rows[0].pairs] == [4]


def test_machines_without_a_gpu_are_compared_by_their_cpus(tmp_path: Path) -> None:
    marks = {name: [mark("matmul.square", "cpu", seconds)] for name, seconds in (("one", 2.0), ("two", 1.0))}
    runs = [
        run(tmp_path, made, name, devices=({**records.CPU, "label": f"CPU {name}"},)) for name, made in marks.items()
    ]
    (card,) = Answer(Study(runs)).cards
    assert (card.of_gpus, card.alike, [row.ratio for row in card.rows]) == (False, True, ["2.0×"])


def test_nothing_measured_is_said_so(tmp_path: Path) -> None:
    data = records.run_file([], [records.unmeasured(Case("a.b", "cpu", "float32"))])
    assert Answer(Study([reading.run_of(tmp_path, data)])).sentence == "Nothing was measured."


def test_another_library_on_a_gpu_has_a_card_of_its_own_only_where_torch_has_none(tmp_path: Path) -> None:
    jax = [
        mark("matmul.square", device, time, implementation="jax") for device, time in (("cpu", 8.0), ("cuda:0", 2.0))
    ]
    (card,) = answered(tmp_path, jax).cards
    assert card.device == "Synthetic H · JAX"
    (card,) = answered(tmp_path, [*jax, *both("matmul.square", 9.0, 1.0)]).cards
    assert card.device == "Synthetic H"


def test_a_device_that_calls_itself_modelled_is_warned_of_even_in_short(tmp_path: Path) -> None:
    gpu = {**records.GPU, "label": "NVIDIA H200 (modelled)"}
    marks = both("matmul.square", 1.0, 0.01)
    found = Answer(Study([reading.run_of(tmp_path, records.run_file(marks, devices=(records.CPU, gpu)))]))
    told = warning(found, Concern.SIMULATED)
    assert "NVIDIA H200 (modelled)" in str(told)
    assert "H200 (modelled)" in told.brief


def test_of_results_that_are_mostly_noisy_the_sound_ones_are_named(tmp_path: Path) -> None:
    marks = [mark(workload, "cpu", 1.0, flags=("noisy",)) for workload in ("a.a", "a.b", "a.c")]
    assert "not noisy: a.sound" in str(
        warning(answered(tmp_path, [*marks, mark("a.sound", "cpu", 1.0)]), Concern.NOISY)
    )


def test_a_number_of_the_sentence_has_its_star(tmp_path: Path) -> None:
    work = {"work": {"flops": 1e9}}
    for flags, star in (((), ""), (("noisy",), "*")):
        product = mark("matmul.square", "cpu", 1.0, flags=flags, **work)
        assert f"1.00 GFLOP/s{star} in matrix products" in answered(tmp_path, [product]).sentence
        sides = [product, mark("matmul.square", "cuda:0", 0.01)]
        assert f"100×{star} on matrix products" in answered(tmp_path, sides).sentence


def test_a_gpu_as_the_baseline_is_that_of_the_other_machines_gpu(tmp_path: Path) -> None:
    devices = [(records.CPU, {**records.GPU, "label": f"NVIDIA {name}"}) for name in ("A100", "H100")]
    runs = [run(tmp_path, both("matmul.square", 1.0, 0.1 / i), f"r{i}", devices=of) for i, of in enumerate(devices, 1)]
    assert "H100 against A100: 2.0×" in Answer(Study(runs, "A100")).sentence


def test_a_row_says_why_its_speedup_is_unknown(tmp_path: Path) -> None:
    marks = both("matmul.square", 1.0, 0.1, medians=(1.0,), flags=("contended",))
    (card,) = answered(tmp_path, marks).cards
    assert card.rows[0].ratio == Doubt.BUSY
