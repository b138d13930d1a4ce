"""Perplexity beside another implementation, and on texts of which one knows how they compare."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curation import models
from curation.models import kenlm, reference
from curation.models.kenlm import train
from curation.models.kenlm.normalise import ccnet
from curation.sample.pages import load_pages

SAMPLE = "kenlm/sample"


def perplexities(model: str | Path, texts: list[str]) -> np.ndarray:
    found = [score.perplexity for score in kenlm.load(model).score(texts)]
    return np.array([number for number in found if number is not None])


def test_the_numbers_are_those_of_datatroves_implementation_of_ccnet() -> None:
    """Rounded, as it has them, and on text that CCNet's normaliser has seen: datatrove's own makes
    a single 0 of a number, CCNet one of each digit."""
    perplexity = pytest.importorskip("datatrove.utils.perplexity")
    import kenlm as bare
    from sentencepiece import SentencePieceProcessor

    path, settings = models.find(SAMPLE), kenlm.read(models.find(SAMPLE))[1]
    assert isinstance(settings.tokenizer, kenlm.SentencePiece)
    peer: Any = perplexity.KenlmModel("ours", "en")
    peer._model = bare.Model(str(path / settings.model))
    peer._tokenizer = perplexity.SentencePiece("ours", "en")
    peer._tokenizer._model = SentencePieceProcessor(model_file=str(path / settings.tokenizer.file))
    texts = [*reference.texts(), *("\n".join(page.blocks) for page in load_pages().values())]
    theirs = [peer.get_perplexity(ccnet(text), normalize_cc_net=False) for text in texts]
    assert [round(float(number), 1) for number in perplexities(SAMPLE, texts)] == theirs


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line for line in map(str.strip, lines) if line]


@pytest.mark.real
def test_a_model_of_half_of_genesis_knows_the_other_half_from_other_languages(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "text" / "genesis"
    english = _lines(folder / "english-web.txt.gz")
    half = len(english) // 2
    options = train.Options(order=5, vocabulary=2_000, estimator="own", fallback=True)
    train.train(english[:half], tmp_path / "genesis", options, say=lambda message: None)
    languages = ("french", "german", "swedish")
    texts = [english[half:], *(_lines(folder / f"{name}.txt.gz") for name in languages)]
    own, *others = perplexities(tmp_path / "genesis", ["\n".join(lines) for lines in texts])
    assert 5 * own < min(others)  # measured: 102 and 1,284


@pytest.mark.real
def test_speeches_have_lower_perplexities_than_pages(
    shared_data: Path, golden: list[dict[str, Any]]
) -> None:
    speeches = []
    for path in sorted((shared_data / "text" / "us-speeches").glob("*.jsonl.gz")):
        speeches += [json.loads(line)["text"] for line in _lines(path)]
    good = perplexities(SAMPLE, speeches)[:, None]
    pages = perplexities(SAMPLE, [row["text"] for row in golden])[None, :]
    assert np.mean(good < pages) > 0.95  # measured: 0.973
