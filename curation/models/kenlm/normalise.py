"""How text is prepared for a language model, by name.

What may live here: normalisers. A model's card names the one that its training text went through.

CCNet (facebookresearch/cc_net, `text_normalizer.normalize`; Wenzek et al., arXiv 1911.00359, 3.3)
strips white space, lowers, decomposes (NFD) and drops marks (Mn), turns digits (Nd) into 0, maps
its table of punctuation, and drops controls (C0, DEL, C1). That is reproduced as it runs, since
published models were trained so:

- A line end is a control: of a whole document all lines become one, the last word of each joined to
  the first of the next. CCNet's chain gives whole documents to its tokenizer; `ccnet` follows it.
  `ccnet-lines` treats every line by itself, as CCNet prepares the training text, and scores lines
  where its language model is asked alone (`DocLM` with `normalize`).
- Nothing is composed again: Hangul stays in single letters.
- The full-width digit one stands in the table as a quotation mark, but is a 0 by then.
- The em dash gets spaces around it, and the full-width full stop one behind; no space is taken.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache

#: CCNet's table, entry by entry.
PUNCTUATION: Mapping[str, str] = {
    **dict.fromkeys("，、", ","),
    **dict.fromkeys("„”“«»１」「《》", '"'),
    **dict.fromkeys("´’", "'"),
    **dict.fromkeys("∶：", ":"),
    **dict.fromkeys("–━►", "-"),
    "。": ".",
    "．": ". ",
    "？": "?",
    "！": "!",
    "（": "(",
    "）": ")",
    "；": ";",
    "—": " - ",
    "～": "~",
    "…": "...",
    "〈": "<",
    "〉": ">",
    "【": "[",
    "】": "]",
    "％": "%",
}

_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_CONTROLS = bytes([*range(0x20), 0x7F])
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


class _Characters(dict[int, str | None]):
    """What becomes of a decomposed character: found out when it is first met."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        if unicodedata.category(character) in ("Mn", "Cc"):
            self[code] = None
        elif character.isdecimal():
            self[code] = "0"
        else:
            self[code] = PUNCTUATION.get(character, character)
        return self[code]


_characters = _Characters()


@lru_cache(maxsize=1 << 14)
def _other(run: str) -> str:
    return unicodedata.normalize("NFD", run).translate(_characters)


def ccnet(text: str) -> str:
    """The text as CCNet gives it to its models.

    Runs of other characters are looked up, ASCII is mapped as bytes: decomposition never looks
    past an ASCII character, which neither has a decomposition nor changes places with a mark.
    """
    text = text.strip().lower()
    if not text.isascii():
        text = _NOT_ASCII.sub(lambda run: _other(run[0]), text)
    return text.encode().translate(_DIGITS, _CONTROLS).decode()


def _whole(text: str) -> list[str]:
    return [ccnet(text)]


def _lines(text: str) -> list[str]:
    return [ccnet(line) for line in text.split("\n")]


#: From a text to the lines that the model is given.
NORMALISERS: Mapping[str, Callable[[str], list[str]]] = {"ccnet": _whole, "ccnet-lines": _lines}
