"""The filter `language`: which language a document is in, by a fastText model.

What may live here: `Language`, the model it reads, and the mapping of model labels to BCP-47.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, ClassVar, Self

import pyarrow as pa
from pydantic import Field, model_validator

from curation import models
from curation.document import Documents
from curation.filters.parameters import ByLanguage, Share
from curation.stage import Filter, Rule, Signals

#: The public model for 176 languages (Joulin et al., arXiv 1607.01759; fasttext.cc, CC-BY-SA 3.0).
LID_176 = "lid.176.ftz"


class Language(Filter):
    """Drops documents in other languages, or in no certain one (CCNet, arXiv 1911.00359, 2.3).

    The whole document is classified, as one line. Signals: `label` (BCP-47) and `score` (the
    model's probability, 0 to 1), both null for a document without text. FineWeb and CCNet keep
    scores from 0.65 and 0.5 on.
    """

    version: ClassVar[int] = 1
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("other_language", signal="label", not_in="keep"),
        Rule("low_score", signal="score", below="min_score"),
    )
    adds: ClassVar[Mapping[str, str]] = {"language": "label", "language_score": "score"}

    keep: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Languages kept, as BCP-47 tags that the model can give; None keeps all."""
    min_score: ByLanguage[Share] = 0.65
    """Probability (FineWeb: 0.65, arXiv 2406.17557, 3.2)."""
    model: str = LID_176
    """Name or path of a fastText model with labels such as `__label__de` or `__label__deu_Latn`."""

    @model_validator(mode="after")
    def _keep_what_the_model_knows(self) -> Self:
        if self.keep is None:
            return self
        if not self.keep:
            raise ValueError("keep: an empty list drops every document; null keeps all languages")
        try:
            known = set(_load(self.model).tags.values())
        except models.ModelNotFound:
            return self  # said by whoever needs the model
        for tag in self.keep:
            if tag not in known:
                hint = _nearest(tag, known)
                raise ValueError(f"keep: {self.model} has no language {tag!r}{hint}")
        return self

    def depends(self) -> dict[str, str]:
        """fastText's version."""
        return {"fasttext": metadata.version("fasttext-community")}

    def files(self) -> dict[str, Path]:
        """The model."""
        return {self.model: models.find(self.model)}

    def memory(self) -> int:
        """Bytes of the model, loaded once per process."""
        return models.size(models.find(self.model))

    def score(self, docs: Documents) -> Signals:
        """The most probable language of each document and its probability."""
        model = _load(self.model)
        labels: list[str | None] = []
        scores: list[float | None] = []
        for text in docs.text.to_pylist():
            label, score = model.classify(text)
            labels.append(label)
            scores.append(score)
        return {"label": pa.array(labels, pa.string()), "score": pa.array(scores, pa.float64())}


class _Model:
    """A fastText model, and the BCP-47 tag of each of its labels."""

    def __init__(self, path: str) -> None:
        from fasttext.FastText import load_model

        self._model = load_model(path)
        self._predict = self._model.f.predict  # as model.predict, without its numpy arrays
        self.tags = bcp47(self._model.labels)

    def classify(self, text: str | None) -> tuple[str | None, float | None]:
        line = _as_line(text or "")
        if not line:
            return None, None
        [(probability, label)] = self._predict(line + "\n", 1, 0.0, "strict")
        return self.tags[label], min(max(probability, 0.0), 1.0)  # fastText gives 1.00003


def _as_line(text: str) -> str:
    """The text as fastText must be given it: it stops at a line's end, and at a word `</s>`."""
    line = " ".join(text.splitlines())
    return line.replace("</s>", " ").strip() if "</s>" in line else line.strip()


def _load(name: str) -> _Model:
    path = models.find(name)
    return _load_once(str(path), models.digest(path))


@lru_cache(maxsize=4)
def _load_once(path: str, digest: str) -> _Model:
    return _Model(path)


def _nearest(tag: str, known: Iterable[str]) -> str:
    base = re.split("[-_]", tag.lower())[0]
    candidates = {name.lower(): name for name in known}
    guess = bcp47([f"{base}_Zyyy", "und"])[f"{base}_Zyyy"]
    if guess in candidates:
        return f"; did you mean {candidates[guess]!r}?"
    near = difflib.get_close_matches(tag.lower(), candidates, n=1)
    return f"; did you mean {candidates[near[0]]!r}?" if near else "; tags are BCP-47, as en"


# --- labels -------------------------------------------------------------------------------------


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


#: ISO 639-3 -> ISO 639-1, which BCP-47 prefers (RFC 5646, 2.2.1).
_TWO_LETTERS = _pairs(
    """
    aar:aa abk:ab afr:af aka:ak amh:am ara:ar arg:an asm:as ava:av ave:ae aym:ay aze:az bak:ba
    bam:bm bel:be ben:bn bis:bi bod:bo bos:bs bre:br bul:bg cat:ca ces:cs cha:ch che:ce chu:cu
    chv:cv cor:kw cos:co cre:cr cym:cy dan:da deu:de div:dv dzo:dz ell:el eng:en epo:eo est:et
    eus:eu ewe:ee fao:fo fas:fa fij:fj fin:fi fra:fr fry:fy ful:ff gla:gd gle:ga glg:gl glv:gv
    grn:gn guj:gu hat:ht hau:ha hbs:sh heb:he her:hz hin:hi hmo:ho hrv:hr hun:hu hye:hy ibo:ig
    ido:io iii:ii iku:iu ile:ie ina:ia ind:id ipk:ik isl:is ita:it jav:jv jpn:ja kal:kl kan:kn
    kas:ks kat:ka kau:kr kaz:kk khm:km kik:ki kin:rw kir:ky kom:kv kon:kg kor:ko kua:kj kur:ku
    lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg mah:mh mal:ml mar:mr mkd:mk
    mlg:mg mlt:mt mon:mn mri:mi msa:ms mya:my nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nld:nl
    nno:nn nob:nb nor:no nya:ny oci:oc oji:oj ori:or orm:om oss:os pan:pa pli:pi pol:pl por:pt
    pus:ps que:qu roh:rm ron:ro run:rn rus:ru sag:sg san:sa sin:si slk:sk slv:sl sme:se smo:sm
    sna:sn snd:sd som:so sot:st spa:es sqi:sq srd:sc srp:sr ssw:ss sun:su swa:sw swe:sv tah:ty
    tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti ton:to tsn:tn tso:ts tuk:tk tur:tr twi:tw
    uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh yid:yi yor:yo zha:za
    zho:zh zul:zu
    """
)
#: The language of a macrolanguage that models name instead of it -> the macrolanguage's tag, which
#: CLDR prefers for its predominant language.
_PREDOMINANT = _pairs(
    """
    arb:ar als:sq ayr:ay azj:az cmn:zh ekk:et fuv:ff gaz:om khk:mn kmr:ku lvs:lv npi:ne ory:or
    pbt:ps pes:fa plt:mg quy:qu swh:sw uzn:uz ydd:yi zsm:ms
    """
)
#: Wikipedia's codes in lid.176 that stand for another language in ISO 639.
_WIKIPEDIA = {"als": "gsw"}  # Alemannic; ISO 639-3 als is Tosk Albanian


def bcp47(labels: Iterable[str]) -> dict[str, str]:
    """Tags of all labels of one model: `__label__en` -> `en`, `deu_Latn` -> `de`.

    The script is named only where the model has several of one language: `zh-Hans` and `zh-Hant`.
    """
    parts: dict[str, tuple[str, str]] = {}
    scripts: defaultdict[str, set[str]] = defaultdict(set)
    for label in labels:
        language, _, script = label.removeprefix("__label__").replace("-", "_").partition("_")
        if not script:
            language = _WIKIPEDIA.get(language, language)
        language = _PREDOMINANT.get(language) or _TWO_LETTERS.get(language, language)
        parts[label] = (language, script)
        scripts[language].add(script)
    return {
        label: f"{language}-{script}" if script and len(scripts[language]) > 1 else language
        for label, (language, script) in parts.items()
    }
