"""What AMD's management library (amdsmi) and the kernel report about an AMD GPU.

Written from their documentation (rocm.docs.amd.com/projects/amdsmi, the kernel's amdkfd topology); not run on an AMD
GPU yet. Each answer may be missing; :func:`why_unknown` returns why all are.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")
_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
_REASONS = {
    "active_ppt_pwr": "power limit",
    "active_socket_thrm": "heat",
    "active_vr_thrm": "heat (voltage regulator)",
    "active_hbm_thrm": "heat (memory)",
    "active_prochot_thrm": "hardware slowdown",
}


@functools.cache
def _library() -> tuple[Any, str | None]:
    """Return the initialised ``amdsmi`` module and ``None``, or ``None`` and why it can't be used."""
    try:
        import amdsmi
    except (ImportError, OSError, KeyError) as error:  # OSError, KeyError: its shared library isn't found
        return None, f"amdsmi can't be imported: {' '.join(str(error).split())}"
    try:
        amdsmi.amdsmi_init()
    except Exception as error:  # its exceptions have no stable base class
        return None, f"amdsmi can't be used: {' '.join(str(error).split())}"
    return amdsmi, None


def address(properties: Any) -> str | None:
    """Return the GPU's address on the PCI bus, such as ``0000:43:00``, by which the library and the kernel know it;
    ``None`` with older versions of torch, whose properties lack it."""
    try:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}"
    except AttributeError:
        return None


def why_unknown(place: str | None) -> str | None:
    """Return why clocks, throttling and energy are unknown, or ``None`` if they aren't."""
    library, reason = _library()
    if library is None:
        return reason
    if place is None:
        return "this PyTorch doesn't say where on the PCI bus a GPU is"
    return None if _handle(library, place) is not None else f"amdsmi knows no GPU at {place}"


def _handle(library: Any, place: str) -> Any:
    with contextlib.suppress(Exception):
        for handle in library.amdsmi_get_processor_handles():
            if str(library.amdsmi_get_gpu_device_bdf(handle)).lower().startswith(place):
                return handle
    return None


def _ask(place: str | None, question: Callable[[Any, Any], _Answer]) -> _Answer | None:
    """Return ``question(library, handle)``, or ``None`` where library, GPU or answer is missing."""
    library, _ = _library()
    handle = _handle(library, place) if library is not None and place else None
    if handle is None:
        return None
    try:
        return question(library, handle)
    except Exception:  # its own errors, and a field that a version lacks or writes as "N/A"
        return None


def clocks(place: str | None) -> dict[str, float] | None:
    """Return the clocks in Hz; the library reports means over about a second."""
    return _ask(
        place,
        lambda library, gpu: {
            "sm": float(library.amdsmi_get_clock_info(gpu, library.AmdSmiClkType.GFX)["clk"]) * 1e6,
            "memory": float(library.amdsmi_get_clock_info(gpu, library.AmdSmiClkType.MEM)["clk"]) * 1e6,
        },
    )


def throttle_reasons(place: str | None) -> tuple[str, ...]:
    """Return why clocks are held down now; only MI300 and newer report it."""
    status = _ask(place, lambda library, gpu: dict(library.amdsmi_get_violation_status(gpu))) or {}
    return tuple(reason for name, reason in _REASONS.items() if status.get(name) is True or status.get(name) == 1)


def energy_j(place: str | None) -> float | None:
    """Return joules since an unspecified moment: steps of the counter times the microjoules of each."""

    def joules(library: Any, gpu: Any) -> float:
        counter = library.amdsmi_get_energy_count(gpu)
        steps = counter.get("energy_accumulator", counter.get("power"))  # its name before ROCm 6.2
        return float(steps) * float(counter["counter_resolution"]) / 1e6

    return _ask(place, joules)


def cache_bytes(place: str | None, topology: Path = _TOPOLOGY) -> int | None:
    """Return the bytes of the GPU's largest cache that the kernel lists, for example MI300's 256 MB behind an L2 of 4
    MB."""
    if place is None:
        return None
    domain, bus, device = (int(part, 16) for part in place.split(":"))
    for node in sorted(topology.glob("*")):
        known = _properties(node / "properties")
        if (known.get("domain", 0), known.get("location_id")) == (domain, bus << 8 | device << 3):
            sizes = (_properties(cache).get("size", 0) for cache in node.glob("caches/*/properties"))
            return max(sizes, default=0) * 1024 or None
    return None


def _properties(path: Path) -> dict[str, int]:
    """Return the lines of a file that consist of a name and a whole number."""
    try:
        pairs = (line.split() for line in path.read_text().splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    except OSError:
        return {}
