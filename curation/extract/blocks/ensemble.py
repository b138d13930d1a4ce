"""An ensemble of decision trees as flat arrays: what it says of rows of features.

What may live here: `Ensemble`, how it is kept in a file, its evaluation (compiled, and plain).
Training is none of its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks import kernels

#: Leaves that a tree may have: bits of a mask.
MOST_LEAVES = 32


class _Masks(NamedTuple):
    """What the kernel reads beside the trees: `mask` (uint32) of each node has the bits of all
    leaves but those at its left, where leaves are counted from left to right in their tree;
    `value` has them in that order."""

    mask: NDArray[np.uint32]
    value: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Trees whose leaves' values are added up; laid out as LightGBM has each of its trees.

    Nodes and leaves of all trees lie in two sequences: those of tree t are nodes
    `nodes[t]:nodes[t + 1]`, the root first, and leaves `leaves[t]:leaves[t + 1]`, at most
    MOST_LEAVES. At a node a row goes left if `row[feature[node]] <= threshold[node]`, else right,
    also where that is NaN. `left` and `right` count inside the tree: from 0 on a node, which comes
    after its parent; below 0 the leaf `-1 - i`. A tree without nodes has one leaf.

    `feature`, `left`, `right`, `nodes`, `leaves`: int32; `threshold`, `value`: float32. Raises
    ValueError if the arrays are no such trees.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    nodes: NDArray[np.int32]
    leaves: NDArray[np.int32]
    _masks: _Masks = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, array in self.arrays().items():
            kind = np.float32 if name in ("threshold", "value") else np.int32
            if array.ndim != 1 or array.dtype != kind:
                raise ValueError(f"{name} is no sequence of {kind.__name__}")
        lengths = {len(array) for array in (self.feature, self.threshold, self.left, self.right)}
        if lengths != {_last(self.nodes)} or len(self.value) != _last(self.leaves):
            raise ValueError("trees of other lengths than their arrays")
        if len(self.nodes) != len(self.leaves) or self.feature.min(initial=0) < 0:
            raise ValueError("trees without leaves, or features below 0")
        object.__setattr__(self, "_masks", self._find_masks())

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Self:
        """The ensemble whose fields are arrays under their names (`np.load` of an npz file), each
        with `prefix` before it."""
        names = [f.name for f in fields(cls) if f.init]
        return cls(*(np.ascontiguousarray(arrays[prefix + name]) for name in names))

    def arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """What `of_arrays` takes; `np.savez` makes the same bytes of it every time."""
        return {prefix + f.name: getattr(self, f.name) for f in fields(self) if f.init}

    @property
    def width(self) -> int:
        """Features that a row must have."""
        return int(self.feature.max(initial=-1)) + 1

    def sums(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Per row of `features` (float32, rows x features): the sum of its leaves' values, float64,
        added tree by tree. Raises ValueError if rows are too short."""
        rows, width = features.shape
        if width < self.width:
            raise ValueError(f"rows of {width} features, of which {self.width} are needed")
        sums = np.zeros(rows)
        flat = np.ascontiguousarray(features, np.float32).reshape(-1)
        mask, value = self._masks
        if rows:
            trees = (self.feature, self.threshold, mask, self.nodes, self.leaves, value)
            kernels.sum_leaves(flat, width, *trees, sums)
        return sums

    def reference_sums(self, features: NDArray[np.float32]) -> list[float]:
        """As `sums`, row by row and step by step."""
        sums = []
        for row in features:
            total = 0.0
            for tree, first in enumerate(self.nodes[:-1].tolist()):
                at = 0 if first < self.nodes[tree + 1] else -1
                while at >= 0:
                    node = first + at
                    goes_left = row[self.feature[node]] <= self.threshold[node]
                    at = int(self.left[node] if goes_left else self.right[node])
                total += float(self.value[self.leaves[tree] - 1 - at])
            sums.append(total)
        return sums

    def _find_masks(self) -> _Masks:
        mask = np.zeros(len(self.feature), np.uint32)
        value = np.zeros_like(self.value)
        for tree, first in enumerate(self.nodes[:-1].tolist()):
            size = int(self.nodes[tree + 1]) - first
            leaf, most = int(self.leaves[tree]), int(self.leaves[tree + 1] - self.leaves[tree])
            if size < 0 or most != size + 1 or most > MOST_LEAVES:
                raise ValueError(f"tree {tree} has {size} nodes and {most} leaves")
            found: list[int] = []  # leaves from left to right
            # Nodes on the way down (as they count in the tree), and those left of whose leaves
            # all have been found, with how many there were before.
            waiting: list[tuple[int, int | None]] = [(0 if size else -1, None)]
            seen = set()
            while waiting:
                at, before = waiting.pop()
                if before is not None:
                    at_left = (1 << len(found)) - (1 << before)
                    mask[first + at] = 0xFFFFFFFF & ~at_left
                elif at in seen or not -most <= at < size:
                    raise ValueError(f"tree {tree} is no tree")
                elif at < 0:
                    found.append(-1 - at)
                else:
                    node = first + at
                    waiting += [(int(self.right[node]), None), (at, len(found))]
                    waiting.append((int(self.left[node]), None))
                if before is None:
                    seen.add(at)
            if len(seen) != size + most:
                raise ValueError(f"tree {tree} has parts that nothing leads to")
            value[leaf : leaf + most] = self.value[leaf + np.array(found)]
        return _Masks(mask, value)


def _last(bounds: NDArray[np.int32]) -> int:
    """The last of bounds that begin at 0; -1 if they do not."""
    return int(bounds[-1]) if len(bounds) and bounds[0] == 0 else -1


def rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Thresholds as float32 that divide float32 values as they did: the next one not above."""
    single = thresholds.astype(np.float32)
    above = single.astype(np.float64) > thresholds
    return np.where(above, np.nextafter(single, np.float32(-np.inf)), single)


def probabilities(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logistic function."""
    result: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(sums, -500, 500)))
    return result
