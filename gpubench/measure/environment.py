"""The machine that is measured: what stays the same, what changes while running, and ``gpubench env``.

A number without its machine can't be compared with another. What is collected here may be published: it holds no
host or user name, no path, no serial number.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import operator
import os
import platform
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from .. import devices
from ..devices.cpu import cache_sizes, cores, resolve_vector_math
from ..errors import UsageError

T = TypeVar("T")

_VARIABLES = re.compile(
    r"(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|ONEDNN|DNNL)_\w+|(CUDA|HIP|ROCR)_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    r"|CUDA_DEVICE_ORDER|CUDA_LAUNCH_BLOCKING|CUBLAS_WORKSPACE_CONFIG|NVIDIA_TF32_OVERRIDE"
    r"|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF|PYTORCH_NVML_BASED_CUDA_CHECK"
)
_SWITCH = {True: "on", False: "off", None: "unknown"}
_NO_TORCH = (
    "torch is not installed: pip install torch (https://pytorch.org/get-started/locally/ has the command for"
    " each CUDA, ROCm, XPU or CPU build)"
)


def _known(*asks: Callable[[], T]) -> T | None:
    """The first answer, or ``None`` where this torch, device or system can't say."""
    for ask in asks:
        with contextlib.suppress(RuntimeError, AttributeError, OSError):  # NotImplementedError is a RuntimeError
            return ask()
    return None


def _torch() -> tuple[Any, str | None]:
    """torch, or ``None`` and what to do about it."""
    try:
        return importlib.import_module("torch"), None
    except (ImportError, OSError) as error:  # OSError: a shared library of it is missing
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return None, _NO_TORCH
        return None, f"torch can't be imported: {' '.join(str(error).split())}"


def machine(label: str | None = None) -> dict[str, Any]:
    """Facts that don't change between two runs on an unchanged machine: pytest-benchmark warns at any difference.

    Asking a GPU for its model initialises it, so this belongs at the end of a session, never at its start.
    """
    torch, _ = _torch()
    present = devices.present() if torch else [devices.CPU]
    told = [_facts(device) for device in present]
    models = Counter(facts["label"] or facts["name"] for facts in told)
    shared = {name: told[0].get(name) for name in ("cores", "logical_cpus", "cgroup_cores", "memory_bytes")}
    return {
        "label": label or " · ".join(f"{count}× {model}" if count > 1 else model for model, count in models.items()),
        "cpu": {"model": told[0]["label"], **shared, "machine_cpus": os.cpu_count(), "cache_bytes": cache_sizes()},
        "devices": told,
        "torch": _build(torch) if torch else None,
        "precision": _precision(torch) if torch else None,
        "threads": torch.get_num_threads() if torch else None,
        "interop_threads": torch.get_num_interop_threads() if torch else None,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _facts(device: devices.Device) -> dict[str, Any]:
    # A GPU in a bad state must not cost the run its results.
    return _known(device.facts) or {"name": device.name, "kind": device.kind.name, "label": None, "memory_bytes": None}


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


def _precision(torch: Any) -> dict[str, Any]:
    """How exact float32 and half-precision products are at this moment."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # fp32_precision is torch's newer switch: once it is set, the older one refuses to be read; older torch lacks it.
    tf32_matmul = _known(lambda: matmul.fp32_precision == "tf32", lambda: matmul.allow_tf32)
    tf32_cudnn = _known(lambda: cudnn.conv.fp32_precision == "tf32", lambda: cudnn.allow_tf32)
    return {
        "tf32": bool(tf32_matmul or tf32_cudnn),
        "tf32_matmul": tf32_matmul,
        "tf32_cudnn": tf32_cudnn,
        "float32_matmul": _known(torch.get_float32_matmul_precision),
        "fp16_reduced_precision_reduction": _known(lambda: matmul.allow_fp16_reduced_precision_reduction),
        "bf16_reduced_precision_reduction": _known(lambda: matmul.allow_bf16_reduced_precision_reduction),
    }


def switches() -> dict[str, Any]:
    """The precision switches in force at this moment, as :func:`machine` names them."""
    torch, _ = _torch()
    return _precision(torch) if torch else {}


def moment() -> dict[str, Any]:
    """What changes while running. Starts nothing: an accelerator is asked only if this process already uses it."""
    used = devices.in_use() if sys.modules.get("torch") else []
    states: dict[str, Any] = {}
    for device in (devices.CPU, *used):
        memory, clocks = _known(device.memory), _known(partial(device.kind.clocks, device.index))
        free = memory.free if memory else None
        states[device.name] = {"memory_free_bytes": free, "clocks_hz": dict(clocks) if clocks else None}
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": _known(lambda: list(os.getloadavg())),  # AttributeError on Windows
        "devices": states,
    }


def absent() -> dict[str, str]:
    """Why torch sees none of a kind of accelerator, by kind."""
    if _torch()[0] is None:
        return {}
    return {name: kind.why_absent() for name, kind in devices.kinds().items() if not kind.count()}


def set_threads(count: int | None = None) -> int:
    """Let torch and the thread pools that NumPy calculates with use ``count`` threads; by default every core allowed.

    Returns the count. ``OMP_NUM_THREADS`` and its like are overruled: a CPU measured on fewer threads than it has
    cores makes every accelerator look better than it is.
    """
    if count is not None and count < 1:
        raise UsageError(f"threads: {count} is not possible, choose 1 or more ({cores()} cores may be used)")
    import numpy  # noqa: F401  (a pool that isn't loaded yet can't be set)
    import threadpoolctl
    import torch

    wanted = count or cores()
    threadpoolctl.threadpool_limits(wanted)
    resolve_vector_math()
    torch.set_num_threads(wanted)  # last: its own matrix library is linked in and unknown to threadpoolctl
    return wanted


def thread_pools() -> list[dict[str, Any]]:
    """The thread pools loaded in this process: what they are for, and how many threads each may use."""
    import threadpoolctl

    names = {"library": "internal_api", "kind": "user_api", "version": "version", "threads": "num_threads"}
    return [{ours: pool.get(theirs) for ours, theirs in names.items()} for pool in threadpoolctl.threadpool_info()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
    """Print the machine. 1 without torch: nothing could be measured."""
    document = _document()
    if args.json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        _render(document)
    if document["problem"]:
        print(_writable(f"gpubench env: {document['problem']}", sys.stderr.encoding), file=sys.stderr)
    return 1 if document["problem"] else 0


def _document() -> dict[str, Any]:
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy")  # its thread pool shows only once loaded
    here, now = machine(), moment()
    count, load, warnings = here["cpu"]["cores"], now["load"], []
    if load and load[0] > count / 2:
        warnings.append(
            f"the load is {load[0]:.1f} with {count} core(s) to use: something else is running and timings will suffer."
            f" Stop it, or wait until the load is below {count / 2:g}."
        )
    return {
        "machine": here,
        "moment": now,
        "absent": absent(),
        "variables": {name: value for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)},
        "thread_pools": thread_pools(),
        "warnings": warnings,
        "problem": _torch()[1],
    }


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Heading, name and value of what a person wants to know, most wanted first."""
    here, now = document["machine"], document["moment"]
    cpu, torch, precision = here["cpu"], here["torch"], here["precision"]
    for told in here["devices"]:
        shown = {"capability": "compute {}", "multiprocessors": "{} SMs", "driver": "driver {}"}
        more = [form.format(told[name]) for name, form in shown.items() if told.get(name) is not None]
        yield "Devices", told["name"], _line(told["label"] or "model unknown", _size(told["memory_bytes"]), *more)
    for name, reason in document["absent"].items():
        yield "Devices", f"no {name}", reason

    quota, clocks, load = cpu["cgroup_cores"], now["devices"]["cpu"]["clocks_hz"], now["load"]
    allowed = f"{cpu['logical_cpus']} of {cpu['machine_cpus']} logical CPUs allowed"
    limit = f"cgroup limit {quota:g}" if quota else "no cgroup limit"
    yield "CPU", "cores", _line(f"{cpu['cores']} to use", allowed, limit)
    caches = [f"{name.upper()} {_size(size)}" for name, size in (cpu["cache_bytes"] or {}).items()]
    yield "CPU", "caches", _line(*caches)
    speed = clocks and f"{clocks['core'] / 1e9:.2f} GHz"
    yield "CPU", "now", _line(speed, load and f"load {' '.join(f'{value:.2f}' for value in load)}")
    if torch:
        builds = {"cuda": f"CUDA {torch['cuda']}", "rocm": f"ROCm {torch['hip']}"}
        built = builds.get(torch["build"], f"{torch['build'].upper()} build")
        yield "torch", "version", _line(torch["version"], built, torch["cudnn"] and f"cuDNN {_cudnn(torch['cudnn'])}")
        yield "torch", "CPU code", _line(torch["cpu_capability"], torch["blas"] and f"BLAS {torch['blas']}")
        pools = [f"{pool['library']} {pool['threads']}" for pool in document["thread_pools"]]
        yield "torch", "threads", _line(f"{here['threads']}", f"{here['interop_threads']} between operations", *pools)
        tf32 = f"TF32 matmul {_SWITCH[precision['tf32_matmul']]}, cuDNN {_SWITCH[precision['tf32_cudnn']]}"
        yield "torch", "float32", _line(f"matmul precision {precision['float32_matmul'] or 'unknown'}", tf32)
        sums = [f"{name} {_SWITCH[precision[f'{name}_reduced_precision_reduction']]}" for name in ("fp16", "bf16")]
        yield "torch", "half", f"reduced-precision sums {', '.join(sums)}"
    for name, value in document["variables"].items():
        yield "Set", "", f"{name}={value!r}"
    yield "System", "os", _line(here["os"], here["python"])


def _line(*parts: str | None) -> str:
    return " · ".join(part for part in parts if part)


def _size(amount: int | None) -> str | None:
    """Memory in powers of 1024, as memory and caches are sold."""
    power = min(3, (amount.bit_length() - 1) // 10) if amount else 0
    return f"{amount / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}" if amount else None


def _cudnn(number: int) -> str:
    """91002 is 9.10.2; before version 9 the first digit stood four places from the right."""
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _writable(text: str, encoding: str | None) -> str:
    """The text in what the terminal can write: ASCII ones exist, and a crash would tell nobody anything."""
    encoding = encoding or "ascii"
    for plain in ({}, {ord("·"): "-", ord("×"): "x"}):
        text = text.translate(plain)
        with contextlib.suppress(UnicodeEncodeError):
            return text.encode(encoding).decode(encoding)
    return text.encode(encoding, "replace").decode(encoding)


def _render(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    left, indent = (9, 19) if console.width >= 60 else (0, 2)  # a narrow terminal has no room for headings
    wrapper = textwrap.TextWrapper(max(20, console.width), subsequent_indent=" " * indent, break_on_hyphens=False)

    def show(*parts: tuple[str, str]) -> None:
        written = [(_writable(part, console.encoding), style) for part, style in parts]
        console.print(Text.assemble(*written), soft_wrap=True)

    before = ""
    for heading, name, value in filter(operator.itemgetter(2), _rows(document)):
        title = f"{'' if heading == before else heading:<{left}}"[:left]
        prefix = title + (f"{name:<9} " if left else f"{name or heading} ")
        wrapper.initial_indent = " " * len(prefix)
        body, quiet = "\n".join(wrapper.wrap(value))[len(prefix) :], "dim" if name.startswith("no ") else ""
        show((title, "bold"), (prefix[left:], quiet or "cyan"), (body, quiet))
        before = heading
    for warning in document["warnings"]:
        show(("\n".join(textwrap.wrap(f"Warning: {warning}", console.width)), "bold yellow"))
