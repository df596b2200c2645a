"""Learn what ``gpubench estimate`` calls probable from timings of others, and measure how wrong it is.

    python docs/experiments/learn_estimate.py timings.csv [--networks networks.csv] [--write]

``timings.csv`` has calls of one operator (``op,card,milliseconds,b,m_or_h,n,k``), ``networks.csv`` whole networks
(``card,network,mode,tokens,batch,milliseconds,layers``): parts of the public test set of NeuSight (S. Lee et al.,
ASPLOS 2025, github.com/sitar-lab/NeuSight, MIT licence), in float32 without TF32. Each card is left out in turn and
compared with what the others teach. ``--write`` replaces the factors that the package ships. The whole networks
need ``transformers``.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpubench.devices.datasheets import Gpu, find_card, read_cards
from gpubench.devices.roofline import LEARNED, Factor, arithmetic_s, crowding_of, memory_s
from gpubench.estimate.model import likely, shortest
from gpubench.runfile.schema import Operators, Work

SHORTEST_S = 1e-4
"""Shortest time that is used, in seconds: 24 to 36 µs of each timing are its harness."""
LEVEL = 0.8
"""Share of times that the interval should contain."""
RIDGE, STEEPEST = 0.1, 0.5
"""Ridge penalty that flattens a slope which only four or five cards suggest, and the steepest slope allowed."""
SMALL_S = 5e-5
KINDS = ("elementwise", "normalisation", "product")
CALLED = {"product": "products", "elementwise": "elementwise work"}
TWO_TENSORS = ("add", "mul", "div", "pow")


@dataclass(frozen=True)
class Timing:
    """One call on one card: its work, its roofline and its time, in seconds."""

    card: str
    operator: Operators
    bound_s: float
    seconds: float

    @property
    def work(self) -> Work:
        return Work(self.operator.flops, self.operator.bytes, operators=(self.operator,))


def operator_of(row: Mapping[str, str]) -> Operators:
    """Return the operator with its FLOPs and least bytes in float32."""
    b, m = float(row["b"]), float(row["m_or_h"])
    if row["op"] in ("bmm", "linear"):
        n, k = float(row["n"]), float(row["k"])
        moved = b * m * k + (1 if row["op"] == "linear" else b) * k * n + b * m * n
        return Operators("product", 1, 2 * b * m * k * n, 4 * moved)
    kind = "normalisation" if row["op"] in ("softmax", "ln") else "elementwise"
    return Operators(kind, 1, 0.0, 4 * b * m * (3 if row["op"] in TWO_TENSORS else 2))


def read_timings(path: str, cards: Mapping[str, Gpu]) -> list[Timing]:
    found = []
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            card, operator = find_card(row["card"], cards), operator_of(row)
            parts = arithmetic_s(operator.flops, "float32", card), memory_s(operator.bytes, card, cached=False)
            assert None not in parts, card.name
            bound_s = max(part for part in parts if part is not None)
            found.append(Timing(card.name, operator, bound_s, float(row["milliseconds"]) / 1e3))
    return found


def crowding(card: Gpu) -> float:
    value = crowding_of(card)
    assert value is not None, card.name
    return value


def middle_of(timings: Iterable[Timing], kind: str, cards: Mapping[str, Gpu]) -> Factor:
    """Return the factor's middle: the mean over the cards of each card's median. For products it lies on a line over
    the promised FLOP/s per watt (ridge regression on the logarithms)."""
    small_s = SMALL_S if kind == "product" else 0.0
    ratios = defaultdict(list)
    for each in timings:
        ratios[each.card].append((each.seconds - min(each.bound_s, small_s)) / each.bound_s)
    logs = {card: math.log(statistics.median(values)) for card, values in ratios.items()}
    x = {card: crowding(cards[card]) for card in logs}
    middle, mean_x = statistics.fmean(logs.values()), statistics.fmean(x.values())
    slope = 0.0
    if kind == "product":
        spread = sum((x[card] - mean_x) ** 2 for card in logs)
        slope = sum((x[card] - mean_x) * (logs[card] - middle) for card in logs) / (spread + RIDGE)
        slope = min(max(slope, 0.0), STEEPEST)
    least = math.exp(min(logs.values())) if kind == "product" else 1.0
    return Factor(middle - slope * mean_x, slope, least, small_s, 1.0, 1.0)


def residuals(timings: Iterable[Timing], factor: Factor, cards: Mapping[str, Gpu]) -> list[float]:
    return [each.seconds / factor.middle(each.bound_s, crowding(cards[each.card])) for each in timings]


def weighted_quantile(groups: Sequence[Sequence[float]], share: float) -> float:
    """Return the quantile of all values, with equal weight for each group."""
    pairs = sorted((value, 1 / len(group)) for group in groups for value in group)
    total, seen = sum(weight for _, weight in pairs), 0.0
    for value, weight in pairs:
        seen += weight
        if seen >= share * total:
            return value
    return pairs[-1][0]


def learn(timings: Sequence[Timing], kind: str, cards: Mapping[str, Gpu]) -> Factor:
    """Return the factor: its middle from all cards, its interval from how far each card lay from what the others taught
    (cross-conformal prediction with cards as folds: V. Vovk, Annals of Mathematics and Artificial Intelligence 74
    (2015) 9)."""
    by_card = grouped(timings, lambda each: each.card)
    left_out = []
    for name, own in by_card.items():
        others = [each for each in timings if each.card != name]
        left_out.append(residuals(own, middle_of(others, kind, cards), cards))
    low, high = (weighted_quantile(left_out, share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    middle = middle_of(timings, kind, cards)
    return Factor(middle.intercept, middle.slope, middle.least, middle.small_s, low, high)


def grouped(timings: Iterable[Timing], key: Callable[[Timing], str]) -> dict[str, list[Timing]]:
    groups: dict[str, list[Timing]] = defaultdict(list)
    for each in timings:
        groups[key(each)].append(each)
    return dict(groups)


def learn_all(timings: Iterable[Timing], cards: Mapping[str, Gpu], without: Collection[str] = ()) -> dict[str, Factor]:
    used = [each for each in timings if each.seconds >= SHORTEST_S and each.card not in without]
    return {kind: learn(group, kind, cards) for kind, group in grouped(used, lambda each: each.operator.kind).items()}


# How wrong it is ------------------------------------------------------------------------------------------------------


def print_bound(timings: Sequence[Timing], cards: Mapping[str, Gpu]) -> None:
    """Print how many real times lie below the bound, and how far above it they lie."""
    bounds = [shortest(each.work, "float32", cards[each.card]).seconds for each in timings]
    below = sum(each.seconds < bound for each, bound in zip(timings, bounds, strict=True))
    print(f"\nReal times below shortest_s: {below} of {len(timings)}")


def print_left_out(timings: Sequence[Timing], cards: Mapping[str, Gpu]) -> dict[str, tuple[float, float]]:
    """Compare each card with what the others taught; return the least and the greatest share of times within the
    interval."""
    print(f"\nLeft out one by one, times from {SHORTEST_S * 1e3:g} ms on; the interval aims at {LEVEL:.0%}.\n")
    print("| card | work | times | within | middle off by (median) | time / bound: 5 % | median | 95 % |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    errors, shares = defaultdict(list), defaultdict(list)
    for name, own in grouped(timings, lambda each: each.card).items():
        factors = learn_all(timings, cards, without=(name,))
        for kind in KINDS:
            chosen = [each for each in own if each.operator.kind == kind and each.seconds >= SHORTEST_S]
            guesses = [likely(each.work, "float32", cards[name], factors) for each in chosen]
            pairs = [(each, guess) for each, guess in zip(chosen, guesses, strict=True) if not isinstance(guess, str)]
            within = statistics.fmean(guess.low_s <= each.seconds <= guess.high_s for each, guess in pairs)
            shares[kind].append(within)
            off = [abs(guess.middle_s / each.seconds - 1) for each, guess in pairs]
            errors[kind] += off
            ratios = sorted(each.seconds / each.bound_s for each in chosen)
            points = " | ".join(f"{ratios[int(share * (len(ratios) - 1))]:.2f}" for share in (0.05, 0.5, 0.95))
            print(f"| {name} | {kind} | {len(pairs)} | {within:.0%} | {statistics.median(off):.0%} | {points} |")
    for kind in KINDS:
        print(f"| all | {kind} | {len(errors[kind])} | | {statistics.median(errors[kind]):.0%} | | | |")
    return {CALLED[kind]: (round(min(shares[kind]), 3), round(max(shares[kind]), 3)) for kind in CALLED}


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

    from gpubench.measure.work import flop_counter, watch

    with torch.device("meta"):
        model = NETWORKS[network](transformers, tokens).train(mode == "train")
        ids = torch.zeros(batch, tokens, dtype=torch.int64)
        # Without a mask, or with the other kind, transformers look for padding in the data.
        mask = torch.zeros(batch, 1, tokens, tokens) if network == "bert_large" else torch.ones(batch, tokens)
    counter = flop_counter()
    with (seen := watch(counter)), counter, torch.set_grad_enabled(mode == "train"):
        result = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        if mode == "train":
            result.sum().backward()
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    least = parameters * (2 if mode == "train" else 1) + ids.nbytes + result.nbytes
    return Work(float(counter.get_total_flops()), float(least), operators=seen.tally.operators())


def print_networks(path: str, timings: Sequence[Timing], cards: Mapping[str, Gpu]) -> None:
    """Print each network on each card, with factors that were learned without that card."""
    print("\n| card | network | tokens | batch | ms | / bound | probably, ms | middle off by |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    off, within, below, left_out = [], [], 0, 0
    works: dict[tuple[str, int, int, str], Work] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["network"] not in NETWORKS:
                left_out += 1
                continue
            card, seconds = find_card(row["card"], cards), float(row["milliseconds"]) / 1e3
            key = row["network"], int(row["tokens"]), int(row["batch"]), row["mode"]
            work = works[key] if key in works else works.setdefault(key, traced(*key))
            guess = likely(work, "float32", card, learn_all(timings, cards, without=(card.name,)))
            bound_s = shortest(work, "float32", card).seconds
            assert not isinstance(guess, str), guess
            below += seconds < bound_s
            within.append(guess.low_s <= seconds <= guess.high_s)
            off.append(guess.middle_s / seconds - 1)
            times = (
                f"{seconds * 1e3:.0f} | {seconds / bound_s:.2f} | {guess.low_s * 1e3:.0f} – {guess.high_s * 1e3:.0f}"
            )
            name = f"{row['network']} ({row['mode']})"
            print(f"| {card.name} | {name} | {row['tokens']} | {row['batch']} | {times} | {off[-1]:+.0%} |")
    counts = f"{len(off)} networks, {left_out} left out: {below} below the bound, {statistics.fmean(within):.0%} within"
    print(f"\n{counts}, middle off by {statistics.median(map(abs, off)):.0%} (median)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("timings")
    parser.add_argument("--networks")
    parser.add_argument("--write", action="store_true", help="replace the factors that the package ships")
    args = parser.parse_args()
    cards, _ = read_cards()
    timings = read_timings(args.timings, cards)
    print_bound(timings, cards)
    held = print_left_out(timings, cards)
    if args.write:
        source = "NeuSight's public test set (github.com/sitar-lab/NeuSight, MIT): " + ", ".join(
            sorted({each.card for each in timings})
        )
        factors = learn_all(timings, cards)
        kinds = {
            kind: {name: round(getattr(factors[kind], name), 6) for name in Factor.__struct_fields__} for kind in KINDS
        }
        content = {"learned_from": source, "level": LEVEL, "held": held, "kinds": kinds}
        LEARNED.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if args.networks:
        print_networks(args.networks, timings, cards)


if __name__ == "__main__":
    main()
