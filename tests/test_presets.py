"""Presets: every shipped recipe loads and plans, and says what it follows and leaves out."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from curation.api import plan
from curation.document import Documents
from curation.engine.chain import as_column
from curation.engine.recipe import RecipeError, load
from curation.engine.tokens.recipe import is_tokens
from curation.filters import thresholds
from curation.filters.gopher_quality import STOP_WORDS
from curation.stage import Filter

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = [p for p in sorted((ROOT / "pipelines").glob("*.yaml")) if not is_tokens(p)]
PRESETS = [path for path in PIPELINES if path.stem != "crawl-filter"]


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_every_shipped_recipe_plans_without_a_warning(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.warc").write_bytes(b"")
    settings = ["perplexity.model=kenlm/sample"] if path.stem == "ccnet" else []
    found = plan(path, inputs=[tmp_path / "x.warc"], output=tmp_path / "run", settings=settings)
    assert found.recipe.settings.name == path.stem
    assert capsys.readouterr().err == ""


def test_a_preset_whose_model_is_missing_names_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "x.warc").write_bytes(b"")
    with pytest.raises(RecipeError, match="curation models fetch kenlm/ccnet-en"):
        plan(ROOT / "pipelines" / "ccnet.yaml", inputs=[tmp_path / "x.warc"])


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_says_what_it_follows_and_what_it_leaves_out(path: Path) -> None:
    lines = path.read_text().splitlines()
    head = "\n".join(lines[: lines.index("kind: documents")])
    assert all(line.startswith("#") for line in head.splitlines())
    assert "# Follows: " in head
    assert "# Left out: " in head
    assert max(map(len, lines)) <= 100


def test_fineweb2_takes_the_numbers_of_its_table_but_for_scripts_without_spaces() -> None:
    found = load(ROOT / "pipelines" / "fineweb2.yaml")
    table = thresholds.read("fineweb2").stages
    stages = {spec.name: spec.stage for spec in found.stages}
    unspaced = {"ja", "th", "zh"}
    for name, parameter, default in (
        ("gopher_repetition", "max_top_2_gram", 0.20),
        ("gopher_quality", "min_alphabetic_words", 0.8),
        ("fineweb", "max_newline_ratio", 0.3),
    ):
        rows = table[name][parameter]
        spaced = {language: rows[language] for language in set(rows) - unspaced}
        expected = {"other": default, **spaced, **dict.fromkeys(unspaced)}
        assert getattr(stages[name], parameter) == expected
    lines = table["gopher_repetition"]["max_dup_line_fraction"]
    assert stages["gopher_repetition"].max_dup_line_fraction == {"other": 0.30, **lines}  # type: ignore[attr-defined]
    assert stages["language"].min_score == 0.5  # type: ignore[attr-defined]


#: Of the Universal Declaration of Human Rights, by the tags of documents.
DECLARATIONS = {
    **{"arb": "ar", "deu": "de", "eng": "en", "fra": "fr", "hin": "hi", "jpn": "ja"},
    **{"rus": "ru", "spa": "es", "swe": "sv", "tha": "th", "cmn_hans": "zh"},
}


def declarations(shared_data: Path) -> Documents:
    """Twenty lines a document."""
    lines: dict[str, list[str]] = {}
    with gzip.open(shared_data / "langid/udhr2/udhr2.tsv.gz", "rt", encoding="utf-8") as file:
        for code, text in (line.rstrip("\n").split("\t", 1) for line in file):
            if code in DECLARATIONS:
                lines.setdefault(DECLARATIONS[code], []).append(text)
    assert set(lines) == set(DECLARATIONS.values())
    pieces = [(tag, t[i : i + 20]) for tag, t in lines.items() for i in range(0, len(t), 20)]
    texts = ["\n".join(piece) for _, piece in pieces]
    return Documents(
        {
            "text": pa.array(texts, pa.large_string()),
            "language": pa.array([tag for tag, _ in pieces]),
        }
    )


def dropped(raw: dict[str, Any], docs: Documents) -> set[str]:
    """The languages of which a recipe's rules would drop a document."""
    found = set()
    for stage in (spec.stage for spec in load(raw).stages):
        assert isinstance(stage, Filter)
        signals = stage.score(docs)
        for rule in stage.rules:
            threshold = rule.threshold(stage, docs["language"])
            violated = rule.violated(as_column(signals[rule.signal]), threshold)
            found |= set(docs["language"].filter(pa.array(violated)).to_pylist())
    return found


@pytest.mark.real
def test_fineweb2_keeps_the_declaration_of_human_rights_in_all_its_languages(
    shared_data: Path,
) -> None:
    """With rules over words also where none are written apart, it would not."""
    docs = declarations(shared_data)
    raw = yaml.safe_load((ROOT / "pipelines" / "fineweb2.yaml").read_text())
    kinds = {"gopher_repetition", "fineweb", "gopher_quality"}
    judges = [entry for entry in raw["stages"] if kinds & set(entry)]
    raw |= {"input": {"kind": "jsonl"}, "stages": judges}
    assert dropped(raw, docs) == set()
    for [parameters] in (entry.values() for entry in judges):
        for name in [name for name, value in parameters.items() if isinstance(value, dict)]:
            del parameters[name]
    assert dropped(raw, docs) == {"ja", "th", "zh"}
    judges[2]["gopher_quality"]["stop_words"] = list(STOP_WORDS)
    assert dropped(raw, docs) == set(DECLARATIONS.values()) - {"en"}
