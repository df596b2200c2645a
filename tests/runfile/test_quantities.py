"""Numbers for people."""

import codecs
import random
import string

import pytest

from gpubench.runfile.quantities import plain_signs, ratio_text, seconds_text, shorten_apart, text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1.5e-4, "s", "150 µs"), (0.9999, "s", "1.00 s"), (9.994e-7, "s", "999 ns"), (9.996e-7, "s", "1.00 µs"),
        (1e-13, "s", "0.100 ps"), (12.34, "s", "12.3 s"), (None, "s", "—"), (float("nan"), "s", "—"), (0, "s", "0 s"),
        (-2e-3, "s", "-2.00 ms"), (2.5e12, "FLOP/s", "2.50 TFLOP/s"), (4e9, "B", "4.00 GB"),
        # only what can be divided has a prefix below one
        (0.935, "samples/s", "0.935 samples/s"), (1.36e6, "samples/s", "1.36 Msamples/s"), (0.02, "/J", "0.0200 /J"),
        (3.21e-7, "tokens/s", "3.21e-07 tokens/s"), (0.5, "J", "500 mJ"), (0.9999, "B", "1.00 B"),
    ],
)  # fmt: skip
def test_three_digits_and_a_prefix(value, unit, shown):
    assert text(value, unit) == shown


def test_a_terminal_of_plain_letters_gets_signs_that_it_has():
    codecs.register_error("plain-signs", plain_signs)
    assert "10⁷ × 2 µs ✓ — é".encode("ascii", "plain-signs") == b"10^7 x 2 us + - ?"
    assert "10⁻³ 10⁵".encode("latin-1", "plain-signs") == b"10^-3 10^5"  # which has a ³ of its own
    assert "10⁶".encode("cp437", "plain-signs") == b"10^6"


def test_longer_times():
    assert [seconds_text(s) for s in (59.0, 185, 7320)] == ["59.0 s", "3 min 05 s", "2 h 02 min"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234.5, "1,230×"), (126.4, "126×"), (99.6, "100×"), (34.2, "34×"), (9.96, "10×"), (1.04, "1.0×"), (0.997, "1.0×"),
     (0.24, "0.24×"), (0.0123, "0.012×"), (3.2e7, "3.2e+07×")],
)  # fmt: skip
def test_ratios_have_two_digits_and_three_from_a_hundred_on(value, shown):
    assert ratio_text(value) == shown


def test_shortened_names_still_differ():
    dates = shorten_apart([f"benchmark-results-2026-{day}" for day in ("01-05", "02-10")], 24)
    assert list(dates.values()) == ["…01-05", "…02-10"]
    draw = random.Random(1)
    for _ in range(300):
        base = "".join(draw.choices(string.ascii_letters + "__..  -", k=draw.randint(10, 120)))
        places = [draw.randrange(len(base)) for _ in range(12)]
        names = {f"{base[:at]}{draw.choice('xyz')}{base[at + 1 :]}" for at in places}
        short = shorten_apart(names, 40)
        assert len(set(short.values())) == len(names)
        assert all(len(each) <= 40 for each in short.values())
