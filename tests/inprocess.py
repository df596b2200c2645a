"""The command in this process, which has loaded what it draws with; its measuring processes are forked."""

import contextlib
import io
import subprocess

import forked

from gpubench.commands.cli import main


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
