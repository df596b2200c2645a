"""The command in this process, which has loaded matplotlib; its measuring processes are forked."""

import contextlib
import functools
import io
import json
import subprocess
from pathlib import Path

import forked

from gpubench.commands.cli import main
from gpubench.runfile.runs import read


def gpubench(*arguments, cwd, start=False):
    """``start``: start the measuring processes instead."""
    out, err = io.StringIO(), io.StringIO()
    processes = contextlib.nullcontext() if start else forked.instead()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), processes:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def _short(workload: str) -> str:
    """``a`` of ``test_mine.py::test_a``, and ``square`` of ``matmul.square``."""
    _, tests, name = workload.rpartition("::")
    return name.removeprefix("test_") if tests else workload.partition(".")[2]


class Ran:
    """The output of pytest or ``gpubench run``, and its files: ``data`` of the results file, None if there is none,
    and ``run`` as it is read."""

    def __init__(self, code: int, out: str, err: str, path: Path) -> None:
        self.ret, self.said, self.out, self.err, self.path = code, out + err, out, err, path
        self.lines = out.splitlines()
        self.data = json.loads(path.read_text()) if path.is_file() and path.stat().st_size else None

    run = functools.cached_property(lambda self: read(self.path))
    marks = property(lambda self: self.data["benchmarks"])
    names = property(lambda self: [mark["name"].split("[")[0] for mark in self.marks])
    records = property(lambda self: [mark["extra_info"]["gpubench"] for mark in self.marks])
    rows = property(lambda self: self.data["gpubench"]["unmeasured"])
    statuses = property(lambda self: {_short(each.workload): each.status for each in self.run.results})
    collected = property(lambda self: [line.partition("::")[2] for line in self.lines if "::" in line])


def measure(folder, source, *options, code=0, start=False, also=()):
    """``gpubench run`` of the folder's test_mine.py, with this source, and of files beside it; smoke, without charts;
    the code is checked."""
    if source:
        (folder / "test_mine.py").write_text(source, encoding="utf-8")
    words = ("--preset=smoke", "--charts=none", *options)
    return _ended(gpubench("run", "test_mine.py", *also, *words, cwd=folder, start=start), code, folder)


def resume(folder, *options, code=0, name="out"):
    """``gpubench run --resume`` of a folder there."""
    return _ended(gpubench("run", "--resume", name, "--charts=none", *options, cwd=folder), code, folder)


def _ended(done, code, folder):
    assert done.returncode == code, done.stderr
    return Ran(code, done.stdout, done.stderr, folder / "out/run.json")
