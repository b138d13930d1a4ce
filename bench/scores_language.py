"""How often `language` is right, and how often it calls a language that it does not know English.

    python bench/scores_language.py DATA [--texts ENGLISH.jsonl]

DATA has the folder `langid` of labelled texts: NTREX-128 (news by sentence), UDHR2 (declarations of
human rights by paragraph), and sentences of BIG-bench, Data Prep Kit and CommonLID. "Documents" are
5, 10 or 20 consecutive lines of one language, in turn. ENGLISH.jsonl has English web pages under
the key `text`: what they lose is the price of a rule. Labels are compared as BCP-47 tags, with
Filipino as Tagalog and Bokmål as Norwegian, which lid.176 calls so.

Macro figures are over the languages of a set that the identifier knows, each with the same weight;
precision counts the mistakes on lines in those languages alone. What lies outside is the matter of
the second table: the share of lines in languages outside the model that a setting keeps as English.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curation.document import Documents
from curation.filters import cld2, stop_words
from curation.filters.language import LID_176, Language, _load
from curation.filters.languages import bcp47
from curation.models.classifier import as_line
from curation.text.view import TextView

#: lid.176's names for what the sets call otherwise.
SAME = {"fil": "tl", "nb": "no"}
#: Thresholds of the second table: score, share by the second opinion, share of letters.
SETTINGS = [
    *[(score, second, None) for second in (None, 0.5) for score in (0.0, 0.2, 0.3, 0.5, 0.65, 0.8)],
    *[(score, None, 0.5) for score in (0.0, 0.5, 0.65)],
    (0.3, 0.5, 0.5),
]


@dataclass(frozen=True)
class Scored:
    """One text: the language it is in, and what the stage says of it."""

    text: str
    truth: str
    label: str | None
    score: float
    second_label: str | None
    second_share: float | None
    script_share: float | None

    def kept_as(
        self, score: float, second: float | None = None, script: float | None = None
    ) -> str | None:
        """The label, where the text is above the thresholds; as the stage, null drops nothing."""
        low_second = second is not None and _below(self.second_share, second)
        low_script = script is not None and _below(self.script_share, script)
        return None if self.score < score or low_second or low_script else self.label


def _below(value: float | None, threshold: float) -> bool:
    return value is not None and value < threshold


def score(pairs: Sequence[tuple[str, str]], max_chars: int | None = None) -> list[Scored]:
    """Of pairs of a language and a text; those without text are left out."""
    texts = pa.array([text for _, text in pairs], pa.large_string())
    stage = Language(keep=None, min_score=None, second="cld2", max_chars=max_chars)
    signals = {n: v.to_pylist() for n, v in stage.score(Documents({"text": texts})).items()}
    names = ("label", "score", "second_label", "second_share", "script_share")
    columns = zip(pairs, *(signals[name] for name in names), strict=True)
    return [Scored(text, truth, *said) for (truth, text), *said in columns if said[0]]


# --- the sets -------------------------------------------------------------------------------------


def tag(code: str) -> str:
    """The tag of a set's code: `srp-Cyrl` and `aka_fante` name more than a language."""
    [found] = bcp47([f"{code.replace('_', '-').split('-')[0]}_Zyyy"]).values()
    return SAME.get(found, found)


def lines(path: Path, text: int) -> Iterator[tuple[str, str]]:
    """Language and text of each line of a table without quotes; `text` is the column."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as rows:
        for row in rows:
            cells = row.rstrip("\n").split("\t", text)
            yield cells[0], cells[text]


def documents(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Of the lines of each code: 5, 10, 20, 5, ... of them at a time; a rest below 5 is left."""
    for code, group in groupby(pairs, key=lambda pair: pair[0]):
        texts, start, turn = [text for _, text in group], 0, 0
        while start + 5 <= len(texts):
            size = (5, 10, 20)[turn % 3]
            yield code, "\n".join(texts[start : start + size])
            start, turn = start + size, turn + 1


def labelled(data: Path, every: int = 1) -> dict[str, list[Scored]]:
    """The sets by name, by sentence and as documents; of each the `every`th text."""
    ntrex = list(lines(data / "langid/ntrex128/ntrex.tsv.gz", 3))[1:]
    udhr = list(lines(data / "langid/udhr2/udhr2.tsv.gz", 1))
    found = {}
    for name, pairs in (("NTREX", ntrex), ("UDHR2", udhr)):
        for kind, some in (("lines", pairs), ("documents", list(documents(pairs)))):
            found[f"{name} {kind}"] = score([(tag(code), text) for code, text in some[::every]])
    return found


# --- figures --------------------------------------------------------------------------------------


def accuracy(
    scored: Sequence[Scored], known: set[str], said: Callable[[Scored], str | None]
) -> str:
    """Languages, texts, macro-F1, macro recall and micro accuracy over the known languages."""
    some = [one for one in scored if one.truth in known]
    pairs = Counter((one.truth, said(one)) for one in some)
    truths, claims = Counter(), Counter()  # type: ignore[var-annotated]
    for (truth, claim), count in pairs.items():
        truths[truth] += count
        claims[claim] += count
    right = {language: pairs[language, language] for language in truths}
    f1 = sum(2 * right[t] / (truths[t] + claims[t]) for t in truths) / len(truths)
    recall = sum(right[t] / truths[t] for t in truths) / len(truths)
    micro = sum(right.values()) / len(some)
    return f"{len(truths):9}{len(some):8}{f1:10.4f}{recall:10.4f}{micro:10.4f}"


def share(scored: Sequence[Scored], language: str, *thresholds: float | None) -> str:
    """Percent of the texts that are kept as in the language."""
    kept = sum(one.kept_as(*thresholds) == language for one in scored)  # type: ignore[arg-type]
    return f"{100 * kept / len(scored):8.2f}" if scored else f"{'-':>8}"


def keeping(scored: Sequence[Scored], languages: set[str], *thresholds: float | None) -> str:
    """`keep: [x]` for each of some languages in turn: mean recall, and mean precision over all
    texts, those in languages outside the model among them."""
    kept, right, truths = Counter(), Counter(), Counter()  # type: ignore[var-annotated]
    for one in scored:
        label = one.kept_as(*thresholds)  # type: ignore[arg-type]
        truths[one.truth] += 1
        kept[label] += 1
        right[label] += label == one.truth
    present = [language for language in languages if truths[language]]
    recall = sum(right[x] / truths[x] for x in present) / len(present)
    precision = sum(right[x] / kept[x] if kept[x] else 1.0 for x in present) / len(present)
    return f"{100 * recall:8.2f}{100 * precision:8.2f}"


# --- other signals --------------------------------------------------------------------------------


def alternatives(scored: Sequence[Scored]) -> Iterator[dict[str, float]]:
    """Signals that were weighed against each other, of the texts that are called English."""
    model, english = _load(LID_176), [one for one in scored if one.label == "en"]
    view = TextView(pa.array([one.text for one in english], pa.large_string()))
    functional = view.vocabulary_counts(stop_words.of_language("en"), "unicode", False)
    for one, stops, words in zip(english, functional, view.word_counts(), strict=True):
        top = [p for p, _ in model._predict(as_line(one.text) + "\n", 5, 0.0, "strict")]
        votes = [(*model.classify(line), len(line)) for line in one.text.splitlines()]
        letters = sum(size for _, _, size in votes)
        yield {
            "score": one.score,
            "margin to the next": top[0] - top[1],
            "entropy of five (negative)": sum(p * math.log(p) for p in top if p > 0),
            "lines, by length": sum(s for label, _, s in votes if label == "en") / letters,
            "lines, by length and score": sum(
                (p or 0) * s for label, p, s in votes if label == "en"
            )
            / letters,
            "stop words": stops / max(words, 1),
            "second_share": one.second_share or 0.0,
        }


def curve(title: str, true: Sequence[Scored], outside: Sequence[Scored]) -> None:
    """False English at the threshold at which a signal loses a share of true English."""
    losses = (0.002, 0.005, 0.01, 0.02)
    print(f"\n{title}: of {len(outside)} texts in other languages, kept as English (%), where so")
    print(f"much of {len(true)} true ones called English is lost (threshold)")
    print(f"{'':28}" + "".join(f"{loss:16.1%}" for loss in losses))
    good, bad = list(alternatives(true)), list(alternatives(outside))
    for name in good[0]:
        values, row = sorted(one[name] for one in good), ""
        for loss in losses:
            threshold = values[int(loss * len(values))]
            false = sum(one[name] >= threshold for one in bad) / len(outside)
            row += f"{100 * false:8.2f} ({threshold:5.2f})"
        print(f"{name:28}{row}")


# --- the report -----------------------------------------------------------------------------------


def identifiers(sets: dict[str, list[Scored]], known: set[str], both: set[str]) -> None:
    print(f"\n{'identifier':32}{'langs':>9}{'texts':>8}{'macro-F1':>10}{'recall':>10}{'micro':>10}")
    second = {name for name in (SAME.get(t, t) for t in _second_tags())}
    for name, scored in sets.items():
        print(name)
        for title, languages, said in (
            ("lid.176.ftz", known, lambda one: one.label),
            ("pycld2", second, lambda one: _plain(one.second_label)),
            ("lid.176.ftz, languages of both", both, lambda one: one.label),
            ("pycld2, languages of both", both, lambda one: _plain(one.second_label)),
        ):
            print(f"  {title:30}{accuracy(scored, languages, said)}")


def _plain(label: str | None) -> str | None:
    return label and label.partition("-")[0]


def _second_tags() -> set[str]:
    import pycld2

    codes = dict(pycld2.LANGUAGES)
    return {cld2._tag(codes[name]).partition("-")[0] for name in pycld2.DETECTED_LANGUAGES}


def english(sets: dict[str, list[Scored]], known: set[str], pages: list[Scored]) -> None:
    outside = {n: [one for one in s if one.truth not in known] for n, s in sets.items()}
    true = {"NTREX lines": [one for one in sets["NTREX lines"] if one.truth == "en"]}
    true |= {"pages": pages} if pages else {}
    print("\nkept as English (%): texts in languages outside of lid.176, and English ones")
    names = [name.replace("documents", "docs") for name in (*outside, *true)]
    print(f"{'score second script':22}" + "".join(f"{name:>17}" for name in names))
    sizes = [len(some) for some in (*outside.values(), *true.values())]
    print(f"{'texts':22}" + "".join(f"{size:17}" for size in sizes))
    for setting in SETTINGS:
        row = "".join(
            f"{share(s, 'en', *setting):>17}" for s in (*outside.values(), *true.values())
        )
        print("".join(f"{'-' if t is None else t:>6}" for t in setting) + " " * 4 + row)


def others(sets: dict[str, list[Scored]], both: set[str]) -> None:
    print(
        "\nkeep: [x] for each language of both identifiers but English: mean recall and precision"
    )
    print(f"{'score second script':22}" + "".join(f"{name:>18}" for name in sets))
    for setting in SETTINGS:
        row = "".join(f"{keeping(s, both - {'en'}, *setting):>18}" for s in sets.values())
        print("".join(f"{'-' if t is None else t:>6}" for t in setting) + " " * 4 + row)
    losing = Counter[str]()
    for one in sets["NTREX documents"]:
        if one.label == one.truth in both and one.kept_as(0.0, 0.5) is None:
            losing[one.truth] += 1
    sizes = Counter(one.truth for one in sets["NTREX documents"])
    worst = ", ".join(f"{x} {n} of {sizes[x]}" for x, n in losing.most_common(8))
    print(f"NTREX documents with the right label that the second opinion drops: {worst}")
    for name, scored in sets.items():
        other = [one for one in scored if _below(one.script_share, 0.5)]
        wrong = Counter(f"{one.truth} as {one.label}" for one in other if one.label != one.truth)
        right = sum(one.label == one.truth for one in scored)
        print(
            f"{name} in another script: {len(other) - wrong.total()} of {right} with the right "
            f"label, {wrong.total()} others: {', '.join(pair for pair, _ in wrong.most_common(6))}"
        )


def beginnings(pages: Sequence[Scored]) -> None:
    """What looking at the beginning alone (`max_chars`) changes, on English pages."""
    print("\npages (%) with the same label; with another decision at score, and second opinion")
    print(f"{'max_chars':10}{'same label':>12}{'0.65':>10}{'0.3':>10}{'0.3, 0.5':>10}")
    for size in (500, 1_000, 2_000, 4_000, 10_000):
        parts = score([(one.truth, one.text) for one in pages], size)
        pairs = list(zip(pages, parts, strict=True))
        row = f"{size:10}{100 * sum(a.label == b.label for a, b in pairs) / len(pages):12.2f}"
        for setting in ((0.65, None), (0.3, None), (0.3, 0.5)):
            other = sum(
                (a.kept_as(*setting) == "en") != (b.kept_as(*setting) == "en") for a, b in pairs
            )
            row += f"{100 * other / len(pages):10.2f}"
        print(row)


def agreement(data: Path) -> None:
    """With another model's labels (Data Prep Kit: that of NLLB), and with a few sentences'."""
    folder = data / "langid/dpk-lang_id/expected"
    for file in sorted(folder.glob("*.parquet")):
        rows = pq.read_table(file).to_pylist()
        found = score([(bcp47([row["ft_lang"]])[row["ft_lang"]], row["text"]) for row in rows])
        same = sum(one.label == one.truth.partition("-")[0] for one in found)
        sure = [one for one in found if one.score >= 0.65]
        agreed = sum(one.label == one.truth.partition("-")[0] for one in sure)
        print(
            f"Data Prep Kit, {file.stem}: the same label for {same} of {len(found)} mail names; "
            f"of those with a score from 0.65 on for {agreed} of {len(sure)}"
        )
    with open(data / "langid/commonlid-tiny/tiny_lid.jsonl", encoding="utf-8") as file_:
        tiny = [json.loads(line) for line in file_]
    found = score([(tag(row["iso639_3"]), row["text"]) for row in tiny])
    print(f"CommonLID, tiny: {sum(one.label == one.truth for one in found)} of {len(found)} right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=Path, help="English pages: JSONL with the key text")
    options = parser.parse_args()
    known = {SAME.get(t, t) for t in _load(LID_176).tags.values()}
    both = known & {SAME.get(t, t) for t in _second_tags()}
    sets = labelled(options.data)
    pages = []
    if options.texts:
        with open(options.texts, encoding="utf-8") as file:
            pages = score([("en", json.loads(line)["text"]) for line in file])
    identifiers(sets, known, both)
    sentences = lines(options.data / "langid/bigbench-lid/sentences.tsv.gz", 1)
    rare = score([("-", text) for name, text in sentences if "English" not in name])
    english(sets | {"BIG-bench lines": rare}, known, pages)
    others(sets, both)
    named = [one for name in sets if "documents" in name for one in sets[name]]
    if pages:
        beginnings(pages)
        curve("documents", pages, [one for one in named if one.truth not in known])
    news = sets["NTREX lines"]
    curve(
        "NTREX lines",
        [one for one in news if one.truth == "en"],
        [one for one in news if one.truth not in known],
    )
    print()
    agreement(options.data)


if __name__ == "__main__":
    main()
