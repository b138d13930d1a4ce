"""KenLM's binary form of n-gram models: hash tables with linear probing, mapped into memory.

What may live here: writing it, byte by byte as KenLM's build_binary does (`probing`, version 5 of
the format, multiplier 1.5; the layout is that of kenlm 0.3.0: binary_format.cc, vocab.hh,
search_hashed.hh). In order: header, hash table of the words, unigrams by id, a hash table for each
higher order, the words.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

from curation.models.kenlm.estimate import BEGIN, Estimate, EstimationError, Grams
from curation.models.kenlm.kernels import Hashes, probe

MULTIPLIER = 1.5  # buckets of a table for each entry
_MAGIC = b"mmap lm http://kheafield.com/code format version 5\n\0\0"
_PROBING, _SEARCH_VERSION, _VOCABULARY_VERSION = 0, 0, 0
_WORD = np.dtype([("key", "<u8"), ("id", "<u4")])  # 12 bytes
_WEIGHTS = np.dtype([("probability", "<f4"), ("backoff", "<f4")])
_MIDDLE = np.dtype([("key", "<u8"), *_WEIGHTS.descr])
_LONGEST = np.dtype([("key", "<u8"), ("probability", "<f4")])  # 12 bytes
_MASK = (1 << 64) - 1


def write(estimate: Estimate, file: BinaryIO) -> None:
    """Writes the model. Raises EstimationError for order 1, which KenLM does not read."""
    if estimate.order < 2:
        raise EstimationError("KenLM wants at least order 2")
    vocabulary = [word.encode() for word in estimate.corpus.vocabulary]
    file.write(_header(estimate.sizes))
    file.write(struct.pack("<II", _VOCABULARY_VERSION, len(vocabulary)))
    ids = np.arange(1, len(vocabulary), dtype=np.uint32)  # without <unk>
    hashes = np.array([murmur64a(word) for word in vocabulary[1:]], np.uint64)
    _write_table(file, len(vocabulary), hashes, _WORD, id=ids)
    keys: Hashes
    for grams in estimate.grams():
        weights = _weights(grams, estimate.order)
        if grams.order == 1:
            keys = np.arange(len(vocabulary), dtype=np.uint64)
            unigrams = np.zeros(keys.size + 1, _WEIGHTS)  # KenLM leaves room for an <unk>
            for name, values in weights.items():
                unigrams[name][:-1] = values
            unigrams[BEGIN]["probability"] = 0  # KenLM leaves its sign as it reads it
            file.write(unigrams.tobytes())
            continue
        first = estimate.corpus.tokens[grams.ends - (grams.order - 1)]
        keys = _combined(keys[grams.lower], first.astype(np.uint64))
        layout = _LONGEST if grams.order == estimate.order else _MIDDLE
        _write_table(file, keys.size, keys, layout, **weights)
    file.write(b"".join(word + b"\0" for word in vocabulary))


def _header(sizes: list[int]) -> bytes:
    """Values that show how this machine writes numbers, then what the model is."""
    magic = _MAGIC.ljust(-len(_MAGIC) % 8 + len(_MAGIC), b"\0")
    sanity = magic + struct.pack("<fffIIIQ", 0, 1, -0.5, 1, 0xFFFFFFFF, 0, 1)
    fixed = struct.pack("<B3xfI?3xI", len(sizes), MULTIPLIER, _PROBING, True, _SEARCH_VERSION)
    header = sanity + fixed + struct.pack(f"<{len(sizes)}Q", *sizes)
    return header.ljust(-len(header) % 8 + len(header), b"\0")


def _weights(grams: Grams, order: int) -> dict[str, np.ndarray]:
    """Log10 as KenLM stores them. The sign of a probability says that no longer n-gram ends with
    this one, and a backoff of -0 that none begins with it."""
    probability = np.copysign(grams.probability, np.where(grams.suffix, 1, -1))
    if grams.order == order:
        return {"probability": probability}
    backoff = np.where(grams.context, grams.backoff + np.float32(0), np.float32(-0.0))
    return {"probability": probability, "backoff": backoff}


def _write_table(
    file: BinaryIO, entries: int, keys: Hashes, layout: np.dtype, **values: np.ndarray
) -> None:
    buckets = max(entries + 1, int(np.float32(MULTIPLIER) * np.float32(entries)))
    slots = np.empty(keys.size, np.int64)
    probe(keys, np.zeros(buckets, np.uint8), slots)
    table = np.zeros(buckets, layout)
    for name, column in {"key": keys, **values}.items():
        table[name][slots] = column
    file.write(table.view(np.uint8).data)


def _combined(keys: Hashes, words: Hashes) -> Hashes:
    """The keys of n-grams with one more word before them."""
    return keys * np.uint64(8978948897894561157) ^ (words + np.uint64(1)) * np.uint64(
        17894857484156487943
    )


def murmur64a(data: bytes) -> int:
    """MurmurHash64A (Austin Appleby, public domain) with seed 0."""
    m = 0xC6A4A7935BD1E995
    state = len(data) * m & _MASK
    whole = len(data) - len(data) % 8
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        word = word * m & _MASK
        state = (state ^ (word ^ word >> 47) * m & _MASK) * m & _MASK
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * m & _MASK
    state = (state ^ state >> 47) * m & _MASK
    return state ^ state >> 47
