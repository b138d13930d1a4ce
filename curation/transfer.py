"""Bytes over a network: they arrive whole, or the transfer says why they did not.

What may live here: which failures are borne and for how long, one object behind a URL or in an
object store, and the stream that goes on where it was interrupted. No paths, no listings.

Two kinds of failure are told apart. What may pass (a reset, a stall, a busy server) is `Passing`:
it is waited for and tried again. What will not (a missing object, one that changed while it was
read) is a `TransferError`, an OSError. An end of the stream is never made up from either.
"""

from __future__ import annotations

import os
import random
import re
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, TypeVar

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    MaxRetryError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    ResponseError,
)

PIECE = 8 << 20  # bytes of an object store's object that are fetched at a time
READ = 1 << 20  # bytes asked of a connection at a time where nobody says how many
SKIP = 256 << 20  # bytes passed over at most where a server does not serve ranges
BUSY = frozenset((403, 429, 500, 502, 503, 504))  # Common Crawl answers 403 to the impatient
GONE = frozenset((404, 410))

T = TypeVar("T")


class TransferError(OSError):
    """A transfer that failed for good: one line that names the object."""


class Missing(TransferError):
    """There is no such object."""


class Unfit(TransferError):
    """What is there cannot go on what has arrived before: another version, or a server without
    ranges. The transfer can be begun anew."""


class Passing(Exception):
    """A failure that may pass. `wait`: seconds that a server asks for; `silent`: none answered."""

    def __init__(self, what: str, wait: float = 0, silent: bool = False) -> None:
        super().__init__(what)
        self.wait = wait
        self.silent = silent


@dataclass(frozen=True)
class Patience:
    """How long failures that may pass are borne.

    `failures`: in a row and without a byte of progress, the last of which ends the transfer;
    `silent`: the same for a server that does not answer at all. The pause after the n-th is drawn
    from the upper half of `first * 2**(n-1)` seconds, but of no more than `longest`: half of it is
    chance, so that many workers do not come back at once. A server that asks for more
    (Retry-After) gets it, up to `asked` seconds. `stall`: seconds without a byte after which a
    connection is given up.
    """

    failures: int = 8
    silent: int = 8
    first: float = 0.5
    longest: float = 60
    asked: float = 300
    stall: float = 60
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def pause(self, failures: int, asked: float) -> float:
        """Seconds to wait after so many failures in a row."""
        most = min(self.longest, self.first * 2.0 ** (failures - 1))
        return max(most * (1 + self.chance()) / 2, min(asked, self.asked))


PATIENCE = Patience()


class Attempts:
    """Counts the failures of one transfer, waits after each, and ends it after the last."""

    def __init__(self, name: str, patience: Patience) -> None:
        self._name = name
        self._patience = patience
        self._failures = 0

    def progress(self) -> None:
        self._failures = 0

    def failed(self, failure: Passing, offset: int | None = None) -> None:
        """Waits before the next attempt. Raises TransferError where there shall be none."""
        self._failures += 1
        limit = self._patience.silent if failure.silent else self._patience.failures
        if self._failures >= limit:
            at = f" at byte {offset}" if offset else ""
            times = f" ({self._failures} times)" if self._failures > 1 else ""
            raise TransferError(f"cannot read {self._name}{at}: {failure}{times}") from None
        self._patience.sleep(self._patience.pause(self._failures, failure.wait))


def persist(name: str, attempt: Callable[[], T], patience: Patience) -> T:
    """What `attempt` gives, tried again while it raises Passing. Raises TransferError."""
    attempts = Attempts(name, patience)
    while True:
        try:
            return attempt()
        except Passing as failure:
            attempts.failed(failure)


# ---------------------------------------------------------------- the stream that resumes


class Body(Protocol):
    """The bytes of an object from some offset on, as long as the connection lasts."""

    def read1(self, size: int) -> bytes:
        """Some of the next bytes, `size` at most; none at the end. Raises Passing."""

    def close(self) -> None: ...


class Source(Protocol):
    """An object that can be read from any offset. `size` in bytes, once it is known."""

    name: str
    size: int | None

    def connect(self, offset: int) -> Body:
        """Raises Passing; TransferError where it is missing or is not the same object any more."""


class Resumed:
    """An object's bytes from `start` to its end, forward only, over as many connections as needed.

    `open` and `read` raise TransferError where the transfer fails for good; bytes that had arrived
    before are given first.
    """

    def __init__(self, source: Source, start: int, patience: Patience) -> None:
        self.offset = start
        self._source = source
        self._attempts = Attempts(source.name, patience)
        self._body: Body | None = None
        self._error: TransferError | None = None

    def open(self) -> Resumed:
        """Waits for the first connection, so that what is missing is said before reading."""
        while self._body is None:
            try:
                self._body = self._source.connect(self.offset)
            except Passing as failure:
                self._attempts.failed(failure, self.offset)
        return self

    def read(self, size: int = -1) -> bytes:
        if self._error:
            raise self._error
        parts: list[bytes] = []
        missing = size
        while missing:
            try:
                data = self._some(missing if size > 0 else READ)
            except TransferError as error:
                self._error = error
                if size < 0 or not parts:
                    raise
                break
            if not data:
                break
            parts.append(data)
            missing -= len(data) if size > 0 else 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _some(self, size: int) -> bytes:
        """Some of the next bytes; none at the end of the object, and only there."""
        while True:
            try:
                if self._at_end():
                    return b""
                body = self._body = self._body or self._source.connect(self.offset)
                data = body.read1(size)
                if not data and self._source.size is None:
                    self._source.size = (
                        self.offset
                    )  # nobody announced it: the body's end is the end
                if not data and not self._at_end():
                    raise Passing("the connection ended early")
            except Passing as failure:
                self.close()
                self._attempts.failed(failure, self.offset)
                continue
            self.offset += len(data)
            if data:
                self._attempts.progress()
            if self._source.size is not None and self.offset > self._source.size and data:
                self.close()
                raise TransferError(f"{self._source.name}: longer than announced")
            return data

    def _at_end(self) -> bool:
        """Whether all has arrived. Raises TransferError if more has than was announced."""
        if self._source.size is None or self.offset < self._source.size:
            return False
        try:
            more = self._body.read1(1) if self._body else b""
        except Passing:  # broken, but after the last byte
            more = b""
        self.close()
        if more:
            raise TransferError(f"{self._source.name}: longer than announced")
        return True

    def close(self) -> None:
        if self._body:
            self._body.close()
        self._body = None

    def __enter__(self) -> Resumed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------- HTTP

_RANGE = re.compile(r"\s*bytes\s+(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\s*", re.IGNORECASE)
_ONCE = urllib3.Retry(
    None, connect=False, read=False, redirect=5, other=0, respect_retry_after_header=False
)


@lru_cache(maxsize=1)
def _program() -> str:
    try:
        return f"gristmill/{version('gristmill')}"
    except PackageNotFoundError:  # run from a folder, not installed
        return "gristmill"


def user_agent() -> str:
    """Who asks: this program, and where its user can be reached (GRISTMILL_CONTACT)."""
    contact = os.environ.get("GRISTMILL_CONTACT", "")
    contact = "".join(c for c in contact if c.isascii() and c.isprintable()).strip()
    return f"{_program()} (+{contact})" if contact else _program()


@dataclass(frozen=True)
class Entity:
    """What a server tells of an object; `size` in bytes, None and "" where it does not tell."""

    size: int | None
    etag: str
    modified: str

    @property
    def version(self) -> str:
        return self.etag or self.modified

    @property
    def validator(self) -> str:
        """For If-Range, which takes no weak etag (RFC 9110, 13.1.5)."""
        return self.modified if self.etag.startswith("W/") else self.version

    def difference(self, now: Entity) -> str | None:
        """What is not the same; what only one of the two tells is none."""
        for name in ("size", "etag", "modified"):
            old, new = getattr(self, name), getattr(now, name)
            if old not in (None, "") and new not in (None, "") and old != new:
                return f"{name} {old} is now {new}"
        return None


class HttpObject:
    """What lies behind an http(s) URL. `entity`: what its server told of it, at the first answer or
    in an earlier transfer that this one goes on with; another object is then `Unfit`."""

    def __init__(self, url: str, patience: Patience, entity: Entity | None = None) -> None:
        self.name = url
        self.size: int | None = entity.size if entity else None
        self.entity = entity
        self._stall = patience.stall

    def connect(self, offset: int) -> Body:
        headers = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if self.entity and self.entity.validator:
                headers["If-Range"] = self.entity.validator
        response = _get(self.name, headers, self._stall)
        try:
            first = self._first_byte(response, offset)
            if offset - first > SKIP:
                raise Unfit(f"cannot read {self.name}: its server does not serve ranges")
            body = _HttpBody(response)
            while first < offset and (data := body.read1(min(READ, offset - first))):
                first += len(data)
            return body
        except BaseException:
            response.close()
            raise

    def _first_byte(self, response: urllib3.BaseHTTPResponse, offset: int) -> int:
        """Where in the object the body begins; holds the answer against those before it."""
        entity, first = _entity(self.name, response)
        if response.status == 206 and first != offset:
            raise TransferError(f"cannot read {self.name}: asked from {offset}, got from {first}")
        if self.entity and (difference := self.entity.difference(entity)):
            raise Unfit(f"{self.name}: changed while it was read: {difference}")
        if response.status == 416 and (entity.size is None or offset < entity.size):
            raise TransferError(f"cannot read {self.name}: no bytes from {offset} on")
        self.entity = self.entity or entity
        if self.size is None:
            self.size = entity.size
        return first if response.status != 416 else offset


class _HttpBody:
    """A body as stored: no coding is undone."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response

    def read1(self, size: int) -> bytes:
        if self._response.status == 416:  # there is nothing behind the end
            return b""
        try:
            return self._response.read1(size, decode_content=False) or b""
        except (HTTPError, OSError) as error:
            raise Passing(_broken(error)) from None

    def close(self) -> None:
        self._response.close()


def probe(url: str, patience: Patience) -> Entity:
    """Size and version of a URL by asking for its first byte: what every server answers.

    Raises TransferError; Missing where there is nothing.
    """

    def ask() -> Entity:
        response = _get(url, {"Range": "bytes=0-0"}, patience.stall)
        try:
            if response.status == 206:  # one byte, and the connection serves the next question
                _HttpBody(response).read1(1)
            return _entity(url, response)[0]
        finally:
            response.close()

    return persist(url, ask, patience)


def _entity(url: str, response: urllib3.BaseHTTPResponse) -> tuple[Entity, int]:
    """What an answer tells of the whole object, and the offset of its own first byte."""
    headers = response.headers
    length = headers.get("Content-Length", "")
    size, first = _number(length), 0
    if response.status == 206:
        match = _RANGE.fullmatch(headers.get("Content-Range", ""))
        if not match or int(match[2]) < int(match[1]):
            raise TransferError(f"cannot read {url}: a Content-Range that says nothing")
        first, part = int(match[1]), int(match[2]) - int(match[1]) + 1
        if size is not None and size != part:
            raise TransferError(f"cannot read {url}: {size} bytes for a range of {part}")
        size = None if match[3] == "*" else int(match[3])
    if response.status == 416:
        size = _number(headers.get("Content-Range", "").rpartition("/")[2])
    return Entity(size, headers.get("ETag", ""), headers.get("Last-Modified", "")), first


def _number(text: str) -> int | None:
    """A count of bytes in a header; None for what can be none."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def _get(url: str, headers: Mapping[str, str], stall: float) -> urllib3.BaseHTTPResponse:
    """An answer of status 200, 206 or 416, its body not read. Raises Passing or TransferError."""
    try:
        response = _pool(os.getpid(), _proxy(url)).request(
            "GET",
            url,
            headers={"User-Agent": user_agent(), "Accept-Encoding": "identity", **headers},
            preload_content=False,
            decode_content=False,
            retries=_ONCE,
            timeout=urllib3.Timeout(connect=min(stall, 20), read=stall),
        )
    except (HTTPError, OSError, ValueError) as error:
        raise _judged(url, error) from None
    if response.status in (200, 206, 416):
        return response
    response.close()
    if response.status in BUSY:
        asked = _seconds(response.headers.get("Retry-After", ""))
        raise Passing(f"HTTP status {response.status}", asked)
    kind = Missing if response.status in GONE else TransferError
    raise kind(f"cannot read {url}: HTTP status {response.status}")


@lru_cache(maxsize=4)
def _pool(process: int, proxy: str | None) -> urllib3.PoolManager:
    """The connections of this process: a fork must not share its parent's."""
    return urllib3.ProxyManager(proxy, maxsize=16) if proxy else urllib3.PoolManager(maxsize=16)


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL (http_proxy, https_proxy, no_proxy)."""
    parts = urllib.parse.urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _judged(url: str, error: Exception) -> Exception:
    """A failed exchange as what may pass or what will not."""
    cause: Exception = error
    if isinstance(error, MaxRetryError) and error.reason:
        cause = error.reason
    unsound = isinstance(cause, (LocationValueError, ResponseError, ValueError))
    if unsound or any(isinstance(a, ssl.SSLCertVerificationError) for a in cause.args):
        return TransferError(f"cannot read {url}: {one_line(cause)}")
    silent = isinstance(cause, (ConnectTimeoutError, ProxyError))
    return Passing(_broken(cause), silent=silent)


def _broken(error: Exception) -> str:
    """What happened to a connection, without the names of the objects that noticed."""
    silent = isinstance(error, (ReadTimeoutError, ConnectTimeoutError))
    if silent and not isinstance(error, NewConnectionError):  # of which it is a kind
        return "the server fell silent"
    return one_line(error.__cause__ if isinstance(error.__cause__, Exception) else error)


def _seconds(retry_after: str) -> float:
    """Retry-After: seconds or a date (RFC 9110, 10.2.3); 0 where it is neither."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0


def one_line(error: Exception) -> str:
    """What an error says, in one line; its class where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


# ---------------------------------------------------------------- object stores


class StoreObject:
    """An object of a store that fsspec opens, fetched in pieces with one piece read ahead.

    A stall is ended by the store's driver, which has time limits of its own (s3fs: 15 seconds).
    """

    def __init__(self, filesystem: Any, path: str, url: str) -> None:
        self.name = url
        self.size: int | None = None
        self._filesystem = filesystem
        self._path = path
        self._version = ""

    def connect(self, offset: int) -> Body:
        info = attempt_on(self.name, lambda: self._filesystem.info(self._path))
        size, now = info.get("size"), version_of(info)
        if size is None:
            raise TransferError(f"cannot read {self.name}: its store does not tell its size")
        if self.size is not None and (self.size, self._version) != (size, now):
            raise TransferError(f"{self.name}: changed while it was read")
        self.size, self._version = size, now
        return _Pieces(self._fetch, offset, size)

    def _fetch(self, start: int, end: int) -> bytes:
        data: bytes = attempt_on(
            self.name, lambda: self._filesystem.cat_file(self._path, start=start, end=end)
        )
        if len(data) > end - start:
            raise TransferError(f"{self.name}: longer than announced")
        if len(data) < end - start:
            raise Passing("the connection ended early")
        return data


class _Pieces:
    """Pieces of an object, each fetched while the one before is read."""

    def __init__(self, fetch: Callable[[int, int], bytes], offset: int, size: int) -> None:
        self._fetch = fetch
        self._next, self._size = offset, size
        self._worker = ThreadPoolExecutor(1)
        self._coming: Future[bytes] | None = None
        self._piece = memoryview(b"")
        self._order()

    def _order(self) -> None:
        start, end = self._next, min(self._next + PIECE, self._size)
        self._next = max(start, end)
        self._coming = self._worker.submit(self._fetch, start, end) if start < end else None

    def read1(self, size: int) -> bytes:
        if not self._piece and self._coming:
            self._piece = memoryview(self._coming.result())
            self._order()
        data, self._piece = bytes(self._piece[:size]), self._piece[size:]
        return data

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)


#: What the S3 driver raises where it was given no key: an error that it does not translate.
_CREDENTIALS = frozenset(("NoCredentialsError", "PartialCredentialsError"))


def attempt_on(url: str, ask: Callable[[], T]) -> T:
    """What a store answers. Raises Missing, TransferError, or Passing: its driver may raise
    anything for a network that is down."""
    try:
        return ask()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise Missing(f"no such file: {url}") from None
    except (PermissionError, NotImplementedError, ImportError) as error:
        raise TransferError(f"cannot read {url}: {one_line(error)}") from None
    except Exception as error:
        if type(error).__name__ in _CREDENTIALS:
            raise TransferError(f"cannot read {url}: {one_line(error)}") from None
        raise Passing(one_line(error)) from None


def version_of(info: Mapping[str, Any]) -> str:
    """What tells one state of an object from another; "" where its store does not say."""
    keys = (
        "ETag",
        "etag",
        "md5Hash",
        "generation",
        "LastModified",
        "last_modified",
        "mtime",
        "created",
    )
    return next((str(info[key]) for key in keys if info.get(key)), "")
