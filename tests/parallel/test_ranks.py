"""Cases of several processes, as pytest runs them: what enters the run file, what a failing rank costs, and what a rank
times: its device's work, not the queueing."""

import json
import types
from dataclasses import replace
from pathlib import Path

import forked
import psutil
import pytest

from gpubench import devices
from gpubench.errors import Unmeasurable
from gpubench.measure.budget import PRESET_SETTINGS
from gpubench.measure.verify import unchecked
from gpubench.parallel import ranks, team
from gpubench.parallel.ranks import Ranks, _flags_of_ranks, _timer, circle, measure_rank
from gpubench.parallel.team import Rank
from gpubench.runfile.flags import Flag
from gpubench.testing import VirtualDevice, VirtualMachine

HERE = Path(__file__).parent
pytestmark = pytest.mark.xdist_group("ranks")  # two look at one run

SOURCE = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import pytest, duties
from gpubench.measure import disturbance
from gpubench.parallel.distributed import Training
from gpubench.runfile.flags import Flag
from gpubench.runfile.schema import Work

@pytest.fixture(autouse=True)
def contended(monkeypatch):
    flagged = lambda before, after, cores: iter([Flag("contended", f"{{cores}} cores")])
    monkeypatch.setattr(disturbance, "disturbed", flagged)

pytestmark = pytest.mark.gpubench_parallel

@pytest.mark.parametrize("duty", ["none", "die", "stop", "fail", "after"])
def test_step(gpubench, gpubench_ranks, duty):
    job = Training("linear", "ddp", 8)
    arguments = {{"none": None, "after": None, "die": (1, 9), "stop": (1,), "fail": (1,)}}[duty]
    if arguments:
        gpubench_ranks.group(gpubench, ["cpu", "cpu"], 1).run(getattr(duties, duty), *arguments)
    gpubench_ranks.measure(gpubench, job, 2, work=Work(items=8, unit="sample"), method="ddp", mode="strong")

def test_many(gpubench, gpubench_ranks):
    gpubench_ranks.measure(gpubench, Training("linear", "ddp", 8), 5000, work=Work(), method="ddp")
"""


OPTIONS = ("-p", "gpubench.plugin", "--gpubench-preset=smoke", "--gpubench-no-ceilings", "--benchmark-json=run.json")


def measured(folder, source, *options):
    """The run file of a pytest that has left no process behind."""
    (folder / "test_it.py").write_text(source)
    forked.serve()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    forked.pytest(*OPTIONS, *options, cwd=folder)
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert not psutil.wait_procs(left, timeout=30)[1]
    return json.loads((folder / "run.json").read_text())


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """The run file of every duty, each in a case of its own."""
    return measured(tmp_path_factory.mktemp("steps"), SOURCE, "--gpubench-ranks-deadline=2", "-k", "step")


@pytest.fixture
def run(pytester):
    """For what starts no rank."""

    def go(*options):
        pytester.makepyfile(test_it=SOURCE)
        result = pytester.runpytest_inprocess(*OPTIONS, *options)
        path = pytester.path / "run.json"
        return result, json.loads(path.read_text()) if path.exists() and path.stat().st_size else None

    return go


def test_a_rank_that_dies_hangs_or_raises_ends_its_case_and_the_next_one_runs(steps):
    assert [b["params"]["duty"] for b in steps["benchmarks"]] == ["none", "after"]
    rows = {row["params"]["duty"]: (row["status"], row["reason"]) for row in steps["gpubench"]["unmeasured"]}
    assert rows == {
        "die": ("crashed", "rank 1: killed by SIGKILL"),
        "stop": ("timeout", "rank 1: no progress for 2 s: it is stopped"),
        "fail": ("error", "rank 1: ValueError: no such thing"),
    }


def test_what_disturbed_the_ranks_is_a_flag_of_their_case(steps):
    flags = {b["params"]["duty"]: b["extra_info"]["gpubench"]["processes"][0]["flags"] for b in steps["benchmarks"]}
    assert [flag["flag"] for flag in flags["none"]] == ["contended"]


def test_durations_come_from_the_ranks_through_the_replay_timer(steps):
    case = steps["benchmarks"][0]
    assert case["params"]["duty"] == "none"
    assert case["options"]["timer"] == "replay"
    ours = case["extra_info"]["gpubench"]
    assert ours["parallel"] == {
        "devices": 2, "threads": 1, "interconnect": "memory", "method": "ddp", "mode": "strong",
    }  # fmt: skip
    assert ours["threads"] == 2
    assert ours["check"]["status"] == "passed"
    assert case["stats"]["rounds"] >= 3
    assert all(0 < sample < 1 for sample in case["stats"]["data"])


def test_more_devices_than_there_are_is_a_skip_with_the_numbers_or_an_error_where_they_are_required(run):
    from gpubench.devices.cpu import cores

    numbers = f"needs 5000 CPU cores, one a rank; {cores()} here"
    result, data = run("-k", "many")
    result.assert_outcomes(skipped=1)
    (row,) = data["gpubench"]["unmeasured"]
    assert (row["status"], row["reason"]) == ("skipped", numbers)
    result, data = run("-k", "many", "--gpubench-require-device=cpu")
    result.assert_outcomes(failed=1)
    (row,) = data["gpubench"]["unmeasured"]
    assert (row["status"], row["reason"]) == ("error", f"UsageError: required devices absent: {numbers}")


def test_cases_of_several_devices_can_be_left_out(run):
    result, _ = run("-m", "not gpubench_parallel")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_with_nothing_to_time_each_case_runs_once(run, pytester, forking):
    pytester.makepyfile(test_it=SOURCE)
    result = pytester.runpytest_subprocess("-p", "gpubench.plugin", "--benchmark-disable", "-k", "step and none")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("text", ["0", "soon", "nan"])
def test_a_deadline_that_is_none_is_refused(run, text):
    result, _ = run(f"--gpubench-ranks-deadline={text}")
    assert result.ret == 4
    assert f"ranks-deadline must be seconds above 0, not '{text}'" in result.stderr.str()


class Job:
    """Each step queues 2 ms on a virtual accelerator."""

    dtype = "float32"

    def __init__(self, machine):
        self.machine = machine

    def start(self, rank):
        return self

    def check(self):
        return unchecked("nothing to check")

    def reset(self):
        pass

    def step(self):
        self.machine.launch(2e-3)

    def record(self):
        return {}


def test_a_rank_waits_for_its_device(monkeypatch):
    machine = VirtualMachine()
    monkeypatch.setitem(devices.base.KINDS, "virtual", VirtualDevice.on(machine))
    times = measure_rank(Rank(0, 1, "virtual:0", 1), Job(machine), PRESET_SETTINGS["quick"])
    assert times.first_s == pytest.approx(2e-3, rel=1e-6)
    assert times.durations == [pytest.approx(2e-3 * times.iterations, rel=1e-6)] * len(times.durations)


def test_ranks_meet_before_each_round_and_are_timed_from_there(monkeypatch):
    machine = VirtualMachine()
    monkeypatch.setitem(devices.base.KINDS, "virtual", VirtualDevice.on(machine))
    monkeypatch.setattr("torch.distributed.barrier", lambda: machine.launch(5.0))
    seconds = _timer(Rank(0, 2, "virtual:0", 1))
    begin = machine.time_s
    assert [seconds(lambda: machine.launch(2e-3), 3) for _ in range(2)] == pytest.approx([6e-3] * 2, rel=1e-6)
    assert machine.time_s - begin == pytest.approx(2 * 5.006, rel=1e-6)


class Slowing(Job):
    """After its check the device's clock falls by half; counts its steps."""

    def __init__(self, machine):
        super().__init__(machine)
        self.steps = 0

    def step(self):
        super().step()
        self.steps += 1


@pytest.fixture
def slowing(monkeypatch):
    """A job, and a kind whose clock falls at its third look."""
    machine = VirtualMachine()
    readings = iter([2e9, 1e9])
    kind = VirtualDevice.on(machine)
    kind.clocks = lambda self: {"sm": next(readings)}
    monkeypatch.setitem(devices.base.KINDS, "virtual", kind)
    return Slowing(machine)


def test_a_rank_tells_what_slowed_its_own_device_down(slowing):
    times = measure_rank(Rank(0, 1, "virtual:0", 1), slowing, PRESET_SETTINGS["quick"])
    assert times.flags == (Flag("throttled", "virtual:0: 2.00 to 1.00 GHz"),)
    quiet = replace(times, flags=())
    (flag,) = _flags_of_ranks([quiet, times, times])
    assert flag == Flag("throttled", "rank 1: virtual:0: 2.00 to 1.00 GHz, rank 2: virtual:0: 2.00 to 1.00 GHz")


def test_ranks_on_accelerators_warm_up_for_twice_as_long(slowing):
    preset = replace(PRESET_SETTINGS["quick"], warmup=0.05)
    times = measure_rank(Rank(0, 1, "virtual:0", 1), slowing, preset)
    assert slowing.steps - times.iterations * len(times.durations) == 3 + 49  # three that are timed, and 0.1 s


class Group:
    """Stands in for a group of workers."""

    broken = False

    def close(self):
        self.broken = True


def test_idle_workers_end_before_another_case_has_their_kind_of_device(monkeypatch):
    monkeypatch.setitem(devices.base.KINDS, "virtual", VirtualDevice)
    kept = Ranks(60.0)
    virtual, cpu = Group(), Group()
    kept._groups = {(("virtual:0", "virtual:1"), 1): virtual, (("cpu", "cpu"), 1): cpu}
    kept.close_idle("cpu")
    assert not virtual.broken
    kept.close_idle("virtual:0")
    assert virtual.broken
    assert not cpu.broken
    assert list(kept._groups.values()) == [cpu]


def test_a_worker_returns_the_memory_of_its_accelerator_after_each_job(monkeypatch):
    returned = []
    kind = VirtualDevice.on(VirtualMachine())
    kind.release_memory = classmethod(lambda cls: returned.append(cls.kind))
    monkeypatch.setitem(devices.base.KINDS, "virtual", kind)
    team._release_memory(Rank(0, 2, "cpu", 1))
    assert returned == []
    team._release_memory(Rank(0, 2, "virtual:0", 1))
    assert returned == ["virtual"]


def test_a_group_begins_with_the_device_of_its_case(monkeypatch):
    monkeypatch.setitem(devices.base.KINDS, "virtual", VirtualDevice)
    second = VirtualDevice(1)
    names = {count: [str(each) for each in circle(second, count)] for count in (1, 2)}
    assert names == {1: ["virtual:1"], 2: ["virtual:1", "virtual:0"]}
    assert [str(each) for each in circle(VirtualDevice(0), 2)] == ["virtual:0", "virtual:1"]


def test_torchrun_s_ranks_are_filed_under_the_first_device_only(monkeypatch):
    monkeypatch.setitem(devices.base.KINDS, "virtual", VirtualDevice)
    monkeypatch.setattr(ranks, "collective_backend", lambda kind: "gloo")
    monkeypatch.setattr(ranks, "launched_rank", lambda: Rank(0, 2, "", 1))
    second = types.SimpleNamespace(home=VirtualDevice(1))
    with pytest.raises(Unmeasurable, match="torchrun's ranks begin with virtual:0: measured there"):
        ranks.Ranks(1.0).group(second, ["virtual:1", "virtual:0"], 1)
