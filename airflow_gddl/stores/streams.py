"""Files opened at any place in them, on disks and in S3: a parquet footer needs the end of a file alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.stores.s3 import client


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
        reader = obstore.open_reader(client(bucket, environ), key)
    except obstore.exceptions.BaseError as error:
        raise OSError(str(error)) from error
    yield cast("BinaryIO", reader)
