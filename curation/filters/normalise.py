"""Text as it was meant: repaired encodings, one Unicode form, no control characters.

What may live here: the editor `normalise`, what each of its steps changes, and the pattern that
tells the texts that need none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator

from curation.document import Documents
from curation.stage import Edited, Editor

#: Code points that ftfy is given at once: some of its loops are quadratic in them.
PIECE = 2_000
#: Passes after which a text is given up that changes with every one.
PASSES = 16

#: Line ends of other systems (Unicode 16, section 5.8), as they stand in a character class.
_LINE_ENDS = "\x0b\x0c\r\u2028\u2029"
#: Controls (Cc), noncharacters, and what Unicode TR 20 section 3 keeps out of marked-up text:
#: deprecated format characters, interlinear annotation, the object replacement character, the BOM.
#: U+FFFD stays: it tells that something was lost. Joiners and directional marks are spelling.
_CONTROLS = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f\u206a-\u206f\ufdd0-\ufdef\ufeff\ufff9-\ufffc\ufffe\uffff"
    + "".join(chr((plane << 16) + last) for plane in range(1, 17) for last in (0xFFFE, 0xFFFF))
)
#: White space but for line ends: tabs, and the separators of Unicode (Zs).
_NO_SPACE = "\t\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_BLANKS = " " + _NO_SPACE
#: Curly quotes (U+2018 to U+201F) by what replaces them.
_QUOTES = dict.fromkeys(range(0x2018, 0x201C), "'") | dict.fromkeys(range(0x201C, 0x2020), '"')

_LINE_END = re.compile(f"\r\n|[{_LINE_ENDS}]")
_CONTROL = re.compile(f"[{_CONTROLS}]")
_BLANK_RUN = re.compile(f"[{_NO_SPACE}][{_BLANKS}]*| [{_BLANKS}]+")
_EMPTY_LINES = re.compile(r"\n{3,}")
#: The same one or two characters sixteen times in a row: no mojibake, but ftfy's loops take a step
#: for each of them, over the whole piece.
RUN = re.compile(r"([^\x00-\x7f]{1,2})\1{15,}")


class Normalise(Editor):
    """Gives texts the form in which they can be compared and counted.

    The steps, in this order and again until nothing changes (so that a second run changes nothing):

    - Line ends (CRLF, CR, vertical tab, form feed, U+2028, U+2029) become newlines. Always.
    - `repair`: ftfy undoes mojibake (all of `fix_encoding`), gives C1 controls the characters of
      windows-1252, resolves character references (in lines before the first "<"; after it they may
      be markup) and surrogates, and removes terminal escapes. Its other fixers are off: ligatures,
      wide characters and quotes are the author's own, and the rest is done by the next steps.
      FineWeb-2 repairs in the same way (datatrove's `FTFYFormatter`).
    - `form`: the Unicode normalisation form.
    - `control`: controls, noncharacters, the BOM and the like are removed; tabs and newlines stay.
    - `quotes`, `white_space`: off, since they take something away from good text.

    Signals: `repaired` (bool: ftfy changed something) and `controls` (int64: removed characters).
    A text that still changes after 16 passes fails as `unstable`.
    """

    version: ClassVar[int] = 1

    repair: bool = True
    """Undo mojibake and left-over character references (ftfy)."""
    form: Literal["NFC", "NFKC"] | None = "NFC"
    """Normalisation form (Unicode Annex 15); NFKC also changes meaning: 10³ becomes 103."""
    control: bool = True
    """Remove characters that show nothing."""
    quotes: bool = False
    """Make curly quotes straight."""
    white_space: bool = False
    """Runs of blanks become one space, lines are trimmed, at most one empty line stays."""

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not (self.repair or self.form or self.control or self.quotes or self.white_space):
            raise ValueError("every step is switched off; leave the stage out")
        return self

    def depends(self) -> dict[str, str]:
        """The versions of ftfy and of the Unicode tables, where they are used."""
        found = {"unicode": unicodedata.unidata_version} if self.form else {}
        return found | ({"ftfy": metadata.version("ftfy")} if self.repair else {})

    def edit(self, docs: Documents) -> Edited:
        """The normalised texts. Those that need nothing are recognised by one look."""
        texts: list[str] = docs.text.to_pylist()
        repaired = np.zeros(len(texts), dtype=bool)
        controls = np.zeros(len(texts), dtype=np.int64)
        todo = list(range(len(texts)))
        edited: set[int] = set()
        for _ in range(PASSES):
            changed = []
            for index, broken in self._need_work(texts, todo):
                new = self._once(texts[index], broken)
                if new.text != texts[index]:
                    texts[index] = new.text
                    repaired[index] |= new.repaired
                    controls[index] += new.controls
                    changed.append(index)
            edited.update(changed)
            todo = changed
            if not todo:
                break
        unstable = np.zeros(len(texts), dtype=bool)
        unstable[todo] = True
        return Edited(
            pa.array(texts, pa.large_string(), mask=unstable) if edited else docs.text,
            {"repaired": repaired, "controls": controls},
            dict.fromkeys(todo, "unstable"),
        )

    def _need_work(self, texts: Sequence[str], todo: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """Which of the texts `todo` some step may change, and whether `repair` is one of them."""
        work = _found(work_pattern(self), [texts[index] for index in todo])
        some = [
            index
            for index, found in zip(todo, work, strict=True)
            if found or (self.form and not unicodedata.is_normalized(self.form, texts[index]))
        ]
        broken = [False] * len(some)
        if self.repair and some:
            broken = _found(repair_pattern(), [texts[index] for index in some])
        return zip(some, broken, strict=True)

    def _once(self, text: str, broken: bool = True) -> _Pass:
        """The steps, once; ftfy is asked only where something is `broken`."""
        repaired, controls = False, 0
        text = _LINE_END.sub("\n", text)
        if self.repair and broken:
            text, before = repair(text), text
            repaired = text != before
        text = text.replace("\x85", "\n")  # the C1 that ftfy has not taken for an ellipsis
        if self.form:
            text = unicodedata.normalize(self.form, text)
        if self.control:
            text, controls = _CONTROL.subn("", text)
        if self.quotes:
            text = text.translate(_QUOTES)
        if self.white_space:
            text = tidy(text)
        return _Pass(text, repaired, controls)


class _Pass(NamedTuple):
    """A text after the steps, whether it was repaired, and how many characters were removed."""

    text: str
    repaired: bool
    controls: int


def repair(text: str) -> str:
    """The text with mojibake undone, as `ftfy.fix_text` does it line by line.

    Long runs of the same one or two characters are left as they are, and longer lines are given to
    ftfy in pieces: it would take days for a megabyte of "Â".
    """
    import ftfy

    config = ftfy_config()
    return "".join(
        part if RUN.fullmatch(part) else ftfy.fix_text(part, config) for part in _parts(text)
    )


def _parts(text: str) -> list[str]:
    """The text cut at runs of the same characters, runs included."""
    parts, end = [], 0
    for run in RUN.finditer(text):
        parts += [text[end : run.start()], run[0]]
        end = run.end()
    return [*parts, text[end:]]


def tidy(text: str) -> str:
    """One space for a run of blanks, no blanks at the ends of lines, at most one empty line."""
    text = _BLANK_RUN.sub(" ", text).replace(" \n", "\n").replace("\n ", "\n")
    return _EMPTY_LINES.sub("\n\n", text).strip(" \n")


@lru_cache(maxsize=1)
def ftfy_config() -> Any:
    """Which of ftfy's fixers work (`ftfy.TextFixerConfig`)."""
    import ftfy

    return ftfy.TextFixerConfig(
        unescape_html="auto",
        remove_terminal_escapes=True,
        fix_encoding=True,
        restore_byte_a0=True,
        replace_lossy_sequences=True,
        decode_inconsistent_utf8=True,
        fix_c1_controls=True,
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        fix_line_breaks=False,
        fix_surrogates=True,
        remove_control_chars=False,
        normalization=None,
        max_decode_length=PIECE,
        explain=False,
    )


# --- which texts need work ----------------------------------------------------------------------


def _found(pattern: str, texts: list[str]) -> list[bool]:
    """Whether each text has what an expression of RE2 stands for."""
    column = pa.array(texts, pa.large_string())
    found: list[bool] = pc.match_substring_regex(column, pattern).to_pylist()
    return found


@lru_cache(maxsize=16)
def work_pattern(stage: Normalise) -> str:
    """Is found in every text that a step would change, but for `form`; in a few others, too."""
    wanted = [f"[{_LINE_ENDS}\x85]"]
    if stage.repair:
        wanted.append(repair_pattern())
    if stage.control:
        wanted.append(f"[{_CONTROLS}]")
    if stage.quotes:
        wanted.append("[\u2018-\u201f]")
    if stage.white_space:
        wanted += [f"[{_NO_SPACE}]", "  ", "(?m:^ | $)", "\n\n\n", "\\A\n|\n\\z"]
    return "|".join(wanted)


@lru_cache(maxsize=1)
def repair_pattern() -> str:
    """Is found in every text that `repair` would change: mojibake, references, escapes."""
    return "|".join([_mojibake(), "&#?[0-9A-Za-z]{1,24};", "\x1b\\["])


def _mojibake() -> str:
    """What ftfy takes for a sign of mojibake (its `badness`), in the syntax of RE2.

    ftfy looks at lines and RE2 at whole texts, so an anchor is one of a line. Letters and white
    space are taken widely, since two libraries need not have the same tables of them.
    """
    from ftfy.badness import BADNESS_RE

    def plain(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("["):
            return token
        return {
            "\\w": r"[0-9A-Za-z_\x{80}-\x{10ffff}]",
            "\\s": r"[\x{9}-\x{20}\x{80}-\x{10ffff}]",
            "^": "(?m:^)",
        }.get(token, "" if token.isspace() or token.startswith("#") else token)

    verbose = r"\[(?:\\.|[^\]\\])*\]|\\.|\^|#.*|\s+"
    return re.sub(verbose, plain, BADNESS_RE.pattern)
