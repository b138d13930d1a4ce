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
    documents = np.empty((len(lengths), length), np.int32)
    positions = np.empty((len(lengths), length), np.int32)
    all_lengths: list[np.ndarray] = []
    for row, own in enumerate(lengths):
        own = np.asarray(own, dtype=np.int64)
        rest = length - int(own.sum())
        if rest < 0:
            raise ValueError(f"documents of {int(own.sum())} tokens in a row of {length}")
        whole = np.append(own, rest) if rest else own
        begins = np.cumsum(whole) - whole
        documents[row] = np.repeat(np.arange(len(whole), dtype=np.int32), whole)
        positions[row] = np.arange(length) - np.repeat(begins, whole)
        all_lengths.append(whole)
    joined = np.concatenate(all_lengths) if all_lengths else np.empty(0, np.int64)
    return Layout(
        mask=mask,
        documents=torch.from_numpy(documents),
        positions=torch.from_numpy(positions),
        starts=torch.from_numpy(_starts(joined)),
        longest=_rounded(int(joined.max(initial=1)), length),
    )


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
