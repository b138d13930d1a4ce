"""Books as documents: Gutenberg's frame off, EPUB in the order of its spine, one book each."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from test_read_trees import run, tar_of, write_tree, zip_of

from curation.read.books import unframed, unwrapped

GUTENBERG = """\ufeffThe Project Gutenberg eBook of The Mill

Title: The Mill
Author: A. Miller
Release Date: March 1, 2004 [eBook #1234]
Language: German
Produced by Somebody

*** START OF THE PROJECT GUTENBERG EBOOK THE MILL ***

CHAPTER I

It was a mill,
and it stood.

*** END OF THE PROJECT GUTENBERG EBOOK THE MILL ***

Updated editions will replace the previous one.
"""


def books(path: Path, **options):
    return run(path, "books", **options)


def test_gutenbergs_frame_goes_and_what_it_says_stays(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "t", {"1234-0.txt": GUTENBERG.encode()})
    (found,), tally = books(tree)
    assert found.text == "CHAPTER I\n\nIt was a mill,\nand it stood."
    assert found.language == "de"
    assert found.metadata == {
        "path": "1234-0.txt",
        "title": "The Mill",
        "author": "A. Miller",
        "gutenberg": "1234",
    }
    assert not tally.skipped


@pytest.mark.parametrize(
    "text",
    [
        "a\n***START OF THE PROJECT GUTENBERG EBOOK X***\nbook\nEnd of Project Gutenberg's X\nb",
        "*** START OF THIS PROJECT GUTENBERG EBOOK A VERY\nLONG TITLE ***\nbook\n"
        "*** END OF THIS PROJECT GUTENBERG EBOOK X ***",
        "x\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\nbook\n"
        "End of The Project Gutenberg Etext of X",
        "\nbook\n",
    ],
)
def test_frames_of_all_times_go(text: str) -> None:
    assert unframed(text)[0] == "book"


def test_a_mark_that_the_book_itself_quotes_late_is_no_header() -> None:
    text = "a" * 100_000 + "\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\nb"
    assert unframed(text)[0] == text


def test_books_lie_in_directories_archives_and_archives_in_directories(tmp_path: Path) -> None:
    files = {"1.txt": b"one", "2.zip": zip_of({"2.txt": b"two", "2.jpg": b""})}
    files |= {"3.txt.gz": gzip.compress(b"three"), "4.epub": epub(), "x.jpg": b""}
    (tmp_path / "x.tar").write_bytes(tar_of(files))
    for place in (write_tree(tmp_path / "t", files), tmp_path / "x.tar"):
        documents, tally = books(place)
        assert {d.metadata["path"]: d.text.split()[0].strip(".") for d in documents} == {
            "1.txt": "one",
            "2.zip/2.txt": "two",
            "3.txt.gz/3.txt": "three",
            "4.epub": "First",
        }
        assert tally.skipped == {"no_book": 2}


def test_lines_are_joined_where_asked_and_verse_keeps_its_breaks(tmp_path: Path) -> None:
    text = "It was a mill,\nand it stood.\n\n  Roses are red,\n  violets blue.\n\n\n\nEnd"
    joined = "It was a mill, and it stood.\n\n  Roses are red,\n  violets blue.\n\nEnd"
    assert unwrapped(text) == joined
    tree = write_tree(tmp_path / "t", {"a.txt": text.encode()})
    assert books(tree, unwrap=True)[0][0].text == joined
    assert books(tree)[0][0].text == text


# ---------------------------------------------------------------- EPUB

CONTAINER = """<?xml version="1.0"?>
<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The  Mill</dc:title>
<dc:creator>A. Miller</dc:creator><dc:language>en-GB</dc:language></metadata><manifest>
<item id="b" href="two%20.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="one.xhtml" media-type="application/xhtml+xml"/>
<item id="c" href="c.css" media-type="text/css"/></manifest>
<spine><itemref idref="a"/><itemref idref="c"/><itemref idref="b"/><itemref idref="a"/></spine>
</package>"""


def epub(**more: str) -> bytes:
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": PACKAGE,
        "OEBPS/two .xhtml": "<html><body><p>Second &amp; last.</p></body></html>",
        "OEBPS/one.xhtml": "<html><head><title>t</title></head><body><p>First.</p></body></html>",
        **more,
    }
    return zip_of({name: text.encode() for name, text in parts.items()})


def test_an_epub_is_read_in_the_order_of_its_spine(tmp_path: Path) -> None:
    (tmp_path / "x.epub").write_bytes(epub())
    (found,), _ = books(tmp_path / "x.epub")
    assert found.text == "First.\n\nSecond & last."
    assert found.language == "en-GB"
    assert found.metadata == {"path": "x.epub", "title": "The Mill", "author": "A. Miller"}


@pytest.mark.parametrize(
    "data",
    [
        epub()[:400],
        epub(**{"META-INF/container.xml": "<container/>"}),
        epub(**{"META-INF/container.xml": "no XML"}),
        epub(**{"OEBPS/book.opf": '<!DOCTYPE x [<!ENTITY a "b">]><package>&a;</package>'}),
        epub(**{"OEBPS/one.xhtml": "<div>" * 10_000}),
        zip_of({"a": b"b"}),
        b"no zip",
    ],
)
def test_a_damaged_or_hostile_epub_is_skipped(tmp_path: Path, data: bytes) -> None:
    documents, tally = books(write_tree(tmp_path / "t", {"x.epub": data, "y.txt": b"y"}))
    assert len(documents) == 1 and tally.skipped == {"bad_book": 1}


def test_a_book_is_as_long_as_its_pages_unpacked(tmp_path: Path) -> None:
    data = epub(**{"OEBPS/one.xhtml": "<p>" + "word " * 100_000 + "</p>"})
    assert len(data) < 10_000
    documents, tally = books(write_tree(tmp_path / "t", {"x.epub": data}), max_file=100_000)
    assert not documents and tally.skipped == {"too_large": 1}
