"""What only the processes of a case together can show."""

import pytest

from gpubench.runfile.flags import apart


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
    assert apart(processes, spread) == seen
