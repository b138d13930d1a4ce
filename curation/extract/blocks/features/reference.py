"""The features of blocks in plain Python, quadratic in places: what the kernel is held to.

What may live here: one function per group of features, each a mapping of names to values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import log1p, sqrt
from typing import Any

from curation.extract.blocks.features import NAMES, Weights
from curation.extract.blocks.features.kernels import (
    AROUND,
    FAR,
    HALF,
    LEVELS,
    NEAR,
    NEIGHBOURS,
    OPENING,
    TITLE_WORDS,
    WINDOWS,
)
from curation.extract.blocks.page import ANCESTORS, Page, word_hash

Values = dict[str, float]

_WORD = re.compile(rb"[\xe3-\xef].{2}|[\xf0-\xff].{3}|[0-9A-Za-z\x80-\xc1\xc3-\xe1]+", re.DOTALL)
_PARTING = re.compile(rb"\xc2.|\xe2..", re.DOTALL)
_FOLD = bytes.maketrans(bytes(range(65, 91)) + b"123456789", bytes(range(97, 123)) + b"0" * 9)
_LATIN = re.compile(rb"\xc3[\x80-\x9e]")


def opening_words(text: bytes, most: int) -> list[int]:
    """Hashes of the first words."""
    words: list[int] = []
    for part in _PARTING.split(text):
        for match in _WORD.finditer(part):
            word = match[0]
            if word[0] < 0xE3:
                word = word.translate(_FOLD)
                word = _LATIN.sub(lambda found: bytes((0xC3, found[0][1] + 32)), word)
            words.append(word_hash(word))
    return words[:most]


def slot(word: int, size: int) -> int:
    return (word ^ word >> 15) & size - 1


def pair(before: int, word: int) -> int:
    both = before * 0x9E3779B1 & 0xFFFFFFFF ^ word
    return both ^ both >> 13


def features(page: Page, weights: Weights) -> list[list[float]]:
    """Per block the values of NAMES."""
    return _Features(page, weights).rows()


def context(page: Page, chances: Sequence[float]) -> list[list[float]]:
    """Per block the values of CONTEXT."""
    n = len(page.blocks)
    sizes = [sqrt(size) for size in page.blocks["characters"].tolist()]
    kept = [size * chance for size, chance in zip(sizes, chances, strict=True)]
    parents = page.elements["parent"][page.blocks["element"]].clip(0).tolist()

    def mean(those: Sequence[int]) -> float:
        return sum(kept[j] for j in those) / max(1, sum(sizes[j] for j in those))

    return [
        [
            *(chances[j] if 0 <= j < n else 0.0 for j in range(i - NEAR, i + NEAR + 1)),
            *(mean(range(max(0, i - width), min(n, i + width + 1))) for width in AROUND),
            mean([j for j in range(n) if parents[j] == parents[i]]),
            sum(kept[:i]) / max(1e-9, sum(kept)),
            max(chances),
            max(chances[: i + 1]),
            max(chances[i:]),
        ]
        for i in range(n)
    ]


def _share(part: float, whole: float) -> float:
    return part / max(1, whole)


def _clip(distance: float) -> float:
    return min(FAR, max(-FAR, distance))


class _Features:
    """A page's records as dictionaries, and what is worked out for all of it."""

    def __init__(self, page: Page, weights: Weights) -> None:
        self.elements = _records(page.elements)
        self.blocks = _records(page.blocks)
        self.weights = weights
        self.hints = page.hints.tolist()
        text = page.text.tobytes()
        self.texts = [text[b["start"] : b["stop"]] for b in self.blocks]
        self.prose = [self._prose(b) for b in self.blocks]
        self.words = [opening_words(t, OPENING) for t in self.texts]
        title = opening_words(text[: page.title], TITLE_WORDS)
        self.scores = [self._score(words) for words in self.words]
        self.overlaps = [_share(sum(w in title for w in words), len(words)) for words in self.words]
        self.looks = [
            (e["tag"], *self.hints[e["hints"] : min(e["hints_stop"], e["hints"] + 3)])
            for e in self.elements
        ]
        self.alike = Counter(
            (e["parent"], look)
            for e, look in zip(self.elements, self.looks, strict=True)
            if e["stop"] > e["first"]
        )
        self.best = self._best()
        whole = sum(self.prose)
        halves = [
            i
            for i, e in enumerate(self.elements)
            if sum(self.prose[e["first"] : e["stop"]]) > HALF * max(1, whole)
        ]
        self.half = halves[-1] if halves else 0

    def rows(self) -> list[list[float]]:
        rows = []
        for i in range(len(self.blocks)):
            values = {
                **self._own(i),
                **self._place(i),
                **self._hints(i),
                **self._words(i),
                **self._containers(i),
                **self._groups(i),
                **self._landmarks(i),
                **self._page(i),
                **self._windows(i),
                **self._neighbours(i),
            }
            rows.append([float(values[name]) for name in NAMES])
        return rows

    # --- what is worked out -----------------------------------------------------------------------

    def _prose(self, block: dict[str, int]) -> int:
        characters, links = block["characters"], block["link_characters"]
        sentence = block["ends"] and characters >= 25
        marks = block["terminals"] + block["commas"]
        return characters - links if links * 2 <= characters and (sentence or marks >= 3) else 0

    def _score(self, words: Sequence[int]) -> float:
        table = self.weights.words
        keys = [
            key
            for before, word in zip([0, *words], words, strict=False)
            for key in (word, pair(before, word))
        ]
        return sum((float(table[slot(key, len(table))]) for key in keys), 0.0)

    def _own_hints(self, element: int) -> float:
        e, table = self.elements[element], self.weights.hints
        words = self.hints[e["hints"] : e["hints_stop"]]
        return sum((float(table[slot(word, len(table))]) for word in words), 0.0)

    def _around(self, element: int) -> list[int]:
        """The element and those around it, innermost first."""
        found = []
        while element >= 0:
            found.append(element)
            element = self.elements[element]["parent"]
        return found

    def _path(self, element: int) -> float:
        path = 0.0
        for e in reversed(self._around(element)):
            path = self._own_hints(e) + path
        return path

    def _chain(self, i: int) -> list[int]:
        """The block's element and LEVELS containers; the document where there are no more."""
        chain = [self.blocks[i]["element"]]
        for element in self._around(chain[0]):
            outer, inner = self.elements[element], self.elements[chain[-1]]
            if outer["stop"] - outer["first"] > inner["stop"] - inner["first"]:
                chain.append(element)
        return (chain + [0] * LEVELS)[: LEVELS + 1]

    def _best(self) -> int:
        votes = [0.0] * len(self.elements)
        for i, prose in enumerate(self.prose):
            for level, element in enumerate(self._chain(i)):
                if level:
                    votes[element] += prose / level
        return votes.index(max(votes))

    def _sum(self, name: str, first: int, stop: int) -> int:
        return sum(block[name] for block in self.blocks[max(0, first) : stop])

    def _level(self, i: int) -> int:
        return self.elements[self.blocks[i]["element"]]["level"]

    # --- groups of features -----------------------------------------------------------------------

    def _own(self, i: int) -> Values:
        b = self.blocks[i]
        c, w = max(1, b["characters"]), max(1, b["words"])
        return {
            "characters": log1p(c),
            "words": log1p(w),
            "links": b["link_characters"] / c,
            "links_per_word": b["links"] / w,
            "commas_per_word": b["commas"] / w,
            "terminals": log1p(b["terminals"]),
            "ends": b["ends"],
            "digits": b["digits"] / c,
            "capitals": _share(b["capitals"], b["letters"]),
            "short_words": b["short_words"] / w,
            "word_length": c / w,
            "letters": b["letters"] / c,
            "singles": b["singles"] / c,
            "terminal_share": b["terminals"] / c,
            "breaks": b["breaks"],
            "first_byte": self.texts[i][0],
        }

    def _place(self, i: int) -> Values:
        e = self.elements[self.blocks[i]["element"]]
        around = {name for bit, name in enumerate(ANCESTORS) if e["ancestors"] >> bit & 1}
        return {
            "tag": e["tag"],
            "leaf": self.elements[self.blocks[i]["leaf"]]["tag"],
            "parent": self.elements[max(0, e["parent"])]["tag"],
            "kind": e["kind"],
            "level": e["level"],
            "depth": e["depth"],
            "lists": e["lists"],
            "article": not around.isdisjoint(("article", "main")),
            "marginal": not around.isdisjoint(("nav", "aside", "header", "footer", "form")),
            **{name: name in around for name in ("table", "figure", "section")},
        }

    def _hints(self, i: int) -> Values:
        leaf = self.blocks[i]["leaf"]
        around = self._around(leaf)
        scores = [self._own_hints(e) for e in around]
        hinted = [
            score
            for e, score in zip(around, scores, strict=True)
            if self.elements[e]["hints_stop"] > self.elements[e]["hints"]
        ]
        return {
            "hints_path": self._path(leaf),
            "hints_greatest": max(0.0, *scores),
            "hints_least": min(0.0, *scores),
            "hints_nearest": hinted[0] if hinted else 0,
            "hints_own": self._own_hints(self.blocks[i]["element"]),
            "hints_near": self._path(leaf) - self._path(self._chain(i)[2]),
        }

    def _words(self, i: int) -> Values:
        values: Values = {"score": self.scores[i], "title": self.overlaps[i]}
        values.update(heading_score=0, heading_hints=0, heading_level=0, from_heading=FAR)
        headings = [j for j in range(i) if self._level(j)]
        if headings:
            last = headings[-1]
            values["heading_score"] = self.scores[last]
            values["heading_hints"] = self._path(self.blocks[last]["leaf"])
            values["heading_level"] = self._level(last)
            values["from_heading"] = _clip(i - last)
        return values

    def _containers(self, i: int) -> Values:
        values: Values = {}
        chain = self._chain(i)
        for level, container in enumerate(chain[1:], 1):
            e = self.elements[container]
            first, stop = e["first"], e["stop"]
            characters = self._sum("characters", first, stop)
            prose = sum(self.prose[first:stop])
            mine = {
                "blocks": log1p(stop - first),
                "characters": log1p(characters),
                "links": _share(self._sum("link_characters", first, stop), characters),
                "prose": _share(prose, sum(self.prose)),
                "prose_share": _share(prose, characters),
                "tag": e["tag"],
                "alike": _clip(self.alike[e["parent"], self.looks[container]]),
                "position": (i - first) / (stop - first),
            }
            values.update({f"container{level}_{name}": value for name, value in mine.items()})
        own = self.elements[chain[0]]
        return {**values, "alike": _clip(self.alike[own["parent"], self.looks[chain[0]]])}

    def _groups(self, i: int) -> Values:
        def key(j: int, which: str) -> tuple[Any, ...]:
            element = self.blocks[j]["element"]
            parent = max(0, self.elements[element]["parent"])
            return self.looks[element], parent if which == "parent" else self.looks[parent]

        values: Values = {}
        for which in ("page", "parent"):
            those = [j for j in range(len(self.blocks)) if key(j, which) == key(i, which)]
            characters = sum(self.blocks[j]["characters"] for j in those)
            links = sum(self.blocks[j]["link_characters"] for j in those)
            mine = {
                "size": _clip(len(those)),
                "characters": log1p(characters / len(those)),
                "links": _share(links, characters),
                "prose": _share(sum(self.prose[j] for j in those), sum(self.prose)),
                "ends": sum(self.blocks[j]["ends"] for j in those) / len(those),
            }
            values.update({f"{which}_group_{name}": value for name, value in mine.items()})
        return values

    def _landmarks(self, i: int) -> Values:
        best, half = self.elements[self.best], self.elements[self.half]
        around_best = set(self._around(self.best))
        around = self._around(self.blocks[i]["element"])
        climb = next(k for k, element in enumerate(around) if element in around_best)
        size = half["stop"] - half["first"]
        return {
            "in_best": best["first"] <= i < best["stop"],
            "best_position": _share(i - best["first"], best["stop"] - best["first"]),
            "from_best": _clip(i - best["first"]),
            "to_best_end": _clip(best["stop"] - 1 - i),
            "climb": climb,
            "above": best["depth"] - self.elements[around[climb]]["depth"],
            "best_prose": _share(sum(self.prose[best["first"] : best["stop"]]), sum(self.prose)),
            "best_hints": self._path(self.best),
            "in_half": half["first"] <= i < half["stop"],
            "half_size": size / len(self.blocks),
            "half_position": _share(i - half["first"], size),
        }

    def _page(self, i: int) -> Values:
        n = len(self.blocks)
        total, prose = self._sum("characters", 0, n), sum(self.prose)
        headlines = [j for j in range(n) if self._level(j) == 1]
        likeness = [
            overlap * min(1, b["words"] / 4) * (1.5 if self._level(j) else 1)
            for j, (overlap, b) in enumerate(zip(self.overlaps, self.blocks, strict=True))
        ]
        titled = likeness.index(max(likeness)) if max(likeness) > 0 else None
        past = [i - j for j in range(i) if self.prose[j]]
        coming = [j - i for j in range(i + 1, n) if self.prose[j]]
        mine = {
            "blocks": log1p(n),
            "characters": log1p(max(1, total)),
            "links": _share(self._sum("link_characters", 0, n), total),
            "prose": _share(prose, total),
            "longest": log1p(max(self.prose)),
            "position": i / n,
            "characters_before": _share(self._sum("characters", 0, i), total),
            "prose_before": _share(sum(self.prose[:i]), prose),
            "prose_after": _share(sum(self.prose[i + 1 :]), prose),
            "from_headline": _clip(i - headlines[0]) if headlines else -FAR - 1,
            "from_title": -FAR - 1 if titled is None else _clip(i - titled),
            "since_prose": min(past, default=FAR),
            "until_prose": min(coming, default=FAR),
            "prose_here": self.prose[i],
        }
        mine["since_prose"] = _clip(mine["since_prose"])
        mine["until_prose"] = _clip(mine["until_prose"])
        return {f"page_{name}": value for name, value in mine.items()}

    def _windows(self, i: int) -> Values:
        values: Values = {}
        for width in WINDOWS:
            first, stop = max(0, i - width), i + width + 1
            characters = self._sum("characters", first, stop)
            values[f"window{width}_prose"] = log1p(sum(self.prose[first:stop]))
            links = self._sum("link_characters", first, stop)
            values[f"window{width}_links"] = _share(links, characters)
        return values

    def _neighbours(self, i: int) -> Values:
        prefix = "neighbour+1_"
        names = [name.removeprefix(prefix) for name in NAMES if name.startswith(prefix)]
        values: Values = {}
        for at in NEIGHBOURS:
            j = i + at
            mine: Values = dict.fromkeys(names, -1)
            if 0 <= j < len(self.blocks):
                block = self.blocks[j]
                hints = self._path(block["leaf"]) - self._path(self.blocks[i]["leaf"])
                mine = {
                    "characters": log1p(max(1, block["characters"])),
                    "links": _share(block["link_characters"], block["characters"]),
                    "ends": block["ends"],
                    "tag": self.elements[block["element"]]["tag"],
                    "hints": hints,
                    "score": self.scores[j],
                    "same_container": self._chain(i)[1] == self._chain(j)[1],
                }
            values.update({f"neighbour{at:+d}_{name}": value for name, value in mine.items()})
        return values


def _records(array: Any) -> list[dict[str, int]]:
    names = array.dtype.names
    return [dict(zip(names, record, strict=True)) for record in array.tolist()]
