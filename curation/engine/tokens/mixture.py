"""From rows and weights to the order of samples: shares, length of the run, epochs.

What may live here: what decides how many samples there are and how much of them each source gets.
It is computed once, before anything is shuffled, and refused where a source would be repeated more
than it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from curation.engine.recipe import RecipeError
from curation.engine.tokens.recipe import TokensModel
from manifests.order import BLOCK, MOST_SAMPLES, Deal, Order, parts_of

MOST_SHARDS = 1_000_000


@dataclass(frozen=True)
class Supply:
    """What a source has for training."""

    tokens: int  # that are no padding
    rows: int

    def fill(self, length: int) -> float:
        """Share of its rows that is no padding."""
        return self.tokens / (self.rows * length)


@dataclass(frozen=True)
class Mixture:
    """The order of a run, and what was asked for."""

    order: Order
    samples: int
    weights: tuple[Mapping[str, float], ...]  # of each deal: shares of tokens, that sum to 1
    overall: Mapping[str, float]  # the same over the whole run
    epochs: Mapping[str, float]
    notes: tuple[str, ...] = ()  # what a person should know: a line each


def wanted(
    settings: TokensModel, supply: Mapping[str, Supply]
) -> list[tuple[float, dict[str, float]]]:
    """The stages of a mixture: share of all tokens, and shares of the sources, that sum to 1.

    Explicit weights as they are; else by temperature, p ~ tokens^(1/T); without either T is 1.
    """
    stages: list[tuple[float, Mapping[str, float]]]
    if settings.mixture.stages:
        stages = [(stage.share, stage.weights) for stage in settings.mixture.stages]
    elif any(source.weight is not None for source in settings.sources):
        own = {source.name: source.weight or 0.0 for source in settings.sources}
        stages = [(1.0, {name: own[name] for name in supply})]
    else:
        power = 1 / (settings.mixture.temperature or 1.0)
        largest = max(source.tokens for source in supply.values())
        stages = [(1.0, {n: (s.tokens / largest) ** power for n, s in supply.items()})]
    found = []
    for share, weights in stages:
        total = sum(weights.values())
        found.append((share, {name: weights.get(name, 0.0) / total for name in supply}))
    return found


def mix(settings: TokensModel, names: list[str], supply: Mapping[str, Supply]) -> Mixture:
    """The order over all sources (`names`, those without train rows too) from what they have.

    Raises RecipeError that names an empty source, or one that would be seen more often than its
    `max_epochs`.
    """
    for name, source in supply.items():
        if not source.rows:
            raise RecipeError(f"sources[{name}]: it has no documents to train on")
    length = settings.sequence_length
    stages = wanted(settings, supply)
    fills = [supply[n].fill(length) if n in supply else 1.0 for n in names]
    overall = {name: sum(share * w[name] for share, w in stages) for name in supply}
    total = settings.total_tokens
    if total is None:  # until the first source has been seen once
        total = int(min(supply[n].tokens / weight for n, weight in overall.items() if weight))
    deals: list[Deal] = []
    notes = []
    begin = 0.0
    for number, (share, weights) in enumerate(stages):
        first = round(begin / BLOCK) * BLOCK
        if deals and first <= deals[-1].from_sample:
            raise RecipeError(
                f"mixture.stages[{number}]: the stage before it is shorter than {BLOCK} samples"
            )
        if abs(first - begin) > max(1.0, 0.01 * begin):
            notes.append(
                f"mixture.stages[{number}] begins at sample {first:,}, not {begin:,.0f}: stages "
                f"begin at multiples of {BLOCK:,}"
            )
        parts = parts_of([weights.get(name, 0.0) for name in names], fills)
        deals.append(Deal(first, parts))
        # Rows that a token of the mixture takes: a row of a source with little fill holds less.
        per_token = sum(w / (supply[n].fill(length) * length) for n, w in weights.items())
        begin += share * total * per_token
    if begin > MOST_SAMPLES:
        raise RecipeError(f"total_tokens: {begin:.3g} samples are wanted; 2^40 can be ordered")
    rows = [supply[n].rows if n in supply else 0 for n in names]
    order = Order(settings.seed, names, rows, deals)
    samples = max(1, int(np.ceil(begin)))
    if settings.output.materialise and samples > MOST_SHARDS * settings.output.shard_rows:
        raise RecipeError(
            f"output.shard_rows: {samples:,} samples are more than {MOST_SHARDS:,} shards of "
            f"{settings.output.shard_rows:,}"
        )
    if settings.total_tokens is None:
        samples = _once(order, samples, rows)
    if samples <= deals[-1].from_sample:
        raise RecipeError(
            f"mixture.stages[{len(deals) - 1}]: it would begin at sample {deals[-1].from_sample}, "
            f"and the run has {samples}"
        )
    draws = order.draws(samples)
    epochs = {n: float(draws[i]) / rows[i] for i, n in enumerate(names) if n in supply}
    caps = {source.name: source.max_epochs for source in settings.sources}
    worst = max(epochs, key=lambda name: epochs[name] / caps[name])
    if epochs[worst] > caps[worst]:
        raise RecipeError(
            f"sources[{worst}]: {epochs[worst]:.2f} epochs are wanted and max_epochs is "
            f"{caps[worst]:g}; with these weights total_tokens can be "
            f"{total * caps[worst] / epochs[worst]:,.0f}"
        )
    shown = tuple(w for _, w in stages)
    return Mixture(order, samples, shown, overall, epochs, tuple(notes))


def _once(order: Order, samples: int, rows: list[int]) -> int:
    """The largest number of samples, not above `samples`, in which no source comes twice."""
    low, high = 0, samples
    while low < high:
        middle = (low + high + 1) // 2
        fits = all(drawn <= most for drawn, most in zip(order.draws(middle), rows, strict=True))
        low, high = (middle, high) if fits else (low, middle - 1)
    return max(low, 1)
