"""Words, lines and sentences as datatrove's filters see them, so that decisions can be compared.

What may live here: the facts behind them (a class per character, spaCy's special cases), kernels
and their plain reference. `curation.text.view` is the door; its own definitions are not these.

**Words** are the tokens of spaCy's blank English pipeline (spaCy 3.8), which datatrove asks for:
runs without white space, from which punctuation, quotes, currency and symbols are cut at both ends,
and which are divided at some marks inside; contractions and a few hundred other special cases are
divided or kept whole as a table says. Punctuation marks are words. The same rules are applied to
every language, where datatrove has a tokenizer per language.

**Lines** and **paragraphs** are those of the filter that counts them: see `kernels`.

`bench/datatrove_words.py` holds all this against spaCy itself.
"""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Bits of a character (spaCy's `lang.char_classes` and `lang.punctuation`, but for the last ones).
SPACE = 1 << 0  # `str.isspace`
PREFIX = 1 << 1  # cut from the front of a word
SUFFIX = 1 << 2  # cut from its end
ICON = 1 << 3  # divides a word wherever it stands
ALPHA = 1 << 4
LOWER = 1 << 5  # lower case, or of a script without case
UPPER = 1 << 6  # upper case, or of a script without case
QUOTE = 1 << 7
STOPPED = 1 << 8  # a full stop at the end is cut off after it
DIVIDING = 1 << 9  # may divide a word, by what stands beside it
SYMBOL = 1 << 10  # datatrove's PUNCTUATION_SET
TERMINAL = 1 << 11  # datatrove's TERMINAL_PUNCTUATION
PUNCT = 1 << 12  # categories P*
SENTENCE_END = 1 << 13  # spaCy's Sentencizer
LETTER = 1 << 14  # `str.isalpha`
HOST = 1 << 15  # may begin and end a label of a host name
DIGIT = 1 << 16  # 0 to 9
SCHEME = 1 << 17  # `\\w` of Python: may stand in the scheme of an address

# Bits of the flags of a word; the first is `characters.ALPHABETIC`.
SYMBOLS_ONLY = 2
PUNCT_ONLY = 4
ENDS_SENTENCE = 8

#: UTF-8 bytes of the longest special case or unit: what is longer is never looked up.
LONGEST_CASE = 32

_PATH = Path(__file__).with_name("characters.txt")


@cache
def table() -> NDArray[np.uint32]:
    """The bits of every code point: uint32[0x110000], read only."""
    entries = np.zeros(0x110000, dtype=np.uint32)
    for line in _PATH.read_text(encoding="ascii").splitlines():
        run, bits = line.split()
        first, last = (int(bound, 16) for bound in run.split(".."))
        entries[first : last + 1] = int(bits, 16)
    entries.flags.writeable = False
    return entries


@cache
def version() -> str:
    """Names what decides words: the characters and the special cases."""
    content = _PATH.read_bytes() + repr(sorted(special_cases().items())).encode()
    return hashlib.blake2b(content + repr(sorted(units())).encode(), digest_size=8).hexdigest()


def units() -> frozenset[str]:
    """What is cut off after a digit at the end of a word: units, currencies, a plus sign."""
    metric = "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft"
    other = "kg g mg µg t lb oz m/s km/h kmh mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K %"
    cyrillic = (
        "км км² км³ м м² м³ дм дм² дм³ см см² см³ мм мм² мм³ нм кг г мг м/с км/ч кПа Па мбар "
        "Кб КБ кб Мб МБ мб Гб ГБ гб Тб ТБ тбكم"  # the last two are one entry in the original
    )
    arabic = "كم² كم³ م م² م³ سم سم² سم³ مم مم² مم³ كم غرام جرام جم كغ ملغ كوب اكواب"
    signs = "$£€¥฿₽﷼₴₠₡₢₣₤₥₦₧₨₩₪₫€₭₮₯₰₱₲₳₴₵₶₷₸₹₺₻₼₽₾₿+"
    words = " ".join((metric, other, cyrillic, arabic)).split()
    return frozenset([*words, *signs, "US$", "C$", "A$"])


@cache
def special_cases() -> dict[str, tuple[str, ...]]:
    """Words that spaCy's English tokenizer knows by heart, and their pieces."""
    cases: dict[str, tuple[str, ...]] = {}

    def add(pieces: str) -> None:
        """A case, its pieces divided by '|'; also with typographic apostrophes."""
        for text in {pieces, pieces.replace("'", "\u2019")}:
            cases[text.replace("|", "")] = tuple(text.split("|"))

    def both(words: str) -> list[str]:
        return [form for word in words.split() for form in (word, word.title())]

    def contract(words: str, *endings: str) -> None:
        """Words with endings, with their apostrophes and (but for '"') without."""
        for word, ending in product(both(words), endings):
            add(f"{word}|{ending}")
            add(f"{word}|{ending}".replace("'", ""))

    contract("i you he she it we they", "'ll", "'ll|'ve", "'d", "'d|'ve")
    contract("i", "'m", "'m|a")
    contract("i you we they", "'ve")
    contract("you we they", "'re")
    contract("he she it", "'s")
    asking, pointing = "who what when where why how there", "that this"
    contract(f"{asking} {pointing} these those", "'ll", "'ll|'ve", "'d", "'d|'ve")
    contract(f"{asking} {pointing}", "'s")
    contract(f"{asking} these those", "'re", "'ve")
    verbs = "ca could do does did had may might must need ought sha should wo would"
    contract(verbs, "n't", "n't|'ve")
    contract("could might must should would", "'ve")
    contract("ai are is was were have has dare", "n't")
    for word in both("doin goin nothin nuthin ol somethin lovin havin"):
        add(word)
        add(f"{word}'")
    for word in ("em", "ll", "nuff"):
        add(word)
        add(f"'{word}")
    for hour, half in product(range(1, 13), ("a.m.", "am", "p.m.", "pm")):
        add(f"{hour}|{half}")
    for word in ("y'|all", "y|all", "c'm|on", "C'm|on"):
        add(word)
    for word in both("not"):
        add(f"{word}|'ve")
        add(f"{word}|ve")
    for word in both("can|not gon|na got|ta let|'s how|'d|'y"):
        add(word[0] + word[1:].lower())
    for word in _WHOLE.split():
        for text in (word, word.replace("'", "\u2019")):
            cases[text] = (text,)
    for letter in "abcdefghijklmnopqrstuvwxyzäöü":
        add(f"{letter}.")
    for unit in "cfkCFK":
        add(f"°|{unit}|.")
    for word in both("ill its hell shell shed were well whore"):
        cases.pop(word, None)
    return cases


#: Kept whole: abbreviations (United States, months, titles), contractions, emoticons.
_WHOLE = r"""
    'S 's ‘S ‘s 're 'd 'Cause 'cause 'cos 'Cos 'coz 'Coz 'cuz 'Cuz 'bout and/or w/o ma'am Ma'am
    o'clock O'clock Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia.
    Id. Ill. Ind. Jan. Jul. Jun. Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J.
    N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis. a.m.
    Adm. Bros. co. Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. i.e. I.e. I.E. Inc. Jr. Ltd. Md.
    Messrs. Mo. Mont. Mr. Mrs. Ms. p.m. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s. — ' '' \") \t \n
    <space> C++
    :) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8 ;) ;-) (;
    (-; :( :-( :(( :-(( :((( :-((( ): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[ :1 :P
    :-P :p :-p :O :-O :o :-o :0 :-0 :() >:o :* :-* :3 :-3 =3 :> :-> :X :-X :x :-x :D :-D ;D ;-D =D
    xD XD xDD XDD 8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< ._. ;_; -_- -__- v.v V.V v_v V_V o_o o_O O_o O_O
    0_o o_0 0_0 o.O O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 (^_^) (-_-) (._.) (>_<) (*_*) (¬_¬)
    ಠ_ಠ ಠ︵ಠ (ಠ_ಠ) ¯\(ツ)/¯ (╯°□°）╯︵┻━┻ ><(((*>
"""
