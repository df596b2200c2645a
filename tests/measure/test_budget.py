"""What a case may take is judged by probes, and a bad one removes no benchmark."""

import pytest
import torch

from gpubench.devices import CPU
from gpubench.errors import OverBudget
from gpubench.measure import budget
from gpubench.measure.budget import MOST_DOUBTS, PRESET_SETTINGS, Rates, require
from gpubench.runfile.schema import Case, Work

PRODUCT = Work(flops=2 * 2048**3)


@pytest.fixture
def probes(monkeypatch):
    """Seconds of each probe, the last one for ever, by whether it is one of bytes; the threads that each had."""
    seen = []

    def give(products, copies):
        queues = {"product": list(products), "copy": list(copies)}

        def shortest(device, call):
            kind = "copy" if "target" in call.__code__.co_freevars else "product"
            seen.append((kind, torch.get_num_threads()))
            return queues[kind].pop(0) if len(queues[kind]) > 1 else queues[kind][0]

        monkeypatch.setattr(Rates, "_shortest", staticmethod(shortest))
        return seen

    return give


def planned(rates):
    case = Case("matmul.square", "cpu", "float32")
    return budget.estimate(case, PRODUCT, CPU, PRESET_SETTINGS["quick"], rates)


def test_a_probe_that_other_programs_disturbed_removes_no_benchmark(probes):
    """n = 2048 was skipped as it would take 12.3 s; it takes 0.16."""
    seen = probes([0.024, 0.3e-3, 2.5e-3], [1e-3])
    assert planned(Rates()) == pytest.approx(0.16, rel=0.05)
    assert [threads for kind, threads in seen if kind == "product"][1:] == [1, 1]


@pytest.mark.parametrize(
    ("preset", "seconds", "advice"),
    [("quick", 8.0, "make the call smaller or use --preset full"), ("quick", 12.0, "make the call smaller"),
     ("full", 12.0, "make the call smaller")],
)  # fmt: skip
def test_a_call_over_budget_is_told_what_to_do(preset, seconds, advice):
    with pytest.raises(OverBudget) as error:
        require(seconds, "seen in warm-up", PRESET_SETTINGS[preset])
    assert str(error.value).endswith(f": {advice}")


def test_a_device_that_is_slow_is_asked_a_few_times_only(probes):
    seen, rates, threads = probes([0.024], [1e-3]), Rates(), torch.get_num_threads()
    for _ in range(5):
        with pytest.raises(OverBudget, match="too slow"):
            planned(rates)
    assert sum(kind == "product" for kind, _ in seen) == 1 + MOST_DOUBTS
    assert torch.get_num_threads() == threads


def test_a_case_that_fits_is_planned_by_the_first_probe(probes):
    seen = probes([0.3e-3, 2.5e-3], [1e-3])
    assert planned(Rates())
    assert len(seen) == 2


@pytest.mark.parametrize("nbytes", [1e3, 1e12])
def test_a_call_takes_as_long_as_the_longer_of_its_flops_and_its_bytes(probes, nbytes):
    probes([0.3e-3, 2.5e-3], [1e-3])
    rates = Rates()
    parts = [rates.estimate(work, CPU, "float32") for work in (PRODUCT, Work(bytes=nbytes))]
    assert rates.estimate(Work(flops=PRODUCT.flops, bytes=nbytes), CPU, "float32") == max(parts)
