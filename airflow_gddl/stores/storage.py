"""Files and objects by absolute path or URL: `/folder/x`, `file:///folder/x`, `s3://bucket/x`.

A small set of operations with equal semantics on disks and S3, for landing folders, the lake's state and metadata.
Text after `file://` is taken literally, as Hadoop does: no percent-decoding. Paths are returned in the form of the
request.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar, cast

from airflow_gddl.contract import source_access
from airflow_gddl.contract.codec import from_json_or_none
from airflow_gddl.contract.errors import SWAP_TRIES, contended
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.stores import local
from airflow_gddl.stores.readers import StoredObject, translated

if TYPE_CHECKING:
    from airflow_gddl.stores.s3 import Buckets

T = TypeVar("T")
# Of one part: MD5 of the bytes. Of several: MD5 of the parts' MD5s. Only the same bytes can have it, too, but they may
# have another one: in other parts, or encrypted with KMS.
_DIGEST = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")
_OF_BYTES = "blake2b:"


class HasEtag(Protocol):
    """A `StoredObject`, or anything else made from one."""

    @property
    def path(self) -> str: ...

    @property
    def etag(self) -> str: ...


class Storage:
    """Every store that a run or a task uses; clients of S3 are made at first use.

    Args:
        environ: S3 settings (`AWS_…`); without credentials, the clients use this process's environment or the machine's
            role. Landing roots of sources may have credentials of their own (`source_access`).
        quick: gives up within 20 s instead of a minute; see `open_store`.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`, `DISK_FULL`, `S3_UNREACHABLE`, after the client's own retries.
        FatalError: `STORAGE_DENIED`: no permission; `STORAGE_UNUSABLE`: an unsupported path; `S3_…`:
            nothing in the bucket can be read (`contract.s3.CODES`).
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, *, quick: bool = False) -> None:
        self._environ, self._quick = environ, quick
        self._s3: dict[SourceAccess | None, Buckets] = {}

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        """Objects below a folder in the order of their names (code points); a missing folder is empty.

        Args:
            after: only objects whose name, relative to the folder, is greater; it need not exist.
            within: a folder that local links must not leave. Such links, and names that aren't UTF-8, are returned as
                `refused`. None: links may lead anywhere, and such names are skipped.

        Raises:
            FatalError: `STORAGE_UNUSABLE`, with `within`: a local file is in place of the folder.
        """
        with translated(folder):
            yield from self._of(folder).list(folder.rstrip("/"), after, within)

    def listing_spans_folders(self, folder: str) -> bool:
        """Whether one listing of a folder with many subfolders costs about as much as one of a single subfolder."""
        return is_s3(folder)

    def stat(self, path: str, within: str | None = None) -> StoredObject | None:
        """A single file or object; null when it doesn't exist."""
        try:
            with translated(path):
                return self._of(path).stat(path, within)
        except FileNotFoundError:
            return None

    def exists(self, folder: str) -> bool:
        """Whether any object is below the folder; locally also whether the folder, or a file of that name, exists."""
        with translated(folder):
            return self._of(folder).exists(folder)

    def folders(self, folder: str) -> tuple[str, ...]:
        """Names of the folders right below a folder, sorted, hidden ones left out; none for a missing folder."""
        with translated(folder):
            names = tuple(self._of(folder).folders(folder))
        return tuple(sorted(name for name in names if not name.startswith((".", "_"))))

    def read(self, path: str, most: int | None = None) -> bytes:
        """
        Args:
            most: bytes from the start that are read at most; None: all.

        Raises:
            FileNotFoundError: nothing there.
        """
        if most is None:
            return self.read_tagged(path)[0]
        start = bytearray()
        with translated(path):
            for part in self._of(path).stream(path):
                start += part
                if len(start) >= most:
                    break
        return bytes(start[:most])

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        """The content and its tag, for `swap`.

        Raises:
            FileNotFoundError: nothing there.
        """
        with translated(path):
            return self._of(path).read(path)

    def open_input(self, path: str) -> BinaryIO:
        """A seekable binary reader, such as `pyarrow.parquet.ParquetFile` takes; the caller closes it.

        Store errors while reading are translated as by every method, which distinguishes them from damaged content.

        Raises:
            FileNotFoundError: nothing there.
        """
        with translated(path):
            return self._of(path).open(path)

    def write(self, path: str, data: bytes) -> None:
        """Put or replace: a reader sees the old content or the new."""
        with translated(path):
            self._of(path).write(path, data)

    def copy(self, path: str, target: str) -> None:
        """Copy a file or object on local disks, or within a bucket; replaces an existing one.

        Raises:
            FileNotFoundError: nothing there.
        """
        with translated(path):
            self._of(path).copy(path, target)

    def create(self, path: str, data: bytes) -> bool:
        """Put if absent; False when it exists.

        Also False where the response was lost and the put repeated; see `create_once`.
        """
        with translated(path):
            return self._of(path).create(path, data)

    def create_once(self, path: str, data: bytes) -> bool:
        """`create`, but True also where the object has this content: the response of this call's own put was lost.

        Args:
            data: no other writer makes the same.
        """
        return self.create(path, data) or self._has(path, data)

    def sync(self, path: str) -> None:
        """Return once the file and its name would survive a loss of power; objects do once they are put."""
        if not is_s3(path):
            with translated(path):
                local.sync(path)

    def swap(self, path: str, data: bytes, tag: str | None) -> bool:
        """Put if the object's tag is unchanged (None: if there is none); False otherwise.

        Also False where the response was lost and the put repeated; see `swap_once`.
        """
        with translated(path):
            return self._of(path).swap(path, data, tag)

    def swap_once(self, path: str, data: bytes, tag: str | None) -> bool:
        """`swap`, but True also where the object has this content: the response of this call's own put was lost.

        Args:
            data: where another writer may make the same, it makes no difference which of them did.
        """
        return self.swap(path, data, tag) or self._has(path, data)

    def _has(self, path: str, data: bytes) -> bool:
        """Whether a conditional put that was refused is there all the same: it meets itself when it is repeated."""
        return read_if_there(self, path) == data

    def delete(self, *paths: str) -> None:
        """Missing objects count as deleted; up to 1000 objects in S3 are deleted with one request."""
        if paths:
            try:
                with translated(paths[0]):
                    self._of(paths[0]).delete(paths)
            except FileNotFoundError:  # not from S3; compatible stores may have kept the other objects
                if len(paths) > 1:
                    raise

    def prune(self, folder: str, root: str) -> None:
        """Remove folders on disk without a file: this one, those below it, and its parents below `root`. S3 has none.

        A folder that can't be removed stays: another process may write into it.
        """
        if not is_s3(folder):
            local.prune(folder, root)

    def fingerprint(self, file: HasEtag) -> str:
        """Fingerprint of the content: `md5:<ETag>` where S3's ETag may be a digest, else `blake2b:<hex>` of the bytes.

        Equal ones are of equal bytes. Others need not be of others: see `fingerprints_of_bytes`.

        Raises:
            FileNotFoundError: it has vanished.
        """
        if is_s3(file.path) and _DIGEST.fullmatch(file.etag):
            return f"md5:{file.etag}"
        return self.fingerprints_of_bytes(file.path)[0]

    def fingerprints_of_bytes(self, path: str) -> tuple[str, str]:
        """`blake2b:<hex>` and `md5:<hex>` of the bytes, whatever the tag is; reads all of them.

        Raises:
            FileNotFoundError: it has vanished.
        """
        digest, md5 = hashlib.blake2b(digest_size=32), hashlib.md5(usedforsecurity=False)
        with translated(path):
            for part in self._of(path).stream(path):
                digest.update(part)
                md5.update(part)
        return f"{_OF_BYTES}{digest.hexdigest()}", f"md5:{md5.hexdigest()}"

    def fingerprint_as_listed(self, file: HasEtag) -> str:
        """`fingerprint` of exactly the version that was listed.

        Without this check a file that grows after its listing would get the fingerprint of its later content, and what
        was read of the listed version would count as all of it.

        Raises:
            FileNotFoundError: it has vanished, or was written again since it was listed.
        """
        fingerprint = self.fingerprint(file)
        if fingerprint.startswith(_OF_BYTES):
            self.require_as_listed(file)
        return fingerprint

    def require_as_listed(self, file: HasEtag) -> None:
        """
        Raises:
            FileNotFoundError: it has vanished, or was written again since it was listed.
        """
        if not self._is_unchanged(file):
            raise FileNotFoundError(errno.ENOENT, "written again since it was listed", file.path)

    def is_as_listed(self, file: HasEtag, fingerprint: str) -> bool:
        """Whether a file of this fingerprint was neither removed nor written again since it was listed.

        Not asked of stores whose tags are digests of whole objects: what was read under a tag has its content.
        """
        return not fingerprint.startswith(_OF_BYTES) or self._is_unchanged(file)

    def _is_unchanged(self, file: HasEtag) -> bool:
        now = self.stat(file.path)
        return now is not None and now.etag == file.etag

    def options_of(self, path: str) -> dict[str, str] | None:
        """What `deltalake` takes as `storage_options` for a table of this path; null for local ones."""
        if not is_s3(path):
            return None
        from airflow_gddl.stores.s3 import options  # noqa: PLC0415 - see `s3`

        return options(self._environ_of(source_access.of_path(path, self._environ)))

    def _of(self, path: str) -> Buckets:
        """What works on the path's store; errors are those of the operating system, or of the client."""
        if not is_s3(path):
            return cast("Buckets", local)  # its functions are the methods of `Buckets`
        access = source_access.of_path(path, self._environ)
        if access not in self._s3:
            from airflow_gddl.stores.s3 import Buckets  # noqa: PLC0415 - see there

            self._s3[access] = Buckets(self._environ_of(access), quick=self._quick)
        return self._s3[access]

    def _environ_of(self, access: SourceAccess | None) -> Mapping[str, str]:
        return self._environ if access is None else source_access.environ_of(access, self._environ)


def read_if_there(store: Storage, path: str) -> bytes | None:
    """The content; null when there is none, or it was deleted after a listing."""
    try:
        return store.read(path)
    except FileNotFoundError:
        return None


def read_document(store: Storage, path: str, cls: type[T]) -> T | None:
    """A stored dataclass; null when there is none, or it is damaged."""
    data = read_if_there(store, path)
    return None if data is None else from_json_or_none(cls, data)


def update_object(store: Storage, path: str, change: Callable[[bytes | None], T], encode: Callable[[T], bytes]) -> T:
    """Change an object that others may change at the same time; return the new content.

    Args:
        change: the new content from the stored bytes; None: there is none. Called again where another writer came
            between. Of two writers who make the same of the same, one put counts for both.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    for _ in range(SWAP_TRIES):
        tag: str | None = None
        before: bytes | None = None
        with suppress(FileNotFoundError):
            before, tag = store.read_tagged(path)
        after = change(before)
        if store.swap_once(path, encode(after), tag):
            return after
    raise contended(path)


def remove_table(store: Storage, path: str) -> None:
    """Remove a Delta table's files, the log last: what is left of a table is no other table."""
    files = [item.path for item in store.list(path)]
    store.delete(*(file for file in files if "/_delta_log/" not in file))
    store.delete(*(file for file in files if "/_delta_log/" in file))


def open_store(environ: Mapping[str, str] = os.environ) -> Storage:
    """For Airflow's tasks and triggers and the commands: fails early, since callers retry."""
    return Storage(environ, quick=True)
