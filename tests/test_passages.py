"""Shared passages of two texts against a plain reference, and the order in which they meet."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from curation.inspect.passages import SHINGLE, Worded, aligned, shared

#: Few words, so that shingles repeat; marks, wide and right-to-left letters between them.
texts = st.lists(
    st.sampled_from(["a", "b", "B", "c", "été", "水", "كان", "-", "…", "\n", "don't"]), max_size=40
).map(" ".join)


def reference(one: list[int], other: list[int]) -> list[bool]:
    """Whether each word is in a run of words that is somewhere in the other text."""
    size = min(SHINGLE, len(one), len(other))
    runs = [other[i : i + size] for i in range(len(other) - size + 1)]
    return [
        any(
            one[i : i + size] in runs
            for i in range(word - size + 1, word + 1)
            if size and 0 <= i <= len(one) - size
        )
        for word in range(len(one))
    ]


@settings(max_examples=200, deadline=None)
@given(texts, texts)
def test_shared_words_are_those_of_the_plain_reference(left: str, right: str) -> None:
    one, other = Worded.of(left), Worded.of(right)
    a, b = one.hashes.tolist(), other.hashes.tolist()
    found = tuple(marks.tolist() for marks in shared(one, other))
    assert found == (reference(a, b), reference(b, a))


#: After "p" to "s" a passage that begins again with "r s": of the other text these are taken.
REPEATED = "n p1 p2 p3 p4 p5 r s q r s t u v w", "m p1 p2 p3 p4 p5 r s t u v z"


@settings(max_examples=200, deadline=None)
@given(texts, texts, texts)
@example(REPEATED[0], "", REPEATED[1])
def test_aligned_blocks_are_equal_words_in_the_order_of_both(a: str, b: str, c: str) -> None:
    one, other = Worded.of(f"{a} {b}"), Worded.of(f"{b} {c}")
    i = j = 0
    for block in aligned(one, other):
        assert block.left >= i and block.right >= j and block.length > 0
        i, j = block.left + block.length, block.right + block.length
        assert (one.hashes[block.left : i] == other.hashes[block.right : j]).all()
    assert i <= len(one) and j <= len(other)


def test_an_insertion_parts_the_text_in_two_blocks() -> None:
    words = [f"word{i}" for i in range(60)]
    other = [*words[:30], "some", "thing", "new", *words[30:]]
    blocks = aligned(Worded.of(" ".join(words)), Worded.of(" ".join(other)))
    assert [(b.left, b.right, b.length) for b in blocks] == [(0, 0, 30), (30, 33, 30)]


def test_every_edit_is_found_between_its_neighbours() -> None:
    words = [f"word{i}" for i in range(400)]
    other = [f"edit{i}" if i % 20 == 7 else word for i, word in enumerate(words)]
    blocks = aligned(Worded.of(" ".join(words)), Worded.of(" ".join(other)))
    assert sum(block.length for block in blocks) == 380
    assert all(block.left == block.right for block in blocks)


def test_what_occurs_once_between_two_blocks_is_found_although_it_occurs_elsewhere() -> None:
    """A boilerplate sentence stands in both halves: it is no anchor at first."""
    said = "you may use this page as you like"
    first, second = (" ".join(f"{half}{i}" for i in range(20)) for half in ("p", "q"))
    one = f"x {said} y {first} z {said} w {second}"
    other = f"1 {said} 2 {first} 3 {said} 4 {second}"
    assert sum(block.length for block in aligned(Worded.of(one), Worded.of(other))) == 40 + 16


def test_a_moved_passage_is_shared_but_not_aligned_twice() -> None:
    first, second = (" ".join(f"{half}{i}" for i in range(20)) for half in ("p", "q"))
    one, other = Worded.of(f"{first} {second}"), Worded.of(f"{second} {first}")
    assert all(shared(one, other)[0])
    assert sum(block.length for block in aligned(one, other)) == 20


def test_spans_are_offsets_in_characters() -> None:
    left, right = "Ärger: “the old mill by the river”", "水 The OLD mill by the river!"
    one, other = Worded.of(left), Worded.of(right)
    marks = shared(one, other)
    assert [left[i:j] for i, j in one.spans(marks[0])] == ["the old mill by the river"]
    assert [right[i:j] for i, j in other.spans(marks[1])] == ["The OLD mill by the river"]
