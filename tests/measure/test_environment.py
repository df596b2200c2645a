"""The machine's facts: constant ones, and others that change while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import sys
import types
from typing import ClassVar

import forked
import numpy
import pytest
import threadpoolctl
import torch
from dispatched import Dispatched
from vendors import raising

from gpubench import devices
from gpubench.devices import cpu
from gpubench.devices.virtual import VirtualDevice
from gpubench.errors import UsageError
from gpubench.measure import environment
from gpubench.measure.session import Session, Settings
from gpubench.runfile.reader import convert
from gpubench.runfile.schema import DeviceFacts


class Gpu(VirtualDevice):
    """A kind with a GPU for each of its models."""

    kind = "gpu"
    models: ClassVar[tuple[str, ...]] = ()
    count = classmethod(lambda cls: len(cls.models))
    synchronize = raising(AssertionError)  # nothing here needs a wait

    @property
    def label(self) -> str:
        if self.models[self.index] == "broken":
            raise RuntimeError("device-side assert")
        return self.models[self.index]


@pytest.fixture
def gpus(monkeypatch):
    """Make this machine one with such GPUs."""

    def install(*models: str) -> None:
        kind: type[Gpu] = type("Gpus", (Gpu,), {"models": models})
        monkeypatch.setattr(devices, "kinds", lambda: {"cpu": type(devices.CPU), "gpu": kind})

    return install


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in [*filter(environment.VARIABLES.fullmatch, os.environ), "LD_PRELOAD"]:
        monkeypatch.delenv(name, raising=False)


class TestMachine:
    def test_what_it_holds_at_every_call(self):
        told = environment.machine()
        assert told == environment.machine()
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        assert {*told} == {*["label", "cpu", "devices", "torch", "libraries", "precision", "threads", "python", "os"]}
        assert told["libraries"]["numpy"] == numpy.__version__
        assert told["cpu"]["cores"] >= 1
        assert told["cpu"]["memory_bytes"] > 1 << 20
        assert told["cpu"]["model"] == devices.CPU.label
        assert told["devices"][0] == devices.CPU.facts()
        assert told["torch"]["version"] == torch.__version__
        assert told["torch"]["build"] in ("cpu", "cuda", "rocm", "xpu")
        assert told["threads"] == torch.get_num_threads()

    def test_no_host_user_path_or_serial_number(self, monkeypatch):
        monkeypatch.setattr(platform, "node", lambda: "secret-host")
        monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
        for name in ("USER", "LOGNAME", "HOSTNAME", "HOME"):
            monkeypatch.setenv(name, "/secret/user")
        text = json.dumps(environment.machine())
        hidden = "secret", platform.uname().node, sys.prefix, "uuid"
        assert [word for word in hidden if word.lower() in text.lower()] == []

    @pytest.mark.parametrize(
        ("models", "tail"),
        [
            ((), ""),
            (("NVIDIA H200",), " · NVIDIA H200"),
            (("NVIDIA H200", "NVIDIA H200"), " · 2× NVIDIA H200"),
            (("A", "B", "A"), " · 2× A · B"),
        ],
    )
    def test_a_label_is_taken_as_given_or_made(self, gpus, models, tail):
        gpus(*models)
        assert environment.machine()["label"] == devices.CPU.label + tail
        assert environment.machine("the big one")["label"] == "the big one"

    def test_a_gpu_in_a_bad_state_is_unknown(self, gpus):
        gpus("broken")
        told = environment.machine()["devices"][1]
        assert convert(told, DeviceFacts) == DeviceFacts("gpu:0", "gpu")  # or no one could read the results

    def test_cache_sizes_add_up_the_last_level_of_all_dies_in_use(self, tmp_path, monkeypatch):
        monkeypatch.setattr(cpu, "affinity", lambda: [*range(0, 96, 2)])  # an EPYC 9654: twelve dies of eight cores
        for core in range(96):
            die = f"{core // 8 * 8}-{core // 8 * 8 + 7}"
            caches = [("1", "Data", "48K", f"{core}"), ("1", "Instruction", "64K", f"{core}")]
            caches += [("2", "Unified", "1M", f"{core}"), ("3", "Unified", "32768K", die), ("4",)]
            for index, texts in enumerate(caches):
                (folder := tmp_path / f"cpu{core}/cache/index{index}").mkdir(parents=True)
                for name, text in zip(("level", "type", "size", "shared_cpu_list"), texts, strict=False):
                    (folder / name).write_text(text + "\n")
        assert cpu.cache_sizes(tmp_path) == {"l1d": 48 << 10, "l2": 1 << 20, "l3": 12 * 32 << 20}
        monkeypatch.setattr(cpu, "affinity", lambda: [8, 9, 17])
        assert cpu.cache_sizes(tmp_path) == {"l1d": 48 << 10, "l2": 1 << 20, "l3": 2 * 32 << 20}
        assert cpu.cache_sizes(tmp_path / "none") is None

    @pytest.mark.parametrize(
        ("change", "matmul", "cudnn"),
        [
            ("pass", False, True),
            ("torch.set_float32_matmul_precision('high')", True, True),
            ("torch.backends.cudnn.allow_tf32 = False", False, False),
            ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", True, True),
            ("torch.backends.cudnn.conv.fp32_precision = 'ieee'", False, False),
        ],
    )
    def test_precision_as_it_is_now_set_in_the_old_way_or_the_new(self, change, matmul, cudnn):
        """In a process of its own: the newer switches can't be put back."""
        if "fp32_precision" in change and not hasattr(torch.backends, "fp32_precision"):
            pytest.skip("this torch has no fp32_precision")
        told = "from gpubench.measure.environment import machine; print(json.dumps(machine()))"
        quiet = "import warnings; warnings.simplefilter('ignore')"
        ran = forked.python(f"{quiet}\nimport torch, json\n{change}\n{told}")
        told = json.loads(ran.stdout)["precision"]
        assert (told["tf32_matmul"], told["tf32_cudnn"]) == (matmul, cudnn)

    def test_older_torch_has_the_older_switch_alone(self, monkeypatch):
        matmul, cudnn = types.SimpleNamespace(allow_tf32=True), types.SimpleNamespace(allow_tf32=False)
        backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=matmul), cudnn=cudnn)
        old = types.SimpleNamespace(backends=backends, get_float32_matmul_precision=lambda: "high")
        monkeypatch.setattr(environment, "imported_torch", lambda: (old, None))
        told = environment.switches()
        assert (told["tf32_matmul"], told["tf32_cudnn"], told["float32_matmul"]) == (True, False, "high")


OF_CPU = [
    "ONEDNN_MAX_CPU_ISA=AVX2", "ATEN_CPU_CAPABILITY=default", "OPENBLAS_CORETYPE=Haswell", "OMP_WAIT_POLICY=active",
    "MALLOC_MMAP_MAX_=0", "TORCHINDUCTOR_MAX_AUTOTUNE=1", "MALLOC_CONF=narenas:1,prof_prefix:/home/jane",
    "OMP_PLACES=jane@corp.example",
]  # fmt: skip
OF_ACCELERATOR = [
    "CUDA_MODULE_LOADING=EAGER", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync", "CUBLAS_WORKSPACE_CONFIG=:4096:8",
    "CUDA_SCALE_LAUNCH_QUEUES=4x", "MIOPEN_FIND_MODE=FAST", "PYTORCH_ENABLE_MPS_FALLBACK=1",
    "CUBLAS_WORKSPACE_CONFIG=/home/jane/x", "CUBLAS_WORKSPACE_CONFIG=GPU-11111111-2222-3333",
]  # fmt: skip
OF_NEITHER = [
    "OMP_OF_JANE=1", "TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor_jane", "CUBLAS_WORKSPACE_CONFIG=",
    "CUDA_VISIBLE_DEVICES=0",  # which one, not what it does
    "NVIDIA_VISIBLE_DEVICES=GPU-11111111-2222-3333-4444-555555555555", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "NVIDIA_REQUIRE_CUDA=cuda>=12.6 brand=tesla,driver>=535", "NVIDIA_PRODUCT_NAME=CUDA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",  # which the precision tells
    "CUDA_MODULE_LOADING=LAZY",  # set by torch 2.8
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
]  # fmt: skip


class TestSurroundings:
    """Facts that decide a CPU's times beside the CPU."""

    @pytest.mark.parametrize("variable", [*OF_CPU, *OF_ACCELERATOR, *OF_NEITHER])
    def test_variables_that_change_times_by_known_names_without_paths(self, monkeypatch, variable):
        name, _, value = variable.partition("=")
        monkeypatch.setenv(name, value)
        told = "(set)" if any(private in value for private in ("jane", "GPU-")) else value
        assert environment.machine()["cpu"]["variables"] == ({name: told} if variable in OF_CPU else {})
        shown = f"{name}={told}" if variable in OF_ACCELERATOR else ""
        assert (environment.switches()["variables"], environment.unusual()) == (shown, [shown] if shown else [])

    @pytest.mark.parametrize(("cpus", "quota", "known"), [(16, None, True), (208, None, False), (16, 8.0, False)])
    def test_the_load_of_a_container_s_host_is_not_its_own(self, monkeypatch, cpus, quota, known):
        monkeypatch.setattr(cpu, "affinity", lambda: [*range(16)])
        monkeypatch.setattr(cpu, "cgroup_cores", lambda: quota)
        monkeypatch.setattr(os, "cpu_count", lambda: cpus)
        assert environment.load_of_own_cores([60.0, 60.0, 60.0]) == (60.0 if known else None)

    def test_preloaded_libraries_by_the_names_of_their_files(self, monkeypatch):
        monkeypatch.setenv("LD_PRELOAD", "/home/jane/libtcmalloc.so.4:/usr/lib/libiomp5.so libfoo.so")
        assert environment.surroundings()["preloaded"] == ["libtcmalloc.so.4", "libiomp5.so", "libfoo.so"]

    @pytest.mark.parametrize(
        ("mapped", "allocator"),
        [("7f0 r-xp /usr/lib/libtcmalloc.so.4.5", "tcmalloc"), ("7f0 r-xp /home/libtcmalloc/libc.so.6", None)],
    )
    def test_allocator_pages_and_policy(self, tmp_path, monkeypatch, mapped, allocator):
        monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
        numa = "55d interleave:0-1 file=x\n"
        for name, text in (("maps", mapped), ("numa_maps", numa), ("thp", "always [madvise] never")):
            (tmp_path / name).write_text(text)
        for folder, known in ((tmp_path, (allocator, "madvise", "interleave")), (tmp_path / "no", (None,) * 3)):
            told = environment.surroundings(folder / "maps", folder / "thp")
            assert (told["allocator"], told["huge_pages"], told["numa_policy"]) == known

    def test_kernels_of_torch_and_of_numpy_rather_than_scipy(self, monkeypatch):
        pools = [
            {"user_api": "openmp", "internal_api": "openmp", "filepath": "/numpy/libgomp.so"},
            {"user_api": "blas", "internal_api": "openblas", "architecture": "Zen", "filepath": "/scipy.libs/x.so"},
            {"user_api": "blas", "internal_api": "openblas", "architecture": "Haswell", "filepath": "/numpy.libs/x.so"},
        ]
        monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: pools)
        kernels = environment.machine()["cpu"]["kernels"]
        assert kernels["numpy"] == "openblas Haswell"
        assert kernels["torch"].endswith(torch.backends.cpu.get_cpu_capability())


def test_what_changes_is_unknown_where_it_cannot_be_asked(monkeypatch):
    assert environment.moment()["time"].endswith("+00:00")
    monkeypatch.setattr(os, "getloadavg", raising(RuntimeError))
    assert environment.moment()["load"] is None


def test_absent_says_why(gpus):
    gpus()
    assert environment.absent() == {"gpu": "no gpu device found"}
    gpus("A")
    assert environment.absent() == {}


class TestThreads:
    @pytest.fixture(autouse=True)
    def as_before(self):
        before = torch.get_num_threads()
        yield
        environment.set_threads(before)

    @pytest.mark.parametrize("count", [1, None])
    def test_torch_and_every_pool(self, monkeypatch, count):
        monkeypatch.setattr(cpu, "cores", lambda: 3)  # the default is every core allowed
        expected = count or 3
        assert environment.set_threads(count) == torch.get_num_threads() == expected
        pools = threadpoolctl.threadpool_info()
        assert {"openmp", "blas"} & {pool["user_api"] for pool in pools}
        with environment.restoring_threads():
            environment.set_threads(expected + 1)
        for each in (pools, threadpoolctl.threadpool_info()):
            assert {pool["num_threads"] for pool in each} == {torch.get_num_threads()} == {expected}
        # torch is told itself: built on OpenMP it follows that pool; other builds have a pool of their own.
        told: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(torch, "set_num_threads", told.append)
            environment.set_threads(2)
        assert told == [2]

    def test_every_function_of_the_vector_math_library_is_met_on_one_element_first(self):
        """Its first call in a process is one that several threads must not make together."""
        met = set()

        def see(operator, args, *_):
            if args and isinstance(args[0], torch.Tensor) and args[0].numel() == 1:
                met.add((operator.overloadpacket.__name__, args[0].dtype))

        with Dispatched(see):
            environment.set_threads(2)
        names = ("exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "erf", "erfc", "erfinv", "acos", "asin", "atan")
        for name in (*names, "log2", "log10", "trunc"):
            assert {(name, torch.float32), (name, torch.float64)} <= met


class TestSwitches:
    def test_what_changes_an_accelerators_times_is_recorded(self, monkeypatch, request):
        known = environment.switches()
        assert (known["cudnn_benchmark"], known["deterministic"]) == (False, False)
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
        request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
        torch.use_deterministic_algorithms(True)
        known = environment.switches()
        assert (known["cudnn_benchmark"], known["deterministic"]) == (True, True)
        assert known["variables"] == "NVIDIA_TF32_OVERRIDE=0 PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"
        unusual = [known["variables"], "cudnn.benchmark is on", "deterministic algorithms are on"]
        assert environment.unusual() == unusual
        session = Session(Settings(devices=("cpu",)))
        assert "switched" not in {flag.name for flag in session.process_flags()}
        session.choices = [devices.Choice("virtual:0", VirtualDevice())]
        (flag,) = (flag for flag in session.process_flags() if flag.name == "switched")
        assert flag.seen == "; ".join(unusual)

    @pytest.mark.parametrize(
        ("lacks", "blocking", "refused"),
        [
            # Without its rows a run would look like one on a machine without a GPU.
            ("this build has no kernels for it", "", "virtual:0: this build has no kernels for it; choose"),
            (None, "1", "CUDA_LAUNCH_BLOCKING=1 makes each launch wait"),
            (None, "0", None),
            (None, "", None),
        ],
    )
    def test_what_makes_an_accelerators_times_useless_is_refused(self, monkeypatch, lacks, blocking, refused):
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", blocking)
        assert Session(Settings(devices=("cpu",))).choose_devices()
        kind = type("Accelerator", (VirtualDevice,), {"lacks": lambda self, dtype: lacks})
        monkeypatch.setitem(devices.base.KINDS, "virtual", kind)
        with pytest.raises(UsageError, match=refused) if refused else contextlib.nullcontext():
            assert Session(Settings(devices=("virtual",))).choose_devices()


def test_reading_a_session_does_nothing():
    session = Session(Settings(devices=("none",), implementations=("none",)))
    before = dict(vars(session))
    assert [getattr(session, name) for name in dir(session)]
    assert vars(session) == before
