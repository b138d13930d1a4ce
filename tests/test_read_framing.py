"""Record boundaries of WARC files, whole and damaged. Expected values are what was written."""

import gzip
import io
import tracemalloc
import zlib

import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import assume, given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from curation.read.framing import Frame, Frames, Gap
from curation.read.records import MAX_HEADER


def record(number: int, block: bytes, delta: int = 0, end: bytes = b"\r\n") -> bytes:
    """A record whose Content-Length is off by `delta`."""
    lines = (
        b"WARC/1.0",
        b"WARC-Type: resource",
        b"WARC-Record-ID: <urn:test:%d>" % number,
        b"WARC-Target-URI: https://example.org/%d" % number,
        b"WARC-Date: 2024-05-01T00:00:00Z",
        b"Content-Type: text/html",
        b"Content-Length: %d" % (len(block) + delta),
        b"",
        b"",
    )
    return end.join(lines) + block + end + end


def block(number: int) -> bytes:
    return b"<p>hello %d, and some more text for the length of it</p>" % number


def archive(records: list[bytes], kind: str) -> bytes:
    return b"".join(gzip.compress(r, mtime=0) if kind == "gz" else r for r in records)


def read(data: bytes, **options: int) -> list[Frame | Gap]:
    return list(Frames(io.BytesIO(data), **options))


def blocks(items: list[Frame | Gap]) -> list[bytes]:
    """Blocks of the usable records."""
    usable = (None, "bad_length")
    return [bytes(i.block) for i in items if isinstance(i, Frame) and i.problem in usable]


def troubles(items: list[Frame | Gap]) -> list[tuple[str, int]]:
    named = [(i.reason if isinstance(i, Gap) else i.problem, i.offset) for i in items]
    return [(reason, offset) for reason, offset in named if reason]


BOTH = pytest.mark.parametrize("kind", ["plain", "gz"])


@BOTH
def test_offset_and_length_cut_the_record_out_of_the_file(kind):
    written = [record(i, block(i)) for i in range(5)]
    data = archive(written, kind)
    items = read(data)
    cut = [data[i.offset : i.offset + i.length] for i in items]
    assert [gzip.decompress(c) if kind == "gz" else c for c in cut] == written
    assert blocks(items) == [block(i) for i in range(5)]
    assert troubles(items) == []


@BOTH
def test_bare_line_feeds_are_accepted(kind):
    data = archive([record(i, block(i), end=b"\n") for i in range(3)], kind)
    assert blocks(read(data)) == [block(i) for i in range(3)]
    assert troubles(read(data)) == []


def test_records_that_share_a_member_have_its_offset_and_no_length():
    first = gzip.compress(record(0, block(0)))
    data = first + gzip.compress(b"".join(record(i, block(i)) for i in (1, 2, 3)))
    items = read(data)
    assert blocks(items) == [block(i) for i in range(4)]
    assert [(i.offset, i.length) for i in items] == [(0, len(first)), *[(len(first), None)] * 3]


def test_the_name_does_not_matter_the_first_bytes_do():
    assert read(b"") == []
    assert read(gzip.compress(b"")) == []
    for data in (b"hi\n", gzip.compress(b"hi\n"), gzip.compress(b"hi\n") * 2, b"\0" * 999):
        assert read(data) == [Gap(0, len(data), "not_warc")]


def test_a_chopped_member_is_reported_and_those_before_it_are_kept():  # warcio 138
    members = [gzip.compress(record(i, block(i))) for i in range(3)]
    data = b"".join(members)
    last = len(data) - len(members[2])
    for size in range(last + 2, len(data)):
        items = read(data[:size])
        assert blocks(items) == [block(0), block(1)]
        assert troubles(items) == [("truncated", last)]


def test_a_chopped_plain_file_is_reported_wherever_it_is_cut():
    records = [record(i, block(i)) for i in range(3)]
    data = b"".join(records)
    last = len(data) - len(records[2])
    for size in range(last + 5, len(data)):
        items = read(data[:size])
        assert blocks(items)[:2] == [block(0), block(1)]
        separator_cut = len(data) - size <= 4  # the block is whole
        assert troubles(items) == [("truncated", size if separator_cut else last)]
        assert len(blocks(items)) == (3 if separator_cut else 2)


@BOTH
@pytest.mark.parametrize("delta", [*range(-10, 0), *range(1, 11), 57, 150, 1000])
def test_a_wrong_content_length_costs_nothing(kind, delta):  # jwarc 29, warcio 121
    data = archive([record(i, block(i), delta if i == 1 else 0) for i in range(9)], kind)
    items = read(data)
    assert blocks(items) == [block(i) for i in range(9)]
    assert [i.problem for i in items] == [None, "bad_length", *[None] * 7]


def test_a_wrong_content_length_inside_a_shared_member_is_found_too():
    data = gzip.compress(b"".join(record(i, block(i), -3 if i == 1 else 0) for i in range(4)))
    assert blocks(read(data)) == [block(i) for i in range(4)]


@BOTH
def test_nested_archives_are_left_alone(kind):
    nested = b"".join(record(i, block(i)) for i in (10, 11))
    bodies = [b"a", nested, archive([nested], "gz"), b"\r\n\r\n" + nested, b"b"]
    data = archive([record(i, body) for i, body in enumerate(bodies)], kind)
    assert blocks(read(data)) == bodies
    assert troubles(read(data)) == []


def test_a_member_is_the_record_when_the_length_lies_about_a_nested_archive():
    nested = b"x" + b"".join(record(i, block(i)) for i in (10, 11)) + b"y"
    data = archive([record(0, b"a"), record(1, nested, -7), record(2, b"b")], "gz")
    assert blocks(read(data)) == [b"a", nested, b"b"]


def test_a_nested_archive_in_a_chopped_member_is_not_taken_for_records():
    def stored(content: bytes) -> bytes:
        packer = zlib.compressobj(0, wbits=31)
        return packer.compress(content) + packer.flush()

    nested = stored(record(10, block(10))) + stored(record(11, block(11)))
    last = stored(record(1, nested + b"x" * 100))
    data = stored(record(0, block(0))) + last
    items = read(data[:-50])
    assert blocks(items) == [block(0)]
    assert troubles(items) == [("truncated", len(data) - len(last))]


@pytest.mark.parametrize("back", [8, 6, 2])  # in the checksum, in the length
def test_a_wrong_checksum_costs_its_member(back):
    members = [gzip.compress(record(i, block(i))) for i in range(3)]
    bad = bytearray(members[1])
    bad[-back] ^= 0xFF
    items = read(members[0] + bytes(bad) + members[2])
    assert blocks(items) == [block(0), block(2)]
    assert troubles(items) == [("bad_member", len(members[0]))]
    assert items[1].length == len(bad)


def test_a_damaged_first_member_costs_no_more():
    members = [gzip.compress(record(i, block(i))) for i in range(3)]
    bad = bytearray(members[0])
    bad[20:60] = b"\xff" * 40
    items = read(bytes(bad) + members[1] + members[2])
    assert blocks(items) == [block(1), block(2)]
    assert troubles(items) == [("bad_member", 0)]


def test_a_damaged_member_that_inflates_to_the_end_of_the_file_does_not_hide_the_rest():
    rest = b"".join(gzip.compress(record(i, block(i))) for i in (1, 2))
    size = len(rest) + 1000  # a stored block that claims more bytes than there are
    header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01"
    bad = header + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little")
    first = gzip.compress(record(0, block(0)))
    items = read(first + bad + rest)
    assert blocks(items) == [block(0), block(1), block(2)]
    assert troubles(items) == [("bad_member", len(first))]


@pytest.mark.parametrize("garbage", [b"garbage", b"\0" * 100, b"\x1f", b"\x1f\x8b\x08" * 9])
def test_garbage_between_members_is_passed_over(garbage):
    members = [gzip.compress(record(i, block(i))) for i in range(2)]
    items = read(members[0] + garbage + members[1])
    assert blocks(items) == [block(0), block(1)]
    assert [offset for _, offset in troubles(items)] == [len(members[0])]


def test_garbage_between_plain_records_is_passed_over():
    first, second = record(0, block(0)), record(1, block(1))
    garbage = b"XARC/1.0\r\nWARC-Type: broken\r\n\r\n" + b"\0" * 300 + b"\n"
    items = read(first + garbage + second)
    assert blocks(items) == [block(0), block(1)]
    assert troubles(items) == [("garbage", len(first))]
    assert items[1].length == len(garbage)


@BOTH
def test_a_header_without_a_length_costs_its_record(kind):
    broken = record(1, block(1)).replace(b"Content-Length", b"Content-Lentgh")
    written = [record(0, block(0)), broken, record(2, block(2))]
    items = read(archive(written, kind))
    assert blocks(items) == [block(0), block(2)]
    assert [i.problem for i in items] == [None, "bad_header", None]


@pytest.mark.parametrize("share", [False, True])
def test_a_record_that_is_spread_over_members_is_put_together(share):
    written = [record(0, block(0)), record(1, block(1) * 9), record(2, block(2))]
    for cut in range(5, len(written[1]) - 4, 7):
        middle = [written[1][:cut], written[1][cut:]]
        if share:
            middle = [written[0] + middle[0], middle[1] + written[2]]
            members = [gzip.compress(m) for m in middle]
            places = [(0, None)] * 3
        else:
            members = [gzip.compress(m) for m in (written[0], *middle, written[2])]
            ends = [sum(map(len, members[: i + 1])) for i in range(4)]
            places = [(0, ends[0]), (ends[0], ends[2] - ends[0]), (ends[2], len(members[3]))]
        items = read(b"".join(members))
        assert blocks(items) == [block(0), block(1) * 9, block(2)]
        assert troubles(items) == []
        assert [(i.offset, i.length) for i in items] == places


def test_a_wrong_length_does_not_take_over_a_member_that_is_no_record():
    members = [
        record(0, block(0)),
        record(1, block(1), 5),
        b"no record at all",
        record(2, block(2)),
    ]
    items = read(b"".join(gzip.compress(m) for m in members))
    assert blocks(items) == [block(0), block(1), block(2)]
    assert [reason for reason, _ in troubles(items)] == ["bad_length", "garbage"]


def test_a_member_without_a_version_line_is_a_bad_header():
    members = [gzip.compress(r) for r in (record(0, block(0)), b"no record", record(2, block(2)))]
    items = read(b"".join(members))
    assert [i.problem for i in items] == [None, "bad_header", None]
    assert (items[1].offset, items[1].length) == (len(members[0]), len(members[1]))


@BOTH
def test_a_record_that_is_too_large_is_passed_over_in_bounded_memory(kind):
    large = bytes(range(256)) * 200_000  # 51 MB
    data = archive([record(0, block(0)), record(1, large), record(2, block(2))], kind)
    del large
    tracemalloc.start()
    items = read(data, max_record=100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blocks(items) == [block(0), block(2)]
    assert [i.problem for i in items] == [None, "too_large", None]
    assert sum(i.length for i in items) == len(data)
    assert peak < 24 << 20


@BOTH
def test_the_largest_block_is_as_large_as_asked_for(kind):
    data = archive([record(i, b"x" * (999 + i)) for i in range(3)], kind)
    assert [i.problem for i in read(data, max_record=1000)] == [None, None, "too_large"]


@BOTH
def test_a_length_beyond_the_end_of_the_file_does_not_hide_the_records_after_it(kind):
    data = archive([record(i, block(i), 10**12 if i == 1 else 0) for i in range(4)], kind)
    assert blocks(read(data)) == [block(i) for i in range(4)]


class Dribble(io.BytesIO):
    """A stream that gives few bytes at a time, as sockets do."""

    step = 1

    def read(self, size=-1):
        return super().read(min(size, self.step) if size >= 0 else self.step)


#: Blocks that hold no line that looks like a WARC version.
bodies = st.lists(
    st.one_of(
        st.binary(max_size=200).filter(lambda b: b"WARC" not in b),
        st.sampled_from([b"", b"\r\n\r\n", b"a\n\n", b"HTTP/1.1 200 OK\r\n\r\n", b"WARC/"]),
        st.just(b"x" * 9000),
    ),
    min_size=1,
    max_size=6,
)
kinds = st.sampled_from(["plain", "gz"])


@given(bodies, kinds, st.integers(1, 700), st.integers(0, 2000))
def test_the_size_of_reads_does_not_matter(bodies, kind, step, cut):
    data = archive([record(i, body) for i, body in enumerate(bodies)], kind)
    data = data[: max(0, len(data) - cut)]
    stream = Dribble(data)
    stream.step = step
    assert list(Frames(stream)) == read(data)


@pytest.mark.parametrize("size", [MAX_HEADER - 300, MAX_HEADER + 100, MAX_HEADER + 100_000])
@pytest.mark.parametrize("header", [False, True])
def test_where_looking_ends_does_not_depend_on_the_size_of_reads(size, header):
    long = record(1, b"x" * size, 10 - size)
    long = long.replace(b"\r\n\r\n", b"\r\n", 1) if header else long
    data = record(0, b"a") + long + record(2, b"b")
    results = []
    for step in (1000, 999_983, 1 << 30):
        stream = Dribble(data)
        stream.step = step
        results.append(list(Frames(stream, 300)))
    assert results[0] == results[1] == results[2]
    assert blocks(results[0])[0] == b"a" and blocks(results[0])[-1] == b"b"


@given(bodies, kinds)
def test_whole_files_read_as_other_readers_read_them(bodies, kind):
    data = archive([record(i, body) for i, body in enumerate(bodies)], kind)
    items = read(data)
    assert troubles(items) == []
    assert blocks(items) == bodies
    assert blocks(items) == [r.reader.read() for r in ArchiveIterator(io.BytesIO(data))]
    assert blocks(items) == [r.raw_stream.read() for r in WarcioIterator(io.BytesIO(data))]


@given(bodies, kinds, st.data())
def test_damage_costs_the_damaged_record_alone(bodies, kind, data):
    victim = data.draw(st.integers(0, len(bodies) - 1))
    damage = data.draw(st.sampled_from(["length", "cut", "flip", "garbage"]))
    written = [record(i, body) for i, body in enumerate(bodies)]
    kept = [body for i, body in enumerate(bodies) if i != victim]
    if damage == "length":
        delta = data.draw(st.integers(-10, 1000).filter(bool))
        assume(len(bodies[victim]) + delta >= 0)
        wrong = record(victim, bodies[victim], delta)
        ends = [sum(map(len, written[: i + 1])) for i in range(len(written))]
        claimed = ends[victim] - len(written[victim]) + len(wrong) + delta
        shift = len(wrong) - len(written[victim])
        assume(kind == "gz" or claimed not in [end + shift for end in ends])
        written[victim] = wrong
    parts = [archive([part], kind) for part in written]
    if damage == "cut":
        size = data.draw(st.integers(0, len(parts[victim]) - 1))
        parts = [*parts[:victim], parts[victim][:size]]
        kept = bodies[:victim]
    elif damage == "flip":
        edge = 0 if kind == "gz" else 5
        at = data.draw(st.integers(0, len(parts[victim]) - 1 - edge))
        bad = bytearray(parts[victim])
        bad[at] ^= data.draw(st.integers(1, 255))
        parts[victim] = bytes(bad)
    elif damage == "garbage":
        garbage = data.draw(st.binary(min_size=1, max_size=99)) + b"\n"
        assume(kind == "gz" or not garbage.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")))
        parts.insert(victim, garbage)
        kept = bodies
    found = blocks(read(b"".join(parts)))
    rest = iter(found)
    assert all(body in rest for body in kept), (found, kept)
    assert len(found) <= len(bodies)
