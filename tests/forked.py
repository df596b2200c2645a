"""Python processes forked from one with their imports, in place of the processes that :mod:`subprocess` starts.

Importing torch and pytest takes a core for three seconds, and tests start hundreds of processes that do. A forked one
has a process group, streams, environment, working folder and end of its own all the same. How a Python is started is
tested where the whole command is a process: in tests/supervise/test_conditions.py, for example.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import io
import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

IMPORTED = [
    "torch", "pytest", "pytest_benchmark.plugin", "scipy.special", "gpubench.plugin.hooks", "gpubench.measure.fixture",
    "gpubench.measure.ranks", "torch.distributed.pipelining", "known_cpu",
]  # fmt: skip
FORKS = sys.platform == "linux"
"""Elsewhere processes are started: Windows has no fork, and the system libraries of macOS don't survive one."""
MEASURING, EXPRESSIONS = "gpubench.supervise.child", "gpubench.plugin.expressions"
LAUNCHER, OUR_LAUNCHER = "torch.distributed.run", "gpubench.plugin.launcher"
MODULES = {
    ("-P", "-m", MEASURING): MEASURING, ("-P", "-m", OUR_LAUNCHER): OUR_LAUNCHER, ("-m", LAUNCHER): LAUNCHER,
    ("-m", "pytest"): "pytest", ("-mpytest",): "pytest", ("-P", "-m", EXPRESSIONS): EXPRESSIONS,
}  # fmt: skip
"""Modules that may be forked, by the first words after the name of this Python."""
_started = subprocess.Popen


class Forked:
    """``python -m MODULE WORDS`` with the methods of a ``Popen``; its output is appended to files."""

    def __init__(
        self, module: str, words: Sequence[str], streams: tuple[str, str], folder: str, environment: Mapping[str, str]
    ) -> None:
        self.stdin = io.BytesIO()
        server = multiprocessing.get_context("forkserver")
        arguments = (module, list(words), streams, folder, dict(environment))
        self._process = server.Process(target=_run, args=arguments)
        serve()
        self._process.start()
        self.pid = self._process.pid
        while self.poll() is None and os.getpgid(self.pid) != self.pid:  # until then nobody could kill its group
            self._process.join(0.001)

    @property
    def returncode(self) -> int | None:
        """As of a ``Popen``: negative for a signal."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired("forked", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve() -> None:
    """Start the process that is forked, unless there is one."""
    if not FORKS:
        return
    forkserver.set_forkserver_preload(IMPORTED)
    with contextlib.chdir(Path(__file__).parent):  # not in the folder of a test, which then has a process left
        forkserver.ensure_running()


def pytest(*words: object, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """``python -m pytest`` in a folder, with these changes of the environment; errors are among its output."""
    imported = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # before pytest could rewrite it
    return _printed("pytest", [*map(str, words), *imported], cwd, changes)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """``python -c CODE``; errors are among its output."""
    return _printed("-c", [code], Path.cwd(), {})


def _printed(
    module: str, words: Sequence[str], folder: Path, changes: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    if not FORKS:
        command = [sys.executable, *(["-c"] if module == "-c" else ["-m", module]), *words]
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(command, cwd=folder, env=os.environ | changes, check=False, **streams)
    with tempfile.NamedTemporaryFile(prefix="forked-", suffix=".txt") as printed:
        process = Forked(module, words, (printed.name,) * 2, str(folder), os.environ | changes)
        code = process.wait(500.0)
        text = Path(printed.name).read_text(encoding="utf-8", errors="replace")
    return subprocess.CompletedProcess(words, code, text, "")


@contextlib.contextmanager
def instead() -> Iterator[None]:
    """Within: a start of one of MODULES gets a fork."""

    def popen(arguments: Any, **how: Any) -> Any:
        words = [arguments] if isinstance(arguments, str) else [os.fspath(word) for word in arguments]
        for first, module in MODULES.items():
            if words[0] == sys.executable and tuple(words[1 : 1 + len(first)]) == first:
                output, errors = how["stdout"], how["stderr"]
                streams = output.name, (output if errors is subprocess.STDOUT else errors).name
                folder = os.fspath(how.get("cwd") or os.getcwd())
                return Forked(module, words[1 + len(first) :], streams, folder, how["env"])
        return _started(arguments, **how)

    if FORKS:
        subprocess.Popen = popen  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        subprocess.Popen = _started  # type: ignore[misc]


def _run(module: str, words: list[str], streams: tuple[str, str], folder: str, environment: dict[str, str]) -> None:
    """In the fork: the start of a Python, then the module."""
    gc.freeze()  # a collection of what is shared would copy all of it
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: the forked process ends with the tests
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "GPUBENCH_SUPERVISOR" in environment:
        os.environ["GPUBENCH_SUPERVISOR"] = str(os.getppid())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in enumerate(streams, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    if "PYTHONFAULTHANDLER" in environment:
        faulthandler.enable()
    installed = [entry for entry in sys.path if entry.startswith((sys.prefix, sys.base_prefix))]
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *installed]
    if module not in (MEASURING, EXPRESSIONS, OUR_LAUNCHER):  # which are started with -P
        sys.path.insert(0, folder)
    sys.argv = [module, *words]
    tempfile.tempdir = None
    random.seed()
    try:
        if module == "-c":
            exec(words[0], {"__name__": "__main__"})
        else:
            sys.modules.pop(module, None)  # else runpy warns
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
