"""Deterministic limits on pages, checked before the costly work.

What may live here: `exceeded` and how deep a page nests. Limits that time or memory decides are
the sandbox's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Encodings in which the byte of `<` may be a part of another character.
_OTHER_BYTES = ("utf-16", "iso-2022", "hz")


def exceeded(
    html: str, max_tags: int, max_depth: int, content: bytes = b"", encoding: str | None = None
) -> str | None:
    """The class of the limit that a page exceeds: `too_many_tags`, `too_deep` or None.

    Tags are counted as `<` characters; each makes at most about two nodes. Depth counts elements:
    main-content extraction takes time in its square (10,000 nested `<div>` 2 s, 100,000 over 60 s).
    Cheap bounds of the depth come first, so that few pages are parsed for it. `content` are the
    bytes of the page in `encoding`, if at hand: counting in them is ten times faster than in text.
    """
    if not content or encoding is None or encoding.lower().startswith(_OTHER_BYTES):
        content = html.encode("utf-8", "replace")
    is_tag = np.frombuffer(content, dtype=np.uint8) == ord("<")
    tags = int(np.count_nonzero(is_tag))
    if tags > max_tags:
        return "too_many_tags"
    if tags > max_depth and most_open(content) > max_depth and nests_deeper(html, max_depth):
        return "too_deep"
    return None


def most_open(content: bytes) -> int:
    """The most start tags ever open at once, as if every end tag closed one.

    That is at least the depth, unless end tags close nothing; such pages are left to the sandbox's
    limit on CPU time.
    """
    data = np.frombuffer(content, dtype=np.uint8)
    after = data[np.flatnonzero(data[:-1] == ord("<")) + 1]
    letters = (after | 0x20) - np.uint8(ord("a")) < 26  # below "a" wraps round to above 26
    height = np.cumsum(letters.view(np.int8) - (after == ord("/")).view(np.int8), dtype=np.int32)
    if height.min(initial=0) < 0:  # end tags that close nothing
        height -= np.minimum(np.minimum.accumulate(height), 0)
    return int(height.max(initial=0))


def nests_deeper(html: str, limit: int) -> bool:
    """Whether the parsed page nests more than `limit` elements (`<html>` is the first)."""
    from resiliparse.parse.html import HTMLTree

    document: Any = HTMLTree.parse(html).document
    return document.query_selector(">".join("*" * (limit + 1))) is not None
