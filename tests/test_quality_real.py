"""Quality classifiers against human judgement (bench/scores_quality.py has the whole table)."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from bench.scores_quality import Judged, pages, probabilities
from curation.extract.contrast import contrast
from curation.models.classifier import Options
from curation.models.scores import roc_auc

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def judged(shared_data: Path) -> Judged:
    return Judged(shared_data)


def test_the_length_scores_as_others_measured_it(judged: Judged, shared_data: Path) -> None:
    said = json.loads((shared_data / "filters/dclm-human/reference_scores.json").read_text())
    some = judged.unanimous
    assert roc_auc(judged.length, judged.good)[0] == pytest.approx(
        said["scores"]["log_length"]["auc_all"], abs=1e-4
    )
    assert roc_auc(judged.length[some], judged.good[some])[0] == pytest.approx(
        said["scores"]["log_length"]["auc_unanimous"], abs=1e-4
    )


def test_what_is_learnt_from_pages_alone_beats_length(judged: Judged, shared_data: Path) -> None:
    """A quarter of the pages, for speed; all of them do better."""
    sides = list(contrast(islice(pages(shared_data), 0, None, 4)))
    good = [text for side in sides for text in side.prose]
    bad = [text for side in sides for text in side.rest]
    found = probabilities(
        good, bad, judged.texts, Options(dim=10, epochs=10, bucket=100_000), "line"
    )
    assert roc_auc(found, judged.good)[0] > roc_auc(judged.length, judged.good)[0] + 0.03
