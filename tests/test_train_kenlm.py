"""Training a language model: what is held out, what the card says, and that it can be used."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curation import cli, models
from curation.models import card, kenlm
from curation.models.kenlm import train as module
from curation.models.kenlm.estimate import EstimationError
from curation.models.kenlm.train import Options, TrainingError, render, train

WORDS = ["the", "old", "mill", "wheel", "turns", "slowly", "in", "its", "river", "12", "times"]
SMALL = Options(
    order=3, tokenizer="words", estimator="own", fallback=True, held_out=0.25, normaliser="ccnet"
)


def texts(count: int = 80, seed: int = 1) -> list[str]:
    """Different texts of words that follow each other more or less."""
    draw = random.Random(seed)
    return [
        " ".join(WORDS[(i + draw.choice((0, 0, 0, 3))) % len(WORDS)] for i in range(12 + number))
        for number in range(count)
    ]


def make(target: Path, options: Options = SMALL, **said: Any) -> dict[str, Any]:
    return train(texts(), target, options, lambda line: None, **said)


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_model_is_trained_and_tells_its_language_from_noise(tmp_path: Path) -> None:
    report = make(tmp_path / "m", language="en", license="CC0-1.0", demonstration=True)
    model = kenlm.load(tmp_path / "m")
    found, noise = (s.perplexity for s in model.score([texts(1, 9)[0], "slowly slowly 12 old"]))
    assert found is not None and noise is not None and found < noise / 2
    said = model.card
    assert (said.language, said.license, said.demonstration) == ("en", "CC0-1.0", True)
    assert said.settings["tokenizer"] == {"kind": "words"}
    assert said.settings["trained"]["documents"] == report["documents"]
    assert models.digest(tmp_path / "m")


def test_held_out_documents_give_the_percentiles_and_are_not_trained_on(tmp_path: Path) -> None:
    report = make(tmp_path / "m")
    limit = round(0.25 * 2**64)
    held_out = [text for text in texts() if module._hash(text, 20) < limit]
    assert report["held_out"] == len(held_out) > 0
    assert report["documents"] == len(texts()) - len(held_out)
    model = kenlm.load(tmp_path / "m")
    scores = [score.perplexity for score in model.score(held_out)]
    assert model.settings.percentiles == tuple(np.percentile(scores, range(100)).round(1))
    trained = sum(len(text.split()) for text in texts() if text not in held_out)
    assert report["words"] == report["pieces"] == trained


@pytest.mark.parametrize("form", ["binary", "arpa"])
@pytest.mark.parametrize("tokenizer", ["words", "sentencepiece"])
def test_the_same_texts_give_the_same_bytes(tmp_path: Path, tokenizer: str, form: Any) -> None:
    options = Options(
        order=3, tokenizer=tokenizer, estimator="own", fallback=True, held_out=0.2, form=form
    )
    for name in ("a", "b"):
        make(tmp_path / name, options)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    [score] = kenlm.load(tmp_path / "a").score(["the old mill"])
    assert score.perplexity is not None


def test_a_tokenizer_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    options = Options(order=2, estimator="own", fallback=True, held_out=0.2)
    make(tmp_path / "a", options)
    tokenizer = tmp_path / "a" / "tokenizer.model"
    make(tmp_path / "b", Options(**{**vars(options), "tokenizer": str(tokenizer)}))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_lmplz_gives_the_same_model_but_for_the_last_digits(tmp_path: Path) -> None:
    if not (shutil.which("lmplz") and shutil.which("build_binary")):
        pytest.skip("lmplz and build_binary are not on the PATH (make lmplz)")
    reports = [
        make(tmp_path / name, Options(**{**vars(SMALL), "estimator": name}))
        for name in ("own", "lmplz")
    ]
    ours, theirs = (kenlm.load(tmp_path / name) for name in ("own", "lmplz"))
    for one, other in zip(ours.score(texts()), theirs.score(texts()), strict=True):
        assert one.perplexity == pytest.approx(other.perplexity, rel=1e-4)
    assert reports[0]["ngrams"] == reports[1]["ngrams"]


def test_limits_end_the_reading(tmp_path: Path) -> None:
    report = make(tmp_path / "m", Options(**{**vars(SMALL), "documents": 20}))
    assert report["documents"] == 20
    words = make(tmp_path / "m", Options(**{**vars(SMALL), "words": 200}))["words"]
    assert 200 <= words < 300


def test_what_cannot_be_trained_is_one_line_and_leaves_the_old_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "m")
    before = files(tmp_path / "m")
    monkeypatch.setattr(module, "MAX_WORDS", 100)
    with pytest.raises(EstimationError, match="lmplz is wanted"):
        make(tmp_path / "m")
    monkeypatch.undo()
    for changed, problem in (
        ({"fallback": False}, "too little text for Kneser-Ney"),
        ({"order": 1}, "order 1: 2 to 6"),
        ({"tokenizer": "piece"}, "tokenizer piece: no file, and none of sentencepiece, words"),
        ({"tokenizer": __file__}, "no SentencePiece model"),
        ({"tokenizer": "sentencepiece", "vocabulary": 5}, "SentencePiece: Vocabulary size"),
        ({"held_out": 1e-9}, "held out: more text"),
    ):
        with pytest.raises((TrainingError, EstimationError), match=problem):
            make(tmp_path / "m", Options(**{**vars(SMALL), **changed}))
    with pytest.raises(TrainingError, match="no words"):
        train([" ", ""], tmp_path / "m", SMALL, print)
    assert files(tmp_path / "m") == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_lmplz_is_named_where_it_is_wanted_and_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_tool", lambda name: None)
    with pytest.raises(TrainingError, match="make lmplz"):
        make(tmp_path / "m", Options(**{**vars(SMALL), "estimator": "lmplz"}))
    assert make(tmp_path / "m", Options(**{**vars(SMALL), "estimator": "auto"}))["bytes"]


def test_the_command_trains_what_the_shelf_then_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(module, "_tool", lambda name: None)
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts()) + "{bad\n"
    )
    command = ["models", "train-kenlm", "--input", str(tmp_path / "a.jsonl"), "--language", "en"]
    command += ["--tokenizer", "words", "--held-out", "0.2", "--order", "3"]
    assert cli.main(command) == cli.USAGE
    assert "--discount-fallback" in capsys.readouterr().err.splitlines()[-1]
    assert cli.main([*command, "--discount-fallback"]) == cli.DONE
    out, err = capsys.readouterr()
    assert "n-grams" in out and "1 records skipped: bad_json" in err
    assert models.find("kenlm/en") == tmp_path / "models" / "kenlm" / "en"
    assert card.read(models.find("kenlm/en"), "kenlm").language == "en"
    assert cli.main([*command, "--discount-fallback", "--json", "--quiet"]) == cli.DONE
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert "estimating" not in err
    assert len(report["percentiles"]) == 100 and render(report)
    assert cli.main([*command[:3], str(tmp_path / "none.jsonl"), *command[4:]]) == cli.USAGE
    assert "no such file" in capsys.readouterr().err
