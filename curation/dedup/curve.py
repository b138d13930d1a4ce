"""How likely a pair of a given similarity is found: what bands and rows stand for.

What may live here: the S-curve of banding, the parameters that others publish, and the best ones
for a threshold. `curation bands` prints it all.

Two documents are compared if they share a band, that is, all of its `rows` values: of `bands` bands
with probability 1 - (1 - J**rows)**bands at Jaccard similarity J (Leskovec, Rajaraman and Ullman,
"Mining of Massive Datasets", chapter 3). Parameters are named by bands x rows and not by a
similarity: 9x13, often called "0.8", finds 40 % of the pairs of similarity 0.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIMILARITIES = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))

#: Gauss-Legendre nodes of the integrals of `optimum`: exact for up to twice as many permutations.
_NODES = 200


@dataclass(frozen=True)
class Banding:
    """A signature of bands * rows values, and who publishes to use it."""

    bands: int
    rows: int
    used_by: str = ""

    @property
    def name(self) -> str:
        return f"{self.bands}x{self.rows}"

    @property
    def half_point(self) -> float:
        """The similarity of which half of the pairs share a band."""
        return float((1 - 0.5 ** (1 / self.bands)) ** (1 / self.rows))

    def found(self, similarity: float) -> float:
        """The probability that a pair of this similarity shares a band."""
        return float(1 - (1 - similarity**self.rows) ** self.bands)


#: By name. Sources: the projects' papers and configurations; those marked * are the optimum of
#: datasketch (`optimum`) for the threshold and the permutations that the project states.
PRESETS: Mapping[str, Banding] = {
    banding.name: banding
    for banding in (
        Banding(14, 8, "FineWeb, FineWeb-2; the default here"),
        Banding(9, 13, "SlimPajama (0.8, 128)*, RedPajama v2 (0.8)"),
        Banding(20, 13, "NeMo Curator, Nemotron-CC"),
        Banding(24, 10, "text-dedup (0.7, 240)*"),
        Banding(450, 20, "RefinedWeb"),
    )
}


def optimum(
    threshold: float, permutations: int, weights: tuple[float, float] = (0.5, 0.5)
) -> Banding:
    """The bands and rows, within so many permutations, that come closest to a step at `threshold`.

    As datasketch's MinHashLSH has it: the least weighted sum of two integrals over the similarity,
    of the pairs found below the threshold and of those missed above it.
    """
    nodes, parts = np.polynomial.legendre.leggauss(min(permutations // 2 + 1, _NODES))
    below, above = threshold * (nodes + 1) / 2, 1 - (1 - threshold) * (nodes + 1) / 2

    def missed(similarities: NDArray[np.float64], bands: int, rows: Any) -> Any:
        """The mean probability not to share a band."""
        return (1 - similarities ** rows[:, None]) ** bands @ parts / 2

    best, chosen = np.inf, Banding(1, 1)
    for bands in range(1, permutations + 1):
        rows = np.arange(1, permutations // bands + 1)
        errors = weights[0] * threshold * (1 - missed(below, bands, rows))
        errors += weights[1] * (1 - threshold) * missed(above, bands, rows)
        least = int(errors.argmin())
        if errors[least] < best:
            best, chosen = errors[least], Banding(bands, int(rows[least]))
    return chosen


def describe(threshold: float, permutations: int, given: Banding | None) -> dict[str, Any]:
    """The curves of the presets, of the optimum and of `given`, as plain values."""
    best = optimum(threshold, permutations)
    curves = list(PRESETS.values())
    curves += [Banding(best.bands, best.rows, f"optimum for {threshold:g}, {permutations}")]
    curves += [Banding(given.bands, given.rows, "as given")] if given else []
    return {
        "similarities": list(SIMILARITIES),
        "curves": [
            {
                "name": curve.name,
                "bands": curve.bands,
                "rows": curve.rows,
                "permutations": curve.bands * curve.rows,
                "half_point": curve.half_point,
                "found": [curve.found(similarity) for similarity in SIMILARITIES],
                "used_by": curve.used_by,
            }
            for curve in curves
        ],
    }


def render(found: Mapping[str, Any]) -> str:
    """The curves as a table."""
    head = ["bands x rows", "permutations", *(f"{j:.2f}" for j in found["similarities"]), "half at"]
    rows = [[*head, "used by"]]
    for curve in found["curves"]:
        shares = [f"{share:.3f}" for share in curve["found"]]
        numbers = [curve["name"], f"{curve['permutations']:,}", *shares]
        rows.append([*numbers, f"{curve['half_point']:.3f}", curve["used_by"]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(
        [
            *lines,
            "",
            "Probability that two documents share a band, by Jaccard similarity; half at: the",
            "similarity of which half of the pairs do. * datasketch's optimum for what is stated.",
        ]
    )
