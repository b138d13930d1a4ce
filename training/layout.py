"""What the model is given: tokens, labels, and which tokens belong together.

What may live here: `Micro` and `Layout`, and making a layout of the lengths of pieces. No model, no
files. All tensors have the rows first, so that a micro-batch can be cut along dimension 0.
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
    #: For variable-length attention: first tokens of the documents over all rows, then the number
    #: of all tokens up to one of a few sizes; and a bound of the longest document.
    starts: Tensor | None = None  # (n,) int32
    longest: int = 0


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
    lengths = lengths.astype(np.int64)
    ends = np.cumsum(counts)
    rest = length - sums(counts, lengths)
    if rest.min(initial=0) < 0:
        raise ValueError(f"documents of {length - rest.min()} tokens in a row of {length}")
    padded = rest > 0
    whole = np.insert(lengths, ends[padded], rest[padded])
    numbers = counted(counts + padded)
    begins = np.cumsum(whole) - whole
    positions = np.arange(len(counts) * length) - np.repeat(begins, whole)
    shape = (len(counts), length)
    prefix = None
    if prefixes is not None:
        seen = positions < np.repeat(np.insert(prefixes, ends[padded], 0), whole)
        prefix = torch.from_numpy(seen.reshape(shape))
    return Layout(
        mask=mask,
        documents=torch.from_numpy(np.repeat(numbers, whole).astype(np.int32).reshape(shape)),
        positions=torch.from_numpy(positions.astype(np.int32).reshape(shape)),
        prefix=prefix,
        starts=torch.from_numpy(_starts(whole)),
        longest=_rounded(int(whole.max(initial=1)), length),
    )


def counted(counts: np.ndarray) -> np.ndarray:
    """0 to n - 1 for each n of `counts`, one after the other: int64."""
    places: np.ndarray = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def sums(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The sums of groups of values that stand one after the other, `counts` in each: int64."""
    ends = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])[np.cumsum(counts)]
    return np.diff(ends, prepend=0)


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Cumulative lengths from 0 on, filled up with the end to a power of two (at least 64) plus
    one: shapes of a few sizes only, and documents of length 0 cost nothing."""
    size = max(64, 1 << int(len(lengths) - 1).bit_length()) if len(lengths) else 64
    starts = np.full(size + 1, lengths.sum(), np.int32)
    starts[: len(lengths) + 1] = np.concatenate([[0], np.cumsum(lengths)])
    return starts


def _rounded(longest: int, length: int) -> int:
    """The longest document, rounded up to an eighth of the row: eight sizes at most."""
    step = max(1, length // 8)
    return min(length, -(-longest // step) * step)


def _each(value: Any, change: Any) -> Any:
    changed = {}
    for knob in fields(value):
        old = getattr(value, knob.name)
        if isinstance(old, Tensor):
            changed[knob.name] = change(old)
        elif isinstance(old, Layout):
            changed[knob.name] = _each(old, change)
    return replace(value, **changed)
