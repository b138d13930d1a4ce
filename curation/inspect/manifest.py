"""Manifests of tokens as a person sees them: verified, and traced both ways, with the text.

What may live here: views of what manifests/ finds. Only here are tokens made text again, by the
manifest's own tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from curation.inspect.terminal import Terminal, one_line
from manifests import trace, verify
from manifests.tokens import NAME, Manifest, ManifestError

_ORIGIN = ("url", "date", "source", "license", "warc_file", "warc_offset", "file", "row")


def find(path: str | Path) -> Manifest | None:
    """The manifest that a path means: the file, or the directory of a tokens run; None where it is
    neither. Raises ManifestError for a damaged one."""
    place = Path(path)
    if (place / NAME).is_file() or (place.is_file() and place.suffix == ".json"):
        return Manifest.load(place)
    return None


# ---------------------------------------------------------------- verify


def verified(manifest: Manifest) -> dict[str, Any]:
    """Whether a manifest holds, and what does not (manifests/verify.py)."""
    report = verify.check(manifest)
    return {"holds": report.holds, **asdict(report)}


def render_verified(found: Mapping[str, Any]) -> str:
    return verify.render(verify.Report(**{k: v for k, v in found.items() if k != "holds"}))


# ---------------------------------------------------------------- trace


def sequence(manifest: Manifest, sample: int) -> dict[str, Any]:
    """A sample and its pieces, each with its origin and its text.

    A piece may begin or end inside a character; U+FFFD stands for what is not whole. Raises
    ManifestError where there is no such sample, or no tokenizer that can be read.
    """
    found = trace.sequence(manifest, sample)
    place = manifest.directory / manifest.tokenizer.path
    try:
        tokenizer = Tokenizer.from_file(str(place))
    except Exception as error:  # what the library raises has no class of its own
        raise ManifestError(f"{manifest.tokenizer.path}: {error}") from None
    pieces = []
    for piece in found.pieces:
        tokens = found.tokens[piece.start : piece.start + piece.length].tolist()
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        pieces.append({**asdict(piece), "text": text})
    plain = {name: value for name, value in vars(found).items() if name != "tokens"}
    return {**plain, "padding": found.padding, "tokens": found.tokens.tolist(), "pieces": pieces}


def render(found: Mapping[str, Any], terminal: Terminal) -> str:
    """A sample for a person: where it lies, then each piece with its origin and how it begins."""
    lines = [
        f"sample {found['sample']:,}: {found['source']}, "
        f"epoch {found['epoch']}, row {found['row']:,}",
        f"  {found['file']}, row {found['file_row']:,}",
        *([f"  {found['shard']}, row {found['shard_row']:,}"] if found["shard"] else []),
        f"  {len(found['pieces'])} pieces, {found['padding']:,} tokens of padding",
    ]
    for piece in found["pieces"]:
        end = piece["offset"] + piece["length"]
        lines += [
            "",
            f"{piece['id']}  tokens {piece['start']:,}-{piece['start'] + piece['length']:,}"
            f" of the row, {piece['offset']:,}-{end:,} of the document",
            *_origin(piece["provenance"]),
            f"  {_cut(one_line(piece['text']), terminal.width - 2)}",
        ]
    return "\n".join(lines)


def document(manifest: Manifest, wanted: str) -> list[dict[str, Any]]:
    """The documents with this id or URL, and every place and sample that holds of them."""
    return [asdict(found) for found in trace.document(manifest, wanted)]


def render_document(found: list[dict[str, Any]]) -> str:
    """The same for a person; of many samples the first few."""
    if not found:
        return "no such document"
    lines: list[str] = []
    for one in found:
        origin = one["provenance"]
        lines += [
            f"{one['id']}  {origin['tokens']:,} tokens, packed {_times(origin['copies'])}",
            *_origin(origin),
        ]
        for place in one["places"]:
            end = place["offset"] + place["length"]
            samples = [str(sample) for sample, *_ in place["samples"]]
            shown = ", ".join(samples[:8]) + (", ..." if len(samples) > 8 else "")
            lines.append(
                f"  {place['split']} {place['file']} row {place['file_row']:,}"
                f" piece {place['piece']}: tokens {place['offset']:,}-{end:,}"
                + (f"; {len(samples)} samples: {shown}" if samples else "")
            )
    return "\n".join(lines)


def _origin(provenance: Mapping[str, Any] | None) -> list[str]:
    if provenance is None:
        return ["  no provenance"]
    known = [(name, provenance[name]) for name in _ORIGIN if provenance.get(name) is not None]
    return [f"  {name:<11}  {one_line(str(value))}" for name, value in known]


def _times(copies: int) -> str:
    return "once" if copies == 1 else f"{copies} times"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 4, 0)] + " ..."
