"""WARC/1.1 records, one gzip member each. Only the record format may live here."""

import base64
import hashlib
import uuid
from dataclasses import dataclass

from curation.sample.framing import gzip_member


@dataclass(frozen=True)
class Record:
    """A record before it has an id and a date. `http` is the header block of HTTP records."""

    type: str
    fields: tuple[tuple[str, str], ...]
    content_type: str
    http: bytes = b""
    payload: bytes = b""


def record_id(*origin: object) -> str:
    """A record id that is a function of `origin`."""
    digest = hashlib.blake2b(repr(origin).encode(), digest_size=16).digest()
    return f"<urn:uuid:{uuid.UUID(bytes=digest, version=4)}>"


def payload_digest(data: bytes) -> str:
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def record_bytes(record: Record, identity: str, date: str) -> bytes:
    """The record as a gzip member."""
    block = record.http + record.payload
    fields = [
        ("WARC-Type", record.type),
        ("WARC-Record-ID", identity),
        ("WARC-Date", date),
        *record.fields,
        ("Content-Type", record.content_type),
        ("WARC-Block-Digest", payload_digest(block)),
        ("Content-Length", str(len(block))),
    ]
    head = "WARC/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
    return gzip_member(head.encode() + block + b"\r\n\r\n")
