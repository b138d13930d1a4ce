"""What the model is given: tokens, labels, and which tokens belong together.

What may live here: `Micro` and `Layout`, making a layout of the lengths of pieces, and the
arithmetic of values that stand in groups, one group after the other. No model, no files. All
tensors have the rows first, so that a micro-batch can be cut along dimension 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

MaskKind = Literal["causal", "both", "prefix"]

IGNORED = -100  # a label that is not predicted


@dataclass(frozen=True)
class Layout:
    """The documents of some rows. Padding after the last piece counts as a document of its own.

    mask: `causal`: a token sees those of its document up to itself; `both`: all of its document;
    `prefix`: those up to itself, and all of the document's prefix.
    """

    mask: MaskKind
    documents: Tensor  # (rows, L) int32: number of the token's document in its row, from 0
    positions: Tensor  # (rows, L) int32: place of the token in its document, from 0
    prefix: Tensor | None = None  # (rows, L) bool: tokens that their whole document may see
    #: For variable-length attention, both exact: first tokens of the documents over all rows, then
    #: the number of all tokens; and the tokens of the longest document.
    starts: Tensor | None = None  # (documents + 1,) int32
    longest: int = 0

    def to(self, device: torch.device) -> Layout:
        """The same on a device."""
        moved: Layout = _each(self, lambda tensor: tensor.to(device, non_blocking=True))
        return moved


@dataclass(frozen=True)
class Micro:
    """A micro-batch: what one forward pass of a rank sees."""

    tokens: Tensor  # (rows, L) int64
    labels: Tensor  # (rows, L) int64: the token to predict at this place, or IGNORED
    layout: Layout
    sources: Tensor  # (rows,) int64: ordinal of the row's source in the manifest
    samples: Tensor  # (rows,) int64: the sample that the row is

    def to(self, device: torch.device) -> Micro:
        """The same on a device, copied without waiting where the memory is pinned."""
        moved: Micro = _each(self, lambda tensor: tensor.to(device, non_blocking=True))
        return moved

    def pinned(self) -> Micro:
        """The same in page-locked memory, which a GPU copies from while it works."""
        pinned: Micro = _each(self, lambda tensor: tensor.pin_memory())
        return pinned


def layout_of(
    lengths: Sequence[Sequence[int]] | Sequence[np.ndarray], length: int, mask: MaskKind
) -> Layout:
    """The layout of rows of `length` tokens, of the lengths of the documents in each.

    Raises ValueError where the documents of a row are longer than it.
    """
    counts = np.array([len(own) for own in lengths], np.int64)
    joined = np.concatenate([np.asarray(own, np.int64) for own in lengths] or [counts])
    return layout_of_pieces(counts, joined, length, mask)


def layout_of_pieces(
    counts: np.ndarray,
    lengths: np.ndarray,
    length: int,
    mask: MaskKind,
    prefixes: np.ndarray | None = None,
) -> Layout:
    """The same of all documents one after the other: `counts` (rows,) are those of each row,
    `lengths` (documents,) their tokens, `prefixes` (documents,) how many first tokens of each its
    whole document may see.

    Raises ValueError where the documents of a row are longer than it.
    """
    lengths, ends = lengths.astype(np.int64), np.cumsum(counts)
    filled = sums(counts, lengths)
    rest = length - filled
    if rest.min(initial=0) < 0:
        raise ValueError(f"documents of {filled.max()} tokens in a row of {length}")
    padded = rest > 0
    whole = np.insert(lengths, ends[padded], rest[padded])
    numbers = spread(np.zeros(len(counts), np.int64), counts + padded).astype(np.int32)
    positions = spread(np.zeros(len(whole), np.int64), whole).astype(np.int32)
    shape = (len(counts), length)
    prefix = None
    if prefixes is not None:
        bounds = np.insert(prefixes, ends[padded], 0).astype(np.int32)
        prefix = torch.from_numpy((positions < np.repeat(bounds, whole)).reshape(shape))
    return Layout(
        mask=mask,
        documents=torch.from_numpy(np.repeat(numbers, whole).reshape(shape)),
        positions=torch.from_numpy(positions.reshape(shape)),
        prefix=prefix,
        starts=torch.from_numpy(np.concatenate([[0], np.cumsum(whole)]).astype(np.int32)),
        longest=int(whole.max(initial=1)),
    )


def spread(begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """begin, begin + 1, ... of each group, as many as it counts, group after group: int64."""
    counts = counts.astype(np.int64)
    places = np.repeat(begins - (np.cumsum(counts) - counts), counts)
    places += np.arange(len(places))
    return places


def sums(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The sum of each group of values: int64."""
    total = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return np.diff(total[np.cumsum(counts)], prepend=0)


def before(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each of the values, which stand in groups of `counts`, the sum of those before it in its
    group: int64."""
    total = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    found: np.ndarray = total[:-1] - np.repeat(total[np.cumsum(counts) - counts], counts)
    return found


def _each(value: Any, change: Any) -> Any:
    changed = {}
    for knob in fields(value):
        old = getattr(value, knob.name)
        if isinstance(old, Tensor):
            changed[knob.name] = change(old)
        elif isinstance(old, Layout):
            changed[knob.name] = _each(old, change)
    return replace(value, **changed)
