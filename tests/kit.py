"""What tests of the engine share: texts, inputs, recipes, and what must be equal between runs.

What may live here: helpers that several test files use; no tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: What must be equal in bytes between any two runs of the same recipe on the same inputs.
STABLE = (
    "documents/*",
    "segments/*/text/*",
    "segments/*/originals/*",
    "segments/*/signals/*",
    "segments/*/samples/*",
    "segments/*/removals/*",
    "segments/*/edits/*",
    "segments/*/work/*",
    "stats.json",
)

#: datatrove's names of the rules of `gopher_quality`.
DATATROVE_QUALITY = {
    "gopher_short_doc": "too_few_words",
    "gopher_long_doc": "too_many_words",
    "gopher_below_avg_threshold": "short_words",
    "gopher_above_avg_threshold": "long_words",
    "gopher_too_many_hashes": "many_hashes",
    "gopher_too_many_ellipsis": "many_ellipses",
    "gopher_too_many_bullets": "many_bullets",
    "gopher_too_many_end_ellipsis": "many_ellipsis_lines",
    "gopher_below_alpha_threshold": "few_alphabetic",
    "gopher_enough_stop_words": "few_stop_words",
}

WORDS = str.split(
    "the mill and the river have to be seen with that old wheel of oak which turns slowly "
    "under a grey sky while people of the valley carry grain along the narrow road"
)


def page(number: int, words: int = 120) -> str:
    """English prose that passes the Gopher rules, different for every number."""
    chosen = [WORDS[(number * 7 + i * (number % 5 + 1)) % len(WORDS)] for i in range(words)]
    sentence = f"Page {number} tells of mill number {number}."
    lines = [" ".join(chosen[i : i + 12]).capitalize() + "." for i in range(0, words, 12)]
    return "\n".join([sentence, *lines])


def write_jsonl(path: Path, texts: list[str], urls: list[str] | None = None) -> Path:
    rows = [
        {"text": text, "id": f"{path.stem}-{i}", "url": urls[i] if urls else None}
        for i, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recipe(*stages: Any, **more: Any) -> dict[str, Any]:
    return {
        "kind": "documents",
        "name": "test",
        "input": {"kind": "jsonl"},
        "stages": list(stages),
        **more,
    }


def contents(path: Path) -> dict[str, bytes]:
    found = {}
    for pattern in STABLE:
        for file in path.glob(pattern):
            if file.name.startswith("."):
                continue  # what a kill has left unfinished: no reader sees it
            found[str(file.relative_to(path))] = file.read_bytes()
    return found


#: A recipe that passes through every kind of segment: read, exchange, documents.
STAGES = ({"gopher_quality": {}}, {"exact_dedup": {}})


def duplicated(folder: Path) -> Path:
    """Five files with duplicates within and across them."""
    for name in range(5):
        texts = [page(name * 10 + i) for i in range(20)]  # half of them again in the next file
        texts += ["too short", page(3, 30)]
        urls = [f"https://example.org/{name}/{i}" for i in range(len(texts))]
        urls[0] = "http://www.example.org/front/?utm_source=x"
        write_jsonl(folder / f"part{name}.jsonl", texts, urls)
    return folder


def record(number: int, block: bytes, kind: str = "response") -> bytes:
    name = f"<urn:uuid:00000000-0000-0000-0000-{number:012d}>"
    return (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {name}\r\n"
        f"WARC-Target-URI: https://example.org/{number}\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        f"Content-Type: application/http; msgtype={kind}\r\nContent-Length: {len(block)}\r\n\r\n"
    ).encode() + (block + b"\r\n\r\n")


def response(number: int, body: bytes = b"") -> bytes:
    body = body or (
        f"<html><body><p>{'</p><p>'.join(page(number).splitlines())}</p></body></html>".encode()
    )
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
    return record(number, head.encode() + body)
