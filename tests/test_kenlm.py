"""Perplexity by KenLM: the arithmetic on a model made by hand, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from curation.models import card, kenlm, table

#: Log10 probabilities and backoffs, so that every sum below can be done by hand.
ARPA = """\\data\\
ngram 1=6
ngram 2=5

\\1-grams:
-2.0\t<unk>\t0
0\t<s>\t-0.5
-1.0\t</s>\t0
-0.75\tthe\t-0.25
-1.0\tmill\t-0.5
-1.5\t0\t0

\\2-grams:
-0.25\t<s> the
-0.5\tthe mill
-0.125\tmill </s>
-0.75\tmill the
-1.25\tthe 0

\\end\\
"""
SETTINGS = {"model": "lm.arpa", "normaliser": "ccnet", "tokenizer": {"kind": "words"}, "order": 2}


def make(path: Path, arpa: str = ARPA, kind: str = "kenlm", **settings: Any) -> Path:
    with card.new(path, kind=kind) as (place, own):
        own.update({**SETTINGS, **settings})
        (place / "lm.arpa").write_text(arpa)
    return path


def scores(path: Path, *texts: str) -> list[tuple[float | None, int | None]]:
    return [tuple(score) for score in kenlm.load(path).score(texts)]


@pytest.mark.parametrize(
    ("text", "log10", "pieces"),
    [
        ("The mill", -0.25 - 0.5 - 0.125, 2),
        ("the mill the mill", -0.25 - 0.5 - 0.75 - 0.5 - 0.125, 4),
        ("mill", (-0.5 - 1.0) - 0.125, 1),  # <s> mill is unseen: back off, and the weight of <s>
        ("the", -0.25 + (-0.25 - 1.0), 1),
        ("the 7", -0.25 - 1.25 + (0 - 1.0), 2),  # digits are 0
        ("the wheel", -0.25 + (-0.25 - 2.0) + (0 - 1.0), 2),
    ],
)
def test_perplexity_is_that_of_the_pieces_and_the_end(
    tmp_path: Path, text: str, log10: float, pieces: int
) -> None:
    [(found, counted)] = scores(make(tmp_path / "m"), text)
    assert found == pytest.approx(10 ** (-log10 / (pieces + 1)), rel=1e-6)
    assert counted == pieces


def test_lines_are_joined_before_words_are_told_apart(tmp_path: Path) -> None:
    model = make(tmp_path / "m")
    assert scores(model, "the\nmill") == scores(model, "themill") != scores(model, "the mill")


def test_lines_by_themselves_each_have_ends_and_empty_ones_count(tmp_path: Path) -> None:
    """As CCNet's DocLM counts where it is given lines."""
    [(found, pieces)] = scores(
        make(tmp_path / "m", normaliser="ccnet-lines"), "The mill\n\nthe mill"
    )
    log10 = 2 * (-0.25 - 0.5 - 0.125) + (-0.5 - 1.0)
    assert found == pytest.approx(10 ** (-log10 / (3 + 1 + 3)), rel=1e-6)
    assert pieces == 4


@pytest.mark.parametrize("normaliser", ["ccnet", "ccnet-lines"])
def test_a_text_without_pieces_has_no_perplexity(tmp_path: Path, normaliser: str) -> None:
    model = make(tmp_path / "m", normaliser=normaliser)
    assert scores(model, "", " \n ", "\x00", "\u0301") == [(None, None)] * 4


def test_numbers_that_were_published_are_rounded_before_they_meet_a_cut_off() -> None:
    """CCNet stores one digit, and reads it again."""
    cutoffs = kenlm.Cutoffs(head=340, middle=912)
    found = [cutoffs.bucket(p) for p in (339.94, 339.96, 340, 911.94, 911.96, 1e9)]
    assert found == ["head", "middle", "middle", "middle", "tail", "tail"]


def test_head_and_middle_end_at_the_30th_and_60th_percentile(tmp_path: Path) -> None:
    model = make(tmp_path / "m", percentiles=[float(10 * n) for n in range(100)])
    assert kenlm.load(model).settings.buckets == kenlm.Cutoffs(head=300, middle=600)
    assert kenlm.load(make(tmp_path / "none")).settings.buckets is None


def test_pieces_of_sentencepiece_are_what_the_model_is_asked_about(tmp_path: Path) -> None:
    import sentencepiece

    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the mill and the wheel", "a mill by the river"] * 9),
        model_writer=buffer, vocab_size=24, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    own = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    pieces = own.encode("the mill", out_type=str)
    rows = "".join(f"-0.5\t{piece}\t0\n" for piece in sorted(set(pieces)))
    head = f"\\data\\\nngram 1={3 + len(set(pieces))}\nngram 2=1\n\n\\1-grams:\n"
    ends = "-9\t<unk>\t0\n0\t<s>\t0\n-1\t</s>\t0\n"
    arpa = head + ends + rows + "\n\\2-grams:\n-1\t<s> </s>\n\n\\end\\\n"
    with card.new(tmp_path / "m", kind="kenlm") as (place, settings):
        settings.update({**SETTINGS, "tokenizer": {"kind": "sentencepiece", "file": "sp.model"}})
        (place / "lm.arpa").write_text(arpa)
        (place / "sp.model").write_bytes(buffer.getvalue())
    n = len(pieces)
    assert scores(tmp_path / "m", "THE  mill") == [
        (pytest.approx(10 ** ((0.5 * n + 1) / (n + 1)), rel=1e-6), n)
    ]


def test_a_model_may_be_compressed(tmp_path: Path) -> None:
    with card.new(tmp_path / "z", kind="kenlm") as (place, settings):
        settings.update(SETTINGS | {"model": "lm.arpa.gz"})
        (place / "lm.arpa.gz").write_bytes(gzip.compress(ARPA.encode()))
    assert scores(tmp_path / "z", "the mill") == scores(make(tmp_path / "m"), "the mill")


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scores(make(tmp_path / "m"), "the mill")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": None}, "settings.tokenizer"),
        ({"normaliser": None}, "settings.normaliser"),
        ({"normaliser": "raw"}, "is none of ccnet"),
        ({"tokenizer": {"kind": "sentencepiece"}}, "settings.tokenizer.sentencepiece.file"),
        ({"tokenizer": {"kind": "sentencepiece", "file": "sp.model"}}, "sp.model is not among"),
        ({"model": "../../lm.arpa"}, "is not among its files"),
        ({"percentiles": [1.0]}, "settings.percentiles"),
    ],
)
def test_a_model_without_what_belongs_to_it_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """bigscience-workshop/data_tooling#76."""
    path = make(tmp_path / "m")
    found = json.loads((path / card.NAME).read_bytes())
    kept = {**found["settings"], **change}
    found["settings"] = {key: value for key, value in kept.items() if value is not None}
    (path / card.NAME).write_text(json.dumps(found))
    with pytest.raises(card.CardError, match=message) as raised:
        kenlm.load(path)
    assert "\n" not in str(raised.value)


def test_weights_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "lm.arpa").write_text(ARPA)
    with pytest.raises(card.CardError, match="names its tokenizer and normaliser"):
        kenlm.load(tmp_path / "lm.arpa")


def test_damaged_and_other_models_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(card.CardError, match="no language model") as raised:
        kenlm.load(make(tmp_path / "m", arpa="nothing\nof this kind"))
    assert "\n" not in str(raised.value)
    with pytest.raises(card.CardError, match="of kind 'classifier'"):
        kenlm.load(make(tmp_path / "c", kind="classifier"))


def test_what_is_fetched_has_the_settings_that_are_wanted() -> None:
    entries = [e for e in table.entries() if e.kind == kenlm.KIND and e.settings is not None]
    assert len(entries) > 40
    for entry in entries:
        settings = kenlm.Settings.model_validate(entry.settings)
        names = {file.name for file in entry.files}
        assert isinstance(settings.tokenizer, kenlm.SentencePiece)
        assert {settings.model, settings.tokenizer.file} == names
        assert settings.buckets and settings.buckets.head < settings.buckets.middle
