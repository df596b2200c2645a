"""What a run says of how long it will take: on a clock of our own."""

import pytest

from gpubench.supervise import progress
from gpubench.supervise.progress import FURTHER, START_S, Progress, whole_s

CASES = [f"case {i}" for i in range(40)]
CASE_S = 1.0


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr(progress.time, "monotonic", lambda: Clock.now)
    return Clock


def session(process):
    return {"event": "session", "process": process, "cases": CASES, "estimated_s": CASE_S * len(CASES)}


def end(process, status="ok"):
    return {"event": "end", "process": process, "status": status, "reason": "" if status == "ok" else status}


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_what_is_left_follows_the_pace_seen(clock, capsys, pace):
    """A run that takes ``pace`` times what was predicted, from the time a tenth of it is done to its end."""
    told = Progress()
    told.expect(3, [])
    told.tell(session(0))
    whole = whole_s(CASE_S * len(CASES), 3)
    assert told.estimated_s == whole == 3 * START_S + 2 * len(CASES)
    assert told.left_s() == pytest.approx(whole - START_S)
    end_of_run = (whole - START_S) * pace
    for process in range(3):
        if process:
            clock.now += START_S * pace
            told.tell(session(process))
        for _ in CASES:
            clock.now += CASE_S * (FURTHER if process else 1) * pace
            told.tell(end(process))
            if clock.now >= end_of_run / 10 + CASE_S * pace:
                assert told.left_s() == pytest.approx(end_of_run - clock.now)
    assert (told.done, told.left_s()) == (3 * len(CASES), pytest.approx(0))
    assert "40 benchmarks in 3 processes, about 1 min 32 s" in capsys.readouterr().err


def test_a_skipped_case_is_no_pace_and_no_longer_to_come(clock):
    told = Progress()
    told.expect(3, [])
    told.tell(session(0))
    before = told.left_s()
    told.tell(end(0, "skipped"))
    assert told.left_s() == pytest.approx(before - 2 * CASE_S)
    assert told.cases == 3 * len(CASES) - 2


def test_a_resumed_run_expects_what_is_left(clock):
    told = Progress()
    told.expect(2, [session(0), end(0), end(0, "error")])
    assert told.cases == 2 * len(CASES) - 1 - 2
    assert told.left_s() == pytest.approx(whole_s(CASE_S * len(CASES), 2) - START_S - 1 - 1.5)


def test_one_is_no_plural(clock, capsys):
    told = Progress()
    told.tell(session(0) | {"cases": ["a"], "estimated_s": 1.0})
    assert "gpubench run: 1 case, about" in capsys.readouterr().err
