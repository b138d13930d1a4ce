"""WARC files in Zstandard, with and without a dictionary, against the same records in gzip."""

import gzip
import io

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from curation.read import Span, Tally, read
from curation.read.framing import Frame, Frames, Gap, read_head


def record(number: int, block: bytes, delta: int = 0) -> bytes:
    head = (
        b"WARC/1.0\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:test:%d>\r\n"
        b"WARC-Target-URI: https://example.org/%d\r\nContent-Length: %d\r\n\r\n"
    )
    return head % (number, number, len(block) + delta) + block + b"\r\n\r\n"


def block(number: int) -> bytes:
    return b"<p>hello %d, and some more text for the length of it</p>" % number


RECORDS = [record(i, block(i)) for i in range(5)]
DICTIONARY = zstandard.train_dictionary(4096, [record(i, block(i * 7919)) for i in range(2000)])


def skippable(content: bytes, kind: int = 0xD) -> bytes:
    return (0x184D2A50 + kind).to_bytes(4, "little") + len(content).to_bytes(4, "little") + content


def plain(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def trained(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(dict_data=DICTIONARY, write_checksum=True).compress(data)


def streamed(data: bytes) -> bytes:
    """A frame that does not tell the size of its content."""
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return packer.compress(data) + packer.flush()


WAYS = {
    "plain": (b"", plain),
    "streamed": (b"", streamed),
    "dictionary": (skippable(DICTIONARY.as_bytes()), trained),
    "packed dictionary": (skippable(zstandard.compress(DICTIONARY.as_bytes())), trained),
    "streamed dictionary": (skippable(streamed(DICTIONARY.as_bytes())), trained),
    "note": (skippable(b"a note", 0x3), plain),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS)


def frames(data: bytes, **options: int) -> list[Frame | Gap]:
    return list(Frames(io.BytesIO(data), **options))


def said(items: list[Frame | Gap]) -> list[tuple[str | None, bytes]]:
    return [(i.problem, bytes(i.block)) if isinstance(i, Frame) else (i.reason, b"") for i in items]


@EVERY_WAY
def test_offset_and_length_cut_the_frame_out_of_the_file(way):
    first, pack = WAYS[way]
    packed = [pack(record) for record in RECORDS]
    data = first + b"".join(packed)
    items = frames(data)
    assert [data[i.offset : i.offset + i.length] for i in items] == packed
    assert said(items) == [(None, block(i)) for i in range(5)]


@EVERY_WAY
def test_records_may_share_a_frame(way):
    first, pack = WAYS[way]
    items = frames(first + pack(b"".join(RECORDS)))
    assert said(items) == [(None, block(i)) for i in range(5)]
    assert [(i.offset, i.length) for i in items] == [(len(first), None)] * 5


def test_archives_with_dictionaries_may_be_joined():
    other = zstandard.train_dictionary(2048, [b"other %d " % i * 20 for i in range(2000)])
    packer = zstandard.ZstdCompressor(dict_data=other)
    data = skippable(DICTIONARY.as_bytes()) + trained(RECORDS[0])
    data += skippable(other.as_bytes()) + packer.compress(RECORDS[1])
    assert said(frames(data)) == [(None, block(0)), (None, block(1))]


@EVERY_WAY
def test_a_chopped_frame_is_reported_and_those_before_it_are_kept(way):
    first, pack = WAYS[way]
    packed = [pack(record) for record in RECORDS[:3]]
    data = first + b"".join(packed)
    for cut in range(1, len(packed[2]) - 3):
        items = frames(data[:-cut])
        assert said(items) == [(None, block(0)), (None, block(1)), ("truncated", b"")]
        assert items[2].offset == len(data) - len(packed[2])


@EVERY_WAY
def test_damage_costs_the_damaged_frame_alone(way):
    first, pack = WAYS[way]
    packed = [pack(record) for record in RECORDS[:3]]
    bad = bytearray(packed[1])
    bad[-1] ^= 0xFF  # in the checksum
    items = frames(first + packed[0] + bytes(bad) + packed[2])
    assert said(items) == [(None, block(0)), ("bad_member", b""), (None, block(2))]
    assert items[1].length == len(bad)


@EVERY_WAY
def test_garbage_between_frames_is_passed_over(way):
    first, pack = WAYS[way]
    for garbage in (b"garbage", b"\0" * 300, b"\x28\xb5"):
        items = frames(first + pack(RECORDS[0]) + garbage + pack(RECORDS[1]))
        assert said(items) == [(None, block(0)), ("garbage", b""), (None, block(1))]


def test_a_dictionary_that_is_damaged_or_missing_costs_records_and_no_crash():
    packed = b"".join(trained(record) for record in RECORDS)
    for first in (b"", skippable(b"\x37\xa4\x30\xec junk"), skippable(b"\x28\xb5\x2f\xfdjunk")):
        items = frames(first + packed)
        assert items and all(isinstance(i, Frame) and i.problem == "bad_member" for i in items)
    assert frames(b"\x5d\x2a\x4d\x18\xff\xff\xff\xff" + packed)  # longer than the file


def test_a_beginning_that_is_damaged_does_not_hide_the_format():
    packed = [plain(record) for record in RECORDS]
    items = frames(b"\0\0\0\0" + packed[0][4:] + b"".join(packed[1:]))
    assert [block for _, block in said(items)] == [b"", *(block(i) for i in range(1, 5))]


@pytest.mark.parametrize("first", [b"\x50\x2a\x4d\x18\n", b"\x5d\x2a\x4d\x18\x01\0\0\0\n"])
def test_what_only_begins_like_a_skippable_frame_does_not_hide_a_plain_file(first):
    items = frames(first + b"".join(RECORDS))
    assert said(items) == [("garbage", b""), *((None, block(i)) for i in range(5))]


def test_a_record_that_is_too_large_is_passed_over():
    data = b"".join(plain(record(i, bytes(10**i))) for i in (3, 7, 3))
    assert [i.problem for i in frames(data, max_record=100_000)] == [None, "too_large", None]


def test_the_first_range_owns_the_file():
    data = b"".join(plain(record) for record in RECORDS)
    parts = []
    for start in range(0, len(data), 100):
        stream = io.BytesIO(data)
        stream.seek(start)
        span = Span(start, start + 100)
        part = Frames(stream, span=span, head=read_head(io.BytesIO(data))[0])
        parts.append(list(part))
        assert (part.first is None) == (start > 0)
        if not start:
            assert part.next.offset == len(data)
    assert said(parts[0]) == [(None, block(i)) for i in range(5)] and not any(parts[1:])


def test_documents_are_those_of_the_same_records_in_gzip(tmp_path):
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page %d"
    records = [record(i, page % i).replace(b"resource", b"response") for i in range(20)]
    (tmp_path / "x.warc.gz").write_bytes(b"".join(gzip.compress(r) for r in records))
    (tmp_path / "x.warc.zst").write_bytes(WAYS["dictionary"][0] + b"".join(map(trained, records)))
    packed, zstd = (
        [(d.id, d.url, d.content) for d in read("warc", str(tmp_path / name), Tally())]
        for name in ("x.warc.gz", "x.warc.zst")
    )
    assert packed == zstd and len(zstd) == 20


bodies = st.lists(st.binary(max_size=200), min_size=1, max_size=6)
lengths = st.sampled_from([0, 0, 0, 0, -3, 1, 57])


@given(bodies, st.data())
def test_frames_are_read_as_members_are(bodies, data):
    groups, garbage = [], []
    for number, body in enumerate(bodies):
        count = data.draw(st.sampled_from([1, 1, 1, 2]))
        delta = max(data.draw(lengths), -len(body))
        groups.append(b"".join(record(number, body, delta) for _ in range(count)))
        garbage.append(data.draw(st.sampled_from([b"", b"", b"", b"garbage"])))
    found = []
    for pack in (gzip.compress, plain, trained):
        first = skippable(DICTIONARY.as_bytes()) if pack is trained else b""
        parts = [pack(group) + more for group, more in zip(groups, garbage, strict=True)]
        found.append(said(frames(first + b"".join(parts))))
    assert found[0] == found[1] == found[2]
