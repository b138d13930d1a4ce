"""What a reader counts: the balance of a file, and what was wrong with it.

What may live here: `Tally` and `Problem`. The invariant is `records == documents + sum(skipped)`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from curation.read.span import Entry

PROBLEMS_KEPT = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the file itself. `offset`: bytes in the file; rows for Parquet."""

    reason: str
    offset: int
    detail: str = ""


@dataclass(slots=True)
class Tally:
    """The balance of one file, or of a byte range of it.

    `skipped` counts records that gave no document, by reason; `notes` what was noticed about
    documents that were kept. Of `problems` the first 100 are kept, `problem_counts` has them all.
    `incomplete`: the file could not be read to its end. `digest` (blake2b, 32 hex digits) and
    `bytes` are of the file (of the range) as stored; both are set when it has been read to its end.

    `first` is the entry where reading really began, None when no item was found to begin in the
    range; `next` the one after the last item that the range owns, None if that is not known. Only
    kinds whose files can be split set them.
    """

    records: int = 0
    documents: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    problem_counts: Counter[str] = field(default_factory=Counter)
    incomplete: bool = False
    digest: str = ""
    bytes: int = 0
    first: Entry | None = None
    next: Entry | None = None

    def skip(self, reason: str) -> None:
        """Count one record that gives no document."""
        self.records += 1
        self.skipped[reason] += 1

    def keep(self, count: int = 1) -> None:
        """Count a record (or several) that gives a document."""
        self.records += count
        self.documents += count

    def take_down(self, count: int) -> None:
        """Count documents that were kept as skipped, since a list takes them down."""
        if count:
            self.documents -= count
            self.skipped["takedown"] += count

    def problem(
        self, reason: str, offset: int, detail: str = "", *, incomplete: bool = True
    ) -> None:
        """Report something wrong with the file."""
        self.problem_counts[reason] += 1
        self.incomplete |= incomplete
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(Problem(reason, offset, detail))
