"""Files and objects by absolute path or URL: `/folder/x`, `file:///folder/x`, `s3://bucket/x`.

One small set of operations with one meaning on both sorts of store, so that discovery, ledger and claim are written
once. Text after `file://` is taken literally, as Hadoop does: no percent-decoding. Paths come back in the form they
were asked in.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from airflow_gddl.contract.errors import FatalError
from spark_jobs.storage import local
from spark_jobs.storage.faults import translated
from spark_jobs.storage.inputs import input_of
from spark_jobs.storage.s3 import READ_AHEAD, Bucket

if TYPE_CHECKING:
    from obstore import ObjectMeta

_FILE, _S3 = "file://", "s3://"
_CHUNK = 4 * 1024 * 1024
# Of one part: MD5 of the bytes. Of several: MD5 of the parts' MD5s, which only the same bytes can have too.
_DIGEST = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """What a listing says of an object.

    Attributes:
        etag: changes whenever the content may have changed; without quotes.
        modified: ISO 8601 UTC with microseconds.
        refused: why it must not be read; empty: it may.
    """

    path: str
    size: int
    etag: str
    modified: str
    refused: str = ""


class HasEtag(Protocol):
    """A `StoredObject`, or anything else made from one."""

    @property
    def path(self) -> str: ...

    @property
    def etag(self) -> str: ...


class Storage:
    """Every store a run touches; clients are made at first use and kept.

    Args:
        buckets: clients by bucket name, for settings that the environment doesn't express.
        environ: tells how S3 is reached.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`, `S3_UNREACHABLE`, after the store client's own retries.
        FatalError: `STORAGE_DENIED` without permission; `STORAGE_UNUSABLE` for a path no store understands; `S3_…`
            for what concerns a whole bucket (`s3_errors.CODES`).
    """

    def __init__(self, buckets: Mapping[str, Bucket] | None = None, environ: Mapping[str, str] = os.environ) -> None:
        self._buckets = dict(buckets or {})
        self._environ = environ

    def list(self, prefix: str, start_after: str | None = None, within: str | None = None) -> Iterator[StoredObject]:
        """Objects below the folder `prefix` in name order (code points of the whole path); a missing folder is empty.

        Args:
            start_after: absolute; only objects with a greater path. It need not exist.
            within: a folder that local links must not leave. What does, and what has a name that isn't UTF-8, comes as
                `refused`. Null: links may lead anywhere, and such names are left out.
        """
        folder = prefix.rstrip("/")
        after = _below(folder, start_after)
        if after is None:
            return
        with translated(prefix):
            if folder.startswith(_S3):
                yield from self._list_bucket(folder, after)
            else:
                for found in local.walk(_local(folder), after, None if within is None else _local(within)):
                    if within is not None or not found.refused:
                        yield _on_disk(f"{folder}/{found.name}".rstrip("/"), found)

    def _list_bucket(self, folder: str, after: str) -> Iterator[StoredObject]:
        bucket, key = self._remote(folder)
        root = folder[: len(folder) - len(key)].rstrip("/")
        for meta in bucket.list(key, after):
            yield _stored(f"{root}/{meta['path']}", meta)

    def look(self, path: str, within: str | None = None) -> StoredObject | None:
        """A single file or object as a listing would show it; null when it isn't there."""
        with translated(path):
            if path.startswith(_S3):
                bucket, key = self._remote(path)
                meta = bucket.head(key)
                return None if meta is None else _stored(path, meta)
            found = local.look(_local(path), None if within is None else _local(within))
            return None if found is None else _on_disk(path, found)

    def exists(self, prefix: str) -> bool:
        """Whether any object is below `prefix`; locally also whether the folder, or a file of that name, is there."""
        with translated(prefix):
            if prefix.startswith(_S3):
                bucket, key = self._remote(prefix.rstrip("/"))
                return bucket.exists(key)
            return local.exists(_local(prefix))

    def folders(self, prefix: str) -> tuple[str, ...]:
        """Names of the folders right below `prefix`, sorted, hidden ones left out; none for a missing folder."""
        with translated(prefix):
            if prefix.startswith(_S3):
                bucket, key = self._remote(prefix.rstrip("/"))
                found = bucket.folders(key)
            else:
                found = local.folders(_local(prefix))
        return tuple(sorted(name for name in found if not name.startswith((".", "_"))))

    def read(self, path: str) -> bytes:
        """
        Raises:
            FileNotFoundError: nothing there.
        """
        with translated(path):
            if path.startswith(_S3):
                bucket, key = self._remote(path)
                return bucket.read(key)
            return local.read(_local(path))

    def write(self, path: str, data: bytes) -> None:
        """Put or replace: a reader sees the old content or the new."""
        with translated(path):
            if path.startswith(_S3):
                bucket, key = self._remote(path)
                bucket.write(key, data)
            else:
                local.write(_local(path), data)

    def create(self, path: str, data: bytes) -> bool:
        """Put if absent; False when it exists.

        An answer that got lost and was asked for again also reads False: who must know compares the content.
        """
        with translated(path):
            if path.startswith(_S3):
                bucket, key = self._remote(path)
                return bucket.create(key, data)
            return local.create(_local(path), data)

    def delete(self, path: str) -> None:
        """Nothing there is no error."""
        with translated(path):
            if path.startswith(_S3):
                bucket, key = self._remote(path)
                bucket.delete(key)
            else:
                local.delete(_local(path))

    def fingerprint(self, found: HasEtag) -> str:
        """Tells content from content: `md5:<ETag>` where S3's ETag is a digest, else `blake2b:<hex>` of the bytes.

        Raises:
            FileNotFoundError: it has vanished.
        """
        if found.path.startswith(_S3) and _DIGEST.fullmatch(found.etag):
            return f"md5:{found.etag}"
        digest = hashlib.blake2b(digest_size=32)
        with translated(found.path):
            for part in self._parts(found.path):
                digest.update(part)
        return f"blake2b:{digest.hexdigest()}"

    def _parts(self, path: str) -> Iterator[bytes]:
        if path.startswith(_S3):
            bucket, key = self._remote(path)
            yield from bucket.stream(key)
            return
        with Path(_local(path)).open("rb") as file:
            while part := file.read(_CHUNK):
                yield part

    def open_input(self, path: str) -> BinaryIO:
        """A seekable binary reader, such as `pyarrow.parquet.ParquetFile` takes; the caller closes it.

        What the store raises while it is read is raised as by every method, so that it can be told from what the
        content raises in whoever reads it.

        Raises:
            FileNotFoundError: nothing there.
        """
        with translated(path):
            if path.startswith(_S3):
                bucket, key = self._remote(path)
                return input_of(path, bucket.open(key), READ_AHEAD)
            return input_of(path, io.FileIO(_local(path)))

    def options_of(self, path: str) -> dict[str, str] | None:
        """What `deltalake` takes as `storage_options` for a table of this path; null for local ones."""
        return dict(self._remote(path)[0].options) if path.startswith(_S3) else None

    def _remote(self, url: str) -> tuple[Bucket, str]:
        name, _, key = url.removeprefix(_S3).partition("/")
        return self._bucket(name), key

    def _bucket(self, name: str) -> Bucket:
        if name not in self._buckets:
            self._buckets[name] = Bucket.named(name, self._environ)
        return self._buckets[name]


def _on_disk(path: str, found: local.LocalObject) -> StoredObject:
    modified = datetime.fromtimestamp(found.status.st_mtime, UTC).isoformat(timespec="microseconds")
    size, refused = found.status.st_size, found.refused
    return StoredObject(path=path, size=size, etag=found.etag, modified=modified, refused=refused)


def _stored(path: str, meta: ObjectMeta) -> StoredObject:
    modified = meta["last_modified"].astimezone(UTC).isoformat(timespec="microseconds")
    return StoredObject(path=path, size=meta["size"], etag=(meta["e_tag"] or "").strip('"'), modified=modified)


def _local(path: str) -> str:
    bare = path.removeprefix(_FILE)
    if not bare.startswith("/"):
        raise FatalError(
            "STORAGE_UNUSABLE",
            f"{path!r} is neither absolute nor s3://",
            remedy="use /folder, file:///folder or s3://bucket/prefix",
        )
    return bare.rstrip("/") or "/"


def _below(folder: str, start_after: str | None) -> str | None:
    """`start_after` relative to the folder; empty: all of it comes after; None: none of it does."""
    if start_after is None or start_after < f"{folder}/":
        return ""
    return start_after[len(folder) + 1 :] if start_after.startswith(f"{folder}/") else None
