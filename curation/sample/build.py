"""From captures to the WARC file: record order, ids, dates and the records beside a response."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from curation.sample.captures import captures
from curation.sample.fates import FATES
from curation.sample.pages import load_pages
from curation.sample.plan import Capture, draw
from curation.sample.warc import Record, payload_digest, record_bytes, record_id

_START = datetime(2026, 3, 14, 6, 0, 0, tzinfo=UTC)
_WARCINFO = (
    b"software: gristmill sample crawl\r\nformat: WARC File Format 1.1\r\n"
    b"isPartOf: SAMPLE-2026-11\r\ndescription: invented pages on reserved names\r\n"
)


def write_sample(path: Path, seed: int = 20) -> None:
    """Write the sample crawl to `path`: the same bytes on every machine for the same seed."""
    data = b"".join(_members(seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _members(seed: int) -> Iterator[bytes]:
    for number, record in enumerate(_records(seed)):
        date = (_START + timedelta(seconds=7 * number)).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield record_bytes(record, record_id(seed, number), date)


def _records(seed: int) -> Iterator[Record]:
    yield Record(
        "warcinfo",
        (("Gristmill-Fate", "skip:warcinfo"), ("WARC-Filename", "sample.warc.gz")),
        "application/warc-fields",
        payload=_WARCINFO,
    )
    shuffled = sorted(captures(load_pages(), seed), key=lambda c: draw(seed, "order", c.url))
    for number, capture in enumerate(shuffled):
        if capture.fate not in FATES:
            raise ValueError(f"{capture.url}: unknown fate {capture.fate}")
        if capture.type == "response" and number % 9 == 0:
            yield _request(capture)
        yield _record(capture)
        if capture.type == "response" and number % 13 == 0:
            yield _metadata(capture)
    for capture in [c for c in shuffled if c.fate == "keep"][:8]:
        yield _revisit(capture)


def _record(capture: Capture) -> Record:
    fields = [("WARC-Target-URI", capture.url), ("Gristmill-Fate", capture.fate)]
    if capture.group:
        fields.append(("Gristmill-Group", capture.group))
    if capture.type != "response":
        return Record(capture.type, tuple(fields), capture.content_type, payload=capture.body)
    fields.append(("WARC-IP-Address", "192.0.2.20"))
    fields.append(("WARC-Payload-Digest", payload_digest(capture.body)))
    if capture.truncated:
        fields.append(("WARC-Truncated", capture.truncated))
    return Record(
        "response",
        tuple(fields),
        "application/http; msgtype=response",
        capture.http_head(),
        capture.body,
    )


def _request(capture: Capture) -> Record:
    url = urlsplit(capture.url)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    head = (
        f"GET {target} HTTP/1.1\r\nHost: {url.netloc}\r\nUser-Agent: sample-crawler/1.0\r\n"
        "Accept: text/html\r\nAccept-Encoding: gzip, br, zstd\r\n\r\n"
    )
    return Record(
        "request",
        (("WARC-Target-URI", capture.url), ("Gristmill-Fate", "skip:request")),
        "application/http; msgtype=request",
        http=head.encode(),
    )


def _metadata(capture: Capture) -> Record:
    fields = (("WARC-Target-URI", capture.url), ("Gristmill-Fate", "skip:metadata"))
    return Record(
        "metadata",
        fields,
        "application/warc-fields",
        payload=f"fetchTimeMs: {100 + len(capture.body) % 400}\r\n".encode(),
    )


def _revisit(capture: Capture) -> Record:
    fields = (
        ("WARC-Target-URI", capture.url),
        ("Gristmill-Fate", "skip:revisit"),
        ("WARC-Profile", "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"),
        ("WARC-Refers-To-Target-URI", capture.url),
        ("WARC-Payload-Digest", payload_digest(capture.body)),
    )
    return Record("revisit", fields, "application/http; msgtype=response", capture.http_head())
