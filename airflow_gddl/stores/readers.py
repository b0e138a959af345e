"""Seekable readers of files and objects that translate store errors."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

from airflow_gddl.stores.faults import translated

if TYPE_CHECKING:
    from typing_extensions import Buffer


def buffered(path: str, raw: io.RawIOBase, ahead: int = 64 * 1024) -> BinaryIO:
    """A buffered reader of `raw`, which is the content of `path`.

    Args:
        ahead: bytes that a small read asks of `raw`.
    """
    return cast("BinaryIO", _Reader(path, raw, ahead))


class _Reader(io.BufferedReader):
    """See `Storage.open_input`."""

    def __init__(self, path: str, raw: io.RawIOBase, ahead: int) -> None:
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
