"""A small tokens directory by the contract: packed files, provenance, shards, corpus, manifest.

What may live here: a naive maker of one, with nothing of `curation` in it. Documents are short
English-like texts; a packer that fills rows one after the other; the shards are the order, sample
by sample. `make(directory)` gives the manifest that it wrote.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from manifests.hashing import below, keys, salt
from manifests.order import ALGORITHM, BLOCK, VERSION, Deal, Order, parts_of
from manifests.records import digest_of
from manifests.rows import PARQUET, ROW_GROUP, Rows, to_table
from manifests.tokens import (
    SPLITS,
    Corpus,
    Dealing,
    File,
    Manifest,
    Mixture,
    Packing,
    Source,
    Split,
    Validation,
)
from manifests.tokens import Tokenizer as TokenizerFacts

LENGTH, PIECES, SHARE, BITS = 64, 6, 0.2, 1
EOS, PAD = 256, 257
MORE = ("<|mask|>", *(f"<|sentinel_{number}|>" for number in range(8)))
WORDS = ("mill", "grinds", "grain", "every", "field", "into", "flour", "for", "bread", "people")
SOURCES = {"web": 60, "code": 25, "books": 8}  # documents
WEIGHTS = {"web": 0.5, "code": 0.3, "books": 0.2}

_PROVENANCE = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "url", "date", "source", "crawl", "license")),
        ("language", pa.string()),
        ("duplicate_count", pa.int64()),
        ("warc_file", pa.string()),
        ("warc_offset", pa.int64()),
        ("warc_length", pa.int64()),
        ("copies", pa.int32()),
        ("tokens", pa.int64()),
        ("file", pa.string()),
        ("row", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Document:
    """A document of a source; `copies`: how often it is packed."""

    id: str
    url: str
    source: str
    text: str
    copies: int
    row: int

    @property
    def words(self) -> np.ndarray:
        return np.array([[int(self.id[:16], 16), int(self.id[16:], 16)]], dtype=np.uint64)


def make(
    directory: Path,
    samples: int = 2 * BLOCK + 100,
    seed: int = 20,
    weights: Mapping[str, float] | None = None,
    shard_rows: int = 500,
    special: bool = False,
) -> Manifest:
    """Writes the directory and gives its manifest. `special`: the tokenizer also has a mask token
    and sentinels."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = weights or WEIGHTS
    more = MORE if special else ()
    tokenizer = _tokenizer(directory, more)
    documents = {name: _documents(name, count) for name, count in SOURCES.items()}
    _corpus(directory, documents)
    splits: dict[str, dict[str, Split]] = {}
    rows: dict[tuple[str, str], Rows] = {}
    for ordinal, name in enumerate(SOURCES):
        splits[name] = {}
        for split in SPLITS:
            own = [d for d in documents[name] if _split_of(seed, d) == split]
            splits[name][split], rows[split, name] = _packed(
                directory, seed, split, ordinal, own, tokenizer
            )
    fills = [splits[name]["train"].fill for name in SOURCES]
    parts = parts_of([weights[name] for name in SOURCES], fills)
    order = Order(seed, list(SOURCES), [splits[n]["train"].rows for n in SOURCES], [Deal(0, parts)])
    train = Rows.join([rows["train", name] for name in SOURCES])
    begins = np.cumsum([0, *(splits[name]["train"].rows for name in SOURCES)])
    source, _, row = order.locate(np.arange(samples))
    sampled = train.take(begins[source] + row)
    shards = tuple(
        _rows_file(
            directory,
            f"shards/train/shard-{number:05d}.parquet",
            sampled.take(np.arange(begin, min(begin + shard_rows, samples))),
        )
        for number, begin in enumerate(range(0, samples, shard_rows))
    )
    filled = np.bincount(source, weights=sampled.filled(), minlength=len(SOURCES))
    recipe = {"kind": "tokens", "name": "toy", "seed": seed}
    manifest = Manifest(
        name="toy",
        seed=seed,
        recipe=recipe,
        recipe_digest=digest_of(recipe),
        sequence_length=LENGTH,
        dtype="uint16",
        max_docs_per_row=PIECES,
        packing=Packing("best_fit", 1),
        tokenizer=_facts(directory / "tokenizer" / "tokenizer.json", more),
        dealing=Dealing(
            ALGORITHM,
            VERSION,
            BLOCK,
            samples,
            (Mixture(0, dict(weights), dict(zip(SOURCES, parts, strict=True))),),
        ),
        sources=tuple(
            Source(
                name,
                "CC0-1.0",
                weights[name],
                float(filled[ordinal] / filled.sum()),
                order.epochs(samples)[ordinal],
                1000,
                {"kind": "files", "name": name, "digest": "0" * 32},
                splits[name],
            )
            for ordinal, name in enumerate(SOURCES)
        ),
        shards=shards,
        validation=Validation(SHARE, None, None),
        corpus=Corpus("corpus", "0" * 32, {"schema": 1, "complete": True}),
        directory=directory,
    )
    manifest.save(directory / "manifest.json")
    return manifest


def same(one: Rows, other: Rows) -> bool:
    """Whether two batches are equal in everything."""
    fields = ("tokens", "starts", "lengths", "offsets", "ids", "sources")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


def _documents(source: str, count: int) -> list[Document]:
    """Documents of 3 to 90 words; every tenth is packed twice."""
    found = []
    for number in range(count):
        name = hashlib.blake2b(f"{source} {number}".encode(), digest_size=16).hexdigest()
        drawn = random.Random(f"{source} {number}")
        text = " ".join(drawn.choice(WORDS) for _ in range(drawn.choice((3, 5, 8, 9, 20, 90))))
        url = f"https://{source}.example/{number}"
        found.append(Document(name, url, source, text, 2 if number % 10 == 0 else 1, number))
    return found


def _split_of(seed: int, document: Document) -> str:
    key = int(keys(salt(seed, "validation"), document.words)[0])
    return "validation" if key < below(SHARE) else "train"


def _packed(
    directory: Path,
    seed: int,
    split: str,
    ordinal: int,
    documents: list[Document],
    encode: Callable[[str], list[int]],
) -> tuple[Split, Rows]:
    name = list(SOURCES)[ordinal]
    windows: dict[int, list[tuple[int, str, int, Document]]] = {}
    for document in documents:
        for copy in range(document.copies):
            key = int(keys(salt(seed, "packing"), document.words, copy)[0])
            windows.setdefault(key >> (64 - BITS), []).append((key, document.id, copy, document))
    files, provenance, packed = [], [], []
    for window in sorted(windows):
        entries = sorted(windows[window], key=lambda entry: entry[:3])
        rows = _naive([entry[3] for entry in entries], ordinal, encode)
        path = f"{split}/{name}/part-{window:05d}.parquet"
        files.append(_rows_file(directory, f"packed/{path}", rows))
        table = _provenance([entry[3] for entry in entries], encode)
        provenance.append(_file(directory, f"documents/{path}", table))
        packed.append(rows)
    whole = Rows.join(packed)
    tokens, count = int(whole.filled().sum()), len(whole)
    facts = Split(
        documents=len(documents),
        copies=sum(document.copies for document in documents),
        tokens=tokens,
        pieces=len(whole.lengths),
        rows=count,
        fill=tokens / (count * LENGTH),
        window_bits=BITS,
        files=tuple(files),
        provenance=tuple(provenance),
    )
    return facts, whole


def _naive(documents: list[Document], ordinal: int, encode: Callable[[str], list[int]]) -> Rows:
    """Piece after piece into the last row, or a new one where it has no room."""
    rows: list[list[tuple[Document, int, list[int]]]] = [[]]
    for document in documents:
        tokens = [*encode(document.text), EOS]
        for begin in range(0, len(tokens), LENGTH):
            piece = tokens[begin : begin + LENGTH]
            room = LENGTH - sum(len(placed[2]) for placed in rows[-1])
            if len(piece) > room or len(rows[-1]) == PIECES:
                rows.append([])
            rows[-1].append((document, begin, piece))
    pieces = [piece for row in rows for piece in row]
    tokens_of = np.full((len(rows), LENGTH), PAD, np.uint16)
    for place, row in zip(tokens_of, rows, strict=True):
        content = [token for _, _, piece in row for token in piece]
        place[: len(content)] = content
    return Rows(
        tokens_of,
        np.cumsum([0, *(len(row) for row in rows)]),
        np.array([len(piece) for _, _, piece in pieces], np.int32),
        np.array([begin for _, begin, _ in pieces], np.int64),
        np.concatenate([document.words for document, _, _ in pieces]),
        np.full(len(rows), ordinal, np.int16),
    )


def _provenance(documents: list[Document], encode: Callable[[str], list[int]]) -> pa.Table:
    distinct = list({document.id: document for document in documents}.values())
    values = [
        {
            "id": document.id,
            "url": document.url,
            "date": "2026-01-01T00:00:00Z",
            "source": document.source,
            "crawl": "toy",
            "license": "CC0-1.0",
            "language": "en",
            "duplicate_count": 1,
            "warc_file": f"{document.source}.warc.gz",
            "warc_offset": 1000 * document.row,
            "warc_length": 900,
            "copies": document.copies,
            "tokens": len(encode(document.text)) + 1,
            "file": f"corpus/documents/part-{document.source}.parquet",
            "row": document.row,
        }
        for document in distinct
    ]
    return pa.Table.from_pylist(values, schema=_PROVENANCE)


def _corpus(directory: Path, documents: Mapping[str, list[Document]]) -> None:
    (directory / "corpus" / "documents").mkdir(parents=True, exist_ok=True)
    for name, own in documents.items():
        columns = {
            "id": [document.id for document in own],
            "text": pa.array([document.text for document in own], pa.large_string()),
            "url": [document.url for document in own],
        }
        pq.write_table(pa.table(columns), directory / f"corpus/documents/part-{name}.parquet")


def _rows_file(directory: Path, path: str, rows: Rows) -> File:
    filled = np.bincount(rows.sources, weights=rows.filled(), minlength=len(SOURCES))
    tokens = {n: int(t) for n, t in zip(SOURCES, filled, strict=True) if t}
    return _file(directory, path, to_table(rows, list(SOURCES)), tokens)


def _file(
    directory: Path, path: str, table: pa.Table, tokens: Mapping[str, int] | None = None
) -> File:
    place = directory / path
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, place, row_group_size=ROW_GROUP, **(PARQUET if tokens else {}))
    data = place.read_bytes()
    return File(path, len(table), len(data), hashlib.sha256(data).hexdigest(), tokens or {})


def _tokenizer(directory: Path, more: Sequence[str]) -> Callable[[str], list[int]]:
    """Bytes as tokens: the alphabet of byte-level BPE without merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(BPE({character: number for number, character in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>", "<|pad|>", *more])
    (directory / "tokenizer").mkdir(exist_ok=True)
    made.save(str(directory / "tokenizer" / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        ids: list[int] = made.encode(text).ids
        return ids

    return encode


def _facts(path: Path, more: Sequence[str]) -> TokenizerFacts:
    data = path.read_bytes()
    own = dict(zip(more, range(PAD + 1, PAD + 1 + len(more)), strict=True))
    return TokenizerFacts(
        path="tokenizer/tokenizer.json",
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        size=PAD + 1 + len(more),
        eos=EOS,
        bos=None,
        pad=PAD,
        mask=own.get("<|mask|>"),
        sentinels=tuple(token for name, token in own.items() if "sentinel" in name),
        special={"<|endoftext|>": EOS, "<|pad|>": PAD, **own},
    )
