"""The stage `extract`: captured bytes in, clean text out.

What may live here: `Extract` and nothing that touches a single page: that is the child's work.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata as distributions
from importlib import resources
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from curation.document import Documents
from curation.extract.child import Outcome, Settings
from curation.extract.decode import is_clean, sanitise
from curation.extract.sandbox import Page, Sandbox, sandbox
from curation.stage import Edited, Editor
from curation.text.characters import table_version

#: Parameters that only one engine has.
_OPTIONS = {
    "resiliparse": ("main_content", "alt_texts", "list_bullets"),
    "trafilatura": ("favor_precision",),
    "blocks": ("threshold", "markdown", "tables", "links", "comments", "metadata"),
}
#: Distributions whose versions decide the output.
_LIBRARIES = {
    "resiliparse": ("Resiliparse",),
    "trafilatura": ("Resiliparse", "trafilatura", "lxml", "jusText"),
    "blocks": ("selectolax",),
}


class Extract(Editor):
    """Decodes, extracts and cleans pages in a sandbox; cleans texts that are there already.

    Reads the columns `content` (null where `text` is there), `media_type`, `charset` and `text`.
    Signals: `encoding` and `encoding_source` (see `curation.extract.decode.Decoded`; null for
    texts), `replaced` (characters that could not be decoded), `sanitised` (characters that cleaning
    changed or removed). Failures: `too_large`, `too_many_tags`, `too_deep`, `undecodable`,
    `extractor_error`, and by the machine `crash`, `timeout`, `memory`.
    """

    version: ClassVar[int] = 2
    environmental: ClassVar[frozenset[str]] = frozenset({"crash", "timeout", "memory"})

    engine: Literal["blocks", "resiliparse", "trafilatura"] = "blocks"
    threshold: float = Field(0.5, ge=0, le=1)
    """blocks: probability of main content to keep a block."""
    markdown: bool = False
    """blocks: Markdown instead of plain text."""
    tables: bool = True
    """blocks: keep tables."""
    links: bool = False
    """blocks: write links as in Markdown, with their addresses."""
    comments: bool = False
    """blocks: add readers' comments."""
    metadata: bool = False
    """blocks: signals `title` and `date` (YYYY-MM-DD)."""
    main_content: bool = True
    """resiliparse: only what its rules hold to be the main content."""
    alt_texts: bool = False
    """resiliparse: descriptions of images too."""
    list_bullets: bool = True
    """resiliparse: mark items of lists with bullets or numbers."""
    favor_precision: bool = True
    """trafilatura: less text, surer to be the main content."""
    max_bytes: int = Field(20_000_000, gt=0)
    """Bytes of a body. Common Crawl cuts at 1 MiB (5 MiB since 2025)."""
    max_tags: int = Field(1_000_000, gt=0)
    """Tags of a page, as `<` characters."""
    max_depth: int = Field(512, gt=0)
    """Nested elements: Chromium's parser nests no deeper (kMaximumHTMLParserDOMTreeDepth)."""
    max_replaced: float = Field(0.05, ge=0, le=1)
    """Share of a page's characters that could not be decoded."""
    cpu_seconds: float = Field(30.0, gt=0)
    """Seconds of CPU time for one page."""
    wall_seconds: float = Field(300.0, gt=0)
    """Seconds of the clock for one page, for what hangs without using CPU time."""
    memory_mib: int = Field(2048, ge=64)
    """MiB of memory that pages may take in the child."""

    @model_validator(mode="after")
    def _options_of_this_engine(self) -> Self:
        for engine, names in _OPTIONS.items():
            fields = type(self).model_fields
            wrong = [name for name in names if getattr(self, name) != fields[name].default]
            if engine != self.engine and wrong:
                raise ValueError(f"{wrong[0]} is a parameter of {engine}, not of {self.engine}")
        return self

    def depends(self) -> dict[str, str]:
        """Versions of the libraries that decide the output; of `blocks` also the table of
        characters and the model."""
        versions = {name.lower(): distributions.version(name) for name in _LIBRARIES[self.engine]}
        if self.engine == "blocks":
            model = (resources.files("curation.extract.blocks") / "model.npz").read_bytes()
            versions["characters"] = table_version()
            versions["model"] = hashlib.blake2b(model, digest_size=8).hexdigest()
        return versions

    def memory(self) -> int:
        """Bytes of the child on usual pages (measured: 83 MiB with Resiliparse, 162 to 237 MiB
        with `blocks`)."""
        return (288 if self.engine == "blocks" else 192) << 20

    def edit(self, docs: Documents) -> Edited:
        """Texts of a batch."""
        return next(self.edit_many([docs]))

    def edit_many(self, batches: Iterable[Documents]) -> Iterator[Edited]:
        """Texts batch by batch; the next batch is extracted while the caller has this one."""
        waiting: deque[Documents] = deque()

        def pages() -> Iterator[Sequence[Page]]:
            for docs in batches:
                waiting.append(docs)
                yield _pages(docs)

        for outcomes in self._sandbox().extract_many(pages()):
            yield _edited(waiting.popleft(), outcomes, self.metadata)

    def _sandbox(self) -> Sandbox:
        options = tuple((name, getattr(self, name)) for name in _OPTIONS[self.engine])
        limits: dict[str, Any] = {
            name: getattr(self, name) for name in Settings._fields if name != "options"
        }
        return sandbox(Settings(options=options, **limits))


def _pages(docs: Documents) -> list[Page]:
    """The documents that have content, in order."""
    if "content" not in docs:
        return []
    content = docs["content"]
    chosen = content.is_valid()
    rows = zip(
        content.filter(chosen),
        docs["charset"].filter(chosen).to_pylist(),
        docs["media_type"].filter(chosen).to_pylist(),
        strict=True,
    )
    return [
        Page(memoryview(body.as_buffer()), charset, media_type or "text/html")
        for body, charset, media_type in rows
    ]


def _edited(docs: Documents, outcomes: Sequence[Outcome], metadata: bool) -> Edited:
    """Outcomes of the documents with content, and the cleaned texts of the others, as columns;
    those of titles and dates only with `metadata`."""
    rows = zip(*outcomes, strict=True) if outcomes else [()] * len(Outcome._fields)
    texts, encodings, sources, replaced, sanitised, failures, titles, dates = rows
    columns = {
        "text": pa.array(texts, pa.large_string()),
        "encoding": pa.array(encodings, pa.string()),
        "encoding_source": pa.array(sources, pa.string()),
        "replaced": pa.array(replaced, pa.int64()),
        "sanitised": pa.array(sanitised, pa.int64()),
    }
    if metadata:
        columns["title"], columns["date"] = (pa.array(x, pa.string()) for x in (titles, dates))
    at = np.arange(len(docs))
    if len(outcomes) < len(docs):
        at = np.flatnonzero(docs["content"].is_valid()) if "content" in docs else at[:0]
        source = np.full(len(docs), -1)
        source[at] = np.arange(len(at))
        indices = pa.array(source, mask=source < 0)
        text, changed = sanitise_texts(docs.text)
        columns = {name: column.take(indices) for name, column in columns.items()}
        columns["text"] = pc.coalesce(columns["text"], text)
        columns["sanitised"] = pc.coalesce(columns["sanitised"], changed)
    failed = {int(at[index]): failure for index, failure in enumerate(failures) if failure}
    return Edited(text=columns.pop("text"), signals=columns, failures=failed)


def sanitise_texts(texts: pa.LargeStringArray) -> tuple[pa.LargeStringArray, pa.Int64Array]:
    """A column of texts cleaned as by `sanitise`, and the counts; null stays null.

    The column may hold what is not valid UTF-8 (surrogates from JSON escapes); the result does not.
    A column with nothing to clean is looked through as a whole and returned as it is.
    """
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    whole = bytes(memoryview(data)[ends[0] : ends[-1]]) if data is not None else b""
    try:
        texts.validate(full=True)
        if is_clean(whole) and b"\xef\xbf\xbd" not in whole:
            missing = np.asarray(texts.is_null())
            return texts, pa.array(np.zeros(len(texts), np.int64), mask=missing)
    except pa.ArrowInvalid:
        pass
    cleaned: list[str | None] = []
    counts: list[int | None] = []
    starts = ends - ends[0]
    for index, valid in enumerate(texts.is_valid().to_pylist()):
        raw = whole[starts[index] : starts[index + 1]]
        text, count = _sanitise_bytes(raw) if valid else (None, None)
        cleaned.append(text)
        counts.append(count)
    return pa.array(cleaned, pa.large_string()), pa.array(counts, pa.int64())


def _sanitise_bytes(raw: bytes) -> tuple[str, int]:
    try:
        return sanitise(raw.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        broken = text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
        text, count = sanitise(text)
        return text, broken + count
