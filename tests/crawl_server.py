"""A server of archives for tests: it behaves as Common Crawl's does, and misbehaves when told to.

    with crawl_server({"crawl-data/a.warc.gz": data}, [Fault("reset", after=1000)]) as server:
        open_input(server.url + "crawl-data/a.warc.gz")

GET and HEAD, Range with If-Range, ETag and Last-Modified, connections that are kept. A fault
strikes the requests that match it, in order of arrival.
"""

from __future__ import annotations

import hashlib
import http.server
import re
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

MODIFIED = "Sat, 14 Mar 2026 06:00:00 GMT"


@dataclass
class Fault:
    """Something that goes wrong with some requests.

    `status`: an answer of that status, with `headers`; `reset`, `short`, `stall`: the connection is
    reset, closed or silent after `after` bytes of the body; `wrong_range`: a Content-Range that is
    off by one; `no_range`: 200 and all bytes; `changed`: another ETag from here on; `long`: a body
    with bytes behind its end; `chunked`: no length is announced, and `extra` bytes too many come.
    It strikes `times` requests of URLs that hold `match`, after `skip` of them; questions for the
    first byte are not counted unless `probes`.
    """

    kind: Literal[
        "status", "reset", "short", "stall", "wrong_range", "no_range", "changed", "long", "chunked"
    ]
    match: str = ""
    times: int = 1
    skip: int = 0
    after: int = 0
    extra: int = 0
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    probes: bool = False
    seen: int = 0

    def strikes(self, path: str, probing: bool) -> bool:
        if self.match not in path or (probing and not self.probes):
            return False
        self.seen += 1
        return self.skip < self.seen <= self.skip + self.times


@dataclass
class Server:
    """A running server. `requests`: the method, path and Range of each, in order of arrival."""

    url: str
    requests: list[tuple[str, str, str]]
    agents: set[str]
    connections: list[Any]

    def ranges(self, match: str = "") -> list[str]:
        """The Range of each GET whose path holds `match`, but for questions for the first byte."""
        return [r for m, p, r in self.requests if m == "GET" and match in p and r != "bytes=0-0"]


@contextmanager
def crawl_server(files: Mapping[str, bytes], faults: Sequence[Fault] = ()) -> Iterator[Server]:
    """Serves `files` (by path, without the first slash) on the loopback interface."""
    lock = threading.Lock()
    over = threading.Event()
    log = Server("", [], set(), [])

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            log.connections.append(self.client_address)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            with lock:
                log.requests.append((self.command, self.path, wanted))
                log.agents.add(self.headers.get("User-Agent", ""))
                struck = [f for f in faults if f.strikes(self.path, wanted == "bytes=0-0")]
            kinds = {fault.kind: fault for fault in struck}
            if "status" in kinds:
                return self.answer(kinds["status"].status, b"busy", dict(kinds["status"].headers))
            data = files.get(self.path.lstrip("/"))
            if data is None:
                return self.answer(404, b"", {})
            etag = hashlib.md5(data).hexdigest() + ("-new" if "changed" in kinds else "")
            headers = {"ETag": f'"{etag}"', "Last-Modified": MODIFIED, "Accept-Ranges": "bytes"}
            same = self.headers.get("If-Range", headers["ETag"]) in (headers["ETag"], MODIFIED)
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
            status, body = 200, data
            if match and same and "no_range" not in kinds:
                start = int(match[1])
                end = min(int(match[2] or len(data)), len(data) - 1)
                if start >= len(data):
                    return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                status, body = 206, data[start : end + 1]
                off = start + ("wrong_range" in kinds)
                headers["Content-Range"] = f"bytes {off}-{end + (off - start)}/{len(data)}"
            self.answer(status, body, headers, struck[0] if struck else None)

        def answer(
            self, status: int, body: bytes, headers: dict[str, str], fault: Fault | None = None
        ) -> None:
            kind = fault.kind if fault else ""
            self.send_response(status)
            if kind == "chunked":
                headers["Transfer-Encoding"] = "chunked"
            else:
                headers["Content-Length"] = str(len(body))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault and kind in ("reset", "short", "stall"):
                self.wfile.write(body[: fault.after])
                self.break_off(kind)
            elif fault and kind == "chunked":
                body += b"x" * fault.extra
                self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            else:
                self.wfile.write(body + (b"surplus" if kind == "long" else b""))

        def break_off(self, kind: str) -> None:
            self.close_connection = True
            if kind == "stall":
                over.wait(10)
            if kind == "reset":  # a close with nothing to wait for is sent as RST
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()

        def finish(self) -> None:
            with suppress(OSError):  # reset, by them or by us
                super().finish()

        def log_message(self, *arguments: object) -> None:
            pass

    class Quiet(http.server.ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *arguments: object) -> None:
            """Clients that go away are a part of the game."""

    with Quiet(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        log.url = f"http://127.0.0.1:{running.server_port}/"
        try:
            yield log
        finally:
            over.set()
            running.shutdown()
            thread.join()
