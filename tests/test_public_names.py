"""``import gpubench``: a handful of names, and nothing heavy until they are used."""

import subprocess
import sys

import pytest

import gpubench


def _loaded_after(code):
    report = "import sys; print(*sorted({'torch', 'pandas', 'matplotlib', 'numpy', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {report}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_package_loads_nothing_heavy():
    assert _loaded_after("import gpubench; gpubench.__version__") == []


def test_whoever_reads_all_that_every_module_lists_loads_nothing_heavy():
    # freezegun does, in the middle of a test; pandas, imported while the time stands still, ended the interpreter
    assert _loaded_after("import gpubench; [getattr(gpubench, name) for name in dir(gpubench)]") == []


def test_reading_a_run_file_loads_neither_torch_nor_pandas():
    assert not {"torch", "pandas", "matplotlib"} & set(_loaded_after("from gpubench import read, Run"))


def test_every_public_name_leads_to_its_home():
    for name in set(gpubench.__all__) - {"__version__"}:
        assert getattr(gpubench, name).__name__ == name
    assert sorted(gpubench._HOMES) == sorted(set(gpubench.__all__) - {"__version__"})


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'tiemr'"):
        gpubench.tiemr  # noqa: B018
