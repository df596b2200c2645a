"""The step on GPUs, the causes, the text and the picture of made-up profiles."""

from __future__ import annotations

import copy
import re

import pytest

from gpubench.errors import UsageError
from gpubench.profiling import profile_answer
from gpubench.profiling.profile import PARTS, LoaderFacts, Place, Profile, Step
from gpubench.profiling.profile_answer import CARDS, bars_of, cards_of, complete, faster, gain, screen, span_text
from gpubench.report.charts.pictures import render, stacked_figure
from gpubench.runfile.quantities import times_range
from gpubench.runfile.schema import Operators

MS = 1e-3
ONE_CNN = Operators("convolution", 40, 1.1e11, 3.1e8)
OPTIMIZER = Operators("elementwise", 12, 0.0, 4e8)


def made(operators=(ONE_CNN,), launches=165, step=None, **parts):
    """A completed profile with these parts in milliseconds, and the GPUs of CARDS."""
    seconds = dict.fromkeys(PARTS[:-1], 0.0) | {name: value * MS for name, value in parts.items()}
    mean = sum(seconds.values())
    step = step or Step("AdamW", "optimizer", 24, mean, 0.97 * mean, 1.03 * mean, 1.0, 64, "64", 5)
    profile = Profile("train.py", threads=2, step=step, parts=seconds, operators=list(operators), optimizer=[OPTIMIZER])
    profile.launches, profile.optimizer_launches, profile.memory_bytes = launches, 12, 9 * 10**8
    profile.traced = True
    return profile


def done(profile, *names):
    complete(profile, cards_of(names))
    return profile


def slow_loader():
    profile = made(data=640, python=0.2, host=4.5, forward=300, backward=337, optimizer=28)
    profile.loaders = [LoaderFacts("train.py:31", 0, False, 0.64)]
    profile.waits, profile.copied_bytes = [Place("item", "train.py:44")], 7_077_888
    profile.lines = {"data": "data.py:7"}
    return done(profile)


def test_waiting_for_data_bounds_the_speedup():
    profile = slow_loader()
    assert profile.bound == pytest.approx(1309.7 / (640 + 0.6 * 4.7))
    assert all(gpu.speedup[1] <= profile.bound * (1 + 1e-9) for gpu in profile.gpus)
    lines = screen(profile)
    assert lines[0].startswith("train.py: no GPU makes it more than about 2.0× faster on a host like this one")
    text = " ".join(lines)
    assert "49% of a step waits for data: num_workers=0 at train.py:31" in text
    assert "The loader alone makes 100 rows/s in 1 process; an L4 could take" in text
    assert "It loads mostly at data.py:7." in text
    assert text.index(profile.causes[0].next) < text.index("waiting for data ")  # the advice beside its cause
    assert ".item() at train.py:44 waits for the GPU, in the step that was counted" in text
    assert "if data never waits" in text
    assert profile.gpus[0].without_waiting[0] > 10


def test_a_loader_that_is_fast_enough_is_moved_beside_the_step():
    profile = made(data=60, python=5, host=1, forward=1500, backward=650, optimizer=189)
    profile.loaders = [LoaderFacts("train.py:42", 0, False, 0.02)]
    assert "or more: num_workers=1 loads beside the step." in " ".join(screen(done(profile)))


def test_bound_and_likely_range_stand_in_one_breath_and_a_share_once():
    profile = made(python=30, host=1, forward=900)
    profile.memory_bytes = 12 * 10**6
    text = " ".join(screen(done(profile)))
    assert text.startswith("train.py: no GPU makes it more than about 50× faster on a host like this one (the GPUs ")
    low, high = min(gpu.speedup[0] for gpu in profile.gpus), max(gpu.speedup[1] for gpu in profile.gpus)
    assert f"likely {times_range(low, high, '–')}): 3% of a step is own Python, without torch First: Move it" in text
    assert text.count("own Python, without torch") == 1
    assert "Memory: 12 MB of an L4's 24 GB." in text


def test_workers_load_beside_the_step():
    profile = slow_loader()
    other = copy.deepcopy(profile)
    other.gpus, other.loaders[0].workers, other.loaders[0].alone_s = [], 4, 0.16
    done(other)
    assert other.bound == pytest.approx(1309.7 / 160)
    assert other.gpus[0].step_s == pytest.approx((0.16, 0.16))
    text = " ".join(screen(other))
    assert "more than about 8.2× faster" in text
    assert "12% of a step is loading, beside it: num_workers=4 at train.py:31" in text
    other.gpus, other.parts["data"], other.loaders[0].alone_s = [], 0.1, 0.001
    assert "data" not in [cause.name for cause in done(other).causes]


def test_host_is_the_limit_of_a_small_network():
    small = Operators("product", 6, 1e6, 1e6)
    profile = made((small,), 22, python=0.1, host=0.5, forward=1, backward=1.2, optimizer=0.9)
    profile.optimizer = [small]
    done(profile)
    assert "on any of these GPUs: the host is the limit, not the GPU" in " ".join(screen(profile))
    assert profile.causes[0].name == "launches"
    assert profile.gpus[0].step_s == profile.gpus[-1].step_s
    assert profile.gpus[0].host_s == pytest.approx((0.6 * 0.5 * MS + 34 * 3e-6, 1.6 * 0.5 * MS + 34 * 7e-6))


def test_a_step_that_computes_says_so():
    work = [Operators("product", 600, 1e12, 4e9), Operators("elementwise", 200, 0.0, 6e9)]
    profile = done(made(work, 850, python=0.2, host=14, forward=4000, backward=7100, optimizer=690))
    assert screen(profile)[0].endswith(": it computes") or "it computes" in screen(profile)[1]
    assert "products are 100% of 1e+03 GFLOP" in " ".join(screen(profile))
    profile.launches, profile.gpus = None, []
    assert "1e+03 GFLOP. A step: " in " ".join(screen(done(profile)))
    for gpu in profile.gpus:
        assert gpu.step_s[0] < gpu.step_s[1]


def test_a_loader_that_most_of_a_gpus_step_waits_for_is_the_cause():
    profile = made((Operators("product", 20, 4.2e8, 1e7),), 78, data=9.6, python=4, host=1.2, forward=20, backward=17)
    profile.loaders, profile.waits = [LoaderFacts("main.py:38", 0, False, 0.0096)], [Place("item", "main.py:101")]
    done(profile)
    assert [cause.name for cause in profile.causes] == ["data", "waits"]
    assert screen(profile)[0].startswith("train.py: no GPU makes it more than")


def test_elementwise_work_waits_for_memory():
    profile = done(made([Operators("elementwise", 2, 0.0, 2.4e9)], 2, host=0.01, forward=178))
    text = " ".join(screen(profile))
    assert ": it waits for memory" in text
    assert "It waits for memory: its operators move 2.4 GB." in text
    assert "TF32" not in text


def test_own_python_and_copies_and_memory_are_causes():
    profile = made(python=90, host=1, forward=50, backward=50, optimizer=1)
    profile.lines, profile.memory_bytes, profile.copied_bytes = {"python": "serve.py:18"}, 4 * 10**10, 2 * 10**9
    done(profile, "L4")
    assert [cause.name for cause in profile.causes] == ["memory", "copies", "python"]
    assert "is own Python, without torch, mostly at serve.py:18" in profile.causes[2].says


def test_unknown_operators_leave_the_bound():
    profile = done(made((Operators("other", 40, 0.0, 4e9),), data=10, forward=50))
    assert not profile.gpus
    lines = " ".join(screen(profile))
    assert lines.startswith("train.py: no GPU makes it more than about 6.0× faster")
    assert "No times on GPUs: nothing was learned of its operators." in lines


def test_time_outside_of_regions_is_no_own_python_before_it_was_traced():
    profile = made(python=50, data=0.1)
    profile.traced, profile.launches = False, None
    done(profile)
    assert profile.bound == pytest.approx(501)
    assert "own Python" not in " ".join(screen(profile))
    profile = made(python=50)
    profile.traced, profile.launches = False, None
    done(profile)
    assert profile.bound is None
    assert screen(profile)[0].startswith("train.py: no limit was found")


@pytest.mark.parametrize("make", [slow_loader, lambda: done(made(host=1, forward=3, backward=5))])
@pytest.mark.parametrize("busy", ["", "other processes used 91% of the 2 cores"])
def test_text_fits_and_a_busy_machine_has_stars(make, busy):
    profile = make()
    profile.busy = busy
    lines = screen(profile)
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert ("*" in "".join(lines)) == bool(busy)


def test_a_measured_gpu_is_compared_with_its_range():
    profile = slow_loader()
    low, high = profile.gpus[0].step_s
    profile.measured = {"L4": (low, (low + high) / 2, high)}
    assert ": inside." in " ".join(screen(profile))
    profile.measured = {"L4": (high, 2 * high, 3 * high)}
    assert ": outside." in " ".join(screen(profile))


def test_picture_has_a_bar_for_each_device():
    svg = render(stacked_figure(*bars_of(slow_loader()))).decode()
    assert all(name in svg for name in ("CPU, 2 threads", "H100 SXM", "waiting for data"))


def test_spans_are_short():
    assert span_text(0.007, 0.036) == "7.0–36 ms"
    assert span_text(5e-5, 9e-5) == "≤ 0.1 ms"
    assert span_text(1e-5, 3e-4) == "≤ 0.3 ms"
    assert span_text(1.31) == "1.31 s"
    assert gain((2.01, 2.04)) == "2.0×"


def test_cards_are_named_or_taken_from_a_results_file(tmp_path, monkeypatch):
    assert [card.name for card, _ in cards_of([])] == ["L4", "RTX 4090", "A100 80GB SXM", "H100 SXM"]
    assert len(CARDS) == 4
    (tmp_path / "run.json").write_text("")
    monkeypatch.setattr(profile_answer, "read", lambda _: type("Run", (), {"results": []}))
    with pytest.raises(UsageError, match="no benchmark of a GPU is there"):
        cards_of([str(tmp_path / "run.json")])


def test_a_ratio_below_one_is_so_many_times_slower():
    small = made((Operators("product", 2, 1e3, 1e3),), 400, host=0.2, forward=0.2)
    small.optimizer = []
    text = " ".join(screen(done(small)))
    low, high = small.gpus[0].speedup
    assert low < high < 1
    slower = f"{1 / high:.1f}–{1 / low:.1f}×"
    assert text.startswith(f"train.py: {slower} slower on any of these GPUs: the host is the limit")
    assert "faster  " not in text
    assert re.search(f"slower +{slower} ", text)
    assert faster((0.5, 1.53)) == "2.0× slower to 1.5× faster"
    assert (gain((0.5, 1.53)), gain((0.5, 0.6)), gain((0.96, 2.0), "*")) == ("≤ 1.5×", "–", "1.0–2.0×*")


def test_a_loader_that_is_slower_alone_leaves_no_bound_below_one():
    profile = made(data=1, forward=9)
    profile.loaders = [LoaderFacts("train.py:1", 2, False, 0.02)]
    assert done(profile).bound == 1
    assert {gpu.speedup[1] for gpu in profile.gpus} == {1.0}


def test_data_are_loaded_beside_the_gpus_work_unless_a_call_waits_for_it():
    waits = made((Operators("product", 20, 4e12, 1e7),), data=10, forward=9000)
    beside = copy.deepcopy(waits)
    waits.waits = [Place("item", "train.py:1")]
    (low, high), (soonest, latest) = (done(profile, "L4").gpus[0].step_s for profile in (waits, beside))
    assert soonest == pytest.approx(low - 10 * MS)
    assert latest == high
