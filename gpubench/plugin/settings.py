"""The plugin's pytest options and ini keys: those of :mod:`gpubench.runfile.options`, and a few for the supervisor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import UsageError
from ..runfile.options import OF_PYTEST, OPTIONS, Option

STATE = "gpubench.session"
"""The name of the plugin's state, a :class:`~gpubench.plugin.hooks.Plugin`, among pytest's plugins."""
PARAMETERS = {"device": "cpu", "dtype": "float32", "implementation": "torch", "variant": "eager", "cache": "hot"}
"""Parameters of a case, each set by the fixture ``gpubench_NAME``, with the value in a test without that fixture."""
_WHOLE = (0, 1)
"""The share of a process that measures all: process 0 of 1."""

if TYPE_CHECKING:
    from ..measure.run_settings import Mode, Settings


def declare_options(parser: pytest.Parser) -> None:
    """Declare all options and their ini keys."""
    group = parser.getgroup("gpubench", "benchmarks on every device")
    for option in (*OPTIONS, *OF_PYTEST):
        kind = "bool" if option.switch else "args" if option.repeatable else "string"
        empty: Any = False if option.switch else [] if option.repeatable else ""
        valued = {"metavar": option.metavar, "action": "append" if option.repeatable else "store"}
        how: dict[str, Any] = {"action": "store_true"} if option.switch else valued
        group.addoption(option.flag, help=option.help.replace("%", "%%"), default=None, **how)
        parser.addini(option.ini, option.help, type=kind, default=empty)  # type: ignore[arg-type]
    for name, metavar, text in (
        ("plan", "PATH", "don't measure: write each benchmark as JSON, and the estimated time of all"),
        ("ledger", "PATH", "journal of gpubench run: measure what is missing in it"),
        ("match", "EXPR", "measure only benchmarks whose name matches: as -k, and also matmul.square and n=64"),
    ):
        group.addoption(f"--gpubench-{name}", metavar=metavar, help=text)
    share = "be process I of N: measure a share of the rounds"
    group.addoption("--gpubench-process", metavar="I/N", type=_share, default=_WHOLE, help=share)


def read_settings(config: pytest.Config) -> Settings:
    """Return all options, checked. Raises :class:`UsageError` for an unknown value, with a list of the known ones."""
    from ..measure.run_settings import Settings

    values = {option.field: _value(config, option) for option in (*OPTIONS, *OF_PYTEST)}
    for name in ("max_time", "min_time"):
        seconds = benchmark_option(config, f"--benchmark-{name.replace('_', '-')}")
        values[name] = None if seconds is None else float(seconds)
    values["min_rounds"] = benchmark_option(config, "--benchmark-min-rounds")
    values["process"], values["processes"] = config.getoption("--gpubench-process")
    return Settings(**values)


def mode_of(config: pytest.Config) -> Mode:
    """Return what this session does with benchmarks."""
    from ..measure.run_settings import Mode

    if config.getoption("--gpubench-plan"):
        return Mode.PLAN
    if not equipped(config):
        return Mode.OFF
    return Mode.RUN if config.getoption("--gpubench-ledger") else Mode.ALONE


def is_asked_for(config: pytest.Config) -> bool:
    """Return whether an option of gpubench is given, or torchrun started this process: a test need not ask then."""
    given = (value for name, value in vars(config.option).items() if name.startswith("gpubench_"))
    keys = (config.getini(option.ini) for option in (*OPTIONS, *OF_PYTEST))
    return launched() or any(value not in (None, False, _WHOLE) for value in given) or any(keys)


def equipped(config: pytest.Config) -> bool:
    """Whether pytest-benchmark is loaded: ``-p no:benchmark`` removes it, pytest-codspeed blocks it."""
    plugins = config.pluginmanager
    loaded = plugins.hasplugin("benchmark") or plugins.hasplugin("pytest_benchmark.plugin")  # the latter by -p
    return loaded and not plugins.is_blocked("pytest-benchmark")


def benchmark_option(config: pytest.Config, flag: str) -> Any:
    """Return the value of one of pytest-benchmark's options, or ``None`` if it wasn't given."""
    words = (*config.invocation_params.args, *config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split())
    named = any(str(word).split("=")[0] == flag for word in words)
    return config.getoption(flag, None) if named else None


def launched() -> bool:
    """Whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def write_no_files(config: pytest.Config) -> None:
    """Reset the options by which pytest and pytest-benchmark write or compare files: the session that started these
    ranks does that."""
    for name in ("json", "save", "autosave", "save_data", "compare", "compare_fail", "histogram"):
        if hasattr(config.option, f"benchmark_{name}"):
            setattr(config.option, f"benchmark_{name}", None)
    config.option.basetemp = config.option.xmlpath = None


@contextmanager
def usage_errors() -> Iterator[None]:
    """A context that turns a :class:`UsageError` into pytest's, which ends the session with one line."""
    try:
        yield
    except UsageError as error:
        raise pytest.UsageError(f"gpubench: {error}") from None


def _value(config: pytest.Config, option: Option) -> Any:
    value = config.getoption(option.flag)
    if value is None:
        value = config.getini(option.ini)
    if option.switch:
        return bool(value) != option.default
    if option.repeatable:
        return tuple(option.parse(text) for text in value) or option.default
    return option.parse(str(value)) if value else option.default


def _share(text: str) -> tuple[int, int]:
    process, processes = map(int, text.split("/"))
    if not 0 <= process < processes:
        raise ValueError(text)  # argparse then refuses the option
    return process, processes
