"""The ARPA form of n-gram models: text, one n-gram a line.

What may live here: writing it as lmplz does, n-grams in the order of their ids, last word first.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.models.kenlm.estimate import Estimate, Floats, Grams

_LINES = 1 << 18  # n-grams made into text at a time


def write(estimate: Estimate, file: BinaryIO) -> None:
    """Writes the model: probabilities and backoffs as log10, as few digits as tell a float32."""
    counts = (f"ngram {n}={size}\n" for n, size in enumerate(estimate.sizes, 1))
    file.write(f"\\data\\\n{''.join(counts)}\n".encode())
    words = pa.array(estimate.corpus.vocabulary, pa.large_string())
    for grams in estimate.grams():
        file.write(f"\\{grams.order}-grams:\n".encode())
        for at in range(0, grams.ends.size, _LINES):
            file.write(_lines(grams, slice(at, at + _LINES), estimate, words))
        file.write(b"\n")
    file.write(b"\\end\\\n")


def _lines(grams: Grams, which: slice, estimate: Estimate, words: pa.Array) -> memoryview:
    """The text of these n-grams."""
    ends, tokens = grams.ends[which], estimate.corpus.tokens
    parts = [words.take(pa.array(tokens[ends - back])) for back in range(grams.order - 1, -1, -1)]
    fields = [_digits(grams.probability[which]), _joined(parts, " ")]
    if grams.order < estimate.order:
        fields.append(_digits(grams.backoff[which]))
    lines = _joined([_joined(fields, "\t"), pa.scalar("", pa.large_string())], "\n")
    _, offsets, text = lines.buffers()
    return memoryview(text)[: np.frombuffer(offsets, np.int64)[len(lines)]]


def _digits(numbers: Floats) -> pa.Array:
    return pc.cast(pa.array(numbers + np.float32(0)), pa.large_string())  # -0 as 0


def _joined(parts: list[pa.Array], separator: str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(separator, pa.large_string()))
