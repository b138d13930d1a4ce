"""The ledger: what entered a stage and what became of it, and the proof that nothing is missing.

What may live here: amounts, the account of one stage in one task, and the checks of conservation.
Stages cannot count; only this file does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from manifests.hashing import mix64

_MASK = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class ConservationError(RuntimeError):
    """A task whose books do not balance; it is not committed."""


@dataclass
class Amount:
    """Documents, words, bytes (of UTF-8 text); before extraction words None, bytes of payload."""

    documents: int = 0
    words: int | None = 0
    bytes: int = 0

    def add(self, other: Amount) -> None:
        self.documents += other.documents
        self.bytes += other.bytes
        if other.documents:
            known = self.words is not None and other.words is not None
            self.words = self.words + other.words if known else None  # type: ignore[operator]

    def take(self, other: Amount) -> None:
        """The reverse of `add`."""
        self.documents -= other.documents
        self.bytes -= other.bytes
        if self.words is not None and other.words is not None:
            self.words -= other.words
        elif not self.documents:
            self.words = 0  # as of nothing

    def plain(self) -> dict[str, int | None]:
        return {"documents": self.documents, "words": self.words, "bytes": self.bytes}

    @staticmethod
    def of(plain: Mapping[str, int | None]) -> Amount:
        return Amount(**plain)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sizes:
    """Words (None before extraction) and bytes of each document of a batch, and its row keys."""

    words: np.ndarray | None
    bytes: np.ndarray
    keys: np.ndarray  # uint64, shape (n, 2)

    def amount(self, mask: np.ndarray) -> Amount:
        words = None if self.words is None else int(self.words[mask].sum())
        return Amount(int(mask.sum()), words, int(self.bytes[mask].sum()))

    def take(self, mask: np.ndarray) -> Sizes:
        words = None if self.words is None else self.words[mask]
        return Sizes(words, self.bytes[mask], self.keys[mask])


def row_keys(salt: int, rows: np.ndarray) -> np.ndarray:
    """128-bit keys (two uint64) of the rows of one unit, whose 64-bit salt is given."""
    with np.errstate(over="ignore"):
        low = mix64(rows.astype(np.uint64) * _GOLDEN + np.uint64(salt))
        high = mix64(low + _GOLDEN)
    return np.stack([high, low], axis=1)


@dataclass
class KeySum:
    """A commutative 128-bit sum over row keys: sees a swap or a duplicate that counts would not."""

    high: int = 0
    low: int = 0

    def add(self, keys: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            high, low = keys.sum(axis=0, dtype=np.uint64) if len(keys) else (0, 0)
        self.high = (self.high + int(high)) & _MASK
        self.low = (self.low + int(low)) & _MASK

    def plus(self, other: KeySum) -> KeySum:
        return KeySum((self.high + other.high) & _MASK, (self.low + other.low) & _MASK)

    def minus(self, other: KeySum) -> KeySum:
        return KeySum((self.high - other.high) & _MASK, (self.low - other.low) & _MASK)

    def plain(self) -> str:
        return f"{self.high:016x}{self.low:016x}"

    @staticmethod
    def of(plain: str) -> KeySum:
        return KeySum(int(plain[:16], 16), int(plain[16:], 16))


@dataclass
class Account:
    """The account of one stage: in = kept + dropped + failed (+ removed - inserted by an edit)."""

    name: str
    entered: Amount = field(default_factory=Amount)
    kept: Amount = field(default_factory=Amount)
    failed: Amount = field(default_factory=Amount)
    edited: Amount = field(default_factory=Amount)
    dropped: dict[str, Amount] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    would_drop: Counter[str] = field(default_factory=Counter)
    removed_words: int = 0
    removed_bytes: int = 0
    inserted_words: int = 0
    inserted_bytes: int = 0
    sum_in: KeySum = field(default_factory=KeySum)
    sum_kept: KeySum = field(default_factory=KeySum)
    sum_out: KeySum = field(default_factory=KeySum)  # dropped and failed
    cpu: float = 0.0  # seconds of this process, for timings only

    def enter(self, sizes: Sizes) -> None:
        self.entered.add(sizes.amount(np.ones(len(sizes.bytes), dtype=bool)))
        self.sum_in.add(sizes.keys)

    def drop(self, reason: str, sizes: Sizes, mask: np.ndarray) -> None:
        self.dropped.setdefault(reason, Amount()).add(sizes.amount(mask))
        self.sum_out.add(sizes.keys[mask])

    def fail(self, error: str, sizes: Sizes, mask: np.ndarray) -> None:
        amount = sizes.amount(mask)
        self.failed.add(amount)
        self.failures[error] += amount.documents
        self.sum_out.add(sizes.keys[mask])

    def keep(self, sizes: Sizes) -> None:
        self.kept.add(sizes.amount(np.ones(len(sizes.bytes), dtype=bool)))
        self.sum_kept.add(sizes.keys)

    def edit(self, before: Sizes, after: Sizes, changed: np.ndarray) -> None:
        """Books an edit of documents that stay: sizes before and after, and which changed."""
        self.edited.add(after.amount(changed))
        grown = after.bytes.astype(np.int64) - before.bytes
        self.inserted_bytes += int(grown[grown > 0].sum())
        self.removed_bytes -= int(grown[grown < 0].sum())
        if before.words is not None and after.words is not None:
            grown = after.words - before.words
            self.inserted_words += int(grown[grown > 0].sum())
            self.removed_words -= int(grown[grown < 0].sum())

    def plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "in": self.entered.plain(),
            "kept": self.kept.plain(),
            "failed": self.failed.plain(),
            "edited": self.edited.plain(),
            "dropped": {reason: a.plain() for reason, a in sorted(self.dropped.items())},
            "failures": dict(sorted(self.failures.items())),
            "would_drop": dict(sorted(self.would_drop.items())),
            "removed": {"words": self.removed_words, "bytes": self.removed_bytes},
            "inserted": {"words": self.inserted_words, "bytes": self.inserted_bytes},
            "sums": {
                "in": self.sum_in.plain(),
                "kept": self.sum_kept.plain(),
                "out": self.sum_out.plain(),
            },
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> Account:
        account = Account(plain["name"])
        account.merge(plain)
        return account

    def merge(self, plain: Mapping[str, Any]) -> None:
        """Adds the account of another task."""
        self.entered.add(Amount.of(plain["in"]))
        self.kept.add(Amount.of(plain["kept"]))
        self.failed.add(Amount.of(plain["failed"]))
        self.edited.add(Amount.of(plain["edited"]))
        for reason, amount in plain["dropped"].items():
            self.dropped.setdefault(reason, Amount()).add(Amount.of(amount))
        self.failures.update(plain["failures"])
        self.would_drop.update(plain["would_drop"])
        self.removed_words += plain["removed"]["words"]
        self.removed_bytes += plain["removed"]["bytes"]
        self.inserted_words += plain["inserted"]["words"]
        self.inserted_bytes += plain["inserted"]["bytes"]
        self.sum_in = self.sum_in.plus(KeySum.of(plain["sums"]["in"]))
        self.sum_kept = self.sum_kept.plus(KeySum.of(plain["sums"]["kept"]))
        self.sum_out = self.sum_out.plus(KeySum.of(plain["sums"]["out"]))

    def take(self, other: Account) -> None:
        """Takes documents out of the account that are booked alone in another one: the reverse of
        `merge`. A reason that no document is left of goes as well."""
        self.entered.take(other.entered)
        self.kept.take(other.kept)
        self.failed.take(other.failed)
        self.edited.take(other.edited)
        for reason, amount in other.dropped.items():
            self.dropped[reason].take(amount)
        self.dropped = {reason: a for reason, a in self.dropped.items() if a.documents}
        self.failures = self.failures - other.failures  # counts of 0 go
        self.would_drop.subtract(other.would_drop)
        self.removed_words -= other.removed_words
        self.removed_bytes -= other.removed_bytes
        self.inserted_words -= other.inserted_words
        self.inserted_bytes -= other.inserted_bytes
        self.sum_in = self.sum_in.minus(other.sum_in)
        self.sum_kept = self.sum_kept.minus(other.sum_kept)
        self.sum_out = self.sum_out.minus(other.sum_out)

    def settle(self, rest: Amount) -> None:
        """Takes words and bytes out that are no document's: all that none is left of, else `rest`.
        What an edit has removed is the less by what only came, or the more by what only went."""
        words, size = [], []
        for amount in (self.entered, self.kept):
            gone = rest if amount.documents else Amount(0, amount.words, amount.bytes)
            size.append(gone.bytes)
            amount.bytes -= gone.bytes
            if amount.words is not None:
                words.append(gone.words or 0)
                amount.words -= words[-1]
        net = self.removed_bytes - self.inserted_bytes - (size[0] - size[1])
        self.removed_bytes, self.inserted_bytes = _gross(self.removed_bytes, net)
        if len(words) == 2:
            net = self.removed_words - self.inserted_words - (words[0] - words[1])
            self.removed_words, self.inserted_words = _gross(self.removed_words, net)

    def imbalance(self) -> str | None:
        """What does not balance, or None."""
        out = Amount()
        for amount in [self.kept, self.failed, *self.dropped.values()]:
            out.add(amount)
        name = self.name
        if self.entered.documents != out.documents:
            return f"{name}: {self.entered.documents} documents in, {out.documents} out"
        if self.sum_in != self.sum_kept.plus(self.sum_out):
            return f"{name}: the rows that left are not the rows that came"
        bytes_out = out.bytes + self.removed_bytes - self.inserted_bytes
        if self.entered.bytes != bytes_out:
            return f"{name}: {self.entered.bytes} bytes in, {bytes_out} accounted for"
        if self.entered.words is not None and out.words is not None:
            words_out = out.words + self.removed_words - self.inserted_words
            if self.entered.words != words_out:
                return f"{name}: {self.entered.words} words in, {words_out} accounted for"
        return None


def _gross(removed: int, net: int) -> tuple[int, int]:
    """What was removed and inserted: as much removed as before, or as little as there can be."""
    removed = max(removed, net, 0) if net else 0
    return removed, removed - net


def check_chain(accounts: list[Account], documents: int) -> None:
    """Raises ConservationError unless every stage balances and hands on what the next receives."""
    before: Account | None = None
    for account in accounts:
        if problem := account.imbalance():
            raise ConservationError(problem)
        if before is None and account.entered.documents != documents:
            raise ConservationError(
                f"{account.name}: {documents} documents read, {account.entered.documents} came in"
            )
        if before is not None and (
            account.sum_in != before.sum_kept or account.entered != before.kept
        ):
            raise ConservationError(f"{account.name} did not receive what {before.name} kept")
        before = account


def check_reader(reader: Mapping[str, Any]) -> None:
    """Raises ConservationError unless records = documents + skipped."""
    skipped = sum(reader["skipped"].values())
    if reader["records"] != reader["documents"] + skipped:
        raise ConservationError(
            f"reader: {reader['records']} records, {reader['documents']} documents "
            f"and {skipped} skipped"
        )
