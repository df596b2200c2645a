"""GPUs with their makers' figures. ``cards.json`` names the source of each figure; figures without a source are left
out."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ..errors import UsageError

_TABLE = Path(__file__).with_name("cards.json")
UNITS = {
    **dict.fromkeys(("float32", "tf32", "half", "float64"), "FLOP/s"), "memory": "B/s", "cache": "B", "watt": "W",
    "link": "B/s", "capacity": "B", **dict.fromkeys(("float32_reached", "tf32_reached", "half_reached"), "FLOP/s"),
    "memory_reached": "B/s",
}  # fmt: skip
"""The figures of a GPU: arithmetic by dtype, without sparsity; ``link`` to the host, one direction; ``cache``, the last
level; ``watt``, the power limit; what somebody's largest products, and somebody's streaming kernels, reached."""
PEAKS = {"float32": "float32", "tf32": "tf32", "float16": "half", "bfloat16": "half", "float64": "float64"}
"""The figure that holds the FLOP/s of each dtype."""


class Sourced(Struct, frozen=True):
    """A number from a datasheet, in SI base units, and its source."""

    value: Annotated[float, Meta(gt=0, le=1e30)]
    source: str
    note: str = ""


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU. ``beats_datasheet``: its clock exceeds the boost that its datasheet assumes, as with GeForce.
    ``emulates``: dtypes for which it has no units."""

    figures: dict[str, Sourced]
    aliases: tuple[str, ...] = ()
    beats_datasheet: bool = False
    emulates: tuple[str, ...] = ()
    name: str = ""

    def value(self, figure: str) -> float | None:
        """Return a figure's number; ``None`` where no source has it."""
        return self.figures[figure].value if figure in self.figures else None

    def flop_per_s(self, dtype: str) -> float | None:
        """Return the peak FLOP/s in this dtype; ``None`` if unknown."""
        return self.value(PEAKS[dtype]) if dtype in PEAKS else None


class _Table(Struct, frozen=True):
    cards: dict[str, Gpu]
    sources: dict[str, str]
    read: str


@functools.cache
def read_cards() -> tuple[dict[str, Gpu], dict[str, str]]:
    """Return all cards by name and all sources by name."""
    table = msgspec.json.decode(_TABLE.read_bytes(), type=_Table)
    cards = {name: msgspec.structs.replace(card, name=name) for name, card in table.cards.items()}
    return cards, {name: f"{text}, read {table.read}" for name, text in table.sources.items()}


def find_card(name: str, cards: Mapping[str, Gpu]) -> Gpu:
    """Return the card of a name; capitals, spaces, hyphens and the maker's name don't matter, and the end of a name
    that no other card shares is enough, as ``4090``.

    Raises :class:`UsageError` with the nearest names.
    """
    known = {_plain(each): card for card in cards.values() for each in (card.name, *card.aliases)}
    if (plain := _plain(name)) in known:
        return known[plain]
    ends = {card.name for key, card in known.items() if len(plain) > 3 and key.endswith(plain)}
    if len(ends) == 1:
        return cards[ends.pop()]
    model = next((word for word in re.findall(r"[a-z0-9]+", name.lower()) if re.search(r"\d", word)), plain)
    part = [card.name for key, card in known.items() if model and key.startswith((plain or model, model))]
    near = part or [known[key].name for key in difflib.get_close_matches(plain, known, n=3, cutoff=0.6)]
    meant = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else "gpubench estimate --list shows all"
    raise UsageError(f"unknown GPU {name!r}: {meant}")


def _plain(name: str) -> str:
    return re.sub(r"nvidia|geforce|tesla|amd|intel|graphics|\((r|tm)\)|[^a-z0-9]", "", name.lower())
