"""Dumps of MediaWiki: pages as documents, damage and hostile XML at the cost of a page."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest
from test_read_trees import CODINGS, run

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>dewiki</dbname>
    <base>https://de.wikipedia.org/wiki/Wikipedia:Hauptseite</base>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""


def page(
    title: str = "Mühle", text: str = "Eine '''Mühle'''.", ns: int = 0, inner: str = "", **last: str
) -> str:
    said = {"id": "9", "timestamp": "2024-01-02T03:04:05Z", "model": "wikitext", **last}
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in said.items())
    return (
        f"  <page>\n<title>{title}</title><ns>{ns}</ns><id>7</id>{inner}"
        f'<revision>{fields}<text xml:space="preserve">{text}</text></revision>\n  </page>\n'
    )


def dump(*pages: str, end: str = "</mediawiki>\n") -> bytes:
    return (HEAD + "".join(pages) + end).encode()


def read_dump(tmp_path: Path, data: bytes, **options):
    (tmp_path / "x.xml").write_bytes(data)
    return run(tmp_path / "x.xml", "mediawiki", **options)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_page_with_what_it_and_the_dump_say_of_it(tmp_path: Path, coding: str) -> None:
    data = dump(page("Alte Mühle", "A [[b|c]] &lt;ref&gt;d&lt;/ref&gt;[[Datei:x.jpg|e]]"))
    (found,), tally = read_dump(tmp_path, CODINGS[coding](data))
    assert found.text == "Alte Mühle\n\nA c"
    assert found.url == "https://de.wikipedia.org/wiki/Alte_M%C3%BChle"
    assert (found.date, found.language) == ("2024-01-02T03:04:05Z", "de")
    assert found.metadata == {"title": "Alte Mühle", "page": "7", "revision": "9"}
    assert not tally.problems and not tally.incomplete


def test_the_id_is_of_page_and_revision_wherever_the_dump_lies(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = read_dump(tmp_path, dump(page()))[0][0].id
    assert read_dump(tmp_path / "other", dump(page("x"), page()))[0][1].id == one
    assert read_dump(tmp_path, dump(page(id="10")))[0][0].id != one
    assert read_dump(tmp_path, dump(page()), source="s")[0][0].id != one


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (page(inner='<redirect title="X" />'), "redirect"),
        (page(text="#REDIRECT [[X]]"), "redirect"),
        (page("Diskussion:X", ns=1), "namespace"),
        (page(text="{{x}}"), "empty"),
        (page(text="[1]", model="json"), "no_wikitext"),
        (page("", "x"), "bad_page"),
        (page(text="a & b"), "bad_page"),
        (page(text="&undefined;"), "bad_page"),
        (page(text="x" * 20_000), "too_large"),
    ],
)
def test_what_is_no_article_is_skipped_under_its_reason(
    tmp_path: Path, given: str, reason: str
) -> None:
    documents, tally = read_dump(tmp_path, dump(page(), given, page()), max_page=10_000)
    assert len(documents) == 2
    assert tally.skipped == {reason: 1} and not tally.incomplete


def test_namespaces_can_be_chosen(tmp_path: Path) -> None:
    pages = [page(), page("Hilfe:X", ns=12)]
    documents, _ = read_dump(tmp_path, dump(*pages), namespaces=(12,))
    assert [d.metadata["title"] for d in documents] == ["Hilfe:X"]


def test_of_a_history_the_last_revision_is_read(tmp_path: Path) -> None:
    history = page(text="new").replace(
        "<revision>", "<revision><id>1</id><text>old</text></revision><revision>"
    )
    assert read_dump(tmp_path, dump(history))[0][0].text == "Mühle\n\nnew"


def test_a_page_of_fifty_megabytes_is_passed_over(tmp_path: Path) -> None:
    data = dump(page(text="x" * (50 << 20)), page())
    documents, tally = read_dump(tmp_path, data)
    assert len(documents) == 1 and tally.skipped == {"too_large": 1}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_cut_dump_gives_its_whole_pages_and_is_incomplete(tmp_path: Path, share: float) -> None:
    data = dump(*[page(f"P{i}", f"text {i * 7919}") for i in range(50)])
    for whole in (data, bz2.compress(data)):
        documents, tally = read_dump(tmp_path, whole[: int(len(whole) * share)])
        assert tally.incomplete and set(tally.problem_counts) == {"truncated"}
        assert len(documents) <= 50
        assert sum(tally.skipped.values()) <= 1


def test_entities_are_never_expanded(tmp_path: Path) -> None:
    bomb = "<!DOCTYPE x [" + '<!ENTITY a0 "lol">'
    bomb += "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 20)) + "]>\n"
    data = bomb.encode() + dump(page(text="&a19;"), page())
    documents, tally = read_dump(tmp_path, data)
    assert len(documents) == 1 and tally.skipped == {"bad_page": 1}


@pytest.mark.parametrize("inner", ["<a>" * 100_000, "<a b='" + "x" * 100_000, "<![CDATA[" * 99])
def test_pages_of_odd_xml_cost_themselves(tmp_path: Path, inner: str) -> None:
    documents, tally = read_dump(tmp_path, dump(page(text=inner), page()))
    assert len(documents) == 1 and tally.skipped == {"bad_page": 1}


@pytest.mark.parametrize("data", [b"", b"hello", b"<html></html>", b"x" * (3 << 20)])
def test_what_is_no_dump_says_so(tmp_path: Path, data: bytes) -> None:
    documents, tally = read_dump(tmp_path, data)
    assert not documents and tally.incomplete
    assert tally.problem_counts == {"not_mediawiki": 1}
