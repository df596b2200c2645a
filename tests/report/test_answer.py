"""The sentence, the cards and the warnings, from hand-made records."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import records

from gpubench.report import answer, judgement, labels, machines, speedup, table
from gpubench.report.answer import Answer, AnswerRow
from gpubench.report.judgement import IF_IT_STAYS, NOT_WORTH_IT, TOO_NOISY, UNSURE, WORTH_IT
from gpubench.runfile import reader
from gpubench.runfile.schema import Case

BOTH = (records.CPU, records.GPU)


def mark(workload: str, device: str, seconds: float, n: int = 64, copies: float | None = None, dtype: str = "float32",
         spread: float = 0.01, **how: Any) -> dict[str, Any]:  # fmt: skip
    """Three processes, ``spread`` apart; ``copies`` each way."""
    case = Case(workload, device, dtype, {"n": n}, size="n", devices=(device,))
    medians = (seconds * (1 - spread), seconds, seconds * (1 + spread))
    if copies is not None:
        how["transfer"] = {"in_bytes": n, "out_bytes": n, "in_s": copies, "out_s": copies}
    made = records.benchmark(case, seconds, medians=medians, **how)
    for process in made["extra_info"]["gpubench"]["processes"]:
        process["latency_s"] = process["median_s"]
    return made


def both(workload: str, cpu: float, gpu: float, **how: Any) -> list[dict[str, Any]]:
    dtype = how.get("dtype", "float32")
    return [mark(workload, "cpu", cpu, n=how.get("n", 64), dtype=dtype), mark(workload, "cuda:0", gpu, **how)]


def answered(folder: Path, marks: list[dict[str, Any]], preset: str = "quick", **how: Any) -> Answer:
    path = folder / "run.json"
    how.setdefault("devices", BOTH)
    data = records.run_file(marks, processes=3, **how)
    data["gpubench"]["preset"] = preset
    path.write_text(json.dumps(data))
    run = reader.read(path)
    results = table.results_table([run])
    pairs = speedup.pair(results).table
    return answer.answer(results, pairs, judgement.crossover_table(pairs, labels.Names(results)), [run])


def by_name(found: Answer) -> dict[str, AnswerRow]:
    (card,) = found.cards
    return {row.name: row for row in card.rows}


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
    assert (card.device, card.baseline) == ("Synthetic H-GPU", "Synthetic CPU")
    assert [row.name for row in card.rows] == ["n × n matrix products", "Elementwise work", "mine.work"]
    square, elementwise, mine = card.rows
    assert (square.typically, square.copies, square.verdict) == ("100×", "33×", WORTH_IT)
    assert (elementwise.typically, elementwise.range) == ("50×", "25× to 100×")
    assert elementwise.row is not None
    assert elementwise.row["workload"] == "elementwise.add"  # a measured case, not a mean
    assert (elementwise.copies, elementwise.worth) == ("4.0× slower", "◐ if the data stays")
    assert (mine.typically, mine.verdict) == ("2.0× slower", NOT_WORTH_IT)
    assert found.sentence == (
        "Synthetic H: 100× on matrix products (n=64, with copies 33×); only if the data stays on the device: "
        "50× on elementwise work; not worth it: mine.work."
    )


def test_the_sentence_names_every_kind_of_work_in_forty_words(tmp_path: Path) -> None:
    marks = [
        *both("matmul.square", 1.0, 0.01, copies=0.01),
        *both("models.mlp", 1.0, 0.1, copies=0.01),
        *both("training.mlp", 1.0, 0.2),
        *both("elementwise.add", 1.0, 0.02, copies=2.0),
        *both("matmul.batched", 1.0, 0.7),
    ]
    assert answered(tmp_path, marks).sentence == (
        "Synthetic H: 100× on matrix products (n=64, with copies 33×), 10× on networks (with copies 8.3×); "
        "only if the data stays on the device: 5.0× on training, 50× on elementwise work; "
        "not worth it: other matrix products."
    )
    for i in range(9):
        marks += [*both(f"mine.fast{i}", 1.0, 0.1, copies=0.01), *both(f"mine.slow{i}", 1.0, 2.0)]
    words = answered(tmp_path, marks).sentence
    assert len(words.split()) <= answer.MOST_WORDS
    assert words.startswith("Synthetic H: 100× on matrix products (n=64), 10× on networks and 9 more; only if")
    assert "not worth it: mine.slow0, mine.slow1 and 8 more." in words


def test_one_workload_that_loses_is_named_in_the_verdict(tmp_path: Path) -> None:
    wins = [*both("training.cifar", 1.0, 0.1, copies=0.01), *both("training.lenet", 1.0, 0.3, copies=0.01)]
    (row,) = by_name(answered(tmp_path, [*wins, *both("training.tabular", 1.0, 2.0, copies=0.01)])).values()
    assert (row.range, row.worth) == ("2.0× slower to 10×", "± depends: not tabular")
    losers = [*both("training.lenet", 1.0, 1.5), *both("training.tabular", 1.0, 2.0)]
    found = answered(tmp_path, [*wins[:2], *losers])
    assert by_name(found)["Training networks"].worth == "± depends: only cifar"
    assert found.sentence.endswith("not worth it: training (only cifar).")


def test_not_every_size_where_one_workload_loses(tmp_path: Path) -> None:
    def sized(workload: str, gpu: float) -> list[dict[str, Any]]:
        return [each for n in (32, 64) for each in both(workload, 1.0, gpu, n=n)]

    wins = [*sized("training.cifar", 0.1), *sized("training.lenet", 0.2)]
    (row,) = by_name(answered(tmp_path, wins)).values()
    assert row.since == "every size measured"
    (row,) = by_name(answered(tmp_path, [*wins, *sized("training.tabular", 2.0)])).values()
    assert row.since == "depends"
    (row,) = by_name(answered(tmp_path, [*wins, *both("training.tabular", 1.0, 2.0)])).values()
    assert row.since == "depends"  # one size has no crossover


def test_nothing_worth_it_is_said_so(tmp_path: Path) -> None:
    found = answered(tmp_path, both("matmul.square", 1.0, 0.9, copies=0.1))
    assert found.sentence == (
        "Synthetic H: nothing is surely 1.5× as fast as on Synthetic CPU; not worth it: matrix products (n=64)."
    )


def test_noise_is_no_number_and_never_typical(tmp_path: Path) -> None:
    noisy = both("elementwise.add", 1.0, 0.001, spread=0.7)
    (row,) = by_name(answered(tmp_path, noisy)).values()
    assert (row.typically, row.verdict, row.row) == (TOO_NOISY, UNSURE, None)
    (row,) = by_name(answered(tmp_path, [*noisy, *both("elementwise.exp", 1.0, 0.1)])).values()
    assert row.typically == "10×"
    assert row.range == "9.8× to 10×"  # of the one that is known


def test_what_beats_a_peak_by_far_is_no_answer(tmp_path: Path) -> None:
    marks = both("matmul.square", 1.0, 0.01, work={"flops": 1e12})
    found = answered(tmp_path, marks, ceilings={"cuda:0": {"throughput": {"float32": 5e13}}})
    row = by_name(found)["n × n matrix products"]
    assert (row.typically, row.verdict) == ("—", UNSURE)
    assert "1 result above 100% of the measured peak, which can't be (matmul.square)" in found.warnings[0]


def test_half_precision_never_leads_and_is_named_where_it_is_alone(tmp_path: Path) -> None:
    halves = both("matmul.square", 1.0, 0.001, dtype="float16")
    (row,) = by_name(answered(tmp_path, [*halves, *both("matmul.square", 1.0, 0.1)])).values()
    assert (row.name, row.typically) == ("n × n matrix products", "10×")
    (row,) = by_name(answered(tmp_path, halves)).values()
    assert (row.name, row.typically) == ("n × n matrix products, float16", "1,000×")


def sweep(workload: str, crossing: float) -> list[dict[str, Any]]:
    """Twice as fast on the device each time the size doubles, equal at ``crossing``."""
    return [each for n in (32, 64, 128, 256) for each in both(workload, n / crossing, 1.0, n=n)]


def test_sizes_come_from_the_intervals(tmp_path: Path) -> None:
    (row,) = by_name(answered(tmp_path, sweep("matmul.square", 72))).values()
    assert row.since == "n ≈ 72"
    (row,) = by_name(answered(tmp_path, [*sweep("elementwise.add", 45), *sweep("elementwise.exp", 180)])).values()
    assert row.since == "n ≈ 45 to 180"


def test_a_cpu_alone_has_its_times_and_a_hint(tmp_path: Path) -> None:
    marks = [
        mark("matmul.square", "cpu", 0.01, work={"flops": 1e9}),
        mark("elementwise.add", "cpu", 0.01, work={"bytes": 1e8}, flags=("noisy",)),
        *(mark(f"mine.w{i}", "cpu", 0.02) for i in range(9)),
    ]
    ceilings = {"cpu": {"throughput": {"float32": 2e11}}}
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings=ceilings)
    assert found.cards == ()
    assert found.sentence == (
        "Synthetic CPU, 2 threads: 100 GFLOP/s in matrix products (n=64, 50% of peak), 10.0 GB/s in elementwise work."
    )
    assert found.hint.startswith("No GPU used: this PyTorch build (+cpu) has no CUDA or ROCm support.")
    names = [cells.name for cells in found.times]
    assert len(names) == 10
    assert {f"mine.w{i} float32, n=64" for i in range(9)} <= set(names)  # one's own work always has a row
    assert found.times[0] == ("matmul.square float32, n=64", "10.0 ms", "100 GFLOP/s", "50%")
    (noisy,) = answered(tmp_path, marks[1:2], devices=(records.CPU,)).times
    assert noisy.time == "10 ms*"  # no third digit of what may be far off


def test_benchmarks_of_no_kind_have_their_range_and_rows_for_several_settings(tmp_path: Path) -> None:
    """A folder of two parametrised tests isn't told by one time, and its table has room."""
    marks = [mark(name, "cpu", 1e-3 * n, n=n) for name in ("mine.a", "mine.b") for n in (1, 2, 30)]
    found = answered(tmp_path, marks, devices=(records.CPU,))
    assert found.sentence == "Synthetic CPU, 2 threads: 6 benchmarks take 1.00 ms (mine.a) to 30.0 ms (mine.b)."
    assert [cells.name.replace(" float32, n=", " ") for cells in found.times] == [
        *("mine.a 30", "mine.a 1", "mine.a 2", "mine.b 30", "mine.b 1", "mine.b 2")
    ]
    one = answered(tmp_path, marks[:1], devices=(records.CPU,))
    assert one.sentence == "Synthetic CPU, 2 threads: mine.a takes 1.00 ms."


def test_what_has_no_row_is_counted(tmp_path: Path) -> None:
    shipped = [mark("matmul.square", "cpu", 0.1), mark("models.lenet", "cpu", 0.1)]
    own = [mark("mine.a", "cpu", 1e-3, n=n) for n in range(1, 13)]
    found = answered(tmp_path, [*shipped, *own], devices=(records.CPU,))
    shown = sum(each.name.startswith("mine") for each in found.times)
    assert (len(found.times), found.more) == (10, 12 - shown)
    assert shown < 10


def test_of_many_own_benchmarks_the_slowest_lead(tmp_path: Path) -> None:
    """Not those of the first file."""
    marks = [mark(f"file{i % 5}.w{i}", "cpu", 1e-3 * (1 + i * 7 % 50)) for i in range(50)]
    found = answered(tmp_path, marks, devices=(records.CPU,))
    assert (len(found.times), found.more) == (40, 10)
    assert [float(each.time.split()[0]) for each in found.times] == [float(ms) for ms in range(50, 10, -1)]


def test_of_the_settings_of_a_workload_the_slow_one_leads(tmp_path: Path) -> None:
    marks = [mark(f"file.w{i}", "cpu", 1e-3 * (1 + i)) for i in range(12)]
    modes = {mode: Case("file.z", "cpu", "float32", {"mode": mode}) for mode in ("quick", "slow")}
    marks += [records.benchmark(modes["quick"], 1e-5), records.benchmark(modes["slow"], 9.0)]
    found = answered(tmp_path, marks, devices=(records.CPU,))
    assert found.times[0][:2] == ("file.z float32, slow", "9.00 s")
    assert found.times[-1][:2] == ("file.z float32, quick", "10.0 µs")
    assert (len(found.times), found.more) == (14, 0)


def test_without_a_known_device_there_is_no_hint_on_gpus(tmp_path: Path) -> None:
    """Of a suite that doesn't use torch."""
    marks = [mark("mine.a", "", 1e-3)]
    assert answered(tmp_path, marks, devices=(records.CPU,)).hint == ""


def test_a_rate_above_its_peak_is_neither_led_with_nor_shown(tmp_path: Path) -> None:
    marks = [
        mark("matmul.square", "cpu", 0.01, work={"flops": 1e9}),
        mark("elementwise.add", "cpu", 0.01, work={"bytes": 1e8}),
    ]
    ceilings = {"cpu": {"throughput": {"float32": 5e10}}}
    found = answered(tmp_path, marks, devices=(records.CPU,), ceilings=ceilings)
    assert found.sentence == "Synthetic CPU, 2 threads: 10.0 GB/s in elementwise work."
    assert found.times[0] == ("matmul.square float32, n=64", "10 ms*", "—", "—")


def test_ones_own_work_that_was_not_verified_says_so(tmp_path: Path) -> None:
    unchecked = {"status": "unchecked", "reason": "a lambda hides its inputs"}
    marks = [mark(name, "cpu", 0.01, check=unchecked) for name in ("mine.work", "elementwise.add")]
    marks.append(mark("mine.other", "cpu", 0.01, check={"status": "passed"}))
    found = answered(tmp_path, marks, devices=(records.CPU,))
    names = {cells.name.removesuffix(" float32, n=64") for cells in found.times}
    assert names == {"elementwise.add", "mine.work (not verified)", "mine.other"}


def test_threads_pay_where_both_were_measured(tmp_path: Path) -> None:
    marks = []
    for method, seconds in (("single", 0.5), ("one thread", 0.9)):
        case = Case("model_parallel.mlp", "cpu", "float32", {"method": method}, threads=2, devices=("cpu",))
        parallel = {"method": method, "devices": 1}
        marks.append(records.benchmark(case, seconds, parallel=parallel))
    marks.append(mark("mine.work", "cpu", 1.0))
    found = answered(tmp_path, marks, devices=(records.CPU,))
    assert found.sentence.endswith("2 threads against one: 1.8× on model_parallel.mlp.")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"flags": ("contended",)}, "The machine was busy: all times may be too long, although no single result is "),
        ({}, ""),
    ],
)
def test_a_busy_machine_is_a_warning(tmp_path: Path, how: dict[str, Any], words: str) -> None:
    found = answered(tmp_path, both("mine.work", 1.0, 0.1), **how)
    assert [line.startswith(words) for line in found.warnings] == [True] * bool(words)


def test_a_smoke_run_answers_nothing(tmp_path: Path) -> None:
    found = answered(tmp_path, both("matmul.square", 5.0, 0.1), preset="smoke")
    assert found.sentence == "No answer: a smoke run is too short for one; measure with --preset quick."
    assert {row.worth for card in found.cards for row in card.rows} == {"? unsure"}


def test_smoke_and_one_process_are_warnings(tmp_path: Path) -> None:
    data = records.run_file([records.benchmark(Case("a.b", "cpu", "float32"), 1.0)])
    data["gpubench"]["preset"] = "smoke"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data))
    run = reader.read(path)
    (smoke,) = answer.warnings(table.records(table.results_table([run])), [run])
    assert smoke.startswith("Smoke run")  # and nothing else: no number of it is to be quoted
    data["gpubench"]["preset"] = "quick"
    path.write_text(json.dumps(data))
    run = reader.read(path)
    (one,) = answer.warnings(table.records(table.results_table([run])), [run])
    assert one == "One process: ranges are no confidence intervals (use --processes 3)."


def test_two_machines_have_a_card_each_against_their_own_cpu(tmp_path: Path) -> None:
    runs = []
    for name, gpu in (("a", 0.1), ("b", 0.2)):
        path = tmp_path / f"{name}.json"
        data = records.run_file(both("mine.work", 1.0, gpu), devices=BOTH, label=f"Machine {name}", processes=3)
        path.write_text(json.dumps(data))
        runs.append(reader.read(path))
    results = table.results_table(runs)
    pairs = speedup.pair(results).table
    found = answer.answer(results, pairs, judgement.crossover_table(pairs, labels.Names(results)), runs)
    assert [(card.run, card.rows[0].typically) for card in found.cards] == [("a", "10×"), ("b", "5.0×")]
    tables = machines.side_by_side(results)
    found = answer.answer(results, pairs, judgement.crossover_table(pairs, labels.Names(results)), runs, tables)
    assert [card.device for card in found.cards] == ["Synthetic H-GPU · a", "Synthetic H-GPU · b"]
    assert found.sentence == "Synthetic H · a against Synthetic H · b: 2.0× on mine.work."
    assert IF_IT_STAYS in {row.verdict for card in found.cards for row in card.rows}


def test_two_gpus_are_compared_by_kind_of_work(tmp_path: Path) -> None:
    runs = []
    for name, factor in (("a", 1.0), ("b", 0.5)):
        path = tmp_path / f"{name}.json"
        marks = [*both("matmul.square", 1.0, 0.1 * factor), *both("models.lenet", 1.0, 0.1 / factor)]
        path.write_text(json.dumps(records.run_file(marks, devices=BOTH, label=f"Machine {name}", processes=3)))
        runs.append(reader.read(path))
    results = table.results_table(runs)
    pairs = speedup.pair(results).table
    tables = machines.side_by_side(results)
    found = answer.answer(results, pairs, judgement.crossover_table(pairs, labels.Names(results)), runs, tables)
    words = "2.0× on matrix products (n=64), 2.0× slower on networks."
    assert found.sentence.endswith(words)


def test_nothing_measured_is_said_so(tmp_path: Path) -> None:
    left = [records.unmeasured(Case("a.b", "cpu", "float32", {}))]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records.run_file([], left)))
    run = reader.read(path)
    results = table.results_table([run])
    pairs = speedup.pair(results).table
    found = answer.answer(results, pairs, judgement.crossover_table(pairs, labels.Names(results)), [run])
    assert (found.sentence, found.cards, found.times) == ("Nothing was measured.", (), ())


def test_copies_alone_are_something_measured(tmp_path: Path) -> None:
    found = answered(tmp_path, [mark("transfer.create", "cpu", 1e-3)])
    assert found.sentence == "1 benchmark measured, of copies or multi-GPU work: gpubench show lists them."


def two_machines(folder: Path, times: dict[tuple[str, str], tuple[float, float]], **amounts: float) -> Answer:
    """GPUs ``L4`` and ``H200``, and their seconds by workload and dtype; their CPUs take 1 s."""
    runs = []
    for i, name in enumerate(("L4", "H200")):
        gpu = {**records.GPU, "label": f"NVIDIA {name}"}
        marks = [each for (work, dtype), gpus in times.items() for each in both(work, 1.0, gpus[i], dtype=dtype)]
        path = folder / f"{name}.json"
        path.write_text(json.dumps(records.run_file(marks, devices=(records.CPU, gpu), label=name, processes=3)))
        runs.append(reader.read(path))
    results = table.results_table(runs)
    pairs, compared = speedup.pair(results).table, machines.side_by_side(results)
    crossed = judgement.crossover_table(pairs, labels.Names(results))
    return answer.answer(results, pairs, crossed, runs, compared, machines.device_prices(results, amounts))


KINDS = ("matmul.square", "models.lenet", "models.mlp", "models.bert", "training.lenet", "elementwise.add")
FAST = {(name, "float32"): (0.2, 0.02) for name in KINDS}


def test_a_dtype_that_says_something_else_is_named_in_the_lead(tmp_path: Path) -> None:
    found = two_machines(tmp_path, FAST | {("matmul.square", "bfloat16"): (0.2, 0.4)})
    start = (
        "H200 against L4: 10× on matrix products (n=64, 2.0× slower in bfloat16), 10× on networks (median of 3), 10× "
    )
    assert found.sentence.startswith(start + "on training")


def test_the_lead_and_the_table_of_gpus_have_one_number(tmp_path: Path) -> None:
    spread = {("models.lenet", "float32"): (0.2, 0.1), ("models.bert", "float32"): (0.2, 0.005)}
    found = two_machines(tmp_path, FAST | spread)
    assert "10× on networks (median of 3)" in found.sentence  # of 2, 10 and 40
    runs = [reader.read(tmp_path / f"{name}.json") for name in ("L4", "H200")]
    results = table.results_table(runs)
    (gpus, *_) = machines.machine_tables(machines.side_by_side(results), results)
    (row,) = [row for row in gpus.rows if row[0] == "Running networks"]
    assert row == ("Running networks", "median of 3: bert, lenet, mlp", "1×", "10× (2.0× to 40×)")


def test_the_lead_says_which_device_is_cheaper_and_for_which_dtype_it_is_not(tmp_path: Path) -> None:
    opposite = {("matmul.square", "bfloat16"): (0.2, 0.2), ("models.bert", "float32"): (0.2, 0.1)}
    found = two_machines(tmp_path, FAST | opposite, H200=3.0, L4=1.0)
    price = "H200 on matrix products (not in bfloat16), networks (not bert), training, elementwise work."
    assert found.sentence.endswith(price)
    found = two_machines(tmp_path, dict(list(FAST.items())[:2]), H200=3.0, L4=0.1)
    assert "Cheaper at 0.10 (L4) and 3.00 (H200) per hour: L4 on matrix products, networks." in found.sentence
    found = two_machines(tmp_path, FAST, H200=1.0, L4=0.1)
    assert found.sentence.endswith("unsure on matrix products, networks, training, elementwise work.")


def test_the_lead_is_three_lines_and_names_networks_and_training(tmp_path: Path) -> None:
    dtypes = {("matmul.square", dtype): (0.2, 0.3) for dtype in ("bfloat16", "float16", "float64")}
    more = {(name, "float32"): (0.2, 0.1) for name in ("matmul.batched", "mine.work", "mine.other")}
    for amounts in ({}, {"H200": 2.99, "L4": 0.8}, {"L4": 0.8}):
        found = two_machines(tmp_path, FAST | dtypes | more, **amounts)
        assert len(textwrap.wrap(found.sentence, 80)) <= 3
        assert found.sentence.startswith("H200 against L4: 10× on matrix products (")
        assert all(words in found.sentence for words in ("networks", "training"))
        assert ("heaper" in found.sentence) == bool(amounts)


def test_a_single_price_says_up_to_which_price_the_device_is_cheaper(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(records.run_file(both("models.mlp", 1.0, 0.1), devices=BOTH)))
    results = table.results_table([reader.read(tmp_path / "run.json")])
    compared = machines.side_by_side(results)
    for amounts, words in (
        ({"cuda:0": 3.0}, "Synthetic H at 3.00 per hour is cheaper than Synthetic at more than 0.30 on networks."),
        ({"cpu": 0.5}, "Synthetic H is cheaper than Synthetic at 0.50 per hour up to 5.00 on networks."),
    ):
        assert answer.lead((), compared, machines.device_prices(results, amounts)).endswith(words)


def test_of_three_gpus_the_fastest_is_named(tmp_path: Path) -> None:
    devices = [{**records.GPU, "name": f"cuda:{i}", "label": name} for i, name in enumerate(("A1", "B2", "C3"))]
    marks = [mark("models.mlp", "cpu", 1.0)] + [mark("models.mlp", f"cuda:{i}", 0.1 * (3 - i)) for i in range(3)]
    (tmp_path / "run.json").write_text(json.dumps(records.run_file(marks, devices=(records.CPU, *devices))))
    results = table.results_table([reader.read(tmp_path / "run.json")])
    compared = machines.side_by_side(results)
    assert answer.lead((), compared, {}) == "Fastest of 3 GPUs: C3 on networks (2.0× the B2)."
    (gpus,) = machines.machine_tables(compared, results)
    assert gpus.columns == ("work", "benchmarks", "A1", "B2", "C3")
    assert [cell.partition(" ")[0] for cell in gpus.rows[0][2:]] == ["1×", "1.5×", "3.0×"]


def test_a_dtype_of_the_opposite_verdict_is_named_on_the_card(tmp_path: Path) -> None:
    marks = [*both("matmul.square", 1.0, 0.01, copies=0.01), *both("matmul.square", 1.0, 2.0, dtype="float64")]
    found = answered(tmp_path, marks)
    assert by_name(found)["n × n matrix products"].worth == "± depends: not float64"
    assert found.sentence == "Synthetic H: 100× on matrix products (n=64, with copies 33×, not float64)."


def test_noisy_results_are_counted_without_copies_and_without_those_above_their_peak(tmp_path: Path) -> None:
    flags = ("noisy",)
    marks = [
        *(mark(f"transfer.way{i}", "cpu", 0.01, flags=flags) for i in range(4)),
        mark("mine.above", "cpu", 0.01, flags=("implausible",)),
        mark("mine.noisy", "cpu", 0.01, flags=flags),
        mark("mine.quiet", "cpu", 0.01),
    ]
    (line,) = answered(tmp_path, marks[4:], devices=(records.CPU,), flags=("contended",)).warnings
    assert (
        line
        == "The machine was busy: 1 of 3 results are noisy (*) and may be far off. Close other programs and run again."
    )
    assert answered(tmp_path, marks, devices=(records.CPU,)).warnings == ()
    pair = both("mine.job", 1.0, 0.1)
    (line,) = answered(tmp_path, [mark("mine.job", "cpu", 1.0, flags=flags), pair[1]], preset="quick").warnings
    assert line.startswith("Many results are noisy: 1 of 2")  # a card has no stars
    assert answered(tmp_path, marks[5:6], devices=(records.CPU,)).warnings == ()  # of one its star says it
    (line,) = answered(tmp_path, marks[:4], devices=(records.CPU,)).warnings
    assert line.startswith("Many results are noisy: 4 of 4")  # there is nothing but copies


def test_another_library_on_a_gpu_has_a_card_of_its_own_only_where_torch_has_none(tmp_path: Path) -> None:
    jax = both("matmul.square", 1.0, 0.1)
    for each in jax:
        each["extra_info"]["gpubench"]["implementation"] = "jax"
    (card,) = answered(tmp_path, jax).cards
    assert card.device == "JAX on Synthetic H-GPU"
    assert card.baseline.startswith("JAX on Synthetic CPU")
    (card,) = answered(tmp_path, [*jax, *both("matmul.square", 1.0, 0.01)]).cards
    assert card.device == "Synthetic H-GPU"
