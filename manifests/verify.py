"""Whether a manifest and its files are what they say.

What may live here: checks that read every file once, in order, and hold nothing but eight bytes for
each training row: a hash, by which each row of the shards is held against the packed row that the
order says it is.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manifests.hashing import keys, mix64, salt
from manifests.order import parts_of
from manifests.reader import Files, changed
from manifests.records import digest_of, origin_of
from manifests.rows import Rows, schema
from manifests.tokens import SPLITS, File, Manifest, ManifestError, Source, Split
from manifests.trace import window_number, window_of_keys

_CLOSE = 1e-9  # of shares, which are quotients of whole numbers
_NAMED = 3  # rows or documents of one fault that are named


@dataclass
class Report:
    """What was read and what is wrong: `problems` are lines that begin with a place, none where all
    holds."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    samples: int = 0  # rows of shards that were held against packed ones
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.problems


def check(manifest: Manifest) -> Report:
    """Reads every file of a manifest: sizes, SHA-256, schemas, shapes, counts, documents whole,
    shards as the order says, shares and epochs, and whether the runs below are those it was made
    of, where they still are. Raises nothing for what is wrong: it is reported.
    """
    report = Report()
    _records(manifest, report)
    _origins(manifest, report)
    sound = {file.path for file in _listed(manifest) if _bytes(manifest, file, report)}
    hashes = []
    for source in manifest.sources:
        for name in SPLITS:
            found = _split(manifest, source, name, sound, report)
            if name == "train":
                hashes.append(found)
    _shards(manifest, hashes, sound, report)
    _strangers(manifest, report)
    return report


def render(report: Report) -> str:
    """The report for a person."""
    lines = [
        f"{report.files:,} files, {report.bytes / 1e6:,.1f} MB; {report.rows:,} rows; "
        f"{report.samples:,} samples held against the packed rows",
        *report.problems[:20],
    ]
    if len(report.problems) > 20:
        lines.append(f"... and {len(report.problems) - 20} more")
    return "\n".join([*lines, "holds" if report.holds else "does not hold"])


# ---------------------------------------------------------------- the manifest by itself


Say = Callable[[str], None]


def _repeated(manifest: Manifest, say: Say) -> None:
    """What the manifest repeats of its recipe, and the parts that follow from weights and fills."""
    said = manifest.recipe
    packing, held = said.get("packing") or {}, said.get("validation") or {}
    repeated: list[tuple[str, Any, Any]] = [
        ("name", said.get("name"), manifest.name),
        ("seed", said.get("seed"), manifest.seed),
        ("sequence_length", said.get("sequence_length"), manifest.sequence_length),
        ("packing.algorithm", packing.get("algorithm"), manifest.packing.algorithm),
        ("max_docs_per_row", packing.get("max_docs_per_row"), manifest.max_docs_per_row),
        ("validation.share", held.get("share"), manifest.validation.share),
        ("validation.source", held.get("source"), manifest.validation.source),
    ]
    own = {source["name"]: source for source in said.get("sources") or ()}
    for source in manifest.sources:
        listed = own.get(source.name, {})
        for what in ("license", "max_epochs"):
            repeated.append((f"{source.name}: {what}", listed.get(what), getattr(source, what)))
    for what, recipe, here in repeated:
        if recipe is not None and recipe != here:
            say(f"manifest.json: {what} {here!r}, the recipe says {recipe!r}")
    if manifest.takedown is not None:
        return  # which leaves the parts, and empties rows
    fills = [source.train.fill or 1.0 for source in manifest.sources]
    for entry, deal in zip(manifest.dealing.mixture, manifest.deals(), strict=True):
        weights = [entry.weights.get(name, 0.0) for name in manifest.names]
        if parts_of(weights, fills) != deal.parts:
            say(
                f"manifest.json: parts from sample {entry.from_sample} are not those of its weights"
            )


def _vocabulary(manifest: Manifest, say: Say) -> None:
    """What the manifest says of the tokenizer, against the file."""
    tokenizer = manifest.tokenizer
    try:
        told = json.loads((manifest.directory / tokenizer.path).read_bytes())
        known = dict(told["model"]["vocab"])
        known.update({token["content"]: token["id"] for token in told.get("added_tokens") or ()})
        size = max(known.values()) + 1
    except (OSError, ValueError, KeyError, TypeError):
        return  # a missing or damaged file is said by its digest; others are not looked into
    if size != tokenizer.size:
        say(f"manifest.json: tokenizer of {tokenizer.size} entries, {tokenizer.path} has {size}")
    for token, number in tokenizer.special.items():
        if known.get(token) != number:
            say(f"manifest.json: {token} is {known.get(token)} in {tokenizer.path}, not {number}")
    for what in ("eos", "bos", "pad", "mask"):
        number = getattr(tokenizer, what)
        if number is not None and number not in tokenizer.special.values():
            say(f"manifest.json: {what} {number} is none of the special tokens")


def _records(manifest: Manifest, report: Report) -> None:
    """What the manifest says of itself: digests, sums, shares."""
    say = report.problems.append
    if digest_of(manifest.recipe) != manifest.recipe_digest:
        say("manifest.json: recipe_digest is not that of the recipe")
    try:
        epochs = manifest.order().epochs(manifest.samples)
    except ValueError as error:
        say(f"manifest.json: {error}")
        return
    _repeated(manifest, say)
    _vocabulary(manifest, say)
    if manifest.shards and sum(file.rows for file in manifest.shards) != manifest.samples:
        say(f"manifest.json: the shards do not have {manifest.samples} rows")
    for source, own in zip(manifest.sources, epochs, strict=True):
        if abs(own - source.epochs) > _CLOSE * max(own, 1):
            say(f"manifest.json: {source.name}: {source.epochs} epochs, the order makes {own}")
        if own > source.max_epochs:
            say(f"manifest.json: {source.name}: {own:.3f} epochs of at most {source.max_epochs}")
        for name in SPLITS:
            _sums(manifest, source, name, source.splits[name], report)


def _origins(manifest: Manifest, report: Report) -> None:
    """The documents runs below, where they still are: the corpus, and those whose documents it has
    read. Are they the ones that the manifest names?"""
    if manifest.corpus is None:
        return
    place = manifest.directory / manifest.corpus.path / "run.json"
    corpus = _origin(manifest, place, {manifest.corpus.digest}, report)
    named = {source.upstream.get("digest") for source in manifest.sources}
    read = {Path(file["path"]).parent for file in (corpus or {}).get("inputs", ())}
    for run in sorted(path.parent for path in read if path.name == "documents"):
        _origin(manifest, run / "run.json", named, report)


def _origin(
    manifest: Manifest, path: Path, wanted: set[str | None], report: Report
) -> dict[str, Any] | None:
    """The record of a run that is one of the wanted ones; None where it is not there any more."""
    if not path.exists():
        return None
    shown = os.path.relpath(path, manifest.directory)
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        if origin_of(record) in wanted:
            return record
        report.problems.append(f"{shown}: not the run that the manifest was made of")
    except (OSError, ValueError, KeyError, TypeError):
        report.problems.append(f"{shown}: damaged")
    return None


def _sums(manifest: Manifest, source: Source, name: str, split: Split, report: Report) -> None:
    place = f"manifest.json: {source.name} {name}"
    if sum(file.rows for file in split.files) != split.rows:
        report.problems.append(f"{place}: its files do not have {split.rows} rows")
    if sum(file.tokens.get(source.name, 0) for file in split.files) != split.tokens:
        report.problems.append(f"{place}: its files do not have {split.tokens} tokens")
    room = split.rows * manifest.sequence_length
    if abs(split.fill - (split.tokens / room if room else 0)) > _CLOSE:
        report.problems.append(f"{place}: fill {split.fill} is not tokens / (rows x length)")


def _listed(manifest: Manifest) -> Iterator[File]:
    tokenizer = manifest.tokenizer
    yield File(tokenizer.path, 0, tokenizer.bytes, tokenizer.sha256)
    for source in manifest.sources:
        for name in SPLITS:
            yield from source.splits[name].files
            yield from source.splits[name].provenance
    yield from manifest.shards


def _bytes(manifest: Manifest, file: File, report: Report) -> bool:
    report.files += 1
    report.bytes += file.bytes
    problem = changed(manifest.directory, file, digests=True)
    if problem:
        report.problems.append(problem)
    return problem is None


def _strangers(manifest: Manifest, report: Report) -> None:
    """Files that lie where the manifest's do, and are none of them."""
    known = {file.path for file in _listed(manifest)}
    for folder in ("packed", "documents", "shards"):
        for path in sorted((manifest.directory / folder).rglob("*.parquet")):
            relative = path.relative_to(manifest.directory).as_posix()
            if relative not in known and not path.name.startswith("."):
                report.problems.append(f"{relative}: the manifest does not name it")


# ---------------------------------------------------------------- packed rows


def _split(
    manifest: Manifest, source: Source, name: str, sound: set[str], report: Report
) -> np.ndarray | None:
    """Checks a split of a source; the hashes of its rows, None where not all could be read."""
    split = source.splits[name]
    origins = {window_number(file): file for file in split.provenance}
    totals: Counter[str] = Counter()
    hashes: list[np.ndarray] | None = []
    for file in split.files:
        rows = _read(manifest, file, sound, report)
        origin = origins.pop(window_number(file), None)
        if rows is None:
            hashes = None
            continue
        if set(rows.sources.tolist()) - {manifest.names.index(source.name)}:
            report.problems.append(f"{file.path}: rows of another source than {source.name}")
        if hashes is not None:
            hashes.append(row_hashes(rows))
        totals.update(pieces=len(rows.lengths))
        if origin is None:
            report.problems.append(f"{file.path}: no provenance of its documents")
        elif origin.path in sound:
            totals.update(_documents(manifest, split, file, origin, rows, report))
    for origin in origins.values():
        report.problems.append(f"{origin.path}: no packed rows of its documents")
    if hashes is None or sum(map(len, hashes)) != split.rows:
        return None  # and that was said
    for what in ("documents", "copies", "pieces"):
        if totals[what] != getattr(split, what):
            report.problems.append(
                f"manifest.json: {source.name} {name}: {getattr(split, what)} {what}, "
                f"its files have {totals[what]}"
            )
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def _read(manifest: Manifest, file: File, sound: set[str], report: Report) -> Rows | None:
    """The rows of a file, None where it is damaged, which has been said then."""
    if file.path not in sound:
        return None
    try:
        kind = pq.read_schema(manifest.directory / file.path)
        if (
            kind.remove_metadata()
            != schema(manifest.sequence_length, manifest.dtype).remove_metadata()
        ):
            report.problems.append(f"{file.path}: not the columns of packed rows")
            return None
        groups = list(Files(manifest, [file]).groups())
    except (ManifestError, OSError, pa.ArrowException) as error:
        report.problems.append(str(error))
        return None
    rows = Rows.join(groups) if groups else None
    if rows is None or not len(rows):
        return rows
    report.rows += len(rows)
    for fault, bad in _faults(manifest, rows):
        report.problems.append(f"{file.path}: {fault}: row {_some(bad)}")
    counted = np.bincount(rows.sources, weights=rows.filled(), minlength=len(manifest.names))
    tokens = {n: int(t) for n, t in zip(manifest.names, counted, strict=True) if t}
    if tokens != dict(file.tokens):
        report.problems.append(f"{file.path}: tokens {tokens}, not {dict(file.tokens)}")
    return rows


def _faults(manifest: Manifest, rows: Rows) -> Iterator[tuple[str, np.ndarray]]:
    """What no row may be, and the rows that are it."""
    pieces = np.diff(rows.starts)
    of_row = np.repeat(np.arange(len(rows)), pieces)
    checks = {
        "more tokens than the row has": np.flatnonzero(rows.filled() > rows.tokens.shape[1]),
        f"more than {manifest.max_docs_per_row} pieces": np.flatnonzero(
            pieces > manifest.max_docs_per_row
        ),
        "a piece without tokens": of_row[rows.lengths < 1],
        "an offset below 0": of_row[rows.offsets < 0],
        "a token that the tokenizer does not have": np.flatnonzero(
            (rows.tokens >= manifest.tokenizer.size).any(axis=1)
        ),
    }
    return ((fault, bad) for fault, bad in checks.items() if len(bad))


def _documents(
    manifest: Manifest, split: Split, file: File, origin: File, rows: Rows, report: Report
) -> dict[str, int]:
    """Holds the pieces of a window against its provenance; counts copies, and the documents whose
    first copy is here.

    Each document is whole, as often as its keys say that it is in this window: as many pieces at
    each offset, each beginning where the one before ended, the last one with EOS and at the count
    of tokens that provenance says.
    """
    try:
        table = pq.read_table(manifest.directory / origin.path, columns=["id", "copies", "tokens"])
        names = b"".join(bytes.fromhex(name) for name in table["id"].to_pylist())
        copies, tokens = (table[name].to_numpy() for name in ("copies", "tokens"))
        ids = np.frombuffer(names, ">u8").astype(np.uint64).reshape(len(copies), 2)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        report.problems.append(f"{origin.path}: no provenance: {str(error).splitlines()[0]}")
        return {}
    bits, window = split.window_bits, window_number(file)
    here = np.zeros(len(ids), np.int64)
    first = 0
    for copy in range(int(copies.max(initial=0))):
        own = window_of_keys(keys(salt(manifest.seed, "packing"), ids, copy), bits)
        here += (own == window) & (copy < copies)
        first = first if copy else int(here.sum())
    distinct, group = np.unique(ids, axis=0, return_inverse=True)  # ids may repeat in a source
    own_id = _ordinals(distinct, rows.ids)
    of_row = np.repeat(np.arange(len(rows)), np.diff(rows.starts))
    ends = np.cumsum(rows.lengths, dtype=np.int64)
    before = np.concatenate([[0], ends])[rows.starts[:-1]]  # tokens of all rows before this one
    last = np.clip(ends - before[of_row] - 1, 0, rows.tokens.shape[1] - 1)
    ended = rows.tokens[of_row, last] == manifest.tokenizer.eos
    faults = {
        "no provenance of document": np.unique(rows.ids[own_id < 0], axis=0),
        "not whole: document": distinct[
            _broken(own_id, rows, ended, group.reshape(-1), here, tokens)
        ],
    }
    for fault, bad in faults.items():
        if len(bad):
            some = np.array([f"{high:016x}{low:016x}" for high, low in bad.tolist()])
            report.problems.append(f"{file.path}: {fault} {_some(some)}")
    return {"documents": first, "copies": int(here.sum())}


def _broken(
    own: np.ndarray,
    rows: Rows,
    ended: np.ndarray,
    documents: np.ndarray,
    here: np.ndarray,
    tokens: np.ndarray,
) -> np.ndarray:
    """The ids whose pieces do not make `here` copies of `tokens` tokens, by their ordinals.

    `own`: the id of each piece; `documents`, `here`, `tokens`: of each document of the provenance
    its id (which may repeat), how many copies are in this window, and of how many tokens. Copies
    may be cut at different places, so what is counted is: at every place of a document as many
    pieces begin, and documents end, as pieces end, and documents begin; and the pieces that end
    with EOS are those that end a document.
    """
    known = np.flatnonzero(own >= 0)
    begins = rows.offsets[known]
    ends = begins + rows.lengths[known]
    events = (  # id, place, pieces that begin less those that end, pieces that end with EOS
        (own[known], begins, 1, 0),
        (own[known], ends, -1, ended[known]),
        (documents, np.zeros_like(tokens), -here, 0),
        (documents, tokens, here, -here),
    )
    columns = [np.concatenate(parts) for parts in zip(*map(_alike, events), strict=True)]
    keys, which = np.unique(np.stack(columns[:2], axis=1), axis=0, return_inverse=True)
    wrong = np.zeros(len(keys), bool)
    for counted in columns[2:]:
        wrong |= np.bincount(which.reshape(-1), counted, len(keys)) != 0
    bad: np.ndarray = np.unique(keys[wrong, 0])
    return bad


def _alike(columns: tuple[Any, ...]) -> list[np.ndarray]:
    """Columns of one length, int64; a number stands for a whole column."""
    return [np.broadcast_to(column, columns[0].shape).astype(np.int64) for column in columns]


def _ordinals(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each wanted id stands among ids, -1 for nowhere."""
    kind = np.dtype([("high", "<u8"), ("low", "<u8")])
    one, other = (np.ascontiguousarray(x).view(kind).reshape(-1) for x in (ids, wanted))
    if not len(one):
        return np.full(len(other), -1, np.int64)
    order = np.argsort(one)
    place = np.minimum(np.searchsorted(one[order], other), len(one) - 1)
    found: np.ndarray = np.where(one[order][place] == other, order[place], -1)
    return found


# ---------------------------------------------------------------- shards


def _shards(
    manifest: Manifest, hashes: list[np.ndarray | None], sound: set[str], report: Report
) -> None:
    """Each row of the shards against the packed row of its sample, and the realised shares."""
    try:
        order = manifest.order()
    except ValueError:
        return  # said already
    realised = np.zeros(len(manifest.names))
    whole, begin = True, 0
    for file in manifest.shards:
        rows = _read(manifest, file, sound, report)
        whole = whole and rows is not None
        if rows is not None:
            realised += np.bincount(
                rows.sources, weights=rows.filled(), minlength=len(manifest.names)
            )
            sources, _, numbers = order.locate(np.arange(begin, begin + len(rows)))
            wrong = _others(rows, sources, numbers, hashes, report)
            if len(wrong):
                report.problems.append(
                    f"{file.path}: not the row that the order says: sample {_some(begin + wrong)}"
                )
        begin += file.rows
    for source, tokens in zip(manifest.sources, realised, strict=True):
        share = tokens / max(realised.sum(), 1)
        if whole and manifest.shards and abs(share - source.realised) > _CLOSE:
            report.problems.append(
                f"manifest.json: {source.name}: realised {source.realised}, the shards have {share}"
            )


def _others(
    rows: Rows,
    sources: np.ndarray,
    numbers: np.ndarray,
    hashes: list[np.ndarray | None],
    report: Report,
) -> np.ndarray:
    """Which rows are not the packed ones; sources that could not be read are left out."""
    found = row_hashes(rows)
    wrong = rows.sources != sources
    for source, packed in enumerate(hashes):
        own = np.flatnonzero(sources == source)
        if packed is not None:
            wrong[own] |= found[own] != packed[numbers[own]]
            report.samples += len(own)
    return np.flatnonzero(wrong)


def row_hashes(rows: Rows) -> np.ndarray:
    """A hash (uint64) of each row: its tokens, and the pieces in their order."""
    factors = mix64(np.arange(rows.tokens.shape[1])) | np.uint64(1)
    found = np.zeros(len(rows), np.uint64)
    with np.errstate(over="ignore"):
        for begin in range(0, len(rows), 64):  # in eight bytes for each token
            part = slice(begin, begin + 64)
            found[part] = rows.tokens[part].astype(np.uint64) @ factors
        piece = rows.lengths.astype(np.uint64)
        for column in (rows.offsets.astype(np.uint64), rows.ids[:, 0], rows.ids[:, 1]):
            piece = mix64(piece + np.uint64(1)) ^ column
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix64(piece) * _place(rows))])
        found = found + (ends[rows.starts[1:]] - ends[rows.starts[:-1]])
    return mix64(found)


def _place(rows: Rows) -> np.ndarray:
    """An odd number for each piece, by its place in its row."""
    counts = np.diff(rows.starts)
    place = np.arange(len(rows.lengths)) - np.repeat(rows.starts[:-1], counts)
    return mix64(place + 1) | np.uint64(1)


def _some(bad: np.ndarray) -> str:
    named = ", ".join(str(one) for one in bad[:_NAMED].tolist())
    return named + (f" and {len(bad) - _NAMED:,} more" if len(bad) > _NAMED else "")
