"""Seekable readers of files and objects that translate store errors."""

from __future__ import annotations

import gzip
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from airflow_gddl.contract.errors import QuarantinableError
from airflow_gddl.stores.faults import translated


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


if TYPE_CHECKING:
    from typing_extensions import Buffer


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


if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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
        found = io.BytesIO()
        while part := self._stream.read(_CHUNK):
            self._require_bounded()
            found.write(part)
        return found.getvalue()

    def _require_bounded(self) -> None:
        if self._stream.tell() > self._most:
            raise too_large(f"it holds more than {self._most:,} bytes when inflated", self._path)


def too_large(what: str, path: str) -> QuarantinableError:
    """
    Args:
        what: how large it is; the tier's bounds are its end.
    """
    remedy = "deliver it in smaller files, or again after max_inflated_bytes and max_inflation of the tier are raised"
    return QuarantinableError("FILE_TOO_LARGE", f"{what}: {remedy}", where=path, remedy=remedy)
