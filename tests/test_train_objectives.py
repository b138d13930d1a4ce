"""Objectives against what plain Python reads back: each row, decoded, is the row that went in."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manifests.rows import Rows
from manifests.tokens import Tokenizer
from tests.make_tokens import make
from tests.ranks import run_ranks
from tests.trainers import config, lines, train
from training import config as knobs
from training.config import ConfigError
from training.layout import IGNORED, Micro
from training.objectives import Objective, causal

ORDINARY, EOS, BOS, MASK, OTHER = 50, 50, 51, 52, 53
SENTINELS = tuple(range(54, 74))
#: Padding is EOS, as with many tokenizers; OTHER is a special token without a use.
TOKENIZER = Tokenizer("", "", 0, 74, EOS, BOS, EOS, MASK, SENTINELS, {"<|other|>": OTHER})
LENGTH = 64

Pieces = list[list[list[int]]]  # of each row, of each piece, its tokens


def rows_of(pieces: Pieces, length: int = LENGTH) -> Rows:
    """Packed rows of pieces, filled up with EOS."""
    tokens = np.full((len(pieces), length), EOS, np.uint16)
    for row, own in zip(tokens, pieces, strict=True):
        flat = [token for piece in own for token in piece]
        row[: len(flat)] = flat
    lengths = np.array([len(piece) for own in pieces for piece in own], np.int32)
    return Rows(
        tokens,
        np.cumsum([0, *(len(own) for own in pieces)]),
        lengths,
        np.zeros(len(lengths), np.int64),
        np.zeros((len(lengths), 2), np.uint64),
        np.arange(len(pieces), dtype=np.int16),
    )


def objective(kind: str, tokenizer: Tokenizer = TOKENIZER, **more: float) -> Objective:
    return Objective(knobs.Objective(kind=kind, **more), tokenizer, seed=20)  # type: ignore[arg-type]


def fields(micro: Micro, row: int) -> list[list[int]]:
    """Tokens, labels and documents of a row; of the prefix, where there is one."""
    layout = micro.layout
    found = [micro.tokens[row].tolist(), micro.labels[row].tolist(), layout.documents[row].tolist()]
    return [*found, layout.prefix[row].tolist()] if layout.prefix is not None else found


def plain(pieces: int, length: int) -> Pieces:
    """Rows of one piece each, without special tokens."""
    random = np.random.default_rng(pieces)
    return [[random.integers(ORDINARY, size=length).tolist()] for _ in range(pieces)]


def some(seed: int) -> Pieces:
    """Rows of pieces of 1 to 64 tokens, with BOS, EOS and other special tokens in and at them."""
    random = Random(seed)
    found: Pieces = []
    for _ in range(random.randint(1, 4)):
        own: list[list[int]] = []
        while (room := LENGTH - sum(map(len, own))) and random.random() < 0.9:
            size = min(room, random.choice((1, 2, 5, 21, 30, 64)))
            piece = [random.randrange(ORDINARY) for _ in range(size)]
            for special in (BOS, OTHER, EOS, EOS):
                if random.random() < 0.3:
                    piece[random.choice((0, -1, random.randrange(size)))] = special
            own.append(piece)
        found.append(own)
    return found


packed = st.builds(some, st.integers(0, 1 << 30))


# ---------------------------------------------------------------- causal


@settings(max_examples=100, deadline=None)
@given(packed)
def test_causal_predicts_the_next_token_of_each_piece(pieces: Pieces) -> None:
    """A last token has none, and padding neither, though it looks like EOS."""
    micro = causal(rows_of(pieces), np.arange(len(pieces)))
    for row, own in enumerate(pieces):
        tokens, labels, _ = fields(micro, row)
        wanted = [label for piece in own for label in [*piece[1:], IGNORED]]
        assert labels == [*wanted, *[IGNORED] * (LENGTH - len(wanted))]
        assert tokens == rows_of(pieces).tokens[row].tolist()
    assert micro.layout.mask == "causal"
    assert micro.sources.tolist() == micro.samples.tolist() == list(range(len(pieces)))


# ---------------------------------------------------------------- masked tokens


@settings(max_examples=100, deadline=None)
@given(packed, st.integers(0, 1 << 40))
def test_masked_rows_with_their_labels_are_the_rows(pieces: Pieces, first: int) -> None:
    rows = rows_of(pieces)
    micro = objective("mlm", mask_share=0.4)(rows, first + np.arange(len(pieces)))
    for row, own in enumerate(pieces):
        tokens, labels, documents = fields(micro, row)
        wanted = rows.tokens[row].tolist()
        pairs = zip(tokens, labels, strict=True)
        assert [seen if label == IGNORED else label for seen, label in pairs] == wanted
        for token, label, document in zip(tokens, labels, documents, strict=True):
            assert label == IGNORED or (label < ORDINARY and document < len(own))
            assert label == IGNORED or token < ORDINARY or token == MASK
    assert micro.layout.mask == "both"


def within(count: int, of: int, share: float) -> bool:
    """Whether a count is within five standard deviations of what the share says."""
    return abs(count - of * share) < 5 * math.sqrt(of * share * (1 - share))


def even(counts: Counter[Any], kinds: int) -> bool:
    """Whether so many kinds are equally likely, by chi-square within five standard deviations."""
    expected = counts.total() / kinds
    assert len(counts) <= kinds and expected > 5
    chi = sum((n - expected) ** 2 for n in counts.values()) / expected
    chi += (kinds - len(counts)) * expected
    return chi < kinds - 1 + 5 * math.sqrt(2 * (kinds - 1))


def test_15_percent_are_predicted_80_10_10_of_them_masked_drawn_and_kept() -> None:
    pieces = plain(1000, LENGTH)
    micro = objective("mlm")(rows_of(pieces), np.arange(1000))
    picked = micro.labels != IGNORED
    assert within(int(picked.sum()), 64_000, 0.15)
    seen, own = micro.tokens[picked], micro.labels[picked]
    masked = seen == MASK
    assert within(int(masked.sum()), len(seen), 0.8)
    assert within(int((seen == own).sum()), len(seen), 0.1 + 0.1 / ORDINARY)
    drawn = seen[~masked & (seen != own)]
    assert even(Counter(drawn.tolist()), ORDINARY)
    places = Counter(np.nonzero(picked.numpy())[1].tolist())
    assert even(places, LENGTH)


# ---------------------------------------------------------------- prefixes


@settings(max_examples=100, deadline=None)
@given(packed, st.integers(0, 1 << 40))
def test_a_prefix_is_seen_and_all_after_it_is_predicted(pieces: Pieces, first: int) -> None:
    rows = rows_of(pieces)
    micro = objective("prefix")(rows, first + np.arange(len(pieces)))
    assert micro.tokens.tolist() == rows.tokens.tolist()
    for row, own in enumerate(pieces):
        _, labels, documents, prefix = fields(micro, row)
        begin = 0
        for number, piece in enumerate(own):
            assert set(documents[begin : begin + len(piece)]) == {number}
            ahead = prefix[begin : begin + len(piece)]
            size = sum(ahead)
            assert ahead == [place < size for place in range(len(piece))] and size < len(piece)
            wanted = [
                piece[place + 1] if place + 1 < len(piece) and place + 1 >= size else IGNORED
                for place in range(len(piece))
            ]
            assert labels[begin : begin + len(piece)] == wanted
            begin += len(piece)
        assert not any(prefix[begin:]) and set(labels[begin:]) <= {IGNORED}
    assert micro.layout.mask == "prefix"


def test_all_sizes_of_a_prefix_are_equally_likely() -> None:
    micro = objective("prefix")(rows_of(plain(2000, 20)), np.arange(2000))
    assert micro.layout.prefix is not None
    assert even(Counter(micro.layout.prefix.sum(1).tolist()), 20)


# ---------------------------------------------------------------- spans


def read_back(tokens: list[int], prefix: list[int]) -> tuple[list[int], list[int], list[int]]:
    """The piece that was written, which of its tokens were taken out (places), and the lengths of
    the spans: each sentinel of the seen part is replaced by what follows it in the other."""
    left, ahead = tokens[: sum(prefix)], tokens[sum(prefix) :]
    spans: dict[int, list[int]] = {}
    for token in ahead:
        if token in SENTINELS:
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    assert list(spans) == list(SENTINELS[: len(spans)])
    assert not spans or spans.pop(list(spans)[-1]) == []
    assert [token for token in left if token in SENTINELS] == list(spans)
    piece: list[int] = []
    taken: list[int] = []
    for token in left:
        taken += range(len(piece), len(piece) + len(spans.get(token, [])))
        piece += spans.get(token, [token])
    return piece, taken, [len(span) for span in spans.values()]


def documents_of(micro: Micro, row: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Tokens, labels and prefix of each document of a row, the last (padding) included."""
    tokens, labels, documents, prefix = fields(micro, row)
    cuts = [n for n in range(1, len(tokens)) if documents[n] != documents[n - 1]]
    bounds = list(zip([0, *cuts], [*cuts, len(tokens)], strict=True))
    return [(tokens[a:b], labels[a:b], prefix[a:b]) for a, b in bounds]


@settings(max_examples=150, deadline=None)
@given(
    packed,
    st.integers(0, 1 << 40),
    st.sampled_from([0.15, 0.5, 0.9]),
    st.sampled_from([1.0, 3.0]),
    st.sampled_from([2, 4, 20]),
)
def test_spans_put_back_where_they_were_are_the_rows(
    pieces: Pieces, first: int, share: float, mean: float, sentinels: int
) -> None:
    """And only they are predicted, each token once."""
    own_tokenizer = replace(TOKENIZER, sentinels=SENTINELS[:sentinels])
    made = objective("span", own_tokenizer, mask_share=share, span_length=mean)
    micro = made(rows_of(pieces), first + np.arange(len(pieces)))
    assert micro.tokens.shape[1] == made.length(LENGTH)
    for row, own in enumerate(pieces):
        found = documents_of(micro, row)
        for piece, (tokens, labels, prefix) in zip(own, found[: len(own)], strict=True):
            read, taken, spans = read_back(tokens, prefix)
            assert read == piece
            assert all(piece[place] < ORDINARY for place in taken)
            assert min(spans, default=1) > 0 and len(spans) < sentinels
            shown = sum(prefix)
            assert prefix == [place < shown for place in range(len(tokens))]
            wanted = [*[IGNORED] * (shown - 1), *tokens[shown:], IGNORED]
            assert labels == wanted
        for tokens, labels, prefix in found[len(own) :]:
            assert set(labels) == {IGNORED} and set(tokens) == {EOS} and not any(prefix)
    assert micro.layout.mask == "prefix"


def test_rows_too_short_for_a_span_are_refused() -> None:
    made = objective("span", span_length=50.0)  # 0.15 of 334 tokens are a span
    with pytest.raises(ConfigError, match=r"span_length: .* fewer than 334 .* rows have 64"):
        made.length(64)
    assert made.length(400) > 400


@pytest.mark.parametrize(
    ("length", "sentinels", "noise", "spans"),
    [(19, 20, 0, 0), (20, 20, 3, 1), (40, 20, 6, 2), (64, 20, 10, 3), (64, 3, 6, 2), (64, 2, 3, 1)],
)
def test_15_percent_are_taken_in_spans_of_three(
    length: int, sentinels: int, noise: int, spans: int
) -> None:
    """T5's numbers, rounded; no more spans than sentinels but one; none of a piece in which a mean
    span would be more than the share."""
    made = objective("span", replace(TOKENIZER, sentinels=SENTINELS[:sentinels]))
    micro = made(rows_of(plain(20, length)), np.arange(20))
    for row in range(20):
        tokens, _, prefix = documents_of(micro, row)[0]
        _, taken, found = read_back(tokens, prefix)
        assert (len(taken), len(found)) == (noise, spans)


def test_all_places_and_lengths_of_spans_are_equally_likely() -> None:
    """Of 28 tokens 4 in 2 spans: lengths 1+3, 2+2, 3+1, and two of 25 places between those that
    stay."""
    made = objective("span", span_length=2.0)
    micro = made(rows_of(plain(6000, 28)), np.arange(6000))
    lengths: Counter[Any] = Counter()
    places: Counter[Any] = Counter()
    for row in range(6000):
        tokens, _, prefix = documents_of(micro, row)[0]
        seen = [n for n, token in enumerate(tokens[: sum(prefix)]) if token in SENTINELS]
        places[seen[0], seen[1] - 1] += 1
        lengths[tuple(read_back(tokens, prefix)[2])] += 1
    assert even(lengths, 3)
    assert even(places, 25 * 24 // 2)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 300),
    st.floats(0.05, 0.99),
    st.floats(1, 8),
    st.integers(2, 20),
    st.integers(0, 1 << 30),
)
def test_rows_are_long_enough_for_any_pieces(
    length: int,
    share: float,
    mean: float,
    sentinels: int,
    seed: int,
) -> None:
    tokenizer = replace(TOKENIZER, sentinels=SENTINELS[:sentinels])
    made = objective("span", tokenizer, mask_share=share, span_length=mean)
    own: list[list[int]] = []
    random = Random(seed)
    least = math.ceil(mean / share)  # the shortest pieces that have a span cost most
    assume(length >= least)  # rows of less are refused
    while room := length - sum(map(len, own)):
        own.append([1] * min(room, random.choice((1, least, least + 1, 2 * least, 40))))
    micro = made(rows_of([own], length), np.array([random.randrange(1 << 40)]))
    assert micro.tokens.shape == (1, made.length(length))
    read = [token for x in documents_of(micro, 0)[: len(own)] for token in read_back(x[0], x[2])[0]]
    assert read == [1] * length


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("kind", ["causal", "mlm", "prefix", "span"])
def test_what_a_row_gives_belongs_to_its_sample_and_to_no_batch(kind: str) -> None:
    rows, samples = rows_of(plain(9, 60)), np.arange(9) * 1000 + 7
    made = objective(kind)
    whole = made(rows, samples)
    for chosen in (np.array([8, 2, 3]), np.array([5])):
        part = made(rows.take(chosen), samples[chosen])
        for one, row in enumerate(chosen.tolist()):
            assert fields(part, one) == fields(whole, row)
    again = made(rows, samples + 1)
    changed = [fields(whole, row) != fields(again, row) for row in range(9)]
    assert sum(changed) >= 8 if kind != "causal" else not any(changed)
    other = Objective(knobs.Objective(kind=kind), TOKENIZER, seed=21)(rows, samples)  # type: ignore[arg-type]
    changed = [fields(whole, row) != fields(other, row) for row in range(9)]
    assert sum(changed) >= 8 if kind != "causal" else not any(changed)


@pytest.mark.parametrize("kind", ["causal", "mlm", "prefix", "span"])
def test_a_row_of_nothing_but_padding_has_no_labels(kind: str) -> None:
    micro = objective(kind)(rows_of([[], [[1, 2, EOS]], []]), np.arange(3))
    assert all(set(micro.labels[row].tolist()) == {IGNORED} for row in (0, 2))


@pytest.mark.parametrize(
    ("kind", "missing", "said"),
    [
        ("mlm", {"mask": None}, "objective.kind: mlm wants a mask token; the tokenizer has none"),
        (
            "span",
            {"sentinels": (54,)},
            "objective.kind: span wants at least 2 sentinels; the tokenizer has 1",
        ),
    ],
)
def test_a_tokenizer_without_what_is_wanted_is_refused(
    kind: str, missing: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        objective(kind, replace(TOKENIZER, **missing))
    assert str(caught.value) == said


def test_spans_shorter_than_a_token_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^objective\.span_length: 0\.5 is below 1$"):
        knobs.load(None, ["train.steps=1", "schedule.warmup=0", "objective.span_length=0.5"])


@pytest.fixture(scope="module")
def special_manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("special")
    make(directory, samples=200, special=True)
    return directory


@pytest.mark.parametrize("kind", ["causal", "mlm", "prefix", "span"])
def test_a_model_learns_what_each_objective_wants(
    special_manifest: Path, tmp_path: Path, kind: str
) -> None:
    """From even odds among all tokens to less than those of the letters alone."""
    overrides = ("train.steps=15", "optimizer.lr=0.02", "checkpoint.every=100")
    made = config(special_manifest, tmp_path / kind, f"objective.kind={kind}", *overrides)
    run_ranks(1, train, made)
    losses = [line["loss"] for line in lines(tmp_path / kind, "health")]
    assert losses[0] == pytest.approx(math.log(267), abs=0.3)
    assert sum(losses[-3:]) / 3 < math.log(26)
