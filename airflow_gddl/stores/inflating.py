"""Reads gzip streams up to a bound: a few megabytes of gzip may hold gigabytes."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, BinaryIO

from airflow_gddl.contract.errors import QuarantinableError

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
