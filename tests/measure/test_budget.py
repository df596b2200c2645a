"""The time of a case is judged by probes, and a bad one removes no benchmark."""

import os
from datetime import datetime
from pathlib import Path

import forked
import msgspec
import pytest
import torch

from gpubench.devices import CPU
from gpubench.errors import OverBudget
from gpubench.measure import budget
from gpubench.measure.budget import MOST_DOUBTS, PRESET_SETTINGS, Rates, plan, require
from gpubench.measure.session import Session, Settings
from gpubench.runfile.schema import Case, Work
from gpubench.supervise.progress import START_S, whole_s

TESTS = Path(__file__).parent.parent
COMMITTED = TESTS.parent / "results" / "xeon-2-cores" / "run.json"
FAST = [5.5e-6, 6.2e-6, 2.1e-5, 5.2e-5, 6.8e-5, 9.7e-5, 1.4e-3, 1.9e-3, 4.9e-3, 1.6e-2]
"""Seconds of ten calls that stand for ``quick`` on an H100, a tenth of it each: medians of the times that ``gpubench
estimate results/xeon-2.80ghz/run.json --gpu H100 --format csv`` finds likely."""
ON_FAKE_CLOCK = """
import fake_backend, pytest, torch
@pytest.mark.parametrize("seconds", CALLS)
def test_call(gpubench, seconds):
    vars(fake_backend.backend).update(delay_s=seconds, copy_byte_per_s=1e10)
    x, y = gpubench.randn(250_000), gpubench.empty(250_000)
    gpubench(torch.neg, x, out=y)
"""
COUNTED = """
from scripted import CLOCK
def pytest_sessionfinish(): open("took", "a").write(f"{CLOCK.time_s} ")
"""
PRODUCT = Work(flops=2 * 2048**3)


@pytest.fixture
def probes(monkeypatch):
    """FLOP/s of each measurement, the last one for ever, while copies take 1 ms; the threads that each one had."""
    seen = []

    def give(*rates):
        left = list(rates)

        def product_rates(*_):
            seen.append(torch.get_num_threads())
            return {"torch": left.pop(0) if len(left) > 1 else left[0]}

        monkeypatch.setattr(budget, "product_rates", product_rates)
        monkeypatch.setattr(budget, "shortest", lambda *_: 1e-3)
        return seen

    return give


@pytest.mark.parametrize(
    ("call_s", "before_s", "given", "rounds", "calls"),
    [
        (1e-5, None, {}, 100, 200),  # rounds of two milliseconds fill the preset's time
        (0.0, None, {}, 100, 200_000),
        (7e-4, None, {}, 95, 3),
        (3e-3, None, {}, 67, 1),
        (1e-5, None, {"min_time": 0.004}, 50, 400),
        (1e-5, None, {"max_time": "5"}, 1000, 500),  # no more rounds, but longer ones; pytest-benchmark takes texts
        (0.1, None, {}, 5, 1),  # the fewest rounds
        (1.0, None, {}, 3, 1),  # as many as the budget allows
        (9.0, None, {}, 1, 1),
        (0.1, None, {"processes": 9}, 2, 1),  # of several processes each has at least two
        (1e-5, 0.0, {}, 1000, 1),
        (1e-5, 0.02, {}, 10, 1),
        (1e-5, 1.0, {}, 2, 1),
    ],
)
def test_one_rule_plans_the_rounds(call_s, before_s, given, rounds, calls):
    preset = PRESET_SETTINGS["quick"].adjusted(given).split(given.get("processes", 1))
    assert plan(call_s, preset, before_s) == (rounds, calls)


def planned(rates):
    return budget.estimate(Case("matmul.square", "cpu", "float32"), PRODUCT, CPU, PRESET_SETTINGS["quick"], rates)


@pytest.mark.parametrize("rates", [[1.07e11], [1.4e9, 1.07e11]])
def test_a_probe_that_other_programs_disturbed_is_repeated_and_removes_no_benchmark(probes, rates):
    """n = 2048 was skipped as it would take 12.3 s; it takes 0.16."""
    seen = probes(*rates)
    assert planned(Rates()) == pytest.approx(0.16, rel=0.05)
    assert seen[1:] == [1] * (len(rates) - 1)


QUICK = "in 3.00 s: make the call smaller"
SLOW = [
    ("quick", 8.0, {}, f"one call takes 8.00 s (seen in warm-up); 3 must fit {QUICK} or use the preset full"),
    ("quick", 12.0, {}, f"one call takes 12.0 s (seen in warm-up); 3 must fit {QUICK}"),
    ("full", 12.0, {}, "one call takes 12.0 s (seen in warm-up); 3 must fit in 30.0 s: make the call smaller"),
    ("quick", 10.7, {"busy": True},
     "a call takes 10.7 s (seen in warm-up); 3 must fit in 3.00 s: close other programs, then run again"),
    ("quick", 8.0, {"busy": True}, "a call takes 8.00 s (seen in warm-up); 3 must fit in 3.00 s: close other programs"
     " or use the preset full, then run again"),
    ("quick", 10.7, {"setup_s": 12.0},
     "one call takes 10.7 s, its setup 12.0 s (seen in warm-up); 3 must fit in 3.00 s: make the setup smaller"),
]  # fmt: skip


@pytest.mark.parametrize(("preset", "seconds", "terms", "says"), SLOW)
def test_a_call_over_budget_is_told_what_to_do_unless_the_machine_is_busy_or_its_setup_slow(
    preset, seconds, terms, says
):
    with pytest.raises(OverBudget) as error:
        require(seconds, "seen in warm-up", PRESET_SETTINGS[preset], **terms)
    assert str(error.value).split(": ", 1)[1] == says


def test_a_device_that_is_slow_is_asked_a_few_times_only(probes):
    seen, rates, threads = probes(1.4e9), Rates(), torch.get_num_threads()
    for _ in range(5):
        with pytest.raises(OverBudget, match="too slow"):
            planned(rates)
    assert len(seen) == 1 + MOST_DOUBTS
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("nbytes", [1e3, 1e12])
def test_a_call_takes_as_long_as_the_longer_of_its_flops_and_its_bytes(probes, nbytes):
    probes(1.07e11)
    rates = Rates()
    parts = [rates.estimate(work, CPU, "float32") for work in (PRODUCT, Work(bytes=nbytes))]
    assert rates.estimate(Work(flops=PRODUCT.flops, bytes=nbytes), CPU, "float32") == max(parts)


def host_s():
    """Seconds of a case that aren't timed, in the three processes of a run: its data, its reference, its test. From
    a run on two cores, less the preset's times."""
    run, preset = msgspec.json.decode(COMMITTED.read_bytes()), PRESET_SETTINGS["quick"]
    moments = [[datetime.fromisoformat(each[when]["time"]) for when in ("before", "after")]
               for each in run["gpubench"]["processes"]]  # fmt: skip
    first, further, _ = ((after - before).total_seconds() for before, after in moments)
    took_s = first + 2 * further - budget.CEILINGS_S["quick"]
    return took_s / len(run["benchmarks"]) - 3 * (preset.warmup + preset.max_time / 3)


def test_a_run_with_a_gpu_takes_as_long_as_was_estimated(tmp_path):
    """On a GPU with a counter of energy, on a clock that only moves as scripted. A second of energy for each call made
    the run three times as long as its estimate."""
    (tmp_path / "test_it.py").write_text(ON_FAKE_CLOCK.replace("CALLS", str(FAST)))
    (tmp_path / "conftest.py").write_text(COUNTED)
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    for process in range(3):
        options = ["--gpubench-device=fake", "--gpubench-no-ceilings", f"--gpubench-process={process}/3"]
        done = forked.pytest("-p", "scripted", "-q", *options, cwd=tmp_path, PYTHONPATH=paths)
        assert done.returncode == 0, done.stdout
    took_s = sum(map(float, (tmp_path / "took").read_text().split())) + len(FAST) * host_s()
    estimated_s = Session(Settings()).estimated_s([(Case("it.call", "fake:0", "float32"), False)] * len(FAST))
    assert whole_s(estimated_s, 3) - 3 * START_S == pytest.approx(took_s, rel=0.2)
