"""Wikitext as plain text: what stays of the markup, in time linear whatever is left open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.extract.decode import sanitise
from curation.read.wikitext import Namespaces, plain_text

GERMAN = Namespaces.of({6: "Datei", 14: "Kategorie"})


def plain(wikitext: str) -> str:
    return plain_text(wikitext, GERMAN)


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        # Links: their labels; none of files, categories and other languages.
        ("a [[b]] c", "a b c"),
        ("[[bus]]es", "buses"),
        ("a [[b|c]] d", "a c d"),
        ("[[:Category:b]]", "Category:b"),
        ("a[[Category:b|c]][[Kategorie:b]][[File:x.jpg|thumb|A [[b]] c]][[datei:x.png]]", "a"),
        ("a [[fr:b]][[zh-min-nan:b]] [[de:b|label]]", "a label"),
        ("[http://x.org the site] [https://x.org] [//x.org here]", "the site here"),
        ("see ]] or [[ or a | b", "see ]] or [[ or a | b"),
        # Templates: gone, but for words of the sentence.
        ("{{Infobox|a={{b|c}}|d=[[e]]}}a{{cn|date=May}} b", "a b"),
        ("the {{lang|fr|mot}}, {{convert|3|km|mi}} {{nowrap|a b}}", "the mot, 3 km a b"),
        ("'''F''' ({{lang-fr}}; {{IPA|x}}) is", "F is"),
        ("{{{1|x}}}a{{{{b}}}}c", "ac"),
        ("a {{b", "a {{b"),
        ("a }} b", "a }} b"),
        # Tables, also in templates and of HTML.
        ('a\n{| class="x"\n! h\n|-\n| a || [[b]]\n{|\n| inner\n|}\n|}\nb', "a\nb"),
        ("{{x|\n{|\n| a\n|}\n}}b", "b"),
        ("a\n<table><tr><td>x</td></tr></table>b", "a\nb"),
        ("a\n{|\n| unclosed", "a"),
        # Tags.
        ('a<ref name="x">{{cite|b}}</ref><ref name=x />.<REF>c</REF>', "a."),
        ("a<!-- b\n\nc -->d", "ad"),
        ("<math>\\frac{a}{b} [[x]]</math> and <math display=\"block\">y</math>",
         "$\\frac{a}{b} [[x]]$ and $y$"),
        ("<nowiki>[[a]] '''b'''</nowiki>", "[[a]] '''b'''"),
        ('<syntaxhighlight lang="c">\n# a | {{b}}\n  int x;\n</syntaxhighlight>',
         "# a | {{b}}\n  int x;"),
        ("a<br/>b<sub>2</sub><span style=\"x\">c</span>", "a\nb2c"),
        ("1 < 2 and <foo@bar.org> stays", "1 < 2 and <foo@bar.org> stays"),
        ("a<gallery>\nx.jpg|b\n</gallery>c", "ac"),
        # Characters.
        ("'''b''' ''i'' '''''bi''''' l''''Oréal'''", "b i bi l'Oréal"),
        ("a&nbsp;&mdash; b &amp;lt; &lt;ref&gt;", "a — b &lt; <ref>"),
        ("__NOTOC__a __x__", "a __x__"),
        pytest.param(f"a &#{'1' * 5000}; b", "a \ufffd b", id="no number for int()"),
        # Lines.
        ("* a\n** b\n# c\n: d\n; e\n*", "- a\n- b\n- c\nd\ne"),
        ("a\n----\nb", "a\nb"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("== A ==\na\n== References ==\n{{reflist}}\n== C ==\n", "A\na"),
        ("== A ==\n=== B ===\ntext", "A\nB\ntext"),
        ("== A ==\n=== B ===\n== C ==\ntext", "C\ntext"),
        ("x = y = z", "x = y = z"),
    ],
)  # fmt: skip
def test_plain_text(wikitext: str, text: str) -> None:
    assert plain(wikitext).replace("\n\n", "\n") == text.replace("\n\n", "\n")


def test_paragraphs_stay_apart() -> None:
    assert plain("a\nb\n\nc\n\n\n\n== H ==\n\nd") == "a\nb\n\nc\n\nH\n\nd"


@pytest.mark.parametrize(
    "piece",
    ["{{", "[[", "{{a|", "[[a|b", "{{nowrap|a", "<ref>", "<math>", "<!--x", "{|\n", "<table>",
     "{{{", "=\n", "[http:", "( ", "<a<", "'", "&", "   ", "|}\n", "]]", "}}"],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_nothing_left_open_takes_more_than_linear_time(piece: str) -> None:
    """A fraction of a second each; quadratic work would take minutes."""
    plain(piece * (200_000 // len(piece)))


@pytest.mark.timeout(60)
def test_a_link_of_spaces_without_an_end_takes_linear_time() -> None:
    assert plain("[http://x" + " " * 200_000 + "b") == "[http://x b"


@pytest.mark.parametrize(
    ("opens", "closes"), [("{{", "}}"), ("[[a|b", "]]"), ("{{nowrap|x", "}}"), ("{|\n", "\n|}")]
)
def test_deep_nesting_is_undone(opens: str, closes: str) -> None:
    assert plain("a" + "\n" + opens * 10_000 + closes * 10_000 + "\nb").split("\n")[0] == "a"


pieces = st.sampled_from(
    ["{{", "}}", "{{{", "}}}", "[[", "]]", "|", "\n{|", "\n|}", "<ref>", "</ref>", "<!--", "-->",
     "<math>", "</math>", "<table>", "</table>", "\n== ", " ==\n", "\n* ", "''", "[http://x ", "]",
     "File:", "a", " b ", "&amp;", "<br/>", "<nowiki>", "</nowiki>", "lang|"]
)  # fmt: skip


@given(st.lists(pieces | st.text(max_size=3), max_size=40).map("".join))
def test_any_text_gives_text_without_controls(wikitext: str) -> None:
    found = plain(sanitise(wikitext)[0])
    assert sanitise(found)[0] == found.rstrip("\ufffd")
    assert found == found.strip()
