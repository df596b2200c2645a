"""Each cause is named where it is dialled in, and none where there is none."""

from __future__ import annotations

import pytest

from gpubench.report.study import Study
from gpubench.report.why import reasons, why
from tests.records import run

BANDWIDTH = [{"pattern": "copy", "level": "memory", "footprint_bytes": 1e9, "byte_per_s": 1e12}]
PEAKS = {
    "cpu": {"bandwidth": [BANDWIDTH[0] | {"byte_per_s": 5e11}], "throughput": {"float32": 1e12, "float64": 5e11}},
    "cuda:0": {"bandwidth": BANDWIDTH, "throughput": {"float32": 32e12, "float64": 1e12}},
}


def pairs(**how):
    return Study([run(ceilings=PEAKS).bench("a.f", **how).read()]).pairs


def cause(**how):
    (pair,) = pairs(**how)
    return why(pair)


LAUNCHES = {"cpu": "8 µs", "gpu": "10 µs", "device_s": 2e-6, "launch_s": 9e-6}
COPIES = {"cpu": "4 ms", "gpu": "1 ms", "copies": 5e-3, "device_s": 9.9e-4, "launch_s": 1e-5}
UNKNOWN = {"cpu": "1 ms", "gpu": "2 ms", "device_reason": "the call waits for the device itself"}
LITTLE = {"cpu": "20 µs", "gpu": "25 µs", "device_s": 2.4e-5, "launch_s": 9e-6, "bytes": 1e5}
OPERATOR = {"cpu": "1 ms", "gpu": "70 ms", "device_s": 6.9e-2, "launch_s": 1e-2, "bytes": 1e6, "flops": 1e8}
FLOAT64 = {"cpu": "1.5 ms", "gpu": "1.1 ms", "device_s": 1.05e-3, "launch_s": 1e-5, "flops": 1e9, "dtype": "float64"}
PEAK = {"cpu": "2.2 ms", "gpu": "1.8 ms", "device_s": 1.75e-3, "launch_s": 1e-5, "bytes": 1e9}


# The rows of people who asked why their GPU was slower (issues and questions that are named), as their calls would be
# recorded, with the true cause that the thread ended with.
ASKED = {
    "keon/deep-q-learning#28: a network of 4-24-24-2, one sample a call": (LAUNCHES, "launches"),
    "microsoft/CNTK#751: 40,000 samples/s on the CPU, 35,000 on a 980 Ti": (
        {"cpu": "25 µs", "gpu": "28.6 µs", "device_s": 5e-6, "launch_s": 2.5e-5}, "launches"),
    "microsoft/CNTK#339: 17 minutes on the CPU, 35 on a Titan X": (
        {"cpu": "17 ms", "gpu": "35 ms", "device_s": 4e-3, "launch_s": 3.4e-2}, "launches"),
    "tensorflow#5995: 7-32-32-2, batch 16, ten times slower": (
        {"cpu": "10 µs", "gpu": "100 µs", "device_s": 9e-6, "launch_s": 9e-5}, "launches"),
    "jax-ml/jax#1797: a small network": (
        {"cpu": "30 µs", "gpu": "60 µs", "device_s": 1e-5, "launch_s": 5.5e-5}, "launches"),
    "facebookresearch/sam2#768: 53.7 ms a frame, the GPU busy for 7.3, 1,185 launches": (
        {"cpu": "500 ms", "gpu": "53.7 ms", "device_s": 7.3e-3, "launch_s": 5.3e-2}, "launches"),
    "pytorch#122973: training with d_model 18": (
        {"cpu": "3 ms", "gpu": "9 ms", "device_s": 1e-3, "launch_s": 8.5e-3}, "launches"),
    "EurekaLabsAI/mlp#14: the model is so small": (
        {"cpu": "100 µs", "gpu": "400 µs", "device_s": 6e-5, "launch_s": 3.9e-4}, "launches"),
    "stackoverflow 42097115: 100 neurons slower": (
        {"cpu": "50 µs", "gpu": "70 µs", "device_s": 8e-6, "launch_s": 6.5e-5}, "launches"),
    "stackoverflow 67489202: jacobian, 11 s against 19.5 s": (
        {"cpu": "11 s", "gpu": "19.5 s", "device_s": 2.0, "launch_s": 19.0}, "launches"),
    "discuss.pytorch.org 46733: NumPy 26 s, torch on the GPU 47 s": (
        {"cpu": "520 µs", "gpu": "940 µs", "device_s": 1e-4, "launch_s": 9e-4}, "launches"),
    "whosebug 6411220: an RNN with .item() in its loop": (UNKNOWN, "unknown"),
    "sentence-transformers#1347: sentences one by one": (
        {"cpu": "9 ms", "gpu": "8 ms", "device_s": 1.5e-3, "launch_s": 7.8e-3}, "launches"),
    "cupy#2271: copies in each call": (COPIES, "copies"),
    "whittle-org/whittle#306: .item() in the loop": (
        UNKNOWN | {"gpu": "1.05 ms"}, "unknown"),
    "pytorch#41306: SVD, 70 times slower": (OPERATOR, "operator"),
    "pytorch#69528: eigh, 80 times slower": (OPERATOR | {"gpu": "80 ms", "device_s": 7.9e-2}, "operator"),
    "pytorch#143281: QR, 70 times slower": (OPERATOR | {"flops": 1.4e8}, "operator"),
    "botorch#492: 60 ms on the CPU, 10 s on the GPU, traced to QR": (
        {"cpu": "60 ms", "gpu": "10 s", "device_s": 9.5, "launch_s": 0.5, "flops": 1e9}, "operator"),
    "jax#2491: scan": ({"cpu": "1 ms", "gpu": "1.3 s", "device_s": 1e-2, "launch_s": 1.29}, "launches"),
    "qiskit-aer#2396: double precision on a consumer's GPU": (FLOAT64, "float64"),
    "tf-quant-finance#15: GTX 1080 in float64": (
        FLOAT64 | {"cpu": "1 ms", "gpu": "1.2 ms", "device_s": 1.1e-3}, "float64"),
    "pytorch#163576: products of up to 1000² are faster on an M4's cores": (LITTLE, "little work"),
    "pyxelate#11: a small image": (LITTLE | {"cpu": "10 µs"}, "little work"),
    "a GPU whose memory is hardly faster than the CPU's": (PEAK, "peaks"),
}  # fmt: skip


@pytest.mark.parametrize(("how", "kind"), ASKED.values(), ids=[*ASKED])
def test_the_true_cause_of_people_s_questions(how, kind):
    assert cause(**how).kind == kind


@pytest.mark.parametrize("how", [LAUNCHES, COPIES, UNKNOWN, LITTLE, OPERATOR, FLOAT64, PEAK])
def test_a_cause_that_is_taken_away_isnt_named(how):
    fast = {"cpu": "1 s", "copies": 1e-6, "device_s": 9e-4, "launch_s": 1e-5, "device_reason": None, "gpu": "1 ms"}
    assert cause(**how | fast) is None


def test_the_sentences():
    assert cause(**LAUNCHES).text == (
        "launching takes longer than the work (the GPU works 2.00 µs of 10.0 µs): a batch up to about 5 times this one"
        " costs nothing more, a faster GPU gains nothing"
    )
    assert cause(**COPIES).text == "slower only because of the copies: without them 4.0×"
    assert cause(**FLOAT64).text == "float64: this GPU's products reach 1/32 of its float32"
    assert cause(**LITTLE).text == "too little work to fill the GPU: it reaches 0.4 % of its peak"
    assert cause(**LITTLE | {"gpu": "150 µs"}).kind == "little work"  # however long the GPU waits
    assert cause(**PEAK).text == "by the peaks of both this work can be 2.0× as fast as on this CPU, and no faster"


@pytest.mark.parametrize(
    "how",
    [
        {"cpu": "1 ms", "gpu": "2 ms"},  # nothing is recorded that proves a cause
        {"cpu": "1 ms", "gpu": (1e-4, 1e-3, 9e-3)},  # too noisy
        {"cpu": "1 ms", "numpy": "2 ms"},  # no GPU
    ],
)
def test_no_cause(how):
    assert [cause for pair in pairs(**how) if (cause := why(pair))] == []


@pytest.mark.parametrize(
    ("busy", "told"),
    [
        ((1e-6, 2e-6, 9e-5), [(256, " up to n=256")]), ((1e-6, 2e-6, 3e-6), [(1024, " at every size")]),
        ((2e-6,), [(64, "")]), ((4e-5, 5e-5, 9e-5), []), ((None,) * 3, []),
    ],
)  # fmt: skip
def test_a_benchmark_has_one_sentence_for_each_kind_of_cause(busy, told):
    one = run(ceilings=PEAKS)
    for n, seconds in zip((64, 256, 1024), busy, strict=False):
        one.bench("a.f", n=n, cpu="1 ms", gpu=1e-4 + n * 1e-9, copies=1e-6, device_s=seconds, launch_s=2e-5)
    assert [(pair.other.result.params["n"], sizes) for pair, sizes, _ in reasons(Study([one.read()]).pairs)] == told
