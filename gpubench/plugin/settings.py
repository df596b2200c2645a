"""The plugin's options and ini keys. Every pytest session loads this module, so it imports only pytest and the
declarations of options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ..runfile.options import OF_PYTEST, OPTIONS, Option

if TYPE_CHECKING:
    from ..measure.session import Mode, Settings

WHOLE = (0, 1)
"""The share of a process that measures all: process 0 of 1."""
_OF_SUPERVISOR = (
    ("plan", "PATH", "don't measure: write each benchmark as JSON, and the estimated time of all"),
    ("ledger", "PATH", "journal of gpubench run: measure what is missing in it"),
    ("match", "EXPR", "measure only benchmarks whose name matches: as -k, and also matmul.square and n=64"),
)


def declare_options(parser: pytest.Parser) -> None:
    """Declare all options and their ini keys."""
    group = parser.getgroup("gpubench", "benchmarks on every device")
    for option in (*OPTIONS, *OF_PYTEST):
        kind = "bool" if option.switch else "args" if option.repeatable else "string"
        empty: Any = {"bool": False, "args": [], "string": ""}[kind]
        valued = {"metavar": option.metavar, "action": "append" if option.repeatable else "store"}
        how: dict[str, Any] = {"action": "store_true"} if option.switch else valued
        group.addoption(option.flag, help=option.help.replace("%", "%%"), default=None, **how)
        parser.addini(option.ini, option.help, type=kind, default=empty)  # type: ignore[arg-type]
    for name, metavar, text in _OF_SUPERVISOR:
        group.addoption(f"--gpubench-{name}", metavar=metavar, help=text)
    text = "be process I of N: measure a share of the rounds"
    group.addoption("--gpubench-process", metavar="I/N", type=_share, default=WHOLE, help=text)


def _share(text: str) -> tuple[int, int]:
    process, processes = map(int, text.split("/"))
    if not 0 <= process < processes:
        raise ValueError(text)  # argparse then refuses the option
    return process, processes


def launched() -> bool:
    """Return whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_equipped(config: pytest.Config) -> bool:
    """Return whether pytest-benchmark is loaded: ``-p no:benchmark`` removes it, pytest-codspeed blocks it."""
    plugins = config.pluginmanager
    loaded = plugins.hasplugin("benchmark") or plugins.hasplugin("pytest_benchmark.plugin")  # the latter by -p
    return loaded and not plugins.is_blocked("pytest-benchmark")


def read_settings(config: pytest.Config) -> Settings:
    """Return all options, checked. Raises :class:`UsageError` for an unknown value, with a list of the known ones."""
    from ..measure.session import Settings

    values = {option.field: _value(config, option) for option in (*OPTIONS, *OF_PYTEST)}
    for name in ("max_time", "min_time"):
        seconds = benchmark_option(config, f"--benchmark-{name.replace('_', '-')}")
        values[name] = None if seconds is None else float(seconds)
    values["min_rounds"] = benchmark_option(config, "--benchmark-min-rounds")
    values["process"], values["processes"] = config.getoption("--gpubench-process")
    return Settings(**values)


def _value(config: pytest.Config, option: Option) -> Any:
    value = config.getoption(option.flag)
    if value is None:
        value = config.getini(option.ini)
    if option.switch:
        return bool(value) != option.default
    if option.repeatable:
        return tuple(map(option.parse, value)) or option.default
    return option.parse(str(value)) if value else option.default


def mode_of(config: pytest.Config) -> Mode:
    """Return the session's mode."""
    from ..measure.session import Mode

    if config.getoption("--gpubench-plan"):
        return Mode.PLAN
    if not is_equipped(config):
        return Mode.OFF
    return Mode.RUN if config.getoption("--gpubench-ledger") else Mode.IN_PYTEST


def benchmark_option(config: pytest.Config, flag: str) -> Any:
    """Return the value of one of pytest-benchmark's options, or ``None`` if it wasn't given."""
    words = (*config.invocation_params.args, *config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split())
    return config.getoption(flag, None) if any(str(word).split("=")[0] == flag for word in words) else None
