"""The two logs of a training run that decide its batches: mixtures and skips, in sample numbers.

What may live here: reading `mixture.jsonl` and `skips.jsonl`, and what follows from them: deals,
live samples, digests. They are append-only, a JSON object on each line; what has no newline at its
end was torn while it was written, and counts for nothing. Sample numbers are those of the order
(manifests/order.py). A *live* sample is one that is not skipped; training counts in live samples,
so that skipped ones are consumed and never seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from manifests import typed
from manifests.order import BLOCK, WHOLE, Deal, Order
from manifests.records import digest_of
from manifests.tokens import Manifest, ManifestError, Mixture

MIXTURE, SKIPS = "mixture.jsonl", "skips.jsonl"

T = TypeVar("T")


@dataclass(frozen=True)
class Skip:
    """Samples `begin` to `end - 1` are left out; `reason` says why."""

    begin: int
    end: int
    reason: str


@dataclass(frozen=True)
class Logs:
    """Both logs of a run, as they are now."""

    mixtures: tuple[Mixture, ...] = ()
    skips: tuple[Skip, ...] = ()

    @staticmethod
    def read(run: Path) -> Logs:
        """Of a run directory; a log that is not there is empty. Raises ManifestError, in one line
        with file and line, for entries that cannot be."""
        mixtures: list[Mixture] = []
        skips: list[Skip] = []
        for where, mixture in _entries(run / MIXTURE, Mixture):
            if mixture.from_sample < 0 or mixture.from_sample % BLOCK:
                said = f"begins at sample {mixture.from_sample}, no multiple of {BLOCK}"
                raise ManifestError(f"{where}: a mixture that {said}")
            if sum(mixture.parts.values()) != WHOLE or min(mixture.parts.values()) < 0:
                raise ManifestError(f"{where}: parts that do not add up to {WHOLE}")
            mixtures.append(mixture)
        for where, skip in _entries(run / SKIPS, Skip):
            if not 0 <= skip.begin < skip.end:
                raise ManifestError(f"{where}: samples {skip.begin} to {skip.end} are no range")
            for other in skips:
                if skip.begin < other.end and other.begin < skip.end:
                    said = f"{other.begin} to {other.end}, which are skipped before"
                    raise ManifestError(f"{where}: {skip.begin} to {skip.end} overlap {said}")
            skips.append(skip)
        return Logs(tuple(mixtures), tuple(skips))

    # ------------------------------------------------------------ skips

    def holes(self) -> list[tuple[int, int]]:
        """The skipped ranges, disjoint, in order, and with live samples between them."""
        merged: list[tuple[int, int]] = []
        for skip in sorted(self.skips, key=lambda skip: skip.begin):
            if merged and skip.begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], skip.end))
            else:
                merged.append((skip.begin, skip.end))
        return merged

    @cached_property
    def _holes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Begins and ends of the holes, and samples skipped before each and after the last."""
        begins, ends = np.array(self.holes(), dtype=np.int64).reshape(-1, 2).T
        return begins, ends, np.concatenate([[0], np.cumsum(ends - begins)])

    def samples(self, first: int, count: int) -> np.ndarray:
        """The samples (int64) that are the live ones `first` to `first + count - 1`."""
        begins, _, skipped = self._holes
        live = np.arange(first, first + count, dtype=np.int64)
        found: np.ndarray = live + skipped[np.searchsorted(begins - skipped[:-1], live, "right")]
        return found

    def live(self, samples: np.ndarray) -> np.ndarray:
        """Which live sample each sample is (int64); -1 for skipped ones."""
        begins, ends, skipped = self._holes
        before = np.searchsorted(begins, samples, "right")
        inside = (before > 0) & (samples < np.append(0, ends)[before])
        found: np.ndarray = np.where(inside, -1, samples - skipped[before])
        return found

    def consumed(self, live: int) -> int:
        """The sample after the last of so many live ones: those below are seen or skipped."""
        return int(self.samples(live - 1, 1)[0]) + 1 if live else 0

    # ------------------------------------------------------------ mixtures

    def deals(self, manifest: Manifest) -> list[Deal]:
        """What the samples are dealt by: an entry takes the place of all before it, the manifest's
        own included, that begin where it does or later. Raises ManifestError for a source that the
        manifest does not have."""
        deals = manifest.deals()
        for mixture in self.mixtures:
            for name in mixture.parts:
                if name not in manifest.names:
                    said = f"{MIXTURE}: from sample {mixture.from_sample}"
                    raise ManifestError(f"{said}: the manifest has no source {name!r}")
            parts = tuple(mixture.parts.get(name, 0) for name in manifest.names)
            deals = [deal for deal in deals if deal.from_sample < mixture.from_sample]
            deals.append(Deal(mixture.from_sample, parts))
        return deals

    def order(self, manifest: Manifest) -> Order:
        """The order of the run's samples. Raises ManifestError where they cannot be dealt."""
        try:
            return manifest.order(self.deals(manifest))
        except ManifestError:
            raise
        except ValueError as error:
            raise ManifestError(f"{MIXTURE}: {error}") from None

    def prefix(self, manifest: Manifest, live: int) -> str:
        """32 hex digits that belong to what decides the first `live` live samples."""
        end = self.consumed(live)
        deals = [deal for deal in self.deals(manifest) if deal.from_sample < end]
        holes = [hole for hole in self.holes() if hole[0] < end]
        return digest_of([manifest.digest, [[d.from_sample, d.parts] for d in deals], holes])


def whole(data: bytes) -> bytes:
    """The lines of a log that were written to their end."""
    return data[: data.rfind(b"\n") + 1]


def _entries(place: Path, kind: type[T]) -> Iterator[tuple[str, T]]:
    """The entries of a log, each with its file and line."""
    if not place.exists():
        return
    for number, line in enumerate(whole(place.read_bytes()).splitlines(), 1):
        where = f"{place}, line {number}"
        try:
            yield where, typed.build(kind, json.loads(line))
        except ValueError as error:
            said = (
                error if not isinstance(error, json.JSONDecodeError | UnicodeError) else "no JSON"
            )
            raise ManifestError(f"{where}: damaged: {said}") from None
