"""The small model that ships: how it is made, and what it says of the sample's pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from curation import models
from curation.models import card, kenlm, reference
from curation.models.kenlm import sample
from curation.sample.fates import KEPT
from curation.sample.pages import Page, load_pages

NAME = "kenlm/sample"
MAX = 250  # as the recipe of the sample crawl has it


def perplexities(name: str | Path, texts: list[str]) -> list[float]:
    found = [score.perplexity for score in kenlm.load(name).score(texts)]
    assert None not in found
    return [number for number in found if number is not None]


def test_the_model_is_what_its_command_makes_of_the_reference_prose(tmp_path: Path) -> None:
    sample.make(tmp_path / "again")
    theirs, ours = (dict(card.read(p).settings) for p in (tmp_path / "again", models.find(NAME)))
    # By numbers: another kind of processor may add otherwise, and other pieces be chosen.
    assert theirs.pop("percentiles") == pytest.approx(ours.pop("percentiles"), rel=0.02)
    for settings in (theirs, ours):
        settings["trained"] = {n: settings["trained"][n] for n in ("documents", "words")}
    assert theirs == ours
    texts = [*reference.texts(), *load_pages()["ocr-scan"].blocks]
    assert perplexities(tmp_path / "again", texts) == pytest.approx(
        perplexities(NAME, texts), rel=0.02
    )


def test_it_is_a_demonstration_and_small() -> None:
    found = card.read(models.find(NAME), kenlm.KIND)
    assert found.demonstration and found.language == "en"
    assert models.size(models.find(NAME)) < 1_500_000


def test_good_pages_of_the_sample_stay_and_word_salad_goes() -> None:
    def text(page: Page) -> str:
        return "\n".join(page.blocks)

    english = [page for page in load_pages().values() if page.language == "en"]
    good = [page for page in english if page.fate in KEPT]
    salad = [page for page in english if page.fate == "drop:perplexity:high_perplexity"]
    assert len(good) > 40 and len(salad) == 3
    worst = max(perplexities(NAME, [text(page) for page in good]))
    best = min(perplexities(NAME, [text(page) for page in salad]))
    assert worst < MAX < best


def test_the_reference_prose_is_none_of_the_samples_pages() -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        words = text.lower().split()
        return {tuple(words[i : i + 8]) for i in range(len(words) - 7)}

    pages = {run for page in load_pages().values() for run in runs(" ".join(page.blocks))}
    assert not pages & {run for text in reference.texts() for run in runs(text)}
