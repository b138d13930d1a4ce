"""The small model that ships, `kenlm/sample`: `python -m curation.models.kenlm.sample DIRECTORY`.

What may live here: how it is trained on the reference prose. It is a demonstration: it judges the
sample crawl, and annotates whatever else it is given.
"""

from __future__ import annotations

import sys
from pathlib import Path

from curation.models import reference
from curation.models.kenlm import train

#: CCNet has order 5 and 65,536 pieces, of a million texts; this is what a hundred texts can teach.
#: They are too few for discounts of their own. Whole documents are one line, as in CCNet's chain.
OPTIONS = train.Options(
    order=3,
    vocabulary=1_200,
    normaliser="ccnet",
    estimator="own",
    fallback=True,
    form="arpa",
)


def make(target: Path) -> None:
    """Trains the model anew: the same files every time, for the same libraries."""
    train.train(
        reference.texts(),
        target,
        OPTIONS,
        say=lambda message: None,
        language="en",
        license="as this package",
        source="the reference prose of this package (curation/models/reference)",
        demonstration=True,
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
