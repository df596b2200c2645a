"""One measuring process, as it sees itself: pytest, bound to the life of its supervisor, with its failures in the
journal."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from pluggy import HookimplMarker

from ..errors import GpubenchError
from ..runfile.ledger import Ledger
from ..runfile.quantities import listed
from .process import DIE_WITH, JOURNAL, PACKAGE, SUPERVISOR

if TYPE_CHECKING:
    import pytest  # which a process that measures an expression does without

_LONGEST = 300
"""Most characters of a reason."""
INSTALLED = ("site-packages", "dist-packages")
"""Names of the folders that hold installed packages."""


def die_with_supervisor() -> None:
    """End this process when the supervisor is gone; on systems other than Linux a thread checks. Called first in the
    child."""
    expected = int(os.environ.pop(SUPERVISOR, 0))
    if not expected:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent may have had it ignored
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            exec(DIE_WITH.format(expected), {})
            return

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Failures:
    """Writes into the journal why pytest refuses to begin, or ends before its time."""

    def __init__(self, journal: str) -> None:
        self._ledger = Ledger(journal)
        self._uncollected: dict[str, str] = {}  # reasons by file

    @contextlib.contextmanager
    def noting(self) -> Generator[None, None, None]:
        """Note an error within this context."""
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if type(error).__name__ == "UsageError":  # ours, and pytest's, whose end says where options come from
                said = str(error.args[0] if error.args else error)
                self._note(said.partition(": error: ")[2] or said)
            else:
                self._note(_text(getattr(error, "cause", error)))
            raise

    @HookimplMarker("pytest")(wrapper=True)
    def pytest_cmdline_main(self) -> Generator[None, Any, Any]:
        """Note a refused option, and a plugin or a conftest.py that can't be imported."""
        with self.noting():
            return (yield)

    pytest_cmdline_parse = pytest_cmdline_main

    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]) -> None:
        """Keep why a file can't be collected."""
        if call.excinfo and not hasattr(node, "runtest"):
            self._uncollected[node.nodeid] = _text(call.excinfo.value)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note the cause of pytest's end: an interrupt, a test, or files that can't be collected."""
        files, why = listed(reversed(self._uncollected), 3), [*self._uncollected.values()]
        self._note(f"{files} can't be collected: {why[-1]}" if why else _text(excinfo.value))

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note an error of pytest or of a plugin."""
        self._note(_text(excinfo.value))

    def _note(self, reason: str) -> None:
        first = next(filter(None, map(str.strip, reason.splitlines())), "pytest does not say why")
        with contextlib.suppress(GpubenchError):  # the supervisor knows that the process has ended
            self._ledger.add_event("failure", reason=first.removeprefix("gpubench: ")[:_LONGEST])


def _text(error: BaseException) -> str:
    """Return the kind and the message of the error at the bottom: of a file that is imported, of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if type(error).__name__ == "CollectError":
        error = error.__cause__ or error
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}, line {error.lineno}"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def become_child() -> None:
    """Bind this process to the life of the supervisor, which may ask for the stacks of its threads, and put the working
    folder on the import path as ``python -m pytest`` does. A folder that holds another gpubench comes last, since the
    processes that are started from here inherit this path."""
    die_with_supervisor()
    here, ours = os.getcwd(), str(PACKAGE.parent)
    if not os.environ.get("PYTHONSAFEPATH") and here != ours:
        hides = any(os.path.exists(os.path.join(here, name)) for name in ("gpubench", "gpubench.py"))
        sys.path[:] = [*sys.path, ours, here] if hides else [here, *sys.path]
    # Python writes them even while this process hangs outside of it.
    faulthandler.register(signal.SIGUSR2, file=sys.__stderr__ or 2, all_threads=True)


def loaded_modules() -> dict[str, str]:
    """Return the files of this process's modules, without the standard library and without modules that lie within
    their installed package."""
    files: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] not in {*sys.stdlib_module_names, "__main__"}:
            file = object.__getattribute__(module, "__dict__").get("__file__")  # a lazy module must not be loaded
            parent = Path(files.get(name.rpartition(".")[0], ""))
            if isinstance(file, str) and not (is_installed(file) and parent.parent in Path(file).parents):
                files[name] = os.path.abspath(file)
    return files


def is_installed(file: str | Path) -> bool:
    """Whether a file lies in an environment's folder of installed packages."""
    return any(part in INSTALLED for part in Path(file).parts)


def run_pytest(words: Sequence[str]) -> int:
    """Run pytest with its failures in the journal; return its exit code."""
    import pytest

    # pytest and Python collect garbage six times as they end, among all that torch holds: a second, or many seconds on
    # a busy machine.
    ending = SimpleNamespace(pytest_unconfigure=lambda: gc.freeze())
    return int(pytest.main([*words], plugins=[Failures(os.environ.pop(JOURNAL)), ending]))


if __name__ == "__main__":
    become_child()
    raise SystemExit(run_pytest(sys.argv[1:]))
