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
from curation.extract.blocks.features import Weights, add_context, features
from curation.extract.blocks.page import Page

#: The package's own model.
FILE = Path(__file__).with_name("model.npz")
LOOKS = ("first", "second")


@dataclass(frozen=True, slots=True)
class Model:
    """Weights of words, trees over the features of blocks, and trees that see what the first ones
    said of the neighbours, too."""

    weights: Weights
    first: Ensemble
    second: Ensemble

    @classmethod
    def load(cls, file: Path | BinaryIO = FILE) -> Self:
        """The model of a file that `save` wrote."""
        with np.load(file) as arrays:
            weights = Weights(arrays["hint_weights"], arrays["word_weights"])
            first, second = (Ensemble.of_arrays(arrays, f"{name}_") for name in LOOKS)
            return cls(weights, first, second)

    def save(self, file: Path | BinaryIO) -> None:
        """Writes the same bytes for the same model, compressed (npz)."""
        hints, words = self.weights
        trees = {**self.first.arrays("first_"), **self.second.arrays("second_")}
        np.savez_compressed(
            file, allow_pickle=False, hint_weights=hints, word_weights=words, **trees
        )

    def probabilities(self, page: Page) -> NDArray[np.float64]:
        """Of each block of the page, in order."""
        matrix = features(page, self.weights)
        add_context(page, matrix, ensemble.probabilities(self.first.sums(matrix)))
        return ensemble.probabilities(self.second.sums(matrix))


@cache
def package_model() -> Model:
    """The package's own model, loaded once."""
    return Model.load()
