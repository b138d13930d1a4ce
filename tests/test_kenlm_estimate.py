"""Estimating n-gram models: against arithmetic by hand, the plain reference, and lmplz."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kenlm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.models.kenlm import arpa, binary, kernels, reference
from curation.models.kenlm import estimate as module
from curation.models.kenlm.estimate import FALLBACK, Corpus, Estimate, EstimationError

Model = dict[tuple[str, ...], tuple[float, float]]

#: Of "a b" and "a" with the discounts 0.5, 1, 1.5, by hand: four words share the rest of unigrams
#: (a, b, </s>, <unk>); adjusted counts of a, b, </s> are 1, 1, 2, and so the rest is 2 of 4.
BY_HAND = {
    ("<unk>",): (0.125, 1.0),
    ("<s>",): (1.0, 0.5),
    ("</s>",): (0.375, 1.0),
    ("a",): (0.25, 0.5),
    ("b",): (0.25, 0.5),
    ("<s>", "a"): (0.5 + 0.5 * 0.25, 1.0),
    ("a", "b"): (0.25 + 0.5 * 0.25, 1.0),
    ("a", "</s>"): (0.25 + 0.5 * 0.375, 1.0),
    ("b", "</s>"): (0.5 + 0.5 * 0.375, 1.0),
}
TEXTS = {
    "tiny": ["a b c", "a b d", "b c"],
    "one word": ["x"],
    "no words": ["", ""],
    "unicode": ["ä ö ü 語 言", "語 言 ä", "\u00a0x y\u2028z", "\u0e01\u0e33 🙂"],
    "special words": ["a <s> b </s> c <unk> d", "a b </s>"],
    "repeated": ["the cat sat on the mat"] * 7 + ["the dog"],
    "empty lines": ["a b", "", "", "c a b", ""],
    "white space": ["a\tb  c \x0b d\x0ce ", " a"],
    "discounts of its own": [
        "a b a c a b",
        "b a a c d e",
        "f g a b a c",
        "d e f a b b",
        "g a b c a h",
        "h b a i d e",
        "c c b a f j",
    ],
}

words = st.lists(st.sampled_from("abcdefgh"), max_size=9)
sentences = st.lists(words, min_size=1, max_size=30)


def parse(text: bytes) -> Model:
    """The n-grams of an ARPA file."""
    fields = [line.split("\t") for line in text.decode().split("\n")]
    return {
        tuple(f[1].split(" ")): (float(f[0]), float(f[2]) if len(f) == 3 else 0.0)
        for f in fields
        if len(f) > 1
    }


def write(lines: list[str], order: int) -> bytes:
    file = io.BytesIO()
    arpa.write(Estimate(Corpus.of(lines), order, FALLBACK), file)
    return file.getvalue()


def same(found: Model, wanted: Model, tolerance: float) -> None:
    assert found.keys() == wanted.keys()
    pairs = [(found[gram][i], wanted[gram][i]) for gram in wanted for i in (0, 1)]
    assert max(abs(a - b) for a, b in pairs) <= tolerance


def test_the_reference_is_right_by_hand() -> None:
    found = reference.estimate([["a", "b"], ["a"]], 2, FALLBACK)
    same(found, {g: (math.log10(p), math.log10(b)) for g, (p, b) in BY_HAND.items()}, 1e-12)


@settings(max_examples=40, deadline=None)
@given(sentences, st.integers(1, 5))
def test_the_estimate_is_that_of_the_reference(lines: list[list[str]], order: int) -> None:
    found = parse(write([" ".join(line) for line in lines], order))
    same(found, reference.estimate(lines, order, FALLBACK), 2e-6)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("name", TEXTS)
def test_the_file_is_that_of_lmplz(name: str, order: int, tmp_path: Path) -> None:
    against_lmplz(TEXTS[name], order, tmp_path)


def against_lmplz(lines: list[str], order: int, tmp_path: Path) -> None:
    lmplz = shutil.which("lmplz")
    if lmplz is None:
        pytest.skip("lmplz is not on the PATH (make lmplz)")
    command = [lmplz, "-o", str(order), "--skip_symbols", "--discount_fallback", "-S", "64M"]
    text = "".join(line + "\n" for line in lines).encode()
    theirs = subprocess.run(
        [*command, "-T", str(tmp_path) + "/"], input=text, capture_output=True, check=True
    ).stdout
    ours = write(lines, order)
    assert [*parse(ours)] == [*parse(theirs)]  # in the same order
    finite = {g: (p, max(b, math.log10(reference.TINY))) for g, (p, b) in parse(theirs).items()}
    same(parse(ours), finite, 1e-5)


@pytest.mark.real
def test_real_documents_give_the_numbers_of_lmplz(
    golden: list[dict[str, Any]], tmp_path: Path
) -> None:
    lines = [line for row in golden[::16] for line in row["text"].split("\n")]
    against_lmplz(lines, 5, tmp_path)


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("name", TEXTS)
def test_the_binary_file_is_that_of_build_binary(name: str, order: int, tmp_path: Path) -> None:
    build_binary = shutil.which("build_binary")
    if build_binary is None:
        pytest.skip("build_binary is not on the PATH (make lmplz)")
    (tmp_path / "lm.arpa").write_bytes(write(TEXTS[name], order))
    command = [build_binary, "probing", str(tmp_path / "lm.arpa"), str(tmp_path / "theirs")]
    subprocess.run(command, capture_output=True, check=True)
    file = io.BytesIO()
    binary.write(Estimate(Corpus.of(TEXTS[name]), order, FALLBACK), file)
    assert file.getvalue() == (tmp_path / "theirs").read_bytes()


@settings(max_examples=15, deadline=None)
@given(sentences, st.integers(2, 4), words)
def test_kenlm_gives_the_same_scores_by_both_files_and_they_sum_to_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]], order: int, context: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("model")
    corpus = Corpus.of(map(" ".join, lines))
    with (folder / "lm.arpa").open("wb") as text, (folder / "lm.binary").open("wb") as table:
        arpa.write(Estimate(corpus, order, FALLBACK), text)
        binary.write(Estimate(corpus, order, FALLBACK), table)
    states = {}
    for name in ("lm.arpa", "lm.binary"):
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        model = kenlm.Model(str(folder / name), config)
        state, after = kenlm.State(), kenlm.State()
        model.BeginSentenceWrite(state)
        for word in context:
            model.BaseScore(state, word, after)
            state, after = after, state
        states[name] = {
            word: model.BaseScore(state, word, after) for word in corpus.vocabulary if word != "<s>"
        }
    assert states["lm.arpa"] == states["lm.binary"]
    assert sum(10**score for score in states["lm.binary"].values()) == pytest.approx(1, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(sentences, st.integers(1, 6))
def test_kernels_are_their_references(lines: list[list[str]], order: int) -> None:
    corpus = Corpus.of(map(" ".join, lines))
    tokens = corpus.tokens
    sizes = np.bincount(tokens, minlength=len(corpus.vocabulary))
    places = np.arange(tokens.size, dtype=np.int32)
    for _ in range(order):
        before, places = places, np.empty_like(places)
        kernels.extend_order(tokens, np.cumsum(sizes) - sizes, before, places)
        assert places.tolist() == reference.extend_order(tokens.tolist(), before.tolist())
    depths, same = np.empty((2, tokens.size), np.uint8)
    kernels.compare_neighbours(tokens, places, order, depths, same)
    grams = [reference.longest(tokens.tolist(), place, order) for place in places.tolist()]
    assert grams == sorted(grams)
    assert depths.tolist() == [len(gram) for gram in grams]
    shared = [reference.shared(a, b, order) for a, b in zip([[], *grams], grams, strict=False)]
    assert same.tolist() == shared


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=20), st.integers(1, 10))
def test_slots_are_those_of_the_reference(hashes: list[int], free: int) -> None:
    size = len(hashes) + free
    slots = np.empty(len(hashes), np.int64)
    kernels.probe(np.array(hashes, np.uint64), np.zeros(size, np.uint8), slots)
    assert slots.tolist() == reference.probe(hashes, size)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", 0),
        (b"<unk>", 16902545233577457963),
        (b"</s>", 7773339941609106442),
        (b"abcdefgh", 12671724553504926360),
        (b"mill 0 grist", 4357338811976150901),
    ],
)
def test_hashes_are_those_of_murmur(data: bytes, wanted: int) -> None:
    """As KenLM's own util/murmur_hash.cc computes them."""
    assert binary.murmur64a(data) == wanted


def test_too_little_text_is_refused_in_one_line_that_names_the_option() -> None:
    with pytest.raises(
        EstimationError, match=r"no 1-gram has adjusted count 2.*--discount-fallback"
    ):
        list(Estimate(Corpus.of(["a b"]), 2).grams())
    with pytest.raises(EstimationError, match="no text"):
        Corpus.of([])


def test_more_words_than_fit_are_refused_naming_lmplz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WORDS", 6)
    assert Corpus.of(["a b", "c d"]).words == 4
    with pytest.raises(EstimationError, match="more than 50,000,000 words: lmplz"):
        Corpus.of(["a b", "c d", "e"])


def test_orders_that_kenlm_does_not_read_are_refused() -> None:
    with pytest.raises(EstimationError, match="order 7: 1 to 6"):
        Estimate(Corpus.of(["a"]), 7)
    with pytest.raises(EstimationError, match="at least order 2"):
        binary.write(Estimate(Corpus.of(["a"]), 1, FALLBACK), io.BytesIO())
