"""Training a classifier: what it reads, what it holds out, what it reports."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation import cli, models, run
from curation.document import RawDocument
from curation.extract import corpus
from curation.extract.contrast import contrast
from curation.models import card, classifier, scores
from curation.models.classifier import ClassifierError, Options
from curation.models.training import render, split, train
from curation.read import Tally
from curation.storage import InputError

SMALL = Options(dim=8, epochs=10, lr=0.5, bucket=1000)
GOOD = [f"the wheel of the old mill turns slowly in river number {i}" for i in range(200)]
BAD = [f"buy cheap shoes now and save money on shop number {i}" for i in range(200)]
#: Texts of the good class that cannot be told from bad ones.
HARD = [f"buy cheap shoes now and save money on shop number {i}" for i in range(200, 240)]


def read(*paths: Path, **options: str) -> list[str]:
    return list(corpus.texts([str(path) for path in paths], Tally(), **options))  # type: ignore[arg-type]


def test_texts_are_read_from_files_of_all_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "three"}\n'))
    pq.write_table(pa.table({"text": ["four"]}), tmp_path / "c.parquet")
    (tmp_path / "d.txt").write_bytes("fünf\n\nsix\r\nseven\n".encode("latin-1"))
    assert read(tmp_path)[:4] == ["one", "two", "three", "four"]
    assert read(tmp_path / "d.txt") == ["fünf\n\nsix\nseven\n"]
    assert [t.strip() for t in read(tmp_path / "d.txt", per="paragraph")] == ["fünf", "six\nseven"]
    assert len(read(tmp_path / "d.txt", per="line")) == 3


def test_texts_of_a_run_are_the_documents_it_kept(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "far too short"}\n{"text": "one two three four"}\n')
    recipe = {
        "kind": "documents",
        "name": "r",
        "input": {"kind": "jsonl"},
        "stages": [{"basic": {"min_words": 4, "min_chars": None}}],
    }
    made = run(recipe, inputs=[tmp_path / "a.jsonl"], output=tmp_path / "r", workers=1)
    assert read(made.path) == ["one two three four"]


def test_what_is_skipped_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"no": 1}\n{bad\n')
    tally = Tally()
    assert list(corpus.texts([str(tmp_path)], tally)) == ["one"]
    assert (tally.records, tally.documents) == (3, 1)
    assert dict(tally.skipped) == {"no_text": 1, "bad_json": 1}


def test_files_that_are_not_texts_and_half_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(b"WARC/1.0\r\n")
    with pytest.raises(InputError, match=r"a\.warc: no file of the kinds parquet, jsonl"):
        read(tmp_path / "a.warc")
    half = gzip.compress(b'{"text": "one"}\n' * 1000)[:-20]
    (tmp_path / "b.jsonl.gz").write_bytes(half)
    with pytest.raises(InputError, match=r"b\.jsonl\.gz: cannot be read to its end"):
        read(tmp_path / "b.jsonl.gz")


def test_no_twin_of_a_text_to_learn_from_is_held_out() -> None:
    twins = [text.upper().replace(" ", ",\n") + "!" for text in GOOD]
    parts = split([*GOOD, *twins, " "], BAD, 0.3, seed=1)
    assert parts.duplicates == len(GOOD)
    assert parts.empty == 1
    texts = [*parts.train[1], *parts.held_out[1]]
    assert len({text.lower().replace(",\n", " ").strip("!") for text in texts}) == len(texts) == 200
    assert 0.15 < len(parts.held_out[1]) / len(GOOD) < 0.45


def test_a_text_of_both_classes_is_in_none() -> None:
    parts = split(GOOD, [*BAD, GOOD[0].upper()], 0.3, seed=1)
    assert parts.in_both == 1
    for side in (parts.train, parts.held_out):
        assert not {GOOD[0], GOOD[0].upper()} & {*side[0], *side[1]}


def test_the_split_does_not_depend_on_order() -> None:
    assert split([*GOOD, "A b", "a B"], BAD, 0.2, 1) == split(
        ["a B", "A b", *GOOD[::-1]], BAD, 0.2, 1
    )
    assert split(GOOD, BAD, 0.2, 1).held_out != split(GOOD, BAD, 0.2, 2).held_out


def trained(target: Path, on: Iterable[str] | None = None) -> dict[str, object]:
    return train([*GOOD, *HARD], BAD, target, held_out=0.3, keep_share=0.2, on=on, options=SMALL)


def test_the_report_is_of_the_held_out_texts_and_lies_in_the_card(tmp_path: Path) -> None:
    report = trained(tmp_path / "m")
    said = card.read(tmp_path / "m", classifier.KIND)
    assert json.loads(json.dumps(report)) == said.settings["report"]
    parts = split([*GOOD, *HARD], BAD, 0.3, SMALL.seed)
    model = classifier.load(tmp_path / "m")
    negatives, positives = (model.probabilities(texts) for texts in parts.held_out)
    labels = np.repeat([False, True], [len(negatives), len(positives)])
    area = scores.roc_auc(np.concatenate([negatives, positives]), labels)
    assert tuple(report["roc_auc"].values()) == area  # type: ignore[attr-defined]
    assert 0.7 < area[0] < 1
    threshold = said.settings["thresholds"]["keep_0.2"]
    assert (negatives >= threshold).mean() == pytest.approx(0.2, abs=0.02)
    assert "ROC-AUC" in render(report)


def test_the_share_that_is_kept_is_one_of_the_texts_that_are_given(tmp_path: Path) -> None:
    crawl = [*GOOD[:50], *BAD[:50], ""]
    report = trained(tmp_path / "m", on=crawl)
    found = classifier.load(tmp_path / "m").probabilities(crawl[:-1])
    threshold = report["threshold"]["score"]  # type: ignore[index]
    assert (found >= threshold).sum() == 20


def test_too_few_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match="no positive text is there to hold out"):
        train(GOOD[:1], BAD, tmp_path / "m", held_out=0.001, options=SMALL)
    with pytest.raises(ClassifierError, match="no negative text is there to train on"):
        train(GOOD, [], tmp_path / "m", options=SMALL)
    assert not (tmp_path / "m").exists()


def test_the_command_trains_and_says_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path / "models"))
    for name, texts in (("good", GOOD), ("bad", BAD)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts))
    command = ["models", "train-classifier", "--per", "line", "--dim", "8", "--bucket", "1000"]
    command += ["--positive", str(tmp_path / "good.txt"), "--output", "quality/mine"]
    assert cli.main([*command, "--negative", str(tmp_path / "bad.txt"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert Path(said["path"]) == models.find("quality/mine")
    assert said["roc_auc"]["value"] > 0.5
    made = card.read(Path(said["path"]), classifier.KIND)
    assert made.settings["training"]["dim"] == 8
    assert cli.main([*command, "--negative", str(tmp_path / "bad.txt")]) == 2
    assert "--force replaces it" in capsys.readouterr().err  # not lost without a word
    assert cli.main([*command, "--force", "--negative", str(tmp_path / "none.txt")]) == 2
    error = capsys.readouterr().err
    assert "none.txt" in error
    assert error.count("\n") == 1

    assert cli.main(command) == 2
    assert "--positive with --negative, or --pages" in capsys.readouterr().err


def test_a_page_gives_its_prose_and_what_lies_around_it() -> None:
    sentences = "The mill stands by the river, and its wheel has turned for three hundred years. "
    menu = "".join(f"<li><a href=/{i}>Section number {i} of it</a></li>" for i in range(30))
    html = (
        f"<html><body><nav><ul>{menu}</ul></nav><main><article><h1>A mill</h1>"
        + f"<p>{sentences * 4}</p>" * 4
        + "</article></main></body></html>"
    )
    [found, nothing] = contrast(
        RawDocument(id="0" * 32, content=content) for content in (html.encode(), b"<p>short")
    )
    assert "\n".join(found.prose).count("three hundred years") == 16
    assert "Section number 7" in "\n".join(found.rest)
    assert "Section" not in "\n".join(found.prose)
    assert "hundred" not in "\n".join(found.rest)
    assert nothing == ([], [])


def test_the_command_trains_on_pages_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sample_crawl: Path
) -> None:
    command = ["models", "train-classifier", "--pages", str(sample_crawl), "--dim", "8"]
    command += ["--bucket", "1000", "--output", str(tmp_path / "m"), "--held-out", "0.3", "--json"]
    assert cli.main(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert min(said["texts"]["train"].values()) > 5
    assert card.read(tmp_path / "m").settings["report"]["roc_auc"] == said["roc_auc"]
