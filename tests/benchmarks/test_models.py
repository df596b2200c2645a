"""The decoder remembers its input: with a cache it answers as without one. It is made where it is used, from
the seed, and one that doesn't fit says so first."""

import sys

import pytest
import torch

from benchmarks import models
from gpubench.devices import CPU
from gpubench.devices.base import Memory
from gpubench.errors import TooLarge, Unmeasurable, WrongAnswer
from gpubench.measure.copies import copy_call
from gpubench.measure.data import Data
from gpubench.measure.work import count

PROMPT, MORE = 16, 16

pytestmark = pytest.mark.usefixtures("one_thread")


def data(dtype=torch.float32, seed=0):
    return Data(CPU, dtype, seed)


def decoder(batch=2, length=PROMPT + MORE, dtype=torch.float32, **options):
    return models.on_device(lambda: models.Decoder("10M", batch, length, **options), data(dtype))


def every_score(network, tokens):
    """Of all positions, in one pass without a cache."""
    return network.network(input_ids=tokens, use_cache=False).logits


def difference(scores, expected):
    return ((scores - expected).abs().max() / expected.abs().max()).item()


@torch.inference_mode()
def test_prefill_and_decode_are_one_forward_pass_of_the_whole_and_need_no_cache():
    network, tokens = decoder(), data().randint(16_000, (2, PROMPT + MORE))
    whole = every_score(network, tokens)
    parts = [network(tokens[:, :PROMPT])]
    for network.start in range(PROMPT, PROMPT + MORE):
        parts.append(network(tokens[:, network.start : network.start + 1]))
        assert difference(parts[-1], every_score(network, tokens[:, : network.start + 1])[:, -1]) < 1e-4
    assert difference(torch.stack(parts, 1), whole[:, PROMPT - 1 :]) < 1e-4
    network.start = PROMPT  # several at once see each other, and what came before
    assert difference(network(tokens[:, PROMPT:]), whole[:, -1]) < 1e-4


@torch.inference_mode()
def test_a_step_does_the_same_however_often_it_is_made():
    network, tokens = decoder(), data().randint(16_000, (2, 1))
    network.start = PROMPT
    cache = network.keys.clone(), network.values.clone()
    first = network(tokens)
    assert torch.equal(network(tokens), first)
    for before, after in zip(cache, (network.keys, network.values), strict=True):
        changed = (before != after).any(dim=(0, 1, 2, 4))
        assert changed.nonzero().flatten().tolist() == [PROMPT]


def test_random_weights_are_of_the_seed_and_no_two_rows_are_alike():
    first, again, other = decoder(), decoder(), models.on_device(lambda: models.Decoder("10M", 1, 4), data(seed=1))
    layers = first.network.model.layers
    assert torch.equal(layers[3].mlp.up_proj.weight, again.network.model.layers[3].mlp.up_proj.weight)
    assert not torch.equal(layers[3].mlp.up_proj.weight, other.network.model.layers[3].mlp.up_proj.weight)
    assert not torch.equal(layers[0].mlp.up_proj.weight, layers[1].mlp.up_proj.weight)
    weights = first.network.lm_head.weight
    assert weights.std().item() == pytest.approx(models.INITIAL_STD, rel=0.01)
    assert len(torch.unique(weights, dim=0)) == len(weights)
    frequencies = decoder(dtype=torch.bfloat16).network.model.rotary_emb.inv_freq
    assert frequencies.dtype == torch.float32  # positions turn by angles that bfloat16 can't tell apart


def test_a_network_is_built_once_for_each_seed_and_each_case_has_a_copy_of_its_own():
    built = []

    def build(width):
        built.append(width)
        return torch.nn.Linear(width, 1)

    first, second = (data().module(models.kept(build, width=3)) for _ in range(2))
    assert built == [3]
    assert torch.equal(first.weight, second.weight)
    assert first.weight.data_ptr() != second.weight.data_ptr()
    assert not torch.equal(data(seed=1).module(models.kept(build, width=3)).weight, first.weight)
    assert torch.equal(data().module(lambda: torch.nn.Linear(3, 1)).weight, first.weight)


@pytest.mark.parametrize(("size", "parameters"), [("10M", 10.0e6), ("125M", 125e6), ("1B", 1.24e9), ("8B", 8.03e9)])
def test_sizes_are_what_they_are_called(size, parameters):
    with torch.device("meta"):
        network = models.Decoder(size, 1, 1)
    assert sum(each.numel() for each in network.parameters()) == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('no module named httpx\\nmore')", "transformers can't be imported: no module named httpx"),
        ("import transformers_isnt", "transformers can't be imported: No module named 'transformers_isnt'"),
        ("raise ImportError(name='transformers')", "transformers is not installed: pip install"),
    ],
)
def test_networks_of_a_library_that_fails_to_import_have_its_reason(source, reason, tmp_path, monkeypatch):
    (tmp_path / "transformers.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Unmeasurable) as error:
        models.bert()
    assert str(error.value).startswith(reason)
    assert "more" not in str(error.value)


def test_one_that_does_not_fit_says_by_how_much_before_it_takes_memory(monkeypatch):
    monkeypatch.setattr(type(CPU), "memory", lambda self: Memory(free=1_000_000_000, total=2_000_000_000))
    monkeypatch.setattr(models, "_fill", None)
    with pytest.raises(TooLarge, match=r"needs 16\.1 GB more on cpu, 1\.00 GB are free"):
        models.on_device(lambda: models.Decoder("8B", 1, 128), data(torch.bfloat16))


def test_least_bytes_of_a_step_are_weights_cache_and_scores():
    network = decoder(batch=2)
    network.start = PROMPT
    weights = sum(each.nbytes for each in network.network.parameters())
    per_token = 2 * 8 * 2 * 2 * 64 * 4  # keys and values, layers, sequences, heads, size, bytes
    small = sum(each.nbytes for each in network.network.buffers())
    assert network.least_bytes(2, 1) == weights + small + per_token * (PROMPT + 1) + 2 * 16_000 * 4
    # an untied table is read by the rows of the tokens
    with torch.device("meta"):
        network = models.Decoder("125M", 1, 1)
    every = sum(each.nbytes for each in (*network.parameters(), *network.buffers()))
    assert network.least_bytes(1, 1) == every - (32_000 - 1) * 768 * 4 + 32_000 * 4


@pytest.mark.parametrize(("start", "more"), [(0, PROMPT), (PROMPT, 1), (PROMPT, MORE)])
@torch.inference_mode()
def test_flops_are_those_that_torch_counts(start, more):
    network = decoder(batch=2)
    network.start = start
    counted = count(copy_call(network, (data().randint(16_000, (2, more)),), {}))
    assert network.flops(2, more) == pytest.approx(counted.flops, rel=1e-3)


@torch.inference_mode()
def test_an_answer_is_checked_along_its_own_tokens():
    served = models.ServedDecoder(decoder(), MORE)
    prompt = data().randint(16_000, (2, PROMPT))
    check = served.reference()
    scores = served(prompt)
    assert scores.shape == served.chosen.shape == (2, MORE)
    assert difference(scores, check(prompt)) < 1e-4
    assert torch.equal(served(prompt), scores)
    served.chosen[0, 3] = (served.chosen[0, 3] + 1) % 16_000
    with pytest.raises(WrongAnswer, match="wrong token: its score is"):
        check(prompt)


def test_a_served_network_takes_its_input_from_the_host_and_leaves_its_answer_there():
    network = models.Served(torch.nn.Linear(4, 2))
    copied = copy_call(network, (torch.ones(3, 4),), {})
    assert count(copied).flops == 2 * 3 * 4 * 2
    meta = models.Served(torch.nn.Linear(4, 2, device="meta"))
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        meta(torch.ones(3, 4))
