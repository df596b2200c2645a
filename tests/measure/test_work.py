"""Declarations of a case: numbers of any library, and nothing that a results file can't hold."""

import gc
import importlib
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch

from gpubench.errors import UsageError
from gpubench.measure.copies import copy_call
from gpubench.measure.work import Request, agree, count as count_copy, observe, plain_number, watched
from gpubench.runfile.schema import Work


def count(function, args, kwargs):
    return count_copy(copy_call(function, args, kwargs))


@pytest.mark.parametrize(
    ("value", "plain"),
    [(3, 3), (2.5, 2.5), (np.prod((3, 4)), 12), (np.float32(0.5), 0.5), (np.array([7]), 7), (torch.tensor(3), 3),
     (torch.ones(1), 1.0), (None, None), (16.0, 16), (np.float64(16), 16)],
)  # fmt: skip
def test_numbers_of_any_library_become_pythons_own(value, plain):
    number = plain_number("flops", value, whole=plain == 16)
    assert (number, type(number)) == (plain, type(plain))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, "above 0 and at most 1e+30, not 0"),
        (-1, "not -1"),
        (float("nan"), "above 0"),
        (float("inf"), "most 1e+30"),
        pytest.param(10**5000, "at most 1e+30", id="huge"),
        pytest.param(-(10**5000), "above 0", id="far below"),
        ("many", "a number, not str"),
        (True, "not bool"),
        ([1], "a number, not list"),
        (2.5, "a whole number, not 2.5"),
        (np.ones(2), "a single number"),
        (torch.ones(3), "a single number: a Tensor with 3 elements"),
    ],
)
def test_what_is_no_amount_is_refused_with_its_reason(value, says):
    with pytest.raises(UsageError) as caught:
        plain_number("flops", value, whole=value == 2.5)
    assert str(caught.value).startswith("flops must be ")
    assert says in str(caught.value)


@pytest.mark.parametrize("kind", ["flash", "efficient"])
def test_a_fused_attention_does_the_work_of_its_products(kind):
    """A fused backward pass makes the scores a second time: a fifth product that nobody asked for."""
    shapes = (2, 3, 64, 16), (2, 3, 32, 16), (2, 3, 32, 16)
    with torch.device("meta"):
        query, key, value = (torch.empty(shape, dtype=torch.float16, requires_grad=True) for shape in shapes)
        gradient, sums = torch.empty(2, 3, 64, 16, dtype=torch.float16), torch.empty(2, 3, 64)
        offset, number = torch.empty((), dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    with watched() as products:
        scores = (query @ key.transpose(-1, -2)).softmax(-1)
        (scores @ value).backward(gradient)
    aten = torch.ops.aten
    with watched() as fused:
        if kind == "flash":
            aten._scaled_dot_product_flash_attention(query, key, value)
            aten._scaled_dot_product_flash_attention_backward(
                gradient, query, key, value, gradient, sums, number, number, 64, 32, 0.0, False, offset, offset
            )
        else:
            aten._scaled_dot_product_efficient_attention(query, key, value, None, True)
            aten._scaled_dot_product_efficient_attention_backward(
                gradient, query, key, value, None, gradient, sums, offset, offset, 0.0, [True, True, True, False]
            )
    assert fused.flops == products.flops == 6 * 2 * 6 * 64 * 32 * 16


def test_a_sparse_product_does_the_work_of_its_elements():
    """torch counts it as if no element were zero."""
    dense, full = torch.eye(8), torch.randn(8, 3)
    for matrix, flops in ((dense, 2 * 8 * 8 * 3), (dense.to_sparse_csr(), 2 * 8 * 3)):
        with watched() as counter:
            torch.mm(matrix, full)
        assert counter.flops == flops


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_a_fused_causal_attention_counts_up_to_the_diagonal(kind):
    """Torch's own formula has the masked half too, which the kernels leave out."""
    with torch.device("meta"):
        query = torch.empty(2, 4, 64, 16, dtype=torch.float16)
        key, value = (torch.empty(2, 2, 64, 16, dtype=torch.float16) for _ in range(2))
    operator = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}_attention")
    further = {"flash": (0.0,), "efficient": (None, False, 0.0), "cudnn": (None, False, 0.0)}[kind]
    counted = {}
    for causal in (False, True):
        with watched() as counter:
            operator(query, key, value, *further, causal)
        counted[causal] = counter.flops
    assert counted[False] == 2 * 2 * 2 * 4 * 64 * 64 * 16
    assert counted[True] == counted[False] * 65 / 128


def test_a_call_that_only_allocates_launches_nothing():
    """It would be faster than the fastest launch, and taken for impossible."""
    alone, one = (count(call, (torch.ones(9),), {}) for call in (torch.empty_like, lambda x: x + torch.empty_like(x)))
    assert (alone.operations, alone.moved_bytes, one.operations) == (0, 0, 1)


def test_products_with_weights_of_8_bits_count_as_those_of_their_layer():
    inputs, weights, scales = torch.ones(3, 64), torch.ones(32, 64, dtype=torch.int8), torch.ones(32)
    assert count(torch._weight_int8pack_mm, (inputs, weights, scales), {}).flops == 2 * 3 * 64 * 32


def test_the_memory_of_a_call_is_that_of_its_inputs_and_of_all_it_makes():
    layers, x = [torch.nn.Linear(64, 64, bias=False) for _ in range(3)], torch.randn(1024, 64)
    row, weights = 1024 * 256, 3 * 64 * 256
    counted = count(lambda x: layers[2](layers[1](layers[0](x)).relu()).sum().backward(), (x,), {})
    assert row + weights + 2 * row < counted.memory_bytes < row + 2 * weights + 7 * row
    with torch.no_grad():
        assert count(lambda x: layers[1](layers[0](x)), (x,), {}).memory_bytes == row + 2 * weights // 3 + 2 * row


def test_what_a_call_is_seen_to_hold_is_what_it_holds():
    """Also results that a backward pass would have read; and torch.func.grad refuses hooks on saved tensors."""
    with watched() as seen:
        for _ in range(5):
            torch.ones(1000, requires_grad=True).exp()
    assert seen.peak == 2 * 4000
    assert count(torch.func.grad(lambda x: (x @ x).sum()), (torch.ones(8, 8),), {}).flops == 3 * 2 * 8**3


def test_what_is_written_into_given_room_moves_once():
    a, b = torch.ones(8), torch.ones(8)
    for function, given in ((torch.add, {}), (torch.add, {"out": torch.empty(8)}), (torch.Tensor.add_, {})):
        assert count(function, (a, b), given).moved_bytes == 3 * 32


COUNTED = """
import sys
import torch
from gpubench.measure import copies, outputs, work
a = torch.ones(8, 8)
counted = work.count(copies.copy_call(torch.mm, (a, a), {}))
with work.watched() as counter, outputs.poisoned():
    torch.empty(3) + torch.mm(a, a).sum()
print(counted.flops, counter.flops, counted.operations, "torch._dynamo" in sys.modules)
"""


def test_neither_counting_nor_checking_imports_torchs_compiler():
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1024.0", "1024.0", "1", "False"]


@pytest.mark.parametrize(
    ("call", "whole"),
    [
        (lambda x, index: x.sum(), True),
        (lambda x, index: x[1:-1] + x[2:] + x[:-2], True),
        (lambda x, index: x[0].sum(), False),
        (lambda x, index: x[index].sum(), False),
        (lambda x, index: torch.nn.functional.embedding(index, x), False),
        (lambda x, index: x.T, False),
    ],
)
def test_traffic_is_unknown_where_inputs_are_read_in_part(call, whole):
    x, index = torch.ones(64, 64), torch.arange(8)
    counted = count(lambda x: call(x, index.to(x.device)), (x,), {})
    assert counted.whole == whole
    assert (agree(Work(), counted).bytes is None) != whole
    assert agree(Work(bytes=5.0), counted).bytes == 5.0


def test_traffic_of_a_mean_of_random_numbers_is_no_four_bytes():
    assert agree(Work(), count(lambda: torch.rand(1000).mean(), (), {})).bytes is None
    assert agree(Work(), count(lambda: torch.rand(1000), (), {})).bytes == 4000.0


# What a call is made of -----------------------------------------------------------------------------------------------


def operators_of(call, *args):
    with watched() as seen:
        call(*args)
    return {(each.kind, each.count, each.flops, each.bytes) for each in seen.operators()}


def test_operators_are_known_by_kind_with_their_flops_and_bytes_and_equal_ones_are_one_entry():
    x = torch.ones(64, 64)
    assert operators_of(lambda: torch.softmax(x @ x, -1).add_(1)) == {
        ("product", 1, 2.0 * 64**3, 3 * 4.0 * 64**2),
        ("normalisation", 1, 0.0, 2 * 4.0 * 64**2),
        ("elementwise", 1, 0.0, 2 * 4.0 * 64**2),
    }
    row, index = torch.zeros(64), torch.arange(64)
    for irregular in (
        lambda: row.scatter_add(0, index, row),
        lambda: row.index_copy(0, index, row),
        lambda: row.index_fill(0, index, 1.0),
    ):
        assert "other" in {kind for kind, *_ in operators_of(irregular)}
    assert {kind for kind, *_ in operators_of(lambda: torch.sort(x))} == {"sort"}
    for moving in (lambda: torch.cat([x, x]), lambda: x.to(torch.float64), lambda: torch._foreach_add([x], 1.0)):
        assert {kind for kind, *_ in operators_of(moving)} == {"elementwise"}
    assert operators_of(lambda: x @ x @ x @ x) == {("product", 3, 3 * 2.0 * 64**3, 9 * 4.0 * 64**2)}
    sparse = torch.eye(8).to_sparse_csr()
    assert operators_of(torch.mv, sparse, torch.ones(8)) == set()  # nothing is claimed


@pytest.mark.parametrize(("kernel", "kind"), [(1, "product"), (3, "convolution")])
def test_a_convolution_of_single_points_is_a_product(kernel, kind):
    layer, image = torch.nn.Conv2d(4, 4, kernel, bias=False), torch.ones(1, 4, 8, 8)
    assert {each for each, *_ in operators_of(layer, image)} == {kind}


def test_a_module_that_a_counted_call_imports_stays_imported(tmp_path, monkeypatch):
    (tmp_path / "lately").mkdir()
    (tmp_path / "lately/__init__.py").write_text("def f(x):\n    import lately.sub\n    return lately.sub.g(x)\n")
    (tmp_path / "lately/sub.py").write_text("def g(x): return x @ x\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("lately").f
    assert count(function, (torch.ones(4, 4),), {}) is not None
    assert function(torch.ones(4, 4)).shape == (4, 4)


# What a real call shows -----------------------------------------------------------------------------------------------


def trained(optimizer, **terms):
    network = torch.nn.Linear(8, 4, bias=False)
    rule = optimizer(network.parameters(), **terms)

    def step(x):
        rule.zero_grad()
        loss = network(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    return step


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_training_step_is_counted_with_its_bytes_unknown(optimizer):
    counted = count(trained(optimizer), (torch.ones(16, 8),), {})
    assert counted.flops == 2 * (2 * 16 * 8 * 4)  # forward, and the gradient of the weights
    assert agree(Work(), counted).bytes is None  # parameters and state are written beside the result


def test_generation_of_tokens_is_counted():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    network = transformers.GPT2LMHeadModel(config).eval()
    prompt = torch.ones(1, 4, dtype=torch.int64)
    terms = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    counted = count(network.generate, (prompt,), terms)
    weights = 12 * 16 * 16
    linear = 2 * weights * (4 + 1 + 1) + 3 * 2 * 16 * 64
    assert linear < counted.flops < 1.2 * linear  # and attention


@pytest.mark.parametrize(("causal", "share"), [(False, 1), (True, 129 / 256)])
def test_attention_counts_as_the_one_operator_that_runs(causal, share):
    query = torch.randn(2, 4, 128, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    counted = count(lambda x: attend(x, x, x, is_causal=causal), (query,), {})
    assert (counted.flops, counted.operations) == (share * 4 * 2 * 4 * 128**2 * 16, 1)
    assert counted.memory_bytes < 2 * 2 * query.nbytes


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    ("network", "flops"),
    [
        (torch.nn.LSTM(8, 16, 2, bidirectional=True), 2 * 15 * 2 * (64 * 8 + 64 * 16 + 64 * 32 + 64 * 16)),
        (torch.nn.GRU(8, 16), 2 * 15 * (48 * 8 + 48 * 16)),
        (torch.nn.TransformerEncoderLayer(8, 2, 32), 2 * 15 * (4 * 8 * 8 + 2 * 8 * 32) + 4 * 3 * 5 * 5 * 8),
    ],
    ids=["lstm", "gru", "encoder"],
)
def test_layers_that_a_cpu_fuses_are_counted(network, flops, grad):
    with torch.set_grad_enabled(grad):
        assert count(network.eval(), (torch.randn(5, 3, 8),), {}).flops == flops


def test_a_backward_pass_through_a_fused_layer_counts_twice():
    network, x = torch.nn.LSTM(8, 16), torch.randn(5, 3, 8, requires_grad=True)
    once = count(network, (x,), {}).flops
    assert count(lambda x: network(x)[0].sum().backward(), (x,), {}).flops == 3 * once


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_simulated_gpu_computes_products_of_16_bits_in_float32(dtype):
    """Many CPUs emulate them: a product of 2048 in float16 takes half a minute."""
    computed = []

    class Computed(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            if operator._schema.name.endswith("mm"):
                computed.append(args[1].dtype)
            return operator(*args, **kwargs or {})

    def call(a, out):
        return torch.nn.functional.linear(a, a, a[0]), (a[None] @ a[None])[0], torch.mm(a, a, out=out)

    a, kept = torch.randn(8, 8).to(dtype), []
    with Computed():
        out = torch.empty_like(a)
        load, results = observe(Request(call, (a, out)), None, "", kept.append, call, a, out)
    assert computed == [torch.float32] * 3
    assert [each.dtype for each in results] == [dtype] * 3
    assert results[2] is out
    assert torch.equal(out, (a.float() @ a.float()).to(dtype))
    assert (load.flops, kept[0].memory_bytes) == (3 * 2 * 8**3, 4 * a.nbytes)


def test_a_counted_copy_is_freed_without_the_garbage_collector():
    copied = copy_call(lambda x: x.neg(), (torch.ones(8),), {})
    storage = weakref.ref(copied.args[0].untyped_storage())
    gc.collect()
    gc.disable()
    try:
        count_copy(copied)
        del copied
        assert storage() is None
    finally:
        gc.enable()
