"""Bounds that no program beats, and intervals that were learned; by hand, on cards whose figures are round."""

import math

import pytest

from gpubench.devices.datasheets import Figures, Gpu, Sourced, find_card, read_cards
from gpubench.devices.roofline import Factor, learned_factors, memory_s
from gpubench.errors import UsageError
from gpubench.estimate.model import LEAST_CALL_S, SAFETY, Likely, likely, shortest
from gpubench.runfile.schema import Operators, Work

CARD = {"float32": 1e13, "half": 1e14, "float64": 5e11, "memory": 1e12, "cache": 1e7, "watt": 100.0, "link": 1e10}
EXACT = {kind: Factor(0.0, 0.0, 1.0, 0.0, 0.5, 2.0) for kind in ("elementwise", "normalisation", "product")}


def card(name="Round", beats_datasheet=False, **figures):
    known = {key: Sourced(value, "by hand") for key, value in (CARD | figures).items() if value}
    return Gpu(Figures(**known), beats_datasheet=beats_datasheet, name=name)


def test_arithmetic_binds_a_large_product_each_dtype_at_its_own_peak():
    work = Work(flops=1e13, bytes=1e9)
    bound = shortest(work, "float32", card())
    assert (bound.seconds, bound.binds, bound.complete) == (pytest.approx(1 / SAFETY), "arithmetic", True)
    assert shortest(work, "float64", card()).seconds == pytest.approx(20 / SAFETY)
    assert shortest(work, "bfloat16", card()).seconds == shortest(work, "float16", card()).seconds
    assert shortest(work, "float16", card()).seconds == pytest.approx(0.1 / SAFETY)


def test_a_dtype_without_a_peak_is_bound_by_its_bytes_alone():
    bound = shortest(Work(flops=1e13, bytes=1e9), "tf32", card())
    assert bound.binds == "memory"
    assert bound.seconds == pytest.approx((1e9 - 2e7) / 1e12 / SAFETY)


@pytest.mark.parametrize(("nbytes", "spared"), [(1e6, 1e6), (2e7, 2e7), (2.5e7, 2e7), (1e9, 2e7)])
def test_the_cache_spares_twice_its_size_and_no_more(nbytes, spared):
    assert memory_s(nbytes, card(), cached=True) == pytest.approx((nbytes - spared) / 1e12)
    assert memory_s(nbytes, card(), cached=False) == nbytes / 1e12


def test_without_the_size_of_the_cache_no_memory_bound_is_claimed():
    bound = shortest(Work(bytes=1e12), "float32", card(cache=None))
    assert (bound.seconds, bound.binds, bound.complete) == (LEAST_CALL_S, "launch", False)


def test_cards_that_beat_their_datasheet_get_more_room():
    seconds = [shortest(Work(flops=1e13), "float32", card(beats_datasheet=beats)).seconds for beats in (False, True)]
    assert seconds == [pytest.approx(1 / 1.1), pytest.approx(1 / 1.2)]


def test_convolutions_count_as_the_fastest_algorithm_does_them():
    operators = (Operators("convolution", 1, 8e12, 1e6), Operators("product", 1, 2e12, 1e6))
    assert shortest(Work(flops=1e13, operators=operators), "float32", card()).seconds == pytest.approx(0.4 / SAFETY)


def test_a_small_call_takes_a_launch():
    assert shortest(Work(flops=10, bytes=10), "float32", card()).seconds == LEAST_CALL_S


def test_a_network_is_the_sum_of_its_operators_and_not_its_sums_operator():
    """Half of it is bound by arithmetic and half by memory: as one operator it would take half the time."""
    operators = (Operators("product", 1, 1e13, 1e9), Operators("elementwise", 10, 0.0, 1e12))
    whole = likely(Work(flops=1e13, bytes=1e9, operators=operators), "float32", card(), EXACT)
    assert isinstance(whole, Likely)
    assert whole.middle_s == pytest.approx(2.0)
    assert whole.high_s == pytest.approx(4.0, rel=1e-3)
    single = likely(Work(flops=1e13, bytes=1e9), "float32", card(), EXACT)
    assert isinstance(single, Likely)
    assert single.middle_s == pytest.approx(1.0)


def test_what_is_likely_is_never_below_the_bound():
    work = Work(flops=1e13, bytes=1e9, operators=(Operators("product", 1, 1e13, 1e9),))
    guess = likely(work, "float32", card(), EXACT)
    assert isinstance(guess, Likely)
    assert guess.low_s == shortest(work, "float32", card()).seconds < guess.middle_s < guess.high_s


def test_in_a_dtype_that_nothing_was_learned_of_the_fast_end_is_the_bound():
    work = Work(flops=1e13, bytes=1e9, operators=(Operators("product", 1, 1e13, 1e9),))
    unlearned = likely(work, "bfloat16", card(), {**EXACT, "product": Factor(1.0, 0.0, 1.0, 0.0, 0.9, 2.0)})
    assert isinstance(unlearned, Likely)
    assert unlearned.low_s == shortest(work, "bfloat16", card()).seconds
    assert unlearned.middle_s == pytest.approx(0.1 * math.e)


def test_many_small_operators_take_their_launches():
    work = Work(flops=1.0, bytes=1e3, operators=(Operators("elementwise", 1000, 0.0, 1e6),))
    guess = likely(work, "float32", card(), EXACT)
    assert isinstance(guess, Likely)
    assert guess.low_s == pytest.approx(3e-3)
    assert guess.high_s == pytest.approx(1e-2, rel=0.01)


def test_operators_that_nothing_was_learned_of_are_admitted():
    some = Work(operators=(Operators("other", 1, 0.0, 1e9), Operators("elementwise", 1, 0.0, 1e12)))
    most = Work(operators=(Operators("other", 1, 0.0, 1e12), Operators("elementwise", 1, 0.0, 1e9)))
    assert isinstance(likely(some, "float32", card(), EXACT), Likely)
    assert likely(most, "float32", card(), EXACT) == "nothing was learned of its operators"


def test_a_card_that_promises_more_per_watt_keeps_less_of_it():
    work = Work(flops=1e14, bytes=1e9)
    many, few = (likely(work, "float32", card(watt=watt)) for watt in (300.0, 70.0))
    assert isinstance(many, Likely)
    assert isinstance(few, Likely)
    assert few.middle_s > 1.3 * many.middle_s
    assert likely(work, "float32", card(watt=None)) == "the GPU's power limit is unknown"


def test_the_shipped_factors_are_intervals_around_a_middle_that_no_card_beats():
    factors = learned_factors()
    assert factors.keys() == {"elementwise", "normalisation", "product"}
    for factor in factors.values():
        assert factor.low < 1 < factor.high
        assert factor.middle(1.0, math.log(1e11)) >= 1


def test_of_a_dtype_that_a_card_emulates_nothing_is_probable():
    work = Work(flops=1e13, bytes=1e9)
    t4 = read_cards()[0]["T4"]
    assert isinstance(likely(work, "float16", t4), Likely)
    assert likely(work, "bfloat16", t4) == "the T4 emulates bfloat16"


# Cards ----------------------------------------------------------------------------------------------------------------


def test_every_figure_has_a_source_that_is_listed():
    cards, sources = read_cards()
    assert len(cards) >= 20
    for each in cards.values():
        for name in Figures.__struct_fields__:
            figure = getattr(each.figures, name)
            assert figure is None or figure.source in sources, (each.name, name)
    assert all("read 20" in text for text in sources.values())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("L4", "L4"), ("h100-sxm", "H100 SXM"), ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("t4", "T4"),
     ("a100 80gb pcie", "A100 80GB PCIe"), ("A100", "A100 80GB SXM"), ("h100", "H100 SXM"), ("4090", "RTX 4090"),
     ("Tesla T4", "T4"), ("A100-40GB-PCIe", "A100 40GB PCIe")],
)  # fmt: skip
def test_cards_are_found_as_people_write_them(typed, meant):
    assert find_card(typed, read_cards()[0]).name == meant


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("RTX4080", "RTX 40"),
        ("H100 NVL", "H100 SXM or H100 PCIe"),
        ("090", "RTX"),
        ("NVIDIA L4 24GB", "L4"),
    ],
)
def test_a_near_miss_gets_a_suggestion(typed, near):
    with pytest.raises(UsageError, match=near):
        find_card(typed, read_cards()[0])
