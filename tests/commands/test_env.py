"""``gpubench env``: its text for people and for machines, and its end without torch."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpubench import devices
from gpubench.commands import env
from gpubench.devices.virtual import VirtualDevice
from gpubench.measure import environment
from gpubench.runfile.schema import Ceilings

ENV = """
import sys
{before}
from gpubench.commands.cli import main, parser
parser("env")
assert "torch" not in sys.modules or sys.modules["torch"] is None, "the command line must not import torch"
sys.exit(main(["env", *sys.argv[1:]]))
"""


def run(*arguments: str, before: str = "", **variables: str | None) -> subprocess.CompletedProcess[bytes]:
    """Run ``gpubench env`` on a pipe; a variable that is ``None`` is unset."""
    keep = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    everything = {name: value for name, value in {**keep, **variables}.items() if value is not None}
    command = [sys.executable, "-c", ENV.format(before=before), *arguments]
    return subprocess.run(command, capture_output=True, env=everything, cwd=Path(__file__).parents[2], check=False)


def test_people_read_it_at_80_columns_on_an_ascii_terminal_too():
    ran = run(CUDA_VISIBLE_DEVICES="é", PYTHONIOENCODING="ascii", PYTHONUTF8="0", COMPILER_SECRET="1")
    text = ran.stdout.decode("ascii")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == b""
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for part in (f"Devices  cpu       {devices.CPU.label[:20]}", f"version   {torch.__version__}", "TF32 matmul off"):
        assert part in text
    assert "CUDA_VISIBLE_DEVICES='(set)'" in text
    assert not {"PATH=", "HOME=", "COMPILER_SECRET"} & set(re.findall(r"\w+=|COMPILER_SECRET", text))
    assert " - no cgroup limit" in text or " - cgroup limit" in text


def test_a_narrow_terminal_without_a_home_and_colours():
    ran = run(COLUMNS="40", HOME=None, NO_COLOR="1", FORCE_COLOR="1")
    assert ran.returncode == 0, ran.stderr
    assert b"\x1b[3" not in ran.stdout
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", ran.stdout.decode()).splitlines())) <= 40


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("sys.modules['torch'] = None", "torch is not installed: pip install torch"),
        ("sys.path.insert(0, {folder!r})", "torch can't be imported: libcudart.so.13: cannot open shared object file"),
    ],
)
def test_without_torch_the_cpu_is_shown_all_the_same(tmp_path, before, told):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open\\nshared object file')")
    ran = run(before=before.format(folder=str(tmp_path)))
    (line,) = ran.stderr.decode().splitlines()
    assert (ran.returncode, line.startswith(f"gpubench env: {told}")) == (1, True), line
    assert ("https://pytorch.org/get-started/locally/" in line) == ("install" in told)
    assert devices.CPU.label in ran.stdout.decode()


WAYS = {"float32": {"torch": 4.5e10, "numpy": 1e11}, "float64": {"torch": 5e10, "numpy": 5e10}}
PRODUCTS = Ceilings(ways=WAYS, throughput={"float32": 1e11, "float64": 5e10})


@pytest.fixture
def shown(monkeypatch, capsys):
    """The screen of a machine of four cores."""

    def show(load=0.0, verbose=False):
        real = environment.machine()
        four = {**real, "cpu": {**real["cpu"], "cores": 4}}
        monkeypatch.setattr(environment, "machine", lambda: four)
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        monkeypatch.setattr("gpubench.measure.probes.measure_products", lambda _: PRODUCTS)
        monkeypatch.setenv("COLUMNS", "80")
        assert env.main(argparse.Namespace(verbose=verbose)) == 0
        return " ".join(capsys.readouterr().out.split())

    return show


def test_what_most_people_do_not_need_is_folded_away(shown):
    assert "around it" not in shown()
    assert "around it" in shown(verbose=True)


@pytest.mark.parametrize(("load", "warned"), [(2.0, False), (2.1, True)])
def test_a_busy_machine_gets_a_warning(shown, load, warned):
    text = shown(load)
    assert ("Warning: the load is 2.1 with 4 core(s) to use" in text) is warned
    assert ("timings will suffer" in text) is warned


def test_a_slow_library_is_named_where_the_machine_is_idle(shown, monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    text = shown()
    assert "float32 PyTorch 45.0 GFLOP/s · NumPy 100 GFLOP/s" in text
    assert "Warning: PyTorch's float32 products run at 45% of what NumPy reaches" in text
    assert "MKL_CBWR=AVX2 is set" in text
    assert "products run at" not in shown(load=9.0)


def test_devices_and_reasons(shown, monkeypatch):
    class Gpu(VirtualDevice):
        kind, label, present = "gpu", "NVIDIA H200 [SXM]", True
        count = classmethod(lambda kind: int(kind.present))
        total_memory = lambda self: 150_754_820_096  # noqa: E731
        details = lambda self: {"capability": "9.0", "multiprocessors": 132, "driver": "570.86"}  # noqa: E731

    monkeypatch.setattr(devices, "kinds", lambda: {"cpu": type(devices.CPU), "gpu": Gpu})
    assert "gpu:0 NVIDIA H200 [SXM] · 140.4 GiB · compute 9.0 · 132 SMs · driver 570.86" in shown()
    Gpu.present = False
    assert "no gpu no gpu device found" in shown()
