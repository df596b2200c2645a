"""validate_gpu.py without a GPU: ``tox run -e rehearse``."""

import re
import subprocess
from types import SimpleNamespace as Made

import pytest
import validate_gpu

from gpubench.commands import cli
from gpubench.devices import find_device
from gpubench.devices.virtual import VirtualDevice, VirtualMachine
from gpubench.measure.clock import DeviceClock


@pytest.mark.skipif(find_device("cuda").device is not None, reason="there is a GPU")
def test_without_a_gpu_the_timers_refuse():
    with pytest.raises(SystemExit, match="no cuda"):
        list(validate_gpu.timers("cuda"))


@pytest.mark.parametrize("command", validate_gpu.COMMANDS.values())
def test_a_command_is_short_valid_shell_with_options_that_exist(command, capsys):
    assert len(command) < 2000
    assert subprocess.run(["bash", "-n"], input=command, text=True).returncode == 0
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    runs = [part for part in re.split("[;|\n]", command) if "$G" in part or "$R" in part]
    assert {option for part in runs for option in re.findall(r" (--[a-z-]+)", part)} <= known
    for path in re.findall(r"(?:benchmarks|tests|docs)/[\w/]+\.py", command):
        assert (validate_gpu.ROOT / path).exists()


def test_a_published_figure_stands_beside_ours_and_a_low_one_is_marked(monkeypatch):
    rate = Made(id="matmul.square[float32-n=2048]", device="cuda:0", times=Made(median_s=1e-3), work=Made(flops=4e10))
    peaks = Made(throughput={"bfloat16": 780e12}, bandwidth=(), host_to_device_byte_per_s=None, launch_floor_s=None)
    devices = [Made(name="cpu", kind="cpu", label="CPU"), Made(name="cuda:0", kind="cuda", label="NVIDIA H100 80GB")]
    run = Made(results=[rate], ceilings={"cuda:0": peaks}, machine=Made(devices=devices))
    square, peak = validate_gpu.compared(run)
    assert "4.96e+13 | 4e+13 | 0.81 **explain**" in square
    assert "7.92e+14 | 7.8e+14 | 0.98 |" in peak


def test_seconds_per_call_spread_the_wait_over_many_calls():
    """A device with a wait of 6 µs and a call of 2 µs."""
    machine = VirtualMachine(wait_cost_s=6e-6, tick_s=1e-10)
    clock = DeviceClock([VirtualDevice.on(machine)()])
    assert validate_gpu.seconds_per_call(lambda: machine.launch(2e-6), clock) == pytest.approx(2e-6, rel=0.02)


def test_timers_print_a_row_for_each_call():
    lines = "\n".join(validate_gpu.timers("cpu")).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["neg_ of 1000", "product of 64", "add of 10000"]
