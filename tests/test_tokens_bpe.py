"""Training a tokenizer: the library's merges, whatever the order, threads and memory."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from curation.tokens import presets
from curation.tokens.bpe import TrainingError, TrainOptions, drawn, shares_of, train
from curation.tokens.words import LONGEST, Words

TEXTS = [
    f"The {a} mill grinds {b} sacks of {a} grain, don't it? {i * 37} <|endoftext|>\n  {b}s\tand {a}"
    for i, (a, b) in enumerate(
        (a, b)
        for a in ("old", "wind", "water", "grist", "höhe", "製粉所")
        for b in ("oat", "rye", "corn")
    )
] * 3


def merges(tokenizer: Tokenizer) -> list[list[str]]:
    made: list[list[str]] = json.loads(tokenizer.to_str())["model"]["merges"]
    return made


@pytest.mark.parametrize("name", list(presets.PATTERNS))
def test_merges_are_those_of_the_library_fed_with_the_texts(name: str) -> None:
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = presets.pre_tokenizer(name)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        min_frequency=2,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(TEXTS, trainer)
    ours = train(TEXTS, TrainOptions(vocab_size=400, pretokenizer=name))
    assert merges(ours) == merges(bare) != []
    assert ours.get_vocab() == bare.get_vocab()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt2", ["It", "'s", " X", "'", "LL", " 12345", " --", "\n ", " a"]),
        ("llama3", ["It", "'s", " X", "'LL", " ", "123", "45", " --\n", " ", " a"]),
        ("qwen2", ["It", "'s", " X", "'LL", " ", "1", "2", "3", "4", "5", " --\n", " ", " a"]),
    ],
)
def test_presets_cut_words_as_they_are_published(name: str, words: list[str]) -> None:
    text = "It's X'LL 12345 --\n  a"
    assert "".join(words) == text
    assert presets.words(name).findall(text) == words
    cut = presets.pre_tokenizer(name).pre_tokenize_str(text)
    assert [text[a:b] for _, (a, b) in cut] == words


def test_special_tokens_have_the_first_ids_then_come_the_bytes() -> None:
    options = TrainOptions(vocab_size=300, bos="<s>", mask="<mask>", sentinels=2)
    tokenizer = train(TEXTS, options)
    special = ["<|endoftext|>", "<s>", "<|pad|>", "<mask>", "<|sentinel_0|>", "<|sentinel_1|>"]
    assert [tokenizer.id_to_token(i) for i in range(6)] == special == options.special()
    assert {tokenizer.id_to_token(6 + i) for i in range(256)} == set(
        pre_tokenizers.ByteLevel.alphabet()
    )
    assert tokenizer.get_vocab_size() == 300


SCRIPT = """
import json, sys
from curation.tokens.bpe import TrainOptions, train
print(train(json.load(sys.stdin), TrainOptions(vocab_size=330)).to_str())
"""


def test_the_same_file_from_another_order_and_another_number_of_threads() -> None:
    made = set()
    for texts, threads in ((TEXTS, "1"), (TEXTS[::-1], "3")):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            input=json.dumps(texts),
            env={**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
            cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
        )  # fmt: skip
        made.add(done.stdout)
    assert len(made) == 1 and len(merges(Tokenizer.from_str(made.pop()))) == 330 - 258


def test_it_loads_in_transformers_with_the_same_ids(tmp_path: Path) -> None:
    tokenizer = train(TEXTS, TrainOptions(vocab_size=350, pretokenizer="llama3"))
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    other = PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token="<|endoftext|>")
    text = "The wind mill's 製粉所 \U0001f469\u200d\U0001f52c\r\n"
    assert other(text)["input_ids"] == tokenizer.encode(text).ids
    assert other.decode(other(text)["input_ids"]) == text
    assert other.eos_token_id == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pretokenizer": "gpt5"}, "no pretokenizer is called 'gpt5': gpt2, llama3, qwen2"),
        ({"vocab_size": 257}, "256 bytes and 2 special tokens are 258 already"),
        ({"pad": "<|endoftext|>"}, "must differ"),
        ({"sentinels": -1}, "sentinels from 0"),
    ],
)
def test_options_that_cannot_be_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        TrainOptions(**changes)  # type: ignore[arg-type]


# ---------------------------------------------------------------- counting


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.text(min_size=1, max_size=3), max_size=8), max_size=6), st.integers(1, 9)
)
def test_counts_are_exact_whatever_fits_in_memory(texts: list[list[str]], table: int) -> None:

    with tempfile.TemporaryDirectory() as folder:
        words = Words(Path(folder), table)
        for text in texts:
            words.add(text)
        assert dict(words.chosen(10**9)) == Counter(word for text in texts for word in text)


def test_a_long_run_is_cut_and_the_rarest_words_give_way(tmp_path: Path) -> None:
    runs = [hashlib.sha256(bytes([i])).hexdigest() * 150 for i in range(20)]
    words = Words(tmp_path, table=500)
    for run in runs:
        words.add([run, "often"])
    chosen = dict(words.chosen(5 + 64 * 30))
    assert chosen["often"] == 20
    assert max(map(len, chosen)) == LONGEST
    assert sum(len(word) for word in chosen) <= 5 + 64 * 30
    assert chosen.keys() - {"often"} <= {run[:64] for run in runs}, "a run of 150 equal pieces"


def test_among_words_that_occur_once_a_hash_chooses(tmp_path: Path) -> None:
    words = Words(tmp_path)
    words.add([f"word{i:04d}" for i in range(1000)])
    some = dict(words.chosen(8 * 500))
    assert 400 < len(some) < 600
    assert dict(words.chosen(8 * 250)).keys() < some.keys()


# ---------------------------------------------------------------- the sample


def test_a_larger_share_has_all_of_a_smaller_one() -> None:
    ids = np.random.default_rng(1).integers(0, 2**64, (4000, 2), dtype=np.uint64)
    few, many = drawn(ids, 7, 0.1), drawn(ids, 7, 0.4)
    assert 300 < few.sum() < 500 and 1500 < many.sum() < 1700
    assert not (few & ~many).any()
    assert drawn(ids, 7, 1.0).all() and not drawn(ids, 7, 0.0).any()
    assert (drawn(ids, 8, 0.4) != many).any()


def test_a_source_that_is_too_small_is_taken_whole_and_others_give_what_it_lacks() -> None:
    weights = {"web": 0.5, "code": 0.25, "books": 0.25, "none": 0.1}
    available = {"web": 1000, "code": 1000, "books": 10, "none": 0}
    shares = shares_of(100, weights, available)
    assert shares["books"] == 1.0 and shares["none"] == 0.0
    assert shares["web"] * 1000 == pytest.approx(60)
    assert shares["code"] * 1000 == pytest.approx(30)
    assert shares_of(10**9, weights, available) == {"web": 1, "code": 1, "books": 1, "none": 0}
