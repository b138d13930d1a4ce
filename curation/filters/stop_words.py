"""Stop words of many languages.

What may live here: the door to the package that has the lists.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata

from curation.text import reference

#: The name of the collection (stopwords-iso: 57 languages), and of the package that has it.
STOPWORDSISO = "stopwordsiso"

#: Gopher's list has as many (Rae et al. 2021, A.1.1).
FEWEST = 8

#: Languages under the tag of the macrolanguage that has their list.
_MACROLANGUAGES = {"nb": "no", "nn": "no"}


def version() -> str:
    """Of the package: a new one may have other lists."""
    return metadata.version(STOPWORDSISO)


@lru_cache(maxsize=256)
def of_language(tag: str) -> tuple[str, ...]:
    """The stop words of a language (BCP-47), empty where there is no list.

    Entries that are not single words of the text view are left out: most of Chinese's and
    Japanese's, whose letters are words to it. Fewer than `FEWEST` are no list: Thai has four.
    """
    import stopwordsiso  # reads its lists when imported

    language = tag.split("-")[0]
    words = stopwordsiso.stopwords(_MACROLANGUAGES.get(language, language))
    single = tuple(w for w in sorted(words) if [f.text for f in reference.words(w)] == [w])
    return single if len(single) >= FEWEST else ()
