"""One bucket through obstore: names in, bytes out, and a reader that seeks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore import ObjectMeta

_READ_AHEAD = 1024 * 1024


@dataclass(frozen=True)
class Bucket:
    """An S3 bucket; credentials, region, endpoint and client options come from the environment (`AWS_…`)."""

    store: S3Store

    @classmethod
    def named(cls, name: str) -> Bucket:
        return cls(S3Store(name))

    def list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        """Objects below the folder `prefix` (empty: all) in name order, 1000 a request."""
        offset = f"{prefix}/{start_after}" if prefix and start_after else start_after
        for chunk in obstore.list(self.store, prefix or None, offset=offset or None, chunk_size=1000):
            # obstore drops a slash at the end of the offset: a little too much comes back.
            yield from (meta for meta in chunk if meta["path"] > offset)

    def exists(self, prefix: str) -> bool:
        return any(True for _ in self.list(prefix, ""))

    def read(self, key: str) -> bytes:
        return bytes(obstore.get(self.store, key).bytes())

    def stream(self, key: str) -> Iterator[bytes]:
        for part in obstore.get(self.store, key).stream():
            yield bytes(part)

    def write(self, key: str, data: bytes) -> None:
        obstore.put(self.store, key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        try:
            obstore.put(self.store, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def delete(self, key: str) -> None:
        try:
            obstore.delete(self.store, key)
        except FileNotFoundError:  # S3 itself never says so, some of its likes do
            return

    def open(self, key: str) -> io.BufferedReader:
        size = obstore.head(self.store, key)["size"]
        return io.BufferedReader(_Ranges(self.store, key, size), _READ_AHEAD)


class _Ranges(io.RawIOBase):
    """Reads by ranged requests; the buffer above it joins small ones."""

    def __init__(self, store: S3Store, key: str, size: int) -> None:
        super().__init__()
        self._store, self._key, self._size, self._position = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # callers pass a memoryview; the stub's Buffer has no len before 3.12
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        data = obstore.get_range(self._store, self._key, start=self._position, end=end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
