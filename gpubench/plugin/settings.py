"""pytest's options of ours, each also an ini key, and what they ask for."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ..errors import UsageError
from ..measure.session import Settings
from ..runfile.schema import DTYPES, PRESETS, VARIANTS

_OPTIONS: tuple[tuple[str, str, Any, str], ...] = (
    # name, ini type, default, help
    (
        "device",
        "args",
        ["auto"],
        "repeatable: auto (default: the CPU and the first of each kind), all, cpu, cuda, cuda:1",
    ),
    ("require-device", "args", [], "fail at once unless this device is there, repeatable"),
    ("dtype", "args", [], f"dtype, repeatable, instead of each workload's own: {', '.join(DTYPES)}"),
    ("variant", "args", [], f"how networks are run, repeatable: {', '.join(VARIANTS)}"),
    ("preset", "string", "quick", f"how much care to take: {', '.join(PRESETS)}"),
    ("threads", "string", "", "CPU threads, for torch and NumPy alike; default: the cores that this process may use"),
    ("seed", "string", "0", "seed of all inputs"),
    ("cache", "string", "hot", "hot, cold (the device's last cache is flushed before every round) or both"),
    ("ranks-deadline", "string", "60", "seconds without progress after which several processes count as hanging"),
    ("machine", "string", "", "label of this machine in reports; default: its CPU and accelerators"),
)


def add(parser: pytest.Parser) -> None:
    """Declare them all."""
    group = parser.getgroup("gpubench", "benchmarks on every device")
    for name, kind, default, text in _OPTIONS:
        action = "append" if kind == "args" else "store"
        group.addoption(f"--gpubench-{name}", action=action, default=None, metavar=name.upper(), help=text)
        parser.addini(f"gpubench_{name.replace('-', '_')}", text, type=kind, default=default)  # type: ignore[arg-type]
    group.addoption("--gpubench-identify", action="store_true", help="keep host name and paths in the run file")
    group.addoption(
        "--gpubench-no-ceilings", action="store_true", help="don't measure what each device can do at best (seconds)"
    )
    group.addoption("--gpubench-plan", metavar="PATH", help="don't measure: write each case and its cost as JSON")
    group.addoption(
        "--gpubench-ledger", metavar="PATH", help="ledger of what was measured; default: beside the run file"
    )
    group.addoption("--gpubench-process", metavar="I/N", help="be process I of N: measure a share of the rounds")
    group.addoption("--gpubench-only", metavar="PATH", help="measure only the cases named in this JSON file")


def _option(config: pytest.Config, name: str) -> Any:
    given = config.getoption(f"--gpubench-{name}")
    return given if given is not None else config.getini(f"gpubench_{name.replace('-', '_')}")


def _number(config: pytest.Config, name: str) -> int | None:
    text = str(_option(config, name))
    try:
        return int(text) if text else None
    except ValueError:
        raise UsageError(f"{name} must be a whole number, not {text!r}") from None


def _seconds(config: pytest.Config, name: str) -> float:
    text = str(_option(config, name))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise UsageError(f"{name} must be seconds above 0, not {text!r}")
    return seconds


def launched() -> bool:
    """Whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def secondary() -> bool:
    """Whether another of torchrun's processes writes the run file."""
    return launched() and os.environ.get("RANK", "0") != "0"


def asked(config: pytest.Config) -> Settings:
    """The options, checked for spelling. Raises UsageError on a value that doesn't exist, naming those that do."""
    max_time = given(config, "--benchmark-max-time")
    min_rounds = given(config, "--benchmark-min-rounds")
    process, processes = _share(config)
    return Settings(
        devices=tuple(_option(config, "device")),
        required=tuple(_option(config, "require-device")),
        dtypes=tuple(_option(config, "dtype")),
        variants=tuple(_option(config, "variant")),
        preset=_option(config, "preset"),
        seed=_number(config, "seed") or 0,
        threads=_number(config, "threads"),
        ranks_deadline=_seconds(config, "ranks-deadline"),
        machine=_option(config, "machine") or None,
        cache=_option(config, "cache"),
        ceilings=not config.getoption("--gpubench-no-ceilings"),
        max_time=None if max_time is None else float(max_time),
        min_rounds=min_rounds,
        plan=config.getoption("--gpubench-plan") is not None,
        process=process,
        processes=processes,
    )


def identify(config: pytest.Config) -> bool:
    """Whether host name and paths may stay in what is written."""
    return bool(config.getoption("--gpubench-identify"))


def _share(config: pytest.Config) -> tuple[int, int]:
    """Which process of how many this is."""
    text = config.getoption("--gpubench-process") or "0/1"
    try:
        process, processes = map(int, text.split("/"))
    except ValueError:
        process, processes = -1, 0
    if not 0 <= process < processes:
        raise UsageError(f"process must be one of several, like 0/3, not {text!r}")
    return process, processes


def given(config: pytest.Config, flag: str) -> Any:
    """The value of one of pytest-benchmark's options if it was given, not defaulted."""
    words = (*config.invocation_params.args, *config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split())
    named = any(str(word).split("=")[0] == flag for word in words)
    return config.getoption(flag, None) if named else None
