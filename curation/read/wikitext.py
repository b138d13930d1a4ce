"""Wikitext as plain text.

What may live here: what is kept of MediaWiki's markup, and what goes. One pass over the tokens of
a page with a stack of what is open, so that time is linear whatever is nested or left unclosed
(parsers that try every reading take minutes for ten thousand open braces).

Kept: prose, headings (unless nothing is left below them), items of lists as "- ", labels of links,
code, and formulas as TeX between dollar signs. Gone: templates (but for a few that hold words of
their sentence), tables, footnotes, files with their captions, categories, links to other languages,
comments, galleries, and all other tags.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import NamedTuple

#: Depth up to which what a link or template holds is looked at: what lies deeper goes.
MAX_DEPTH = 40

_PIPE = "\0"  # between the arguments of what is open; clean text has no such character
_MARK = "\1"  # around the number of a piece that is set aside


class Namespaces(NamedTuple):
    """Names of namespaces, in lower case, whose links show no text: those of files, categories."""

    silent: frozenset[str]

    @staticmethod
    def of(names: Mapping[int, str]) -> Namespaces:
        """From the names by number: -2 media, 6 files, 14 categories; the English ones always."""
        own = {names[key].lower() for key in (-2, 6, 14) if names.get(key)}
        return Namespaces(frozenset(own | {"file", "image", "media", "category"}))


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Tags whose content is no text of the page, or is not wikitext; by what becomes of it.
_DROPPED = _names(
    "ref references gallery timeline templatestyles imagemap score graph mapframe maplink hiero "
    "includeonly inputbox categorytree indicator section style"
)
_CODE = frozenset(("nowiki", "pre", "syntaxhighlight", "source"))
_FORMULAS = frozenset(("math", "chem", "ce"))
#: Tags that go while what they hold stays, and those of them that end a line.
_BREAKS = _names("br p div li dd dt tr td th hr blockquote center poem h1 h2 h3 h4 h5 h6")
_TAGS = _BREAKS | _names(
    "abbr b bdi bdo big cite code data del dfn dl em font i ins kbd li mark noinclude nowrap ol "
    "onlyinclude q rb rp rt rtc ruby s samp small span strike strong sub sup time tt u ul var wbr "
    "caption thead tbody"
)

#: Templates of the English Wikipedia that hold words of the sentence: which argument shows.
_SHOWS = {
    **dict.fromkeys(("lang", "transl", "transliteration"), -1),
    **dict.fromkeys(("nowrap", "nobr", "small", "big", "em", "strong", "abbr", "val", "circa"), 0),
}
_STANDS_FOR = {"nbsp": " ", "ndash": "–", "snd": " – ", "spnd": " – ", "mdash": "—", "'": "'"}
_MEASURES = frozenset(("convert", "cvt"))

_TOKEN = re.compile(
    r"<!--|<(/?)([A-Za-z][A-Za-z0-9]*)(?=[\s/>])[^<>]*>"
    r"|^[ \t:]*\{\||^[ \t]*\|\}(?!\})|\{\{\{(?!\{)|\{\{|\}\}\}|\}\}|\[\[|\]\]|\|",
    re.MULTILINE,
)
_OTHER_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:")
_EXTERNAL = re.compile(
    r"\[(?:(?:https?|ftp|mailto|news|irc):|//)[^\s\[\]<>]*+(?:[ \t]++([^\[\]\n]*+))?\]"
)
_UNREADABLE = re.compile(r"&#[0-9]{1000,};?")  # `html.unescape` raises where int() does
_QUOTES = re.compile("'{2,5}")
_SWITCH = re.compile(r"__[A-Z]{3,30}__")
_HOLLOW = re.compile(r"\([\s,;:]{0,20}\)")
_SPACES = re.compile(r"[ \t]{2,}")
_ASIDE = re.compile(f"{_MARK}([0-9]+){_MARK}")
_ITEM = re.compile(r"[*#;:]+")


def plain_text(wikitext: str, namespaces: Namespaces) -> str:
    """The text of a page; "" where nothing is left. `wikitext` must be free of controls."""
    page = _Page(wikitext, namespaces)
    page.scan()
    text = "".join(page.out).replace(_PIPE, "|")
    text = _SWITCH.sub("", _EXTERNAL.sub(lambda found: found[1] or "", text))
    text = _QUOTES.sub(lambda found: "'" if len(found[0]) == 4 else "", text)
    text = _unescaped(text).replace("\xa0", " ")
    text = _SPACES.sub(" ", _HOLLOW.sub("", text))
    lines = _lines(text)
    return _ASIDE.sub(lambda found: page.aside[int(found[1])], "\n".join(lines)).strip()


def _unescaped(text: str) -> str:
    return html.unescape(_UNREADABLE.sub("\ufffd", text))


class _Open(NamedTuple):
    """Something that is open: `kind` is what opened it, `start` where it stands in the output."""

    kind: str
    start: int


class _Page:
    """The scan of a page: what is open, and the output so far."""

    def __init__(self, text: str, namespaces: Namespaces) -> None:
        self.text = text
        self.namespaces = namespaces
        self.out: list[str] = []
        self.open: list[_Open] = []
        self.counts = dict.fromkeys(("{{", "[[", "{|", "<table"), 0)
        self.aside: list[str] = []  # pieces that are no wikitext
        self.unclosed: set[str] = set()  # tags that have no end from here on

    def scan(self) -> None:
        """Reads the text to its end."""
        at = 0
        while found := _TOKEN.search(self.text, at):
            self.out.append(self.text[at : found.start()])
            at = self._token(found)
        self.out.append(self.text[at:])
        for kind, start in self.open:  # a table goes on to the end of its page; others are text
            if kind in ("{|", "<table"):
                del self.out[start:]
                break

    def _token(self, found: re.Match[str]) -> int:
        """Takes a token; where to read on."""
        token, end = found[0], found.end()
        if token == "<!--":
            close = self.text.find("-->", end)
            return len(self.text) if close < 0 else close + 3
        if found[2]:
            return self._tag(found)
        if token == "|":
            self.out.append(_PIPE if self.open else "|")
        elif token in ("{{", "{{{"):
            self._push("{{", token)
        elif token in ("}}", "}}}"):
            return self._close_braces(token, end)
        elif token == "[[":
            self._push("[[", token)
        elif token == "]]":
            self._close_link()
        elif token.endswith("{|"):
            self._push("{|", token)
        elif not self._drop("{|"):
            self.out.append(token)
        return end

    def _push(self, kind: str, token: str) -> None:
        self.open.append(_Open(kind, len(self.out)))
        self.counts[kind] += 1
        self.out.append(token)  # what it is if nothing closes it

    def _pop(self, kind: str) -> int | None:
        """Closes the innermost `kind`, and what is open within: where it began; None without one.

        Each is closed once, and none is looked for in vain, so that all closing is linear.
        """
        if not self.counts[kind]:
            return None
        while True:
            last = self.open.pop()
            self.counts[last.kind] -= 1
            if last.kind == kind:
                return last.start

    def _drop(self, kind: str) -> bool:
        start = self._pop(kind)
        if start is not None:
            del self.out[start:]
        return start is not None

    def _take(self, start: int) -> list[str] | None:
        """The arguments of what began at `start`, taken off the output; None where too deep."""
        arguments = None
        if len(self.open) < MAX_DEPTH:
            arguments = "".join(self.out[start + 1 :]).split(_PIPE)
        del self.out[start:]
        return arguments

    def _close_braces(self, token: str, end: int) -> int:
        start = self._pop("{{")
        if start is None:
            self.out.append(token)
            return end
        wide = self.out[start] == "{{{"
        arguments = self._take(start)
        if arguments is not None and not wide:
            self.out.append(_template(arguments))
        return end if wide or token == "}}" else end - 1

    def _close_link(self) -> None:
        start = self._pop("[[")
        if start is None:
            self.out.append("]]")
            return
        parts = self._take(start)
        if parts is not None:
            self.out.append(self._link(parts))

    def _link(self, parts: list[str]) -> str:
        """What a link shows."""
        target = parts[0].strip()
        prefix, colon, _ = target.partition(":")
        if colon and prefix.strip().lower() in self.namespaces.silent:
            return ""
        if len(parts) == 1 and _OTHER_LANGUAGE.match(target):
            return ""
        return (parts[-1].strip() if len(parts) > 1 else "") or target.removeprefix(":")

    def _tag(self, found: re.Match[str]) -> int:
        name, end = found[2].lower(), found.end()
        closing, alone = found[1] == "/", found[0].endswith("/>")
        if name in _DROPPED or name in _CODE or name in _FORMULAS:
            if closing or alone:
                return end
            content, end = self._content(name, end)
            if name not in _DROPPED and content:
                shown = f"${content.strip()}$" if name in _FORMULAS else _unescaped(content)
                self.out.append(f"{_MARK}{len(self.aside)}{_MARK}")
                self.aside.append(shown)
        elif name == "table":
            if closing:
                self._drop("<table")
            else:
                self._push("<table", found[0])
        elif name in _BREAKS:
            self.out.append("\n")
        elif name not in _TAGS:
            self.out.append(found[0])
        return end

    def _content(self, name: str, start: int) -> tuple[str, int]:
        """What a tag holds, and where reading goes on; nothing for one that is never closed."""
        close = None
        if name not in self.unclosed:
            close = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(self.text, start)
        if close is None:
            self.unclosed.add(name)
            return "", start
        return self.text[start : close.start()], close.end()


def _template(arguments: list[str]) -> str:
    """What a template shows: nothing, but for those that hold words of their sentence."""
    name = arguments[0].strip().lower()
    shown = [text.strip() for text in arguments[1:] if "=" not in text]
    if name.startswith("lang-"):
        name = "lang"
    if name in _SHOWS and shown:
        return shown[_SHOWS[name]]
    if name in _MEASURES and len(shown) >= 2:
        return f"{shown[0]} {shown[1]}"
    return _STANDS_FOR.get(name, "")


def _lines(text: str) -> list[str]:
    """The lines of a page: headings and items without their marks, at most one blank in a row."""
    lines: list[tuple[str, int]] = []  # and the level of a heading, 0 of others
    for raw in text.split("\n"):
        line = raw.strip()
        level = 0
        if line.startswith("----"):
            line = line.lstrip("-").strip()
        elif len(line) > 2 and line[0] == line[-1] == "=":
            level = min(len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("=")), 6)
            line = line[level:-level].strip()
            level = level if line else 0
        elif mark := _ITEM.match(line):
            line = line[mark.end() :].strip()
            line = f"- {line}" if line and mark[0][-1] in "*#" else line
        if line or (lines and lines[-1][0]):
            lines.append((line, level))
    return _without_empty_sections(lines)


def _without_empty_sections(lines: list[tuple[str, int]]) -> list[str]:
    """The lines but for headings that nothing stands below: neither text nor a deeper section."""
    kept: list[str] = []
    text, deepest = False, 0  # since the last heading above; the level of the one below it
    for line, level in reversed(lines):
        if level and not text and deepest <= level:
            continue
        if level:
            text, deepest = False, level
        elif line:
            text = True
        if line or (kept and kept[-1]):
            kept.append(line)
    return kept[::-1]
