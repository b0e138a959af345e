"""Files opened at any place in them, on disks and in S3: a parquet footer needs the end of a file alone."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.stores.s3 import client

if TYPE_CHECKING:
    from obstore import ReadableFile

_READ_AHEAD = 64 * 1024


@contextmanager
def opened(path: str, environ: Mapping[str, str] = os.environ) -> Iterator[BinaryIO]:
    """A seekable reader of an absolute local path or an `s3://` URL.

    Raises:
        FileNotFoundError: nothing there.
        OSError: it can't be read; obstore's own errors are among them.
    """
    if not is_s3(path):
        with Path(path).open("rb") as file:
            yield file
        return
    import obstore  # noqa: PLC0415 - local files need no client

    bucket, key = split(path)
    try:
        remote = obstore.open_reader(client(bucket, environ), key)
    except obstore.exceptions.BaseError as error:
        raise OSError(str(error)) from error
    with io.BufferedReader(_Remote(remote), _READ_AHEAD) as reader:
        yield cast("BinaryIO", reader)


class _Remote(io.RawIOBase):
    """obstore's reader as a file of Python's: its own `closed` is a method, which pyarrow takes for true."""

    def __init__(self, reader: ReadableFile) -> None:
        super().__init__()
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._reader.seek(offset, whence)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # callers pass a memoryview; the stub's Buffer has no len before 3.12
        from obstore.exceptions import BaseError  # noqa: PLC0415 - imported when needed

        try:
            data = self._reader.read(len(buffer))
        except BaseError as error:
            raise OSError(str(error)) from error
        buffer[: len(data)] = data
        return len(data)
