"""The small classifier that ships: how it is made, and what it says of the sample's pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from curation import models
from curation.models import card, classifier, quality_sample, reference
from curation.sample.fates import KEPT
from curation.sample.pages import load_pages

NAME = "quality/sample"


def test_the_model_is_what_its_command_makes(tmp_path: Path) -> None:
    quality_sample.make(tmp_path / "again")
    pages = ["\n".join(page.blocks) for page in load_pages().values()]
    texts = [*reference.texts(), *quality_sample.junk(1), *pages]
    # By numbers: another kind of processor may add in another order, and write other bytes.
    np.testing.assert_allclose(
        classifier.load(tmp_path / "again").probabilities(texts),
        classifier.load(NAME).probabilities(texts),
        atol=1e-3,
    )


def test_it_is_a_demonstration_and_small() -> None:
    found = card.read(models.find(NAME), classifier.KIND)
    assert found.demonstration and found.language == "en"
    assert models.size(models.find(NAME)) < 300_000


def test_good_pages_of_the_sample_score_higher_than_junk() -> None:
    model = classifier.load(NAME)
    good = [
        "\n".join(page.blocks)
        for page in load_pages().values()
        if page.language == "en" and page.fate in KEPT
    ]
    assert len(good) > 40
    junk = model.probabilities(quality_sample.junk(seed=1))  # not what it was trained on
    assert model.probabilities(good).min() > 0.5 > junk.max()
