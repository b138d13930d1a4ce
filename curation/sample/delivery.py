"""How a page is delivered: charsets and what is said about them, content and transfer codings.

Only ways from text to the bytes and headers of a response may live here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from curation.sample import framing

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Charset:
    """How text becomes bytes and what is said about it, in the HTTP header and in the page."""

    codec: str
    http: str = ""
    meta: str = ""
    bom: bytes = b""


UTF8 = Charset("utf-8", http="utf-8", meta="utf-8")

LATIN_CHARSETS = (
    UTF8,
    Charset("utf-8", bom=b"\xef\xbb\xbf"),
    Charset("utf-16-le", bom=b"\xff\xfe"),
    Charset("utf-16-be", http="utf-16", bom=b"\xfe\xff"),
    Charset("cp1252", http="ISO-8859-1"),
    Charset("cp1252", meta="iso-8859-1"),
    Charset("utf-8", http="UTF-8", meta="iso-8859-1"),
    Charset("utf-8", meta="UTF-8"),
    Charset("utf-8"),
    Charset("cp1252", http="windows-1252"),
)

LANGUAGE_CHARSETS: Mapping[str, tuple[Charset, ...]] = {
    "de": (UTF8, Charset("cp1252", meta="iso-8859-1")),
    "fr": (UTF8, Charset("cp1252", http="iso-8859-1")),
    "es": (UTF8, Charset("iso8859-15", http="iso-8859-15")),
    "ru": (UTF8, Charset("cp1251", http="windows-1251"), Charset("koi8-r", meta="koi8-r")),
    "uk": (UTF8, Charset("cp1251", meta="windows-1251")),
    "el": (UTF8, Charset("iso8859-7", http="iso-8859-7")),
    "zh": (UTF8, Charset("gb18030", meta="gb2312"), Charset("gb18030", http="gbk")),
    "ja": (UTF8, Charset("shift_jis", meta="shift_jis"), Charset("euc-jp", http="euc-jp")),
    "ko": (UTF8, Charset("euc-kr", http="euc-kr")),
    "ar": (UTF8, Charset("cp1256", http="windows-1256")),
    "th": (UTF8, Charset("cp874", meta="tis-620")),
}


Coding = Callable[[bytes], tuple[Headers, bytes]]


def _gzip_chunked(body: bytes) -> tuple[Headers, bytes]:
    headers = (("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked"))
    return headers, framing.chunked(framing.gzip_member(body), 700)


CODINGS: Sequence[Coding] = (
    lambda body: ((), body),
    lambda body: ((("Content-Encoding", "gzip"),), framing.gzip_member(body)),
    lambda body: ((("Content-Encoding", "br"),), framing.brotli(body)),
    lambda body: ((("Content-Encoding", "zstd"),), framing.zstd(body)),
    lambda body: ((("Content-Encoding", "deflate"),), framing.zlib_stream(body)),
    lambda body: ((("Content-Encoding", "deflate"),), framing.deflate(body)),
    lambda body: ((("Transfer-Encoding", "chunked"),), framing.chunked(body)),
    _gzip_chunked,
    lambda body: ((("content-encoding", "X-GZIP"),), framing.gzip_member(body)),
    # Headers that lie: plain bodies called gzip and chunked, and a wrong length.
    lambda body: ((("Content-Encoding", "gzip"),), body),
    lambda body: ((("Transfer-Encoding", "chunked"),), body),
    lambda body: ((("Content-Length", str(len(body) // 2)),), body),
)
