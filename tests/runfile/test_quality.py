"""Noise that processes show together, peaks that results raise or disprove, slow libraries, and the fastest way of a
CPU."""

from __future__ import annotations

import pytest
import records
from msgspec import structs

from gpubench.runfile import quality
from gpubench.runfile.quality import apart, disproved, fastest_way, raise_peaks, slow_products, utilisation
from gpubench.runfile.schema import Bandwidth, Ceilings, Check, CpuFacts, Process, Raised, Result, Times, Work

BANDS = (Bandwidth("copy", 1e6, 2e11, "l2"), Bandwidth("copy", 1e9, 3e10, "memory"))
PEAKS = Ceilings(BANDS, {"float32": 1e11}, ways={"float32": {"torch": 1e11, "numpy": 9e10}})
PRODUCT = Result(
    "matmul.square", "cpu", "float32", work=Work(flops=1.2e9), check=Check("passed"),
    times=Times(1e-2, 1e-2, 1e-2, 0.0, 1e-2, 1e-2, 5, 1, None, "", ()),
)  # fmt: skip


def raised(result: Result = PRODUCT, peaks: Ceilings = PEAKS, **changes: object) -> Ceilings:
    return raise_peaks([structs.replace(result, **changes)], {"cpu": peaks})["cpu"]


def test_a_verified_result_above_the_peak_raises_it_and_is_named():
    now = raised()
    assert now.throughput == {"float32": 1.2e11}
    assert now.ways["float32"] == {"torch": 1e11, "numpy": 9e10, "torch: matmul.square[float32]": 1.2e11}
    assert utilisation(PRODUCT.work, 1e-2, "float32", now).fraction == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"check": Check("unchecked")}, {"check": None}, {"times": None, "status": "skipped"}, {"device": "cuda:0"},
        {"convolution_share": 0.9}, {"flags": (Raised("implausible", "", (0,)),)},
        {"work": Work()}, {"work": Work(flops=0.9e9)},
        {"work": Work(flops=1.4e9)},  # more than noise, and what the instruction set allows isn't known
    ],
)  # fmt: skip
def test_others_raise_nothing(changes):
    assert raised(**changes) == PEAKS


def test_a_peak_is_raised_as_far_as_the_instruction_set_allows():
    peaks = structs.replace(PEAKS, allowed={"float32": 2e11})
    assert raised(peaks=peaks, work=Work(flops=1.9e9)).throughput == {"float32": 1.9e11}
    assert raised(peaks=peaks, work=Work(flops=2.1e9)).throughput == {"float32": 1e11}


def test_bandwidth_is_raised_at_the_results_own_footprint():
    work = Work(bytes=2.4e9)
    before, now = utilisation(work, 7e-2, "float32", PEAKS), raised(work=work, times=seconds(7e-2))
    assert before.fraction == pytest.approx(2.4e9 / 3e10 / 7e-2)
    assert now.bandwidth[-1] == Bandwidth("matmul.square[float32]", 2.4e9, 2.4e9 / 7e-2, "memory")
    assert utilisation(work, 7e-2, "float32", now).fraction == 1.0
    assert raised(work=Work(bytes=4e6), times=seconds(1.9e-5)).bandwidth[-1].level == "l2"  # as the next smaller one


def test_gpus_whose_peak_has_no_ways_keep_it():
    assert raised(peaks=structs.replace(PEAKS, ways={})).throughput == {"float32": 1e11}


@pytest.mark.parametrize(
    ("above", "others", "why"),
    [(3, 20, "3 of 23 results exceed them"), (2, 2, None), (3, 28, None)],  # two may be wrong themselves
)
def test_peaks_that_many_results_exceed_are_disproved(above, others, why):
    results = [structs.replace(PRODUCT, work=Work(flops=2e9))] * above + [PRODUCT] * others
    assert disproved(results, {"cpu": PEAKS}).get("cpu") == why
    in_parallel = [structs.replace(each, parallel={"devices": 2}) for each in results]
    assert not disproved(in_parallel, {"cpu": PEAKS})


@pytest.mark.parametrize(
    ("smaller", "why"),
    [
        (Bandwidth("read", 5e8, 1.4e10, "memory"), "they contradict each other: 14.0 GB/s with 500 MB, 30.0 GB/s with"),
        (Bandwidth("read", 5e8, 2e10, "memory"), ""),
        (Bandwidth("read", 1e4, 1e9, "l1d"), ""),  # 10 µs: what a call costs is most of it
    ],
)
def test_peaks_whose_sizes_contradict_each_other_are_disproved(smaller, why):
    peaks = structs.replace(PEAKS, bandwidth=(*BANDS, smaller))
    found = disproved([], {"cpu": peaks})
    assert bool(found) == bool(why)
    assert found.get("cpu", "").startswith(why)


def seconds(value: float) -> Times:
    return structs.replace(PRODUCT.times, median_s=value)


INTEL = CpuFacts(model="Intel Xeon", instructions=("avx2", "fma", "avx512f"), variables={},
                 kernels={"torch": "mkl AVX512", "numpy": "openblas SkylakeX"})  # fmt: skip


@pytest.mark.parametrize(
    ("slow", "dtype", "changes", "reasons"),
    [
        ("torch", "float32", {}, ()),
        ("torch", "float32", {"variables": {"MKL_CBWR": "AVX2"}}, ("MKL_CBWR=AVX2 is set",)),
        ("torch", "float32", {"model": "AMD EPYC"}, ("MKL on AMD, where it takes other paths than on Intel",)),
        ("torch", "float32", {"model": "AMD EPYC", "kernels": {"torch": "open AVX2"}}, ()),
        ("torch", "bfloat16", {"model": "AMD EPYC", "variables": {"ONEDNN_MAX_CPU_ISA": "AVX2"}},
         ("ONEDNN_MAX_CPU_ISA=AVX2 is set",)),
        ("numpy", "float32", {"kernels": {"numpy": "openblas Haswell"}},
         ("OpenBLAS's kernel for Haswell, an older processor",)),
        ("numpy", "float32", {"kernels": {"numpy": "openblas Haswell"}, "instructions": ("avx2",)}, ()),
        ("numpy", "float32", {"kernels": {"numpy": "openblas Nehalem"}, "instructions": ("avx2",)},
         ("OpenBLAS's kernel for Nehalem, an older processor",)),
        ("onednn", "float32", {"variables": {"DNNL_MAX_CPU_ISA": "SSE41"}}, ("DNNL_MAX_CPU_ISA=SSE41 is set",)),
    ],
)  # fmt: skip
def test_a_slow_library_is_named_with_why_as_far_as_that_is_known(slow, dtype, changes, reasons):
    known = "the reason isn't known"
    peaks = Ceilings(ways={dtype: {"other": 1e11, slow: 7.9e10}}, throughput={dtype: 1e11})
    (found,) = slow_products(peaks, structs.replace(INTEL, **changes))
    library, claim, reason = found
    assert (library, reason) == (slow, "; ".join(reasons) or known)
    assert f"'s {dtype} products run at 79% of what other reaches" in claim


def test_equally_good_libraries_are_no_news():
    assert slow_products(Ceilings(ways={"float32": {"torch": 8.1e10, "numpy": 1e11}}), INTEL) == []
    assert slow_products(Ceilings(), INTEL) == []


def test_a_library_is_as_fast_as_its_fastest_result():
    ways = {"numpy": 5e10, "numpy: matmul.square": 1e11, "torch": 1e11}
    assert slow_products(Ceilings(ways={"float32": ways}), INTEL) == []


@pytest.mark.parametrize(
    ("dtype", "instructions", "emulated"),
    [
        ("float16", ("avx512f",), True), ("float16", ("avx512f", "avx512_fp16"), False), ("float16", None, False),
        ("bfloat16", ("avx2",), True), ("bfloat16", ("amx_bf16",), False),
    ],
)  # fmt: skip
def test_a_short_dtype_slower_than_float32_is_named(dtype, instructions, emulated):
    ways = {"float32": {"torch": 1e11}, dtype: {"torch": 1e9}}
    peaks = Ceilings(ways=ways, throughput={"float32": 1e11, dtype: 1e9})
    (found,) = slow_products(peaks, structs.replace(INTEL, instructions=instructions))
    why = f"this CPU has no instructions for {dtype} and emulates it" if emulated else "the reason isn't known"
    assert found == ("torch", f"PyTorch's {dtype} products run at 1% of those in float32 on this CPU", why)


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
    each = tuple(Process(i, rounds, median) for i, (median, rounds) in enumerate(processes))
    assert apart(Times(1.0, 1.0, 1.0, spread, 1.0, 1.0, 1, 1, None, "", each)) == seen


SLOW = {"workload": "a.b", "params": {"n": 8}, "kind": "irregular"}


@pytest.mark.parametrize(
    ("way", "flag", "counts"),
    [
        ({}, "", True), ({}, "noisy", True), ({}, "waiting", False), ({}, "implausible", False),
        ({"device": "cpu:1"}, "", False), ({"cache": "cold"}, "", False), ({"params": {"n": 8.0}}, "", False),
        ({"params": {"n": 8, "form": "out"}}, "", True), ({"params": {"n": 8, "form": "inplace"}}, "", False),
        ({"params": {"n": 8, "form": "out"}, "kind": ""}, "", False),  # what a form is in one's own, nobody knows
    ],
)  # fmt: skip
def test_only_what_did_the_same_job_on_the_same_device_is_a_way(way, flag, counts):
    one = records.run(cuda=0, processes=1).bench(**SLOW, cpu=2.0)
    slow, other = one.bench(**SLOW | {"by": "numpy", "cpu": 1.0} | way, flags=(flag,) if flag else ()).read().results
    assert (fastest_way(slow, [slow, other]) is slow) == (not counts)


def test_a_job_may_have_thousands_of_ways(monkeypatch):
    """Of equal times none is faster, however it computes."""
    one = records.run(cuda=0, processes=1)
    for number in range(300):
        one.bench(**SLOW, cpu=2.0, variant=f"v{number}")
    results = one.read().results
    monkeypatch.setattr(quality, "job", lambda result: pytest.fail("compared with each other"))
    assert all(fastest_way(each, results) is each for each in results)
