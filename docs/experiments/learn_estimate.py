"""Learn what ``gpubench estimate`` calls probable from timings of others, and measure how wrong it is.

    python docs/experiments/learn_estimate.py [--networks] [--write]

``neusight_operators.csv.gz`` has calls of one operator (``op,card,milliseconds,b,m_or_h,n,k``),
``neusight_networks.csv`` whole networks (``card,network,mode,tokens,batch,milliseconds,layers``): parts of the public
test set of NeuSight (S. Lee et al., ASPLOS 2025, github.com/sitar-lab/NeuSight, MIT licence), in float32 without TF32.
Each card is left out in turn, with all that was published of it but its datasheet and the rate of its memory, and half
of the shapes is compared with what the other half teaches on the other cards. ``--write`` replaces the factors that the
package ships, which are learned from all. The whole networks need ``transformers``, and some minutes.

What is learned is an interval of locally weighted split conformal prediction (J. Lei et al., *Distribution-Free
Predictive Inference for Regression*, 2018) for calls that come in groups, the cards: the distribution of the residuals
is the mean of the cards' distributions (R. Dunn, L. Wasserman, A. Ramdas, *Distribution-Free Prediction Sets for
Two-Layer Hierarchical Models*, 2022). The residual of a card's call is its distance from what the other cards teach.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from gpubench.cards.datasheets import Gpu, find_card, read_cards
from gpubench.cards.model import (
    BASES,
    DISPATCH_S,
    LEARNED,
    STREAMING,
    Factor,
    Learned,
    Shares,
    arithmetic_s,
    learned_values,
    likely,
    memory_s,
    overlapping_s,
    reached,
    shortest,
    spread,
)
from gpubench.runfile.schema import Operators, Work

HERE = Path(__file__).parent
SHORTEST_S = 1e-4
"""Shortest time that is used, in seconds: 24 to 36 µs of each timing are its harness."""
TAILS = {"product": (0.14, 0.07), "elementwise": (0.06, 0.07), STREAMING: (0.002, 0.09), "normalisation": (0.01, 0.01)}
"""Share of the residuals below and above the range: about those of the narrowest at which 82 % of each card's times lay
within, on the half of the shapes that teaches."""
SORT = Factor(2.7, 0.0, 0.4, math.sqrt(2))
"""Not learned: a radix sort of 32-bit keys reads and writes them four times, at 77 % of the memory's rate (CUB, 67
million pairs of 4 bytes, on an RTX 5090, github.com/IlyaGrebnov/libcusort) or 40 % (CUB, 256 million keys, on an A100,
arXiv:2206.01784). torch's 8-byte indices make 1.5 times the bytes that are counted, so it takes 1.9 to 3.7 times as
long as these. Rows that fit a block need a single pass."""
SMALL_S = 2e-5
"""Longer than this, and published rates of an RTX 4090 and 5090 at n=1024 would lie outside."""
KINDS = tuple(BASES)
TWO_TENSORS = ("add", "mul", "div", "pow")


@dataclass(frozen=True)
class Timing:
    """One call on one card: its work and its time in seconds."""

    card: Gpu
    operator: Operators
    seconds: float

    @property
    def work(self) -> Work:
        return Work(self.operator.flops, self.operator.bytes, operators=(self.operator,))

    @property
    def teaches(self) -> bool:
        """The half of the shapes, on all cards, that ranges are learned from when they are compared with the other."""
        return crc32(f"{self.work.flops} {self.work.bytes}".encode()) % 2 == 0


def operator_of(row: Mapping[str, str]) -> Operators:
    """Return the operator with its FLOPs and least bytes in float32."""
    b, m = float(row["b"]), float(row["m_or_h"])
    if row["op"] in ("bmm", "linear"):
        n, k = float(row["n"]), float(row["k"])
        moved = b * m * k + (1 if row["op"] == "linear" else b) * k * n + b * m * n
        return Operators("product", 1, 2 * b * m * k * n, 4 * moved)
    kind = "normalisation" if row["op"] in ("softmax", "ln") else "elementwise"
    return Operators(kind, 1, 0.0, 4 * b * m * (3 if row["op"] in TWO_TENSORS else 2))


def read_timings(cards: Mapping[str, Gpu]) -> list[Timing]:
    with gzip.open(HERE / "neusight_operators.csv.gz", "rt", encoding="utf-8") as file:
        return [
            Timing(find_card(row["card"], cards), operator_of(row), float(row["milliseconds"]) / 1e3)
            for row in csv.DictReader(file)
        ]


def shares_of(cards: Iterable[Gpu]) -> Shares:
    """Return the line and the medians of what these cards are known to reach of their peaks: least squares on the
    logarithms."""
    cards, lists = list(cards), {}
    for name in ("float32", "tf32", "half"):
        both = [(card.value(f"{name}_reached"), card.value(name), card.value("watt") or 0.0) for card in cards]
        lists[name] = [(peak / watt, known / peak) for known, peak, watt in both if known and peak]
    x, y = ([math.log(each[i]) for each in lists["float32"]] for i in (0, 1))
    slope, intercept = statistics.linear_regression(x, y)
    return Shares(
        intercept, slope, *(statistics.median(share for _, share in lists[name]) for name in ("tf32", "half"))
    )


Calls = Mapping[str, Sequence[tuple[float, float, float]]]
"""For each card the seconds of arithmetic and of memory, and the time, of each call."""


def lacking(card: Gpu, figure: str) -> Gpu:
    figures = {name: each for name, each in card.figures.items() if name != figure}
    return msgspec.structs.replace(card, figures=figures)


def kept_apart(card: Gpu, cards: Iterable[Gpu]) -> tuple[Gpu, Shares]:
    """Return the card without the published rate of its products, and the shares without the card."""
    return lacking(card, "float32_reached"), shares_of(each for each in cards if each.name != card.name)


def times_of(calls: Calls, small_s: float, cards: Collection[str]) -> float:
    """Return the geometric mean of these cards' medians."""
    rooflines = {card: [(t, overlapping_s(a, m)) for a, m, t in calls[card]] for card in cards}
    medians = [statistics.median((t - min(s, small_s)) / s for t, s in each) for each in rooflines.values()]
    return statistics.geometric_mean(medians)


def pooled(residuals: Iterable[Sequence[float]], share: float) -> float:
    """Return the quantile of the mean of the cards' distributions."""
    weighted = sorted((value, 1 / len(each)) for each in residuals for value in each)
    sums = itertools.accumulate(weight for _, weight in weighted)
    total = sum(weight for _, weight in weighted)
    return next(value for (value, _), reached in zip(weighted, sums, strict=True) if reached >= share * total)


def learn(calls: Calls, small_s: float, below: float, above: float) -> Factor:
    """Return the factor: its middle from all cards, its range from how far each lay from what the others taught."""
    lows, highs = [], []  # as the range is made: a launch of DISPATCH_S is added to its high end
    for name, own in calls.items():
        middle = Factor(times_of(calls, small_s, calls.keys() - {name}), small_s, 1.0, 1.0).middle
        lows.append([math.log(seconds / middle(a, m)) for a, m, seconds in own])
        highs.append([math.log((seconds - DISPATCH_S) / middle(a, m)) / spread(a, m) for a, m, seconds in own])
    low, high = pooled(lows, below), pooled(highs, 1 - above)
    return Factor(times_of(calls, small_s, calls), small_s, math.exp(low), math.exp(high))


def learn_all(timings: Iterable[Timing], cards: Iterable[Gpu]) -> dict[str, Factor]:
    """Return the factor of each kind; each card as if nothing but its datasheet and its memory's rate were known."""
    used: dict[str, dict[str, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    cards = list(cards)
    for name, own in grouped(timings).items():
        card, shares = kept_apart(own[0].card, cards)
        rate = reached("float32", card, shares)
        for each in own:
            arithmetic, memory = arithmetic_s(each.operator.flops, rate), memory_s(each.operator.bytes, card)
            streamed = memory_s(each.operator.bytes, card, figure="memory_reached")
            used[each.operator.kind][name].append((arithmetic or 0.0, memory or 0.0, each.seconds))
            if each.operator.kind == "elementwise" and streamed is not None:
                used[STREAMING][name].append((0.0, streamed, each.seconds))
    return {kind: learn(calls, SMALL_S * (kind == "product"), *TAILS[kind]) for kind, calls in used.items()}


def without(name: str, timings: Iterable[Timing], cards: Iterable[Gpu]) -> dict[str, Factor]:
    """Return what the other cards teach."""
    others = [each for each in cards if each.name != name]
    return learn_all([each for each in timings if each.card.name != name], others)


def grouped(timings: Iterable[Timing]) -> dict[str, list[Timing]]:
    groups: dict[str, list[Timing]] = defaultdict(list)
    for each in timings:
        groups[each.card.name].append(each)
    return dict(groups)


# How wrong it is ------------------------------------------------------------------------------------------------------


def left_out(timings: Sequence[Timing], cards: Collection[Gpu]) -> dict[str, list[float]]:
    """Print how each card's half of the shapes compares with what the other half teaches on the other cards; return the
    shares of times in the range, card by card, of each kind."""
    print(f"\nLeft out one by one, times from {SHORTEST_S * 1e3:g} ms on, the half of the shapes that taught nothing\n")
    heads = [*(BASES[kind] for kind in KINDS), "elementwise work, no rate of the memory"]
    print("| card | " + " | ".join(f"{head}: within · off · width" for head in heads) + " |")
    print("|---" * (1 + len(heads)) + "|")
    held: dict[str, list[float]] = {kind: [] for kind in KINDS}
    teaching = [each for each in timings if each.teaches]
    for name, own in grouped(each for each in timings if not each.teaches).items():
        card, shares = kept_apart(own[0].card, cards)
        learned, cells = Learned(without(name, teaching, cards), {}, shares), [name]
        unknown = lacking(card, "memory_reached")
        for kind, told in (*((kind, card) for kind in KINDS), ("elementwise", unknown)):
            chosen = [each for each in own if each.operator.kind == kind]
            guesses = [(each, likely(each.work, "float32", told, learned)) for each in chosen]
            pairs = [(each, guess) for each, guess in guesses if not isinstance(guess, str)]
            within = statistics.fmean(guess.low_s <= each.seconds <= guess.high_s for each, guess in pairs)
            off = statistics.median(abs(guess.middle_s / each.seconds - 1) for each, guess in pairs)
            wide = statistics.median(guess.high_s / guess.low_s for _, guess in pairs)
            cells.append(f"{within:.1%} · {off:.0%} · {wide:.2f} ({len(pairs)})")
            held[kind] += [within] * (told is card)
        print(f"| {' | '.join(cells)} |")
    return held


# Whole networks -------------------------------------------------------------------------------------------------------


def gpt(width: int, heads: int, layers: int) -> Callable[[Any, int], Any]:
    def build(transformers: Any, tokens: int) -> Any:
        config = transformers.GPT2Config(n_embd=width, n_head=heads, n_layer=layers, n_positions=tokens)
        return transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager")

    return build


def bert_large(transformers: Any, tokens: int) -> Any:
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    return transformers.BertLMHeadModel._from_config(transformers.BertConfig(**sizes), attn_implementation="eager")


def opt_13(transformers: Any, tokens: int) -> Any:
    sizes = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "ffn_dim": 8192}
    config = transformers.OPTConfig(**sizes, word_embed_proj_dim=2048, max_position_embeddings=2048)
    return transformers.OPTForCausalLM._from_config(config, attn_implementation="eager")


NETWORKS = {
    "bert_large": bert_large,
    "gpt2_large": gpt(1280, 20, 36),
    "gpt3_xl": gpt(3072, 24, 24),
    "gpt3_27": gpt(2560, 32, 32),
    "opt_13": opt_13,
}
"""Sizes from NeuSight's configurations, which are those of ``transformers`` except for the two GPT-3."""


def traced(network: str, tokens: int, batch: int, mode: str) -> Work:
    """Return the work of a pass over the network, on tensors without data."""
    import torch
    import transformers

    from gpubench.measure.work import watched

    with torch.device("meta"):
        model = NETWORKS[network](transformers, tokens).train(mode == "train")
        ids = torch.zeros(batch, tokens, dtype=torch.int64)
        # Without a mask, or with the other kind, transformers look for padding in the data.
        mask = torch.zeros(batch, 1, tokens, tokens) if network == "bert_large" else torch.ones(batch, tokens)
    with watched() as seen, torch.set_grad_enabled(mode == "train"):
        result = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        if mode == "train":
            result.sum().backward()
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    least = parameters * (2 if mode == "train" else 1) + ids.nbytes + result.nbytes
    return Work(seen.flops, float(least), operators=seen.operators())


def print_networks(timings: Sequence[Timing], cards: Mapping[str, Gpu]) -> float:
    """Print each network on each card, with factors that were learned without that card; return the share of all times
    that lie within the range, since a card has as few as three."""
    print("\n| card | network | tokens | batch | ms | / bound | probably, ms | middle off by |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    off, within, below, unknown = [], defaultdict(list), 0, 0
    works: dict[tuple[str, int, int, str], Work] = {}
    with open(HERE / "neusight_networks.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["network"] not in NETWORKS:
                unknown += 1
                continue
            card, seconds = find_card(row["card"], cards), float(row["milliseconds"]) / 1e3
            key = row["network"], int(row["tokens"]), int(row["batch"]), row["mode"]
            work = works[key] if key in works else works.setdefault(key, traced(*key))
            bare, shares = kept_apart(card, cards.values())
            learned = Learned(without(card.name, timings, cards.values()), {}, shares)
            guess = likely(work, "float32", bare, learned)
            bound_s = shortest(work, "float32", card).seconds
            assert not isinstance(guess, str), guess
            below += seconds < bound_s
            within[card.name].append(guess.low_s <= seconds <= guess.high_s)
            off.append(guess.middle_s / seconds - 1)
            times = (
                f"{seconds * 1e3:.0f} | {seconds / bound_s:.2f} | {guess.low_s * 1e3:.0f} – {guess.high_s * 1e3:.0f}"
            )
            name = f"{row['network']} ({row['mode']})"
            print(f"| {card.name} | {name} | {row['tokens']} | {row['batch']} | {times} | {off[-1]:+.0%} |")
    held = {card: f"{sum(each)} of {len(each)}" for card, each in within.items()}
    print(f"\n{len(off)} networks, {unknown} left out, {below} below the bound; within: {held}")
    print(f"Middle off by {statistics.median(map(abs, off)):.0%} (median)")
    return statistics.fmean(itertools.chain(*within.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", action="store_true", help="compare whole networks too")
    parser.add_argument("--write", action="store_true", help="replace the factors that the package ships")
    args = parser.parse_args()
    cards, _ = read_cards()
    timings = read_timings(cards)
    below = sum(each.seconds < shortest(each.work, "float32", each.card).seconds for each in timings)
    print(f"\nReal times below shortest_s: {below} of {len(timings)}")
    timings = [each for each in timings if each.seconds >= SHORTEST_S]
    held = {BASES[kind]: shares for kind, shares in left_out(timings, cards.values()).items()}
    held["whole networks"] = (
        [print_networks(timings, cards)] if args.networks else [*learned_values().held["whole networks"]]
    )
    if args.write:
        source = "NeuSight's public test set (github.com/sitar-lab/NeuSight, MIT): " + ", ".join(
            sorted(grouped(timings))
        )
        factors = learn_all(timings, cards.values()) | {"sort": SORT}
        content = {
            "learned_from": source,
            "held": {name: [round(min(shares), 3), round(max(shares), 3)] for name, shares in held.items()},
            "kinds": {kind: _rounded(factors[kind]) for kind in (*TAILS, "sort")},
            "shares": _rounded(shares_of(cards.values())),
        }
        LEARNED.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _rounded(values: Factor | Shares) -> dict[str, float]:
    return {name: round(getattr(values, name), 6) for name in values.__struct_fields__}


if __name__ == "__main__":
    main()
