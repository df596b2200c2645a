"""Load matplotlib with its defaults, before any other module of this folder: the user's settings may break the import,
as a notebook names its own backend to every program that a cell starts, and a ``matplotlibrc`` may be in any encoding.
The user's own pictures in this process then have the settings that can be used."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

if "matplotlib" not in sys.modules:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        Path(folder, "matplotlibrc").touch()  # an empty file stands for the defaults
        stack.enter_context(mock.patch.dict(os.environ, {"MPLBACKEND": "", "MATPLOTLIBRC": folder}))
        if os.path.lexists("matplotlibrc"):  # matplotlib looks there first
            stack.enter_context(contextlib.chdir(folder))
        import matplotlib
    with contextlib.suppress(Exception):
        matplotlib.rc_file(matplotlib.matplotlib_fname(), use_default_template=False)
    with contextlib.suppress(ValueError):
        matplotlib.rcParams.update({"backend": name} if (name := os.environ.get("MPLBACKEND")) else {})
