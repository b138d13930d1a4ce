"""The ledger sees what is lost, doubled or swapped; sums do not depend on how work is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.engine.ledger import (
    Account,
    ConservationError,
    KeySum,
    Sizes,
    check_chain,
    check_reader,
    row_keys,
)

counts = st.lists(st.integers(0, 10_000), min_size=1, max_size=40)


def sizes(values: list[int], salt: int = 7) -> Sizes:
    array = np.array(values, dtype=np.int64)
    return Sizes(array, array * 5, row_keys(salt, np.arange(len(values))))


def books(values: list[int], fates: list[int]) -> Account:
    """An account of one stage: fate 0 kept, 1 and 2 dropped, 3 failed."""
    account = Account("stage")
    every = sizes(values)
    account.enter(every)
    fate = np.array(fates)
    for code, reason in ((1, "a"), (2, "b")):
        account.drop(reason, every, fate == code)
    account.fail("Error", every, fate == 3)
    account.keep(every.take(fate == 0))
    return account


@given(counts, st.data())
def test_a_stage_that_loses_nothing_balances(values: list[int], data: st.DataObject) -> None:
    fates = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    assert books(values, fates).imbalance() is None


@given(counts, st.data())
def test_the_sum_of_parts_is_the_whole(values: list[int], data: st.DataObject) -> None:
    fates = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    whole = books(values, fates)
    cut = data.draw(st.integers(0, len(values)))
    every, fate = sizes(values), np.array(fates)
    total = Account("stage")
    for part in (np.arange(len(values)) >= cut, np.arange(len(values)) < cut):
        own = every.take(part)
        account = Account("stage")
        account.enter(own)
        for code, reason in ((1, "a"), (2, "b")):
            account.drop(reason, own, fate[part] == code)
        account.fail("Error", own, fate[part] == 3)
        account.keep(own.take(fate[part] == 0))
        total.merge(account.plain())
    without = {"dropped": None, "failures": None}
    assert {**total.plain(), **without} == {**whole.plain(), **without}


def test_a_swap_is_seen_although_the_counts_agree() -> None:
    account = Account("stage")
    every = sizes([5, 5, 5])
    account.enter(every)
    account.drop("a", every, np.array([True, False, False]))
    account.keep(every.take(np.array([True, True, False])))  # row 0 twice, row 2 lost
    assert account.imbalance() == "stage: the rows that left are not the rows that came"


def test_a_lost_document_and_lost_bytes_are_seen() -> None:
    account = Account("stage")
    every = sizes([5, 6])
    account.enter(every)
    account.keep(every.take(np.array([True, False])))
    assert account.imbalance() == "stage: 2 documents in, 1 out"
    account = Account("stage")
    account.enter(every)
    account.keep(Sizes(every.words, every.bytes - 1, every.keys))
    assert account.imbalance() == "stage: 55 bytes in, 53 accounted for"


def test_an_edit_balances_by_what_it_removed_and_inserted() -> None:
    account = Account("stage")
    before = sizes([10, 10])
    after = Sizes(np.array([8, 15]), np.array([40, 80]), before.keys)
    account.enter(before)
    account.edit(before, after, np.array([True, True]))
    account.keep(after)
    assert account.imbalance() is None
    assert (account.removed_words, account.inserted_words) == (2, 5)
    assert (account.removed_bytes, account.inserted_bytes) == (10, 30)


def test_a_stage_must_receive_what_the_one_before_kept() -> None:
    first, second = books([1, 2, 3], [0, 0, 1]), books([1, 2], [0, 0])
    check_chain([first, second], 3)
    other = Account("other")
    strange = sizes([1, 2], salt=8)
    other.enter(strange)
    other.keep(strange)
    with pytest.raises(ConservationError, match="other did not receive what stage kept"):
        check_chain([first, other], 3)
    with pytest.raises(ConservationError, match="4 documents read, 3 came in"):
        check_chain([first], 4)


def test_the_reader_must_account_for_every_record() -> None:
    check_reader({"records": 3, "documents": 1, "skipped": {"request": 2}})
    with pytest.raises(ConservationError, match="3 records, 1 documents and 1 skipped"):
        check_reader({"records": 3, "documents": 1, "skipped": {"request": 1}})


@given(st.permutations(range(20)))
def test_key_sums_do_not_depend_on_order(order: list[int]) -> None:
    keys = row_keys(1, np.arange(20))
    one, other = KeySum(), KeySum()
    one.add(keys)
    for row in order:
        other.add(keys[[row]])
    assert one == other


def test_row_keys_differ_by_unit_and_row() -> None:
    keys = np.concatenate([row_keys(salt, np.arange(1000)) for salt in range(20)])
    assert len(np.unique(keys, axis=0)) == len(keys)
    assert len(np.unique(keys[:, 0])) == len(np.unique(keys[:, 1])) == len(keys)
