"""How far a right answer may be from its reference, and that a wrong one is seen."""

import importlib.util
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from gpubench.devices import CPU
from gpubench.devices.implementations import find_implementation
from gpubench.errors import WrongAnswer
from gpubench.measure import verify
from gpubench.measure.copies import copy_call
from gpubench.measure.data import poison
from gpubench.measure.outputs import poisoned
from gpubench.measure.verify import Reference, coarsest, prepare_reference, tolerance
from gpubench.runfile.schema import Work


def test_tolerance_grows_with_the_root_of_the_reduction():
    assert tolerance("float32", 2 * 100 * 10, 0, 10) == pytest.approx(2.0**-24 * (8 + 4 * 10))
    assert tolerance("float32", None, 400, 1) == pytest.approx(2.0**-24 * (8 + 4 * 20))
    assert tolerance("bfloat16", 1e12, 1, 1) == 5e-2


def reference(function, *args):
    return Reference(copy_call(function, args, {}), None, 1, "float32")


def check(result, expected):
    return reference(lambda: expected).check(result)


@pytest.mark.parametrize(
    ("found", "expected", "says"),
    [
        ([1 + 2j], [1 + 1j], ""),
        ([torch.inf, 1.0, 2.0], [torch.inf, 100.0, 200.0], ""),
        ([2.0], [1.0], r"relative error 1 \(tolerance 7.15e-07\)$"),
        ([torch.nan, 1.0], [1.0, 1.0], "not finite"),
        (np.arange(3.0)[::-1], np.arange(3.0), "relative error 1 "),
    ],
)
@pytest.mark.parametrize("step", [1, -1])
def test_a_wrong_part_of_any_output_is_seen(found, expected, says, step):
    found, expected = (each if isinstance(each, np.ndarray) else torch.tensor(each) for each in (found, expected))
    wanted = [expected, torch.ones(2)][::step]
    assert check(wanted, wanted).error == 0
    with pytest.raises(WrongAnswer, match=says or None):
        check([found, torch.ones(2)][::step], wanted)


def test_memory_that_nothing_filled_is_no_answer_of_an_earlier_call():
    with poisoned():
        found = [torch.empty(3), torch.empty_like(torch.ones(3)), torch.ones(3).new_empty(3), torch.zeros(3)]
    assert [bool(tensor.isnan().all()) for tensor in found] == [True, True, True, False]


def test_room_for_a_result_is_poisoned():
    out = torch.ones(2)
    poison(out, (torch.ones(2),), {"out": out})
    assert out.isnan().all()


@pytest.mark.parametrize(("dtype", "each"), [("bfloat16", 8), ("float64", 8), ("complex64", 16), ("int8", 1)])
def test_a_reference_needs_eight_bytes_for_each_number(monkeypatch, dtype, each):
    """Of a network in bfloat16 four times the network's memory: two would end the process for lack of memory."""
    asked = []
    monkeypatch.setattr(verify, "require_memory", lambda nbytes, device: asked.append(nbytes))
    request = types.SimpleNamespace(check=True, function=torch.neg, work=Work())
    tensor = torch.ones(100, dtype=getattr(torch, dtype))
    prepared = types.SimpleNamespace(request=request, args=(tensor,), kwargs={}, counted=None)
    prepare_reference(prepared, dtype, 1.0, lambda *_: (None, ""), find_implementation("torch")(CPU, "float32"))
    assert asked == [100 * each]


def test_a_call_that_returns_nothing_to_compare_is_unchecked():
    outcome = check(None, [])
    assert (outcome.status, outcome.reason) == ("unchecked", "the call returns no tensor and no number to compare")
    assert check(torch.empty(0), torch.empty(0)).status == "passed"
    with pytest.raises(WrongAnswer, match="0 outputs, the reference has 1"):
        check(None, torch.ones(1))


def everyday():
    path = Path(__file__).parents[2] / "docs/experiments/everyday_functions.py"
    spec = importlib.util.spec_from_file_location("everyday_functions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_right_answer_of_an_everyday_function_is_refused_and_no_wrong_one_passes():
    known = everyday()
    assert len(known.CALLS) >= 110
    outcomes = {name: known.judge(*call) for name, call in known.CALLS.items()}
    unchecked = {name for name, outcome in outcomes.items() if outcome.status == "unchecked"}
    reasons = {name: outcomes[name].reason for name in unchecked}
    free = ("linalg.eig", "linalg.eigvals", "linalg.svd", "linalg.eigh positive")
    assert {name: "are free" in reasons.pop(name, "are free") for name in free} == dict.fromkeys(free, True)
    assert {name: reason.partition(" ")[0] for name, reason in reasons.items()} == {
        **dict.fromkeys(("svd_lowrank", "pca_lowrank"), "the"),
        "cdist": "float32",
        "chaos": "rounding",
    }
    assert [name for name, (call, instead) in known.BROKEN.items() if not known.caught(call, instead)] == []


def settled(x):
    while True:
        x, before = (x + 2 / x) / 2, x
        if (x - before).abs().max() <= 4 * torch.finfo(x.dtype).eps:
            return x - 2**0.5


@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        (lambda x: x * 1e-42, "passed", ""),
        (lambda x: x.half() * 1e-6, "passed", ""),
        (lambda x: x.view(torch.int32), "unchecked", "reads the bits"),
        (lambda x: torch.complex(x, x).view(torch.float32), "unchecked", "reads the bits"),
        (lambda x: x.int().view(torch.uint8), "passed", ""),
        (settled, "unchecked", "depends on the dtype"),
    ],
    ids=["subnormal", "subnormal half", "bits", "parts", "bytes of integers", "a loop until it stands"],
)
def test_a_right_answer_of_few_digits_or_that_float64_can_not_repeat_is_not_refused(function, status, reason):
    outcome = everyday().judge(function, (torch.linspace(1, 9, 100),))
    assert (outcome.status, reason in str(outcome.reason)) == (status, True)
    with pytest.raises(WrongAnswer):
        everyday().judge(lambda x: x * 1e-42, (torch.linspace(1, 9, 100),), lambda x: x * 1.1e-42)


def nearest(points, centres):
    return torch.cdist(points, centres).argmin(1)


def mixed(x):
    return (x.round().long() + 2**61) * 3


def seeded(x):
    return torch.rand(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1)) < x.sigmoid()


POINTS, X = torch.randn(5000, 4, generator=torch.Generator().manual_seed(1)), torch.linspace(-9, 9, 4096)
ENDS = torch.tensor([0, 4095])


@pytest.mark.parametrize(
    ("function", "args", "status", "broken"),
    [
        (nearest, (POINTS, POINTS[:16]), "passed", lambda x: torch.cat([x[:-78], torch.zeros_like(x[:78])])),
        (nearest, (POINTS, POINTS[:16]), "passed", lambda x: x + torch.nn.functional.one_hot(torch.tensor(99), 5000)),
        (mixed, (X,), "passed", lambda x: x ^ 1),
        (lambda x: torch.where(x > 4.5)[0], (X.index_fill(0, ENDS, 4.500003),), "passed", lambda x: x * (x < 4000)),
        (lambda x: torch.isclose(x.square().sqrt(), x.abs()), (X,), "passed", torch.logical_not),
        (seeded, (X,), "unchecked", None),
    ],
    ids=["block", "element", "int64", "changing size", "close", "random"],
)
def test_whole_numbers_that_differ_where_rounding_moves_none_are_wrong(function, args, status, broken):
    known = everyday()
    assert known.judge(function, args).status == status
    assert broken is None or known.caught((function, args), lambda *args: broken(function(*args)))


def test_a_later_result_may_be_another_whole_number_at_an_edge_only():
    floors = reference(lambda x: (x * 2).floor(), torch.tensor([0.5 + 1e-8, 2.2, 7.1]).double())
    assert floors.check(torch.tensor([1.0, 4.0, 14.0])).status == "passed"
    floors.check_last(torch.tensor([0.0, 4.0, 14.0]))
    with pytest.raises(WrongAnswer, match="1 of 3 whole numbers are others, rounding moves 0 after the rounds"):
        floors.check_last(torch.tensor([1.0, 5.0, 14.0]))


class Sines(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x) ** 2


def inner(x):
    return torch.compile(lambda x: x.cos() * 3, backend="eager")(x)


def compiled_module():
    module = Sines()
    module.compile(backend="eager")
    return module


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.compile(lambda x: torch.sin(x) ** 2, backend="eager"),
        lambda: torch.compile(Sines(), backend="eager"),
        compiled_module,
        lambda: torch.nn.Sequential(compiled_module()),
        lambda: inner,
    ],
)
def test_what_is_compiled_stays_compiled(make):
    from torch._dynamo import reset
    from torch._dynamo.utils import counters

    reset(), counters.clear()
    call = make()
    assert everyday().judge(call, (torch.ones(64),)).status == "passed"
    assert counters["frames"] == {"total": 1, "ok": 1}
    call(torch.ones(64))
    assert counters["frames"]["ok"] == counters["frames"]["total"]


USERS = """
import dataclasses, functools, pathlib, pickle, random, secrets, time, uuid
import pandas
import numpy as np
from torch import nn
class Average:
    value = None
    def update(self, x):
        self.value = x if self.value is None else 0.9 * self.value + 0.1 * x
        return self.value
class Cache:
    def __init__(self): self.layers = [{"rows": torch.zeros(0, 8)}]
    def add(self, x):
        layer = self.layers[0]
        layer["rows"] = torch.cat([layer["rows"], x])[-64:]
        return x.sum()
class Centre(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean
    def encode(self, x): return x * 2
def gradients(net, parameters, x):
    for each in parameters:
        each.grad = None
    net(x).square().mean().backward()
    return [each.grad for each in parameters]
def test_average(gpubench):
    average = Average()
    gpubench(average.update, gpubench.randn(8))
    assert average.value.dtype == torch.float32
TOTAL = {}
def test_global(gpubench):
    gpubench(lambda x: TOTAL.update(sum=TOTAL.get("sum", 0) + x) or TOTAL["sum"], gpubench.randn(8))
    assert TOTAL["sum"].dtype == torch.float32
def test_cache(gpubench):
    cache = Cache()
    gpubench(cache.add, gpubench.randn(4, 8))
    assert cache.layers[0]["rows"].dtype == torch.float32
def test_view(gpubench):
    buffer = gpubench.randn(8, 8)
    gpubench(lambda whole, part, x: (whole.copy_(x), part.sum())[1], buffer, buffer[:4], gpubench.randn(8, 8))
def test_parameters(gpubench):
    net = gpubench.module(lambda: nn.Linear(8, 8))
    gpubench(gradients, net, list(net.parameters()), gpubench.randn(4, 8))
class Counter:
    calls = 0
    def scaled(self, x):
        Counter.calls += 1
        return x * Counter.calls
class Settings(dict):
    __getattr__ = dict.__getitem__
@dataclasses.dataclass
class Scaled:
    value: torch.Tensor
class Answers:
    def __getattr__(self, name): raise KeyError(name)
    def __call__(self, x): return x * 2
draws, gelsy = random.SystemRandom(), functools.partial(torch.linalg.lstsq, driver="gelsy")
x, w, s = torch.randn(8, 64).bfloat16(), torch.randint(-8, 8, (64, 32), dtype=torch.int8), torch.rand(32).bfloat16()
image, flat = torch.randn(1, 3, 8, 8), torch.randn(64, 4) @ torch.randn(4, 64)
query = torch.randn(1, 2, 16, 8)
def nested(): return torch.nested.nested_tensor([torch.randn(3), torch.randn(2)])
CALLS = {
    "buffer": lambda g: (g.module(Centre), g.randn(4, 8)),
    "method": lambda g: (lambda net, x: net.encode(x), g.module(Centre), g.randn(4, 8)),
    "message": lambda g: (lambda x: len(pickle.dumps(x)), g.randn(100)),
    "tiny": lambda g: (lambda p: (p + torch.finfo(p.dtype).tiny).log(), torch.zeros(100)),
    "address": lambda g: (id, g.randn(8)),
    "rank": lambda g: (torch.linalg.matrix_rank, flat.clone()),
    "rank_of_numpy": lambda g: (np.linalg.matrix_rank, flat.numpy()),
    "rank_of_solution": lambda g: (lambda a: gelsy(a, a).rank, flat.clone()),
    "secret": lambda g: (lambda x: secrets.randbelow(10**9), g.randn(8)),
    "identifier": lambda g: (lambda x: x + uuid.uuid4().int % 10**5, g.randn(8)),
    "system": lambda g: (lambda x: x * draws.random(), g.randn(8)),
    "class_counter": lambda g: (Counter().scaled, g.randn(8)),
    "float8": lambda g: (lambda x: x.to(torch.float8_e4m3fn), g.randn(64)),
    "float8_e5m2": lambda g: (lambda x: x.to(torch.float8_e5m2), g.randn(64)),
    "half_complex": lambda g: (lambda x: x.to(torch.complex32), g.randn(64)),
    "lazy": lambda g: (nn.LazyLinear(16), g.randn(8, 32)),
    "lazy_module": lambda g: (g.module(lambda: nn.LazyConv2d(4, 3)), image),
    "nested": lambda g: (torch.neg, nested()),
    "masked": lambda g: (lambda x: torch.masked.masked_tensor(x, x > 0), g.randn(8)),
    "quantised": lambda g: (torch.dequantize, torch.quantize_per_tensor(torch.randn(8), 0.1, 0, torch.qint8)),
    "list": lambda g: (lambda x: x.tolist(), g.randn(1_000_000)),
    "text": lambda g: (lambda x: np.array([f"{value:.2f}" for value in x.tolist()]), g.randn(8)),
    "objects": lambda g: (lambda x: np.array([str(x)], dtype=object), g.randn(8)),
    "deep": lambda g: (lambda x: functools.reduce(lambda inner, _: [inner], range(5000), x.sin()), g.randn(8)),
    "returned": lambda g: (lambda x: (x.sin(), x), g.randn(8)),
    "random": lambda g: (lambda x: x * np.random.rand(), g.randn(8)),
    "settings": lambda g: (lambda x, settings: x * settings.scale, g.randn(8), Settings(scale=2.0)),
    "answers": lambda g: (Answers(), g.randn(8)),
    "attention": lambda g: (nn.functional.scaled_dot_product_attention, query, query, query),
    "clock": lambda g: (lambda x: x * (time.perf_counter() * 1e3 % 1), g.randn(8)),
    "cancelled": lambda g: (lambda x: (x + 1e6) - 1e6, g.randn(64)),
    "weights": lambda g: (lambda x, w, s: (x @ w.to(x.dtype)) * s, x, w, s),
    "tiny_of_numpy": lambda g: (lambda a: np.log(a + np.finfo(a.dtype).tiny), np.zeros(8, "f4")),
    "largest": lambda g: (torch.nan_to_num, torch.full((8,), torch.inf)),
    "largest_of_numpy": lambda g: (np.nan_to_num, np.full(8, np.inf, "f4")),
    "bits": lambda g: (lambda a: a.view(np.int32), np.full(8, 1 / 3, "f4")),
    "dataclass": lambda g: (lambda x: Scaled(x * 2), g.randn(8)),
    "table": lambda g: (lambda x: pandas.DataFrame(x.numpy()), g.randn(8, 2)),
    "kept": lambda g: (lambda x: Settings(scale=x * 2), g.randn(8)),
}
@pytest.mark.parametrize("name", CALLS)
def test_call(gpubench, name): gpubench(*CALLS[name](gpubench))
def chosen(x, wrong):
    if not (compiled := pathlib.Path(f"compiled{wrong}")).exists():
        compiled.touch()
        time.sleep(0.6)
    return x[:32].sum() * (1 + wrong * (x.dtype == torch.float32))
@pytest.fixture
def limited(monkeypatch): monkeypatch.setattr("gpubench.measure.prepare.Plan.check_s", 1.0)
def test_slow_first(gpubench, limited): gpubench(chosen, gpubench.randn(64), 0.0)
def test_wrong_slow_first(gpubench, limited): gpubench(chosen, gpubench.randn(64), 0.01)
def test_slow_step(gpubench, limited):
    steps = []
    def step(x):
        time.sleep(0 if steps else 0.6)
        steps.append(x)
        return x[:32].sum()
    gpubench.declare(check=lambda x: x[:32].sum() * len(steps))(step, gpubench.randn(64))
@pytest.mark.parametrize(
    "call", [(torch.neg, nested()), (Answers(), 2), (torch.clone, torch.zeros(8, dtype=torch.uint8).view(torch.bits8))]
)
def test_plain(benchmark, call): benchmark(*call)
"""
LATER = "the first result alone: the call changes what it uses"
PASSED = """average cache view parameters method float8 float8_e5m2 half_complex lazy lazy_module nested masked
    quantised list text returned weights dataclass table kept slow_first slow_step attention settings answers"""
DTYPE = "the result depends on the dtype, so float64 has another one"
DRAWN = "the same call gives another result each time"
OUTCOMES = {
    **dict.fromkeys(("global", "buffer", "class_counter"), ("passed", LATER)),
    **dict.fromkeys(PASSED.split(), ("passed", None)),
    **dict.fromkeys(("message", "tiny", "rank", "rank_of_numpy", "rank_of_solution"), ("unchecked", DTYPE)),
    **dict.fromkeys(("largest", "bits"), ("unchecked", DTYPE)),
    "tiny_of_numpy": ("unchecked", "float32 differs by 0.88 from float64, on a CPU too"),
    "largest_of_numpy": (
        "unchecked",
        "rounding makes NaN or an infinity of what is finite in float64, or changes what the call does",
    ),
    "address": ("unchecked", "the result depends on where the data lie in memory"),
    "objects": ("unchecked", "an array of objects can't be compared"),
    **dict.fromkeys(("clock", "secret", "identifier", "system"), ("unchecked", DRAWN)),
    "deep": ("unchecked", "the result is nested too deeply to compare"),
    "random": ("passed", "the first result alone: the call draws random numbers"),
}


def test_a_users_call_is_checked_or_says_truly_why_not(bench):
    ran = bench("import pytest, torch\n" + USERS, passed=len(OUTCOMES) + 4, failed=1)
    marks = {mark["params"].get("name", mark["name"].partition("[")[0][5:]): mark["extra_info"] for mark in ran.marks}
    records = {name: extra["gpubench"] for name, extra in marks.items() if name != "plain"}
    checks = {name: record["check"] for name, record in records.items() if record.get("check")}
    assert "rounding moves the result by" in checks.pop("cancelled")["reason"]
    assert {name: (check["status"], check["reason"]) for name, check in checks.items()} == OUTCOMES
    assert records["weights"]["dtype"] == "bfloat16"
    assert "relative error 0.01" in next(row["reason"] for row in ran.rows if "wrong_slow_first" in row["name"])


def test_the_coarsest_floating_dtype_names_a_case():
    several = {"float32", "bfloat16", "int64"}, {"complex64", "float32"}, {"uint8", "int64"}
    assert [coarsest(dtypes, "float32") for dtypes in several] == ["bfloat16", "float32", ""]
