"""The small model that ships, `kenlm/sample`: `python -m curation.models.kenlm.sample DIRECTORY`.

What may live here: how it is made from the reference prose. It is a demonstration: it judges the
sample crawl, and annotates whatever else it is given.
"""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from curation.models import card, reference
from curation.models.kenlm import KIND, arpa
from curation.models.kenlm.estimate import FALLBACK, Corpus, Estimate
from curation.models.kenlm.normalise import ccnet

ORDER = 3  # CCNet has 5, of a million texts; of a few hundred, longer n-grams hardly come back
PIECES = 1_200


def make(target: Path) -> None:
    """Trains the model anew: the same files every time, for the same libraries."""
    lines = [ccnet(text) for text in reference.texts()]
    pieces = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=pieces, model_type="unigram",
        vocab_size=PIECES, character_coverage=0.9995, num_threads=1, minloglevel=2,
    )  # fmt: skip
    said = {
        "kind": KIND,
        "language": "en",
        "license": "as this package",
        "source": "the reference prose of this package (curation/models/reference)",
        "demonstration": True,
    }
    with card.new(target, **said) as (place, settings):
        settings.update(
            model="lm.arpa.gz", order=ORDER, normaliser="ccnet",
            tokenizer={"kind": "sentencepiece", "file": "sp.model"},
        )  # fmt: skip
        (place / "sp.model").write_bytes(pieces.getvalue())
        tokenizer = SentencePieceProcessor(model_proto=pieces.getvalue())
        sentences = map(" ".join, tokenizer.encode(lines, out_type=str, num_threads=1))
        estimate = Estimate(Corpus.of(sentences), ORDER, FALLBACK)
        weights = io.BytesIO()
        arpa.write(estimate, weights)
        (place / "lm.arpa.gz").write_bytes(gzip.compress(weights.getvalue(), mtime=0))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
