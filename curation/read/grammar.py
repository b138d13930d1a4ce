"""What records look like in the bytes of an archive: WARC and ARC.

What may live here: the patterns by which records are cut out, and found again after damage. What a
record says is the business of `warc` and `arc`.

Every pattern has a bounded reach, so that what is found depends on the bytes of the file and never
on how they arrive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grammar:
    """How a record begins, how its header ends, what separates it from the next.

    `begins` is matched where a record should be, within `head` bytes; `boundary` is searched, and
    ends where a record begins that follows a line feed, within `reach` bytes; `separator` is
    matched after a block whose length is right, within `tail` bytes. `firm`: a separator that is
    believed although no record follows it (none: empty). `line_ends`: what is cut off a block that
    ends where the next record was found, the first that fits.
    """

    begins: re.Pattern[bytes]
    head: int
    boundary: re.Pattern[bytes]
    reach: int
    header_end: re.Pattern[bytes]
    length: re.Pattern[bytes]
    separator: re.Pattern[bytes]
    tail: int
    firm: bytes
    line_ends: tuple[bytes, ...]


#: ISO 28500: a version line, header lines, a blank line, the block, two line ends. Bare line feeds
#: are accepted.
WARC = Grammar(
    begins=re.compile(rb"WARC/"),
    head=5,
    boundary=re.compile(
        rb"\n(?=WARC/\d\.\d{1,4}[ \t]{0,9}\r?\n[A-Za-z][A-Za-z-]{0,99}[ \t]{0,9}:)"
    ),
    reach=256,
    header_end=re.compile(rb"\n\r?\n"),
    length=re.compile(rb"(?i)\ncontent-length[ \t]*:\s*(\d{1,18})\s"),
    separator=re.compile(rb"(?:\r\n\r\n|\n\n)(?=WARC/|\Z)"),
    tail=9,
    firm=b"\r\n\r\n",
    line_ends=(b"\r\n\r\n", b"\n\n", b"\r\n", b"\n"),
)

#: The record line of ARC 1 and 2: address, IP, date, then from one to six fields of which the last
#: is the length. Addresses with spaces occur, and lengths that are no number.
_LINE = (
    rb"[A-Za-z][A-Za-z0-9+.-]{0,30}:[^\r\n]{0,8000}? (?:[0-9A-Fa-f.:]{2,45}|-) \d{12,18} "
    rb"(?:[^\r\n]{0,2000} )?-?[0-9A-Za-z]{1,19}[ \t]{0,9}\r?\n"
)

#: ARC File Format (Burner and Kahle, 1996): a record line, the block, a line feed. Writers disagree
#: whether the length counts that line feed, and some write two.
ARC = Grammar(
    begins=re.compile(_LINE),
    head=11_000,
    boundary=re.compile(rb"\n(?=" + _LINE + rb")"),
    reach=11_000,
    header_end=re.compile(rb"\n"),
    length=re.compile(rb" (\d{1,18})[ \t]*\r?\n"),
    separator=re.compile(rb"(?:\r?\n){0,2}(?=" + _LINE + rb")|[\r\n]{0,1000}\Z"),
    tail=11_004,
    firm=b"",
    line_ends=(b"\r\n", b"\n"),
)
