"""Bodies with their codings undone: RFC 9110, RFC 9112, and what servers do instead."""

import contextlib
import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from curation.read.http import (
    TooLarge,
    Undecodable,
    decode_body,
    media_type,
    parse_fields,
    split_message,
)

PAGE = "".join(f"<p>Zeile {i} mit Größe</p>\n" for i in range(500)).encode()


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def chunks(data: bytes, size: int, end: bytes = b"\r\n") -> bytes:
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    framed = b"".join(b"%x;ext=1%b%b%b" % (len(p), end, p, end) for p in parts)
    return framed + b"0" + end + end


def decode(body: bytes, content: str = "", transfer: str = "", limit: int = 1 << 20):
    notes: list[str] = []
    return decode_body(body, transfer, content, notes, limit), notes


CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=5),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", CODERS)
def test_each_coding_is_undone(coding):
    assert decode(CODERS[coding](PAGE), coding) == (PAGE, [])
    assert decode(CODERS[coding](PAGE), coding.upper() + " ") == (PAGE, [])
    assert decode(chunks(CODERS[coding](PAGE), 100), coding, "chunked") == (PAGE, [])


def test_raw_deflate_is_understood_as_browsers_do():
    assert decode(raw_deflate(PAGE), "deflate") == (PAGE, [])


def test_codings_are_undone_in_reverse_order():
    body = zstandard.compress(brotli.compress(gzip.compress(PAGE)))
    assert decode(body, "gzip, br,zstd") == (PAGE, [])
    assert decode(chunks(gzip.compress(PAGE), 999), "", "gzip, chunked") == (PAGE, [])


def test_members_and_trailing_bytes_of_gzip():
    assert decode(gzip.compress(b"a" * 99) + gzip.compress(b"b"), "gzip") == (b"a" * 99 + b"b", [])
    assert decode(gzip.compress(PAGE) + b"\r\n", "gzip") == (PAGE, [])


@pytest.mark.parametrize("coding", CODERS)
def test_a_coding_that_was_not_applied_is_a_lie(coding):
    assert decode(PAGE, coding) == (PAGE, ["encoding_lies"])
    assert decode(b"ok", coding) == (b"ok", ["encoding_lies"])


@pytest.mark.parametrize("label", ["identity", "none", ""])
def test_labels_that_mean_nothing(label):
    assert decode(PAGE, label) == (PAGE, [])


@pytest.mark.parametrize("label", ["utf-8", "text/html", "compress", "?"])
def test_labels_that_are_no_coding_are_noted(label):
    assert decode(PAGE, label) == (PAGE, ["encoding_unknown"])


def test_a_coding_that_was_not_named_is_undone():
    assert decode(gzip.compress(PAGE)) == (PAGE, ["encoding_lies"])


@pytest.mark.parametrize("coding", [*CODERS, "compress", "sdch"])
def test_what_cannot_be_undone_is_an_error(coding):
    with pytest.raises(Undecodable):
        decode(b"\x1f\x9d\x90\x00\x01\xff\x02" * 20, coding)


@pytest.mark.parametrize("coding", CODERS)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_body_that_is_cut_is_decoded_as_far_as_it_goes(coding, share):
    rows = b"".join(b"%d " % (i * i * 7919 % 100_003) for i in range(200_000))
    coded = CODERS[coding](rows)
    body, notes = decode(coded[: int(len(coded) * share)], coding, limit=1 << 24)
    assert notes == ["body_cut"]
    assert rows.startswith(body) and len(body) > len(rows) / 5


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_damaged_body_is_decoded_up_to_the_damage(coding):
    rows = b"".join(b"%d " % (i * i * 7919 % 100_003) for i in range(20_000))
    coded = bytearray(CODERS[coding](rows))
    middle = len(coded) // 2
    coded[middle : middle + 64] = b"\xff" * 64
    body, notes = decode(bytes(coded), coding)
    assert notes == ["body_damaged"]
    intact = len(rows) // 5
    assert body[:intact] == rows[:intact]


@pytest.mark.parametrize("coding", CODERS)
def test_a_bomb_is_bounded(coding):
    with pytest.raises(TooLarge):
        decode(CODERS[coding](b"\0" * (64 << 20)), coding, limit=1 << 20)
    exact = b"x" * 1000
    assert decode(CODERS[coding](exact), coding, limit=1000) == (exact, [])


def test_chunks_with_bare_line_feeds():
    assert decode(chunks(PAGE, 77, b"\n"), transfer="Chunked") == (PAGE, [])


def test_a_body_that_says_chunked_but_is_not():
    assert decode(PAGE, transfer="chunked") == (PAGE, ["chunked_lies"])


def test_chunks_that_end_early_give_what_is_there():
    body = chunks(PAGE, 1000)
    assert decode(body[:1500], transfer="chunked") == (PAGE[:1476], ["body_cut"])
    assert decode(body[:-5], transfer="chunked") == (PAGE, ["body_cut"])
    assert decode(b"5\r\nhello\r\nzz\r\nrest", transfer="chunked") == (b"hello", ["body_damaged"])
    assert decode(b"5\r\nhelloworld", transfer="chunked") == (b"hello", ["body_damaged"])


def test_header_fields():
    fields = parse_fields(b"A: 1\r\nb :  2 \r\na:3\r\nno colon\r\nLong: x\r\n  y\r\nU: \xff\r\n")
    assert fields == {"a": "1, 3", "b": "2", "long": "x y", "u": "ÿ"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text/html", ("text/html", None)),
        ("Text/HTML;charset='utf-8'", ("text/html", "utf-8")),
        ('text/html; a=b; CHARSET = "x" ; charset=y', ("text/html", "x")),
        ("text/html; charset=utf-8, text/html", ("text/html", "utf-8")),
        ("text/html; charset=utf-8, text/plain", ("text/plain", None)),
        ("html", ("", None)),
        ("", ("", None)),
    ],
)
def test_media_types(value, expected):
    assert media_type(value) == expected


def test_messages():
    block = b"HTTP/1.1 200 OK\nA: b\n\nbody\r\n\r\nmore"
    assert split_message(memoryview(block)) == (200, {"a": "b"}, b"body\r\n\r\nmore")
    assert split_message(b"HTTP/1.1 200 OK\r\n\r\nx") == (200, {}, b"x")
    interim = b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\n"
    assert split_message(interim + block) == split_message(block)
    assert split_message(interim + b"x") == (100, {"a": "b"}, b"x")
    assert split_message(b"GET / HTTP/1.1\r\n\r\n") is None


names = st.sampled_from(["gzip", "deflate", "br", "zstd", "chunked", "identity", "x", "gzip, br"])


@given(st.binary(max_size=400), names, names)
def test_any_bytes_are_decoded_or_refused(body, content, transfer):
    with contextlib.suppress(Undecodable, TooLarge):
        decode(body, content, transfer)
