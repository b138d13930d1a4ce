"""Bytes to text: which encoding a page is in, decoding it, and cleaning what no text may hold.

What may live here: the WHATWG rules of encodings, `decode` and `sanitise`. Standard library only,
except the statistical detector, which is imported when a page declares nothing. No HTML parsing.

Sources: WHATWG Encoding (labels, decoders), WHATWG HTML section 13.2.3 (order of evidence, meta
prescan), XML 1.0 production 2 (characters that a text may hold).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

#: A declared UTF-8 is doubted when more than this share of the characters beyond ASCII is broken.
DOUBT_SHARE = 0.5
#: ... and at least this many are: fewer are stray bytes.
DOUBT_BYTES = 4
#: Bytes count as UTF-8 whatever is declared when at most this share of the characters beyond ASCII
#: is broken: text in another encoding is hardly ever valid UTF-8, so one stray byte proves nothing.
UTF8_SHARE = 0.1
#: Bytes that the meta prescan looks at (WHATWG HTML 13.2.3.2).
PRESCAN_BYTES = 1024
#: Bytes that the statistical detector looks at, from both ends of the page.
DETECTOR_BYTES = 65536


class Decoded(NamedTuple):
    """A decoded page.

    `encoding` is the WHATWG name; `source` the evidence that decided: `bom`, `http`, `meta`,
    `utf8` (nothing declared, valid UTF-8), `utf8_override` (another one declared, but the bytes are
    UTF-8), `detector`, or `default` (no evidence at all: windows-1252). `replaced` counts the
    U+FFFD that decoding put in.
    """

    text: str
    encoding: str
    source: str
    replaced: int


# --- labels -------------------------------------------------------------------------------------

#: WHATWG Encoding 4.2: encoding -> its labels. Two of the "replacement" encodings, which browsers
#: refuse for the safety of scripts only, are decoded here: iso-2022-kr and hz-gb-2312.
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "ibm866": "866 cp866 csibm866 ibm866",
    "iso-8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 "
    "iso_8859-2:1987 l2 latin2",
    "iso-8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 "
    "iso_8859-3:1988 l3 latin3",
    "iso-8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 "
    "iso_8859-4:1988 l4 latin4",
    "iso-8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 "
    "iso_8859-5 iso_8859-5:1988",
    "iso-8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 "
    "iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso-8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 "
    "iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    "iso-8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 "
    "iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 visual",
    "iso-8859-8-i": "csiso88598i iso-8859-8-i logical",
    "iso-8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso-8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso-8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso-8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso-8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "macintosh": "csmacintosh mac macintosh x-mac-roman",
    "windows-874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "windows-1250": "cp1250 windows-1250 x-cp1250",
    "windows-1251": "cp1251 windows-1251 x-cp1251",
    "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 "
    "iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    "windows-1253": "cp1253 windows-1253 x-cp1253",
    "windows-1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 "
    "iso_8859-9:1989 l5 latin5 windows-1254 x-cp1254",
    "windows-1255": "cp1255 windows-1255 x-cp1255",
    "windows-1256": "cp1256 windows-1256 x-cp1256",
    "windows-1257": "cp1257 windows-1257 x-cp1257",
    "windows-1258": "cp1258 windows-1258 x-cp1258",
    "x-mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gbk": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "gb18030": "gb18030",
    "big5": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso-2022-jp": "csiso2022jp iso-2022-jp",
    "shift_jis": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "euc-kr": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 "
    "ksc5601 ksc_5601 windows-949",
    "utf-16be": "unicodefffe utf-16be",
    "utf-16le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
    "x-user-defined": "x-user-defined",
    "iso-2022-kr": "csiso2022kr iso-2022-kr",
    "hz-gb-2312": "hz-gb-2312",
}
_ENCODING_OF = {label: name for name, labels in _LABELS.items() for label in labels.split()}
#: What people write though no standard has it.
_ENCODING_OF |= {
    "latin-1": "windows-1252",
    "utf_8": "utf-8",
    "utf-8n": "utf-8",
    "utf8mb4": "utf-8",
    "gb-2312": "gbk",
    "windows1251": "windows-1251",
    "windows1252": "windows-1252",
    "win-1251": "windows-1251",
    "cp949": "euc-kr",
    "cp932": "shift_jis",
    "cp936": "gbk",
    "cp950": "big5",
    "uhc": "euc-kr",
}

#: Encodings of several bytes a character -> Python's codecs, best first; the next is tried when a
#: page does not decode in the one before (each knows characters that the other lacks).
_MULTIBYTE = {
    "utf-16be": ("utf-16-be",),
    "utf-16le": ("utf-16-le",),
    "gbk": ("gb18030",),
    "gb18030": ("gb18030",),
    "big5": ("big5hkscs", "cp950"),
    "euc-jp": ("euc_jp", "euc_jis_2004"),
    "iso-2022-jp": ("iso2022_jp", "iso2022_jp_ext", "iso2022_jp_2004"),
    "shift_jis": ("cp932", "shift_jis_2004"),
    "euc-kr": ("cp949",),
    "iso-2022-kr": ("iso2022_kr",),
    "hz-gb-2312": ("hz",),
}
#: Single-byte encodings that Python names differently.
_PYTHON_NAME = {
    "ibm866": "cp866",
    "iso-8859-8-i": "iso-8859-8",
    "macintosh": "mac_roman",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac_cyrillic",
}


def find_encoding(label: str | None) -> str | None:
    """The WHATWG encoding that a label names, or None for an unknown one."""
    if not label:
        return None
    return _ENCODING_OF.get(label.strip("\t\n\f\r \"'").lower())


_tables: dict[str, str] = {}


def _table(encoding: str) -> str:
    """The 256 characters of a single-byte encoding; U+FFFE (charmap's mark) where it has none.

    WHATWG gives the bytes 80 to 9F that Python's Windows code pages leave out as C1 controls.
    """
    if encoding not in _tables:
        if encoding == "x-user-defined":
            high = "".join(chr(0xF780 + byte) for byte in range(128))
            _tables[encoding] = bytes(range(128)).decode("ascii") + high
        else:
            name = _PYTHON_NAME.get(encoding, encoding)
            chars = [bytes([byte]).decode(name, "replace") for byte in range(256)]
            _tables[encoding] = "".join(
                char if char != "\ufffd" else chr(byte) if 0x80 <= byte < 0xA0 else "\ufffe"
                for byte, char in enumerate(chars)
            )
    return _tables[encoding]


# --- evidence -----------------------------------------------------------------------------------


def _byte_order_mark(content: bytes) -> tuple[str, int] | None:
    """The encoding that a byte order mark names, and the mark's length."""
    if content.startswith(codecs.BOM_UTF8):
        return "utf-8", 3
    if content.startswith(codecs.BOM_UTF16_BE):
        return "utf-16be", 2
    if content.startswith(codecs.BOM_UTF16_LE):
        return "utf-16le", 2
    return None


_META = re.compile(rb"<!--.*?(?:-->|$)|<meta[\s/]((?:\"[^\"]*\"|'[^']*'|[^>\"'])*)", re.I | re.S)
_ATTRIBUTE = re.compile(rb"([^\s/>=]+)(?:\s*=\s*(\"[^\"]*\"?|'[^']*'?|[^\s>]*))?")
_CHARSET = re.compile(rb"charset\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s;\"']+)", re.I)
_XML_ENCODING = re.compile(rb"<\?xml[^>]*?\bencoding\s*=\s*[\"']([^\"']*)[\"']", re.I)


def _prescan(head: bytes) -> str | None:
    """The encoding that the first `<meta>` with a known label names, else the XML declaration."""
    for match in _META.finditer(head):
        if match[1] is None:  # a comment
            continue
        found = _ATTRIBUTE.findall(match[1])
        attributes = {name.lower(): value.strip(b"\"' \t\r\n") for name, value in reversed(found)}
        label = attributes.get(b"charset")
        if label is None and attributes.get(b"http-equiv", b"").lower() == b"content-type":
            charset = _CHARSET.search(attributes.get(b"content", b""))
            label = charset and charset[1]
        encoding = label and find_encoding(label.decode("latin-1"))
        if encoding:
            return _META_SAYS.get(encoding, encoding)
    declaration = _XML_ENCODING.match(head)
    encoding = declaration and find_encoding(declaration[1].decode("latin-1"))
    return _META_SAYS.get(encoding, encoding) if encoding else None


#: A meta that could be read cannot be right about UTF-16 (WHATWG HTML 13.2.3.2).
_META_SAYS = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}


def _utf16_without_mark(head: bytes) -> str | None:
    """UTF-16 that neither a mark nor a header tells: the upper bytes of its ASCII are zero.

    At least one character in ten must be ASCII (spaces, markup), and hardly a lower byte zero.
    """
    if head.count(0) * 20 < len(head) or len(head) < 4:
        return None
    little, big = head[1::2].count(0), head[0::2].count(0)
    if min(little, big) * 20 > max(little, big):
        return None
    return "utf-16le" if little > big else "utf-16be"


def _detect(content: bytes) -> tuple[str, str]:
    """The encoding that uchardet guesses, or windows-1252, and which of the two it was."""
    wide = _utf16_without_mark(content[:PRESCAN_BYTES])
    if wide:
        return wide, "detector"
    from resiliparse.parse.encoding import detect_encoding

    guess = detect_encoding(content, max_len=DETECTOR_BYTES, html5_compatible=False)
    encoding = guess and (find_encoding(guess) or find_encoding(guess.replace("_", "-")))
    return (encoding, "detector") if encoding else ("windows-1252", "default")


# --- decoding -----------------------------------------------------------------------------------


def decode(content: bytes, http_label: str | None = None, media_type: str = "text/html") -> Decoded:
    """Decodes a page; never raises, whatever the bytes and the label.

    Evidence is taken in WHATWG's order: byte order mark, HTTP charset, meta prescan (not for plain
    text), detector. Labels that lie are overruled:

    - Bytes that decode as UTF-8 with at most `UTF8_SHARE` of the characters beyond ASCII broken are
      UTF-8 whatever is declared; a declared encoding of several bytes a character must fail first.
    - A declared encoding in which at least `DOUBT_BYTES` and more than `DOUBT_SHARE` of the
      characters beyond ASCII are broken is passed over for the next evidence.

    A character cut off at the end of the body leaves no trace.
    """
    marked = _byte_order_mark(content)
    if marked:
        encoding, length = marked
        return _decode_as(encoding, "bom", content[length:])
    declared = _declared(content, http_label, media_type)
    utf8 = _decode_as("utf-8", "utf8", content)
    if utf8.replaced == 0 or utf8.replaced <= UTF8_SHARE * _beyond_ascii(utf8.text):
        return _decode_utf8(utf8, next(declared, None), content)

    tried = []
    for encoding, source in declared:
        tried.append(_decode_as(encoding, source, content))
        if not _doubtful(tried[-1]):
            return tried[-1]
    guess = _decode_as(*_detect(content), content)
    # A guess is held to more: windows-1252 gives any bytes a meaning, but text has no controls.
    tried.append(guess._replace(replaced=guess.replaced + len(_CONTROLS.findall(guess.text))))
    return min(tried, key=lambda decoded: decoded.replaced)


def _declared(content: bytes, http_label: str | None, media_type: str) -> Iterator[tuple[str, str]]:
    """The encodings that a page declares, and where; the first is the one to believe."""
    encoding = find_encoding(http_label)
    if encoding:
        yield encoding, "http"
    if not media_type.startswith("text/plain"):
        encoding = _prescan(content[:PRESCAN_BYTES])
        if encoding:
            yield encoding, "meta"


def _decode_utf8(utf8: Decoded, declared: tuple[str, str] | None, content: bytes) -> Decoded:
    """Bytes that are valid UTF-8: what was declared, unless only UTF-8 explains them."""
    if not declared:
        wide = _utf16_without_mark(content[:PRESCAN_BYTES])
        return _decode_as(wide, "detector", content) if wide else utf8
    encoding, source = declared
    if encoding == "utf-8":
        return utf8._replace(source=source)
    if encoding in _MULTIBYTE:
        decoded = _decode_as(encoding, source, content)
        lies = encoding.startswith("utf-16") and b"\0" not in content
        if decoded.replaced == 0 and not lies:
            return decoded
    elif content.isascii():
        return utf8._replace(encoding=encoding, source=source)
    elif utf8.text.isascii():  # one letter at the very end is no cut UTF-8
        return _decode_as(encoding, source, content)
    return utf8._replace(source="utf8_override")


def _decode_as(encoding: str, source: str, content: bytes) -> Decoded:
    """Decodes with replacement; an incomplete character at the very end is left out."""
    if encoding == "utf-8":
        try:
            return Decoded(codecs.utf_8_decode(content, "strict", False)[0], encoding, source, 0)
        except UnicodeDecodeError:
            text = codecs.utf_8_decode(content, "replace", False)[0]
            replaced = text.count("\ufffd") - content.count(b"\xef\xbf\xbd")
            return Decoded(text, encoding, source, replaced)
    if encoding not in _MULTIBYTE:
        text = codecs.charmap_decode(content, "replace", _table(encoding))[0]
        return Decoded(text, encoding, source, text.count("\ufffd"))
    for codec in _MULTIBYTE[encoding]:
        try:
            text = codecs.getincrementaldecoder(codec)("strict").decode(content)
            return Decoded(text, encoding, source, 0)
        except UnicodeDecodeError:
            continue
    texts = [
        codecs.getincrementaldecoder(codec)("replace").decode(content)
        for codec in _MULTIBYTE[encoding]
    ]
    text = min(texts, key=lambda text: text.count("\ufffd"))
    return Decoded(text, encoding, source, text.count("\ufffd"))


def _beyond_ascii(text: str) -> int:
    return len(text) - len(text.encode("ascii", "ignore"))


def _doubtful(decoded: Decoded) -> bool:
    replaced = decoded.replaced
    return replaced >= DOUBT_BYTES and replaced > DOUBT_SHARE * _beyond_ascii(decoded.text)


# --- cleaning -----------------------------------------------------------------------------------

_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_UNCLEAN = re.compile(
    "\r\n?|[\x0b\x0c\x85]|[\x1c-\x1f]|[\x00\ufffe\uffff]|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]"
)
#: Bytes of UTF-8 text by what they can be part of, so that one translation finds all unclean ones:
#: `!` unclean alone, `ab` a C1 control (C2 80..9F), `efg` U+FFFE and `eff` U+FFFF (EF BF BE|BF).
_CLASSES = bytearray(b"." * 256)
for _byte in [*range(0x09), *range(0x0B, 0x20), 0x7F]:
    _CLASSES[_byte] = ord("!")
_CLASSES[0x80:0xA0] = b"b" * 32
_CLASSES[0xC2], _CLASSES[0xEF], _CLASSES[0xBF], _CLASSES[0xBE] = b"aefg"


def is_clean(data: bytes) -> bool:
    """Whether `sanitise` would change nothing in this UTF-8 (one pass; no false yes)."""
    classes = data.translate(_CLASSES)
    if b"!" in classes or data.endswith(b"\xef\xbf\xbd"):
        return False
    if b"\xc2" in data and b"ab" in classes:
        return False
    return not (b"\xef" in data and (b"eff" in classes or b"efg" in classes))


def sanitise(text: str) -> tuple[str, int]:
    """The text without what no text may hold, and how many characters were changed or removed.

    Line ends (CRLF, CR, VT, FF, NEL) become LF and separators (FS to US) a space; NUL, U+FFFE,
    U+FFFF and lone surrogates become U+FFFD; other C0 and C1 controls go (XML 1.0 production 2
    allows none of these but CR; NEL and C1 are discouraged there); a tail of U+FFFD goes.
    """
    try:
        if is_clean(text.encode()):
            return text, 0
        lone = 0
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        lone = joined.count("\ufffd") - text.count("\ufffd")
        text = joined
    text, changed = _UNCLEAN.subn(_cleaned, text)
    whole = text.rstrip("\ufffd")
    return whole, lone + changed + len(text) - len(whole)


def _cleaned(match: re.Match[str]) -> str:
    char = match[0]
    if char[0] in "\r\x0b\x0c\x85":
        return "\n"
    if char in "\x1c\x1d\x1e\x1f":
        return " "
    return "\ufffd" if char in "\x00\ufffe\uffff" else ""
