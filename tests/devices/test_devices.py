"""Devices: which there are, why others are not, and their facts from the system."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
import types
import warnings
from pathlib import Path

import psutil
import pytest
import torch
import vendors

from gpubench import devices
from gpubench.devices import base, cpu, cuda as cuda_file
from gpubench.errors import UsageError

GIB = 1 << 30


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return folder


@pytest.fixture
def cuda(monkeypatch):
    """Make torch look like a CUDA build with so many GPUs, whatever this one is."""

    def pretend(count: int = 0, error: str = "", warning: str = "") -> type[devices.Device]:
        def available() -> bool:
            if warning:
                warnings.warn(warning, stacklevel=1)
            return count > 0

        def init() -> None:
            if error:
                raise RuntimeError(error)

        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_available", available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "init", init)
        return devices.kinds()["cuda"]

    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return pretend


class TestSelect:
    @pytest.mark.parametrize(
        ("count", "asked", "names", "reason"),
        [
            (3, "auto", "cpu cuda:0", None), (3, "all", "cpu cuda:0 cuda:1 cuda:2", None),
            (3, "cuda:1 cuda cpu cuda:0 cpu:0 auto", "cuda:1 cuda:0 cpu", None),
            (0, "cuda", "cuda:0", "no driver"), (1, "cuda:7", "cuda:7", "only cuda:0 is"),
            (4, "cuda:7", "cuda:7", "only cuda:0 to cuda:3 are"), (0, "cpu:1", "cpu:1", "only cpu is"),
        ],
    )  # fmt: skip
    def test_names_in_their_order_each_once_and_what_is_absent_with_a_reason(self, cuda, count, asked, names, reason):
        cuda(count=count, error="no driver")
        choices = [(each.name, each.device and str(each.device), each.reason) for each in devices.select(asked.split())]
        why = reason and f"{names} is not available: {reason}"
        assert choices == [(name, None if reason else name, why) for name in names.split()]

    @pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:x", "cuda:-1", "CUDA", "cpu\nx"])
    def test_an_unknown_name_is_one_line_with_those_that_exist(self, name):
        with pytest.raises(UsageError) as caught:
            devices.select(["cpu", name])
        text = str(caught.value)
        assert "\n" not in text
        assert [word for word in (repr(name), "auto", "all", "cpu", "cuda", "mps", "xpu") if word not in text] == []


def test_a_kind_is_one_class_and_replaces_one_of_its_name(monkeypatch):
    monkeypatch.setattr(base, "KINDS", dict(base.KINDS))
    monkeypatch.setattr(devices, "KINDS", base.KINDS)

    @devices.register
    class Board(devices.Device):
        kind, label = "board", "Board"
        count = classmethod(lambda cls: 2)

        def synchronize(self):
            raise RuntimeError("an illegal\naccess. Compile with `TORCH_USE_CUDA_DSA`")

    assert Board().ruined() == "an illegal access"
    assert [choice.name for choice in devices.select(["board:1", "all"])][:2] == ["board:1", "cpu"]
    assert devices.find_device("board").device == Board(0) != Board(1)
    assert Board(1).facts() == {"name": "board:1", "kind": "board", "label": "Board", "memory_bytes": None}
    other = devices.register(type("Other", (Board,), {}))
    assert type(devices.find_device("board").device) is other
    with pytest.raises(TypeError, match="abstract"):
        type("Nothing", (devices.Device,), {"kind": "nothing"})()


def test_a_build_without_a_kind_is_why_it_is_absent(monkeypatch):
    for place, name in ((torch.version, "cuda"), (torch.version, "hip")):
        monkeypatch.setattr(place, name, None)
    for name in ("_is_compiled", "device_count"):
        monkeypatch.setattr(torch.xpu, name, lambda: False)
    build = f"this PyTorch build ({torch.__version__}) has no"
    reasons = [devices.kinds()[kind].why_absent() for kind in ("cuda", "xpu")]
    assert reasons == [f"{build} CUDA or ROCm support. See pytorch.org/get-started", f"{build} xpu support"]


@pytest.mark.parametrize(
    ("error", "warning", "hidden", "reason"),
    [
        ("Found no NVIDIA driver\non your system.", "", None, "Found no NVIDIA driver on your system."),
        # As torch 2.13 does for a driver that is too old: a warning, once a process, then an error each time.
        ("too old.", "CUDA initialization: too old. (Triggered internally at /x/CUDAFunctions.cpp:119.)", None,
         "CUDA initialization: too old."),
        ("second", "first", None, "first second"),
        ("No CUDA GPUs are available", "", "", "No CUDA GPUs are available (with CUDA_VISIBLE_DEVICES='')"),
    ],
)  # fmt: skip
def test_what_torch_says_once_and_which_devices_are_hidden(cuda, monkeypatch, error, warning, hidden, reason):
    kind = cuda(error=error, warning=warning)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert kind.why_absent() == reason
    with warnings.catch_warnings():  # counting warns nobody
        warnings.simplefilter("error")
        assert kind.count() == 0


class TestCuda:
    def test_only_gpus_with_a_context_are_in_use(self, cuda, monkeypatch):
        kind = cuda(count=3)
        monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: index == 1, raising=False)
        for started, used in ((False, ()), (True, (1,))):
            monkeypatch.setattr(torch.cuda, "is_initialized", lambda started=started: started)
            assert kind.indices_in_use() == used
        assert [str(device) for device in devices.in_use()] == ["cuda:1"]
        # A broken context is in use: clean-up after a failed case asks, and must not fail itself.
        monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", vendors.raising(RuntimeError))
        assert kind.indices_in_use() == (0, 1, 2)

    def test_facts_start_no_context_and_hold_no_serial_number(self, cuda, monkeypatch):
        monkeypatch.setattr(cuda_file, "_library", lambda: None)
        kind, uuid = cuda(count=1), "12345678-aaaa"
        properties = types.SimpleNamespace(
            major=9, minor=0, multi_processor_count=132, L2_cache_size=60 << 20, total_memory=140 * GIB, uuid=uuid
        )
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H200")
        monkeypatch.setattr(torch.cuda, "mem_get_info", vendors.raising(AssertionError))  # it creates a context
        facts = kind(0).facts()
        assert (facts["name"], facts["label"], facts["memory_bytes"]) == ("cuda:0", "NVIDIA H200", 140 * GIB)
        assert (facts["capability"], facts["multiprocessors"]) == ("9.0", 132)
        assert facts["unknown"] == "the driver's library (NVML) doesn't answer"
        assert uuid not in repr(facts)

    @pytest.mark.parametrize(
        ("built", "capability", "hip", "lacking"),
        [
            ([], (7, 5), None, ["tf32", "bfloat16"]), ([], (8, 0), None, []), (["sm_120"], (12, 0), None, []),
            (["sm_75", "sm_80", "sm_86"], (8, 9), None, []), (["sm_90a"], (9, 0), None, []),
            (["sm_80", "compute_90"], (12, 0), None, []),
            (["gfx942"], (9, 4), "6.2", ["tf32"]),  # AMD's numbers mean something else
            *((built, capability, None, ["float16", "tf32", "bfloat16"])
              for built, capability in ((["sm_75", "sm_80", "sm_86"], (6, 0)), (["sm_80", "sm_90"], (12, 0)),
                                        (["sm_90a", "compute_90a"], (10, 0)))),
        ],
    )  # fmt: skip
    def test_dtypes_lack_by_compute_capability_and_all_where_the_build_has_no_kernels(
        self, cuda, monkeypatch, built, capability, hip, lacking
    ):
        gpu = cuda(count=1)(0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
        monkeypatch.setattr(torch.version, "hip", hip)
        assert [dtype for dtype in ("float16", "tf32", "bfloat16") if gpu.lacks(dtype)] == lacking
        assert len(lacking) < 3 or f"not for sm_{capability[0]}" in gpu.lacks("float32")


def test_an_out_of_tree_kind_is_what_its_module_tells(monkeypatch):
    real, module = torch.get_device_module, types.SimpleNamespace(
        synchronize=lambda index: None,
        device_count=lambda: 2,
        get_device_name=lambda index: f"Ascend {index}",
        mem_get_info=lambda index: (1 * GIB, 8 * GIB),
    )  # fmt: skip
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "npu")
    monkeypatch.setattr(torch, "get_device_module", lambda kind=None: module if kind == "npu" else real(kind))
    first, second = (device for device in devices.present() if device.kind == "npu")
    assert (str(first), second.label, second.facts()["memory_bytes"]) == ("npu:0", "Ascend 1", 8 * GIB)
    assert first.memory() == devices.Memory(1 * GIB, 8 * GIB)
    assert first.peak_memory() is None  # not a false 0
    assert (devices.current("npu"), devices.current("cpu")) == (first, None)
    module.current_device = lambda: 1
    assert devices.current("npu") == second
    # What its allocator keeps for later is free.
    assert devices.present() == devices.present() != devices.present()[::-1]
    module.memory_reserved, module.memory_allocated = (lambda index: 5 * GIB), (lambda index: 2 * GIB)
    assert first.memory() == devices.Memory(4 * GIB, 8 * GIB)
    # It is not in use before it is initialised, nor there before it is available.
    module.device_count, module.is_initialized = (lambda: 1), (lambda: False)
    assert (first.count(), devices.in_use()) == (1, [])
    module.is_initialized = lambda: True
    assert [str(device) for device in devices.in_use()] == ["npu:0"]
    module.is_available = lambda: False
    assert (first.count(), first.why_absent()) == (0, "torch.npu reports no device")


@pytest.mark.parametrize(
    ("line", "groups", "cores", "memory"),
    [
        *(("0::/", {".": {"cpu.max": most}}, cores, None)
          for most, cores in (("max 100000", None), ("150000 100000", 1.5), ("50000 0", None), ("", None))),
        ("1:cpu,cpuacct:/", {"cpu": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}}, None, None),
        # In a container the path in /proc/self/cgroup may not exist: the mounted root is the group.
        ("4:cpu,cpuacct:/docker/0123abc", {"cpu": {"cpu.cfs_quota_us": "250000", "cpu.cfs_period_us": "100000"}},
         2.5, None),
        ("0::/slurm/job_1/step_0", {"slurm": {"cpu.max": "300000 100000"}, "slurm/job_2": {"cpu.max": "1 100000"},
         "slurm/job_1": {"cpu.max": "800000 100000"}, "slurm/job_1/step_0": {"cpu.max": "max 100000"}}, 3.0, None),
        # Version 2 leaves out idle cache, and version 1.
        ("0::/box", {"box": {"memory.max": "8000", "memory.current": "5000",
                             "memory.stat": "anon 10\ninactive_file 3000"}}, None, (2000, 8000)),
        ("4:memory:/box",
         {"memory/box": {"memory.limit_in_bytes": "8000", "memory.usage_in_bytes": "5000",
                         "memory.stat": "total_inactive_file 1000"},
          "memory": {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "5000",
                     "memory.stat": "total_inactive_file 1000"}}, None, (4000, 8000)),
        ("0::/", {".": {"memory.max": "max", "memory.current": "1", "memory.stat": "inactive_file 0"}}, None, None),
        ("0::/none", {}, None, None),
    ],
)  # fmt: skip
def test_control_groups_limit_cores_and_memory(tmp_path, monkeypatch, line, groups, cores, memory):
    write(tmp_path, membership=line)
    for group, files in groups.items():
        write(tmp_path / group, **files)
    assert cpu.cgroup_cores(tmp_path, tmp_path / "membership") == cores
    assert cpu.cgroup_memory(tmp_path, tmp_path / "membership") == memory
    monkeypatch.setattr(cpu, "cgroup_memory", lambda: memory)
    assert memory is None or devices.CPU.memory() == devices.Memory(memory[1] - memory[0], memory[1])


class TestCores:
    @pytest.mark.parametrize(
        ("affinity", "quota", "count"),
        [([0, 1, 2, 3], None, 2), ([0, 2], None, 1), *(([0, 1, 2, 3], quota, 1) for quota in (0.5, 1.9)),
         *(([0, 1, 2, 3], quota, 2) for quota in (2.0, 16.0))],
    )  # fmt: skip
    def test_hardware_threads_of_a_core_count_once_and_no_more_than_the_quota_pays_for(
        self, tmp_path, monkeypatch, affinity, quota, count
    ):
        for index, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
            write(tmp_path / f"cpu{index}/topology", thread_siblings_list=siblings)
        monkeypatch.setattr(cpu, "affinity", lambda: affinity)
        monkeypatch.setattr(cpu, "cgroup_cores", lambda: quota)
        assert cpu.cores(tmp_path) == count

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
    def test_affinity_smaller_than_the_machine(self):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, [max(before)])
        found = cpu.affinity(), cpu.cores()
        os.sched_setaffinity(0, before)
        assert found == ([max(before)], 1)


def test_the_family_of_a_rank_is_that_of_its_launcher(monkeypatch):
    space, own = types.SimpleNamespace, os.getpid()
    monkeypatch.setattr(psutil.Process, "children", lambda of, recursive: [space(pid=own), space(pid=of.pid + 1)])
    monkeypatch.setattr(psutil.Process, "parent", lambda of: psutil.Process(1))
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert [process.pid for process in cpu.family()] == [own + 1]
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert [process.pid for process in cpu.family()] == [2]


CALLS_THAT_ALLOCATE = """
import resource, torch
from gpubench.devices.cpu import keep_memory, keeps_memory
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
x, w, large = torch.randn(8, 64, 28, 28), torch.randn(64, 64, 3, 3), torch.randn(10**7)
keep_memory()
for call in range(25):
    before = faults() if call == 5 else before if call > 5 else 0
    torch.nn.functional.conv2d(x, w, padding=1)
    large + large  # 40 MB, above glibc's largest threshold
print(keeps_memory(), (faults() - before) // 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize("variables", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}])
def test_memory_is_kept_for_the_next_call_unless_the_environment_decides(variables):
    command = [sys.executable, "-c", CALLS_THAT_ALLOCATE]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    assert (kept, int(faults) < 20) == (str(not variables), not variables)


def test_energy_of_sockets_is_added_up_and_a_counter_that_begins_again_goes_on(tmp_path):
    """Two sockets, a part of one, and the whole board, as Linux shows them."""
    names = {"0": "package-0", "1": "package-1", "0:0": "core", "2": "psys"}
    folders = {key: tmp_path / f"intel-rapl:{key}" for key in names}
    for key, folder in folders.items():
        write(folder, name=names[key], energy_uj="1000000", max_energy_range_uj="5000000")
    counter = cpu.EnergyCounter(tmp_path)
    assert counter.joules() == 0.0
    for key, energy in (("0", "2500000"), ("1", "2000000"), ("0:0", "2000000")):
        write(folders[key], energy_uj=energy)
    assert counter.joules() == 2.5
    write(folders["0"], energy_uj="500000")
    assert counter.joules() == 2.5 + 3.0
    for folder in folders.values():
        (folder / "energy_uj").unlink()
        (folder / "energy_uj").mkdir()  # root may read any file
    assert cpu.EnergyCounter(tmp_path).joules() is cpu.EnergyCounter(tmp_path / "none").joules() is None


def test_apple_s_gpu_has_the_cpu_s_memory_an_intel_gpu_tells_what_it_lacks_and_their_events_time_a_stream(monkeypatch):
    recorded = []
    event = types.SimpleNamespace(record=lambda *of: recorded.append(of))
    for kind in ("mps", "xpu"):
        module = torch.get_device_module(kind)
        monkeypatch.setattr(module, "Event", lambda enable_timing: event if enable_timing else None)
        monkeypatch.setattr(module, "current_stream", lambda index: f"stream of {index}", raising=False)
        assert devices.kinds()[kind](0).record_event() is event
    assert recorded == [(), ("stream of 0",)]
    properties = types.SimpleNamespace(has_fp64=False)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.xpu, "get_device_name", lambda index: "Arc")
    mps, xpu = (devices.kinds()[kind](0) for kind in ("mps", "xpu"))
    assert (xpu.lacks("float64"), xpu.lacks("float32"), xpu.shares_memory) == ("Arc has no float64", None, False)
    properties.has_fp64 = properties.is_integrated_gpu = True
    assert (xpu.lacks("float64"), xpu.shares_memory, mps.shares_memory) == (None, True, True)


def gpu(*uuids: str | None) -> cuda_file.Cuda:
    """The first of some GPUs, which have these keys."""
    return type("Keyed", (cuda_file.Cuda,), {"_uuid": lambda self: uuids[self.index]})()


def test_a_program_that_must_repeat_itself_exactly_is_not_made_to_multiply_beforehand(monkeypatch):
    """cuBLAS needs a variable for that, and torch refuses products without it."""
    entered = []
    monkeypatch.setattr(torch.cuda, "device", lambda index: entered.append(index) or vendors.failing())
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    gpu("1").settle()
    assert entered == []
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with pytest.raises(vendors.NvmlError):
        gpu("1").settle()
    assert entered == [0]


class TestNvml:
    @pytest.fixture
    def library(self, monkeypatch):
        for name in ("_library", "_handle"):
            monkeypatch.setattr(cuda_file, name, functools.cache(getattr(cuda_file, name).__wrapped__))
        properties, fake = types.SimpleNamespace(major=9, minor=0, multi_processor_count=16), vendors.nvml()
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    def test_by_uuid_in_hertz_and_watts(self, library):
        handle, asked = library.nvmlDeviceGetHandleByUUID, []
        library.nvmlDeviceGetHandleByUUID = lambda uuid: asked.append(uuid) or handle(uuid)
        assert gpu("1").clocks() == {"sm": 1.98e9, "memory": 3.201e9}
        assert gpu("1").clock_share() is None  # of an older library
        library.nvmlDeviceGetMaxClockInfo = lambda handle, domain: {1: 2200}[domain]
        assert gpu("1").clock_share() == pytest.approx(0.9)
        library.nvmlDeviceGetMaxClockInfo = lambda handle, domain: 0
        assert gpu("1").clock_share() is None
        facts = gpu("1").details()
        assert (facts["power_limit_w"], facts["driver"], "mig" in facts) == (700.0, "570.86.15", False)
        assert asked == ["GPU-1"]  # a handle is looked up once
        library.nvmlDeviceIsMigDeviceHandle = lambda handle: 1
        assert gpu("1").details()["mig"] is True  # its clocks are the whole GPU's, whose other parts are unseen

    @pytest.mark.parametrize(("installed", "uuid"), [(True, "2"), (True, None), (False, "1"), (None, "1")])
    def test_without_gpu_library_or_driver_nothing_is_known(self, library, monkeypatch, installed, uuid):
        if not installed:
            library.nvmlInit = vendors.failing
        if installed is None:
            monkeypatch.setitem(sys.modules, "pynvml", None)
        facts = gpu(uuid).details()
        assert (gpu(uuid).clocks(), facts["power_limit_w"], facts["driver"]) == (None, None, None)
        assert (gpu(uuid).throttle_reasons(), gpu(uuid).throttled_s(), gpu(uuid).other_processes()) == ((), {}, None)

    def test_a_part_of_a_gpu_has_a_key_of_its_own_and_a_question_that_fails_is_unknown_alone(self, library):
        library.nvmlDeviceGetPowerManagementLimit = vendors.failing
        assert (gpu("1").details()["power_limit_w"], gpu("1").clocks()["sm"]) == (None, 1.98e9)
        cuda_file._handle.cache_clear()
        keys = {"GPU-1": "whole", "MIG-3": "part"}
        library.nvmlDeviceGetHandleByUUID = lambda uuid: keys.get(uuid) or vendors.failing()
        handles = [gpu(uuid)._nvml(lambda nvml, handle: handle) for uuid in ("3", "1", "4")]
        assert handles == ["part", "whole", None]

    @pytest.mark.parametrize("word", ["Event", "Throttle"])
    def test_reasons_for_lower_clocks_by_the_new_and_the_old_name_of_the_function(self, library, word):
        setattr(library, f"nvmlDeviceGetCurrentClocks{word}Reasons", lambda handle: 1 | 4 | 32)
        assert gpu("1").throttle_reasons() == ("power limit", "heat")

    def test_seconds_of_each_cause_that_the_library_counts_and_the_power_over_its_limit(self, library):
        space = types.SimpleNamespace
        library.NVML_PERF_POLICY_POWER = 0
        library.nvmlDeviceGetViolationStatus = lambda handle, policy: space(violationTime=2_500_000_000)
        assert gpu("1").throttled_s() == {"power limit": 2.5}  # it has no thermal policy
        assert gpu("1").power_share() is None  # a driver without that reading
        del library.nvmlDeviceGetViolationStatus  # deprecated in CUDA 13
        library.NVML_FI_DEV_PERF_POLICY_POWER, library.NVML_FI_DEV_PERF_POLICY_THERMAL = 74, 75
        library.NVML_FI_DEV_POWER_INSTANT = 186
        values = {74: space(nvmlReturn=0, value=space(ullVal=3_500_000_000)),
                  186: space(nvmlReturn=0, value=space(uiVal=665_000))}  # fmt: skip
        library.nvmlDeviceGetFieldValues = lambda _, fields: [values.get(each, space(nvmlReturn=3)) for each in fields]
        assert gpu("1").throttled_s() == {"power limit": 3.5}
        assert gpu("1").power_share() == pytest.approx(0.95)
        values.clear()
        assert (gpu("1").throttled_s(), gpu("1").power_share()) == ({}, None)

    @pytest.mark.parametrize(
        ("listed", "answers", "children", "others"),
        [
            # Where the library doesn't tell who works. In a container this process isn't among the listed: one is it.
            ([], [], [], 0), ([1, 2], [3], [], 1), (["self"], [], [], 0), (["self", 1, 2], [3], [], 2),
            # Processes that compile are children too, and hid as many programs of others: only 7 holds a GPU.
            ([1, 2, 3], [3], [7, 8, 9], 1),
            # A notebook that has used the GPU keeps its context: 1 is idle, 2 works.
            (["self", 1, 2], [None], [], 1), ([1, 2, 3], [None], [], 0),
            # Where nobody has worked: not found, success as an error, a buffer that is too small.
            *((["self", 1, 2], codes, [], None in codes) for codes in ([6], [0], [7, 6], [7, 7], [7, None])),
        ],
    )  # fmt: skip
    def test_other_processes_are_those_at_work_less_this_one_and_its_own(
        self, library, monkeypatch, listed, answers, children, others
    ):
        process = types.SimpleNamespace
        monkeypatch.setattr(psutil.Process, "children", lambda _, recursive: [process(pid=pid) for pid in children])
        monkeypatch.setattr(cuda_file, "_holds_gpu", lambda pid: pid == 7)
        pids = [process(pid=os.getpid() if pid == "self" else pid) for pid in listed]
        library.nvmlDeviceGetComputeRunningProcesses = lambda handle: pids
        codes = iter(answers)

        def answer(handle, since):
            if (code := next(codes)) is None:
                return [process(pid=1, smUtil=0), process(pid=2, smUtil=30)]
            error = vendors.NvmlError()
            error.value = code
            raise error

        library.nvmlDeviceGetProcessUtilization = answer
        assert gpu("1").other_processes() == others
        assert next(codes, "asked all") == "asked all"

    def test_what_a_process_has_open_tells_whether_it_holds_a_gpu(self, monkeypatch):
        before = cuda_file._holds_gpu(os.getpid())
        monkeypatch.setattr(os, "readlink", lambda file: "/dev/nvidia0")
        assert [before, *map(cuda_file._holds_gpu, (os.getpid(), 2**30))] == [False, True, False]

    @pytest.mark.parametrize(("status", "joined"), [(0, "NVLink"), (1, "PCIe")])
    def test_nvlink_joins_every_pair_or_not(self, library, status, joined):
        library.NVML_P2P_CAPS_INDEX_NVLINK, library.NVML_P2P_STATUS_OK = 3, 0
        library.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
        library.nvmlDeviceGetP2PStatus = lambda source, target, index: status
        assert type(gpu("1", "2")).interconnect([0, 1]) == joined
        assert type(gpu("1", None)).interconnect([0, 1]) is None


@pytest.mark.parametrize(
    ("known", "cycle"),
    [
        ("avx2 fma", (16, 32, 32, 32)), ("avx2 fma avx512f", (32, 64, 64, 64)), ("asimd sve", ()), ("avx2", ()),
        ("avx512f avx512_bf16 avx512_fp16", (32, 64, 128, 128)), ("avx512f avx512_bf16 amx_bf16", (32, 64, 1024, 64)),
    ],
)  # fmt: skip
def test_flop_per_cycle_and_core(known, cycle):
    dtypes = ("float64", "float32", "bfloat16", "float16")[: len(cycle)]
    expected = {dtype: 8e9 * each for dtype, each in zip(dtypes, cycle, strict=True)}
    assert cpu.flops_allowed(known.split(), 4, 2e9) == expected
    assert cpu.flops_allowed(known.split(), 4, None) == {}


@pytest.mark.parametrize(("flag", "clock"), [("fma", 3.1e9), ("hypervisor", None)])
def test_those_that_matter_and_that_a_virtual_machine_has_no_clock(monkeypatch, flag, clock):
    clocks = [types.SimpleNamespace(current=current) for current in (800.0, 3100.0)]
    monkeypatch.setattr(psutil, "cpu_freq", lambda percpu: clocks)
    monkeypatch.setattr(cpu, "_cpuid", lambda: {"flags": ["fpu", flag, "avx2"]})
    assert (cpu.instructions(), cpu.highest_clock()) == (("avx2", flag), clock)


def test_sockets_nodes_and_governor_of_the_cpus_in_use(tmp_path, monkeypatch):
    for index in range(4):
        folder = tmp_path / f"cpu/cpu{index}"
        write(folder / "topology", physical_package_id=str(index // 2))
        write(folder / "cpufreq", scaling_governor="powersave")
        write(folder / f"node{index // 2}")
    for used, count in (([0, 1], 1), ([1, 2], 2)):
        monkeypatch.setattr(cpu, "affinity", lambda used=used: used)
        assert cpu.layout(tmp_path) == {"sockets": count, "numa_nodes": count, "governor": "powersave"}
    assert cpu.layout(tmp_path / "none") == {"sockets": None, "numa_nodes": None, "governor": None}
