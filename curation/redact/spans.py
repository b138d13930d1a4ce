"""Spans of a text: merged, replaced, and the words around them.

What may live here: arithmetic on (start, stop) pairs, in code points; nothing about what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple


class Span(NamedTuple):
    """Where something lies in a text: code points [start, stop), and what kind it is."""

    start: int
    stop: int
    kind: str


def merge(spans: Iterable[Span]) -> list[Span]:
    """Disjoint spans in order: overlapping ones become one, of the kind of the longest.

    Of equally long ones the first to start gives the kind, then the first that was named. Spans
    that only touch stay apart.
    """
    merged: list[Span] = []
    longest = 0
    for span in sorted(spans, key=attrgetter("start")):
        size = span.stop - span.start
        if not merged or span.start >= merged[-1].stop:
            merged.append(span)
            longest = size
            continue
        last = merged[-1]
        kind = span.kind if size > longest else last.kind
        merged[-1] = Span(last.start, max(last.stop, span.stop), kind)
        longest = max(longest, size)
    return merged


def replace(text: str, spans: Iterable[Span], by: Callable[[str, str], str]) -> str:
    """The text with each of these disjoint, ordered spans replaced by `by(kind, found)`."""
    parts, end = [], 0
    for span in spans:
        parts += [text[end : span.start], by(span.kind, text[span.start : span.stop])]
        end = span.stop
    return "".join([*parts, text[end:]])


def follows(text: str, start: int, pattern: re.Pattern[str], reach: int = 40) -> bool:
    """Whether a pattern, which ends with `$`, is found in the code points just before `start`."""
    return pattern.search(text[max(0, start - reach) : start]) is not None


def near(text: str, start: int, stop: int, pattern: re.Pattern[str], reach: int = 40) -> bool:
    """Whether a pattern is found within `reach` code points on either side of a span."""
    before, after = text[max(0, start - reach) : start], text[stop : stop + reach]
    return pattern.search(before) is not None or pattern.search(after) is not None
