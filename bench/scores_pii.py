"""How well personal data is found: against labelled spans, published cases, and clean text.

    python bench/scores_pii.py ../shared/data [--texts TEXTS.jsonl]

What is printed: span precision and recall on presidio-research, hit rates on Presidio's own cases,
and what is found, per million words, where little should be: in business passages without labels,
in prose and speeches, and in the texts of a JSONL file.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from curation.redact.pii import DEFAULT, Pii
from curation.redact.spans import Span

#: Entities of presidio-research, and the kinds that look for them.
ENTITIES = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "IP_ADDRESS": "ip",
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
    "US_SSN": "ssn",
}
#: Presidio's recognisers, and the kinds that look for the same.
RECOGNISERS = {
    "email_recognizer": "email",
    "ip_recognizer": "ip",
    "phone_recognizer": "phone",
    "credit_card_recognizer": "card",
    "us_ssn_recognizer": "ssn",
    "us_itin_recognizer": "ssn",
    "crypto_recognizer": "wallet",
    "mac_recognizer": "mac",
    "uk_nhs_recognizer": "nhs",
    "es_nif_recognizer": "nif",
    "es_nie_recognizer": "nif",
}
#: Some of the regions in which presidio-research's numbers are made.
REGIONS = ("US", "GB", "DE", "FR", "IT", "CH", "AU", "BR", "JP", "FI", "SE", "NO", "DK", "BE", "NL")


class Score(NamedTuple):
    """Spans of the truth and those of them found; spans found and those of them true."""

    gold: int
    recalled: int
    found: int
    right: int

    @property
    def recall(self) -> float:
        """1 where there is nothing to find."""
        return self.recalled / self.gold if self.gold else 1.0

    @property
    def precision(self) -> float:
        """1 where nothing is found."""
        return self.right / self.found if self.found else 1.0

    def f(self, beta: float = 2) -> float:
        """F of recall and precision; presidio-research reports beta 2."""
        whole = beta**2 * self.precision + self.recall
        return (1 + beta**2) * self.precision * self.recall / whole if whole else 0.0


def alike(one: Span, other: Span, alpha: float, beta: float) -> bool:
    """Whether two spans of one kind share at least these parts of the one and of the other."""
    shared = max(0, min(one.stop, other.stop) - max(one.start, other.start))
    return (
        one.kind == other.kind
        and shared >= alpha * (one.stop - one.start)
        and shared >= beta * (other.stop - other.start)
    )


def score(
    gold: Sequence[Span], found: Sequence[Span], alpha: float = 0.8, beta: float = 0.8
) -> dict[str, Score]:
    """Scores by kind of one text, as BigCode's evaluator counts (bigcode-dataset, `pii`)."""
    kinds = {span.kind for span in [*gold, *found]}
    return {
        kind: Score(
            len(true := [span for span in gold if span.kind == kind]),
            sum(any(alike(a, b, alpha, beta) for b in found) for a in true),
            len(ours := [span for span in found if span.kind == kind]),
            sum(any(alike(a, b, alpha, beta) for a in gold) for b in ours),
        )
        for kind in sorted(kinds)
    }


def total(scores: Iterable[Score]) -> Score:
    """The sum of scores."""
    return (
        Score(*map(sum, zip(*scores, strict=True))) if (scores := list(scores)) else Score(*[0] * 4)
    )


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file, compressed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def research(path: Path, stage: Pii) -> dict[str, Score]:
    """Scores by kind over a file of presidio-research, at 90 % overlap on both sides."""
    parts = defaultdict(list)
    for row in rows(path):
        gold = [
            Span(span["start_position"], span["end_position"], ENTITIES[span["entity_type"]])
            for span in row["spans"]
            if span["entity_type"] in ENTITIES
        ]
        for kind, one in score(gold, stage.find(row["text"]), 0.9, 0.9).items():
            parts[kind].append(one)
    return {kind: total(parts[kind]) for kind in parts}


def cases(path: Path) -> dict[str, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]]:
    """By recogniser: Presidio's cases with another number of hits than ours, and all of them."""
    wrong, every = defaultdict(list), defaultdict(list)
    for row in rows(path):
        if kind := RECOGNISERS.get(row["recognizer"]):
            regions = REGIONS if kind == "phone" else ("US",)
            found = len(Pii(kinds=(kind,), regions=regions).find(row["text"]))
            every[row["recognizer"]].append(row)
            if found != row["expected_len"]:
                wrong[row["recognizer"]].append(row)
    return {name: (wrong[name], every[name]) for name in RECOGNISERS}


def is_global(row: Mapping[str, Any]) -> bool:
    """Whether a case has a global IP address among its spans: only these do we look for."""
    found = []
    for start, stop in row["expected_spans"] or []:
        try:
            address = ip_address(row["text"][start:stop].partition("/")[0])
        except ValueError:
            continue
        found.append(address.is_global)
    return any(found) or not row["expected_spans"]


def rates(texts: Iterable[str], stage: Pii) -> dict[str, float]:
    """What is found, by kind, per million words (of white space)."""
    words, counts = 0, Counter[str]()
    for text in texts:
        words += len(text.split())
        counts.update(span.kind for span in stage.find(text))
    return {"words": words, **{kind: counts[kind] / words * 1e6 for kind in DEFAULT}}


def clean(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Texts in which hardly anything should be found."""
    text = data / "text"
    yield "us-speeches", [r["text"] for f in text.glob("us-speeches/*.gz") for r in rows(f)]
    for path in sorted([*text.glob("*/*.txt.gz")]):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield f"{path.parent.name}/{path.name.partition('.')[0]}", [file.read()]
    passages = data / "pii" / "enterprise-pii" / "passages.jsonl.gz"
    yield "enterprise-pii", [row["text"] for row in rows(passages)]


def table(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Prints aligned columns."""
    cells = [list(heads), *([str(cell) for cell in line] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        first, *rest = zip(line, widths, strict=True)
        print(f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in rest), sep="  ")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path, help="the folder with pii/ and text/")
    parser.add_argument("--texts", type=Path, help="JSONL with `text`: rates on it, too")
    options = parser.parse_args()
    pii = options.data / "pii"

    lines = []
    for name in ("synth_v2", "generated_large"):
        for regions in (("US",), REGIONS):
            found = research(pii / "presidio-research" / f"{name}.jsonl.gz", Pii(regions=regions))
            for kind, one in found.items():
                if regions == ("US",) or kind == "phone":
                    more = f" ({len(regions)} regions)" if len(regions) > 1 else ""
                    shares = [f"{x:.3f}" for x in (one.recall, one.precision, one.f())]
                    lines.append((f"{name} {kind}{more}", *one, *shares))
    table(("presidio-research", "true", "hit", "found", "right", "recall", "prec.", "F2"), lines)

    lines = []
    published = cases(pii / "presidio-cases" / "cases.jsonl.gz")
    wrong, every = published["ip_recognizer"]
    published["ip_recognizer, global"] = tuple(list(filter(is_global, x)) for x in (wrong, every))
    for name, (wrong, every) in published.items():
        positive = sum(row["expected_len"] > 0 for row in every)
        missed = sum(row["expected_len"] > 0 for row in wrong)
        hits = f"{positive - missed}/{positive}"
        lines.append((name, hits, len(wrong) - missed, len(every) - positive))
    table(("presidio-cases", "hits", "false", "negatives"), lines)

    texts = list(clean(options.data))
    if options.texts:
        texts.append((options.texts.stem, [row["text"] for row in rows(options.texts)]))
    found_rates = [(name, rates(some, Pii())) for name, some in texts]
    table(
        ("per million words", "words", *DEFAULT),
        [(name, *(f"{value:.0f}" for value in found.values())) for name, found in found_rates],
    )


if __name__ == "__main__":
    main()
