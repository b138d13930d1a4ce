"""A takedown from a whole tokens run: rows, texts, near-copies, and nothing left of what went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit import page

from curation import cli
from manifests.tokens import Manifest
from manifests.verify import check

URLS = {name: f"https://{name}.example/" for name in ("gone", "copy", "near", "long", "other")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokens run of pages, among them one with an equal copy and a near one, and a long one."""
    from curation.api import run_tokens

    home = tmp_path_factory.mktemp("whole")
    secret = page(1) + " Nobody else says wherewithal xylophone."
    texts = {
        "gone": secret,
        "copy": secret,
        "near": secret + " Indeed.",
        "long": " ".join(page(n) for n in range(2, 8)),
        "other": page(9),
    }
    rows = [{"id": name, "text": text, "url": URLS[name]} for name, text in texts.items()]
    rows += [
        {"id": str(n), "text": page(n), "url": f"https://x.example/{n}"} for n in range(20, 60)
    ]
    (home / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "kind": "tokens",
        "name": "toy",
        "sources": [{"name": "web", "kind": "jsonl", "paths": [str(home / "in.jsonl")]}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "sequence_length": 64,
        "total_tokens": 40_000,
        "dedup": ["exact_dedup", "minhash_dedup"],
        "validation": {"share": 0.1},
        "output": {"shard_rows": 200},
    }
    run_tokens(recipe, output=home / "run", workers=1)
    return home / "run"


def _survivor(run: Path) -> str:
    """Which of the three copies is in the tokens."""
    urls = pq.read_table(run / "corpus" / "documents", columns=["url"])["url"].to_pylist()
    [url] = {URLS[name] for name in ("gone", "copy", "near")} & set(urls)
    return str(url)


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _values(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _values(one)
    else:
        yield value


def test_nothing_is_left_of_a_document_and_its_copies_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = _survivor(run)
    (tmp_path / "list").write_text(f"{kept}  # on request\n{URLS['long']}\n")
    command = ["takedown", str(tmp_path / "list"), str(run), "--output", str(tmp_path / "new")]
    assert cli.main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    copies = {copy["url"] for copy in found["near_copies"]}
    assert copies == {URLS[name] for name in ("gone", "copy", "near")} - {kept}
    assert found["documents"] == found["corpus_documents"] == 2
    made = Manifest.load(tmp_path / "new")
    assert check(made).problems == [] and cli.main(["verify", str(tmp_path / "new/corpus")]) == 0
    gone = {*found["ids"], *map(bytes.fromhex, found["ids"]), kept, URLS["long"]}
    for path in (tmp_path / "new").rglob("*.parquet"):
        assert not gone & set(_values(pq.read_table(path).to_pylist())), path
    for path in (tmp_path / "new").rglob("*.json"):
        assert not [name for name in gone if isinstance(name, str) and name in path.read_text()]
    capsys.readouterr()
    assert cli.main(command) == 0  # and once more: it is done, and says the same
    assert f"{len(copies)} near-copies" in capsys.readouterr().out


def test_provenance_leads_to_the_texts_of_the_new_corpus(run: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"{_survivor(run)}\n")
    new = tmp_path / "new"
    assert cli.main(["takedown", str(tmp_path / "list"), str(run), "--output", str(new)]) == 0
    for path in (new / "documents").rglob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            text = pq.read_table(new / row["file"]).slice(row["row"], 1)
            assert text["id"].to_pylist() == [row["id"]]


def test_what_only_the_corpus_has_is_found_there(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = _survivor(run)
    dropped = next(URLS[name] for name in ("gone", "copy", "near") if URLS[name] != kept)
    (tmp_path / "list").write_text(f"{dropped}\nhttps://nowhere.example/\n")
    command = ["takedown", str(tmp_path / "list"), str(run), "--output", str(tmp_path / "new")]
    assert cli.main([*command, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["not_found"] == ["https://nowhere.example/"]
    assert found["documents"] == 0 and found["corpus_documents"] == 1
    assert kept in {copy["url"] for copy in found["near_copies"] if copy["outcome"] == "kept"}
