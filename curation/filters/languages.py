"""What is known of languages: their tags, their macrolanguages, the scripts they are written in.

What may live here: facts of ISO 639-3, BCP-47 and CLDR as tables, the mapping of models' labels to
tags, and what follows from a tag.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


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


#: Languages that macrolanguages encompass (ISO 639-3) -> the macrolanguage's tag, for the languages
#: that lid.176 and CLD2 tell apart. Filipino is the standard form of Tagalog (CLDR: fil, alias tl).
_MACROLANGUAGES = _pairs(
    """
    arz:ar azb:az bs:sh hr:sh sr:sh bxr:bua diq:zza dty:ne fil:tl gom:kok id:ms min:ms
    nb:no nn:no wuu:zh yue:zh
    """
)

#: Scripts in which languages are written (CLDR, supplementalData.xml, languageData, primary and
#: secondary ones), for the languages of lid.176 and others that are not written in Latin script
#: alone.
_SCRIPTS = {
    language: tuple(scripts.split("+"))
    for group in """
        Arab ar arz ckb fa lrc mzn pnb ps ur
        Arab+Cyrl+Latn ug
        Arab+Deva sd ks
        Arab+Latn azb ku
        Armn hy
        Beng as bn bpy
        Cher chr
        Cyrl av ba be bg bxr ce cv krc kv lez mhr mk mrj myv os ru rue sah tyv udm uk xal
        Cyrl+Arab+Latn kk ky tg
        Cyrl+Latn sr tt
        Cyrl+Mong mn
        Deva bh bho dty hi mai mr ne new sa
        Deva+Latn gom hif
        Ethi am ti
        Geor ka xmf
        Grek el
        Gujr gu
        Guru+Arab pa
        Hang+Hani ko
        Hani wuu yue zh
        Hani+Hira+Kana ja
        Hebr he yi
        Khmr km
        Knda kn
        Laoo lo
        Latn af an ast bar bcl br ca cbk ceb co cs cy da de dsb eml en eo es et eu fi fr frr fy ga
        Latn gd gl gn gsw gv hr hsb ht hu ia id ie ilo io is it jbo kw la lb li lmo lt lv mg min mt
        Latn mwl nah nap nds nl nn no oc pam pfl pl pms pt qu rm ro sc scn sco sk sl so sq su sv sw
        Latn tl tr vec vep vi vls vo wa war yo
        Latn+Arab diq ms
        Latn+Cyrl bs sh
        Latn+Cyrl+Arab az tk uz
        Latn+Java jv
        Mlym ml
        Mymr my
        Orya or
        Sinh si
        Taml ta
        Telu te
        Thaa dv
        Thai th
        Tibt bo dz
    """.strip().splitlines()
    for scripts, *languages in [group.split()]
    for language in languages
}
#: Names of ISO 15924 that stand for several scripts, or for a variant of one.
_COMPOUND = {
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Hrkt": ("Hira", "Kana"),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
}


def macrolanguage(tag: str) -> str:
    """The language or macrolanguage that a tag belongs to: `hr` -> `sh`, `zh-Hant` -> `zh`."""
    language = tag.partition("-")[0]
    return _MACROLANGUAGES.get(language, language)


def scripts(tag: str) -> tuple[str, ...]:
    """The scripts (ISO 15924) in which a language is written; empty where they are not known.

    That which the tag names, else those of CLDR.
    """
    language, _, script = tag.partition("-")
    if len(script) == 4:
        return _COMPOUND.get(script, (script,))
    return _SCRIPTS.get(language, ())


def bcp47(labels: Iterable[str]) -> dict[str, str]:
    """Tags of all labels of one model: `__label__en` -> `en`, `deu_Latn` -> `de`.

    The script is named only where the model has several of one language: `zh-Hans` and `zh-Hant`;
    and not where it is the only one in which the language is otherwise written: GlotLID's
    `arb_Arab` is `ar`, its `arb_Latn` is `ar-Latn` (as BCP-47 suppresses scripts, RFC 5646, 4.1).
    """
    parts: dict[str, tuple[str, str]] = {}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for label in labels:
        language, _, script = label.removeprefix("__label__").replace("-", "_").partition("_")
        if not script:
            language = _WIKIPEDIA.get(language, language)
        language = _PREDOMINANT.get(language) or _TWO_LETTERS.get(language, language)
        parts[label] = (language, script)
        found[language].add(script)
    return {
        label: f"{language}-{script}"
        if script and len(found[language]) > 1 and _SCRIPTS.get(language) != (script,)
        else language
        for label, (language, script) in parts.items()
    }
