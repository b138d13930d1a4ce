"""A manifest's tokens as the files of other trainers.

What may live here: the work behind `curation export MANIFEST --format megatron|npy DIR`. Every file
is read against its SHA-256, and appears in DIR when it is whole.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from curation.tokens import megatron
from curation.tokens.claim import claim
from curation.tokens.documents import filled_tokens, whole_documents
from curation.tokens.packed import batches
from manifests.files import AtomicFile
from manifests.reader import Live, Shards, open_reader
from manifests.rows import ROW_GROUP, Rows
from manifests.tokens import SPLITS, File, Manifest, ManifestError

Format = Literal["megatron", "npy"]
MARK = "export.json"
LIVE = 8192  # samples of a file where the run has no shards
_LEVEL = 6  # of gzip


def export(manifest: Manifest, form: Format, directory: Path) -> dict[str, Any]:
    """Writes the tokens of a manifest into a directory; the same command goes on where it stopped.

    Raises NotOurs where the directory holds something else, ManifestError where a file is not what
    the manifest says. Returns what was written, and how it is used.
    """
    claim(directory, MARK, {"schema": 1, "format": form, "manifest": manifest.digest})
    found = _megatron(manifest, directory) if form == "megatron" else _npy(manifest, directory)
    return {"format": form, "directory": str(directory), "dtype": manifest.dtype, **found}


# ---------------------------------------------------------------- Megatron-LM


def _megatron(manifest: Manifest, directory: Path) -> dict[str, Any]:
    """A pair of files for each source and split: whole documents, EOS at the end of each."""
    files, blends = [], {}
    for split in SPLITS:
        blend: list[str] = []
        for source in manifest.sources:
            held = source.splits[split]
            if not held.tokens:  # Megatron cannot map an empty file
                continue
            prefix = directory / split / source.name
            if not Path(f"{prefix}.idx").exists():
                megatron.write(prefix, _documents(manifest, held.files), manifest.dtype)
            blend += [f"{source.weight:.6g}", str(prefix)] if split == "train" else [str(prefix)]
            files.append({"path": str(prefix), "documents": held.copies, "tokens": held.tokens})
        blends[split] = blend
    return {
        "files": files,
        "arguments": {
            "--train-data-path": blends["train"],
            "--valid-data-path": blends["validation"],
        },
    }


def _documents(
    manifest: Manifest, files: tuple[File, ...]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The documents of a source. All pieces of one lie in one file, a window of the packing."""
    for file in files:
        rows = Rows.join(list(batches(manifest, file)))
        try:
            yield whole_documents(rows, manifest.tokenizer.eos)
        except ValueError as error:
            raise ManifestError(f"{manifest.directory / file.path}: {error}") from None


# ---------------------------------------------------------------- flat arrays


def _npy(manifest: Manifest, directory: Path) -> dict[str, Any]:
    """Flat arrays without a header: train in the order of samples, a file for each shard;
    validation by source, row after row. Beside each, where its pieces begin and end."""
    wanted = dict(_validation(manifest, directory / "validation"))
    for number, parts in enumerate(_samples(manifest)):
        wanted[directory / "train" / f"shard-{number:05d}.npy"] = parts
    files = []
    for path in sorted(wanted):
        if not path.exists():
            _write_flat(manifest, wanted[path], path)
        size = np.dtype(manifest.dtype).itemsize
        files.append({"path": str(path), "tokens": path.stat().st_size // size})
    return {"files": files}


def _validation(manifest: Manifest, directory: Path) -> Iterator[tuple[Path, Iterator[Rows]]]:
    for source in manifest.sources:
        held = source.splits["validation"]
        if held.tokens:
            parts = (rows for file in held.files for rows in batches(manifest, file))
            yield directory / f"{source.name}.npy", parts


def _samples(manifest: Manifest) -> Iterator[Iterator[Rows]]:
    """The rows of each shard; of a run that has not written any, the samples LIVE at a time."""
    for shard in manifest.shards:
        yield batches(manifest, shard)
    if not manifest.shards:
        live = open_reader(manifest, live=True, digests=True)
        for begin in range(0, manifest.samples, LIVE):
            yield _batches(live, range(begin, min(begin + LIVE, manifest.samples)))


def _batches(live: Shards | Live, samples: range) -> Iterator[Rows]:
    for first in samples[::ROW_GROUP]:
        yield live.batch(first, min(ROW_GROUP, samples.stop - first))


def _write_flat(manifest: Manifest, parts: Iterator[Rows], path: Path) -> None:
    """The array appears last: where it is, the sidecar is whole, too."""
    place, kind = 0, np.dtype(manifest.dtype).newbyteorder("<")
    with (
        AtomicFile(path) as file,
        AtomicFile(path.with_suffix(".csv.gz")) as beside,
        gzip.GzipFile("", "wb", _LEVEL, beside, mtime=0) as table,
    ):
        for rows in parts:
            tokens = filled_tokens(rows).astype(kind)
            file.write(tokens.view(np.uint8).data)
            table.write(_pieces(rows, manifest.names, place))
            place += len(tokens)


def _pieces(rows: Rows, names: list[str], place: int) -> bytes:
    """Lines of start, end (in tokens of the file), id, source, first token inside the document."""
    ends = place + np.cumsum(rows.lengths, dtype=np.int64)
    sources = np.repeat(rows.sources, np.diff(rows.starts))
    columns = zip(
        (ends - rows.lengths).tolist(),
        ends.tolist(),
        rows.ids.tolist(),
        sources.tolist(),
        rows.offsets.tolist(),
        strict=True,
    )
    return "".join(
        f"{start},{end},{high:016x}{low:016x},{names[source]},{offset}\n"
        for start, end, (high, low), source, offset in columns
    ).encode()


def render(found: Mapping[str, Any]) -> str:
    """For a person: what lies where, and the arguments of Megatron-LM."""
    tokens = sum(file["tokens"] for file in found["files"])
    lines = [
        f"{tokens:,} tokens ({found['dtype']}) in {len(found['files'])} files: {found['directory']}"
    ]
    for option, values in found.get("arguments", {}).items():
        if values:
            lines.append(" ".join([option, *values]))
    return "\n".join(lines)
