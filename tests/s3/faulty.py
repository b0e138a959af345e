"""A way to S3 that is bad on purpose: a proxy that answers slowly, refuses, or breaks off in the middle."""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Literal
from urllib.parse import unquote, urlsplit

_HOP_BY_HOP = {"connection", "expect", "keep-alive", "transfer-encoding"}
Kind = Literal["slow", "answer", "reset", "cut", "done", "lost"]


@dataclass
class Fault:
    """What befalls requests.

    Attributes:
        kind: `slow` answers late, `answer` refuses, `reset` ends the connection at once, `cut` in the answer's middle.
            `done` does what is asked and then answers as `answer`, `lost` does it and ends the connection.
        path: only requests whose path or query (decoded) holds this.
        method: only these; empty: all.
        times: so many of them; null: all.
        seconds: of `slow`.
        status, code: of `answer` and `done`, as S3 says it.
        before: of `slow`, done before the request goes on.
        after: so many requests that it would take pass first.
    """

    kind: Kind
    path: str = ""
    method: str = ""
    times: int | None = None
    seconds: float = 0.0
    status: int = 503
    code: str = "SlowDown"
    before: Callable[[], object] | None = None
    met: int = 0
    after: int = 0

    def takes(self, method: str, path: str) -> bool:
        if (
            self.method not in ("", method)
            or self.path not in path
            or (self.times is not None and self.met >= self.times)
        ):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.met += 1
        return True


@dataclass
class Way:
    """A way to the server.

    Attributes:
        faults: those in force, which a test may change at any time.
        requests: every request that came: `METHOD path?query`.
        absent: paths that were put on the condition that nothing is there.
    """

    upstream: str
    endpoint: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def meet(self, method: str, path: str, condition: str | None) -> Fault | None:
        with self.lock:
            self.requests.append(f"{method} {path}")
            if condition == "*":
                self.absent.append(path)
            return next((fault for fault in self.faults if fault.takes(method, path)), None)


class _Handler(BaseHTTPRequestHandler):
    way: Way
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.way.meet(self.command, unquote(self.path), self.headers.get("If-None-Match"))
        if fault is not None and fault.kind == "reset":
            self._reset()
        elif fault is not None and fault.kind == "answer":
            self._refuse(fault)
        else:
            if fault is not None:
                time.sleep(fault.seconds)
                if fault.before is not None:
                    fault.before()
            self._forward(body, fault)

    def _refuse(self, fault: Fault) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>told to</Message></Error>".encode()
        self._send(fault.status, [("Content-Type", "application/xml")], text)

    def _forward(self, body: bytes, fault: Fault | None) -> None:
        upstream = http.client.HTTPConnection(urlsplit(self.way.upstream).netloc, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():  # the host's name is signed, so that it stays as it is
                if name.lower() not in _HOP_BY_HOP:
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
            data = answer.read()
            if fault is not None and fault.kind == "done":
                self._refuse(fault)
            elif fault is not None and fault.kind == "lost":
                self._reset()
            else:
                self._send(answer.status, headers, data, cut=fault is not None and fault.kind == "cut")
        finally:
            upstream.close()

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        reported = any(name.lower() == "content-length" for name, _ in headers)
        for name, value in headers if reported else [*headers, ("Content-Length", str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self._reset()

    def _reset(self) -> None:
        """RST rather than FIN: a connection that broke, not one that ended."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815  the names http.server calls


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients that give up are what is tested."""


@contextmanager
def between(upstream: str) -> Iterator[Way]:
    """A way to `upstream`, until the block ends."""
    way = Way(upstream)
    handler = type("Handler", (_Handler,), {"way": way})
    with _Server(("127.0.0.1", 0), handler) as server:
        way.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield way
        finally:
            server.shutdown()
            thread.join()
