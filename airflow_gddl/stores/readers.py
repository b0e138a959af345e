"""Seekable readers of files and objects that translate store errors."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from airflow_gddl.stores.faults import translated

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
