"""The ending of a run: the answer within 36 lines of 80 columns, and benchmarks without a time."""

import re
from pathlib import Path

import pytest
from reading import study_of
from records import run

from gpubench.report import words
from gpubench.report.answer import Warning
from gpubench.report.results import MOST_LINES, WIDTH, answer_screen, everything, findings, list_warnings
from gpubench.runfile.runs import read

ROOT = Path(__file__).parents[2]
FILES = [Path("out") / name for name in ("report.html", "summary.md", "results.csv")]


def test_on_a_cpu_alone_it_is_the_times_and_why_there_is_no_gpu():
    study = study_of(read(ROOT / "results/xeon-2-cores/run.json"))
    lines = answer_screen(study, files=FILES, elapsed_s=684)
    assert lines[0] == "197 benchmarks in 11 min 24 s · Intel Xeon, 2 threads · PyTorch 2.13.0"
    assert lines[1].startswith("No GPU used")
    assert any(line.startswith("WARNING: ") for line in lines)
    assert any("48.2 ms" in line and "94%" in line for line in lines)
    assert [name in line for name, line in zip(("report.html", "results.csv"), lines[-2:], strict=True)] == [True, True]
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH


def test_a_ratio_has_its_star_and_no_range_beside_other_programs():
    one = run().bench("mine.work", cpu=(1.0,), flags=("contended",)).bench("mine.work", gpu=0.01)
    line, *_ = findings(study_of(one))
    assert line == "mine.work, float32: Synthetic H is 100×* as fast as Synthetic, 2 threads."


@pytest.mark.parametrize(("count", "machines"), [(3, 1), (12, 1), (60, 1), (60, 2)])
def test_it_is_never_longer_than_a_screen(count, machines):
    runs = [run(name, flags=("contended",)) for name in "ab"[:machines]]
    for one in runs:
        for i in range(count):
            one.bench(f"mine.w{i}", cpu=1.0, gpu=0.1, flags=("noisy",))
    lines = answer_screen(study_of(*runs, baseline="cpu"), files=FILES)
    assert len(lines) <= MOST_LINES == 36
    assert "noisy: may be far off" in " ".join(lines)  # several tables have fewer rows each, and their small print
    assert machines > 1 or sum(line.startswith("mine.w") for line in lines) == min(count, 15)
    assert ("more in the report" in " ".join(lines)) == (count > 15)


def test_where_much_is_to_be_said_the_table_has_as_many_rows_as_there_is_room_for():
    one = run(flags=("contended",))
    for i in range(30):
        one.bench(f"mine.w{i}", cpu=1.0, gpu=0.1, flags=("noisy",)).skip("mine.s", reason=f"{'no ' * 30}{'x' * i}")
    lines = answer_screen(study_of(one), 48, files=FILES)
    assert 34 <= len(lines) <= 36
    assert "… the rest is in summary.md" not in lines
    for i in range(9):
        how = {"way": "in a configuration of many words", "flags": ("noisy",)}
        one.bench(f"mine.a_long_name_of_a_benchmark{i}", cpu=1.0, gpu=0.1, **how)
    assert "noisy: may be far off" in " ".join(
        answer_screen(study_of(one, expression="long or mine.s"), 32, files=FILES)
    )
    runs = [run(name, cpu={"label": name}).bench("mine.w", cpu=1.0) for name in "aabcdef"]
    assert answer_screen(study_of(*runs), 500)[0].count("; ") == 3  # a machine of two runs is named once
    assert answer_screen(study_of(*runs), 500)[0].endswith(" and 2 more")


def test_failed_and_skipped_ones_are_counted_by_their_reasons():
    """Reasons that differ in their quantities are one; a long one is cut."""
    reasons = ["needs a GPU; this run uses: cpu"] * 2 + [f"one call takes {i} s" for i in range(3)] + ["x" * 300]
    reasons += [f"too slow for quick: {work} in 3 s: smaller" for work in ("9.1 GFLOP", "9.2 TFLOP", "1 GB", "2 kB")]

    def ending(*reasons):
        one = run().bench("a.d", cpu=1.0).skip("a.c", "crashed", "killed by SIGSEGV")
        for reason in reasons:
            one.skip("a.b", reason=reason)
        return " ".join(answer_screen(study_of(one), files=FILES))

    skipped = "Skipped: 4 (too slow for quick: 9.1 GFLOP in 3 s: smaller), 3 (one call takes 0 s), 2 (needs a GPU; this"
    assert skipped in ending(*reasons)
    assert "Failed: 1 (a.c float32 on Synthetic)." in ending()
    assert 20 < ending("x" * 300).count("x") < 70
    long = "too slow for the preset quick: one call takes 1.2 s (seen in warm-up); 3 must fit in 3 s: make it smaller"
    assert "(too slow for the preset quick: one call takes 1.2 s (seen i…)" in ending(long)


def test_what_failed_is_told_apart_by_size_dtype_and_device():
    one = run().bench("a.d", cpu=1.0, gpu=1.0)
    for n, device in ((8, "cpu"), (9, "cpu"), (8, "cuda:0"), (7, "cpu")):
        one.skip("a.c", "error", "wrong", device, n=n)
    *_, line, _, _ = answer_screen(study_of(one), width=200, files=FILES)
    assert line == "Skipped: 0. Failed: 4 (a.c float32, n=8 on Synthetic; a.c float32, n=9 on Synthetic and 2 more)."


def test_warnings_that_have_no_room_say_what_is_wrong():
    warnings = [Warning("word " * 12, advice="Try this.")]
    warnings += [Warning("3 results above the peak of X (modelled)", " (a, b): too low", "No shares.")] * 2
    lines = list_warnings(warnings, 60)
    assert lines[0].startswith("WARNING: word")
    assert lines[-2:] == [
        "Also: 3 results above the peak of X (modelled); 3 results",
        "  above the peak of X (modelled) (see summary.md).",
    ]


def test_a_folder_of_any_name_is_one_line_of_printable_characters():
    study = study_of(run().bench("a.b", cpu=1.0))
    (line,) = [line for line in answer_screen(study, 200, files=[Path("a\x1b[1m\nb/report.html")]) if "Report" in line]
    assert line.isprintable()


def test_benchmarks_are_named_apart_wherever_their_long_names_differ():
    long = [f"{'pipeline_' * 5}{middle}{'_rotate' * 5}{end}" for middle in "ab" for end in "cd"]
    one = run(processes=1)
    for name in long:
        one.bench(f"long.{name}", cpu=1.0, dtype="").bench("long.one", cpu=1.0, dtype="", path=name)
    study = study_of(one)
    labels = [
        re.split("  +", line)[0] for line in everything(study, 200) if "64" in line or line.startswith("long.one")
    ]
    for names in ([words.benchmark(row.result) for row in study.rows], labels):
        assert len(set(names)) == len(names) == 8
