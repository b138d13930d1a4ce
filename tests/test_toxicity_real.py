"""Bad words and toxic sentences on labelled texts, and against datatrove's filter.

The scores of lists are those that were recorded with the data; those of the classifier are floors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.scores_toxicity import (
    clean,
    davidson,
    dropped,
    halves,
    hatecheck,
    hits,
    measures,
    sentences,
    train,
    wikitext,
)
from curation.filters import bad_words
from curation.filters.toxicity import DOLMA, Toxicity
from curation.models import scores

pytestmark = pytest.mark.real


@pytest.mark.parametrize("name", ["davidson", "hatecheck"])
def test_scores_of_ldnoobw_are_those_recorded_with_the_data(shared_data: Path, name: str) -> None:
    texts = davidson(shared_data) if name == "davidson" else hatecheck(shared_data)[0]
    found = measures(texts.toxic, hits(str(shared_data / "toxicity/ldnoobw"), texts.texts) > 0)
    path = shared_data / "toxicity" / name / "reference_scores.json"
    [expected] = json.loads(path.read_text()).values()
    assert len(texts.texts) == expected["n"]
    for value, key in zip(found, ("precision", "recall", "f1_toxic"), strict=False):
        assert value == pytest.approx(expected[key], abs=5.1e-5)


def test_decisions_over_bad_words_are_those_of_datatrove(
    shared_data: Path, golden: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datatrove")
    from datatrove.data import Document
    from datatrove.pipeline.filters import C4BadWordsFilter, c4_filters

    lists = shared_data / "toxicity/ldnoobw"

    def local(address: str, **_: Any) -> Path:
        return lists / address.rsplit("/", 1)[-1]

    monkeypatch.setattr(c4_filters, "cached_asset_path_or_download", local)
    peer = C4BadWordsFilter()
    texts = [row["text"] for row in golden] + hatecheck(shared_data)[0].texts
    ours = (hits(str(lists), texts) == 0).tolist()
    assert ours == [peer.filter(Document(text=text, id="0")) is True for text in texts]
    assert 20 < len(texts) - sum(ours) < len(texts)


def test_the_list_of_the_package_drops_no_clean_document(shared_data: Path) -> None:
    for texts in clean(shared_data, []).values():
        assert dropped(Toxicity(), texts) == 0


def test_a_classifier_of_half_the_tweets_tells_the_others(
    shared_data: Path, tmp_path: Path
) -> None:
    """With prose among its negatives, or it takes a sentence of prose in six for toxic."""
    half = halves(davidson(shared_data))
    prose = sentences(wikitext(shared_data))
    model = train([*half.train[0], *prose], half.train[1], tmp_path / "toxic")
    negatives, positives = (model.probabilities(side) for side in half.held_out)
    found = np.concatenate([negatives, positives])
    toxic = np.repeat([False, True], [len(negatives), len(positives)])
    assert scores.roc_auc(found, toxic)[1] > 0.96
    assert measures(toxic, found >= DOLMA)[2] > 0.95
    listed = hits(bad_words.BUILT_IN, half.held_out[1] + half.held_out[0])
    assert measures(toxic[::-1], listed > 0)[2] < measures(toxic, found >= DOLMA)[2]
    speeches = sentences(clean(shared_data, [])["us-speeches"])
    assert (model.probabilities(speeches) >= DOLMA).mean() < 0.02
