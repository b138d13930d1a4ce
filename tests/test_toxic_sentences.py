"""Toxic sentences: a classifier's scores in the filter, their removal by the editor."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import recipe, write_jsonl
from pydantic import ValidationError

from curation import run
from curation.document import Documents
from curation.engine.chain import as_column
from curation.filters.toxicity import Toxicity, ToxicSentences, without
from curation.models import card, classifier

BAD = "You are a grumbling wretch"
GOOD = "The mill stands by the river"


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Makes a classifier to which "grumbling" is toxic."""

    def make(
        name: str, bad: str = "grumbling wretch", granularity: Any = "sentence", **said: Any
    ) -> str:
        target = tmp_path_factory.mktemp("models") / name
        options = classifier.Options(dim=4, epochs=100, lr=0.5, ngrams=1, bucket=10)
        positive = [f"you are a {bad} {i}" for i in range(20)]
        negative = [f"the mill stands by the river on day {i}" for i in range(20)]
        with card.new(target, kind=classifier.KIND, **said) as (place, filled):
            filled |= classifier.fit(positive, negative, place, options, "words", granularity)
        return str(target)

    return make


@pytest.fixture(scope="module")
def model(train: Callable[..., str]) -> str:
    return train("toxic")


def documents(*texts: str, language: str | None = "en") -> Documents:
    tags = pa.array([language] * len(texts), pa.string())
    return Documents({"text": pa.array(texts, pa.large_string()), "language": tags})


def signals(found: Any) -> dict[str, Any]:
    return {name: as_column(values)[0].as_py() for name, values in found.items()}


def test_the_share_of_toxic_sentences_and_the_highest_score(model: str) -> None:
    stage = Toxicity(models=[model])
    found = signals(stage.score(documents(f"{GOOD}. {BAD}!\n{GOOD}\n***\n{GOOD}.")))
    [alone] = classifier.load(model).probabilities([f"{BAD}!"])
    assert found["sentence_share"] == 1 / 4
    assert found["max_score"] == alone > 0.9
    assert signals(stage.score(documents(f"{GOOD}.")))["sentence_share"] == 0


def test_a_score_that_equals_the_threshold_is_toxic(model: str) -> None:
    [score] = classifier.load(model).probabilities([f"{BAD}."])
    at = signals(Toxicity(models=[model], threshold=score).score(documents(f"{BAD}.")))
    assert at["sentence_share"] == 1
    edited = ToxicSentences(models=[model], threshold=min(score + 1e-9, 1)).edit(
        documents(f"{BAD}.")
    )
    assert edited.text.to_pylist() == [f"{BAD}."]


def test_without_sentences_or_classifiers_nothing_is_scored(model: str) -> None:
    for stage, text in ((Toxicity(models=[model]), "*** 12"), (Toxicity(), f"{BAD}.")):
        found = signals(stage.score(documents(text)))
        assert found["sentence_share"] is None and found["max_score"] is None


def test_a_classifier_reads_its_own_language_alone(train: Callable[..., str]) -> None:
    stage = Toxicity(models=[train("english", language="en")])
    for language, share in (("en-GB", 1), (None, 1), ("de", None)):
        found = signals(stage.score(documents(f"{BAD}.", language=language)))
        assert found["sentence_share"] == share


def test_of_several_classifiers_the_highest_score_counts(
    model: str, train: Callable[..., str]
) -> None:
    other = train("other", bad="mumbling villain")
    text = f"{BAD}. {GOOD}. You are a mumbling villain. {GOOD}."
    edited = ToxicSentences(models=[model, other]).edit(documents(text))
    assert edited.text.to_pylist() == [f"{GOOD}. {GOOD}."]
    assert signals(edited.signals) == {
        "sentences": 4,
        "removed_sentences": 2,
        "removed_share": 0.5,
    }


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("One. #Two. Three.", "One. Three."),
        ("One. #Two.\nThree.", "One.\nThree."),
        ("One.\n  #Two.  \n\nThree.", "One.\n\nThree."),
        ("One.\n#Two. #Three.\nFour.", "One.\nFour."),
        ("One.\n#Two.\n#Three.", "One."),
        ("#One.\nTwo.\n", "Two.\n"),
        (" #One. Two.", " Two."),
        ("One. #Two.  ***\nThree.", "One. ***\nThree."),
        ("*\n#One.\u00a0\n*", "*\n*"),
        ("#One. #Two.\n", ""),
        ("#One.", ""),
    ],
)
def test_what_is_left_has_the_white_space_of_a_text_without_the_sentence(
    text: str, left: str
) -> None:
    """A sentence with "#" is removed."""
    assert cut(text) == left


def cut(text: str) -> str:
    seen = documents(text).view
    spans = zip(seen.sentences.starts.tolist(), seen.sentences.stops.tolist(), strict=True)
    edges = [0, *(edge for span in spans for edge in span), len(seen.data)]
    data = seen.data.tobytes()
    parts = [data[a:b].decode() for a, b in pairwise(edges)]
    return without(parts, ["#" in part for part in parts[1::2]])


pieces = ["One. ", "#Two. ", "#Three!", "four", "\n", "\n", " ", "\u3000", "* ", "#"]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(pieces), max_size=15).map("".join))
def test_nothing_else_is_removed_and_nothing_added(text: str) -> None:
    view = documents(text).view
    data, gone = view.data.tobytes(), []
    for start, stop in zip(view.sentences.starts, view.sentences.stops, strict=True):
        if "#" in data[start:stop].decode():
            gone.append((start, stop))
    for start, stop in reversed(gone):
        data = data[:start] + data[stop:]
    assert "".join(cut(text).split()) == "".join(data.decode().split())
    if not gone:
        assert cut(text) == text


def test_books_balance_over_cut_emptied_and_dropped_pages(model: str, tmp_path: Path) -> None:
    texts = [f"{GOOD}. {BAD}. {GOOD}.", f"{GOOD}.", f"{BAD}.\n{BAD}!", f"{GOOD}. {BAD}. {BAD}."]
    path = write_jsonl(tmp_path / "x.jsonl", texts)
    stage = {"toxic_sentences": {"models": [model], "max_removed": 0.5}}
    run(recipe(stage), inputs=[path], output=tmp_path / "r")
    [found] = json.loads((tmp_path / "r/stats.json").read_text())["stages"]
    assert {reason: n["documents"] for reason, n in found["dropped"].items()} == {
        "empty": 1,
        "many_removed": 1,
    }
    assert found["removed"]["words"] == 5
    left = pq.read_table(tmp_path / "r/documents")["text"].to_pylist()
    assert sorted(left) == sorted([f"{GOOD}.", f"{GOOD}. {GOOD}."])
    assert model in str(json.loads((tmp_path / "r/run.json").read_text()))


def test_models_that_are_not_for_sentences_of_real_pages_are_refused(
    train: Callable[..., str],
) -> None:
    for name, message in (
        (train("document", granularity="document"), "no classifier of sentences"),
        (train("demonstration", demonstration=True), "a demonstration"),
    ):
        for stage in (Toxicity, ToxicSentences):
            with pytest.raises(ValidationError, match=message):
                stage(models=[name])
    with pytest.raises(ValidationError, match="without one"):
        ToxicSentences(models=[])
