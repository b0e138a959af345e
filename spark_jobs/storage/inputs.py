"""Readers of files and objects whose faults are those of the store, so that content's own can be told from them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

from spark_jobs.storage.faults import translated

if TYPE_CHECKING:
    from typing_extensions import Buffer


def input_of(path: str, raw: io.RawIOBase, ahead: int = 64 * 1024) -> BinaryIO:
    """A buffered reader of this path whose faults are those of the store."""
    return cast("BinaryIO", _Input(path, raw, ahead))


class _Input(io.BufferedReader):
    """A reader whose faults are those of the store; see `Storage.open_input`."""

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
