"""Every token of a sample leads to its text, and every document to all samples that hold it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from make_tokens import make
from tokenizers import Tokenizer

from manifests.tokens import Manifest, ManifestError
from manifests.trace import document, sequence


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("toy"))


def text_of(toy: Manifest, provenance: dict[str, object]) -> str:
    table = pq.read_table(toy.directory / str(provenance["file"]))
    assert table["id"][provenance["row"]].as_py() == provenance["id"]
    text: str = table["text"][provenance["row"]].as_py()
    return text


def test_tokens_of_samples_are_those_of_the_text_they_come_from(toy: Manifest) -> None:
    tokenizer = Tokenizer.from_file(str(toy.directory / toy.tokenizer.path))
    drawn = np.random.default_rng(0).integers(0, toy.samples, 20).tolist()  # over 1,000 tokens
    for sample in (0, 499, 500, 1024, toy.samples - 1, *drawn):
        found = sequence(toy, sample)
        assert found.pieces and found.padding >= 0
        for piece in found.pieces:
            assert piece.provenance is not None and piece.provenance["source"] == found.source
            own = [*tokenizer.encode(text_of(toy, piece.provenance)).ids, toy.tokenizer.eos]
            tokens = found.tokens[piece.start : piece.start + piece.length]
            assert tokens.tolist() == own[piece.offset : piece.offset + piece.length]
        for path, row in ((found.file, found.file_row), (found.shard, found.shard_row)):
            stored = pq.read_table(toy.directory / path, columns=["tokens"])["tokens"][row]
            assert stored.as_py() == found.tokens.tolist()


def test_every_place_of_a_document_is_found_and_no_other(toy: Manifest) -> None:
    """Against a scan of everything."""
    everything: dict[str, set[tuple[str, int]]] = {}
    for file in (*toy.shards, *(f for s in toy.sources for f in s.splits["validation"].files)):
        for row, ids in enumerate(pq.read_table(toy.directory / file.path)["doc_ids"].to_pylist()):
            for name in ids:
                everything.setdefault(name.hex(), set()).add((file.path, row))
    for name in sorted(everything)[::7]:
        (found,) = document(toy, name)
        places = {(shard, row) for place in found.places for _, _, shard, row in place.samples} | {
            (p.file, p.file_row) for p in found.places if p.split == "validation"
        }
        assert places == everything[name]
        assert sum(place.length for place in found.places) == (
            found.provenance["tokens"] * found.provenance["copies"]
        )
        assert {place.copy for place in found.places} == set(range(found.provenance["copies"]))


def test_a_url_leads_to_the_same_as_its_id(toy: Manifest) -> None:
    (found,) = document(toy, "https://web.example/10")
    assert found.provenance["copies"] == 2
    assert [found] == document(toy, found.id)
    assert document(toy, "https://nowhere.example/") == document(toy, "0" * 32) == []


def test_a_sample_and_a_document_lead_to_each_other(toy: Manifest) -> None:
    piece = sequence(toy, 77).pieces[-1]
    (found,) = document(toy, piece.id)
    samples = [entry for place in found.places for entry in place.samples]
    assert [(e, s, r) for n, e, s, r in samples if n == 77] == [
        (sequence(toy, 77).epoch, sequence(toy, 77).shard, 77)
    ]


def test_what_is_not_there_is_said(toy: Manifest, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=f"no sample {toy.samples}"):
        sequence(toy, toy.samples)
    copy = make(tmp_path)
    (found,) = document(copy, "https://web.example/10")
    place = copy.directory / found.places[0].file
    place.write_bytes(np.zeros(place.stat().st_size, np.uint8).tobytes())
    with pytest.raises(ManifestError, match=rf"{found.places[0].file}: damaged"):
        document(copy, found.id)
