"""Texts to one flat array of token ids, at the speed of the library.

What may live here: the calls of `encode_batch_fast`, the ends of documents, and the cutting of long
texts, so that one of 50 MB takes neither gigabytes nor one core alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from curation.tokens.encoding.loaded import Loaded
from curation.tokens.presets import PLACE

#: Characters of one call of the library, which keeps some 30 to 100 bytes for each until it ends.
CALL = 1 << 22
#: Characters from which on a text is cut, where its tokenizer allows it.
LONG = 1 << 19


def encode(loaded: Loaded, texts: list[str] | pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of all texts, one after the other, and how many each has (int64).

    Each text begins with the BOS, where the tokenizer has one, and ends with the EOS; both count.
    The number of threads is that of the library: RAYON_NUM_THREADS, else all cores.
    """
    if not isinstance(texts, list):
        texts = texts.to_pylist()
    ids = array("I")
    lengths = np.zeros(len(texts), np.int64)
    for owners, parts, last in _calls(loaded, texts):
        before = len(ids)
        encoded = loaded.encoder.encode_batch_fast(parts, add_special_tokens=False)
        for owner, one, ends in zip(owners, encoded, last, strict=True):
            if lengths[owner] == 0 and loaded.bos is not None:
                ids.append(loaded.bos)
            ids.fromlist(one.ids)
            if ends:
                ids.append(loaded.eos)
            lengths[owner] += len(ids) - before
            before = len(ids)
    return np.frombuffer(ids, np.uint32).astype(loaded.dtype), lengths


def _calls(loaded: Loaded, texts: list[str]) -> Iterator[tuple[list[int], list[str], list[bool]]]:
    """What goes into each call: the parts, the text that each is of, whether it is its last."""
    owners: list[int] = []
    parts: list[str] = []
    last: list[bool] = []
    size = 0
    for i, text in enumerate(texts):
        pieces = cut(text) if loaded.separable and len(text) > LONG else [text]
        for k, piece in enumerate(pieces):
            owners.append(i)
            parts.append(piece)
            last.append(k == len(pieces) - 1)
            size += len(piece)
            if size >= CALL:
                yield owners, parts, last
                owners, parts, last, size = [], [], [], 0
    if parts:
        yield owners, parts, last


def cut(text: str) -> list[str]:
    """A long text in parts of LONG characters or more, each ending at a `presets.PLACE`: the ids of
    the parts are those of the text."""
    starts = [0]
    while len(text) - starts[-1] > LONG and (found := PLACE.search(text, starts[-1] + LONG - 1)):
        starts.append(found.end())
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
