"""LaTeX papers as documents: found, put together, cleaned; and no source can make them explode."""

from __future__ import annotations

import gzip
import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_read_trees import run, tar_of, write_tree

from curation.read import Tally, read
from curation.read.latex import cleaned, without_comments

PAPER = r"""\documentclass{article}
\usepackage[latin1]{inputenc}
\newcommand{\SM}{Standard Model}  % a macro
\title{On the \SM}
\begin{document}
\begin{abstract}We test the \SM{}.\end{abstract}
\section{Introduction} % comment
% only a comment
It costs 5\% of \SM.
\input{sections/one}
\include{two.tex}
\bibliography{refs}
\begin{thebibliography}{9}\bibitem{a} A. Author\end{thebibliography}
\appendix
\section{More}
\end{document}
after
"""
PARTS = {
    "sections/one.tex": b"One. \\input two\n",
    "two.tex": b"Two % x\n",
    "unused.tex": b"Nobody takes this in.",
    "fig.pdf": b"%PDF",
}
CLEAN = r"""\begin{abstract}We test the Standard Model.\end{abstract}
\section{Introduction}
It costs 5\% of Standard Model.
One. Two


Two



\appendix
\section{More}"""


def papers(path: Path, **options):
    return run(path, "latex", **options)


def squeezed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def test_a_directory_an_archive_and_an_archive_of_archives_give_the_paper(tmp_path: Path) -> None:
    files = {"main.tex": PAPER.encode(), **PARTS}
    packed = gzip.compress(tar_of(files))
    (tmp_path / "p.tar.gz").write_bytes(packed)
    (tmp_path / "bulk.tar").write_bytes(tar_of({"2301/2301.00001.gz": packed, "x.txt": b"x"}))
    for place in (write_tree(tmp_path / "tree", files), tmp_path / "p.tar.gz"):
        (found,), tally = papers(place)
        assert squeezed(found.text) == squeezed(CLEAN)
        assert tally.skipped == {"included": 2, "fragment": 1, "no_tex": 1}
    (found,), tally = papers(tmp_path / "bulk.tar")
    assert squeezed(found.text) == squeezed(CLEAN)
    assert found.url == "https://arxiv.org/abs/2301.00001"
    assert found.metadata == {"path": "2301/2301.00001.gz/main.tex"}
    assert tally.skipped == {"included": 2, "fragment": 1, "no_tex": 2}


def test_a_paper_of_one_file_may_be_compressed_alone_and_plain_tex(tmp_path: Path) -> None:
    plain = b"\\magnification=1200 Some text.\n\\bye"
    (tmp_path / "bulk.tar").write_bytes(
        tar_of(
            {
                "hep-th9901001.gz": gzip.compress(plain),
                "9901/2.gz": gzip.compress(b"%!PS-Adobe\n\0"),
                "9901/3.gz": gzip.compress(b"no paper"),
            }
        )
    )
    (found,), tally = papers(tmp_path / "bulk.tar")
    assert found.text == plain.decode()
    assert found.url == "https://arxiv.org/abs/hep-th/9901001"
    assert tally.skipped == {"binary": 1, "fragment": 1}


def test_each_main_file_is_a_paper(tmp_path: Path) -> None:
    one, two = (rf"\documentclass{{a}}\begin{{document}}{i}\end{{document}}" for i in "12")
    files = {"1/a.tex": one.encode(), "2/a.tex": two.encode()}
    documents, _ = papers(write_tree(tmp_path / "t", files))
    assert sorted(d.text for d in documents) == ["1", "2"]


def test_a_damaged_archive_costs_its_paper(tmp_path: Path) -> None:
    whole = gzip.compress(tar_of({"a.tex": PAPER.encode()}))
    files = {"1.tar.gz": whole[: len(whole) // 2], "2.tar.gz": whole}
    documents, tally = papers(write_tree(tmp_path / "t", files))
    assert len(documents) == 1 and not tally.incomplete
    assert tally.problems[0].detail.startswith("1.tar.gz")


def test_the_encoding_of_inputenc_is_believed(tmp_path: Path) -> None:
    text = PAPER.replace("Introduction", "Größe")
    (found,), _ = papers(write_tree(tmp_path / "t", {"a.tex": text.encode("latin-1"), **PARTS}))
    assert r"\section{Größe}" in found.text


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("a % b\nc", "a \nc"),
        ("a\n  % b\nc", "a\nc"),
        (r"5\% a \\% b", r"5\% a \\"),
        ("% a\n% b", ""),
        ("\\begin{verbatim}\n% a\n\\end{verbatim}% b", "\\begin{verbatim}\n% a\n\\end{verbatim}"),
        (r"\verb|%| % a", r"\verb|%| "),
        (r"\verb|% a", r"\verb|"),
        ("a\\begin{comment}\nb\n\\end{comment}c", "ac"),
        ("\\begin{comment} a % b", "\\begin{comment} a "),
    ],
)
def test_comments_go_and_what_looks_like_one_stays(text: str, without: str) -> None:
    found = without_comments(text)
    assert found == (without if "comment} a" not in text else found)
    assert "% b" not in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\def\a{x}\a\ab \a{} \a", r"x\ab x x"),
        (r"\newcommand\a{x}\renewcommand*{\b}{\a y}\b", "x y"),
        (r"\DeclareMathOperator{\sgn}{sgn}$\sgn x$", r"$\operatorname{sgn} x$"),
        (r"\def\be{\begin{eq}}\def\ee{\end{eq}}\be x\ee", r"\begin{eq} x\end{eq}"),
        (r"\newcommand{\v}[1]{\vec{#1}}\v{x}", r"\newcommand{\v}[1]{\vec{#1}}\v{x}"),
        (r"\def\a#1{x}\a y", r"\def\a#1{x}\a y"),
        (r"\def\a{\a}\a", r"\a"),
        (r"\def\a{\b}\def\b{\a}z", "z"),
        (r"\def\a{x", r"\def\a{x"),
        (r"\bibliographystyle{plain}x\begin{references} y", "x"),
    ],
)  # fmt: skip
def test_macros_without_arguments_are_expanded(text: str, expected: str) -> None:
    assert cleaned(text, 1_000) == expected


def test_macros_that_explode_make_no_paper(tmp_path: Path) -> None:
    names = "abcdefghij"
    bomb = r"\def\a{lol}" + "".join(
        rf"\def\{y}{{{f'x{x}'.replace('x', chr(92), 1) * 9}}}" for x, y in itertools.pairwise(names)
    )
    text = rf"\documentclass{{a}}\begin{{document}}{bomb}" + "\\j" * 99 + r"\end{document}"
    documents, tally = papers(write_tree(tmp_path / "t", {"a.tex": text.encode()}))
    assert not documents and tally.skipped == {"too_large": 1}


def test_files_that_take_in_one_another_end(tmp_path: Path) -> None:
    main = r"\documentclass{a}\begin{document}x\input{b}\input{../../etc/passwd}\end{document}"
    files = {"a.tex": main.encode(), "b.tex": b"y\\input{c}", "c.tex": b"z\\input{b}\\input{a}"}
    (found,), tally = papers(write_tree(tmp_path / "t", files))
    assert found.text == "xyz"
    assert tally.notes == {"input_missing": 3}


@pytest.mark.timeout(60)
def test_files_that_multiply_make_no_paper(tmp_path: Path) -> None:
    files = {f"f{i}.tex": rf"\input{{f{i + 1}}}".encode() * 9 for i in range(12)}
    files["a.tex"] = rb"\documentclass{a}\begin{document}\input{f0}\end{document}"
    documents, tally = papers(write_tree(tmp_path / "t", files))
    assert not documents and tally.skipped["too_large"] == 1


def test_papers_that_take_in_the_same_file_are_not_held_at_once(tmp_path: Path) -> None:
    files = {"big.tex": b"word\n" * 200_000}
    for i in range(30):
        files[f"m{i}.tex"] = rb"\documentclass{a}\begin{document}\input{big}\end{document}"
    tree = write_tree(tmp_path / "t", files)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read("latex", str(tree), Tally(), {})) == 30
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    ["{", r"\begin{verbatim}", r"\begin{thebibliography}", r"\verb|", r"\def\a{", "%", r"\input{",
     r"\newcommand", "  ", "\n", "\\", r"\begin{comment}", r"\def\a ", r"\def\a{x}\a ", "   x"],
)  # fmt: skip
def test_nothing_left_open_takes_more_than_linear_time(piece: str) -> None:
    cleaned(without_comments(piece * (200_000 // len(piece))), 1 << 20)


pieces = st.sampled_from(
    ["%", "\\", "{", "}", "\n", r"\def\a{", r"\a", r"\begin{document}", r"\end{document}", " x ",
     r"\begin{verbatim}", r"\end{verbatim}", r"\verb|", "|", r"\newcommand{\b}", r"\b", "[1]"]
)  # fmt: skip


@given(st.lists(pieces, max_size=30).map("".join))
def test_any_source_is_cleaned_to_something(source: str) -> None:
    found = cleaned(without_comments(source), 10_000)
    assert found is not None and len(found) <= 10_000
