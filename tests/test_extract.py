"""The stage `extract`, its engines and its limits."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from curation.document import Documents
from curation.extract import engines
from curation.extract.decode import decode, sanitise
from curation.extract.limits import exceeded, most_open, nests_deeper
from curation.extract.stage import Extract, sanitise_texts

PARAGRAPH = "The mill stands by the river, and its wheel has turned for three hundred years. "


def article(title: str, paragraphs: int = 5) -> str:
    body = "".join(f"<p>{title} {number}. {PARAGRAPH * 3}</p>" for number in range(paragraphs))
    return (
        f"<html><head><title>{title}</title></head><body><nav><a href=/>Home</a></nav>"
        f"<main><article><h1>{title}</h1>{body}</article></main><footer>(c)</footer></body></html>"
    )


def documents(
    pages: list[bytes | None],
    texts: list[str | None] | None = None,
    charset: str | None = None,
    media_type: str = "text/html",
) -> Documents:
    count = len(pages)
    return Documents(
        {
            "content": pa.array(pages, pa.large_binary()),
            "charset": pa.array([charset] * count, pa.string()),
            "media_type": pa.array([media_type] * count, pa.string()),
            "text": pa.array(texts or [None] * count, pa.large_string()),
        }
    )


# --- engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resiliparse", "trafilatura", "blocks"])
def test_engines_keep_the_content(name: str) -> None:
    text = engines.load(name)(article("Watermill"))
    assert text.count("three hundred years") == 15
    assert "Home" not in text


@pytest.mark.parametrize("name", ["resiliparse", "trafilatura", "blocks"])
def test_engines_have_no_memory(name: str) -> None:
    """adbar/trafilatura#17: the fourth extraction of a page used to be shorter."""
    engine = engines.load(name)
    pages = [article(f"Page {index % 7}") for index in range(28)]
    expected = [engine(page) for page in pages]
    assert len(set(expected)) == 7
    order = list(range(len(pages)))
    random.Random(5).shuffle(order)
    assert [engine(pages[index]) for index in order] == [expected[index] for index in order]


@pytest.mark.parametrize("name", ["resiliparse", "trafilatura", "blocks"])
def test_broken_pages_fail_nobody(name: Any) -> None:
    """chatnoir-eu/chatnoir-resiliparse#24: newlines before the doctype, tables that never close."""
    broken = "\n\n\n<!DOCTYPE html><table><tr><table><td></p></table><td><table></tr>text" * 50
    pages: list[bytes | None] = [b"", b" \n", b"<", b"<!--", b"</p>", b"\0", broken.encode()]
    edited = Extract(engine=name).edit(documents([*pages, article("After").encode()]))
    assert edited.failures == {}
    assert "three hundred years" in edited.text[len(pages)].as_py()


# --- limits ---------------------------------------------------------------------------------------


def test_limits() -> None:
    assert exceeded("<p>x" * 50, max_tags=49, max_depth=10) == "too_many_tags"
    assert exceeded("<p>x" * 50, max_tags=50, max_depth=10) is None  # a <p> closes the last
    assert exceeded("<br>" * 50, max_tags=50, max_depth=10) is None
    assert exceeded("<div>" * 50, max_tags=50, max_depth=40) == "too_deep"
    assert exceeded("<div>" * 50, max_tags=50, max_depth=52) is None
    assert exceeded("<div></div>" * 50, max_tags=100, max_depth=10) is None
    assert nests_deeper("<div>" * 50, 51)
    assert not nests_deeper("<div>" * 50, 52)  # <html> and <body> count


def test_a_hundred_thousand_nested_elements_are_too_deep_at_once() -> None:
    docs = documents([b"<div>" * 100_000 + b"text", article("After").encode()])
    edited = Extract(cpu_seconds=2).edit(docs)
    assert edited.failures == {0: "too_deep"}
    assert "three hundred years" in edited.text[1].as_py()


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(inner, max_size=4).map("".join)
    return parts.map(lambda inside: f"<div>{inside}<br/><i>y</i></div>")


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.just("x"), nested, max_leaves=30))
def test_the_bound_of_depth_is_one(page: str) -> None:
    assert not nests_deeper(page, most_open(page.encode()) + 2)


def test_counting_in_bytes_is_counting_in_text() -> None:
    for encoding in ("utf-8", "utf-16-le", "shift_jis", "iso-2022-jp"):
        page = "<div>日本<b>語</b>" * 60
        for limits in ((100, 10), (1000, 10), (1000, 119), (1000, 200)):
            in_bytes = exceeded(page, *limits, page.encode(encoding), encoding)
            assert in_bytes == exceeded(page, *limits), (encoding, limits)


# --- the stage ------------------------------------------------------------------------------------


def test_columns_of_a_mixed_batch() -> None:
    docs = documents(
        [article("A").encode(), None, "<p>é".encode("latin-1"), None, b"", article("B").encode()],
        [None, "as\r\nis\x00", None, "clean", None, None],
        charset="latin1",
    )
    edited = Extract().edit(docs)
    assert edited.text.type == pa.large_string()
    texts = edited.text.to_pylist()
    assert texts[0].startswith("A\n") and texts[5].startswith("B\n")
    assert texts[1:5] == ["as\nis", "é", "clean", ""]
    assert {name: column.to_pylist() for name, column in edited.signals.items()} == {
        "encoding": ["windows-1252", None, "windows-1252", None, "windows-1252", "windows-1252"],
        "encoding_source": ["http", None, "http", None, "http", "http"],
        "replaced": [0, None, 0, None, 0, 0],
        "sanitised": [0, 3, 0, 0, 0, 0],
    }
    assert edited.failures == {}


def test_batches_of_one_kind_and_of_none() -> None:
    stage = Extract()
    assert stage.edit(documents([None, None], ["a", "b\x07"])).text.to_pylist() == ["a", "b"]
    only_text = Documents({"text": pa.array(["a"], pa.large_string())})
    assert stage.edit(only_text).text.to_pylist() == ["a"]
    assert stage.edit(documents([])).text.to_pylist() == []


def test_failures() -> None:
    docs = documents([b"x" * 101, b"<p>" * 33, b"<i>" * 21, b"<p>fine"])
    edited = Extract(max_bytes=100, max_tags=32, max_depth=20).edit(docs)
    assert edited.failures == {0: "too_large", 1: "too_many_tags", 2: "too_deep"}
    assert edited.text.to_pylist() == [None, None, None, "fine"]
    broken = documents([b"\xff\xfe\x00\xd8\x00\xd8" * 9])
    assert Extract().edit(broken).failures == {0: "undecodable"}
    assert Extract(max_replaced=1).edit(broken).failures == {}


def test_plain_text_passes_through_decoded() -> None:
    text = "  <b>not markup</b>\n\n  kept as it is é "
    docs = documents([text.encode("latin-1")], charset="iso-8859-1", media_type="text/plain")
    assert Extract().edit(docs).text.to_pylist() == [text]


def test_the_same_in_any_batch_and_order() -> None:
    pages: list[bytes | None] = [article(f"Page {index}", index).encode() for index in range(150)]
    stage = Extract()
    whole = stage.edit(documents(pages)).text.to_pylist()
    assert whole[::-1] == stage.edit(documents(pages[::-1])).text.to_pylist()
    batches = [documents(pages[start : start + 20]) for start in range(0, 150, 20)]
    parts = [edited.text.to_pylist() for edited in stage.edit_many(batches)]
    assert [text for part in parts for text in part] == whole


def test_a_cut_page_ends_without_debris() -> None:
    """commoncrawl/nutch#10: cut inside a tag, and inside a character."""
    whole = "<p>Der Fluß fließt, und das Rad dreht sich. ".encode()
    for cut in (whole + b"<a hre", whole + "é".encode()[:1]):
        edited = Extract(engine="resiliparse", main_content=False).edit(documents([cut]))
        assert edited.text.to_pylist() == ["Der Fluß fließt, und das Rad dreht sich."]


def test_parameters_of_the_other_engine_are_refused() -> None:
    with pytest.raises(ValidationError, match="alt_texts is a parameter of resiliparse, not of"):
        Extract(engine="trafilatura", alt_texts=True)
    with pytest.raises(ValidationError, match="favor_precision is a parameter of trafilatura"):
        Extract(favor_precision=False)
    with pytest.raises(ValidationError, match="comments is a parameter of blocks, not of resil"):
        Extract(engine="resiliparse", comments=True)


def test_depends_on_the_versions_of_its_libraries() -> None:
    assert set(Extract(engine="resiliparse").depends()) == {"resiliparse"}
    assert set(Extract().depends()) == {"selectolax", "characters", "model"}
    assert {"trafilatura", "lxml"} < set(Extract(engine="trafilatura").depends())


# --- texts that need no extraction ----------------------------------------------------------------


def test_a_clean_column_is_returned_as_it_is() -> None:
    texts = pa.array(["x", "a", "é中", None, ""], pa.large_string())[1:]
    cleaned, counts = sanitise_texts(texts)
    assert cleaned is texts
    assert counts.to_pylist() == [0, 0, None, 0]


def test_a_column_that_is_not_utf_8_becomes_so() -> None:
    raw = pa.array([b"ok", b"\xed\xa0\xbd lone", b"\xff bad", None], pa.large_binary())
    texts = pa.LargeStringArray.from_buffers(4, *raw.buffers()[1:], raw.buffers()[0])
    cleaned, counts = sanitise_texts(texts)
    cleaned.validate(full=True)
    assert cleaned.to_pylist() == ["ok", "\ufffd lone", "\ufffd bad", None]
    assert counts.to_pylist() == [0, 1, 1, None]


@given(st.lists(st.none() | st.text("a\r\n\x00\x85é¿\ufffd\uffff\U0001f600", max_size=8)))
def test_columns_are_cleaned_like_texts(texts: list[str | None]) -> None:
    cleaned, counts = sanitise_texts(pa.array(texts, pa.large_string()))
    expected = [(None, None) if text is None else sanitise(text) for text in texts]
    assert list(zip(cleaned.to_pylist(), counts.to_pylist(), strict=True)) == expected


# --- real pages -----------------------------------------------------------------------------------


@pytest.mark.real
def test_quality_on_labelled_pages(shared_data: Path) -> None:
    """F1 of resiliparse on the article-extraction-benchmark and trafilatura's evaluation set."""
    root = shared_data / "html_extraction"
    articles = json.loads((root / "article-extraction-benchmark/ground-truth.json").read_text())
    phrases = json.loads((root / "trafilatura-eval/evaldata.json").read_text())
    files = [root / f"article-extraction-benchmark/html/{key}.html.gz" for key in articles]
    files += [root / "trafilatura-eval/html" / item["file"] for item in phrases.values()]
    stage = Extract(engine="resiliparse")
    edited = stage.edit(documents([gzip.decompress(file.read_bytes()) for file in files]))
    assert edited.failures == {}
    texts = edited.text.to_pylist()

    scores = [
        overlap(shingles(item["articleBody"]), shingles(text))
        for item, text in zip(articles.values(), texts, strict=False)
    ]
    precision, recall = (
        sum(values) / len(values)
        for values in ([s for s in column if s is not None] for column in zip(*scores, strict=True))
    )
    assert f1(precision, recall) == pytest.approx(0.918, abs=0.005)

    hits = wanted = unwanted = 0
    for item, text in zip(phrases.values(), texts[len(articles) :], strict=True):
        flat = " ".join(text.split())
        hits += sum(" ".join(phrase.split()) in flat for phrase in item.get("with", []))
        wanted += len(item.get("with", []))
        unwanted += sum(" ".join(phrase.split()) in flat for phrase in item.get("without", []))
    assert f1(hits / (hits + unwanted), hits / wanted) == pytest.approx(0.855, abs=0.005)


def shingles(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    return Counter(zip(*(words[start:] for start in range(min(4, len(words)))), strict=False))


def overlap(
    want: Counter[tuple[str, ...]], got: Counter[tuple[str, ...]]
) -> tuple[float | None, float | None]:
    common = (want & got).total()
    return (
        common / got.total() if got else None,
        common / want.total() if want else None,
    )


def f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)


@pytest.mark.real
def test_real_pages_are_decoded_without_loss(shared_data: Path) -> None:
    pages = sorted((shared_data / "html_extraction").rglob("*.html.gz"))
    decoded = [decode(gzip.decompress(page.read_bytes())) for page in pages]
    assert len(decoded) > 700
    assert sum(page.replaced > 0 for page in decoded) <= len(decoded) // 50
