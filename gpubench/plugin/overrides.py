"""Overrides of a project's pytest options (``addopts``, ``PYTEST_ADDOPTS``) with which nothing, something else or not
all would be measured. A process that measures for ``gpubench run`` undoes them once pytest has parsed them."""

from __future__ import annotations

from typing import Any

import pytest

IGNORED = pytest.StashKey[list[str]]()
"""The options that were overridden, in the form in which they are written."""
_AS_ASKED = pytest.StashKey[dict[str, Any]]()
_UNFIT = {
    "benchmark_skip": "--benchmark-skip", "benchmark_disable": "--benchmark-disable",
    "benchmark_autosave": "--benchmark-autosave", "benchmark_save_data": "--benchmark-save-data",
    "benchmark_json": "--benchmark-json", "benchmark_save": "--benchmark-save",
    "benchmark_compare": "--benchmark-compare", "benchmark_compare_fail": "--benchmark-compare-fail",
    "benchmark_histogram": "--benchmark-histogram", "benchmark_cprofile": "--benchmark-cprofile",
    "benchmark_cprofile_dump": "--benchmark-cprofile-dump", "numprocesses": "-n", "dist": "--dist", "tx": "--tx",
    "distload": "-d", "looponfail": "-f", "forked": "--forked", "cov_source": "--cov", "memray": "--memray",
    "profile": "--profile", "profile_svg": "--profile-svg", "codspeed": "--codspeed", "maxfail": "-x or --maxfail",
    "usepdb": "--pdb", "trace": "--trace", "collectonly": "--collect-only", "setuponly": "--setup-only",
    "setupplan": "--setup-plan", "lf": "--lf", "failedfirst": "--ff", "newfirst": "--nf", "stepwise": "--sw",
    "cacheclear": "--cache-clear",
}  # fmt: skip
"""The flag of each option, by the name under which pytest keeps its value."""
_WRITE_INTO_THE_PROJECT = ("cacheprovider", "stepwise")


def take_back(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Reset, before any plugin acts on its options, those that only the project sets."""
    plugins = config.pluginmanager
    for name in filter(plugins.hasplugin, _WRITE_INTO_THE_PROJECT):
        plugins.unregister(name=name)
    ignored = []
    if not plugins.hasplugin("benchmark") and not plugins.hasplugin("pytest_benchmark.plugin"):
        plugins.unblock("benchmark")
        plugins.import_plugin("benchmark", consider_entry_points=True)
        ignored.append("-p no:benchmark")
    found, asked = (vars(parser.parse_known_args(list(words))) for words in (args, config.invocation_params.args))
    unfit = {name: asked[name] for name in _UNFIT if found.get(name) != asked.get(name)}
    vars(config.known_args_namespace).update(unfit)
    config.stash[_AS_ASKED] = unfit
    config.stash[IGNORED] = ignored + [_UNFIT[name] for name in unfit]


def leave_out_unknown(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Remove from ``args``, the words that pytest will parse, the options of plugins that aren't installed and the
    project's own files, in place of which others are named. All plugins and conftest files must be loaded."""
    (known, unknown), (asked, refused) = map(
        parser.parse_known_and_unknown_args, (list(args), list(config.invocation_params.args))
    )
    needless = {*unknown, *known.file_or_dir} - {*refused, *asked.file_or_dir}
    args[:] = [word for word in args if word not in needless]
    config.stash[IGNORED] += [word for word in unknown if word in needless]


def parse_finished(config: pytest.Config) -> None:
    """Reset the options again, after pytest has parsed its arguments for the last time."""
    as_asked = config.stash.get(_AS_ASKED, None)
    vars(config.option).update(as_asked or {})
