"""fastText classifiers: how they are loaded, asked and trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from curation import models
from curation.models import card
from curation.models.classifier import (
    KIND,
    NEGATIVE,
    POSITIVE,
    ClassifierError,
    Options,
    as_line,
    as_words,
    fit,
    load,
)

SMALL = Options(dim=8, epochs=20, lr=0.5, bucket=1000)
GOOD = [f"the wheel of the old mill turns slowly in the river {i}" for i in range(100)]
BAD = [f"buy cheap shoes now and save money on shoes {i}" for i in range(100)]


def make(target: Path, good: list[str] = GOOD, bad: list[str] = BAD, **said: object) -> Path:
    with card.new(target, kind=KIND) as (place, settings):
        settings.update(fit(good, bad, place, **{"options": SMALL, **said}))
    return target


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("models") / "quality" / "mine")


def test_probabilities_are_of_the_positive_label(trained: Path) -> None:
    found = load(trained).probabilities(["the wheel of the mill", "cheap shoes"])
    assert found.dtype == np.float64
    assert found[0] > 0.9 > 0.1 > found[1]
    other = load(trained / "model.bin", NEGATIVE).probabilities(["the wheel of the mill"])
    assert other[0] == pytest.approx(1 - found[0], abs=1e-4)


def test_without_text_there_is_no_probability(trained: Path) -> None:
    texts = [None, "", " \n\t", "</s>\u2028"]
    assert np.isnan(load(trained).probabilities(texts)).all()


def test_the_same_as_the_public_call_of_fasttext(trained: Path) -> None:
    from fasttext.FastText import load_model

    model = load_model(str(trained / "model.bin"))
    for text in ("the wheel", "money for the mill", "nothing known"):
        labels, values = model.predict(text, k=2)
        [mine] = load(trained).probabilities([text])
        assert mine == pytest.approx(min(dict(zip(labels, values, strict=True))[POSITIVE], 1.0))


def test_a_text_is_one_line_whatever_ends_its_lines(trained: Path) -> None:
    model = load(trained)
    ends = ["\n", "\r\n", "\x0b", "\x85", "\u2028", " </s> "]
    texts = [f"the wheel{end}cheap shoes" for end in ends]
    assert len(set(model.probabilities(texts))) == 1


def test_preparations() -> None:
    assert as_line(" One,\n two.\r\n") == "One,  two."
    assert as_words("One, two.\nDON'T") == "one , two . don ' t"


def test_the_same_texts_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    first = make(tmp_path / "a")
    second = make(tmp_path / "b", GOOD[::-1], BAD[50:] + BAD[:50])
    assert models.digest(first) == models.digest(second)


def test_words_that_look_like_labels_teach_nothing(tmp_path: Path) -> None:
    labelled = [f"{NEGATIVE} {text}" for text in GOOD]
    assert card.read(make(tmp_path / "a", labelled)).files == card.read(make(tmp_path / "b")).files


def test_a_quantised_model_is_smaller_and_says_nearly_the_same(
    tmp_path: Path, trained: Path
) -> None:
    good, bad = (
        [f"{text} {' '.join(f'w{i * k % 997}' for k in range(20))}" for i, text in enumerate(side)]
        for side in (GOOD * 3, BAD * 3)
    )
    options = {"dim": 16, "epochs": 5, "lr": 0.5, "bucket": 5000}
    whole = make(tmp_path / "a", good, bad, options=Options(**options))
    small = make(tmp_path / "b", good, bad, options=Options(**options, quantise=True))
    assert models.size(small) < models.size(whole) / 2
    texts = ["the wheel of the mill", "cheap shoes"]
    np.testing.assert_allclose(
        load(small).probabilities(texts), load(whole).probabilities(texts), atol=0.1
    )


def test_a_class_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match="one class has none"):
        make(tmp_path / "a", [" \n", ""])
    assert not (tmp_path / "a").exists()


def test_what_cannot_be_asked_is_refused_in_one_line(tmp_path: Path, trained: Path) -> None:
    with pytest.raises(ClassifierError, match="no label '__label__hq'"):
        load(trained / "model.bin", "__label__hq")
    (tmp_path / "x.bin").write_bytes(b"not a model at all")
    with pytest.raises(ClassifierError, match="no fastText model"):
        load(tmp_path / "x.bin", POSITIVE)
    with card.new(tmp_path / "y", kind=KIND) as (place, settings):
        settings.update(fit(GOOD, BAD, place, SMALL), preparation="stemmed")
    with pytest.raises(ClassifierError, match="preparation 'stemmed' is unknown"):
        load(tmp_path / "y")


def test_a_rate_that_fasttext_cannot_learn_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match="NaN"):
        fit(GOOD, BAD, tmp_path, replace(SMALL, lr=float("nan")))


def test_weights_outside_of_the_card_are_refused(tmp_path: Path) -> None:
    with card.new(tmp_path / "m", kind="classifier") as (place, settings):
        settings.update(fit(GOOD, BAD, place, SMALL))
        (place / settings["model"]).rename(tmp_path / "elsewhere.bin")
        settings["model"] = "../elsewhere.bin"
    with pytest.raises(card.CardError, match="not among its files"):
        load(tmp_path / "m")
