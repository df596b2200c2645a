"""Bounds that no program beats, and intervals that were learned; by hand, on cards whose figures are round."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpubench.cards.datasheets import UNITS, Gpu, Sourced, find_card, read_cards
from gpubench.cards.model import (
    DISPATCH_S,
    LEAST_CALL_S,
    SAFETY,
    Factor,
    Learned,
    Likely,
    Shares,
    learned_values,
    likely,
    memory_s,
    reached,
    shortest,
)
from gpubench.errors import UsageError
from gpubench.estimate.outlook import jobs_of
from gpubench.runfile.runs import read
from gpubench.runfile.schema import Operators, Work

CARD = {"float32": 1e13, "half": 1e14, "float64": 5e11, "memory": 1e12, "cache": 1e7, "watt": 100.0, "link": 1e10}
FACTORS = {kind: Factor(1.0, 0.0, 0.5, 2.0) for kind in ("elementwise", "normalisation", "product")}
EXACT = Learned(FACTORS, {}, Shares(0.0, 0.0, 1.0, 1.0))


def card(name="Round", beats_datasheet=False, **figures):
    known = {key: Sourced(value, "by hand") for key, value in (CARD | figures).items() if value}
    return Gpu(known, beats_datasheet=beats_datasheet, name=name)


LARGE = Work(flops=1e13, bytes=1e9)
CONVOLUTION = (Operators("convolution", 1, 8e12, 1e6), Operators("product", 1, 2e12, 1e6))


@pytest.mark.parametrize(
    ("work", "dtype", "figures", "seconds", "binds"),
    [
        *((LARGE, dtype, {}, times / SAFETY, "arithmetic")
          for dtype, times in {"float32": 1, "float64": 20, "float16": 0.1, "bfloat16": 0.1}.items()),
        (LARGE, "tf32", {}, (1e9 - 2e7) / 1e12 / SAFETY, "memory"),
        (Work(flops=1e13), "float32", {"beats_datasheet": True}, 1 / 1.2, "arithmetic"),
        (Work(flops=1e13, operators=CONVOLUTION), "float32", {}, 0.4 / SAFETY, "arithmetic"),
        (Work(flops=10, bytes=10), "float32", {}, LEAST_CALL_S, "launch"),
        (Work(bytes=1e12), "float32", {"cache": None}, LEAST_CALL_S, "launch"),
    ],
    ids=["float32", "float64", "float16", "bfloat16", "no peak of the dtype", "beats its datasheet",
         "fastest algorithm of convolutions", "small", "cache unknown"],
)  # fmt: skip
def test_the_longest_of_arithmetic_memory_and_launch_binds(work, dtype, figures, seconds, binds):
    bound = shortest(work, dtype, card(**figures))
    assert (bound.seconds, bound.binds, bound.complete) == (pytest.approx(seconds), binds, "cache" not in figures)


@pytest.mark.parametrize(("nbytes", "spared"), [(1e6, 1e6), (2e7, 2e7), (2.5e7, 2e7), (1e9, 2e7)])
def test_the_cache_spares_twice_its_size_and_no_more(nbytes, spared):
    assert memory_s(nbytes, card(), cached=True) == pytest.approx((nbytes - spared) / 1e12)
    assert memory_s(nbytes, card(), cached=False) == nbytes / 1e12


def guessed(*args):
    found = likely(*args, EXACT)
    assert isinstance(found, Likely), found
    return found


def test_a_network_is_the_sum_of_its_operators_and_not_its_sums_operator():
    """Half of it is bound by arithmetic and half by memory: as one operator it would take half the time."""
    operators = (Operators("product", 1, 1e13, 1.0), Operators("elementwise", 10, 0.0, 1e12))
    whole = guessed(Work(flops=1e13, bytes=1e12, operators=operators), "float32", card())
    assert (whole.middle_s, whole.high_s) == (pytest.approx(2.0), pytest.approx(2.0 + 4.0, rel=1e-3))
    assert guessed(Work(flops=1e13, bytes=1e12), "float32", card()).middle_s < 1.6


def test_arithmetic_and_memory_overlap_in_part_and_the_nearer_they_are_the_higher_is_the_high_end():
    products = (Operators("product", 1, 1e13, 1e12 / share) for share in (1, 2, 1e6))
    equal, twice, alone = (guessed(Work(operators=(each,)), "float32", card()) for each in products)
    assert [each.middle_s for each in (equal, twice, alone)] == pytest.approx([2 ** (2 / 3), 1.2233, 1.0], rel=1e-3)
    assert [each.high_s / each.middle_s for each in (equal, twice, alone)] == pytest.approx(
        [4.0, 2.0**1.5, 2.0], rel=1e-3
    )
    assert [each.middle_s / each.low_s for each in (equal, twice)] == pytest.approx([2.0, 2.0], rel=1e-3)


def test_elementwise_work_streams_at_the_rate_that_was_published_of_a_card():
    work = Work(operators=(Operators("elementwise", 1, 0.0, 1e12),))
    factors = replace(EXACT, kinds=FACTORS | {"streaming": Factor(1.0, 0.0, 0.9, 1.05)})
    guesses = [likely(work, "float32", card(memory_reached=rate), factors) for rate in (None, 8e11)]
    assert [each.middle_s for each in guesses] == [1.0, 1.25]
    assert guesses[1].low_s == pytest.approx(0.9 * 1.25)
    in_float64 = likely(work, "float64", card(memory_reached=8e11), factors)  # bytes are as fast, arithmetic isn't
    assert (in_float64.low_s, in_float64.high_s) == (guesses[1].low_s, pytest.approx(2.5, rel=1e-3))
    assert shortest(Work(bytes=1e12), "float32", card(memory_reached=8e11)).seconds < 1 / SAFETY


def test_work_known_by_its_sums_is_of_one_kind_on_every_gpu():
    work = Work(2.0 * 512**3, 12.0 * 512**2)
    l4, a100 = (likely(work, "float32", read_cards()[0][name]) for name in ("L4", "A100 80GB SXM"))
    assert l4.low_s > a100.low_s
    assert l4.high_s > a100.high_s


def test_what_is_likely_is_never_above_the_datasheet():
    work = Work(flops=1e13, bytes=1e9, operators=(Operators("product", 1, 1e13, 1e9),))
    guess = guessed(work, "float32", card())
    assert guess.low_s == shortest(work, "float32", card()).seconds * SAFETY == 1.0 < guess.middle_s < guess.high_s
    geforce = card(beats_datasheet=True)  # but for a card that exceeds it
    assert guessed(work, "float32", geforce).low_s == shortest(work, "float32", geforce).seconds < 1.0


@pytest.mark.parametrize(
    ("kind", "dtype", "basis", "low", "high"),
    [
        ("product", "float32", "products", 0.75, 1.5),
        ("product", "bfloat16", "", 0.5, 2.0),
        ("convolution", "float32", "", 0.5, 2.0),
    ],
)
def test_half_to_twice_is_said_of_what_nothing_was_learned_of(kind, dtype, basis, low, high):
    factors = replace(EXACT, kinds={**FACTORS, "product": Factor(2.0, 0.0, 0.75, 1.5)})
    work = Work(operators=(Operators(kind, 1, 1e13, 1.0),))
    guess = likely(work, dtype, card(), factors)
    middle_s = 2e13 / card().flop_per_s(dtype)
    assert guess == Likely(
        pytest.approx(low * middle_s), pytest.approx(middle_s), pytest.approx(high * middle_s + DISPATCH_S), basis
    )


@pytest.mark.parametrize(
    ("kind", "shares"), [("elementwise", (0.2, 0.2, 1, 1)), ("normalisation", (0.2, 0.2, 0.5, 0.99))]
)
def test_data_that_fits_the_cache_may_be_five_times_as_fast_and_of_larger_data_what_the_cache_holds(kind, shares):
    """Of work that reads each byte once nothing is left there of twice as much: so it was on an A100."""
    for nbytes, share in zip((5e8, 1e9, 2e9, 1e11), shares, strict=True):
        guess = guessed(Work(operators=(Operators(kind, 1, 0.0, nbytes),)), "float32", card(cache=1e9))
        assert guess.low_s == pytest.approx(0.5 * share * nbytes / 1e12)


@pytest.mark.parametrize(
    ("kind", "count", "low", "high"), [("elementwise", 1000, 3e-3, 1e-2), ("normalisation", 175, 4e-3, 7e-3)]
)
def test_many_small_operators_take_their_launches_and_in_a_network_python_too(kind, count, low, high):
    guess = guessed(Work(operators=(Operators(kind, count, 0.0, 1e3),)), "float32", card())
    assert (guess.low_s, guess.high_s) == (pytest.approx(low, rel=0.01), pytest.approx(high, rel=0.01))


def test_a_loss_at_the_end_of_a_loop_of_cells_makes_no_network():
    cells = (Operators("product", 1850, 1e6, 1e6), Operators("elementwise", 1850, 0.0, 1e5))
    guess = guessed(Work(operators=(*cells, Operators("normalisation", 1, 0.0, 1e3))), "float32", card())
    assert guess.low_s == pytest.approx(3701 * 3e-6)


def test_operators_that_nothing_was_learned_of_are_admitted():
    some = Work(operators=(Operators("other", 1, 0.0, 1e9), Operators("elementwise", 1, 0.0, 1e12)))
    most = Work(operators=(Operators("other", 1, 0.0, 1e12), Operators("elementwise", 1, 0.0, 1e9)))
    assert guessed(some, "float32", card()).basis == "elementwise work"
    assert "nothing was learned" in likely(most, "float32", card(), EXACT)


def test_products_reach_what_was_published_of_a_card_or_what_others_reach_for_each_watt():
    assert reached("float32", card(float32_reached=4e12)) == pytest.approx(4e12)
    many, few = (reached("float32", card(watt=watt)) for watt in (300.0, 30.0))
    assert few < 0.7 * many
    assert many == 1e13  # no more than its peak
    assert reached("float32", card(watt=0)) == pytest.approx(reached("float16", card()) / 10)
    assert reached("tf32", card()) is None


def test_the_shipped_factors_are_ranges_around_a_middle_and_held_on_cards_kept_apart():
    factors = learned_values().kinds
    assert factors.keys() == {"elementwise", "normalisation", "product", "sort", "streaming"}
    assert all(factor.low < 1 < factor.high for factor in factors.values())
    held = learned_values().held
    assert all(0.8 <= least <= most for least, most in held.values())
    assert held["products"][1] <= 0.95


def test_a_sort_takes_so_many_times_its_traffic_as_published_rates_allow():
    guess = likely(Work(operators=(Operators("sort", 1, 0.0, 1e12),)), "float32", card())
    traffic_s = memory_s(1e12, card())
    assert (guess.low_s / traffic_s, guess.high_s / traffic_s) == pytest.approx((1.08, 5.4), rel=0.01)
    assert guess.basis == ""  # no time of torch.sort was compared
    cached = likely(Work(operators=(Operators("sort", 1, 0.0, 1e9),)), "float32", card(cache=1e9))
    assert cached.low_s == pytest.approx(1.08 * memory_s(1e9, card()))


def test_of_a_dtype_that_a_card_emulates_nothing_is_probable():
    work = Work(flops=1e13, bytes=1e9)
    t4 = read_cards()[0]["T4"]
    assert isinstance(likely(work, "float16", t4), Likely)
    assert likely(work, "bfloat16", t4) == "the T4 emulates bfloat16"


def bytes_of(work):
    kinds = {each.kind for each in work.operators}
    return {kind: sum(each.bytes for each in work.operators if each.kind == kind) for kind in kinds}


def at_batch(work, forward, passes, batch):
    """A network's work at a larger batch than 1, at which its 102 MB of parameters are read as often as before."""
    passed, moved = bytes_of(forward), bytes_of(work)
    readers = sum(passed[kind] for kind in ("product", "convolution", "other"))
    grows = {kind: passed[kind] * (1 if kind not in ("product", "convolution", "other") else 1 - 1.02e8 / readers)
             for kind in passed}  # fmt: skip
    times = {kind: 1 + (batch - 1) * min(1.0, passes * grows[kind] / moved[kind]) for kind in moved}
    return Work(operators=tuple(
        Operators(each.kind, each.count, each.flops * batch, each.bytes * times[each.kind]) for each in work.operators
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "how", "batch", "seconds"),
    [
        ("models.resnet50", "", 8, 10.18e-3),
        ("models.resnet50", "", 128, 104.24e-3),
        ("models.resnet50", "autocast", 8, 8.88e-3),
        ("models.resnet50", "autocast", 128, 50.14e-3),
        ("training.resnet50", "", 128, 128 / 380.44),
        ("training.resnet50", "autocast", 128, 128 / 893.09),
    ],
)
def test_what_nvidia_published_of_resnet_50_on_a_v100_lies_in_the_range(name, how, batch, seconds):
    """From a run at batch 1, a pass and a step of training. Source: DeepLearningExamples, ConvNets/resnet50v1.5."""
    jobs = jobs_of(read(Path(__file__).parents[2] / "results/xeon-2.80ghz/run.json"))
    mine = [job for job in jobs if job.case.workload == name and job.case.variant == "eager"]
    job = next(job for job in mine if job.how == how)
    forward = next(job for job in jobs if job.case.workload == "models.resnet50" and job.how == how)
    work = at_batch(job.work, forward.work, 3 if name.startswith("training") else 1, batch)
    guess = likely(work, job.dtype, find_card("V100", read_cards()[0]))
    assert guess.low_s < seconds < guess.high_s


# Cards ----------------------------------------------------------------------------------------------------------------


def test_every_figure_has_a_source_that_is_listed():
    cards, sources = read_cards()
    assert len(cards) >= 20
    for each in cards.values():
        assert {figure.source for figure in each.figures.values()} <= sources.keys(), each.name
        assert each.figures.keys() <= UNITS.keys()
    assert all("read 20" in text for text in sources.values())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("L4", "L4"), ("h100-sxm", "H100 SXM"), ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("t4", "T4"),
     ("a100 80gb pcie", "A100 80GB PCIe"), ("A100", "A100 80GB SXM"), ("h100", "H100 SXM"), ("4090", "RTX 4090"),
     ("Tesla T4", "T4"), ("A100-40GB-PCIe", "A100 40GB PCIe"),
     # as PyTorch names them
     ("Tesla P100-PCIE-16GB", "P100 PCIe"), ("Tesla V100-PCIE-16GB", "V100 PCIe"),
     ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"), ("NVIDIA H100 80GB HBM3", "H100 SXM"),
     ("AMD Instinct MI300X", "MI300X"),
     ("Intel(R) Arc(TM) B580 Graphics", "Arc B580")],
)  # fmt: skip
def test_cards_are_found_as_people_write_them(typed, meant):
    assert find_card(typed, read_cards()[0]).name == meant


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("RTX4080", "RTX 40"),
        ("H100 NVL", "H100 SXM or H100 PCIe"),
        ("090", "RTX"),
        ("580", "Arc B580"),
        ("NVIDIA L4 24GB", "L4"),
    ],
)
def test_a_near_miss_gets_a_suggestion(typed, near):
    with pytest.raises(UsageError, match=near):
        find_card(typed, read_cards()[0])
