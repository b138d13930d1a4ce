"""Byte ranges of archives: whatever the file and wherever it is cut, the ranges are the file.

`chained` is the rule by which a driver joins them: what a range found where it looked must be where
the range before it ended; else it is read again from there.
"""

import gzip
import hashlib
import io
import itertools
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.read import Span, Tally, read
from curation.read.framing import Frames, read_head
from curation.read.span import Entry, SpanReader
from curation.storage import InputError


def warc(number: int, block: bytes, delta: int = 0, end: bytes = b"\r\n") -> bytes:
    lines = (
        b"WARC/1.0",
        b"WARC-Type: resource",
        b"WARC-Record-ID: <urn:test:%d>" % number,
        b"Content-Length: %d" % max(0, len(block) + delta),
        b"",
        b"",
    )
    return end.join(lines) + block + end + end


def arc(number: int, block: bytes, delta: int = 0) -> bytes:
    line = b"http://example.org/%d 192.0.2.1 20080430204825 text/html %d\n"
    return line % (number, max(0, len(block) + delta)) + block + b"\n"


def stored(data: bytes) -> bytes:
    """gzip without compression: what is inside shows."""
    packer = zlib.compressobj(0, wbits=31)
    return packer.compress(data) + packer.flush()


def whole(data: bytes, max_record: int):
    frames = Frames(io.BytesIO(data), max_record)
    return [as_read(item) for item in frames], frames


def as_read(item):
    block = bytes(item.block) if hasattr(item, "block") else None
    return type(item).__name__, item, block


class Range:
    """One range of a file, read."""

    def __init__(self, data: bytes, span: Span, max_record: int) -> None:
        source = io.BytesIO(data)
        source.seek(span.start)
        stream = SpanReader(source, span)
        frames = Frames(stream, max_record, span, read_head(io.BytesIO(data))[0])
        self.items = [as_read(item) for item in frames]
        self.first, self.next = frames.first, frames.next
        self.consumed = source.tell()
        stream.drain()
        inside = data[span.start : span.stop]
        assert stream.bytes == len(inside)
        assert stream.digest == hashlib.blake2b(inside, digest_size=16).hexdigest()


def spans(cuts: list[int], size: int, open_end: bool) -> list[tuple[int, int | None]]:
    points = sorted({0, *(cut for cut in cuts if 0 < cut < size), size})
    pairs: list[tuple[int, int | None]] = list(itertools.pairwise(points))
    if open_end and pairs:
        pairs[-1] = (pairs[-1][0], None)
    return pairs or [(0, None)]


def told(data: bytes, cuts: list[tuple[int, int | None]], max_record: int):
    """The items, and the last entry, when each range is told where it begins."""
    items, entry = [], None
    for start, stop in cuts:
        part = Range(data, Span(start, stop, entry), max_record)
        assert part.first == (entry or Entry(0))
        items += part.items
        entry = part.next
        assert stop is None or entry.offset >= stop
    return items, entry


def chained(data: bytes, cuts: list[tuple[int, int | None]], max_record: int):
    """The items, the last entry, and how many ranges were read twice."""
    items, expected, again = [], Entry(0), 0
    for start, stop in cuts:
        part = Range(data, Span(start, stop), max_record)
        beyond = stop is not None and expected.offset >= stop
        if part.first != expected and not (beyond and part.first is None):
            part = Range(data, Span(start, stop, expected), max_record)
            again += 1
        items += part.items
        expected = part.next or expected
    return items, expected, again


FRIENDS = [
    b"WARC/1.0\r\nA: b\r\n\r\n",
    b"\nWARC/1.0\r\nContent-Length: 3\r\n\r\nabc\r\n\r\n",
    b"\r\n\r\n",
    b"\n\n\n",
    b"WARC/",
    b"\x1f\x8b\x08",
    b"\x1f\x8b",
    b"\nhttp://e.org/ 192.0.2.1 20080430204825 text/html 5\nabcde\n",
    b"x" * 300,
    b"",
]
plain_bytes = st.one_of(st.sampled_from(FRIENDS), st.binary(max_size=60))


@st.composite
def block(draw, write, depth=0):
    """Bytes of a block: anything, and archives in archives."""
    choice = draw(st.integers(0, 5 if depth < 2 else 2))
    if choice < 3:
        return draw(plain_bytes)
    inner = draw(st.lists(block(write, depth + 1), min_size=1, max_size=3))
    records = [write(90 + i, body) for i, body in enumerate(inner)]
    nested = b"".join(stored(r) if choice == 3 else r for r in records)
    return draw(plain_bytes) + draw(st.sampled_from([b"", b"\n"])) + nested + draw(plain_bytes)


@st.composite
def archives(draw):
    """A file: records plain, one or several to a member, garbage, wrong lengths, damage, a cut."""
    write = draw(st.sampled_from([warc, warc, arc]))
    packed = draw(st.sampled_from(["plain", "gzip", "mixed"]))
    parts = []
    for i in range(draw(st.integers(1, 7))):
        if draw(st.integers(0, 6)) == 0:
            parts.append(draw(plain_bytes))
            continue
        records = []
        for _ in range(1 if draw(st.integers(0, 3)) else draw(st.integers(0, 3))):
            delta = draw(st.sampled_from([0, 0, 0, 0, -3, 1, 4, 57, 150, 1000, 10**9]))
            records.append(write(i, draw(block(write)), delta))
        part = b"".join(records)
        if packed == "gzip" or (packed == "mixed" and draw(st.booleans())):
            pack = draw(st.sampled_from([gzip.compress, stored]))
            cut = draw(st.integers(0, len(part))) if draw(st.integers(0, 5)) == 0 else 0
            part = (pack(part[:cut]) if cut else b"") + pack(part[cut:])
        parts.append(part + draw(st.sampled_from([b"", b"", b"", b"\r\n", b"\n\n\n"])))
    data = bytearray(b"".join(parts))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3])) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 3, 20]))])


cut_points = st.lists(st.integers(0, 3000), max_size=8)
max_records = st.sampled_from([64 << 20, 100])


@settings(deadline=None)
@given(archives(), cut_points, st.booleans(), max_records)
def test_ranges_that_are_told_where_they_begin_give_the_whole_file(data, cuts, open_end, limit):
    items, frames = whole(data, limit)
    found, end = told(data, spans(cuts, len(data), open_end), limit)
    assert found == items
    assert end == frames.next
    assert end.offset == len(data)


@settings(deadline=None)
@given(archives(), cut_points, st.booleans(), max_records)
def test_ranges_that_look_and_are_chained_give_the_whole_file(data, cuts, open_end, limit):
    items, frames = whole(data, limit)
    found, end, _ = chained(data, spans(cuts, len(data), open_end), limit)
    assert found == items
    assert end == frames.next


@settings(deadline=None, max_examples=50)
@given(archives(), st.integers(1, 40))
def test_ranges_of_few_bytes_give_the_whole_file(data, size):
    cuts = spans(list(range(0, len(data), size)), len(data), False)
    assert chained(data, cuts, 100)[0] == whole(data, 100)[0]


@pytest.mark.parametrize("write", [warc, arc])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_of_a_sound_file_no_range_is_read_twice(write, pack):
    records = [pack(write(i, b"<p>page %d</p>\n\n" % i * 50)) for i in range(40)]
    data = b"".join(records)
    starts = [len(b"".join(records[:i])) for i in range(40)]
    tails = {start + i for start in starts for i in (1, 2, 3) if data[:4] == b"http"}
    for size in (1, 100, starts[7], len(data) - 1):
        cuts = spans(list(range(0, len(data), size)), len(data), False)
        items, _, again = chained(data, cuts, 1 << 20)
        assert [item.offset for _, item, _ in items] == starts
        # a record line of ARC cut in its scheme (ttp://, tp://, p://) looks like another one
        assert again == len(tails.intersection(start for start, _ in cuts))


@pytest.mark.parametrize("pack", [bytes, stored])
def test_a_nested_archive_that_looks_like_a_boundary_is_read_again(pack):
    nested = b"\n" + b"".join(pack(warc(90 + i, b"inner" * 9)) for i in range(5))
    records = [pack(warc(i, nested if i == 1 else b"outer")) for i in range(3)]
    data = b"".join(records)
    middle = len(records[0]) + len(records[1]) // 2
    guess = Range(data, Span(middle, None), 1 << 20)
    assert guess.first.offset < len(records[0] + records[1]), "taken in by the nested archive"
    items, _, again = chained(data, spans([middle], len(data), False), 1 << 20)
    assert [block for _, _, block in items] == [b"outer", nested, b"outer"]
    assert again == 1


def test_a_range_in_which_nothing_begins_reads_no_further():
    data = warc(0, b"x" * 5_000_000) + warc(1, b"y")
    part = Range(data, Span(1000, 2000), 64 << 20)
    assert part.first is None and part.next is None and part.items == []
    assert part.consumed < 1_000_000


def test_a_range_whose_entry_lies_beyond_it_owns_nothing():
    entry = Entry(70, single=True)
    part = Range(warc(0, b"x" * 500), Span(10, 60, entry), 1000)
    assert part.items == [] and part.first == part.next == entry


def test_the_first_range_owns_all_up_to_the_first_record_of_the_file():
    lead, first = b"\0" * 500 + b"\n", warc(0, b"a")
    data = lead + first + warc(1, b"b")
    part = Range(data, Span(0, 10), 1000)
    assert [item.offset for _, item, _ in part.items] == [0, len(lead)]
    assert part.next == Entry(len(lead + first))
    assert len(chained(data, spans([10, 505], len(data), False), 1000)[0]) == 3


def http(number: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page %d" % number


def test_documents_of_ranges_are_those_of_the_file(tmp_path):
    records = [
        warc(i, http(i), 3 if i == 7 else 0).replace(b"resource", b"response") for i in range(20)
    ]
    data = b"".join(gzip.compress(record) for record in records)
    path = tmp_path / "x.warc.gz"
    path.write_bytes(data)
    tally = Tally()
    documents = list(read("warc", str(path), tally))
    assert len(documents) == 20
    assert (tally.first, tally.next) == (Entry(0), Entry(len(data), single=True))
    parts, entry = [], None
    for start in range(0, len(data), 1000):
        tally = Tally()
        span = Span(start, min(start + 1000, len(data)), entry)
        parts += read("warc", str(path), tally, span=span)
        inside = data[start : start + 1000]
        assert (tally.bytes, tally.digest) == (
            len(inside),
            hashlib.blake2b(inside, digest_size=16).hexdigest(),
        )
        entry = tally.next
    assert parts == documents


def test_kinds_that_do_not_split_refuse_a_span():
    with pytest.raises(InputError, match="jsonl"):
        read("jsonl", "x.jsonl", Tally(), span=Span(0, 10))
