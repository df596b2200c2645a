"""What only the processes of a case together can show, and how good a time with flags is."""

import pytest

from gpubench.runfile.flags import ADVICE, Level, Quality, Reason, judge
from gpubench.runfile.quality import apart
from gpubench.runfile.schema import Process, Times


@pytest.mark.parametrize(
    ("processes", "spread", "seen"),
    [
        ([(1.0, 50), (1.2, 50), (1.1, 50)], 0.9, None),  # a process with many rounds has told its spread itself
        ([(1.0, 50), (1.3, 50)], 0.0, "the slowest process took 1.3 times the fastest"),
        ([(1.0, 2), (1.1, 2), (1.0, 2)], 0.4, "half of all 6 rounds are spread over 40% of the median"),
        ([(1.0, 2), (1.1, 2), (1.0, 2)], 0.1, None),
        ([(1.0, 2), (1.1, 2)], 0.4, None),  # four rounds tell nothing
        ([(1.0, 2)], 0.9, None),
    ],
)
def test_apart(processes, spread, seen):
    each = tuple(Process(i, rounds, median) for i, (median, rounds) in enumerate(processes))
    assert apart(Times(1.0, 1.0, 1.0, spread, 1.0, 1.0, 1, 1, None, "", each)) == seen


@pytest.mark.parametrize(
    ("flags", "spread", "level", "why", "star"),
    [
        ((), 0.5, Level.SOUND, (), ""),
        (("power-limited",), 0.0, Level.SOUND, (), ""),
        (("too-short", "noisy", "contended"), 0, Level.NOISY, (Reason.BUSY, Reason.TOO_SHORT, Reason.NOISY), "*"),
        ((), 1.1, Level.NOISY, (Reason.TOO_NOISY,), "*"),
        (("noisy", "implausible"), 0.0, Level.UNUSABLE, (Reason.ABOVE_PEAK, Reason.NOISY), "*"),
        (("implausible", "waiting"), 0.0, Level.UNUSABLE, (Reason.WAITED, Reason.ABOVE_PEAK), "*"),
    ],
)
def test_the_quality_of_a_time(flags, spread, level, why, star):
    found = judge(flags, spread)
    assert found == Quality(level, why)
    assert (found.star, found.doubt) == (star, why[0] if level is Level.UNUSABLE else None)


def test_flags_that_say_nothing_of_the_time_have_no_star():
    assert [name for name in ADVICE if not judge([name]).star] == ["power-limited", "different-result"]
