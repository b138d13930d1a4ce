"""Ids and counts that others have, of real texts: GPT-2's and GPT-Neo's tokenizers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from tokenizers.decoders import ByteLevel

from curation.tokens import presets
from curation.tokens.encoding.batches import encode
from curation.tokens.encoding.loaded import Loaded, load

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def gpt2(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """The published vocabulary and merges, with our preset, as a tokenizer.json."""
    folder = shared_data / "tokenizer" / "gpt2-vocab"
    with gzip.open(folder / "gpt2_vocab.json.gz", "rt", encoding="utf-8") as file:
        vocabulary = json.load(file)
    with gzip.open(folder / "gpt2_merges.txt.gz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if not line.startswith("#version")]
    merges = [tuple(line.split(" ")) for line in lines if line]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = presets.pre_tokenizer("gpt2")
    tokenizer.decoder = ByteLevel()
    path = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    tokenizer.save(str(path))
    return load(path)


@pytest.fixture(scope="module")
def gpt_neo(shared_data: Path) -> Loaded:
    return load(shared_data / "tokenizer" / "gpt-neo-tokenizer" / "tokenizer.json.gz")


@pytest.fixture(scope="module")
def encodings(shared_data: Path) -> list[dict[str, Any]]:
    path = shared_data / "tokenizer" / "golden-encodings" / "encodings.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["gpt2", "gpt-neo"])
def test_ids_are_those_of_the_golden_encodings(
    name: str, encodings: list[dict[str, Any]], request: pytest.FixtureRequest
) -> None:
    """But for names of special tokens inside texts, which are ordinary text here."""
    loaded: Loaded = request.getfixturevalue(name.replace("-", "_"))
    ordinary = [e for e in encodings if not any(s in e["text"] for s in loaded.special)]
    assert len(ordinary) >= len(encodings) - 3 > 160
    ids, lengths = encode(loaded, [e["text"] for e in ordinary])
    begin = 0
    for one, length in zip(ordinary, lengths, strict=True):
        document = ids[begin : begin + length].tolist()
        assert document == [*one[name], loaded.eos], one["source"]
        begin += int(length)


def test_a_special_token_in_a_text_is_text_though_the_library_makes_it_an_id(
    gpt_neo: Loaded,
) -> None:
    for text in ("a <|endoftext|> b", "<|padding|>"):
        assert gpt_neo.eos in gpt_neo.decoder.encode("<|endoftext|>").ids
        ids, _ = encode(gpt_neo, [text])
        assert ids.tolist().count(gpt_neo.eos) == 1 and gpt_neo.decode(ids[:-1]) == text


def test_what_is_known_of_them(gpt2: Loaded, gpt_neo: Loaded) -> None:
    assert (gpt2.size, gpt2.eos, gpt2.dtype.name) == (50_257, 50_256, "uint16")
    assert gpt2.separable and gpt2.warnings == ()
    assert gpt_neo.separable and "not lossless" in gpt_neo.warnings[0], "it brings texts to NFC"


def test_tiny_shakespeare_has_the_published_counts(gpt2: Loaded, shared_data: Path) -> None:
    """nanoGPT, data/shakespeare: 301,966 train and 36,059 validation tokens, cut at 90 %."""
    text = read(shared_data / "text" / "tinyshakespeare" / "input.txt.gz")
    at = int(len(text) * 0.9)
    _, lengths = encode(gpt2, [text[:at], text[at:]])
    assert (lengths - 1).tolist() == [301_966, 36_059]


def test_wikitext_has_the_measured_count(gpt2: Loaded, shared_data: Path) -> None:
    counts = shared_data / "tokenizer" / "golden-encodings" / "corpus_counts.json"
    wanted = json.loads(counts.read_text())["wikitext2"]["valid"]["gpt2_tokens"]
    _, lengths = encode(gpt2, [read(shared_data / "text" / "wikitext-2" / "valid.txt.gz")])
    assert lengths.tolist() == [wanted + 1]


def read(path: Path) -> str:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return file.read()
