"""Which documents a demonstration model may drop: those of hosts that nobody can register."""

from __future__ import annotations

import pyarrow as pa
import pytest

from curation.models.card import Card, may_judge

DEMONSTRATION = Card(kind="kenlm", files={}, demonstration=True)


def allowed(url: str | None) -> bool:
    return bool(may_judge(DEMONSTRATION, pa.array([url], pa.string()))[0])


@pytest.mark.parametrize(
    "url",
    [
        "https://pages.example/a",
        "https://a.b.c.test",
        "http://localhost:8000/x",
        "http://deep.localhost/",
        "https://no.invalid?q=1",
        "https://example.com/",
        "https://www.example.net/",
        "http://example.org#top",
        "HTTPS://WWW.EXAMPLE.ORG/",
        "https://pages.example:8443/a",
        "https://user:secret@pages.example/a",
        "https://real-site.com@pages.example/a",
        "https://pages.example./a",
        "https://www.example.com.:80/",
        "https://under_score.example/",
    ],
)
def test_a_demonstration_judges_reserved_hosts(url: str) -> None:
    assert allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "pages.example",  # a path
        "/pages.example/a",
        "file:///pages.example",
        "https://real-site.com/",
        "https://real-site.com/pages.example",
        "https://real-site.com?pages.example",
        "https://real-site.com#.example",
        "https://pages.example@real-site.com/",
        "https://pages.example:80@real-site.com/",
        "https://real-site.com\\.example/",  # browsers take the backslash for a slash
        "https://real-site.com%2f.example/",
        "https://notexample.com/",
        "https://example.com.real-site.com/",
        "https://example.co/",
        "https://example.de/",
        "https://pages.example../",
        "https://.example/",
        "https://127.0.0.1/",
        "https://192.0.2.1/",  # kept for documents by RFC 5737, but an address of nobody's sample
        "https://[2001:db8::1]/",
        "https://[pages.example/",
        "https://[pages.example]/",
        "https://pages。example/",
    ],
)
def test_a_demonstration_judges_nothing_else(url: str | None) -> None:
    assert not allowed(url)


def test_other_models_judge_everything() -> None:
    urls = pa.array(["https://real-site.com/", None, "https://pages.example/"])
    assert may_judge(Card(kind="kenlm", files={}), urls).tolist() == [True, True, True]
    assert may_judge(DEMONSTRATION, urls).tolist() == [False, False, True]
    assert len(may_judge(DEMONSTRATION, urls[:0])) == 0
