"""The filter `language`: which language a document is in, by a fastText model.

What may live here: `Language` and the model it reads.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from curation import models
from curation.document import Documents
from curation.filters import cld2, languages
from curation.filters.languages import bcp47
from curation.filters.parameters import ByLanguage, Share
from curation.models import card, fasttext
from curation.models.classifier import as_line
from curation.stage import Filter, Rule, Signals
from curation.text import scripts
from curation.text.characters import table_version

#: The public model for 176 languages (Joulin et al., arXiv 1607.01759; fasttext.cc, CC-BY-SA 3.0).
LID_176 = "lid.176.ftz"


_SIGNALS = {
    "label": pa.string(),
    "score": pa.float64(),
    "script_share": pa.float64(),
    "second_label": pa.string(),
    "second_share": pa.float64(),
}


class Language(Filter):
    """Drops documents in other languages, or in no certain one (CCNet, arXiv 1911.00359, 2.3).

    The whole document is classified, as one line. Signals, null for a document without text:

    - `label` (BCP-47) and `score` (the model's probability, 0 to 1). FineWeb and CCNet keep scores
      from 0.65 and 0.5 on.
    - `script_share`: the share of the letters that are in a script in which the language `label` is
      written; null without letters, and where its scripts are not known.
    - With `second`: `second_label`, what another identifier calls the document, `und` where it does
      not know; and `second_share`, the share of the text (bytes, by CLD2) that it finds in the
      language `label`. Languages of one macrolanguage (ISO 639-3: Bosnian, Croatian and Serbian;
      Bokmål and Nynorsk; Indonesian and Malay) are one language to it. Null where it does not know
      the language at all, so that no document is dropped for its ignorance.

    A model must name some language, also of a text in one that it has never seen: lid.176 calls a
    fifth of sentences in such languages English, most of them with a low score. A second identifier
    that may say "unknown" tells them apart better than a higher `min_score`, and loses fewer
    documents (docs/quality.md).

    A model that is a directory with a card may name a normaliser in its settings: `openlid` is
    OpenLID's (lower case; no digits, no marks but those of words; single spaces). GlotLID has
    labels for what is no language: `zxx-...` (no linguistic content) and `und-...` (undetermined);
    `keep` leaves them out, None keeps them.
    """

    version: ClassVar[int] = 2
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("other_language", signal="label", not_in="keep"),
        Rule("low_score", signal="score", below="min_score"),
        Rule("wrong_script", signal="script_share", below="min_script_share"),
        Rule("second_opinion", signal="second_share", below="min_second_share"),
    )
    adds: ClassVar[Mapping[str, str]] = {"language": "label", "language_score": "score"}

    keep: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Languages kept, as BCP-47 tags that the model can give; None keeps all."""
    min_score: ByLanguage[Share] = 0.65
    """Probability (FineWeb: 0.65, arXiv 2406.17557, 3.2)."""
    min_script_share: ByLanguage[Share] = None
    """Share of letters; None: off. Ours: 0.5 does no harm (docs/quality.md)."""
    second: Literal["cld2"] | None = None
    """Another identifier that is asked, too: cld2 (`pip install 'gristmill[lid]'`)."""
    min_second_share: ByLanguage[Share] = 0.5
    """Share of the text, where there is a `second`: half of it (ours, docs/quality.md)."""
    model: str = LID_176
    """Name or path of a fastText model with labels such as `__label__de` or `__label__deu_Latn`."""
    max_chars: Annotated[int, Field(ge=1)] | None = None
    """Code points from the beginning that are looked at; None: all. Time is proportional to them;
    what changes at 4,000 and others is in docs/quality.md."""

    @model_validator(mode="after")
    def _second_is_there(self) -> Self:
        default = type(self).model_fields["min_second_share"].default
        if not self.second and self.min_second_share not in (None, default):
            raise ValueError("min_second_share: there is no second opinion; set second: cld2")
        return self

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
        """fastText's version, the table of letters, what the second opinion and normalisers are
        made of."""
        own = {"fasttext": metadata.version("fasttext-community"), "characters": table_version()}
        if models.find(self.model).is_dir():
            own["regex"] = metadata.version("regex")
        return own | (cld2.version() if self.second else {})

    def files(self) -> dict[str, Path]:
        """The model."""
        return {self.model: models.find(self.model)}

    def memory(self) -> int:
        """Bytes of the model, loaded once per process."""
        return models.size(models.find(self.model))

    def score(self, docs: Documents) -> Signals:
        """`label`, `second_label` (string), `score`, `script_share`, `second_share` (float64)."""
        model = _load(self.model)
        rows = [self._judge(model, text or "") for text in docs.text.to_pylist()]
        return {
            name: pa.array([row[place] for row in rows], kind)
            for place, (name, kind) in enumerate(_SIGNALS.items())
        }

    def _judge(self, model: _Model, text: str) -> tuple[str | float | None, ...]:
        """The values of `_SIGNALS`."""
        text = text[: self.max_chars]
        label, score = model.classify(text)
        if label is None:
            return (None,) * len(_SIGNALS)
        written = languages.scripts(label)
        script_share = scripts.share(text, written) if written else None
        second = cld2.ask(text) if self.second else None
        if second is None:
            return label, score, script_share, None, None
        return label, score, script_share, second.label, second.share(label)


class _Model:
    """A fastText model, and the BCP-47 tag of each of its labels."""

    def __init__(self, path: Path) -> None:
        file, self._normalise = _weights(path)
        self._model = fasttext.load(file)
        self._predict = self._model.f.predict  # as model.predict, without its numpy arrays
        self.tags = bcp47(self._model.labels)

    def classify(self, text: str) -> tuple[str | None, float | None]:
        """Tag and probability; None of a text in which there is nothing that the model knows."""
        line = as_line(self._normalise(text))
        if not line:
            return None, None
        for probability, label in self._predict(line + "\n", 1, 0.0, "strict"):
            return self.tags[label], min(max(probability, 0.0), 1.0)  # fastText gives 1.00003
        return None, None


def _openlid(text: str) -> str:
    """OpenLID's normaliser: `clean_line` of its `openlid_normer.py`.

    What belongs to no word (by Unicode's property Word, UTS #18) and is no space goes, and digits.
    """
    import regex  # type: ignore[import-untyped]

    line = text.strip().replace("\n", " ").lower()
    return regex.sub(r"\s\s+", " ", regex.sub(r"[^\p{Word}\p{Zs}]|\d", "", line))  # type: ignore[no-any-return]


_NORMALISERS: Mapping[str | None, Callable[[str], str]] = {None: str, "openlid": _openlid}


def _weights(path: Path) -> tuple[Path, Callable[[str], str]]:
    """The file of a model and its normaliser. Raises CardError for a directory that is not one."""
    if not path.is_dir():
        return path, str
    said = card.read(path, "lid")
    normaliser = said.settings.get("normaliser")
    if len(said.files) != 1 or normaliser not in _NORMALISERS:
        raise card.CardError(f"{path}: one file is wanted, and a normaliser of openlid or none")
    [file] = said.files
    return path / file, _NORMALISERS[normaliser]


def _load(name: str) -> _Model:
    path = models.find(name)
    return _load_once(str(path), models.digest(path))


@lru_cache(maxsize=4)
def _load_once(path: str, digest: str) -> _Model:
    return _Model(Path(path))


def _nearest(tag: str, known: Iterable[str]) -> str:
    base = re.split("[-_]", tag.lower())[0]
    candidates = {name.lower(): name for name in known}
    guess = bcp47([f"{base}_Zyyy", "und"])[f"{base}_Zyyy"]
    if guess in candidates:
        return f"; did you mean {candidates[guess]!r}?"
    near = difflib.get_close_matches(tag.lower(), candidates, n=1)
    return f"; did you mean {candidates[near[0]]!r}?" if near else "; tags are BCP-47, as en"
