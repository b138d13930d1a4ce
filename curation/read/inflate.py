"""The inflater that all readers share.

What may live here: names for what `isal` offers, typed. Fast, and exact about where a stream ends.
"""

from __future__ import annotations

from typing import cast

from isal import isal_zlib

GZIP, ZLIB, RAW = 31, 15, -15  # window bits, as zlib has them

InflateError = cast(type[Exception], isal_zlib.error)
inflater = isal_zlib.decompressobj
