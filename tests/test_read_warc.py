"""WARC and WET records as documents. Expected values are from the WARC and HTTP standards."""

import gzip
import hashlib
import io
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.read import Tally, read
from curation.read.framing import Frames
from curation.storage import InputError

HTML = b"<html><body><p>hello</p></body></html>"


def record(
    block: bytes,
    kind: str = "response",
    name: str | None = "<urn:uuid:1>",
    uri: str = "https://example.org/",
    content_type: str = "application/http; msgtype=response",
    extra: str = "",
) -> bytes:
    identity = f"WARC-Record-ID: {name}\r\n" if name else ""
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\n{identity}WARC-Target-URI: {uri}\r\n"
        f"WARC-Date: 2024-05-01T00:00:00Z\r\nContent-Type: {content_type}\r\n{extra}"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def http(body: bytes = HTML, fields: str = "Content-Type: text/html", status: str = "200 OK"):
    return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + body


def run(tmp_path, *records: bytes, kind="warc", **options):
    path = tmp_path / "x.warc.gz"
    path.write_bytes(b"".join(gzip.compress(r) for r in records))
    tally = Tally()
    documents = list(read(kind, str(path), tally, options))
    assert tally.records == tally.documents + sum(tally.skipped.values())
    assert tally.documents == len(documents)
    return documents, tally


def test_a_response_becomes_a_document_that_can_be_traced(tmp_path):
    fields = 'content-type: text/HTML; Charset="ISO-8859-2"'
    (document,), tally = run(tmp_path, record(http(fields=fields)))
    data = (tmp_path / "x.warc.gz").read_bytes()
    assert document.content == HTML and document.text is None
    assert (document.media_type, document.charset) == ("text/html", "ISO-8859-2")
    assert document.url == "https://example.org/"
    assert document.date == "2024-05-01T00:00:00Z"
    assert document.warc_file == str(tmp_path / "x.warc.gz")
    assert (document.warc_offset, document.warc_length) == (0, len(data))
    assert document.id == hashlib.blake2b(b"urn:uuid:1", digest_size=16).hexdigest()
    assert tally.digest == hashlib.blake2b(data, digest_size=16).hexdigest()
    assert tally.bytes == len(data)
    assert not tally.incomplete and not tally.problems and not tally.notes


def test_without_a_record_id_the_identity_is_of_uri_date_and_payload(tmp_path):
    def ids(*records):
        return [d.id for d in run(tmp_path, *records)[0]]

    digest = "WARC-Payload-Digest: sha1:ABC\r\n"
    one = record(http(), name=None)
    assert len(set(ids(one, one))) == 1
    assert len(set(ids(one, record(http(b"<p>other"), name=None)))) == 2
    assert len(set(ids(one, record(http(), name=None, uri="https://example.org/b")))) == 2
    same = [record(http(b), name=None, extra=digest) for b in (b"<p>a", b"<p>b")]
    assert len(set(ids(*same))) == 1


@pytest.mark.parametrize(
    "kind",
    ["warcinfo", "resource", "request", "metadata", "revisit", "conversion", "continuation"],
)
def test_other_types_are_skipped_by_name(tmp_path, kind):
    documents, tally = run(tmp_path, record(http(), kind=kind), record(http()))
    assert len(documents) == 1
    assert tally.skipped == {kind: 1}


def test_types_that_the_standard_does_not_know_are_skipped(tmp_path):
    assert run(tmp_path, record(http(), kind="screenshot"))[1].skipped == {"unknown_type": 1}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("204 No Content", "status_2xx"),
        ("301 Moved", "status_3xx"),
        ("404 Not Found", "status_4xx"),
        ("503 Busy", "status_5xx"),
        ("999 No", "status_other"),
        ("100 Continue", "status_other"),
    ],
)
def test_responses_that_are_no_pages_are_skipped_by_status(tmp_path, status, reason):
    assert run(tmp_path, record(http(status=status)))[1].skipped == {reason: 1}


@pytest.mark.parametrize(
    "start", [b"HTTP/2 200\r\n", b"HTTP/1.1 200 \r\n", b"HTTP/1.0  200 OK\n", b"ICY 200 OK\r\n"]
)
def test_status_lines_are_read_leniently(tmp_path, start):
    block = start + b"No colon here\r\nContent-Type : text/html\r\n\r\n" + HTML
    (document,), _ = run(tmp_path, record(block))
    assert document.content == HTML


@pytest.mark.parametrize("block", [b"HTTP/1.1 OK\r\n\r\nx", b"HTTP/1.1 200 OK\r\nA: b", b""])
def test_a_response_without_a_proper_header_is_skipped(tmp_path, block):
    assert run(tmp_path, record(block))[1].skipped == {"bad_http_header": 1}


def test_what_is_not_http_is_skipped(tmp_path):
    dns = record(b"20240501\nexample.org. 60 IN A 1.2.3.4", content_type="text/dns")
    assert run(tmp_path, dns)[1].skipped == {"not_http": 1}


@pytest.mark.parametrize(
    ("fields", "body", "kept"),
    [
        ("Content-Type: application/xhtml+xml", HTML, "application/xhtml+xml"),
        ("Content-Type: text/html, text/html; charset=x", HTML, "text/html"),
        ("Content-Type: text/plain", HTML, None),
        ("Content-Type: application/pdf", HTML, None),
        ("X-A: b", b"\n  <!-- c --><!DOCTYPE html><p>x", "text/html"),
        ("Content-Type: ", b"<HTML lang=en>", "text/html"),
        ("X-A: b", b"plain words, a < b", None),
        ("X-A: b", b"%PDF-1.4 <", None),
    ],
)
def test_html_is_told_by_its_type_or_without_one_by_its_start(tmp_path, fields, body, kept):
    extra = "WARC-Identified-Payload-Type: text/html\r\n"
    documents, tally = run(tmp_path, record(http(body, fields), extra=extra))
    assert [d.media_type for d in documents] == ([kept] if kept else [])
    assert tally.skipped == ({} if kept else {"content_type": 1})


def test_plain_text_is_a_matter_of_an_option(tmp_path):
    text = record(http(b"words", "Content-Type: text/plain; charset=utf-8"))
    (document,), _ = run(tmp_path, text, media_types=["text/plain"])
    assert (document.content, document.media_type) == (b"words", "text/plain")


def test_captures_cut_by_the_crawler_are_kept_or_dropped_and_counted_by_reason(tmp_path):
    reasons = ["length", "time", "disconnect", "unspecified", "bored"]
    records = [record(http(), extra=f"WARC-Truncated: {reason}\r\n") for reason in reasons]
    short = "Content-Type: text/html\r\nContent-Length: 9999"
    records.append(record(http(fields=short)))
    records.append(record(http()))
    counts = {
        "truncated_length": 1,
        "truncated_time": 1,
        "truncated_disconnect": 1,
        "truncated_unspecified": 2,
        "truncated_undeclared": 1,
    }
    kept, tally = run(tmp_path, *records)
    assert len(kept) == 7 and not tally.skipped
    assert tally.notes == {**counts, "length_lies": 1}
    assert kept[0].metadata == {"truncated": "length"} and kept[6].metadata is None
    kept, tally = run(tmp_path, *records, truncated="drop")
    assert len(kept) == 1 and tally.skipped == counts


def test_a_compressed_page_that_is_cut_counts_as_truncated(tmp_path):  # nutch 10
    page = b"".join(b"<p>line %d of the page</p>" % i for i in range(999))
    fields = "Content-Type: text/html\r\nContent-Encoding: gzip"
    (document,), tally = run(tmp_path, record(http(gzip.compress(page)[:-200], fields)))
    assert page.startswith(document.content) and len(document.content) > 10_000
    assert tally.notes == {"body_cut": 1, "truncated_undeclared": 1}


def test_a_body_that_was_decoded_by_the_crawler_is_used_as_it_is(tmp_path):
    fields = "Content-Type: text/html\r\nX-Crawler-Content-Encoding: gzip\r\nContent-Length: 38"
    (document,), tally = run(tmp_path, record(http(fields=fields)))
    assert document.content == HTML and not tally.notes


def test_bodies_that_give_no_document_are_skipped(tmp_path):
    coded = "Content-Type: text/html\r\nContent-Encoding: gzip"
    records = [
        record(http(b"")),
        record(http(gzip.compress(b""), coded)),
        record(http(b"\x00\x01\x02 no gzip", coded)),
        record(http(gzip.compress(b"x" * 2000), coded)),
        record(http(b"x" * 2000)),
    ]
    documents, tally = run(tmp_path, *records, max_body=1000)
    assert not documents
    assert tally.skipped == {"empty": 2, "content_encoding": 1, "too_large": 2}
    assert not tally.incomplete


def test_the_brackets_of_wget_and_folded_headers_are_understood(tmp_path):
    folded = record(http(), extra="X-Note: one\r\n  two\r\n", uri="<https://example.org/a b>")
    (document,), _ = run(tmp_path, folded.replace(b"WARC-Type", b"warc-TYPE"))
    assert document.url == "https://example.org/a b"


def test_a_wrong_length_is_noted_and_the_document_kept(tmp_path):
    wrong = record(http()).replace(b"\r\nContent-Length: ", b"\r\nContent-Length: 1")
    documents, tally = run(tmp_path, record(http()), wrong, record(http()))
    assert [d.content for d in documents] == [HTML] * 3
    assert tally.notes == {"bad_length": 1}
    assert tally.problem_counts == {"bad_length": 1} and not tally.incomplete


def test_a_chopped_file_is_incomplete(tmp_path):
    members = [gzip.compress(record(http(), name=f"<urn:{i}>")) for i in range(3)]
    path = tmp_path / "x.warc.gz"
    path.write_bytes(b"".join(members)[:-40])
    tally = Tally()
    assert len(list(read("warc", str(path), tally))) == 2
    assert tally.skipped == {"truncated": 1} and tally.incomplete
    assert [(p.reason, p.offset) for p in tally.problems] == [
        ("truncated", len(members[0] + members[1]))
    ]


def test_a_record_that_is_too_large_is_skipped_by_its_type_first(tmp_path):
    large = http(bytes(range(256)) * 90_000)
    records = [record(large, kind="resource"), record(large), record(http())]
    documents, tally = run(tmp_path, *records, max_record=1 << 20)
    assert len(documents) == 1
    assert tally.skipped == {"resource": 1, "too_large": 1} and not tally.incomplete


def test_what_is_no_warc_gives_no_records(tmp_path):
    path = tmp_path / "x.warc"
    path.write_bytes(b"<html>" * 99)
    tally = Tally()
    assert list(read("warc", str(path), tally)) == []
    assert tally.records == 0 and tally.incomplete
    assert tally.problem_counts == {"not_warc": 1}


def test_problems_are_counted_all_and_kept_to_a_bound(tmp_path):
    bad = [record(http()).replace(b"Content-Length", b"Content-Lengthy")] * 150
    _, tally = run(tmp_path, record(http()), *bad)
    assert tally.problem_counts == {"bad_header": 150} and len(tally.problems) == 100


def test_wet_gives_plain_texts(tmp_path):
    text = "Füchse laufen.\n".encode()
    language = "WARC-Identified-Content-Language: deu\r\n"
    records = [
        record(b"isPartOf: CC-MAIN-2024-22", "warcinfo", content_type="application/warc-fields"),
        record(text, "conversion", content_type="text/plain", extra=language),
        record(b"{}", "conversion", content_type="application/json"),
    ]
    (document,), tally = run(tmp_path, *records, kind="wet")
    assert (document.content, document.media_type) == (text, "text/plain")
    assert document.charset == "utf-8" and document.metadata == {"identified_language": "deu"}
    assert tally.skipped == {"warcinfo": 1, "content_type": 1}


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("tar", {}, "tar"),
        ("warc", {"truncate": "keep"}, "truncate"),
        ("warc", {"truncated": "sometimes"}, "truncated"),
    ],
)
def test_unknown_kinds_and_options_are_named(kind, options, named):
    with pytest.raises(InputError, match=named):
        read(kind, "x", Tally(), options)


KINDS = ["response", "request", "metadata", "warcinfo", "odd"]
header = st.sampled_from(
    [
        "Content-Type: text/html",
        "Content-Encoding: gzip",
        "Content-Encoding: br",
        "junk",
        "Transfer-Encoding: chunked",
        "Content-Length: 3",
        "Content-Encoding: deflate, zstd",
    ]
)
body = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=300).map(gzip.compress),
    st.just(b"5\r\nhello\r\n0\r\n\r\n"),
    st.just(b"\x28\xb5\x2f\xfd\x00\x00"),
)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.lists(header, max_size=4), body), max_size=6),
    st.data(),
)
def test_every_record_is_accounted_for_whatever_the_bytes(tmp_path_factory, parts, data):
    records = [record(http(b, "\r\n".join(fields)), kind=kind) for kind, fields, b in parts]
    if data.draw(st.booleans()):
        records = [gzip.compress(r) for r in records]
    content = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(0, 4)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("warc") / "x"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    tally = Tally()
    documents = list(read("warc", str(path), tally))
    assert tally.records == len(documents) + sum(tally.skipped.values())
    assert tally.documents == len(documents)
    assert Counter(tally.problem_counts) >= Counter(p.reason for p in tally.problems)
    assert tally.bytes == path.stat().st_size


class Breaks(io.BytesIO):
    """A stream that ends in an error."""

    def read(self, size=-1):
        if data := super().read(1000):
            return data
        raise OSError("connection reset")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_arrived_before_a_stream_broke_is_read(pack):
    """Also where that is less than it takes to tell the format for sure. (Of members, what is
    decoded ahead may be lost: 16 KB.)"""
    noise = random.Random(1).randbytes(20_000)
    whole = b"".join(pack(record(http(noise), name=f"<urn:uuid:{i}>")) for i in range(5))
    seen = []
    with pytest.raises(OSError, match="connection reset"):
        for frame in Frames(Breaks(whole[:-60])):
            seen.append(frame.problem)
    assert seen == [None] * 4
