"""The networks that are timed, written on torch's layers or built by ``transformers`` from a configuration.

All have random parameters; nothing is downloaded. Shapes: ``batch`` images are (batch, channels, height, width),
token ids are (batch, length).
"""

from __future__ import annotations

import torch
from torch import nn

from ..errors import Unmeasurable


def mlp(inputs: int = 784, width: int = 1024, outputs: int = 10, second: int | None = None) -> nn.Module:
    """Three linear layers with ReLU between them, ``second`` maybe narrower: (batch, inputs) to (batch, outputs)."""
    first, second = nn.Linear(inputs, width), second or width
    return nn.Sequential(first, nn.ReLU(), nn.Linear(width, second), nn.ReLU(), nn.Linear(second, outputs))


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling: (batch, 1, 32, 32) to (batch, 10).

    After LeCun, Bottou, Bengio, Haffner, *Gradient-based learning applied to document recognition*, 1998.
    ``width`` multiplies every hidden layer; ``first`` alone the first convolution's output.
    """

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
        """(batch, channels, 32, 32) to scores (batch, 10)."""
        scores: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return scores


class CifarNet(LeNet):
    """The small network of PyTorch's CIFAR-10 tutorial, LeNet on colours: (batch, 3, 32, 32) to (batch, 10).

    To widen ``first`` alone is the tutorial's exercise. It notes that a GPU hardly helps at width 1: there is too
    little work.
    """

    channels = 3


def deep_mlp(width: int = 512, layers: int = 8) -> nn.Sequential:
    """Equal linear layers, each with its tanh: (batch, width) to the same. It can be cut into equal stages."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)))


def tabular() -> nn.Module:
    """The network of the house-price example: (batch, 13) to (batch, 1) through 16 and 32."""
    return nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))


def encoder(width: int = 512, heads: int = 8, layers: int = 6) -> nn.Module:
    """The encoder of *Attention Is All You Need* (2017), base size: (batch, length, width) to the same."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class _FromTransformers(nn.Module):
    """A network that ``transformers`` builds from a class's default configuration; it returns one tensor."""

    def __init__(self, network: str, config: str, field: str, **options: int) -> None:
        super().__init__()
        try:
            import transformers
        except ImportError:
            raise Unmeasurable("transformers is not installed: pip install 'pytest-gpubench[models]'") from None
        self.network = getattr(transformers, network)(getattr(transformers, config)(**options))
        self.field = field

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.network(inputs)[self.field]
        return output


def resnet50() -> nn.Module:
    """ResNet-50 (He et al. 2015), 25.6 M parameters: (batch, 3, 224, 224) to (batch, 1000)."""
    return _FromTransformers("ResNetForImageClassification", "ResNetConfig", "logits", num_labels=1000)


def vit() -> nn.Module:
    """ViT-B/16 (Dosovitskiy et al. 2020), 86 M parameters: (batch, 3, 224, 224) to (batch, 1000)."""
    return _FromTransformers("ViTForImageClassification", "ViTConfig", "logits", num_labels=1000)


def bert() -> nn.Module:
    """BERT-base (Devlin et al. 2018), 110 M parameters: (batch, length) token ids to (batch, length, 768)."""
    return _FromTransformers("BertModel", "BertConfig", "last_hidden_state")


def gpt2() -> nn.Module:
    """GPT-2 small (Radford et al. 2019), 124 M parameters: (batch, length) token ids to (batch, length, 50257).

    It keeps keys and values for the next token, as transformers has it do by default.
    """
    return _FromTransformers("GPT2LMHeadModel", "GPT2Config", "logits")
