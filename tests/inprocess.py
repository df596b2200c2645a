"""The command in this process, which has loaded what it draws with; it measures in processes of its own."""

import contextlib
import io
import subprocess

from gpubench.commands.cli import main


def gpubench(*arguments, cwd):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
