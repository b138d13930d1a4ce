"""A tokens run for a person: its sources, what they weigh, and how often they are seen.

What may live here: the table that `curation run` and `curation stats` print of a manifest.
"""

from __future__ import annotations

from collections.abc import Sequence

from manifests.tokens import Manifest

_HEAD = ("source", "documents", "tokens", "rows", "fill", "wanted", "realised", "epochs", "most")


def render(manifest: Manifest) -> str:
    """A line per source of training, their sum, then validation and how the samples are dealt."""
    rows: list[Sequence[str]] = [_HEAD]
    mixed = [source for source in manifest.sources if source.train.rows]
    for source in mixed:
        train = source.train
        rows.append(
            (
                source.name,
                f"{train.documents:,}",
                f"{train.tokens:,}",
                f"{train.rows:,}",
                f"{train.fill:.2%}",
                f"{source.weight:.2%}",
                f"{source.realised:.2%}",
                f"{source.epochs:.2f}",
                f"{source.max_epochs:g}",
            )
        )
    total = [sum(getattr(s.train, name) for s in mixed) for name in ("documents", "tokens", "rows")]
    fill = total[1] / (total[2] * manifest.sequence_length) if total[2] else 0.0
    sums = [f"{n:,}" for n in total]
    rows.append(("train", *sums, f"{fill:.2%}", "100.00%", "100.00%", "", ""))
    held = [s.splits["validation"] for s in manifest.sources if s.splits["validation"].rows]
    if held:
        sums = [f"{sum(getattr(s, n) for s in held):,}" for n in ("documents", "tokens", "rows")]
        filled = sum(s.tokens for s in held) / sum(s.rows for s in held) / manifest.sequence_length
        rows.append(("validation", *sums, f"{filled:.2%}", "", "", "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    body = [lines[0], rule, *lines[1 : len(mixed) + 1], rule, *lines[len(mixed) + 1 :]]
    size = sum(file.bytes for file in manifest.shards)
    where = f"{len(manifest.shards):,} shards, {size / 1e6:,.1f} MB" if manifest.shards else "live"
    length, samples = manifest.sequence_length, manifest.samples
    vocabulary = f"{manifest.tokenizer.size:,} entries, {manifest.dtype}"
    return "\n".join(
        [
            *body,
            "",
            f"samples    {samples:,} of {length:,} tokens ({where})",
            f"tokenizer  {manifest.tokenizer.path} ({vocabulary})",
        ]
    )
