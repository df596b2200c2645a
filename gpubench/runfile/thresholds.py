"""The size from which a GPU is faster, read from a file that ``gpubench time --threshold`` wrote.

This module needs the standard library alone, so that a library can copy it instead of depending on gpubench.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20  # a larger file isn't read


def threshold(name: str, default: float, file: str | os.PathLike[str] = "thresholds.json") -> float:
    """Return the size from which a GPU is faster on this machine, as measured, else the ``default``.

    ``file`` is relative to the folder of the calling module. The default holds where the CPU or the GPU is another one,
    where the GPU is faster at every measured size or at none, or it isn't sure from which, and where the file is
    absent, torn, or isn't one of thresholds; the log ``gpubench.thresholds`` has the reason. Nothing is raised.
    """
    path = Path(sys._getframe(1).f_globals.get("__file__") or "").parent / file
    try:
        with path.open("rb") as opened:
            text = opened.read(MOST_BYTES + 1)
        entries = json.loads(text)["thresholds"][name] if len(text) <= MOST_BYTES else []
        cpu, gpus = hardware()
        sizes = (entry["size"] for entry in entries if entry["cpu"] == cpu and entry["gpu"] in gpus)
        size: Any = next(sizes, ...)
        if type(size) in (int, float) and 0 < size < float("inf"):
            return size  # type: ignore[no-any-return]
        reason = "nothing was measured on this CPU and GPU" if size is ... else f"measured: {size}"
    except Exception as error:  # whatever a foreign file holds
        reason = f"{path} can't be read: {type(error).__name__}"
    logging.getLogger("gpubench.thresholds").info("%s: %s: the default holds", name, reason)
    return default


@functools.cache
def hardware() -> tuple[str, tuple[str, ...]]:
    """Return the CPU's model and the names of the NVIDIA GPUs, as Linux and the driver tell them; empty elsewhere."""
    cpu = _field(Path("/proc/cpuinfo"), "model name")
    folders = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return cpu, tuple(filter(None, (_field(path, "Model") for path in folders)))


def _field(path: Path, name: str) -> str:
    with suppress(OSError), path.open("rb") as opened:
        head = opened.read(4096).decode(errors="replace")
        if match := re.search(rf"^{name}\s*:\s*(.+?)\s*$", head, re.MULTILINE):
            return match[1]
    return ""


def require_hardware() -> tuple[str, ...]:
    """Return the names of the CPU and of its GPUs. Raises ValueError where Linux doesn't name them."""
    cpu, gpus = hardware()
    if not cpu or not gpus:
        raise ValueError("thresholds are for CPUs and NVIDIA GPUs that Linux names; elsewhere the default holds")
    return cpu, *gpus


def keep_threshold(file: str | os.PathLike[str], name: str, size: float | str, **facts: Any) -> str:
    """Write the size, or ``never``, ``always`` or ``unsure``, for this machine's CPU and first GPU into the file, in
    place of an earlier one; return both names. Raises OSError, and ValueError where the hardware can't be recognised
    without torch or the file holds something else."""
    cpu, *gpus = require_hardware()
    path = Path(file)
    content: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"thresholds": {}}
    if not isinstance(content, dict) or not isinstance(content.get("thresholds"), dict):
        raise ValueError(f"{path} isn't a file of thresholds")
    others = [entry for entry in content["thresholds"].get(name, []) if (entry["cpu"], entry["gpu"]) != (cpu, gpus[0])]
    content["thresholds"][name] = [*others, {"cpu": cpu, "gpu": gpus[0], "size": size, **facts}]
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return f"{cpu} + {gpus[0]}"
