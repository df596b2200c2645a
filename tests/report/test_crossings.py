"""Sentences about a number, or none; crossover.csv: from which size on the other side wins, in each regime."""

import math
from pathlib import Path

import pytest
import reading
from reading import study_of
from records import run

from gpubench.report import study as studies, words
from gpubench.report.number import Sign, Start, StartKind, State, rounded_size, size_text
from gpubench.report.pairs import ONE_SHOT, Pair
from gpubench.report.render import Table
from gpubench.report.rows import Measured, Values
from gpubench.report.study import Crossing, Line, Point
from gpubench.runfile.flags import Reason
from gpubench.runfile.quantities import times, times_range
from gpubench.runfile.schema import DeviceFacts, Machine, Process, Result, Run, Times
from gpubench.statistics.inference import ABSENT, ALWAYS, CROSSES, NEVER, Crossover

MACHINE = Machine("m", (DeviceFacts("cpu", "cpu", ""), DeviceFacts("cuda:0", "cuda", "")))
RUN = Run(path=Path("run.json"), machine=MACHINE, results=())


def pair(low, high, shot=None):
    """A GPU of 1 s, and a CPU with these quartiles."""
    sides = []
    for device, median, q1, q3 in (("cpu", math.sqrt(low * high), low, high), ("cuda:0", 1.0, 1.0, 1.0)):
        times = Times(median, q1, median, 0.0, q1, q3, 3, 1, None, "", (Process(0, 3, median),))
        sides.append(Measured(RUN, "run", Result("a.b", device, times=times), None))
    made, copied = Pair(*sides), Pair(*sides, regime=ONE_SHOT)
    if shot:
        vars(made)["copies"] = copied
        vars(copied)["values"] = Values(math.sqrt(shot[0] * shot[1]), *shot)
    return made


@pytest.mark.parametrize(
    ("low", "high", "faster", "unknown"),
    [
        (1.1, 1.4, True, False),
        (0.9, 1.4, False, False),
        (0.1, 0.2, False, False),
        (0.5, 8.1, False, True),  # wider than a factor of four, and either may be faster
        (2.0, 80.0, True, False),  # wide, and an answer all the same
    ],
)
def test_what_is_faster_is_so_at_the_low_end(low, high, faster, unknown):
    assert (pair(low, high).faster, pair(low, high).ratio.state is State.UNKNOWN) == (faster, unknown)


def test_of_a_wide_interval_the_certain_end_is_shown_if_it_excludes_1():
    assert str(pair(2.0, 8.0).ratio) == "4.0× (2.0× to 8.0×)"
    assert str(pair(2.0, 8.1).ratio) == "≥ 2.0×"
    assert str(pair(2.0, 2.01).ratio) == "2.0×"
    assert str(pair(1 / 120, 1 / 12).ratio) == "≥ 12× slower"
    assert str(pair(0.9, 8.1).ratio) == Reason.TOO_NOISY
    assert str(pair(2.0, 3.0, (0.1, 1.5)).copied_ratio) == Reason.TOO_NOISY
    assert str(pair(2.0, 3.0, (0.2, 0.2)).copied_ratio) == "5.0× slower"
    assert str(pair(2.0, 3.0).copied_ratio) == "—"


UP = (0.5, 2.0, 4.0)
FROM = "faster from a size that is unknown"


@pytest.mark.parametrize(
    ("known", "ratios", "said", "sentence"),
    [
        (Crossover(72.4, CROSSES, 60.0, 79.0), UP, "n ≈ 72", "faster from n ≈ 72"),
        (Crossover(72.4, CROSSES, 0.0, 79.0), UP, "n = 128 at the latest", "faster from n = 128 at the latest"),
        (Crossover(72.4, CROSSES, 0.0, 79.0), (0.5, 2.0, 1.0), str(Sign.UNSURE), f"{FROM} (too noisy)"),
        (Crossover(72.4, CROSSES, 65.0, math.inf), (0.5, 2.0, 1.0), str(Sign.UNSURE), f"{FROM} (too noisy)"),
        (Crossover(72.4, CROSSES, 65.0, math.inf), UP, "n = 128 at the latest", "faster from n = 128 at the latest"),
        (Crossover(72.4, CROSSES), UP, "n between 64 and 128", "faster from n between 64 and 128"),
        (Crossover(None, ALWAYS, 0.0, 0.0), UP, "every size", "faster at every size"),
        (Crossover(None, ALWAYS), UP, "every size", "faster at every size"),
        (Crossover(None, ALWAYS, 0.0, 70.0), UP, "n = 128 at the latest", "faster from n = 128 at the latest"),
        (Crossover(None, ALWAYS, 0.0, 70.0), (1.5, 2.0, 4.0), "every size", "faster at every size"),
        (Crossover(None, NEVER), (0.5, 0.4, 0.3), "not up to n = 256", "not faster up to n = 256"),
        (Crossover(None, ABSENT), (0.5, 2.0, 0.5), "only up to n = 128", "faster only up to n = 128"),
        (Crossover(None, ABSENT), (1.01, 0.5, 0.4), "not up to n = 256", "not faster up to n = 256"),  # by rounding
        (Crossover(72.4, CROSSES, 60.0, 256.0), UP, "n = 128 at the latest", "faster from n = 128 at the latest"),
        (Crossover(None, ALWAYS), (2.0,), "n = 64 at the latest", "faster from n = 64 at the latest"),  # of one size
        (Crossover(200.0, CROSSES, 190.0, 210.0), (2, 0.5, 4), "n ≈ 200",
         "faster from n ≈ 200 and at some smaller sizes"),
    ],
)  # fmt: skip
def test_a_crossover_is_stated_only_as_far_as_it_is_known(known, ratios, said, sentence):
    points = tuple(Point(x, y, y, y) for x, y in zip((64, 128, 256), ratios, strict=False))
    line = Line("n", tuple(pair(y, y) for y in ratios), points)
    crossing = Crossing(line, known, 3, line)
    assert (crossing.start.place.removeprefix("from "), crossing.start.sentence()) == (said, sentence)
    assert crossing.doubtful or len(ratios) > 1  # crossover.csv: unsure


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (132.4, "132×"), (1412.0, "1,410×"), (99.6, "100×"), (8.64, "8.6×"), (9.96, "10×"), (1.0, "1.0×"),
        (0.98, "1.0×"), (0.00793, "126× slower"), (0.24, "4.2× slower"), (3.2e7, "3.2e+07×"),
        ((48, 113), "48× to 113×"), ((132.1, 132.4), "132×"), ((0.3, 0.45), "2.2× to 3.3× slower"),
        ((0.5, 2), "2.0× slower to 2.0×"),
    ],
)  # fmt: skip
def test_ratios_and_ranges_for_people(value, said):
    assert (times_range(*value) if isinstance(value, tuple) else times(value)) == said


@pytest.mark.parametrize(("size", "said"), [(72.4, "72"), (34_300, "34k"), (1.07, "1"), (0.4, "1"), (1e7, "10⁷")])
def test_estimated_sizes_have_two_digits(size, said):
    assert rounded_size(size) == said
    assert (size_text(0.12345), size_text(72.46)) == ("0.123", "72.5")  # and others three


def speeds(*of_size, moved=None):
    """A CPU of 1 s a call against a device with these speedups, by size and process."""
    transfer = {"in_bytes": 8, "out_bytes": 0, "in_s": moved} if moved else None
    one = run()
    for n, own in zip((10**2, 10**4), of_size, strict=True):
        one.bench("a.b", cpu=(1.0,) * len(own), n=n)
        one.bench("a.b", gpu=tuple(1 / speed for speed in own), n=n, transfer=transfer)
    return one


def crossovers(*runs):
    return reading.crossovers(study_of(*runs))


def test_a_crossover_of_each_regime():
    resident, shot = crossovers(speeds((0.25,), (4.0,), moved=0.25))
    assert [row["regime"] for row in (resident, shot)] == ["resident", "one-shot"]
    assert (shot["size_parameter"], shot["n"], shot["baseline_way"]) == ("n", None, None)
    assert resident["crossover"] == pytest.approx(1000)
    low, high = math.log(1 / 4.25), math.log(2)
    assert shot["crossover"] == pytest.approx(100 * 100 ** (-low / (high - low)))
    for row in (resident, shot):
        assert (row["low"], row["high"], row["kind"], row["processes"]) == (None, None, "crosses", 1)


@pytest.mark.parametrize(
    ("cpu", "kind", "told"),
    [
        ((9.0, 1e3), "always", "every size*"),
        ((0.1, 1e3), "crosses", "from n between 10 and 100*"),
        ((1e-2, 1e-3), "never", "not up to n = 100*"),
    ],
)
def test_beside_other_programs_table_and_file_know_the_same(cpu, kind, told):
    """A size that rests on times of a busy machine has their star."""
    one = run(processes=1)
    for n, of_size in zip((10, 100), cpu, strict=True):
        one.bench("a.b", cpu=of_size, n=n, flags=("contended",)).bench("a.b", gpu=1.0, n=n)
    study = study_of(one)
    (row,), (crossing,) = reading.crossovers(study), study.crossings
    assert (row["kind"], row["crossover"] is None, str(crossing.start)) == (kind, kind != "crosses", told)
    if told == str(Sign.UNSURE):
        assert crossing.start.sentence() == "faster from a size that is unknown (machine busy)"


@pytest.mark.parametrize(
    ("of_size", "kind"),
    [
        (((2.0,) * 2, (4.0,) * 2), "always"),
        (((1.0,) * 2, (1.0,) * 2), "always"),
        (((0.5,) * 2, (0.25,) * 2), "never"),
        (((0.25,) * 2, (0.5,) * 2), "not in this range"),
        (((2.0,) * 2, (0.5,) * 2), "not in this range"),
        (((0.2,) * 2, (0.05, 0.9)), "unsure"),  # the largest is too noisy to tell
        (((0.5, 1.5, 0.9), (1.2, 0.7, 3.0)), "crosses"),  # from below the smallest size to beyond the largest
        (((1.1, 1.5, 0.9), (4.0,) * 3), "unsure"),  # in some resamples it crosses
    ],
)
def test_a_crossover_is_described_by_its_kind_and_what_is_open_is_empty(of_size, kind):
    (row,) = crossovers(speeds(*of_size))
    assert (row["kind"], row["low"], row["high"]) == (kind, None, None)
    assert (row["crossover"] is None) == (kind != "crosses")


def test_processes_give_an_interval_and_those_that_missed_a_size_dont_count():
    one = speeds((0.24, 0.25, 0.26), (3.9, 4.0, 4.1))
    for count in (3, 2, 1):
        (row,) = crossovers(one)
        assert row["processes"] == count
        assert row["low"] is None if count == 1 else row["low"] < row["crossover"] < row["high"]
        del one.marks[-1]["extra_info"]["gpubench"]["processes"][0], one.marks[-1]["stats"]["data"][0]


def test_processes_are_paired_within_a_run_only():
    """All processes of a run see a machine twice as slow: that says nothing about the ratio."""

    def sides(name="", **times):
        one = run(name)
        for side, at in times.items():
            for n, seconds in zip((10**2, 10**4), at, strict=True):
                one.bench("a.b", n=n, **{side: (seconds, 2 * seconds, 0.7 * seconds)})
        return one

    (row,) = crossovers(sides(cpu=(1.0, 1.0), gpu=(4.0, 0.25)))
    assert (row["low"], row["high"]) == pytest.approx((1000, 1000))
    (row,) = crossovers(sides("one", gpu=(1.0, 1.0)), sides("two", gpu=(4.0, 0.25)))
    assert row["crossover"] == pytest.approx(1000)
    assert (row["low"] or 0.0) < 500 < 2000 < (row["high"] or math.inf)


def test_a_baseline_that_changes_on_the_way_is_another_line():
    """float32 stands in for bfloat16 at one size only: no crossover is drawn through both."""
    one = run(processes=1).bench("a.b", cpu=1.0, n=(10**2, 10**4)).bench("a.b", cpu=1.0, n=10**2, dtype="bfloat16")
    one.bench("a.b", gpu=4.0, n=10**2, dtype="bfloat16").bench("a.b", gpu=0.25, n=10**4, dtype="bfloat16")
    study = study_of(one, allow=("dtype",))
    assert [pair.differs for pair in study.pairs] == ["", "dtype bfloat16 against float32"]
    assert [crossing.crossover.size for crossing in study.crossings] == [None, None]


# Which case stands for a workload -------------------------------------------------------------------------------------


def row(workload, dtype="float32", kind="", **params):
    size = "n" if "n" in params else None
    times = Times(1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 3, 1, None, "", (Process(0, 3, 1.0),))
    return Measured(RUN, "run", Result(workload, "cpu", dtype, params, size=size, kind=kind, times=times), size)


def test_a_workload_stands_at_its_largest_size_in_its_plainest_setting():
    rows = [
        row("a.b", form=form, n=n, dtype=dtype)
        for dtype in ("float16", "float64", "float32")
        for form in ("allocating", "out")
        for n in (10, 1000, 100)
    ]
    chosen = studies.plainest_first(rows)[0]
    assert words.setting(chosen.result) == "float32, out, n=1000"
    assert studies.plainest_first(rows[::-1])[0] is chosen  # not by the order of the file
    halves, double = row("a.b", "float16", n=1), row("a.b", "float64", n=1)
    assert studies.plainest_first([halves, double])[0] is double


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(("limit", value, f"limit={value}") for value in (None, True, 4, 1.5)),
        *(("limit", value, value) for value in ("out", "größer 2")),
        *(("limit", value, f'limit="{told}"') for value, told in (("", ""), (" ", " "), ("\t", "\\t"), (",", ","))),
        ("separator_between_columns", ",", 'separator…en_columns=","'),  # which doesn't hide its value
        ("separator_between_columns", 4, "separator_…een_columns=4"),
        ("separator", "x" * 90, f"{'x' * 11}…{'x' * 12}"),
    ],
)
def test_a_setting_reads_as_python_writes_it(name, value, said):
    assert words.parameter(name, value) == said
    assert len(said) <= 24


def test_kinds_come_in_one_order_and_ones_own_work_first():
    kinds = ("elementwise", "", "networks", "copies", "matmul", "networks")
    rows = [row(f"some.work{i}", kind=kind) for i, kind in enumerate(kinds)]
    kinds = [[each.result.kind for each in members] for members in studies.in_order(rows)]
    assert kinds == [[""], ["matmul"], ["networks"] * 2, ["elementwise"]]
    assert len(studies.in_order([row("transfer.create", kind="copies")])) == 1  # there is nothing else


def test_the_star_of_a_size_is_explained_below_a_table():
    start = Start(StartKind.ABOUT, "n", 72.4, noisy=True)
    assert Table("", ("wins",), ((start,),)).footnote == "* noisy: may be far off."
    assert Table("", ("wins",), ((Start(StartKind.UNSURE, "n"),),)).footnote.startswith("can't tell: ")


@pytest.mark.parametrize(("cores", "star"), [(16, "*"), (1, "")])
def test_a_size_over_a_cpu_on_few_of_its_threads_has_a_star(cores, star):
    one = run(threads=1).bench("a.b", cpu=lambda n: 1e-6 * n, gpu=1e-4, n=(10, 10**4), threads=1)
    one.data["machine_info"]["gpubench"]["cpu"]["cores"] = cores
    (crossing,) = study_of(one).crossings
    assert str(crossing.start) == f"from n ≈ 100{star}"
