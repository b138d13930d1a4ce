"""Bytes of a file as clean text, for readers that give text.

What may live here: telling text from binary, and decoding it as pages are decoded.
"""

from __future__ import annotations

import codecs

from curation.extract.decode import decode, sanitise
from curation.read.tally import Tally

#: Bytes in which a NUL says that a file is no text: as git and diff decide it.
_LOOKED_AT = 8000
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def text_of(data: bytes, tally: Tally, label: str | None = None) -> str | None:
    """The text of a file, without controls and with newlines as line ends; None for binary data.

    `label` is the encoding that the file itself declares. What was in another encoding than UTF-8
    is noted as `not_utf8`, what could not be decoded as `decode_replaced`.
    """
    if b"\0" in data[:_LOOKED_AT] and not data.startswith(_WIDE):
        return None
    found = decode(data, label, "text/plain")
    if found.encoding != "utf-8" and not data.isascii():
        tally.notes["not_utf8"] += 1
    if found.replaced:
        tally.notes["decode_replaced"] += 1
    return sanitise(found.text)[0]
