"""``gpubench estimate``: its inputs, and the output of each format."""

import csv
import io
import json
import re
import shlex
import sys
from functools import partial
from html import unescape
from types import SimpleNamespace

import pytest
import records

from gpubench.cards.model import Bound, Likely, learned_values
from gpubench.commands.cli import main
from gpubench.commands.reading import cards_named, estimates_of, show_estimates
from gpubench.commands.run import what_a_gpu_could_bring
from gpubench.estimate.outlook import Outlook
from gpubench.estimate.printing import cell
from gpubench.report.study import Study
from gpubench.runfile.quantities import text
from gpubench.runfile.runs import read

measured = partial(records.run, cuda=0, processes=1)


def product(one, n, threads=2, **times):
    operators = [{"kind": "product", "count": 1, "flops": 2.0 * n**3, "bytes": 12.0 * n * n}]
    moved = {"in_bytes": 8 * n * n, "out_bytes": 4 * n * n}
    how = {"flops": 2.0 * n**3, "bytes": 12.0 * n * n, "operators": operators, "transfer": moved}
    return one.bench("a.mm", n=n, threads=threads, **how, **times)


@pytest.fixture
def run(save):
    """A product of four sizes, one of them faster in NumPy; a benchmark of unknown work; copies."""
    one = measured()
    for n, seconds in ((8, 1e-6), (16, 1.5e-6), (1024, 2e-2), (4096, 2.0)):
        product(one, n, cpu=seconds)
    product(one, 4096, numpy=1.0).bench("a.nothing", cpu="1 ms", n=1000).bench("transfer.create", cpu="1 ms", n=1000)
    return save("run.json", one)


def rows_of(capsys, *words):
    assert main(["estimate", *words, "--format", "csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


@pytest.fixture
def estimated(save, capsys):
    def estimated(one, *words):
        """The rows of its file of values, and the words of its screen."""
        path = save("run.json", one)
        rows = rows_of(capsys, path, *words)
        assert main(["estimate", path, *words]) == 0
        return rows, " ".join(capsys.readouterr().out.split())

    return estimated


def test_each_benchmark_and_card_is_a_row_or_a_reason(run, capsys):
    rows = rows_of(capsys, run, "--gpu", "T4", "--gpu", "4090")
    heads = "id how gpu cpu_s cpu_way bound shortest_s at_most probably_low probably_high likely_low_s likely_high_s "
    heads += "with_copies_at_most rate_low rate_high unit status note"
    assert list(rows[0]) == heads.split()
    assert [row["gpu"] for row in rows] == ["T4"] * 6 + ["RTX 4090"] * 6
    assert {row["status"] for row in rows} == {"modelled"}
    by_id = {row["id"]: row for row in rows[:6]}
    assert "gpubench.declare(flops=…, nbytes=…)" in by_id["a.nothing[float32-n=1000]"]["note"]
    assert "copies" in by_id["transfer.create[float32-n=1000]"]["note"]
    assert main(["estimate", run, "--gpu=T4", "-k", "transfer"]) == 0  # the reason stands alone
    assert "measures copies, or several devices at once" in " ".join(capsys.readouterr().out.split())
    assert [float(by_id[f"a.mm[float32-n={n}]"]["at_most"]) < 1 for n in (8, 16, 1024, 4096)] == [1, 1, 0, 0]


def test_the_fastest_way_of_the_cpu_is_what_a_gpu_has_to_beat(run, capsys):
    row = {row["id"]: row for row in rows_of(capsys, run, "--gpu", "T4")}["a.mm[float32-n=4096]"]
    assert float(row["cpu_s"]) == pytest.approx(1.0)
    shortest = 2 * 4096**3 / 8.141e12 / 1.1
    assert (row["bound"], float(row["shortest_s"])) == ("arithmetic", pytest.approx(shortest))
    assert float(row["at_most"]) == pytest.approx(1 / shortest)
    copies = 12 * 4096**2 / 16e9
    assert float(row["with_copies_at_most"]) == pytest.approx(1 / (shortest + copies))
    assert 1 < float(row["probably_low"]) < float(row["probably_high"]) < float(row["at_most"])


def test_a_benchmark_of_numpy_alone_has_no_other_way(estimated):
    (row,), shown = estimated(measured().bench("time.np.dot(x, y)", numpy=1.0), "--gpu", "L4")
    assert (row["cpu_way"], "‡" in shown) == ("", False)
    assert "FLOPs of NumPy aren't counted: write it in PyTorch" in shown
    both = measured().bench("a.f", cpu=1.0, variant="compile").bench("a.f", numpy=0.5)
    assert estimated(both, "--gpu", "L4")[0][0]["cpu_way"] == "NumPy, eager"


def test_hot_and_cold_caches_are_two_benchmarks(estimated):
    one = product(product(measured(), 4096, cpu=1.0), 4096, cpu=2.0, cache="cold")
    assert [float(row["cpu_s"]) for row in estimated(one, "--gpu", "L4")[0]] == [1.0, 2.0]


def test_copies_alone_may_be_too_slow(estimated):
    moved = {"in_bytes": 8 * 10**8, "out_bytes": 4 * 10**8}
    one = measured().bench("a.add", cpu="10 ms", flops=1e8, bytes=1.2e9, transfer=moved)
    (row,), shown = estimated(one, "--gpu", "H100 SXM")
    assert row["bound"] == "memory"
    assert float(row["with_copies_at_most"]) < 1 < float(row["at_most"])
    sentence = "No GPU here is faster if the data is copied for every call: a.add"
    assert sentence in shown
    one = measured().bench("a.add", cpu="30 ms", flops=1e8, bytes=1.2e9, transfer=moved)
    assert sentence not in estimated(one, "--gpu", "H100 SXM", "--gpu", "T4")[1]  # slower on the T4 alone


def test_a_network_whose_operators_are_unknown_is_not_judged_by_its_sums(estimated):
    one, work = measured(), {"flops": 1e9, "bytes": 1e6, "operators": []}
    one.bench("models.resnet50", cpu=1.0, **work).bench("a.own", cpu=1.0, **work)
    (network, own), _ = estimated(one, "--gpu", "T4")
    assert (network["id"], network["probably_high"]) == ("models.resnet50[float32-n=64]", "")
    assert network["note"] == "its operators are unknown"
    assert float(own["probably_high"]) > 1


def test_without_an_option_the_rows_of_the_answer_stand_below_four_gpus(run, capsys):
    assert main(["estimate", run]) == 0
    shown = capsys.readouterr().out
    head, row, below = shown.splitlines()[1:4]
    places = [head.index(gpu) for gpu in ("L4", "A100 80GB SXM", "H100 SXM", "RTX 4090")]
    cells = [line[place - 2 : place + 1].split(" ") for line in (row, below) for place in places]
    assert [cell[:2] for cell in cells if cell[2]] == [["", ""]] * 8  # the times stand below the speedups
    assert not below[: places[0]].strip()
    assert shown.count("a.mm, n=4096") == 1
    assert "n=1024" not in shown
    assert "modelled, not measured" in shown


def test_dash_k_shows_all_sizes_with_the_bounds(run, capsys):
    assert main(["estimate", run, "--gpu", "T4", "-k", "a.mm"]) == 0
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "‡ the CPU's fastest way: NumPy (a.mm float32, n=4096)." in lines  # the other sizes have none
    assert lines["a.mm float32, n=8"].endswith("≥ 2.0× slower")
    assert "1.00 s‡" in lines["a.mm float32, n=4096"]
    assert ", ≤ 65×" in lines["a.mm float32, n=4096"]
    assert "a.mm float32, n=1024" in lines


def network(one, name, flops, nbytes, seconds, parameters=None, **how):
    """A convolutional network at batch 1 with 175 operators, products have a third of the bytes."""
    parts = (("convolution", 60, flops, nbytes / 3), ("normalisation", 50, 0.0, nbytes / 3))
    parts += (("elementwise", 65, 0.0, nbytes / 3),)
    operators = [dict(zip(("kind", "count", "flops", "bytes"), each, strict=True)) for each in parts]
    work = {"flops": flops, "bytes": parameters, "items": 1, "unit": "image", "operators": operators}
    return one.bench(name, cpu=seconds, batch=1, threads=2, size=None, **work, **how)


@pytest.fixture
def networks(save):
    """ResNet-50, a pass and a step, and one that no GPU here holds."""
    one = network(measured(), "models.resnet", 8e9, 3e8, 0.1, 1e8, memory_bytes=1.2e8)
    network(one, "training.resnet", 2.4e10, 1.2e9, 0.4, memory_bytes=4.9e8)
    return save("run.json", network(one, "models.vast", 8e9, 3e8, 0.1, 4e10, memory_bytes=9e10))


def test_a_network_is_estimated_in_tf32_and_under_autocast_too(networks, capsys):
    rows = rows_of(capsys, networks, "--gpu", "A100", "--gpu", "T4")
    found = {(row["id"].partition("[")[0], row["gpu"], row["how"]): row for row in rows}
    a100 = {key[2]: row for key, row in found.items() if key[:2] == ("models.resnet", "A100 80GB SXM")}
    assert list(a100) == ["", "TF32", "autocast"]
    low, middle, high = (float(row["probably_low"]) for row in a100.values())
    assert low <= middle < high
    for row in a100.values():
        assert float(row["probably_low"]) == pytest.approx(0.1 / float(row["likely_high_s"]))
        assert (float(row["rate_low"]), row["unit"]) == (pytest.approx(1 / float(row["likely_high_s"])), "image")
    low = {
        row["how"]: float(row["probably_low"]) for row in rows_of(capsys, networks, "--gpu=4090", "-k=models.resnet")
    }
    assert low["TF32"] >= low[""]
    assert found["training.resnet", "T4", "TF32"]["note"] == "no figure of the T4 in TF32"
    assert found["models.resnet", "T4", "TF32"]["probably_low"] == ""
    assert "doesn't fit into the memory of the T4" in found["models.vast", "T4", ""]["note"]


def test_under_autocast_half_the_bytes_move(estimated):
    kinds = {"convolution": (1e6, 1e3), "elementwise": (0.0, 1e11)}
    operators = [{"kind": kind, "count": 1, "flops": f, "bytes": b} for kind, (f, b) in kinds.items()]
    whole, _, half = estimated(measured().bench("own.net", cpu=9.0, flops=1e6, operators=operators), "--gpu", "A100")[0]
    assert float(half["likely_low_s"]) == pytest.approx(float(whole["likely_low_s"]) / 2, rel=0.01)


def test_a_convolution_alone_is_estimated_in_tf32_too_as_pytorch_computes_it_by_default(estimated):
    operator = {"kind": "convolution", "count": 1, "flops": 1e10, "bytes": 1e8}
    one = measured().bench("own.conv", cpu=0.03, threads=2, size=None, flops=1e10, bytes=1e8, operators=[operator])
    rows = estimated(one, "--gpu", "A100")[0]
    assert [row["how"] for row in rows] == ["", "TF32"]
    assert float(rows[0]["at_most"]) < float(rows[1]["at_most"])


def test_operators_of_a_kind_that_this_version_does_not_know_count_as_other_ones(estimated):
    rows = []
    for kind in ("other", "haunted"):
        work = {"flops": 1e8, "bytes": 1e8, "operators": [{"kind": kind, "count": 1, "flops": 1e8, "bytes": 1e8}]}
        rows += estimated(measured().bench("own.f", cpu=0.03, size=None, **work), "--gpu", "A100")[0]
    assert rows[0]["note"] == rows[1]["note"] != ""


def test_a_benchmark_without_a_time_is_not_estimated_and_the_reason_is_told(save, capsys):
    one = measured().bench("own.f", cpu=0.03, flops=1e8).skip("own.g", reason="too slow")
    assert main(["estimate", save("run.json", one), "-k", "own.g"]) == 2
    assert "no time on a CPU to estimate from: skipped, too slow" in capsys.readouterr().err


@pytest.mark.parametrize(("preset", "told"), [("glance", ["gpubench run --list -k 'FFT or svd'\n"]), ("quick", [])])
def test_what_the_smallest_preset_leaves_out_is_measured_by_the_next(save, capsys, preset, told):
    run = save("run.json", measured(preset=preset).bench("a.mm", cpu=1.0))
    assert main(["estimate", run, "-k", "FFT or svd"]) == 2
    said = capsys.readouterr().err
    assert "no benchmark matches 'FFT or svd': choose from a.mm" in said
    assert said.split("which preset quick has: ")[1:] == told


def test_dash_k_shows_each_way_with_the_gpus_time_and_the_items_per_second(networks, capsys):
    assert main(["estimate", networks, "--gpu", "A100", "-k", "models.resnet"]) == 0
    lines = {line.split("  ")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert {"models.resnet float32, batch=1", "images/s", "TF32", "autocast"} <= lines.keys()
    assert lines["benchmark"].split("  ")[-1] == "GPU time"
    row = rows_of(capsys, networks, "--gpu", "A100", "-k", "models.resnet")[-1]
    low, high = (text(float(row[f"likely_{end}_s"]), "s", 2) for end in ("low", "high"))
    assert lines["autocast"].endswith(f"  {low.removesuffix(' ms')}–{high}")
    assert "≤" in lines["images/s"]  # launches hide what the GPU could do


@pytest.mark.parametrize("every", [(), ("-k", "resnet or vast")])
@pytest.mark.parametrize("width", ["80", "100"])
def test_the_small_print_has_six_lines_at_most(networks, capsys, monkeypatch, every, width):
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["estimate", networks, *every]) == 0
    small = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    assert 3 <= len(small) <= 6
    assert max(map(len, small)) <= int(width)


def test_reasons_that_do_not_fit_the_small_print_are_cut_and_not_left_out(save, capsys, monkeypatch):
    one = network(measured(), "models.resnet", 8e9, 3e8, 0.1, 1e8)
    for i in range(6):
        one.bench(f"own.f{i}", cpu="1 ms", uncounted=f"an operator of kind {i} has no formula", n=1000)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["estimate", save("run.json", one), "-k", "own or resnet"]) == 0
    small = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    assert len(small) == 6
    assert any(line.startswith("Unknown: own.f0") for line in small)
    assert small[-1].endswith(" …")


PLAIN = measured().bench("speed.slug", cpu="1 ms", n=None, device="", dtype="", devices=()).data


@pytest.mark.parametrize(("data", "lines"), [(records.cpu_run(), 1), (records.gpu_run(), 0), (PLAIN, 0)])
def test_a_run_without_a_gpu_ends_with_the_command(tmp_path, data, lines):
    path = tmp_path / "my run.json"
    path.write_text(json.dumps(data))
    found = what_a_gpu_could_bring(read(path), path)
    assert len(found) == lines
    for line in found:
        words = shlex.split(line.partition("?")[2])
        assert words[0] == "gpubench"
        assert main(words[1:]) == 0


def test_what_time_measured_is_estimated_and_a_wrong_gpu_is_refused_before(run, capsys):
    show_estimates(study := Study([read(run)]), estimates_of(study, cards_named(["L4", "L4"])))
    shown = capsys.readouterr().out
    assert shown.count("  L4") == 1
    assert "a.mm float32, n=1024" in shown
    assert main(["time", "1 + 1", "--gpu=L5"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gpubench time: unknown GPU 'L5'")
    assert main(["time", "1 + 1", "--gpu=L4", "--device=demo"]) == 2
    assert "--gpu is estimated from the CPU's time: add --device cpu" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_every_form_says_that_it_is_modelled_and_how_often_it_held_and_is_no_results_file(run, tmp_path, capsys, form):
    out = tmp_path / f"estimate.{form}"
    assert main(["estimate", run, "--gpu", "L4", "--format", form]) == 0
    out.write_text(text := capsys.readouterr().out)
    assert "modelled" in text.lower()
    low, high = learned_values().held["products"]
    assert (f"it held {low:.0%} to {high:.0%} of the times" in " ".join(text.split())) == (form == "table")
    for words in (["show", str(out)], ["compare", run, str(out)]):
        assert main(words) == 2
        assert out.name in capsys.readouterr().err


def test_every_benchmark_has_an_estimate_or_a_reason_that_fits_it(estimated):
    sort = [{"kind": "other", "count": 1, "flops": 0, "bytes": 1e9}]
    how = {"device": "", "dtype": "", "implementation": "", "variant": "", "cache": ""}
    one = measured().bench("mine.plain", cpu=1.0, n=None, **how).bench("time.len(a)", cpu=1.0).bench("b.c", cpu=1.0)
    one.bench("b.python", cpu=1.0, memory_bytes=0)  # it was counted
    one.bench("time.randn(9) + 1", cpu=1.0, dtype="", flops=9.0)
    found, shown = estimated(one.bench("irregular.sort", cpu=1.0, bytes=1e9, operators=sort), "--gpu", "L4")
    words = (
        "instead of benchmark",
        "couldn't count the FLOPs of this call",
        "gpubench.declare(flops=",
        "no GPU speeds up",
        "no input is a tensor",
        "learned",
    )
    assert [word in row["note"] for row, word in zip(found, words, strict=True)] == [True] * 6
    assert [f"({row['note']})" in " ".join(shown.split()) for row in found] == [True] * 6


def python_beside(one, kind, seconds, flops=2e3, nbytes=8e3):
    operators = [{"kind": kind, "count": 1, "flops": flops, "bytes": nbytes}]
    return one.bench("time.split(words); x + 1", cpu=seconds, flops=flops, bytes=nbytes, operators=operators)


@pytest.mark.parametrize(
    ("kind", "flops", "seconds", "doubted"),
    [
        *(("elementwise", 2e3, 3e-5, False), ("elementwise", 2e3, 7e-3, True), ("product", 2e3, 7e-3, True)),
        *(("product", 1e9, 7e-3, False), ("other", 2e3, 7e-3, False), ("elementwise", 2e3, None, False)),
    ],
)
def test_the_time_of_python_is_not_taken_for_that_of_operators(estimated, kind, flops, seconds, doubted):
    """A CPU that reaches 1 TFLOP/s and 22 GB/s; a launch takes up to 40 µs. Without peaks nothing is known."""
    peaks = {"cpu": records.ceilings("cpu")} if seconds else {}
    one = python_beside(measured(ceilings=peaks), kind, seconds or 7e-3, flops)
    (row,), shown = estimated(one, "--gpu", "L4")
    assert ("the rest is Python's" in row["note"], "the rest is Python's" in shown) == (doubted, doubted)
    assert (row["at_most"] == row["probably_high"] == "") == doubted


@pytest.mark.parametrize(("flags", "of_run"), [((), ()), (("contended",), ()), ((), ("contended",))])
def test_each_number_of_a_busy_cpu_has_the_star(estimated, flags, of_run):
    one = product(measured(flags=[*of_run]), 4096, cpu=2.0, flags=flags)
    (row,), shown = estimated(one, "--gpu", "L4", "-k", "a.mm")
    said = "busy or noisy: the CPU's time may be too long, and the speedup too large"
    assert (said in row["note"], said in shown, "×*" in shown) == (bool(flags or of_run),) * 3
    assert float(row["probably_low"]) == pytest.approx(2.0 / float(row["likely_high_s"]))


def test_other_programs_beside_one_process_of_three_are_no_star(estimated):
    one = product(records.run(cuda=0, processes=3, flags=["contended"]), 4096, cpu=2.0)
    for process in one.data["gpubench"]["processes"][1:]:
        process["flags"] = []
    assert "busy or noisy" not in estimated(one, "--gpu", "L4")[1]


def test_a_range_that_launches_decide_is_called_launch_bound(estimated):
    """``a.medium`` on the H100 alone, and not on the T4."""
    one = measured()
    for name, nbytes in (("a.small", 8e5), ("a.medium", 8e6), ("a.large", 8e9)):
        operators = [{"kind": "elementwise", "count": 1, "flops": 0, "bytes": nbytes}]
        one.bench(name, cpu=1e-2, bytes=nbytes, operators=operators)
    for gpus, names in ((["H100"], "a.medium, a.small"), (["H100", "T4"], "a.small")):
        shown = estimated(one, *(f"--gpu={gpu}" for gpu in gpus))[1]
        assert f"Too small for these GPUs, which mostly wait for launches: {names}." in shown


def test_a_sentence_about_some_sizes_names_them(estimated):
    one = measured()
    for n in (1_000, 10_000_000):
        operators = [{"kind": "elementwise", "count": 1, "flops": 0, "bytes": 12.0 * n}]
        one.bench(
            "a.add",
            cpu=1e-9 * n,
            n=n,
            bytes=12.0 * n,
            operators=operators,
            transfer={"in_bytes": 8 * n, "out_bytes": 4 * n},
        )
    shown = estimated(one, "--gpu", "H100", "-k", "a.add")[1]
    assert "is copied for every call: a.add float32, n=1000." in shown


@pytest.mark.parametrize(("threads", "words"), [(1, "1 of 2 threads"), (2, "2 threads")])
def test_fewer_threads_than_cores_are_told(estimated, threads, words):
    one = measured().bench("a.mm", cpu=2e-2, threads=threads, flops=2e9, bytes=1e7)
    assert f"speedup over {words} of the CPU" in estimated(one, "--gpu", "T4")[1]


def test_of_a_dtype_without_figures_nothing_is_likely(estimated):
    one = product(measured(), 1024, cpu=2e-2, dtype="complex64")
    assert "GPUs' figures in complex64 are unknown" in estimated(one)[1]


@pytest.mark.parametrize(
    ("at_most", "probably", "shown", "with_bound"),
    [
        (None, None, "unknown", "unknown"),
        (37_500.0, None, "unknown", "unknown"),
        (2.6, None, "≤ 2.6×", "≤ 2.6×"),
        (0.4, (0.1, 0.3), "≥ 2.5× slower", "≥ 2.5× slower"),
        (44.0, (12.2, 33.3), "12–33×", "12–33×, ≤ 44×"),
        (2.9, (0.5, 2.9), "2.0× slower to ≤ 2.9×", "2.0× slower to ≤ 2.9×"),
        (2.9, (0.2, 0.5), "2.0–5.0× slower", "2.0–5.0× slower, ≤ 2.9×"),
        (9_000.0, (250.0, 900.0), ">200×", "250–900×"),
    ],
)
def test_a_cell_says_what_is_likely_or_else_what_is_certain(at_most, probably, shown, with_bound):
    bound, likely = at_most and Bound(1 / at_most, "", True), probably and Likely(1 / probably[1], 1.0, 1 / probably[0])
    each = Outlook(SimpleNamespace(cpu_s=1.0, star=""), None, bound, likely)
    assert (cell(each).words, cell(each, bound=True).words) == (shown, with_bound)


def test_the_picture_is_called_estimated_and_holds_the_rows_of_the_table(save, tmp_path):
    one = product(measured().bench("a.nothing", cpu="1 ms"), 4096, cpu=2.0, flags=("contended",))
    operators = [{"kind": "elementwise", "count": 1, "flops": 0, "bytes": 8e9}]
    one.bench("a.copied", cpu=99.0, bytes=8e9, operators=operators)
    run, picture = save("run.json", one), tmp_path / "e.svg"
    words = ["chart", run, "--kind", "estimate", "-o", str(picture)]
    assert main(words) == 0
    drawn = re.sub(r"\s+", " ", picture.read_text())
    for word in ("<title>Estimated speedup of GPUs over", "Estimated", ">A100 80GB SXM<", ">a.mm, n=4096<"):
        assert word in drawn, word
    assert ">a.nothing, n" not in drawn
    small = " ".join(re.findall(r">([^<>]+)</text>", drawn))
    for words in ("* busy or noisy", ">200×: a range above that", "Unknown, and not drawn: a.nothing"):
        assert words in unescape(small), words
    save("run.json", measured().bench("a.nothing", cpu="1 ms"))
    assert main(words) == 2


@pytest.mark.parametrize(("flags", "way"), [((), "np.sort(y)"), (("different-result",), "")])
def test_a_faster_expression_without_torch_is_the_cpus_way_of_the_one_beside_it(estimated, flags, way):
    how = {"in_bytes": 8 * 10**6, "out_bytes": 4 * 10**6}
    sort = [{"kind": "sort", "count": 1, "flops": 0, "bytes": 1e9}]
    one = measured().bench("time.torch.sort(x)", cpu=1.0, bytes=1e9, operators=sort, transfer=how)
    one.bench("time.np.sort(y)", cpu=0.5, flags=flags).bench("time.sorted(y)", cpu=0.7)
    rows, shown = estimated(one, "--gpu", "L4")
    ways = [(row["cpu_way"], float(row["cpu_s"])) for row in rows]
    assert ways == [(way, 0.5) if way else ("sorted(y)", 0.7), ("", 0.5), ("", 0.7)]
    assert ("‡ the CPU's fastest way: np.sort(y) (torch.sort(x))." in shown) == bool(way)


def test_work_of_which_nothing_was_learned_has_its_bound_by_memory(estimated):
    transform = [{"kind": "other", "count": 1, "flops": 0, "bytes": 1e9}]
    (row,), shown = estimated(measured().bench("a.fft", cpu=9.0, bytes=1e9, operators=transform), "--gpu", "L4")
    assert (row["bound"], row["probably_low"]) == ("memory", "")
    assert f"≤ {float(row['at_most']):,.0f}"[:5] in shown


@pytest.mark.parametrize(
    ("dtype", "seconds", "cause"),
    [
        ("float64", 0.1, "The L4 promises in float64 1/64 of its float32: a.mm."),
        ("float32", 8e-3, "The L4's peaks allow no more: a.mm."),
        ("float32", 9.0, ""),
    ],
)
def test_the_cause_of_a_small_gain_is_named(estimated, dtype, seconds, cause):
    shown = estimated(product(measured(), 4096, cpu=seconds, dtype=dtype), "--gpu", "L4")[1]
    assert cause in shown
    assert ("promises" in shown or "allow no more" in shown) == bool(cause)
