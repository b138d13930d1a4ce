"""A global step in memory: its exchange on arrays instead of files, for any division of the work.

What may live here: `decide`, which tests of global steps share.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from curation.document import Documents
from curation.stage import Edits, GlobalStep, Removals


class _Sources:
    def __init__(
        self,
        units: Sequence[int],
        records: Sequence[np.ndarray],
        texts: Sequence[Documents],
        done: Mapping[str, Sequence[Mapping[str, np.ndarray]]],
        scratch: Path,
    ) -> None:
        self.units = units
        self.scratch = scratch
        self.batches: tuple[str, ...] = ()
        self._records, self._texts, self._done = records, texts, done

    def records(self, unit: int) -> np.ndarray:
        return self._records[unit].copy()

    def texts(self, unit: int) -> Iterator[Documents]:
        yield self._texts[unit]

    def index(self, name: str) -> Iterator[tuple[int, np.ndarray]]:
        return iter(())

    def arrays(self, phase: str, name: str) -> Iterator[np.ndarray]:
        return iter([arrays[name] for arrays in self._done[phase]])

    def rows(self, phase: str, name: str) -> list[int]:
        return [len(array) for array in self.arrays(phase, name)]


def decide(
    step: GlobalStep, units: Sequence[Documents], parts: int = 1, group: int = 1
) -> list[Removals | Edits]:
    """What is decided about each unit. `parts`: of phases by range; `group`: units of a task."""
    records = [np.concatenate([step.no_records(), step.prepare(unit)]) for unit in units]
    groups = [range(len(units))[i : i + group] for i in range(0, len(units), group)]
    done: dict[str, list[Mapping[str, np.ndarray]]] = {}
    with tempfile.TemporaryDirectory() as scratch:

        def sources(some: Sequence[int] = ()) -> _Sources:
            return _Sources(some, records, units, done, Path(scratch))

        for phase in step.phases():
            shares: list[Sequence[int]] = [()]
            if phase.by == "units":
                shares = list(groups)
            elif phase.by == "range":
                shares = [()] * parts
            elif phase.by == "rows":
                [weights] = sources().arrays(*phase.of)
                shares = [()] * len(weights)
            done[phase.name] = [
                step.exchange(phase.name, part, len(shares), sources(some))
                for part, some in enumerate(shares)
            ]
        return [found for some in groups for found in step.collate(sources(some))]
