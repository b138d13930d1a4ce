r"""LaTeX papers as documents: the source of a paper, put together and cleaned.

What may live here: which files of a tree are papers, and what is taken out of their source. The
text stays LaTeX.

A paper is a file with `\documentclass` or `\documentstyle` that no other one takes in; so is the
only file of an archive, which may be plain TeX. The rules are RedPajama's for arXiv (its
arxiv_cleaner.py): comments, preamble and bibliography go, macros without arguments are expanded.
Other than there, files are put where `\input` has them instead of one after the other, the text
begins with `\begin{document}` instead of the first section (so the abstract stays), and appendices
stay.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import RawDocument
from curation.read.identity import of_file
from curation.read.plain import text_of
from curation.read.tally import Tally
from curation.read.trees import File, Files, inside, is_archive, readable, without_coding

_TEX = (".tex", ".ltx", ".latex")
_MAX_ARCHIVE = 256 << 20  # bytes of the archive of one paper, figures included
_MAX_LOOSE = 1 << 30  # bytes of all files of a tree outside of archives, which are held in memory
MAX_DEPTH = 16  # of files in files
MAX_FILES = 1_000  # taken into one paper
MAX_PASSES = 8  # of macros in macros


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class LatexOptions:
    """How LaTeX sources are read.

    `max_paper`: bytes of a file, and characters of a paper when all is put together.
    """

    max_paper: int = 8 << 20


def read_latex(
    files: Files, path: str, tally: Tally, options: LatexOptions
) -> Iterator[RawDocument]:
    """The papers of a tree: those of each archive in it, then those that lie there openly."""
    loose: dict[str, bytes] = {}
    held = 0

    def refuse(name: str, size: int) -> str | None:
        if not name.lower().endswith(_TEX):
            return "no_tex"
        return "too_large" if size > options.max_paper else None

    def admit(name: str, size: int) -> str | None:
        if is_archive(name):
            return "too_large" if size > _MAX_ARCHIVE else None
        if held > _MAX_LOOSE:
            return "too_large"
        return refuse(_named(name, path), size)

    for file in files(admit):
        if is_archive(file.name):
            yield from _packed(file, path, tally, options)
        else:
            loose[file.name] = file.data
            held += len(file.data)
    yield from _papers(loose, path, tally, options)


def _named(name: str, archive: str) -> str:
    """The name of a file; one that was compressed alone, as arXiv does it, is taken for TeX."""
    alone = posixpath.basename(name) == without_coding(os.path.basename(archive))
    return name + ".tex" if alone else name


def _packed(file: File, path: str, tally: Tally, options: LatexOptions) -> Iterator[RawDocument]:
    """The papers of an archive in the tree."""

    def refuse(name: str, size: int) -> str | None:
        if not _named(name, file.name).lower().endswith(_TEX):
            return "no_tex"
        return "too_large" if size > options.max_paper else None

    members = {member.name: member.data for member in inside(file, tally, refuse)}
    yield from _papers(members, path, tally, options)


# ---------------------------------------------------------------- papers

_MAIN = re.compile(r"\\document(?:class|style)\b")
_LOOKS = re.compile(r"\\(?:begin|input|section|title|def|magnification|bye|end)\b")
_INPUTENC = re.compile(rb"\\usepackage\[([\w-]+)\]\{inputenc\}")
_ARXIV = re.compile(r"^(?:(\d{4}\.\d{4,5}(?:v\d+)?)|([a-z-]+)(?:\.[A-Z]{2})?/?(\d{7}(?:v\d+)?))$")
_LABELS = {"latin9": "iso-8859-15", "ansinew": "windows-1252", "applemac": "macintosh"}


def _papers(
    members: Mapping[str, bytes], path: str, tally: Tally, options: LatexOptions
) -> Iterator[RawDocument]:
    """The papers among files that lie together. Every file is a record: a paper or skipped."""
    declared = next((m for data in members.values() if (m := _INPUTENC.search(data))), None)
    label = declared[1].decode() if declared else None
    texts: dict[str, str] = {}
    for name, data in members.items():
        text = text_of(data, tally, _LABELS.get(label, label) if label else None)
        if text is None or not text.strip():
            tally.skip("binary" if text is None else "empty")
        else:
            texts[name] = without_comments(text)
    mains = {name for name, text in texts.items() if _MAIN.search(text)}
    if not mains and len(texts) == 1:
        mains = {name for name, text in texts.items() if _LOOKS.search(text)}
    included: set[str] = set()
    for name in mains:  # put together twice, so that many papers are never held at once
        paper = _Paper(texts, posixpath.dirname(name), options.max_paper)
        paper.put_together(name)
        included |= paper.included
    for name in texts:
        if name in included or name not in mains:
            tally.skip("included" if name in included else "fragment")
            continue
        paper = _Paper(texts, posixpath.dirname(name), options.max_paper)
        source = paper.put_together(name)
        text = None if paper.too_large else cleaned(source, options.max_paper)
        if not text:
            tally.skip("empty" if text == "" else "too_large")
            continue
        tally.notes["input_missing"] += paper.missing
        tally.keep()
        yield RawDocument(
            id=of_file(path, name),
            text=text,
            media_type="text/plain",
            url=_url(name, path),
            metadata={"path": readable(name)},
        )


def _url(name: str, path: str) -> str | None:
    """The page of a paper that arXiv's name of its archive tells of."""
    for part in (*name.split("/"), os.path.basename(path)):
        stem = re.sub(r"(\.tar)?\.(gz|tgz|tar)$", "", part)
        if found := _ARXIV.match(stem):
            new, archive, number = found.groups()
            return f"https://arxiv.org/abs/{new or f'{archive}/{number}'}"
    return None


_INPUT = re.compile(
    r"\\(?:input|include|subfile|subfileinclude)\s*(?:\{([^{}\n]*)\}|[ \t]([^\s{}\\%]+))"
    r"|\\(?:sub)?(?:import|inputfrom|includefrom)\*?\{([^{}\n]*)\}\{([^{}\n]*)\}"
)


@plain_dataclass
class _Paper:
    """Puts a paper together from its files.

    Bounded in depth, number of files and characters, so that no files can make a paper of any size.
    """

    texts: Mapping[str, str]
    folder: str  # of the main file: where TeX looks first
    longest: int
    included: set[str] = field(default_factory=set)
    missing: int = 0
    too_large: bool = False
    _files: int = 0
    _size: int = 0

    def put_together(self, main: str) -> str:
        """The text of a file, with those that it takes in at their places."""
        pieces: list[str] = []
        self._add(main, (), pieces)
        return "".join(pieces)

    def _add(self, name: str, above: tuple[str, ...], pieces: list[str]) -> None:
        text = self.texts[name]
        if above and (begin := text.find(r"\begin{document}")) >= 0:  # a subfile
            text = text[begin + len(r"\begin{document}") :].partition(r"\end{document}")[0]
        self._size += len(text)
        self._files += 1
        if self._size > self.longest or self._files > MAX_FILES:
            self.too_large = True
            return
        end = 0
        for found in _INPUT.finditer(text):
            pieces.append(text[end : found.start()])
            end = found.end()
            inner = self._find(found, posixpath.dirname(name))
            if inner is None or inner in (*above, name) or len(above) >= MAX_DEPTH:
                self.missing += 1
                continue
            self.included.add(inner)
            self._add(inner, (*above, name), pieces)
            if self.too_large:
                return
        pieces.append(text[end:])

    def _find(self, found: re.Match[str], here: str) -> str | None:
        asked = (found[1] or found[2] or posixpath.join(found[3] or "", found[4] or "")).strip()
        asked = asked.strip('"')
        for folder in (self.folder, here):
            place = posixpath.normpath(posixpath.join(folder, asked))
            for name in (place, *(place + end for end in _TEX)):
                if name in self.texts:
                    return name
        return None


# ---------------------------------------------------------------- cleaning

_COMMENTS = re.compile(
    r"\\begin\{(verbatim\*?|lstlisting|minted|comment)\}|\\verb\*?([^A-Za-z\s*])|\\.|%", re.S
)


def without_comments(text: str) -> str:
    """The text without comments: `%` to the end of its line, and the environment `comment`.

    A line that holds nothing else goes as a whole. What is verbatim stays as it is.
    """
    pieces: list[str] = []
    unclosed: set[str] = set()
    at = 0

    def close(end: str, start: int) -> int:
        """Where what must end with `end` ends; it is looked for once in vain, not every time."""
        place = -1 if end in unclosed else text.find(end, start)
        if place < 0:
            unclosed.add(end)
            return start
        return place + len(end)

    while found := _COMMENTS.search(text, at):
        if found[0] == "%":
            start = found.start()
            line = text.rfind("\n", 0, start) + 1
            stop = text.find("\n", start)
            stop = len(text) if stop < 0 else stop
            if not text[line:start].strip() and line >= at:
                start, stop = line, min(stop + 1, len(text))
            pieces.append(text[at:start])
            at = stop
            continue
        stop = found.end()
        if found[1]:
            stop = close(f"\\end{{{found[1]}}}", stop)
        elif found[2]:
            place = text.find(found[2], stop, stop + 1000)
            line = text.find("\n", stop)
            stop = place + 1 if place >= 0 and (line < 0 or place < line) else stop
        pieces.append(text[at : found.start()] if found[1] == "comment" else text[at:stop])
        at = stop
    pieces.append(text[at:])
    return "".join(pieces)


_REFERENCES = re.compile(
    r"\\(?:bibliography|bibliographystyle|addbibresource)\{[^{}]*\}|\\printbibliography(?:\[[^\[\]]*\])?"
)
_LIST = re.compile(r"\\begin\{(thebibliography|references|REFERENCES)\}")
_BLANK = re.compile(r"\n{3,}")


def cleaned(text: str, longest: int) -> str | None:
    """What a reader would read of a paper that has no comments; None where it becomes too long."""
    text, macros = _without_definitions(text)
    begin = text.find(r"\begin{document}")
    if begin >= 0:
        text = text[begin + len(r"\begin{document}") :]
    end = text.find(r"\end{document}")
    if end >= 0:
        text = text[:end]
    text = _REFERENCES.sub("", _without_lists(text))
    expanded = _expanded(text, macros, longest)
    if expanded is None:
        return None
    return _BLANK.sub("\n\n", "\n".join(line.rstrip() for line in expanded.split("\n"))).strip()


def _without_lists(text: str) -> str:
    """The text without its lists of references; one without an end is the rest of the paper."""
    pieces, at = [], 0
    while found := _LIST.search(text, at):
        pieces.append(text[at : found.start()])
        end = f"\\end{{{found[1]}}}"
        place = text.find(end, found.end())
        if place < 0:
            return "".join(pieces)
        at = place + len(end)
    return "".join([*pieces, text[at:]])


_DEFINITION = re.compile(
    r"\\(?:(?:re|provide)?newcommand|providecommand|DeclareRobustCommand|DeclareMathOperator)\*?\s*"
    r"(?:\{\s*(\\[A-Za-z]+|\\[^A-Za-z\s])\s*\}|(\\[A-Za-z]+|\\[^A-Za-z\s]))\s*(?=[\[{])"
    r"|\\(?:long\s*)?[eg]?def\s*(\\[A-Za-z]+|\\[^A-Za-z\s])([^{}\n]{0,100})(?=\{)"
)
_MACRO = re.compile(r"\\(?:[A-Za-z]+|[^A-Za-z\s])(?:\{\})?")
_BRACE = re.compile(r"\\.|[{}]", re.S)
_MAX_BODY = 2_000  # characters of a macro


def _without_definitions(text: str) -> tuple[str, dict[str, str]]:
    """The text without the definitions of macros that take no arguments, and what they stand for.

    Others stay where they are.
    """
    found = list(_DEFINITION.finditer(text))
    ends = _groups(text, {definition.end() for definition in found})
    macros: dict[str, str] = {}
    pieces, at = [], 0
    for definition in found:
        start, stop = definition.end(), ends.get(definition.end())
        if definition.start() < at or stop is None or stop - start > _MAX_BODY or definition[4]:
            continue  # inside of another, without an end, no macro but a program, with arguments
        name, body = definition[1] or definition[2] or definition[3], text[start + 1 : stop - 1]
        if "MathOperator" in definition[0]:
            body = f"\\operatorname{{{body}}}"
        if name not in _MACRO.findall(body):
            macros[name] = body
        pieces.append(text[at : definition.start()])
        at = stop
    return "".join([*pieces, text[at:]]), macros


def _groups(text: str, starts: set[int]) -> dict[int, int]:
    """Where the groups end that begin at `starts`; those without an end are left out."""
    ends: dict[int, int] = {}
    waiting: list[tuple[int, int]] = []  # start and depth
    depth = 0
    for found in _BRACE.finditer(text):
        if found[0] == "{":
            depth += 1
            if found.start() in starts:
                waiting.append((found.start(), depth))
        elif found[0] == "}":
            if waiting and waiting[-1][1] == depth:
                ends[waiting.pop()[0]] = found.end()
            depth -= 1
    return ends


def _expanded(text: str, macros: Mapping[str, str], longest: int) -> str | None:
    """The text with macros replaced by what they stand for, also in one another.

    None where it would become longer than `longest` characters: macros can be a bomb.
    """
    if not macros:
        return text
    for _ in range(MAX_PASSES):
        pieces: list[str] = []
        at = size = changed = 0
        for found in _MACRO.finditer(text):
            body = macros.get(found[0].removesuffix("{}"))
            if body is None:
                continue
            changed += 1
            pieces += (text[at : found.start()], body)
            size += found.start() - at + len(body)
            at = found.end()
            if size > longest:
                return None
        if not changed:
            break
        text = "".join([*pieces, text[at:]])
    return text
