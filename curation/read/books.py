"""Books as documents: plain texts and EPUB, one book a document.

What may live here: taking a book out of its file, and Project Gutenberg's frame off it.
"""

from __future__ import annotations

import io
import posixpath
import re
import urllib.parse
import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import RawDocument
from curation.extract.decode import decode, sanitise
from curation.extract.engines import resiliparse
from curation.extract.limits import exceeded
from curation.read.identity import of_file
from curation.read.plain import text_of
from curation.read.tally import Tally
from curation.read.trees import DAMAGE, File, Files, inside, is_archive

#: The lines that Project Gutenberg puts before and after a book. Older files say THIS, later ones
#: THE; some have the marks broken over two lines.
_START = re.compile(
    r"^[ \t]*\*{3} ?START OF TH(?:E|IS) PROJECT GUTENBERG.*?\*{3}[ \t]*$", re.M | re.S
)
_END = re.compile(r"^[ \t]*\*{3} ?END OF TH(?:E|IS) PROJECT GUTENBERG", re.M)
#: The end of the "small print" that files of before 2003 begin with.
_SMALL_PRINT = re.compile(r"^\*END[* ]*THE SMALL PRINT!.*$", re.M)
_END_OLD = re.compile(r"^[ \t]*End of (?:The )?Project Gutenberg.*$", re.M | re.I)
_FIELD = re.compile(r"^(Title|Author|Language|Release Date): *(\S.*)$", re.M)
_NUMBER = re.compile(r"\[(?:eBook|EBook|Etext) #(\d+)\]")
_FRAME = 64 << 10  # characters in which the frame at the beginning lies
_LANGUAGES = {
    "Chinese": "zh", "Danish": "da", "Dutch": "nl", "English": "en", "Esperanto": "eo",
    "Finnish": "fi", "French": "fr", "German": "de", "Greek": "el", "Hungarian": "hu",
    "Italian": "it", "Latin": "la", "Norwegian": "no", "Polish": "pl", "Portuguese": "pt",
    "Russian": "ru", "Spanish": "es", "Swedish": "sv", "Tagalog": "tl",
}  # fmt: skip

_ENDINGS = (".txt", ".epub")
_MAX_TAGS, _MAX_DEPTH = 200_000, 256  # of a chapter, beyond which it is no page of a book
_MAX_PART = 32 << 20  # bytes of a chapter


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class BooksOptions:
    """How books are read.

    `unwrap`: whether the lines of a paragraph are joined, which plain texts break at some 70
    characters. `max_file`: bytes of a book, unpacked.
    """

    unwrap: bool = False
    max_file: int = 64 << 20


def read_books(
    files: Files, path: str, tally: Tally, options: BooksOptions
) -> Iterator[RawDocument]:
    """The books of a tree (or a book by itself): .txt and .epub, also in archives of the tree."""

    def refuse(name: str, size: int) -> str | None:
        if not name.lower().endswith(_ENDINGS):
            return "no_book"
        return "too_large" if size > options.max_file else None

    def admit(name: str, size: int) -> str | None:
        packed = is_archive(name) and size <= options.max_file
        return None if packed else refuse(name, size)

    for file in files(admit):
        books = inside(file, tally, refuse) if is_archive(file.name) else (file,)
        for book in books:
            if book.name.lower().endswith(".epub"):
                found = _epub(book, options.max_file)
            else:
                found = _plain(book, tally)
            if isinstance(found, str):
                tally.skip(found)
                continue
            text, metadata = found
            if options.unwrap and not book.name.lower().endswith(".epub"):
                text = unwrapped(text)
            tally.keep()
            yield RawDocument(
                id=of_file(path, book.name),
                text=text,
                media_type="text/plain",
                language=metadata.pop("language", None),
                metadata={"path": book.shown, **metadata},
            )


Book = tuple[str, dict[str, str]]


def _plain(file: File, tally: Tally) -> Book | str:
    """The text of a plain book and what its frame says of it; else why it is skipped."""
    text = text_of(file.data, tally)
    if text is None:
        return "binary"
    text, metadata = unframed(text)
    return (text, metadata) if text else "empty"


def unframed(text: str) -> Book:
    """A book without Project Gutenberg's header and footer, and what the header says.

    A text without their marks is given as it is, but for white space around it.
    """
    head = text[:_FRAME]
    start = _START.search(head) or _SMALL_PRINT.search(head)
    if start is None:
        return text.strip(), {}
    frame, body = text[: start.end()], text[start.end() :]
    ends = [end.start() for end in (_END.search(body), _END_OLD.search(body)) if end]
    metadata = {name.lower(): value.strip() for name, value in _FIELD.findall(frame)}
    if number := _NUMBER.search(frame):
        metadata["gutenberg"] = number[1]
    metadata.pop("release date", None)
    if language := _LANGUAGES.get(metadata.pop("language", "")):
        metadata["language"] = language
    return body[: min(ends, default=len(body))].strip(), metadata


def unwrapped(text: str) -> str:
    """The text with the lines of each paragraph joined by a space.

    Indented lines keep their breaks: they are verse, tables or headings.
    """
    paragraphs = []
    for paragraph in re.split(r"\n[ \t]*\n+", text):
        lines = paragraph.split("\n")
        pieces = [lines[0].rstrip()]
        for line in lines[1:]:
            pieces += ("\n" if line[:1] in " \t" else " ", line.rstrip())
        paragraphs.append("".join(pieces))
    return "\n\n".join(paragraphs)


# ---------------------------------------------------------------- EPUB

_CONTAINER = "META-INF/container.xml"
_PAGES = ("application/xhtml+xml", "text/html")


def _epub(file: File, longest: int) -> Book | str:
    """The text of an EPUB (3.3, and 2), its pages in the order of the spine; else why not."""
    try:
        with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
            package = _part(archive, _CONTAINER).find(".//{*}rootfile")
            if package is None:
                return "bad_book"
            place = package.get("full-path", "")
            book = _part(archive, place)
            names = _spine(book, posixpath.dirname(place))
            if sum(archive.getinfo(name).file_size for name in names) > longest:
                return "too_large"
            pages = [_page(archive, name) for name in names]
    except (*DAMAGE, OSError, RuntimeError, ElementTree.ParseError):
        return "bad_book"
    text = "\n\n".join(page for page in pages if page)
    metadata = {
        name: " ".join(found.text.split())
        for name in ("title", "creator", "language")
        if (found := book.find(f".//{{http://purl.org/dc/elements/1.1/}}{name}")) is not None
        and found.text
    }
    if "creator" in metadata:
        metadata["author"] = metadata.pop("creator")
    return (text, metadata) if text else "empty"


def _spine(book: ElementTree.Element, folder: str) -> list[str]:
    """The names of the pages of a book, in reading order, each once."""
    items = {
        item.get("id"): item.get("href", "")
        for item in book.iterfind(".//{*}manifest/{*}item")
        if item.get("media-type") in _PAGES
    }
    order = [items.get(ref.get("idref")) for ref in book.iterfind(".//{*}spine/{*}itemref")]
    return list(
        dict.fromkeys(
            posixpath.normpath(posixpath.join(folder, urllib.parse.unquote(href)))
            for href in order
            if href
        )
    )


def _part(archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    """An XML part of a book. A document type is refused: entities of its own could be a bomb."""
    data = _read(archive, name)
    if b"<!ENTITY" in data:
        raise ValueError("entities of its own")
    return ElementTree.fromstring(data)


def _page(archive: zipfile.ZipFile, name: str) -> str:
    html = decode(_read(archive, name)).text
    if exceeded(html, _MAX_TAGS, _MAX_DEPTH):
        raise ValueError("no page of a book")
    return sanitise(resiliparse(html, main_content=False))[0].strip()


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _MAX_PART:
        raise ValueError("too large for a part of a book")
    return archive.read(name)
