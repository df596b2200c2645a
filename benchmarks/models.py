"""The networks that are timed, written with torch's layers or built by ``transformers`` from a configuration, with
random parameters: nothing is downloaded. Shapes: images are (batch, channels, height, width), token ids (batch,
length)."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from gpubench.errors import Unmeasurable, WrongAnswer
from gpubench.measure.data import Data, require_memory
from gpubench.measure.verify import in_float64


def kept(build: Callable[..., nn.Module], **options: Any) -> Callable[[], nn.Module]:
    """Return a function that returns a copy of the network ``build(**options)``, which is built once for each seed."""
    return lambda: copy.deepcopy(_built(build, torch.initial_seed(), tuple(options.items())))


@functools.lru_cache(maxsize=2)
def _built(build: Callable[..., nn.Module], seed: int, options: tuple[tuple[str, Any], ...]) -> nn.Module:
    return build(**dict(options))


def mlp(inputs: int = 784, width: int = 1024, outputs: int = 10, second: int | None = None) -> nn.Module:
    """Return three linear layers with ReLU between them: (batch, inputs) to (batch, outputs)."""
    first, second = nn.Linear(inputs, width), second or width
    return nn.Sequential(first, nn.ReLU(), nn.Linear(width, second), nn.ReLU(), nn.Linear(second, outputs))


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al. 1998) with ReLU and max pooling: (batch, 1, 32, 32) to (batch, 10). ``width`` multiplies
    every hidden layer; ``first`` alone the first convolution's output."""

    channels = 1

    def __init__(self, width: int = 1, first: int | None = None) -> None:
        super().__init__()
        early, late = 6 * (first or width), 16 * width
        self.features = nn.Sequential(
            nn.Conv2d(self.channels, early, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(early, late, 5), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = mlp(late * 5 * 5, 120 * width, 10, 84 * width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map (batch, channels, 32, 32) to scores (batch, 10)."""
        scores: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return scores


class CifarNet(LeNet):
    """The small network of PyTorch's CIFAR-10 tutorial, LeNet on colours: (batch, 3, 32, 32) to (batch, 10). The
    tutorial's exercise is to widen the ``first`` layer alone."""

    channels = 3


def deep_mlp() -> nn.Sequential:
    """Return eight linear layers, each followed by tanh: (batch, 512) to the same."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(8)))


def encoder() -> nn.Module:
    """The encoder of *Attention Is All You Need* (2017), base size: (batch, length, 512) to the same."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        if getattr(error, "name", None) == "transformers":
            raise Unmeasurable("transformers is not installed: pip install transformers") from None
        reason = str(error).strip().partition("\n")[0]
        raise Unmeasurable(f"transformers can't be imported: {reason}") from error
    return transformers


class _FromTransformers(nn.Module):
    """A network that ``transformers`` builds from a class's default configuration with the given options; it returns
    one tensor."""

    def __init__(self, network: str, config: str, field: str, **options: Any) -> None:
        super().__init__()
        library, self.field = _transformers(), field
        self.network = getattr(library, network)(getattr(library, config)(**options))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.network(inputs)[self.field]
        return output


RESNET50_FLOPS = {"forward": 8_178_368_512.0, "training": 24_299_077_632.0}
"""FLOPs of an image, so that a batch that takes minutes on a CPU is skipped before its first call."""
resnet50 = partial(_FromTransformers, "ResNetForImageClassification", "ResNetConfig", "logits", num_labels=1000)
"""ResNet-50 (He et al. 2015), 25.6 M parameters: (batch, 3, 224, 224) to (batch, 1000)."""
vit = partial(_FromTransformers, "ViTForImageClassification", "ViTConfig", "logits", num_labels=1000)
"""ViT-B/16 (Dosovitskiy et al. 2020), 86 M parameters: (batch, 3, 224, 224) to (batch, 1000)."""
bert = partial(_FromTransformers, "BertModel", "BertConfig", "last_hidden_state")
"""BERT-base (Devlin et al. 2018), 110 M parameters: (batch, length) token ids to (batch, length, 768)."""
gpt2 = partial(_FromTransformers, "GPT2LMHeadModel", "GPT2Config", "logits")
"""GPT-2 small (Radford et al. 2019), 124 M parameters: (batch, length) token ids to (batch, length, 50257). It keeps
keys and values for the next token, which is the default of transformers."""


def _llama(vocabulary: int, width: int, inner: int, layers: int, heads: tuple[int, int], tied: bool) -> dict[str, Any]:
    """Return a configuration; ``heads`` are the numbers of query heads, and of the key and value heads that they
    share."""
    return {
        "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "tie_word_embeddings": tied,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    }  # fmt: skip


LLAMAS = {
    "10M": _llama(16_000, 256, 704, 8, (4, 2), tied=True),
    "125M": _llama(32_000, 768, 2048, 12, (12, 4), tied=False),
    "1B": _llama(128_256, 2048, 8192, 16, (32, 8), tied=True),
    "8B": _llama(128_256, 4096, 14_336, 32, (32, 8), tied=False),
}
"""Decoders by number of parameters, all with heads of size 64 or 128. 1B has the shapes of Llama 3.2, 8B those of Llama
3."""


def llama(size: str) -> nn.Module:
    """Return a decoder (Touvron et al., *LLaMA*, 2023) without a cache, for training: (batch, length) token ids to
    (batch, length, vocabulary)."""
    return _FromTransformers("LlamaForCausalLM", "LlamaConfig", "logits", **LLAMAS[size], use_cache=False)


class Decoder(nn.Module):
    """The same decoder with memory for the keys and values of ``length`` tokens, as in an inference engine. A call
    takes the (batch, n) token ids that follow the first ``start`` tokens in the cache, and writes their keys and values
    after them. No other state is kept, so the same call always does the same work."""

    start = 0
    network: Any
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, size: str, batch: int, length: int) -> None:
        super().__init__()
        library, self._cache_type = _transformers(), _cache_type()
        config = library.LlamaConfig(**LLAMAS[size])
        self.network = library.LlamaForCausalLM(config)
        shape = config.num_hidden_layers, batch, config.num_key_value_heads, length, config.head_dim
        for name in ("keys", "values"):
            self.register_buffer(name, torch.empty(shape), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map (batch, n) token ids to scores of the next token, (batch, vocabulary)."""
        end = self.start + tokens.shape[1]
        positions = torch.arange(self.start, end, device=tokens.device).unsqueeze(0)
        cache = self._cache_type(self.keys, self.values, self.start)
        options = {"position_ids": positions, "past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
        scores: torch.Tensor = self.network(input_ids=tokens, **options).logits
        return scores[:, -1]

    def flops(self, batch: int, count: int) -> float:
        """Return the FLOPs of a call with (batch, count) tokens: two for each weight of a product and token (in the
        last product for the last token alone), and four for each pair of tokens, head and element of a head. The first
        tokens attend to those before them alone."""
        head = self.network.get_output_embeddings()
        linear = [module for module in self.network.modules() if isinstance(module, nn.Linear)]
        weights = sum(module.weight.numel() for module in linear if module is not head)
        config, layers = self.network.config, len(self.keys)
        pairs = count * (self.start + count) if self.start else count * (count + 1) / 2
        attention = 4 * layers * config.num_attention_heads * config.head_dim * pairs
        return float(batch * (2 * weights * count + 2 * head.weight.numel() + attention))

    def least_bytes(self, batch: int, count: int) -> int:
        """Return the minimum memory traffic of a call with (batch, count) tokens: every weight once, but of the
        embedding only the tokens' rows; the cache up to the last token; the scores."""
        table = self.network.get_input_embeddings().weight
        parts = *self.network.parameters(), *self.network.buffers()
        weights: dict[int, int] = {id(each): each.nbytes for each in parts}
        if self.network.get_output_embeddings().weight is not table:
            weights[id(table)] = table[0].nbytes * batch * count
        cache = (self.keys.nbytes + self.values.nbytes) // self.keys.shape[3] * (self.start + count)
        scores: int = batch * table.shape[0] * table.element_size()
        return sum(weights.values()) + cache + scores


@functools.cache
def _cache_type() -> Any:
    """Return the class that ``transformers`` accepts as a cache, made of (keys, values, start): tensors of (layers,
    batch, heads, length, size) in which the first ``start`` tokens are known."""
    library = _transformers()

    class FixedCache(library.Cache):  # type: ignore[misc, name-defined]
        is_compileable = False
        layers = ()

        def __init__(self, keys: torch.Tensor, values: torch.Tensor, start: int) -> None:
            self._keys, self._values, self._start = keys, values, start

        def update(self, key: Any, value: Any, layer: int, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
            end = self._start + key.shape[2]
            self._keys[layer, :, :, self._start : end] = key
            self._values[layer, :, :, self._start : end] = value
            return self._keys[layer, :, :, :end], self._values[layer, :, :, :end]

        def get_seq_length(self, *_: Any) -> int:
            return self._start

        get_query_offset = get_seq_length

        def get_mask_sizes(self, queries: Any, *_: Any) -> tuple[int, int]:
            return self._start + (queries if isinstance(queries, int) else len(queries)), 0

    return FixedCache


VALUES_DRAWN = 4_194_301
"""Number of random values that all weights of a decoder repeat: a prime, so that no two rows are equal."""
INITIAL_STD = 0.02
"""Standard deviation of the weights, the initial one in the networks of ``transformers``."""
CHOICE_TOLERANCE = 1e-2
"""A chosen token's score may be below the best one by this share of the largest score: rounding may swap two that are
so close."""


def _deviations(network: Any) -> dict[int, float]:
    """Return standard deviations of the weights of modules, by id, that aren't :data:`INITIAL_STD`: products whose
    result is added to the input of the next layer are smaller by the square root of their number (Radford et al. 2019),
    and an embedding table that isn't shared with the last product is standard normal. Otherwise rounding errors would
    grow from layer to layer until no check could distinguish them from an error."""
    layers, table = network.model.layers, network.get_input_embeddings()
    added = [part for layer in layers for part in (layer.self_attn.o_proj, layer.mlp.down_proj)]
    tied = network.get_output_embeddings().weight is table.weight
    return {id(part): INITIAL_STD / math.sqrt(len(added)) for part in added} | ({} if tied else {id(table): 1.0})


def on_device(build: Callable[[], Decoder], data: Data) -> Decoder:
    """Return the decoder that ``build`` makes, created on its device: no other memory ever holds it. Its matrices and
    its cache repeat :data:`VALUES_DRAWN` random values from the seed; vectors, the weights of norms, are all ones.
    Raises :class:`~gpubench.errors.TooLarge` before any memory is allocated if it doesn't fit."""
    with torch.device("meta"):
        decoder = build().eval().to(data.dtype)
    require_memory(sum(tensor.nbytes for tensor in (*decoder.parameters(), *decoder.buffers())), data.home)
    network: Any = decoder.network
    stds = _deviations(network)
    head, table = network.get_output_embeddings(), network.get_input_embeddings()
    tied = head.weight is table.weight
    decoder.to_empty(device=data.device).requires_grad_(False)
    if tied:
        head.weight = table.weight
    values = data.randn(VALUES_DRAWN)
    for turn, module in enumerate(decoder.modules()):
        for tensors, std in ((module.parameters, stds.get(id(module), INITIAL_STD)), (module.buffers, 1.0)):
            for tensor in tensors(recurse=False):
                _fill(tensor, values.roll(turn * 99_991), std)
    body = network.model
    body.rotary_emb = type(body.rotary_emb)(config=network.config).to(data.device)  # computed in float32
    return decoder


def _fill(tensor: torch.Tensor, values: torch.Tensor, std: float) -> None:
    """Fill a matrix with the values, repeated and times ``std``; a vector with ones."""
    if tensor.dim() < 2:
        tensor.fill_(1)
    else:
        whole = values.repeat(-(-tensor.numel() // len(values)))[: tensor.numel()]
        tensor.copy_(whole.mul_(std).view(tensor.shape))


class Served(nn.Module):
    """A network with a request's copies: inputs come from the host, and the answer is copied to it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map inputs on the host to answers on the host."""
        answer: torch.Tensor = self.network(inputs.to(next(self.network.parameters()).device))
        return answer.cpu()


class ServedDecoder(Served):
    """A decoder that answers a prompt with the scores of ``count`` tokens, always the most likely ones; ``chosen`` are
    the tokens of the latest answer, (batch, count), on the host. The answer depends on the network's own choices, and
    :meth:`reference` checks it along these."""

    def __init__(self, network: Decoder, count: int) -> None:
        super().__init__(network)
        self._count = count
        self.chosen = torch.empty(0)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (batch, n) token ids to scores (batch, count)."""
        decoder: Any = self.network
        tokens, decoder.start = inputs.to(next(decoder.parameters()).device), 0
        scores, chosen = list[torch.Tensor](), list[torch.Tensor]()
        for _ in range(self._count):
            best, tokens = (part.unsqueeze(1) for part in decoder(tokens).max(1))
            decoder.start = inputs.shape[1] + len(chosen)
            scores.append(best)
            chosen.append(tokens)
        self.chosen = torch.cat(chosen, 1).cpu()
        return torch.cat(scores, 1).cpu()

    def reference(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a reference for ``check``: the scores of the tokens chosen last, from one pass over prompt and
        answer in float64 without a cache. It raises :class:`~gpubench.errors.WrongAnswer` if another token is clearly
        better."""
        decoder: Any = self.network
        whole = in_float64(decoder.network)

        def scores(prompt: torch.Tensor) -> torch.Tensor:
            tokens = torch.cat((prompt, self.chosen[:, :-1]), 1)
            every = whole(input_ids=tokens, use_cache=False).logits[:, prompt.shape[1] - 1 :]
            taken: torch.Tensor = every.gather(2, self.chosen.unsqueeze(2)).squeeze(2)
            short = ((every.amax(2) - taken) / every.abs().amax()).amax().item()
            if not short <= CHOICE_TOLERANCE:
                raise WrongAnswer(f"wrong token: its score is {short:.3g} of the largest below the best one")
            return taken

        return scores
