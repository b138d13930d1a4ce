"""The order of samples: golden, exact, each epoch a permutation, the same however it is cut."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.hashing import salt
from manifests.order import (
    BLOCK,
    WHOLE,
    Deal,
    Order,
    apportion,
    parts_of,
    permute,
    unpermute,
)

# ---------------------------------------------------------------- the plain reference


def plain_mix64(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD % 2**64
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 % 2**64
    return x ^ (x >> 33)


def plain_permute(salted: int, size: int, index: int) -> int:
    bits = (size - 1).bit_length()
    low_bits = (bits + 1) // 2
    while True:
        high, low = divmod(index, 2**low_bits)
        for number in range(8):
            key = salted + (number + 1) * 0x9E3779B97F4A7C15
            if number % 2:
                high ^= plain_mix64((key + low) % 2**64) % 2 ** (bits - low_bits)
            else:
                low ^= plain_mix64((key + high) % 2**64) % 2**low_bits
        index = high * 2**low_bits + low
        if index < size:
            return index


class PlainOrder:
    """One sample after the other, and nothing but counts of draws; Webster's rule seat by seat."""

    def __init__(self, seed: int, names: list[str], rows: list[int], deals: list[Deal]) -> None:
        self.seed, self.names, self.rows, self.deals = seed, names, rows, deals

    def samples(self, count: int) -> list[tuple[int, int, int]]:
        drawn = [0] * len(self.names)
        found: list[tuple[int, int, int]] = []
        block = 0
        while len(found) < count:
            deal = [deal for deal in self.deals if deal.from_sample <= block * BLOCK][-1]
            if deal.from_sample == block * BLOCK:
                seats = [0] * len(self.names)
            labels = []
            before = list(seats)
            for _ in range(BLOCK):
                seats[self.next_seat(deal.parts, seats)] += 1
            for source, (old, new) in enumerate(zip(before, seats, strict=True)):
                labels += [source] * (new - old)
            start = salt(self.seed, "block", block)
            shuffled = sorted(range(BLOCK), key=lambda j: plain_mix64((start + j) % 2**64) >> 10)
            for place in shuffled:
                source = labels[place]
                epoch, index = divmod(drawn[source], self.rows[source])
                salted = salt(self.seed, "epoch", self.names[source], epoch)
                found.append((source, epoch, plain_permute(salted, self.rows[source], index)))
                drawn[source] += 1
            block += 1
        return found[:count]

    @staticmethod
    def next_seat(parts: tuple[int, ...], seats: list[int]) -> int:
        claims = [(Fraction(2 * seats[s] + 1, part), s) for s, part in enumerate(parts) if part]
        return min(claims)[1]


def located(order: Order, samples: np.ndarray) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in order.locate(samples)), strict=True))


NAMES, ROWS = ["web", "code", "books"], [901, 350, 5]
DEALS = [
    Deal(0, parts_of([0.6, 0.39, 0.01], [1, 0.9, 0.5])),
    Deal(2048, (WHOLE // 2, 0, WHOLE // 2)),
]


@cache
def plain() -> list[tuple[int, int, int]]:
    return PlainOrder(20, NAMES, ROWS, DEALS).samples(4096)


def order() -> Order:
    return Order(20, NAMES, ROWS, DEALS)


# ---------------------------------------------------------------- golden


#: Samples 0-5, 1023-1026, 2047-2050 and 4095 as (source, epoch, row), from PlainOrder.
GOLDEN = [
    *((0, 0, 553), (1, 0, 43), (1, 0, 3), (1, 0, 171), (0, 0, 608), (0, 0, 613)),
    *((0, 0, 255), (1, 1, 293), (0, 0, 380), (0, 0, 470)),
    *((1, 2, 249), (0, 1, 69), (0, 1, 890), (0, 1, 51), (2, 212, 4)),
]


def test_the_order_is_the_one_it_has_always_been() -> None:
    """If this fails, every run that was trained on a manifest is lost: bump VERSION instead."""
    at = [0, 1, 2, 3, 4, 5, 1023, 1024, 1025, 1026, 2047, 2048, 2049, 2050, 4095]
    assert located(order(), np.array(at)) == GOLDEN


def test_the_order_is_that_of_the_plain_reference() -> None:
    assert located(order(), np.arange(4096)) == plain()


# ---------------------------------------------------------------- shares


parts = (
    st.lists(st.integers(0, 10_000), min_size=1, max_size=7)
    .filter(any)
    .map(lambda weights: parts_of(weights, [1.0] * len(weights)))
)


@given(parts, st.integers(0, 2**30 - 2))
def test_shares_are_websters_near_the_exact_ones_and_take_nothing_back(
    parts: tuple[int, ...], block: int
) -> None:
    one, next_ = apportion(np.array(parts), np.array([block, block + 1])).tolist()
    assert sum(one) == block * BLOCK and sum(next_) == sum(one) + BLOCK
    for part, seats, later in zip(parts, one, next_, strict=True):
        assert abs(seats - Fraction(part * block * BLOCK, WHOLE)) <= len(parts) / 2 + 1
        assert later >= seats and (part or not later)
    # Webster's rule itself: no source has a stronger claim to one more than another to its last.
    dealt = [(s, p, a) for s, (p, a) in enumerate(zip(parts, one, strict=True)) if p]
    claims = [(Fraction(2 * a + 1, p), s) for s, p, a in dealt]
    last = [(Fraction(2 * a - 1, p), s) for s, p, a in dealt if a]
    assert not last or max(last) < min(claims)


def test_equal_claims_go_to_the_earlier_source() -> None:
    thirds = parts_of([1, 1, 1], [1, 1, 1])
    assert thirds == (WHOLE // 3 + 1, WHOLE // 3, WHOLE // 3)
    sixths = np.array([0, *[WHOLE // 4] * 4, 0])
    assert apportion(sixths, np.array([1])).tolist() == [[0, 256, 256, 256, 256, 0]]


def test_parts_are_shares_of_tokens_not_of_rows() -> None:
    assert parts_of([0.5, 0.5], [1.0, 0.25]) == (WHOLE // 5, WHOLE - WHOLE // 5)
    assert parts_of([1e-30, 1], [1, 1]) == (1, WHOLE - 1)
    assert parts_of([0, 3], [0, 1]) == (0, WHOLE)
    with pytest.raises(ValueError, match="above 0"):
        parts_of([0, 0], [1, 1])


def test_a_source_of_little_weight_is_never_asked_for_more_than_it_has() -> None:
    """Two equal sources, weights 0.001 and 0.999, 10,000 samples: Megatron-LM#705 asks for more."""
    deals = [Deal(0, parts_of([0.001, 0.999], [1, 1]))]
    order = Order(7, ["rare", "common"], [10, 10_000], deals)
    sources, epochs, rows = order.locate(np.arange(10 * BLOCK))
    assert sorted(rows[sources == 0].tolist()) == list(range(10))  # 10.24 are due
    assert sources[:10_000].tolist().count(0) in (9, 10)
    assert not epochs[sources == 0].any() and order.epochs(10 * BLOCK) == [1.0, 1.023]
    assert order.epochs(11 * BLOCK)[0] == 1.1


# ---------------------------------------------------------------- epochs and deals


def test_each_epoch_holds_each_row_once_in_another_order() -> None:
    seen: dict[tuple[int, int], list[int]] = {}
    for source, epoch, row in located(order(), np.arange(4096)):
        seen.setdefault((source, epoch), []).append(row)
    for (source, epoch), rows in seen.items():
        whole = (source, epoch + 1) in seen
        assert len(set(rows)) == len(rows)
        assert not whole or sorted(rows) == list(range(ROWS[source]))
    assert seen[0, 0] != seen[0, 1] and seen[2, 0] != sorted(seen[2, 0])


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_cut_and_any_order_of_asking_gives_the_same(data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.integers(0, 4095), max_size=40))
    assert located(order(), np.array(asked, dtype=np.int64)) == [plain()[i] for i in asked]


def test_the_sample_of_a_row_is_where_the_row_is() -> None:
    for source in range(3):
        own = [(i, s) for i, s in enumerate(plain()) if s[0] == source]
        epochs, rows = (np.array([s[k] for _, s in own]) for k in (1, 2))
        assert order().sample_of(source, epochs, rows).tolist() == [i for i, _ in own]


def test_a_row_that_no_deal_asks_for_any_more_has_no_sample() -> None:
    drawn = {s[2] for s in plain()[:2048] if s[:2] == (1, 2)}
    found = order().sample_of(1, 2, np.arange(350))
    assert {row for row in range(350) if found[row] >= 0} == drawn and len(drawn) < 350


def test_a_row_that_comes_after_the_last_possible_sample_has_none() -> None:
    rare = Order(1, ["a", "b"], [10**9, 10], [Deal(0, (1, WHOLE - 1))])
    rows = permute(salt(1, "epoch", "a", 0), 10**9, np.arange(250, 260))
    found = rare.sample_of(0, 0, rows)  # 2**40 samples hold 2**8 draws of one part in 2**32
    assert [s >= 0 for s in found.tolist()] == [draw < 256 for draw in range(250, 260)]
    assert rare.locate(found[:6])[2].tolist() == rows[:6].tolist()


@given(st.integers(0, 4096))
@settings(max_examples=25, deadline=None)
def test_draws_count_what_was_given(samples: int) -> None:
    drawn = Counter(source for source, _, _ in plain()[:samples])
    assert order().draws(samples).tolist() == [drawn[source] for source in range(3)]


def test_another_mixture_leaves_earlier_samples_and_skips_and_repeats_nothing() -> None:
    changed = Order(20, NAMES, ROWS, [DEALS[0], Deal(1024, (WHOLE // 4, WHOLE // 4, WHOLE // 2))])
    assert located(changed, np.arange(1024)) == plain()[:1024]
    assert located(changed, np.arange(1024, 2048)) != plain()[1024:2048]
    drawn: Counter[int] = Counter()
    for source, epoch, row in located(changed, np.arange(3072)):
        expected = divmod(drawn[source], ROWS[source])
        salted = salt(20, "epoch", NAMES[source], expected[0])
        assert (epoch, row) == (expected[0], plain_permute(salted, ROWS[source], expected[1]))
        drawn[source] += 1


@pytest.mark.parametrize(
    ("rows", "deals", "says"),
    [
        ([1, 0], [Deal(0, (WHOLE - 1, 1))], "'b' has no rows"),
        ([1, 1], [Deal(0, (WHOLE, 1))], "do not add up"),
        ([1, 1], [Deal(1024, (WHOLE, 0))], "begins with sample 0"),
        ([1, 1], [Deal(0, (WHOLE, 0)), Deal(1000, (0, WHOLE))], "multiples of 1024"),
    ],
)
def test_what_cannot_be_dealt_is_refused(rows: list[int], deals: list[Deal], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Order(1, ["a", "b"], rows, deals)


# ---------------------------------------------------------------- permutations


@given(st.integers(0, 2**64 - 1), st.integers(1, 300))
@settings(deadline=None)
def test_a_permutation_holds_every_index_once_and_can_be_undone(salted: int, size: int) -> None:
    moved = permute(salted, size, np.arange(size))
    assert sorted(moved.tolist()) == list(range(size))
    assert unpermute(salted, size, moved).tolist() == list(range(size))
    assert moved.tolist() == [plain_permute(salted, size, index) for index in range(size)]


def test_large_sets_are_permuted_without_being_held() -> None:
    size = 10**12 + 39
    index = np.array([0, 1, size - 1])
    assert unpermute(5, size, permute(5, size, index)).tolist() == index.tolist()
