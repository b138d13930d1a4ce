"""Classifiers of text by fastText: loading one, asking it, training one.

What may live here: the kind of model `classifier`, the preparations of text, and fitting weights.
How good the scores are is measured in `scores.py`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from curation import models
from curation.models import card, fasttext

#: The kind of these models, as cards name it.
KIND = "classifier"
#: The labels of those that are trained here, as fastText has them.
POSITIVE, NEGATIVE = "__label__positive", "__label__negative"


class ClassifierError(ValueError):
    """A model that cannot be used as asked, or texts that nothing can be trained on: one line."""


# --- preparation --------------------------------------------------------------------------------

#: Words of a text that fastText would take for labels. It passes over them when it predicts.
_LABELS = re.compile(r"(?<!\S)__label__\S*")


def as_line(text: str) -> str:
    """The text as one line, otherwise as it is (DCLM's `classify_fasttext_hq_prob`).

    All ends of lines become spaces. So does what ends a line for fastText, the word `</s>`: DCLM
    has the rest of such a document cut off.
    """
    line = " ".join(text.splitlines())
    return line.replace("</s>", " ").strip() if "</s>" in line else line.strip()


def as_words(text: str) -> str:
    """The text in lower case, punctuation apart from words: fastText divides at spaces alone."""
    return " ".join(_WORDS.findall(as_line(text).lower()))


_WORDS = re.compile(r"\w+|[^\w\s]")

#: How a text becomes the line that a classifier is given, by the names that cards use.
PREPARATIONS: Mapping[str, Callable[[str], str]] = {"line": as_line, "words": as_words}


# --- asking -------------------------------------------------------------------------------------


class Classifier:
    """A fastText model in memory; `card` says how it is to be asked."""

    def __init__(self, path: Path, said: card.Card) -> None:
        self.card = said
        try:
            model = fasttext.load(path)
        except fasttext.DamagedModel as error:
            raise ClassifierError(str(error)) from None
        labels = model.labels
        self.positive = str(said.settings.get("positive"))
        if self.positive not in labels:
            known = ", ".join(labels[:5])
            raise ClassifierError(f"{path}: no label {self.positive!r} (there are {known})")
        name = str(said.settings.get("preparation"))
        if name not in PREPARATIONS:
            raise ClassifierError(
                f"{path}: preparation {name!r} is unknown (known: {', '.join(PREPARATIONS)})"
            )
        self._prepare = PREPARATIONS[name]
        self._predict = model.f.predict  # as model.predict, without its numpy arrays

    def probabilities(self, texts: Iterable[str | None]) -> np.ndarray:
        """The probability of the positive label for each text: float64, 0 to 1.

        NaN for null, and for a text of which the preparation leaves nothing.
        """
        return np.fromiter((self._probability(text) for text in texts), np.float64)

    def _probability(self, text: str | None) -> float:
        line = self._prepare(text or "")
        if not line:
            return np.nan
        for probability, label in self._predict(line + "\n", -1, 0.0, "strict"):
            if label == self.positive:
                return min(float(probability), 1.0)  # fastText gives 1.00001
        return 0.0  # fastText leaves out what it rounds to nothing


def load(name: str | Path, positive: str | None = None) -> Classifier:
    """A classifier, loaded once per process.

    A directory of kind `classifier`, by name or path; or a bare fastText file (.bin, .ftz), whose
    label `positive` is meant, and which is given texts as DCLM gives them (`as_line`). Raises
    ModelNotFound, CardError, ClassifierError.
    """
    path = models.find(name)
    return _load_once(str(path), models.digest(path), positive)


@lru_cache(maxsize=8)
def _load_once(name: str, digest: str, positive: str | None) -> Classifier:
    path = Path(name)
    if path.is_dir():
        said = card.read(path, KIND)
        if (model := said.settings.get("model")) not in said.files:  # its digest would be nobody's
            raise card.CardError(f"{path / card.NAME}: {model} is not among its files")
        if positive is not None:
            said = replace(said, settings={**said.settings, "positive": positive})
        return Classifier(path / str(model), said)
    settings = {"positive": positive, "preparation": "line", "granularity": "document"}
    return Classifier(path, card.Card(kind=KIND, files={}, settings=settings))


# --- training -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """How fastText is trained.

    Its own defaults, which DCLM's published trainer keeps, but for pairs of words (`ngrams`), as
    Dolma's classifiers have them. `dim`: length of vectors. `ngrams`: words in a row that are
    features. `min_chars`, `max_chars`: lengths of parts of words that are features; 0 is none.
    `bucket`: how many different features of these two kinds are kept apart. `min_count`: times that
    a word must occur. `quantise`: smaller file (.ftz), slightly other scores.
    """

    dim: int = 100
    epochs: int = 5
    ngrams: int = 2
    lr: float = 0.1
    min_chars: int = 0
    max_chars: int = 0
    bucket: int = 2_000_000
    min_count: int = 1
    quantise: bool = False
    seed: int = 20


def fit(
    positive: Iterable[str],
    negative: Iterable[str],
    place: Path,
    options: Options | None = None,
    preparation: str = "line",
    granularity: Literal["document", "sentence"] = "document",
) -> dict[str, Any]:
    """Trains on texts of two classes; writes the weights into `place`, returns a card's settings.

    The same texts in any order give the same bytes on the same kind of machine: they are put in
    order of their hashes, and one thread learns (several update the same weights in any order).
    """
    from fasttext.FastText import train_supervised

    chosen = options or Options()
    prepare = PREPARATIONS[preparation]
    lines: list[str] = []
    for label, texts in ((POSITIVE, positive), (NEGATIVE, negative)):
        prepared = (_LABELS.sub(" ", prepare(text)).strip() for text in texts)
        lines.extend(f"{label} {line}\n" for line in prepared if line)
    if len({line.partition(" ")[0] for line in lines}) < 2:
        raise ClassifierError("texts of both classes are wanted, and one class has none")
    lines.sort(key=lambda line: blake2b(line.encode(), digest_size=16).digest())
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "lines.txt"
        corpus.write_text("".join(lines), encoding="utf-8", newline="\n")
        try:
            model = train_supervised(
                input=str(corpus),
                dim=chosen.dim,
                epoch=chosen.epochs,
                wordNgrams=chosen.ngrams,
                lr=chosen.lr,
                minn=chosen.min_chars,
                maxn=chosen.max_chars,
                bucket=chosen.bucket,
                minCount=chosen.min_count,
                seed=chosen.seed,
                thread=1,
                verbose=0,
            )
        except RuntimeError as error:  # "Encountered NaN": too high a rate
            raise ClassifierError(f"fastText cannot be trained so: {error}") from None
        name = "model.bin"
        if chosen.quantise:
            name = "model.ftz"
            model.quantize(input=str(corpus), qnorm=True, thread=1, verbose=0)
        model.save_model(str(place / name))
    return {
        "model": name,
        "positive": POSITIVE,
        "preparation": preparation,
        "granularity": granularity,
        "training": asdict(chosen),
    }
