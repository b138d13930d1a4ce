"""The manifest of a run, from its receipts.

What may live here: how what the tasks have noted becomes `manifest.json` and `card.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curation.engine.plan import open_plan
from curation.engine.tokens import vocabulary
from curation.engine.tokens.mixture import Mixture
from curation.engine.tokens.plan import TokensPlan
from curation.tokens import packing
from manifests import order, tokens
from manifests.card import card
from manifests.files import write_bytes
from manifests.records import Output, Receipt, digest_of
from manifests.tokens import (
    Corpus,
    Dealing,
    File,
    Manifest,
    Packing,
    Source,
    Split,
    SplitName,
    Validation,
)


def manifest(
    plan: TokensPlan,
    stats: Mapping[str, Any],
    packed: Mapping[str, Receipt],
    mixture: Mixture,
    shards: Sequence[Receipt],
    overlap: Mapping[str, Any] | None,
) -> Manifest:
    """What a finished run is. `stats`: of its corpus."""
    said = plan.recipe.settings
    names = plan.recipe.names
    splits: dict[str, dict[str, Split]] = {
        name: {split: _split(plan, packed, split, ordinal) for split in tokens.SPLITS}
        for ordinal, name in enumerate(names)
    }
    drawn = mixture.order.draws(mixture.samples)
    realised = _realised(plan, shards, splits, drawn)
    sources = tuple(
        Source(
            name=source.name,
            license=source.license,
            weight=mixture.overall.get(source.name, 0.0),
            realised=realised[source.name],
            epochs=mixture.epochs.get(source.name, 0.0),
            max_epochs=source.max_epochs,
            upstream=plan.upstream[source.name],
            splits=splits[source.name],
        )
        for source in said.sources
    )
    dealing = Dealing(
        order.ALGORITHM,
        order.VERSION,
        order.BLOCK,
        mixture.samples,
        tuple(
            tokens.Mixture(
                deal.from_sample,
                dict(weights),
                {name: part for name, part in zip(names, deal.parts, strict=True) if part},
            )
            for deal, weights in zip(mixture.order.deals, mixture.weights, strict=True)
        ),
    )
    held = said.validation
    recipe = plan.recipe.resolved()
    return Manifest(
        name=said.name,
        seed=said.seed,
        recipe=recipe,
        recipe_digest=digest_of(recipe),
        sequence_length=said.sequence_length,
        dtype=vocabulary.of(plan).dtype,
        max_docs_per_row=plan.recipe.max_docs_per_row,
        packing=Packing(said.packing.algorithm, packing.VERSION),
        tokenizer=vocabulary.of(plan).facts,
        dealing=dealing,
        sources=sources,
        shards=tuple(_file(receipt.outputs["rows"], receipt, "rows") for receipt in shards),
        validation=Validation(held.share if held else None, held.source if held else None, overlap),
        corpus=Corpus("corpus", open_plan(plan.corpus).origin, stats),
        directory=plan.run,
    )


def _split(
    plan: TokensPlan, packed: Mapping[str, Receipt], split: SplitName, ordinal: int
) -> Split:
    """What a source has in one split, by its windows."""
    prefix = f"{split}-{ordinal:03d}-"
    mine = [packed[task] for task in sorted(packed) if task.startswith(prefix)]
    files, origins = (
        tuple(_file(r.outputs[name], r, name) for r in mine if name in r.outputs)
        for name in ("rows", "provenance")
    )
    total = {
        name: sum(receipt.counts[name] for receipt in mine)
        for name in ("documents", "copies", "tokens", "pieces", "rows")
    }
    length = plan.recipe.settings.sequence_length
    return Split(
        **total,
        fill=total["tokens"] / (total["rows"] * length) if total["rows"] else 0.0,
        window_bits=max(len(mine) - 1, 0).bit_length(),
        files=files,
        provenance=origins,
    )


def _file(output: Output, receipt: Receipt, name: str) -> File:
    counted = receipt.counts["by_source"] if name == "rows" else {}
    sha256 = receipt.counts["sha256"][name]
    return File(output.path, output.rows, output.bytes, sha256, counted)


def _realised(
    plan: TokensPlan,
    shards: Sequence[Receipt],
    splits: Mapping[str, Mapping[str, Split]],
    drawn: np.ndarray,
) -> dict[str, float]:
    """Shares of the non-padding tokens of all samples: counted in the shards; where there are none,
    by the draws and the average row of each source."""
    counted = {name: 0.0 for name in plan.recipe.names}
    for receipt in shards:
        for name, number in receipt.counts["by_source"].items():
            counted[name] += number
    if not shards:
        for name, draws in zip(counted, drawn.tolist(), strict=True):
            train = splits[name]["train"]
            counted[name] = draws * train.tokens / train.rows if train.rows else 0.0
    total = sum(counted.values())
    return {name: number / total for name, number in counted.items()}


def save(plan: TokensPlan, made: Manifest) -> None:
    """Writes the data card and, last, the manifest."""
    write_bytes(plan.run / "card.md", card(made).encode())
    made.save(plan.run / tokens.NAME)


def documents_of(receipt: Receipt) -> int:
    """Documents that a task has dealt with, for the progress."""
    found: int = receipt.counts.get("documents", 0)
    return found
