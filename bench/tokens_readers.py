"""Readers of trees and dumps beside the bare libraries, in one run.

What may live here: this measurement alone.

    python bench/tokens_readers.py TREE TEXTS.jsonl

TREE is a directory of source code: it is read as it lies, and packed as tar and zip. TEXTS has a
`text` a line: the first few are made into a dump of MediaWiki (links, templates, footnotes, a table
and headings put in), a paper and a book each. CPU seconds of this process, one core, best of three.
Beside them: `tarfile` and `zipfile` reading and decoding the same files, and mwparserfromhell's
`strip_code` over the same wikitext where it is installed (it is no dependency).
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from curation.read import Tally, read

TEXTS = 200


def seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def documents(kind: str, path: Path) -> Callable[[], object]:
    return lambda: sum(1 for _ in read(kind, str(path), Tally()))


def wikitext(text: str) -> str:
    """A text with the markup of an article: about one construct a sentence."""
    sentences = text.split(". ")
    for i, sentence in enumerate(sentences):
        first, _, rest = sentence.partition(" ")
        sentences[i] = (
            f"[[{first}|{first}]] {rest}",
            f"'''{first}''' {rest}<ref name=\"r{i}\">{{{{cite web|url=http://x.org|title=T}}}}</ref>",
            f"{first} {rest}{{{{citation needed|date=May 2020}}}}",
            f"{first} {rest}\n\n== {first} ==\n* {first}",
        )[i % 4]
    table = '{| class="wikitable"\n! a !! b\n|-\n| c || [[d]]\n|}\n'
    return "{{Infobox|name=x|image=[[File:a.jpg|thumb]]}}\n" + ". ".join(sentences) + "\n" + table


def dump(texts: list[str]) -> bytes:
    pages = (
        f"<page><title>T{i}</title><ns>0</ns><id>{i}</id><revision><id>{i}</id>"
        f"<text>{escape(wikitext(text))}</text></revision></page>"
        for i, text in enumerate(texts)
    )
    return f'<mediawiki xml:lang="en">{"".join(pages)}</mediawiki>'.encode()


def bare_tar(path: Path) -> None:
    with tarfile.open(path, "r|") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file and member.name.endswith(".py"):
                file.read().decode(errors="replace")


def bare_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                archive.read(name).decode(errors="replace")


def strip_code(path: Path) -> None:
    parse = import_module("mwparserfromhell").parse
    for page in ElementTree.fromstring(path.read_bytes()):
        parse(page.findtext("revision/text")).strip_code()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("texts", type=Path)
    given = parser.parse_args()
    with given.texts.open() as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, TEXTS)]
    with tempfile.TemporaryDirectory() as folder:
        tar, packed, wiki = (Path(folder, name) for name in ("t.tar", "t.zip", "x.xml"))
        files = [path for path in sorted(given.tree.rglob("*.py")) if path.is_file()]
        with tarfile.open(tar, "w") as archive, zipfile.ZipFile(packed, "w", 8) as zipped:
            for file in files:
                archive.add(file, str(file.relative_to(given.tree)))
                zipped.write(file, str(file.relative_to(given.tree)))
        wiki.write_bytes(dump(texts))
        book = Path(folder, "books.tar")
        paper = Path(folder, "papers.tar")
        for place, end, frame in (
            (book, "txt", "{}"),
            (paper, "tex", "\\documentclass{{a}}\n\\begin{{document}}\n{}\n\\end{{document}}"),
        ):
            with tarfile.open(place, "w") as archive:
                for i, text in enumerate(texts):
                    data = frame.format(text.replace("%", "\\%") if end == "tex" else text).encode()
                    member = tarfile.TarInfo(f"{i}/{i}.{end}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        size = sum(file.stat().st_size for file in files)
        rows: list[tuple[str, int, Callable[[], object]]] = [
            ("code, directory", size, documents("code", given.tree)),
            ("code, tar", size, documents("code", tar)),
            ("  bare tarfile", size, lambda: bare_tar(tar)),
            ("code, zip", size, documents("code", packed)),
            ("  bare zipfile", size, lambda: bare_zip(packed)),
            ("mediawiki", wiki.stat().st_size, documents("mediawiki", wiki)),
            ("latex", paper.stat().st_size, documents("latex", paper)),
            ("books", book.stat().st_size, documents("books", book)),
        ]
        if find_spec("mwparserfromhell"):
            rows.insert(6, ("  mwparserfromhell", rows[5][1], lambda: strip_code(wiki)))
        print(f"{len(files)} files; {TEXTS} texts")
        for name, count, work in rows:
            taken = seconds(work)
            print(f"{name:20}{count / 1e6:8.1f} MB{taken:8.2f} s{count / 1e6 / taken:8.1f} MB/s")


if __name__ == "__main__":
    main()
