"""What a run takes of each source, and how many steps the sources allow.

What may live here: rows, tokens and epochs of the sources over some steps, and the refusal of a run
that would go through one too often. Skipped samples count as consumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from manifests.order import MOST_SAMPLES
from training.config import ConfigError
from training.data.batches import Batches


@dataclass(frozen=True)
class Consumption:
    """What is taken of a source: `rows`, repeated ones as often as they are; `tokens` of them by
    the mean fill of the source's rows; `epochs`, times that it is gone through, and their cap."""

    source: str
    rows: int
    tokens: int
    epochs: float
    cap: float

    @property
    def over(self) -> bool:
        """Whether that is too often."""
        return self.epochs > self.cap


def consumption(batches: Batches, steps: int, max_epochs: float | None = None) -> list[Consumption]:
    """Of each source over the first `steps` steps; the cap is `max_epochs`, or else the
    manifest's for the source."""
    manifest = batches.manifest
    draws = batches.order.draws(batches.logs.consumed(steps * batches.size)).tolist()
    return [
        Consumption(
            source=source.name,
            rows=drawn,
            tokens=round(drawn * source.train.fill * manifest.sequence_length),
            epochs=drawn / source.train.rows if drawn else 0.0,
            cap=source.max_epochs if max_epochs is None else max_epochs,
        )
        for source, drawn in zip(manifest.sources, draws, strict=True)
    ]


def most_steps(batches: Batches, max_epochs: float | None = None) -> int:
    """The steps after which the next would take a source beyond its cap."""
    skipped = sum(end - begin for begin, end in batches.logs.holes())
    fewest, too_many = 0, (MOST_SAMPLES - skipped) // batches.size
    while too_many - fewest > 1:
        middle = (fewest + too_many) // 2
        if any(one.over for one in consumption(batches, middle, max_epochs)):
            too_many = middle
        else:
            fewest = middle
    return fewest


def refuse_repetition(batches: Batches, steps: int, max_epochs: float | None = None) -> None:
    """Raises ConfigError, in one line, where a source would be gone through too often."""
    over = [one for one in consumption(batches, steps, max_epochs) if one.over]
    if over:
        worst = max(over, key=lambda one: one.epochs / one.cap)
        raise ConfigError(
            f"data.max_epochs: {steps:,} steps go {worst.epochs:.4g} times through source "
            f"{worst.source!r}, whose cap is {worst.cap:g}; "
            f"{most_steps(batches, max_epochs):,} steps are possible"
        )
