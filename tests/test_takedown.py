"""A run without the listed documents: nothing of them is left, the rest is as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judges import STAGES as MARKS
from judges import write_documents
from kit import page, recipe, write_jsonl

from curation import run
from curation.cli import main
from curation.engine import stats
from curation.engine.exchange import DamagedFile
from curation.engine.listed import mask_of
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.inspect import pairs, trace, verify, whatif
from curation.inspect.signals import batches
from curation.stage import Edited
from curation.takedown import Listed, read_list, takedown_run
from manifests.records import Receipt

STAGES = (*MARKS, {"judges:Cutter": {"as": "later", "word": "word", "most": None}})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return done(inputs, tmp_path_factory.mktemp("run") / "old")


def done(source: Path, path: Path, *stages: Any, **more: Any) -> Path:
    wanted = recipe(*(stages or STAGES), **{"failure_ceiling": 1, **more})
    return run(wanted, inputs=[str(source)], output=path, workers=1).path


def rows(path: Path, segment: int = 0) -> list[dict[str, Any]]:
    plan = open_plan(path)
    return [row for t in batches(plan, plan.segments[segment]) for row in t.to_pylist()]


def documents(path: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(p) for p in sorted(path.glob("documents/*.parquet")))


def receipts(path: Path) -> dict[str, Receipt]:
    plan = open_plan(path)
    found = {p.stem: Receipt.load(p) for p in plan.receipts(plan.segments[0]).glob("*.json")}
    return {name: receipt for name, receipt in found.items() if receipt is not None}


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_was_read_is_what_a_run_with_the_list_reads(
    finished: Path, inputs: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Documents that failed, were emptied, edited, dropped, kept: each count, each byte."""
    folder = tmp_path_factory.mktemp("new")
    known = rows(finished)
    gone = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=8))
    urls = data.draw(st.lists(st.sampled_from(known), max_size=2))
    listed = Listed(frozenset(r["id"] for r in gone), frozenset(r["url"] for r in urls))
    new = folder / "new"
    found = takedown_run(finished, listed, new)
    assert not found["not_found"]
    left = [row for row in known if not listed.holds(row["id"], row["url"])]
    assert found["documents"] == len(known) - len(left)
    assert rows(new) == left
    before = documents(finished)
    stay = [not listed.holds(r["id"], r["url"]) for r in before.to_pylist()]
    assert documents(new).to_pylist() == before.filter(pa.array(stay)).to_pylist()
    assert verify.check(open_plan(new), replay=4)["problems"] == []

    path = folder / "list"
    path.write_text("\n".join([*listed.ids, *listed.urls]))
    scratch = receipts(done(inputs, folder / "scratch", takedown=str(path)))
    for name, receipt in receipts(new).items():
        other = scratch[name]
        assert receipt.counts == other.counts
        same = [k for k in other.outputs if receipt.outputs[k] == other.outputs[k]]
        assert set(other.outputs) - set(same) <= {"samples"}
        if receipt.key == other.key:  # a run with the list can be based on it
            assert len(same) == len(other.outputs)


#: Steps that remove, edit and score; the sample crawl has exact and near duplicates.
CRAWL = (
    {"url_filter": {}},
    {"extract": {}},
    {"gopher_quality": {}},
    {"c4": {"terminal_punctuation": False}},
    {"exact_dedup": {}},
    {"minhash_dedup": {}},
    {"pii": {}},
)
WARC = {"input": {"kind": "warc", "split": 1_000_000}}


@pytest.fixture(scope="module")
def crawl(sample_crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return done(sample_crawl, tmp_path_factory.mktemp("crawl") / "old", *CRAWL, **WARC)


@pytest.fixture(scope="module")
def chosen(crawl: Path) -> Listed:
    """A survivor of each dedup, a document of each fate, and one by its URL."""
    known = rows(crawl, 3)
    ids = {}
    for row in known:
        for step in ("exact_dedup", "minhash_dedup"):
            if row[f"{step}.survivor"]:
                ids[step] = row[f"{step}.survivor"]
        ids[row["reason"]] = row["id"]
    for row in rows(crawl):
        ids[row["reached"], row["reason"]] = row["id"]
    [url] = [row["url"] for row in known if row["decision"] == "kept"][7:8]
    return Listed(frozenset(ids.values()), frozenset([url.replace("https", "http") + "#top"]))


@pytest.fixture(scope="module")
def less(crawl: Path, chosen: Listed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("less") / "new"
    before = tree(crawl)
    assert takedown_run(crawl, chosen, path)["not_found"] == []
    assert tree(crawl) == before
    return path


def strings(value: Any) -> Iterator[str]:
    """All strings in the cells of a table, in an array, in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings(list(value.items()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings(item)


def everything(path: Path) -> bytes:
    """All that the files of a run say, decompressed."""
    parts = []
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            found = "\0".join(strings([table.schema.to_string(), table.to_pylist()])).encode()
        elif file.suffix == ".json":
            found = "\0".join(strings(json.loads(file.read_bytes()))).encode()
        else:
            found = file.read_bytes()
        parts += [str(file).encode(), found]
    return b"\0".join(parts)


def pieces(texts: Iterable[str | None], size: int = 30) -> set[bytes]:
    found = set()
    for text in texts:
        data = (text or "").encode()
        found.update(data[i : i + size] for i in range(len(data) - size + 1))
    return found


def test_nothing_of_a_document_is_left_in_any_file(crawl: Path, less: Path, chosen: Listed) -> None:
    """Neither its id (as text or in bytes) nor its URL, nor 30 bytes of it that are its alone."""
    texts = [pq.read_table(p) for p in crawl.glob("segments/0-*/text/*")]
    table = pa.concat_tables(texts)
    gone = mask_of(chosen, table)
    originals = [r for r in rows(crawl) if chosen.holds(r["id"], r["url"])]
    own = pieces(table.filter(pa.array(gone))["text"].to_pylist())
    own -= pieces(table.filter(pa.array(~gone))["text"].to_pylist())
    assert len(own) > 1000 and len(originals) > 10
    said, all_of_it = everything(less), everything(crawl)
    names = [row["id"] for row in originals]
    kept = {row["url"] for row in rows(less)}
    places = [f"\0{row['url']}\0" for row in originals if row["url"] not in kept]
    numbers = [np.array([int(n[:16], 16), int(n[16:], 16)], np.uint64).tobytes() for n in names]
    secrets = [*(text.encode() for text in [*names, *places]), *numbers]
    assert sum(secret in all_of_it for secret in secrets) > len(names) + len(places)
    assert not [secret for secret in secrets if secret in said]
    assert not any(said[i : i + 30] in own for i in range(len(said)))


def test_the_rest_is_whole_and_comes_out_again(less: Path, crawl: Path, chosen: Listed) -> None:
    """Replayed from the archive, bytes of payloads included; the books balance."""
    plan = open_plan(less)
    assert verify.check(plan, replay=6)["problems"] == []
    now, before = (json.loads((p / "stats.json").read_bytes())["reader"] for p in (less, crawl))
    assert before["documents"] - now["documents"] == now["skipped"]["takedown"] > 10
    assert before["records"] == now["records"]
    assert whatif.simulate(plan, ["gopher_quality.min_words=20"], 3)
    assert pairs.largest(plan, None, None, 5)
    assert all(trace.document(plan, name) == [] for name in chosen.ids)


def test_a_copy_of_a_document_that_went_stays_out_and_is_named(
    crawl: Path, chosen: Listed, tmp_path: Path
) -> None:
    survivor, copy = next(
        (row["minhash_dedup.survivor"], row["id"])
        for row in rows(crawl, 3)
        if row["minhash_dedup.survivor"]
    )
    found = takedown_run(crawl, Listed(frozenset([survivor])), tmp_path / "a")
    assert copy in {near["id"] for near in found["near_copies"]}
    assert copy not in documents(tmp_path / "a")["id"].to_pylist()
    [entry] = trace.document(open_plan(tmp_path / "a"), copy)
    assert entry["duplicate_of"]["outcome"] == "taken down"
    # And the other way round: what survived it is still there, and is said to be.
    found = takedown_run(crawl, Listed(frozenset([copy])), tmp_path / "b")
    [near] = [near for near in found["near_copies"] if near["id"] == survivor]
    assert near["outcome"] == "kept" and near["url"]
    assert survivor in documents(tmp_path / "b")["id"].to_pylist()


def test_what_a_kill_has_left_does_no_harm(
    crawl: Path, less: Path, chosen: Listed, tmp_path: Path
) -> None:
    left = tmp_path / ".new.takedown"
    shutil.copytree(less, left)
    for number, path in enumerate(sorted(p for p in left.rglob("*") if p.is_file())):
        [path.unlink, lambda path=path: path.write_bytes(b"half"), lambda: None][number % 3]()
    (left / "segments" / ".x.parquet.0123456789ab.tmp").write_bytes(b"")
    takedown_run(crawl, chosen, tmp_path / "new")
    assert tree(tmp_path / "new") == tree(less) and not left.exists()


def test_without_copies_it_is_the_run_that_had_the_list_from_the_start(
    sample_crawl: Path, crawl: Path, tmp_path: Path
) -> None:
    """All that it has, but for samples, which have fewer. And that run need not read again."""
    known = rows(crawl, 3)
    tied = {row[f"{step}.survivor"] for row in known for step in ("exact_dedup", "minhash_dedup")}
    alone = [r for r in known if r["decision"] == "kept" and r["id"] not in tied][3:30:6]
    path, new = tmp_path / "list", tmp_path / "new"
    path.write_text("\n".join(row["url"] for row in alone))
    assert takedown_run(crawl, read_list(path), new)["near_copies"] == []
    wanted = recipe(*CRAWL, **WARC, failure_ceiling=1, takedown=str(path))
    more: dict[str, Any] = {"inputs": [str(sample_crawl)], "workers": 1}
    scratch = run(wanted, output=tmp_path / "scratch", **more).path
    assert (new / "stats.json").read_bytes() == (scratch / "stats.json").read_bytes()
    plan, compared = open_plan(scratch), 0
    for segment in plan.segments:
        for receipt in stats.receipts(plan, segment):
            other = Receipt.load(open_plan(new).receipt_path(segment, receipt.task))
            assert other is not None and other.counts == receipt.counts
            for name, output in receipt.outputs.items():
                if (new / output.path).exists() and name != "samples":
                    assert other.outputs[name] == output
                    compared += 1
    assert compared > 15
    rebuilt = run(wanted, output=tmp_path / "rebuilt", base=new, **more).path
    assert documents(rebuilt).equals(documents(scratch))
    assert any("from" in receipt.envelope for receipt in receipts(rebuilt).values())
    with pytest.raises(RecipeError, match="holds another run"):
        run(wanted, output=new, **more)


@pytest.mark.parametrize("store", ["all", "kept"])
def test_every_document_of_a_file_can_go(inputs: Path, tmp_path: Path, store: str) -> None:
    """Also where the texts of dropped documents are not stored."""
    old = done(inputs, tmp_path / "old", store=store)
    unit = [row["id"] for row in rows(old) if row["unit"] == 1]
    others = [row["id"] for row in rows(old) if row["unit"] == 2][:30]
    found = takedown_run(old, Listed(frozenset([*unit, *others])), tmp_path / "new")
    assert found["documents"] == len(unit) + len(others)
    assert verify.check(open_plan(tmp_path / "new"), replay=8)["problems"] == []
    assert {row["unit"] for row in rows(tmp_path / "new")} == {0, 2}


def test_a_new_run_needs_neither_the_old_one_nor_its_base(inputs: Path, tmp_path: Path) -> None:
    base = done(inputs, tmp_path / "base")
    wanted = recipe(*STAGES[:-1], failure_ceiling=1)
    old = run(wanted, inputs=[str(inputs)], output=tmp_path / "old", base=base, workers=1).path
    gone = rows(old)[5]["id"]
    takedown_run(old, Listed(frozenset([gone])), tmp_path / "new")
    again = rows(old)[7]["id"]
    for path in (base, old):
        shutil.rmtree(path)
    takedown_run(tmp_path / "new", Listed(frozenset([again])), tmp_path / "newer")
    shutil.rmtree(tmp_path / "new")
    assert verify.check(open_plan(tmp_path / "newer"), replay=8)["problems"] == []
    skipped = json.loads((tmp_path / "newer" / "stats.json").read_bytes())["reader"]["skipped"]
    assert skipped == {"takedown": 2}


def test_steps_that_rank_or_edit_keep_what_they_said_of_the_others(tmp_path: Path) -> None:
    texts = [
        page(i) + f"\na line that recurs {i % 3} times or more in all of this" for i in range(9)
    ]
    source = write_jsonl(tmp_path / "a.jsonl", [*texts, texts[0]])
    stages: Any = (
        "gopher_quality",
        {"line_dedup": {}},
        {"gopher_quality": {"as": "again"}},
        {"percentile": {"signal": "again.words", "best": "highest", "keep": 0.9, "by": "run"}},
    )
    old = done(source, tmp_path / "old", *stages)
    gone = rows(old)[4]["id"]
    takedown_run(old, Listed(frozenset([gone])), tmp_path / "new")
    assert verify.check(open_plan(tmp_path / "new"), replay=8)["problems"] == []
    for segment in open_plan(old).maps:
        left = [row for row in rows(old, segment.index) if row["id"] != gone]
        assert rows(tmp_path / "new", segment.index) == left


@pytest.mark.parametrize("store", ["all", "kept"])
def test_edits_and_dropped_documents_of_every_step_are_taken_out_of_the_books(
    tmp_path: Path, store: str
) -> None:
    """An edit that does nothing the second time, an item that was the whole of a document."""
    item = page(50).replace("\n", " ")
    (tmp_path / "items.jsonl").write_text(json.dumps({"q": item}) + "\n")
    texts = [item, *(f"{page(i)}\nMail to a{i}@b{i}.org, please." for i in range(9))]
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    steps: Any = ({"pii": {}}, {"decontaminate": {"sets": [str(tmp_path / "items.jsonl")]}})
    score = {"percentile": {"signal": "words.words", "best": "highest", "keep": 0.9, "by": "run"}}
    words = {"gopher_quality": {"as": "words"}}
    old = done(source, tmp_path / "old", *steps, words, score, store=store)
    known = [row["id"] for row in rows(old)]
    for name, gone in {"some": known[:4], "all": known}.items():
        takedown_run(old, Listed(frozenset(gone)), tmp_path / name)
        plan = open_plan(tmp_path / name)
        assert verify.check(plan, replay=8)["problems"] == []
        assert whatif.simulate(plan, ["words.min_words=20"], 3)


def test_the_command_names_what_it_did_not_find(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list"
    name = rows(finished)[0]["id"]
    path.write_text(f"{name}\n{'0' * 32}\n")
    arguments = ["takedown", str(path), str(finished), "--output", str(tmp_path / "new"), "--json"]
    assert main(arguments) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["found"] == {name: 1} and json.loads(out)["documents"] == 1
    assert err == f"curation: {'0' * 32}: the run has no such document\n"
    assert main(arguments) == 1  # the output is there
    path.write_text("nonsense\n")
    assert main(arguments) == 2
    assert main([*arguments[:2], str(tmp_path), *arguments[3:]]) == 2
    assert capsys.readouterr().err.count("\n") == 3


def test_a_damaged_file_is_named_and_nothing_is_made(finished: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(finished, old)
    [path] = (old / "segments").glob("0-*/text/y*")
    path.write_bytes(b"PAR1")
    listed = Listed(frozenset(row["id"] for row in rows(old)[:100]))
    with pytest.raises(DamagedFile, match=path.name):
        takedown_run(old, listed, tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


def test_texts_that_extraction_only_cleans(tmp_path: Path) -> None:
    texts = [page(i) + "\x00" * (i % 3) for i in range(9)]
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    old = done(source, tmp_path / "old", "extract", "gopher_quality", {"pii": {}})
    for number in (3, 4):  # the second was cleaned
        gone = Listed(frozenset([rows(old)[number]["id"]]))
        takedown_run(old, gone, tmp_path / str(number))
        assert verify.check(open_plan(tmp_path / str(number)), replay=4)["problems"] == []


def test_pages_of_text_files(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("\n\n".join(page(i).replace("\n", " ") for i in range(6)))
    more = {"input": {"kind": "text", "per": "paragraph"}}
    old = done(source, tmp_path / "old", "extract", "gopher_quality", **more)
    takedown_run(old, Listed(frozenset([rows(old)[2]["id"]])), tmp_path / "new")
    assert verify.check(open_plan(tmp_path / "new"), replay=4)["problems"] == []


@pytest.mark.parametrize("share", [10, 1])
def test_the_archive_may_be_gone(sample_crawl: Path, tmp_path: Path, share: int) -> None:
    """Sizes of payloads are not known then; the books balance, also where nothing is left."""
    archive = tmp_path / "copy.warc.gz"
    shutil.copy(sample_crawl, archive)
    old = done(archive, tmp_path / "old", *CRAWL[:4], input={"kind": "warc"})
    archive.unlink()
    listed = Listed(frozenset(row["id"] for row in rows(old)[::share]))
    takedown_run(old, listed, tmp_path / "new")
    assert verify.check(open_plan(tmp_path / "new"))["problems"] == []
    left = json.loads((tmp_path / "new" / "stats.json").read_bytes())
    amounts = [stage[name] for stage in left["stages"] for name in ("in", "kept", "failed")]
    assert all(amount["bytes"] >= 0 and (amount["words"] or 0) >= 0 for amount in amounts)
    assert share > 1 or not any(amount["bytes"] for amount in amounts)


def test_stages_that_edit_otherwise_by_now_stop_nobody(
    inputs: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an edit took is not known then; what was decided is."""
    monkeypatch.setattr("judges.Cutter.edit", lambda self, docs: Edited(docs["text"], {}))
    known = rows(finished)
    takedown_run(finished, Listed(frozenset(row["id"] for row in known[::4])), tmp_path / "new")
    monkeypatch.undo()
    assert rows(tmp_path / "new") == [row for i, row in enumerate(known) if i % 4]
    assert verify.check(open_plan(tmp_path / "new"), replay=8)["problems"] == []
