"""How well tokenizers fit texts: bytes per token and the like, by source and language.

What may live here: the counts, and the table that a person reads. The texts should be held out
(validation documents, or others that the tokenizer was not trained on); the caller says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from curation import models
from curation.tokens.encoding.batches import encode
from curation.tokens.encoding.loaded import Loaded, load

#: The tokenizer that others are held beside, as `curation models` knows it.
BESIDE = "tokenizer/gpt2"


def beside() -> tuple[dict[str, Loaded], str | None]:
    """GPT-2's tokenizer by its name, where it is on this machine; else what brings it here."""
    try:
        return {"gpt2": load(models.find(BESIDE))}, None
    except models.ModelNotFound as error:
        return {}, error.command


@dataclass
class _Tally:
    """What was seen of one group by one tokenizer. A word is what stands between white space, so
    it says nothing of languages that are written without."""

    used: np.ndarray
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("documents", "bytes", "characters", "words", "tokens"), 0
        )
    )

    def add(self, other: Mapping[str, int], used: np.ndarray) -> None:
        self.used |= used
        for name, count in other.items():
            self.counts[name] += count

    def told(self) -> dict[str, Any]:
        c = self.counts
        return {
            **c,
            "bytes_per_token": _ratio(c["bytes"], c["tokens"]),
            "characters_per_token": _ratio(c["characters"], c["tokens"]),
            "tokens_per_word": _ratio(c["tokens"], c["words"]),
            "entries_used": int(self.used.sum()),
            "entries_unused": int((~self.used).sum()),
        }


def _ratio(a: int, b: int) -> float | None:
    return round(a / b, 4) if b else None


def measure(
    tokenizers: Mapping[str, Loaded], batches: Iterable[Mapping[str, pa.Array]], texts: str
) -> dict[str, Any]:
    """The report, ready for JSON. `batches` have `text`, `source` and `language` (null: unknown);
    `texts` says what they are, such as "validation".

    For each tokenizer its size, then a row for all texts and for each source and language. Tokens
    are those of the text alone, without EOS and BOS; entries that are special tokens count as
    neither used nor unused.
    """
    tallies: dict[str, dict[tuple[str, str], _Tally]] = {name: {} for name in tokenizers}
    for batch in batches:
        for group, own in _groups(batch):
            for name, loaded in tokenizers.items():
                seen = _seen(loaded, own)
                for key in {("", ""), group}:
                    tally = tallies[name].setdefault(key, _Tally(np.zeros_like(seen[1])))
                    tally.add(*seen)
    return {
        "texts": texts,
        "tokenizers": {
            name: {
                "size": tokenizers[name].size,
                "sha256": tokenizers[name].sha256,
                "groups": [
                    {"source": source or None, "language": language or None, **tally.told()}
                    for (source, language), tally in sorted(own.items())
                ],
            }
            for name, own in tallies.items()
        },
    }


def _groups(batch: Mapping[str, pa.Array]) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """The texts of a batch by source and language."""
    found: dict[tuple[str, str], list[str]] = {}
    columns = [batch[name].to_pylist() for name in ("source", "language", "text")]
    for source, language, text in zip(*columns, strict=True):
        found.setdefault((source or "?", language or "?"), []).append(text)
    yield from found.items()


def _seen(loaded: Loaded, texts: list[str]) -> tuple[dict[str, int], np.ndarray]:
    """Counts of texts, and which entries that are no special tokens they use."""
    ids, lengths = encode(loaded, texts)
    ends = 1 + (loaded.bos is not None)
    special = np.array(list(loaded.special.values()))
    used = np.delete(np.bincount(ids, minlength=loaded.size) > 0, special)
    return {
        "documents": len(texts),
        "bytes": sum(len(text.encode()) for text in texts),
        "characters": sum(map(len, texts)),
        "words": sum(len(text.split()) for text in texts),
        "tokens": int(lengths.sum()) - ends * len(texts),
    }, used


def table(report: Mapping[str, Any]) -> str:
    """The report as aligned lines: a line for each group and tokenizer, the group of all first."""
    head = ("source", "language", "tokenizer", "bytes", "tokens", "bytes/token", "chars/token",
            "tokens/word", "unused")  # fmt: skip
    by_group: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for name, own in report["tokenizers"].items():
        for group in own["groups"]:
            source, language = group["source"] or "all", group["language"] or ""
            ratios = (group[k] for k in
                      ("bytes_per_token", "characters_per_token", "tokens_per_word"))  # fmt: skip
            by_group.setdefault((source, language), []).append(
                (source, language, name, f"{group['bytes']:,}", f"{group['tokens']:,}",
                 *(f"{ratio:.3f}" if ratio is not None else "-" for ratio in ratios),
                 f"{group['entries_unused']:,}")
            )  # fmt: skip
    lines = [head, *(line for group in by_group.values() for line in group)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
