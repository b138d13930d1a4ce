"""What a run's numbers are: how the model does, how fast, and how much of each source it has seen.

What may live here: from the results of steps to the values of health and operations, and to the
progress line. No files; what has been seen of each source goes into checkpoints.

Speed is taken over the time of the steps themselves (waiting for data included), not over that of
checkpoints, validation and rollbacks. MFU = (6 N + 12 L H Q T) * tokens/s / (peak * GPUs), as PaLM
counts (training/flops.py); tokens are those of whole rows, padding included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from training.data.batches import Batches
from training.tables import count

if TYPE_CHECKING:
    from training.loop import Result

#: Dense bf16 FLOP/s of a GPU, by what its name has in it, from NVIDIA's data sheets. Where they
#: give the number with sparsity, it is half of that.
PEAKS = {
    "GB200": 2500e12,
    "B200": 2250e12,
    "GH200": 989.4e12,
    "H200": 989.4e12,
    "H100": 989.4e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H20": 148e12,
    "A100": 312e12,
    "A10G": 70e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165.2e12,
}


def peak(name: str) -> float | None:
    """The dense bf16 FLOP/s of a GPU by its name, of which the longest part counts that is known;
    None where there is none."""
    return next((PEAKS[key] for key in sorted(PEAKS, key=len, reverse=True) if key in name), None)


@dataclass(frozen=True)
class Facts:
    """What does not change in a run: `tokens` of a step's rows as the model sees them, `flops` of a
    token, `peak` FLOP/s of a rank's device (None: not known)."""

    sources: Sequence[str]
    steps: int
    tokens: int
    flops: float
    ranks: int
    peak: float | None


class Meter:
    """Counts what steps gave. Its state belongs to the steps done, and is restored with them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.seen = [0] * len(facts.sources)  # tokens of each source, without padding
        self.wanted = [0.0] * len(facts.sources)  # what the mixture had wanted of as many
        self.speed: dict[str, Any] = {}  # what `operations` gave last
        self._begin()

    # ------------------------------------------------------------ the model

    def health(self, result: Result, weights: Sequence[float]) -> dict[str, Any]:
        """The values of a step, and its part in the speed; `weights`: as `wanted` gives them."""
        self._steps += 1
        self._seconds += result.seconds
        self._waited += result.waited
        self.seen = [old + new for old, new in zip(self.seen, result.tokens, strict=True)]
        whole = sum(result.tokens)
        self.wanted = [old + whole * w for old, w in zip(self.wanted, weights, strict=True)]
        total = max(1, sum(self.seen))
        sources = {
            name: {
                "loss": summed / own if own else None,
                "labels": own,
                "tokens": seen,
                "share": seen / total,
                "wanted": wanted / total,
            }
            for name, (summed, own), seen, wanted in zip(
                self.facts.sources, result.by_source, self.seen, self.wanted, strict=True
            )
        }
        own = {name: getattr(result, name) for name in ("loss", "norm", "rate", "labels")}
        if result.skipped:  # not finite: nothing was moved
            own["skipped"] = True
        return {**own, "tokens": sum(self.seen), "sources": sources}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON."""
        names = self.facts.sources
        return {
            "seen": dict(zip(names, self.seen, strict=True)),
            "wanted": dict(zip(names, self.wanted, strict=True)),
        }

    def load(self, state: dict[str, Any]) -> None:
        """What a checkpoint kept."""
        self.seen = [state["seen"][name] for name in self.facts.sources]
        self.wanted = [state["wanted"][name] for name in self.facts.sources]
        self._begin()

    # ------------------------------------------------------------ the machine

    def _begin(self) -> None:
        self._steps, self._seconds, self._waited, self._saving = 0, 0.0, 0.0, 0.0
        self._since = time.perf_counter()

    def saved(self, seconds: float) -> None:
        """A checkpoint held the steps up for so long."""
        self._saving += seconds

    def operations(self, device: torch.device) -> dict[str, Any]:
        """The values of the steps since the last call (at least one), of which each takes
        `seconds`, or `elapsed` with everything that lies between steps."""
        facts, steps, seconds = self.facts, self._steps, max(self._seconds, 1e-9)
        speed = steps * facts.tokens / seconds
        cuda = device.type == "cuda"
        known = None if facts.peak is None else facts.peak * facts.ranks
        self.speed = {
            "tokens_per_second": speed,
            "tokens_per_second_per_rank": speed / facts.ranks,
            "mfu": None if known is None else facts.flops * speed / known,
            "data_wait": self._waited / seconds,
            "seconds": seconds / steps,
            "elapsed": (time.perf_counter() - self._since) / steps,
            "checkpoint_seconds": self._saving,
            "memory_allocated": torch.cuda.max_memory_allocated(device) if cuda else None,
            "memory_reserved": torch.cuda.max_memory_reserved(device) if cuda else None,
        }
        self._begin()
        return self.speed

    def line(self, step: int, result: Result) -> str:
        """How far the run is, with the speed that was measured last."""
        parts = [f"step {step:,}/{self.facts.steps:,}", f"loss {result.loss:.4f}"]
        parts += [f"norm {result.norm:.3g}", f"lr {result.rate:.2e}"]
        if self.speed:
            parts.append(f"{count(self.speed['tokens_per_second'])} tokens/s")
            if self.speed["mfu"] is not None:
                parts.append(f"MFU {self.speed['mfu']:.1%}")
            parts.append(f"data wait {self.speed['data_wait']:.1%}")
            parts.append(f"ETA {clock((self.facts.steps - step) * self.speed['elapsed'])}")
        return "  ".join(parts)


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def wanted(batches: Batches, step: int) -> list[float]:
    """The shares of tokens, adding up to 1, that the mixture wants of each source where a step
    begins."""
    first = int(batches.samples(step)[0])
    entries = [(entry.from_sample, entry.weights) for entry in batches.manifest.dealing.mixture]
    entries += [(entry.from_sample, entry.weights) for entry in batches.logs.mixtures]
    weights = [weights for begin, weights in entries if begin <= first][-1]
    whole = sum(weights.values())
    return [weights.get(name, 0.0) / whole for name in batches.manifest.names]
