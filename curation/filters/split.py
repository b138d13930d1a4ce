"""Which documents are held out for validation: chosen by id, or a source named for it.

What may live here: the stage `split`.

Held-out documents are known before deduplication, which takes them as earlier than the others
(DESIGN section 8): it removes their copies from train, and no document of train removes one of
them. So this stage says it as a signal, which `policy: highest(split.validation)` reads, and drops
nothing.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import pyarrow.compute as pc
from pydantic import Field, model_validator

from curation.document import Documents, id_words
from curation.stage import Filter, Rule, Signals
from manifests.hashing import below, keys, salt


class Split(Filter):
    """Says which documents are held out for validation, and drops none.

    `validation` (float64): 1 or 0. Deduplication with `policy: highest(split.validation)` takes
    those with 1 as earlier than the others.
    """

    version = 1
    needs_text: ClassVar[bool] = False
    rules: ClassVar[tuple[Rule, ...]] = ()

    share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the documents, by a hash of (seed, id): the same whatever else is in the run."""
    seed: int = Field(default=20, ge=0, lt=2**63)
    """Of the choice."""
    source: str | None = None
    """All documents of this source, instead of a share."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.share is None) == (self.source is None):
            raise ValueError("either `share` or `source` is wanted")
        return self

    def score(self, docs: Documents) -> Signals:
        if self.share is None:
            chosen = pc.fill_null(pc.equal(docs["source"], self.source), False)
            return {"validation": chosen.to_numpy(zero_copy_only=False).astype(np.float64)}
        places = keys(salt(self.seed, "validation"), id_words(docs["id"]))
        return {"validation": (places < below(self.share)).astype(np.float64)}
