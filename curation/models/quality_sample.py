"""The classifier that ships, `quality/sample`: `python -m curation.models.quality_sample DIR`.

What may live here: the junk that it learns to dislike, made up of templates and chance, and how it
is trained. It is a demonstration: of pages that are not of the sample crawl it may judge none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from curation.models import reference
from curation.models.classifier import Options
from curation.models.training import train

#: A hundred texts have few words: single ones, in a small space, looked at often.
OPTIONS = Options(dim=8, epochs=30, ngrams=1, lr=0.5)
JUNK = 200

_WORDS = {
    "thing": """shoes handbags watches sunglasses laptops phones chargers mattresses sofas drills
    curtains perfumes vitamins trainers jackets rings blenders tyres printers carpets""",
    "praise": """cheap best discount free premium exclusive amazing hot top ultimate original
    trusted instant guaranteed bestselling limited""",
    "menu": """home login register about contact shop cart checkout wishlist blog news faq help
    careers sitemap imprint search categories brands sale newsletter downloads forum gallery""",
}
_SENTENCES = (
    "Buy {praise} {thing} online now and save {percent}%!",
    "Click here to get your {praise} {thing} today, free shipping worldwide!!!",
    "Posted by admin in {thing} | {percent} comments | share | tweet | pin it",
    "We use cookies to improve your experience on our website. Accept all. Settings.",
    "Sign up for our newsletter and get {percent}% off your next order of {thing}.",
    "{praise} {thing}, {praise} {thing} {year}, {thing} {praise} price, {thing} near me",
    "Add to cart. Add to wishlist. Compare. In stock. {percent} reviews.",
    "You must be logged in to reply. Forgot your password? Register now.",
    "All rights reserved {year}. Terms of use. Privacy policy. Powered by our shop.",
    "Win a {praise} {thing}! Enter your e-mail, call now, no credit card, act fast.",
    "{menu} | {menu} | {menu} | {menu} | {menu}",
    "Tags: {thing}, {praise}, {thing}, {menu}, {praise} {thing}",
)


def junk(seed: int) -> list[str]:
    """Texts of the kinds that nobody wants: shop windows, keyword lists, notices, menus."""
    chance = Random(seed)

    def sentence() -> str:
        words = chance.choice(_SENTENCES)
        for name, choices in _WORDS.items():
            while f"{{{name}}}" in words:
                words = words.replace(f"{{{name}}}", chance.choice(choices.split()), 1)
        return words.format(percent=chance.randint(1, 95), year=chance.randint(2005, 2026))

    return ["\n".join(sentence() for _ in range(chance.randint(5, 15))) for _ in range(JUNK)]


def make(target: Path) -> None:
    """Trains the model anew: the same bytes every time on the same kind of machine."""
    train(
        reference.texts(),
        junk(OPTIONS.seed),
        target,
        held_out=0.2,
        options=OPTIONS,
        preparation="words",
        language="en",
        license="as this package",
        source="the reference prose of this package against made-up junk",
        demonstration=True,
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
