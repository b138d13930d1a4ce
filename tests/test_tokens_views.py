"""verify, trace and diff of a manifest on the command line, and the data card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from make_tokens import make

from curation.cli import main
from manifests.tokens import Manifest


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make(tmp_path_factory.mktemp("toy"))


def said(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    assert main(arguments) == code
    streams = capsys.readouterr()
    return streams.out if code == 0 else streams.out + streams.err


def test_verify_takes_a_manifest(
    toy: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, 0, "verify", str(toy.directory)).endswith("\nholds\n")
    found = json.loads(said(capsys, 0, "verify", "--json", str(toy.directory / "manifest.json")))
    assert found["holds"] and found["samples"] == toy.samples
    shutil.copytree(toy.directory, tmp_path / "copy")
    (tmp_path / "copy" / toy.shards[0].path).unlink()
    lines = said(capsys, 1, "verify", str(tmp_path / "copy"))
    assert f"{toy.shards[0].path}: No such file" in lines and "does not hold" in lines
    (tmp_path / "copy" / "manifest.json").write_bytes(b"{}")
    assert "no manifest of kind tokens" in said(capsys, 1, "verify", str(tmp_path / "copy"))
    assert "no run lies here" in said(capsys, 2, "verify", str(tmp_path))


def test_a_sample_is_shown_with_its_texts(
    toy: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(said(capsys, 0, "trace", "sequence", "--json", str(toy.directory), "7"))
    words = set(" ".join(piece["text"] for piece in found["pieces"]).split())
    assert "mill" in words or "grain" in words or "flour" in words
    shown = said(capsys, 0, "trace", "sequence", str(toy.directory), "7")
    for piece in found["pieces"]:
        assert piece["id"] in shown and piece["provenance"]["url"] in shown
        assert "<|endoftext|>" not in piece["text"]
    assert "no sample 99999" in said(capsys, 1, "trace", "sequence", str(toy.directory), "99999")


def test_a_document_is_shown_with_its_samples(
    toy: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "https://code.example/20"
    found = json.loads(said(capsys, 0, "trace", "doc", url, "--json", "--in", str(toy.directory)))
    shown = said(capsys, 0, "trace", "doc", url, "--in", str(toy.directory))
    assert found[0]["id"] in shown and "packed 2 times" in shown
    assert "no such document" in said(
        capsys, 1, "trace", "doc", "0" * 32, "--in", str(toy.directory)
    )


def test_diff_shows_what_differs_between_two_manifests(
    toy: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "other", samples=1024)
    shown = said(capsys, 0, "diff", str(toy.directory), str(tmp_path / "other"))
    (line,) = [line for line in shown.split("\n") if line.startswith("order.samples")]
    assert line.split() == ["order.samples", f"{toy.samples:,}", "1,024"]
    assert said(capsys, 0, "diff", str(toy.directory), str(toy.directory)) == "no difference\n"


def test_diff_shows_what_differs_between_two_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": "word " * n}) + "\n" for n in (2, 5, 9)))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "kind: documents\nname: small\ninput: {kind: jsonl}\n"
        "stages: [{gopher_quality: {min_words: 3}}]\n"
    )
    for name, value in (("a", "3"), ("b", "6")):
        run = ("run", str(recipe), "--input", str(texts), "--output", str(tmp_path / name))
        assert main([*run, "--workers", "1", "--set", f"gopher_quality.min_words={value}"]) == 0
    capsys.readouterr()
    found = json.loads(said(capsys, 0, "diff", "--json", str(tmp_path / "a"), str(tmp_path / "b")))
    places = {entry["path"]: (entry["a"], entry["b"]) for entry in found}
    assert places["recipe.stages.gopher_quality.min_words"] == (3, 6)
    dropped = places["stats.stages.gopher_quality.dropped.too_few_words.documents"]
    assert dropped == (1, 2)
    assert not [path for path in places if path.startswith("inputs")]
