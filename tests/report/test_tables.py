"""Every table, from hand-made records: facts by column, where no name from a file breaks out of its cell."""

import pytest
import records
from reading import study_of
from records import run

from gpubench.report import tables
from gpubench.report.answer import Answer
from gpubench.report.tables import summary
from gpubench.runfile.flags import ADVICE


def test_speedups():
    one = run().bench("a.b", cpu=lambda n: n * 1e-9, gpu=lambda n: 1e-5 + n * 1e-10, n=(10**3, 10**6), copies=1e-5)
    (table,) = tables.answer_tables(Answer(study_of(one)))
    # Facts, whatever their columns are called.
    (cells,) = table.rows
    assert {"a.b, n=10⁶", "1.00 ms", "110 µs", "7.7×"} <= {*cells}
    assert [cell[:11] for cell in cells if cell.startswith(("9.1× (", "from"))] == ["9.1× (8.9× ", "from n ≈ 34"]
    assert "In brackets: 95% interval, 3 processes." in table.note
    one.bench("a.c", cpu=(1e-3, 1.1e-3), gpu="10 µs").bench("a.d", cpu=(1e-3, 1.1e-3), gpu=(1e-6, 1.1e-6))
    (table,) = tables.answer_tables(Answer(study_of(one)))
    assert "In brackets: 95% interval, 2 or 3 processes." in table.note
    one = run().bench("a.b", cpu=1e-3).bench("a.b", gpu=(1e-8, 1e-3, 1.0))
    (table,) = tables.answer_tables(Answer(study_of(one)))
    assert "unknown (too noisy)" in table.rows[0]
    assert "In brackets" not in table.note


def test_every_size_is_in_order_whenever_it_was_measured_and_the_short_table_says_where():
    one = run(processes=1).bench("b.x", cpu=1.0, n=9).bench("a.x", cpu=1.0, n=(100, 9), dtype="float64")
    study = study_of(one.bench("a.x", cpu=1.0, gpu=1.0, n=100).bench("a.x", cpu=1.0, n=9))
    rows = [row[0] + " GPU" * (" H" in row[1]) for row in tables.results_table(study).rows]
    names = ("float32, n=9", "float32, n=100 GPU", "float32, n=100", "float64, n=9", "float64, n=100")
    assert rows == [*(f"a.x {name}" for name in names), "b.x float32, n=9"]
    short, whole = (tables.answer_tables(Answer(study), most)[0].note for most in (5, None))
    assert ("gpubench show has every size" in short, "gpubench show" in whole) == (True, False)


def test_no_rate_is_above_its_peak():
    one = run(ceilings={"cpu": {"throughput": {"float32": 2e11}}}).bench("matmul.square", cpu="10 ms", flops=1e9)
    listed = tables.results_table(study_of(one.bench("matmul.square", cpu="1 ms", n=32, flops=1e9)))
    (above, sound), note = listed.rows, listed.footnote
    assert "— above the measured peak (the peak was measured too low)." in note
    assert "100 GFLOP/s" in sound
    assert above.count("—") == 2  # throughput and share of its peak
    one.bench("matmul.square", cpu="10 ms", n=8, flops=1e9, flags=("waiting",))
    assert tables.results_table(study_of(one)).rows[0].count("—") == 2  # both, or neither


@pytest.mark.parametrize(
    ("flags", "advice"), [((), "--processes 3"), (("contended",), "too long, by an unknown amount")]
)
def test_more_processes_are_advised_only_where_they_help(flags, advice):
    """Beside other programs they make a wrong number look precise."""
    note = tables.results_table(study_of(run(processes=1).bench("a.b", cpu=1.0, flags=flags))).note
    assert [each for each in ("--processes 3", "too long, by an unknown amount") if each in note] == [advice]


def test_flags_of_benchmarks_and_of_processes_are_counted_with_a_remedy():
    one = run(flags=("contended",)).bench("a.b", cpu=1.0, flags=("noisy", "altered"))
    flagged = tables.flag_table(study_of(one)).rows
    assert [cells[:2] for cells in flagged] == [
        ("noisy", "1 benchmark"), ("altered", "1 benchmark"), ("contended", "3 of 3 processes")
    ]  # fmt: skip
    assert all(ADVICE[cells[0]].remedy in cells for cells in flagged)
    assert "a.b float32" in flagged[0][2]


def test_peaks_by_footprint_and_single_figures():
    one = run(ceilings={"cuda:0": records.ceilings("cuda:0")}).bench("a.b", gpu=1.0)
    peaks = {what: peak for *_, what, peak in tables.peak_table(study_of(one)).rows}
    assert peaks["bandwidth at 25.0 MB, l2"].startswith("read ")
    assert peaks["matrix products"].startswith("float32 51.0 TFLOP/s")
    assert {"launch overhead", "host to device", "device to host"} <= set(peaks)


@pytest.mark.parametrize(
    ("work", "shown"),
    [
        ({"items": 10, "unit": "image", "flops": 1e9}, "images/s"),
        ({"flops": 1e9, "bytes": 1e6}, "FLOP/s"),
        ({"flops": 1e6, "bytes": 1e9}, "B/s"),
        ({"items": 10, "unit": "signal"}, "signals/s"),
    ],
)
def test_work_is_judged_by_what_it_waits_for(work, shown):
    (cells,) = tables.results_table(study_of(run().bench("a.b", cpu=1.0, **work))).rows
    assert any(cell.endswith(shown) for cell in cells)


def test_unmeasured_benchmarks_are_grouped_by_reason():
    one = run()
    for reason in ("predicted 40 s", "predicted 1.5e3 s", "needs a GPU"):
        one.skip("a.b", reason=reason)
    unmeasured = tables.unmeasured_table(study_of(one.skip("a.c", "oom", "needs 2 GB"))).rows
    assert [cells[:2] for cells in unmeasured] == [("oom", "1"), ("skipped", "2"), ("skipped", "1")]
    assert "e.g. predicted 40 s" in unmeasured[1]


def test_results_without_a_check_are_counted_by_reason():
    one = run().bench("a.a", cpu=1.0).bench("a.b", cpu=1.0, check={"status": "unchecked", "reason": "no reference"})
    method = dict(tables.method_table(study_of(one)).rows)
    assert (method["results checked"], method["not checked"]) == ("1 of 2 benchmarks", "1: no reference")


def test_the_total_of_many_steps_is_derived_and_called_derived():
    table = tables.jobs_table(study_of(run().bench("classic.step", cpu=0.1, steps=1000)))
    assert {"1,000", "1 min 40 s"} <= {*table.rows[0]}
    assert "not measured" in table.note


def test_every_table_has_rows_as_wide_as_its_columns_and_no_markup():
    one = run(ceilings={"cpu": records.ceilings("cpu")}).bench("a.c", cpu=1.0, flags=("noisy",))
    made = study_of(one.bench("a.b", cpu=1.0, gpu=0.1, title="|`[x](https://a) <b> *y*"))
    for table in tables.detail_tables(made):
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
    text = summary(Answer(made))
    assert "<b>" not in text
    assert "https://a" not in text
    assert all(line.count(" | ") >= 1 for line in text.splitlines() if line.startswith("| "))


def test_the_summary_holds_the_answer_first_and_then_the_pictures():
    answer = Answer(study_of(run().bench("a.b", cpu=1.0, gpu=0.1)))
    text = summary(answer, [("A title", "headline")])
    assert text.index(answer.sentence[:20]) < text.index("## Charts") < text.index("<details>")
    assert 'src="charts/headline-light.svg"' in text
