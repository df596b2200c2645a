"""How runs differ: in hardware, in software, and in how the CPU was used."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from gpubench.runfile.facts import differences
from gpubench.runfile.schema import CpuFacts, DeviceFacts, Machine, Run

KNOWN = CpuFacts(
    model="AMD EPYC", logical_cpus=2, machine_cpus=64, instructions=("avx2",), sockets=1, numa_nodes=1,
    numa_policy="default", governor="performance", huge_pages="madvise", allocator="glibc 2.36", preloaded=(),
    kernels={"torch": "mkl AVX2", "numpy": "openblas Haswell"}, variables={"OMP_WAIT_POLICY": "active"},
)  # fmt: skip


def run(cpu_label="", gpu=("", None), **facts):
    """A run on a CPU and a GPU, given by its name and driver."""
    devices = (DeviceFacts("cpu", "cpu", cpu_label), DeviceFacts("cuda:0", "cuda", *gpu))
    return Run(Path("run.json"), Machine("", devices, **facts), ())


def said(before, after, devices):
    """Each part's differences as texts."""
    return [[f"{fact} {words}" for fact, words in part.items()] for part in differences(before, after, devices)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"variables": {}}, ["OMP_WAIT_POLICY active → not set"]),
        ({"variables": {"OMP_WAIT_POLICY": "active", "ONEDNN_MAX_CPU_ISA": "AVX2"}},
         ["ONEDNN_MAX_CPU_ISA not set → AVX2"]),
        ({"kernels": {"torch": "mkl AVX2", "numpy": "openblas SkylakeX"}},
         ["products of numpy by openblas Haswell → openblas SkylakeX"]),
        ({"preloaded": ("libtcmalloc.so.4",)}, ["preloaded libraries none → libtcmalloc.so.4"]),
        ({"allocator": "tcmalloc", "huge_pages": "always"},
         ["transparent huge pages madvise → always", "memory allocator glibc 2.36 → tcmalloc"]),
        ({"logical_cpus": 64}, ["CPUs in use 2 of 64 → 64 of 64"]),
        ({"cgroup_cores": 1.5}, ["CPUs in use 2 of 64 → 1.5 of 64"]),
        ({"cgroup_cores": 8.0}, []),
        ({"numa_nodes": 2, "sockets": 2}, ["sockets in use 1 → 2", "NUMA nodes in use 1 → 2"]),
        ({"instructions": ("avx2", "fma")}, ["CPU instructions avx2 → avx2 fma"]),
        ({"instructions": ("avx512f",), "model": "Xeon"}, []),
        ({"governor": None, "variables": None, "kernels": None, "machine_cpus": None}, []),
    ],
)  # fmt: skip
def test_how_the_cpu_was_used(changes, words):
    before, after = (run(cpu=cpu) for cpu in (KNOWN, structs.replace(KNOWN, **changes)))
    assert said([before], [after], ()) == [[], [], words]


@pytest.mark.parametrize(
    ("before", "after", "machine", "software"),
    [
        ({}, {"build": {"version": "2.13.0"}, "cpu": KNOWN, "precision": {"tf32": True}}, [], []),  # or nothing known
        ({"cpu_label": "One"}, {"cpu_label": "Other"}, ["CPU One → Other"], []),  # it launches the GPU's kernels
        ({"libraries": {"numpy": "2.2.0"}}, {"libraries": {"numpy": "2.3.1"}}, [], ["numpy 2.2.0 → 2.3.1"]),
        ({"cpu_label": "x86_64"}, {"cpu_label": "Other"}, [], []),
        ({"gpu": ("A100", "570")}, {"gpu": ("H100", "580")}, ["cuda:0 A100 → H100"], ["cuda:0 driver 570 → 580"]),
        ({"build": {"version": "2.12.0"}, "threads": 2}, {"build": {"version": "2.13.0"}, "threads": 1},
         ["threads 2 → 1"], ["torch 2.12.0 → 2.13.0"]),
        ({"precision": {"tf32": True}}, {"precision": {"tf32": False}}, ["TF32 on → off"], []),
        ({"precision": {"tf32": True, "tf32_matmul": False, "tf32_cudnn": True}},
         {"precision": {"tf32": True, "tf32_matmul": True, "tf32_cudnn": True}},
         ["TF32 in matrix products off → on"], []),
        ({"precision": {"variables": ""}}, {"precision": {"variables": "NVIDIA_TF32_OVERRIDE=0"}},
         ["variables none → NVIDIA_TF32_OVERRIDE=0"], []),
    ],
)  # fmt: skip
def test_what_matters_to_benchmarks_of_a_gpu(before, after, machine, software):
    assert said([run(**before)], [run(**after)], ["cuda:0"]) == [machine, software, []]


def test_what_changes_only_a_gpus_times_does_not_matter_to_a_cpus():
    one, two = (run(gpu=(name, name), precision={"tf32": on, "float32_matmul": name})
                for name, on in (("high", True), ("highest", False)))  # fmt: skip
    assert said([one], [two], ["cpu"]) == [["float32 matmul precision high → highest"], [], []]


def test_facts_that_differ_within_a_side_are_named():
    one, two = run(threads=1), run(threads=2)
    assert said([one, two], [two], ())[0] == ["threads 1 and 2 → 2"]
    assert said([one, two], [two, one], ())[0] == ["threads 1 and 2 on either side"]
    assert said([one, two], [run()], ())[0] == ["threads 1 and 2 on one side"]
