"""Words of scripts without spaces by a segmenter: the user's, and the packages known by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation import run
from curation.document import Documents
from curation.engine.recipe import RecipeError, load
from curation.filters.gopher_quality import GopherQuality
from curation.text import reference
from curation.text.view import TextView
from tests.kit import contents, recipe, write_jsonl


def pairs(run_: str) -> list[str]:
    """Two letters a word."""
    return [run_[i : i + 2] for i in range(0, len(run_), 2)]


def whole(run_: str) -> list[str]:
    return [run_]


def wrong(run_: str) -> list[str]:
    return [run_, "!"]


def view(*texts: str) -> TextView:
    return TextView(pa.array(texts, pa.large_string()))


def words(seen: TextView) -> list[list[str]]:
    found, data = seen.words, bytes(seen.data)
    spans = [data[a:b].decode() for a, b in zip(found.starts, found.stops, strict=True)]
    return [spans[a:b] for a, b in zip(found.offsets, found.offsets[1:], strict=False)]


OWN = f"{__name__}:pairs"


def test_a_segmenters_words_take_the_place_of_single_letters() -> None:
    text = "Word 漢字漢 and, 漢 ไทยไ don't\n字字"
    [found] = words(view(text).segmented((OWN,)))
    assert found == ["Word", "漢字", "漢", "and", "漢", "ไท", "ยไ", "don't", "字字"]


def test_a_long_run_is_handed_over_in_parts() -> None:
    [found] = words(view("漢" * 2_501).segmented((f"{__name__}:whole",)))
    assert [len(word) for word in found] == [1_000, 1_000, 501]


def test_documents_without_a_segmenter_keep_their_words() -> None:
    seen = view("漢字", "漢字", "", "漢字")
    assert words(seen.segmented((OWN, None, OWN, OWN))) == [["漢字"], ["漢", "字"], [], ["漢字"]]
    assert seen.segmented((None,) * 4) is seen


pieces = st.sampled_from(
    ["漢", "字", "ひ", "ไ", "ท", "a", "Z", " ", "\n", "カ", "7", "\u0301", "."]
)
mixed = st.lists(pieces, max_size=20).map("".join)


@settings(deadline=None)
@given(st.lists(mixed, max_size=5))
def test_all_that_is_known_of_words_is_right(batch: list[str]) -> None:
    seen = view(*batch)
    found = seen.segmented((OWN,) * len(batch))
    flat = [word for own in words(found) for word in own]
    assert found.words.lengths.tolist() == [len(word) for word in flat]
    expected = [reference.word_hash(word, folded=True) for word in flat]
    assert found.words.hashes.tolist() == expected
    assert found.exact_hashes.tolist() == [reference.word_hash(word) for word in flat]
    assert (found.word_counts() == np.diff(found.words.offsets)).all()
    assert (found.word_totals.code_points == seen.word_totals.code_points).all()
    assert (found.words.starts[1:] >= found.words.stops[:-1]).all()


def test_a_filter_counts_the_segmenters_words() -> None:
    docs = Documents(
        {
            "text": pa.array(["漢字漢字", "漢字漢字", "漢字"], pa.large_string()),
            "language": pa.array(["zh", "ja", None]),
        }
    )
    plain = GopherQuality(stop_words=()).score(docs)["words"]
    chinese = GopherQuality(stop_words=(), segmenter={"zh": OWN}).score(docs)["words"]
    assert (plain.tolist(), chinese.tolist()) == ([4, 4, 2], [2, 4, 2])
    every = GopherQuality(stop_words=(), segmenter=OWN).score(docs)["words"]
    assert every.tolist() == [2, 2, 1]


def test_a_document_whose_words_do_not_add_up_has_failed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", ["plain", "漢字", "words"])
    stage = {"segmenter": "tests.test_segmenters:wrong", "min_words": None, "min_stop_words": None}
    done = run(
        recipe({"gopher_quality": stage}, failure_ceiling=1.0),
        inputs=[path], output=tmp_path / "r", workers=1,
    )  # fmt: skip
    [account] = done.stats["stages"]
    assert account["failures"] == {"ValueError": 1}
    assert done.stats["output"]["documents"] == 2


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"segmenter": "mecab"}, "'mecab' is none of jieba, janome, pythainlp"),
        ({"segmenter": "no_such_module:f"}, "no_such_module"),
        ({"segmenter": "tests.kit:WORDS"}, "tests.kit:WORDS"),
        ({"segmenter": "tests.kit:Path"}, "is no function"),
        ({"segmenter": "builtins:len"}, "builtins:len"),
        ({"segmenter": ".a:b"}, "'package' argument is required"),
        ({"segmenter": OWN, "words": "datatrove"}, "has words of its own"),
    ],
)
def test_a_wrong_segmenter_is_one_line(stage: dict[str, str], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as error:
        load(recipe({"gopher_quality": stage}), ["x"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "some"),
    [
        ("jieba", "我喜欢学习中文", ["喜欢", "学习", "中文"]),
        ("janome", "私は日本語を勉強します", ["日本語", "勉強"]),
        ("pythainlp", "ภาษาไทยง่าย", ["ภาษาไทย", "ง่าย"]),
    ],
)
def test_known_packages_divide_their_languages(name: str, text: str, some: list[str]) -> None:
    [found] = words(view(f"{text}, {text}").segmented((name,)))
    assert set(some) <= set(found)
    assert "".join(found) == text + text


def test_the_same_words_in_any_batch(tmp_path: Path) -> None:
    texts = [f"漢字{'漢' * i} word {i}" for i in range(300)]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    stages = [{"gopher_quality": {"segmenter": OWN}}, {"gopher_repetition": {"segmenter": OWN}}]
    runs = [
        run(recipe(*stages), inputs=[path], output=tmp_path / str(n), workers=n) for n in (1, 2)
    ]
    assert contents(runs[0].path) == contents(runs[1].path)
