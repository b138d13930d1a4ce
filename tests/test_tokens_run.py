"""A tokens run from recipe to manifest: nothing lost, the same bytes, every token at home."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from curation import cli, submit
from curation.api import run, run_tokens
from curation.engine import executors, work
from curation.engine.plan import Task, open_plan
from curation.engine.recipe import RecipeError
from curation.engine.tokens import tasks
from curation.engine.tokens.plan import PHASES, open_tokens
from curation.engine.tokens.recipe import load
from curation.engine.tokens.vocabulary import of as vocabulary_of
from curation.inspect.trace import document
from manifests import trace, verify
from manifests.hashing import below, keys, salt
from manifests.records import Receipt, canonical, digest_of
from manifests.rows import Rows, from_table
from manifests.tokens import Manifest

WORDS = [f"{a}{b}" for a in ("mi", "ra", "to", "ne", "lu", "so") for b in ("ll", "nd", "ck", "st")]
LENGTH = 64


def text(words: int, seed: int) -> str:
    """Words that no other seed gives in this order."""
    drawn = random.Random(seed)
    return " ".join(drawn.choice(WORDS) + str(drawn.randrange(50)) for _ in range(words)) + "."


def write(path: Path, texts: list[str], name: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": f"{name}-{i}", "text": t, "url": f"https://{name}.example/{i}"})
             for i, t in enumerate(texts)]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sources in five files: short texts, long ones, and copies among and between them."""
    home = tmp_path_factory.mktemp("sources")
    write(home / "web/0.jsonl", [text(5 + i % 90, i) for i in range(70)], "w0")
    write(home / "web/1.jsonl", [text(40, 1_000 + i) for i in range(30)], "w1")
    write(home / "web/2.jsonl", [text(40, 1_000 + i) for i in range(5)], "w2")  # copies of w1
    write(home / "books/0.jsonl", [text(400, 2_000 + i) for i in range(6)], "b0")
    write(home / "code/0.jsonl", [text(12, 3_000 + i) for i in range(40)], "c0")
    return home


def recipe(home: Path, **more: Any) -> dict[str, Any]:
    weights = {"web": 0.5, "books": 0.3, "code": 0.2}
    return {
        "kind": "tokens",
        "name": "toy",
        "sources": [
            {"name": name, "kind": "jsonl", "paths": [str(home / name)], "weight": weight}
            for name, weight in weights.items()
        ],
        "tokenizer": {"train": {"vocab_size": 400, "pretokenizer": "llama3"}},
        "sequence_length": LENGTH,
        "total_tokens": 12_000,
        "dedup": ["exact_dedup"],
        "validation": {"share": 0.1},
        "output": {"shard_rows": 50},
        **more,
    }


@pytest.fixture(scope="module")
def finished(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run."""
    path = tmp_path_factory.mktemp("tokens") / "a"
    return run_tokens(recipe(sources), output=path, workers=1).path


def rows(manifest: Manifest, paths: list[str]) -> Rows:
    tables = [pq.read_table(manifest.directory / path) for path in paths]
    return Rows.join([from_table(table, manifest.names) for table in tables])


def packed(manifest: Manifest, split: str) -> Iterator[Rows]:
    for source in manifest.sources:
        if files := source.splits[split].files:
            yield rows(manifest, [file.path for file in files])


def corpus(run: Path) -> dict[str, str]:
    """Texts of the corpus by id."""
    table = pq.read_table(run / "corpus" / "documents", columns=["id", "text"])
    return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


def pieces(some: Rows) -> Iterator[tuple[str, int, np.ndarray]]:
    """Id, offset and tokens of every piece of every row."""
    for row in range(len(some)):
        at = 0
        for piece in range(some.starts[row], some.starts[row + 1]):
            length = int(some.lengths[piece])
            high, low = some.ids[piece].tolist()
            yield (
                f"{high:016x}{low:016x}",
                int(some.offsets[piece]),
                some.tokens[row, at : at + length],
            )
            at += length


def test_every_token_of_every_document_is_in_a_row_once(finished: Path) -> None:
    """Pieces put together are the documents, as the tokenizer gives them, and an EOS."""
    manifest, texts = Manifest.load(finished), corpus(finished)
    loaded = vocabulary_of(open_tokens(finished)).loaded
    found: dict[str, list[tuple[int, np.ndarray]]] = {}
    for split in ("train", "validation"):
        for some in packed(manifest, split):
            for id_, offset, tokens in pieces(some):
                found.setdefault(id_, []).append((offset, tokens))
    assert set(found) == set(texts) and len(texts) == 146  # 151 less five copies
    for id_, parts in found.items():
        parts.sort(key=lambda part: part[0])
        ends = np.cumsum([len(tokens) for _, tokens in parts])
        assert [offset for offset, _ in parts] == [0, *ends[:-1]]
        whole = np.concatenate([tokens for _, tokens in parts])
        assert whole[-1] == loaded.eos and loaded.eos not in whole[:-1]
        assert loaded.decode(whole[:-1]) == texts[id_]


def test_documents_that_fit_a_row_are_not_cut(finished: Path) -> None:
    for some in packed(Manifest.load(finished), "train"):
        for _, offset, tokens in pieces(some):
            assert offset % LENGTH == 0 and (offset == 0 or len(tokens) <= LENGTH)


def test_row_i_of_the_shards_is_sample_i(finished: Path) -> None:
    manifest = Manifest.load(finished)
    shards = rows(manifest, [file.path for file in manifest.shards])
    assert len(shards) == manifest.samples
    assert [file.rows for file in manifest.shards[:-1]] == [50] * (len(manifest.shards) - 1)
    own = {source.name: rows(manifest, [f.path for f in source.train.files])
           for source in manifest.sources}  # fmt: skip
    where = zip(*manifest.order().locate(np.arange(manifest.samples)), strict=True)
    for i, (source, _, row) in enumerate(where):
        other = own[manifest.names[source]]
        assert np.array_equal(shards.tokens[i], other.tokens[row])
        assert np.array_equal(shards.take([i]).ids, other.take([row]).ids)
        assert np.array_equal(shards.take([i]).offsets, other.take([row]).offsets)


def test_weights_are_what_the_samples_have(finished: Path) -> None:
    manifest = Manifest.load(finished)
    wanted = {"web": 0.5, "books": 0.3, "code": 0.2}
    counted: Counter[str] = Counter()
    shards = rows(manifest, [file.path for file in manifest.shards])
    for source, filled in zip(shards.sources, shards.filled(), strict=True):
        counted[manifest.names[source]] += int(filled)
    total = counted.total()
    assert total == pytest.approx(12_000, rel=0.05)
    for source in manifest.sources:
        assert source.weight == wanted[source.name]
        assert source.realised == pytest.approx(counted[source.name] / total)
        assert source.realised == pytest.approx(source.weight, abs=0.04)  # less than a block
        assert source.epochs <= source.max_epochs == 4


def test_validation_is_in_no_row_of_train_and_comes_first_in_deduplication(
    sources: Path, tmp_path: Path
) -> None:
    made = recipe(sources, validation={"share": 0.5}, total_tokens=None)
    manifest = run_tokens(made, output=tmp_path / "r", workers=1).manifest
    ids = {
        split: {id_ for some in packed(manifest, split) for id_, *_ in pieces(some)}
        for split in ("train", "validation")
    }
    assert not ids["train"] & ids["validation"] and len(ids["validation"]) > 40
    texts = corpus(tmp_path / "r")
    assert set(texts) == ids["train"] | ids["validation"]
    assert len(set(texts.values())) == len(texts)
    shards = rows(manifest, [file.path for file in manifest.shards])
    assert {id_ for id_, *_ in pieces(shards)} <= ids["train"]
    # Of each pair of copies one of validation survives, where there is one.
    plan, salted = open_plan(tmp_path / "r" / "corpus"), salt(20, "validation")
    for i in range(5):
        fates = [document(plan, f"https://w{n}.example/{i}")[0] for n in (1, 2)]
        ids_ = np.array([[int(f["id"][:16], 16), int(f["id"][16:], 16)] for f in fates], np.uint64)
        held = (keys(salted, ids_) < below(0.5)).tolist()
        kept = [fate["outcome"] == "kept" for fate in fates]
        assert sum(kept) == 1 and held[kept.index(True)] == max(held)


def test_a_whole_source_can_be_validation(sources: Path, tmp_path: Path) -> None:
    made = recipe(sources, validation={"source": "books"}, total_tokens=None)
    del made["sources"][1]["weight"]
    manifest = run_tokens(made, output=tmp_path / "r", workers=1).manifest
    books = manifest.source("books")
    assert books.train.rows == 0 and books.splits["validation"].documents == 6
    assert books.weight == books.realised == books.epochs == 0
    assert verify.check(manifest).problems == []


def test_the_manifest_of_a_run_holds(finished: Path) -> None:
    report = verify.check(Manifest.load(finished))
    assert report.problems == [] and report.samples == Manifest.load(finished).samples


def test_a_thousand_tokens_are_traced_to_their_very_text(finished: Path) -> None:
    """Sample and place -> document and offset -> the text, as the tokenizer cuts it."""
    manifest, loaded = Manifest.load(finished), vocabulary_of(open_tokens(finished)).loaded
    shards = rows(manifest, [file.path for file in manifest.shards])
    drawn = random.Random(7)
    for sample in drawn.sample(range(manifest.samples), 50):
        traced = trace.sequence(manifest, sample).pieces
        filled = int(shards.take(np.array([sample])).filled()[0])
        for place in drawn.choices(range(filled), k=20):
            at = place
            for piece in traced:
                if at < piece.length:
                    break
                at -= piece.length
            origin = piece.provenance
            table = pq.read_table(finished / origin["file"], columns=["text"])
            whole = table["text"][origin["row"]].as_py()
            encoded = loaded.encoder.encode(whole, add_special_tokens=False)
            token, at = int(shards.tokens[sample, place]), piece.offset + at
            assert [*encoded.ids, loaded.eos][at] == token
            if at < len(encoded.ids):
                start, stop = encoded.offsets[at]
                assert loaded.decode(np.array([token])) == whole[start:stop]


# ---------------------------------------------------------------- the same bytes


def same(one: Path, other: Path) -> None:
    """All files but for times and places, receipts by what they say."""
    assert results(one) == results(other)


def results(path: Path) -> dict[str, bytes]:
    found = {}
    for file in sorted(path.rglob("*")):
        name = str(file.relative_to(path))
        if not file.is_file() or name.startswith(("corpus/", "lease")) or "timings" in name:
            continue
        if "/receipts/" in name:
            receipt = Receipt.load(file)
            assert receipt is not None
            found[name] = json.dumps(receipt.core(), sort_keys=True).encode()
        elif not file.name.startswith("."):
            found[name] = file.read_bytes()
    return found


def test_workers_do_not_matter(sources: Path, finished: Path, tmp_path: Path) -> None:
    same(run_tokens(recipe(sources), output=tmp_path / "r", workers=2).path, finished)


@pytest.mark.ray
def test_a_cluster_does_not_matter(
    sources: Path, finished: Path, tmp_path: Path, ray_cluster: None
) -> None:
    same(run_tokens(recipe(sources), output=tmp_path / "r", executor="ray").path, finished)


def test_how_the_files_are_named_does_not_matter(
    sources: Path, finished: Path, tmp_path: Path
) -> None:
    made = recipe(sources)
    made["sources"][0]["paths"] = [str(sources / f"web/{i}.jsonl") for i in (2, 0, 1, 0)]
    same(run_tokens(made, output=tmp_path / "r", workers=1).path, finished)


@pytest.mark.parametrize("phase", PHASES)
def test_killed_in_any_phase_a_run_goes_on_to_the_same_bytes(
    phase: str, sources: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends in the middle of a phase: before its second task has a receipt, where there
    are several; its files may be there already."""

    class Killed(BaseException):
        pass

    seen = 0

    def deadly(plan: Any, task: Task) -> Receipt:
        nonlocal seen
        if getattr(task, "phase", "") == phase:
            seen += 1
            several = phase not in ("train", "report", "known", "common")
            if seen == 1 + several:
                tasks._TASKS[phase](plan, task)
                raise Killed
        return carry_out(plan, task)

    carry_out = work.carry_out
    with monkeypatch.context() as patched:
        patched.setattr(executors, "carry_out", deadly)
        with pytest.raises(Killed):
            run_tokens(recipe(sources), output=tmp_path / "r", workers=1)
    assert not (tmp_path / "r" / "manifest.json").exists()
    same(run_tokens(recipe(sources), output=tmp_path / "r", workers=1).path, finished)


@pytest.mark.parametrize(
    ("pattern", "before"),
    [
        ("phases/*-sample/work/00000.parquet", "train"),
        ("phases/*-grams/work/00000.hashes.npy", "known"),
        ("phases/*-encode/work/00000.train.tokens.npy", "pack"),
        ("phases/*-encode/work/00000.train.provenance.arrow", "pack"),
        ("packed/train/web/*.parquet", "scatter"),
        ("phases/*-scatter/work/00000.tokens.npy", "gather"),
        ("corpus/documents/part-00000.parquet", "encode"),
    ],
)
def test_a_damaged_file_is_named_and_made_again(
    pattern: str,
    before: str,
    sources: Path,
    finished: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A flipped byte in what a later phase reads, where that phase has still to run."""
    path = tmp_path / "r"
    shutil.copytree(finished, path)
    [file] = path.glob(pattern)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    for phase in PHASES[PHASES.index(before) :]:
        shutil.rmtree(next(path.glob(f"phases/*-{phase}")))
    same(run_tokens(recipe(sources), output=path, workers=1, quiet=False).path, finished)
    assert f"{file.relative_to(path)}: damaged, it is made again" in capfd.readouterr().err


def test_documents_cannot_begin_with_a_token_that_is_not_there(
    sources: Path, finished: Path, tmp_path: Path
) -> None:
    said = {"path": str(finished / "tokenizer" / "tokenizer.json"), "add_bos": True}
    with pytest.raises(RecipeError, match="add_bos: no token begins documents"):
        run_tokens(recipe(sources, tokenizer=said), output=tmp_path / "r", workers=1)


def test_a_changed_tokenizer_of_the_run_is_trained_again(
    sources: Path, finished: Path, tmp_path: Path
) -> None:
    """It is of the same size, and one that loads: two merges have changed places."""
    path = tmp_path / "r"
    shutil.copytree(finished, path)
    place = path / "tokenizer" / "tokenizer.json"
    said = json.loads(place.read_bytes())
    merges = said["model"]["merges"]
    merges[-1], merges[-2] = merges[-2], merges[-1]
    place.write_text(json.dumps(said, ensure_ascii=False, indent=2))
    assert place.stat().st_size == (finished / "tokenizer" / "tokenizer.json").stat().st_size
    shutil.rmtree(next(path.glob("phases/*-encode")))
    same(run_tokens(recipe(sources), output=path, workers=1).path, finished)


def test_another_mixture_reuses_every_token(sources: Path, finished: Path, tmp_path: Path) -> None:
    """--base: new weights cost the shuffle alone; the result is that of a run from scratch. (The
    sample that a tokenizer is trained on follows the weights: here all of it is taken.)"""
    made = recipe(sources, total_tokens=8_000)
    made["sources"][0]["weight"] = 0.2
    based = run_tokens(made, output=tmp_path / "b", base=finished, workers=1)
    scratch = run_tokens(made, output=tmp_path / "s", workers=1)
    same(based.path, scratch.path)
    taken = {
        path.parent.parent.name.partition("-")[2]: bool(
            json.loads(path.read_bytes())["envelope"].get("from")
        )
        for path in sorted(based.path.glob("phases/*/receipts/*.json"))
    }
    assert {phase for phase, reused in taken.items() if reused} == {*PHASES} - {"scatter", "gather"}


def test_a_finished_run_does_nothing_again(sources: Path, finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(finished, path)
    before = {p: os.stat(p).st_mtime_ns for p in path.rglob("*.parquet")}
    run_tokens(recipe(sources), output=path, workers=1)
    assert {p: os.stat(p).st_mtime_ns for p in path.rglob("*.parquet")} == before
    same(path, finished)


# ---------------------------------------------------------------- repetition, ends, what is refused


def test_documents_that_stand_for_others_are_repeated(tmp_path: Path) -> None:
    """FineWeb-2's table, through a documents run: three copies of a text make one document that
    stands for three, and is taken three times."""
    texts = [text(20, i) for i in range(20)]
    write(tmp_path / "in.jsonl", [*texts, texts[0], texts[0], texts[1]], "d")
    documents = {"kind": "documents", "name": "d", "input": {"kind": "jsonl"}}
    made = run({**documents, "stages": [{"exact_dedup": {}}]}, inputs=[tmp_path / "in.jsonl"],
               output=tmp_path / "d", workers=1)  # fmt: skip
    source = {"name": "web", "kind": "run", "run": str(made.path), "repeat": "fineweb2"}
    base = {"kind": "tokens", "name": "t", "sequence_length": LENGTH,
            "tokenizer": {"train": {"vocab_size": 300}}}  # fmt: skip
    manifest = run_tokens({**base, "sources": [source]}, output=tmp_path / "t", workers=1).manifest
    times = Counter(
        id_ for some in packed(manifest, "train") for id_, offset, _ in pieces(some) if offset == 0
    )
    assert sorted(times.values()) == [1] * 18 + [2, 3]
    assert manifest.sources[0].train.copies == 23 and manifest.sources[0].train.documents == 20
    assert verify.check(manifest).problems == []
    assert manifest.sources[0].upstream["stats"]["output"]["documents"] == 20


def test_bos_and_eos_are_there_once_and_a_literal_one_is_text(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", ["one <|endoftext|> two <|bos|> three", text(9, 1)], "d")
    made = {
        "kind": "tokens",
        "name": "t",
        "sources": [{"name": "a", "kind": "jsonl", "paths": [str(tmp_path / "in.jsonl")]}],
        "tokenizer": {"train": {"vocab_size": 300, "special": {"bos": "<|bos|>"}}, "add_bos": True},
        "sequence_length": LENGTH,
    }
    manifest = run_tokens(made, output=tmp_path / "t", workers=1).manifest
    loaded = vocabulary_of(open_tokens(tmp_path / "t")).loaded
    whole: dict[str, list[int]] = {}
    for some in packed(manifest, "train"):
        for id_, _, tokens in sorted(pieces(some), key=lambda piece: piece[:2]):
            whole.setdefault(id_, []).extend(tokens.tolist())
    special = manifest.tokenizer
    for ids in whole.values():
        assert ids[0] == special.bos and ids[-1] == special.eos
        assert special.bos not in ids[1:] and special.eos not in ids[:-1]
    texts = {loaded.decode(np.array(ids[1:-1])) for ids in whole.values()}
    assert texts == set(corpus(tmp_path / "t").values())


def test_a_source_that_would_be_seen_too_often_ends_the_run_before_shuffling(
    sources: Path, tmp_path: Path
) -> None:
    made = recipe(sources, total_tokens=100_000)
    with pytest.raises(RecipeError, match=r"sources\[code\]: \d+\.\d\d epochs .* max_epochs is 4;"):
        run_tokens(made, output=tmp_path / "r", workers=1)
    assert not list((tmp_path / "r").glob("phases/*-scatter"))


def test_an_empty_source_is_named(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    made = recipe(sources)
    made["sources"][2]["paths"] = [str(tmp_path / "empty.jsonl")]
    with pytest.raises(RecipeError, match=r"sources\[code\]: it has no documents"):
        run_tokens(made, output=tmp_path / "r", workers=1)


def test_live_reading_needs_no_shards(sources: Path, finished: Path, tmp_path: Path) -> None:
    made = recipe(sources, output={"materialise": False})
    manifest = run_tokens(made, output=tmp_path / "r", workers=1).manifest
    assert manifest.shards == () and manifest.samples == Manifest.load(finished).samples
    assert verify.check(manifest).problems == []


def test_another_recipe_does_not_go_into_the_same_directory(
    sources: Path, finished: Path, tmp_path: Path
) -> None:
    path = tmp_path / "r"
    shutil.copytree(finished, path)
    with pytest.raises(RecipeError, match=r"holds another run: recipe\.total_tokens"):
        run_tokens(recipe(sources, total_tokens=5_000), output=path, workers=1)


# ---------------------------------------------------------------- on the command line


def test_the_commands_of_a_tokens_run(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """run, again, plan, status, stats, verify, trace, gc, and what is only for documents."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(json.dumps(recipe(sources)))

    def curation(*arguments: str, code: int = 0) -> str:
        assert cli.main(arguments) == code
        found = capsys.readouterr()
        return found.out + found.err if code else found.out

    plain = json.loads(curation("plan", "r.yaml", "--json", "--set", "sources.web.weight=0.85"))
    assert [round(s["share"], 4) for s in plain["sources"]] == [0.6296, 0.2222, 0.1481]
    assert "weights sum to 1.35" in curation("plan", "r.yaml", "--set", "sources.web.weight=0.85")
    shown = curation("run", "r.yaml", "--output", "out", "--quiet", "--workers", "1")
    assert shown.splitlines()[0].split()[:3] == ["source", "documents", "tokens"]
    assert curation("run", "r.yaml", "--output", "out", "--quiet", "--workers", "1") == shown
    assert json.loads(curation("status", "out", "--json"))["state"] == "complete"
    assert "complete" in curation("status", "out")
    stats = json.loads(curation("stats", "out", "--json"))
    assert [s["name"] for s in stats["sources"]] == ["web", "books", "code"]
    assert stats["tokenizer"]["texts"] == "validation"
    assert "bytes/token" in curation("stats", "out")
    assert "of the run of documents, out/corpus" in curation(
        "stats", "out", "--by", "source", code=2
    )
    assert "corpus" in curation("inspect", "out", code=2)
    assert "holds" in curation("verify", "out")
    piece = json.loads(curation("trace", "sequence", "out", "7", "--json"))["pieces"][0]
    found = json.loads(curation("trace", "doc", piece["id"], "--in", "out", "--json"))
    assert 7 in [s[0] for e in found for place in e["places"] for s in place["samples"]]
    before = curation("verify", "out")
    freed = json.loads(curation("gc", "out", "--intermediates", "--json"))["files"]
    assert {file["why"] for file in freed} == {"intermediate"}
    assert curation("verify", "out") == before
    assert curation("run", "r.yaml", "--output", "out", "--quiet", "--workers", "1") == shown
    assert not list(Path("out").glob("phases/*-encode/work/*.npy"))  # nothing was made again
    assert "not for recipes" in curation("run", "r.yaml", "--shard", "1/2", code=2)
    assert "--input" in curation("run", "r.yaml", "--input", "x", code=2)


def test_a_submission_holds_a_tokens_recipe_with_absolute_places(
    sources: Path, tmp_path: Path
) -> None:
    (tmp_path / "r.yaml").write_text(json.dumps(recipe(sources)))
    wanted = submit.prepare(tmp_path / "r.yaml", output=str(tmp_path / "out"), limit=2)
    wanted.package(tmp_path)
    packed_ = load(tmp_path / "recipe.yaml").settings
    assert packed_ == load(recipe(sources)).settings
    assert "--limit 2" in wanted.command("python", "recipe.yaml")


def test_a_sound_run_holds_whatever_its_documents_are_like(tmp_path: Path) -> None:
    """Copies that are cut at different places, and ids that two texts of a source have."""
    lines = [{"id": i % 40, "text": text(3 + 5 * i, i)} for i in range(60)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    source = {"name": "a", "kind": "jsonl", "paths": [str(tmp_path / "in.jsonl")]}
    base = {"kind": "tokens", "name": "t", "sequence_length": LENGTH,
            "tokenizer": {"train": {"vocab_size": 300}}}  # fmt: skip
    for number, algorithm in enumerate(("concat", "best_fit")):
        made = {**base, "sources": [{**source, "repeat": [[1, 3]]}],
                "packing": {"algorithm": algorithm}}  # fmt: skip
        manifest = run_tokens(made, output=tmp_path / str(number), workers=1).manifest
        assert verify.check(manifest).problems == []
        assert manifest.sources[0].train.copies == 180


def test_a_curriculum_that_had_to_be_rounded_says_so(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stages = [
        {"share": 0.6, "weights": {"web": 1, "books": 1, "code": 0}},
        {"share": 0.4, "weights": {"web": 0, "books": 1, "code": 1}},
    ]
    made = recipe(sources, mixture={"stages": stages}, sequence_length=8, total_tokens=16_000)
    for source in made["sources"]:
        del source["weight"]
        source["max_epochs"] = 90
    manifest = run_tokens(made, output=tmp_path / "r", workers=1, quiet=False).manifest
    said = capfd.readouterr().err
    assert "mixture.stages[1] begins at sample 1,024, not " in said
    assert [entry.from_sample for entry in manifest.dealing.mixture] == [0, 1_024]
    assert verify.check(manifest).problems == []


def test_every_part_of_the_recipe_works_together(sources: Path, tmp_path: Path) -> None:
    """Validation, deduplication by text and near-duplicates, decontamination: what is held out is
    not lost to train, and an evaluation set is found in both."""
    planted = text(40, 1_003)  # of web/1.jsonl
    (tmp_path / "set.jsonl").write_text(json.dumps({"id": "q1", "text": planted}) + "\n")
    made = recipe(
        sources,
        dedup=["exact_dedup", {"minhash_dedup": {}}],
        decontaminate={"sets": [str(tmp_path / "set.jsonl")], "action": "drop"},
        total_tokens=None,
    )
    manifest = run_tokens(made, output=tmp_path / "r", workers=1).manifest
    assert planted not in corpus(tmp_path / "r").values()
    assert manifest.corpus is not None
    names = [stage["name"] for stage in manifest.corpus.stats["stages"]]
    assert names == ["split", "exact_dedup", "minhash_dedup", "decontaminate"]
    assert manifest.corpus.stats["stages"][3]["dropped"]["contaminated"]["documents"] == 1
    assert verify.check(manifest).problems == []


def test_a_trained_tokenizer_can_be_kept_for_another_mixture(
    sources: Path, finished: Path, tmp_path: Path
) -> None:
    """By its path it has the special tokens that it was trained with, so that nothing but the
    shuffle differs."""
    (tmp_path / "r.yaml").write_text(json.dumps(recipe(sources)))
    made = run_tokens(
        tmp_path / "r.yaml",
        settings=[f"tokenizer.path={finished}/tokenizer/tokenizer.json", "sources.code=null"],
        output=tmp_path / "r",
        base=finished,
        workers=1,
    )
    old = Manifest.load(finished)
    assert made.manifest.tokenizer == old.tokenizer
    assert made.manifest.names == ["web", "books"]
    web = [m.source("web").train.files for m in (made.manifest, old)]
    assert web[0] == web[1]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 21),
        ("max_docs_per_row", 7),
        ("validation.share", 0.2),
        ("tokenizer.size", 399),
        ("tokenizer.pad", 5),
        ("sources.0.license", "CC0"),
        ("sources.1.max_epochs", 5),
        ("order.mixture.0.weights.web", 0.4),
        ("order.samples", 100),
    ],
)
def test_a_manifest_that_was_edited_with_care_is_found(
    path: str, value: Any, finished: Path, tmp_path: Path
) -> None:
    """Its digest is right, and still it is not what the recipe and the files say."""
    shutil.copytree(finished, tmp_path / "r")
    record = json.loads((tmp_path / "r" / "manifest.json").read_bytes())
    *steps, last = path.split(".")
    target = record
    for step in steps:
        target = target[int(step) if step.isdecimal() else step]
    if path.endswith("license"):
        record["recipe"]["sources"][0]["license"] = "MIT"
        record["recipe_digest"] = digest_of(record["recipe"])
    target[last] = value
    del record["digest"]
    (tmp_path / "r" / "manifest.json").write_bytes(
        canonical({**record, "digest": digest_of(record)})
    )
    assert verify.check(Manifest.load(tmp_path / "r")).problems


@pytest.mark.parametrize("name", ["a", "the", "<eos", "", "word word"])
def test_a_special_token_that_could_be_a_word_is_refused(name: str, sources: Path) -> None:
    made = recipe(sources, tokenizer={"train": {"special": {"eos": name}}})
    with pytest.raises(RecipeError, match=r"tokenizer.train.special.eos: a name such as"):
        load(made)


def test_another_end_of_documents_is_another_encoding(
    sources: Path, finished: Path, tmp_path: Path
) -> None:
    """The same tokenizer.json with another token as eos, on the base of the first."""
    path = str(finished / "tokenizer" / "tokenizer.json")
    made = recipe(sources, tokenizer={"path": path, "eos": "<|mask|>"})
    based = run_tokens(made, output=tmp_path / "b", base=finished, workers=1).manifest
    assert based.tokenizer.eos == Manifest.load(finished).tokenizer.mask
    assert verify.check(based).problems == []  # every document ends with it
