"""How good a time with flags is."""

import pytest

from gpubench.runfile.flags import ADVICE, Level, Quality, Reason, judge


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
