"""Deterministic limits on pages, checked before the costly work.

What may live here: `exceeded` and how deep a page nests. Limits that time or memory decides are
the sandbox's.
"""

from __future__ import annotations

from typing import Any


def exceeded(html: str, max_tags: int, max_depth: int) -> str | None:
    """The class of the limit that a page exceeds: `too_many_tags`, `too_deep` or None.

    Tags are counted as `<` characters; each makes at most about two nodes. Depth counts elements:
    main-content extraction takes time in its square (10,000 nested `<div>` 2 s, 100,000 over 60 s).
    Cheap bounds of the depth come first, so that few pages are parsed for it.
    """
    tags = html.count("<")
    if tags > max_tags:
        return "too_many_tags"
    if (
        tags > max_depth
        and tags - html.count("</") > max_depth
        and _most_open(html) > max_depth
        and nests_deeper(html, max_depth)
    ):
        return "too_deep"
    return None


def _most_open(html: str) -> int:
    """The most start tags ever open at once, as if every end tag closed one.

    That is at least the depth, unless end tags close nothing; such pages are left to the sandbox's
    limit on CPU time.
    """
    import numpy as np

    data = np.frombuffer(html.encode("utf-8", "replace") + b" ", dtype=np.uint8)
    after = data[np.flatnonzero(data == ord("<")) + 1]
    steps = (((after | 0x20) >= ord("a")) & ((after | 0x20) <= ord("z"))).astype(np.int32)
    steps -= after == ord("/")
    height = np.cumsum(steps)
    floor = np.minimum(np.minimum.accumulate(height), 0)
    return int((height - floor).max(initial=0))


def nests_deeper(html: str, limit: int) -> bool:
    """Whether the parsed page nests more than `limit` elements (`<html>` is the first)."""
    from resiliparse.parse.html import HTMLTree

    document: Any = HTMLTree.parse(html).document
    return document.query_selector(">".join("*" * (limit + 1))) is not None
