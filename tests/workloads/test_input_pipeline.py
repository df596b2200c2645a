"""The input pipeline gives every image once and says how long the step waited for them."""

import pytest
import torch

from gpubench.measure.clock import DeviceClock
from gpubench.testing import VirtualDevice, VirtualMachine
from gpubench.workloads import input_pipeline

CASE = """
import pytest
from gpubench.workloads import input_pipeline

@pytest.mark.parametrize("workers", [0, 1])
def test_feed(gpubench, workers):
    with input_pipeline.InputPipeline(gpubench, workers, False, True) as pipeline:
        gpubench(pipeline.epoch, check=False)
        gpubench.parallel["phases"] = pipeline.phases()
"""


def test_images_are_cropped_normalised_and_flipped():
    images = input_pipeline.Images(0)
    assert len(images) == input_pipeline.IMAGES
    image, label = images[0]
    assert image.shape == (3, 32, 32)
    assert -1 <= image.min() < image.max() <= 1
    assert 0 <= label < 10
    torch.manual_seed(0)
    assert len({images[0][0].sum().item() for _ in range(20)}) > 10


def test_the_wait_for_data_is_told_apart_from_the_step(pytester):
    import json

    pytester.makepyfile(test_it=CASE)
    result = pytester.runpytest_subprocess(
        "-p", "gpubench.plugin", "--gpubench-preset=smoke", "--benchmark-json=run.json", "--gpubench-threads=1"
    )
    result.assert_outcomes(passed=2)
    for case in json.loads((pytester.path / "run.json").read_text())["benchmarks"]:
        ours = case["extra_info"]["gpubench"]["parallel"]
        assert ours["workers"] == case["params"]["workers"]
        assert ours["phases"]["data"] > 0
        assert ours["phases"]["step"] > 0


@pytest.mark.parametrize("slow", ["data", "step"])
def test_what_is_slow_is_what_it_says(slow):
    """An epoch whose loader takes long waits for data; one whose device takes long does not, and waits for it."""
    pipeline = object.__new__(input_pipeline.InputPipeline)
    images = torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.long)
    machine = VirtualMachine()

    class Slow:
        def __iter__(self):
            for _ in range(3):
                if slow == "data":
                    machine.time_s += 0.05
                yield images

    class Trainer:
        parameters = (torch.zeros(1),)
        batches = ()

        def step(self):
            if slow == "step":
                machine.launch(0.05)

    pipeline._loader, pipeline._trainer, pipeline._clock = Slow(), Trainer(), DeviceClock([VirtualDevice.on(machine)()])
    pipeline._device, pipeline._pinned, pipeline._spent = torch.device("cpu"), False, []
    pipeline.epoch()
    spent = pipeline.phases()
    assert spent[slow] == pytest.approx(0.15, rel=1e-6)
    assert spent["step" if slow == "data" else "data"] < 1e-6
