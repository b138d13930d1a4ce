"""The model of the engine `blocks`: its file, and what it says of pages."""

from __future__ import annotations

import io

import numpy as np
from selectolax.lexbor import LexborHTMLParser

from curation.extract.blocks.features import CONTEXT, NAMES
from curation.extract.blocks.model import Model, package_model
from curation.extract.blocks.page import Page
from curation.extract.blocks.scan import scan

PROSE = "<p>The committee met on Tuesday, and it took its time. Nobody was surprised by that.</p>"
MENU = "<ul class=menu><li><a href=/a>Home</a><li><a href=/b>News</a><li><a href=/c>Sport</a></ul>"
HTML = f"<title>A day</title><nav>{MENU}</nav><article><h1>A day</h1>{PROSE * 6}</article>"


def page_of(html: str) -> Page:
    return scan((LexborHTMLParser(html).html or "").encode())


def test_a_file_gives_the_same_model_and_a_model_the_same_bytes() -> None:
    one, other = io.BytesIO(), io.BytesIO()
    model = package_model()
    model.save(one)
    model.save(other)
    assert one.getvalue() == other.getvalue()
    one.seek(0)
    page = page_of(HTML)
    assert (Model.load(one).probabilities(page) == model.probabilities(page)).all()


def test_the_model_fits_the_features() -> None:
    model = package_model()
    assert model.first.width <= len(NAMES)
    assert model.second.width <= len(NAMES) + len(CONTEXT)
    for weights in model.weights:
        assert len(weights) & (len(weights) - 1) == 0
        assert np.isfinite(weights).all()


def test_an_article_is_kept_and_a_menu_is_not() -> None:
    page = page_of(HTML)
    kept = package_model().probabilities(page) >= 0.5
    menu = [text in ("Home", "News", "Sport") for text in page.texts()]
    assert not kept[menu].any()
    assert kept[-6:].all()


def test_a_page_without_text() -> None:
    assert package_model().probabilities(page_of("")).shape == (0,)
