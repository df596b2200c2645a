"""What differs between two runs' CPUs beside the CPU."""

from __future__ import annotations

import pytest
from msgspec import structs

from gpubench.runfile.host import cpu_differences, share_of_cpus
from gpubench.runfile.schema import CpuFacts

KNOWN = CpuFacts(
    model="AMD EPYC", logical_cpus=2, machine_cpus=64, instructions=("avx2",), sockets=1, numa_nodes=1,
    numa_policy="default", governor="performance", huge_pages="madvise", allocator="glibc 2.36", preloaded=(),
    kernels={"torch": "mkl AVX2", "numpy": "openblas Haswell"}, variables={"OMP_WAIT_POLICY": "active"},
)  # fmt: skip


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
        ({"numa_nodes": 2, "sockets": 2}, ["sockets in use 1 → 2", "NUMA nodes in use 1 → 2"]),
        ({"instructions": ("avx2", "fma")}, ["CPU instructions avx2 → avx2 fma"]),
        ({"instructions": ("avx512f",), "model": "Xeon"}, []),
        ({"governor": None, "variables": None, "kernels": None, "machine_cpus": None}, []),
    ],
)  # fmt: skip
def test_what_differs(changes, words):
    assert cpu_differences(KNOWN, structs.replace(KNOWN, **changes)) == words


def test_files_that_know_nothing_differ_in_nothing():
    assert cpu_differences(CpuFacts(), KNOWN) == []


@pytest.mark.parametrize(("quota", "share"), [(None, "2 of 64"), (1.5, "1.5 of 64"), (8.0, "2 of 64")])
def test_the_share_of_a_host(quota, share):
    assert share_of_cpus(structs.replace(KNOWN, cgroup_cores=quota)) == share
    assert share_of_cpus(CpuFacts()) is None
