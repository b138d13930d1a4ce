"""Encoding: every text comes back, special tokens come from us alone, run files are in order."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel

from curation import models as shelf
from curation.tokens import presets, report
from curation.tokens.bpe import TrainOptions, train
from curation.tokens.encoding import batches
from curation.tokens.encoding.batches import cut, encode
from curation.tokens.encoding.loaded import Loaded, Named, TokenizerError, load
from curation.tokens.encoding.runs import DOC, PROVENANCE, SPLITS, repeats, run_files, times
from curation.tokens.packing import copied
from manifests.hashing import below, keys, salt
from tests.test_tokens_bpe import TEXTS


@pytest.fixture(scope="module", params=list(presets.PATTERNS))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tokenizer of each preset."""
    made = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    options = TrainOptions(vocab_size=330, pretokenizer=request.param, bos="<s>", sentinels=2)
    train(TEXTS, options).save(str(made))
    return made


@pytest.fixture(scope="module")
def loaded(path: Path) -> Loaded:
    return load(path)


def changed(path: Path, to: Path, **changes: Any) -> Path:
    """A copy of a tokenizer.json in which something is said otherwise."""
    to.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return to


# ---------------------------------------------------------------- round trip


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\x00\r\n\x85 \u2028  \t")
@example(" " * 500 + "\n" * 70 + "e\u0301\U0010ffff\U00010348\u200d")
@example("<|endoftext|><s> <|pad|><|sentinel_1|>")
def test_every_text_comes_back_and_has_no_special_token(loaded: Loaded, text: str) -> None:
    ids, lengths = encode(loaded, [text])
    assert lengths.tolist() == [len(ids)] and ids.dtype == np.uint16
    assert ids[-1] == loaded.eos
    assert not np.isin(ids[:-1], list(loaded.special.values())).any()
    assert loaded.decode(ids[:-1]) == text


def test_bos_and_eos_stand_once_at_the_ends_whatever_the_file_says(
    path: Path, tmp_path: Path
) -> None:
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }  # fmt: skip
    short = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    full = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 2, "pad_type_id": 0, "pad_token": "<|pad|>"}  # fmt: skip
    other = changed(path, tmp_path / "t.json", post_processor=template, truncation=short,
                    padding=full)  # fmt: skip
    ids, lengths = encode(load(other, Named(bos="<s>")), ["The <s> mill", "", "old oats and rye"])
    plain, _ = encode(load(path), ["The <s> mill", "", "old oats and rye"])
    documents = np.split(ids, np.cumsum(lengths)[:-1])
    assert all(d[0] == 1 and d[-1] == 0 and (d[1:-1] > 4).all() for d in documents)
    assert [i for d in documents for i in d[1:]] == plain.tolist()
    assert documents[1].tolist() == [1, 0]


def test_texts_come_as_a_list_or_as_an_arrow_array(loaded: Loaded) -> None:
    for texts in ([], ["", "old"]):
        one, other = encode(loaded, texts), encode(loaded, pa.array(texts, pa.large_string()))
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        assert one[0].dtype == loaded.dtype and one[1].dtype == np.int64


@settings(max_examples=60, deadline=None)
@given(data=st.data(), long=st.integers(1, 9), call=st.integers(1, 40))
def test_a_text_that_is_cut_has_the_ids_of_the_whole(
    loaded: Loaded, data: st.DataObject, long: int, call: int
) -> None:
    letters = st.sampled_from("abtz é製の.,。、'’ \n\r\t-123\u0301sS")
    texts = data.draw(st.lists(st.text(letters, max_size=60), max_size=4))
    assert loaded.separable
    whole = encode(loaded, texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "LONG", long)
        patch.setattr(batches, "CALL", call)
        assert all("".join(cut(text)) == text for text in texts)
        parts = encode(loaded, texts)
    assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_a_tokenizer_that_joins_over_blanks_is_not_cut(path: Path, tmp_path: Path) -> None:
    added = json.loads(path.read_text())["added_tokens"]
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    joins = changed(path, tmp_path / "a.json",
                    added_tokens=[*added, {"id": 330, "content": "of the", **flags}])  # fmt: skip
    assert not load(joins).separable
    ids, _ = encode(load(joins), ["a lot of them"])
    assert 330 in ids, "an added token that is not special is part of how texts are encoded"
    whole = changed(path, tmp_path / "b.json",
                    pre_tokenizer={"type": "Metaspace", "replacement": "_"})  # fmt: skip
    assert not load(whole).separable


# ---------------------------------------------------------------- loading


def test_what_is_known_of_a_tokenizer(path: Path, tmp_path: Path) -> None:
    named = Named(bos="<s>", pad="<|pad|>", sentinels=("<|sentinel_0|>", "<|sentinel_1|>"))
    loaded = load(path, named)
    assert (loaded.eos, loaded.bos, loaded.pad, loaded.mask) == (0, 1, 2, None)
    assert loaded.sentinels == (3, 4) and len(loaded.special) == 5
    assert loaded.size == 330 and loaded.warnings == ()
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert load(tmp_path / "t.json.gz").size == load(path.parent).size == 330


@pytest.mark.parametrize(("size", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_ids_are_as_wide_as_the_highest_needs(size: int, dtype: type, tmp_path: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(alphabet)} | {"</s>": size - 1}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = presets.pre_tokenizer("gpt2")
    tokenizer.decoder = ByteLevel()
    tokenizer.save(str(tmp_path / "t.json"))
    loaded = load(tmp_path / "t.json")
    ids, _ = encode(loaded, ["a</s>"])
    assert loaded.size == size and ids.dtype == loaded.dtype == dtype
    assert ids[-1] == size - 1 and len(ids) == 6 and loaded.decode(ids[:-1]) == "a</s>"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (Named(eos="<end>"), r"eos '<end>' is no token but a text of \d ids: name one of"),
        (Named(mask="<mask>"), "mask '<mask>' is no token"),
        (Named(sentinels=("<|sentinel_7|>",)), "sentinels '<|sentinel_7|>' is no token"),
        (Named(eos="t"), "the text 't' inside a document would become the special token"),
    ],
)
def test_a_special_token_that_is_not_one_id_is_refused(path: Path, named: Named, said: str) -> None:
    with pytest.raises(TokenizerError) as error:
        load(path, named)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(TokenizerError, match=said.replace("|", r"\|")):
        load(path, named)


def test_damaged_and_missing_files_are_named(path: Path, tmp_path: Path) -> None:
    for name, content, said in (
        ("cut.json", path.read_bytes()[:900], "no tokenizer.json"),
        ("cut.json.gz", gzip.compress(path.read_bytes())[:900], "no tokenizer.json"),
        ("list.json", b"[1]", "it has no model"),
        ("odd.json", b'{"model": {"type": "Odd"}}', "tokenizers cannot read it"),
        ("empty.json", b"", "no tokenizer.json"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TokenizerError, match=f"{name}: .*{said}"):
            load(tmp_path / name)
    with pytest.raises(TokenizerError, match=r"nothing\.json: no such file"):
        load(tmp_path / "nothing.json")


def test_a_tokenizer_that_changes_texts_is_warned_of(path: Path, tmp_path: Path) -> None:
    [warning] = load(changed(path, tmp_path / "t.json", normalizer={"type": "NFKC"})).warnings
    assert "not lossless" in warning and "t.json" in warning


def test_no_eos_among_the_known_names_asks_for_one(path: Path, tmp_path: Path) -> None:
    told = json.loads(path.read_text())
    told["model"]["vocab"]["<fin>"] = told["model"]["vocab"].pop("<|endoftext|>")
    told["added_tokens"][0]["content"] = "<fin>"
    (tmp_path / "t.json").write_text(json.dumps(told))
    with pytest.raises(TokenizerError, match="name one as eos"):
        load(tmp_path / "t.json")
    assert load(tmp_path / "t.json", Named(eos="<fin>")).eos == 0


# ---------------------------------------------------------------- run files


def documents(count: int, seed: int = 1) -> dict[str, pa.Array]:
    random = np.random.default_rng(seed)
    ids = [f"{a:016x}{b:016x}" for a, b in random.integers(0, 2**64, (count, 2), dtype=np.uint64)]
    return {
        "id": pa.array(ids, pa.string()),
        "text": pa.array([TEXTS[i % 18][: i % 50] for i in range(count)], pa.large_string()),
        "url": pa.array([f"http://a.example/{i}" for i in range(count)]),
        "duplicate_count": pa.array(
            [(1, 2, 4, 150, None)[i % 5] for i in range(count)], pa.int64()
        ),
    }


def test_run_files_hold_every_document_in_order_of_its_key(loaded: Loaded) -> None:
    columns = documents(60)
    made = run_files([columns], loaded, file="documents/part-00000.parquet", seed=3,
                     validation=0.3, repeat=repeats("fineweb2"))  # fmt: skip
    assert set(made) == set(SPLITS)
    rows: list[int] = []
    for split, run in made.items():
        docs, table = run.docs, run.provenance
        assert docs.dtype == DOC and table.schema == PROVENANCE
        assert docs["start"].tolist() == (np.cumsum(docs["length"]) - docs["length"]).tolist()
        order = [(d["key"], *d["id"], d["copy"]) for d in docs]
        assert order == sorted(order) and len(order) > 9
        assert (docs["key"] == keys(salt(3, "packing"), docs["id"], docs["copy"])).all()
        first = keys(salt(3, "packing"), _words(table["id"].to_pylist()))
        assert first.tolist() == sorted(first.tolist())
        validation = keys(salt(3, "validation"), docs["id"]) < below(0.3)
        assert (validation == (split == "validation")).all()
        for doc in docs:
            source = table.slice(int(doc["row"]), 1).to_pylist()[0]
            ids = run.tokens[doc["start"] : doc["start"] + doc["length"]]
            text = columns["text"][source["row"]].as_py()
            assert loaded.decode(ids[:-1]) == text and ids[-1] == loaded.eos
            assert (
                source["tokens"] == len(ids)
                and source["id"] == columns["id"][source["row"]].as_py()
            )
            assert source["url"] == f"http://a.example/{source['row']}"
        copies = np.bincount(docs["row"], minlength=len(table)).tolist()
        assert copies == table["copies"].to_pylist()
        wanted = {None: 1, 1: 1, 2: 2, 4: 3, 150: 8} if split == "train" else {}
        for count, times_ in zip(table["duplicate_count"].to_pylist(), copies, strict=True):
            assert times_ == wanted.get(count, 1)
        rows += table["row"].to_pylist()
    assert sorted(rows) == list(range(60)), "no document vanishes"


def _words(ids: list[str]) -> np.ndarray:
    return np.array([[int(i[:16], 16), int(i[16:], 16)] for i in ids], np.uint64)


def test_run_files_do_not_depend_on_how_batches_are_cut(loaded: Loaded) -> None:
    columns = documents(30)
    pieces = [{n: c.slice(i, 7) for n, c in columns.items()} for i in range(0, 30, 7)]
    options: dict[str, Any] = {"file": "f", "seed": 1, "validation": 0.2}
    one, other = (run_files(b, loaded, **options) for b in ([columns], pieces))
    for split in SPLITS:
        assert one[split].docs.tobytes() == other[split].docs.tobytes()
        assert one[split].tokens.tobytes() == other[split].tokens.tobytes()
        assert one[split].provenance.equals(other[split].provenance)


@pytest.mark.parametrize(("share", "train"), [(0.0, 9), (1.0, 0)])
def test_all_or_nothing_is_validation(loaded: Loaded, share: float, train: int) -> None:
    made = run_files([documents(9)], loaded, file="f", seed=1, validation=share)
    assert [len(made[split].docs) for split in SPLITS] == [train, 9 - train]
    empty = run_files([], loaded, file="f", seed=1, validation=share)
    assert all(len(empty[s].tokens) == len(empty[s].provenance) == 0 for s in SPLITS)


def test_repetition_by_the_tables_of_recipes() -> None:
    counts = pa.array([None, 0, 1, 2, 3, 4, 5, 99, 100, 999, 1000, 10**6])
    assert times(counts, repeats("fineweb2")).tolist() == [1, 1, 1, 2, 3, 3, 5, 5, 8, 8, 1, 1]
    assert times(counts, repeats("none")).tolist() == [1] * 12
    assert times(counts, repeats([[3, 2]])).tolist() == [1] * 4 + [2] * 8
    for wrong in ("all", [], [[3, 2], [1, 1]], [[1, 0]], [[0, 1]], [[1]], [["a", 1]]):
        with pytest.raises(ValueError, match="ascending"):
            repeats(wrong)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=9))
def test_slices_are_copied_one_after_the_other(slices: list[tuple[int, int]]) -> None:
    source = np.arange(50, dtype=np.uint16)
    starts, lengths = np.array(slices, np.int64).reshape(-1, 2).T.copy()
    target = np.zeros(int(lengths.sum()), np.uint16)
    copied(source, starts, lengths, np.cumsum(lengths) - lengths, target)
    whole = [source[a : a + n] for a, n in zip(starts, lengths, strict=True)]
    assert np.array_equal(target, np.concatenate([source[:0], *whole]))


# ---------------------------------------------------------------- the report


def test_the_report_counts_by_source_and_language(path: Path) -> None:
    loaded = load(path, Named(bos="<s>"))
    batch = {
        "text": pa.array(["old rye", "製粉所", "the mill"], pa.large_string()),
        "source": pa.array(["web", "web", "books"]),
        "language": pa.array(["en", None, "en"]),
    }
    told = report.measure({"ours": loaded}, [batch, batch], "validation")
    json.dumps(told)
    own = told["tokenizers"]["ours"]
    groups = {(g["source"], g["language"]): g for g in own["groups"]}
    assert list(groups) == [(None, None), ("books", "en"), ("web", "?"), ("web", "en")]
    everything, japanese = groups[None, None], groups["web", "?"]
    assert (everything["documents"], everything["bytes"], everything["words"]) == (6, 48, 10)
    assert everything["tokens"] == sum(g["tokens"] for g in own["groups"][1:])
    ids = loaded.encoder.encode("製粉所").ids
    assert japanese["tokens"] == 2 * len(ids) and japanese["bytes_per_token"] == 9 / len(ids)
    assert japanese["entries_used"] == len(set(ids))
    assert japanese["entries_used"] + japanese["entries_unused"] == 330 - 5
    lines = report.table(told).splitlines()
    assert lines[0].split()[:3] == ["source", "language", "tokenizer"] and len(lines) == 5
    assert len({line.rindex(" ") for line in lines[1:]}) == 1


def test_without_gpt2_the_report_knows_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setenv("GRISTMILL_MODELS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert report.beside() == ({}, "curation models fetch tokenizer/gpt2")
    place = tmp_path / "tokenizer" / "gpt2"
    place.mkdir(parents=True)
    (place / "tokenizer.json").write_bytes(path.read_bytes())
    found, missing = report.beside()
    assert found["gpt2"].size == 330 and missing is None
    assert shelf.table.entry("tokenizer/gpt2").kind == "tokenizer"
