"""The fake accelerator that the package ships: a contributor's first test with it."""

from gpubench.devices import virtual

TEST = """
def test_it(gpubench, machine):
    gpubench.declare(check=False)(lambda: machine.launch(2e-3))
"""


def test_the_conftest_of_the_docstring_measures_on_the_virtual_clock(bench, pytester):
    block = virtual.__doc__.split("::\n\n")[1].split("\n\n``pytest")[0]
    pytester.makeconftest(block.replace("\n    ", "\n").strip())
    (mark,) = bench(TEST, "--gpubench-device=virtual", apart=True, passed=1).marks
    assert abs(mark["stats"]["median"] - 2e-3) < 1e-9


def test_a_wait_costs_what_the_machine_says():
    machine = virtual.VirtualMachine(tick_s=0.0, wait_cost_s=1e-6)
    first, second = (virtual.VirtualDevice.on(machine)(index) for index in (0, 1))
    machine.launch(1.0)
    second.synchronize()
    assert first.now() == 1e-6
    first.synchronize()
    assert first.now() == 1.0 + 1e-6
