"""Objects in S3 through obstore, by their URLs.

Imported when the first `s3://` path is opened: DAG files are parsed often, and a local lake needs no client.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from airflow_gddl.contract.s3 import split
from airflow_gddl.stores.clients import client
from airflow_gddl.stores.objects import StoredObject
from airflow_gddl.stores.readers import StoreReader

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion

_READ_AHEAD = 1024 * 1024


class Buckets:
    """The S3 part of `Storage`; a missing object is a FileNotFoundError."""

    def __init__(self, environ: Mapping[str, str], *, quick: bool) -> None:
        self._environ, self._quick = environ, quick
        self._clients: dict[str, S3Store] = {}

    def _at(self, url: str) -> tuple[S3Store, str]:
        bucket, key = split(url)
        if bucket not in self._clients:
            self._clients[bucket] = client(bucket, self._environ, quick=self._quick)
        return self._clients[bucket], key

    def list(self, folder: str, after: str, _within: str | None) -> Iterator[StoredObject]:
        """1000 objects a request."""
        store, key = self._at(folder)
        prefix = f"{key}/" if key else ""
        offset = f"{prefix}{after}" if after else None
        for chunk in obstore.list(store, key or None, offset=offset, chunk_size=1000):
            for meta in chunk:
                name = meta["path"][len(prefix) :]
                # obstore drops a trailing slash of the offset and returns a few more objects.
                if name > after:
                    yield _stored(folder, name, meta)

    def stat(self, url: str, _within: str | None) -> StoredObject:
        store, key = self._at(url)
        folder, _, name = url.rpartition("/")
        return _stored(folder, name, obstore.head(store, key))

    def exists(self, folder: str) -> bool:
        return any(True for _ in self.list(folder, "", None))

    def folders(self, folder: str) -> Iterator[str]:
        """One request."""
        store, key = self._at(folder)
        for path in obstore.list_with_delimiter(store, f"{key}/" if key else None)["common_prefixes"]:
            yield path.rstrip("/").rpartition("/")[2]

    def read(self, url: str) -> tuple[bytes, str]:
        found = obstore.get(*self._at(url))
        return bytes(found.bytes()), found.meta["e_tag"] or ""

    def stream(self, url: str) -> Iterator[bytes]:
        for part in obstore.get(*self._at(url)).stream():
            yield bytes(part)

    def open(self, url: str) -> BinaryIO:
        store, key = self._at(url)
        return StoreReader(url, _Ranges(store, key, obstore.head(store, key)["size"]), _READ_AHEAD)

    def write(self, url: str, data: bytes) -> None:
        self._put(url, data, "overwrite")

    def copy(self, url: str, target: str) -> None:
        store, key = self._at(url)
        obstore.copy(store, key, split(target)[1])

    def create(self, url: str, data: bytes) -> bool:
        return self._put(url, data, "create")

    def swap(self, url: str, data: bytes, tag: str | None) -> bool:
        return self._put(url, data, "create" if tag is None else {"e_tag": tag})

    def _put(self, url: str, data: bytes, mode: Literal["create", "overwrite"] | UpdateVersion) -> bool:
        try:
            obstore.put(*self._at(url), data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def delete(self, urls: Sequence[str]) -> None:
        """Deletes 1000 objects of a bucket with each request."""
        for _, found in itertools.groupby(sorted(urls), lambda url: split(url)[0]):
            same = list(found)
            store, key = self._at(same[0])
            obstore.delete(store, key if len(same) == 1 else [split(url)[1] for url in same])


def _stored(folder: str, name: str, meta: ObjectMeta) -> StoredObject:
    return StoredObject(folder, name, meta["size"], (meta["e_tag"] or "").strip('"'), meta["last_modified"].timestamp())


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

    def readall(self) -> bytes:
        # RawIOBase's implementation would send a request for each 8 KiB.
        rest = bytearray(max(0, self._size - self._position))
        return bytes(rest[: self.readinto(memoryview(rest))])

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # callers pass a memoryview; the stub's Buffer has no len before 3.12
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        data = obstore.get_range(self._store, self._key, start=self._position, end=end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
