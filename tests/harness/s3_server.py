"""An S3 endpoint in this process: enough of the protocol for one bucket, over real HTTP."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


@dataclass
class Bucket:
    """What is stored, and what was asked for, with which session token.

    `fail` is answered to every request; `etags` overrides single ETags, `days` days of January of last modifications.
    """

    name: str = "bucket"
    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    fail: int | None = None
    page: int = 1000
    lock: Lock = field(default_factory=Lock)

    def etag(self, key: str) -> str:
        return self.etags.get(key) or hashlib.md5(self.objects[key], usedforsecurity=False).hexdigest()

    def listing(self, query: dict[str, list[str]]) -> str:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        keys = [key for key in sorted(self.objects) if key.startswith(prefix) and key > after]
        page, more = keys[: self.page], len(keys) > self.page
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-{self.days.get(key, 31):02d}T10:20:30.000Z"
            "</LastModified>"
            f"<ETag>&quot;{self.etag(key)}&quot;</ETag><Size>{len(self.objects[key])}</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{items}</ListBucketResult>"


class _Handler(BaseHTTPRequestHandler):
    bucket: Bucket
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is two packets; the client would confirm the first one 40 ms later

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{self.bucket.name}").removeprefix("/")

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.bucket.lock:
            self.bucket.requests.append(f"{self.command} {self._key()}")
            self.bucket.tokens.append(self.headers.get("X-Amz-Security-Token"))
            if self.bucket.fail is not None:
                self._answer(self.bucket.fail, b"<Error><Code>Told</Code></Error>")
            elif self.command == "PUT":
                self._put(body)
            elif self.command == "POST":
                self._delete(body)
            else:
                self._get()

    def _copy(self, source: str) -> None:
        name = unquote(source).removeprefix("/").removeprefix(f"{self.bucket.name}/")
        if name not in self.bucket.objects:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.bucket.objects[self._key()] = self.bucket.objects[name]
        tag = f"<CopyObjectResult><ETag>{self.bucket.etag(self._key())}</ETag></CopyObjectResult>"
        self._answer(200, tag.encode())

    def _put(self, body: bytes) -> None:
        key = self._key()
        if (source := self.headers.get("X-Amz-Copy-Source")) is not None:
            self._copy(source)
            return
        if self.headers.get("If-None-Match") == "*" and key in self.bucket.objects:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        if (tag := self.headers.get("If-Match")) is not None:
            known = f'"{self.bucket.etag(key)}"' if key in self.bucket.objects else None
            if tag != known:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
        self.bucket.objects[key] = body
        self._answer(200, ETag=f'"{self.bucket.etag(key)}"')

    def _delete(self, body: bytes) -> None:
        """Many at once; S3 calls what was never there deleted too."""
        keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        for key in keys:
            self.bucket.objects.pop(key, None)
        items = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{items}</DeleteResult>".encode())

    def _get(self) -> None:
        key, query = self._key(), parse_qs(urlsplit(self.path).query)
        if not key:
            self._answer(200, self.bucket.listing(query).encode())
            return
        if key not in self.bucket.objects:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        data, headers = self.bucket.objects[key], {"ETag": f'"{self.bucket.etag(key)}"'}
        headers["Last_Modified"] = "Wed, 31 Jan 2024 10:20:30 GMT"
        if (span := self.headers.get("Range")) is None:
            self._answer(200, data, **headers)
            return
        first, last = (int(part) for part in span.removeprefix("bytes=").split("-"))
        last = min(last, len(data) - 1)
        headers["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
        self._answer(206, data[first : last + 1], **headers)

    do_GET = do_HEAD = do_PUT = do_POST = _serve  # noqa: N815  the names http.server calls


@contextmanager
def serving(bucket: Bucket) -> Iterator[str]:
    """The endpoint's URL, until the block ends."""
    handler = type("Handler", (_Handler,), {"bucket": bucket})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
