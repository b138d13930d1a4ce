"""The data card of a manifest: what it is made of, for a person who has nothing but the card.

What may live here: the Markdown of `card.md`. All of it follows from the manifest and its
provenance files, so the same manifest has the same card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests.hashing import keys, salt
from manifests.reader import changed
from manifests.tokens import SPLITS, Manifest, ManifestError, Split
from manifests.trace import window_number, window_of_keys

_MOST = 20  # languages or licences that are named; the rest in one line


def card(manifest: Manifest) -> str:
    """The card. Raises ManifestError for provenance that is missing or damaged."""
    parts = [
        f"# {manifest.name}",
        _summary(manifest),
        _sources(manifest),
        _validation(manifest),
        _census(manifest, "language", "Languages"),
        _census(manifest, "license", "Licences of the documents"),
        _tokenizer(manifest),
        *_runs(manifest),
        _limits(manifest),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(manifest: Manifest) -> str:
    length, samples = manifest.sequence_length, manifest.samples
    rows = [
        ("training samples", f"{samples:,} rows of {length:,} tokens"),
        ("tokens of these", f"{samples * length:,}, padding included"),
        ("packing", f"{manifest.packing.algorithm}, version {manifest.packing.version}"),
        ("pieces in a row", f"at most {manifest.max_docs_per_row:,}"),
        ("order", f"{manifest.dealing.algorithm}, version {manifest.dealing.version}"),
        ("seed", str(manifest.seed)),
        ("manifest", f"`{manifest.digest}`"),
        ("recipe", f"`{manifest.recipe_digest}`"),
    ]
    if manifest.takedown:
        rows.append(("takedown", f"replaces `{manifest.takedown.get('previous')}`"))
    return _table(["", ""], rows)


def _sources(manifest: Manifest) -> str:
    head = [
        "source",
        "licence",
        "documents",
        "tokens",
        "rows",
        "fill",
        "wanted",
        "realised",
        "epochs",
    ]
    rows = []
    for source in manifest.sources:
        train = source.train
        rows.append(
            (
                source.name,
                source.license or "not stated",
                f"{train.documents:,}",
                f"{train.tokens:,}",
                f"{train.rows:,}",
                f"{train.fill:.2%}",
                f"{source.weight:.2%}",
                f"{source.realised:.2%}",
                f"{source.epochs:.2f} of at most {source.max_epochs:g}",
            )
        )
    text = (
        "Of training; tokens count each repetition that was packed, and the end of each document. "
        "`wanted` and `realised` are shares of the tokens of all samples, padding not counted."
    )
    return f"## Sources\n\n{_table(head, rows)}\n\n{text}" + _mixtures(manifest)


def _mixtures(manifest: Manifest) -> str:
    """The stages of a mixture that has more than one."""
    entries = manifest.dealing.mixture
    if len(entries) < 2:
        return ""
    rows = [
        (f"{entry.from_sample:,}", *(f"{entry.weights.get(n, 0):.2%}" for n in manifest.names))
        for entry in entries
    ]
    return f"\n\n{_table(['from sample', *manifest.names], rows)}"


def _validation(manifest: Manifest) -> str:
    rows = [
        (source.name, f"{split.documents:,}", f"{split.tokens:,}", f"{split.rows:,}")
        for source in manifest.sources
        if (split := source.splits["validation"]).rows
    ]
    how = manifest.validation
    if how.source is not None:
        text = f"Validation is the source {how.source}."
    elif how.share:
        text = f"Validation is {how.share:.2%} of the documents, chosen by the hash of their ids."
    else:
        text = "There is no validation split."
    if rows:
        text += "\n\n" + _table(["source", "documents", "tokens", "rows"], rows)
    if how.overlap:
        text += "\n\nWhat training still shares with it:\n\n" + _overlap(how.overlap)
    return f"## Validation\n\n{text}"


def _overlap(found: Mapping[str, Any]) -> str:
    """Documents and n-grams of validation, and those of them that training has, too."""
    gram = f"{found['ngram']}-gram"
    rows = []
    for name, of, hit in (
        ("documents", "searchable", "overlapping"),
        (f"{gram}s", "ngrams", "known"),
    ):
        share = found[hit] / found[of] if found[of] else 0.0
        rows.append((name, f"{found[of]:,}", f"{found[hit]:,}", f"{share:.2%}"))
    text = _table(["of validation", "looked for", "in training", "share"], rows)
    if found["share"] < 1:
        text += f"\n\nBy a sample of {found['share']:.2%} of the {gram}s, drawn by their hashes."
    return text + f"\n\nA document counts that has one {gram} of words in common with training."


def _tokenizer(manifest: Manifest) -> str:
    tokenizer = manifest.tokenizer
    special = [(f"`{token}`", str(number)) for token, number in tokenizer.special.items()]
    special.sort(key=lambda pair: int(pair[1]))
    text = f"{tokenizer.size:,} entries, as {manifest.dtype}; SHA-256 `{tokenizer.sha256}`."
    table = _table(["special token", "id"], special) if special else "No special tokens."
    return f"## Tokenizer\n\n{text}\n\n{table}"


# ---------------------------------------------------------------- documents


def _census(manifest: Manifest, column: str, title: str) -> str:
    """Distinct documents and their tokens by a column of provenance, both splits together."""
    found: dict[str, list[int]] = {}
    for source in manifest.sources:
        for name in SPLITS:
            for value, documents, tokens in _counted(manifest, source.splits[name], column):
                entry = found.setdefault(value, [0, 0])
                entry[0] += documents
                entry[1] += tokens
    ordered = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))
    rest = [sum(entry[k] for _, entry in ordered[_MOST:]) for k in (0, 1)]
    rows = [(name, f"{d:,}", f"{t:,}") for name, (d, t) in ordered[:_MOST]]
    if len(ordered) > _MOST:
        rows.append((f"{len(ordered) - _MOST} more", f"{rest[0]:,}", f"{rest[1]:,}"))
    text = "Each document once, training and validation."
    return f"## {title}\n\n{_table([column, 'documents', 'tokens'], rows)}\n\n{text}"


def _counted(manifest: Manifest, split: Split, column: str) -> Iterator[tuple[str, int, int]]:
    """Documents and tokens by the values of a column. A document stands in the provenance of every
    window that has a copy of it, and is counted in that of the first copy."""
    for file in split.provenance:
        if problem := changed(manifest.directory, file, digests=False):
            raise ManifestError(problem)
        try:
            table = pq.read_table(manifest.directory / file.path, columns=["id", "tokens", column])
        except (OSError, pa.ArrowException) as error:
            raise ManifestError(f"{file.path}: damaged: {str(error).splitlines()[0]}") from None
        names = b"".join(bytes.fromhex(name) for name in table["id"].to_pylist())
        ids = np.frombuffer(names, ">u8").astype(np.uint64).reshape(-1, 2)
        first = window_of_keys(keys(salt(manifest.seed, "packing"), ids), split.window_bits)
        own = table.filter(pa.array(first == window_number(file)))
        for group in (
            own.group_by(column).aggregate([("tokens", "count"), ("tokens", "sum")]).to_pylist()
        ):
            value = group[column] or "not stated"
            yield value, group["tokens_count"], group["tokens_sum"] or 0


# ---------------------------------------------------------------- runs above


def _runs(manifest: Manifest) -> Iterator[str]:
    """The funnel of each run that a source is made of (`stats` of its upstream, which is the run's
    stats.json), and that of the corpus."""
    for source in manifest.sources:
        if "stats" in source.upstream:
            name = source.upstream.get("name", source.name)
            title = f"## How {source.name} was made: the run {name}"
            yield f"{title}\n\n{_funnel(source.upstream['stats'])}"
    if manifest.corpus is not None and manifest.corpus.stats.get("stages") is not None:
        text = "All sources together, before they were packed."
        yield f"## How the corpus was made\n\n{_funnel(manifest.corpus.stats)}\n\n{text}"


def _funnel(stats: Mapping[str, Any]) -> str:
    """Documents in and kept at each stage, and why others were not: that of `curation stats`."""
    reader = stats.get("reader", {})
    rows = [("records", "", f"{reader.get('records', 0):,}", "")]
    for reason, count in _largest(reader.get("skipped", {})):
        rows.append(("", f"skipped: {reason}", "", f"{count:,}"))
    for stage in stats.get("stages", []):
        rows.append((stage["name"], "", f"{stage['kept']['documents']:,}", ""))
        dropped = {name: amount["documents"] for name, amount in stage["dropped"].items()}
        rows += [("", name, "", f"{count:,}") for name, count in _largest(dropped)]
        failures = _largest(stage.get("failures", {}))
        rows += [("", f"failed: {name}", "", f"{count:,}") for name, count in failures]
    table = _table(["stage", "reason", "documents", "dropped"], rows)
    duplicates = sum(
        amount["documents"]
        for stage in stats.get("stages", [])
        if "dedup" in stage["name"]
        for amount in stage["dropped"].values()
    )
    return f"{table}\n\nDocuments removed as duplicates: {duplicates:,}."


def _largest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


# ---------------------------------------------------------------- limits


def _limits(manifest: Manifest) -> str:
    """What is not as one might take it to be, as far as the manifest tells."""
    lines = [
        "A near-duplicate below the threshold of deduplication is a document of its own.",
        "A document longer than a row is cut into pieces, which are read apart from each other.",
    ]
    unstated = [source.name for source in manifest.sources if not source.license]
    if unstated:
        lines.append(f"No licence is stated for {', '.join(unstated)}.")
    often = [f"{s.name} ({s.epochs:.1f})" for s in manifest.sources if s.epochs > 4]
    if often:
        lines.append(
            f"Read more than four times over: {', '.join(often)}; beyond four epochs repeated data "
            "is worth clearly less than new (Muennighoff 2023)."
        )
    if not manifest.validation.overlap and any(
        source.splits["validation"].rows for source in manifest.sources
    ):
        lines.append("What training shares with validation was not measured.")
    if (found := manifest.validation.overlap) and found["overlapping"]:
        lines.append(
            f"Of {found['searchable']:,} validation documents {found['overlapping']:,} share "
            f"at least {found['ngram']} words in a row with training."
        )
    if manifest.takedown:
        lines.append(
            "Documents were taken down after the run: a tokenizer that it trained has seen them, "
            "and copies below the threshold of deduplication may be left."
        )
    if manifest.corpus is not None and not manifest.corpus.stats.get("complete", True):
        lines.append("Some inputs could not be read to their end.")
    return "## Known limits\n\n" + "\n".join(f"- {line}" for line in lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in the source as well; numbers to the right."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(3, *(len(row[k]) for row in cells)) for k in range(len(head))]
    right = [
        any(row[k] for row in rows) and all(row[k][:1].isdigit() for row in rows if row[k])
        for k in range(len(head))
    ]
    rule = [
        "-" * (width - 1) + ":" if side else "-" * width
        for width, side in zip(widths, right, strict=True)
    ]
    lines = [
        [c.rjust(w) if side else c.ljust(w) for c, w, side in zip(row, widths, right, strict=True)]
        for row in cells
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))
