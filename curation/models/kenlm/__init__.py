"""Perplexity by n-gram language models, as CCNet defines it (Wenzek et al., arXiv 1911.00359, 3.3).

What may live here: what a card of kind `kenlm` says, loading such a model, and the arithmetic;
how text is normalised is in `normalise.py`. Weights alone are refused: with another tokenizer or
normaliser than those of the training text a perplexity means nothing (it may well be 10^6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from curation import models
from curation.models import card
from curation.models.kenlm.normalise import NORMALISERS

KIND = "kenlm"


class Cutoffs(BaseModel):
    """Perplexities that divide documents: below `head`, below `middle`, and the tail."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    head: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    middle: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def bucket(self, perplexity: float) -> Literal["head", "middle", "tail"]:
        """CCNet holds its numbers against them as it stores them: rounded to one digit."""
        rounded = round(perplexity, 1)
        return "head" if rounded < self.head else "middle" if rounded < self.middle else "tail"


class SentencePiece(BaseModel):
    """Pieces of the SentencePiece model `file`, as of all published models of CCNet."""

    kind: Literal["sentencepiece"]
    file: str


class Words(BaseModel):
    """What white space divides, in the normalised text."""

    kind: Literal["words"]


def _known(name: str) -> str:
    if name not in NORMALISERS:
        raise ValueError(f"{name!r} is none of {', '.join(NORMALISERS)}")
    return name


class Settings(BaseModel):
    """The settings of a card of kind `kenlm`; others that it may have are for a person.

    `model`: the file, ARPA (perhaps gzip) or KenLM's binary. `percentiles`: of perplexity over the
    documents that it was calibrated on, the 0th to the 99th, as CCNet publishes them; `cutoffs`
    where only these are known.
    """

    model: str
    normaliser: Annotated[str, AfterValidator(_known)]
    tokenizer: Annotated[SentencePiece | Words, Field(discriminator="kind")]
    order: int | None = None
    percentiles: Annotated[tuple[float, ...], Field(min_length=100, max_length=100)] | None = None
    cutoffs: Cutoffs | None = None

    @property
    def buckets(self) -> Cutoffs | None:
        """Where head and middle end: by CCNet's rule the 30th and the 60th percentile."""
        if self.cutoffs or not self.percentiles:
            return self.cutoffs
        return Cutoffs(head=self.percentiles[30], middle=self.percentiles[60])


def read(path: Path) -> tuple[card.Card, Settings]:
    """What a model's directory says of itself. Raises CardError."""
    if not path.is_dir():
        raise card.CardError(
            f"{path}: a language model is a directory with {card.NAME}, which names its tokenizer "
            "and normaliser: without them perplexities mean nothing"
        )
    found = card.read(path, KIND)
    try:
        settings = Settings.model_validate(found.settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["settings", *map(str, first["loc"])])
        raise card.CardError(f"{path / card.NAME}: {where}: {first['msg']}") from None
    for name in (settings.model, getattr(settings.tokenizer, "file", settings.model)):
        if name not in found.files:
            raise card.CardError(f"{path / card.NAME}: {name} is not among its files")
    return found, settings


class Score(NamedTuple):
    """Of one text: its perplexity and its pieces, without ends; None where it has no piece."""

    perplexity: float | None = None
    pieces: int | None = None


class LanguageModel:
    """A model in memory, with its tokenizer and normaliser."""

    def __init__(self, path: Path) -> None:
        self.card, self.settings = read(path)
        self._normalise = NORMALISERS[self.settings.normaliser]
        self._pieces = _tokenizer(path, self.settings)
        self._score = _weights(path / self.settings.model).score

    def score(self, texts: Iterable[str]) -> Iterator[Score]:
        """Perplexity of each text: 10 to the power of -(sum of log10 p) / (pieces and line ends).

        Each line of the normaliser begins with <s> and ends with </s>, which counts as a piece.
        """
        for text in texts:
            lines = self._pieces(self._normalise(text))
            pieces = sum(map(len, lines))
            if not pieces:
                yield Score()
                continue
            total = math.fsum(self._score(" ".join(line)) for line in lines)
            yield Score(10.0 ** (-total / (pieces + len(lines))), pieces)


def load(name: str | Path) -> LanguageModel:
    """The model of this name or path, loaded once per process.

    A binary one is mapped into memory, which processes share. Raises ModelNotFound, CardError.
    """
    path = models.find(name)
    return _load_once(path, models.digest(path) if path.is_dir() else "")


@lru_cache(maxsize=64)
def _load_once(path: Path, digest: str) -> LanguageModel:
    return LanguageModel(path)


def memory(path: Path) -> int:
    """Bytes that a model takes in a process: KenLM holds an n-gram in fewer than its line of ARPA
    has, and gzip takes about a fourth of these."""
    weights = path / read(path)[1].model
    return models.size(path) * (4 if weights.suffix == ".gz" else 1)


def version() -> str:
    """Of the installed distribution of KenLM: there are two with the same module."""
    for name in ("kenlm-ex", "kenlm"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"


Tokenizer = Callable[[list[str]], Sequence[Sequence[str]]]


def _tokenizer(path: Path, settings: Settings) -> Tokenizer:
    if isinstance(settings.tokenizer, Words):
        return lambda lines: [line.split() for line in lines]
    from sentencepiece import SentencePieceProcessor

    file = path / settings.tokenizer.file
    try:
        encode = SentencePieceProcessor(model_file=str(file)).encode
    except (OSError, RuntimeError):
        raise card.CardError(f"{file}: no SentencePiece model") from None
    return lambda lines: encode(lines, out_type=str, num_threads=1)


def _weights(file: Path) -> Any:
    import kenlm

    config = kenlm.Config()
    config.load_method = kenlm.LoadMethod.LAZY
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    config.show_progress = False
    try:
        return kenlm.Model(str(file), config)
    except OSError as error:
        raise card.CardError(f"{file}: no language model: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
