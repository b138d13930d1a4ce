"""Held-out loss: cross-entropy, perplexity and bits per byte of each source's validation rows.

What may live here: putting validation rows into micro-batches, and the figures that sums give.
Figures are weighted by tokens: sums of losses over sums of labels, never means of means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from manifests.reader import Live, Shards
from manifests.rows import Rows
from training.layout import IGNORED, Micro
from training.objectives import Objective


@dataclass(frozen=True)
class Score:
    """Of the held-out rows of a source; bits per byte where the tokenizer is byte-level."""

    source: str
    rows: int
    labels: int
    loss: float  # nats per label
    bits_per_byte: float | None

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite where that is too large."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    def record(self) -> dict[str, float | int | None]:
        """All figures but the source's name, for JSON."""
        own = {"rows": self.rows, "labels": self.labels, "loss": self.loss}
        return {**own, "perplexity": self.perplexity, "bits_per_byte": self.bits_per_byte}

    def line(self) -> str:
        """The figures in a line."""
        per_byte = f"  {self.bits_per_byte:.4f} bits per byte" if self.bits_per_byte else ""
        return f"loss {self.loss:.4f}  perplexity {self.perplexity:,.2f}{per_byte}"


@dataclass(frozen=True)
class Held:
    """Micro-batches of held-out rows: `micros` of this rank, as many on every rank; over all ranks
    `rows` of each source, and the bytes of text that the labels stand for."""

    micros: list[Micro]
    rows: np.ndarray  # (sources,) int64
    bytes: np.ndarray | None  # (sources,) int64


def held_out(
    reader: Shards | Live,
    objective: Objective,
    counts: np.ndarray | None,
    *,
    micro_batch: int,
    most: int | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> Held:
    """The first `most` validation rows of every source, divided among the ranks.

    The draws of an objective belong to the row's number among them. A last micro-batch is filled
    up with rows that predict nothing, and there are as many for every rank, so that all make as
    many passes. `counts`: bytes of each token.
    """
    names = reader.manifest.names
    found: list[Rows] = []
    rows = np.zeros(len(names), np.int64)
    for ordinal, name in enumerate(names):
        for part in _first(reader.validation(name), most):
            found.append(part)
            rows[ordinal] += len(part)
    bytes_ = None if counts is None else np.zeros(len(names), np.int64)
    micros: list[Micro] = []
    if found:
        whole = Rows.join(found)
        portion = micro_batch * ranks
        passes = -(-len(whole) // portion)
        for number in range(passes * ranks):
            places = np.arange(number * micro_batch, (number + 1) * micro_batch)
            mine = number % ranks == rank
            if not mine and bytes_ is None:
                continue
            micro = objective(whole.take(places % len(whole)), places % len(whole))
            micro.labels[torch.from_numpy(places >= len(whole))] = IGNORED
            if bytes_ is not None and counts is not None:
                bytes_ += _bytes(micro, counts, len(names))
            if mine:
                micros.append(micro)
    return Held(micros, rows, bytes_)


def scores(names: list[str], held: Held, losses: np.ndarray, labels: np.ndarray) -> list[Score]:
    """The scores of each source that has rows, then of all together, from sums over all ranks."""
    found = []
    for ordinal, name in enumerate(names):
        if labels[ordinal]:
            own = None if held.bytes is None else int(held.bytes[ordinal])
            found.append(_score(name, held.rows[ordinal], labels[ordinal], losses[ordinal], own))
    if labels.sum():
        own = None if held.bytes is None else int(held.bytes.sum())
        found.append(_score("all", held.rows.sum(), labels.sum(), losses.sum(), own))
    return found


def _score(name: str, rows: int, labels: float, loss: float, bytes_: int | None) -> Score:
    per_byte = loss / math.log(2) / bytes_ if bytes_ else None
    return Score(name, int(rows), int(labels), float(loss / labels), per_byte)


def _first(parts: Iterable[Rows], most: int | None) -> Iterator[Rows]:
    for part in parts:
        if most is not None:
            part = part.take(np.arange(min(len(part), most)))
            most -= len(part)
        if len(part):
            yield part


def _bytes(micro: Micro, counts: np.ndarray, sources: int) -> np.ndarray:
    labels = micro.labels.numpy()
    own = np.where(labels == IGNORED, 0, counts[np.maximum(labels, 0)]).sum(axis=1)
    return np.bincount(micro.sources.numpy(), weights=own, minlength=sources).astype(np.int64)
