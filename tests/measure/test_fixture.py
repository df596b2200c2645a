"""Checks, counts, refusals and records of the ``gpubench`` fixture, on the CPU."""

import pytest

from gpubench.devices import Memory, implementations
from gpubench.devices.virtual import VirtualDevice, VirtualMachine
from gpubench.measure import budget, disturbance, prepare, verify
from gpubench.measure.session import Session
from gpubench.measure.verify import Reference
from gpubench.plugin.recorder import thin
from gpubench.runfile.flags import Flag
from gpubench.runfile.runs import read

HEADER = "import torch, pytest, numpy as np\n"
LAUNCH = "def test_it(gpubench, machine): gpubench.declare(check=False)(machine.launch, 1e-3)"
KEEP = "def test_keep(gpubench): gpubench(torch.neg, gpubench.randn(8))\n"


@pytest.fixture
def measure(bench):
    return lambda source, *options, **how: bench(HEADER + source, *options, **how)


def by_test(things):
    """Records or rows by the name of their test, without its parameters."""
    return {each["name"].partition("[")[0].removeprefix("test_"): each for each in things}


SOUND = """
@pytest.mark.parametrize("n", [16])
@pytest.mark.gpubench(size="n")
def test_mm(gpubench, n):
    a = gpubench.randn(n, n)
    gpubench.declare(nbytes=3 * a.nbytes, items=n, unit="row")(torch.mm, a, a)
def test_attention(gpubench):
    q = gpubench.randn(1, 2, 8, 4)
    gpubench(torch.nn.functional.scaled_dot_product_attention, q, q, q)
def test_inplace(gpubench): gpubench(torch.Tensor.add_, gpubench.randn(64), gpubench.randn(64))
def test_out(gpubench):
    gpubench.declare(devices=gpubench.device)(torch.add, *(gpubench.randn(64),) * 2, out=gpubench.empty(64))
def step(network, x):
    network(x).sum().backward()
    return x.grad
def test_step(gpubench):
    gpubench(step, gpubench.module(lambda: torch.nn.Linear(4, 4)), gpubench.randn(2, 4).requires_grad_())
def test_fft(gpubench): gpubench(torch.fft.fft, gpubench.randn(64))
def test_closure(gpubench):
    x = gpubench.randn(64, 64)
    made = []
    def call():
        made.append(x @ x) if not made else None  # prepared once
        return x @ made[0]
    gpubench.declare(flops=2 * 64**3)(call)
def test_declared(gpubench):
    x = gpubench.randn(3, 4)
    gpubench.declare(items=np.prod(x.shape), nbytes=torch.tensor(96), steps=np.int64(3))(torch.neg, x)
def test_consumed(gpubench):
    with pytest.raises(TypeError, match="unexpected keyword"):
        gpubench.declare(items=7, check=False)(lambda x: x, gpubench.randn(4), y=1)
    gpubench(lambda x, check, setup: x * check, gpubench.randn(4), check=2, setup=None)
def test_setup(gpubench):
    made, seen = [], []
    def fresh():
        made.append(1)
        return (torch.ones(4),), {}
    def use(x):
        assert x.sum() == 4
        seen.append(1)
        return x.zero_()
    gpubench.declare(setup=fresh, check=False)(use)
    assert len(made) >= len(seen) > 3
@pytest.mark.gpubench(implementations=["torch", "numpy"], dtypes=["float32", "bfloat16"])
def test_neg(gpubench):
    x = gpubench.randn(64)
    if gpubench.implementation == "numpy":
        array = gpubench.numpy(x)
        x[0] = 7
        assert array[0] == 7  # they share the memory
        gpubench.declare(threads=1)(np.negative, array)
    else:
        gpubench(torch.neg, x)
@pytest.mark.gpubench(variants=["eager", "autocast", "compile"])
def test_linear(gpubench):
    network = gpubench.module(lambda: torch.nn.Linear(8, 8))
    with torch.inference_mode():
        result = gpubench(network, gpubench.randn(2, 8))
    assert result.dtype == (torch.bfloat16 if gpubench.variant == "autocast" else torch.float32)
"""


def test_what_is_measured_is_checked_counted_and_recorded(measure):
    ran = measure(SOUND, passed=10 + 3 + 2)  # there is no bfloat16 in NumPy, and nothing is compiled in a short run
    marks = by_test(ran.marks)
    records = {name: mark["extra_info"]["gpubench"] for name, mark in marks.items()}
    record, stats = records["mm"], marks["mm"]["stats"]
    assert record["id"] == "it.mm[float32-n=16]"
    assert (record["workload"], record["device"], record["params"], record["size"]) == ("it.mm", "cpu", {"n": 16}, "n")
    operators = [{"kind": "product", "count": 1, "flops": 2.0 * 16**3, "bytes": 3072.0}]
    assert record["work"] == {"flops": 2.0 * 16**3, "bytes": 3072, "items": 16, "unit": "row", "operators": operators}
    assert (record["transfer"]["in_bytes"], record["transfer"]["out_bytes"]) == (1024, 1024)
    assert 0 < record["check"]["error"] < record["check"]["tolerance"] < 1e-5
    assert record["processes"][0]["rounds"] == stats["rounds"] == len(stats["data"])
    assert record["latency_s"] > 0
    assert ran.data["gpubench"]["schema_version"] == 3
    assert ran.data["machine_info"]["gpubench"]["devices"][0]["name"] == "cpu"
    statuses = {name: record["check"]["status"] for name, record in records.items()}
    assert {name for name, status in statuses.items() if status != "passed"} == {"setup"}
    assert records["attention"]["work"]["flops"] == 2 * 2 * (2 * 8 * 8 * 4)
    assert records["closure"]["work"]["flops"] == 2 * 64**3
    work = records["declared"]["work"]
    assert (work["items"], work["bytes"], records["declared"]["steps"]) == (12, 96, 3)
    assert records["consumed"]["work"]["items"] is None
    assert marks["setup"]["stats"]["iterations"] == 1  # one before each round, which brings its arguments
    linear = [each["variant"] for each in ran.records if each["workload"] == "it.linear"]
    assert linear == ["eager", "autocast"]


REFUSED = {
    "result": ("gpubench(x.sum())", "error", "expected a function: pass f and its arguments, not what f() returned"),
    "off": ("gpubench.declare(check=lambda x: x)(lambda x: x + 1e-3, x)", "error", "relative error"),
    "unwritten": ("gpubench.declare(check=lambda x, o: x)(lambda x, o: o, x, gpubench.empty(64))", "error", "never wr"),
    "empty": ("gpubench(torch.empty_like, x)", "error", "wrong result: an output is not finite or was never written"),
    "advice": ("gpubench(torch.empty_like, x)", "error", "; if it is right, gpubench.declare(check=…) takes a re"),
    "written": ("gpubench.declare(check=lambda x, out: x)(write, x, out=torch.zeros(64))", "error", "never written"),
    "signature": ("gpubench.declare(check=lambda: x)(torch.neg, x)", "error", "the reference of declare(check=…)"),
    "uncalled": ("gpubench.declare(check=x)(torch.neg, x)", "error", "check must be a function, True, False or a text"),
    "shape": ("gpubench.declare(check=lambda x: x)(lambda x: x[:3], x)", "error", "shape"),
    "pair": ("gpubench.declare(check=lambda x: x)(lambda x: (x, x), x)", "error", "outputs"),
    "half": ("gpubench.declare(flops=16**3)(torch.mm, a, a)", "error", "4096 FLOP declared, 8192 counted"),
    "least": ("gpubench.declare(flops=1)(lambda: a @ a)", "error", "WorkMismatch: 1 FLOP declared, 8192 counted"),
    "late": ("gpubench(torch.neg, x); assert False, 'late'", "error", "late"),
    "estimated": ("gpubench.declare(flops=1e18)(never, x)", "skipped", "estimated: 1.00 EFLOP at"),
    "huge": ("gpubench(torch.neg, gpubench.randn(10**14))", "skipped", "needs 400 TB more on cpu"),
    "free": ("gpubench(torch.neg, gpubench.randn(10**14))", "skipped", "are free"),
    "outer": ("v = gpubench.randn(10**6); gpubench(torch.outer, v, v)", "oom", "memory: one tensor would need 4.00 TB"),
    "memory": ("gpubench.declare(check=False)(lambda x: torch.empty(2**50), x)", "oom", ""),
    "items": ("gpubench.declare(items=2.5)(uncalled, x)", "error", "UsageError: items must be a whole number"),
    "flops": ("gpubench.declare(flops='many')(uncalled, x)", "error", "UsageError: flops must be a number"),
    "nbytes": ("gpubench.declare(nbytes=-4096)(uncalled, x)", "error", "UsageError: nbytes must be above 0"),
    "threads": ("gpubench.declare(threads=1.5)(uncalled, x)", "error", "UsageError: threads must be a whole number"),
    "steps": ("gpubench.declare(steps=0.5)(uncalled, x)", "error", "UsageError: steps must be "),
    "unit": ("gpubench.declare(unit=5)(uncalled, x)", "error", "UsageError: unit must be a text"),
    "tensor": ("gpubench.declare(setup=lambda: x)(uncalled)", "error", "setup returned a Tensor: it returns None, or"),
    "bare": ("gpubench.declare(setup=lambda: (x,))(uncalled)", "error", "setup returned a tuple: it returns None, or"),
    "early": ("gpubench.declare(setup=x)(uncalled)", "error", "setup must be a function, not Tensor"),
    "twice": ("gpubench.declare(items=1); gpubench.declare(unit='row')(uncalled, x)", "error", "said twice before a"),
    "forgotten": ("gpubench(torch.neg, x); gpubench.declare(items=1)", "error", "was said and no call followed"),
    "silent": ("gpubench.declare(items=1)", "error", "was said and no call followed"),
    "loop": ("[gpubench(torch.neg, x) for x in (x, a)]", "error", "for a call of each size write @pytest.m"),
    "ending": ("request.addfinalizer(gpubench.declare); gpubench(torch.neg, x)", "error", "no call followed"),
    "failed": ("gpubench.declare(items=1); assert False, 'early'", "error", "early"),
}  # fmt: skip


def test_what_is_wrong_too_long_or_too_large_is_a_row_and_the_next_case_runs(measure, pytester):
    tests = "".join(
        f"def test_{name}(gpubench, request):\n    x, a = gpubench.randn(64), gpubench.randn(16, 16)\n    {call}\n"
        for name, (call, _, _) in REFUSED.items()
    )
    helpers = """
def never(x): assert x.is_meta, "was called for real"
def write(x, out):
    out[: len(x) // 2].copy_(x[: len(x) // 2])
    return out
def uncalled(x): assert False, "was called"
"""
    ran = measure(helpers + tests + KEEP)
    rows = by_test(ran.rows)
    found = {name: (rows[name]["status"], says in rows[name]["reason"]) for name, (_, _, says) in REFUSED.items()}
    assert found == {name: (status, True) for name, (_, status, _) in REFUSED.items()}
    assert {rows[name]["workload"] for name in ("off", "huge")} == {"it.off", "it.huge"}
    assert [mark["name"] for mark in ran.marks] == ["test_keep[cpu-float32]"]
    assert len(read(pytester.path / "run.json").results) == len(REFUSED) + 1


@pytest.mark.parametrize(("estimated_s", "calls", "busy"), [(0.9, 1, False), (0.5, 2, False), (0.5, 2, True)])
def test_a_case_that_may_just_fit_ends_with_a_first_call_that_says_no(virtual, monkeypatch, estimated_s, calls, busy):
    """Smoke allows 2 s for three calls. One of 2 s is warmed up only where the estimate gave it a chance, also on a
    machine that was busy when the process began."""
    seen = disturbance.SelfCheck(flags=(Flag("contended"),) * busy)
    monkeypatch.setattr(budget, "estimate", lambda *_: estimated_s)
    monkeypatch.setattr(Session, "check_machine", lambda *_: seen)
    monkeypatch.setattr(disturbance, "disturbed", lambda *_: ())
    launch, made = VirtualMachine.launch, []
    monkeypatch.setattr(VirtualMachine, "launch", lambda *given: made.append(launch(*given)))
    _, run = virtual(LAUNCH.replace("1e-3", "2.0"), "--gpubench-preset=smoke", skipped=1)
    (row,) = run["gpubench"]["unmeasured"]
    says = "on a busy machine: a call" if busy else "for the preset smoke: one call"
    assert row["reason"].startswith(f"too slow {says} takes 2.00 s (seen in ")
    assert ("first call" in row["reason"]) == (calls == 1)
    assert len(made) == calls


def test_the_memory_of_a_recorded_graph_is_that_of_its_capture(virtual, monkeypatch):
    """Its replays allocate nothing."""
    peaks = iter([9000, 5000])
    monkeypatch.setattr(VirtualDevice, "supports_graphs", True)
    monkeypatch.setattr(VirtualDevice, "capture_graph", lambda self, call: (call, call()))
    monkeypatch.setattr(VirtualDevice, "allocated_memory", lambda self: 1000)
    monkeypatch.setattr(VirtualDevice, "peak_memory", lambda self: next(peaks))
    marked = '@__import__("pytest").mark.gpubench(variants=["graph"])\n'
    _, run = virtual(marked + LAUNCH, "--gpubench-variant=graph", passed=1)
    assert run["benchmarks"][0]["extra_info"]["gpubench"]["memory_bytes"] == 8000


RETURNED = """
def test_it(gpubench, machine):
    made = []
    def call():
        made.append(machine.launch(1e-3))
        return len(made)
    assert gpubench.declare(check=False)(call) == len(made)
"""


def test_the_result_is_of_a_call_after_the_probes_which_may_write_over_others(virtual):
    virtual(RETURNED, passed=1)


PRODUCT_AND_SUM = """
import pytest, torch
@pytest.mark.parametrize("operator", [torch.mm, torch.add, lambda a, b: (a @ b).relu()])
def test_it(gpubench, machine, operator):
    def call(a, b):
        machine.launch(1e-3)
        return operator(a, b)
    gpubench(call, torch.ones(32, 32), torch.ones(32, 32))
"""


def test_memory_is_without_the_workspace_of_a_product_and_other_work_has_none(virtual, monkeypatch):
    """torch 2.15 allocates it for each product: the peak of 32 × 32 would be 32 MiB."""
    workspace = 32 << 20
    monkeypatch.setattr(VirtualDevice, "torch_name", "cpu")
    monkeypatch.setattr(VirtualDevice, "allocated_memory", lambda self: 1000)
    monkeypatch.setattr(VirtualDevice, "workspace_bytes", lambda self: workspace)
    monkeypatch.setattr(VirtualDevice, "peak_memory", lambda self: 1000 + 3 * 4096 + workspace)
    _, run = virtual(PRODUCT_AND_SUM, passed=3)
    held = [mark["extra_info"]["gpubench"]["memory_bytes"] for mark in run["benchmarks"]]
    # The third holds most after its product: the peak is that of the product with its workspace.
    assert held == [3 * 4096, 3 * 4096 + workspace, 4 * 4096]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, "float64 on virtual:0"),
        ({"lacks": lambda self, dtype: "none" if dtype == "float64" else None}, None),
        ({"memory": lambda self: Memory(3 * 3 * 4096 - 1, 10**9)}, None),
        ({"rated": 1e12}, None),
        ({"fails": True}, None),  # so a CPU does it
    ],
)
def test_a_long_reference_is_computed_by_a_faster_accelerator_with_room(virtual, monkeypatch, changed, reason):
    usual = {"torch_name": "cpu", "allocated_memory": lambda self: 1000, "peak_memory": lambda self: 1000 + 3 * 4096}
    rated, copy = changed.get("rated", 2e12), verify.copy_call

    def copied(*call, device=None, dtype=None, **terms):
        if changed.get("fails") and device and dtype:
            raise RuntimeError("out of memory")
        return copy(*call, device=device, dtype=dtype, **terms)

    monkeypatch.setattr(verify, "copy_call", copied)
    for name, value in (usual | changed).items():
        monkeypatch.setattr(VirtualDevice, name, value, raising=False)
    monkeypatch.setattr(prepare, "_LONG_REFERENCE", 0.0)
    monkeypatch.setattr(budget.Rates, "rate", lambda self, device, dtype="": rated if device.accelerator else 1e12)
    _, run = virtual(PRODUCT_AND_SUM.replace("[torch.mm, ", "[torch.mm] or ["), passed=1)
    check = run["benchmarks"][0]["extra_info"]["gpubench"]["check"]
    assert (check["status"], check.get("reason")) == ("passed", reason)


def test_another_librarys_work_is_on_a_stream_that_torch_can_not_time(virtual, monkeypatch):
    terms = {"name": "other", "label": "Other", "why_not_on": classmethod(lambda cls, device: None)}
    monkeypatch.setitem(implementations.LIBRARIES, "other", type("Other", (implementations.NumPy,), terms))
    marked = '@__import__("pytest").mark.gpubench(implementations=["other"])\n'
    _, run = virtual(marked + LAUNCH, passed=1)
    record = run["benchmarks"][0]["extra_info"]["gpubench"]
    assert record["device_reason"] == "Other queues its work on a stream of its own"


@pytest.mark.parametrize(("device", "flags"), [("cpu", ["contended"]), ("demo", [])])
def test_a_busy_host_disturbs_no_simulated_device(measure, monkeypatch, device, flags):
    monkeypatch.setattr(disturbance, "disturbed", lambda *_: [Flag("contended", "busy")])
    (record,) = measure(KEEP, f"--gpubench-device={device}").records
    (process,) = record["processes"]
    assert [flag["flag"] for flag in process["flags"]] == flags
    assert (process["cpu_s"] is not None and 0 < process["cpu_s"] < 1) == (device == "cpu")


def test_a_tensor_on_a_strange_device_is_refused(virtual):
    source = "import torch\ndef test_stranger(gpubench): gpubench(torch.neg, torch.ones(4))"
    result, _ = virtual(source, failed=1)
    result.stdout.fnmatch_lines(["*a tensor of this case is on cpu, not on virtual:0: move it, or say*"])


def test_samples_are_thinned_evenly_and_statistics_keep_all_of_them(measure):
    ran = measure(KEEP, "--benchmark-min-rounds=500", "--benchmark-max-time=0.5")
    (record,), (mark,) = ran.records, ran.marks
    assert mark["stats"]["rounds"] >= 500
    assert len(mark["stats"]["data"]) == record["processes"][0]["kept"] == 200
    assert thin(list(range(1000)))[:3] == [0, 5, 10]
    assert thin(list(range(1000)))[-1] == 999
    assert thin([1.0, 2.0]) == [1.0, 2.0]


@pytest.mark.parametrize("device", ["cpu", "demo"])
def test_a_cases_tensors_are_in_no_circle_and_freed_if_it_fails(bench, device):
    source = """
        import gc, torch, weakref
        gc.disable()
        seen = []
        def test_it(gpubench):
            x = gpubench.randn(1000)
            seen.append(weakref.ref(x))
            gpubench(torch.neg, x)
            del x
            assert seen.pop()() is None
        def test_fails(gpubench):
            x = gpubench.randn(1000)
            seen.append(weakref.ref(x))
            gpubench.declare(check=torch.abs)(torch.neg, x)
        def test_freed(): assert seen[0]() is None
        """
    bench(source, f"--gpubench-device={device}", apart=True, failed=1, passed=2)


LATER = """
import os
STATE = {}
def spoils(x, after):
    STATE[after] = STATE.get(after, 0) + 1
    return x * 2 if STATE[after] < 6 else x * 3
def test_stale(gpubench): gpubench(spoils, gpubench.randn(8), 1)
def raced(x):
    count = int(os.environ.get("RACED", 0)) + 1  # no copy of a call has an environment of its own
    os.environ["RACED"] = str(count)
    return x * (1 + (count > 9 and x.dtype == torch.float32) * os.urandom(1)[0])
def test_raced(gpubench): gpubench(raced, gpubench.randn(8))
def test_raced_beside_a_reference(gpubench):
    os.environ["RACED"] = "0"
    gpubench.declare(check=torch.clone)(raced, gpubench.randn(8))
def test_changed(gpubench): gpubench(lambda x: x.mul_(2), gpubench.randn(8))
async def product(x): return x * x
def test_coroutine(gpubench): gpubench(product, gpubench.randn(8))
"""


def test_what_goes_wrong_after_the_first_call_fails_or_is_said(measure):
    ran = measure(LATER, passed=1, failed=4)
    (mark,) = ran.records
    assert mark["check"]["reason"].startswith("the first result alone")
    assert "altered" in {flag["flag"] for flag in mark["processes"][0]["flags"]}
    reasons = {name: row["reason"] for name, row in by_test(ran.rows).items()}
    for name in ("stale", "raced", "raced_beside_a_reference"):
        assert "after the rounds, while the first result was right" in reasons[name]
    assert "does its work when it is awaited" in reasons["coroutine"]


STATEFUL = """
import time
from types import SimpleNamespace
from torch import nn
net = nn.Linear(16, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
lbfgs = torch.optim.LBFGS(net.parameters(), 0.1, max_iter=2)
warming = torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD(net.parameters(), 0.1), lambda n: min(n, 5) / 5)
count, n, long = 0, {"c": 0}, [0.0] * 200
deep = SimpleNamespace(a=SimpleNamespace(b=SimpleNamespace(c=SimpleNamespace(d=SimpleNamespace(e=[{"f": 1.0}])))))
stream = np.random.RandomState(1)
def loss(x):
    opt.zero_grad()
    lost = net(x).square().mean()
    lost.backward()
    return lost
def step(x):
    lost = loss(x)
    opt.step()
    return lost
def warmed(x):
    lost = loss(x)
    warming.optimizer.step()
    warming.step()
    return lost
def counted(x):
    global count
    count += 1
    return x * count
def keyed(x):
    n["c"] += 1
    return x * n["c"]
def listed(x):
    long[150] += 1
    return x * long[150]
def deepened(x):
    held = deep.a.b.c.d.e[0]
    held["f"] *= 1.5
    return x * held["f"]
class Scale:
    count = 1
def scaled(x):
    Scale.count += 1
    return x * Scale.count
def nested(x):
    def outer():
        def inner(): return step(x)
        return inner()
    return outer()
def timed(x): return time.perf_counter()
CALLS = {call.__name__: (call,) for call in (step, nested, warmed, counted, keyed, listed, deepened, scaled, timed)} | {
    "closure": (lambda x: opt.step(lambda: loss(x)),),
    "lbfgs": (lambda x: lbfgs.step(lambda: loss(x)),),
    "helper": (lambda x: step(x),),
    "callback": (lambda x, then: then(x), step),
    "stream": (lambda x: x * stream.rand(),),
}
@pytest.mark.parametrize("name", CALLS)
def test_it(gpubench, name):
    call, *args = CALLS[name]
    with torch.random.fork_rng():
        net.reset_parameters()
    gpubench(call, gpubench.randn(32, 16), *args)
def test_written(gpubench):
    a = np.ones(4)
    gpubench(np.multiply, a, np.full(4, -1.01), out=a)
def test_referred(gpubench):
    n["c"] = 0
    gpubench.declare(check=torch.clone)(keyed, gpubench.randn(8))
"""


def test_a_call_that_changes_what_it_uses_is_judged_by_its_first_result(measure):
    ran = measure(STATEFUL, passed=16)
    checks = {mark["params"].get("name", mark["workload"]): mark["check"] for mark in ran.records}
    reason = "the first result alone: the call changes what it uses"
    assert checks.pop("timed")["status"] == "passed"  # near the first result or not, by the clock's start
    assert {name: (each["status"], each["reason"]) for name, each in checks.items()} == dict.fromkeys(
        checks, ("passed", reason)
    )


DTYPES = """
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int8, torch.complex64])
def test_parameter(gpubench, dtype):
    a = torch.ones(16, 16).to(dtype)
    gpubench(torch.add, a, a)
@pytest.mark.parametrize("kind", [np.float64, np.int16])
@pytest.mark.parametrize("call", [lambda x: x + 1, lambda x: x * 2], ids=["one", "two"])
def test_of_numpy(gpubench, kind, call): gpubench(call, np.ones(9, kind))
def test_own(gpubench): gpubench(torch.neg, torch.ones(9, dtype=torch.float64))
@pytest.mark.gpubench(dtypes=["float32"])
def test_other(gpubench): gpubench(torch.neg, torch.ones(9, dtype=torch.float64))
"""


def test_the_dtype_is_that_of_the_data_and_of_a_parameter_that_holds_one(measure):
    ran = measure(DTYPES, passed=9, failed=1)
    found = sorted((mark["workload"], mark["dtype"], mark["params"].get("call", "")) for mark in ran.records)
    assert found == [
        *(("it.of_numpy", dtype, call) for dtype in ("float64", "int16") for call in ("one", "two")),
        ("it.own", "float64", ""),
        *(("it.parameter", dtype, "") for dtype in ("bfloat16", "complex64", "float64", "int8")),
    ]
    assert "the data is float64, not float32" in by_test(ran.rows)["other"]["reason"]
    assert [mark["dtype"] for mark in measure(DTYPES, "--gpubench-dtype=bfloat16").records] == ["bfloat16"]


SCALED = """
def scaled(numbers, scale): return numbers.to(torch.bfloat16) * scale
def test_scaled(gpubench): gpubench(scaled, torch.ones(9).to(torch.float8_e4m3fn), torch.full((1,), 0.5))
@pytest.mark.gpubench(dtypes=["bfloat16"])
def test_in_place_of_bfloat16(gpubench): gpubench(scaled, torch.ones(9).to(torch.float8_e4m3fn), torch.full((1,), 0.5))
"""


def test_numbers_of_8_bits_name_the_dtype_and_not_their_scale(measure):
    records = measure(SCALED, passed=2).records
    assert {mark["workload"]: mark["dtype"] for mark in records} == {
        "it.scaled": "float8_e4m3fn",
        "it.in_place_of_bfloat16": "bfloat16",
    }
    assert {mark["check"]["status"] for mark in records} == {"passed"}


def test_a_device_is_looked_at_before_its_result_is_checked(measure, monkeypatch):
    """An idle GPU's clocks fall while the CPU checks, which looked as if heat had held them down."""
    order, look, check_last = [], disturbance.read_counters, Reference.check_last
    monkeypatch.setattr(disturbance, "read_counters", lambda *devices: order.append("look") or look(*devices))
    monkeypatch.setattr(Reference, "check_last", lambda *values: order.append("check") or check_last(*values))
    measure(KEEP, passed=1)
    assert order[-2:] == ["look", "check"]


SLOW_SETUP = """
import time
from gpubench.devices import Device
gone = []
def test_setup(gpubench, monkeypatch):
    monkeypatch.setattr(Device, "now", staticmethod(lambda: time.perf_counter() + sum(gone)))
    gpubench.declare(setup=lambda: gone.append(6.0), check=False)(len, ())
def test_few(): assert 0 < len(gone) < 5
"""


def test_a_slow_setup_counts_against_the_budget(bench):
    ran = bench(SLOW_SETUP, usual=["--gpubench-preset=quick", "--benchmark-json=run.json"], passed=1, skipped=1)
    (row,) = ran.rows
    assert ", its setup 6.00 s" in row["reason"]


UNCOUNTED = """
def shy(x):
    if torch._C._len_torch_dispatch_stack():
        raise ValueError("somebody looks")
    return -x
def test_shy(gpubench): gpubench.declare(check=False)(shy, gpubench.randn(8))
def read(batches): return next(batches) @ torch.ones(8, 8)
def test_read(gpubench):
    batches = (torch.ones(8, 8) for _ in range(10**9))
    gpubench.declare(check=False)(read, batches)
"""


def test_a_call_that_can_not_be_counted_says_why_and_one_that_can_not_be_copied_is_counted_in_a_real_call(measure):
    records = {
        name: mark["extra_info"]["gpubench"] for name, mark in by_test(measure(UNCOUNTED, passed=2).marks).items()
    }
    assert records["shy"]["uncounted"] == "somebody looks"
    assert records["read"]["work"]["flops"] == 2 * 8**3
    assert not records["read"].get("uncounted")
