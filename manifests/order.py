"""The order of samples: sample number -> (source, epoch, row), and back, by arithmetic alone.

What may live here: apportionment of samples to sources, shuffling inside a block, permutations of a
source's rows. No state, no files, no world size: what a sample is depends on the seed, the names
and sizes of the sources and the deals. All of it is exact integer arithmetic. ALGORITHM and VERSION
stand in manifests; a change of what any sample is needs another VERSION.

How samples are dealt: n samples of a deal give each source its share by Webster's method (M. L.
Balinski and H. P. Young, Fair Representation, 1982; also Sainte-Lague), which never takes a draw
back as n grows, as the method of largest remainders does. It is looked at every BLOCK samples;
inside a block the sources are shuffled. The draws of a source run through its rows epoch after
epoch, each epoch in an order of its own: a Feistel network with cycle walking (J. Black and P.
Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from manifests.hashing import mix64, salt

ALGORITHM, VERSION = "webster-feistel", 1

BLOCK = 1024  # samples; at its borders shares are exact, and a mixture may change
WHOLE = 1 << 32  # the parts of a deal add up to this
MOST_SAMPLES = 1 << 40  # up to here nothing overflows 64 bits
MOST_SOURCES = 1000  # the same

_MOST_BLOCKS = MOST_SAMPLES // BLOCK

_ROUNDS = 8  # of the network: four make a pseudo-random permutation, sets below ten want more
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: it sets the rounds apart
_AT_ONCE = 256  # blocks whose shuffles are in memory together: 4 MB


@dataclass(frozen=True)
class Deal:
    """From a sample on, how many of 2**32 parts of the samples each source gets (0: none)."""

    from_sample: int
    parts: tuple[int, ...]


def parts_of(weights: Sequence[float], fills: Sequence[float]) -> tuple[int, ...]:
    """The parts of a deal by which the non-padding tokens of each source have the wanted shares.

    `weights`: shares of tokens wanted, in any unit; `fills`: tokens per row over the row's length
    (any number where the weight is 0). A weight above 0 gets at least one part.
    Raises ValueError where no weight is above 0 or one is negative.
    """
    wanted = [
        Fraction(weight) / Fraction(fill) if weight else Fraction(0)
        for weight, fill in zip(weights, fills, strict=True)
    ]
    total = sum(wanted)
    if total <= 0 or min(wanted) < 0:
        raise ValueError("weights must not be negative, and one at least must be above 0")
    exact = [share * WHOLE / total for share in wanted]
    parts = [max(int(share), 1) if share else 0 for share in exact]
    missing = WHOLE - sum(parts)
    by_remainder = sorted(range(len(parts)), key=lambda s: (int(exact[s]) - exact[s], s))
    for source in by_remainder[: max(missing, 0)]:
        parts[source] += 1
    parts[parts.index(max(parts))] += min(missing, 0)  # what the least parts took too much
    return tuple(parts)


def apportion(parts: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Draws of each source in the first blocks of a deal, by Webster's method: (blocks, sources).

    `parts`: (sources,) int64, adding up to WHOLE; `blocks`: (n,) int64, numbers of blocks. Of equal
    claims the earlier source's is first. The claim of a source with `a` draws to one more is
    (2a + 1) / part, the least first; less the same number for all, that is
    ((2a + 1) * 2**21 - part * blocks) / part, whose numerator is small.
    """
    exact = parts * blocks[:, None]  # of draws, in units of BLOCK / WHOLE = 2**-22
    draws: np.ndarray = (exact + (1 << 21)) >> 22  # to the nearest whole number
    missing = blocks * BLOCK - draws.sum(axis=1)
    while (short := np.flatnonzero(missing > 0)).size:
        draws[short, _least(((2 * draws + 1) << 21)[short] - exact[short], parts)] += 1
        missing[short] -= 1
    while (over := np.flatnonzero(missing < 0)).size:
        last = exact[over] - ((2 * draws - 1) << 21)[over]
        draws[over, len(parts) - 1 - _least(last[:, ::-1], parts[::-1])] -= 1
        missing[over] += 1
    return draws


def _least(numerators: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Per row the first source of the least numerator / part; a part of 0 is never it."""
    with np.errstate(divide="ignore"):
        best = np.argmin(numerators / parts, axis=1)  # or one that is nearly as small
    while True:
        own = np.take_along_axis(numerators, best[:, None], axis=1) * parts
        others = numerators * parts[best][:, None]
        less = others < own
        if not less.any():
            first: np.ndarray = np.argmax(others == own, axis=1)
            return first
        best = np.where(less.any(axis=1), np.argmax(less, axis=1), best)


class Order:
    """What each sample is. `rows`: how many each source has; the first deal begins at sample 0.

    Samples have no end: a source begins its next epoch when it has no more rows. Raises ValueError,
    in one line, for deals that cannot be dealt.
    """

    def __init__(
        self, seed: int, names: Sequence[str], rows: Sequence[int], deals: Sequence[Deal]
    ) -> None:
        _check(names, rows, deals)
        self.seed, self.names, self.deals = seed, tuple(names), tuple(deals)
        self.rows = np.array(rows, dtype=np.int64)
        self._from = np.array([deal.from_sample // BLOCK for deal in deals], dtype=np.int64)
        self._parts = np.array([deal.parts for deal in deals], dtype=np.int64)
        self._drawn = lru_cache(2)(self._draws_of)  # batches in order ask for the same block again
        self._before = np.zeros_like(self._parts)  # draws when a deal begins
        for deal in range(1, len(deals)):
            length = self._from[deal : deal + 1] - self._from[deal - 1]
            dealt = apportion(self._parts[deal - 1], length)[0]
            self._before[deal] = self._before[deal - 1] + dealt

    # ------------------------------------------------------------ sample -> row

    def locate(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Source (int16), epoch (int64) and row (int64) of each sample (int64, any order)."""
        samples = np.asarray(samples, dtype=np.int64)
        sources = np.empty(len(samples), np.int16)
        draws = np.empty(len(samples), np.int64)
        for blocks, chosen, which in self._by_block(samples // BLOCK):
            shuffled, drawn = self._drawn(tuple(blocks.tolist()))
            place = samples[chosen] % BLOCK
            sources[chosen] = shuffled[which, place]
            draws[chosen] = drawn[which, place]
        sizes = self.rows[sources]
        epochs = draws // sizes
        rows = permute(self._salts(sources, epochs), sizes, draws % sizes)
        return sources, epochs, rows

    def draws(self, samples: int) -> np.ndarray:
        """How many rows each source has given in the first samples: (sources,) int64."""
        block, rest = divmod(samples, BLOCK)
        first, shuffled = self._dealt(np.array([block]))
        found: np.ndarray = first[0] + np.bincount(shuffled[0, :rest], minlength=len(self.names))
        return found

    def epochs(self, samples: int) -> list[float]:
        """How often each source has been gone through after so many samples."""
        counted = zip(self.draws(samples).tolist(), self.rows.tolist(), strict=True)
        return [draws / rows if rows else 0.0 for draws, rows in counted]

    # ------------------------------------------------------------ row -> sample

    def sample_of(self, source: int, epoch: int | np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The samples (int64) that are these rows of a source; -1 where none below MOST_SAMPLES is.

        `epoch`: one for all rows, or one for each.
        """
        rows = np.asarray(rows, dtype=np.int64)
        epochs = np.broadcast_to(np.asarray(epoch, dtype=np.int64), rows.shape)
        salts = self._salts(np.full(rows.shape, source), epochs)
        draws = epochs * self.rows[source] + unpermute(salts, self.rows[source], rows)
        samples = np.full(len(rows), -1, np.int64)
        deals = np.searchsorted(self._before[:, source], draws, side="right") - 1
        blocks = np.full(len(rows), _MOST_BLOCKS)
        for deal in np.unique(deals):
            if self._parts[deal, source]:
                of_deal = np.flatnonzero(deals == deal)
                blocks[of_deal] = self._block_of(int(deal), source, draws[of_deal])
        drawn = np.flatnonzero(blocks < _MOST_BLOCKS)
        for some, chosen, which in self._by_block(blocks[drawn]):
            first, shuffled = self._dealt(some)
            mine = shuffled == source
            starts = np.concatenate([[0], np.cumsum(mine.sum(axis=1))])
            wanted = drawn[chosen]
            number = starts[which] + draws[wanted] - first[which, source]
            samples[wanted] = some[which] * BLOCK + np.nonzero(mine)[1][number]
        return samples

    def _block_of(self, deal: int, source: int, draws: np.ndarray) -> np.ndarray:
        """The block (int64) in which a source makes each of these draws of a deal.

        By bisection between what its share says, give or take half a draw for each source.
        """
        parts = self._parts[deal]
        wanted = draws - self._before[deal, source]
        slack = len(parts) // 2 + 2
        per_draw = (WHOLE // BLOCK) / int(parts[source])  # blocks
        most = _MOST_BLOCKS - int(self._from[deal])
        low = np.clip((wanted - slack) * per_draw - 1, 0, most).astype(np.int64)
        high = np.clip((wanted + 1 + slack) * per_draw + 2, 0, most + 1).astype(np.int64)
        while (open_ := np.flatnonzero(high - low > 1)).size:  # the draw is in [low, high)
            middle = (low[open_] + high[open_]) // 2
            unique, which = np.unique(middle, return_inverse=True)
            later = apportion(parts, unique)[which, source] > wanted[open_]
            high[open_] = np.where(later, middle, high[open_])
            low[open_] = np.where(later, low[open_], middle)
        found: np.ndarray = low + self._from[deal]
        return found

    # ------------------------------------------------------------ blocks

    def _dealt(self, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each block: draws of all sources before it, (blocks, sources) int64, and the source of
        each of its samples, (blocks, BLOCK) int16."""
        deals = np.searchsorted(self._from, blocks, side="right") - 1
        first = np.empty((len(blocks), len(self.names)), np.int64)
        counts = np.empty_like(first)
        for deal in np.unique(deals):
            of_deal = np.flatnonzero(deals == deal)
            inside = blocks[of_deal] - self._from[deal]
            start = apportion(self._parts[deal], inside)
            counts[of_deal] = apportion(self._parts[deal], inside + 1) - start
            first[of_deal] = self._before[deal] + start
        ordinals = np.tile(np.arange(len(self.names), dtype=np.int16), len(blocks))
        sorted_ = np.repeat(ordinals, counts.reshape(-1)).reshape(len(blocks), BLOCK)
        salts = np.array([salt(self.seed, "block", int(b)) for b in blocks], dtype=np.uint64)
        places, low = np.arange(BLOCK, dtype=np.uint64), np.uint64(BLOCK - 1)
        with np.errstate(over="ignore"):
            keys = mix64(salts[:, None] + places)
        # A place in the last ten bits of its key: a sort, which is much faster than an argsort.
        shuffle = np.sort((keys & ~low) | places, axis=1) & low
        return first, np.take_along_axis(sorted_, shuffle.astype(np.int64), axis=1)

    def _draws_of(self, blocks: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Of each sample of the blocks: its source, and which draw of the source it is."""
        first, shuffled = self._dealt(np.array(blocks))
        before = np.take_along_axis(first, shuffled.astype(np.int64), axis=1)
        return shuffled, before + _occurrence(shuffled)

    @staticmethod
    def _by_block(blocks: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Distinct blocks, some at a time: they, the places of their members in `blocks`, and to
        which of them each belongs."""
        order = np.argsort(blocks, kind="stable")
        unique, starts = np.unique(blocks[order], return_index=True)
        ends = np.append(starts, len(blocks))
        for begin in range(0, len(unique), _AT_ONCE):
            some = unique[begin : begin + _AT_ONCE]
            chosen = order[ends[begin] : ends[begin + len(some)]]
            yield some, chosen, np.searchsorted(some, blocks[chosen])

    def _salts(self, sources: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """The salt (uint64) of the permutation of each source and epoch."""
        pairs, which = np.unique(
            np.stack([sources.astype(np.int64), epochs], axis=1), axis=0, return_inverse=True
        )
        salts = [_epoch_salt(self.seed, self.names[s], e) for s, e in pairs.tolist()]
        return np.array(salts, dtype=np.uint64)[which.reshape(-1)]


@lru_cache(maxsize=4096)
def _epoch_salt(seed: int, name: str, epoch: int) -> int:
    return salt(seed, "epoch", name, epoch)


def _occurrence(shuffled: np.ndarray) -> np.ndarray:
    """How often the source of each sample came before it in its block: (blocks, BLOCK) int64."""
    order = np.argsort(shuffled, axis=1, kind="stable")
    ordered = np.take_along_axis(shuffled, order, axis=1)
    place = np.arange(shuffled.shape[1])
    begins = np.ones(shuffled.shape, bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    found = np.empty(shuffled.shape, np.int64)
    since = place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    np.put_along_axis(found, order, since, axis=1)
    return found


def _check(names: Sequence[str], rows: Sequence[int], deals: Sequence[Deal]) -> None:
    if not names or len(names) > MOST_SOURCES:
        raise ValueError(f"{len(names)} sources; an order is of 1 to {MOST_SOURCES}")
    if len(set(names)) < len(names):
        raise ValueError("two sources have the same name")
    starts = [deal.from_sample for deal in deals]
    if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
        raise ValueError("a mixture begins with sample 0, and each of its entries after the last")
    for deal in deals:
        if deal.from_sample % BLOCK or deal.from_sample > MOST_SAMPLES:
            raise ValueError(f"a mixture changes at multiples of {BLOCK}, not {deal.from_sample}")
        if len(deal.parts) != len(names) or sum(deal.parts) != WHOLE or min(deal.parts) < 0:
            raise ValueError(f"parts from sample {deal.from_sample} do not add up to {WHOLE}")
        for name, count, part in zip(names, rows, deal.parts, strict=True):
            if part and count < 1:
                raise ValueError(f"source {name!r} has no rows, and a share of the samples")


# ---------------------------------------------------------------- permutations


def permute(salted: int | np.ndarray, size: int | np.ndarray, index: np.ndarray) -> np.ndarray:
    """Where each index (int64, 0 to size - 1) goes in the permutation that belongs to a salt.

    `salted` (64 bits) and `size` are one for all, or one for each index.
    """
    return _walk(salted, size, index, range(_ROUNDS))


def unpermute(salted: int | np.ndarray, size: int | np.ndarray, index: np.ndarray) -> np.ndarray:
    """The index that `permute` sends to each of these."""
    return _walk(salted, size, index, range(_ROUNDS - 1, -1, -1))


def _walk(
    salted: int | np.ndarray, size: int | np.ndarray, index: np.ndarray, rounds: range
) -> np.ndarray:
    """Through the network until the result is below the size, which it is at the start.

    The network permutes the numbers of as many bits as size - 1 has, fewer than twice the size.
    """
    index = np.asarray(index, dtype=np.int64)
    sizes = np.broadcast_to(np.asarray(size, dtype=np.uint64), index.shape)
    salts = np.broadcast_to(np.asarray(salted, dtype=np.uint64), index.shape)
    bits = np.frexp((sizes - np.uint64(1)).astype(np.float64))[1].astype(np.uint64)
    found = index.astype(np.uint64)
    left = np.arange(len(found))
    while left.size:
        found[left] = _network(salts[left], bits[left], found[left], rounds)
        left = left[found[left] >= sizes[left]]
    return found.astype(np.int64)


def _network(salts: np.ndarray, bits: np.ndarray, x: np.ndarray, rounds: range) -> np.ndarray:
    """A Feistel network without swaps: even rounds change the low half, odd ones the high half."""
    one = np.uint64(1)
    low_bits = (bits + one) >> one
    low_mask = (one << low_bits) - one
    high_mask = (one << (bits - low_bits)) - one
    low, high = x & low_mask, x >> low_bits
    for number in rounds:
        with np.errstate(over="ignore"):
            key = salts + np.uint64((number + 1) * _GOLDEN % 2**64)
            if number % 2:
                high ^= mix64(key + low) & high_mask
            else:
                low ^= mix64(key + high) & low_mask
    mixed: np.ndarray = (high << low_bits) | low
    return mixed
