"""Numbers that look random and are the same everywhere: mixing, salts, keys of documents.

What may live here: hashes of integers and ids, on numpy arrays. Whatever is drawn (windows of
packing, validation, order) is drawn from these, never from a generator with a state.
"""

from __future__ import annotations

import hashlib

import numpy as np

from manifests.records import canonical

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix64(x: np.ndarray) -> np.ndarray:
    """The finaliser of MurmurHash3 (Appleby, public domain constants): bijective on 64 bits."""
    x = x.astype(np.uint64, copy=True)
    with np.errstate(over="ignore"):
        x ^= x >> np.uint64(33)
        x *= np.uint64(0xFF51AFD7ED558CCD)
        x ^= x >> np.uint64(33)
        x *= np.uint64(0xC4CEB9FE1A85EC53)
        x ^= x >> np.uint64(33)
    return x


def salt(seed: int, *labels: str | int) -> int:
    """64 bits that belong to a seed and a purpose, such as `salt(20, "validation")`."""
    state = hashlib.blake2b(canonical([seed, *labels]), digest_size=8)
    return int.from_bytes(state.digest(), "big")


def keys(salted: int, ids: np.ndarray, copies: np.ndarray | int = 0) -> np.ndarray:
    """Keys (uint64, one per id) of documents by a salt.

    `ids`: (n, 2) uint64, the 32 hex digits of an id as two words; `copies`: which repetition of the
    document it is, from 0 (n int64, or one for all).
    """
    with np.errstate(over="ignore"):
        high = mix64(ids[:, 0].astype(np.uint64) + np.uint64(salted))
        step = np.asarray(copies).astype(np.uint64) * _GOLDEN
        return mix64((high ^ ids[:, 1].astype(np.uint64)) + step)


def below(share: float) -> int:
    """The bound under which this share of all keys lies; 2**64 for all."""
    return round(share * 2**64)
