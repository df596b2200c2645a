"""How good a time with flags is."""

import pytest

from gpubench.runfile.flags import ADVICE, Quality, Reason, judge


@pytest.mark.parametrize(
    ("flags", "spread", "why", "doubt"),
    [
        ((), 0.5, (), None),
        (("power-limited",), 0.0, (), None),
        (("too-short", "noisy", "contended"), 0, (Reason.BUSY, Reason.TOO_SHORT, Reason.NOISY), None),
        ((), 1.1, (Reason.TOO_NOISY,), None),
        (("noisy", "implausible"), 0.0, (Reason.ABOVE_PEAK, Reason.NOISY), Reason.ABOVE_PEAK),
        (("implausible", "waiting"), 0.0, (Reason.WAITED, Reason.ABOVE_PEAK), Reason.WAITED),
    ],
)
def test_the_quality_of_a_time(flags, spread, why, doubt):
    assert judge(flags, spread) == Quality(why, doubt)
    assert judge(flags, spread).star == "*" * bool(why)


def test_flags_that_say_nothing_of_the_time_have_no_star():
    assert [name for name in ADVICE if not judge([name]).star] == ["power-limited", "different-result"]
