"""URLs taken apart, lists of domains, words: kernels against plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from publicsuffixlist import PublicSuffixList

from curation.filters.urls import Addresses, kernels, lists, reference
from curation.filters.urls.words import Words

patient = settings(deadline=None, max_examples=300)

labels = st.sampled_from(
    [
        *("www", "a", "b", "Shop", "xn--bcher-kva", "com", "co", "uk", "github", "io", "ck", "jp"),
        *("kawasaki", "city", "blogspot", "example", "1", "22", "1.2.3.4", "x_y", "", "poker"),
    ]
)
hosts = st.lists(labels, min_size=1, max_size=5).map(".".join)
pieces = st.sampled_from(
    [
        *("http:", "https:", "//", "/", "\\", "?", "#", "@", ":", ":80", "[", "]", "[::1]", "%61"),
        *(".", "..", "*", " ", "\t", "\x00", "\x7f", "<", "|", "javascript:", "mailto:", "0.0.0.0"),
        *("a/b", "a/B;c", "ü", "\u3002", "\ud7ff", "x" * 260, "-", "+"),
    ]
)
urls = st.lists(pieces | labels | hosts, max_size=8).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=20
)
paths = st.sampled_from(
    ["", "/", "/a", "/a/", "/A/b", "/a/b?c=1", "/a\\b", "?a", "/ab", "/a;b", "#"]
)
simple = st.builds("{}{}{}".format, st.sampled_from(["http://", "", "//u@"]), hosts, paths)
entries = st.builds("{}{}{}".format, st.sampled_from(["", "", ".", "http://"]), hosts, paths)
words = st.text("ab1", min_size=1, max_size=4)
suffixes = PublicSuffixList()


def registrable(host: str) -> str | None:
    """By the package's own code; a host whose last label is a number is an IP address."""
    return None if host.rpartition(".")[2].isdigit() else suffixes.privatesuffix(host.lower())


def taken_apart(*given: str | None) -> list[tuple[str, str] | None]:
    """Host and rest of each URL, before odd hosts are rewritten."""
    column = pa.array(given, pa.large_string()).fill_null("")
    addresses = Addresses.of(column)
    spans = np.zeros(4 * len(given), np.int64)
    odd = np.zeros(len(given), bool)
    kernels.locate(addresses.data, addresses.begins, addresses.ends, spans, odd)
    return [
        (text(addresses, a, b), text(addresses, c, d)) if a >= 0 else None
        for a, b, c, d in spans.reshape(-1, 4).tolist()
    ]


def text(addresses: Addresses, begin: int, end: int) -> str:
    return addresses.data[begin:end].tobytes().decode()


def hosts_of(*given: str) -> list[str | None]:
    """The hosts of URLs, as they are compared."""
    addresses = Addresses.of(pa.array(given))
    spans = addresses.spans.reshape(-1, 4).tolist()
    return [text(addresses, a, b).lower() if a >= 0 else None for a, b, _, _ in spans]


@patient
@given(st.lists(urls, max_size=6))
def test_urls_are_taken_apart_as_the_reference_does(given: list[str]) -> None:
    assert taken_apart(*given) == [reference.locate(url) for url in given]


@patient
@given(st.lists(hosts.filter(lambda host: ".." not in f".{host}."), max_size=6))
def test_registrable_domains_are_those_of_the_public_suffix_list(given: list[str]) -> None:
    found = Addresses.of(pa.array([f"http://{host}/x" for host in given], pa.string())).domains()
    assert found.to_pylist() == [registrable(host) for host in given]


def test_registrable_domains_of_all_rules_of_the_public_suffix_list() -> None:
    rules = {rule.lstrip("!*.") for rule in suffixes._publicsuffix if rule.isascii()}
    given = [f"{front}{rule}" for rule in sorted(rules) for front in ("", "a.", "b.a.", "www.")]
    found = Addresses.of(pa.array([f"http://{host}" for host in given])).domains()
    assert len(given) > 20_000
    assert found.to_pylist() == [suffixes.privatesuffix(host) for host in given]


@patient
@given(
    st.lists(
        st.sampled_from(["# x", "a.b", "*.a", "", "1.2.3.4 a b", "::1\tc", "a #b", "a#b"]) | urls,
        max_size=8,
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_lists_are_split_into_entries_as_the_reference_does(given: list[str], end: str) -> None:
    data = np.frombuffer(end.join(given).encode(), np.uint8)
    begins, ends = np.empty((2, len(data) + 1), np.int64)
    n = kernels.split_list(data, begins, ends)
    found = [data[b:e].tobytes().decode() for b, e in zip(begins[:n], ends[:n], strict=True)]
    assert found == reference.entries(end.join(given))


@patient
@given(st.lists(simple, min_size=1, max_size=8), st.lists(entries, max_size=6))
def test_what_falls_under_a_list_is_what_does_by_the_reference(
    given: list[str], listed: list[str]
) -> None:
    chunks = [(entry, entry.encode()) for entry in (*listed, *(f"good.n{i}" for i in range(6)))]
    names = lists._join(chunks, "x")
    found = names.find(Addresses.of(pa.array(given)))
    for url, label in zip(given, found.to_pylist(), strict=True):
        address = reference.locate(url)
        expected = address and reference.falls_under(
            address[0], address[1], registrable(address[0]), listed
        )
        assert (label is None) == (expected is None), (url, listed)


@patient
@given(
    st.lists(st.text("abB1-/.%", max_size=30), max_size=5),
    st.frozensets(words, max_size=6),
    st.frozensets(words, max_size=6),
    st.frozensets(words, max_size=6),
)
def test_words_are_counted_as_by_the_reference(
    given: list[str], strict: frozenset[str], hard: frozenset[str], soft: frozenset[str]
) -> None:
    found = Words(strict, hard, soft).count(Addresses.of(pa.array(given, pa.string())))
    expected = [list(reference.count_words(url, strict, hard, soft)) for url in given]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Example.COM.:8080/x", "example.com"),
        ("https://user:pass@example.com/", "example.com"),
        ("http://example.com@evil.test/", "evil.test"),
        ("//example.com/x", "example.com"),
        ("example.com/x", "example.com"),
        ("example.com:80", "example.com"),
        (" http://example.com\n", "example.com"),
        ("http://example.com\\x", "example.com"),
        ("http://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("http://B\u00dcCHER.example/", "xn--bcher-kva.example"),
        ("http://b%C3%BCcher.example/", "xn--bcher-kva.example"),
        ("http://XN--bcher-kva.example/", "xn--bcher-kva.example"),
        ("http://fa\u00df.example/", "xn--fa-hia.example"),
        ("http://\uff45xample.com/", "example.com"),
        ("http://ex%61mple.com/", "example.com"),
        ("http://\u4f8b\u3002com/", "xn--fsq.com"),
        ("http://192.168.0.1/", "192.168.0.1"),
        ("http://[2001:DB8::1]:80/", "2001-0db8-0000-0000-0000-0000-0000-0001"),
        *(
            (bad, None)
            for bad in ("", " ", "javascript:alert(1)", "data:text/html,x", "about:blank")
        ),
        *((bad, None) for bad in ("mailto:a@b.example", "http://", "http:///x", "https:", "#x")),
        *(
            (bad, None)
            for bad in ("http://a b/", "http://[::1", "http://[x]/", "http://a|b/", "http://.")
        ),
        *((bad, None) for bad in ("http://%zz/", "http://%ff/", "http://" + "a" * 300 + ".com/")),
        *((bad, None) for bad in ("http://" + "\u00fc" * 300, "http://" + "%61" * 10**6)),
        ("http://example.com/" + "x" * 10**6, "example.com"),
    ],
)
def test_hosts(url: str, host: str | None) -> None:
    assert hosts_of(url) == [host]


def test_two_spellings_of_an_ipv6_address_are_one() -> None:
    first, second = hosts_of("http://[::ffff:1.2.3.4]/", "http://[0:0:0:0:0:FFFF:0102:0304]/")
    assert first == second is not None


def test_batches_cut_anywhere_give_the_same() -> None:
    given = ["http://a.example/", None, "http://\u00fc.example/x", "x", "http://c.example"]
    column = pa.array(given, pa.string())
    whole = Addresses.of(column).domains().to_pylist()
    cuts = [Addresses.of(column[i : i + 2]).domains().to_pylist() for i in range(0, 5, 2)]
    assert whole == [*itertools.chain(*cuts)]
    assert whole == ["a.example", None, "xn--tda.example", None, "c.example"]
    assert Addresses.of(column[:0]).domains().to_pylist() == []
    assert Addresses.of(pa.nulls(2)).domains().to_pylist() == [None, None]
