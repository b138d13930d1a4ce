"""Trains the model of the extraction engine `blocks`: learned weights of words, and trees.

    python -m bench.extraction.train DATA [MODEL]

DATA: the folder `html_extraction`. MODEL: the file to write, the package's own by default. Wants
lightgbm (which brings scipy). The same data, libraries and machine give the same bytes.

What may live here: what the model is trained on, and how. Two linear models give each hint and each
opening word (or pair) a weight; a boosted ensemble takes the features that are made with them; a
second one takes what the first says of the neighbours, too. The rows that these are trained on get
their scores from models that have not seen their fold, as those of a new page do. Nothing is
trained on folds that are left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.extraction import corpus
from bench.extraction.corpus import FOLDS, Sample
from curation.extract.blocks import features as blocks_features
from curation.extract.blocks.ensemble import Ensemble, probabilities, rounded_down
from curation.extract.blocks.features import NAMES, Weights
from curation.extract.blocks.features.reference import pair, slot
from curation.extract.blocks.model import FILE, Model

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

HINT_SLOTS, WORD_SLOTS = 1 << 13, 1 << 14
LEAST_SITES = 3  # on which a word must be found to have a weight
PENALTY = 5.0  # of squared weights
FIRST, SECOND = 60, 90  # trees of the first and the second look
#: Weight of a page, of its blocks with a segment, and of those that only trafilatura judges.
PAGE = {"aeb": 20.0, "traf": 20.0, "read": 10.0, "wmb": 20.0}
JUDGED, OPINED = 3.0, 0.25
LONG = 600  # characters from which on a block weighs no more
PARAMETERS = {
    "objective": "cross_entropy",
    "learning_rate": 0.14,
    "num_leaves": 31,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.3,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 10.0,
    "min_gain_to_split": 0.05,
    "max_bin": 63,
    "use_missing": False,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}


class Trainer:
    """The blocks of all samples as rows, in order."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        sizes = [len(sample.labels) for sample in samples]
        self.page: Longs = np.repeat(np.arange(len(samples)), sizes)
        self.fold: Longs = np.array([sample.fold for sample in samples])[self.page]
        self.target, self.weight = self._targets()
        self._weights: dict[frozenset[int], Weights] = {}
        self._firsts: dict[frozenset[int], Ensemble] = {}

    def fit(self, *without: int) -> Model:
        """The model trained on all folds but these. What the second look learns from was said by
        first looks that had not seen the page's fold."""
        out = frozenset(without)
        matrices = self._matrices(out)
        for sample, matrix in zip(self.samples, matrices, strict=True):
            chances = probabilities(self._first(out | {sample.fold}).sums(matrix))
            blocks_features.add_context(sample.page, matrix, chances)
        both = np.concatenate(matrices)
        second = self._trees(both, out, SECOND)
        return Model(self.weights(out), self._first(out), second)

    def _matrices(self, without: frozenset[int]) -> list[NDArray[np.float32]]:
        """Features of all samples, each with weights that have not seen its fold, nor those."""
        return [
            blocks_features.features(sample.page, self.weights(without | {sample.fold}))
            for sample in self.samples
        ]

    def _first(self, without: frozenset[int]) -> Ensemble:
        if without not in self._firsts:
            matrix = np.concatenate(self._matrices(without))[:, : len(NAMES)]
            self._firsts[without] = self._trees(matrix, without, FIRST)
        return self._firsts[without]

    def _trees(self, matrix: NDArray[np.float32], without: frozenset[int], trees: int) -> Ensemble:
        import lightgbm

        rows = ~np.isin(self.fold, list(without)) & (self.weight > 0)
        names = [str(i) for i in range(matrix.shape[1])]
        target, weight = self.target[rows], self.weight[rows]
        data = lightgbm.Dataset(matrix[rows], target, weight=weight, feature_name=names)
        return ensemble(lightgbm.train(PARAMETERS, data, trees).model_to_string())

    def weights(self, without: frozenset[int]) -> Weights:
        """The weights of hints and words that are learned without some folds."""
        if without not in self._weights:
            rows = ~np.isin(self.fold, list(without)) & (self.weight > 0)
            hints, words = (self._linear(counts, rows) for counts in self._counts)
            self._weights[without] = Weights(hints, words)
        return self._weights[without]

    def _targets(self) -> tuple[Floats, Floats]:
        """What each row should be, and its weight (0 where nothing is known)."""
        targets, weights = [], []
        for sample in self.samples:
            known = ~np.isnan(sample.labels)
            target, weight = sample.labels, np.where(known, 1.0, 0.0)
            if sample.opinion is not None:
                judged = ~np.isnan(sample.opinion)
                target = np.where(known, sample.labels, np.round(sample.opinion))
                weight = np.where(known, JUDGED, np.where(judged, OPINED, 0.0))
            characters = np.minimum(sample.page.blocks["characters"], LONG)
            weight = weight * np.sqrt(characters + 5.0)
            weight *= PAGE[sample.name.split(":")[0]] / max(1e-9, weight.sum())
            targets.append(np.nan_to_num(target))
            weights.append(weight)
        return np.concatenate(targets), np.concatenate(weights)

    @cached_property
    def _counts(self) -> tuple[Any, Any]:
        """Of every row, sparse, how often hints of the elements around it, and its words, have each
        slot."""
        from scipy.sparse import csr_matrix

        hints: list[tuple[int, int]] = []
        words: list[tuple[int, int]] = []
        row = 0
        for sample in self.samples:
            page = sample.page
            paths = _hint_slots(page)
            opening, counts = blocks_features.opening_words(page)
            for i, leaf in enumerate(page.blocks["leaf"].tolist()):
                hints += [(row, at) for at in paths[leaf]]
                found = opening[i, : counts[i]].tolist()
                for before, word in zip([0, *found], found, strict=False):
                    words.append((row, slot(word, WORD_SLOTS)))
                    words.append((row, slot(pair(before, word), WORD_SLOTS)))
                row += 1

        def matrix(cells: list[tuple[int, int]], width: int) -> Any:
            rows, columns = np.array(cells, np.int64).reshape(-1, 2).T
            return csr_matrix((np.ones(len(rows)), (rows, columns)), (row, width))

        return matrix(hints, HINT_SLOTS), matrix(words, WORD_SLOTS)

    def _linear(self, counts: Any, rows: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Weights of a logistic regression on the columns that enough sites have."""
        from scipy.optimize import minimize
        from scipy.sparse import csr_matrix

        names = sorted({sample.site for sample in self.samples})
        site = np.array([names.index(sample.site) for sample in self.samples])[self.page[rows]]
        table = counts[np.flatnonzero(rows)]
        of_site = csr_matrix((np.ones(len(site)), (site, np.arange(len(site)))))
        sites = np.asarray(((of_site @ table) > 0).sum(axis=0)).ravel()
        columns = np.flatnonzero(sites >= LEAST_SITES)
        table = table[:, columns].tocsr()
        transposed = table.T.tocsr()
        target, weight = self.target[rows], self.weight[rows]

        def loss(x: Floats) -> tuple[float, Floats]:
            z = table @ x[1:] + x[0]
            error = weight * (1 / (1 + np.exp(-z)) - target)
            value = (weight * (np.logaddexp(0, z) - target * z)).sum()
            slope = np.concatenate([[error.sum()], transposed @ error + 2 * PENALTY * x[1:]])
            return value + PENALTY * (x[1:] ** 2).sum(), slope

        start = np.zeros(len(columns) + 1)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60})
        weights = np.zeros(counts.shape[1], np.float32)
        weights[columns] = np.round(found.x[1:] * 256) / 256
        return weights


def _hint_slots(page: Any) -> list[list[int]]:
    """Per element: slots of its hints and of those of all elements around it."""
    slots: list[list[int]] = []
    hints = page.hints.tolist()
    for element in page.elements:
        outer = slots[element["parent"]] if element["parent"] >= 0 else []
        mine = [slot(h, HINT_SLOTS) for h in hints[element["hints"] : element["hints_stop"]]]
        slots.append(outer + mine)
    return slots


def ensemble(text: str) -> Ensemble:
    """The ensemble that a LightGBM model file describes."""

    def of(tree: str, name: str, dtype: type) -> NDArray[Any]:
        match = re.search(rf"^{name}=(.*)$", tree, re.MULTILINE)
        return np.array(match[1].split() if match else [], np.float64).astype(dtype)

    trees = re.split(r"^Tree=\d+$", text.split("end of trees")[0], flags=re.MULTILINE)[1:]

    def joined(name: str, dtype: type) -> NDArray[Any]:
        return np.concatenate([of(tree, name, dtype) for tree in trees])

    def bounds(name: str) -> NDArray[np.int32]:
        sizes = [len(of(tree, name, np.float64)) for tree in trees]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)

    return Ensemble(
        feature=joined("split_feature", np.int32),
        threshold=rounded_down(joined("threshold", np.float64)),
        left=joined("left_child", np.int32),
        right=joined("right_child", np.int32),
        value=joined("leaf_value", np.float32),
        nodes=bounds("split_feature"),
        leaves=bounds("leaf_value"),
    )


def out_of_fold(trainer: Trainer) -> list[Floats]:
    """The probabilities of every sample's blocks, by the model that has not seen its fold."""
    models = [trainer.fit(fold) for fold in range(FOLDS)]
    return [models[sample.fold].probabilities(sample.page) for sample in trainer.samples]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path, nargs="?", default=FILE)
    args = parser.parse_args()
    model = Trainer(corpus.load(args.data)).fit()
    model.save(args.model)
    print(f"{args.model}: {args.model.stat().st_size} bytes")


if __name__ == "__main__":
    main()
