"""``gpubench env``: the devices that torch sees, with their names, or the reason why it sees none."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import convert

from ..devices import CPU
from ..devices.lazy import threadpoolctl
from ..runfile.quality import library_label, slow_products
from ..runfile.quantities import SWITCH, text
from ..runfile.schema import CpuFacts

_Ways = Mapping[str, Mapping[str, float]]
_ABSENT, _DETAILS = "Absent devices", "around it"
"""The heading of devices that aren't here, and the row that most people don't need."""
_OF_DEVICE = {"capability": "compute {}", "multiprocessors": "{} SMs", "driver": "driver {}",
              "unknown": "clocks and energy are unknown: {}"}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("-v", "--verbose", action="store_true", help="also huge pages, allocator, NUMA and governor")


def main(args: argparse.Namespace) -> int:
    """Print the machine. Returns 1 without torch, as nothing could be measured."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from ..measure.environment import imported_torch, machine, moment

    with contextlib.suppress(ImportError):
        importlib.import_module("numpy")  # its thread pool shows only once loaded
    here, load = machine(), moment()["load"]
    ways, warnings = _products_and_warnings(here, load)
    console, before = Console(highlight=False), ""
    table = Table.grid(Column(min_width=8), Column(min_width=9), Column(), padding=(0, 1))
    for part, name, value in _rows(here, load, ways):
        if value and (args.verbose or name != _DETAILS):
            quiet, heading = "dim" * (part is _ABSENT), "Devices" if part is _ABSENT else part
            styled = (("" if heading == before else heading, "bold"), (name, quiet or "cyan"), (value, quiet))
            table.add_row(*(Text(part, style) for part, style in styled))
            before = heading
    console.print(table)
    for warning in warnings:
        console.print(Text(f"Warning: {warning}", "bold yellow"))
    if problem := imported_torch()[1]:
        print(f"gpubench env: {problem}", file=sys.stderr)
    return int(bool(problem))


def _products_and_warnings(here: dict[str, Any], load: list[float] | None) -> tuple[_Ways, list[str]]:
    """Return the FLOP/s of the matrix products of all libraries, with the threads that a run gives them, unless the
    machine is busy, and warnings about the machine."""
    from ..measure.environment import load_of_own_cores, set_threads
    from ..measure.probes import measure_products

    count, own = here["cpu"]["cores"], load_of_own_cores(load)
    if own and own > count / 2:
        suffers = "something else is running and timings will suffer. Stop it, or wait until the load is below"
        return {}, [f"the load is {own:.1f} with {count} core(s) to use: {suffers} {count / 2:g}."]
    if not here["torch"]:
        return {}, []
    set_threads()
    products = measure_products(["float32", "float64", "bfloat16", "float16"])
    slow = slow_products(products, convert(here["cpu"], CpuFacts))
    return products.ways, [f"{claim} ({reason})." for _, claim, reason in slow]


def _rows(here: dict[str, Any], load: list[float] | None, ways_of: _Ways) -> Iterator[tuple[str, str, str]]:
    """Yield heading, name and value of each fact that a person wants to know, the most important first."""
    from ..measure.environment import VARIABLES, absent, shown as shown_of

    cpu, torch, precision = here["cpu"], here["torch"], here["precision"]
    for device in here["devices"]:
        more = [form.format(device[name]) for name, form in _OF_DEVICE.items() if device.get(name) is not None]
        yield "Devices", device["name"], _line(device["label"] or "model unknown", _size(device["memory_bytes"]), *more)
    yield from ((_ABSENT, f"no {name}", reason) for name, reason in absent().items())

    quota, clocks = cpu["cgroup_cores"], CPU.clocks()
    allowed = f"{cpu['logical_cpus']} of {cpu['machine_cpus']} logical CPUs allowed"
    limit = f"cgroup limit {quota:g}" if quota else "no cgroup limit"
    yield "CPU", "cores", _line(f"{cpu['cores']} to use", allowed, limit)
    caches = (f"{name.upper()} {_size(size)}" for name, size in (cpu["cache_bytes"] or {}).items())
    yield "CPU", "caches", _line(*caches)
    speed = f"{clocks['core'] / 1e9:.2f} GHz" if clocks else None
    yield "CPU", "now", _line(speed, f"load {' '.join(f'{value:.2f}' for value in load)}" if load else None)
    pages, policy = cpu["huge_pages"], cpu["numa_policy"]
    nodes = cpu["numa_nodes"] and f"{cpu['numa_nodes']} NUMA node(s) in use" + (f", {policy}" if policy else "")
    governor = cpu["governor"] and f"governor {cpu['governor']}"
    around = (pages and f"huge pages {pages}", cpu["allocator"], nodes, governor, *cpu["preloaded"])
    yield "CPU", _DETAILS, _line(*around)
    for dtype, ways in ways_of.items():
        rates = (f"{library_label(way)} {text(rate, 'FLOP/s')}" for way, rate in ways.items())
        yield "Products", dtype, _line(*rates)
    if torch:
        builds = {"cuda": f"CUDA {torch['cuda']}", "rocm": f"ROCm {torch['hip']}"}
        built = builds.get(torch["build"], f"{torch['build'].upper()} build")
        yield "torch", "version", _line(torch["version"], built, torch["cudnn"] and f"cuDNN {torch['cudnn']}")
        yield "torch", "CPU code", _line(torch["cpu_capability"], torch["blas"] and f"BLAS {torch['blas']}")
        pools = [f"{pool['internal_api']} {pool['num_threads']}" for pool in threadpoolctl.threadpool_info()]
        yield "torch", "threads", _line(f"{here['threads']}", *pools)
        tf32 = f"TF32 matmul {SWITCH[precision['tf32_matmul']]}, cuDNN {SWITCH[precision['tf32_cudnn']]}"
        yield "torch", "float32", _line(f"matmul precision {precision['float32_matmul'] or 'unknown'}", tf32)
        sums = [f"{name} {SWITCH[precision[f'{name}_reduced_precision_reduction']]}" for name in ("fp16", "bf16")]
        yield "torch", "half", f"reduced-precision sums {', '.join(sums)}"
    for name in sorted(filter(VARIABLES.fullmatch, os.environ)):
        yield "Set", "", f"{name}={shown_of(os.environ[name])!r}"
    yield "System", "os", _line(here["os"], here["python"])


def _line(*parts: str | None) -> str:
    return " · ".join(filter(None, parts))


def _size(amount: int | None) -> str | None:
    """Return memory in powers of 1024, as memory and caches are sold."""
    power = min(3, (amount.bit_length() - 1) // 10) if amount else 0
    return f"{amount / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}" if amount else None
