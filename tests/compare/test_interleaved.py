"""Screening and confirming on a simulated machine: the turns of each benchmark, the end, and the sentences."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import records

from gpubench.commands.cli import main
from gpubench.compare import interleaved
from gpubench.compare.interleaved import LEAST_FRESH, SCREENING_PAIRS, planned_pairs
from gpubench.compare.samples import CaseKey
from gpubench.compare.verdict import INCONCLUSIVE, Verdict, percent
from gpubench.errors import UsageError
from gpubench.runfile.runs import read
from gpubench.statistics.intervals import Interval
from gpubench.supervise.interleave import Interleave, OutOfTime

NAMES = tuple(f"w.w{i}" for i in range(12))
STARTING_S, BENCHMARK_S = 2.0, 0.3
"""Seconds of a simulated process to start, and to measure a benchmark."""


class Machine:
    """Stands in for :class:`~gpubench.supervise.interleave.Interleave`: a machine with a clock of its own.

    ``slower`` are factors of new by name, ``spread`` is the noise from process to process; in the processes of
    ``held_up`` (side, number of the pair) all rounds of a benchmark waited.
    """

    def __init__(self, spread: float = 0.02, seed: int = 1, slower: dict[str, float] | None = None) -> None:
        self.random, self.spread, self.slower = np.random.default_rng(seed), spread, slower or {}
        self.spreads: dict[str, float] = {}
        self.names: Sequence[str] = NAMES
        self.held_up: dict[tuple[str, int], str] = {}
        self.breaks_at: int | None = None
        self.libraries: list[str] = []
        self.threads = {"base": 2, "new": 2}
        self.apart = False  # whether the sides have no test in common
        self.interrupted, self.interrupted_at, self.signalled_at = False, None, None
        self.measured: list[tuple[str, list[str]]] = []
        self.clock_s = 0.0
        self.turns = 0

    def __call__(self, folder: Path, base: Any, new: Any, *_how: Any) -> Machine:
        self.folder, self.base, self.new = folder, base, new
        return self

    interrupt = Interleave.interrupt

    def now(self) -> float:
        return self.clock_s

    def collect(self) -> None:
        marks = [self.mark(name, 1.0)["fullname"] for name in self.names]
        others = [name.replace("::test_", "::test_new_") for name in marks] if self.apart else marks
        self.collected = {"base": marks, "new": others}

    def pair_s(self, chosen: dict[str, set[str]] | None = None) -> float:
        return 2 * (STARTING_S + BENCHMARK_S * len(self.names if chosen is None else chosen["base"]))

    def mark(self, name: str, factor: float) -> dict[str, Any]:
        return records.benchmark(records.case(name), 1e-3 * factor)

    def run(self, side: str, number: int, names: Sequence[str], stage: str | None) -> Path:
        marks = []
        for name in names:
            factor = float(np.exp(self.random.normal(0, self.spreads.get(name, self.spread))))
            factor *= self.slower.get(name, 1.0) if side == "new" else 1.0
            marks.append(self.mark(name, factor * (600 if self.held_up.get((side, number)) == name else 1)))
        data = records.run_file(marks, started=f"2026-01-31T12:{self.turns:02d}:00+00:00", threads=self.threads[side])
        data["gpubench"]["stage"] = stage
        self.turns += 1
        path = self.folder / side / f"{number:03d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data))
        return path

    def pair(self, number: int, stage: str, chosen: dict[str, set[str]] | None = None) -> tuple[Path, Path] | None:
        if number == self.breaks_at:
            raise UsageError("new: python can't measure")
        names = [name for name in self.names if chosen is None or self.mark(name, 1)["fullname"] in chosen["base"]]
        if self.clock_s + self.pair_s(chosen) > self.stop_at + BENCHMARK_S:
            self.clock_s = self.stop_at
            raise OutOfTime
        self.measured.append((stage, names))
        self.clock_s += self.pair_s(chosen)
        if number == self.signalled_at:
            signal.raise_signal(signal.SIGTERM)
        self.interrupted |= number == self.interrupted_at
        if self.interrupted:
            return None
        sides = ("base", "new") if number % 2 == 0 else ("new", "base")
        files = {side: self.run(side, number, names, stage) for side in sides}
        return files["base"], files["new"]

    def fresh(self, name: str) -> int:
        return sum(stage == "confirm" and name in names for stage, names in self.measured)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs ``compare --interleave`` on a machine; the exit code, the JSON, and the lines meanwhile."""

    monkeypatch.chdir(tmp_path)  # no project with benchmarks

    def compared(machine: Machine, *more: str, sides: Sequence[str] = ("--interleave", sys.executable, sys.executable)):
        monkeypatch.setattr(interleaved, "Interleave", machine)
        code = main(["compare", *sides, "-o", str(tmp_path / "out"), "--format", "json", *more])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if shown.out else None, shown.err

    return compared


@pytest.mark.parametrize("seen", ["when they are collected", "in the first pair"])
def test_sides_without_a_common_benchmark_end_at_once(compare, seen: str) -> None:
    class Apart(Machine):
        def run(self, side: str, number: int, names: Sequence[str], stage: str | None) -> Path:
            return super().run(side, number, [f"{side}.x", f"{side}.y"], stage)

    machine = Apart()
    machine.apart = seen == "when they are collected"
    code, document, said = compare(machine)
    assert (code, document["pairs"], len(machine.measured)) == (3, *[0 if machine.apart else 1] * 2)
    each_has = "base has 12 benchmarks (" if machine.apart else "base has 2 benchmarks (base.x, base.y); new has 2 ben"
    assert f"nothing to compare: no benchmark was measured on both sides: {each_has}" in said


class Stopping(Machine):
    """New measures some benchmarks only in pair 1: later they fail, are skipped, or have other names."""

    stops: Sequence[str] = ("w.w2",)
    status = "error"
    last = 1

    def run(self, side: str, number: int, names: Sequence[str], stage: str | None) -> Path:
        path = super().run(side, number, names, stage)
        data = json.loads(path.read_text())
        stopped = [name for name in names if name in self.stops] if side == "new" and number >= self.last else []
        data["benchmarks"] = [mark for mark, name in zip(data["benchmarks"], names, strict=True) if name not in stopped]
        if self.status == "renamed":
            data["benchmarks"] += [self.mark(f"{name}0", 1.0) for name in stopped]
        else:
            rows = [records.unmeasured(records.case(name), self.status, "mine") for name in stopped]
            data["gpubench"]["unmeasured"] = rows
        path.write_text(json.dumps(data))
        return path


@pytest.mark.parametrize(("status", "reason"), [
    ("error", "error: mine"), ("skipped", "skipped: mine"), ("renamed", "not in the results"),
])  # fmt: skip
def test_a_benchmark_that_a_side_stops_measuring_is_missing_there(compare, tmp_path, capsys, status, reason) -> None:
    """It was 'same', by one process against three, also with --fail-missing."""
    machine = Stopping(0.004)
    machine.status = status
    code, document, _ = compare(machine)
    missing = {(row["id"].partition("[")[0], row["side"]): row["reason"] for row in document["missing"]}
    assert (code, missing["w.w2", "new"]) == (0, f"not measured any more: {reason}")
    assert "w.w2" not in words(document)
    folders = [str(tmp_path / "out" / side) for side in ("base", "new")]
    assert main(["compare", *folders, "--fail-missing"]) == 1
    assert "in base but not in new: 1 not measured any more" in capsys.readouterr().out


def test_a_slowdown_that_was_proven_before_a_side_stopped_stays_one(compare) -> None:
    machine = Stopping(0.004, slower={"w.w2": 1.5})
    machine.last = SCREENING_PAIRS + LEAST_FRESH - 1  # in the last pair but one it is measured on both sides
    code, document, _ = compare(machine, "--pairs=6")
    assert (code, words(document)["w.w2"]) == (1, "slower")


def test_a_side_all_of_whose_tests_stop_ends_with_two(compare) -> None:
    machine = Stopping(0.004)
    machine.stops, machine.status = NAMES, "skipped"
    code, document, said = compare(machine)
    assert (code, document["cases"]) == (2, [])
    assert "w.w0[float32-n=8], new: not measured any more: skipped: mine" in said


def words(document: dict[str, Any]) -> dict[str, str]:
    return {case["id"].partition("[")[0]: case["verdict"] for case in document["cases"]}


def test_only_what_is_suspect_is_measured_again(compare) -> None:
    machine = Machine(0.004, slower={"w.w3": 1.25})
    machine.libraries = ["pandas 2.2.0 → 2.3.0"]
    code, document, said = compare(machine)
    assert (code, "other software: pandas 2.2.0 → 2.3.0" in document["notes"]) == (1, True)
    assert words(document) == dict.fromkeys(NAMES, "same") | {"w.w3": "slower"}
    assert [stage for stage, _ in machine.measured] == ["screen"] * SCREENING_PAIRS + ["confirm"] * LEAST_FRESH
    assert all(names == ["w.w3"] for stage, names in machine.measured if stage == "confirm")
    assert document["cases"][3]["processes"] == {"base": LEAST_FRESH, "new": LEAST_FRESH}
    for words_said in ("screening: 3 pairs of all benchmarks, about 34 s on idle cores",
                       "pair 1 of 3 took 11 s: 22 s left",
                       "1 suspect to confirm in up to 6 fresh pairs, about 28 s", "9 pairs in 61 s"):  # fmt: skip
        assert words_said in said


def test_threads_that_the_code_of_a_side_sets_are_its_change(compare) -> None:
    """It was exit code 2 after all pairs, and the advice --allow machine did nothing."""
    machine = Machine(0.004, slower={"w.w3": 1.25})
    machine.threads["new"] = 1
    code, document, _ = compare(machine)
    assert (code, words(document)["w.w3"]) == (1, "slower")
    assert "other settings: threads 2 → 1" in document["notes"]


def test_comparing_the_files_again_says_the_same(compare, save, tmp_path: Path, capsys) -> None:
    code, document, _ = compare(Machine(0.03, slower={"w.w3": 1.2, "w.w7": 0.8, "w.w9": 1.06}))
    assert code == 1
    assert {stage.stage for stage in map(read, (tmp_path / "out/new").iterdir())} == {"screen", "confirm"}
    assert main(["compare", str(tmp_path / "out/base"), str(tmp_path / "out/new"), "--format=json"]) == code
    again = json.loads(capsys.readouterr().out)
    assert (again["cases"], again["pairs"]) == (document["cases"], document["pairs"])
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "out/new").iterdir():  # of another machine
        data = json.loads(path.read_text())
        data["machine_info"]["gpubench"]["devices"][0]["label"] = "Other CPU"
        save(f"other/{path.name}", data)
    assert main(["compare", str(tmp_path / "out/base"), str(tmp_path / "other")]) == 2
    assert "--allow machine" in capsys.readouterr().err
    max((tmp_path / "out/new").iterdir()).unlink()  # as if it had been killed while it wrote a pair
    main(["compare", str(tmp_path / "out/base"), str(tmp_path / "out/new"), "--format=json"])
    count = document["pairs"]
    half = f"half a pair: base has {count} results files, new {count - 1}; --interleave was killed"
    halved = json.loads(capsys.readouterr().out)
    assert (half in halved["notes"], len(halved["cases"])) == (True, len(NAMES))
    (tmp_path / "killed/turns").mkdir(parents=True)
    for words_given in ((), ("-o", "killed")):
        assert "holds an earlier comparison: choose another folder" in compare(Machine(), *words_given)[2]


def test_a_side_compared_with_itself_says_what_this_machine_sees(compare, tmp_path: Path) -> None:
    """Of unchanged code, in which one benchmark varies more."""
    (tmp_path / "test_it.py").write_text("")
    machine = Machine(0.004)
    machine.spreads = {"w.w3": 0.06}
    code, document, _ = compare(machine, "--paths", "test_it.py", sides=("--interleave", ".", "."))
    sees = {case["id"].partition("[")[0]: case["sees"] for case in document["cases"]}
    assert code == 0
    assert {sees[name] for name in NAMES if name != "w.w3"} == {0.05}  # less than the threshold doesn't count
    assert 0.05 < sees["w.w3"] < 0.2
    assert document["notes"][0] == "unchanged code: 0 of 12 benchmarks called changed"
    assert f"5 % in the middle one, {percent(sees['w.w3'])} in the noisiest" in document["notes"][1]
    _, document, _ = compare(Machine(0.004), "-o", str(tmp_path / "two"), sides=("--interleave", ".", sys.executable))
    assert not any("unchanged code" in note for note in document["notes"])


@pytest.mark.parametrize(("budget", "fresh", "code"), [(34, 0, 0), (46, 2, 1)])
def test_the_budget_is_an_upper_bound_and_what_it_leaves_undecided_is_a_warning(
    compare, budget: int, fresh: int, code: int
) -> None:
    """Unchanged code would be red without a reason on a busy machine, where many look changed and few are."""
    machine = Machine(0.02, slower={"w.w3": 1.15})
    found, document, _ = compare(machine, f"--budget={budget}")
    assert machine.clock_s <= budget
    assert (found, machine.fresh("w.w3")) == (code, fresh)
    assert f"the budget of {budget} s is spent" in document["notes"]
    assert words(document)["w.w3"] == ("slower" if code == 1 else "inconclusive")
    if not code:
        (advice,) = {case["advice"] for case in document["cases"] if case["cause"] == "unconfirmed"}
        assert re.fullmatch(r"run again with --budget \d+", advice)
        again = Machine(0.02, slower={"w.w3": 1.15})
        assert compare(again, "-o", "strict", "--budget=34", "--fail-inconclusive")[0] == 1


def test_a_budget_too_small_for_screening_says_which_would_do(compare) -> None:
    for budget, pairs, most_s in ((30, "2.7", 30), (20, "1.8", 0), (5, "0.4", 0)):
        machine = Machine()
        code, document, said = compare(machine, f"--budget={budget}", "-o", f"out{budget}")
        assert (code, document) == (2, None)
        assert (
            f"--budget allows {pairs} pairs of 11 s, but screening takes 3 and confirming 6: use --budget 152 or "
            in said
        )
        assert machine.clock_s <= most_s


def test_a_pair_that_was_held_up_is_replaced_and_does_not_count(compare) -> None:
    machine = Machine(0.01, slower={"w.w3": 1.3})
    machine.held_up = {("new", 4): "w.w3", ("base", 5): "w.w3"}
    code, document, _ = compare(machine, "--pairs=6")
    assert (code, words(document)["w.w3"]) == (1, "slower")
    assert machine.fresh("w.w3") == LEAST_FRESH + 1
    assert min(document["cases"][3]["processes"].values()) == LEAST_FRESH


def test_a_job_whose_pairs_cannot_be_used_is_a_warning(compare) -> None:
    machine = Machine(0.01, slower={"w.w3": 1.3})
    machine.held_up = {("new", number): "w.w3" for number in range(1, 100, 2)}
    machine.held_up |= {("base", number): "w.w3" for number in range(1, 100)}
    code, document, _ = compare(machine)
    assert code == 0
    (case,) = (case for case in document["cases"] if case["verdict"] == "inconclusive")
    assert case["reason"].startswith("machine busy: something held up ")
    assert case["advice"] == "use a quieter machine, or fewer --threads"  # it was measured in turn already
    assert machine.clock_s < 900


def test_all_pairs_measured_with_time_left_says_how_many_more(compare) -> None:
    _, document, _ = compare(Machine(0.12, seed=3, slower={"w.w3": 1.25}), "--pairs=6")
    undecided = [case for case in document["cases"] if case["verdict"] == "inconclusive" and case["cause"] != "hidden"]
    assert undecided
    assert all(
        re.match(r"about \d+ more pairs would detect|only more than 100 pairs .* machine$", case["advice"])
        for case in undecided
    )
    assert any(re.match("stopped with .* left: measuring until", note) for note in document["notes"]), document["notes"]


@pytest.mark.parametrize(
    ("why", "without", "line", "alone"),
    [
        ("breaks_at", 2, "new: python can't measure; judged by the 2 complete pairs", "new: python can't measure"),
        *((how, 130, "2 pairs in 34 s", "gpubench: interrupted") for how in ("interrupted_at", "signalled_at")),
    ],
)
def test_what_ends_early_is_judged_by_its_complete_pairs(compare, why, without, line, alone) -> None:
    """Nothing is proven then, and nothing is without a change either."""
    machine, first = Machine(0.004), Machine()
    setattr(machine, why, 2)
    code, document, said = compare(machine)
    assert (code, document["pairs"], line in said) == (2, 2, True)
    assert said.count(line) == 1  # the pair isn't tried again, which would hide the reason
    assert ("interrupted: judged by the pairs that were complete" in document["notes"]) == (without == 130)
    setattr(first, why, 0)
    code, document, said = compare(first, "-o", "first")
    assert (code, document, said.splitlines()[-1].endswith(alone)) == (without, None, True)


@pytest.mark.parametrize("pairs", [1, 2])
def test_what_ended_early_is_not_advised_to_do_what_it_does(compare, pairs) -> None:
    machine = Machine(0.004, slower={"w.w1": 1.3})
    machine.breaks_at = pairs
    _, document, _ = compare(machine)
    advised = [case["advice"] for case in document["cases"] if case["verdict"] == "inconclusive"]
    assert advised
    assert all(advised)
    assert not [words for words in advised if "--interleave" in words]


def suspect(name: str, ratio: float, spread: float) -> Verdict:
    change = Interval(ratio, 0.5, 2, "")
    return Verdict(CaseKey(name, "", ""), INCONCLUSIVE, change, 1, ratio, None, (3, 3), spread=spread)


def test_noisy_suspects_get_more_pairs_than_quiet_ones_also_if_they_turn_out_noisy() -> None:
    planned = planned_pairs([suspect("a", 1.3, 0.01), suspect("b", 1.3, 0.08), suspect("c", 1.06, 0.08)], 0.05, 20)
    quiet, noisy, hopeless = planned.values()
    assert (quiet, hopeless) == (LEAST_FRESH, 20)
    assert quiet < noisy < hopeless
    suspects = [suspect("a", 1.3, 0.01)]
    seen = [replace(suspect("a", 1.02, 0.12), processes=(LEAST_FRESH, LEAST_FRESH))]
    few = [replace(each, processes=(LEAST_FRESH, LEAST_FRESH - 1)) for each in seen]
    plans = [list(planned_pairs(suspects, 0.05, 20, confirmed).values()) for confirmed in ((), few, seen)]
    assert plans[0] == plans[1] == [LEAST_FRESH] < plans[2] < [20]


def test_where_time_is_short_the_clearest_suspects_are_decided(compare) -> None:
    machine = Machine(0.01, slower=dict.fromkeys(["w.w1", "w.w2", "w.w4", "w.w5", "w.w6"], 1.08) | {"w.w3": 1.5})
    code, document, said = compare(machine, "--budget", "64")
    assert code == 1
    assert words(document)["w.w3"] == "slower"
    assert [name for name, word in words(document).items() if word == "inconclusive"] == [
        "w.w1", "w.w2", "w.w4", "w.w5", "w.w6"
    ]  # fmt: skip
    assert (machine.fresh("w.w3"), machine.fresh("w.w1")) == (LEAST_FRESH, 0)
    assert machine.clock_s <= 64
    assert "the budget of 64 s is spent" in said
    assert re.search(r"6 suspects to confirm in up to \d+ fresh pairs, .*; the budget has .*: slowdowns first", said)
    (more,) = {int(case["advice"].split()[-1]) for case in document["cases"] if case["verdict"] == "inconclusive"}
    again = Machine(0.01, slower=machine.slower)
    _, document, _ = compare(again, "--budget", str(more), "-o", "again")
    assert min(again.fresh(name) for name in machine.slower) >= LEAST_FRESH
    assert not [note for note in document["notes"] if "budget" in note]


def test_slowdowns_are_confirmed_before_clearer_speedups(compare) -> None:
    machine = Machine(0.004, slower={"w.w1": 1.3, "w.w2": 0.4})
    machine.spreads = {"w.w1": 0.07}
    compare(machine, "--budget", "80")
    assert machine.fresh("w.w1") > machine.fresh("w.w2") == 0


def test_fewer_threads_are_advised_only_where_the_work_is_known_to_have_several(compare) -> None:
    class Plain(Machine):
        def mark(self, name: str, factor: float) -> dict[str, Any]:
            return super().mark(name, factor) | {"extra_info": {}}

    for kind, advice in ((Machine, "use a quieter machine, or fewer --threads"), (Plain, "use a quieter machine")):
        machine = kind(0.005)
        machine.spreads = {"w.w5": 0.5}
        _, document, _ = compare(machine, "-o", kind.__name__)
        assert {case["advice"] for case in document["cases"] if case["cause"] == "hidden"} == {advice}


def test_a_longer_screening_leaves_half_of_the_time_to_confirming(compare) -> None:
    """34 s are for the first pairs of all; a pair of one benchmark takes 4.6 s."""
    machine = Machine(0.005, slower={"w.w3": 1.3})
    machine.spreads = {"w.w5": 0.14}
    _, _, said = compare(machine, "--budget", "44")
    assert "1 benchmark too noisy for that: up to 5 pairs" in said
    assert machine.measured[SCREENING_PAIRS:] == [("screen", ["w.w5"]), ("confirm", ["w.w3"])]


def test_sides_that_are_links_to_one_folder_are_refused(compare, tmp_path: Path) -> None:
    """Both would write 000.json over each other: four times slower was the same."""
    for name in ("elsewhere", "out", "before"):
        (tmp_path / name).mkdir()
    for link, folder in (("out/base", "elsewhere"), ("out/new", "elsewhere"), ("after", "before")):
        (tmp_path / link).symlink_to(tmp_path / folder)
    code, document, said = compare(Machine())
    assert (code, document, "out/base is a link: the sides' results need" in said) == (2, None, True)
    code, document, said = compare(Machine(), sides=("--interleave", "before", "after"))
    assert (code, document, "before and after are the same folder: give one of them twice" in said) == (2, None, True)
