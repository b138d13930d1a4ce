"""`python -m training.plots RUN [RUN ...]`: the curves of runs as PNGs in RUN/plots of the first.

What may live here: reading the metrics of runs and drawing them; runs are drawn over each other.
matplotlib is loaded only here. A dotted line marks a restart, a red one a batch that was left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.commands import leave
from training.metrics import read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMOOTH = 50  # the mean runs over one part in so many of the steps


@dataclass(frozen=True)
class Run:
    """A run, and the lines of its files that count."""

    place: Path
    name: str
    health: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    validation: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def load(place: Path, name: str) -> Run:
        """Of its directory."""
        files = ("health", "operations", "validation", "events")
        return Run(place, name, *(read(place, file) for file in files))

    @cached_property
    def sources(self) -> list[str]:
        """The sources of its manifest."""
        return list(self.health[-1]["sources"]) if self.health else []

    def column(self, *path: str, of: str = "health") -> tuple[np.ndarray, np.ndarray]:
        """Steps and a value of each, where it is known."""
        lines = getattr(self, of)
        values = []
        for line in lines:
            for key in path:
                line = (line or {}).get(key)
            values.append(np.nan if line is None else line)
        steps, found = np.array([line["step"] for line in lines]), np.array(values, dtype=float)
        known = np.isfinite(found)
        return steps[known], found[known]

    def marks(self) -> tuple[list[int], list[int]]:
        """The first steps of restarts that count, and the steps whose batches were left out."""
        pairs = zip(self.health[:-1], self.health[1:], strict=True)
        restarts = [after["step"] for before, after in pairs if before["start"] != after["start"]]
        skipped = [event["spike"] for event in self.events if event["event"] == "rollback"]
        return restarts, sorted(set(skipped))


def smooth(values: np.ndarray, over: int) -> np.ndarray:
    """The mean of the values about each, `over // 2` on both sides or as many as there are."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    places = np.arange(len(values))
    begins = np.maximum(0, places - over // 2)
    ends = np.minimum(len(values), places + over // 2 + 1)
    means: np.ndarray = (sums[ends] - sums[begins]) / (ends - begins)
    return means


# ---------------------------------------------------------------- drawings


def loss(axes: Sequence[Axes], runs: Sequence[Run]) -> None:
    """Per step, smoothed, and held out."""
    for number, run in enumerate(runs):
        colour = f"C{number}"
        steps, values = run.column("loss")
        over = max(1, len(values) // _SMOOTH)
        axes[0].plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
        axes[0].plot(steps, smooth(values, over), color=colour, label=f"{run.name} training")
        steps, values = run.column("loss", of="validation")
        if len(values):
            axes[0].plot(
                steps, values, "o", color=colour, mec="black", label=f"{run.name} held out"
            )
    _range(axes[0], [run.column("loss")[1] for run in runs])


def sources(axes: Sequence[Axes], runs: Sequence[Run]) -> None:
    """Smoothed training loss of each source, a panel for each run."""
    for panel, run in zip(axes, runs, strict=True):
        found = []
        for number, name in enumerate(run.sources):
            steps, values = run.column("sources", name, "loss")
            smoothed = smooth(values, max(1, len(values) // _SMOOTH))
            panel.plot(steps, smoothed, color=f"C{number}", label=name)
            found.append(smoothed)
        _range(panel, found)


def norm(axes: Sequence[Axes], runs: Sequence[Run]) -> None:
    """The norm of all gradients before clipping."""
    for number, run in enumerate(runs):
        steps, values = run.column("norm")
        axes[0].plot(steps, values, color=f"C{number}", linewidth=0.8, label=run.name)
    axes[0].set_yscale("log")


def rate(axes: Sequence[Axes], runs: Sequence[Run]) -> None:
    """The learning rate."""
    for number, run in enumerate(runs):
        axes[0].plot(*run.column("rate"), color=f"C{number}", label=run.name)
    _from_zero(axes[0])


def throughput(axes: Sequence[Axes], runs: Sequence[Run]) -> None:
    """Tokens per second of a rank, and the share of the time that waits for data."""
    for number, run in enumerate(runs):
        steps, values = run.column("tokens_per_second_per_rank", of="operations")
        _, used = run.column("mfu", of="operations")
        known = f" (MFU {np.median(used):.1%})" if len(used) else ""
        axes[0].plot(steps, values, color=f"C{number}", label=f"{run.name}{known}")
        steps, waits = run.column("data_wait", of="operations")
        axes[1].plot(steps, 100 * waits, color=f"C{number}", label=run.name)
    for panel in axes:
        _from_zero(panel)


def mixture(axes: Sequence[Axes], runs: Sequence[Run]) -> None:
    """Share of all tokens so far that were a source's, and what the mixture wants of it."""
    for panel, run in zip(axes, runs, strict=True):
        for number, name in enumerate(run.sources):
            steps, shares = run.column("sources", name, "share")
            panel.plot(steps, 100 * shares, color=f"C{number}", label=f"{name}, seen")
            steps, shares = run.column("sources", name, "wanted")
            panel.plot(steps, 100 * shares, "--", color=f"C{number}", label=f"{name}, wanted")
        _from_zero(panel)


Drawing = Callable[[Sequence["Axes"], Sequence[Run]], None]

#: Name of the file, title, what the panels' axes say, whether each run has a panel; the drawing.
DRAWINGS: list[tuple[str, str, list[str], bool, Drawing]] = [
    ("loss", "Loss", ["nats per token"], False, loss),
    ("sources", "Training loss by source, smoothed", ["nats per token"], True, sources),
    ("norm", "Gradient norm before clipping", ["norm"], False, norm),
    ("rate", "Learning rate", ["learning rate"], False, rate),
    (
        "throughput",
        "Throughput",
        ["tokens per second and rank", "waiting for data, % of the time"],
        False,
        throughput,
    ),
    ("mixture", "Mixture: tokens of each source so far", ["% of all tokens"], True, mixture),
]


def draw(places: Sequence[Path], out: Path) -> list[Path]:
    """Draws runs over each other into a directory; gives the files. Raises ImportError without
    matplotlib, and ValueError for a directory that holds no metrics."""
    from matplotlib.figure import Figure

    runs = [Run.load(place, name) for place, name in zip(places, names(places), strict=True)]
    for run in runs:
        if not run.health:
            raise ValueError(f"{run.place}: no health.jsonl with a step; no run, or none begun")
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, title, labels, apart, drawing in DRAWINGS:
        panels = len(runs) if apart else len(labels)
        figure = Figure(figsize=(9, 1.2 + 3.8 * panels), layout="constrained")
        axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
        drawing(axes, runs)
        figure.suptitle(f"{title}: {runs[0].name}" if len(runs) == 1 else title)
        for number, panel in enumerate(axes):
            _finish(panel, runs[number : number + 1] if apart else runs)
            panel.set_ylabel(labels[0] if apart else labels[number])
            if apart and len(runs) > 1:
                panel.set_title(runs[number].name, fontsize="medium")
        axes[-1].set_xlabel("step")
        written.append(out / f"{name}.png")
        figure.savefig(written[-1], dpi=110)
    return written


def names(places: Sequence[Path]) -> list[str]:
    """The directories' names, or whole paths where two are alike."""
    short = [place.resolve().name for place in places]
    return short if len(set(short)) == len(short) else [str(place) for place in places]


def _range(axes: Axes, values: Sequence[np.ndarray]) -> None:
    """Spikes may leave the picture: what is shown is what most steps have, and the first loss."""
    found = np.concatenate([*values, [np.nan]])
    if np.isfinite(found).any():
        low, high = np.nanmin(found), np.nanquantile(found, 0.995)
        first = [own[0] for own in values if len(own) and own[0] < 2 * high]
        high = max([high, *first])
        margin = 0.05 * (high - low) or 0.1
        axes.set_ylim(low - margin, high + margin)


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])  # with room for the legend


def _finish(axes: Axes, runs: Sequence[Run]) -> None:
    labelled = set()
    for run in runs:
        for steps, colour, style, label in zip(
            run.marks(), ("black", "red"), (":", "-"), ("restart", "batch left out"), strict=True
        ):
            for step in steps:
                own = None if label in labelled else label
                axes.axvline(step, color=colour, linestyle=style, alpha=0.7, lw=1.0, label=own)
                labelled.add(label)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", loc="upper right")


# ---------------------------------------------------------------- command


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives its exit code."""
    parser = argparse.ArgumentParser(prog="training.plots", description="Draws curves of runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of runs")
    parser.add_argument("--out", type=Path, help="where to (RUN/plots of the first run)")
    parser.add_argument("--quiet", action="store_true", help="do not name the files")
    given = parser.parse_args(arguments)
    try:
        written = draw(given.runs, given.out or given.runs[0] / "plots")
    except ImportError:
        print("training.plots: no curves: matplotlib is not installed", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"training.plots: {error}", file=sys.stderr)
        return 2
    if not given.quiet:
        print("\n".join(map(str, written)))
    return 0


if __name__ == "__main__":
    leave(main)
