"""Load matplotlib so that no setting of the user can fail. The module is imported before any other that draws."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock


def load_matplotlib() -> None:
    """Import matplotlib with its defaults, since the user's settings may break the import: a notebook names its own
    backend to every program that a cell starts, and a ``matplotlibrc`` may be in any encoding. Then give the user's own
    pictures in this process the settings that can be used."""
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


if "matplotlib" not in sys.modules:
    load_matplotlib()
