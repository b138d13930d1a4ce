"""fastText's files: read whole, or refused before fastText sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation import models
from curation.models import classifier, fasttext
from curation.models.fasttext import DamagedModel

LID = models.find("lid.176.ftz").read_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Weights as they are, and quantised (with norms), of enough words for both."""
    good = [f"a plain good word number {i} on the mill" for i in range(300)]
    bad = [f"buy cheap {i} click here now" for i in range(300)]
    found = []
    for quantise in (False, True):
        place = tmp_path_factory.mktemp("m")
        options = classifier.Options(dim=8, bucket=100, quantise=quantise)
        settings = classifier.fit(good, bad, place, options)
        found.append(place / settings["model"])
    return found


def test_whole_files_of_either_form_are_loaded(trained: list[Path]) -> None:
    for path in trained:
        assert set(fasttext.load(path).labels) == {classifier.POSITIVE, classifier.NEGATIVE}
    assert len(fasttext.load(models.find("lid.176.ftz")).labels) == 176


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(LID) - 1))
def test_a_file_that_is_cut_short_anywhere_is_refused(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.ftz"
    path.write_bytes(LID[:cut])
    with pytest.raises(DamagedModel, match=r"no fastText model|header asks for 938,013"):
        fasttext.load(path)


def test_so_is_every_other_form(trained: list[Path], tmp_path: Path) -> None:
    for whole in trained:
        data = whole.read_bytes()
        for cut in (8, 60, len(data) // 2, len(data) - 1):
            (tmp_path / "cut.bin").write_bytes(data[:cut])
            with pytest.raises(classifier.ClassifierError):
                classifier.load(tmp_path / "cut.bin", classifier.POSITIVE)
    (tmp_path / "long.bin").write_bytes(data + b"!")
    with pytest.raises(DamagedModel, match="asks for"):
        fasttext.load(tmp_path / "long.bin")
    (tmp_path / "text.bin").write_text("no model at all " * 20)
    with pytest.raises(DamagedModel, match="no fastText model"):
        fasttext.load(tmp_path / "text.bin")
