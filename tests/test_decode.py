"""Decoding: which evidence decides, labels that lie, broken bytes, and what no text may hold."""

from __future__ import annotations

import codecs
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curation.extract.decode import (
    _ENCODING_OF,
    _MULTIBYTE,
    decode,
    find_encoding,
    is_clean,
    sanitise,
)

GERMAN = "Die schöne Müllerin läßt grüßen. "
RUSSIAN = "Съешь же ещё этих мягких французских булок да выпей чаю. "
JAPANESE = "色は匂へど散りぬるを我が世誰ぞ常ならむ。"


def html(text: str, head: str = "") -> str:
    return f"<html><head>{head}<title>t</title></head><body><p>{text}</p></body></html>"


# --- evidence, in order ---------------------------------------------------------------------------


def test_declared_latin_1_in_meta() -> None:
    """adbar/trafilatura#231: the declaration counts, not a guess."""
    page = "<meta charset=iso-8859-1>the majestic mööse".encode("latin-1")
    decoded = decode(page)
    assert decoded.text.endswith("the majestic mööse")
    assert decoded[1:] == ("windows-1252", "meta", 0)


@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (codecs.BOM_UTF8, "utf-8", "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16le"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16be"),
    ],
)
def test_byte_order_mark_beats_the_header(mark: bytes, codec: str, name: str) -> None:
    decoded = decode(mark + html(GERMAN).encode(codec), "windows-1251")
    assert decoded == (html(GERMAN), name, "bom", 0)


def test_header_beats_meta() -> None:
    page = html(RUSSIAN, "<meta charset=windows-1252>")
    assert decode(page.encode("koi8-r"), "KOI8-R") == (page, "koi8-r", "http", 0)


def test_unknown_label_goes_on_to_the_next_evidence() -> None:
    page = html(RUSSIAN, "<meta charset='windows-1251'>")
    assert decode(page.encode("cp1251"), "x-nonsense") == (page, "windows-1251", "meta", 0)


@pytest.mark.parametrize(
    "head",
    [
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        "<META CONTENT='text/html;charset=windows-1251' HTTP-EQUIV=content-type>",
        "<meta name=x content='charset=utf-8'><meta charset = 'windows-1251' />",
        "<!-- <meta charset=utf-8> --><meta/charset=windows-1251>",
        "<meta charset=nonsense><meta charset=cp1251>",
    ],
)
def test_meta_prescan(head: str) -> None:
    page = html(RUSSIAN, head)
    assert decode(page.encode("cp1251")) == (page, "windows-1251", "meta", 0)


def test_meta_beyond_1024_bytes_is_not_looked_at() -> None:
    page = html(GERMAN, f"<!--{'x' * 1024}--><meta charset=koi8-r>")
    assert decode(page.encode()).source == "utf8"


def test_meta_that_can_be_read_is_not_utf_16() -> None:
    page = html(GERMAN, "<meta charset=utf-16>")
    assert decode(page.encode()) == (page, "utf-8", "meta", 0)


def test_xml_declaration() -> None:
    page = '<?xml version="1.0" encoding="iso-8859-2"?>' + html("Zażółć gęślą jaźń")
    assert decode(page.encode("iso-8859-2")) == (page, "iso-8859-2", "meta", 0)


def test_meta_means_nothing_in_plain_text() -> None:
    text = "<meta charset=koi8-r> " + GERMAN
    assert decode(text.encode(), None, "text/plain") == (text, "utf-8", "utf8", 0)


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (RUSSIAN * 5, "cp1251", "windows-1251"),
        (RUSSIAN * 5, "koi8-r", "koi8-r"),
        (JAPANESE * 3, "euc_jp", "euc-jp"),
        (JAPANESE * 3, "cp932", "shift_jis"),
        (RUSSIAN, "utf-16-le", "utf-16le"),
        (html(GERMAN), "utf-16-be", "utf-16be"),
    ],
)
def test_detector_where_nothing_is_declared(text: str, codec: str, name: str) -> None:
    assert decode(text.encode(codec), None, "text/plain") == (text, name, "detector", 0)


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "name"),
    [
        (" UTF8 ", "utf-8"),
        ("Latin1", "windows-1252"),
        ("ascii", "windows-1252"),
        ("iso-8859-9", "windows-1254"),
        ("gb2312", "gbk"),
        ("x-sjis", "shift_jis"),
        ("ks_c_5601-1987", "euc-kr"),
        ("tis-620", "windows-874"),
        ("", None),
        (None, None),
        ("binary", None),
    ],
)
def test_labels(label: str | None, name: str | None) -> None:
    assert find_encoding(label) == name


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("latin-1", "cp1252", "“quoted” – 5 €"),
        ("shift_jis", "cp932", "①㈱髙~"),
        ("euc-jp", "euc_jis_2004", "①日本"),
        ("gb2312", "gb18030", "中文㐀€"),
        ("euc-kr", "cp949", "똠방각하"),
        ("big5", "big5hkscs", "中文嘅啲"),
        ("iso-8859-9", "cp1254", "ığüşö €"),
        ("iso-2022-jp", "iso2022_jp", JAPANESE),
        ("iso-2022-kr", "iso2022_kr", "한국어"),
        ("hz-gb-2312", "hz", "中文"),
        ("x-user-defined", "ascii", "plain"),
    ],
)
def test_labels_mean_what_browsers_make_of_them(label: str, codec: str, text: str) -> None:
    decoded = decode(text.encode(codec), label)
    assert (decoded.text, decoded.source, decoded.replaced) == (text, "http", 0)


def test_windows_1252_has_no_undefined_byte() -> None:
    decoded = decode(bytes(range(256)), "windows-1252", "text/plain")
    assert decoded.replaced == 0
    assert [ord(decoded.text[byte]) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)] == [
        *(0x81, 0x8D, 0x8F, 0x90, 0x9D)
    ]


# --- labels that lie ------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["iso-8859-1", "windows-1251", "utf-16", "gbk", "shift_jis"])
def test_bytes_that_are_utf_8_whatever_is_declared(label: str) -> None:
    page = html(RUSSIAN + GERMAN + JAPANESE)
    assert decode(page.encode(), label) == (page, "utf-8", "utf8_override", 0)


def test_utf_8_with_a_stray_byte_under_a_wrong_label() -> None:
    decoded = decode(html(RUSSIAN).encode() + b"\xff!", "iso-8859-1")
    assert decoded[1:] == ("utf-8", "utf8_override", 1)


def test_declared_utf_8_that_is_not() -> None:
    assert decode(html(RUSSIAN).encode("cp1251"), "utf-8")[:3] == (
        *(html(RUSSIAN), "windows-1251", "detector"),
    )


def test_header_that_lies_above_a_meta_that_does_not() -> None:
    page = html(RUSSIAN, "<meta charset=koi8-r>")
    assert decode(page.encode("koi8-r"), "utf-8") == (page, "koi8-r", "meta", 0)


@pytest.mark.parametrize("label", ["utf-8", None])
def test_one_bad_byte_costs_no_page(label: str | None) -> None:
    """fhamborg/news-please#198: one 0x80 in the footer."""
    page = html(GERMAN).encode().replace(b"</body>", b"\x80</body>")
    decoded = decode(page, label)
    assert decoded.text == html(GERMAN).replace("</body>", "\ufffd</body>")
    assert decoded.replaced == 1


def test_few_bad_bytes_do_not_overrule_a_declaration() -> None:
    decoded = decode(b"plain ASCII but for \x80 and \x81 and \x82.", "utf-8")
    assert decoded[1:] == ("utf-8", "http", 3)


def test_replacement_characters_of_the_page_itself_are_not_counted() -> None:
    assert decode("\ufffd é".encode() + b"\xff " + "é".encode() * 20, "utf-8").replaced == 1


def test_binary_is_not_text() -> None:
    junk = bytes(range(256)) * 40
    decoded = decode(junk, None, "text/plain")
    assert decoded.replaced > 0.05 * len(decoded.text)


# --- cut bodies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "codec"),
    [("utf-8", "utf-8"), ("euc-jp", "euc_jp"), ("gbk", "gb18030"), ("utf-16le", "utf-16-le")],
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_character_cut_at_the_end_leaves_no_trace(label: str, codec: str, declared: bool) -> None:
    """commoncrawl/nutch#10: captures cut at a length limit."""
    if not declared and codec != "utf-8":
        return
    data = JAPANESE.encode(codec)
    for cut in range(1, len("る".encode(codec))):
        decoded = decode(data[:-cut], label if declared else None)
        assert decoded.text == JAPANESE[:-1]
        assert decoded.replaced == 0


def test_a_last_letter_is_not_taken_for_a_cut_one() -> None:
    assert decode(b"caf\xe9", "iso-8859-1") == ("café", "windows-1252", "http", 0)


# --- any bytes ------------------------------------------------------------------------------------

LABELS = st.one_of(st.none(), st.text(max_size=12), st.sampled_from(sorted(_ENCODING_OF)))


@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.tuples(
            st.sampled_from([b"", b"<meta charset=", codecs.BOM_UTF8, b"\xff\xfe", b"\x1b$B"]),
            st.sampled_from([label.encode() for label in sorted(_ENCODING_OF)]),
            st.binary(max_size=60),
        ).map(b">".join),
    ),
    label=LABELS,
    media_type=st.sampled_from(["text/html", "text/plain", ""]),
)
@example(b"~", "hz-gb-2312", "text/html")
def test_decode_never_raises(content: bytes, label: str | None, media_type: str) -> None:
    decoded = decode(content, label, media_type)
    assert decoded.replaced >= 0
    assert decoded == decode(content, label, media_type)
    text, _ = sanitise(decoded.text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", text)
    text.encode()


@pytest.mark.parametrize("encoding", sorted(set(_ENCODING_OF.values())))
def test_every_encoding_decodes_every_byte(encoding: str) -> None:
    decoded = decode(bytes(range(128)) + b" " + bytes(range(128, 256)) * 2, encoding)
    assert decoded.text
    if encoding not in _MULTIBYTE:
        assert decode(b"abc", encoding).text == "abc"


# --- cleaning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean", "count"),
    [
        ("plain\n\ttext", "plain\n\ttext", 0),
        ("nbsp\xa0é\ufeff中", "nbsp\xa0é\ufeff中", 0),
        ("a\r\nb\rc", "a\nb\nc", 2),
        ("a\x0bb\x0cc\x85d", "a\nb\nc\nd", 3),
        ("a\x1cb\x1fc", "a b c", 2),
        ("\ud83d alone", "\ufffd alone", 1),
        ("\ud83d\ude00", "\U0001f600", 0),
        ("N\x00L \ufffe \uffff.", "N\ufffdL \ufffd \ufffd.", 3),
        ("be\x07ll\x7f\x9f", "bell", 3),
        ("cut \ufffd\ufffd", "cut ", 2),
        ("in\ufffdside", "in\ufffdside", 0),
        ("", "", 0),
    ],
)
def test_sanitise(text: str, clean: str, count: int) -> None:
    """questdb/questdb#7191 among others: no lone surrogate, NUL or noncharacter leaves."""
    assert sanitise(text) == (clean, count)


@given(st.text(st.characters(), max_size=50) | st.text("\r\n\x00\x85Â¿¾\ufffd\uffff\ud800aé"))
def test_sanitise_is_idempotent_and_agrees_with_is_clean(text: str) -> None:
    clean, count = sanitise(text)
    assert sanitise(clean) == (clean, 0)
    assert is_clean(clean.encode())
    if count == 0 and not re.search("[\ud800-\udfff]", text):
        assert clean == text
