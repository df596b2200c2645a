"""Expressions are timed in turn: what the machine does meanwhile, it does to all of them."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest

from gpubench.measure import rounds as measured_rounds
from gpubench.measure.rounds import MOST_BLOCKS, Share, take_turns
from gpubench.testing import VirtualMachine


def share_of(made: list[str], name: str, rounds: int, calls: int = 1) -> Share:
    """Its calls add its name to what was made."""
    return Share(lambda: (made.append, (name,), {}), itertools.count().__next__, rounds, calls)


def test_a_long_call_has_few_rounds_and_the_other_takes_all_of_its_own_between_them() -> None:
    made: list[str] = []
    shares = [share_of(made, "s", 101, calls=10), share_of(made, "l", 3)]
    take_turns(shares)
    assert [len(each.times) for each in shares] == [101, 3]
    runs = [(name, len(list(calls))) for name, calls in itertools.groupby(made)]
    assert runs == [("s", 331), ("l", 2), ("s", 682), ("l", 1)]  # A B B A A B, with an untimed call before short ones
    assert len({id(each.flags) for each in shares}) == 1


def test_a_call_can_have_the_memory_of_the_last_ones_result() -> None:
    """A normalisation took half as long again where two results were held."""
    results: weakref.WeakValueDictionary[int, VirtualMachine] = weakref.WeakValueDictionary()
    held = []

    def call() -> VirtualMachine:
        held.append(len(results))
        result = results[len(held)] = VirtualMachine()
        return result

    share = Share(lambda: (call, (), {}), itertools.count().__next__, rounds=3)
    take_turns([share])
    assert held == [0, 0, 0]
    assert share.result is results[3]


def test_the_least_time_on_a_core_is_that_of_a_call_in_any_round(monkeypatch) -> None:
    on_core = iter([0.0, 12.0, 20.0, 24.0, 30.0, 40.0])
    monkeypatch.setattr(measured_rounds, "thread_time", lambda: next(on_core))
    share = share_of([], "a", 3, calls=2)
    take_turns([share])
    assert share.cpu_s == 2.0


def test_turns_are_many_and_garbage_waits() -> None:
    made: list[str] = []
    one, other = (share_of(made, name, 1000) for name in "ab")
    one.next_call = lambda: (lambda: made.append("collected" if gc.isenabled() else "a"), (), {})
    take_turns([one, other])
    assert gc.isenabled()
    runs = sum(before != after for before, after in itertools.pairwise(made))
    assert (runs, set(made)) == (MOST_BLOCKS, {"a", "b"})


ONE = """
import pytest
from gpubench.testing import VirtualDevice

machine = VirtualDevice.machine
made = []

def work(seconds):
    made.append(seconds)
    machine.launch(seconds)

@pytest.mark.parametrize("kind", ["several", "single", "long"])
def test_it(gpubench, kind):
    made.clear()
    given = {"setup": lambda: ((1e-4,), {})} if kind == "single" else {}
    gpubench.declare(check=False, **given)(work, *[0.8 if kind == "long" else 1e-4][: not given])
    print(f"{kind}: {len(made)} calls")
"""


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ([], {"several": 100, "single": 1000, "long": 3}),
        (["--benchmark-min-rounds=300"], {"several": 300, "single": 1000, "long": 3}),
        (["--benchmark-max-time=0.05"], {"several": 25, "single": 500, "long": 3}),
        (["--benchmark-min-time=0.004"], {"several": 50, "single": 1000, "long": 3}),
    ],
)
def test_pytest_benchmarks_options_choose_the_rounds(virtual, options, rounds) -> None:
    _, run = virtual(ONE, *options, passed=3)
    stats = {mark["params"]["kind"]: mark["stats"] for mark in run["benchmarks"]}
    assert {kind: each["rounds"] for kind, each in stats.items()} == rounds
    assert [stats[kind]["iterations"] for kind in rounds] == [40 if "min-time" in str(options) else 20, 1, 1]
    assert stats["several"]["median"] == pytest.approx(1e-4, rel=1e-3)
    assert {mark["options"]["timer"] for mark in run["benchmarks"]} == {"device_clock"}
