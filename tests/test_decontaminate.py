"""decontaminate: what goes against plain counting, what is said of it, sets that cannot be read."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exchange import decide
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import contents, page, recipe, write_jsonl

from curation import run
from curation.cli import main
from curation.document import Documents
from curation.engine.plan import open_plan
from curation.engine.recipe import RecipeError
from curation.filters.decontaminate import Decontaminate
from curation.filters.evaluation import Item, read
from curation.inspect import contamination, injection
from curation.stage import Edits
from curation.text.ngrams import reference
from curation.text.spans import delete_spans

patient = settings(deadline=None, max_examples=100)


def write_set(path: Path, *items: Any) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def batch(texts: Sequence[str]) -> Documents:
    return Documents(
        {
            "row": pa.array(range(len(texts)), pa.int64()),
            "text": pa.array(texts, pa.large_string()),
        }
    )


def words(text: str) -> list[str]:
    return [word for word, *_ in reference.words(text)]


def left(docs: Documents, edits: Edits) -> list[str | None]:
    """The texts after the edits; None for one that is dropped."""
    texts = delete_spans(docs.view, edits.rows, edits.starts, edits.stops).to_pylist()
    for row, gone in zip(edits.noted.tolist(), said(edits, "contaminated"), strict=True):
        texts[row] = None if gone else texts[row]
    return texts  # type: ignore[no-any-return]


def said(edits: Edits, name: str) -> list[Any]:
    return pa.array(edits.evidence[name]).to_pylist()  # type: ignore[no-any-return]


def only(step: Decontaminate, *texts: str) -> tuple[Documents, Edits]:
    docs = batch(texts)
    [edits] = decide(step, [docs])
    assert isinstance(edits, Edits)
    return docs, edits


ITEM = "One fish two fish red fish blue fish black fish blue fish old fish new fish"  # 16 words


def numbered(count: int, first: int = 0) -> str:
    """Words that are in no set, of six characters with the space after each."""
    return "".join(f"w{i:04} " for i in range(first, first + count))


# What goes

tokens = st.lists(st.sampled_from(["a", "B", "b,", "c", "漢", "--", "d", "e"]), max_size=14)
passages = tokens.map(" ".join)


@patient
@given(
    st.lists(st.lists(passages, max_size=4), min_size=1, max_size=3),
    st.lists(st.lists(passages, min_size=1, max_size=2), min_size=1, max_size=3),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([1, 2]),
)
def test_the_documents_that_go_are_those_of_plain_counting(
    tmp_path_factory: pytest.TempPathFactory,
    units: list[list[str]],
    items: list[list[str]],
    most: int | None,
    least: int,
) -> None:
    """By brute force: n-grams of 3 words, whole passages of 2, those of too many documents left
    out; for any division of the work."""
    items = [["z y x"], *items]
    path = write_set(tmp_path_factory.mktemp("set") / "e.jsonl", *({"q": item} for item in items))
    step = Decontaminate(
        sets=(str(path),), ngram=3, min_item_words=2, max_documents=most, action="drop",
        min_ngrams=least,
    )  # fmt: skip
    sought: dict[tuple[str, ...], set[str]] = {}
    for line, strings in enumerate(items, 1):
        for found in map(words, strings):
            size = 3 if len(found) >= 3 else len(found)
            for i in range(len(found) - size + 1 if size >= 2 else 0):
                sought.setdefault(tuple(found[i : i + size]), set()).add(str(line))

    def grams(text: str) -> set[tuple[str, ...]]:
        found = words(text)
        every = {tuple(found[i : i + n]) for n in (2, 3) for i in range(len(found) - n + 1)}
        return every & set(sought)

    counts = Counter(gram for unit in units for text in unit for gram in grams(text))
    common = {gram for gram, count in counts.items() if most is not None and count > most}
    decided = decide(step, [batch(unit) for unit in units], group=2)
    for unit, edits in zip(units, decided, strict=True):
        assert isinstance(edits, Edits)
        own = {row: grams(text) - common for row, text in enumerate(unit)}
        wanted = {row: found for row, found in own.items() if len(found) >= least}
        assert edits.noted.tolist() == sorted(wanted)
        assert all(said(edits, "contaminated"))
        for row, count, matches in zip(
            edits.noted.tolist(), said(edits, "ngrams"), said(edits, "matches"), strict=True
        ):
            assert count == len(wanted[row])
            named = {name for gram in wanted[row] for name in sought[gram]}
            assert {match[1] for match in json.loads(matches)} == named


def pieces_of(text: str, grams: set[tuple[str, ...]], context: int) -> list[str]:
    """What lies between the cuts, character by character."""
    gone = [False] * len(text)
    found = [(word, *(len(text.encode()[:at].decode()) for at in place)) for word, *place in
             reference.words(text)]  # fmt: skip
    for i in range(len(found) - 1):
        if (found[i][0], found[i + 1][0]) in grams:
            first = left = max(found[i][1] - context, 0)
            while left and not text[left - 1].isspace():
                left -= 1
            last = right = min(found[i + 1][2] + context, len(text))
            while right < len(text) and not text[right].isspace():
                right += 1
            left, right = (
                left if first - left <= context else first,
                right if right - last <= context else last,
            )
            gone[left:right] = [True] * (right - left)
    runs = groupby(zip(text, gone, strict=True), key=lambda one: one[1])
    return ["".join(character for character, _ in run) for cut, run in runs if not cut]


@patient
@given(st.lists(st.sampled_from(["a", "b", "x漢", "zz", "long", "é, ", "\n\n"]), max_size=30))
def test_cuts_leave_what_cutting_by_characters_leaves(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    text = " ".join(parts)
    path = write_set(tmp_path_factory.mktemp("set") / "e.jsonl", {"q": "a b"}, {"q": "b a"})
    step = Decontaminate(
        sets=(str(path),), ngram=2, min_item_words=2, context=3, min_piece=4, max_pieces=3,
    )  # fmt: skip
    pieces = pieces_of(text, {("a", "b"), ("b", "a")}, 3)
    kept = [piece for piece in pieces if len(piece) >= 4]
    docs, edits = only(step, text)
    if "".join(pieces) == text:
        assert not len(edits.noted)
        return
    assert said(edits, "pieces") == [len(pieces)]
    assert left(docs, edits) == ["".join(kept) if kept and len(pieces) <= 3 else None]


def test_a_cut_takes_200_characters_on_each_side_to_the_next_white_space(tmp_path: Path) -> None:
    step = Decontaminate(sets=(str(write_set(tmp_path / "e.jsonl", {"q": ITEM})),))
    text = numbered(100) + ITEM.upper() + " " + numbered(100, 100)
    docs, edits = only(step, text, numbered(100))
    # 600 characters before: 200 go, to the border of a word; after it, the space and 200 more.
    assert left(docs, edits) == [numbered(66) + " " + numbered(66, 134), numbered(100)]
    assert said(edits, "pieces") == [2]
    [[name, item, start, stop, ngrams]] = json.loads(said(edits, "matches")[0])
    assert (name, item, ngrams) == ("e", "1", 4)
    assert text.encode()[start:stop].decode() == ITEM.upper()


def test_a_cut_never_divides_a_character(tmp_path: Path) -> None:
    step = Decontaminate(sets=(str(write_set(tmp_path / "e.jsonl", {"q": ITEM})),))
    text = "é漢👩" * 300 + " " + ITEM + " " + "👩漢é" * 300  # no white space within 200 more
    docs, edits = only(step, text)
    assert left(docs, edits) == [("é漢👩" * 300)[:701] + ("👩漢é" * 300)[199:]]


def test_short_pieces_go_and_a_document_without_others_is_dropped(tmp_path: Path) -> None:
    step = Decontaminate(sets=(str(write_set(tmp_path / "e.jsonl", {"q": ITEM})),))
    short = numbered(60) + ITEM  # 360 characters, of which 160 would stay
    docs, edits = only(step, short, short + " " + numbered(100))
    assert left(docs, edits) == [None, " " + numbered(66, 34)]
    assert said(edits, "contaminated") == [True, False]


def test_a_document_in_more_than_ten_pieces_is_dropped(tmp_path: Path) -> None:
    step = Decontaminate(sets=(str(write_set(tmp_path / "e.jsonl", {"q": ITEM})),))
    ten = f"{ITEM} ".join(numbered(100) for _ in range(10))
    eleven = f"{ITEM} ".join(numbered(100) for _ in range(11))
    _, edits = only(step, ten, eleven)
    assert said(edits, "pieces") == [10, 11]
    assert said(edits, "contaminated") == [False, True]


def test_ngrams_of_too_many_documents_are_ignored(tmp_path: Path) -> None:
    step = Decontaminate(
        sets=(str(write_set(tmp_path / "e.jsonl", {"q": ITEM})),), max_documents=2, action="drop"
    )
    assert len(only(step, ITEM, ITEM)[1].noted) == 2
    assert len(only(step, ITEM, ITEM, ITEM)[1].noted) == 0
    assert len(only(step, f"{ITEM} {ITEM} {ITEM}")[1].noted) == 1  # documents count, not places


def test_short_passages_are_found_whole_and_shorter_ones_not_at_all(tmp_path: Path) -> None:
    eight, seven = "eight words are just enough to be found", "seven words are too few for that"
    path = write_set(tmp_path / "e.jsonl", {"id": "a", "q": eight}, {"id": "b", "q": seven})
    step = Decontaminate(sets=(str(path),), action="drop")
    _, edits = only(step, f"- {eight}!", " ".join(eight.split()[:-1]), seven)
    assert (edits.noted.tolist(), said(edits, "item")) == ([0], ["a"])
    assert step.load().searchable.tolist() == [True, False]


def test_what_many_items_share_is_attributed_to_the_first_of_them(tmp_path: Path) -> None:
    items = [{"q": ITEM} for _ in range(40)]
    step = Decontaminate(sets=(str(write_set(tmp_path / "e.jsonl", *items)),))
    _, edits = only(step, ITEM)
    [found] = map(json.loads, said(edits, "matches"))
    assert [match[1] for match in found] == [str(line) for line in range(1, 17)]


def test_texts_without_words_and_words_without_end_do_no_harm(tmp_path: Path) -> None:
    step = Decontaminate(sets=(str(write_set(tmp_path / "e.jsonl", {"q": ITEM})),))
    docs, edits = only(step, "", " \n", "-" * 5_000, "x" * 100_000, "x" * 100_000 + " " + ITEM)
    assert left(docs, edits)[:4] == docs.text.to_pylist()[:4]
    assert left(docs, edits)[4] == "x" * (100_000 - 199)


# What counts as an item


def test_items_are_read_with_their_strings(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl.gz"
    lines = [
        {"id": "q-1", "question": "one", "choices": ["two", {"text": "three"}, 4, None]},
        {"question": "four\ud800", "id": None},
    ]
    with gzip.open(path, "wt") as file:
        file.write("\n".join([json.dumps(lines[0]), "", json.dumps(lines[1])]))
    assert list(read("e", path, None, "id")) == [
        Item("e", "q-1", ("one", "two", "three")),
        Item("e", "3", ("four?",)),
    ]
    assert [item.passages for item in read("e", path, ["choices"], "id")] == [("two", "three"), ()]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"{}\n[1]\n", ":2: not an object"),
        (b'{"q": \n', ":1: not JSON"),
        (b'{"q":' * 100_000, ":1: not JSON"),
        (b'{"q": "\xff"}\n', ":1: not UTF-8"),
        (b"", "no items"),
        (b'{"q": "too short"}\n', "none of its 1 items has 8 words"),
    ],
)
def test_a_set_that_is_none_stops_before_any_work(
    tmp_path: Path, content: bytes, wanted: str
) -> None:
    (tmp_path / "e.jsonl").write_bytes(content)
    inputs = [write_jsonl(tmp_path / "a.jsonl", ["x"])]
    with pytest.raises(RecipeError, match=wanted) as error:
        stage = {"decontaminate": {"sets": [str(tmp_path / "e.jsonl")]}}
        run(recipe(stage), inputs=inputs, output=tmp_path / "r")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "r").exists()


def test_names_of_items_are_text(tmp_path: Path) -> None:
    """A lone surrogate, which JSON can have and UTF-8 cannot."""
    path = tmp_path / "e.jsonl"
    path.write_bytes(b'{"id": "\\ud83d", "q": "a"}\n')
    assert list(read("e", path, None, "id")) == [Item("e", "?", ("a",))]


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"q": ITEM}).encode())[:-12])
    with pytest.raises(ValueError, match=r"e\.jsonl\.gz: damaged"):
        list(read("e", path, None, "id"))


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({"sets": []}, "none are given"),
        ({"sets": ["x"], "min_item_words": 14}, "min_item_words: above ngram"),
        ({"sets": ["x"], "fields": []}, "none are named"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        Decontaminate(**parameters)


def test_sets_are_called_after_their_files_or_by_name(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "a.json"):
        write_set(tmp_path / name, {"q": ITEM})
    glob = str(tmp_path / "*.jsonl")
    assert list(Decontaminate(sets=(glob,)).files()) == ["a", "b"]
    assert list(Decontaminate(sets={"x": str(tmp_path / "a.jsonl")}).files()) == ["x"]
    with pytest.raises(ValueError, match="two are called 'a'"):
        Decontaminate(sets=(glob, str(tmp_path / "a.json"))).files()
    with pytest.raises(ValueError, match="no file is"):
        Decontaminate(sets=(str(tmp_path / "*.none"),)).files()


# In a run


def contaminated(folder: Path) -> tuple[list[Path], dict[str, Any]]:
    """Two files of pages, of which some have an item; and the stage."""
    items = [{"id": f"i{k}", "q": " ".join(f"fact{k}x{j}" for j in range(20))} for k in range(3)]
    write_set(folder / "facts.jsonl", *items)
    paths = []
    for name in range(2):
        texts = [page(name * 10 + k) for k in range(6)]
        texts[2] += "\n" + items[name]["q"].upper() + "\n" + page(name * 10 + 7)
        texts[4] = items[2]["q"]
        paths.append(write_jsonl(folder / f"part{name}.jsonl", texts))
    return paths, {"decontaminate": {"sets": {"facts": str(folder / "facts.jsonl")}}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contaminated")
    paths, stage = contaminated(folder)
    return run(recipe(stage), inputs=paths, output=folder / "r", workers=1).path


def test_a_run_books_cuts_as_edits_and_drops_as_contaminated(finished: Path) -> None:
    [stage] = json.loads((finished / "stats.json").read_text())["stages"]
    assert stage["in"]["documents"] == 12
    assert {reason: n["documents"] for reason, n in stage["dropped"].items()} == {"contaminated": 2}
    assert stage["edited"]["documents"] == 2
    texts = pq.read_table(finished / "documents")["text"].to_pylist()
    assert len(texts) == 10
    assert not any("fact" in text.lower() for text in texts)


def test_the_verb_tells_items_documents_and_words(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["contamination", str(finished), "--json", "-n", "9"]) == 0
    [stage] = json.loads(capsys.readouterr().out)
    assert (stage["documents"], stage["dropped"], stage["suppressed"]) == (4, 2, 0)
    [found] = stage["sets"]
    assert (found["items"], found["searchable"], found["found"]) == (3, 3, 3)
    assert found["removed_bytes"] == stage["removed_bytes"] > 0
    named = {example["item"]: example["words"].lower().split()[0] for example in stage["examples"]}
    assert named == {f"i{k}": f"fact{k}x0" for k in range(3)}
    assert main(["contamination", str(finished)]) == 0
    assert "facts" in capsys.readouterr().out


def test_without_the_sets_the_verb_tells_what_the_run_knows(finished: Path) -> None:
    plan = open_plan(finished)
    path = finished.parent / "facts.jsonl"
    content = path.read_bytes()
    try:
        path.write_bytes(content + b"\n")
        [stage] = contamination.collect(plan, 0)
        assert "is not the file that the run had" in stage["note"]
        assert (stage["sets"][0]["items"], stage["sets"][0]["found"]) == (None, 3)
        with pytest.raises(RecipeError, match="--recall: set facts"):
            injection.measure(plan, 3)
    finally:
        path.write_bytes(content)


def test_planted_items_are_found_and_the_run_stays_as_it_is(finished: Path) -> None:
    before = contents(finished)
    [measured] = injection.measure(open_plan(finished), 9)
    [row] = measured["recall"]
    assert (row["set"], row["words"], row["items"]) == ("facts", "13-25", 3)
    assert row["found"] == {
        **dict.fromkeys(("whole", "case", "punctuation", "white_space"), 3),
        "words_missing": 0,
    }
    assert contents(finished) == before


def test_a_run_without_the_stage_has_nothing_to_tell(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [page(1)])
    plan = open_plan(run(recipe({"basic": {}}), inputs=[path], output=tmp_path / "r").path)
    with pytest.raises(RecipeError, match="no stage that is decontaminate"):
        contamination.collect(plan, 1)


def test_real_passages_planted_whole_are_all_found(shared_data: Path) -> None:
    """3,092 passages of books, each in a page of its own."""
    path = shared_data / "mixture" / "lambada-books" / "docs.jsonl.gz"
    step = Decontaminate(sets={"books": str(path)}, fields=("text",), max_documents=None)
    sets = step.load()
    items = list(zip(step.items(), sets.words.tolist(), strict=True))
    pages = [page(k) for k in range(50)]
    assert not len(step.prepare(batch(pages)))
    found = injection.recall(step, sets, items[::5], pages, np.empty(0, np.uint32))
    for row in found["recall"]:
        if int(row["words"].rstrip("+").split("-")[0]) >= 13:
            names = ("whole", "case", "punctuation", "white_space")
            assert {row["found"][name] for name in names} == {row["items"]}
