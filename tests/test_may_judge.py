"""Which documents a demonstration model may drop: those of the sample crawl's sites."""

from __future__ import annotations

import pyarrow as pa
import pytest

from curation.models.card import Card, may_judge
from curation.sample.sites import SITES

DEMONSTRATION = Card(kind="kenlm", files={}, demonstration=True)


def allowed(url: str | None) -> bool:
    return bool(may_judge(DEMONSTRATION, pa.array([url], pa.string()))[0])


@pytest.mark.parametrize(
    "url",
    [
        *(f"https://{site.host}/a" for site in SITES),
        "https://www.desk.example.org/",
        "HTTPS://WWW.HANDBOOK.TEST/",
        "http://handbook.test#top",
        "https://handbook.test?q=1",
        "https://handbook.test:8443/a",
        "https://user:secret@handbook.test/a",
        "https://real-site.com@handbook.test/a",
        "https://handbook.test./a",
        "https://www.handbook.test.:80/",
    ],
)
def test_a_demonstration_judges_the_sites_of_the_sample_crawl(url: str) -> None:
    assert allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "handbook.test",  # a path
        "/handbook.test/a",
        "file:///handbook.test",
        "https://pages.example/",  # somebody else's test
        "https://more.handbook.test/",
        "https://example.org/",
        "http://localhost:8000/x",
        "https://real-site.com/",
        "https://real-site.com/handbook.test",
        "https://real-site.com?handbook.test",
        "https://real-site.com#.example",
        "https://handbook.test@real-site.com/",
        "https://handbook.test:80@real-site.com/",
        "https://real-site.com\\.example/",  # browsers take the backslash for a slash
        "https://real-site.com%2f.example/",
        "https://notexample.com/",
        "https://example.com.real-site.com/",
        "https://example.co/",
        "https://example.de/",
        "https://handbook.test../",
        "https://.example/",
        "https://127.0.0.1/",
        "https://192.0.2.1/",
        "https://[2001:db8::1]/",
        "https://[handbook.test/",
        "https://[handbook.test]/",
        "https://pages。example/",
    ],
)
def test_a_demonstration_judges_nothing_else(url: str | None) -> None:
    assert not allowed(url)


def test_other_models_judge_everything() -> None:
    urls = pa.array(["https://real-site.com/", None, "https://handbook.test/"])
    assert may_judge(Card(kind="kenlm", files={}), urls).tolist() == [True, True, True]
    assert may_judge(DEMONSTRATION, urls).tolist() == [False, False, True]
    assert len(may_judge(DEMONSTRATION, urls[:0])) == 0
