"""Source trees as documents: what is code, what is not, and what a document knows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_read_trees import run, tar_of, write_tree

from curation.engine.recipe import RecipeError, load
from curation.read.code import LANGUAGES, language_of


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("node_modules/a/index.js", "vendored"),
        ("src/third_party/zlib/inflate.c", "vendored"),
        ("vendor/lib.go", "vendored"),
        ("package-lock.json", "lock_file"),
        ("sub/Cargo.lock", "lock_file"),
        ("logo.png", "no_code"),
        ("LICENSE", "no_code"),
        ("README.md", "other_language"),
        ("data.json", "other_language"),
        ("jquery.min.js", "generated"),
        ("api_pb2.py", "generated"),
        ("big.py", "too_large"),
        ("nul.py", "binary"),
        ("blank.py", "empty"),
    ],
)
def test_what_is_no_code_of_the_tree_is_skipped_under_its_reason(
    tmp_path: Path, name: str, reason: str
) -> None:
    content = {"big.py": b"#" * 2_000, "nul.py": b"a\0b", "blank.py": b" \n"}.get(name, b"x = 1\n")
    documents, tally = run(write_tree(tmp_path / "t", {name: content}), max_file=1_000)
    assert documents == []
    assert tally.skipped == {reason: 1}


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("a.py", "Python"),
        ("A.PY", "Python"),
        ("src/x.hpp", "C++"),
        ("Makefile", "Makefile"),
        ("Dockerfile", "Dockerfile"),
        ("vendored.rs", "Rust"),
    ],
)
def test_the_language_is_told_by_the_name(name: str, language: str) -> None:
    assert language_of(name) == language


def test_no_ending_is_of_two_languages() -> None:
    ends = [end for ends in LANGUAGES.values() for end in ends.split()]
    assert len(ends) == len(set(ends))


def test_languages_can_be_chosen_also_those_that_are_mostly_data(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "t", {"a.py": b"1\n", "b.c": b"2\n", "c.md": b"# 3\n"})
    documents, tally = run(tree, languages=("Markdown", "C"))
    assert [d.text for d in documents] == ["2\n", "# 3\n"]
    assert tally.skipped == {"other_language": 1}


def test_a_document_knows_its_path_its_repository_and_its_own_licence(tmp_path: Path) -> None:
    source = b"// SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note\nint x;\n"
    (tmp_path / "linux-6.1.tar.gz").write_bytes(tar_of({"include/x.h": source, "y.c": b"y;\n"}))
    documents, _ = run(tmp_path / "linux-6.1.tar.gz")
    assert documents[0].license == "GPL-2.0-only WITH Linux-syscall-note"
    assert documents[1].license is None
    assert documents[0].metadata == {
        "path": "include/x.h",
        "language": "C",
        "repository": "linux-6.1",
    }


def test_the_encoding_that_a_file_declares_is_believed(tmp_path: Path) -> None:
    source = "# -*- coding: koi8-r -*-\n# Привет, мир\n"
    documents, tally = run(write_tree(tmp_path / "t", {"a.py": source.encode("koi8-r")}))
    assert documents[0].text == source
    assert tally.notes == {"not_utf8": 1}


def test_line_ends_and_marks_of_other_systems_go(tmp_path: Path) -> None:
    tree = {"a.py": b"\xef\xbb\xbfa = 1\r\nb = 2\r\n", "b.cs": "ä;\n".encode("utf-16")}
    documents, _ = run(write_tree(tmp_path / "t", tree))
    assert [d.text for d in documents] == ["a = 1\nb = 2\n", "ä;\n"]


def test_an_unknown_language_is_refused_with_the_nearest_one() -> None:
    recipe = {"kind": "documents", "name": "x", "input": {"kind": "code", "languages": ["Pyton"]}}
    with pytest.raises(RecipeError, match="did you mean 'Python'"):
        load(recipe)
