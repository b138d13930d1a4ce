"""In which of Unicode's scripts the letters of a text are.

What may live here: the table of scripts and counting by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from curation.text import characters

#: Letters (as `curation.text.characters` has them) by script, named as in ISO 15924: runs of code
#: points between which no other script has letters (Unicode 17.0, Scripts.txt). So the few letters
#: in a run that all scripts share count to it; the others (mathematical ones, say) to none.
_RUNS = """
    Latn 41-2E4 1D00-1D25 1D2C-1D5C 1D62-1D65 1D6B-1D77 1D79-1DBE 1E00-1EFF 2071-209C 212A-2184
    2C60-2C7F A722-A7FF AB30-AB64 AB66-AB69 FB00-FB06 FF21-FF5A 10780-107BA 1DF00-1DF1E Grek 370-3E1
    3F0-3FF 1D26-1D2A 1D5D-1D61 1D66-1D6A 1DBF 1F00-1FFC 2126 AB65 Copt 3E2-3EF 2C80-2CF3 Cyrl
    400-52F 1C80-1C88 1D2B 1D78 A640-A69D Armn 531-588 FB13-FB17 Hebr 5D0-5F2 FB1D-FB4F Arab 620-6FF
    750-77F 870-8C9 FB50-FEFC 1EE00-1EEBB Syrc 710-74F 860-86A Thaa 780-7B1 Nkoo 7CA-7FA Samr
    800-828 Mand 840-858 Deva 904-97F A8F2-A8FE Beng 980-9FC Guru A05-A74 Gujr A85-AF9 Orya B05-B71
    Taml B83-BD0 Telu C05-C61 Knda C80-CF2 Mlym D04-D7F Sinh D85-DC6 Thai E01-E46 Laoo E81-EDF Tibt
    F00-F8C Mymr 1000-108E A9E0-A9FE AA60-AA7F Geor 10A0-10FF 1C90-1CBF 2D00-2D2D Hang 1100-11FF
    3131-318E A960-A97C AC00-D7FB FFA0-FFDC Ethi 1200-138F 2D80-2DDE AB01-AB2E 1E7E0-1E7FE Cher
    13A0-13FD AB70-ABBF Cans 1401-167F 18B0-18F5 11AB0-11ABF Ogam 1681-169A Runr 16A0-16F8 Tglg
    1700-171F Hano 1720-1731 Buhd 1740-1751 Tagb 1760-1770 Khmr 1780-17DC Mong 1820-18AA Limb
    1900-191E Tale 1950-1974 Talu 1980-19C9 Bugi 1A00-1A16 Lana 1A20-1AA7 Bali 1B05-1B4C Sund
    1B83-1BBF Batk 1BC0-1BE5 Lepc 1C00-1C4F Olck 1C5A-1C7D Glag 2C00-2C5F Tfng 2D30-2D6F Hani
    3005-303B 3400-9FFF F900-FAD9 16FE3 20000-3134A Hira 3041-309F 1B001-1B11F 1B150-1B152 Kana
    30A1-30FF 31F0-31FF FF66-FF9D 1AFF0-1B000 1B120-1B122 1B164-1B167 Bopo 3105-312F 31A0-31BF Yiii
    A000-A48C Lisu A4D0-A4FD 11FB0 Vaii A500-A62B Bamu A6A0-A6E5 16800-16A38 Sylo A800-A822 Phag
    A840-A873 Saur A882-A8B3 Kali A90A-A925 Rjng A930-A946 Java A984-A9B2 Cham AA00-AA4B Tavt
    AA80-AADD Mtei AAE0-AAF4 ABC0-ABE2 Linb 10000-100FA Lyci 10280-1029C Cari 102A0-102D0 Ital
    10300-1032F Goth 10330-10349 Perm 10350-10375 Ugar 10380-1039D Xpeo 103A0-103CF Dsrt 10400-1044F
    Shaw 10450-1047F Osma 10480-1049D Osge 104B0-104FB Elba 10500-10527 Aghb 10530-10563 Vith
    10570-105BC Lina 10600-10767 Cprt 10800-1083F Armi 10840-10855 Palm 10860-10876 Nbat 10880-1089E
    Hatr 108E0-108F5 Phnx 10900-10915 Lydi 10920-10939 Mero 10980-1099F Merc 109A0-109BF Khar
    10A00-10A35 Sarb 10A60-10A7C Narb 10A80-10A9C Mani 10AC0-10AE4 Avst 10B00-10B35 Prti 10B40-10B55
    Phli 10B60-10B72 Phlp 10B80-10B91 Orkh 10C00-10C48 Hung 10C80-10CF2 Rohg 10D00-10D23 Yezi
    10E80-10EB1 Sogo 10F00-10F27 Sogd 10F30-10F45 Ougr 10F70-10F81 Chrs 10FB0-10FC4 Elym 10FE0-10FF6
    Brah 11003-11075 Kthi 11083-110AF Sora 110D0-110E8 Cakm 11103-11147 Mahj 11150-11176 Shrd
    11183-111DC Khoj 11200-1122B Mult 11280-112A8 Sind 112B0-112DE Gran 11305-11361 Newa 11400-11461
    Tirh 11480-114C7 Sidd 11580-115DB Modi 11600-11644 Takr 11680-116B8 Ahom 11700-11746 Dogr
    11800-1182B Wara 118A0-118FF Diak 11900-11941 Nand 119A0-119E3 Zanb 11A00-11A3A Soyo 11A50-11A9D
    Pauc 11AC0-11AF8 Bhks 11C00-11C40 Marc 11C72-11C8F Gonm 11D00-11D46 Gong 11D60-11D98 Maka
    11EE0-11EF2 Xsux 12000-12543 Cpmn 12F90-12FF0 Egyp 13000-1342E Hluw 14400-14646 Mroo 16A40-16A5E
    Tnsa 16A70-16ABE Bass 16AD0-16AED Hmng 16B00-16B8F Medf 16E40-16E7F Plrd 16F00-16F9F Tang 16FE0
    17000-18AFF 18D00-18D08 Nshu 16FE1 1B170-1B2FB Kits 18B00-18CD5 Dupl 1BC00-1BC99 Hmnp
    1E100-1E14E Toto 1E290-1E2AD Wcho 1E2C0-1E2EB Mend 1E800-1E8C4 Adlm 1E900-1E94B
"""


@cache
def _scripts() -> dict[str, list[str]]:
    """The runs of each script."""
    scripts: dict[str, list[str]] = {}
    for token in _RUNS.split():
        if token.isalpha() and token.istitle():
            runs = scripts[token] = []
        else:
            runs.append(token)
    return scripts


@cache
def _table() -> np.ndarray:
    """uint8[0x110000]: 1 + the ordinal of a letter's script, 0 for all other characters."""
    table = np.zeros(0x110000, np.uint8)
    for number, runs in enumerate(_scripts().values(), 1):
        for run in runs:
            first, _, last = run.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] = number
    kinds = characters.table() & ((1 << characters.CLASS_BITS) - 1)
    table[kinds < characters.LETTER] = 0
    return table


def counts(text: str) -> dict[str, int]:
    """The letters of each script that occurs."""
    code_points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    found = np.bincount(_table()[code_points], minlength=len(_scripts()) + 1)[1:]
    return {name: int(n) for name, n in zip(_scripts(), found, strict=True) if n}


def share(text: str, scripts: Iterable[str]) -> float | None:
    """The share of the letters that are in one of the scripts (0 to 1); None without letters."""
    found = counts(text)
    letters = sum(found.values())
    return sum(found.get(script, 0) for script in scripts) / letters if letters else None
