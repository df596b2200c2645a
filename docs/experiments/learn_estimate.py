"""Learn what ``gpubench estimate`` calls probable from timings of others, and measure how wrong it is.

    python docs/experiments/learn_estimate.py [--networks] [--write]

``neusight_operators.csv.gz`` has calls of one operator (``op,card,milliseconds,b,m_or_h,n,k``),
``neusight_networks.csv`` whole networks (``card,network,mode,tokens,batch,milliseconds,layers``): parts of the public
test set of NeuSight (S. Lee et al., ASPLOS 2025, github.com/sitar-lab/NeuSight, MIT licence), in float32 without TF32.
Each card is left out in turn and compared with what the others teach. What products reach at best is in the table of
GPUs where somebody has published it; that of the others lies on a line through the published ones. ``--write`` replaces
the factors that the package ships. The whole networks need ``transformers``, and some minutes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpubench.devices.datasheets import Gpu, find_card, read_cards
from gpubench.devices.roofline import LEARNED, Factor, Shares, arithmetic_s, memory_s, reached
from gpubench.estimate.model import likely, shortest
from gpubench.runfile.schema import Operators, Work

HERE = Path(__file__).parent
SHORTEST_S = 1e-4
"""Shortest time that is used, in seconds: 24 to 36 µs of each timing are its harness."""
LEVEL, WIDER = 0.6, 0.05
"""The range reaches from the 20 % point of the card that was fastest for its middle to the 80 % point of the slowest,
and is widened in such steps until each card, left out, has ENOUGH of its times inside."""
ENOUGH = 0.82
SMALL_S = 5e-5
CALLED = {"product": "products", "elementwise": "elementwise work", "normalisation": "softmax and layer norm"}
KINDS = tuple(CALLED)
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

    def roofline_s(self, shares: Shares) -> float:
        parts = (
            arithmetic_s(self.operator.flops, reached("float32", self.card, shares)),
            memory_s(self.operator.bytes, self.card),
        )
        return max(part for part in parts if part is not None)


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


Residuals = Mapping[str, Sequence[tuple[float, float]]]
"""For each card the roofline and the time of each call."""


def times_of(by_card: Residuals, small_s: float, cards: Collection[str]) -> float:
    """Return the geometric mean of these cards' medians."""
    medians = [statistics.median((t - min(bound, small_s)) / bound for bound, t in by_card[card]) for card in cards]
    return statistics.geometric_mean(medians)


def learn(by_card: Residuals, kind: str, wider: float) -> Factor:
    """Return the factor: its middle from all cards, its range from how far each card lay from what the others taught,
    the worst card's ends, made wider."""
    small_s = SMALL_S if kind == "product" else 0.0
    ends = []
    for name, own in by_card.items():
        middle = Factor(times_of(by_card, small_s, by_card.keys() - {name}), small_s, 1.0, 1.0)
        ratios = sorted(seconds / middle.middle(bound_s) for bound_s, seconds in own)
        ends.append([ratios[int(share * (len(ratios) - 1))] for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)])
    low, high = min(low for low, _ in ends) / wider, max(high for _, high in ends) * wider
    return Factor(times_of(by_card, small_s, by_card), small_s, low, high)


def learn_all(
    timings: Iterable[Timing], shares: Shares, wider: Mapping[str, float], without: str = ""
) -> dict[str, Factor]:
    used: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for each in timings:
        if each.seconds >= SHORTEST_S and each.card.name != without:
            used[each.operator.kind][each.card.name].append((each.roofline_s(shares), each.seconds))
    return {kind: learn(by_card, kind, wider[kind]) for kind, by_card in used.items()}


def grouped(timings: Iterable[Timing]) -> dict[str, list[Timing]]:
    groups: dict[str, list[Timing]] = defaultdict(list)
    for each in timings:
        groups[each.card.name].append(each)
    return dict(groups)


# How wrong it is ------------------------------------------------------------------------------------------------------


def print_bound(timings: Sequence[Timing]) -> None:
    """Print how many real times lie below the bound."""
    below = sum(each.seconds < shortest(each.work, "float32", each.card).seconds for each in timings)
    print(f"\nReal times below shortest_s: {below} of {len(timings)}")


Held = dict[str, list[tuple[str, int, float, float]]]
"""For each kind, each card left out: its name, how many times, the share of them in the range, and the median error of
the middle."""


def kept_apart(card: Gpu, cards: Mapping[str, Gpu]) -> tuple[Gpu, Shares]:
    """Return the card without what was published of it, and the shares without the card."""
    bare = msgspec.structs.replace(card.figures, float32_reached=None)
    others = (each for each in cards.values() if each.name != card.name)
    return msgspec.structs.replace(card, figures=bare), shares_of(others)


def left_out(timings: Sequence[Timing], cards: Mapping[str, Gpu], wider: Mapping[str, float]) -> Held:
    """Compare each card with what the others teach."""
    found: Held = {kind: [] for kind in KINDS}
    for name, own in grouped(timings).items():
        card, shares = kept_apart(cards[name], cards)
        factors = learn_all(timings, shares, wider, name)
        for kind in KINDS:
            chosen = [each for each in own if each.operator.kind == kind and each.seconds >= SHORTEST_S]
            guesses = [likely(each.work, "float32", card, factors, shares) for each in chosen]
            pairs = [(each, guess) for each, guess in zip(chosen, guesses, strict=True) if not isinstance(guess, str)]
            within = statistics.fmean(guess.low_s <= each.seconds <= guess.high_s for each, guess in pairs)
            off = statistics.median(abs(guess.middle_s / each.seconds - 1) for each, guess in pairs)
            found[kind].append((name, len(pairs), within, off))
    return found


def widened(timings: Sequence[Timing], cards: Mapping[str, Gpu]) -> tuple[dict[str, float], Held]:
    """Return by how much the range of each kind is widened, and how often it then held."""
    wider = dict.fromkeys(KINDS, 1.0)
    while True:
        held = left_out(timings, cards, wider)
        short = [kind for kind in KINDS if min(within for _, _, within, _ in held[kind]) < ENOUGH]
        if not short:
            return wider, held
        wider |= {kind: wider[kind] + WIDER for kind in short}


def print_held(held: Held, wider: Mapping[str, float]) -> None:
    print(f"\nLeft out one by one, times from {SHORTEST_S * 1e3:g} ms on; ranges made wider: {wider}\n")
    print("| card | " + " | ".join(f"{CALLED[kind]}: within · off" for kind in KINDS) + " |")
    print("|---" * (1 + len(KINDS)) + "|")
    for rows in zip(*held.values(), strict=True):
        cells = [f"{within:.0%} · {off:.0%} ({count})" for _, count, within, off in rows]
        print(f"| {rows[0][0]} | {' | '.join(cells)} |")


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


def print_networks(
    timings: Sequence[Timing], cards: Mapping[str, Gpu], wider: Mapping[str, float]
) -> tuple[float, float]:
    """Print each network on each card, with factors that were learned without that card; return the worst card's share
    of times within the range, and the best card's."""
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
            bare, shares = kept_apart(card, cards)
            guess = likely(work, "float32", bare, learn_all(timings, shares, wider, card.name), shares)
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
    held = {card: statistics.fmean(each) for card, each in within.items()}
    print(f"\n{len(off)} networks, {unknown} left out, {below} below the bound; within: {held}")
    print(f"Middle off by {statistics.median(map(abs, off)):.0%} (median)")
    return min(held.values()), max(held.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", action="store_true", help="compare whole networks too")
    parser.add_argument("--write", action="store_true", help="replace the factors that the package ships")
    args = parser.parse_args()
    cards, _ = read_cards()
    timings, shares = read_timings(cards), shares_of(cards.values())
    print_bound(timings)
    wider, held = widened(timings, cards)
    print_held(held, wider)
    ends = {CALLED[kind]: [pick(within for _, _, within, _ in held[kind]) for pick in (min, max)] for kind in KINDS}
    kept = json.loads(LEARNED.read_text(encoding="utf-8"))["held"].get("whole networks")
    if args.networks:
        kept = print_networks(timings, cards, wider)
    if args.write:
        ends |= {"whole networks": kept} if kept else {}
        source = "NeuSight's public test set (github.com/sitar-lab/NeuSight, MIT): " + ", ".join(
            sorted(grouped(timings))
        )
        factors = learn_all(timings, shares, wider)
        content = {
            "learned_from": source,
            "held": {name: [round(share, 3) for share in both] for name, both in ends.items()},
            "kinds": {kind: _rounded(factors[kind]) for kind in KINDS},
            "shares": _rounded(shares),
        }
        LEARNED.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _rounded(values: Factor | Shares) -> dict[str, float]:
    return {name: round(getattr(values, name), 6) for name in values.__struct_fields__}


if __name__ == "__main__":
    main()
