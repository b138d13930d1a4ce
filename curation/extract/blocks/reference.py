"""The scan of a page in plain Python: what `scan` does, for reading and for testing it.

What may live here: the walk over serialised HTML. Any bytes give a page: what a serialisation never
has (end tags of elements that are not open, tags that do not end) is passed over.

Lexbor's serialisation of a parsed page is well formed: each element that is not void has its end
tag, values of attributes stand in double quotes, text has no other references than `&amp;`, `&lt;`,
`&gt;` and `&nbsp;`, and the text of RAW elements stands as it is (HTML Standard, 13.3 "Serializing
HTML fragments"). So the tree is known without parsing: a start tag goes down, an end tag goes up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from curation.extract.blocks.page import (
    BITS,
    BLOCK,
    BORDERS,
    COMMAS,
    COMMENTS,
    ELEMENT,
    HINTED,
    KINDS,
    LINK,
    MOST_HINTS,
    PRE_BIT,
    RAW,
    SKIPPED,
    TAG,
    TAGS,
    VOID,
    Page,
    word_hash,
)
from curation.text.characters import (
    CLASS_BITS,
    CLOSING,
    KATAKANA,
    LETTER,
    NUMBER,
    SPACE,
    TERMINAL,
    UPPER,
    table,
)

_REFERENCE = re.compile("&(amp|lt|gt|nbsp);")
_MEANING = {"amp": "&", "lt": "<", "gt": ">", "nbsp": "\u00a0"}
_NAME = re.compile(rb"[^ \t\n\f\r/>]*")
_ATTRIBUTE = re.compile(
    rb"[ \t\n\f\r/]*([^ \t\n\f\r/>][^ \t\n\f\r/>=]*)"
    rb'(?:=(?:"([^"]*)"|([^" \t\n\f\r>][^ \t\n\f\r>]*)?))?'
)
_SCRIPT_MARK = re.compile(rb"<!(?=--)|-->|<(/?)script[ \t\n\f\r/>]", re.IGNORECASE)
_HINT_WORD = re.compile(rb"[A-Z]*[a-z]+|[A-Z]+")
_HIDING = (b"display:none", b"visibility:hidden")
_INTEGER = re.compile(rb"[ \t\n\f\r]*([+-]?[0-9]{1,9})")


def scan(source: bytes) -> Page:
    """The page of serialised HTML in UTF-8."""
    return _Scan(source).page()


#: Names of attributes, and the bytes [start, stop) of the source that are their values.
_Attributes = list[tuple[bytes, tuple[int, int]]]


class _Scan:
    """A scan under way: `at` is the byte it has come to, `here` the innermost open element."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.at = 0
        self.here = 0
        self.elements = [_record(ELEMENT, parent=-1, href=-1, href_stop=-1, item=-1)]
        self.elements[0].update(table=-1, row=-1, column=-1)
        self.blocks: list[dict[str, int]] = []
        self.links: list[dict[str, int]] = []
        self.hints: list[int] = []
        self.text = bytearray()
        self.title = 0
        self.classes = table()
        self._ready()

    def page(self) -> Page:
        while self.at < len(self.source):
            self._next()
        while self.here:
            self._close(self.elements[self.here]["tag"])
        self._flush()
        self.elements[0]["stop"] = len(self.blocks)
        for element in reversed(self.elements[1:]):
            for name in ("characters", "link_characters", "links"):
                self.elements[element["parent"]][name] += element[name]
        return Page(
            np.frombuffer(self.source, np.uint8),
            _array(self.elements, ELEMENT),
            _array(self.blocks, BLOCK),
            _array(self.links, LINK),
            np.array(self.hints, np.uint32),
            np.frombuffer(bytes(self.text), np.uint8),
            self.title,
        )

    # --- markup ---------------------------------------------------------------------------------

    def _next(self) -> None:
        """Passes a tag, a comment or a run of text."""
        kind, tag, attributes = self._markup()
        if kind == "text":
            end = self._text_end(self.at + 1)
            self._read(self.source[self.at : end], raw=False)
            self.at = end
        elif kind == "start":
            self._start(tag, attributes)
        elif kind == "end":
            self._close(tag)

    def _markup(self) -> tuple[str, int, _Attributes]:
        """Passes a tag or a comment, if there is one: its kind, and of tags the number; of
        attributes the bytes of their values."""
        source, at = self.source, self.at
        follows = source[at + 1 : at + 2] if source[at : at + 1] == b"<" else b""
        if follows in (b"!", b"?"):
            comment = source.startswith(b"<!--", at)
            self._pass(b"-->" if comment else b">", at + 4 if comment else at + 2)
            return "comment", 0, []
        if follows == b"/":
            name = _name(source, at + 2)
            self._pass(b">", at + 2 + len(name))
            return "end", _tag(name), []
        if not follows.isalpha():
            return "text", 0, []
        name = _name(source, at + 1)
        at += 1 + len(name)
        attributes = []
        while match := _ATTRIBUTE.match(source, at):
            at = match.end()
            if source[at - 1 : at + 1] == b'="':  # a quote that is never closed
                at = len(source)
                break
            value = 2 if match[2] is not None else 3
            span = match.span(value) if match[value] is not None else (at, at)
            attributes.append((match[1], span))
        self.at = at
        self._pass(b">", at)
        return "start", _tag(name), attributes

    def _text_end(self, start: int) -> int:
        found = self.source.find(b"<", start)
        return len(self.source) if found < 0 else found

    def _pass(self, mark: bytes, start: int) -> None:
        found = self.source.find(mark, start)
        self.at = len(self.source) if found < 0 else found + len(mark)

    def _raw_end(self, tag: int) -> int:
        """Where the text of a raw element that begins here ends, at its end tag; passes that."""
        source, begin = self.source, self.at
        name = TAGS[tag].encode()
        end = -1
        if tag == TAG["plaintext"]:
            end = source.rfind(b"</plaintext>", begin)
        elif tag == TAG["script"]:
            end = self._script_end()
        elif match := re.compile(rb"</%b[ \t\n\f\r/>]" % name, re.I).search(source, begin):
            end = match.start()
        if end < 0:
            self.at = len(source)
            return self.at
        self._pass(b">", end)
        return end

    def _script_end(self) -> int:
        """The end tag of a script, which is none inside `<!-- <script>` (HTML Standard, 13.2.5.20:
        "script data double escaped state"); -1 if there is none."""
        at, escaped, twice = self.at, False, False
        while match := _SCRIPT_MARK.search(self.source, at):
            at = match.end()
            mark = match[0]
            if mark == b"<!":
                escaped = True
            elif mark == b"-->":
                escaped = twice = False
            elif not match[1]:
                twice = escaped
            elif twice:
                twice = False
            else:
                return match.start()
        return -1

    def _start(self, tag: int, attributes: _Attributes) -> None:
        if tag in SKIPPED or (tag not in (TAG["html"], TAG["body"]) and self._hides(attributes)):
            if tag not in VOID:
                self._skip(tag)
        elif tag == TAG["br"]:
            self._break()
        elif tag in VOID:
            if tag in BORDERS:
                self._border()
        else:
            self._open(tag, attributes)
            if tag in RAW:
                begin = self.at
                self._read(self.source[begin : self._raw_end(tag)], raw=True)
                self._close(tag)

    def _skip(self, outer: int) -> None:
        """Passes all to the end tag of an element that was begun."""
        if outer in RAW:
            self._raw_end(outer)
            return
        if outer == TAG["title"]:
            self._read_title()
        depth = 1
        while depth and self.at < len(self.source):
            kind, tag, _ = self._markup()
            if kind == "text":
                self.at = self._text_end(self.at + 1)
            elif kind == "end" and tag not in VOID:
                depth -= 1
            elif kind == "start" and tag in RAW:
                self._raw_end(tag)
            elif kind == "start" and tag not in VOID:
                depth += 1
                if tag == TAG["title"] and outer == TAG["head"]:
                    self._read_title()

    def _hides(self, attributes: _Attributes) -> bool:
        for name, (start, stop) in attributes:
            value = self.source[start:stop].lower()
            if name == b"hidden" or (name == b"aria-hidden" and value == b"true"):
                return True
            if name == b"style" and any(mark in b"".join(value.split()) for mark in _HIDING):
                return True
        return False

    # --- elements -------------------------------------------------------------------------------

    def _open(self, tag: int, attributes: _Attributes) -> None:
        if tag in BORDERS:
            self._border()
        index, outer = len(self.elements), self.elements[self.here]
        element = dict(outer)  # what is of the elements around it stays
        element.update(parent=self.here, tag=tag, depth=outer["depth"] + 1)
        element.update(characters=0, link_characters=0, links=0, counted=0)
        element.update(first=len(self.blocks) + self.begun, stop=0)
        element["ancestors"] |= BITS.get(tag, 0)
        element["kind"] = KINDS.get(tag, outer["kind"])
        if tag in BORDERS:
            element["border"] = index
        name, found = TAGS[tag], dict(attributes)
        if re.fullmatch("h[1-6]", name):
            element["level"] = int(name[1])
        elif name in ("ul", "ol", "dl", "menu", "dir"):
            element["lists"] += 1
            if name == "ol":
                first = _INTEGER.match(self.source[slice(*found.get(b"start", (0, 0)))])
                element["counted"] = int(first[1]) - 1 if first else 0
        elif name == "blockquote":
            element["quotes"] += 1
        elif name in ("li", "dt", "dd"):
            element.update(item=index, number=0)
            if name == "li" and outer["tag"] == TAG["ol"]:
                outer["counted"] += 1
                element["number"] = outer["counted"]
        elif name == "table":
            element.update(table=index, row=-1, column=-1)
        elif name == "tr":
            element.update(row=0, column=-1)
            if element["table"] >= 0:
                rows = self.elements[element["table"]]
                element["row"] = rows["counted"]
                rows["counted"] += 1
        elif name in ("td", "th"):
            element["column"] = 0
            if outer["tag"] == TAG["tr"]:
                element["column"] = outer["counted"]
                outer["counted"] += 1
        elif name == "a" and b"href" in found:
            element["href"], element["href_stop"] = found[b"href"]
        element["hints"] = len(self.hints)
        hints = self._words(attributes, HINTED)[:MOST_HINTS]
        self.hints += map(word_hash, hints)
        element["hints_stop"] = len(self.hints)
        may = tag in BORDERS and name not in ("html", "body")
        may = may and not element["ancestors"] & PRE_BIT
        types = (self._words([each], ("itemtype",))[:MOST_HINTS] for each in attributes)
        said = {word.decode() for words in (hints, *types) for word in words}
        element["comments"] = may and not said.isdisjoint(COMMENTS)
        self.elements.append(element)
        self.here = index

    def _words(self, attributes: _Attributes, names: Sequence[str]) -> list[bytes]:
        """Of the values of the attributes of these names."""
        return [
            word.lower()
            for attribute, (start, stop) in attributes
            if attribute.decode("latin-1") in names
            for word in _HINT_WORD.findall(self.source[start:stop])
            if len(word) > 1
        ]

    def _close(self, tag: int) -> None:
        """Closes the innermost element, if it is of that tag."""
        element = self.elements[self.here]
        if element["tag"] == tag and self.here:
            if tag in BORDERS:
                self._border()
            element["stop"] = len(self.blocks) + self.begun
            self.here = element["parent"]

    # --- text -----------------------------------------------------------------------------------

    def _border(self) -> None:
        """Ends the block, if one has begun, and makes ready for the next."""
        self._flush()
        self._ready()

    def _ready(self) -> None:
        self.begun = 0
        self.block = _record(BLOCK, start=len(self.text))
        self.link: dict[str, int] | None = None
        self.last = len(self.text)  # where the last character that is no white space ends
        self.waiting = ""  # white space to write before the next character
        self.breaks = 0  # `<br>` since the last character
        self.word = 0  # characters of the word so far

    def _flush(self) -> None:
        self._end_word()
        del self.text[self.last :]
        if self.begun:
            start, stop = self.block["start"], self.last
            self.block.update(stop=stop, breaks=self.text.count(b"\n", start, stop))
            self.blocks.append(self.block)
        self.begun = 0

    def _end_word(self) -> None:
        self.block["short_words"] += 1 <= self.word <= 3
        self.word = 0

    def _is_pre(self) -> bool:
        return bool(self.elements[self.here]["ancestors"] & PRE_BIT)

    def _break(self) -> None:
        if self._is_pre():
            self._space("\n")
            return
        self._end_word()
        self.waiting = "\n"
        self.breaks += 1
        if self.breaks > 1:
            breaks = self.breaks
            self._border()
            self.breaks = breaks

    def _space(self, character: str) -> None:
        self._end_word()
        if not self._is_pre():
            self.waiting = self.waiting or " "
        elif character == "\n" and not self.begun:
            del self.text[self.block["start"] :]
        else:
            self.text += character.encode()

    def _read(self, run: bytes, raw: bool) -> None:
        """Takes in a run of text."""
        for character in _meaning(run, raw):
            if self.classes[ord(character)] & (1 << CLASS_BITS) - 1 == SPACE:
                self._space(character)
            else:
                self._character(character)

    def _character(self, character: str) -> None:
        entry = int(self.classes[ord(character)])
        kind, flags = entry & (1 << CLASS_BITS) - 1, entry >> CLASS_BITS
        block, element = self.block, self.elements[self.here]
        if not self.begun:
            self.begun = 1
            block.update(element=element["border"], leaf=self.here)
        elif not self._is_pre():
            self.text += self.waiting.encode()
        self.waiting = ""
        self.breaks = 0
        block["words"] += self.word == 0
        self.word += 1
        if element["href"] < 0:
            self.link = None
        elif self.link is None or self.link["href"] != element["href"]:
            self.link = _record(LINK, start=len(self.text))
            self.link.update(href=element["href"], href_stop=element["href_stop"])
            self.links.append(self.link)
            block["links"] += 1
            element["links"] += 1
        self.text += character.encode()
        self.last = len(self.text)
        if self.link:
            self.link["stop"] = self.last
            block["link_characters"] += 1
            element["link_characters"] += 1
        element["characters"] += 1
        block["characters"] += 1
        block["letters"] += kind >= LETTER
        block["singles"] += kind >= KATAKANA
        block["digits"] += kind == NUMBER
        block["capitals"] += flags & UPPER != 0
        block["commas"] += character in COMMAS
        block["terminals"] += flags & TERMINAL != 0
        if flags & TERMINAL or character == "\u2026":
            block["ends"] = 1
        elif not flags & CLOSING:
            block["ends"] = 0

    def _read_title(self) -> None:
        """Takes the text that begins here as the page's title, unless text was read before."""
        if self.text:
            return
        run = self.source[self.at : self._text_end(self.at)]
        is_space = self.classes & (1 << CLASS_BITS) - 1 == SPACE
        title = "".join(" " if is_space[ord(c)] else c for c in _meaning(run, raw=False))
        self.text += " ".join(filter(None, title.split(" "))).encode()
        self.title = len(self.text)
        self._ready()


def _meaning(run: bytes, raw: bool) -> str:
    text = run.decode("utf-8", "replace")
    return text if raw else _REFERENCE.sub(lambda match: _MEANING[match[1]], text)


def _name(source: bytes, at: int) -> bytes:
    match = _NAME.match(source, at)
    return match[0] if match else b""


def _tag(name: bytes) -> int:
    return TAG.get(name.decode("latin-1"), 0)


def _record(dtype: np.dtype[Any], **values: int) -> dict[str, int]:
    return {**dict.fromkeys(dtype.names or (), 0), **values}


def _array(records: list[dict[str, int]], dtype: np.dtype[Any]) -> Any:
    rows = [tuple(record[name] for name in dtype.names or ()) for record in records]
    return np.array(rows, dtype)
