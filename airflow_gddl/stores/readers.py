"""Seekable readers of files and objects, and errors of stores translated into errors with a code and a remedy.

Also what the footer of a parquet file states of its column chunks, not by pyarrow's `RowGroupMetaData.column`: a footer
that contradicts itself, e.g. by a histogram of the wrong length, ends the process there, because the C++ exception
meets code that expects none. Opening or reading the file raises.
"""

from __future__ import annotations

import errno
import gzip
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from airflow_gddl.contract.codes import DISK_FULL, FILE_TOO_LARGE, STORAGE_BUSY, STORAGE_DENIED, STORAGE_UNUSABLE
from airflow_gddl.contract.errors import FatalError, GddlError, QuarantinableError, RetriableError
from airflow_gddl.contract.s3 import is_s3, s3_error

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from typing_extensions import Buffer


_FULL = {errno.ENOSPC, errno.EDQUOT}
# As the C library, Java, Rust and stores with the API of S3 put it.
_FULL_TEXT = re.compile(
    r"No space left on device|Disk quota exceeded|os error (28|122)\)|\b(XMinio)?StorageFull\b|507 Insufficient"
)
_UNUSABLE = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
# obstore has no error class for a failed listing: the status is only in the message.
_DENIED_TEXT = re.compile(r"\bAccessDenied\b|status code: 40[13]|\b40[13] (Forbidden|Unauthorized)")
_NO_STORE_TEXT = re.compile(r"status code: 404")


class translated:  # noqa: N801 - a context manager; a class, for a listing of each of 10,000 folders enters one
    """Translates errors raised inside; a missing object remains a FileNotFoundError.

    Raises:
        RetriableError: `STORAGE_BUSY`; `DISK_FULL`; `S3_UNREACHABLE`.
        FatalError: `STORAGE_DENIED`, `STORAGE_UNUSABLE`; `S3_…` (`contract.s3.CODES`): nothing in the bucket can be
            read.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, GddlError):
            fault = _s3_fault(error, self._path) if is_s3(self._path) else _local_fault(error, self._path)
            if fault is not None:
                raise fault from error


def _local_fault(error: Exception, path: str) -> GddlError | None:
    if isinstance(error, FileNotFoundError):
        return None
    if isinstance(error, OSError):
        return os_error(error, path)
    return _unusable(path, error) if isinstance(error, ValueError) else None


def _s3_fault(error: Exception, path: str) -> GddlError | None:
    from obstore import exceptions as client  # noqa: PLC0415 - already imported for any path on S3

    if not isinstance(error, OSError | ValueError | client.BaseError):
        return None
    if (full := disk_full(str(error), path)) is not None:
        return full
    if (fault := s3_error(str(error), path)) is not None or isinstance(error, FileNotFoundError):
        return fault
    denied = (client.PermissionDeniedError, client.UnauthenticatedError, PermissionError)
    if isinstance(error, denied) or _DENIED_TEXT.search(str(error)):
        return _denied(path, error)
    refused = (client.InvalidPathError, client.NotSupportedError, client.UnknownConfigurationKeyError, ValueError)
    if isinstance(error, refused) or _NO_STORE_TEXT.search(str(error)):
        return _unusable(path, error)
    return _busy(path, error)


def make_folder(folder: str | Path) -> None:
    """
    Raises:
        OSError: never a `FileNotFoundError`, which would say that an object is missing.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        raise OSError(errno.ENOTDIR, "the folder can't be made", str(folder)) from error


def os_error(error: OSError, path: str) -> GddlError:
    """The error class of an operating-system error other than a missing file."""
    if error.errno in _DENIED:
        return _denied(path, error)
    if error.errno in _FULL:
        return _full(path, error)
    return _unusable(path, error) if error.errno in _UNUSABLE else _busy(path, error)


def disk_full(text: str, path: str, shown: Exception | None = None) -> RetriableError | None:
    """The error for any library's message that a disk or store is full; null for other messages.

    Args:
        shown: has the part of the message that is shown; None: the first line of `text`.
    """
    return _full(path, shown or OSError(text)) if _FULL_TEXT.search(text) else None


def _full(path: str, error: Exception) -> RetriableError:
    remedy = "free space there, then run again; nothing is lost, the next run resumes the batch"
    return RetriableError(DISK_FULL, _first_line(error), where=path, remedy=remedy)


def _denied(path: str, error: Exception) -> FatalError:
    remedy = "grant the role or user of this process the right to list, read and write there"
    return FatalError(STORAGE_DENIED, f"no permission: {_first_line(error)}", where=path, remedy=remedy)


def _unusable(path: str, error: Exception) -> FatalError:
    remedy = "correct the path or the settings of the store"
    return FatalError(STORAGE_UNUSABLE, _first_line(error), where=path, remedy=remedy)


def _busy(path: str, error: Exception) -> RetriableError:
    remedy = "run again; if it happens again, check the mount, the network, the bucket's region and the permissions"
    return RetriableError(STORAGE_BUSY, f"the store failed: {_first_line(error)}", where=path, remedy=remedy)


def _first_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.strip().partition("\n")[0][:300] or type(error).__name__


class StoredObject(NamedTuple):
    """A file or object, as a listing or `Storage.stat` finds it; listings make tens of thousands of them.

    Attributes:
        folder: the folder that was listed, in the form it was asked in, without a slash at its end.
        name: relative to the folder, with `/`; bytes of a name that is not UTF-8 are escaped. Empty: the folder itself,
            which must not be read.
        size: bytes.
        etag: changes whenever the content may have changed; without quotes.
        modified: seconds since the epoch.
        refused: why it must not be read; empty: it can be read.
    """

    folder: str
    name: str
    size: int
    etag: str
    modified: float
    refused: str = ""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}" if self.name else self.folder

    @property
    def is_unfinished(self) -> bool:
        """Whether a local store writes it beside its target, which it is about to replace, or was killed before."""
        return self.name.rpartition("/")[2].startswith(".")

    @property
    def modified_at(self) -> str:
        """ISO 8601 UTC with microseconds."""
        return datetime.fromtimestamp(self.modified, UTC).isoformat(timespec="microseconds")


class StoreReader(io.BufferedReader):
    """See `Storage.open_input`.

    Args:
        raw: the content of `path`.
        ahead: bytes that a small read asks of `raw`.
    """

    def __init__(self, path: str, raw: io.RawIOBase, ahead: int = 64 * 1024) -> None:
        super().__init__(raw, ahead)
        self._path = path

    def read(self, size: int | None = -1, /) -> bytes:
        with translated(self._path):
            return super().read(size)

    def read1(self, size: int = -1, /) -> bytes:
        with translated(self._path):
            return super().read1(size)

    def readinto(self, buffer: Buffer, /) -> int:
        with translated(self._path):
            return super().readinto(buffer)


READ_AHEAD = 1024 * 1024
"""Bytes of an object that its first request reads."""
LAST_BYTES = 64 * 1024
"""Bytes at the end of a parquet file that pyarrow reads first, for the footer."""
GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20


class Inflating(io.RawIOBase):
    """The content of a gzip stream, seekable.

    Args:
        most: bytes that may be read from it.
        path: of the file, for the error.

    Raises:
        QuarantinableError: `FILE_TOO_LARGE`, from the first read beyond `most`.
    """

    def __init__(self, stream: BinaryIO, most: int, path: str) -> None:
        super().__init__()
        self._stream, self._most, self._path = gzip.GzipFile(fileobj=stream), most, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = self._stream.readinto(buffer)
        self._require_bounded()
        return count

    def readall(self) -> bytes:
        buffer = io.BytesIO()
        while part := self._stream.read(_CHUNK):
            self._require_bounded()
            buffer.write(part)
        return buffer.getvalue()

    def _require_bounded(self) -> None:
        if self._stream.tell() > self._most:
            raise too_large(f"it holds more than {self._most:,} bytes when inflated", self._path)


def too_large(what: str, path: str) -> QuarantinableError:
    """
    Args:
        what: how large it is; the tier's bound is its end.
    """
    remedy = "deliver it in smaller files, or again after max_inflated_bytes of the tier is raised"
    return QuarantinableError(FILE_TOO_LARGE, f"{what}: {remedy}", where=path, remedy=remedy)


_DEEPEST = 64
_LONGEST_VARINT = 70
_TAIL = 8
"""Bytes after the footer: its length and `PAR1`."""


@dataclass(frozen=True)
class Chunk:
    """A column of a row group, as the footer states it; name and type are those of the schema's column at its place.

    Attributes:
        values: nulls included.
        nulls: null where it isn't stated.
        inflated: bytes without compression.
    """

    values: int
    nulls: int | None
    inflated: int
    has_dictionary: bool


def chunks_of(stream: BinaryIO, columns: int) -> list[list[Chunk]]:
    """The column chunks of each row group.

    Args:
        columns: leaves of the file's schema.

    Raises:
        ValueError: the footer is damaged.
    """
    end = stream.seek(-_TAIL, io.SEEK_END)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(max(end - length, 0))
    try:
        groups = _Compact(stream.read(length)).struct().get(4, ())
        chunks = [[_chunk(chunk) for chunk in group[1]] for group in groups]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"its footer is damaged: {error!r}") from error
    if any(len(group) != columns for group in chunks):
        raise ValueError("row groups of its footer have other columns than its schema")
    return chunks


def _chunk(stored: Mapping[int, Any]) -> Chunk:
    """Numbers are those of parquet.thrift: `ColumnChunk`, `ColumnMetaData`, `Statistics`."""
    meta = stored[3]
    values, inflated, compressed = meta[5], meta[6], meta[7]
    if min(values, inflated, compressed) < 0:
        raise ValueError("its footer states a negative size")
    nulls = meta.get(12, {}).get(3)
    return Chunk(values=values, nulls=nulls, inflated=inflated, has_dictionary=11 in meta)


class _Compact:
    """Reads Thrift's compact protocol; a structure becomes a dictionary by the numbers of its fields."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("its footer is nested too deeply")
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            return list(self._elements(depth))
        if kind == 12:
            return self.struct(depth + 1)
        if kind in _FIXED:
            return self._bytes(_FIXED[kind])
        raise ValueError(f"its footer has a value of the unknown type {kind}")

    def _elements(self, depth: int) -> Iterator[Any]:
        head = self._byte()
        count = head >> 4
        if count == 15:
            count = self._varint()
        for _ in range(count):
            yield self._value(head & 15, depth + 1)

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) != count:
            raise ValueError("its footer ends too early")
        self._at += count
        return piece

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift >= _LONGEST_VARINT:
                raise ValueError("its footer has a number of too many digits")

    def _integer(self) -> int:
        """Zigzag."""
        number = self._varint()
        return (number >> 1) ^ -(number & 1)


_FIXED: Mapping[int, int] = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}
"""Bytes of types of a fixed length; a boolean within a list has one."""
