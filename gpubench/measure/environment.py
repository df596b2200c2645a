"""Facts about the machine, which may be published: without a host or user name, a path or a serial number."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from .. import devices
from ..devices import cpu
from ..devices.implementations import library_versions
from ..devices.lazy import threadpoolctl
from ..runfile.writer import without_paths

T = TypeVar("T")
_HOW_TO_INSTALL = "https://pytorch.org/get-started/locally/ has the command for each CUDA, ROCm, XPU or CPU build"
_OF_CPUS = re.compile(
    r"OMP_(NUM_THREADS|THREAD_LIMIT|DYNAMIC|PROC_BIND|PLACES|WAIT_POLICY|SCHEDULE|STACKSIZE|MAX_ACTIVE_LEVELS|NESTED)"
    r"|KMP_(AFFINITY|BLOCKTIME|HW_SUBSET|LIBRARY|TOPOLOGY_METHOD|STACKSIZE)|GOMP_(CPU_AFFINITY|SPINCOUNT|STACKSIZE)"
    r"|MKL_(NUM_THREADS|DOMAIN_NUM_THREADS|DYNAMIC|CBWR|DEBUG_CPU_TYPE|ENABLE_INSTRUCTIONS|DISABLE_FAST_MM"
    r"|THREADING_LAYER|INTERFACE_LAYER|FAST_MEMORY_LIMIT|VERBOSE)"
    r"|OPENBLAS_(NUM_THREADS|DEFAULT_NUM_THREADS|CORETYPE|MAIN_FREE|THREAD_TIMEOUT|VERBOSE)|GOTO_NUM_THREADS"
    r"|BLIS_(NUM_THREADS|ARCH_TYPE|MODEL_TYPE|(IC|JC|PC|IR|JR)_NT)|(VECLIB_MAXIMUM|NUMEXPR_(NUM|MAX))_THREADS"
    r"|(ONEDNN|DNNL)_(MAX_CPU_ISA|CPU_ISA_HINTS|DEFAULT_FPMATH_MODE|PRIMITIVE_CACHE_CAPACITY|ENABLE_MAX_CPU_ISA|VERBOSE)"
    r"|ATEN_CPU_CAPABILITY|MALLOC_(CONF|CHECK_|PERTURB_|ARENA_(MAX|TEST)|(MMAP|TRIM)_THRESHOLD_|MMAP_MAX_|TOP_PAD_)"
    r"|GLIBC_TUNABLES|NPY_(DISABLE|ENABLE)_CPU_FEATURES"
    r"|TORCHINDUCTOR_(MAX_AUTOTUNE(_GEMM)?(_BACKENDS)?|CPP_WRAPPER|FREEZING|COORDINATE_DESCENT_TUNING|LAYOUT_OPTIMIZATION"
    r"|CPP_\w+|(MIN|MAX)_FUSION_SIZE)"
)
"""Environment variables that make a CPU's libraries faster or slower. Their values may be published."""
_VALUE = re.compile(r"[A-Za-z0-9 _.,:;{}()=+*%-]{0,80}")
_CHANGING = (
    r"NVIDIA_TF32_OVERRIDE|HIPBLASLT_ALLOW_TF32|CUBLAS_(WORKSPACE_CONFIG|EMULAT\w+)"
    r"|CUBLASLT_(WORKSPACE_SIZE|HEURISTICS_CACHE_CAPACITY|DISABLE_TENSOR_CORE\w*)|TORCH_CUDNN_V8_API_DISABLED"
    r"|TORCH_(CUBLAS_WORKSPACE_CACHE|CUBLASLT_UNIFIED_WORKSPACE|BLAS_PREFER_CUBLASLT|LINALG_PREFER_CUSOLVER)"
    r"|CUDA_(LAUNCH_BLOCKING|DISABLE_PERF_BOOST|SCALE_LAUNCH_QUEUES|DEVICE_MAX_CONNECTIONS|MODULE_LOADING)"
    r"|HIP_LAUNCH_BLOCKING|AMD_SERIALIZE_(KERNEL|COPY)|HSA_(ENABLE_SDMA|XNACK|OVERRIDE_GFX_VERSION)"
    r"|MIOPEN_FIND_(MODE|ENFORCE)|TEARDOWN_CUPTI"
    r"|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF|PYTORCH_NO_(CUDA|HIP)_MEMORY_CACHING|PYTORCH_ENABLE_(MPS|XPU)_FALLBACK"
)
VARIABLES = re.compile(
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|ONEDNN|DNNL|ATEN|MALLOC|TORCHINDUCTOR)_\w+"
    rf"|(CUDA|HIP|ROCR)_VISIBLE_DEVICES|ZE_AFFINITY_MASK|CUDA_DEVICE_ORDER|PYTORCH_NVML_BASED_CUDA_CHECK|{_CHANGING}"
)
_OF_ACCELERATORS = re.compile(_CHANGING)
"""The part of :data:`VARIABLES` that changes what an accelerator does, not which one is used. Each is named: containers
set others with the same prefixes (``NVIDIA_VISIBLE_DEVICES``), which change no time and may hold a GPU's UUID."""
_USUAL = re.compile(r"\w+=|CUDA_MODULE_LOADING=(LAZY|DEFAULT)|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF=expandable_segments:\w+")
"""Settings of these variables that change no time of a warm call: torch 2.8 and older set the first themselves, and
clusters the second."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}", re.IGNORECASE)


def _known(*asks: Callable[[], T]) -> T | None:
    """Return the first answer, or ``None`` where this torch, device or system has none."""
    for ask in asks:
        with contextlib.suppress(RuntimeError, AttributeError, OSError):  # NotImplementedError is a RuntimeError
            return ask()
    return None


def imported_torch() -> tuple[Any, str | None]:
    """Return torch and ``None``, or ``None`` and a text with the remedy."""
    try:
        return importlib.import_module("torch"), None
    except (ImportError, OSError) as error:  # OSError: a shared library of it is missing
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return None, f"torch is not installed: pip install torch ({_HOW_TO_INSTALL})"
        return None, f"torch can't be imported: {' '.join(str(error).split())}"


def machine(label: str | None = None, simulated: Iterable[devices.Device] = (), full: bool = True) -> dict[str, Any]:
    """Return the facts that don't change between two runs on an unchanged machine, of ``simulated`` devices too. Unless
    ``full``, the CPU alone, without torch. Asking a GPU for its model initialises it."""
    torch = imported_torch()[0] if full else None
    present = [*(devices.present() if torch else [devices.CPU]), *simulated]
    # A GPU in a bad state must not cost the run its results.
    facts = [_known(d.facts) or {"name": str(d), "kind": d.kind, "label": "", "memory_bytes": None} for d in present]
    names = Counter(each["label"] or each["name"] for each in facts)
    shared = {name: facts[0].get(name) for name in ("cores", "logical_cpus", "cgroup_cores", "memory_bytes")}
    shared |= {"machine_cpus": os.cpu_count(), "cache_bytes": cpu.cache_sizes()}
    build = _build(torch) if torch else None
    return {
        "label": label or " · ".join(f"{count}× {name}" if count > 1 else name for name, count in names.items()),
        "cpu": {"model": facts[0]["label"], **shared, **surroundings(), "kernels": _kernels(build)},
        "devices": facts,
        "torch": build,
        "libraries": library_versions(),
        "precision": switches() if torch else None,
        "threads": torch.get_num_threads() if torch else None,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def surroundings(
    maps: Path = Path("/proc/self/maps"), pages: Path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
) -> dict[str, Any]:
    """Return further facts that decide a CPU's times, by the keys of :class:`~gpubench.runfile.schema.CpuFacts`:
    only known names and values, and of files only their names."""
    preloads = os.environ.get("LD_PRELOAD", os.environ.get("DYLD_INSERT_LIBRARIES", ""))
    loaded = _known(maps.read_text) or ""
    chosen = re.search(r"\[(\w+)\]", _known(pages.read_text) or "")
    policy = (_known(maps.with_name("numa_maps").read_text) or "").split()[1:2]
    kinds = cpu.OTHER_ALLOCATORS.findall(loaded)
    libc = " ".join(platform.libc_ver()).strip()
    libc += ", keeps freed memory" * (cpu.keeps_memory() and bool(libc))
    return {
        "instructions": list(cpu.instructions()),
        **cpu.layout(),
        "numa_policy": policy[0].partition(":")[0] if policy else None,
        "huge_pages": chosen[1] if chosen else None,
        "allocator": kinds[0] if kinds else libc or None,
        "preloaded": [Path(name).name for name in re.split(r"[\s:]+", preloads) if name],
        "variables": {name: shown(value) for name, value in sorted(os.environ.items()) if _OF_CPUS.fullmatch(name)},
    }


def shown(value: str) -> str:
    """Return an environment variable's value, or ``(set)`` if it may be a path, private, or a device's UUID."""
    return without_paths(value) if _VALUE.fullmatch(value) and not _UUID.search(value) else "(set)"


def _kernels(build: dict[str, Any] | None) -> dict[str, str]:
    """Return the source of each library's products: torch's BLAS and own CPU code, NumPy's BLAS and its kernel."""
    found = {"torch": " ".join(filter(None, (build["blas"], build["cpu_capability"])))} if build else {}
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool.get("user_api") == "blas"]
    for pool in sorted(pools, key=lambda pool: "numpy" not in pool["filepath"].lower())[:1]:  # SciPy may bring another
        found["numpy"] = " ".join(filter(None, (pool["internal_api"], pool.get("architecture"))))
    return found


def _build(torch: Any) -> dict[str, Any]:
    version = torch.version
    platforms = {"rocm": version.hip, "cuda": version.cuda, "xpu": getattr(version, "xpu", None)}
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "version": str(torch.__version__),
        "build": next((name for name, built in platforms.items() if built), "cpu"),
        "cuda": version.cuda,
        "hip": version.hip,
        "cudnn": _known(torch.backends.cudnn.version),
        "cpu_capability": _known(torch.backends.cpu.get_cpu_capability),
        "blas": blas[1] if blas else None,
    }


def switches() -> dict[str, Any]:
    """Return the switches in force for the precision of products, and others that change an accelerator's times; empty
    without torch."""
    torch, _ = imported_torch()
    if torch is None:
        return {}
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # Once torch's newer switch, fp32_precision, is set, the older one refuses to be read; older torch lacks it.
    tf32_matmul = _known(lambda: matmul.fp32_precision == "tf32", lambda: matmul.allow_tf32)
    tf32_cudnn = _known(lambda: cudnn.conv.fp32_precision == "tf32", lambda: cudnn.allow_tf32)
    asked: dict[str, Callable[[], Any]] = {
        "float32_matmul": lambda: torch.get_float32_matmul_precision(),
        "fp16_reduced_precision_reduction": lambda: matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced_precision_reduction": lambda: matmul.allow_bf16_reduced_precision_reduction,
        "fp16_accumulation": lambda: matmul.allow_fp16_accumulation,
        "cudnn_benchmark": lambda: cudnn.benchmark,
        "cudnn_deterministic": lambda: cudnn.deterministic,
        "cudnn_depthwise_kernel": lambda: str(cudnn.depthwise_kernel),
        "blas_library": lambda: torch.backends.cuda.preferred_blas_library().name,
        "attention_kernels": lambda: _attention_kernels(torch),
        "flash_attention": lambda: torch.nn.attention.current_flash_attention_impl() or "default",
        "deterministic": lambda: torch.are_deterministic_algorithms_enabled(),
    }
    tf32 = {"tf32": bool(tf32_matmul or tf32_cudnn), "tf32_matmul": tf32_matmul, "tf32_cudnn": tf32_cudnn}
    found = (f"{name}={shown(value)}" for name, value in sorted(os.environ.items()) if _OF_ACCELERATORS.fullmatch(name))
    variables = " ".join(each for each in found if not _USUAL.fullmatch(each))
    return tf32 | {name: _known(ask) for name, ask in asked.items()} | {"variables": variables}


def _attention_kernels(torch: Any) -> str:
    """Return the enabled kernels of fused attention in the order in which torch tries them."""
    names = ("math", "flash", "mem_efficient", "cudnn")  # by the numbers of torch's SDPBackend
    order = [names[number] for number in torch._C._get_sdp_priority_order() if number < len(names)]
    return " ".join(name for name in order if getattr(torch.backends.cuda, f"{name}_sdp_enabled")())


def unusual() -> list[str]:
    """Describe the settings of this process that change an accelerator's times; empty by default."""
    names = {"cudnn_benchmark": "cudnn.benchmark is on", "cudnn_deterministic": "cudnn.deterministic is on"}
    names["deterministic"] = "deterministic algorithms are on"
    known = switches()
    return [*filter(None, [known.get("variables")]), *(text for name, text in names.items() if known.get(name))]


def moment() -> dict[str, Any]:
    """Return the facts that change during a run."""
    load = _known(lambda: list(os.getloadavg()))  # AttributeError on Windows
    return {"time": datetime.now(UTC).isoformat(timespec="seconds"), "load": load}


def load_of_own_cores(load: list[float] | None) -> float | None:
    """Return the load of the last minute; ``None`` if unknown, or of a host that has more cores than its container."""
    whole = cpu.cgroup_cores() is None and len(cpu.affinity()) == os.cpu_count()
    return load[0] if load and whole else None


def absent() -> dict[str, str]:
    """Return why torch sees no device of a kind, for each kind of accelerator that is absent."""
    if imported_torch()[0] is None:
        return {}
    return {name: kind.why_absent() for name, kind in devices.kinds().items() if not kind.count()}


def set_threads(count: int | None = None) -> int:
    """Let torch and NumPy's thread pools use ``count`` threads (default: every allowed core), whatever
    ``OMP_NUM_THREADS`` says, and return the count."""
    import numpy  # noqa: F401  (a pool that isn't loaded yet can't be set)
    import torch

    wanted = count or cpu.cores()
    threadpoolctl.threadpool_limits(wanted)
    cpu.resolve_vector_math()
    torch.set_num_threads(wanted)  # last: torch's own matrix library is unknown to threadpoolctl
    return wanted


@contextlib.contextmanager
def restoring_threads() -> Iterator[None]:
    """Restore the number of threads of torch and of all thread pools."""
    import numpy  # noqa: F401  (a pool that isn't loaded yet can't be restored)
    import torch

    threads = torch.get_num_threads()
    with threadpoolctl.threadpool_limits():
        try:
            yield
        finally:
            torch.set_num_threads(threads)
