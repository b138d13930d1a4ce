"""The learned model: how probably each block is of the page's main content.

What may live here: the model and its file, `model.npz`, which bench/extraction/train.py writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from curation.extract.blocks import ensemble
from curation.extract.blocks.ensemble import Ensemble
from curation.extract.blocks.features import Weights, features
from curation.extract.blocks.page import Page

#: The package's own model.
FILE = Path(__file__).with_name("model.npz")


@dataclass(frozen=True, slots=True)
class Model:
    """Weights of words, and trees over the features of blocks."""

    weights: Weights
    trees: Ensemble

    @classmethod
    def load(cls, file: Path | BinaryIO = FILE) -> Self:
        """The model of a file that `save` wrote."""
        with np.load(file) as arrays:
            weights = Weights(arrays["hint_weights"], arrays["word_weights"])
            return cls(weights, Ensemble.of_arrays(arrays, "trees_"))

    def save(self, file: Path | BinaryIO) -> None:
        """Writes the same bytes for the same model, compressed (npz)."""
        hints, words = self.weights
        trees = self.trees.arrays("trees_")
        np.savez_compressed(
            file, allow_pickle=False, hint_weights=hints, word_weights=words, **trees
        )

    def probabilities(self, page: Page) -> NDArray[np.float64]:
        """Of each block of the page, in order."""
        return ensemble.probabilities(self.trees.sums(features(page, self.weights)))


@cache
def package_model() -> Model:
    """The package's own model, loaded once."""
    return Model.load()
